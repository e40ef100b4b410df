/*
text/keys.h -- the keys that files beside a model's weights may have: core/directory.h asks.
*/
#ifndef KEYS_H
#define KEYS_H
#include "../core/directory.h"

// Returns the table. It ends with a row whose file is NULL.
const KeyRow* directory_keys();

// As directory_key.
const KeyRow* text_key(const std::string& file, const std::string& key);
#endif // KEYS_H
