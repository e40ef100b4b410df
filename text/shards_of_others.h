/*
shards_of_others.h -- what core/shards.cpp asks of token files that other programs write.
*/
#ifndef SHARDS_OF_OTHERS_H
#define SHARDS_OF_OTHERS_H
#include "../core/shards.h"

// Parses a shard of lit-gpt: TextFolder in optional.h.
void litpkds_parse(Shard* s, const unsigned char* p, long size);

// Returns the bytes of a token by Megatron's index, else `bare`: TextFolder in optional.h.
int bare_width(const std::string& path, int bare);
#endif // SHARDS_OF_OTHERS_H
