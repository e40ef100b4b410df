/*
test_choice.cpp -- which kernel multiplies: the rule on speeds that are given here, what is kept of
an answer and where, and what a run does with it. No time that is taken here decides a test.
*/
#include "../../cpu/choice.h"
#include "../check.h"
using namespace cpu;

static std::string dir;

static void test_rule() {
    static const struct { std::vector<double> gflops; int row; const char* what; } rows[] = {
        { { 0, 50, 90, 180, 900 }, 4, "each faster than the one before" },
        { { 0, 50, 90, 26, 0 }, 2, "a slow vdpbf16ps, no AMX" },
        { { 0, 50, 90, 26, 900 }, 4, "a slow vdpbf16ps beside AMX" },
        { { 0, 100, 90, 88, 0 }, 3, "close: by the order of the table" },
        { { 0, 114, 110, 100, 0 }, 3, "within fifteen hundredths" },
        { { 0, 116, 110, 100, 0 }, 1, "beyond" },
        { { 0, 100, 86, 0, 0 }, 1, "AVX-512 that slows the clock" },
        { { 7, 0, 0, 0, 0 }, 0, "one row" },
        { { 0, 0, 0, 0, 0 }, 0, "none" },
    };
    for (auto& row : rows) {
        const int got = choice_of(row.gflops);
        CHECK(got == row.row, "%s: row %d, wanted %d", row.what, got, row.row);
    }
}

static void test_processor() {
    const std::string text = "processor\t: 0\nvendor_id\t: GenuineIntel\ncpu family\t: 6\n"
                             "model\t\t: 207\nmodel name\t: INTEL(R) XEON(R)\nstepping\t: 2\n"
                             "microcode\t: 0x210\ncpu MHz\t\t: 2100.0\n\n"
                             "processor\t: 1\nmodel\t\t: 1\nmicrocode\t: 0x999\ncpu MHz\t\t: 3.0\n";
    const std::string got = processor_of(text);
    CHECK(got == "vendor_id GenuineIntel, cpu family 6, model 207, model name INTEL(R) XEON(R), "
                 "stepping 2, microcode 0x210",
          "processor_of: '%s'", got.c_str());
    std::string newer = text;
    newer.replace(text.find("0x210"), 5, "0x211");
    CHECK(processor_of(newer) != got, "another microcode is another processor");
    std::string busy = text;
    busy.replace(text.find("2100.0"), 6, "2900.0");
    CHECK(processor_of(busy) == got, "its clock is not");
    CHECK(processor_of("") == "" && processor_of("Features : fp\n") == "", "nothing that is known");
}

// the files that are kept there
static std::vector<std::string> kept() {
    const std::string at = dir + "/cache/train_sink";
    return is_dir(at) ? dir_list(at) : std::vector<std::string>();
}
static std::string kept_path() { return dir + "/cache/train_sink/" + kept().at(0); }
static int here(bool bf16) {
    int n = 0;
    for (int k = 0; k < KERNELS; k++) { n += kernel_here(k) && (bf16 || !kernels[k].bf16); }
    return n;
}

// the one answer in a directory names `name` instead of the kernel that was found
static void plant(const std::string& directory, const std::string& name) {
    const std::string path = directory + dir_list(directory).at(0);
    std::string text = file_read(path);
    const size_t at = text.find("\"kernel\": \"") + 11;
    text.replace(at, text.find('"', at) - at, name);
    file_write(path, text);
}

static void test_kept(bool bf16) {
    const char* kind = bf16 ? "bf16" : "fp32";
    check_run("rm -rf " + dir + "/cache");
    choice_settle(bf16, "");
    const Choice first = choice();
    CHECK(first.name == kernel_for(bf16).name && first.gflops > 0, "%s: %s, %g GFLOP/s", kind,
          first.name.c_str(), first.gflops);
    CHECK(first.why == "timed now, and kept" && kept().size() == 1, "%s: %s, %zu files", kind,
          first.why.c_str(), kept().size());
    choice_settle(bf16, "");
    CHECK(choice().name == first.name && choice().why == "as it was timed before", "%s: %s, %s",
          kind, choice().name.c_str(), choice().why.c_str());
    CHECK(fabs(choice().gflops - first.gflops) < 0.06, "%s: the speed is kept", kind);
    // what is kept decides, whatever a clock would say now
    plant(dir + "/cache/train_sink/", "any");
    choice_settle(bf16, "");
    CHECK(choice().name == "any" && !strcmp(kernel_for(bf16).name, "any"), "%s: %s for a kept any",
          kind, kernel_for(bf16).name);
    CHECK(kernel_for(!bf16).name != std::string("any"), "%s: the other factors stay", kind);
    // a kernel that there is not, another processor's file, a damaged one: timed again, left alone
    std::string other = file_read(kept_path());
    other.replace(other.find("of\": \"") + 6, 1, "#");
    for (const std::string& text : { std::string("{\"of\""), other, std::string() }) {
        file_write(kept_path(), text);
        choice_settle(bf16, "");
        CHECK(choice().why == "timed now" && file_read(kept_path()) == text, "%s: '%s' became '%s'",
              kind, text.c_str(), file_read(kept_path()).c_str());
    }
    check_run("rm " + kept_path());
    choice_settle(bf16, "");
    plant(dir + "/cache/train_sink/", "abacus");
    choice_settle(bf16, "");
    CHECK(choice().why == "timed now" && kernel_here(0), "%s: a kernel that there is not", kind);
    // --product, then a run that had another
    choice_settle(bf16, "any");
    CHECK(choice().name == "any" && choice().why == "as --product says", "%s: --product any", kind);
    product_settings.last_kernel = KERNELS - 1;
    const int row = bf16 ? KERNELS - 1 : 1;
    CHECK(!choice_keep(bf16, "abacus") && choice().name == "any", "%s: what is not here", kind);
    for (int k = 0; k <= row; k++) {
        const bool fits = kernel_here(k) && (bf16 || !kernels[k].bf16);
        CHECK(choice_keep(bf16, kernels[k].name) == kernel_here(k), "%s: keep %s", kind,
              kernels[k].name);
        if (fits) {
            CHECK(choice().name == kernels[k].name, "%s: kept %s", kind, choice().name.c_str());
        }
    }
    product_choose(bf16, KERNELS - 1);
}

// nowhere to keep it: timed every time, and nothing is made elsewhere
static void test_nowhere() {
    check_run("rm -rf " + dir + "/cache " + dir + "/home && mkdir " + dir + "/home");
    setenv("HOME", (dir + "/home").c_str(), 1);
    setenv("XDG_CACHE_HOME", "relative", 1);                     // is to be ignored
    choice_settle(false, "");
    CHECK(is_dir(dir + "/home/.cache/train_sink") && !file_exists("relative"), "under HOME");
    for (const char* place : { "/dev/null", "/proc/none" }) {
        setenv("XDG_CACHE_HOME", place, 1);
        choice_settle(false, "");
        CHECK(choice().why == "timed now" || here(false) < 2, "%s: %s", place,
              choice().why.c_str());
    }
    unsetenv("XDG_CACHE_HOME");
    unsetenv("HOME");
    choice_settle(false, "");
    CHECK(choice().why == "timed now" || here(false) < 2, "no HOME: %s", choice().why.c_str());
}

// the program: its log names the kernel, and a run that goes on keeps it
static void test_program() {
    const std::string binary = "build/cpu/train_sink";
    if (!file_exists(binary)) { printf("skipped: no %s\n", binary.c_str()); return; }
    const std::string run = "XDG_CACHE_HOME=" + dir + "/runs " + binary +
                            " -b 4 -t 8 --bb-vocab 12 --width 8 --ffn-width 8 --val-seqs 4 "
                            "--probe-seqs 4 --probe-len 8 --sample 0 -o " + dir + "/run ";
    auto product = [](const std::string& path) {
        const std::string text = file_read(path);
        const size_t at = text.find("\"product\":\"avx2\"");
        return at != std::string::npos;
    };
    Ran r = check_run(run + "-n 2");
    CHECK(r.code == 0 && r.out.find("\nproduct ") != std::string::npos, "%s%s", r.out.c_str(),
          r.err.c_str());
    const std::string log = file_read(dir + "/run/log.jsonl");
    CHECK(log.find("\"product\":\"") < log.find('\n'), "the first line: %s", log.c_str());
    if (!kernel_here(1) || strcmp(kernels[1].name, "avx2")) { return; }
    check_run("rm -rf " + dir + "/run");
    r = check_run(run + "-n 2 --product avx2");
    CHECK(product(dir + "/run/log.jsonl"), "--product avx2: %s", r.out.c_str());
    // a kept answer; the run that began with it goes on with it when there is another, or none
    check_run("rm -rf " + dir + "/run");
    plant(dir + "/runs/train_sink/", "avx2");
    r = check_run(run + "-n 2");
    CHECK(product(dir + "/run/log.jsonl"), "a kept avx2: %s", r.out.c_str());
    check_run("rm -rf " + dir + "/runs");
    r = check_run(run + "-n 3 --resume");
    CHECK(r.code == 0 && r.out.find("\nproduct avx2") != std::string::npos &&
              r.out.find("as the run had it") != std::string::npos,
          "resumed, and no answer is kept: %s%s", r.out.c_str(), r.err.c_str());
}

int main() {
    dir = check_tmp();
    test_rule();
    test_processor();
    setenv("XDG_CACHE_HOME", (dir + "/cache").c_str(), 1);
    for (bool bf16 : { false, true }) { if (here(bf16) > 1) { test_kept(bf16); } }
    test_nowhere();
    setenv("HOME", dir.c_str(), 1);
    test_program();
    return check_done();
}
