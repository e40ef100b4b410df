/*
rope.cuh -- rope: by itself, and for the attention kernels that turn what they hold in registers.
*/
#ifndef CUDA_ROPE_CUH
#define CUDA_ROPE_CUH
#include "rows.cuh"
#include "../attention_row.cuh"

namespace cuda {
// Turns a pair. It rounds after every operation and fuses none, so that all who turn give the same
// bits.
DEVICE void turn_pair(float& a, float& b, float co, float si) {
    const float x = __fmul_rn(a, co) - __fmul_rn(b, si);
    b = __fmul_rn(a, si) + __fmul_rn(b, co);
    a = x;
}

// Turns N pairs (x[i], x[i + half]) by rope's table, whose part for them is `turn`.
template <int N> DEVICE void turn_pairs(real* x, int half, const acc* turn, int sign) {
    Floats<N> a = Floats<N>::load(x);
    Floats<N> b = Floats<N>::load(x + half);
    UNROLL(n, N) {
        const Vec<acc, 2> cos_sin = load<2>(turn + 2 * n);
        turn_pair(a[n], b[n], cos_sin[0], sign * cos_sin[1]);
    }
    Floats<N>::store(x, a);
    Floats<N>::store(x + half, b);
}

template <int N>
__global__ void __launch_bounds__(256)
    rope_kernel(real* first, int heads, const acc* table, int sign, AttnShape s) {
    const int bt = own_row();
    const int half = s.rot / 2;
    if (bt >= s.B * s.T) { return; }
    const acc* turn = table + (long)(bt % s.T) * half * 2;
    FOR_COLUMNS(k, N, heads * half) {
        const int h = k / half;
        const int i = k % half;
        real* x = first + (long)bt * attn_row(s) + h * s.HS + i;
        turn_pairs<N>(x, half, turn + 2 * i, sign);
    }
}

// Turns so many heads of each row of qkv, from `first` on.
inline void rope_heads(real* first, int heads, const acc* table, int sign, const AttnShape& s) {
    const bool ok = wide(s.rot / 2, {first}) && s.HS % VN == 0;
    const int pairs = heads * s.rot / 2;
    LAUNCH_WIDE_ROWS(ok, rope_kernel, s.B * s.T, pairs, first, heads, table, sign, s)
}

inline void rope(real* qkv, const acc* table, int sign, AttnShape s) {
    rope_heads(qkv, s.NH + s.KV, table, sign, s);
}
} // namespace cuda
#endif // CUDA_ROPE_CUH
