/*
metrics.cuh -- what this program exists to measure, defined once. Formulas: Gu et al. 2024, section
3.2 and 7.4, and the official code where the text is silent; A is the attention map of one head on
one sequence, rows are queries, 1 <= k <= T.

    alpha_k     mean over queries i >= k of A_ik: how much of its audience's attention token k gets
    Sink_k      mean over sequences, layers, heads of [alpha_k > eps]: threshold first, then
                average; eps 0.3, T 64
    proxy       the same for |w_ij| / sum_j |w_ij|: for operations whose rows do not sum to 1
    star        the extra column or the sink token: the map is then (T+1) x (T+1), row and
                column 0 are the star's; the query row of an extra column is one-hot on itself.
                A column that no output depends on (column_idle) is not there
    mass        mean over queries of sum_j A_ij over the tokens (the star left out)
    entropy     mean over queries of -sum_j P_ij ln P_ij, P the proxy over all columns
    norms       l2 norms of hidden states, keys, values: the first token's and the others' mean
    max, median of the entries |h| of a sequence: the largest over the sequences, the mean
                of the medians

    1 one head           HeadMetrics, attention_metrics (ref:: a row at a time; cuda:: by panels)
    2 norms              row_norms, magnitudes
    3 reports            Sink_k and averages over heads, on the host
    4 maps               A, cosine and norm product of q and k, for chosen heads
*/
#ifndef METRICS_CUH
#define METRICS_CUH
#include "reference.h"

enum { METRIC_K = 10 }; // alpha_k is kept for k = 1..10

// ----------------------------------------------------------------------------
// 1 one head on one sequence

// HEAD_METRICS: what is measured of a head besides alpha, a row each. A row makes the field of
// HeadMetrics, its sum and its mean, its place among CUDA's sums and its key in the log and --json;
// scripts/lib/runlog.py reads the rows. What a query adds to the sum is in HeadSums below (the CPU
// calls it too) and in attention_metrics_kernel (cuda/metrics.cuh).
//
//   over     QUERY_MEAN: over the queries; QUERY_SUM: as it is, of what only one query adds
//   heads    EVERY_HEAD, or GATED: 0 without a gate, and then not in the log
//
//    field       over        key in the log   heads       what it is
#define HEAD_METRICS(X) \
    X(mass,       QUERY_MEAN, "mass",          EVERY_HEAD, "the sum of a row over the text's own tokens") \
    X(entropy,    QUERY_MEAN, "entropy",       EVERY_HEAD, "how spread a row is") \
    X(effective,  QUERY_MEAN, "alpha1_gated",  GATED,      "alpha_1 of the gate times A") \
    X(gate,       QUERY_MEAN, "gate_mean",     GATED,      "the gate, its mean") \
    X(gate_low,   QUERY_MEAN, "gate_low",      GATED,      "the share of it below 0.1") \
    X(gate_first, QUERY_SUM,  "gate_first",    GATED,      "the gate at the first token")

enum MetricOver { QUERY_MEAN, QUERY_SUM };
enum MetricHeads { EVERY_HEAD, GATED };
enum HeadMetric {
    #define X(field, ...) METRIC_##field,
    HEAD_METRICS(X)
    #undef X
    HEAD_METRIC_COUNT
};

struct HeadMetrics {
    float alpha[METRIC_K + 1]; // [0] is the star, [k] token k
    float proxy[METRIC_K + 1];
    #define X(field, ...) float field;
    HEAD_METRICS(X)
    #undef X
};

// Tells whether a metric is a mean over the queries.
HD bool metric_is_mean(int metric) {
    #define X(field, over, ...) if (metric == METRIC_##field) { return over == QUERY_MEAN; }
    HEAD_METRICS(X)
    #undef X
    return false;
}

// do the rows of this map sum to 1 by construction? if not, Sink is computed from the proxy
template <class A> bool attn_sums_to_one(float alpha) { return A::Z == Z_SUM && alpha == 1.0f; }

namespace ref {
// the sums that HeadMetrics are made from; each query t adds a row of weights (T tokens, then the
// extra column). The star is the extra column, or the sink token: then skip is 1
struct HeadSums {
    double alpha[METRIC_K + 1] = {};
    double proxy[METRIC_K + 1] = {};
    #define X(field, ...) double field = 0;
    HEAD_METRICS(X)
    #undef X

    // the gate of query t, `width` numbers before their sigmoid; first: its weight on the first
    // token
    template <class R> void add_gate(const R* pre, int width, double first, bool is_first) {
        double mean = 0, low = 0;
        for (int i = 0; i < width; i++) {
            const double g = 1 / (1 + exp(-(double)pre[i]));
            mean += g / width;
            low += (g < 0.1) / (double)width;
        }
        effective += mean * first;
        gate += mean;
        gate_low += low;
        if (is_first) { gate_first = mean; }
    }

    // query t joins them by its row's weights of tokens 1.. (METRIC_K of them) and of the star, the
    // sum of all |w|, that of w over the tokens, and the row's entropy
    template <class W>
    void add_row(const W* token, double star, int t, int skip, double sum_abs, double sum,
                 double h) {
        const double inv = sum_abs > 0 ? 1 / sum_abs : 0;
        alpha[0] += star;
        proxy[0] += fabs(star) * inv;
        if (t < skip) { return; } // the sink token's own query is no real query
        const int i = t - skip + 1; // query i counts for tokens k <= i only, also with a prefix
        for (int k = 1; k <= std::min<int>(METRIC_K, i); k++) {
            alpha[k] += token[k - 1];
            proxy[k] += fabs(token[k - 1]) * inv;
        }
        mass += sum;
        entropy += h;
    }

    void add(const std::vector<double>& w, int t, int T, int skip) {
        double sum_abs = 0, sum = 0, plogp = 0;
        for (int j = 0; j <= T; j++) {
            sum_abs += fabs(w[j]);
            sum += j >= skip && j < T ? w[j] : 0;
        }
        for (int j = 0; j <= T; j++) {
            const double P = sum_abs > 0 ? fabs(w[j]) / sum_abs : 0;
            plogp += P > 0 ? P * log(P) : 0;
        }
        add_row(&w[skip], skip ? w[0] : w[T], t, skip, sum_abs, sum, -plogp);
    }

    // means over the queries of `tokens` tokens; own: what the star's own query row gives it, if
    // there is such a row
    HeadMetrics means(int tokens, bool has_star, int own) const {
        HeadMetrics o = {};
        if (has_star) {
            o.alpha[0] = (alpha[0] + own) / (tokens + 1);
            o.proxy[0] = (proxy[0] + own) / (tokens + 1);
        }
        for (int k = 1; k <= std::min<int>(METRIC_K, tokens); k++) {
            o.alpha[k] = alpha[k] / (tokens - k + 1);
            o.proxy[k] = proxy[k] / (tokens - k + 1);
        }
        #define X(field, over, ...) o.field = over == QUERY_MEAN ? field / tokens : field;
        HEAD_METRICS(X)
        #undef X
        return o;
    }
};

// out (B, NH) <- qkv, stat and star of the forward pass; skip = 1 if row 0 is a sink token. O(T)
// memory per thread
template <class A, class Bi, class Pe>
void attention_metrics(HeadMetrics* out, const real* qkv, const acc* stat,
                       StarColumn<const real> star, HeadGate<const real> gate, int skip,
                       AttnShape s) {
#pragma omp parallel for schedule(dynamic)
    for (int bh = 0; bh < s.B * s.NH; bh++) {
        const Head<A, Bi, Pe> head(qkv, star, bh / s.NH, bh % s.NH, s);
        HeadSums sums;
        std::vector<double> weight(s.T + 1);                             // one row
        for (int t = 0; t < s.T; t++) {
            const acc* st = stat + ((long)bh * s.T + t) * 2;
            for (int j = 0; j <= s.T; j++) {
                weight[j] = head.sees(t, j) ? attn_weight<A>(head.score(t, j), st[0], st[1]) : 0;
            }
            sums.add(weight, t, s.T, skip);
            const long row = (long)(bh / s.NH) * s.T + t;
            if (gate.values && t >= skip) {
                const real* values = gate.values + (row * s.NH + bh % s.NH) * gate.width;
                sums.add_gate(values, gate.width, weight[skip], t == skip);
            }
        }
        const bool column = Bi::column != NO_COLUMN; // its query row is one-hot on itself
        out[bh] = sums.means(s.T - skip, column || skip, column);
    }
}

// ----------------------------------------------------------------------------
// 2 norms: out (N, G) = l2 norm of x[n * stride + g * len .. + len]
inline void row_norms(acc* out, const real* x, int stride, int len, int G, int N) {
    #pragma omp parallel for
    for (int n = 0; n < N; n++) {
        for (int g = 0; g < G; g++) {
            const real* y = x + (long)n * stride + g * len;
            double sum = 0;
            for (int i = 0; i < len; i++) { sum += (double)y[i] * (double)y[i]; }
            out[(long)n * G + g] = sqrt(sum);
        }
    }
}

// out (B, 2) = the largest and the median |x| of rows skip.. of each sequence of x (B, T, C); of an
// even number of values the median is the larger of the two in the middle
inline void magnitudes(acc* out, const real* x, int skip, int B, int T, int C) {
    #pragma omp parallel for
    for (int b = 0; b < B; b++) {
        std::vector<real> a;
        for (long i = ((long)b * T + skip) * C; i < (long)(b + 1) * T * C; i++) {
            a.push_back(x[i] < 0 ? -x[i] : x[i]);
        }
        std::nth_element(a.begin(), a.begin() + a.size() / 2, a.end());
        out[b * 2] = *std::max_element(a.begin(), a.end());
        out[b * 2 + 1] = a[a.size() / 2];
    }
}
} // namespace ref

// ----------------------------------------------------------------------------
// 3 reports, on the host, from the heads of all probe sequences: heads (n, L, NH)

// the mean of x and its standard error, sqrt(sum (x - mean)^2 / (n - 1) / n); NAN of too few
struct Mean { double mean, error; };
inline Mean mean_of(const std::vector<double>& x) {
    double sum = 0, squares = 0;
    for (double one : x) { sum += one; }
    const double n = x.size(), mean = sum / n;
    for (double one : x) { squares += (one - mean) * (one - mean); }
    return { mean, n > 1 ? sqrt(squares / (n - 1) / n) : NAN };
}

struct NormPair { std::vector<double> first, rest; };                    // by layer
struct Metrics {
    int n = 0, T = 0, L = 0, NH = 0; // sequences, their length, layers with attention, heads
    std::vector<int> layers;         // which layers those are: L numbers
    bool sums_to_one = true, has_star = false, has_gate = false;
    double loss = 0; // mean over the probe sequences
    std::vector<HeadMetrics> heads;                                      // (n, L, NH)
    NormPair h, k, v, pre; // k, v: L rows; h: all layers + 1; pre: 2 of all layers, post-norm
    std::vector<double> h_star, h_max, h_median;                         // as h
    bool without_attention() const { return h.first.size() > layers.size() + 1; } // some layers
    const HeadMetrics& at(int i, int l, int h_) const {
        return heads[((size_t)i * L + l) * NH + h_];
    }
};
// Returns the largest entry of h after layer l - 1, over the median.
inline double spike_at(const Metrics& m, size_t l) { return m.h_max[l] / m.h_median[l]; }

// Returns the l at which that is most.
inline size_t spike_layer(const Metrics& m) {
    size_t most = 0;
    for (size_t l = 1; l < m.h_max.size(); l++) {
        if (spike_at(m, l) > spike_at(m, most)) { most = l; }
    }
    return most;
}

// Sink_k^eps; k = 0 is the star
inline double sink_rate(const std::vector<HeadMetrics>& heads, int k, double eps, bool proxy) {
    double hits = 0;
    for (auto& x : heads) { hits += (proxy ? x.proxy[k] : x.alpha[k]) > eps; }
    return heads.empty() ? NAN : hits / heads.size();
}
inline double sink_rate(const Metrics& m, int k, double eps, bool proxy) {
    return sink_rate(m.heads, k, eps, proxy);
}

// Sink_1^eps of what passes the gate
inline double gated_sink_rate(const Metrics& m, double eps) {
    double hits = 0;
    for (auto& x : m.heads) { hits += x.effective > eps; }
    return m.heads.empty() ? NAN : hits / m.heads.size();
}

// mean over sequences of one number of every head: (L, NH)
template <class Get> std::vector<double> head_means(const Metrics& m, Get get) {
    std::vector<double> out((size_t)m.L * m.NH);
    for (size_t i = 0; i < m.heads.size(); i++) {
        out[i % out.size()] += (double)get(m.heads[i]) / m.n;
    }
    return out;
}

// adds the norms of one batch, norms (B, T, G), to layer l: first real token against the mean of
// the others
template <class F>
void norms_add(NormPair* p, int l, const F* norms, int B, int T, int G, int skip, int n_total) {
    if ((int)p->first.size() <= l) { p->first.resize(l + 1); p->rest.resize(l + 1); }
    for (int b = 0; b < B; b++) {
        double first = 0, rest = 0;
        for (int t = skip; t < T; t++) {
            for (int g = 0; g < G; g++) {
                (t == skip ? first : rest) += norms[((size_t)b * T + t) * G + g] / G;
            }
        }
        p->first[l] += first / n_total;
        p->rest[l] += T - skip > 1 ? rest / (T - skip - 1) / n_total : NAN;
    }
}

// ----------------------------------------------------------------------------
// 4 maps of one head on one sequence: qkv (T, W), stat (NH, T, 2), in host memory

// q . k of query t and key j, -1 the extra one; also the squares of their lengths
struct QueryKey { double qk, qq, kk; };

template <class Bi, class R>
QueryKey query_key(const R* qkv, const R* star, int t, int j, int h, AttnShape s) {
    const int W = attn_row(s), g = h / (s.NH / s.KV);
    const R* q = qkv + (long)t * W + h * s.HS;
    const R* k_star = Bi::column == KEY_COLUMN ? star : NULL;
    const R* k = j >= 0 ? qkv + (long)j * W + (s.NH + g) * s.HS : k_star;
    QueryKey o = { 0, 0, 0 };
    for (int i = 0; i < s.HS; i++) {
        const double a = (float)q[i], b = k ? (double)(float)k[i] : 0.0;
        o.qk += a * b; o.qq += a * a; o.kk += b * b;
    }
    return o;
}

// A of query t and key j, whose dot product is qk; stat: of head h
template <class A, class Bi, class Pe, class R, class S>
double map_weight(double qk, const R* star, const S* stat, int t, int j, int h, AttnShape s) {
    const bool sees = j >= 0 ? attn_sees(s, t, j) : (bool)Bi::column;
    const float slope = pe_slope<Pe>(s, h);
    double score = qk * s.scale + (j >= 0 ? attn_bias<A, Pe, double>(s, t - j, slope) : 0.0);
    score = j < 0 && Bi::column == LOGIT_COLUMN ? (double)(float)star[0]
                                                : attn_capped<A>(score, (double)s.cap);
    return sees ? attn_weight<A, double>(score, stat[2 * t], stat[2 * t + 1]) : 0.0;
}

// map, cosine, product (T, T + 1), column 0 the extra key: A; cosine of q_t and k_j; product of
// their norms (Figure 2, bottom). What a query does not see is 0 in A only
template <class A, class Bi, class Pe, class R, class S>
void head_maps(float* map, float* cosine, float* product, const R* qkv, const S* stat,
               const R* kstar, int h, AttnShape s) {
    const R* star = attn_column<Bi>(kstar, s, h);
    for (int t = 0; t < s.T; t++) {
        for (int j = -1; j < s.T; j++) {
            const QueryKey x = query_key<Bi>(qkv, star, t, j, h, s);
            const long at = (long)t * (s.T + 1) + j + 1;
            map[at] = map_weight<A, Bi, Pe>(x.qk, star, stat + (long)h * s.T * 2, t, j, h, s);
            cosine[at] = x.qq > 0 && x.kk > 0 ? x.qk / sqrt(x.qq * x.kk) : 0.0;
            product[at] = sqrt(x.qq * x.kk);
        }
    }
}

// alpha_k, or the proxy where rows do not sum to 1, of any tokens k, as HeadMetrics has them of the
// first METRIC_K; skip = 1 if row 0 is a sink token
template <class A, class Bi, class Pe, class R, class S>
std::vector<double> head_alphas(const std::vector<int>& tokens, const R* qkv, const S* stat,
                                const R* kstar, int skip, int h, AttnShape s) {
    const bool sums_to_one = attn_sums_to_one<A>(s.alpha);
    const R* star = attn_column<Bi>(kstar, s, h);
    std::vector<double> alpha(tokens.size());
    for (int t = skip; t < s.T; t++) {
        auto weight = [&](int j) {
            const double qk = query_key<Bi>(qkv, star, t, j, h, s).qk;
            return map_weight<A, Bi, Pe>(qk, star, stat + (long)h * s.T * 2, t, j, h, s);
        };
        double all = sums_to_one;
        for (int j = -1; !sums_to_one && j < s.T; j++) { all += fabs(weight(j)); }
        for (size_t i = 0; i < tokens.size(); i++) {
            const int k = tokens[i], queries = s.T - skip - k + 1, j = k - 1 + skip;
            if (j <= t && all > 0) { alpha[i] += fabs(weight(j)) / all / queries; }
        }
    }
    return alpha;
}
#endif // METRICS_CUH
