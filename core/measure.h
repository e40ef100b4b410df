/*
measure.h -- computes the metrics of metrics.cuh for a model: runs a forward pass over each batch of
sequences, measures on the device, adds the results to a report. Start with measure.
*/
#ifndef MEASURE_H
#define MEASURE_H
#include "../metrics.cuh"    // Metrics, HeadMetrics, norms_add
#include "../model.h"        // Model, model_load
#include "train_sink.h"   // model_forward

// Called by measure before each batch, if it is set.
inline void (*measure_progress)(int done, int n) = NULL;

// Measures n sequences of T + 1 tokens, batch_tokens tokens at a time. eps: thresholds of Sink_k.
// Calls each(first), if it is set, after the pass over the sequences from `first` on, whose
// activations are still valid.
Metrics measure(Model* m, const int* seqs, int n, int T, int batch_tokens,
                const std::vector<double>& eps = { 0.3 },
                const std::function<void(int first)>& each = nullptr);

// A layer's attention activations, in host memory.
struct AttentionHost {
    std::vector<real> qkv;      // (N, qkv_width)
    std::vector<acc> stat;      // (B, NH, T, 2)
    std::vector<real> extra;    // z of each head, or k* of each key/value head; empty: not learned
    AttnShape s;                // plain if the extra key changes no output
};

// Copies layer l's attention activations to host memory.
AttentionHost attention_host(const Model* m, int l);

// alpha of chosen tokens.
struct SinkAt {
    std::vector<int> tokens;                     // from 1
    std::vector<std::vector<double>> alpha;      // per token: every sequence, layer and head so far
};

// Rescales the alphas of layer l's heads (NH) to the queries that see each token. If only some
// layers have a window, the other queries would add zeros to the mean.
void scale_to_seen(const Model* m, int l, HeadMetrics* heads);

// Adds layer l of the loaded batch.
void sink_at_add(SinkAt* at, const Model* m, int l);

// Returns Sink_k^eps of token i in the list.
double sink_at_rate(const SinkAt& at, size_t i, double eps);
#endif // MEASURE_H
