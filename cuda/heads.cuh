/*
heads.cuh -- what happens to heads before and after attention.
*/
#ifndef CUDA_HEADS_CUH
#define CUDA_HEADS_CUH
#include "../attention_variants.cuh"
#include "sums.cuh"

namespace cuda {
template <int N>
__global__ void __launch_bounds__(256) phi_elu1_forward_kernel(real* qkv, AttnShape s) {
    const int bt = own_row();
    if (bt >= s.B * s.T) { return; }
    FOR_COLUMNS(i, N, (s.NH + s.KV) * s.HS) {
        real* x = qkv + (long)bt * attn_row(s) + i;
        Vec<float, N> v = load_real<N>(x);
        for (int k = 0; k < N; k++) { v[k] = Attn_elu1::sim(v[k]); }
        store_real<N>(x, v);
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
        Vec<float, N> d = load_real<N>(dqkv + at);
        const Vec<float, N> x = load_real<N>(qkv + at);
        for (int k = 0; k < N; k++) { d[k] *= min_(x[k], 1.0f); }
        store_real<N>(dqkv + at, d);
    }
}

inline void phi_elu1_backward(real* dqkv, const real* qkv, AttnShape s) {
    const int n = (s.NH + s.KV) * s.HS;
    LAUNCH_WIDE_ROWS(wide(s.HS, {dqkv, qkv}), phi_elu1_backward_kernel, s.B * s.T, n, dqkv, qkv, s)
}

template <int N>
__global__ void __launch_bounds__(256)
    copy_rows_kernel(real* out, int out_stride, const real* inp, int inp_stride, int rows, int C) {
    const int n = own_row();
    if (n >= rows) { return; }
    real* to = out + (long)n * out_stride;
    const real* from = inp + (long)n * inp_stride;
    FOR_COLUMNS(i, N, C) { store<N>(to + i, load<N>(from + i)); }
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

// Reads N numbers of a head's gate, from column c on. width: how many it has, HS or 1.
template <int N> DEVICE Vec<float, N> gate_read(const real* of_head, int c, int width) {
    return width > 1 ? load_real<N>(of_head + c) : all_of<N>((float)*of_head);
}

template <int N>
__global__ void __launch_bounds__(256)
    gate_forward_kernel(real* out, const real* att, const real* gate, int width, AttnShape s) {
    const int W = s.NH * s.HS, bt = own_row();
    if (bt >= s.B * s.T) { return; }
    const real* gate_t = gate + (long)bt * s.NH * width;
    FOR_COLUMNS(c, N, W) {
        const long at = (long)bt * W + c;
        Vec<float, N> a = load_real<N>(att + at);
        const Vec<float, N> g = gate_read<N>(gate_t + c / s.HS * width, c % s.HS, width);
        for (int i = 0; i < N; i++) { a[i] *= sigmoid_(g[i]); }
        store_real<N>(out + at, a);
    }
}

inline void gate_forward(real* out, const real* att, const real* gate, int width, AttnShape s) {
    const bool ok = wide(s.HS, {out, att, width > 1 ? gate : NULL});
    LAUNCH_WIDE_ROWS(ok, gate_forward_kernel, s.B * s.T, s.NH * s.HS, out, att, gate, width, s)
}

// Computes datt and dgate, a warp per head of a token.
template <int N>
__global__ void __launch_bounds__(32 * ROW_WARPS)
    gate_backward_kernel(real* datt, real* dgate, const real* dout, const real* att,
                         const real* gate, int width, AttnShape s) {
    const long n = warp_number();
    if (n >= (long)s.B * s.T * s.NH) { return; }
    const int lane = threadIdx.x % 32;
    float sum = 0;
    for (int c = lane * N; c < s.HS; c += 32 * N) {
        const long at = n * s.HS + c;
        Vec<float, N> d = load_real<N>(dout + at);
        const Vec<float, N> a = load_real<N>(att + at);
        Vec<float, N> g = gate_read<N>(gate + n * width, c, width);
        for (int i = 0; i < N; i++) {
            const float open = sigmoid_(g[i]);
            g[i] = d[i] * a[i] * open * (1 - open);
            d[i] *= open;
            sum += g[i];
        }
        store_real<N>(datt + at, d);
        if (width > 1) { store_real<N>(dgate + at, g); }
    }
    sum = warp_sum(sum);
    if (width == 1 && lane == 0) { dgate[n] = real(sum); }
}

inline void gate_backward(real* datt, real* dgate, const real* dout, const real* att,
                          const real* gate, int width, AttnShape s) {
    bool ok = wide(s.HS, { datt, dout, att });
    if (width > 1) { ok = ok && wide(s.HS, { gate, dgate }); }
    LAUNCH_WIDE(ok, gate_backward_kernel, warp_grid((long)s.B * s.T * s.NH), dim3(32 * ROW_WARPS),
                0, datt, dgate, dout, att, gate, width, s);
}

__global__ void __launch_bounds__(256)
    heads_forward_kernel(real* out, const real* att, const real* vstar, bool sum, AttnShape s) {
    const int bt = own_row();
    if (bt >= s.B * s.T) { return; }
    const int W = s.NH * s.HS, OC = sum ? s.HS : W;
    const real* a = att + (long)bt * W;
    FOR_COLUMNS(c, 1, OC) {
        const int end = sum ? W : c + 1;                 // of all heads, or of one
        float o = 0;
        for (int k = c; k < end; k += s.HS) {
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

template <int N>
__global__ void __launch_bounds__(256)
    heads_backward_kernel(real* datt, const real* dout, bool sum, AttnShape s) {
    const int bt = own_row(), W = s.NH * s.HS, OC = sum ? s.HS : W;
    if (bt >= s.B * s.T) { return; }
    const real* from = dout + (long)bt * OC;
    real* to = datt + (long)bt * W;
    FOR_COLUMNS(c, N, W) { store<N>(to + c, load<N>(from + c % OC)); }
}

inline void heads_backward(real* datt, acc* dvstar, const real* dout, bool sum, AttnShape s) {
    const int W = s.NH * s.HS, N = s.B * s.T, blocks = CEIL_DIV(N, ROW_BLOCK);
    LAUNCH_WIDE_ROWS(wide(s.HS, {datt, dout}), heads_backward_kernel, N, W, datt, dout, sum, s)
    if (!dvstar) { return; }
    float* part = (float*)device_scratch((size_t)blocks * W * sizeof(float));
    row_sums(part, datt, N, W);
    if (s.bias_shared) {
        column_sum(dvstar, part, (long)blocks * s.NH, s.HS, s.HS);   // as (blocks NH, HS)
    } else {
        column_sum(dvstar, part, blocks, W, W);
    }
}
} // namespace cuda
#endif // CUDA_HEADS_CUH
