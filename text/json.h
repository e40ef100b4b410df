/*
text/json.h -- UTF-8 and JSON: one value type, a strict reader, and what is needed to write.
*/
#ifndef JSON_H
#define JSON_H
#include <stdint.h>
#include <string>
#include <utility>
#include <vector>

// ----------------------------------------------------------------------------
// UTF-8

// adds a code point
void utf8_append(std::string* s, uint32_t c);

// Reads one code point at s[*i] and moves *i past it. On ill-formed input returns -1 and moves past
// one maximal ill-formed subpart (Unicode 16, 3.9, table 3-8), so that a replacement character
// stands for it.
long utf8_next(const char* s, size_t n, size_t* i);

// replaces every ill-formed subpart by U+FFFD; returns how many there were
long utf8_repair(std::string* s);

// ----------------------------------------------------------------------------
// JSON: one value type, a strict reader, and what is needed to write it

struct Json {
    enum Type { NUL, BOOL, NUMBER, STRING, ARRAY, OBJECT } type = NUL;
    double number = 0;                                   // NUMBER, and BOOL as 0 or 1
    std::string string; // STRING, in UTF-8; NUMBER as it was written
    std::vector<Json> items;                             // ARRAY
    std::vector<std::pair<std::string, Json>> fields;    // OBJECT, in the order of the text
    const Json* get(const char* key) const {             // NULL if absent
        for (auto& f : fields) { if (f.first == key) { return &f.second; } }
        return NULL;
    }
};

// What a reader may be told of a text that others wrote: `keep`, if not empty, are the only keys
// whose values are wanted. All else is checked and not stored, nor are elements of arrays, so that
// a record costs what its wanted fields do.
enum { JSON_MOST = 4000000 }; // values in one text: 4 times those of the largest tokenizer.json

// reads exactly one JSON value; on failure says where and why in *error. replaced (may be NULL) +=
// U+FFFDs put in; keep: only values of these keys, see above
bool json_parse(const char* s, size_t n, Json* out, std::string* error, long* replaced = NULL,
                const std::vector<const char*>& keep = {});

// always UTF-8: what is none, as the bytes of a path may be, becomes U+FFFD
std::string json_str(std::string s);

// JSON has no NaN and no infinity: those are null
std::string json_num(double v);

// a text, or the file at path, as JSON; dies if it is none
Json json_of(const std::string& text, const std::string& name = "JSON");
Json json_file(const std::string& path);
#endif // JSON_H
