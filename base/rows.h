/*
rows.h -- a table of names, or of rows that begin with one: the row of a name, found when the
program is compiled.
*/
#ifndef ROWS_H
#define ROWS_H
#include <string>
#include <string_view>
#include <vector>

constexpr const char* name_of(const char* name) { return name; }
template <class Row> constexpr const char* name_of(const Row& row) { return row.name; }

// Returns the number of the row of this name, -1 if there is none.
template <class Row, int N> constexpr int find_row(const Row (&rows)[N], const char* name) {
    for (int i = 0; i < N; i++) {
        if (std::string_view(name_of(rows[i])) == name) { return i; }
    }
    return -1;
}

// Returns the same; one that is not there does not compile.
template <class Row, int N> constexpr int row_named(const Row (&rows)[N], const char* name) {
    const int found = find_row(rows, name);
    if (found < 0) { throw "no row has this name"; }
    return found;
}

template <class Row, int N> std::vector<std::string> names_of(const Row (&rows)[N]) {
    std::vector<std::string> names;
    for (auto& row : rows) { names.push_back(name_of(row)); }
    return names;
}
#endif // ROWS_H
