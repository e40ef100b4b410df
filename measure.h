/*
measure.h -- the metrics of metrics.cuh on a model: one forward pass over a batch of sequences,
what it leaves in device memory, and how that gets into the report. Start with measure.
*/
#ifndef MEASURE_H
#define MEASURE_H
#include "metrics.cuh"    // Metrics, HeadMetrics, norms_add
#include "model.h"        // Model, model_load
#include "train_sink.h"   // model_forward

// called by measure before each batch, if set
inline void (*measure_progress)(int done, int n) = NULL;

// the metrics of metrics.cuh on n sequences of T + 1 tokens, batch_tokens tokens at a time
Metrics measure(Model* m, const int* seqs, int n, int T, int batch_tokens,
                const std::function<void(int first)>& each = nullptr);

// what attention left of layer l, in host memory: qkv (N, W), stat (B, NH, T, 2); star: z of each
// head, or k* of each key/value head; empty if nothing is learned
struct AttentionHost { std::vector<real> qkv, star; std::vector<acc> stat; };

AttentionHost attention_host(const Model* m, int l);

// alpha of each of these tokens: one for every sequence, layer and head that was read
struct SinkAt {
    std::vector<int> tokens;                     // from 1
    std::vector<std::vector<double>> alpha;
};

// layer l of the batch that is loaded joins them
void sink_at_add(SinkAt* at, const Model* m, int l);

// Sink_k^eps of the token in place i of the list
double sink_at_rate(const SinkAt& at, size_t i, double eps);
#endif // MEASURE_H
