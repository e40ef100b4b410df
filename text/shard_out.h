/*
shard_out.h -- writes shards of tokens.
*/
#ifndef SHARD_OUT_H
#define SHARD_OUT_H
#include "../core/shards.h"

// A shard being written: the count goes into the header last, and the name appears only when all of
// it is on the disk.
struct ShardOut {
    FileOut file;
    int width;
    long n;
    std::string block;                       // bytes that no hash has been taken of yet
    std::vector<uint64_t> hashes;
};

ShardOut shard_begin(const std::string& path, int width);
void shard_put(ShardOut* out, const uint32_t* ids, long n);
void shard_commit(ShardOut* out);
#endif // SHARD_OUT_H
