/*
cpu/processor.cpp -- asks the processor for each feature of the table, and ends the program if one
is missing. Compiled for any x86-64; processor.h says what it must not call.
*/
#include "processor.h"
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#ifdef __x86_64__
#include <cpuid.h>
#endif

#ifndef __x86_64__
void processor_check() {}                        // one kind of instructions, or the compiler's own
#else

struct Feature {
    const char* name;
    unsigned leaf, part;            // of CPUID
    int reg, bit;
    int saved;                      // 1: the system has to save its registers, 2: those of AVX-512
};
static const Feature FEATURE_ROWS[] = {
#define X(name, MACRO, ...) { name, __VA_ARGS__ },
    FEATURES(X)
#undef X
};
enum { ROWS = sizeof FEATURE_ROWS / sizeof *FEATURE_ROWS };

// Returns how much of the vector registers the system saves: 0, 1 with AVX, 2 with AVX-512.
static int system_saves() {
    const unsigned has_xgetbv = 1u << 27;
    const unsigned avx = 0x6;
    const unsigned avx512 = 0xe6;
    unsigned a = 0, b, c = 0, d = 0;
    if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & has_xgetbv)) { return 0; }
    asm volatile("xgetbv" : "=a"(a), "=d"(d) : "c"(0));
    if ((a & avx512) == avx512) { return 2; }
    return (a & avx) == avx ? 1 : 0;
}

static bool has(const Feature& f, int saves) {
    unsigned reg[4] = { 0, 0, 0, 0 };
    if (!__get_cpuid_count(f.leaf, f.part, reg, reg + 1, reg + 2, reg + 3)) { return false; }
    return f.saved <= saves && (reg[f.reg] >> f.bit & 1);
}

static void tell(const char* text) {
    if (write(2, text, strlen(text)) < 0) { _exit(1); }
}

// TRAIN_SINK_WITHOUT names one feature that counts as missing, for tests.
void processor_check() {
    const char* without = getenv("TRAIN_SINK_WITHOUT");
    const int saves = system_saves();
    bool missing = false;
    for (int i = 0; i < ROWS; i++) {
        const Feature& f = FEATURE_ROWS[i];
        const bool hidden = without && !strcmp(without, f.name);
        if (!built_with[i] || (has(f, saves) && !hidden)) { continue; }
        if (!missing) {
            tell("error: built for a processor with instructions that this one lacks:");
        }
        tell(" ");
        tell(f.name);
        missing = true;
    }
    if (!missing) { return; }
    tell("\n---> HINT: build it here: make train_sink; or once for many machines: make train_sink "
        "ARCH=x86-64-v3\n");
    _exit(1);
}

// Runs before the initial values of all other files, which may need those instructions.
__attribute__((constructor(101))) static void before_all() { processor_check(); }
#endif
