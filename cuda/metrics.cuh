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
// lane k keeps the alpha of token k, lane 0 that of the extra key.
template <class A, class Bi, class Pe>
__global__ void __launch_bounds__(32 * ROW_WARPS, 1)
    attention_metrics_kernel(float* sums, const float* dots, MetricInputs in, Panel x) {
    const AttnShape& s = in.attn.s;
    const int n = warp_number();
    const int lane = lane_id();
    const int skip = in.skip;
    if (!x.has(n)) { return; }
    const int b = x.sequence(n);
    const int t = x.query(n);
    const AttnStat<float> st = stat_at(in.stat, row_at(s, b, x.h, t));
    const PanelScores<A, Pe> score(dots, x, n, s);
    float w_star = 0;
    if (Bi::extra) {
        const real* q = query_at(in.attn.qkv, s, b, t, x.h);
        const float s_star = extra_score<A, Bi>(q, in.attn.extra.k, x.h, s);
        w_star = attn_weight<A>(s_star, st, s.clip);
    }
    auto weight = [&](int j) {                      // -1: of the extra key
        if (j < 0) { return w_star; }
        if (j < x.j0 || j >= x.j1) { return 0.0f; } // a panel has all keys that its queries see
        return attn_weight<A>(score(j - x.j0), st, s.clip);
    };
    float sum = 0;
    float sum_abs = select_or_zero(lane == 0, fabsf(w_star));
    float wlogw = x_log_x(sum_abs);
    FOR_STRIDE(j, x.j0 + lane, x.j1, 32) {
        const float w = weight(j);
        sum += select_or_zero(j >= skip, w);
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
        const bool has_alpha = lane == 0 || t - skip + 1 >= lane;
        const float own = has_alpha ? weight(skip + lane - 1) : 0.0f;
        out[lane] = own;
        out[METRIC_K + 1 + lane] = fabsf(own) * inv;
    }
    float mean = 0, low = 0;                         // of the gate of this query
    const long gate_row = ((long)b * s.T + t) * s.NH + x.h;
    const real* gate = in.gate.values + gate_row * in.gate.width;
    const int width = in.gate.values ? in.gate.width : 0;
    FOR_LANES(i, width) {
        const float g = sigmoid_((float)gate[i]);
        mean += g / width;
        low += (g < 0.1f) / (float)width;
    }
    mean = warp_sum(mean);
    low = warp_sum(low);
    const float first = weight(skip);
    if (lane == 0) { // the sink token's own query does not count
        const bool real_query = t >= skip;
        float* metric = out + FIRST_METRIC;
        const float entropy = logf(sum_abs) - wlogw * inv;   // of P = |w| / sum_abs
        metric[METRIC_mass] = select_or_zero(real_query, sum);
        metric[METRIC_entropy] = select_or_zero(real_query && inv != 0, entropy);
        metric[METRIC_effective] = select_or_zero(real_query, mean * first);
        metric[METRIC_gate] = select_or_zero(real_query, mean);
        metric[METRIC_gate_low] = select_or_zero(real_query, low);
        metric[METRIC_gate_first] = select_or_zero(t == skip, mean);
    }
}

template <class A, class Bi, class Pe>
void attention_metrics(HeadMetrics* out, const real* qkv, const acc* stat,
                       ExtraKey<const real> extra, HeadGate<const real> gate, int skip,
                       AttnShape s) {
    const Panel most = panel_most(s);
    const MetricInputs in = { { qkv, extra, s }, stat, gate, skip };
    const long queries = (long)most.count * s.NH * s.T;
    const long floats = most.floats() + queries * METRIC_SUMS;
    float* dots = (float*)device_scratch(floats * sizeof(float));
    float* sums = dots + most.floats();
    for (int b = 0, count; b < s.B; b += count) {
        count = panel_at(s, b, 0, 0).count;
        for (int h = 0; h < s.NH; h++) {
            const Matrix q = qkv_columns(qkv, h, s);
            const Matrix k = qkv_columns(qkv, key_head(s, kv_head(s, h)), s);
            for (const Panel& x : head_panels(s, b, h)) {
                panel_dots(dots, q, k, x, s);
                LAUNCH_WARPS((attention_metrics_kernel<A, Bi, Pe>), x.count * x.queries(), sums,
                             dots, in, x);
            }
        }
        attention_metrics_mean(out + (long)b * s.NH, count * s.NH, sums, skip, Bi::extra, s.T);
    }
}
} // namespace cuda
#endif // CUDA_METRICS_CUH
