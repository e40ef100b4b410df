/*
unicode.h -- what tokenizers ask about characters: letter, number or space, and the normal form C.
Classes are those of Unicode 16, the normal forms are those of Unicode 9, as in Hugging Face
tokenizers 0.23. All text here is valid UTF-8.
*/
#ifndef UNICODE_H
#define UNICODE_H
#include <unordered_map>
#include "../base/common.h"

enum CharacterClass { CLASS_OTHER, CLASS_L, CLASS_N, CLASS_S };

// The flags of a code point: its class, and whether the normal form C may change it.
enum { CLASS_MASK = 3, NFC_CHECK = 4 };

struct Unicode {
    std::vector<unsigned char> flags;                    // by code point
    std::vector<unsigned char> ccc;                      // by code point: its combining class

    // code point -> the one or two (second is 0) that it decomposes to
    std::unordered_map<uint32_t, std::pair<uint32_t, uint32_t>> decomposition;

    std::unordered_map<uint64_t, uint32_t> composition;  // first << 32 | second -> composite
};

// Returns the tables. They are never freed: threads may outlive exit().
const Unicode& unicode();

// Appends the normal form C of a stretch whose neighbors cannot take part in it: decomposes, orders
// the marks, composes (UAX 15).
void nfc_stretch(const Unicode& u, const char* s, size_t n, std::string* out);

// Writes the normal form C of s to *out. Returns false, and leaves *out empty, if s is already in
// that form.
bool nfc(const char* s, size_t n, std::string* out);

// ----------------------------------------------------------------------------
// what the normal forms are made of

typedef std::vector<uint32_t> CodePoints;

// Appends what a code point decomposes to, in full.
void decompose(const Unicode& u, uint32_t code, CodePoints* out);

// Sorts each run of marks by combining class; equal ones keep their order.
void order_marks(const Unicode& u, CodePoints* codes);

// Joins each mark to its starter where the two have a composite and no mark between them has the
// same class.
void compose(const Unicode& u, CodePoints* codes);

// ----------------------------------------------------------------------------
// the tables of unicode_tables.h, while they are read

typedef std::vector<std::pair<uint32_t, uint32_t>> CodeRanges;      // first and last

// Reads one number of a table and moves *p behind it.
uint32_t unicode_number(const char** p);

// Reads a number that may be negative.
long unicode_signed(const char** p);

// Reads a table of ranges.
CodeRanges read_ranges(const char* table);

// ----------------------------------------------------------------------------
// characters, in the inner loop of a tokenizer

// Returns the code point that starts at s, and how many bytes it has.
inline uint32_t utf8_at(const char* s, int* bytes) {
    const unsigned char* p = (const unsigned char*)s;
    const uint32_t lead = p[0];
    if (lead < 0x80) {
        *bytes = 1;
        return lead;
    }
    if (lead < 0xE0) {
        *bytes = 2;
        return (lead & 31) << 6 | (p[1] & 63);
    }
    if (lead < 0xF0) {
        *bytes = 3;
        const uint32_t high = (lead & 15) << 12;
        return high | (p[1] & 63) << 6 | (p[2] & 63);
    }
    *bytes = 4;
    const uint32_t high = (lead & 7) << 18 | (p[1] & 63) << 12;
    return high | (p[2] & 63) << 6 | (p[3] & 63);
}

// Returns the end of the run of ASCII bytes that starts at s[i].
inline size_t ascii_run(const char* s, size_t i, size_t n) {
    const uint64_t high = 0x8080808080808080ull;
    for (; i + 8 <= n; i += 8) {
        uint64_t word;
        memcpy(&word, s + i, 8);
        if (word & high) { break; }
    }
    while (i < n && !(s[i] & 0x80)) { i++; }
    return i;
}

// Returns the class of the character that starts at s, and how many bytes it has.
inline int class_at(const Unicode& u, const char* s, int* bytes) {
    const unsigned char lead = *s;
    if (lead < 0x80) {
        *bytes = 1;
        return u.flags[lead] & CLASS_MASK;
    }
    return u.flags[utf8_at(s, bytes)] & CLASS_MASK;
}

// Returns the end of the run of ASCII letters that starts at s[i], to within the last eight bytes.
inline size_t ascii_letters(const char* s, size_t i, size_t n) {
    const uint64_t ones = 0x0101010101010101ull;
    const uint64_t high = 0x80 * ones;
    for (; i + 8 <= n; i += 8) {
        uint64_t word;
        memcpy(&word, s + i, 8);
        const uint64_t lower = (word | 0x20 * ones) & ~high;
        const uint64_t from_a = lower + 0x1F * ones;     // high bit set from 'a' on
        const uint64_t past_z = lower + 0x05 * ones;     // and beyond 'z'
        const uint64_t letters = from_a & ~past_z & ~word & high;
        const uint64_t stop = letters ^ high;
        if (stop) { return i + (__builtin_ctzll(stop) >> 3); }
    }
    return i;
}

// Returns the end of the run of characters of one class that starts at s[i].
inline size_t class_run(const Unicode& u, const char* s, size_t i, size_t n, int wanted) {
    if (wanted == CLASS_L) { i = ascii_letters(s, i, n); }
    int bytes;
    while (i < n && class_at(u, s + i, &bytes) == wanted) { i += bytes; }
    return i;
}
#endif // UNICODE_H
