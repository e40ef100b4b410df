/*
commands/run.cpp -- what run.h declares.
*/
#include "run.h"
#include "../cpu/processor.h"
#include "../text/lock.h"
#include "../text/maps.h"
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <limits.h>
#include <omp.h>
#include <signal.h>
#include <mutex>
#include <new>
#include <system_error>
#include <thread>

// ---- the process

// Where the stack is too small the program would end by a segmentation fault. The limit is raised
// if it may be; a new one holds from the start of a program.
static void stack_check(char** argv) {
    const rlim_t least = 1 << 20, usual = 8 << 20;
    struct rlimit limit;
    if (getrlimit(RLIMIT_STACK, &limit) || limit.rlim_cur >= least) { return; }
    const long had = (long)limit.rlim_cur;
    limit.rlim_cur = std::min(limit.rlim_max, usual);
    if (limit.rlim_cur >= least && !setrlimit(RLIMIT_STACK, &limit)) {
        execv("/proc/self/exe", argv);
    }
    die(EXIT_MACHINE, strf("stack: got a limit of %ld KiB, wanted 1024 or more", had / 1024),
        "ulimit -s 8192, in the shell or job that starts this");
}

void threads_check() {
    const int wanted = omp_get_max_threads() - 1;        // besides this one
    std::vector<std::thread> threads;
    std::mutex all_there;
    bool failed = false;
    {
        std::lock_guard<std::mutex> hold(all_there);     // none ends before the last begins
        while (!failed && (int)threads.size() < wanted) {
            try {
                threads.emplace_back([&] { std::lock_guard<std::mutex> wait(all_there); });
            } catch (const std::system_error&) { failed = true; }
        }
    }
    for (auto& t : threads) { t.join(); }
    if (!failed) { return; }
    die(EXIT_MACHINE,
        strf("threads: the system gave %zu, wanted %d", threads.size() + 1, wanted + 1),
        strf("OMP_NUM_THREADS=%zu, or raise the limit of processes: ulimit -u",
             std::max<size_t>(1, threads.size() / 2)));
}

void process_begin(char** argv) {
    processor_check();                               // has run before main; this links it
    // what was closed (>&-) would be the number of the next file that is opened, and text meant for
    // people would go into that: the log, a checkpoint
    for (int fd = 0; fd <= 2; fd++) {
        if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", O_RDWR) < 0) { _exit(EXIT_MACHINE); }
    }
    stack_check(argv);
    // OpenMP threads wait by spinning for milliseconds unless told not to, which on a machine with
    // other work costs ten times more than sleeping does on a quiet one. A few microseconds of it
    // cost nothing there, and save a sleep where the others are nearly done. The library reads its
    // environment before main: the program starts itself once more. Not if its threads have been
    // given places: it would find itself alone on the first one's
    const char* bind = getenv("OMP_PROC_BIND");
    const bool placed = (bind && strcasecmp(bind, "false")) || getenv("OMP_PLACES") ||
                        getenv("GOMP_CPU_AFFINITY");
    if (!getenv("OMP_WAIT_POLICY") && !placed) {
        setenv("OMP_WAIT_POLICY", "passive", 1);
        setenv("GOMP_SPINCOUNT", "1000", 0);
        execv("/proc/self/exe", argv);
    }
    // numbers below 1e-38 count as 0 (FTZ, DAZ): a model that decays to nothing took five times as
    // long with them
#ifdef __SSE__
    __builtin_ia32_ldmxcsr(__builtin_ia32_stmxcsr() | 0x8040);
#endif
    on_exit([](int code, void*) {                                // > /dev/full, say
        if (code || (fflush(stdout) == 0 && !ferror(stdout))) { return; }
        fprintf(stderr, "error: the output could not be written (%s)\n"
                        "---> HINT: where does the output go, and is there room?\n",
                strerror(errno));
        _exit(EXIT_MACHINE);
    }, NULL);
    signal(SIGCHLD, SIG_DFL); // else nobody learns how the program that unpacks a text ended
    maps_watch();
    signal(SIGXFSZ, SIG_IGN); // a file at its limit (ulimit -f) is an error of the write
    std::set_new_handler([] {
        die(EXIT_MACHINE, "memory: the system gave no more",
            "lower --batch, --seq or the model size");
    });
}

// ---- memory

// the number in a file such as memory.max; -1 if there is none ("max", no such file)
static double number_in(const std::string& path) {
    double v = -1;
    if (FILE* f = fopen(path.c_str(), "r")) {
        if (fscanf(f, "%lf", &v) != 1) { v = -1; }
        fclose(f);
    }
    return v;
}

// the number after `key` in a file of lines such as "MemAvailable:   123 kB"; 0 if there is none
static double number_after(const std::string& path, const char* key) {
    double v = 0;
    char line[256];
    FILE* f = fopen(path.c_str(), "r");
    while (f && fgets(line, sizeof line, f)) {
        if (!strncmp(line, key, strlen(key))) { v = atof(line + strlen(key)); }
    }
    if (f) { fclose(f); }
    return v;
}

// Bytes that a control group leaves; what it holds of files can be dropped, so it counts as free.
static double cgroup_free(const std::string& dir) {
    const double most = number_in(dir + "/memory.max"),
                 most1 = number_in(dir + "/memory.limit_in_bytes");
    if (most >= 0) {
        return most - number_in(dir + "/memory.current") +
               number_after(dir + "/memory.stat", "file ");
    }
    if (most1 >= 0) {
        return most1 - number_in(dir + "/memory.usage_in_bytes") +
               number_after(dir + "/memory.stat", "total_cache ");
    }
    return INFINITY;
}

double memory_free() {
    const double kib = number_after("/proc/meminfo", "MemAvailable:");
    double free = kib > 0 ? kib * 1024 : INFINITY;
    // this process's group, of version 2 (0::PATH) and of version 1 (N:memory:PATH), and those it
    // is in
    const std::string root = "/sys/fs/cgroup", lines = "/proc/self/cgroup";
    std::vector<std::string> groups = { root, root + "/memory" };
    for (auto& line : split(file_exists(lines) ? file_read(lines) : "", '\n')) {
        const size_t memory = line.find(":memory:");
        if (line.compare(0, 3, "0::") == 0) { groups[0] += line.substr(3); }
        if (memory != std::string::npos) { groups[1] += line.substr(memory + 8); }
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

// ---- the directory

static bool switch_default(const SwitchValue& s) { // is the value the first of its table?
    return !strncmp(s.all, (s.value + std::string(" ")).c_str(), strlen(s.value) + 1);
}

// 12 of "0012-softmax"; 0 of a name that is no run's, such as a date
static long run_number(const std::string& name) {
    const std::string digits = name.substr(0, name.find('-'));
    long n = 0;
    return digits.size() <= 7 && parse_long(digits, &n) && n > 0 ? n : 0;
}

std::string next_run_dir() {
    std::string name;
    for (auto& s : SWITCH_VALUES) {
        if (!strcmp(s.name, "ATTN") || !switch_default(s)) {
            name += std::string("-") + s.value;
        }
    }
    make_dirs("runs");
    const int fd = open("runs", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd >= 0) { flock(fd, LOCK_EX); }
    long number = 1;
    for (auto& d : dir_list("runs")) { number = std::max(number, run_number(d) + 1); }
    std::string dir = strf("runs/%04ld%s", number, name.c_str());
    while (mkdir(dir.c_str(), 0777)) {                   // made here, and by nobody else
        if (errno != EEXIST) {
            die(blame(errno), dir + ": cannot make this directory (" + strerror(errno) + ")",
                "choose another place with --out");
        }
        dir = strf("runs/%04ld%s", ++number, name.c_str());
    }
    if (fd >= 0) { close(fd); }
    return dir;
}

void run_lock(const std::string& out) {
    dir_lock(out, "wait until it ends, or choose another --out");
}

// ---- what may change on the way. state.json holds the flags that a run had at its checkpoint

// those that say nothing about the model, and hold for one start of the program
static bool of_one_start(const FlagRow& r) {
    return r.name == "out" || r.name == "resume" || r.name == "stop_after";
}

std::string flags_changed(const Json& was, const Flags& now, std::string* changed) {
    const Json is = json_of(flags_json(now, 't'));
    Flags copy = now;
    for (auto& r : flag_rows(&copy)) {
        const Json *a = was.get(r.name.c_str()), *b = is.get(r.name.c_str());
        if (!a || !b || of_one_start(r)) { continue; }
        if (a->string == b->string && a->number == b->number) { continue; }
        auto text = [](const Json& j) {
            if (j.type == Json::BOOL) { return std::string(j.number ? "true" : "false"); }
            return j.type == Json::STRING ? json_str(j.string) : j.string;
        };
        if (r.fixed()) {
            return flag_spelling(r.name) + ": got " + text(*b) + ", wanted " + text(*a) +
                   " as before";
        }
        *changed += (changed->empty() ? "" : ",") + strf("\"%s\":[", r.name.c_str()) + text(*a) +
                    "," + text(*b) + "]";
    }
    return "";
}

// the value that a run's flags have, unless another is given
static void flag_take(const FlagRow& r, const Json& was) {
    const Json* v = was.get(r.name.c_str());
    if (!v || *r.given) { return; }
    if (r.kind == FLAG_BOOL) { *(bool*)r.value = v->number != 0; }
    else { flag_set(r, flag_spelling(r.name), v->string); }
}

void flags_take(Flags* f, const Json& was) {
    for (auto& r : flag_rows(f)) {
        if (r.of('t') && r.kind != FLAG_ARCH && !of_one_start(r)) { flag_take(r, was); }
    }
}

void flags_take_data(Flags* f, const Json& was) {
    for (auto& r : flag_rows(f)) {
        if (r.of('p') && (r.fixed() || r.name == "data")) { flag_take(r, was); }
    }
}

std::string run_started(const std::string& out) {
    char here[PATH_MAX], there[PATH_MAX];
    if (!getcwd(here, sizeof here) || !realpath(out.c_str(), there)) { return "."; }
    const std::vector<std::string> from = split(there, '/'), to = split(here, '/');
    size_t same = 0;
    while (same < from.size() && same < to.size() && from[same] == to[same]) { same++; }
    std::string path;
    for (size_t i = same; i < from.size(); i++) { path += path.empty() ? ".." : "/.."; }
    for (size_t i = same; i < to.size(); i++) { path += (path.empty() ? "" : "/") + to[i]; }
    return path.empty() ? "." : path;
}

std::string run_started_from(const Json& state, const std::string& out) {
    const Json* where = state.get("directory");
    if (!where || where->string.empty()) { return "."; }
    return where->string[0] == '/' ? where->string : out + "/" + where->string;
}

std::string source_found(const std::string& name, const std::string& directory) {
    std::string bare = name;
    if (name == "bb" || name.empty() || name[0] == '/' || file_exists(name)) { return name; }
    source_weight(&bare);
    if (file_exists(bare) || file_exists("data/" + bare)) { return name; }
    for (auto& start : { directory + "/", directory + "/data/" }) {
        if (file_exists(start + bare)) { return start + name; }
    }
    return name;
}

void source_there(const std::string& name, const std::string& again) {
    std::string bare = name;
    if (name == "bb" || file_exists(name)) { return; }
    source_weight(&bare);
    if (file_exists(bare) || file_exists("data/" + bare)) { return; }
    die(EXIT_USER, bare + ": the run was trained on this, and it is not there any more",
        "if it was moved: " + again + " -d PATH");
}

// ---- what a command writes

// is it one file, by whatever name, there or not?
static bool same_place(const std::string& a, const std::string& b) {
    struct stat one, two;
    auto same = [&](const std::string& x, const std::string& y) {
        return !stat(x.c_str(), &one) && !stat(y.c_str(), &two) && one.st_dev == two.st_dev &&
               one.st_ino == two.st_ino;
    };
    auto directory = [](const std::string& path) {
        const size_t slash = path.rfind('/');
        return slash == std::string::npos ? std::string(".") : path.substr(0, slash + 1);
    };
    auto name = [](const std::string& path) { return path.substr(path.rfind('/') + 1); };
    return same(a, b) || (name(a) == name(b) && same(directory(a), directory(b)));
}

static bool one_of(const std::string& name, const std::vector<const char*>& names) {
    return std::any_of(names.begin(), names.end(), [&](auto n) { return name == n; });
}

// Does the directory hold a run, a checkpoint, a model or shards? Then what is in it is not ours to
// replace, whichever model this command reads.
static bool holds_work(const std::string& dir) {
    for (auto& name : dir_list(dir)) {
        const bool mark = one_of(name, { "log.jsonl", "config.json", "manifest.json" });
        const bool data = ends_with(name, ".safetensors") || ends_with(name, ".gguf") ||
                          ends_with(name, ".bin");
        if (mark || data) { return true; }
    }
    return false;
}

// Does a file of a directory belong to its run, model or data? An old answer, such as probe.json,
// does not.
static bool belongs(const std::string& name) {
    const bool answer = ends_with(name, ".json") || ends_with(name, ".jsonl") ||
                        ends_with(name, ".npy");
    if (!answer || one_of(name, { "log.jsonl", "after.json" })) { return true; }
    for (const char* word : { "config", "token", "vocab", "index", "manifest", "state",
                              "template" }) {
        if (ends_with(name, ".json") && name.find(word) != std::string::npos) { return true; }
    }
    return false;
}

// Would a new file of this name be taken for one of a run, a model or shards?
static bool is_reserved(const std::string& name) {
    for (const char* tail : { ".safetensors", ".gguf", ".bin", ".tmp" }) {
        if (ends_with(name, tail)) { return true; }
    }
    return name == "lock" || name.compare(0, 5, "step_") == 0 ||
           (ends_with(name, ".json") && belongs(name)) || name == "log.jsonl";
}

// Is it, or would it be, a file of a run, a checkpoint, a model or shards?
static bool is_work(const std::string& given) {
    const std::string path = link_target(given), name = path.substr(path.rfind('/') + 1);
    char real[PATH_MAX];
    if (!realpath(directory_of(path).c_str(), real)) { return false; }
    std::string dir = real;
    bool here = holds_work(dir);
    while (!here && dir.size() > 1) {                    // all of a run's directory
        here = file_exists(dir + "/log.jsonl");
        dir.resize(std::max<size_t>(1, dir.rfind('/')));
    }
    return here && (is_there(path) ? belongs(name) : is_reserved(name));
}

void output_check(const std::string& path, const std::vector<std::string>& others) {
    if (path.empty()) { return; }
    for (auto& other : others) {
        if (!is_special(path) && !other.empty() && same_place(path, other)) {
            die(EXIT_USER, path + ": already an input or output, and would be replaced",
                "write to another file");
        }
    }
    if (!is_special(path) && is_work(path)) {
        die(EXIT_USER, path + ": is a file of a run, a model or shards, or would be taken for one",
            "write to another file, such as answer.json");
    }
    file_check(path);
}

std::vector<std::string> files_read(const Flags& f, const std::vector<std::string>& sources) {
    std::vector<std::string> places = f.words, files;
    places.push_back(f.tokenizer);
    for (auto source : sources) {
        if (source == "bb") { continue; }
        source_weight(&source);
        places.push_back(source);
        places.push_back("data/" + source);
    }
    for (auto& place : places) {
        files.push_back(place);
        if (!is_dir(place)) { continue; }
        for (auto& name : dir_list(place)) {
            if (belongs(name)) { files.push_back(place + "/" + name); }
        }
    }
    return files;
}

// ---- the terminal

int terminal_columns() { // 0: what progress is shown on is no terminal
    struct winsize w;
    const int to = fileno(progress_to());
    if (!isatty(to)) { return 0; }
    return ioctl(to, TIOCGWINSZ, &w) || !w.ws_col ? 80 : w.ws_col;
}

void progress_show(const std::vector<std::string>& forms, int columns) {
    std::string line = forms.back().substr(0, columns - 1);
    for (size_t i = forms.size(); i-- > 0;) {
        if ((int)forms[i].size() < columns) { line = forms[i]; }
    }
    fprintf(progress_to(), "\r\033[K%s", line.c_str());
    progress_open() = true;
    fflush(progress_to());
}

// ---- the data

DataOptions data_options(const Flags& f, int T, int probe_len) {
    DataOptions o;
    o.data = split(f.data, ',');
    want(!o.data.empty(), "--data \"\"", "bb, a file, a directory of shards or a NAME in data/");
    o.tokenizer = f.tokenizer; o.bos = f.bos; o.T = T; o.seed = f.seed;
    o.val_seqs = f.val_seqs;
    o.probe_seqs = f.probe_seqs;
    o.probe_len = probe_len;
    o.train_tokens = f.train_tokens;
    o.vocab = f.arch.V;
    for (double position : flag_list("--random-token", f.random_token)) {
        want(position == floor(position) && fabs(position) < 1e9,
             strf("--random-token %g", position), "a whole number");
        o.random_token.push_back((int)position);
    }
    for (auto& w : split(f.fix_token, ',')) {
        auto pair = split(w, ':');
        long pos = 0, id = 0;
        const bool numbers = pair.size() == 2 && parse_long(pair[0], &pos) &&
                             parse_long(pair[1], &id);
        want(numbers && labs(pos) < 1L << 30 && labs(id) < 1L << 30, "--fix-token " + w, "POS:ID");
        o.fix_token.push_back({ (int)pos, (int)id });
    }
    o.skip_bad = f.skip_bad;
    o.sft = f.sft; o.sft_loss = f.sft_loss;
    o.bb_vocab = f.bb_vocab; o.bb_triggers = f.bb_triggers; o.bb_trigger_prob = f.bb_trigger_prob;
    o.bb_temp = f.bb_temp; o.bb_table = f.bb_table; o.bb_bos = f.bb_bos;
    return o;
}

void data_flags_read(const Flags& f, const std::vector<std::string>& sources) {
    const long all = sources.size(), bb = std::count(sources.begin(), sources.end(), "bb");
    flags_read(f, "bos skip_bad sft tokenizer", bb < all, "text to read with it: --data FILE");
    flags_read(f, "sft_loss", !f.sft.empty(), "--sft zephyr or chatml");
    flags_read(f, "bb_vocab bb_triggers bb_trigger_prob bb_temp bb_table bb_bos", bb, "--data bb");
    flags_read(f, "bb_trigger_prob", f.bb_triggers > 0, "--bb-triggers 1 or more");
    if (!f.given_fix_token) { return; }
    const DataOptions o = data_options(f, 1, 1);
    std::vector<int> taken;
    if (f.given_random_token) { taken = o.random_token; }
    for (auto& fix : o.fix_token) {
        want(!std::count(taken.begin(), taken.end(), fix.first),
             strf("--fix-token %d:%d", fix.first, fix.second),
             strf("one thing at position %d: it is fixed or random already", fix.first));
        taken.push_back(fix.first);
    }
}

void arch_flags_read(const Flags& f) {
    const Arch& c = f.arch;
    const bool llama3 = c.rope_scaling == ROPE_llama3, yarn = c.rope_scaling == ROPE_yarn,
               biases = bias_of(c).learn_k || bias_of(c).add_v;
    flags_read(f, "rope_context", llama3 || yarn, "--rope-scaling llama3 or yarn");
    flags_read(f, "rope_low rope_high", llama3, "--rope-scaling llama3");
    flags_read(f, "rope_fast rope_slow rope_length rope_round", yarn, "--rope-scaling yarn");
    flags_read(f, "bias_share", biases, "BIAS=k, v or kv");
}

Data data_from_flags(const Flags& f, int T, int probe_len) {
    return data_open(data_options(f, T, probe_len));
}
