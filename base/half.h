/*
half.h -- numbers of 16 bits as they lie in files: bytes at any address, and IEEE half precision.
*/
#ifndef CPU_HALF_H
#define CPU_HALF_H
#include "common.h"

// Reads a T at any address.
template <class T> inline T load(const unsigned char* p) {
    T x;
    memcpy(&x, p, sizeof x);
    return x;
}

// IEEE half precision: 1 bit of sign, 5 of exponent, 10 of fraction.
inline float float_of_half(uint16_t h) {
    const uint32_t exponent = h >> 10 & 31;
    const uint32_t fraction = h & 1023;
    const uint32_t bias = exponent == 31 ? 255 - 31 : 127 - 15;
    const float small = (float)fraction * 0x1p-24f;
    const float large = float_of_bits((exponent + bias) << 23 | fraction << 13);
    const float x = exponent == 0 ? small : large;
    return h >> 15 ? -x : x;
}

inline float half_at(const unsigned char* p) { return float_of_half(load<uint16_t>(p)); }
#endif // CPU_HALF_H
