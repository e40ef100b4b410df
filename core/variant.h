/*
variant.h -- the backend of this build, and attention as its switches make it. The backend's own
attention is a template of Attn, Bias and Pe; these are its instances in variant.cu, for the
program, which is compiled once for all of them. Shapes: reference.h.
*/
#ifndef VARIANT_H
#define VARIANT_H
#include "switches.h"
#include "../metrics.cuh"
#include "../cpu/ops.h"
#ifndef BACKEND
#define BACKEND cpu
#endif
#ifndef PRECISION
#define PRECISION fp32
#endif
#if defined(__CUDACC__) || defined(EMU)
#include "../cuda/device.cuh"
#endif
namespace ops = BACKEND;
typedef ops::real real;   // what tensors hold
typedef ops::acc acc;     // what sums, weight gradients and optimizer state hold

namespace variant {
void attend(real* out, acc* stat, real* qkv, StarColumn<const real> star, const acc* turns,
            const AttnShape& s);
void attend_backward(real* dqkv, StarColumn<acc> dstar, const real* dout,
                     AttnResult<real, acc> result, const real* qkv, StarColumn<const real> star,
                     const acc* turns, const AttnShape& s);
// Computes attention of one query at position t, in host memory: cpu/attention_row.h.
void attention_row(real* out, const real* q, const real* kv, StarColumn<const real> star, int t,
                   const AttnShape& s);
// Measures all heads of a layer. idle: as if there were no extra column (column_idle).
void attention_metrics(HeadMetrics* out, const real* qkv, const acc* stat,
                       StarColumn<const real> star, HeadGate<const real> gate, int skip, bool idle,
                       const AttnShape& s);
// Returns why attention of such heads does not go by Hopper's kernels (cuda/hopper_check.cuh), or
// nothing.
std::string hopper_lacks(int NH, int KV, int HS);
} // namespace variant
#endif // VARIANT_H
