/*
attention.h -- attention of the fast CPU backend: one forward and one backward for every variant, by
tiles, O(T) memory.

A task is one key/value head of one sequence, or 512 queries of it. It walks tiles of BR queries x
BC keys; a tile's scores live in a BR x BC buffer and are gone when the next tile starts: memory is
O(T HS) a thread. What the metrics of a measured layer need of them is kept (Kept).
*/
#ifndef CPU_ATTENTION_H
#define CPU_ATTENTION_H
#include "../metrics.cuh"
#include "attention_tiles.h"

namespace cpu {
// ----------------------------------------------------------------------------
// tiles of scores

// queries t0..t1 and keys j0..j1; full: every query sees every key, and there are BC of these
struct TileAt { int t0, t1, j0, j1; bool full; };

// the tile of queries t0..t1 and keys j0..; false if they see none of these
inline bool tile_of(TileAt* at, AttnShape s, int t0, int t1, int j0) {
    const int j1 = std::min(std::min(s.T, std::max(t1, s.prefix)), j0 + BC);
    *at = { t0, t1, j0, j1, j1 - j0 == BC && attn_tile_full(s, t0, t1, j0, j1) };
    return j0 < j1 && !attn_tile_empty(s, t0, t1, j0, j1);
}

// f(TileAt) for the tiles of keys that queries t0..t1 see
template <class F> void each_tile(AttnShape s, int t0, int t1, F f) {
    TileAt at;
    for (int j0 = 0; j0 < s.T; j0 += BC) {
        if (tile_of(&at, s, t0, t1, j0)) { f(at); }
    }
}

// score (BR, BC) <- q . k, scaled, biased and masked. Always whole rows of BC, so that loops over
// them have a length that is known: where there is no key, none is seen
template <class A, class Pe>
inline void tile_scores(acc* score, TileAt at, int h, AttnShape s) {
    const acc scale = s.scale, cap = s.cap;
    for (int t = at.t0; t < at.t1; t++, score += BC) {
        for (int j = 0; j < BC; j++) {
            score[j] *= scale;
            if (Pe::score_bias || !A::exp_family) {
                score[j] += attn_bias<A, Pe, acc>(s, t - (at.j0 + j), h);
            }
            score[j] = attn_capped<A>(score[j], cap);
        }
        if (at.full) { continue; }
        for (int j = 0; j < BC; j++) {
            const bool seen = attn_sees(s, t, at.j0 + j) & (at.j0 + j < at.j1);
            score[j] = seen ? score[j] : attn_masked<A, acc>();
        }
    }
}

template <class X, class Y> acc dot(const X* a, const Y* b, int n) {
    acc sum = 0;
    #pragma omp simd reduction(+ : sum)
    for (int i = 0; i < n; i++) { sum += acc(a[i]) * acc(b[i]); }
    return sum;
}

// the score of the extra column for query q; star: z of its head or, of its key/value head, k* or
// NULL
template <class A, class Bi, class Q, class R>
acc star_score(const Q* q, const R* star, AttnShape s) {
    if (Bi::column == LOGIT_COLUMN) { return star[0]; }
    return star ? attn_capped<A>(dot(q, star, s.HS) * acc(s.scale), acc(s.cap)) : acc(0);
}

// What a forward pass keeps of a row (b, h, t) for the metrics of the same layer, if they are
// wanted: over its tokens the sum of e^(s - m) and that of (s - m) e^(s - m), m the largest score,
// and the scores of the first tokens. That is all they need where a weight is e^(s - stat0 - stat1)
struct KeptRow { acc sum, s_sum, first[METRIC_K + 1]; };

struct Kept {
    bool wanted = false;
    const acc* of = NULL;               // stat of the forward pass that they are from
    std::vector<KeptRow> rows;          // (B, NH, T)
};
inline Kept kept;

// metrics of every layer will follow, or no longer
inline void keep_rows_for_metrics(bool wanted) { kept = { wanted, NULL, {} }; }

template <class A> constexpr bool keeps_rows = A::exp_family && A::Z != Z_ABS;

// a tile's scores w (BC) become weights, as by attn_term, and join what is kept of their row; `top`
// is the largest score from now on, m before
inline void keep_scores(KeptRow* row, acc* w, acc m, acc top) {
    const acc least = -1000, fall = max_(least, m - top), shrink = exp_(fall);
    acc sum = 0, s_sum = 0;
    #pragma omp simd reduction(+ : sum, s_sum)
    for (int j = 0; j < BC; j++) {
        const acc below = max_(least, w[j] - top), term = exp_(below);
        sum += term;
        s_sum += term * below;
        w[j] = term;
    }
    row->s_sum = shrink * (row->s_sum + fall * row->sum) + s_sum;
    row->sum = shrink * row->sum + sum;
}

// one query of a forward tile: its scores w (BC) become weights, and what was summed before,
// o (HP), shrinks to what it is beside them; row: where it is kept, or NULL
template <class A>
void row_forward(acc* w, acc* o, acc* m, acc* l, acc p, int HP, KeptRow* row) {
    const acc before = *m;
    // the mass of a weight e^x under a p-norm is e^(px): no logarithm
    constexpr bool by_exp = A::exp_family && A::Z == Z_PNORM;
    acc sum = 0, top = before;
    if (A::exp_family) {
        #pragma omp simd reduction(max : top)
        for (int j = 0; j < BC; j++) { top = max_(top, w[j]); }
        if (top == acc(-INFINITY)) {
            for (int j = 0; j < BC; j++) { w[j] = 0; }
            return;
        }
        const acc shrink = exp_(before - top);
        *l *= by_exp ? exp_(p * (before - top)) : attn_mass<A>(shrink, p);
        *m = top;
        for (int i = 0; i < HP; i++) { o[i] *= shrink; }
    }
    #pragma omp simd reduction(+ : sum)
    for (int j = 0; j < (by_exp ? BC : 0); j++) { sum += exp_(p * (w[j] - top)); }
    if (keeps_rows<A> && row) {
        keep_scores(row, w, before, top);
    } else {
        for (int j = 0; j < BC; j++) { w[j] = attn_term<A>(w[j], top); }
    }
    #pragma omp simd reduction(+ : sum)
    for (int j = 0; j < (by_exp ? 0 : BC); j++) { sum += attn_mass<A>(w[j], p); }
    *l += sum;
    for (int j = 0; A::Z == Z_ABS && j < BC; j++) { w[j] = attn_share<A>(w[j]); }
}

// the extra column is the state that the loop over tiles starts from: o (HP), m, l of one query
template <class A, class Bi>
void star_forward(acc* o, acc* m, acc* l, const real* q, const real* star, const real* vs, int HP,
                  AttnShape s) {
    *m = attn_least<A, acc>();
    *l = 0;
    for (int i = 0; i < HP; i++) { o[i] = 0; }
    if (Bi::column == NO_COLUMN) { return; }
    const acc s_star = star_score<A, Bi>(q, star, s);
    if (s_star == acc(-INFINITY)) { return; }
    *m = max_(*m, s_star);
    const acc w_star = attn_term<A>(s_star, *m);
    *l = attn_mass<A>(w_star, acc(s.p));
    for (int i = 0; vs && i < s.HS; i++) { o[i] = attn_share<A>(w_star) * vs[i]; }
}

// the factors of a thread: keys turned over and values of one key/value head
template <class R> struct HeadFactors {
    Tiles<R> tiles;
    typename Tiles<R>::Right k, v;

    HeadFactors(const R* k_0, const R* v_0, int keys, AttnShape s)
        : tiles(product_settings.split_floats && split_here() && s.HS >= 32),
          k(tiles.across(0, k_0, attn_row(s), keys, s.HS)),
          v(tiles.along(1, v_0, attn_row(s), keys, s.HS)) {}
};

// out (M, HS), rows NH HS apart, stat (M, 2) <- queries t0.. of head h, whose sequence begins at x;
// rows: where they are kept, or NULL
template <class A, class Bi, class Pe>
void queries_forward(real* out, acc* stat, KeptRow* rows, HeadFactors<real>& f, const real* x,
                     const real* star, const real* vs, int t0, int M, int h, AttnShape s) {
    const int HS = s.HS, W = attn_row(s), HP = padded(HS);
    const acc p = s.p;
    acc *o = scratch(2, BR * HP), *score = scratch(3, BR * BC), m[BR], l[BR];
    const real* q_0 = x + (long)t0 * W + h * HS;
    const auto q = f.tiles.rows(4, q_0, W, M, HS);
    for (int r = 0; r < M; r++) {
        star_forward<A, Bi>(o + r * HP, m + r, l + r, q_0 + (long)r * W, star, vs, HP, s);
        for (int j = 0; rows && j <= METRIC_K; j++) { rows[r].first[j] = -INFINITY; }
        if (rows) { rows[r].sum = rows[r].s_sum = 0; }
    }
    each_tile(s, t0, t0 + M, [&](TileAt at) {
        const int N = at.j1 - at.j0;
        f.tiles.product(score, BC, q, f.k.from(0, at.j0), M, N, HS, false);
        tile_scores<A, Pe>(score, at, h, s);
        for (int r = 0; r < M; r++) {
            acc* score_r = score + r * BC;
            for (int j = at.j0; rows && j <= std::min<int>(METRIC_K, at.j1 - 1); j++) {
                rows[r].first[j] = score_r[j - at.j0];
            }
            row_forward<A>(score_r, o + r * HP, m + r, l + r, p, HP, rows ? rows + r : NULL);
        }
        const auto w = f.tiles.weights_left(6, f.tiles.weights(5, score, M), M);
        f.tiles.product(o, HP, w, f.v.from(at.j0, 0), M, HS, N, true);
    });
    for (int r = 0; r < M; r++) {
        acc st[2];
        const acc factor = attn_stat<A>(st, m[r], l[r], p, attn_alpha<A, acc>(s));
        memcpy(stat + r * 2, st, sizeof st);
        real* out_t = out + (long)r * s.NH * HS;
        for (int i = 0; i < HS; i++) { out_t[i] = o[r * HP + i] * factor; }
    }
}

// out (B, T, NH HS), stat (B, NH, T, 2) <- qkv (B, T, (NH + 2 KV) HS), kstar, vstar (KV or 1, HS)
// or NULL for zero; BIAS=logit: kstar is z (NH or 1)
template <class A, class Bi, class Pe>
void attention_forward(real* out, acc* stat, const real* qkv, const real* kstar, const real* vstar,
                       AttnShape s) {
    const int T = s.T, HS = s.HS, W = attn_row(s), G = s.NH / s.KV;
    const int some = 512, parts = div_up(T, some), heads = s.B * s.KV;  // queries of a task
    const bool keep = kept.wanted && keeps_rows<A>;
    if (keep) {
        kept.of = stat;
        kept.rows.resize((long)s.B * s.NH * T);
    }
    #pragma omp parallel for schedule(dynamic)
    for (int i = 0; i < heads * parts; i++) {               // the longest tasks first
        const int b = i % heads / s.KV, g = i % s.KV, end = std::min(T, (parts - i / heads) * some);
        // this sequence, this value head, the keys that its queries see
        const real *x = qkv + (long)b * T * W, *vs = attn_star(vstar, s, g);
        HeadFactors<real> f(x + (s.NH + g) * HS, x + (s.NH + s.KV + g) * HS,
                            std::min(T, std::max(end, s.prefix)), s);
        for (int h = g * G; h < (g + 1) * G; h++) {
            const real* star = attn_column<Bi>(kstar, s, h);
            for (int t0 = (end - 1) / some * some; t0 < end; t0 += BR) {
                const long row = (long)(b * s.NH + h) * T + t0;
                queries_forward<A, Bi, Pe>(out + ((long)b * T + t0) * s.NH * HS + h * HS,
                                           stat + row * 2, keep ? &kept.rows[row] : NULL, f, x,
                                           star, vs, t0, std::min((int)BR, end - t0), h, s);
            }
        }
    }
}

// Generation: one query q (NH HS) at position t and the keys and values kv (t + 1, 2 KV HS) of
// positions 0..t -> out (NH HS). The same as row t of attention_forward, with all scores of the row
// at hand. R: where host code can read
template <class A, class Bi, class Pe, class R>
void attention_row(R* out, const R* q, const R* kv, const R* kstar, const R* vstar, int t,
                   AttnShape s) {
    // column t + 1 is the extra one of BIAS
    const int HS = s.HS, row = 2 * s.KV * HS, extra = t + 1;
    const acc p = s.p, scale = s.scale, cap = s.cap;
    auto sees = [=](int j) { return j < extra ? attn_sees(s, t, j) : Bi::column != NO_COLUMN; };
    #pragma omp parallel for if ((long)t * s.NH * HS > 1 << 16)
    for (int h = 0; h < s.NH; h++) {
        const int g = h / (s.NH / s.KV);
        const R *q_h = q + h * HS, *k = kv + g * HS, *v = k + s.KV * HS;
        const R *star = attn_column<Bi>(kstar, s, h), *v_star = attn_star(vstar, s, g);
        acc *score = scratch(0, extra + 1), *o = scratch(1, HS), stat[2], sum = 0,
            m = attn_least<A, acc>();
        for (int j = 0; j <= extra; j++) {
            if (!sees(j)) { continue; }
            if (j < extra) {
                const acc bias = attn_bias<A, Pe, acc>(s, t - j, h);
                score[j] = attn_capped<A>(dot(q_h, k + (long)j * row, HS) * scale + bias, cap);
            } else {
                score[j] = star_score<A, Bi>(q_h, star, s);
            }
            m = max_(m, score[j]);
        }
        for (int i = 0; i < HS; i++) { o[i] = 0; }
        for (int j = 0; j <= extra; j++) {
            if (!sees(j)) { continue; }
            const acc w = attn_term<A>(score[j], m), share = attn_share<A>(w);
            const R* v_j = j < extra ? v + (long)j * row : v_star;
            sum += attn_mass<A>(w, p);
            for (int i = 0; v_j && i < HS; i++) { o[i] += share * acc(v_j[i]); }
        }
        const acc factor = attn_stat<A>(stat, m, sum, p, attn_alpha<A, acc>(s));
        for (int i = 0; i < HS; i++) { out[h * HS + i] = R(o[i] * factor); }
    }
}

// the extra column of one query: dq_t, dk* (or dz), dv* += ; star or vs NULL for zero
template <class A, class Bi>
inline void star_backward(acc* dq_t, acc* dstar, acc* dvs, const real* do_t, const real* q_t,
                          const acc* st_t, const real* star, const real* vs, acc delta,
                          AttnShape s) {
    const acc s_star = star_score<A, Bi>(q_t, star, s), dw_star = vs ? dot(do_t, vs, s.HS) : acc(0);
    const acc w_star = attn_weight<A>(s_star, st_t[0], st_t[1]);
    const acc ds = attn_ds<A>(s_star, w_star, dw_star, st_t[0], st_t[1], delta, acc(s.p),
                              attn_alpha<A, acc>(s));
    const acc ds_star = ds * attn_slope<A>(s_star, acc(s.cap)) * acc(s.scale);
    for (int i = 0; i < s.HS; i++) { dvs[i] += w_star * do_t[i]; }
    if (Bi::column == LOGIT_COLUMN) { *dstar += ds; return; }
    for (int i = 0; i < s.HS; i++) {
        if (star) { dq_t[i] += ds_star * star[i]; }
        dstar[i] += ds_star * q_t[i];
    }
}

// the tile's scores become weights, and ds, which holds do . v_j, becomes ds_j scale;
// both (BR, BC). stat and delta are of query at.t0
template <class A>
void tile_backward(acc* weight, acc* ds, TileAt at, const acc* stat, const acc* delta,
                   AttnShape s) {
    const acc p = s.p, alpha = attn_alpha<A, acc>(s), scale = s.scale, cap = s.cap;
    for (int r = 0; r < at.t1 - at.t0; r++) {
        acc *w = weight + r * BC, *d = ds + r * BC;
        const acc st0 = stat[r * 2], st1 = stat[r * 2 + 1], dl = delta[r];
        for (int j = at.j1 - at.j0; j < BC; j++) { d[j] = 0; }
        for (int j = 0; j < BC; j++) {
            const acc s_j = w[j];
            w[j] = attn_weight<A>(s_j, st0, st1);
            d[j] = attn_ds<A>(s_j, w[j], d[j], st0, st1, dl, p, alpha) * attn_slope<A>(s_j, cap)
                 * scale;
        }
        for (int j = 0; A::is_signed && !at.full && j < BC; j++) {
            const bool seen = attn_sees(s, at.t0 + r, at.j0 + j) & (at.j0 + j < at.j1);
            d[j] = seen ? d[j] : acc(0);
        }
    }
}

enum { MOST_QUERIES = 512 };        // of backward at a time

// what one key/value head of a sequence adds to the gradients of the extra column
struct StarGradients { acc *key, *value, *logit; };     // dk* (HS), dv* (HS); dz of its query heads

// what a thread needs for one query head of attention's backward: x, dx (T, W) are the rows of qkv
// and dqkv of its sequence, dk, dv (HS, TP) are turned over
template <class R> struct HeadBackward {
    typedef typename Tiles<R>::Right Right;
    Tiles<R>& tiles;
    const R *dout, *out;
    const acc* stat;
    const R* x;
    R* dx;
    acc *dk, *dv;
    Right k, k_across, v;
    const R *star, *vs;
    StarGradients star_g;
    int h;
    AttnShape s;
};

// n queries from q0 on, of one head: dk, dv += ; dq is written. The weights of all of them for one
// tile of keys are gathered before they are multiplied with do and q: those sums are long then, and
// take little time to begin and to end
template <class A, class Bi, class Pe>
void queries_backward(HeadBackward<real>& b, int q0, int n) {
    const AttnShape& s = b.s;
    const int T = s.T, HS = s.HS, W = attn_row(s), HP = padded(HS), TP = padded_keys(T);
    const long O = (long)s.NH * HS;
    const real *q_0 = b.x + (long)q0 * W + b.h * HS, *do_0 = b.dout + q0 * O + b.h * HS;
    Tiles<real>& tiles = b.tiles;
    const auto q = tiles.rows(6, q_0, W, n, HS), q_cols = tiles.columns(7, q_0, W, n, HS);
    const auto d_o = tiles.rows(8, do_0, O, n, HS), do_cols = tiles.columns(9, do_0, O, n, HS);
    const auto all_w = tiles.tall(12, n), all_d = tiles.tall(15, n);
    acc *dq = scratch(3, (long)n * HP), *weight = scratch(4, BR * BC), *ds = scratch(5, BR * BC);
    acc delta[MOST_QUERIES];
    for (int r = 0; r < n; r++) {
        const real *do_t = do_0 + r * O, *q_t = q_0 + (long)r * W;
        const acc* st = b.stat + (long)(q0 + r) * 2;
        acc *dq_t = dq + (long)r * HP;
        acc *d_star = Bi::column == LOGIT_COLUMN ? b.star_g.logit : b.star_g.key;
        delta[r] = attn_delta<A>(dot(do_t, b.out + (q0 + r) * O + b.h * HS, HS), st[1],
                                 attn_alpha<A, acc>(s));
        for (int i = 0; i < HP; i++) { dq_t[i] = 0; }
        if (Bi::column) {
            star_backward<A, Bi>(dq_t, d_star, b.star_g.value, do_t, q_t, st, b.star, b.vs,
                                 delta[r], s);
        }
    }
    for (int j0 = 0; j0 < T; j0 += BC) {
        int seen = 0;                   // queries whose weights were gathered, up to the last one
        const auto add_seen = [&](int end) {
            const int M = std::min<int>(BC, T - j0), from = end - seen;
            tiles.product(b.dv + j0, TP, tiles.from(do_cols, from), all_w, HS, M, seen, true);
            tiles.product(b.dk + j0, TP, tiles.from(q_cols, from), all_d, HS, M, seen, true);
            seen = 0;
        };
        for (int r = 0; r < n; r += BR) {
            TileAt at;
            const int M = std::min<int>(BR, n - r);
            if (!tile_of(&at, s, q0 + r, q0 + r + M, j0)) {
                if (seen) { add_seen(r); }
                continue;
            }
            const int N = at.j1 - at.j0;
            tiles.product(weight, BC, tiles.down(q, r), b.k_across.from(0, j0), M, N, HS, false);
            tiles.product(ds, BC, tiles.down(d_o, r), b.v.from(0, j0), M, N, HS, false); // do . v_j
            tile_scores<A, Pe>(weight, at, b.h, s);
            tile_backward<A>(weight, ds, at, b.stat + (long)(q0 + r) * 2, delta + r, s);
            const real *w = tiles.weights(10, weight, M), *d = tiles.weights(11, ds, M);
            tiles.put_below(all_w, seen, w, M);
            tiles.put_below(all_d, seen, d, M);
            tiles.product(dq + (long)r * HP, HP, tiles.weights_left(16, d, M), b.k.from(j0, 0), M,
                          HS, N, true);
            seen += M;
        }
        if (seen) { add_seen(n); }
    }
    for (int r = 0; r < n; r++) {
        real* dq_t = b.dx + (long)(q0 + r) * W + b.h * HS;
        for (int i = 0; i < HS; i++) { dq_t[i] = dq[(long)r * HP + i]; }
    }
}

// dqkv = (overwritten), dkstar, dvstar += as kstar, vstar, or NULL where there is nothing to learn.
// turns: NULL, or the table of rope, and dq and dk leave turned back: where q and k came out of
// rope, this is also its backward.
// in the forward pass this was:
//     s_j = capped(scale q . k_j + bias),   A_j = alpha f(s_j) / Z,   o = sum_j A_j v_j,   so
//     dv_j += A_j do,   dA_j = do . v_j,   ds_j = attn_ds(..) attn_slope(s_j),
//     dq += scale ds_j k_j,   dk_j += scale ds_j q
template <class A, class Bi, class Pe>
void attention_backward(real* dqkv, acc* dkstar, acc* dvstar, const real* dout, const real* out,
                        const acc* stat, const real* qkv, const real* kstar, const real* vstar,
                        const acc* turns, AttnShape s) {
    const int T = s.T, HS = s.HS, W = attn_row(s), TP = padded_keys(T), G = s.NH / s.KV;
    // dk*, dv* of every (b, g), summed in order at the end
    std::vector<acc> dstar((size_t)s.B * s.KV * 2 * HS);
    std::vector<acc> dz((size_t)s.B * s.NH);                // BIAS=logit: dz of every (b, h)
    #pragma omp parallel for schedule(dynamic)
    for (int bg = 0; bg < s.B * s.KV; bg++) {
        const int b = bg / s.KV, g = bg % s.KV;
        const long row = (long)b * T, at_k = (s.NH + g) * HS, at_v = at_k + s.KV * HS;
        const real *x = qkv + row * W, *vs = attn_star(vstar, s, g);
        real* dx = dqkv + row * W;
        Tiles<real> tiles;
        const auto k_across = tiles.across(0, x + at_k, W, T, HS);
        const auto k = tiles.along(1, x + at_k, W, T, HS), v = tiles.across(2, x + at_v, W, T, HS);
        acc *dk = scratch(13, padded(HS) * (long)TP), *dv = scratch(14, padded(HS) * (long)TP);
        for (long i = 0; i < (long)HS * TP; i++) { dk[i] = 0; dv[i] = 0; }
        for (int h = g * G; h < (g + 1) * G; h++) {
            acc* dks = &dstar[(size_t)bg * 2 * HS];
            HeadBackward<real> head = {
                tiles, dout + row * s.NH * HS, out + row * s.NH * HS,
                stat + (long)(b * s.NH + h) * T * 2, x, dx, dk, dv, k, k_across, v,
                attn_column<Bi>(kstar, s, h), vs, { dks, dks + HS, &dz[b * s.NH + h] }, h, s };
            for (int q0 = 0; q0 < T; q0 += MOST_QUERIES) {
                queries_backward<A, Bi, Pe>(head, q0, std::min<int>(MOST_QUERIES, T - q0));
            }
        }
        tiles.turn_over(dx + at_k, W, dk, TP, T, HS);
        tiles.turn_over(dx + at_v, W, dv, TP, T, HS);
    }
    for (int bg = 0; Bi::column && bg < s.B * s.KV; bg++) {
        const long row = s.bias_shared ? 0 : (bg % s.KV) * HS;
        for (int i = 0; i < HS; i++) {
            if (dkstar && Bi::column == KEY_COLUMN && i < s.k_dims) {
                dkstar[row + i] += dstar[(size_t)bg * 2 * HS + i];
            }
            if (dvstar) { dvstar[row + i] += dstar[(size_t)bg * 2 * HS + HS + i]; }
        }
    }
    for (int bh = 0; Bi::column == LOGIT_COLUMN && dkstar && bh < s.B * s.NH; bh++) {
        dkstar[s.bias_shared ? 0 : bh % s.NH] += dz[bh];
    }
    if (turns) { rope(dqkv, turns, -1, s); }
}

} // namespace cpu
#endif // CPU_ATTENTION_H
