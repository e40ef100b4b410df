/*
test_experts.cpp -- mixtures of experts in the build that gpt-oss needs, BIAS=logit: two tiny models
as transformers computes them (dev/peers/check_families.py --save test/open/experts gpt_oss gpt_oss_mxfp4),
the router's choice by hand, and what is refused. Mixtral and Qwen3-MoE are in test/families.
*/
#define BIAS logit
#include "../family.h"

static const char* const MXFP4 = "test/open/experts/gpt_oss_mxfp4";

// what the router gives to expert e, as "row weight"
static std::string work_of(const std::vector<real>& logits, int used, int shares, int e) {
    Arch c;
    c.experts = logits.size(); c.experts_used = used; c.expert_shares = shares;
    std::vector<ExpertWork> work(c.experts);
    experts_route(&work, logits.data(), 7, c);
    return work[e].row.empty() ? "nothing"
                               : strf("%d %.6f", work[e].row[0], (double)work[e].weight[0]);
}

int main() {
    for (auto stay : { STAY_NONE, STAY_ALL }) {
        family_check("test/open/experts/gpt_oss", stay);
        family_check(MXFP4, stay);
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

    Model m = model_of("test/open/experts/gpt_oss");
    const Arch c = m.arch;
    model_free(&m);
    const Died d = check_dies([&] { model_new(c, 0, true); });
    check_ended(d, EXIT_USER, "training", "a mixture of 5 experts", "training");
    refused(MXFP4, "\"mxfp4\"", "\"bitsandbytes\"", "quantization_config");
    refused(MXFP4, "\"attention_bias\": true", "\"attention_bias\": false", "attention_bias is false");
    refused(MXFP4, "\"swiglu_alpha\": 1.702", "\"swiglu_alpha\": 1.7", "swiglu_alpha");
    refused(MXFP4, "\"num_experts_per_tok\": 2", "\"num_experts_per_tok\": 4", "experts_used");
    refused(MXFP4, "\"num_local_experts\": 3", "\"num_local_experts\": 4", "does not have the shape");
    refused(MXFP4, "\"intermediate_size\": 32", "\"intermediate_size\": 64", "does not have the shape");
    return check_done();
}
