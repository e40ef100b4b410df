/*
ids.h -- whether a model has a row for each id of a text, and a token's own text.
*/
#ifndef IDS_H
#define IDS_H
#include "../dataloader.h"
#include "vocabulary.h"

// Returns a token as the vocabulary has it, "" for no token and for those of raw bytes.
std::string token_text(const Tokenizer& t, int id);

// Dies if a model with V ids has too few for this tokenizer.
void vocabulary_check(const Tokenizer& t, int V);

// Dies if one of n ids is not below V, and names its token.
void ids_check(const Tokenizer& t, const int* ids, size_t n, int V);

// Tells whether the ids of the data from V on are added tokens, which a text avoids. Dies if these
// have one.
bool spares_ids(const Data& d, int V);
#endif // IDS_H
