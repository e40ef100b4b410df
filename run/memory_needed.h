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
#include "process.h"

// Returns the bytes of the activations of B sequences of T tokens.
inline size_t acts_bytes(const Arch& c, bool train, long B, long T) {
    Acts none;
    return Layout(c).acts(&none, NULL, acts_shape(c, train, B, T));
}

// Returns the bytes of the tables of positions for sequences of T tokens.
inline double tables_bytes(const Arch& c, double T) {
    double per_token = 0;
    if (pe_of(c).rotary) {
        const double tables = c.rope_local ? 2 : 1;
        per_token += sizeof(acc) * rotated(c) * tables;
    }
    if (pe_of(c).absolute) {
        per_token += sizeof(real) * c.C;
    }
    return T * per_token;
}

// Returns the bytes of activations and tables for B sequences of T tokens, also where they are more
// than a size_t holds.
inline double batch_bytes(const Arch& c, bool train, long B, long T) {
    const double layers = train ? c.L : 1;
    const double rough = (double)B * T * layers * (4.0 * c.C + 4.0 * c.F);

    double acts = rough * sizeof(real);
    if (rough <= 1e15) {
        acts = acts_bytes(c, train, B, T);
    }
    return acts + tables_bytes(c, T);
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
    Params<real> none;
    std::vector<Tensor> tensors;
    const double n = Layout(c).params<real>(&none, &tensors, NULL);

    // Each of many ranks has a shard of master and of the optimizer's state, and of two copies.
    const double parts = train ? dist::world : 1;
    const bool sharded = parts > 1;

    // The weights exist as master and in `real`.
    double per_weight = sizeof(acc) / parts;
    if (sharded || !std::is_same<real, acc>::value) {
        per_weight += sizeof(real);
    }
    const double weights = n * per_weight - spared;

    double grads = 0;
    double optimizer = 0;
    if (train) {
        grads = n * sizeof(acc);
        optimizer = 2 * n / parts * sizeof(acc);
    }
    if (run && run->ema > 0) {
        optimizer += n / parts * sizeof(acc);
    }
    if (run && run->optimizer == OPTIMIZER_muon) {
        optimizer += muon_numbers(tensors) * sizeof(real);
    }
    if (sharded) {
        grads += n / parts * (sizeof(acc) + sizeof(real));
    }

    double acts = batch_bytes(c, train, B, T);
    if (run) { acts = run_bytes(c, *run, acts); }
    *bytes = weights + grads + optimizer + acts;

    const double MiB = 0x1p20;
    return strf("weights %.1f + gradients %.1f + optimizer %.1f + activations %.1f = %.1f MiB",
                weights / MiB, grads / MiB, optimizer / MiB, acts / MiB, *bytes / MiB);
}

// Dies if the ranks of this machine want more than `free` bytes, `bytes` each. parts says
// what they are for.
inline void memory_require(double bytes, const std::string& parts, double free,
                           const std::string& hint) {
    if (dist::local > 0) {                       // one rank asks for all of this machine
        return;
    }
    if (bytes * dist::neighbors <= free) {
        return;
    }
    const std::string each = dist::neighbors > 1 ? " for each rank" : "";
    const std::string wanted = bytes_text(bytes) + each;
    die(EXIT_MACHINE,
        "memory: wanted " + wanted + " (" + parts + "), " + bytes_text(free) + " are free", hint);
}

// Checks on the CPU, before anything is allocated, that the model fits. (On a GPU the allocation
// itself fails.)
inline void memory_check(const Arch& c, long B, long T, bool train, double spared = 0,
                         const Flags* run = NULL) {
    double bytes;
    const std::string parts = memory_text(c, B, T, train, &bytes, spared, run);
    const double free = ops::on_host ? memory_free() : INFINITY;
    memory_require(bytes, parts, free, memory_hint);
}

// Checks, before anything is allocated, that the token ids of a step fit. They are drawn at once,
// and so are those of the next one. A micro-batch also has a target for each.
inline void step_memory_check(long tokens_per_step) {
    const double bytes = 3.0 * sizeof(int) * tokens_per_step / dist::world;
    const std::string what =
        strf("for the tokens of a step, --total-batch %ld", tokens_per_step);
    memory_require(bytes, what, memory_free(), "lower --total-batch");
}

// Checks, before it is made, that the table of the built-in task fits.
inline void table_memory_check(const Flags& f) {
    const double bytes = f.data == "bb" ? bigram_bytes(f.bb_vocab) : 0;
    memory_require(bytes, strf("for --bb-vocab %ld", f.bb_vocab), memory_free(),
                   "lower --bb-vocab");
}

// Returns the largest divisor of `all` sequences that fits 7/8 of the free memory of a GPU, up to
// 2^16 tokens: more do not make it faster. A small model waits for memory: what one of its kernels
// writes is to be in the cache when the next one reads it. The cache is an A100's, 40 MiB, on every
// card, as the batch decides about bits.
inline long batch_that_fits(const Model* m, long all, long T) {
    const long cache = 40L << 20;
    const long widest = std::max(m->sizes.qkv_width, m->sizes.up_width);
    long tokens = 1L << 16;
    if (m->arch.C <= 512) {
        tokens = std::min<long>(tokens, cache / (widest * sizeof(real)));
    }
    long batch = 1;
    for (long B = 2; B <= std::min(all, tokens / T); B++) {
        if (all % B != 0) {
            continue;
        }
        if (acts_bytes(m->arch, true, B, T) < ops::device_left() / 8 * 7) {
            batch = B;
        }
    }
    return batch;
}

// Chooses the batch in memory. -b says it. Without -b, a GPU with --total-batch takes what the run
// that goes on had (`kept`) if it divides a step of this number of ranks, or else what fits.
// Otherwise it is the preset's.
inline void choose_batch(const Model* m, Flags* f, long kept) {
    const long T = f->arch.T;
    if (!ops::on_host && !f->given_batch && f->total_batch >= T) {
        const long all = f->total_batch / T / dist::world;
        if (kept && all % kept == 0) {
            f->batch = std::max(1L, kept);
        } else {
            f->batch = batch_that_fits(m, all, T);
        }
    }
    f->batch = dist::least(f->batch);

    const long at_once = f->batch * T * dist::world;
    const char* ranks = dist::world > 1 ? " * ranks" : "";
    require(f->total_batch % at_once == 0, strf("--total-batch %ld", f->total_batch),
            strf("a multiple of batch * seq%s = %ld", ranks, at_once));
}
#endif // MEMORY_NEEDED_H
