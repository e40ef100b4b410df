/*
linear.h -- the forward pass of a linear layer. linear_forward is all that training needs. A model
that is only run may leave its weights in their file (mapped_weights.h): linear_forward_only reads
them there.
*/
#ifndef CPU_LINEAR_H
#define CPU_LINEAR_H
#include <type_traits>
#include "mapped_weights.h"
#include "product.h"

namespace cpu {
// Computes a layer of one row. It is not blocked: each weight is read once, and that takes all the
// time.
template <class R> void vector_forward(const Linear<R>& x) {
    typedef sum_of<R> sum_t;
    const R* inp = x.inp;
    const int C = x.C;
    #pragma omp parallel for if ((long)C * x.OC > 1 << 17)
    for (int o = 0; o < x.OC; o++) {
        const R* w = x.weight + (long)o * C;
        sum_t sum = 0;
        #pragma omp simd reduction(+ : sum)
        for (int i = 0; i < C; i++) {
            sum += sum_t(inp[i]) * sum_t(w[i]);
        }
        if (x.residual) { sum += sum_t(x.residual[o]); }
        if (x.bias) { sum += sum_t(x.bias[o]); }
        x.out[o] = sum;
    }
}

template <class R> void linear_forward(const Linear<R>& x) {
    if (x.N == 1) { return vector_forward(x); }
    const Output<R> to = { x.out, x.ld, false, x.residual, x.bias };
    const Matrix<R> a = rows_of(x.inp, x.C);
    const Matrix<R> b = transposed(x.weight, x.C);
    gemm(x.N, x.OC, x.C, a, b, to);
}

// Computes the layer of a model that is only run. Returns false, and does nothing, if
// linear_forward is the way.
inline bool linear_forward_only(const Linear<float>& x) {
    if (mapped.all.empty()) { return false; }
    for (int o = 0; o < x.OC; ) {
        const float* weight = x.weight + (long)o * x.C;
        const WeightRows<float> rows = weight_rows(weight, x.C, x.OC - o);      // as floats
        linear_forward(x.columns(o, rows.n, rows.x));
        o += rows.n;
    }
    return true;
}

// Only weights in float stay in their file.
template <class R> bool linear_forward_only(const Linear<R>&) { return false; }
} // namespace cpu
#endif // CPU_LINEAR_H
