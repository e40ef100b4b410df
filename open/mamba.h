/*
mamba.h -- Mamba in place of attention, for forward passes alone, as Jamba has it. Such a layer
has MW channels inside. Each remembers MS numbers h, and knows nothing else of the tokens before:

    u | z     = n W_in^T
    u_t       = silu(w_1 u_{t-K+1} + .. + w_K u_t + bias)              each channel by itself
    d | b | c = u W_dbc^T, each of the three divided by its root mean square, times weights
    step_t    = softplus(d_t W_step^T + bias)                          one for each channel
    h_t       = exp(-step_t exp(a)) h_{t-1} + step_t u_t b_t
    y_t       = (h_t . c_t + skip u_t) silu(z_t)
    x_{2l+1}  = x_{2l} + y W_out^T

h and u are 0 before the first token. Generation keeps both, so that each token is read once.
(transformers 5.23, modeling_jamba.py, where a is A_log, step is dt, and skip is D.)
*/
#ifndef MAMBA_H
#define MAMBA_H
#include "../core/kv_cache.h"   // mixer_numbers
#include "../core/train_sink.h" // output_forward

inline acc softplus(acc x) { return x > 20 ? x : std::log1p(std::exp(x)); }

// Returns what layer l remembers for the tokens that follow, if generation keeps that. Of Mamba h
// (MW, MS), and behind it the last K - 1 numbers u of every channel (K - 1, MW), the newest first.
inline acc* mixer_memory(const Model* m, int l) {
    return m->mixer_state ? m->mixer_state + l * mixer_numbers(m) : NULL;
}

// The numbers u that a convolution reads.
struct ConvolutionInput {
    const real* inp;                // (N, stride): u begins each row
    long stride;
    const acc* before;              // (K - 1, MW) the last ones before each sequence
    int past;                       // how many tokens precede each sequence
    long MW;
    int K;

    const real* u(long row) const { return inp + (size_t)row * stride; }

    // Returns u of channel i, `back` tokens before token t, which is row `row`.
    acc at(long row, int t, int back, long i) const {
        if (back <= t) { return u(row - back)[i]; }
        return before[(size_t)(back - t - 1) * MW + i];
    }
};

// Convolves each channel with its weights: out (N, MW) <- u of B sequences of T tokens; weight (MW,
// K), bias (MW) or NULL.
inline void convolution(real* out, const ConvolutionInput& x, const real* weight, const real* bias,
                              int B, int T) {
    #pragma omp parallel for
    for (int row = 0; row < B * T; row++) {
        const int t = row % T;
        const int seen = std::min(x.K, x.past + t + 1);          // tokens, the last of them t
        real* out_row = out + (size_t)row * x.MW;
        for (int i = 0; i < x.MW; i++) {
            const real* w = weight + i * x.K + x.K - 1;          // of token t
            acc sum = bias ? acc(bias[i]) : acc(0);
            for (int back = 0; back < seen; back++) {
                sum += acc(w[-back]) * x.at(row, t, back, i);
            }
            out_row[i] = real(Activation_swish::act(sum));
        }
    }
}

// Keeps the last u of T rows, and of what `before` (K - 1, MW) held if these are few.
inline void convolution_keep(acc* before, const ConvolutionInput& x, int T) {
    for (int j = x.K - 2; j >= 0; j--) {
        acc* to = before + (size_t)j * x.MW;
        for (int i = 0; i < x.MW; i++) {
            to[i] = x.at(T - 1, T - 1, j, i);
        }
    }
}

// Returns 1 / sqrt(mean(x^2) + eps) of n numbers, real or acc.
template <class X> acc norm_scale(const X* x, float eps, int n) {
    acc squares = 0;
    for (int i = 0; i < n; i++) {
        squares += acc(x[i]) * acc(x[i]) / n;
    }
    return 1 / std::sqrt(squares + acc(eps));
}

// Norms a vector: out <- x / sqrt(mean(x^2) + eps) * weight, n numbers each; out may be x.
inline void mamba_norm(real* out, const real* x, const real* weight, float eps, int n) {
    const acc scale = norm_scale(x, eps, n);
    for (int i = 0; i < n; i++) {
        out[i] = real(acc(x[i]) * scale * acc(weight[i]));
    }
}

// Runs channel i of sequence b in layer l, token after token: a.mamba_out.
inline void mamba_channel(Model* m, int l, long b, long i) {
    const auto& w = m->weights.layer[l];
    const Acts& a = m->acts;
    const long MW = m->sizes.mamba_width;
    const long MS = m->sizes.mamba_state;
    const long dbc_width = m->sizes.mamba_dbc_width;
    acc* memory = mixer_memory(m, l);
    const real* log_rate = w.mamba_a + i * MS;
    std::vector<acc> h(MS);
    std::vector<acc> rate(MS);
    if (m->spans[0].position) {
        std::copy_n(memory + i * MS, MS, h.data());
    }
    for (long s = 0; s < MS; s++) {
        rate[s] = std::exp(acc(log_rate[s]));
    }
    for (long row = b * m->T; row < (b + 1) * m->T; row++) {
        const real* b_t = a.mamba_dbc + row * dbc_width + m->arch.mamba_rank;
        const real* c_t = b_t + MS;
        const acc u = a.mamba_u[row * MW + i];
        const acc z = a.mamba_in[row * 2 * MW + MW + i];
        const acc step = softplus(a.mamba_step[row * MW + i]);
        acc y = acc(w.mamba_skip[i]) * u;
        for (long s = 0; s < MS; s++) {
            h[s] = std::exp(-step * rate[s]) * h[s] + step * u * acc(b_t[s]);
            y += h[s] * acc(c_t[s]);
        }
        a.mamba_out[row * MW + i] = real(y * Activation_swish::act(z));
    }
    if (memory) { std::copy_n(h.data(), MS, memory + i * MS); }
}

// Runs the mixer of a Mamba layer: x_{2l+1} from x_2l and its norm.
inline void mamba_forward(Model* m, int l) {
    const auto& w = m->weights.layer[l];
    const Acts& a = m->acts;
    const long C = m->sizes.C;
    const long MW = m->sizes.mamba_width;
    const long MS = m->sizes.mamba_state;
    const long dbc_width = m->sizes.mamba_dbc_width;
    const long rank = m->arch.mamba_rank;
    const long N = rows(m);
    ops::matmul_forward(a.mamba_in, act_n(m, 2 * l), w.mamba_inw, NULL, NULL, N, C, 2 * MW);

    acc* before = m->mixer_state ? mixer_memory(m, l) + MW * MS : NULL;
    const int past = m->spans[0].position; // the only span: forest_fits
    const int taps = m->arch.mamba_conv;
    const ConvolutionInput input = { a.mamba_in, 2 * MW, before, past, MW, taps };
    convolution(a.mamba_u, input, w.mamba_convw, w.mamba_convb, m->B, m->T);
    if (before) { convolution_keep(before, input, m->T); }

    ops::matmul_forward(a.mamba_dbc, a.mamba_u, w.mamba_dbcw, NULL, NULL, N, MW, dbc_width);
    for (long row = 0; row < N; row++) {
        real* d = a.mamba_dbc + row * dbc_width;
        real* b = d + rank;
        real* c = b + MS;
        mamba_norm(a.mamba_d + row * rank, d, w.mamba_dn, m->arch.eps, rank);
        mamba_norm(b, b, w.mamba_bn, m->arch.eps, MS);
        mamba_norm(c, c, w.mamba_cn, m->arch.eps, MS);
    }

    ops::matmul_forward(a.mamba_step, a.mamba_d, w.mamba_stepw, w.mamba_stepb, NULL, N, rank, MW);
    #pragma omp parallel for collapse(2)
    for (long b = 0; b < m->B; b++) {
        for (long i = 0; i < MW; i++) { mamba_channel(m, l, b, i); }
    }
    output_forward(m, 2 * l, a.mamba_out, { w.mamba_outw, NULL, NULL, NULL, MW, C });
}

// Stands in the list of stages and is never called: model_new trains no such model.
inline void mamba_backward(Model*, int) {}
#endif // MAMBA_H
