/*
optimizer.h -- the update after a step's gradients: AdamW, SGD, Muon.
*/
#ifndef OPTIMIZER_H
#define OPTIMIZER_H
#include "../model.h"
#include "schedule.h"

// ---- Muon

// Returns how many numbers Muon works with beside the largest matrix of these tensors: two copies,
// and two square ones.
inline size_t muon_numbers(const std::vector<Tensor>& tensors) {
    long most = 0;
    for (auto& t : tensors) {
        if (t.purpose != FOR_PRODUCT) { continue; }
        const long small = std::min(t.shape[0], t.shape[1]);
        most = std::max(most, 2 * t.count + 2 * small * small);
    }
    return most;
}

// Updates a matrix by Muon (Jordan et al. 2024): by its momentum, with singular values brought near
// to 1 by five Newton-Schulz steps  x <- a x + (b A + c A A) x,  A = x x^T,  and the length that
// AdamW's step would have (Liu et al. 2025), so that --lr and --weight-decay mean what they mean
// there.
inline void muon_update(Model* m, const Tensor& t, const Update& o) {
    const int rows = t.shape[0];
    const int cols = t.shape[1];
    const int r = std::min(rows, cols);
    const int c = std::max(rows, cols);
    if (!m->muon) { m->muon = device_array<real>(muon_numbers(m->tensors)); }
    real* x = m->muon;
    real* y = x + t.count;
    real* A = y + t.count;
    real* AA = A + (size_t)r * r;
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

// ---- the update of a model

// Adds up the sums of all ranks, in m->sums of each.
inline void model_sums(Model* m, float clip) {
    if (dist::world() == 1) { return; }
    StepSums sums = copy_to_host(m->sums, 1)[0];
    double both[] = { sums.loss, sums.squares };
    dist::sum(both, 2);
    sums = { both[0], both[1], grad_scale(both[0], both[1], clip) };
    ops::to_device(m->sums, &sums, sizeof sums);
}

// Tells whether a tensor is trained: all are without --only.
inline bool is_trained(const Model* m, const Tensor& t) {
    return m->only.empty() || has(m->only, t.name);
}

// Updates `count` numbers of this rank's shard, from `at` on, by AdamW or SGD.
inline void shard_update(Model* m, const Update& o, kind optimizer, long at, long count) {
    auto update = ops::adamw_update;
    if (optimizer == OPTIMIZER_sgd) { update = ops::sgd_update; }
    update(m->shard_params + at, m->master + at, m->adam_m + at, m->adam_v + at,
           m->shard_grads + at, m->sums, o, count);
}

// Updates one tensor after the other, those that are trained. One rank only: it has whole tensors.
inline void update_tensors(Model* m, const Update& all, kind optimizer) {
    for (auto& t : m->tensors) {
        if (!is_trained(m, t)) { continue; }
        Update o = all;
        o.lr *= factor_of(m, t, "lr");
        o.weight_decay *= factor_of(m, t, "decay");
        o.eps *= factor_of(m, t, "eps");
        if (optimizer == OPTIMIZER_muon && t.purpose == FOR_PRODUCT) {
            muon_update(m, t, o);
        } else {
            shard_update(m, o, optimizer, t.at, t.count);
        }
    }
}

// Clips the gradients of all micro-batches and updates the weights, unless the loss or the
// gradients are not finite; returns loss and norm. Here, once per step, the host waits.
inline StepSums model_update(Model* m, const Update& o, float clip, kind optimizer) {
    const long n = m->shard.mine;
    dist::arrive();
    for (auto& t : m->tensors) { // their gradients do not count for the clipping
        if (!is_trained(m, t)) { ops::device_zero(m->grads_memory + t.at, t.count * sizeof(acc)); }
    }
    ops::square_norm(m->sums, m->shard_grads, clip, n);
    model_sums(m, clip);
    if (optimizer != OPTIMIZER_muon && m->only.empty() && m->factors.empty()) {
        shard_update(m, o, optimizer, 0, n);
    } else {
        update_tensors(m, o, optimizer);
    }
    if (n < m->num_params) {
        shard_gather(m->shard, m->params_memory, m->shard_params, sizeof *m->params_memory);
    }
    const StepSums sums = copy_to_host(m->sums, 1)[0];
    ops::profile_step();
    return sums;
}

#endif // OPTIMIZER_H
