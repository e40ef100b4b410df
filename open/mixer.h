/*
mixer.h -- what Mamba and the delta rule share: what a layer remembers between tokens, the
convolution before it, and a norm.
*/
#ifndef MIXER_H
#define MIXER_H
#include "../core/kv_cache.h"
#include "../core/train_sink.h" // output_forward

// Counts the numbers that a layer remembers of the tokens before.
size_t mixer_numbers(const Model* m);

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
    acc* before;                    // (K - 1, MW) the last ones before each sequence, or NULL
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

// Keeps the last u of T rows, and of what `before` held if these are few.
inline void convolution_keep(const ConvolutionInput& x, int T) {
    for (int j = x.K - 2; j >= 0; j--) {
        acc* to = x.before + (size_t)j * x.MW;
        for (int i = 0; i < x.MW; i++) {
            to[i] = x.at(T - 1, T - 1, j, i);
        }
    }
}

// Convolves each channel with its weights: out (N, MW) <- u of B sequences of T tokens; weight (MW,
// K), bias (MW) or NULL. Then keeps the last u.
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
            out_row[i] = real(ActivationOf<ACT_swish>::act(sum));
        }
    }
    if (x.before) { convolution_keep(x, T); }
}

// Returns 1 / sqrt(mean(x^2) + eps).
inline acc norm_scale(const std::vector<acc>& x, float eps) {
    acc squares = 0;
    for (acc x_i : x) { squares += x_i * x_i / x.size(); }
    return 1 / std::sqrt(squares + acc(eps));
}
#endif // MIXER_H
