/*
attention_row.h -- attention of one query, as `generate` and `score` need it: the keys and values of
the rows before it are in a cache. Start with attention_row.
*/
#ifndef CPU_ATTENTION_ROW_H
#define CPU_ATTENTION_ROW_H
#include "attention.h"

namespace cpu {
// One head of the query at position t. Column j <= t is token j; column t + 1 is the extra one of
// BIAS. R: where host code can read
template <class A, class Bi, class Pe, class R> struct CachedHead {
    const R* query;                 // (HS)
    const R* keys;                  // of token 0; tokens are `step` apart
    const R* values;                // likewise
    ExtraKey<const R> star;       // of this head
    long step;
    int t;
    float slope;                    // of PE's bias
    AttnShape s;

    int columns() const { return t + 2; }
    bool is_extra(int j) const { return j > t; }

    // Tells whether the query sees column j.
    bool sees(int j) const {
        if (is_extra(j)) { return Bi::column != NO_COLUMN; }
        return attn_sees(s, t, j);
    }

    // Returns the score of column j.
    acc score(int j) const {
        if (is_extra(j)) { return star_score<A, Bi>(query, star.k, s); }
        const acc scaled = dot(query, keys + j * step, s.HS) * acc(s.scale);
        const acc bias = attn_bias<A, Pe, acc>(s, t - j, slope);
        return attn_capped<A>(scaled + bias, acc(s.cap));
    }

    // Returns the value of column j, or NULL for zero.
    const R* value(int j) const {
        if (is_extra(j)) { return star.v; }
        return values + j * step;
    }
};

// Computes out (HS) of one head.
template <class A, class Bi, class Pe, class R>
void head_row(R* out, const CachedHead<A, Bi, Pe, R>& head) {
    const AttnShape& s = head.s;
    const int HS = s.HS;
    const acc p = s.p;
    acc* score = scratch(SCORES, head.columns());
    acc* o = scratch(OUT, HS);

    acc m = attn_initial_max<A, acc>();
    for (int j = 0; j < head.columns(); j++) {
        if (!head.sees(j)) { continue; }
        score[j] = head.score(j);
        m = max_(m, score[j]);
    }

    acc sum = 0;
    std::fill_n(o, HS, acc(0));
    for (int j = 0; j < head.columns(); j++) {
        if (!head.sees(j)) { continue; }
        const acc w = attn_term<A>(score[j], m);
        const acc share = attn_share<A>(w);
        sum += attn_mass<A>(w, p);
        add_times(o, share, head.value(j), HS);
    }

    acc stat[2];
    const acc factor = attn_stat<A>(stat, m, sum, p, attn_alpha_of<A, acc>(s, head.t));
    for (int i = 0; i < HS; i++) {
        out[i] = R(o[i] * factor);
    }
}

// Computes out (NH HS) of one query q (NH HS) at position t, from the keys and values
// kv (t + 1, 2 KV HS) of positions 0..t. The same as row t of attention_forward, with all scores of
// the row at hand.
template <class A, class Bi, class Pe, class R>
void attention_row(R* out, const R* q, const R* kv, ExtraKey<const R> star, int t, AttnShape s) {
    #pragma omp parallel for if ((long)t * s.NH * s.HS > 1 << 16)
    for (int h = 0; h < s.NH; h++) {
        const int g = h / (s.NH / s.KV);
        CachedHead<A, Bi, Pe, R> head;
        head.query = q + h * s.HS;
        head.keys = kv + g * s.HS;
        head.values = head.keys + s.KV * s.HS;
        head.star = { attn_column<Bi>(star.k, s, h), attn_star(star.v, s, g) };
        head.step = 2 * s.KV * s.HS;
        head.t = t;
        head.slope = pe_slope<Pe>(s, h);
        head.s = s;
        head_row(out + h * s.HS, head);
    }
}
} // namespace cpu
#endif // CPU_ATTENTION_ROW_H
