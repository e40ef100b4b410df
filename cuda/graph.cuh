/*
graph.cuh -- a CUDA graph: what a micro-batch launches, recorded once and then started by one call.

In a step of a small model the GPU waits for the host, which starts some hundred kernels and
products one after the other. With --graph the host starts them all at once. The kernels are
recorded with their arguments, so a graph belongs to a key: all that these arguments depend on.
*/
#ifndef CUDA_GRAPH_CUH
#define CUDA_GRAPH_CUH
#include "device.cuh"

namespace cuda {
typedef std::vector<size_t> GraphKey;

// Records what f launches, and launches none of it.
inline cudaGraphExec_t graph_record(const std::function<void()>& f) {
    const char* doing = "recording a graph (without --graph there is none)";
    cudaGraph_t graph;
    cudaGraphExec_t ready;
    device_check(cudaStreamBeginCapture(gpu.stream, cudaStreamCaptureModeThreadLocal), doing);
    f();
    device_check(cudaStreamEndCapture(gpu.stream, &graph), doing);
    device_check(cudaGraphInstantiateWithFlags(&ready, graph, 0), doing);
    device_check(cudaGraphDestroy(graph), doing);
    return ready;
}

// Counts a call, and whether its key is new. If most are, --graph gains little: a note says so.
inline void graph_count(bool is_new) {
    enum { CALLS = 8 };
    static int calls;
    static int fresh;
    calls++;
    fresh += is_new;
    if (calls != CALLS || 2 * fresh <= CALLS) { return; }
    progress_end();
    printf("note   --graph: steps differ in how many targets count, as in conversations, so hardly "
           "any is started by one call\n");
}

// Does what f does, with --graph by a graph: the first time with a key f itself, which chooses
// algorithms and reserves memory; the second time f is recorded; from then on it is not called.
inline void repeated(GraphKey key, const std::function<void()>& f) {
    static GraphKey last;
    static cudaGraphExec_t graph;
    if (!gpu.graph || profile_wanted()) { return f(); }
    key.push_back(gpu.scratch);
    graph_count(key != last);
    if (key != last) {
        if (graph) { device_check(cudaGraphExecDestroy(graph), "freeing a graph"); }
        graph = NULL;
        f();
        key.back() = gpu.scratch;
        last = key;
        return;
    }
    if (!graph) { graph = graph_record(f); }
    device_check(cudaGraphLaunch(graph, gpu.stream), "starting a graph");
}
} // namespace cuda
#endif // CUDA_GRAPH_CUH
