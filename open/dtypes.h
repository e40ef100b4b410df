/*
dtypes.h -- types of numbers that weights of others have, and rows of a tensor as floats, whatever
its type. The types of blocks are in gguf.h.
*/
#ifndef DTYPES_H
#define DTYPES_H
#include "../core/weights.h"

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
void read_f64(const unsigned char* p, long n, float* out);
void read_f16(const unsigned char* p, long n, float* out);
void read_bf16(const unsigned char* p, long n, float* out);

// Returns the type of this name, NULL if there is none.
const WeightType* dtype_of(const std::string& name);

// Returns where row r begins in the file.
const unsigned char* weight_row(const Weight& w, long r);

// Reads rows r0 .. r1 - 1 as floats, cols() of them each. Dies if the type has no reader.
void weight_rows(const Weight& w, long r0, long r1, float* out);
#endif // DTYPES_H
