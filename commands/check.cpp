/*
commands/check.cpp -- the command check: do the gradients of this build equal finite differences of
its loss? For those who change the mathematics.

A tiny model with the switches of this build (and any flags of the model), random weights, random
tokens. Each tensor is moved a little along some directions u, and the slope of the loss, by
differences of four losses, has to be the product of gradient and u. The directions are the gradient
itself, which shows a wrong size or sign, and, where the precision allows, random ones, which show
entries that are missing.
*/
#include "../flags.h"
#include "../shell/data_flags.h"
#include "../train_sink.h"
#include "commands.h"

// What float losses can show: errors are measured in lengths of the gradient. bf16 weights have 8
// bits, so that only large moves along the gradient change the loss by more than rounding does.
struct GradientTest { int directions; double move, tolerance; };
static GradientTest gradient_test() {
    return sizeof(real) == 2 ? GradientTest{ 1, 0.1, 0.25 } : GradientTest{ 4, 0.004, 5e-3 };
}

static std::vector<acc> from_device(const acc* device, long n) {
    std::vector<acc> x(n);
    ops::to_host(x.data(), device, n * sizeof(acc));
    return x;
}

// entries of k* that are not learned stay 0, whatever direction is taken
static bool is_learned(const Model& m, const Tensor& t, long i) {
    return !ends_with(t.name, ".k_star") || i % m.arch.HS < m.arch.k_dims;
}

// weights that are neither 0 nor 1, so that no part of the model is idle
static std::vector<acc> weights_shaken(Model* m, Rng* rng) {
    std::vector<acc> w = from_device(m->master, m->num_params);
    for (auto& t : m->tensors) {
        const double size = t.shape.size() == 1 ? 0.3 : 1 / sqrt((double)t.shape[1]);
        for (long i = 0; i < t.count; i++) {
            if (is_learned(*m, t, i)) { w[t.at + i] += size * rng_normal(rng); }
        }
    }
    return w;
}

// the slope of the loss at w when tensor t moves along u, in steps of h: (8 (f(h) - f(-h)) - (f(2h)
// - f(-2h))) / 12 h
static double slope(Model* m, long count, const std::vector<acc>& w, const Tensor& t,
                    const std::vector<double>& u, double h) {
    const double weights[] = { 8, -8, -1, 1 }, steps[] = { h, -h, 2 * h, -2 * h };
    double sum = 0;
    for (int k = 0; k < 4; k++) {
        std::vector<acc> moved = w;
        for (long i = 0; i < t.count; i++) { moved[t.at + i] += steps[k] * u[i]; }
        model_set(m, moved.data());
        sum += weights[k] * model_forward(m, count, 0);
    }
    return sum / (12 * h);
}

static double length(const std::vector<double>& u) {
    double s = 0;
    for (double x : u) { s += x * x; }
    return sqrt(s);
}

// the worst difference between gradient and slope of one tensor, in lengths of the gradient
static double gradient_error(Model* m, long count, const std::vector<acc>& w,
                             const std::vector<acc>& grads, const Tensor& t, Rng* rng) {
    const GradientTest test = gradient_test();
    std::vector<double> here(&w[t.at], &w[t.at] + t.count), g(&grads[t.at], &grads[t.at] + t.count),
        u(t.count);
    const double size = std::max(length(g), 1e-6), h = test.move * std::max(length(here), 0.1);
    double worst = 0;
    for (int k = 0; k < test.directions; k++) {
        for (long i = 0; i < t.count; i++) {
            const bool random = k > 0 && is_learned(*m, t, i);
            u[i] = k == 0 ? g[i] : 0;
            if (random) { u[i] = rng_normal(rng); }
        }
        const double scale = std::max(length(u), 1e-30);
        double product = 0;
        for (long i = 0; i < t.count; i++) { u[i] /= scale; product += g[i] * u[i]; }
        double error = fabs(slope(m, count, w, t, u, h) - product) / size;
        // where the loss is curved much, the differences themselves are off: by 256 times less with
        // a quarter of the step
        if (error > test.tolerance && sizeof(real) > 2) {
            error = fabs(slope(m, count, w, t, u, h / 4) - product) / size;
        }
        if (!(error <= worst)) { worst = error; }
    }
    return worst;
}

int command_check(Flags f) {
    const GradientTest test = gradient_test();
    const int B = 2;
    reject_unused_model_flags(f);
    auto fill = [](int* size, int tiny) { if (!*size) { *size = tiny; } };
    Arch& a = f.arch;
    fill(&a.L, 2);
    fill(&a.NH, 4);
    fill(&a.KV, a.NH % 2 ? a.NH : a.NH / 2);
    fill(&a.C, 32);
    fill(&a.F, 24);
    fill(&a.T, 12);
    fill(&a.V, 29);
    const Arch c = arch_from_flags(&f, a.V);
    Model m = model_new(c, c.T, true);
    Rng rng = rng_stream(f.seed, SEED_CHECK);
    model_init(&m, f.seed);
    std::vector<int> seqs((size_t)B * (c.T + 1));
    for (auto& token : seqs) { token = rng_below(&rng, c.V); }
    const std::vector<acc> w = weights_shaken(&m, &rng);
    model_set(&m, w.data());
    model_zero(&m);
    model_accumulate(&m, seqs.data(), B, c.T, targets_count(&m, seqs.data(), B, c.T));
    const std::vector<acc> grads = from_device(m.grads_memory, m.num_params);
    const long count = model_load(&m, seqs.data(), B, c.T);
    if (test.directions == 1) {
        printf(
            "PRECISION=bf16: only sizes and signs can be checked, not single entries; fp32 checks "
            "both\n");
    }
    printf("%-52s %12s %12s\n", "tensor", "|gradient|", "error / it");
    double worst = 0;
    std::string bad;
    for (auto& t : m.tensors) {
        const double error = gradient_error(&m, count, w, grads, t, &rng);
        const std::vector<double> g(&grads[t.at], &grads[t.at] + t.count);
        const bool ok = error <= test.tolerance;
        printf("%-52s %12.3e %12.1e%s\n", t.name.c_str(), length(g), error, ok ? "" : "   WRONG");
        if (!ok) { list_add(&bad, t.name); }
        worst = std::max(worst, error);
    }
    const size_t tensors = m.tensors.size();
    model_free(&m);
    if (!bad.empty()) {
        die(EXIT_MACHINE,
            strf("gradients: differ by more than %g of their length from the slopes of the loss: ",
                 test.tolerance) +
                bad,
            "look at the backward pass of the first stage whose weights these are");
    }
    printf("the gradients of %zu tensors are the slopes of the loss, to %.1e (tolerance %g)\n",
           tensors, worst, test.tolerance);
    return 0;
}
