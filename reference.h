/*
reference.h -- namespace ref: every operation of the model as a textbook writes it, one row at a
time, in plain loops. Read this file to see what the model computes. The fast backends, cpu/ and
cuda/, have the same functions and must agree with these. make train_sink BACKEND=ref builds a
program that uses these.

    1 matrix product         forward; backward to the input, the weight, the bias
    2 embedding, norms       tokens in; LayerNorm and RMSNorm
    3 before attention       norms of q and k
    4 attention              one forward and one backward for every variant
    5 the loss               and its gradient
    6 the optimizer          the norm of all gradients, and AdamW's step
    7 elementwise            what every backend on the host takes from here: R is then its type of
                             tensors. Positions, gates, activations, SGD and Muon

Letters: B sequences of T tokens (with the sink token, if there is one), N = B T rows, C channels,
NH query heads, KV key/value heads, HS head size, F FFN width, V vocabulary, OC output channels.
`real` is the type of tensors; `acc` the type of sums, statistics, weight gradients and optimizer
state. Here both are float, or double in tests.

Parameters: outputs, inputs, weights, sizes; tensors that belong together are structs of
attention_row.cuh. Weight gradients are added to (+=), activation gradients overwritten, unless a
comment says otherwise. A build adds every sum in one order (that of `dot` is the compiler's
choice), so the same seed gives the same bits.
*/
#ifndef REFERENCE_H
#define REFERENCE_H
#include "attention_row.cuh"

namespace ref {
using namespace host;              // dot, add_times
typedef REAL real, acc;

// Returns x[i], or 0 where the model has no such bias.
inline real or_zero(const real* x, long i) {
    if (!x) { return 0; }
    return x[i];
}

// Returns x[i], or 1 where the model has no such weight.
inline real or_one(const real* x, long i) {
    if (!x) { return 1; }
    return x[i];
}

inline void zero(real* x, long n) {
    memset(x, 0, n * sizeof(real));
}

template <class R> void rope(R* qkv, const acc* table, int sign, AttnShape s);     // of part 7

// ----------------------------------------------------------------------------
// 1 matrix product

// Multiplies every row of inp by the weight:  out_no = sum_c inp_nc W_oc  [+ bias_o]  [+ res_no]
// out, residual (N, OC); inp (N, C); weight (OC, C); bias (OC). bias and residual may be NULL
inline void matmul_forward(real* out, const real* inp, const real* weight, const real* bias,
                           const real* residual, int N, int C, int OC) {
#pragma omp parallel for
    for (int n = 0; n < N; n++) {
        const real* x = row_of(inp, n, C);
        const real* res = row_of(residual, n, OC);
        real* y = row_of(out, n, OC);
        for (int o = 0; o < OC; o++) {
            y[o] = dot(x, row_of(weight, o, C), C);
            if (bias) { y[o] += bias[o]; }
            if (residual) { y[o] += res[o]; }
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
        if (!add) { zero(dx, C); }
        for (int o = 0; o < OC; o++) {
            add_times(dx, d[o], row_of(weight, o, C), C);
        }
    }
}

// Adds the gradient of the weight, of the same forward line:  dW_oc += sum_n dout_no inp_nc
inline void matmul_backward_weight(acc* dweight, const real* dout, const real* inp, int N, int C,
                                   int OC) {
#pragma omp parallel for
    for (int o = 0; o < OC; o++) {
        acc* dw = row_of(dweight, o, C);
        for (int n = 0; n < N; n++) {
            const real* d = row_of(dout, n, OC);
            add_times(dw, d[o], row_of(inp, n, C), C);
        }
    }
}

// Adds the gradient of the bias, of the same forward line:  dbias_o += sum_n dout_no
inline void matmul_backward_bias(acc* dbias, const real* dout, int N, int OC) {
    for (int n = 0; n < N; n++) {
        add_times(dbias, 1, row_of(dout, n, OC), OC);
    }
}

// ----------------------------------------------------------------------------
// 2 embedding and norms

// Looks up the tokens:  out_t = scale token[id_t] + position_t.  With a sink token, row 0 is
// sink + position_0 and token t has row t + 1. out (B, T, C); tokens (B, T), or (B, T - 1) if sink
inline void embed_forward(real* out, const int* tokens, EmbedTables<const real> tables, float scale,
                          int B, int T, int C) {
    const int skip = tables.sink != NULL;          // rows before the first token's
    for (int b = 0; b < B; b++) {
        const int* ids = tokens + b * (T - skip);
        for (int t = 0; t < T; t++) {
            const real* x = tables.sink;
            acc by = 1;
            if (t >= skip) {
                x = row_of(tables.token, ids[t - skip], C);
                by = scale;
            }

            const real* position = row_of(tables.position, t, C);
            real* o = row_of(out, (long)b * T + t, C);
            for (int c = 0; c < C; c++) {
                o[c] = x[c] * by + or_zero(position, c);
            }
        }
    }
}

template <class P> NormStats<P> stats_of(NormStats<P> all, long n) {
    return { row_of(all.mean, n, 1), all.rstd + n };
}

// Normalizes one row:  out = x^ weight + bias,  x^ = (x - mean) rstd,  where
//      LayerNorm   mean of the row,  rstd = 1 / sqrt(mean((x - mean)^2) + eps)   (Ba et al. 2016)
//      RMSNorm     no mean,          rstd = 1 / sqrt(mean(x^2) + eps)    (Zhang & Sennrich 2019)
inline void norm_row(real* out, NormStats<acc> stats, const real* x, NormWeights<const real> w,
                     float eps, int C) {
    acc mean = 0;                                // stays 0 for RMSNorm
    for (int c = 0; c < C && stats.mean; c++) { mean += x[c] / C; }
    if (stats.mean) { *stats.mean = mean; }

    acc variance = 0;
    for (int c = 0; c < C; c++) {
        const acc from_mean = x[c] - mean;
        variance += from_mean * from_mean / C;
    }
    const acc rstd = acc(1) / sqrt(variance + acc(eps));
    *stats.rstd = rstd;

    for (int c = 0; c < C; c++) {
        const acc normed = (x[c] - mean) * rstd;
        out[c] = normed * or_one(w.weight, c) + or_zero(w.bias, c);
    }
}

// Computes the gradients of one row. In the forward pass this was:
//      out = x^ w + b,   x^ = (x - mean) r,   so, with g = dout w,
//      dx = r (g - mean(g) - x^ mean(g x^))    LayerNorm: mean and r both depend on every x
//      dx = r (g           - x^ mean(g x^))    RMSNorm: only r does          [dx += .. if add]
//      dw += dout x^,   db += dout
inline void norm_row_backward(real* dx, NormWeights<acc> grads, const real* dout, const real* x,
                              const real* weight, NormStats<const acc> stats, bool add, int C) {
    const bool layer_norm = stats.mean != NULL;
    const acc mean = layer_norm ? *stats.mean : 0;
    const acc r = *stats.rstd;

    acc mean_g = 0;                              // stays 0 for RMSNorm
    acc mean_gx = 0;
    for (int c = 0; c < C; c++) {
        const acc g = dout[c] * or_one(weight, c);
        const acc normed = (x[c] - mean) * r;
        if (layer_norm) { mean_g += g / C; }
        mean_gx += g * normed / C;
    }

    for (int c = 0; c < C; c++) {
        const acc g = dout[c] * or_one(weight, c);
        const acc normed = (x[c] - mean) * r;
        const acc d = r * (g - mean_g - normed * mean_gx);
        if (grads.weight) { grads.weight[c] += dout[c] * normed; }
        if (grads.bias) { grads.bias[c] += dout[c]; }
        // written last, because dx may be dout
        if (add) {
            dx[c] += d;
        } else {
            dx[c] = d;
        }
    }
}

// Normalizes every row of inp. out, inp (N, C)
inline void norm_forward(real* out, NormStats<acc> stats, const real* inp,
                         NormWeights<const real> w, NormShape s) {
    for (int n = 0; n < s.N; n++) {
        norm_row(row_of(out, n, s.C), stats_of(stats, n), row_of(inp, n, s.C), w, s.eps, s.C);
    }
}

// Computes the gradients of all rows. dx, dout, x (N, C); weight (C), or NULL
inline void norm_backward(real* dx, NormWeights<acc> grads, const real* dout, const real* x,
                          const real* weight, NormStats<const acc> stats, bool add, NormShape s) {
    for (int n = 0; n < s.N; n++) {
        norm_row_backward(row_of(dx, n, s.C), grads, row_of(dout, n, s.C), row_of(x, n, s.C),
                          weight, stats_of(stats, n), add, s.C);
    }
}

// ----------------------------------------------------------------------------
// 3 before attention. A row of qkv is (q of NH heads | k of KV heads | v of KV heads), HS channels
// each

inline long row_count(AttnShape s) { return (long)s.B * s.T; }
inline int q_width(AttnShape s)    { return s.NH * s.HS; }

// The channels of a row that qk_norm normalizes together: a head, or `all` heads of q, or of k.
struct QkGroup {
    int from;
    int C;
    bool is_q;
};

inline int qk_groups(bool all, AttnShape s) {
    if (all) { return 2; }
    return s.NH + s.KV;
}

inline QkGroup qk_group(int g, bool all, AttnShape s) {
    if (!all) { return { g * s.HS, s.HS, g < s.NH }; }
    if (g == 0) { return { 0, q_width(s), true }; }
    return { q_width(s), s.KV * s.HS, false };
}

template <class P> P* weight_of(QkWeights<P> weights, QkGroup group) {
    if (group.is_q) { return weights.q; }
    return weights.k;
}

// Normalizes q and k by RMSNorm, in place: every head, or `all` heads together.
// qk_in (N, (NH + KV) HS) <- q and k as they were; rstd (N, NH + KV), or (N, 2) for all
inline void qk_norm_forward(real* qkv, real* qk_in, acc* rstd, QkWeights<const real> weights,
                            bool all, float eps, AttnShape s) {
    const int QK = qk_width(s);
    const int groups = qk_groups(all, s);
    for (long i = 0; i < row_count(s) * groups; i++) {
        const long n = i / groups;
        const QkGroup group = qk_group(i % groups, all, s);
        real* x = row_of(qk_in, n, QK) + group.from;
        real* out = row_of(qkv, n, attn_row(s)) + group.from;
        std::copy_n(out, group.C, x);
        norm_row(out, { NULL, rstd + i }, x, { weight_of(weights, group), NULL }, eps, group.C);
    }
}

// Turns dq and dk of dqkv into dx; adds to the gradients of the weights. In the forward pass this
// was:
//      q = x r w   of every group;   norm_row_backward has its gradients
inline void qk_norm_backward(real* dqkv, QkWeights<acc> grads, const real* qk_in, const acc* rstd,
                             QkWeights<const real> weights, bool all, AttnShape s) {
    const int QK = qk_width(s);
    const int groups = qk_groups(all, s);
    for (long i = 0; i < row_count(s) * groups; i++) {
        const long n = i / groups;
        const QkGroup group = qk_group(i % groups, all, s);
        const real* x = row_of(qk_in, n, QK) + group.from;
        real* d = row_of(dqkv, n, attn_row(s)) + group.from;
        norm_row_backward(d, { weight_of(grads, group), NULL }, d, x, weight_of(weights, group),
                          { NULL, rstd + i }, false, group.C);
    }
}

// ----------------------------------------------------------------------------
// 4 attention

// Computes one row of attention as a textbook has it, of ATTN=softmax and BIAS=none: o (HS) of
// token t, from its q (HS) and the keys and values of tokens 0 .. t, each `stride` numbers after
// the one before. attention_forward does the same for all variants; the tests compare the two.
inline void softmax_row(real* o, const real* q, const real* k, const real* v, int t, long stride,
                        int HS, real scale) {
    std::vector<real> A(t + 1);
    real m = -INFINITY;
    for (int j = 0; j <= t; j++) {
        real s = 0;
        for (int i = 0; i < HS; i++) { s += q[i] * k[j * stride + i]; }
        A[j] = scale * s;                        // s_j = scale q . k_j
        m = max_(m, A[j]);
    }
    real Z = 0;
    for (int j = 0; j <= t; j++) {
        A[j] = exp_(A[j] - m);                   // w_j = e^{s_j - m}: none overflows, m cancels
        Z += A[j];
    }
    for (int i = 0; i < HS; i++) { o[i] = 0; }
    for (int j = 0; j <= t; j++) {
        A[j] /= Z;                               // sums to 1: what no key deserves goes to some key
        for (int i = 0; i < HS; i++) { o[i] += A[j] * v[j * stride + i]; }
    }
}

template <class A, class Pe, class Bi>
real score(const Head<Bi, const real>& head, int t, int j) {
    const real product = dot(head.q(t), head.k(j), head.s.HS);
    return attn_score<A, Pe>(head, product, pe_slope<Pe>(head.s, head.h), t, j);
}

// Makes pass 3 of ATTN=softmax_clip, below.
template <class A, class Pe, class Bi>
void attend_clipped(real* o, const Head<Bi, const real>& head, AttnStat<acc> st, int t);

// Attends:  out_t = sum_j A_j v_j,  A_j the weights, as softmax_row does for softmax without an
// extra key. out (B, T, NH HS), stat (B, NH, T, 2) <- qkv (B, T, (NH + 2 KV) HS), extra: the extra
// key. With rope_table, q and k are first rotated in place
template <class A, class Bi, class Pe>
void attention_forward(real* out, acc* stat, real* qkv, ExtraKey<const real> extra,
                       const acc* rope_table, AttnShape s) {
    if (rope_table) { rope(qkv, rope_table, +1, s); }
    const real p = s.p;
#pragma omp parallel for
    for (int bh = 0; bh < s.B * s.NH; bh++) {
        const int b = bh / s.NH;
        const int h = bh % s.NH;
        const Head<Bi, const real> head(qkv, extra, b, h, s);
        std::vector<real> s_j(s.T + 1);                          // scores of one row
        for (int t = 0; t < s.T; t++) {
            // pass 1: the scores, and the largest of them. Column T is the extra key
            real m = attn_initial_max<A, real>();
            for (int j = 0; j <= s.T; j++) {
                if (!head.sees(t, j)) { continue; }
                s_j[j] = score<A, Pe>(head, t, j);
                m = max_(m, s_j[j]);
            }

            // pass 2: the weights w_j = f(s_j), their sum in Z, and sum_j w_j v_j
            real* o = out + head_at(b, t, h, s);
            zero(o, s.HS);
            real sum = 0;
            for (int j = 0; j <= s.T; j++) {
                if (!head.sees(t, j)) { continue; }
                const real w = attn_term<A>(s_j[j], m);
                sum += attn_mass<A>(w, p);
                add_times(o, attn_share<A>(w), head.v(j), s.HS);
            }

            // o_t = sum_j A_j v_j,  A_j = alpha w_j / Z
            const AttnStat<acc> st = attn_stat<A>(m, sum, p, attn_alpha_of<A, real>(s, t));
            const real factor = attn_factor<A>(st);
            for (int i = 0; i < s.HS; i++) {
                o[i] *= factor;
            }
            if (A::clip != NO_CLIP) { attend_clipped<A, Pe>(o, head, st, t); }
            *stat_of(stat, b, t, h, s) = st;
        }
    }
}

// Computes the gradients of q, k and v. In the forward pass this was:
//      o = sum_j A_j v_j,  A_j = alpha f(s_j) / Z,  s_j a score,   so
//      dv_j += A_j do,  d = attn_ds(do . v_j, ..) attn_slope(s_j) scale,  dq += d k_j,  dk_j += d q
// Overwrites dqkv; adds to dextra, which is NULL where nothing is learned. With rope_table, also
// rotates dq and dk back: the backward pass of rope, if q and k came from it
template <class A, class Bi, class Pe>
void attention_backward(real* dqkv, ExtraKey<acc> dextra, const real* dout,
                        AttnResult<real, acc> result, const real* qkv, ExtraKey<const real> extra,
                        const acc* rope_table, AttnShape s) {
    zero(dqkv, row_count(s) * attn_row(s));
    for (int bh = 0; bh < s.B * s.NH; bh++) {
        const int b = bh / s.NH;
        const int h = bh % s.NH;
        const Head<Bi, const real> head(qkv, extra, b, h, s);
        const Head<Bi, real> grads(dqkv, dextra, b, h, s);
        acc* dz = NULL;
        if (Bi::extra == LOGIT_EXTRA) { dz = grads.extra.k; }
        std::vector<real> slopes(s.HS);
        for (int t = 0; t < s.T; t++) {
            const real* o = result.out + head_at(b, t, h, s);
            const real* d_o = dout + head_at(b, t, h, s);
            const AttnStat<acc> st = *stat_of(result.stat, b, t, h, s);
            if (A::clip != NO_CLIP) {
                attend_clipped<ClipSlopes<A>, Pe>(slopes.data(), head, st, t);
                o = slopes.data();
            }
            const real delta = attn_delta<A>(dot(d_o, o, s.HS), st, attn_alpha<A, real>(s));
            for (int j = 0; j <= s.T; j++) {
                if (!head.sees(t, j)) { continue; }
                const bool is_extra = j == s.T;
                const real s_j = score<A, Pe>(head, t, j);
                const real A_j = attn_weight<A>(s_j, st, s.clip);
                const real dA = dot(d_o, head.v(j), s.HS);
                const real ds = attn_ds<A>(s_j, A_j, dA, st, delta, s);
                const real d = ds * attn_slope<A>(s_j, real(s.cap)) * real(s.scale);

                int learned = s.HS;                              // channels of k_j
                if (is_extra) { learned = s.k_dims; }
                add_times(grads.v(j), A_j, d_o, s.HS);
                add_times(grads.k(j), d, head.q(t), learned);
                add_times(grads.q(t), d, head.k(j), s.HS);
                if (is_extra && dz) { *dz += ds; }
            }
        }
    }
    if (rope_table) { rope(dqkv, rope_table, -1, s); }
}

// Sets o (HS) of query t to sum_j A_j v_j where Z has to be known first: small A_j are clipped.
template <class A, class Pe, class Bi>
void attend_clipped(real* o, const Head<Bi, const real>& head, AttnStat<acc> st, int t) {
    const AttnShape& s = head.s;
    zero(o, s.HS);
    for (int j = 0; j <= s.T; j++) {
        if (!head.sees(t, j)) { continue; }
        const real A_j = attn_weight<A>(score<A, Pe>(head, t, j), st, s.clip);
        add_times(o, A_j, head.v(j), s.HS);
    }
}
} // namespace ref
// The parameters of an optimizer step.
struct Update {
    float lr, beta1, beta2, eps, weight_decay;
    long step;             // from 1
};

// The sums over all gradients that an optimizer step needs. In device memory, so that the host need
// not wait.
struct StepSums {
    double loss;           // the mean
    double squares;        // of the gradients
    float grad_scale;      // the factor that brings their norm down
};

// Returns the factor that brings the gradients' norm down to clip (0: off). Returns NAN, which
// means no update, if the loss or the norm is not finite
HD float grad_scale(double loss, double squares, float clip) {
    if (loss - loss != 0 || squares - squares != 0) { return NAN; }
    if (clip <= 0) { return 1; }
    return min_(clip / (sqrt(squares) + 1e-6), 1.0);
}

// ---- Muon's part in elementwise steps, for a matrix of weights (rows, cols). x is wide, (r, c)
// with r <= c: the matrix, or its transpose if it has more rows than columns

// Returns the index in x of element (i, j) of the weights
HD long muon_place(int i, int j, int rows, int cols) {
    if (rows > cols) { return (long)j * rows + i; }
    return (long)i * cols + j;
}

// coefficients of a Newton-Schulz step, the momentum, and the length of a step
static constexpr double MUON_A = 3.4445;
static constexpr double MUON_B = -4.7750;
static constexpr double MUON_C = 2.0315;
static constexpr double MUON_BETA = 0.95;
static constexpr double MUON_LENGTH = 0.2;

namespace ref {
// ----------------------------------------------------------------------------
// 5 the loss

// Caps the logits y (V): y = cap tanh(logit / cap); a cap of 0 means no cap
inline void cap_logits(real* y, float cap, int V) {
    if (cap == 0) { return; }
    for (int v = 0; v < V; v++) {
        y[v] = cap * tanh_(y[v] / cap);
    }
}

// Computes losses (N) = -ln softmax(y)[target],  y = logits, or cap tanh(logits / cap) if cap
// is not 0. logits (N, V) become y and then, unless dloss is 0, dloss dlosses/dlogits. A target
// of -1 has no loss and no gradient
inline void classifier(acc* losses, real* logits, const int* targets, float dloss, float cap, int N,
                       int V) {
#pragma omp parallel for
    for (int n = 0; n < N; n++) {
        real* y = row_of(logits, n, V);
        cap_logits(y, cap, V);
        const int target = targets[n];
        if (target < 0) {
            losses[n] = 0;
            if (dloss != 0) { zero(y, V); }
            continue;
        }

        acc top = -INFINITY;
        for (int v = 0; v < V; v++) {
            top = max_(top, y[v]);
        }
        double sum = 0;
        for (int v = 0; v < V; v++) {
            sum += exp_(y[v] - top);
        }
        losses[n] = acc(log_(sum)) - (y[target] - top);
        if (dloss == 0) { continue; }

        // dloss/dy_v = softmax(y)_v - [v is the target],   dy/dlogit = 1 - (y / cap)^2
        for (int v = 0; v < V; v++) {
            const double softmax = exp_(y[v] - top) / sum;
            const acc part = cap != 0 ? y[v] / cap : acc(0);
            const acc d = (softmax - (v == target)) * (1 - part * part);
            y[v] = dloss * d;
        }
    }
}

// ----------------------------------------------------------------------------
// 6 the optimizer

// Adds the mean loss:  sums->loss += sum of losses (n) / count
inline void loss_add(StepSums* sums, const acc* losses, long n, double count) {
    double sum = 0;
    for (long i = 0; i < n; i++) { sum += losses[i]; }
    sums->loss += sum / count;
}

// Computes sums->squares = sum of x^2, and the grad_scale that follows from it and from the loss
inline void square_norm(StepSums* sums, const acc* x, float clip, long n) {
    double sum = 0;
    for (long i = 0; i < n; i++) {
        sum += (double)x[i] * x[i];
    }
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
    const acc lr = o.lr;
    const acc decay = o.weight_decay;
    const acc b1 = o.beta1;
    const acc b2 = o.beta2;
    const acc c1 = 1 - pow((double)o.beta1, o.step);
    const acc c2 = 1 - pow((double)o.beta2, o.step);
    for (long i = 0; i < n; i++) {
        const acc g = grads[i] * acc(sums->grad_scale);
        m[i] = b1 * m[i] + (1 - b1) * g;
        v[i] = b2 * v[i] + (1 - b2) * g * g;

        const acc size = sqrt(v[i] / c2) + acc(o.eps);
        const acc direction = m[i] / c1 / size;
        master[i] -= lr * (direction + decay * master[i]);
        params[i] = master[i];
    }
}

// ----------------------------------------------------------------------------
// 7 elementwise operations, once for all backends on the host: R is their type of tensors. Nothing
// that a backend could do takes 2 % of a step less

// Adds the gradients of the tables. In the forward pass this was:
//      out_t = scale token[id_t] + position_t,   so   dtoken[id_t] += scale dout_t,
//      dposition_t += dout_t,   and for the sink token   dsink += dout_0
template <class R>
void embed_backward(EmbedTables<acc> grads, const R* dout, const int* tokens, float scale, int B,
                    int T, int C) {
    const int skip = grads.sink != NULL;
    const int some = 16;
    // each thread owns some channels, so that two threads never add to the same row of a token
    #pragma omp parallel for
    for (int c = 0; c < C; c += some) {
        const int n = std::min(some, C - c);
        for (int bt = 0; bt < B * T; bt++) {
            const int t = bt % T;
            const R* d = row_of(dout, bt, C) + c;
            if (grads.position) { add_times(row_of(grads.position, t, C) + c, 1, d, n); }
            if (t < skip) {
                add_times(grads.sink + c, 1, d, n);
            } else {
                const int id = tokens[bt / T * (T - skip) + t - skip];
                add_times(row_of(grads.token, id, C) + c, scale, d, n);
            }
        }
    }
}

// Rotates the pairs (x_i, x_{i+half}) of one head. turn (half, 2) holds cos and sin.
template <class R> void rotate_head(R* x, const acc* turn, int sign, int half) {
    // 16 at a time: 32 bf16 fill a vector, but a head of 32 has no more pairs than that
    #pragma omp simd simdlen(16)
    for (int i = 0; i < half; i++) {
        const acc co = turn[2 * i];
        const acc si = sign * turn[2 * i + 1];
        const acc a = x[i];
        const acc b = x[i + half];
        x[i] = a * co - b * si;
        x[i + half] = a * si + b * co;
    }
}

// Rotates the first rot channels of every head of q and k, in place, by the position: at token t
// the pair (x_i, x_{i+rot/2}) turns by sign * t * theta_i. table (T, rot/2, 2) holds cos and sin
// (Eq. 8; pairs as in LLaMA). Backward is the turn the other way: sign -1, on the gradient
template <class R> void rope(R* qkv, const acc* table, int sign, AttnShape s) {
    const int half = s.rot / 2;
    #pragma omp parallel for if (row_count(s) > 1)
    for (int n = 0; n < row_count(s); n++) {
        const acc* turn = row_of(table, n % s.T, half * 2);
        R* row = row_of(qkv, n, attn_row(s));
        for (int h = 0; h < s.NH + s.KV; h++) {
            rotate_head(row + h * s.HS, turn, sign, half);
        }
    }
}

// Applies the kernel of ATTN=kernel_elu to q and k, in place: phi(x) = elu(x) + 1, that is x + 1
// above 0 and e^x below
template <class R> void phi_elu1_forward(R* qkv, AttnShape s) {
    #pragma omp parallel for
    for (int n = 0; n < row_count(s); n++) {
        R* x = row_of(qkv, n, attn_row(s));
        for (int i = 0; i < qk_width(s); i++) {
            const acc y = x[i];
            x[i] = y > 0 ? y + acc(1) : exp_(min_(y, acc(0)));
        }
    }
}

// Turns dqkv from dy into dx; y is qkv. In the forward pass this was:
//      y = x > 0 ? x + 1 : e^x,   so   dx = min(y, 1) dy
template <class R> void phi_elu1_backward(R* dqkv, const R* qkv, AttnShape s) {
    #pragma omp parallel for
    for (int n = 0; n < row_count(s); n++) {
        const R* y = row_of(qkv, n, attn_row(s));
        R* d = row_of(dqkv, n, attn_row(s));
        for (int i = 0; i < qk_width(s); i++) {
            d[i] = d[i] * min_(acc(y[i]), acc(1));
        }
    }
}

// Gates the heads:  out = att sigma(gate).  out, att (B, T, NH HS); gate (B, T, NH width): a number
// for every head (width 1) or channel (width HS)
template <class R>
void gate_forward(R* out, const R* att, const R* gate, int width, AttnShape s) {
    #pragma omp parallel for
    for (long i = 0; i < row_count(s) * s.NH; i++) {    // one head of one token
        const R* a = row_of(att, i, s.HS);
        const R* x = row_of(gate, i, width);
        R* o = row_of(out, i, s.HS);
        const acc one = sigmoid_(acc(x[0]));
        for (int c = 0; width == 1 && c < s.HS; c++) { o[c] = a[c] * one; }
        for (int c = 0; width > 1 && c < s.HS; c++) { o[c] = a[c] * sigmoid_(acc(x[c])); }
    }
}

// Computes both gradients. In the forward pass this was:
//      out = att sigma(gate),   so   datt = dout sigma,   dgate = dout att sigma (1 - sigma)
// dgate is summed over the channels of a head that share one number. datt may be dout
template <class R>
void gate_backward(R* datt, R* dgate, const R* dout, const R* att, const R* gate, int width,
                   AttnShape s) {
    #pragma omp parallel for
    for (long i = 0; i < row_count(s) * s.NH; i++) {
        const R* a = row_of(att, i, s.HS);
        const R* d = row_of(dout, i, s.HS);
        const R* x = row_of(gate, i, width);
        R* da = row_of(datt, i, s.HS);
        R* dx = row_of(dgate, i, width);
        if (width == 1) {
            const acc g = sigmoid_(acc(x[0]));
            dx[0] = dot(d, a, s.HS) * g * (acc(1) - g);
            for (int c = 0; c < s.HS; c++) { da[c] = d[c] * g; }
            continue;
        }
        for (int c = 0; c < s.HS; c++) {
            const acc g = sigmoid_(acc(x[c]));
            const acc d_c = d[c];
            dx[c] = d_c * a[c] * g * (acc(1) - g);
            da[c] = d_c * g;
        }
    }
}

// Returns the width of a row of heads: one head's if they are summed or share a row, otherwise all
// heads'.
inline int heads_width(bool one, AttnShape s) {
    if (one) { return s.HS; }
    return q_width(s);
}

// Combines the heads:  out_h = att_h + v*_h, side by side (N, NH HS), or their sum (N, HS).
// vstar (NH or 1, HS) may be NULL
template <class R>
void heads_forward(R* out, const R* att, const R* vstar, bool sum, AttnShape s) {
    const int W = q_width(s);
    const int OC = heads_width(sum, s);
    const int extra_width = heads_width(s.bias_shared, s);
    #pragma omp parallel for
    for (int n = 0; n < row_count(s); n++) {
        const R* a = row_of(att, n, W);
        R* o = row_of(out, n, OC);
        for (int c = 0; c < OC; c++) {
            acc total = 0;
            for (int i = c; i < W; i += OC) {
                const acc v = vstar ? acc(vstar[i % extra_width]) : acc(0);
                total += a[i] + v;
            }
            o[c] = total;
        }
    }
}

// Hands the gradient back to the heads. In the forward pass this was:
//      out_h = att_h + v*_h, or their sum,   so   datt_h = dout_h, or dout,   dvstar_h += datt_h
template <class R>
void heads_backward(R* datt, acc* dvstar, const R* dout, bool sum, AttnShape s) {
    const int W = q_width(s);
    const int OC = heads_width(sum, s);
    const int extra_width = heads_width(s.bias_shared, s);
    #pragma omp parallel for
    for (int n = 0; n < row_count(s); n++) {
        R* d = row_of(datt, n, W);
        for (int i = 0; i < W; i += OC) { std::copy_n(row_of(dout, n, OC), OC, d + i); }
    }
    if (!dvstar) { return; }
    for (int i = 0; i < W; i += s.HS) {  // serial: with --bias-share heads all heads add to one row
        for (int n = 0; n < row_count(s); n++) {
            add_times(dvstar + i % extra_width, 1, row_of(datt, n, W) + i, s.HS);
        }
    }
}

// Applies the activation f to one row:  out = f(gate), or f(gate) up.
template <class R, class Act> void ffn_row(R* out, const R* gate, const R* up, int F, Act f) {
    if (!up) {
        #pragma omp simd
        for (int i = 0; i < F; i++) { out[i] = f.act(acc(gate[i])); }
        return;
    }
    #pragma omp simd
    for (int i = 0; i < F; i++) { out[i] = f.act(acc(gate[i])) * acc(up[i]); }
}

// Computes the gradients of one row, d the row of dout.
template <class R, class Act>
void ffn_row_backward(R* dgate, R* dup, const R* d, const R* gate, const R* up, int F, Act f) {
    if (!up) {
        #pragma omp simd
        for (int i = 0; i < F; i++) { dgate[i] = acc(d[i]) * f.dact(acc(gate[i])); }
        return;
    }
    #pragma omp simd
    for (int i = 0; i < F; i++) {
        const acc g = gate[i];
        const acc d_i = d[i];
        dgate[i] = d_i * f.dact(g) * acc(up[i]);
        dup[i] = d_i * f.act(g);
    }
}

// Applies the activation:  out = act(inp);  gated:  out = act(gate) up  with inp = gate | up.
// out (N, F); inp (N, F), or (N, 2 F) if gated. out may be inp unless gated
template <class R>
void ffn_forward(R* out, const R* inp, Activation act, bool gated, int N, int F) {
    const int width = gated ? 2 * F : F;
    with_activation(act, [=](auto f) {
        #pragma omp parallel for if (N > 1)
        for (int n = 0; n < N; n++) {
            const R* gate = row_of(inp, n, width);
            ffn_row(row_of(out, n, F), gate, gated ? gate + F : NULL, F, f);
        }
    });
}

// Computes the gradients of g and u. In the forward pass this was:
//      out = act(g) u,   so   dg = dout act'(g) u,   du = dout act(g)
// dinp may be dout unless gated
template <class R>
void ffn_backward(R* dinp, const R* dout, const R* inp, Activation act, bool gated, int N, int F) {
    const int width = gated ? 2 * F : F;
    with_activation(act, [=](auto f) {
        #pragma omp parallel for
        for (int n = 0; n < N; n++) {
            const R* gate = row_of(inp, n, width);
            R* dgate = row_of(dinp, n, width);
            const R* up = gated ? gate + F : NULL;
            ffn_row_backward(dgate, dgate + F, row_of(dout, n, F), gate, up, F, f);
        }
    });
}

// Steps with SGD and momentum beta1:  m = b1 m + g,  w -= lr (m + decay w)
template <class R>
void sgd_update(R* params, acc* master, acc* m, acc*, const acc* grads, const StepSums* sums,
                Update o, long n) {
    if (std::isnan(sums->grad_scale)) { return; }
    const acc b1 = o.beta1;
    const acc lr = o.lr;
    const acc decay = o.weight_decay;
    const acc scale = sums->grad_scale;
    #pragma omp parallel for simd
    for (long i = 0; i < n; i++) {
        m[i] = b1 * m[i] + grads[i] * scale;
        master[i] -= lr * (m[i] + decay * master[i]);
        params[i] = master[i];
    }
}

// Does one row of muon_begin,  m = beta m + g.  Returns the sum of u^2,  u = g + beta m.
inline double muon_row(acc* m, const acc* grads, acc scale, int cols) {
    const acc beta = MUON_BETA;
    double sum = 0;
    #pragma omp simd reduction(+ : sum)
    for (int k = 0; k < cols; k++) {
        m[k] = beta * m[k] + grads[k] * scale;
        const acc u = grads[k] * scale + beta * m[k];
        sum += (double)u * u;
    }
    return sum;
}

// Starts a step of Muon:  x = u / |u|,  u = g + beta m (Nesterov),  after m = beta m + g.  The sum
// goes by rows, in their order
template <class R>
void muon_begin(R* x, acc* m, const acc* grads, const StepSums* sums, int rows, int cols) {
    if (std::isnan(sums->grad_scale)) { return; }
    const acc beta = MUON_BETA;
    const acc scale = sums->grad_scale;
    std::vector<double> part(rows);
    #pragma omp parallel for
    for (int i = 0; i < rows; i++) {
        part[i] = muon_row(row_of(m, i, cols), row_of(grads, i, cols), scale, cols);
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

// Mixes a Newton-Schulz step:  aa (r, r), which is A A, becomes
//      MUON_A I + MUON_B A + MUON_C A A
template <class R> void muon_mix(R* aa, const R* a, int r) {
    #pragma omp parallel for
    for (int i = 0; i < r; i++) {
        const R* a_i = row_of(a, i, r);
        R* aa_i = row_of(aa, i, r);
        for (int k = 0; k < r; k++) {
            aa_i[k] = acc(MUON_C) * acc(aa_i[k]) + acc(MUON_B) * acc(a_i[k]);
        }
        aa_i[i] = acc(aa_i[i]) + acc(MUON_A);
    }
}

// Ends a step of Muon:  w -= lr (length sqrt(max(rows, cols)) x + decay w)
template <class R>
void muon_end(R* params, acc* master, const R* x, const StepSums* sums, Update o, int rows,
              int cols) {
    if (std::isnan(sums->grad_scale)) { return; }
    const acc length = MUON_LENGTH * sqrt((double)max_(rows, cols));
    const acc lr = o.lr;
    const acc decay = o.weight_decay;
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
} // namespace ref
#endif // REFERENCE_H
