/*
open/jinja_value.cpp -- what jinja_value.h declares, and the values of jinja.h.
*/
#include "jinja_value.h"

[[noreturn]] void jinja_fail(const std::string& what) { throw JinjaError{ what }; }

void check_length(const std::string& text) {
    if (text.size() > MOST_TEXT) { jinja_fail("writes too long a text"); }
}

// ----------------------------------------------------------------------------
// making values

static Value value_of(Value::Type type) {
    Value v;
    v.type = type;
    return v;
}

JinjaValue jinja_none() { return value_of(Value::NONE); }

JinjaValue jinja_string(const std::string& s) {
    Value v = value_of(Value::STRING);
    v.string = s;
    return v;
}

JinjaValue jinja_bool(bool b) {
    Value v = value_of(Value::BOOL);
    v.number = b;
    return v;
}

Value jinja_int(long n) {
    if (n < -MOST_NUMBER || n > MOST_NUMBER) { jinja_fail("has a number that is too large"); }
    Value v = value_of(Value::INT);
    v.number = n;
    return v;
}

Value list_of(const Values& items) {
    Value v = value_of(Value::LIST);
    v.items = std::make_shared<Values>(items);
    return v;
}

JinjaValue jinja_list() { return list_of({}); }

JinjaValue jinja_object() {
    Value v = value_of(Value::OBJECT);
    v.fields = std::make_shared<std::vector<std::pair<std::string, Value>>>();
    return v;
}

void jinja_set(JinjaValue* object, const std::string& key, const JinjaValue& value) {
    for (auto& field : *object->fields) {
        if (field.first == key) {
            field.second = value;
            return;
        }
    }
    object->fields->push_back({ key, value });
}

// ----------------------------------------------------------------------------
// asking values

const Value* field_of(const Value& v, const std::string& key) {
    if (!is_object(v)) { return NULL; }
    for (auto& field : *v.fields) {
        if (field.first == key) { return &field.second; }
    }
    return NULL;
}

Value value_or_undefined(const Value* v) { return v ? *v : Value(); }

std::string type_name(const Value& v) {
    static const char* const names[] = { "an undefined value", "none", "a boolean", "a number",
                                         "a text", "a list", "an object" };
    return names[v.type];
}

bool is_true(const Value& v) {
    switch (v.type) {
        case Value::BOOL: case Value::INT: return v.number != 0;
        case Value::STRING: return !v.string.empty();
        case Value::LIST: return !v.items->empty();
        case Value::OBJECT: return !v.fields->empty();
        default: return false;
    }
}

std::string text_of(const Value& v) {
    switch (v.type) {
        case Value::UNDEFINED: return "";
        case Value::NONE: return "None";
        case Value::BOOL: return v.number ? "True" : "False";
        case Value::INT: return strf("%ld", v.number);
        case Value::STRING: return v.string;
        default: jinja_fail("writes " + type_name(v) + " as text");
    }
}

static bool same_items(const Values& a, const Values& b) {
    return a.size() == b.size() && std::equal(a.begin(), a.end(), b.begin(), is_equal);
}

static bool same_fields(const Value& a, const Value& b) {
    if (a.fields->size() != b.fields->size()) { return false; }
    for (auto& [key, value] : *a.fields) {
        const Value* other = field_of(b, key);
        if (!other || !is_equal(value, *other)) { return false; }
    }
    return true;
}

bool is_equal(const Value& a, const Value& b) {
    if (is_number(a) && is_number(b)) { return a.number == b.number; }
    if (a.type != b.type) { return false; }
    switch (a.type) {
        case Value::STRING: return a.string == b.string;
        case Value::LIST: return same_items(*a.items, *b.items);
        case Value::OBJECT: return same_fields(a, b);
        default: return true;
    }
}

size_t length_of(const Value& v) {
    switch (v.type) {
        case Value::LIST: return v.items->size();
        case Value::OBJECT: return v.fields->size();
        case Value::UNDEFINED: return 0;
        case Value::STRING: return utf8_count(v.string);
        default: jinja_fail("asks for the length of " + type_name(v));
    }
}

static Values characters_of(const std::string& s) {
    Values all;
    for (size_t i = 0; i < s.size();) {
        const size_t begin = i;
        utf8_next(s.data(), s.size(), &i);
        all.push_back(jinja_string(s.substr(begin, i - begin)));
    }
    return all;
}

Values elements_of(const Value& v) {
    Values keys;
    switch (v.type) {
        case Value::LIST: return *v.items;
        case Value::UNDEFINED: return {};
        case Value::STRING: return characters_of(v.string);
        case Value::OBJECT:
            for (auto& field : *v.fields) { keys.push_back(jinja_string(field.first)); }
            return keys;
        default: jinja_fail("goes through " + type_name(v));
    }
}
