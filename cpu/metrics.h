/*
metrics.h -- the measurements of ../metrics.cuh on the fast CPU backend: attention by tiles, as its
forward pass; norms and medians without a copy.
*/
#ifndef CPU_METRICS_H
#define CPU_METRICS_H
#include "../metrics.cuh"
#include "attention.h"

namespace cpu {
using ref::row_norms;

// ----------------------------------------------------------------------------
// 1 attention

// What one query's row of weights w adds up to.
struct RowSums {
    double magnitude = 0;           // of |w|
    double tokens = 0;              // of w over the tokens
    double w_log_w = 0;             // of |w| ln |w|
};

// Turns the scores x (BC) of one query into weights, and adds these to its sums. The exponential
// variants know ln w before w.
template <class A> void row_weights(RowSums* sums, acc* x, AttnStat<acc> st, float clip) {
    acc magnitude = 0;
    acc total = 0;
    acc w_log_w = 0;
    if constexpr (A::exp_family && A::Z != Z_ABS && A::clip == NO_CLIP) {
        #pragma omp simd reduction(+ : total, w_log_w)
        for (int j = 0; j < BC; j++) {
            const acc log_w = max_(acc(-1000), (x[j] - st.max_or_factor) - st.ln_Z_or_sum);
            const acc w = exp_(log_w);
            total += w;
            w_log_w += w * log_w;
            x[j] = w;
        }
        magnitude = total;
    } else {
        for (int j = 0; j < BC; j++) {
            x[j] = attn_weight<A>(x[j], st, clip);
        }
        #pragma omp simd reduction(+ : magnitude, total, w_log_w)
        for (int j = 0; j < BC; j++) {
            const acc size = abs_(x[j]);
            magnitude += size;
            total += x[j];
            w_log_w += size * log_(max_(size, acc(1e-37)));
        }
    }
    sums->magnitude += magnitude;
    sums->tokens += total;
    sums->w_log_w += w_log_w;
}

// One query's row: its sums, and the weights of columns 0.. and of the extra one.
struct QueryRow {
    RowSums sums;
    acc first[METRIC_K + 1] = {};
    acc extra = 0;
};

// One head of one sequence, as the metrics read it.
template <class A, class Bi, class Pe> struct HeadMeasured {
    Head<Bi, const real> x;
    const AttnStat<acc>* stat;      // (T)
    const real* gate;               // of token 0, or NULL; tokens are NH gate_width apart
    int gate_width;

    // Adds the extra key of query t.
    void row_extra(QueryRow* row, int t) const {
        if (Bi::extra == NO_EXTRA) { return; }
        const acc score = extra_score<A>(x, t);
        row->extra = attn_weight<A>(score, stat[t], x.s.clip);
        const acc size = fabs(row->extra);
        row->sums.magnitude += size;
        if (size != 0) { row->sums.w_log_w += size * log(size); }
    }

    // Makes the rows of queries t0 .. t0 + M from their scores. k: the keys, transposed
    void rows_by_tiles(QueryRow* rows, Tiles<real>& tiles, const Tiles<real>::Right& k, int t0,
                       int M) const {
        const AttnShape& s = x.s;
        const auto q = tiles.rows(Q_ROWS, x.q(t0), attn_row(s), M, s.HS);
        acc* score = scratch(SCORES, BR * BC);
        for (int j0 = 0; j0 < s.T; j0 += BC) {
            TileAt at;
            if (!tile_of(&at, s, t0, t0 + M, j0) || work_stopped()) { continue; }
            tile_scores<A, Pe>(score, tiles, q, k, at, x.h, s);
            const int first_end = std::min<int>(METRIC_K + 1, at.j1);
            for (int r = 0; r < M; r++) {
                acc* w = score + r * BC;
                row_weights<A>(&rows[r].sums, w, stat[t0 + r], s.clip);
                for (int j = j0; j < first_end; j++) {
                    rows[r].first[j] = w[j - j0];
                }
            }
        }
    }

    // Adds query t's row, and its gate, to the sums of the head.
    void add_query(ref::HeadSums* sums, const QueryRow& row, int t, int skip) const {
        const acc* first = row.first;
        const double all = row.sums.magnitude;
        double entropy = 0;
        if (all > 0) { entropy = log(all) - row.sums.w_log_w / all; }
        const acc w_skipped = skip ? first[0] : acc(0);
        const acc w_star = skip ? w_skipped : row.extra;
        sums->add_row(first + skip, w_star, t, skip, all, row.sums.tokens - w_skipped, entropy);
        if (!gate || t < skip) { return; }
        const long width = x.s.NH * gate_width;
        sums->add_gate(gate + t * width, gate_width, first[skip], t == skip);
    }

    // Measures the head: a thread's part of attention_metrics.
    HeadMetrics head_metrics(int skip) const {
        const AttnShape& s = x.s;
        Tiles<real> tiles;
        const auto k = tiles.across(K_ACROSS, x.k(0), attn_row(s), s.T, s.HS);
        ref::HeadSums sums;
        for (int t0 = 0; t0 < s.T; t0 += BR) {
            const int M = std::min(s.T - t0, (int)BR);
            QueryRow rows[BR];
            for (int r = 0; r < M; r++) { row_extra(&rows[r], t0 + r); }
            rows_by_tiles(rows, tiles, k, t0, M);
            for (int r = 0; r < M; r++) { add_query(&sums, rows[r], t0 + r, skip); }
        }
        const bool has_extra = Bi::extra != NO_EXTRA;  // its query row is one-hot on itself
        return sums.means(s.T - skip, has_extra || skip, has_extra);
    }
};

// Measures every head on every sequence, as ref::attention_metrics. O(T HS) memory a thread
template <class A, class Bi, class Pe>
void attention_metrics(HeadMetrics* out, const real* qkv, const acc* stat,
                       ExtraKey<const real> extra, HeadGate<const real> gate, int skip,
                       AttnShape s) {
    #pragma omp parallel for schedule(dynamic)
    for (int bh = 0; bh < s.B * s.NH; bh++) {
        const int b = bh / s.NH;
        const int h = bh % s.NH;
        const long gate_at = ((long)b * s.T * s.NH + h) * gate.width;
        const HeadMeasured<A, Bi, Pe> head = { { qkv, extra, b, h, s },
                                               stat_of(stat, b, 0, h, s),
                                               moved(gate.values, gate_at), gate.width };
        out[bh] = head.head_metrics(skip);
    }
}

// ----------------------------------------------------------------------------
// 2 the residual stream

inline acc magnitude(real v) { return abs_(acc(v)); }

// Returns the middle one of |x| (n), of two the larger. The upper half of a float's bits puts it
// into one of 2^15 buckets, and only the bucket of the middle one is searched.
inline acc middle_magnitude(const real* x, long n) {
    const auto bucket = [](real v) { return bits_of_float((float)magnitude(v)) >> 16; };
    std::vector<int> count(1 << 16);
    for (long i = 0; i < n; i++) { count[bucket(x[i])]++; }
    long before = 0;
    uint32_t middle = 0;
    while (before + count[middle] <= n / 2) {
        before += count[middle];
        middle++;
    }
    std::vector<acc> inside;
    for (long i = 0; i < n; i++) {
        if (bucket(x[i]) == middle) { inside.push_back(magnitude(x[i])); }
    }
    const long place = n / 2 - before;
    std::nth_element(inside.begin(), inside.begin() + place, inside.end());
    return inside[place];
}

// Computes the largest and the median |x| of rows skip.. of each sequence:
//      out (B, 2) <- x (B, T, C)
inline void magnitudes(acc* out, const real* x, int skip, int B, int T, int C) {
    #pragma omp parallel for
    for (int b = 0; b < B; b++) {
        const real* y = x + ((long)b * T + skip) * C;
        const long n = (long)(T - skip) * C;
        acc most = 0;
        #pragma omp simd reduction(max : most)
        for (long i = 0; i < n; i++) { most = max_(most, magnitude(y[i])); }
        out[b * 2] = most;
        out[b * 2 + 1] = middle_magnitude(y, n);
    }
}
} // namespace cpu
#endif // CPU_METRICS_H
