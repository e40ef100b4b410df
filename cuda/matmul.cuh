/*
matmul.cuh -- matrix products of a layer, with bias and residual.
*/
#ifndef CUDA_MATMUL_CUH
#define CUDA_MATMUL_CUH
#include "gemm.cuh"
#include "sums.cuh"

namespace cuda {
template <int N>
__global__ void __launch_bounds__(ROW_THREADS)
    bias_kernel(real* out, const real* bias, int rows, int OC) {
    const int n = own_row();
    if (n >= rows) { return; }
    real* out_n = out + (long)n * OC;
    FOR_COLUMNS(o, N, OC) {
        Floats<N>::store(out_n + o, Floats<N>::load(out_n + o) + Floats<N>::load(bias + o));
    }
}

// Computes out (N, OC) = inp (N, C) weight^T (OC, C) + bias + residual.
inline void matmul_forward(real* out, const real* inp, const real* weight, const real* bias,
                           const real* residual, int N, int C, int OC) {
    gemm(matrix(out), residual, matrix(inp), transposed(matrix(weight)), { N, OC, C });
    if (bias) {
        LAUNCH_WIDE_ROWS(wide(OC, { out, bias }), bias_kernel, N, OC, out, bias, N, OC)
    }
}

inline void matmul_backward_input(real* dinp, const real* dout, const real* weight, bool add, int N,
                                  int C, int OC) {
    gemm(matrix(dinp), add ? dinp : NULL, matrix(dout), matrix(weight), { N, C, OC });
}

inline void matmul_backward_weight(acc* dweight, const real* dout, const real* inp, int N, int C,
                                   int OC) {
    gemm(matrix(dweight), dweight, transposed(matrix(dout)), matrix(inp), { OC, C, N });
}

inline void matmul_backward_bias(acc* dbias, const real* dout, int N, int OC) {
    const int blocks = CEIL_DIV(N, ROW_BLOCK);
    float* part = (float*)device_scratch((size_t)blocks * OC * sizeof(float));
    row_sums(part, dout, N, OC);
    column_sum(dbias, part, blocks, OC, OC);
}
} // namespace cuda
#endif // CUDA_MATMUL_CUH
