/*
open/families.cpp -- the families that import.h reads, a row of FAMILIES for each. What a row
cannot say is a function more_NAME of family_more.h; tensor names, where they are not LLaMA's, are
tables of family_names.h.
*/
#include "family_more.h"
#include "family_names.h"

// The keys of biases: of q, k, v and the output of attention; of these and the FFN.
#define ATTENTION_BIAS "attention_bias:qkv_bias attention_bias:out_bias "
#define BIASES ATTENTION_BIAS "mlp_bias:ffn_bias "
#define GRANITE_KEYS BIASES \
    "embedding_multiplier:embed_scale residual_multiplier:residual_scale " \
    "attention_multiplier:score_scale logits_scaling:logit_divisor"
#define GEMMA_WANTED "attention_bias=false use_bidirectional_attention=false"
#define QWEN3_5_LAYERS \
    "HS=256 qk_norm=head gate=elem rope_part=0.25 delta_keys=16 delta_values=32 " \
    "delta_key_size=128 delta_value_size=128 delta_conv=4"
#define QWEN3_5_KEYS \
    "partial_rotary_factor:rope_part linear_num_key_heads:delta_keys " \
    "linear_num_value_heads:delta_values linear_key_head_dim:delta_key_size " \
    "linear_value_head_dim:delta_value_size linear_conv_kernel_dim:delta_conv " \
    "mamba_ssm_dtype: mtp_num_hidden_layers: mtp_use_dedicated_embeddings: language_model_only:"
#define QWEN3_5_WANTED \
    "attention_bias=false attn_output_gate=true use_sliding_window=false hidden_act=silu"
#define GPT2_KEYS \
    "n_embd:C n_head:NH n_layer:L n_positions:T n_inner:F layer_norm_epsilon:eps"
static const RopeForm QWEN_ROPE = { " mrope_section mrope_interleaved " };   // axes of an image
static const RopeForm MINISTRAL_ROPE = { " llama_4_scaling_beta max_position_embeddings " };
static const RopeForm PHI3_ROPE = { "", " longrope su yarn ", 4096 };        // of its class
static const RopeForm ROPE_BY_LAYER = { "", "", 0, true };
// A key "theirs:" is one that transformers does not read there, or that says how it is computed.
// name, rows, keys, wanted, more, names, rope, plus_one, act, prefix, transposed: struct Family
static const Family FAMILIES[] = {
    { "llama", "eps=1e-6", BIASES
      "sliding_window:",
      "rope_interleaved=false use_sliding_window=false activation=swiglu" },
    { "mistral", "eps=1e-6 KV=8", "", "attention_bias=false", more_mistral },
    { "ministral3", "eps=1e-5 KV=8 HS=128", "", "attention_bias=false", more_ministral3, NULL,
      MINISTRAL_ROPE },
    { "smollm3", "eps=1e-6 KV=4 tied=1 rope_base=2000000", BIASES
      "sliding_window: max_window_layers:", "use_sliding_window=false", more_smollm3 },
    { "qwen2", "eps=1e-6 qkv_bias=1", "", "use_mrope=false attention_bias=false", more_qwen, NULL,
      QWEN_ROPE },
    { "qwen3", "eps=1e-6 HS=128 qk_norm=head", ATTENTION_BIAS, "", more_qwen, NULL, QWEN_ROPE },
    { "gemma", "eps=1e-6 HS=256 tied=1", "", GEMMA_WANTED, more_gemma, NULL, {}, true,
      "hidden_activation hidden_act" },
    { "gemma2", "eps=1e-6 HS=256 tied=1 norm=sandwich ffn=geglu_tanh", "", GEMMA_WANTED,
      more_gemma2, NULL, {}, true, "hidden_activation" },
    { "gemma3_text",
      "eps=1e-6 HS=256 tied=1 norm=sandwich ffn=geglu_tanh qk_norm=head rope_base=1000000",
      "attn_logit_softcapping:", GEMMA_WANTED, more_gemma3, NULL, ROPE_BY_LAYER, true,
      "hidden_activation" },
    { "mixtral", "eps=1e-5 KV=8 rope_base=1000000 experts=8 experts_used=2",
      "num_local_experts:experts num_experts_per_tok:experts_used", "attention_bias=false",
      more_window },
    { "qwen2_moe", "eps=1e-6 KV=16 qkv_bias=1 experts=60 experts_used=4 F=1408 shared_expert=5632",
      "qkv_bias:qkv_bias num_local_experts:experts num_experts:experts "
      "num_experts_per_tok:experts_used "
      "moe_intermediate_size:F shared_expert_intermediate_size:shared_expert",
      "decoder_sparse_step=1", more_qwen2_moe, NULL, QWEN_ROPE },
    { "qwen3_moe", "eps=1e-6 KV=4 qk_norm=head experts=128 experts_used=8 F=768", ATTENTION_BIAS
      "num_local_experts:experts num_experts:experts num_experts_per_tok:experts_used "
      "moe_intermediate_size:F", "decoder_sparse_step=1", more_qwen3_moe, NULL, QWEN_ROPE },
    { "qwen3_next", "eps=1e-6 KV=2 experts=512 experts_used=10 F=512 shared_expert=512 "
      QWEN3_5_LAYERS,
      "num_local_experts:experts num_experts:experts num_experts_per_tok:experts_used "
      "moe_intermediate_size:F shared_expert_intermediate_size:shared_expert " QWEN3_5_KEYS,
      QWEN3_5_WANTED " decoder_sparse_step=1", more_qwen3_next, QWEN3_NEXT_NAMES, QWEN_ROPE, true },
    { "qwen3_5_text", "eps=1e-6 KV=4 " QWEN3_5_LAYERS, QWEN3_5_KEYS, QWEN3_5_WANTED, more_qwen3_5,
      QWEN3_5_NAMES, QWEN_ROPE, true },
    { "qwen3_5_moe_text", "eps=1e-6 KV=2 experts=256 experts_used=8 F=512 shared_expert=512 "
      QWEN3_5_LAYERS,
      "num_local_experts:experts num_experts:experts num_experts_per_tok:experts_used "
      "moe_intermediate_size:F shared_expert_intermediate_size:shared_expert " QWEN3_5_KEYS,
      QWEN3_5_WANTED " decoder_sparse_step=1", more_qwen3_next, QWEN3_5_NAMES, QWEN_ROPE, true },
    { "gpt_oss", "eps=1e-5 KV=8 HS=64 bias=logit qkv_bias=1 out_bias=1 ffn_bias=1 router_bias=1 "
      "rope_base=150000 experts=128 experts_used=4 expert_limit=7",
      "num_local_experts:experts num_experts_per_tok:experts_used swiglu_limit:expert_limit",
      "attention_bias=true swiglu_alpha=1.702", more_gpt_oss },
    { "jamba",
      "eps=1e-6 KV=8 T=262144 pe=nope experts=16 experts_used=2 expert_shares=1 mamba_state=16 "
      "mamba_conv=4",
      "num_local_experts:experts num_experts:experts num_experts_per_tok:experts_used "
      "mamba_d_state:mamba_state mamba_d_conv:mamba_conv "
      "use_mamba_kernels: use_mambapy: use_associative_scan: n_ctx: num_logits_to_keep: "
      "calc_logits_for_entire_prompt:",
      "mamba_conv_bias=true mamba_proj_bias=false mamba_inner_layernorms=true hidden_act=silu",
      more_jamba, JAMBA_NAMES },
    { "olmo2", "eps=1e-5 norm=branch qk_norm=all", ATTENTION_BIAS, "" },
    { "olmo", "eps=1e-5 norm_kind=ln norm_bias=0", ATTENTION_BIAS,
      "clip_qkv=null rms_norm_eps=null", NULL, OLMO_NAMES },             // it is always 1e-5
    { "olmo3", "eps=1e-5 norm=branch qk_norm=all rope_base=500000", ATTENTION_BIAS, "", more_olmo3,
      NULL, ROPE_BY_LAYER },
    { "olmoe", "eps=1e-5 qk_norm=all experts=64 experts_used=8", ATTENTION_BIAS
      "num_local_experts:experts num_experts:experts num_experts_per_tok:experts_used",
      "clip_qkv=null", more_olmoe },
    { "exaone4", "eps=1e-5 norm=branch qk_norm=head", "", "", more_exaone4 },
    { "glm", "eps=1.5625e-7 KV=2 HS=128 rope_part=0.5 qkv_bias=1",
      "partial_rotary_factor:rope_part attention_bias:qkv_bias", "", NULL, GLM_NAMES },
    { "glm4", "eps=1.5625e-7 KV=2 HS=128 rope_part=0.5 norm=sandwich qkv_bias=1",
      "partial_rotary_factor:rope_part attention_bias:qkv_bias", "", NULL, GLM4_NAMES },
    { "cohere", "eps=1e-5 norm_kind=ln norm_bias=0 parallel=1 tied=1 rope_base=500000",
      ATTENTION_BIAS "layer_norm_eps:eps", "use_qk_norm=false position_embedding_type=rope_gptj",
      more_cohere, COHERE_NAMES },
    { "cohere2", "eps=1e-5 norm_kind=ln norm_bias=0 parallel=1 tied=1", ATTENTION_BIAS
      "layer_norm_eps:eps use_parallel_embedding:", "rotary_pct=1 use_qk_norm=false "
      "order_of_interleaved_layers=local_attn_first position_embedding_type=rope_gptj "
      "use_gated_activation=true use_parallel_block=true", more_cohere2, COHERE_NAMES },
    { "nemotron", "eps=1e-5 norm_kind=ln ffn=relu2 rope_part=0.5", BIASES
      "norm_eps:eps partial_rotary_factor:rope_part", "", more_nemotron, NULL, {}, true },
    { "arcee", "eps=1e-5 ffn=relu2", BIASES, "" },
    { "helium", "eps=1e-8 KV=20 HS=128 rope_base=100000",
      "attention_bias:qkv_bias mlp_bias:ffn_bias", "", NULL, PAIRED_NAMES },
    { "seed_oss", "eps=1e-6 KV=8 HS=128 qkv_bias=1",
      "attention_bias:qkv_bias attention_out_bias:out_bias mlp_bias:ffn_bias", "" },
    { "starcoder2",
      "eps=1e-5 KV=2 norm_kind=ln tied=1 ffn=gelu_tanh qkv_bias=1 out_bias=1 ffn_bias=1",
      "norm_epsilon:eps use_bias:qkv_bias use_bias:out_bias use_bias:ffn_bias "
      "activation_function: layer_norm_epsilon:",
      "mlp_type=default norm_type=layer_norm scale_attn_weights=true", more_window,
      STARCODER2_NAMES },
    { "nanochat", "eps=1e-6 norm_embed=1 qk_norm=head ffn=relu2", ATTENTION_BIAS,
      "rope_scaling=null", more_nanochat, NANOCHAT_NAMES },
    { "phi3", "eps=1e-5", "partial_rotary_factor:rope_part original_max_position_embeddings:",
      "attention_bias=false mlp_bias=false lm_head_bias=false full_attn_mod=1 interpolate_factor=1",
      more_window, PHI3_NAMES, PHI3_ROPE },
    { "stablelm", "eps=1e-5 norm_kind=ln rope_part=0.25",
      "layer_norm_eps:eps partial_rotary_factor:rope_part use_qkv_bias:qkv_bias",
      "use_parallel_residual=false qk_layernorm=false rotary_scaling_factor=1" },
    { "gpt2",
      "eps=1e-5 norm_kind=ln tied=1 pe=learnable qkv_bias=1 out_bias=1 ffn_bias=1 ffn=gelu_tanh",
      GPT2_KEYS " n_ctx:",
      "scale_attn_weights=true scale_attn_by_inverse_layer_idx=false reorder_and_upcast_attn=false "
      "n_special=0", four_times_wide, GPT2_NAMES, {}, false, "activation_function", "transformer.",
      true },
    { "gpt_neo", "eps=1e-5 norm_kind=ln tied=1 pe=learnable out_bias=1 ffn_bias=1 ffn=gelu_tanh",
      "num_layers:L num_heads:NH layer_norm_epsilon:eps", "", more_gpt_neo, GPT_NEO_NAMES, {},
      false, "activation_function", "transformer." },
    { "opt", "eps=1e-5 norm_kind=ln tied=1 pe=learnable ffn=relu qkv_bias=1 out_bias=1 ffn_bias=1",
      "ffn_dim:F enable_bias:qkv_bias enable_bias:out_bias enable_bias:ffn_bias "
      "word_embed_proj_dim: output_projection:",
      "layer_norm_elementwise_affine=true _remove_final_layer_norm=false rms_norm_eps=null",
      more_opt, OPT_NAMES, {}, false, "activation_function", "model.decoder." },
    { "gpt_neox",
      "eps=1e-5 norm_kind=ln parallel=1 qkv_bias=1 out_bias=1 ffn_bias=1 ffn=gelu rope_part=0.25",
      ATTENTION_BIAS "use_parallel_residual:parallel layer_norm_eps:eps rotary_pct:rope_part "
      "rotary_emb_base:rope_base partial_rotary_factor:rope_part", "", more_neox, NEOX_NAMES },
    { "phi",
      "eps=1e-5 norm_kind=ln parallel=1 qkv_bias=1 out_bias=1 ffn_bias=1 head_bias=1 ffn=gelu_tanh "
      "rope_part=0.5", "layer_norm_eps:eps partial_rotary_factor:rope_part", "qk_layernorm=false",
      NULL, PHI_NAMES },
    { "gptj", "eps=1e-5 norm_kind=ln parallel=1 ffn_bias=1 head_bias=1 ffn=gelu_tanh", GPT2_KEYS,
      "rotary=true scale_attn_weights=true", more_gptj, GPTJ_NAMES, {}, false,
      "activation_function", "transformer." },
    { "ernie4_5", "eps=1e-5 KV=2 tied=1 rope_base=500000",
      "use_bias:qkv_bias use_bias:out_bias use_bias:ffn_bias", "compression_ratio=1", more_ernie,
      PAIRED_NAMES },
    { "granite", "eps=1e-6 score_scale=1", GRANITE_KEYS, "", more_granite },
    { "granitemoe", "eps=1e-6 score_scale=1 experts=8 experts_used=2",
      "num_local_experts:experts num_experts_per_tok:experts_used " GRANITE_KEYS, "",
      more_granite },
    { "mpt", "eps=1e-5 norm_kind=ln norm_bias=0 tied=1 pe=alibi slopes=published ffn=gelu",
      "d_model:C n_heads:NH n_layers:L max_seq_len:T layer_norm_epsilon:eps learned_pos_emb: "
      "embedding_fraction: init_config: verbose: tokenizer_name: emb_pdrop:",
      "no_bias=true expansion_ratio=4 logit_scale=null", more_mpt, MPT_NAMES, {}, false, "",
      "transformer." },
    { "falcon", "eps=1e-5 T=2048 norm_kind=ln parallel=1 tied=1 ffn=gelu",
      "layer_norm_epsilon:eps ffn_hidden_size:F parallel_attn:parallel bias:qkv_bias bias:out_bias "
      "bias:ffn_bias num_ln_in_parallel_attn:",          // the names of the norms say how many
      // alibi: there the positions are divided by the root of the head size
      "apply_residual_connection_post_layernorm=false alibi=false", more_falcon, FALCON_ONE_NORM,
      {}, false, "activation", "transformer." },
    { "bloom",
      "eps=1e-5 T=2048 norm_kind=ln norm_embed=1 tied=1 pe=alibi slopes=published qkv_bias=1 "
      "out_bias=1 ffn_bias=1 ffn=gelu_tanh",
      "n_embed:C n_layer:L n_head:NH n_inner:F seq_length:T layer_norm_epsilon:eps",
      "apply_residual_connection_post_layernorm=false", four_times_wide, BLOOM_NAMES, {}, false, "",
      "transformer." },
};
#undef GPT2_KEYS
#undef QWEN3_5_WANTED
#undef QWEN3_5_KEYS
#undef QWEN3_5_LAYERS
#undef GRANITE_KEYS
#undef GEMMA_WANTED
#undef BIASES
#undef ATTENTION_BIAS

std::string family_types() { return listed(names_of(FAMILIES), ", "); }

const Family* family_named(const std::string& type) {
    for (auto& f : FAMILIES) { if (type == f.name) { return &f; } }
    return NULL;
}

const Family* family_of(const Json& config) {
    const Json* type = config.get("model_type");
    const bool ours = config.get("train_sink") && (!type || type->string == "llama");
    return type && !ours ? family_named(type->string) : NULL;
}

Family family_of_file(const Json& config, bool gguf) {
    Family f = *family_of(config);
    f.transposed = f.transposed && !gguf;
    f.plus_one = f.plus_one && !gguf;
    if (f.names && gguf) { f.names = GGUF_FAMILY_NAMES; }
    return f;
}

const NameRow* family_names(const Family& family, const Arch& c, bool two_norms) {
    if (family.names == OPT_NAMES && c.norm == NORM_post) { return OPT_POST_NAMES; }
    if (family.names != FALCON_ONE_NORM) { return family.names; }
    if (!c.parallel) { return BLOOM_NAMES; }
    return two_norms ? FALCON_TWO_NORMS : FALCON_ONE_NORM;
}
