/*
bf16_pair.h -- a product of floats on a processor that multiplies bf16 many times faster (AMX). A
float is the sum of two bf16, high and low, to 16 bits of its fraction, so

    x w = x_low w_high + x_high w_high + x_high w_low

to 2^-16 of |x w|, with sums in float (split_kernel). The last term is left out where w is a bf16,
as in most files. For models that are only run forward; training multiplies in fp32.

The left factor is packed in strips of 32 rows. Of each 32 columns a strip has first the high parts
of all its rows, then the low parts, two bf16 to a lane:

    columns 0..31                        columns 32..63
    | high, 32 rows x 16 lanes | low .. || high .. | low .. |  ..
*/
#ifndef CPU_BF16_PAIR_H
#define CPU_BF16_PAIR_H
#include "mapped_weights.h"
#include "product.h"

namespace cpu {
// Tells whether this machine can. (Only the tiles of AMX have `deep` lanes.)
inline bool split_here() { return kernel_for(true).deep > 1; }

// Tells whether splitting is allowed, and faster for a product of these sizes.
inline bool split_pays(long M, long N, long K) {
    return product_settings.split_floats && split_here() && M >= 32 && N >= 64 && K >= 256;
}

// Makes a strip of up to 32 rows of n floats, `stride` apart, filled up with zeros to a multiple of
// 32 columns.
inline void split_strip(lane* to, const float* x, long stride, long rows, long n) {
    const long whole = n / 32 * 32;
    for (long r = 0; r < rows; r++, to += 16, x += stride) {
        split_kernel.split_row(to, x, whole);
        if (whole == n) { continue; }
        float edge[32] = {};
        memcpy(edge, x + whole, (n - whole) * sizeof(float));
        split_kernel.split_row(to + whole * 32, edge, 32);
    }
}

// Floats in strips, and their memory.
struct Split {
    std::vector<uint32_t> room;

    // Splits x (rows, cols).
    const lane* set(const float* x, long rows, long cols) {
        const long row = round_up(cols, 32);
        const long lanes = round_up(rows, 32) * row + 16;
        if ((long)room.size() < lanes) { room.resize(lanes); }
        lane* to = (lane*)(((uintptr_t)room.data() + 63) & ~(uintptr_t)63);
        #pragma omp parallel for
        for (long r = 0; r < rows; r += 32) {
            split_strip(to + r * row, x + r * cols, cols, std::min(32L, rows - r), cols);
        }
        return to;
    }
};

// Splits inp (N, C) for split_forward. The result is good until the next call.
inline const lane* split_left(const float* inp, int N, int C) {
    static Split split;
    return split.set(inp, N, C);
}

// Computes a linear layer whose inp was split to `left`.
inline void split_forward(const Linear<float>& x, const lane* left) {
    const long row = round_up(x.C, 32);
    const Factor a = { left, row, 1, x.N, row, FLOATS };
    const Factor b = { x.weight, x.C, 1, x.OC, x.C, SPLIT };
    product_split(a, b, { x.out, x.ld, false, false, x.residual, x.bias });
}
} // namespace cpu
#endif // CPU_BF16_PAIR_H
