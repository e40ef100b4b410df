/*
import_gguf.h -- what a GGUF file says of a model, as Hugging Face would say it: the keys as a
config.json, the tensors under its names, folded as it folds them. From there on import.h does not
know the difference.

A key that is not understood is an error that names it. TO ADD a family: a row of GGUF_MODELS, and
what is new in it: rows of GGUF_CONFIG and GGUF_NAMES. Facts: gguf-py 0.19 (names), transformers
5.23, modeling_gguf_pytorch_utils.py (folds).
*/
#ifndef IMPORT_GGUF_H
#define IMPORT_GGUF_H
#include "gguf.h"

// a tensor and its name there; # is the number of a layer
static const char* const GGUF_NAMES[][2] = {
    { "token_embd", "model.embed_tokens" },
    { "token_embd_norm", "model.embed_norm" },
    { "position_embd", "model.embed_positions" },
    { "output_norm", "model.norm" },
    { "output", "lm_head" },
    { "blk.#.attn_norm", "model.layers.#.input_layernorm" },
    { "blk.#.attn_q", "model.layers.#.self_attn.q_proj" },
    { "blk.#.attn_k", "model.layers.#.self_attn.k_proj" },
    { "blk.#.attn_v", "model.layers.#.self_attn.v_proj" },
    { "blk.#.attn_qkv", "model.layers.#.self_attn.qkv_proj" },
    { "blk.#.attn_output", "model.layers.#.self_attn.o_proj" },
    { "blk.#.attn_q_norm", "model.layers.#.self_attn.q_norm" },
    { "blk.#.attn_k_norm", "model.layers.#.self_attn.k_norm" },
    { "blk.#.ffn_norm", "model.layers.#.post_attention_layernorm" },
    { "blk.#.ffn_gate", "model.layers.#.mlp.gate_proj" },
    { "blk.#.ffn_up", "model.layers.#.mlp.up_proj" },
    { "blk.#.ffn_down", "model.layers.#.mlp.down_proj" },
};

// The keys of this file as a config.json.
Json gguf_config(const Gguf& g);

// The file's tensors as Hugging Face has them. Takes the map over from g.
Weights gguf_weights(Gguf* g);
#endif // IMPORT_GGUF_H
