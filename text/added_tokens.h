/*
added_tokens.h -- the added tokens of a tokenizer, looked for in a text by a tree of their bytes.
*/
#ifndef ADDED_TOKENS_H
#define ADDED_TOKENS_H
#include "vocabulary.h"

// Adds one text to a tree; index: its place in t->added.
void added_insert(AddedTree* tree, const std::string& text, int index);

// Cuts s at its added tokens: calls between(begin, end) for the text between them, and appends the
// ids of the tokens to *out.
void added_cut(const Bpe& t, const AddedTree& tree, const char* s, size_t n, Ids* out,
               const std::function<void(size_t begin, size_t end)>& between);
#endif // ADDED_TOKENS_H
