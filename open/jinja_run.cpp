/*
open/jinja_run.cpp -- runs the tree of a template: expressions, then statements, then jinja_run.
*/
#include <limits.h>
#include <math.h>
#include <time.h>
#include "jinja_functions.h"
#include "jinja_parse.h"

typedef std::map<std::string, Value> Frame;              // the names of a template, of one pass of
                                                         // a loop, or of a macro
struct Runner {
    std::vector<Frame> frames;
    std::map<std::string, const Node*> macros;
    std::string* out = NULL;
    long steps = 0;
    int depth = 0;                                       // of macros

    void step() {
        if (++steps > MOST_STEPS) { jinja_fail("takes too many steps"); }
    }

    void write(const std::string& s) {
        *out += s;
        check_length(*out);
    }

    Value find(const std::string& name) const {
        for (size_t i = frames.size(); i-- > 0;) {
            const auto v = frames[i].find(name);
            if (v != frames[i].end()) { return v->second; }
        }
        return Value();
    }
};

static Value evaluate(Runner* r, const Node& n);
enum Flow { FLOW_ON, FLOW_BREAK, FLOW_CONTINUE };
static Flow execute(Runner* r, const Node& n);

// Runs a block and returns what it writes.
static std::string written_by(Runner* r, const Node& block) {
    std::string text;
    std::string* before = r->out;
    r->out = &text;
    execute(r, block);
    r->out = before;
    return text;
}

// ----------------------------------------------------------------------------
// calls

// Evaluates the arguments of a call, filter or test: all kids but the first.
static Arguments arguments_of(Runner* r, const Node& n) {
    Arguments a;
    for (size_t i = 1; i < n.kids.size(); i++) {
        const Value v = evaluate(r, n.kids[i]);
        const std::string& name = n.words[i - 1];
        if (name.empty()) { a.values.push_back(v); } else { a.named.push_back({ name, v }); }
    }
    return a;
}

// Computes range(end), range(begin, end) and range(begin, end, step).
static Value range_of(const Arguments& a) {
    const size_t count = a.values.size();
    long bounds[3] = { 0, 0, 1 };
    for (size_t i = 0; i < count && i < 3; i++) {
        if (!is_number(a.values[i])) { jinja_fail("has a range of other things than numbers"); }
        bounds[i] = a.values[i].number;
    }
    if (count == 1) { std::swap(bounds[0], bounds[1]); }
    const auto [begin, end, step] = bounds;
    if (count == 0 || count > 3 || step == 0) { jinja_fail("has a range without end"); }
    Values all;
    for (long i = begin; step > 0 ? i < end : i > end; i += step) {
        all.push_back(jinja_int(i));
        if (all.size() > MOST_RANGE) { jinja_fail("has too long a range"); }
    }
    return list_of(all);
}

// Calls a macro, which sees only the names of the template and its own arguments.
static Value call_macro(Runner* r, const Node& macro, const Arguments& a) {
    if (++r->depth > MOST_DEPTH / 4) { jinja_fail("calls macros within macros too deep"); }
    Frame frame;
    for (size_t i = 0; i < macro.words.size(); i++) {
        const std::string& name = macro.words[i];
        const Value* given = a.get(i, name.c_str());
        frame[name] = given ? *given : evaluate(r, macro.kids[i + 1]);
    }
    std::vector<Frame> below;
    below.swap(r->frames);
    r->frames = { below[0], frame };
    const std::string text = written_by(r, macro.kids[0]);
    r->frames.swap(below);
    r->depth--;
    return jinja_string(text);
}

static Value strftime_now(const std::string& format) {
    char text[256];
    const time_t now = time(NULL);
    struct tm here;
    if (!localtime_r(&now, &here)) { return jinja_string(""); }
    const size_t length = strftime(text, sizeof text, format.c_str(), &here);   // 0: too long
    return jinja_string(std::string(text, length));
}

static Value object_of(const Arguments& a, bool may_change) {
    Value made = jinja_object();
    made.space = may_change;
    for (auto& [name, value] : a.named) { jinja_set(&made, name, value); }
    return made;
}

// The functions of the language. They are no values, but they are defined.
struct FunctionRow {
    const char* name;
    Value (*call)(const Arguments&);
};
static const FunctionRow FUNCTIONS[] = {
    { "raise_exception",
      [](const Arguments& a) -> Value { jinja_fail("says: " + a.text(0, "message", "")); } },
    { "strftime_now", [](const Arguments& a) { return strftime_now(a.text(0, "format", "")); } },
    { "range",        range_of },
    { "namespace",    [](const Arguments& a) { return object_of(a, true); } },
    { "dict",         [](const Arguments& a) { return object_of(a, false); } },
};

static const FunctionRow* find_function(const std::string& name) {
    for (auto& row : FUNCTIONS) {
        if (name == row.name) { return &row; }
    }
    return NULL;
}

static Value evaluate_call(Runner* r, const Node& n) {
    const Node& callee = n.kids[0];
    const Arguments a = arguments_of(r, n);
    if (callee.kind == NODE_FIELD) {
        return call_method(callee.name, evaluate(r, callee.kids[0]), a);
    }
    if (callee.kind != NODE_NAME) { jinja_fail("calls something that is not a function"); }
    const auto macro = r->macros.find(callee.name);
    if (macro != r->macros.end()) { return call_macro(r, *macro->second, a); }
    const FunctionRow* function = find_function(callee.name);
    if (!function) { jinja_fail("calls '" + callee.name + "', which is not known here"); }
    return function->call(a);
}

static bool evaluate_test(Runner* r, const Node& n) {
    const Node& tested = n.kids[0];
    if (n.name == "defined" && tested.kind == NODE_NAME) {
        if (r->macros.count(tested.name) || find_function(tested.name)) { return true; }
    }
    const Value v = evaluate(r, tested);
    return apply_test(n.name, v, arguments_of(r, n));
}

// ----------------------------------------------------------------------------
// indices and slices

// Evaluates a bound of a slice: a number, or absent.
static Value slice_part(Runner* r, const Node& n) {
    const Value v = evaluate(r, n);
    const bool absent = is_undefined(v) || v.type == Value::NONE;
    if (!absent && !is_number(v)) { jinja_fail("slices at something that is not a number"); }
    return v;
}

// The indices that a slice of `size` elements may have as bounds.
struct SliceRange {
    long size;
    long low;
    long high;
};

// Returns a bound as an index in range. absent: what it is if it is not given.
static long slice_bound(const Value& bound, const SliceRange& range, long absent) {
    if (!is_number(bound)) { return absent; }
    long i = bound.number;
    if (i < 0) { i += range.size; }
    return std::max(range.low, std::min(i, range.high));
}

static Value evaluate_slice(Runner* r, const Node& n) {
    const Value sliced = evaluate(r, n.kids[0]);
    const Value first = slice_part(r, n.kids[1]);
    const Value last = slice_part(r, n.kids[2]);
    const Value given_step = slice_part(r, n.kids[3]);
    const long step = is_number(given_step) ? given_step.number : 1;
    if (step == 0) { jinja_fail("cuts in steps of 0"); }
    if (is_undefined(sliced) || is_number(sliced)) { jinja_fail("cuts " + type_name(sliced)); }

    const Values all = elements_of(sliced);
    const long size = (long)all.size();
    const bool forward = step > 0;
    SliceRange range = { size, -1, size - 1 };
    if (forward) { range = { size, 0, size }; }
    const long begin = slice_bound(first, range, forward ? range.low : range.high);
    const long end = slice_bound(last, range, forward ? range.high : range.low);
    Values out;
    for (long i = begin; forward ? i < end : i > end; i += step) { out.push_back(all[i]); }
    return is_text(sliced) ? jinja_string(join_texts(out, "")) : list_of(out);
}

static Value index_value(const Value& v, const Value& key) {
    if (is_undefined(v)) { jinja_fail("looks into an undefined value"); }
    if (is_text(key)) { return value_or_undefined(field_of(v, key.string)); }
    if (!is_number(key)) { jinja_fail("has " + type_name(key) + " as an index"); }
    if (!is_list(v) && !is_text(v)) { return Value(); }
    const Values all = elements_of(v);
    const long size = (long)all.size();
    const long i = key.number < 0 ? key.number + size : key.number;
    const bool inside = i >= 0 && i < size;
    return inside ? all[i] : Value();
}

// ----------------------------------------------------------------------------
// operators

static Value add_lists(const Value& a, const Value& b) {
    Values both = *a.items;
    both.insert(both.end(), b.items->begin(), b.items->end());
    if (both.size() > MOST_RANGE) { jinja_fail("makes too long a list"); }
    return list_of(both);
}

static Value add(const Value& sum, const std::string& sign, const Value& v) {
    const bool plus = sign == "+";
    if (is_number(sum) && is_number(v)) {
        return jinja_int(plus ? sum.number + v.number : sum.number - v.number);
    }
    if (plus && is_text(sum) && is_text(v)) {
        const std::string both = sum.string + v.string;
        check_length(both);
        return jinja_string(both);
    }
    if (plus && is_list(sum) && is_list(v)) { return add_lists(sum, v); }
    jinja_fail("adds " + type_name(v) + " to " + type_name(sum));
}

static Value evaluate_sum(Runner* r, const Node& n) {
    Value sum = evaluate(r, n.kids[0]);
    for (size_t i = 1; i < n.kids.size(); i++) {
        r->step();
        sum = add(sum, n.words[i - 1], evaluate(r, n.kids[i]));
    }
    return sum;
}

static Value multiply(const Value& product, const std::string& sign, const Value& v) {
    if (!is_number(product) || !is_number(v)) {
        jinja_fail("multiplies something that is not a number");
    }
    const long a = product.number;
    const long b = v.number;
    if (sign == "*") {
        const bool large = fabs((double)a * b) > (double)MOST_NUMBER;
        return jinja_int(large ? LONG_MAX : a * b);
    }
    const bool known = sign == "//" || sign == "%";
    if (b == 0 || !known) { jinja_fail("divides in a way that is not known here"); }
    const bool rounded_up = a % b != 0 && (a < 0) != (b < 0);
    const long quotient = a / b - rounded_up;
    return jinja_int(sign == "//" ? quotient : a - quotient * b);
}

static Value evaluate_product(Runner* r, const Node& n) {
    Value product = evaluate(r, n.kids[0]);
    for (size_t i = 1; i < n.kids.size(); i++) {
        product = multiply(product, n.words[i - 1], evaluate(r, n.kids[i]));
    }
    return product;
}

// Returns less than 0, 0 or more, as a is below, equal to or above b.
static int order_of(const Value& a, const Value& b) {
    if (is_number(a) && is_number(b)) { return (a.number > b.number) - (a.number < b.number); }
    if (is_text(a) && is_text(b)) { return a.string.compare(b.string); }
    jinja_fail("compares " + type_name(a) + " with " + type_name(b));
}

static bool compare(const Value& a, const std::string& sign, const Value& b) {
    if (sign == "==") { return is_equal(a, b); }
    if (sign == "!=") { return !is_equal(a, b); }
    if (sign == "in") { return contains(b, a); }
    if (sign == "not in") { return !contains(b, a); }
    const int order = order_of(a, b);
    if (sign == "<") { return order < 0; }
    if (sign == ">") { return order > 0; }
    return sign == "<=" ? order <= 0 : order >= 0;
}

// Evaluates comparisons, which stop at the first that fails.
static Value evaluate_compare(Runner* r, const Node& n) {
    Value left = evaluate(r, n.kids[0]);
    for (size_t i = 1; i < n.kids.size(); i++) {
        const Value right = evaluate(r, n.kids[i]);
        if (!compare(left, n.words[i - 1], right)) { return jinja_bool(false); }
        left = right;
    }
    return jinja_bool(true);
}

// Evaluates `and` and `or`, which stop at the part that decides, and give that part itself.
static Value evaluate_logic(Runner* r, const Node& n) {
    const bool decides = n.kind == NODE_OR;
    Value v = evaluate(r, n.kids[0]);
    for (size_t i = 1; i < n.kids.size() && is_true(v) != decides; i++) {
        v = evaluate(r, n.kids[i]);
    }
    return v;
}

// ----------------------------------------------------------------------------
// expressions

static Value evaluate_minus(Runner* r, const Node& n) {
    const Value v = evaluate(r, n.kids[0]);
    if (!is_number(v)) { jinja_fail("has - before " + type_name(v)); }
    return jinja_int(-v.number);
}

static Value evaluate_join(Runner* r, const Node& n) {
    std::string text;
    for (auto& kid : n.kids) { text += text_of(evaluate(r, kid)); }
    check_length(text);
    return jinja_string(text);
}

static Value evaluate_list(Runner* r, const Node& n) {
    Values items;
    for (auto& kid : n.kids) { items.push_back(evaluate(r, kid)); }
    return list_of(items);
}

static Value evaluate_object(Runner* r, const Node& n) {
    Value made = jinja_object();
    for (size_t i = 0; i < n.kids.size(); i += 2) {
        const std::string key = text_of(evaluate(r, n.kids[i]));
        jinja_set(&made, key, evaluate(r, n.kids[i + 1]));
    }
    return made;
}

static Value evaluate_filter(Runner* r, const Node& n) {
    const Value v = evaluate(r, n.kids[0]);
    return apply_filter(n.name, v, arguments_of(r, n));
}

static Value evaluate_index(Runner* r, const Node& n) {
    const Value v = evaluate(r, n.kids[0]);
    return index_value(v, evaluate(r, n.kids[1]));
}

static Value evaluate_if(Runner* r, const Node& n) {
    const bool condition = is_true(evaluate(r, n.kids[0]));
    return evaluate(r, n.kids[condition ? 1 : 2]);
}

static Value evaluate(Runner* r, const Node& n) {
    r->step();
    switch (n.kind) {
        case NODE_VALUE: return n.value;
        case NODE_NAME: return r->find(n.name);
        case NODE_FIELD: return index_value(evaluate(r, n.kids[0]), jinja_string(n.name));
        case NODE_INDEX: return evaluate_index(r, n);
        case NODE_SLICE: return evaluate_slice(r, n);
        case NODE_CALL: return evaluate_call(r, n);
        case NODE_FILTER: return evaluate_filter(r, n);
        case NODE_TEST: return jinja_bool(evaluate_test(r, n));
        case NODE_NOT: return jinja_bool(!is_true(evaluate(r, n.kids[0])));
        case NODE_AND: case NODE_OR: return evaluate_logic(r, n);
        case NODE_COMPARE: return evaluate_compare(r, n);
        case NODE_SUM: return evaluate_sum(r, n);
        case NODE_PRODUCT: return evaluate_product(r, n);
        case NODE_IF: return evaluate_if(r, n);
        case NODE_MINUS: return evaluate_minus(r, n);
        case NODE_JOIN: return evaluate_join(r, n);
        case NODE_LIST: return evaluate_list(r, n);
        case NODE_OBJECT: return evaluate_object(r, n);
        default: jinja_fail("has a statement where a value belongs");
    }
}

// ----------------------------------------------------------------------------
// statements

// Returns what `loop` is in pass i.
static Value loop_of(const Values& all, size_t i) {
    const long n = (long)all.size();
    const long index = (long)i;
    Value loop = jinja_object();
    jinja_set(&loop, "index", jinja_int(index + 1));
    jinja_set(&loop, "index0", jinja_int(index));
    jinja_set(&loop, "revindex", jinja_int(n - index));
    jinja_set(&loop, "revindex0", jinja_int(n - index - 1));
    jinja_set(&loop, "length", jinja_int(n));
    jinja_set(&loop, "first", jinja_bool(index == 0));
    jinja_set(&loop, "last", jinja_bool(index == n - 1));
    if (index > 0) { jinja_set(&loop, "previtem", all[i - 1]); }
    if (index < n - 1) { jinja_set(&loop, "nextitem", all[i + 1]); }
    return loop;
}

// Gives a value to a name, or its elements to several.
static void bind(Runner* r, const std::vector<std::string>& names, const Value& v) {
    Frame& frame = r->frames.back();
    if (names.size() == 1) {
        frame[names[0]] = v;
        return;
    }
    const Values elements = elements_of(v);
    if (elements.size() != names.size()) { jinja_fail("takes apart a value of another length"); }
    for (size_t i = 0; i < names.size(); i++) { frame[names[i]] = elements[i]; }
}

// Returns the elements that a loop goes through: those that meet its condition.
static Values loop_elements(Runner* r, const Node& n) {
    Values wanted;
    for (auto& v : elements_of(evaluate(r, n.kids[0]))) {
        r->frames.push_back({});
        bind(r, n.words, v);
        if (is_true(evaluate(r, n.kids[1]))) { wanted.push_back(v); }
        r->frames.pop_back();
    }
    return wanted;
}

static void execute_for(Runner* r, const Node& n) {
    const Values all = loop_elements(r, n);
    bool whole = false;                                  // did one pass reach its end?
    Flow flow = FLOW_ON;
    for (size_t i = 0; i < all.size() && flow != FLOW_BREAK; i++) {
        r->frames.push_back({});
        bind(r, n.words, all[i]);
        r->frames.back()["loop"] = loop_of(all, i);
        flow = execute(r, n.kids[2]);
        whole = whole || flow == FLOW_ON;
        r->frames.pop_back();
    }
    if (!whole && n.kids.size() > 3) { execute(r, n.kids[3]); }
}

// Dies of a value that is nested too deep to be kept, or that holds a namespace: kept in one, it
// could hold itself.
static void check_kept(Runner* r, const Value& v, int depth) {
    r->step();
    if (depth > MOST_DEPTH / 4) { jinja_fail("nests values too deep"); }
    if (v.space) { jinja_fail("keeps a namespace in a namespace"); }
    if (is_list(v)) {
        for (auto& item : *v.items) { check_kept(r, item, depth + 1); }
    }
    if (is_object(v)) {
        for (auto& field : *v.fields) { check_kept(r, field.second, depth + 1); }
    }
}

static void execute_set(Runner* r, const Node& n) {
    Value v;
    if (n.kind == NODE_SET) {
        v = evaluate(r, n.kids[0]);
    } else {
        v = jinja_string(written_by(r, n.kids[0]));
    }
    if (n.words.size() == 1) {
        r->frames.back()[n.words[0]] = v;
        return;
    }
    Value object = r->find(n.words[0]);
    check_kept(r, v, 0);
    if (!object.space) {
        jinja_fail("sets a field of " + n.words[0] + ", which is not a namespace");
    }
    jinja_set(&object, n.words[1], v);
}

static Flow execute_choose(Runner* r, const Node& n) {
    size_t i = 0;
    for (; i + 1 < n.kids.size(); i += 2) {
        if (is_true(evaluate(r, n.kids[i]))) { return execute(r, n.kids[i + 1]); }
    }
    return i < n.kids.size() ? execute(r, n.kids[i]) : FLOW_ON;
}

static Flow execute_block(Runner* r, const Node& n) {
    for (auto& kid : n.kids) {
        const Flow flow = execute(r, kid);
        if (flow != FLOW_ON) { return flow; }
    }
    return FLOW_ON;
}

static Flow execute(Runner* r, const Node& n) {
    r->step();
    switch (n.kind) {
        case NODE_CHOOSE: return execute_choose(r, n);
        case NODE_BREAK: return FLOW_BREAK;
        case NODE_CONTINUE: return FLOW_CONTINUE;
        case NODE_TEXT: r->write(n.value.string); break;
        case NODE_PRINT: r->write(text_of(evaluate(r, n.kids[0]))); break;
        case NODE_FOR: execute_for(r, n); break;
        case NODE_SET: case NODE_SET_BLOCK: execute_set(r, n); break;
        case NODE_MACRO: r->macros[n.name] = &n; break;
        default: return execute_block(r, n);
    }
    return FLOW_ON;
}

std::string jinja_run(const std::string& text, const std::map<std::string, JinjaValue>& values,
                      std::string* out) {
    out->clear();
    try {
        if (text.size() > MOST_TEXT) { jinja_fail("is too long"); }
        std::string lines = replace_text(text, "\r\n", "\n");
        if (ends_with(lines, "\n")) { lines.pop_back(); }
        const Node all = jinja_parse(lines);
        Runner r;
        r.frames = { values };
        r.out = out;
        execute(&r, all);
        return "";
    } catch (const JinjaError& e) {
        return e.what;
    }
}
