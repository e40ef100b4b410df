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
    if (s.window && !s.prefix) { x.j0 = std::max(0, t0 - s.window + 1) / 8 * 8; }
    x.j1 = std::min(s.T, std::max(x.t1, s.prefix));
    x.ld = ld;
    return x;
}

// Returns the largest panel: no later one is larger.
inline Panel panel_most(const AttnShape& s) { return panel_at(s, 0, 0, 0); }

// Calls f(panel) for all panels of a head, in sequences from b on.
template <class F> void each_panel(const AttnShape& s, int b, int h, F f) {
    for (int t0 = 0; t0 < s.T; t0 += PANEL_ROWS) { f(panel_at(s, b, h, t0)); }
}

// ----------------------------------------------------------------------------
// Three products. Of a tensor (B, T, *) a head's columns begin at p, and rows are `width` apart.

template <class T> struct Columns {
    T* p;
    int width;
    T* row(const AttnShape& s, int b, int t) const { return p + ((long)b * s.T + t) * width; }
};

// Computes dots = a_t . b_j.
inline void panel_dots(float* dots, Columns<const real> a, Columns<const real> b, const Panel& x,
                       const AttnShape& s) {
    const real* queries = a.row(s, x.b, x.t0);
    const real* keys = b.row(s, x.b, x.j0);
    gemm(matrix(dots, x.ld, x.size()), NULL, matrix(queries, a.width, (long)s.T * a.width),
         transposed(keys, b.width, (long)s.T * b.width),
         { x.queries(), x.keys(), s.HS, x.count });
}

// Computes out_t = [out_t +] sum_j w_tj b_j.
inline void panel_rows(Columns<real> out, bool add, const real* w, Columns<const real> b,
                       const Panel& x, const AttnShape& s) {
    real* rows = out.row(s, x.b, x.t0);
    const real* keys = b.row(s, x.b, x.j0);
    gemm(matrix(rows, out.width, (long)s.T * out.width), add ? rows : NULL,
         matrix(w, x.ld, x.size()), matrix(keys, b.width, (long)s.T * b.width),
         { x.queries(), s.HS, x.keys(), x.count });
}

// Adds sum_t w_tj a_t to sums_j; sums (count, T, HS).
inline void panel_columns(float* sums, const real* w, Columns<const real> a, const Panel& x,
                          const AttnShape& s) {
    const real* queries = a.row(s, x.b, x.t0);
    float* keys = sums + (long)x.j0 * s.HS;
    gemm(matrix(keys, s.HS, (long)s.T * s.HS), keys, transposed(w, x.ld, x.size()),
         matrix(queries, a.width, (long)s.T * a.width),
         { x.keys(), s.HS, x.queries(), x.count });
}

// ----------------------------------------------------------------------------
// Forward.

// Makes weights and stat from dot products; with a v*, out_t = w* v*, to which the product adds the
// rest.
template <class A, class Bi, class Pe>
__global__ void __launch_bounds__(32 * ROW_WARPS, 1)
    attention_panel_forward_kernel(real* w, real* out, acc* stat, const float* dots, AttnInputs in,
                                   Panel x) {
    const AttnShape& s = in.s;
    const int n = warp_number(), lane = threadIdx.x % 32, rows = x.queries(), keys = x.keys();
    if (n >= x.count * rows) { return; }
    const int b = x.b + n / rows, t = x.t0 + n % rows;
    const float scale = s.scale, alpha = attn_alpha<A, float>(s);
    const float* dots_t = dots + (long)n * x.ld;
    const float slope = pe_slope<Pe>(s, x.h);
    auto score = [&](int j) { return attn_score<A, Pe>(dots_t[j], scale, t, x.j0 + j, slope, s); };

    float s_star = 0, m = attn_least<A, float>();
    if (Bi::column) {
        s_star = star_score<A, Bi>(query_at(in.qkv, s, b, t, x.h), in.kstar, x.h, s);
        m = max_(m, s_star);
    }
    if (A::exp_family) {
        FOR_LANES(j, keys) { m = fmaxf(m, score(j)); }
        m = warp_max(m);
    }
    float l = 0;
    FOR_LANES(j, keys) { l += attn_mass<A>(attn_term<A>(score(j), m), s.p); }
    l = warp_sum(l);
    if (Bi::column) { l += attn_mass<A>(attn_term<A>(s_star, m), s.p); }
    float st[2];
    attn_stat<A>(st, m, l, s.p, alpha);

    real* w_t = w + (long)n * x.ld;
    FOR_LANES(j, keys) {
        w_t[j] = real(attn_weight<A>(score(j), st[0], st[1]));
    }
    if (lane < 2) { stat[row_at(s, b, x.h, t) * 2 + lane] = lane ? st[1] : st[0]; }
    const real* vs = attn_star(in.vstar, s, kv_head(s, x.h));
    if (!Bi::column || !vs) { return; }
    const float w_star = attn_weight<A>(s_star, st[0], st[1]);
    real* out_t = out + out_at(s, b, t, x.h);
    FOR_LANES(i, s.HS) { out_t[i] = real(w_star * (float)vs[i]); }
}

template <class A, class Bi, class Pe>
void attention_forward_panels(real* out, acc* stat, const AttnInputs& in) {
    const AttnShape& s = in.s;
    const int width = attn_row(s);
    const bool add = Bi::column && in.vstar;
    const long size = panel_most(s).floats();
    float* dots = (float*)device_scratch(size * (sizeof(float) + sizeof(real)));
    real* w = (real*)(dots + size);
    for (int b = 0; b < s.B; b += panel_at(s, b, 0, 0).count) {
        for (int h = 0; h < s.NH; h++) {
            const int g = kv_head(s, h);
            const Columns<const real> q = { head_q(in.qkv, s, 0, h), width };
            const Columns<const real> k = { head_k(in.qkv, s, 0, g), width };
            const Columns<const real> v = { head_v(in.qkv, s, 0, g), width };
            const Columns<real> o = { out + h * s.HS, s.NH * s.HS };
            each_panel(s, b, h, [&](const Panel& x) {
                panel_dots(dots, q, k, x, s);
                LAUNCH_WARPS((attention_panel_forward_kernel<A, Bi, Pe>), x.count * x.queries(),
                             w, out, stat, dots, in, x);
                panel_rows(o, add, w, v, x, s);
            });
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
    return panel_most(s).floats() * (sizeof(real) == 4 ? 4 : 3);
}
inline long panels_scratch(const AttnShape& s) { return panel_scores(s) + 2 * panel_sums(s); }

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
    const int n = warp_number(), rows = x.queries();
    if (n >= x.count * rows) { return; }
    const int b = x.b + n / rows, t = x.t0 + n % rows;
    const long row = row_at(s, b, x.h, t), at = (long)n * x.ld;
    const float scale = s.scale, alpha = attn_alpha<A, float>(s);
    const float stat0 = stat[row * 2], stat1 = stat[row * 2 + 1];
    const float delta = row_stat(r, b * s.NH + x.h, t).delta;
    const float bias_slope = pe_slope<Pe>(s, x.h);
    FOR_LANES(j, x.keys()) {
        const int key = x.j0 + j;
        const bool sees = attn_sees(s, t, key);
        const float dot = memory.dots[at + j], dweight = memory.dw[at + j];
        const float score = attn_score<A, Pe>(dot, scale, t, key, bias_slope, s);
        const float weight = attn_weight<A>(score, stat0, stat1);
        memory.w[at + j] = real(sees ? weight : 0.0f);
        const float ds = attn_ds<A>(score, weight, dweight, stat0, stat1, delta, s.p, alpha);
        const float slope = attn_slope<A>(score, s.cap);
        memory.ds[at + j] = real(sees ? ds * slope * scale : 0.0f);
    }
    const real* ks = Bi::column == KEY_COLUMN ? attn_column<Bi>(kstar, s, x.h) : NULL;
    if (!ks) { return; }
    real* dq = dqkv + ((long)b * s.T + t) * attn_row(s) + x.h * s.HS;
    const float ds_star = r.ds_star[row] * scale;
    FOR_LANES(i, s.HS) { dq[i] = real(ds_star * (float)ks[i]); }
}

template <class A, class Bi, class Pe>
void attention_dqkv_panels(real* dqkv, const real* dout, const acc* stat, RowStats r,
                           const AttnInputs& in, float* scratch) {
    const AttnShape& s = in.s;
    const int width = attn_row(s), G = s.NH / s.KV;
    const bool add = Bi::column == KEY_COLUMN && in.kstar;
    const PanelMemory memory = panel_memory(scratch, s);
    for (int b = 0, count; b < s.B; b += count) {
        count = panel_at(s, b, 0, 0).count;
        for (int g = 0; g < s.KV; g++) {
            const Columns<const real> k = { head_k(in.qkv, s, 0, g), width };
            const Columns<const real> v = { head_v(in.qkv, s, 0, g), width };
            device_zero(memory.dk, 2 * panel_sums(s) * sizeof(float));
            for (int h = g * G; h < (g + 1) * G; h++) {
                const Columns<const real> q = { head_q(in.qkv, s, 0, h), width };
                const Columns<const real> d = { dout + h * s.HS, s.NH * s.HS };
                const Columns<real> dq = { dqkv + h * s.HS, width };
                each_panel(s, b, h, [&](const Panel& x) {
                    panel_dots(memory.dots, q, k, x, s);
                    panel_dots(memory.dw, d, v, x, s);
                    LAUNCH_WARPS((attention_panel_backward_kernel<A, Bi, Pe>),
                                 x.count * x.queries(), memory, dqkv, stat, r, in.kstar, x, s);
                    panel_rows(dq, add, memory.ds, k, x, s);
                    panel_columns(memory.dk, memory.ds, q, x, s);
                    panel_columns(memory.dv, memory.w, d, x, s);
                });
            }
            attention_panel_keys(dqkv, memory.dk, memory.dv, b, count, g, s);
        }
    }
}
} // namespace cuda
#endif // CUDA_ATTENTION_PANELS_CUH
