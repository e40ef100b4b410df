/*
manifest.h -- manifest.json in a directory of shards: what was tokenized and how, so that the same
text is not tokenized twice, and shards that changed are noticed.
*/
#ifndef MANIFEST_H
#define MANIFEST_H
#include "../core/data_sources.h"
#include "../core/shards.h"
#include "tokenize.h"

// One series of shards: DIR/NAME_000000.bin, NAME_000001.bin, ..
struct SeriesSums {
    std::string name;
    long documents = 0;
    long tokens = 0;
    std::vector<ShardSums> shards;
};

// Returns what decides every token that comes out: two runs in which this is equal make the same
// shards. Files from val_from on go into val shards.
std::string tokenize_made(const TokenizeOptions& o, const Tokenizer& tok,
                          const std::vector<std::string>& files, size_t val_from);

// Writes the manifest of o.out. made: of tokenize_made. complete: all shards are there.
void manifest_write(const TokenizeOptions& o, const Tokenizer& tok, const TextCounts& counts,
                    const std::vector<SeriesSums>& series, const std::string& made,
                    bool complete);

// Tells whether this is the text of a manifest, and whether it says that all shards are there.
bool manifest_is_ours(const std::string& text);
bool manifest_is_complete(const std::string& text);

// Tells whether this is the name of a file that tokenize makes in a directory of shards.
bool tokenize_ours(const std::string& name);

// Tells whether this file was written, moved to its place or given another time after that one.
bool changed_since(const std::string& path, const std::string& other);
#endif // MANIFEST_H
