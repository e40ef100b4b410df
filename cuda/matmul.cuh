/*
matmul.cuh -- matrix products and their biases.
*/
#ifndef CUDA_MATMUL_CUH
#define CUDA_MATMUL_CUH
#include "gemm.cuh"
#include "rows.cuh"

namespace cuda {
template <int N>
__global__ void __launch_bounds__(256) bias_kernel(real* out, const real* bias, int rows, int OC) {
    const int n = own_row();
    if (n >= rows) { return; }
    FOR_COLUMNS(o, N, OC) {
        Vec<real, N> x = load<N>(out + (long)n * OC + o), b = load<N>(bias + o);
        for (int i = 0; i < N; i++) { x.v[i] = real((float)x.v[i] + (float)b.v[i]); }
        store<N>(out + (long)n * OC + o, x);
    }
}

inline void matmul_forward(real* out, const real* inp, const real* weight, const real* bias,
                           const real* residual, int N, int C, int OC) {
    gemm(out, residual, inp, weight, N, OC, C, false, true);
    if (bias) { LAUNCH_WIDE_ROWS(wide(OC, {out, bias}), bias_kernel, N, OC, out, bias, N, OC) }
}

inline void matmul_backward_input(real* dinp, const real* dout, const real* weight, bool add, int N,
                                  int C, int OC) {
    gemm(dinp, add ? dinp : (const real*)NULL, dout, weight, N, C, OC, false, false);
}

inline void matmul_backward_weight(acc* dweight, const real* dout, const real* inp, int N, int C,
                                   int OC) {
    gemm(dweight, dweight, dout, inp, OC, C, N, true, false);
}

inline void matmul_backward_bias(acc* dbias, const real* dout, int N, int OC) {
    const int blocks = CEIL_DIV(N, ROW_BLOCK);
    float* part = (float*)device_scratch((size_t)blocks * OC * sizeof(float));
    row_sums(part, dout, N, OC);
    column_sum(dbias, part, blocks, OC, OC);
}
} // namespace cuda
#endif // CUDA_MATMUL_CUH
