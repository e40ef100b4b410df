/*
test_experts.cpp -- mixtures of experts in the build that gpt-oss needs, BIAS=logit: two tiny models
as transformers computes them (dev/peers/check_families.py --save test/experts gpt_oss gpt_oss_mxfp4),
the router's choice by hand, and what is refused. Mixtral and Qwen3-MoE are in test/families.
*/
#define BIAS logit
#include "../defaults.h"
#include "../model_unit.h"
#include "../../checkpoint.cpp"
#include "../../commands/open_model.cpp"
#include "../check.h"

static const int T = 33, N = 4;

static void same(const std::string& what, const std::vector<double>& got,
                 const std::vector<double>& want, bool relative) {
    if (!CHECK(got.size() == want.size() && !want.empty(), "%s: got %zu, wanted %zu", what.c_str(),
               got.size(), want.size())) {
        return;
    }
    double worst = 0;
    for (size_t i = 0; i < want.size(); i++) {
        worst = std::max(worst, fabs(got[i] - want[i]) / (relative ? fabs(want[i]) : 1));
    }
    CHECK(worst < 2e-5, "%s: %.2g away", what.c_str(), worst);
}

static Model model_of(const std::string& name, cpu::Stay stay = cpu::STAY_NONE) {
    Flags f;
    f.words = { "test/experts/" + name };
    return model_from_checkpoint(&f, 0, stay);
}

// loss, attention to the first ten tokens and the norms of the stream; the weights as floats, or
// in their file
static void family_check(const std::string& name, cpu::Stay stay) {
    Model m = model_of(name, stay);
    CHECK(stay == cpu::STAY_NONE || cpu::mapped.all.size() > 8, "%s: %zu matrices stay",
          name.c_str(), cpu::mapped.all.size());
    const std::string file = file_read("test/families/tokens/val.bin");
    const uint16_t* ids = (const uint16_t*)(file.data() + 256 * sizeof(int));
    std::vector<int> seqs;
    for (int i = 0; i < N; i++) { for (int t = 0; t <= T; t++) { seqs.push_back(ids[i * T + t]); } }
    const Metrics r = measure(&m, seqs.data(), N, T, 2048);
    const Json answer = json_file("test/experts/" + name + "/answer.json");
    check_near(r.loss, answer.get("loss")->number, 2e-5, "%s: loss", name.c_str());
    std::vector<double> alpha, first = r.h.first, rest = r.h.rest;
    for (int i = 0; i < N; i++) {
        for (int l = 0; l < r.L; l++) {
            for (int h = 0; h < r.NH; h++) {
                for (int k = 1; k <= METRIC_K; k++) { alpha.push_back(r.at(i, l, h).alpha[k]); }
            }
        }
    }
    first.pop_back();  // transformers keeps the last one after the final norm only
    rest.pop_back();
    same(name + ": alpha", alpha, numbers(*answer.get("alpha")), false);
    same(name + ": h first", first, numbers(*answer.get("h_norm_first")), true);
    same(name + ": h rest", rest, numbers(*answer.get("h_norm_rest")), true);
    model_free(&m);
}

// what the router gives to expert e, as "row weight"
static std::string work_of(const std::vector<real>& logits, int used, int shares, int e) {
    Arch c;
    c.experts = logits.size(); c.experts_used = used; c.expert_shares = shares;
    std::vector<ExpertWork> work(c.experts);
    experts_route(&work, logits.data(), 7, c);
    return work[e].row.empty() ? "nothing"
                               : strf("%d %.6f", work[e].row[0], (double)work[e].weight[0]);
}

static void model_from_directory(const std::string& dir) {
    Flags f;
    f.words = { dir };
    model_from_checkpoint(&f, 0, cpu::STAY_ALL);
}

static void refused(const std::string& from, const std::string& to, const char* says) {
    const std::string dir = check_tmp();
    check_run("cp test/experts/gpt_oss_mxfp4/* " + dir);
    std::string config = file_read(dir + "/config.json");
    const size_t at = config.find(from);
    if (!CHECK(at != std::string::npos, "the config has no %s", from.c_str())) { return; }
    file_write(dir + "/config.json", config.replace(at, from.size(), to));
    const Died d = check_dies([&] { model_from_directory(dir); });
    CHECK(d.code == EXIT_USER && d.says(says), "%s: exit %d, wanted '%s', got %s", to.c_str(),
          d.code, says, d.err.c_str());
    remove_tree(dir);
}

int main() {
    for (auto stay : { cpu::STAY_NONE, cpu::STAY_ALL }) {
        family_check("gpt_oss", stay);
        family_check("gpt_oss_mxfp4", stay);
    }

    // softmax of (1, 3, 2): .090031 .665241 .244728
    CHECK(work_of({ 1, 3, 2 }, 2, 0, 1) == "7 0.731059", "of two, they sum to one: %s",
          work_of({ 1, 3, 2 }, 2, 0, 1).c_str());
    CHECK(work_of({ 1, 3, 2 }, 2, 1, 2) == "7 0.244728", "of two, shares of all: %s",
          work_of({ 1, 3, 2 }, 2, 1, 2).c_str());
    CHECK(work_of({ 1, 3, 2 }, 2, 0, 0) == "nothing", "the third of two: %s",
          work_of({ 1, 3, 2 }, 2, 0, 0).c_str());
    CHECK(work_of({ 2, 2, 2 }, 1, 0, 0) == "7 1.000000", "of equals the first: %s",
          work_of({ 2, 2, 2 }, 1, 0, 0).c_str());
    const real in[4] = { 9, -1, -9, 3 };         // gate 9 and -1, up -9 and 3: cut at 7
    real out[2];
    experts_clamped(out, in, 7, 1, 2);
    check_near(out[0], -6 * 7 / (1 + exp(-1.702 * 7)), 1e-4, "both cut");
    check_near(out[1], 4 * -1 / (1 + exp(1.702)), 1e-6, "neither cut");

    Model m = model_of("gpt_oss");
    const Arch c = m.c;
    model_free(&m);
    const Died d = check_dies([&] { model_new(c, 0, true); });
    CHECK(d.code == EXIT_USER && d.says("a mixture of 5 experts") && d.says("training"),
          "training: %s", d.err.c_str());
    refused("\"mxfp4\"", "\"bitsandbytes\"", "quantization_config");
    refused("\"attention_bias\": true", "\"attention_bias\": false", "attention_bias is false");
    refused("\"swiglu_alpha\": 1.702", "\"swiglu_alpha\": 1.7", "swiglu_alpha");
    refused("\"num_experts_per_tok\": 2", "\"num_experts_per_tok\": 4", "experts_used");
    refused("\"num_local_experts\": 3", "\"num_local_experts\": 4", "another shape");
    refused("\"intermediate_size\": 32", "\"intermediate_size\": 64", "another shape");
    return check_done();
}
