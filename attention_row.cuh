/*
attention_row.cuh -- what all attention operations share: the mathematics of one row, on host and
device. A is a struct of attention_variants.cuh, Bi and Pe are of block_variants.h; no operation is
named here, so that a new one recompiles only what computes it.
*/
#ifndef ATTENTION_ROW_CUH
#define ATTENTION_ROW_CUH
#include "base/device.h" // REAL
#include "block_variants.h"

// Z = 1 | sum w (+ eps) | sum |w| + eps; w < 0 counts only in Z | max(|sum w|, 1) |
// (sum w^p)^(1/p)
enum ZKind { Z_ONE, Z_SUM, Z_ABS, Z_MAX1, Z_PNORM };
enum Phi   { PHI_NONE, PHI_ELU1, PHI_MLP };    // the kernel on q and k, after PE
// A_j is P_j = alpha w_j / Z, or max((1 + c) P_j - c, 0), or (dA_j / dP_j) P_j of that
enum Clip  { NO_CLIP, CLIP_WEIGHTS, CLIP_SLOPES };
// With this value of its parameter, a row of ARCH, an operation is another one.
struct Twin { const char* parameter; float value; const char *does, *name; };

// The star of a formula, as in k*, v*, s* and w*, is the extra key of BIAS.

// Tells whether the extra key is idle: an output depends on it by the sum in Z and by v*, and
// with neither it is left out of what is measured. So is a key k* = 0, whose score is 0, if f(0)
// is 0.
// bias: a BiasRow or a Bias_k; has_v: v* is not 0
template <class B>
constexpr bool extra_has_no_effect(ZKind Z, const B& bias, bool has_v, bool zero_at_0) {
    if (bias.extra == NO_EXTRA) { return false; }
    const bool weighs_nothing = bias.extra == KEY_EXTRA && !bias.learn_k && zero_at_0;
    return weighs_nothing || (Z == Z_ONE && !has_v);
}

// What each row keeps of the forward pass for backward and the metrics, two numbers of `stat`:
//      exp family:  A_j = exp((s_j - max) - ln_Z);  max = max_j s_j,
//                                                   ln_Z = ln(Z exp(-max) / alpha)
//      clipped:     A_j = max(0, (1 + c) that - c)
//      softpick:    A_j = max(0, that - exp(-max - ln_Z)),   max = max(0, max_j s_j)
//      the others:  A_j = f(s_j) factor;   factor = alpha / Z,  sum = sum_j w_j (or w_j^p)
// (One number, ln Z, would do for the exp family, but at scores near 30 it costs five bits of A:
// gradients 1e-5 off.)
template <class F> struct AttnStat {
    F max_or_factor;
    F ln_Z_or_sum;
};

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
    float p;               // --attn-p, of the p-norms
    float alpha;           // --attn-alpha
    double scale = 1;      // of q . k: 1 / sqrt(HS), unless the model says otherwise
    float cap = 0;         // ATTN=softcap: scores stay within +-cap
    float shift = 0;       // added to the score of every token's key; no effect where f = exp
    int slope_heads = 0;   // PE=alibi: heads with even slopes, the others lie between; 0: NH
    int rot = 0;           // channels at the front of every head that rope rotates: HS, or fewer
    int without_extra = 0; // 1: no extra key, in a layer that --bias-layers leaves out
    float clip = 0;        // c of ATTN=softmax_clip, --attn-clip
};

// Returns the width of a row of qkv: q heads, k heads, v heads.
HD int attn_row(AttnShape s) { return (s.NH + 2 * s.KV) * s.HS; }

// Returns how many of its numbers are queries and keys.
HD int qk_width(AttnShape s) { return (s.NH + s.KV) * s.HS; }

// Returns the learned key or value of key/value head g, or its gradient; NULL where there is none.
template <class P> HD P* attn_extra(P* extra, AttnShape s, int g) {
    if (!extra || s.bias_shared) { return extra; }
    return extra + g * s.HS;
}

// Returns the parameter behind the extra key's score for query head h: its z, or the k* of its
// key/value head; or that parameter's gradient.
template <class Bi, class P> HD P* attn_extra_k(P* extra, AttnShape s, int h) {
    if (Bi::extra != LOGIT_EXTRA) { return attn_extra(extra, s, h / (s.NH / s.KV)); }
    if (!extra || s.bias_shared) { return extra; }
    return extra + h;
}

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
    return Pe::slope(h, s.slope_heads ? s.slope_heads : s.NH);
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

// Returns what the weights of query t are multiplied by, besides 1 / Z: alpha, or 1 over the number
// of tokens that it sees.
template <class A, class F> HD F attn_alpha_of(AttnShape s, int t) {
    if (!A::by_count) { return attn_alpha<A, F>(s); }
    const int first = s.window ? max_(t - s.window + 1, 0) : 0;
    const int before = min_(s.prefix, first);
    const int ahead = max_(s.prefix - t - 1, 0);
    return F(1) / F(before + t + 1 - first + ahead);
}

// Returns ln(Z / alpha) of the exp family, relative to m, from the sum l in Z.
template <class A, class F> HD F attn_ln_Z(F m, F l, F p, F alpha) {
    if (A::Z == Z_ABS) { return log_(l + F(1e-6) * exp_(-m)) - log_(alpha); }
    if (A::Z == Z_PNORM) { return log_(l) / p - log_(alpha); }
    return log_(l) - log_(alpha);
}

// Returns what a row keeps, from m, the largest score, and l, the sum in Z: relative to m for the
// exp family.
template <class A, class F> HD AttnStat<F> attn_stat(F m, F l, F p, F alpha) {
    if (A::exp_family) { return { m, attn_ln_Z<A>(m, l, p, alpha) }; }
    return { alpha / attn_Z<A>(l, p), l };
}

// Returns alpha / Z, with which the loop's sum of w_j v_j is the output.
template <class A, class F> HD F attn_factor(AttnStat<F> st) {
    if (A::exp_family) { return exp_(-st.ln_Z_or_sum); }
    return st.max_or_factor;
}

// Returns alpha e^s / Z of the exp family.
template <class F> HD F attn_exp(F s, AttnStat<F> st) {
    return exp_((s - st.max_or_factor) - st.ln_Z_or_sum);
}

// Returns A_j of ATTN=softmax_clip from softmax's w. ClipSlopes: dA_j / dw times w.
template <class A> struct ClipSlopes : A { static constexpr Clip clip = CLIP_SLOPES; };
template <class A, class F> HD F attn_clipped(F w, F clip) {
    const F raised = (F(1) + clip) * w;
    const F kept = A::clip == CLIP_SLOPES ? raised : raised - clip;
    return raised <= clip ? F(0) : kept;
}

// Returns A_j from its score.
template <class A, class F> HD F attn_weight(F s, AttnStat<F> st, float clip) {
    if (!A::exp_family) { return A::sim(s) * st.max_or_factor; }
    const F w = attn_exp(s, st);
    if (A::Z == Z_ABS) { return max_(w - exp_(-st.max_or_factor - st.ln_Z_or_sum), F(0)); }
    if (A::clip == NO_CLIP) { return w; }
    return attn_clipped<A>(w, F(clip));
}

// Returns delta = (dZ/dw) (do . o) / alpha, the one number per row that backward needs besides
// stat; of a clipped row o is that of ClipSlopes. For Z_PNORM the factor dZ/dw_j = (w_j / Z)^(p-1)
// depends on j and stays in attn_ds.
template <class A, class F> HD F attn_delta(F do_o, AttnStat<F> st, F alpha) {
    const F sum = st.ln_Z_or_sum;
    F slope = F(1);
    if (A::Z == Z_ONE) { slope = F(0); }
    if (A::Z == Z_MAX1 && sum <= F(1)) { slope = sum < F(-1) ? F(-1) : F(0); }
    return slope * do_o / alpha;
}

// Returns the gradient of a score. In the forward pass this was:
//     o = sum_j A_j v_j,  A_j = alpha f(s_j) / Z,   so
//     ds_j = f'(s_j) (alpha/Z) (dA_j - delta (w_j/Z)^(p-1)),  p = 1 unless Z_PNORM
// weight = A_j, dweight = dA_j = do . v_j
template <class A, class F>
HD F attn_ds(F s, F weight, F dweight, AttnStat<F> st, F delta, const AttnShape& shape) {
    const F p = F(shape.p);
    const F alpha = attn_alpha<A, F>(shape);
    // f' (w/Z)^(p-1) / Z = (f'/f) (w/Z)^p, finite also where w -> 0 and p < 1
    if constexpr (A::Z == Z_PNORM) {
        const F share = exp_(p * log_(weight / alpha));    // weight 0: exp(-inf)
        const F w = A::exp_family ? F(1) : weight / st.max_or_factor;
        return (weight * dweight - alpha * delta * share) * A::dlog(w);
    }
    // f = e^s - 1 weighs v where s > 0, and adds |f| to Z:
    //     f' (alpha/Z) ([s > 0] dA_j - sign(s) delta)
    if (A::Z == Z_ABS) {
        const F below = s < 0 ? delta : F(0);
        const F d = s > 0 ? dweight - delta : below;
        return attn_exp(s, st) * d;
    }
    if (A::clip != NO_CLIP) {
        const F slope = weight > 0 ? F(1) + F(shape.clip) : F(0);
        return attn_exp(s, st) * (slope * dweight - delta);
    }
    if (A::exp_family) { return weight * (dweight - delta); }
    return A::dsim(s, A::sim(s)) * st.max_or_factor * (dweight - delta);
}

// ----------------------------------------------------------------------------
// Tensors that an operation takes together, and a row of one. P is what the pointers point to:
// `const real` where the operation reads, `acc` where it adds up gradients. reference.h says what
// every operation does with them; the fast backends take the same.

// Returns row n of x (.., C), or NULL where the model has no such tensor.
template <class X> X* row_of(X* x, long n, long C) {
    if (!x) { return NULL; }
    return x + n * C;
}

// The tables of the embedding, or their gradients.
template <class P> struct EmbedTables {
    P* token;      // (V, C)
    P* position;   // (T, C), or NULL
    P* sink;       // (C), the sink token's row, or NULL
};

// The weights of a norm, or their gradients.
template <class P> struct NormWeights {
    P* weight;     // (C), or NULL for 1
    P* bias;       // (C), or NULL for 0
};

// What a norm keeps of its rows for the backward pass.
template <class P> struct NormStats {
    P* mean;       // (N), or NULL for RMSNorm, which has none
    P* rstd;       // (N)
};

// The size of what is normalized: N rows of C channels, and what is added to their variance.
struct NormShape {
    int N, C;
    float eps;
};

// The weights of QKNORM, or their gradients: of the queries and of the keys.
template <class P> struct QkWeights {
    P* q;          // (HS), shared by all heads; (NH HS) where all heads are normalized together
    P* k;          // (HS); (KV HS)
};

// The learned part of the extra key, or its gradient: a key and a value, or a logit z in place of
// the key. (BIAS=sink_token has none, but a row before all others.)
template <class P> struct ExtraKey {
    P* k;          // k* (KV or 1, HS); with BIAS=logit z (NH or 1); NULL for 0
    P* v;          // v* (KV or 1, HS), or NULL for 0
};

// What attention's forward pass leaves for its backward pass.
template <class R, class S> struct AttnResult {
    const R* out;  // (B, T, NH HS)
    const S* stat; // (B, NH, T, 2)
};

// The gate of the heads' outputs.
template <class P> struct HeadGate {
    P* values;     // (B, T, NH, width), before the sigmoid, or NULL
    int width;     // 1 for each head, or HS
};

// One query head of a sequence: its rows in qkv, or in the gradient of qkv, in host memory. Column
// j < T is token j; column T is the extra key, which has no position.
template <class Bi, class P> struct Head {
    AttnShape s;
    int h;
    int g;                         // its key/value head
    P* qkv;                        // row 0 of the sequence
    ExtraKey<P> extra;             // of this head

    Head(P* all, ExtraKey<P> extras, int b, int h, AttnShape s) : s(s), h(h) {
        g = h / (s.NH / s.KV);
        qkv = row_of(all, (long)b * s.T, attn_row(s));
        extra.k = attn_extra_k<Bi>(extras.k, s, h);
        extra.v = attn_extra(extras.v, s, g);
    }

    // Returns q of token t, (HS).
    P* q(int t) const { return head_of(t, h); }

    // Returns k of column j, or NULL if it has none.
    P* k(int j) const {
        if (j < s.T) { return head_of(j, s.NH + g); }
        if (Bi::extra == KEY_EXTRA) { return extra.k; }
        return NULL;
    }

    // Returns v of column j, or NULL if it has none.
    P* v(int j) const {
        if (j < s.T) { return head_of(j, s.NH + s.KV + g); }
        return extra.v;
    }

    // Returns one head of row t. The heads of q come first, then those of k, then those of v.
    P* head_of(int t, int head) const { return row_of(qkv, t, attn_row(s)) + head * s.HS; }

    bool sees(int t, int j) const {
        if (j < s.T) { return attn_sees(s, t, j); }
        return Bi::extra != NO_EXTRA && !s.without_extra;
    }
};

// Returns the score of query t and column j from their product:
//      s_j = scale q_t . k_j + bias(t, j),  capped
// slope: of the head, by pe_slope
template <class A, class Pe, class Bi, class P, class F>
F attn_score(const Head<Bi, P>& head, F product, float slope, int t, int j) {
    const AttnShape& s = head.s;
    const bool is_extra = j == s.T;
    if (is_extra && Bi::extra == LOGIT_EXTRA) { return REAL(*head.extra.k); }
    F bias = 0;
    if (!is_extra) { bias = attn_bias<A, Pe, F>(s, t - j, slope); }
    return attn_capped<A>(product * F(s.scale) + bias, F(s.cap));
}

// Returns where head h of row (b, t) begins in a tensor (B, T, NH, HS).
inline long head_at(int b, int t, int h, AttnShape s) {
    const long row = (long)b * s.T + t;
    return (row * s.NH + h) * s.HS;
}

// Returns the statistics of that row, of all (B, NH, T, 2).
template <class S> AttnStat<S>* stat_of(const S* stat, int b, int t, int h, AttnShape s) {
    const long head = (long)b * s.NH + h;
    return (AttnStat<S>*)stat + head * s.T + t;
}
#endif // ATTENTION_ROW_CUH
