/*
pattern.h -- expressions that few tokenizers split by: alternatives of sets of characters, each
taken a number of times. split.h has the two that most tokenizers split by, which are faster.

    [\p{L}\p{M}]+   [^\r\n]?   [^a[bc]]   \p{N}{1,3}   \s*   (?!\S)   $   A|B
    (?i:'s|'t|'re|'ve|'m|'ll|'d)   and with a ? behind

A set takes as many characters as it can, then gives back one after the other until the rest fits;
the first alternative that fits is it. Where none fits, the text goes to the next character.
*/
#ifndef PATTERN_H
#define PATTERN_H
#include "../text/unicode.h"

// The kinds of characters, one bit each.
enum {
    IS_MARK = 1, IS_PUNCTUATION = 2, IS_SYMBOL = 4, IS_UPPER = 8, IS_SMALL = 16, IS_CASELESS = 32,
    IS_NUMBER = 64, IS_SPACE = 128, IS_LETTER = IS_UPPER | IS_SMALL | IS_CASELESS
};

enum AtomKind { ATOM_SET, ATOM_NOT_BEFORE, ATOM_LINE_END, ATOM_CONTRACTION };

struct Atom {
    AtomKind kind = ATOM_SET;
    int kinds = 0;                                       // bits of the kinds in it
    CodeRanges ranges;                                   // code points in it, in order
    bool negated = false;
    int least = 1;
    int most = 1;
};
typedef std::vector<Atom> Alternative;

typedef std::vector<Alternative> Pattern;

// Reads an expression. Returns false if it has anything but the above.
bool pattern_parse(const std::string& regex, Pattern* pattern);

// Tells whether the time that it takes is linear in any text: a single short alternative, in which
// only the last set, or the first before a condition, has no limit.
bool pattern_is_linear(const Pattern& pattern);

// Returns the end of the match that starts at s[i], i itself if there is none. *skip: where the
// next one may start if there is none here.
size_t pattern_match(const Pattern& pattern, const std::string& s, size_t i, size_t* skip);
#endif // PATTERN_H
