/*
jinja_functions.h -- filters, tests and methods of the language, as tables.
*/
#ifndef JINJA_FUNCTIONS_H
#define JINJA_FUNCTIONS_H
#include "jinja_value.h"

// The arguments of a call, filter or test; those with a name apart.
struct Arguments {
    Values values;
    std::vector<std::pair<std::string, Value>> named;

    // Returns argument i, or the one of this name; NULL if neither is given.
    const Value* get(size_t i, const char* name) const;

    // The same, as a text; `absent` if it is not given or none.
    std::string text(size_t i, const char* name, const std::string& absent) const;
};

// Computes v|name(..).
Value apply_filter(const std::string& name, const Value& v, const Arguments& a);

// Computes `v is name(..)`.
bool apply_test(const std::string& name, const Value& v, const Arguments& a);

// Computes v.name(..).
Value call_method(const std::string& name, const Value& v, const Arguments& a);

// Tells whether a list, an object or a text contains a value.
bool contains(const Value& in, const Value& what);

std::string join_texts(const Values& all, const std::string& between);
std::string replace_text(const std::string& s, const std::string& pattern,
                         const std::string& content);
#endif // JINJA_FUNCTIONS_H
