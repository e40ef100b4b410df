// ============================================================================
// CUDA operations: namespace cuda, the same names and parameter lists as namespace cpu in reference.h, which is where each
// is explained and what each is tested against (test/test_cuda.cu). What is added here is only how threads share the work
// and how sums stay in a fixed order. Attention is in attention_variants.cuh, the metrics' kernels in metrics.cuh.
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
#define LAUNCH_WIDE(ok, kernel, ...) if (ok) { LAUNCH(kernel<VN>, __VA_ARGS__); } else { LAUNCH(kernel<1>, __VA_ARGS__); }
// two ways to cover a tensor: a block of 128 threads per row and 128 N columns, or a flat loop over n values
inline dim3 rows_grid(int rows, int C) { return dim3(rows, CEIL_DIV(C, 128)); }
inline dim3 flat_grid(long n) { return dim3((unsigned)std::min(CEIL_DIV(n, 1024L), 1L << 16)); }
#define FOR_COLUMNS(c, N, C) for (int c = (blockIdx.y * 128 + threadIdx.x) * N; c < C; c += gridDim.y * 128 * N)
#define FOR_FLAT(i, N, n) for (long i = ((long)blockIdx.x * 256 + threadIdx.x) * N; i < n; i += (long)gridDim.x * 256 * N)

// out (C) += sum_k part (K, C), rows `stride` apart, in a fixed order; columns with c % width >= limit are left alone
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
inline void column_sum(acc* out, const float* part, long K, int C, int width, int limit) {
    LAUNCH(column_sum_kernel, dim3(CEIL_DIV(C, 32)), dim3(256), 0, out, part, K, C, C, width, limit);
}

// ----------------------------------------------------------------------------
// 1 memory (the rest is in device.cuh)

__global__ void __launch_bounds__(256) cast_kernel(real* dst, const acc* src, long n) {
    FOR_FLAT(i, 1, n) { dst[i] = real(src[i]); }
}
template <int N> __global__ void __launch_bounds__(256) add_kernel(real* y, const real* x, long n) {
    FOR_FLAT(i, N, n) {
        Vec<real, N> a = load<N>(y + i), b = load<N>(x + i);
        for (int k = 0; k < N; k++) { a.v[k] = real((float)a.v[k] + (float)b.v[k]); }
        store<N>(y + i, a);
    }
}
inline void add(real* y, const real* x, long n) {
    LAUNCH_WIDE(wide(n % VN, {y, x}), add_kernel, flat_grid(n), dim3(256), 0, y, x, n);
}
inline void cast_to_real(real* dst, const acc* src, long n) {
    if ((void*)dst != (const void*)src) { LAUNCH(cast_kernel, flat_grid(n), dim3(256), 0, dst, src, n); }
}

// ----------------------------------------------------------------------------
// 2 matrix product

__global__ void __launch_bounds__(128) bias_kernel(real* out, const real* bias, int OC) {
    FOR_COLUMNS(o, 1, OC) {
        real& x = out[(long)blockIdx.x * OC + o];
        x = real((float)x + (float)bias[o]);
    }
}
inline void matmul_forward(real* out, const real* inp, const real* weight, const real* bias, const real* residual,
                           int N, int C, int OC) {
    gemm(out, residual, inp, weight, N, OC, C, false, true);
    if (bias) { LAUNCH(bias_kernel, rows_grid(N, OC), dim3(128), 0, out, bias, OC); }
}
inline void matmul_backward_input(real* dinp, const real* dout, const real* weight, bool add, int N, int C, int OC) {
    gemm(dinp, add ? dinp : (const real*)NULL, dout, weight, N, C, OC, false, false);
}
inline void matmul_backward_weight(acc* dweight, const real* dout, const real* inp, int N, int C, int OC) {
    gemm(dweight, dweight, dout, inp, OC, C, N, true, false);
}
// part (blocks, W) = sums of ROW_BLOCK rows of x (N, W)
enum { ROW_BLOCK = 64 };
__global__ void __launch_bounds__(128) row_sums_kernel(float* part, const real* x, int N, int W) {
    const int n1 = min(N, (int)(blockIdx.x + 1) * ROW_BLOCK);
    FOR_COLUMNS(c, 1, W) {
        float sum = 0;
        for (int n = blockIdx.x * ROW_BLOCK; n < n1; n++) { sum += (float)x[(long)n * W + c]; }
        part[(long)blockIdx.x * W + c] = sum;
    }
}
inline void matmul_backward_bias(acc* dbias, const real* dout, int N, int OC) {
    const int blocks = CEIL_DIV(N, ROW_BLOCK);
    float* part = (float*)device_scratch((size_t)blocks * OC * sizeof(float));
    LAUNCH(row_sums_kernel, rows_grid(blocks, OC), dim3(128), 0, part, dout, N, OC);
    column_sum(dbias, part, blocks, OC, OC, OC);
}

// ----------------------------------------------------------------------------
// 3 embedding and RMSNorm

template <int N> __global__ void __launch_bounds__(128)
embed_forward_kernel(real* out, const int* tokens, const real* wte, const real* pos, const real* sink, float scale,
                     int T, int C) {
    const int bt = blockIdx.x, b = bt / T, t = bt % T, skip = sink ? 1 : 0;
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
inline void embed_forward(real* out, const int* tokens, const real* wte, const real* pos, const real* sink, float scale,
                          int B, int T, int C) {
    LAUNCH_WIDE(wide(C, {out, wte, pos, sink}), embed_forward_kernel, rows_grid(B * T, C), dim3(128), 0,
                out, tokens, wte, pos, sink, scale, T, C);
}
// A token may occur many times, and its row of dwte must be added to in a fixed order, without atomics. So tokens are
// taken in segments, one launch after the other. Within one, the block of a token's first occurrence adds up all of them.
enum { EMBED_SEGMENT = 2048 };
template <int N> __global__ void __launch_bounds__(128)
embed_backward_kernel(acc* dwte, const real* dout, const int* tokens, float scale, int from, int to, int skip,
                      int T, int C) {
    const int i = from + blockIdx.x, lane = threadIdx.x % 32, token = tokens[i];
    for (int j0 = from; j0 < i; j0 += 32) { // every warp finds out by itself
        if (__ballot_sync(~0u, j0 + lane < i && tokens[j0 + lane] == token)) { return; }
    }
    for (int c0 = 0; c0 < C; c0 += 128 * N) {
        const int c = c0 + threadIdx.x * N;
        float sum[N] = {};
        for (int j0 = i; j0 < to; j0 += 32) {
            unsigned same = __ballot_sync(~0u, j0 + lane < to && tokens[j0 + lane] == token);
            for (int k = 0; same; k++, same >>= 1) {
                if (!(same & 1) || c >= C) { continue; }
                const int j = j0 + k, row = j / (T - skip) * T + j % (T - skip) + skip;
                Vec<real, N> d = load<N>(dout + (long)row * C + c);
                for (int n = 0; n < N; n++) { sum[n] += (float)d.v[n]; }
            }
        }
        for (int n = 0; n < N && c < C; n++) { dwte[(long)token * C + c + n] += scale * sum[n]; }
    }
}
// dpos (T, C) += sum_b dout, dsink (C) += its row 0
__global__ void __launch_bounds__(128) position_backward_kernel(acc* dpos, acc* dsink, const real* dout, int B, int T, int C) {
    const int t = blockIdx.x;
    FOR_COLUMNS(c, 1, C) {
        float sum = 0;
        for (int b = 0; b < B; b++) { sum += (float)dout[((long)b * T + t) * C + c]; }
        if (dpos) { dpos[(long)t * C + c] += sum; }
        if (dsink && t == 0) { dsink[c] += sum; }
    }
}
inline void embed_backward(acc* dwte, acc* dpos, acc* dsink, const real* dout, const int* tokens, float scale,
                           int B, int T, int C) {
    const int skip = dsink ? 1 : 0, n = B * (T - skip);
    for (int from = 0; from < n; from += EMBED_SEGMENT) {
        const int to = std::min(n, from + EMBED_SEGMENT);
        LAUNCH_WIDE(wide(C, {dout}), embed_backward_kernel, dim3(to - from), dim3(128), 0,
                    dwte, dout, tokens, scale, from, to, skip, T, C);
    }
    if (dpos || dsink) { LAUNCH(position_backward_kernel, rows_grid(dpos ? T : 1, C), dim3(128), 0, dpos, dsink, dout, B, T, C); }
}

// a warp per row, whose first pass reads for the mean, if there is one, and the second for the squares
template <int N> __global__ void __launch_bounds__(128)
norm_forward_kernel(real* out, acc* mean, acc* rstd, const real* x, const real* weight, const real* bias, float eps,
                    int rows, int C) {
    const int n = blockIdx.x * 4 + threadIdx.x / 32, lane = threadIdx.x % 32;
    if (n >= rows) { return; }
    const real* x_n = x + (long)n * C;
    float m = 0, sum = 0;
    if (mean) {
        for (int c = lane * N; c < C; c += 32 * N) {
            Vec<real, N> v = load<N>(x_n + c);
            for (int i = 0; i < N; i++) { m += (float)v.v[i]; }
        }
        m = warp_sum(m) / C;
    }
    for (int c = lane * N; c < C; c += 32 * N) {
        Vec<real, N> v = load<N>(x_n + c);
        for (int i = 0; i < N; i++) { sum += ((float)v.v[i] - m) * ((float)v.v[i] - m); }
    }
    const float r = 1.0f / sqrtf(warp_sum(sum) / C + eps);
    for (int c = lane * N; c < C; c += 32 * N) {
        Vec<real, N> v = load<N>(x_n + c), w, b;
        if (weight) { w = load<N>(weight + c); }
        if (bias) { b = load<N>(bias + c); }
        for (int i = 0; i < N; i++) {
            const float y = ((float)v.v[i] - m) * r * (weight ? (float)w.v[i] : 1.0f);
            v.v[i] = real(y + (bias ? (float)b.v[i] : 0.0f));
        }
        store<N>(out + (long)n * C + c, v);
    }
    if (lane == 0) { rstd[n] = r; if (mean) { mean[n] = m; } }
}
inline void norm_forward(real* out, acc* mean, acc* rstd, const real* inp, const real* weight, const real* bias,
                         float eps, int N, int C) {
    LAUNCH_WIDE(wide(C, {out, inp, weight, bias}), norm_forward_kernel, dim3(CEIL_DIV(N, 4)), dim3(128), 0,
                out, mean, rstd, inp, weight, bias, eps, N, C);
}
// a block takes 64 rows, a warp one at a time; each warp keeps its own sums for dweight in shared memory
enum { NORM_ROWS = 64 };
template <int N> __global__ void __launch_bounds__(256)
norm_backward_kernel(real* dx, float* part, const real* dout, const real* x, const real* weight, const acc* mean,
                     const acc* rstd, bool add, int rows, int C) {
    const int warps = blockDim.x / 32, warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    float* sums = dynamic_smem<float>();
    float* dw = sums + warp * C;
    for (int c = lane * N; c < C; c += 32 * N) { for (int i = 0; i < N; i++) { dw[c + i] = 0; } }
    const int n1 = min(rows, (int)(blockIdx.x + 1) * NORM_ROWS);
    for (int n = blockIdx.x * NORM_ROWS + warp; n < n1; n += warps) {
        const real *d_n = dout + (long)n * C, *x_n = x + (long)n * C;
        real* dx_n = dx + (long)n * C;
        const float m = mean ? mean[n] : 0.0f, r = rstd[n];
        float dot = 0, sum = 0;
        for (int c = lane * N; c < C; c += 32 * N) {
            Vec<real, N> d = load<N>(d_n + c), v = load<N>(x_n + c), w;
            if (weight) { w = load<N>(weight + c); }
            for (int i = 0; i < N; i++) {
                const float dy = (float)d.v[i] * (weight ? (float)w.v[i] : 1.0f);
                dot += dy * ((float)v.v[i] - m);
                sum += dy;
            }
        }
        const float f = r * r * r * warp_sum(dot) / C, r_mean = mean ? r * warp_sum(sum) / C : 0.0f;
        for (int c = lane * N; c < C; c += 32 * N) {
            Vec<real, N> d = load<N>(d_n + c), v = load<N>(x_n + c), w, g;
            if (weight) { w = load<N>(weight + c); }
            if (add) { g = load<N>(dx_n + c); }
            for (int i = 0; i < N; i++) {
                const float dv = d.v[i], xv = (float)v.v[i] - m, wv = weight ? (float)w.v[i] : 1.0f;
                dw[c + i] += dv * xv * r;
                g.v[i] = real(dv * wv * r - xv * f - r_mean + (add ? (float)g.v[i] : 0.0f));
            }
            store<N>(dx_n + c, g);
        }
    }
    __syncthreads();
    for (int c = threadIdx.x; c < C; c += blockDim.x) {
        float sum = 0;
        for (int w = 0; w < warps; w++) { sum += sums[w * C + c]; }
        part[(long)blockIdx.x * C + c] = sum;
    }
}
inline void norm_backward(real* dx, acc* dweight, acc* dbias, const real* dout, const real* x, const real* weight,
                          const acc* mean, const acc* rstd, bool add, int N, int C) {
    if (dbias) { matmul_backward_bias(dbias, dout, N, C); }                        // before dx, which may be dout
    const int blocks = CEIL_DIV(N, NORM_ROWS), warps = std::max(1, std::min(8, 12288 / C)); // 48 KiB of sums
    float* part = (float*)device_scratch((size_t)blocks * C * sizeof(float));
    LAUNCH_WIDE(wide(C, {dx, dout, x, weight}), norm_backward_kernel, dim3(blocks), dim3(32 * warps), warps * C * sizeof(float),
                dx, part, dout, x, weight, mean, rstd, add, N, C);
    if (dweight) { column_sum(dweight, part, blocks, C, C, C); }
}

// ----------------------------------------------------------------------------
// 4 rotary and kernels

template <int N> __global__ void __launch_bounds__(128) rope_kernel(real* qkv, const acc* table, int sign, AttnShape s) {
    const int bt = blockIdx.x, half = s.rot / 2;
    const acc* turn = table + (long)(bt % s.T) * half * 2;
    FOR_COLUMNS(k, N, (s.NH + s.KV) * half) {
        const int h = k / half, i = k % half;
        real* x = qkv + (long)bt * attn_row(s) + h * s.HS + i;
        Vec<real, N> a = load<N>(x), b = load<N>(x + half);
        for (int n = 0; n < N; n++) {
            float an = a.v[n], bn = b.v[n];
            turn_pair(an, bn, turn[2 * (i + n)], sign * turn[2 * (i + n) + 1]);
            a.v[n] = real(an);
            b.v[n] = real(bn);
        }
        store<N>(x, a);
        store<N>(x + half, b);
    }
}
inline void rope(real* qkv, const acc* table, int sign, AttnShape s) {
    const bool ok = wide(s.rot / 2, {qkv}) && s.HS % VN == 0;
    LAUNCH_WIDE(ok, rope_kernel, rows_grid(s.B * s.T, (s.NH + s.KV) * s.rot / 2), dim3(128), 0, qkv, table, sign, s);
}
__global__ void __launch_bounds__(128) phi_elu1_forward_kernel(real* qkv, AttnShape s) {
    FOR_COLUMNS(i, 1, (s.NH + s.KV) * s.HS) {
        real* x = qkv + (long)blockIdx.x * attn_row(s) + i;
        const float v = *x;
        *x = real(v > 0 ? v + 1.0f : exp_(v));
    }
}
inline void phi_elu1_forward(real* qkv, AttnShape s) {
    LAUNCH(phi_elu1_forward_kernel, rows_grid(s.B * s.T, (s.NH + s.KV) * s.HS), dim3(128), 0, qkv, s);
}
__global__ void __launch_bounds__(128) phi_elu1_backward_kernel(real* dqkv, const real* qkv, AttnShape s) {
    FOR_COLUMNS(i, 1, (s.NH + s.KV) * s.HS) {
        const long at = (long)blockIdx.x * attn_row(s) + i;
        dqkv[at] = real((float)dqkv[at] * min_((float)qkv[at], 1.0f));
    }
}
inline void phi_elu1_backward(real* dqkv, const real* qkv, AttnShape s) {
    LAUNCH(phi_elu1_backward_kernel, rows_grid(s.B * s.T, (s.NH + s.KV) * s.HS), dim3(128), 0, dqkv, qkv, s);
}
__global__ void __launch_bounds__(128) copy_rows_kernel(real* out, int out_stride, const real* inp, int inp_stride, int n) {
    FOR_COLUMNS(i, 1, n) { out[(long)blockIdx.x * out_stride + i] = inp[(long)blockIdx.x * inp_stride + i]; }
}
inline void qk_gather(real* qk, const real* qkv, AttnShape s) {
    const int n = (s.NH + s.KV) * s.HS;
    LAUNCH(copy_rows_kernel, rows_grid(s.B * s.T, n), dim3(128), 0, qk, n, qkv, attn_row(s), n);
}
inline void qk_scatter(real* qkv, const real* qk, AttnShape s) {
    const int n = (s.NH + s.KV) * s.HS;
    LAUNCH(copy_rows_kernel, rows_grid(s.B * s.T, n), dim3(128), 0, qkv, attn_row(s), qk, n, n);
}

// where group g of qk_norm begins in a row of qkv, how many channels it has, and whether they are of q
struct QkGroup { int from, C; bool is_q; };
HD QkGroup qk_group(int g, bool all, const AttnShape& s) {
    const bool is_q = g < (all ? 1 : s.NH);
    return { all ? g * s.NH * s.HS : g * s.HS, !all ? s.HS : (is_q ? s.NH : s.KV) * s.HS, is_q };
}
// a warp per group of a row
__global__ void __launch_bounds__(128)
qk_norm_forward_kernel(real* qkv, real* qk_in, acc* rstd, const real* wq, const real* wk, bool all, float eps, AttnShape s) {
    const int G = all ? 2 : s.NH + s.KV, lane = threadIdx.x % 32;
    const long i = (long)blockIdx.x * 4 + threadIdx.x / 32, bt = i / G;
    if (bt >= (long)s.B * s.T) { return; }
    const QkGroup q = qk_group(i % G, all, s);
    real *x = qkv + bt * attn_row(s) + q.from, *saved = qk_in + bt * (s.NH + s.KV) * s.HS + q.from;
    const real* w = q.is_q ? wq : wk;
    float sum = 0;
    for (int c = lane; c < q.C; c += 32) { sum += (float)x[c] * (float)x[c]; }
    const float r = 1.0f / sqrtf(warp_sum(sum) / q.C + eps);
    for (int c = lane; c < q.C; c += 32) {
        saved[c] = x[c];
        x[c] = real((float)x[c] * r * (float)w[c]);
    }
    if (lane == 0) { rstd[i] = r; }
}
inline void qk_norm_forward(real* qkv, real* qk_in, acc* rstd, const real* wq, const real* wk, bool all, float eps,
                            AttnShape s) {
    const long groups = (long)s.B * s.T * (all ? 2 : s.NH + s.KV);
    LAUNCH(qk_norm_forward_kernel, dim3((unsigned)CEIL_DIV(groups, 4)), dim3(128), 0, qkv, qk_in, rstd, wq, wk, all, eps, s);
}
__global__ void __launch_bounds__(128)
qk_norm_backward_kernel(real* dqkv, const real* qk_in, const acc* rstd, const real* wq, const real* wk, bool all, AttnShape s) {
    const int G = all ? 2 : s.NH + s.KV, lane = threadIdx.x % 32;
    const long i = (long)blockIdx.x * 4 + threadIdx.x / 32, bt = i / G;
    if (bt >= (long)s.B * s.T) { return; }
    const QkGroup q = qk_group(i % G, all, s);
    real* d = dqkv + bt * attn_row(s) + q.from;
    const real *x = qk_in + bt * (s.NH + s.KV) * s.HS + q.from, *w = q.is_q ? wq : wk;
    const float r = rstd[i];
    float dot = 0;
    for (int c = lane; c < q.C; c += 32) { dot += (float)d[c] * (float)w[c] * (float)x[c]; }
    const float f = r * r * r * warp_sum(dot) / q.C;
    for (int c = lane; c < q.C; c += 32) { d[c] = real((float)d[c] * (float)w[c] * r - (float)x[c] * f); }
}
// part (blocks, 2 wide): sums of dy x r over ROW_BLOCK rows and all groups of q, of k
__global__ void __launch_bounds__(128)
qk_norm_weights_kernel(float* part, const real* dqkv, const real* qk_in, const acc* rstd, bool all, int wide, AttnShape s) {
    const int G = all ? 2 : s.NH + s.KV, n1 = min(s.B * s.T, (int)(blockIdx.x + 1) * ROW_BLOCK);
    FOR_COLUMNS(k, 1, 2 * wide) {
        const bool is_q = k < wide;
        const int c = is_q ? k : k - wide;
        float sum = 0;
        for (int bt = blockIdx.x * ROW_BLOCK; bt < n1; bt++) {
            for (int g = 0; g < G; g++) {
                const QkGroup q = qk_group(g, all, s);
                if (q.is_q != is_q || c >= q.C) { continue; }
                const float x = qk_in[(long)bt * (s.NH + s.KV) * s.HS + q.from + c];
                sum += (float)dqkv[(long)bt * attn_row(s) + q.from + c] * x * rstd[(long)bt * G + g];
            }
        }
        part[(long)blockIdx.x * 2 * wide + k] = sum;
    }
}
inline void qk_norm_backward(real* dqkv, acc* dwq, acc* dwk, const real* qk_in, const acc* rstd, const real* wq,
                             const real* wk, bool all, AttnShape s) {
    const int N = s.B * s.T, wide = all ? s.NH * s.HS : s.HS, wide_k = all ? s.KV * s.HS : s.HS, blocks = CEIL_DIV(N, ROW_BLOCK);
    const long groups = (long)N * (all ? 2 : s.NH + s.KV);
    float* part = (float*)device_scratch((size_t)blocks * 2 * wide * sizeof(float));
    LAUNCH(qk_norm_weights_kernel, rows_grid(blocks, 2 * wide), dim3(128), 0, part, dqkv, qk_in, rstd, all, wide, s);
    LAUNCH(column_sum_kernel, dim3(CEIL_DIV(wide, 32)), dim3(256), 0, dwq, part, blocks, wide, 2 * wide, wide, wide);
    LAUNCH(column_sum_kernel, dim3(CEIL_DIV(wide_k, 32)), dim3(256), 0, dwk, part + wide, blocks, wide_k, 2 * wide, wide_k, wide_k);
    LAUNCH(qk_norm_backward_kernel, dim3((unsigned)CEIL_DIV(groups, 4)), dim3(128), 0, dqkv, qk_in, rstd, wq, wk, all, s);
}

// ----------------------------------------------------------------------------
// 6 heads and FFN

__global__ void __launch_bounds__(128) gate_forward_kernel(real* out, const real* att, const real* gate, int width, AttnShape s) {
    const int W = s.NH * s.HS;
    FOR_COLUMNS(c, 1, W) {
        const float x = gate[(long)blockIdx.x * s.NH * width + (width == 1 ? c / s.HS : c)];
        out[(long)blockIdx.x * W + c] = real((float)att[(long)blockIdx.x * W + c] * sigmoid_(x));
    }
}
inline void gate_forward(real* out, const real* att, const real* gate, int width, AttnShape s) {
    LAUNCH(gate_forward_kernel, rows_grid(s.B * s.T, s.NH * s.HS), dim3(128), 0, out, att, gate, width, s);
}
// a warp per head of a token
__global__ void __launch_bounds__(128)
gate_backward_kernel(real* datt, real* dgate, const real* dout, const real* att, const real* gate, int width, AttnShape s) {
    const long i = (long)blockIdx.x * 4 + threadIdx.x / 32;
    if (i >= (long)s.B * s.T * s.NH) { return; }
    float sum = 0;
    for (int c = threadIdx.x % 32; c < s.HS; c += 32) {
        const float g = sigmoid_((float)gate[i * width + (width == 1 ? 0 : c)]), d = dout[i * s.HS + c];
        const float dx = d * (float)att[i * s.HS + c] * g * (1 - g);
        datt[i * s.HS + c] = real(d * g);
        sum += dx;
        if (width > 1) { dgate[i * width + c] = real(dx); }
    }
    sum = warp_sum(sum);
    if (width == 1 && threadIdx.x % 32 == 0) { dgate[i] = real(sum); }
}
inline void gate_backward(real* datt, real* dgate, const real* dout, const real* att, const real* gate, int width,
                          AttnShape s) {
    LAUNCH(gate_backward_kernel, dim3((unsigned)CEIL_DIV((long)s.B * s.T * s.NH, 4)), dim3(128), 0,
           datt, dgate, dout, att, gate, width, s);
}

__global__ void __launch_bounds__(128) heads_forward_kernel(real* out, const real* att, const real* vstar, bool sum, AttnShape s) {
    const real* a = att + (long)blockIdx.x * s.NH * s.HS;
    const int OC = sum ? s.HS : s.NH * s.HS;
    FOR_COLUMNS(c, 1, OC) {
        float o = 0;
        for (int k = c; k < (sum ? s.NH * s.HS : c + 1); k += s.HS) { // one head, or all of them
            o += (float)a[k] + (vstar ? (float)vstar[s.bias_shared ? k % s.HS : k] : 0.0f);
        }
        out[(long)blockIdx.x * OC + c] = real(o);
    }
}
inline void heads_forward(real* out, const real* att, const real* vstar, bool sum, AttnShape s) {
    LAUNCH(heads_forward_kernel, rows_grid(s.B * s.T, sum ? s.HS : s.NH * s.HS), dim3(128), 0, out, att, vstar, sum, s);
}
__global__ void __launch_bounds__(128) heads_backward_kernel(real* datt, const real* dout, bool sum, AttnShape s) {
    const int W = s.NH * s.HS;
    FOR_COLUMNS(c, 1, W) {
        datt[(long)blockIdx.x * W + c] = dout[(long)blockIdx.x * (sum ? s.HS : W) + (sum ? c % s.HS : c)];
    }
}
inline void heads_backward(real* datt, acc* dvstar, const real* dout, bool sum, AttnShape s) {
    const int W = s.NH * s.HS, N = s.B * s.T, blocks = CEIL_DIV(N, ROW_BLOCK);
    LAUNCH(heads_backward_kernel, rows_grid(N, W), dim3(128), 0, datt, dout, sum, s);
    if (!dvstar) { return; }
    float* part = (float*)device_scratch((size_t)blocks * W * sizeof(float));
    LAUNCH(row_sums_kernel, rows_grid(blocks, W), dim3(128), 0, part, datt, N, W);
    if (s.bias_shared) { column_sum(dvstar, part, (long)blocks * s.NH, s.HS, s.HS, s.HS); } // (blocks NH, HS): the same floats
    else { column_sum(dvstar, part, blocks, W, W, W); }
}

template <class A, int N> __global__ void __launch_bounds__(128)
ffn_forward_kernel(real* out, const real* inp, bool gated, int F) {
    const real* x = inp + (long)blockIdx.x * F * (gated ? 2 : 1);
    FOR_COLUMNS(i, N, F) {
        Vec<real, N> g = load<N>(x + i), u;
        if (gated) { u = load<N>(x + F + i); }
        for (int n = 0; n < N; n++) { g.v[n] = real(A::act((float)g.v[n]) * (gated ? (float)u.v[n] : 1.0f)); }
        store<N>(out + (long)blockIdx.x * F + i, g);
    }
}
inline void ffn_forward(real* out, const real* inp, Act act, bool gated, int N, int F) {
    with_act(act, [=](auto f) {
        typedef decltype(f) A;
        if (wide(F, {out, inp})) { LAUNCH((ffn_forward_kernel<A, VN>), rows_grid(N, F), dim3(128), 0, out, inp, gated, F); }
        else { LAUNCH((ffn_forward_kernel<A, 1>), rows_grid(N, F), dim3(128), 0, out, inp, gated, F); }
    });
}
template <class A, int N> __global__ void __launch_bounds__(128)
ffn_backward_kernel(real* dinp, const real* dout, const real* inp, bool gated, int F) {
    const long row = (long)blockIdx.x * F * (gated ? 2 : 1);
    FOR_COLUMNS(i, N, F) {
        Vec<real, N> g = load<N>(inp + row + i), d = load<N>(dout + (long)blockIdx.x * F + i), u;
        if (gated) { u = load<N>(inp + row + F + i); }
        for (int n = 0; n < N; n++) {
            const float gn = g.v[n], dn = d.v[n], un = gated ? (float)u.v[n] : 1.0f;
            g.v[n] = real(dn * A::dact(gn) * un);
            u.v[n] = real(dn * A::act(gn));
        }
        store<N>(dinp + row + i, g);
        if (gated) { store<N>(dinp + row + F + i, u); }
    }
}
inline void ffn_backward(real* dinp, const real* dout, const real* inp, Act act, bool gated, int N, int F) {
    with_act(act, [=](auto f) {
        typedef decltype(f) A;
        const bool ok = wide(F, {dinp, dout, inp});
        if (ok) { LAUNCH((ffn_backward_kernel<A, VN>), rows_grid(N, F), dim3(128), 0, dinp, dout, inp, gated, F); }
        else { LAUNCH((ffn_backward_kernel<A, 1>), rows_grid(N, F), dim3(128), 0, dinp, dout, inp, gated, F); }
    });
}

// ----------------------------------------------------------------------------
// 7 classifier: a block per row, which is read twice and written once

template <int N> __global__ void __launch_bounds__(512)
classifier_kernel(acc* losses, real* logits, const int* targets, float dloss, float cap, int V) {
    real* x = logits + (long)blockIdx.x * V;
    const int y = targets[blockIdx.x];
    auto capped = [=](float l) { return cap != 0 ? cap * tanh_(l / cap) : l; };
    float top = -INFINITY, sum = 0;
    for (int v = threadIdx.x * N; v < V; v += 512 * N) { // the sum is kept relative to the largest value so far
        Vec<real, N> l = load<N>(x + v);
        float most = top;
        for (int i = 0; i < N; i++) { most = max_(most, capped(l.v[i])); }
        if (most > top) { sum *= exp_(top - most); top = most; }
        for (int i = 0; i < N; i++) { sum += exp_(capped(l.v[i]) - top); }
    }
    const float x_y = y < 0 ? 0.0f : capped(x[y]), all = block_max<512>(top);
    sum = block_sum<512>(top == -INFINITY ? 0.0f : sum * exp_(top - all)); // a thread without a value has top = -inf
    if (threadIdx.x == 0) { losses[blockIdx.x] = y < 0 ? 0.0f : log_(sum) - (x_y - all); }
    if (dloss == 0 && cap == 0) { return; }
    const float f = y < 0 ? 0.0f : dloss / sum;
    for (int v = threadIdx.x * N; v < V; v += 512 * N) {
        Vec<real, N> l = load<N>(x + v);
        for (int i = 0; i < N; i++) {
            const float l_i = capped(l.v[i]), slope = cap != 0 ? 1.0f - l_i / cap * (l_i / cap) : 1.0f;
            const float d = y < 0 ? 0.0f : (exp_(l_i - all) * f - (v + i == y ? dloss : 0.0f)) * slope;
            l.v[i] = real(dloss == 0 ? l_i : d);
        }
        store<N>(x + v, l);
    }
}
inline void classifier(acc* losses, real* logits, const int* targets, float dloss, float cap, int N, int V) {
    LAUNCH_WIDE(wide(V, {logits}), classifier_kernel, dim3(N), dim3(512), 0, losses, logits, targets, dloss, cap, V);
}

// ----------------------------------------------------------------------------
// 8 optimiser

enum { SQUARE_BLOCK = 1 << 14 };
__global__ void __launch_bounds__(256) square_norm_kernel(double* part, const acc* x, long n) {
    const long from = (long)blockIdx.x * SQUARE_BLOCK, to = min(n, from + SQUARE_BLOCK);
    double sum = 0;
    for (long i = from + threadIdx.x; i < to; i += 256) { sum += (double)x[i] * x[i]; }
    sum = block_sum<256>(sum);
    if (threadIdx.x == 0) { part[blockIdx.x] = sum; }
}
__global__ void __launch_bounds__(1024) square_norm_sum_kernel(StepSums* sums, const double* part, int n, float clip) {
    double sum = 0;
    for (int i = threadIdx.x; i < n; i += 1024) { sum += part[i]; }
    sum = block_sum<1024>(sum);
    if (threadIdx.x == 0) { sums->squares = sum; sums->grad_scale = grad_scale(sums->loss, sum, clip); }
}
inline void square_norm(StepSums* sums, const acc* x, float clip, long n) {
    const int blocks = CEIL_DIV(n, (long)SQUARE_BLOCK);
    double* part = (double*)device_scratch(blocks * sizeof(double));
    LAUNCH(square_norm_kernel, dim3(blocks), dim3(256), 0, part, x, n);
    LAUNCH(square_norm_sum_kernel, dim3(1), dim3(1024), 0, sums, part, blocks, clip);
}
__global__ void __launch_bounds__(1024) loss_add_kernel(StepSums* sums, const acc* losses, long n, double count) {
    double sum = 0;
    for (long i = threadIdx.x; i < n; i += 1024) { sum += losses[i]; }
    sum = block_sum<1024>(sum);
    if (threadIdx.x == 0) { sums->loss += sum / count; }
}
inline void loss_add(StepSums* sums, const acc* losses, long n, double count) {
    LAUNCH(loss_add_kernel, dim3(1), dim3(1024), 0, sums, losses, n, count);
}
// one element of either optimiser; c1, c2 are Adam's bias corrections
template <bool ADAM> __global__ void __launch_bounds__(256)
update_kernel(real* params, acc* master, acc* m, acc* v, const acc* grads, const StepSums* sums, AdamW o, float c1, float c2, long n) {
    const float scale = sums->grad_scale;
    if (isnan(scale)) { return; }
    FOR_FLAT(i, 1, n) {
        const float g = grads[i] * scale, w = master[i];
        float step;
        if (ADAM) {
            const float m_i = m[i] = o.beta1 * m[i] + (1 - o.beta1) * g;
            const float v_i = v[i] = o.beta2 * v[i] + (1 - o.beta2) * g * g;
            step = m_i * c1 / (sqrtf(v_i * c2) + o.eps);
        } else {
            step = m[i] = o.beta1 * m[i] + g;
        }
        master[i] = w - o.lr * (step + o.weight_decay * w);
        params[i] = real(master[i]);
    }
}
inline void adamw_update(real* params, acc* master, acc* m, acc* v, const acc* grads, const StepSums* sums, AdamW o, long n) {
    const float c1 = 1 / (1 - pow((double)o.beta1, o.step)), c2 = 1 / (1 - pow((double)o.beta2, o.step));
    LAUNCH(update_kernel<true>, flat_grid(n), dim3(256), 0, params, master, m, v, grads, sums, o, c1, c2, n);
}
inline void sgd_update(real* params, acc* master, acc* m, acc* v, const acc* grads, const StepSums* sums, AdamW o, long n) {
    LAUNCH(update_kernel<false>, flat_grid(n), dim3(256), 0, params, master, m, v, grads, sums, o, 0.0f, 0.0f, n);
}
} // namespace cuda
#endif // CUDA_OPS_CUH
