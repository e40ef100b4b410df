/*
text/jinja.cpp -- what jinja.h declares. In reading order: values; lexer, text to tags and words;
parser, words to nodes; evaluation of expressions, filters, methods and tests; statements.
*/
#include "jinja.h"
#include <limits.h>
#include <math.h>

// ---- limits: a template is a file from elsewhere

enum { MOST_TEXT = 4 << 20, MOST_STEPS = 4000000, MOST_DEPTH = 200, MOST_RANGE = 100000 };

struct JinjaError { std::string what; };
[[noreturn]] static void fail(const std::string& what) { throw JinjaError{ what }; }

// ---- values

typedef JinjaValue Value;

JinjaValue jinja_string(const std::string& s) {
    Value v;
    v.type = Value::STRING;
    v.string = s;
    return v;
}

JinjaValue jinja_bool(bool b) {
    Value v;
    v.type = Value::BOOL;
    v.number = b;
    return v;
}

JinjaValue jinja_none() {
    Value v;
    v.type = Value::NONE;
    return v;
}

JinjaValue jinja_list() {
    Value v;
    v.type = Value::LIST;
    v.items = std::make_shared<std::vector<Value>>();
    return v;
}

JinjaValue jinja_object() {
    Value v;
    v.type = Value::OBJECT;
    v.fields = std::make_shared<std::vector<std::pair<std::string, Value>>>();
    return v;
}

// Up to here two numbers can be added, and a double holds each product that is allowed.
static const long MOST_NUMBER = 1L << 53;

static Value jinja_int(long n) {
    if (n < -MOST_NUMBER || n > MOST_NUMBER) { fail("has a number that is too large"); }
    Value v;
    v.type = Value::INT;
    v.number = n;
    return v;
}

void jinja_set(JinjaValue* object, const std::string& key, const JinjaValue& value) {
    for (auto& f : *object->fields) {
        if (f.first == key) { f.second = value; return; }
    }
    object->fields->push_back({ key, value });
}

static const Value* field_of(const Value& v, const std::string& key) {
    if (v.type != Value::OBJECT) { return NULL; }
    for (auto& f : *v.fields) { if (f.first == key) { return &f.second; } }
    return NULL;
}

static bool is_number(const Value& v) { return v.type == Value::INT || v.type == Value::BOOL; }

static bool truth(const Value& v) {
    switch (v.type) {
        case Value::BOOL: case Value::INT: return v.number != 0;
        case Value::STRING: return !v.string.empty();
        case Value::LIST: return !v.items->empty();
        case Value::OBJECT: return !v.fields->empty();
        default: return false;
    }
}

static const char* type_name(const Value& v) {
    static const char* const NAMES[] = { "an undefined value", "none", "a boolean", "a number",
                                         "a text", "a list", "an object" };
    return NAMES[v.type];
}

// What a value is when it is written out.
static std::string text_of(const Value& v) {
    switch (v.type) {
        case Value::UNDEFINED: return "";
        case Value::NONE: return "None";
        case Value::BOOL: return v.number ? "True" : "False";
        case Value::INT: return strf("%ld", v.number);
        case Value::STRING: return v.string;
        default: fail(std::string("writes ") + type_name(v) + " as text");
    }
}

static bool equal(const Value& a, const Value& b) {
    if (is_number(a) && is_number(b)) { return a.number == b.number; }
    if (a.type != b.type) { return false; }
    if (a.type == Value::STRING) { return a.string == b.string; }
    if (a.type == Value::LIST) {
        if (a.items->size() != b.items->size()) { return false; }
        for (size_t i = 0; i < a.items->size(); i++) {
            if (!equal((*a.items)[i], (*b.items)[i])) { return false; }
        }
        return true;
    }
    if (a.type != Value::OBJECT) { return true; }
    bool same = a.fields->size() == b.fields->size();
    for (auto& f : *a.fields) {
        const Value* other = NULL;
        for (auto& g : *b.fields) { if (g.first == f.first) { other = &g.second; } }
        same = same && other && equal(f.second, *other);
    }
    return same;
}

static size_t length_of(const Value& v) {
    if (v.type == Value::LIST) { return v.items->size(); }
    if (v.type == Value::OBJECT) { return v.fields->size(); }
    if (v.type == Value::UNDEFINED) { return 0; }
    if (v.type != Value::STRING) { fail(std::string("asks for the length of ") + type_name(v)); }
    size_t n = 0;
    for (char c : v.string) { n += (c & 0xC0) != 0x80; }
    return n;
}

// The characters of a text, or the elements of a list, or the keys of an object.
static std::vector<Value> elements_of(const Value& v) {
    std::vector<Value> all;
    if (v.type == Value::LIST) { return *v.items; }
    if (v.type == Value::UNDEFINED) { return all; }
    if (v.type == Value::OBJECT) {
        for (auto& f : *v.fields) { all.push_back(jinja_string(f.first)); }
        return all;
    }
    if (v.type != Value::STRING) { fail(std::string("goes through ") + type_name(v)); }
    for (size_t i = 0; i < v.string.size();) {
        const size_t at = i;
        utf8_next(v.string.data(), v.string.size(), &i);
        all.push_back(jinja_string(v.string.substr(at, i - at)));
    }
    return all;
}

// ---- lexer: text, and the words of tags

enum WordKind { WORD_NAME, WORD_STRING, WORD_INT, WORD_SIGN, WORD_END };
struct Word { WordKind kind; std::string text; };

enum PieceKind { PIECE_TEXT, PIECE_PRINT, PIECE_TAG };
struct Piece { PieceKind kind; std::string text; std::vector<Word> words; };

static bool is_space(char c) { return c == ' ' || (c >= 9 && c <= 13); }
static bool is_letter(char c) { return isalpha((unsigned char)c) || c == '_'; }

// The string literal at s[*i], its escapes as in Python.
static std::string string_literal(const std::string& s, size_t* i) {
    const char quote = s[(*i)++];
    std::string out;
    for (; *i < s.size() && s[*i] != quote; (*i)++) {
        if (s[*i] != '\\' || *i + 1 >= s.size()) { out += s[*i]; continue; }
        static const char FROM[] = "ntrfvab0\\'\"", TO[] = "\n\t\r\f\v\a\b\0\\'\"";
        const char* known = strchr(FROM, s[++*i]);
        if (s[*i] == 'u' || s[*i] == 'x') {
            const size_t digits = s[*i] == 'u' ? 4 : 2;
            utf8_append(&out, strtoul(s.substr(*i + 1, digits).c_str(), NULL, 16));
            *i += digits;
            continue;
        }
        if (!known || !*known) { out += '\\'; out += s[*i]; continue; }
        out += TO[known - FROM];
    }
    if (*i >= s.size()) { fail("has a text without an end"); }
    (*i)++;
    return out;
}

// The words of a tag that begins at s[*i], up to its end, "%}" or "}}"; *i is then at the end's
// start.
static std::vector<Word> tag_words(const std::string& s, size_t* i, const char* end) {
    std::vector<Word> words;
    int open = 0; // brackets, within which }} may end an object
    while (*i < s.size()) {
        const char c = s[*i];
        if (is_space(c)) { (*i)++; continue; }
        const bool minus = c == '-' || c == '+';
        if (!open && (s.compare(*i, 2, end) == 0 || (minus && s.compare(*i + 1, 2, end) == 0))) {
            words.push_back({ WORD_END, "" });
            return words;
        }
        size_t at = *i;
        if (c == '\'' || c == '"') {
            words.push_back({ WORD_STRING, string_literal(s, i) });
            continue;
        }
        if (is_letter(c)) {
            while (*i < s.size() && (is_letter(s[*i]) || isdigit((unsigned char)s[*i]))) { (*i)++; }
            words.push_back({ WORD_NAME, s.substr(at, *i - at) });
            continue;
        }
        if (isdigit((unsigned char)c)) {
            while (*i < s.size() && isdigit((unsigned char)s[*i])) { (*i)++; }
            words.push_back({ WORD_INT, s.substr(at, *i - at) });
            continue;
        }
        open += strchr("([{", c) != NULL;
        open -= strchr(")]}", c) != NULL;
        size_t n = 1;
        for (const char* two : { "==", "!=", "<=", ">=", "//", "**" }) {
            if (s.compare(at, 2, two) == 0) { n = 2; }
        }
        words.push_back({ WORD_SIGN, s.substr(at, n) });
        *i += n;
    }
    fail(std::string("has a tag without its ") + end);
}

// Where white space before a tag ends: all of it with a minus, and before a block or a comment that
// stands alone in its line the blanks of that line.
static void strip_before(std::string* text, char sign, bool block, bool line_begins) {
    size_t end = text->size();
    if (sign == '-') {
        while (end > 0 && is_space((*text)[end - 1])) { end--; }
    } else if (sign != '+' && block) {
        const size_t line = text->rfind('\n') + 1;       // 0 if there is none
        size_t at = line;
        while (at < end && is_space((*text)[at])) { at++; }
        if (at == end && (line > 0 || line_begins)) { end = line; }
    }
    text->resize(end);
}

// Cuts a template into texts and tags.
static std::vector<Piece> pieces_of(const std::string& s) {
    std::vector<Piece> pieces;
    bool line_begins = true;
    for (size_t i = 0; i < s.size();) {
        size_t tag = i;
        while (tag < s.size() &&
               !(s[tag] == '{' && tag + 1 < s.size() && strchr("{%#", s[tag + 1]) && s[tag + 1])) {
            tag++;
        }
        std::string text = s.substr(i, tag - i);
        if (tag >= s.size()) { pieces.push_back({ PIECE_TEXT, text, {} }); break; }
        const char kind = s[tag + 1], sign = tag + 2 < s.size() ? s[tag + 2] : 0;
        strip_before(&text, sign, kind != '{', line_begins);
        if (!text.empty()) { pieces.push_back({ PIECE_TEXT, text, {} }); }
        i = tag + 2 + (sign == '-' || sign == '+');
        const char* end = kind == '{' ? "}}" : "%}";
        if (kind == '#') {
            const size_t close = s.find("#}", i);
            if (close == std::string::npos) { fail("has a comment without its #}"); }
            i = close > i && (s[close - 1] == '-' || s[close - 1] == '+') ? close - 1 : close;
        } else {
            const std::vector<Word> words = tag_words(s, &i, end);
            pieces.push_back({ kind == '{' ? PIECE_PRINT : PIECE_TAG, "", words });
        }
        const char last = s[i];
        i += 2 + (last == '-' || last == '+');
        const size_t after = i;
        if (last == '-') { while (i < s.size() && is_space(s[i])) { i++; } }
        else if (last != '+' && kind != '{' && i < s.size() && s[i] == '\n') { i++; }
        line_begins = i > after && s[i - 1] == '\n';
    }
    return pieces;
}

// ---- nodes and the parser

enum NodeKind {
    NODE_VALUE, NODE_NAME, NODE_LIST, NODE_OBJECT, NODE_FIELD, NODE_INDEX, NODE_SLICE, NODE_CALL,
    NODE_FILTER, NODE_TEST, NODE_NOT, NODE_MINUS, NODE_AND, NODE_OR, NODE_IF, NODE_SUM, NODE_JOIN,
    NODE_PRODUCT, NODE_COMPARE,
    // statements
    NODE_TEXT, NODE_PRINT, NODE_CHOOSE, NODE_FOR, NODE_SET, NODE_SET_BLOCK, NODE_MACRO, NODE_BLOCK,
    NODE_BREAK, NODE_CONTINUE
};

// name: of a variable, field, filter or test. words: signs of a chain, or names of targets and
// arguments ("" where there is none).
struct Node {
    NodeKind kind = NODE_VALUE;
    std::string name;
    Value value;
    std::vector<std::string> words;
    std::vector<Node> kids;
};

struct Parser {
    std::vector<Piece> pieces;
    size_t piece = 0, word = 0;
    int depth = 0;

    const Word& now() const { return pieces[piece].words[word]; }
    bool is(const char* text) const {
        return (now().kind == WORD_NAME || now().kind == WORD_SIGN) && now().text == text;
    }
    bool take(const char* text) {
        if (!is(text)) { return false; }
        word++;
        return true;
    }
    void need(const char* text) {
        if (!take(text)) {
            fail(std::string("has '") + now().text + "' where '" + text + "' belongs");
        }
    }
    std::string name() {
        if (now().kind != WORD_NAME) { fail("has '" + now().text + "' where a name belongs"); }
        return pieces[piece].words[word++].text;
    }
};

// Counts how deep the parser is: a template from elsewhere could fill the stack.
struct Deeper {
    Parser* p;
    explicit Deeper(Parser* p) : p(p) {
        if (++p->depth > MOST_DEPTH) { fail("is nested too deep"); }
    }
    ~Deeper() { p->depth--; }
};

static Node parse_expression(Parser* p);
static Node parse_unary(Parser* p);

static Node node_of(NodeKind kind, const std::string& name, std::vector<Node> kids) {
    Node n;
    n.kind = kind;
    n.name = name;
    n.kids = std::move(kids);
    return n;
}

// Arguments up to the closing bracket: their values become kids, their names words.
static void parse_arguments(Parser* p, Node* call) {
    while (!p->take(")")) {
        std::string name;
        const Word& next = p->pieces[p->piece].words[p->word + 1];
        if (p->now().kind == WORD_NAME && next.kind == WORD_SIGN && next.text == "=") {
            name = p->name();
            p->need("=");
        }
        call->words.push_back(name);
        call->kids.push_back(parse_expression(p));
        if (!p->is(")")) { p->need(","); }
    }
}

static Node parse_primary(Parser* p) {
    const Word w = p->now();
    if (w.kind == WORD_END) { fail("has an expression without an end"); }
    p->word++;
    Node n;
    if (w.kind == WORD_STRING) {
        n.value = jinja_string(w.text);
        while (p->now().kind == WORD_STRING) {           // neighbors are one text
            n.value.string += p->now().text;
            p->word++;
        }
        return n;
    }
    if (w.kind == WORD_INT) {
        long number = 0;
        if (!parse_long(w.text, &number)) { fail("has the number " + w.text); }
        if (p->is(".")) { fail("has a number with a point"); }
        n.value = jinja_int(number);
        return n;
    }
    if (w.text == "(") {
        n = parse_expression(p);
        if (p->is(",")) {                                // a tuple is a list
            n = node_of(NODE_LIST, "", { n });
            while (p->take(",")) { if (!p->is(")")) { n.kids.push_back(parse_expression(p)); } }
        }
        p->need(")");
        return n;
    }
    if (w.text == "[") {
        n.kind = NODE_LIST;
        while (!p->take("]")) {
            n.kids.push_back(parse_expression(p));
            if (!p->is("]")) { p->need(","); }
        }
        return n;
    }
    if (w.text == "{") {
        n.kind = NODE_OBJECT;
        while (!p->take("}")) {
            n.kids.push_back(parse_expression(p));
            p->need(":");
            n.kids.push_back(parse_expression(p));
            if (!p->is("}")) { p->need(","); }
        }
        return n;
    }
    if (w.kind != WORD_NAME) { fail("has '" + w.text + "' where a value belongs"); }
    if (w.text == "true" || w.text == "True") { n.value = jinja_bool(true); return n; }
    if (w.text == "false" || w.text == "False") { n.value = jinja_bool(false); return n; }
    if (w.text == "none" || w.text == "None") { n.value = jinja_none(); return n; }
    return node_of(NODE_NAME, w.text, {});
}

// x[1], x[1:], x[::-1]
static Node parse_index(Parser* p, Node of) {
    Node n = node_of(NODE_INDEX, "", { std::move(of) });
    Node absent;                                         // its value is undefined
    std::vector<Node> parts;
    bool slice = false;
    for (parts.push_back(absent); !p->take("]");) {
        if (p->take(":")) { slice = true; parts.push_back(absent); continue; }
        parts.back() = parse_expression(p);
    }
    if (slice) { n.kind = NODE_SLICE; parts.resize(3, absent); }
    for (auto& part : parts) { n.kids.push_back(std::move(part)); }
    return n;
}

// Fields, indices, calls, filters and tests behind a value.
static Node parse_behind(Parser* p, Node n) {
    for (int chain = 0;; chain++) {
        if (chain > MOST_DEPTH) { fail("has a chain too long"); }
        if (p->take(".")) { n = node_of(NODE_FIELD, p->name(), { std::move(n) }); continue; }
        if (p->take("[")) { n = parse_index(p, std::move(n)); continue; }
        if (p->take("(")) {
            n = node_of(NODE_CALL, "", { std::move(n) });
            parse_arguments(p, &n);
            continue;
        }
        if (p->take("|")) {
            n = node_of(NODE_FILTER, p->name(), { std::move(n) });
            if (p->take("(")) { parse_arguments(p, &n); }
            continue;
        }
        if (!p->take("is")) { return n; }
        const bool no = p->take("not");
        n = node_of(NODE_TEST, p->name(), { std::move(n) });
        if (p->take("(")) { parse_arguments(p, &n); }
        else if (p->now().kind == WORD_STRING || p->now().kind == WORD_INT || p->is("[")) {
            n.words.push_back("");
            n.kids.push_back(parse_primary(p));
        }
        if (no) { n = node_of(NODE_NOT, "", { std::move(n) }); }
    }
}

static Node parse_unary(Parser* p) {
    const Deeper deeper(p);
    if (p->take("-")) { return node_of(NODE_MINUS, "", { parse_unary(p) }); }
    if (p->take("+")) { return parse_unary(p); }
    return parse_behind(p, parse_primary(p));
}

// a sign b sign c .., each part by `part`
static Node parse_chain(Parser* p, NodeKind kind, const std::vector<const char*>& signs,
                        Node (*part)(Parser*)) {
    Node first = part(p), chain = node_of(kind, "", {});
    for (;;) {
        const char* found = NULL;
        for (const char* sign : signs) { if (p->is(sign)) { found = sign; } }
        if (!found) { break; }
        p->word++;
        if (chain.kids.empty()) { chain.kids.push_back(std::move(first)); }
        chain.words.push_back(found);
        chain.kids.push_back(part(p));
    }
    return chain.kids.empty() ? first : chain;
}

static Node parse_product(Parser* p) {
    return parse_chain(p, NODE_PRODUCT, { "*", "//", "%", "/", "**" }, parse_unary);
}
static Node parse_join(Parser* p) { return parse_chain(p, NODE_JOIN, { "~" }, parse_product); }
static Node parse_sum(Parser* p) { return parse_chain(p, NODE_SUM, { "+", "-" }, parse_join); }

static Node parse_compare(Parser* p) {
    Node first = parse_sum(p), chain = node_of(NODE_COMPARE, "", {});
    for (;;) {
        std::string sign;
        for (const char* s : { "==", "!=", "<", ">", "<=", ">=", "in" }) {
            if (p->is(s)) { sign = s; }
        }
        const Word& next = p->pieces[p->piece].words[p->word + (p->is("not") ? 1 : 0)];
        const bool not_in = p->is("not") && next.kind == WORD_NAME && next.text == "in";
        if (sign.empty() && !not_in) { break; }
        p->word += not_in ? 2 : 1;
        if (chain.kids.empty()) { chain.kids.push_back(std::move(first)); }
        chain.words.push_back(not_in ? "not in" : sign);
        chain.kids.push_back(parse_sum(p));
    }
    return chain.kids.empty() ? first : chain;
}

static Node parse_not(Parser* p) {
    const Deeper deeper(p);
    if (p->take("not")) { return node_of(NODE_NOT, "", { parse_not(p) }); }
    return parse_compare(p);
}
static Node parse_and(Parser* p) { return parse_chain(p, NODE_AND, { "and" }, parse_not); }
static Node parse_or(Parser* p) { return parse_chain(p, NODE_OR, { "or" }, parse_and); }

static Node parse_expression(Parser* p) {
    const Deeper deeper(p);
    Node value = parse_or(p);
    if (!p->take("if")) { return value; }
    Node condition = parse_or(p), otherwise;
    if (p->take("else")) { otherwise = parse_expression(p); }
    return node_of(NODE_IF, "", { std::move(condition), std::move(value), std::move(otherwise) });
}

// ---- statements

static void end_of_tag(Parser* p) {
    if (p->now().kind != WORD_END) { fail("has '" + p->now().text + "' where a tag should end"); }
    p->piece++;
    p->word = 0;
}

static Node parse_statement(Parser* p);

// Statements up to a tag that begins with one of `ends`; the parser is then behind that word.
static Node parse_block(Parser* p, const std::vector<std::string>& ends, std::string* which) {
    const Deeper deeper(p);
    Node block = node_of(NODE_BLOCK, "", {});
    for (; p->piece < p->pieces.size(); ) {
        if (p->pieces[p->piece].kind == PIECE_TAG) {
            const std::string word = p->now().text;
            if (std::count(ends.begin(), ends.end(), word)) {
                p->word++;
                *which = word;
                return block;
            }
        }
        block.kids.push_back(parse_statement(p));
    }
    if (!ends.empty()) { fail("ends before its " + ends.back()); }
    return block;
}

// condition, block, condition, block, .., or a last block
static Node parse_if(Parser* p) {
    Node n = node_of(NODE_CHOOSE, "", {});
    std::string which = "elif";
    while (which != "endif") {
        if (which == "elif") { n.kids.push_back(parse_expression(p)); }
        end_of_tag(p);
        const bool last = which == "else";
        n.kids.push_back(last ? parse_block(p, { "endif" }, &which)
                              : parse_block(p, { "elif", "else", "endif" }, &which));
    }
    end_of_tag(p);
    return n;
}

// words: targets; kids: list, condition (undefined: none), block, block of an empty list
static Node parse_for(Parser* p) {
    Node n = node_of(NODE_FOR, "", {});
    do { n.words.push_back(p->name()); } while (p->take(","));
    p->need("in");
    n.kids.push_back(parse_or(p));
    Node condition;
    condition.value = jinja_bool(true);
    if (p->take("if")) { condition = parse_expression(p); }
    n.kids.push_back(std::move(condition));
    if (p->take("recursive")) { fail("has a recursive loop"); }
    end_of_tag(p);
    std::string which;
    n.kids.push_back(parse_block(p, { "else", "endfor" }, &which));
    if (which == "else") {
        end_of_tag(p);
        n.kids.push_back(parse_block(p, { "endfor" }, &which));
    }
    end_of_tag(p);
    return n;
}

// words: the name, or the name and a field of it
static Node parse_set(Parser* p) {
    Node n = node_of(NODE_SET, "", {});
    n.words.push_back(p->name());
    if (p->take(".")) { n.words.push_back(p->name()); }
    std::string which;
    if (p->take("=")) {
        n.kids.push_back(parse_expression(p));
        end_of_tag(p);
        return n;
    }
    n.kind = NODE_SET_BLOCK;
    end_of_tag(p);
    n.kids.push_back(parse_block(p, { "endset" }, &which));
    end_of_tag(p);
    return n;
}

// words: arguments; kids: the block, then what each argument is if it is not given
static Node parse_macro(Parser* p) {
    Node n = node_of(NODE_MACRO, p->name(), {});
    std::vector<Node> defaults;
    p->need("(");
    while (!p->take(")")) {
        n.words.push_back(p->name());
        Node otherwise;
        if (p->take("=")) { otherwise = parse_expression(p); }
        defaults.push_back(std::move(otherwise));
        if (!p->is(")")) { p->need(","); }
    }
    end_of_tag(p);
    std::string which;
    n.kids.push_back(parse_block(p, { "endmacro" }, &which));
    for (auto& d : defaults) { n.kids.push_back(std::move(d)); }
    end_of_tag(p);
    return n;
}

static Node parse_statement(Parser* p) {
    const Piece& piece = p->pieces[p->piece];
    Node n;
    if (piece.kind == PIECE_TEXT) {
        n.kind = NODE_TEXT;
        n.value = jinja_string(piece.text);
        p->piece++;
        return n;
    }
    if (piece.kind == PIECE_PRINT) {
        n = node_of(NODE_PRINT, "", { parse_expression(p) });
        end_of_tag(p);
        return n;
    }
    if (p->take("if")) { return parse_if(p); }
    if (p->take("for")) { return parse_for(p); }
    if (p->take("set")) { return parse_set(p); }
    if (p->take("macro")) { return parse_macro(p); }
    std::string which;
    if (p->take("generation")) { // marks the model's own words; writes nothing
        end_of_tag(p);
        n = parse_block(p, { "endgeneration" }, &which);
        end_of_tag(p);
        return n;
    }
    if (p->is("break") || p->is("continue")) {
        n.kind = p->is("break") ? NODE_BREAK : NODE_CONTINUE;
        p->word++;
        end_of_tag(p);
        return n;
    }
    fail("has the tag '" + p->now().text + "', which is not known here");
}

// ---- evaluation

// A frame of names: of the template, of one pass of a loop, of a macro.
struct Runner {
    std::vector<std::map<std::string, Value>> frames;
    std::map<std::string, const Node*> macros;
    std::string* out = NULL;
    long steps = 0;
    int depth = 0;

    void step() { if (++steps > MOST_STEPS) { fail("takes too many steps"); } }
    void write(const std::string& s) {
        *out += s;
        if (out->size() > MOST_TEXT) { fail("writes too long a text"); }
    }
    Value find(const std::string& name) const {
        for (size_t i = frames.size(); i-- > 0;) {
            auto v = frames[i].find(name);
            if (v != frames[i].end()) { return v->second; }
        }
        return Value();
    }
};

static Value evaluate(Runner* r, const Node& n);
enum Flow { FLOW_ON, FLOW_BREAK, FLOW_CONTINUE };
static Flow execute(Runner* r, const Node& n);

static std::string strip(const std::string& s, const std::string& chars, bool left, bool right) {
    size_t b = 0, e = s.size();
    while (left && b < e && chars.find(s[b]) != std::string::npos) { b++; }
    while (right && e > b && chars.find(s[e - 1]) != std::string::npos) { e--; }
    return s.substr(b, e - b);
}
static const char* const SPACES = " \t\n\v\f\r\x1c\x1d\x1e\x1f";

static std::string replaced(const std::string& s, const std::string& from, const std::string& to) {
    if (from.empty()) { fail("replaces an empty text"); }
    std::string out;
    size_t i = 0;
    for (size_t at; (at = s.find(from, i)) != std::string::npos; i = at + from.size()) {
        out += s.substr(i, at - i) + to;
        if (out.size() > MOST_TEXT) { fail("writes too long a text"); }
    }
    return out + s.substr(i);
}

static std::string cased(std::string s, int (*how)(int)) {
    for (auto& c : s) {
        if (c & 0x80) { fail("changes the case of a letter outside ASCII"); }
        c = (char)how(c);
    }
    return s;
}

// As json.dumps writes it: blanks after : and ,.
static std::string json_text(const Value& v) {
    std::string o;
    switch (v.type) {
        case Value::NONE: return "null";
        case Value::BOOL: return v.number ? "true" : "false";
        case Value::STRING: return json_str(v.string);
        case Value::LIST:
            for (auto& item : *v.items) { o += (o.empty() ? "" : ", ") + json_text(item); }
            return "[" + o + "]";
        case Value::OBJECT:
            for (auto& f : *v.fields) {
                o += (o.empty() ? "" : ", ") + json_str(f.first) + ": " + json_text(f.second);
            }
            return "{" + o + "}";
        default: return text_of(v);
    }
}

// The arguments of a call, filter or test from kid `from` on, those with a name apart.
struct Arguments {
    std::vector<Value> values;
    std::vector<std::pair<std::string, Value>> named;
    const Value* get(size_t i, const char* name) const {
        for (auto& n : named) { if (n.first == name) { return &n.second; } }
        return i < values.size() ? &values[i] : NULL;
    }
    std::string text(size_t i, const char* name, const std::string& otherwise) const {
        const Value* v = get(i, name);
        return !v || v->type == Value::NONE ? otherwise : text_of(*v);
    }
};

static Arguments arguments_of(Runner* r, const Node& n, size_t from) {
    Arguments a;
    for (size_t i = from; i < n.kids.size(); i++) {
        const Value v = evaluate(r, n.kids[i]);
        const std::string& name = n.words[i - from];
        if (name.empty()) { a.values.push_back(v); } else { a.named.push_back({ name, v }); }
    }
    return a;
}

static Value pairs_of(const Value& v) {
    Value all = jinja_list();
    if (v.type != Value::OBJECT) { fail(std::string("asks for the items of ") + type_name(v)); }
    for (auto& f : *v.fields) {
        Value pair = jinja_list();
        *pair.items = { jinja_string(f.first), f.second };
        all.items->push_back(pair);
    }
    return all;
}

static std::string joined(const std::vector<Value>& all, const std::string& by) {
    std::string out;
    for (size_t i = 0; i < all.size(); i++) { out += (i ? by : "") + text_of(all[i]); }
    return out;
}

static Value selected(const Value& v, const Arguments& a, bool select);
static Value mapped(const Value& v, const std::string& field);

static Value filtered(Runner* r, const Node& n) {
    const std::string& f = n.name;
    const Value v = evaluate(r, n.kids[0]);
    const Arguments a = arguments_of(r, n, 1);
    const bool missing = v.type == Value::UNDEFINED;
    if (f == "default" || f == "d") {
        const Value *otherwise = a.get(0, "default_value"), *falsy = a.get(1, "boolean");
        const bool use = missing || (falsy && truth(*falsy) && !truth(v));
        return use ? (otherwise ? *otherwise : jinja_string("")) : v;
    }
    if (f == "trim") {
        return jinja_string(strip(text_of(v), a.text(0, "chars", SPACES), true, true));
    }
    if (f == "length" || f == "count") { return jinja_int((long)length_of(v)); }
    if (f == "upper") { return jinja_string(cased(text_of(v), toupper)); }
    if (f == "lower") { return jinja_string(cased(text_of(v), tolower)); }
    if (f == "capitalize") {
        std::string s = cased(text_of(v), tolower);
        if (!s.empty()) { s[0] = (char)toupper((unsigned char)s[0]); }
        return jinja_string(s);
    }
    if (f == "string" || f == "safe") { return jinja_string(text_of(v)); }
    if (f == "tojson" && a.values.empty() && a.named.empty() && !missing) {
        return jinja_string(json_text(v));
    }
    if (f == "items") { return missing ? jinja_list() : pairs_of(v); }
    if (f == "replace") {
        return jinja_string(replaced(text_of(v), a.text(0, "old", ""), a.text(1, "new", "")));
    }
    if (f == "join") { return jinja_string(joined(elements_of(v), a.text(0, "d", ""))); }
    if (f == "int" && is_number(v)) { return jinja_int(v.number); }
    if (f == "selectattr" || f == "rejectattr") { return selected(v, a, f == "selectattr"); }
    if (f == "map" && !a.text(9, "attribute", "").empty()) {
        return mapped(v, a.text(9, "attribute", ""));
    }
    std::vector<Value> all;
    const bool list = f == "list" || f == "first" || f == "last" || f == "reverse";
    if (!list) { fail("uses the filter '" + f + "', which is not known here for these arguments"); }
    all = elements_of(v);
    if (f == "first" || f == "last") {
        if (all.empty()) { return Value(); }
        return f == "first" ? all.front() : all.back();
    }
    if (f == "reverse") { std::reverse(all.begin(), all.end()); }
    Value made = jinja_list();
    *made.items = all;
    return made;
}

static bool contains(const Value& in, const Value& what) {
    if (in.type == Value::STRING) {
        if (what.type != Value::STRING) {
            fail(std::string("looks for ") + type_name(what) + " in a text");
        }
        return in.string.find(what.string) != std::string::npos;
    }
    if (in.type == Value::OBJECT) {
        return what.type == Value::STRING && field_of(in, what.string);
    }
    if (in.type != Value::LIST) { fail(std::string("looks into ") + type_name(in)); }
    for (auto& item : *in.items) { if (equal(item, what)) { return true; } }
    return false;
}

// Does a value pass a test? a: the test's arguments.
static bool passes(const Value& v, const std::string& t, const Arguments& a) {
    if (t == "defined") { return v.type != Value::UNDEFINED; }
    if (t == "undefined") { return v.type == Value::UNDEFINED; }
    if (t == "none") { return v.type == Value::NONE; }
    if (t == "string") { return v.type == Value::STRING; }
    if (t == "mapping") { return v.type == Value::OBJECT; }
    if (t == "boolean") { return v.type == Value::BOOL; }
    if (t == "true") { return v.type == Value::BOOL && v.number; }
    if (t == "false") { return v.type == Value::BOOL && !v.number; }
    if (t == "number") { return is_number(v); }
    if (t == "integer") { return v.type == Value::INT; }
    if (t == "iterable" || t == "sequence") {
        return v.type == Value::LIST || v.type == Value::STRING || v.type == Value::OBJECT ||
               (t == "iterable" && v.type == Value::UNDEFINED);
    }
    if ((t == "odd" || t == "even") && is_number(v)) { return (v.number % 2 != 0) == (t == "odd"); }
    const bool one = a.values.size() == 1;
    if (one && (t == "eq" || t == "equalto")) { return equal(v, a.values[0]); }
    if (one && (t == "ne")) { return !equal(v, a.values[0]); }
    if (one && t == "in") { return contains(a.values[0], v); }
    fail("uses the test '" + t + "', which is not known here");
}

// The functions of the language, which are no values but are defined.
static bool is_function(const Runner& r, const std::string& name) {
    static const char* const ALL = " raise_exception strftime_now range namespace dict ";
    return r.macros.count(name) || strstr(ALL, (" " + name + " ").c_str());
}

static bool tested(Runner* r, const Node& n) {
    const Node& of = n.kids[0];
    const bool function = of.kind == NODE_NAME && is_function(*r, of.name);
    if (function && n.name == "defined") { return true; }
    return passes(evaluate(r, of), n.name, arguments_of(r, n, 1));
}

// selectattr and rejectattr(name, test, ..): the elements whose field passes, or does not
static Value selected(const Value& v, const Arguments& a, bool select) {
    Value out = jinja_list();
    const std::string field = a.text(0, "attribute", ""), test = a.text(1, "test", "");
    Arguments rest;
    for (size_t i = 2; i < a.values.size(); i++) { rest.values.push_back(a.values[i]); }
    for (auto& item : elements_of(v)) {
        const Value* found = field_of(item, field);
        const Value value = found ? *found : Value();
        const bool in = test.empty() ? truth(value) : passes(value, test, rest);
        if (in == select) { out.items->push_back(item); }
    }
    return out;
}

// map(attribute='name')
static Value mapped(const Value& v, const std::string& field) {
    Value out = jinja_list();
    for (auto& item : elements_of(v)) {
        const Value* found = field_of(item, field);
        out.items->push_back(found ? *found : Value());
    }
    return out;
}

// s.split(by): without by, at white space
static Value split_text(const std::string& s, const Arguments& a) {
    Value out = jinja_list();
    const Value* most = a.get(1, "maxsplit");
    long left = most && is_number(*most) ? most->number : -1;
    const std::string by = a.text(0, "sep", "");
    size_t i = 0;
    if (by.empty()) {
        if (most) { fail("splits at white space a given number of times"); }
        while (i < s.size()) {
            while (i < s.size() && strchr(SPACES, s[i]) && s[i]) { i++; }
            size_t end = i;
            while (end < s.size() && !(strchr(SPACES, s[end]) && s[end])) { end++; }
            if (end > i) { out.items->push_back(jinja_string(s.substr(i, end - i))); }
            i = end;
        }
        return out;
    }
    for (size_t at; left != 0 && (at = s.find(by, i)) != std::string::npos; i = at + by.size()) {
        out.items->push_back(jinja_string(s.substr(i, at - i)));
        left--;
    }
    out.items->push_back(jinja_string(s.substr(i)));
    return out;
}

// Does s begin (or end) with one of these texts?
static bool affixed(const std::string& s, const Value& with, bool begins) {
    std::vector<Value> all = { with };
    if (with.type == Value::LIST) { all = *with.items; }
    for (auto& one : all) {
        const std::string part = text_of(one);
        if (begins ? s.compare(0, part.size(), part) == 0 : ends_with(s, part)) { return true; }
    }
    return false;
}

static Value text_method(const std::string& s, const std::string& m, const Arguments& a) {
    const std::string chars = a.text(0, "chars", SPACES);
    if (m == "strip") { return jinja_string(strip(s, chars, true, true)); }
    if (m == "lstrip") { return jinja_string(strip(s, chars, true, false)); }
    if (m == "rstrip") { return jinja_string(strip(s, chars, false, true)); }
    if (m == "upper") { return jinja_string(cased(s, toupper)); }
    if (m == "lower") { return jinja_string(cased(s, tolower)); }
    if (m == "split") { return split_text(s, a); }
    if (m == "replace" && a.values.size() == 2) {
        return jinja_string(replaced(s, text_of(a.values[0]), text_of(a.values[1])));
    }
    if (a.values.size() == 1) {
        const Value& one = a.values[0];
        if (m == "startswith") { return jinja_bool(affixed(s, one, true)); }
        if (m == "endswith") { return jinja_bool(affixed(s, one, false)); }
        if (m == "join") { return jinja_string(joined(elements_of(one), s)); }
        if (m == "count" && !text_of(one).empty()) {
            const size_t n = text_of(one).size();
            return jinja_int((long)((s.size() - replaced(s, text_of(one), "").size()) / n));
        }
        const bool ascii = std::none_of(s.begin(), s.end(), [](char c) { return c & 0x80; });
        if (m == "find" && ascii) {
            const size_t at = s.find(text_of(one));
            return jinja_int(at == std::string::npos ? -1 : (long)at);
        }
    }
    if (m == "title") {
        std::string out = cased(s, tolower);
        for (size_t i = 0; i < out.size(); i++) {
            const bool first = i == 0 || !isalpha((unsigned char)out[i - 1]);
            if (first) { out[i] = (char)toupper((unsigned char)out[i]); }
        }
        return jinja_string(out);
    }
    fail("calls the method '" + m + "' of a text, which is not known here");
}

static Value object_method(const Value& v, const std::string& m, const Arguments& a) {
    if (m == "items") { return pairs_of(v); }
    if (m == "keys" || m == "values") {
        Value all = jinja_list();
        for (auto& f : *v.fields) {
            all.items->push_back(m == "keys" ? jinja_string(f.first) : f.second);
        }
        return all;
    }
    if (m == "get" && !a.values.empty()) {
        const Value* found = field_of(v, text_of(a.values[0]));
        const Value* otherwise = a.get(1, "default");
        return found ? *found : otherwise ? *otherwise : jinja_none();
    }
    fail("calls the method '" + m + "' of an object, which is not known here");
}

static Value range_of(const Arguments& a) {
    long number[3] = { 0, 0, 1 };
    for (size_t i = 0; i < a.values.size() && i < 3; i++) {
        if (!is_number(a.values[i])) { fail("has a range of other things than numbers"); }
        number[i] = a.values[i].number;
    }
    if (a.values.size() == 1) { std::swap(number[0], number[1]); }
    if (a.values.empty() || a.values.size() > 3 || number[2] == 0) {
        fail("has a range without end");
    }
    Value all = jinja_list();
    for (long i = number[0]; number[2] > 0 ? i < number[1] : i > number[1]; i += number[2]) {
        all.items->push_back(jinja_int(i));
        if (all.items->size() > MOST_RANGE) { fail("has too long a range"); }
    }
    return all;
}

static Value macro_called(Runner* r, const Node& macro, const Arguments& a) {
    if (++r->depth > MOST_DEPTH / 4) { fail("calls macros within macros too deep"); }
    std::map<std::string, Value> frame;
    for (size_t i = 0; i < macro.words.size(); i++) {
        const Value* given = a.get(i, macro.words[i].c_str());
        frame[macro.words[i]] = given ? *given : evaluate(r, macro.kids[i + 1]);
    }
    std::vector<std::map<std::string, Value>> below;     // a macro sees the template's names alone
    below.swap(r->frames);
    r->frames = { below[0], frame };
    std::string text, *before = r->out;
    r->out = &text;
    execute(r, macro.kids[0]);
    r->out = before;
    r->frames.swap(below);
    r->depth--;
    return jinja_string(text);
}

static Value called(Runner* r, const Node& n) {
    const Node& what = n.kids[0];
    const Arguments a = arguments_of(r, n, 1);
    if (what.kind == NODE_FIELD) {
        const Value of = evaluate(r, what.kids[0]);
        if (of.type == Value::STRING) { return text_method(of.string, what.name, a); }
        if (of.type == Value::OBJECT) { return object_method(of, what.name, a); }
        fail("calls the method '" + what.name + "' of " + type_name(of));
    }
    if (what.kind != NODE_NAME) { fail("calls what is no function"); }
    const std::string& f = what.name;
    auto macro = r->macros.find(f);
    if (macro != r->macros.end()) { return macro_called(r, *macro->second, a); }
    if (f == "raise_exception") { fail("says: " + a.text(0, "message", "")); }
    if (f == "range") { return range_of(a); }
    if (f == "namespace" || f == "dict") {
        Value made = jinja_object();
        made.space = f == "namespace";
        for (auto& named : a.named) { jinja_set(&made, named.first, named.second); }
        return made;
    }
    if (f == "strftime_now") {
        char text[256] = "";
        const time_t now = time(NULL);
        strftime(text, sizeof text, a.text(0, "format", "").c_str(), localtime(&now));
        return jinja_string(text);
    }
    fail("calls '" + f + "', which is not known here");
}

static long clamped(long i, long n, long low, long high) {
    if (i < 0) { i += n; }
    return std::max(low, std::min(i, high));
}

static Value sliced(Runner* r, const Node& n) {
    const Value of = evaluate(r, n.kids[0]);
    Value part[3];
    for (int k = 0; k < 3; k++) {
        part[k] = evaluate(r, n.kids[k + 1]);
        if (part[k].type == Value::NONE) { part[k] = Value(); }
        if (part[k].type != Value::UNDEFINED && !is_number(part[k])) {
            fail("cuts at what is no number");
        }
    }
    const bool has_step = part[2].type != Value::UNDEFINED;
    const long step = has_step ? part[2].number : 1;
    if (step == 0) { fail("cuts in steps of 0"); }
    if (of.type == Value::UNDEFINED || is_number(of)) {
        fail(std::string("cuts ") + type_name(of));
    }
    const std::vector<Value> all = elements_of(of);
    const long size = (long)all.size(), low = step > 0 ? 0 : -1, high = step > 0 ? size : size - 1;
    long from = step > 0 ? low : high, to = step > 0 ? high : low;
    if (part[0].type != Value::UNDEFINED) { from = clamped(part[0].number, size, low, high); }
    if (part[1].type != Value::UNDEFINED) { to = clamped(part[1].number, size, low, high); }
    Value out = jinja_list();
    for (long i = from; step > 0 ? i < to : i > to; i += step) { out.items->push_back(all[i]); }
    return of.type == Value::STRING ? jinja_string(joined(*out.items, "")) : out;
}

static Value indexed(const Value& of, const Value& key) {
    if (of.type == Value::UNDEFINED) { fail("looks into an undefined value"); }
    if (key.type == Value::STRING) {
        const Value* found = field_of(of, key.string);
        return found ? *found : Value();
    }
    if (!is_number(key)) { fail(std::string("has ") + type_name(key) + " as an index"); }
    if (of.type != Value::LIST && of.type != Value::STRING) { return Value(); }
    const std::vector<Value> all = elements_of(of);
    const long i = key.number < 0 ? key.number + (long)all.size() : key.number;
    return i >= 0 && i < (long)all.size() ? all[i] : Value();
}

static Value summed(Runner* r, const Node& n) {
    Value sum = evaluate(r, n.kids[0]);
    for (size_t i = 1; i < n.kids.size(); i++) {
        r->step();
        const Value v = evaluate(r, n.kids[i]);
        const bool plus = n.words[i - 1] == "+";
        if (is_number(sum) && is_number(v)) {
            sum = jinja_int(plus ? sum.number + v.number : sum.number - v.number);
        } else if (plus && sum.type == Value::STRING && v.type == Value::STRING) {
            sum.string += v.string;
            if (sum.string.size() > MOST_TEXT) { fail("writes too long a text"); }
        } else if (plus && sum.type == Value::LIST && v.type == Value::LIST) {
            Value both = jinja_list();
            *both.items = *sum.items;
            both.items->insert(both.items->end(), v.items->begin(), v.items->end());
            if (both.items->size() > MOST_RANGE) { fail("makes too long a list"); }
            sum = both;
        } else {
            fail(std::string("adds ") + type_name(v) + " to " + type_name(sum));
        }
    }
    return sum;
}

static Value multiplied(Runner* r, const Node& n) {
    Value product = evaluate(r, n.kids[0]);
    for (size_t i = 1; i < n.kids.size(); i++) {
        const Value v = evaluate(r, n.kids[i]);
        const std::string& sign = n.words[i - 1];
        if (!is_number(product) || !is_number(v)) { fail("multiplies what are no numbers"); }
        const long a = product.number, b = v.number;
        if (sign == "*") {
            const bool large = fabs((double)a * b) > (double)MOST_NUMBER;
            product = jinja_int(large ? LONG_MAX : a * b);
            continue;
        }
        if (b == 0 || sign == "/" || sign == "**") {
            fail("divides in a way that is not known here");
        }
        const long floor_of = a / b - (a % b != 0 && (a < 0) != (b < 0));
        product = jinja_int(sign == "//" ? floor_of : a - floor_of * b);
    }
    return product;
}

static bool compared(const Value& a, const std::string& sign, const Value& b) {
    if (sign == "==") { return equal(a, b); }
    if (sign == "!=") { return !equal(a, b); }
    if (sign == "in") { return contains(b, a); }
    if (sign == "not in") { return !contains(b, a); }
    long order = 0;
    if (is_number(a) && is_number(b)) { order = a.number < b.number ? -1 : a.number > b.number;
    } else if (a.type == Value::STRING && b.type == Value::STRING) {
        order = a.string.compare(b.string);
    } else {
        fail(std::string("compares ") + type_name(a) + " with " + type_name(b));
    }
    if (sign == "<") { return order < 0; }
    if (sign == ">") { return order > 0; }
    return sign == "<=" ? order <= 0 : order >= 0;
}

// and, or and comparisons stop at the part that decides; and, or give that part itself
static Value decided(Runner* r, const Node& n) {
    Value before = evaluate(r, n.kids[0]);
    for (size_t i = 1; i < n.kids.size(); i++) {
        if (n.kind == NODE_AND && !truth(before)) { return before; }
        if (n.kind == NODE_OR && truth(before)) { return before; }
        const Value v = evaluate(r, n.kids[i]);
        if (n.kind == NODE_COMPARE && !compared(before, n.words[i - 1], v)) {
            return jinja_bool(false);
        }
        before = v;
    }
    return n.kind == NODE_COMPARE ? jinja_bool(true) : before;
}

static Value evaluate(Runner* r, const Node& n) {
    r->step();
    Value made;
    switch (n.kind) {
        case NODE_VALUE: return n.value;
        case NODE_NAME: return r->find(n.name);
        case NODE_FIELD: return indexed(evaluate(r, n.kids[0]), jinja_string(n.name));
        case NODE_INDEX: return indexed(evaluate(r, n.kids[0]), evaluate(r, n.kids[1]));
        case NODE_SLICE: return sliced(r, n);
        case NODE_CALL: return called(r, n);
        case NODE_FILTER: return filtered(r, n);
        case NODE_TEST: return jinja_bool(tested(r, n));
        case NODE_NOT: return jinja_bool(!truth(evaluate(r, n.kids[0])));
        case NODE_AND: case NODE_OR: case NODE_COMPARE: return decided(r, n);
        case NODE_SUM: return summed(r, n);
        case NODE_PRODUCT: return multiplied(r, n);
        case NODE_IF: return evaluate(r, n.kids[truth(evaluate(r, n.kids[0])) ? 1 : 2]);
        case NODE_MINUS:
            made = evaluate(r, n.kids[0]);
            if (!is_number(made)) { fail(std::string("has - before ") + type_name(made)); }
            return jinja_int(-made.number);
        case NODE_JOIN:
            made = jinja_string("");
            for (auto& kid : n.kids) { made.string += text_of(evaluate(r, kid)); }
            if (made.string.size() > MOST_TEXT) { fail("writes too long a text"); }
            return made;
        case NODE_LIST:
            made = jinja_list();
            for (auto& kid : n.kids) { made.items->push_back(evaluate(r, kid)); }
            return made;
        case NODE_OBJECT:
            made = jinja_object();
            for (size_t i = 0; i < n.kids.size(); i += 2) {
                jinja_set(&made, text_of(evaluate(r, n.kids[i])), evaluate(r, n.kids[i + 1]));
            }
            return made;
        default: fail("has a statement where a value belongs");
    }
}

// ---- statements run

// What `loop` is in pass i of n.
static Value loop_of(const std::vector<Value>& all, size_t i) {
    Value loop = jinja_object();
    const long n = (long)all.size(), at = (long)i;
    jinja_set(&loop, "index", jinja_int(at + 1));
    jinja_set(&loop, "index0", jinja_int(at));
    jinja_set(&loop, "revindex", jinja_int(n - at));
    jinja_set(&loop, "revindex0", jinja_int(n - at - 1));
    jinja_set(&loop, "length", jinja_int(n));
    jinja_set(&loop, "first", jinja_bool(i == 0));
    jinja_set(&loop, "last", jinja_bool(at == n - 1));
    if (i > 0) { jinja_set(&loop, "previtem", all[i - 1]); }
    if (at < n - 1) { jinja_set(&loop, "nextitem", all[i + 1]); }
    return loop;
}

static void bind(Runner* r, const std::vector<std::string>& names, const Value& v) {
    if (names.size() == 1) { r->frames.back()[names[0]] = v; return; }
    const std::vector<Value> parts = elements_of(v);
    if (parts.size() != names.size()) { fail("takes apart a value of another length"); }
    for (size_t i = 0; i < names.size(); i++) { r->frames.back()[names[i]] = parts[i]; }
}

static void execute_for(Runner* r, const Node& n) {
    std::vector<Value> all;
    for (auto& v : elements_of(evaluate(r, n.kids[0]))) {
        r->frames.push_back({});
        bind(r, n.words, v);
        const bool in = truth(evaluate(r, n.kids[1]));
        r->frames.pop_back();
        if (in) { all.push_back(v); }
    }
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
    if (depth > MOST_DEPTH / 4) { fail("nests values too deep"); }
    if (v.space) { fail("keeps a namespace in a namespace"); }
    if (v.type == Value::LIST) { for (auto& item : *v.items) { check_kept(r, item, depth + 1); } }
    if (v.type == Value::OBJECT) {
        for (auto& f : *v.fields) { check_kept(r, f.second, depth + 1); }
    }
}

static void execute_set(Runner* r, const Node& n) {
    Value v;
    if (n.kind == NODE_SET) { v = evaluate(r, n.kids[0]); }
    else {
        std::string text, *before = r->out;
        r->out = &text;
        execute(r, n.kids[0]);
        r->out = before;
        v = jinja_string(text);
    }
    if (n.words.size() == 1) { r->frames.back()[n.words[0]] = v; return; }
    Value object = r->find(n.words[0]);
    check_kept(r, v, 0);
    if (!object.space) {
        fail("sets a field of " + n.words[0] + ", which is no namespace");
    }
    jinja_set(&object, n.words[1], v);
}

static Flow execute_choose(Runner* r, const Node& n) {
    size_t i = 0;
    for (; i + 1 < n.kids.size(); i += 2) {
        if (truth(evaluate(r, n.kids[i]))) { return execute(r, n.kids[i + 1]); }
    }
    return i < n.kids.size() ? execute(r, n.kids[i]) : FLOW_ON;
}

static Flow execute(Runner* r, const Node& n) {
    r->step();
    Flow flow = FLOW_ON;
    switch (n.kind) {
        case NODE_TEXT: r->write(n.value.string); break;
        case NODE_PRINT: r->write(text_of(evaluate(r, n.kids[0]))); break;
        case NODE_CHOOSE: return execute_choose(r, n);
        case NODE_FOR: execute_for(r, n); break;
        case NODE_SET: case NODE_SET_BLOCK: execute_set(r, n); break;
        case NODE_MACRO: r->macros[n.name] = &n; break;
        case NODE_BREAK: return FLOW_BREAK;
        case NODE_CONTINUE: return FLOW_CONTINUE;
        default:
            for (size_t i = 0; i < n.kids.size() && flow == FLOW_ON; i++) {
                flow = execute(r, n.kids[i]);
            }
    }
    return flow;
}

std::string jinja_run(const std::string& text, const std::map<std::string, JinjaValue>& values,
                      std::string* out) {
    out->clear();
    try {
        if (text.size() > MOST_TEXT) { fail("is too long"); }
        std::string lines =
            text.find('\r') == std::string::npos ? text : replaced(text, "\r\n", "\n");
        if (ends_with(lines, "\n")) { lines.pop_back(); }
        Parser p;
        p.pieces = pieces_of(lines);
        std::string which;
        const Node all = parse_block(&p, {}, &which);
        Runner r;
        r.frames = { values };
        r.out = out;
        execute(&r, all);
        return "";
    } catch (const JinjaError& e) {
        return e.what;
    }
}
