/*
measure.h -- computes the metrics of metrics.cuh for a model: runs a forward pass over each batch of
sequences, measures on the device, adds the results to a report. Start with measure.
*/
#ifndef MEASURE_H
#define MEASURE_H
#include "../metrics.cuh"    // Metrics, HeadMetrics, norms_add
#include "../model.h"        // Model, model_load
#include "train_sink.h"   // model_forward

// Tells whether the model has an extra key that changes outputs, or a sink token.
bool has_extra_key(const Model* m);

// Measures n sequences of T + 1 tokens, batch_tokens tokens at a time. eps: thresholds of Sink_k.
// Calls each(first), if it is set, after the pass over the sequences from `first` on, whose
// activations are still valid.
Metrics measure(Model* m, const int* seqs, int n, int T, int batch_tokens,
                const std::vector<double>& eps = { 0.3 },
                const std::function<void(int first)>& each = nullptr);

// Returns the factor of alpha_k in layer l. In a model that mixes local and global layers, alpha_k
// of a local layer counts only the queries that still see token k; the others added zeros to the
// mean over i >= k. So does a SEEN_MEAN, k = 1.
float seen_factor(const Model* m, int l, int k);

// Rescales the metrics of layer l's heads (NH) by it.
void scale_to_seen(const Model* m, int l, HeadMetrics* heads);
#endif // MEASURE_H
