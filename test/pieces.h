// pieces.h -- what a tokenizer splits a text into, for tests
#ifndef PIECES_H
#define PIECES_H
#include "../text/split.h"

// Returns the pieces of a text with | between.
static inline std::string pieces_of(const Step& step, const std::string& text) {
    std::vector<std::string> pieces;
    std::string got;
    split_step(step, text, true, &pieces);
    for (auto& p : pieces) { got += (got.empty() ? "" : "|") + p; }
    return got;
}

#endif // PIECES_H
