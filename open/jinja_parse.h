/*
jinja_parse.h -- a chat template -> a tree of nodes.
*/
#ifndef JINJA_PARSE_H
#define JINJA_PARSE_H
#include "jinja_value.h"

enum NodeKind {
    // expressions
    NODE_VALUE, NODE_NAME, NODE_LIST, NODE_OBJECT, NODE_FIELD, NODE_INDEX, NODE_SLICE, NODE_CALL,
    NODE_FILTER, NODE_TEST, NODE_NOT, NODE_MINUS, NODE_AND, NODE_OR, NODE_IF, NODE_SUM, NODE_JOIN,
    NODE_PRODUCT, NODE_COMPARE,
    // statements
    NODE_TEXT, NODE_PRINT, NODE_CHOOSE, NODE_FOR, NODE_SET, NODE_SET_BLOCK, NODE_MACRO, NODE_BLOCK,
    NODE_BREAK, NODE_CONTINUE
};

struct Node {
    NodeKind kind = NODE_VALUE;
    std::string name;                    // of a variable, field, filter or test
    Value value;
    std::vector<std::string> words;      // signs of a chain, or names of targets and arguments (""
                                         // where there is none)
    std::vector<Node> kids;
};

// Parses a whole template; throws a JinjaError.
Node jinja_parse(const std::string& text);
#endif // JINJA_PARSE_H
