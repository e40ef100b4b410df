/*
eval_run.h -- one run of eval over the sequences: its losses and sinks, the outliers of the stream,
the gradients in it.
*/
#ifndef EVAL_RUN_H
#define EVAL_RUN_H
#include "../measure.h"
#include "eval_change.h"

struct EvalRun {
    std::string kind, name;                      // stream, evict, ..; what of it
    Change change;
    int from = 0;                                // the first token, from 0, whose prediction counts
    bool plain() const { return kind == "plain"; }
};

// what a run gave: the losses (n, T) of predicting the next token from each; metrics, unless it
// sees less than they assume: then of each head and sequence what it gave the tokens it still saw
struct EvalResult {
    std::vector<double> losses;
    Metrics metrics;
    std::vector<HeadMetrics> heads;
    bool measured = false, sums_to_one = true;
    SinkAt sink_at;
};

// Sink_k of the heads and sequences of a run, at the threshold that a run of training uses, too
inline double eval_sink(const EvalResult& r, int k) {
    return sink_rate(r.heads, k, 0.3, !r.sums_to_one);
}

// writes into the learned positions what the edits of pe say, each of which reads them
// as they were: 'pe:1=from 5;pe:5=from 1' swaps two. Returns what the weights were,
// empty if there is no such edit
inline Host edit_positions(Model* m, const std::vector<Edit>& edits) {
    Host was, now;
    const int C = m->arch.C, T = m->arch.T + m->sizes.bias.token;
    for (auto& e : edits) {
        if (e.place != PLACE_pe) { continue; }
        if (was.empty()) {
            was.resize(m->num_params);
            ops::to_host(was.data(), m->master, was.size() * sizeof(acc));
            now = was;
        }
        for (auto& t : m->tensors) {
            if (t.name != "model.embed_positions.weight") { continue; }
            Host rows(was.begin() + t.at, was.begin() + t.at + t.count);
            edit_apply(e, 0, { &rows, NULL, 1, T, m->sizes.bias.token, C, 0, C, 1 });
            for (long i = 0; i < t.count; i++) {
                if (rows[i] != was[t.at + i]) { now[t.at + i] = rows[i]; }
            }
        }
        model_set(m, now.data());
    }
    return was;
}

// the model with a change, on n sequences of T + 1 tokens, at most batch_tokens of them at a time;
// then as it was
inline EvalResult eval_run(Model* m, Change* e, const int* seqs, int n, int T, int batch_tokens) {
    EvalResult r;
    const int skip = m->sizes.bias.token;
    r.losses.resize((size_t)n * T);
    const auto keep = [&](int first) {
        const std::vector<acc> x = model_losses(m);
        for (int b = 0; b < m->B; b++) {
            for (int t = 0; t < T; t++) {
                r.losses[(size_t)(first + b) * T + t] = x[(size_t)b * m->T + skip + t];
            }
        }
    };
    Host was;
    if (e->bits.weights && !e->bits.calibrating) { was = bits_weights(m, e->bits.weights); }
    if (!e->record && !e->edits.empty()) { was = edit_positions(m, e->edits); }
    m->around = [e](Model* m, const Stage& stage, int l) { change_stage(e, m, stage, l); };
    r.measured = !e->sees_less();
    r.sums_to_one = attn_sums_to_one<Attn>(m->arch.attn_alpha);
    e->seen.clear();
    if (r.measured) {
        r.metrics = measure(m, seqs, n, T, batch_tokens, keep);
    } else {
        const int chunk = std::max(1, std::min(n, batch_tokens / T));
        for (int i = 0; i < n; i += chunk) {
            if (measure_progress) { measure_progress(i, n); }
            model_forward(m, model_load(m, seqs + (size_t)i * (T + 1), std::min(chunk, n - i), T),
                          0);
            keep(i);
        }
    }
    m->around = nullptr;
    r.heads = r.measured ? r.metrics.heads : e->seen;
    if (!was.empty()) { model_set(m, was.data()); }
    for (auto& edit : e->edits) { if (e->record) { edit.count += n; } }
    return r;
}

// what is predicted: n sequences, x (n, T+1). A target that no loss asks for is there as ~id;
// within a prefix nothing is predicted
struct Asked {
    const int* x;
    int n, T, prefix;
    bool operator()(int i, int t) const {
        return t + 1 >= prefix && x[(size_t)i * (T + 1) + t + 1] >= 0;
    }
};

// mean over sequences of their mean loss over the targets from a to b (not included), minus that of
// `other` if there is one. Sequences without such a target are left out
inline Mean eval_mean(const std::vector<double>& losses, const std::vector<double>* other,
                      const Asked& asked, int a, int b) {
    std::vector<double> means;
    for (int i = 0; i < asked.n; i++) {
        double sum = 0, count = 0;
        for (int t = a; t < b; t++) {
            if (!asked(i, t)) { continue; }
            const size_t at = (size_t)i * asked.T + t;
            sum += losses[at] - (other ? (*other)[at] : 0);
            count++;
        }
        if (count) { means.push_back(sum / count); }
    }
    return mean_of(means);
}

// Outliers of the stream after each layer, by token: the first, the others
struct Outliers {
    int sequences = 0;
    std::vector<double> largest;                 // sum over sequences of max |h|
    std::vector<double> kurtosis[2],
        share[2]; // sums over sequences of a row's, of the mean of the other rows'
};

// Kurtosis of a row of C channels: m4 / (s^4 + 1e-6), s^2 the unbiased variance; a normal
// distribution has 3 (Bondarenko et al. 2023). Share: of channels more than 6 s away from the row's
// mean
inline void outliers_add(Outliers* o, const Model* m, int l) {
    const int C = m->arch.C, T = m->T, skip = m->sizes.bias.token;
    const Host x = host_read(act_x(m, 2 * l + 2), (size_t)rows(m) * C);
    for (auto* v : { &o->largest, &o->kurtosis[0], &o->kurtosis[1], &o->share[0], &o->share[1] }) {
        v->resize(m->arch.L);
    }
    for (int b = 0; b < m->B; b++) {
        double top = 0;
        for (int t = skip; t < T; t++) {
            const acc* h = &x[((size_t)b * T + t) * C];
            double mean = 0, squares = 0, fourth = 0, far = 0;
            for (int c = 0; c < C; c++) {
                mean += h[c] / (double)C;
                top = std::max(top, fabs((double)h[c]));
            }
            for (int c = 0; c < C; c++) {
                const double d = h[c] - mean;
                squares += d * d / (C - 1.0);
                fourth += d * d * d * d / C;
            }
            for (int c = 0; c < C; c++) {
                far += fabs(h[c] - mean) > 6 * sqrt(squares) ? 1.0 / C : 0;
            }
            const bool other = t > skip;
            const double weight = other ? 1.0 / (T - skip - 1) : 1;
            o->kurtosis[other][l] += weight * fourth / (squares * squares + 1e-6);
            o->share[other][l] += weight * far;
        }
        o->largest[l] += top;
    }
    if (l == m->arch.L - 1) { o->sequences += m->B; }
}

inline double most_of(const std::vector<double>& x, double n) {
    return *std::max_element(x.begin(), x.end()) / n;
}

inline std::string outliers_text(const Outliers& o) {
    const double n = o.sequences;
    return strf("largest %.4g, kurtosis %.4g first, %.4g others, channels beyond 6 sigma %.3g%% "
                "first, %.3g%% others",
                most_of(o.largest, n), most_of(o.kurtosis[0], n), most_of(o.kurtosis[1], n),
                100 * most_of(o.share[0], n), 100 * most_of(o.share[1], n));
}

// ---- how large the gradient of the loss is in the stream before each layer, and at its end: sums
// over sequences of its norm at the first token, and of its mean norm at the others
// (of the sum of a batch's losses). The model has memory for gradients
inline NormPair eval_gradients(Model* m, const int* seqs, int n, int T, int batch_tokens) {
    const int C = m->arch.C, chunk = std::max(1, batch_tokens / T);
    NormPair g;
    // for all layers and batches
    const size_t most = (size_t)std::min(chunk, n) * (T + m->sizes.bias.token);
    acc* there = (acc*)ops::device_malloc(most * sizeof(acc));
    const auto add = [&](int l) {
        const size_t N = rows(m);
        ops::row_norms(there, m->acts.dx, C, C, 1, N);
        std::vector<acc> lengths(N);
        ops::to_host(lengths.data(), there, N * sizeof(acc));
        norms_add(&g, l, lengths.data(), m->B, m->T, 1, m->sizes.bias.token, 1);
    };
    for (int i = 0; i < n; i += chunk) {
        model_zero(m);
        model_load(m, seqs + (size_t)i * (T + 1), std::min(chunk, n - i), T);
        model_body(m);
        model_lm_head(m, 1);
        model_backward(m, false, add);
    }
    ops::device_free(there);
    return g;
}
#endif // EVAL_RUN_H
