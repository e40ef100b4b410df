/*
product.h -- the matrix product of the CPU, for the forward pass and both gradients:
C (M, N) = or += A (M, K) @ B (K, N) of floats, of bf16 summed in float, or of doubles, with any
strides.

    which kernel           of those that the processor and the system allow; choice.h says which
    packing                copies of A and B, so that the innermost loop reads memory in order
    blocks and threads     what stays in which cache, who does what (product.cpp)
    gemm                   the call

Blocks are as in Goto and van de Geijn, "Anatomy of high-performance matrix multiplication" (2008).
Threads share the packing and the tiles but never the sum over k, so the bits do not depend on how
many threads there are.
*/
#ifndef CPU_PRODUCT_H
#define CPU_PRODUCT_H
#include <string>
#include <type_traits>
#include "../common.h"
#include "kernels.h"

namespace cpu {
inline long div_up(long a, long b) { return (a + b - 1) / b; }

inline long round_up(long a, long b) { return div_up(a, b) * b; }

// ---- which kernel

// What a process settles before its first product, and every product reads.
struct ProductSettings {
    int last_kernel;                // no row of `kernels` after this one is used; tests lower it
    int chosen[2];                  // the row for factors in float, and in bf16 (choice.h)
    bool split_floats;              // products of floats may go by two bf16 each, or by whole
                                    // numbers: set by a command that does not train
};
extern ProductSettings product_settings;

// whether row k of the table can run here; asked once
bool kernel_here(int k);

// the kernel for factors in float, or in bf16: without one for bf16, these are made floats while
// they are packed
const Kernel& kernel_for(bool bf16);

// from now on no kernel after the one of this name is used; dies if it cannot run here. A faster
// processor then computes as a slower one does
void product_limit(const std::string& name);

// row k is used for factors in float, or in bf16, unless it may not be used: choice.h
void product_choose(bool bf16, int k);

// what products are computed with: "fp32 avx512, bf16 amx"
std::string product_name();

// ---- packing

// SPLIT: floats that become two bf16 each (bf16_pair.h), 32 lanes of 32 floats
enum Lanes { FLOATS, PAIRS, WIDENED, SPLIT };

// A factor: element (v, k) is x[v*s + k*sk], where v is one of `count` rows of A or columns
// of B
struct Factor {
    const void* x;
    long s, sk, count, K;
    Lanes lanes;

    long size() const { return lanes == PAIRS || lanes == WIDENED ? 2 : 4; } // bytes of an element
    long pair() const { return lanes == PAIRS ? 2 : 1; }                    // elements of a lane
    const char* at(long v, long l) const { return (const char*)x + (v*s + l*pair()*sk) * size(); }
};

// a panel: to (l1 - l0, 16) = lanes l0..l1 of columns v..v+16, zero where there is nothing. False:
// these are SPLIT, and all low parts are zero
bool pack_panel(lane* to, const Kernel& kernel, const Factor& f, long v, long l0, long l1);

// rows: to (rows, l1 - l0), `row` lanes apart, = lanes l0..l1 of rows v.., zero where there is
// nothing. Writes up to the next multiple of 16 rows and lanes
void pack_rows(lane* to, long row, const Kernel& kernel, const Factor& f, long v, int rows,
                      long l0, long l1);

// ---- the product

// where the product goes
struct Result {
    void* x;
    long ld;                        // from row to row
    bool bf16, accumulate;          // accumulate: += instead of =
    // (M, N), rows ld apart, and (N), to be added; of the type of x; NULL, none
    const void *residual, *bias;
};

// C (M, N) = or += A (M, K) @ B (K, N)
void product(long M, long N, Factor a, Factor b, Result c);

// the same by row k of the table, which can run here; threads: 1, or 0 for all
void product_with(int k, int threads, long M, long N, Factor a, Factor b, Result c);

// Floats, where split_kernel runs: a is split already, in strips (bf16_pair.h), and b is while it
// is packed
void product_split(long M, long N, Factor a, Factor b, Result c);

// the same in double, for tests: plain loops, a row of C is one thread's
void product_double(long M, long N, long K, const double* A, long rs_a, long cs_a,
                           const double* B, long rs_b, long cs_b, double* C, long ldc,
                           bool accumulate, const double* residual, const double* bias);

// C (M, N), rows ldc apart, = or += A (M, K) @ B (K, N) [+ residual (M, N),
// rows ldc apart] [+ bias (N)]. Element (i, k) of A is A[i*rs_a + k*cs_a].
// Of bf16 the sums are floats; where C is bf16 they are rounded before the bias is added,
// and after. Inside a parallel region it runs on the calling thread alone.
template <class R, class O>
void gemm(long M, long N, long K, const R* A, long rs_a, long cs_a, const R* B, long rs_b,
          long cs_b, O* C, long ldc, bool accumulate, const O* residual = NULL,
          const O* bias = NULL) {
    if constexpr (std::is_same<R, double>::value) {
        product_double(M, N, K, A, rs_a, cs_a, B, rs_b, cs_b, C, ldc, accumulate, residual, bias);
    } else {
        const Lanes lanes = std::is_same<R, float>::value ? FLOATS : PAIRS;
        const Factor a = { A, rs_a, cs_a, M, K, lanes }, b = { B, cs_b, rs_b, N, K, lanes };
        product(M, N, a, b, { C, ldc, std::is_same<O, bf16>::value, accumulate, residual, bias });
    }
}
} // namespace cpu
#endif // CPU_PRODUCT_H
