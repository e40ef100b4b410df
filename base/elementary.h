/*
elementary.h -- exp, log, tanh, erf, sigmoid of one number, for float and double, host and device.

    float on the host      no branch, no table: polynomials fitted by Remez exchange. Plain loops
                           over these turn into vector code (-O3 -fno-trapping-math
                           -fno-math-errno are enough, never -ffast-math)
    float on the device    CUDA's
    double                 the library's

"Within 2 ulp" is the largest error, in units of the last place, over all floats.
*/
#ifndef CPU_ELEMENTARY_H
#define CPU_ELEMENTARY_H
#include "common.h"

// A loop with a call left in it cannot become vector code, so the compiler must inline these.
#ifdef __CUDACC__
#define ALWAYS_INLINE HD
#else
#define ALWAYS_INLINE HD __attribute__((always_inline))
#endif

template <class F> HD F max_(F a, F b) { return a > b ? a : b; }
template <class F> HD F min_(F a, F b) { return a < b ? a : b; }
template <class F> HD F abs_(F x)      { return x > 0 ? x : F(0) - x; } // of -0 too, 0

// Both values are computed; a vector loop takes each lane from one of them.
template <class F> ALWAYS_INLINE F select_(bool first, F a, F b) { return first ? a : b; }

// Returns a polynomial of x by Horner's scheme, its coefficients from the highest on.
ALWAYS_INLINE float horner(float, float sum) { return sum; }
template <class... Rest>
ALWAYS_INLINE float horner(float x, float sum, float next, Rest... rest) {
    return horner(x, sum * x + next, rest...);
}

// e^x = 2^n e^r with n = round(x / ln 2), |r| <= ln 2 / 2. Within 1.01 ulp where the result is a
// normal number; below x = -87.336 it is 0 rather than subnormal (those cost a hundred cycles
// each), above 88.722 inf; NaN stays NaN.
ALWAYS_INLINE float exp_(float x) {
#ifdef __CUDA_ARCH__
    return expf(x);
#else
    const float shift = 12582912.0f; // 1.5 * 2^23: adding it rounds to an integer, in the low bits
    const float t = x * 1.44269504f + shift;
    const float n = t - shift;
    // ln 2 in two parts, the first exact when times n
    const float r = (x - n * 0.693359375f) + n * 2.12194440e-4f;
    const float p = horner(r, 1.38144671e-3f, 8.36878041e-3f, 4.16683942e-2f, 1.66665201e-1f,
                           4.99999934e-1f) * (r * r) + r + 1.0f;
    // n added to the exponent
    const uint32_t exponent = bits_of_float(t) << 23;
    const float y = float_of_bits(bits_of_float(p) + exponent);
    const float from_below = select_(x < -87.3365402f, 0.0f, y);
    const float bounded = select_(x > 88.7228317f, INFINITY, from_below);
    return select_(x == x, bounded, x);
#endif
}

HD double exp_(double x) { return exp(x); }

// ln x = e ln 2 + ln m, m in [sqrt(1/2), sqrt(2)), ln m = 2 atanh((m-1)/(m+1)) as a series; within
// 2 ulp for normal x > 0, -inf at 0
ALWAYS_INLINE float log_(float x) {
#ifdef __CUDA_ARCH__
    return logf(x);
#else
    const uint32_t root_half = 0x3f3504f3u;
    const uint32_t u = bits_of_float(x) - root_half;
    const float e = (float)((int32_t)u >> 23);
    const float m = float_of_bits((u & 0x7fffffu) + root_half);
    const float s = (m - 1) / (m + 1);
    const float z = s * s;
    const float p = horner(z, 0.2222222f, 0.2857143f, 0.4f, 0.6666667f);
    const float y = e * 0.693359375f + (e * -2.12194440e-4f + (s * z * p + 2 * s));
    const float positive = select_(x < INFINITY, y, x);
    const float other = select_(x == 0, -INFINITY, NAN);
    return select_(x > 0, positive, other);
#endif
}

HD double log_(double x) { return log(x); }

// tanh, within 1.8 ulp: an odd polynomial near 0, 1 - 2 / (e^2|x| + 1) elsewhere
ALWAYS_INLINE float tanh_(float x) {
#ifdef __CUDA_ARCH__
    return tanhf(x);
#else
    const float z = x * x;
    const float a = fabsf(x);
    const float p = horner(z, -5.70497848e-3f, 2.06390787e-2f, -5.37397117e-2f, 1.33314416e-1f,
                           -3.33332807e-1f);
    const float near = x + x * z * p;
    const float tail = 1.0f - 2.0f / (exp_(2.0f * a) + 1.0f);
    const float far = select_(x < 0, -tail, tail);
    return select_(a < 0.625f, near, far);
#endif
}

HD double tanh_(double x) { return tanh(x); }

// within 2.4 ulp
template <class F> ALWAYS_INLINE F sigmoid_(F x) { return F(1) / (F(1) + exp_(-x)); }

// erf, within 2.6 ulp: an odd polynomial near 0, 1 - e^(a polynomial for log erfc) elsewhere; 1
// from 3.95 on
ALWAYS_INLINE float erf_(float x) {
#ifdef __CUDA_ARCH__
    return erff(x);
#else
    const float z = x * x;
    const float a = select_(fabsf(x) < 3.95f, fabsf(x), 3.95f);
    const float p = horner(z, 8.2636226e-5f, -8.11713794e-4f, 5.19874454e-3f, -2.68584616e-2f,
                           1.12836783e-1f, -3.76126326e-1f, 1.12837917f);
    const float q = horner(a, 1.94945642e-4f, -3.03368211e-3f, 2.21897381e-2f, -1.03856299e-1f,
                           -6.37265833e-1f, -1.12762736f, -2.07018861e-4f);
    const float tail = 1.0f - exp_(q);
    const float far = select_(x < 0, -tail, tail);
    const float y = select_(fabsf(x) < 0.9375f, x * p, far);
    return select_(x == x, y, x);
#endif
}

HD double erf_(double x) { return erf(x); }

#endif // CPU_ELEMENTARY_H
