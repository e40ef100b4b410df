/*
generate.h -- text from a model, for the command generate, the samples of a run, and others that
open a chat template.
*/
#ifndef GENERATE_H
#define GENERATE_H
#include <vector>
#include "../model.h"
#include "../open/chat.h"

// Dies of values that are not finite, and names the first place in the model that has some.
[[noreturn]] void die_not_finite(Model* m);

// Continues `tokens` by n more, or to one of the tokens `stops`; temperature 0 takes the likeliest.
// The model sees at most the last T of them.
void generate(Model* m, std::vector<int>* tokens, long n, double temperature, long top_k,
              Rng* rng, const std::vector<int>& stops = {});

// Reads the chat template of a checkpoint: of its directory, or in its GGUF file. *end: the token
// that the file has for the end of a turn, -1 if none.
Chat chat_of(const std::string& checkpoint, const Tokenizer& tok, int* end);
#endif // GENERATE_H
