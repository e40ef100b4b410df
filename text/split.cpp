/*
text/split.cpp -- cuts a piece into stretches, of which some are matches, and joins them as the
step's behavior says.
*/
#include "split.h"
#include <limits.h>
#include "normalize.h"

// A stretch of a piece; match: it is what the step looks for.
struct Stretch {
    size_t begin;
    size_t end;
    bool match;
};
typedef std::vector<Stretch> Stretches;

// Joins stretches as the `behavior` of a Split says.
static Stretches join_stretches(Stretches in, int behavior) {
    const bool with_previous = behavior == MERGED_WITH_PREVIOUS;
    const bool with_next = behavior == MERGED_WITH_NEXT;
    Stretches out;
    bool match_before = false;
    if (with_next) { std::reverse(in.begin(), in.end()); }
    for (auto& s : in) {
        if (behavior == REMOVED && s.match) { continue; }
        bool join = (with_previous || with_next) && s.match && !match_before;
        if (behavior == CONTIGUOUS) { join = s.match == match_before; }
        match_before = s.match;
        if (!join || out.empty()) {
            out.push_back(s);
            continue;
        }
        out.back().begin = std::min(out.back().begin, s.begin);
        out.back().end = std::max(out.back().end, s.end);
    }
    if (with_next) { std::reverse(out.begin(), out.end()); }
    return out;
}

// Cuts a piece at its matches, and keeps what is between them. invert: that counts as the match.
static Stretches find_matches(const std::string& piece, const Match& match, bool invert = false) {
    Stretches found;
    size_t gap = 0;
    size_t i = 0;
    while (i < piece.size()) {
        size_t next;
        const size_t end = match(piece, i, &next);
        if (end == i) {
            i = next;
            continue;
        }
        if (gap < i) { found.push_back({ gap, i, invert }); }
        found.push_back({ i, end, !invert });
        i = end;
        gap = end;
    }
    if (gap < piece.size()) { found.push_back({ gap, piece.size(), invert }); }
    return found;
}

// Matches a text, which has to live as long as the match. Where it does not begin at i, *next is
// where to look again.
static Match match_text(const std::string& pattern) {
    return [&pattern](const std::string& s, size_t i, size_t* next) {
        *next = std::min(s.find(pattern, i), s.size());
        return *next == i ? i + pattern.size() : i;
    };
}

// Matches a run of digits, or each digit alone.
static Match match_digits(bool each_alone) {
    return [=](const std::string& s, size_t i, size_t* next) {
        const size_t n = s.size();
        int bytes;
        *next = i;
        while (*next < n && class_at(unicode(), &s[*next], &bytes) != CLASS_N) { *next += bytes; }
        if (*next > i) { return i; }
        return split_digits(unicode(), s.data(), i, n, each_alone ? 1 : INT_MAX);
    };
}

static Match match_known(const Step& step) {
    return [&step](const std::string& s, size_t i, size_t*) {
        return split_known(unicode(), step, s.data(), i, s.size());
    };
}

static Stretches find_stretches(const std::string& piece, const Step& step) {
    switch (step.kind) {
        case SPLIT_STRING:
            return join_stretches(find_matches(piece, match_text(step.pattern), step.flag),
                                  step.number);
        case SPLIT_PATTERN: return find_matches(piece, step.match);
        case SPLIT_DIGITS:  return find_matches(piece, match_digits(step.flag));
        default:            return find_matches(piece, match_known(step));
    }
}

static void push_stretches(const std::string& piece, const Stretches& stretches,
                           std::vector<std::string>* out) {
    for (auto& s : stretches) { out->push_back(piece.substr(s.begin, s.end - s.begin)); }
}

// Writes each blank as the replacement, puts one in front if the step says so, and may cut before
// each of them.
static void split_metaspace(const Step& step, std::string piece, bool at_start,
                            std::vector<std::string>* out) {
    const std::string& block = step.pattern;
    replace_all(&piece, " ", block);
    const bool has_block = starts_with(piece, block);
    const bool wants_block = step.number == PREPEND_ALWAYS ||
                             (step.number == PREPEND_FIRST && at_start);
    if (wants_block && !has_block) { piece = block + piece; }
    if (!step.flag) {
        out->push_back(piece);
        return;
    }
    const Stretches stretches = find_matches(piece, match_text(block));
    push_stretches(piece, join_stretches(stretches, MERGED_WITH_NEXT), out);
}

void split_step(const Step& step, const std::string& piece, bool at_start,
                std::vector<std::string>* out) {
    switch (step.kind) {
        case SPLIT_PREFIX:
            out->push_back(piece[0] == ' ' ? piece : " " + piece);
            return;
        case SPLIT_METASPACE:
            split_metaspace(step, piece, at_start, out);
            return;
        default:
            push_stretches(piece, find_stretches(piece, step), out);
    }
}
