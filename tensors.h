/*
tensors.h -- PARAMS and ACTS: one row per tensor of a model. model.h generates the structs, the
memory layout and the checkpoint names from them.
*/
#ifndef TENSORS_H
#define TENSORS_H
#include <math.h>
#include "optional.h" // OPEN_PARAMS, OPEN_ACTS

// ---- PARAMS: every tensor is one row: field, Hugging Face name, when it exists, rows (VECTOR:
// none), columns, initial values, what it is for. Tensors lie in memory in this order: qw kw vw
// form one matrix, gatew upw another, and so do their biases. Init of the official code: N(0,
// sqrt(2 / (5 fan_in))), FFN output 1/sqrt(fan_in)/L, k*, v* and the sink token 0.02. Sizes and
// widths are those of struct Sizes, l the layer, arch the model's Arch (struct Layout, model.h).
enum { VECTOR = -1 };
struct Init { double std, mean; };
constexpr Init ONES = { 0, 1 }, ZEROS = { 0, 0 };
inline Init NORMAL(double std)    { return { std, 0 }; }
inline Init LINEAR(double fan_in) { return NORMAL(sqrt(0.4 / fan_in)); }
// What a tensor is for. A product is one inside a layer, which --optimizer muon is for; gates weigh
// or select what products give; the last four are what the switch BIAS adds.
enum Purpose {
    FOR_PRODUCT, FOR_GATE, FOR_TABLE, FOR_POSITIONS, FOR_HEAD, FOR_NORM,
    FOR_BIAS, FOR_KEY, FOR_VALUE, FOR_LOGIT, FOR_TOKEN
};
struct TensorKind { long rows, cols; Init init; Purpose purpose; };
inline TensorKind MATRIX(long rows, long cols) { return { rows, cols, LINEAR(cols), FOR_PRODUCT }; }
inline TensorKind GATING(long rows, long cols) { return { rows, cols, LINEAR(cols), FOR_GATE }; }
inline TensorKind NORM_WEIGHT(long n)          { return { VECTOR, n, ONES, FOR_NORM }; }
inline TensorKind BIAS_OF(long n)              { return { VECTOR, n, ZEROS, FOR_BIAS }; }
inline TensorKind EXTRA(long rows, long cols, Purpose purpose) {
    return { rows, cols, NORMAL(0.02), purpose };
}
#define PARAMS(HEAD, LAYER, TAIL) \
    HEAD(wte,    "model.embed_tokens.weight",        true,                                   { V, C, LINEAR(C), FOR_TABLE }) \
    HEAD(wpe,    "model.embed_positions.weight",     pe.learnable,                           { T + bias.token, C, LINEAR(C), FOR_POSITIONS }) \
    HEAD(sink,   "model.sink_token",                 bias.token,                             EXTRA(VECTOR, C, FOR_TOKEN)) \
    HEAD(norm_embed_w, "model.embed_norm.weight",    arch.norm_embed,                        NORM_WEIGHT(C)) \
    HEAD(norm_embed_b, "model.embed_norm.bias",      arch.norm_embed && norm_bias,           BIAS_OF(C)) \
    LAYER(norm_attn_w, "input_layernorm.weight",     norm.in,                                NORM_WEIGHT(C)) \
    LAYER(norm_attn_b, "input_layernorm.bias",       norm.in && norm_bias,                   BIAS_OF(C)) \
    LAYER(qw,    "self_attn.q_proj.weight",          true,                                   MATRIX(q_width, C)) \
    LAYER(kw,    "self_attn.k_proj.weight",          true,                                   MATRIX(kv_width, C)) \
    LAYER(vw,    "self_attn.v_proj.weight",          true,                                   MATRIX(kv_width, C)) \
    LAYER(qb,    "self_attn.q_proj.bias",            arch.qkv_bias,                          BIAS_OF(q_width)) \
    LAYER(kb,    "self_attn.k_proj.bias",            arch.qkv_bias,                          BIAS_OF(kv_width)) \
    LAYER(vb,    "self_attn.v_proj.bias",            arch.qkv_bias,                          BIAS_OF(kv_width)) \
    LAYER(qnw,   "self_attn.q_norm.weight",          qk_norm,                                NORM_WEIGHT(arch.qk_norm == QKNORM_all ? q_width : HS)) \
    LAYER(knw,   "self_attn.k_norm.weight",          qk_norm, NORM_WEIGHT(arch.qk_norm == QKNORM_all ? kv_width : HS)) \
    LAYER(logit, "self_attn.sinks",                  bias.extra == LOGIT_EXTRA && bias.learn_k && is_biased(arch, l), { VECTOR, NH, ZEROS, FOR_LOGIT }) \
    LAYER(kstar, "self_attn.k_star",                 bias.extra == KEY_EXTRA && bias.learn_k && is_biased(arch, l), EXTRA(bias_rows(arch), HS, FOR_KEY)) \
    LAYER(vstar, "self_attn.v_star",                 (bias.learn_v || bias.add_v) && is_biased(arch, l), EXTRA(bias_rows(arch), HS, FOR_VALUE)) \
    LAYER(phi1w, "self_attn.phi_fc1.weight",         phi,                                    MATRIX(HS, HS)) \
    LAYER(phi2w, "self_attn.phi_fc2.weight",         phi,                                    MATRIX(HS, HS)) \
    LAYER(gw,    "self_attn.gate_proj.weight",       gate.reads,                             GATING(gate_width, C)) \
    LAYER(gb,    "self_attn.gate",                   gate.place && !gate.reads,              { VECTOR, gate_width, ZEROS, FOR_GATE }) \
    LAYER(ow,    "self_attn.o_proj.weight",          true,                                   MATRIX(C, OC)) \
    LAYER(ob,    "self_attn.o_proj.bias",            arch.out_bias,                          BIAS_OF(C)) \
    LAYER(norm_attn_out_w, "post_attention_layernorm.weight", norm.out,                               NORM_WEIGHT(C)) \
    LAYER(norm_attn_out_b, "post_attention_layernorm.bias", norm.out && norm_bias,                  BIAS_OF(C)) \
    LAYER(norm_ffn_w, ffn_norm + ".weight",          norm.in,                                NORM_WEIGHT(C)) \
    LAYER(norm_ffn_b, ffn_norm + ".bias",            norm.in && norm_bias,                   BIAS_OF(C)) \
    LAYER(gatew, "mlp.gate_proj.weight",             ffn.gated && has_ffn(l),                MATRIX(F, C)) \
    LAYER(upw,   "mlp.up_proj.weight",               has_ffn(l),                             MATRIX(F, C)) \
    LAYER(gateb, "mlp.gate_proj.bias",               ffn.gated && arch.ffn_bias && has_ffn(l),BIAS_OF(F)) \
    LAYER(upb,   "mlp.up_proj.bias",                 arch.ffn_bias && has_ffn(l),            BIAS_OF(F)) \
    LAYER(downw, "mlp.down_proj.weight",             has_ffn(l),                             { C, F, NORMAL(1 / sqrt(F) / L), FOR_PRODUCT }) \
    LAYER(downb, "mlp.down_proj.bias",               arch.ffn_bias && has_ffn(l),            BIAS_OF(C)) \
    OPEN_PARAMS(LAYER) \
    LAYER(norm_ffn_out_w, "post_feedforward_layernorm.weight", norm.out,                               NORM_WEIGHT(C)) \
    LAYER(norm_ffn_out_b, "post_feedforward_layernorm.bias", norm.out && norm_bias,                  BIAS_OF(C)) \
    TAIL(norm_final_w, "model.norm.weight",          !norm.stream,                           NORM_WEIGHT(C)) \
    TAIL(norm_final_b, "model.norm.bias",            !norm.stream && norm_bias,              BIAS_OF(C)) \
    TAIL(lmw,    "lm_head.weight",                   !arch.tied,                             { V, C, LINEAR(C), FOR_HEAD }) \
    TAIL(lmb,    "lm_head.bias",                     arch.head_bias,                         BIAS_OF(V))

// ---- ACTS: activations, one arena, laid out again for each (B, T). The shapes are for training,
// which keeps all L layers (layer_rows = L N) and all 2L + 1 states of the stream (stream_rows). A
// forward-only pass keeps one layer and three states, and no gradients (grad_rows = 0). A LAYER has
// layer_rows rows and says their width; act_qkv(m, l) and the like return where layer l's begin.
#define ACTS(X, LAYER) \
    X(real, x, stream_rows * C) /* (2L+1, N, C) residual stream: x_0 the embedding, x_2l enters layer l */ \
    X(real, embed,      arch.norm_embed ? N * C : 0)                    /* (N, C)              the embedding before its norm */ \
    X(real, n, (2 * layer_rows * norm.in + N) * C) /* (2L+1, N, C) inputs of attention and FFN; the last: the final norm's output */ \
    X(real, f,          norm.out ? 2 * layer_rows * C : 0)              /* (2L, N, C)          inputs of the norms after attention and FFN */ \
    X(acc,  rstd,       4 * layer_rows + 2 * N) /* (4L+2, N) of norms: 2L before branches, the final one, the embedding's, 2L after */ \
    X(acc,  mean,       ln ? 4 * layer_rows + 2 * N : 0)                /* (4L+2, N)           likewise; LayerNorm only */ \
    LAYER(real, qkv,        qkv_width)                                  /* (L, N, qkv_width)   after QKNORM, PE and phi */ \
    LAYER(real, qk_in,      qk_norm ? qk_width : 0)                     /* (L, N, qk_width)    before QKNORM */ \
    LAYER(acc,  qk_rstd,    qk_norm ? NH + KV : 0)                      /* (L, N, NH + KV); all: (L, N, 2) */ \
    LAYER(real, phi_in,     phi ? qk_width : 0)                         /* (L, N, qk_width)    the MLP kernel: input */ \
    LAYER(real, phi_hidden, phi ? qk_width : 0)                         /*                     and hidden, after ReLU */ \
    LAYER(real, att,        q_width)                                    /* (L, N, q_width)     outputs of the heads */ \
    LAYER(acc,  stat,       NH * 2)                                     /* (L, B, NH, T, 2) */ \
    LAYER(real, gate,       gate_width)                                 /* (L, N, gate_width)  the gate before its sigmoid */ \
    LAYER(real, gated,      gated_width)                                /* (L, N, gated_width) what passes it: of att, or of v */ \
    LAYER(real, v_in,       gate.place == ON_VALUE ? kv_width : 0)      /* (L, N, kv_width) the values before their gate */ \
    LAYER(real, heads,      combine ? OC : 0)                           /* (L, N, OC)          + v*, or summed over heads */ \
    LAYER(real, fch,        up_width)                                   /* (L, N, up_width)    gate | up */ \
    LAYER(real, fca,        F)                                          /* (L, N, F)           after the activation */ \
    OPEN_ACTS(X) \
    X(real, logits,     lm_head_rows * V)                               /* (lm_head_rows, V)   rows that lm_head handles at a time */ \
    X(acc,  losses,     N)                                              /* (N) */ \
    X(real, dx,         grad_rows * C)                                  /* gradients of their namesakes, one layer at a time */ \
    X(real, dn,         grad_rows * C) \
    X(real, df,         (norm.out && !norm.stream) || arch.residual_scale != 1 ? grad_rows * C : 0) \
    X(real, dx_ffn,     arch.parallel ? grad_rows * C : 0)              /* what the FFN of a parallel layer adds to dx_2l */ \
    X(real, dqkv,       grad_rows * qkv_width) \
    X(real, datt,       grad_rows * q_width) \
    X(real, dgate,      grad_rows * gate_width) \
    X(real, dgated,     grad_rows * gated_width) \
    X(real, dheads,     combine ? grad_rows * OC : 0) \
    X(real, dphi,       phi ? 2 * N * qk_width : 0)                     /* the forward pass uses it too */ \
    X(real, dfch,       grad_rows * up_width) \
    X(real, dfca,       grad_rows * F)
#endif // TENSORS_H
