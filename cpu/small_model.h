/*
small_model.h -- a training step of a small model on the CPU, by pieces of the batch. Threads that
meet after every operation wait for each other some fifty times per step, and that takes as long as
the operations of a small model. So each thread takes some sequences through the whole model,
forward and backward: their activations stay in its cache, and it waits once. Each piece has
gradients of its own, which are added in the order of the pieces. The cut depends on model and batch
alone, so the bits are the same for any number of threads.
*/
#ifndef SMALL_MODEL_H
#define SMALL_MODEL_H
#include "../model.h" // Model, model_load, accumulate_loaded, model_zero

// Returns how many of B sequences of T tokens one thread takes. Returns B (no split) for larger
// models, where a gradient copy for each piece costs more than the barriers.
inline int piece_sequences(const Model* m, int B, int T) {
    const long small_model = 1 << 19;                 // parameters
    const long most_pieces = 64;
    if (ops::piece_rows == 0 || m->num_params > small_model) { return B; }
    const long rows = T + sink_rows(m);        // of a sequence
    const long enough = div_up(ops::piece_rows, rows);
    const long least = div_up(B, most_pieces);
    return std::min<long>(B, std::max(enough, least));
}

// Returns a model with the weights of m, but activations and gradients of its own.
inline Model piece_new(const Model& m) {
    Model p = m;
    p.pieces.clear();
    p.B = 0;
    p.T = 0;
    p.arena = NULL;
    p.arena_bytes = 0;
    p.tokens = NULL;
    p.targets = NULL;
    p.token_room = 0;
    p.grads_memory = device_array<acc>(m.num_params);
    p.sums = device_array<StepSums>(1);
    Layout(m.arch).params(&p.params, NULL, p.params_memory, p.grads_memory);
    return p;
}

// Adds the gradients of the pieces to grads (n), in their order.
inline void pieces_add(acc* grads, const std::vector<Model>& pieces, long n) {
    const long chunk = 1024;                          // stays in the first cache
    #pragma omp parallel for schedule(static)
    for (long k = 0; k < n; k += chunk) {
        const long end = std::min(n, k + chunk);
        for (const Model& p : pieces) {
            const acc* piece = p.grads_memory;
            for (long i = k; i < end; i++) { grads[i] += piece[i]; }
        }
    }
}

// Makes m have n pieces.
inline void pieces_resize(Model* m, size_t n) {
    if (m->pieces.size() == n) { return; }
    pieces_free(m);
    std::vector<Model> pieces;
    for (size_t i = 0; i < n; i++) { pieces.push_back(piece_new(*m)); }
    m->pieces = std::move(pieces);
}

// Runs one micro-batch, seqs (B, T + 1), in pieces of `size` sequences: as model_accumulate.
inline void accumulate_pieces(Model* m, const int* seqs, int B, int T, int size, long count) {
    const int n = div_up(B, size);
    pieces_resize(m, n);
    for (int i = 0; i < n; i++) {
        const int first = i * size;
        const int sequences = std::min(size, B - first);
        const int* tokens = seqs + (size_t)first * (T + 1);
        model_load(&m->pieces[i], tokens, sequences, T, true);
    }

    #pragma omp parallel for schedule(dynamic)
    for (int i = 0; i < n; i++) {
        model_zero(&m->pieces[i]);
        accumulate_loaded(&m->pieces[i], count, false);
    }
    for (const Model& p : m->pieces) { m->sums->loss += p.sums->loss; }
    pieces_add(m->grads_memory, m->pieces, m->num_params);
}
#endif // SMALL_MODEL_H
