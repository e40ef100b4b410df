/*
data_sources.h -- how the sources of a mixture are found and opened, and what of each is held out.
*/
#ifndef DATA_SOURCES_H
#define DATA_SOURCES_H
#include "../dataloader.h"

// Opens all sources that the options name: tokenizer, tokens, windows, weights, description.
void data_open_sources(Data* d);

// Returns the shards that a manifest lists; none if it was made before there were hashes.
std::vector<ShardSums> manifest_sums(const Json& manifest);
#endif // DATA_SOURCES_H
