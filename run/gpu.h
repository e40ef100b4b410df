/*
gpu.h -- what a run settles of its GPU: which kernels compute attention (--hopper), and how many
sequences at a time fit.
*/
#ifndef GPU_H
#define GPU_H
#include "../flags.h"
#include "../model.h"
#if HAS_CUDA
#include "../cuda/gpu_run.cuh"
#else
// without cuda/ nobody has a GPU
inline void hopper_ask(const Flags&) {}
inline std::string hopper_choose(Flags*, const Arch&, bool) { return ""; }
inline long batch_that_fits(const Model*, long, long) { return 1; }
#endif

// Takes Hopper's kernels if the flag is 1, there are any and all ranks can; else the flag becomes
// 0, and the reason is returned. Dies if they must be there: the user has asked for them or, on a
// GPU, the run has `had` them.
inline std::string hopper_settle(Flags* f, const Arch& c, bool had = false) {
    if (!ops::on_host) { return hopper_choose(f, c, had); }
    const std::string lacks = "got a program of BACKEND=cpu, wanted one of BACKEND=cuda";
    if (f->given_hopper) { die(strf("--hopper %ld: ", f->hopper) + lacks, "leave --hopper out"); }
    f->hopper = 0;
    return lacks;
}
#endif // GPU_H
