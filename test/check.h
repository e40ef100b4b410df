/*
check.h -- the whole test framework. A test program CHECKs and ends with `return check_done();`,
which prints `N passed, M failed` and is the exit status. Nothing else is printed when all is well.

    CHECK(x == 3, "x after two steps: got %d, wanted 3", x);
    check_near(loss, 5.55, 1e-3, "loss at step %d", step);
    // errors end the program: run them in a child
    Died d = check_dies([] { file_read("/nowhere"); });
    CHECK(d.code == EXIT_USER && d.says("cannot open"), "%s", d.err.c_str());
    // a shell command: exit status, stdout, stderr
    Ran r = check_run("build/cpu/train_sink --help");
    // a part that can be run alone: build/test/test_data order packing runs two
    CASE("packing") { test_packing(); }
*/
#ifndef CHECK_H
#define CHECK_H
#include "../base/common.h"
#include <sys/wait.h>
#include <functional>
#ifdef _OPENMP
#include <omp.h>
#endif

static long check_passed, check_failed;

__attribute__((format(printf, 4, 5)))
static inline bool check_that(bool ok, const char* file, int line, const char* fmt, ...) {
    if (ok) { check_passed++; return true; }
    check_failed++;
    if (check_failed > 50) { return false; }             // the first ones tell the story
    va_list ap; va_start(ap, fmt);
    printf("FAIL %s:%d: ", file, line); vprintf(fmt, ap); printf("\n");
    va_end(ap);
    fflush(stdout);                                      // what comes next may crash
    if (getenv("CHECK_FIRST")) { exit(1); }              // the first one is enough: dev/mutants.sh
    return false;
}
#define CHECK(cond, ...) check_that((cond), __FILE__, __LINE__, __VA_ARGS__)
// |got - want| <= tol; a NaN fails
#define check_near(got, want, tol, ...) do { \
    double got_ = (got), want_ = (want), tol_ = (tol); \
    check_that(fabs(got_ - want_) <= tol_, __FILE__, __LINE__, \
               "%s: got %.9g, wanted %.9g +- %.3g", \
               strf(__VA_ARGS__).c_str(), got_, want_, tol_); \
} while (0)

// The cases that the command line names, all if it names none; paths are not names.
static int check_argc;
static char** check_argv;
__attribute__((constructor)) static void check_words(int argc, char** argv) { // before any vector
    check_argc = argc;
    check_argv = argv;
}
static inline std::vector<std::string> check_asked() {
    std::vector<std::string> names;
    for (int i = 1; i < check_argc; i++) {
        if (!strchr(check_argv[i], '/')) { names.push_back(check_argv[i]); }
    }
    return names;
}
static std::vector<std::string> check_cases;
static inline bool check_case(const std::string& name) {
    const std::vector<std::string> asked = check_asked();
    const bool known = std::count(check_cases.begin(), check_cases.end(), name);
    if (!known) { check_cases.push_back(name); }
    return asked.empty() || std::count(asked.begin(), asked.end(), name);
}
#define CASE(name) if (check_case(name))

static inline int check_done() {
    for (auto& name : check_asked()) {
        const bool known = std::count(check_cases.begin(), check_cases.end(), name);
        std::string all;
        for (auto& one : check_cases) { list_add(&all, one); }
        CHECK(known, "got the case %s, wanted one of: %s", name.c_str(), all.c_str());
    }
    printf("%ld passed, %ld failed\n", check_passed, check_failed);
    return check_failed || !check_passed;
}

// rm -r; a symlink is removed, never entered
static inline void remove_tree(const std::string& path) {
    struct stat st;
    if (lstat(path.c_str(), &st)) { return; }
    if (!S_ISDIR(st.st_mode)) { unlink(path.c_str()); return; }
    for (auto& name : dir_list(path)) { remove_tree(path + "/" + name); }
    rmdir(path.c_str());
}

struct Died {
    int code;                                            // exit status, or 1000 + the signal
    std::string err;                                     // all of stderr
    const std::string& said() const { return err; }
    bool says(const std::string& part) const { return contains(err, part); }
};
// LeakSanitizer asks this at exit: in a fork it would wait for the threads of the parent
static int check_forked = 0;
extern "C" __attribute__((weak, used)) int __lsan_is_turned_off() { return check_forked; }
static inline Died check_dies(const std::function<void()>& body) {
    char path[] = "/tmp/check_dies_XXXXXX";
    int fd = mkstemp(path);
    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0) {
        dup2(fd, 2);
        if (!freopen("/dev/null", "w", stdout)) { _exit(99); }
#ifdef _OPENMP
        omp_set_num_threads(1);  // the parent's team did not survive the fork
#endif
        check_forked = 1;
        body();
        _exit(0);                                        // it did not die
    }
    int status = 0;
    waitpid(pid, &status, 0);
    close(fd);
    Died d = { WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status), file_read(path) };
    unlink(path);
    return d;
}
// a fresh directory, in memory where there is room: the tests of checkpoints sync
// to it thousands of times
static inline std::string check_tmp() {
    std::string path = std::string(access("/dev/shm", W_OK) ? "/tmp" : "/dev/shm") +
                       "/train_sink_test_XXXXXX";
    if (!mkdtemp(&path[0])) { die(EXIT_MACHINE, path + ": cannot make a directory for the tests"); }
    return path;
}

// a path as one word of a shell line, whatever blanks and quotes are in it
static inline std::string check_quoted(const std::string& path) {
    std::string word = "'";
    for (char ch : path) { word += ch == '\'' ? std::string("'\\''") : std::string(1, ch); }
    return word + "'";
}

struct Ran {
    int code;  // exit status; 128 + the signal, as the shell has it
    std::string out, err;
    std::string said() const { return out + err; }
    bool says(const std::string& part) const { return contains(out, part) || contains(err, part); }
};
// the flags of a line, each once: of one that a test gives twice the last counts
static inline std::string flags_once(const std::string& line) {
    std::vector<std::string> parts(1);
    for (auto& word : split(line, ' ')) {
        const bool flag = word.size() > 1 && word[0] == '-' && (word[1] == '-' || isalpha(word[1]));
        if (flag) { parts.push_back(""); }
        parts.back() += word + " ";
    }
    std::string once;
    for (auto part = parts.begin(); part != parts.end(); part++) {
        const std::string name = part->substr(0, part->find(' ')) + " ";
        const auto again = [&](const std::string& other) { return starts_with(other, name); };
        const bool last = std::none_of(part + 1, parts.end(), again);
        if (part == parts.begin() || last) { once += *part; }
    }
    return once;
}
static inline Ran check_run(const std::string& command) {
    char path[2][32] = { "/tmp/check_run_XXXXXX", "/tmp/check_run_XXXXXX" };
    for (auto& p : path) { close(mkstemp(p)); }
    fflush(stdout);
    const int status = system(
        ("exec 2>" + std::string(path[1]) + " >" + path[0] + "\n" + command).c_str());
    Ran r = { WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status), file_read(path[0]),
              file_read(path[1]) };
    for (auto& p : path) { unlink(p); }
    return r;
}
// the directory that a test is called in, and the program there, as a word of a shell line
static inline std::string check_home() {
    char home[4096];
    return getcwd(home, sizeof home);
}
static inline std::string check_program() {
    return check_quoted(check_home() + "/build/cpu/train_sink");
}

// What check_run ran or check_dies did ended with this status and says all these words.
template <class R, class... Words>
bool check_ended(const R& r, int code, const std::string& what, const Words&... words) {
    const std::vector<std::string> wanted = { words... };
    bool right = r.code == code;
    for (auto& word : wanted) { right = right && r.says(word); }
    std::string list;
    for (auto& word : wanted) { list += " '" + word + "'"; }
    return CHECK(right, "%s: exit %d, wanted %d%s, got %s", what.c_str(), r.code, code, list.c_str(),
                 r.said().c_str());
}

// a text with `to` in the place of the first `from`, which must be there
static inline std::string replaced(std::string text, const std::string& from,
                                   const std::string& to) {
    const size_t at = text.find(from);
    const bool found = CHECK(at != text.npos, "no '%s' to replace", from.c_str());
    return found ? text.replace(at, from.size(), to) : text;
}

// the JSON of a file, which must be some
static inline Json json_of_file(const std::string& path) {
    const std::string text = file_read(path);
    Json j;
    std::string error;
    CHECK(json_parse(text.data(), text.size(), &j, &error), "%s: %s", path.c_str(), error.c_str());
    return j;
}
// all of them, in order
static inline std::vector<double> numbers(const Json& j, std::vector<double> out = {}) {
    if (j.type == Json::NUMBER) { out.push_back(j.number); }
    for (auto& item : j.items) { out = numbers(item, out); }
    return out;
}
#endif // CHECK_H
