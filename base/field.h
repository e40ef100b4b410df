/*
field.h -- a member of a struct as data: its name, its type, what it may be, and where it is. The
properties of a model (arch.h) and the flags (flags.h) are rows of this kind.
*/
#ifndef FIELD_H
#define FIELD_H
#include "common.h"

typedef std::string str;
typedef std::string list; // numbers with commas between
typedef int kind;         // one of the names of a table

enum FieldType {
    FIELD_int, FIELD_long, FIELD_float, FIELD_double, FIELD_bool, FIELD_str, FIELD_list, FIELD_kind
};

// ---- a table of names, or of rows that begin with one

constexpr const char* name_of(const char* name) { return name; }
template <class Row> constexpr const char* name_of(const Row& row) { return row.name; }

// Returns the number of the row of this name, -1 if there is none.
template <class Row, int N> constexpr int find_row(const Row (&rows)[N], const char* name) {
    for (int i = 0; i < N; i++) {
        int same = 0;
        while (name[same] && name_of(rows[i])[same] == name[same]) { same++; }
        if (name_of(rows[i])[same] == name[same]) { return i; }
    }
    return -1;
}

// Returns the same; one that is not there does not compile.
template <class Row, int N> constexpr int row_named(const Row (&rows)[N], const char* name) {
    const int found = find_row(rows, name);
    if (found < 0) { throw "no row has this name"; }
    return found;
}

// Returns the names of all rows.
template <class Row, int N> std::vector<std::string> names_of(const Row (&rows)[N]) {
    std::vector<std::string> names;
    for (auto& row : rows) { names.push_back(name_of(row)); }
    return names;
}

// ---- a field
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

// Returns the name of a kind's value.
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
