/*
attention_panels.cuh -- attention of any head dimension, in either precision.
*/
#ifndef CUDA_ATTENTION_PANELS_CUH
#define CUDA_ATTENTION_PANELS_CUH
#include "attention_score.cuh"
#include "gemm.cuh"

namespace cuda {
// ---- by panels: any head dimension, either precision. A panel is the scores of up to PANEL_ROWS
// queries of one head and of their keys, for as many sequences as PANEL_FLOATS allow. Between the
// products comes one kernel forward and one backward, with a warp per query. Smaller panels would
// waste less of the causal triangle (at T 2048 a fifth of the work) but read and write dk and dv,
// which are sums of T / PANEL_ROWS products, more often.
const int  PANEL_ROWS   = shrunk ? 32 : 512;
const long PANEL_FLOATS = shrunk ? 1 << 12 : 1 << 23;
// (count, t1 - t0, ld): sequences b.., queries t0.., keys j0..
struct Panel { int b, count, h, t0, t1, j0, j1, ld; };

inline Panel panel_at(const AttnShape& s, int b, int h, int t0) {
    // rows of bf16 aligned to 16 bytes
    const int rows = std::min(s.T, PANEL_ROWS), ld = CEIL_DIV(s.T, 8) * 8;
    const int count = (int)std::min((long)s.B - b, std::max(1L, PANEL_FLOATS / ((long)rows * ld)));
    const int t1 = std::min(s.T, t0 + rows);
    const int j0 = s.window && !s.prefix ? std::max(0, t0 - s.window + 1) / 8 * 8 : 0;
    return Panel{ b, count, h, t0, t1, j0, std::min(s.T, std::max(t1, s.prefix)), ld };
}

inline long panel_floats(const Panel& x) { return (long)x.count * (x.t1 - x.t0) * x.ld; }
inline dim3 panel_grid(const Panel& x) {
    return dim3((unsigned)CEIL_DIV(x.count * (x.t1 - x.t0), 4));
}

// Three products. a, b, out: (B, T, *) with rows of wa, wb, wo numbers, from the columns of a head
// on. dots = a_t . b_j
inline void panel_dots(float* dots, const real* a, int wa, const real* b, int wb, const Panel& x,
                       const AttnShape& s) {
    const int rows = x.t1 - x.t0;
    gemm(dots, (const float*)NULL, a + ((long)x.b * s.T + x.t0) * wa,
         b + ((long)x.b * s.T + x.j0) * wb, rows, x.j1 - x.j0, s.HS, false, true,
         Strides{ wa, wb, x.ld, x.count, (long)s.T * wa, (long)s.T * wb, (long)rows * x.ld });
}

// out_t = [out_t +] sum_j w_tj b_j
inline void panel_rows(real* out, int wo, bool add, const real* w, const real* b, int wb,
                       const Panel& x, const AttnShape& s) {
    const int rows = x.t1 - x.t0;
    out += ((long)x.b * s.T + x.t0) * wo;
    gemm(out, add ? out : NULL, w, b + ((long)x.b * s.T + x.j0) * wb, rows, s.HS, x.j1 - x.j0,
         false, false,
         Strides{ x.ld, wb, wo, x.count, (long)rows * x.ld, (long)s.T * wb, (long)s.T * wo });
}

// sums_j += sum_t w_tj a_t; sums (count, T, HS)
inline void panel_columns(float* sums, const real* w, const real* a, int wa, const Panel& x,
                          const AttnShape& s) {
    const int rows = x.t1 - x.t0;
    sums += (long)x.j0 * s.HS;
    gemm(sums, sums, w, a + ((long)x.b * s.T + x.t0) * wa, x.j1 - x.j0, s.HS, rows, true, false,
         Strides{x.ld, wa, s.HS, x.count, (long)rows * x.ld, (long)s.T * wa, (long)s.T * s.HS});
}

// weights and stat from dot products; with a v*, out_t = w_star v*, to which the product adds the
// rest
template <class A, class Bi, class Pe>
__global__ void __launch_bounds__(128, 1)
    attention_panel_forward_kernel(real* w, real* out, acc* stat, const float* dots,
                                   const real* qkv, const real* kstar, const real* vstar, Panel x,
                                   AttnShape s) {
    const int n = blockIdx.x * 4 + threadIdx.x / 32, lane = threadIdx.x % 32, rows = x.t1 - x.t0,
              keys = x.j1 - x.j0;
    if (n >= x.count * rows) { return; }
    const int b = x.b + n / rows, t = x.t0 + n % rows, g = x.h / (s.NH / s.KV);
    const float scale = s.scale, alpha = attn_alpha<A, float>(s), *dots_t = dots + (long)n * x.ld;
    const float slope = pe_slope<Pe>(s, x.h);
    auto score = [&](int j) { return attn_score<A, Pe>(dots_t[j], scale, t, x.j0 + j, slope, s); };
    float s_star = 0, m = attn_least<A, float>(), l = 0, st[2];
    if (Bi::column) {
        s_star = star_score<A, Bi>(head_q(qkv, s, b, x.h) + (long)t * attn_row(s), kstar, x.h, s);
        m = max_(m, s_star);
    }
    if (A::exp_family) {
        for (int j = lane; j < keys; j += 32) { m = fmaxf(m, score(j)); }
        m = warp_max(m);
    }
    for (int j = lane; j < keys; j += 32) {
        l += attn_mass<A>(attn_term<A>(score(j), m), s.p);
    }
    l = warp_sum(l);
    if (Bi::column) { l += attn_mass<A>(attn_term<A>(s_star, m), s.p); }
    attn_stat<A>(st, m, l, s.p, alpha);
    for (int j = lane; j < keys; j += 32) {
        w[(long)n * x.ld + j] = real(attn_weight<A>(score(j), st[0], st[1]));
    }
    if (lane < 2) { stat[(((long)b * s.NH + x.h) * s.T + t) * 2 + lane] = lane ? st[1] : st[0]; }
    const real* vs = attn_star(vstar, s, g);
    for (int i = lane; Bi::column && vs && i < s.HS; i += 32) {
        out[(((long)b * s.T + t) * s.NH + x.h) * s.HS + i] = real(
            attn_weight<A>(s_star, st[0], st[1]) * (float)vs[i]);
    }
}

// weights and ds from both dot products; with a k*, dq_t = ds_star k*
template <class A, class Bi, class Pe>
__global__ void __launch_bounds__(128, 1)
    attention_panel_backward_kernel(real* w, real* ds, real* dqkv, const float* dots,
                                    const float* dw, const acc* stat, RowStats r, const real* kstar,
                                    Panel x, AttnShape s) {
    const int n = blockIdx.x * 4 + threadIdx.x / 32, lane = threadIdx.x % 32, rows = x.t1 - x.t0;
    if (n >= x.count * rows) { return; }
    const int b = x.b + n / rows, t = x.t0 + n % rows;
    const long row = ((long)b * s.NH + x.h) * s.T + t, at = (long)n * x.ld;
    const float scale = s.scale, alpha = attn_alpha<A, float>(s);
    const float stat0 = stat[row * 2], stat1 = stat[row * 2 + 1],
                delta = row_stat(r, b * s.NH + x.h, t).v[1];
    const float slope = pe_slope<Pe>(s, x.h);
    for (int j = lane; j < x.j1 - x.j0; j += 32) {
        const bool sees = attn_sees(s, t, x.j0 + j);
        const float score = attn_score<A, Pe>(dots[at + j], scale, t, x.j0 + j, slope, s);
        const float weight = attn_weight<A>(score, stat0, stat1);
        w[at + j] = real(sees ? weight : 0.0f);
        const float d = attn_ds<A>(score, weight, dw[at + j], stat0, stat1, delta, s.p, alpha) *
                        attn_slope<A>(score, s.cap);
        ds[at + j] = real(sees ? d * scale : 0.0f);
    }
    const real* ks = Bi::column == KEY_COLUMN ? attn_column<Bi>(kstar, s, x.h) : NULL;
    for (int i = lane; ks && i < s.HS; i += 32) {
        dqkv[((long)b * s.T + t) * attn_row(s) + x.h * s.HS + i] = real(r.ds_star[row] * scale *
                                                                        (float)ks[i]);
    }
}

// rows of dqkv, from the columns of a key head g on, <- dk, dv (count, T, HS) of sequences b0..
__global__ void __launch_bounds__(128)
    attention_panel_keys_kernel(real* dqkv, const float* dk, const float* dv, int b0, int g,
                                AttnShape s) {
    real* dx = dqkv + ((long)b0 * s.T + blockIdx.x) * attn_row(s) + (s.NH + g) * s.HS;
    for (int i = threadIdx.x; i < s.HS; i += 128) {
        dx[i] = real(dk[(long)blockIdx.x * s.HS + i]);
        dx[s.KV * s.HS + i] = real(dv[(long)blockIdx.x * s.HS + i]);
    }
}

template <class A, class Bi, class Pe>
void attention_forward_panels(real* out, acc* stat, const real* qkv, const real* kstar,
                              const real* vstar, const AttnShape& s) {
    const int W = attn_row(s), O = s.NH * s.HS;
    const long size = panel_floats(panel_at(s, 0, 0, 0)); // no later one is larger
    float* dots = (float*)device_scratch(size * (sizeof(float) + sizeof(real)));
    real* w = (real*)(dots + size);
    for (int b = 0, count; b < s.B; b += count) {
        count = panel_at(s, b, 0, 0).count;
        for (int h = 0; h < s.NH; h++) {
            const int g = h / (s.NH / s.KV);
            for (int t0 = 0; t0 < s.T; t0 += PANEL_ROWS) {
                const Panel x = panel_at(s, b, h, t0);
                panel_dots(dots, head_q(qkv, s, 0, h), W, head_k(qkv, s, 0, g), W, x, s);
                LAUNCH((attention_panel_forward_kernel<A, Bi, Pe>), panel_grid(x), dim3(128), 0,
                       w, out, stat, dots, qkv, kstar, vstar, x, s);
                panel_rows(out + h * s.HS, O, Bi::column && vstar, w, head_v(qkv, s, 0, g), W, x,
                           s);
            }
        }
    }
}

// memory that it wants, in floats: dots, dw, w, ds, and sums for dk and dv
inline long panels_scratch(const AttnShape& s) {
    const Panel x = panel_at(s, 0, 0, 0);
    return panel_floats(x) * (sizeof(real) == 4 ? 4 : 3) + (long)x.count * s.T * s.HS * 2;
}

template <class A, class Bi, class Pe>
void attention_dqkv_panels(real* dqkv, const real* dout, const acc* stat, RowStats r,
                           const real* qkv, const real* kstar, const AttnShape& s, float* scratch) {
    const int W = attn_row(s), O = s.NH * s.HS, G = s.NH / s.KV;
    const long size = panel_floats(panel_at(s, 0, 0, 0)),
               sums = (long)panel_at(s, 0, 0, 0).count * s.T * s.HS;
    float *dots = scratch, *dw = dots + size, *dk = scratch + panels_scratch(s) - 2 * sums,
          *dv = dk + sums;
    real *w = (real*)(dw + size), *ds = w + size;
    for (int b = 0, count; b < s.B; b += count) {
        count = panel_at(s, b, 0, 0).count;
        for (int g = 0; g < s.KV; g++) {
            device_zero(dk, 2 * sums * sizeof(float));
            for (int h = g * G; h < (g + 1) * G; h++) {
                const real *q = head_q(qkv, s, 0, h), *k = head_k(qkv, s, 0, g),
                           *v = head_v(qkv, s, 0, g);
                const real* d = dout + h * s.HS;
                for (int t0 = 0; t0 < s.T; t0 += PANEL_ROWS) {
                    const Panel x = panel_at(s, b, h, t0);
                    panel_dots(dots, q, W, k, W, x, s);
                    panel_dots(dw, d, O, v, W, x, s);
                    LAUNCH((attention_panel_backward_kernel<A, Bi, Pe>), panel_grid(x), dim3(128),
                           0, w, ds, dqkv, dots, dw, stat, r, kstar, x, s);
                    panel_rows(dqkv + h * s.HS, W, Bi::column == KEY_COLUMN && kstar, ds, k, W, x,
                               s);
                    panel_columns(dk, ds, q, W, x, s);
                    panel_columns(dv, w, d, O, x, s);
                }
            }
            LAUNCH(attention_panel_keys_kernel, dim3(count * s.T), dim3(128), 0, dqkv, dk, dv, b, g,
                   s);
        }
    }
}
} // namespace cuda
#endif // CUDA_ATTENTION_PANELS_CUH
