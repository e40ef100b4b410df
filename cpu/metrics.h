/*
metrics.h -- the measurements of ../metrics.cuh on the fast CPU backend: attention by tiles, as its
forward pass, norms and medians without a copy.
*/
#ifndef CPU_METRICS_H
#define CPU_METRICS_H
#include "../metrics.cuh"
#include "attention.h"

namespace cpu {
// what one query's row of weights w adds up to: sum of |w|, of w over the tokens, of |w| ln |w|
struct RowSums {
    double magnitude = 0, tokens = 0, w_log_w = 0;

    void add_star(acc w) {
        magnitude += fabs(w);
        w_log_w += w != 0 ? fabs(w) * log(fabs(w)) : 0.0;
    }
};

// The scores x (BC) of one query become weights and join its sums. The exponential variants know ln
// w before w
template <class A> void row_weights(RowSums* sums, acc* x, acc stat0, acc stat1) {
    acc magnitude = 0, total = 0, w_log_w = 0;
    if constexpr (A::exp_family && A::Z != Z_ABS) {
        #pragma omp simd reduction(+ : total, w_log_w)
        for (int j = 0; j < BC; j++) {
            const acc log_w = max_(acc(-1000), (x[j] - stat0) - stat1), w = exp_(log_w);
            total += w;
            w_log_w += w * log_w;
            x[j] = w;
        }
        magnitude = total;
    } else {
        for (int j = 0; j < BC; j++) { x[j] = attn_weight<A>(x[j], stat0, stat1); }
        #pragma omp simd reduction(+ : magnitude, total, w_log_w)
        for (int j = 0; j < BC; j++) {
            const acc size = x[j] < 0 ? -x[j] : x[j];
            magnitude += size;
            total += x[j];
            w_log_w += size * log_(max_(size, acc(1e-37)));
        }
    }
    sums->magnitude += magnitude;
    sums->tokens += total;
    sums->w_log_w += w_log_w;
}

// one query's row: its sums, and the weights of columns 0.. and of the extra one
struct QueryRow {
    RowSums sums;
    acc first[METRIC_K + 1] = {}, star = 0;
};

// the extra column of query q
template <class A, class Bi>
void row_star(QueryRow* row, const real* q, const acc* st, const real* star, AttnShape s) {
    if (Bi::column == NO_COLUMN) { return; }
    row->star = attn_weight<A>(star_score<A, Bi>(q, star, s), st[0], st[1]);
    row->sums.add_star(row->star);
}

// the row of a query as the forward pass kept it; w = e^(s - m) e^-stat1
template <class A> void row_of(QueryRow* row, const KeptRow& from, const acc* st) {
    const double by = exp(-(double)st[1]), w_log_w = from.s_sum - (double)st[1] * from.sum;
    row->sums.tokens += by * from.sum;
    row->sums.magnitude += by * from.sum;
    row->sums.w_log_w += by * w_log_w;
    for (int j = 0; j <= METRIC_K; j++) {
        row->first[j] = attn_weight<A>(from.first[j], st[0], st[1]);
    }
}

// queries t0.. (M) of head h, whose sequence begins at x, from their scores
template <class A, class Pe, class K>
void rows_by_tiles(QueryRow* rows, Tiles<real>& tiles, const K& k, const real* x, const acc* st,
                   int t0, int M, int h, AttnShape s) {
    const int W = attn_row(s);
    acc* score = scratch(3, BR * BC);
    const auto q = tiles.rows(4, x + (long)t0 * W + h * s.HS, W, M, s.HS);
    each_tile(s, t0, t0 + M, [&](TileAt at) {
        tiles.product(score, BC, q, k.from(0, at.j0), M, at.j1 - at.j0, s.HS, false);
        tile_scores<A, Pe>(score, at, h, s);
        for (int r = 0; r < M; r++) {
            row_weights<A>(&rows[r].sums, score + r * BC, st[2 * r], st[2 * r + 1]);
            for (int j = at.j0; j <= std::min<int>(METRIC_K, at.j1 - 1); j++) {
                rows[r].first[j] = score[r * BC + j - at.j0];
            }
        }
    });
}

// out <- head h of sequence b: a thread's part of attention_metrics; from: its rows as they were
// kept, or NULL
template <class A, class Bi, class Pe>
HeadMetrics head_metrics(const KeptRow* from, const real* qkv, const acc* stat, const real* kstar,
                         const real* gate, int width, int skip, int b, int h, AttnShape s) {
    const int T = s.T, W = attn_row(s), key = s.NH + h / (s.NH / s.KV);
    const real *x = qkv + (long)b * T * W, *star = attn_column<Bi>(kstar, s, h);
    Tiles<real> tiles;
    const auto k = tiles.across(0, x + key * s.HS, W, from ? 0 : T, s.HS);
    ref::HeadSums head;
    for (int t0 = 0; t0 < T; t0 += BR) {
        const int M = std::min(T - t0, (int)BR);
        const acc* st = stat + ((long)(b * s.NH + h) * T + t0) * 2;
        QueryRow rows[BR];
        for (int r = 0; r < M; r++) {
            row_star<A, Bi>(rows + r, x + (long)(t0 + r) * W + h * s.HS, st + 2 * r, star, s);
            if (from) { row_of<A>(rows + r, from[t0 + r], st + 2 * r); }
        }
        if (!from) { rows_by_tiles<A, Pe>(rows, tiles, k, x, st, t0, M, h, s); }
        for (int r = 0; r < M; r++) {
            const long t = t0 + r, row = (long)b * T + t;
            const RowSums& sums = rows[r].sums;
            const acc* first = rows[r].first;
            const double all = sums.magnitude;
            const double entropy = all > 0 ? log(all) - sums.w_log_w / all : 0;
            const acc w_skipped = skip ? first[0] : acc(0), w_0 = skip ? w_skipped : rows[r].star;
            head.add_row(first + skip, w_0, t, skip, all, sums.tokens - w_skipped, entropy);
            if (!gate || t < skip) { continue; }
            head.add_gate(gate + (row * s.NH + h) * width, width, first[skip], t == skip);
        }
    }
    const bool column = Bi::column != NO_COLUMN;         // its query row is one-hot on itself
    return head.means(T - skip, column || skip, column);
}

// out (B, NH) <- qkv and stat of the forward pass, as ref::attention_metrics. O(T HS) a thread;
// O(T) after a forward pass that kept its rows
template <class A, class Bi, class Pe>
void attention_metrics(HeadMetrics* out, const real* qkv, const acc* stat, const real* kstar,
                       const real* gate, int width, int skip, AttnShape s) {
    const size_t all = (size_t)s.B * s.NH * s.T;
    const bool there = keeps_rows<A> && kept.of == stat && kept.rows.size() == all;
    #pragma omp parallel for schedule(dynamic)
    for (int bh = 0; bh < s.B * s.NH; bh++) {
        out[bh] = head_metrics<A, Bi, Pe>(there ? &kept.rows[(long)bh * s.T] : NULL, qkv, stat,
                                          kstar, gate, width, skip, bh / s.NH, bh % s.NH, s);
    }
    kept.of = NULL;                                      // the next layer's are others
}

// out (N, G) = l2 norm of x[n * stride + g * len .. + len]
inline void row_norms(acc* out, const real* x, int stride, int len, int G, int N) {
    #pragma omp parallel for
    for (int n = 0; n < N; n++) {
        for (int g = 0; g < G; g++) {
            const real* y = x + (long)n * stride + g * len;
            double sum = 0;
            #pragma omp simd reduction(+ : sum)
            for (int i = 0; i < len; i++) { sum += (double)y[i] * (double)y[i]; }
            out[(long)n * G + g] = sqrt(sum);
        }
    }
}

// The middle one of |x| (n), the larger of two: the upper half of the bits of a float puts it into
// one of 2^15 drawers, and only the drawer with the middle one in it is searched
inline acc middle_magnitude(const real* x, long n) {
    auto size = [](real v) { return v < 0 ? -acc(v) : acc(v); };
    auto drawer = [=](real v) { return bits_of_float((float)size(v)) >> 16; };
    std::vector<int> count(1 << 16);
    for (long i = 0; i < n; i++) { count[drawer(x[i])]++; }
    long before = 0;
    uint32_t middle = 0;
    while (before + count[middle] <= n / 2) { before += count[middle++]; }
    std::vector<acc> inside;
    for (long i = 0; i < n; i++) { if (drawer(x[i]) == middle) { inside.push_back(size(x[i])); } }
    std::nth_element(inside.begin(), inside.begin() + (n / 2 - before), inside.end());
    return inside[n / 2 - before];
}

// out (B, 2) = the largest and the median |x| of rows skip.. of each sequence of x (B, T, C)
inline void magnitudes(acc* out, const real* x, int skip, int B, int T, int C) {
    #pragma omp parallel for
    for (int b = 0; b < B; b++) {
        const real* y = x + ((long)b * T + skip) * C;
        const long n = (long)(T - skip) * C;
        acc most = 0;
        #pragma omp simd reduction(max : most)
        for (long i = 0; i < n; i++) { most = max_(most, y[i] < 0 ? -acc(y[i]) : acc(y[i])); }
        out[b * 2] = most;
        out[b * 2 + 1] = middle_magnitude(y, n);
    }
}
} // namespace cpu
#endif // CPU_METRICS_H
