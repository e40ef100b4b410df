/*
tokenizer_build.h -- how a tokenizer is built from its files. Who calls what:

    tokenizer_load     which files they are                    tokenizer_load.cpp
    tokenizer_steps    components of tokenizer.json -> steps   tokenizer_steps.cpp
    tokenizer_config   what the files beside it say            tokenizer_config.cpp
    tokenizer_finish   everything that follows from these      tokenizer_finish.cpp
*/
#ifndef TOKENIZER_BUILD_H
#define TOKENIZER_BUILD_H
#include "vocabulary.h"

// A tokenizer while it is read.
struct TokenizerBuild : Bpe {
    std::string path;                                    // of its file
    std::unordered_map<std::string, int> vocab;          // token -> id
    std::unordered_map<std::string, size_t> places;      // of an added token -> its index in added
    int next_id = 0;                                     // of an added token without one
};

inline std::string beside(const TokenizerBuild* t, const std::string& name) {
    return t->path.substr(0, t->path.rfind('/') + 1) + name;
}

// Dies of what is wrong with the file.
[[noreturn]] void refuse(const TokenizerBuild* t, const std::string& what,
                         const std::string& hint = "");

// Returns the id of a text as a token, -1 if it is none.
int token_id(const TokenizerBuild& t, const std::string& text);

// Returns the added token of a text, NULL if there is none.
AddedToken* added_token(TokenizerBuild* t, const std::string& text);

// Adds a token, which is not there yet. It gets the id that it has in the vocabulary, else the next
// free one: the id in the file is not believed.
void token_add(TokenizerBuild* t, AddedToken token);

// Reads the flags of a token, an object; those of a mere text are the usual ones. Dies of one that
// is not supported, by the name `where`.
AddedToken token_of(const Json& v, const std::string& text, bool special, const std::string& where);

typedef std::vector<std::pair<std::string, std::string>> TokenPairs;

// The limits of what a file from elsewhere may ask for, so that time and memory stay linear in its
// size and in that of a text.
enum {
    ADDED_LONGEST = 4096,                                // bytes of one added token
    ADDED_BYTES = 16 << 20,                              // and of all of them
    STEPS_MOST = 64,                                     // components of a stage
    GROWTH_MOST = 64,                                    // times that a stage may lengthen a text
    SCORED_LONGEST = 1024,                               // bytes of a token that scores merge
};

// ----------------------------------------------------------------------------
// JSON of a tokenizer

// Returns a field of this type; dies if there is none.
const Json& json_need(const TokenizerBuild* t, const Json& j, const char* key, Json::Type type);

// Returns a whole number; dies of anything else.
int json_int(const TokenizerBuild* t, const Json& j, const char* key);

std::string json_string(const Json& j, const char* key);
bool json_true(const Json& j, const char* key, bool absent = false);

// ----------------------------------------------------------------------------
// parts

// Adds the steps of one component of the file. stage: "normalizer", "pre_tokenizer", "decoder".
void tokenizer_steps(TokenizerBuild* t, const std::string& stage, const Json& component,
                     int depth = 0);

// Reads the post_processor: the ids that go around a text.
void tokenizer_template(TokenizerBuild* t, const Json& component, int depth = 0);

// Reads tokenizer.json, already parsed.
void tokenizer_load_json(TokenizerBuild* t, const Json& j);

// Completes a tokenizer by the files beside its own: added and special tokens, BOS and EOS, what
// goes around a text. pair: it is vocab.json and merges.txt, which say nothing but the merges.
void tokenizer_config(TokenizerBuild* t, bool pair);

// Sets everything that follows from vocabulary and components.
void tokenizer_finish(TokenizerBuild* t);

// Turns pairs of tokens, in the order of their ranks, into the merges of a tokenizer.
void tokenizer_merges(TokenizerBuild* t, const TokenPairs& list);

// Makes the hash table of these merges. Of a pair that is there twice, the last counts.
void merges_table(Bpe* t, const std::vector<Merge>& list);
const uint64_t NO_MERGE = ~0ull;                         // pair of an empty slot

// Returns the size of a hash table for n entries: a power of two, at most half full.
inline size_t table_size(size_t n) {
    size_t size = 16;
    while (size < 2 * n) { size *= 2; }
    return size;
}

// Dies of a model without a tokenizer, with what its directory has in place of one.
void no_tokenizer(const std::string& model);

// Turns a token of a byte-level vocabulary into its bytes; false if it has other characters.
bool byte_level_to_raw(const std::string& s, std::string* raw);
#endif // TOKENIZER_BUILD_H
