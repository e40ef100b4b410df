/*
gguf_families.h -- the families that GGUF files hold, as tables: import_gguf.h reads a file by them.
Facts: gguf-py 0.19.
*/
#ifndef GGUF_FAMILIES_H
#define GGUF_FAMILIES_H
#include "../base/common.h"

// A family: its name in the file, its model_type, and its activation in config.json, value and key.
// form, how its tensors lie:
//   pairs      rows of q and k have rotary pairs side by side
//   sandwich   norms after attention and FFN, too
struct GgufModel {
    const char *arch, *model_type, *form = "", *act = "silu", *key = "hidden_act";
};
static const GgufModel GGUF_MODELS[] = {
    { "llama",    "llama", "pairs" },
    { "qwen2",    "qwen2" },
    { "qwen3",    "qwen3" },
    { "smollm3",  "smollm3", "pairs" },
    { "gemma",    "gemma", "", "gelu_pytorch_tanh", "hidden_activation" },
    { "gemma2",   "gemma2", "sandwich", "gelu_pytorch_tanh", "hidden_activation" },
    { "gemma3",   "gemma3_text", "sandwich", "gelu_pytorch_tanh", "hidden_activation" },
    { "olmo2",    "olmo2", "sandwich" },
    { "phi2",     "phi", "", "gelu_new" },
    { "phi3",     "phi3" },
    { "stablelm", "stablelm" },
    { "gpt2",     "gpt2", "", "gelu_new", "activation_function" },
    { "gptneox",  "gpt_neox", "", "gelu" },
    { "qwen2moe", "qwen2_moe" },
    { "qwen3moe", "qwen3_moe" },
    { "gpt-oss",  "gpt_oss" },
    { "falcon",   "falcon", "", "gelu", "activation" },
    { "bloom",    "bloom", "", "", "" },
    { "granite",  "granite", "pairs" },
};

// A key after the family's name, its key in config.json, and the only family that has it (NULL:
// all), whose row then counts. "" stands for a key that changes nothing or that is looked at by
// itself
static const char* const GGUF_CONFIG[][3] = {
    { "block_count", "num_hidden_layers" },
    { "embedding_length", "hidden_size" },
    { "feed_forward_length", "intermediate_size" },
    { "context_length", "max_position_embeddings" },
    { "attention.head_count", "num_attention_heads" },
    { "attention.head_count_kv", "num_key_value_heads" },
    { "attention.key_length", "head_dim" },
    { "attention.layer_norm_rms_epsilon", "rms_norm_eps" },
    { "attention.layer_norm_epsilon", "rms_norm_eps" },
    { "attention.sliding_window", "sliding_window" },
    { "rope.freq_base", "rope_theta" },
    { "rope.freq_base_swa", "rope_local_base_freq" },
    { "attn_logit_softcapping", "attn_logit_softcapping" },
    { "final_logit_softcapping", "final_logit_softcapping" },
    { "attention.scale", "attention_multiplier", "granite" },
    { "embedding_scale", "embedding_multiplier", "granite" },
    { "residual_scale", "residual_multiplier", "granite" },
    { "logit_scale", "logits_scaling", "granite" },
    { "use_parallel_residual", "use_parallel_residual" },
    { "expert_count", "num_local_experts" },
    { "expert_used_count", "num_experts_per_tok" },
    { "expert_feed_forward_length", "moe_intermediate_size" },
    { "expert_shared_feed_forward_length", "shared_expert_intermediate_size" },
    { "vocab_size", "" },                                // the rows of the embedding
    { "tensor_data_layout", "" },
    { "attention.value_length", "" },
    { "rope.dimension_count", "" },
    { "rope.scaling.type", "" },
    { "rope.scaling.factor", "" },
    { "rope.scaling.original_context_length", "" },
    { "rope.scaling.finetuned", "" },
    { "expert_feed_forward_length", "", "gpt-oss" },     // the width of its experts once more
};

// A tensor and its name in Hugging Face's files; # is the number of a layer. Of two rows the last
// counts; one with a form only for files that have it: sandwich, or two_norms, Falcon's with a norm
// for attention and one for the FFN
static const char* const GGUF_NAMES[][3] = {
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
    { "blk.#.post_attention_norm", "model.layers.#.post_attention_layernorm" },  // of gpt-oss
    { "blk.#.ffn_norm", "model.layers.#.post_attention_layernorm" },
    { "blk.#.ffn_gate", "model.layers.#.mlp.gate_proj" },
    { "blk.#.ffn_up", "model.layers.#.mlp.up_proj" },
    { "blk.#.ffn_down", "model.layers.#.mlp.down_proj" },
    { "blk.#.attn_sinks", "model.layers.#.self_attn.sinks" },
    { "blk.#.ffn_gate_inp", "model.layers.#.mlp.router" },
    { "blk.#.ffn_gate_exps", "model.layers.#.mlp.experts.gate_exps" },
    { "blk.#.ffn_up_exps", "model.layers.#.mlp.experts.up_exps" },
    { "blk.#.ffn_down_exps", "model.layers.#.mlp.experts.down_exps" },
    { "blk.#.ffn_gate_inp_shexp", "model.layers.#.mlp.shared_expert_gate" },
    { "blk.#.ffn_gate_shexp", "model.layers.#.mlp.shared_expert.gate_proj" },
    { "blk.#.ffn_up_shexp", "model.layers.#.mlp.shared_expert.up_proj" },
    { "blk.#.ffn_down_shexp", "model.layers.#.mlp.shared_expert.down_proj" },
    { "blk.#.ffn_norm", "model.layers.#.pre_feedforward_layernorm", "sandwich" },
    { "blk.#.post_ffw_norm", "model.layers.#.post_feedforward_layernorm", "sandwich" },
    { "blk.#.attn_norm_2", "model.layers.#.input_layernorm", "two_norms" },
    { "blk.#.attn_norm", "model.layers.#.post_attention_layernorm", "two_norms" },
};
#endif // GGUF_FAMILIES_H
