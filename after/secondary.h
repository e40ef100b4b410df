/*
secondary.h -- secondary sinks (Wong et al., arXiv:2512.22213): tokens whose h an FFN turns into the
direction of token 1's, and that get attention for some layers. Start with secondary_sinks.
*/
#ifndef SECONDARY_H
#define SECONDARY_H
#include <array>
#include <map>
#include "sequences.h"

// How like token 1 every token is. Token t of sequence b, both from 0, is at b T + t.
struct Likeness {
    std::vector<Vector> cosine;                  // (L, n T) of h after layer l and that of token 1;
                                                 // 0 where token 1 is not massive
    std::vector<Vector> alpha;                   // (L, n T) what layer l gives it, the mean of the
                                                 // heads; 0: it has no attention
};

// Adds h after layer l of the batch that begins with sequence `from`. Token 1 is massive if its h
// is three times as long as the mean.
inline void add_likeness(Likeness* a, const Model* m, const HostRows& h, int l, int from) {
    const int skip = sink_rows(m);
    const int T = m->T - skip;
    for (int b = 0; b < m->B; b++) {
        const auto row = [&](int t) { return h.row((long)b * m->T + skip + t); };
        Tally lengths;
        for (int t = 0; t < T; t++) { lengths.add(length(row(t))); }
        const Vector first = row(0);
        if (length(first) <= 3 * lengths.as(MEAN)) { continue; }
        for (int t = 1; t < T; t++) {
            const Vector x = row(t);
            a->cosine[l][(long)(from + b) * T + t] = dot(x, first) / length(x) / length(first);
        }
    }
}

// Tokens of one id that were like token 1 after the same layers.
struct Secondary { Tally alpha, cosine; };

// Their id, the layer of birth and that of death: the first and the last after which they were.
typedef std::array<int, 3> Lifetime;

// Finds the tokens with a cosine above `least` that another layer reads. alpha: what those give it.
inline std::map<Lifetime, Secondary> secondary_sinks(const Likeness& a, const Sequences& text,
                                                     double least) {
    std::map<Lifetime, Secondary> found;
    for (long at = 0; at < (long)text.n * text.T; at++) {
        Lifetime life = { text.id(at / text.T, at % text.T), -1, -1 };
        Secondary s;
        for (int l = 0; l < (int)a.cosine.size() - 1; l++) {
            if (a.cosine[l][at] <= least) { continue; }
            s.cosine.add(a.cosine[l][at]);
            s.alpha.add(a.alpha[l + 1][at]);
            if (s.alpha.n == 1) { life[1] = l; }
            life[2] = l;
        }
        if (s.alpha.n == 0) { continue; }
        found[life].cosine.add(s.cosine.as(MEAN));
        found[life].alpha.add(s.alpha.as(MEAN));
    }
    return found;
}
#endif // SECONDARY_H
