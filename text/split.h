/*
split.h -- text -> pieces: the steps of a pre_tokenizer. The two expressions that most tokenizers
split by are written out by hand here, as inner loops.
*/
#ifndef SPLIT_H
#define SPLIT_H
#include "vocabulary.h"
#include "unicode.h"

// Applies one step to one piece and appends the pieces it makes. at_start: the piece is at the very
// start of the text.
void split_step(const Step& step, const std::string& piece, bool at_start,
                std::vector<std::string>* out);

// Tells whether a step splits by an expression that is written out by hand.
inline bool is_known_split(const Step& step) {
    return step.kind == SPLIT_GPT2 || step.kind == SPLIT_CL100K;
}

// ----------------------------------------------------------------------------
// the two expressions

inline bool is_line_end(char c) { return c == '\r' || c == '\n'; }

// Returns the length of 's 't 're 've 'm 'll 'd at s[i], an apostrophe; 0 if there is none. In any
// case, U+017F (long s) is an s.
inline size_t contraction(const char* s, size_t i, size_t n, bool any_case) {
    if (i + 1 >= n) { return 0; }
    unsigned char first = s[i + 1];
    unsigned char second = 0;
    if (i + 2 < n) { second = s[i + 2]; }
    if (any_case) {
        if (first == 0xC5 && second == 0xBF) { return 3; }
        if (first < 0x80) { first |= 0x20; }
        if (second < 0x80) { second |= 0x20; }
    }
    switch (first) {
        case 's': case 't': case 'm': case 'd': return 2;
        case 'r': case 'v': return second == 'e' ? 3 : 0;
        case 'l': return second == 'l' ? 3 : 0;
        default: return 0;
    }
}

// Returns the end of \s+(?!\S)|\s+ at s[i]: all of the space if it ends the text or is a single
// character, else all but its last character.
inline size_t split_space(const Unicode& u, const char* s, size_t i, size_t n) {
    size_t end = i;
    size_t last = i;
    int bytes;
    while (end < n && class_at(u, s + end, &bytes) == CLASS_S) {
        last = end;
        end += bytes;
    }
    const bool single = last == i;
    return end == n || single ? end : last;
}

// Returns the end of the piece that starts at s[i]:
// 's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
inline size_t split_gpt2(const Unicode& u, const char* s, size_t i, size_t n) {
    if (s[i] == '\'') {
        const size_t length = contraction(s, i, n, false);
        if (length) { return i + length; }
    }
    const size_t word = i + (s[i] == ' ');
    if (word == n) { return n; }
    int bytes;
    const int kind = class_at(u, s + word, &bytes);
    if (kind != CLASS_S) { return class_run(u, s, word + bytes, n, kind); }
    return split_space(u, s, i, n);
}

// Returns the end of at most `most` digits from s[i] on.
inline size_t split_digits(const Unicode& u, const char* s, size_t i, size_t n, int most) {
    int bytes;
    for (int k = 0; k < most && i < n && class_at(u, s + i, &bytes) == CLASS_N; k++) { i += bytes; }
    return i;
}

// Returns the end of \s*[\r\n]+|\s+(?!\S)|\s+ at s[i].
inline size_t split_lines(const Unicode& u, const char* s, size_t i, size_t n) {
    size_t after_line = 0;
    int bytes;
    for (size_t end = i; end < n && class_at(u, s + end, &bytes) == CLASS_S; end += bytes) {
        if (is_line_end(s[end])) { after_line = end + 1; }
    }
    return after_line ? after_line : split_space(u, s, i, n);
}

// Returns the end of the piece that starts at s[i]:
// (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,digits}|
//  ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+
inline size_t split_cl100k(const Unicode& u, const char* s, size_t i, size_t n, int digits) {
    if (s[i] == '\'') {
        const size_t length = contraction(s, i, n, true);
        if (length) { return i + length; }
    }
    int bytes;
    int next_bytes = 0;
    const int kind = class_at(u, s + i, &bytes);
    if (kind == CLASS_L) { return class_run(u, s, i + bytes, n, CLASS_L); }
    if (kind == CLASS_N) { return split_digits(u, s, i, n, digits); }

    const size_t next = i + bytes;
    int next_kind = CLASS_S;
    if (next < n) { next_kind = class_at(u, s + next, &next_bytes); }
    if (next_kind == CLASS_L && !is_line_end(s[i])) {
        return class_run(u, s, next + next_bytes, n, CLASS_L);
    }
    const bool blank = s[i] == ' ';
    if (kind == CLASS_OTHER || (blank && next_kind == CLASS_OTHER)) {
        size_t end = class_run(u, s, next, n, CLASS_OTHER);
        while (end < n && is_line_end(s[end])) { end++; }
        return end;
    }
    return split_lines(u, s, i, n);
}

// Returns the end of the piece that starts at s[i], of a step for which is_known_split holds.
inline size_t split_known(const Unicode& u, const Step& step, const char* s, size_t i, size_t n) {
    if (step.kind == SPLIT_GPT2) { return split_gpt2(u, s, i, n); }
    return split_cl100k(u, s, i, n, step.number);
}
#endif // SPLIT_H
