/*
reference.h -- namespace cpu: every operation of the model as plain OpenMP loops. It is the reference that the CUDA
kernels are tested against (same names, same parameter lists), and the backend of a machine without a GPU.

    1 memory                 the device is the host
    2 matrix product         forward, backward to the input, backward to the weight
    3 embedding, norms       tokens in, RMSNorm
    4 rotary and kernels     what happens to q and k before they meet
    5 attention              one forward and one backward for every variant, O(T) memory
    6 heads, FFN             combine heads, activations
    7 classifier             softmax cross-entropy, in place
    8 optimiser              norm, AdamW, SGD

Letters: B batch, T time (with the sink token, if there is one), C channels, NH heads, KV key/value heads, HS head size,
V vocabulary, OC output channels, F FFN width, N rows (B*T). `real` is what tensors hold, `acc` what sums, statistics,
weight gradients and optimiser state hold; here both are the same type, float (the tests also build double).
Parameter order: outputs, inputs, weights, sizes. Backward adds (+=) into weight gradients and overwrites activations'
gradients unless it says otherwise. Every sum has a fixed order, whatever the number of threads: same seed, same bits.
*/
#ifndef REFERENCE_H
#define REFERENCE_H
#include <atomic>
#include <type_traits>
#include "attention_variants.cuh"
#ifdef _OPENMP
#include <omp.h>
#endif
#ifndef REAL
#define REAL float
#endif

// what an optimiser step is told; step counts from 1
struct AdamW { float lr, beta1, beta2, eps, weight_decay; long step; };
// what it reads of the gradients it is to follow. In device memory, so that the host need not wait for it
struct StepSums { double loss, squares; float grad_scale; };             // mean loss, squared norm of the gradients
// what the gradients are multiplied with so that their norm is at most clip (0: any). NAN, and no update, if not finite
HD float grad_scale(double loss, double squares, float clip) {
    if (loss - loss != 0 || squares - squares != 0) { return NAN; }
    const double scale = clip > 0 ? clip / (sqrt(squares) + 1e-6) : 1.0;
    return scale < 1 ? scale : 1.0;
}

namespace cpu {
typedef REAL real;
typedef REAL acc;
static const char* const name = "cpu";
static const bool on_host = true; // host code may read device memory as it is
enum { head_rows = 512 };         // rows of logits alive at once: they stay in cache
enum { large = 1024 };            // side of matrices that are large to this machine

// ----------------------------------------------------------------------------
// 1 memory

inline const std::string& device_start() { // what there is to compute with, in one line
#ifdef _OPENMP
    static const std::string once = strf("%d threads", omp_get_max_threads());
#else
    static const std::string once = "1 thread, built without OpenMP";
#endif
    return once;
}
inline void* device_malloc(size_t bytes)                          { return xmalloc(bytes); }
inline void  device_free(void* p)                                 { free(p); }
inline void  device_zero(void* p, size_t bytes)                   { memset(p, 0, bytes); }
inline void  to_device(void* dst, const void* src, size_t bytes)  { memcpy(dst, src, bytes); }
inline void  to_host(void* dst, const void* src, size_t bytes)    { memcpy(dst, src, bytes); }
inline void  device_sync()                                        {}
inline size_t device_left()                                       { return SIZE_MAX; } // the system swaps
// y (n) += x
inline void  add(real* y, const real* x, long n) {
    #pragma omp parallel for simd
    for (long i = 0; i < n; i++) { y[i] += x[i]; }
}
inline void  cast_to_real(real* dst, const acc* src, long n) {
    if (dst != src) { memcpy(dst, src, n * sizeof(real)); }
}

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

// out (N, OC) = inp (N, C) @ weight (OC, C)^T  [+ residual (N, OC), unless NULL]
inline void matmul_forward(real* out, const real* inp, const real* weight, const real* residual, int N, int C, int OC) {
    if (residual) { memcpy(out, residual, (size_t)N * OC * sizeof(real)); }
    gemm<real>(N, OC, C, inp, C, 1, weight, 1, C, out, OC, residual != NULL);
}
// in the forward pass this was:  out = inp W^T,  so dinp (N, C) = dout (N, OC) @ weight (OC, C)
inline void matmul_backward_input(real* dinp, const real* dout, const real* weight, int N, int C, int OC) {
    gemm<real>(N, C, OC, dout, OC, 1, weight, C, 1, dinp, C, false);
}
// and dweight (OC, C) += dout^T @ inp
inline void matmul_backward_weight(acc* dweight, const real* dout, const real* inp, int N, int C, int OC) {
    gemm<real>(OC, C, N, dout, 1, OC, inp, C, 1, dweight, C, true);
}

// ----------------------------------------------------------------------------
// 3 embedding and RMSNorm

// out (B, T, C): row t is wte[token] + pos[t]; with a sink token row 0 is sink + pos[0], token t stands at row t + 1.
// tokens (B, T') with T' = T, or T - 1 if sink; wte (V, C); pos (T, C) or NULL; sink (C) or NULL
inline void embed_forward(real* out, const int* tokens, const real* wte, const real* pos, const real* sink,
                          int B, int T, int C) {
    const int skip = sink ? 1 : 0;
    #pragma omp parallel for
    for (int bt = 0; bt < B * T; bt++) {
        const int b = bt / T, t = bt % T;
        const real* x = t < skip ? sink : wte + (long)tokens[b * (T - skip) + t - skip] * C;
        for (int c = 0; c < C; c++) { out[(long)bt * C + c] = x[c] + (pos ? pos[t * C + c] : real(0)); }
    }
}
// dwte, dpos, dsink += the rows of dout that read them; dpos, dsink may be NULL, sink as in forward
inline void embed_backward(acc* dwte, acc* dpos, acc* dsink, const real* dout, const int* tokens, int B, int T, int C) {
    const int skip = dsink ? 1 : 0, chunk = 16;
    #pragma omp parallel for // over channels, so that two equal tokens never meet in two threads
    for (int c0 = 0; c0 < C; c0 += chunk) {
        const int c1 = std::min(C, c0 + chunk);
        for (int b = 0; b < B; b++) {
            for (int t = 0; t < T; t++) {
                acc* dx = t < skip ? dsink : dwte + (long)tokens[b * (T - skip) + t - skip] * C;
                const real* d = dout + (long)(b * T + t) * C;
                for (int c = c0; c < c1; c++) { dx[c] += d[c]; }
                if (dpos) { for (int c = c0; c < c1; c++) { dpos[t * C + c] += d[c]; } }
            }
        }
    }
}

// out (N, C) = x rstd * weight,  rstd (N) = 1 / sqrt(mean(x^2) + eps)            (Zhang & Sennrich 2019; section 3.1)
inline void rmsnorm_forward(real* out, acc* rstd, const real* x, const real* weight, float eps, int N, int C) {
    #pragma omp parallel for
    for (int n = 0; n < N; n++) {
        const real* x_n = x + (long)n * C;
        acc sum = 0;
        #pragma omp simd reduction(+ : sum)
        for (int c = 0; c < C; c++) { sum += x_n[c] * x_n[c]; }
        const acc r = acc(1) / sqrt(sum / C + acc(eps));
        for (int c = 0; c < C; c++) { out[(long)n * C + c] = x_n[c] * r * weight[c]; }
        rstd[n] = r;
    }
}
// in the forward pass this was:  out_c = x_c r w_c,  r = (mean(x^2) + eps)^(-1/2),  so dr/dx_c = -r^3 x_c / C
// dx (N, C) = r (dout w) - x r^3 mean(dout w x)   [+= if add];   dweight (C) += sum_n dout x r
inline void rmsnorm_backward(real* dx, acc* dweight, const real* dout, const real* x, const real* weight,
                             const acc* rstd, bool add, int N, int C) {
    const int rows = 64, blocks = div_up(N, rows);          // each block sums its rows; then the blocks in order
    std::vector<acc> part((size_t)blocks * C);
    #pragma omp parallel for
    for (int k = 0; k < blocks; k++) {
        acc* dw = &part[(size_t)k * C];
        for (int n = k * rows; n < std::min(N, (k + 1) * rows); n++) {
            const real *d = dout + (long)n * C, *x_n = x + (long)n * C;
            real* dx_n = dx + (long)n * C;
            const acc r = rstd[n];
            acc dot = 0;
            #pragma omp simd reduction(+ : dot)
            for (int c = 0; c < C; c++) { dot += d[c] * weight[c] * x_n[c]; }
            const acc f = r * r * r * dot / C;
            for (int c = 0; c < C; c++) {
                const acc g = d[c] * weight[c] * r - x_n[c] * f;
                dw[c] += d[c] * x_n[c] * r;
                dx_n[c] = add ? dx_n[c] + g : g;
            }
        }
    }
    for (int k = 0; k < blocks; k++) { for (int c = 0; c < C; c++) { dweight[c] += part[(size_t)k * C + c]; } }
}

// ----------------------------------------------------------------------------
// 4 rotary and kernels: q and k are the first (NH + KV) * HS columns of every row of qkv (B, T, (NH + 2 KV) HS)

// in place: (x_i, x_{i+HS/2}) turns by sign * t * theta_i; table (T, HS/2, 2) holds cos, sin (Eq. 8, half-split as in
// LLaMA). Backward is the same turn the other way: sign -1 on the gradient
inline void rope(real* qkv, const acc* table, int sign, AttnShape s) {
    const int H = s.HS / 2;
    #pragma omp parallel for
    for (int bt = 0; bt < s.B * s.T; bt++) {
        const acc* turn = table + (long)(bt % s.T) * H * 2;
        for (int h = 0; h < s.NH + s.KV; h++) {
            real* x = qkv + (long)bt * attn_row(s) + h * s.HS;
            for (int i = 0; i < H; i++) {
                const acc co = turn[2 * i], si = sign * turn[2 * i + 1], a = x[i], b = x[i + H];
                x[i] = a * co - b * si;
                x[i + H] = a * si + b * co;
            }
        }
    }
}
// phi = elu + 1, in place on q and k
inline void phi_elu1_forward(real* qkv, AttnShape s) {
    #pragma omp parallel for
    for (int bt = 0; bt < s.B * s.T; bt++) {
        real* x = qkv + (long)bt * attn_row(s);
        for (int i = 0; i < (s.NH + s.KV) * s.HS; i++) { x[i] = x[i] > 0 ? x[i] + real(1) : exp_(min_(x[i], real(0))); }
    }
}
// in the forward pass this was:  y = x > 0 ? x + 1 : e^x,  so y' = min(y, 1). dqkv in place, qkv holds y
inline void phi_elu1_backward(real* dqkv, const real* qkv, AttnShape s) {
    #pragma omp parallel for
    for (int bt = 0; bt < s.B * s.T; bt++) {
        const long row = (long)bt * attn_row(s);
        for (int i = 0; i < (s.NH + s.KV) * s.HS; i++) { dqkv[row + i] *= min_(qkv[row + i], real(1)); }
    }
}
// qk (B, T, (NH + KV) HS) <- qkv, and back: the MLP kernel wants its rows without v between them
inline void qk_gather(real* qk, const real* qkv, AttnShape s) {
    const int n = (s.NH + s.KV) * s.HS;
    #pragma omp parallel for
    for (int bt = 0; bt < s.B * s.T; bt++) {
        memcpy(qk + (long)bt * n, qkv + (long)bt * attn_row(s), n * sizeof(real));
    }
}
inline void qk_scatter(real* qkv, const real* qk, AttnShape s) {
    const int n = (s.NH + s.KV) * s.HS;
    #pragma omp parallel for
    for (int bt = 0; bt < s.B * s.T; bt++) {
        memcpy(qkv + (long)bt * attn_row(s), qk + (long)bt * n, n * sizeof(real));
    }
}

// ----------------------------------------------------------------------------
// 5 attention. A thread owns one key/value head of one sequence. It walks tiles of BR queries x BC keys; a tile's
// scores live in a BR x BC buffer and are gone when the next tile starts: memory is O(T HS) a thread.

typedef Vectors<real>::Vec vec;
enum { BR = 32, BC = 64, VEC = sizeof(vec) / sizeof(real), VEC_COLS = GEMM_VECTOR_BYTES == 64 ? 4 : 2 };
inline int padded(int n) { return (n + VEC - 1) / VEC * VEC; }
inline int padded_keys(int T) { return (T + BC - 1) / BC * BC; }

template <int ROWS, int COLS>
inline void tile_block(real* c, int ldc, const real* a, int row, int col, const real* b, int ldb, int K) {
    vec sum[ROWS][COLS];
    for (int r = 0; r < ROWS; r++) { for (int n = 0; n < COLS; n++) { sum[r][n] = *(vec*)(c + r * ldc + n * VEC); } }
    for (int k = 0; k < K; k++) {
        for (int n = 0; n < COLS; n++) {
            const vec x = *(const vec*)(b + k * ldb + n * VEC);
            for (int r = 0; r < ROWS; r++) { sum[r][n] += a[r * row + k * col] * x; }
        }
    }
    for (int r = 0; r < ROWS; r++) { for (int n = 0; n < COLS; n++) { *(vec*)(c + r * ldc + n * VEC) = sum[r][n]; } }
}
// c (M, COLS VEC) += a (M, K) @ b (K, COLS VEC)
template <int COLS>
inline void tile_columns(real* c, int ldc, const real* a, int row, int col, const real* b, int ldb, int M, int K) {
    int m = 0;
    for (; m + 4 <= M; m += 4) { tile_block<4, COLS>(c + m * ldc, ldc, a + m * row, row, col, b, ldb, K); }
    for (; m < M; m++)         { tile_block<1, COLS>(c + m * ldc, ldc, a + m * row, row, col, b, ldb, K); }
}
// c (M, N) += a (M, K) @ b (K, N), all in cache; a is read at a[m row + k col], N is padded to VEC
inline void tile_product(real* c, int ldc, const real* a, int row, int col, const real* b, int ldb,
                         int M, int N, int K) {
    int n = 0;
    for (; n + VEC_COLS * VEC <= N; n += VEC_COLS * VEC) {
        tile_columns<VEC_COLS>(c + n, ldc, a, row, col, b + n, ldb, M, K);
    }
    for (; n < N; n += VEC) { tile_columns<1>(c + n, ldc, a, row, col, b + n, ldb, M, K); }
}
// a thread's buffer number `slot`, kept from call to call; not zeroed
inline real* scratch(int slot, size_t n) {
    static thread_local struct Buffers {
        real* p[12] = {}; size_t n[12] = {};
        ~Buffers() { for (auto q : p) { free(q); } }
    } t;
    if (t.n[slot] < n) {
        free(t.p[slot]);
        t.p[slot] = (real*)aligned_alloc(64, (n * sizeof(real) + 63) / 64 * 64);
        if (!t.p[slot]) { die(EXIT_MACHINE, "memory: none left for the attention buffers", "lower --batch or --seq"); }
        t.n[slot] = n;
    }
    return t.p[slot];
}
// one head (T, HS) out of qkv, rows padded with zeros: rows (T, HP) and/or columns cols (HS, TP)
inline void head_gather(real* rows, real* cols, const real* x, int stride, int T, int HS) {
    const int HP = padded(HS), TP = padded_keys(T);
    for (int t = 0; t < T; t++) {
        const real* x_t = x + (long)t * stride;
        if (rows) { for (int i = 0; i < HP; i++) { rows[t * HP + i] = i < HS ? x_t[i] : real(0); } }
        if (cols) { for (int i = 0; i < HS; i++) { cols[(long)i * TP + t] = x_t[i]; } }
    }
    if (cols) { for (int i = 0; i < HS; i++) { for (int t = T; t < TP; t++) { cols[(long)i * TP + t] = 0; } } }
}
// and rows (T, HP) back to where one head stands in a tensor like qkv
inline void head_scatter(real* x, int stride, const real* rows, int T, int HS) {
    const int HP = padded(HS);
    for (int t = 0; t < T; t++) {
        for (int i = 0; i < HS; i++) { x[(long)t * stride + i] = rows[(long)t * HP + i]; }
    }
}
// score (BR, BC) of queries t0..t1 against keys j0..j1: q (.., HP) rows, k_cols (HS, TP) columns; masked, biased
template <class A, class Pe>
inline void tile_scores(real* score, const real* q, const real* k_cols, int t0, int t1, int j0, int j1, int h,
                        AttnShape s) {
    const int HP = padded(s.HS), TP = padded_keys(s.T), N = padded(j1 - j0);
    const real scale = real(1) / sqrt(real(s.HS));
    for (int r = 0; r < t1 - t0; r++) { for (int j = 0; j < N; j++) { score[r * BC + j] = 0; } }
    tile_product(score, BC, q, HP, 1, k_cols + j0, TP, t1 - t0, N, s.HS);
    const bool full = attn_tile_full(s, t0, t1, j0, j1);
    for (int r = 0; r < t1 - t0; r++) {
        real* x = score + r * BC;
        for (int j = 0; j < j1 - j0; j++) {
            x[j] *= scale;
            if (Pe::score_bias) { x[j] += Pe::template bias<real>(t0 + r - (j0 + j), h, s.NH); }
        }
        if (full) { continue; }
        for (int j = 0; j < j1 - j0; j++) { if (!attn_sees(s, t0 + r, j0 + j)) { x[j] = attn_masked<A, real>(); } }
    }
}
inline real dot(const real* a, const real* b, int n) {
    real sum = 0;
    #pragma omp simd reduction(+ : sum)
    for (int i = 0; i < n; i++) { sum += a[i] * b[i]; }
    return sum;
}
// the last key, rounded to nothing, that a tile of queries ending at t1 can see
inline int tile_end(int t1, AttnShape s) { return std::min(s.T, std::max(t1, s.prefix)); }

// out (B, T, NH HS), stat (B, NH, T, 2) <- qkv (B, T, (NH + 2 KV) HS), kstar, vstar (KV or 1, HS) or NULL for zero
template <class A, class Bi, class Pe>
void attention_forward(real* out, acc* stat, const real* qkv, const real* kstar, const real* vstar, AttnShape s) {
    const int T = s.T, HS = s.HS, W = attn_row(s), HP = padded(HS), TP = padded_keys(T), G = s.NH / s.KV;
    const real p = s.p, alpha = attn_alpha<A, real>(s), scale = real(1) / sqrt(real(HS));
    #pragma omp parallel for schedule(dynamic)
    for (int bg = 0; bg < s.B * s.KV; bg++) {
        const int b = bg / s.KV, g = bg % s.KV;
        const real* x = qkv + (long)b * T * W;                       // this sequence
        const real *ks = attn_star(kstar, s, g), *vs = attn_star(vstar, s, g);
        real *k_cols = scratch(0, (long)HS * TP), *v = scratch(1, (long)T * HP), *q = scratch(2, BR * HP);
        real *o = scratch(3, BR * HP), *score = scratch(4, BR * BC), m[BR], l[BR];
        head_gather(NULL, k_cols, x + (s.NH + g) * HS, W, T, HS);
        head_gather(v, NULL, x + (s.NH + s.KV + g) * HS, W, T, HS);
        for (int h = g * G; h < (g + 1) * G; h++) {
            for (int t0 = 0; t0 < T; t0 += BR) {
                const int t1 = std::min(T, t0 + BR);
                head_gather(q, NULL, x + (long)t0 * W + h * HS, W, t1 - t0, HS);
                // the extra column is the state that the loop starts from
                for (int r = 0; r < t1 - t0; r++) {
                    const real s_star = Bi::column && ks ? dot(q + r * HP, ks, HS) * scale : real(0);
                    const real w_star = !Bi::column ? real(0) : A::exp_family ? real(1) : A::sim(s_star);
                    m[r] = Bi::column ? s_star : real(-INFINITY);
                    l[r] = attn_mass<A>(w_star, p);
                    for (int i = 0; i < HP; i++) {
                        o[r * HP + i] = Bi::column && vs && i < HS ? w_star * vs[i] : real(0);
                    }
                }
                const int end = tile_end(t1, s);
                for (int j0 = 0; j0 < end; j0 += BC) {
                    const int j1 = std::min(end, j0 + BC);
                    if (attn_tile_empty(s, t0, t1, j0, j1)) { continue; }
                    tile_scores<A, Pe>(score, q, k_cols, t0, t1, j0, j1, h, s);
                    for (int r = 0; r < t1 - t0; r++) {
                        real* w = score + r * BC;
                        real sum = 0;
                        if (A::exp_family) {
                            real top = m[r];
                            #pragma omp simd reduction(max : top)
                            for (int j = 0; j < j1 - j0; j++) { top = max_(top, w[j]); }
                            if (top == real(-INFINITY)) { for (int j = 0; j < j1 - j0; j++) { w[j] = 0; } continue; }
                            const real shrink = exp_(m[r] - top);
                            m[r] = top;
                            l[r] *= attn_mass<A>(shrink, p);
                            for (int i = 0; i < HP; i++) { o[r * HP + i] *= shrink; }
                            for (int j = 0; j < j1 - j0; j++) { w[j] = exp_(w[j] - top); }
                        } else {
                            for (int j = 0; j < j1 - j0; j++) { w[j] = A::sim(w[j]); }
                        }
                        #pragma omp simd reduction(+ : sum)
                        for (int j = 0; j < j1 - j0; j++) { sum += attn_mass<A>(w[j], p); }
                        l[r] += sum;
                    }
                    tile_product(o, HP, score, BC, 1, v + (long)j0 * HP, HP, t1 - t0, HP, j1 - j0);
                }
                for (int r = 0; r < t1 - t0; r++) {
                    const real ln_Z = (A::Z == Z_PNORM ? log_(l[r]) / p : log_(l[r])) - log_(alpha);
                    const real factor = A::exp_family ? exp_(-ln_Z) : alpha / attn_Z<A>(l[r], p);
                    acc* st = stat + ((long)(b * s.NH + h) * T + t0 + r) * 2;
                    st[0] = A::exp_family ? m[r] : factor;
                    st[1] = A::exp_family ? ln_Z : l[r];
                    real* out_t = out + ((long)b * T + t0 + r) * s.NH * HS + h * HS;
                    for (int i = 0; i < HS; i++) { out_t[i] = o[r * HP + i] * factor; }
                }
            }
        }
    }
}

// the extra column of one query: dq_t, dk*, dv* += ; ks or vs NULL for zero
template <class A>
inline void star_backward(real* dq_t, acc* dks, acc* dvs, const real* do_t, const real* q_t, const acc* st_t,
                          const real* ks, const real* vs, real delta, AttnShape s) {
    const real scale = real(1) / sqrt(real(s.HS)), alpha = attn_alpha<A, real>(s);
    const real s_star = ks ? dot(q_t, ks, s.HS) * scale : real(0), dw_star = vs ? dot(do_t, vs, s.HS) : real(0);
    const real w_star = attn_weight<A>(s_star, st_t[0], st_t[1]);
    const real ds_star = attn_ds<A>(s_star, w_star, dw_star, st_t[0], delta, real(s.p), alpha) * scale;
    for (int i = 0; i < s.HS; i++) {
        if (ks) { dq_t[i] += ds_star * ks[i]; }
        dks[i] += ds_star * q_t[i];
        dvs[i] += w_star * do_t[i];
    }
}
// dqkv = (overwritten), dkstar, dvstar += (KV or 1, HS), or NULL where there is nothing to learn. turns: NULL, or the
// table of rope, and dq and dk leave turned back: where q and k came out of rope, this is also its backward.
// in the forward pass this was:  A_j = alpha f(s_j) / Z,  o = sum_j A_j v_j,  s_j = q . k_j / sqrt(HS) + bias, so
//     dv_j += A_j do,   dA_j = do . v_j,   ds_j = attn_ds(..),   dq += ds_j k_j / sqrt(HS),   dk_j += ds_j q / sqrt(HS)
template <class A, class Bi, class Pe>
void attention_backward(real* dqkv, acc* dkstar, acc* dvstar, const real* dout, const real* out, const acc* stat,
                        const real* qkv, const real* kstar, const real* vstar, const acc* turns, AttnShape s) {
    const int T = s.T, HS = s.HS, W = attn_row(s), HP = padded(HS), TP = padded_keys(T), G = s.NH / s.KV;
    const real p = s.p, alpha = attn_alpha<A, real>(s), scale = real(1) / sqrt(real(HS));
    std::vector<acc> dstar((size_t)s.B * s.KV * 2 * HS);    // dk*, dv* of every (b, g), summed in order at the end
    #pragma omp parallel for schedule(dynamic)
    for (int bg = 0; bg < s.B * s.KV; bg++) {
        const int b = bg / s.KV, g = bg % s.KV;
        const real* x = qkv + (long)b * T * W;
        real* dx = dqkv + (long)b * T * W;
        const real *ks = attn_star(kstar, s, g), *vs = attn_star(vstar, s, g);
        acc *dks = &dstar[(size_t)bg * 2 * HS], *dvs = dks + HS;
        real *k_cols = scratch(0, (long)HS * TP), *v_cols = scratch(1, (long)HS * TP), *k = scratch(2, (long)T * HP);
        real *dk = scratch(3, (long)T * HP), *dv = scratch(4, (long)T * HP);
        real *q = scratch(5, BR * HP), *dq = scratch(6, BR * HP), *d_o = scratch(7, BR * HP);
        real *weight = scratch(8, BR * BC), *ds = scratch(9, BR * BC), delta[BR];
        head_gather(k, k_cols, x + (s.NH + g) * HS, W, T, HS);
        head_gather(NULL, v_cols, x + (s.NH + s.KV + g) * HS, W, T, HS);
        for (long i = 0; i < (long)T * HP; i++) { dk[i] = 0; dv[i] = 0; }
        for (int h = g * G; h < (g + 1) * G; h++) {
            const acc* st = stat + (long)(b * s.NH + h) * T * 2;
            for (int t0 = 0; t0 < T; t0 += BR) {
                const int t1 = std::min(T, t0 + BR), end = tile_end(t1, s);
                head_gather(q, NULL, x + (long)t0 * W + h * HS, W, t1 - t0, HS);
                head_gather(d_o, NULL, dout + ((long)b * T + t0) * s.NH * HS + h * HS, s.NH * HS, t1 - t0, HS);
                for (int r = 0; r < t1 - t0; r++) {
                    const acc* st_t = st + (t0 + r) * 2;
                    const real* out_t = out + ((long)b * T + t0 + r) * s.NH * HS + h * HS;
                    real *do_t = d_o + r * HP, *q_t = q + r * HP, *dq_t = dq + r * HP;
                    delta[r] = attn_delta<A>(dot(do_t, out_t, HS), st_t[1], alpha);
                    for (int i = 0; i < HP; i++) { dq_t[i] = 0; }
                    if (Bi::column) { star_backward<A>(dq_t, dks, dvs, do_t, q_t, st_t, ks, vs, delta[r], s); }
                }
                for (int j0 = 0; j0 < end; j0 += BC) {
                    const int j1 = std::min(end, j0 + BC), N = padded(j1 - j0);
                    if (attn_tile_empty(s, t0, t1, j0, j1)) { continue; }
                    const bool full = attn_tile_full(s, t0, t1, j0, j1);
                    tile_scores<A, Pe>(weight, q, k_cols, t0, t1, j0, j1, h, s);
                    for (int r = 0; r < t1 - t0; r++) { for (int j = 0; j < N; j++) { ds[r * BC + j] = 0; } }
                    tile_product(ds, BC, d_o, HP, 1, v_cols + j0, TP, t1 - t0, N, HS);            // do . v_j
                    for (int r = 0; r < t1 - t0; r++) {
                        real *w = weight + r * BC, *d = ds + r * BC;
                        const real st0 = st[(t0 + r) * 2], st1 = st[(t0 + r) * 2 + 1], dl = delta[r];
                        for (int j = 0; j < j1 - j0; j++) {
                            const real s_j = w[j];
                            w[j] = attn_weight<A>(s_j, st0, st1);
                            d[j] = attn_ds<A>(s_j, w[j], d[j], st0, dl, p, alpha) * scale;
                        }
                        if (A::is_signed && !full) {
                            for (int j = 0; j < j1 - j0; j++) { if (!attn_sees(s, t0 + r, j0 + j)) { d[j] = 0; } }
                        }
                    }
                    tile_product(dv + (long)j0 * HP, HP, weight, 1, BC, d_o, HP, j1 - j0, HP, t1 - t0);
                    tile_product(dk + (long)j0 * HP, HP, ds, 1, BC, q, HP, j1 - j0, HP, t1 - t0);
                    tile_product(dq, HP, ds, BC, 1, k + (long)j0 * HP, HP, t1 - t0, HP, j1 - j0);
                }
                head_scatter(dx + (long)t0 * W + h * HS, W, dq, t1 - t0, HS);
            }
        }
        head_scatter(dx + (s.NH + g) * HS, W, dk, T, HS);
        head_scatter(dx + (s.NH + s.KV + g) * HS, W, dv, T, HS);
    }
    for (int bg = 0; Bi::column && bg < s.B * s.KV; bg++) {
        const long row = s.bias_shared ? 0 : (bg % s.KV) * HS;
        for (int i = 0; i < HS; i++) {
            if (dkstar && i < s.k_dims) { dkstar[row + i] += dstar[(size_t)bg * 2 * HS + i]; }
            if (dvstar) { dvstar[row + i] += dstar[(size_t)bg * 2 * HS + HS + i]; }
        }
    }
    if (turns) { rope(dqkv, turns, -1, s); }
}

// ----------------------------------------------------------------------------
// 6 heads and FFN

// out (B, T, NH HS) or, summed over heads, (B, T, HS) <- att (B, T, NH HS) + v* (NH or 1, HS; NULL without BIAS=v)
inline void heads_forward(real* out, const real* att, const real* vstar, bool sum, AttnShape s) {
    const int HS = s.HS, OC = sum ? HS : s.NH * HS;
    #pragma omp parallel for
    for (int bt = 0; bt < s.B * s.T; bt++) {
        real* o = out + (long)bt * OC;
        if (sum) { for (int i = 0; i < HS; i++) { o[i] = 0; } }
        for (int h = 0; h < s.NH; h++) {
            const real* a = att + ((long)bt * s.NH + h) * HS;
            const real* v = vstar ? vstar + (s.bias_shared ? 0 : h * HS) : NULL;
            for (int i = 0; i < HS; i++) {
                const real y = a[i] + (v ? v[i] : real(0));
                if (sum) { o[i] += y; } else { o[h * HS + i] = y; }
            }
        }
    }
}
// in the forward pass this was:  out_h = att_h + v*_h, or their sum over h. datt = dout_h or dout; dvstar += their sum
inline void heads_backward(real* datt, acc* dvstar, const real* dout, bool sum, AttnShape s) {
    const int HS = s.HS, OC = sum ? HS : s.NH * HS, N = s.B * s.T;
    #pragma omp parallel for
    for (int h = 0; h < s.NH; h++) {
        for (int bt = 0; bt < N; bt++) {
            const real* d = dout + (long)bt * OC + (sum ? 0 : h * HS);
            for (int i = 0; i < HS; i++) { datt[((long)bt * s.NH + h) * HS + i] = d[i]; }
        }
    }
    if (!dvstar) { return; }
    for (int h = 0; h < s.NH; h++) { // serial: with --bias-share heads all heads add to one row
        for (int bt = 0; bt < N; bt++) {
            const real* d = datt + ((long)bt * s.NH + h) * HS;
            for (int i = 0; i < HS; i++) { dvstar[(s.bias_shared ? 0 : h * HS) + i] += d[i]; }
        }
    }
}

// out (N, F) = act(inp) or, gated, act(gate) * up with inp (N, 2 F) = gate | up
template <class Ff>
void ffn_forward(real* out, const real* inp, int N, int F) {
    #pragma omp parallel for
    for (int n = 0; n < N; n++) {
        const real* x = inp + (long)n * F * (Ff::gated ? 2 : 1);
        real* o = out + (long)n * F;
        for (int i = 0; i < F; i++) { o[i] = Ff::act(x[i]) * (Ff::gated ? x[F + i] : real(1)); }
    }
}
// in the forward pass this was:  out = act(g) u,  so dg = dout act'(g) u,  du = dout act(g)
template <class Ff>
void ffn_backward(real* dinp, const real* dout, const real* inp, int N, int F) {
    #pragma omp parallel for
    for (int n = 0; n < N; n++) {
        const long row = (long)n * F * (Ff::gated ? 2 : 1);
        const real *x = inp + row, *d = dout + (long)n * F;
        real* dx = dinp + row;
        for (int i = 0; i < F; i++) {
            const real g = x[i], u = Ff::gated ? x[F + i] : real(1);
            dx[i] = d[i] * Ff::dact(g) * u;
            if (Ff::gated) { dx[F + i] = d[i] * Ff::act(g); }
        }
    }
}

// ----------------------------------------------------------------------------
// 7 classifier

// losses (N) = -log softmax(logits)[target]; logits (N, V) become dloss * dlosses/dlogits in place, unless dloss is 0.
// a target of -1 counts for nothing: loss 0, gradient 0
inline void classifier(acc* losses, real* logits, const int* targets, float dloss, int N, int V) {
    #pragma omp parallel for
    for (int n = 0; n < N; n++) {
        real* x = logits + (long)n * V;
        const int y = targets[n];
        losses[n] = 0;
        if (y < 0) { if (dloss != 0) { memset(x, 0, V * sizeof(real)); } continue; }
        acc top = x[0], sum = 0;
        #pragma omp simd reduction(max : top)
        for (int v = 0; v < V; v++) { top = max_(top, x[v]); }
        #pragma omp simd reduction(+ : sum)
        for (int v = 0; v < V; v++) { sum += exp_(x[v] - top); }
        losses[n] = log_(sum) - (x[y] - top);
        if (dloss == 0) { continue; }
        const acc f = dloss / sum;
        for (int v = 0; v < V; v++) { x[v] = exp_(x[v] - top) * f; }
        x[y] -= dloss;
    }
}

// ----------------------------------------------------------------------------
// 8 optimiser

// sums->loss += sum of losses (n) / count
inline void loss_add(StepSums* sums, const acc* losses, long n, double count) {
    double sum = 0;
    for (long i = 0; i < n; i++) { sum += losses[i]; }
    sums->loss += sum / count;
}
// sums->squares = sum of x^2, blockwise in double; and the grad_scale that follows from it and from the loss
inline void square_norm(StepSums* sums, const acc* x, float clip, long n) {
    const long block = 1 << 14, blocks = (n + block - 1) / block;
    std::vector<double> part(blocks);
    #pragma omp parallel for
    for (long k = 0; k < blocks; k++) {
        double sum = 0;
        #pragma omp simd reduction(+ : sum)
        for (long i = k * block; i < std::min(n, (k + 1) * block); i++) { sum += (double)x[i] * x[i]; }
        part[k] = sum;
    }
    double sum = 0;
    for (double x_k : part) { sum += x_k; }
    sums->squares = sum;
    sums->grad_scale = grad_scale(sums->loss, sum, clip);
}
// (Loshchilov & Hutter 2017)  m = b1 m + (1-b1) g,  v = b2 v + (1-b2) g^2,  w -= lr (m^ / (sqrt(v^) + eps) + decay w)
// master is the weight, params its copy in `real` (the same array where both types are one)
inline void adamw_update(real* params, acc* master, acc* m, acc* v, const acc* grads, const StepSums* sums, AdamW o, long n) {
    if (std::isnan(sums->grad_scale)) { return; }
    const acc b1 = o.beta1, b2 = o.beta2;
    const acc c1 = 1 / (1 - pow((double)o.beta1, o.step)), c2 = 1 / (1 - pow((double)o.beta2, o.step));
    const acc lr = o.lr, eps = o.eps, decay = o.weight_decay, scale = sums->grad_scale;
    #pragma omp parallel for simd
    for (long i = 0; i < n; i++) {
        const acc g = grads[i] * scale;
        m[i] = b1 * m[i] + (1 - b1) * g;
        v[i] = b2 * v[i] + (1 - b2) * g * g;
        master[i] -= lr * (m[i] * c1 / (sqrt(v[i] * c2) + eps) + decay * master[i]);
        params[i] = master[i];
    }
}
// SGD with momentum beta1:  m = b1 m + g,  w -= lr (m + decay w)
inline void sgd_update(real* params, acc* master, acc* m, acc*, const acc* grads, const StepSums* sums, AdamW o, long n) {
    if (std::isnan(sums->grad_scale)) { return; }
    const acc b1 = o.beta1, lr = o.lr, decay = o.weight_decay, scale = sums->grad_scale;
    #pragma omp parallel for simd
    for (long i = 0; i < n; i++) {
        m[i] = b1 * m[i] + grads[i] * scale;
        master[i] -= lr * (m[i] + decay * master[i]);
        params[i] = master[i];
    }
}
} // namespace cpu
#endif // REFERENCE_H
