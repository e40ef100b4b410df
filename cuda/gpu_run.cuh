/*
gpu_run.cuh -- what gpu_run.h says, for a GPU.
*/
#ifndef GPU_RUN_CUH
#define GPU_RUN_CUH
#include "../flags.h"
#include "../log.h"
#include "../model.h"
#include "hopper.cuh"

// Compares Hopper's kernels with the others and ends, in the process that hopper/check.cuh starts
// for that.
inline void gpu_check() {
    if (variant::hopper.check && getenv("HOPPER_CHECK")) { exit(variant::hopper.check()); }
}

// Lets Hopper's kernels be checked, in another process, unless the flag is 0, or was 0 in the run
// that --resume continues. Has to come before this process takes the GPU.
inline void hopper_ask(const Flags& f) {
    const std::string log = f.out + "/log.jsonl";
    bool wanted = f.hopper;
    if (f.resume && !f.given_hopper && file_exists(log)) {
        wanted = log_flags(log, INFINITY)["hopper"].number;
    }
    if (wanted && variant::hopper.ask) { variant::hopper.ask(f.given_hopper); }
}

// Does on a GPU what gpu_settle says.
inline std::string gpu_choose(Flags* f, const Arch& c, bool had) {
    const std::string flag = strf("--hopper %ld", f->hopper);
    std::string lacks = "got a program without the folder cuda/hopper/, wanted one with it";
    if (variant::hopper.lacks) { lacks = variant::hopper.lacks(c.HS); }
    if (f->hopper) {
        const bool here = lacks.empty();
        if (dist::any(!here) && here) { lacks = "another rank cannot"; }
        if ((f->given_hopper || had) && !lacks.empty()) {
            die(flag + ": " + lacks, "--hopper 0 takes the kernels for every card");
        }
    }
    const std::string why = f->hopper ? lacks : flag;
    if (cuda::hopper_here() && f->hopper && !lacks.empty() && dist::rank() == 0) {
        note("attention uses the kernels for every card: " + lacks);
    }
    f->hopper = why.empty();
    cuda::use_hopper(f->hopper);
    cuda::gpu.graph = f->graph;
    if (!cuda::hopper_here()) { return ""; }
    return f->hopper ? "Hopper's kernels, which agree with the others"
                     : "the kernels for every card: " + why;
}

// Returns the largest divisor of `all` sequences that fits 7/8 of the free memory of a GPU, up to
// 2^16 tokens: more do not make it faster. A small model waits for memory: what one of its kernels
// writes is to be in the cache when the next one reads it. The cache is an A100's, 40 MiB, on every
// card, as the batch decides about bits.
inline long batch_that_fits(const Model* m, long all, long T) {
    const long cache = 40L << 20;
    const long widest = std::max(m->sizes.qkv_width, m->sizes.up_width);
    long tokens = 1L << 16;
    if (m->arch.C <= 512) { tokens = std::min<long>(tokens, cache / (widest * sizeof(real))); }
    long batch = 1;
    for (long B = 2; B <= std::min(all, tokens / T); B++) {
        if (all % B) { continue; }
        if (acts_bytes(m->arch, true, B, T) < cuda::device_left() / 8 * 7) { batch = B; }
    }
    return batch;
}
#endif // GPU_RUN_CUH
