/*
bf16.h -- bfloat16 on the CPU: the upper half of a float. Memory holds two bytes; every sum is made
in float and rounded once when it is stored. The bits are those of CUDA's __nv_bfloat16, rounded as
__float2bfloat16_rn does.
*/
#ifndef CPU_BF16_H
#define CPU_BF16_H
#include <stdint.h>
#include <string.h>
#include <type_traits>

namespace cpu {
// Returns the bits of the bf16 nearest to x; of two equally near ones the even one. NaN becomes
// CUDA's NaN, whatever its sign.
inline uint16_t bf16_bits(float x) {
    uint32_t u;
    memcpy(&u, &x, 4);
    const uint32_t nearest = (u + 0x7fff + (u >> 16 & 1)) >> 16;
    return x != x ? 0x7fff : nearest;
}

// A float with 8 bits of exponent and 7 of fraction.
struct bf16 {
    uint16_t bits;

    bf16() = default;
    bf16(float x) : bits(bf16_bits(x)) {}
    // without a temporary bf16, which would keep loops from becoming vector code
    bf16& operator=(float x) {
        bits = bf16_bits(x);
        return *this;
    }
    operator float() const {
        const uint32_t u = (uint32_t)bits << 16;
        float x;
        memcpy(&x, &u, 4);
        return x;
    }
};

// The type that numbers of type R are summed in.
template <class R> using sum_of = std::conditional_t<std::is_same<R, bf16>::value, float, R>;
} // namespace cpu
#endif // CPU_BF16_H
