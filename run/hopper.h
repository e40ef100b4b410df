/*
hopper.h -- settles --hopper: which kernels compute attention.
*/
#ifndef HOPPER_H
#define HOPPER_H
#include "../core/dist.h"
#include "../core/variant.h"
#include "../flags.h"
#include "../model.h"
#if HAS_CUDA
#include "../cuda/gpu_run.h" // the same for a GPU
#else
inline void hopper_ask(const Flags&) {}
inline std::string hopper_choose(Flags*, const Arch&, bool) { return ""; }
inline long batch_that_fits(const Model*, long, long) { return 1; }
#endif

// Takes Hopper's kernels if the flag is 1, there are any and all ranks can; else the flag becomes
// 0, and the reason is returned. Dies if they must be there: the user has asked for them, or the
// run has `had` them.
inline std::string hopper_settle(Flags* f, const Arch& c, bool had = false) {
    if (!ops::on_host) { return hopper_choose(f, c, had); }
    const std::string lacks = "got a program of BACKEND=cpu, wanted one of BACKEND=cuda";
    if (f->given_hopper) { die(strf("--hopper %ld: ", f->hopper) + lacks, "leave --hopper out"); }
    f->hopper = 0;
    return lacks;
}
#endif // HOPPER_H
