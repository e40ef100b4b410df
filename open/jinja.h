/*
jinja.h -- runs a chat template. A template is a program in Jinja that comes with a tokenizer and
writes a conversation as the model was trained on it. Only what it writes says what the model is to
read, so it is run as transformers runs it (trim_blocks and lstrip_blocks, one newline at the end
dropped), by a small interpreter: text, {{ }}, {% if for set macro %}, {# #}; the operators; the
filters, tests and methods that templates use.

What is not known here is an error when it is met, never guessed. The time and the memory that a
template may take are limited.
*/
#ifndef JINJA_H
#define JINJA_H
#include <map>
#include <memory>
#include "../core/common.h"

// A value of the language. Lists and objects are shared, as names in Jinja refer to them.
struct JinjaValue {
    enum Type { UNDEFINED, NONE, BOOL, INT, STRING, LIST, OBJECT } type = UNDEFINED;
    long number = 0;                             // INT, and BOOL as 0 or 1
    bool space = false;                          // OBJECT made by namespace(): it may change
    std::string string;
    std::shared_ptr<std::vector<JinjaValue>> items;
    std::shared_ptr<std::vector<std::pair<std::string, JinjaValue>>> fields;
};

JinjaValue jinja_string(const std::string& s);
JinjaValue jinja_bool(bool b);
JinjaValue jinja_none();
JinjaValue jinja_list();
JinjaValue jinja_object();
void jinja_set(JinjaValue* object, const std::string& key, const JinjaValue& value);

// Writes the template with these values as *out; returns what is wrong, or "".
std::string jinja_run(const std::string& text, const std::map<std::string, JinjaValue>& values,
                      std::string* out);
#endif // JINJA_H
