/*
cell.h -- what stands in a table on the screen: a number, or a token.
*/
#ifndef CELL_H
#define CELL_H
#include "../tokenizer.h"

// Prints numbers in columns, "-" where there is none.
inline void print_cells(const std::vector<double>& x) {
    for (double v : x) { printf(" %9s", std::isfinite(v) ? strf("%.4g", v).c_str() : "-"); }
}

// Writes a token as it can be read: 'the', or its id where nothing can be.
inline std::string quoted_token(const Tokenizer& tok, int id) {
    const std::string text = tokenizer_decode(tok, &id, 1, false);
    std::string shown;
    for (char c : text) {
        if (c == '\n') { shown += "\\n"; } else { shown += c; }
    }
    return "'" + printable(shown) + "'";
}

// Returns the tokenizer of --tokenizer; without one, and without text/, ids are read as they are.
inline Tokenizer tokenizer_shown(const std::string& name, int V) {
    return name.empty() || !text_folder ? tokenizer_ids("ids", V) : tokenizer_of(name);
}
#endif // CELL_H
