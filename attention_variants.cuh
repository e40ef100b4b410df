/*
attention_variants.cuh -- everything that differs between one train_sink and another.

Attention here is one operation on one row. For the query at position t and its visible keys j:

    s_j = q_t . k_j / sqrt(HS) + bias(t, j)      score; q, k may have gone through PE and a kernel phi before
    w_j = f(s_j)                                 weight
    A_j = alpha w_j / Z                          attention; Z is 1, sum_j w_j, max(|sum_j w_j|, 1), (sum_j w_j^p)^(1/p)
    o_t = sum_j A_j v_j                          output

An ATTN variant says what f, f', Z and phi are (Gu et al. 2024, section 7.4 and Table 15). BIAS may add one extra column
that belongs to no token (Table 4); PE may turn q and k or add to the score (Table 3, Appendix A). Nothing else in the
repository knows their names: the Makefile, `make help`, --help, the CPU reference, the CUDA kernels, the tests, the log
and the checkpoints read the tables below. The Makefile reads them with sed, so keep one row per line, as they stand.

TO ADD A VARIANT: one row in its table and, for ATTN, PE and FFN, one struct under it. Then `make test` checks it.

    1 scalars                exp_, log_, erf_, sigmoid_
    2 ATTN                   the attention operation
    3 BIAS                   the extra column
    4 PE                     positions
    5 NORM FFN COMBINE       the rest of the block
    6 the choice             Attn, Bias, Pe, Norm, Ffn, Combine of this binary
    7 row mathematics        what every variant shares, for one row, on host and device
    8 CUDA                   one forward and one backward for all of it, by tiles, without a T x T tensor
*/
#ifndef ATTENTION_VARIANTS_CUH
#define ATTENTION_VARIANTS_CUH
#include "common.h"

// ----------------------------------------------------------------------------
// 1 scalars, for float and double, host and device
// Plain loops over these turn into vector code (-O3 -fno-trapping-math -fno-math-errno are enough, never -ffast-math).
// float on the host: no branch, no table, polynomials fitted by Remez exchange; double: the library's; on the device:
// CUDA's.

HD float float_of_bits(uint32_t u) { float x; memcpy(&x, &u, sizeof x); return x; }
HD uint32_t bits_of_float(float x) { uint32_t u; memcpy(&u, &x, sizeof u); return u; }

// e^x = 2^n e^r with n = round(x / ln 2), |r| <= ln 2 / 2. Within 1.01 ulp where the result is a normal number; below
// x = -87.336 it is 0 rather than subnormal (those cost a hundred cycles each), above 88.722 inf; NaN stays NaN.
HD float exp_(float x) {
#ifdef __CUDA_ARCH__
    return expf(x);
#else
    const float shift = 12582912.0f;                     // 1.5 * 2^23: adding it rounds to an integer, in the low bits
    const float t = x * 1.44269504f + shift, n = t - shift;
    const float r = (x - n * 0.693359375f) + n * 2.12194440e-4f; // ln 2 in two parts, the first exact when times n
    float p = 1.38144671e-3f;
    p = p * r + 8.36878041e-3f;
    p = p * r + 4.16683942e-2f;
    p = p * r + 1.66665201e-1f;
    p = p * r + 4.99999934e-1f;
    p = p * (r * r) + r + 1.0f;
    const float y = float_of_bits(bits_of_float(p) + (bits_of_float(t) << 23)); // n added to the exponent
    const float bounded = x < -87.3365402f ? 0.0f : x > 88.7228317f ? INFINITY : y;
    return x == x ? bounded : x;
#endif
}
HD double exp_(double x) { return exp(x); }

// ln x = e ln 2 + ln m, m in [sqrt(1/2), sqrt(2)), ln m = 2 atanh((m-1)/(m+1)) as a series; within 2 ulp for normal
// x > 0, -inf at 0
HD float log_(float x) {
#ifdef __CUDA_ARCH__
    return logf(x);
#else
    const uint32_t u = bits_of_float(x) - 0x3f3504f3u;
    const float e = (float)((int32_t)u >> 23), m = float_of_bits((u & 0x7fffffu) + 0x3f3504f3u);
    const float s = (m - 1) / (m + 1), z = s * s;
    const float p = ((0.2222222f * z + 0.2857143f) * z + 0.4f) * z + 0.6666667f;
    const float y = e * 0.693359375f + (e * -2.12194440e-4f + (s * z * p + 2 * s));
    return x > 0 ? (x < INFINITY ? y : x) : x == 0 ? -INFINITY : NAN;
#endif
}
HD double log_(double x) { return log(x); }

template <class F> HD F sigmoid_(F x)  { return F(1) / (F(1) + exp_(-x)); } // within 2.4 ulp
template <class F> HD F max_(F a, F b) { return a > b ? a : b; }
template <class F> HD F min_(F a, F b) { return a < b ? a : b; }

// erf, within 2.6 ulp: an odd polynomial near 0, 1 - e^(a polynomial for log erfc) elsewhere; 1 from 3.95 on
HD float erf_(float x) {
#ifdef __CUDA_ARCH__
    return erff(x);
#else
    const float z = x * x, a = fabsf(x) < 3.95f ? fabsf(x) : 3.95f;
    float p = 8.2636226e-5f;
    p = p * z - 8.11713794e-4f;
    p = p * z + 5.19874454e-3f;
    p = p * z - 2.68584616e-2f;
    p = p * z + 1.12836783e-1f;
    p = p * z - 3.76126326e-1f;
    p = p * z + 1.12837917f;
    float q = 1.94945642e-4f;
    q = q * a - 3.03368211e-3f;
    q = q * a + 2.21897381e-2f;
    q = q * a - 1.03856299e-1f;
    q = q * a - 6.37265833e-1f;
    q = q * a - 1.12762736f;
    q = q * a - 2.07018861e-4f;
    const float tail = 1.0f - exp_(q), far = x < 0 ? -tail : tail;
    const float y = fabsf(x) < 0.9375f ? x * p : far;
    return x == x ? y : x;
#endif
}
HD double erf_(double x) { return erf(x); }

// ----------------------------------------------------------------------------
// 2 switch ATTN=<name>     X_ATTN(name, "A", "what it is; where in the paper")
#define ATTN_VARIANTS(X_ATTN) \
    X_ATTN(softmax,         "exp(s) / sum exp(s)",              "rows sum to 1: spare attention goes somewhere (Eq. 4)") \
    X_ATTN(sigmoid,         "sigmoid(s)",                       "every key on its own, no normalisation (Table 6)") \
    X_ATTN(sigmoid_norm,    "sigmoid(s) / sum sigmoid(s)",      "sigmoid, made to sum to 1 again (Table 6)") \
    X_ATTN(elu1,            "elu(s) + 1",                       "positive, linear above 0, not normalised (Table 6)") \
    X_ATTN(elu1_norm,       "(elu(s) + 1) / sum",               "elu1, made to sum to 1 (Table 15)") \
    X_ATTN(kernel_elu,      "phi(q).phi(k), phi = elu + 1",     "linear attention, no normalisation (Table 15)") \
    X_ATTN(kernel_elu_norm, "phi(q).phi(k) / sum, phi = elu+1", "linear attention (Table 6)") \
    X_ATTN(identity,        "s",                                "signed scores as they are (Table 6)") \
    X_ATTN(identity_norm,   "s / max(|sum s|, 1)",              "signed scores, bounded (Table 15)") \
    X_ATTN(mlp,             "phi(q).phi(k), phi = MLP",         "learned kernel, no normalisation (Table 15)") \
    X_ATTN(mlp_norm,        "phi(q).phi(k) / max(|sum|, 1)",    "learned kernel, bounded (Table 6)") \
    X_ATTN(softmax_p,       "exp(s) / (sum exp(p s))^(1/p)",    "p-normalised softmax, --attn-p (Eq. 44)") \
    X_ATTN(sigmoid_p,       "w / (sum w^p)^(1/p), w = sigmoid", "p-normalised sigmoid, --attn-p (Eq. 43)")

enum ZKind { Z_ONE, Z_SUM, Z_MAX1, Z_PNORM };  // Z = 1 | sum w (+ eps) | max(|sum w|, 1) | (sum w^p)^(1/p)
enum Phi   { PHI_NONE, PHI_ELU1, PHI_MLP };    // the kernel on q and k, after PE

struct AttnBase {
    static constexpr bool  exp_family = false; // f = exp: overflows at s = 89, so rows are shifted by their running max
    static constexpr bool  is_signed  = false; // f(-inf) is no mask, as w may have either sign
    static constexpr ZKind Z          = Z_ONE;
    static constexpr Phi   phi        = PHI_NONE;
};
struct Attn_softmax : AttnBase {
    static constexpr bool  exp_family = true;
    static constexpr ZKind Z          = Z_SUM;
    template <class F> HD static F sim(F s)       { return exp_(s); }
    template <class F> HD static F dsim(F, F w)   { return w; }                  // (e^s)' = e^s
    template <class F> HD static F dlog(F)        { return F(1); }               // f' / f, from w
};
struct Attn_sigmoid : AttnBase {
    template <class F> HD static F sim(F s)       { return sigmoid_(s); }
    template <class F> HD static F dsim(F, F w)   { return w * (F(1) - w); }     // sigma' = sigma (1 - sigma)
    template <class F> HD static F dlog(F w)      { return F(1) - w; }
};
struct Attn_sigmoid_norm : Attn_sigmoid { static constexpr ZKind Z = Z_SUM; };
struct Attn_elu1 : AttnBase {
    template <class F> HD static F sim(F s)       { return s > 0 ? s + F(1) : exp_(min_(s, F(0))); }
    template <class F> HD static F dsim(F, F w)   { return min_(w, F(1)); }      // 1 above 0, e^s below
    template <class F> HD static F dlog(F w)      { return w > F(1) ? F(1) / w : F(1); }
};
struct Attn_elu1_norm : Attn_elu1 { static constexpr ZKind Z = Z_SUM; };
struct Attn_identity : AttnBase {
    static constexpr bool is_signed = true;
    template <class F> HD static F sim(F s)       { return s; }
    template <class F> HD static F dsim(F, F)     { return F(1); }
    template <class F> HD static F dlog(F w)      { return F(1) / w; }
};
struct Attn_identity_norm   : Attn_identity { static constexpr ZKind Z = Z_MAX1; };
struct Attn_kernel_elu      : Attn_identity { static constexpr Phi phi = PHI_ELU1; };
struct Attn_kernel_elu_norm : Attn_identity { static constexpr Phi phi = PHI_ELU1; static constexpr ZKind Z = Z_SUM; };
struct Attn_mlp             : Attn_identity { static constexpr Phi phi = PHI_MLP; };
struct Attn_mlp_norm        : Attn_identity { static constexpr Phi phi = PHI_MLP; static constexpr ZKind Z = Z_MAX1; };
struct Attn_softmax_p       : Attn_softmax  { static constexpr ZKind Z = Z_PNORM; };
struct Attn_sigmoid_p       : Attn_sigmoid  { static constexpr ZKind Z = Z_PNORM; };

// ----------------------------------------------------------------------------
// 3 switch BIAS=<name>     X_BIAS(name, extra column, learn k*, learn v*, add v* to every output, extra token, "help")
// The extra column has no position, is never masked, and joins the sum in Z. k* = 0 or v* = 0 where not learned.
#define BIAS_VARIANTS(X_BIAS) \
    X_BIAS(none,       0, 0, 0, 0, 0, "keys and values are the tokens', nothing else") \
    X_BIAS(sink_token, 0, 0, 0, 0, 1, "one learned token x* before every sequence (Table 4, row 2)") \
    X_BIAS(kv,         1, 1, 1, 0, 0, "one extra learned key k* and value v* per head (Table 4, row 3)") \
    X_BIAS(k,          1, 1, 0, 0, 0, "one extra learned key k*, v* = 0 or --v-star (Table 4, row 4; Table 5)") \
    X_BIAS(v,          0, 0, 0, 1, 0, "a learned v* added to the output of every head (Table 4, row 5)")

#define X_BIAS(name, COLUMN, K, V, ADD, TOKEN, help) \
    struct Bias_##name { static constexpr bool column = COLUMN, learn_k = K, learn_v = V, add_v = ADD, token = TOKEN; };
BIAS_VARIANTS(X_BIAS)
#undef X_BIAS

// ----------------------------------------------------------------------------
// 4 switch PE=<name>       X_PE(name, "formula", "help")
#define PE_VARIANTS(X_PE) \
    X_PE(rotary,    "q_t R(t), k_j R(j)",       "rotate pairs of channels by the position (Eq. 8)") \
    X_PE(nope,      "nothing",                  "no positional embedding; the causal mask alone tells order") \
    X_PE(absolute,  "h0_t += (sin, cos)(t)",    "fixed sinusoids (Eq. 5)") \
    X_PE(learnable, "h0_t += p_t",              "one learned row per position") \
    X_PE(relative,  "s += bucket(t - j)",       "the T5 bucket index itself, 0..31, not learned (Eq. 6)") \
    X_PE(alibi,     "s -= 2^(-8h/NH) (t - j)",  "a linear penalty on distance, one slope per head (Eq. 7)")

struct PeBase {
    static constexpr bool rotary = false, absolute = false, learnable = false, score_bias = false;
    template <class F> HD static F bias(int, int, int) { return F(0); } // added to the score; t - j, h, NH
};
struct Pe_rotary    : PeBase { static constexpr bool rotary = true; };
struct Pe_nope      : PeBase {};
struct Pe_absolute  : PeBase { static constexpr bool absolute = true; };
struct Pe_learnable : PeBase { static constexpr bool learnable = true; };
struct Pe_relative  : PeBase {
    static constexpr bool score_bias = true;
    template <class F> HD static F bias(int distance, int, int) { // 32 buckets, distances from 128 on share the last
        if (distance < 16)   { return F(distance > 0 ? distance : 0); }
        if (distance >= 128) { return F(31); }
        return F(16 + (int)(logf(distance / 16.0f) / logf(8.0f) * 16.0f));
    }
};
struct Pe_alibi : PeBase {
    static constexpr bool score_bias = true;
    template <class F> HD static F bias(int distance, int h, int NH) { // a prefix key that lies ahead counts as near
        return distance > 0 ? F(-distance) * F(exp2f(-8.0f * (h + 1) / NH)) : F(0);
    }
};

// ----------------------------------------------------------------------------
// 5 switches NORM, FFN, COMBINE, and how it is computed: PRECISION, BACKEND
#define NORM_VARIANTS(X_NORM) \
    X_NORM(pre,  "h += f(LN(h))",    "the stream is never normalised, LN stands before each branch (Eq. 2)") \
    X_NORM(post, "h = LN(h + f(h))", "LN stands on the stream, after each branch (Eq. 3)")
struct Norm_pre  { static constexpr bool post = false; };
struct Norm_post { static constexpr bool post = true; };

#define FFN_VARIANTS(X_FFN) \
    X_FFN(swiglu, "(swish(h W1) * h W2) W3", "gated, the default (Table 11)") \
    X_FFN(geglu,  "(gelu(h W1) * h W2) W3",  "gated (Table 11)") \
    X_FFN(reglu,  "(relu(h W1) * h W2) W3",  "gated (Table 11)") \
    X_FFN(relu,   "relu(h W2) W3",           "(Table 11)") \
    X_FFN(gelu,   "gelu(h W2) W3",           "erf form (Table 11)") \
    X_FFN(swish,  "swish(h W2) W3",          "x sigmoid(x) (Table 11)")
struct Ffn_relu {
    static constexpr bool gated = false;
    template <class F> HD static F act(F x)  { return x > 0 ? x : F(0); }
    template <class F> HD static F dact(F x) { return x > 0 ? F(1) : F(0); }
};
struct Ffn_gelu { // x Phi(x);  (x Phi)' = Phi + x phi
    static constexpr bool gated = false;
    template <class F> HD static F act(F x)  { return F(0.5) * x * (F(1) + erf_(x * F(0.7071067811865476))); }
    template <class F> HD static F dact(F x) {
        return F(0.5) * (F(1) + erf_(x * F(0.7071067811865476))) + x * F(0.3989422804014327) * exp_(F(-0.5) * x * x);
    }
};
struct Ffn_swish { // x sigma(x);  (x sigma)' = sigma (1 + x (1 - sigma))
    static constexpr bool gated = false;
    template <class F> HD static F act(F x)  { return x * sigmoid_(x); }
    template <class F> HD static F dact(F x) { F g = sigmoid_(x); return g * (F(1) + x * (F(1) - g)); }
};
struct Ffn_swiglu : Ffn_swish { static constexpr bool gated = true; };
struct Ffn_geglu  : Ffn_gelu  { static constexpr bool gated = true; };
struct Ffn_reglu  : Ffn_relu  { static constexpr bool gated = true; };

#define COMBINE_VARIANTS(X_COMBINE) \
    X_COMBINE(concat, "Concat_h(o_h) W_O", "W_O is (C, NH*HS) (Eq. 4)") \
    X_COMBINE(sum,    "(sum_h o_h) W_O",   "W_O is (C, HS), shared by the heads (Table 12)")
struct Combine_concat { static constexpr bool sum = false; };
struct Combine_sum    { static constexpr bool sum = true; };

#define PRECISION_VARIANTS(X_PRECISION) \
    X_PRECISION(fp32, "float everywhere",    "the reference; the one precision of BACKEND=cpu") \
    X_PRECISION(bf16, "bfloat16 and float",  "activations, weights in bf16; masters, sums in float; BACKEND=cuda")
#define BACKEND_VARIANTS(X_BACKEND) \
    X_BACKEND(cpu,    "reference.h",         "plain C++ with OpenMP, runs anywhere") \
    X_BACKEND(cuda,   "cuda_ops.cuh",        "one GPU, sm_80 or newer; needs nvcc and cuBLASLt to build")

// pairs that mean nothing; the Makefile stops with the reason, the static_assert below guards direct compilation
#define CONFLICTS(X_CONFLICT) \
    X_CONFLICT(ATTN=kernel_elu      BIAS=kv, "phi of k* is not defined: it would pass the kernel without a position") \
    X_CONFLICT(ATTN=kernel_elu      BIAS=k,  "phi of k* is not defined: it would pass the kernel without a position") \
    X_CONFLICT(ATTN=kernel_elu_norm BIAS=kv, "phi of k* is not defined: it would pass the kernel without a position") \
    X_CONFLICT(ATTN=kernel_elu_norm BIAS=k,  "phi of k* is not defined: it would pass the kernel without a position") \
    X_CONFLICT(ATTN=mlp             BIAS=kv, "phi of k* is not defined: it would pass the kernel without a position") \
    X_CONFLICT(ATTN=mlp             BIAS=k,  "phi of k* is not defined: it would pass the kernel without a position") \
    X_CONFLICT(ATTN=mlp_norm        BIAS=kv, "phi of k* is not defined: it would pass the kernel without a position") \
    X_CONFLICT(ATTN=mlp_norm        BIAS=k,  "phi of k* is not defined: it would pass the kernel without a position")

// ----------------------------------------------------------------------------
// 6 the choice: -DATTN=<name> -DBIAS=<name> ..., set by the Makefile
#define CAT_(a, b) a##b
#define CAT(a, b) CAT_(a, b)
#define STR_(a) #a
#define STR(a) STR_(a)
#define SWITCHES(X) X(ATTN, Attn) X(BIAS, Bias) X(PE, Pe) X(NORM, Norm) X(FFN, Ffn) X(COMBINE, Combine)
#if defined(ATTN) && defined(BIAS) && defined(PE) && defined(NORM) && defined(FFN) && defined(COMBINE)
#define X(SWITCH, Type) using Type = CAT(Type##_, SWITCH);
SWITCHES(X)
#undef X
static_assert(!(Attn::phi != PHI_NONE && Bias::column), "a kernel phi with a learned key: see CONFLICTS");
#elif !defined(ALL_VARIANTS) // the op tests go through the tables themselves
#error "build through the Makefile (make help), or pass -DATTN=softmax -DBIAS=none -DPE=rotary and the other switches"
#endif

// ----------------------------------------------------------------------------
// 7 row mathematics. What a row keeps from forward for backward and for the metrics is two numbers, never the row:
//      exp family:  A_j = exp((s_j - stat[0]) - stat[1]);   stat[0] = max_j s_j,  stat[1] = ln(Z exp(-stat[0]) / alpha)
//      the others:  A_j = f(s_j) stat[0];                   stat[0] = alpha / Z,   stat[1] = sum_j w_j (or w_j^p)
// (One number L = ln Z would do for the exp family, but at scores near 30 it costs five bits of A: gradients 1e-5 off.)

struct AttnShape {
    int B, T, NH, KV, HS;     // KV key/value heads; query head h reads key/value head h / (NH / KV)
    int window, prefix;       // query t sees keys t-window+1..t (0: all up to t), and every key < prefix
    int bias_shared;          // 1: one k*, v* for all heads of a layer (Table 12)
    int k_dims;               // learnable entries of k*, 1..HS (Table 13)
    float p, alpha;           // --attn-p, --attn-alpha
};
HD int  attn_row(AttnShape s) { return (s.NH + 2 * s.KV) * s.HS; } // one row of qkv: q heads, k heads, v heads
// the learned key or value of key/value head g; NULL where there is none
template <class R> HD const R* attn_star(const R* star, AttnShape s, int g) {
    return star && !s.bias_shared ? star + g * s.HS : star;
}
HD bool attn_sees(AttnShape s, int t, int j) { return (j <= t && (!s.window || j > t - s.window)) || j < s.prefix; }
// of a tile of queries t0 <= t < t1 and keys j0 <= j < j1: is none visible, are all
HD bool attn_tile_empty(AttnShape s, int t0, int t1, int j0, int j1) {
    return (j0 >= t1 || (s.window && j1 - 1 <= t0 - s.window)) && j0 >= s.prefix;
}
HD bool attn_tile_full(AttnShape s, int t0, int t1, int j0, int j1) {
    return (j1 - 1 <= t0 && (!s.window || j0 > t1 - 1 - s.window)) || j1 <= s.prefix;
}
// what a masked score is set to, so that its weight is 0. (Where w is signed f' is not 0: backward masks ds itself)
template <class A, class F> HD F attn_masked() { return A::is_signed ? F(0) : F(-INFINITY); }

// one weight joins the sum under Z
template <class A, class F> HD F attn_mass(F w, F p) {
    return A::Z != Z_PNORM ? w : w > 0 ? exp_(p * log_(w)) : F(0);
}
// Z from that sum, for all but the exp family. 1e-8 as in the official code. The floor of the p-norm is for rows whose
// w^p all underflow in float: then w < e^(-87/p), so no A_j exceeds alpha (with 1e-30 they reached 1e19, s = -25, p = 4)
template <class A, class F> HD F attn_Z(F l, F p) {
    return A::Z == Z_ONE  ? F(1)
         : A::Z == Z_SUM  ? l + F(1e-8)
         : A::Z == Z_MAX1 ? max_(l < 0 ? -l : l, F(1))
         :                  max_(l > 0 ? exp_(log_(l) / p) : F(0), max_(exp_(F(-87) / p), F(1e-37)));
}
template <class A, class F> HD F attn_alpha(AttnShape s) { return A::Z == Z_ONE ? F(1) : F(s.alpha); }
// A_j from its score
template <class A, class F> HD F attn_weight(F s, F stat0, F stat1) {
    return A::exp_family ? exp_((s - stat0) - stat1) : A::sim(s) * stat0;
}
// delta = (dZ/dw) (do . o) / alpha, the one number per row that backward adds to (stat0, stat1). For Z_PNORM the factor
// dZ/dw_j = (w_j / Z)^(p-1) depends on j and stays in attn_ds
template <class A, class F> HD F attn_delta(F do_o, F stat1, F alpha) {
    F g = A::Z == Z_ONE ? F(0) : A::Z == Z_MAX1 ? (stat1 > F(1) ? F(1) : stat1 < F(-1) ? F(-1) : F(0)) : F(1);
    return g * do_o / alpha;
}
// from o = sum_j A_j v_j, A_j = alpha f(s_j) / Z:
//     ds_j = f'(s_j) (alpha/Z) (dA_j - delta (w_j/Z)^(p-1)),  p = 1 unless Z_PNORM
// weight = A_j, dweight = do . v_j
template <class A, class F> HD F attn_ds(F s, F weight, F dweight, F stat0, F delta, F p, F alpha) {
    if (A::Z == Z_PNORM) { // f' (w/Z)^(p-1) / Z = (f'/f) (w/Z)^p, finite also where w -> 0 and p < 1
        F share = weight > 0 ? exp_(p * log_(weight / alpha)) : F(0);
        F w = A::exp_family ? F(1) : weight / stat0;
        return (weight * dweight - alpha * delta * share) * A::dlog(w);
    }
    if (A::exp_family) { return weight * (dweight - delta); }
    return A::dsim(s, A::sim(s)) * stat0 * (dweight - delta);
}

// ----------------------------------------------------------------------------
// 8 CUDA. Parameters and layouts as in cpu::attention_forward and _backward (reference.h).
//
// A block of 256 threads works on tiles of 64 queries x 64 keys: thread (y, x), y, x < 16, holds of a tile the rows
// 4y..4y+3 and the columns x, x+16, x+32, x+48. A dot product over the head dimension takes it 32 at a time through
// shared memory; what a block sums up (o, dq, dk, dv) is a slice of at most 128 of its columns, and blockIdx.z says which,
// so that any head dimension works. Each output belongs to one block, which adds to it in a fixed order: no atomics.
#if defined(__CUDACC__) || defined(EMU)
#include "device.cuh"
namespace cuda {

enum { TILE = 64, CHUNK = 32, SLICE = 128, TILE_LD = TILE + 1, CHUNK_LD = CHUNK + 1, STAGE = 2 * TILE * CHUNK_LD };
static_assert(CHUNK * SLICE <= STAGE, "tile_gather's stage");

struct Rows { const real* p; int stride, n; };   // n rows of a matrix in device memory; those from n on count as zero
DEVICE Rows rows_of(const real* x, int stride, int from, int T) { return Rows{x + (long)from * stride, stride, min(T - from, (int)TILE)}; }

// sum[i][j] = a_row . b_col over the head dimension, for the thread's 4 x 4 elements
DEVICE void tile_dot(float (&sum)[4][4], float* stage, Rows a, Rows b, int HS) {
    const int y = threadIdx.x / 16, x = threadIdx.x % 16;
    float *sa = stage, *sb = stage + TILE * CHUNK_LD;
    for (int i = 0; i < 4; i++) { for (int j = 0; j < 4; j++) { sum[i][j] = 0; } }
    for (int k0 = 0; k0 < HS; k0 += CHUNK) {
        __syncthreads();                             // the stage may still be read
        #pragma unroll 2
        for (int i = threadIdx.x; i < TILE * CHUNK; i += 256) {
            const int r = i / CHUNK, k = i % CHUNK;
            sa[r * CHUNK_LD + k] = r < a.n && k0 + k < HS ? (float)a.p[(long)r * a.stride + k0 + k] : 0.0f;
            sb[r * CHUNK_LD + k] = r < b.n && k0 + k < HS ? (float)b.p[(long)r * b.stride + k0 + k] : 0.0f;
        }
        __syncthreads();
        #pragma unroll 8
        for (int k = 0; k < CHUNK; k++) {
            float av[4], bv[4];
            #pragma unroll
            for (int i = 0; i < 4; i++) { av[i] = sa[(4 * y + i) * CHUNK_LD + k]; bv[i] = sb[(x + 16 * i) * CHUNK_LD + k]; }
            #pragma unroll
            for (int i = 0; i < 4; i++) {
                #pragma unroll
                for (int j = 0; j < 4; j++) { sum[i][j] += av[i] * bv[j]; }
            }
        }
    }
}
// out[i][j] += sum_n w[4y + i][n] v[n][z + x + 16 j]: a tile of weights, in shared memory, times a slice of 64 rows of v.
// TRANSPOSED reads w[n][4y + i]
template <bool TRANSPOSED>
DEVICE void tile_gather(float (&out)[4][SLICE / 16], float* stage, const float* w, Rows v, int z, int HS) {
    const int y = threadIdx.x / 16, x = threadIdx.x % 16;
    for (int n0 = 0; n0 < TILE; n0 += CHUNK) {
        __syncthreads();                             // the stage may still be read; and w is all there
        #pragma unroll 2
        for (int i = threadIdx.x; i < CHUNK * SLICE; i += 256) {
            const int n = n0 + i / SLICE, c = z + i % SLICE;
            stage[i] = n < v.n && c < HS ? (float)v.p[(long)n * v.stride + c] : 0.0f;
        }
        __syncthreads();
        #pragma unroll 4
        for (int n = 0; n < CHUNK; n++) {
            float wv[4];
            #pragma unroll
            for (int i = 0; i < 4; i++) { wv[i] = TRANSPOSED ? w[(n0 + n) * TILE_LD + 4 * y + i] : w[(4 * y + i) * TILE_LD + n0 + n]; }
            #pragma unroll
            for (int j = 0; j < SLICE / 16; j++) {
                const float vv = stage[n * SLICE + x + 16 * j];
                #pragma unroll
                for (int i = 0; i < 4; i++) { out[i][j] += wv[i] * vv; }
            }
        }
    }
}
// rows t0.. of out, of which the thread has 4 x 8, times factor
DEVICE void tile_store(real* out, long stride, int t0, int T, int z, int HS, const float (&o)[4][SLICE / 16], const float (&factor)[4]) {
    const int y = threadIdx.x / 16, x = threadIdx.x % 16;
    for (int i = 0; i < 4; i++) {
        #pragma unroll
        for (int j = 0; j < SLICE / 16; j++) {
            const int t = t0 + 4 * y + i, c = z + x + 16 * j;
            if (t < T && c < HS) { out[t * stride + c] = real(o[i][j] * factor[i]); }
        }
    }
}
// sums and maxima over the 16 threads that share four rows
DEVICE float rows_sum(float v) { for (int o = 8; o; o >>= 1) { v += __shfl_xor_sync(~0u, v, o); } return v; }
DEVICE float rows_max(float v) { for (int o = 8; o; o >>= 1) { v = fmaxf(v, __shfl_xor_sync(~0u, v, o)); } return v; }
DEVICE float rows_dot(const real* a, const real* b, int HS) { // NULL counts as zero
    float sum = 0;
    for (int i = threadIdx.x % 16; a && b && i < HS; i += 16) { sum += (float)a[i] * (float)b[i]; }
    return rows_sum(sum);
}
// the score of query t and key j from their dot product
template <class A, class Pe> DEVICE float attn_score(float dot, float scale, bool full, int t, int j, int h, const AttnShape& s) {
    const float score = dot * scale + Pe::template bias<float>(t - j, h, s.NH);
    return full || (j < s.T && attn_sees(s, t, j)) ? score : attn_masked<A, float>();
}
// is a tile of queries t0.. and keys j0.. all masked; is nothing of it masked
DEVICE bool tile_empty(const AttnShape& s, int t0, int j0, int queries = TILE, int keys = TILE) {
    return attn_tile_empty(s, t0, min(t0 + queries, s.T), j0, min(j0 + keys, s.T));
}
DEVICE bool tile_full(const AttnShape& s, int t0, int j0, int queries = TILE, int keys = TILE) {
    return max(t0 + queries, j0 + keys) <= s.T && attn_tile_full(s, t0, t0 + queries, j0, j0 + keys);
}
// where head h of sequence b begins in qkv, for queries, keys and values; and its learned key or value
DEVICE const real* head_q(const real* qkv, const AttnShape& s, int b, int h) { return qkv + (long)b * s.T * attn_row(s) + h * s.HS; }
DEVICE const real* head_k(const real* qkv, const AttnShape& s, int b, int g) { return head_q(qkv, s, b, s.NH + g); }
DEVICE const real* head_v(const real* qkv, const AttnShape& s, int b, int g) { return head_q(qkv, s, b, s.NH + s.KV + g); }
DEVICE const real* head_star(const real* star, const AttnShape& s, int g) { return star && !s.bias_shared ? star + g * s.HS : star; }

template <class A, class Bi, class Pe> __global__ void __launch_bounds__(256, 1)
attention_forward_kernel(real* out, acc* stat, const real* qkv, const real* kstar, const real* vstar, AttnShape s) {
    float *w = dynamic_smem<float>(), *stage = w + TILE * TILE_LD;
    const int y = threadIdx.x / 16, x = threadIdx.x % 16, W = attn_row(s), HS = s.HS, z = blockIdx.z * SLICE;
    const int b = blockIdx.x / s.NH, h = blockIdx.x % s.NH, g = h / (s.NH / s.KV);
    const int t0 = (gridDim.y - 1 - blockIdx.y) * TILE;                          // those with most keys start first
    const real *q = head_q(qkv, s, b, h), *k = head_k(qkv, s, b, g), *v = head_v(qkv, s, b, g);
    const real *ks = head_star(kstar, s, g), *vs = head_star(vstar, s, g);
    const float scale = 1.0f / sqrtf((float)HS), alpha = attn_alpha<A, float>(s);
    float m[4], l[4], o[4][SLICE / 16];
    for (int i = 0; i < 4; i++) { // the extra column is the state that the loop starts from
        const int t = min(t0 + 4 * y + i, s.T - 1);
        const float s_star = Bi::column ? rows_dot(q + (long)t * W, ks, HS) * scale : 0.0f;
        const float w_star = !Bi::column ? 0.0f : A::exp_family ? 1.0f : A::sim(s_star);
        m[i] = Bi::column ? s_star : -INFINITY;
        l[i] = attn_mass<A>(w_star, s.p);
        #pragma unroll
        for (int j = 0; j < SLICE / 16; j++) {
            const int c = z + x + 16 * j;
            o[i][j] = Bi::column && vs && c < HS ? w_star * (float)vs[c] : 0.0f;
        }
    }
    const int end = min(s.T, max(t0 + TILE, s.prefix));
    for (int j0 = 0; j0 < end; j0 += TILE) {
        if (tile_empty(s, t0, j0)) { continue; }
        const bool full = tile_full(s, t0, j0);
        float score[4][4];
        tile_dot(score, stage, rows_of(q, W, t0, s.T), rows_of(k, W, j0, s.T), HS);
        #pragma unroll
        for (int i = 0; i < 4; i++) {
            float top = m[i], shrink = 1, sum = 0;
            for (int j = 0; j < 4; j++) {
                score[i][j] = attn_score<A, Pe>(score[i][j], scale, full, t0 + 4 * y + i, j0 + x + 16 * j, h, s);
                top = fmaxf(top, score[i][j]);
            }
            if (A::exp_family) {
                top = rows_max(top);
                const float base = top == -INFINITY ? 0.0f : top;                // a row that has seen no key yet
                shrink = exp_(m[i] - base);
                m[i] = top;
                top = base;
            }
            for (int j = 0; j < 4; j++) {
                const float w_j = A::exp_family ? exp_(score[i][j] - top) : A::sim(score[i][j]);
                sum += attn_mass<A>(w_j, s.p);
                w[(4 * y + i) * TILE_LD + x + 16 * j] = w_j;
            }
            l[i] = l[i] * (A::exp_family ? attn_mass<A>(shrink, s.p) : 1.0f) + rows_sum(sum);
            #pragma unroll
            for (int j = 0; j < SLICE / 16; j++) { o[i][j] *= shrink; }
        }
        tile_gather<false>(o, stage, w, rows_of(v, W, j0, s.T), z, HS);           // w is written again after tile_dot's barriers
    }
    float factor[4];
    for (int i = 0; i < 4; i++) {
        const float ln_Z = (A::Z == Z_PNORM ? log_(l[i]) / s.p : log_(l[i])) - log_(alpha);
        factor[i] = A::exp_family ? exp_(-ln_Z) : alpha / attn_Z<A>(l[i], s.p);
        const int t = t0 + 4 * y + i;
        if (x || z || t >= s.T) { continue; }
        acc* st = stat + ((long)blockIdx.x * s.T + t) * 2;
        st[0] = A::exp_family ? m[i] : factor[i];
        st[1] = A::exp_family ? ln_Z : l[i];
    }
    tile_store(out + (long)b * s.T * s.NH * HS + h * HS, s.NH * HS, t0, s.T, z, HS, o, factor);
}
enum { FORWARD_SMEM = (TILE * TILE_LD + STAGE) * 4, BACKWARD_SMEM = (2 * TILE * TILE_LD + STAGE) * 4 };

// What backward needs of a row beside stat: delta, and of the extra column its weight and ds. Row t of head h of sequence b
// is number (b NH + h) T + t in all three.
struct RowStats { float *delta, *w_star, *ds_star; };

template <class A, class Bi> __global__ void __launch_bounds__(256)
attention_rows_kernel(RowStats r, const real* dout, const real* out, const acc* stat, const real* qkv, const real* kstar,
                      const real* vstar, AttnShape s) {
    const long row = (long)blockIdx.x * 16 + threadIdx.x / 16, rows = (long)s.B * s.NH * s.T;
    const long at = min(row, rows - 1);                                          // all lanes stay for the shuffles
    const int b = at / s.T / s.NH, h = at / s.T % s.NH, t = at % s.T, g = h / (s.NH / s.KV);
    const long o = ((long)b * s.T + t) * s.NH * s.HS + h * s.HS;
    const float alpha = attn_alpha<A, float>(s), scale = 1.0f / sqrtf((float)s.HS), stat0 = stat[at * 2], stat1 = stat[at * 2 + 1];
    const float delta = attn_delta<A>(rows_dot(dout + o, out + o, s.HS), stat1, alpha);
    float w_star = 0, ds_star = 0;
    if (Bi::column) {
        const float s_star = rows_dot(head_q(qkv, s, b, h) + (long)t * attn_row(s), head_star(kstar, s, g), s.HS) * scale;
        w_star = attn_weight<A>(s_star, stat0, stat1);
        ds_star = attn_ds<A>(s_star, w_star, rows_dot(dout + o, head_star(vstar, s, g), s.HS), stat0, delta, s.p, alpha) * scale;
    }
    if (threadIdx.x % 16 == 0 && row < rows) {
        r.delta[row] = delta;
        if (Bi::column) { r.w_star[row] = w_star; r.ds_star[row] = ds_star; }
    }
}
// the weights of a tile and their ds / sqrt(HS), for the thread's 4 x 4 elements
template <class A, class Pe> DEVICE void tile_ds(float (&weight)[4][4], float (&ds)[4][4], float* stage, Rows q, Rows k, Rows d, Rows v,
                                                 const acc* stat, const float* delta, int t0, int j0, int h, const AttnShape& s) {
    const int y = threadIdx.x / 16, x = threadIdx.x % 16;
    const float scale = 1.0f / sqrtf((float)s.HS), alpha = attn_alpha<A, float>(s);
    const bool full = tile_full(s, t0, j0);
    tile_dot(weight, stage, q, k, s.HS);
    tile_dot(ds, stage, d, v, s.HS);
    #pragma unroll
    for (int i = 0; i < 4; i++) {
        const int t = t0 + 4 * y + i;
        const int row = min(t, s.T - 1);
        const float stat0 = stat[row * 2], stat1 = stat[row * 2 + 1], delta_t = delta[row];
        #pragma unroll
        for (int j = 0; j < 4; j++) {
            const int key = j0 + x + 16 * j;
            const bool sees = t < s.T && (full || (key < s.T && attn_sees(s, t, key)));
            const float score = attn_score<A, Pe>(weight[i][j], scale, full, t, key, h, s);
            weight[i][j] = sees ? attn_weight<A>(score, stat0, stat1) : 0.0f;
            ds[i][j] = sees ? attn_ds<A>(score, weight[i][j], ds[i][j], stat0, delta_t, s.p, alpha) * scale : 0.0f;
        }
    }
}
DEVICE void tile_put(float* w, const float (&value)[4][4]) {
    const int y = threadIdx.x / 16, x = threadIdx.x % 16;
    #pragma unroll
    for (int i = 0; i < 4; i++) {
        #pragma unroll
        for (int j = 0; j < 4; j++) { w[(4 * y + i) * TILE_LD + x + 16 * j] = value[i][j]; }
    }
}
// dq = sum_j ds_j k_j: a block per query tile
template <class A, class Bi, class Pe> __global__ void __launch_bounds__(256, 1)
attention_dq_kernel(real* dqkv, const real* dout, const acc* stat, RowStats r, const real* qkv, const real* kstar, AttnShape s) {
    float *w = dynamic_smem<float>(), *stage = w + TILE * TILE_LD;
    const int y = threadIdx.x / 16, x = threadIdx.x % 16, W = attn_row(s), HS = s.HS, z = blockIdx.z * SLICE;
    const int b = blockIdx.x / s.NH, h = blockIdx.x % s.NH, g = h / (s.NH / s.KV);
    const int t0 = (gridDim.y - 1 - blockIdx.y) * TILE;
    const real *q = head_q(qkv, s, b, h), *k = head_k(qkv, s, b, g), *v = head_v(qkv, s, b, g), *ks = head_star(kstar, s, g);
    const real* d = dout + (long)b * s.T * s.NH * HS + h * HS;
    const long row = (long)blockIdx.x * s.T;
    float dq[4][SLICE / 16];
    for (int i = 0; i < 4; i++) {
        const float ds_star = Bi::column ? r.ds_star[row + min(t0 + 4 * y + i, s.T - 1)] : 0.0f;
        #pragma unroll
        for (int j = 0; j < SLICE / 16; j++) {
            const int c = z + x + 16 * j;
            dq[i][j] = Bi::column && ks && c < HS ? ds_star * (float)ks[c] : 0.0f;
        }
    }
    const int end = min(s.T, max(t0 + TILE, s.prefix));
    for (int j0 = 0; j0 < end; j0 += TILE) {
        if (tile_empty(s, t0, j0)) { continue; }
        float weight[4][4], ds[4][4];
        const Rows keys = rows_of(k, W, j0, s.T);
        tile_ds<A, Pe>(weight, ds, stage, rows_of(q, W, t0, s.T), keys, rows_of(d, s.NH * HS, t0, s.T), rows_of(v, W, j0, s.T),
                       stat + row * 2, r.delta + row, t0, j0, h, s);
        tile_put(w, ds);
        tile_gather<false>(dq, stage, w, keys, z, HS);
    }
    const float one[4] = {1, 1, 1, 1};
    tile_store(dqkv + (long)b * s.T * W + h * HS, W, t0, s.T, z, HS, dq, one);
}
// dk_j = sum_t ds_tj q_t, dv_j = sum_t A_tj do_t: a block per key tile, over all query heads that share these keys
template <class A, class Bi, class Pe> __global__ void __launch_bounds__(256, 1)
attention_dkv_kernel(real* dqkv, const real* dout, const acc* stat, RowStats r, const real* qkv, AttnShape s) {
    float *w = dynamic_smem<float>(), *ws = w + TILE * TILE_LD, *stage = ws + TILE * TILE_LD;
    const int W = attn_row(s), HS = s.HS, z = blockIdx.z * SLICE, j0 = blockIdx.y * TILE, G = s.NH / s.KV;
    const int b = blockIdx.x / s.KV, g = blockIdx.x % s.KV;
    const real *k = head_k(qkv, s, b, g), *v = head_v(qkv, s, b, g);
    float dk[4][SLICE / 16] = {}, dv[4][SLICE / 16] = {};
    for (int h = g * G; h < (g + 1) * G; h++) {
        const real *q = head_q(qkv, s, b, h), *d = dout + (long)b * s.T * s.NH * HS + h * HS;
        const long row = (long)(b * s.NH + h) * s.T;
        for (int t0 = 0; t0 < s.T; t0 += TILE) {
            if (tile_empty(s, t0, j0)) { continue; }
            float weight[4][4], ds[4][4];
            const Rows queries = rows_of(q, W, t0, s.T), douts = rows_of(d, s.NH * HS, t0, s.T);
            tile_ds<A, Pe>(weight, ds, stage, queries, rows_of(k, W, j0, s.T), douts, rows_of(v, W, j0, s.T),
                           stat + row * 2, r.delta + row, t0, j0, h, s);
            tile_put(w, weight);
            tile_put(ws, ds);
            tile_gather<true>(dv, stage, w, douts, z, HS);
            tile_gather<true>(dk, stage, ws, queries, z, HS);
        }
    }
    const float one[4] = {1, 1, 1, 1};
    real* dx = dqkv + (long)b * s.T * W + (s.NH + g) * HS;
    tile_store(dx, W, j0, s.T, z, HS, dk, one);
    tile_store(dx + s.KV * HS, W, j0, s.T, z, HS, dv, one);
}
// part_k, part_v (B NH / KV, tiles of T, KV, HS) = sums over 64 queries of ds* q and of A* do
__global__ void __launch_bounds__(128) attention_dstar_kernel(float* part_k, float* part_v, const real* dout, RowStats r, const real* qkv, AttnShape s) {
    const int b = blockIdx.x / s.NH, h = blockIdx.x % s.NH, G = s.NH / s.KV, g = h / G;
    const int t0 = blockIdx.y * TILE, t1 = min(s.T, t0 + TILE);
    const long at = (((long)(b * G + h % G) * gridDim.y + blockIdx.y) * s.KV + g) * s.HS;
    for (int c = threadIdx.x; c < s.HS; c += 128) {
        float dk = 0, dv = 0;
        for (int t = t0; t < t1; t++) {
            const long row = (long)blockIdx.x * s.T + t;
            dk += r.ds_star[row] * (float)head_q(qkv, s, b, h)[(long)t * attn_row(s) + c];
            dv += r.w_star[row] * (float)dout[((long)b * s.T + t) * s.NH * s.HS + h * s.HS + c];
        }
        part_k[at + c] = dk;
        part_v[at + c] = dv;
    }
}
// ---- the same on tensor cores: bf16, and the head dimensions of MMA_HEADS. A block of 4 warps; each warp owns rows of its
// tile and everything about them, so weights go from the registers of one product into those of the next (a C fragment is
// half an A fragment) and never through memory. Tiles of the other operand arrive by cp.async, one ahead.
#ifndef MMA_HEADS
#define MMA_HEADS(X) X(64) X(96) X(128)
#endif
// where 8 columns of a row of a tile (rows, HS) stand: swizzled, so that 8 rows of ldmatrix meet 8 different groups of banks
template <int HS> DEVICE bf16* tile_at(bf16* tile, int row, int chunk) {
    return tile + row * HS + 8 * (HS % 64 == 0 ? chunk ^ (row & 7) : (chunk & ~3) | ((chunk ^ (row >> 1)) & 3));
}
// rows from.. of x, those from T on as zeros; arrives with the next cp_async_commit
template <int HS, int ROWS> DEVICE void tile_load(bf16* tile, const bf16* x, long stride, int from, int T) {
    #pragma unroll 1
    for (int i = threadIdx.x; i < ROWS * HS / 8; i += 128) {
        const int row = i / (HS / 8), chunk = i % (HS / 8), t = from + row;
        cp_async(tile_at<HS>(tile, row, chunk), x + min(t, T - 1) * stride + chunk * 8, t < T);
    }
}
// c (16 MT, N) = rows a0.. of a times rows of b, over the head dimension
template <int HS, int MT, int N> DEVICE void product_rows(float (&c)[MT][N / 8][4], bf16* a, int a0, bf16* b) {
    const int lane = threadIdx.x % 32;
    #pragma unroll
    for (int m = 0; m < MT; m++) {
        #pragma unroll
        for (int n = 0; n < N / 8; n++) { c[m][n][0] = c[m][n][1] = c[m][n][2] = c[m][n][3] = 0; }
    }
    #pragma unroll
    for (int k = 0; k < HS / 16; k++) {
        uint32_t fa[MT][4], fb[4];
        #pragma unroll
        for (int m = 0; m < MT; m++) { ldmatrix(fa[m], tile_at<HS>(a, a0 + 16 * m + lane % 16, 2 * k + lane / 16)); }
        #pragma unroll
        for (int n = 0; n < N / 16; n++) {
            ldmatrix(fb, tile_at<HS>(b, 16 * n + lane / 16 * 8 + lane % 8, 2 * k + lane / 8 % 2));
            #pragma unroll
            for (int m = 0; m < MT; m++) { mma(c[m][2 * n], fa[m], fb[0], fb[1]); mma(c[m][2 * n + 1], fa[m], fb[2], fb[3]); }
        }
    }
}
// c (16 MT, HS) += w (16 MT, N), in registers, times the N rows of x
template <int HS, int MT, int N> DEVICE void product_weights(float (&c)[MT][HS / 8][4], const float (&w)[MT][N / 8][4], bf16* x) {
    const int lane = threadIdx.x % 32;
    #pragma unroll
    for (int k = 0; k < N / 16; k++) {
        uint32_t fa[MT][4], fb[4];
        #pragma unroll
        for (int m = 0; m < MT; m++) {
            const float (&lo)[4] = w[m][2 * k], (&hi)[4] = w[m][2 * k + 1];
            fa[m][0] = pack(lo[0], lo[1]); fa[m][1] = pack(lo[2], lo[3]);
            fa[m][2] = pack(hi[0], hi[1]); fa[m][3] = pack(hi[2], hi[3]);
        }
        #pragma unroll
        for (int n = 0; n < HS / 16; n++) {
            ldmatrix_trans(fb, tile_at<HS>(x, 16 * k + lane % 16, 2 * n + lane / 16));
            #pragma unroll
            for (int m = 0; m < MT; m++) { mma(c[m][2 * n], fa[m], fb[0], fb[1]); mma(c[m][2 * n + 1], fa[m], fb[2], fb[3]); }
        }
    }
}
// 16 rows of the warp, times one factor for each of the thread's two, to rows t0.. of out. They pass through the rows of a
// tile that only this warp reads, to leave 16 bytes at a time
template <int HS> DEVICE void rows_store(bf16* out, long stride, int t0, int T, bf16* tile, int row0, const float (&c)[HS / 8][4],
                                         float f0, float f1) {
    const int lane = threadIdx.x % 32, g = lane / 4, t2 = lane % 4 * 2;
    __syncwarp();
    #pragma unroll
    for (int n = 0; n < HS / 8; n++) {
        *(uint32_t*)(tile_at<HS>(tile, row0 + g, n) + t2) = pack(c[n][0] * f0, c[n][1] * f0);
        *(uint32_t*)(tile_at<HS>(tile, row0 + g + 8, n) + t2) = pack(c[n][2] * f1, c[n][3] * f1);
    }
    __syncwarp();
    for (int i = lane; i < 16 * HS / 8; i += 32) {
        const int row = i / (HS / 8), chunk = i % (HS / 8), t = t0 + row0 + row;
        if (t < T) { store<8>(out + t * stride + chunk * 8, load<8>(tile_at<HS>(tile, row0 + row, chunk))); }
    }
}
// sums and maxima over the 4 lanes that share a row
DEVICE float quad_sum(float v) { v += __shfl_xor_sync(~0u, v, 1); return v + __shfl_xor_sync(~0u, v, 2); }
DEVICE float quad_max(float v) { v = fmaxf(v, __shfl_xor_sync(~0u, v, 1)); return fmaxf(v, __shfl_xor_sync(~0u, v, 2)); }
// the first tile from `at` on that is not all masked, or `end`
DEVICE int next_keys(const AttnShape& s, int t0, int queries, int at, int end, int keys) {
    while (at < end && tile_empty(s, t0, at, queries, keys)) { at += keys; }
    return at;
}
DEVICE int next_queries(const AttnShape& s, int j0, int keys, int at, int queries) {
    while (at < s.T && tile_empty(s, at, j0, queries, keys)) { at += queries; }
    return at;
}

// 128 queries a block, 32 a warp; tiles of as many keys as fit the registers without spills
template <int HS> struct ForwardTile { enum { MT = 2, BQ = 64 * MT, BK = HS > 96 ? 32 : HS > 64 ? 48 : 64, SMEM = (BQ + 4 * BK) * HS * 2 }; };
template <class A, class Bi, class Pe, int HS> __global__ void __launch_bounds__(128)
attention_forward_mma_kernel(bf16* out, acc* stat, const bf16* qkv, const bf16* kstar, const bf16* vstar, AttnShape s) {
    constexpr int MT = ForwardTile<HS>::MT, BQ = ForwardTile<HS>::BQ, BK = ForwardTile<HS>::BK;
    bf16 *sq = dynamic_smem<bf16>(), *sk = sq + BQ * HS, *sv = sk + 2 * BK * HS;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, t2 = lane % 4 * 2, W = attn_row(s);
    const int b = blockIdx.x / s.NH, h = blockIdx.x % s.NH, g = h / (s.NH / s.KV), t0 = (gridDim.y - 1 - blockIdx.y) * BQ;
    const int row0 = warp * 16 * MT, own = t0 + row0 + lane / 4;                 // the thread's rows: own + 8 r
    const bf16* q = qkv + (long)b * s.T * W + h * HS;
    const bf16 *k = q + (s.NH + g - h) * HS, *v = k + s.KV * HS;
    const bf16 *ks = kstar && !s.bias_shared ? kstar + g * HS : kstar, *vs = vstar && !s.bias_shared ? vstar + g * HS : vstar;
    const float scale = 1.0f / sqrtf((float)HS), alpha = attn_alpha<A, float>(s);
    const int end = min(s.T, max(t0 + BQ, s.prefix));
    tile_load<HS, BQ>(sq, q, W, t0, s.T);
    int j0 = next_keys(s, t0, BQ, 0, end, BK);
    tile_load<HS, BK>(sk, k, W, j0, s.T);
    tile_load<HS, BK>(sv, v, W, j0, s.T);
    cp_async_commit();

    float m[2 * MT], l[2 * MT], o[MT][HS / 8][4];
    #pragma unroll
    for (int r = 0; r < 2 * MT; r++) { // the extra column is the state that the loop starts from
        float s_star = 0;
        if (Bi::column && ks) {
            const bf16* q_t = q + (long)min(own + 8 * r, s.T - 1) * W;
            for (int i = lane % 4; i < HS; i += 4) { s_star += (float)q_t[i] * (float)ks[i]; }
            s_star = quad_sum(s_star) * scale;
        }
        const float w_star = !Bi::column ? 0.0f : A::exp_family ? 1.0f : A::sim(s_star);
        m[r] = Bi::column ? s_star : -INFINITY;
        l[r] = attn_mass<A>(w_star, s.p);
        #pragma unroll
        for (int n = 0; n < HS / 8; n++) {
            for (int e = 0; e < 2; e++) { o[r / 2][n][r % 2 * 2 + e] = Bi::column && vs ? w_star * (float)vs[8 * n + t2 + e] : 0.0f; }
        }
    }
    for (int buf = 0; j0 < end; buf ^= 1) {
        const int next = next_keys(s, t0, BQ, j0 + BK, end, BK);
        if (next < end) {
            tile_load<HS, BK>(sk + (buf ^ 1) * BK * HS, k, W, next, s.T);
            tile_load<HS, BK>(sv + (buf ^ 1) * BK * HS, v, W, next, s.T);
        }
        cp_async_commit();
        cp_async_wait<1>();                                                      // all but the tile just asked for
        __syncthreads();
        const bool full = tile_full(s, t0, j0, BQ, BK);
        float w[MT][BK / 8][4];
        product_rows<HS, MT, BK>(w, sq, row0, sk + buf * BK * HS);
        #pragma unroll
        for (int r = 0; r < 2 * MT; r++) {
            float top = m[r], shrink = 1, sum = 0;
            #pragma unroll
            for (int n = 0; n < BK / 8; n++) {
                #pragma unroll
                for (int e = 0; e < 2; e++) {
                    float& x = w[r / 2][n][r % 2 * 2 + e];
                    x = attn_score<A, Pe>(x, scale, full, own + 8 * r, j0 + 8 * n + t2 + e, h, s);
                    top = fmaxf(top, x);
                }
            }
            if (A::exp_family) {
                top = quad_max(top);
                const float base = top == -INFINITY ? 0.0f : top;                // a row that has seen no key yet
                shrink = exp_(m[r] - base);
                m[r] = top;
                top = base;
            }
            #pragma unroll
            for (int n = 0; n < BK / 8; n++) {
                #pragma unroll
                for (int e = 0; e < 2; e++) {
                    float& x = w[r / 2][n][r % 2 * 2 + e];
                    x = A::exp_family ? exp_(x - top) : A::sim(x);
                    sum += attn_mass<A>(x, s.p);
                }
            }
            l[r] = l[r] * (A::exp_family ? attn_mass<A>(shrink, s.p) : 1.0f) + quad_sum(sum);
            #pragma unroll
            for (int n = 0; A::exp_family && n < HS / 8; n++) { o[r / 2][n][r % 2 * 2] *= shrink; o[r / 2][n][r % 2 * 2 + 1] *= shrink; }
        }
        product_weights<HS, MT, BK>(o, w, sv + buf * BK * HS);
        __syncthreads();                                                         // before this buffer is filled again
        j0 = next;
    }
    float factor[2 * MT];
    #pragma unroll
    for (int r = 0; r < 2 * MT; r++) {
        const float ln_Z = (A::Z == Z_PNORM ? log_(l[r]) / s.p : log_(l[r])) - log_(alpha);
        factor[r] = A::exp_family ? exp_(-ln_Z) : alpha / attn_Z<A>(l[r], s.p);
        if (t2 == 0 && own + 8 * r < s.T) {
            acc* st = stat + ((long)blockIdx.x * s.T + own + 8 * r) * 2;
            st[0] = A::exp_family ? m[r] : factor[r];
            st[1] = A::exp_family ? ln_Z : l[r];
        }
    }
    #pragma unroll
    for (int i = 0; i < MT; i++) {
        rows_store<HS>(out + (long)b * s.T * s.NH * HS + h * HS, s.NH * HS, t0, s.T, sq, row0 + 16 * i, o[i], factor[2 * i], factor[2 * i + 1]);
    }
}
// from scores' dot products x and dA y to weights and ds / sqrt(HS), in place
template <class A, class Pe> DEVICE void weight_ds(float& x, float& y, float scale, float alpha, bool full, int t, int j, int h,
                                                   float stat0, float stat1, float delta, const AttnShape& s) {
    const bool sees = full || (t < s.T && j < s.T && attn_sees(s, t, j));
    const float score = attn_score<A, Pe>(x, scale, full, t, j, h, s);
    x = sees ? attn_weight<A>(score, stat0, stat1) : 0.0f;
    y = sees ? attn_ds<A>(score, x, y, stat0, delta, s.p, alpha) * scale : 0.0f;
}
// 64 queries a block, 16 a warp; tiles of 64 keys
template <class A, class Bi, class Pe, int HS> __global__ void __launch_bounds__(128)
attention_dq_mma_kernel(bf16* dqkv, const bf16* dout, const acc* stat, RowStats r, const bf16* qkv, const bf16* kstar, AttnShape s) {
    constexpr int BQ = 64, BK = 64;
    bf16 *sq = dynamic_smem<bf16>(), *sd = sq + BQ * HS, *sk = sd + BQ * HS, *sv = sk + 2 * BK * HS;
    const int row0 = threadIdx.x / 32 * 16, lane = threadIdx.x % 32, t2 = lane % 4 * 2, W = attn_row(s);
    const int b = blockIdx.x / s.NH, h = blockIdx.x % s.NH, g = h / (s.NH / s.KV), t0 = (gridDim.y - 1 - blockIdx.y) * BQ;
    const int own = t0 + row0 + lane / 4;                                        // the thread's rows: own, own + 8
    const bf16 *q = qkv + (long)b * s.T * W + h * HS, *d = dout + (long)b * s.T * s.NH * HS + h * HS;
    const bf16 *k = q + (s.NH + g - h) * HS, *v = k + s.KV * HS, *ks = kstar && !s.bias_shared ? kstar + g * HS : kstar;
    const float scale = 1.0f / sqrtf((float)HS), alpha = attn_alpha<A, float>(s);
    const int end = min(s.T, max(t0 + BQ, s.prefix));
    tile_load<HS, BQ>(sq, q, W, t0, s.T);
    tile_load<HS, BQ>(sd, d, s.NH * HS, t0, s.T);
    int j0 = next_keys(s, t0, BQ, 0, end, BK);
    tile_load<HS, BK>(sk, k, W, j0, s.T);
    tile_load<HS, BK>(sv, v, W, j0, s.T);
    cp_async_commit();

    float dq[1][HS / 8][4], stat0[2], stat1[2], delta[2];
    #pragma unroll
    for (int i = 0; i < 2; i++) {
        const long row = (long)blockIdx.x * s.T + min(own + 8 * i, s.T - 1);
        stat0[i] = stat[row * 2];
        stat1[i] = stat[row * 2 + 1];
        delta[i] = r.delta[row];
        const float ds_star = Bi::column && ks ? r.ds_star[row] : 0.0f;
        #pragma unroll
        for (int n = 0; n < HS / 8; n++) {
            for (int e = 0; e < 2; e++) { dq[0][n][2 * i + e] = Bi::column && ks ? ds_star * (float)ks[8 * n + t2 + e] : 0.0f; }
        }
    }
    for (int buf = 0; j0 < end; buf ^= 1) {
        const int next = next_keys(s, t0, BQ, j0 + BK, end, BK);
        if (next < end) {
            tile_load<HS, BK>(sk + (buf ^ 1) * BK * HS, k, W, next, s.T);
            tile_load<HS, BK>(sv + (buf ^ 1) * BK * HS, v, W, next, s.T);
        }
        cp_async_commit();
        cp_async_wait<1>();
        __syncthreads();
        const bool full = tile_full(s, t0, j0, BQ, BK);
        float w[1][BK / 8][4], ds[1][BK / 8][4];
        product_rows<HS, 1, BK>(w, sq, row0, sk + buf * BK * HS);
        product_rows<HS, 1, BK>(ds, sd, row0, sv + buf * BK * HS);
        #pragma unroll
        for (int n = 0; n < BK / 8; n++) {
            #pragma unroll
            for (int e = 0; e < 4; e++) {
                weight_ds<A, Pe>(w[0][n][e], ds[0][n][e], scale, alpha, full, own + e / 2 * 8, j0 + 8 * n + t2 + e % 2, h,
                                 stat0[e / 2], stat1[e / 2], delta[e / 2], s);
            }
        }
        product_weights<HS, 1, BK>(dq, ds, sk + buf * BK * HS);
        __syncthreads();
        j0 = next;
    }
    rows_store<HS>(dqkv + (long)b * s.T * W + h * HS, W, t0, s.T, sq, row0, dq[0], 1.0f, 1.0f);
}
// 64 keys a block, 16 a warp: the transposed tiles S^T = k q^T and dA^T = v do^T, over all query heads that share these keys
template <int HS> struct DkvTile { enum { BQ = HS > 96 ? 32 : 64, SMEM = (2 * 64 + 4 * BQ) * HS * 2 + 2 * BQ * 3 * 4 }; };
template <class A, class Bi, class Pe, int HS> __global__ void __launch_bounds__(128)
attention_dkv_mma_kernel(bf16* dqkv, const bf16* dout, const acc* stat, RowStats r, const bf16* qkv, AttnShape s) {
    constexpr int BQ = DkvTile<HS>::BQ, BK = 64;
    bf16 *sk = dynamic_smem<bf16>(), *sv = sk + BK * HS, *sq = sv + BK * HS, *sd = sq + 2 * BQ * HS;
    float* rows = (float*)(sd + 2 * BQ * HS);                                    // (2, BQ, 3): stat and delta of every query
    const int row0 = threadIdx.x / 32 * 16, lane = threadIdx.x % 32, t2 = lane % 4 * 2, W = attn_row(s), G = s.NH / s.KV;
    const int b = blockIdx.x / s.KV, g = blockIdx.x % s.KV, j0 = blockIdx.y * BK, own = j0 + row0 + lane / 4;
    const bf16 *x = qkv + (long)b * s.T * W, *k = x + (s.NH + g) * HS, *v = k + s.KV * HS;
    const float scale = 1.0f / sqrtf((float)HS), alpha = attn_alpha<A, float>(s);
    auto load = [&](int buf, int h, int t0) {
        tile_load<HS, BQ>(sq + buf * BQ * HS, x + h * HS, W, t0, s.T);
        tile_load<HS, BQ>(sd + buf * BQ * HS, dout + ((long)b * s.T * s.NH + h) * HS, s.NH * HS, t0, s.T);
        for (int i = threadIdx.x; i < BQ; i += 128) {
            const long row = (long)(b * s.NH + h) * s.T + min(t0 + i, s.T - 1);
            rows[(buf * BQ + i) * 3] = stat[row * 2];
            rows[(buf * BQ + i) * 3 + 1] = stat[row * 2 + 1];
            rows[(buf * BQ + i) * 3 + 2] = r.delta[row];
        }
    };
    tile_load<HS, BK>(sk, k, W, j0, s.T);
    tile_load<HS, BK>(sv, v, W, j0, s.T);
    const int first = next_queries(s, j0, BK, 0, BQ);
    int h = g * G, t0 = first;
    if (t0 < s.T) { load(0, h, t0); }
    cp_async_commit();
    float dk[1][HS / 8][4] = {}, dv[1][HS / 8][4] = {};
    for (int buf = 0; h < (g + 1) * G && first < s.T; buf ^= 1) {
        int next = next_queries(s, j0, BK, t0 + BQ, BQ), next_h = h;
        if (next >= s.T) { next = first; next_h++; }
        if (next_h < (g + 1) * G) { load(buf ^ 1, next_h, next); }
        cp_async_commit();
        cp_async_wait<1>();
        __syncthreads();
        const bool full = tile_full(s, t0, j0, BQ, BK);
        float w[1][BQ / 8][4], ds[1][BQ / 8][4];
        product_rows<HS, 1, BQ>(w, sk, row0, sq + buf * BQ * HS);
        product_rows<HS, 1, BQ>(ds, sv, row0, sd + buf * BQ * HS);
        #pragma unroll
        for (int n = 0; n < BQ / 8; n++) {
            const float* st = rows + (buf * BQ + 8 * n + t2) * 3;
            #pragma unroll
            for (int e = 0; e < 4; e++) {
                weight_ds<A, Pe>(w[0][n][e], ds[0][n][e], scale, alpha, full, t0 + 8 * n + t2 + e % 2, own + e / 2 * 8, h,
                                 st[e % 2 * 3], st[e % 2 * 3 + 1], st[e % 2 * 3 + 2], s);
            }
        }
        product_weights<HS, 1, BQ>(dv, w, sd + buf * BQ * HS);
        product_weights<HS, 1, BQ>(dk, ds, sq + buf * BQ * HS);
        __syncthreads();
        t0 = next;
        h = next_h;
    }
    cp_async_wait<0>();                                                          // a key that no query sees: nothing was waited for
    __syncthreads();
    bf16* dx = dqkv + (long)b * s.T * W + (s.NH + g) * HS;
    rows_store<HS>(dx, W, j0, s.T, sk, row0, dk[0], 1.0f, 1.0f);
    rows_store<HS>(dx + s.KV * HS, W, j0, s.T, sv, row0, dv[0], 1.0f, 1.0f);
}

// ---- the two operations: which kernels, how many blocks
inline bool mma_fits(int HS, const AttnShape& s, std::initializer_list<const void*> pointers) {
    for (const void* p : pointers) { if ((uintptr_t)p % 16) { return false; } }
    return s.HS == HS;
}
template <class A, class Bi, class Pe>
void attention_forward(real* out, acc* stat, const real* qkv, const real* kstar, const real* vstar, AttnShape s) {
    if constexpr (sizeof(real) == 2) {
        #define X(HS) if (mma_fits(HS, s, {out, qkv})) { \
            LAUNCH((attention_forward_mma_kernel<A, Bi, Pe, HS>), dim3(s.B * s.NH, CEIL_DIV(s.T, ForwardTile<HS>::BQ)), dim3(128), ForwardTile<HS>::SMEM, \
                   out, stat, qkv, kstar, vstar, s); \
            return; }
        MMA_HEADS(X)
        #undef X
    }
    LAUNCH((attention_forward_kernel<A, Bi, Pe>), dim3(s.B * s.NH, CEIL_DIV(s.T, TILE), CEIL_DIV(s.HS, SLICE)), dim3(256), FORWARD_SMEM,
           out, stat, qkv, kstar, vstar, s);
}
template <class A, class Bi, class Pe>
void attention_dqkv(real* dqkv, const real* dout, const acc* stat, RowStats r, const real* qkv, const real* kstar, AttnShape s) {
    if constexpr (sizeof(real) == 2) {
        #define X(HS) if (mma_fits(HS, s, {dqkv, dout, qkv})) { \
            LAUNCH((attention_dq_mma_kernel<A, Bi, Pe, HS>), dim3(s.B * s.NH, CEIL_DIV(s.T, 64)), dim3(128), 6 * 64 * HS * 2, \
                   dqkv, dout, stat, r, qkv, kstar, s); \
            LAUNCH((attention_dkv_mma_kernel<A, Bi, Pe, HS>), dim3(s.B * s.KV, CEIL_DIV(s.T, 64)), dim3(128), DkvTile<HS>::SMEM, \
                   dqkv, dout, stat, r, qkv, s); \
            return; }
        MMA_HEADS(X)
        #undef X
    }
    const int tiles = CEIL_DIV(s.T, TILE), slices = CEIL_DIV(s.HS, SLICE);
    LAUNCH((attention_dq_kernel<A, Bi, Pe>), dim3(s.B * s.NH, tiles, slices), dim3(256), FORWARD_SMEM, dqkv, dout, stat, r, qkv, kstar, s);
    LAUNCH((attention_dkv_kernel<A, Bi, Pe>), dim3(s.B * s.KV, tiles, slices), dim3(256), BACKWARD_SMEM, dqkv, dout, stat, r, qkv, s);
}
inline void column_sum(acc* out, const float* part, long K, int C, int width, int limit);

template <class A, class Bi, class Pe>
void attention_backward(real* dqkv, acc* dkstar, acc* dvstar, const real* dout, const real* out, const acc* stat,
                        const real* qkv, const real* kstar, const real* vstar, AttnShape s) {
    const long rows = (long)s.B * s.NH * s.T, tiles = CEIL_DIV(s.T, TILE);
    const long parts = s.B * (s.NH / s.KV) * tiles, width = s.KV * s.HS;
    float* scratch = (float*)device_scratch((rows * (Bi::column ? 3 : 1) + (Bi::column ? parts * width * 2 : 0)) * sizeof(float));
    const RowStats r = { scratch, scratch + rows, scratch + 2 * rows };
    LAUNCH((attention_rows_kernel<A, Bi>), dim3((unsigned)CEIL_DIV(rows, 16)), dim3(256), 0, r, dout, out, stat, qkv, kstar, vstar, s);
    attention_dqkv<A, Bi, Pe>(dqkv, dout, stat, r, qkv, kstar, s);
    if (Bi::column) {
        float *part_k = scratch + 3 * rows, *part_v = part_k + parts * width;
        LAUNCH(attention_dstar_kernel, dim3(s.B * s.NH, tiles), dim3(128), 0, part_k, part_v, dout, r, qkv, s);
        const long K = s.bias_shared ? parts * s.KV : parts;                      // shared: (parts KV, HS), the same floats
        const int C = s.bias_shared ? s.HS : width;
        if (dkstar) { column_sum(dkstar, part_k, K, C, s.HS, s.k_dims); }
        if (dvstar) { column_sum(dvstar, part_v, K, C, s.HS, s.HS); }
    }
}
} // namespace cuda
#endif
#endif // ATTENTION_VARIANTS_CUH
