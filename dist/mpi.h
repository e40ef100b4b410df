/*
dist/mpi.h -- tensors in host memory between processes, by MPI: OpenMPI, MPICH or any other that has
nonblocking collectives (MPI 3). Started by mpirun or srun; without them it is one process, and MPI
is not touched.

Sums are this file's own, rank by rank in their order, and so the same bits on every run and with
every MPI.
*/
#ifndef DIST_MPI_H
#define DIST_MPI_H
#include "processes.h"
#define OMPI_SKIP_MPICXX 1 // only the C interface: the other one is long gone from the standard
#define MPICH_SKIP_MPICXX 1
#include <mpi.h>
#include <sys/random.h>

namespace dist {
static const char* const name = "mpi";

inline void mpi_check(int error, const char* doing) {
    char text[MPI_MAX_ERROR_STRING] = "";
    int length = 0;
    if (error == MPI_SUCCESS) { return; }
    sleep(1); // if a rank has died, the watch says which
    MPI_Error_string(error, text, &length);
    die(EXIT_MACHINE, strf("MPI: %s: %s", doing, text), last_whole());
}

// Starts MPI. MPI_Init waits for all ranks, for ever, so a thread ends the process if one never
// starts.
inline void mpi_init(const Place& p) {
    std::atomic<bool> done(false);
    std::thread alarm([&] {
        Countdown wait(patience() + std::min(p.rank, 10));       // the lowest rank says it
        while (!done && !wait.over()) { usleep(20000); }
        if (done) { return; }
        fprintf(stderr,
                "error: %d processes were started, and after %d s not all have come to MPI_Init\n"
                "---> HINT: see which machine does not answer; DIST_TIMEOUT=300 waits longer\n",
                p.world, patience());
        quick_exit(EXIT_MACHINE);
    });
    int got;
    MPI_Init_thread(NULL, NULL, MPI_THREAD_FUNNELED, &got);
    done = true;
    alarm.join();
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
}

// Asks MPI for rank and world size, and for those on this machine.
inline void place_of_mpi(Place* place) {
    Place& p = *place;
    int size = 1;
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Comm_rank(MPI_COMM_WORLD, &p.rank);
    if (size != p.world) {
        die(EXIT_USER,
            strf("%s started %d processes, and MPI knows of %d", p.launcher.c_str(), p.world, size),
            "start with the mpirun of the MPI that this was built with, or srun --mpi=pmix (srun "
            "--mpi=list shows others)");
    }
    MPI_Comm near;
    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &near);
    MPI_Comm_rank(near, &p.local);
    MPI_Comm_size(near, &p.neighbors);
    MPI_Comm_free(&near);
}

// Finds the other processes, if mpirun or srun has started this one.
inline void start() {
    Place p = place_of_environment();
    if (p.world == 1) { return; }
    mpi_init(p);
    place_of_mpi(&p);
    int port = 0;
    const int listener = p.rank == 0 ? socket_listen(&port) : -1;
    struct {
        char host[256];
        int port;
        uint64_t token;             // only the processes of this run know it
    } at = {};
    const bool one_machine = p.neighbors == p.world;
    snprintf(at.host, sizeof at.host, "%s", one_machine ? "127.0.0.1" : host_name().c_str());
    at.port = port;
    if (getrandom(&at.token, sizeof at.token, 0) != sizeof at.token) { at.token = 0; }
    MPI_Bcast(&at, sizeof at, MPI_BYTE, 0, MPI_COMM_WORLD);
    p.address = at.host;
    p.port = at.port;
    p.token += strf("%016llx", (unsigned long long)at.token);
    meet(p, listener);
}

inline void stop() {
    if (world == 1) { return; }
    barrier();
    watch_stop();
    MPI_Finalize();
}

// Waits without keeping a core busy: there may be more ranks than cores.
inline void mpi_wait(MPI_Request* request, const char* doing) {
    const Waiting wait(doing);
    int done = 0;
    for (long tries = 0; !done; tries++) {
        mpi_check(MPI_Test(request, &done, MPI_STATUS_IGNORE), doing);
        if (!done && tries > 200) { usleep(20); }
    }
}

inline void tensors_start() {}
inline void group_begin() {}
inline void group_end() {}

// ----------------------------------------------------------------------------
// A bucket on its way: pieces of all ranks come in, and are summed when all have come. Two buckets
// travel at a time.

struct Arriving {
    MPI_Request request;
    void* mine;                     // (piece) where the sum goes
    std::vector<char> pieces;       // (world, piece)
    void (*add)(Arriving*);         // sums them
    long piece;
};
inline Arriving arriving[2];
inline long reduces;                // begun since arrive()

template <class T> void arriving_add(Arriving* a) {
    const T* from = (const T*)a->pieces.data();
    T* to = (T*)a->mine;
    #pragma omp parallel for simd
    for (long i = 0; i < a->piece; i++) {
        T sum = from[i];
        for (int r = 1; r < world; r++) { sum += from[r * a->piece + i]; }
        to[i] = sum;
    }
}

// Waits for a bucket and sums it.
inline void arriving_end(Arriving* a) {
    mpi_wait(&a->request, "gradients");
    a->add(a);
}

// Sums over ranks: all (world, piece) of each -> mine (piece), of their row `rank`. T: float or
// double
template <class T> void reduce_scatter(T* mine, const T* all, long piece) {
    Arriving* a = &arriving[reduces % 2];
    if (reduces++ >= 2) { arriving_end(a); }
    a->mine = mine;
    a->piece = piece;
    a->add = arriving_add<T>;
    a->pieces.resize(world * piece * sizeof(T));
    const MPI_Datatype type = sizeof(T) == sizeof(float) ? MPI_FLOAT : MPI_DOUBLE;
    mpi_check(MPI_Ialltoall(all, (int)piece, type, a->pieces.data(), (int)piece, type,
                            MPI_COMM_WORLD, &a->request),
              "sending gradients");
}

// Waits for all buckets.
inline void arrive() {
    for (long k = std::max(0L, reduces - 2); k < reduces; k++) { arriving_end(&arriving[k % 2]); }
    reduces = 0;
}

// Gathers mine (piece) of each rank in all (world, piece), at once.
template <class T> void all_gather(T* all, const T* mine, long piece) {
    MPI_Request request;
    const int bytes = (int)(piece * sizeof(T));
    mpi_check(MPI_Iallgather(mine, bytes, MPI_BYTE, all, bytes, MPI_BYTE, MPI_COMM_WORLD, &request),
              "gathering weights");
    mpi_wait(&request, "weights");
}
} // namespace dist
#endif // DIST_MPI_H
