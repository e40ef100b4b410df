/*
text/unicode.cpp -- unpacks the tables of unicode_tables.h once, then looks code points up in
what it made of them.
*/
#include "unicode.h"
#include "unicode_tables.h"

// Korean syllables are composed by rule: syllable = HANGUL + (l * VOWELS + v) * TAILS + t
enum { HANGUL = 0xAC00, JAMO_L = 0x1100, JAMO_V = 0x1161, JAMO_T = 0x11A7 };
enum { LEADS = 19, VOWELS = 21, TAILS = 28 };
enum { SYLLABLES = LEADS * VOWELS * TAILS };

// ----------------------------------------------------------------------------
// the tables

uint32_t unicode_number(const char** p) {
    uint32_t number = 0;
    for (int shift = 0;; shift += 5) {
        const uint32_t digit = *(*p)++ - '0';
        number |= (digit & 31) << shift;
        if (digit < 32) { return number; }
    }
}

long unicode_signed(const char** p) {
    const uint32_t number = unicode_number(p);
    const long half = number / 2;
    return number & 1 ? -half - 1 : half;
}

CodeRanges read_ranges(const char* table) {
    CodeRanges ranges;
    uint32_t code = 0;
    while (*table) {
        const uint32_t first = code + unicode_number(&table);
        code = first + unicode_number(&table);
        ranges.push_back({ first, code });
    }
    return ranges;
}

static void load_class(Unicode* u, CharacterClass c, const char* table) {
    for (auto [first, last] : read_ranges(table)) {
        std::fill(&u->flags[first], &u->flags[last] + 1, (unsigned char)c);
    }
}

static void load_combining_classes(Unicode* u) {
    uint32_t code = 0;
    for (const char* p = unicode_ccc; *p;) {
        code += unicode_number(&p);
        const uint32_t last = code + unicode_number(&p);
        const uint32_t combining = unicode_number(&p);
        for (; code <= last; code++) {
            u->ccc[code] = (unsigned char)combining;
            u->flags[code] |= NFC_CHECK;
        }
        code = last;
    }
}

// Reads decompositions. Kind 0: to one code point; 1: to two, which compose again; 2: to two, which
// do not.
static void load_decompositions(Unicode* u) {
    uint32_t code = 0;
    long second = 0;
    for (const char* p = unicode_decomposition; *p;) {
        code += unicode_number(&p);
        const uint32_t kind = unicode_number(&p);
        const uint32_t first = (uint32_t)(code + unicode_signed(&p));
        if (kind == 0) {
            u->decomposition[code] = { first, 0 };
            u->flags[code] |= NFC_CHECK;
            continue;
        }
        second += unicode_signed(&p);
        u->decomposition[code] = { first, (uint32_t)second };
        if (kind == 1) {
            u->composition[(uint64_t)first << 32 | second] = code;
            u->flags[second] |= NFC_CHECK;
        } else {
            u->flags[code] |= NFC_CHECK;
        }
    }
}

static Unicode unicode_load() {
    const size_t codes = 0x110000;
    Unicode u;
    u.flags.assign(codes, CLASS_OTHER);
    u.ccc.assign(codes, 0);
    load_class(&u, CLASS_L, unicode_L);
    load_class(&u, CLASS_N, unicode_N);
    load_class(&u, CLASS_S, unicode_S);
    load_combining_classes(&u);
    load_decompositions(&u);
    for (int vowel = 0; vowel < VOWELS; vowel++) { u.flags[JAMO_V + vowel] |= NFC_CHECK; }
    for (int tail = 1; tail < TAILS; tail++) { u.flags[JAMO_T + tail] |= NFC_CHECK; }
    return u;
}

const Unicode& unicode() {
    static const Unicode* u = new Unicode(unicode_load());
    return *u;
}

// ----------------------------------------------------------------------------
// normal form C

void decompose(const Unicode& u, uint32_t code, CodePoints* out) {
    if (code >= HANGUL && code < HANGUL + SYLLABLES) {
        const uint32_t syllable = code - HANGUL;
        const uint32_t tail = syllable % TAILS;
        out->push_back(JAMO_L + syllable / (VOWELS * TAILS));
        out->push_back(JAMO_V + syllable / TAILS % VOWELS);
        if (tail) { out->push_back(JAMO_T + tail); }
        return;
    }
    const auto found = u.decomposition.find(code);
    if (found == u.decomposition.end()) {
        out->push_back(code);
        return;
    }
    const auto [first, second] = found->second;
    decompose(u, first, out);
    if (second) { decompose(u, second, out); }
}

// Returns the composite of two code points, 0 if there is none.
static uint32_t compose_pair(const Unicode& u, uint32_t a, uint32_t b) {
    const bool lead = a - JAMO_L < (uint32_t)LEADS;
    const bool vowel = b - JAMO_V < (uint32_t)VOWELS;
    if (lead && vowel) { return HANGUL + ((a - JAMO_L) * VOWELS + (b - JAMO_V)) * TAILS; }

    const uint32_t syllable = a - HANGUL;
    const bool open = syllable < (uint32_t)SYLLABLES && syllable % TAILS == 0;
    const bool tail = b - JAMO_T - 1 < (uint32_t)TAILS - 1;
    if (open && tail) { return a + (b - JAMO_T); }

    const auto found = u.composition.find((uint64_t)a << 32 | b);
    return found == u.composition.end() ? 0 : found->second;
}

void order_marks(const Unicode& u, CodePoints* codes) {
    const auto by_class = [&](uint32_t a, uint32_t b) { return u.ccc[a] < u.ccc[b]; };
    const auto is_mark = [&](uint32_t code) { return u.ccc[code] != 0; };
    auto begin = codes->begin();
    while (begin != codes->end()) {
        begin = std::find_if(begin, codes->end(), is_mark);
        const auto end = std::find_if_not(begin, codes->end(), is_mark);
        std::stable_sort(begin, end, by_class);
        begin = end;
    }
}

void compose(const Unicode& u, CodePoints* codes) {
    size_t kept = 0;
    long starter = -1;
    int last_class = 0;                                  // of the mark kept last, 0 if none
    for (size_t i = 0; i < codes->size(); i++) {
        const uint32_t code = (*codes)[i];
        const int combining = u.ccc[code];
        const bool adjacent = (size_t)starter + 1 == kept;
        if (starter >= 0 && (adjacent || last_class < combining)) {
            const uint32_t both = compose_pair(u, (*codes)[starter], code);
            if (both) {
                (*codes)[starter] = both;
                continue;
            }
        }
        if (combining == 0) { starter = (long)kept; }
        last_class = combining;
        (*codes)[kept++] = code;
    }
    codes->resize(kept);
}

void nfc_stretch(const Unicode& u, const char* s, size_t n, std::string* out) {
    static thread_local CodePoints codes;
    codes.clear();
    int bytes;
    for (size_t i = 0; i < n; i += bytes) { decompose(u, utf8_at(s + i, &bytes), &codes); }
    order_marks(u, &codes);
    compose(u, &codes);
    for (uint32_t code : codes) { utf8_append(out, code); }
}

bool nfc(const char* s, size_t n, std::string* out) {
    const Unicode& u = unicode();
    size_t done = 0;                                     // s[0, done) is in *out
    size_t fixed = 0;                                    // where the last fixed character starts
    int bytes;
    out->clear();
    for (size_t i = 0; i < n;) {
        if (!(s[i] & 0x80)) {
            i = ascii_run(s, i, n);
            fixed = i - 1;
            continue;
        }
        if (!(u.flags[utf8_at(s + i, &bytes)] & NFC_CHECK)) {
            fixed = i;
            i += bytes;
            continue;
        }
        const size_t begin = std::max(done, fixed);
        size_t end = i;
        while (end < n && (u.flags[utf8_at(s + end, &bytes)] & NFC_CHECK)) { end += bytes; }
        out->append(s + done, begin - done);
        nfc_stretch(u, s + begin, end - begin, out);
        done = fixed = i = end;
    }
    if (done == 0) { return false; }
    out->append(s + done, n - done);
    return true;
}
