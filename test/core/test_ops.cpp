/*
test_ops.cpp -- every operation of reference.h but attention (test_attention.cpp), in double,
at odd shapes: what comes out against the formula written once more, gradients against
central differences of a random linear functional, and the same bits with 1, 2 and 3 threads.
The fast backends are checked against reference.h: test_cpu.cpp, test_cuda.cu.
*/
#define REAL double
#include "../../reference.h"
#include "../check.h"
#include "../naive.h"
using ref::real;

// the slope of <dout, f(x)> along a random direction against <grad, direction>;
// f reads x, which is put back
static void check_slope(const char* what, Numbers& x, const Numbers& grad, const Numbers& dout,
                        const std::function<Numbers()>& f) {
    const Numbers was = x, d = random_numbers(x.size(), 1, 3);
    const double h = 1e-6;
    double y[2];
    for (int side = 0; side < 2; side++) {
        for (size_t i = 0; i < x.size(); i++) { x[i] = was[i] + (side ? -h : h) * d[i]; }
        y[side] = inner(dout, f());
    }
    x = was;
    check_near((y[0] - y[1]) / (2 * h), inner(grad, d), 1e-7 * (1 + sqrt(inner(grad, grad))),
               "%s: slope", what);
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
        Numbers wte = random_numbers(V * C, 1, 1), wpe = random_numbers(T * C, 1, 2),
                x = random_numbers(C, 1, 3), out(B * T * C, NAN);
        // the embedding times 2, which is exact: a fused multiply and add gives the same bits
        ref::embed_forward(out.data(), tokens.data(),
                           { wte.data(), pos ? wpe.data() : NULL, sink ? x.data() : NULL }, 2.0f, B,
                           T, C);
        const Numbers dout = random_numbers(B * T * C, 1, 4);
        Numbers want(out.size()), dwte(V * C, OLD), dwpe(T * C, OLD), dx(C, OLD),
            want_wte = dwte, want_wpe = dwpe, want_x = dx;
        for (int b = 0; b < B; b++) {
            for (int t = 0; t < T; t++) {
                for (int c = 0; c < C; c++) {
                    const int at = (b * T + t) * C + c,
                              id = t < skip ? -1 : tokens[b * (T - skip) + t - skip];
                    want[at] = (id < 0 ? x[c] : 2 * wte[id * C + c]) + (pos ? wpe[t * C + c] : 0);
                    (id < 0 ? want_x[c] : want_wte[id * C + c]) += (id < 0 ? 1 : 2) * dout[at];
                    want_wpe[t * C + c] += dout[at];
                }
            }
        }
        compare(strf("embed, pos %d sink %d", pos, sink), out, want, 0);
        ref::embed_backward({ dwte.data(), pos ? dwpe.data() : NULL, sink ? dx.data() : NULL },
                            dout.data(), tokens.data(), 2.0f, B, T, C);
        compare("embed dwte", dwte, want_wte, 1e-14);
        if (pos) { compare("embed dpos", dwpe, want_wpe, 1e-14); }
        if (sink) { compare("embed dsink", dx, want_x, 1e-14); }
    }
}
static void test_norm(bool ln, bool with_w, bool with_b) {
    const int N = 133, C = 37;
    const float eps = 0.01f;   // large, so that it counts
    const std::string what = strf("%s, weight %d bias %d", ln ? "LayerNorm" : "RMSNorm", with_w,
                                  with_b);
    Numbers x = random_numbers(N * C, 1, 1), w = random_numbers(C, 1, 2),
            b = random_numbers(C, 1, 4);
    Numbers out(N * C, NAN), mean(N, NAN), rstd(N, NAN), want(N * C);
    for (auto& v : x) { v += 0.7; }
    auto pointer = [](bool is, Numbers& v) { return is ? v.data() : (double*)NULL; };
    auto f = [&] {
        ref::norm_forward(out.data(), { pointer(ln, mean), rstd.data() }, x.data(),
                          { pointer(with_w, w), pointer(with_b, b) }, { N, C, eps });
        return out;
    };
    f();
    for (int n = 0; n < N; n++) {
        double m = 0, square = 0;
        for (int c = 0; c < C; c++) {
            m += x[n * C + c] / C;
            square += x[n * C + c] * x[n * C + c] / C;
        }
        if (!ln) { m = 0; }
        for (int c = 0; c < C; c++) { // the variance as E x^2 - (E x)^2
            const double y = (x[n * C + c] - m) / sqrt(square - m * m + (double)eps);
            want[n * C + c] = y * (with_w ? w[c] : 1) + (with_b ? b[c] : 0);
        }
    }
    compare(what, out, want, 1e-14);
    const Numbers dout = random_numbers(N * C, 1, 3), saved_mean = mean, saved = rstd;
    Numbers dx(N * C, NAN), dw(C, OLD), db(C, OLD), dx_add(N * C, OLD), in_place = dout;
    auto backward = [&](Numbers& dx, const Numbers& dout, bool add) {
        ref::norm_backward(dx.data(), { pointer(with_w, dw), pointer(with_b, db) }, dout.data(),
                           x.data(), pointer(with_w, w),
                           { ln ? saved_mean.data() : NULL, saved.data() }, add, { N, C, eps });
    };
    backward(dx, dout, false);
    check_slope((what + " dx").c_str(), x, dx, dout, f);
    if (with_w) { check_slope((what + " dweight").c_str(), w, minus(dw, OLD), dout, f); }
    if (with_b) { check_slope((what + " dbias").c_str(), b, minus(db, OLD), dout, f); }
    backward(dx_add, dout, true);
    compare(what + " dx, add", minus(dx_add, OLD), dx, 1e-14);
    backward(in_place, in_place, false);
    compare(what + " dx, in place", in_place, dx, 0);
}
static void test_matmul() {
    const int N = 41, C = 35, OC = 51;
    const Numbers x = random_numbers(N * C, 1, 1), w = random_numbers(OC * C, 1, 2),
                  dout = random_numbers(N * OC, 1, 4);
    Numbers res = random_numbers(N * OC, 1, 3), bias = random_numbers(OC, 1, 5);
    for (int with = 0; with < 4; with++) {
        Numbers out(N * OC, NAN), want(N * OC);
        ref::matmul_forward(out.data(), x.data(), w.data(), with & 1 ? bias.data() : NULL,
                            with & 2 ? res.data() : NULL, N, C, OC);
        for (int n = 0; n < N; n++) {
            for (int o = 0; o < OC; o++) {
                want[n * OC + o] = (with & 1 ? bias[o] : 0) + (with & 2 ? res[n * OC + o] : 0);
                for (int c = 0; c < C; c++) { want[n * OC + o] += x[n * C + c] * w[o * C + c]; }
            }
        }
        compare(strf("matmul, bias %d residual %d", with & 1, with >> 1), out, want, 1e-14);
    }
    Numbers dx(N * C, NAN), dx_add(N * C, OLD), want_x(N * C), dw(OC * C, OLD), want_w(OC * C, OLD),
        db(OC, OLD), want_b(OC, OLD);
    ref::matmul_backward_input(dx.data(), dout.data(), w.data(), false, N, C, OC);
    ref::matmul_backward_input(dx_add.data(), dout.data(), w.data(), true, N, C, OC);
    ref::matmul_backward_weight(dw.data(), dout.data(), x.data(), N, C, OC);
    ref::matmul_backward_bias(db.data(), dout.data(), N, OC);
    for (int n = 0; n < N; n++) {
        for (int o = 0; o < OC; o++) {
            want_b[o] += dout[n * OC + o];
            for (int c = 0; c < C; c++) {
                want_x[n * C + c] += dout[n * OC + o] * w[o * C + c];
                want_w[o * C + c] += dout[n * OC + o] * x[n * C + c];
            }
        }
    }
    compare("matmul dinp", dx, want_x, 1e-14);
    compare("matmul dinp, add", minus(dx_add, OLD), want_x, 1e-14);
    compare("matmul dweight", dw, want_w, 1e-14);
    compare("matmul dbias", db, want_b, 1e-14);
}
static const AttnShape SHAPE = { 2, 37, 4, 2, 6, 0, 0, 0, 6, 1, 1, 0.5, 0, 6 };
static void test_rope(int rot) {
    AttnShape s = SHAPE;
    s.rot = rot;
    const int W = attn_row(s), H = rot / 2;
    Numbers rope_table, x = random_numbers((long)s.B * s.T * W, 1, 1), y = x, want = x;
    for (int t = 0; t < s.T; t++) {
        for (int i = 0; i < H; i++) {
            rope_table.push_back(cos(t * (i + 1) * 0.1));
            rope_table.push_back(sin(t * (i + 1) * 0.1));
        }
    }
    ref::rope(y.data(), rope_table.data(), +1, s);
    for (int bt = 0; bt < s.B * s.T; bt++) {
        for (int h = 0; h < s.NH + s.KV; h++) { // v stays, and channels from rot on
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
    ref::rope(dx.data(), rope_table.data(), -1, s);
    check_near(inner(dout, y), inner(dx, x), 1e-11, "rope backward is the transpose");
    ref::rope(y.data(), rope_table.data(), -1, s);
    compare("rope there and back", y, x, 1e-14);
}
static void test_phi() {
    const AttnShape s = SHAPE;
    const int W = attn_row(s), QK = (s.NH + s.KV) * s.HS;
    Numbers x = random_numbers((long)s.B * s.T * W, 1, 1), y = x, want = x;
    ref::phi_elu1_forward(y.data(), s);
    for (size_t i = 0; i < x.size(); i++) { if ((int)(i % W) < QK) { want[i] = elu_plus_1(x[i]); } }
    compare("phi_elu1", y, want, 1e-15);
    const Numbers dout = random_numbers(x.size(), 1, 2);
    Numbers dx = dout;
    ref::phi_elu1_backward(dx.data(), y.data(), s);
    check_slope("phi_elu1", x, dx, dout, [&] {
        Numbers z = x;
        ref::phi_elu1_forward(z.data(), s);
        return z;
    });
    Numbers qk((long)s.B * s.T * QK, NAN), back(x.size(), OLD), want_back(x.size(), OLD), want_qk;
    const int N = s.B * s.T;
    ref::copy_rows(qk.data(), QK, x.data(), W, N, QK);
    ref::copy_rows(back.data(), W, qk.data(), QK, N, QK);
    for (size_t i = 0; i < x.size(); i++) {
        if ((int)(i % W) < QK) {
            want_qk.push_back(x[i]);
            want_back[i] = x[i];
        }
    }
    compare("copy_rows, out of wider ones", qk, want_qk, 0);
    compare("copy_rows, into wider ones", back, want_back, 0);
}
static void test_qk_norm(bool all) {
    const AttnShape s = SHAPE;
    const int N = s.B * s.T, W = attn_row(s), Q = s.NH * s.HS, K = s.KV * s.HS,
              G = all ? 2 : s.NH + s.KV;
    const float eps = 0.01f;
    const std::string what = all ? "qk_norm, all" : "qk_norm, head";
    Numbers x = random_numbers((long)N * W, 1, 1), wq = random_numbers(all ? Q : s.HS, 1, 2),
            wk = random_numbers(all ? K : s.HS, 1, 3);
    Numbers qk_in((long)N * (Q + K), NAN), rstd((long)N * G, NAN), want = x;
    auto f = [&] {
        Numbers y = x;
        ref::qk_norm_forward(y.data(), qk_in.data(), rstd.data(), { wq.data(), wk.data() }, all,
                             eps, s);
        return y;
    };
    const Numbers out = f();
    for (int n = 0; n < N; n++) {
        for (int c = 0; c < Q + K; c++) { // the group of channel c is [from, to)
            const int part = c < Q ? 0 : Q, from = all ? part : c / s.HS * s.HS,
                      to = all ? (c < Q ? Q : Q + K) : from + s.HS;
            double sum = 0;
            for (int i = from; i < to; i++) { sum += x[n * W + i] * x[n * W + i]; }
            const double w = (c < Q ? wq : wk)[all ? c - part : c % s.HS];
            want[n * W + c] = x[n * W + c] / sqrt(sum / (to - from) + (double)eps) * w;
        }
    }
    compare(what, out, want, 1e-14);
    const Numbers dout = random_numbers(x.size(), 1, 4), saved_in = qk_in, saved = rstd;
    Numbers dx = dout, dwq(wq.size(), OLD), dwk(wk.size(), OLD);
    ref::qk_norm_backward(dx.data(), { dwq.data(), dwk.data() }, saved_in.data(), saved.data(),
                          { wq.data(), wk.data() }, all, s);
    check_slope((what + " dqkv").c_str(), x, dx, dout, f);
    check_slope((what + " dwq").c_str(), wq, minus(dwq, OLD), dout, f);
    check_slope((what + " dwk").c_str(), wk, minus(dwk, OLD), dout, f);
}
static void test_gate(int width) {
    const AttnShape s = SHAPE;
    const long n = (long)s.B * s.T * s.NH * s.HS;
    const std::string what = strf("gate, width %d", width);
    Numbers att = random_numbers(n, 1, 1), gate = random_numbers(n / s.HS * width, 2, 2), want(n);
    auto f = [&] {
        Numbers out(n, NAN);
        ref::gate_forward(out.data(), att.data(), gate.data(), width, s);
        return out;
    };
    for (long i = 0; i < n; i++) { want[i] = att[i] / (1 + exp(-gate[width == 1 ? i / s.HS : i])); }
    compare(what, f(), want, 1e-14);
    const Numbers dout = random_numbers(n, 1, 3);
    Numbers datt(n, NAN), dgate(gate.size(), NAN), in_place = dout;
    ref::gate_backward(datt.data(), dgate.data(), dout.data(), att.data(), gate.data(), width, s);
    check_slope((what + " datt").c_str(), att, datt, dout, f);
    check_slope((what + " dgate").c_str(), gate, dgate, dout, f);
    ref::gate_backward(in_place.data(), dgate.data(), in_place.data(), att.data(), gate.data(),
                       width, s);
    compare(what + ", in place", in_place, datt, 0);
}
static void test_heads() {
    for (int kind = 0; kind < 8; kind++) {
        const bool sum = kind & 1, with_v = kind & 2;
        AttnShape s = SHAPE;
        s.bias_shared = kind >> 2;
        const int OC = sum ? s.HS : s.NH * s.HS, N = s.B * s.T;
        Numbers att = random_numbers((long)N * s.NH * s.HS, 1, 1),
                v = random_numbers((s.bias_shared ? 1 : s.NH) * s.HS, 1, 2), want((long)N * OC);
        auto f = [&] {
            Numbers out((long)N * OC, NAN);
            ref::heads_forward(out.data(), att.data(), with_v ? v.data() : NULL, sum, s);
            return out;
        };
        for (size_t i = 0; i < att.size(); i++) {
            const int c = i % (s.NH * s.HS);
            want[i / (s.NH * s.HS) * OC + c % OC] += att[i] + (with_v ? v[c % v.size()] : 0);
        }
        const std::string what = strf("heads: sum %d v* %d shared %d", sum, with_v, s.bias_shared);
        compare(what, f(), want, 1e-14);
        const Numbers dout = random_numbers((long)N * OC, 1, 3);
        Numbers datt(att.size(), NAN), dv(v.size(), OLD);
        ref::heads_backward(datt.data(), with_v ? dv.data() : NULL, dout.data(), sum, s);
        check_slope((what + " datt").c_str(), att, datt, dout, f);
        if (with_v) { check_slope((what + " dv*").c_str(), v, minus(dv, OLD), dout, f); }
    }
}
static void test_ffn(const std::string& name, Activation act, bool gated) {
    const int N = 35, F = 41, W = F * (gated ? 2 : 1);
    Numbers x = random_numbers(N * W, 2, 1), want(N * F);
    auto f = [&] {
        Numbers out(N * F, NAN);
        ref::ffn_forward(out.data(), x.data(), act, gated, N, F);
        return out;
    };
    const Numbers out = f();
    for (int n = 0; n < N; n++) {
        for (int i = 0; i < F; i++) {
            const double g = x[n * W + i];
            double y = 0;
            // of a new one only the derivative is checked
            with_activation(act, [&](auto a) { y = a.act(g); });
            if (act == ACT_relu)  { y = std::max(g, 0.0); }
            if (act == ACT_relu2) { y = pow(std::max(g, 0.0), 2); }
            if (act == ACT_gelu)  { y = g * 0.5 * erfc(-g / sqrt(2)); }
            if (act == ACT_gelu_tanh) {
                y = 0.5 * g * (1 + tanh(sqrt(2 / M_PI) * (g + 0.044715 * pow(g, 3))));
            }
            if (act == ACT_swish) { y = g / (1 + exp(-g)); }
            want[n * F + i] = gated ? y * x[n * W + F + i] : y;
        }
    }
    compare("ffn " + name, out, want, 1e-14);
    const Numbers dout = random_numbers(N * F, 1, 2);
    Numbers dx(x.size(), NAN);
    ref::ffn_backward(dx.data(), dout.data(), x.data(), act, gated, N, F);
    check_slope(("ffn " + name).c_str(), x, dx, dout, f);
}
static void test_classifier(float cap) {
    const int N = 35, V = 67;
    const float dloss = 0.25f;
    const std::string what = strf("classifier, cap %g", cap);
    const Numbers logits = random_numbers(N * V, 3, 1);
    Numbers losses(N, NAN), x = logits, y = logits, want(N), grad(N * V), plain(N, NAN);
    std::vector<int> targets(N);
    Rng r{ 2 };
    for (int n = 0; n < N; n++) { targets[n] = n % 7 == 3 ? -1 : rng_below(&r, V); }
    for (auto& v : y) { v = cap ? cap * tanh(v / cap) : v; }
    for (int n = 0; n < N; n++) {
        double Z = 0;
        if (targets[n] < 0) { continue; }
        for (int v = 0; v < V; v++) { Z += exp(y[n * V + v]); }
        want[n] = log(Z) - y[n * V + targets[n]];
        for (int v = 0; v < V; v++) {
            const double slope = cap ? 1 / pow(cosh(logits[n * V + v] / cap), 2) : 1;
            grad[n * V + v] = (double)dloss * (exp(y[n * V + v]) / Z - (v == targets[n])) * slope;
        }
    }
    ref::classifier(losses.data(), x.data(), targets.data(), dloss, cap, N, V);
    compare(what + " losses", losses, want, 1e-14);
    compare(what + " dlogits", x, grad, 1e-14);
    Numbers same = logits;
    ref::classifier(plain.data(), same.data(), targets.data(), 0, cap, N, V);
    compare(what + " losses, dloss 0", plain, want, 1e-14);
    compare(what + " logits, dloss 0", same, y, cap ? 1e-15 : 0);
    Numbers far = { 3000, -3000, 2999 }, one(1);
    const int target = 2;
    ref::classifier(one.data(), far.data(), &target, 1, cap, 1, 3);
    check_near(one[0], cap ? log(2 + exp(-2.0 * cap)) : log(1 + exp(1)), 1e-12,
               "%s: logits of 3000", what.c_str());
}
static void test_optimizers() {
    const long n = 40001;
    const Numbers g = random_numbers(n, 1, 1);
    double sum = 0;
    for (double x : g) { sum += x * x; }
    double total = 0;
    for (double x : g) { total += x; }
    StepSums sums = { 0.25, 0, 0 };
    ref::loss_add(&sums, g.data(), n, 3);
    check_near(sums.loss, 0.25 + total / 3, 1e-12, "loss_add");
    for (float clip : { 0.0f, 1e9f, 2.0f }) {
        ref::square_norm(&sums, g.data(), clip, n);
        check_near(sums.squares, sum, 1e-12 * sum, "square_norm");
        check_near(sums.grad_scale, clip == 2 ? 2 / sqrt(sum) : 1, 1e-7, "grad_scale, clip %g",
                   clip);
    }
    CHECK(std::isnan(grad_scale(NAN, 1, 1)) && std::isnan(grad_scale(INFINITY, 1, 1)) &&
              std::isnan(grad_scale(1, NAN, 0)) && std::isnan(grad_scale(1, INFINITY, 0)),
          "a step that is not finite has a scale");
    const float lr = 0.01f, b1 = 0.9f, b2 = 0.95f, eps = 1e-3f, decay = 0.1f, scale = 0.5f;
    for (bool adamw : { true, false }) {
        Numbers w = random_numbers(n, 1, 2), want = w, m(n), v(n), want_m(n), want_v(n);
        for (int step = 1; step <= 3; step++) {
            const Update o = { lr, b1, b2, eps, decay, step };
            const StepSums half = { 0, 0, scale }, none = { NAN, NAN, NAN };
            for (auto& s : { half, none }) { // the second must do nothing
                (adamw ? ref::adamw_update : ref::sgd_update<double>)(w.data(), w.data(), m.data(),
                                                              v.data(), g.data(), &s, o, n);
            }
            for (long i = 0; i < n; i++) {
                const double gi = (double)scale * g[i];
                want_m[i] = (double)b1 * want_m[i] + (adamw ? 1 - (double)b1 : 1) * gi;
                want_v[i] = (double)b2 * want_v[i] + (1 - (double)b2) * gi * gi;
                const double m_hat = want_m[i] / (1 - pow((double)b1, step)),
                             v_hat = want_v[i] / (1 - pow((double)b2, step));
                want[i] -= (double)lr * ((adamw ? m_hat / (sqrt(v_hat) + (double)eps) : want_m[i]) +
                                         (double)decay * want[i]);
            }
        }
        const char* what = adamw ? "adamw" : "sgd";
        compare(strf("%s weights", what), w, want, 1e-14);
        compare(strf("%s m", what), m, want_m, 1e-14);
        if (adamw) { compare("adamw v", v, want_v, 1e-14); }
    }
    Numbers a = { 1, 2 }, b = { 10, 20 };
    ref::add(a.data(), b.data(), 2);
    compare("add", a, { 11, 22 }, 0);
    ref::add(a.data(), b.data(), 2, 2);
    compare("add to a multiple", a, { 32, 64 }, 0);
    ref::add(a.data(), (const double*)NULL, 2, 0.5);
    compare("add nothing", a, { 16, 32 }, 0);
    ref::average(a.data(), b.data(), 0.25, 2);
    compare("average", a, { 14.5, 29 }, 0);
}
static void test_muon(int rows, int cols) { // wide, square, tall
    const long n = (long)rows * cols, r = std::min(rows, cols);
    const double beta = 0.95, scale = 0.5;
    const Numbers g = random_numbers(n, 1, 1), a = random_numbers(r * r, 1, 2);
    Numbers m = random_numbers(n, 1, 3), want_m = m, u(n), x(n, NAN), want(n);
    double squares = 0;
    for (long k = 0; k < n; k++) {
        want_m[k] = beta * m[k] + scale * g[k];
        u[k] = scale * g[k] + beta * want_m[k];
        squares += u[k] * u[k];
    }
    const auto place = [&](long k) {
        return rows > cols ? k % cols * rows + k / cols : k;
    };
    for (long k = 0; k < n; k++) { want[place(k)] = u[k] / (sqrt(squares) + 1e-7); }
    const StepSums half = { 0, 0, (float)scale }, none = { NAN, NAN, NAN };
    for (auto& s : { half, none }) { // the second must do nothing
        ref::muon_begin(x.data(), m.data(), g.data(), &s, rows, cols);
    }
    const std::string what = strf("muon %d x %d", rows, cols);
    compare(what, x, want, 1e-14);
    compare(what + " m", m, want_m, 1e-14);
    const Update o = { 0.01f, 0, 0, 0, 0.1f, 1 };
    Numbers w = random_numbers(n, 1, 4), want_w = w, aa = random_numbers(r * r, 1, 5),
            want_aa = aa;
    for (long k = 0; k < n; k++) {
        const double step = 0.2 * sqrt((double)std::max(rows, cols)) * x[place(k)];
        want_w[k] -= (double)o.lr * (step + (double)o.weight_decay * w[k]);
    }
    for (auto& s : { half, none }) {
        ref::muon_end(w.data(), w.data(), x.data(), &s, o, rows, cols);
    }
    compare(what + " weights", w, want_w, 1e-14);
    for (long k = 0; k < r * r; k++) {
        want_aa[k] = 2.0315 * aa[k] - 4.7750 * a[k] + (k / r == k % r ? 3.4445 : 0);
    }
    ref::muon_mix(aa.data(), a.data(), r);
    compare(what + " mixed", aa, want_aa, 1e-14);
}
// everything that sums over rows, at sizes that several threads share: not one bit may change
static void test_threads() {
    const int N = 300, C = 130, V = 11;
    const Numbers x = random_numbers(N * C, 1, 1), w = random_numbers(C * C, 1, 2),
                  big = random_numbers(100000, 1, 3);
    std::vector<int> tokens(N);
    for (int i = 0; i < N; i++) { tokens[i] = i * i % V; }
    uint64_t one = 0;
    for (int threads : { 1, 2, 3 }) {
        omp_set_num_threads(threads);
        Numbers out(N * C), mean(N), rstd(N), db(C), dx(N * C), dw(C), dwte(V * C), mm(N * C),
            dmm(C * C), losses(N), logits = x, datt(N * C), dgate(N * 10),
            dv(13), momentum(N * C), u(N * C);
        ref::norm_forward(out.data(), { mean.data(), rstd.data() }, x.data(),
                          { w.data(), w.data() }, { N, C, 1e-5f });
        ref::norm_backward(dx.data(), { dw.data(), db.data() }, out.data(), x.data(), w.data(),
                           { mean.data(), rstd.data() }, false, { N, C, 1e-5f });
        ref::embed_backward({ dwte.data(), NULL, NULL }, x.data(), tokens.data(), 1.5f, 1, N, C);
        ref::matmul_forward(mm.data(), x.data(), w.data(), NULL, NULL, N, C, C);
        ref::matmul_backward_weight(dmm.data(), x.data(), out.data(), N, C, C);
        ref::classifier(losses.data(), logits.data(), tokens.data(), 1, 0, N, C);
        const AttnShape s = whole({ 1, N, 10, 10, 13, 0, 0, 1, 13, 1, 1 });
        ref::gate_backward(datt.data(), dgate.data(), x.data(), x.data(), big.data(), 1, s);
        ref::heads_backward(momentum.data(), dv.data(), x.data(), false, s);
        const StepSums one_step = { 0, 0, 1 };
        ref::muon_begin(u.data(), momentum.data(), x.data(), &one_step, N, C);
        StepSums sums = {};
        ref::loss_add(&sums, big.data(), big.size(), 7);
        ref::square_norm(&sums, big.data(), 1, big.size());
        uint64_t h = hash_bytes(&sums, sizeof sums);
        for (auto* v : { &out, &mean, &rstd, &dx, &dw, &db, &dwte, &mm, &dmm, &losses, &logits,
                         &datt, &dgate, &dv, &momentum, &u }) {
            h = hash_bytes(v->data(), v->size() * sizeof(double), h);
        }
        if (threads == 1) { one = h; }
        CHECK(h == one, "other bits with %d threads", threads);
    }
}

int main() {
    omp_set_num_threads(1);
    CASE("embed") { test_embed(); }
    CASE("norm") {
        for (int kind = 0; kind < 8; kind++) { test_norm(kind & 1, kind & 2, kind & 4); }
    }
    CASE("matmul") { test_matmul(); }
    CASE("rope") { for (int rot : { 6, 4, 2, 0 }) { test_rope(rot); } }
    CASE("phi") { test_phi(); }
    CASE("qk_norm") { for (bool all : { false, true }) { test_qk_norm(all); } }
    CASE("gate") { for (int width : { 1, SHAPE.HS }) { test_gate(width); } }
    CASE("heads") { test_heads(); }
    for (auto& ffn : FFN_ROWS) { CASE("ffn") { test_ffn(ffn.name, ffn.act, ffn.gated); } }
    CASE("classifier") { for (float cap : { 0.0f, 4.0f }) { test_classifier(cap); } }
    CASE("optimizers") { test_optimizers(); }
    CASE("muon") { for (int rows : { 30, 97, 211 }) { test_muon(rows, 97); } }
    CASE("threads") { test_threads(); }
    return check_done();
}
