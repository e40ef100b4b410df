/*
bf16_pair.h -- a product of floats on a processor that multiplies bf16 many times faster (AMX). A
float is the sum of two bf16, high and low, to 16 bits of its fraction, so

    x w = x_low w_high + x_high w_high + x_high w_low

to 2^-16 of |x w|, with sums in float (split_kernel); two of these are enough where w is a bf16, as
in most files. For models that are only run forward; what is trained is multiplied in fp32.
*/
#ifndef CPU_BF16_PAIR_H
#define CPU_BF16_PAIR_H
#include "product.h"
#include "mapped_weights.h"

namespace cpu {
// Can this machine? (Only AMX has tiles whose lanes are `deep`.)
inline bool split_here() { return kernel_for(true).deep > 1; }

// Is it faster for these sizes?
inline bool split_pays(long M, long N, long K) {
    return product_settings.split_floats && split_here() && M >= 32 && N >= 64 && K >= 256;
}

// A strip: to (up to 32 rows) = `rows` rows of n floats, `stride` apart, filled up with zeros to a
// multiple of 32, as split_kernel reads them
inline void split_strip(lane* to, const float* x, long stride, long rows, long n) {
    const long whole = n / 32 * 32;
    for (long r = 0; r < rows; r++, to += 16, x += stride) {
        split_kernel.split_row(to, x, whole);
        if (whole == n) { continue; }
        float edge[32] = {};
        memcpy(edge, x + whole, (n - whole) * 4);
        split_kernel.split_row(to + whole * 32, edge, 32);
    }
}

// floats x (rows, cols) in strips, as a product wants them on its left
struct Split {
    std::vector<uint32_t> room;

    const lane* set(const float* x, long rows, long cols) {
        const long row = round_up(cols, 32), lanes = round_up(rows, 32) * row + 16;
        if ((long)room.size() < lanes) { room.resize(lanes); }
        lane* to = (lane*)(((uintptr_t)room.data() + 63) & ~(uintptr_t)63);
        #pragma omp parallel for
        for (long r = 0; r < rows; r += 32) {
            split_strip(to + r*row, x + r*cols, cols, std::min(32L, rows - r), cols);
        }
        return to;
    }
};

// the floats inp (N, C) as the left factor of split_forward, good until the next call
inline const lane* split_left(const float* inp, int N, int C) {
    static Split split;
    return split.set(inp, N, C);
}

// out (N, OC) = inp (N, C) @ weight (OC, C)^T [+ bias (OC)] [+ residual (N, OC)], rows of out and
// residual ld apart; left: split_left of inp
inline void split_forward(float* out, const lane* left, const float* weight, const float* bias,
                          const float* residual, int N, int C, int OC, int ld) {
    const Factor a = { left, round_up(C, 32), 1, N, round_up(C, 32), FLOATS },
                 b = { weight, C, 1, OC, C, SPLIT };
    product_split(N, OC, a, b, { out, ld, false, false, residual, bias });
}

// the same for one row of inp, without halves: a weight is read once, and that takes all the time
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
#endif // CPU_BF16_PAIR_H
