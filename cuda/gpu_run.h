/*
gpu_run.h -- what a run settles of its GPU: which kernels compute attention (--hopper), whether it
records a micro-batch (--graph), and how many sequences at a time fit. A program for CPUs has the
flags, and says that it cannot follow them.
*/
#ifndef GPU_RUN_H
#define GPU_RUN_H
#include "../flags.h"
#include "../model.h"
#if HAS_CUDA
#include "gpu_run.cuh"
#else
inline void hopper_ask(const Flags&) {}
inline std::string gpu_choose(Flags*, const Arch&, bool) { return ""; }
#endif

// Lets Hopper's kernels be checked, if the flags want them. Dies of flags that want a GPU where the
// program is for CPUs. Comes before this process takes the GPU.
inline void gpu_ask(const Flags& f) {
    if (!ops::on_host) { return hopper_ask(f); }
    const std::string lacks = ": got a program of BACKEND=cpu, wanted one of BACKEND=cuda";
    if (f.graph) { die("--graph" + lacks, "leave --graph out"); }
    if (f.given_hopper) { die(strf("--hopper %ld", f.hopper) + lacks, "leave --hopper out"); }
}

// Takes the flags of a run as they can be here: one GPU's run may go on elsewhere, or be from
// before there was --hopper. was: its flags.
inline void gpu_inherit(Flags* f, const Json& was) {
    if (!f->given_graph && (ops::on_host || dist::world() > 1)) { f->graph = false; }
    if (!f->given_hopper && (ops::on_host || !was.get("hopper"))) { f->hopper = 0; }
}

// Lets micro-batches be recorded, with --graph. Takes Hopper's kernels if --hopper is 1, there are
// any and all ranks can; else the flag becomes 0. Dies if they must be there: the user has asked
// for them or, on a GPU, the run has `had` them. Returns what computes attention, for people; ""
// where there is no choice.
inline std::string gpu_settle(Flags* f, const Arch& c, bool had = false) {
    if (!ops::on_host) { return gpu_choose(f, c, had); }
    f->hopper = 0;
    return "";
}
#endif // GPU_RUN_H
