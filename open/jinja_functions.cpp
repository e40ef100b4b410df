/*
open/jinja_functions.cpp -- what jinja_functions.h declares.
*/
#include "jinja_functions.h"

static const char* const SPACES = " \t\n\v\f\r\x1c\x1d\x1e\x1f";

const Value* Arguments::get(size_t i, const char* name) const {
    for (auto& argument : named) {
        if (argument.first == name) { return &argument.second; }
    }
    return i < values.size() ? &values[i] : NULL;
}

std::string Arguments::text(size_t i, const char* name, const std::string& absent) const {
    const Value* v = get(i, name);
    const bool given = v && v->type != Value::NONE;
    return given ? text_of(*v) : absent;
}

// ----------------------------------------------------------------------------
// texts

static std::string strip(const std::string& s, const std::string& characters, bool left,
                         bool right) {
    const auto stripped = [&](char c) { return characters.find(c) != std::string::npos; };
    size_t begin = 0;
    size_t end = s.size();
    while (left && begin < end && stripped(s[begin])) { begin++; }
    while (right && end > begin && stripped(s[end - 1])) { end--; }
    return s.substr(begin, end - begin);
}

std::string replace_text(const std::string& s, const std::string& pattern,
                         const std::string& content) {
    if (pattern.empty()) { jinja_fail("replaces an empty text"); }
    std::string out;
    size_t done = 0;
    for (;;) {
        const size_t place = s.find(pattern, done);
        if (place == std::string::npos) { break; }
        out += s.substr(done, place - done) + content;
        done = place + pattern.size();
        check_length(out);
    }
    return out + s.substr(done);
}

static std::string change_case(std::string s, int (*change)(int)) {
    for (auto& c : s) {
        if (c & 0x80) { jinja_fail("changes the case of a letter outside ASCII"); }
        c = (char)change(c);
    }
    return s;
}

static std::string lower(const std::string& s) { return change_case(s, tolower); }
static std::string upper(const std::string& s) { return change_case(s, toupper); }

// Capitalizes the first letter of each word.
static std::string title(const std::string& s) {
    std::string out = lower(s);
    bool inside = false;
    for (auto& c : out) {
        const bool letter = isalpha((unsigned char)c);
        if (!inside) { c = (char)toupper((unsigned char)c); }
        inside = letter;
    }
    return out;
}

static std::string capitalize(const std::string& s) {
    std::string out = lower(s);
    if (!out.empty()) { out[0] = (char)toupper((unsigned char)out[0]); }
    return out;
}

std::string join_texts(const Values& all, const std::string& between) {
    std::string out;
    for (size_t i = 0; i < all.size(); i++) {
        if (i > 0) { out += between; }
        out += text_of(all[i]);
    }
    return out;
}

static Values split_at_spaces(const std::string& s) {
    Values words;
    size_t i = s.find_first_not_of(SPACES);
    while (i != std::string::npos) {
        const size_t end = std::min(s.find_first_of(SPACES, i), s.size());
        words.push_back(jinja_string(s.substr(i, end - i)));
        i = s.find_first_not_of(SPACES, end);
    }
    return words;
}

// Computes s.split(separator, most); without a separator at white space.
static Value split_text(const std::string& s, const Arguments& a) {
    const Value* most = a.get(1, "maxsplit");
    const std::string separator = a.text(0, "sep", "");
    if (separator.empty()) {
        if (most) { jinja_fail("splits at whitespace a given number of times"); }
        return list_of(split_at_spaces(s));
    }
    long left = -1;                      // without a limit
    if (most && is_number(*most)) { left = most->number; }
    Values parts;
    size_t done = 0;
    while (left != 0) {
        const size_t place = s.find(separator, done);
        if (place == std::string::npos) { break; }
        parts.push_back(jinja_string(s.substr(done, place - done)));
        done = place + separator.size();
        left--;
    }
    parts.push_back(jinja_string(s.substr(done)));
    return list_of(parts);
}

static bool begins_with(const std::string& s, const std::string& start) {
    return s.compare(0, start.size(), start) == 0;
}

// Tells whether s begins or ends with one of these texts.
static bool has_affix(const std::string& s, const Value& affixes,
                      bool (*has)(const std::string&, const std::string&)) {
    Values all = { affixes };
    if (is_list(affixes)) { all = *affixes.items; }
    return std::any_of(all.begin(), all.end(), [&](const Value& v) { return has(s, text_of(v)); });
}

static Value count_text(const std::string& s, const std::string& pattern) {
    const size_t left = replace_text(s, pattern, "").size();
    return jinja_int((long)((s.size() - left) / pattern.size()));
}

// ----------------------------------------------------------------------------
// JSON as json.dumps writes it: blanks after : and ,

static std::string json_text(const Value& v);

static std::string json_items(const Value& v) {
    std::vector<std::string> items;
    for (auto& item : *v.items) { items.push_back(json_text(item)); }
    return json_list(items, JSON_SPACED);
}

static std::string json_fields(const Value& v) {
    JsonObject o(JSON_SPACED);
    for (auto& [key, value] : *v.fields) { o.json(key, json_text(value)); }
    return o.all();
}

static std::string json_text(const Value& v) {
    switch (v.type) {
        case Value::NONE: return "null";
        case Value::BOOL: return json_bool(v.number);
        case Value::STRING: return json_str(v.string);
        case Value::LIST: return json_items(v);
        case Value::OBJECT: return json_fields(v);
        default: return text_of(v);
    }
}

// ----------------------------------------------------------------------------
// tests

bool contains(const Value& in, const Value& what) {
    if (is_text(in)) {
        if (!is_text(what)) { jinja_fail("looks for " + type_name(what) + " in a text"); }
        return in.string.find(what.string) != std::string::npos;
    }
    if (is_object(in)) { return is_text(what) && field_of(in, what.string); }
    if (!is_list(in)) { jinja_fail("looks into " + type_name(in)); }
    const auto is_what = [&](const Value& item) { return is_equal(item, what); };
    return std::any_of(in.items->begin(), in.items->end(), is_what);
}

static bool is_sequence(const Value& v) { return is_list(v) || is_text(v) || is_object(v); }

// The tests without an argument.
struct TestRow {
    const char* name;
    bool (*passes)(const Value&);
};
static const TestRow TESTS[] = {
    { "defined",   [](const Value& v) { return !is_undefined(v); } },
    { "undefined", is_undefined },
    { "none",      [](const Value& v) { return v.type == Value::NONE; } },
    { "string",    is_text },
    { "mapping",   is_object },
    { "boolean",   [](const Value& v) { return v.type == Value::BOOL; } },
    { "true",      [](const Value& v) { return v.type == Value::BOOL && v.number; } },
    { "false",     [](const Value& v) { return v.type == Value::BOOL && !v.number; } },
    { "number",    is_number },
    { "integer",   [](const Value& v) { return v.type == Value::INT; } },
    { "iterable",  [](const Value& v) { return is_sequence(v) || is_undefined(v); } },
    { "sequence",  is_sequence },
};

bool apply_test(const std::string& name, const Value& v, const Arguments& a) {
    for (auto& row : TESTS) {
        if (name == row.name) { return row.passes(v); }
    }
    const bool odd = v.number % 2 != 0;
    if (name == "odd" && is_number(v)) { return odd; }
    if (name == "even" && is_number(v)) { return !odd; }
    if (a.values.size() == 1) {
        const Value& other = a.values[0];
        if (name == "eq" || name == "equalto") { return is_equal(v, other); }
        if (name == "ne") { return !is_equal(v, other); }
        if (name == "in") { return contains(other, v); }
    }
    jinja_fail("uses the test '" + name + "', which is not known here");
}

// ----------------------------------------------------------------------------
// filters

static Value pairs_of(const Value& v) {
    if (!is_object(v)) { jinja_fail("asks for the items of " + type_name(v)); }
    Values pairs;
    for (auto& [key, value] : *v.fields) { pairs.push_back(list_of({ jinja_string(key), value })); }
    return list_of(pairs);
}

// Computes default(value, boolean): the value for what is undefined, or, if `boolean` is true, for
// what is not true.
static Value default_filter(const Value& v, const Arguments& a) {
    const Value* otherwise = a.get(0, "default_value");
    const Value* falsy = a.get(1, "boolean");
    const bool also_false = falsy && is_true(*falsy);
    const bool used = is_undefined(v) || (also_false && !is_true(v));
    if (!used) { return v; }
    return otherwise ? *otherwise : jinja_string("");
}

// Computes selectattr and rejectattr(name, test, ..): the elements whose field passes, or does not.
static Value select_filter(const Value& v, const Arguments& a, bool wanted) {
    const std::string field = a.text(0, "attribute", "");
    const std::string test = a.text(1, "test", "");
    Arguments rest;
    for (size_t i = 2; i < a.values.size(); i++) { rest.values.push_back(a.values[i]); }
    Values selected;
    for (auto& item : elements_of(v)) {
        const Value value = value_or_undefined(field_of(item, field));
        const bool passes = test.empty() ? is_true(value) : apply_test(test, value, rest);
        if (passes == wanted) { selected.push_back(item); }
    }
    return list_of(selected);
}

// Computes map(attribute='name').
static Value map_filter(const Value& v, const std::string& field) {
    Values mapped;
    for (auto& item : elements_of(v)) {
        mapped.push_back(value_or_undefined(field_of(item, field)));
    }
    return list_of(mapped);
}

static Value reversed(const Value& v) {
    Values all = elements_of(v);
    std::reverse(all.begin(), all.end());
    return list_of(all);
}

static Value first_of(const Value& v) {
    const Values all = elements_of(v);
    return all.empty() ? Value() : all.front();
}

static Value last_of(const Value& v) {
    const Values all = elements_of(v);
    return all.empty() ? Value() : all.back();
}

struct FilterRow {
    const char* name;
    Value (*apply)(const Value&, const Arguments&);
};
#define FILTER(NAME, VALUE) \
    { NAME, [](const Value& v, const Arguments& a) { (void)a; return VALUE; } }
static const FilterRow FILTERS[] = {
    { "default", default_filter },
    { "d",       default_filter },
    FILTER("trim",       jinja_string(strip(text_of(v), a.text(0, "chars", SPACES), true, true))),
    FILTER("length",     jinja_int((long)length_of(v))),
    FILTER("count",      jinja_int((long)length_of(v))),
    FILTER("upper",      jinja_string(upper(text_of(v)))),
    FILTER("lower",      jinja_string(lower(text_of(v)))),
    FILTER("capitalize", jinja_string(capitalize(text_of(v)))),
    FILTER("string",     jinja_string(text_of(v))),
    FILTER("safe",       jinja_string(text_of(v))),
    FILTER("items",      is_undefined(v) ? jinja_list() : pairs_of(v)),
    FILTER("replace",
           jinja_string(replace_text(text_of(v), a.text(0, "old", ""), a.text(1, "new", "")))),
    FILTER("join",       jinja_string(join_texts(elements_of(v), a.text(0, "d", "")))),
    FILTER("selectattr", select_filter(v, a, true)),
    FILTER("rejectattr", select_filter(v, a, false)),
    FILTER("list",       list_of(elements_of(v))),
    FILTER("first",      first_of(v)),
    FILTER("last",       last_of(v)),
    FILTER("reverse",    reversed(v)),
};

Value apply_filter(const std::string& name, const Value& v, const Arguments& a) {
    for (auto& row : FILTERS) {
        if (name == row.name) { return row.apply(v, a); }
    }
    // these are known only for some arguments
    const bool no_arguments = a.values.empty() && a.named.empty();
    if (name == "tojson" && no_arguments && !is_undefined(v)) { return jinja_string(json_text(v)); }
    if (name == "int" && is_number(v)) { return jinja_int(v.number); }
    const Value* attribute = a.get(a.values.size(), "attribute");        // by its name alone
    if (name == "map" && attribute && !text_of(*attribute).empty()) {
        return map_filter(v, text_of(*attribute));
    }
    jinja_fail("uses the filter '" + name + "', which is not known here for these arguments");
}

// ----------------------------------------------------------------------------
// methods

// Calls a method of a text that wants one argument. Returns false if this is none of them.
static bool text_method_of_one(const std::string& name, const std::string& s, const Value& argument,
                               Value* result) {
    if (name == "startswith") {
        *result = jinja_bool(has_affix(s, argument, begins_with));
        return true;
    }
    if (name == "endswith") {
        *result = jinja_bool(has_affix(s, argument, ends_with));
        return true;
    }
    if (name == "join") {
        *result = jinja_string(join_texts(elements_of(argument), s));
        return true;
    }
    if (name == "count" && !text_of(argument).empty()) {
        *result = count_text(s, text_of(argument));
        return true;
    }
    const bool ascii = std::none_of(s.begin(), s.end(), [](char c) { return c & 0x80; });
    if (name == "find" && ascii) {
        const size_t place = s.find(text_of(argument));
        *result = jinja_int(place == std::string::npos ? -1 : (long)place);
        return true;
    }
    return false;
}

static Value text_method(const std::string& name, const std::string& s, const Arguments& a) {
    const bool left = name == "lstrip";
    const bool right = name == "rstrip";
    if (left || right || name == "strip") {
        return jinja_string(strip(s, a.text(0, "chars", SPACES), !right, !left));
    }
    if (name == "upper") { return jinja_string(upper(s)); }
    if (name == "lower") { return jinja_string(lower(s)); }
    if (name == "title") { return jinja_string(title(s)); }
    if (name == "split") { return split_text(s, a); }
    if (name == "replace" && a.values.size() == 2) {
        return jinja_string(replace_text(s, text_of(a.values[0]), text_of(a.values[1])));
    }
    Value result;
    const bool one = a.values.size() == 1;
    if (one && text_method_of_one(name, s, a.values[0], &result)) { return result; }
    jinja_fail("calls the method '" + name + "' of a text, which is not known here");
}

static Value keys_or_values(const Value& v, bool keys) {
    Values all;
    for (auto& [key, value] : *v.fields) { all.push_back(keys ? jinja_string(key) : value); }
    return list_of(all);
}

static Value object_method(const std::string& name, const Value& v, const Arguments& a) {
    if (name == "items") { return pairs_of(v); }
    if (name == "keys") { return keys_or_values(v, true); }
    if (name == "values") { return keys_or_values(v, false); }
    if (name == "get" && !a.values.empty()) {
        const Value* found = field_of(v, text_of(a.values[0]));
        const Value* otherwise = a.get(1, "default");
        if (found) { return *found; }
        return otherwise ? *otherwise : jinja_none();
    }
    jinja_fail("calls the method '" + name + "' of an object, which is not known here");
}

Value call_method(const std::string& name, const Value& v, const Arguments& a) {
    if (is_text(v)) { return text_method(name, v.string, a); }
    if (is_object(v)) { return object_method(name, v, a); }
    jinja_fail("calls the method '" + name + "' of " + type_name(v));
}
