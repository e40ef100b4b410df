/*
tensors.h -- PARAMS and ACTS: every tensor of a model is a row. model.h makes the structs, the
layout in memory and the names in a checkpoint from these rows.
*/
#ifndef TENSORS_H
#define TENSORS_H
#include <math.h>
#include "models/forward_only.h" // FORWARD_ONLY_PARAMS, FORWARD_ONLY_ACTS: experts and Mamba

// ---- PARAMS: every tensor is one row: field, Hugging Face name, when it exists, rows (VECTOR:
// none), columns, initial values. Rows lie in memory in this order: qw kw vw are one matrix,
// so are gatew upw, and their biases. Init of the official code: N(0, sqrt(2 / (5 fan_in))), FFN
// output 1/sqrt(fan_in)/L, k*, v* and the sink token 0.02
enum { VECTOR = -1 };
struct Init { double std, mean; };
#define NORMAL(std) Init{ std, 0 }
#define LINEAR(fan_in) NORMAL(sqrt(0.4 / (fan_in)))
#define ONES Init{ 0, 1 }
#define ZEROS Init{ 0, 0 }
#define PARAMS(HEAD, LAYER, TAIL) \
    HEAD(wte,      "model.embed_tokens.weight",        true,                  V,        C,  LINEAR(C)) \
    HEAD(wpe,      "model.embed_positions.weight",     pe.learnable,          T + bias.token, C, LINEAR(C)) \
    HEAD(sink,     "model.sink_token",                 bias.token,            VECTOR,   C,  NORMAL(0.02)) \
    HEAD(lnew,     "model.embed_norm.weight",          c.norm_embed,          VECTOR,   C,  ONES) \
    HEAD(lneb,     "model.embed_norm.bias",            c.norm_embed && norm_bias, VECTOR,   C,  ZEROS) \
    LAYER(ln1w,    "input_layernorm.weight",           norm.in,               VECTOR,   C,  ONES) \
    LAYER(ln1b,    "input_layernorm.bias",             norm.in && norm_bias,  VECTOR,   C,  ZEROS) \
    LAYER(qw,      "self_attn.q_proj.weight",          true,                  NH * HS,  C,  LINEAR(C)) \
    LAYER(kw,      "self_attn.k_proj.weight",          true,                  KV * HS,  C,  LINEAR(C)) \
    LAYER(vw,      "self_attn.v_proj.weight",          true,                  KV * HS,  C,  LINEAR(C)) \
    LAYER(qb,      "self_attn.q_proj.bias",            c.qkv_bias,            VECTOR,   NH * HS, ZEROS) \
    LAYER(kb,      "self_attn.k_proj.bias",            c.qkv_bias,            VECTOR,   KV * HS, ZEROS) \
    LAYER(vb,      "self_attn.v_proj.bias",            c.qkv_bias,            VECTOR,   KV * HS, ZEROS) \
    LAYER(qnw,     "self_attn.q_norm.weight",          qkn,                   VECTOR,   c.qk_norm == QKNORM_all ? NH * HS : HS, ONES) \
    LAYER(knw,     "self_attn.k_norm.weight",          qkn,                   VECTOR,   c.qk_norm == QKNORM_all ? KV * HS : HS, ONES) \
    LAYER(zstar,   "self_attn.sinks",                  bias.column == LOGIT_COLUMN && bias.learn_k, VECTOR, NH, ZEROS) \
    LAYER(kstar,   "self_attn.k_star",                 bias.column == KEY_COLUMN && bias.learn_k, bias_rows(c), HS, NORMAL(0.02)) \
    LAYER(vstar,   "self_attn.v_star",                 bias.learn_v || bias.add_v, bias_rows(c), HS, NORMAL(0.02)) \
    LAYER(phi1w,   "self_attn.phi_fc1.weight",         phi,                   HS,       HS, LINEAR(HS)) \
    LAYER(phi2w,   "self_attn.phi_fc2.weight",         phi,                   HS,       HS, LINEAR(HS)) \
    LAYER(gw,      "self_attn.gate_proj.weight",       gate,                  G,        C,  LINEAR(C)) \
    LAYER(ow,      "self_attn.o_proj.weight",          true,                  C,        OC, LINEAR(OC)) \
    LAYER(ob,      "self_attn.o_proj.bias",            c.out_bias,            VECTOR,   C,  ZEROS) \
    LAYER(ln1ow,   "post_attention_layernorm.weight",  norm.out,              VECTOR,   C,  ONES) \
    LAYER(ln1ob,   "post_attention_layernorm.bias",    norm.out && norm_bias, VECTOR,   C,  ZEROS) \
    LAYER(ln2w,    ffn_norm + ".weight",               norm.in,               VECTOR,   C,  ONES) \
    LAYER(ln2b,    ffn_norm + ".bias",                 norm.in && norm_bias,  VECTOR,   C,  ZEROS) \
    LAYER(gatew,   "mlp.gate_proj.weight",             ffn.gated && !mixture(l), F,     C,  LINEAR(C)) \
    LAYER(upw,     "mlp.up_proj.weight",               !mixture(l),           F,        C,  LINEAR(C)) \
    LAYER(gateb,   "mlp.gate_proj.bias",               ffn.gated && c.ffn_bias && !mixture(l), VECTOR, F, ZEROS) \
    LAYER(upb,     "mlp.up_proj.bias",                 c.ffn_bias && !mixture(l), VECTOR, F, ZEROS) \
    LAYER(downw,   "mlp.down_proj.weight",             !mixture(l),           C,        F,  NORMAL(1 / sqrt(F) / L)) \
    LAYER(downb,   "mlp.down_proj.bias",               c.ffn_bias && !mixture(l), VECTOR, C, ZEROS) \
    FORWARD_ONLY_PARAMS(LAYER) \
    LAYER(ln2ow,   "post_feedforward_layernorm.weight", norm.out,             VECTOR,   C,  ONES) \
    LAYER(ln2ob,   "post_feedforward_layernorm.bias",  norm.out && norm_bias, VECTOR,   C,  ZEROS) \
    TAIL(lnfw,     "model.norm.weight",                !norm.stream,          VECTOR,   C,  ONES) \
    TAIL(lnfb,     "model.norm.bias",                  !norm.stream && norm_bias, VECTOR,   C,  ZEROS) \
    TAIL(lmw,      "lm_head.weight",                   !c.tied,               V,        C,  LINEAR(C)) \
    TAIL(lmb,      "lm_head.bias",                     c.head_bias,           VECTOR,   V,  ZEROS)

// ---- ACTS: activations, one arena for all, laid out anew for each (B, T). Training keeps K = L
// layers of them and all S = 2L + 1 states of the stream; a forward pass alone keeps one layer and
// three states, and no rows of backward (D = 0)
#define ACTS(X) \
    X(real, x,       S * N * C)                       /* (2L+1, N, C)  residual stream: x_0 the embedding, x_2l enters layer l */ \
    X(real, embed,   c.norm_embed ? N * C : 0)        /* (N, C)        the embedding before its norm */ \
    X(real, n,       (2 * K * norm.in + 1) * N * C)   /* (2L+1, N, C)  what attention and FFN read; the last: the final norm */ \
    X(real, f,       norm.out ? 2 * K * N * C : 0)    /* (2L, N, C)    what the norms after attention and FFN read */ \
    X(acc,  rstd,    (4 * K + 2) * N)                 /* of norms: 2L + 1 of n, 2L of f, of the embedding */ \
    X(acc,  mean,    ln ? (4 * K + 2) * N : 0) \
    X(real, qkv,     K * N * W)                       /* (L, N, (NH + 2 KV) HS)  after QKNORM, PE and phi */ \
    X(real, qk_in,   qkn ? K * N * QK : 0)            /* (L, N, (NH + KV) HS)    before QKNORM */ \
    X(acc,  qk_rstd, qkn ? K * N * (NH + KV) : 0)     /* (L, N, NH + KV) */ \
    X(real, phi_in,  phi ? K * N * QK : 0)            /* (L, N, (NH + KV) HS)    the MLP kernel: input */ \
    X(real, phi_hid, phi ? K * N * QK : 0)            /*                         and hidden, after ReLU */ \
    X(real, att,     K * N * NH * HS)                 /* (L, N, NH HS) */ \
    X(acc,  stat,    K * N * NH * 2)                  /* (L, B, NH, T, 2) */ \
    X(real, gate,    gate ? K * N * G : 0)            /* (L, N, NH or NH HS)     the gate before its sigmoid */ \
    X(real, gated,   gate ? K * N * NH * HS : 0)      /* (L, N, NH HS)           att sigmoid(gate) */ \
    X(real, heads,   combine ? K * N * OC : 0)        /* (L, N, NH HS or HS)     + v*, or summed over heads */ \
    X(real, fch,     K * N * FH)                      /* (L, N, 2F or F)         gate | up */ \
    X(real, fca,     K * N * F)                       /* (L, N, F) */ \
    FORWARD_ONLY_ACTS(X) \
    X(real, logits,  R * V)                           /* (R, V)   the head works on R rows at a time */ \
    X(acc,  losses,  N)                               /* (N) */ \
    X(real, dx,      D * C)                           /* backward: as their namesakes, of one layer */ \
    X(real, dn,      D * C) \
    X(real, df,      (norm.out && !norm.stream) || c.residual_scale != 1 ? D * C : 0) \
    X(real, dside,   c.parallel ? D * C : 0)          /* what the FFN of a parallel layer adds to dx_2l */ \
    X(real, dqkv,    D * W) \
    X(real, datt,    D * NH * HS) \
    X(real, dgate,   gate ? D * G : 0) \
    X(real, dgated,  gate ? D * NH * HS : 0) \
    X(real, dheads,  combine ? D * OC : 0) \
    X(real, dphi,    phi ? 2 * N * QK : 0)            /* the forward pass uses it too */ \
    X(real, dfch,    D * FH) \
    X(real, dfca,    D * F)
#endif // TENSORS_H
