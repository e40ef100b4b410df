/*
normalize.h -- text -> text: the steps of a normalizer.
*/
#ifndef NORMALIZE_H
#define NORMALIZE_H
#include "vocabulary.h"

// Applies the normalizer of a tokenizer to a text (valid UTF-8), in place. prepend: false for a
// later part of a text that was cut, before which nothing is put.
void normalize(const Bpe& t, std::string* text, bool prepend = true);

// Replaces `pattern`, which is not empty, everywhere in *s.
void replace_all(std::string* s, const std::string& pattern, const std::string& content);
#endif // NORMALIZE_H
