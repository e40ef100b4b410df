/*
optimizer.h -- the update after a step's gradients: AdamW, SGD, Muon.
*/
#ifndef OPTIMIZER_H
#define OPTIMIZER_H
#include "model.h"

enum Optimizer { ADAMW, SGD, MUON, OPTIMIZER_COUNT };
static const char* const OPTIMIZERS[OPTIMIZER_COUNT] = { "adamw", "sgd", "muon" };

// Finds an optimizer by its name; dies if there is none.
inline Optimizer optimizer_of(const std::string& name) {
    int i = 0;
    while (i < OPTIMIZER_COUNT && name != OPTIMIZERS[i]) { i++; }
    require(i < OPTIMIZER_COUNT, "--optimizer " + name, "adamw, muon or sgd");
    return (Optimizer)i;
}

// The learning rate by step: it rises to `peak` in `warmup` steps and stays there or, with a
// cosine, falls to `lowest` at the end of the run.
struct Schedule {
    double peak, lowest;
    long warmup, steps;
    bool cosine;
};

// Computes the learning rate of update number step + 1.
inline double learning_rate(const Schedule& s, long step) {
    if (step < s.warmup) { return s.peak * (step + 1) / s.warmup; }
    if (!s.cosine) { return s.peak; }
    const double done = s.steps > s.warmup ? (double)(step - s.warmup) / (s.steps - s.warmup) : 1;
    return s.lowest + 0.5 * (s.peak - s.lowest) * (1 + cos(M_PI * std::min(1.0, done)));
}

// Muon (Jordan et al. 2024): the momentum of a matrix, with its singular values brought near to 1
// by five Newton-Schulz steps  x <- a x + (b A + c A A) x,  A = x x^T,  and the length that AdamW's
// step would have (Liu et al. 2025), so that --lr and --weight-decay mean what they mean there
inline void muon_update(Model* m, const Tensor& t, const Update& o) {
    const int rows = t.shape[0], cols = t.shape[1];
    const int r = std::min(rows, cols), c = std::max(rows, cols);
    if (!m->muon) { // for the largest of these matrices
        size_t most = 0;
        for (auto& one : m->tensors) {
            const size_t small = std::min(one.shape[0], one.shape.back());
            if (is_hidden_matrix(one)) { most = std::max(most, 2 * one.count + 2 * small * small); }
        }
        m->muon = (real*)ops::device_malloc(most * sizeof(real));
    }
    real *x = m->muon, *y = x + t.count, *A = y + t.count, *AA = A + (size_t)r * r;
    ops::muon_begin(x, m->adam_m + t.at, m->grads_memory + t.at, m->sums, rows, cols);
    for (int step = 0; step < 5; step++) {
        ops::matmul_forward(A, x, x, NULL, NULL, r, c, r);             // A = x x^T
        ops::matmul_forward(AA, A, A, NULL, NULL, r, r, r);            // A A, as A is symmetric
        ops::muon_mix(AA, A, r);                                       // a + b A + c A A
        ops::matmul_backward_input(y, AA, x, false, r, c, r);          // that times x
        std::swap(x, y);
    }
    ops::muon_end(m->params_memory + t.at, m->master + t.at, x, m->sums, o, rows, cols);
}

// with many ranks: m->sums become the sums over all of them
inline void model_sums(Model* m, float clip) {
    if (dist::world == 1) { return; }
    StepSums sums;
    ops::to_host(&sums, m->sums, sizeof sums);
    double both[] = { sums.loss, sums.squares };
    dist::sum(both, 2);
    sums = { both[0], both[1], grad_scale(both[0], both[1], clip) };
    ops::to_device(m->sums, &sums, sizeof sums);
}

// --only: is this tensor trained?
inline bool is_trained(const Model* m, const Tensor& t) {
    auto in_name = [&](const std::string& word) { return has_word(t, word); };
    return m->only.empty() || std::any_of(m->only.begin(), m->only.end(), in_name);
}

// after all micro-batches: clips the gradients and updates the weights, unless the loss or the
// gradients are not finite; returns loss and norm. Here, once per step, the host waits
inline StepSums model_update(Model* m, const Update& o, float clip, Optimizer how) {
    const long n = m->shard.mine;
    dist::arrive();
    for (auto& t : m->tensors) { // their gradients do not count for the clipping
        if (!is_trained(m, t)) { ops::device_zero(m->grads_memory + t.at, t.count * sizeof(acc)); }
    }
    ops::square_norm(m->sums, m->shard_grads, clip, n);
    model_sums(m, clip);
    const auto update = [&](long at, long count) {
        const auto f = how == SGD ? ops::sgd_update : ops::adamw_update;
        f(m->shard_params + at, m->master + at, m->adam_m + at, m->adam_v + at,
          m->shard_grads + at, m->sums, o, count);
    };
    const bool at_once = how != MUON && m->only.empty();
    if (at_once) { update(0, n); }
    for (auto& t : m->tensors) { // only with one rank, which has whole tensors
        if (at_once || !is_trained(m, t)) { continue; }
        if (how == MUON && is_hidden_matrix(t)) { muon_update(m, t, o); continue; }
        update(t.at, t.count);
    }
    if (n < m->num_params) { shard_gather(m->shard, m->params_memory, m->shard_params); }
    StepSums sums;
    ops::to_host(&sums, m->sums, sizeof sums);
    return sums;
}

#endif // OPTIMIZER_H
