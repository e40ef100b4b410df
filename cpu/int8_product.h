/*
int8_product.h -- the product of floats with weights of 4 or 8 bits that stay in their file
(mapped_weights.h), in integers: a processor with AVX512-VNNI multiplies two of these in the time of
one float. For models that are only run forward; where there is AMX, bf16_pair.h is faster.

    w = d q + m                for each 32 weights of a row, as the file has them
    x = s (high + low / 2^16)  for each 32 numbers of a row of x, high and low of 16 bits

    sum of x w = sum over blocks of 32 of  d s (sum of high q + sum of low q / 2^16) + m (sum of x)

The low parts are left out where they matter least: where no number of the block is over 12 times
the root mean square of its row. Then x is off by 2^-16 of the block's largest number at most.
*/
#ifndef CPU_INT8_PRODUCT_H
#define CPU_INT8_PRODUCT_H
#include "product.h"

namespace cpu {
// Tells whether this machine can.
bool int8_here();

// Computes a layer. Returns false, and does nothing, if that would not pay (as for fewer than 32
// rows), is not allowed, or some rows of the weight are of another type. A row of out depends on
// its row of inp alone, whatever the number of threads.
bool int8_forward(const Linear<float>& x);
} // namespace cpu
#endif // CPU_INT8_PRODUCT_H
