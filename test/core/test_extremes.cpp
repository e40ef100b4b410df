/*
test_extremes.cpp -- float, as it trains, where arithmetic ends: logits near +-120 and mixed,
rows whose weights all underflow, one token. For every ATTN x BIAS: nothing is infinite or NaN,
forward or backward, no row weighs more than its alpha where it is normalized,
and where float can hold the weights they agree with naive.h in double.
*/
#include "../../cpu/attention.h"
#include "../check.h"
#include "../naive.h"

static double worst_of(const std::vector<float>& x) {
    double w = 0;
    for (float v : x) { w = v - v == 0 ? std::max(w, fabs((double)v)) : INFINITY; }
    return w;
}

// scores of every query: level, or for the mixed ones level at key 0 and -level at the rest
struct Extreme { const char* name; double level; bool mixed; float p; bool exact; };
static const Extreme EXTREMES[] = {
    { "+120",            120,  false, 2,    true },
    // weights underflow to rows of zero mass, but for softmax
    { "-120",            -120, false, 2,    false },
    { "+-120",           120,  true,  2,    false },
    { "0",               0,    false, 2,    true },  // rows of zero mass for the signed
    { "-58",             -58,  false, 2,    false }, // w holds, w^p does not
    { "-25, p 4",        -25,  false, 4,    false },
    { "-85, p 0.5",      -85,  false, 0.5f, true },
};
template <class A, class Bi> void check_variant(const char* attn, const char* bias) {
    if constexpr (!(A::phi != PHI_NONE && Bi::extra)) { // CONFLICTS
        for (auto& e : EXTREMES) {
            for (int T : { 1, 35 }) {
                AttnShape s = whole({ 1, T, 2, 1, 4, 0, 0, 0, 4, e.p, 0.5f });
                if (A::clip != NO_CLIP) { s.clip = e.p / 16; }
                const int W = attn_row(s);
                const double r = sqrt(fabs(e.level) / 2); // q . k / sqrt(4) = 4 r r / 2
                Numbers wide = random_numbers(T * W, 1, 1);
                for (int t = 0; t < T; t++) {
                    for (int i = 0; i < W; i++) {
                        const double sign = e.level < 0 || (e.mixed && t > 0) ? -1 : 1,
                                     wobble = 1 + 0.001 * wide[t * W + i];
                        if (i < 8) { wide[t * W + i] = r * wobble; }
                        else if (i < 12) { wide[t * W + i] = sign * r * wobble; }
                    }
                }
                std::vector<float> qkv(wide.begin(), wide.end()), ks(Bi::learn_k ? 4 : 0, r),
                    vs(Bi::learn_v ? 4 : 0, 1);
                for (auto& k : ks) { k = e.level < 0 ? -r : r; }
                std::vector<float> out(T * 8), stat(T * 4), dqkv(T * W), dks(ks.size()),
                    dvs(vs.size()), dout(T * 8);
                const Numbers wide_dout = random_numbers(T * 8, 1, 2);
                for (int i = 0; i < T * 8; i++) { dout[i] = wide_dout[i]; }
                float *k = ks.empty() ? NULL : ks.data(), *v = vs.empty() ? NULL : vs.data();
                cpu::attention_forward<A, Bi, Pe_nope>(out.data(), stat.data(), qkv.data(),
                                                       { k, v }, NULL, s);
                cpu::attention_backward<A, Bi, Pe_nope>(
                    dqkv.data(), { k ? dks.data() : NULL, v ? dvs.data() : NULL }, dout.data(),
                    { out.data(), stat.data() }, qkv.data(), { k, v }, NULL, s);
                const std::string what = strf("%s %s, logits %s, T=%d", attn, bias, e.name, T);
                CHECK(worst_of(out) < 1e6, "%s: out reaches %g", what.c_str(), worst_of(out));
                CHECK(worst_of(dqkv) < 1e12 && worst_of(dks) < 1e12 && worst_of(dvs) < 1e12,
                      "%s: gradients reach %g", what.c_str(), worst_of(dqkv));
                if (!A::is_signed && A::Z != Z_ONE) { // A_j <= alpha, T + 1 of them, and |v| < 4
                    CHECK(worst_of(out) <= (T + 1) * 0.5 * 4, "%s: a normalized row reaches %g",
                          what.c_str(), worst_of(out));
                }
                if (e.exact || A::exp_family) {
                    NaiveIn in = { naive_attn<A>(attn), "nope", naive_pe<Pe_nope>, Bi::extra,
                                   Numbers(qkv.begin(), qkv.end()), Numbers(ks.begin(), ks.end()),
                                   Numbers(vs.begin(), vs.end()), s };
                    const NaiveOut n = naive_attention(in);
                    double off = 0, top = 1e-30;
                    for (int i = 0; i < T * 8; i++) {
                        off = std::max(off, fabs(out[i] - n.out[i]));
                        top = std::max(top, fabs(n.out[i]));
                    }
                    // 120 in float is 120 +- 4e-6, so a weight is good to about 1e-5,
                    // and a sum of them as well
                    CHECK(off <= 1e-4 * top + 1e-30, "%s: out is off by %g of %g", what.c_str(),
                          off, top);
                }
            }
        }
    }
}
int main() {
    omp_set_num_threads(1);
    #define X_BIAS(bias, ...) check_variant<A, Bias_##bias>(attn, #bias);
    auto every_bias = [](auto a, const char* attn) { typedef decltype(a) A; BIAS_VARIANTS(X_BIAS) };
    #define X_ATTN(attn, ...) CASE(#attn) { every_bias(Attn_##attn(), #attn); }
    ATTN_VARIANTS(X_ATTN)
    return check_done();
}
