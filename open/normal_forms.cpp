/*
open/normal_forms.cpp -- the normalizers that few tokenizers have. Their tables are read when the
first of them is asked.
*/
#include "normal_forms.h"
#include "../text/unicode_tables.h"

struct UnicodeChanges {
    std::unordered_map<uint32_t, CodePoints> compatibility;  // in full
    std::unordered_map<uint32_t, uint32_t> lower;
    std::vector<bool> accent;                                // by code point
};

static void load_compatibility(UnicodeChanges* changes) {
    uint32_t code = 0;
    long part = 0;
    for (const char* p = unicode_compatibility; *p;) {
        code += unicode_number(&p);
        const uint32_t length = unicode_number(&p);
        CodePoints& parts = changes->compatibility[code];
        for (uint32_t k = 0; k < length; k++) {
            part += unicode_signed(&p);
            parts.push_back((uint32_t)part);
        }
    }
}

static void load_lower(UnicodeChanges* changes) {
    uint32_t code = 0;
    for (const char* p = unicode_lower; *p;) {
        code += unicode_number(&p);
        const uint32_t more = unicode_number(&p);
        const uint32_t step = unicode_number(&p);
        const long difference = unicode_signed(&p);
        for (uint32_t k = 0; k <= more; k++) {
            changes->lower[code + k * step] = (uint32_t)(code + k * step + difference);
        }
        code += more * step;
    }
}

static void load_accents(UnicodeChanges* changes) {
    changes->accent.assign(0x110000, false);
    const auto begin = changes->accent.begin();
    for (auto [first, last] : read_ranges(unicode_accent)) {
        std::fill(begin + first, begin + last + 1, true);
    }
}

static UnicodeChanges changes_load() {
    UnicodeChanges changes;
    load_compatibility(&changes);
    load_lower(&changes);
    load_accents(&changes);
    return changes;
}

static const UnicodeChanges& unicode_changes() {
    static const UnicodeChanges* changes = new UnicodeChanges(changes_load());
    return *changes;
}

std::string normal_form(const std::string& s, NormalForm form) {
    if (ascii_run(s.data(), 0, s.size()) == s.size()) { return s; }
    const Unicode& u = unicode();
    const UnicodeChanges& changes = unicode_changes();
    CodePoints codes;
    int bytes;
    for (size_t i = 0; i < s.size(); i += bytes) {
        const uint32_t code = utf8_at(&s[i], &bytes);
        const auto found = changes.compatibility.find(code);
        if (form == FORM_D || found == changes.compatibility.end()) {
            decompose(u, code, &codes);
        } else {
            codes.insert(codes.end(), found->second.begin(), found->second.end());
        }
    }
    order_marks(u, &codes);
    if (form == FORM_KC) { compose(u, &codes); }
    std::string out;
    for (uint32_t code : codes) { utf8_append(&out, code); }
    return out;
}

std::string lower_case(const std::string& s) {
    const UnicodeChanges& changes = unicode_changes();
    std::string out;
    int bytes;
    for (size_t i = 0; i < s.size(); i += bytes) {
        const uint32_t code = utf8_at(&s[i], &bytes);
        if (code == 0x130) {                             // I with a dot becomes i and a dot
            out += "i\u0307";
            continue;
        }
        const auto found = changes.lower.find(code);
        utf8_append(&out, found == changes.lower.end() ? code : found->second);
    }
    return out;
}

std::string without_accents(const std::string& s) {
    const UnicodeChanges& changes = unicode_changes();
    std::string out;
    int bytes;
    for (size_t i = 0; i < s.size(); i += bytes) {
        if (!changes.accent[utf8_at(&s[i], &bytes)]) { out.append(s, i, bytes); }
    }
    return out;
}

std::string without_space(const std::string& s, bool start, bool end) {
    const Unicode& u = unicode();
    size_t first = s.size();                             // the first that is kept
    size_t last = 0;                                     // the end of the last one
    int bytes;
    for (size_t i = 0; i < s.size(); i += bytes) {
        if (class_at(u, &s[i], &bytes) == CLASS_S) { continue; }
        first = std::min(first, i);
        last = i + bytes;
    }
    if (last == 0) { return start || end ? "" : s; }     // only space
    if (!start) { first = 0; }
    if (!end) { last = s.size(); }
    return s.substr(first, last - first);
}
