/*
attention.cuh -- attention of the CUDA backend. Parameters and layouts are those of reference.h.
There are two ways:

    on tensor cores, for bf16 and the head sizes of MMA_HEADS: scores live in registers only
    by panels, for all else: the scores of some hundred queries at a time go to memory, and cuBLAS
    makes the products

Neither allocates a T x T tensor. Sums belong to one block, or one product, which adds in a fixed
order: no atomics, and the same seed gives the same bits. Both ways go through the functions below,
so that a variant is written once.
*/
#ifndef CUDA_ATTENTION_CUH
#define CUDA_ATTENTION_CUH
#include "../attention_variants.cuh"
#include "device.cuh"
namespace cuda {

// the score of query t and key j from their dot product
template <class A, class Pe>
DEVICE float attn_score(float dot, float scale, int t, int j, int h, const AttnShape& s) {
    const float score = attn_capped<A>(dot * scale + attn_bias<A, Pe, float>(s, t - j, h), s.cap);
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

// ---- by panels: any head dimension, either precision. A panel is the scores of up to PANEL_ROWS
// queries of one head and of their keys, for as many sequences as PANEL_FLOATS allow. Between the
// products comes one kernel forward and one backward, with a warp per query. Smaller panels would
// waste less of the causal triangle (at T 2048 a fifth of the work) but read and write dk and dv,
// which are sums of T / PANEL_ROWS products, more often.
const int  PANEL_ROWS   = shrunk ? 32 : 512;
const long PANEL_FLOATS = shrunk ? 1 << 12 : 1 << 23;
// (count, t1 - t0, ld): sequences b.., queries t0.., keys j0..
struct Panel { int b, count, h, t0, t1, j0, j1, ld; };

inline Panel panel_at(const AttnShape& s, int b, int h, int t0) {
    // rows of bf16 aligned to 16 bytes
    const int rows = std::min(s.T, PANEL_ROWS), ld = CEIL_DIV(s.T, 8) * 8;
    const int count = (int)std::min((long)s.B - b, std::max(1L, PANEL_FLOATS / ((long)rows * ld)));
    const int t1 = std::min(s.T, t0 + rows);
    const int j0 = s.window && !s.prefix ? std::max(0, t0 - s.window + 1) / 8 * 8 : 0;
    return Panel{ b, count, h, t0, t1, j0, std::min(s.T, std::max(t1, s.prefix)), ld };
}

inline long panel_floats(const Panel& x) { return (long)x.count * (x.t1 - x.t0) * x.ld; }
inline dim3 panel_grid(const Panel& x) {
    return dim3((unsigned)CEIL_DIV(x.count * (x.t1 - x.t0), 4));
}

// Three products. a, b, out: (B, T, *) with rows of wa, wb, wo numbers, from the columns of a head
// on. dots = a_t . b_j
inline void panel_dots(float* dots, const real* a, int wa, const real* b, int wb, const Panel& x,
                       const AttnShape& s) {
    const int rows = x.t1 - x.t0;
    gemm(dots, (const float*)NULL, a + ((long)x.b * s.T + x.t0) * wa,
         b + ((long)x.b * s.T + x.j0) * wb, rows, x.j1 - x.j0, s.HS, false, true,
         Strides{ wa, wb, x.ld, x.count, (long)s.T * wa, (long)s.T * wb, (long)rows * x.ld });
}

// out_t = [out_t +] sum_j w_tj b_j
inline void panel_rows(real* out, int wo, bool add, const real* w, const real* b, int wb,
                       const Panel& x, const AttnShape& s) {
    const int rows = x.t1 - x.t0;
    out += ((long)x.b * s.T + x.t0) * wo;
    gemm(out, add ? out : NULL, w, b + ((long)x.b * s.T + x.j0) * wb, rows, s.HS, x.j1 - x.j0,
         false, false,
         Strides{ x.ld, wb, wo, x.count, (long)rows * x.ld, (long)s.T * wb, (long)s.T * wo });
}

// sums_j += sum_t w_tj a_t; sums (count, T, HS)
inline void panel_columns(float* sums, const real* w, const real* a, int wa, const Panel& x,
                          const AttnShape& s) {
    const int rows = x.t1 - x.t0;
    sums += (long)x.j0 * s.HS;
    gemm(sums, sums, w, a + ((long)x.b * s.T + x.t0) * wa, x.j1 - x.j0, s.HS, rows, true, false,
         Strides{x.ld, wa, s.HS, x.count, (long)rows * x.ld, (long)s.T * wa, (long)s.T * s.HS});
}

// weights and stat from dot products; with a v*, out_t = w_star v*, to which the product adds the
// rest
template <class A, class Bi, class Pe>
__global__ void __launch_bounds__(128, 1)
    attention_panel_forward_kernel(real* w, real* out, acc* stat, const float* dots,
                                   const real* qkv, const real* kstar, const real* vstar, Panel x,
                                   AttnShape s) {
    const int n = blockIdx.x * 4 + threadIdx.x / 32, lane = threadIdx.x % 32, rows = x.t1 - x.t0,
              keys = x.j1 - x.j0;
    if (n >= x.count * rows) { return; }
    const int b = x.b + n / rows, t = x.t0 + n % rows, g = x.h / (s.NH / s.KV);
    const float scale = s.scale, alpha = attn_alpha<A, float>(s), *dots_t = dots + (long)n * x.ld;
    auto score = [&](int j) { return attn_score<A, Pe>(dots_t[j], scale, t, x.j0 + j, x.h, s); };
    float s_star = 0, m = attn_least<A, float>(), l = 0, st[2];
    if (Bi::column) {
        s_star = star_score<A, Bi>(head_q(qkv, s, b, x.h) + (long)t * attn_row(s), kstar, x.h, s);
        m = max_(m, s_star);
    }
    if (A::exp_family) {
        for (int j = lane; j < keys; j += 32) { m = fmaxf(m, score(j)); }
        m = warp_max(m);
    }
    for (int j = lane; j < keys; j += 32) {
        l += attn_mass<A>(attn_term<A>(score(j), m), s.p);
    }
    l = warp_sum(l);
    if (Bi::column) { l += attn_mass<A>(attn_term<A>(s_star, m), s.p); }
    attn_stat<A>(st, m, l, s.p, alpha);
    for (int j = lane; j < keys; j += 32) {
        w[(long)n * x.ld + j] = real(attn_weight<A>(score(j), st[0], st[1]));
    }
    if (lane < 2) { stat[(((long)b * s.NH + x.h) * s.T + t) * 2 + lane] = lane ? st[1] : st[0]; }
    const real* vs = attn_star(vstar, s, g);
    for (int i = lane; Bi::column && vs && i < s.HS; i += 32) {
        out[(((long)b * s.T + t) * s.NH + x.h) * s.HS + i] = real(
            attn_weight<A>(s_star, st[0], st[1]) * (float)vs[i]);
    }
}

// weights and ds from both dot products; with a k*, dq_t = ds_star k*
template <class A, class Bi, class Pe>
__global__ void __launch_bounds__(128, 1)
    attention_panel_backward_kernel(real* w, real* ds, real* dqkv, const float* dots,
                                    const float* dw, const acc* stat, RowStats r, const real* kstar,
                                    Panel x, AttnShape s) {
    const int n = blockIdx.x * 4 + threadIdx.x / 32, lane = threadIdx.x % 32, rows = x.t1 - x.t0;
    if (n >= x.count * rows) { return; }
    const int b = x.b + n / rows, t = x.t0 + n % rows;
    const long row = ((long)b * s.NH + x.h) * s.T + t, at = (long)n * x.ld;
    const float scale = s.scale, alpha = attn_alpha<A, float>(s);
    const float stat0 = stat[row * 2], stat1 = stat[row * 2 + 1],
                delta = row_stat(r, b * s.NH + x.h, t).v[1];
    for (int j = lane; j < x.j1 - x.j0; j += 32) {
        const bool sees = attn_sees(s, t, x.j0 + j);
        const float score = attn_score<A, Pe>(dots[at + j], scale, t, x.j0 + j, x.h, s);
        const float weight = attn_weight<A>(score, stat0, stat1);
        w[at + j] = real(sees ? weight : 0.0f);
        const float d = attn_ds<A>(score, weight, dw[at + j], stat0, stat1, delta, s.p, alpha) *
                        attn_slope<A>(score, s.cap);
        ds[at + j] = real(sees ? d * scale : 0.0f);
    }
    const real* ks = Bi::column == KEY_COLUMN ? attn_column<Bi>(kstar, s, x.h) : NULL;
    for (int i = lane; ks && i < s.HS; i += 32) {
        dqkv[((long)b * s.T + t) * attn_row(s) + x.h * s.HS + i] = real(r.ds_star[row] * scale *
                                                                        (float)ks[i]);
    }
}

// rows of dqkv, from the columns of a key head g on, <- dk, dv (count, T, HS) of sequences b0..
__global__ void __launch_bounds__(128)
    attention_panel_keys_kernel(real* dqkv, const float* dk, const float* dv, int b0, int g,
                                AttnShape s) {
    real* dx = dqkv + ((long)b0 * s.T + blockIdx.x) * attn_row(s) + (s.NH + g) * s.HS;
    for (int i = threadIdx.x; i < s.HS; i += 128) {
        dx[i] = real(dk[(long)blockIdx.x * s.HS + i]);
        dx[s.KV * s.HS + i] = real(dv[(long)blockIdx.x * s.HS + i]);
    }
}

template <class A, class Bi, class Pe>
void attention_forward_panels(real* out, acc* stat, const real* qkv, const real* kstar,
                              const real* vstar, const AttnShape& s) {
    const int W = attn_row(s), O = s.NH * s.HS;
    const long size = panel_floats(panel_at(s, 0, 0, 0)); // no later one is larger
    float* dots = (float*)device_scratch(size * (sizeof(float) + sizeof(real)));
    real* w = (real*)(dots + size);
    for (int b = 0, count; b < s.B; b += count) {
        count = panel_at(s, b, 0, 0).count;
        for (int h = 0; h < s.NH; h++) {
            const int g = h / (s.NH / s.KV);
            for (int t0 = 0; t0 < s.T; t0 += PANEL_ROWS) {
                const Panel x = panel_at(s, b, h, t0);
                panel_dots(dots, head_q(qkv, s, 0, h), W, head_k(qkv, s, 0, g), W, x, s);
                LAUNCH((attention_panel_forward_kernel<A, Bi, Pe>), panel_grid(x), dim3(128), 0,
                       w, out, stat, dots, qkv, kstar, vstar, x, s);
                panel_rows(out + h * s.HS, O, Bi::column && vstar, w, head_v(qkv, s, 0, g), W, x,
                           s);
            }
        }
    }
}

// memory that it wants, in floats: dots, dw, w, ds, and sums for dk and dv
inline long panels_scratch(const AttnShape& s) {
    const Panel x = panel_at(s, 0, 0, 0);
    return panel_floats(x) * (sizeof(real) == 4 ? 4 : 3) + (long)x.count * s.T * s.HS * 2;
}

template <class A, class Bi, class Pe>
void attention_dqkv_panels(real* dqkv, const real* dout, const acc* stat, RowStats r,
                           const real* qkv, const real* kstar, const AttnShape& s, float* scratch) {
    const int W = attn_row(s), O = s.NH * s.HS, G = s.NH / s.KV;
    const long size = panel_floats(panel_at(s, 0, 0, 0)),
               sums = (long)panel_at(s, 0, 0, 0).count * s.T * s.HS;
    float *dots = scratch, *dw = dots + size, *dk = scratch + panels_scratch(s) - 2 * sums,
          *dv = dk + sums;
    real *w = (real*)(dw + size), *ds = w + size;
    for (int b = 0, count; b < s.B; b += count) {
        count = panel_at(s, b, 0, 0).count;
        for (int g = 0; g < s.KV; g++) {
            device_zero(dk, 2 * sums * sizeof(float));
            for (int h = g * G; h < (g + 1) * G; h++) {
                const real *q = head_q(qkv, s, 0, h), *k = head_k(qkv, s, 0, g),
                           *v = head_v(qkv, s, 0, g);
                const real* d = dout + h * s.HS;
                for (int t0 = 0; t0 < s.T; t0 += PANEL_ROWS) {
                    const Panel x = panel_at(s, b, h, t0);
                    panel_dots(dots, q, W, k, W, x, s);
                    panel_dots(dw, d, O, v, W, x, s);
                    LAUNCH((attention_panel_backward_kernel<A, Bi, Pe>), panel_grid(x), dim3(128),
                           0, w, ds, dqkv, dots, dw, stat, r, kstar, x, s);
                    panel_rows(dqkv + h * s.HS, W, Bi::column == KEY_COLUMN && kstar, ds, k, W, x,
                               s);
                    panel_columns(dk, ds, q, W, x, s);
                    panel_columns(dv, w, d, O, x, s);
                }
            }
            LAUNCH(attention_panel_keys_kernel, dim3(count * s.T), dim3(128), 0, dqkv, dk, dv, b, g,
                   s);
        }
    }
}

// ---- on tensor cores: bf16 and the head dimensions of MMA_HEADS. A block of 4 warps; each warp
// owns rows of its tile and everything about them, so weights go from the registers of one product
// into those of the next (a C fragment is half an A fragment) and never through memory. Tiles of
// the other operand arrive by cp.async, one ahead.
#ifndef MMA_HEADS
#define MMA_HEADS(X) X(64) X(96) X(128) X(192)
#endif
// what a block may ask for on sm_86 and sm_89; 163 KiB on sm_80, 227 on sm_90
enum { SMEM_MOST = 99 << 10 };

// is a tile of queries t0.. and keys j0.. all masked; is nothing of it masked
DEVICE bool tile_empty(const AttnShape& s, int t0, int j0, int queries, int keys) {
    return attn_tile_empty(s, t0, min(t0 + queries, s.T), j0, min(j0 + keys, s.T));
}

DEVICE bool tile_full(const AttnShape& s, int t0, int j0, int queries, int keys) {
    return max(t0 + queries, j0 + keys) <= s.T &&
           attn_tile_full(s, t0, t0 + queries, j0, j0 + keys);
}

// the first tile from `at` on that is not all masked, or `end`
DEVICE int next_keys(const AttnShape& s, int t0, int queries, int at, int end, int keys) {
    while (at < end && tile_empty(s, t0, at, queries, keys)) { at += keys; }
    return at;
}

DEVICE int next_queries(const AttnShape& s, int j0, int keys, int at, int queries) {
    while (at < s.T && tile_empty(s, at, j0, queries, keys)) { at += queries; }
    return at;
}

// where 8 columns of a row of a tile (rows, HS) are: swizzled, so that 8 rows of ldmatrix meet 8
// groups of banks
template <int HS> HD constexpr int tile_offset(int row, int chunk) {
    return row * HS +
           8 * (HS % 64 == 0 ? chunk ^ (row & 7) : (chunk & ~3) | ((chunk ^ (row >> 1)) & 3));
}

template <int HS>
DEVICE bf16* tile_at(bf16* tile, int row, int chunk) {
    return tile + tile_offset<HS>(row, chunk);
}

// where ldmatrix finds its lane's row and, of columns 16 k.., the half that it reads. The swizzle
// comes back every V steps of k and every 8 rows: k turns bits of one number, all else is constant
template <int HS> struct LaneChunks {
    enum { V = HS % 64 == 0 ? 4 : 2 };
    int at;
    DEVICE LaneChunks(int row, int half) : at(tile_offset<HS>(row, half)) {}
    DEVICE int operator()(int rows, int k) const {
        return (at ^ k % V * 16) + rows * HS + k / V * V * 16;
    }
};
// matrices: rows 0-7, 8-15, then their right halves
template <int HS> DEVICE LaneChunks<HS> lanes_by_column() {
    return LaneChunks<HS>(threadIdx.x % 16, threadIdx.x % 32 / 16);
}

// rows 0-7, their right half, then rows 8-15
template <int HS> DEVICE LaneChunks<HS> lanes_by_row() {
    return LaneChunks<HS>(threadIdx.x % 32 / 16 * 8 + threadIdx.x % 8, threadIdx.x / 8 % 2);
}

// x, of which the compiler knows nothing more: what follows from it is computed where it is used
// instead of being kept in registers around a loop
DEVICE unsigned again(unsigned x) {
#ifndef EMU
    asm volatile("" : "+r"(x));
#endif
    return x;
}

// rows from.. of x, those from T on as zeros; arrives with the next cp_async_commit. W threads a
// row, each with every W-th chunk of 16 bytes: R rows further the swizzle is the same, so addresses
// are constants apart. What is unsigned needs fewer instructions to divide and to address by
template <bool WHOLE, int HS, int ROWS>
DEVICE void tile_load_part(bf16* tile, const bf16* x, unsigned stride, int rows, unsigned thread) {
    constexpr int W = HS % 64 == 0 ? 8 : 4, R = 128 / W;
    const int row = thread / W, chunk = thread % W;
    const bf16* at = x + row * stride + chunk * 8;
    tile = tile_at<HS>(tile, row, chunk);
    #pragma unroll
    for (int i = 0; i < ROWS; i += R, at += R * stride) {
        if (i + R > ROWS && row >= ROWS - i) { break; }
        const bool valid = WHOLE || row + i < rows;
        #pragma unroll
        for (int c = 0; c < HS / 8; c += W) {
            cp_async(tile + i * HS + c * 8, valid ? at + c * 8 : x, valid);
        }
    }
}

template <int HS, int ROWS>
DEVICE void tile_load(bf16* tile, const bf16* x, unsigned stride, unsigned from, int T,
                      unsigned thread = threadIdx.x) {
    x += (size_t)from * stride;
    const int rows = T - from;
    if (rows >= ROWS) { tile_load_part<true, HS, ROWS>(tile, x, stride, ROWS, thread); }
    else              { tile_load_part<false, HS, ROWS>(tile, x, stride, rows, thread); }
}

// 16 MT rows of a tile as mma wants them on its left. The first KEEP of HS / 16 pieces stay in
// registers once hold() has loaded them, the others come from shared memory each time
template <int HS, int MT, int KEEP = 0> struct LeftRows {
    bf16* rows; LaneChunks<HS> by_column; uint32_t kept[KEEP ? KEEP : 1][MT][4];
    DEVICE LeftRows(bf16* rows, LaneChunks<HS> by_column) : rows(rows), by_column(by_column) {}
    DEVICE void hold() {
        #pragma unroll
        for (int i = 0; i < KEEP * MT; i++) {
            ldmatrix(kept[i / MT][i % MT], rows + by_column(16 * (i % MT), i / MT));
        }
    }
    DEVICE void piece(uint32_t (&f)[4], int m, int k) const {
        if constexpr (KEEP > 0) {
            if (k < KEEP) {
                #pragma unroll
                for (int i = 0; i < 4; i++) { f[i] = kept[k][m][i]; }
                return;
            }
        }
        ldmatrix(f, rows + by_column(16 * m, k));
    }
};

// c (16 MT, N) = 16 MT rows of a times rows of b, over the head dimension
template <int HS, int MT, int N, int KEEP>
DEVICE void product_rows(float (&c)[MT][N / 8][4], const LeftRows<HS, MT, KEEP>& a, bf16* b,
                         LaneChunks<HS> by_row) {
#pragma unroll
    for (int i = 0; i < MT * N / 2; i++) { c[i / (N / 2)][i / 4 % (N / 8)][i % 4] = 0; }
    #pragma unroll
    for (int k = 0; k < HS / 16; k++) {
        uint32_t fa[MT][4], fb[4];
        #pragma unroll
        for (int m = 0; m < MT; m++) { a.piece(fa[m], m, k); }
        #pragma unroll
        for (int n = 0; n < N / 16; n++) {
            ldmatrix(fb, b + by_row(16 * n, k));
            #pragma unroll
            for (int m = 0; m < MT; m++) {
                mma(c[m][2 * n], fa[m], fb[0], fb[1]);
                mma(c[m][2 * n + 1], fa[m], fb[2], fb[3]);
            }
        }
    }
}

// columns 16 k.. of 16 rows that were results, rounded, as mma wants them on its left
template <int N> DEVICE void pack_left(uint32_t (&f)[4], const float (&w)[N / 8][4], int k) {
    const float (&lo)[4] = w[2 * k], (&hi)[4] = w[2 * k + 1];
    f[0] = pack(lo[0], lo[1]); f[1] = pack(lo[2], lo[3]);
    f[2] = pack(hi[0], hi[1]); f[3] = pack(hi[2], hi[3]);
}

// c (16 MT, HS) += a (16 MT, 16) times the 16 rows of x from `row` on
template <int HS, int MT>
DEVICE void product_step(float (&c)[MT][HS / 8][4], const uint32_t (&a)[MT][4], bf16* x, int row,
                         LaneChunks<HS> by_column) {
    #pragma unroll
    for (int n = 0; n < HS / 16; n++) {
        uint32_t fb[4];
        ldmatrix_trans(fb, x + by_column(row, n));
        #pragma unroll
        for (int m = 0; m < MT; m++) {
            mma(c[m][2 * n], a[m], fb[0], fb[1]);
            mma(c[m][2 * n + 1], a[m], fb[2], fb[3]);
        }
    }
}

// c (16 MT, HS) += w (16 MT, N), in registers, times the N rows of x
template <int HS, int MT, int N>
DEVICE void product_weights(float (&c)[MT][HS / 8][4], const float (&w)[MT][N / 8][4], bf16* x,
                            LaneChunks<HS> by_column) {
#pragma unroll
    for (int k = 0; k < N / 16; k++) {
        uint32_t fa[MT][4];
        #pragma unroll
        for (int m = 0; m < MT; m++) { pack_left<N>(fa[m], w[m], k); }
        product_step<HS, MT>(c, fa, x, 16 * k, by_column);
    }
}

// 16 rows of the warp, times one factor for each of the thread's two, to rows t0.. of out. They
// pass through the rows of a tile that only this warp reads, to leave 16 bytes at a time
template <int HS>
DEVICE void rows_store(bf16* out, long stride, int t0, int T, bf16* tile, int row0,
                       const float (&c)[HS / 8][4], float f0, float f1) {
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
        if (t < T) {
            store<8>(out + t * stride + chunk * 8, load<8>(tile_at<HS>(tile, row0 + row, chunk)));
        }
    }
}

// what rope does with a pair. Rounded after every operation, never fused, so that all who turn give
// the same bits
DEVICE void turn_pair(float& a, float& b, float co, float si) {
    const float x = __fmul_rn(a, co) - __fmul_rn(b, si);
    b = __fmul_rn(a, si) + __fmul_rn(b, co);
    a = x;
}

// 16 rows of the warp turn back by the table (T, HS/2, 2), rounded to bf16 first: the same bits as
// rope(.., -1, ..) on what rows_store would have stored. A thread holds both numbers of a pair, so
// none has to move
template <int HS>
DEVICE void rows_turn(float (&c)[HS / 8][4], const float* turns, int own, int t2, int T) {
#pragma unroll
    for (int r = 0; r < 2; r++) {
        const float* turn = turns + (long)min(own + 8 * r, T - 1) * HS + 2 * t2;
        #pragma unroll
        for (int n = 0; n < HS / 16; n++) {
            const Vec<float, 4> cos_sin = load<4>(turn + 16 * n);
            #pragma unroll
            for (int e = 0; e < 2; e++) {
                float &a = c[n][2 * r + e], &b = c[n + HS / 16][2 * r + e];
                a = (float)bf16(a);
                b = (float)bf16(b);
                turn_pair(a, b, cos_sin.v[2 * e], -cos_sin.v[2 * e + 1]);
            }
        }
    }
}

template <int HS> DEVICE void rows_scale(float (&c)[HS / 8][4], float f) {
    #pragma unroll
    for (int i = 0; i < HS / 2; i++) { c[i / 4][i % 4] *= f; }
}

// sums and maxima over the 4 lanes that share a row
DEVICE float quad_sum(float v) {
    v += __shfl_xor_sync(~0u, v, 1);
    return v + __shfl_xor_sync(~0u, v, 2);
}

DEVICE float quad_max(float v) {
    v = fmaxf(v, __shfl_xor_sync(~0u, v, 1));
    return fmaxf(v, __shfl_xor_sync(~0u, v, 2));
}

// What a thread holds of its 2 MT rows, which are own + 8 r: the largest score so far, its part of
// the sum in Z relative to that, and of the output two of every 8 columns, from t2 = 0, 2, 4 or
// 6 on
template <int HS, int MT> struct OnlineRows { float m[2 * MT], l[2 * MT], o[MT][HS / 8][4]; };

// What a tile of scores needs. The exp family's weights are powers of 2, weight = 2^(score unit -
// base): a score is the dot product itself, if nothing is added to it, and all factors are in
// unit. Of the others a score is what it is elsewhere.
template <class A, class Pe> struct TileScore {
    static constexpr bool plain = A::exp_family && !A::capped && !Pe::score_bias;
    float scale, unit; int h;
    DEVICE TileScore(int h, const AttnShape& s) : h(h) {
        scale = s.scale;
        unit = plain ? scale * LOG2_E : 1.0f;
    }
    // of query t and key j from their dot product
    DEVICE float operator()(float dot, int t, int j, const AttnShape& s) const {
        if (plain) { return dot; }
        const float bias = attn_bias<A, Pe, Fast>(s, t - j, h).v;
        if (A::exp_family && !A::capped) { return fmaf(dot, scale * LOG2_E, bias * LOG2_E); }
        const float score = attn_capped<A>(Fast(fmaf(dot, scale, bias)), Fast(s.cap)).v;
        return A::exp_family ? score * LOG2_E : score;
    }
    DEVICE float of_natural(float score) const {
        return A::exp_family ? score * LOG2_E / unit : score;
    }
    DEVICE float slope(float score, const AttnShape& s) const {
        return attn_slope<A>(Fast(score * LN_2), Fast(s.cap)).v;
    }
};

// the extra column is the state that the loop over keys starts from
template <class A, class Bi, class Pe, int HS, int MT>
DEVICE void online_start(OnlineRows<HS, MT>& x, const bf16* q, const bf16* ks, const bf16* vs,
                         const TileScore<A, Pe>& score, int own, int t2, const AttnShape& s) {
    #pragma unroll
    for (int r = 0; r < 2 * MT; r++) {
        float s_star = Bi::column == LOGIT_COLUMN ? (float)*ks : 0.0f;
        if (Bi::column == KEY_COLUMN && ks) {
            const bf16* q_t = q + (long)min(own + 8 * r, s.T - 1) * attn_row(s);
            for (int i = t2 / 2; i < HS; i += 4) { s_star += (float)q_t[i] * (float)ks[i]; }
            s_star = attn_capped<A>(quad_sum(s_star) * (float)s.scale, s.cap);
        }
        const float m = Bi::column != NO_COLUMN ? max_(attn_least<A, float>(), s_star)
                                                : attn_least<A, float>();
        const float w_star = Bi::column != NO_COLUMN ? attn_term<A>(s_star, m) : 0.0f;
        x.m[r] = score.of_natural(m);
        x.l[r] = Bi::column && t2 == 0 ? attn_mass<A>(w_star, s.p) : 0.0f;
        #pragma unroll
        for (int n = 0; n < HS / 8; n++) {
            for (int e = 0; e < 2; e++) {
                x.o[r / 2][n][r % 2 * 2 + e] = Bi::column && vs ? attn_share<A>(w_star) *
                                                                      (float)vs[8 * n + t2 + e]
                                                                : 0.0f;
            }
        }
    }
}

// N keys from j on: dot products become weights, in place, and join the rows' sums. FULL: none of
// them is masked
template <bool FULL, class A, class Pe, int HS, int MT, int N>
DEVICE void online_add(OnlineRows<HS, MT>& x, float (&w)[MT][N / 8][4],
                       const TileScore<A, Pe>& score, int own, int j, const AttnShape& s) {
#pragma unroll
    for (int r = 0; r < 2 * MT; r++) {
        const int t = own + 8 * r;
        float top = x.m[r], base = 0, shrink = 1, one = 0;
        #pragma unroll
        for (int i = 0; i < N / 4; i++) {
            float& w_j = w[r / 2][i / 2][r % 2 * 2 + i % 2];
            const int at = j + i / 2 * 8 + i % 2;
            w_j = score(w_j, t, at, s);
            if (!FULL) { w_j = (at < s.T) & attn_sees(s, t, at) ? w_j : attn_masked<A, float>(); }
            top = fmaxf(top, w_j);
        }
        if (A::exp_family) {
            top = quad_max(top);
            // a row that has seen no key yet
            base = top == -INFINITY ? 0.0f : __fmul_rn(top, score.unit);
            shrink = ex2_approx(__fmul_rn(x.m[r], score.unit) - base);
            one = A::Z == Z_ABS ? ex2_approx(-base) : 0.0f; // softpick's f is e^s - 1
            x.m[r] = top;
            x.l[r] *= attn_mass<A>(Fast(shrink), Fast(s.p)).v;
            #pragma unroll
            for (int n = 0; n < HS / 8; n++) {
                for (int e = 0; e < 2; e++) { x.o[r / 2][n][r % 2 * 2 + e] *= shrink; }
            }
        }
        #pragma unroll
        for (int i = 0; i < N / 4; i++) {
            float& w_j = w[r / 2][i / 2][r % 2 * 2 + i % 2];
            w_j = A::exp_family ? ex2_approx(fmaf(w_j, score.unit, -base)) : A::sim(Fast(w_j)).v;
            if (A::Z == Z_ABS) { w_j -= one; }
            x.l[r] += A::Z == Z_ABS ? fabsf(w_j) : attn_mass<A>(Fast(w_j), Fast(s.p)).v;
            w_j = attn_share<A>(Fast(w_j)).v;
        }
    }
}

// 128 queries a block, 32 a warp; tiles of as many keys as fit the registers without spills. HS
// 192: half the queries
template <int HS> struct ForwardTile {
    enum {
        MT = HS > 128 ? 1 : 2,
        BQ = 64 * MT,
        BK = HS > 96 ? 32 : 64,
        SMEM = (BQ + 4 * BK) * HS * 2
    };
};
// two blocks must be enough for an SM: for three, 64 channels spill in some variants
template <class A, class Bi, class Pe, int HS>
__global__ void __launch_bounds__(128, 2)
    attention_forward_mma_kernel(bf16* out, acc* stat, const bf16* qkv, const bf16* kstar,
                                 const bf16* vstar, AttnShape s) {
    constexpr int MT = ForwardTile<HS>::MT, BQ = ForwardTile<HS>::BQ, BK = ForwardTile<HS>::BK;
    // Q; two tiles each of K and V
    bf16 *sq = dynamic_smem<bf16>(), *sk = sq + BQ * HS, *sv = sk + 2 * BK * HS;
    const int tiles = CEIL_DIV(s.T, BQ), bh = blockIdx.x / tiles,
              t0 = (tiles - 1 - blockIdx.x % tiles) * BQ;
    const int b = bh / s.NH, h = bh % s.NH, g = h / (s.NH / s.KV), W = attn_row(s);
    const int lane = threadIdx.x % 32, t2 = lane % 4 * 2, row0 = threadIdx.x / 32 * 16 * MT,
              own = t0 + row0 + lane / 4;
    const bf16 *q = qkv + (long)b * s.T * W + h * HS, *k = q + (s.NH + g - h) * HS,
               *v = k + s.KV * HS;
    const LaneChunks<HS> by_column = lanes_by_column<HS>(), by_row = lanes_by_row<HS>();
    const LeftRows<HS, MT> queries(sq + row0 * HS, by_column);
    const TileScore<A, Pe> score(h, s);
    const int end = min(s.T, max(t0 + BQ, s.prefix));

    OnlineRows<HS, MT> x; // before the loads: twenty registers less
    online_start<A, Bi>(x, q, attn_column<Bi>(kstar, s, h), attn_star(vstar, s, g), score, own, t2,
                        s);
    tile_load<HS, BQ>(sq, q, W, t0, s.T);
    int j0 = next_keys(s, t0, BQ, 0, end, BK);
    tile_load<HS, BK>(sk, k, W, j0, s.T);
    tile_load<HS, BK>(sv, v, W, j0, s.T);
    cp_async_commit();
    for (int buf = 0; j0 < end; buf ^= 1) {
        const int next = next_keys(s, t0, BQ, j0 + BK, end, BK);
        if (next < end) {
            tile_load<HS, BK>(sk + (buf ^ 1) * BK * HS, k, W, next, s.T);
            tile_load<HS, BK>(sv + (buf ^ 1) * BK * HS, v, W, next, s.T);
        }
        cp_async_commit();
        cp_async_wait<1>(); // all but the tile just asked for
        __syncthreads();
        float w[MT][BK / 8][4];
        product_rows<HS, MT, BK>(w, queries, sk + buf * BK * HS, by_row);
        if (tile_full(s, t0, j0, BQ, BK)) {
            online_add<true, A, Pe, HS, MT, BK>(x, w, score, own, j0 + t2, s);
        } else {
            online_add<false, A, Pe, HS, MT, BK>(x, w, score, own, j0 + t2, s);
        }
        product_weights<HS, MT, BK>(x.o, w, sv + buf * BK * HS, by_column);
        __syncthreads(); // before this buffer is filled again
        j0 = next;
    }
    float factor[2 * MT], st[2];
    #pragma unroll
    for (int r = 0; r < 2 * MT; r++) {
        const float m = __fmul_rn(x.m[r], score.unit) * LN_2;
        factor[r] = attn_stat<A>(st, m, quad_sum(x.l[r]), s.p, attn_alpha<A, float>(s));
        if (t2 == 0 && own + 8 * r < s.T) {
            acc* stat_t = stat + ((long)bh * s.T + own + 8 * r) * 2;
            stat_t[0] = st[0];
            stat_t[1] = st[1];
        }
    }
    #pragma unroll
    for (int i = 0; i < MT; i++) {
        rows_store<HS>(out + (long)b * s.T * s.NH * HS + h * HS, s.NH * HS, t0, s.T, sq,
                       row0 + 16 * i, x.o[i], factor[2 * i], factor[2 * i + 1]);
    }
}

// ---- backward on tensor cores: five products. The first kernel makes S = q k^T and dA = do v^T,
// adds up dv_j = sum_t A_tj do_t and stores ds; the second makes dq_t = sum_j scale ds_tj k_j and
// dk_j = sum_t scale ds_tj q_t from what is stored. ds is rounded to bf16 in any case, as a factor
// of a product. It is kept in memory for a chunk of heads, or of one head's keys, at a time.
//
// Of each query head of a chunk: cells of 16 queries by 16 keys, (queries / 16, keys / 16, 256). A
// cell is four matrices of 8 keys by 8 queries: keys 0-7 and 8-15 with queries 0-7, then with
// queries 8-15.
enum { CELL = 16 * 16, CHUNK_KEYS = 128 };               // a block takes 64 keys or 128
const size_t CHUNK_BYTES = shrunk ? 1 << 17 : 1 << 29;   // at T 2048: 64 query heads
struct DsChunk {
    bf16* ds; int g0, h0, count, j0, j1, QT; // key heads g0.. of B KV, query heads h0..; keys j0..
    HD unsigned width() const { return (unsigned)(j1 - j0) / 16; }
    // query head `head` of the chunk, queries t.., keys j..: multiples of 16, never negative
    HD bf16* cell(int head, unsigned t, unsigned j) const {
        return ds + (size_t)((head * QT + t / 16) * width() + (j - j0) / 16) * CELL;
    }
};
// the chunk that begins at key head g0 and key j0
inline DsChunk ds_chunk(const AttnShape& s, int g0, int j0) {
    const int QT = rows_padded(s.T) / 16, G = s.NH / s.KV,
              keys = CEIL_DIV(s.T, CHUNK_KEYS) * CHUNK_KEYS;
    const size_t column = (size_t)G * QT * CELL * 2 / 16; // bytes of a key, all queries of a group
    const int at_once = (int)std::min<size_t>(keys, std::max<size_t>(1, CHUNK_BYTES / column /
                                                                     CHUNK_KEYS) * CHUNK_KEYS);
    const int heads = (int)std::max<size_t>(1, CHUNK_BYTES / column / keys), all = s.B * s.KV,
              even = CEIL_DIV(all, CEIL_DIV(all, heads)); // chunks of about one size
    return DsChunk{ NULL, g0, g0 * G, std::min(even, all - g0), j0, std::min(j0 + at_once, keys),
                    QT };
}

inline size_t ds_bytes(const AttnShape& s) { // no later chunk is larger
    const DsChunk x = ds_chunk(s, 0, 0);
    return (size_t)x.count * (s.NH / s.KV) * x.QT * x.width() * CELL * sizeof(bf16);
}

// from the dot products x = q.k and y = do.v to the weight and ds, in place
template <bool FULL, class A, class Pe>
DEVICE void weight_ds(float& x, float& y, const TileScore<A, Pe>& score, float row, float delta,
                      int t, int j, const AttnShape& s) {
    const bool sees = FULL | ((t < s.T) & (j < s.T) & attn_sees(s, t, j));
    x = score(x, t, j, s);
    if (A::Z == Z_ABS) { // f = e^s - 1; one is alpha / Z
        const float one = ex2_approx(-row), e = ex2_approx(fmaf(x, score.unit, -row));
        const float d = x > 0 ? y - delta : delta;
        y = sees & (x != 0) ? e * d : 0.0f;
        x = sees ? fmaxf(e - one, 0) : 0.0f;
    } else if (A::exp_family && A::Z != Z_PNORM) {
        const float slope = A::capped ? score.slope(x, s) : 1.0f;
        x = ex2_approx(fmaf(sees ? x : -INFINITY, score.unit, -row));
        y = x * (y - delta) * slope;
    } else {
        const Fast w(A::exp_family ? ex2_approx(fmaf(x, score.unit, -row))
                                   : (A::sim(Fast(x)) * Fast(row)).v);
        const Fast alpha(attn_alpha<A, float>(s));
        y = attn_ds<A>(Fast(x), w, Fast(y), Fast(row), Fast(0), Fast(delta), Fast(s.p), alpha).v;
        x = sees ? w.v : 0.0f;
        y = sees ? y : 0.0f;
    }
}

// The first: 128 keys a block, 32 a warp, where the registers allow, so that what is read of a
// query from shared memory serves two products; with the transposed tiles S^T = k q^T and dA^T =
// v do^T. Keys and values stay in registers, KEEP and KEEP_V pieces of them, where there is room
template <class A, class Pe> constexpr bool many_registers = A::Z == Z_PNORM && Pe::score_bias;
template <int HS, bool MANY = false> struct DvTile { // MANY: a row mathematics of many registers
    enum {
        MT = HS > 96 || MANY ? 1 : 2, BK = 64 * MT, BQ = 32,
        KEEP_V = HS == 128 ? HS / 16 : 0,
        SMEM = (2 * BK + 4 * BQ) * HS * 2 + 2 * 128 * 4
    };
};
template <class A, class Pe, int HS>
__global__ void __launch_bounds__(128, 2)
    attention_dv_mma_kernel(bf16* dqkv, DsChunk c, const bf16* dout, RowStats r, const bf16* qkv,
                            AttnShape s) {
    typedef DvTile<HS, many_registers<A, Pe>> Tile;
    constexpr int MT = Tile::MT, BQ = Tile::BQ, BK = Tile::BK;
    bf16 *sk = dynamic_smem<bf16>(), *sv = sk + BK * HS, *sq = sv + BK * HS, *sd = sq + 2 * BQ * HS;
    float* rows = (float*)(sd + 2 * BQ * HS); // (2, 64, 2): BQ rows are used
    const int bg = c.g0 + blockIdx.y, j0 = c.j0 + blockIdx.x * BK;
    const int b = bg / s.KV, W = attn_row(s), G = s.NH / s.KV;
    const int row0 = threadIdx.x / 32 * 16 * MT;
    const bf16 *k = head_k(qkv, s, b, bg % s.KV), *v = k + s.KV * HS;
    const LaneChunks<HS> by_column = lanes_by_column<HS>(), by_row = lanes_by_row<HS>();
    // the sequence's first row and first head. They are wanted once a tile and must not take
    // registers from the products
    SMEM(int[2], sequence);
    if (threadIdx.x == 0) {
        sequence[0] = b * s.T;
        sequence[1] = b * s.NH;
    }
    __syncthreads();
    // bh: the query head, counted through all sequences
    auto load = [&](int buf, int bh, int t0) {
        const volatile int* begin = sequence;
        const int row = begin[0], h = bh - begin[1];
        const unsigned thread = again(threadIdx.x);
        tile_load<HS, BQ>(sq + buf * BQ * HS, qkv + h * HS, W, row + t0, row + s.T, thread);
        tile_load<HS, BQ>(sd + buf * BQ * HS, dout + h * HS, s.NH * HS, row + t0, row + s.T,
                          thread);
        cp_async_float(rows + buf * 128 + threadIdx.x,
                       r.row + ((long)bh * r.TP + t0) * 2 + threadIdx.x);
    };
    tile_load<HS, BK>(sk, k, W, j0, s.T, again(threadIdx.x));
    tile_load<HS, BK>(sv, v, W, j0, s.T, again(threadIdx.x));
    cp_async_commit();
    const int first = next_queries(s, j0, BK, 0, BQ);
    int bh = bg * G, t0 = first;
    if (t0 < s.T) { load(0, bh, t0); }
    cp_async_commit();
    cp_async_wait<1>();
    __syncthreads();
    constexpr bool few = TileScore<A, Pe>::plain && A::Z != Z_PNORM; // registers of a row
    constexpr int KEEP = HS == 96 && MT == 2 && !few ? 0 : HS / 16;
    LeftRows<HS, MT, KEEP> keys(sk + row0 * HS, by_column);
    LeftRows<HS, MT, Tile::KEEP_V> values(sv + row0 * HS, by_column);
    keys.hold();
    values.hold();
    float dv[MT][HS / 8][4] = {};
    for (int buf = 0, heads = G; heads && first < s.T; buf ^= 1) {
        const unsigned thread = again(threadIdx.x);
        const int lane = thread % 32, t2 = lane % 4 * 2, j = j0 + thread / 32 * 16 * MT,
                  own = j + lane / 4;
        int next = next_queries(s, j0, BK, t0 + BQ, BQ), next_bh = bh;
        if (next >= s.T) { next = first; next_bh++; heads--; }
        if (heads) { load(buf ^ 1, next_bh, next); }
        cp_async_commit();
        cp_async_wait<1>();
        __syncthreads();
        float w[MT][BQ / 8][4], ds[MT][BQ / 8][4];
        product_rows<HS, MT, BQ>(w, keys, sq + buf * BQ * HS, by_row);
        product_rows<HS, MT, BQ>(ds, values, sd + buf * BQ * HS, by_row);
        const TileScore<A, Pe> score(bh % s.NH, s);
        auto scores = [&](auto full) {
            #pragma unroll
            for (int n = 0; n < BQ / 8; n++) {
                // of two queries
                const Vec<float, 4> x = ::cuda::load<4>(rows + buf * 128 + (8 * n + t2) * 2);
                #pragma unroll
                for (int i = 0; i < 4 * MT; i++) {
                    const int m = i / 4, e = i % 4;
                    weight_ds<full.value>(w[m][n][e], ds[m][n][e], score, x.v[e % 2 * 2],
                                          x.v[e % 2 * 2 + 1], t0 + 8 * n + t2 + e % 2,
                                          own + 16 * m + e / 2 * 8, s);
                }
            }
        };
        if (tile_full(s, t0, j0, BQ, BK)) {
            scores(std::true_type());
        } else {
            scores(std::false_type());
        }
        uint32_t* cells = (uint32_t*)c.cell(bh - c.h0, t0, j) + lane;
        #pragma unroll
        for (int i = 0; i < MT * BQ / 16; i++) {
            uint32_t f[4];
            pack_left<BQ>(f, ds[i % MT], i / MT);
            #pragma unroll
            for (int m = 0; m < 4; m++) {
                cells[(i / MT * c.width() + i % MT) * (CELL / 2) + m * 32] = f[m];
            }
        }
        product_weights<HS, MT, BQ>(dv, w, sd + buf * BQ * HS, by_column);
        __syncthreads();
        t0 = next;
        bh = next_bh;
    }
    cp_async_wait<0>(); // keys that no query sees: nothing has been waited for
    const int g = (c.g0 + blockIdx.y) % s.KV;
    bf16* dx = dqkv + (long)*(volatile int*)sequence * W + (s.NH + s.KV + g) * HS;
    #pragma unroll
    for (int i = 0; i < MT; i++) {
        rows_store<HS>(dx, W, j0, s.T, sv, row0 + 16 * i, dv[i], 1.0f, 1.0f);
    }
}

// The second, for dq (rows are queries, summed over keys) and for dk (rows are keys, summed over
// the queries of all heads that share them). A block is for one or the other; those of a head run
// at about the same time, so that part of what both read of ds is still in L2 for the second
enum Side { QUERIES, KEYS };
template <int HS> struct DqkTile {
    enum {
        MT = HS > 128 ? 1 : 2, ROWS = 64 * MT, BX = 64,
        SMEM = (2 * ROWS * BX + 2 * BX * HS) * 2
    };
};

// What a warp takes of ds at a time: the cells of its rows, from r on, and of BX others. For dq
// they pass through shared memory, which transposes them. For dk they are as mma wants them and
// go from memory to registers, where there are enough: each is replaced by that of the next tile as
// soon as it has been used
template <int HS, Side SIDE> struct DsCells {
    enum { MT = DqkTile<HS>::MT, N = MT * DqkTile<HS>::BX / 16, KEPT = SIDE == KEYS && HS != 128 };
    const DsChunk& c; int r, lane; bf16* shared; const bf16* first;
    uint32_t stored, kept[KEPT ? N : 1][4];
    DEVICE DsCells(const DsChunk& c, int r, bf16* shared)
        : c(c), r(r), lane(threadIdx.x % 32), shared(shared), stored(0) {}

    // the next tile: of a head of the chunk, others from `at` on. full: nothing of it is masked.
    // What is all masked has not been stored
    DEVICE void point(const AttnShape& s, int head, int at, bool full) {
        first = SIDE == QUERIES ? c.cell(head, r, at) : c.cell(head, at, r);
        stored = ~0u;
        if (full) { return; }
        #pragma unroll
        for (int i = 0; i < N; i++) {
            const int own = r + 16 * (i % MT), other = at + 16 * (i / MT);
            const int t = SIDE == QUERIES ? own : other, j = SIDE == QUERIES ? other : own;
            if ((max(t, j) >= s.T) | tile_empty(s, t, j, 16, 16)) { stored &= ~(1u << i); }
        }
    }

    // in place of what was not stored, the chunk's first cell, which always was, may be read
    DEVICE const bf16* cell(int i) const {
        const int own = i % MT, other = i / MT, W = c.width();
        if (!(stored >> i & 1)) { return c.ds; }
        return first + (SIDE == QUERIES ? own * W + other : other * W + own) * CELL;
    }

    DEVICE void load(int buf) {
        #pragma unroll
        for (int i = 0; !KEPT && i < N; i++) {
            bf16* to = shared + (buf * 4 * N + i) * CELL;
            cp_async(to + lane * 8, cell(i) + lane * 8, stored >> i & 1);
        }
    }

    DEVICE void keep(int i) {
        if (!KEPT) { return; }
        const uint32_t* from = (const uint32_t*)cell(i) + lane;
        #pragma unroll
        for (int m = 0; m < 4; m++) {
            const uint32_t pair = from[m * 32];
            kept[i][m] = stored >> i & 1 ? pair : 0;
        }
    }

    // cell i of the tile in use as mma wants it on its left
    DEVICE void piece(uint32_t (&f)[4], int buf, int i) const {
        const int row = (lane / 8 % 2 * 2 + lane / 16) * 64 + lane % 8 * 8;
        const bf16* cell = shared + (buf * 4 * N + i) * CELL;
        if constexpr (SIDE == QUERIES) { ldmatrix_trans(f, cell + row); }
        else if constexpr (!KEPT) { ldmatrix(f, cell + lane * 8); }
        #pragma unroll
        for (int m = 0; KEPT && m < 4; m++) { f[m] = kept[i][m]; }
    }
};

// one tile of rows; head: query head of the chunk, or key head
template <int HS, Side SIDE>
DEVICE void dqk_rows(int head, int tile, bf16* dqkv, const DsChunk& c, const float* ds_star,
                     const bf16* qkv, const bf16* kstar, const acc* turns, const AttnShape& s) {
    typedef DqkTile<HS> Tile;
    constexpr int MT = Tile::MT, ROWS = Tile::ROWS, BX = Tile::BX;
    constexpr bool dq_side = SIDE == QUERIES;
    bf16 *sx = dynamic_smem<bf16>(), *sc = sx + 2 * BX * HS;
    const int r0 = (dq_side ? 0 : c.j0) + tile * ROWS, G = s.NH / s.KV, W = attn_row(s);
    const int bg = c.g0 + (dq_side ? head / G : head), b = bg / s.KV, g = bg % s.KV;
    int h = g * G + (dq_side ? head % G : 0);
    const int h_end = dq_side ? h + 1 : h + G;
    const int lane = threadIdx.x % 32, t2 = lane % 4 * 2, row0 = threadIdx.x / 32 * 16 * MT,
              own = r0 + row0 + lane / 4;
    const bf16* x = qkv + (long)b * s.T * W;
    bf16* out = dqkv + (long)b * s.T * W + (dq_side ? h : s.NH + g) * HS;
    const LaneChunks<HS> by_column = lanes_by_column<HS>();
    const int end = dq_side ? min(min(s.T, c.j1), max(r0 + ROWS, s.prefix)) : s.T;
    constexpr int N = DsCells<HS, SIDE>::N;
    DsCells<HS, SIDE> cells(c, r0 + row0, sc + threadIdx.x / 32 * N * CELL);

    auto next_tile = [&](int at) {
        return dq_side ? next_keys(s, r0, ROWS, at, end, BX) : next_queries(s, r0, ROWS, at, BX);
    };
    auto load = [&](int buf, int h, int at) {
        tile_load<HS, BX>(sx + buf * BX * HS, x + (dq_side ? s.NH + g : h) * HS, W, at, s.T,
                          again(threadIdx.x));
        const int t0 = dq_side ? r0 : at, j0 = dq_side ? at : r0;
        cells.point(s, b * s.NH + h - c.h0, at,
                    tile_full(s, t0, j0, dq_side ? ROWS : BX, dq_side ? BX : ROWS));
        cells.load(buf);
    };
    const int first = next_tile(dq_side ? c.j0 : 0);
    int at = first;
    if (at < end) { load(0, h, at); }
    cp_async_commit();
    #pragma unroll
    for (int i = 0; i < N; i++) { cells.keep(i); }
    float d[MT][HS / 8][4];
    #pragma unroll
    for (int i = 0; i < 2 * MT; i++) { // the extra column's part comes first, or the chunk before
        const int t = min(own + 8 * i, s.T - 1);
        const bf16* ks = dq_side ? attn_star(kstar, s, g) : NULL;
        const float star = dq_side && ks ? ds_star[((long)b * s.NH + h) * s.T + t] : 0.0f;
        #pragma unroll
        for (int n = 0; n < HS / 8; n++) {
            for (int e = 0; e < 2; e++) {
                float& y = d[i / 2][n][i % 2 * 2 + e];
                y = dq_side && ks ? star * (float)ks[8 * n + t2 + e] : 0.0f;
                if (dq_side && c.j0) { y = out[(long)t * W + 8 * n + t2 + e]; }
            }
        }
    }
    for (int buf = 0; h < h_end && first < end; buf ^= 1) {
        int next = next_tile(at + BX), next_h = h;
        if (next >= end) { next = first; next_h++; }
        if (next_h < h_end) { load(buf ^ 1, next_h, next); } else { cells.stored = 0; }
        cp_async_commit();
        cp_async_wait<1>();
        __syncthreads();
        #pragma unroll
        for (int k = 0; k < BX / 16; k++) {
            uint32_t a[MT][4];
            #pragma unroll
            for (int m = 0; m < MT; m++) { cells.piece(a[m], buf, k * MT + m); }
            product_step<HS, MT>(d, a, sx + buf * BX * HS, 16 * k, by_column);
            #pragma unroll
            for (int m = 0; m < MT; m++) { cells.keep(k * MT + m); }
        }
        __syncthreads();
        at = next;
        h = next_h;
    }
    cp_async_wait<0>();
    const bool last = !dq_side || c.j1 >= s.T;
    #pragma unroll
    for (int i = 0; i < MT; i++) {
        if (last) { rows_scale<HS>(d[i], s.scale); }
        if (last && turns) { rows_turn<HS>(d[i], turns, own + 16 * i, t2, s.T); }
        rows_store<HS>(out, W, r0, s.T, sx, row0 + 16 * i, d[i], 1.0f, 1.0f);
    }
}

// blocks (key tiles and G times query tiles, key heads); in either, those with most to do first
template <int HS>
__global__ void __launch_bounds__(128, 2)
    attention_dqk_mma_kernel(bf16* dqkv, DsChunk c, const float* ds_star, const bf16* qkv,
                             const bf16* kstar, const acc* turns, AttnShape s) {
    constexpr int ROWS = DqkTile<HS>::ROWS;
    const int keys = CEIL_DIV(c.j1 - c.j0, ROWS), queries = CEIL_DIV(s.T, ROWS);
    const int head = blockIdx.y, tile = blockIdx.x, i = tile - keys;
    if (i < 0) {
        dqk_rows<HS, KEYS>(head, tile, dqkv, c, ds_star, qkv, kstar, turns, s);
    } else {
        dqk_rows<HS, QUERIES>(head * (s.NH / s.KV) + i / queries, queries - 1 - i % queries, dqkv,
                              c, ds_star, qkv, kstar, turns, s);
    }
}

template <class A, class Bi, class Pe, int HS>
void attention_forward_mma(bf16* out, acc* stat, const bf16* qkv, const bf16* kstar,
                           const bf16* vstar, const AttnShape& s) {
    typedef ForwardTile<HS> Tile;
    static_assert((int)Tile::SMEM <= SMEM_MOST,
                  "the tiles do not fit the shared memory of sm_86 and sm_89");
    const dim3 blocks((unsigned)(s.B * s.NH * CEIL_DIV(s.T, Tile::BQ)));
    LAUNCH((attention_forward_mma_kernel<A, Bi, Pe, HS>), blocks, dim3(128), Tile::SMEM,
           out, stat, qkv, kstar, vstar, s);
}

template <class A, class Bi, class Pe, int HS>
void attention_dqkv_mma(bf16* dqkv, const bf16* dout, RowStats r, const bf16* qkv,
                        const bf16* kstar, const acc* turns, const AttnShape& s, bf16* ds) {
    typedef DvTile<HS, many_registers<A, Pe>> Keys;
    typedef DqkTile<HS> Sums;
    static_assert((int)Keys::SMEM <= SMEM_MOST && (int)Sums::SMEM <= SMEM_MOST, "as above");
    const bf16* ks = Bi::column == KEY_COLUMN ? kstar : NULL;
    const float* ds_star = ks ? r.ds_star : NULL;
    for (int g0 = 0, count; g0 < s.B * s.KV; g0 += count) {
        count = ds_chunk(s, g0, 0).count;
        for (int j0 = 0, j1; j0 < s.T; j0 = j1) {
            DsChunk c = ds_chunk(s, g0, j0);
            c.ds = ds;
            j1 = c.j1;
            const int keys = j1 - j0, G = s.NH / s.KV;
            const int tiles = CEIL_DIV(keys, Sums::ROWS) + G * CEIL_DIV(s.T, Sums::ROWS);
            LAUNCH((attention_dv_mma_kernel<A, Pe, HS>), dim3(CEIL_DIV(keys, Keys::BK), count),
                   dim3(128), Keys::SMEM, dqkv, c, dout, r, qkv, s);
            LAUNCH(attention_dqk_mma_kernel<HS>, dim3(tiles, count), dim3(128), Sums::SMEM, dqkv, c,
                   ds_star, qkv, ks, turns, s);
        }
    }
}

// ---- the two operations
inline bool on_tensor_cores(const AttnShape& s, std::initializer_list<const void*> pointers) {
    for (const void* p : pointers) { if ((uintptr_t)p % 16) { return false; } }
    #define X(D) if (sizeof(real) == 2 && s.HS == D) { return true; }
    MMA_HEADS(X)
    #undef X
    return false;
}

template <class A, class Bi, class Pe>
void attention_forward(real* out, acc* stat, const real* qkv, const real* kstar, const real* vstar,
                       AttnShape s) {
    const bool mma = on_tensor_cores(s, {out, qkv});
    if (!mma) { attention_forward_panels<A, Bi, Pe>(out, stat, qkv, kstar, vstar, s); }
    if constexpr (sizeof(real) == 2) {
#define X(D) \
    if (mma && s.HS == D) { attention_forward_mma<A, Bi, Pe, D>(out, stat, qkv, kstar, vstar, s); }
        MMA_HEADS(X)
        #undef X
    }
}

// these three are in ops.cuh
inline void column_sum(acc* out, const float* part, long K, int C, int stride);
inline void column_sum_part(acc* out, const float* part, long K, int C, int width, int limit);
inline void rope(real* qkv, const acc* table, int sign, AttnShape s);

template <class A, class Bi, class Pe>
void attention_backward(real* dqkv, acc* dkstar, acc* dvstar, const real* dout, const real* out,
                        const acc* stat, const real* qkv, const real* kstar, const real* vstar,
                        const acc* turns, AttnShape s) {
    const bool mma = on_tensor_cores(s, {dqkv, dout, qkv, turns});
    const long rows = (long)s.B * s.NH * s.T, star_tiles = CEIL_DIV(s.T, STAR_ROWS);
    const long parts = s.B * (s.NH / s.KV) * star_tiles, width = s.KV * s.HS;
    const long panels = mma ? 0 : panels_scratch(s),
               stars = Bi::column != NO_COLUMN ? 2 * rows + 2 * parts * width : 0;
    const int TP = rows_padded(s.T);
    const long all_rows = (long)s.B * s.NH * TP + 64;
    const size_t ds = mma ? ds_bytes(s) : 0;
    bf16* cells = (bf16*)device_scratch(ds + (2 * all_rows + stars + panels) * sizeof(float));
    float* scratch = (float*)((char*)cells + ds);
    float *panel = scratch + 2 * all_rows, *star = panel + panels;
    const RowStats r = { scratch, star, star + rows, TP };
    LAUNCH((attention_rows_kernel<A, Bi>), dim3((unsigned)CEIL_DIV(all_rows, 4)), dim3(128), 0,
           r, dout, out, stat, qkv, kstar, vstar, s);
    if (!mma) {
        attention_dqkv_panels<A, Bi, Pe>(dqkv, dout, stat, r, qkv, kstar, s, panel);
    }
    const bool turn_last = turns && (!mma || s.rot != s.HS); // in the kernels a whole head turns
    const acc* turn_now = turn_last ? NULL : turns;
    if constexpr (sizeof(real) == 2) {
        #define X(D) \
            if (mma && s.HS == D) { \
                attention_dqkv_mma<A, Bi, Pe, D>(dqkv, dout, r, qkv, kstar, turn_now, s, cells); \
            }
        MMA_HEADS(X)
        #undef X
    }
    if (turn_last) { rope(dqkv, turns, -1, s); }
    if (Bi::column) {
        float *part_k = star + 2 * rows, *part_v = part_k + parts * width;
        LAUNCH(attention_dstar_kernel, dim3(s.B * s.NH, star_tiles), dim3(128), 0, part_k, part_v,
               dout, r, qkv, s);
        // shared: (parts KV, HS), the same floats
        const long K = s.bias_shared ? parts * s.KV : parts;
        const int C = s.bias_shared ? s.HS : width;
        if (Bi::column == LOGIT_COLUMN && dkstar) {
            LAUNCH(attention_dlogit_kernel, dim3(s.bias_shared ? 1 : s.NH), dim3(128), 0, dkstar, r,
                   s);
        } else if (dkstar) { column_sum_part(dkstar, part_k, K, C, s.HS, s.k_dims); }
        if (dvstar) { column_sum(dvstar, part_v, K, C, C); }
    }
}
} // namespace cuda
#endif // CUDA_ATTENTION_CUH
