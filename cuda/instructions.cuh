/*
instructions.cuh -- what C++ has no word for: copies behind the threads' back, tensor cores,
approximate functions, 16 bytes at once, sums over a warp or a block. Each exists twice, as PTX for
nvcc and as C++ for the emulator, and dev/emulator/selftest.cu compares the two.
*/
#ifndef CUDA_INSTRUCTIONS_CUH
#define CUDA_INSTRUCTIONS_CUH
#include "device.cuh"

namespace cuda {
// ----------------------------------------------------------------------------
// Names for what every kernel says.

// A loop over 0 .. n - 1, which the compiler writes out: n is known to it.
#define UNROLL(i, n) _Pragma("unroll") for (int i = 0; i < (n); i++)
// Return the thread's place in its warp, and the warp's place in its block.
DEVICE int lane_id() { return threadIdx.x % 32; }
DEVICE int warp_id() { return threadIdx.x / 32; }
DEVICE bool first_lane() { return lane_id() == 0; }
// Returns x where a condition holds, and 0 elsewhere. Both are computed.
DEVICE float select_or_zero(bool holds, float x) { return holds ? x : 0.0f; }

// ----------------------------------------------------------------------------
// instructions. cp.async copies 16 bytes to shared memory behind the threads' back (zeros if
// !valid); ldmatrix loads four 8x8 matrices of 16-bit values, lane 8m + i giving the address of row
// i of matrix m; mma multiplies 16x16 by 16x8, with lane l holding of c the rows l/4 and l/4 + 8,
// columns 2(l%4) and 2(l%4) + 1.

#ifdef EMU
inline void cp_async(void* s, const void* g, bool valid, EMU_HERE) {
    emu::cp_async(s, g, valid ? 16 : 0, file, line);
}

inline void cp_async_float(float* s, const float* g, EMU_HERE) {
    emu::cp_async(s, g, 4, file, line, 4);
}

inline void cp_async_commit() { emu::cp_commit(); }
template <int KEEP> void cp_async_wait() { emu::cp_wait(KEEP); }
inline void ldmatrix(uint32_t (&r)[4], const void* row, EMU_HERE) {
    emu::LdmatrixArg a{r, row, file, line};
    emu::warp_op(~0u, emu::ldmatrix_fn<false>, &a, "ldmatrix", file, line);
}

inline void ldmatrix_trans(uint32_t (&r)[4], const void* row, EMU_HERE) {
    emu::LdmatrixArg a{r, row, file, line};
    emu::warp_op(~0u, emu::ldmatrix_fn<true>, &a, "ldmatrix.trans", file, line);
}

inline void mma(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1, EMU_HERE) {
    uint32_t b[2] = {b0, b1};
    emu::MmaArg x{c, a, b};
    emu::warp_op(~0u, emu::mma_fn, &x, "mma", file, line);
}
#else
DEVICE uint32_t smem_address(const void* p) { return (uint32_t)__cvta_generic_to_shared(p); }
DEVICE void cp_async(void* s, const void* g, bool valid) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(smem_address(s)), "l"(g),
                 "r"(valid ? 16 : 0)
                 : "memory");
}

DEVICE void cp_async_float(float* s, const float* g) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(smem_address(s)), "l"(g)
                 : "memory");
}

DEVICE void cp_async_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int KEEP>
DEVICE void cp_async_wait() {
    asm volatile("cp.async.wait_group %0;" ::"n"(KEEP) : "memory");
}

DEVICE void ldmatrix(uint32_t (&r)[4], const void* row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(smem_address(row))
                 : "memory");
}

DEVICE void ldmatrix_trans(uint32_t (&r)[4], const void* row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(smem_address(row))
                 : "memory");
}

DEVICE void mma(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
        "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
#endif
// Approximate instructions, which also flush subnormal numbers to zero. The emulator returns the
// true value with an error of up to the PTX manual's bound, whose size and sign follow from the
// operand's bits.
#ifdef EMU
inline float flushed(float x) { return fabsf(x) < 0x1p-126f ? copysignf(0.0f, x) : x; }

inline float approximate(double exact, float operand, double relative) {
    const double part = (bits_of_float(operand) * 2654435761u) / 0x1p31 - 1;    // -1 to 1
    return flushed((float)(exact * (1 + relative * part)));
}

inline float ex2_approx(float x) {
    x = flushed(x);
    return x == 0 ? 1.0f : approximate(exp2((double)x), x, 0x1p-22);
}

inline float rcp_approx(float x) {
    x = flushed(x);
    return approximate(1 / (double)x, x, 0x1p-23);
}

inline float lg2_approx(float x) {
    x = flushed(x);
    const double exact = log2((double)x);
    if (!(x > 0 && x < INFINITY)) { return (float)exact; }
    const bool near_1 = x > 0.5f && x < 2;
    const double error = 0x1p-22 * (near_1 ? 1 : fabs(exact));
    const double part = approximate(1, x, 0.5) * 2 - 2;
    return (float)(exact + error * part);
}

inline float min_or_nan(float a, float b) { return a < b || a != a ? a : b; }
inline float max_or_nan(float a, float b) { return a > b || a != a ? a : b; }
#else
DEVICE float ex2_approx(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

DEVICE float rcp_approx(float x) {
    float y;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

DEVICE float lg2_approx(float x) {
    float y;
    asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

// Return the smaller and the larger of two numbers, or NaN if one of them is NaN, where fminf and
// fmaxf return the other.
DEVICE float min_or_nan(float a, float b) {
    float y;
    asm("min.NaN.f32 %0, %1, %2;" : "=f"(y) : "f"(a), "f"(b));
    return y;
}

DEVICE float max_or_nan(float a, float b) {
    float y;
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(y) : "f"(a), "f"(b));
    return y;
}
#endif
const float LOG2_E = 1.44269504f, LN_2 = 0.693147181f;

// A float whose exponential, logarithm and division are those instructions: about 2^-21 off where
// bf16 keeps 2^-9. The row mathematics of attention_row.cuh is compiled for it as it is for
// float and double.
struct Fast {
    float v;
    Fast() = default;
    template <class T> DEVICE explicit Fast(T x) : v((float)x) {}
    // an integer up to 2^22: two additions instead of a conversion, which goes at a quarter of
    // their rate or less
    DEVICE explicit Fast(int i) : v(float_of_bits(0x4B400000u + i) - 12582912.0f) {}
    DEVICE explicit operator int() const { return (int)v; }
};
DEVICE Fast operator-(Fast a)         { return Fast(-a.v); }
DEVICE Fast operator+(Fast a, Fast b) { return Fast(a.v + b.v); }
DEVICE Fast operator-(Fast a, Fast b) { return Fast(a.v - b.v); }
DEVICE Fast operator*(Fast a, Fast b) { return Fast(a.v * b.v); }
DEVICE Fast operator/(Fast a, Fast b) { return Fast(a.v * rcp_approx(b.v)); }
DEVICE bool operator>(Fast a, Fast b) { return a.v > b.v; }
DEVICE bool operator<(Fast a, Fast b) { return a.v < b.v; }
DEVICE bool operator>(Fast a, float b) { return a.v > b; }
DEVICE bool operator<(Fast a, float b) { return a.v < b; }
// Those of float and double stand beside these.
using ::exp_; using ::log_; using ::erf_; using ::tanh_; using ::max_; using ::min_;
DEVICE Fast max_(Fast a, Fast b) { return Fast(fmaxf(a.v, b.v)); }
DEVICE Fast min_(Fast a, Fast b) { return Fast(fminf(a.v, b.v)); }
DEVICE Fast exp_(Fast x) { return Fast(ex2_approx(x.v * LOG2_E)); }
DEVICE Fast erf_(Fast x) { return Fast(erf_(x.v)); }
// 2^-21 of 1, not of itself
DEVICE Fast tanh_(Fast x) { return Fast(1 - 2 * rcp_approx(1 + ex2_approx(x.v * (2 * LOG2_E)))); }
DEVICE Fast log_(Fast x) { return Fast(lg2_approx(x.v) * LN_2); }

// Rounds two floats to bf16 and returns them in one register, as mma wants them.
DEVICE uint32_t pack(float lo, float hi) {
    __nv_bfloat162 v = __floats2bfloat162_rn(lo, hi);
    uint32_t u; memcpy(&u, &v, 4);
    return u;
}

// N values of type T, moved at once. A pointer to them is aligned to their size.
template <class T, int N> struct alignas(sizeof(T) * N) Vec {
    T v[N];
    DEVICE T& operator[](int i) { return v[i]; }
    DEVICE const T& operator[](int i) const { return v[i]; }
};
DEVICE void check_aligned(const void* p, size_t bytes) {
#ifdef EMU
    emu::check_aligned(p, bytes);
#endif
}

template <int N, class T> DEVICE Vec<T, N> load(const T* p) {
    check_aligned(p, sizeof(T) * N);
    return *(const Vec<T, N>*)p;
}

template <int N, class T> DEVICE void store(T* p, const Vec<T, N>& v) {
    check_aligned(p, sizeof(T) * N);
    *(Vec<T, N>*)p = v;
}

// ----------------------------------------------------------------------------
// Reductions, in a fixed order. Every lane of the warp, or thread of the block, takes part and gets
// the result.

enum Join { ADD, MOST };
template <Join JOIN, class F> DEVICE F joined(F a, F b) { return JOIN == ADD ? a + b : max(a, b); }

template <Join JOIN, class F> DEVICE F warp_reduce(F v) {
    #pragma unroll
    for (int apart = 16; apart; apart >>= 1) {
        v = joined<JOIN>(v, __shfl_xor_sync(~0u, v, apart));
    }
    return v;
}

DEVICE float warp_sum(float v) { return warp_reduce<ADD>(v); }
DEVICE float warp_max(float v) { return warp_reduce<MOST>(v); }

template <int THREADS, Join JOIN, class F> DEVICE F block_reduce(F v) {
    SMEM(F[THREADS / 32], part);
    v = warp_reduce<JOIN>(v);
    __syncthreads();                                 // part may still be read by the call before
    if (first_lane()) { part[warp_id()] = v; }
    __syncthreads();
    v = part[0];
    #pragma unroll
    for (int i = 1; i < THREADS / 32; i++) { v = joined<JOIN>(v, part[i]); }
    return v;
}

template <int THREADS, class F> DEVICE F block_sum(F v) { return block_reduce<THREADS, ADD>(v); }
template <int THREADS> DEVICE float block_max(float v) { return block_reduce<THREADS, MOST>(v); }
} // namespace cuda
#endif // CUDA_INSTRUCTIONS_CUH
