/*
memory_needed.h -- the memory that a model takes, in words, and a check that it is there.
*/
#ifndef MEMORY_NEEDED_H
#define MEMORY_NEEDED_H
#include "../dataloader.h"
#include "../model.h"
#include "../flags.h"
#include "../core/optimizer.h"
#include "../metrics.cuh"
#include "gpu.h"
#include "process.h"

// Returns the bytes of activations and tables of positions for B sequences of T tokens, also where
// they are more than a size_t holds.
inline double batch_bytes(const Arch& c, bool train, long B, long T) {
    const double rough = (double)B * T * (train ? c.L : 1) * (4.0 * c.C + 4.0 * c.F);
    double bytes = rough > 1e15 ? rough * sizeof(real) : acts_bytes(c, train, B, T);
    if (pe_of(c).rotary)   { bytes += T * sizeof(acc) * rotated(c) * (c.rope_local ? 2 : 1); }
    if (pe_of(c).absolute) { bytes += T * sizeof(real) * c.C; }
    return bytes;
}

// Returns the bytes of activations and of the probe of a run: its sequences, the metrics of each
// and, where a sequence is longer than the batch, its pass, whose norms exist on the device and on
// the host.
inline double run_bytes(const Arch& c, const Flags& f, double acts) {
    const long T = atol(f.probe_len.c_str());
    const double heads = (double)c.L * c.NH;
    const double kept = f.probe_seqs * (T * sizeof(int) + heads * sizeof(HeadMetrics));
    const double norms = T * heads * 12 * sizeof(acc);
    return kept + std::max(acts, T > c.T ? batch_bytes(c, true, 1, T) + norms : 0);
}

// Describes the MiB of weights, gradients, optimizer and activations; *bytes is their sum. The
// weights take `spared` bytes less than floats would. run: the flags of one, NULL for none.
inline std::string memory_text(const Arch& c, long B, long T, bool train, double* bytes,
                               double spared = 0, const Flags* run = NULL) {
    Params none;
    std::vector<Tensor> tensors;
    const double n = Layout(c).params(&none, &tensors, NULL, NULL);

    // Each of many ranks has a shard of master and of the optimizer's state, and of two copies.
    const double shard = train ? n / dist::world() : n;
    const bool sharded = shard < n;

    // The weights exist as master and in `real`.
    double weights = shard * sizeof(acc) - spared;
    if (sharded || sizeof(real) < sizeof(acc)) { weights += n * sizeof(real); }

    double grads = 0;
    double optimizer = 0;
    double acts = batch_bytes(c, train, B, T);
    if (train) {
        grads = n * sizeof(acc);
        optimizer = 2 * shard * sizeof(acc);
    }
    if (sharded) { grads += shard * (sizeof(acc) + sizeof(real)); }
    if (run) {
        if (run->ema > 0) { optimizer += shard * sizeof(acc); }
        if (run->optimizer == OPTIMIZER_muon) { optimizer += muon_numbers(tensors) * sizeof(real); }
        acts = run_bytes(c, *run, acts);
    }
    *bytes = weights + grads + optimizer + acts;

    const double MiB = 0x1p20;
    return strf("weights %.1f + gradients %.1f + optimizer %.1f + activations %.1f = %.1f MiB",
                weights / MiB, grads / MiB, optimizer / MiB, acts / MiB, *bytes / MiB);
}

// Dies if the ranks of this machine want more memory than is free, `bytes` each. parts says what
// they are for.
inline void memory_require(double bytes, const std::string& parts, const std::string& hint) {
    if (dist::local() > 0) { return; }                   // one rank asks for all of this machine
    const double free = memory_free();
    if (bytes * dist::neighbors() <= free) { return; }
    const char* each = dist::neighbors() > 1 ? " for each rank" : "";
    die(EXIT_MACHINE, "memory: wanted " + bytes_text(bytes) + each + " (" + parts + "), " +
                          bytes_text(free) + " are free", hint);
}

// Checks on the CPU, before anything is allocated, that the model fits. (On a GPU the allocation
// itself fails.)
inline void memory_check(const Arch& c, long B, long T, bool train, double spared = 0,
                         const Flags* run = NULL) {
    if (!ops::on_host) { return; }
    double bytes;
    const std::string parts = memory_text(c, B, T, train, &bytes, spared, run);
    memory_require(bytes, parts, hints.memory);
}

// Checks, before anything is allocated, that the token ids of a step fit. They are drawn at once,
// and so are those of the next one. A micro-batch also has a target for each.
inline void step_memory_check(long tokens_per_step) {
    memory_require(3.0 * sizeof(int) * tokens_per_step / dist::world(),
                   strf("for the tokens of a step, --total-batch %ld", tokens_per_step),
                   "lower --total-batch");
}

// Checks, before it is made, that the table of the built-in task fits.
inline void table_memory_check(const Flags& f) {
    if (f.data != "bb") { return; }
    memory_require(bigram_bytes(f.bb_vocab), strf("for --bb-vocab %ld", f.bb_vocab),
                   "lower --bb-vocab");
}

// Chooses the batch in memory. -b says it. Without -b, a GPU with --total-batch takes what the run
// that goes on had (`kept`) if it divides a step of this number of ranks, or else what fits.
// Otherwise it is the preset's.
inline void choose_batch(const Model* m, Flags* f, long kept) {
    const long T = f->arch.T;
    if (!ops::on_host && !f->given_batch && f->total_batch >= T) {
        const long all = f->total_batch / T / dist::world();
        const bool divides = kept > 0 && all % kept == 0;
        f->batch = divides ? kept : batch_that_fits(m, all, T);
    }
    f->batch = dist::least(f->batch);

    const long at_once = f->batch * T * dist::world();
    const char* ranks = dist::world() > 1 ? " * ranks" : "";
    require(f->total_batch % at_once == 0, strf("--total-batch %ld", f->total_batch),
            strf("a multiple of batch * seq%s = %ld", ranks, at_once));
}
#endif // MEMORY_NEEDED_H
