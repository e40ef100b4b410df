/*
test_head_maps.cpp -- maps of one head and the alpha of any token, for every ATTN x BIAS, against the T x T map of
naive.h.
*/
#define REAL double
#include "../../after/head_maps.h"
#include "../check.h"
#include "../head_case.h"
using ref::real;

template <class A, class Bi, class Pe>
void check_variant(const char* attn, const char* bias, const HeadCase<A, Bi, Pe>& at, int kind) {
    const AttnShape& s = at.s;
    const Numbers &qkv = at.in.qkv, &maps = at.naive.map;
    const real* ks = at.kstar;
    const bool logit = Bi::extra == LOGIT_EXTRA;
    const long size = (long)s.T * (s.T + 1);
    const int h = 3, W = attn_row(s);
    std::vector<float> map(size), cosine(size), product(size);
    const HostHead<A, Bi, Pe, double, double> head(qkv.data(), at.stat.data(), ks, 0, h, s);
    head.maps(map.data(), cosine.data(), product.data());
    double worst = 0, top = 1;
    for (int t = 0; t < s.T; t++) {
        for (int j = 0; j <= s.T; j++) {
            const double *q = &qkv[(long)t * W + h * s.HS],
                         *k = j ? &qkv[(long)(j - 1) * W + (s.NH + 1) * s.HS] : NULL;
            const Numbers zero(s.HS);
            if (!j) { k = ks && !logit ? ks + (s.bias_shared ? 0 : s.HS) : zero.data(); }
            double qk = 0, qq = 0, kk = 0;
            for (int x = 0; x < s.HS; x++) {
                qk += q[x] * k[x];
                qq += q[x] * q[x];
                kk += k[x] * k[x];
            }
            const long here = (long)t * (s.T + 1) + j;
            const double want = maps[h * size + here];
            top = std::max(top, fabs(want));
            worst = std::max({ worst, fabs(map[here] - want),
                               fabs(cosine[here] - (kk > 0 ? qk / sqrt(qq * kk) : 0)),
                               fabs(product[here] - sqrt(qq * kk)) / 10 });
        }
    }
    CHECK(worst <= 3e-6 * top, "%s %s, kind %d: maps are off by %.3g", attn, bias, kind,
          worst);  // it rounds q, k to float
    const std::vector<int> tokens = { 1, 2, s.T - at.skip - 1, s.T - at.skip };
    const std::vector<double> alphas = head.alphas(tokens, at.skip);
    for (size_t i = 0; i < tokens.size(); i++) {
        const bool proxy = !attn_sums_to_one<A>(s.alpha);
        check_near(alphas[i], alpha_of(&maps[h * size], s.T, at.skip, tokens[i], proxy), 3e-6,
                   "%s %s, kind %d: alpha of token %d", attn, bias, kind, tokens[i]);
    }
}
int main() {
    omp_set_num_threads(1);
    check_every_variant();
    return check_done();
}
