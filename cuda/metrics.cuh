/*
metrics.cuh -- what ../metrics.cuh measures of heads, as kernels. Of the residual stream:
magnitudes.cuh.
*/
#ifndef CUDA_METRICS_CUH
#define CUDA_METRICS_CUH
#include "attention_panels.cuh"
#include "metric_sums.cuh"

namespace cuda {
// Returns x log x, and 0 for 0.
DEVICE float x_log_x(float x) { return x > 0 ? x * logf(x) : 0.0f; }

// What the metrics of heads are computed from.
struct MetricInputs {
    AttnInputs attn;
    const acc* stat;
    HeadGate<const real> gate;
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
    const real* gate = in.gate.values + (((long)b * s.T + t) * s.NH + x.h) * in.gate.width;
    const int width = in.gate.values ? in.gate.width : 0;
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

template <class A, class Bi, class Pe>
void attention_metrics(HeadMetrics* out, const real* qkv, const acc* stat,
                       StarColumn<const real> star, HeadGate<const real> gate, int skip,
                       AttnShape s) {
    const int W = attn_row(s);
    const Panel most = panel_at(s, 0, 0, 0); // no later one is larger
    const MetricInputs in = { { qkv, star.k, star.v, s }, stat, gate, skip };
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
        attention_metrics_mean(out + (long)b * s.NH, count * s.NH, sums, skip, Bi::column, s.T);
    }
}

} // namespace cuda
#endif // CUDA_METRICS_CUH
