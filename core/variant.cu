/*
variant.cu -- all that is compiled for one model, in seconds: the attention that ATTN, BIAS and PE
name, and the values of the other switches. The program, train_sink.cu, is compiled once for all
models and linked to it; with the switches given it includes this file and is whole by itself.

    g++ -DATTN=sigmoid -DBIAS=k -DPE=rotary .. -c variant.cu              (the Makefile)
*/
#include "variant.h"
#include "../cpu/attention_row.h"
#include "../cpu/metrics.h"
#if defined(__CUDACC__) || defined(EMU)
#include "../cuda/attention.cuh"
#include "../cuda/hopper_check.cuh"
#include "../cuda/metrics.cuh"
#endif
#ifndef ATTN
#error "build through the Makefile (make help), or give all switches: -DATTN=softmax -DBIAS=none .."
#endif

const SwitchValue SWITCH_VALUES[SWITCH_COUNT] = {
#define X(SWITCH) { #SWITCH, STR(SWITCH), SWITCH##_VARIANTS(NAME_OF) },
    SWITCHES(X)
#undef X
};
#ifndef GIT_COMMIT
#define GIT_COMMIT "unknown"
#endif
const char* const COMMIT = GIT_COMMIT;
const char *const PRECISION_NAME = STR(PRECISION), *const BACKEND_NAME = STR(BACKEND);

const int BUILD_BIAS = CAT(BIAS_, BIAS);
const int BUILD_PE = CAT(PE_, PE);
const int BUILD_NORM = CAT(NORM_, NORM);
const int BUILD_FFN = CAT(FFN_, FFN);
const int BUILD_COMBINE = CAT(COMBINE_, COMBINE);
const int BUILD_QKNORM = CAT(QKNORM_, QKNORM);
const int BUILD_GATE = CAT(GATE_, GATE);

namespace build {
const char* const Attn::name = STR(ATTN);
#ifndef __CUDA_ARCH__
const bool Attn::exp_family = ::Attn::exp_family;
const bool Attn::is_signed = ::Attn::is_signed;
const bool Attn::capped = ::Attn::capped;
const ZKind Attn::Z = ::Attn::Z;
const Phi Attn::phi = ::Attn::phi;
float Attn::sim(float s) { return ::Attn::sim(s); }
double Attn::sim(double s) { return ::Attn::sim(s); }
const Column Bias::column = ::Bias::column;
const bool Pe::score_bias = ::Pe::score_bias;
float Pe::slope(int h, int even) { return ::Pe::slope(h, even); }
template <> float Pe::bias(int distance, float slope) {
    return ::Pe::bias<float>(distance, slope);
}

template <> double Pe::bias(int distance, float slope) {
    return ::Pe::bias<double>(distance, slope);
}
#endif
} // namespace build

namespace variant {
// only where the column may be idle is there a second instance of the metrics
constexpr bool may_idle = column_has_no_effect(Attn::Z, Bias(), Bias::learn_v, true);
using Without = std::conditional_t<may_idle, Bias_none, Bias>;

Attend* const attend = ops::attention_forward<Attn, Bias, Pe>;
AttendBackward* const attend_backward = ops::attention_backward<Attn, Bias, Pe>;
AttentionRow* const attention_row = cpu::attention_row<Attn, Bias, Pe>;
AttentionMetrics* const attention_metrics[2] = { ops::attention_metrics<Attn, Bias, Pe>,
                                                 ops::attention_metrics<Attn, Without, Pe> };
std::string (*const hopper_lacks)(int NH, int KV, int HS) = ops::hopper_lacks<Attn, Bias, Pe>;
} // namespace variant
