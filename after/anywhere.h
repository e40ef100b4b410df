/*
anywhere.h -- probe --anywhere: where attention goes besides token 1, by place and by token; what a
head's sink writes; heads that write little; channels that are large at every token. Start with
anywhere_measure. Weights are measured as shares of their row; places count from 0.
*/
#ifndef ANYWHERE_H
#define ANYWHERE_H
#include "anatomy.h"
#include "secondary.h"
#include "sink_at.h"

// The row of query t: the share of every token, then of the extra key.
struct RowShares {
    const AnyHead& head;
    bool rotary;                                 // its layer turns q and k
    int t, first;                                // first: the place of token 1
    Vector shares;

    double share(int j) const { return j < first ? NAN : shares[j]; }

    // Returns the share of the first token that a window shows, once that is not token 1.
    double first_shown() const {
        const int j = t - head.s.window + 1;
        return head.s.window && j > first ? shares[j] : NAN;
    }

    // Counts the keys, the largest shares first, that hold a part of the row.
    double keys_of(double part) const {
        Vector sorted = shares;
        std::sort(sorted.rbegin(), sorted.rend());
        size_t n = 0;
        while (part > 0 && n < sorted.size()) { part -= sorted[n++]; }
        return part > 0 ? NAN : n;
    }

    // Returns the largest score, and ln of the sum of exp of all: softmax keeps them.
    double score() const {
        const bool softmax = Attn::exp_family && Attn::Z == Z_SUM;
        return softmax ? head.stat[t].max_or_factor : NAN;
    }
    double lse() const { return score() + head.stat[t].ln_Z_or_sum + log(head.s.alpha); }

    // Returns xi of the paper's Proposition 4: |q| |k| as scores are scaled. NaN if not rotary.
    double xi() const {
        const QueryKey own = head.query_key(t, t);
        return rotary ? sqrt(own.qq * own.kk) * head.s.scale : NAN;
    }

    // Returns what Proposition 4 proves of equal tokens: no weight is above e^2xi / (e^2xi + other
    // keys). Of the last query; NaN if it sees one key, whose weight is 1 whatever xi.
    double bound() const {
        int others = -1;
        for (int j = 0; j <= t; j++) { others += attn_sees(head.s, t, j); }
        return t == head.s.T - 1 && others > 0 ? 1 / (1 + others * exp(-2 * xi())) : NAN;
    }

    // Compares the row with what is proved of equal tokens. A weight is e^g / sum e^g, g what PE
    // adds: returns how far one is off. If rotary, returns the largest over its bound.
    double proposition() const {
        if (rotary) { return *std::max_element(shares.begin(), shares.end()) / bound(); }
        Vector terms;
        Tally all;
        for (int j = 0; j <= t; j++) {
            const float slope = pe_slope<Pe>(head.s, head.h);
            const double g = attn_bias<Attn, Pe, double>(head.s, t - j, slope);
            terms.push_back(attn_sees(head.s, t, j) ? exp(g) : 0);
            all.add(terms[j]);
        }
        Tally off;
        for (int j = 0; j <= t; j++) { off.add(fabs(shares[j] - terms[j] / all.sum)); }
        return off.most;
    }
};

// What is measured of a head, a row each: the field, which is its key in --json; how the numbers of
// its queries or sequences become one, and on the screen those of a layer's heads; the number of
// query r; what it is. NaN adds nothing.
#define ANYWHERE(X) \
    X(own,         MEAN,     r.share(t),       "attention of a token to itself") \
    X(previous,    MEAN,     r.share(t - 1),   "to the token before it") \
    X(window,      MEAN,     r.first_shown(),  "to the first token that a window shows") \
    X(keys,        MEAN,     r.keys_of(0.9),   "how many keys hold 90% of a row") \
    X(score,       LARGEST,  r.score(),        "the largest score") \
    X(lse,         LARGEST,  r.lse(),          "ln of the sum of exp of a row's scores") \
    X(output,      SMALLEST, NAN,              "norm of the head's output, over the mean of its layer") \
    X(sinks,       MEAN,     NAN, "1 for a sequence in whose first half some token is its sink") \
    X(at_first,    MEAN,     NAN,              "1 for a sink that is token 1") \
    X(value,       MEAN,     NAN,              "norm of the sink's v, over the mean of the others") \
    X(rank,        MEAN,     NAN, "how many directions share the values of its sinks, over all sequences") \
    X(xi,          LARGEST,  a.equal ? r.xi() : NAN, "one token repeated: xi of Proposition 4,") \
    X(bound,       LARGEST,  a.equal ? r.bound() : NAN, "its bound at the last query,") \
    X(proposition, LARGEST,  a.equal ? r.proposition() : NAN, \
      "and a row against Propositions 1 to 3, or that query against 4")

struct AnyTally {
    #define X(field, ...) Tally field;
    ANYWHERE(X)
    #undef X
    std::vector<Vector> values;                  // of its sinks

    // Tells what its sinks write: 0 it has none in most sequences, 1 next to nothing (NOP), 2 the
    // same everywhere (broadcast), 3 something else.
    int kind() const {
        if (sinks.as(MEAN) <= 0.5) { return 0; }
        if (value.as(MEAN) < 0.5) { return 1; }
        return rank.most < 2 ? 2 : 3;
    }
};

// Tokens of one id, from token 2 on.
struct IdSums { double count = 0, given = 0, queries = 0; };

struct Anywhere {
    Sequences text;
    double eps;                                  // of a sink
    bool equal;                                  // the propositions speak of these rows
    std::vector<std::vector<AnyTally>> layers;   // with attention, (L, NH)
    std::vector<Vector> large[2];                // (L, C): in what part of all tokens, and of the
                                                 // tokens 1, a channel of h stands out
    std::map<int, IdSums> ids;
    Likeness like;
};

static const double STANDS_OUT = 6;              // an entry of h over the median of its row

// Adds the queries of a head on one sequence, and its sink. Returns what each token got.
inline Vector add_head(const Anywhere& a, const AnyHead& head, bool rotary, int first,
                       AnyTally* tally) {
    const int T = head.s.T;
    Vector given(T);
    for (int t = first; t < T; t++) {
        RowShares r = { head, rotary, t, first, Vector(T + 1) };
        double all = FLT_MIN;
        for (int j = 0; j <= T; j++) {
            if (j < T && !attn_sees(head.s, t, j)) { continue; }
            r.shares[j] = fabs(head.weight(head.query_key(t, j).qk, t, j));
            all += r.shares[j];
        }
        for (double& x : r.shares) { x /= all; }
        #define X(field, summary, number, ...) tally->field.add(number);
        ANYWHERE(X)
        #undef X
        for (int j = first; j <= t; j++) { given[j] += r.shares[j]; }
    }

    const auto alpha = [&](int j) { return given[j] / (T - j); };
    const auto value = [&](int j) { return Vector(head.v(j), head.v(j) + head.s.HS); };
    int sink = first;
    for (int j = first; j < (T + first + 1) / 2; j++) {
        if (alpha(j) > alpha(sink)) { sink = j; }
    }
    tally->sinks.add(alpha(sink) > a.eps);
    if (alpha(sink) <= a.eps) { return given; }
    Tally others;
    for (int j = first; j < T; j++) { others.add(j == sink ? NAN : length(value(j))); }
    tally->at_first.add(sink == first);
    tally->value.add(length(value(sink)) / others.as(MEAN));
    tally->values.push_back(value(sink));
    return given;
}

// Adds what layer l gave the tokens of the batch that begins with sequence `from`: given (NH) of
// (B, T).
inline void add_given(Anywhere* a, const Model* m, int l, int from,
                      const std::vector<Vector>& given) {
    const int first = sink_rows(m);
    for (int n = 0; n < rows(m); n++) {
        const int token = n % m->T - first;
        if (token < 1) { continue; }
        const int b = from + n / m->T;
        IdSums& sums = a->ids[a->text.id(b, token)];
        sums.count += 1.0 / a->layers.size();
        const double queries = a->text.T - token;
        double& alpha = a->like.alpha[l][(long)b * a->text.T + token];
        for (auto& head : given) {
            sums.given += head[n];
            sums.queries += queries;
            alpha += head[n] / queries / given.size();
        }
    }
}

// Adds layer l of the loaded batch.
inline void add_layer_attention(Anywhere* a, const Model* m, int l, int from) {
    const AttentionHost x = attention_host(m, l);
    const AttnShape& s = x.s;
    const int first = sink_rows(m);
    const std::vector<real> out = copy_to_host(act_out(m, l), rows(m) * m->sizes.q_width);
    std::vector<AnyTally>& heads = a->layers[m->sizes.attending(l)];
    std::vector<Vector> given(s.NH);
    #pragma omp parallel for schedule(dynamic)
    for (int h = 0; h < s.NH; h++) {
        for (int b = 0; b < s.B; b++) {
            const AnyHead head = x.head(b, h);
            const Vector got = add_head(*a, head, layer_rope(m, l), first, &heads[h]);
            given[h].insert(given[h].end(), got.begin(), got.end());
            for (int t = first; t < s.T; t++) {
                const real* o = &out[head_at(b, t, h, s)];
                heads[h].output.add(length(Vector(o, o + s.HS)));
            }
        }
    }
    add_given(a, m, l, from, given);
}

// Adds the channels that stand out after layer l.
inline void add_channels(Anywhere* a, const Model* m, const HostRows& h, int l) {
    for (int n = 0; n < rows(m); n++) {
        const int token = n % m->T - sink_rows(m);
        if (token < 0) { continue; }
        const Vector x = h.row(n);
        Vector sizes;
        for (double v : x) { sizes.push_back(fabs(v)); }
        std::nth_element(sizes.begin(), sizes.begin() + h.C / 2, sizes.end());
        for (long c = 0; c < h.C; c++) {
            if (fabs(x[c]) <= STANDS_OUT * sizes[h.C / 2]) { continue; }
            a->large[0][l][c] += 1.0 / a->text.n / a->text.T;
            a->large[1][l][c] += (token == 0) / (double)a->text.n;
        }
    }
}

// Returns how many directions share some vectors: the participation ratio of the eigenvalues of
// sum x x'; 1 if all lie along one line.
inline double rank_of(const std::vector<Vector>& vectors) {
    double trace = 0;
    double squares = 0;
    for (auto& x : vectors) {
        trace += dot(x, x);
        for (auto& y : vectors) { squares += dot(x, y) * dot(x, y); }
    }
    return trace * trace / squares;
}

// Ends the sums of a layer's heads.
inline void end_heads(std::vector<AnyTally>* heads) {
    Tally lengths;
    for (auto& head : *heads) { lengths.add(head.output.as(MEAN)); }
    for (auto& head : *heads) {
        const double length = head.output.as(MEAN);
        head.output = Tally();
        head.output.add(length / lengths.as(MEAN));
        head.rank.add(rank_of(head.values));
    }
}

// Tells whether Appendix B.1 of the paper speaks of a model: softmax of the tokens alone, and
// positions that are not in the embedding.
inline bool propositions_hold(const Model* m) {
    const bool clips = Attn::clip != NO_CLIP || Attn::capped;
    const bool softmax = Attn::exp_family && Attn::Z == Z_SUM && !clips;
    const bool tokens_alone = Bias::extra == NO_EXTRA && !sink_rows(m) && !m->arch.prefix;
    return softmax && tokens_alone && !m->sizes.pe.absolute && !m->sizes.pe.learnable;
}

// Measures all of it. equal: every sequence is one token, repeated.
inline Anywhere anywhere_measure(Model* m, const Sequences& text, double eps, bool equal) {
    const Sizes& sizes = m->sizes;
    Anywhere a = { text, eps, equal && propositions_hold(m), {}, {}, {}, {} };
    a.layers.assign(sizes.attending(sizes.L), std::vector<AnyTally>(sizes.NH));
    for (auto& large : a.large) { large.assign(sizes.L, Vector(sizes.C)); }
    a.like.cosine.assign(sizes.L, Vector((long)text.n * text.T));
    a.like.alpha = a.like.cosine;
    each_layer(m, text, [&](int first, int l) {
        if (l < 0) { return; }
        working_layer(l, sizes.L);
        if (sizes.has_attention(l)) { add_layer_attention(&a, m, l, first); }
        const HostRows h(m, act_x(m, 2 * l + 2));
        add_channels(&a, m, h, l);
        add_likeness(&a.like, m, h, l, first);
    });
    for (auto& heads : a.layers) { end_heads(&heads); }
    return a;
}

// Prints what --anywhere asks of a probe of sequences in (n, T + 1), and adds it to *o.
void probe_anywhere(Model* m, const Flags& f, const ProbeInput& in, int T, JsonObject* o);
#endif // ANYWHERE_H
