/*
ops.h -- the operations of the fast CPU backend: everything in a layer except attention. Same names,
parameters and results as reference.h, from which the elementwise ones are taken as they are.

    1 the backend         its names; memory is in memory.h
    2 matrix product      forward; backward to the input, the weight, the bias
    3 embedding, norms    tokens in; LayerNorm and RMSNorm
    4 before attention    norms of q and k

Attention is in attention.h, the loss and the optimizers are in training.h.
*/
#ifndef CPU_OPS_H
#define CPU_OPS_H
#include <string_view>
#include <type_traits>
#include "../reference.h"
#include "mapped_weights.h"
#include "memory.h"
#include "product.h"

namespace cpu {
using namespace host;
using ref::embed_backward, ref::ffn_backward, ref::ffn_forward, ref::rope;
using ref::gate_backward, ref::gate_forward;
using ref::heads_backward, ref::heads_forward, ref::phi_elu1_backward, ref::phi_elu1_forward;
using ref::muon_begin, ref::muon_end, ref::muon_mix, ref::sgd_update;
// the type of tensors: float, or double in tests; or bf16
constexpr bool in_bf16 = std::string_view(STR(BACKEND) " " STR(PRECISION)) == "cpu bf16";
typedef std::conditional_t<in_bf16, bf16, REAL> real;
typedef sum_of<real> acc;       // the type of arithmetic: float for bf16
static const char* const name = "cpu";
static const int lm_head_part = 4096;   // vocabulary entries whose logits exist at once
enum { large = 1024 };          // side of matrices that are large to this machine
enum { piece_rows = 512 };      // rows of a small model's batch that one thread takes

// ----------------------------------------------------------------------------
// 1 the backend

inline std::string device_start() { return host::device_start() + "; " + product_name(); }

// Whether weights can be used in their file's own format (mapped_weights.h).
static const bool reads_mapped = std::is_same<real, float>::value;

// ----------------------------------------------------------------------------
// 2 matrix product

// Computes one row of what follows. It is not blocked: each weight is read once, and that takes all
// the time.
inline void vector_forward(real* out, const real* inp, const real* weight, const real* bias,
                           const real* residual, int C, int OC) {
    #pragma omp parallel for if ((long)C * OC > 1 << 17)
    for (int o = 0; o < OC; o++) {
        const real* w = weight + (long)o * C;
        acc sum = 0;
        #pragma omp simd reduction(+ : sum)
        for (int i = 0; i < C; i++) {
            sum += acc(inp[i]) * acc(w[i]);
        }
        if (residual) { sum += acc(residual[o]); }
        if (bias) { sum += acc(bias[o]); }
        out[o] = sum;
    }
}

// Multiplies:  out (N, OC) = inp (N, C) @ weight (OC, C)^T  [+ bias (OC) or NULL]
//              [+ residual (N, OC) or NULL]
inline void matmul_forward(real* out, const real* inp, const real* weight, const real* bias,
                           const real* residual, int N, int C, int OC) {
    for (int o = 0, n; o < OC; o += n) {                // at once, unless they are in their file
        const real* w = weight + (long)o * C;
        n = OC - o;
        if (reads_mapped) {
            const auto some = weight_rows((const float*)w, C, n);
            w = (const real*)some.x;
            n = some.n;
        }
        const Output<real> to = { out + o, OC, false, moved(residual, o), moved(bias, o) };
        if (N == 1) {
            vector_forward(to.x, inp, w, to.bias, to.residual, C, n);
        } else {
            gemm(N, n, C, rows_of(inp, C), transposed(w, C), to);
        }
    }
}

// Computes the gradient of the input. In the forward pass this was:  out = inp W^T,  so
//      dinp (N, C) = [+= if add]  dout (N, OC) @ weight (OC, C)
inline void matmul_backward_input(real* dinp, const real* dout, const real* weight, bool add, int N,
                                  int C, int OC) {
    const Output<real> to = { dinp, C, add };
    gemm(N, C, OC, rows_of(dout, OC), rows_of(weight, C), to);
}

// Adds the gradient of the weight:  dweight (OC, C) += dout^T @ inp
inline void matmul_backward_weight(acc* dweight, const real* dout, const real* inp, int N, int C,
                                   int OC) {
    const Output<acc> to = { dweight, C, true };
    gemm(OC, C, N, transposed(dout, OC), rows_of(inp, C), to);
}

// Calls row(n, sums), which adds to sums (P, C), for n = 0..N-1. Adds the sums to those of the P
// vectors of `to` that are not NULL. The bits do not depend on the number of threads.
inline void row_sums(std::initializer_list<acc*> to, int N, int C,
                     const std::function<void(int n, acc* sums)>& row) {
    sum_parts(to, N, C, [&](long from, int n, acc* sums) {
        for (int i = 0; i < n; i++) { row((int)from + i, sums); }
    });
}

// Adds the gradient of the bias:  dbias (OC) += sum_n dout
inline void matmul_backward_bias(acc* dbias, const real* dout, int N, int OC) {
    row_sums({ dbias }, N, OC, [=](int n, acc* sum) {
        add_times(sum, 1, dout + (long)n * OC, OC);
    });
}

// ----------------------------------------------------------------------------
// 3 embedding and norms

// Looks up the tokens: row t of out (B, T, C) is scale token[id] + position[t]. With a sink token
// row 0 is sink + position[0], and token t is row t + 1. tokens (B, T') with T' = T, or T - 1 if
// there is a sink token
inline void embed_forward(real* out, const int* tokens, EmbedTables<const real> tables, float scale,
                          int B, int T, int C) {
    const int skip = tables.sink ? 1 : 0;
    #pragma omp parallel for
    for (int bt = 0; bt < B * T; bt++) {
        const int b = bt / T;
        const int t = bt % T;
        const real* x = tables.sink;
        acc by = 1;
        if (t >= skip) {
            const long token = tokens[b * (T - skip) + t - skip];
            x = tables.token + token * C;
            if (reads_mapped) { x = (const real*)weight_rows((const float*)x, C, 1).x; }
            by = scale;
        }
        const real* p = moved(tables.position, (long)t * C);
        real* o = out + (long)bt * C;
        for (int c = 0; c < C; c++) {
            o[c] = x[c] * by + (p ? p[c] : real(0));
        }
    }
}

// Returns rstd of a row for RMSNorm.
inline acc rmsnorm_row(const real* x, acc eps, int C) {
    return acc(1) / sqrt(dot(x, x, C) / C + eps);
}

// Returns rstd of a row for LayerNorm, and sets its mean.
inline acc layernorm_row(acc* mean, const real* x, acc eps, int C) {
    acc m = 0;
    #pragma omp simd reduction(+ : m)
    for (int c = 0; c < C; c++) { m += x[c]; }
    *mean = m = m / C;
    acc sum = 0;
    #pragma omp simd reduction(+ : sum)
    for (int c = 0; c < C; c++) {
        sum += (x[c] - m) * (x[c] - m);
    }
    return acc(1) / sqrt(sum / C + eps);
}

// Normalizes every row:  out (N, C) = x^ weight + bias,  x^ = (x - mean) rstd  with, over its C
// channels,
//      LayerNorm   mean of x,  rstd = 1 / sqrt(mean((x - mean)^2) + eps)   (Ba et al. 2016)
//      RMSNorm     no mean,    rstd = 1 / sqrt(mean(x^2) + eps)
//                  (Zhang & Sennrich 2019; section 3.1)
inline void norm_forward(real* out, NormStats<acc> stats, const real* inp,
                         NormWeights<const real> weights, NormShape s) {
    const int C = s.C;
    const acc eps = s.eps;
    acc* mean = stats.mean;
    const real* weight = weights.weight;
    const real* bias = weights.bias;
    #pragma omp parallel for if (s.N > 1)
    for (int n = 0; n < s.N; n++) {
        const real* x = inp + (long)n * C;
        real* o = out + (long)n * C;
        acc m = 0;
        acc r;
        if (mean) {
            r = layernorm_row(&m, x, eps, C);
            mean[n] = m;
        } else {
            r = rmsnorm_row(x, eps, C);
        }
        stats.rstd[n] = r;
        if (!mean && weight && !bias) {
            for (int c = 0; c < C; c++) {
                o[c] = x[c] * r * weight[c];
            }
            continue;
        }
        for (int c = 0; c < C; c++) {
            const real w = weight ? weight[c] : real(1);
            const real b = bias ? bias[c] : real(0);
            o[c] = (x[c] - m) * r * w + b;
        }
    }
}

// Computes dx and dw (C) of a row; stats: of the row. `omp simd` tells the compiler that iterations
// are independent: rows do not overlap, or dx is d.
inline void norm_backward_row(real* dx, acc* dw, const real* d, const real* x, const real* w,
                              NormStats<const acc> stats, bool add, int C) {
    const acc m = stats.mean ? *stats.mean : acc(0);
    const acc r = *stats.rstd;
    acc dot = 0;
    acc sum = 0;
    #pragma omp simd reduction(+ : dot, sum)
    for (int c = 0; c < C; c++) {
        dot += d[c] * w[c] * (x[c] - m);
        sum += d[c] * w[c];
    }
    const acc f = r * r * r * dot / C;
    const acc r_mean = stats.mean ? r * sum / C : acc(0);
    #pragma omp simd
    for (int c = 0; c < C; c++) {
        const acc g = d[c] * w[c] * r - (x[c] - m) * f - r_mean;
        dw[c] += d[c] * (x[c] - m) * r;
        dx[c] = add ? dx[c] + g : g;
    }
}

// Computes the gradients. In the forward pass this was:  out = x^ w + b,  x^ = (x - mean) r,  so,
// with g = dout w, or dout without a weight,
//      dx (N, C) = r (g - mean(g) - x^ mean(g x^))    LayerNorm
//                  r (g           - x^ mean(g x^))    RMSNorm          [+= if add]
//      weight += sum_n dout x^,   bias += sum_n dout        of grads, where they are not NULL
inline void norm_backward(real* dx, NormWeights<acc> grads, const real* dout, const real* x,
                          const real* weight, NormStats<const acc> stats, bool add, NormShape s) {
    const int C = s.C;
    const std::vector<real> ones(weight ? 0 : C, real(1));
    const real* const w = weight ? weight : ones.data();
    row_sums({ grads.weight, grads.bias }, s.N, C, [=](int n, acc* dw) {
        const long row = (long)n * C;
        const real* d_n = dout + row;
        const real* x_n = x + row;
        real* dx_n = dx + row;
        if (grads.bias) { add_times(dw + C, 1, d_n, C); }       // first: dx may be dout
        norm_backward_row(dx_n, dw, d_n, x_n, w, ref::stats_of(stats, n), add, C);
    });
}

// ----------------------------------------------------------------------------
// 4 before attention. A row of qkv holds the heads of one token, side by side:
//
//      | q_0 q_1 .. q_NH-1 | k_0 .. k_KV-1 | v_0 .. v_KV-1 |      HS numbers each
//
// The operations below change q and k, the first qk_width numbers of a row.

// Applies RMSNorm to q and k before they are rotated, in place. A group is one head; or, if `all`,
// the q heads together and the k heads together. qk_in (B, T, (NH + KV) HS) and rstd (B, T, groups)
// keep what backward needs.
inline void qk_norm_forward(real* qkv, real* qk_in, acc* rstd, QkWeights<const real> weights,
                            bool all, float eps, AttnShape s) {
    const int groups = ref::qk_groups(all, s);
    const int width = qk_width(s);
    #pragma omp parallel for
    for (int bt = 0; bt < s.B * s.T; bt++) {
        real* row = row_of(qkv, bt, attn_row(s));
        acc* rstd_bt = rstd + (long)bt * groups;
        memcpy(qk_in + (long)bt * width, row, width * sizeof(real));
        for (int g = 0; g < groups; g++) {
            const ref::QkGroup group = ref::qk_group(g, all, s);
            const real* w = ref::weight_of(weights, group);
            real* x = row + group.from;
            const acc r = rmsnorm_row(x, eps, group.C);
            for (int c = 0; c < group.C; c++) {
                x[c] = x[c] * r * w[c];
            }
            rstd_bt[g] = r;
        }
    }
}

// Turns dqkv from dy into dx. In the forward pass this was:  y_c = x_c r w_c of every group,  so as
// in norm_backward
//      dx = r (dy w) - x r^3 mean(dy w x),   dw += sum dy x r
inline void qk_norm_backward(real* dqkv, QkWeights<acc> grads, const real* qk_in, const acc* rstd,
                             QkWeights<const real> weights, bool all, AttnShape s) {
    const int groups = ref::qk_groups(all, s);
    const int wide = all ? s.NH * s.HS : s.HS;
    std::vector<acc> dw((size_t)2 * wide);              // of q and of k
    acc* dw_k = dw.data() + wide;
    row_sums({ dw.data(), dw_k }, s.B * s.T, wide, [=](int bt, acc* sum) {
        const real* row = qk_in + (long)bt * qk_width(s);
        real* drow = row_of(dqkv, bt, attn_row(s));
        for (int g = 0; g < groups; g++) {
            const ref::QkGroup group = ref::qk_group(g, all, s);
            const int C = group.C;
            const real* w = ref::weight_of(weights, group);
            const real* x = row + group.from;
            real* d = drow + group.from;
            acc* dw_g = group.is_q ? sum : sum + wide;
            const acc* r = rstd + (long)bt * groups + g;
            norm_backward_row(d, dw_g, d, x, w, { NULL, r }, false, C);
        }
    });
    const int wide_k = all ? s.KV * s.HS : s.HS;
    add_times(grads.q, 1, dw.data(), wide);
    add_times(grads.k, 1, dw_k, wide_k);
}
} // namespace cpu
#endif // CPU_OPS_H
