/*
dist/nccl.h -- tensors on GPUs, between them and between machines, by NCCL. One process per GPU,
started by torchrun, mpirun or srun. None of them is linked; the program only reads what they leave
in the environment.

Tensors travel on a stream of their own, not on the one that computes. That stream waits for the
computation where a group begins, and the host waits for it where the tensors arrive. Between these
two both streams are at work.
*/
#ifndef DIST_NCCL_H
#define DIST_NCCL_H
#include "shard.h"
#include "rendezvous.h"
#include "../cuda/device.cuh"
#include <nccl.h>

namespace dist {
static const char* const name = "nccl";

struct Nccl {
    ncclComm_t comm;
    cudaStream_t stream;
    cudaEvent_t computed, transferred;           // on the stream that computes, and on this one
};
inline Nccl nccl;

inline void nccl_check(ncclResult_t result, const char* doing) {
    if (result == ncclSuccess) { return; }
    const std::string last = ncclGetLastError(nccl.comm);
    die(EXIT_MACHINE, strf("NCCL: %s: %s. %s", doing, ncclGetErrorString(result), last.c_str()),
        "NCCL_DEBUG=INFO shows what it tries; each rank needs a GPU of its own, and a network that "
        "NCCL_SOCKET_IFNAME or NCCL_IB_HCA may have to name");
}

// Finds this process's place and GPU.
inline void start() {
    const Place p = place_of_environment();
    if (p.world == 1) { return; }
    cuda::gpu.number = p.local;
    join(p);
}

// Joins all ranks' GPUs; the id by which NCCL finds them goes by a file in the run's directory.
inline void tensors_start(const std::string& out) {
    if (world() == 1) { return; }
    require(!out.empty(), strf("%d processes without --out", world()),
            "--out DIR, one directory for all ranks: they meet there");
    setenv("NCCL_ALGO", "Ring", 0); // one order of the sums: a switch in the network may change it
    cuda::device_start();
    ncclUniqueId id = {};
    if (rank() == 0) { nccl_check(ncclGetUniqueId(&id), "making an id"); }
    const std::string bytes((const char*)&id, sizeof id);
    const std::string theirs = rendezvous(here, out, bytes);
    memcpy(&id, theirs.data(), std::min(sizeof id, theirs.size()));
    nccl_check(ncclCommInitRank(&nccl.comm, world(), id, rank()), "joining the ranks");
    cuda::device_check(cudaStreamCreateWithFlags(&nccl.stream, cudaStreamNonBlocking),
                       "making a stream");
    for (cudaEvent_t* e : { &nccl.computed, &nccl.transferred }) {
        cuda::device_check(cudaEventCreateWithFlags(e, cudaEventDisableTiming), "making an event");
    }
}

inline void stop() {
    if (world() == 1) { return; }
    barrier();
    cuda::device_sync();
    nccl_check(ncclCommDestroy(nccl.comm), "leaving the ranks");
}

// ----------------------------------------------------------------------------
// tensors

// Begins a group of tensors, which wait for what is being computed now.
inline void group_begin() {
    cuda::device_check(cudaEventRecord(nccl.computed, cuda::gpu.stream), "recording an event");
    cuda::device_check(cudaStreamWaitEvent(nccl.stream, nccl.computed, 0), "waiting for an event");
    nccl_check(ncclGroupStart(), "beginning a group");
}

inline void group_end() { nccl_check(ncclGroupEnd(), "sending a group"); }

// Sums over ranks: all (world, piece) of each -> mine (piece), of their row `rank`.
inline void reduce_scatter(acc* mine, const acc* all, long piece) {
    nccl_check(ncclReduceScatter(all, mine, piece, ncclFloat32, ncclSum, nccl.comm, nccl.stream),
               "summing gradients");
}

// Gathers mine (bytes) of each rank in all (world, bytes): a multiple of 64 numbers, here copied as
// if they were floats.
inline void all_gather(void* all, const void* mine, size_t bytes) {
    nccl_check(ncclAllGather(mine, all, bytes / 4, ncclFloat32, nccl.comm, nccl.stream),
               "gathering");
}

// Waits, first for this rank's computation, then for the others, and asks NCCL for errors.
inline void arrive() {
    if (world() == 1) { return; }
    cuda::device_check(cudaEventRecord(nccl.transferred, nccl.stream), "recording an event");
    cuda::device_check(cudaEventSynchronize(nccl.computed), "computing gradients");
    for (;;) {
        const cudaError_t there = cudaEventQuery(nccl.transferred);
        if (there != cudaErrorNotReady) {
            cuda::device_check(there, "sending tensors");
            return;
        }
        cudaGetLastError(); // else the next launch would take "not ready" for an error of its own
        ncclResult_t result = ncclSuccess;
        nccl_check(ncclCommGetAsyncError(nccl.comm, &result), "asking how it goes");
        if (result != ncclInProgress) { nccl_check(result, "sending tensors"); }
        usleep(20);
    }
}

inline void sum(double* x, size_t n) {
    static double* there;
    static size_t room;
    if (world() == 1 || n == 0) { return; }
    if (n > room) {
        cuda::device_free(there);
        there = (double*)cuda::device_reserve(n * sizeof *x);
        room = n;
    }
    cuda::to_device(there, x, n * sizeof *x);
    group_begin();
    nccl_check(ncclAllReduce(there, there, n, ncclFloat64, ncclSum, nccl.comm, nccl.stream),
               "summing numbers");
    group_end();
    arrive();
    cuda::to_host(x, there, n * sizeof *x);
}
} // namespace dist
#endif // DIST_NCCL_H
