/*
ops.cuh -- the operations of the CUDA backend, but for attention (attention.cuh) and the metrics
(metrics.cuh). Names and parameters are those of reference.h, which explains each, and which each is
tested against (test/gpu/test_cuda.cu). What is added here is how threads share the work, and how
sums keep one order.
*/
#ifndef CUDA_OPS_CUH
#define CUDA_OPS_CUH
#include "../reference.h"
#include "embed.cuh"
#include "graph.cuh"
#include "heads.cuh"
#include "matmul.cuh"
#include "norms.cuh"
#include "optimizer.cuh"
#include "rope.cuh"

namespace cuda {
// ----------------------------------------------------------------------------
// 1 memory (the rest is in device.cuh)

template <int N>
__global__ void __launch_bounds__(256) cast_kernel(real* dst, const acc* src, long n) {
    FOR_FLAT(i, N, n) {
        Floats<N>::store(dst + i, load<N>(src + i));
    }
}

// Scales y by `by` and adds x, if there is one.
template <int N>
__global__ void __launch_bounds__(ROW_THREADS)
    add_kernel(real* y, const real* x, long n, float by) {
    FOR_FLAT(i, N, n) {
        Floats<N> a = Floats<N>::load(y + i);
        const Floats<N> b = Floats<N>::load_or(0, x, i);
        UNROLL(k, N) { a[k] = fmaf(by, a[k], b[k]); }
        Floats<N>::store(y + i, a);
    }
}

inline void add(real* y, const real* x, long n, acc by = 1) {
    if (wide(n % VN, { y, x })) {
        LAUNCH_FLAT(VN, add_kernel<VN>, n, y, x, n, by);
    } else {
        LAUNCH_FLAT(1, add_kernel<1>, n, y, x, n, by);
    }
}

inline void cast_to_real(real* dst, const acc* src, long n) {
    if ((void*)dst == (const void*)src) { return; }
    if (wide(n % VN, { dst, src })) {
        LAUNCH_FLAT(4, cast_kernel<4>, n, dst, src, n);
    } else {
        LAUNCH_FLAT(1, cast_kernel<1>, n, dst, src, n);
    }
}

// What elementwise functions compute with. bf16 tensors keep 8 bits, for which Fast is exact enough
// by far.
typedef std::conditional_t<sizeof(real) == 2, Fast, float> Elem;
DEVICE float number(float x) { return x; }
DEVICE float number(Fast x)  { return x.v; }

// Where row n of the FFN begins: the gates, and behind them, if it is gated, what they multiply.
struct FfnRow {
    long gate, up;
    DEVICE FfnRow(int n, bool gated, int F) {
        const int width = gated ? 2 * F : F;
        gate = (long)n * width;
        up = gate + F;
    }
};

template <class A, int N>
__global__ void __launch_bounds__(256)
    ffn_forward_kernel(real* out, const real* inp, bool gated, int rows, int F) {
    const int n = own_row();
    if (n >= rows) { return; }
    const FfnRow row(n, gated, F);
    const real* gate = inp + row.gate;
    const real* up = gated ? inp + row.up : NULL;
    real* out_n = out + (long)n * F;
    FOR_COLUMNS(i, N, F) {
        const Floats<N> g = Floats<N>::load(gate + i);
        const Floats<N> u = Floats<N>::load_or(1, up, i);
        const Floats<N> open = g.each([](float x) { return number(A::act(Elem(x))); });
        Floats<N>::store(out_n + i, open * u);
    }
}

inline void ffn_forward(real* out, const real* inp, Activation act, bool gated, int N, int F) {
    with_activation(act, [=](auto f) {
        typedef decltype(f) A;
        if (wide(F, { out, inp })) {
            LAUNCH_ROWS(VN, (ffn_forward_kernel<A, VN>), N, F, out, inp, gated, N, F)
        } else {
            LAUNCH_ROWS(1, (ffn_forward_kernel<A, 1>), N, F, out, inp, gated, N, F)
        }
    });
}

template <class A, int N>
__global__ void __launch_bounds__(256)
    ffn_backward_kernel(real* dinp, const real* dout, const real* inp, bool gated, int rows,
                        int F) {
    const int n = own_row();
    if (n >= rows) { return; }
    const FfnRow row(n, gated, F);
    const real* gate = inp + row.gate;
    const real* up = gated ? inp + row.up : NULL;
    const real* dout_n = dout + (long)n * F;
    FOR_COLUMNS(i, N, F) {
        Floats<N> g = Floats<N>::load(gate + i);
        Floats<N> u = Floats<N>::load_or(1, up, i);
        const Floats<N> d = Floats<N>::load(dout_n + i);
        UNROLL(k, N) {                 // gradients in place of what they belong to
            const Elem x(g[k]);
            g[k] = d[k] * number(A::dact(x)) * u[k];
            u[k] = d[k] * number(A::act(x));
        }
        Floats<N>::store(dinp + row.gate + i, g);
        if (gated) { Floats<N>::store(dinp + row.up + i, u); }
    }
}

inline void ffn_backward(real* dinp, const real* dout, const real* inp, Activation act,
                         bool gated, int N, int F) {
    with_activation(act, [=](auto f) {
        typedef decltype(f) A;
        if (wide(F, { dinp, dout, inp })) {
            LAUNCH_ROWS(VN, (ffn_backward_kernel<A, VN>), N, F, dinp, dout, inp, gated, N, F)
        } else {
            LAUNCH_ROWS(1, (ffn_backward_kernel<A, 1>), N, F, dinp, dout, inp, gated, N, F)
        }
    });
}

// ----------------------------------------------------------------------------
// 6 classifier: a block per row. A row that fits shared memory (KEEP) is read once and written
// once; a thread takes back only what it has copied itself. Any other row is read twice.

enum { CLASSIFIER_THREADS = 512 };
template <int N, bool KEEP>
__global__ void __launch_bounds__(CLASSIFIER_THREADS)
    classifier_kernel(acc* losses, real* logits, const int* targets, float dloss, float cap,
                      int V) {
    real* x = logits + (long)blockIdx.x * V;
    real* kept = KEEP ? dynamic_smem<real>() : x;
    const int y = targets[blockIdx.x];
    const bool counts = y >= 0;
    auto capped = [=](float logit) { return cap != 0 ? cap * tanh_(logit / cap) : logit; };
    const float x_y = counts ? capped((float)x[y]) : 0.0f;
    if (KEEP) {
        FOR_STRIDE(v, threadIdx.x * N, V, CLASSIFIER_THREADS * N) {
            cp_async(kept + v, x + v, true);
        }
        cp_async_commit();
        cp_async_wait<0>();
    }
    // the sum is kept relative to the largest value so far
    float top = -INFINITY, sum = 0;
    FOR_STRIDE(v, threadIdx.x * N, V, CLASSIFIER_THREADS * N) {
        const Floats<N> l = Floats<N>::load(kept + v);
        float most = top;
        UNROLL(i, N) { most = max_(most, capped(l[i])); }
        if (most > top) {
            sum *= exp_(top - most);
            top = most;
        }
        UNROLL(i, N) { sum += number(exp_(Elem(capped(l[i]) - top))); }
    }
    const float all = block_max<CLASSIFIER_THREADS>(top);
    const bool any = top != -INFINITY;                   // a thread may have no value
    sum = block_sum<CLASSIFIER_THREADS>(any ? sum * exp_(top - all) : 0.0f);
    if (threadIdx.x == 0) {
        const float loss = log_(sum) - (x_y - all);
        losses[blockIdx.x] = select_or_zero(counts, loss);
    }
    if (dloss == 0 && cap == 0) { return; }

    const float f = counts ? dloss / sum : 0.0f;
    FOR_STRIDE(v, threadIdx.x * N, V, CLASSIFIER_THREADS * N) {
        Floats<N> l = Floats<N>::load(kept + v);
        UNROLL(i, N) {
            const float logit = capped(l[i]);
            const float part = logit / cap;
            const float slope = cap != 0 ? 1.0f - part * part : 1.0f;
            const float p = number(exp_(Elem(logit - all))) * f;
            const float is_target = select_or_zero(v + i == y, dloss);
            const float d = select_or_zero(counts, (p - is_target) * slope);
            l[i] = dloss == 0 ? logit : d;
        }
        Floats<N>::store(x + v, l);
    }
}

inline void classifier(acc* losses, real* logits, const int* targets, float dloss, float cap, int N,
                       int V) {
    const size_t row = (size_t)V * sizeof(real);
    const dim3 threads(CLASSIFIER_THREADS);
    const bool ok = wide(V, { logits });
    if (ok && row + 256 <= (size_t)SMEM_MOST) { // 256 bytes for block_max and block_sum
        LAUNCH((classifier_kernel<VN, true>), dim3(N), threads, row, losses, logits, targets,
               dloss, cap, V);
    } else if (ok) {
        LAUNCH((classifier_kernel<VN, false>), dim3(N), threads, 0, losses, logits, targets,
               dloss, cap, V);
    } else {
        LAUNCH((classifier_kernel<1, false>), dim3(N), threads, 0, losses, logits, targets, dloss,
               cap, V);
    }
}
} // namespace cuda
#endif // CUDA_OPS_CUH
