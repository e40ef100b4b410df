/*
open/pattern.cpp -- parses an expression into atoms, then matches it at a place in a text, with
backtracking over the counts.
*/
#include "pattern.h"
#include <limits.h>
#include "../text/split.h"
#include "../text/unicode_tables.h"

// ----------------------------------------------------------------------------
// an expression -> its atoms

static const struct { const char* name; int kinds; bool negated; } NAMED[] = {
    { "\\p{L}",  IS_LETTER,      false },
    { "\\p{Lu}", IS_UPPER,       false },
    { "\\p{Lt}", IS_UPPER,       false },                // always beside \p{Lu}
    { "\\p{Ll}", IS_SMALL,       false },
    { "\\p{Lm}", IS_CASELESS,    false },                // always beside \p{Lo}
    { "\\p{Lo}", IS_CASELESS,    false },
    { "\\p{M}",  IS_MARK,        false },
    { "\\p{N}",  IS_NUMBER,      false },
    { "\\p{P}",  IS_PUNCTUATION, false },
    { "\\p{S}",  IS_SYMBOL,      false },
    { "\\s",     IS_SPACE,       false },
    { "\\S",     IS_SPACE,       true },
};

// Halves of a kind: an expression with the one has the other beside it, or it is not read.
static const char* const TOGETHER[][2] = { { "\\p{Lu}", "\\p{Lt}" }, { "\\p{Lm}", "\\p{Lo}" } };

static size_t times_in(const std::string& regex, const std::string& part) {
    size_t n = 0;
    for (size_t i = regex.find(part); i != regex.npos; i = regex.find(part, i + 1)) { n++; }
    return n;
}

// Sorts ranges, and joins those that touch.
static void join_ranges(CodeRanges* ranges) {
    CodeRanges joined;
    std::sort(ranges->begin(), ranges->end());
    for (auto& range : *ranges) {
        if (!joined.empty() && range.first <= joined.back().second + 1) {
            joined.back().second = std::max(joined.back().second, range.second);
        } else {
            joined.push_back(range);
        }
    }
    *ranges = joined;
}

// Reads an expression from front to back.
struct PatternReader {
    const std::string& regex;
    size_t at;

    bool done() const { return at >= regex.size(); }

    // Takes this text if it comes next.
    bool take(const char* text) {
        const size_t n = strlen(text);
        if (regex.compare(at, n, text)) { return false; }
        at += n;
        return true;
    }

    // Reads one character, as it is or behind a backslash.
    bool read_character(const char* special, uint32_t* code) {
        if (done()) { return false; }
        int bytes;
        if (regex[at] != '\\') {
            if (strchr(special, regex[at])) { return false; }
            *code = utf8_at(&regex[at], &bytes);
            at += bytes;
            return true;
        }
        if (at + 1 >= regex.size()) { return false; }
        const unsigned char c = regex[at + 1];
        if (isalnum(c) && c != 'r' && c != 'n') { return false; }
        if (c >= 0x80) { return false; }
        *code = c;
        if (c == 'r') { *code = '\r'; }
        if (c == 'n') { *code = '\n'; }
        at += 2;
        return true;
    }

    // Reads \p{..}, \s or \S.
    bool read_named(Atom* atom) {
        for (auto& row : NAMED) {
            if (!take(row.name)) { continue; }
            atom->kinds |= row.kinds;
            atom->negated = row.negated;
            return true;
        }
        return false;
    }

    // Reads what is between [ and ]. A set inside, [^a[bc]], adds its characters.
    bool read_set(Atom* atom, bool inside = false) {
        const bool negated = take("^");
        bool any = false;
        while (!take("]")) {
            any = true;
            if (read_named(atom)) {
                if (atom->negated) { return false; }     // \S in a set
                continue;
            }
            if (take("[:")) { return false; }            // [:alpha:]
            if (take("[")) {
                const bool read = !inside && read_set(atom, true);
                if (!read || atom->negated) { return false; }
                continue;
            }
            uint32_t first;
            if (take("&&") || !read_character("[]-", &first)) { return false; }
            uint32_t last = first;
            if (take("-") && !read_character("[]-&", &last)) { return false; }
            if (last < first) { return false; }
            atom->ranges.push_back({ first, last });
        }
        join_ranges(&atom->ranges);
        atom->negated = negated;
        return any;
    }

    bool read_atom(Atom* atom) {
        if (take("(?!\\S)")) {
            atom->kind = ATOM_NOT_BEFORE;
            atom->kinds = IS_SPACE;
            atom->negated = true;
            return true;
        }
        if (take("(?i:'s|'t|'re|'ve|'m|'ll|'d)")) {
            atom->kind = ATOM_CONTRACTION;
            atom->least = take("?") ? 0 : 1;
            return true;
        }
        if (take("$")) {
            atom->kind = ATOM_LINE_END;
            return true;
        }
        if (take("[")) { return read_set(atom); }
        if (read_named(atom)) { return true; }
        uint32_t code;
        if (!read_character("[]().*+?{}^$|#", &code)) { return false; }
        atom->ranges.push_back({ code, code });
        return true;
    }

    // Reads how often a set is taken. ?+ ++ {1,3}+ mean something else, and are not read.
    bool read_times(Atom* atom) {
        if (atom->kind != ATOM_SET) { return true; }
        if (take("{1,3}")) {
            atom->most = 3;
        } else if (take("?")) {
            atom->least = 0;
        } else if (take("*")) {
            atom->least = 0;
            atom->most = INT_MAX;
        } else if (take("+")) {
            atom->most = INT_MAX;
        }
        return done() || !strchr("?*+{", regex[at]);
    }
};

bool pattern_parse(const std::string& regex, Pattern* pattern) {
    for (auto& pair : TOGETHER) {
        const std::string both = std::string(pair[0]) + pair[1];
        const size_t n = times_in(regex, both);
        if (times_in(regex, pair[0]) != n || times_in(regex, pair[1]) != n) { return false; }
    }
    if (!utf8_valid(regex)) { return false; }
    PatternReader r = { regex, 0 };
    pattern->assign(1, {});
    while (!r.done()) {
        if (r.take("|")) {
            pattern->emplace_back();
            continue;
        }
        Atom atom;
        if (!r.read_atom(&atom) || !r.read_times(&atom)) { return false; }
        pattern->back().push_back(atom);
    }
    for (auto& a : *pattern) {
        const auto takes = [](const Atom& atom) {
            return (atom.kind == ATOM_SET || atom.kind == ATOM_CONTRACTION) && atom.least;
        };
        if (std::none_of(a.begin(), a.end(), takes)) { return false; }   // may match nothing
    }
    return true;
}

static bool is_run(const Atom& atom) { return atom.kind == ATOM_SET && atom.most == INT_MAX; }

bool pattern_is_linear(const Pattern& pattern) {
    if (pattern.size() > 1) { return false; }
    const Alternative& a = pattern[0];
    if (a.size() > 4) { return false; }                  // each a? doubles the ways to try
    for (size_t k = 0; k + 1 < a.size(); k++) {
        const bool before_condition = k == 0 && a.size() == 2 && a[1].kind != ATOM_SET;
        if (is_run(a[k]) && !before_condition) { return false; }
    }
    return true;
}

// ----------------------------------------------------------------------------
// matching

static int kinds_of_class(int c) {
    if (c == CLASS_L) { return IS_CASELESS; }
    if (c == CLASS_N) { return IS_NUMBER; }
    return c == CLASS_S ? IS_SPACE : 0;
}

static std::vector<unsigned char>* load_kinds() {
    const Unicode& u = unicode();
    auto* kinds = new std::vector<unsigned char>(u.flags.size());
    for (size_t code = 0; code < kinds->size(); code++) {
        (*kinds)[code] = (unsigned char)kinds_of_class(u.flags[code] & CLASS_MASK);
    }
    const auto mark_as = [&](const char* table, int kind) {
        for (auto [first, last] : read_ranges(table)) {
            for (uint32_t code = first; code <= last; code++) {
                (*kinds)[code] = (unsigned char)(((*kinds)[code] & ~IS_CASELESS) | kind);
            }
        }
    };
    mark_as(unicode_mark, IS_MARK);
    mark_as(unicode_punctuation, IS_PUNCTUATION);
    mark_as(unicode_symbol, IS_SYMBOL);
    mark_as(unicode_upper, IS_UPPER);
    mark_as(unicode_small, IS_SMALL);
    return kinds;
}

// Returns the kinds of each code point. Never freed: threads may outlive exit().
static const std::vector<unsigned char>& character_kinds() {
    static const std::vector<unsigned char>* kinds = load_kinds();
    return *kinds;
}

static bool is_in(const Atom& atom, uint32_t code) {
    const CodeRanges& ranges = atom.ranges;
    const auto behind = std::upper_bound(ranges.begin(), ranges.end(), std::make_pair(code, ~0u));
    const bool listed = behind != ranges.begin() && code <= behind[-1].second;
    const bool in = listed || (character_kinds()[code] & atom.kinds);
    return in != atom.negated;
}

static bool holds(const Atom& atom, const std::string& s, size_t i) {
    if (i == s.size()) { return true; }
    if (atom.kind == ATOM_LINE_END) { return s[i] == '\n'; }
    int bytes;
    return !is_in(atom, utf8_at(&s[i], &bytes));
}

// Returns the end of as many characters of a set as it can take at s[i]. *taken: how many.
static size_t take_most(const Atom& atom, const std::string& s, size_t i, int* taken) {
    int bytes;
    *taken = 0;
    while (i < s.size() && *taken < atom.most && is_in(atom, utf8_at(&s[i], &bytes))) {
        i += bytes;
        (*taken)++;
    }
    return i;
}

// Returns the end of the match of atoms k and behind at s[i], std::string::npos if there is none.
static size_t match_from(const Alternative& a, size_t k, const std::string& s, size_t i) {
    if (k == a.size()) { return i; }
    const Atom& atom = a[k];
    if (atom.kind == ATOM_CONTRACTION) {
        const bool apostrophe = i < s.size() && s[i] == '\'';
        const size_t length = apostrophe ? contraction(s.data(), i, s.size(), true) : 0;
        if (!length && atom.least) { return s.npos; }
        const size_t whole = match_from(a, k + 1, s, i + length);
        if (whole != s.npos || !length || atom.least) { return whole; }
        return match_from(a, k + 1, s, i);
    }
    if (atom.kind != ATOM_SET) { return holds(atom, s, i) ? match_from(a, k + 1, s, i) : s.npos; }
    int taken;
    size_t end = take_most(atom, s, i, &taken);
    for (; taken >= atom.least; taken--) {
        const size_t whole = match_from(a, k + 1, s, end);
        if (whole != s.npos) { return whole; }
        if (!taken) { continue; }
        do { end--; } while ((s[end] & 0xC0) == 0x80);   // one character back
    }
    return s.npos;
}

size_t pattern_match(const Pattern& pattern, const std::string& s, size_t i, size_t* skip) {
    for (auto& a : pattern) {
        const size_t end = match_from(a, 0, s, i);
        if (end != s.npos) { return end; }
    }
    int bytes;
    utf8_at(&s[i], &bytes);
    *skip = i + bytes;
    const Atom& first = pattern[0][0];
    if (pattern.size() > 1 || !is_run(first)) { return i; }
    // a run behind which the condition does not hold: nor does it from a later start
    int taken;
    *skip = std::max(*skip, take_most(first, s, i, &taken));
    return i;
}
