/*
open/mamba.cpp -- Mamba in place of attention, for forward passes alone, as Jamba has it. Such a
layer has MW channels inside. Each remembers MS numbers h, and knows nothing else of the tokens
before:

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
#include "mixer.h"

// Norms a vector: out <- x / sqrt(mean(x^2) + eps) * weight, n numbers each; out may be x.
static void mamba_norm(real* out, const real* x, const real* weight, float eps, int n) {
    const std::vector<acc> row(x, x + n);
    const acc scale = norm_scale(row, eps);
    for (int i = 0; i < n; i++) {
        out[i] = real(row[i] * scale * acc(weight[i]));
    }
}

// Runs channel i of sequence b in layer l, token after token: a.mamba_out.
static void mamba_channel(Model* m, int l, long b, long i) {
    const auto& p = layer_params(m, l);
    const Acts& a = m->acts;
    const Arch& arch = m->arch;
    const long MW = arch.mamba_width;
    const long MS = arch.mamba_state;
    acc* memory = mixer_memory(m, l);
    const real* log_rate = p.mamba_a.w + i * MS;
    std::vector<acc> h(MS);
    std::vector<acc> rate(MS);
    if (m->spans[0].position) {
        std::copy_n(memory + i * MS, MS, h.data());
    }
    for (long s = 0; s < MS; s++) {
        rate[s] = std::exp(acc(log_rate[s]));
    }
    for (long row = b * m->T; row < (b + 1) * m->T; row++) {
        const real* b_t = a.mamba_dbc + row * MAMBA_DBC_WIDTH + arch.mamba_rank;
        const real* c_t = b_t + MS;
        const acc u = a.mamba_u[row * MW + i];
        const acc z = a.mamba_in[row * 2 * MW + MW + i];
        const acc step = softplus(a.mamba_step[row * MW + i]);
        acc y = acc(p.mamba_skip.w[i]) * u;
        for (long s = 0; s < MS; s++) {
            h[s] = std::exp(-step * rate[s]) * h[s] + step * u * acc(b_t[s]);
            y += h[s] * acc(c_t[s]);
        }
        a.mamba_out[row * MW + i] = real(y * ActivationOf<ACT_swish>::act(z));
    }
    if (memory) { std::copy_n(h.data(), MS, memory + i * MS); }
}

bool is_mamba(const Model* m, int l) {
    return m->arch.mamba_width && !m->sizes.has_attention(l);
}

// Runs the mixer of a Mamba layer: x_{2l+1} from x_2l and its norm.
void mamba_forward(Model* m, int l) {
    const auto& p = layer_params(m, l);
    const Acts& a = m->acts;
    const Arch& arch = m->arch;
    const long C = m->sizes.C;
    const long MW = arch.mamba_width;
    const long MS = arch.mamba_state;
    const long dbc_width = MAMBA_DBC_WIDTH;
    const long rank = arch.mamba_rank;
    const long N = rows(m);
    ops::matmul_forward(a.mamba_in, act_n(m, 2 * l), p.mamba_inw.w, NULL, NULL, N, C, 2 * MW);

    acc* before = m->mixer_state ? mixer_memory(m, l) + MW * MS : NULL;
    const int past = m->spans[0].position; // the only span: forest_fits
    const ConvolutionInput input = { a.mamba_in, 2 * MW, before, past, MW, arch.mamba_conv };
    convolution(a.mamba_u, input, p.mamba_convw.w, p.mamba_convb.w, m->B, m->T);

    ops::matmul_forward(a.mamba_dbc, a.mamba_u, p.mamba_dbcw.w, NULL, NULL, N, MW, dbc_width);
    for (long row = 0; row < N; row++) {
        real* d = a.mamba_dbc + row * dbc_width;
        real* b = d + rank;
        real* c = b + MS;
        mamba_norm(a.mamba_d + row * rank, d, p.mamba_dn.w, arch.eps, rank);
        mamba_norm(b, b, p.mamba_bn.w, arch.eps, MS);
        mamba_norm(c, c, p.mamba_cn.w, arch.eps, MS);
    }

    ops::matmul_forward(a.mamba_step, a.mamba_d, p.mamba_stepw.w, p.mamba_stepb.w, NULL, N, rank,
                        MW);
    #pragma omp parallel for collapse(2)
    for (long b = 0; b < m->B; b++) {
        for (long i = 0; i < MW; i++) { mamba_channel(m, l, b, i); }
    }
    output_forward(m, 2 * l, a.mamba_out, { p.mamba_outw, {}, MW, C });
}
