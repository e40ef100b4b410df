/*
sums.cuh -- sums over the rows of a tensor, in a fixed order.
*/
#ifndef CUDA_SUMS_CUH
#define CUDA_SUMS_CUH
#include "rows.cuh"

namespace cuda {
// Two kernels: sums of ROW_BLOCK rows each, then of these sums.

enum { ROW_BLOCK = 64 };

// Computes part (blocks, W) = sums of ROW_BLOCK rows of x (rows, W).
template <int N>
__global__ void __launch_bounds__(ROW_THREADS)
    row_sums_kernel(float* part, const real* x, int rows, int W) {
    const int block = own_row();
    const int from = block * ROW_BLOCK;
    const int to = min(rows, from + ROW_BLOCK);
    if (from >= rows) { return; }
    FOR_COLUMNS(c, N, W) {
        Floats<N> sum = 0;
        for (int n = from; n < to; n++) { sum += Floats<N>::load(x + (long)n * W + c); }
        Floats<N>::store_floats(part + (long)block * W + c, sum);
    }
}

inline void row_sums(float* part, const real* x, int rows, int W) {
    const int blocks = CEIL_DIV(rows, ROW_BLOCK);
    LAUNCH_WIDE_ROWS(wide(W, { x }), row_sums_kernel, blocks, W, part, x, rows, W)
}

// out (C) += sum_k part (K, C), rows `stride` apart, in a fixed order. Columns with c % width >=
// limit are left alone.
enum { COLUMN_WARPS = 8 };
__global__ void __launch_bounds__(32 * COLUMN_WARPS)
    column_sum_kernel(acc* out, const float* part, long K, int C, int stride, int width,
                      int limit) {
    SMEM(float[COLUMN_WARPS][32], sums);
    const int lane = lane_id();
    const int warp = warp_id();
    const int c = blockIdx.x * 32 + lane;
    float sum = 0;
    for (long k = warp; c < C && k < K; k += COLUMN_WARPS) { sum += part[k * stride + c]; }
    sums[warp][lane] = sum;
    __syncthreads();
    if (warp > 0 || c >= C || c % width >= limit) { return; }
    for (int w = 1; w < COLUMN_WARPS; w++) { sum += sums[w][lane]; }
    out[c] += sum;
}

// Adds up all columns of rows that are `stride` floats apart.
inline void column_sum(acc* out, const float* part, long K, int C, int stride) {
    LAUNCH(column_sum_kernel, dim3(CEIL_DIV(C, 32)), dim3(32 * COLUMN_WARPS), 0, out, part, K, C,
           stride, C, C);
}

// Adds up, of each `width` columns, the first `limit`.
inline void column_sum_part(acc* out, const float* part, long K, int C, int width, int limit) {
    LAUNCH(column_sum_kernel, dim3(CEIL_DIV(C, 32)), dim3(32 * COLUMN_WARPS), 0, out, part, K, C, C,
           width, limit);
}
} // namespace cuda
#endif // CUDA_SUMS_CUH
