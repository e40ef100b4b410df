/*
heads.cuh -- what happens to heads before and after attention.
*/
#ifndef CUDA_HEADS_CUH
#define CUDA_HEADS_CUH
#include "../attention_variants.cuh"
#include "rows.cuh"

namespace cuda {
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
} // namespace cuda
#endif // CUDA_HEADS_CUH
