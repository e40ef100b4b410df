/*
attention_variants.cuh -- ATTN, the attention operations: the heart of what differs between one
build and another.

Attention here is one operation on one row. For the query at position t and its visible keys j:

    s_j = scale q_t . k_j + bias(t, j)    score; q, k may have gone through PE and a kernel phi
    w_j = f(s_j)             weight
    A_j = alpha w_j / Z      attention (softpick: of max(w_j, 0)); Z is 1, sum_j w_j, sum_j |w_j|,
                             max(|sum_j w_j|, 1) or (sum_j w_j^p)^(1/p); softmax_clip clips it
    o_t = sum_j A_j v_j      output

An ATTN variant says what f, f', Z and phi are (Gu et al. 2024, section 7.4 and Table 15); what all
of them share is in attention_row.cuh. BIAS may add one extra key that belongs to no token
(Table 4); PE may turn q and k or add to the score (Table 3, Appendix A); their tables and those of
the other switches are in block_variants.h. The Makefile, `make help`, --help, the CPU reference,
the CUDA kernels, the tests, the log and the checkpoints read the tables; one other file knows
their names, that which `export` puts beside the weights, scripts/modeling_train_sink.py. The
Makefile reads the tables with sed, so keep each row on one line.

TO ADD A VARIANT: one row in its table and, for ATTN and PE, one struct under it; an FFN whose
activation is new has its lines in ActivationOf. Then `make test` checks it.
*/
#ifndef ATTENTION_VARIANTS_CUH
#define ATTENTION_VARIANTS_CUH
#include "attention_row.cuh" // ZKind, Phi, Clip

// switch ATTN=<name>       X_ATTN(name, Z, "A", "what it is; where in the paper"); Z: ZKind
#define ATTN_VARIANTS(X_ATTN) \
    X_ATTN(softmax,         Z_SUM,   "exp(s) / sum exp(s)",              "sums to 1, so spare attention must go somewhere (Eq. 4)") \
    X_ATTN(sigmoid,         Z_ONE,   "sigmoid(s)",                       "every key on its own, no normalization (Table 6)") \
    X_ATTN(sigmoid_norm,    Z_SUM,   "sigmoid(s) / sum sigmoid(s)",      "sigmoid, made to sum to 1 again (Table 6)") \
    X_ATTN(elu1,            Z_ONE,   "elu(s) + 1",                       "positive, linear above 0, not normalized (Table 6)") \
    X_ATTN(elu1_norm,       Z_SUM,   "(elu(s) + 1) / sum",               "elu1, made to sum to 1 (Table 15)") \
    X_ATTN(kernel_elu,      Z_ONE,   "phi(q).phi(k), phi = elu + 1",     "linear attention, no normalization (Table 15)") \
    X_ATTN(kernel_elu_norm, Z_SUM,   "phi(q).phi(k) / sum, phi = elu+1", "linear attention (Table 6)") \
    X_ATTN(identity,        Z_ONE,   "s",                                "signed scores as they are (Table 6)") \
    X_ATTN(identity_norm,   Z_MAX1,  "s / max(|sum s|, 1)",              "signed scores, bounded (Table 15)") \
    X_ATTN(mlp,             Z_ONE,   "phi(q).phi(k), phi = MLP",         "learned kernel, no normalization (Table 6)") \
    X_ATTN(mlp_norm,        Z_MAX1,  "phi(q).phi(k) / max(|sum|, 1)",    "learned kernel, bounded (Table 6)") \
    X_ATTN(softmax_p,       Z_PNORM, "exp(s) / (sum exp(p s))^(1/p)",    "p-normalized softmax, --attn-p (Eq. 44)") \
    X_ATTN(sigmoid_p,       Z_PNORM, "w / (sum w^p)^(1/p), w = sigmoid", "p-normalized sigmoid, --attn-p (Eq. 43)") \
    X_ATTN(softpick,        Z_ABS,   "relu(e^s - 1) / sum |e^s - 1|",    "rectified: a row may weigh nothing (Zuhri et al. 2025)") \
    X_ATTN(softcap,         Z_SUM,   "softmax(cap tanh(s / cap))",       "scores within +-cap: Gemma 2") \
    X_ATTN(softmax_clip,    Z_SUM,   "max((1 + c) softmax(s) - c, 0)",   "small weights are 0, --attn-clip c (Bondarenko et al. 2023)") \
    X_ATTN(relu,            Z_ONE,   "relu(s) / keys seen",              "rectified, not normalized: a row may weigh nothing (Guo et al. 2024)")

#define X_ATTN(name, ...) #name,
inline constexpr const char* ATTN_ROWS[] = { ATTN_VARIANTS(X_ATTN) };
#undef X_ATTN

// f, its derivative, and phi of the operations
struct AttnBase {
    // f = exp: overflows at s = 89, so a row's largest score is subtracted from all of them
    static constexpr bool exp_family = false;
    static constexpr bool is_signed  = false; // f(-inf) masks nothing: w may have either sign
    static constexpr bool capped     = false; // the score is cap tanh(s / cap)
    static constexpr Clip clip       = NO_CLIP; // else A_j = max((1 + c) alpha w_j / Z - c, 0)
    static constexpr bool by_count   = false; // A_j = w_j / the number of tokens that a query sees
    static constexpr bool is_reciprocal = false; // f = 1 / inverse
    static constexpr Phi  phi        = PHI_NONE;
    static constexpr Twin twin       = { "", 0, "", "" }; // what its parameter can make of it
};
struct F_softmax : AttnBase {
    static constexpr bool exp_family = true;
    template <class F> HD static F sim(F s)       { return exp_(s); }
    template <class F> HD static F dsim(F, F w)   { return w; }                  // (e^s)' = e^s
    template <class F> HD static F dlog(F)        { return F(1); } // f' / f, from w: for the p-norm
};
struct F_sigmoid : AttnBase {
    static constexpr bool is_reciprocal = true;
    template <class F> HD static F inverse(F s)   { return F(1) + exp_(-s); }
    template <class F> HD static F sim(F s)       { return F(1) / inverse(s); }
    // sigma' = sigma (1 - sigma)
    template <class F> HD static F dsim(F, F w)   { return w * (F(1) - w); }
    template <class F> HD static F dlog(F w)      { return F(1) - w; }
};
struct F_sigmoid_norm : F_sigmoid {};
struct F_elu1 : AttnBase {
    template <class F> HD static F sim(F s)       { return max_(s, F(0)) + exp_(min_(s, F(0))); }
    template <class F> HD static F dsim(F, F w)   { return min_(w, F(1)); } // 1 above 0, e^s below
};
struct F_elu1_norm : F_elu1 {};
struct F_identity : AttnBase {
    static constexpr bool is_signed = true;
    template <class F> HD static F sim(F s)       { return s; }
    template <class F> HD static F dsim(F, F)     { return F(1); }
};
struct F_identity_norm : F_identity {};
struct F_kernel_elu : F_identity { static constexpr Phi phi = PHI_ELU1; };
struct F_kernel_elu_norm : F_kernel_elu {};
struct F_mlp : F_identity { static constexpr Phi phi = PHI_MLP; };
struct F_mlp_norm : F_mlp {};
struct F_softmax_p : F_softmax {
    static constexpr Twin twin = { "attn_p", 1, "is the plain sum", "softmax" };
};
struct F_sigmoid_p : F_sigmoid {
    static constexpr Twin twin = { "attn_p", 1, "is the plain sum", "sigmoid_norm" };
};
struct F_softcap : F_softmax { static constexpr bool capped = true; };
struct F_softmax_clip : F_softmax {
    static constexpr Clip clip = CLIP_WEIGHTS;
    static constexpr Twin twin = { "attn_clip", 0, "clips nothing", "softmax" };
};
struct F_relu : AttnBase {
    static constexpr bool by_count = true;
    template <class F> HD static F sim(F s)       { return max_(s, F(0)); }
    template <class F> HD static F dsim(F s, F)   { return s > F(0) ? F(1) : F(0); }
};
struct F_softpick : AttnBase {
    static constexpr bool exp_family = true, is_signed = true;
    template <class F> HD static F sim(F s)       { return exp_(s) - F(1); }
    template <class F> HD static F dsim(F, F w)   { return w + F(1); }           // (e^s - 1)' = e^s
};

// An operation is its f with the Z of its row.
#define X_ATTN(name, KIND, ...) \
    struct Attn_##name : F_##name { static constexpr ZKind Z = KIND; };
ATTN_VARIANTS(X_ATTN)
#undef X_ATTN

// meaningless pairs, any value of the first set with any of the second; the Makefile prints the
// reason
#define CONFLICTS(X_CONFLICT) \
    X_CONFLICT(ATTN=kernel_elu|kernel_elu_norm BIAS=kv|k|zero|logit, "phi of k* is not defined") \
    X_CONFLICT(ATTN=mlp|mlp_norm               BIAS=kv|k|zero|logit, "phi of k* is not defined") \
    X_CONFLICT(ATTN=identity|identity_norm|softpick|relu BIAS=zero, "a score of 0 weighs nothing there")
#endif // ATTENTION_VARIANTS_CUH
