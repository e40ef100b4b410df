/*
mamba.h -- Mamba in place of attention, for forward passes alone, as Jamba has it. Such a layer
has MW channels inside. Each remembers MS numbers h of the tokens before, and that is all it knows
of them:

    u | z     = n W_in^T
    u_t       = silu(w_1 u_{t-K+1} + .. + w_K u_t + bias)              each channel by itself
    d | b | c = u W_dbc^T, each of the three divided by its root mean square, times weights
    step_t    = softplus(d_t W_step^T + bias)                          one for each channel
    h_t       = exp(-step_t exp(a)) h_{t-1} + step_t u_t b_t
    y_t       = (h_t . c_t + skip u_t) silu(z_t)
    x_{2l+1}  = x_{2l} + y W_out^T

h and u are 0 before the first token. While text is generated both are kept, so that each token is
read once. (transformers 5.23, modeling_jamba.py, where a is A_log, step is dt, and skip is D.)
*/
#ifndef MAMBA_H
#define MAMBA_H
#include "../kv_cache.h"   // mamba_numbers
#include "../train_sink.h" // output_forward

inline acc softplus(acc x) { return x > 20 ? x : std::log1p(std::exp(x)); }

// What layer l remembers for the tokens that follow, if generation keeps that: h (MW, MS), and
// behind it the last K - 1 numbers u of every channel (K - 1, MW), the newest first
inline acc* mamba_memory(const Model* m, int l) {
    return m->memory ? m->memory + l * mamba_numbers(m) : NULL;
}

// out (N, MW) <- u, the first half of each row of inp (N, 2 MW); weight (MW, K), bias (MW).
// `past` tokens precede each sequence; `before` (K - 1, MW) has the last of them
inline void mamba_convolution(real* out, const real* inp, const real* weight, const real* bias,
                              const acc* before, int past, int B, int T, int MW, int K) {
    #pragma omp parallel for
    for (int row = 0; row < B * T; row++) {
        const int t = row % T, seen = std::min(K, past + t + 1);  // tokens, the last of them t
        for (int i = 0; i < MW; i++) {
            acc sum = bias[i];
            for (int back = 0; back < seen; back++) {
                const acc u = back <= t ? acc(inp[(size_t)(row - back) * 2 * MW + i])
                                        : before[(size_t)(back - t - 1) * MW + i];
                sum += acc(weight[i * K + K - 1 - back]) * u;
            }
            out[(size_t)row * MW + i] = real(Act_swish::act(sum));
        }
    }
}

// before (K - 1, MW) <- the last u of T rows of inp (T, 2 MW), and of what it held if these are few
inline void mamba_keep_inputs(acc* before, const real* inp, int T, int MW, int K) {
    for (int j = K - 2; j >= 0; j--) {
        for (int i = 0; i < MW; i++) {
            before[(size_t)j * MW + i] = j < T ? acc(inp[(size_t)(T - 1 - j) * 2 * MW + i])
                                               : before[(size_t)(j - T) * MW + i];
        }
    }
}

// out <- x / sqrt(mean(x^2) + eps) * weight, n numbers each; out may be x
inline void mamba_norm(real* out, const real* x, const real* weight, float eps, int n) {
    acc squares = 0;
    for (int i = 0; i < n; i++) { squares += acc(x[i]) * acc(x[i]) / n; }
    const acc scale = 1 / std::sqrt(squares + acc(eps));
    for (int i = 0; i < n; i++) { out[i] = real(acc(x[i]) * scale * acc(weight[i])); }
}

// a.mamba_out <- channel i of sequence b in layer l, token after token
inline void mamba_channel(Model* m, int l, long b, long i) {
    const auto& w = m->w.layer[l];
    const Acts& a = m->a;
    const long MW = m->d.MW, MS = m->d.MS, MP = m->d.MP;
    acc* memory = mamba_memory(m, l);
    std::vector<acc> h(MS), rate(MS);
    if (m->past) { std::copy_n(memory + i * MS, MS, h.data()); }
    for (long s = 0; s < MS; s++) { rate[s] = std::exp(acc(w.mamba_a[i * MS + s])); }
    for (long row = b * m->T; row < (b + 1) * m->T; row++) {
        const real *b_t = a.mamba_dbc + row * MP + m->c.mamba_rank, *c_t = b_t + MS;
        const acc u = a.mamba_u[row * MW + i], z = a.mamba_in[row * 2 * MW + MW + i];
        const acc step = softplus(a.mamba_step[row * MW + i]);
        acc y = acc(w.mamba_skip[i]) * u;
        for (long s = 0; s < MS; s++) {
            h[s] = std::exp(-step * rate[s]) * h[s] + step * u * acc(b_t[s]);
            y += h[s] * acc(c_t[s]);
        }
        a.mamba_out[row * MW + i] = real(y * Act_swish::act(z));
    }
    if (memory) { std::copy_n(h.data(), MS, memory + i * MS); }
}

// the mixer of a Mamba layer: x_{2l+1} out of x_2l and its norm
inline void mamba_forward(Model* m, int l) {
    const auto& w = m->w.layer[l];
    const Acts& a = m->a;
    const long MW = m->d.MW, MS = m->d.MS, MP = m->d.MP, rank = m->c.mamba_rank, N = rows(m);
    ops::matmul_forward(a.mamba_in, act_n(m, 2 * l), w.mamba_inw, NULL, NULL, N, m->d.C, 2 * MW);
    acc* before = m->memory ? mamba_memory(m, l) + MW * MS : NULL;
    mamba_convolution(a.mamba_u, a.mamba_in, w.mamba_convw, w.mamba_convb, before, m->past, m->B,
                      m->T, MW, m->c.mamba_conv);
    if (before) { mamba_keep_inputs(before, a.mamba_in, m->T, MW, m->c.mamba_conv); }
    ops::matmul_forward(a.mamba_dbc, a.mamba_u, w.mamba_dbcw, NULL, NULL, N, MW, MP);
    for (long row = 0; row < N; row++) {
        real *d = a.mamba_dbc + row * MP, *b = d + rank, *c = b + MS;
        mamba_norm(a.mamba_d + row * rank, d, w.mamba_dn, m->c.eps, rank);
        mamba_norm(b, b, w.mamba_bn, m->c.eps, MS);
        mamba_norm(c, c, w.mamba_cn, m->c.eps, MS);
    }
    ops::matmul_forward(a.mamba_step, a.mamba_d, w.mamba_stepw, w.mamba_stepb, NULL, N, rank, MW);
    #pragma omp parallel for collapse(2)
    for (long b = 0; b < m->B; b++) {
        for (long i = 0; i < MW; i++) { mamba_channel(m, l, b, i); }
    }
    output_forward(m, 2 * l, a.mamba_out, w.mamba_outw, NULL, MW);
}

// for the list of stages; never called: model_new trains no such model
inline void mamba_backward(Model*, int) {}
#endif // MAMBA_H
