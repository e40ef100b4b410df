/*
heads.cuh -- what happens to heads before and after attention.
*/
#ifndef CUDA_HEADS_CUH
#define CUDA_HEADS_CUH
#include "../attention_variants.cuh"
#include "rope.cuh"
#include "sums.cuh"

namespace cuda {
template <int N>
__global__ void __launch_bounds__(256) phi_elu1_forward_kernel(real* qkv, AttnShape s) {
    const int bt = own_row();
    if (bt >= s.B * s.T) { return; }
    FOR_COLUMNS(i, N, qk_width(s)) {
        real* x = qkv + (long)bt * attn_row(s) + i;
        Floats<N>::store(x, Floats<N>::load(x).each(Attn_elu1::sim<float>));
    }
}

inline void phi_elu1_forward(real* qkv, AttnShape s) {
    const bool ok = wide(s.HS, { qkv });
    LAUNCH_WIDE_ROWS(ok, phi_elu1_forward_kernel, s.B * s.T, qk_width(s), qkv, s)
}

template <int N>
__global__ void __launch_bounds__(256)
    phi_elu1_backward_kernel(real* dqkv, const real* qkv, AttnShape s) {
    const int bt = own_row();
    if (bt >= s.B * s.T) { return; }
    FOR_COLUMNS(i, N, qk_width(s)) {
        const long at = (long)bt * attn_row(s) + i;
        const Floats<N> d = Floats<N>::load(dqkv + at);
        const Floats<N> x = Floats<N>::load(qkv + at);
        const Floats<N> slope = x.each([](float y) { return min_(y, 1.0f); });
        Floats<N>::store(dqkv + at, d * slope);
    }
}

inline void phi_elu1_backward(real* dqkv, const real* qkv, AttnShape s) {
    const bool ok = wide(s.HS, { dqkv, qkv });
    LAUNCH_WIDE_ROWS(ok, phi_elu1_backward_kernel, s.B * s.T, qk_width(s), dqkv, qkv, s)
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

inline void copy_rows(real* out, int out_width, const real* inp, int inp_width, int N, int C) {
    const bool ok = wide(C, { out, inp }) && out_width % VN == 0 && inp_width % VN == 0;
    LAUNCH_WIDE_ROWS(ok, copy_rows_kernel, N, C, out, out_width, inp, inp_width, N, C)
}

// Reads N numbers of a head's gate, from column c on. width: how many it has, HS or 1.
template <int N> DEVICE Floats<N> gate_read(const real* of_head, int c, int width) {
    return width > 1 ? Floats<N>::load(of_head + c) : Floats<N>((float)*of_head);
}

template <int N>
__global__ void __launch_bounds__(256)
    gate_forward_kernel(real* out, const real* att, const real* gate, int width, AttnShape s) {
    const int W = s.NH * s.HS;
    const int bt = own_row();
    if (bt >= s.B * s.T) { return; }
    const real* gate_t = gate + (long)bt * s.NH * width;
    FOR_COLUMNS(c, N, W) {
        const long at = (long)bt * W + c;
        const real* gate_h = gate_t + c / s.HS * width;
        const Floats<N> g = gate_read<N>(gate_h, c % s.HS, width);
        Floats<N>::store(out + at, Floats<N>::load(att + at) * g.each(sigmoid_<float>));
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
    float sum = 0;
    FOR_STRIDE(c, lane_id() * N, s.HS, 32 * N) {
        const long at = n * s.HS + c;
        const Floats<N> d = Floats<N>::load(dout + at);
        const Floats<N> a = Floats<N>::load(att + at);
        const Floats<N> open = gate_read<N>(gate + n * width, c, width).each(sigmoid_<float>);
        const Floats<N> closed = Floats<N>(1) - open;
        const Floats<N> dg = d * a * open * closed;
        dg.add_to(sum);
        Floats<N>::store(datt + at, d * open);
        if (width > 1) { Floats<N>::store(dgate + at, dg); }
    }
    sum = warp_sum(sum);
    if (width == 1 && first_lane()) { dgate[n] = real(sum); }
}

inline void gate_backward(real* datt, real* dgate, const real* dout, const real* att,
                          const real* gate, int width, AttnShape s) {
    bool ok = wide(s.HS, { datt, dout, att });
    if (width > 1) { ok = ok && wide(s.HS, { gate, dgate }); }
    const long heads = (long)s.B * s.T * s.NH;
    LAUNCH_WIDE(ok, gate_backward_kernel, warp_grid(heads), dim3(32 * ROW_WARPS), 0, datt, dgate,
                dout, att, gate, width, s);
}

// Returns the width of what the heads become: one head's, where they are added up.
HD int out_width(bool sum, const AttnShape& s) { return sum ? s.HS : s.NH * s.HS; }

__global__ void __launch_bounds__(256)
    heads_forward_kernel(real* out, const real* att, const real* vstar, bool sum, AttnShape s) {
    const int bt = own_row();
    if (bt >= s.B * s.T) { return; }
    const int W = s.NH * s.HS;
    const int OC = out_width(sum, s);
    const real* a = att + (long)bt * W;
    FOR_COLUMNS(c, 1, OC) {
        const int end = sum ? W : c + 1;                 // of all heads, or of one
        float o = 0;
        FOR_STRIDE(k, c, end, s.HS) {
            const int j = s.bias_shared ? k % s.HS : k;
            float a_k = (float)a[k];
            if (vstar) { a_k += (float)vstar[j]; }
            o += a_k;
        }
        out[(long)bt * OC + c] = real(o);
    }
}

inline void heads_forward(real* out, const real* att, const real* vstar, bool sum, AttnShape s) {
    LAUNCH_ROWS(1, heads_forward_kernel, s.B * s.T, out_width(sum, s), out, att, vstar, sum, s)
}

template <int N>
__global__ void __launch_bounds__(256)
    heads_backward_kernel(real* datt, const real* dout, bool sum, AttnShape s) {
    const int bt = own_row();
    const int W = s.NH * s.HS;
    const int OC = out_width(sum, s);
    if (bt >= s.B * s.T) { return; }
    const real* from = dout + (long)bt * OC;
    real* to = datt + (long)bt * W;
    FOR_COLUMNS(c, N, W) { store<N>(to + c, load<N>(from + c % OC)); }
}

inline void heads_backward(real* datt, acc* dvstar, const real* dout, bool sum, AttnShape s) {
    const int W = s.NH * s.HS;
    const int N = s.B * s.T;
    const int blocks = CEIL_DIV(N, ROW_BLOCK);
    const bool ok = wide(s.HS, { datt, dout });
    LAUNCH_WIDE_ROWS(ok, heads_backward_kernel, N, W, datt, dout, sum, s)
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
