/*
attention_panels.cuh -- attention of any head dimension, in either precision, by cuBLAS's products.

A panel is the scores of up to PANEL_ROWS queries of one head and of their keys, for as many
sequences as PANEL_FLOATS allow. It goes through memory. Between the products comes one kernel in
each direction, with a warp per query:

    forward     dots = q k^T    -> weights w, stat    -> out = w v
    backward    dots = q k^T,
                dw = do v^T     -> weights w, ds      -> dq = ds k,  dk += ds^T q,  dv += w^T do

Smaller panels would waste less of the causal triangle (at T 2048 a fifth of the work) but read and
write dk and dv, which are sums of T / PANEL_ROWS products, more often.
*/
#ifndef CUDA_ATTENTION_PANELS_CUH
#define CUDA_ATTENTION_PANELS_CUH
#include "attention_score.cuh"
#include "gemm.cuh"

namespace cuda {
const int  PANEL_ROWS   = shrunk ? 32 : 512;
const long PANEL_FLOATS = shrunk ? 1 << 12 : 1 << 23;

// Head h of `count` sequences from b on: queries t0..t1, keys j0..j1. A panel in memory is
// (count, t1 - t0, ld).
struct Panel {
    int b, count, h;
    int t0, t1, j0, j1;
    int ld;
    HD int queries() const { return t1 - t0; }
    HD int keys() const { return j1 - j0; }
    HD long size() const { return (long)queries() * ld; }         // of one sequence
    HD long floats() const { return count * size(); }

    // Row n of all sequences' queries: whether there is one, its sequence and its place there.
    HD bool has(int n) const { return n < count * queries(); }
    HD int sequence(int n) const { return b + n / queries(); }
    HD int query(int n) const { return t0 + n % queries(); }
};

inline Panel panel_at(const AttnShape& s, int b, int h, int t0) {
    const int rows = std::min(s.T, PANEL_ROWS);
    const int ld = CEIL_DIV(s.T, 8) * 8;                          // rows of bf16 begin at 16 bytes
    const long sequences = std::max(1L, PANEL_FLOATS / ((long)rows * ld));
    Panel x = {};
    x.b = b;
    x.count = (int)std::min((long)s.B - b, sequences);
    x.h = h;
    x.t0 = t0;
    x.t1 = std::min(s.T, t0 + rows);
    const int first_key = std::max(0, t0 - s.window + 1);
    if (s.window && !s.prefix) { x.j0 = first_key / 8 * 8; }
    x.j1 = std::min(s.T, std::max(x.t1, s.prefix));
    x.ld = ld;
    return x;
}

// Returns the largest panel: no later one is larger.
inline Panel panel_most(const AttnShape& s) { return panel_at(s, 0, 0, 0); }

// Returns all panels of a head, in sequences from b on.
inline std::vector<Panel> head_panels(const AttnShape& s, int b, int h) {
    std::vector<Panel> all;
    for (int t0 = 0; t0 < s.T; t0 += PANEL_ROWS) { all.push_back(panel_at(s, b, h, t0)); }
    return all;
}

// ----------------------------------------------------------------------------
// Three products of a panel.

// Returns a head's columns of a tensor of such rows, a matrix for each sequence.
inline Matrix columns_of(const real* tensor, int width, int head, const AttnShape& s) {
    return matrix(tensor + head * s.HS, width, (long)s.T * width);
}

// Returns the columns of a head of qkv, or of dqkv: of queries, keys or values.
inline Matrix qkv_columns(const real* qkv, int head, const AttnShape& s) {
    return columns_of(qkv, attn_row(s), head, s);
}

// Returns the columns of a query head of out, or of dout.
inline Matrix out_columns(const real* out, int h, const AttnShape& s) {
    return columns_of(out, s.NH * s.HS, h, s);
}

// Returns the rows from row t of sequence b on, and the same of all sequences behind it.
inline Matrix rows_from(Matrix columns, int b, int t) {
    const long numbers = b * columns.apart + (long)t * columns.stride;
    columns.p = (const char*)columns.p + numbers * columns.bytes;
    return columns;
}

// Computes dots = a_t . b_j.
inline void panel_dots(float* dots, Matrix a, Matrix b, const Panel& x, const AttnShape& s) {
    const ProductShape shape = { x.queries(), x.keys(), s.HS, x.count };
    const Matrix queries = rows_from(a, x.b, x.t0);
    const Matrix keys = rows_from(b, x.b, x.j0);
    gemm(matrix(dots, x.ld, x.size()), NULL, queries, transposed(keys), shape);
}

// Computes out_t = [out_t +] sum_j w_tj b_j.
inline void panel_rows(Matrix out, bool add, const real* w, Matrix b, const Panel& x,
                       const AttnShape& s) {
    const ProductShape shape = { x.queries(), s.HS, x.keys(), x.count };
    const Matrix rows = rows_from(out, x.b, x.t0);
    const void* added = add ? rows.p : NULL;
    gemm(rows, added, matrix(w, x.ld, x.size()), rows_from(b, x.b, x.j0), shape);
}

// Adds sum_t w_tj a_t to sums_j; sums (count, T, HS).
inline void panel_columns(float* sums, const real* w, Matrix a, const Panel& x,
                          const AttnShape& s) {
    const ProductShape shape = { x.keys(), s.HS, x.queries(), x.count };
    const Matrix weights = matrix(w, x.ld, x.size());
    const Matrix keys = matrix(sums + (long)x.j0 * s.HS, s.HS, (long)s.T * s.HS);
    gemm(keys, keys.p, transposed(weights), rows_from(a, x.b, x.t0), shape);
}

// ----------------------------------------------------------------------------
// Forward.

// The scores of row n of a panel, from its dot products.
template <class A, class Pe> struct PanelScores {
    const AttnShape& s;
    const float* dots;
    int t, j0;
    float scale, slope;

    DEVICE PanelScores(const float* panel, const Panel& x, int n, const AttnShape& s)
        : s(s), dots(panel + (long)n * x.ld), t(x.query(n)), j0(x.j0), scale(s.scale),
          slope(pe_slope<Pe>(s, x.h)) {}

    // Returns the score of key j of the panel.
    DEVICE float operator()(int j) const {
        const int key = j0 + j;
        const float bias = attn_bias<A, Pe, float>(s, t - key, slope);
        const float score = attn_capped<A>(dots[j] * scale + bias, s.cap);
        return attn_sees(s, t, key) ? score : attn_masked<A, float>();
    }
};

// Makes weights and, unless it is NULL, stat from dot products; with a v*, out_t = w* v*, to which
// the product adds the rest.
template <class A, class Bi, class Pe>
__global__ void __launch_bounds__(32 * ROW_WARPS, 1)
    attention_panel_forward_kernel(real* w, real* out, acc* stat, const float* dots, AttnInputs in,
                                   Panel x) {
    const AttnShape& s = in.s;
    const int n = warp_number();
    if (!x.has(n)) { return; }
    const int b = x.sequence(n);
    const int t = x.query(n);
    const PanelScores<A, Pe> score(dots, x, n, s);
    float s_star = 0;
    float top = attn_initial_max<A, float>();
    if (Bi::extra) {
        const real* q = query_at(in.qkv, s, b, t, x.h);
        s_star = extra_score<A, Bi>(q, in.extra.k, x.h, s);
        top = max_(top, s_star);
    }
    if (A::exp_family) {
        FOR_LANES(j, x.keys()) { top = fmaxf(top, score(j)); }
        top = warp_max(top);
    }
    float sum = 0;
    FOR_LANES(j, x.keys()) { sum += score_mass<A>(score(j), top, s); }
    sum = warp_sum(sum);
    if (Bi::extra) { sum += score_mass<A>(s_star, top, s); }
    const float alpha = attn_alpha_of<A, float>(s, t);
    const AttnStat<float> st = attn_stat<A>(top, sum, s.p, alpha);
    if (stat && first_lane()) { stat_store(stat, row_at(s, b, x.h, t), st); }

    real* w_t = w + (long)n * x.ld;
    FOR_LANES(j, x.keys()) { w_t[j] = real(attn_weight<A>(score(j), st, s.clip)); }
    const real* vs = attn_extra(in.extra.v, s, kv_head(s, x.h));
    if (!Bi::extra || !vs) { return; }
    const float w_star = attn_weight<A>(s_star, st, s.clip);
    real* out_t = out + out_at(s, b, t, x.h);
    FOR_LANES(i, s.HS) { out_t[i] = real(w_star * (float)vs[i]); }
}

template <class A, class Bi, class Pe>
void attention_forward_panels(real* out, acc* stat, const AttnInputs& in) {
    const AttnShape& s = in.s;
    const bool add = Bi::extra && in.extra.v;
    const long size = panel_most(s).floats();
    float* dots = (float*)device_scratch(size * (sizeof(float) + sizeof(real)));
    real* w = (real*)(dots + size);
    for (int b = 0; b < s.B; b += panel_at(s, b, 0, 0).count) {
        for (int h = 0; h < s.NH; h++) {
            const int g = kv_head(s, h);
            const Matrix q = qkv_columns(in.qkv, h, s);
            const Matrix k = qkv_columns(in.qkv, key_head(s, g), s);
            const Matrix v = qkv_columns(in.qkv, value_head(s, g), s);
            const Matrix o = out_columns(out, h, s);
            for (const Panel& x : head_panels(s, b, h)) {
                panel_dots(dots, q, k, x, s);
                LAUNCH_WARPS((attention_panel_forward_kernel<A, Bi, Pe>), x.count * x.queries(),
                             w, out, stat, dots, in, x);
                panel_rows(o, add, w, v, x, s);
            }
        }
    }
}

// ----------------------------------------------------------------------------
// Backward.

// Memory of a panel, one after the other, and sums over its queries for dk and dv (count, T, HS).
struct PanelMemory {
    float *dots, *dw;
    real *w, *ds;
    float *dk, *dv;
};

// Returns the numbers in dk, and in dv.
inline long panel_sums(const AttnShape& s) { return (long)panel_most(s).count * s.T * s.HS; }

// Returns how many floats dots, dw, w and ds take.
inline long panel_scores(const AttnShape& s) {
    const int floats_each = sizeof(real) == 4 ? 4 : 3;
    return panel_most(s).floats() * floats_each;
}

inline PanelMemory panel_memory(float* scratch, const AttnShape& s) {
    const long size = panel_most(s).floats();
    PanelMemory x;
    x.dots = scratch;
    x.dw = x.dots + size;
    x.w = (real*)(x.dw + size);
    x.ds = x.w + size;
    x.dk = scratch + panel_scores(s);
    x.dv = x.dk + panel_sums(s);
    return x;
}

// Makes weights and ds from both dot products; with a k*, dq_t = ds* k*.
template <class A, class Bi, class Pe>
__global__ void __launch_bounds__(32 * ROW_WARPS, 1)
    attention_panel_backward_kernel(PanelMemory memory, real* dqkv, const acc* stat, RowStats r,
                                    const real* kstar, Panel x, AttnShape s) {
    const int n = warp_number();
    if (!x.has(n)) { return; }
    const int b = x.sequence(n);
    const int t = x.query(n);
    const long row = row_at(s, b, x.h, t);
    const long at = (long)n * x.ld;
    const float scale = s.scale;
    const AttnStat<float> st = stat_at(stat, row);
    const float delta = row_stat(r, b * s.NH + x.h, t).delta;
    const PanelScores<A, Pe> scores(memory.dots, x, n, s);
    FOR_LANES(j, x.keys()) {
        const bool sees = attn_sees(s, t, x.j0 + j);
        const float dweight = memory.dw[at + j];
        const float score = scores(j);
        const float weight = attn_weight<A>(score, st, s.clip);
        const float ds = attn_ds<A>(score, weight, dweight, st, delta, s);
        const float slope = attn_slope<A>(score, s.cap);
        memory.w[at + j] = real(select_or_zero(sees, weight));
        memory.ds[at + j] = real(select_or_zero(sees, ds * slope * scale));
    }
    if (Bi::extra != KEY_EXTRA) { return; }
    const real* ks = attn_extra_k<Bi>(kstar, s, x.h);
    if (!ks) { return; }
    const float ds_star = r.ds_star[row] * scale;
    real* dq = dqkv + qkv_at(s, b, t, x.h);
    FOR_LANES(i, s.HS) { dq[i] = real(ds_star * (float)ks[i]); }
}

template <class A, class Bi, class Pe>
void attention_dqkv_panels(real* dqkv, const real* dout, const acc* stat, RowStats r,
                           const AttnInputs& in, float* scratch) {
    const AttnShape& s = in.s;
    const int G = group_size(s);
    const bool add = Bi::extra == KEY_EXTRA && in.extra.k;
    const PanelMemory memory = panel_memory(scratch, s);
    for (int b = 0, count; b < s.B; b += count) {
        count = panel_at(s, b, 0, 0).count;
        for (int g = 0; g < s.KV; g++) {
            const Matrix k = qkv_columns(in.qkv, key_head(s, g), s);
            const Matrix v = qkv_columns(in.qkv, value_head(s, g), s);
            device_zero(memory.dk, 2 * panel_sums(s) * sizeof(float));
            for (int h = g * G; h < (g + 1) * G; h++) {
                const Matrix q = qkv_columns(in.qkv, h, s);
                const Matrix d = out_columns(dout, h, s);
                const Matrix dq = qkv_columns(dqkv, h, s);
                for (const Panel& x : head_panels(s, b, h)) {
                    panel_dots(memory.dots, q, k, x, s);
                    panel_dots(memory.dw, d, v, x, s);
                    LAUNCH_WARPS((attention_panel_backward_kernel<A, Bi, Pe>),
                                 x.count * x.queries(), memory, dqkv, stat, r, in.extra.k, x, s);
                    panel_rows(dq, add, memory.ds, k, x, s);
                    panel_columns(memory.dk, memory.ds, q, x, s);
                    panel_columns(memory.dv, memory.w, d, x, s);
                }
            }
            attention_panel_keys(dqkv, memory.dk, memory.dv, b, count, g, s);
        }
    }
}
} // namespace cuda
#endif // CUDA_ATTENTION_PANELS_CUH
