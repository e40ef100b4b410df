/*
test_anywhere.cpp -- probe --anywhere against the same numbers written out a second time: whole maps
in double, made from the states of the stream and the weights by name. Here with a sink token, whose
row is no token, a window and a gate; test_anywhere_key.cpp has rows that do not sum to 1, an extra
key and ALiBi. What is said of one token repeated is in test_analytic.
*/
#ifndef BIAS
#define BIAS sink_token
#endif
#include "../../core/defaults.h"
#define BACKEND ref
#define REAL double
#include "../model_unit.h"
#include "../check.h"
#include "../dense.h"

enum { T = 14, N = 150, C = 24, L = 2, NH = 4, KV = 2, HS = 6, V = 7 };
static const double EPS = 0.12;                  // of a sink

static Model m, kept;                            // what is measured; the same, with every activation
static std::vector<int> seqs;
static int skip;                                 // rows before token 1

static void setting() {
    Arch c;
    c.L = L; c.C = C; c.NH = NH; c.KV = KV; c.HS = HS; c.F = 20; c.V = V; c.T = T;
    if (!Bias::extra) { c.window = 5; c.gate = row_named(GATE_ROWS, "head"); }
    arch_settle(&c, "");
    m = model_new(c, T, false);
    kept = model_new(c, T, true);
    std::vector<acc> x(m.num_params);
    Rng rng = rng_stream(4, 4);
    for (auto& v : x) { v = 0.4 * rng_normal(&rng); }
    // one channel is large everywhere, and one at the ids of token 1, which no other place has; the
    // norms take the first away again
    for (auto& t : m.tensors) {
        if (contains(t.name, "norm")) { x[t.at + 3] = 0.01; }
        if (contains(t.name, "q_proj")) {
            for (long i = 0; i < t.count; i++) { x[t.at + i] *= 8; }
        }
        if (t.name != "model.embed_tokens.weight") { continue; }
        for (long i = 0; i < t.count; i++) { x[t.at + i] *= 8; }
        for (int id = 0; id < V; id++) { x[t.at + id * C + 3] = 60 + id; }
        x[t.at + 5] = x[t.at + C + 5] = Bias::token ? -400 : -50;
    }
    model_set_weights(&m, x.data());
    model_set_weights(&kept, x.data());
    for (int i = 0; i < N * (T + 1); i++) {
        const bool first = i % (T + 1) == 0;
        seqs.push_back(first ? rng_below(&rng, 2) : 2 + rng_below(&rng, V - 2));
    }
    model_load(&kept, seqs.data(), N, T);
    model_layers(&kept);
    skip = m.sizes.bias.token;
}

// state i of the stream at row t of sequence b
static Vector state(int i, int b, int t) {
    const real* x = kept.acts.x + (((long)i * N + b) * (T + skip) + t) * C;
    return Vector(x, x + C);
}

// rows from..from + HS of a matrix, times x
static Vector head_times(const Mat& w, int head, const Vector& x) {
    Vector y;
    for (int i = 0; i < HS; i++) { y.push_back(times(w[head * HS + i], x)); }
    return y;
}

static Vector turned(Vector x, int position) {
    if (m.arch.pe != PE_rotary) { return x; }
    for (int i = 0; i < HS / 2; i++) {
        const double angle = position * pow((double)m.arch.rope_base, -2.0 * i / HS);
        const double a = x[i], b = x[i + HS / 2];
        x[i] = a * cos(angle) - b * sin(angle);
        x[i + HS / 2] = b * cos(angle) + a * sin(angle);
    }
    return x;
}

// all of one head on one sequence: rows of weights, with the extra key's last; scores of what is
// seen; values; outputs
struct Whole { Mat A, scores, v, out; };

static Whole whole(int l, int b, int h) {
    const Mat norm = weight(m, l, "input_layernorm"), wq = weight(m, l, "self_attn.q_proj"),
              wk = weight(m, l, "self_attn.k_proj"), wv = weight(m, l, "self_attn.v_proj"),
              ks = weight(m, l, "self_attn.k_star"), vs = weight(m, l, "self_attn.v_star"),
              gates = weight(m, l, "self_attn.gate_proj");
    const int R = T + skip, g = h / (NH / KV);
    Mat n, q, k;
    Whole w;
    for (int t = 0; t < R; t++) {
        Vector x = state(2 * l, b, t);
        const double size = sqrt(times(x, x) / C + (double)m.arch.eps);
        for (int c = 0; c < C; c++) { x[c] *= norm[0][c] / size; }
        n.push_back(x);
        q.push_back(turned(head_times(wq, h, x), t));
        k.push_back(turned(head_times(wk, g, x), t));
        w.v.push_back(head_times(wv, g, x));
    }
    for (int t = 0; t < R; t++) {
        Vector row(R + 1), scores, out(HS);
        double all = 0;
        for (int j = 0; j <= R; j++) {
            const bool extra = j == R;
            if (extra ? ks.empty() : j > t || (m.arch.window && t - j >= m.arch.window)) { continue; }
            double score = times(q[t], extra ? ks[g] : k[j]) / sqrt((double)HS);
            if (m.arch.pe == PE_alibi && !extra) { score -= (t - j) * pow(2, -8.0 * (h + 1) / NH); }
            scores.push_back(score);
            row[j] = Attn::exp_family ? exp(score) : 1 / (1 + exp(-score));
            all += row[j];
        }
        for (double& x : row) { x /= Attn::exp_family ? all : 1; }
        for (int j = 0; j <= R; j++) {
            const Vector& v = j < R || vs.empty() ? w.v[std::min(j, R - 1)] : vs[g];
            for (int i = 0; i < HS; i++) { out[i] += row[j] * v[i]; }
        }
        if (!gates.empty()) {
            for (double& x : out) { x /= 1 + exp(-times(gates[h], n[t])); }
        }
        w.A.push_back(row);
        w.scores.push_back(scores);
        w.out.push_back(out);
    }
    return w;
}

static double size_of(const Vector& x) { return sqrt(times(x, x)); }

struct Want {
    double own = 0, previous = 0, window = 0, keys = 0, score = -1e9, lse = -1e9, output = 0;
    double sinks = 0, at_first = 0, value = 0, windows = 0;
    Mat gram = Mat(HS, Vector(HS));
};
struct Id { double count = 0, given = 0, queries = 0; };
static std::map<int, Id> ids;
static std::vector<Vector> given(L, Vector(N * T));       // to each token, the mean of a layer's heads

static void add_want(Want* o, int l, int b, int h) {
    const Whole w = whole(l, b, h);
    const int R = T + skip;
    Mat P;                                       // shares of the tokens, then of what is none
    for (int t = skip; t < R; t++) {
        double all = 0;
        for (double x : w.A[t]) { all += fabs(x); }
        Vector p;
        for (int j = skip; j < R; j++) { p.push_back(fabs(w.A[t][j]) / all); }
        p.push_back(fabs(w.A[t][skip ? 0 : R]) / all);
        P.push_back(p);
        Vector sorted = p;
        std::sort(sorted.begin(), sorted.end(), [](double x, double y) { return x > y; });
        double held = 0;
        int keys = 0;
        while (held < 0.9) { held += sorted[keys++]; }
        o->keys += keys / (double)(N * T);
        double sum = 0;
        for (double s : w.scores[t]) { o->score = std::max(o->score, s); sum += exp(s); }
        o->lse = std::max(o->lse, log(sum));
        o->output += size_of(w.out[t]) / (N * T);
    }
    int best = 0;
    Vector alpha(T);
    for (int t = 0; t < T; t++) {                // from here on tokens count from 0
        o->own += P[t][t] / (N * T);
        if (t) { o->previous += P[t][t - 1] / (N * (T - 1)); }
        const int shown = t - m.arch.window + 1;
        if (m.arch.window && shown > 0) { o->window += P[t][shown]; o->windows++; }
        for (int k = 0; k <= t; k++) { alpha[k] += P[t][k] / (T - k); }
    }
    for (int k = 0; k < T; k++) {
        if (k < T / 2 && alpha[k] > alpha[best]) { best = k; }
        if (k == 0) { continue; }
        given[l][b * T + k] += alpha[k] / NH;
        Id& id = ids[seqs[b * (T + 1) + k]];
        id.count += 1.0 / (L * NH);
        id.given += alpha[k] * (T - k);
        id.queries += T - k;
    }
    if (alpha[best] <= EPS) { return; }
    o->sinks++;
    o->at_first += best == 0;
    double others = 0;
    for (int k = 0; k < T; k++) {
        if (k != best) { others += size_of(w.v[k + skip]) / (T - 1); }
    }
    const Vector& v = w.v[best + skip];
    o->value += size_of(v) / others;
    for (int i = 0; i < HS; i++) {
        for (int j = 0; j < HS; j++) { o->gram[i][j] += v[i] * v[j]; }
    }
}

static void near(const Tally& got, Summary how, double want, const char* what, int l, int h) {
    check_near(got.as(how), want, 1e-5 * (1 + fabs(want)), "%s of layer %d, head %d", what, l, h);
}

static void test_heads(const Anywhere& a, int l) {
    std::vector<Want> want(NH);
    double outputs = 0;
    for (int h = 0; h < NH; h++) {
        for (int b = 0; b < N; b++) { add_want(&want[h], l, b, h); }
        outputs += want[h].output / NH;
    }
    for (int h = 0; h < NH; h++) {
        const AnyTally& got = a.layers[l][h];
        const Want& w = want[h];
        near(got.own, MEAN, w.own, "own", l, h);
        near(got.previous, MEAN, w.previous, "previous", l, h);
        near(got.keys, MEAN, w.keys, "keys", l, h);
        near(got.output, MEAN, w.output / outputs, "output", l, h);
        near(got.sinks, MEAN, w.sinks / N, "sinks", l, h);
        if (m.arch.window) { near(got.window, MEAN, w.window / w.windows, "window", l, h); }
        else { CHECK(std::isnan(got.window.as(MEAN)), "a window"); }
        if (Attn::exp_family) {
            near(got.score, LARGEST, w.score, "score", l, h);
            near(got.lse, LARGEST, w.lse, "lse", l, h);
        } else {
            CHECK(std::isnan(got.score.as(LARGEST)) && std::isnan(got.lse.as(LARGEST)), "scores");
        }
        CHECK(std::isnan(got.xi.as(LARGEST)) && std::isnan(got.proposition.as(LARGEST)), "unequal");
        const double n = w.sinks;
        CHECK((n == 0) == std::isnan(got.value.as(MEAN)), "layer %d, head %d: %g sinks", l, h, n);
        if (n == 0) { CHECK(got.kind() == 0, "a kind without sinks"); continue; }
        double trace = 0, squares = 0;
        for (int i = 0; i < HS; i++) {
            trace += w.gram[i][i];
            squares += times(w.gram[i], w.gram[i]);
        }
        const double rank = trace * trace / squares;
        near(got.at_first, MEAN, w.at_first / n, "at_first", l, h);
        near(got.value, MEAN, w.value / n, "value", l, h);
        near(got.rank, MEAN, rank, "rank", l, h);
        const int kind = n / N <= 0.5 ? 0 : w.value / n < 0.5 ? 1 : rank < 2 ? 2 : 3;
        CHECK(got.kind() == kind, "layer %d, head %d: kind %d, wanted %d", l, h, got.kind(), kind);
    }
}

static void test_channels(const Anywhere& a, int l) {
    Vector anywhere(C), first(C);
    for (int b = 0; b < N; b++) {
        for (int t = 0; t < T; t++) {
            const Vector x = state(2 * l + 2, b, t + skip);
            for (int c = 0; c < C; c++) {
                int below = 0;                   // entries smaller than a sixth of this one
                for (double v : x) { below += fabs(v) < fabs(x[c]) / 6; }
                if (below <= C / 2) { continue; }
                anywhere[c] += 1.0 / (N * T);
                first[c] += (t == 0) / (double)N;
            }
        }
    }
    for (int c = 0; c < C; c++) {
        check_near(a.large[0][l][c], anywhere[c], 1e-9, "layer %d, channel %d", l, c);
        check_near(a.large[1][l][c], first[c], 1e-9, "layer %d, channel %d at token 1", l, c);
    }
    CHECK(anywhere[3] > 0.5 && first[5] > 0.5 && anywhere[5] < 0.2, "no channel is large: %g %g %g",
          anywhere[3], first[5], anywhere[5]);
}

static void test_likeness(const Likeness& a) {
    for (int i = 0; i < L * N * T; i++) {
        const int l = i / (N * T), at = i % (N * T), t = at % T + skip;
        if (t == skip) { continue; }             // token 1 itself
        const Vector x = state(2 * l + 2, at / T, t), first = state(2 * l + 2, at / T, skip);
        const double cosine = times(x, first) / size_of(x) / size_of(first);
        check_near(a.cosine[l][at], cosine, 1e-6, "layer %d, cosine of token %d", l, t);
        check_near(a.alpha[l][at], given[l][at], 1e-6, "layer %d, alpha of token %d", l, t);
    }
}

// six tokens and four layers: 8 is like token 1 after layers 1 and 2, and once after 1 alone; what is
// after the last layer nothing reads
static void test_secondary() {
    const int x[] = { 7, 8, 9, 8, 8, 9, 0 };
    const Likeness a = { { { 0, 0, 0, 0, 0, 0 }, { 0, .95, .5, .91, .93, .5 },
                           { 0, .97, .5, .95, .2, .9 }, { 0, 1, 1, 1, 1, 1 } },
                         { Vector(6, 9), Vector(6, 9), { 0, .2, 0, .4, .5, 0 }, { 0, .4, 0, .6, 0, 0 } } };
    const auto found = secondary_sinks(a, { x, 1, 6 }, 0.9);
    CHECK(found.size() == 2, "%zu kinds of secondary sinks", found.size());
    const Secondary twice = found.at({ 8, 1, 2 }), once = found.at({ 8, 1, 1 });
    CHECK(twice.alpha.n == 2 && once.alpha.n == 1, "%g and %g of them", twice.alpha.n, once.alpha.n);
    check_near(twice.alpha.as(MEAN), 0.4, 1e-12, "alpha");
    check_near(twice.cosine.as(MEAN), 0.945, 1e-12, "cosine");
    check_near(once.alpha.as(MEAN), 0.5, 1e-12, "alpha after one layer");
}

int main() {
    setting();
    test_secondary();
    const Anywhere a = anywhere_measure(&m, { seqs.data(), N, T }, EPS, true);
    double sinks = 0, elsewhere = 0;
    for (int l = 0; l < L; l++) {
        test_heads(a, l);
        test_channels(a, l);
        for (auto& head : a.layers[l]) {
            sinks += head.sinks.sum;
            elsewhere += head.at_first.n - head.at_first.sum;
        }
    }
    CHECK(sinks > 20 && sinks < L * NH * N && elsewhere > 0, "%g sinks, %g elsewhere", sinks,
          elsewhere);
    if (skip) { test_likeness(a.like); }         // where token 1 is massive
    CHECK(a.ids.size() == ids.size(), "%zu ids, wanted %zu", a.ids.size(), ids.size());
    for (auto& id : ids) {
        const IdSums& got = a.ids.at(id.first);
        check_near(got.count, id.second.count, 1e-9, "places of id %d", id.first);
        check_near(got.given / got.queries, id.second.given / id.second.queries, 1e-6,
                   "alpha of id %d", id.first);
    }
    return check_done();
}
