/*
text/keys.h -- the keys that files beside a model's weights may have: core/directory.h asks.
*/
#ifndef KEYS_H
#define KEYS_H
#include "../core/directory.h"

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

// The table. It ends with a row whose file is NULL.
extern const KeyRow DIRECTORY_KEYS[];

// As directory_key.
bool text_key(const std::string& file, const std::string& key, const std::string& path,
              const Json& value);

// Dies if a key of this object is not in the table of `file`, or has a value that is refused. path:
// its name in errors. Null says nothing.
void directory_check(const std::string& file, const std::string& path, const Json& object);

// Lists the keys that are passed over with a word, as "repetition_penalty 1.1, .."; "" if none is
// there.
std::string directory_said(const std::string& file, const Json& object);

// Reads the ids of eos_token_id, one or a list, in DIR/NAME; none without that file.
std::vector<int> directory_ends(const std::string& dir, const std::string& name);

// Reads what ends a text: TextFolder in optional.h. Dies if generation_config.json has a key that
// is not known.
std::vector<int> generation_read(const std::string& dir, int V, int* first);
#endif // KEYS_H
