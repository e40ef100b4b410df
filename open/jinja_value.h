/*
jinja_value.h -- what the parts of the interpreter of chat templates share: values, errors and
limits. A template is a file from elsewhere.
*/
#ifndef JINJA_VALUE_H
#define JINJA_VALUE_H
#include "jinja.h"

typedef JinjaValue Value;
typedef std::vector<Value> Values;

enum { MOST_TEXT = 4 << 20, MOST_STEPS = 4000000, MOST_DEPTH = 200, MOST_RANGE = 100000 };

// Up to here two numbers can be added, and a double holds each product that is allowed.
static const long MOST_NUMBER = 1L << 53;

// Ends the template: it "has ..", "calls ..".
struct JinjaError { std::string what; };
[[noreturn]] void jinja_fail(const std::string& what);

// Dies of a text that is too long.
void check_length(const std::string& text);

Value jinja_int(long n);
Value list_of(const Values& items);

// Returns a field of an object, NULL if there is none.
const Value* field_of(const Value& v, const std::string& key);

// Returns *v, or an undefined value for NULL.
Value value_or_undefined(const Value* v);

inline bool is_number(const Value& v) { return v.type == Value::INT || v.type == Value::BOOL; }
inline bool is_undefined(const Value& v) { return v.type == Value::UNDEFINED; }
inline bool is_text(const Value& v) { return v.type == Value::STRING; }
inline bool is_list(const Value& v) { return v.type == Value::LIST; }
inline bool is_object(const Value& v) { return v.type == Value::OBJECT; }

// Says what kind of value it is, in words: "a list".
std::string type_name(const Value& v);

bool is_true(const Value& v);
bool is_equal(const Value& a, const Value& b);

// Returns what a value is when it is written out.
std::string text_of(const Value& v);

size_t length_of(const Value& v);

// Returns the characters of a text, the elements of a list or the keys of an object.
Values elements_of(const Value& v);
#endif // JINJA_VALUE_H
