/*
answer.h -- compares what train_sink measures of a model with what dev/peers/check_families.py saved
of transformers: loss, attention to the first ten tokens, norms. The answers for the models in
test/open/families are in test/open/families.json, by name.
*/
#ifndef ANSWER_H
#define ANSWER_H
#include "check.h"

// Checks that two lists of numbers are the same to 2e-5, of each number if `relative`.
static void same(const std::string& what, const std::vector<double>& got,
                 const std::vector<double>& want, bool relative) {
    if (!CHECK(got.size() == want.size() && !want.empty(), "%s: got %zu numbers, wanted %zu",
               what.c_str(), got.size(), want.size())) {
        return;
    }
    double worst = 0;
    for (size_t i = 0; i < want.size(); i++) {
        worst = std::max(worst, fabs(got[i] - want[i]) / (relative ? fabs(want[i]) : 1));
    }
    CHECK(worst < 2e-5, "%s: %.2g away", what.c_str(), worst);
}

// What train_sink found: first and rest are the norms of the stream after each layer.
struct Answer {
    double loss;
    std::vector<double> alpha, first, rest;
};

// Checks the numbers of a model in this directory, such as test/open/families/gpt2.
static void answer_check(const std::string& name, const std::string& dir, Answer ours) {
    const size_t slash = dir.rfind('/');
    const Json all = json_of_file(dir.substr(0, slash) + ".json");
    const Json* answer = all.get(dir.substr(slash + 1).c_str());
    if (!CHECK(answer, "%s: has no answer", dir.c_str())) { return; }
    const Json& theirs = *answer;
    ours.first.pop_back();  // transformers keeps the last one after the final norm only
    ours.rest.pop_back();
    check_near(ours.loss, theirs.get("loss")->number, 2e-5, "%s: loss", name.c_str());
    same(name + ": alpha", ours.alpha, numbers(*theirs.get("alpha")), false);
    same(name + ": h first", ours.first, numbers(*theirs.get("h_norm_first")), true);
    same(name + ": h rest", ours.rest, numbers(*theirs.get("h_norm_rest")), true);
}
#endif // ANSWER_H
