/*
variant.h -- the backend of this build, and attention as its switches make it. The backend's own
attention is a template of Attn, Bias and Pe. The program is compiled once for all of them, so it
calls an instance by a pointer that variant.cu sets. Shapes: reference.h.
*/
#ifndef VARIANT_H
#define VARIANT_H
#include "switches.h"
#include "../optional.h"
#if HAS_CUDA
#include "../cuda/device.cuh"
#endif
#ifndef BACKEND
#if HAS_CUDA
#define BACKEND cuda
#elif HAS_CPU
#define BACKEND cpu
#else
#define BACKEND ref
#endif
#endif
#ifndef PRECISION
#define PRECISION fp32
#endif
#include "../metrics.cuh"
#include "../reference.h"
#if HAS_CPU
#include "../cpu/ops.h"
#endif
static_assert(std::string_view(STR(BACKEND)) == "ref" ||
                  (HAS_CPU && std::string_view(STR(BACKEND)) == "cpu") ||
                  (HAS_CUDA && std::string_view(STR(BACKEND)) == "cuda"),
              "-DBACKEND: wanted ref, cpu or, by nvcc, cuda, whose folder has to be here");
static_assert(std::string_view(STR(BACKEND) " " STR(PRECISION)) != "ref bf16",
              "PRECISION=bf16 needs BACKEND=cuda or cpu; BACKEND=ref computes in fp32");
namespace ops = BACKEND;
typedef ops::real real;   // what tensors hold
typedef ops::acc acc;     // what sums, weight gradients and optimizer state hold

namespace variant {
typedef void Attend(real* out, acc* stat, real* qkv, ExtraKey<const real> extra,
                    const acc* rope_table, AttnShape s);
typedef void AttendBackward(real* dqkv, ExtraKey<acc> dextra, const real* dout,
                            AttnResult<real, acc> result, const real* qkv,
                            ExtraKey<const real> extra, const acc* rope_table, AttnShape s);
typedef void AttentionRow(real* out, const real* q, const real* kv, ExtraKey<const real> extra,
                          int t, AttnShape s);
typedef void AttentionMetrics(HeadMetrics* out, const real* qkv, const acc* stat,
                              ExtraKey<const real> extra, HeadGate<const real> gate, int skip,
                              AttnShape s);
// [1]: as if there were no extra key
extern Attend* const attend[2];
extern AttendBackward* const attend_backward[2];
extern AttentionRow* const attention_row[2];    // one query, in host memory; NULL without cpu/
extern AttentionMetrics* const attention_metrics[2];
} // namespace variant
#endif // VARIANT_H
