/*
ops.h -- the operations of the fast CPU backend, all but attention.
*/
#ifndef CPU_OPS_H
#define CPU_OPS_H
#include <type_traits>
#include "../reference.h"
#include "int8_product.h"
#include "bf16_pair.h"
#ifndef CPU_REAL
#define CPU_REAL REAL           // float, or double in tests; or bf16
#endif

namespace cpu {
using namespace host;
typedef CPU_REAL real; // what tensors hold
// what is computed with
typedef std::conditional<std::is_same<real, bf16>::value, float, real>::type acc;
static const char* const name = "cpu";
static const int lm_head_part = 4096;
enum { large = 1024 };            // side of matrices that are large to this machine
enum { piece_rows = 512 };        // of a small model's batch that one thread takes (small_model.h)

// ----------------------------------------------------------------------------
// 1 memory (the rest is in device.h)

// what there is to compute with, in one line
inline std::string device_start() { return host::device_start() + "; " + product_name(); }

// y (n) += x
inline void  add(real* y, const real* x, long n) {
    #pragma omp parallel for simd
    for (long i = 0; i < n; i++) { y[i] = y[i] + x[i]; }
}

// may weights stay as their file keeps them? (mapped_weights.h)
static const bool reads_mapped = std::is_same<real, float>::value;

inline void  cast_to_real(real* dst, const acc* src, long n) {
    if ((const void*)dst == (const void*)src) { return; }
    #pragma omp parallel for simd
    for (long i = 0; i < n; i++) { dst[i] = src[i]; }
}

// ----------------------------------------------------------------------------
// 2 matrix product

// out (N, OC) = inp (N, C) @ weight (OC, C)^T  [+ bias (OC) or NULL]  [+ residual (N, OC) or NULL]
inline void matmul_forward(real* out, const real* inp, const real* weight, const real* bias,
                           const real* residual, int N, int C, int OC) {
    const bool split = std::is_same<real, float>::value && split_pays(N, OC, C);
    const lane* left = split ? split_left((const float*)inp, N, C) : NULL;
    if (N == 1 && mapped_forward(out, inp, weight, bias, residual, C, OC)) { return; }
    if (int8_forward(out, inp, weight, bias, residual, N, C, OC)) { return; }
    for (int o = 0, n; o < OC; o += n) {                    // all rows, or (mapped_weights.h) some
        const auto some = weight_rows(weight + (long)o * C, C, OC - o);
        const real *w = some.x, *b = bias ? bias + o : NULL, *r = residual ? residual + o : NULL;
        n = some.n;
        if (split) {
            split_forward((float*)out + o, left, (const float*)w, (const float*)b, (const float*)r,
                          N, C, n, OC);
        } else if (N == 1) {
            vector_forward(out + o, inp, w, b, r, C, n);
        } else {
            gemm(N, n, C, inp, C, 1, w, 1, C, out + o, OC, false, r, b);
        }
    }
}

// in the forward pass this was:  out = inp W^T,  so
//      dinp (N, C) = [+= if add]  dout (N, OC) @ weight (OC, C)
inline void matmul_backward_input(real* dinp, const real* dout, const real* weight, bool add, int N,
                                  int C, int OC) {
    gemm(N, C, OC, dout, OC, 1, weight, C, 1, dinp, C, add);
}

// and dweight (OC, C) += dout^T @ inp
inline void matmul_backward_weight(acc* dweight, const real* dout, const real* inp, int N, int C,
                                   int OC) {
    gemm(OC, C, N, dout, 1, OC, inp, C, 1, dweight, C, true);
}

// For n = 0..N-1 row(n, sums) adds to sums (P, C), and these go += to the P vectors of `to`, unless
// NULL: the same bits whatever the number of threads
template <class Row> void row_sums(std::initializer_list<acc*> to, int N, int C, Row row) {
    sum_parts(to, N, C, [&](long from, int n, acc* sums) {
        for (int i = 0; i < n; i++) { row((int)from + i, sums); }
    });
}

// and dbias (OC) += sum_n dout
inline void matmul_backward_bias(acc* dbias, const real* dout, int N, int OC) {
    row_sums({ dbias }, N, OC, [=](int n, acc* sum) {
        for (int o = 0; o < OC; o++) { sum[o] += dout[(long)n * OC + o]; }
    });
}

// ----------------------------------------------------------------------------
// 3 embedding and norms

// out (B, T, C): row t is scale wte[token] + pos[t]; with a sink token row 0 is sink + pos[0],
// token t is row t + 1. tokens (B, T') with T' = T, or T - 1 if sink; wte (V, C); pos (T, C)
// or NULL; sink (C) or NULL
inline void embed_forward(real* out, const int* tokens, const real* wte, const real* pos,
                          const real* sink, float scale, int B, int T, int C) {
    const int skip = sink ? 1 : 0;
    #pragma omp parallel for
    for (int bt = 0; bt < B * T; bt++) {
        const int b = bt / T, t = bt % T;
        const long token = t < skip ? 0 : tokens[b * (T - skip) + t - skip];
        const real* x = t < skip ? sink : weight_rows(wte + token * C, C, 1).x;
        const acc by = t < skip ? 1 : scale;
        for (int c = 0; c < C; c++) {
            out[(long)bt * C + c] = x[c] * by + (pos ? pos[(long)t * C + c] : real(0));
        }
    }
}

// dwte, dpos, dsink += the rows of dout that read them; dpos, dsink may be NULL, sink as in forward
inline void embed_backward(acc* dwte, acc* dpos, acc* dsink, const real* dout, const int* tokens,
                           float scale, int B, int T, int C) {
    const int skip = dsink ? 1 : 0, chunk = 16;
    #pragma omp parallel for // over channels, so that two equal tokens never meet in two threads
    for (int c0 = 0; c0 < C; c0 += chunk) {
        const int c1 = std::min(C, c0 + chunk);
        for (int b = 0; b < B; b++) {
            for (int t = 0; t < T; t++) {
                acc* dx = t < skip ? dsink : dwte + (long)tokens[b * (T - skip) + t - skip] * C;
                const real* d = dout + (long)(b * T + t) * C;
                const acc by = t < skip ? 1 : scale;
                for (int c = c0; c < c1; c++) { dx[c] += d[c] * by; }
                if (dpos) { for (int c = c0; c < c1; c++) { dpos[(long)t * C + c] += d[c]; } }
            }
        }
    }
}

// out (N, C) = x^ weight + bias (C each, or NULL), where x^ = (x - mean) rstd with, over a row's C
// channels,
//      LayerNorm   mean (N) of x,      rstd (N) = 1 / sqrt(mean((x - mean)^2) + eps)
//                  (Ba et al. 2016)
//      RMSNorm     mean NULL: no mean, rstd (N) = 1 / sqrt(mean(x^2) + eps)
//                  (Zhang & Sennrich 2019; section 3.1)
inline void norm_forward(real* out, acc* mean, acc* rstd, const real* inp, const real* weight,
                         const real* bias, float eps, int N, int C) {
    #pragma omp parallel for if (N > 1)
    for (int n = 0; n < N; n++) {
        const real* x = inp + (long)n * C;
        real* o = out + (long)n * C;
        acc m = 0, sum = 0;
        if (mean) {
            #pragma omp simd reduction(+ : m)
            for (int c = 0; c < C; c++) { m += x[c]; }
            mean[n] = m = m / C;
            #pragma omp simd reduction(+ : sum)
            for (int c = 0; c < C; c++) { sum += (x[c] - m) * (x[c] - m); }
        } else {
            #pragma omp simd reduction(+ : sum)
            for (int c = 0; c < C; c++) { sum += x[c] * x[c]; }
        }
        const acc r = acc(1) / sqrt(sum / C + acc(eps));
        rstd[n] = r;
        if (!mean && weight && !bias) {
            for (int c = 0; c < C; c++) { o[c] = x[c] * r * weight[c]; }
        } else {
            for (int c = 0; c < C; c++) {
                o[c] = (x[c] - m) * r * (weight ? weight[c] : real(1)) + (bias ? bias[c] : real(0));
            }
        }
    }
}

// one row of norm_backward. Rows do not overlap, or dx is dout: the compiler is told that no turn
// of the loop needs another
inline void rmsnorm_backward_row(real* dx, acc* dw, const real* d, const real* x, const real* w,
                                 acc r, bool add, int C) {
    acc dot = 0;
    #pragma omp simd reduction(+ : dot)
    for (int c = 0; c < C; c++) { dot += d[c] * w[c] * x[c]; }
    const acc f = r * r * r * dot / C;
    #pragma omp simd
    for (int c = 0; c < C; c++) {
        const acc g = d[c] * w[c] * r - x[c] * f;
        dw[c] += d[c] * x[c] * r;
        dx[c] = add ? dx[c] + g : g;
    }
}

inline void layernorm_backward_row(real* dx, acc* dw, const real* d, const real* x, const real* w,
                                   acc m, acc r, bool add, int C) {
    acc dot = 0, sum = 0;
    #pragma omp simd reduction(+ : dot, sum)
    for (int c = 0; c < C; c++) { dot += d[c] * w[c] * (x[c] - m); sum += d[c] * w[c]; }
    const acc f = r * r * r * dot / C, r_mean = r * sum / C;
    #pragma omp simd
    for (int c = 0; c < C; c++) {
        const acc g = d[c] * w[c] * r - (x[c] - m) * f - r_mean;
        dw[c] += d[c] * (x[c] - m) * r;
        dx[c] = add ? dx[c] + g : g;
    }
}

inline void add_row(acc* sum, const real* x, int C) {
    for (int c = 0; c < C; c++) { sum[c] += x[c]; }
}

// in the forward pass this was:  out = x^ w + b,  x^ = (x - mean) r,  so with g = dout w
// (dout without a weight)
//      dx (N, C) = r (g - mean(g) - x^ mean(g x^))    LayerNorm
//                  r (g           - x^ mean(g x^))    RMSNorm          [+= if add]
//      dweight (C) += sum_n dout x^,   dbias (C) += sum_n dout         where they are not NULL
inline void norm_backward(real* dx, acc* dweight, acc* dbias, const real* dout, const real* x,
                          const real* weight, const acc* mean, const acc* rstd, bool add, int N,
                          int C) {
    const std::vector<real> ones(weight ? 0 : C, real(1));
    const real* const w = weight ? weight : ones.data();
    row_sums({ dweight, dbias }, N, C, [=](int n, acc* dw) {
        const long at = (long)n * C;
        if (dbias) { add_row(dw + C, dout + at, C); }                       // first: dx may be dout
        if (mean) {
            layernorm_backward_row(dx + at, dw, dout + at, x + at, w, mean[n], rstd[n], add, C);
        } else {
            rmsnorm_backward_row(dx + at, dw, dout + at, x + at, w, rstd[n], add, C);
        }
    });
}

// ----------------------------------------------------------------------------
// 4 rotary and kernels: q and k are the first (NH + KV) * HS columns of every row of qkv (B, T, (NH
// + 2 KV) HS)

// in place, on the first rot channels of every head: (x_i, x_{i+rot/2}) turns by sign * t *
// theta_i; table (T, rot/2, 2) holds cos, sin (Eq. 8, half-split as in LLaMA). Backward is the same
// turn the other way: sign -1 on the gradient
inline void rope(real* qkv, const acc* table, int sign, AttnShape s) {
    const int H = s.rot / 2;
    #pragma omp parallel for if (s.B * s.T > 1)
    for (int bt = 0; bt < s.B * s.T; bt++) {
        const acc* turn = table + (long)(bt % s.T) * H * 2;
        for (int h = 0; h < s.NH + s.KV; h++) {
            real* x = qkv + (long)bt * attn_row(s) + h * s.HS;
            // 16 at a time: 32 bf16 fill a vector, but a head of 32 has no more pairs than that
            #pragma omp simd simdlen(16)
            for (int i = 0; i < H; i++) {
                const acc co = turn[2 * i], si = sign * turn[2 * i + 1], a = x[i], b = x[i + H];
                x[i] = a * co - b * si;
                x[i + H] = a * si + b * co;
            }
        }
    }
}

// phi = elu + 1, in place on q and k
inline void phi_elu1_forward(real* qkv, AttnShape s) {
    #pragma omp parallel for
    for (int bt = 0; bt < s.B * s.T; bt++) {
        real* x = qkv + (long)bt * attn_row(s);
        for (int i = 0; i < (s.NH + s.KV) * s.HS; i++) {
            const acc y = x[i];
            x[i] = y > 0 ? y + acc(1) : exp_(min_(y, acc(0)));
        }
    }
}

// in the forward pass this was:  y = x > 0 ? x + 1 : e^x,  so y' = min(y, 1).
// dqkv in place, qkv holds y
inline void phi_elu1_backward(real* dqkv, const real* qkv, AttnShape s) {
    #pragma omp parallel for
    for (int bt = 0; bt < s.B * s.T; bt++) {
        const long row = (long)bt * attn_row(s);
        for (int i = 0; i < (s.NH + s.KV) * s.HS; i++) {
            dqkv[row + i] = dqkv[row + i] * min_(acc(qkv[row + i]), acc(1));
        }
    }
}

// qk (B, T, (NH + KV) HS) <- qkv, and back: the MLP kernel wants its rows without v between them
inline void qk_gather(real* qk, const real* qkv, AttnShape s) {
    const int n = (s.NH + s.KV) * s.HS;
    #pragma omp parallel for
    for (int bt = 0; bt < s.B * s.T; bt++) {
        memcpy(qk + (long)bt * n, qkv + (long)bt * attn_row(s), n * sizeof(real));
    }
}

inline void qk_scatter(real* qkv, const real* qk, AttnShape s) {
    const int n = (s.NH + s.KV) * s.HS;
    #pragma omp parallel for
    for (int bt = 0; bt < s.B * s.T; bt++) {
        memcpy(qkv + (long)bt * attn_row(s), qk + (long)bt * n, n * sizeof(real));
    }
}

// RMSNorm of q and k before they turn, in place: of every head by itself with weights wq, wk (HS),
// which the heads share, or, `all`, of the q heads together and the k heads together with weights
// wq (NH HS), wk (KV HS). qk_in (B, T, (NH + KV) HS) and rstd (B, T, NH + KV; all: 2) keep what
// backward needs
inline void qk_norm_forward(real* qkv, real* qk_in, acc* rstd, const real* wq, const real* wk,
                            bool all, float eps, AttnShape s) {
    const int G = ref::qk_groups(all, s), QK = (s.NH + s.KV) * s.HS;
    #pragma omp parallel for
    for (int bt = 0; bt < s.B * s.T; bt++) {
        real *x = qkv + (long)bt * attn_row(s), *saved = qk_in + (long)bt * QK;
        memcpy(saved, x, QK * sizeof(real));
        for (int g = 0; g < G; g++) {
            const ref::QkGroup group = ref::qk_group(g, all, s);
            const int C = group.C, from = group.from;
            const real* w = group.is_q ? wq : wk;
            acc sum = 0;
            #pragma omp simd reduction(+ : sum)
            for (int c = 0; c < C; c++) { sum += x[from + c] * x[from + c]; }
            const acc r = acc(1) / sqrt(sum / C + acc(eps));
            for (int c = 0; c < C; c++) { x[from + c] = x[from + c] * r * w[c]; }
            rstd[(long)bt * G + g] = r;
        }
    }
}

// in the forward pass this was:  y_c = x_c r w_c of every group,  so as in norm_backward
//      dx = r (dy w) - x r^3 mean(dy w x),   dw += sum dy x r
// dqkv in place: dy on entry, dx on return
inline void qk_norm_backward(real* dqkv, acc* dwq, acc* dwk, const real* qk_in, const acc* rstd,
                             const real* wq, const real* wk, bool all, AttnShape s) {
    const int G = ref::qk_groups(all, s), QK = (s.NH + s.KV) * s.HS,
              wide = all ? s.NH * s.HS : s.HS;
    std::vector<acc> dw((size_t)2 * wide);                       // of q and of k
    row_sums({ dw.data(), dw.data() + wide }, s.B * s.T, wide, [=](int bt, acc* sum) {
        const real* saved = qk_in + (long)bt * QK;
        real* dx = dqkv + (long)bt * attn_row(s);
        for (int g = 0; g < G; g++) {
            const ref::QkGroup group = ref::qk_group(g, all, s);
            const int C = group.C, from = group.from;
            const real *w = group.is_q ? wq : wk, *x = saved + from;
            real* d = dx + from;
            acc* dw_g = sum + (group.is_q ? 0 : wide);
            const acc r = rstd[(long)bt * G + g];
            acc dot = 0;
            #pragma omp simd reduction(+ : dot)
            for (int c = 0; c < C; c++) { dot += d[c] * w[c] * x[c]; }
            const acc f = r * r * r * dot / C;
            for (int c = 0; c < C; c++) {
                dw_g[c] += d[c] * x[c] * r;
                d[c] = d[c] * w[c] * r - x[c] * f;
            }
        }
    });
    for (int c = 0; c < wide; c++) { dwq[c] += dw[c]; }
    for (int c = 0; c < (all ? s.KV * s.HS : s.HS); c++) { dwk[c] += dw[wide + c]; }
}

// ----------------------------------------------------------------------------
// 5 heads and FFN

// out (B, T, NH HS) = att sigmoid(gate); gate (B, T, NH width): a number for every head (width 1)
// or channel (width HS)
inline void gate_forward(real* out, const real* att, const real* gate, int width, AttnShape s) {
    #pragma omp parallel for
    for (long i = 0; i < (long)s.B * s.T * s.NH; i++) { // one head of one token
        const real *a = att + i * s.HS, *x = gate + i * width;
        real* o = out + i * s.HS;
        if (width == 1) {
            const acc g = sigmoid_(acc(x[0]));
            for (int c = 0; c < s.HS; c++) { o[c] = a[c] * g; }
        } else {
            for (int c = 0; c < s.HS; c++) { o[c] = a[c] * sigmoid_(acc(x[c])); }
        }
    }
}

// in the forward pass this was:  out = att sigma(x),  so
//      datt = dout sigma,   dx = dout att sigma (1 - sigma),
// summed over the head's channels where they share it. datt and dgate are overwritten;
// datt may be dout
inline void gate_backward(real* datt, real* dgate, const real* dout, const real* att,
                          const real* gate, int width, AttnShape s) {
#pragma omp parallel for
    for (long i = 0; i < (long)s.B * s.T * s.NH; i++) {
        const real *a = att + i * s.HS, *d = dout + i * s.HS,
                   *x = gate + i * width;
        real *da = datt + i * s.HS, *dx = dgate + i * width;
        if (width == 1) {
            const acc g = sigmoid_(acc(x[0]));
            acc sum = 0;
            #pragma omp simd reduction(+ : sum)
            for (int c = 0; c < s.HS; c++) { sum += d[c] * a[c]; }
            dx[0] = sum * g * (acc(1) - g);
            for (int c = 0; c < s.HS; c++) { da[c] = d[c] * g; }
        } else {
            for (int c = 0; c < s.HS; c++) {
                const acc g = sigmoid_(acc(x[c])), d_c = d[c];
                dx[c] = d_c * a[c] * g * (acc(1) - g);
                da[c] = d_c * g;
            }
        }
    }
}

// out (B, T, NH HS) or, summed over heads, (B, T, HS) <- att (B, T, NH HS) + v* (NH or 1, HS; NULL
// without BIAS=v)
inline void heads_forward(real* out, const real* att, const real* vstar, bool sum, AttnShape s) {
    const int HS = s.HS, OC = sum ? HS : s.NH * HS;
    #pragma omp parallel for
    for (int bt = 0; bt < s.B * s.T; bt++) {
        real* o = out + (long)bt * OC;
        const real* a = att + (long)bt * s.NH * HS;
        const auto y = [=](int h, int i) {
            return a[h * HS + i] + (vstar ? acc(vstar[(s.bias_shared ? 0 : h * HS) + i]) : acc(0));
        };
        if (sum) {
            for (int i = 0; i < HS; i++) {
                acc total = 0;
                for (int h = 0; h < s.NH; h++) { total += y(h, i); }
                o[i] = total;
            }
        } else {
            for (int h = 0; h < s.NH; h++) {
                for (int i = 0; i < HS; i++) { o[h * HS + i] = y(h, i); }
            }
        }
    }
}

// in the forward pass this was:  out_h = att_h + v*_h, or their sum over h,  so
// datt = dout_h or dout; dvstar += their sum
inline void heads_backward(real* datt, acc* dvstar, const real* dout, bool sum, AttnShape s) {
    const int HS = s.HS, OC = sum ? HS : s.NH * HS, N = s.B * s.T;
    #pragma omp parallel for
    for (int h = 0; h < s.NH; h++) {
        for (int bt = 0; bt < N; bt++) {
            const real* d = dout + (long)bt * OC + (sum ? 0 : h * HS);
            for (int i = 0; i < HS; i++) { datt[((long)bt * s.NH + h) * HS + i] = d[i]; }
        }
    }
    if (!dvstar) { return; }
    for (int h = 0; h < s.NH; h++) { // serial: with --bias-share heads all heads add to one row
        for (int bt = 0; bt < N; bt++) {
            const real* d = datt + ((long)bt * s.NH + h) * HS;
            for (int i = 0; i < HS; i++) { dvstar[(s.bias_shared ? 0 : h * HS) + i] += d[i]; }
        }
    }
}

// y (n) = act(x) and, unless slope is NULL, slope (n) = act'(x): the one loop for each activation
inline void act_row(acc* y, acc* slope, const real* x, Act act, int n) {
    with_act(act, [=](auto f) {
        if (!slope) {
            for (int i = 0; i < n; i++) { y[i] = f.act(acc(x[i])); }
            return;
        }
        #pragma omp simd
        for (int i = 0; i < n; i++) {
            const acc x_i = x[i];
            y[i] = f.act(x_i);
            slope[i] = f.dact(x_i);
        }
    });
}

enum { ACT_SOME = 256 };            // channels whose activations wait in the first cache

// out (N, F) = act(inp) or, gated, act(gate) * up with inp (N, 2 F) = gate | up
inline void ffn_forward(real* out, const real* inp, Act act, bool gated, int N, int F) {
    #pragma omp parallel for if (N > 1)
    for (int n = 0; n < N; n++) {
        const real* x = inp + (long)n * F * (gated ? 2 : 1);
        real* o = out + (long)n * F;
        for (int c = 0; c < F; c += ACT_SOME) {
            const int some = std::min<int>(ACT_SOME, F - c);
            acc y[ACT_SOME];
            act_row(y, NULL, x + c, act, some);
            #pragma omp simd
            for (int i = 0; i < some; i++) { o[c + i] = gated ? y[i] * x[F + c + i] : y[i]; }
        }
    }
}

// in the forward pass this was:  out = act(g) u,  so dg = dout act'(g) u,  du = dout act(g)
inline void ffn_backward(real* dinp, const real* dout, const real* inp, Act act, bool gated, int N,
                         int F) {
    #pragma omp parallel for
    for (int n = 0; n < N; n++) {
        const long row = (long)n * F * (gated ? 2 : 1);
        const real *x = inp + row, *d = dout + (long)n * F;
        real* dx = dinp + row;
        for (int c = 0; c < F; c += ACT_SOME) {
            const int some = std::min<int>(ACT_SOME, F - c);
            acc y[ACT_SOME], slope[ACT_SOME];
            act_row(y, slope, x + c, act, some);
            // two loops: with the question inside of one, GCC leaves that of bf16 scalar
            #pragma omp simd
            for (int i = 0; i < some; i++) {
                const acc dg = d[c + i] * slope[i];
                dx[c + i] = gated ? dg * x[F + c + i] : dg;
            }
            if (!gated) { continue; }
            #pragma omp simd
            for (int i = 0; i < some; i++) { dx[F + c + i] = d[c + i] * y[i]; }
        }
    }
}

// ----------------------------------------------------------------------------
// 6 classifier

// one row of the classifier: its loss. l (V) holds y and, unless dloss is 0, becomes dloss
// dloss/dlogits
inline acc classifier_row(acc* l, int target, acc dloss, acc cap, int V) {
    acc top = l[0], sum = 0;
    #pragma omp simd reduction(max : top)
    for (int v = 0; v < V; v++) { top = max_(top, l[v]); }
    const acc l_y = l[target];
    if (dloss == 0 || cap != 0) {
        #pragma omp simd reduction(+ : sum)
        for (int v = 0; v < V; v++) { sum += exp_(l[v] - top); }
    } else {
        #pragma omp simd reduction(+ : sum)
        for (int v = 0; v < V; v++) { l[v] = exp_(l[v] - top); sum += l[v]; }
    }
    const acc f = dloss / sum;
    if (dloss != 0 && cap == 0) {
        for (int v = 0; v < V; v++) { l[v] *= f; }
        l[target] -= dloss;
    } else if (dloss != 0) { // dy/dlogits = 1 - (y / cap)^2
        for (int v = 0; v < V; v++) {
            l[v] = exp_(l[v] - top) * f * (acc(1) - l[v] / cap * (l[v] / cap));
        }
        l[target] -= dloss * (acc(1) - l_y / cap * (l_y / cap));
    }
    return log_(sum) - (l_y - top);
}

// losses (N) = -log softmax(y)[target],  y = logits, or cap tanh(logits / cap) unless cap is 0.
// logits (N, V) become y and then, unless dloss is 0, dloss dlosses/dlogits, in place.
// a target of -1 counts for nothing: loss 0, gradient 0
inline void classifier(acc* losses, real* logits, const int* targets, float dloss, float cap, int N,
                       int V) {
    const bool in_place = std::is_same<real, acc>::value;
    #pragma omp parallel
    {
        std::vector<acc> row(in_place ? 0 : V);
        #pragma omp for
        for (int n = 0; n < N; n++) {
            real* x = logits + (long)n * V;
            acc* l = in_place ? (acc*)x : row.data();
            losses[n] = 0;
            if (targets[n] < 0 && dloss != 0) { memset((void*)x, 0, V * sizeof(real)); continue; }
            if (!in_place) { for (int v = 0; v < V; v++) { l[v] = x[v]; } }
            if (cap != 0)  { for (int v = 0; v < V; v++) { l[v] = cap * tanh_(l[v] / cap); } }
            if (!in_place && dloss == 0) { for (int v = 0; v < V; v++) { x[v] = l[v]; } }
            if (targets[n] >= 0) { losses[n] = classifier_row(l, targets[n], dloss, cap, V); }
            if (!in_place && dloss != 0) { for (int v = 0; v < V; v++) { x[v] = l[v]; } }
        }
    }
}

// what a row of the classifier knows of the tokens that went by: the largest logit, the sum of
// e^(logit - top), and the target's
struct ClassifierRow {
    acc top = -INFINITY, sum = 0, target = 0;
    acc loss() const { return log_(sum) - (target - top); }
};

// tokens v0.. (some) of the vocabulary go by, with logits (N, some); as classifier with dloss 0.
// R: where host code can read
template <class R>
void classifier_part(ClassifierRow* rows, const R* logits, const int* targets, float cap, int v0,
                     int some, int N) {
    #pragma omp parallel
    {
        std::vector<acc> y(some);
        #pragma omp for
        for (int n = 0; n < N; n++) {
            const R* x = logits + (long)n * some;
            ClassifierRow& row = rows[n];
            if (targets[n] < 0) { continue; }
            for (int v = 0; v < some; v++) { y[v] = acc(x[v]); }
            if (cap != 0) { for (int v = 0; v < some; v++) { y[v] = cap * tanh_(y[v] / cap); } }
            acc top = row.top, sum = 0;
            #pragma omp simd reduction(max : top)
            for (int v = 0; v < some; v++) { top = max_(top, y[v]); }
            #pragma omp simd reduction(+ : sum)
            for (int v = 0; v < some; v++) { sum += exp_(y[v] - top); }
            row.sum = row.sum * exp_(row.top - top) + sum;
            row.top = top;
            if (targets[n] >= v0 && targets[n] < v0 + some) { row.target = y[targets[n] - v0]; }
        }
    }
}

// ----------------------------------------------------------------------------
// 7 optimizer

// sums->loss += sum of losses (n) / count
inline void loss_add(StepSums* sums, const acc* losses, long n, double count) {
    double sum = 0;
    for (long i = 0; i < n; i++) { sum += losses[i]; }
    sums->loss += sum / count;
}

// sums->squares = sum of x^2, blockwise in double; and the grad_scale that follows from it and from
// the loss
inline void square_norm(StepSums* sums, const acc* x, float clip, long n) {
    const long block = 1 << 14, blocks = (n + block - 1) / block;
    std::vector<double> part(blocks);
    #pragma omp parallel for
    for (long k = 0; k < blocks; k++) {
        double sum = 0;
        #pragma omp simd reduction(+ : sum)
        for (long i = k * block; i < std::min(n, (k + 1) * block); i++) {
            sum += (double)x[i] * x[i];
        }
        part[k] = sum;
    }
    double sum = 0;
    for (double x_k : part) { sum += x_k; }
    sums->squares = sum;
    sums->grad_scale = grad_scale(sums->loss, sum, clip);
}

// (Loshchilov & Hutter 2017)
//      m = b1 m + (1-b1) g,   v = b2 v + (1-b2) g^2,   w -= lr (m^ / (sqrt(v^) + eps) + decay w)
// master is the weight, params its copy in `real` (the same array where both types are one)
inline void adamw_update(real* params, acc* master, acc* m, acc* v, const acc* grads,
                         const StepSums* sums, Update o, long n) {
    if (std::isnan(sums->grad_scale)) { return; }
    const acc b1 = o.beta1, b2 = o.beta2;
    const acc c1 = 1 / (1 - pow((double)o.beta1, o.step)),
              c2 = 1 / (1 - pow((double)o.beta2, o.step));
    const acc lr = o.lr, eps = o.eps, decay = o.weight_decay, scale = sums->grad_scale;
    #pragma omp parallel for simd
    for (long i = 0; i < n; i++) {
        const acc g = grads[i] * scale;
        m[i] = b1 * m[i] + (1 - b1) * g;
        v[i] = b2 * v[i] + (1 - b2) * g * g;
        master[i] -= lr * (m[i] * c1 / (sqrt(v[i] * c2) + eps) + decay * master[i]);
        params[i] = master[i];
    }
}

// SGD with momentum beta1:  m = b1 m + g,  w -= lr (m + decay w)
inline void sgd_update(real* params, acc* master, acc* m, acc*, const acc* grads,
                       const StepSums* sums, Update o, long n) {
    if (std::isnan(sums->grad_scale)) { return; }
    const acc b1 = o.beta1, lr = o.lr, decay = o.weight_decay, scale = sums->grad_scale;
    #pragma omp parallel for simd
    for (long i = 0; i < n; i++) {
        m[i] = b1 * m[i] + grads[i] * scale;
        master[i] -= lr * (m[i] + decay * master[i]);
        params[i] = master[i];
    }
}

// Muon: x <- u / |u|,  u = g + beta m,  after m = beta m + g. The sum goes by rows, in their order
inline void muon_begin(real* x, acc* m, const acc* grads, const StepSums* sums, int rows,
                       int cols) {
    if (std::isnan(sums->grad_scale)) { return; }
    const acc beta = MUON_BETA, scale = sums->grad_scale;
    std::vector<double> part(rows);
    #pragma omp parallel for
    for (int i = 0; i < rows; i++) {
        const long row = (long)i * cols;
        double sum = 0;
        #pragma omp simd reduction(+ : sum)
        for (long k = row; k < row + cols; k++) {
            m[k] = beta * m[k] + grads[k] * scale;
            const acc u = grads[k] * scale + beta * m[k];
            sum += (double)u * u;
        }
        part[i] = sum;
    }
    double squares = 0;
    for (double sum : part) { squares += sum; }
    const acc by = 1 / (sqrt(squares) + 1e-7);
    #pragma omp parallel for
    for (int i = 0; i < rows; i++) {
        for (int j = 0; j < cols; j++) {
            const long k = (long)i * cols + j;
            x[muon_place(i, j, rows, cols)] = (grads[k] * scale + beta * m[k]) * by;
        }
    }
}

// aa (r, r), which is A A, <- a I + b A + c A A
inline void muon_mix(real* aa, const real* a, int r) {
    #pragma omp parallel for
    for (int i = 0; i < r; i++) {
        for (long k = (long)i * r; k < (long)(i + 1) * r; k++) {
            aa[k] = acc(MUON_C) * acc(aa[k]) + acc(MUON_B) * acc(a[k]);
        }
        aa[(long)i * r + i] = acc(aa[(long)i * r + i]) + acc(MUON_A);
    }
}

// w -= lr (length sqrt(max(rows, cols)) x + decay w)
inline void muon_end(real* params, acc* master, const real* x, const StepSums* sums, Update o,
                     int rows, int cols) {
    if (std::isnan(sums->grad_scale)) { return; }
    const acc length = MUON_LENGTH * sqrt((double)std::max(rows, cols));
    const acc lr = o.lr, decay = o.weight_decay;
    #pragma omp parallel for
    for (int i = 0; i < rows; i++) {
        for (int j = 0; j < cols; j++) {
            const long k = (long)i * cols + j;
            const acc step = length * acc(x[muon_place(i, j, rows, cols)]);
            master[k] -= lr * (step + decay * master[k]);
            params[k] = master[k];
        }
    }
}
} // namespace cpu
#endif // CPU_OPS_H
