/*
metrics.cuh -- what this program exists to measure, defined once. Formulas: Gu et al. 2024, section 3.2 and 7.4, and the
official code where the text is silent; A is the attention map of one head on one sequence, rows are queries,
1 <= k <= T.

    alpha_k     mean over queries i >= k of A_ik: how much of its audience's attention token k gets
    Sink_k      mean over sequences, layers, heads of [alpha_k > eps]: threshold first, then average; eps 0.3, T 64
    proxy       the same of |w_ij| / sum_j |w_ij|: for operations whose rows do not sum to 1
    star        the extra column or the sink token: the map is then (T+1) x (T+1), row and column 0 are the star's; the
                query row of an extra column is one-hot on itself
    mass        mean over queries of sum_j A_ij over the tokens (the extra column left out)
    entropy     mean over queries of -sum_j P_ij ln P_ij, P the proxy over all columns
    norms       l2 norms of hidden states, keys, values: the first token's and the mean of the others'
    max, median of the entries |h| of a sequence: the largest over the sequences, the mean of the medians

    1 one head           HeadMetrics, attention_metrics (cpu:: a row at a time; cuda::, after section 2, by panels)
    2 norms              row_norms, magnitudes
    3 reports            Sink_k and averages over heads, on the host
    4 maps               A, cosine and norm product of q and k, for chosen heads
*/
#ifndef METRICS_CUH
#define METRICS_CUH
#include "reference.h"

enum { METRIC_K = 10 }; // alpha_k is kept for k = 1..10

// ----------------------------------------------------------------------------
// 1 one head on one sequence
struct HeadMetrics {
    float alpha[METRIC_K + 1], proxy[METRIC_K + 1]; // [0] is the star, [k] token k
    float mass, entropy;
};
// do the rows of this map sum to 1 by construction? if not, Sink is computed from the proxy
template <class A> bool attn_sums_to_one(float alpha) { return A::Z == Z_SUM && alpha == 1.0f; }

namespace cpu {
// out (B, NH) <- qkv and stat of the forward pass; kstar as there; skip = 1 if row 0 is a sink token. O(T) a thread
template <class A, class Bi, class Pe>
void attention_metrics(HeadMetrics* out, const real* qkv, const acc* stat, const real* kstar, int skip, AttnShape s) {
    const int T = s.T, HS = s.HS, W = attn_row(s), G = s.NH / s.KV;
    const real scale = real(1) / sqrt(real(HS));
    #pragma omp parallel for schedule(dynamic)
    for (int bh = 0; bh < s.B * s.NH; bh++) {
        const int b = bh / s.NH, h = bh % s.NH, rows = T - skip;
        const real* x = qkv + (long)b * T * W;
        const real* k = x + (s.NH + h / G) * HS;
        const real* ks = attn_star(kstar, s, h / G);
        double alpha[METRIC_K + 1] = {}, proxy[METRIC_K + 1] = {}, mass = 0, entropy = 0;
        std::vector<double> weight(T + 1);                               // one row: star column, then the T keys
        for (int t = 0; t < T; t++) {
            const real* q = x + (long)t * W + h * HS;
            const acc* st = stat + ((long)bh * T + t) * 2;
            double sum_abs = 0, sum = 0, plogp = 0;
            weight[0] = 0;
            if (Bi::column) { weight[0] = attn_weight<A, real>(ks ? dot(q, ks, HS) * scale : real(0), st[0], st[1]); }
            for (int j = 0; j < T; j++) {
                weight[j + 1] = 0;
                if (!attn_sees(s, t, j)) { continue; }
                const real score = dot(q, k + (long)j * W, HS) * scale + Pe::template bias<real>(t - j, h, s.NH);
                weight[j + 1] = attn_weight<A, real>(score, st[0], st[1]);
            }
            for (int j = 0; j <= T; j++) { sum_abs += fabs(weight[j]); sum += j > skip ? weight[j] : 0; }
            const double inv = sum_abs > 0 ? 1 / sum_abs : 0;
            const int star = skip ? 1 : 0;                               // where the star's weight stands in this row
            alpha[0] += weight[star];
            proxy[0] += fabs(weight[star]) * inv;
            if (t < skip) { continue; }                                  // the sink token's own query is no real query
            for (int i = 1; i <= std::min<int>(METRIC_K, rows); i++) {
                if (t - skip + 1 < i) { continue; }                      // queries i >= k only, also with a prefix
                alpha[i] += weight[skip + i];
                proxy[i] += fabs(weight[skip + i]) * inv;
            }
            for (int j = 0; j <= T; j++) { const double P = fabs(weight[j]) * inv; if (P > 0) { plogp += P * log(P); } }
            mass += sum;
            entropy -= plogp;
        }
        HeadMetrics* o = out + bh;
        memset(o, 0, sizeof(*o));
        if (Bi::column || skip) {
            const int own = Bi::column ? 1 : 0, n = rows + 1;            // the extra column's one-hot query row
            o->alpha[0] = (alpha[0] + own) / n;
            o->proxy[0] = (proxy[0] + own) / n;
        }
        for (int i = 1; i <= std::min<int>(METRIC_K, rows); i++) {
            o->alpha[i] = alpha[i] / (rows - i + 1);
            o->proxy[i] = proxy[i] / (rows - i + 1);
        }
        o->mass = mass / rows;
        o->entropy = entropy / rows;
    }
}

// ----------------------------------------------------------------------------
// 2 norms: out (N, G) = l2 norm of x[n * stride + g * len .. + len]
inline void row_norms(acc* out, const real* x, int stride, int len, int G, int N) {
    #pragma omp parallel for
    for (int n = 0; n < N; n++) {
        for (int g = 0; g < G; g++) {
            const real* y = x + (long)n * stride + g * len;
            double sum = 0;
            for (int i = 0; i < len; i++) { sum += (double)y[i] * y[i]; }
            out[(long)n * G + g] = sqrt(sum);
        }
    }
}
// out (B, 2) = the largest and the median |x| of rows skip.. of each sequence of x (B, T, C); of an even number of values
// the median is the larger of the two in the middle
inline void magnitudes(acc* out, const real* x, int skip, int B, int T, int C) {
    #pragma omp parallel for
    for (int b = 0; b < B; b++) {
        std::vector<real> a;
        for (long i = ((long)b * T + skip) * C; i < (long)(b + 1) * T * C; i++) { a.push_back(x[i] < 0 ? -x[i] : x[i]); }
        std::nth_element(a.begin(), a.begin() + a.size() / 2, a.end());
        out[b * 2] = *std::max_element(a.begin(), a.end());
        out[b * 2 + 1] = a[a.size() / 2];
    }
}
} // namespace cpu

#if defined(__CUDACC__) || defined(EMU)
#include "cuda_ops.cuh"
namespace cuda {
// By panels, as the attention without tensor cores: cuBLAS makes the dot products of some hundred queries of one head,
// one kernel makes of each query's row what it adds to the sums of its head, another adds these up.
enum { METRIC_SUMS = 2 * (METRIC_K + 1) + 2, METRIC_WARPS = 8 };         // alpha, proxy, mass, entropy
static_assert(sizeof(HeadMetrics) == METRIC_SUMS * sizeof(float), "sums stand in the order of HeadMetrics");
static_assert(METRIC_SUMS <= 32, "a lane for each sum");
DEVICE float x_log_x(float x) { return x > 0 ? x * logf(x) : 0.0f; }

// sums (count, NH, T, METRIC_SUMS) <- dots. A warp per query; lane k keeps the alpha of token k, lane 0 the star's
template <class A, class Bi, class Pe> __global__ void __launch_bounds__(128, 1)
attention_metrics_kernel(float* sums, const float* dots, const real* qkv, const acc* stat, const real* kstar, int skip,
                         Panel x, AttnShape s) {
    const int n = blockIdx.x * 4 + threadIdx.x / 32, lane = threadIdx.x % 32, rows = x.t1 - x.t0;
    if (n >= x.count * rows) { return; }
    const int b = x.b + n / rows, t = x.t0 + n % rows;
    const float scale = 1.0f / sqrtf((float)s.HS), *dots_t = dots + (long)n * x.ld;
    const acc* st = stat + (((long)b * s.NH + x.h) * s.T + t) * 2;
    const float stat0 = st[0], stat1 = st[1];
    float w_star = 0;
    if (Bi::column) {
        const real *q = head_q(qkv, s, b, x.h) + (long)t * attn_row(s), *ks = attn_star(kstar, s, x.h / (s.NH / s.KV));
        w_star = attn_weight<A>(warp_dot(q, ks, s.HS) * scale, stat0, stat1);
    }
    auto weight = [&](int j) {                                           // -1: the extra column
        if (j < 0) { return w_star; }
        if (j < x.j0 || j >= x.j1) { return 0.0f; }                      // a panel has all keys that its queries see
        return attn_weight<A>(attn_score<A, Pe>(dots_t[j - x.j0], scale, false, t, j, x.h, s), stat0, stat1);
    };
    float sum = 0, sum_abs = lane == 0 ? fabsf(w_star) : 0.0f, wlogw = x_log_x(sum_abs);
    for (int j = x.j0 + lane; j < x.j1; j += 32) {
        const float w = weight(j);
        sum += j >= skip ? w : 0.0f;
        sum_abs += fabsf(w);
        wlogw += x_log_x(fabsf(w));
    }
    sum = warp_sum(sum); sum_abs = warp_sum(sum_abs); wlogw = warp_sum(wlogw);
    const float inv = sum_abs > 0 ? 1 / sum_abs : 0;
    float* out = sums + (((long)(b - x.b) * s.NH + x.h) * s.T + t) * METRIC_SUMS;
    if (lane <= METRIC_K) {
        const float own = lane == 0 || t - skip + 1 >= lane ? weight(skip + lane - 1) : 0.0f;   // queries i >= k
        out[lane] = own;
        out[METRIC_K + 1 + lane] = fabsf(own) * inv;
    }
    if (lane == 0) {                                                     // the sink token's own query is no real query
        out[METRIC_SUMS - 2] = t < skip ? 0.0f : sum;
        out[METRIC_SUMS - 1] = t < skip || inv == 0 ? 0.0f : logf(sum_abs) - wlogw * inv;  // P = |w| / sum_abs
    }
}
// a block per head and sequence; each warp adds every eighth query, then one adds the eight: always in this order
__global__ void __launch_bounds__(32 * METRIC_WARPS)
attention_metrics_mean_kernel(HeadMetrics* out, const float* sums, int skip, bool column, int T) {
    SMEM(float[METRIC_WARPS][METRIC_SUMS], part);
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, rows = T - skip, i = lane % (METRIC_K + 1);
    float total = 0;
    for (int t = warp; lane < METRIC_SUMS && t < T; t += METRIC_WARPS) {
        total += sums[((long)blockIdx.x * T + t) * METRIC_SUMS + lane];
    }
    if (lane < METRIC_SUMS) { part[warp][lane] = total; }
    __syncthreads();
    if (threadIdx.x >= METRIC_SUMS) { return; }
    for (int w = 1; w < METRIC_WARPS; w++) { total += part[w][lane]; }
    float* o = (float*)(out + blockIdx.x) + lane;
    if (lane >= METRIC_SUMS - 2) { *o = total / rows; }
    else if (i > 0)         { *o = i <= rows ? total / (rows - i + 1) : 0.0f; }
    else if (column)        { *o = (total + 1) / (rows + 1); }           // the extra column's one-hot query row
    else                    { *o = skip ? total / (rows + 1) : 0.0f; }
}
template <class A, class Bi, class Pe>
void attention_metrics(HeadMetrics* out, const real* qkv, const acc* stat, const real* kstar, int skip, AttnShape s) {
    const int W = attn_row(s);
    const Panel most = panel_at(s, 0, 0, 0);                                     // no later one is larger
    const long size = panel_floats(most), size_sums = (long)most.count * s.NH * s.T * METRIC_SUMS;
    float *dots = (float*)device_scratch((size + size_sums) * sizeof(float)), *sums = dots + size;
    for (int b = 0, count; b < s.B; b += count) {
        count = panel_at(s, b, 0, 0).count;
        for (int h = 0; h < s.NH; h++) {
            for (int t0 = 0; t0 < s.T; t0 += PANEL_ROWS) {
                const Panel x = panel_at(s, b, h, t0);
                panel_dots(dots, head_q(qkv, s, 0, h), W, head_k(qkv, s, 0, h / (s.NH / s.KV)), W, x, s);
                LAUNCH((attention_metrics_kernel<A, Bi, Pe>), panel_grid(x), dim3(128), 0,
                       sums, dots, qkv, stat, kstar, skip, x, s);
            }
        }
        LAUNCH(attention_metrics_mean_kernel, dim3(count * s.NH), dim3(32 * METRIC_WARPS), 0,
               out + (long)b * s.NH, sums, skip, Bi::column, s.T);
    }
}
// a warp per norm
__global__ void __launch_bounds__(128) row_norms_kernel(acc* out, const real* x, int stride, int len, int G, long n) {
    const long i = (long)blockIdx.x * 4 + threadIdx.x / 32;
    if (i >= n) { return; }
    const real* y = x + i / G * stride + i % G * len;
    float sum = 0;
    for (int c = threadIdx.x % 32; c < len; c += 32) { sum += (float)y[c] * (float)y[c]; }
    sum = warp_sum(sum);
    if (threadIdx.x % 32 == 0) { out[i] = sqrtf(sum); }
}
inline void row_norms(acc* out, const real* x, int stride, int len, int G, int N) {
    const long n = (long)N * G;
    LAUNCH(row_norms_kernel, dim3((unsigned)CEIL_DIV(n, 4)), dim3(128), 0, out, x, stride, len, G, n);
}
// a block per sequence. The bits of floats >= 0 are in the order of the floats: the median is the largest number that at
// most half of the values are below, and is found bit by bit
template <int N> __global__ void __launch_bounds__(512) magnitudes_kernel(acc* out, const real* x, int skip, int T, int C) {
    const real* x_b = x + ((long)blockIdx.x * T + skip) * C;
    const long n = (long)(T - skip) * C;
    float top = 0;
    unsigned median = 0;
    for (int bit = 31; bit >= (sizeof(real) == 2 ? 16 : 0); bit--) {             // the first round finds the largest
        const float pivot = __uint_as_float(median | 1u << bit);
        double below = 0;
        for (long i = threadIdx.x * N; i < n; i += 512 * N) {
            const Vec<real, N> v = load<N>(x_b + i);
            for (int k = 0; k < N; k++) {
                const float a = fabsf((float)v.v[k]);
                if (bit == 31) { top = max(top, a); } else { below += a < pivot; }
            }
        }
        if (bit < 31 && block_sum<512>(below) <= n / 2) { median |= 1u << bit; }
    }
    top = block_max<512>(top);
    if (threadIdx.x == 0) { out[blockIdx.x * 2] = top; out[blockIdx.x * 2 + 1] = __uint_as_float(median); }
}
inline void magnitudes(acc* out, const real* x, int skip, int B, int T, int C) {
    LAUNCH_WIDE(wide(C, {x}), magnitudes_kernel, dim3(B), dim3(512), 0, out, x, skip, T, C);
}
} // namespace cuda
#endif

// ----------------------------------------------------------------------------
// 3 reports, on the host, from the heads of all probe sequences: heads (n, L, NH)
struct NormPair { std::vector<double> first, rest; };                    // by layer
struct Metrics {
    int n = 0, T = 0, L = 0, NH = 0;                                     // sequences, their length, layers, heads
    bool sums_to_one = true, has_star = false;
    double loss = 0;                                                     // mean over the probe sequences
    std::vector<HeadMetrics> heads;                                      // (n, L, NH)
    NormPair h, k, v, pre;                                               // h: L+1 rows; k, v: L; pre: 2L, post-norm
    std::vector<double> h_star, h_max, h_median;                         // L+1
    const HeadMetrics& at(int i, int l, int h_) const { return heads[((size_t)i * L + l) * NH + h_]; }
};
// Sink_k^eps; k = 0 is the star
inline double sink_rate(const Metrics& m, int k, double eps, bool proxy) {
    double hits = 0;
    for (auto& x : m.heads) { hits += (proxy ? x.proxy[k] : x.alpha[k]) > eps; }
    return m.heads.empty() ? NAN : hits / m.heads.size();
}
// mean over sequences of one number of every head: (L, NH)
template <class Get> std::vector<double> head_means(const Metrics& m, Get get) {
    std::vector<double> out((size_t)m.L * m.NH);
    for (size_t i = 0; i < m.heads.size(); i++) { out[i % out.size()] += (double)get(m.heads[i]) / m.n; }
    return out;
}
// adds the norms of one batch, norms (B, T, G), to layer l: first real token against the mean of the others
template <class F>
void norms_add(NormPair* p, int l, const F* norms, int B, int T, int G, int skip, int n_total) {
    if ((int)p->first.size() <= l) { p->first.resize(l + 1); p->rest.resize(l + 1); }
    for (int b = 0; b < B; b++) {
        double first = 0, rest = 0;
        for (int t = skip; t < T; t++) {
            for (int g = 0; g < G; g++) { (t == skip ? first : rest) += norms[((size_t)b * T + t) * G + g] / G; }
        }
        p->first[l] += first / n_total;
        p->rest[l] += T - skip > 1 ? rest / (T - skip - 1) / n_total : NAN;
    }
}

// ----------------------------------------------------------------------------
// 4 maps of one head on one sequence (qkv (T, W), stat (NH, T, 2), in host memory), each (T, T + 1), column 0 the extra
// key: A; cosine of q_t and k_j; product of their norms (Figure 2, bottom). What a query does not see is 0 in A only
template <class A, class Bi, class Pe, class R, class S>
void head_maps(float* map, float* cosine, float* product, const R* qkv, const S* stat, const R* kstar, int h,
               AttnShape s) {
    const int W = attn_row(s), g = h / (s.NH / s.KV);
    const R* ks = attn_star(kstar, s, g);
    for (int t = 0; t < s.T; t++) {
        for (int j = -1; j < s.T; j++) {
            const R* q = qkv + (long)t * W + h * s.HS;
            const R* k = j >= 0 ? qkv + (long)j * W + (s.NH + g) * s.HS : ks;
            double qk = 0, qq = 0, kk = 0;
            for (int i = 0; i < s.HS; i++) {
                const double a = (float)q[i], b = k ? (double)(float)k[i] : 0.0;
                qk += a * b; qq += a * a; kk += b * b;
            }
            const long at = (long)t * (s.T + 1) + j + 1;
            const double score = qk / sqrt((double)s.HS) + (j >= 0 ? Pe::template bias<double>(t - j, h, s.NH) : 0.0);
            const bool sees = j >= 0 ? attn_sees(s, t, j) : (bool)Bi::column;
            const S* st = stat + ((long)h * s.T + t) * 2;
            map[at] = sees ? attn_weight<A, double>(score, st[0], st[1]) : 0.0;
            cosine[at] = qq > 0 && kk > 0 ? qk / sqrt(qq * kk) : 0.0;
            product[at] = sqrt(qq * kk);
        }
    }
}
#endif // METRICS_CUH
