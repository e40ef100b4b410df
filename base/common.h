/*
common.h -- what every other file relies on: one form of error, one way to read and write files,
random numbers, a hash; JSON and UTF-8 from base/json.h. Nothing here knows what a model is.
*/
#ifndef COMMON_H
#define COMMON_H
#include <ctype.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <errno.h>
#include <float.h>
#include <fcntl.h>
#include <math.h>
#include <time.h>
#include <unistd.h>
#include <sys/stat.h>
#include <algorithm>
#include <functional>
#include <string>
#include <utility>
#include <vector>
#include "json.h" // UTF-8 and JSON

#ifdef __CUDACC__
#define HD __host__ __device__ inline
#else
#define HD inline
#endif
// the value of a macro as text
#define STR_(...) #__VA_ARGS__
#define STR(...) STR_(__VA_ARGS__)

// ----------------------------------------------------------------------------
// the 32 bits of a float

HD float float_of_bits(uint32_t u) {
    float x;
    memcpy(&x, &u, sizeof x);
    return x;
}

HD uint32_t bits_of_float(float x) {
    uint32_t u;
    memcpy(&u, &x, sizeof u);
    return u;
}

// Reads a T at any address.
template <class T> inline T load(const unsigned char* p) {
    T x;
    memcpy(&x, p, sizeof x);
    return x;
}

// ----------------------------------------------------------------------------
// whole numbers: a / b, and a as a multiple of b, both from above

inline long div_up(long a, long b) { return (a + b - 1) / b; }
inline long round_up(long a, long b) { return div_up(a, b) * b; }

// ----------------------------------------------------------------------------
// errors: `error: what: got X, wanted Y`, then `---> HINT: what to type next`.
// Exit codes: 2 the user's mistake, 3 a loss that is not finite, 1 the machine's fault (disk,
// memory, device).

enum { EXIT_MACHINE = 1, EXIT_USER = 2, EXIT_DIVERGED = 3 };

// Formats as printf does.
__attribute__((format(printf, 1, 2))) inline std::string strf(const char* fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    char* text;
    const int n = vasprintf(&text, fmt, ap);
    va_end(ap);
    if (n < 0) { return ""; }
    const std::string s(text, n);
    free(text);
    return s;
}

// Adds an item to a list that is text: "a, b, c".
inline void list_add(std::string* list, const std::string& item, const char* between = ", ") {
    if (!list->empty()) { *list += between; }
    *list += item;
}

// Asked by loops that run the model outside of a step, if it is set. Once it says true they end,
// and nobody uses what they have computed.
inline bool (*work_stops)() = NULL;
inline bool work_stopped() { return work_stops && work_stops(); }

// The line of progress: whether it is not ended yet, and where it is shown. A command whose output
// may go into a file shows it on standard error.
struct Progress {
    bool open = false;
    FILE* to = stdout;
    std::function<void(int done, int n)> batch;  // is told of each batch before it is measured
    std::string line;                            // what is shown for a batch
    double shown = 0;                            // when it last said a layer, in ms
};
inline Progress progress;

// Ends the line: whatever is printed next begins a line of its own.
inline void progress_end(const char* by = "\n") {
    if (progress.open) { fputs(by, progress.to); }
    fflush(progress.to);
    progress.open = false;
}

// Takes the line away again.
inline void progress_clear() { progress_end("\r\033[K"); }

// Makes text that comes from a file, or is a path, safe for a terminal: control characters, those
// that turn the direction of writing, and what is not UTF-8 become ?, but for those in `kept`.
std::string printable(const std::string& s, const char* kept = "");

// What hints say that the place which fails does not know.
struct Hints {
    // added to the hint of whatever goes wrong, while it is set
    std::string also;
    // of a user's mistake without a hint of its own: the flags of the command that runs
    std::string page = "./train_sink --help";
    // what lowers the memory of that command
    std::string memory = "take a smaller model";
    // what to do once the disk has been seen to
    std::string again = "run the same command again";
};
inline Hints hints;

// Ends all of many processes (dist/agree.h) with one error: what went wrong, and the full
// message.
typedef void (*DieHook)(int code, const std::string& what, const std::string& message);
inline DieHook die_hook = NULL;

// Ends the program; a user's mistake always gets a hint.
[[noreturn]] inline void die(int code, const std::string& what, const std::string& hint = "") {
    progress_end();
    fflush(stdout);
    std::string tip = hint;
    if (hint.empty() && code == EXIT_USER) { tip = hints.page; }
    if (!hints.also.empty()) { list_add(&tip, hints.also, "; "); }
    std::string message = "error: " + printable(what) + "\n";
    if (!tip.empty()) { message += "---> HINT: " + printable(tip) + "\n"; }
    if (die_hook) { die_hook(code, printable(what), message); }
    fputs(message.c_str(), stderr);
    exit(code);
}

// Runs work in which an error does not end the program. Returns what went wrong, or "".
inline std::string failure_of(const std::function<void()>& work) {
    struct Failure { std::string what; };
    const DieHook before = die_hook;
    std::string failed;
    die_hook = [](int, const std::string& what, const std::string&) { throw Failure{ what }; };
    try { work(); } catch (const Failure& f) { failed = f.what; }
    die_hook = before;
    return failed;
}

// Ends the program at a user's mistake.
[[noreturn]] inline void die(const std::string& what, const std::string& hint = "") {
    die(EXIT_USER, what, hint);
}

// Dies of a user's mistake unless ok: got X, wanted Y.
inline void require(bool ok, const std::string& got, const std::string& wanted) {
    if (!ok) { die(got + ": wanted " + wanted); }
}

// Prints a note on standard error.
inline void note(const std::string& text) {
    fprintf(stderr, "note   %s\n", printable(text).c_str());
}

// Decides whose fault a failed call is: the machine's (a full disk, no memory, no file descriptors)
// or the user's.
inline int blame(int error) {
    for (int e : { ENOSPC, EDQUOT, EFBIG, EIO, ENOMEM, EMFILE, ENFILE }) {
        if (error == e) { return EXIT_MACHINE; }
    }
    return EXIT_USER;
}

[[noreturn]] inline void out_of_memory(size_t n) {
    die(EXIT_MACHINE, strf("out of memory: could not get %.1f MiB", n / 1048576.0), hints.memory);
}

// Writes what the system would not do: "PATH: cannot open (No such file or directory)".
inline std::string cannot(const std::string& what, const std::string& path, int error = errno) {
    return path + ": cannot " + what + " (" + strerror(error) + ")";
}

// ----------------------------------------------------------------------------
// strings

inline bool starts_with(const std::string& s, const std::string& head) {
    return s.compare(0, head.size(), head) == 0;
}

inline bool ends_with(const std::string& s, const std::string& tail) {
    if (s.size() < tail.size()) { return false; }
    return s.compare(s.size() - tail.size(), tail.size(), tail) == 0;
}

inline bool contains(const std::string& s, const std::string& text) {
    return s.find(text) != s.npos;
}

// Tells whether a word is one of these, which have blanks around them.
inline bool is_one_of(const char* words, const std::string& word) {
    return strstr(words, (" " + word + " ").c_str());
}

template <class List, class Item> bool has(const List& list, const Item& item) {
    return std::find(std::begin(list), std::end(list), item) != std::end(list);
}

// Splits "a,,b" into a, "", b, and "" into nothing.
inline std::vector<std::string> split(const std::string& s, char by) {
    std::vector<std::string> out;
    if (s.empty()) { return out; }
    size_t begin = 0;
    for (size_t end = s.find(by); end != s.npos; end = s.find(by, begin)) {
        out.push_back(s.substr(begin, end - begin));
        begin = end + 1;
    }
    out.push_back(s.substr(begin));
    return out;
}

// Parses a whole number; false unless it is the whole text.
inline bool parse_long(const std::string& s, long* out) {
    char* end;
    errno = 0;
    const long v = strtol(s.c_str(), &end, 10);
    if (s.empty() || *end || errno || isspace((unsigned char)s[0])) { return false; }
    *out = v;
    return true;
}

// Parses a number; false unless it is the whole text and finite. What is too small for a double is
// the smallest one, so that it is not taken for 0.
inline bool parse_double(const std::string& s, double* out) {
    char* end;
    errno = 0;
    double v = strtod(s.c_str(), &end);
    const bool too_small = errno == ERANGE;
    if (s.empty() || *end || isspace((unsigned char)s[0]) || !std::isfinite(v)) { return false; }
    if (too_small) { v = s[0] == '-' ? -DBL_MIN : DBL_MIN; }
    *out = v;
    return true;
}

// Tells whether a number is 0 as a float, and yet not 0.
inline bool float_loses(double v) { return v != 0 && fabs(v) < FLT_MIN; }

// Returns the shortest decimal that reads back to the same float: 1e-05, 0.3, 10000.
inline std::string float_text(float v) {
    if (v == floorf(v) && fabsf(v) < 1e9f) { return strf("%.0f", v); }
    for (int digits = 1; digits < 9; digits++) {
        const std::string text = strf("%.*g", digits, v);
        if (strtof(text.c_str(), NULL) == v) { return text; }
    }
    return strf("%.9g", v);
}

// Returns a number as text, a whole one with all of its digits, others with six: 16777216,
// 0.3, 1e+20.
inline std::string number_text(double v) {
    const bool whole = v == floor(v) && fabs(v) < 1e15;
    return strf(whole ? "%.0f" : "%g", v);
}

// ----------------------------------------------------------------------------
// files

// Returns what a path leads to, as S_ISDIR and the like take it; 0 if there is nothing.
inline mode_t mode_of(const std::string& path) {
    struct stat st;
    return stat(path.c_str(), &st) ? 0 : st.st_mode;
}

// Returns what a path is itself, which may be a symlink; 0 if there is nothing.
inline mode_t own_mode_of(const std::string& path) {
    struct stat st;
    return lstat(path.c_str(), &st) ? 0 : st.st_mode;
}

inline bool file_exists(const std::string& path) { return mode_of(path) != 0; }

// Tells whether a path exists, also as a symlink that leads nowhere.
inline bool is_there(const std::string& path) { return own_mode_of(path) != 0; }

inline bool is_dir(const std::string& path) { return S_ISDIR(mode_of(path)); }
inline bool is_regular(const std::string& path) { return S_ISREG(mode_of(path)); }

inline bool same_file(const struct stat& a, const struct stat& b) {
    return a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

// Returns the size of a file, -1 if there is none.
inline long file_size(const std::string& path) {
    struct stat st;
    return stat(path.c_str(), &st) == 0 ? (long)st.st_size : -1;
}

// Lists the names in a directory, sorted, without . and ..
std::vector<std::string> dir_list(const std::string& path);

// Makes a directory and all those that it is in. elsewhere: the hint if that is not allowed.
void make_dirs(const std::string& path, const std::string& elsewhere = "choose another place");

// Opens a file; dies if that fails, or if it is a directory.
inline FILE* xfopen(const std::string& path, const char* mode, const std::string& hint = "") {
    FILE* f = fopen(path.c_str(), mode);
    if (f && is_dir(path)) {
        fclose(f);
        f = NULL;
        errno = EISDIR;
    }
    if (f) { return f; }
    die(blame(errno), cannot("open", path), hint);
}

// Opens a file to read it. A pipe with a name, a socket or a device is an error: to wait for
// somebody who writes there may take for ever. What the shell makes of <(..) has no name.
int file_open(const std::string& path, const std::string& hint = "");

// Reads a whole file.
std::string file_read(const std::string& path, const std::string& hint = "");

// Returns where a file of this name ends up: the target of a symlink, existing or not.
std::string link_target(std::string path);

// Tells whether a path is there, but neither a file nor a directory: a device, a FIFO.
inline bool is_special(const std::string& path) {
    return file_exists(path) && !is_regular(path) && !is_dir(path);
}

// Returns the machine's name, without what a file's name could not hold.
inline std::string host_name() {
    char name[256] = "";
    gethostname(name, sizeof name - 1);
    for (char* ch = name; *ch; ch++) {
        if (!isalnum((unsigned char)*ch) && !strchr("-._", *ch)) { *ch = '_'; }
    }
    return name;
}

// Returns a path with a tail at its name. A name too long for the disk is cut before the tail.
inline std::string name_with_tail(const std::string& path, const std::string& tail) {
    const size_t name = path.rfind('/') + 1;
    const size_t most = 255;
    return path.substr(0, name + most - tail.size()) + tail;
}

// Names a file until it is whole: NAME.HOST-PROCESS-NUMBER.tmp, beside its place, so that no other
// process has the same.
inline std::string temporary_name(const std::string& path, int number) {
    const std::string host = host_name().substr(0, 40);
    return name_with_tail(path, strf(".%s-%d-%d.tmp", host.c_str(), (int)getpid(), number));
}

// Tells whether `name` is what temporary_name calls a file that is `whole` when it is done. Older
// programs left the middle out: NAME.tmp.
inline bool is_temporary(const std::string& name, const std::string& whole) {
    const std::string tail = ".tmp";
    if (!ends_with(name, tail)) { return false; }
    const std::string without_tail = name.substr(0, name.size() - tail.size());
    if (!starts_with(without_tail, whole)) { return false; }
    const std::string middle = without_tail.substr(whole.size());
    if (middle.empty()) { return true; }
    const auto parts = split(middle, '-');
    if (parts.size() < 3 || middle[0] != '.') { return false; }
    long process;
    long number;
    return parse_long(parts[parts.size() - 2], &process) && parse_long(parts.back(), &number);
}

inline std::string file_name(const std::string& path) { return path.substr(path.rfind('/') + 1); }

inline std::string directory_of(const std::string& path) {
    const size_t slash = path.rfind('/');
    if (slash == path.npos) { return "."; }
    return path.substr(0, slash + 1);
}

// A file that is written whole or not at all: the caller writes to f, then file_commit flushes,
// syncs and renames it into place. Any failure (a full disk) removes the temporary and dies; what
// was at `path` before is untouched. A symlink stays one: its target is written. What is no
// regular file is written directly, and tmp is empty. The temporary is a file that was not there
// before, so nothing else is overwritten.
struct FileOut {
    std::string path;
    std::string tmp;
    FILE* f;
};

// Begins to write a file.
inline FileOut file_begin(const std::string& given) {
    const char* hint = "choose another place to write to";
    const std::string path = link_target(given);
    if (is_special(path)) { return { path, "", xfopen(path, "wb", hint) }; }
    if (is_dir(path)) { die(given + ": got a directory, wanted a file to write", hint); }
    const bool locked = file_exists(path) && access(path.c_str(), W_OK);
    FileOut o = { path, "", NULL };
    for (int number = 0; !locked && number < 1000; number++) {
        o.tmp = temporary_name(path, number);
        o.f = fopen(o.tmp.c_str(), "wbxe");      // x: none that is there; e: not for children
        if (o.f || errno != EEXIST) { break; }
    }
    if (!o.f) { die(blame(errno), cannot("write", given), hint); }
    return o;
}

inline std::string write_hint() {
    return "see that the disk has room and can be written, then " + hints.again;
}

// Makes renames inside a directory durable; dies if the disk fails.
inline void dir_sync(const std::string& path) {
    const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (fd < 0) { return; }
    const bool failed = fsync(fd) && blame(errno) == EXIT_MACHINE;       // (some have no such call)
    const int error = errno;
    close(fd);
    if (failed) {
        die(EXIT_MACHINE, cannot("write", path, error), write_hint());
    }
}

// Removes the temporary file and dies of the error that was last.
[[noreturn]] inline void file_abort(FileOut* o) {
    const int error = errno ? errno : EIO;
    if (o->f) { fclose(o->f); }
    if (!o->tmp.empty()) { unlink(o->tmp.c_str()); }
    die(EXIT_MACHINE, cannot("write", o->path, error) + "; what was there before is untouched",
        write_hint());
}

inline void file_put(FileOut* o, const void* p, size_t n) {
    if (n && fwrite(p, 1, n, o->f) != n) { file_abort(o); }
}

// Ends a file: now it is whole, and in its place.
inline void file_commit(FileOut* o) {
    const bool direct = o->tmp.empty();
    if (fflush(o->f) || (!direct && fsync(fileno(o->f)))) { file_abort(o); }
    FILE* f = o->f;
    o->f = NULL;
    if (fclose(f)) { file_abort(o); }
    if (direct) { return; }
    if (rename(o->tmp.c_str(), o->path.c_str())) { file_abort(o); }
    dir_sync(directory_of(o->path));
}

// Dies if file_write(path) could not work: asked before the work whose result is to be written
// there.
inline void file_check(const std::string& path) {
    if (is_special(path)) {
        if (access(path.c_str(), W_OK)) { die(cannot("write", path)); }
        return;
    }
    FileOut o = file_begin(path);
    fclose(o.f);
    unlink(o.tmp.c_str());
}

// Writes a whole file, or none.
inline void file_write(const std::string& path, const std::string& content) {
    FileOut o = file_begin(path);
    file_put(&o, content.data(), content.size());
    file_commit(&o);
}

// Removes from a directory the files whose names are one of ours, or a temporary's of ours, and the
// directory if nothing else is in it. What somebody else put there stays. Returns whether it is
// gone.
template <class Ours> bool remove_ours(const std::string& dir, Ours is_ours) {
    if (!is_there(dir)) { return true; }
    if (!S_ISDIR(own_mode_of(dir))) { return false; }
    for (auto& name : dir_list(dir)) {
        if (is_ours(name)) { unlink((dir + "/" + name).c_str()); }
    }
    return !rmdir(dir.c_str());
}

// ----------------------------------------------------------------------------
// random numbers: splitmix64 (Steele, Lea, Flood 2014). The whole state is one word, so a
// checkpoint can hold it.

struct Rng { uint64_t state; };
const uint64_t RNG_STEP = 0x9E3779B97F4A7C15ull;
inline uint64_t rng_next(Rng* r) {
    uint64_t z = (r->state += RNG_STEP);
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9ull;
    z = (z ^ z >> 27) * 0x94D049BB133111EBull;
    return z ^ z >> 31;
}

inline void rng_skip(Rng* r, uint64_t n) { r->state += n * RNG_STEP; }

// Returns an independent stream for each (seed, purpose).
inline Rng rng_stream(uint64_t seed, uint64_t purpose) {
    Rng a{seed};
    Rng b{purpose ^ 0xD1B54A32D192ED03ull};
    const uint64_t low = rng_next(&a);
    const uint64_t high = rng_next(&b) << 1;
    return Rng{ low ^ high };
}

// what a random stream is for: streams of different purposes never meet. Those of the data are
// mixed with a key, those of the commands go by --seed alone
enum { STREAM_TABLE = 1, STREAM_TRAIN, STREAM_VAL, STREAM_PROBE, STREAM_ORDER, STREAM_EDIT,
       STREAM_SHARE };
enum { SEED_SAMPLE = 3, SEED_PROBE, SEED_GENERATE, SEED_BENCH, SEED_CHECK };
inline uint64_t mix64(uint64_t a, uint64_t b) {
    Rng r{a ^ b * 0x9E3779B97F4A7C15ull};
    rng_next(&r);
    return rng_next(&r);
}

// Draws a number in [0, 1).
inline double rng_uniform(Rng* r) { return (rng_next(r) >> 11) * 0x1p-53; }

// Draws a whole number in 0 .. n-1.
inline uint64_t rng_below(Rng* r, uint64_t n) {
    return (unsigned __int128)rng_next(r) * n >> 64;
}

enum { NORMAL_DRAWS = 2 };             // numbers that rng_normal takes

// Draws a normal number: one of the pair of Box and Muller.
inline double rng_normal(Rng* r) {
    const double u = 1.0 - rng_uniform(r);
    const double v = rng_uniform(r);
    return sqrt(-2.0 * log(u)) * cos(6.283185307179586 * v);
}

// ----------------------------------------------------------------------------
const uint64_t HASH_START = 0xCBF29CE484222325ull;

// Hashes bytes by a variant of FNV-1a, by 64-bit words, to tell whether two runs ended in the same
// bits (not cryptographic).
inline uint64_t hash_bytes(const void* data, size_t n, uint64_t h = HASH_START) {
    const unsigned char* p = (const unsigned char*)data;
    for (; n >= 8; n -= 8, p += 8) {
        h = (h ^ load<uint64_t>(p)) * 0x100000001B3ull;
        h ^= h >> 29;
    }
    for (; n; n--, p++) {
        h = (h ^ *p) * 0x100000001B3ull;
    }
    return h;
}

inline uint64_t hash_string(const std::string& s, uint64_t h = HASH_START) {
    return hash_bytes(s.data(), s.size(), h);
}

// Writes a hash in 16 digits.
inline std::string hash_text(uint64_t hash) {
    return strf("%016llx", (unsigned long long)hash);
}

inline double now_ms() {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e3 + t.tv_nsec / 1e6;
}

#endif // COMMON_H
