/*
norms.cuh -- norms of rows, and of queries and keys.
*/
#ifndef CUDA_NORMS_CUH
#define CUDA_NORMS_CUH
#include "../attention_variants.cuh"
#include "../operands.h"
#include "matmul.cuh"

namespace cuda {
// A warp normalizes a row. Its lanes hold the row in K registers of N values each, so that they
// read it once. Where it is too long for that, K is 0 and they read it again in each pass. FOR_ROW:
// c is the first column of the lane's chunk k.
#define FOR_ROW(k, c, N, K, C) \
    for (int k = 0, c = threadIdx.x % 32 * N; K ? k < K : c < C; k++, c += 32 * N) if (c < C)
template <int N, int K> struct WarpRow {
    const real* x;
    Vec<real, N> own[K ? K : 1];

    DEVICE WarpRow(const real* x, int C) : x(x) {
        if constexpr (K > 0) {
            #pragma unroll
            FOR_ROW(k, c, N, K, C) { own[k] = load<N>(x + c); }
        }
    }

    DEVICE Vec<float, N> at(int k, int c) const {
        if constexpr (K > 0) { return to_floats<N>(own[k]); } else { return load_real<N>(x + c); }
    }
};
// LAUNCH_NORM(kernel, rows are wide, C, grid, block, shared memory, arguments...) launches it with
// the K that C needs; LAUNCH_KEPT does for rows that registers hold.
#define LAUNCH_KEPT(kernel, C, ...) \
    if ((C) <= 4 * 32 * VN) { LAUNCH((kernel<VN, 4>), __VA_ARGS__); } \
    else                    { LAUNCH((kernel<VN, 8>), __VA_ARGS__); }
#define LAUNCH_NORM(kernel, ok, C, ...) \
    if (!(ok))                  { LAUNCH((kernel<1, 0>), __VA_ARGS__); } \
    else if ((C) > 8 * 32 * VN) { LAUNCH((kernel<VN, 0>), __VA_ARGS__); } \
    else                        { LAUNCH_KEPT(kernel, C, __VA_ARGS__) }

template <int N, int K>
__global__ void __launch_bounds__(32 * ROW_WARPS)
    norm_forward_kernel(real* out, NormStats<acc> stats, const real* x,
                        NormWeights<const real> weights, NormShape s) {
    const int n = warp_number(), C = s.C;
    if (n >= s.N) { return; }
    const WarpRow<N, K> row(x + (long)n * C, C);
    float m = 0;
    if (stats.mean) {
        float sum = 0;
        #pragma unroll
        FOR_ROW(k, c, N, K, C) {
            const Vec<float, N> v = row.at(k, c);
            for (int i = 0; i < N; i++) { sum += v[i]; }
        }
        m = warp_sum(sum) / C;
    }
    float squares = 0;
    #pragma unroll
    FOR_ROW(k, c, N, K, C) {
        const Vec<float, N> v = row.at(k, c);
        for (int i = 0; i < N; i++) { squares += (v[i] - m) * (v[i] - m); }
    }
    const float r = 1.0f / sqrtf(warp_sum(squares) / C + s.eps);
    real* out_n = out + (long)n * C;
    #pragma unroll
    FOR_ROW(k, c, N, K, C) {
        Vec<float, N> v = row.at(k, c);
        const Vec<float, N> w = load_real_or<N>(1, weights.weight, c);
        const Vec<float, N> b = load_real_or<N>(0, weights.bias, c);
        for (int i = 0; i < N; i++) { v[i] = (v[i] - m) * r * w[i] + b[i]; }
        store_real<N>(out_n + c, v);
    }
    if (threadIdx.x % 32 > 0) { return; }
    stats.rstd[n] = r;
    if (stats.mean) { stats.mean[n] = m; }
}

inline void norm_forward(real* out, NormStats<acc> stats, const real* inp,
                         NormWeights<const real> weights, NormShape s) {
    const bool ok = wide(s.C, { out, inp, weights.weight, weights.bias });
    LAUNCH_NORM(norm_forward_kernel, ok, s.C, warp_grid(s.N), dim3(32 * ROW_WARPS), 0, out, stats,
                inp, weights, s)
}

// The backward pass. A block takes NORM_ROWS rows, a warp one at a time, and keeps its sums in
// registers too, or, where K is 0, in shared memory. They go to part: (blocks, C) for dweight, with
// SUM_BIAS (blocks, 2, C) for dweight and dbias.
enum { NORM_ROWS = 64 };

// A warp's sums over rows, C floats.
template <int N, int K> struct WarpSums {
    Vec<float, N> kept[K ? K : 1];
    float* own;

    DEVICE WarpSums(float* own, int C) : kept{}, own(own) {
        if (!K) { FOR_ROW(k, c, N, K, C) { store_floats(own + c, Vec<float, N>{}); } }
    }
    DEVICE Vec<float, N> at(int k, int c) const {
        if constexpr (K > 0) { return kept[k]; } else { return load_floats<N>(own + c); }
    }
    DEVICE void set(int k, int c, const Vec<float, N>& x) {
        if (K) { kept[K ? k : 0] = x; } else { store_floats(own + c, x); }
    }

    // Adds up the sums of all warps, which stand C floats apart from `all` on: out (C).
    DEVICE void join(float* out, const float* all, int C) {
        #pragma unroll
        FOR_ROW(k, c, N, K, C) { if (K) { store_floats(own + c, kept[K ? k : 0]); } }
        __syncthreads();
        for (int c = threadIdx.x; c < C; c += blockDim.x) {
            float sum = 0;
            for (int w = 0; w < (int)blockDim.x / 32; w++) { sum += all[w * C + c]; }
            out[c] = sum;
        }
        __syncthreads();
    }
};

// Returns how many warps may have sums of C floats in 48 KiB.
inline int sum_warps(int C) { return std::max(1, std::min(8, 12288 / C)); }

struct NormBackward {
    const real *dout, *x, *weight;
    const acc *mean, *rstd;
    bool add;              // to dx
    int rows, C;
};

template <int N, int K, bool SUM_BIAS>
DEVICE void norm_backward_rows(real* dx, float* part, const NormBackward& a) {
    const int warps = blockDim.x / 32, warp = threadIdx.x / 32, C = a.C;
    float *all = dynamic_smem<float>(), *out = part + (long)blockIdx.x * C * (SUM_BIAS ? 2 : 1);
    WarpSums<N, K> dw(all + warp * C, C);
    // registers would not hold both
    WarpSums<N, K <= 4 ? K : 0> db(all + ((SUM_BIAS ? warps : 0) + warp) * C, SUM_BIAS ? C : 0);
    const int n1 = min(a.rows, (int)(blockIdx.x + 1) * NORM_ROWS);
    for (int n = blockIdx.x * NORM_ROWS + warp; n < n1; n += warps) {
        const long at = (long)n * C;
        const WarpRow<N, K> d_n(a.dout + at, C), x_n(a.x + at, C);
        real* dx_n = dx + at;
        const float m = a.mean ? a.mean[n] : 0.0f, r = a.rstd[n];
        float dot = 0, sum = 0;
        #pragma unroll
        FOR_ROW(k, c, N, K, C) {
            const Vec<float, N> d = d_n.at(k, c), v = x_n.at(k, c);
            const Vec<float, N> w = load_real_or<N>(1, a.weight, c);
            for (int i = 0; i < N; i++) {
                const float dy = d[i] * w[i];
                dot += dy * (v[i] - m);
                sum += dy;
            }
        }
        const float f = r * r * r * warp_sum(dot) / C;
        const float r_mean = a.mean ? r * warp_sum(sum) / C : 0.0f;
        #pragma unroll
        FOR_ROW(k, c, N, K, C) {
            const Vec<float, N> d = d_n.at(k, c), v = x_n.at(k, c);
            const Vec<float, N> w = load_real_or<N>(1, a.weight, c);
            Vec<float, N> g = a.add ? load_real<N>(dx_n + c) : all_of<N>(0);
            Vec<float, N> dw_c = dw.at(k, c), db_c;
            if (SUM_BIAS) { db_c = db.at(k, c); }
            for (int i = 0; i < N; i++) {
                const float x = v[i] - m;
                dw_c[i] += d[i] * x * r;
                if (SUM_BIAS) { db_c[i] += d[i]; }
                g[i] += d[i] * w[i] * r - x * f - r_mean;
            }
            dw.set(k, c, dw_c);
            if (SUM_BIAS) { db.set(k, c, db_c); }
            store_real<N>(dx_n + c, g);
        }
    }
    dw.join(out, all, C);
    if (SUM_BIAS) { db.join(out + C, all + warps * C, C); }
}

template <int N, int K>
__global__ void __launch_bounds__(256)
    norm_backward_kernel(real* dx, float* part, NormBackward a) {
    norm_backward_rows<N, K, false>(dx, part, a);
}

template <int N, int K>
__global__ void __launch_bounds__(256)
    norm_backward_bias_kernel(real* dx, float* part, NormBackward a) {
    norm_backward_rows<N, K, true>(dx, part, a);
}

inline void norm_backward(real* dx, NormWeights<acc> grads, const real* dout, const real* x,
                          const real* weight, NormStats<const acc> stats, bool add, NormShape s) {
    const int N = s.N;
    const int C = s.C;
    const bool ok = wide(C, { dx, dout, x, weight });
    const bool both = grads.bias && ok && C <= 8 * 32 * VN;
    // before dx, which may be dout
    if (grads.bias && !both) { matmul_backward_bias(grads.bias, dout, N, C); }
    const int W = both ? 2 * C : C, blocks = CEIL_DIV(N, NORM_ROWS), warps = sum_warps(W);
    const size_t smem = warps * W * sizeof(float);
    float* part = (float*)device_scratch((size_t)blocks * W * sizeof(float));
    const NormBackward a = { dout, x, weight, stats.mean, stats.rstd, add, N, C };
    if (both) {
        LAUNCH_KEPT(norm_backward_bias_kernel, C, dim3(blocks), dim3(32 * warps), smem, dx, part,
                    a)
        column_sum(grads.bias, part + C, blocks, C, W);
    } else {
        LAUNCH_NORM(norm_backward_kernel, ok, C, dim3(blocks), dim3(32 * warps), smem, dx, part,
                    a)
    }
    if (grads.weight) { column_sum(grads.weight, part, blocks, C, W); }
}

// ----------------------------------------------------------------------------
// Norms of queries and keys. A side is q (0) or k (1): groups of channels of a row of qkv, each
// with a norm of its own.
struct QkSide {
    int groups, C;         // of C channels
    int from;              // the first one's column in qkv
    int first, G;          // and its number among the G groups of a row
};
HD QkSide qk_side(int side, bool all, const AttnShape& s) {
    const int heads = side ? s.KV : s.NH, groups_q = all ? 1 : s.NH;
    return { all ? 1 : heads, all ? heads * s.HS : s.HS, side ? s.NH * s.HS : 0,
             side ? groups_q : 0, all ? 2 : s.NH + s.KV };
}

// Normalizes queries and keys in place, a warp per group of a row.
template <int N, int K>
__global__ void __launch_bounds__(32 * ROW_WARPS)
    qk_norm_forward_kernel(real* qkv, real* qk_in, acc* rstd, QkWeights<const real> weights,
                           bool all, float eps, AttnShape s) {
    const int G = qk_side(0, all, s).G;
    const long i = warp_number(), bt = i / G;
    if (bt >= (long)s.B * s.T) { return; }
    const int g = i % G, side = g >= qk_side(1, all, s).first;
    const QkSide q = qk_side(side, all, s);
    const int at = q.from + (g - q.first) * q.C;
    real *x = qkv + bt * attn_row(s) + at, *saved = qk_in + bt * (s.NH + s.KV) * s.HS + at;
    const real* weight = side ? weights.k : weights.q;
    const WarpRow<N, K> row(x, q.C);
    float sum = 0;
    #pragma unroll
    FOR_ROW(k, c, N, K, q.C) {
        const Vec<float, N> v = row.at(k, c);
        for (int i = 0; i < N; i++) { sum += v[i] * v[i]; }
    }
    const float r = 1.0f / sqrtf(warp_sum(sum) / q.C + eps);
    #pragma unroll
    FOR_ROW(k, c, N, K, q.C) {
        Vec<float, N> v = row.at(k, c);
        const Vec<float, N> w = load_real<N>(weight + c);
        store_real<N>(saved + c, v);
        for (int i = 0; i < N; i++) { v[i] = v[i] * r * w[i]; }
        store_real<N>(x + c, v);
    }
    if (threadIdx.x % 32 == 0) { rstd[i] = r; }
}

inline void qk_norm_forward(real* qkv, real* qk_in, acc* rstd, QkWeights<const real> weights,
                            bool all, float eps, AttnShape s) {
    const QkSide q = qk_side(0, all, s);
    const long groups = (long)s.B * s.T * q.G;
    const bool ok = wide(s.HS, { qkv, qk_in, weights.q, weights.k });
    LAUNCH_NORM(qk_norm_forward_kernel, ok, q.C, warp_grid(groups), dim3(32 * ROW_WARPS), 0, qkv,
                qk_in, rstd, weights, all, eps, s)
}

// Turns dqkv into the gradient before the norm, and writes to part (blocks, 2, width) the sums of
// dy x r over all groups, for dwq and dwk. A block takes ROW_BLOCK rows, a warp a group at a time.
template <int N, int K>
__global__ void __launch_bounds__(256)
    qk_norm_backward_kernel(real* dqkv, float* part, const real* qk_in, const acc* rstd,
                            QkWeights<const real> weights, bool all, AttnShape s) {
    const int n0 = blockIdx.x * ROW_BLOCK, rows = min(s.B * s.T - n0, (int)ROW_BLOCK);
    const int warp = threadIdx.x / 32, width = qk_side(0, all, s).C;
    float* sums = dynamic_smem<float>();
    for (int side = 0; side < 2; side++) {
        const QkSide q = qk_side(side, all, s);
        const real* weight = side ? weights.k : weights.q;
        WarpSums<N, K> dw(sums + warp * q.C, q.C);
        for (int i = warp; i < rows * q.groups; i += blockDim.x / 32) {
            const long bt = n0 + i / q.groups;
            const int g = i % q.groups, at = q.from + g * q.C;
            real* d = dqkv + bt * attn_row(s) + at;
            const WarpRow<N, K> d_n(d, q.C), x_n(qk_in + bt * (s.NH + s.KV) * s.HS + at, q.C);
            const float r = rstd[bt * q.G + q.first + g];
            float dot = 0;
            #pragma unroll
            FOR_ROW(k, c, N, K, q.C) {
                const Vec<float, N> dy = d_n.at(k, c), x = x_n.at(k, c);
                const Vec<float, N> w = load_real<N>(weight + c);
                for (int e = 0; e < N; e++) { dot += dy[e] * w[e] * x[e]; }
            }
            const float f = r * r * r * warp_sum(dot) / q.C;
            #pragma unroll
            FOR_ROW(k, c, N, K, q.C) {
                Vec<float, N> dy = d_n.at(k, c), dw_c = dw.at(k, c);
                const Vec<float, N> x = x_n.at(k, c), w = load_real<N>(weight + c);
                for (int e = 0; e < N; e++) {
                    dw_c[e] += dy[e] * x[e] * r;
                    dy[e] = dy[e] * w[e] * r - x[e] * f;
                }
                dw.set(k, c, dw_c);
                store_real<N>(d + c, dy);
            }
        }
        dw.join(part + ((long)blockIdx.x * 2 + side) * width, sums, q.C);
    }
}

inline void qk_norm_backward(real* dqkv, QkWeights<acc> grads, const real* qk_in, const acc* rstd,
                             QkWeights<const real> weights, bool all, AttnShape s) {
    const int width = qk_side(0, all, s).C;
    const int width_k = qk_side(1, all, s).C;
    const int warps = sum_warps(width);
    const int blocks = CEIL_DIV(s.B * s.T, ROW_BLOCK);
    float* part = (float*)device_scratch((size_t)blocks * 2 * width * sizeof(float));
    const bool ok = wide(s.HS, { dqkv, qk_in, weights.q, weights.k });
    LAUNCH_NORM(qk_norm_backward_kernel, ok, width, dim3(blocks), dim3(32 * warps),
                warps * width * sizeof(float), dqkv, part, qk_in, rstd, weights, all, s)
    column_sum(grads.q, part, blocks, width, 2 * width);
    column_sum(grads.k, part + width, blocks, width_k, 2 * width);
}
} // namespace cuda
#endif // CUDA_NORMS_CUH
