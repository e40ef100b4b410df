/*
cpu/cpu_folder.cpp -- what optional.h asks of cpu/: which kernel multiplies, what bench --products
finds of all, and weights that stay in their file.
*/
#include "../flags.h"
#include "choice.h"
#include "mapped_weights.h"
#include "ops.h"
#include "processor.h"

namespace cpu {
// ---- bench --products

// Prints a note if another kernel than the one that a run would take is clearly faster. (The best
// of some calls varies by a few hundredths on a busy machine.) Returns the row of the fastest.
static int fastest_of(const std::vector<double>& gflops, bool bf16) {
    const int best = std::max_element(gflops.begin(), gflops.end()) - gflops.begin();
    const std::string taken = kernel_for(bf16).name;
    for (int k = 0; k < KERNELS; k++) {
        if (taken != kernels[k].name || gflops[best] < 1.15 * gflops[k]) { continue; }
        printf("note   %s: a run takes %s, and %s is %.2f times as fast: --product %s takes it\n",
               bf16 ? "bf16" : "fp32", taken.c_str(), kernels[best].name,
               gflops[best] / gflops[k], kernels[best].name);
    }
    return best;
}

// Prints what --products asks for: GFLOP/s of every kernel on all threads, in float and in bf16,
// and what follows for PRECISION. All kernels are in every binary, so any build can tell.
static bool bench_products(const Flags& f) {
    if (!f.products) { return false; }
    require(!strcmp(BACKEND_NAME, "cpu"), strf("--products BACKEND=%s", BACKEND_NAME),
            "BACKEND=cpu");
    Flags given = f, defaults;
    const std::vector<FlagRow> rows = flag_rows(&given), plain = flag_rows(&defaults);
    for (size_t i = 0; i < rows.size(); i++) {
        const FlagRow& r = rows[i];
        if (!flag_asked(r, plain[i]) || is_one_of(" products product ", r.name)) { continue; }
        die(flags_typed(f, r.name.c_str()) + " has no effect without a bench of steps: leave out "
            "--products");
    }
    const long M = 2048, N = 768, K = 768;               // of a layer of -m 60M
    const std::vector<double> fp32 = kernels_timed(false, M, N, K);
    const std::vector<double> bf16 = kernels_timed(true, M, N, K);
    const auto cell = [](double gflops) { return gflops ? strf("%.0f", gflops) : "-"; };
    printf("%-14s %12s %12s   GFLOP/s of (%ld, %ld) @ (%ld, %ld), %s\n", "kernel", "fp32", "bf16",
           M, K, K, N, device_start().c_str());
    for (int k = 0; k < KERNELS; k++) {
        if (!kernel_here(k)) { continue; }
        printf("%-14s %12s %12s\n", kernels[k].name, cell(fp32[k]).c_str(),
               cell(bf16[k]).c_str());
    }

    choice_settle(false, f.product);
    choice_settle(true, f.product);
    const int in_fp32 = fastest_of(fp32, false);
    const int in_bf16 = fastest_of(bf16, true);
    const double gain = bf16[in_bf16] / fp32[in_fp32];
    printf("bf16 by %s takes %.2f times as long as fp32 by %s: %s\n", kernels[in_bf16].name,
           1 / gain, kernels[in_fp32].name,
           gain > 1.15 ? "make train_sink PRECISION=bf16 is faster here"
                       : "PRECISION=bf16 gains nothing here, fp32 is the better choice");
    return true;
}

// ---- the kernel of a run

static void product_settle(const Flags& f) {
    const bool here = !strcmp(BACKEND_NAME, "cpu");
    require(here || f.product.empty(), strf("--product BACKEND=%s", BACKEND_NAME),
            "BACKEND=cpu, the only backend with a choice of matmul kernels");
    if (here) { choice_settle(!strcmp(PRECISION_NAME, "bf16"), f.product); }
}

// The bits of bf16 depend on the kernel.
static void product_resume(const std::string& was, JsonObject* changed) {
    const ProductChoice now = choice();
    if (was.empty() || now.name.empty() || product_settings.forced) { return; }
    if (choice_keep(!strcmp(PRECISION_NAME, "bf16"), was)) { return; }
    printf("note   this processor cannot run %s, the matmul kernel of this run; using %s\n",
           was.c_str(), now.name.c_str());
    changed->json("product_kernel", json_list({ json_str(was), json_str(now.name) }));
}

// ---- weights that stay in their file

static void stay(Stay which) { mapped = { which, {} }; }
static Stay stays() { return mapped.wanted; }
static bool is_in_file(const float* at) { return mapped.all.count(at); }
static bool any_mapped() { return !mapped.all.empty(); }
static void stay_at(const float* at, long rows, long cols,
                    const std::function<void(long, float*)>& read) {
    mapped_add(at, { rows, cols, read });
}
} // namespace cpu

extern const CpuFolder CPU_FOLDER;
const CpuFolder CPU_FOLDER = {
    cpu::product_settle, cpu::product_resume, cpu::choice, cpu::bench_products, processor_check,
    cpu::stay, cpu::stays, cpu::stay_at, cpu::is_in_file, cpu::any_mapped, cpu::weight_rows,
};
