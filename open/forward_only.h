/*
forward_only.h -- the rows of what other families' models have and ours are not trained with:
mixtures of experts (experts.h), Mamba layers (mamba.h) and the delta rule (delta.h). They join the
tables of arch.h and tensors.h, whose comments say what their columns are. No flag sets them, only a
config.json.
*/
#ifndef FORWARD_ONLY_H
#define FORWARD_ONLY_H

#define FORWARD_ONLY_ARCH(X) \
    /* mixture of experts */ \
    X(int,   experts,      0,             "",   "--experts",         "train_sink.experts",                  0, 4096, "", "FFNs of which a router picks some for each token (0: one FFN)") \
    X(int,   experts_used, 0,             "",   "--experts-used",    "train_sink.experts_used",             0, 4096, "", "how many it picks") \
    X(int,   expert_shares, 0,            "",   "--expert-shares",   "train_sink.expert_shares",            0, 1, "", "1: their weights are shares of all experts, 0: sum to one") \
    X(float, expert_limit, 0,             "",   "--expert-limit",    "train_sink.expert_limit",             0, 1e6, "", "gpt-oss: (up + 1) gate sigmoid(1.702 gate), both cut here (0: as FFN)") \
    X(int,   router_bias,  0,             "",   "--router-bias",     "train_sink.router_bias",              0, 1, "", "1: the router has a bias") \
    X(str,   expert_layers, "",           "",   "--expert-layers",   "train_sink.expert_layers",            0, 0, "", "which layers have experts: 01, repeated (empty: all)") \
    X(int,   shared_expert, 0,            "",   "--shared-expert",   "train_sink.shared_expert",            0, 1 << 20, "", "width of an FFN that every token goes through beside them, behind a gate (0: none)") \
    /* Mamba */ \
    X(str,   attn_layers,  "",            "",   "--attn-layers",     "train_sink.attn_layers",              0, 0, "", "which layers have attention: 0001, repeated; the others Mamba or the delta rule (empty: all)") \
    X(int,   mamba_width,  0,             "",   "--mamba-width",     "train_sink.mamba_width",              0, 1 << 20, "", "Mamba: channels inside a layer") \
    X(int,   mamba_state,  0,             "",   "--mamba-state",     "train_sink.mamba_state",              0, 65535, "", "Mamba: numbers that each of them remembers") \
    X(int,   mamba_conv,   0,             "",   "--mamba-conv",      "train_sink.mamba_conv",               0, 65535, "", "Mamba: tokens that the convolution spans") \
    X(int,   mamba_rank,   0,             "",   "--mamba-rank",      "train_sink.mamba_rank",               0, 1 << 20, "", "Mamba: numbers that the step sizes are made from") \
    /* delta rule */ \
    X(int,   delta_keys,   0,             "",   "--delta-keys",      "train_sink.delta_keys",               0, 65535, "", "delta rule: heads of queries and keys") \
    X(int,   delta_values, 0,             "",   "--delta-values",    "train_sink.delta_values",             0, 65535, "", "delta rule: heads of values") \
    X(int,   delta_key_size, 0,           "",   "--delta-key-size",  "train_sink.delta_key_size",           0, 65535, "", "delta rule: channels of a key") \
    X(int,   delta_value_size, 0,         "",   "--delta-value-size", "train_sink.delta_value_size",        0, 65535, "", "delta rule: channels of a value") \
    X(int,   delta_conv,   0,             "",   "--delta-conv",      "train_sink.delta_conv",               0, 65535, "", "delta rule: tokens that the convolution spans")

#define FORWARD_ONLY_PARAMS(LAYER) \
    LAYER(routerw,     "mlp.router.weight",                     mixture(l),            arch.experts,     C,               LINEAR(C)) \
    LAYER(routerb,     "mlp.router.bias",                       mixture(l) && arch.router_bias, VECTOR,  arch.experts,    ZEROS) \
    LAYER(egw,         "mlp.experts.gate_up_proj.weight",       mixture(l),            arch.experts * up_width, C,        LINEAR(C)) \
    LAYER(egb,         "mlp.experts.gate_up_proj.bias",         mixture(l) && arch.ffn_bias, VECTOR,     arch.experts * up_width, ZEROS) \
    LAYER(edw,         "mlp.experts.down_proj.weight",          mixture(l),            arch.experts * C, F,               LINEAR(F)) \
    LAYER(edb,         "mlp.experts.down_proj.bias",            mixture(l) && arch.ffn_bias, VECTOR,     arch.experts * C, ZEROS) \
    LAYER(sharedgw,    "mlp.shared_expert.gate_proj.weight",    mixture(l) && arch.shared_expert, arch.shared_expert, C,  LINEAR(C)) \
    LAYER(sharedupw,   "mlp.shared_expert.up_proj.weight",      mixture(l) && arch.shared_expert, arch.shared_expert, C,  LINEAR(C)) \
    LAYER(shareddw,    "mlp.shared_expert.down_proj.weight",    mixture(l) && arch.shared_expert, C,     arch.shared_expert, LINEAR(arch.shared_expert)) \
    LAYER(sharedw,     "mlp.shared_expert_gate.weight",         mixture(l) && arch.shared_expert, 1,     C,               LINEAR(C)) \
    LAYER(mamba_inw,   "mamba.in_proj.weight",                  mamba(l),              2 * mamba_width,  C,               LINEAR(C)) \
    LAYER(mamba_convw, "mamba.conv1d.weight",                   mamba(l),              mamba_width,      arch.mamba_conv, LINEAR(arch.mamba_conv)) \
    LAYER(mamba_convb, "mamba.conv1d.bias",                     mamba(l),              VECTOR,           mamba_width,     ZEROS) \
    LAYER(mamba_dbcw,  "mamba.x_proj.weight",                   mamba(l),              mamba_dbc_width,  mamba_width,     LINEAR(mamba_width)) \
    LAYER(mamba_dn,    "mamba.dt_layernorm.weight",             mamba(l),              VECTOR,           arch.mamba_rank, ONES) \
    LAYER(mamba_bn,    "mamba.b_layernorm.weight",              mamba(l),              VECTOR,           mamba_state,     ONES) \
    LAYER(mamba_cn,    "mamba.c_layernorm.weight",              mamba(l),              VECTOR,           mamba_state,     ONES) \
    LAYER(mamba_stepw, "mamba.dt_proj.weight",                  mamba(l),              mamba_width,      arch.mamba_rank, LINEAR(arch.mamba_rank)) \
    LAYER(mamba_stepb, "mamba.dt_proj.bias",                    mamba(l),              VECTOR,           mamba_width,     ZEROS) \
    LAYER(mamba_a,     "mamba.A_log",                           mamba(l),              mamba_width,      mamba_state,     ZEROS) \
    LAYER(mamba_skip,  "mamba.D",                               mamba(l),              VECTOR,           mamba_width,     ONES) \
    LAYER(mamba_outw,  "mamba.out_proj.weight",                 mamba(l),              C,                mamba_width,     LINEAR(mamba_width)) \
    LAYER(delta_qkvw,  "linear_attn.in_proj_qkv.weight",        delta(l),              delta_qkv_width,  C,               LINEAR(C)) \
    LAYER(delta_zw,    "linear_attn.in_proj_z.weight",          delta(l),              delta_out_width,  C,               LINEAR(C)) \
    LAYER(delta_bw,    "linear_attn.in_proj_b.weight",          delta(l),              arch.delta_values, C,              LINEAR(C)) \
    LAYER(delta_aw,    "linear_attn.in_proj_a.weight",          delta(l),              arch.delta_values, C,              LINEAR(C)) \
    LAYER(delta_convw, "linear_attn.conv1d.weight",             delta(l),              delta_qkv_width,  arch.delta_conv, LINEAR(arch.delta_conv)) \
    LAYER(delta_dt,    "linear_attn.dt_bias",                   delta(l),              VECTOR,           arch.delta_values, ONES) \
    LAYER(delta_a,     "linear_attn.A_log",                     delta(l),              VECTOR,           arch.delta_values, ZEROS) \
    LAYER(delta_norm,  "linear_attn.norm.weight",               delta(l),              VECTOR,           arch.delta_value_size, ONES) \
    LAYER(delta_outw,  "linear_attn.out_proj.weight",           delta(l),              C,                delta_out_width, LINEAR(delta_out_width))

#define FORWARD_ONLY_ACTS(X) \
    X(real, router,     N * arch.experts)                               /* (N, experts)            its logits */ \
    X(real, gathered,   arch.experts ? N * C : 0)                       /* (N, C)                  what one expert reads, */ \
    X(real, answer,     arch.experts ? N * C : 0)                       /* (N, C)                  and what it answers */ \
    X(real, shared_h,   2 * N * arch.shared_expert)                     /* (N, 2 shared_expert)    the shared expert: gate | up */ \
    X(real, shared_a,   N * arch.shared_expert)                         /* (N, shared_expert)      after the activation */ \
    X(real, shared_g,   arch.shared_expert ? N : 0)                     /* (N)                     its gate before the sigmoid */ \
    X(real, mamba_in,   2 * N * mamba_width)                            /* (N, 2 MW)               Mamba, MW = mamba_width: u | z */ \
    X(real, mamba_u,    N * mamba_width)                                /* (N, MW)                 u after the convolution */ \
    X(real, mamba_dbc,  N * mamba_dbc_width)                            /* (N, mamba_dbc_width)    d | b | c */ \
    X(real, mamba_d,    N * arch.mamba_rank)                            /* (N, rank)               d after its norm */ \
    X(real, mamba_step, N * mamba_width)                                /* (N, MW)                 step sizes before softplus */ \
    X(real, mamba_out,  N * mamba_width)                                /* (N, MW)                 what W_out reads */ \
    X(real, delta_in,   N * delta_qkv_width)                            /* (N, delta_qkv_width)    delta rule: q | k | v of all heads */ \
    X(real, delta_z,    N * delta_out_width)                            /* (N, delta_out_width) */ \
    X(real, delta_b,    N * arch.delta_values)                          /* (N, VH) */ \
    X(real, delta_a,    N * arch.delta_values)                          /* (N, VH) */ \
    X(real, delta_qkv,  N * delta_qkv_width)                            /* (N, delta_qkv_width)    after the convolution */ \
    X(real, delta_out,  N * delta_out_width)                            /* (N, delta_out_width)    what W_out reads */
#endif // FORWARD_ONLY_H
