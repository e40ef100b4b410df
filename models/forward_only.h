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
    LAYER(routerw, "mlp.router.weight",                mixture(l),            c.experts, C, LINEAR(C)) \
    LAYER(routerb, "mlp.router.bias",                  mixture(l) && c.router_bias, VECTOR, c.experts, ZEROS) \
    LAYER(egw,     "mlp.experts.gate_up_proj.weight",  mixture(l),            c.experts * FH, C, LINEAR(C)) \
    LAYER(egb,     "mlp.experts.gate_up_proj.bias",    mixture(l) && c.ffn_bias, VECTOR, c.experts * FH, ZEROS) \
    LAYER(edw,     "mlp.experts.down_proj.weight",     mixture(l),            c.experts * C, F, LINEAR(F)) \
    LAYER(edb,     "mlp.experts.down_proj.bias",       mixture(l) && c.ffn_bias, VECTOR, c.experts * C, ZEROS) \
    LAYER(sharedgw, "mlp.shared_expert.gate_proj.weight", mixture(l) && c.shared_expert, c.shared_expert, C, LINEAR(C)) \
    LAYER(sharedupw, "mlp.shared_expert.up_proj.weight",  mixture(l) && c.shared_expert, c.shared_expert, C, LINEAR(C)) \
    LAYER(shareddw, "mlp.shared_expert.down_proj.weight", mixture(l) && c.shared_expert, C, c.shared_expert, LINEAR(c.shared_expert)) \
    LAYER(sharedw,  "mlp.shared_expert_gate.weight",      mixture(l) && c.shared_expert, 1, C,  LINEAR(C)) \
    LAYER(mamba_inw,   "mamba.in_proj.weight",         mamba(l),              2 * MW,   C,  LINEAR(C)) \
    LAYER(mamba_convw, "mamba.conv1d.weight",          mamba(l),              MW, c.mamba_conv, LINEAR(c.mamba_conv)) \
    LAYER(mamba_convb, "mamba.conv1d.bias",            mamba(l),              VECTOR,   MW, ZEROS) \
    LAYER(mamba_dbcw,  "mamba.x_proj.weight",          mamba(l),              MP,       MW, LINEAR(MW)) \
    LAYER(mamba_dn,    "mamba.dt_layernorm.weight",    mamba(l),              VECTOR,   c.mamba_rank, ONES) \
    LAYER(mamba_bn,    "mamba.b_layernorm.weight",     mamba(l),              VECTOR,   MS, ONES) \
    LAYER(mamba_cn,    "mamba.c_layernorm.weight",     mamba(l),              VECTOR,   MS, ONES) \
    LAYER(mamba_stepw, "mamba.dt_proj.weight",         mamba(l),              MW, c.mamba_rank, LINEAR(c.mamba_rank)) \
    LAYER(mamba_stepb, "mamba.dt_proj.bias",           mamba(l),              VECTOR,   MW, ZEROS) \
    LAYER(mamba_a,     "mamba.A_log",                  mamba(l),              MW,       MS, ZEROS) \
    LAYER(mamba_skip,  "mamba.D",                      mamba(l),              VECTOR,   MW, ONES) \
    LAYER(mamba_outw,  "mamba.out_proj.weight",        mamba(l),              C,        MW, LINEAR(MW)) \
    LAYER(delta_inw,   "linear_attn.in_proj_qkvz.weight", delta(l),           DQ,       C,  LINEAR(C)) \
    LAYER(delta_baw,   "linear_attn.in_proj_ba.weight", delta(l),             2 * c.delta_values, C, LINEAR(C)) \
    LAYER(delta_convw, "linear_attn.conv1d.weight",    delta(l),              DW, c.delta_conv, LINEAR(c.delta_conv)) \
    LAYER(delta_dt,    "linear_attn.dt_bias",          delta(l),              VECTOR,   c.delta_values, ONES) \
    LAYER(delta_a,     "linear_attn.A_log",            delta(l),              VECTOR,   c.delta_values, ZEROS) \
    LAYER(delta_norm,  "linear_attn.norm.weight",      delta(l),              VECTOR,   c.delta_value_size, ONES) \
    LAYER(delta_outw,  "linear_attn.out_proj.weight",  delta(l),              C,        DO, LINEAR(DO))

#define FORWARD_ONLY_ACTS(X) \
    X(real, router,  N * c.experts)                   /* (N, experts)            its logits */ \
    X(real, gathered, c.experts ? N * C : 0)          /* (N, C)                  what one expert reads, */ \
    X(real, answer,  c.experts ? N * C : 0)           /* (N, C)                  and what it answers */ \
    X(real, shared_h, 2 * N * c.shared_expert)        /* (N, 2S)                 the shared expert: gate | up */ \
    X(real, shared_a, N * c.shared_expert)            /* (N, S)                  after the activation */ \
    X(real, shared_g, c.shared_expert ? N : 0)        /* (N)                     its gate before the sigmoid */ \
    X(real, mamba_in,   2 * N * MW)                   /* (N, 2 MW)               Mamba: u | z */ \
    X(real, mamba_u,    N * MW)                       /* (N, MW)                 u after the convolution */ \
    X(real, mamba_dbc,  N * MP)                       /* (N, MP)                 d | b | c */ \
    X(real, mamba_d,    N * c.mamba_rank)             /* (N, rank)               d after its norm */ \
    X(real, mamba_step, N * MW)                       /* (N, MW)                 step sizes before softplus */ \
    X(real, mamba_out,  N * MW)                       /* (N, MW)                 what W_out reads */ \
    X(real, delta_in,   N * DQ)                       /* (N, DQ)                 delta rule: q | k | v | z of each key head */ \
    X(real, delta_ba,   2 * N * c.delta_values)       /* (N, 2 VH)               b | a of each key head */ \
    X(real, delta_mix,  N * DW)                       /* (N, DW)                 q | k | v of all heads */ \
    X(real, delta_qkv,  N * DW)                       /* (N, DW)                 after the convolution */ \
    X(real, delta_out,  N * DO)                       /* (N, DO)                 what W_out reads */
#endif // FORWARD_ONLY_H
