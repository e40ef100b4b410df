/*
text/split.cpp -- cuts a piece into stretches, of which some are matches, and joins them as the
step's behavior says.
*/
#include "split.h"
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

// Cuts a piece at every place where `pattern` stands. invert: what is between counts as the match.
static Stretches find_pattern(const std::string& piece, const std::string& pattern, bool invert) {
    Stretches found;
    size_t done = 0;
    for (;;) {
        const size_t place = piece.find(pattern, done);
        if (place == piece.npos) { break; }
        const size_t end = place + pattern.size();
        if (place > done) { found.push_back({ done, place, invert }); }
        found.push_back({ place, end, !invert });
        done = end;
    }
    if (done < piece.size()) { found.push_back({ done, piece.size(), invert }); }
    return found;
}

// Cuts a piece at its digits: at runs of them, or at each one alone.
static Stretches find_digits(const std::string& piece, bool each_alone) {
    const Unicode& u = unicode();
    Stretches found;
    int bytes;
    for (size_t i = 0; i < piece.size(); i += bytes) {
        const bool digit = class_at(u, &piece[i], &bytes) == CLASS_N;
        const bool same = !found.empty() && found.back().match == digit;
        const bool alone = digit && each_alone;
        if (same && !alone) {
            found.back().end = i + bytes;
        } else {
            found.push_back({ i, i + bytes, digit });
        }
    }
    return found;
}

static Stretches find_known(const std::string& piece, const Step& step) {
    const Unicode& u = unicode();
    Stretches found;
    size_t end;
    for (size_t i = 0; i < piece.size(); i = end) {
        end = split_known(u, step, piece.data(), i, piece.size());
        found.push_back({ i, end, false });
    }
    return found;
}

// Cuts a piece at the matches of an expression, and keeps what is between them.
static Stretches find_matches(const std::string& piece, const Match& match) {
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
        found.push_back({ gap, i, false });
        found.push_back({ i, end, true });
        i = end;
        gap = end;
    }
    found.push_back({ gap, piece.size(), false });
    return found;
}

static Stretches find_stretches(const std::string& piece, const Step& step) {
    switch (step.kind) {
        case SPLIT_STRING:
            return join_stretches(find_pattern(piece, step.pattern, step.flag), step.number);
        case SPLIT_PATTERN: return find_matches(piece, step.match);
        case SPLIT_DIGITS:  return find_digits(piece, step.flag);
        default:            return find_known(piece, step);
    }
}

static void push_stretches(const std::string& piece, const Stretches& stretches,
                           std::vector<std::string>* out) {
    for (auto& s : stretches) {
        if (s.end > s.begin) { out->push_back(piece.substr(s.begin, s.end - s.begin)); }
    }
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
    push_stretches(piece, join_stretches(find_pattern(piece, block, false), MERGED_WITH_NEXT), out);
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
