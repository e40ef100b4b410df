/*
metrics.cuh -- the measurements of ../metrics.cuh as kernels.
*/
#ifndef CUDA_METRICS_CUH
#define CUDA_METRICS_CUH
#include "../metrics.cuh"
#include "ops.cuh"

namespace cuda {
// The metrics of heads go by panels, as attention without tensor cores does. cuBLAS computes the
// dot products of some hundred queries of one head. One kernel turns each query's row into what it
// adds to the sums of its head, another adds these up.
enum {
    FIRST_METRIC = 2 * (METRIC_K + 1),
    METRIC_SUMS = FIRST_METRIC + HEAD_METRIC_COUNT,
    METRIC_WARPS = 8
};
static_assert(sizeof(HeadMetrics) == METRIC_SUMS * sizeof(float),
              "sums are in the order of HeadMetrics");
static_assert(METRIC_SUMS <= 32, "a lane for each sum");

// Returns x log x, and 0 for 0.
DEVICE float x_log_x(float x) { return x > 0 ? x * logf(x) : 0.0f; }

// What the metrics of heads are computed from.
struct MetricInputs {
    AttnInputs attn;
    const acc* stat;
    const real* gate;      // (B, T, NH, width), or NULL
    int width;
    int skip;              // of a sequence's first tokens: the sink token, which is no query
};

// Makes the sums of each query, (count, NH, T, METRIC_SUMS), of its dot products. A warp per query;
// lane k keeps the alpha of token k, lane 0 that of the extra column.
template <class A, class Bi, class Pe>
__global__ void __launch_bounds__(32 * ROW_WARPS, 1)
    attention_metrics_kernel(float* sums, const float* dots, MetricInputs in, Panel x) {
    const AttnShape& s = in.attn.s;
    const int n = warp_number(), lane = threadIdx.x % 32, rows = x.queries(), skip = in.skip;
    if (n >= x.count * rows) { return; }
    const int b = x.b + n / rows, t = x.t0 + n % rows;
    const float* dots_t = dots + (long)n * x.ld;
    const acc* st = in.stat + row_at(s, b, x.h, t) * 2;
    const float stat0 = st[0], stat1 = st[1];
    const float scale = s.scale, slope = pe_slope<Pe>(s, x.h);
    float w_star = 0;
    if (Bi::column) {
        const real* q = query_at(in.attn.qkv, s, b, t, x.h);
        w_star = attn_weight<A>(star_score<A, Bi>(q, in.attn.kstar, x.h, s), stat0, stat1);
    }
    auto weight = [&](int j) {                      // -1: of the extra column
        if (j < 0) { return w_star; }
        if (j < x.j0 || j >= x.j1) { return 0.0f; } // a panel has all keys that its queries see
        const float score = attn_score<A, Pe>(dots_t[j - x.j0], scale, t, j, slope, s);
        return attn_weight<A>(score, stat0, stat1);
    };
    float sum = 0, sum_abs = lane == 0 ? fabsf(w_star) : 0.0f, wlogw = x_log_x(sum_abs);
    for (int j = x.j0 + lane; j < x.j1; j += 32) {
        const float w = weight(j);
        sum += j >= skip ? w : 0.0f;
        sum_abs += fabsf(w);
        wlogw += x_log_x(fabsf(w));
    }
    sum = warp_sum(sum);
    sum_abs = warp_sum(sum_abs);
    wlogw = warp_sum(wlogw);
    const float inv = sum_abs > 0 ? 1 / sum_abs : 0;
    float* out = sums + row_at(s, b - x.b, x.h, t) * METRIC_SUMS;
    if (lane <= METRIC_K) {
        // a query has an alpha of token k if it stands at k or later
        const float own = lane == 0 || t - skip + 1 >= lane ? weight(skip + lane - 1) : 0.0f;
        out[lane] = own;
        out[METRIC_K + 1 + lane] = fabsf(own) * inv;
    }
    float mean = 0, low = 0;                         // of the gate of this query
    const real* gate = in.gate + (((long)b * s.T + t) * s.NH + x.h) * in.width;
    const int width = in.gate ? in.width : 0;
    FOR_LANES(i, width) {
        const float g = 1.0f / (1.0f + expf(-(float)gate[i]));
        mean += g / width;
        low += (g < 0.1f) / (float)width;
    }
    mean = warp_sum(mean);
    low = warp_sum(low);
    const float first = weight(skip);
    if (lane == 0) { // the sink token's own query is no real query
        const bool real_query = t >= skip;
        float* metric = out + FIRST_METRIC;
        metric[METRIC_mass] = real_query ? sum : 0.0f;
        // P = |w| / sum_abs
        metric[METRIC_entropy] = real_query && inv != 0 ? logf(sum_abs) - wlogw * inv : 0.0f;
        metric[METRIC_effective] = real_query ? mean * first : 0.0f;
        metric[METRIC_gate] = real_query ? mean : 0.0f;
        metric[METRIC_gate_low] = real_query ? low : 0.0f;
        metric[METRIC_gate_first] = t == skip ? mean : 0.0f;
    }
}

// Makes the means of a head in a sequence, a block each. A warp adds every eighth query, then one
// warp adds the eight sums: always in this order.
__global__ void __launch_bounds__(32 * METRIC_WARPS)
attention_metrics_mean_kernel(HeadMetrics* out, const float* sums, int skip, bool column, int T) {
    SMEM(float[METRIC_WARPS][METRIC_SUMS], part);
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, rows = T - skip,
              i = lane % (METRIC_K + 1);
    float total = 0;
    for (int t = warp; lane < METRIC_SUMS && t < T; t += METRIC_WARPS) {
        total += sums[((long)blockIdx.x * T + t) * METRIC_SUMS + lane];
    }
    if (lane < METRIC_SUMS) { part[warp][lane] = total; }
    __syncthreads();
    if (threadIdx.x >= METRIC_SUMS) { return; }
    for (int w = 1; w < METRIC_WARPS; w++) { total += part[w][lane]; }
    float* o = (float*)(out + blockIdx.x) + lane;
    if (lane >= FIRST_METRIC) {
        *o = metric_is_mean(lane - FIRST_METRIC) ? total / rows : total;
    } else if (i > 0) {
        *o = i <= rows ? total / (rows - i + 1) : 0.0f;
    } else if (column) {
        *o = (total + 1) / (rows + 1);       // the extra column's own query is one-hot
    } else {
        *o = skip ? total / (rows + 1) : 0.0f;
    }
}

template <class A, class Bi, class Pe>
void attention_metrics(HeadMetrics* out, const real* qkv, const acc* stat, const real* kstar,
                       const real* gate, int width, int skip, AttnShape s) {
    const int W = attn_row(s);
    const Panel most = panel_at(s, 0, 0, 0); // no later one is larger
    const MetricInputs in = { { qkv, kstar, NULL, s }, stat, gate, width, skip };
    const long size = most.floats(), size_sums = (long)most.count * s.NH * s.T * METRIC_SUMS;
    float* dots = (float*)device_scratch((size + size_sums) * sizeof(float));
    float* sums = dots + size;
    for (int b = 0, count; b < s.B; b += count) {
        count = panel_at(s, b, 0, 0).count;
        for (int h = 0; h < s.NH; h++) {
            for (int t0 = 0; t0 < s.T; t0 += PANEL_ROWS) {
                const Panel x = panel_at(s, b, h, t0);
                const real *q = head_q(qkv, s, 0, h), *k = head_k(qkv, s, 0, kv_head(s, h));
                panel_dots(dots, { q, W }, { k, W }, x, s);
                LAUNCH_WARPS((attention_metrics_kernel<A, Bi, Pe>), x.count * x.queries(), sums,
                             dots, in, x);
            }
        }
        LAUNCH(attention_metrics_mean_kernel, dim3(count * s.NH), dim3(32 * METRIC_WARPS), 0,
               out + (long)b * s.NH, sums, skip, Bi::column, s.T);
    }
}

// Computes norms of `len` numbers, a warp each.
__global__ void __launch_bounds__(128)
    row_norms_kernel(acc* out, const real* x, int stride, int len, int G, long n) {
    const long i = warp_number();
    if (i >= n) { return; }
    const real* y = x + i / G * stride + i % G * len;
    float sum = 0;
    FOR_LANES(c, len) { sum += (float)y[c] * (float)y[c]; }
    sum = warp_sum(sum);
    if (threadIdx.x % 32 == 0) { out[i] = sqrtf(sum); }
}

inline void row_norms(acc* out, const real* x, int stride, int len, int G, int N) {
    const long n = (long)N * G;
    LAUNCH_WARPS(row_norms_kernel, n, out, x, stride, len, G, n);
}

// Finds the largest and the median magnitude of a sequence, a block each. The bits of floats >= 0
// are in the order of the floats, so the median is found bit by bit: it is the largest number that
// at most half of the values are below.
template <int N>
__global__ void __launch_bounds__(512)
    magnitudes_kernel(acc* out, const real* x, int skip, int T, int C) {
    const real* x_b = x + ((long)blockIdx.x * T + skip) * C;
    const long n = (long)(T - skip) * C;
    float top = 0;
    unsigned median = 0;
    // The first round finds the largest.
    for (int bit = 31; bit >= (sizeof(real) == 2 ? 16 : 0); bit--) {
        const float pivot = __uint_as_float(median | 1u << bit);
        double below = 0;
        for (long i = threadIdx.x * N; i < n; i += 512 * N) {
            const Vec<float, N> v = load_real<N>(x_b + i);
            for (int k = 0; k < N; k++) {
                const float size = fabsf(v[k]);
                if (bit == 31) {
                    top = max(top, size);
                } else {
                    below += size < pivot;
                }
            }
        }
        if (bit < 31 && block_sum<512>(below) <= n / 2) { median |= 1u << bit; }
    }
    top = block_max<512>(top);
    if (threadIdx.x == 0) {
        out[blockIdx.x * 2] = top;
        out[blockIdx.x * 2 + 1] = __uint_as_float(median);
    }
}

inline void magnitudes(acc* out, const real* x, int skip, int B, int T, int C) {
    LAUNCH_WIDE(wide(C, {x}), magnitudes_kernel, dim3(B), dim3(512), 0, out, x, skip, T, C);
}
} // namespace cuda
#endif // CUDA_METRICS_CUH
