/*
attention_score.cuh -- what every way of computing attention shares: where heads stand, scores, and
what the backward pass needs of a query's row.

    forward        q, k, v ------> out, stat                       (stat: two numbers a query)
    rows           do, out, stat -> row: a norm and delta          (attention_rows_kernel, below)
    the way itself q, k, v, do, row -> dq, dk, dv                  (simple, panels or tensor cores)
    extra column   w*, ds* of each query -> dk*, dv* or dz         (the other kernels below)
*/
#ifndef CUDA_ATTENTION_SCORE_CUH
#define CUDA_ATTENTION_SCORE_CUH
#include "../attention_variants.cuh"
#include "../operands.h"
#include "rows.cuh"

namespace cuda {
// What attention is computed from.
struct AttnInputs {
    const real* qkv;       // (B, T, NH + 2 KV, HS)
    const real* kstar;     // the extra column's key (KV or 1, HS), or its logit (NH or 1); or NULL
    const real* vstar;     // and its value, (KV or 1, HS), or NULL
    AttnShape s;
};

// ----------------------------------------------------------------------------
// Where things stand.

// Returns the key/value head that query head h reads.
HD int kv_head(const AttnShape& s, int h) { return h / (s.NH / s.KV); }

// Return where a head of queries, keys or values begins in qkv, in the first row of sequence b.
template <class X> HD const X* head_q(const X* qkv, const AttnShape& s, int b, int h) {
    return qkv + (long)b * s.T * attn_row(s) + h * s.HS;
}

template <class X> HD const X* head_k(const X* qkv, const AttnShape& s, int b, int g) {
    return head_q(qkv, s, b, s.NH + g);
}

template <class X> HD const X* head_v(const X* qkv, const AttnShape& s, int b, int g) {
    return head_q(qkv, s, b, s.NH + s.KV + g);
}

// Returns where query t of a head begins in qkv.
HD const real* query_at(const real* qkv, const AttnShape& s, int b, int t, int h) {
    return head_q(qkv, s, b, h) + (long)t * attn_row(s);
}

// Returns where a query's output begins in out, and in dout: (B, T, NH, HS).
HD long out_at(const AttnShape& s, int b, int t, int h) {
    return (((long)b * s.T + t) * s.NH + h) * s.HS;
}

// Returns a query's place among all: of stat it has two numbers there, (B, NH, T, 2).
HD long row_at(const AttnShape& s, int b, int h, int t) {
    return ((long)b * s.NH + h) * s.T + t;
}

// ----------------------------------------------------------------------------
// Scores.

// Returns the score of query t and key j from their dot product; slope: pe_slope of the head.
template <class A, class Pe>
DEVICE float attn_score(float dot, float scale, int t, int j, float slope, const AttnShape& s) {
    const float bias = attn_bias<A, Pe, float>(s, t - j, slope);
    const float score = attn_capped<A>(dot * scale + bias, s.cap);
    return attn_sees(s, t, j) ? score : attn_masked<A, float>();
}

// Returns a . b in every lane of a warp; NULL counts as zero.
DEVICE float warp_dot(const real* a, const real* b, int HS) {
    const bool both = a && b;
    float sum = 0;
    for (int i = threadIdx.x % 32; both && i < HS; i += 32) { sum += (float)a[i] * (float)b[i]; }
    return warp_sum(sum);
}

// Returns the score of the extra column for query q of head h, in every lane of a warp.
template <class A, class Bi>
DEVICE float star_score(const real* q, const real* kstar, int h, const AttnShape& s) {
    const real* star = attn_column<Bi>(kstar, s, h);
    if (Bi::column == LOGIT_COLUMN) { return *star; }
    return attn_capped<A>(warp_dot(q, star, s.HS) * (float)s.scale, s.cap);
}

// ----------------------------------------------------------------------------
// Rows of the backward pass.

// What the backward pass reads of a query's row, beside q, k, v and do. `norm` makes weights of
// scores, with one number where stat has two: enough where weights are rounded to bf16.
//
//     exp family    A_j = 2^(log2(e) s_j - log2_Z)      log2_Z = log2(Z / alpha)
//     the others    A_j = f(s_j) factor                 factor = alpha / Z
//
// and delta = (dZ/dw) (do . o) / alpha, with which ds_j = f'(s_j) alpha / Z (dA_j - delta).
struct alignas(8) RowStat {
    float norm, delta;
    DEVICE float log2_Z() const { return norm; }
    DEVICE float factor() const { return norm; }
};

// All rows. Kernels load ROW_PAD at a time, so each head has T rounded up to that, and the last
// head ROW_PAD more; rows that are no query's give weights of 0.
enum { ROW_PAD = 64 };
struct RowStats {
    float* row;            // (B NH, TP, 2): a RowStat each
    float* w_star;         // (B NH, T) the extra column's weight
    float* ds_star;        // (B NH, T) and its ds
    int TP;                // T rounded up
};
inline int rows_padded(int T) { return CEIL_DIV(T, ROW_PAD) * ROW_PAD; }

// Returns how many rows there are in all.
inline long rows_all(const AttnShape& s) {
    return (long)s.B * s.NH * rows_padded(s.T) + ROW_PAD;
}

// Lays out the rows: `row` has room for 2 rows_all floats, `star` for 2 of each query.
inline RowStats rows_in(float* row, float* star, const AttnShape& s) {
    const long queries = (long)s.B * s.NH * s.T;
    return { row, star, star + queries, rows_padded(s.T) };
}

DEVICE RowStat row_stat(const RowStats& r, int bh, int t) {
    const long at = (long)bh * r.TP + t;
    const Vec<float, 2> x = load<2>(r.row + at * 2);
    return { x[0], x[1] };
}

DEVICE void row_stat_store(const RowStats& r, long at, float norm, float delta) {
    store<2>(r.row + at * 2, Vec<float, 2>{ { norm, delta } });
}

// Makes the rows, a warp each.
template <class A, class Bi>
__global__ void __launch_bounds__(32 * ROW_WARPS)
    attention_rows_kernel(RowStats r, const real* dout, const real* out, const acc* stat,
                          AttnInputs in) {
    const AttnShape& s = in.s;
    const long padded = warp_number();
    const int bh = padded / r.TP, t = padded % r.TP, heads = s.B * s.NH;
    const bool first = threadIdx.x % 32 == 0;
    if (bh > heads || (bh == heads && t >= ROW_PAD)) { return; }
    if (t >= s.T || bh == heads) {
        if (first) { row_stat_store(r, padded, A::exp_family ? INFINITY : 0.0f, 0); }
        return;
    }
    const int b = bh / s.NH, h = bh % s.NH, g = kv_head(s, h);
    const long row = row_at(s, b, h, t), o = out_at(s, b, t, h);
    const float alpha = attn_alpha<A, float>(s);
    const float stat0 = stat[row * 2], stat1 = stat[row * 2 + 1];
    const float delta = attn_delta<A>(warp_dot(dout + o, out + o, s.HS), stat1, alpha);
    const float log2_Z = (stat0 + stat1) * LOG2_E;
    if (first) { row_stat_store(r, padded, A::exp_family ? log2_Z : stat0, delta); }
    if (Bi::column) {
        const float s_star = star_score<A, Bi>(query_at(in.qkv, s, b, t, h), in.kstar, h, s);
        const float w_star = attn_weight<A>(s_star, stat0, stat1);
        const float dw_star = warp_dot(dout + o, attn_star(in.vstar, s, g), s.HS);
        float ds_star = attn_ds<A>(s_star, w_star, dw_star, stat0, stat1, delta, s.p, alpha);
        if (Bi::column == KEY_COLUMN) { ds_star *= attn_slope<A>(s_star, s.cap); }
        if (first) {
            r.w_star[row] = w_star;
            r.ds_star[row] = ds_star;
        }
    }
}

// ----------------------------------------------------------------------------
// Parts of the backward pass and of the metrics that no variant changes. They are compiled once for
// all variants, with the program: attention_common.cu.

// Returns how many sums of k* or v* there are, one for each block of queries.
enum { STAR_ROWS = 64 };
inline long star_parts(const AttnShape& s) {
    return (long)s.B * (s.NH / s.KV) * CEIL_DIV(s.T, STAR_ROWS);
}

inline long star_floats(const AttnShape& s) { return 2 * star_parts(s) * s.KV * s.HS; }

// Computes dk* or dz, and dv*, from the rows; `part` has room for star_floats.
void attention_star_backward(Column column, acc* dkstar, acc* dvstar, float* part, const real* dout,
                             RowStats r, const AttnInputs& in);

// Rounds dk and dv (count, T, HS) of key head g, sequences b0.., into rows of dqkv.
void attention_panel_keys(real* dqkv, const float* dk, const float* dv, int b0, int count, int g,
                          const AttnShape& s);

// Turns dq and dk back by rope's table.
void attention_turn_back(real* dqkv, const acc* turns, const AttnShape& s);
} // namespace cuda
#endif // CUDA_ATTENTION_SCORE_CUH
