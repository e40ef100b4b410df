/*
test_anatomy.cpp -- probe --anatomy against the same numbers written out a second time, in double:
from the states of the stream and the weights by name, with S as a matrix whose eigenvalues are
found by counting negative pivots (Sylvester's law of inertia) and bisection. With a sink token,
whose row is no token; in more sequences than one batch holds; NORM=pre and post, with a gate in the
FFN and without.
*/
#define BIAS sink_token
#include "../../core/defaults.h"
#define BACKEND ref
#define REAL double
#include "../model_unit.h"
#include "../check.h"
#include "../dense.h"

enum { T = 24, N = 100, C = 40, F = 28, L = 3 };

struct Setting {
    Model m;                                     // what is measured
    Model kept;                                  // the same weights; keeps every activation
    std::vector<int> seqs;
};

static Setting setting(kind norm, kind ffn) {
    Arch c;
    c.L = L; c.C = C; c.NH = 4; c.KV = 2; c.HS = 10; c.F = F; c.V = 50; c.T = T;
    c.norm = norm; c.ffn = ffn;
    arch_settle(&c, "");
    Setting s = { model_new(c, T, false), model_new(c, T, true), {} };
    std::vector<acc> x(s.m.num_params);
    Rng rng = rng_stream(3, 3);
    for (auto& v : x) { v = 0.5 * rng_normal(&rng); }
    model_set_weights(&s.m, x.data());
    model_set_weights(&s.kept, x.data());
    for (int i = 0; i < N * (T + 1); i++) { s.seqs.push_back(rng_below(&rng, c.V)); }
    model_load(&s.kept, s.seqs.data(), N, T);
    model_layers(&s.kept);
    return s;
}

static double norm_of(const Vector& x) { return sqrt(times(x, x)); }

// row `token` of sequence b: state i of the stream
static Vector state(const Setting& s, int i, int b, int token) {
    const real* x = s.kept.acts.x + (((long)i * N + b) * (T + 1) + token + 1) * C;
    return Vector(x, x + C);
}

static Vector minus(Vector a, const Vector& b) {
    for (size_t i = 0; i < a.size(); i++) { a[i] -= b[i]; }
    return a;
}

// what a branch reads of x: with NORM=post the stream itself
static Vector read_of(const Setting& s, const Vector& x, const Mat& w) {
    if (w.empty()) { return x; }
    double squares = 0;
    for (double v : x) { squares += v * v / C; }
    Vector y = x;
    for (int i = 0; i < C; i++) { y[i] *= w[0][i] / sqrt(squares + (double)s.m.arch.eps); }
    return y;
}

// the eigenvalues below x, by the pivots of S - x
static int count_below(Mat a, double x) {
    int n = 0;
    for (size_t k = 0; k < a.size(); k++) {
        double pivot = a[k][k] - x;
        if (pivot < 0) { n++; }
        for (size_t i = k + 1; i < a.size(); i++) {
            const double f = a[i][k] / pivot;
            for (size_t j = k + 1; j < a.size(); j++) { a[i][j] -= f * a[k][j]; }
        }
    }
    return n;
}

// the n largest eigenvalues by |.|: they are among the first and the last n
static Vector largest_eigenvalues(const Mat& a, int n) {
    double bound = 0;
    for (auto& row : a) { bound += times(row, row); }
    bound = sqrt(bound) + 1;
    Vector all;
    const int size = a.size();
    for (int k = 0; k < size; k++) {
        if (k >= n && k < size - n) { continue; }
        double low = -bound, high = bound;
        for (int step = 0; step < 50; step++) {
            const double middle = (low + high) / 2;
            if (count_below(a, middle) > k) { high = middle; } else { low = middle; }
        }
        all.push_back(low);
    }
    std::sort(all.begin(), all.end(), [](double x, double y) { return fabs(x) > fabs(y); });
    all.resize(n);
    return all;
}

static Mat form_matrix(const Mat& gate, const Mat& up, const Vector& down) {
    Mat s(C, Vector(C));
    for (int i = 0; i < C; i++) {
        for (int j = 0; j < C; j++) {
            for (int n = 0; n < F; n++) {
                s[i][j] += down[n] * (gate[n][i] * up[n][j] + gate[n][j] * up[n][i]) / 2;
            }
        }
    }
    return s;
}

static double median(Vector x) {
    std::sort(x.begin(), x.end());
    return (x[x.size() / 2] + x[(x.size() - 1) / 2]) / 2;
}

// the mean cosine of two different vectors of a list
static double pairs(const Mat& x) {
    double sum = 0;
    int n = 0;
    for (size_t i = 0; i < x.size(); i++) {
        for (size_t j = 0; j < i; j++, n++) {
            sum += times(x[i], x[j]) / norm_of(x[i]) / norm_of(x[j]);
        }
    }
    return sum / n;
}

static void near(double got, double want, const std::string& what, int l) {
    check_near(got, want, 1e-9 * (1 + fabs(want)), "%s of layer %d", what.c_str(), l);
}

// what is read of token 1 and of the one in the middle
static void test_reads(const Setting& s, int i, double spread, double same, double later) {
    const Mat w = weight(s.m, i / 2, i % 2 ? "post_attention_layernorm" : "input_layernorm");
    const bool pre = s.m.arch.norm == NORM_pre;
    Mat first, middle;
    double spreads = 0;
    for (int b = 0; b < N; b++) {
        first.push_back(read_of(s, state(s, i, b, 0), pre ? w : Mat()));
        middle.push_back(read_of(s, state(s, i, b, T / 2), pre ? w : Mat()));
        double second = 0, fourth = 0;
        for (double v : first.back()) { second += v * v; fourth += pow(v, 4); }
        spreads += second * second / fourth / N;
    }
    near(spread, spreads, "spread", i);
    near(same, pairs(first), "cosine between sequences", i);
    near(later, pairs(middle), "cosine of the middle", i);
}

static void test_spike(const Setting& s, const Anatomy& a, int l) {
    const AnatomyLayer& got = a.layers[l];
    double most = 0, second = 0, fourth = 0;
    Vector mean(C);                              // of the squares of each channel
    int at[3] = {};
    for (int b = 0; b < N; b++) {
        for (int t = 0; t < T; t++) {
            const Vector x = state(s, 2 * l + 2, b, t);
            for (int c = 0; c < C; c++) {
                mean[c] += x[c] * x[c] / (N * T);
                if (fabs(x[c]) <= fabs(most)) { continue; }
                most = x[c];
                at[0] = b; at[1] = t; at[2] = c;
            }
        }
    }
    for (double v : mean) { second += v / C; fourth += v * v / C; }
    near(got.kurtosis, fourth / second / second, "kurtosis of the channels", l);
    near(got.spike, most, "largest entry", l);
    CHECK(got.spike_sequence == at[0] && got.spike_token == at[1] + 1 && got.spike_channel == at[2],
          "layer %d: the largest entry is elsewhere", l);
    CHECK(got.spike_id == s.seqs[at[0] * (T + 1) + at[1]], "layer %d: another token", l);
}

// mean of |h| of token 1 by state of the stream and channel
static double mean_state(const Setting& s, int i, int c) {
    double sum = 0;
    for (int b = 0; b < N; b++) { sum += state(s, i, b, 0)[c] / N; }
    return sum;
}

static void test_steps(const Setting& s, const Anatomy& a) {
    double most = -INFINITY, least = INFINITY;
    int up = 0, channel = 0, down = 0;
    const auto grows = [&](int l, int c) {
        return fabs(mean_state(s, 2 * l + 2, c)) - fabs(mean_state(s, 2 * l, c));
    };
    for (int l = 0; l < L; l++) {
        for (int c = 0; c < C; c++) {
            if (grows(l, c) > most) { most = grows(l, c); up = l; channel = c; }
        }
    }
    for (int l = 0; l < L; l++) {
        if (grows(l, channel) < least) { least = grows(l, channel); down = l; }
    }
    CHECK(a.channel == channel && a.step_up == up, "channel %d grows in layer %d, wanted %d in %d",
          a.channel, a.step_up, channel, up);
    CHECK(a.step_down == (least < 0 ? down : -1), "steps down in layer %d, wanted %d, by %g",
          a.step_down, down, least);
    for (int l = 0; l < L; l++) {
        near(a.layers[l].state, mean_state(s, 2 * l + 2, channel), "h of token 1", l);
    }
}

static double activation(const Setting& s, double z) {
    return s.m.arch.ffn == row_named(FFN_ROWS, "relu") ? std::max(z, 0.0) : z / (1 + exp(-z));
}

static void test_ffn(const Setting& s, const Anatomy& a, int l) {
    const AnatomyLayer& got = a.layers[l];
    const bool gated = s.m.sizes.ffn.gated;
    const Mat gate = weight(s.m, l, "mlp.gate_proj"), up = weight(s.m, l, "mlp.up_proj"),
              down = weight(s.m, l, "mlp.down_proj");
    const Mat w = s.m.arch.norm == NORM_pre ? weight(s.m, l, "post_attention_layernorm") : Mat();
    Mat S;
    if (gated) { S = form_matrix(gate, up, down[a.channel]); }
    Vector neurons(F);
    double first = 0, rest = 0, form = 0, aligned = 0, others = 0, attn[2] = {};
    for (int b = 0; b < N; b++) {
        for (int t = 0; t < T; t++) {
            const Vector x = read_of(s, state(s, 2 * l + 1, b, t), w);
            Vector hidden, wrote;
            for (int n = 0; n < F; n++) {
                hidden.push_back(gated ? activation(s, times(gate[n], x)) * times(up[n], x)
                                       : activation(s, times(up[n], x)));
            }
            for (auto& row : down) { wrote.push_back(times(row, hidden)); }
            (t ? rest : first) += norm_of(wrote) / N / (t ? T - 1 : 1);
            attn[t > 0] += norm_of(minus(state(s, 2 * l + 1, b, t), state(s, 2 * l, b, t))) / N /
                           (t ? T - 1 : 1);
            for (int n = 0; n < F && !t; n++) {
                neurons[n] += down[a.channel][n] * hidden[n] / N;
            }
            if (!gated) { continue; }
            for (int i = 0; i < C && !t; i++) { form += x[i] * times(S[i], x) / N; }
            (t ? others : aligned) += fabs(times(x, got.direction)) / norm_of(x) / N /
                                      (t ? T - 1 : 1);
        }
    }
    near(got.ffn_first, first, "what the FFN writes at token 1", l);
    near(got.ffn_rest, rest, "what the FFN writes at the others", l);
    if (s.m.arch.norm == NORM_pre) {
        near(got.attn_first, attn[0], "what attention writes at token 1", l);
        near(got.attn_rest, attn[1], "what attention writes at the others", l);
    }
    std::vector<std::pair<double, int>> order;
    double sum = 0, all = 0;
    for (int n = 0; n < F; n++) {
        order.push_back({ -fabs(neurons[n]), n });
        sum += neurons[n];
        all += fabs(neurons[n]);
    }
    std::sort(order.begin(), order.end());
    near(got.wrote, sum, "what it wrote", l);
    near(got.neuron, order[0].second, "the neuron", l);
    near(got.share, -order[0].first / all, "its share", l);
    near(got.share_three, -(order[0].first + order[1].first + order[2].first) / all, "of three", l);
    if (!gated) {
        CHECK(std::isnan(got.form) && std::isnan(got.ratio) && std::isnan(got.aligned_first) &&
              got.eigenvalues.empty(), "layer %d: a form without a gate", l);
        return;
    }
    const Vector values = largest_eigenvalues(S, EIGENVALUES);
    for (int i = 0; i < EIGENVALUES; i++) {
        near(got.eigenvalues[i], values[i], strf("eigenvalue %d", i + 1), l);
    }
    for (int i = 0; i < C; i++) {
        check_near(times(S[i], got.direction), values[0] * got.direction[i], 1e-5 * fabs(values[0]),
                   "layer %d, S times its first eigenvector", l);
    }
    near(norm_of(got.direction), 1, "length of the eigenvector", l);
    near(got.ratio, fabs(values[0] / values[1]), "ratio", l);
    near(got.form, form, "x'Sx", l);
    near(got.aligned_first, aligned, "cosine of token 1", l);
    near(got.aligned_rest, others, "cosine of the others", l);
    Vector ratios;
    for (int k = 0; k < OTHER_CHANNELS; k++) {   // spread evenly over the 39 others
        const int c = (a.channel + 1 + k * (C - 1) / OTHER_CHANNELS) % C;
        const Vector two = largest_eigenvalues(form_matrix(gate, up, down[c]), 2);
        ratios.push_back(fabs(two[0] / two[1]));
    }
    check_near(got.ratio_others, median(ratios), 1e-6, "ratio of other channels, layer %d", l);
}

// S of a few neurons has eigenvalues 0, many of them: the basis ends early, and begins anew
static void test_low_rank() {
    Matrix gate, up;
    gate.cols = up.cols = 20;
    Rng rng = rng_stream(5, 5);
    for (int i = 0; i < 2 * 20; i++) {
        gate.x.push_back(rng_normal(&rng));
        up.x.push_back(rng_normal(&rng));
    }
    for (double d : { 1.0, 0.0 }) {
        const acc down[] = { (acc)d, (acc)(2 * d) };
        const Form form = { &gate, &up, down };
        Mat S(20, Vector(20));
        for (int i = 0; i < 20; i++) {
            for (int j = 0; j < 20; j++) {
                for (int n = 0; n < 2; n++) {
                    S[i][j] += form.down[n] * (gate.row(n)[i] * up.row(n)[j] +
                                               gate.row(n)[j] * up.row(n)[i]) / 2;
                }
            }
        }
        const Eigen e = form_eigen(form, 20, 6, 1e-9);
        for (int i = 0; i < 6; i++) {
            const Vector shifted = largest_eigenvalues(S, 6);
            check_near(e.values[i], shifted[i], 1e-9, "rank 4, d %g, eigenvalue %d", d, i);
        }
    }
}

// NaN ends it, too
static void test_not_finite() {
    CHECK(small_eigen({ { NAN, 1, 2 }, { 1, 2, 3 }, { 2, 3, 1 } }).values.size() == 3, "NaN");
}

// Checks every number of a model's anatomy.
static void test_model(kind norm, kind ffn) {
    Setting s = setting(norm, ffn);
    const Anatomy a = anatomy_measure(&s.m, { s.seqs.data(), N, T });
    test_steps(s, a);
    for (int l = 0; l < L; l++) {
        const AnatomyLayer& got = a.layers[l];
        test_reads(s, 2 * l, got.attn_spread, got.attn_same, got.attn_same_later);
        test_reads(s, 2 * l + 1, got.ffn_spread, got.ffn_same, got.ffn_same_later);
        test_spike(s, a, l);
        test_ffn(s, a, l);
    }
}

int main() {
    const struct { const char* name; kind norm, ffn; } cases[] = {
        { "pre", NORM_pre, row_named(FFN_ROWS, "swiglu") }, { "relu", NORM_pre, row_named(FFN_ROWS, "relu") },
        { "post", NORM_post, row_named(FFN_ROWS, "swiglu") } };
    for (auto& one : cases) {
        CASE(one.name) { test_model(one.norm, one.ffn); }
    }
    CASE("low_rank") { test_low_rank(); }
    CASE("not_finite") { test_not_finite(); }
    return check_done();
}
