/*
gpu.h -- what a run settles of its GPU: cuda/gpu_run.h says what these do.
*/
#ifndef GPU_H
#define GPU_H
#include "../flags.h"
#include "../model.h"
#if __has_include("../cuda/gpu_run.h")
#include "../cuda/gpu_run.h"
#else
// without cuda/ nobody has a GPU
inline void gpu_ask(const Flags&) {}
inline void gpu_inherit(Flags*, const Json&) {}
inline std::string gpu_settle(Flags*, const Arch&, bool = false) { return ""; }
#endif
#if !HAS_CUDA                   // compiled without nvcc
inline void gpu_check() {}
inline long batch_that_fits(const Model*, long, long) { return 1; }
#endif
#endif // GPU_H
