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

// Tells whether the table has this key of a file ("": the file itself); dies if it refuses the
// value.
// path: the file's name in errors. Without text/ it has none.
bool directory_key(const std::string& file, const std::string& key, const std::string& path = "",
                   const Json& value = Json());

// Reads a file; null if there is none.
Json json_if_there(const std::string& path);

// Reads state.json of a checkpoint for a note: null if there is none, or none that can be read.
Json state_of(const std::string& dir);
#endif // DIRECTORY_H
