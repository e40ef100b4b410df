/*
base/json.h -- UTF-8 and JSON: one value type, a strict reader, and what is needed to write.
*/
#ifndef JSON_H
#define JSON_H
#include <stdint.h>
#include <string>
#include <utility>
#include <vector>

// ----------------------------------------------------------------------------
// UTF-8

// Appends a code point.
void utf8_append(std::string* s, uint32_t c);

// Reads one code point at s[*i] and moves *i past it. On ill-formed input returns -1 and moves past
// one maximal ill-formed subpart (Unicode 16, 3.9, table 3-8), so that a replacement character
// stands for it.
long utf8_next(const std::string& s, size_t* i);

// Replaces every ill-formed subpart by U+FFFD. Returns how many there were.
long utf8_repair(std::string* s);

// Tells whether all of s is well-formed UTF-8.
bool utf8_valid(const std::string& s);

// ----------------------------------------------------------------------------
// JSON: one value type, a strict reader, and what is needed to write it

struct Json {
    enum Type { NUL, BOOL, NUMBER, STRING, ARRAY, OBJECT } type = NUL;
    double number = 0;                                   // NUMBER, and BOOL as 0 or 1
    std::string string;                                  // STRING, in UTF-8; NUMBER as written
    std::vector<Json> items;                             // ARRAY
    std::vector<std::pair<std::string, Json>> fields;    // OBJECT, in the order of the text
    const Json* get(const std::string& key) const {      // NULL if absent
        for (auto& f : fields) { if (f.first == key) { return &f.second; } }
        return NULL;
    }
    const Json& operator[](const std::string& key) const {       // of no type if absent
        static const Json none;
        const Json* value = get(key);
        return value ? *value : none;
    }
    bool is_number() const { return type == NUMBER; }
    bool is_text() const { return type == STRING; }
};

inline double json_number(const Json& j, const char* key, double otherwise) {
    return j[key].is_number() ? j[key].number : otherwise;
}

// What a reader may be told of a text that others wrote: `keep`, if not empty, are the only keys
// whose values are wanted. All else is checked and not stored, nor are elements of arrays, so that
// a record costs what its wanted fields do.
enum { JSON_MOST = 4000000 }; // values in one text: 4 times those of the largest tokenizer.json

// Reads exactly one JSON value. On failure returns false, with the place and the reason in *error.
// *replaced (may be NULL) grows by the U+FFFDs put in. keep: only values of these keys, see above.
bool json_parse(const char* s, size_t n, Json* out, std::string* error, long* replaced = NULL,
                const std::vector<const char*>& keep = {});

// Parses a text, or the file at path. Ends the program if it is not JSON.
Json json_of(const std::string& text, const std::string& name = "JSON");
Json json_file(const std::string& path);

// ----------------------------------------------------------------------------
// writing

// Quotes a string. The result is always UTF-8: invalid bytes, of a path, say, become U+FFFD.
std::string json_str(std::string s);

// Writes a number in 9 digits, null if it is NaN or infinite: JSON has neither.
std::string json_num(double v);

inline std::string json_bool(bool v) { return v ? "true" : "false"; }

// Writes a value that was read, as an error shows it: a list or an object that is not empty is only
// named.
std::string json_short(const Json& v);

// How a list or an object is laid out: {"a":1,"b":2}, {"a": 1, "b": 2}, or a line for each field.
enum JsonLayout { JSON_DENSE, JSON_SPACED, JSON_LINES };

// Joins values that are JSON already: [a,b], or [a, b] if JSON_SPACED.
std::string json_list(const std::vector<std::string>& values, JsonLayout layout = JSON_DENSE);

// Writes numbers as a list; or as a list of rows, `cols` numbers each.
std::string json_array(const std::vector<double>& v);
std::string json_matrix(const std::vector<double>& v, int cols);

// An object that is written field by field.
struct JsonObject {
    JsonLayout layout;
    std::string fields;                                  // what stands between the braces

    explicit JsonObject(JsonLayout layout = JSON_DENSE) : layout(layout) {}

    void json(const std::string& key, const std::string& value);   // the value is JSON already
    void text(const std::string& key, const std::string& value) { json(key, json_str(value)); }
    void boolean(const std::string& key, bool value) { json(key, json_bool(value)); }
    void number(const std::string& key, double value) { json(key, json_num(value)); }
    void array(const std::string& key, const std::vector<double>& v) { json(key, json_array(v)); }
    void decimals(const std::string& key, double value, int digits);
    void count(const std::string& key, double value) { decimals(key, value, 0); }

    // Returns the object with its braces.
    std::string all() const;
};
#endif // JSON_H
