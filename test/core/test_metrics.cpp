/*
test_metrics.cpp -- the numbers this program exists for: on maps made by hand,
with answers worked out in the comments, and for every ATTN x BIAS against the definitions
at the top of metrics.cuh applied to the T x T map of naive.h.
*/
#define REAL double
#include "../../reference.h"
#include "../../metrics.cuh"
#include "../check.h"
#include "../head_case.h"
using ref::real;

static double harmonic(int from, int to) {
    double x = 0;
    for (int i = from; i <= to; i++) { x += 1.0 / i; }
    return x;
}

// forward, then metrics; qkv (T, ..) of one sequence with one head
template <class A, class Bi>
std::vector<HeadMetrics> metrics(const Numbers& qkv, const Numbers& kstar, int skip, AttnShape s) {
    Numbers out((size_t)s.B * s.T * s.NH * s.HS), stat((size_t)s.B * s.NH * s.T * 2);
    std::vector<HeadMetrics> r((size_t)s.B * s.NH);
    const real* ks = kstar.empty() ? NULL : kstar.data();
    ref::attention_forward<A, Bi, Pe_nope>(out.data(), stat.data(), Numbers(qkv).data(),
                                           { ks, NULL }, NULL, s);
    ref::attention_metrics<A, Bi, Pe_nope>(r.data(), qkv.data(), stat.data(), { ks, NULL }, {},
                                           skip, s);
    return r;
}
enum { T = 12 };
static const AttnShape ONE_HEAD = whole({ 1, T, 1, 1, T, 0, 0, 0, T, 1, 1 });
// q_t = size e_at(t), k_j = e_j: query t looks at key at(t), wholly if size is large,
// at all alike if it is 0
template <class At> Numbers looks_at(double size, At at) {
    Numbers x((size_t)T * 3 * T);
    for (int t = 0; t < T; t++) { x[t * 3 * T + at(t)] = size; x[t * 3 * T + T + t] = 1; }
    return x;
}
static void test_by_hand() {
    const double huge = 1000;
    const Numbers uniform = looks_at(0, [](int) { return 0; }),
                  sink = looks_at(huge, [](int) { return 0; }),
                  self = looks_at(huge, [](int t) { return t; });

    // softmax, all scores equal: A_ik = 1/i, alpha_k = (1/k + .. + 1/T) / (T - k + 1),
    // a row's entropy is ln i
    HeadMetrics m = metrics<Attn_softmax, Bias_none>(uniform, {}, 0, ONE_HEAD)[0];
    double entropy = 0;
    for (int i = 1; i <= T; i++) { entropy += log(i) / T; }
    for (int k = 1; k <= METRIC_K; k++) {
        check_near(m.alpha[k], harmonic(k, T) / (T - k + 1), 1e-6, "uniform: alpha_%d", k);
        check_near(m.proxy[k], harmonic(k, T) / (T - k + 1), 1e-6, "uniform: proxy_%d", k);
    }
    check_near(m.mass, 1, 1e-6, "uniform: mass");
    check_near(m.entropy, entropy, 1e-6, "uniform: entropy");
    check_near(m.alpha[0], 0, 0, "uniform: there is no extra key");

    // a perfect sink: alpha_1 = 1, the others 0, no entropy
    m = metrics<Attn_softmax, Bias_none>(sink, {}, 0, ONE_HEAD)[0];
    for (int k = 1; k <= METRIC_K; k++) {
        check_near(m.alpha[k], k == 1, 1e-6, "sink: alpha_%d", k);
    }
    check_near(m.entropy, 0, 1e-6, "sink: entropy");

    // every token looks at itself: of the T - k + 1 queries from k on only query k looks at k
    m = metrics<Attn_softmax, Bias_none>(self, {}, 0, ONE_HEAD)[0];
    for (int k = 1; k <= METRIC_K; k++) {
        check_near(m.alpha[k], 1.0 / (T - k + 1), 1e-6, "self: alpha_%d", k);
    }

    // sigmoid of 0 is 1/2 for every key: alpha_k = 1/2, row i weighs i/2;
    // the proxy is uniform again
    m = metrics<Attn_sigmoid, Bias_none>(uniform, {}, 0, ONE_HEAD)[0];
    for (int k = 1; k <= METRIC_K; k++) {
        check_near(m.alpha[k], 0.5, 1e-6, "sigmoid: alpha_%d", k);
        check_near(m.proxy[k], harmonic(k, T) / (T - k + 1), 1e-6, "sigmoid: proxy_%d", k);
    }
    check_near(m.mass, (T + 1) / 4.0, 1e-6, "sigmoid: mass");
    check_near(m.entropy, entropy, 1e-6, "sigmoid: entropy");

    // an extra key whose score is that of the others, 0: query i shares 1/(i+1);
    // its own row is one-hot and counts in its mean
    m = metrics<Attn_softmax, Bias_k>(uniform, Numbers(T), 0, ONE_HEAD)[0];
    check_near(m.alpha[0], (1 + harmonic(2, T + 1)) / (T + 1), 1e-6, "extra key: alpha_*");
    check_near(m.alpha[1], harmonic(2, T + 1) / T, 1e-6, "extra key: alpha_1");
    check_near(m.mass, 1 - harmonic(2, T + 1) / T, 1e-6, "extra key: mass of the tokens");
    check_near(m.entropy, (entropy * T + log(T + 1)) / T, 1e-6, "extra key: entropy, all columns");

    // a sink token at row 0 of T rows: T - 1 real queries. alpha_* is the mean over all T rows,
    // its own among them
    m = metrics<Attn_softmax, Bias_sink_token>(uniform, {}, 1, ONE_HEAD)[0];
    check_near(m.alpha[0], harmonic(1, T) / T, 1e-6, "sink token: alpha_*");
    check_near(m.alpha[1], harmonic(2, T) / (T - 1), 1e-6, "sink token: alpha_1");
    check_near(m.mass, 1 - harmonic(2, T) / (T - 1), 1e-6, "sink token: mass of the others");

    // signed rows: scores 0 but for +1 at key 1 and -1 at key 2
    Numbers plus_minus((size_t)T * 3 * T);
    for (int t = 0; t < T; t++) { plus_minus[t * 3 * T] = sqrt((double)T); }
    plus_minus[T] = 1; plus_minus[3 * T + T] = -1;
    m = metrics<Attn_identity, Bias_none>(plus_minus, {}, 0, ONE_HEAD)[0];
    check_near(m.alpha[1], 1, 1e-6, "signed: alpha_1");
    check_near(m.alpha[2], -1, 1e-6, "signed: alpha_2");
    check_near(m.proxy[1], (1 + (T - 1) * 0.5) / T, 1e-6, "signed: proxy_1 is |w| / sum |w|");
    check_near(m.proxy[2], 0.5, 1e-6, "signed: proxy_2");
    check_near(m.mass, 1.0 / T, 1e-6, "signed: only the first row weighs anything");
}
static void test_reports() {
    CHECK(attn_sums_to_one<Attn_softmax>(1) && attn_sums_to_one<Attn_sigmoid_norm>(1),
          "rows of softmax sum to 1");
    CHECK(!attn_sums_to_one<Attn_softmax>(0.5f) && !attn_sums_to_one<Attn_sigmoid>(1) &&
              !attn_sums_to_one<Attn_softmax_p>(1) && !attn_sums_to_one<Attn_identity_norm>(1),
          "rows of these do not");
    // two sequences, one layer, two heads; alpha_1 .9 .1 | .3 .31. First the threshold,
    // strictly above, then the mean
    Metrics m;
    m.n = 2; m.L = 1; m.NH = 2;
    m.heads.resize(4);
    const float alpha[] = { 0.9f, 0.1f, 0.3f, 0.31f };
    for (int i = 0; i < 4; i++) {
        m.heads[i].alpha[1] = alpha[i];
        m.heads[i].proxy[1] = 1 - alpha[i];
        m.heads[i].alpha[0] = 0.5f;
    }
    // the mean alpha, .4, would say all
    check_near(sink_rate(m.heads, 1, 0.3f, false), 0.5, 0, "Sink_1, eps .3: two of four");
    check_near(sink_rate(m.heads, 1, 0.2, false), 0.75, 0, "Sink_1, eps .2");
    check_near(sink_rate(m.heads, 1, 0.5, true), 0.75, 0, "Sink_1 of the proxy");
    check_near(sink_rate(m.heads, 0, 0.3, false), 1, 0, "Sink_*");
    check_near(sink_rate(m.heads, 2, 0.3, false), 0, 0, "Sink_2");
    m.heads[0].effective = 0.4f;  // the others' gates are shut
    check_near(gated_sink_rate(m, 0.3), 0.25, 0, "Sink_1 behind the gate");
    const std::vector<double> mean = head_means(m, [](const HeadMetrics& h) {
        return (double)h.alpha[1];
    });
    check_near(mean[0], 0.6, 1e-6, "mean over sequences, head 0");
    check_near(mean[1], 0.205, 1e-6, "mean over sequences, head 1");
    // the rates of the sequences are 1/2 and 1/2 above .3, 1/2 and 1 above .2, 1/2 and 1 of the
    // proxy above .5; of two numbers the standard error is half of their distance
    check_near(sink_error(m, 1, 0.3f, false), 0, 0, "error of Sink_1, eps .3");
    check_near(sink_error(m, 1, 0.2, false), 0.25, 1e-12, "error of Sink_1, eps .2");
    check_near(sink_error(m, 1, 0.5, true), 0.25, 1e-12, "error of Sink_1 of the proxy");
    const std::vector<double> error = head_errors(m, [](const HeadMetrics& h) {
        return (double)h.alpha[1];
    });
    check_near(error[0], 0.3, 1e-6, "error of a mean, head 0");
    check_near(error[1], 0.105, 1e-6, "error of a mean, head 1");

    // row_norms: two groups of two in rows of five, and what they add to a layer:
    // 2 sequences of 3, 2 groups
    const Numbers x = { 3, 4, 0, -2, 9,   6, 8, 1, 0, 9 };
    Numbers norms(4);
    ref::row_norms(norms.data(), x.data(), 5, 2, 2, 2);
    CHECK(norms == Numbers({ 5, 2, 10, 1 }), "row_norms: %g %g %g %g", norms[0], norms[1], norms[2],
          norms[3]);
    // magnitudes: 2 sequences of 3 rows of 2, with the first row and without it
    const Numbers h = { -9, 0,  1, -2,  3, 4,     0, 0,  -5, 5,  6, -7 };
    Numbers sizes(4);
    ref::magnitudes(sizes.data(), h.data(), 0, 2, 3, 2);
    CHECK(sizes == Numbers({ 9, 3, 7, 5 }), "magnitudes: %g %g %g %g", sizes[0], sizes[1], sizes[2],
          sizes[3]);
    ref::magnitudes(sizes.data(), h.data(), 1, 2, 3, 2);
    CHECK(sizes == Numbers({ 4, 3, 7, 6 }), "magnitudes after a sink token: %g %g %g %g", sizes[0],
          sizes[1], sizes[2], sizes[3]);
    // means 2 15 35 | 6 55 75
    const Numbers n = { 1, 3,  10, 20,  30, 40,   5, 7,  50, 60,  70, 80 };
    NormPair p, q;
    norms_add(&p, 1, n.data(), 2, 3, 2, 0, 2);
    check_near(p.first[1], 4, 1e-12, "norms: first");
    check_near(p.rest[1], 45, 1e-12, "norms: rest");
    CHECK(p.first[0] == 0, "norms: layer 0 is untouched");
    norms_add(&q, 0, n.data(), 2, 3, 2, 1, 2);  // row 0 is a sink token
    check_near(q.first[0], 35, 1e-12, "norms after a sink token: first");
    check_near(q.rest[0], 55, 1e-12, "norms after a sink token: rest");
}

// ---- every ATTN x BIAS: the definitions on the naive map
struct Want { double alpha[METRIC_K + 1], proxy[METRIC_K + 1], mass, entropy; };
static Want definitions(const double* A, int rows, bool has_extra, int skip) {
    const int tokens = rows - skip;
    Want w = {};
    for (int proxy = 0; proxy < 2; proxy++) {
        double* alpha = proxy ? w.proxy : w.alpha;
        for (int k = 1; k <= METRIC_K && k <= tokens; k++) {
            alpha[k] = alpha_of(A, rows, skip, k, proxy);
        }
        if (has_extra || skip) {
            alpha[0] = has_extra;
            // column 0, or the sink token in column 1
            for (int t = 0; t < rows; t++) { alpha[0] += entry(A, rows, t, skip, proxy); }
            alpha[0] /= tokens + 1;
        }
        for (int t = skip; t < rows; t++) {
            for (int j = 0; j <= rows; j++) {
                const double a = entry(A, rows, t, j, proxy);
                if (!proxy && j > skip) { w.mass += a / tokens; }
                if (proxy && a > 0) { w.entropy -= a * log(a) / tokens; }
            }
        }
    }
    return w;
}
template <class A, class Bi, class Pe>
void check_variant(const char* attn, const char* bias, const HeadCase<A, Bi, Pe>& at, int kind) {
    const AttnShape& s = at.s;
    std::vector<HeadMetrics> m((size_t)s.B * s.NH);
    ref::attention_metrics<A, Bi, Pe>(m.data(), at.in.qkv.data(), at.stat.data(),
                                      { at.kstar, NULL }, {}, at.skip, s);
    const long size = (long)s.T * (s.T + 1);
    for (int i = 0; i < s.B * s.NH; i++) {
        const Want w = definitions(&at.naive.map[i * size], s.T, Bi::extra, at.skip);
        double worst = 0, top = 1;
        for (int k = 0; k <= METRIC_K; k++) {
            worst = std::max({ worst, fabs(m[i].alpha[k] - w.alpha[k]),
                               fabs(m[i].proxy[k] - w.proxy[k]) });
            top = std::max(top, fabs(w.alpha[k]));
        }
        CHECK(worst <= 1e-6 * top,
              "%s %s, kind %d, head %d: an alpha or proxy is off by %.3g", attn, bias, kind,
              i, worst);
        check_near(m[i].mass, w.mass, 1e-6 * (1 + fabs(w.mass)),
                   "%s %s, kind %d, head %d: mass", attn, bias, kind, i);
        check_near(m[i].entropy, w.entropy, 1e-6, "%s %s, kind %d, head %d: entropy", attn,
                   bias, kind, i);
    }
}
// ---- which extra keys are idle
// is the pair one of CONFLICTS, which no binary has?
static bool conflict(const std::string& attn, const std::string& bias) {
    #define X_CONFLICT(pair, why) #pair,
    const char* const pairs[] = { CONFLICTS(X_CONFLICT) };
    #undef X_CONFLICT
    for (const std::string pair : pairs) { // ATTN=a|b BIAS=c|d
        const size_t second = pair.find("BIAS=");
        auto names = split(pair.substr(5, second - 5), '|');
        while (names.back().back() == ' ') { names.back().pop_back(); }
        const auto others = split(pair.substr(second + 5), '|');
        if (std::count(names.begin(), names.end(), attn) &&
            std::count(others.begin(), others.end(), bias)) {
            return true;
        }
    }
    return false;
}
struct Seen { Numbers out; std::vector<HeadMetrics> heads; };
template <class A, class Bi, class Counted>
Seen seen(const Numbers& qkv, const Numbers& kstar, const Numbers& vstar, AttnShape s) {
    Seen r;
    Numbers stat((size_t)s.B * s.NH * s.T * 2);
    const real *k = kstar.empty() ? NULL : kstar.data(), *v = vstar.empty() ? NULL : vstar.data();
    r.out.resize((size_t)s.B * s.T * s.NH * s.HS);
    r.heads.resize((size_t)s.B * s.NH);
    ref::attention_forward<A, Bi, Pe_nope>(r.out.data(), stat.data(), Numbers(qkv).data(),
                                           { k, v }, NULL, s);
    ref::attention_metrics<A, Counted, Pe_nope>(r.heads.data(), qkv.data(), stat.data(), { k, v },
                                                {}, 0, s);
    return r;
}
// f(0) = 0: a key whose score is 0 weighs nothing
struct Attn_relu2 : AttnBase {
    static constexpr ZKind Z = Z_SUM;
    template <class F> HD static F sim(F s)       { return max_(s, F(0)) * max_(s, F(0)); }
};
// extra_has_no_effect says yes exactly where no output depends on the extra key; what is then
// measured is, bit for bit, what is measured without one
template <class A, class Bi> void check_idle(const char* attn, const char* bias) {
    if (Bi::extra == NO_EXTRA || conflict(attn, bias)) { return; }
    const AttnShape s = whole({ 1, 37, 4, 2, 6, 0, 0, 0, 6, 2, 1 });
    const Numbers qkv = random_numbers((long)s.B * s.T * attn_row(s), 1.3, 7);
    const long keys = Bi::extra == LOGIT_EXTRA ? s.NH : s.KV * s.HS;
    const Numbers k = Bi::learn_k ? random_numbers(keys, 1, 8) : Numbers();
    const Seen none = seen<A, Bias_none, Bias_none>(qkv, {}, {}, s);
    for (int has_v = Bi::learn_v; has_v < 2; has_v++) {
        if (has_v && !Bi::learn_v && !Bi::learn_k) { continue; }         // --v-star needs BIAS=k
        const Numbers v = has_v ? random_numbers(s.KV * s.HS, 1, 9) : Numbers();
        const bool idle = extra_has_no_effect(A::Z, Bi(), has_v, A::sim(0.0) == 0);
        const Seen with = seen<A, Bi, Bi>(qkv, k, v, s);
        CHECK((with.out == none.out) == idle, "%s %s%s: idle is %d, the outputs say %d", attn, bias,
              has_v ? " with v*" : "", idle, with.out == none.out);
        const size_t bytes = none.heads.size() * sizeof(HeadMetrics);
        CHECK(memcmp(with.heads.data(), none.heads.data(), bytes) != 0,
              "%s %s: its metrics as they are count the extra key", attn, bias);
        if (!idle) { continue; }
        const Seen without = seen<A, Bi, Bias_none>(qkv, k, v, s);
        CHECK(!memcmp(without.heads.data(), none.heads.data(), bytes),
              "%s %s: what is measured is not what BIAS=none measures", attn, bias);
    }
}
static void test_idle() {
    CHECK(conflict("softpick", "zero") && conflict("mlp", "kv") && !conflict("softpick", "logit"),
          "CONFLICTS are read");
    auto every_bias = [](auto a, const char* attn) {
        typedef decltype(a) A;
        #define X_BIAS(bias, ...) \
            if constexpr (A::phi == PHI_NONE) { check_idle<A, Bias_##bias>(attn, #bias); }
        BIAS_VARIANTS(X_BIAS)
        #undef X_BIAS
    };
    #define X_ATTN(attn, ...) every_bias(Attn_##attn(), #attn);
    ATTN_VARIANTS(X_ATTN)
    #undef X_ATTN
    every_bias(Attn_relu2(), "relu2");
}
// attention is even, so token 1 gets 1/t of query t; two channels of a gate: one always half open,
// one shut but for query 1
static void test_gate() {
    const Numbers qkv = looks_at(0, [](int) { return 0; });
    Numbers out((size_t)T * T), stat(T * 2), gate(T * 2);
    for (int t = 0; t < T; t++) { gate[2 * t + 1] = t ? -100 : 100; }
    HeadMetrics m = {};
    ref::attention_forward<Attn_softmax, Bias_none, Pe_nope>(
        out.data(), stat.data(), Numbers(qkv).data(), {}, NULL, ONE_HEAD);
    ref::attention_metrics<Attn_softmax, Bias_none, Pe_nope>(&m, qkv.data(), stat.data(), {},
                                                             { gate.data(), 2 }, 0, ONE_HEAD);
    // the gate's mean over its channels is (.5 + 1) / 2 at query 1 and .25 at the others
    check_near(m.gate_first, 0.75, 1e-6, "gate of the first token");
    check_near(m.gate, (0.75 + 11 * 0.25) / 12, 1e-6, "mean gate");
    check_near(m.gate_low, 11 * 0.5 / 12, 1e-6, "share of gates below 0.1");
    check_near(m.effective, (0.75 + 0.25 * harmonic(2, 12)) / 12, 1e-6, "alpha_1 behind the gate");
    check_near(m.alpha[1], harmonic(1, 12) / 12, 1e-6, "alpha_1 itself does not know of the gate");
}
int main() {
    omp_set_num_threads(1);
    CASE("by_hand") { test_by_hand(); }
    CASE("gate") { test_gate(); }
    CASE("reports") { test_reports(); }
    CASE("idle") { test_idle(); }
    check_every_variant();
    return check_done();
}
