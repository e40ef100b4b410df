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
// Dies if a key of this object is not in the table of `file`, or has a value that is refused. path:
// its name in errors. Null says nothing.
void directory_check(const std::string& file, const std::string& path, const Json& object);

// Lists the keys that are passed over with a word, as "repetition_penalty 1.1, .."; "" if none is
// there.
std::string directory_said(const std::string& file, const Json& object);

// Dies if generation_config.json has a key that is not known; notes what it says of drawing tokens,
// which is not done here.
void generation_check(const std::string& path, const Json& config);
#endif // KEYS_H
