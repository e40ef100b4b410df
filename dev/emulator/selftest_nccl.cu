// dev/emulator/selftest_nccl.cu -- does the emulated NCCL add and gather, and refuse what it says
// it refuses? Ranks are processes; each case is run by two of them.
//     g++ -x c++ -std=c++17 -DEMU -Idev/emulator -I$CUDA/include dev/emulator/selftest_nccl.cu
#include "../../test/check.h"
#include <nccl.h>

enum { N = 1000 };
struct Rank { int rank; ncclComm_t comm; cudaStream_t compute, side; float *all, *mine, *other; };

// the rank has a communicator, two streams, all (2 N) = 1, 2, 3 .. + rank, mine (N)
static Rank rank_new(int rank, ncclUniqueId id) {
    Rank r = { rank, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr };
    float* page;
    cudaSetDevice(rank);
    ncclCommInitRank(&r.comm, 2, id, rank);
    cudaStreamCreateWithFlags(&r.compute, cudaStreamNonBlocking);
    cudaStreamCreateWithFlags(&r.side, cudaStreamNonBlocking);
    cudaMalloc((void**)&r.all, 2 * N * sizeof(float));
    cudaMalloc((void**)&r.mine, N * sizeof(float));
    cudaMalloc((void**)&r.other, 2 * N * sizeof(float));
    cudaHostAlloc((void**)&page, 2 * N * sizeof(float), cudaHostAllocDefault);
    for (int i = 0; i < 2 * N; i++) { page[i] = i + rank; }
    cudaMemcpyAsync(r.all, page, 2 * N * sizeof(float), cudaMemcpyHostToDevice, r.compute);
    return r;
}
// the side stream comes after what is computed so far, or the other way round
static void after(cudaStream_t later, cudaStream_t sooner) {
    cudaEvent_t e;
    cudaEventCreateWithFlags(&e, cudaEventDisableTiming);
    cudaEventRecord(e, sooner);
    cudaStreamWaitEvent(later, e, 0);
    cudaEventDestroy(e);
}
// two ranks do `what`; those of `who` (bits) must end with an error that says `says`
static void refused(const char* name, int who, const char* says,
                    const std::function<void(Rank)>& what) {
    setenv("EMU_DEVICES", "2", 1);
    ncclUniqueId id;
    ncclGetUniqueId(&id);
    std::string err[2];
    int pipes[2][2];
    pid_t pids[2];
    fflush(stdout);
    for (int r = 0; r < 2; r++) {
        if (pipe(pipes[r])) { abort(); }
        pids[r] = fork();
        if (pids[r]) { close(pipes[r][1]); continue; }
        dup2(pipes[r][1], 2);
        alarm(5);  // a rank that is left alone waits for ever, as with NCCL
        what(rank_new(r, id));
        _exit(0);
    }
    for (int r = 0; r < 2; r++) {
        char text[4096];
        for (ssize_t n; (n = read(pipes[r][0], text, sizeof text)) > 0;) { err[r].append(text, n); }
        int status;
        waitpid(pids[r], &status, 0);
        if (who >> r & 1) {
            CHECK(err[r].find(says) != std::string::npos, "%s: rank %d says '%s', wanted '%s'",
                  name, r, err[r].c_str(), says);
        }
        else if (!who) {
            CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0, "%s: rank %d: %s", name, r,
                  err[r].c_str());
        }
    }
}
static void expect(bool ok, const char* what) {
    if (!ok) { fprintf(stderr, "wrong: %s\n", what); _exit(1); }
}
static ncclResult_t reduce(const Rank& r, size_t n = N) {
    return ncclReduceScatter(r.all, r.mine, n, ncclFloat32, ncclSum, r.comm, r.side);
}

int main() {
    refused("sums and gathers", 0, "", [](Rank r) {
        std::vector<float> host(2 * N);
        after(r.side, r.compute);
        expect(ncclGroupStart() == ncclSuccess && reduce(r) == ncclSuccess &&
                   ncclGroupEnd() == ncclSuccess,
               "reduce-scatter");
        expect(ncclAllGather(r.mine, r.other, N, ncclFloat32, r.comm, r.side) == ncclSuccess,
               "all-gather");
        cudaMemcpyAsync(host.data(), r.other, 2 * N * sizeof(float), cudaMemcpyDeviceToHost,
                        r.side);
        cudaStreamSynchronize(r.side);
        for (int i = 0; i < 2 * N; i++) { expect(host[i] == 2 * i + 1, "a sum"); }
        double x[2], sum;
        for (int k = 0; k < 2; k++) { memset(&x[k], 0x3e + k, sizeof x[k]); }
        cudaMemsetAsync(r.all, 0x3e + r.rank, sizeof sum, r.side);
        expect(ncclAllReduce(r.all, r.all, 1, ncclFloat64, ncclSum, r.comm, r.side) == ncclSuccess,
               "all-reduce");
        cudaMemcpyAsync(&sum, r.all, sizeof sum, cudaMemcpyDeviceToHost, r.side);
        cudaStreamSynchronize(r.side);
        expect(sum == x[0] + x[1], "a sum on every rank");
        expect(ncclCommDestroy(r.comm) == ncclSuccess, "destroy");
        expect(ncclCommDestroy(r.comm) == ncclInvalidArgument, "destroy twice");
    });
    refused("another count", 3, "numbers of type", [](Rank r) {
        after(r.side, r.compute);
        reduce(r, r.rank ? N : N / 2);
    });
    refused("another operation", 3, "is at operation", [](Rank r) {
        after(r.side, r.compute);
        if (r.rank) { reduce(r); }
        else { ncclAllGather(r.mine, r.other, N, ncclFloat32, r.comm, r.side); }
    });
    refused("no wait before", 3, "has not waited for what wrote", [](Rank r) { reduce(r); });
    refused("no wait after", 3, "two streams use", [](Rank r) {
        after(r.side, r.compute);
        reduce(r);
        cudaMemsetAsync(r.mine, 0, 4, r.compute);
    });
    refused("changed on its way", 3, "were changed while they were on their way", [](Rank r) {
        after(r.side, r.compute);
        reduce(r);
        cudaMemsetAsync(r.all, 1, 4, r.compute);
        cudaStreamSynchronize(r.side);
    });
    refused("too short", 3, "are not device memory", [](Rank r) {
        after(r.side, r.compute);
        reduce(r, N + 1);
    });
    refused("host memory", 3, "are not device memory", [](Rank r) {
        float x[N];
        ncclAllGather(x, r.other, N, ncclFloat32, r.comm, r.side);
    });
    refused("overlap", 3, "overlap", [](Rank r) {
        ncclReduceScatter(r.all, r.all + 1, N / 2, ncclFloat32, ncclSum, r.comm, r.side);
    });
    refused("a type that is none of ours", 0, "", [](Rank r) {
        expect(ncclAllGather(r.mine, r.other, N, ncclInt8, r.comm, r.side) == ncclInvalidArgument,
               "int8");
        expect(ncclReduceScatter(r.all, r.mine, N, ncclFloat32, ncclMax, r.comm, r.side) ==
                   ncclInvalidArgument,
               "max");
        expect(ncclGroupEnd() == ncclInvalidUsage, "an end without a beginning");
    });
    refused("destroyed at work", 3, "while work is under way", [](Rank r) {
        after(r.side, r.compute);
        reduce(r);
        ncclCommDestroy(r.comm);
    });
    refused("destroyed inside a group", 3, "inside a group", [](Rank r) {
        ncclGroupStart();
        ncclCommDestroy(r.comm);
    });
    return check_done();
}
