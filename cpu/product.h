/*
product.h -- the matrix product of the fast CPU backend.
*/
#ifndef CPU_PRODUCT_H
#define CPU_PRODUCT_H
#include <atomic>
#include "../common.h"
#ifdef _OPENMP
#include <omp.h>
#endif

namespace cpu {
// ----------------------------------------------------------------------------
// 2 matrix product. One kernel for the forward pass and both gradients: C (M, N) = or += A (M, K) @ B (K, N), where
// A and B have any strides. Copies of A and B are packed so that the innermost loop reads memory in order; a tile of C
// is then a sum of outer products kept in registers: for every k, MR scalars of A times two vectors of B. Blocks are
// as in Goto and van de Geijn, "Anatomy of high-performance matrix multiplication" (2008): KC deep, so that a sliver of
// B (KC, NR) stays in the first cache, MC tall, so that the block of A stays in the second, NC wide for the third.
// Threads share the packing and the tiles but never the sum over k, so the bits do not depend on how many there are.

#if defined __AVX512F__      // 32 registers of 64 bytes: 14 x 2 sums, 2 vectors of B, one scalar of A spread out
#define GEMM_VECTOR_BYTES 64
#define GEMM_TILE_ROWS 14
#elif defined __AVX__        // 16 registers of 32 bytes: 6 x 2 sums
#define GEMM_VECTOR_BYTES 32
#define GEMM_TILE_ROWS 6
#else                        // 16 registers of 16 bytes, as in SSE2; ARM has more
#define GEMM_VECTOR_BYTES 16
#define GEMM_TILE_ROWS 6
#endif

template <class R> struct Vectors; // as wide as a register, and of four; at any address
template <> struct Vectors<float> {
    typedef float Vec __attribute__((vector_size(GEMM_VECTOR_BYTES), aligned(4), may_alias));
    typedef float Vec4 __attribute__((vector_size(16), aligned(4), may_alias));
};
template <> struct Vectors<double> {
    typedef double Vec __attribute__((vector_size(GEMM_VECTOR_BYTES), aligned(8), may_alias));
    typedef double Vec4 __attribute__((vector_size(32), aligned(8), may_alias));
};

template <class R> struct Gemm {
    typedef typename Vectors<R>::Vec Vec;
    typedef typename Vectors<R>::Vec4 Vec4;
    static constexpr long LANES = GEMM_VECTOR_BYTES / sizeof(R), MR = GEMM_TILE_ROWS, NR = 2 * LANES;
    static constexpr long KC = 384, MC = 64 * MR, NC = 64 * NR;
    static constexpr long ROW = KC + 16; // of packed A; not a power of two, which would crowd the rows into a cache set

    // What depends on the height H of a sliver of A. It is packed along its own memory order, so that packing it is a
    // copy: BY_ROWS, A(i, k) is a[i*ROW + k], else a[k*H + i]. The compiler sees both strides.
    template <int H, bool BY_ROWS> struct Sliver {
        // element (i, k) of x is x[i*s + k*sk]
        static void pack(R* a, const R* x, long s, long sk, long k, long k_end) {
            if (BY_ROWS) {
                for (int i = 0; i < H; i++) { memcpy(a + i*ROW + k, x + i*s + k, (k_end - k) * sizeof(R)); }
            } else if (s == 1) {
                for (; k < k_end; k++) { memcpy(a + k*H, x + k*sk, H * sizeof(R)); }
            } else {
                for (; k < k_end; k++) { for (int i = 0; i < H; i++) { a[k*H + i] = x[i*s + k*sk]; } }
            }
        }
        // c (H, cols) = or += A (H, kc) @ b (kc, NR), both packed
        static void multiply(long kc, const R* a, const R* b, R* c, long ldc, long cols, bool add) {
            if (cols < NR) { // the right edge of C: a whole tile elsewhere, of which a part is taken
                R whole[H * NR];
                multiply(kc, a, b, whole, NR, NR, false);
                for (int i = 0; i < H; i++) {
                    for (long j = 0; j < cols; j++) { c[i*ldc + j] = whole[i*NR + j] + (add ? c[i*ldc + j] : 0); }
                }
                return;
            }
            Vec sum[H][2];
            for (int i = 0; i < H; i++) { sum[i][0] = sum[i][1] = Vec{}; }
            for (long k = 0; k < kc; k++, b += NR) {
                const Vec b0 = *(const Vec*)b, b1 = *(const Vec*)(b + LANES);
                for (int i = 0; i < H; i++) {
                    const R s = BY_ROWS ? a[i*ROW + k] : a[k*H + i];
                    sum[i][0] += s * b0;
                    sum[i][1] += s * b1;
                }
            }
            for (int i = 0; i < H; i++, c += ldc) {
                Vec* to = (Vec*)c;
                to[0] = add ? to[0] + sum[i][0] : sum[i][0];
                to[1] = add ? to[1] + sum[i][1] : sum[i][1];
            }
        }
    };
    struct SliverCalls {
        void (*pack)(R*, const R*, long, long, long, long);
        void (*multiply)(long, const R*, const R*, R*, long, long, bool);
    };
    template <int H, bool BY_ROWS> static SliverCalls sliver(long h) {
        if constexpr (H > 1) { if (h < H) { return sliver<H - 1, BY_ROWS>(h); } }
        return { Sliver<H, BY_ROWS>::pack, Sliver<H, BY_ROWS>::multiply };
    }

    // a sliver of B: to (kc, NR) <- x (cols <= NR, kc) with strides s and sk, the other columns zero
    static void pack_b(R* to, const R* x, long s, long sk, long cols, long kc) {
        long k = 0;
        if (cols == NR && s == 1) {
            for (; k < kc; k++) { memcpy(to + k*NR, x + k*sk, NR * sizeof(R)); }
        } else if (cols == NR && sk == 1) { // blocks of 4 x 4 turned around in registers
            for (; k + 4 <= kc; k += 4) {
                for (long j = 0; j < NR; j += 4) {
                    const R* f = x + j*s + k; R* t = to + k*NR + j;
                    const Vec4 a = *(const Vec4*)f, b = *(const Vec4*)(f + s);
                    const Vec4 c = *(const Vec4*)(f + 2*s), d = *(const Vec4*)(f + 3*s);
                    const Vec4 p = { a[0], b[0], a[1], b[1] }, q = { a[2], b[2], a[3], b[3] };
                    const Vec4 u = { c[0], d[0], c[1], d[1] }, v = { c[2], d[2], c[3], d[3] };
                    *(Vec4*)t          = Vec4{ p[0], p[1], u[0], u[1] };
                    *(Vec4*)(t + NR)   = Vec4{ p[2], p[3], u[2], u[3] };
                    *(Vec4*)(t + 2*NR) = Vec4{ q[0], q[1], v[0], v[1] };
                    *(Vec4*)(t + 3*NR) = Vec4{ q[2], q[3], v[2], v[3] };
                }
            }
        }
        for (; k < kc; k++) { for (long j = 0; j < NR; j++) { to[k*NR + j] = j < cols ? x[j*s + k*sk] : 0; } }
    }
    static R* buffer(long n) { // one per thread, grown on demand, on a cache line
        static thread_local std::vector<R> v;
        if ((long)v.size() < n + 64) { v.resize(n + 64); }
        return (R*)(((uintptr_t)v.data() + 63) & ~(uintptr_t)63);
    }
};

inline long div_up(long a, long b) { return (a + b - 1) / b; }

// C (M, N), rows ldc apart, = or += A (M, K) @ B (K, N); element (i, k) of A is A[i*rs_a + k*cs_a]. Inside a parallel
// region it runs on the calling thread alone.
template <class R> void gemm(long M, long N, long K, const R* A, long rs_a, long cs_a, const R* B, long rs_b, long cs_b,
                            R* C, long ldc, bool accumulate) {
    typedef Gemm<R> G;
    if (M < 1 || N < 1) { return; }
    const long MR = G::MR, NR = G::NR;
    const auto calls = [=](long h) {
        return cs_a == 1 ? G::template sliver<G::MR, true>(h) : G::template sliver<G::MR, false>(h);
    };
    const auto full = calls(MR), last = calls(M % MR);
    const long a_size = div_up(std::min(M, G::MC), MR) * MR * G::ROW;
    const long b_size = div_up(std::min(N, G::NC), NR) * NR * std::min(K, G::KC);
    R* const buffer = G::buffer(2 * (a_size + b_size));
    std::atomic<long> tickets(0);

    auto run = [&](int threads) {
        long ticket = tickets++, past = 0;      // work is handed out by numbered tickets, so a slow core takes less
        auto share = [&](long n, auto work) {   // work(0..n-1) over the threads; returns when all of it is taken
            for (; ticket < past + n; ticket = tickets++) { work(ticket - past); }
            past += n;
        };
        // Two buffers each, so that one barrier a block is enough: who is done packs the next while others multiply.
        R *pa = buffer, *pa_next = pa + a_size, *pb = pa_next + a_size, *pb_next = pb + b_size;
        for (long j0 = 0; j0 < N; j0 += G::NC) {
            const long nc = std::min(G::NC, N - j0), nj = div_up(nc, NR);
            for (long k0 = 0; k0 == 0 || k0 < K; k0 += G::KC) { // once even if K is 0: then C = 0
                const long kc = std::min(G::KC, K - k0);
                std::swap(pb, pb_next);
                share(nj, [&](long j) {
                    G::pack_b(pb + j*NR*kc, B + k0*rs_b + (j0 + j*NR)*cs_b, cs_b, rs_b, std::min(NR, nc - j*NR), kc);
                });
                for (long i0 = 0; i0 < M; i0 += G::MC) {
                    const long mc = std::min(G::MC, M - i0), ni = div_up(mc, MR);
                    std::swap(pa, pa_next);
                    const long deep = cs_a == 1 ? kc : 16;  // few rows of memory at a time, neighbours in turn
                    share(div_up(ni, 4), [&](long four) {
                        for (long k = 0; k < kc; k += deep) {
                            for (long i = 4*four; i < std::min(ni, 4*four + 4); i++) {
                                const R* from = A + (i0 + i*MR)*rs_a + k0*cs_a;
                                (mc - i*MR >= MR ? full : last).pack(pa + i*MR*G::ROW, from, rs_a, cs_a,
                                                                     k, std::min(kc, k + deep));
                            }
                        }
                    });
                    if (threads > 1) {
                        #pragma omp barrier
                    }
                    const long some = std::max(1L, std::min(ni, ni*nj / (8 * threads))); // tiles per ticket
                    share(div_up(ni*nj, some), [&](long t) {
                        for (long ij = t*some; ij < std::min(ni*nj, (t + 1)*some); ij++) {
                            const long i = ij % ni, j = ij / ni;
                            (mc - i*MR >= MR ? full : last).multiply(kc, pa + i*MR*G::ROW, pb + j*NR*kc,
                                C + (i0 + i*MR)*ldc + j0 + j*NR, ldc, std::min(NR, nc - j*NR), accumulate || k0 > 0);
                        }
                    });
                }
            }
        }
    };
#ifdef _OPENMP
    if (2.0 * M * N * K > 4e6 && omp_get_max_threads() > 1 && !omp_in_parallel()) {
        #pragma omp parallel
        run(omp_get_num_threads());
        return;
    }
#endif
    run(1);
}

} // namespace cpu
#endif // CPU_PRODUCT_H
