/*
metrics.cuh -- the metrics that this program exists for, defined once. Formulas: Gu et al. 2024,
section 3.2 and 7.4, and the official code where the text is silent; A is the attention map of one
head on one sequence, rows are queries, 1 <= k <= T.

    alpha_k     mean over queries i >= k of A_ik: the attention that token k gets from its queries
    Sink_k      mean over sequences, layers, heads of [alpha_k > eps]: threshold first, then
                average; eps 0.3, T 64
    proxy       the same for |w_ij| / sum_j |w_ij|: for operations whose rows do not sum to 1
    extra       the extra key or the sink token: the map is then (T+1) x (T+1), row and
                column 0 are its own; the query row of an extra key is one-hot on itself.
                One that no output depends on (extra_has_no_effect) does not count
    mass        mean over queries of sum_j A_ij over the tokens (the extra key left out)
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

// HEAD_METRICS: the metrics of a head besides alpha, one per row. A row generates the field of
// HeadMetrics, its sum and its mean, its place among CUDA's sums and its key in the log and --json;
// scripts/lib/runlog.py reads the rows. A query is added to the sums by HeadSums below, which the
// CPU backend calls as well, and in attention_metrics_kernel (cuda/metrics.cuh).
//
//   over     QUERY_MEAN: over the queries; SEEN_MEAN: over those that see token 1, for what is of
//            the attention to it; QUERY_SUM: the sum, where only one query adds
//   heads    EVERY_HEAD, or GATED: 0 without a gate, and then not in the log
//
//    field       over        key in the log   heads       what it is
#define HEAD_METRICS(X) \
    X(mass,       QUERY_MEAN, "mass",          EVERY_HEAD, "the sum of a row over the text's own tokens") \
    X(entropy,    QUERY_MEAN, "entropy",       EVERY_HEAD, "how spread out a row is") \
    X(effective,  SEEN_MEAN,  "alpha1_gated",  GATED,      "alpha_1 of the gate times A") \
    X(gate,       QUERY_MEAN, "gate_mean",     GATED,      "the gate, its mean") \
    X(gate_low,   QUERY_MEAN, "gate_low",      GATED,      "the share of it below 0.1") \
    X(gate_first, QUERY_SUM,  "gate_first",    GATED,      "the gate at the first token")

enum MetricOver { QUERY_MEAN, SEEN_MEAN, QUERY_SUM };
enum MetricHeads { EVERY_HEAD, GATED };
enum HeadMetric {
    #define X(field, ...) METRIC_##field,
    HEAD_METRICS(X)
    #undef X
    HEAD_METRIC_COUNT
};

template <class F> struct HeadNumbers {
    F alpha[METRIC_K + 1] = {}; // [0] is the extra key, [k] token k
    F proxy[METRIC_K + 1] = {};
    #define X(field, ...) F field = 0;
    HEAD_METRICS(X)
    #undef X
};
struct HeadMetrics : HeadNumbers<float> {};

// Tells whether the rows of the map sum to 1 by construction. If not, Sink is computed from the
// proxy.
template <class A> bool attn_sums_to_one(float alpha) {
    return A::Z == Z_SUM && A::clip == NO_CLIP && alpha == 1.0f;
}

namespace ref {
// The sums behind HeadMetrics. Each query t adds a row of weights: T tokens, then the extra key.
// Without an extra key, the sink token takes its place (skip is then 1).
struct HeadSums : HeadNumbers<double> {
    // Adds the gate of a query, `width` numbers before their sigmoid. first: the query's weight on
    // the first token; is_first: it is the query of the first token
    template <class R> void add_gate(const R* pre, int width, double first, bool is_first) {
        double mean = 0;
        double low = 0;
        for (int i = 0; i < width; i++) {
            const double g = 1 / (1 + exp(-(double)pre[i]));
            const double is_low = g < 0.1;
            mean += g / width;
            low += is_low / width;
        }
        effective += mean * first;
        gate += mean;
        gate_low += low;
        if (is_first) { gate_first = mean; }
    }

    // Adds query t by its row's weights of tokens 1.. (METRIC_K of them) and of the extra key,
    // the sum of all |w|, that of w over the tokens, and the row's entropy
    template <class W>
    void add_row(const W* token, double extra, int t, int skip, double sum_abs, double sum,
                 double h) {
        const double inv = sum_abs > 0 ? 1 / sum_abs : 0;
        alpha[0] += extra;
        proxy[0] += fabs(extra) * inv;
        if (t < skip) { return; } // the sink token's own query does not count
        const int i = t - skip + 1; // query i counts for tokens k <= i only, also with a prefix
        for (int k = 1; k <= std::min<int>(METRIC_K, i); k++) {
            const double w = token[k - 1];
            alpha[k] += w;
            proxy[k] += fabs(w) * inv;
        }
        mass += sum;
        entropy += h;
    }

    // Adds query t by all weights w (T + 1) of its row.
    void add(const std::vector<double>& w, int t, int T, int skip) {
        double sum_abs = 0;
        double sum = 0;
        for (int j = 0; j <= T; j++) {
            sum_abs += fabs(w[j]);
            if (j >= skip && j < T) { sum += w[j]; }
        }

        double p_log_p = 0;
        for (int j = 0; j <= T && sum_abs > 0; j++) {
            const double P = fabs(w[j]) / sum_abs;
            if (P > 0) { p_log_p += P * log(P); }
        }
        const double extra = skip ? w[0] : w[T];
        add_row(&w[skip], extra, t, skip, sum_abs, sum, -p_log_p);
    }

    // Returns means over the queries of `tokens` tokens. own: what the extra key's own query
    // row gives it, if there is such a row
    HeadMetrics means(int tokens, bool has_extra, int own) const {
        HeadMetrics o;
        if (has_extra) {
            const double queries = tokens + 1;
            o.alpha[0] = (alpha[0] + own) / queries;
            o.proxy[0] = (proxy[0] + own) / queries;
        }
        for (int k = 1; k <= std::min<int>(METRIC_K, tokens); k++) {
            const double queries = tokens - k + 1;
            o.alpha[k] = alpha[k] / queries;
            o.proxy[k] = proxy[k] / queries;
        }
        #define X(field, over, ...) o.field = over == QUERY_SUM ? field : field / tokens;
        HEAD_METRICS(X)
        #undef X
        return o;
    }
};

// Measures every head on every sequence: out (B, NH) <- qkv, stat and extra of the forward pass;
// skip = 1 if row 0 is a sink token. O(T) memory per thread
template <class A, class Bi, class Pe>
void attention_metrics(HeadMetrics* out, const real* qkv, const acc* stat,
                       ExtraKey<const real> extra, HeadGate<const real> gate, int skip,
                       AttnShape s) {
#pragma omp parallel for schedule(dynamic)
    for (int bh = 0; bh < s.B * s.NH; bh++) {
        const int b = bh / s.NH;
        const int h = bh % s.NH;
        const Head<Bi, const real> head(qkv, extra, b, h, s);
        HeadSums sums;
        for (int t = 0; t < s.T; t++) {
            const AttnStat<acc> st = *stat_of(stat, b, t, h, s);
            std::vector<double> weight(s.T + 1);
            for (int j = 0; j <= s.T; j++) {
                if (!head.sees(t, j)) { continue; }
                weight[j] = attn_weight<A>(score<A, Pe>(head, t, j), st, s.clip);
            }
            sums.add(weight, t, s.T, skip);
            if (gate.values && t >= skip) {
                const real* values = gate.values + head_at(b, t, h, s) / s.HS * gate.width;
                sums.add_gate(values, gate.width, weight[skip], t == skip);
            }
        }
        const bool has_extra = Bi::extra != NO_EXTRA;   // its query row is one-hot on itself
        out[bh] = sums.means(s.T - skip, has_extra || skip, has_extra);
    }
}

// ----------------------------------------------------------------------------
// 2 norms

// Computes l2 norms:  out (N, G) <- x[n * stride + g * len .. + len]
template <class R> void row_norms(acc* out, const R* x, int stride, int len, int G, int N) {
    #pragma omp parallel for
    for (int n = 0; n < N; n++) {
        for (int g = 0; g < G; g++) {
            const R* y = row_of(x, n, stride) + g * len;
            double sum = 0;
            #pragma omp simd reduction(+ : sum)
            for (int i = 0; i < len; i++) { sum += (double)y[i] * (double)y[i]; }
            row_of(out, n, G)[g] = sqrt(sum);
        }
    }
}

// Computes the largest and the median |x| of rows skip.. of each sequence:  out (B, 2) <- x (B, T,
// C). Of an even number of values the median is the larger of the two in the middle.
inline void magnitudes(acc* out, const real* x, int skip, int B, int T, int C) {
    #pragma omp parallel for
    for (int b = 0; b < B; b++) {
        const real* begin = row_of(x, (long)b * T + skip, C);
        const real* end = row_of(x, (long)(b + 1) * T, C);
        std::vector<real> a(begin, end);
        for (real& v : a) { v = std::abs(v); }
        std::nth_element(a.begin(), a.begin() + a.size() / 2, a.end());
        out[b * 2] = *std::max_element(a.begin(), a.end());
        out[b * 2 + 1] = a[a.size() / 2];
    }
}
} // namespace ref

// ----------------------------------------------------------------------------
// 3 reports, on the host, from the heads of all probe sequences: heads (n, L, NH)

// A mean and its standard error, sqrt(sum (x - mean)^2 / (n - 1) / n).
struct Mean {
    double mean;
    double error;
};

// Returns the mean of x; the error is NAN for fewer than two numbers.
inline Mean mean_of(const std::vector<double>& x) {
    const double n = x.size();
    double sum = 0;
    for (double one : x) { sum += one; }
    const double mean = sum / n;
    if (n < 2) { return { mean, NAN }; }

    double squares = 0;
    for (double one : x) { squares += (one - mean) * (one - mean); }
    return { mean, sqrt(squares / (n - 1) / n) };
}

// Norms by layer: of the first token, and the mean of the others.
struct NormPair {
    std::vector<double> first;
    std::vector<double> rest;
};

// All metrics of a model on n sequences.
// Sink_k at one threshold.
struct Sinks {
    double eps;
    std::vector<double> raw, proxy;              // of the first METRIC_K tokens, at most T
    std::vector<double> raw_error, proxy_error;
    double first;                                // of token 1, the proxy if rows do not sum to 1
    double star;                                 // of the extra key likewise, NAN if there is none
    double effective;                            // of token 1 behind the gate, NAN without one
};

struct Metrics {
    int n = 0;
    int T = 0;                       // length of the sequences
    int L = 0;                       // layers with attention
    int NH = 0;
    std::vector<int> layers;         // which layers have attention, (L)
    bool sums_to_one = true;
    bool has_extra = false;
    bool has_gate = false;
    double loss = 0;                 // mean over the probe sequences
    std::vector<HeadMetrics> heads;  // (n, L, NH)
    NormPair h;                      // of all layers, and of the embedding
    NormPair k;                      // (L)
    NormPair v;                      // (L)
    NormPair pre;                    // of both branches of all layers; NORM=post only
    std::vector<double> h_star;      // as h, if there is a sink token
    std::vector<double> h_max;       // as h
    std::vector<double> h_median;    // as h
    std::vector<Sinks> sinks;        // of each threshold

    // Tells whether some layers have no attention.
    bool without_attention() const { return h.first.size() > layers.size() + 1; }

    const HeadMetrics& at(int i, int l, int head) const {
        const size_t layer = (size_t)i * L + l;
        return heads[layer * NH + head];
    }
};

// Returns the largest entry of h after layer l - 1, over the median.
inline double spike_at(const Metrics& m, size_t l) { return m.h_max[l] / m.h_median[l]; }

// Returns the l with the largest spike.
inline size_t spike_layer(const Metrics& m) {
    size_t most = 0;
    for (size_t l = 1; l < m.h_max.size(); l++) {
        if (spike_at(m, l) > spike_at(m, most)) { most = l; }
    }
    return most;
}

// Returns the share of heads for which get(head) is above eps, NAN if there are none.
template <class Get>
double share_above(const std::vector<HeadMetrics>& heads, double eps, Get get) {
    if (heads.empty()) { return NAN; }
    double hits = 0;
    for (auto& head : heads) { hits += get(head) > eps; }
    return hits / heads.size();
}

// Returns Sink_k^eps; k = 0 is the extra key.
inline double sink_rate(const std::vector<HeadMetrics>& heads, int k, double eps, bool proxy) {
    return share_above(heads, eps, [=](auto& head) {
        return (proxy ? head.proxy : head.alpha)[k];
    });
}

// Returns the standard error of Sink_k^eps over the sequences, of whose rates it is the mean. A
// bootstrap of the sequences gives the same, with noise of its own.
inline double sink_error(const Metrics& m, int k, double eps, bool proxy) {
    std::vector<double> rates;
    const size_t heads = (size_t)m.L * m.NH;
    for (int i = 0; i < m.n; i++) {
        const auto first = m.heads.begin() + i * heads;
        rates.push_back(sink_rate({ first, first + heads }, k, eps, proxy));
    }
    return mean_of(rates).error;
}

// Returns Sink_1^eps of the gated attention.
inline double gated_sink_rate(const Metrics& m, double eps) {
    return share_above(m.heads, eps, [](auto& head) { return head.effective; });
}

// Fills r->sinks from its heads.
inline void fill_sinks(Metrics* r, const std::vector<double>& thresholds) {
    const bool is_proxy = !r->sums_to_one;
    r->sinks.clear();
    for (double eps : thresholds) {
        Sinks s = { eps, {}, {}, {}, {}, 0, NAN, NAN };
        for (int k = 1; k <= std::min<int>(METRIC_K, r->T); k++) {
            s.raw.push_back(sink_rate(r->heads, k, eps, false));
            s.proxy.push_back(sink_rate(r->heads, k, eps, true));
            s.raw_error.push_back(sink_error(*r, k, eps, false));
            s.proxy_error.push_back(sink_error(*r, k, eps, true));
        }
        s.first = is_proxy ? s.proxy[0] : s.raw[0];
        if (r->has_extra) { s.star = sink_rate(r->heads, 0, eps, is_proxy); }
        if (r->has_gate) { s.effective = gated_sink_rate(*r, eps); }
        r->sinks.push_back(s);
    }
}

// Returns the mean over sequences of one number of every head, (L, NH).
template <class Get> std::vector<double> head_means(const Metrics& m, Get get) {
    std::vector<double> out((size_t)m.L * m.NH);
    for (size_t i = 0; i < m.heads.size(); i++) {
        const double x = get(m.heads[i]);
        out[i % out.size()] += x / m.n;
    }
    return out;
}

// Returns the standard error of each of those means, (L, NH).
template <class Get> std::vector<double> head_errors(const Metrics& m, Get get) {
    std::vector<double> out;
    const size_t heads = (size_t)m.L * m.NH;
    for (size_t head = 0; head < heads; head++) {
        std::vector<double> x;
        for (size_t i = head; i < m.heads.size(); i += heads) { x.push_back(get(m.heads[i])); }
        out.push_back(mean_of(x).error);
    }
    return out;
}

// Adds the norms of one batch, norms (B, T, G), to layer l: the first real token's, and the mean of
// the others'.
template <class F>
void norms_add(NormPair* p, int l, const F* norms, int B, int T, int G, int skip, int n_total) {
    if ((int)p->first.size() <= l) {
        p->first.resize(l + 1);
        p->rest.resize(l + 1);
    }
    for (int b = 0; b < B; b++) {
        double first = 0;
        double rest = 0;
        for (int t = skip; t < T; t++) {
            const F* of_token = norms + ((size_t)b * T + t) * G;
            double& sum = t == skip ? first : rest;
            for (int g = 0; g < G; g++) { sum += of_token[g] / G; }
        }
        const int others = T - skip - 1;
        p->first[l] += first / n_total;
        p->rest[l] += others > 0 ? rest / others / n_total : NAN;
    }
}
#endif // METRICS_CUH
