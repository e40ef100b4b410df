/*
small_model.h -- a training step of a small model on the CPU, by pieces of the batch. Threads that
meet after every operation wait for each other some fifty times per step, and an operation of a small
model takes no longer than that. So a thread takes some sequences through the whole model, forward and
backward: their activations stay in its cache, and it waits once. Each piece has gradients of its
own, which are added in the order of the pieces. The cut depends on model and batch, not on the
threads: the same bits for any number of them.
*/
#ifndef SMALL_MODEL_H
#define SMALL_MODEL_H
#include "model.h"      // Model, model_load
#include "train_sink.h" // accumulate_loaded, model_zero

// The sequences of a piece of B sequences of T tokens; B itself, where the batch is not cut: of a
// larger model gradients for each piece would take more memory and time than the waiting
inline int piece_sequences(const Model* m, int B, int T) {
    const long small = 1 << 19, most = 64;            // parameters; pieces
    if (ops::piece_rows == 0 || m->num_params > small) { return B; }
    const long rows = T + m->d.bias.token, enough = (ops::piece_rows + rows - 1) / rows;
    return std::min<long>(B, std::max(enough, (B + most - 1) / most));
}

// m with the same weights, but activations and gradients of its own
inline Model piece_new(const Model& m) {
    Model p = m;
    p.pieces.clear();
    p.B = p.T = 0;
    p.arena = NULL;
    p.arena_bytes = p.token_room = 0;
    p.tokens = p.targets = NULL;
    p.grads = (acc*)ops::device_malloc(m.num_params * sizeof(acc));
    p.sums = (StepSums*)ops::device_malloc(sizeof(StepSums));
    Layout(m.c).params<acc>(&p.g, NULL, p.grads);
    return p;
}

// grads (n) += those of the pieces, in their order
inline void pieces_add(acc* grads, const std::vector<Model>& pieces, long n) {
    #pragma omp parallel for schedule(static)
    for (long k = 0; k < n; k += 1024) {
        const long end = std::min(n, k + 1024);
        for (auto& p : pieces) {
            for (long i = k; i < end; i++) { grads[i] += p.grads[i]; }
        }
    }
}

// one micro-batch as model_accumulate's, in pieces of `some` sequences
inline void accumulate_pieces(Model* m, const int* seqs, int B, int T, int some, long count) {
    const int n = (B + some - 1) / some;
    if ((int)m->pieces.size() != n) {
        pieces_free(m);
        std::vector<Model> pieces;
        for (int i = 0; i < n; i++) { pieces.push_back(piece_new(*m)); }
        m->pieces = std::move(pieces);
    }
    for (int i = 0; i < n; i++) {
        const int* from = seqs + (size_t)i * some * (T + 1);
        model_load(&m->pieces[i], from, std::min(some, B - i * some), T, m->min_context);
    }
    #pragma omp parallel for schedule(dynamic)
    for (int i = 0; i < n; i++) {
        model_zero(&m->pieces[i]);
        accumulate_loaded(&m->pieces[i], count, false);
    }
    for (auto& p : m->pieces) { m->sums->loss += p.sums->loss; }
    pieces_add(m->grads, m->pieces, m->num_params);
}
#endif // SMALL_MODEL_H
