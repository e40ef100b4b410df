/*
product.h -- the matrix product of the CPU, for the forward pass and both gradients:
C (M, N) = or += A (M, K) @ B (K, N) of floats, of bf16 summed in float, or of doubles, with any
strides.

    which kernel           the ones that the processor and the system allow; choice.h picks one
    the call               gemm, with its matrices and where the result goes
    packing                copies of A and B that the innermost loop reads in order
    inside                 product, which product.cpp cuts into blocks for caches and threads

Blocks are as in Goto and van de Geijn, "Anatomy of high-performance matrix multiplication" (2008).
Threads share the packing and the tiles but never the sum over k, so the bits do not depend on how
many threads there are.
*/
#ifndef CPU_PRODUCT_H
#define CPU_PRODUCT_H
#include <string>
#include <type_traits>
#include "../base/common.h"
#include "../optional.h"
#include "kernels.h"

namespace cpu {
// Returns p + n, or NULL if there is no p.
template <class P> P* moved(P* p, long n) { return p ? p + n : NULL; }

// ---- which kernel

// What a process settles before its first product, and every product reads.
struct ProductSettings {
    int last_kernel;                // no row of `kernels` after this one is used; tests lower it
    int chosen[2];                  // the row for factors in float, and in bf16 (choice.h)
    ProductChoice choice;           // what was settled, in words,
    bool forced;                    // and whether --product said it
};
extern ProductSettings product_settings;

// Tells whether row k of the table can run here. The processor is asked once.
bool kernel_here(int k);

// Returns the kernel for factors in float, or in bf16. If there is none for bf16, packing widens
// them.
const Kernel& kernel_for(bool bf16);

// Caps the instruction set at `name`, so that a newer processor gives an older one's bits. Dies if
// that kernel cannot run here.
void product_limit(const std::string& name);

// Names what products are computed with: "fp32 avx512, bf16 amx".
std::string product_name();

// ---- the call

// Element (i, k) is x[i * row + k * col].
template <class R> struct Matrix {
    const R* x;
    long row, col;
};

// Return a matrix whose rows are ld apart, as it is and transposed.
template <class R> Matrix<R> rows_of(const R* x, long ld) { return { x, ld, 1 }; }

template <class R> Matrix<R> transposed(const R* x, long ld) { return { x, 1, ld }; }

// Where a product goes: rows ld apart.
template <class O> struct Output {
    O* x;
    long ld;
    bool accumulate;                // += instead of =
    const O* residual = NULL;       // (M, N), rows ld apart, is added; NULL: nothing
    const O* bias = NULL;           // (N) is added; NULL: nothing
};

// ---- packing

// How the numbers of a factor become lanes of 32 bits (kernels.h).
enum Lanes {
    FLOATS,                         // a float each
    PAIRS,                          // two bf16 that follow each other in k
    WIDENED                         // a bf16 each, widened to a float
};

// A factor of a product: element (v, k) is x[v * step + k * k_step], where v is a row of A or a
// column of B.
struct Factor {
    const void* x;
    long step, k_step;
    long count, K;                  // how many v, and k
    Lanes lanes;

    // Returns the bytes of an element.
    long size() const { return lanes == PAIRS || lanes == WIDENED ? 2 : 4; }

    // Returns the elements of a lane.
    long pair() const { return lanes == PAIRS ? 2 : 1; }

    // Return the bytes from v to v + 1, and from lane to lane.
    long row_bytes() const { return step * size(); }
    long lane_bytes() const { return k_step * size() * pair(); }

    const char* at(long v, long l) const {
        const long element = v * step + l * pair() * k_step;
        return (const char*)x + element * size();
    }
};

// lanes l0 .. l1 of the sum over k
struct LaneRange {
    long l0, l1;

    long size() const { return l1 - l0; }
};

// Packs a panel: to (lanes, 16) = those lanes of columns v .. v + 16, zero where there is nothing.
//
//      column   v  v+1 ..  v+15
//      l0     [ 0   1  ..   15 ]       a kernel reads one row of it, 64 bytes, for each lane
//      l0+1   [16  17  ..   31 ]
//      ..
void pack_panel(lane* to, const Kernel& kernel, const Factor& f, long v, LaneRange lanes);

// Packs rows: to (rows, lanes), `row` lanes apart, = those lanes of rows v.., zero where there is
// nothing. Writes up to the next multiple of 16 rows and lanes.
struct PackedRows {
    lane* to;
    long row;
    int rows;
};
void pack_rows(PackedRows to, const Kernel& kernel, const Factor& f, long v, LaneRange lanes);

// ---- inside

// Output of any type.
struct Result {
    void* x;
    long ld;
    bool bf16, accumulate;
    const void* residual;           // of the type of x
    const void* bias;
};

// Computes C (M, N) = or += A (M, K) @ B (K, N); M and N are the counts of a and b.
void product(Factor a, Factor b, Result c);

// Does the same by row k of the table, which can run here.
void product_with(int k, Factor a, Factor b, Result c);

// Does the same in double, for tests: plain loops; one thread makes a row of C.
void product_double(long M, long N, long K, Matrix<double> a, Matrix<double> b, Output<double> c);

// Computes c (M, N) = or += a (M, K) @ b (K, N) [+ residual] [+ bias]. Sums of bf16 are floats;
// where c is bf16 they are rounded before the bias is added, and after. Inside a parallel region it
// runs on the calling thread alone.
template <class R, class O>
void gemm(long M, long N, long K, Matrix<R> a, Matrix<R> b, Output<O> c) {
    if constexpr (std::is_same<R, double>::value) {
        product_double(M, N, K, a, b, c);
    } else {
        const Lanes lanes = std::is_same<R, float>::value ? FLOATS : PAIRS;
        const bool bf16_out = std::is_same<O, bf16>::value;
        const Factor rows = { a.x, a.row, a.col, M, K, lanes };
        const Factor columns = { b.x, b.col, b.row, N, K, lanes };
        product(rows, columns, { c.x, c.ld, bf16_out, c.accumulate, c.residual, c.bias });
    }
}
} // namespace cpu
#endif // CPU_PRODUCT_H
