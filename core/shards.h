/*
shards.h -- files of token ids, mapped into memory; several of them seen as one long line of tokens.
To read another format: one more case in shard_parse.
*/
#ifndef SHARDS_H
#define SHARDS_H
#include <memory>
#include "../base/common.h"

// before the bits of an id, as the format of a file without a header
static const char* const RAW_FORMAT = "raw uint";

// What the manifest says of a shard that we wrote: its tokens, and a hash of each SHARD_BLOCK bytes
// of them. A block is compared when it is first read.
enum { SHARD_BLOCK = 1 << 20 };
struct ShardSums {
    std::string name;
    long tokens = 0;
    std::vector<uint64_t> hashes;
    std::vector<char> compared;
};

struct Shard {
    std::string path;
    std::string format;
    const unsigned char* tokens;
    int width;                               // bytes per token
    long n;
    std::shared_ptr<ShardSums> sums;         // NULL if nothing is known of it
};

// Finds the tokens in `size` bytes at p: by a header, or as ids of `bare` bytes each; dies if there
// is no header and `bare` is 0.
Shard shard_parse(const std::string& path, const unsigned char* p, long size, int bare = 0);

Shard shard_open(const std::string& path, int bare = 0);

long shard_token(const Shard& s, long i);

// Returns the header of a shard as we write it.
std::string shard_header(long n, int width);

// Returns what is wrong with the shard in `dir` that `sums` describe, "" if nothing. whole: reads
// all of its tokens.
std::string shard_fault(const std::string& dir, const ShardSums& sums, bool whole);

// ----------------------------------------------------------------------------
// reading

// Tokens [from, from + n) of all shards laid end to end.
struct Tokens {
    std::vector<Shard> shards;
    long from = 0;
    long n = 0;
};

void tokens_add(Tokens* t, const Shard& s);

// Copies tokens first .. first+n-1 to out (n). Dies of an id that is V or more.
void tokens_copy(const Tokens& t, long first, long n, int V, int* out);
#endif // SHARDS_H
