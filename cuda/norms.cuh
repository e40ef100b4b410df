/*
norms.cuh -- norms of rows, and of queries and keys.
*/
#ifndef CUDA_NORMS_CUH
#define CUDA_NORMS_CUH
#include "../attention_row.cuh"
#include "matmul.cuh"
#include "rope.cuh"

namespace cuda {
// A warp normalizes a row. Its lanes hold the row in K registers of N values each, so that they
// read it once. Where it is too long for that, K is 0 and they read it again in each pass. FOR_ROW:
// c is the first column of the lane's chunk k.
#define FOR_ROW(k, c, N, K, C)                                                    \
    for (int k = 0, c = lane_id() * N; K ? k < K : c < C; k++, c += 32 * N)       \
        if (c < C)
template <int N, int K> struct WarpRow {
    const real* x;
    Vec<real, N> own[K ? K : 1];

    DEVICE WarpRow(const real* x, int C) : x(x) {
        if constexpr (K > 0) {
            #pragma unroll
            FOR_ROW(k, c, N, K, C) { own[k] = load<N>(x + c); }
        }
    }

    DEVICE Floats<N> at(int k, int c) const {
        if constexpr (K > 0) { return own[k]; } else { return Floats<N>::load(x + c); }
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
        FOR_ROW(k, c, N, K, C) { row.at(k, c).add_to(sum); }
        m = warp_sum(sum) / C;
    }
    float squares = 0;
    #pragma unroll
    FOR_ROW(k, c, N, K, C) {
        const Floats<N> x = row.at(k, c) - m;
        (x * x).add_to(squares);
    }
    const float r = 1.0f / sqrtf(warp_sum(squares) / C + s.eps);
    real* out_n = out + (long)n * C;
    #pragma unroll
    FOR_ROW(k, c, N, K, C) {
        const Floats<N> w = Floats<N>::load_or(1, weights.weight, c);
        const Floats<N> b = Floats<N>::load_or(0, weights.bias, c);
        Floats<N>::store(out_n + c, (row.at(k, c) - m) * r * w + b);
    }
    if (!first_lane()) { return; }
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

DEVICE int block_warps() { return blockDim.x / 32; }

// A warp's sums over rows, C floats.
template <int N, int K> struct WarpSums {
    Floats<N> kept[K ? K : 1];
    float* own;

    DEVICE WarpSums(float* own, int C) : kept{}, own(own) {
        if constexpr (K == 0) {
            FOR_ROW(k, c, N, K, C) { Floats<N>::store_floats(own + c, Floats<N>(0)); }
        }
    }
    DEVICE void add(int k, int c, const Floats<N>& x) {
        if constexpr (K > 0) {
            kept[k] += x;
        } else {
            Floats<N>::store_floats(own + c, Floats<N>::load_floats(own + c) + x);
        }
    }

    // Adds up the sums of all warps, which stand C floats apart from `all` on: out (C).
    DEVICE void join(float* out, const float* all, int C) {
        #pragma unroll
        FOR_ROW(k, c, N, K, C) {
            if constexpr (K > 0) { Floats<N>::store_floats(own + c, kept[k]); }
        }
        __syncthreads();
        FOR_STRIDE(c, threadIdx.x, C, blockDim.x) {
            float sum = 0;
            for (int w = 0; w < block_warps(); w++) { sum += all[w * C + c]; }
            out[c] = sum;
        }
        __syncthreads();
    }
};

// Returns how many warps may have sums of C floats in 48 KiB.
inline int sum_warps(int C) { return std::max(1, std::min(8, 12288 / C)); }

struct NormBackward {
    const real *dout, *x, *weight;
    NormStats<const acc> stats;
    bool add;              // to dx
    NormShape s;
};

template <int N, int K, bool SUM_BIAS>
DEVICE void norm_backward_rows(real* dx, float* part, const NormBackward& a) {
    constexpr int KEPT = K <= 4 ? K : 0;             // registers would not hold both sums,
    constexpr int EARLY = K == 1 ? 1 : 0;            // nor dx beside what it is computed from
    const int warps = block_warps();
    const int C = a.s.C;
    const int width = SUM_BIAS ? 2 * C : C;
    float* all = dynamic_smem<float>();
    float* all_bias = SUM_BIAS ? all + warps * C : all;
    float* out = part + (long)blockIdx.x * width;
    WarpSums<N, K> dw(all + warp_id() * C, C);
    WarpSums<N, KEPT> db(all_bias + warp_id() * C, SUM_BIAS ? C : 0);
    const int first = blockIdx.x * NORM_ROWS;
    const int end = min(a.s.N, first + NORM_ROWS);
    for (int n = first + warp_id(); n < end; n += warps) {
        const long at = (long)n * C;
        const WarpRow<N, K> d_n(a.dout + at, C);
        const WarpRow<N, K> x_n(a.x + at, C);
        real* dx_n = dx + at;
        const float m = a.stats.mean ? a.stats.mean[n] : 0.0f;
        const float r = a.stats.rstd[n];
        float dot = 0, sum = 0;
        #pragma unroll
        FOR_ROW(k, c, N, K, C) {
            const Floats<N> dy = d_n.at(k, c) * Floats<N>::load_or(1, a.weight, c);
            (dy * (x_n.at(k, c) - m)).add_to(dot);
            dy.add_to(sum);
        }
        const WarpRow<N, EARLY> before(a.add || !EARLY ? dx_n : a.dout + at, C);
        const float f = r * r * r * warp_sum(dot) / C;
        const float r_mean = a.stats.mean ? r * warp_sum(sum) / C : 0.0f;
        #pragma unroll
        FOR_ROW(k, c, N, K, C) {
            const Floats<N> d = d_n.at(k, c);
            const Floats<N> x = x_n.at(k, c) - m;
            const Floats<N> w = Floats<N>::load_or(1, a.weight, c);
            const Floats<N> g = a.add ? before.at(k, c) : Floats<N>(0);
            dw.add(k, c, d * x * r);
            if (SUM_BIAS) { db.add(k, c, d); }
            Floats<N>::store(dx_n + c, g + (d * w * r - x * f - r_mean));
        }
    }
    dw.join(out, all, C);
    if (SUM_BIAS) { db.join(out + C, all_bias, C); }
}

// K is 1 where that is enough: three blocks of that share an SM.
template <int N, int K>
__global__ void __launch_bounds__(256, K && K <= 4 ? 2 : 1)
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
    const int W = both ? 2 * C : C;
    const int blocks = CEIL_DIV(N, NORM_ROWS);
    const int warps = sum_warps(W);
    const size_t smem = warps * W * sizeof(float);
    float* part = (float*)device_scratch((size_t)blocks * W * sizeof(float));
    const NormBackward a = { dout, x, weight, stats, add, s };
    if (both) {
        LAUNCH_KEPT(norm_backward_bias_kernel, C, dim3(blocks), dim3(32 * warps), smem, dx, part,
                    a)
        column_sum(grads.bias, part + C, blocks, C, W);
    } else if (ok && C <= 32 * VN) {
        LAUNCH((norm_backward_kernel<VN, 1>), dim3(blocks), dim3(32 * warps), smem, dx, part, a);
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
    const int heads = side ? s.KV : s.NH;
    const int queries = s.NH * s.HS;
    QkSide x = { heads, s.HS, side * queries, side * s.NH, s.NH + s.KV };
    if (all) {
        x.groups = 1;
        x.C = heads * s.HS;
        x.first = side;
        x.G = 2;
    }
    return x;
}

// Normalizes queries and keys in place, a warp per group of a row.
template <int N, int K>
__global__ void __launch_bounds__(32 * ROW_WARPS)
    qk_norm_forward_kernel(real* qkv, real* qk_in, acc* rstd, QkWeights<const real> weights,
                           bool all, float eps, AttnShape s) {
    const int G = qk_side(0, all, s).G;
    const long i = warp_number();
    const long bt = i / G;
    if (bt >= (long)s.B * s.T) { return; }
    const int g = i % G;
    const int side = g >= qk_side(1, all, s).first;
    const QkSide q = qk_side(side, all, s);
    const int at = q.from + (g - q.first) * q.C;
    real* x = qkv + bt * attn_row(s) + at;
    real* saved = qk_in + bt * qk_width(s) + at;
    const real* weight = side ? weights.k : weights.q;
    const WarpRow<N, K> row(x, q.C);
    float squares = 0;
    #pragma unroll
    FOR_ROW(k, c, N, K, q.C) {
        const Floats<N> v = row.at(k, c);
        (v * v).add_to(squares);
    }
    const float r = 1.0f / sqrtf(warp_sum(squares) / q.C + eps);
    #pragma unroll
    FOR_ROW(k, c, N, K, q.C) {
        const Floats<N> v = row.at(k, c);
        const Floats<N> w = Floats<N>::load(weight + c);
        Floats<N>::store(saved + c, v);
        Floats<N>::store(x + c, v * r * w);
    }
    if (first_lane()) { rstd[i] = r; }
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
    const int n0 = blockIdx.x * ROW_BLOCK;
    const int rows = min(s.B * s.T - n0, (int)ROW_BLOCK);
    const int width = qk_side(0, all, s).C;
    float* sums = dynamic_smem<float>();
    for (int side = 0; side < 2; side++) {
        const QkSide q = qk_side(side, all, s);
        const real* weight = side ? weights.k : weights.q;
        WarpSums<N, K> dw(sums + warp_id() * q.C, q.C);
        for (int i = warp_id(); i < rows * q.groups; i += block_warps()) {
            const long bt = n0 + i / q.groups;
            const int g = i % q.groups;
            const int at = q.from + g * q.C;
            real* d = dqkv + bt * attn_row(s) + at;
            const WarpRow<N, K> d_n(d, q.C);
            const WarpRow<N, K> x_n(qk_in + bt * qk_width(s) + at, q.C);
            const float r = rstd[bt * q.G + q.first + g];
            float dot = 0;
            #pragma unroll
            FOR_ROW(k, c, N, K, q.C) {
                const Floats<N> w = Floats<N>::load(weight + c);
                (d_n.at(k, c) * w * x_n.at(k, c)).add_to(dot);
            }
            const float f = r * r * r * warp_sum(dot) / q.C;
            #pragma unroll
            FOR_ROW(k, c, N, K, q.C) {
                const Floats<N> dy = d_n.at(k, c);
                const Floats<N> x = x_n.at(k, c);
                const Floats<N> w = Floats<N>::load(weight + c);
                dw.add(k, c, dy * x * r);
                Floats<N>::store(d + c, dy * w * r - x * f);
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
