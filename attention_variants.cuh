/*
attention_variants.cuh -- everything that differs between one build and another.

Attention here is one operation on one row. For the query at position t and its visible keys j:

    s_j = scale q_t . k_j + bias(t, j)    score; q, k may have gone through PE and a kernel phi
    w_j = f(s_j)             weight
    A_j = alpha w_j / Z      attention (softpick: of max(w_j, 0)); Z is 1, sum_j w_j, sum_j |w_j|,
                             max(|sum_j w_j|, 1) or (sum_j w_j^p)^(1/p)
    o_t = sum_j A_j v_j      output

An ATTN variant says what f, f', Z and phi are (Gu et al. 2024, section 7.4 and Table 15). BIAS may
add one extra key that belongs to no token (Table 4); PE may turn q and k or add to the score
(Table 3, Appendix A). The Makefile, `make help`, --help, the CPU reference, the CUDA kernels, the
tests, the log and the checkpoints read the tables below; one other file knows their names, that
which `export` puts beside the weights, scripts/modeling_train_sink.py. The Makefile reads the
tables with sed, so keep each row on one line.

TO ADD A VARIANT: one row in its table and, for ATTN and PE, one struct under it; an FFN whose
activation is new has one in ACTIVATIONS (block_variants.h). Then `make test` checks it.

    1 ATTN                   the attention operation
    2 BIAS                   the extra key
    3 PE                     positions
    4 the other switches     block_variants.h
    5 the choice             the names of the switches
    6 row mathematics        the math that all variants share, for one row, on host and device
*/
#ifndef ATTENTION_VARIANTS_CUH
#define ATTENTION_VARIANTS_CUH
#include "block_variants.h" // NORM, FFN, COMBINE, QKNORM, GATE, PRECISION, BACKEND
#include "cpu/elementary.h" // exp_, log_, erf_ on host and device

// ----------------------------------------------------------------------------
// 1 switch ATTN=<name>     X_ATTN(name, Z, "A", "what it is; where in the paper"); Z: ZKind, below
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
    X_ATTN(softcap,         Z_SUM,   "softmax(cap tanh(s / cap))",       "scores within +-cap: Gemma 2")

// Z = 1 | sum w (+ eps) | sum |w| + eps; w < 0 counts only in Z | max(|sum w|, 1) |
// (sum w^p)^(1/p)
enum ZKind { Z_ONE, Z_SUM, Z_ABS, Z_MAX1, Z_PNORM };
enum Phi   { PHI_NONE, PHI_ELU1, PHI_MLP };    // the kernel on q and k, after PE

struct AttnBase {
    // f = exp: overflows at s = 89, so a row's largest score is subtracted from all of them
    static constexpr bool  exp_family = false;
    static constexpr bool  is_signed  = false; // f(-inf) masks nothing: w may have either sign
    static constexpr bool  capped     = false; // the score is cap tanh(s / cap)
    static constexpr ZKind Z          = Z_ONE;
    static constexpr Phi   phi        = PHI_NONE;
};
struct Attn_softmax : AttnBase {
    static constexpr bool  exp_family = true;
    static constexpr ZKind Z          = Z_SUM;
    template <class F> HD static F sim(F s)       { return exp_(s); }
    template <class F> HD static F dsim(F, F w)   { return w; }                  // (e^s)' = e^s
    template <class F> HD static F dlog(F)        { return F(1); } // f' / f, from w: for the p-norm
};
struct Attn_sigmoid : AttnBase {
    template <class F> HD static F sim(F s)       { return sigmoid_(s); }
    // sigma' = sigma (1 - sigma)
    template <class F> HD static F dsim(F, F w)   { return w * (F(1) - w); }
    template <class F> HD static F dlog(F w)      { return F(1) - w; }
};
struct Attn_sigmoid_norm : Attn_sigmoid { static constexpr ZKind Z = Z_SUM; };
struct Attn_elu1 : AttnBase {
    template <class F> HD static F sim(F s)       { return max_(s, F(0)) + exp_(min_(s, F(0))); }
    template <class F> HD static F dsim(F, F w)   { return min_(w, F(1)); } // 1 above 0, e^s below
};
struct Attn_elu1_norm : Attn_elu1 { static constexpr ZKind Z = Z_SUM; };
struct Attn_identity : AttnBase {
    static constexpr bool is_signed = true;
    template <class F> HD static F sim(F s)       { return s; }
    template <class F> HD static F dsim(F, F)     { return F(1); }
};
struct Attn_identity_norm   : Attn_identity { static constexpr ZKind Z = Z_MAX1; };
struct Attn_kernel_elu      : Attn_identity { static constexpr Phi phi = PHI_ELU1; };
struct Attn_kernel_elu_norm : Attn_identity {
    static constexpr Phi phi = PHI_ELU1;
    static constexpr ZKind Z = Z_SUM;
};
struct Attn_mlp             : Attn_identity { static constexpr Phi phi = PHI_MLP; };
struct Attn_mlp_norm : Attn_identity {
    static constexpr Phi phi = PHI_MLP;
    static constexpr ZKind Z = Z_MAX1;
};
struct Attn_softmax_p       : Attn_softmax  { static constexpr ZKind Z = Z_PNORM; };
struct Attn_sigmoid_p       : Attn_sigmoid  { static constexpr ZKind Z = Z_PNORM; };
struct Attn_softcap         : Attn_softmax  { static constexpr bool capped = true; };
struct Attn_softpick        : AttnBase {
    static constexpr bool  exp_family = true, is_signed = true;
    static constexpr ZKind Z          = Z_ABS;
    template <class F> HD static F sim(F s)       { return exp_(s) - F(1); }
    template <class F> HD static F dsim(F, F w)   { return w + F(1); }           // (e^s - 1)' = e^s
};
#define X_ATTN(name, KIND, ...) \
    static_assert(Attn_##name::Z == KIND, #name ": its row and its struct do not name one Z");
ATTN_VARIANTS(X_ATTN)
#undef X_ATTN

// ----------------------------------------------------------------------------
// 2 switch BIAS=<name>  X_BIAS(name, extra key, learn k*, v*, v* in every output, token, "help")
// The extra key has no position, is never masked, and joins the sum in Z. Its score is that of a
// key k*, scale q . k*, or a logit z of each query head, which needs no k*. What is not learned is
// 0.
enum Column { NO_COLUMN, KEY_COLUMN, LOGIT_COLUMN };
#define BIAS_VARIANTS(X_BIAS) \
    X_BIAS(none,       NO_COLUMN,    0, 0, 0, 0, "only the tokens' own keys and values") \
    X_BIAS(sink_token, NO_COLUMN,    0, 0, 0, 1, "one learned token x* before every sequence (Table 4, row 2)") \
    X_BIAS(kv,         KEY_COLUMN,   1, 1, 0, 0, "an extra learned key k* and value v* per key/value head (Table 4, row 3)") \
    X_BIAS(k,          KEY_COLUMN,   1, 0, 0, 0, "an extra learned key k* per key/value head, v* = 0 or --v-star (Table 4, row 4; Table 5)") \
    X_BIAS(zero,       KEY_COLUMN,   0, 0, 0, 0, "an extra key k* = 0, v* = 0: softmax off by one, exp(s) / (1 + sum exp(s))") \
    X_BIAS(logit,      LOGIT_COLUMN, 1, 0, 0, 0, "a learned logit z per query head, v* = 0: exp(s) / (exp(z) + sum exp(s)), gpt-oss") \
    X_BIAS(v,          NO_COLUMN,    0, 0, 1, 0, "a learned v* added to the output of every head (Table 4, row 5)")

#define BIAS_NAME(name, ...) BIAS_##name,
enum { BIAS_VARIANTS(BIAS_NAME) };
struct BiasRow { const char* name; Column column; bool learn_k, learn_v, add_v, token; };
#define X_BIAS(name, COLUMN, K, V, ADD, TOKEN, help) { #name, COLUMN, K, V, ADD, TOKEN },
static const BiasRow BIAS_ROWS[] = { BIAS_VARIANTS(X_BIAS) };
#undef X_BIAS
#define X_BIAS(name, COLUMN, K, V, ADD, TOKEN, help) \
    struct Bias_##name { \
        static constexpr Column column = COLUMN; \
        static constexpr bool learn_k = K, learn_v = V, add_v = ADD, token = TOKEN; \
    };
BIAS_VARIANTS(X_BIAS)
#undef X_BIAS

// Tells whether the extra key is idle: an output depends on it by the sum in Z and by v*, and
// with neither it is left out of what is measured. So is a key k* = 0, whose score is 0, if f(0)
// is 0.
// bias: a BiasRow or a Bias_k; has_v: v* is not 0
template <class B>
constexpr bool column_has_no_effect(ZKind Z, const B& bias, bool has_v, bool zero_at_0) {
    if (bias.column == NO_COLUMN) { return false; }
    const bool weighs_nothing = bias.column == KEY_COLUMN && !bias.learn_k && zero_at_0;
    return weighs_nothing || (Z == Z_ONE && !has_v);
}

// ----------------------------------------------------------------------------
// 3 switch PE=<name>       X_PE(name, "formula", "help")
#define PE_VARIANTS(X_PE) \
    X_PE(rotary,    "q_t R(t), k_j R(j)",       "rotate pairs of channels by the position (Eq. 8)") \
    X_PE(nope,      "nothing",                  "no positional embedding; only the causal mask tells the order") \
    X_PE(absolute,  "h0_t += (sin, cos)(t)",    "fixed sinusoids (Eq. 5)") \
    X_PE(learnable, "h0_t += p_t",              "one learned row per position") \
    X_PE(relative,  "s += bucket(t - j)",       "the T5 bucket index itself, 0..31, not learned (Eq. 6)") \
    X_PE(alibi,     "s -= 2^(-8h/NH) (t - j)",  "a linear penalty on distance, one slope per head (Eq. 7)")

struct PeBase {
    static constexpr bool rotary = false, absolute = false, learnable = false, score_bias = false;
    // Returns the slope of head h: the first `even` heads have even slopes, the others lie between.
    HD static float slope(int, int) { return 0; }
    // Returns what is added to the score at a distance t - j, from the slope of the head.
    template <class F> HD static F bias(int, float) { return F(0); }
};
struct Pe_rotary    : PeBase { static constexpr bool rotary = true; };
struct Pe_nope      : PeBase {};
struct Pe_absolute  : PeBase { static constexpr bool absolute = true; };
struct Pe_learnable : PeBase { static constexpr bool learnable = true; };
struct Pe_relative  : PeBase {
    static constexpr bool score_bias = true;
    // 32 buckets, distances from 128 on share the last. As T5 has it: Eq. 6 floors before it scales
    template <class F> HD static F bias(int distance, float) {
        // 0 at 16, 1 at 128
        const F log_8 = log_(F(max_(distance, 16)) * F(1 / 16.0)) * F(1 / 2.0794415416798357);
        const int far = min_(16 + (int)(log_8 * F(16)), 31);
        return F(distance < 16 ? max_(distance, 0) : far);
    }
};
struct Pe_alibi : PeBase {
    static constexpr bool score_bias = true;
    HD static float slope(int h, int even) {
        const float rank = h < even ? h + 1 : h - even + 0.5f;
        return exp2f(-8.0f * rank / even);
    }
    // a prefix key that lies ahead counts as near
    template <class F> HD static F bias(int distance, float slope) {
        return F(min_(-distance, 0)) * F(slope);
    }
};

#define PE_NAME(name, ...) PE_##name,
enum { PE_VARIANTS(PE_NAME) };
struct PeRow { const char* name; bool rotary, absolute, learnable, score_bias; };
#define X_PE(name, ...) \
    { #name, Pe_##name::rotary, Pe_##name::absolute, Pe_##name::learnable, Pe_##name::score_bias },
static const PeRow PE_ROWS[] = { PE_VARIANTS(X_PE) };
#undef X_PE

// ----------------------------------------------------------------------------
// 4 the other switches: block_variants.h

// meaningless pairs, any value of the first set with any of the second; the Makefile prints the
// reason
#define CONFLICTS(X_CONFLICT) \
    X_CONFLICT(ATTN=kernel_elu|kernel_elu_norm BIAS=kv|k|zero|logit, "phi of k* is not defined") \
    X_CONFLICT(ATTN=mlp|mlp_norm               BIAS=kv|k|zero|logit, "phi of k* is not defined") \
    X_CONFLICT(ATTN=identity|identity_norm|softpick BIAS=zero, "a score of 0 weighs nothing there")

// ----------------------------------------------------------------------------
// 5 the choice: -DATTN=<name> -DBIAS=<name> .., set by the Makefile; what it says: switches.h
#define CAT_(a, b) a##b
#define CAT(a, b) CAT_(a, b)
#define STR_(a) #a
#define STR(a) STR_(a)
#define NAME_OF(name, ...) #name " "
#define NAMES_OF(SWITCH) SWITCH##_VARIANTS(NAME_OF)
#define SWITCHES(X) X(ATTN) X(BIAS) X(PE) X(NORM) X(FFN) X(COMBINE) X(QKNORM) X(GATE)

// ----------------------------------------------------------------------------
// 6 row mathematics. Each row keeps two numbers of the forward pass for backward and the metrics:
//      exp family:  A_j = exp((s_j - stat[0]) - stat[1]);   stat[0] = max_j s_j,
//                                                           stat[1] = ln(Z exp(-stat[0]) / alpha)
//      softpick:    A_j = max(0, that - exp(-stat[0] - stat[1])),   stat[0] = max(0, max_j s_j)
//      the others:  A_j = f(s_j) stat[0];   stat[0] = alpha / Z,   stat[1] = sum_j w_j (or w_j^p)
// (One number, ln Z, would do for the exp family, but at scores near 30 it costs five bits of A:
// gradients 1e-5 off.)

struct AttnShape {
    int B;
    int T;
    int NH;
    int KV;                // key/value heads; query head h reads key/value head h / (NH / KV)
    int HS;
    int window;            // query t sees keys t-window+1..t; 0: all up to t
    int prefix;            // and every key < prefix
    int bias_shared;       // 1: one k*, v* or z for all heads of a layer (Table 12)
    int k_dims;            // learnable entries of k*, 1..HS (Table 13)
    float p;               // --attn-p
    float alpha;           // --attn-alpha
    double scale = 1;      // of q . k: 1 / sqrt(HS), unless the model says otherwise
    float cap = 0;         // ATTN=softcap: scores stay within +-cap
    float shift = 0;       // added to the score of every token's key; no effect where f = exp
    int slope_heads = 0;   // PE=alibi: heads with even slopes, the others lie between; 0: NH
    int rot = 0;           // channels at the front of every head that rope rotates: HS, or fewer
};

// Returns the width of a row of qkv: q heads, k heads, v heads.
HD int attn_row(AttnShape s) { return (s.NH + 2 * s.KV) * s.HS; }

// Returns how many of its numbers are queries and keys.
HD int qk_width(AttnShape s) { return (s.NH + s.KV) * s.HS; }

// Returns the learned key or value of key/value head g, or its gradient; NULL where there is none.
template <class P> HD P* attn_star(P* star, AttnShape s, int g) {
    if (!star || s.bias_shared) { return star; }
    return star + g * s.HS;
}

// Returns the parameter behind the extra key's score for query head h: its z, or the k* of its
// key/value head; or that parameter's gradient.
template <class Bi, class P> HD P* attn_column(P* star, AttnShape s, int h) {
    if (Bi::column != LOGIT_COLUMN) { return attn_star(star, s, h / (s.NH / s.KV)); }
    if (!star || s.bias_shared) { return star; }
    return star + h;
}

// Tells whether query t sees key j.
HD bool attn_sees(AttnShape s, int t, int j) {
    return ((j <= t) & (!s.window | (j > t - s.window))) | (j < s.prefix);
}

// Tell whether in a tile of queries t0 <= t < t1 and keys j0 <= j < j1 no query sees a key, or
// every query sees all.
HD bool attn_tile_empty(AttnShape s, int t0, int t1, int j0, int j1) {
    const bool behind = (s.window != 0) & (j1 - 1 <= t0 - s.window);
    return ((j0 >= t1) | behind) & (j0 >= s.prefix);
}

HD bool attn_tile_full(AttnShape s, int t0, int t1, int j0, int j1) {
    return (j1 - 1 <= t0 && (!s.window || j0 > t1 - 1 - s.window)) || j1 <= s.prefix;
}

// Returns the slope of head h; compute it once, before the loop over keys.
template <class Pe> HD float pe_slope(AttnShape s, int h) {
    if (s.slope_heads) { return Pe::slope(h, s.slope_heads); }
    return Pe::slope(h, s.NH);
}

// Returns what is added to scale q . k: PE's bias and the shift.
template <class A, class Pe, class F> HD F attn_bias(AttnShape s, int distance, float slope) {
    const F bias = Pe::template bias<F>(distance, slope);
    if (A::exp_family) { return bias; }
    return bias + F(s.shift);
}

// Returns the score of a masked key, whose weight is then 0. (Where w is signed f' is not 0:
// backward masks ds itself.)
template <class A, class F> HD F attn_masked() {
    if (A::is_signed) { return F(0); }
    return F(-INFINITY);
}

// Returns the score from scale q . k + bias.
template <class A, class F> HD F attn_capped(F s, F cap) {
    if (!A::capped) { return s; }
    return cap * tanh_(s / cap);
}

// Returns its derivative from the score itself; 0 where the score is masked.
template <class A, class F> HD F attn_slope(F s, F cap) {
    if (!A::capped) { return F(1); }
    const F y = s / cap;
    return max_(F(1) - y * y, F(0));
}

// Returns the initial value of m, the largest score.
template <class A, class F> HD F attn_initial_max() {
    if (A::Z == Z_ABS) { return F(0); }
    return F(-INFINITY);
}

// Returns f(s); for the exp family f(s) exp(-m), which is what its loop sums.
template <class A, class F> HD F attn_term(F s, F m) {
    if (!A::exp_family) { return A::sim(s); }
    const F w = exp_(s - m);
    if (A::Z == Z_ABS) { return w - exp_(-m); }
    return w;
}

// Returns what a term w adds to the sum in Z.
template <class A, class F> HD F attn_mass(F w, F p) {
    if (A::Z == Z_ABS) { return abs_(w); }
    if (A::Z == Z_PNORM) { return exp_(p * log_(w)); }      // w = 0: exp(-inf)
    return w;
}

// Returns the factor of v.
template <class A, class F> HD F attn_share(F w) {
    if (A::Z == Z_ABS) { return max_(w, F(0)); }
    return w;
}

// Returns Z from the sum l, for all but the exp family. 1e-8 as in the official code. The floor of
// the p-norm is for rows whose w^p all underflow in fp32: then w < e^(-87/p), so no A_j exceeds
// alpha (with a floor of 1e-30 A_j reached 1e19: s = -25, p = 4).
template <class A, class F> HD F attn_Z(F l, F p) {
    if (A::Z == Z_ONE) { return F(1); }
    if (A::Z == Z_SUM) { return l + F(1e-8); }
    if (A::Z == Z_MAX1) { return max_(abs_(l), F(1)); }
    const F norm = l > 0 ? exp_(log_(l) / p) : F(0);
    return max_(norm, max_(exp_(F(-87) / p), F(1e-37)));
}

// Returns alpha, which is 1 where there is no Z to multiply.
template <class A, class F> HD F attn_alpha(AttnShape s) {
    if (A::Z == Z_ONE) { return F(1); }
    return F(s.alpha);
}

// Returns ln(Z / alpha) of the exp family, relative to m, from the sum l in Z.
template <class A, class F> HD F attn_ln_Z(F m, F l, F p, F alpha) {
    if (A::Z == Z_ABS) { return log_(l + F(1e-6) * exp_(-m)) - log_(alpha); }
    if (A::Z == Z_PNORM) { return log_(l) / p - log_(alpha); }
    return log_(l) - log_(alpha);
}

// Sets stat from m, the largest score, and l, the sum in Z; returns alpha / Z, with which the
// loop's sum of w_j v_j is the output. For the exp family both are relative to m.
template <class A, class F> HD F attn_stat(F (&stat)[2], F m, F l, F p, F alpha) {
    if (A::exp_family) {
        const F ln_Z = attn_ln_Z<A>(m, l, p, alpha);
        stat[0] = m;
        stat[1] = ln_Z;
        return exp_(-ln_Z);
    }
    const F factor = alpha / attn_Z<A>(l, p);
    stat[0] = factor;
    stat[1] = l;
    return factor;
}

// Returns A_j from its score.
template <class A, class F> HD F attn_weight(F s, F stat0, F stat1) {
    if (!A::exp_family) { return A::sim(s) * stat0; }
    const F w = exp_((s - stat0) - stat1);
    if (A::Z == Z_ABS) { return max_(w - exp_(-stat0 - stat1), F(0)); }
    return w;
}

// Returns delta = (dZ/dw) (do . o) / alpha, the one number per row that backward needs besides
// stat. For Z_PNORM the factor dZ/dw_j = (w_j / Z)^(p-1) depends on j and stays in attn_ds.
template <class A, class F> HD F attn_delta(F do_o, F stat1, F alpha) {
    F slope = F(1);
    if (A::Z == Z_ONE) { slope = F(0); }
    if (A::Z == Z_MAX1 && stat1 <= F(1)) { slope = stat1 < F(-1) ? F(-1) : F(0); }
    return slope * do_o / alpha;
}

// Returns the gradient of a score. In the forward pass this was:
//     o = sum_j A_j v_j,  A_j = alpha f(s_j) / Z,   so
//     ds_j = f'(s_j) (alpha/Z) (dA_j - delta (w_j/Z)^(p-1)),  p = 1 unless Z_PNORM
// weight = A_j, dweight = dA_j = do . v_j
template <class A, class F>
HD F attn_ds(F s, F weight, F dweight, F stat0, F stat1, F delta, F p, F alpha) {
    // f' (w/Z)^(p-1) / Z = (f'/f) (w/Z)^p, finite also where w -> 0 and p < 1
    if constexpr (A::Z == Z_PNORM) {
        const F share = exp_(p * log_(weight / alpha));    // weight 0: exp(-inf)
        const F w = A::exp_family ? F(1) : weight / stat0;
        return (weight * dweight - alpha * delta * share) * A::dlog(w);
    }
    // f = e^s - 1 weighs v where s > 0, and adds |f| to Z:
    //     f' (alpha/Z) ([s > 0] dA_j - sign(s) delta)
    if (A::Z == Z_ABS) {
        const F below = s < 0 ? delta : F(0);
        const F d = s > 0 ? dweight - delta : below;
        return exp_((s - stat0) - stat1) * d;
    }
    if (A::exp_family) { return weight * (dweight - delta); }
    return A::dsim(s, A::sim(s)) * stat0 * (dweight - delta);
}

#endif // ATTENTION_VARIANTS_CUH
