/*
test_eval.cpp -- what eval changes of a model, against a model written out here a second time:
one token after the other with a cache of keys and values (streaming, eviction),
or whole maps with a hook at every place (edits, bits). In double, to 1e-9.
test_eval_sink.cpp and test_eval_positions.cpp are the same with other switches.
*/
#include "../../core/defaults.h"
#define BACKEND ref
#define REAL double
#include "../model_unit.h"
#include "../../after/eval_run.h"
#include "../../log.h"
#include "../check.h"

typedef std::vector<double> Row;
typedef std::vector<Row> Mat;

enum { T = 24, B = 3, PROMPT = 20 };

// ---- the model, from its weights by name
struct Naive {
    Arch c;
    std::map<std::string, Mat> w;                // a vector is one row
    int skip;                                    // rows before the first token: the sink token's

    explicit Naive(const Model& m) : c(m.arch), skip(m.sizes.bias.token) {
        for (auto& t : m.tensors) {
            const long cols = t.shape.back();
            for (long i = 0; i < t.count; i += cols) {
                const real* row = m.params_memory + t.at + i;
                w[t.name].push_back(Row(row, row + cols));
            }
        }
    }
    const Mat& of(int l, const char* name) const {
        return w.at(strf("model.layers.%d.%s.weight", l, name));
    }

    static Row times(const Mat& matrix, const Row& x) {
        Row y;
        for (auto& row : matrix) {
            double sum = 0;
            for (size_t i = 0; i < x.size(); i++) { sum += row[i] * x[i]; }
            y.push_back(sum);
        }
        return y;
    }
    Row norm(const Row& x, const Mat& weight) const {
        double squares = 0;
        for (double v : x) { squares += v * v / x.size(); }
        Row y = x;
        for (size_t i = 0; i < x.size(); i++) {
            y[i] *= weight[0][i] / sqrt(squares + (double)c.eps);
        }
        return y;
    }
    // what layer l adds to the stream, and what its products read: with a norm after the branch,
    // and none before it, or the other way
    bool norms_after() const { return w.count("model.layers.0.post_feedforward_layernorm.weight"); }
    Row before(const Row& x, int l, const char* weight) const {
        return norms_after() ? x : norm(x, of(l, weight));
    }
    Row after(const Row& x, int l, const char* weight) const {
        return norms_after() ? norm(x, of(l, weight)) : x;
    }
    // the stream at the beginning: row i is token i, or the sink token;
    // learned positions, if there are any
    Row embedded(const int* seq, int i) const {
        return i < skip ? w.at("model.sink_token")[0]
                        : w.at("model.embed_tokens.weight")[seq[i - skip]];
    }
    bool learns_positions() const { return w.count("model.embed_positions.weight"); }
    // ALiBi (Press et al. 2022): a distance costs head h, from 0, 2^(-8 (h + 1) / NH) a token
    double bias(int h, int distance) const {
        return c.pe == PE_alibi ? -distance * pow(2, -8.0 * (h + 1) / c.NH) : 0;
    }
    // the learned key or value of head h in layer l; of BIAS=none none
    Row extra(int l, int h, const char* name) const {
        const auto found = w.find(strf("model.layers.%d.self_attn.%s", l, name));
        return found == w.end() ? Row() : found->second[h / (c.NH / c.KV)];
    }
    // a gate for each head, or for each of its channels, before its sigmoid; no gate: none
    Row gates(const Row& n, int l) const {
        const std::string name = strf("model.layers.%d.self_attn.gate_proj.weight", l);
        return w.count(name) ? times(w.at(name), n) : Row();
    }
    // every head of x turned to a position
    Row turned(const Row& x, double position) const {
        Row y = x;
        if (c.pe != PE_rotary) { return y; }
        const int half = c.HS / 2;
        for (size_t head = 0; head < x.size(); head += c.HS) {
            for (int i = 0; i < half; i++) {
                const double angle = position * pow((double)c.rope_base, -2.0 * i / c.HS),
                             a = x[head + i], b = x[head + i + half];
                y[head + i] = a * cos(angle) - b * sin(angle);
                y[head + i + half] = b * cos(angle) + a * sin(angle);
            }
        }
        return y;
    }
    Row activation(const Row& n, int l) const {
        Row gate = times(of(l, "mlp.gate_proj"), n), up = times(of(l, "mlp.up_proj"), n);
        for (size_t i = 0; i < up.size(); i++) { up[i] *= gate[i] / (1 + exp(-gate[i])); }
        return up;
    }
    double loss(const Row& x, int target) const {
        const Row logits = times(w.at("lm_head.weight"), norm(x, w.at("model.norm.weight")));
        double sum = 0;
        for (double v : logits) { sum += exp(v); }
        return log(sum) - logits[target];
    }
};
static void add(Row* x, const Row& y) { for (size_t i = 0; i < y.size(); i++) { (*x)[i] += y[i]; } }
static double dot(const Row& q, int from_q, const Row& k, int from_k, int n) {
    double sum = 0;
    for (int i = 0; i < n; i++) { sum += q[from_q + i] * k[from_k + i]; }
    return sum;
}

// ---- one token after the other. A cache has keys before they turn, values,
// and where their tokens are
struct Entry { Row k, v; int place; };
struct Loop {
    const Naive& net; const Arch& c;
    std::vector<std::vector<std::vector<Entry>>> cache;          // by layer, by key/value head
    // by layer and head: rows of weights, by entry
    std::vector<std::vector<Mat>> A;

    explicit Loop(const Naive& net) : net(net), c(net.c), cache(c.L), A(c.L) {
        for (int l = 0; l < c.L; l++) { cache[l].resize(c.KV); A[l].resize(c.NH); }
    }
    // reads row `place` of a sequence. in_cache: positions are those in the cache,
    // and the query's is the last of them
    Row read(const int* seq, int place, bool in_cache) {
        Row x = net.embedded(seq, place);
        for (int l = 0; l < c.L; l++) {
            const Row n = net.before(x, l, "input_layernorm");
            const Row q = Naive::times(net.of(l, "self_attn.q_proj"), n),
                      k = Naive::times(net.of(l, "self_attn.k_proj"), n);
            const Row v = Naive::times(net.of(l, "self_attn.v_proj"), n);
            Row o(c.NH * c.HS);
            for (int g = 0; g < c.KV; g++) {
                cache[l][g].push_back({ Row(&k[g * c.HS], &k[g * c.HS] + c.HS),
                                        Row(&v[g * c.HS], &v[g * c.HS] + c.HS), place });
            }
            for (int h = 0; h < c.NH; h++) {
                const std::vector<Entry>& seen = cache[l][h / (c.NH / c.KV)];
                const int here = in_cache ? seen.size() - 1 : place;
                const Row q_h = net.turned(Row(&q[h * c.HS], &q[h * c.HS] + c.HS), here);
                Row a;
                double sum = 0;
                for (size_t j = 0; j < seen.size(); j++) {
                    const int there = in_cache ? (int)j : seen[j].place;
                    const Row k_j = net.turned(seen[j].k, there);
                    const bool sees = !c.window || place - seen[j].place < c.window;
                    a.push_back(!sees ? 0 : exp(dot(q_h, 0, k_j, 0, c.HS) / sqrt((double)c.HS) +
                                                net.bias(h, here - there)));
                    sum += a[j];
                }
                const Row k_star = net.extra(l, h, "k_star"), v_star = net.extra(l, h, "v_star");
                const double extra = k_star.empty() ? 0 : exp(dot(q_h, 0, k_star, 0, c.HS) /
                                                             sqrt((double)c.HS));
                sum += extra;
                for (size_t i = 0; i < v_star.size(); i++) {
                    o[h * c.HS + i] += extra / sum * v_star[i];
                }
                for (size_t j = 0; j < seen.size(); j++) {
                    a[j] /= sum;
                    for (int i = 0; i < c.HS; i++) { o[h * c.HS + i] += a[j] * seen[j].v[i]; }
                }
                A[l][h].push_back(a);
            }
            const Row g = net.gates(n, l);
            for (size_t i = 0; !g.empty() && i < o.size(); i++) {
                o[i] /= 1 + exp(-g[i * g.size() / o.size()]);
            }
            add(&x, net.after(Naive::times(net.of(l, "self_attn.o_proj"), o), l,
                              "post_attention_layernorm"));
            const Row up = net.activation(net.before(x, l, "post_attention_layernorm"), l);
            add(&x, net.after(Naive::times(net.of(l, "mlp.down_proj"), up), l,
                              "post_feedforward_layernorm"));
        }
        return x;
    }
};

// StreamingLLM: after each token the cache is cut to its first n and its last W entries
static Row literal_stream(const Naive& net, const int* seq, int n, int W, bool in_cache) {
    Loop loop(net);
    Row losses;
    for (int i = 0; i < T + net.skip; i++) {
        const Row x = loop.read(seq, i, in_cache);
        if (i >= net.skip) { losses.push_back(net.loss(x, seq[i - net.skip + 1])); }
        for (auto& layer : loop.cache) {
            for (auto& head : layer) {
                if ((int)head.size() > n + W) { head.erase(head.begin() + n, head.end() - W); }
            }
        }
    }
    return losses;
}

// eviction: the prompt is read, each key/value head keeps its best, and the rest is read
static Row literal_evict(const Naive& net, const int* seq, const Evict& e) {
    Loop loop(net);
    const Arch& c = net.c;
    Row losses;
    auto read = [&](int i) {
        const Row x = loop.read(seq, i, false);
        if (i >= net.skip) { losses.push_back(net.loss(x, seq[i - net.skip + 1])); }
    };
    for (int i = 0; i < e.prompt; i++) { read(i); }
    const int P = e.prompt, window = P / 4, group = c.NH / c.KV; // P < 256
    for (int l = 0; l < c.L; l++) {
        for (int g = 0; g < c.KV; g++) {
            std::vector<std::pair<double, int>> order;           // minus the score, and the row
            Row mean(P);
            for (int h = g * group; h < (g + 1) * group; h++) {
                for (int i = 0; i < P; i++) {
                    for (int j = 0; j <= i; j++) {
                        const double a = loop.A[l][h][i][j] / group;
                        const int readers = std::min(P - j, c.window ? c.window : P);
                        if (e.policy == EVICT_observed) { mean[j] += a / readers; }
                        if (e.policy == EVICT_snapkv && i >= P - window) { mean[j] += a / window; }
                    }
                }
            }
            for (int j = 0; j < P; j++) {
                double score = mean[j];
                if (e.policy == EVICT_streaming) { score = j < 4 || j >= P - (e.kept - 4); }
                if (e.policy == EVICT_knorm) {
                    const Row& k = loop.cache[l][g][j].k;        // not turned: equal keys are equal
                    score = -nearbyint(1e5 * log(sqrt(dot(k, 0, k, 0, c.HS))));
                }
                if (e.policy == EVICT_snapkv) {
                    score = 0;
                    for (int i = -2; i <= 2; i++) {
                        if (j + i >= 0 && j + i < P - window) { score += mean[j + i] / 5; }
                    }
                    if (j >= P - window) { score = 1e9; }
                }
                if (j == net.skip && e.first == FIRST_KEPT) { score = 1e9; }
                if (j == net.skip && e.first == FIRST_DROPPED) { score = -1e9; }
                if (j < net.skip) { score = 1e10; }
                order.push_back({ -score, j });
            }
            std::sort(order.begin(), order.end());
            std::vector<int> stay;
            for (int k = 0; k < e.kept; k++) { stay.push_back(order[k].second); }
            std::sort(stay.begin(), stay.end());
            std::vector<Entry> kept;
            for (int j : stay) { kept.push_back(loop.cache[l][g][j]); }
            loop.cache[l][g] = kept;
        }
    }
    for (int i = P; i < T + net.skip; i++) { read(i); }
    return losses;
}

// ---- whole maps, a hook at every place: (place, layer, rows of the sequence);
// "score" and "A" have h behind the place
typedef std::function<void(const std::string&, int, Mat*)> Hook;

// the hook on rows of tokens alone: the sink token's row, and of maps its column, stay as they are
static void hooked(const Hook& hook, int skip, const std::string& place, int l, Mat* x) {
    const int from = place[0] == 'A' || starts_with(place, "score") ? skip : 0;
    Mat some;
    for (size_t i = skip; i < x->size(); i++) {
        some.push_back(Row((*x)[i].begin() + from, (*x)[i].end()));
    }
    hook(place, l, &some);
    for (size_t i = 0; i < some.size(); i++) {
        std::copy(some[i].begin(), some[i].end(), (*x)[i + skip].begin() + from);
    }
}

static Row literal_whole(const Naive& net, const int* seq, const Hook& plain_hook) {
    const Arch& c = net.c;
    const int N = T + net.skip;
    auto hook = [&](const std::string& place, int l, Mat* x) {
        hooked(plain_hook, net.skip, place, l, x);
    };
    Mat x, pe;
    for (int i = 0; i < N; i++) { x.push_back(net.embedded(seq, i)); }
    if (net.learns_positions()) {
        pe = net.w.at("model.embed_positions.weight");
        hook("pe", 0, &pe);
        for (int i = 0; i < N; i++) { add(&x[i], pe[i]); }
    }
    for (int l = 0; l < c.L; l++) {
        Mat n, n_gate, q, k, v, o, g, attn, mlp, up, down;
        for (auto& r : x) { n.push_back(net.before(r, l, "input_layernorm")); }
        n_gate = n;
        hook("qkv", l, &n);
        hook("gate-input", l, &n_gate);
        for (int i = 0; i < N; i++) {
            q.push_back(net.turned(Naive::times(net.of(l, "self_attn.q_proj"), n[i]), i));
            k.push_back(net.turned(Naive::times(net.of(l, "self_attn.k_proj"), n[i]), i));
            v.push_back(Naive::times(net.of(l, "self_attn.v_proj"), n[i]));
            g.push_back(net.gates(n_gate[i], l));
            for (auto& y : g[i]) { y = 1 / (1 + exp(-y)); }
        }
        hook("q", l, &q); hook("k", l, &k); hook("v", l, &v);
        if (!g[0].empty()) { hook("gate", l, &g); }
        o.assign(N, Row(c.NH * c.HS));
        for (int h = 0; h < c.NH; h++) {
            const int from = h / (c.NH / c.KV) * c.HS;
            Mat A(N, Row(N, -INFINITY));
            for (int i = 0; i < N; i++) {
                for (int j = 0; j <= i; j++) {
                    A[i][j] = dot(q[i], h * c.HS, k[j], from, c.HS) / sqrt((double)c.HS) +
                              net.bias(h, i - j);
                }
            }
            hook(strf("score%d", h), l, &A);
            const Row k_star = net.extra(l, h, "k_star"), v_star = net.extra(l, h, "v_star");
            Row column(N, -INFINITY);
            for (int i = 0; i < N && !k_star.empty(); i++) {
                column[i] = dot(q[i], h * c.HS, k_star, 0, c.HS) / sqrt((double)c.HS);
            }
            auto extra = [&](const std::string& place) {         // the extra key, or the sink token
                for (int i = net.skip; i < N; i++) {
                    Mat x = { { net.skip ? A[i][0] : column[i] } };
                    plain_hook(place, l, &x);
                    (net.skip ? A[i][0] : column[i]) = x[0][0];
                }
            };
            extra(strf("extra-score%d", h));
            for (int i = 0; i < N; i++) {
                column[i] = exp(column[i]);
                double sum = column[i];
                for (auto& s : A[i]) { s = exp(s); sum += s; }
                for (auto& s : A[i]) { s /= sum; }
                column[i] /= sum;
            }
            extra(strf("extra%d", h));
            for (int i = 0; i < N; i++) {
                for (size_t e = 0; e < v_star.size(); e++) {
                    o[i][h * c.HS + e] += column[i] * v_star[e];
                }
            }
            hook(strf("A%d", h), l, &A);
            for (int i = 0; i < N; i++) {
                for (int j = 0; j <= i; j++) {
                    for (int e = 0; e < c.HS; e++) {
                        o[i][h * c.HS + e] += A[i][j] * v[j][from + e];
                    }
                }
            }
        }
        hook("head", l, &o);
        for (int i = 0; i < N; i++) {
            for (size_t e = 0; !g[i].empty() && e < o[i].size(); e++) {
                o[i][e] *= g[i][e * g[i].size() / o[i].size()];
            }
        }
        hook("out", l, &o);
        for (auto& r : o) {
            attn.push_back(net.after(Naive::times(net.of(l, "self_attn.o_proj"), r), l,
                                     "post_attention_layernorm"));
        }
        hook("attn", l, &attn);
        for (int i = 0; i < N; i++) { add(&x[i], attn[i]); }
        for (auto& r : x) { up.push_back(net.before(r, l, "post_attention_layernorm")); }
        hook("gate|up", l, &up);
        for (auto& r : up) { down.push_back(net.activation(r, l)); }
        hook("down", l, &down);
        for (auto& r : down) {
            mlp.push_back(net.after(Naive::times(net.of(l, "mlp.down_proj"), r), l,
                                    "post_feedforward_layernorm"));
        }
        hook("mlp", l, &mlp);
        for (int i = 0; i < N; i++) { add(&x[i], mlp[i]); }
        hook("h", l, &x);
    }
    Row losses;
    for (int i = net.skip; i < N; i++) { losses.push_back(net.loss(x[i], seq[i - net.skip + 1])); }
    return losses;
}

// ---- the tests
struct Setting { Model m; std::vector<int> seqs; };

static Setting setting() {
    Arch c;
    // heads wider than C / NH
    c.L = 3; c.C = 16; c.NH = 4; c.KV = 2; c.HS = 6; c.F = 20; c.V = 40; c.T = T;
    arch_settle(&c, "");
    Setting s = { model_new(c, T, false), {} };
    std::vector<acc> x(s.m.num_params);
    Rng rng = rng_stream(7, 7);
    for (auto& v : x) { v = 0.7 * rng_normal(&rng); }
    model_set_weights(&s.m, x.data());
    for (int b = 0; b < B; b++) { // no token twice in a sequence: equal keys would be a draw
        std::vector<int> ids;
        for (int v = 0; v < c.V; v++) { ids.push_back(v); }
        for (int t = 0; t <= T; t++) {
            std::swap(ids[t], ids[t + rng_below(&rng, c.V - t)]);
            s.seqs.push_back(ids[t]);
        }
    }
    return s;
}

static double furthest(const std::vector<double>& a, const std::vector<double>& b, int from = 0) {
    double most = a.size() == b.size() ? 0 : INFINITY;
    for (size_t i = from; i < a.size() && i < b.size(); i++) {
        most = std::max(most, fabs(a[i] - b[i]));
    }
    return most;
}

// all sequences by a literal function
static Row all_of(const Setting& s, const std::function<Row(const int*)>& one) {
    Row all;
    for (int b = 0; b < B; b++) {
        const Row r = one(&s.seqs[b * (T + 1)]);
        all.insert(all.end(), r.begin(), r.end());
    }
    return all;
}

static Row run(Setting* s, Change e) {
    return eval_run(&s->m, &e, { s->seqs.data(), B, T, 2 * T }).losses;
}  // two at a time, then one

static void test_stream(Setting* s, const Naive& net, const Row& plain) {
    for (bool cached : { true, false }) {
        for (auto& nW :
             { std::pair<int, int>{ 4, 8 }, { 0, 12 }, { 1, 5 }, { 3, 0 }, { 2, 100 } }) {
            Change e;
            e.stream = { true, nW.first, nW.second, cached };
            const Row got = run(s, e),
                      want = all_of(*s, [&](const int*seq) {
                          return literal_stream(net, seq, nW.first, nW.second, cached);
                      });
            CHECK(furthest(got, want) < 1e-9, "stream %d+%d, cached %d: %g away", nW.first,
                  nW.second, cached, furthest(got, want));
            const bool all = nW.first + nW.second >= T + net.skip - 1;
            CHECK((furthest(got, plain) < 1e-12) == all, "stream %d+%d is %g from the plain run",
                  nW.first, nW.second, furthest(got, plain));
        }
    }
    Change a, b;
    a.stream = { true, 4, 8, true }; b.stream = { true, 4, 8, false };
    CHECK(furthest(run(s, a), run(s, b)) > 1e-4, "the two conventions of positions do not differ");
}

// of equals the earlier, however their keys have turned
static void test_evict_equals(Setting* s, const Naive& net) {
    Setting few = *s;
    for (int i = 0; i < B * (T + 1); i++) { few.seqs[i] = s->seqs[i % 5]; }
    Change e;
    e.evict = { true, EVICT_knorm, PROMPT + net.skip, 7, FIRST_AS_SCORED };
    const Row got = run(&few, e), want = all_of(few, [&](const int* seq) {
                                      return literal_evict(net, seq, e.evict);
                                  });
    CHECK(furthest(got, want) < 1e-9, "evict knorm, equal keys: %g away", furthest(got, want));
}

static void test_evict_window(Setting* s) {
    s->m.arch.window = 6;
    const Naive net(s->m);
    Change e;
    e.evict = { true, EVICT_observed, PROMPT + net.skip, 12, FIRST_AS_SCORED };
    const Row got = run(s, e), want = all_of(*s, [&](const int* seq) {
                                   return literal_evict(net, seq, e.evict);
                               });
    CHECK(furthest(got, want) < 1e-9, "evict observed with a window: %g away", furthest(got, want));
    s->m.arch.window = 0;
}

static void test_evict(Setting* s, const Naive& net) {
    for (Policy policy : { EVICT_streaming, EVICT_knorm, EVICT_observed, EVICT_snapkv }) {
        for (FirstToken first : { FIRST_AS_SCORED, FIRST_KEPT, FIRST_DROPPED }) {
            for (int kept : { 5, 10, (int)PROMPT }) {
                Change e;
                e.evict = { true, policy, PROMPT + net.skip, kept, first };
                const Row got = run(s, e), want = all_of(*s, [&](const int*seq) {
                                               return literal_evict(net, seq, e.evict);
                                           });
                CHECK(furthest(got, want) < 1e-9, "evict %s, %d kept, first %d: %g away",
                      POLICY_NAMES[policy], kept, first, furthest(got, want));
            }
        }
    }
}

static void test_edits(Setting* s, const Naive& net, const Row& plain) {
    Mat mean[3];                                 // of h, by layer: (T, C), over the sequences
    for (auto& m : mean) { m.assign(T, Row(s->m.arch.C)); }
    all_of(*s, [&](const int* seq) {
        return literal_whole(net, seq, [&](const std::string& place, int l, Mat* x) {
            for (int t = 0; t < T && place == "h"; t++) {
                for (int c = 0; c < s->m.arch.C; c++) { mean[l][t][c] += (*x)[t][c] / B; }
            }
        });
    });
    auto largest = [](const Row& r) {
        int at = 0;
        for (size_t i = 0; i < r.size(); i++) {
            if (fabs(r[i]) > fabs(r[at])) { at = i; }
        }
        return at;
    };
    // an edit, and the same by hand: what becomes of a place (* at its end: of all that begin so)
    // in layers from and to
    const int ALL = 99;
    struct Case {
        const char* text;
        std::string place;
        int from, to;
        std::function<void(Mat&)> change;
    };
    std::vector<Case> cases = {
        { "h:1:1=0", "h", 1, 1, [](Mat& x) { for (auto& v : x[0]) { v = 0; } } },
        { "h:0..1:2,5..6:3=1.5", "h", 0, 1, [](Mat& x) {
              for (int t : { 1, 4, 5 }) { x[t][3] = 1.5; }
          } },
        { "h:2:1:top1=0", "h", 2, 2, [&](Mat& x) { x[0][largest(x[0])] = 0; } },
        { "h:0:3:1..2=mean", "h", 0, 0, [&](Mat& x) {
              for (int c : { 1, 2 }) { x[2][c] = mean[0][2][c]; }
          } },
        { "attn:*:1=0", "attn", 0, ALL, [](Mat& x) { for (auto& v : x[0]) { v = 0; } } },
        { "mlp:1:*=x0.5", "mlp", 1, 1, [](Mat& x) {
              for (auto& r : x) {
                  for (auto& v : r) { v *= 0.5; }
              }
          } },
        { "mlp:0:4=from 2", "mlp", 0, 0, [](Mat& x) { x[3] = x[1]; } },
        { "q:1:7..=x2", "q", 1, 1, [](Mat& x) {
              for (int t = 6; t < T; t++) {
                  for (auto& v : x[t]) { v *= 2; }
              }
          } },
        { "k:*:1:1=from2", "k", 0, ALL, [](Mat& x) {
              for (int i = 6; i < 12; i++) { x[0][i] = x[1][i]; }
          } },
        { "v:2:1=0", "v", 2, 2, [](Mat& x) { for (auto& v : x[0]) { v = 0; } } },
        { "head:1:*:0,3=0", "head", 1, 1, [](Mat& x) {
              for (auto& r : x) {
                  for (int i = 0; i < 6; i++) { r[i] = r[18 + i] = 0; }
              }
          } },
        { "A:1..:1=0", "A*", 1, ALL, [](Mat& x) { for (int i = 1; i < T; i++) { x[i][0] = 0; } } },
        { "A:0:1,2:2=x0.25", "A2", 0, 0, [](Mat& x) {
              for (int i = 1; i < T; i++) {
                  x[i][0] *= 0.25;
                  if (i > 1) { x[i][1] *= 0.25; }
              }
          } },
        { "A:2:1=mask", "score*", 2, 2, [](Mat& x) {
              for (int i = 1; i < T; i++) { x[i][0] = -INFINITY; }
          } },
        { "A:1:*:0=x0.5", "A0", 1, 1, [](Mat& x) {
              for (int i = 0; i < T; i++) {
                  for (int j = 0; j < i; j++) { x[i][j] *= 0.5; }
              }
          } },
        { "A:*:2..4:1=mask", "score1", 0, ALL, [](Mat& x) {
              for (int i = 0; i < T; i++) {
                  for (int j = 1; j < 4 && j < i; j++) { x[i][j] = -INFINITY; }
              }
          } },
    };
    const Case alone = { "A:1..:3,5=self", "score*", 1, ALL, [](Mat& x) {
        for (int i : { 2, 4 }) { for (int j = 0; j < i; j++) { x[i][j] = -INFINITY; } }
    } };
    if (!Bias::extra && !sink_rows(&s->m)) { cases.push_back(alone); }
    const Case extra[] = {
        { "A:*:0=mask", "extra-score*", 0, ALL, [](Mat& x) { x[0][0] = -INFINITY; } },
        { "A:1:0:2=x0.5", "extra2", 1, 1, [](Mat& x) { x[0][0] *= 0.5; } },
    };
    if (Bias::extra || sink_rows(&s->m)) { cases.insert(cases.end(), extra, extra + 2); }
    static const int gate_of = gates_per_head(&s->m);        // numbers of a head's gate
    const Case gates[] = {
        { "gate:1:1:0=0.25", "gate", 1, 1, [](Mat& x) {
              for (int i = 0; i < gate_of; i++) { x[0][i] = 0.25; }
          } },
        { "gate:*:3..:2=x0.5", "gate", 0, ALL, [](Mat& x) {
              for (int t = 2; t < T; t++) {
                  for (int i = 0; i < gate_of; i++) { x[t][2 * gate_of + i] *= 0.5; }
              }
          } },
    };
    const Case positions[] = {
        { "pe:1=from 5", "pe", 0, ALL, [](Mat& x) { x[0] = x[4]; } },
        { "pe:2..3:0,4=0", "pe", 0, ALL, [](Mat& x) {
              for (int t : { 1, 2 }) { x[t][0] = x[t][4] = 0; }
          } },
        { "pe:7:top1=x0.5", "pe", 0, ALL, [&](Mat& x) { x[6][largest(x[6])] *= 0.5; } },
    };
    for (auto& one : positions) { if (net.learns_positions()) { cases.push_back(one); } }
    for (auto& one : gates) { if (s->m.sizes.gates_output) { cases.push_back(one); } }
    auto check = [&](const char* text, const std::vector<Case>& changes) {
        const Hook hook = [&](const std::string& p, int l, Mat* x) {
            for (auto& one : changes) {
                const bool all = one.place.back() == '*';
                const std::string start = one.place.substr(0, one.place.size() - all);
                const bool mine = all ? starts_with(p, start) : p == start;
                if (mine && l >= one.from && l <= one.to) { one.change(*x); }
            }
        };
        Change record, e;
        record.record = true;
        for (auto& part : split(text, ';')) { record.edits.push_back(edit_parse(part)); }
        CHECK(furthest(run(s, record), plain) == 0, "%s: a run that records is not the plain one",
              text);
        // once more: a mean of the same is the same
        eval_run(&s->m, &record, { s->seqs.data(), B, T, 2 * T });
        e.edits = record.edits;
        const Row got = run(s, e), want = all_of(*s, [&](const int*seq) {
                                       return literal_whole(net, seq, hook);
                                   });
        CHECK(furthest(got, want) < 1e-9, "edit %s: %g away", text, furthest(got, want));
        CHECK(furthest(got, plain) > 1e-4, "edit %s changes nothing", text);
        CHECK(furthest(run(s, Change()), plain) == 0, "edit %s: the model is not what it was",
              text);
    };
    for (auto& one : cases) { check(one.text, { one }); }
    if (s->m.sizes.gates_output) {
        check("gate:1:1:0=0.25;gate:*:3..:2=x0.5", { gates[0], gates[1] });
    }
}

// a literal rounding: range of what `ranges` says, then each number
static double rounded_to(double x, double low, double high, int bits, bool symmetric) {
    if (symmetric) {
        const double top = std::max(fabs(low), fabs(high)), n = pow(2, bits - 1) - 1;
        return rint(x * n / top) * top / n;
    }
    low = std::min(low, 0.0); high = std::max(high, 0.0);
    const double step = (high - low) / (pow(2, bits) - 1);
    return (rint(x / step) + rint(-low / step)) * step - rint(-low / step) * step;
}

static void test_bits(Setting* s, const Naive& net, const Row& plain) {
    const std::string inputs = " qkv gate-input out gate|up down ";
    for (int keep : { 0, 2 }) {
        for (Scope scope : { BITS_TOKEN, BITS_DYNAMIC, BITS_STATIC }) {
            for (bool kv : { false, true }) {
                Change e;
                e.bits.scope = scope; e.bits.keep = keep;
                if (kv) { e.bits.kv = 4; } else { e.bits.weights = 6; e.bits.inputs = 5; }
                Naive rounded = net;
                for (auto& t : rounded.w) {
                    for (auto& row : t.second) {
                        double top = 0;
                        for (double v : row) { top = std::max(top, fabs(v)); }
                        if (!kv && ends_with(t.first, "proj.weight")) {
                            for (auto& v : row) { v = rounded_to(v, -top, top, 6, true); }
                        }
                    }
                }
                // ranges of the tensor in a sequence; static: their running mean,
                // over sequences that calibrate
                std::map<std::string, std::pair<double, double>> running;
                bool calibrating = false;
                auto hook = [&](const std::string& place, int l, Mat* x) {
                    const bool mine = kv ? place == "k" || place == "v"
                                         : contains(inputs, " " + place + " ");
                    if (!mine) { return; }
                    const std::string key = place + strf("%d", l);
                    const int width = kv ? 6 : (*x)[0].size();
                    double low = INFINITY, high = -INFINITY;
                    for (int t = keep; t < T; t++) {
                        for (double v : (*x)[t]) {
                            low = std::min(low, v);
                            high = std::max(high, v);
                        }
                    }
                    if (calibrating) {
                        auto& r = running.insert({ key, { low, high } }).first->second;
                        r = { 0.9 * r.first + 0.1 * low, 0.9 * r.second + 0.1 * high };
                        return;
                    }
                    if (scope == BITS_STATIC) {
                        low = running.at(key).first;
                        high = running.at(key).second;
                    }
                    for (int t = keep; t < T; t++) {
                        for (size_t from = 0; from < (*x)[t].size(); from += width) {
                            double a = low, b = high;
                            if (scope == BITS_TOKEN) {
                                a = INFINITY;
                                b = -INFINITY;
                                for (int i = 0; i < width; i++) {
                                    a = std::min(a, (*x)[t][from + i]);
                                    b = std::max(b, (*x)[t][from + i]);
                                }
                            }
                            const double steps = kv ? 7 : 31;    // beyond the range: its end
                            for (int i = 0; i < width; i++) {
                                double& v = (*x)[t][from + i];
                                if (kv) {
                                    const double top = std::max(fabs(a), fabs(b));
                                    v = rounded_to(std::min(top, std::max(-top, v)), a, b, 4, true);
                                    continue;
                                }
                                const double lo = std::min(a, 0.0), hi = std::max(b, 0.0),
                                             step = (hi - lo) / steps, zero = rint(-lo / step);
                                v = (std::min(steps, std::max(0.0, rint(v / step) + zero)) - zero) *
                                    step;
                            }
                        }
                    }
                };
                if (scope == BITS_STATIC) {
                    calibrating = true;
                    // the last two, one of them twice
                    literal_whole(net, &s->seqs[2 * (T + 1)], hook);
                    literal_whole(net, &s->seqs[1 * (T + 1)], hook);
                    calibrating = false;
                    e.bits.calibrating = true;
                    for (int b : { 2, 1 }) { eval_run(&s->m, &e, { &s->seqs[b * (T + 1)], 1, T }); }
                    e.bits.calibrating = false;
                }
                const Row got = run(s, e), want = all_of(*s, [&](const int*seq) {
                                               return literal_whole(rounded, seq, hook);
                                           });
                CHECK(furthest(got, want) < 1e-9, "bits %s, %s, keep %d: %g away",
                      kv ? "kv4" : "w6a5", SCOPES[scope], keep, furthest(got, want));
                CHECK(furthest(got, plain) > 1e-4, "bits change nothing");
                CHECK(furthest(run(s, Change()), plain) == 0, "bits: the model is not what it was");
            }
        }
    }
}

static void test_numbers() {
    // means of sequences 1.5, 3.5, 7
    const int text[] = { 5, 5, 5, 5, 5, 5, 5, 5, 5 }, talk[] = { ~5, ~5, 5, 5, ~5, ~5, ~5, 5, 5 };
    const Sequences all = { text, 3, 2 }, some = { talk, 3, 2 };
    Model model = Model();
    const Mean m = eval_mean(&model, all, { 1, 2, 3, 4, 8, 6 }, NULL, 0, 2);
    check_near(m.mean, 4, 1e-12, "mean");
    check_near(m.error, sqrt((2.5 * 2.5 + .25 + 9) / 2 / 3), 1e-12, "standard error");
    const std::vector<double> other = { 1, 1, 1, 1, 1, 1 };
    check_near(eval_mean(&model, all, { 1, 2, 3, 4, 8, 6 }, &other, 1, 2).mean, 3, 1e-12,
               "change from token 2 on");
    // of the first sequence the second target counts, of the second none, of the third both
    check_near(eval_mean(&model, some, { 0, 2, 0, 0, 8, 6 }, &other, 0, 2).mean, 3.5, 1e-12,
               "targets that no loss asks for");
    CHECK(std::isnan(eval_mean(&model, some, { 0, 2, 0, 0, 8, 6 }, NULL, 0, 1).error) &&
              std::isnan(eval_mean(&model, { talk, 0, 2 }, {}, NULL, 0, 2).mean),
          "the error of one sequence, the mean of none");
    model.arch.prefix = 2;                       // the second token of it is no target
    check_near(eval_mean(&model, all, { 0, 2, 0, 4, 0, 6 }, NULL, 0, 2).mean, 4, 1e-12,
               "after a prefix");
    CHECK(std::isnan(eval_mean(&model, all, { 0, 2, 0, 4, 0, 6 }, NULL, 0, 1).mean),
          "within a prefix");
    // a grid has a 0 although no number lies on its other side: 0, 1, 2, 3, and their negatives
    for (double sign : { 1.0, -1.0 }) {
        const Bits::Range one_side = { sign > 0 ? 1.0 : -3.0, sign > 0 ? 3.0 : -1.0 };
        check_near(bits_round(sign * 1.4, one_side, 2, false), sign * 1, 1e-12, "two bits of 1.4");
        check_near(bits_round(sign * 2.6, one_side, 2, false), sign * 3, 1e-12, "two bits of 2.6");
    }
    // the log has the gated Sink for every threshold
    Metrics gated;
    gated.n = gated.L = 1; gated.NH = 4; gated.T = T; gated.layers = { 0 };
    gated.heads.resize(4);
    gated.heads[0].effective = 0.4f;
    for (bool gate : { false, true }) {
        gated.has_gate = gate;
        JsonObject fields;
        fill_sinks(&gated, { 0.3, 0.5 });
        eval_fields(&fields, "eval", 0, NAN, gated);
        const std::string log = fields.all();
        CHECK((log.find("\"sink_star\":null,\"sink_effective\":0.25}") < log.size()) == gate &&
                  (log.find("\"sink_star\":null,\"sink_effective\":0}") < log.size()) == gate,
              "the gated Sink of two thresholds: %s", log.c_str());
    }
    Picks p;
    CHECK(picks_parse("2..4,7", &p) && p.has(2) && p.has(4) && p.has(7) && !p.has(5) && !p.has(1) &&
              p.last() == 7,
          "2..4,7");
    CHECK(picks_parse("3..", &p) && p.has(1000) && !p.has(2), "3..");
    CHECK(picks_parse("top3", &p) && p.top == 3, "top3");
    for (auto bad : { "", "a", "4..2", "1,,2", "..3", "top", "top0", "-1" }) {
        CHECK(!picks_parse(bad, &p), "'%s' was taken for a set", bad);
    }
    for (auto bad : { "h:1:1", "x:1:1=0", "h:1=0", "h:1:1:top2:3=0", "q:1:1:top2=0", "h:1:1=nan",
                      "h:1:1=mask", "A:1:1=mean", "h:1:1=from 0", "h:1:1=from", "=0", "h:top2:1=0",
                      "pe:1=mean", "h:1:1=x", "h:1:1=self", "A:1:1=selfish" }) {
        const Died d = check_dies([&] { edit_parse(bad); });
        check_ended(d, EXIT_USER, strf("--edit '%s'", bad), "--edit", "HINT");
    }
}

// a token given as ~id is read as id and asked for by no loss
static void test_masked(Setting* s) {
    std::vector<int> seq(s->seqs.begin(), s->seqs.begin() + T + 1);
    const long all = model_load(&s->m, seq.data(), 1, T);
    model_forward(&s->m, all);
    const std::vector<acc> want = model_losses(&s->m);
    for (int t : { 0, 5, 6, (int)T }) { seq[t] = ~seq[t]; }
    const long some = model_load(&s->m, seq.data(), 1, T);
    model_forward(&s->m, some);
    const std::vector<acc> got = model_losses(&s->m);
    // token 0 is no target
    CHECK(all == T && some == T - 3, "%ld of %ld targets count", some, all);
    for (int t = 0; t < T; t++) {
        const bool masked = t == 4 || t == 5 || t == T - 1;
        const int row = t + s->m.sizes.bias.token;
        CHECK(got[row] == (masked ? 0 : want[row]), "loss %d is %g, wanted %g", t, got[row],
              masked ? 0.0 : want[row]);
    }
    s->m.min_context = 11;
    s->m.max_context = T - 2;
    const long near = model_load(&s->m, seq.data(), 1, T, true);
    CHECK(near == T - 12, "with 11 to T - 2 tokens before a target %ld count", near);
    CHECK(targets_count(&s->m, seq.data(), 1, T) == near, "counted otherwise");
    s->m.min_context = s->m.max_context = 0;
}

// rows of two channels of -1 and 1 have kurtosis 1 n / (n-1)^2 ..:
// counted by hand for a small stream
static void test_outliers(Setting* s) {
    model_load(&s->m, s->seqs.data(), 1, T);
    const int skip = s->m.sizes.bias.token;
    Host x((size_t)(T + skip) * s->m.arch.C, 7);    // the sink token's row counts nowhere
    for (int t = 0; t < T; t++) {
        for (int c = 0; c < 16; c++) {
            x[(t + skip) * 16 + c] = t == 0 ? (c == 5 ? 160 : 0) : (c % 2 ? 1 : -1);
        }
    }
    host_write(act_x(&s->m, 2), x);
    Outliers o;
    outliers_add(&o, &s->m, 0, 1);
    check_near(o.largest[0], 160, 1e-9, "largest");
    // one of 16 is 160: mean 10, m4 = (150^4 + 15 10^4) / 16, s^2 = (150^2 + 15 10^2) / 15 = 1600
    check_near(o.kurtosis.first[0], (506250000.0 + 150000) / 16 / (1600.0 * 1600), 1e-6,
               "kurtosis of the first");
    check_near(o.kurtosis.rest[0], 1 / (256.0 / 225), 1e-5, "kurtosis of the others");
    check_near(o.share.first[0], 0, 1e-12, "150 is less than 6 x 40");
}

// lengths of the gradient in the stream after layer 0, against slopes of the literal model's losses
static void test_gradients(Setting* s, const Naive& net) {
    const int C = s->m.arch.C, n = 2;
    double first = 0, rest = 0;
    for (int b = 0; b < n; b++) {
        for (int t : { 0, 1, T / 2, T - 1 }) {
            double squares = 0;
            for (int c = 0; c < C; c++) {
                double sum[2] = { 0, 0 };
                for (int side = 0; side < 2; side++) {
                    const Row losses = literal_whole(net, &s->seqs[b * (T + 1)],
                                                     [&](const std::string& place, int l, Mat* x) {
                                                         if (place == "h" && l == 0) {
                                                             (*x)[t][c] += side ? 1e-5 : -1e-5;
                                                         }
                                                     });
                    for (double x : losses) { sum[side] += x; }
                }
                squares += pow((sum[1] - sum[0]) / 2e-5, 2);
            }
            (t ? rest : first) += sqrt(squares);
        }
    }
    Model with = model_new(s->m.arch, T, true);
    Host weights(s->m.master, s->m.master + s->m.num_params);
    model_set_weights(&with, weights.data());
    const NormPair all = eval_gradients(&with, { s->seqs.data(), n, T, T });
    check_near(n * all.first[1], first, 1e-6 * first, "gradient at token 1");
    double some = 0, mean = 0;
    for (int b = 0; b < n; b++) {
        model_zero(&with);
        model_load(&with, &s->seqs[b * (T + 1)], 1, T);
        model_layers(&with);
        model_lm_head(&with, 1);
        model_backward(&with, false, [&](int l) {
            for (int t = 1; t < T && l == 1; t++) {
                const acc* d = with.acts.dx + (size_t)(t + with.sizes.bias.token) * C;
                const double length = sqrt(ref::dot(d, d, C));
                mean += length / (T - 1);
                if (t == 1 || t == T / 2 || t == T - 1) { some += length; }
            }
        });
    }
    check_near(some, rest, 1e-6 * rest, "gradient at three others");
    check_near(n * all.rest[1], mean, 1e-12 * mean, "mean gradient at the others");
    const NormPair both = eval_gradients(&with, { s->seqs.data(), n, T });
    for (int l = 0; l <= s->m.arch.L; l++) {
        check_near(both.first[l], all.first[l], 1e-12 * all.first[l], "two at a time, token 1");
        check_near(both.rest[l], all.rest[l], 1e-12 * all.rest[l], "two at a time, the others");
        CHECK(all.first[l] > 0 && all.rest[l] > 0, "layer %d has no gradient", l);
    }
    model_free(&with);
}

// Sink of tokens beyond the tenth, from whole maps: two sequences at a time, then one
static void test_sink_at(Setting* s, const Naive& net) {
    SinkAt at = { { 1, 11, 17, T }, std::vector<std::vector<double>>(4) };
    std::vector<double> maps[B];                 // of each layer and head: alpha of the tokens
    for (int b = 0; b < B; b++) {
        literal_whole(net, &s->seqs[b * (T + 1)], [&](const std::string& place, int, Mat* A) {
            for (int k : place[0] == 'A' ? at.tokens : std::vector<int>()) {
                double sum = 0;
                for (int i = k; i <= T; i++) { sum += (*A)[i - 1][k - 1] / (T - k + 1); }
                maps[b].push_back(sum);
            }
        });
    }
    Change e;
    e.after_layer = [&](int l) { sink_at_add(&at, &s->m, l); };
    run(s, e);
    const int NH = net.c.NH, n = at.tokens.size();
    for (int k = 0; k < n; k++) {
        Row want;
        for (int first = 0; first < B; first += 2) {
            for (int l = 0; l < net.c.L; l++) {
                for (int b = first; b < std::min<int>(B, first + 2); b++) {
                    for (int h = 0; h < NH; h++) { want.push_back(maps[b][(l * NH + h) * n + k]); }
                }
            }
        }
        CHECK(furthest(at.alpha[k], want) < 1e-6, "alpha of token %d: %g away", at.tokens[k],
              furthest(at.alpha[k], want));          // float q and k
        std::sort(want.begin(), want.end());
        const double eps = (want[want.size() / 4] + want[want.size() / 4 - 1]) / 2;
        CHECK(sink_at_rate(at, k, eps) == 0.75, "Sink of token %d: %g", at.tokens[k],
              sink_at_rate(at, k, eps));
    }
}

// alpha of a layer with a window is scaled where other layers have none, and only there
static void test_seen(Setting* s) {
    Arch& c = s->m.arch;
    s->m.T = T + s->m.sizes.bias.token;
    for (const char* local : { "", "1", "111", "0", "10" }) {
        c.local = local;
        c.window = 6;
        const bool mixed = c.local == "10";
        check_near(seen_factor(&s->m, 0, 1), mixed ? T / 6.0 : 1, 1e-6, "a local layer's factor");
        check_near(seen_factor(&s->m, 1, 1), 1, 0, "a global layer's factor");
    }
    c.local = "";
    c.window = 0;
}

int main() {
    Setting s = setting();
    const Naive net(s.m);
    const Row plain = run(&s, Change()),
              want = all_of(s, [&](const int*seq) {
                  return literal_whole(net, seq, [](const std::string&, int, Mat*) {});
              });
    CHECK(furthest(plain, want) < 1e-10, "the plain model: %g away", furthest(plain, want));
    CASE("numbers") { test_numbers(); }
    CASE("outliers") { test_outliers(&s); }
    CASE("masked") { test_masked(&s); }
    if (!net.learns_positions()) {
        test_stream(&s, net, plain);
        test_evict(&s, net);
        test_evict_equals(&s, net);
        test_evict_window(&s);
    }
    CASE("edits") { test_edits(&s, net, plain); }
    CASE("bits") { test_bits(&s, net, plain); }
    CASE("gradients") { test_gradients(&s, net); }
    CASE("sink_at") { test_sink_at(&s, net); }
    CASE("seen") { test_seen(&s); }
    model_free(&s.m);
    return check_done();
}
