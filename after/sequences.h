/*
sequences.h -- the sequences that are measured, batch by batch, and the activations of a batch in
host memory.
*/
#ifndef SEQUENCES_H
#define SEQUENCES_H
#include "../core/measure.h"
#include "vectors.h"

inline int tokens_at_once() { return ops::on_host ? 2048 : 8192; }

// Sequences (n, T + 1). A token that no loss asks for is there as ~id.
struct Sequences {
    const int* x;
    int n, T;
    int at_once = tokens_at_once();

    const int* from(int i) const { return x + i * (T + 1L); }

    // Returns the id of token t, from 0, of sequence i.
    int id(int i, int t) const {
        const int id = from(i)[t];
        return id < 0 ? ~id : id;
    }
};

// Loads the sequences in batches. Calls run(first, count) for the batch that begins with sequence
// `first`, in which the loss asks for `count` tokens.
inline void each_batch(Model* m, const Sequences& text,
                       const std::function<void(int first, long count)>& run) {
    const int most = std::max(1, text.at_once / text.T);
    for (int first = 0; first < text.n; first += most) {
        if (progress.batch) { progress.batch(first, text.n); }
        const int B = std::min(most, text.n - first);
        run(first, model_load(m, text.from(first), B, text.T));
    }
}

// Rows of an activation (N, C) in host memory.
struct HostRows {
    std::vector<real> x;
    long C;

    HostRows(const Model* m, const real* from)
        : x(copy_to_host(from, rows(m) * m->sizes.C)), C(m->sizes.C) {}
    Vector row(long n) const { return Vector(&x[n * C], &x[n * C] + C); }
};

// Adds one number of every loaded row to place l: that of the first token, and the mean of the
// others', of n sequences in all.
inline void add_rows(NormPair* sums, int l, const Model* m, const Vector& x, int n) {
    norms_add(sums, l, x.data(), m->B, m->T, 1, sink_rows(m), n);
}
#endif // SEQUENCES_H
