/*
variant.cu -- all that is compiled for one model, in seconds: the attention that ATTN, BIAS and PE
name, and the values of the other switches. The program, train_sink.cu, is compiled once for all
models and linked to it; with the switches given it includes this file and is whole by itself.

    g++ -DATTN=sigmoid -DBIAS=k -DPE=rotary .. -c variant.cu              (the Makefile)
*/
#include "variant.h"
#if HAS_CPU
#include "../cpu/attention_row.h"
#include "../cpu/metrics.h"
#endif
#if HAS_CUDA
#include "../cuda/variant.cuh"
#endif
#ifndef SWITCHES_GIVEN
#error "build through the Makefile (make help), or give all switches: -DATTN=softmax -DBIAS=none .."
#endif

const std::vector<SwitchValue> SWITCH_VALUES = {
#define X(SWITCH) \
    { #SWITCH, name_of(SWITCH##_ROWS[SWITCH##_CHOSEN]), name_of(SWITCH##_ROWS[0]) },
    SWITCHES(X)
#undef X
};
#ifndef GIT_COMMIT
#define GIT_COMMIT "unknown"
#endif
const char *const COMMIT = GIT_COMMIT, *const PRECISION_NAME = STR(PRECISION),
                  *const BACKEND_NAME = STR(BACKEND);

const int BUILD_BIAS = BIAS_CHOSEN, BUILD_PE = PE_CHOSEN, BUILD_NORM = NORM_CHOSEN,
          BUILD_FFN = FFN_CHOSEN, BUILD_COMBINE = COMBINE_CHOSEN, BUILD_QKNORM = QKNORM_CHOSEN,
          BUILD_GATE = GATE_CHOSEN;

namespace build {
const char* const Attn::name = ATTN_ROWS[ATTN_CHOSEN];
#ifndef __CUDA_ARCH__
#define SAME(type, name) const type Attn::name = ::Attn::name;
SAME(bool, exp_family) SAME(bool, is_signed) SAME(bool, capped) SAME(bool, by_count)
SAME(ZKind, Z) SAME(Phi, phi) SAME(Clip, clip)
SAME(Twin, twin)
#undef SAME
float Attn::sim(float s) { return ::Attn::sim(s); }
double Attn::sim(double s) { return ::Attn::sim(s); }
const ExtraKind Bias::extra = ::Bias::extra;
const bool Pe::score_bias = ::Pe::score_bias;
float Pe::slope(int h, int even) { return ::Pe::slope(h, even); }
float Pe::bias_as(int distance, float slope, float) { return ::Pe::bias<float>(distance, slope); }
double Pe::bias_as(int distance, float slope, double) {
    return ::Pe::bias<double>(distance, slope);
}
#endif
} // namespace build

namespace variant {
// what a layer has that --bias-layers leaves out: a second instance if there is an extra key
using NoExtra = std::conditional_t<Bias::extra != NO_EXTRA, Bias_none, Bias>;

Attend* const attend[2] = { ops::attention_forward<Attn, Bias, Pe>,
                            ops::attention_forward<Attn, NoExtra, Pe> };
AttendBackward* const attend_backward[2] = { ops::attention_backward<Attn, Bias, Pe>,
                                             ops::attention_backward<Attn, NoExtra, Pe> };
#if HAS_CPU
AttentionRow* const attention_row[2] = { cpu::attention_row<Attn, Bias, Pe>,
                                         cpu::attention_row<Attn, NoExtra, Pe> };
#else
AttentionRow* const attention_row[2] = {};
#endif
AttentionMetrics* const attention_metrics[2] = { ops::attention_metrics<Attn, Bias, Pe>,
                                                 ops::attention_metrics<Attn, NoExtra, Pe> };
} // namespace variant
