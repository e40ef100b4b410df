// ----------------------------------------------------------------------------
// 8 CUDA. Parameters and layouts as in cpu::attention_forward and _backward (reference.h). There are two ways:
//
// on tensor cores, for bf16 and the head dimensions of MMA_HEADS: scores live in registers only;
// by panels, for all else: the scores of some hundred queries at a time go to memory, and cuBLAS makes the products.
//
// Neither allocates a T x T tensor. Sums belong to one block, or one product, which adds in a fixed order: no atomics,
// and the same seed gives the same bits. Both ways go through the functions below, so that a variant is written once.
#ifndef CUDA_ATTENTION_CUH
#define CUDA_ATTENTION_CUH
#include "../attention_variants.cuh"
#include "device.cuh"
namespace cuda {

// the score of query t and key j from their dot product; full: nothing of the tile is masked
template <class A, class Pe>
DEVICE float attn_score(float dot, float scale, bool full, int t, int j, int h, const AttnShape& s) {
    const float score = attn_capped<A>(dot * scale + Pe::template bias<float>(t - j, h, s.NH), s.cap);
    return full || (j < s.T && attn_sees(s, t, j)) ? score : attn_masked<A, float>();
}
// from the dot products x = q.k and y = do.v to the weight and ds / sqrt(HS), in place
template <class A, class Pe>
DEVICE void weight_ds(float& x, float& y, float scale, float alpha, bool full, int t, int j, int h,
                      float stat0, float stat1, float delta, const AttnShape& s) {
    const bool sees = full || (t < s.T && j < s.T && attn_sees(s, t, j));
    const float score = attn_score<A, Pe>(x, scale, full, t, j, h, s);
    x = sees ? attn_weight<A>(score, stat0, stat1) : 0.0f;
    y = sees ? attn_ds<A>(score, x, y, stat0, stat1, delta, s.p, alpha) * attn_slope<A>(score, s.cap) * scale : 0.0f;
}
DEVICE float warp_dot(const real* a, const real* b, int HS) { // NULL counts as zero
    float sum = 0;
    for (int i = threadIdx.x % 32; a && b && i < HS; i += 32) { sum += (float)a[i] * (float)b[i]; }
    return warp_sum(sum);
}
// the score of the extra column for query q of head h, in every lane of a warp
template <class A, class Bi> DEVICE float star_score(const real* q, const real* kstar, int h, const AttnShape& s) {
    const real* star = attn_column<Bi>(kstar, s, h);
    if (Bi::column == LOGIT_COLUMN) { return *star; }
    return attn_capped<A>(warp_dot(q, star, s.HS) * (float)s.scale, s.cap);
}
// where head h of sequence b begins in qkv, for queries, keys and values
HD const real* head_q(const real* qkv, const AttnShape& s, int b, int h) {
    return qkv + (long)b * s.T * attn_row(s) + h * s.HS;
}
HD const real* head_k(const real* qkv, const AttnShape& s, int b, int g) { return head_q(qkv, s, b, s.NH + g); }
HD const real* head_v(const real* qkv, const AttnShape& s, int b, int g) { return head_q(qkv, s, b, s.NH + s.KV + g); }

// ---- what backward needs of a row beside stat: delta, and of the extra column its weight and ds. Row t of head h of
// sequence b is number (b NH + h) T + t in all three. A warp per row
struct RowStats { float *delta, *w_star, *ds_star; };

template <class A, class Bi> __global__ void __launch_bounds__(128)
attention_rows_kernel(RowStats r, const real* dout, const real* out, const acc* stat, const real* qkv,
                      const real* kstar, const real* vstar, AttnShape s) {
    const long row = (long)blockIdx.x * 4 + threadIdx.x / 32;
    if (row >= (long)s.B * s.NH * s.T) { return; }
    const int b = row / s.T / s.NH, h = row / s.T % s.NH, t = row % s.T, g = h / (s.NH / s.KV);
    const long o = ((long)b * s.T + t) * s.NH * s.HS + h * s.HS;
    const float alpha = attn_alpha<A, float>(s), scale = s.scale;
    const float stat0 = stat[row * 2], stat1 = stat[row * 2 + 1];
    const float delta = attn_delta<A>(warp_dot(dout + o, out + o, s.HS), stat1, alpha);
    if (threadIdx.x % 32 == 0) { r.delta[row] = delta; }
    if (Bi::column) {
        const real *q = head_q(qkv, s, b, h) + (long)t * attn_row(s);
        const float s_star = star_score<A, Bi>(q, kstar, h, s), w_star = attn_weight<A>(s_star, stat0, stat1);
        const float dw_star = warp_dot(dout + o, attn_star(vstar, s, g), s.HS);
        const float ds = attn_ds<A>(s_star, w_star, dw_star, stat0, stat1, delta, s.p, alpha);
        const float ds_star = Bi::column == LOGIT_COLUMN ? ds : ds * attn_slope<A>(s_star, s.cap) * scale;
        if (threadIdx.x % 32 == 0) { r.w_star[row] = w_star; r.ds_star[row] = ds_star; }
    }
}
// part_k, part_v (B NH / KV, parts of T, KV, HS) = sums over 64 queries of ds* q and of A* do
enum { STAR_ROWS = 64 };
__global__ void __launch_bounds__(128)
attention_dstar_kernel(float* part_k, float* part_v, const real* dout, RowStats r, const real* qkv, AttnShape s) {
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
        part_k[at + c] = dk;
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

// ---- by panels: any head dimension, either precision. A panel is the scores of up to PANEL_ROWS queries of one head
// and of their keys, for as many sequences as PANEL_FLOATS allow. Between the products stand one kernel forward and one
// backward, with a warp per query. Smaller panels would waste less of the causal triangle (at T 2048 a fifth of the
// work) but read and write dk and dv, which are sums of T / PANEL_ROWS products, more often.
const int  PANEL_ROWS   = shrunk ? 32 : 512;
const long PANEL_FLOATS = shrunk ? 1 << 12 : 1 << 23;
struct Panel { int b, count, h, t0, t1, j0, j1, ld; }; // (count, t1 - t0, ld): sequences b.., queries t0.., keys j0..

inline Panel panel_at(const AttnShape& s, int b, int h, int t0) {
    const int rows = std::min(s.T, PANEL_ROWS), ld = CEIL_DIV(s.T, 8) * 8;       // rows of bf16 aligned to 16 bytes
    const int count = (int)std::min((long)s.B - b, std::max(1L, PANEL_FLOATS / ((long)rows * ld)));
    const int t1 = std::min(s.T, t0 + rows);
    const int j0 = s.window && !s.prefix ? std::max(0, t0 - s.window + 1) / 8 * 8 : 0;
    return Panel{ b, count, h, t0, t1, j0, std::min(s.T, std::max(t1, s.prefix)), ld };
}
inline long panel_floats(const Panel& x) { return (long)x.count * (x.t1 - x.t0) * x.ld; }
inline dim3 panel_grid(const Panel& x)   { return dim3((unsigned)CEIL_DIV(x.count * (x.t1 - x.t0), 4)); }
// Three products. a, b, out: (B, T, *) with rows of wa, wb, wo numbers, from the columns of a head on.
// dots = a_t . b_j
inline void panel_dots(float* dots, const real* a, int wa, const real* b, int wb, const Panel& x, const AttnShape& s) {
    const int rows = x.t1 - x.t0;
    gemm(dots, (const float*)NULL, a + ((long)x.b * s.T + x.t0) * wa, b + ((long)x.b * s.T + x.j0) * wb,
         rows, x.j1 - x.j0, s.HS, false, true,
         Strides{wa, wb, x.ld, x.count, (long)s.T * wa, (long)s.T * wb, (long)rows * x.ld});
}
// out_t = [out_t +] sum_j w_tj b_j
inline void panel_rows(real* out, int wo, bool add, const real* w, const real* b, int wb,
                       const Panel& x, const AttnShape& s) {
    const int rows = x.t1 - x.t0;
    out += ((long)x.b * s.T + x.t0) * wo;
    gemm(out, add ? out : NULL, w, b + ((long)x.b * s.T + x.j0) * wb, rows, s.HS, x.j1 - x.j0, false, false,
         Strides{x.ld, wb, wo, x.count, (long)rows * x.ld, (long)s.T * wb, (long)s.T * wo});
}
// sums_j += sum_t w_tj a_t; sums (count, T, HS)
inline void panel_columns(float* sums, const real* w, const real* a, int wa, const Panel& x, const AttnShape& s) {
    const int rows = x.t1 - x.t0;
    sums += (long)x.j0 * s.HS;
    gemm(sums, sums, w, a + ((long)x.b * s.T + x.t0) * wa, x.j1 - x.j0, s.HS, rows, true, false,
         Strides{x.ld, wa, s.HS, x.count, (long)rows * x.ld, (long)s.T * wa, (long)s.T * s.HS});
}

// weights and stat from dot products; with a v*, out_t = w_star v*, to which the product adds the rest
template <class A, class Bi, class Pe> __global__ void __launch_bounds__(128, 1)
attention_panel_forward_kernel(real* w, real* out, acc* stat, const float* dots, const real* qkv, const real* kstar,
                               const real* vstar, Panel x, AttnShape s) {
    const int n = blockIdx.x * 4 + threadIdx.x / 32, lane = threadIdx.x % 32, rows = x.t1 - x.t0, keys = x.j1 - x.j0;
    if (n >= x.count * rows) { return; }
    const int b = x.b + n / rows, t = x.t0 + n % rows, g = x.h / (s.NH / s.KV);
    const float scale = s.scale, alpha = attn_alpha<A, float>(s), *dots_t = dots + (long)n * x.ld;
    auto score = [&](int j) { return attn_score<A, Pe>(dots_t[j], scale, false, t, x.j0 + j, x.h, s); };
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
    for (int j = lane; j < keys; j += 32) { w[(long)n * x.ld + j] = real(attn_weight<A>(score(j), st[0], st[1])); }
    if (lane < 2) { stat[(((long)b * s.NH + x.h) * s.T + t) * 2 + lane] = lane ? st[1] : st[0]; }
    const real* vs = attn_star(vstar, s, g);
    for (int i = lane; Bi::column && vs && i < s.HS; i += 32) {
        out[(((long)b * s.T + t) * s.NH + x.h) * s.HS + i] = real(attn_weight<A>(s_star, st[0], st[1]) * (float)vs[i]);
    }
}
// weights and ds from both dot products; with a k*, dq_t = ds_star k*
template <class A, class Bi, class Pe> __global__ void __launch_bounds__(128, 1)
attention_panel_backward_kernel(real* w, real* ds, real* dqkv, const float* dots, const float* dw, const acc* stat,
                                RowStats r, const real* kstar, Panel x, AttnShape s) {
    const int n = blockIdx.x * 4 + threadIdx.x / 32, lane = threadIdx.x % 32, rows = x.t1 - x.t0;
    if (n >= x.count * rows) { return; }
    const int b = x.b + n / rows, t = x.t0 + n % rows;
    const long row = ((long)b * s.NH + x.h) * s.T + t, at = (long)n * x.ld;
    const float scale = s.scale, alpha = attn_alpha<A, float>(s);
    const float stat0 = stat[row * 2], stat1 = stat[row * 2 + 1], delta = r.delta[row];
    for (int j = lane; j < x.j1 - x.j0; j += 32) {
        float weight = dots[at + j], d = dw[at + j];
        weight_ds<A, Pe>(weight, d, scale, alpha, false, t, x.j0 + j, x.h, stat0, stat1, delta, s);
        w[at + j] = real(weight);
        ds[at + j] = real(d);
    }
    const real* ks = attn_column<Bi>(kstar, s, x.h);
    for (int i = lane; Bi::column == KEY_COLUMN && ks && i < s.HS; i += 32) {
        dqkv[((long)b * s.T + t) * attn_row(s) + x.h * s.HS + i] = real(r.ds_star[row] * (float)ks[i]);
    }
}
// rows of dqkv, from the columns of a key head g on, <- dk, dv (count, T, HS) of sequences b0..
__global__ void __launch_bounds__(128)
attention_panel_keys_kernel(real* dqkv, const float* dk, const float* dv, int b0, int g, AttnShape s) {
    real* dx = dqkv + ((long)b0 * s.T + blockIdx.x) * attn_row(s) + (s.NH + g) * s.HS;
    for (int i = threadIdx.x; i < s.HS; i += 128) {
        dx[i] = real(dk[(long)blockIdx.x * s.HS + i]);
        dx[s.KV * s.HS + i] = real(dv[(long)blockIdx.x * s.HS + i]);
    }
}
template <class A, class Bi, class Pe>
void attention_forward_panels(real* out, acc* stat, const real* qkv, const real* kstar, const real* vstar,
                              const AttnShape& s) {
    const int W = attn_row(s), O = s.NH * s.HS;
    const long size = panel_floats(panel_at(s, 0, 0, 0));                        // no later one is larger
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
                panel_rows(out + h * s.HS, O, Bi::column && vstar, w, head_v(qkv, s, 0, g), W, x, s);
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
void attention_dqkv_panels(real* dqkv, const real* dout, const acc* stat, RowStats r, const real* qkv,
                           const real* kstar, const AttnShape& s, float* scratch) {
    const int W = attn_row(s), O = s.NH * s.HS, G = s.NH / s.KV;
    const long size = panel_floats(panel_at(s, 0, 0, 0)), sums = (long)panel_at(s, 0, 0, 0).count * s.T * s.HS;
    float *dots = scratch, *dw = dots + size, *dk = scratch + panels_scratch(s) - 2 * sums, *dv = dk + sums;
    real *w = (real*)(dw + size), *ds = w + size;
    for (int b = 0, count; b < s.B; b += count) {
        count = panel_at(s, b, 0, 0).count;
        for (int g = 0; g < s.KV; g++) {
            device_zero(dk, 2 * sums * sizeof(float));
            for (int h = g * G; h < (g + 1) * G; h++) {
                const real *q = head_q(qkv, s, 0, h), *k = head_k(qkv, s, 0, g), *v = head_v(qkv, s, 0, g);
                const real* d = dout + h * s.HS;
                for (int t0 = 0; t0 < s.T; t0 += PANEL_ROWS) {
                    const Panel x = panel_at(s, b, h, t0);
                    panel_dots(dots, q, W, k, W, x, s);
                    panel_dots(dw, d, O, v, W, x, s);
                    LAUNCH((attention_panel_backward_kernel<A, Bi, Pe>), panel_grid(x), dim3(128), 0,
                           w, ds, dqkv, dots, dw, stat, r, kstar, x, s);
                    panel_rows(dqkv + h * s.HS, W, Bi::column == KEY_COLUMN && kstar, ds, k, W, x, s);
                    panel_columns(dk, ds, q, W, x, s);
                    panel_columns(dv, w, d, O, x, s);
                }
            }
            LAUNCH(attention_panel_keys_kernel, dim3(count * s.T), dim3(128), 0, dqkv, dk, dv, b, g, s);
        }
    }
}

// ---- on tensor cores: bf16 and the head dimensions of MMA_HEADS. A block of 4 warps; each warp owns rows of its tile
// and everything about them, so weights go from the registers of one product into those of the next (a C fragment is
// half an A fragment) and never through memory. Tiles of the other operand arrive by cp.async, one ahead.
#ifndef MMA_HEADS
#define MMA_HEADS(X) X(64) X(96) X(128) X(192)
#endif
enum { SMEM_MOST = 99 << 10 }; // what a block may ask for on sm_86 and sm_89; 163 KiB on sm_80, 227 on sm_90

// is a tile of queries t0.. and keys j0.. all masked; is nothing of it masked
DEVICE bool tile_empty(const AttnShape& s, int t0, int j0, int queries, int keys) {
    return attn_tile_empty(s, t0, min(t0 + queries, s.T), j0, min(j0 + keys, s.T));
}
DEVICE bool tile_full(const AttnShape& s, int t0, int j0, int queries, int keys) {
    return max(t0 + queries, j0 + keys) <= s.T && attn_tile_full(s, t0, t0 + queries, j0, j0 + keys);
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
// where 8 columns of a row of a tile (rows, HS) stand: swizzled, so that 8 rows of ldmatrix meet 8 groups of banks
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
            for (int m = 0; m < MT; m++) {
                mma(c[m][2 * n], fa[m], fb[0], fb[1]);
                mma(c[m][2 * n + 1], fa[m], fb[2], fb[3]);
            }
        }
    }
}
// c (16 MT, HS) += w (16 MT, N), in registers, times the N rows of x
template <int HS, int MT, int N>
DEVICE void product_weights(float (&c)[MT][HS / 8][4], const float (&w)[MT][N / 8][4], bf16* x) {
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
            for (int m = 0; m < MT; m++) {
                mma(c[m][2 * n], fa[m], fb[0], fb[1]);
                mma(c[m][2 * n + 1], fa[m], fb[2], fb[3]);
            }
        }
    }
}
// 16 rows of the warp, times one factor for each of the thread's two, to rows t0.. of out. They pass through the rows
// of a tile that only this warp reads, to leave 16 bytes at a time
template <int HS>
DEVICE void rows_store(bf16* out, long stride, int t0, int T, bf16* tile, int row0, const float (&c)[HS / 8][4],
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
// what rope does with a pair. Rounded after every operation, never fused, so that all who turn give the same bits
DEVICE void turn_pair(float& a, float& b, float co, float si) {
    const float x = __fmul_rn(a, co) - __fmul_rn(b, si);
    b = __fmul_rn(a, si) + __fmul_rn(b, co);
    a = x;
}
// 16 rows of the warp turn back by the table (T, HS/2, 2), rounded to bf16 first: the same bits as rope(.., -1, ..) on
// what rows_store would have stored. A thread holds both numbers of a pair, so none has to move
template <int HS> DEVICE void rows_turn(float (&c)[HS / 8][4], const float* turns, int own, int t2, int T) {
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
// sums and maxima over the 4 lanes that share a row
DEVICE float quad_sum(float v) { v += __shfl_xor_sync(~0u, v, 1); return v + __shfl_xor_sync(~0u, v, 2); }
DEVICE float quad_max(float v) {
    v = fmaxf(v, __shfl_xor_sync(~0u, v, 1));
    return fmaxf(v, __shfl_xor_sync(~0u, v, 2));
}

// What a thread holds of its 2 MT rows, which are own + 8 r: the largest score so far, the sum under Z relative to it,
// and of the output two of every 8 columns, from t2 = 0, 2, 4 or 6 on
template <int HS, int MT> struct OnlineRows { float m[2 * MT], l[2 * MT], o[MT][HS / 8][4]; };

// the extra column is the state that the loop over keys starts from
template <class A, class Bi, int HS, int MT>
DEVICE void online_start(OnlineRows<HS, MT>& x, const bf16* q, const bf16* ks, const bf16* vs, float scale,
                         int own, int t2, const AttnShape& s) {
    #pragma unroll
    for (int r = 0; r < 2 * MT; r++) {
        float s_star = 0;
        if (Bi::column && ks) {
            const bf16* q_t = q + (long)min(own + 8 * r, s.T - 1) * attn_row(s);
            for (int i = t2 / 2; i < HS; i += 4) { s_star += (float)q_t[i] * (float)ks[i]; }
            s_star = quad_sum(s_star) * scale;
        }
        const float w_star = !Bi::column ? 0.0f : A::exp_family ? 1.0f : A::sim(s_star);
        x.m[r] = Bi::column ? s_star : -INFINITY;
        x.l[r] = attn_mass<A>(w_star, s.p);
        #pragma unroll
        for (int n = 0; n < HS / 8; n++) {
            for (int e = 0; e < 2; e++) {
                x.o[r / 2][n][r % 2 * 2 + e] = Bi::column && vs ? w_star * (float)vs[8 * n + t2 + e] : 0.0f;
            }
        }
    }
}
// N keys from j on: dot products become weights, in place, and join the rows' sums
template <class A, class Pe, int HS, int MT, int N>
DEVICE void online_add(OnlineRows<HS, MT>& x, float (&w)[MT][N / 8][4], float scale, bool full, int own, int j, int h,
                       const AttnShape& s) {
    #pragma unroll
    for (int r = 0; r < 2 * MT; r++) {
        float top = x.m[r], shrink = 1, sum = 0;
        #pragma unroll
        for (int n = 0; n < N / 8; n++) {
            #pragma unroll
            for (int e = 0; e < 2; e++) {
                float& w_j = w[r / 2][n][r % 2 * 2 + e];
                w_j = attn_score<A, Pe>(w_j, scale, full, own + 8 * r, j + 8 * n + e, h, s);
                top = fmaxf(top, w_j);
            }
        }
        if (A::exp_family) {
            top = quad_max(top);
            const float base = top == -INFINITY ? 0.0f : top;                    // a row that has seen no key yet
            shrink = exp_(x.m[r] - base);
            x.m[r] = top;
            top = base;
        }
        #pragma unroll
        for (int n = 0; n < N / 8; n++) {
            #pragma unroll
            for (int e = 0; e < 2; e++) {
                float& w_j = w[r / 2][n][r % 2 * 2 + e];
                w_j = A::exp_family ? exp_(w_j - top) : A::sim(w_j);
                sum += attn_mass<A>(w_j, s.p);
            }
        }
        x.l[r] = x.l[r] * (A::exp_family ? attn_mass<A>(shrink, s.p) : 1.0f) + quad_sum(sum);
        #pragma unroll
        for (int n = 0; A::exp_family && n < HS / 8; n++) {
            for (int e = 0; e < 2; e++) { x.o[r / 2][n][r % 2 * 2 + e] *= shrink; }
        }
    }
}
// 128 queries a block, 32 a warp; tiles of as many keys as fit the registers without spills. HS 192: half the queries
template <int HS> struct ForwardTile {
    enum { MT = HS > 128 ? 1 : 2, BQ = 64 * MT, BK = HS > 96 ? 32 : HS > 64 ? 48 : 64, SMEM = (BQ + 4 * BK) * HS * 2 };
};
template <class A, class Bi, class Pe, int HS> __global__ void __launch_bounds__(128)
attention_forward_mma_kernel(bf16* out, acc* stat, const bf16* qkv, const bf16* kstar, const bf16* vstar, AttnShape s) {
    constexpr int MT = ForwardTile<HS>::MT, BQ = ForwardTile<HS>::BQ, BK = ForwardTile<HS>::BK;
    bf16 *sq = dynamic_smem<bf16>(), *sk = sq + BQ * HS, *sv = sk + 2 * BK * HS;     // Q; two tiles each of K and V
    const int b = blockIdx.x / s.NH, h = blockIdx.x % s.NH, g = h / (s.NH / s.KV), W = attn_row(s);
    const int t0 = (gridDim.y - 1 - blockIdx.y) * BQ;                                // those with most keys start first
    const int lane = threadIdx.x % 32, t2 = lane % 4 * 2, row0 = threadIdx.x / 32 * 16 * MT, own = t0 + row0 + lane / 4;
    const bf16 *q = qkv + (long)b * s.T * W + h * HS, *k = q + (s.NH + g - h) * HS, *v = k + s.KV * HS;
    const float scale = s.scale;
    const int end = min(s.T, max(t0 + BQ, s.prefix));

    OnlineRows<HS, MT> x;                                                    // before the loads: twenty registers less
    online_start<A, Bi>(x, q, attn_star(kstar, s, g), attn_star(vstar, s, g), scale, own, t2, s);
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
        cp_async_wait<1>();                                                          // all but the tile just asked for
        __syncthreads();
        float w[MT][BK / 8][4];
        product_rows<HS, MT, BK>(w, sq, row0, sk + buf * BK * HS);
        online_add<A, Pe, HS, MT, BK>(x, w, scale, tile_full(s, t0, j0, BQ, BK), own, j0 + t2, h, s);
        product_weights<HS, MT, BK>(x.o, w, sv + buf * BK * HS);
        __syncthreads();                                                         // before this buffer is filled again
        j0 = next;
    }
    float factor[2 * MT], st[2];
    #pragma unroll
    for (int r = 0; r < 2 * MT; r++) {
        factor[r] = attn_stat<A>(st, x.m[r], x.l[r], s.p, attn_alpha<A, float>(s));
        if (t2 == 0 && own + 8 * r < s.T) {
            acc* stat_t = stat + ((long)blockIdx.x * s.T + own + 8 * r) * 2;
            stat_t[0] = st[0];
            stat_t[1] = st[1];
        }
    }
    #pragma unroll
    for (int i = 0; i < MT; i++) {
        rows_store<HS>(out + (long)b * s.T * s.NH * HS + h * HS, s.NH * HS, t0, s.T, sq, row0 + 16 * i, x.o[i],
                       factor[2 * i], factor[2 * i + 1]);
    }
}

// dq_t = sum_j ds_tj k_j: 64 queries a block, 16 a warp
template <int HS> struct DqTile { enum { BQ = 64, BK = HS > 96 ? 32 : 64, SMEM = (2 * BQ + 4 * BK) * HS * 2 }; };
template <class A, class Bi, class Pe, int HS> __global__ void __launch_bounds__(128)
attention_dq_mma_kernel(bf16* dqkv, const bf16* dout, const acc* stat, RowStats r, const bf16* qkv, const bf16* kstar,
                        const acc* turns, AttnShape s) {
    constexpr int BQ = DqTile<HS>::BQ, BK = DqTile<HS>::BK;
    bf16 *sq = dynamic_smem<bf16>(), *sd = sq + BQ * HS, *sk = sd + BQ * HS, *sv = sk + 2 * BK * HS;
    const int b = blockIdx.x / s.NH, h = blockIdx.x % s.NH, g = h / (s.NH / s.KV), W = attn_row(s);
    const int t0 = (gridDim.y - 1 - blockIdx.y) * BQ;
    const int lane = threadIdx.x % 32, t2 = lane % 4 * 2, row0 = threadIdx.x / 32 * 16, own = t0 + row0 + lane / 4;
    const bf16 *q = qkv + (long)b * s.T * W + h * HS, *k = q + (s.NH + g - h) * HS, *v = k + s.KV * HS;
    const bf16 *d = dout + (long)b * s.T * s.NH * HS + h * HS, *ks = attn_star(kstar, s, g);
    const float scale = s.scale, alpha = attn_alpha<A, float>(s);
    const int end = min(s.T, max(t0 + BQ, s.prefix));

    tile_load<HS, BQ>(sq, q, W, t0, s.T);
    tile_load<HS, BQ>(sd, d, s.NH * HS, t0, s.T);
    int j0 = next_keys(s, t0, BQ, 0, end, BK);
    tile_load<HS, BK>(sk, k, W, j0, s.T);
    tile_load<HS, BK>(sv, v, W, j0, s.T);
    cp_async_commit();
    float dq[1][HS / 8][4], stat0[2], stat1[2], delta[2];
    #pragma unroll
    for (int i = 0; i < 2; i++) { // the extra column's part comes first
        const long row = (long)blockIdx.x * s.T + min(own + 8 * i, s.T - 1);
        const float ds_star = Bi::column && ks ? r.ds_star[row] : 0.0f;
        stat0[i] = stat[row * 2];
        stat1[i] = stat[row * 2 + 1];
        delta[i] = r.delta[row];
        #pragma unroll
        for (int n = 0; n < HS / 8; n++) {
            for (int e = 0; e < 2; e++) {
                dq[0][n][2 * i + e] = Bi::column && ks ? ds_star * (float)ks[8 * n + t2 + e] : 0.0f;
            }
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
                weight_ds<A, Pe>(w[0][n][e], ds[0][n][e], scale, alpha, full, own + e / 2 * 8, j0 + 8 * n + t2 + e % 2,
                                 h, stat0[e / 2], stat1[e / 2], delta[e / 2], s);
            }
        }
        product_weights<HS, 1, BK>(dq, ds, sk + buf * BK * HS);
        __syncthreads();
        j0 = next;
    }
    if (turns) { rows_turn<HS>(dq[0], turns, own, t2, s.T); }
    rows_store<HS>(dqkv + (long)b * s.T * W + h * HS, W, t0, s.T, sq, row0, dq[0], 1.0f, 1.0f);
}

// dk_j = sum_t ds_tj q_t, dv_j = sum_t A_tj do_t, over all query heads that share these keys: 64 keys a block, 16 a
// warp, with the transposed tiles S^T = k q^T and dA^T = v do^T. Two sums of HS 192 do not fit the registers: there OUT
// is one of them, and S is computed twice
enum { DK = 1, DV = 2 };
template <int HS> struct DkvTile {
    enum { BQ = HS > 96 ? 32 : 64, BK = 64, SMEM = (2 * BK + 4 * BQ) * HS * 2 + 2 * BQ * 3 * 4 };
};
template <class A, class Pe, int HS, int OUT> __global__ void __launch_bounds__(128, 2)
attention_dkv_mma_kernel(bf16* dqkv, const bf16* dout, const acc* stat, RowStats r, const bf16* qkv, const acc* turns,
                         AttnShape s) {
    constexpr int BQ = DkvTile<HS>::BQ, BK = DkvTile<HS>::BK;
    bf16 *sk = dynamic_smem<bf16>(), *sv = sk + BK * HS, *sq = sv + BK * HS, *sd = sq + 2 * BQ * HS;
    float* rows = (float*)(sd + 2 * BQ * HS);                                    // (2, BQ, 3): stat and delta
    const int b = blockIdx.x / s.KV, g = blockIdx.x % s.KV, j0 = blockIdx.y * BK, W = attn_row(s), G = s.NH / s.KV;
    const int lane = threadIdx.x % 32, t2 = lane % 4 * 2, row0 = threadIdx.x / 32 * 16, own = j0 + row0 + lane / 4;
    const bf16 *x = qkv + (long)b * s.T * W, *k = x + (s.NH + g) * HS, *v = k + s.KV * HS;
    const float scale = s.scale, alpha = attn_alpha<A, float>(s);
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
        float w[1][BQ / 8][4], ds[1][BQ / 8][4] = {};
        product_rows<HS, 1, BQ>(w, sk, row0, sq + buf * BQ * HS);
        if constexpr (OUT & DK) { product_rows<HS, 1, BQ>(ds, sv, row0, sd + buf * BQ * HS); }
        #pragma unroll
        for (int n = 0; n < BQ / 8; n++) {
            const float* st = rows + (buf * BQ + 8 * n + t2) * 3;
            #pragma unroll
            for (int e = 0; e < 4; e++) {
                const float* st_t = st + e % 2 * 3;
                weight_ds<A, Pe>(w[0][n][e], ds[0][n][e], scale, alpha, full, t0 + 8 * n + t2 + e % 2, own + e / 2 * 8,
                                 h, st_t[0], st_t[1], st_t[2], s);
            }
        }
        if constexpr (OUT & DV) { product_weights<HS, 1, BQ>(dv, w, sd + buf * BQ * HS); }
        if constexpr (OUT & DK) { product_weights<HS, 1, BQ>(dk, ds, sq + buf * BQ * HS); }
        __syncthreads();
        t0 = next;
        h = next_h;
    }
    cp_async_wait<0>();                                      // keys that no query sees: nothing has been waited for
    __syncthreads();
    bf16* dx = dqkv + (long)b * s.T * W + (s.NH + g) * HS;
    if constexpr (OUT & DK) {
        if (turns) { rows_turn<HS>(dk[0], turns, own, t2, s.T); }
        rows_store<HS>(dx, W, j0, s.T, sk, row0, dk[0], 1.0f, 1.0f);
    }
    if constexpr (OUT & DV) { rows_store<HS>(dx + s.KV * HS, W, j0, s.T, sv, row0, dv[0], 1.0f, 1.0f); }
}

template <class A, class Bi, class Pe, int HS>
void attention_forward_mma(bf16* out, acc* stat, const bf16* qkv, const bf16* kstar, const bf16* vstar,
                           const AttnShape& s) {
    typedef ForwardTile<HS> Tile;
    static_assert((int)Tile::SMEM <= SMEM_MOST, "the tiles do not fit the shared memory of sm_86 and sm_89");
    const dim3 blocks(s.B * s.NH, CEIL_DIV(s.T, Tile::BQ));
    LAUNCH((attention_forward_mma_kernel<A, Bi, Pe, HS>), blocks, dim3(128), Tile::SMEM,
           out, stat, qkv, kstar, vstar, s);
}
template <class A, class Bi, class Pe, int HS>
void attention_dqkv_mma(bf16* dqkv, const bf16* dout, const acc* stat, RowStats r, const bf16* qkv, const bf16* kstar,
                        const acc* turns, const AttnShape& s) {
    typedef DqTile<HS> Queries;
    typedef DkvTile<HS> Keys;
    static_assert((int)Queries::SMEM <= SMEM_MOST && (int)Keys::SMEM <= SMEM_MOST, "as above");
    constexpr int first = HS > 128 ? DK : DK | DV;
    const dim3 queries(s.B * s.NH, CEIL_DIV(s.T, Queries::BQ)), keys(s.B * s.KV, CEIL_DIV(s.T, Keys::BK));
    LAUNCH((attention_dq_mma_kernel<A, Bi, Pe, HS>), queries, dim3(128), Queries::SMEM,
           dqkv, dout, stat, r, qkv, kstar, turns, s);
    LAUNCH((attention_dkv_mma_kernel<A, Pe, HS, first>), keys, dim3(128), Keys::SMEM,
           dqkv, dout, stat, r, qkv, turns, s);
    if constexpr (first == DK) {
        LAUNCH((attention_dkv_mma_kernel<A, Pe, HS, DV>), keys, dim3(128), Keys::SMEM,
               dqkv, dout, stat, r, qkv, turns, s);
    }
}

// ---- the two operations. These variants go by panels everywhere
template <class A, class Bi> constexpr bool by_panels = A::capped || A::Z == Z_ABS || Bi::column == LOGIT_COLUMN;
inline bool on_tensor_cores(const AttnShape& s, std::initializer_list<const void*> pointers) {
    for (const void* p : pointers) { if ((uintptr_t)p % 16) { return false; } }
    #define X(D) if (sizeof(real) == 2 && s.HS == D) { return true; }
    MMA_HEADS(X)
    #undef X
    return false;
}
template <class A, class Bi, class Pe>
void attention_forward(real* out, acc* stat, const real* qkv, const real* kstar, const real* vstar, AttnShape s) {
    const bool mma = !by_panels<A, Bi> && on_tensor_cores(s, {out, qkv});
    if (!mma) { attention_forward_panels<A, Bi, Pe>(out, stat, qkv, kstar, vstar, s); }
    if constexpr (sizeof(real) == 2 && !by_panels<A, Bi>) {
        #define X(D) if (mma && s.HS == D) { attention_forward_mma<A, Bi, Pe, D>(out, stat, qkv, kstar, vstar, s); }
        MMA_HEADS(X)
        #undef X
    }
}
inline void column_sum(acc* out, const float* part, long K, int C, int width, int limit); // both in cuda_ops.cuh
inline void rope(real* qkv, const acc* table, int sign, AttnShape s);

template <class A, class Bi, class Pe>
void attention_backward(real* dqkv, acc* dkstar, acc* dvstar, const real* dout, const real* out, const acc* stat,
                        const real* qkv, const real* kstar, const real* vstar, const acc* turns, AttnShape s) {
    const bool mma = !by_panels<A, Bi> && on_tensor_cores(s, {dqkv, dout, qkv, turns});
    const long rows = (long)s.B * s.NH * s.T, star_tiles = CEIL_DIV(s.T, STAR_ROWS);
    const long parts = s.B * (s.NH / s.KV) * star_tiles, width = s.KV * s.HS;
    const long panels = mma ? 0 : panels_scratch(s), stars = Bi::column != NO_COLUMN ? 2 * rows + 2 * parts * width : 0;
    float *scratch = (float*)device_scratch((panels + rows + stars) * sizeof(float)), *delta = scratch + panels;
    const RowStats r = { delta, delta + rows, delta + 2 * rows };
    LAUNCH((attention_rows_kernel<A, Bi>), dim3((unsigned)CEIL_DIV(rows, 4)), dim3(128), 0,
           r, dout, out, stat, qkv, kstar, vstar, s);
    if (!mma) {
        attention_dqkv_panels<A, Bi, Pe>(dqkv, dout, stat, r, qkv, kstar, s, scratch);
    }
    const bool turn_last = turns && (!mma || s.rot != s.HS);                     // in the kernels a whole head turns
    if constexpr (sizeof(real) == 2 && !by_panels<A, Bi>) {
        #define X(D) \
            if (mma && s.HS == D) { attention_dqkv_mma<A, Bi, Pe, D>(dqkv, dout, stat, r, qkv, kstar, turn_last ? NULL : turns, s); }
        MMA_HEADS(X)
        #undef X
    }
    if (turn_last) { rope(dqkv, turns, -1, s); }
    if (Bi::column) {
        float *part_k = delta + 3 * rows, *part_v = part_k + parts * width;
        LAUNCH(attention_dstar_kernel, dim3(s.B * s.NH, star_tiles), dim3(128), 0, part_k, part_v, dout, r, qkv, s);
        const long K = s.bias_shared ? parts * s.KV : parts;                 // shared: (parts KV, HS), the same floats
        const int C = s.bias_shared ? s.HS : width;
        if (Bi::column == LOGIT_COLUMN && dkstar) {
            LAUNCH(attention_dlogit_kernel, dim3(s.bias_shared ? 1 : s.NH), dim3(128), 0, dkstar, r, s);
        } else if (dkstar) { column_sum(dkstar, part_k, K, C, s.HS, s.k_dims); }
        if (dvstar) { column_sum(dvstar, part_v, K, C, s.HS, s.HS); }
    }
}
} // namespace cuda
#endif // CUDA_ATTENTION_CUH
