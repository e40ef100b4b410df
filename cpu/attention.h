/*
attention.h -- attention of the fast CPU backend: one forward and one backward for every variant, by
tiles, in O(T) memory.

A thread takes one key/value head of one sequence, or 512 queries of it, and walks tiles of BR
queries x BC keys. The scores of a tile are gone when the next tile begins, so a thread needs
O(T HS) memory.

                 keys
              +----+----+----+----+
      queries | BR x BC |    |    |      forward:   scores -> weights -> += weights @ v
              +----+----+----+----+      backward:  the same tiles, column after column
              |    |    |    |    |
              +----+----+----+----+

    1 tiles of scores     which tiles there are, and their scores
    2 forward             what a row carries from tile to tile, and what it ends as
    3 backward            dq, dk, dv and the extra key's gradients

One query at a time, as in generation, is in attention_row.h.
*/
#ifndef CPU_ATTENTION_H
#define CPU_ATTENTION_H
#include "../metrics.cuh"
#include "attention_tiles.h"

namespace cpu {
// ----------------------------------------------------------------------------
// 1 tiles of scores

// Queries t0 .. t1 and keys j0 .. j1.
struct TileAt {
    int t0;
    int t1;
    int j0;
    int j1;
    bool full;                      // every query sees every key, and there are BC keys

    int queries() const { return t1 - t0; }
    int keys() const { return j1 - j0; }
};

// Finds the tile of queries t0 .. t1 and keys j0... Returns false if they see none of these.
inline bool tile_of(TileAt* at, AttnShape s, int t0, int t1, int j0) {
    const int last_key = std::min(s.T, std::max(t1, s.prefix));
    const int j1 = std::min(last_key, j0 + BC);
    const bool whole = j1 - j0 == BC;
    *at = { t0, t1, j0, j1, whole && attn_tile_full(s, t0, t1, j0, j1) };
    return j0 < j1 && !attn_tile_empty(s, t0, t1, j0, j1);
}

// Tells whether query t sees key j, where key j is one of the tile's.
inline bool tile_sees(TileAt at, AttnShape s, int t, int j) {
    return attn_sees(s, t, j) & (j < at.j1);
}

// Scales, biases and masks the products q . k of a tile: score (BR, BC). It always takes whole rows
// of BC, so that loops have a constant length; where there is no key, none is seen.
template <class A, class Pe>
inline void tile_scores(acc* score, TileAt at, int h, AttnShape s) {
    const acc scale = s.scale;
    const acc cap = s.cap;
    const float slope = pe_slope<Pe>(s, h);
    for (int t = at.t0; t < at.t1; t++, score += BC) {
        for (int j = 0; j < BC; j++) {
            score[j] *= scale;
            if (Pe::score_bias || !A::exp_family) {
                score[j] += attn_bias<A, Pe, acc>(s, t - (at.j0 + j), slope);
            }
            score[j] = attn_capped<A>(score[j], cap);
        }
        if (at.full) { continue; }
        for (int j = 0; j < BC; j++) {
            const bool seen = tile_sees(at, s, t, at.j0 + j);
            score[j] = seen ? score[j] : attn_masked<A, acc>();
        }
    }
}

// Calls f(at, score) for every tile of queries t0 .. t0 + M of head h that is not all masked, with
// its scores (BR, BC). q: the queries; k: all keys, transposed
template <class A, class Pe, class K, class F>
void each_tile(Tiles<real>& tiles, const Tiles<real>::Left& q, const K& k, int h, int t0, int M,
               AttnShape s, F f) {
    acc* score = scratch(SCORES, BR * BC);
    for (int j0 = 0; j0 < s.T; j0 += BC) {
        TileAt at;
        if (!tile_of(&at, s, t0, t0 + M, j0)) { continue; }
        if (work_stopped()) { return; }
        tiles.product(score, BC, q, k.from(0, j0), M, at.keys(), s.HS, false);
        tile_scores<A, Pe>(score, at, h, s);
        f(at, score);
    }
}

// Returns the score of the extra key for query q. extra: the z of its head or, of its key/value
// head, k* or NULL
template <class A, class Bi, class Q, class R>
acc extra_score(const Q* q, const R* extra, AttnShape s) {
    if (Bi::column == LOGIT_COLUMN) { return extra[0]; }
    const acc scaled = dot(q, extra, s.HS) * acc(s.scale);
    return attn_capped<A>(scaled, acc(s.cap));
}

// ----------------------------------------------------------------------------
// 2 forward

// What the forward pass keeps of a row (b, h, t) for the metrics of the same layer. m is the
// largest score of its row, that of the extra key included. The metrics need no more where a
// weight is e^(s - stat0 - stat1).
struct KeptRow {
    acc sum;                        // of e^(s - m)
    acc s_sum;                      // of (s - m) e^(s - m)
    acc first[METRIC_K + 1];        // scores of the first tokens
};

// Passed from attention_forward to attention_metrics of the same layer: both have the parameters of
// all backends, so it travels beside them.
struct KeptRows {
    bool wanted = false;            // set by keep_rows_for_metrics
    const acc* of = NULL;           // stat of the forward pass that they are from
    std::vector<KeptRow> rows;      // (B, NH, T)
};
inline KeptRows kept_rows;

// Announces that metrics of every layer will follow the forward passes, or no longer will.
inline void keep_rows_for_metrics(bool wanted) { kept_rows = { wanted, NULL, {} }; }

template <class A> constexpr bool keeps_rows = A::exp_family && A::Z != Z_ABS && A::clip == NO_CLIP;

// What a query carries from tile to tile.
struct RowState {
    acc top;                        // the largest score so far
    acc mass;                       // the sum in Z, relative to top as out is
    acc* out;                       // (HP) the sum of weight times v
    KeptRow* kept;                  // or NULL
};

// Turns a tile's scores w (BC) into weights, as attn_term does, and adds them to what is kept of
// their row. top: the largest score from now on; before: until now
inline void keep_scores(KeptRow* row, acc* w, acc before, acc top) {
    const acc least = -1000;
    const acc fall = max_(least, before - top);
    const acc shrink = exp_(fall);
    acc sum = 0;
    acc s_sum = 0;
    #pragma omp simd reduction(+ : sum, s_sum)
    for (int j = 0; j < BC; j++) {
        const acc below = max_(least, w[j] - top);
        const acc term = exp_(below);
        sum += term;
        s_sum += term * below;
        w[j] = term;
    }
    row->s_sum = shrink * (row->s_sum + fall * row->sum) + s_sum;
    row->sum = shrink * row->sum + sum;
}

// Takes one query through a tile: its scores w (BC) become weights, and what was summed before
// shrinks to what it is beside them. Not inline: as part of queries_forward, GCC 12 makes its loops
// 6 % slower.
template <class A>
__attribute__((noinline)) void row_forward(RowState* row, acc* w, acc p, int HP) {
    // the mass of a weight e^x under a p-norm is e^(px): no logarithm
    constexpr bool by_exp = A::exp_family && A::Z == Z_PNORM;
    const acc before = row->top;
    acc top = before;
    acc sum = 0;
    if (A::exp_family) {
        #pragma omp simd reduction(max : top)
        for (int j = 0; j < BC; j++) { top = max_(top, w[j]); }
        if (top == acc(-INFINITY)) {                    // it sees no key so far
            for (int j = 0; j < BC; j++) { w[j] = 0; }
            return;
        }
        const acc fall = before - top;
        const acc shrink = exp_(fall);
        acc* o = row->out;
        row->mass *= by_exp ? exp_(p * fall) : attn_mass<A>(shrink, p);
        row->top = top;
        for (int i = 0; i < HP; i++) { o[i] *= shrink; }
    }
    if (by_exp) {
        #pragma omp simd reduction(+ : sum)
        for (int j = 0; j < BC; j++) {
            sum += exp_(p * (w[j] - top));
        }
    }
    if (keeps_rows<A> && row->kept) {
        keep_scores(row->kept, w, before, top);
    } else {
        for (int j = 0; j < BC; j++) {
            w[j] = attn_term<A>(w[j], top);
        }
    }
    if (!by_exp) {
        #pragma omp simd reduction(+ : sum)
        for (int j = 0; j < BC; j++) {
            sum += attn_mass<A>(w[j], p);
        }
    }
    row->mass += sum;
    if (A::Z == Z_ABS) {
        for (int j = 0; j < BC; j++) {
            w[j] = attn_share<A>(w[j]);
        }
    }
}

// Begins the row of query t: the extra key, if there is one, is the state that the loop over
// tiles starts from.
template <class A, class Bi>
void extra_forward(RowState* row, const ref::HeadRows<Bi, const real>& x, int t) {
    const AttnShape& s = x.s;
    row->top = attn_initial_max<A, acc>();
    row->mass = 0;
    std::fill_n(row->out, padded(s.HS), acc(0));
    if (Bi::column == NO_COLUMN) { return; }
    const acc s_extra = extra_score<A, Bi>(x.q(t), x.extra.k, s);
    if (s_extra == acc(-INFINITY)) { return; }
    row->top = max_(row->top, s_extra);
    const acc w_extra = attn_term<A>(s_extra, row->top);
    row->mass = attn_mass<A>(w_extra, acc(s.p));
    add_times(row->out, attn_share<A>(w_extra), x.extra.v, s.HS);
}

// Keys, transposed, and values of key/value head g of a sequence, as factors.
template <class R> struct HeadFactors {
    Tiles<R> tiles;
    typename Tiles<R>::Right k, v;

    template <class Rows> HeadFactors(const Rows& x, int keys, AttnShape s)
        : k(tiles.across(K_ACROSS, x.k(0), attn_row(s), keys, s.HS)),
          v(tiles.along(ROWS_ALONG, x.v(0), attn_row(s), keys, s.HS)) {}
};

// A query head of a sequence, as the forward pass reads it and where it writes.
template <class Bi> struct HeadForward {
    ref::HeadRows<Bi, const real> x;
    real* out;                      // of query 0; (T, HS), rows NH HS apart
    acc* stat;                      // (T, 2)
    KeptRow* kept;                  // (T), or NULL
};

// Begins what is kept of a row.
inline void keep_begin(KeptRow* kept) {
    kept->sum = 0;
    kept->s_sum = 0;
    for (int j = 0; j <= METRIC_K; j++) {
        kept->first[j] = -INFINITY;
    }
}

// Writes out (HS) and stat (2) of query t, which has been through all tiles.
template <class A> void row_end(real* out, acc* stat, const RowState& row, int t, AttnShape s) {
    acc st[2];
    const acc alpha = attn_alpha_of<A, acc>(s, t);
    const acc factor = attn_stat<A>(st, row.top, row.mass, acc(s.p), alpha);
    memcpy(stat, st, sizeof st);
    for (int i = 0; i < s.HS; i++) {
        out[i] = row.out[i] * factor;
    }
}

// Sets o (M, HP) to sum_j A_j v_j of queries t0 .. t0 + M, whose stat is known.
template <class A, class Bi, class Pe>
void queries_clipped(acc* o, const HeadForward<Bi>& head, HeadFactors<real>& f, int t0, int M) {
    const AttnShape& s = head.x.s;
    const int HP = padded(s.HS);
    std::fill_n(o, M * HP, acc(0));
    for (int r = 0; Bi::column && r < M; r++) {
        const acc* st = head.stat + (t0 + r) * 2L;
        const acc s_extra = extra_score<A, Bi>(head.x.q(t0 + r), head.x.extra.k, s);
        add_times(o + r * HP, attn_weight<A>(s_extra, st[0], st[1], s.p), head.x.extra.v, s.HS);
    }
    const auto q = f.tiles.rows(Q_ROWS, head.x.q(t0), attn_row(s), M, s.HS);
    each_tile<A, Pe>(f.tiles, q, f.k, head.x.h, t0, M, s, [&](TileAt at, acc* score) {
        for (int i = 0; i < M * BC; i++) {
            const acc* st = head.stat + (t0 + i / BC) * 2L;
            score[i] = attn_weight<A>(score[i], st[0], st[1], s.p);
        }
        const auto w = f.tiles.weights_left(LEFT_TILE, f.tiles.weights(WEIGHTS, score, M), M);
        f.tiles.product(o, HP, w, f.v.from(at.j0, 0), M, s.HS, at.keys(), true);
    });
}

// Computes out and stat of queries t0 .. t0 + M.
template <class A, class Bi, class Pe>
void queries_forward(const HeadForward<Bi>& head, HeadFactors<real>& f, int t0, int M) {
    const AttnShape& s = head.x.s;
    const int HS = s.HS;
    const int HP = padded(HS);
    acc* o = scratch(OUT, BR * HP);
    RowState rows[BR];
    for (int r = 0; r < M; r++) {
        RowState& row = rows[r];
        row.out = o + r * HP;
        row.kept = moved(head.kept, t0 + r);
        extra_forward<A>(&row, head.x, t0 + r);
        if (row.kept) { keep_begin(row.kept); }
    }

    const auto q = f.tiles.rows(Q_ROWS, head.x.q(t0), attn_row(s), M, HS);
    each_tile<A, Pe>(f.tiles, q, f.k, head.x.h, t0, M, s, [&](TileAt at, acc* score) {
        const int first_end = std::min<int>(METRIC_K + 1, at.j1);
        for (int r = 0; r < M; r++) {
            acc* score_r = score + r * BC;
            for (int j = at.j0; rows[r].kept && j < first_end; j++) {
                rows[r].kept->first[j] = score_r[j - at.j0];
            }
            row_forward<A>(&rows[r], score_r, acc(s.p), HP);
        }
        const real* weights = f.tiles.weights(WEIGHTS, score, M);
        const auto w = f.tiles.weights_left(LEFT_TILE, weights, M);
        f.tiles.product(o, HP, w, f.v.from(at.j0, 0), M, HS, at.keys(), true);
    });

    for (int r = 0; r < M; r++) {
        const long t = t0 + r;
        row_end<A>(head.out + t * s.NH * HS, head.stat + t * 2, rows[r], t, s);
    }
    if constexpr (A::clip != NO_CLIP) {
        queries_clipped<A, Bi, Pe>(o, head, f, t0, M);
        for (int r = 0; r < M; r++) {
            std::copy_n(o + r * HP, HS, head.out + (long)(t0 + r) * s.NH * HS);
        }
    }
}

// Attends: out (B, T, NH HS), stat (B, NH, T, 2) <- qkv (B, T, (NH + 2 KV) HS), extra: the extra
// key. With rope_table, q and k are first rotated in place
template <class A, class Bi, class Pe>
void attention_forward(real* out, acc* stat, real* qkv, ExtraKey<const real> extra,
                       const acc* rope_table, AttnShape s) {
    if (rope_table) { rope(qkv, rope_table, +1, s); }
    const int group = s.NH / s.KV;                      // query heads of a key/value head
    const int chunk = 512;                              // queries of a task
    const int chunks = div_up(s.T, chunk);
    const int heads = s.B * s.KV;
    const bool keep = kept_rows.wanted && keeps_rows<A>;
    if (keep) {
        kept_rows.of = stat;
        kept_rows.rows.resize((long)s.B * s.NH * s.T);
    }
    #pragma omp parallel for schedule(dynamic)
    for (int i = 0; i < heads * chunks; i++) {          // the longest tasks first
        if (work_stopped()) { continue; }
        const int b = i % heads / s.KV;
        const int g = i % s.KV;
        const int last = chunks - 1 - i / heads;
        const int begin = last * chunk;
        const int end = std::min(s.T, begin + chunk);
        const int keys = std::min(s.T, std::max(end, s.prefix));        // that these queries see
        typedef ref::HeadRows<Bi, const real> Rows;
        HeadFactors<real> f(Rows(qkv, extra, b, g * group, s), keys, s);
        for (int h = g * group; h < (g + 1) * group; h++) {
            const long at = ref::stat_at(b, 0, h, s);
            const HeadForward<Bi> head = { Rows(qkv, extra, b, h, s),
                                           out + ref::head_at(b, 0, h, s), stat + at,
                                           keep ? &kept_rows.rows[at / 2] : NULL };
            for (int t0 = begin; t0 < end; t0 += BR) {
                const int M = std::min((int)BR, end - t0);
                queries_forward<A, Bi, Pe>(head, f, t0, M);
            }
        }
    }
}

// ----------------------------------------------------------------------------
// 3 backward

enum { MOST_QUERIES = 512 };        // that are taken through all keys together

// What one key/value head of a sequence adds to the gradients of the extra key.
struct ExtraGradients {
    acc* key;                       // dk* (HS)
    acc* value;                     // dv* (HS)
    acc* logit;                     // dz of the query head
};

// One query head of a sequence, as the backward pass reads it and where it writes.
template <class Bi> struct HeadBackward {
    typedef Tiles<real>::Right Right;
    Tiles<real>& tiles;
    ref::HeadRows<Bi, const real> x;
    ref::HeadRows<Bi, real> dx;
    const real* dout;               // of query 0; (T, HS), rows NH HS apart
    const real* out;                // likewise
    const acc* stat;                // (T, 2)
    acc* dk;                        // (HS, TP), transposed
    acc* dv;                        // (HS, TP), transposed
    Right k, k_across, v_across;
    ExtraGradients extra_g;
};

// One query, as its extra key's backward pass reads it.
struct QueryBackward {
    const real* dout;               // (HS)
    const real* q;                  // (HS)
    const acc* stat;                // (2)
    acc delta;                      // of attn_delta: what dZ adds to each dw
};

// Adds what the extra key of one query gives to dq_t (HS), dk* (or dz) and dv*.
template <class A, class Bi>
inline void extra_backward(acc* dq_t, const HeadBackward<Bi>& b, const QueryBackward& x) {
    const AttnShape& s = b.x.s;
    const ExtraKey<const real> extra = b.x.extra;
    const acc st0 = x.stat[0];
    const acc st1 = x.stat[1];
    const acc s_extra = extra_score<A, Bi>(x.q, extra.k, s);
    const acc dw_extra = dot(x.dout, extra.v, s.HS);
    const acc w_extra = attn_weight<A>(s_extra, st0, st1, s.p);
    const acc alpha = attn_alpha<A, acc>(s);
    const acc ds = attn_ds<A>(s_extra, w_extra, dw_extra, st0, st1, x.delta, acc(s.p), alpha);
    const acc ds_extra = ds * attn_slope<A>(s_extra, acc(s.cap)) * acc(s.scale);
    add_times(b.extra_g.value, w_extra, x.dout, s.HS);
    if (Bi::column == LOGIT_COLUMN) {
        *b.extra_g.logit += ds;
        return;
    }
    add_times(dq_t, ds_extra, extra.k, s.HS);
    add_times(b.extra_g.key, ds_extra, x.q, s.HS);
}

// Turns a tile's scores into weights, and ds, which holds do . v_j, into ds_j scale; both (BR, BC).
// stat and delta are of query at.t0.
template <class A>
void tile_backward(acc* weight, acc* ds, TileAt at, const acc* stat, const acc* delta,
                   AttnShape s) {
    const acc p = s.p;
    const acc alpha = attn_alpha<A, acc>(s);
    const acc scale = s.scale;
    const acc cap = s.cap;
    for (int r = 0; r < at.queries(); r++) {
        acc* w = weight + r * BC;
        acc* d = ds + r * BC;
        const acc st0 = stat[r * 2];
        const acc st1 = stat[r * 2 + 1];
        const acc dl = delta[r];
        for (int j = at.keys(); j < BC; j++) {
            d[j] = 0;
        }
        for (int j = 0; j < BC; j++) {
            const acc s_j = w[j];
            w[j] = attn_weight<A>(s_j, st0, st1, p);
            const acc ds_j = attn_ds<A>(s_j, w[j], d[j], st0, st1, dl, p, alpha);
            d[j] = ds_j * attn_slope<A>(s_j, cap) * scale;
        }
        if (!A::is_signed || at.full) { continue; }
        for (int j = 0; j < BC; j++) {
            const bool seen = tile_sees(at, s, at.t0 + r, at.j0 + j);
            d[j] = seen ? d[j] : acc(0);
        }
    }
}

// Sets do_o (n) to what attn_delta wants of clipped rows, those of queries q0 .. q0 + n: what
// ClipSlopes gives, times do. q and d_o are both as factors.
template <class A, class Bi, class Pe>
void clipped_do_o(acc* do_o, HeadBackward<Bi>& b, const Tiles<real>::Left& q,
                  const Tiles<real>::Left& d_o, int q0, int n) {
    typedef ClipSlopes<A> Slopes;
    const AttnShape& s = b.x.s;
    acc* dw = scratch(DSCORES, BR * BC);
    for (int r = 0; r < n; r++) {
        do_o[r] = 0;
        if (Bi::column == NO_COLUMN) { continue; }
        const acc* st = b.stat + (q0 + r) * 2L;
        const acc score = extra_score<A, Bi>(b.x.q(q0 + r), b.x.extra.k, s);
        const acc slope = attn_weight<Slopes>(score, st[0], st[1], s.p);
        do_o[r] = slope * dot(b.dout + (q0 + r) * (long)s.NH * s.HS, b.x.extra.v, s.HS);
    }
    for (int r = 0; r < n; r += BR) {
        const int M = std::min<int>(BR, n - r);
        const auto q_r = b.tiles.down(q, r);
        each_tile<A, Pe>(b.tiles, q_r, b.k_across, b.x.h, q0 + r, M, s, [&](TileAt at, acc* score) {
            const auto v = b.v_across.from(0, at.j0);
            b.tiles.product(dw, BC, b.tiles.down(d_o, r), v, M, at.keys(), s.HS, false);
            for (int i = 0; i < M * BC; i++) {
                const acc* st = b.stat + (at.t0 + i / BC) * 2L;
                const acc slope = attn_weight<Slopes>(score[i], st[0], st[1], s.p);
                if (i % BC < at.keys()) { do_o[r + i / BC] += slope * dw[i]; }
            }
        });
    }
}

// Begins dq (n, HP) and computes delta of queries q0 .. q0 + n, with their extra key. For
// clipped rows delta holds clipped_do_o's result on entry.
template <class A, class Bi>
void queries_begin(acc* dq, acc* delta, const HeadBackward<Bi>& b, int q0, int n) {
    const AttnShape& s = b.x.s;
    const int HP = padded(s.HS);
    const long row = (long)s.NH * s.HS;
    const acc alpha = attn_alpha<A, acc>(s);
    for (int r = 0; r < n; r++) {
        const int t = q0 + r;
        const real* do_t = b.dout + t * row;
        const real* out_t = b.out + t * row;
        const acc* st = b.stat + (long)t * 2;
        const acc do_o = A::clip == NO_CLIP ? dot(do_t, out_t, s.HS) : delta[r];
        acc* dq_t = dq + (long)r * HP;
        delta[r] = attn_delta<A>(do_o, st[1], alpha);
        std::fill_n(dq_t, HP, acc(0));
        if (Bi::column == NO_COLUMN) { continue; }
        const QueryBackward query = { do_t, b.x.q(t), st, delta[r] };
        extra_backward<A>(dq_t, b, query);
    }
}

// Adds what queries q0 .. q0 + n of a head give to dk and dv, and writes their dq. Gathers the
// weights of all of them for one tile of keys before it multiplies them with do and q: those sums
// are long then, and take little time to begin and to end.
template <class A, class Bi, class Pe>
void queries_backward(HeadBackward<Bi>& b, int q0, int n) {
    const AttnShape& s = b.x.s;
    const int T = s.T;
    const int HS = s.HS;
    const int W = attn_row(s);
    const int HP = padded(HS);
    const int TP = padded_keys(T);
    const long O = (long)s.NH * HS;
    const real* q_0 = b.x.q(q0);
    const real* do_0 = b.dout + q0 * O;
    Tiles<real>& tiles = b.tiles;
    const auto q = tiles.rows(Q_ROWS, q_0, W, n, HS);
    const auto q_cols = tiles.columns(Q_COLUMNS, q_0, W, n, HS);
    const auto d_o = tiles.rows(DO_ROWS, do_0, O, n, HS);
    const auto do_cols = tiles.columns(DO_COLUMNS, do_0, O, n, HS);
    const auto all_w = tiles.tall(ALL_WEIGHTS, n);
    const auto all_d = tiles.tall(ALL_DSCORES, n);
    acc* dq = scratch(DQ, (long)n * HP);
    acc* weight = scratch(SCORES, BR * BC);
    acc* ds = scratch(DSCORES, BR * BC);
    acc delta[MOST_QUERIES];
    if constexpr (A::clip != NO_CLIP) { clipped_do_o<A, Bi, Pe>(delta, b, q, d_o, q0, n); }
    queries_begin<A>(dq, delta, b, q0, n);

    for (int j0 = 0; j0 < T; j0 += BC) {
        int seen = 0;               // queries whose weights were gathered, up to the last one
        const auto add_seen = [&](int end) {
            if (seen == 0) { return; }
            const int keys = std::min<int>(BC, T - j0);
            const int from = end - seen;
            tiles.product(b.dv + j0, TP, tiles.from(do_cols, from), all_w, HS, keys, seen, true);
            tiles.product(b.dk + j0, TP, tiles.from(q_cols, from), all_d, HS, keys, seen, true);
            seen = 0;
        };
        for (int r = 0; r < n; r += BR) {
            TileAt at;
            const int M = std::min<int>(BR, n - r);
            if (!tile_of(&at, s, q0 + r, q0 + r + M, j0)) {
                add_seen(r);
                continue;
            }
            const int keys = at.keys();
            tiles.product(weight, BC, tiles.down(q, r), b.k_across.from(0, j0), M, keys, HS, false);
            tiles.product(ds, BC, tiles.down(d_o, r), b.v_across.from(0, j0), M, keys, HS, false);
            tile_scores<A, Pe>(weight, at, b.x.h, s);
            tile_backward<A>(weight, ds, at, b.stat + (long)at.t0 * 2, delta + r, s);
            const real* w = tiles.weights(WEIGHTS, weight, M);
            const real* d = tiles.weights(DWEIGHTS, ds, M);
            tiles.put_below(all_w, seen, w, M);
            tiles.put_below(all_d, seen, d, M);
            const auto d_left = tiles.weights_left(LEFT_TILE, d, M);
            tiles.product(dq + (long)r * HP, HP, d_left, b.k.from(j0, 0), M, HS, keys, true);
            seen += M;
        }
        add_seen(n);
    }
    for (int r = 0; r < n; r++) { std::copy_n(dq + (long)r * HP, HS, b.dx.q(q0 + r)); }
}

// The gradients of the extra key, by the heads that made them: they are added in order at the
// end, so that the number of threads changes no bit.
struct ExtraSums {
    std::vector<acc> key, value;    // dk*, dv* (B, KV, HS)
    std::vector<acc> logit;         // dz (B, NH)

    explicit ExtraSums(AttnShape s)
        : key((size_t)s.B * s.KV * s.HS), value(key.size()), logit((size_t)s.B * s.NH) {}

    // Adds what was gathered to dextra; NULL where there is nothing to learn.
    template <class Bi> void add_to(ExtraKey<acc> dextra, AttnShape s) const {
        if (Bi::column == NO_COLUMN) { return; }
        for (int bg = 0; bg < s.B * s.KV; bg++) {
            const long row = (long)bg * s.HS;
            const int g = bg % s.KV;
            if (Bi::column == KEY_COLUMN) {
                add_times(attn_extra(dextra.k, s, g), 1, &key[row], s.k_dims);
            }
            add_times(attn_extra(dextra.v, s, g), 1, &value[row], s.HS);
        }
        if (Bi::column != LOGIT_COLUMN) { return; }
        for (int bh = 0; bh < s.B * s.NH; bh++) {
            add_times(attn_column<Bi>(dextra.k, s, bh % s.NH), 1, &logit[bh], 1);
        }
    }
};

// Computes the gradients of q, k and v, and adds those of the extra key to dextra, which is NULL
// where nothing is learned. Rotates dq and dk back by rope_table unless it is NULL: where q and k
// came out of rope, this is also its backward. In the forward pass this was:
//     s_j = capped(scale q . k_j + bias),   A_j = alpha f(s_j) / Z,   o = sum_j A_j v_j,   so
//     dv_j += A_j do,   dA_j = do . v_j,   ds_j = attn_ds(..) attn_slope(s_j),
//     dq += scale ds_j k_j,   dk_j += scale ds_j q
template <class A, class Bi, class Pe>
void attention_backward(real* dqkv, ExtraKey<acc> dextra, const real* dout,
                        AttnResult<real, acc> result, const real* qkv, ExtraKey<const real> extra,
                        const acc* rope_table, AttnShape s) {
    const int T = s.T;
    const int HS = s.HS;
    const int W = attn_row(s);
    const int group = s.NH / s.KV;                      // query heads of a key/value head
    const long TP = padded_keys(T);
    ExtraSums sums(s);
    #pragma omp parallel for schedule(dynamic)
    for (int bg = 0; bg < s.B * s.KV; bg++) {
        const int b = bg / s.KV;
        const int g = bg % s.KV;
        const ref::HeadRows<Bi, const real> x(qkv, extra, b, g * group, s);
        const ref::HeadRows<Bi, real> dx(dqkv, { NULL, NULL }, b, g * group, s);
        Tiles<real> tiles;
        const auto k_across = tiles.across(K_ACROSS, x.k(0), W, T, HS);
        const auto k = tiles.along(ROWS_ALONG, x.k(0), W, T, HS);
        const auto v_across = tiles.across(V_ACROSS, x.v(0), W, T, HS);
        acc* dk = scratch(DK, padded(HS) * TP);
        acc* dv = scratch(DV, padded(HS) * TP);
        std::fill_n(dk, HS * TP, acc(0));
        std::fill_n(dv, HS * TP, acc(0));
        acc* dk_extra = &sums.key[(size_t)bg * HS];
        acc* dv_extra = &sums.value[(size_t)bg * HS];
        for (int h = g * group; h < (g + 1) * group; h++) {
            const long at = ref::head_at(b, 0, h, s);
            HeadBackward<Bi> head = {
                tiles, { qkv, extra, b, h, s }, { dqkv, { NULL, NULL }, b, h, s }, dout + at,
                result.out + at, result.stat + ref::stat_at(b, 0, h, s),
                dk, dv, k, k_across, v_across,
                { dk_extra, dv_extra, &sums.logit[b * s.NH + h] } };
            for (int q0 = 0; q0 < T; q0 += MOST_QUERIES) {
                const int n = std::min<int>(MOST_QUERIES, T - q0);
                queries_backward<A, Bi, Pe>(head, q0, n);
            }
        }
        tiles.transpose(dx.k(0), W, dk, TP, T, HS);
        tiles.transpose(dx.v(0), W, dv, TP, T, HS);
    }
    sums.add_to<Bi>(dextra, s);
    if (rope_table) { rope(dqkv, rope_table, -1, s); }
}
} // namespace cpu
#endif // CPU_ATTENTION_H
