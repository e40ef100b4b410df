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

// Computes score (BR, BC) of a tile of head h: q . k, scaled, biased and masked. It always takes
// whole rows of BC, so that loops have a constant length; where there is no key, none is seen. q:
// the tile's queries; k: all keys, transposed
template <class A, class Pe>
void tile_scores(acc* score, Tiles<real>& tiles, const Tiles<real>::Left& q,
                 const Tiles<real>::Right& k, TileAt at, int h, AttnShape s) {
    tiles.product(score, BC, q, k.from(0, at.j0), at.queries(), at.keys(), s.HS, false);
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

// Returns the score of the extra key for query t: z or, by k*, which may be NULL, their product.
template <class A, class Bi> acc extra_score(const Head<Bi, const real>& x, int t) {
    if (Bi::extra == LOGIT_EXTRA) { return x.extra.k[0]; }
    const acc scaled = dot(x.q(t), x.extra.k, x.s.HS) * acc(x.s.scale);
    return attn_capped<A>(scaled, acc(x.s.cap));
}

// ----------------------------------------------------------------------------
// 2 forward

// What a query carries from tile to tile.
struct RowState {
    acc top;                        // the largest score so far
    acc mass;                       // the sum in Z, relative to top as out is
    acc* out;                       // (HP) the sum of weight times v
};

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
    for (int j = 0; j < BC; j++) {
        w[j] = attn_term<A>(w[j], top);
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

// Keys, transposed, and values of key/value head g of a sequence, as factors.
struct HeadFactors {
    Tiles<real> tiles;
    Tiles<real>::Right k, v;

    HeadFactors(const real* key, const real* value, int keys, AttnShape s)
        : k(tiles.across(K_ACROSS, key, attn_row(s), keys, s.HS)),
          v(tiles.along(ROWS_ALONG, value, attn_row(s), keys, s.HS)) {}
};

// Sets o (M, HP) to sum_j A_j v_j of queries t0 .. t0 + M, whose stat is known: pass 3 of
// ATTN=softmax_clip. k: the keys, transposed; v: the values
template <class A, class Pe, class Bi>
void queries_clipped(acc* o, const Head<Bi, const real>& x, const AttnStat<acc>* stat,
                     Tiles<real>& tiles, const Tiles<real>::Right& k, const Tiles<real>::Right& v,
                     int t0, int M) {
    const AttnShape& s = x.s;
    const int HP = padded(s.HS);
    acc* score = scratch(SCORES, BR * BC);
    std::fill_n(o, M * HP, acc(0));
    for (int r = 0; Bi::extra && r < M; r++) {
        const acc s_extra = extra_score<A>(x, t0 + r);
        add_times(o + r * HP, attn_weight<A>(s_extra, stat[t0 + r], s.clip), x.extra.v, s.HS);
    }
    const auto q = tiles.rows(Q_ROWS, x.q(t0), attn_row(s), M, s.HS);
    for (int j0 = 0; j0 < s.T; j0 += BC) {
        TileAt at;
        if (!tile_of(&at, s, t0, t0 + M, j0) || work_stopped()) { continue; }
        tile_scores<A, Pe>(score, tiles, q, k, at, x.h, s);
        for (int i = 0; i < M * BC; i++) {
            score[i] = attn_weight<A>(score[i], stat[t0 + i / BC], s.clip);
        }
        const auto w = tiles.weights_left(LEFT_TILE, tiles.weights(WEIGHTS, score, M), M);
        tiles.product(o, HP, w, v.from(j0, 0), M, s.HS, at.keys(), true);
    }
}

// A query head of a sequence, as the forward pass reads it and where it writes.
template <class A, class Bi, class Pe> struct HeadForward {
    Head<Bi, const real> x;
    real* out;                      // of query 0; (T, HS), rows NH HS apart
    AttnStat<acc>* stat;            // (T)

    real* row(int t) const { return out + (long)t * x.s.NH * x.s.HS; }

    // Begins the row of query t: the extra key, if there is one, is the state that the loop over
    // tiles starts from.
    void row_begin(RowState* row, int t) const {
        const AttnShape& s = x.s;
        row->top = attn_initial_max<A, acc>();
        row->mass = 0;
        std::fill_n(row->out, padded(s.HS), acc(0));
        if (Bi::extra == NO_EXTRA) { return; }
        const acc s_extra = extra_score<A>(x, t);
        if (s_extra == acc(-INFINITY)) { return; }
        row->top = max_(row->top, s_extra);
        const acc w_extra = attn_term<A>(s_extra, row->top);
        row->mass = attn_mass<A>(w_extra, acc(s.p));
        add_times(row->out, attn_share<A>(w_extra), x.extra.v, s.HS);
    }

    // Writes out (HS) and stat of query t, which has been through all tiles.
    void row_end(const RowState& end, int t) const {
        const AttnStat<acc> st =
            attn_stat<A>(end.top, end.mass, acc(x.s.p), attn_alpha_of<A, acc>(x.s, t));
        const acc factor = attn_factor<A>(st);
        real* to = row(t);
        stat[t] = st;
        for (int i = 0; i < x.s.HS; i++) {
            to[i] = end.out[i] * factor;
        }
    }

    // Computes out and stat of queries t0 .. t0 + M.
    void queries_forward(HeadFactors& f, int t0, int M) const {
        const AttnShape& s = x.s;
        const int HS = s.HS;
        const int HP = padded(HS);
        acc* o = scratch(OUT, BR * HP);
        RowState rows[BR];
        for (int r = 0; r < M; r++) {
            rows[r].out = o + r * HP;
            row_begin(&rows[r], t0 + r);
        }

        const auto q = f.tiles.rows(Q_ROWS, x.q(t0), attn_row(s), M, HS);
        acc* score = scratch(SCORES, BR * BC);
        for (int j0 = 0; j0 < s.T; j0 += BC) {
            TileAt at;
            if (!tile_of(&at, s, t0, t0 + M, j0) || work_stopped()) { continue; }
            tile_scores<A, Pe>(score, f.tiles, q, f.k, at, x.h, s);
            for (int r = 0; r < M; r++) {
                row_forward<A>(&rows[r], score + r * BC, acc(s.p), HP);
            }
            const real* weights = f.tiles.weights(WEIGHTS, score, M);
            const auto w = f.tiles.weights_left(LEFT_TILE, weights, M);
            f.tiles.product(o, HP, w, f.v.from(j0, 0), M, HS, at.keys(), true);
        }

        for (int r = 0; r < M; r++) { row_end(rows[r], t0 + r); }
        if constexpr (A::clip != NO_CLIP) {
            queries_clipped<A, Pe>(o, x, stat, f.tiles, f.k, f.v, t0, M);
            for (int r = 0; r < M; r++) { std::copy_n(o + r * HP, HS, row(t0 + r)); }
        }
    }
};

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
    #pragma omp parallel for schedule(dynamic)
    for (int i = 0; i < heads * chunks; i++) {          // the longest tasks first
        if (work_stopped()) { continue; }
        const int b = i % heads / s.KV;
        const int g = i % s.KV;
        const int last = chunks - 1 - i / heads;
        const int begin = last * chunk;
        const int end = std::min(s.T, begin + chunk);
        const int keys = std::min(s.T, std::max(end, s.prefix));        // that these queries see
        const Head<Bi, const real> x(qkv, extra, b, g * group, s);
        HeadFactors f(x.k(0), x.v(0), keys, s);
        for (int h = g * group; h < (g + 1) * group; h++) {
            const HeadForward<A, Bi, Pe> head = {
                { qkv, extra, b, h, s }, out + head_at(b, 0, h, s), stat_of(stat, b, 0, h, s) };
            for (int t0 = begin; t0 < end; t0 += BR) {
                const int M = std::min((int)BR, end - t0);
                head.queries_forward(f, t0, M);
            }
        }
    }
}

// ----------------------------------------------------------------------------
// 3 backward

enum { MOST_QUERIES = 512 };        // that are taken through all keys together

// Some queries of a head, q0 .. q0 + n, on their way through the tiles.
struct Queries {
    typedef Tiles<real>::Left Left;
    typedef Tiles<real>::Right Right;
    int q0;
    int n;
    Left q, q_columns;
    Left d_o, do_columns;
    Right weights, ds;              // of those that see one tile of keys, below each other
    acc* dq;                        // (n, HP)
    acc* delta;                     // (n) of attn_delta: what dZ adds to each dw
};

// One query head of a sequence, as the backward pass reads it and where it writes.
template <class A, class Bi, class Pe> struct HeadBackward {
    typedef Tiles<real>::Right Right;
    Tiles<real>& tiles;
    Head<Bi, const real> x;
    Head<Bi, real> dx;
    const real* dout;               // of query 0; (T, HS), rows NH HS apart
    const real* out;                // likewise
    const AttnStat<acc>* stat;      // (T)
    acc* dk;                        // (HS, TP), transposed
    acc* dv;                        // (HS, TP), transposed
    Right k, k_across, v_across;
    ExtraKey<acc> extra;            // gradients of the extra key

    long row(int t) const { return (long)t * x.s.NH * x.s.HS; }
    const real* d_o(int t) const { return dout + row(t); }

    // Adds what the extra key of query t gives to dq_t (HS), dk* (or dz) and dv*.
    void extra_backward(acc* dq_t, int t, acc delta) const {
        const AttnShape& s = x.s;
        const acc s_extra = extra_score<A>(x, t);
        const acc dw_extra = dot(d_o(t), x.extra.v, s.HS);
        const acc w_extra = attn_weight<A>(s_extra, stat[t], s.clip);
        const acc ds = attn_ds<A>(s_extra, w_extra, dw_extra, stat[t], delta, s);
        const acc ds_extra = ds * attn_slope<A>(s_extra, acc(s.cap)) * acc(s.scale);
        add_times(extra.v, w_extra, d_o(t), s.HS);
        if (Bi::extra == LOGIT_EXTRA) {
            *extra.k += ds;
            return;
        }
        add_times(dq_t, ds_extra, x.extra.k, s.HS);
        add_times(extra.k, ds_extra, x.q(t), s.HS);
    }

    // Turns a tile's scores into weights, and ds, which holds do . v_j, into ds_j scale; both (BR,
    // BC). delta is of query at.t0.
    void tile_backward(acc* weight, acc* ds, TileAt at, const acc* delta) const {
        const AttnShape& s = x.s;
        const acc scale = s.scale;
        const acc cap = s.cap;
        for (int r = 0; r < at.queries(); r++) {
            acc* w = weight + r * BC;
            acc* d = ds + r * BC;
            const AttnStat<acc> st = stat[at.t0 + r];
            const acc dl = delta[r];
            for (int j = at.keys(); j < BC; j++) {
                d[j] = 0;
            }
            for (int j = 0; j < BC; j++) {
                const acc s_j = w[j];
                w[j] = attn_weight<A>(s_j, st, s.clip);
                const acc ds_j = attn_ds<A>(s_j, w[j], d[j], st, dl, s);
                d[j] = ds_j * attn_slope<A>(s_j, cap) * scale;
            }
            if (!A::is_signed || at.full) { continue; }
            for (int j = 0; j < BC; j++) {
                const bool seen = tile_sees(at, s, at.t0 + r, at.j0 + j);
                d[j] = seen ? d[j] : acc(0);
            }
        }
    }

    // Sets do_o (n) to do . o of queries q0 .. q0 + n; the o of a clipped row is that of
    // ClipSlopes.
    void queries_do_o(acc* do_o, int q0, int n) const {
        const AttnShape& s = x.s;
        for (int r = 0; r < n; r++) { do_o[r] = dot(d_o(q0 + r), out + row(q0 + r), s.HS); }
        if constexpr (A::clip != NO_CLIP) {
            const int HP = padded(s.HS);
            acc* o = scratch(OUT, BR * HP);
            const auto v = tiles.along(V_ALONG, x.v(0), attn_row(s), s.T, s.HS);
            for (int r0 = 0; r0 < n; r0 += BR) {
                const int q = q0 + r0;
                const int M = std::min<int>(BR, n - r0);
                queries_clipped<ClipSlopes<A>, Pe>(o, x, stat, tiles, k_across, v, q, M);
                for (int r = 0; r < M; r++) { do_o[r0 + r] = dot(d_o(q + r), o + r * HP, s.HS); }
            }
        }
    }

    // Begins dq and computes delta of the queries, which holds do . o, with their extra key.
    void queries_begin(Queries* y) const {
        const AttnShape& s = x.s;
        const int HP = padded(s.HS);
        std::fill_n(y->dq, y->n * HP, acc(0));
        for (int r = 0; r < y->n; r++) {
            const int t = y->q0 + r;
            y->delta[r] = attn_delta<A>(y->delta[r], stat[t], attn_alpha<A, acc>(s));
            if (Bi::extra != NO_EXTRA) { extra_backward(y->dq + r * HP, t, y->delta[r]); }
        }
    }

    // Adds the part of one tile to dq of queries r.. , and puts its weights and ds below those of
    // the `above` queries before them.
    void tile_gradients(Queries* y, TileAt at, int r, int above) const {
        const AttnShape& s = x.s;
        const int HP = padded(s.HS);
        const int M = at.queries();
        const int keys = at.keys();
        acc* weight = scratch(SCORES, BR * BC);
        acc* ds = scratch(DSCORES, BR * BC);
        tile_scores<A, Pe>(weight, tiles, tiles.down(y->q, r), k_across, at, x.h, s);
        tiles.product(ds, BC, tiles.down(y->d_o, r), v_across.from(0, at.j0), M, keys, s.HS,
                      false);
        tile_backward(weight, ds, at, y->delta + r);
        const real* d = tiles.weights(DWEIGHTS, ds, M);
        tiles.put_below(y->weights, above, tiles.weights(WEIGHTS, weight, M), M);
        tiles.put_below(y->ds, above, d, M);
        const auto d_left = tiles.weights_left(LEFT_TILE, d, M);
        tiles.product(y->dq + r * HP, HP, d_left, k.from(at.j0, 0), M, s.HS, keys, true);
    }

    // Takes the queries through keys j0 .. j0 + BC. Gathers the weights of all that see some of
    // these before it multiplies them with do and q for dv and dk: those sums are long then, and
    // take little time to begin and to end. Such queries follow each other.
    void keys_backward(Queries* y, int j0) const {
        const AttnShape& s = x.s;
        const int TP = padded_keys(s.T);
        const int keys = std::min<int>(BC, s.T - j0);
        int from = 0;               // the first of them
        int seen = 0;
        for (int r = 0; r < y->n; r += BR) {
            TileAt at;
            const int end = std::min<int>(r + BR, y->n);
            if (!tile_of(&at, s, y->q0 + r, y->q0 + end, j0)) { continue; }
            if (seen == 0) { from = r; }
            tile_gradients(y, at, r, seen);
            seen = end - from;
        }
        if (seen == 0) { return; }
        tiles.product(dv + j0, TP, tiles.from(y->do_columns, from), y->weights, s.HS, keys, seen,
                      true);
        tiles.product(dk + j0, TP, tiles.from(y->q_columns, from), y->ds, s.HS, keys, seen, true);
    }

    // Adds what queries q0 .. q0 + n of a head give to dk and dv, and writes their dq.
    void queries_backward(int q0, int n) const {
        const AttnShape& s = x.s;
        const int W = attn_row(s);
        const int HS = s.HS;
        const int HP = padded(HS);
        const long O = (long)s.NH * HS;
        acc do_o[MOST_QUERIES];
        queries_do_o(do_o, q0, n);                      // first: it has factors of its own
        Queries y = { q0, n,
                      tiles.rows(Q_ROWS, x.q(q0), W, n, HS),
                      tiles.columns(Q_COLUMNS, x.q(q0), W, n, HS),
                      tiles.rows(DO_ROWS, d_o(q0), O, n, HS),
                      tiles.columns(DO_COLUMNS, d_o(q0), O, n, HS),
                      tiles.tall(ALL_WEIGHTS, n), tiles.tall(ALL_DSCORES, n),
                      scratch(DQ, (long)n * HP), do_o };
        queries_begin(&y);
        for (int j0 = 0; j0 < s.T; j0 += BC) { keys_backward(&y, j0); }
        for (int r = 0; r < n; r++) { std::copy_n(y.dq + r * HP, HS, dx.q(q0 + r)); }
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
    // gradients of the extra key by the heads that made them: they are added in order at the end,
    // so that the number of threads changes no bit
    const bool logit = Bi::extra == LOGIT_EXTRA;
    const int k_width = logit ? 1 : HS;
    std::vector<acc> k_sums((size_t)s.B * s.NH * k_width), v_sums((size_t)s.B * s.NH * HS);
    #pragma omp parallel for schedule(dynamic)
    for (int bg = 0; bg < s.B * s.KV; bg++) {
        const int b = bg / s.KV;
        const int g = bg % s.KV;
        const Head<Bi, const real> x(qkv, extra, b, g * group, s);
        const Head<Bi, real> dx(dqkv, { NULL, NULL }, b, g * group, s);
        Tiles<real> tiles;
        const auto k_across = tiles.across(K_ACROSS, x.k(0), W, T, HS);
        const auto k = tiles.along(ROWS_ALONG, x.k(0), W, T, HS);
        const auto v_across = tiles.across(V_ACROSS, x.v(0), W, T, HS);
        acc* dk = scratch(DK, padded(HS) * TP);
        acc* dv = scratch(DV, padded(HS) * TP);
        std::fill_n(dk, HS * TP, acc(0));
        std::fill_n(dv, HS * TP, acc(0));
        for (int h = g * group; h < (g + 1) * group; h++) {
            const long at = head_at(b, 0, h, s);
            const long sums = (long)b * s.NH + (logit ? h : g * group);
            const HeadBackward<A, Bi, Pe> head = {
                tiles, { qkv, extra, b, h, s }, { dqkv, { NULL, NULL }, b, h, s }, dout + at,
                result.out + at, stat_of(result.stat, b, 0, h, s),
                dk, dv, k, k_across, v_across,
                { &k_sums[sums * k_width], &v_sums[((long)b * s.NH + g * group) * HS] } };
            for (int q0 = 0; q0 < T; q0 += MOST_QUERIES) {
                const int n = std::min<int>(MOST_QUERIES, T - q0);
                head.queries_backward(q0, n);
            }
        }
        tiles.transpose(dx.k(0), W, dk, TP, T, HS);
        tiles.transpose(dx.v(0), W, dv, TP, T, HS);
    }
    for (long i = 0; Bi::extra && i < s.B * s.NH; i++) {
        const int h = i % s.NH;
        const int learned = logit ? 1 : s.k_dims;
        add_times(attn_extra_k<Bi>(dextra.k, s, h), 1, &k_sums[i * k_width], learned);
        add_times(attn_extra(dextra.v, s, h / group), 1, &v_sums[i * HS], HS);
    }
    if (rope_table) { rope(dqkv, rope_table, -1, s); }
}
} // namespace cpu
#endif // CPU_ATTENTION_H
