/*
attention_common.cu -- what attention and its metrics do in the same way for every variant: the
gradients of the extra key, dk and dv of the panels, the means of the metrics. Compiled once for
all variants, with the program.
*/
#include "attention_score.cuh"
#include "metric_sums.cuh"
#include "rope.cuh"
#include "sums.cuh"

namespace cuda {
// ----------------------------------------------------------------------------
// The extra key.

// Sums scale ds* q and A* do over EXTRA_ROWS queries of a head, for dk* and dv*:
// part_k, part_v (B NH / KV, blocks of a head, KV, HS).
enum { EXTRA_THREADS = 128 };
__global__ void __launch_bounds__(EXTRA_THREADS)
    attention_dextra_kernel(float* part_k, float* part_v, const real* dout, RowStats r,
                           const real* qkv, AttnShape s) {
    const int G = group_size(s);
    const int b = blockIdx.x / s.NH;
    const int h = blockIdx.x % s.NH;
    const int t0 = blockIdx.y * EXTRA_ROWS;
    const int t1 = min(s.T, t0 + EXTRA_ROWS);
    const long group = (long)b * G + h % G;
    const long block = group * gridDim.y + blockIdx.y;
    const long part = (block * s.KV + kv_head(s, h)) * s.HS;
    FOR_STRIDE(c, threadIdx.x, s.HS, EXTRA_THREADS) {
        float dk = 0, dv = 0;
        for (int t = t0; t < t1; t++) {
            const long row = row_at(s, b, h, t);
            const float q = (float)query_at(qkv, s, b, t, h)[c];
            const float d = (float)dout[out_at(s, b, t, h) + c];
            dk += r.ds_star[row] * q;
            dv += r.w_star[row] * d;
        }
        part_k[part + c] = dk * (float)s.scale;
        part_v[part + c] = dv;
    }
}

// Adds the sums of ds* over all queries to dz (NH or 1), a block for each.
__global__ void __launch_bounds__(EXTRA_THREADS)
    attention_dlogit_kernel(acc* dz, RowStats r, AttnShape s) {
    const int heads = s.bias_shared ? s.NH : 1;
    float sum = 0;
    for (int b = 0; b < s.B; b++) {
        const float* ds = r.ds_star + row_at(s, b, blockIdx.x, 0);
        FOR_STRIDE(i, threadIdx.x, heads * s.T, EXTRA_THREADS) { sum += ds[i]; }
    }
    sum = block_sum<EXTRA_THREADS>(sum);
    if (threadIdx.x == 0) { dz[blockIdx.x] += sum; }
}

void attention_extra_backward(ExtraKind extra, ExtraKey<acc> dextra, float* part, const real* dout,
                             RowStats r, const AttnInputs& in) {
    const AttnShape& s = in.s;
    const int blocks = CEIL_DIV(s.T, EXTRA_ROWS);
    long rows = extra_parts(s);
    int columns = s.KV * s.HS;
    float* part_k = part;
    float* part_v = part + rows * columns;
    if (extra != LOGIT_EXTRA || dextra.v) {
        LAUNCH(attention_dextra_kernel, dim3(s.B * s.NH, blocks), dim3(EXTRA_THREADS), 0, part_k,
               part_v, dout, r, in.qkv, s);
    }
    if (s.bias_shared) {   // the same floats, read as (parts KV, HS)
        rows *= s.KV;
        columns = s.HS;
    }
    if (extra == LOGIT_EXTRA && dextra.k) {
        const int logits = s.bias_shared ? 1 : s.NH;
        LAUNCH(attention_dlogit_kernel, dim3(logits), dim3(EXTRA_THREADS), 0, dextra.k, r, s);
    } else if (dextra.k) {
        column_sum_part(dextra.k, part_k, rows, columns, s.HS, s.k_dims);
    }
    if (dextra.v) { column_sum(dextra.v, part_v, rows, columns, columns); }
}

// ----------------------------------------------------------------------------
// The way back from panels.

// Rounds dk and dv of key head g, sequences b0.., into rows of dqkv: a block each.
enum { PANEL_KEY_THREADS = 128 };
__global__ void __launch_bounds__(PANEL_KEY_THREADS)
    attention_panel_keys_kernel(real* dqkv, const float* dk, const float* dv, int b0, int g,
                                AttnShape s) {
    const long row = blockIdx.x;
    const long from = row * s.HS;
    real* dqkv_j = dqkv + qkv_at(s, b0, 0, 0) + row * attn_row(s);
    real* dk_j = dqkv_j + key_head(s, g) * s.HS;
    real* dv_j = dqkv_j + value_head(s, g) * s.HS;
    FOR_STRIDE(i, threadIdx.x, s.HS, PANEL_KEY_THREADS) {
        dk_j[i] = real(dk[from + i]);
        dv_j[i] = real(dv[from + i]);
    }
}

void attention_panel_keys(real* dqkv, const float* dk, const float* dv, int b0, int count, int g,
                          const AttnShape& s) {
    LAUNCH(attention_panel_keys_kernel, dim3(count * s.T), dim3(PANEL_KEY_THREADS), 0, dqkv, dk, dv,
           b0, g, s);
}

void attention_turn_back(real* dqkv, const acc* rope_table, const AttnShape& s) {
    rope(dqkv, rope_table, -1, s);
}

// ----------------------------------------------------------------------------
// The metrics of heads.

// Tells whether a metric is a mean over queries.
DEVICE bool metric_is_mean(int metric) {
    #define X(field, over, ...) if (metric == METRIC_##field) { return over != QUERY_SUM; }
    HEAD_METRICS(X)
    #undef X
    return false;
}

// Returns sum i of a head, in the order of HeadMetrics, as what it is there: a mean over `rows`
// queries, or over those that may see token k.
DEVICE float mean_of(float sum, int i, int rows, int skip, bool has_extra) {
    if (i >= FIRST_METRIC) {
        return metric_is_mean(i - FIRST_METRIC) ? sum / rows : sum;
    }
    const int k = i % (METRIC_K + 1);                // 0: the extra key, or the sink token
    if (k > rows) { return 0; }
    if (k > 0) { return sum / (rows - k + 1); }
    const int own_query = has_extra ? 1 : 0;         // the extra key's own query is one-hot
    return has_extra || skip ? (sum + own_query) / (rows + 1) : 0.0f;
}

// Makes the means of a head in a sequence, a block each. A warp adds every eighth query, then one
// warp adds the eight sums: always in this order.
enum { METRIC_WARPS = 8 };
__global__ void __launch_bounds__(32 * METRIC_WARPS)
attention_metrics_mean_kernel(HeadMetrics* out, const float* sums, int skip, bool has_extra,
                              int T) {
    SMEM(float[METRIC_WARPS][METRIC_SUMS], part);
    const int warp = warp_id();
    const int lane = lane_id();
    const float* sums_of_head = sums + (long)blockIdx.x * T * METRIC_SUMS;
    float total = 0;
    for (int t = warp; lane < METRIC_SUMS && t < T; t += METRIC_WARPS) {
        total += sums_of_head[(long)t * METRIC_SUMS + lane];
    }
    if (lane < METRIC_SUMS) { part[warp][lane] = total; }
    __syncthreads();
    if (threadIdx.x >= METRIC_SUMS) { return; }
    for (int w = 1; w < METRIC_WARPS; w++) { total += part[w][lane]; }
    float* mean = (float*)(out + blockIdx.x) + lane;
    *mean = mean_of(total, lane, T - skip, skip, has_extra);
}

void attention_metrics_mean(HeadMetrics* out, int heads, const float* sums, int skip,
                            bool has_extra, int T) {
    LAUNCH(attention_metrics_mean_kernel, dim3(heads), dim3(32 * METRIC_WARPS), 0, out, sums, skip,
           has_extra, T);
}
} // namespace cuda
