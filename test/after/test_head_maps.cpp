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
void check_variant(const char* attn, const char* bias, const char* pe) {
    if constexpr (!(A::phi != PHI_NONE && Bi::extra)) { // CONFLICTS
        for (int kind = 0; kind < 3; kind++) { // plain; window and prefix; short
            const NaiveIn in = head_case<A, Bi, Pe>(attn, pe, kind);
            const AttnShape& s = in.s;
            const int skip = Bi::token;
            const bool logit = Bi::extra == LOGIT_EXTRA;
            const real* ks = in.kstar.empty() ? NULL : in.kstar.data();
            Numbers out((size_t)s.B * s.T * s.NH * s.HS), stat((size_t)s.B * s.NH * s.T * 2);
            ref::attention_forward<A, Bi, Pe>(out.data(), stat.data(), Numbers(in.qkv).data(),
                                              { ks, NULL }, NULL, s);
            const NaiveOut n = naive_attention(in);
            const long size = (long)s.T * (s.T + 1);
            const int h = 3, W = attn_row(s);
            std::vector<float> map(size), cosine(size), product(size);
            head_maps<A, Bi, Pe>(map.data(), cosine.data(), product.data(), in.qkv.data(),
                                 stat.data(), ks, h, s);
            double worst = 0, top = 1;
            for (int t = 0; t < s.T; t++) {
                for (int j = 0; j <= s.T; j++) {
                    const double *q = &in.qkv[(long)t * W + h * s.HS],
                                 *k = j ? &in.qkv[(long)(j - 1) * W + (s.NH + 1) * s.HS] : NULL;
                    const Numbers zero(s.HS);
                    if (!j) { k = ks && !logit ? ks + (s.bias_shared ? 0 : s.HS) : zero.data(); }
                    double qk = 0, qq = 0, kk = 0;
                    for (int x = 0; x < s.HS; x++) {
                        qk += q[x] * k[x];
                        qq += q[x] * q[x];
                        kk += k[x] * k[x];
                    }
                    const long at = (long)t * (s.T + 1) + j;
                    const double want = n.map[h * size + at];
                    top = std::max(top, fabs(want));
                    worst = std::max({ worst, fabs(map[at] - want),
                                       fabs(cosine[at] - (kk > 0 ? qk / sqrt(qq * kk) : 0)),
                                       fabs(product[at] - sqrt(qq * kk)) / 10 });
                }
            }
            CHECK(worst <= 3e-6 * top, "%s %s, kind %d: head_maps is off by %.3g", attn, bias, kind,
                  worst);  // it rounds q, k to float
            const std::vector<int> tokens = { 1, 2, s.T - skip - 1, s.T - skip };
            const std::vector<double> alphas = head_alphas<A, Bi, Pe>(
                tokens, in.qkv.data(), stat.data(), ks, skip, 0, h, s);
            for (size_t i = 0; i < tokens.size(); i++) {
                const bool proxy = !attn_sums_to_one<A>(s.alpha);
                check_near(alphas[i], alpha_of(&n.map[h * size], s.T, skip, tokens[i], proxy), 3e-6,
                           "%s %s, kind %d: alpha of token %d", attn, bias, kind, tokens[i]);
            }
        }
    }
}
int main() {
    omp_set_num_threads(1);
    #define X_BIAS(bias, ...) check_variant<A, Bias_##bias, Pe_nope>(attn, #bias, "nope");
    auto every_bias = [](auto a, const char* attn) {
        typedef decltype(a) A;
        BIAS_VARIANTS(X_BIAS)
        check_variant<A, Bias_none, Pe_alibi>(attn, "none", "alibi");
    };
    #define X_ATTN(attn, ...) CASE(#attn) { every_bias(Attn_##attn(), #attn); }
    ATTN_VARIANTS(X_ATTN)
    return check_done();
}
