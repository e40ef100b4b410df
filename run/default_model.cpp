/*
run/default_model.cpp -- picks a preset by the data and by what there is to compute with, and
estimates how long the paper's run would take.
*/
#include "default_model.h"
#include "../core/operations.h"
#include "data_flags.h"

static const long PAPER_STEPS = 20000;
static const long PAPER_TOKENS = 1 << 20;                // per step

// Returns the days that the paper's run takes at least on this processor: a training step is
// slower than the matrix products in it, which are timed here.
static double paper_days() {
    const Preset& p = *preset_named("60M");
    const int N = 256;
    const int C = p.C;
    std::vector<real> x((size_t)N * C), w((size_t)C * C), y((size_t)N * C);
    double ms = INFINITY;
    for (int i = 0; i < 4; i++) {
        const double begun = now_ms();
        ops::matmul_forward(y.data(), x.data(), w.data(), NULL, NULL, N, C, C);
        ms = std::min(ms, now_ms() - begun);
    }
    // with each weight of a product, and with the positions that attention multiplies
    const double products = C * (p.L * (4.0 * C + 3.0 * p.F + p.T) + p.V);
    const double flops = 6 * products * PAPER_TOKENS * PAPER_STEPS;
    const double flops_per_ms = 2.0 * N * C * C / ms;
    return flops / flops_per_ms / (24 * 3600e3);
}

// Sets the paper's run where no flag says another: a step of 1,048,576 tokens, or the most below
// that sequences of another length fill; 20,000 steps; the vocabulary of the data.
static void paper_run(Flags* f) {
    Arch* c = &f->arch;
    if (!c->T) { c->T = preset_named("60M")->T; }
    if (!f->given_total_batch) {
        long at_once = (long)c->T * dist::world();
        if (f->given_batch) { at_once *= std::max(1L, f->batch); }
        f->total_batch = std::max(1L, PAPER_TOKENS / at_once) * at_once;
    }
    if (!f->given_steps) { f->steps = PAPER_STEPS; }
}

std::string default_model(Flags* f, bool on_gpu) {
    if (!f->model.empty()) { return ""; }
    const Arch& c = f->arch;
    f->model = "bb";
    if ((c.L && c.C && c.NH && c.F) || !f->init.empty()) { return ""; }
    if (f->data == "bb") {
        return "note   -m bb: the toy model of the built-in task; another: -m nano, and the data "
               "-d FILE\n";
    }
    if (on_gpu) {
        f->model = "60M";
        paper_run(f);
        return "note   -m 60M, the paper's run: the data are text and this build is for a GPU; "
               "another: -m nano\n";
    }
    f->model = "nano";
    return strf("note   -m nano: the data are text and this build is for a CPU; 60M, the paper's, "
                "takes at least %.0f days here: -m 60M --total-batch %ld -n %ld\n",
                paper_days(), PAPER_TOKENS, PAPER_STEPS);
}

std::string no_sink_note(const Flags& f, const Data& data, long parameters) {
    if (f.data == "bb" || !f.init.empty() || parameters >= 10000000) { return ""; }
    if (data.tokenizer.kind == TOKENIZER_BYTES) {
        return "note   no sink is expected: none has formed on plain bytes, wanted --tokenizer: "
               "docs/start.md\n";
    }
    const DataOptions o = data_options(f, 1, 1);
    bool first = f.bos == "seq" || has(o.random_token, 1);
    for (auto& fix : o.fix_token) { first = first || fix.first == 1; }
    if (first) { return ""; }
    return "note   no sink is expected in a model of this size: sequences begin with no fixed "
           "token, wanted --fix-token 1:0: docs/start.md\n";
}
