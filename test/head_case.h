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
// The case of a variant: the row of naive.h and what attention_forward leaves.
template <class A, class Bi, class Pe> struct HeadCase {
    NaiveIn in;
    const AttnShape& s = in.s;
    const int skip = Bi::token;
    const ref::real* kstar = in.kstar.empty() ? NULL : in.kstar.data();
    Numbers stat;
    NaiveOut naive;
    HeadCase(const char* attn, const char* pe, int kind)
        : in(head_case<A, Bi, Pe>(attn, pe, kind)), stat((size_t)s.B * s.NH * s.T * 2),
          naive(naive_attention(in)) {
        Numbers out((size_t)s.B * s.T * s.NH * s.HS);
        ref::attention_forward<A, Bi, Pe>(out.data(), stat.data(), Numbers(in.qkv).data(),
                                          { kstar, NULL }, NULL, s);
    }
};
// main's cases: check_variant of every ATTN x BIAS that CONFLICTS lets be
template <class A, class Bi, class Pe>
void check_variant(const char* attn, const char* bias, const HeadCase<A, Bi, Pe>& at, int kind);
template <class A, class Bi, class Pe>
void check_kinds(const char* attn, const char* bias, const char* pe) {
    if constexpr (!(A::phi != PHI_NONE && Bi::extra)) {
        for (int kind = 0; kind < 3; kind++) {
            check_variant(attn, bias, HeadCase<A, Bi, Pe>(attn, pe, kind), kind);
        }
    }
}
template <class A> void check_biases(const char* attn) {
    #define X_BIAS(bias, ...) check_kinds<A, Bias_##bias, Pe_nope>(attn, #bias, "nope");
    BIAS_VARIANTS(X_BIAS)
    check_kinds<A, Bias_none, Pe_alibi>(attn, "none", "alibi");
    #undef X_BIAS
}
static void check_every_variant() {
    #define X_ATTN(attn, ...) CASE(#attn) { check_biases<Attn_##attn>(#attn); }
    ATTN_VARIANTS(X_ATTN)
    #undef X_ATTN
}
#endif // HEAD_CASE_H
