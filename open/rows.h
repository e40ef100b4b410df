/*
rows.h -- the rows of what other families' models have and ours are not trained with: mixtures of
experts (experts.h), Mamba layers (mamba.h) and the delta rule (delta.h); of positions beyond those
that a model was trained with; and of the command that writes a model for others. optional.h adds
them to the tables of the core, whose comments say what their columns are. No flag sets a row of
OPEN_ARCH, only a config.json.
*/
#ifndef OPEN_ROWS_H
#define OPEN_ROWS_H
#define HAS_OPEN 1
#include "../base/rows.h"

// What is read beside models of ours, in the help of flags and commands.
#define OTHER_MODELS ", a Hugging Face directory or a GGUF file"

#define OPEN_COMMANDS(X) \
    X(export,   'x', NO_ATTENTION, "CHECKPOINT", "convert a checkpoint for transformers, into the directory --out", \
      "take a machine with more memory")

#define OPEN_FLAGS(X) \
    WORDS("x", OWN, to, "", \
      "a family of transformers (empty: the first that can express the model), or train_sink (our " \
      "own code)")

// What rotates farther than it was trained to: rope.cpp.
inline constexpr const char* ROPE_ROWS[] = {
    "none", "linear", "llama3", "yarn", "dynamic", "longrope"
};
constexpr int ROPE_none = row_named(ROPE_ROWS, "none"),
              ROPE_linear = row_named(ROPE_ROWS, "linear"),
              ROPE_llama3 = row_named(ROPE_ROWS, "llama3"),
              ROPE_yarn = row_named(ROPE_ROWS, "yarn"),
              ROPE_dynamic = row_named(ROPE_ROWS, "dynamic"),
              ROPE_longrope = row_named(ROPE_ROWS, "longrope");
// A row of ARCH that only a config.json sets.
#define READ(type, field, preset, key, low, high, help) \
    X(type, field, preset, "", "", key, low, high, {}, help)
#define OF_LLAMA3 READ_IF(f.arch.rope_scaling == ROPE_llama3, "--rope-scaling llama3")
#define OF_YARN READ_IF(f.arch.rope_scaling == ROPE_yarn, "--rope-scaling yarn")
#define OPEN_POSITIONS(X) \
    KIND(rope_scaling, ROPE, none, "--rope-scaling", "rope_scaling.rope_type", \
      "none, linear, llama3 or yarn, to go beyond the trained context", \
      READ_IF(f.arch.rope_factor != 1 || !f.init.empty(), "--rope-factor other than 1"), ROTATES_BASE, \
      BOUND(f.arch.rope_scaling < ROPE_dynamic || !f.init.empty(), "none, linear, llama3 or yarn", "", \
        "the others are only read, of a model that has them")) \
    NUMBER(float, rope_factor, 1, "--rope-factor", "rope_scaling.factor", 1e-3, 1e6, "how many times longer than the trained context", ROTATES_BASE) \
    NUMBER(int, rope_context, 8192, "--rope-context", "rope_scaling.original_max_position_embeddings", 1, MOST_TOKENS, \
      "llama3, yarn: the trained context", READ_IF(f.arch.rope_scaling == ROPE_llama3 || f.arch.rope_scaling == ROPE_yarn, "--rope-scaling llama3 or yarn")) \
    NUMBER(float, rope_low, 1, "--rope-low", "rope_scaling.low_freq_factor", 0, 1e6, \
      "llama3: turns per context below which a channel is stretched", OF_LLAMA3) \
    NUMBER(float, rope_high, 4, "--rope-high", "rope_scaling.high_freq_factor", 0, 1e6, \
      "llama3: turns per context above which it is left alone", OF_LLAMA3) \
    NUMBER(float, rope_fast, 32, "--rope-fast", "rope_scaling.beta_fast", 0, 1e6, "yarn: as --rope-high", OF_YARN) \
    NUMBER(float, rope_slow, 1, "--rope-slow", "rope_scaling.beta_slow", 0, 1e6, "yarn: as --rope-low", OF_YARN) \
    NUMBER(float, rope_length, 0, "--rope-length", "rope_scaling.attention_factor", 0, 1e6, \
      "yarn: scale of rotated vectors (0: from the factor)", OF_YARN) \
    NUMBER(int, rope_round, 1, "--rope-round", "rope_scaling.truncate", 0, 1, "yarn: 1 rounds the ends of the ramp to whole channels", \
      OF_YARN) \
    READ(int, rope_most, 0, "train_sink.rope_most", 0, MOST_TOKENS, \
      "tokens up to which the model is computed: beyond, its queries are scaled by position (0: all)") \
    READ(str, rope_short, "", "rope_scaling.short_factor", 0, 0, \
      "longrope: a number for each pair of channels, by which its angle is divided") \
    READ(str, rope_long, "", "rope_scaling.long_factor", 0, 0, \
      "the same beyond the context that was trained, which is not computed")

#define OPEN_ARCH(X) \
    /* mixture of experts */ \
    READ(int, experts, 0, "train_sink.experts", 0, 4096, "FFNs of which a router picks some for each token (0: one FFN)") \
    READ(int, experts_used, 0, "train_sink.experts_used", 0, 4096, "how many it picks") \
    READ(int, expert_shares, 0, "train_sink.expert_shares", 0, 1, "1: their weights are shares of all experts, 0: sum to one") \
    READ(float, expert_limit, 0, "train_sink.expert_limit", 0, 1e6, "gpt-oss: (up + 1) gate sigmoid(1.702 gate), both cut here (0: as FFN)") \
    READ(int, router_bias, 0, "train_sink.router_bias", 0, 1, "1: the router has a bias") \
    READ(str, expert_layers, "", "train_sink.expert_layers", 0, 0, "which layers have experts: 01, repeated (empty: all)") \
    READ(int, shared_expert, 0, "train_sink.shared_expert", 0, 1 << 20, \
      "width of an FFN that every token goes through beside them, behind a gate (0: none)") \
    /* Mamba */ \
    READ(str, attn_layers, "", "train_sink.attn_layers", 0, 0, \
      "which layers have attention: 0001, repeated; the others Mamba or the delta rule (empty: all)") \
    READ(int, mamba_width, 0, "train_sink.mamba_width", 0, 1 << 20, "Mamba: channels inside a layer") \
    READ(int, mamba_state, 0, "train_sink.mamba_state", 0, 65535, "Mamba: numbers that each of them remembers") \
    READ(int, mamba_conv, 0, "train_sink.mamba_conv", 0, 65535, "Mamba: tokens that the convolution spans") \
    READ(int, mamba_rank, 0, "train_sink.mamba_rank", 0, 1 << 20, "Mamba: numbers that the step sizes are made from") \
    /* delta rule */ \
    READ(int, delta_keys, 0, "train_sink.delta_keys", 0, 65535, "delta rule: heads of queries and keys") \
    READ(int, delta_values, 0, "train_sink.delta_values", 0, 65535, "delta rule: heads of values") \
    READ(int, delta_key_size, 0, "train_sink.delta_key_size", 0, 65535, "delta rule: channels of a key") \
    READ(int, delta_value_size, 0, "train_sink.delta_value_size", 0, 65535, "delta rule: channels of a value") \
    READ(int, delta_conv, 0, "train_sink.delta_conv", 0, 65535, \
      "delta rule: tokens that the convolution spans")

// What layer l has: attention, and an FFN (Sizes::LayerKind); what it has in place of attention.
#define LAYER_AT(l) \
    { in_pattern(arch.attn_layers, l), !arch.experts || !in_pattern(arch.expert_layers, l) }
#define MAMBA_AT(l) (arch.mamba_width && !has_attention(l))
#define DELTA_AT(l) (arch.delta_values && !has_attention(l))
// Widths: d | b | c of Mamba; the values of the delta rule, and its q | k | v.
#define MAMBA_DBC_WIDTH (arch.mamba_rank + 2L * arch.mamba_state)
#define DELTA_OUT_WIDTH ((long)arch.delta_values * arch.delta_value_size)
#define DELTA_QKV_WIDTH (2L * arch.delta_keys * arch.delta_key_size + DELTA_OUT_WIDTH)

#define OPEN_PARAMS(LAYER) \
    LAYER(routerw,     "mlp.router.weight",                !has_ffn(l),                         GATING(arch.experts, C)) \
    LAYER(routerb,     "mlp.router.bias",                  !has_ffn(l) && arch.router_bias,     BIAS_OF(arch.experts)) \
    LAYER(egw,         "mlp.experts.gate_up_proj.weight",  !has_ffn(l),                         MATRIX(arch.experts * up_width, C)) \
    LAYER(egb,         "mlp.experts.gate_up_proj.bias",    !has_ffn(l) && arch.ffn_bias,        BIAS_OF(arch.experts * up_width)) \
    LAYER(edw,         "mlp.experts.down_proj.weight",     !has_ffn(l),                         MATRIX(arch.experts * C, F)) \
    LAYER(edb,         "mlp.experts.down_proj.bias",       !has_ffn(l) && arch.ffn_bias,        BIAS_OF(arch.experts * C)) \
    LAYER(sharedgw,    "mlp.shared_expert.gate_proj.weight", !has_ffn(l) && arch.shared_expert,   MATRIX(arch.shared_expert, C)) \
    LAYER(sharedupw,   "mlp.shared_expert.up_proj.weight", !has_ffn(l) && arch.shared_expert,   MATRIX(arch.shared_expert, C)) \
    LAYER(shareddw,    "mlp.shared_expert.down_proj.weight", !has_ffn(l) && arch.shared_expert,   MATRIX(C, arch.shared_expert)) \
    LAYER(sharedw,     "mlp.shared_expert_gate.weight",    !has_ffn(l) && arch.shared_expert,   GATING(1, C)) \
    LAYER(mamba_inw,   "mamba.in_proj.weight",             MAMBA_AT(l),                         MATRIX(2 * arch.mamba_width, C)) \
    LAYER(mamba_convw, "mamba.conv1d.weight",              MAMBA_AT(l),                         GATING(arch.mamba_width, arch.mamba_conv)) \
    LAYER(mamba_convb, "mamba.conv1d.bias",                MAMBA_AT(l),                         BIAS_OF(arch.mamba_width)) \
    LAYER(mamba_dbcw,  "mamba.x_proj.weight",              MAMBA_AT(l),                         MATRIX(MAMBA_DBC_WIDTH, arch.mamba_width)) \
    LAYER(mamba_dn,    "mamba.dt_layernorm.weight",        MAMBA_AT(l),                         NORM_WEIGHT(arch.mamba_rank)) \
    LAYER(mamba_bn,    "mamba.b_layernorm.weight",         MAMBA_AT(l),                         NORM_WEIGHT(arch.mamba_state)) \
    LAYER(mamba_cn,    "mamba.c_layernorm.weight",         MAMBA_AT(l),                         NORM_WEIGHT(arch.mamba_state)) \
    LAYER(mamba_stepw, "mamba.dt_proj.weight",             MAMBA_AT(l),                         MATRIX(arch.mamba_width, arch.mamba_rank)) \
    LAYER(mamba_stepb, "mamba.dt_proj.bias",               MAMBA_AT(l),                         BIAS_OF(arch.mamba_width)) \
    LAYER(mamba_a,     "mamba.A_log",                      MAMBA_AT(l),                         { arch.mamba_width, arch.mamba_state, ZEROS, FOR_GATE }) \
    LAYER(mamba_skip,  "mamba.D",                          MAMBA_AT(l),                         { VECTOR, arch.mamba_width, ONES, FOR_GATE }) \
    LAYER(mamba_outw,  "mamba.out_proj.weight",            MAMBA_AT(l),                         MATRIX(C, arch.mamba_width)) \
    LAYER(delta_qkvw,  "linear_attn.in_proj_qkv.weight",   DELTA_AT(l),                         MATRIX(DELTA_QKV_WIDTH, C)) \
    LAYER(delta_zw,    "linear_attn.in_proj_z.weight",     DELTA_AT(l),                         MATRIX(DELTA_OUT_WIDTH, C)) \
    LAYER(delta_bw,    "linear_attn.in_proj_b.weight",     DELTA_AT(l),                         MATRIX(arch.delta_values, C)) \
    LAYER(delta_aw,    "linear_attn.in_proj_a.weight",     DELTA_AT(l),                         MATRIX(arch.delta_values, C)) \
    LAYER(delta_convw, "linear_attn.conv1d.weight",        DELTA_AT(l),                         GATING(DELTA_QKV_WIDTH, arch.delta_conv)) \
    LAYER(delta_dt,    "linear_attn.dt_bias",              DELTA_AT(l),                         { VECTOR, arch.delta_values, ONES, FOR_GATE }) \
    LAYER(delta_a,     "linear_attn.A_log",                DELTA_AT(l),                         { VECTOR, arch.delta_values, ZEROS, FOR_GATE }) \
    LAYER(delta_norm,  "linear_attn.norm.weight",          DELTA_AT(l),                         NORM_WEIGHT(arch.delta_value_size)) \
    LAYER(delta_outw,  "linear_attn.out_proj.weight",      DELTA_AT(l),                         MATRIX(C, DELTA_OUT_WIDTH))

#define OPEN_ACTS(X) \
    X(real, router,     N * arch.experts)               /* (N, experts)            its logits */ \
    X(real, gathered,   arch.experts ? N * C : 0)       /* (N, C)                  what one expert reads, */ \
    X(real, answer,     arch.experts ? N * C : 0)       /* (N, C)                  and what it answers */ \
    X(real, shared_h,   2 * N * arch.shared_expert)     /* (N, 2 shared_expert)    the shared expert: gate | up */ \
    X(real, shared_a,   N * arch.shared_expert)         /* (N, shared_expert)      after the activation */ \
    X(real, shared_g,   arch.shared_expert ? N : 0)     /* (N)                     its gate before the sigmoid */ \
    X(real, mamba_in,   2 * N * arch.mamba_width)       /* (N, 2 MW)               Mamba, MW = mamba_width: u | z */ \
    X(real, mamba_u,    N * arch.mamba_width)           /* (N, MW)                 u after the convolution */ \
    X(real, mamba_dbc,  N * MAMBA_DBC_WIDTH)                  /* (N, DBC)                d | b | c */ \
    X(real, mamba_d,    N * arch.mamba_rank)            /* (N, rank)               d after its norm */ \
    X(real, mamba_step, N * arch.mamba_width)           /* (N, MW)                 step sizes before softplus */ \
    X(real, mamba_out,  N * arch.mamba_width)           /* (N, MW)                 what W_out reads */ \
    X(real, delta_in,   N * DELTA_QKV_WIDTH)                  /* (N, QKV)                delta rule: q | k | v of all heads */ \
    X(real, delta_z,    N * DELTA_OUT_WIDTH)                  /* (N, VH DV) */ \
    X(real, delta_b,    N * arch.delta_values)          /* (N, VH) */ \
    X(real, delta_a,    N * arch.delta_values)          /* (N, VH) */ \
    X(real, delta_qkv,  N * DELTA_QKV_WIDTH)                  /* (N, QKV)                after the convolution */ \
    X(real, delta_out,  N * DELTA_OUT_WIDTH)                  /* (N, VH DV)              what W_out reads */

// Their stages, in place of attention and of the FFN. They run forward alone: model_new trains no
// such model. The functions are in stages.cpp.
struct Model;
bool is_mamba(const Model* m, int l);
bool is_delta(const Model* m, int l);
bool is_mixture(const Model* m, int l);
void mamba_forward(Model* m, int l);
void delta_forward(Model* m, int l);
void experts_forward(Model* m, int l);
#define OPEN_MIXER_STAGES \
    { "mamba",      is_mamba,   mamba_forward,   NULL }, \
    { "delta rule", is_delta,   delta_forward,   NULL },
#define OPEN_FFN_STAGES \
    { "experts",    is_mixture, experts_forward, NULL, NULL, ROLE_FFN_OUT },
#endif // OPEN_ROWS_H
