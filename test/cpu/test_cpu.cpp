/*
test_cpu.cpp -- every operation that the fast CPU backend has its own version of, and every variant
of its attention, against reference.h, in double, at odd shapes, with 1 and 3 threads: the same
numbers to rounding, and not one bit apart between the threads.
*/
#define REAL double
#include "../../cpu/attention.h"
#include "../../cpu/metrics.h"
#include "../../cpu/training.h"
#include "../check.h"
#include "../naive.h"
using ref::real;

static double within = 1e-11;                    // of the largest number

// Names number `at` of an array of HeadMetrics: "alpha[1]", "entropy".
static std::string metric_name(size_t at) {
    static const char* const names[] = {
        #define X(field, ...) #field,
        HEAD_METRICS(X)
        #undef X
    };
    const size_t i = at % (sizeof(HeadMetrics) / sizeof(float));
    const size_t K = METRIC_K + 1;
    if (i < 2 * K) { return strf("%s[%zu]", i < K ? "alpha" : "proxy", i % K); }
    return names[i - 2 * K];
}

// the tensors that a call may write: as they were, and as ref leaves them
struct Outputs {
    std::vector<Numbers*> at;
    std::vector<Numbers> before, want, first;

    Outputs(std::vector<Numbers*> at) : at(at) { for (auto* x : at) { before.push_back(*x); } }
    void restart() { for (size_t i = 0; i < at.size(); i++) { *at[i] = before[i]; } }
    void of_ref() { for (auto* x : at) { want.push_back(*x); } }
    // names: of the outputs, as "({ &x, &w })"
    void of_cpu(const std::string& what, const char* names, int threads) {
        for (size_t k = 0; k < at.size(); k++) {
            const Numbers &got = *at[k], &ref = want[k];
            if (ref.empty()) { continue; }
            const Worst w = worst_of(got, ref);
            std::string name = split(names, '&').at(k + 1);
            name = name.substr(0, name.find_first_of(", "));
            if (name == "heads") { name += " " + metric_name(w.at); }
            CHECK(w.off <= within * w.top,
                  "%s, %d threads: %s[%zu] is %.12g, ref says %.12g (largest %.3g)",
                  what.c_str(), threads, name.c_str(), w.at, got[w.at], ref[w.at], w.top);
            if (threads == 1) { first.push_back(got); continue; }
            CHECK(!memcmp(got.data(), first[k].data(), got.size() * sizeof(double)),
                  "%s: %s has other bits with %d threads", what.c_str(), name.c_str(), threads);
        }
    }
};
// the call, with ops:: for both backends, and what it may write
#define AGREE(what, outputs, ...) { \
    Outputs agree_ outputs; \
    { namespace ops = ref; __VA_ARGS__; } \
    agree_.of_ref(); \
    for (int threads : { 1, 3 }) { \
        omp_set_num_threads(threads); \
        agree_.restart(); \
        { namespace ops = cpu; __VA_ARGS__; } \
        agree_.of_cpu(what, #outputs, threads); \
    } \
    omp_set_num_threads(1); \
}
static real* or_null(bool is, Numbers& x) { return is ? x.data() : NULL; }
static Numbers numbers(long n, uint64_t seed) { return random_numbers(n, 1, seed); }

static void test_matmul(int N, int C, int OC) {
    const Numbers inp = numbers(N * C, 1), weight = numbers(OC * C, 2), dout = numbers(N * OC, 3);
    Numbers bias = numbers(OC, 4), residual = numbers(N * OC, 5), out(N * OC, NAN),
            dinp = numbers(N * C, 6);
    Numbers dweight = numbers(OC * C, 7), dbias = numbers(OC, 8);
    const std::string shape = strf("N %d C %d OC %d", N, C, OC);
    for (int with = 0; with < 4; with++) {
        AGREE("matmul_forward " + shape, ({ &out }),
              ops::matmul_forward(out.data(), inp.data(), weight.data(), or_null(with & 1, bias),
                                  or_null(with & 2, residual), N, C, OC));
    }
    for (bool add : { false, true }) {
        AGREE("matmul_backward_input " + shape, ({ &dinp }),
              ops::matmul_backward_input(dinp.data(), dout.data(), weight.data(), add, N, C, OC));
    }
    AGREE("matmul_backward_weight " + shape, ({ &dweight }),
          ops::matmul_backward_weight(dweight.data(), dout.data(), inp.data(), N, C, OC));
    AGREE("matmul_backward_bias " + shape, ({ &dbias }),
          ops::matmul_backward_bias(dbias.data(), dout.data(), N, OC));
}
static void test_embed(bool pos, bool sink) {
    const int B = 3, T = 35, C = 19, V = 7;
    std::vector<int> tokens(B * (T - sink));
    Rng r{ 1 };
    for (auto& t : tokens) { t = rng_below(&r, V); }
    Numbers wte = numbers(V * C, 1), wpe = numbers(T * C, 2), x = numbers(C, 3),
            out(B * T * C, NAN);
    AGREE("embed_forward", ({ &out }),
          ops::embed_forward(out.data(), tokens.data(),
                             { wte.data(), or_null(pos, wpe), or_null(sink, x) }, 1.5f, B, T, C));
}
static void test_norm(bool ln, bool with_w, bool with_b, int N, int C) {
    const std::string what = strf("norm: LN %d weight %d bias %d, N %d C %d", ln, with_w, with_b, N,
                                  C);
    Numbers x = numbers(N * C, 1), w = numbers(C, 2), b = numbers(C, 3), dout = numbers(N * C, 4),
            out(N * C, NAN);
    Numbers mean = numbers(N, 5), rstd(N, NAN), dx = numbers(N * C, 6), dw = numbers(C, 7),
            db = numbers(C, 8);
    const NormShape shape = { N, C, 0.01f };
    AGREE(what, ({ &out, &mean, &rstd }),
          ops::norm_forward(out.data(), { or_null(ln, mean), rstd.data() }, x.data(),
                            { or_null(with_w, w), or_null(with_b, b) }, shape));
    for (bool add : { false, true }) {
        AGREE(what + ", backward", ({ &dx, &dw, &db }),
              ops::norm_backward(dx.data(), { or_null(with_w, dw), or_null(with_b, db) },
                                 dout.data(), x.data(), or_null(with_w, w),
                                 { or_null(ln, mean), rstd.data() }, add, shape));
    }
    AGREE(what + ", backward in place", ({ &dout, &dw, &db }),
          ops::norm_backward(dout.data(), { or_null(with_w, dw), or_null(with_b, db) },
                             dout.data(), x.data(), or_null(with_w, w),
                             { or_null(ln, mean), rstd.data() }, false, shape));
}
// norms of queries and keys
static void test_qk_norm(AttnShape s) {
    const int N = s.B * s.T, Q = s.NH * s.HS, K = s.KV * s.HS, W = attn_row(s);
    Numbers qkv = numbers((long)N * W, 1), qk(N * (Q + K), NAN), dqkv = numbers((long)N * W, 2);
    for (bool all : { false, true }) {
        Numbers wq = numbers(all ? Q : s.HS, 6), wk = numbers(all ? K : s.HS, 7), dwq = wq,
                dwk = wk, rstd(N * (all ? 2 : s.NH + s.KV), NAN);
        AGREE(strf("qk_norm_forward, all %d", all), ({ &qkv, &qk, &rstd }),
              ops::qk_norm_forward(qkv.data(), qk.data(), rstd.data(), { wq.data(), wk.data() },
                                   all, 0.01f, s));
        AGREE(strf("qk_norm_backward, all %d", all), ({ &dqkv, &dwq, &dwk }),
              ops::qk_norm_backward(dqkv.data(), { dwq.data(), dwk.data() }, qk.data(), rstd.data(),
                                    { wq.data(), wk.data() }, all, s));
    }
}
static void test_classifier(float cap, float dloss) {
    const int N = 35, V = 67;
    Numbers logits = random_numbers(N * V, 3, 1), losses(N, NAN);
    std::vector<int> targets(N);
    for (int n = 0; n < N; n++) { targets[n] = n % 7 == 3 ? -1 : n * n % V; }
    AGREE(strf("classifier, cap %g dloss %g", cap, dloss), ({ &losses, &logits }),
          ops::classifier(losses.data(), logits.data(), targets.data(), dloss, cap, N, V));
}
// the same losses with the vocabulary in parts
static void test_classifier_part(float cap, int part) {
    const int N = 35, V = 67;
    const Numbers logits = random_numbers(N * V, 3, 1);
    Numbers all = logits, want(N), some;
    std::vector<int> targets(N);
    for (int n = 0; n < N; n++) { targets[n] = n % 7 == 3 ? -1 : n * n % V; }
    ref::classifier(want.data(), all.data(), targets.data(), 0, cap, N, V);
    std::vector<cpu::ClassifierRow> rows(N);
    for (int v = 0; v < V; v += part) {
        const int width = std::min(part, V - v);
        some.clear();
        for (int n = 0; n < N; n++) {
            some.insert(some.end(), &logits[n * V + v], &logits[n * V + v] + width);
        }
        cpu::classifier_part(rows.data(), some.data(), targets.data(), cap, v, width, N);
    }
    for (int n = 0; n < N; n++) {
        if (targets[n] < 0) { continue; }
        CHECK(fabs(rows[n].loss() - want[n]) < 1e-12,
              "classifier in parts of %d, cap %g: row %d is %.12g, wanted %.12g", part, cap, n,
              (double)rows[n].loss(), (double)want[n]);
    }
}
static void test_optimizers() {
    const long n = 40001;
    const Numbers g = numbers(n, 1);
    Numbers sums(3), w = numbers(n, 2), m = numbers(n, 3), v = numbers(n, 4);
    for (auto& x : v) { x *= x; }
    AGREE("loss_add, square_norm", ({ &sums }), {
        StepSums s = { 0.25, 0, 0 };
        ops::loss_add(&s, g.data(), n, 3);
        ops::square_norm(&s, g.data(), 2, n);
        sums = { s.loss, s.squares, s.grad_scale };
    });
    const StepSums half = { 0, 0, 0.5 }, none = { NAN, NAN, NAN };
    const Update o = { 0.01f, 0.9f, 0.95f, 1e-3f, 0.1f, 3 };
    for (const StepSums* s : { &half, &none }) {
        AGREE("adamw_update", ({ &w, &m, &v }),
              ops::adamw_update(w.data(), w.data(), m.data(), v.data(), g.data(), s, o, n));
    }
    Numbers norms(3 * 4), sizes(2 * 3);
    AGREE("row_norms", ({ &norms }), ops::row_norms(norms.data(), g.data(), 40, 9, 4, 3));
    // 15 x 7 numbers per sequence, and without a row 14 x 7; some of them equal
    for (int skip : { 0, 1 }) {
        Numbers x = numbers(3 * 15 * 7, 5);
        for (size_t i = 0; i < x.size(); i += 3) { x[i] = i % 2 ? 0.25 : -0.25; }
        for (size_t i = 1; i < x.size(); i += 3) { x[i] = -0.0; }
        AGREE("magnitudes", ({ &sizes }), ops::magnitudes(sizes.data(), x.data(), skip, 3, 15, 7));
    }
}

//   B  T    NH KV HS  window prefix shared k_dims p    alpha
static const AttnShape CASES[] = {
    { 2, 33,  4, 2, 5,  7,     0,     0,     3,     0.5f, 0.5f },
    { 1, 135, 1, 1, 9,  70,    0,     0,     5,     1,    2 },   // with PE only these two
    { 2, 1,   2, 1, 3,  0,     0,     0,     3,     1,    1 },
    { 1, 67,  2, 1, 33, 0,     40,    0,     20,    2,    1 },
    { 1, 80,  2, 1, 7,  20,    37,    1,     7,     0.5f, 0.7f },
};
template <class A, class Bi, class Pe> void check_attention(const std::string& what, bool fixed_v) {
    for (auto& c : CASES) {
        if (Pe::score_bias && &c > CASES + 1) { continue; }
        AttnShape s = whole(c);
        s.rot = s.HS / 2 * 2;
        if (A::clip != NO_CLIP) { s.clip = 1.3f / s.T; }        // leaves some weights
        const bool z = Bi::extra == LOGIT_EXTRA, value = Bi::learn_v || fixed_v;
        const long N = (long)s.B * s.T, width = (s.bias_shared ? 1 : s.KV) * s.HS;
        Numbers qkv = random_numbers(N * attn_row(s), 1.2, s.T), ks = numbers(z ? s.NH : width, 1),
                vs = numbers(width, 2), dks = ks, dvs = vs;
        Numbers out(N * s.NH * s.HS, NAN), stat(N * s.NH * 2, NAN), dqkv(qkv.size(), NAN);
        const Numbers dout = numbers(out.size(), 3), table = numbers(s.T * s.rot, 4);
        if (A::phi == PHI_ELU1) { ref::phi_elu1_forward(qkv.data(), s); }
        const ExtraKey<const real> extra = { or_null(Bi::learn_k, ks), or_null(value, vs) };
        for (const real* rope_table : { table.data(), (const real*)NULL }) {
            if (rope_table && &c > CASES) { continue; }
            Numbers turned(qkv.size());
            AGREE(strf("%s T=%d", what.c_str(), s.T), ({ &out, &stat, &turned }), {
                std::copy(qkv.begin(), qkv.end(), turned.begin());
                ops::attention_forward<A, Bi, Pe>(out.data(), stat.data(), turned.data(),
                                                  extra, rope_table, s);
            });
        }
        for (int width : { 0, 1, s.HS }) {  // gates: none, one number per head, one per channel
            const Numbers gate = numbers(N * s.NH * width, 5);
            const int skip = Bi::token || (width && s.T > 1);
            within = 1e-6;                           // HeadMetrics are floats
            Numbers heads((size_t)s.B * s.NH * sizeof(HeadMetrics) / sizeof(float), NAN);
            AGREE(strf("%s T=%d, metrics, gate %d", what.c_str(), s.T, width), ({ &heads }), {
                std::vector<HeadMetrics> m(s.B * s.NH);
                ops::attention_metrics<A, Bi, Pe>(m.data(), qkv.data(), stat.data(), extra,
                                                  { width ? gate.data() : NULL, width }, skip, s);
                heads.assign((float*)m.data(), (float*)(m.data() + m.size()));
            });
            within = 1e-11;
        }
        for (const real* rope_table : { (const real*)NULL, table.data() }) {
            if (rope_table && &c > CASES) { continue; }
            AGREE(strf("%s T=%d, backward", what.c_str(), s.T), ({ &dqkv, &dks, &dvs }),
                  ops::attention_backward<A, Bi, Pe>(
                      dqkv.data(), { or_null(Bi::learn_k, dks), or_null(Bi::learn_v, dvs) },
                      dout.data(), { out.data(), stat.data() }, qkv.data(), extra, rope_table, s));
        }
    }
}
// every BIAS without positions, every PE that adds to the score without a BIAS; without CONFLICTS
template <class A, class Bi> void check_bias(const std::string& what) {
    if constexpr (A::phi == PHI_NONE || !Bi::extra) {
        if constexpr (std::is_same<Bi, Bias_none>::value || Bi::extra) {
            check_attention<A, Bi, Pe_nope>(what, Bi::extra == KEY_EXTRA);
        }
    }
}
template <class A, class Pe> void check_pe(const std::string& what) {
    if constexpr (Pe::score_bias) { check_attention<A, Bias_none, Pe>(what, false); }
}
template <class A> void check_attn(const std::string& attn) {
    #define X_BIAS(bias, ...) check_bias<A, Bias_##bias>(attn + " " #bias);
    BIAS_VARIANTS(X_BIAS)
    #define X_PE(pe, ...) check_pe<A, Pe_##pe>(attn + " " #pe);
    PE_VARIANTS(X_PE)
}

// every row is worked on once, and what the parts add to two sums is there, in their order
static void test_parts(long rows) {
    float first[2] = {};
    for (int again = 0; again < 40; again++) {
        omp_set_num_threads(1 + again % 4);
        std::vector<int> plain(rows), summed(rows);
        float x = 3, y = -2;
        host::in_parts(rows, [&](long row, int n) {
            for (int i = 0; i < n; i++) { plain[row + i]++; }
        });
        host::in_parts(rows, &x, &y, 1, [&](long row, int n, float* dx, float* dy) {
            for (int i = 0; i < n; i++) {
                summed[row + i]++;
                *dx += 1.0f / (row + i + 1);
                *dy += 1.0f;
            }
        });
        const std::vector<int> once(rows, 1);
        CHECK(plain == once && summed == once, "in_parts of %ld: a row twice, or not at all", rows);
        if (again == 0) { first[0] = x; first[1] = y; }
        CHECK(x == first[0] && y == first[1], "in_parts of %ld: other bits with %d threads", rows,
              1 + again % 4);
    }
    double sum = 3;
    for (long i = 1; i <= rows; i++) { sum += 1.0 / i; }
    check_near(first[0], sum, 1e-5, "in_parts of %ld: the first sum", rows);
    check_near(first[1], rows - 2, 0, "in_parts of %ld: the second sum", rows);
    omp_set_num_threads(1);
}

int main() {
    omp_set_num_threads(1);
    CASE("parts") { for (long rows : { 1, 63, 64, 65, 130, 2001 }) { test_parts(rows); } }
    CASE("matmul") {
        test_matmul(41, 35, 51);
        test_matmul(1, 7, 3);
        test_matmul(300, 130, 130);
    }
    CASE("embed") { for (int with = 0; with < 4; with++) { test_embed(with & 1, with & 2); } }
    for (int kind = 0; kind < 8 && check_case("norm"); kind++) {
        test_norm(kind & 1, kind & 2, kind & 4, 133, 37);
        test_norm(kind & 1, kind & 2, kind & 4, 1, 1 + kind);
    }
    CASE("qk_norm") { test_qk_norm(whole({ 2, 37, 4, 2, 6, 0, 0, 0, 6, 1, 1 })); }
    for (float cap : { 0.0f, 4.0f }) {
        if (!check_case("classifier")) { break; }
        for (float dloss : { 0.0f, 0.25f }) { test_classifier(cap, dloss); }
        for (int part : { 1, 16, 66, 67 }) { test_classifier_part(cap, part); }
    }
    CASE("optimizers") { test_optimizers(); }
    #define X_ATTN(attn, ...) CASE(#attn) { check_attn<Attn_##attn>(#attn); }
    ATTN_VARIANTS(X_ATTN)
    return check_done();
}
