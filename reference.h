/*
reference.h -- namespace ref: every operation of the model as a textbook writes it, one row at a
time, in loops over single numbers. Read this to know what is computed. The fast backends, cpu/ and
cuda/, have the same functions and must agree with these. make train_sink BACKEND=ref runs on them.

    1 matrix product         forward; backward to the input, the weight, the bias
    2 embedding, norms       tokens in; LayerNorm and RMSNorm
    3 before attention       norms of q and k, rotary positions, the kernel phi
    4 attention              one forward and one backward for every variant
    5 after attention        the gate, heads combined, the FFN's activation
    6 the loss               and its gradient, the norm of all gradients
    7 the optimizers         the steps of AdamW, SGD and Muon

Letters: B sequences of T tokens (with the sink token, if there is one), N = B T rows, C channels,
NH query heads, KV key/value heads, HS head size, F FFN width, V vocabulary, OC output channels.
`real` is what tensors hold; `acc` what sums, statistics, gradients of weights and the optimizer
hold. Here both are float, or double in tests.

Parameters: outputs, inputs, weights, sizes; what belongs together is a struct of operands.h. A
gradient of a weight is added to (+=), that of an activation overwritten, unless a line says
otherwise. A build adds every sum in one order (that of
`dot` is the compiler's choice), so the same seed gives the same bits.
*/
#ifndef REFERENCE_H
#define REFERENCE_H
#include "attention_variants.cuh"
#include "cpu/device.h"
#include "operands.h"

namespace ref {
using namespace host;              // device_malloc and the like
typedef REAL real, acc;
static const char* const name = "ref";
enum { large = 256, piece_rows = 0 }; // side of matrices that are large here; a batch is never cut

// Returns row n of x (.., C).
template <class X> X* row_of(X* x, long n, long C) { return x + n * C; }

// Returns x[i], or 0 where the model has no such bias.
inline real or_zero(const real* x, long i) { return x ? x[i] : real(0); }

// Returns x[i], or 1 where the model has no such weight.
inline real or_one(const real* x, long i) { return x ? x[i] : real(1); }

// Scales y (n) and adds x:  y = by y + x.  A NULL x counts as zeros.
inline void add(real* y, const real* x, long n, acc by = 1) {
    for (long i = 0; i < n; i++) { y[i] = by * y[i] + or_zero(x, i); }
}

// Returns a . b, of n numbers each. A NULL b counts as zeros.
inline acc dot(const real* a, const real* b, int n) {
    acc sum = 0;
    #pragma omp simd reduction(+ : sum)
    for (int i = 0; i < (b ? n : 0); i++) { sum += a[i] * b[i]; }
    return sum;
}

// Adds a multiple:  y (n) += a x.  Does nothing if y or x is NULL.
inline void add_times(real* y, acc a, const real* x, int n) {
    for (int i = 0; x && y && i < n; i++) { y[i] += a * x[i]; }
}

// ----------------------------------------------------------------------------
// 1 matrix product

// Multiplies every row of inp by the weight:  out_no = sum_c inp_nc W_oc  [+ bias_o]  [+ res_no]
// out, residual (N, OC); inp (N, C); weight (OC, C); bias (OC). bias and residual may be NULL
inline void matmul_forward(real* out, const real* inp, const real* weight, const real* bias,
                           const real* residual, int N, int C, int OC) {
#pragma omp parallel for
    for (int n = 0; n < N; n++) {
        const real* x = row_of(inp, n, C);
        for (int o = 0; o < OC; o++) {
            const long at = (long)n * OC + o;
            out[at] = dot(x, row_of(weight, o, C), C);
            if (bias) { out[at] += bias[o]; }
            if (residual) { out[at] += residual[at]; }
        }
    }
}

// Computes the gradient of the input. In the forward pass this was:
//      out_no = sum_c inp_nc W_oc + bias_o,   so   dinp_nc = sum_o dout_no W_oc    [+= if add]
inline void matmul_backward_input(real* dinp, const real* dout, const real* weight, bool add, int N,
                                  int C, int OC) {
#pragma omp parallel for
    for (int n = 0; n < N; n++) {
        real* dx = row_of(dinp, n, C);
        const real* d = row_of(dout, n, OC);
        for (int c = 0; c < C && !add; c++) { dx[c] = 0; }
        for (int o = 0; o < OC; o++) { add_times(dx, d[o], row_of(weight, o, C), C); }
    }
}

// Adds the gradient of the weight, of the same forward line:  dW_oc += sum_n dout_no inp_nc
inline void matmul_backward_weight(acc* dweight, const real* dout, const real* inp, int N, int C,
                                   int OC) {
#pragma omp parallel for
    for (int o = 0; o < OC; o++) {
        acc* dw = row_of(dweight, o, C);
        for (int n = 0; n < N; n++) {
            const real d = dout[(long)n * OC + o];
            add_times(dw, d, row_of(inp, n, C), C);
        }
    }
}

// Adds the gradient of the bias, of the same forward line:  dbias_o += sum_n dout_no
inline void matmul_backward_bias(acc* dbias, const real* dout, int N, int OC) {
    for (int n = 0; n < N; n++) { add_times(dbias, 1, row_of(dout, n, OC), OC); }
}

// ----------------------------------------------------------------------------
// 2 embedding and norms

// Looks up the tokens:  out_t = scale token[id_t] + position_t.  With a sink token, row 0 is
// sink + position_0 and token t has row t + 1. out (B, T, C); tokens (B, T), or (B, T - 1) if sink
inline void embed_forward(real* out, const int* tokens, EmbedTables<const real> tables, float scale,
                          int B, int T, int C) {
    const int skip = tables.sink ? 1 : 0;
    for (int b = 0; b < B; b++) {
        for (int t = 0; t < T; t++) {
            const real* x = tables.sink;
            acc by = 1;
            if (t >= skip) {
                const int id = tokens[b * (T - skip) + t - skip];
                x = row_of(tables.token, id, C);
                by = scale;
            }

            real* o = row_of(out, (long)b * T + t, C);
            const real* p = tables.position ? row_of(tables.position, t, C) : NULL;
            for (int c = 0; c < C; c++) { o[c] = x[c] * by + or_zero(p, c); }
        }
    }
}

// Adds the gradients of the tables. In the forward pass this was:
//      out_t = scale token[id_t] + position_t,   so   dtoken[id_t] += scale dout_t,
//      dposition_t += dout_t,   and for the sink token   dsink += dout_0
inline void embed_backward(EmbedTables<acc> grads, const real* dout, const int* tokens, float scale,
                           int B, int T, int C) {
    const int skip = grads.sink ? 1 : 0;
    for (int b = 0; b < B; b++) {
        for (int t = 0; t < T; t++) {
            const real* d = row_of(dout, (long)b * T + t, C);
            if (grads.position) { add_times(row_of(grads.position, t, C), 1, d, C); }

            if (t < skip) {
                add_times(grads.sink, 1, d, C);
            } else {
                const int id = tokens[b * (T - skip) + t - skip];
                add_times(row_of(grads.token, id, C), scale, d, C);
            }
        }
    }
}

// Returns the statistics of row n.
template <class P> NormStats<P> stats_of(NormStats<P> all, long n) {
    P* const mean = all.mean ? all.mean + n : NULL;
    return { mean, all.rstd + n };
}

// Normalizes one row:  out = x^ weight + bias,  x^ = (x - mean) rstd,  where
//      LayerNorm   mean of the row,  rstd = 1 / sqrt(mean((x - mean)^2) + eps)   (Ba et al. 2016)
//      RMSNorm     no mean,          rstd = 1 / sqrt(mean(x^2) + eps)    (Zhang & Sennrich 2019)
inline void norm_row(real* out, NormStats<acc> stats, const real* x, NormWeights<const real> w,
                     float eps, int C) {
    acc mean = 0;
    for (int c = 0; c < C && stats.mean; c++) { mean += x[c] / C; }

    acc variance = 0;
    for (int c = 0; c < C; c++) { variance += (x[c] - mean) * (x[c] - mean) / C; }
    const acc rstd = acc(1) / sqrt(variance + acc(eps));

    for (int c = 0; c < C; c++) {
        out[c] = (x[c] - mean) * rstd * or_one(w.weight, c) + or_zero(w.bias, c);
    }
    *stats.rstd = rstd;
    if (stats.mean) { *stats.mean = mean; }
}

// Computes the gradients of one row. In the forward pass this was:
//      out = x^ w + b,   x^ = (x - mean) r,   so, with g = dout w,
//      dx = r (g - mean(g) - x^ mean(g x^))    LayerNorm: mean and r both depend on every x
//      dx = r (g           - x^ mean(g x^))    RMSNorm: only r does          [dx += .. if add]
//      dw += dout x^,   db += dout
inline void norm_row_backward(real* dx, NormWeights<acc> grads, const real* dout, const real* x,
                              const real* weight, NormStats<const acc> stats, bool add, int C) {
    const acc m = stats.mean ? *stats.mean : acc(0);
    const acc r = *stats.rstd;
    auto g = [=](int c) { return dout[c] * or_one(weight, c); };
    auto normed = [=](int c) { return (x[c] - m) * r; };

    acc mean_g = 0;
    acc mean_gx = 0;
    for (int c = 0; c < C; c++) {
        mean_g += stats.mean ? g(c) / C : acc(0);
        mean_gx += g(c) * normed(c) / C;
    }

    for (int c = 0; c < C; c++) {
        const acc d = r * (g(c) - mean_g - normed(c) * mean_gx);
        if (grads.weight) { grads.weight[c] += dout[c] * normed(c); }
        if (grads.bias)   { grads.bias[c] += dout[c]; }
        dx[c] = add ? dx[c] + d : d;              // the last to be written: dx may be dout
    }
}

// Normalizes every row of inp. out, inp (N, C)
inline void norm_forward(real* out, NormStats<acc> stats, const real* inp,
                         NormWeights<const real> w, NormShape s) {
    for (int n = 0; n < s.N; n++) {
        const real* x = row_of(inp, n, s.C);
        norm_row(row_of(out, n, s.C), stats_of(stats, n), x, w, s.eps, s.C);
    }
}

// Computes the gradients of all rows. dx, dout, x (N, C); weight (C), or NULL
inline void norm_backward(real* dx, NormWeights<acc> grads, const real* dout, const real* x,
                          const real* weight, NormStats<const acc> stats, bool add, NormShape s) {
    for (int n = 0; n < s.N; n++) {
        const long row = (long)n * s.C;
        norm_row_backward(dx + row, grads, dout + row, x + row, weight, stats_of(stats, n), add,
                          s.C);
    }
}

// ----------------------------------------------------------------------------
// 3 before attention. A row of qkv is (q of NH heads | k of KV heads | v of KV heads), HS channels
// each

// Calls f(at, i) for every number of q and k: its places in qkv and in a tensor (N, (NH + KV) HS)
template <class F> void each_qk(AttnShape s, F f) {
    const long QK = (s.NH + s.KV) * s.HS;
    for (long i = 0; i < s.B * s.T * QK; i++) { f(i / QK * attn_row(s) + i % QK, i); }
}

// Copies q and k out of qkv into that tensor. ATTN=mlp computes phi from it in two matrix products
inline void qk_gather(real* qk, const real* qkv, AttnShape s) {
    each_qk(s, [=](long at, long i) { qk[i] = qkv[at]; });
}

// Copies q and k back into qkv.
inline void qk_scatter(real* qkv, const real* qk, AttnShape s) {
    each_qk(s, [=](long at, long i) { qkv[at] = qk[i]; });
}

// what qk_norm normalizes together: a head, or `all` heads of q, or of k
struct QkGroup { int from, C; bool is_q; };
inline int qk_groups(bool all, AttnShape s) { return all ? 2 : s.NH + s.KV; }
inline QkGroup qk_group(int g, bool all, AttnShape s) {
    if (!all) { return { g * s.HS, s.HS, g < s.NH }; }
    return g == 0 ? QkGroup{ 0, s.NH * s.HS, true } : QkGroup{ s.NH * s.HS, s.KV * s.HS, false };
}

// Normalizes q and k by RMSNorm, in place: every head, or `all` heads together.
// qk_in (N, (NH + KV) HS) <- q and k as they were; rstd (N, NH + KV), or (N, 2) for all
inline void qk_norm_forward(real* qkv, real* qk_in, acc* rstd, QkWeights<const real> weights,
                            bool all, float eps, AttnShape s) {
    const int QK = (s.NH + s.KV) * s.HS;
    const int G = qk_groups(all, s);
    qk_gather(qk_in, qkv, s);
    for (int i = 0; i < s.B * s.T * G; i++) {
        const QkGroup a = qk_group(i % G, all, s);
        const real* x = row_of(qk_in, i / G, QK) + a.from;
        const real* w = a.is_q ? weights.q : weights.k;
        real* out = row_of(qkv, i / G, attn_row(s)) + a.from;
        norm_row(out, { NULL, rstd + i }, x, { w, NULL }, eps, a.C);
    }
}

// Turns dq and dk of dqkv into dx; adds to the gradients of the weights. In the forward pass this
// was:
//      q = x r w   of every group;   norm_row_backward has its gradients
inline void qk_norm_backward(real* dqkv, QkWeights<acc> grads, const real* qk_in, const acc* rstd,
                             QkWeights<const real> weights, bool all, AttnShape s) {
    const int QK = (s.NH + s.KV) * s.HS;
    const int G = qk_groups(all, s);
    for (int i = 0; i < s.B * s.T * G; i++) {
        const QkGroup a = qk_group(i % G, all, s);
        const real* x = row_of(qk_in, i / G, QK) + a.from;
        const real* w = a.is_q ? weights.q : weights.k;
        acc* dw = a.is_q ? grads.q : grads.k;
        real* d = row_of(dqkv, i / G, attn_row(s)) + a.from;
        norm_row_backward(d, { dw, NULL }, d, x, w, { NULL, rstd + i }, false, a.C);
    }
}

// Rotates the first rot channels of every head of q and k, in place, by the position: at token t
// the pair (x_i, x_{i+rot/2}) turns by sign * t * theta_i. table (T, rot/2, 2) holds cos and sin
// (Eq. 8; pairs as in LLaMA). Backward is the turn the other way: sign -1, on the gradient
inline void rope(real* qkv, const acc* table, int sign, AttnShape s) {
    const int half = s.rot / 2;
    for (int n = 0; n < s.B * s.T; n++) {
        const acc* turn = table + (long)(n % s.T) * half * 2;
        for (int h = 0; h < s.NH + s.KV; h++) {
            real* x = row_of(qkv, n, attn_row(s)) + h * s.HS;
            for (int i = 0; i < half; i++) {
                const acc co = turn[2 * i];
                const acc si = sign * turn[2 * i + 1];
                const acc a = x[i];
                const acc b = x[i + half];
                x[i] = a * co - b * si;
                x[i + half] = a * si + b * co;
            }
        }
    }
}

// Applies the kernel of ATTN=kernel_elu to q and k, in place: phi(x) = elu(x) + 1, that is x + 1
// above 0 and e^x below
inline void phi_elu1_forward(real* qkv, AttnShape s) {
    each_qk(s, [=](long at, long) { qkv[at] = qkv[at] > 0 ? qkv[at] + real(1) : exp_(qkv[at]); });
}

// Turns dqkv from dy into dx; y is qkv. In the forward pass this was:
//      y = x > 0 ? x + 1 : e^x,   so   dx = min(y, 1) dy
inline void phi_elu1_backward(real* dqkv, const real* qkv, AttnShape s) {
    each_qk(s, [=](long at, long) { dqkv[at] *= min_(qkv[at], real(1)); });
}

// ----------------------------------------------------------------------------
// 4 attention

// What query head h of sequence b sees. Column j < T is token j; column T is the extra one of BIAS,
// which has no position
template <class A, class Bi, class Pe> struct Head {
    const real *qkv, *star, *v_star;             // star: k*, or the logit z; NULL is zero
    AttnShape s;
    int h, g;                                    // query head h reads key/value head g
    float slope;                                 // of PE's bias

    Head(const real* all, StarColumn<const real> column, int b, int h, AttnShape s)
        : qkv(all + (long)b * s.T * attn_row(s)), star(attn_column<Bi>(column.k, s, h)),
          v_star(attn_star(column.v, s, h / (s.NH / s.KV))), s(s), h(h), g(h / (s.NH / s.KV)),
          slope(pe_slope<Pe>(s, h)) {}
    const real* row(int t, int head) const { return qkv + (long)t * attn_row(s) + head * s.HS; }
    const real* q(int t) const { return row(t, h); }
    const real* k(int j) const {
        if (j < s.T) { return row(j, s.NH + g); }
        return Bi::column == KEY_COLUMN ? star : NULL;
    }
    const real* v(int j) const { return j < s.T ? row(j, s.NH + s.KV + g) : v_star; }
    bool sees(int t, int j) const { return j < s.T ? attn_sees(s, t, j) : Bi::column != NO_COLUMN; }

    real score(int t, int j) const {
        if (j == s.T && Bi::column == LOGIT_COLUMN) { return *star; }
        const real bias = j < s.T ? attn_bias<A, Pe, real>(s, t - j, slope) : real(0);
        return attn_capped<A>(dot(q(t), k(j), s.HS) * real(s.scale) + bias, real(s.cap));
    }
};

// Attends:  out_t = sum_j A_j v_j,  A_j the weights.
// out (B, T, NH HS), stat (B, NH, T, 2) <- qkv (B, T, (NH + 2 KV) HS), star: the extra column
template <class A, class Bi, class Pe>
void attention_forward(real* out, acc* stat, const real* qkv, StarColumn<const real> star,
                       AttnShape s) {
#pragma omp parallel for
    for (int bh = 0; bh < s.B * s.NH; bh++) {
        const int b = bh / s.NH, h = bh % s.NH;
        const Head<A, Bi, Pe> head(qkv, star, b, h, s);
        std::vector<real> score(s.T + 1);                        // of one row
        for (int t = 0; t < s.T; t++) {
            // pass 1: the scores, and the largest of them
            real m = attn_least<A, real>();
            for (int j = 0; j <= s.T; j++) {
                if (!head.sees(t, j)) { continue; }
                score[j] = head.score(t, j);
                m = max_(m, score[j]);
            }

            // pass 2: the weights w_j = f(s_j), their sum in Z, and sum_j w_j v_j
            real* o = out + (((long)b * s.T + t) * s.NH + h) * s.HS;
            real sum = 0;
            for (int i = 0; i < s.HS; i++) { o[i] = 0; }
            for (int j = 0; j <= s.T; j++) {
                if (!head.sees(t, j)) { continue; }
                const real w = attn_term<A>(score[j], m);
                sum += attn_mass<A>(w, real(s.p));
                add_times(o, attn_share<A>(w), head.v(j), s.HS);
            }

            // o_t = sum_j A_j v_j,  A_j = alpha w_j / Z
            acc row[2];
            const real factor = attn_stat<A>(row, m, sum, real(s.p), attn_alpha<A, real>(s));
            for (int i = 0; i < s.HS; i++) { o[i] *= factor; }
            memcpy(stat + ((long)bh * s.T + t) * 2, row, sizeof row);
        }
    }
}

// Computes the gradients of q, k and v. In the forward pass this was:
//      o = sum_j A_j v_j,  A_j = alpha f(s_j) / Z,  s_j a score,   so
//      dv_j += A_j do,  d = attn_ds(do . v_j, ..) attn_slope(s_j) scale,  dq += d k_j,  dk_j += d q
// dqkv is overwritten; dstar += as star, NULL where nothing is learned. With turns, rope's table,
// dq and dk are rotated back: if q and k came out of rope, this is its backward, too
template <class A, class Bi, class Pe>
void attention_backward(real* dqkv, StarColumn<acc> dstar, const real* dout,
                        AttnResult<real, acc> result, const real* qkv, StarColumn<const real> star,
                        const acc* turns, AttnShape s) {
    const int W = attn_row(s), HS = s.HS;
    const real alpha = attn_alpha<A, real>(s);
    memset(dqkv, 0, (size_t)s.B * s.T * W * sizeof(real));
    for (int bh = 0; bh < s.B * s.NH; bh++) {
        const int b = bh / s.NH, h = bh % s.NH;
        const Head<A, Bi, Pe> head(qkv, star, b, h, s);
        acc* d_star = attn_column<Bi>(dstar.k, s, h);
        acc* dv_star = attn_star(dstar.v, s, head.g);
        acc* dk_star = Bi::column == KEY_COLUMN ? d_star : NULL;
        acc* dz = Bi::column == LOGIT_COLUMN ? d_star : NULL;
        for (int t = 0; t < s.T; t++) {
            const long at = (((long)b * s.T + t) * s.NH + h) * HS;
            const real* do_t = dout + at;
            const real* st = result.stat + ((long)bh * s.T + t) * 2;
            const real delta = attn_delta<A>(dot(do_t, result.out + at, HS), st[1], alpha);
            real* dq = dqkv + ((long)b * s.T + t) * W + h * HS;
            for (int j = 0; j <= s.T; j++) {
                if (!head.sees(t, j)) { continue; }
                const bool extra = j == s.T;
                const real s_j = head.score(t, j);
                const real A_j = attn_weight<A>(s_j, st[0], st[1]);
                const real dA = dot(do_t, head.v(j), HS);
                const real ds = attn_ds<A>(s_j, A_j, dA, st[0], st[1], delta, real(s.p), alpha);
                const real d = ds * attn_slope<A>(s_j, real(s.cap)) * real(s.scale);
                real* dk = extra ? dk_star : dqkv + ((long)b * s.T + j) * W + (s.NH + head.g) * HS;
                add_times(extra ? dv_star : dk + s.KV * HS, A_j, do_t, HS);
                add_times(dk, d, head.q(t), extra ? s.k_dims : HS);
                add_times(dq, d, head.k(j), HS);
                if (extra && dz) { *dz += ds; }
            }
        }
    }
    if (turns) { rope(dqkv, turns, -1, s); }
}

// ----------------------------------------------------------------------------
// 5 after attention

// Gates the heads:  out = att sigma(gate).  out, att (N, NH HS); gate (N, NH width): width 1 gates
// heads, width HS channels
inline void gate_forward(real* out, const real* att, const real* gate, int width, AttnShape s) {
    for (long i = 0; i < (long)s.B * s.T * s.NH * s.HS; i++) {
        const long at = width == 1 ? i / s.HS : i;
        out[i] = att[i] * sigmoid_(gate[at]);
    }
}

// Computes both gradients. In the forward pass this was:
//      out = att sigma(gate),   so   datt = dout sigma,   dgate = dout att sigma (1 - sigma)
// dgate is summed over the channels of a head that share one number. datt may be dout
inline void gate_backward(real* datt, real* dgate, const real* dout, const real* att,
                          const real* gate, int width, AttnShape s) {
    const long n = (long)s.B * s.T * s.NH * s.HS;
    memset(dgate, 0, n / s.HS * width * sizeof(real));
    for (long i = 0; i < n; i++) {
        const long at = width == 1 ? i / s.HS : i;
        const real g = sigmoid_(gate[at]);
        const real d = dout[i];

        dgate[at] += d * att[i] * g * (real(1) - g);
        datt[i] = d * g;
    }
}

// Combines the heads:  out_h = att_h + v*_h, side by side (N, NH HS), or their sum (N, HS).
// vstar (NH or 1, HS) may be NULL
inline void heads_forward(real* out, const real* att, const real* vstar, bool sum, AttnShape s) {
    const long N = s.B * s.T;
    const long W = s.NH * s.HS;
    const long OC = sum ? s.HS : W;
    const long S = s.bias_shared ? s.HS : W;
    memset(out, 0, N * OC * sizeof(real));
    for (long i = 0; i < N * W; i++) {
        const long row = i / W;
        out[row * OC + i % OC] += att[i] + or_zero(vstar, i % S);
    }
}

// Hands the gradient back to the heads. In the forward pass this was:
//      out_h = att_h + v*_h, or their sum,   so   datt_h = dout_h, or dout,   dvstar_h += datt_h
inline void heads_backward(real* datt, acc* dvstar, const real* dout, bool sum, AttnShape s) {
    const long N = s.B * s.T;
    const long W = s.NH * s.HS;
    const long OC = sum ? s.HS : W;
    const long S = s.bias_shared ? s.HS : W;
    for (long i = 0; i < N * W; i++) {
        const long row = i / W;
        datt[i] = dout[row * OC + i % OC];
        if (dvstar) { dvstar[i % S] += datt[i]; }
    }
}

// Applies the activation:  out = act(inp);  gated:  out = act(gate) up  with inp = gate | up.
// out (N, F); inp (N, F), or (N, 2 F) if gated. out may be inp unless gated
inline void ffn_forward(real* out, const real* inp, Activation act, bool gated, int N, int F) {
    with_activation(act, [=](auto f) {
        for (int n = 0; n < N; n++) {
            const real* gate = row_of(inp, n, gated ? 2 * F : F);
            const real* up = gated ? gate + F : NULL;
            real* o = row_of(out, n, F);
            for (int i = 0; i < F; i++) { o[i] = f.act(gate[i]) * or_one(up, i); }
        }
    });
}

// Computes the gradients of g and u. In the forward pass this was:
//      out = act(g) u,   so   dg = dout act'(g) u,   du = dout act(g)
inline void ffn_backward(real* dinp, const real* dout, const real* inp, Activation act,
                         bool gated, int N, int F) {
    with_activation(act, [=](auto f) {
        for (int n = 0; n < N; n++) {
            const real* gate = row_of(inp, n, gated ? 2 * F : F);
            const real* up = gated ? gate + F : NULL;
            real* dgate = row_of(dinp, n, gated ? 2 * F : F);
            real* dup = dgate + F;
            for (int i = 0; i < F; i++) {
                const real g = gate[i];
                const real u = or_one(up, i);
                const real d = dout[(long)n * F + i];
                dgate[i] = d * f.dact(g) * u;
                if (gated) { dup[i] = d * f.act(g); }
            }
        }
    });
}
} // namespace ref
// the parameters of an optimizer step; step counts from 1
struct Update { float lr, beta1, beta2, eps, weight_decay; long step; };

// what it needs to know of all gradients: the mean loss, their squared norm, and the factor to
// multiply them by. In device memory, so that the host need not wait for it
struct StepSums { double loss, squares; float grad_scale; };

// Returns the factor that brings the gradients' norm down to clip (0: off). Returns NAN, which
// means no update, if the loss or the norm is not finite
HD float grad_scale(double loss, double squares, float clip) {
    if (loss - loss != 0 || squares - squares != 0) { return NAN; }
    const double scale = clip > 0 ? clip / (sqrt(squares) + 1e-6) : 1.0;
    return scale < 1 ? scale : 1.0;
}

// ---- Muon's part in elementwise steps, for a matrix of weights (rows, cols). x is wide, (r, c)
// with r <= c: the matrix, or its transpose if it has more rows than columns

// Returns the index in x of element (i, j) of the weights
HD long muon_place(int i, int j, int rows, int cols) {
    return rows > cols ? (long)j * rows + i : (long)i * cols + j;
}

// coefficients of a Newton-Schulz step, the momentum, and the length of a step
static constexpr double MUON_A = 3.4445, MUON_B = -4.7750, MUON_C = 2.0315;
static constexpr double MUON_BETA = 0.95, MUON_LENGTH = 0.2;

namespace ref {
// ----------------------------------------------------------------------------
// 6 classifier

// Computes losses (N) = -ln softmax(y)[target],  y = logits, or cap tanh(logits / cap) if cap
// is not 0. logits (N, V) become y and then, unless dloss is 0, dloss dlosses/dlogits. A target
// of -1 has no loss and no gradient
inline void classifier(acc* losses, real* logits, const int* targets, float dloss, float cap, int N,
                       int V) {
#pragma omp parallel for
    for (int n = 0; n < N; n++) {
        real* y = logits + (long)n * V;
        const int target = targets[n];
        acc top = -INFINITY;
        double sum = 0;
        for (int v = 0; v < V; v++) {
            if (cap != 0) { y[v] = cap * tanh_(y[v] / cap); }
            top = max_(top, y[v]);
        }
        for (int v = 0; v < V; v++) { sum += exp_(y[v] - top); }
        losses[n] = target < 0 ? acc(0) : acc(log_(sum)) - (y[target] - top);
        // dloss/dy_v = softmax(y)_v - [v is the target],  dy/dlogit = 1 - (y / cap)^2
        for (int v = 0; v < V && dloss != 0; v++) {
            const acc slope = cap != 0 ? acc(1) - y[v] / cap * (y[v] / cap) : acc(1);
            const acc d = (exp_(y[v] - top) / sum - (v == target)) * slope;
            y[v] = target < 0 ? acc(0) : dloss * d;
        }
    }
}

// ----------------------------------------------------------------------------
// 7 optimizer

// Copies the weights as `real`: the same numbers, where `acc` is no wider
inline void cast_to_real(real* dst, const acc* src, long n) {
    for (long i = 0; i < n && dst != src; i++) { dst[i] = src[i]; }
}

// Adds the mean loss:  sums->loss += sum of losses (n) / count
inline void loss_add(StepSums* sums, const acc* losses, long n, double count) {
    double sum = 0;
    for (long i = 0; i < n; i++) { sum += losses[i]; }
    sums->loss += sum / count;
}

// Computes sums->squares = sum of x^2, and the grad_scale that follows from it and from the loss
inline void square_norm(StepSums* sums, const acc* x, float clip, long n) {
    double sum = 0;
    for (long i = 0; i < n; i++) { sum += (double)x[i] * x[i]; }
    sums->squares = sum;
    sums->grad_scale = grad_scale(sums->loss, sum, clip);
}

// Steps with AdamW (Loshchilov & Hutter 2017):
//      m = b1 m + (1 - b1) g,  v = b2 v + (1 - b2) g^2,
//      w -= lr (m^ / (sqrt(v^) + eps) + decay w),   m^ = m / (1 - b1^step),  v^ = v / (1 - b2^step)
// master holds the weights, params their copy as `real`, which may be the same array
inline void adamw_update(real* params, acc* master, acc* m, acc* v, const acc* grads,
                         const StepSums* sums, Update o, long n) {
    if (std::isnan(sums->grad_scale)) { return; }
    const acc b1 = o.beta1;
    const acc b2 = o.beta2;
    const acc c1 = 1 - pow((double)o.beta1, o.step);
    const acc c2 = 1 - pow((double)o.beta2, o.step);
    for (long i = 0; i < n; i++) {
        const acc g = grads[i] * acc(sums->grad_scale);
        m[i] = b1 * m[i] + (1 - b1) * g;
        v[i] = b2 * v[i] + (1 - b2) * g * g;

        const acc direction = m[i] / c1 / (sqrt(v[i] / c2) + acc(o.eps));
        master[i] -= acc(o.lr) * (direction + acc(o.weight_decay) * master[i]);
        params[i] = master[i];
    }
}

// Steps with SGD and momentum beta1:  m = b1 m + g,  w -= lr (m + decay w)
inline void sgd_update(real* params, acc* master, acc* m, acc*, const acc* grads,
                       const StepSums* sums, Update o, long n) {
    if (std::isnan(sums->grad_scale)) { return; }
    for (long i = 0; i < n; i++) {
        m[i] = acc(o.beta1) * m[i] + grads[i] * acc(sums->grad_scale);
        master[i] -= acc(o.lr) * (m[i] + acc(o.weight_decay) * master[i]);
        params[i] = master[i];
    }
}

// Starts a step of Muon:  x = u / |u|,  u = g + beta m (Nesterov),  after m = beta m + g
inline void muon_begin(real* x, acc* m, const acc* grads, const StepSums* sums, int rows,
                       int cols) {
    if (std::isnan(sums->grad_scale)) { return; }
    const acc beta = MUON_BETA, scale = sums->grad_scale;
    double squares = 0;
    for (long k = 0; k < (long)rows * cols; k++) {
        m[k] = beta * m[k] + grads[k] * scale;
        const acc u = grads[k] * scale + beta * m[k];
        squares += (double)u * u;
    }
    for (long k = 0; k < (long)rows * cols; k++) {
        const acc u = grads[k] * scale + beta * m[k];
        x[muon_place(k / cols, k % cols, rows, cols)] = u / (sqrt(squares) + 1e-7);
    }
}

// Mixes a Newton-Schulz step:  aa (r, r), which is A A, becomes  a I + b A + c A A
inline void muon_mix(real* aa, const real* a, int r) {
    for (long k = 0; k < (long)r * r; k++) {
        aa[k] = MUON_C * aa[k] + MUON_B * a[k] + (k / r == k % r ? MUON_A : 0);
    }
}

// Ends a step of Muon:  w -= lr (length sqrt(max(rows, cols)) x + decay w)
inline void muon_end(real* params, acc* master, const real* x, const StepSums* sums, Update o,
                     int rows, int cols) {
    if (std::isnan(sums->grad_scale)) { return; }
    const acc length = MUON_LENGTH * sqrt((double)max_(rows, cols));
    for (long k = 0; k < (long)rows * cols; k++) {
        const acc step = length * x[muon_place(k / cols, k % cols, rows, cols)];
        master[k] -= acc(o.lr) * (step + acc(o.weight_decay) * master[k]);
        params[k] = master[k];
    }
}
} // namespace ref
#endif // REFERENCE_H
