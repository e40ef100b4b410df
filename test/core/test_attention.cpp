/*
test_attention.cpp -- attention_forward and attention_backward of every ATTN x BIAS x PE,
in double, against two witnesses:

    naive.h             the T x T formulas: every number of out, dqkv, dk*, dv*
    differences         (8 (f(h) - f(-h)) - (f(2h) - f(-2h))) / 12h of a random linear functional f
                        of out along random directions, which a curved f is not off by

and what must hold between variants: p-norm and softmax, k* far away and no bias, buckets,
slopes, masks, any number of threads. The loops run over the tables of attention_variants.cuh:
a new row is tested with no edit here. -DATTN_ONLY=Attn_sigmoid compiles that one row
of ATTN alone (test_add_variant.sh).
*/
#define REAL double
#include "../../reference.h"
#include "../../metrics.cuh"
#include "../../arch.h"
#include "../check.h"
#include "../naive.h"
using ref::real;

// ---- one call of the operation under test
struct Op { // the build of one ATTN, BIAS, PE and what the witness has to know of them
    void (*forward)(real*, real*, real*, ExtraKey<const real>, const real*, AttnShape);
    void (*backward)(real*, ExtraKey<real>, const real*, AttnResult<real, real>, const real*,
                     ExtraKey<const real>, const real*, AttnShape);
    NaiveAttn attn; std::string pe; NaivePe pe_bias;
    bool phi_elu1; ExtraKind extra; bool learn_k, learn_v;
};
template <class A, class Bi, class Pe> Op op_of(const char* attn, const char* pe) {
    return { ref::attention_forward<A, Bi, Pe>, ref::attention_backward<A, Bi, Pe>,
             naive_attn<A>(attn), pe, naive_pe<Pe>, A::phi == PHI_ELU1, Bi::extra, Bi::learn_k,
             Bi::learn_v };
}
struct Case { AttnShape s; bool fixed_v, slopes; };
struct Run { Numbers out, stat, dqkv, dkstar, dvstar; };

static NaiveIn inputs(const Op& op, const Case& c, uint64_t seed) {
    const AttnShape s = whole(c.s);
    const size_t width = (size_t)(s.bias_shared ? 1 : s.KV) * s.HS, z = s.bias_shared ? 1 : s.NH;
    NaiveIn in = { op.attn,
                   op.pe,
                   op.pe_bias,
                   op.extra,
                   random_numbers((long)s.B * s.T * attn_row(s), 1.2, seed),
                   {},
                   {},
                   s };
    if (op.attn.Z == CLIPPED) { in.s.clip = 1.3f / s.T; }       // leaves some weights
    if (op.phi_elu1) { ref::phi_elu1_forward(in.qkv.data(), s); }
    if (op.extra && op.learn_k) {
        in.kstar = random_numbers(op.extra == LOGIT_EXTRA ? z : width, 1, seed + 1);
    }
    if (op.extra && (op.learn_v || c.fixed_v)) { in.vstar = random_numbers(width, 1, seed + 2); }
    for (size_t i = 0; op.extra == KEY_EXTRA && i < in.kstar.size(); i++) {
        if ((int)(i % s.HS) >= s.k_dims) { in.kstar[i] = 0; }
    }
    return in;
}
static real* or_null(Numbers& x) { return x.empty() ? NULL : x.data(); }
static const real* or_null(const Numbers& x) { return x.empty() ? NULL : x.data(); }
static Numbers forward(const Op& op, const NaiveIn& in, Numbers* stat) {
    const AttnShape s = in.s;
    Numbers out((size_t)s.B * s.T * s.NH * s.HS, NAN);
    stat->assign((size_t)s.B * s.NH * s.T * 2, NAN);
    op.forward(out.data(), stat->data(), Numbers(in.qkv).data(),
               { or_null(in.kstar), or_null(in.vstar) }, NULL, s);
    return out;
}
enum { OLD = 5 }; // what dk*, dv* hold before: backward adds to them
static Run run(const Op& op, const NaiveIn& in, const Numbers& dout) {
    Run r;
    r.out = forward(op, in, &r.stat);
    r.dqkv.assign(in.qkv.size(), NAN);
    r.dkstar.assign(in.kstar.size(), OLD);
    r.dvstar.assign(op.learn_v ? in.vstar.size() : 0, OLD);
    op.backward(r.dqkv.data(), { or_null(r.dkstar), or_null(r.dvstar) }, dout.data(),
                { r.out.data(), r.stat.data() }, in.qkv.data(),
                { or_null(in.kstar), or_null(in.vstar) }, NULL, in.s);
    return r;
}

// the slope of <dout, out> along a direction in x[from, from + count) of every row,
// against the gradient's share of it
static void difference(const std::string& what, const Op& op, NaiveIn in, Numbers NaiveIn::*x,
                       const Numbers& grad, const Numbers& dout, int row, int from, int count) {
    const Numbers was = in.*x;
    Numbers d = random_numbers(was.size(), 1, 7), g = grad, stat;
    for (size_t i = 0; i < d.size(); i++) {
        if ((int)(i % row) < from || (int)(i % row) >= from + count) {
            d[i] = 0;
            g[i] = 0;
        }
    }
    double slope = 0;
    const double want = inner(g, d), tol = 1e-7 * (1 + sqrt(inner(g, g)));
    const auto moved = [&](double h) {
        for (size_t i = 0; i < d.size(); i++) { (in.*x)[i] = was[i] + h * d[i]; }
        return inner(dout, forward(op, in, &stat));
    };
    // a large step may straddle a kink, a small one rounds more: one of them has to agree
    for (double h : { 1e-5, 1e-6, 1e-7 }) {
        slope = (8 * (moved(h) - moved(-h)) - (moved(2 * h) - moved(-2 * h))) / (12 * h);
        if (fabs(slope - want) <= tol) { break; }
    }
    check_near(slope, want, tol, "%s: slope", what.c_str());
}
static void check_case(const std::string& what, const Op& op, const Case& c) {
    const AttnShape s = c.s;
    const NaiveIn in = inputs(op, c, s.T);
    const Numbers dout = random_numbers((long)s.B * s.T * s.NH * s.HS, 1, 99);
    Run r = run(op, in, dout);
    NaiveOut n = naive_attention(in, dout);
    const double tol = 1e-11;
    compare(what + " out", r.out, n.out, tol);
    // Where one key has the whole row, dA - delta cancels, and dqkv may be as small as it likes. Both
    // are sums over HS of dout v, each rounded to u = 2^-53 of its terms, and dq and dk are sums over
    // at most T + 1 of that times k or q. Rounding that adds up as random steps do leaves
    // u sqrt(HS (T + 1)) |dout| |v| |k|, which are 1, 1.2 and 1.2 here: four of these are let pass
    const double rounded = 4 * 0x1p-53 * sqrt(s.HS * (s.T + 1.0)) * 1.2 * 1.2;
    compare(what + " dqkv", r.dqkv, n.dqkv, tol, rounded / tol);
    n.dkstar.resize(r.dkstar.size()); n.dvstar.resize(r.dvstar.size());
    for (size_t i = 0; i < n.dkstar.size(); i++) {
        const bool learned = op.extra == LOGIT_EXTRA || (int)(i % s.HS) < s.k_dims;
        n.dkstar[i] = OLD + (learned ? n.dkstar[i] : 0);
    }
    for (auto& x : n.dvstar) { x += OLD; }
    if (!in.kstar.empty()) { compare(what + " dk*", r.dkstar, n.dkstar, tol); }
    if (!r.dvstar.empty()) { compare(what + " dv*", r.dvstar, n.dvstar, tol); }

    if (!c.slopes) { return; }
    const int q = s.NH * s.HS, kv = s.KV * s.HS, row = attn_row(s);
    difference(what + " dq", op, in, &NaiveIn::qkv, r.dqkv, dout, row, 0, q);
    difference(what + " dk", op, in, &NaiveIn::qkv, r.dqkv, dout, row, q, kv);
    difference(what + " dv", op, in, &NaiveIn::qkv, r.dqkv, dout, row, q + kv, kv);
    for (auto& x : r.dkstar) { x -= OLD; }
    for (auto& x : r.dvstar) { x -= OLD; }
    const bool logit = op.extra == LOGIT_EXTRA;
    if (!in.kstar.empty()) {
        difference(what + " dk*", op, in, &NaiveIn::kstar, r.dkstar, dout, logit ? 1 : s.HS, 0,
                   logit ? 1 : s.k_dims);
    }
    if (!r.dvstar.empty()) {
        difference(what + " dv*", op, in, &NaiveIn::vstar, r.dvstar, dout, s.HS, 0, s.HS);
    }
}

//     B  T    NH KV HS  window prefix shared k_dims p    alpha   fixed v*  also differences
static const Case CASES[] = {
    { { 2, 33,  2, 1, 5,  7,     0,     0,     3,     0.5f, 0.5f }, true,  true },
    // prefix inside a tile; all buckets of PE=relative
    { { 1, 130, 2, 2, 3,  0,     40,    1,     3,     2,    1 },    false, false },
    // these with PE=nope only
    { { 2, 1,   2, 1, 3,  0,     0,     0,     3,     1,    1 },    false, true },
    { { 1, 67,  4, 2, 24, 0,     0,     0,     20,    2,    1 },    false, false },
    // window and prefix together
    { { 1, 100, 2, 1, 7,  20,    37,    1,     7,     0.5f, 0.5f }, true,  true },
    // tiles that all, some or no query sees whole
    { { 1, 135, 1, 1, 9,  70,    0,     0,     5,     1,    2 },    false, false },
};
template <class A, class Bi, class Pe>
void check_variant(const char* attn, const char* bias, const char* pe) {
#ifdef ATTN_ONLY
    if constexpr (!std::is_same<A, ATTN_ONLY>::value) { return; } else
#endif
    // Without CONFLICTS. The operation asks of BIAS only for the column and of PE only
    // for the score's bias, so the others would be the same code once more
    if constexpr (!(A::phi != PHI_NONE && Bi::extra) &&
                  (std::is_same<Pe, Pe_nope>::value || Pe::score_bias)) {
        if constexpr (std::is_same<Pe, Pe_nope>::value || std::is_same<Bi, Bias_none>::value ||
                      Bi::extra) {
            const Op op = op_of<A, Bi, Pe>(attn, pe);
            int n = 0;
            for (auto& c : CASES) {
                if (!Pe::score_bias || n++ < 2) {
                    check_case(strf("%s %s %s T=%d", attn, bias, pe, c.s.T), op, c);
                }
            }
        }
    }
}
template <class A, class Bi> void check_pe(const char* attn, const char* bias) {
    #define X_PE(pe, ...) check_variant<A, Bi, Pe_##pe>(attn, bias, #pe);
    PE_VARIANTS(X_PE)
}
template <class A> void check_bias(const char* attn) {
    #define X_BIAS(bias, ...) check_pe<A, Bias_##bias>(attn, #bias);
    BIAS_VARIANTS(X_BIAS)
}

// ---- between variants
static const Case PLAIN = { { 2, 37, 2, 1, 6, 0, 0, 0, 6, 1, 1 }, false, false };
// with v_j = e_j and HS = T the output is the map itself
static NaiveIn map_inputs(NaiveIn in) {
    const AttnShape s = in.s;
    for (long bt = 0; bt < s.B * s.T; bt++) {
        for (int i = 0; i < s.KV * s.HS; i++) {
            in.qkv[bt * attn_row(s) + (s.NH + s.KV) * s.HS + i] = i % s.HS == bt % s.T;
        }
    }
    return in;
}
static void check_p_norm() { // softmax_p(s) = softmax(p s)^(1/p)
    for (float p : { 0.5f, 2.0f, 3.0f }) {
        const int T = 33;
        const Case c = { { 1, T, 2, 1, T, 0, 0, 0, T, p, 1 }, false, false };
        const Op p_norm = op_of<Attn_softmax_p, Bias_none, Pe_nope>("softmax_p", "nope"),
                 plain = op_of<Attn_softmax, Bias_none, Pe_nope>("softmax", "nope");
        NaiveIn in = map_inputs(inputs(p_norm, c, 3));
        Numbers stat, with_p = forward(p_norm, in, &stat);
        for (long i = 0; i < (long)in.qkv.size(); i++) {
            if (i % attn_row(c.s) < c.s.NH * T) { in.qkv[i] *= p; }
        }
        Numbers scaled = forward(plain, in, &stat);
        for (auto& A : scaled) { A = A > 0 ? pow(A, 1.0 / p) : 0; }
        compare(strf("softmax_p, p=%g", p), with_p, scaled, 1e-13);
    }
}
#ifndef ATTN_ONLY
// no two operations are one by ARCH's defaults, unless one of them says so in `twin`, and why
struct Usual { std::string is; Phi phi; Numbers out; };
template <class A> Usual usual_of(const char* attn) {
    const Arch usual;
    const Op op = op_of<A, Bias_none, Pe_nope>(attn, "nope");
    NaiveIn in = inputs(op, PLAIN, 11);
    in.s.p = usual.attn_p;
    in.s.clip = usual.attn_clip;
    in.s.cap = usual.attn_cap;
    Numbers stat;
    const float value = A::clip == NO_CLIP ? in.s.p : in.s.clip;
    const bool twin = *A::twin.name && A::twin.value == value && *A::twin.does;
    return { twin ? A::twin.name : attn, A::phi, forward(op, in, &stat) };
}
static void check_twins() {
    const Usual ALL[] = {
        #define X_ATTN(attn, ...) usual_of<Attn_##attn>(#attn),
        ATTN_VARIANTS(X_ATTN)
        #undef X_ATTN
    };
    int pairs = 0;
    for (auto& a : ALL) {
        for (auto& b : ALL) {
            // phi of mlp comes before the operation, which is then that of identity
            if (&a <= &b || (a.phi == PHI_MLP) != (b.phi == PHI_MLP)) { continue; }
            const Worst w = worst_of(a.out, b.out);
            CHECK((a.is == b.is) == (w.off <= 1e-6 * w.top), "ATTN=%s and %s are %.3g apart",
                  a.is.c_str(), b.is.c_str(), w.off);
            pairs += a.is == b.is;
        }
    }
    CHECK(pairs == 4, "%d pairs are one", pairs);
}
#endif
// an extra key that every query is far from is no extra key (where f(-inf) = 0)
template <class A> void check_far_extra(const char* attn) {
    if constexpr (!A::is_signed && !A::capped) {
        const Op with_extra = op_of<A, Bias_kv, Pe_nope>(attn, "nope"),
                 no_extra = op_of<A, Bias_none, Pe_nope>(attn, "nope");
        NaiveIn in = inputs(with_extra, PLAIN, 5);
        const AttnShape s = in.s;
        for (long i = 0; i < (long)in.qkv.size(); i++) {
            if (i % attn_row(s) < s.NH * s.HS) { in.qkv[i] = fabs(in.qkv[i]) + 0.5; }
        }
        for (auto& k : in.kstar) { k = -1000; }
        const Numbers dout = random_numbers((long)s.B * s.T * s.NH * s.HS, 1, 6);
        const Run with = run(with_extra, in, dout);
        in.kstar.clear(); in.vstar.clear();
        const Run without = run(no_extra, in, dout);
        compare(strf("%s, k* -> -inf: out", attn), with.out, without.out, 1e-13);
        compare(strf("%s, k* -> -inf: dqkv", attn), with.dqkv, without.dqkv, 1e-12);
    }
}
// BIAS=zero is BIAS=logit with z = 0, and z = -inf is BIAS=none: not one bit apart
template <class A> void check_logit(const char* attn) {
    if constexpr (A::phi == PHI_NONE) {
        const Op logit = op_of<A, Bias_logit, Pe_nope>(attn, "nope");
        NaiveIn in = inputs(logit, CASES[0], 9);
        const Numbers dout = random_numbers((long)in.s.B * in.s.T * in.s.NH * in.s.HS, 1, 6);
        auto same = [&](const char* what, double z, const Op& other) {
            NaiveIn with = in, without = in;
            with.vstar.clear(); without.vstar.clear(); without.kstar.clear();
            for (auto& x : with.kstar) { x = z; }
            const Run a = run(logit, with, dout), b = run(other, without, dout);
            CHECK(a.out == b.out && a.stat == b.stat && a.dqkv == b.dqkv, "%s, %s: other bits",
                  attn, what);
        };
        same("z = 0 and BIAS=zero", 0, op_of<A, Bias_zero, Pe_nope>(attn, "nope"));
        if (!A::is_signed) {
            same("z = -inf and BIAS=none", -INFINITY, op_of<A, Bias_none, Pe_nope>(attn, "nope"));
        }
    }
}
// the future is not seen: what is at t has no share in the outputs before t (and,
// with a prefix, has)
template <class A> void check_causal(const char* attn) {
    for (int prefix : { 0, 40 }) {
        Case c = PLAIN;
        c.s.T = 67; c.s.prefix = prefix; c.s.B = 1;
        const Op op = op_of<A, Bias_none, Pe_nope>(attn, "nope");
        NaiveIn in = inputs(op, c, 8);
        Numbers stat, before = forward(op, in, &stat);
        const int at = 38, W = attn_row(c.s), OC = c.s.NH * c.s.HS;
        for (int i = 0; i < W; i++) { in.qkv[(long)at * W + i] += 1; }
        Numbers after = forward(op, in, &stat);
        const bool same = !memcmp(before.data(), after.data(), (size_t)at * OC * sizeof(double));
        CHECK(same == !prefix, "%s: token %d %s the outputs before it, prefix %d", attn, at,
              same ? "does not reach" : "reaches", prefix);
        CHECK(memcmp(&before[(long)at * OC], &after[(long)at * OC], OC * sizeof(double)),
              "%s: token %d does not reach its own output", attn, at);
    }
}
// the row of a textbook and the general one: query heads 0 and 1 read key head 0
static void check_row() {
    const NaiveIn in = inputs(op_of<Attn_softmax, Bias_none, Pe_nope>("softmax", "nope"), PLAIN, 3);
    const AttnShape s = in.s;
    Numbers stat, row(s.HS), wanted;
    const Numbers out = forward(op_of<Attn_softmax, Bias_none, Pe_nope>("softmax", "nope"), in, &stat);
    for (int b = 0; b < s.B; b++) {
        for (int t = 0; t < s.T; t++) {
            for (int h = 0; h < s.NH; h++) {
                const double* first = &in.qkv[(long)b * s.T * attn_row(s)];
                const double* k = first + (s.NH + h / (s.NH / s.KV)) * s.HS;
                ref::softmax_row(row.data(), first + (long)t * attn_row(s) + h * s.HS, k,
                                 k + s.KV * s.HS, t, attn_row(s), s.HS, s.scale);
                wanted.insert(wanted.end(), row.begin(), row.end());
            }
        }
    }
    compare("softmax_row: out", out, wanted, 1e-14);
}
static void check_positions() {
    // first distances of the buckets 16..31: the integers from 16 * 8^(k/16) on
    const int first[] = { 16, 19, 21, 24, 27, 31, 35, 40, 46, 52, 59, 67, 77, 87, 99, 113 };
    for (int d = -3; d < 1000; d++) {
        double want = d < 0 ? 0 : d < 16 ? d : 15;
        for (int f : first) { want += d >= f; }
        check_near(Pe_relative::bias<double>(d, 0), want, 0, "relative: distance %d", d);
        check_near(t5_bucket(d), want, 0, "naive relative: distance %d", d);
    }
    for (int NH : { 1, 2, 3, 8, 12 }) {
        for (int h = 0; h < NH; h++) {
            const float slope = Pe_alibi::slope(h, NH);
            check_near(Pe_alibi::bias<double>(10, slope), -10 * pow(2, -8.0 * (h + 1) / NH), 1e-5,
                       "alibi: slope of head %d of %d", h, NH);
            check_near(Pe_alibi::bias<double>(-10, slope), 0, 0, "alibi: ahead");
        }
    }
    // of no power of two: those of the largest one in it, then those between them
    for (int NH : { 1, 3, 6, 12, 112 }) {
        AttnShape s = AttnShape();
        s.NH = NH;
        int n = 1;
        while (2 * n <= NH) { n *= 2; }
        s.slope_heads = n;
        for (int h = 0; h < NH; h++) {
            const double power = h < n ? -8.0 * (h + 1) / n : -4.0 * (2 * (h - n) + 1) / n;
            const float slope = pe_slope<Pe_alibi>(s, h);
            check_near((attn_bias<Attn_softmax, Pe_alibi, double>(s, 10, slope)), -10 * pow(2, power),
                       1e-5, "alibi: published slope of head %d of %d", h, NH);
        }
    }
    check_near(Pe_alibi::bias<double>(3, Pe_alibi::slope(0, 8)), -1.5, 0,
               "alibi: the first of eight heads has slope 1/2");
    check_near(Pe_alibi::bias<double>(256, Pe_alibi::slope(7, 8)), -1, 0,
               "alibi: the last of eight heads has slope 1/256");
}
// the same bits whatever the number of threads
template <class A> void check_threads(const char* attn) {
    if constexpr (A::phi == PHI_NONE) {
        const Op op = op_of<A, Bias_kv, Pe_nope>(attn, "nope");
        const NaiveIn in = inputs(op, CASES[3], 4);
        const Numbers dout = random_numbers((long)in.s.B * in.s.T * in.s.NH * in.s.HS, 1, 5);
        Run one;
        for (int threads : { 1, 2, 3 }) {
            omp_set_num_threads(threads);
            Run r = run(op, in, dout);
            if (threads == 1) { one = r; continue; }
            CHECK(r.out == one.out && r.stat == one.stat && r.dqkv == one.dqkv &&
                      r.dkstar == one.dkstar && r.dvstar == one.dvstar,
                  "%s: other bits with %d threads", attn, threads);
        }
        omp_set_num_threads(1);
    }
}

int main() {
    omp_set_num_threads(1);
    #define X_ATTN(attn, ...) CASE(#attn) { check_bias<Attn_##attn>(#attn); }
    ATTN_VARIANTS(X_ATTN)
    #undef X_ATTN
#ifndef ATTN_ONLY
#define X_ATTN(attn, ...) CASE(#attn) { \
    check_far_extra<Attn_##attn>(#attn); \
    check_logit<Attn_##attn>(#attn); \
    check_causal<Attn_##attn>(#attn); \
    check_threads<Attn_##attn>(#attn); }
    ATTN_VARIANTS(X_ATTN)
    CASE("p_norm") { check_p_norm(); }
    CASE("twins") { check_twins(); }
    CASE("row") { check_row(); }
    CASE("positions") { check_positions(); }
#endif
    return check_done();
}
