/*
eval_run.h -- one run of eval over the sequences: its losses and sinks, the outliers of the stream,
the gradients in it.
*/
#ifndef EVAL_RUN_H
#define EVAL_RUN_H
#include "../core/measure.h"
#include "eval_change.h"

struct EvalRun {
    std::string kind;                            // plain, stream, evict, ..
    std::string name;                            // what of it
    Change change;
    int from = 0;                                // the first token, from 0, whose prediction counts

    bool plain() const { return kind == "plain"; }
};

// What a run gave.
struct EvalResult {
    std::vector<double> losses;                  // (n, T) of predicting the next token
    Metrics metrics;                             // if measured
    std::vector<HeadMetrics> heads;              // else what each head gave the tokens it still saw
    bool measured = false;                       // false: it sees less than the metrics assume
    bool sums_to_one = true;
    SinkAt sink_at;
};

// The threshold of Sink_k, that of a run of training.
static const double EVAL_EPS = 0.3;

// Writes into the learned positions what the edits of pe say. Each reads them as they were:
// 'pe:1=from 5;pe:5=from 1' swaps two. Returns what the weights were, empty if there is no such
// edit.
inline Host edit_positions(Model* m, const std::vector<Edit>& edits) {
    Host was;
    Host now;
    const int C = m->arch.C;
    const int skip = m->sizes.bias.token;
    const int T = m->arch.T + skip;
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
            edit_apply(e, 0, { &rows, NULL, 1, T, skip, C, 0, C, 1 });
            for (long i = 0; i < t.count; i++) {
                const bool edited = rows[i] != was[t.at + i];
                if (edited) { now[t.at + i] = rows[i]; }
            }
        }
        model_set_weights(m, now.data());
    }
    return was;
}

// Copies the losses of the batch that is loaded, whose first sequence is number `first`.
inline void keep_losses(EvalResult* r, Model* m, int first, int T) {
    const int skip = m->sizes.bias.token;
    const std::vector<acc> x = model_losses(m);
    for (int b = 0; b < m->B; b++) {
        double* to = &r->losses[(size_t)(first + b) * T];
        for (int t = 0; t < T; t++) { to[t] = x[(size_t)b * m->T + skip + t]; }
    }
}

// Runs the model on n sequences, batch by batch, where the metrics cannot be measured.
inline void eval_forward(EvalResult* r, Model* m, const int* seqs, int n, int T, int batch_tokens) {
    const int most = std::max(1, std::min(n, batch_tokens / T));
    for (int i = 0; i < n; i += most) {
        if (measure_progress) { measure_progress(i, n); }
        const int chunk = std::min(most, n - i);
        const long count = model_load(m, seqs + (size_t)i * (T + 1), chunk, T);
        model_forward(m, count, 0);
        keep_losses(r, m, i, T);
    }
}

// Runs a changed model on n sequences of T + 1 tokens, at most batch_tokens tokens at a time, then
// restores it.
inline EvalResult eval_run(Model* m, Change* e, const int* seqs, int n, int T, int batch_tokens) {
    EvalResult r;
    r.losses.resize((size_t)n * T);
    r.measured = !e->sees_less();
    r.sums_to_one = attn_sums_to_one<Attn>(m->arch.attn_alpha);
    Host was;
    const int bits = e->bits.weights;
    if (bits && !e->bits.calibrating) { was = bits_weights(m, bits); }
    if (!e->record && !e->edits.empty()) { was = edit_positions(m, e->edits); }
    m->stage_hook = [e](Model* m, const Stage& stage, int l) { change_stage(e, m, stage, l); };
    e->seen.clear();
    if (r.measured) {
        const auto keep = [&](int first) { keep_losses(&r, m, first, T); };
        r.metrics = measure(m, seqs, n, T, batch_tokens, keep);
        r.heads = r.metrics.heads;
    } else {
        eval_forward(&r, m, seqs, n, T, batch_tokens);
        r.heads = e->seen;
    }
    m->stage_hook = nullptr;
    if (!was.empty()) { model_set_weights(m, was.data()); }
    if (e->record) {
        for (auto& edit : e->edits) { edit.count += n; }
    }
    return r;
}

// What is predicted: n sequences, x (n, T + 1). A target that no loss asks for is there as ~id;
// within a prefix nothing is predicted.
struct Asked {
    const int* x;
    int n;
    int T;
    int prefix;

    bool operator()(int i, int t) const {
        const int target = t + 1;
        return target >= prefix && x[(size_t)i * (T + 1) + target] >= 0;
    }
};

// Returns the mean over sequences of their mean loss over the targets from a to b (not included),
// minus that of `other` if it is not NULL. Sequences without such a target are left out.
inline Mean eval_mean(const std::vector<double>& losses, const std::vector<double>* other,
                      const Asked& asked, int a, int b) {
    std::vector<double> means;
    for (int i = 0; i < asked.n; i++) {
        double sum = 0;
        double count = 0;
        for (int t = a; t < b; t++) {
            if (!asked(i, t)) { continue; }
            const size_t at = (size_t)i * asked.T + t;
            double loss = losses[at];
            if (other) { loss -= (*other)[at]; }
            sum += loss;
            count++;
        }
        if (count) { means.push_back(sum / count); }
    }
    return mean_of(means);
}

// Outliers of the stream after each layer, by token: [0] the first, [1] the others.
struct Outliers {
    int sequences = 0;
    std::vector<double> largest;                 // (L) sum over sequences of max |h|
    std::vector<double> kurtosis[2];             // (L) sums over sequences, of the others' mean
    std::vector<double> share[2];                // likewise
};

// Statistics of one row of channels.
struct RowOutliers {
    double largest = 0;                          // max |h|
    double kurtosis = 0;                         // 3 for a normal distribution
    double share = 0;                            // of channels more than 6 s away from the mean
};

// Returns the statistics of a row of C channels. The kurtosis is m4 / (s^4 + 1e-6) with the
// unbiased variance s^2 (Bondarenko et al. 2023).
inline RowOutliers row_outliers(const acc* h, int C) {
    RowOutliers row;
    double mean = 0;
    double squares = 0;
    double fourth = 0;
    for (int c = 0; c < C; c++) {
        mean += h[c] / (double)C;
        row.largest = std::max(row.largest, fabs((double)h[c]));
    }
    for (int c = 0; c < C; c++) {
        const double d = h[c] - mean;
        squares += d * d / (C - 1.0);
        fourth += d * d * d * d / C;
    }
    for (int c = 0; c < C; c++) {
        const bool far = fabs(h[c] - mean) > 6 * sqrt(squares);
        if (far) { row.share += 1.0 / C; }
    }
    row.kurtosis = fourth / (squares * squares + 1e-6);
    return row;
}

// Adds the stream after layer l of the batch that is loaded.
inline void outliers_add(Outliers* o, const Model* m, int l) {
    const int C = m->arch.C;
    const int T = m->T;
    const int skip = m->sizes.bias.token;
    const Host x = host_read(act_x(m, 2 * l + 2), (size_t)rows(m) * C);
    for (auto* v : { &o->largest, &o->kurtosis[0], &o->kurtosis[1], &o->share[0], &o->share[1] }) {
        v->resize(m->arch.L);
    }
    for (int b = 0; b < m->B; b++) {
        double top = 0;
        for (int t = skip; t < T; t++) {
            const RowOutliers row = row_outliers(&x[((size_t)b * T + t) * C], C);
            const bool other = t > skip;
            const double weight = other ? 1.0 / (T - skip - 1) : 1;
            o->kurtosis[other][l] += weight * row.kurtosis;
            o->share[other][l] += weight * row.share;
            top = std::max(top, row.largest);
        }
        o->largest[l] += top;
    }
    const bool last = l == m->arch.L - 1;
    if (last) { o->sequences += m->B; }
}

// Describes the worst layer of each statistic.
inline std::string outliers_text(const Outliers& o) {
    const auto worst = [&](const std::vector<double>& sums) {
        return *std::max_element(sums.begin(), sums.end()) / o.sequences;
    };
    std::string text = strf("largest %.4g, kurtosis ", worst(o.largest));
    text += strf("%.4g first, ", worst(o.kurtosis[0]));
    text += strf("%.4g others, channels beyond 6 sigma ", worst(o.kurtosis[1]));
    text += strf("%.3g%% first, ", 100 * worst(o.share[0]));
    return text + strf("%.3g%% others", 100 * worst(o.share[1]));
}

// ---- gradients

// Returns how large the gradient of the loss is in the stream before each layer, and at its end:
// means over n sequences of its norm at the first token, and of its mean norm at the others (of the
// sum of a sequence's losses). The model has memory for gradients.
inline NormPair eval_gradients(Model* m, const int* seqs, int n, int T, int batch_tokens) {
    const int C = m->arch.C;
    const int skip = m->sizes.bias.token;
    const int most = std::max(1, batch_tokens / T);
    const size_t most_rows = (size_t)std::min(most, n) * (T + skip);
    NormPair g;
    acc* norms = (acc*)ops::device_malloc(most_rows * sizeof(acc));
    const auto add = [&](int l) {
        const size_t N = rows(m);
        ops::row_norms(norms, m->acts.dx, C, C, 1, N);
        std::vector<acc> lengths(N);
        ops::to_host(lengths.data(), norms, N * sizeof(acc));
        norms_add(&g, l, lengths.data(), m->B, m->T, 1, skip, n);
    };
    for (int i = 0; i < n; i += most) {
        const int chunk = std::min(most, n - i);
        model_zero(m);
        model_load(m, seqs + (size_t)i * (T + 1), chunk, T);
        model_layers(m);
        model_lm_head(m, 1);
        model_backward(m, false, add);
    }
    ops::device_free(norms);
    return g;
}
#endif // EVAL_RUN_H
