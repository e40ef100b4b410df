/*
cpu/choice.cpp -- what choice.h declares.
*/
#include "choice.h"
#include "../text/json.h"

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

static bool has_factors(int k, bool bf16) { return kernel_here(k) && (bf16 || !kernels[k].bf16); }

std::vector<double> kernels_timed(bool bf16, int threads, long M, long N, long K) {
    const Lanes lanes = bf16 ? PAIRS : FLOATS;
    std::vector<float> a(M * K), b(K * N), c(M * N);             // more than bf16 needs
    const uint16_t half = 0x3f00;                                // 0.5
    for (auto* x : { &a, &b }) {
        for (auto& v : *x) {
            if (bf16) { memcpy(&v, &half, 2); memcpy((char*)&v + 2, &half, 2); }
            else      { v = 0.5f; }
        }
    }
    const Factor left = { a.data(), K, 1, M, K, lanes }, right = { b.data(), 1, N, N, K, lanes };
    const Result to = { c.data(), N, bf16, false, NULL, NULL };
    std::vector<double> ms(KERNELS, INFINITY), gflops(KERNELS);
    std::vector<int> rows;
    for (int k = 0; k < KERNELS; k++) { if (has_factors(k, bf16)) { rows.push_back(k); } }
    if (rows.size() > 1) { rows.erase(rows.begin()); }           // `any`: only where no other is
    // all of them in turn, so that what disturbs one for a while disturbs the others; the first
    // round warms up
    for (int round = 0; round < 8; round++) {
        for (int k : rows) {
            const double start = now_ms();
            product_with(k, threads, left, right, to);
            if (round) { ms[k] = std::min(ms[k], now_ms() - start); }
        }
    }
    for (int k : rows) { gflops[k] = 2.0 * M * N * K / std::max(ms[k], 1e-6) / 1e6; }
    return gflops;
}

// ----------------------------------------------------------------------------
// 3 what is kept

// bump it when a kernel changes: what was timed before says nothing about it
static const int KERNELS_VERSION = 1;

std::string processor_of(const std::string& cpuinfo) {
    std::string all;
    for (const char* key : { "vendor_id", "cpu family", "model", "model name", "stepping",
                             "microcode" }) {
        for (auto& line : split(cpuinfo, '\n')) {
            const size_t colon = line.find(':'), end = line.find_last_not_of("\t ", colon - 1);
            if (colon == std::string::npos || line.substr(0, end + 1) != key) { continue; }
            all += (all.empty() ? "" : ", ") + std::string(key) + line.substr(colon + 1);
            break;                                               // the first processor's
        }
    }
    return all;
}

// what an answer holds for: the processor, the kernels that it has here, and the factors
static std::string choice_key(bool bf16) {
    const char* path = "/proc/cpuinfo";
    std::string key = processor_of(file_exists(path) ? file_read(path) : "");
    key += strf("; %s by version %d of", bf16 ? "bf16" : "fp32", KERNELS_VERSION);
    for (int k = 0; k < KERNELS; k++) {
        if (has_factors(k, bf16)) { key += std::string(" ") + kernels[k].name; }
    }
    return key;
}

static std::string choice_path(const std::string& key) {
    const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    std::string dir;
    if (home && home[0] == '/') { dir = std::string(home) + "/.cache"; }
    if (cache && cache[0] == '/') { dir = cache; }               // else it is to be ignored
    if (dir.empty()) { return ""; }
    uint64_t hash = 0;
    for (unsigned char ch : key) { hash = mix64(hash, ch); }
    return dir + strf("/train_sink/product-%016llx.json", (unsigned long long)hash);
}

// the kernel that a kept answer names; -1: there is none that holds here
static int choice_read(const std::string& path, const std::string& key, bool bf16, double* gflops) {
    Json j;
    std::string error;
    struct stat st;
    const bool small = !stat(path.c_str(), &st) && S_ISREG(st.st_mode) && st.st_size < 1 << 16;
    if (!small || access(path.c_str(), R_OK)) { return -1; }
    const std::string text = file_read(path);
    if (!json_parse(text.data(), text.size(), &j, &error)) { return -1; }
    const Json *of = j.get("of"), *name = j.get("kernel"), *speed = j.get("gflops");
    if (!of || !name || !speed || of->string != key) { return -1; }
    *gflops = speed->number;
    for (int k = 0; k < KERNELS; k++) {
        if (has_factors(k, bf16) && name->string == kernels[k].name) { return k; }
    }
    return -1;
}

// Writes an answer unless there is one: of two processes that time at once, the first has written
// it and the second reads that. A directory that cannot be written keeps nothing.
static void choice_write(const std::string& path, const std::string& key, int k, double gflops) {
    const size_t name = path.rfind('/'), cache = path.rfind('/', name - 1);
    mkdir(path.substr(0, cache).c_str(), 0700);
    mkdir(path.substr(0, name).c_str(), 0700);
    const std::string mine = path + strf(".%d", (int)getpid());
    const int fd = open(mine.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
    if (fd < 0) { return; }
    const std::string text = "{\"of\": " + json_str(key) + ", \"kernel\": " +
                             json_str(kernels[k].name) + strf(", \"gflops\": %.1f}\n", gflops);
    const bool whole = write(fd, text.data(), text.size()) == (ssize_t)text.size();
    if (close(fd) == 0 && whole && link(mine.c_str(), path.c_str())) { /* another was first */ }
    unlink(mine.c_str());
}

// ----------------------------------------------------------------------------
// 4 what is taken

static Choice& settled() { static Choice one; return one; }

const Choice& choice() { return settled(); }

// one size for all: a few hundred rows of a small layer, which stay in the second cache
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
    const std::string key = choice_key(bf16), path = choice_path(key);
    double gflops = 0;
    int k = path.empty() ? -1 : choice_read(path, key, bf16, &gflops);
    if (k >= 0) { return take(bf16, k, gflops, "as it was timed before"); }
    const std::vector<double> all = speeds(bf16);
    k = choice_of(all);
    gflops = all[k];
    if (!path.empty()) { choice_write(path, key, k, gflops); }
    const int kept = path.empty() ? -1 : choice_read(path, key, bf16, &gflops);
    take(bf16, kept >= 0 ? kept : k, gflops, kept >= 0 ? "timed now, and kept" : "timed now");
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
