/*
eval_run.h -- one run of eval over the sequences: its losses and sinks, the outliers of the stream,
the gradients in it.
*/
#ifndef EVAL_RUN_H
#define EVAL_RUN_H
#include "eval_change.h"
#include "sequences.h"
#include "sink_at.h"

struct EvalRun {
    std::string kind;                            // plain, stream, evict, ..
    std::string name;                            // what of it
    Change change = {};
    int from = 0;                                // the first token, from 0, whose prediction counts

    bool plain() const { return kind == "plain"; }
};

// What a run gave.
struct EvalResult {
    std::vector<double> losses;                  // (n, T) of predicting the next token
    Metrics metrics;                             // where it sees less than they assume, only what
    SinkAt sink_at;                              // each head gave the tokens that it still saw
};

// The threshold of Sink_k, that of a run of training.
static const double EVAL_EPS = 0.3;

// Writes into the learned positions what the edits of pe say. Each reads them as they were:
// 'pe:1=from 5;pe:5=from 1' swaps two. Returns what the weights were.
inline Host edit_positions(Model* m, const std::vector<Edit>& edits) {
    const Host was = copy_to_host(m->master, m->num_params);
    Host now = was;
    const int C = m->arch.C;
    const long at = m->params.wpe.w - m->params_memory;
    const Columns all = { C, at, C, 1 };
    for (auto& e : edits) {
        if (e.place != PLACE_pe) { continue; }
        Host x = was;
        edit_apply(e, 0, { all, &x, NULL, 1, m->arch.T + sink_rows(m), sink_rows(m) });
        for (size_t i = 0; i < x.size(); i++) {
            if (x[i] != was[i]) { now[i] = x[i]; }
        }
    }
    model_set_weights(m, now.data());
    return was;
}

// Runs a changed model on the sequences, then restores it.
inline EvalResult eval_run(Model* m, Change* e, const Sequences& text) {
    EvalResult r;
    const auto keep = [&](int) {
        const std::vector<acc> x = model_losses(m);
        for (int b = 0; b < m->B; b++) {
            const acc* losses = &x[(size_t)b * m->T + sink_rows(m)];
            r.losses.insert(r.losses.end(), losses, losses + text.T);
        }
    };
    Host was;
    const int bits = e->bits.weights;
    if (bits && !e->bits.calibrating) { was = bits_weights(m, bits); }
    const auto of_positions = [](const Edit& edit) { return edit.place == PLACE_pe; };
    const bool positions = std::any_of(e->edits.begin(), e->edits.end(), of_positions);
    if (positions && !e->record) { was = edit_positions(m, e->edits); }
    m->stage_hook = [e](Model* m, const Stage& stage, int l) { change_stage(e, m, stage, l); };
    e->seen.clear();
    if (e->sees_less()) {
        each_batch(m, text, [&](int first, long count) {
            model_forward(m, count);
            keep(first);
        });
        r.metrics.heads = e->seen;
        r.metrics.sums_to_one = attn_sums_to_one<Attn>(m->arch.attn_alpha);
    } else {
        r.metrics = measure(m, text.x, text.n, text.T, text.at_once, { EVAL_EPS }, keep);
    }
    m->stage_hook = nullptr;
    if (!was.empty()) { model_set_weights(m, was.data()); }
    if (e->record) {
        for (auto& edit : e->edits) { edit.count += text.n; }
    }
    return r;
}

// Returns the mean over sequences of their mean loss over the targets from a to b (not included),
// minus that of `other` if it is not NULL. Sequences without such a target are left out.
inline Mean eval_mean(const Model* m, const Sequences& text, const std::vector<double>& losses,
                      const std::vector<double>* other, int a, int b) {
    std::vector<double> means;
    for (int i = 0; i < text.n; i++) {
        double sum = 0;
        double count = 0;
        for (int t = a; t < b; t++) {
            if (!target_counts(m, text.from(i), t, false)) { continue; }
            const size_t at = (size_t)i * text.T + t;
            double loss = losses[at];
            if (other) { loss -= (*other)[at]; }
            sum += loss;
            count++;
        }
        if (count) { means.push_back(sum / count); }
    }
    return mean_of(means);
}

// Outliers of the stream after each layer, (L): means over the sequences.
struct Outliers {
    std::vector<double> largest;                 // max |h|
    NormPair kurtosis;
    NormPair share;
};

// Statistics of one row of channels.
struct RowOutliers {
    double largest = 0;                          // max |h|
    double kurtosis = 0;                         // 3 for a normal distribution
    double share = 0;                            // of channels more than 6 s away from the mean
};

// Returns the statistics of a row of channels. The kurtosis is m4 / (s^4 + 1e-6) with the unbiased
// variance s^2 (Bondarenko et al. 2023).
inline RowOutliers row_outliers(const Vector& h) {
    const double C = h.size();
    RowOutliers row;
    double mean = 0;
    double squares = 0;
    double fourth = 0;
    for (double x : h) {
        mean += x / C;
        row.largest = std::max(row.largest, fabs(x));
    }
    for (double x : h) {
        const double d = x - mean;
        squares += d * d / (C - 1);
        fourth += d * d * d * d / C;
    }
    for (double x : h) {
        if (fabs(x - mean) > 6 * sqrt(squares)) { row.share += 1 / C; }
    }
    row.kurtosis = fourth / (squares * squares + 1e-6);
    return row;
}

// Adds the stream after layer l of the loaded batch, of n sequences in all.
inline void outliers_add(Outliers* o, const Model* m, int l, int n) {
    const HostRows h(m, act_x(m, 2 * l + 2));
    Vector kurtosis;
    Vector share;
    o->largest.resize(m->arch.L);
    for (int b = 0; b < m->B; b++) {
        double top = 0;
        for (int t = 0; t < m->T; t++) {
            const RowOutliers row = row_outliers(h.row((long)b * m->T + t));
            kurtosis.push_back(row.kurtosis);
            share.push_back(row.share);
            if (t >= sink_rows(m)) { top = std::max(top, row.largest); }
        }
        o->largest[l] += top / n;
    }
    add_rows(&o->kurtosis, l, m, kurtosis, n);
    add_rows(&o->share, l, m, share, n);
}

// ---- gradients

// Returns how large the gradient of the loss is in the stream before each layer, and at its end:
// means over the sequences of its norm at the first token, and of its mean norm at the others (of
// the sum of a sequence's losses). The model has memory for gradients.
inline NormPair eval_gradients(Model* m, const Sequences& text) {
    const int C = m->arch.C;
    NormPair g;
    each_batch(m, text, [&](int, long) {
        const int N = rows(m);
        acc* norms = device_array<acc>(N);
        model_zero(m);
        model_layers(m);
        model_lm_head(m, 1);
        model_backward(m, false, [&](int l) {
            ops::row_norms(norms, m->acts.dx, C, C, 1, N);
            const std::vector<acc> x = copy_to_host(norms, N);
            add_rows(&g, l, m, Vector(x.begin(), x.end()), text.n);
        });
        ops::device_free(norms);
    });
    return g;
}
#endif // EVAL_RUN_H
