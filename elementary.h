// ----------------------------------------------------------------------------
// Elementary functions that a plain loop turns into vector code (-O3 -fno-trapping-math -fno-math-errno are enough, never
// -ffast-math). float: without a branch or a table, polynomials fitted by Remez exchange (dev/LOG-perf.md). double: the
// library's. Both come from the one name, so that templates of the element type read the same.

inline float float_of_bits(uint32_t u) { float x; memcpy(&x, &u, sizeof x); return x; }
inline uint32_t bits_of_float(float x) { uint32_t u; memcpy(&u, &x, sizeof u); return u; }

// e^x = 2^n e^r with n = round(x / ln 2), |r| <= ln 2 / 2. Within 1.01 ulp where the result is a normal number; below
// x = -87.336 it is 0 rather than subnormal (those cost a hundred cycles each), above 88.722 inf; NaN stays NaN.
inline float exp_(float x) {
    const float shift = 12582912.0f;                     // 1.5 * 2^23: adding it rounds to an integer, kept in the low bits
    const float t = x * 1.44269504f + shift, n = t - shift;
    const float r = (x - n * 0.693359375f) + n * 2.12194440e-4f; // ln 2 in two parts, the first exact when times n
    float p = 1.38144671e-3f;
    p = p * r + 8.36878041e-3f;
    p = p * r + 4.16683942e-2f;
    p = p * r + 1.66665201e-1f;
    p = p * r + 4.99999934e-1f;
    p = p * (r * r) + r + 1.0f;
    const float y = float_of_bits(bits_of_float(p) + (bits_of_float(t) << 23)); // n added to the exponent
    const float bounded = x < -87.3365402f ? 0.0f : x > 88.7228317f ? INFINITY : y;
    return x == x ? bounded : x;
}
inline double exp_(double x) { return exp(x); }

template<class R> R sigmoid_(R x) { return 1 / (1 + exp_(-x)); } // within 2.4 ulp

// erf, within 2.6 ulp: an odd polynomial near 0, 1 - e^(a polynomial for log erfc) elsewhere; 1 from 3.95 on
inline float erf_(float x) {
    const float z = x * x, a = fabsf(x) < 3.95f ? fabsf(x) : 3.95f;
    float p = 8.2636226e-5f;
    p = p * z - 8.11713794e-4f;
    p = p * z + 5.19874454e-3f;
    p = p * z - 2.68584616e-2f;
    p = p * z + 1.12836783e-1f;
    p = p * z - 3.76126326e-1f;
    p = p * z + 1.12837917f;
    float q = 1.94945642e-4f;
    q = q * a - 3.03368211e-3f;
    q = q * a + 2.21897381e-2f;
    q = q * a - 1.03856299e-1f;
    q = q * a - 6.37265833e-1f;
    q = q * a - 1.12762736f;
    q = q * a - 2.07018861e-4f;
    const float tail = 1.0f - exp_(q), far = x < 0 ? -tail : tail;
    const float y = fabsf(x) < 0.9375f ? x * p : far;
    return x == x ? y : x;
}
inline double erf_(double x) { return erf(x); }
