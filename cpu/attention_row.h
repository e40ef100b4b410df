/*
attention_row.h -- attention of one query, as `generate` and `score` need it: the keys and values of
the rows before it are in a cache. Start with attention_row.
*/
#ifndef CPU_ATTENTION_ROW_H
#define CPU_ATTENTION_ROW_H
#include "attention.h"

namespace cpu {
// One head of the query at position t, with the keys and values of a cache. Column j <= t is token
// j; column t + 1 is the extra key. R: where host code can read
template <class A, class Bi, class Pe, class R> struct CachedHead : Head<Bi, const R> {
    typedef Head<Bi, const R> Rows;
    using Rows::s;
    float slope;                    // of PE's bias
    const R* query;                 // (HS)
    const R* keys;                  // of token 0; tokens are `step` apart
    const R* values;                // likewise
    long step;
    int t;

    acc score(int j) const {
        const R* key = j > t ? Rows::k(j) : keys + j * step;
        return attn_score<A, Pe>(*this, dot(query, key, s.HS), slope, t, j);
    }

    // Returns the value of column j, or NULL for zero.
    const R* value(int j) const { return j > t ? Rows::v(j) : values + j * step; }

    // Computes out (HS).
    void attend(R* out) const {
        const int HS = s.HS;
        acc* scores = scratch(SCORES, s.T + 1);
        acc* o = scratch(OUT, HS);

        acc m = attn_initial_max<A, acc>();
        for (int j = 0; j <= s.T; j++) {
            if (!Rows::sees(t, j)) { continue; }
            scores[j] = score(j);
            m = max_(m, scores[j]);
        }

        acc sum = 0;
        std::fill_n(o, HS, acc(0));
        for (int j = 0; j <= s.T; j++) {
            if (!Rows::sees(t, j)) { continue; }
            const acc w = attn_term<A>(scores[j], m);
            sum += attn_mass<A>(w, acc(s.p));
            add_times(o, attn_share<A>(w), value(j), HS);
        }

        const AttnStat<acc> st = attn_stat<A>(m, sum, acc(s.p), attn_alpha_of<A, acc>(s, t));
        const acc factor = attn_factor<A>(st);
        if (A::clip != NO_CLIP) {
            std::fill_n(o, HS, acc(0));
            for (int j = 0; j <= s.T; j++) {
                if (!Rows::sees(t, j)) { continue; }
                add_times(o, attn_weight<A>(scores[j], st, s.clip), value(j), HS);
            }
        }
        for (int i = 0; i < HS; i++) {
            out[i] = R(A::clip == NO_CLIP ? o[i] * factor : o[i]);
        }
    }
};

// Computes out (NH HS) of one query q (NH HS) at position t, from the keys and values
// kv (t + 1, 2 KV HS) of positions 0..t. The same as row t of attention_forward, with all scores of
// the row at hand.
template <class A, class Bi, class Pe, class R>
void attention_row(R* out, const R* q, const R* kv, ExtraKey<const R> extra, int t, AttnShape s) {
    const long kv_width = (long)s.KV * s.HS;
    s.T = t + 1;
    #pragma omp parallel for if ((long)t * s.NH * s.HS > 1 << 16)
    for (int h = 0; h < s.NH; h++) {
        const R* keys = kv + h / (s.NH / s.KV) * s.HS;
        const CachedHead<A, Bi, Pe, R> head = { { NULL, extra, 0, h, s }, pe_slope<Pe>(s, h),
                                                q + h * s.HS, keys,
                                                keys + kv_width, 2 * kv_width, t };
        head.attend(out + h * s.HS);
    }
}
} // namespace cpu
#endif // CPU_ATTENTION_ROW_H
