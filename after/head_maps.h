/*
head_maps.h -- maps of one head on one sequence, in host memory: all weights, cosines and products
of norms, and the alpha of any token.
*/
#ifndef HEAD_MAPS_H
#define HEAD_MAPS_H
#include "../metrics.cuh"

// A query and a key: their product, and the squares of their lengths.
struct QueryKey {
    double qk = 0;
    double qq = 0;
    double kk = 0;
};

// A head whose tensors are of any type, with its statistics.
template <class A, class Bi, class Pe, class R, class S>
struct HostHead : Head<Bi, const R> {
    typedef Head<Bi, const R> Rows;
    using Rows::s, Rows::h, Rows::q, Rows::k;
    const AttnStat<S>* stat;       // (T)

    // Head h of sequence b; qkv, stat and kstar are those of all.
    HostHead(const R* qkv, const S* stat, const R* kstar, int b, int h, AttnShape s)
        : Rows(qkv, { kstar, NULL }, b, h, s), stat(stat_of(stat, b, 0, h, s)) {}

    // Returns the dot product and the squared lengths of query t and the key of column j.
    QueryKey query_key(int t, int j) const {
        const R* query = q(t);
        const R* key = k(j);
        QueryKey o;
        for (int i = 0; i < s.HS; i++) {
            const double a = (float)query[i];
            const double b = key ? (float)key[i] : 0.0f;
            o.qk += a * b;
            o.qq += a * a;
            o.kk += b * b;
        }
        return o;
    }

    // Returns A of query t and column j, whose dot product is qk.
    double weight(double qk, int t, int j) const {
        if (!Rows::sees(t, j)) { return 0; }
        const double score = attn_score<A, Pe>(*this, qk, pe_slope<Pe>(s, h), t, j);
        const AttnStat<double> st = { stat[t].max_or_factor, stat[t].ln_Z_or_sum };
        return attn_weight<A>(score, st, s.clip);
    }

    // Makes map, cosine and product (T, T + 1), column 0 the extra key: A; the cosine of q_t and
    // k_j; the product of their norms (Figure 2, bottom). What a query does not see is 0 in A only.
    void maps(float* map, float* cosine, float* product) const {
        const int columns = s.T + 1;
        for (int t = 0; t < s.T; t++) {
            for (int j = 0; j < columns; j++) {
                const long at = (long)t * columns + (j + 1) % columns;
                const QueryKey x = query_key(t, j);
                const double norms = sqrt(x.qq * x.kk);
                map[at] = weight(x.qk, t, j);
                product[at] = norms;
                cosine[at] = x.qq > 0 && x.kk > 0 ? x.qk / norms : 0;
            }
        }
    }

    // Returns alpha_k, or the proxy where rows do not sum to 1, for any tokens k, as HeadMetrics
    // does for the first METRIC_K; skip = 1 if row 0 is a sink token.
    std::vector<double> alphas(const std::vector<int>& tokens, int skip) const {
        const bool sums_to_one = attn_sums_to_one<A>(s.alpha);
        std::vector<double> alpha(tokens.size());
        for (int t = skip; t < s.T; t++) {
            const auto size = [&](int j) { return fabs(weight(query_key(t, j).qk, t, j)); };
            double all = 1;
            if (!sums_to_one) {
                all = size(s.T);
                for (int j = 0; j < s.T; j++) { all += size(j); }
            }
            if (all <= 0) { continue; }

            for (size_t i = 0; i < tokens.size(); i++) {
                const int k = tokens[i];
                const int queries = s.T - skip - k + 1;
                const int j = k - 1 + skip;
                if (j <= t) { alpha[i] += size(j) / all / queries; }
            }
        }
        return alpha;
    }
};
#endif // HEAD_MAPS_H
