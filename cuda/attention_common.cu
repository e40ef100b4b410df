/*
attention_common.cu -- what attention and its metrics do in the same way for every variant: the
gradients of the extra column, dk and dv of the panels, the means of the metrics. Compiled once for
all variants, with the program.
*/
#include "attention_score.cuh"
#include "metric_sums.cuh"
#include "rope.cuh"
#include "sums.cuh"

namespace cuda {
// ----------------------------------------------------------------------------
// The extra column.

// Sums scale ds* q and A* do over STAR_ROWS queries of a head, for dk* and dv*:
// part_k, part_v (B NH / KV, blocks of a head, KV, HS).
enum { STAR_THREADS = 128 };
__global__ void __launch_bounds__(STAR_THREADS)
    attention_dstar_kernel(float* part_k, float* part_v, const real* dout, RowStats r,
                           const real* qkv, AttnShape s) {
    const int G = s.NH / s.KV, b = blockIdx.x / s.NH, h = blockIdx.x % s.NH, g = h / G;
    const int t0 = blockIdx.y * STAR_ROWS, t1 = min(s.T, t0 + STAR_ROWS);
    const long group = b * G + h % G, part = (group * gridDim.y + blockIdx.y) * s.KV + g;
    for (int c = threadIdx.x; c < s.HS; c += STAR_THREADS) {
        float dk = 0, dv = 0;
        for (int t = t0; t < t1; t++) {
            const long row = row_at(s, b, h, t);
            dk += r.ds_star[row] * (float)query_at(qkv, s, b, t, h)[c];
            dv += r.w_star[row] * (float)dout[out_at(s, b, t, h) + c];
        }
        part_k[part * s.HS + c] = dk * (float)s.scale;
        part_v[part * s.HS + c] = dv;
    }
}

// Adds the sums of ds* over all queries to dz (NH or 1), a block for each.
__global__ void __launch_bounds__(STAR_THREADS)
    attention_dlogit_kernel(acc* dz, RowStats r, AttnShape s) {
    const int heads = s.bias_shared ? s.NH : 1;
    float sum = 0;
    for (int b = 0; b < s.B; b++) {
        const float* ds = r.ds_star + row_at(s, b, blockIdx.x, 0);
        for (int i = threadIdx.x; i < heads * s.T; i += STAR_THREADS) { sum += ds[i]; }
    }
    sum = block_sum<STAR_THREADS>(sum);
    if (threadIdx.x == 0) { dz[blockIdx.x] += sum; }
}

void attention_star_backward(Column column, acc* dkstar, acc* dvstar, float* part, const real* dout,
                             RowStats r, const AttnInputs& in) {
    const AttnShape& s = in.s;
    const long parts = star_parts(s), width = s.KV * s.HS;
    float *part_k = part, *part_v = part + parts * width;
    LAUNCH(attention_dstar_kernel, dim3(s.B * s.NH, CEIL_DIV(s.T, STAR_ROWS)), dim3(STAR_THREADS),
           0, part_k, part_v, dout, r, in.qkv, s);
    // where all heads share k* and v*, the same floats are read as (parts KV, HS)
    const long rows = s.bias_shared ? parts * s.KV : parts;
    const int columns = s.bias_shared ? s.HS : width;
    if (column == LOGIT_COLUMN && dkstar) {
        LAUNCH(attention_dlogit_kernel, dim3(s.bias_shared ? 1 : s.NH), dim3(STAR_THREADS), 0,
               dkstar, r, s);
    } else if (dkstar) {
        column_sum_part(dkstar, part_k, rows, columns, s.HS, s.k_dims);
    }
    if (dvstar) { column_sum(dvstar, part_v, rows, columns, columns); }
}
// ----------------------------------------------------------------------------
// The way back from panels.

// Rounds dk and dv of key head g, sequences b0.., into rows of dqkv: a block each.
enum { PANEL_KEY_THREADS = 128 };
__global__ void __launch_bounds__(PANEL_KEY_THREADS)
    attention_panel_keys_kernel(real* dqkv, const float* dk, const float* dv, int b0, int g,
                                AttnShape s) {
    const long row = blockIdx.x, from = row * s.HS;
    real* dk_j = dqkv + ((long)b0 * s.T + row) * attn_row(s) + (s.NH + g) * s.HS;
    real* dv_j = dk_j + s.KV * s.HS;
    for (int i = threadIdx.x; i < s.HS; i += PANEL_KEY_THREADS) {
        dk_j[i] = real(dk[from + i]);
        dv_j[i] = real(dv[from + i]);
    }
}

void attention_panel_keys(real* dqkv, const float* dk, const float* dv, int b0, int count, int g,
                          const AttnShape& s) {
    LAUNCH(attention_panel_keys_kernel, dim3(count * s.T), dim3(PANEL_KEY_THREADS), 0, dqkv, dk, dv,
           b0, g, s);
}

void attention_turn_back(real* dqkv, const acc* turns, const AttnShape& s) {
    rope(dqkv, turns, -1, s);
}

// ----------------------------------------------------------------------------
// The metrics of heads.

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

void attention_metrics_mean(HeadMetrics* out, int heads, const float* sums, int skip, bool column,
                            int T) {
    LAUNCH(attention_metrics_mean_kernel, dim3(heads), dim3(32 * METRIC_WARPS), 0, out, sums, skip,
           column, T);
}
} // namespace cuda
