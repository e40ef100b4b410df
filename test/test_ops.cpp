/*
test_ops.cpp -- every operation of reference.h but attention (test_attention.cpp), in double, at odd shapes: what comes out
against the formula written once more, gradients against central differences of a random linear functional, and the same bits
with 1, 2 and 3 threads.
*/
#define REAL double
#define ALL_VARIANTS
#include "../cpu/attention.h"
#include "check.h"
#include "naive.h"
using cpu::real;

static double inner(const Numbers& a, const Numbers& b) { double x = 0; for (size_t i = 0; i < a.size(); i++) { x += a[i] * b[i]; } return x; }
static void compare(const std::string& what, const Numbers& got, const Numbers& want, double tol) { // tol * max |want|
    double top = 1e-6, worst = -1; size_t at = 0;
    if (!CHECK(got.size() == want.size(), "%s: %zu numbers, wanted %zu", what.c_str(), got.size(), want.size())) { return; }
    for (double w : want) { top = std::max(top, fabs(w)); }
    for (size_t i = 0; i < got.size(); i++) { const double d = fabs(got[i] - want[i]); if (!(d <= worst)) { worst = d; at = i; } }
    CHECK(worst <= tol * top, "%s[%zu]: got %.12g, wanted %.12g (largest %.3g)", what.c_str(), at, got[at], want[at], top);
}
// the slope of <dout, f(x)> along a random direction against <grad, direction>; f reads x, which is put back
static void check_slope(const char* what, Numbers& x, const Numbers& grad, const Numbers& dout, const std::function<Numbers()>& f) {
    const Numbers was = x, d = random_numbers(x.size(), 1, 3);
    const double h = 1e-6;
    double y[2];
    for (int side = 0; side < 2; side++) {
        for (size_t i = 0; i < x.size(); i++) { x[i] = was[i] + (side ? -h : h) * d[i]; }
        y[side] = inner(dout, f());
    }
    x = was;
    check_near((y[0] - y[1]) / (2 * h), inner(grad, d), 1e-7 * (1 + sqrt(inner(grad, grad))), "%s: slope", what);
}
static Numbers minus(Numbers x, double old) { for (auto& v : x) { v -= old; } return x; }
enum { OLD = 5 }; // what a gradient holds before: weights' gradients are added to

static void test_embed() {
    const int B = 3, T = 35, C = 19, V = 7; // every id many times
    for (int with = 0; with < 4; with++) {
        const bool pos = with & 1, sink = with & 2;
        const int skip = sink;
        std::vector<int> tokens(B * (T - skip));
        Rng r{ 1 };
        for (auto& t : tokens) { t = rng_below(&r, V); }
        Numbers wte = random_numbers(V * C, 1, 1), wpe = random_numbers(T * C, 1, 2), x = random_numbers(C, 1, 3), out(B * T * C, NAN);
        cpu::embed_forward(out.data(), tokens.data(), wte.data(), pos ? wpe.data() : NULL, sink ? x.data() : NULL, 1.5f, B, T, C);
        const Numbers dout = random_numbers(B * T * C, 1, 4);
        Numbers want(out.size()), dwte(V * C, OLD), dwpe(T * C, OLD), dx(C, OLD), want_wte = dwte, want_wpe = dwpe, want_x = dx;
        for (int b = 0; b < B; b++) {
            for (int t = 0; t < T; t++) {
                for (int c = 0; c < C; c++) {
                    const int at = (b * T + t) * C + c, id = t < skip ? -1 : tokens[b * (T - skip) + t - skip];
                    want[at] = (id < 0 ? x[c] : 1.5 * wte[id * C + c]) + (pos ? wpe[t * C + c] : 0);
                    (id < 0 ? want_x[c] : want_wte[id * C + c]) += (id < 0 ? 1 : 1.5) * dout[at];
                    want_wpe[t * C + c] += dout[at];
                }
            }
        }
        compare(strf("embed, pos %d sink %d", pos, sink), out, want, 0);
        cpu::embed_backward(dwte.data(), pos ? dwpe.data() : NULL, sink ? dx.data() : NULL, dout.data(), tokens.data(), 1.5f, B, T, C);
        compare("embed dwte", dwte, want_wte, 1e-14);
        if (pos) { compare("embed dpos", dwpe, want_wpe, 1e-14); }
        if (sink) { compare("embed dsink", dx, want_x, 1e-14); }
    }
}
static void test_rmsnorm() {
    const int N = 133, C = 37; // more than two blocks of rows
    const float eps = 0.01f;   // large, so that it counts
    Numbers x = random_numbers(N * C, 1, 1), w = random_numbers(C, 1, 2), out(N * C, NAN), rstd(N, NAN), want(N * C);
    auto f = [&] { cpu::norm_forward(out.data(), NULL, rstd.data(), x.data(), w.data(), NULL, eps, N, C); return out; };
    f();
    for (int n = 0; n < N; n++) {
        double sum = 0;
        for (int c = 0; c < C; c++) { sum += x[n * C + c] * x[n * C + c]; }
        for (int c = 0; c < C; c++) { want[n * C + c] = x[n * C + c] / sqrt(sum / C + (double)eps) * w[c]; }
    }
    compare("rmsnorm", out, want, 1e-14);
    const Numbers dout = random_numbers(N * C, 1, 3), saved = rstd;
    Numbers dx(N * C, NAN), dw(C, OLD), dx_add(N * C, OLD), dw_add(C, OLD);
    cpu::norm_backward(dx.data(), dw.data(), NULL, dout.data(), x.data(), w.data(), NULL, saved.data(), false, N, C);
    cpu::norm_backward(dx_add.data(), dw_add.data(), NULL, dout.data(), x.data(), w.data(), NULL, saved.data(), true, N, C);
    check_slope("rmsnorm dx", x, dx, dout, f);
    check_slope("rmsnorm dweight", w, minus(dw, OLD), dout, f);
    compare("rmsnorm dx, add", minus(dx_add, OLD), dx, 1e-14);
}
static void test_matmul() {
    const int N = 41, C = 35, OC = 51;
    const Numbers x = random_numbers(N * C, 1, 1), w = random_numbers(OC * C, 1, 2), res = random_numbers(N * OC, 1, 3), dout = random_numbers(N * OC, 1, 4);
    for (bool residual : { false, true }) {
        Numbers out(N * OC, NAN), want(N * OC);
        cpu::matmul_forward(out.data(), x.data(), w.data(), NULL, residual ? res.data() : NULL, N, C, OC);
        for (int n = 0; n < N; n++) {
            for (int o = 0; o < OC; o++) {
                want[n * OC + o] = residual ? res[n * OC + o] : 0;
                for (int c = 0; c < C; c++) { want[n * OC + o] += x[n * C + c] * w[o * C + c]; }
            }
        }
        compare(strf("matmul, residual %d", residual), out, want, 1e-14);
    }
    Numbers dx(N * C, NAN), want_x(N * C), dw(OC * C, OLD), want_w(OC * C, OLD);
    cpu::matmul_backward_input(dx.data(), dout.data(), w.data(), false, N, C, OC);
    cpu::matmul_backward_weight(dw.data(), dout.data(), x.data(), N, C, OC);
    for (int n = 0; n < N; n++) {
        for (int o = 0; o < OC; o++) {
            for (int c = 0; c < C; c++) {
                want_x[n * C + c] += dout[n * OC + o] * w[o * C + c];
                want_w[o * C + c] += dout[n * OC + o] * x[n * C + c];
            }
        }
    }
    compare("matmul dinp", dx, want_x, 1e-14);
    compare("matmul dweight", dw, want_w, 1e-14);
}
static const AttnShape SHAPE = { 2, 37, 4, 2, 6, 0, 0, 0, 6, 1, 1, 0.5, 0, 6 };
static void test_rope() {
    const AttnShape s = SHAPE;
    const int W = attn_row(s), H = s.HS / 2;
    Numbers turns, x = random_numbers((long)s.B * s.T * W, 1, 1), y = x, want = x;
    for (int t = 0; t < s.T; t++) { for (int i = 0; i < H; i++) { turns.push_back(cos(t * (i + 1) * 0.1)); turns.push_back(sin(t * (i + 1) * 0.1)); } }
    cpu::rope(y.data(), turns.data(), +1, s);
    for (int bt = 0; bt < s.B * s.T; bt++) {
        for (int h = 0; h < s.NH + s.KV; h++) { // v stays
            for (int i = 0; i < H; i++) {
                const long a = (long)bt * W + h * s.HS + i, b = a + H;
                const double angle = bt % s.T * (i + 1) * 0.1; // (a + ib) e^(i angle)
                want[a] = x[a] * cos(angle) - x[b] * sin(angle);
                want[b] = x[a] * sin(angle) + x[b] * cos(angle);
            }
        }
    }
    compare("rope", y, want, 1e-14);
    // <dout, R x> = <R' dout, x>: backward is the transpose, and R' R = 1
    Numbers dout = random_numbers(x.size(), 1, 2), dx = dout;
    cpu::rope(dx.data(), turns.data(), -1, s);
    check_near(inner(dout, y), inner(dx, x), 1e-11, "rope backward is the transpose");
    cpu::rope(y.data(), turns.data(), -1, s);
    compare("rope there and back", y, x, 1e-14);
}
static void test_phi() {
    const AttnShape s = SHAPE;
    const int W = attn_row(s), QK = (s.NH + s.KV) * s.HS;
    Numbers x = random_numbers((long)s.B * s.T * W, 1, 1), y = x, want = x;
    cpu::phi_elu1_forward(y.data(), s);
    for (size_t i = 0; i < x.size(); i++) { if ((int)(i % W) < QK) { want[i] = elu_plus_1(x[i]); } }
    compare("phi_elu1", y, want, 1e-15);
    const Numbers dout = random_numbers(x.size(), 1, 2);
    Numbers dx = dout;
    cpu::phi_elu1_backward(dx.data(), y.data(), s);
    check_slope("phi_elu1", x, dx, dout, [&] { Numbers z = x; cpu::phi_elu1_forward(z.data(), s); return z; });
    Numbers qk((long)s.B * s.T * QK, NAN), back(x.size(), OLD), want_back(x.size(), OLD), want_qk;
    cpu::qk_gather(qk.data(), x.data(), s);
    cpu::qk_scatter(back.data(), qk.data(), s);
    for (size_t i = 0; i < x.size(); i++) { if ((int)(i % W) < QK) { want_qk.push_back(x[i]); want_back[i] = x[i]; } }
    compare("qk_gather", qk, want_qk, 0);
    compare("qk_scatter", back, want_back, 0);
}
static void test_heads() {
    for (int kind = 0; kind < 8; kind++) {
        const bool sum = kind & 1, with_v = kind & 2;
        AttnShape s = SHAPE;
        s.bias_shared = kind >> 2;
        const int OC = sum ? s.HS : s.NH * s.HS, N = s.B * s.T;
        Numbers att = random_numbers((long)N * s.NH * s.HS, 1, 1), v = random_numbers((s.bias_shared ? 1 : s.NH) * s.HS, 1, 2), want((long)N * OC);
        auto f = [&] { Numbers out((long)N * OC, NAN); cpu::heads_forward(out.data(), att.data(), with_v ? v.data() : NULL, sum, s); return out; };
        for (size_t i = 0; i < att.size(); i++) {
            const int c = i % (s.NH * s.HS);
            want[i / (s.NH * s.HS) * OC + c % OC] += att[i] + (with_v ? v[c % v.size()] : 0);
        }
        const std::string what = strf("heads: sum %d v* %d shared %d", sum, with_v, s.bias_shared);
        compare(what, f(), want, 1e-14);
        const Numbers dout = random_numbers((long)N * OC, 1, 3);
        Numbers datt(att.size(), NAN), dv(v.size(), OLD);
        cpu::heads_backward(datt.data(), with_v ? dv.data() : NULL, dout.data(), sum, s);
        check_slope((what + " datt").c_str(), att, datt, dout, f);
        if (with_v) { check_slope((what + " dv*").c_str(), v, minus(dv, OLD), dout, f); }
    }
}
static void test_ffn(const std::string& name, Act act, bool gated) {
    const int N = 35, F = 41, W = F * (gated ? 2 : 1);
    Numbers x = random_numbers(N * W, 2, 1), want(N * F);
    auto f = [&] { Numbers out(N * F, NAN); cpu::ffn_forward(out.data(), x.data(), act, gated, N, F); return out; };
    const Numbers out = f();
    for (int n = 0; n < N; n++) {
        for (int i = 0; i < F; i++) {
            const double g = x[n * W + i];
            double y = 0;
            with_act(act, [&](auto a) { y = a.act(g); });   // of a new one only the derivative is checked
            if (act == ACT_relu)  { y = std::max(g, 0.0); }
            if (act == ACT_relu2) { y = pow(std::max(g, 0.0), 2); }
            if (act == ACT_gelu)  { y = g * 0.5 * erfc(-g / sqrt(2)); }
            if (act == ACT_gelu_tanh) { y = 0.5 * g * (1 + tanh(sqrt(2 / M_PI) * (g + 0.044715 * pow(g, 3)))); }
            if (act == ACT_swish) { y = g / (1 + exp(-g)); }
            want[n * F + i] = gated ? y * x[n * W + F + i] : y;
        }
    }
    compare("ffn " + name, out, want, 1e-14);
    const Numbers dout = random_numbers(N * F, 1, 2);
    Numbers dx(x.size(), NAN);
    cpu::ffn_backward(dx.data(), dout.data(), x.data(), act, gated, N, F);
    check_slope(("ffn " + name).c_str(), x, dx, dout, f);
}
static void test_classifier() {
    const int N = 35, V = 67;
    const float dloss = 0.25f;
    Numbers logits = random_numbers(N * V, 3, 1), losses(N, NAN), x = logits, want(N), grad(N * V), plain(N, NAN);
    std::vector<int> targets(N);
    Rng r{ 2 };
    for (int n = 0; n < N; n++) { targets[n] = n % 7 == 3 ? -1 : rng_below(&r, V); }
    for (int n = 0; n < N; n++) {
        double Z = 0;
        if (targets[n] < 0) { continue; }
        for (int v = 0; v < V; v++) { Z += exp(logits[n * V + v]); }
        want[n] = log(Z) - logits[n * V + targets[n]];
        for (int v = 0; v < V; v++) { grad[n * V + v] = (double)dloss * (exp(logits[n * V + v]) / Z - (v == targets[n])); }
    }
    cpu::classifier(losses.data(), x.data(), targets.data(), dloss, 0, N, V);
    compare("classifier losses", losses, want, 1e-14);
    compare("classifier dlogits", x, grad, 1e-14);
    Numbers same = logits;
    cpu::classifier(plain.data(), same.data(), targets.data(), 0, 0, N, V);
    compare("classifier losses, dloss 0", plain, want, 1e-14);
    compare("classifier logits, dloss 0", same, logits, 0);
    Numbers far = { 3000, -3000, 2999 }, one(1);
    const int target = 2;
    cpu::classifier(one.data(), far.data(), &target, 1, 0, 1, 3);
    check_near(one[0], log(1 + exp(1)), 1e-12, "classifier: logits of 3000");
}
static void test_optimisers() {
    const long n = 40001;
    const Numbers g = random_numbers(n, 1, 1);
    double sum = 0;
    for (double x : g) { sum += x * x; }
    double total = 0;
    for (double x : g) { total += x; }
    StepSums sums = { 0.25, 0, 0 };
    cpu::loss_add(&sums, g.data(), n, 3);
    check_near(sums.loss, 0.25 + total / 3, 1e-12, "loss_add");
    for (float clip : { 0.0f, 1e9f, 2.0f }) {
        cpu::square_norm(&sums, g.data(), clip, n);
        check_near(sums.squares, sum, 1e-12 * sum, "square_norm");
        check_near(sums.grad_scale, clip == 2 ? 2 / sqrt(sum) : 1, 1e-7, "grad_scale, clip %g", clip);
    }
    CHECK(std::isnan(grad_scale(NAN, 1, 1)) && std::isnan(grad_scale(INFINITY, 1, 1)) && std::isnan(grad_scale(1, NAN, 0))
          && std::isnan(grad_scale(1, INFINITY, 0)), "a step that is not finite has a scale");
    const float lr = 0.01f, b1 = 0.9f, b2 = 0.95f, eps = 1e-3f, decay = 0.1f, scale = 0.5f;
    for (bool adamw : { true, false }) {
        Numbers w = random_numbers(n, 1, 2), want = w, m(n), v(n), want_m(n), want_v(n);
        for (int step = 1; step <= 3; step++) {
            const AdamW o = { lr, b1, b2, eps, decay, step };
            const StepSums half = { 0, 0, scale }, none = { NAN, NAN, NAN };
            for (auto& s : { half, none }) { // the second must do nothing
                (adamw ? cpu::adamw_update : cpu::sgd_update)(w.data(), w.data(), m.data(), v.data(), g.data(), &s, o, n);
            }
            for (long i = 0; i < n; i++) {
                const double gi = (double)scale * g[i];
                want_m[i] = (double)b1 * want_m[i] + (adamw ? 1 - (double)b1 : 1) * gi;
                want_v[i] = (double)b2 * want_v[i] + (1 - (double)b2) * gi * gi;
                const double m_hat = want_m[i] / (1 - pow((double)b1, step)), v_hat = want_v[i] / (1 - pow((double)b2, step));
                want[i] -= (double)lr * ((adamw ? m_hat / (sqrt(v_hat) + (double)eps) : want_m[i]) + (double)decay * want[i]);
            }
        }
        const char* what = adamw ? "adamw" : "sgd";
        compare(strf("%s weights", what), w, want, 1e-14);
        compare(strf("%s m", what), m, want_m, 1e-14);
        if (adamw) { compare("adamw v", v, want_v, 1e-14); }
    }
    Numbers a = { 1, 2 }, b = { 10, 20 };
    cpu::add(a.data(), b.data(), 2);
    compare("add", a, { 11, 22 }, 0);
}
// everything that sums over rows, at sizes that several threads share: not one bit may change
static void test_threads() {
    const int N = 300, C = 130, V = 11;
    const Numbers x = random_numbers(N * C, 1, 1), w = random_numbers(C * C, 1, 2), big = random_numbers(100000, 1, 3);
    std::vector<int> tokens(N);
    for (int i = 0; i < N; i++) { tokens[i] = i * i % V; }
    uint64_t one = 0;
    for (int threads : { 1, 2, 3 }) {
        omp_set_num_threads(threads);
        Numbers out(N * C), mean(N), rstd(N), db(C), dx(N * C), dw(C), dwte(V * C), mm(N * C), dmm(C * C), losses(N), logits = x;
        cpu::norm_forward(out.data(), mean.data(), rstd.data(), x.data(), w.data(), w.data(), 1e-5f, N, C);
        cpu::norm_backward(dx.data(), dw.data(), db.data(), out.data(), x.data(), w.data(), mean.data(), rstd.data(), false, N, C);
        cpu::embed_backward(dwte.data(), NULL, NULL, x.data(), tokens.data(), 1.5f, 1, N, C);
        cpu::matmul_forward(mm.data(), x.data(), w.data(), NULL, NULL, N, C, C);
        cpu::matmul_backward_weight(dmm.data(), x.data(), out.data(), N, C, C);
        cpu::classifier(losses.data(), logits.data(), tokens.data(), 1, 0, N, C);
        StepSums sums = {};
        cpu::loss_add(&sums, big.data(), big.size(), 7);
        cpu::square_norm(&sums, big.data(), 1, big.size());
        uint64_t h = hash_bytes(&sums, sizeof sums);
        for (auto* v : { &out, &mean, &rstd, &dx, &dw, &db, &dwte, &mm, &dmm, &losses, &logits }) { h = hash_bytes(v->data(), v->size() * sizeof(double), h); }
        if (threads == 1) { one = h; }
        CHECK(h == one, "other bits with %d threads", threads);
    }
}

int main() {
    omp_set_num_threads(1);
    test_embed();
    test_rmsnorm();
    test_matmul();
    test_rope();
    test_phi();
    test_heads();
    #define X_FFN(name, act, gated, ...) test_ffn(#name, ACT_##act, gated);
    FFN_VARIANTS(X_FFN)
    test_classifier();
    test_optimisers();
    test_threads();
    return check_done();
}
