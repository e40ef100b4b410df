/*
cpu/choice.cpp -- which kernel multiplies on which processor: the table, the rule, the clock of
`bench --products`.
*/
#include "choice.h"
#ifdef __x86_64__
#include <cpuid.h>
#endif

namespace cpu {
// Where the last kernel that runs is not the fastest.
struct ProcessorRow {
    const char* vendor;
    const char* last;               // the last kernel that runs there
    bool bf16;                      // for factors in bf16; else in float
    const char* kernel;             // what is taken instead
};

// Rates in GFLOP/s of one thread where nothing else is said; dates are those of dev/log/cpu.md. All
// other processors that were measured want the last kernel, and so have no row:
//     Intel with AMX     bf16 amx 789, fp32 avx512 117                             2026-11-22
//     AMD Zen 4          bf16 avx512-bf16 232, by floats 116                       2026-11-25
//     AMD Zen 5          bf16 avx512-bf16 makes 1.8 times the steps of fp32        2026-11-24
//     AMD Zen 3          avx2 in both: it has nothing newer                        2026-11-24
static const ProcessorRow PROCESSORS[] = {
    // Emerald Rapids, AMX hidden by the host: vdpbf16ps takes 2 cycles, vfmadd231ps 1. A model
    // trains 2,574 tokens/s by avx512-bf16 and 8,848 by avx512                     2026-11-25
    { "GenuineIntel", "avx512-bf16", true, "avx512" },
};

std::string processor_vendor() {
#ifdef __x86_64__
    unsigned a = 0, name[3] = {};
    if (__get_cpuid(0, &a, &name[0], &name[2], &name[1])) {
        return std::string((const char*)name, sizeof name);
    }
#endif
    return "";
}

int choice_of(const std::string& vendor, bool bf16, const std::vector<bool>& has) {
    int last = 0;
    for (int k = 0; k < KERNELS; k++) {
        if (has[k] && (bf16 || !kernels[k].bf16)) { last = k; }
    }
    for (auto& row : PROCESSORS) {
        const bool here = vendor == row.vendor && bf16 == row.bf16 &&
                          !strcmp(kernels[last].name, row.last);
        for (int k = 0; here && k < KERNELS; k++) {
            if (has[k] && !strcmp(kernels[k].name, row.kernel)) { return k; }
        }
    }
    return last;
}

// ----------------------------------------------------------------------------
// the clock

// Returns n numbers 0.5, in floats or, as pairs, in bf16. Memory for floats: more than bf16 needs
static std::vector<float> halves(long n, bool bf16) {
    const uint32_t pair = 0x3f003f00;
    const float half = bf16 ? float_of_bits(pair) : 0.5f;
    return std::vector<float>(n, half);
}

std::vector<double> kernels_timed(bool bf16, long M, long N, long K) {
    const Lanes lanes = bf16 ? PAIRS : FLOATS;
    const std::vector<float> a = halves(M * K, bf16);
    const std::vector<float> b = halves(K * N, bf16);
    std::vector<float> c(M * N);
    const Factor left = { a.data(), K, 1, M, K, lanes };
    const Factor right = { b.data(), 1, N, N, K, lanes };
    const Result to = { c.data(), N, bf16, false, NULL, NULL };

    std::vector<int> rows;
    for (int k = 0; k < KERNELS; k++) {
        const bool multiplies = bf16 || !kernels[k].bf16;        // such factors
        if (multiplies && kernel_here(k)) { rows.push_back(k); }
    }
    if (rows.size() > 1) { rows.erase(rows.begin()); }           // `any`: only where no other is

    // times all of them in turn, so that what disturbs one for a while disturbs the others; the
    // first round warms up
    std::vector<double> ms(KERNELS, INFINITY);
    for (int round = 0; round < 8; round++) {
        for (int k : rows) {
            const double start = now_ms();
            product_with(k, left, right, to);
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
// what is taken

const ProductChoice& choice() { return product_settings.choice; }

static void take(bool bf16, int k, const char* why) {
    product_settings.chosen[bf16] = k;                   // unless a limit forbids it
    product_settings.choice = { kernel_for(bf16).name, why };
    product_settings.forced = false;
}

void choice_settle(bool bf16, const std::string& name) {
    if (!name.empty()) {
        product_limit(name);
        take(bf16, KERNELS - 1, "as --product says");
        product_settings.forced = true;
        return;
    }
    std::vector<bool> here;
    for (int k = 0; k < KERNELS; k++) { here.push_back(kernel_here(k)); }
    take(bf16, choice_of(processor_vendor(), bf16, here), "by the table of processors");
}

bool choice_keep(bool bf16, const std::string& name) {
    for (int k = 0; k < KERNELS; k++) {
        if (name != kernels[k].name || !kernel_here(k)) { continue; }
        take(bf16, k, "as the run had it");
        return true;
    }
    return false;
}
} // namespace cpu
