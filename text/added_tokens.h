/*
added_tokens.h -- the added tokens of a tokenizer, looked for in a text by a tree of their bytes.
*/
#ifndef ADDED_TOKENS_H
#define ADDED_TOKENS_H
#include "vocabulary.h"

// Adds one text to a tree; index: its place in t->added.
void added_insert(AddedTree* tree, const std::string& text, int index);

// A token found in a text: its place in t.added (-1: none), and where it stands.
struct AddedMatch {
    int index = -1;
    size_t begin = 0;
    size_t end = 0;
};

// Returns the leftmost, then longest, added token at or after s[i].
AddedMatch added_find(const Bpe& t, const AddedTree& tree, const char* s, size_t i, size_t n);

// Widens a match by the blanks that its token swallows; on the left not beyond `least`.
void added_strip(const Bpe& t, const char* s, size_t n, size_t least, AddedMatch* match);

// Cuts s at its added tokens: calls between(begin, end) for the text between them, and appends the
// ids of the tokens to *out.
template <class Between>
void added_cut(const Bpe& t, const AddedTree& tree, const char* s, size_t n, Ids* out,
               Between between) {
    size_t done = 0;
    size_t next = 0;
    for (;;) {
        AddedMatch match = added_find(t, tree, s, next, n);
        if (match.index < 0) { break; }
        next = match.end;                        // what stripping takes here does not move it
        added_strip(t, s, n, done, &match);
        if (match.begin > done) { between(done, match.begin); }
        out->push_back(t.added[match.index].id);
        done = match.end;
    }
    if (done < n) { between(done, n); }
}
#endif // ADDED_TOKENS_H
