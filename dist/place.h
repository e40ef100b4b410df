/*
dist/place.h -- rank and world size of this process, which mpirun, srun or torchrun leave in the
environment.
*/
#ifndef DIST_PLACE_H
#define DIST_PLACE_H
#include "../base/common.h"

namespace dist {
// This process among the others.
struct Place {
    int rank = 0, world = 1;
    int local = 0, neighbors = 1;       // the same among those on this machine
    std::string launcher;               // mpirun, srun, torchrun, or "" if nothing started many
    std::string job;                    // the launcher's name for this job
};

inline const char* environment(const char* key) {
    const char* v = getenv(key);
    return v ? v : "";
}

// Reads a whole number of the environment.
inline int environment_int(const char* key, int otherwise) {
    long v = otherwise;
    const std::string text = environment(key);
    if (!text.empty() && (!parse_long(text, &v) || v < 0 || v > 1 << 24)) {
        die(strf("%s: got '%s', wanted a number", key, text.c_str()),
            strf("unset %s, or correct it", key));
    }
    return (int)v;
}

// The variables in which a launcher leaves rank, world size, the same on this machine, and the job.
struct Launcher {
    const char* name;
    const char* rank;
    const char* world;
    const char* local;
    const char* neighbors;
    const char* job;
};
static const Launcher LAUNCHERS[] = {
    { "torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "TORCHELASTIC_RUN_ID" },
    { "mpirun", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
      "OMPI_COMM_WORLD_LOCAL_SIZE", "PMIX_NAMESPACE" }, // OpenMPI
    { "mpirun", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS",
      "PMI_JOBID" }, // MPICH, Intel
    { "srun", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", "SLURM_NTASKS_PER_NODE",
      "SLURM_JOB_ID" },
};

// Returns how many tasks node number `node` has, of a list such as 8(x3),4; 0 if it does not say.
inline int slurm_tasks(const std::string& list, int node) {
    for (const char* at = list.c_str(); *at;) {
        int tasks = 0;
        int nodes = 1;
        int length = 0;
        if (sscanf(at, "%d%n", &tasks, &length) != 1) { return 0; }
        at += length;
        length = 0;
        if (sscanf(at, "(x%d)%n", &nodes, &length) == 1) { at += length; }
        if (node < nodes) { return tasks; }
        node -= nodes;
        if (*at) { at++; }
    }
    return 0;
}

// Finds rank and world size; one process if nothing started more.
inline Place place_of_environment() {
    Place p;
    for (auto& s : LAUNCHERS) {
        if (!*environment(s.rank) || !*environment(s.world)) { continue; }
        p.launcher = s.name;
        p.rank = environment_int(s.rank, 0);
        p.world = environment_int(s.world, 1);
        p.local = environment_int(s.local, p.rank);
        p.neighbors = environment_int(s.neighbors, p.world);
        p.job = environment(s.job);
        break;
    }
    if (p.launcher == "srun") {
        const int node = environment_int("SLURM_NODEID", 0);
        const int tasks = slurm_tasks(environment("SLURM_STEP_TASKS_PER_NODE"), node);
        if (tasks > 0) { p.neighbors = tasks; }
    }
    if (p.world < 1 || p.rank >= p.world) {
        die(strf("%s: got rank %d of %d processes, wanted 0 to %d", p.launcher.c_str(), p.rank,
             p.world, p.world - 1),
            "RANK counts from 0; start with torchrun, mpirun or srun");
    }
    return p;
}
} // namespace dist
#endif // DIST_PLACE_H
