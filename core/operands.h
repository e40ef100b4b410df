/*
operands.h -- tensors that an operation takes together, and a row of one. P is what the pointers
point to: `const real` where the operation reads, `acc` where it adds up gradients. reference.h says
what every operation does with them; the fast backends take the same.
*/
#ifndef OPERANDS_H
#define OPERANDS_H
#include "common.h"

// Returns row n of x (.., C), or NULL where the model has no such tensor.
template <class X> X* row_of(X* x, long n, long C) {
    if (!x) { return NULL; }
    return x + n * C;
}

// The tables of the embedding, or their gradients.
template <class P> struct EmbedTables {
    P* token;      // (V, C)
    P* position;   // (T, C), or NULL
    P* sink;       // (C), the sink token's row, or NULL
};

// The weights of a norm, or their gradients.
template <class P> struct NormWeights {
    P* weight;     // (C), or NULL for 1
    P* bias;       // (C), or NULL for 0
};

// What a norm keeps of its rows for the backward pass.
template <class P> struct NormStats {
    P* mean;       // (N), or NULL for RMSNorm, which has none
    P* rstd;       // (N)
};

// The size of what is normalized: N rows of C channels, and what is added to their variance.
struct NormShape {
    int N, C;
    float eps;
};

// The weights of QKNORM, or their gradients: of the queries and of the keys.
template <class P> struct QkWeights {
    P* q;          // (HS), shared by all heads; (NH HS) where all heads are normalized together
    P* k;          // (HS); (KV HS)
};

// The learned part of BIAS's extra key, or its gradient. The names are four: the extra key k*, its
// value v*, or a logit z in place of a key; and the sink token, which is a row before the others.
template <class P> struct ExtraKey {
    P* k;          // k* (KV or 1, HS); with BIAS=logit z (NH or 1); NULL for 0
    P* v;          // v* (KV or 1, HS), or NULL for 0
};

// What attention's forward pass leaves for its backward pass.
template <class R, class S> struct AttnResult {
    const R* out;  // (B, T, NH HS)
    const S* stat; // (B, NH, T, 2)
};

// The gate of the heads' outputs.
template <class P> struct HeadGate {
    P* values;     // (B, T, NH, width), before the sigmoid, or NULL
    int width;     // 1 for each head, or HS
};
#endif // OPERANDS_H
