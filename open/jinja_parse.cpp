/*
open/jinja_parse.cpp -- what jinja_parse.h declares. In reading order: the lexer, text to tags and
words; expressions; statements.
*/
#include "jinja_parse.h"

// ----------------------------------------------------------------------------
// lexer

enum WordKind { WORD_NAME, WORD_STRING, WORD_INT, WORD_SIGN, WORD_END };
struct Word {
    WordKind kind;
    std::string text;
};

enum PieceKind { PIECE_TEXT, PIECE_PRINT, PIECE_TAG };
struct Piece {
    PieceKind kind;
    std::string text;
    std::vector<Word> words;
};

static bool is_space(char c) { return c == ' ' || (c >= 9 && c <= 13); }
static bool is_letter(char c) { return isalpha((unsigned char)c) || c == '_'; }
static bool is_digit(char c) { return isdigit((unsigned char)c); }
static bool is_one_of(char c, const char* set) { return c && strchr(set, c); }

// A template while it is cut into pieces; i: where the lexer is.
struct Lexer {
    const std::string& s;
    size_t i = 0;
    std::vector<Piece> pieces;
    bool line_begins = true;             // nothing but the start or a line's end before this

    bool at_end() const { return i >= s.size(); }
    char now() const { return s[i]; }
    char next() const { return i + 1 < s.size() ? s[i + 1] : 0; }
    bool at(const char* text) const { return s.compare(i, strlen(text), text) == 0; }
};

// Reads an escape of a string, as in Python; lexer.i is at the character after the backslash.
static void read_escape(Lexer* lexer, std::string* out) {
    const char letters[] = "ntrfvab0\\'\"";
    const char values[] = "\n\t\r\f\v\a\b\0\\'\"";
    const char c = lexer->now();
    if (c == 'u' || c == 'x') {
        const size_t digits = c == 'u' ? 4 : 2;
        const std::string hex = lexer->s.substr(lexer->i + 1, digits);
        utf8_append(out, strtoul(hex.c_str(), NULL, 16));
        lexer->i += digits;
        return;
    }
    const char* known = strchr(letters, c);
    if (!known || !*known) {
        *out += '\\';
        *out += c;
        return;
    }
    *out += values[known - letters];
}

// Reads the string literal that begins here.
static std::string read_string(Lexer* lexer) {
    const char quote = lexer->now();
    std::string out;
    for (lexer->i++; !lexer->at_end() && lexer->now() != quote; lexer->i++) {
        const bool escape = lexer->now() == '\\' && lexer->i + 1 < lexer->s.size();
        if (!escape) {
            out += lexer->now();
            continue;
        }
        lexer->i++;
        read_escape(lexer, &out);
    }
    if (lexer->at_end()) { jinja_fail("has a text without an end"); }
    lexer->i++;
    return out;
}

template <class Inside> static std::string read_while(Lexer* lexer, Inside inside) {
    const size_t begin = lexer->i;
    while (!lexer->at_end() && inside(lexer->now())) { lexer->i++; }
    return lexer->s.substr(begin, lexer->i - begin);
}

static std::string read_sign(Lexer* lexer) {
    size_t length = 1;
    for (const char* two : { "==", "!=", "<=", ">=", "//", "**" }) {
        if (lexer->at(two)) { length = 2; }
    }
    const std::string sign = lexer->s.substr(lexer->i, length);
    lexer->i += length;
    return sign;
}

static Word read_word(Lexer* lexer) {
    const char c = lexer->now();
    const auto in_name = [](char letter) { return is_letter(letter) || is_digit(letter); };
    if (c == '\'' || c == '"') { return { WORD_STRING, read_string(lexer) }; }
    if (is_letter(c)) { return { WORD_NAME, read_while(lexer, in_name) }; }
    if (is_digit(c)) { return { WORD_INT, read_while(lexer, is_digit) }; }
    return { WORD_SIGN, read_sign(lexer) };
}

// Tells whether a tag ends here: at "%}" or "}}", or at one of these with a sign before it.
static bool tag_ends(const Lexer& lexer, const char* end) {
    const bool sign = is_one_of(lexer.now(), "-+");
    return lexer.at(end) || (sign && lexer.s.compare(lexer.i + 1, 2, end) == 0);
}

// Reads the words of a tag up to its end, at which the lexer stays.
static std::vector<Word> read_tag(Lexer* lexer, const char* end) {
    std::vector<Word> words;
    int open = 0;                        // brackets, within which }} may end an object
    while (!lexer->at_end()) {
        const char c = lexer->now();
        if (is_space(c)) {
            lexer->i++;
            continue;
        }
        if (!open && tag_ends(*lexer, end)) {
            words.push_back({ WORD_END, "" });
            return words;
        }
        open += is_one_of(c, "([{");
        open -= is_one_of(c, ")]}");
        words.push_back(read_word(lexer));
    }
    jinja_fail(std::string("has a tag without its ") + end);
}

// Strips white space before a tag: all of it for a minus; before a block or a comment that stands
// alone in its line, the blanks of that line.
static void strip_before(std::string* text, char sign, bool block, bool line_begins) {
    size_t end = text->size();
    if (sign == '-') {
        while (end > 0 && is_space((*text)[end - 1])) { end--; }
    } else if (sign != '+' && block) {
        const size_t line = text->rfind('\n') + 1;       // 0 if there is none
        const bool blank = std::all_of(text->begin() + line, text->end(), is_space);
        if (blank && (line > 0 || line_begins)) { end = line; }
    }
    text->resize(end);
}

// Strips white space behind a tag: all of it for a minus, one line's end behind a block.
static void strip_behind(Lexer* lexer, char sign, bool block) {
    const size_t begin = lexer->i;
    if (sign == '-') {
        read_while(lexer, is_space);
    } else if (sign != '+' && block && !lexer->at_end() && lexer->now() == '\n') {
        lexer->i++;
    }
    lexer->line_begins = lexer->i > begin && lexer->s[lexer->i - 1] == '\n';
}

// Reads the text up to the next tag.
static std::string read_text(Lexer* lexer) {
    const size_t begin = lexer->i;
    while (!lexer->at_end()) {
        const bool tag = lexer->now() == '{' && is_one_of(lexer->next(), "{%#");
        if (tag) { break; }
        lexer->i++;
    }
    return lexer->s.substr(begin, lexer->i - begin);
}

// Moves to the end of a comment.
static void skip_comment(Lexer* lexer) {
    const size_t close = lexer->s.find("#}", lexer->i);
    if (close == std::string::npos) { jinja_fail("has a comment without its #}"); }
    const bool sign = close > lexer->i && is_one_of(lexer->s[close - 1], "-+");
    lexer->i = sign ? close - 1 : close;
}

// Cuts a template into texts and tags.
static std::vector<Piece> pieces_of(const std::string& s) {
    Lexer lexer = { s, 0, {}, true };
    while (!lexer.at_end()) {
        std::string text = read_text(&lexer);
        if (lexer.at_end()) {
            lexer.pieces.push_back({ PIECE_TEXT, text, {} });
            break;
        }
        const char kind = lexer.next();
        const bool block = kind != '{';
        lexer.i += 2;
        const char before = lexer.at_end() ? 0 : lexer.now();
        strip_before(&text, before, block, lexer.line_begins);
        if (!text.empty()) { lexer.pieces.push_back({ PIECE_TEXT, text, {} }); }
        lexer.i += is_one_of(before, "-+");
        if (kind == '#') {
            skip_comment(&lexer);
        } else {
            const std::vector<Word> words = read_tag(&lexer, block ? "%}" : "}}");
            lexer.pieces.push_back({ block ? PIECE_TAG : PIECE_PRINT, "", words });
        }
        const char behind = lexer.now();
        lexer.i += 2 + is_one_of(behind, "-+");
        strip_behind(&lexer, behind, block);
    }
    return lexer.pieces;
}

// ----------------------------------------------------------------------------
// parser

struct Parser {
    std::vector<Piece> pieces;
    size_t piece = 0;
    size_t word = 0;
    int depth = 0;

    const Word& now() const { return pieces[piece].words[word]; }
    const Word& next() const { return pieces[piece].words[word + 1]; }

    // Tells whether this word is a name or a sign of this text.
    bool is(const char* text) const {
        const bool kind = now().kind == WORD_NAME || now().kind == WORD_SIGN;
        return kind && now().text == text;
    }

    // Moves past this word if it is that text.
    bool take(const char* text) {
        if (!is(text)) { return false; }
        word++;
        return true;
    }

    void need(const char* text) {
        if (!take(text)) { reject(std::string("'") + text + "'"); }
    }

    std::string name() {
        if (now().kind != WORD_NAME) { reject("a name"); }
        return pieces[piece].words[word++].text;
    }

    [[noreturn]] void reject(const std::string& wanted) const {
        jinja_fail("has '" + now().text + "' where " + wanted + " belongs");
    }
};

// Counts how deep the parser is: a template from elsewhere could fill the stack.
struct Deeper {
    Parser* p;
    explicit Deeper(Parser* p) : p(p) {
        if (++p->depth > MOST_DEPTH) { jinja_fail("is nested too deep"); }
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

static Node value_node(const Value& value) {
    Node n;
    n.value = value;
    return n;
}

// ----------------------------------------------------------------------------
// expressions

// Parses arguments up to the closing bracket: their values become kids, their names words.
static void parse_arguments(Parser* p, Node* call) {
    while (!p->take(")")) {
        std::string name;
        const bool named = p->now().kind == WORD_NAME && p->next().kind == WORD_SIGN &&
                           p->next().text == "=";
        if (named) {
            name = p->name();
            p->need("=");
        }
        call->words.push_back(name);
        call->kids.push_back(parse_expression(p));
        if (!p->is(")")) { p->need(","); }
    }
}

// Parses string literals; neighbors are one text.
static Node parse_string(Parser* p, std::string text) {
    while (p->now().kind == WORD_STRING) {
        text += p->now().text;
        p->word++;
    }
    return value_node(jinja_string(text));
}

static Node parse_number(Parser* p, const std::string& text) {
    long number = 0;
    if (!parse_long(text, &number)) { jinja_fail("has the number " + text); }
    if (p->is(".")) { jinja_fail("has a number with a point"); }
    return value_node(jinja_int(number));
}

// Parses what stands in round brackets; a tuple is a list.
static Node parse_brackets(Parser* p) {
    Node n = parse_expression(p);
    if (p->is(",")) {
        n = node_of(NODE_LIST, "", { n });
        while (p->take(",")) {
            if (!p->is(")")) { n.kids.push_back(parse_expression(p)); }
        }
    }
    p->need(")");
    return n;
}

static Node parse_list(Parser* p) {
    Node n = node_of(NODE_LIST, "", {});
    while (!p->take("]")) {
        n.kids.push_back(parse_expression(p));
        if (!p->is("]")) { p->need(","); }
    }
    return n;
}

static Node parse_object(Parser* p) {
    Node n = node_of(NODE_OBJECT, "", {});
    while (!p->take("}")) {
        n.kids.push_back(parse_expression(p));
        p->need(":");
        n.kids.push_back(parse_expression(p));
        if (!p->is("}")) { p->need(","); }
    }
    return n;
}

static Node parse_primary(Parser* p) {
    const Word word = p->now();
    const std::string& text = word.text;
    if (word.kind == WORD_END) { jinja_fail("has an expression without an end"); }
    p->word++;
    if (word.kind == WORD_STRING) { return parse_string(p, text); }
    if (word.kind == WORD_INT) { return parse_number(p, text); }
    if (text == "(") { return parse_brackets(p); }
    if (text == "[") { return parse_list(p); }
    if (text == "{") { return parse_object(p); }
    if (word.kind != WORD_NAME) { jinja_fail("has '" + text + "' where a value belongs"); }
    if (text == "true" || text == "True") { return value_node(jinja_bool(true)); }
    if (text == "false" || text == "False") { return value_node(jinja_bool(false)); }
    if (text == "none" || text == "None") { return value_node(jinja_none()); }
    return node_of(NODE_NAME, text, {});
}

// Parses x[1], x[1:], x[::-1]. A bound that is absent is an undefined value.
static Node parse_index(Parser* p, Node indexed) {
    std::vector<Node> bounds(1);
    bool slice = false;
    while (!p->take("]")) {
        if (p->take(":")) {
            slice = true;
            bounds.push_back(Node());
        } else {
            bounds.back() = parse_expression(p);
        }
    }
    Node n = node_of(NODE_INDEX, "", { std::move(indexed) });
    if (slice) {
        n.kind = NODE_SLICE;
        bounds.resize(3);
    }
    for (auto& bound : bounds) { n.kids.push_back(std::move(bound)); }
    return n;
}

// Parses a test behind `is`.
static Node parse_test(Parser* p, Node tested) {
    const bool no = p->take("not");
    Node n = node_of(NODE_TEST, p->name(), { std::move(tested) });
    const bool argument = p->now().kind == WORD_STRING || p->now().kind == WORD_INT || p->is("[");
    if (p->take("(")) {
        parse_arguments(p, &n);
    } else if (argument) {
        n.words.push_back("");
        n.kids.push_back(parse_primary(p));
    }
    return no ? node_of(NODE_NOT, "", { std::move(n) }) : n;
}

// Parses fields, indices, calls, filters and tests behind a value.
static Node parse_behind(Parser* p, Node n) {
    for (int chain = 0; chain <= MOST_DEPTH; chain++) {
        if (p->take(".")) {
            n = node_of(NODE_FIELD, p->name(), { std::move(n) });
        } else if (p->take("[")) {
            n = parse_index(p, std::move(n));
        } else if (p->take("(")) {
            n = node_of(NODE_CALL, "", { std::move(n) });
            parse_arguments(p, &n);
        } else if (p->take("|")) {
            n = node_of(NODE_FILTER, p->name(), { std::move(n) });
            if (p->take("(")) { parse_arguments(p, &n); }
        } else if (p->take("is")) {
            n = parse_test(p, std::move(n));
        } else {
            return n;
        }
    }
    jinja_fail("has a chain too long");
}

static Node parse_unary(Parser* p) {
    const Deeper deeper(p);
    if (p->take("-")) { return node_of(NODE_MINUS, "", { parse_unary(p) }); }
    if (p->take("+")) { return parse_unary(p); }
    return parse_behind(p, parse_primary(p));
}

// Takes one of these signs. Returns it, or "" if none is here.
static std::string take_sign(Parser* p, const std::vector<const char*>& signs) {
    for (const char* sign : signs) {
        if (p->take(sign)) { return sign; }
    }
    const bool not_in = p->is("not") && p->next().kind == WORD_NAME && p->next().text == "in";
    const bool wants_in = std::any_of(signs.begin(), signs.end(),
                                      [](const char* sign) { return !strcmp(sign, "in"); });
    if (!not_in || !wants_in) { return ""; }
    p->word += 2;
    return "not in";
}

// Parses a sign b sign c .., where `operand` parses a, b and c. "in" stands for "not in", too.
static Node parse_chain(Parser* p, NodeKind kind, const std::vector<const char*>& signs,
                        Node (*operand)(Parser*)) {
    Node first = operand(p);
    std::string sign = take_sign(p, signs);
    if (sign.empty()) { return first; }
    Node chain = node_of(kind, "", {});
    chain.kids.push_back(std::move(first));
    while (!sign.empty()) {
        chain.words.push_back(sign);
        chain.kids.push_back(operand(p));
        sign = take_sign(p, signs);
    }
    return chain;
}

static Node parse_product(Parser* p) {
    return parse_chain(p, NODE_PRODUCT, { "*", "//", "%", "/", "**" }, parse_unary);
}
static Node parse_join(Parser* p) { return parse_chain(p, NODE_JOIN, { "~" }, parse_product); }
static Node parse_sum(Parser* p) { return parse_chain(p, NODE_SUM, { "+", "-" }, parse_join); }
static Node parse_compare(Parser* p) {
    return parse_chain(p, NODE_COMPARE, { "==", "!=", "<", ">", "<=", ">=", "in" }, parse_sum);
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
    Node condition = parse_or(p);
    Node otherwise;
    if (p->take("else")) { otherwise = parse_expression(p); }
    return node_of(NODE_IF, "", { std::move(condition), std::move(value), std::move(otherwise) });
}

// ----------------------------------------------------------------------------
// statements

static void end_of_tag(Parser* p) {
    if (p->now().kind != WORD_END) {
        jinja_fail("has '" + p->now().text + "' where a tag should end");
    }
    p->piece++;
    p->word = 0;
}

static Node parse_statement(Parser* p);

// Parses statements up to a tag that begins with one of `ends`, and moves past that word. which:
// the one it is.
static Node parse_block(Parser* p, const std::vector<std::string>& ends, std::string* which) {
    const Deeper deeper(p);
    Node block = node_of(NODE_BLOCK, "", {});
    while (p->piece < p->pieces.size()) {
        const bool tag = p->pieces[p->piece].kind == PIECE_TAG;
        if (tag && std::count(ends.begin(), ends.end(), p->now().text)) {
            *which = p->now().text;
            p->word++;
            return block;
        }
        block.kids.push_back(parse_statement(p));
    }
    if (!ends.empty()) { jinja_fail("ends before its " + ends.back()); }
    return block;
}

// Parses a block up to `end`, and that tag.
static Node parse_body(Parser* p, const char* end) {
    std::string which;
    end_of_tag(p);
    Node body = parse_block(p, { end }, &which);
    end_of_tag(p);
    return body;
}

// Parses an if. Kids: condition, block, condition, block, .., or a last block.
static Node parse_if(Parser* p) {
    Node n = node_of(NODE_CHOOSE, "", {});
    std::string which = "elif";
    while (which == "elif") {
        n.kids.push_back(parse_expression(p));
        end_of_tag(p);
        n.kids.push_back(parse_block(p, { "elif", "else", "endif" }, &which));
    }
    if (which == "else") {
        n.kids.push_back(parse_body(p, "endif"));
    } else {
        end_of_tag(p);
    }
    return n;
}

// Parses a for. Words: targets; kids: list, condition, block, block of an empty list.
static Node parse_for(Parser* p) {
    Node n = node_of(NODE_FOR, "", {});
    do { n.words.push_back(p->name()); } while (p->take(","));
    p->need("in");
    n.kids.push_back(parse_or(p));
    Node condition = value_node(jinja_bool(true));
    if (p->take("if")) { condition = parse_expression(p); }
    n.kids.push_back(std::move(condition));
    if (p->take("recursive")) { jinja_fail("has a recursive loop"); }
    end_of_tag(p);
    std::string which;
    n.kids.push_back(parse_block(p, { "else", "endfor" }, &which));
    if (which == "else") {
        n.kids.push_back(parse_body(p, "endfor"));
    } else {
        end_of_tag(p);
    }
    return n;
}

// Parses a set. Words: the name, or the name and a field of it.
static Node parse_set(Parser* p) {
    Node n = node_of(NODE_SET, "", {});
    n.words.push_back(p->name());
    if (p->take(".")) { n.words.push_back(p->name()); }
    if (p->take("=")) {
        n.kids.push_back(parse_expression(p));
        end_of_tag(p);
        return n;
    }
    n.kind = NODE_SET_BLOCK;
    n.kids.push_back(parse_body(p, "endset"));
    return n;
}

// Parses a macro. Words: arguments; kids: the block, then what an argument is if it is not given.
static Node parse_macro(Parser* p) {
    Node n = node_of(NODE_MACRO, p->name(), {});
    std::vector<Node> defaults;
    p->need("(");
    while (!p->take(")")) {
        n.words.push_back(p->name());
        defaults.emplace_back();
        if (p->take("=")) { defaults.back() = parse_expression(p); }
        if (!p->is(")")) { p->need(","); }
    }
    n.kids.push_back(parse_body(p, "endmacro"));
    for (auto& value : defaults) { n.kids.push_back(std::move(value)); }
    return n;
}

static Node parse_tag(Parser* p) {
    if (p->take("if")) { return parse_if(p); }
    if (p->take("for")) { return parse_for(p); }
    if (p->take("set")) { return parse_set(p); }
    if (p->take("macro")) { return parse_macro(p); }
    if (p->take("generation")) {         // marks the model's own words; writes nothing
        return parse_body(p, "endgeneration");
    }
    const bool stops = p->take("break");
    if (stops || p->take("continue")) {
        end_of_tag(p);
        return node_of(stops ? NODE_BREAK : NODE_CONTINUE, "", {});
    }
    jinja_fail("has the tag '" + p->now().text + "', which is not known here");
}

static Node parse_statement(Parser* p) {
    const Piece& piece = p->pieces[p->piece];
    if (piece.kind == PIECE_TAG) { return parse_tag(p); }
    Node n;
    if (piece.kind == PIECE_PRINT) {
        n = node_of(NODE_PRINT, "", { parse_expression(p) });
        end_of_tag(p);
        return n;
    }
    n.kind = NODE_TEXT;
    n.value = jinja_string(piece.text);
    p->piece++;
    return n;
}

Node jinja_parse(const std::string& text) {
    Parser p;
    p.pieces = pieces_of(text);
    std::string which;
    return parse_block(&p, {}, &which);
}
