/*
directory.h -- what the files beside a model's weights say, key by key: which keys are read, which
say nothing about ids, prompts or numbers, and which values are refused. One table, DIRECTORY_KEYS
of text/keys.cpp; docs/open-models.md is the same table for people (test/open/test_directory.cpp
compares the two).

The rule for a key that the table does not have: it is refused by name, unless it is null. A key
that is passed over may change what a model computes, and nobody would see it.
*/
#ifndef DIRECTORY_H
#define DIRECTORY_H
#include "../base/common.h"

enum KeyRule {
    KEY_READ,                                    // obeyed, or checked against what obeys it
    KEY_HARMLESS,                                // changes no id, no prompt and no number
    KEY_SAID,                                    // passed over, but its value is printed
    KEY_ONLY                                     // refused, unless it is one of `allowed`
};

// keys: names with blanks between them; "" for the file itself. allowed: values, as JSON has them.
struct KeyRow {
    const char *file, *keys;
    KeyRule rule;
    const char *allowed, *why;
};

// Returns the row of a key of a file; NULL if there is none, or no text/.
const KeyRow* directory_key(const std::string& file, const std::string& key);

// Dies if the table refuses this value of a key that it has.
void directory_value_check(const KeyRow& row, const std::string& path, const std::string& key,
                           const Json& value);

// Reads a file; null if there is none.
Json json_if_there(const std::string& path);

// Reads state.json of a checkpoint for a note: null if there is none, or none that can be read.
Json state_of(const std::string& dir);

// Reads the ids of eos_token_id, one or a list, in DIR/NAME; none without that file.
std::vector<int> directory_ends(const std::string& dir, const std::string& name);
#endif // DIRECTORY_H
