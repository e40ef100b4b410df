/*
run/check.cpp -- the command check: do the gradients of this build equal finite differences of
its loss? For those who change the mathematics.

A tiny model with the switches of this build (and any flags of the model), random weights, random
tokens. Each tensor is moved a little along some directions u, and the slope of the loss, by
differences of four losses, has to be the product of gradient and u. The directions are the gradient
itself, which shows a wrong size or sign, and, where the precision allows, random ones, which show
entries that are missing.

Where the loss has a corner or a jump, as with f = relu, a difference across it is no slope. A wrong
derivative is off by the same at any step, a corner is not: so a tensor that is off is measured by
shorter steps, and at three points. The rows of attention at a corner are those of the first
token of a sequence whose loss has another slope then: later tokens read what that row gives.
*/
#include <numeric>
#include "../flags.h"
#include "../core/train_sink.h"
#include "commands.h"
#include "gpu.h"

// What float losses can show: errors are measured in lengths of the gradient. bf16 weights have 8
// bits, so that only large moves along the gradient change the loss by more than rounding does.
static const bool COARSE = sizeof(real) == 2;
static const int DIRECTIONS = COARSE ? 1 : 4;            // 1: that of the gradient alone
static const double MOVE = COARSE ? 0.1 : 0.004;         // in lengths of the tensor
static const double TOLERANCE = COARSE ? 0.25 : 5e-3;

typedef std::vector<double> Vector;

static const int POINTS = 3;

// How the gradient of one tensor compares with the slopes, over directions and points.
struct Compared {
    double worst = 0;                            // difference, in lengths of the gradient
    int all = 0;                                 // slopes that were compared
    int steady = 0;                              // off by the same with a shorter step
    int moved = 0;                               // off, and by another amount
    std::string rows;                            // where, at the first point: "0:5, 1:7"

    bool off() const { return steady + moved > 0; }
    // Tells whether the derivative is wrong: off by the same wherever no corner disturbs it.
    bool wrong() const { return moved ? 2 * steady >= all : steady > 0; }
};

static double product(const Vector& a, const Vector& b) {
    return std::inner_product(a.begin(), a.end(), b.begin(), 0.0);
}

static double norm(const Vector& u) { return sqrt(product(u, u)); }

// Returns false for the entries of k* that are not learned: they stay 0 in any direction.
static bool is_learned(const Model& m, const Tensor& t, long i) {
    return t.purpose != FOR_KEY || i % m.arch.HS < m.arch.k_dims;
}

// Returns weights that are neither 0 nor 1, so that no part of the model is idle.
static std::vector<acc> weights_shaken(Model* m, Rng* rng) {
    std::vector<acc> w = copy_to_host(m->master, m->num_params);
    for (auto& t : m->tensors) {
        const double size = t.shape.size() > 1 ? 1 / sqrt((double)t.shape[1]) : 0.3;
        for (long i = 0; i < t.count; i++) {
            if (is_learned(*m, t, i)) { w[t.at + i] += size * rng_normal(rng); }
        }
    }
    return w;
}

// A model with its weights, and its gradients on the batch that is loaded.
struct GradientCheck {
    Model m;
    Rng rng;
    long count;                                  // targets of the batch
    std::vector<acc> weights;
    std::vector<acc> grads;

    // Returns the loss of each token when tensor t has moved by h along u.
    Vector losses_moved(const Tensor& t, const Vector& u, double h) {
        std::vector<acc> moved = weights;
        for (long i = 0; i < t.count; i++) { moved[t.at + i] += h * u[i]; }
        model_set_weights(&m, moved.data());
        model_forward(&m, count);
        const std::vector<acc> losses = model_losses(&m);
        return Vector(losses.begin(), losses.end());
    }

    // Returns what each token adds to the slope of the loss when tensor t moves along u, in steps
    // of h: (8 (f(h) - f(-h)) - (f(2h) - f(-2h))) / 12 h
    Vector slopes(const Tensor& t, const Vector& u, double h) {
        static const double TERMS[][2] = { { 8, 1 }, { -8, -1 }, { -1, 2 }, { 1, -2 } };
        Vector sum(rows(&m));
        for (auto& term : TERMS) {
            const Vector losses = losses_moved(t, u, term[1] * h);
            for (size_t i = 0; i < sum.size(); i++) {
                sum[i] += term[0] * losses[i] / (12 * h * count);
            }
        }
        return sum;
    }

    // Names the first token of each sequence at which these slopes are as far apart as anywhere, to
    // a tenth.
    std::string rows_apart(const Vector& a, const Vector& b) const {
        double most = 0;
        for (size_t i = 0; i < a.size(); i++) { most = std::max(most, fabs(a[i] - b[i])); }
        std::string names;
        for (int s = 0; s < m.B; s++) {
            for (int t = 0; t < m.T; t++) {
                const size_t i = s * m.T + t;
                if (fabs(a[i] - b[i]) * 10 < most) { continue; }
                list_add(&names, strf("%d:%d", s, t - sink_rows(&m)));
                break;
            }
        }
        return names;
    }

    // Returns a direction of length 1: that of the gradient, or a random one.
    Vector direction(const Tensor& t, const Vector& gradient, bool random) {
        Vector u = gradient;
        if (random) {
            for (long i = 0; i < t.count; i++) {
                u[i] = 0;
                if (is_learned(m, t, i)) { u[i] = rng_normal(&rng); }
            }
        }
        const double scale = std::max(norm(u), 1e-30);
        for (auto& x : u) { x /= scale; }
        return u;
    }

    // Compares gradient and slopes of one tensor at this point.
    void compare(const Tensor& t, Compared* c) {
        const Vector here(&weights[t.at], &weights[t.at] + t.count);
        const Vector gradient(&grads[t.at], &grads[t.at] + t.count);
        const double size = std::max(norm(gradient), 1e-6);
        const double h = MOVE * std::max(norm(here), 0.1);
        for (int k = 0; k < DIRECTIONS; k++) {
            const Vector u = direction(t, gradient, k > 0);
            const double wanted = product(gradient, u);
            const Vector far = slopes(t, u, h);
            const double before = (std::accumulate(far.begin(), far.end(), 0.0) - wanted) / size;
            double off = before;
            bool moved = false;
            std::string apart;
            // where the loss is curved much, the differences themselves are off: by 256 times less
            // with a quarter of the step. Corners that lie close want a shorter one
            for (int shorter : { 4, 16 }) {
                if (fabs(off) <= TOLERANCE || COARSE) { break; }
                const Vector near = slopes(t, u, h / shorter);
                off = (std::accumulate(near.begin(), near.end(), 0.0) - wanted) / size;
                apart = rows_apart(far, near);
                const double change = fabs(off - before);
                const bool close = shorter == 16 && fabs(off) < fabs(before) / 2;
                moved = moved || close || (shorter == 4 && change > TOLERANCE + fabs(off) / 4);
            }
            c->all++;
            if (!(fabs(off) <= c->worst)) { c->worst = fabs(off); }
            if (fabs(off) <= TOLERANCE) { continue; }
            (moved ? c->moved : c->steady)++;
            if (moved && c->rows.empty()) { c->rows = apart; }
        }
    }
};

// Fills in the sizes of a tiny model where no flag has set them.
static Arch tiny_arch(Flags* f) {
    Arch& a = f->arch;
    auto fill = [](int* size, int tiny) {
        if (!*size) { *size = tiny; }
    };
    fill(&a.L, 2);
    fill(&a.NH, 4);
    fill(&a.KV, a.NH % 2 ? a.NH : a.NH / 2);
    fill(&a.C, 32);
    fill(&a.F, 24);
    fill(&a.T, 12);
    fill(&a.V, 29);
    return arch_from_flags(f, a.V);
}

// Makes the model and computes its gradients on random tokens.
static GradientCheck gradient_check(const Arch& c, uint64_t seed) {
    const int B = 2;
    GradientCheck check = { model_new(c, c.T, true), rng_stream(seed, SEED_CHECK), 0, {}, {} };
    Model* m = &check.m;
    model_init(m, seed);
    std::vector<int> seqs((size_t)B * (c.T + 1));
    for (auto& token : seqs) { token = rng_below(&check.rng, c.V); }
    check.weights = weights_shaken(m, &check.rng);
    model_set_weights(m, check.weights.data());
    model_zero(m);
    const long targets = targets_count(m, seqs.data(), B, c.T);
    model_accumulate(m, seqs.data(), B, c.T, targets);
    check.grads = copy_to_host(m->grads_memory, m->num_params);
    check.count = model_load(m, seqs.data(), B, c.T);
    return check;
}

// Compares every tensor at one point, and those that are off there at the others.
static std::vector<Compared> compare_all(GradientCheck* first, uint64_t seed) {
    std::vector<Compared> all;
    for (auto& t : first->m.tensors) {
        all.emplace_back();
        first->compare(t, &all.back());
    }
    for (int point = 1; point < POINTS; point++) {
        const auto is_off = [](const Compared& c) { return c.off(); };
        if (std::none_of(all.begin(), all.end(), is_off)) { break; }
        GradientCheck next = gradient_check(first->m.arch, seed + point);
        for (size_t i = 0; i < all.size(); i++) {
            if (all[i].off()) { next.compare(next.m.tensors[i], &all[i]); }
        }
        model_free(&next.m);
    }
    return all;
}

// Compares the gradients of this build with finite differences of its loss, and prints a line for
// each tensor.
int command_check(Flags f) {
    flags_check(f, COMMAND_check);
    const Arch c = tiny_arch(&f);
    gpu_settle(&f, c);
    GradientCheck check = gradient_check(c, f.seed);
    if (COARSE) {
        printf("PRECISION=bf16: only sizes and signs can be checked, not single entries; fp32 "
               "checks both\n");
    }
    const std::vector<Compared> all = compare_all(&check, f.seed);
    printf("%-52s %12s %12s\n", "tensor", "|gradient|", "error / it");
    double worst = 0;
    std::string bad;
    std::string corners;
    for (size_t i = 0; i < all.size(); i++) {
        const Tensor& t = check.m.tensors[i];
        const Vector gradient(&check.grads[t.at], &check.grads[t.at] + t.count);
        std::string says;
        if (all[i].wrong()) {
            says = "   WRONG";
            list_add(&bad, t.name);
        } else if (all[i].off()) {
            says = strf("   %d of %d slopes at a corner, rows %s", all[i].moved, all[i].all,
                        all[i].rows.c_str());
            list_add(&corners, t.name);
        } else {
            worst = std::max(worst, all[i].worst);
        }
        printf("%-52s %12.3e %12.1e%s\n", t.name.c_str(), norm(gradient), all[i].worst,
               says.c_str());
    }
    model_free(&check.m);
    if (!bad.empty()) {
        die(EXIT_MACHINE,
            strf("gradients: differ by more than %g of their length", TOLERANCE) +
                " from the slopes of the loss: " + bad,
            "look at the backward pass of the first stage whose weights these are");
    }
    if (!corners.empty()) {
        printf("note   the slope changes with the step: a corner or a jump, not a wrong "
               "derivative, at %s, in the rows of attention (sequence:token) beside them. Their "
               "judge is test_attention: CONTRIBUTING.md\n",
               corners.c_str());
        return 0;
    }
    printf("the gradients of %zu tensors are the slopes of the loss, to %.1e (tolerance %g)\n",
           all.size(), worst, TOLERANCE);
    return 0;
}
