/*
cpu/cpu_model.cpp -- what the model asks of cpu/ beside its operations: losses alone, a part of the
vocabulary at a time, and the batch of a small model in pieces.
*/
#include "small_model.h"
#include "training.h"

// Computes only the losses (N) of rows x (N, C), lm_head's input. Works through the vocabulary in
// chunks, so that the logits stay in cache.
static void lm_head_losses(Model* m, acc* losses, const real* x, const int* targets, int N) {
    const long V = m->sizes.V;
    const long room = m->lm_head_rows * V / N;           // columns of N rows in the logits' memory
    const long most = std::min<long>(ops::lm_head_part, room);
    const long chunk = std::min(V, std::max(1L, most));
    std::vector<cpu::ClassifierRow> seen(N);
    for (long first = 0; first < V; first += chunk) {
        const int n = std::min(chunk, V - first);
        const long C = m->sizes.C;
        const real* bias = row_of(m->params.lmb.w, first, 1);
        ops::matmul_forward(m->acts.logits, x, m->params.lmw.w + first * C, bias, NULL, N, C, n);
        cpu::classifier_part(seen.data(), m->acts.logits, targets, m->arch.logit_cap, first, n, N);
    }
    for (int n = 0; n < N; n++) {
        const bool counts = targets[n] >= 0;
        losses[n] = counts ? seen[n].loss() : acc(0);
    }
}

static bool in_pieces(Model* m, const int* seqs, int B, int T, long count) {
    const int size = piece_sequences(m, B, T);
    if (size < B) { accumulate_pieces(m, seqs, B, T, size, count); }
    return size < B;
}

extern const CpuModel CPU_MODEL;
const CpuModel CPU_MODEL = { lm_head_losses, in_pieces };
