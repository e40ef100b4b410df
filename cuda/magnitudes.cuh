/*
magnitudes.cuh -- what ../metrics.cuh measures of the residual stream and of keys and values: norms,
and the largest and the median magnitude. Heads: metrics.cuh.
*/
#ifndef CUDA_MAGNITUDES_CUH
#define CUDA_MAGNITUDES_CUH
#include "rows.cuh"

namespace cuda {
// Computes norms of `len` numbers, a warp each.
__global__ void __launch_bounds__(128)
    row_norms_kernel(acc* out, const real* x, int stride, int len, int G, long n) {
    const long i = warp_number();
    if (i >= n) { return; }
    const real* y = x + i / G * stride + i % G * len;
    float sum = 0;
    FOR_LANES(c, len) {
        const float number = (float)y[c];
        sum += number * number;
    }
    sum = warp_sum(sum);
    if (first_lane()) { out[i] = sqrtf(sum); }
}

inline void row_norms(acc* out, const real* x, int stride, int len, int G, int N) {
    const long n = (long)N * G;
    LAUNCH_WARPS(row_norms_kernel, n, out, x, stride, len, G, n);
}

// Finds the largest and the median magnitude of a sequence, a block each. The bits of floats >= 0
// are in the order of the floats, so the median is found bit by bit: it is the largest number that
// at most half of the values are below.
template <int N>
__global__ void __launch_bounds__(512)
    magnitudes_kernel(acc* out, const real* x, int skip, int T, int C) {
    const real* x_b = x + ((long)blockIdx.x * T + skip) * C;
    const long n = (long)(T - skip) * C;
    const int last_bit = sizeof(real) == 2 ? 16 : 0;
    float top = 0;
    unsigned median = 0;
    // The first round finds the largest.
    for (int bit = 31; bit >= last_bit; bit--) {
        const float pivot = __uint_as_float(median | 1u << bit);
        double below = 0;
        for (long i = threadIdx.x * N; i < n; i += 512 * N) {
            const Floats<N> v = Floats<N>::load(x_b + i);
            UNROLL(k, N) {
                const float size = fabsf(v[k]);
                if (bit == 31) {
                    top = max(top, size);
                } else {
                    below += size < pivot;
                }
            }
        }
        if (bit < 31 && block_sum<512>(below) <= n / 2) { median |= 1u << bit; }
    }
    top = block_max<512>(top);
    if (threadIdx.x == 0) {
        out[blockIdx.x * 2] = top;
        out[blockIdx.x * 2 + 1] = __uint_as_float(median);
    }
}

inline void magnitudes(acc* out, const real* x, int skip, int B, int T, int C) {
    LAUNCH_WIDE(wide(C, {x}), magnitudes_kernel, dim3(B), dim3(512), 0, out, x, skip, T, C);
}
} // namespace cuda
#endif // CUDA_MAGNITUDES_CUH
