/*
attention_score.cuh -- what every way of computing attention shares: where heads stand, scores, and
what backward needs of a row.
*/
#ifndef CUDA_ATTENTION_SCORE_CUH
#define CUDA_ATTENTION_SCORE_CUH
#include "../attention_variants.cuh"
#include "rows.cuh"

namespace cuda {
// Returns the score of query t and key j from their dot product; slope: pe_slope of the head.
template <class A, class Pe>
DEVICE float attn_score(float dot, float scale, int t, int j, float slope, const AttnShape& s) {
    const float bias = attn_bias<A, Pe, float>(s, t - j, slope);
    const float score = attn_capped<A>(dot * scale + bias, s.cap);
    return attn_sees(s, t, j) ? score : attn_masked<A, float>();
}

DEVICE float warp_dot(const real* a, const real* b, int HS) { // NULL counts as zero
    float sum = 0;
    for (int i = threadIdx.x % 32; a && b && i < HS; i += 32) { sum += (float)a[i] * (float)b[i]; }
    return warp_sum(sum);
}

// the score of the extra column for query q of head h, in every lane of a warp
template <class A, class Bi>
DEVICE float star_score(const real* q, const real* kstar, int h, const AttnShape& s) {
    const real* star = attn_column<Bi>(kstar, s, h);
    if (Bi::column == LOGIT_COLUMN) { return *star; }
    return attn_capped<A>(warp_dot(q, star, s.HS) * (float)s.scale, s.cap);
}

// where head h of sequence b begins in qkv, for queries, keys and values
template <class X> HD const X* head_q(const X* qkv, const AttnShape& s, int b, int h) {
    return qkv + (long)b * s.T * attn_row(s) + h * s.HS;
}

template <class X> HD const X* head_k(const X* qkv, const AttnShape& s, int b, int g) {
    return head_q(qkv, s, b, s.NH + g);
}

template <class X> HD const X* head_v(const X* qkv, const AttnShape& s, int b, int g) {
    return head_q(qkv, s, b, s.NH + s.KV + g);
}

// ---- what backward needs of a row: in `row` (B NH, TP, 2) the number that makes weights of its
// scores, and delta; of the extra column its weight and ds, in row t of head h of sequence b,
// number (b NH + h) T + t. TP is T rounded up to 64; the rows added have weights of 0, and so have
// 64 more at the end: whoever loads rows loads 64. A warp per row
struct RowStats { float *row, *w_star, *ds_star; int TP; };
typedef Vec<float, 2> RowStat;
inline int rows_padded(int T) { return CEIL_DIV(T, 64) * 64; }
DEVICE RowStat row_stat(const RowStats& r, int bh, int t) {
    return load<2>(r.row + ((long)bh * r.TP + t) * 2);
}

template <class A, class Bi>
__global__ void __launch_bounds__(128)
    attention_rows_kernel(RowStats r, const real* dout, const real* out, const acc* stat,
                          const real* qkv, const real* kstar, const real* vstar, AttnShape s) {
    const long padded = (long)blockIdx.x * 4 + threadIdx.x / 32;
    const int bh = padded / r.TP, t = padded % r.TP, b = bh / s.NH, h = bh % s.NH,
              g = h / (s.NH / s.KV);
    const bool first = threadIdx.x % 32 == 0;
    if (bh > s.B * s.NH || (bh == s.B * s.NH && t >= 64)) { return; }
    if (t >= s.T || bh == s.B * s.NH) {
        if (first) {
            store<2>(r.row + padded * 2, RowStat{ { A::exp_family ? INFINITY : 0.0f, 0.0f } });
        }
        return;
    }
    const long row = (long)bh * s.T + t, o = ((long)b * s.T + t) * s.NH * s.HS + h * s.HS;
    const float alpha = attn_alpha<A, float>(s);
    const float stat0 = stat[row * 2], stat1 = stat[row * 2 + 1];
    const float delta = attn_delta<A>(warp_dot(dout + o, out + o, s.HS), stat1, alpha);
    // of the exp family one number, -log2 of what exp(score) is multiplied with: enough where
    // weights are rounded to bf16
    if (first) {
        store<2>(r.row + padded * 2,
                 RowStat{ { A::exp_family ? (stat0 + stat1) * LOG2_E : stat0, delta } });
    }
    if (Bi::column) {
        const real *q = head_q(qkv, s, b, h) + (long)t * attn_row(s);
        const float s_star = star_score<A, Bi>(q, kstar, h, s),
                    w_star = attn_weight<A>(s_star, stat0, stat1);
        const float dw_star = warp_dot(dout + o, attn_star(vstar, s, g), s.HS);
        float ds_star = attn_ds<A>(s_star, w_star, dw_star, stat0, stat1, delta, s.p, alpha);
        if (Bi::column == KEY_COLUMN) { ds_star *= attn_slope<A>(s_star, s.cap); }
        if (first) { r.w_star[row] = w_star; r.ds_star[row] = ds_star; }
    }
}

// part_k, part_v (B NH / KV, parts of T, KV, HS) = sums over 64 queries of scale ds* q and of A* do
enum { STAR_ROWS = 64 };
__global__ void __launch_bounds__(128)
    attention_dstar_kernel(float* part_k, float* part_v, const real* dout, RowStats r,
                           const real* qkv, AttnShape s) {
    const int b = blockIdx.x / s.NH, h = blockIdx.x % s.NH, G = s.NH / s.KV, g = h / G;
    const int t0 = blockIdx.y * STAR_ROWS, t1 = min(s.T, t0 + STAR_ROWS);
    const long at = (((long)(b * G + h % G) * gridDim.y + blockIdx.y) * s.KV + g) * s.HS;
    for (int c = threadIdx.x; c < s.HS; c += 128) {
        float dk = 0, dv = 0;
        for (int t = t0; t < t1; t++) {
            const long row = (long)blockIdx.x * s.T + t;
            dk += r.ds_star[row] * (float)head_q(qkv, s, b, h)[(long)t * attn_row(s) + c];
            dv += r.w_star[row] * (float)dout[((long)b * s.T + t) * s.NH * s.HS + h * s.HS + c];
        }
        part_k[at + c] = dk * (float)s.scale;
        part_v[at + c] = dv;
    }
}

// dz (NH or 1) += the sums of ds* over all queries: a block for each number
__global__ void __launch_bounds__(128) attention_dlogit_kernel(acc* dz, RowStats r, AttnShape s) {
    const int heads = s.bias_shared ? s.NH : 1;
    float sum = 0;
    for (int b = 0; b < s.B; b++) {
        const long from = ((long)b * s.NH + blockIdx.x) * s.T;
        for (int i = threadIdx.x; i < heads * s.T; i += 128) { sum += r.ds_star[from + i]; }
    }
    sum = block_sum<128>(sum);
    if (threadIdx.x == 0) { dz[blockIdx.x] += sum; }
}
} // namespace cuda
#endif // CUDA_ATTENTION_SCORE_CUH
