// dev/ptx/report.cpp -- faults as they come; at the end how much of every kernel ran. The program
// then ends with 4 if there were faults and 5 if a word differed from the emulator's.
#include "report.h"
#include "machine.h"
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include <algorithm>

namespace ptx {
Totals totals;
long faults = 0;
static std::map<std::string, long> fault_count;         // of one kind at one instruction

static std::string name_of(Place p) {
    const auto found = files.find(p.file);
    return (found == files.end() ? "?" : found->second) + ":" + std::to_string(p.line);
}
std::string where(const Context& c, int lane) {
    const Instruction& i = *c.at;
    char thread[100];
    snprintf(thread, sizeof thread, ", block (%u,%u,%u), thread %u; PTX line %d: ", c.id[0],
             c.id[1], c.id[2], c.first_thread + lane, i.ptx_line);
    return "kernel " + c.kernel->name.substr(0, 150) + thread + i.text + "; " + name_of(i.at) +
           ", from " + name_of(i.from);
}
void fault(const Context& c, int lane, const char* kind, const char* format, ...) {
    faults++;
    std::string key = std::string(kind) + ", " + c.kernel->name;
    if (c.at) { key += ", line " + std::to_string(c.at->ptx_line); }
    if (++fault_count[key] > 2 || fault_count.size() > 60) { return; }
    char text[600];
    va_list list;
    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    fprintf(stderr, "PTX FAULT [%s]: %s\n  %s\n", kind, text,
            c.at ? where(c, lane).c_str() : c.kernel->name.c_str());
    if (getenv("CHECK_FIRST")) { _exit(4); }            // one is enough
}
void die(const char* format, ...) {
    va_list list;
    va_start(list, format);
    fprintf(stderr, "PTX ERROR: ");
    vfprintf(stderr, format, list);
    fprintf(stderr, "\n");
    va_end(list);
    fflush(stdout);
    _exit(3);
}
void note(const char* kernel, const Comparison& c) {
    Comparison& all = kernels[kernel].compared;
    all.words += c.words;
    all.different += c.different;
    all.wrong += c.wrong;
    all.worst = std::max(all.worst, c.worst);
}

// ----------------------------------------------------------------------------

static long instructions_that_ran(const Kernel& k) {
    long n = 0;
    for (const Instruction& i : k.code) { n += i.runs > 0; }
    return n;
}
// A line for each kernel; with PTX_UNCOVERED also for each instruction that never ran.
static void write_file(const char* path) {
    FILE* f = fopen(path, "w");
    if (!f) { die("cannot write %s", path); }
    fprintf(f, "kernel\tlaunches\tran\tinstructions\twords\tdifferent\twrong\tworst\n");
    for (auto& [name, k] : kernels) {
        const Comparison& c = k.compared;
        fprintf(f, "%s\t%ld\t%ld\t%zu\t%ld\t%ld\t%ld\t%.3g\n", name.c_str(), k.launches,
                instructions_that_ran(k), k.code.size(), c.words, c.different, c.wrong, c.worst);
        if (!getenv("PTX_UNCOVERED") || !k.launches) { continue; }
        for (const Instruction& i : k.code) {
            if (i.runs) { continue; }
            fprintf(f, "  not run: line %d: %s; %s, from %s\n", i.ptx_line, i.text.c_str(),
                    name_of(i.at).c_str(), name_of(i.from).c_str());
        }
    }
    fclose(f);
}
static void report() {
    long used = 0, ran = 0, all = 0, wrong = 0;
    for (auto& [name, k] : kernels) {
        wrong += k.compared.wrong;
        if (!k.launches) { continue; }
        used++;
        ran += instructions_that_ran(k);
        all += (long)k.code.size();
    }
    printf("PTX: %ld of %zu kernels ran, %ld launches, %ld blocks, %.1f million warp instructions; "
           "%.1f%% of the instructions of those kernels; %ld faults, %ld words wrong\n",
           used, kernels.size(), totals.launches, totals.blocks, totals.warp_instructions / 1e6,
           all ? 100.0 * ran / all : 0.0, faults, wrong);
    for (auto& [key, n] : fault_count) { printf("  fault %ld times: %s\n", n, key.c_str()); }
    if (const char* path = getenv("PTX_REPORT")) { write_file(path); }
    fflush(nullptr);
    if (faults || wrong) { _exit(faults ? 4 : 5); }
}
void report_at_exit() {
    static const int once = atexit(report);
    (void)once;
}
} // namespace ptx
