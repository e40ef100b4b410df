/*
metric_sums.cuh -- what the two kernels of the metrics of heads pass to each other: the sums of each
query, in the order of HeadMetrics.
*/
#ifndef CUDA_METRIC_SUMS_CUH
#define CUDA_METRIC_SUMS_CUH
#include "../metrics.cuh"
#include "device.cuh"

namespace cuda {
// The metrics of heads go by panels, as attention without tensor cores does. cuBLAS computes the
// dot products of some hundred queries of one head. One kernel turns each query's row into what it
// adds to the sums of its head, another adds these up.
enum {
    FIRST_METRIC = 2 * (METRIC_K + 1),
    METRIC_SUMS = FIRST_METRIC + HEAD_METRIC_COUNT
};
static_assert(sizeof(HeadMetrics) == METRIC_SUMS * sizeof(float),
              "sums are in the order of HeadMetrics");
static_assert(METRIC_SUMS <= 32, "a lane for each sum");

// Makes the means of `heads` heads from the sums of their queries, (heads, T, METRIC_SUMS).
// has_extra: whether there is an extra key. No variant changes it: attention_common.cu.
void attention_metrics_mean(HeadMetrics* out, int heads, const float* sums, int skip,
                            bool has_extra, int T);
} // namespace cuda
#endif // CUDA_METRIC_SUMS_CUH
