/*
ops.cuh -- the operations of the CUDA backend, but for attention (attention.cuh) and the metrics
(metrics.cuh). Names and parameters are those of reference.h, which explains each, and which each is
tested against (test/gpu/test_cuda.cu). What is added here is how threads share the work, and how
sums keep one order.
*/
#ifndef CUDA_OPS_CUH
#define CUDA_OPS_CUH
#include "../reference.h"
#include "attention.cuh"
#include "embed.cuh"
#include "heads.cuh"
#include "matmul.cuh"
#include "norms.cuh"
#include "optimizer.cuh"

namespace cuda {
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

template <int N> __global__ void __launch_bounds__(256)
add_kernel(real* y, const real* x, long n, float by) {
    FOR_FLAT(i, N, n) {
        Vec<real, N> a = load<N>(y + i);
        Vec<real, N> b = a;
        if (x) { b = load<N>(x + i); }
        for (int k = 0; k < N; k++) {
            a.v[k] = real(fmaf(by, (float)a.v[k], x ? (float)b.v[k] : 0.0f));
        }
        store<N>(y + i, a);
    }
}

inline void add(real* y, const real* x, long n, acc by = 1) {
    if (wide(n % VN, { y, x })) {
        LAUNCH(add_kernel<VN>, flat_grid(n, VN), dim3(256), 0, y, x, n, by);
    } else {
        LAUNCH(add_kernel<1>, flat_grid(n, 1), dim3(256), 0, y, x, n, by);
    }
}

inline void cast_to_real(real* dst, const acc* src, long n) {
    if ((void*)dst == (const void*)src) { return; }
    if (wide(n % VN, { dst, src })) {
        LAUNCH(cast_kernel<4>, flat_grid(n, 4), dim3(256), 0, dst, src, n);
    } else {
        LAUNCH(cast_kernel<1>, flat_grid(n, 1), dim3(256), 0, dst, src, n);
    }
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

inline void ffn_forward(real* out, const real* inp, Activation act, bool gated, int N, int F) {
    with_activation(act, [=](auto f) {
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

inline void ffn_backward(real* dinp, const real* dout, const real* inp, Activation act,
                         bool gated, int N, int F) {
    with_activation(act, [=](auto f) {
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
} // namespace cuda
#endif // CUDA_OPS_CUH
