/*
family_names.h -- inside of families.cpp: tensor names of families, where they are not LLaMA's. A
row: our name, theirs, and, if ours is not theirs as it is, how it is part of it (import.h). N
stands for the layer. The first row that fits counts.
*/
#ifndef FAMILY_NAMES_H
#define FAMILY_NAMES_H
#include "import.h"

// Ends a table: the rows of another one follow.
constexpr NameRow then(const NameRow* rows) { return { NULL, NULL, AS_IT_IS, rows }; }

static const NameRow LLAMA_NAMES[] = {
    { "model.*", "model.*" },
    { "lm_head", "lm_head" },
    { "*", "model.layers.N.*" },
    {}
};
// what GPT-2 and GPT-Neo call the same
static const NameRow GPT2_REST[] = {
    { "model.embed_tokens", "wte" },
    { "model.embed_positions", "wpe" },
    { "input_layernorm", "h.N.ln_1" },
    { "post_attention_layernorm", "h.N.ln_2" },
    { "mlp.up_proj", "h.N.mlp.c_fc" },
    { "mlp.down_proj", "h.N.mlp.c_proj" },
    { "model.norm", "ln_f" },
    { "lm_head", "lm_head" },
    {}
};
static const NameRow GPT2_NAMES[] = {
    { "self_attn.q_proj", "h.N.attn.c_attn", STACKED_Q },
    { "self_attn.k_proj", "h.N.attn.c_attn", STACKED_K },
    { "self_attn.v_proj", "h.N.attn.c_attn", STACKED_V },
    { "self_attn.o_proj", "h.N.attn.c_proj" },
    then(GPT2_REST)
};
static const NameRow GPT_NEO_NAMES[] = {
    { "self_attn.o_proj", "h.N.attn.attention.out_proj" },
    { "self_attn.*", "h.N.attn.attention.*" },
    then(GPT2_REST)
};
// the rows that do not depend on where the norms are
static const NameRow OPT_REST[] = {
    { "model.embed_tokens", "embed_tokens" },
    { "lm_head", "lm_head" },
    { "model.embed_positions", "embed_positions", SKIP_TWO },
    { "self_attn.o_proj", "layers.N.self_attn.out_proj" },
    { "self_attn.*", "layers.N.self_attn.*" },
    { "mlp.up_proj", "layers.N.fc1" },
    { "mlp.down_proj", "layers.N.fc2" },
    {}
};
static const NameRow OPT_NAMES[] = {
    { "input_layernorm", "layers.N.self_attn_layer_norm" },
    { "post_attention_layernorm", "layers.N.final_layer_norm" },
    { "model.norm", "final_layer_norm" },
    then(OPT_REST)
};
// of do_layer_norm_before false: norms of the stream
static const NameRow OPT_POST_NAMES[] = {
    { "post_attention_layernorm", "layers.N.self_attn_layer_norm" },
    { "post_feedforward_layernorm", "layers.N.final_layer_norm" },
    then(OPT_REST)
};
static const NameRow NEOX_NAMES[] = {
    { "model.embed_tokens", "gpt_neox.embed_in" },
    { "lm_head", "embed_out" },
    { "input_layernorm", "gpt_neox.layers.N.input_layernorm" },
    { "post_attention_layernorm", "gpt_neox.layers.N.post_attention_layernorm" },
    { "self_attn.q_proj", "gpt_neox.layers.N.attention.query_key_value", GROUPS_Q },
    { "self_attn.k_proj", "gpt_neox.layers.N.attention.query_key_value", GROUPS_K },
    { "self_attn.v_proj", "gpt_neox.layers.N.attention.query_key_value", GROUPS_V },
    { "self_attn.o_proj", "gpt_neox.layers.N.attention.dense" },
    { "mlp.up_proj", "gpt_neox.layers.N.mlp.dense_h_to_4h" },
    { "mlp.down_proj", "gpt_neox.layers.N.mlp.dense_4h_to_h" },
    { "model.norm", "gpt_neox.final_layer_norm" },
    {}
};
// ERNIE 4.5, Helium: pairs side by side
static const NameRow PAIRED_NAMES[] = {
    { "self_attn.q_proj", "model.layers.N.self_attn.q_proj", PAIRED },
    { "self_attn.k_proj", "model.layers.N.self_attn.k_proj", PAIRED },
    then(LLAMA_NAMES)
};
static const NameRow COHERE_NAMES[] = { // one norm for both branches
    { "post_attention_layernorm", "model.layers.N.input_layernorm" },
    then(PAIRED_NAMES)
};
static const NameRow GLM_NAMES[] = {
    { "mlp.gate_proj", "model.layers.N.mlp.gate_up_proj", FIRST_HALF },
    { "mlp.up_proj", "model.layers.N.mlp.gate_up_proj", LAST_ROWS },
    then(PAIRED_NAMES)
};
static const NameRow GLM4_NAMES[] = {
    { "post_attention_layernorm", "model.layers.N.post_self_attn_layernorm" },
    { "pre_feedforward_layernorm", "model.layers.N.post_attention_layernorm" },
    { "post_feedforward_layernorm", "model.layers.N.post_mlp_layernorm" },
    then(GLM_NAMES)
};
static const NameRow OLMO_NAMES[] = { // norms without weights
    { "input_layernorm", "", ALL_ONES },
    { "post_attention_layernorm", "", ALL_ONES },
    { "model.norm", "", ALL_ONES },
    then(LLAMA_NAMES)
};
static const NameRow NANOCHAT_NAMES[] = { // likewise; it turns the other way
    { "self_attn.q_proj", "model.layers.N.self_attn.q_proj", HALVES_SWAPPED },
    { "self_attn.k_proj", "model.layers.N.self_attn.k_proj", HALVES_SWAPPED },
    { "self_attn.q_norm", "", ALL_ONES },
    { "self_attn.k_norm", "", ALL_ONES },
    { "mlp.up_proj", "model.layers.N.mlp.fc1" },
    { "mlp.down_proj", "model.layers.N.mlp.fc2" },
    { "input_layernorm", "", ALL_ONES },
    { "post_attention_layernorm", "", ALL_ONES },
    { "model.embed_norm", "", ALL_ONES },
    { "model.norm", "", ALL_ONES },
    then(LLAMA_NAMES)
};
static const NameRow STARCODER2_NAMES[] = {
    { "mlp.up_proj", "model.layers.N.mlp.c_fc" },
    { "mlp.down_proj", "model.layers.N.mlp.c_proj" },
    then(LLAMA_NAMES)
};
static const NameRow GPTJ_NAMES[] = { // one norm for both branches
    { "model.embed_tokens", "wte" },
    { "lm_head", "lm_head" },
    { "input_layernorm", "h.N.ln_1" },
    { "post_attention_layernorm", "h.N.ln_1" },
    { "self_attn.q_proj", "h.N.attn.q_proj", PAIRED },
    { "self_attn.k_proj", "h.N.attn.k_proj", PAIRED },
    { "self_attn.v_proj", "h.N.attn.v_proj" },
    { "self_attn.o_proj", "h.N.attn.out_proj" },
    { "mlp.up_proj", "h.N.mlp.fc_in" },
    { "mlp.down_proj", "h.N.mlp.fc_out" },
    { "model.norm", "ln_f" },
    {}
};
static const NameRow PHI_NAMES[] = { // one norm for both branches
    { "post_attention_layernorm", "model.layers.N.input_layernorm" },
    { "self_attn.o_proj", "model.layers.N.self_attn.dense" },
    { "mlp.up_proj", "model.layers.N.mlp.fc1" },
    { "mlp.down_proj", "model.layers.N.mlp.fc2" },
    { "model.norm", "model.final_layernorm" },
    then(LLAMA_NAMES)
};
// of Phi-3 and of GGUF files
static const NameRow QKV_NAMES[] = {
    { "self_attn.q_proj", "model.layers.N.self_attn.qkv_proj", STACKED_Q },
    { "self_attn.k_proj", "model.layers.N.self_attn.qkv_proj", STACKED_K },
    { "self_attn.v_proj", "model.layers.N.self_attn.qkv_proj", STACKED_V },
    then(LLAMA_NAMES)
};
static const NameRow PHI3_NAMES[] = {
    { "mlp.gate_proj", "model.layers.N.mlp.gate_up_proj", FIRST_HALF },
    { "mlp.up_proj", "model.layers.N.mlp.gate_up_proj", LAST_ROWS },
    then(QKV_NAMES)
};
// the rows that do not depend on how many norms there are
static const NameRow FALCON_REST[] = {
    { "model.embed_tokens", "word_embeddings" },
    { "model.embed_norm", "word_embeddings_layernorm" },
    { "self_attn.q_proj", "h.N.self_attention.query_key_value", GROUPS_Q },
    { "self_attn.k_proj", "h.N.self_attention.query_key_value", GROUPS_K },
    { "self_attn.v_proj", "h.N.self_attention.query_key_value", GROUPS_V },
    { "self_attn.o_proj", "h.N.self_attention.dense" },
    { "mlp.up_proj", "h.N.mlp.dense_h_to_4h" },
    { "mlp.down_proj", "h.N.mlp.dense_4h_to_h" },
    { "model.norm", "ln_f" },
    { "lm_head", "lm_head" },
    {}
};
static const NameRow FALCON_ONE_NORM[] = {
    { "input_layernorm", "h.N.input_layernorm" },
    { "post_attention_layernorm", "h.N.input_layernorm" },
    then(FALCON_REST)
};
static const NameRow FALCON_TWO_NORMS[] = {
    { "input_layernorm", "h.N.ln_attn" },
    { "post_attention_layernorm", "h.N.ln_mlp" },
    then(FALCON_REST)
};
static const NameRow BLOOM_NAMES[] = {
    { "input_layernorm", "h.N.input_layernorm" },
    { "post_attention_layernorm", "h.N.post_attention_layernorm" },
    then(FALCON_REST)
};
static const NameRow MPT_NAMES[] = {
    { "model.embed_tokens", "wte" },
    { "lm_head", "lm_head" },
    { "input_layernorm", "blocks.N.norm_1" },
    { "post_attention_layernorm", "blocks.N.norm_2" },
    { "self_attn.q_proj", "blocks.N.attn.Wqkv", STACKED_Q },
    { "self_attn.k_proj", "blocks.N.attn.Wqkv", STACKED_K },
    { "self_attn.v_proj", "blocks.N.attn.Wqkv", STACKED_V },
    { "self_attn.o_proj", "blocks.N.attn.out_proj" },
    { "mlp.up_proj", "blocks.N.ffn.up_proj" },
    { "mlp.down_proj", "blocks.N.ffn.down_proj" },
    { "model.norm", "norm_f" },
    {}
};
static const NameRow JAMBA_NAMES[] = {
    { "model.norm", "model.final_layernorm" },
    { "post_attention_layernorm", "model.layers.N.pre_ff_layernorm" },
    { "mlp.*", "model.layers.N.feed_forward.*" },
    then(LLAMA_NAMES)
};

// Qwen 3.5: the rows of a head's gate follow those of its q
static const NameRow QWEN3_5_NAMES[] = {
    { "self_attn.q_proj", "model.layers.N.self_attn.q_proj", GATED_Q },
    { "self_attn.gate_proj", "model.layers.N.self_attn.q_proj", GATED_GATE },
    { "linear_attn.norm", "model.layers.N.linear_attn.norm", NORM_FACTOR },
    then(LLAMA_NAMES)
};
static const NameRow QWEN3_NEXT_NAMES[] = {
    { "linear_attn.in_proj_qkv", "model.layers.N.linear_attn.in_proj_qkvz", DELTA_QKV },
    { "linear_attn.in_proj_z", "model.layers.N.linear_attn.in_proj_qkvz", DELTA_Z },
    { "linear_attn.in_proj_b", "model.layers.N.linear_attn.in_proj_ba", DELTA_B },
    { "linear_attn.in_proj_a", "model.layers.N.linear_attn.in_proj_ba", DELTA_A },
    then(QWEN3_5_NAMES)
};

// Of GGUF files, by what import_gguf.h calls their tensors: in its place if the family has a table
// of its own. A row counts if its tensor is there: q, k and v may be one, gate and up one, and
// attention's norm the FFN's, too.
static const NameRow GGUF_FAMILY_NAMES[] = {
    { "mlp.up_proj", "model.layers.N.mlp.up_proj", LAST_ROWS },
    { "*", "model.layers.N.*" },
    { "post_attention_layernorm", "model.layers.N.input_layernorm" },
    { "mlp.gate_proj", "model.layers.N.mlp.up_proj", FIRST_HALF },
    then(QKV_NAMES)
};
#endif // FAMILY_NAMES_H
