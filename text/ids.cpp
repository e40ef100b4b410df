/*
text/ids.cpp -- whether a model has a row for each id of a text.
*/
#include "ids.h"
#include <limits.h>
#include <set>

// Returns how many ids a model needs for text that avoids the added tokens at the end of the
// vocabulary. (Gemma 3's tokenizer has one there, for images, that its text model has no row for.)
static int ids_needed(const Tokenizer& t) {
    if (!t.bpe) { return t.vocab_size; }
    std::set<int> added;
    for (auto& token : t.bpe->added) { added.insert(token.id); }
    int n = t.vocab_size;
    while (n > 0 && added.count(n - 1)) { n--; }
    return n;
}

std::string token_text(const Tokenizer& t, int id) {
    if (!t.bpe) { return ""; }
    const std::vector<std::string>& text = t.bpe->text;
    return id >= 0 && id < (int)text.size() ? text[id] : "";
}

void vocabulary_check(const Tokenizer& t, int V) {
    const int needed = ids_needed(t);
    if (needed <= V) { return; }
    die("tokenizer " + t.name + strf(": got %d ids, wanted at most the model's %d", needed, V),
        "give the tokenizer that the model was trained with");
}

void ids_check(const Tokenizer& t, const int* ids, size_t n, int V) {
    for (size_t i = 0; i < n; i++) {
        if (ids[i] < V) { continue; }
        die(strf("the text has token %d, ", ids[i]) + json_str(token_text(t, ids[i])) +
            strf(", and the model has %d ids", V), "leave that token out of the text");
    }
}

bool spares_ids(const Data& d, int V) {
    enum { STRETCH = 1 << 16 };
    if (d.V != d.tokenizer.vocab_size || ids_needed(d.tokenizer) > V) { return false; }
    std::vector<int> ids(STRETCH);
    for (auto& s : d.sources) {
        for (const Tokens* t : { &s.train, &s.val }) {
            for (long i = 0; i < t->n; i += STRETCH) {
                const long n = std::min<long>(STRETCH, t->n - i);
                tokens_copy(*t, i, n, INT_MAX, ids.data());
                ids_check(d.tokenizer, ids.data(), n, V);
            }
        }
    }
    return true;
}
