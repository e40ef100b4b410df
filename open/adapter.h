/*
adapter.h -- LoRA: what peft trained beside a model, added to its weights.

    W + s B A      A (r, in), B (out, r), s = alpha / r, or alpha / sqrt(r) with use_rslora

r and alpha may differ by module. An adapter that is more than that is rejected, with an error that
names the key (files/directory.h has the table). Facts: peft 0.21, tuners/lora.
*/
#ifndef ADAPTER_H
#define ADAPTER_H
#include "import.h"

// Adds the adapter in `dir` to the weights of a model, under the names they have in its files.
// family: NULL if they are ours; tied: its head is its embedding. Returns what it was, in words.
std::string adapter_apply(const std::string& dir, const Family* family, bool tied,
                          Weights* weights);

// Dies if a model's directory holds an adapter and --adapter does not say what to do with it.
void adapter_beside_check(const std::string& dir, const std::string& adapter);
#endif // ADAPTER_H
