/*
text_steps.h -- tokenizers that few models have: components of tokenizer.json as steps of
text/vocabulary.h, and those of GGUF files.
*/
#ifndef TEXT_STEPS_H
#define TEXT_STEPS_H
#include "../text/tokenizer_build.h"

// Makes the step of a normalizer: NFD, NFKC, NFKD, Lowercase, StripAccents or Strip. Returns false
// if it is another.
bool normalizer_step(const Json& component, Step* step);

// Makes a step that splits by an expression. Returns false if pattern.h does not read it.
bool pattern_step(const std::string& regex, Step* step);

// Does the same where tokenizer.json has the expression: it must be a known one, or take time that
// is linear in any text.
bool splitter_step(const std::string& regex, Step* step);

// Reads the tokenizer of a GGUF file, as it would be in tokenizer.json.
void tokenizer_load_gguf(TokenizerBuild* t);
#endif // TEXT_STEPS_H
