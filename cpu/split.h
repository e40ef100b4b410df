/*
split.h -- a product of floats on a processor that multiplies bf16 many times faster (AMX). A float
is the sum of two bf16, high and low, to 16 bits of its fraction, so

    x w = x_high w_high + x_low w_high + x_high w_low

to 2^-16 of |x w|: a product of bf16 three times as long, whose sums are floats. For models that are
only run forward; what is trained is multiplied in fp32.
*/
#ifndef CPU_SPLIT_H
#define CPU_SPLIT_H
#include "product.h"

namespace cpu {
// may products of floats be made so? Set once, by a command that does not train
inline bool split_floats = false;

// Is it faster for these sizes, on this machine? (Only AMX has tiles whose lanes are `deep`.)
inline bool split_pays(long M, long N, long K) {
    return split_floats && kernel_for(true).deep > 1 && M >= 32 && N >= 64 && K >= 256;
}

// (rows, 3 cols) bf16 <- floats x (rows, cols): high, then low or high, then high or low. The product
// of a `left` and a right one is all three products at once
struct Split {
    std::vector<bf16> room;

    bf16* set(const float* x, long rows, long cols, bool left) {
        const long n = 3 * rows * cols + 64;
        if ((long)room.size() < n) { room.resize(n); }
        bf16* to = (bf16*)(((uintptr_t)room.data() + 63) & ~(uintptr_t)63);
        #pragma omp parallel for
        for (long r = 0; r < rows; r++) {
            bf16 *high = to + r * 3 * cols, *second = high + cols, *third = second + cols;
            bf16 *const low = left ? second : third, *const again = left ? third : second;
            const float* x_r = x + r * cols;
            #pragma omp simd
            for (long i = 0; i < cols; i++) {
                const uint16_t top = bf16_bits(x_r[i]);
                high[i].bits = again[i].bits = top;
                low[i].bits = bf16_bits(x_r[i] - float_of_bits((uint32_t)top << 16));
            }
        }
        return to;
    }
};

// out (N, OC) = inp (N, C) @ weight (OC, C)^T [+ bias (OC)] [+ residual (N, OC)], as matmul_forward
inline void split_forward(float* out, const float* inp, const float* weight, const float* bias,
                          const float* residual, int N, int C, int OC) {
    static Split left, right;
    const int some = 4096, K = 3 * C;       // rows of the weights that are split at once
    const bf16* a = left.set(inp, N, C, true);
    for (int j = 0; j < OC; j += some) {
        const int n = std::min(some, OC - j);
        const bf16* b = right.set(weight + (long)j * C, n, C, false);
        gemm(N, n, K, a, K, 1, b, 1, K, out + j, OC, false, residual ? residual + j : NULL,
             bias ? bias + j : NULL);
    }
}

// the same for one row of inp: a weight is read once, and that takes all the time
template <class R>
void vector_forward(R* out, const R* inp, const R* weight, const R* bias, const R* residual, int C,
                    int OC) {
    typedef typename std::conditional<std::is_same<R, bf16>::value, float, R>::type sum_t;
    #pragma omp parallel for if ((long)C * OC > 1 << 17)
    for (int o = 0; o < OC; o++) {
        const R* w = weight + (long)o * C;
        sum_t sum = 0;
        #pragma omp simd reduction(+ : sum)
        for (int i = 0; i < C; i++) { sum += sum_t(inp[i]) * sum_t(w[i]); }
        if (residual) { sum += sum_t(residual[o]); }
        if (bias) { sum += sum_t(bias[o]); }
        out[o] = sum;
    }
}
} // namespace cpu
#endif // CPU_SPLIT_H
