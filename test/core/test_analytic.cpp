/*
test_analytic.cpp -- what Appendix B.1 of Gu et al. 2024 proves of one token repeated T times,
on a small random model in double. The Makefile compiles it once for each PE.

    positions in the score or nowhere     all hidden states are equal, at every layer (Eq.
                                          10-17), and the attention weights are
        nope                              1/t exactly (Proposition 1)
        relative, alibi                   e^g(t-i) / sum_j e^g(t-j) (Eq. 20, 22)
        rotary                            at most e^2xi / (e^2xi + t - 1), xi = |q| |k| / sqrt(HS)
                                          (Eq. 28), and not uniform; a layer that does not rotate
                                          is as nope
    positions in the embedding            the equality breaks (absolute, learnable)
*/
#include "../model_unit.h"
#include "../check.h"

#if HAS_AFTER
// By hand: |q| |k| = .4, q . k = 0, T 64: every weight is 1/64, the last query's bound is
// e^.8 / (e^.8 + 63) = 2.22554 / 65.22554 = .0341207, and 1/64 is .457933 of it. Earlier queries,
// whose bounds are looser or tighter, do not count.
static void test_bound() {
    for (int window : { 0, 1 }) {
        AttnShape s = AttnShape();
        s.B = s.NH = s.KV = s.scale = s.alpha = 1;
        s.T = 64;
        s.HS = s.k_dims = 2;
        s.window = window;
        std::vector<real> qkv;
        for (int t = 0; t < s.T; t++) { qkv.insert(qkv.end(), { 0.5, 0, 0, 0.8, 1, 1 }); }
        const std::vector<acc> stat(2 * s.T);
        Anywhere a = { { NULL, 1, s.T }, 0.3, true, {}, {}, {} };
        AnyTally head;
        add_head(a, AnyHead(qkv.data(), stat.data(), NULL, 0, 0, s), true, 0, &head);
        check_near(head.xi.as(LARGEST), 0.4, 1e-6, "xi by hand");
        const double bound = head.bound.as(LARGEST), part = head.proposition.as(LARGEST);
        if (window) {
            CHECK(std::isnan(bound) && std::isnan(part), "one key: %g of %g", part, bound);
            continue;
        }
        check_near(bound, 0.0341207, 1e-6, "the bound by hand");
        check_near(part, 0.457933, 1e-5, "a weight over its bound by hand");
    }
}
#endif

int main() {
    omp_set_num_threads(1);
#if HAS_AFTER
    if (PE_ROWS[BUILD_PE].rotary) { test_bound(); }
#endif
    const bool in_embedding = PE_ROWS[BUILD_PE].absolute || PE_ROWS[BUILD_PE].learnable;
    Arch c;
    // past 128, the last relative bucket
    c.L = 3; c.C = 24; c.NH = 4; c.KV = 2; c.HS = 6; c.F = 20; c.V = 11; c.T = 150;
    c.k_dims = c.HS;
    c.rope_layers = "110";
    Model m = model_new(c, c.T, true);
    model_init(&m, 5);
    const std::vector<int> seq(c.T + 1, 7);
    model_forward(&m, model_load(&m, seq.data(), 1, c.T));

    double spread = 0, size = 0; // over all layers: the largest |h_t - h_1| and |h|
    for (int i = 0; i <= 2 * c.L; i++) {
        const real* x = act_x(&m, i);
        for (int t = 0; t < c.T; t++) {
            for (int j = 0; j < c.C; j++) {
                spread = std::max(spread, (double)fabs(x[t * c.C + j] - x[j]));
                size = std::max(size, (double)fabs(x[t * c.C + j]));
            }
        }
    }
    CHECK(size > 0.1, "hidden states reach only %g: nothing was tested", size);
    if (in_embedding) {
        CHECK(spread > 0.1 * size, "hidden states differ by %g of %g only", spread, size);
    }
    else {
        CHECK(spread < 1e-12 * size, "hidden states of equal tokens differ by %g of %g", spread,
              size);
    }

    const AttnShape s = attn_shape(&m, 0);
    double off_uniform = 0; // the largest |t A - 1|
    [[maybe_unused]] double largest_xi[3][4] = {}, of_bound[3][4] = {};
    for (int l = 0; l < c.L; l++) {
        for (int h = 0; h < c.NH; h++) {
            const int W = attn_row(s);
            const real *qkv = act_qkv(&m, l), *stat = act_stat(&m, l);
            double worst = 0, above = 0, last = 0; // last: of the last query
            for (int t = 1; t <= c.T; t++) { // the paper's t and i, from 1
                const real *q = qkv + (t - 1) * W + h * c.HS,
                           *k = qkv + (c.NH + h / (c.NH / c.KV)) * c.HS,
                           *st = stat + (h * c.T + t - 1) * 2;
                auto A = [&](int i) {
                    const real score = ref::dot(q, k + (i - 1) * W, c.HS) / sqrt(c.HS) +
                                       Pe::bias<real>(t - i, Pe::slope(h, c.NH));
                    return attn_weight<Attn, real>(score, { st[0], st[1] }, s.clip);
                };
                // turning q and k keeps their norms
                const double xi = sqrt(ref::dot(q, q, c.HS) * ref::dot(k, k, c.HS) / c.HS);
                auto g = [&](int distance) -> double {  // the paper's g_rel and g_alibi
                    if (!strcmp(PE_ROWS[BUILD_PE].name, "alibi")) {
                        return -distance * pow(2, -8.0 * (h + 1) / c.NH);
                    }
                    return distance < 16
                               ? distance
                               : std::min(31.0, 16 + floor(log(distance / 16.0) / log(8) * 16));
                };
                double sum = 0;
                for (int j = 1; j <= t; j++) { sum += exp(g(t - j)); }
                for (int i = 1; i <= t; i++) {
                    off_uniform = std::max(off_uniform, fabs(t * A(i) - 1));
                    if (Pe::score_bias) {
                        worst = std::max(worst, fabs(A(i) - exp(g(t - i)) / sum));
                    }
                    if (PE_ROWS[BUILD_PE].rotary) {
                        const double part = A(i) / (exp(2 * xi) / (exp(2 * xi) + t - 1));
                        above = std::max(above, part);
                        if (t == c.T) { last = std::max(last, part); }
                    }
                    largest_xi[l][h] = std::max(largest_xi[l][h], xi);
                }
            }
            of_bound[l][h] = last;
            if (Pe::score_bias) {
                CHECK(worst < 1e-13, "layer %d head %d: attention is off its closed form by %g", l,
                      h, worst);
            }
            if (PE_ROWS[BUILD_PE].rotary) {
                CHECK(above <= 1 + 1e-13 && above > 0.5,
                      "layer %d head %d: attention is %g of its bound", l, h, above);
            }
        }
    }
    if (!strcmp(PE_ROWS[BUILD_PE].name, "nope")) {
        CHECK(off_uniform < 1e-12, "NoPE: t A is 1 within %g", off_uniform);
    }
    else {
        CHECK(off_uniform > 0.01, "%s: attention is uniform within %g", PE_ROWS[BUILD_PE].name,
              off_uniform);
    }
    // what the program reports of such a sequence: NoPE's alpha_k is the mean of 1/t over t >= k
    const Metrics r = measure(&m, seq.data(), 1, c.T, c.T);
    for (int k = 1; k <= METRIC_K && !strcmp(PE_ROWS[BUILD_PE].name, "nope"); k++) {
        double want = 0;
        for (int t = k; t <= c.T; t++) { want += 1.0 / t / (c.T - k + 1); }
        for (auto& head : r.heads) { check_near(head.alpha[k], want, 1e-7, "alpha_%d", k); }
    }
    for (int l = 0; l <= c.L; l++) {
        CHECK((fabs(r.h.first[l] / r.h.rest[l] - 1) < 1e-12) == !in_embedding,
              "|h^%d|: first %g, others %g", l, r.h.first[l], r.h.rest[l]);
    }
#if HAS_AFTER
    // and probe --anywhere, which reads q and k as floats
    const Anywhere a = anywhere_measure(&m, { seq.data(), 1, c.T }, 0.3, true);
    for (int l = 0; l < c.L; l++) {
        for (int h = 0; h < c.NH; h++) {
            const AnyTally& head = a.layers[l][h];
            const double found = head.proposition.as(LARGEST), xi = head.xi.as(LARGEST);
            if (in_embedding) { CHECK(std::isnan(found) && std::isnan(xi), "positions in h"); }
            else if (layer_rope(&m, l)) {
                check_near(found, of_bound[l][h], 1e-5, "layer %d head %d: A over its bound", l, h);
                check_near(xi, largest_xi[l][h], 1e-5, "layer %d head %d: xi", l, h);
            }
            else { CHECK(found < 1e-5 && std::isnan(xi), "off the closed form by %g", found); }
        }
    }
#endif
    model_free(&m);
    return check_done();
}
