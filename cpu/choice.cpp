/*
cpu/choice.cpp -- what choice.h declares: the rule, the clock, what a file keeps, what is taken.
*/
#include "choice.h"
#include "../files/json.h"

namespace cpu {
// ----------------------------------------------------------------------------
// 1 the rule

// Another row has to be faster by this factor: timed again on a busy machine, the best of some
// calls varies by a few hundredths
static const double CLEARLY = 1.15;

int choice_of(const std::vector<double>& gflops) {
    int best = (int)gflops.size() - 1;
    while (best > 0 && !gflops[best]) { best--; }
    for (int k = best - 1; k >= 0; k--) {
        if (gflops[k] > CLEARLY * gflops[best]) { best = k; }
    }
    return best;
}

// ----------------------------------------------------------------------------
// 2 the clock

// Tells whether row k runs here and multiplies such factors.
static bool has_factors(int k, bool bf16) {
    const bool multiplies = bf16 || !kernels[k].bf16;
    return multiplies && kernel_here(k);
}

// Returns n numbers 0.5, in floats or, as pairs, in bf16. Memory for floats: more than bf16 needs
static std::vector<float> halves(long n, bool bf16) {
    const uint32_t pair = 0x3f003f00;
    const float half = bf16 ? float_of_bits(pair) : 0.5f;
    return std::vector<float>(n, half);
}

std::vector<double> kernels_timed(bool bf16, int threads, long M, long N, long K) {
    const Lanes lanes = bf16 ? PAIRS : FLOATS;
    const std::vector<float> a = halves(M * K, bf16);
    const std::vector<float> b = halves(K * N, bf16);
    std::vector<float> c(M * N);
    const Factor left = { a.data(), K, 1, M, K, lanes };
    const Factor right = { b.data(), 1, N, N, K, lanes };
    const Result to = { c.data(), N, bf16, false, NULL, NULL };

    std::vector<int> rows;
    for (int k = 0; k < KERNELS; k++) {
        if (has_factors(k, bf16)) { rows.push_back(k); }
    }
    if (rows.size() > 1) { rows.erase(rows.begin()); }           // `any`: only where no other is

    // times all of them in turn, so that what disturbs one for a while disturbs the others; the
    // first round warms up
    std::vector<double> ms(KERNELS, INFINITY);
    for (int round = 0; round < 8; round++) {
        for (int k : rows) {
            const double start = now_ms();
            product_with(k, threads, left, right, to);
            if (round) { ms[k] = std::min(ms[k], now_ms() - start); }
        }
    }
    std::vector<double> gflops(KERNELS);
    const double operations = 2.0 * M * N * K;
    for (int k : rows) {
        gflops[k] = operations / std::max(ms[k], 1e-6) / 1e6;
    }
    return gflops;
}

// ----------------------------------------------------------------------------
// 3 what is kept

// bump it when a kernel changes: what was timed before says nothing about it
static const int KERNELS_VERSION = 1;

// Finds the line "key : value" of the first processor: the key and what follows the colon, or "".
static std::string cpuinfo_line(const std::string& cpuinfo, const std::string& key) {
    for (const std::string& line : split(cpuinfo, '\n')) {
        const size_t colon = line.find(':');
        if (colon == std::string::npos) { continue; }
        const size_t end = line.find_last_not_of("\t ", colon - 1);
        const std::string found = line.substr(0, end + 1);
        if (found == key) { return key + line.substr(colon + 1); }
    }
    return "";
}

std::string processor_of(const std::string& cpuinfo) {
    std::string all;
    for (const char* key : { "vendor_id", "cpu family", "model", "model name", "stepping",
                             "microcode" }) {
        const std::string line = cpuinfo_line(cpuinfo, key);
        if (!all.empty() && !line.empty()) { all += ", "; }
        all += line;
    }
    return all;
}

// Says what an answer holds for: the processor, the kernels that it has here, and the factors.
static std::string choice_key(bool bf16) {
    const char* path = "/proc/cpuinfo";
    std::string key = processor_of(file_exists(path) ? file_read(path) : "");
    key += strf("; %s by version %d of", bf16 ? "bf16" : "fp32", KERNELS_VERSION);
    for (int k = 0; k < KERNELS; k++) {
        if (has_factors(k, bf16)) { key += std::string(" ") + kernels[k].name; }
    }
    return key;
}

// Returns the file of an answer, or "" if there is no place for one.
static std::string choice_path(const std::string& key) {
    const char* cache = getenv("XDG_CACHE_HOME");
    const char* home = getenv("HOME");
    std::string dir;
    if (home && home[0] == '/') { dir = std::string(home) + "/.cache"; }
    if (cache && cache[0] == '/') { dir = cache; }               // a relative one must be ignored
    if (dir.empty()) { return ""; }
    uint64_t hash = 0;
    for (unsigned char ch : key) { hash = mix64(hash, ch); }
    return dir + strf("/train_sink/product-%016llx.json", (unsigned long long)hash);
}

// Tells whether a file may be an answer: small, and readable.
static bool may_be_answer(const std::string& path) {
    struct stat st;
    if (stat(path.c_str(), &st) || !S_ISREG(st.st_mode)) { return false; }
    return st.st_size < 1 << 16 && access(path.c_str(), R_OK) == 0;
}

// Returns the kernel that a kept answer names, or -1 if there is none that holds here.
static int choice_read(const std::string& path, const std::string& key, bool bf16, double* gflops) {
    if (!may_be_answer(path)) { return -1; }
    Json j;
    std::string error;
    const std::string text = file_read(path);
    if (!json_parse(text.data(), text.size(), &j, &error)) { return -1; }
    const Json* of = j.get("of");
    const Json* name = j.get("kernel");
    const Json* speed = j.get("gflops");
    if (!of || !name || !speed || of->string != key) { return -1; }
    *gflops = speed->number;
    for (int k = 0; k < KERNELS; k++) {
        if (has_factors(k, bf16) && name->string == kernels[k].name) { return k; }
    }
    return -1;
}

// Writes an answer unless there is one: if two processes time at once, the first to finish writes
// it and the other reads that. So the file gets its name by link(), which fails if the name is
// taken, and not by file_write() of common.h, which replaces a file and dies if it cannot. A
// directory that cannot be written keeps nothing.
static void choice_write(const std::string& path, const std::string& key, int k, double gflops) {
    const size_t name = path.rfind('/');
    const size_t cache = path.rfind('/', name - 1);
    mkdir(path.substr(0, cache).c_str(), 0700);
    mkdir(path.substr(0, name).c_str(), 0700);
    const std::string mine = path + strf(".%d", (int)getpid());
    const int flags = O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC;
    const int fd = open(mine.c_str(), flags, 0666);
    if (fd < 0) { return; }
    JsonObject answer(JSON_SPACED);
    answer.text("of", key);
    answer.text("kernel", kernels[k].name);
    answer.decimals("gflops", gflops, 1);
    const std::string text = answer.all() + "\n";
    const bool whole = write(fd, text.data(), text.size()) == (ssize_t)text.size();
    if (close(fd) == 0 && whole && link(mine.c_str(), path.c_str())) { /* another was first */ }
    unlink(mine.c_str());
}

// ----------------------------------------------------------------------------
// 4 what is taken

static Choice& settled() { static Choice one; return one; }

const Choice& choice() { return settled(); }

// Times all kernels at one size: a few hundred rows of a small layer, which fit the second cache.
static std::vector<double> speeds(bool bf16) { return kernels_timed(bf16, 1, 336, 128, 256); }

static void take(bool bf16, int k, double gflops, const char* why) {
    product_choose(bf16, k);
    settled() = { kernel_for(bf16).name, gflops, why, false };
}

void choice_settle(bool bf16, const std::string& name) {
    if (!name.empty()) {
        product_limit(name);
        take(bf16, KERNELS - 1, 0, "as --product says");
        settled().forced = true;
        return;
    }
    int many = 0;
    for (int k = 0; k < KERNELS; k++) { many += has_factors(k, bf16); }
    if (many < 2) { return take(bf16, KERNELS - 1, 0, "the only one here"); }

    const std::string key = choice_key(bf16);
    const std::string path = choice_path(key);
    double gflops = 0;
    const int before = path.empty() ? -1 : choice_read(path, key, bf16, &gflops);
    if (before >= 0) { return take(bf16, before, gflops, "as it was timed before"); }

    const std::vector<double> all = speeds(bf16);
    const int fastest = choice_of(all);
    if (!path.empty()) {
        choice_write(path, key, fastest, all[fastest]);
        const int kept = choice_read(path, key, bf16, &gflops);
        if (kept >= 0) { return take(bf16, kept, gflops, "timed now, and kept"); }
    }
    take(bf16, fastest, all[fastest], "timed now");
}

bool choice_keep(bool bf16, const std::string& name) {
    for (int k = 0; k < KERNELS; k++) {
        if (name != kernels[k].name || !kernel_here(k)) { continue; }
        const double gflops = name == choice().name ? choice().gflops : 0;
        take(bf16, k, gflops, "as the run had it");
        return true;
    }
    return false;
}
} // namespace cpu
