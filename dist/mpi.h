/*
dist/mpi.h -- tensors in host memory between processes, by MPI: OpenMPI, MPICH or any other that has
nonblocking collectives (MPI 3). Started by mpirun or srun; without them it is one process, and MPI
is not touched. MPI ends all ranks if one of them aborts or dies.

Sums are this file's own, rank by rank in their order, and so the same bits on every run and with
every MPI.
*/
#ifndef DIST_MPI_H
#define DIST_MPI_H
#include "shard.h"
#define OMPI_SKIP_MPICXX 1 // only the C interface: the other one is long gone from the standard
#define MPICH_SKIP_MPICXX 1
#include <mpi.h>

namespace dist {
static const char* const name = "mpi";

// Finds the other processes, if mpirun or srun has started this one.
inline void start() {
    Place p = place_of_environment();
    if (p.world == 1) { return; }
    int got = 0;
    MPI_Init_thread(NULL, NULL, MPI_THREAD_FUNNELED, &got);
    MPI_Comm_size(MPI_COMM_WORLD, &got);
    MPI_Comm_rank(MPI_COMM_WORLD, &p.rank);
    if (got != p.world) {
        die(strf("%s started %d processes, and MPI knows of %d", p.launcher.c_str(), p.world, got),
            "start with the mpirun of the MPI that this was built with, or srun --mpi=pmix (srun "
            "--mpi=list shows others)");
    }
    at_quick_exit([] { MPI_Abort(MPI_COMM_WORLD, end_code); });
    join(p);
}

inline void stop() {
    if (world() > 1) { MPI_Finalize(); }
}

// Waits without keeping a core busy: there may be more ranks than cores.
inline void mpi_wait(MPI_Request* request) {
    int done = 0;
    for (long tries = 0; !done; tries++) {
        MPI_Test(request, &done, MPI_STATUS_IGNORE);
        if (!done && tries > 200) { usleep(20); }
    }
}

inline void tensors_start(const std::string&) {}
inline void group_begin() {}
inline void group_end() {}

// ----------------------------------------------------------------------------
// A bucket on its way: pieces of all ranks come in, and are summed when all have come. Two buckets
// travel at a time.

struct Arriving {
    MPI_Request request;
    acc* mine;                      // (piece) where the sum goes
    std::vector<acc> pieces;        // (world, piece)
    long piece;
};
struct Reducing {
    Arriving arriving[2];
    long begun;                     // since arrive()
};
inline Reducing reducing;

inline void arriving_end(Arriving* a) {
    mpi_wait(&a->request);
    const acc* from = a->pieces.data();
    acc* to = a->mine;
    #pragma omp parallel for simd
    for (long i = 0; i < a->piece; i++) {
        acc sum = from[i];
        for (int r = 1; r < world(); r++) { sum += from[r * a->piece + i]; }
        to[i] = sum;
    }
}

// Sums over ranks: all (world, piece) of each -> mine (piece), of their row `rank`.
inline void reduce_scatter(acc* mine, const acc* all, long piece) {
    Arriving* a = &reducing.arriving[reducing.begun % 2];
    if (reducing.begun++ >= 2) { arriving_end(a); }
    a->mine = mine;
    a->piece = piece;
    a->pieces.resize(world() * piece);
    const MPI_Datatype type = sizeof(acc) == sizeof(float) ? MPI_FLOAT : MPI_DOUBLE;
    MPI_Ialltoall(all, (int)piece, type, a->pieces.data(), (int)piece, type, MPI_COMM_WORLD,
                  &a->request);
}

inline void arrive() {
    for (long k = std::max(0L, reducing.begun - 2); k < reducing.begun; k++) {
        arriving_end(&reducing.arriving[k % 2]);
    }
    reducing.begun = 0;
}

// Gathers mine (bytes) of each rank in all (world, bytes), at once.
inline void all_gather(void* all, const void* mine, size_t bytes) {
    MPI_Request request;
    const int n = (int)bytes;
    MPI_Iallgather(mine, n, MPI_BYTE, all, n, MPI_BYTE, MPI_COMM_WORLD, &request);
    mpi_wait(&request);
}

inline void sum(double* x, size_t n) {
    if (world() == 1) { return; }
    std::vector<double> all(n * world());
    all_gather(all.data(), x, n * sizeof *x);
    for (size_t i = 0; i < n; i++) {
        x[i] = all[i];
        for (int r = 1; r < world(); r++) { x[i] += all[r * n + i]; }
    }
}
} // namespace dist
#endif // DIST_MPI_H
