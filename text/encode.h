/*
encode.h -- text to token ids, by a tokenizer of raw bytes or of files:

    tokenizer_load     files -> a Tokenizer                        tokenizer_build.h
    tokenizer_encode   added tokens, normalize, split, merge       encode.cpp
                       one chapter each: added_tokens.h, normalize.h, split.h, bpe.h
    decode             ids -> text                                 decode.cpp

What it reads of files is a Bpe: vocabulary.h.
*/
#ifndef ENCODE_H
#define ENCODE_H
#include "../tokenizer.h"

// Reads a tokenizer. path: tokenizer.json, a GGUF file, or a directory that has one of them, or
// vocab.json and merges.txt.
Tokenizer tokenizer_load(const std::string& path);

typedef std::vector<uint32_t> Ids;

// Appends the ids of a text to *out. If a text comes in several calls, only the first starts the
// document.
void tokenizer_encode_to(const Tokenizer& t, const char* s, size_t n, bool document_start,
                         Ids* out);

// Returns the ids of a text. specials: with the template around it (BOS, for the families that want
// one).
std::vector<int> tokenizer_encode(const Tokenizer& t, const std::string& text, bool specials);

// Returns the text of n ids, for tokenizer_decode.
std::string decode(const Tokenizer& t, const int* ids, size_t n, bool skip_special);

// Returns the character that stands for each byte in a byte-level vocabulary, as GPT-2's.
std::vector<uint32_t> byte_alphabet();
#endif // ENCODE_H
