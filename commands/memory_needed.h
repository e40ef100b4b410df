/*
memory_needed.h -- the memory that a model takes, in words, and whether it is there.
*/
#ifndef MEMORY_NEEDED_H
#define MEMORY_NEEDED_H
#include "../model.h"
#include "../flags.h"
#include "../shell/process.h"

// bytes of the activations of B sequences of T tokens; table: by tensor, in words
inline size_t acts_bytes(const Arch& c, bool train, long B, long T, std::string* table = NULL) {
    const Layout layout(c);
    Acts none;
    T += layout.bias.token;
    const long R = std::min<long>(ops::lm_head_rows(c.V, sizeof(real), train), B * T);
    return layout.acts(&none, NULL, train, B, T, R, table);
}

// bytes of the tables of positions for sequences of T tokens
inline double tables_bytes(const Arch& c, double T) {
    const double turns =
        pe_of(c).rotary ? sizeof(acc) * rotated(c) * (c.rope_local ? 2.0 : 1.0) : 0;
    return T * (turns + (pe_of(c).absolute ? sizeof(real) * c.C : 0));
}

// MiB of weights, gradients, optimizer and activations, in words; *bytes their sum; spared: bytes
// that the weights take less than floats would
inline std::string memory_text(const Arch& c, long B, long T, bool train, double* bytes,
                               double spared = 0) {
    Params<real> none;
    const double n = Layout(c).params<real>(&none, NULL, NULL);
    const double rough = (double)B * T * (train ? c.L : 1) * (4.0 * c.C + 4.0 * c.F);
    // the weights exist as master and in `real`
    const bool copied = !std::is_same<real, acc>::value;
    // of many ranks each has a shard of master, of the optimizer's state, and of two copies
    const double parts = train ? dist::world : 1, sharded = parts > 1;
    const double all = n * (sizeof(acc) / parts + (copied || sharded ? sizeof(real) : 0)),
                 weights = all - spared,
                 shard = sharded ? n / parts * (sizeof(acc) + sizeof(real)) : 0,
                 grads = train ? n * sizeof(acc) + shard : 0,
                 optimizer = train ? 2 * n / parts * sizeof(acc) : 0;
    // beyond what a size_t holds
    const double acts = (rough > 1e15 ? rough * sizeof(real) : acts_bytes(c, train, B, T)) +
                        tables_bytes(c, T);
    *bytes = weights + grads + optimizer + acts;
    return strf("weights %.1f + gradients %.1f + optimizer %.1f + activations %.1f = %.1f MiB",
                weights / 0x1p20, grads / 0x1p20, optimizer / 0x1p20, acts / 0x1p20,
                *bytes / 0x1p20);
}

// Ends the run if the ranks of this machine want more bytes than are free, `bytes` each. parts:
// what for, in words.
inline void memory_require(double bytes, const std::string& parts, double free,
                           const std::string& hint) {
    if (dist::local > 0 || bytes * dist::neighbors <= free) { return; } // one asks for all here
    die(EXIT_MACHINE,
        "memory: wanted " + bytes_text(bytes) + (dist::neighbors > 1 ? " for each rank" : "") +
            " (" + parts + "), " + bytes_text(free) + " are free",
        hint);
}

// Checks on the CPU, before anything is allocated, that the model fits. (On a GPU the allocation
// itself fails.)
inline void memory_check(const Arch& c, long B, long T, bool train, double spared = 0) {
    double bytes;
    const std::string parts = memory_text(c, B, T, train, &bytes, spared);
    memory_require(bytes, parts, ops::on_host ? memory_free() : INFINITY,
                   "lower --batch, --seq or the model size");
}

// Checks, before anything is allocated, that the token ids of a step fit: they are drawn at once,
// and so are those of the next one. A micro-batch also has a target for each.
inline void step_memory_check(long tokens_per_step) {
    const double bytes = 3.0 * sizeof(int) * tokens_per_step / dist::world;
    memory_require(bytes, strf("for the tokens of a step, --total-batch %ld", tokens_per_step),
                   memory_free(), "lower --total-batch");
}

// The batch in memory: what -b says; else, with --total-batch on a GPU, `kept` by the run that goes
// on, or as many sequences as fit 7/8 of the free memory, up to 2^16 tokens (more do not make a GPU
// faster); else the preset's
inline void choose_batch(const Model* m, Flags* f, long kept) {
    const bool choose = !ops::on_host && !f->given_batch && f->total_batch >= f->arch.T;
    const long all = choose ? f->total_batch / f->arch.T / dist::world : 0,
               most = std::max(1L, (1L << 16) / f->arch.T);
    if (choose && kept && all % kept) { kept = 0; }              // of another number of ranks
    if (choose) { f->batch = std::max(1L, kept); }
    for (long B = 2; !kept && B <= std::min(all, most); B++) {
        if (all % B == 0 && acts_bytes(m->arch, true, B, f->arch.T) < ops::device_left() / 8 * 7) {
            f->batch = B;
        }
    }
    f->batch = dist::least(f->batch);
    const long at_once = f->batch * f->arch.T * dist::world;
    require(f->total_batch % at_once == 0, strf("--total-batch %ld", f->total_batch),
            strf(dist::world == 1 ? "a multiple of batch * seq = %ld"
                                  : "a multiple of batch * seq * ranks = %ld", at_once));
}
#endif // MEMORY_NEEDED_H
