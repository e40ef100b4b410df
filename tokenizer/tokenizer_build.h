/*
tokenizer_build.h -- how a tokenizer is built from its files. Who calls what:

    tokenizer_load     which files they are                    tokenizer_load.cpp
    tokenizer_steps    components of tokenizer.json -> steps   tokenizer_steps.cpp
    tokenizer_config   what the files beside it say            tokenizer_config.cpp
    tokenizer_finish   everything that follows from these      tokenizer_finish.cpp
*/
#ifndef TOKENIZER_BUILD_H
#define TOKENIZER_BUILD_H
#include "../tokenizer.h"

// What loading needs to say an error with, and nothing else.
struct TokenizerFile { std::string path; };

// Dies of what is wrong with the file.
[[noreturn]] void refuse(const TokenizerFile& f, const std::string& what,
                         const std::string& hint = "");

typedef std::unordered_map<std::string, int> Vocab;      // token -> id
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
const Json& json_need(const TokenizerFile& f, const Json& j, const char* key, Json::Type type);

// Returns a whole number; dies of anything else.
int json_int(const TokenizerFile& f, const Json& j, const char* key);

bool json_null(const Json* v);
std::string json_string(const Json& j, const char* key);
bool json_true(const Json& j, const char* key, bool absent = false);

// ----------------------------------------------------------------------------
// parts

// Adds the steps of one component of the file. stage: "normalizer", "pre_tokenizer", "decoder".
void tokenizer_steps(const TokenizerFile& f, Tokenizer* t, const std::string& stage,
                     const Json* component, int depth = 0);

// Reads the post_processor: the ids that go around a text.
void tokenizer_template(const TokenizerFile& f, Tokenizer* t, const Json* component,
                        int depth = 0);

// Reads tokenizer.json, already parsed. dir: where the files beside it are.
void tokenizer_load_json(const TokenizerFile& f, Tokenizer* t, Vocab* vocab, const std::string& dir,
                         const Json& j);

// Completes a tokenizer by the files beside its own: added and special tokens, BOS and EOS, what
// goes around a text. pair: it is vocab.json and merges.txt, which say nothing but the merges.
void tokenizer_config(const TokenizerFile& f, Tokenizer* t, const Vocab& vocab,
                      const std::string& dir, bool pair);

// Sets everything that follows from vocabulary and components.
void tokenizer_finish(const TokenizerFile& f, Tokenizer* t, const Vocab& vocab);

// Turns pairs of tokens, in the order of their ranks, into the merges of a tokenizer.
void tokenizer_merges(const TokenizerFile& f, Tokenizer* t, const Vocab& vocab,
                      const TokenPairs& list);

// Makes the hash table of these merges. Of a pair that is there twice, the last counts.
void merges_table(Tokenizer* t, const std::vector<Merge>& list);
const uint64_t NO_MERGE = ~0ull;                         // pair of an empty slot

// Returns the size of a hash table for n entries: a power of two, at most half full.
inline size_t table_size(size_t n) {
    size_t size = 16;
    while (size < 2 * n) { size *= 2; }
    return size;
}

// Turns a token of a byte-level vocabulary into its bytes; false if it has other characters.
bool byte_level_to_raw(const std::string& s, std::string* raw);
#endif // TOKENIZER_BUILD_H
