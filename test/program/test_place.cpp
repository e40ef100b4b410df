/*
test_place.cpp -- which of many processes this one is, by what its launcher leaves in the
environment; and how rank 0 hands its bytes to the others by files, among what earlier jobs have
left there.
*/
#include "../check.h"
#include "../../dist/rendezvous.h"
#include <sys/wait.h>

using namespace dist;

// sets variables for as long as it lives
struct Environment {
    std::vector<std::string> names;
    explicit Environment(const std::vector<std::pair<std::string, std::string>>& set) {
        for (auto& s : set) {
            names.push_back(s.first);
            setenv(s.first.c_str(), s.second.c_str(), 1);
        }
    }
    ~Environment() {
        for (auto& n : names) { unsetenv(n.c_str()); }
    }
};

static void test_launchers() {
    Place p = place_of_environment();
    CHECK(p.world == 1 && p.rank == 0 && p.launcher.empty(), "nothing started many");
    {
        Environment set({ { "RANK", "5" }, { "WORLD_SIZE", "8" }, { "LOCAL_RANK", "1" },
                          { "LOCAL_WORLD_SIZE", "4" }, { "TORCHELASTIC_RUN_ID", "a/b" } });
        p = place_of_environment();
        CHECK(p.launcher == "torchrun" && p.rank == 5 && p.world == 8 && p.local == 1 &&
                  p.neighbors == 4,
              "torchrun: rank %d of %d, %d of %d here", p.rank, p.world, p.local, p.neighbors);
        CHECK(rendezvous_file(p, "out", 2) == "out/nccl-a_b.2", "a file's name: %s",
              rendezvous_file(p, "out", 2).c_str());
    }
    Environment set({ { "PMI_RANK", "1" }, { "PMI_SIZE", "2" } });
    p = place_of_environment();
    CHECK(p.launcher == "mpirun" && p.rank == 1 && p.world == 2 && p.local == 1 && p.neighbors == 2,
          "mpirun of MPICH: rank %d of %d, %d of %d here", p.rank, p.world, p.local, p.neighbors);
}

// how many processes srun has started on this machine
static void test_slurm() {
    CHECK(slurm_tasks("8(x4)", 0) == 8 && slurm_tasks("8(x4)", 3) == 8, "8(x4)");
    CHECK(slurm_tasks("8(x2),7,1(x3)", 1) == 8 && slurm_tasks("8(x2),7,1(x3)", 2) == 7 &&
              slurm_tasks("8(x2),7,1(x3)", 5) == 1,
          "8(x2),7,1(x3)");
    CHECK(!slurm_tasks("8(x2),7", 3) && !slurm_tasks("", 0) && !slurm_tasks("x", 0),
          "a node that it does not name");
    Environment set({ { "SLURM_PROCID", "9" }, { "SLURM_STEP_NUM_TASKS", "12" },
                      { "SLURM_LOCALID", "1" }, { "SLURM_NODEID", "1" },
                      { "SLURM_STEP_TASKS_PER_NODE", "8,4" } });
    const Place p = place_of_environment();
    CHECK(p.launcher == "srun" && p.world == 12 && p.local == 1 && p.neighbors == 4,
          "12 processes of srun, 8 and 4: %d of %d here", p.neighbors, p.world);
}

static Place place_of(int rank, int world) {
    Place p;
    p.rank = rank;
    p.world = world;
    p.job = "job";
    return p;
}

// Starts a rank that takes bytes and ends with 0 if they are the ones it should get.
static pid_t run_taker(int rank, int world, const std::string& dir, const std::string& bytes) {
    fflush(stdout);
    const pid_t pid = fork();
    if (pid) { return pid; }
    setenv("DIST_TIMEOUT", "10", 1);
    usleep(rank * 150000);                               // some come late
    _exit(rendezvous(place_of(rank, world), dir, "") != bytes);
}

// What was left by jobs that were killed: a whole exchange of other bytes, words of ranks.
static void leave_behind(const std::string& dir, int world) {
    std::string words;
    for (int r = 1; r < world; r++) {
        const std::string word = strf("%032d\n", r);
        file_write(rendezvous_file(place_of(0, world), dir, r), word);
        words += word;
    }
    file_write(rendezvous_file(place_of(0, world), dir, 0), words + "\nthe id of a dead job");
}

static void test_rendezvous(bool stale) {
    const int world = 4;
    const std::string parent = check_tmp() + "/runs";
    const std::string dir = parent + "/out";
    const std::string bytes("an id\0\n\nwith any bytes", 22);
    if (stale) {
        make_dirs(dir);
        leave_behind(dir, world);
    }
    std::vector<pid_t> pids;
    for (int r = 1; r < world; r++) { pids.push_back(run_taker(r, world, dir, bytes)); }
    rendezvous(place_of(0, world), dir, bytes);
    for (int r = 1; r < world; r++) {
        int status = -1;
        waitpid(pids[r - 1], &status, 0);
        CHECK(status == 0, "rank %d got other bytes%s: status %d", r,
              stale ? ", those of an earlier job" : "", status);
    }
    CHECK(is_dir(dir) == stale && is_dir(parent) == stale, "a directory that was not there stays");
    CHECK(!stale || dir_list(dir).empty(), "files stay behind");
}

// Tells what a rank says that nobody joins.
static void test_alone(int rank, const char* says) {
    fflush(stdout);
    const std::string dir = check_tmp();
    const std::string err = dir + "/err";
    const pid_t pid = fork();
    if (pid == 0) {
        setenv("DIST_TIMEOUT", "1", 1);
        if (!freopen(err.c_str(), "w", stderr)) { _exit(9); }
        rendezvous(place_of(rank, 3), dir + "/out", "id");
        _exit(0);
    }
    int status = -1;
    waitpid(pid, &status, 0);
    CHECK(WEXITSTATUS(status) == EXIT_MACHINE && contains(file_read(err), says),
          "alone: status %d, %s", status, file_read(err).c_str());
}

int main() {
    setenv("DIST_TIMEOUT", "20", 1);
    CASE("launchers") { test_launchers(); }
    CASE("slurm") { test_slurm(); }
    CASE("rendezvous") { for (bool stale : { false, true }) { test_rendezvous(stale); } }
    CASE("alone") {
        test_alone(0, "rank 0 of 3 has waited 1 s there for the others");
        test_alone(2, "rank 2 of 3 has waited 1 s there for rank 0");
    }
    return check_done();
}
