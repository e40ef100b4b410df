/*
int8_product.h -- the product of floats with weights of 4 or 8 bits that stay in their file
(mapped_weights.h), in whole numbers, of which a processor with AVX512-VNNI multiplies two where it
multiplies one float. For models that are only run forward; where there is AMX, bf16_pair.h is used.

    w = d q + m                of each 32 weights of a row: as the file has them
    x = s (high + low / 2^16)  of each 32 numbers of a row of x: two whole numbers of 16 bits

    sum of x w = sum over blocks of 32 of  d s (sum of high q + sum of low q / 2^16) + m (sum of x)

The low parts are left out where they matter least: where no number of the block is over 12 times
the root mean square of its row. Then x is off by 2^-16 of the block's largest number at most.
*/
#ifndef CPU_INT8_PRODUCT_H
#define CPU_INT8_PRODUCT_H

namespace cpu {
// Can this machine?
bool int8_here();

// out (N, OC) = inp (N, C) @ weight (OC, C)^T [+ bias (OC)] [+ residual (N, OC)]; false: nothing
// is done, because it would not pay (as for less than 32 rows), is not allowed, or some rows of the
// weight are of another type. Where it is done, a row of out depends on its row of inp alone,
// whatever the number of threads
bool int8_forward(float* out, const float* inp, const float* weight, const float* bias,
                      const float* residual, int N, int C, int OC);

template <class R>
bool int8_forward(R*, const R*, const R*, const R*, const R*, int, int, int) { return false; }
} // namespace cpu
#endif // CPU_INT8_PRODUCT_H
