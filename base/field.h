/*
field.h -- a member of a struct as data: its name, its type, what it may be, and where it is. The
properties of a model (arch.h) and the flags (flags.h) are rows of this kind.
*/
#ifndef FIELD_H
#define FIELD_H
#include "common.h"
#include "rows.h"

typedef std::string str;
typedef int kind;         // one of the names of a table

enum FieldType {
    FIELD_int, FIELD_long, FIELD_float, FIELD_double, FIELD_bool, FIELD_str, FIELD_kind
};

struct Field {
    FieldType type;
    const char* field;
    double low, high;                            // of a number
    std::vector<std::string> names;              // of a kind
    const char* help;
    void* at;

    // Tells whether it is set by words: a text, or a name.
    bool takes_words() const { return type == FIELD_str || type == FIELD_kind; }
};

inline const std::string& kind_name(const Field& f) { return f.names[*(kind*)f.at]; }

// Sets a kind by name; false if it has no value of that name.
bool kind_set(const Field& f, const std::string& name);

// Joins words as a sentence does: "last, all or none".
std::string listed(const std::vector<std::string>& words, const char* last);

// Returns the number of an int or a float, `low` of what is none.
double field_number(const Field& f);

// Returns the value as words, or as JSON.
std::string field_text(const Field& f, bool json);

// Sets it from words; returns "" or what was wanted.
std::string field_set(const Field& f, const std::string& text);

// Says what is wanted of a number where it is out of range, or "".
std::string field_wrong(const Field& f, double v);
#endif // FIELD_H
