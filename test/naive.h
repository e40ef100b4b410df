/*
naive.h -- attention as the paper writes it, the witness for test_attention,
test_metrics and test_extremes: whole T x (T+1) maps in double, loops over single numbers,
no tiles, no saved statistics, the derivative of Z by the quotient rule.
The formulas of each name are written here a second time, from Gu et al. 2024 (Table 15, Appendix A)
and the official code; a name that is not here yet (a variant just added) lends its own struct's f,
f' and Z, and the finite differences check those.
*/
#ifndef NAIVE_H
#define NAIVE_H
#include <string>
#include <vector>
#include "../attention_variants.cuh"
#include "check.h"

typedef std::vector<double> Numbers;
static inline AttnShape whole(AttnShape s) { // fills in what most shapes share
    s.scale = 1 / sqrt((double)s.HS);
    s.rot = s.HS;
    s.cap = 1.5;
    return s;
}
static inline Numbers random_numbers(long n, double std, uint64_t seed) {
    Rng r = rng_stream(seed, n);
    Numbers x(n);
    for (auto& v : x) { v = std * rng_normal(&r); }
    return x;
}
static inline double inner(const Numbers& a, const Numbers& b) {
    double x = 0;
    for (size_t i = 0; i < a.size(); i++) { x += a[i] * b[i]; }
    return x;
}
// where got is furthest from want, how far (a NaN is further than any number), and max |want|
struct Worst { size_t at = 0; double off = -1, top = 1e-6; };
static inline Worst worst_of(const Numbers& got, const Numbers& want) {
    Worst w;
    for (double x : want) { w.top = std::max(w.top, fabs(x)); }
    for (size_t i = 0; i < want.size(); i++) {
        const double off = fabs(got[i] - want[i]);
        if (!(off <= w.off)) {
            w.off = off;
            w.at = i;
        }
    }
    return w;
}
// |got - want| <= tol * max |want|, over a tensor; of one below `least` tol * least, as what cancels
// in its numbers is larger and leaves its rounding
static inline void compare(const std::string& what, const Numbers& got, const Numbers& want,
                           double tol, double least = 0) {
    if (!CHECK(got.size() == want.size(), "%s: %zu numbers, wanted %zu", what.c_str(), got.size(),
               want.size())) {
        return;
    }
    const Worst w = worst_of(got, want);
    CHECK(w.off <= tol * std::max(w.top, least), "%s[%zu]: got %.12g, wanted %.12g (largest %.3g)", what.c_str(),
          w.at, got[w.at], want[w.at], w.top);
}

// ---- the operation: weight f(s), its derivative, and what Z is made of
// ABS_EPS: and only what is positive weighs v
// COUNT: of the tokens seen. CLIPPED: SUM, and what is left of weights after the clip
enum NaiveZ { ONE, SUM, SUM_EPS, ABS_EPS, MAX_1, P_NORM, COUNT, CLIPPED };
struct NaiveAttn {
    std::string name;
    double (*f)(double), (*df)(double);
    NaiveZ Z;
    bool capped = false;
};
static inline double exp_of(double s)       { return exp(s); }
static inline double logistic(double s)     { return 1 / (1 + exp(-s)); }
static inline double d_logistic(double s) {
    return exp(-fabs(s)) / ((1 + exp(-fabs(s))) * (1 + exp(-fabs(s))));
}
static inline double elu_plus_1(double s)   { return s > 0 ? s + 1 : exp(s); }
static inline double d_elu_plus_1(double s) { return s > 0 ? 1 : exp(s); }
static inline double exp_minus_1(double s)  { return expm1(s); }
static inline double rectified(double s)    { return std::max(s, 0.0); }
static inline double d_rectified(double s)  { return s > 0; }
static inline double itself(double s)       { return s; }
static inline double d_itself(double)       { return 1; }
static const NaiveAttn NAIVE_ATTN[] = {
    { "softmax",         exp_of,     exp_of,       SUM },
    { "sigmoid",         logistic,   d_logistic,   ONE },
    { "sigmoid_norm",    logistic,   d_logistic,   SUM_EPS },
    { "elu1",            elu_plus_1, d_elu_plus_1, ONE },
    { "elu1_norm",       elu_plus_1, d_elu_plus_1, SUM_EPS },
    { "kernel_elu",      itself,     d_itself,     ONE },      // phi is applied to q and k before
    { "kernel_elu_norm", itself,     d_itself,     SUM_EPS },
    { "identity",        itself,     d_itself,     ONE },
    { "identity_norm",   itself,     d_itself,     MAX_1 },
    { "mlp",             itself,     d_itself,     ONE },
    { "mlp_norm",        itself,     d_itself,     MAX_1 },
    { "softmax_p",       exp_of,     exp_of,       P_NORM },
    { "sigmoid_p",       logistic,   d_logistic,   P_NORM },
    { "softpick",        exp_minus_1, exp_of,      ABS_EPS },
    { "softcap",         exp_of,     exp_of,       SUM, true }, // score: cap tanh(s / cap)
    { "softmax_clip",    exp_of,     exp_of,       CLIPPED },
    { "relu",            rectified,  d_rectified,  COUNT },
};
template <class A> NaiveZ naive_z() {
    if (A::by_count) { return COUNT; }
    if (A::clip != NO_CLIP) { return CLIPPED; }
    if (A::Z == Z_ONE) { return ONE; }
    if (A::Z == Z_MAX1) { return MAX_1; }
    if (A::Z == Z_PNORM) { return P_NORM; }
    if (A::Z == Z_ABS) { return ABS_EPS; }
    return A::exp_family ? SUM : SUM_EPS;
}
template <class A> NaiveAttn naive_attn(const char* name) {
    for (auto& a : NAIVE_ATTN) { if (a.name == name) { return a; } }
    return { name, [](double s) { return A::sim(s); },
             [](double s) { return A::dsim(s, A::sim(s)); }, naive_z<A>(), A::capped };
}
// ---- positions: what is added to the score of a key `distance` tokens back,
// in head h (from 0) of NH
// 0..15 each their own, then bucket 16 + k from distance 16 * 8^(k/16) on
static inline double t5_bucket(int distance) {
    if (distance < 16) { return std::max(0, distance); }
    return std::min(31.0, 16 + floor(16 * log(distance / 16.0) / log(8)));
}
static inline double alibi_penalty(int distance, int h, int NH) {
    return -std::max(0, distance) * pow(2, -8.0 * (h + 1) / NH);
}
template <class P> double naive_pe(const std::string& name, int distance, int h, int NH) {
    if (name == "relative") { return t5_bucket(distance); }
    if (name == "alibi") { return alibi_penalty(distance, h, NH); }
    return P::template bias<double>(distance, P::slope(h, NH));
}
typedef double (*NaivePe)(const std::string& name, int distance, int h, int NH);

// ---- one call
struct NaiveIn {
    NaiveAttn attn;
    std::string pe; NaivePe bias;
    ExtraKind extra; // k*, v* (groups, HS), or the logit z (heads); zero where empty
    Numbers qkv, kstar, vstar;
    AttnShape s;
};
struct NaiveOut {
    Numbers map;                       // A (B, NH, T, T+1), column 0 the extra key
    Numbers out, dqkv, dkstar, dvstar; // the last three if dout was given
};
// dq += g k, dk += g q
static inline void naive_score_backward(double* dq, double* dk, const double* q, const double* k,
                                        double g, int HS) {
    for (int i = 0; i < HS; i++) { dq[i] += g * k[i]; dk[i] += g * q[i]; }
}
static inline NaiveOut naive_attention(const NaiveIn& in, const Numbers& dout = {}) {
    const AttnShape s = in.s;
    const int T = s.T, HS = s.HS, W = (s.NH + 2 * s.KV) * HS, groups = s.bias_shared ? 1 : s.KV;
    const double scale = s.scale, p = s.p, clip = s.clip,
                 alpha = in.attn.Z == ONE || in.attn.Z == COUNT ? 1 : (double)s.alpha;
    const bool logit = in.extra == LOGIT_EXTRA;
    const Numbers nothing(std::max(groups * HS, s.NH));
    const Numbers &ks = in.kstar.empty() ? nothing : in.kstar;
    const Numbers &vs = in.vstar.empty() ? nothing : in.vstar;
    NaiveOut r;
    r.map.resize((size_t)s.B * s.NH * T * (T + 1));
    r.out.resize((size_t)s.B * T * s.NH * HS);
    r.dqkv.resize(in.qkv.size()); r.dkstar.resize(nothing.size()); r.dvstar.resize(nothing.size());
    Numbers score(T + 1), slope(T + 1), w(T + 1), dA(T + 1);
    for (int b = 0; b < s.B; b++) {
        for (int h = 0; h < s.NH; h++) {
            for (int t = 0; t < T; t++) {
                const int g = h / (s.NH / s.KV), gs = s.bias_shared ? 0 : g,
                          zs = s.bias_shared ? 0 : h;
                const double* x = &in.qkv[(size_t)b * T * W];
                const double *q = x + (size_t)t * W + h * HS;
                // column 0 is the extra key, column j the token j-1
                auto key = [&](int j) {
                    if (j) { return x + (size_t)(j - 1) * W + (s.NH + g) * HS; }
                    return logit ? nothing.data() : &ks[gs * HS];
                };
                auto value = [&](int j) {
                    return j ? x + (size_t)(j - 1) * W + (s.NH + s.KV + g) * HS : &vs[gs * HS];
                };
                auto sees  = [&](int j) {
                    if (j == 0) { return in.extra != NO_EXTRA; }
                    const int at = j - 1;
                    return (at <= t && (s.window == 0 || t - at < s.window)) || at < s.prefix;
                };
                auto share = [&](double w) { return in.attn.Z == ABS_EPS ? std::max(w, 0.0) : w; };
                double* A = &r.map[(((size_t)b * s.NH + h) * T + t) * (T + 1)];
                double* o = &r.out[((size_t)b * T + t) * s.NH * HS + h * HS];
                double sum = 0, Z = 1;
                for (int j = 0; j <= T; j++) {
                    w[j] = 0;
                    if (!sees(j)) { continue; }
                    const double* k = key(j);
                    score[j] = 0;
                    for (int i = 0; i < HS; i++) { score[j] += q[i] * k[i]; }
                    score[j] = score[j] * scale + (j ? in.bias(in.pe, t - (j - 1), h, s.NH) : 0);
                    slope[j] = 1;
                    if (in.attn.capped) {
                        const double y = tanh(score[j] / s.cap);
                        score[j] = s.cap * y;
                        slope[j] = 1 - y * y;
                    }
                    if (!j && logit) { score[0] = ks[zs]; }
                    w[j] = in.attn.f(score[j]);
                    if (in.attn.Z == P_NORM) { sum += pow(w[j], p); }
                    else { sum += in.attn.Z == ABS_EPS ? fabs(w[j]) : w[j]; }
                }
                if (in.attn.Z == COUNT) {
                    Z = 0;
                    for (int j = 1; j <= T; j++) { Z += sees(j); }
                }
                if (in.attn.Z == SUM || in.attn.Z == CLIPPED) { Z = sum; }
                if (in.attn.Z == SUM_EPS) { Z = sum + 1e-8; }
                if (in.attn.Z == ABS_EPS) { Z = sum + 1e-6; }
                if (in.attn.Z == MAX_1)   { Z = std::max(fabs(sum), 1.0); }
                if (in.attn.Z == P_NORM)  { Z = pow(sum, 1 / p); }
                for (int j = 0; j <= T; j++) {
                    A[j] = alpha * share(w[j]) / Z;
                    if (in.attn.Z == CLIPPED) { A[j] = std::max((1 + clip) * A[j] - clip, 0.0); }
                    if (A[j] == 0) { continue; }
                    const double* v = value(j);
                    for (int i = 0; i < HS; i++) { o[i] += A[j] * v[i]; }
                }
                if (dout.empty()) { continue; }
                // A = alpha w / Z(w):
                // dw_j = alpha dA_j / Z - alpha (dZ/dw_j) / Z^2  sum_k dA_k w_k
                const double* d_o = &dout[((size_t)b * T + t) * s.NH * HS + h * HS];
                double* dx = &r.dqkv[(size_t)b * T * W];
                double dAw = 0;
                for (int j = 0; j <= T; j++) {
                    dA[j] = 0;
                    if (!sees(j)) { continue; }
                    const double* v = value(j);
                    for (int i = 0; i < HS; i++) { dA[j] += d_o[i] * v[i]; }
                    if (in.attn.Z == CLIPPED) { dA[j] *= A[j] > 0 ? 1 + clip : 0; }
                    dAw += dA[j] * share(w[j]);
                }
                for (int j = 0; j <= T; j++) {
                    if (!sees(j)) { continue; }
                    const NaiveZ kind = in.attn.Z;
                    const double weighs = kind == ABS_EPS ? w[j] > 0 : 1,
                                 sign = (w[j] > 0) - (w[j] < 0);
                    double dZ = 1;
                    if (kind == ONE || kind == COUNT) { dZ = 0; }
                    if (kind == MAX_1) { dZ = (sum > 1) - (sum < -1); }
                    if (kind == P_NORM) { dZ = pow(w[j] / Z, p - 1); }
                    if (kind == ABS_EPS) { dZ = sign; }
                    const double dw = alpha * dA[j] * weighs / Z - alpha * dZ / (Z * Z) * dAw;
                    double* dk = j ? dx + (size_t)(j - 1) * W + (s.NH + g) * HS
                                   : &r.dkstar[gs * HS];
                    double* dv = j ? dx + (size_t)(j - 1) * W + (s.NH + s.KV + g) * HS
                                   : &r.dvstar[gs * HS];
                    const double ds = dw * in.attn.df(score[j]);
                    if (!j && logit) { r.dkstar[zs] += ds; }
                    else {
                        naive_score_backward(dx + (size_t)t * W + h * HS, dk, q, key(j),
                                             ds * slope[j] * scale, HS);
                    }
                    for (int i = 0; i < HS; i++) { dv[i] += A[j] * d_o[i]; }
                }
            }
        }
    }
    return r;
}
#endif // NAIVE_H
