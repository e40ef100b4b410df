/*
generate.h -- text from a model, for the command generate and the samples of a run.
*/
#ifndef GENERATE_H
#define GENERATE_H
#include "../model.h"

// Dies of values that are not finite, and names the first place in the model that has some.
[[noreturn]] void die_not_finite(Model* m);

// Continues `tokens` by n more, or to one of the tokens `stops`; temperature 0 takes the likeliest.
// The model sees at most the last T of them.
void generate(Model* m, std::vector<int>* tokens, long n, double temperature, long top_k,
              Rng* rng, const std::vector<int>& stops = {});
#endif // GENERATE_H
