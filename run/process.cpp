/*
run/process.cpp -- sets up what surrounds a command. Some limits hold only from the start of a
program, so it may start itself once more.
*/
#include "process.h"
#include "../base/threads.h"
#include "../optional.h"
#include "../base/maps.h"
#include <omp.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <new>

// ---- the process

// Raises a stack limit so small that the program would segfault. A new limit takes effect at exec,
// so the program re-executes itself.
static void stack_check(char** argv) {
    const rlim_t least = 1 << 20, usual = 8 << 20;
    struct rlimit limit;
    if (getrlimit(RLIMIT_STACK, &limit) || limit.rlim_cur >= least) { return; }
    const long had = limit.rlim_cur;
    limit.rlim_cur = std::min(limit.rlim_max, usual);
    if (limit.rlim_cur >= least && !setrlimit(RLIMIT_STACK, &limit)) {
        execv("/proc/self/exe", argv);
    }
    die(EXIT_MACHINE, strf("stack: got a limit of %ld KiB, wanted 1024 or more", had / 1024),
        "run ulimit -s 8192 in the shell or job that starts the program");
}

// Dies if OpenMP's threads have been given stacks on which the program would end in the same way.
static void thread_stacks_check() {
    const size_t least = 256 << 10;
    size_t smallest = least;
    const char* name = getenv("OMP_STACKSIZE") ? "OMP_STACKSIZE" : "GOMP_STACKSIZE";
    if (!getenv(name)) { return; }
    #pragma omp parallel reduction(min : smallest)
    {
        pthread_attr_t attributes;
        if (omp_get_thread_num() && !pthread_getattr_np(pthread_self(), &attributes)) {
            pthread_attr_getstacksize(&attributes, &smallest);
            pthread_attr_destroy(&attributes);
        }
    }
    if (smallest >= least) { return; }
    die(EXIT_MACHINE, strf("%s: threads have %zu KiB, wanted 256 or more", name, smallest / 1024),
        strf("unset %s", name));
}

// Returns the processors that the control group of a container allows, 0 or less if it does not
// say.
static double container_cpus() {
    const std::string root = "/sys/fs/cgroup/";
    std::string text;                                    // "200000 100000" in version 2
    for (auto name : { "cpu.max", "cpu/cpu.cfs_quota_us", "cpu/cpu.cfs_period_us" }) {
        if (file_exists(root + name)) { text += file_read(root + name); }
    }
    double quota, period;
    const bool both = sscanf(text.c_str(), "%lf %lf", &quota, &period) == 2;
    return both ? quota / period : 0;
}

void threads_check() {
    const int wanted = omp_get_max_threads();
    const int given = threads_given(wanted);
    const char* asked = getenv("OMP_NUM_THREADS");
    const double cpus = container_cpus();
    if (!asked && cpus > 0 && cpus < wanted) {
        note(strf("this container may use %g processors, and %d threads would wait for each other: "
                  "export OMP_NUM_THREADS=%.0f", cpus, wanted, ceil(cpus)));
    }
    if (given == wanted) { return; }
    die(EXIT_MACHINE,
        strf("threads: the system gave %d, wanted %s", given,
             asked ? asked : strf("%d", wanted).c_str()),
        strf("set OMP_NUM_THREADS=%d, or raise the process limit: ulimit -u",
             std::max(1, (given - 1) / 2)));
}

void process_begin(char** argv) {
    if (cpu_folder) { cpu_folder->processor_check(); }
    // the next file opened would take the number of a closed stream (>&-), and messages would be
    // written into it: the log, a checkpoint
    for (int fd = 0; fd <= 2; fd++) {
        if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", O_RDWR) < 0) { _exit(EXIT_MACHINE); }
    }
    stack_check(argv);
    // By default, waiting OpenMP threads spin for milliseconds. On a busy machine that costs ten
    // times what sleeping costs on a quiet one. Spinning for a few microseconds costs nothing
    // there, and avoids a sleep if the others are nearly done. The library reads its environment
    // before main, so the program re-executes itself; but not if its threads are pinned, because it
    // would then be confined to the first thread's place
    const char* bind = getenv("OMP_PROC_BIND");
    const bool placed = (bind && strcasecmp(bind, "false")) || getenv("OMP_PLACES") ||
                        getenv("GOMP_CPU_AFFINITY");
    if (!getenv("OMP_WAIT_POLICY") && !placed) {
        setenv("OMP_WAIT_POLICY", "passive", 1);
        setenv("GOMP_SPINCOUNT", "1000", 0);
        execv("/proc/self/exe", argv);
    }
    thread_stacks_check();
    // flush numbers below 1e-38 to 0 (FTZ, DAZ): a model that decays to nothing took five times as
    // long without
#ifdef __SSE__
    __builtin_ia32_ldmxcsr(__builtin_ia32_stmxcsr() | 0x8040);
#endif
    on_exit([](int code, void*) {                                // > /dev/full, say
        if (code || (fflush(stdout) == 0 && !ferror(stdout))) { return; }
        fprintf(stderr, "error: the output could not be written (%s)\n"
                        "---> HINT: check where the output goes, and whether there is room\n",
                strerror(errno));
        _exit(EXIT_MACHINE);
    }, NULL);
    signal(SIGCHLD, SIG_DFL); // otherwise the exit status of a decompressor is lost
    maps_watch();
    signal(SIGXFSZ, SIG_IGN); // ulimit -f makes the write fail instead of killing the process
    std::set_new_handler([] {
        die(EXIT_MACHINE, "out of memory", hints.memory);
    });
}

// ---- memory

// Reads the number that a file such as memory.max begins with, or that stands after `key` in a file
// of lines such as "MemAvailable:   123 kB"; -1 if there is none ("max", no such file).
static double number_in(const std::string& path, const char* key = "") {
    double v = -1;
    char line[256];
    FILE* f = fopen(path.c_str(), "r");
    while (f && fgets(line, sizeof line, f)) {
        if (!strncmp(line, key, strlen(key))) { sscanf(line + strlen(key), "%lf", &v); }
    }
    if (f) { fclose(f); }
    return v;
}

// Returns the bytes that a control group still allows. Its page cache can be dropped, so it counts
// as free.
static double cgroup_free(const std::string& dir) {
    static const char* const VERSIONS[][3] = {           // the limit, what is used, its cache
        { "/memory.max", "/memory.current", "file " },
        { "/memory.limit_in_bytes", "/memory.usage_in_bytes", "total_cache " },
    };
    for (auto& [limit, used, cache] : VERSIONS) {
        const double most = number_in(dir + limit);
        if (most < 0) { continue; }
        return most - number_in(dir + used) + number_in(dir + "/memory.stat", cache);
    }
    return INFINITY;
}

double memory_free() {
    const double kib = number_in("/proc/meminfo", "MemAvailable:");
    double free = kib > 0 ? kib * 1024 : INFINITY;
    // this process's group, of version 2 (0::PATH) and of version 1 (N:memory:PATH), and those it
    // is in
    const std::string root = "/sys/fs/cgroup", lines = "/proc/self/cgroup";
    std::vector<std::string> groups = { root, root + "/memory" };
    for (auto& line : split(file_exists(lines) ? file_read(lines) : "", '\n')) {
        const size_t memory = line.find(":memory:");
        if (starts_with(line, "0::")) { groups[0] += line.substr(3); }
        if (memory != line.npos) { groups[1] += line.substr(memory + 8); }
    }
    for (std::string group : groups) {
        for (; group.size() >= root.size(); group.resize(group.rfind('/'))) {
            free = std::min(free, cgroup_free(group));
        }
    }
    struct rlimit limit;
    if (!getrlimit(RLIMIT_AS, &limit) && limit.rlim_cur != RLIM_INFINITY) {
        free = std::min<double>(free, limit.rlim_cur);
    }
    return free;
}

std::string bytes_text(double n) {
    return n < 0x1p30 ? strf("%.1f MiB", n / 0x1p20) : strf("%.1f GiB", n / 0x1p30);
}

// ---- signals

volatile sig_atomic_t stop_signal = 0;

// Records a signal. timeout(1) and some schedulers send two in a row, so only a later Ctrl-C exits
// immediately.
static void on_signal(int sig) {
    static double first;
    if (sig == SIGINT && stop_signal && now_ms() - first > 500) { _exit(128 + SIGINT); }
    if (!stop_signal) { first = now_ms(); }
    stop_signal = sig;
}

void on_signals() {
    struct sigaction act = {}, was;
    act.sa_handler = on_signal;
    act.sa_flags = SA_RESTART;
    // Those that end a process unless it says otherwise. SIGKILL cannot be caught, and after a
    // fault of the processor (SIGSEGV, SIGFPE, ..) there is nothing to go on with.
    std::vector<int> all = { SIGINT,  SIGTERM,   SIGHUP,  SIGPIPE, SIGQUIT, SIGUSR1,
                             SIGUSR2, SIGALRM,   SIGPROF, SIGXCPU, SIGVTALRM,
#ifdef SIGPWR
                             SIGPWR,  SIGSTKFLT, SIGPOLL,
#endif
    };
    for (int sig = SIGRTMIN; sig <= SIGRTMAX; sig++) { all.push_back(sig); }
    for (int sig : all) {
        // an ignored signal stays ignored (nohup), and a library keeps the signals it handles. But
        // shells start background jobs with SIGINT and SIGQUIT ignored
        sigaction(sig, NULL, &was);
        const bool free = was.sa_handler == SIG_DFL && !(was.sa_flags & SA_SIGINFO),
                   always = sig == SIGINT || sig == SIGQUIT || sig == SIGTERM;
        if (free || always) { sigaction(sig, &act, NULL); }
    }
}

// ---- the terminal

int terminal_columns() {
    struct winsize w;
    const int to = fileno(progress.to);
    if (!isatty(to)) { return 0; }
    const bool known = ioctl(to, TIOCGWINSZ, &w) == 0 && w.ws_col > 0;
    return known ? w.ws_col : 80;
}

void progress_show(const std::vector<std::string>& forms) {
    const int columns = terminal_columns();
    std::string line = forms.back().substr(0, columns - 1);
    for (size_t i = forms.size(); i-- > 0;) {
        if ((int)forms[i].size() < columns) { line = forms[i]; }
    }
    fprintf(progress.to, "\r\033[K%s", line.c_str());
    progress.open = true;
    fflush(progress.to);
}
