/*
open/delta.cpp -- the gated delta rule in place of attention, for forward passes alone, as
Qwen3-Next and Qwen 3.5 have it (Yang et al. 2024, Gated Delta Networks). Each value head has a
matrix S, (DK, DV), that maps a key to a value, and knows nothing else of the tokens before. KH
heads of q and k serve VH of values:

    q | k | v   = n W_qkv^T,   z = n W_z^T,   b = n W_b^T,   a = n W_a^T
    q | k | v   = silu of their convolution over the last K tokens, each channel by itself
    q, k        divided by their norms, q also by the root of DK
    S_t         = exp(-exp(A) softplus(a_t + bias)) S_{t-1}
    S_t        += k_t (sigmoid(b_t) (v_t - S_t^T k_t))^T    S gives for k what it should have given
    o_t         = S_t^T q_t, divided by its root mean square, times weights, times silu(z_t)
    x_{2l+1}    = x_{2l} + o W_out^T

S and the inputs of the convolution are 0 before the first token. Generation keeps both.
(transformers 5.24, modeling_qwen3_5.py; A is A_log there, bias is dt_bias.)
*/
#include "mixer.h"

// Where a row has q, k and v of a head.
struct DeltaPlaces {
    long KH, VH, DK, DV;

    explicit DeltaPlaces(const Arch& c)
        : KH(c.delta_keys), VH(c.delta_values), DK(c.delta_key_size), DV(c.delta_value_size) {}

    long shared() const { return VH / KH; }                      // value heads of one key head
    long q(long head) const { return head * DK; }
    long k(long head) const { return (KH + head) * DK; }
    long v(long head) const { return 2 * KH * DK + head * DV; }
};

// Scales x to the length `scale`: out <- x / sqrt(sum(x^2) + 1e-6) * scale, n numbers each.
static void delta_unit(acc* out, const real* x, acc scale, long n) {
    acc squares = acc(1e-6);
    for (long i = 0; i < n; i++) {
        squares += acc(x[i]) * acc(x[i]);
    }
    for (long i = 0; i < n; i++) {
        out[i] = acc(x[i]) / std::sqrt(squares) * scale;
    }
}

// Takes one step of the rule: S (DK, DV) <- keep S + rate k (wanted - keep S^T k)^T;
// o (DV) <- S^T q.
static void delta_step(acc* S, acc* o, const acc* q, const acc* k, const real* wanted, acc keep,
                       acc rate, const DeltaPlaces& at) {
    std::vector<acc> had(at.DV, acc(0));
    for (long i = 0; i < at.DK; i++) {
        acc* row = S + i * at.DV;
        for (long j = 0; j < at.DV; j++) {
            row[j] *= keep;
            had[j] += row[j] * k[i];
        }
    }
    std::fill_n(o, at.DV, acc(0));
    for (long i = 0; i < at.DK; i++) {
        acc* row = S + i * at.DV;
        for (long j = 0; j < at.DV; j++) {
            row[j] += k[i] * rate * (acc(wanted[j]) - had[j]);
            o[j] += row[j] * q[i];
        }
    }
}

// Norms and gates the output of a head: out <- x / sqrt(mean(x^2) + eps) * weight * silu(z).
static void delta_norm(real* out, const std::vector<acc>& x, const real* z, const real* weight,
                       float eps) {
    const acc scale = norm_scale(x, eps);
    for (size_t i = 0; i < x.size(); i++) {
        out[i] = real(x[i] * scale * acc(weight[i]) * ActivationOf<ACT_swish>::act(acc(z[i])));
    }
}

// Runs value head h of sequence b in layer l, token after token: a.delta_out.
static void delta_head(Model* m, int l, long b, long h) {
    const auto& p = layer_params(m, l);
    const Acts& a = m->acts;
    const Arch& arch = m->arch;
    const DeltaPlaces at(arch);
    const long key = h / at.shared();
    const acc rate = std::exp(acc(p.delta_a.w[h]));
    acc* memory = mixer_memory(m, l);
    std::vector<acc> S(at.DK * at.DV);
    std::vector<acc> q(at.DK);
    std::vector<acc> k(at.DK);
    std::vector<acc> o(at.DV);
    const size_t size = S.size();
    if (m->spans[0].position) {
        std::copy_n(memory + h * size, size, S.data());
    }
    for (long row = b * m->T; row < (b + 1) * m->T; row++) {
        const real* qkv = a.delta_qkv + row * at.v(at.VH);
        const long of_head = row * at.VH + h;
        const acc step = softplus(acc(a.delta_a[of_head]) + acc(p.delta_dt.w[h]));
        const acc beta = 1 / (1 + std::exp(-acc(a.delta_b[of_head])));
        delta_unit(q.data(), qkv + at.q(key), 1 / std::sqrt(acc(at.DK)), at.DK);
        delta_unit(k.data(), qkv + at.k(key), 1, at.DK);
        delta_step(S.data(), o.data(), q.data(), k.data(), qkv + at.v(h), std::exp(-rate * step),
                   beta, at);
        delta_norm(a.delta_out + of_head * at.DV, o, a.delta_z + of_head * at.DV, p.delta_norm.w,
                   arch.eps);
    }
    if (memory) { std::copy_n(S.data(), size, memory + h * size); }
}

bool is_delta(const Model* m, int l) {
    return m->arch.delta_values && !m->sizes.has_attention(l);
}

// Runs the mixer of a layer with the delta rule: x_{2l+1} from x_2l and its norm.
void delta_forward(Model* m, int l) {
    const auto& p = layer_params(m, l);
    const Acts& a = m->acts;
    const Arch& arch = m->arch;
    const DeltaPlaces at(arch);
    const long C = m->sizes.C;
    const long N = rows(m);
    const long wide = at.v(at.VH);               // of q | k | v
    const long out_width = at.VH * at.DV;
    const real* n = act_n(m, 2 * l);
    ops::matmul_forward(a.delta_in, n, p.delta_qkvw.w, NULL, NULL, N, C, wide);
    ops::matmul_forward(a.delta_z, n, p.delta_zw.w, NULL, NULL, N, C, out_width);
    ops::matmul_forward(a.delta_b, n, p.delta_bw.w, NULL, NULL, N, C, at.VH);
    ops::matmul_forward(a.delta_a, n, p.delta_aw.w, NULL, NULL, N, C, at.VH);
    acc* before = m->mixer_state ? mixer_memory(m, l) + at.VH * at.DK * at.DV : NULL;
    const int past = m->spans[0].position;       // the only span: forest_fits
    const ConvolutionInput input = { a.delta_in, wide, before, past, wide, arch.delta_conv };
    convolution(a.delta_qkv, input, p.delta_convw.w, NULL, m->B, m->T);
    #pragma omp parallel for collapse(2)
    for (long b = 0; b < m->B; b++) {
        for (long h = 0; h < at.VH; h++) {
            delta_head(m, l, b, h);
        }
    }
    output_forward(m, 2 * l, a.delta_out, { p.delta_outw, {}, out_width, C });
}
