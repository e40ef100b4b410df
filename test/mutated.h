// mutated.h -- damaged files, for tests and dev/fuzz
#ifndef MUTATED_H
#define MUTATED_H
#include "../base/common.h"

// Returns a text with one to four bytes or pieces put in, taken out, replaced or repeated.
static inline std::string mutated(Rng* rng, std::string s, const std::vector<std::string>& pieces) {
    for (int k = 1 + rng_below(rng, 4); k > 0; k--) {
        const size_t at = rng_below(rng, s.size() + 1), n = rng_below(rng, 9);
        const std::string piece = rng_below(rng, 2) ? std::string(1, (char)rng_below(rng, 256))
                                                    : pieces[rng_below(rng, pieces.size())];
        switch (rng_below(rng, 4)) {
            case 0: s.insert(at, piece); break;
            case 1: s.erase(at, n); break;
            case 2: s.replace(at, std::min(piece.size(), s.size() - at), piece); break;
            default: s.insert(at, s.substr(rng_below(rng, s.size() + 1), n)); break;
        }
    }
    return s;
}
#endif // MUTATED_H
