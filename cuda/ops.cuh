/*
ops.cuh -- the operations of the CUDA backend, but for attention (attention.cuh) and the metrics
(metrics.cuh). Names and parameters are those of reference.h, which explains each, and which each is
tested against (test/test_cuda.cu). What is added here is how threads share the work, and how sums
keep one order.
*/
#ifndef CUDA_OPS_CUH
#define CUDA_OPS_CUH
#include "../reference.h"
#include "attention.cuh"

namespace cuda {
enum { VN = 16 / sizeof(real) };                       // values in one 16-byte access
// can rows of C values at these addresses be moved 16 bytes at a time?
inline bool wide(int C, std::initializer_list<const void*> pointers) {
    for (const void* p : pointers) { if ((uintptr_t)p % 16) { return false; } }
    return C % VN == 0;
}

// every kernel with a template parameter N exists for N = VN and for N = 1, which takes any shape
#define LAUNCH_WIDE(ok, kernel, ...)     \
    if (ok) {                            \
        LAUNCH(kernel<VN>, __VA_ARGS__); \
    } else {                             \
        LAUNCH(kernel<1>, __VA_ARGS__);  \
    }
// two ways to cover a tensor: by rows, a thread for N columns at a time and as many rows a block as
// make 256 threads, or a flat loop over n values
struct RowBlocks {
    dim3 grid, block;
    RowBlocks(int rows, int C, int N) {
        const int threads = CEIL_DIV(C, N), x = CEIL_DIV(threads, CEIL_DIV(threads, 256)),
                  y = std::min(rows, 256 / x);
        grid = dim3(CEIL_DIV(rows, y));
        block = dim3(x, y);
    }
};
// LAUNCH_ROWS(N, kernel, rows, columns, arguments...); LAUNCH_WIDE_ROWS(ok, ..) as LAUNCH_WIDE
#define LAUNCH_ROWS(N, kernel, rows, C, ...) { \
    const RowBlocks blocks_(rows, C, N); \
    LAUNCH(kernel, blocks_.grid, blocks_.block, 0, __VA_ARGS__); \
}
#define LAUNCH_WIDE_ROWS(ok, kernel, rows, C, ...) \
    if (ok) LAUNCH_ROWS(VN, kernel<VN>, rows, C, __VA_ARGS__) \
    else LAUNCH_ROWS(1, kernel<1>, rows, C, __VA_ARGS__)
DEVICE int own_row() { return blockIdx.x * blockDim.y + threadIdx.y; }
#define FOR_COLUMNS(c, N, C) for (int c = threadIdx.x * N; c < C; c += blockDim.x * N)
inline dim3 flat_grid(long n, int N) {
    return dim3((unsigned)std::min(CEIL_DIV(n, 256L * N), 1L << 16));
}
#define FOR_FLAT(i, N, n) \
    for (long i = ((long)blockIdx.x * 256 + threadIdx.x) * N; i < n; i += (long)gridDim.x * 256 * N)

// N floats, N = 1 or a multiple of 4, 16 bytes at a time
template <int N> DEVICE Vec<float, N> load_floats(const float* p) {
    constexpr int M = N < 4 ? N : 4;
    Vec<float, N> x;
    #pragma unroll
    for (int i = 0; i < N; i += M) {
        const Vec<float, M> part = load<M>(p + i);
        for (int k = 0; k < M; k++) { x.v[i + k] = part.v[k]; }
    }
    return x;
}

template <int N> DEVICE void store_floats(float* p, const Vec<float, N>& x) {
    constexpr int M = N < 4 ? N : 4;
    #pragma unroll
    for (int i = 0; i < N; i += M) {
        Vec<float, M> part;
        for (int k = 0; k < M; k++) { part.v[k] = x.v[i + k]; }
        store<M>(p + i, part);
    }
}

// out (C) += sum_k part (K, C), rows `stride` apart, in a fixed order; columns with c % width >=
// limit are left alone
__global__ void __launch_bounds__(256)
column_sum_kernel(acc* out, const float* part, long K, int C, int stride, int width, int limit) {
    SMEM(float[8][32], sums);
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, c = blockIdx.x * 32 + lane;
    float sum = 0;
    for (long k = warp; c < C && k < K; k += 8) { sum += part[k * stride + c]; }
    sums[warp][lane] = sum;
    __syncthreads();
    if (warp > 0 || c >= C || c % width >= limit) { return; }
    for (int w = 1; w < 8; w++) { sum += sums[w][lane]; }
    out[c] += sum;
}

// all columns, of rows that are `stride` floats apart
inline void column_sum(acc* out, const float* part, long K, int C, int stride) {
    LAUNCH(column_sum_kernel, dim3(CEIL_DIV(C, 32)), dim3(256), 0, out, part, K, C, stride, C, C);
}

// of each `width` columns the first `limit`
inline void column_sum_part(acc* out, const float* part, long K, int C, int width, int limit) {
    LAUNCH(column_sum_kernel, dim3(CEIL_DIV(C, 32)), dim3(256), 0, out, part, K, C, C, width,
           limit);
}

// ----------------------------------------------------------------------------
// 1 memory (the rest is in device.cuh)

template <int N>
__global__ void __launch_bounds__(256) cast_kernel(real* dst, const acc* src, long n) {
    FOR_FLAT(i, N, n) {
        const Vec<acc, N> x = load<N>(src + i);
        Vec<real, N> y;
        for (int k = 0; k < N; k++) { y.v[k] = real(x.v[k]); }
        store<N>(dst + i, y);
    }
}

template <int N> __global__ void __launch_bounds__(256) add_kernel(real* y, const real* x, long n) {
    FOR_FLAT(i, N, n) {
        Vec<real, N> a = load<N>(y + i), b = load<N>(x + i);
        for (int k = 0; k < N; k++) { a.v[k] = real((float)a.v[k] + (float)b.v[k]); }
        store<N>(y + i, a);
    }
}

inline void add(real* y, const real* x, long n) {
    if (wide(n % VN, {y, x})) { LAUNCH(add_kernel<VN>, flat_grid(n, VN), dim3(256), 0, y, x, n); }
    else { LAUNCH(add_kernel<1>, flat_grid(n, 1), dim3(256), 0, y, x, n); }
}

inline void cast_to_real(real* dst, const acc* src, long n) {
    if ((void*)dst == (const void*)src) { return; }
    if (wide(n % VN, { dst, src })) {
        LAUNCH(cast_kernel<4>, flat_grid(n, 4), dim3(256), 0, dst, src, n);
    } else {
        LAUNCH(cast_kernel<1>, flat_grid(n, 1), dim3(256), 0, dst, src, n);
    }
}

// ----------------------------------------------------------------------------
// 2 matrix product

template <int N>
__global__ void __launch_bounds__(256) bias_kernel(real* out, const real* bias, int rows, int OC) {
    const int n = own_row();
    if (n >= rows) { return; }
    FOR_COLUMNS(o, N, OC) {
        Vec<real, N> x = load<N>(out + (long)n * OC + o), b = load<N>(bias + o);
        for (int i = 0; i < N; i++) { x.v[i] = real((float)x.v[i] + (float)b.v[i]); }
        store<N>(out + (long)n * OC + o, x);
    }
}

inline void matmul_forward(real* out, const real* inp, const real* weight, const real* bias,
                           const real* residual, int N, int C, int OC) {
    gemm(out, residual, inp, weight, N, OC, C, false, true);
    if (bias) { LAUNCH_WIDE_ROWS(wide(OC, {out, bias}), bias_kernel, N, OC, out, bias, N, OC) }
}

inline void matmul_backward_input(real* dinp, const real* dout, const real* weight, bool add, int N,
                                  int C, int OC) {
    gemm(dinp, add ? dinp : (const real*)NULL, dout, weight, N, C, OC, false, false);
}

inline void matmul_backward_weight(acc* dweight, const real* dout, const real* inp, int N, int C,
                                   int OC) {
    gemm(dweight, dweight, dout, inp, OC, C, N, true, false);
}

// part (blocks, W) = sums of ROW_BLOCK rows of x (N, W)
enum { ROW_BLOCK = 64 };
template <int N>
__global__ void __launch_bounds__(256)
    row_sums_kernel(float* part, const real* x, int rows, int W) {
    const int k = own_row(), n0 = k * ROW_BLOCK, n1 = min(rows, n0 + ROW_BLOCK);
    if (n0 >= rows) { return; }
    FOR_COLUMNS(c, N, W) {
        Vec<float, N> sum = {};
        for (int n = n0; n < n1; n++) {
            const Vec<real, N> v = load<N>(x + (long)n * W + c);
            for (int i = 0; i < N; i++) { sum.v[i] += (float)v.v[i]; }
        }
        for (int i = 0; i < N; i++) { part[(long)k * W + c + i] = sum.v[i]; }
    }
}

inline void row_sums(float* part, const real* x, int rows, int W) {
    LAUNCH_WIDE_ROWS(wide(W, {x}), row_sums_kernel, CEIL_DIV(rows, ROW_BLOCK), W, part, x, rows, W)
}

inline void matmul_backward_bias(acc* dbias, const real* dout, int N, int OC) {
    const int blocks = CEIL_DIV(N, ROW_BLOCK);
    float* part = (float*)device_scratch((size_t)blocks * OC * sizeof(float));
    row_sums(part, dout, N, OC);
    column_sum(dbias, part, blocks, OC, OC);
}

// ----------------------------------------------------------------------------
// 3 embedding and norms

template <int N>
__global__ void __launch_bounds__(256)
    embed_forward_kernel(real* out, const int* tokens, const real* wte, const real* pos,
                         const real* sink, float scale, int rows, int T, int C) {
    const int bt = own_row();
    if (bt >= rows) { return; }
    const int b = bt / T, t = bt % T, skip = sink ? 1 : 0;
    const real* x = t < skip ? sink : wte + (long)tokens[b * (T - skip) + t - skip] * C;
    FOR_COLUMNS(c, N, C) {
        Vec<real, N> v = load<N>(x + c), p;
        if (pos) { p = load<N>(pos + (long)t * C + c); }
        for (int i = 0; i < N; i++) {
            v.v[i] = real((float)v.v[i] * (t < skip ? 1.0f : scale) + (pos ? (float)p.v[i] : 0.0f));
        }
        store<N>(out + (long)bt * C + c, v);
    }
}

inline void embed_forward(real* out, const int* tokens, const real* wte, const real* pos,
                          const real* sink, float scale, int B, int T, int C) {
    LAUNCH_WIDE_ROWS(wide(C, {out, wte, pos, sink}), embed_forward_kernel, B * T, C,
                     out, tokens, wte, pos, sink, scale, B * T, T, C)
}

// A token may occur many times, and its row of dwte must be added to in a fixed order, without
// atomics. So the positions are sorted by token: keys (token, position), ascending, by bitonic
// sort. Stages that reach further than SORT_CHUNK keys go through memory, a launch each; all others
// run in shared memory, a block to SORT_CHUNK keys.
enum { SORT_CHUNK = shrunk ? 64 : 2048, SORT_THREADS = SORT_CHUNK / 8 };
DEVICE void sort_pair(uint64_t& lo, uint64_t& hi, bool up) {
    const uint64_t a = lo, b = hi;
    if ((a > b) == up) { lo = b; hi = a; }
}

__global__ void __launch_bounds__(256)
    sort_keys_kernel(uint64_t* keys, const int* tokens, int n, int padded) {
    FOR_FLAT(i, 1, padded) { keys[i] = i < n ? (uint64_t)tokens[i] << 32 | (uint64_t)i : ~0ull; }
}

// one stage, which joins runs of `size` by comparing keys `apart` from each other
__global__ void __launch_bounds__(256)
    sort_stage_kernel(uint64_t* keys, int size, int apart, int pairs) {
    FOR_FLAT(i, 1, pairs) {
        const long lo = 2 * i - (i & (apart - 1));
        sort_pair(keys[lo], keys[lo + apart], (lo & size) == 0);
    }
}

// all stages of sizes size..last that stay in a chunk
__global__ void __launch_bounds__(256) sort_chunk_kernel(uint64_t* keys, int size, int last) {
    SMEM(uint64_t[SORT_CHUNK], x);
    const int from = blockIdx.x * SORT_CHUNK;
    for (int i = threadIdx.x; i < SORT_CHUNK; i += SORT_THREADS) { x[i] = keys[from + i]; }
    __syncthreads();
    for (; size <= last; size *= 2) {
        for (int apart = min(size, (int)SORT_CHUNK) / 2; apart; apart /= 2) {
            for (int i = threadIdx.x; i < SORT_CHUNK / 2; i += SORT_THREADS) {
                const int lo = 2 * i - (i & (apart - 1));
                sort_pair(x[lo], x[lo + apart], ((from + lo) & size) == 0);
            }
            __syncthreads();
        }
    }
    for (int i = threadIdx.x; i < SORT_CHUNK; i += SORT_THREADS) { keys[from + i] = x[i]; }
}

inline int sort_padded(int n) { int k = SORT_CHUNK; while (k < n) { k *= 2; } return k; }
inline void sort_positions(uint64_t* keys, const int* tokens, int n) { // keys: sort_padded(n)
    const int padded = sort_padded(n), chunks = padded / SORT_CHUNK;
    LAUNCH(sort_keys_kernel, flat_grid(padded, 1), dim3(256), 0, keys, tokens, n, padded);
    LAUNCH(sort_chunk_kernel, dim3(chunks), dim3(SORT_THREADS), 0, keys, 2, (int)SORT_CHUNK);
    for (int size = 2 * SORT_CHUNK; size <= padded; size *= 2) {
        for (int apart = size / 2; apart >= SORT_CHUNK; apart /= 2) {
            LAUNCH(sort_stage_kernel, flat_grid(padded / 2, 1), dim3(256), 0, keys, size, apart,
                   padded / 2);
        }
        LAUNCH(sort_chunk_kernel, dim3(chunks), dim3(SORT_THREADS), 0, keys, size, size);
    }
}

// A block adds up the rows of PIECE sorted positions. It finishes the sum of a token that is in one
// piece only; what reaches over a border goes to part (pieces, 2, C): [0] the token that began
// before, [1] the one that continues after
enum { PIECE = 32 };
// of the sorted positions: from, to; do its first and last token reach over the borders?
struct Piece {
    const uint64_t* keys; int from, to; bool before, after;
    DEVICE int token(int i) const { return (int)(keys[i] >> 32); }
    DEVICE Piece(const uint64_t* keys, int piece, int n)
        : keys(keys), from(piece * PIECE), to(min(n, from + PIECE)) {
        before = from > 0 && token(from - 1) == token(from);
        after = to < n && token(to) == token(to - 1);
    }
    DEVICE bool one_token() const { return token(from) == token(to - 1); }
};
template <int N>
__global__ void __launch_bounds__(256)
    embed_backward_kernel(acc* dwte, float* part, const real* dout, const uint64_t* keys,
                          float scale, int n, int skip, int T, int C) {
    const Piece p(keys, blockIdx.x, n);
    FOR_COLUMNS(c, N, C) {
        Vec<float, N> sum = {};
        bool begun_before = p.before;
        for (int i = p.from; i < p.to; i++) {
            const int j = (int)keys[i], row = j / (T - skip) * T + j % (T - skip) + skip,
                      token = p.token(i);
            const Vec<real, N> d = load<N>(dout + (long)row * C + c);
            for (int k = 0; k < N; k++) { sum.v[k] += (float)d.v[k]; }
            const bool last = i + 1 == p.to;
            if (!last && p.token(i + 1) == token) { continue; }
            if (begun_before || (last && p.after)) {
                store_floats(part + ((long)blockIdx.x * 2 + !begun_before) * C + c, sum);
            } else {
                for (int k = 0; k < N; k++) { dwte[(long)token * C + c + k] += scale * sum.v[k]; }
            }
            begun_before = false;
            sum = {};
        }
    }
}

// a token that goes over borders is finished by the block of the piece where it begins, a piece
// after the other
__global__ void __launch_bounds__(256)
    embed_backward_join_kernel(acc* dwte, const float* part, const uint64_t* keys, float scale,
                               int n, int C) {
    const Piece p(keys, blockIdx.x, n);
    if (!p.after || (p.before && p.one_token())) { return; }
    const int token = p.token(p.to - 1);
    FOR_COLUMNS(c, 1, C) {
        float sum = part[((long)blockIdx.x * 2 + 1) * C + c];
        for (int k = blockIdx.x + 1; k * PIECE < n && p.token(k * PIECE) == token; k++) {
            sum += part[(long)k * 2 * C + c];
        }
        dwte[(long)token * C + c] += scale * sum;
    }
}

// dpos (T, C) += sum_b dout, dsink (C) += its row 0
__global__ void __launch_bounds__(256)
position_backward_kernel(acc* dpos, acc* dsink, const real* dout, int B, int rows, int T, int C) {
    const int t = own_row();
    if (t >= rows) { return; }
    FOR_COLUMNS(c, 1, C) {
        float sum = 0;
        for (int b = 0; b < B; b++) { sum += (float)dout[((long)b * T + t) * C + c]; }
        if (dpos) { dpos[(long)t * C + c] += sum; }
        if (dsink && t == 0) { dsink[c] += sum; }
    }
}

inline void embed_backward(acc* dwte, acc* dpos, acc* dsink, const real* dout, const int* tokens,
                           float scale, int B, int T, int C) {
    const int skip = dsink ? 1 : 0, n = B * (T - skip), pieces = CEIL_DIV(n, PIECE);
    uint64_t* keys = (uint64_t*)device_scratch(sort_padded(n) * sizeof(uint64_t) +
                                               (size_t)pieces * 2 * C * sizeof(float));
    float* part = (float*)(keys + sort_padded(n));
    if (n > 0) {
        sort_positions(keys, tokens, n);
        const bool ok = wide(C, {dout});
        const dim3 block = RowBlocks(1, C, ok ? VN : 1).block;
        LAUNCH_WIDE(ok, embed_backward_kernel, dim3(pieces), block, 0, dwte, part, dout, keys,
                    scale, n, skip, T, C);
        LAUNCH(embed_backward_join_kernel, dim3(pieces), RowBlocks(1, C, 1).block, 0, dwte, part,
               keys, scale, n, C);
    }
    const int rows = dpos ? T : 1;
    if (dpos || dsink) {
        LAUNCH_ROWS(1, position_backward_kernel, rows, C, dpos, dsink, dout, B, rows, T, C)
    }
}

// The norms give a warp a row. Its lanes hold the row in K registers of N values each, so that it
// is read once; where it is too long for that, K = 0, they read it again for each pass. FOR_ROW: c,
// of the lane's chunk k
#define FOR_ROW(k, c, N, K, C) \
    for (int k = 0, c = threadIdx.x % 32 * N; K ? k < K : c < C; k++, c += 32 * N) if (c < C)
template <int N, int K> struct WarpRow {
    const real* x; Vec<real, N> own[K ? K : 1];
    DEVICE WarpRow(const real* x, int C) : x(x) {
        if constexpr (K > 0) {
            #pragma unroll
            FOR_ROW(k, c, N, K, C) { own[k] = load<N>(x + c); }
        }
    }
    DEVICE Vec<real, N> at(int k, int c) const {
        if constexpr (K > 0) { return own[k]; } else { return load<N>(x + c); }
    }
};
// LAUNCH_NORM(kernel, rows are wide, C, grid, block, shared memory, arguments...): with the K that
// C needs. LAUNCH_KEPT: the same for rows that registers hold
#define LAUNCH_KEPT(kernel, C, ...) \
    if ((C) <= 4 * 32 * VN) { LAUNCH((kernel<VN, 4>), __VA_ARGS__); } \
    else                    { LAUNCH((kernel<VN, 8>), __VA_ARGS__); }
#define LAUNCH_NORM(kernel, ok, C, ...) \
    if (!(ok))                  { LAUNCH((kernel<1, 0>), __VA_ARGS__); } \
    else if ((C) > 8 * 32 * VN) { LAUNCH((kernel<VN, 0>), __VA_ARGS__); } \
    else                        { LAUNCH_KEPT(kernel, C, __VA_ARGS__) }

template <int N, int K>
__global__ void __launch_bounds__(128)
    norm_forward_kernel(real* out, acc* mean, acc* rstd, const real* x, const real* weight,
                        const real* bias, float eps, int rows, int C) {
    const int n = blockIdx.x * 4 + threadIdx.x / 32;
    if (n >= rows) { return; }
    const WarpRow<N, K> row(x + (long)n * C, C);
    float m = 0, sum = 0;
    if (mean) {
        #pragma unroll
        FOR_ROW(k, c, N, K, C) {
            const Vec<real, N> v = row.at(k, c);
            for (int i = 0; i < N; i++) { m += (float)v.v[i]; }
        }
        m = warp_sum(m) / C;
    }
    #pragma unroll
    FOR_ROW(k, c, N, K, C) {
        const Vec<real, N> v = row.at(k, c);
        for (int i = 0; i < N; i++) { sum += ((float)v.v[i] - m) * ((float)v.v[i] - m); }
    }
    const float r = 1.0f / sqrtf(warp_sum(sum) / C + eps);
    #pragma unroll
    FOR_ROW(k, c, N, K, C) {
        Vec<real, N> v = row.at(k, c), w, b;
        if (weight) { w = load<N>(weight + c); }
        if (bias) { b = load<N>(bias + c); }
        for (int i = 0; i < N; i++) {
            const float y = ((float)v.v[i] - m) * r * (weight ? (float)w.v[i] : 1.0f);
            v.v[i] = real(y + (bias ? (float)b.v[i] : 0.0f));
        }
        store<N>(out + (long)n * C + c, v);
    }
    if (threadIdx.x % 32 == 0) { rstd[n] = r; if (mean) { mean[n] = m; } }
}

inline void norm_forward(real* out, acc* mean, acc* rstd, const real* inp, const real* weight,
                         const real* bias, float eps, int N, int C) {
    LAUNCH_NORM(norm_forward_kernel, wide(C, { out, inp, weight, bias }), C, dim3(CEIL_DIV(N, 4)),
                dim3(128), 0, out, mean, rstd, inp, weight, bias, eps, N, C)
}

// A block takes 64 rows, a warp one at a time, and keeps its sums in registers too (K = 0: in
// shared memory). part (blocks, C), with SUM_BIAS (blocks, 2, C): for dweight, for dbias
enum { NORM_ROWS = 64 };
template <int N, int K> struct WarpSums { // of rows: C floats a warp
    Vec<float, N> kept[K ? K : 1]; float* own;
    DEVICE WarpSums(float* own, int C) : kept{}, own(own) {
        if (!K) { FOR_ROW(k, c, N, K, C) { store_floats(own + c, Vec<float, N>{}); } }
    }
    DEVICE Vec<float, N> at(int k, int c) const {
        if constexpr (K > 0) { return kept[k]; } else { return load_floats<N>(own + c); }
    }
    DEVICE void set(int k, int c, const Vec<float, N>& x) {
        if (K) { kept[K ? k : 0] = x; } else { store_floats(own + c, x); }
    }
    // out (C) = the sums of all warps, which are C floats apart from `all` on
    DEVICE void join(float* out, const float* all, int C) {
        #pragma unroll
        FOR_ROW(k, c, N, K, C) { if (K) { store_floats(own + c, kept[K ? k : 0]); } }
        __syncthreads();
        for (int c = threadIdx.x; c < C; c += blockDim.x) {
            float sum = 0;
            for (int w = 0; w < (int)blockDim.x / 32; w++) { sum += all[w * C + c]; }
            out[c] = sum;
        }
        __syncthreads();
    }
};

// warps whose sums, of C floats each, take 48 KiB at most
inline int sum_warps(int C) { return std::max(1, std::min(8, 12288 / C)); }

template <int N, int K, bool SUM_BIAS>
DEVICE void norm_backward_rows(real* dx, float* part, const real* dout, const real* x,
                               const real* weight, const acc* mean, const acc* rstd, bool add,
                               int rows, int C) {
    const int warps = blockDim.x / 32, warp = threadIdx.x / 32;
    float *all = dynamic_smem<float>(), *out = part + (long)blockIdx.x * C * (SUM_BIAS ? 2 : 1);
    WarpSums<N, K> dw(all + warp * C, C);
    // in shared memory where registers would not hold both
    WarpSums<N, K <= 4 ? K : 0> db(all + ((SUM_BIAS ? warps : 0) + warp) * C, SUM_BIAS ? C : 0);
    const int n1 = min(rows, (int)(blockIdx.x + 1) * NORM_ROWS);
    for (int n = blockIdx.x * NORM_ROWS + warp; n < n1; n += warps) {
        const WarpRow<N, K> d_n(dout + (long)n * C, C), x_n(x + (long)n * C, C);
        real* dx_n = dx + (long)n * C;
        const float m = mean ? mean[n] : 0.0f, r = rstd[n];
        float dot = 0, sum = 0;
        #pragma unroll
        FOR_ROW(k, c, N, K, C) {
            const Vec<real, N> d = d_n.at(k, c), v = x_n.at(k, c);
            Vec<real, N> w;
            if (weight) { w = load<N>(weight + c); }
            for (int i = 0; i < N; i++) {
                const float dy = (float)d.v[i] * (weight ? (float)w.v[i] : 1.0f);
                dot += dy * ((float)v.v[i] - m);
                sum += dy;
            }
        }
        const float f = r * r * r * warp_sum(dot) / C, r_mean = mean ? r * warp_sum(sum) / C : 0.0f;
        #pragma unroll
        FOR_ROW(k, c, N, K, C) {
            const Vec<real, N> d = d_n.at(k, c), v = x_n.at(k, c);
            Vec<real, N> w, g;
            Vec<float, N> dw_c = dw.at(k, c), db_c;
            if (SUM_BIAS) { db_c = db.at(k, c); }
            if (weight) { w = load<N>(weight + c); }
            if (add) { g = load<N>(dx_n + c); }
            for (int i = 0; i < N; i++) {
                const float dv = d.v[i], xv = (float)v.v[i] - m, wv = weight ? (float)w.v[i] : 1.0f;
                dw_c.v[i] += dv * xv * r;
                if (SUM_BIAS) { db_c.v[i] += dv; }
                g.v[i] = real(dv * wv * r - xv * f - r_mean + (add ? (float)g.v[i] : 0.0f));
            }
            dw.set(k, c, dw_c);
            if (SUM_BIAS) { db.set(k, c, db_c); }
            store<N>(dx_n + c, g);
        }
    }
    dw.join(out, all, C);
    if (SUM_BIAS) { db.join(out + C, all + warps * C, C); }
}

template <int N, int K>
__global__ void __launch_bounds__(256)
    norm_backward_kernel(real* dx, float* part, const real* dout, const real* x, const real* weight,
                         const acc* mean, const acc* rstd, bool add, int rows, int C) {
    norm_backward_rows<N, K, false>(dx, part, dout, x, weight, mean, rstd, add, rows, C);
}

template <int N, int K>
__global__ void __launch_bounds__(256)
    norm_backward_bias_kernel(real* dx, float* part, const real* dout, const real* x,
                              const real* weight, const acc* mean, const acc* rstd, bool add,
                              int rows, int C) {
    norm_backward_rows<N, K, true>(dx, part, dout, x, weight, mean, rstd, add, rows, C);
}

inline void norm_backward(real* dx, acc* dweight, acc* dbias, const real* dout, const real* x,
                          const real* weight, const acc* mean, const acc* rstd, bool add, int N,
                          int C) {
    const bool ok = wide(C, {dx, dout, x, weight}), both = dbias && ok && C <= 8 * 32 * VN;
    if (dbias && !both) { matmul_backward_bias(dbias, dout, N, C); } // before dx, which may be dout
    const int W = both ? 2 * C : C, blocks = CEIL_DIV(N, NORM_ROWS), warps = sum_warps(W);
    float* part = (float*)device_scratch((size_t)blocks * W * sizeof(float));
    if (both) {
        LAUNCH_KEPT(norm_backward_bias_kernel, C, dim3(blocks), dim3(32 * warps),
                    warps * W * sizeof(float), dx, part, dout, x, weight, mean, rstd, add, N, C)
        column_sum(dbias, part + C, blocks, C, W);
    } else {
        LAUNCH_NORM(norm_backward_kernel, ok, C, dim3(blocks), dim3(32 * warps),
                    warps * W * sizeof(float), dx, part, dout, x, weight, mean, rstd, add, N, C)
    }
    if (dweight) { column_sum(dweight, part, blocks, C, W); }
}

// ----------------------------------------------------------------------------
// 4 rotary and kernels

template <int N>
__global__ void __launch_bounds__(256)
    rope_kernel(real* qkv, const acc* table, int sign, AttnShape s) {
    const int bt = own_row(), half = s.rot / 2;
    if (bt >= s.B * s.T) { return; }
    const acc* turn = table + (long)(bt % s.T) * half * 2;
    FOR_COLUMNS(k, N, (s.NH + s.KV) * half) {
        const int h = k / half, i = k % half;
        real* x = qkv + (long)bt * attn_row(s) + h * s.HS + i;
        Vec<real, N> a = load<N>(x), b = load<N>(x + half);
        for (int n = 0; n < N; n++) {
            const Vec<acc, 2> cos_sin = load<2>(turn + 2 * (i + n));
            float an = a.v[n], bn = b.v[n];
            turn_pair(an, bn, cos_sin.v[0], sign * cos_sin.v[1]);
            a.v[n] = real(an);
            b.v[n] = real(bn);
        }
        store<N>(x, a);
        store<N>(x + half, b);
    }
}

inline void rope(real* qkv, const acc* table, int sign, AttnShape s) {
    const bool ok = wide(s.rot / 2, {qkv}) && s.HS % VN == 0;
    LAUNCH_WIDE_ROWS(ok, rope_kernel, s.B * s.T, (s.NH + s.KV) * s.rot / 2, qkv, table, sign, s)
}

template <int N>
__global__ void __launch_bounds__(256) phi_elu1_forward_kernel(real* qkv, AttnShape s) {
    const int bt = own_row();
    if (bt >= s.B * s.T) { return; }
    FOR_COLUMNS(i, N, (s.NH + s.KV) * s.HS) {
        real* x = qkv + (long)bt * attn_row(s) + i;
        Vec<real, N> v = load<N>(x);
        for (int k = 0; k < N; k++) { v.v[k] = real(Attn_elu1::sim((float)v.v[k])); }
        store<N>(x, v);
    }
}

inline void phi_elu1_forward(real* qkv, AttnShape s) {
    const int n = (s.NH + s.KV) * s.HS;
    LAUNCH_WIDE_ROWS(wide(s.HS, {qkv}), phi_elu1_forward_kernel, s.B * s.T, n, qkv, s)
}

template <int N>
__global__ void __launch_bounds__(256)
    phi_elu1_backward_kernel(real* dqkv, const real* qkv, AttnShape s) {
    const int bt = own_row();
    if (bt >= s.B * s.T) { return; }
    FOR_COLUMNS(i, N, (s.NH + s.KV) * s.HS) {
        const long at = (long)bt * attn_row(s) + i;
        Vec<real, N> d = load<N>(dqkv + at), x = load<N>(qkv + at);
        for (int k = 0; k < N; k++) { d.v[k] = real((float)d.v[k] * min_((float)x.v[k], 1.0f)); }
        store<N>(dqkv + at, d);
    }
}

inline void phi_elu1_backward(real* dqkv, const real* qkv, AttnShape s) {
    const int n = (s.NH + s.KV) * s.HS;
    LAUNCH_WIDE_ROWS(wide(s.HS, {dqkv, qkv}), phi_elu1_backward_kernel, s.B * s.T, n, dqkv, qkv, s)
}

template <int N> __global__ void __launch_bounds__(256)
copy_rows_kernel(real* out, int out_stride, const real* inp, int inp_stride, int rows, int C) {
    const int n = own_row();
    if (n >= rows) { return; }
    FOR_COLUMNS(i, N, C) {
        store<N>(out + (long)n * out_stride + i, load<N>(inp + (long)n * inp_stride + i));
    }
}

inline void qk_gather(real* qk, const real* qkv, AttnShape s) {
    const int n = (s.NH + s.KV) * s.HS, rows = s.B * s.T;
    LAUNCH_WIDE_ROWS(wide(s.HS, { qk, qkv }), copy_rows_kernel, rows, n, qk, n, qkv, attn_row(s),
                     rows, n)
}

inline void qk_scatter(real* qkv, const real* qk, AttnShape s) {
    const int n = (s.NH + s.KV) * s.HS, rows = s.B * s.T;
    LAUNCH_WIDE_ROWS(wide(s.HS, { qk, qkv }), copy_rows_kernel, rows, n, qkv, attn_row(s), qk, n,
                     rows, n)
}

// qk_norm: of q (side 0) and of k (side 1) so many groups of C channels, from column `from` of a
// row of qkv on, the first of them number `first` of the row's G
struct QkSide { int groups, C, from, first, G; };
HD QkSide qk_side(int side, bool all, const AttnShape& s) {
    const int heads = side ? s.KV : s.NH, groups_q = all ? 1 : s.NH;
    return { all ? 1 : heads, all ? heads * s.HS : s.HS, side ? s.NH * s.HS : 0,
             side ? groups_q : 0, all ? 2 : s.NH + s.KV };
}

// a warp per group of a row
template <int N, int K>
__global__ void __launch_bounds__(128)
    qk_norm_forward_kernel(real* qkv, real* qk_in, acc* rstd, const real* wq, const real* wk,
                           bool all, float eps, AttnShape s) {
    const int G = qk_side(0, all, s).G;
    const long i = (long)blockIdx.x * 4 + threadIdx.x / 32, bt = i / G;
    if (bt >= (long)s.B * s.T) { return; }
    const int g = i % G, side = g >= qk_side(1, all, s).first;
    const QkSide q = qk_side(side, all, s);
    const int at = q.from + (g - q.first) * q.C;
    real *x = qkv + bt * attn_row(s) + at, *saved = qk_in + bt * (s.NH + s.KV) * s.HS + at;
    const real* weight = side ? wk : wq;
    const WarpRow<N, K> row(x, q.C);
    float sum = 0;
    #pragma unroll
    FOR_ROW(k, c, N, K, q.C) {
        const Vec<real, N> v = row.at(k, c);
        for (int e = 0; e < N; e++) { sum += (float)v.v[e] * (float)v.v[e]; }
    }
    const float r = 1.0f / sqrtf(warp_sum(sum) / q.C + eps);
    #pragma unroll
    FOR_ROW(k, c, N, K, q.C) {
        Vec<real, N> v = row.at(k, c), w = load<N>(weight + c);
        store<N>(saved + c, v);
        for (int e = 0; e < N; e++) { v.v[e] = real((float)v.v[e] * r * (float)w.v[e]); }
        store<N>(x + c, v);
    }
    if (threadIdx.x % 32 == 0) { rstd[i] = r; }
}

inline void qk_norm_forward(real* qkv, real* qk_in, acc* rstd, const real* wq, const real* wk,
                            bool all, float eps, AttnShape s) {
    const QkSide q = qk_side(0, all, s);
    const long groups = (long)s.B * s.T * q.G;
    LAUNCH_NORM(qk_norm_forward_kernel, wide(s.HS, {qkv, qk_in, wq, wk}), q.C,
                dim3((unsigned)CEIL_DIV(groups, 4)), dim3(128), 0, qkv, qk_in, rstd, wq, wk, all,
                eps, s)
}

// A block takes ROW_BLOCK rows, a warp a group at a time. part (blocks, 2, width): sums of dy x r,
// over all groups, for dwq and dwk
template <int N, int K>
__global__ void __launch_bounds__(256)
    qk_norm_backward_kernel(real* dqkv, float* part, const real* qk_in, const acc* rstd,
                            const real* wq, const real* wk, bool all, int width, AttnShape s) {
    const int n0 = blockIdx.x * ROW_BLOCK, rows = min(s.B * s.T - n0, (int)ROW_BLOCK),
              warp = threadIdx.x / 32;
    float* sums = dynamic_smem<float>();
    for (int side = 0; side < 2; side++) {
        const QkSide q = qk_side(side, all, s);
        const real* weight = side ? wk : wq;
        WarpSums<N, K> dw(sums + warp * q.C, q.C);
        for (int i = warp; i < rows * q.groups; i += blockDim.x / 32) {
            const long bt = n0 + i / q.groups;
            const int g = i % q.groups, at = q.from + g * q.C;
            real* d = dqkv + bt * attn_row(s) + at;
            const WarpRow<N, K> d_n(d, q.C), x_n(qk_in + bt * (s.NH + s.KV) * s.HS + at, q.C);
            const float r = rstd[bt * q.G + q.first + g];
            float dot = 0;
            #pragma unroll
            FOR_ROW(k, c, N, K, q.C) {
                const Vec<real, N> y = d_n.at(k, c), x = x_n.at(k, c), w = load<N>(weight + c);
                for (int e = 0; e < N; e++) {
                    dot += (float)y.v[e] * (float)w.v[e] * (float)x.v[e];
                }
            }
            const float f = r * r * r * warp_sum(dot) / q.C;
            #pragma unroll
            FOR_ROW(k, c, N, K, q.C) {
                Vec<real, N> y = d_n.at(k, c), x = x_n.at(k, c), w = load<N>(weight + c);
                Vec<float, N> dw_c = dw.at(k, c);
                for (int e = 0; e < N; e++) {
                    const float dy = y.v[e], xe = x.v[e];
                    dw_c.v[e] += dy * xe * r;
                    y.v[e] = real(dy * (float)w.v[e] * r - xe * f);
                }
                dw.set(k, c, dw_c);
                store<N>(d + c, y);
            }
        }
        dw.join(part + ((long)blockIdx.x * 2 + side) * width, sums, q.C);
    }
}

inline void qk_norm_backward(real* dqkv, acc* dwq, acc* dwk, const real* qk_in, const acc* rstd,
                             const real* wq, const real* wk, bool all, AttnShape s) {
    const int N = s.B * s.T, width = qk_side(0, all, s).C, warps = sum_warps(width),
              blocks = CEIL_DIV(N, ROW_BLOCK);
    float* part = (float*)device_scratch((size_t)blocks * 2 * width * sizeof(float));
    LAUNCH_NORM(qk_norm_backward_kernel, wide(s.HS, {dqkv, qk_in, wq, wk}), width, dim3(blocks),
                dim3(32 * warps), warps * width * sizeof(float), dqkv, part, qk_in, rstd, wq, wk,
                all, width, s)
    column_sum(dwq, part, blocks, width, 2 * width);
    column_sum(dwk, part + width, blocks, qk_side(1, all, s).C, 2 * width);
}

// ----------------------------------------------------------------------------
// 5 heads and FFN

template <int N> __global__ void __launch_bounds__(256)
gate_forward_kernel(real* out, const real* att, const real* gate, int width, AttnShape s) {
    const int W = s.NH * s.HS, bt = own_row();
    if (bt >= s.B * s.T) { return; }
    FOR_COLUMNS(c, N, W) {
        Vec<real, N> a = load<N>(att + (long)bt * W + c), g;
        if (width > 1) { g = load<N>(gate + (long)bt * W + c); }
        const real of_head = gate[(long)bt * s.NH * width + (width == 1 ? c / s.HS : 0)];
        for (int i = 0; i < N; i++) {
            a.v[i] = real((float)a.v[i] * sigmoid_((float)(width == 1 ? of_head : g.v[i])));
        }
        store<N>(out + (long)bt * W + c, a);
    }
}

inline void gate_forward(real* out, const real* att, const real* gate, int width, AttnShape s) {
    const bool ok = wide(s.HS, {out, att, width > 1 ? gate : NULL});
    LAUNCH_WIDE_ROWS(ok, gate_forward_kernel, s.B * s.T, s.NH * s.HS, out, att, gate, width, s)
}

// a warp per head of a token
template <int N>
__global__ void __launch_bounds__(128)
    gate_backward_kernel(real* datt, real* dgate, const real* dout, const real* att,
                         const real* gate, int width, AttnShape s) {
    const long i = (long)blockIdx.x * 4 + threadIdx.x / 32;
    if (i >= (long)s.B * s.T * s.NH) { return; }
    const real of_head = gate[i * width];
    float sum = 0;
    for (int c = threadIdx.x % 32 * N; c < s.HS; c += 32 * N) {
        Vec<real, N> d = load<N>(dout + i * s.HS + c), a = load<N>(att + i * s.HS + c), g;
        if (width > 1) { g = load<N>(gate + i * width + c); }
        for (int k = 0; k < N; k++) {
            const float g_k = sigmoid_((float)(width > 1 ? g.v[k] : of_head)), d_k = d.v[k];
            const float dx = d_k * (float)a.v[k] * g_k * (1 - g_k);
            d.v[k] = real(d_k * g_k);
            g.v[k] = real(dx);
            sum += dx;
        }
        store<N>(datt + i * s.HS + c, d);
        if (width > 1) { store<N>(dgate + i * width + c, g); }
    }
    sum = warp_sum(sum);
    if (width == 1 && threadIdx.x % 32 == 0) { dgate[i] = real(sum); }
}

inline void gate_backward(real* datt, real* dgate, const real* dout, const real* att,
                          const real* gate, int width, AttnShape s) {
    const bool elem = width > 1,
               ok = wide(s.HS, {datt, dout, att, elem ? gate : NULL, elem ? dgate : NULL});
    LAUNCH_WIDE(ok, gate_backward_kernel, dim3((unsigned)CEIL_DIV((long)s.B * s.T * s.NH, 4)),
                dim3(128), 0, datt, dgate, dout, att, gate, width, s);
}

__global__ void __launch_bounds__(256)
heads_forward_kernel(real* out, const real* att, const real* vstar, bool sum, AttnShape s) {
    const int bt = own_row();
    if (bt >= s.B * s.T) { return; }
    const real* a = att + (long)bt * s.NH * s.HS;
    const int OC = sum ? s.HS : s.NH * s.HS;
    FOR_COLUMNS(c, 1, OC) {
        float o = 0;
        for (int k = c; k < (sum ? s.NH * s.HS : c + 1); k += s.HS) { // one head, or all of them
            const int j = s.bias_shared ? k % s.HS : k;
            o += (float)a[k] + (vstar ? (float)vstar[j] : 0.0f);
        }
        out[(long)bt * OC + c] = real(o);
    }
}

inline void heads_forward(real* out, const real* att, const real* vstar, bool sum, AttnShape s) {
    LAUNCH_ROWS(1, heads_forward_kernel, s.B * s.T, sum ? s.HS : s.NH * s.HS, out, att, vstar, sum,
                s)
}

template <int N> __global__ void __launch_bounds__(256)
heads_backward_kernel(real* datt, const real* dout, bool sum, AttnShape s) {
    const int W = s.NH * s.HS, bt = own_row();
    if (bt >= s.B * s.T) { return; }
    FOR_COLUMNS(c, N, W) {
        store<N>(datt + (long)bt * W + c,
                 load<N>(dout + (long)bt * (sum ? s.HS : W) + (sum ? c % s.HS : c)));
    }
}

inline void heads_backward(real* datt, acc* dvstar, const real* dout, bool sum, AttnShape s) {
    const int W = s.NH * s.HS, N = s.B * s.T, blocks = CEIL_DIV(N, ROW_BLOCK);
    LAUNCH_WIDE_ROWS(wide(s.HS, {datt, dout}), heads_backward_kernel, N, W, datt, dout, sum, s)
    if (!dvstar) { return; }
    float* part = (float*)device_scratch((size_t)blocks * W * sizeof(float));
    row_sums(part, datt, N, W);
    // (blocks NH, HS): the same floats
    if (s.bias_shared) { column_sum(dvstar, part, (long)blocks * s.NH, s.HS, s.HS); }
    else { column_sum(dvstar, part, blocks, W, W); }
}

// What elementwise functions compute with: bf16 tensors keep 8 bits, for which Fast is exact enough
// by far
typedef std::conditional_t<sizeof(real) == 2, Fast, float> Elem;
DEVICE float number(float x) { return x; }
DEVICE float number(Fast x)  { return x.v; }

template <class A, int N> __global__ void __launch_bounds__(256)
ffn_forward_kernel(real* out, const real* inp, bool gated, int rows, int F) {
    const int n = own_row();
    if (n >= rows) { return; }
    const real* x = inp + (long)n * F * (gated ? 2 : 1);
    FOR_COLUMNS(i, N, F) {
        Vec<real, N> g = load<N>(x + i), u;
        if (gated) { u = load<N>(x + F + i); }
        for (int k = 0; k < N; k++) {
            g.v[k] = real(number(A::act(Elem((float)g.v[k]))) * (gated ? (float)u.v[k] : 1.0f));
        }
        store<N>(out + (long)n * F + i, g);
    }
}

inline void ffn_forward(real* out, const real* inp, Act act, bool gated, int N, int F) {
    with_act(act, [=](auto f) {
        typedef decltype(f) A;
        if (wide(F, { out, inp }))
            LAUNCH_ROWS(VN, (ffn_forward_kernel<A, VN>), N, F, out, inp, gated, N, F)
        else LAUNCH_ROWS(1, (ffn_forward_kernel<A, 1>), N, F, out, inp, gated, N, F)
    });
}

template <class A, int N> __global__ void __launch_bounds__(256)
ffn_backward_kernel(real* dinp, const real* dout, const real* inp, bool gated, int rows, int F) {
    const int n = own_row();
    if (n >= rows) { return; }
    const long row = (long)n * F * (gated ? 2 : 1);
    FOR_COLUMNS(i, N, F) {
        Vec<real, N> g = load<N>(inp + row + i), d = load<N>(dout + (long)n * F + i), u;
        if (gated) { u = load<N>(inp + row + F + i); }
        for (int k = 0; k < N; k++) {
            const Elem x((float)g.v[k]);
            const float d_k = d.v[k], u_k = gated ? (float)u.v[k] : 1.0f;
            g.v[k] = real(d_k * number(A::dact(x)) * u_k);
            u.v[k] = real(d_k * number(A::act(x)));
        }
        store<N>(dinp + row + i, g);
        if (gated) { store<N>(dinp + row + F + i, u); }
    }
}

inline void ffn_backward(real* dinp, const real* dout, const real* inp, Act act, bool gated, int N,
                         int F) {
    with_act(act, [=](auto f) {
        typedef decltype(f) A;
        const bool ok = wide(F, {dinp, dout, inp});
        if (ok) LAUNCH_ROWS(VN, (ffn_backward_kernel<A, VN>), N, F, dinp, dout, inp, gated, N, F)
        else LAUNCH_ROWS(1, (ffn_backward_kernel<A, 1>), N, F, dinp, dout, inp, gated, N, F)
    });
}

// ----------------------------------------------------------------------------
// 6 classifier: a block per row. A row that fits shared memory (KEEP) is read once, all of it at
// once, and written once; a thread takes back only what it has copied itself. Any other is read
// twice

template <int N, bool KEEP> __global__ void __launch_bounds__(512)
classifier_kernel(acc* losses, real* logits, const int* targets, float dloss, float cap, int V) {
    real *x = logits + (long)blockIdx.x * V, *kept = KEEP ? dynamic_smem<real>() : x;
    const int y = targets[blockIdx.x];
    auto capped = [=](real l) { return cap != 0 ? cap * tanh_((float)l / cap) : (float)l; };
    const float x_y = y < 0 ? 0.0f : capped(x[y]);
    if (KEEP) {
        for (int v = threadIdx.x * N; v < V; v += 512 * N) { cp_async(kept + v, x + v, true); }
        cp_async_commit();
        cp_async_wait<0>();
    }
    float top = -INFINITY, sum = 0;
    // the sum is kept relative to the largest value so far
    for (int v = threadIdx.x * N; v < V; v += 512 * N) {
        const Vec<real, N> l = load<N>(kept + v);
        float most = top;
        for (int i = 0; i < N; i++) { most = max_(most, capped(l.v[i])); }
        if (most > top) { sum *= exp_(top - most); top = most; }
        for (int i = 0; i < N; i++) { sum += number(exp_(Elem(capped(l.v[i]) - top))); }
    }
    const float all = block_max<512>(top);
    // a thread without a value has top = -inf
    sum = block_sum<512>(top == -INFINITY ? 0.0f : sum * exp_(top - all));
    if (threadIdx.x == 0) { losses[blockIdx.x] = y < 0 ? 0.0f : log_(sum) - (x_y - all); }
    if (dloss == 0 && cap == 0) { return; }
    const float f = y < 0 ? 0.0f : dloss / sum;
    for (int v = threadIdx.x * N; v < V; v += 512 * N) {
        Vec<real, N> l = load<N>(kept + v);
        for (int i = 0; i < N; i++) {
            const float l_i = capped(l.v[i]),
                        slope = cap != 0 ? 1.0f - l_i / cap * (l_i / cap) : 1.0f;
            const float p = number(exp_(Elem(l_i - all))) * f;
            const float d = y < 0 ? 0.0f : (p - (v + i == y ? dloss : 0.0f)) * slope;
            l.v[i] = real(dloss == 0 ? l_i : d);
        }
        store<N>(x + v, l);
    }
}

inline void classifier(acc* losses, real* logits, const int* targets, float dloss, float cap, int N,
                       int V) {
    const size_t row = (size_t)V * sizeof(real);
    const bool ok = wide(V, {logits});
    if (ok && row + 256 <= (size_t)SMEM_MOST) { // 256 bytes for block_max and block_sum
        LAUNCH((classifier_kernel<VN, true>), dim3(N), dim3(512), row, losses, logits, targets,
               dloss, cap, V);
    } else if (ok) {
        LAUNCH((classifier_kernel<VN, false>), dim3(N), dim3(512), 0, losses, logits, targets,
               dloss, cap, V);
    } else {
        LAUNCH((classifier_kernel<1, false>), dim3(N), dim3(512), 0, losses, logits, targets, dloss,
               cap, V);
    }
}

// ----------------------------------------------------------------------------
// 7 optimizer

enum { SQUARE_BLOCK = 1 << 14 };
__global__ void __launch_bounds__(256) square_norm_kernel(double* part, const acc* x, long n) {
    const long from = (long)blockIdx.x * SQUARE_BLOCK, to = min(n, from + SQUARE_BLOCK);
    double sum = 0;
    for (long i = from + threadIdx.x; i < to; i += 256) { sum += (double)x[i] * x[i]; }
    sum = block_sum<256>(sum);
    if (threadIdx.x == 0) { part[blockIdx.x] = sum; }
}

__global__ void __launch_bounds__(1024)
    square_norm_sum_kernel(StepSums* sums, const double* part, int n, float clip) {
    double sum = 0;
    for (int i = threadIdx.x; i < n; i += 1024) { sum += part[i]; }
    sum = block_sum<1024>(sum);
    if (threadIdx.x == 0) {
        sums->squares = sum;
        sums->grad_scale = grad_scale(sums->loss, sum, clip);
    }
}

inline void square_norm(StepSums* sums, const acc* x, float clip, long n) {
    const int blocks = CEIL_DIV(n, (long)SQUARE_BLOCK);
    double* part = (double*)device_scratch(blocks * sizeof(double));
    LAUNCH(square_norm_kernel, dim3(blocks), dim3(256), 0, part, x, n);
    LAUNCH(square_norm_sum_kernel, dim3(1), dim3(1024), 0, sums, part, blocks, clip);
}

__global__ void __launch_bounds__(1024)
    loss_add_kernel(StepSums* sums, const acc* losses, long n, double count) {
    double sum = 0;
    for (long i = threadIdx.x; i < n; i += 1024) { sum += losses[i]; }
    sum = block_sum<1024>(sum);
    if (threadIdx.x == 0) { sums->loss += sum / count; }
}

inline void loss_add(StepSums* sums, const acc* losses, long n, double count) {
    LAUNCH(loss_add_kernel, dim3(1), dim3(1024), 0, sums, losses, n, count);
}

// N elements at a time of either optimizer; c1, c2 are Adam's bias corrections
template <bool ADAM, int N>
__global__ void __launch_bounds__(256)
    update_kernel(real* params, acc* master, acc* m, acc* v, const acc* grads, const StepSums* sums,
                  Update o, float c1, float c2, long n) {
    const float scale = sums->grad_scale;
    if (isnan(scale)) { return; }
    FOR_FLAT(i, N, n) {
        Vec<acc, N> g = load<N>(grads + i), w = load<N>(master + i), m_i = load<N>(m + i), v_i;
        if (ADAM) { v_i = load<N>(v + i); }
        Vec<real, N> p;
        #pragma unroll
        for (int k = 0; k < N; k++) {
            const float g_k = g.v[k] * scale;
            float step;
            if (ADAM) {
                m_i.v[k] = o.beta1 * m_i.v[k] + (1 - o.beta1) * g_k;
                v_i.v[k] = o.beta2 * v_i.v[k] + (1 - o.beta2) * g_k * g_k;
                step = m_i.v[k] * c1 / (sqrtf(v_i.v[k] * c2) + o.eps);
            } else {
                step = m_i.v[k] = o.beta1 * m_i.v[k] + g_k;
            }
            w.v[k] -= o.lr * (step + o.weight_decay * w.v[k]);
            p.v[k] = real(w.v[k]);
        }
        store<N>(m + i, m_i);
        if (ADAM) { store<N>(v + i, v_i); }
        store<N>(master + i, w);
        store<N>(params + i, p);
    }
}

template <bool ADAM>
void update(real* params, acc* master, acc* m, acc* v, const acc* grads, const StepSums* sums,
            const Update& o, float c1, float c2, long n) {
    if (n % 4 == 0 && wide(0, {params, master, m, v, grads})) {
        LAUNCH((update_kernel<ADAM, 4>), flat_grid(n, 4), dim3(256), 0, params, master, m, v, grads,
               sums, o, c1, c2, n);
    } else {
        LAUNCH((update_kernel<ADAM, 1>), flat_grid(n, 1), dim3(256), 0, params, master, m, v, grads,
               sums, o, c1, c2, n);
    }
}

inline void adamw_update(real* params, acc* master, acc* m, acc* v, const acc* grads,
                         const StepSums* sums, Update o, long n) {
    const float c1 = 1 / (1 - pow((double)o.beta1, o.step)),
                c2 = 1 / (1 - pow((double)o.beta2, o.step));
    update<true>(params, master, m, v, grads, sums, o, c1, c2, n);
}

inline void sgd_update(real* params, acc* master, acc* m, acc* v, const acc* grads,
                       const StepSums* sums, Update o, long n) {
    update<false>(params, master, m, v, grads, sums, o, 0.0f, 0.0f, n);
}

// Muon: m = beta m + g, and part (blocks) the squares of u = g + beta m
__global__ void __launch_bounds__(256)
    muon_momentum_kernel(double* part, acc* m, const acc* grads, const StepSums* sums, long n) {
    const long from = (long)blockIdx.x * SQUARE_BLOCK, to = min(n, from + SQUARE_BLOCK);
    const float beta = MUON_BETA, scale = sums->grad_scale;
    if (isnan(scale)) { return; }
    double sum = 0;
    for (long k = from + threadIdx.x; k < to; k += 256) {
        const float m_k = beta * m[k] + grads[k] * scale, u = grads[k] * scale + beta * m_k;
        m[k] = m_k;
        sum += (double)u * u;
    }
    sum = block_sum<256>(sum);
    if (threadIdx.x == 0) { part[blockIdx.x] = sum; }
}

// part[0] <- the sum of n of them
__global__ void __launch_bounds__(1024) muon_sum_kernel(double* part, int n) {
    double sum = 0;
    for (int i = threadIdx.x; i < n; i += 1024) { sum += part[i]; }
    sum = block_sum<1024>(sum);
    if (threadIdx.x == 0) { part[0] = sum; }
}

__global__ void __launch_bounds__(256)
    muon_begin_kernel(real* x, const acc* m, const acc* grads, const double* squares,
                      const StepSums* sums, int rows, int cols) {
    const float beta = MUON_BETA, scale = sums->grad_scale;
    if (isnan(scale)) { return; }
    const float by = 1 / (sqrt(*squares) + 1e-7);
    FOR_FLAT(k, 1, (long)rows * cols) {
        const float u = grads[k] * scale + beta * m[k];
        x[muon_place(k / cols, k % cols, rows, cols)] = real(u * by);
    }
}

inline void muon_begin(real* x, acc* m, const acc* grads, const StepSums* sums, int rows,
                       int cols) {
    const long n = (long)rows * cols;
    const int blocks = CEIL_DIV(n, (long)SQUARE_BLOCK);
    double* part = (double*)device_scratch(blocks * sizeof(double));
    LAUNCH(muon_momentum_kernel, dim3(blocks), dim3(256), 0, part, m, grads, sums, n);
    LAUNCH(muon_sum_kernel, dim3(1), dim3(1024), 0, part, blocks);
    LAUNCH(muon_begin_kernel, flat_grid(n, 1), dim3(256), 0, x, m, grads, part, sums, rows, cols);
}

__global__ void __launch_bounds__(256) muon_mix_kernel(real* aa, const real* a, int r) {
    FOR_FLAT(k, 1, (long)r * r) {
        const float one = k / r == k % r ? (float)MUON_A : 0.0f;
        aa[k] = real((float)MUON_C * (float)aa[k] + (float)MUON_B * (float)a[k] + one);
    }
}

inline void muon_mix(real* aa, const real* a, int r) {
    LAUNCH(muon_mix_kernel, flat_grid((long)r * r, 1), dim3(256), 0, aa, a, r);
}

__global__ void __launch_bounds__(256)
    muon_end_kernel(real* params, acc* master, const real* x, const StepSums* sums, Update o,
                    float length, int rows, int cols) {
    if (isnan(sums->grad_scale)) { return; }
    FOR_FLAT(k, 1, (long)rows * cols) {
        const float step = length * (float)x[muon_place(k / cols, k % cols, rows, cols)];
        const float w = master[k] - o.lr * (step + o.weight_decay * master[k]);
        master[k] = w;
        params[k] = real(w);
    }
}

inline void muon_end(real* params, acc* master, const real* x, const StepSums* sums, Update o,
                     int rows, int cols) {
    const float length = MUON_LENGTH * sqrt((double)std::max(rows, cols));
    LAUNCH(muon_end_kernel, flat_grid((long)rows * cols, 1), dim3(256), 0, params, master, x, sums,
           o, length, rows, cols);
}
} // namespace cuda
#endif // CUDA_OPS_CUH
