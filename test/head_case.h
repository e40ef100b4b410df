// test/head_case.h -- what tests of metrics and of maps share: heads of every ATTN x BIAS, and what
// the T x T map of naive.h says of a token
#ifndef HEAD_CASE_H
#define HEAD_CASE_H
#include "naive.h"

// an entry of A (rows, rows + 1), column 0 the extra key; or its share of the row
static double entry(const double* A, int rows, int t, int j, bool proxy) {
    double total = 0;
    for (int i = 0; i <= rows; i++) { total += fabs(A[t * (rows + 1) + i]); }
    const double a = A[t * (rows + 1) + j];
    return !proxy ? a : total > 0 ? fabs(a) / total : 0;
}
// mean over queries i >= k of what they give to token k
static double alpha_of(const double* A, int rows, int skip, int k, bool proxy) {
    double sum = 0;
    for (int i = k; i <= rows - skip; i++) {
        sum += entry(A, rows, skip + i - 1, skip + k, proxy);
    }
    return sum / (rows - skip - k + 1);
}

// Returns inputs of attention. kind: 0 plain; 1 with a window and a prefix; 2 shorter than METRIC_K.
// The p-norms have p 2, softmax_clip has c 0.03.
template <class A, class Bi, class Pe> NaiveIn head_case(const char* attn, const char* pe, int kind) {
    AttnShape s = whole({ 2, kind == 2 ? 5 : 37, 4, 2, 6, kind == 1 ? 9 : 0, kind == 1 ? 12 : 0,
                          kind == 1, 6, 2, kind == 1 ? 0.5f : 1 });
    if (A::clip != NO_CLIP) { s.clip = 0.03f; }
    NaiveIn in = { naive_attn<A>(attn), pe, naive_pe<Pe>, Bi::extra,
                   random_numbers((long)s.B * s.T * attn_row(s), 1.3, 5), {}, {}, s };
    if (A::phi == PHI_ELU1) { ref::phi_elu1_forward(in.qkv.data(), s); }
    const bool logit = Bi::extra == LOGIT_EXTRA;
    if (Bi::learn_k) {
        in.kstar = random_numbers(s.bias_shared ? s.HS : logit ? s.NH : s.KV * s.HS, 1, 6);
    }
    return in;
}
#endif // HEAD_CASE_H
