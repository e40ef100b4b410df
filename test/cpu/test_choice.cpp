/*
test_choice.cpp -- which kernel multiplies: the table on processors that are given here, what a run
takes, and what one that goes on keeps. Nothing is timed.
*/
#include "../../cpu/choice.h"
#include "../check.h"
using namespace cpu;

static std::string dir;

// Returns which rows a processor has, from their names.
static std::vector<bool> has(const std::string& names) {
    std::vector<bool> rows;
    const std::vector<std::string> all = split(names, ' ');
    for (int k = 0; k < KERNELS; k++) {
        rows.push_back(std::count(all.begin(), all.end(), std::string(kernels[k].name)) > 0);
    }
    return rows;
}

static void test_table() {
    static const struct { const char *vendor, *names, *fp32, *bf16; } rows[] = {
        { "GenuineIntel", "any avx2 avx512 avx512-bf16 amx", "avx512", "amx" },
        { "GenuineIntel", "any avx2 avx512 avx512-bf16", "avx512", "avx512" },   // slow vdpbf16ps
        { "GenuineIntel", "any avx2 avx512", "avx512", "avx512" },
        { "AuthenticAMD", "any avx2 avx512 avx512-bf16", "avx512", "avx512-bf16" },
        { "AuthenticAMD", "any avx2", "avx2", "avx2" },
        { "", "any", "any", "any" },
        { "HygonGenuine", "any avx2 avx512 avx512-bf16", "avx512", "avx512-bf16" },
    };
    if (KERNELS < 5) { return; }                         // not an x86-64
    for (auto& row : rows) {
        const std::string fp32 = kernels[choice_of(row.vendor, false, has(row.names))].name;
        const std::string bf16 = kernels[choice_of(row.vendor, true, has(row.names))].name;
        CHECK(fp32 == row.fp32 && bf16 == row.bf16, "%s with %s: fp32 %s, bf16 %s", row.vendor,
              row.names, fp32.c_str(), bf16.c_str());
    }
    CHECK(processor_vendor().size() == 12, "the vendor: '%s'", processor_vendor().c_str());
}

static void test_settled(bool bf16) {
    const char* kind = bf16 ? "bf16" : "fp32";
    choice_settle(bf16, "");
    const std::string taken = choice().name;
    std::vector<bool> here;
    for (int k = 0; k < KERNELS; k++) { here.push_back(kernel_here(k)); }
    const int row = choice_of(processor_vendor(), bf16, here);
    CHECK(taken == kernels[row].name && taken == kernel_for(bf16).name && !product_settings.forced,
          "%s: %s", kind, taken.c_str());
    choice_settle(bf16, "any");
    CHECK(choice().name == "any" && product_settings.forced, "%s: --product any", kind);
    product_settings.last_kernel = KERNELS - 1;
    CHECK(!choice_keep(bf16, "abacus") && choice().name == "any", "%s: what is not here", kind);
    for (int k = 0; k < KERNELS; k++) {
        const bool fits = kernel_here(k) && (bf16 || !kernels[k].bf16);
        CHECK(choice_keep(bf16, kernels[k].name) == kernel_here(k), "%s: keep %s", kind,
              kernels[k].name);
        if (fits) {
            CHECK(choice().name == kernels[k].name, "%s: kept %s", kind, choice().name.c_str());
        }
    }
    product_settings.chosen[bf16] = KERNELS - 1;
}

// the program: its log names the kernel, a run that goes on keeps it, nothing is written elsewhere
static void test_program() {
    const std::string binary = "build/cpu/train_sink";
    if (!file_exists(binary)) { printf("skipped: no %s\n", binary.c_str()); return; }
    const std::string home = dir + "/home";
    make_dirs(home);
    const std::string run = "HOME=" + home + " XDG_CACHE_HOME= " + binary +
                            " -b 4 -t 8 --bb-vocab 12 --width 8 --ffn-width 8 --val-seqs 4 "
                            "--probe-seqs 4 --probe-len 8 --sample 0 -o " + dir + "/run ";
    Ran r = check_run(run + "-n 2");
    check_ended(r, 0, "a run", "\nproduct ", "by the table of processors");
    const std::string log = file_read(dir + "/run/log.jsonl");
    CHECK(log.find("\"product\":\"") < log.find('\n'), "the first line: %s", log.c_str());
    CHECK(dir_list(home).empty(), "something is kept at home");
    if (!kernel_here(1) || strcmp(kernels[1].name, "avx2")) { return; }
    check_run("rm -rf " + dir + "/run");
    r = check_run(run + "-n 2 --product avx2");
    CHECK(contains(file_read(dir + "/run/log.jsonl"), "\"product\":\"avx2\""),
          "--product avx2: %s", r.out.c_str());
    r = check_run(run + "-n 3 --resume");
    check_ended(r, 0, "resumed", "\nproduct avx2, ");
}

int main() {
    dir = check_tmp();
    CASE("table") { test_table(); }
    CASE("settled") { for (bool bf16 : { false, true }) { test_settled(bf16); } }
    CASE("program") { test_program(); }
    return check_done();
}
