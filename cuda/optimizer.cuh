/*
optimizer.cuh -- sums of a step, and the optimizers.
*/
#ifndef CUDA_OPTIMIZER_CUH
#define CUDA_OPTIMIZER_CUH
#include "../reference.h"
#include "rows.cuh"

namespace cuda {
// What a block of 256 threads takes of n numbers, to add up their squares.
enum { SQUARE_BLOCK = 1 << 14 };
struct SquareBlock {
    long first, end;       // the thread's first number; the end of the block's
    DEVICE SquareBlock(long n) {
        const long begin = (long)blockIdx.x * SQUARE_BLOCK;
        first = begin + threadIdx.x;
        end = min(n, begin + SQUARE_BLOCK);
    }
};
inline int square_blocks(long n) { return CEIL_DIV(n, (long)SQUARE_BLOCK); }

__global__ void __launch_bounds__(256) square_norm_kernel(double* part, const acc* x, long n) {
    const SquareBlock block(n);
    double sum = 0;
    for (long i = block.first; i < block.end; i += 256) { sum += (double)x[i] * x[i]; }
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
    const int blocks = square_blocks(n);
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

// What an update changes besides the parameters. v: NULL for SGD.
struct Masters {
    acc *master, *m, *v;
};

// Updates N elements at a time by either optimizer; c1, c2 are Adam's bias corrections.
template <bool ADAM, int N>
__global__ void __launch_bounds__(ROW_THREADS)
    update_kernel(real* params, Masters to, const acc* grads, const StepSums* sums, Update o,
                  float c1, float c2, long n) {
    const float scale = sums->grad_scale;
    if (isnan(scale)) { return; }
    FOR_FLAT(i, N, n) {
        const Floats<N> g = Floats<N>::load_floats(grads + i);
        Floats<N> w = Floats<N>::load_floats(to.master + i);
        Floats<N> m = Floats<N>::load_floats(to.m + i);
        Floats<N> v;
        if (ADAM) { v = Floats<N>::load_floats(to.v + i); }
        UNROLL(k, N) {
            const float g_k = g[k] * scale;
            float step;
            if (ADAM) {
                m[k] = o.beta1 * m[k] + (1 - o.beta1) * g_k;
                v[k] = o.beta2 * v[k] + (1 - o.beta2) * g_k * g_k;
                const float root = sqrtf(v[k] * c2);
                step = m[k] * c1 / (root + o.eps);
            } else {
                m[k] = o.beta1 * m[k] + g_k;
                step = m[k];
            }
            w[k] -= o.lr * (step + o.weight_decay * w[k]);
        }
        Floats<N>::store_floats(to.m + i, m);
        if (ADAM) { Floats<N>::store_floats(to.v + i, v); }
        Floats<N>::store_floats(to.master + i, w);
        Floats<N>::store(params + i, w);
    }
}

template <bool ADAM>
void update(real* params, const Masters& to, const acc* grads, const StepSums* sums,
            const Update& o, float c1, float c2, long n) {
    if (n % 4 == 0 && wide(0, { params, to.master, to.m, to.v, grads })) {
        LAUNCH_FLAT(4, (update_kernel<ADAM, 4>), n, params, to, grads, sums, o, c1, c2, n);
    } else {
        LAUNCH_FLAT(1, (update_kernel<ADAM, 1>), n, params, to, grads, sums, o, c1, c2, n);
    }
}

inline void adamw_update(real* params, acc* master, acc* m, acc* v, const acc* grads,
                         const StepSums* sums, Update o, long n) {
    const float c1 = 1 / (1 - pow((double)o.beta1, o.step));
    const float c2 = 1 / (1 - pow((double)o.beta2, o.step));
    update<true>(params, { master, m, v }, grads, sums, o, c1, c2, n);
}

inline void sgd_update(real* params, acc* master, acc* m, acc* v, const acc* grads,
                       const StepSums* sums, Update o, long n) {
    update<false>(params, { master, m, v }, grads, sums, o, 0.0f, 0.0f, n);
}

__global__ void __launch_bounds__(ROW_THREADS)
    average_kernel(acc* mean, const acc* x, float part, long n) {
    FOR_FLAT(i, 1, n) { mean[i] = (1 - part) * mean[i] + part * x[i]; }
}

inline void average(acc* mean, const acc* x, acc part, long n) {
    LAUNCH_FLAT(1, average_kernel, n, mean, x, part, n);
}

// Computes Muon's m = beta m + g, and in part (blocks) the squares of u = g + beta m.
__global__ void __launch_bounds__(256)
    muon_momentum_kernel(double* part, acc* m, const acc* grads, const StepSums* sums, long n) {
    const SquareBlock block(n);
    const float beta = MUON_BETA;
    const float scale = sums->grad_scale;
    if (isnan(scale)) { return; }
    double sum = 0;
    for (long k = block.first; k < block.end; k += 256) {
        const float g = grads[k] * scale;
        const float m_k = beta * m[k] + g;
        const float u = g + beta * m_k;
        m[k] = m_k;
        sum += (double)u * u;
    }
    sum = block_sum<256>(sum);
    if (threadIdx.x == 0) { part[blockIdx.x] = sum; }
}

// Adds up n of them, into part[0].
__global__ void __launch_bounds__(1024) muon_sum_kernel(double* part, int n) {
    double sum = 0;
    for (int i = threadIdx.x; i < n; i += 1024) { sum += part[i]; }
    sum = block_sum<1024>(sum);
    if (threadIdx.x == 0) { part[0] = sum; }
}

__global__ void __launch_bounds__(256)
    muon_begin_kernel(real* x, const acc* m, const acc* grads, const double* squares,
                      const StepSums* sums, int rows, int cols) {
    const float beta = MUON_BETA;
    const float scale = sums->grad_scale;
    if (isnan(scale)) { return; }
    const float by = 1 / (sqrt(*squares) + 1e-7);
    FOR_FLAT(k, 1, (long)rows * cols) {
        const float u = grads[k] * scale + beta * m[k];
        const long place = muon_place(k / cols, k % cols, rows, cols);
        x[place] = real(u * by);
    }
}

inline void muon_begin(real* x, acc* m, const acc* grads, const StepSums* sums, int rows,
                       int cols) {
    const long n = (long)rows * cols;
    const int blocks = square_blocks(n);
    double* part = (double*)device_scratch(blocks * sizeof(double));
    LAUNCH(muon_momentum_kernel, dim3(blocks), dim3(256), 0, part, m, grads, sums, n);
    LAUNCH(muon_sum_kernel, dim3(1), dim3(1024), 0, part, blocks);
    LAUNCH_FLAT(1, muon_begin_kernel, n, x, m, grads, part, sums, rows, cols);
}

__global__ void __launch_bounds__(256) muon_mix_kernel(real* aa, const real* a, int r) {
    FOR_FLAT(k, 1, (long)r * r) {
        const float identity = select_or_zero(k / r == k % r, MUON_A);    // a I + b A + c A A
        const float linear = MUON_B * (float)a[k];
        const float square = MUON_C * (float)aa[k];
        aa[k] = real(square + linear + identity);
    }
}

inline void muon_mix(real* aa, const real* a, int r) {
    LAUNCH_FLAT(1, muon_mix_kernel, (long)r * r, aa, a, r);
}

__global__ void __launch_bounds__(256)
    muon_end_kernel(real* params, acc* master, const real* x, const StepSums* sums, Update o,
                    float length, int rows, int cols) {
    if (isnan(sums->grad_scale)) { return; }
    FOR_FLAT(k, 1, (long)rows * cols) {
        const long place = muon_place(k / cols, k % cols, rows, cols);
        const float step = length * (float)x[place];
        const float w = master[k] - o.lr * (step + o.weight_decay * master[k]);
        master[k] = w;
        params[k] = real(w);
    }
}

inline void muon_end(real* params, acc* master, const real* x, const StepSums* sums, Update o,
                     int rows, int cols) {
    const float length = MUON_LENGTH * sqrt((double)std::max(rows, cols));
    LAUNCH_FLAT(1, muon_end_kernel, (long)rows * cols, params, master, x, sums, o, length, rows,
                cols);
}
} // namespace cuda
#endif // CUDA_OPTIMIZER_CUH
