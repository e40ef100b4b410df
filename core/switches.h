/*
switches.h -- the switches of this build as data, for all code that is compiled once and not for
each model. It is filled in by variant.cu, the one file that is compiled with -DATTN=..
-DBIAS=.. and so on.

    SWITCH_VALUES     each switch, its value here, and its first
    BUILD_NORM        the value of a switch as a number, such as NORM_post
    Attn, Bias, Pe    what is compiled in of those three
    COMMIT            of the sources; PRECISION_NAME, BACKEND_NAME: how it computes
*/
#ifndef SWITCHES_H
#define SWITCHES_H
#include <string_view>
#include <tuple>
#include "../attention_row.cuh"
#include "../base/common.h"
#ifdef ATTN
#include "defaults.h"
#endif
#if defined(SWITCHES_GIVEN) || defined(__CUDA_ARCH__)
#include "../attention_variants.cuh"
#endif

// the choice: -DATTN=<name> -DBIAS=<name> .., set by the Makefile
#define SWITCHES(X) X(ATTN) X(BIAS) X(PE) X(NORM) X(FFN) X(COMBINE) X(QKNORM) X(GATE)

struct SwitchValue { const char *name, *value, *first; };
extern const std::vector<SwitchValue> SWITCH_VALUES;
extern const char *const COMMIT, *const PRECISION_NAME, *const BACKEND_NAME;

extern const int BUILD_BIAS, BUILD_PE, BUILD_NORM, BUILD_FFN,
                 BUILD_COMBINE, BUILD_QKNORM, BUILD_GATE;

namespace build {
// the constants of Attn_softmax and the others, of Bias_k, of Pe_alibi, asked at run time: enough
// for one row of attention, too slow for all of it
#ifdef __CUDA_ARCH__
// nvcc compiles for the GPU, too, what only the host calls: there any of them will do
struct Attn : Attn_softmax { static const char* const name; };
typedef Bias_none Bias;
typedef Pe_nope Pe;
#else
struct Attn {
    static const char* const name;
    static const bool exp_family, is_signed, capped, by_count;
    static const ZKind Z;
    static const Phi phi;
    static const Clip clip;
    static const Twin twin;
    static float sim(float s);
    static double sim(double s);
};
struct Bias { static const ExtraKind extra; };
struct Pe {
    static const bool score_bias;
    static float slope(int h, int even);
    static float bias_as(int distance, float slope, float);
    static double bias_as(int distance, float slope, double);
    template <class F> static F bias(int distance, float slope) {
        return bias_as(distance, slope, F());
    }
};
#endif
} // namespace build

// where the switches are given, as in variant.cu, the constants themselves
#ifdef SWITCHES_GIVEN
// Returns the row of a switch's value, the first if -D does not name it: then it is its own name.
template <class Rows>
constexpr int chosen_row(const Rows& rows, const char* value, const char* name) {
    return std::string_view(value) == name ? 0 : find_row(rows, value);
}
#define X(SWITCH) \
    constexpr int SWITCH##_CHOSEN = chosen_row(SWITCH##_ROWS, STR(SWITCH), #SWITCH); \
    static_assert(SWITCH##_CHOSEN >= 0, "-D" #SWITCH ": no such value; choose one of make help");
SWITCHES(X)
#undef X
// where there is none, the first row, so that this is the only error
template <int ROW, class... Rows>
using RowAt = std::tuple_element_t<(ROW > 0 ? ROW : 0), std::tuple<Rows...>>;
#define X_ATTN(name, ...) , Attn_##name
#define X_BIAS(name, ...) , Bias_##name
#define X_PE(name, ...)   , Pe_##name
using Attn = RowAt<ATTN_CHOSEN ATTN_VARIANTS(X_ATTN)>;
using Bias = RowAt<BIAS_CHOSEN BIAS_VARIANTS(X_BIAS)>;
using Pe   = RowAt<PE_CHOSEN PE_VARIANTS(X_PE)>;
#undef X_PE
#undef X_BIAS
#undef X_ATTN
// without the Makefile, which reads CONFLICTS
static_assert(!(Attn::phi != PHI_NONE && Bias::extra),
              "a kernel phi with a learned key: see CONFLICTS");
#else
using build::Attn;
using build::Bias;
using build::Pe;
#endif
#endif // SWITCHES_H
