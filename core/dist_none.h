/*
core/dist_none.h -- one process. What the program asks of others is answered here at once, and the
compiler removes it.
*/
#ifndef DIST_NONE_H
#define DIST_NONE_H
#include "../optional.h"
#include "variant.h"                // acc

namespace dist {
static const char* const name = "none";
#if __has_include("../dist/mpi.h")
static const char* const to_share = ": to share one run, make DIST=mpi or DIST=nccl";
#else
static const char* const to_share = "";
#endif
inline int rank() { return 0; }
inline int world() { return 1; }
inline int local() { return 0; }
inline int neighbors() { return 1; }

// Prints a note if many processes were started: each is then a run of its own, which may be meant.
inline void start() {
    for (auto key : { "WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS" }) {
        const char* size = getenv(key);
        if (!size || atoi(size) < 2) { continue; }
        note(strf("one of %s processes, each with its own run%s", size, to_share));
        return;
    }
}

inline void stop() {}
inline bool any(bool mine) { return mine; }
inline long least(long mine) { return mine; }
inline void barrier() {}
inline void sum(double*, size_t) {}
inline void spread(std::string*) {}
inline void agree(const char*, const std::string&, const char*) {}
inline void tensors_start(const std::string&) {}
inline void arrive() {}
inline void run_agree(const Flags&) {}
inline void run_share(Flags*) {}
inline void sum_metrics(Metrics*, const Sizes&, double*, long*) {}
} // namespace dist

// The shard is the whole array.
struct ParamShard { long whole = 0, mine = 0; };
inline ParamShard shard_of(long n, bool) { return { n, n }; }
inline void shard_send(const ParamShard&, acc*, acc*, long, long*) {}
inline void shard_gather(const ParamShard&, void*, const void*, size_t) {}
inline void shard_keep(const ParamShard&, acc*, const acc*) {}
#endif // DIST_NONE_H
