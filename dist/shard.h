/*
dist/shard.h -- which numbers of the model a rank updates, and how they come and go.

All parameters are in one array. It is cut into buckets, and each bucket into as many pieces as
there are ranks; piece r of every bucket is rank r's, and its pieces side by side are its shard:

    parameters   | 0 0 1 1 2 2 | 0 0 1 1 2 2 | 0 1 2 |      three ranks, three buckets
    shard of 1         1 1           1 1         1

Backward finishes the gradients from the end of the array to its beginning, so a bucket is on its
way to the other ranks while the layers before it are still at work. With one process the shard is
the array itself: core/dist_none.h.
*/
#ifndef SHARD_H
#define SHARD_H
#include "agree.h"

namespace dist {
// mpi.h and nccl.h have these: tensors leave between the first two; all (world, piece) -> this
// rank's piece of the sum; a piece of each rank -> all of them; waits for what has left.
inline void group_begin();
inline void group_end();
inline void reduce_scatter(acc* mine, const acc* all, long piece);
inline void all_gather(void* all, const void* mine, size_t bytes);
inline void arrive();
} // namespace dist

#ifndef DIST_BUCKET
#define DIST_BUCKET (1 << 22) // numbers in a bucket: 16 MiB of gradients
#endif

// How an array is cut.
struct ParamShard {
    long whole = 0;                 // numbers in all buckets, the last one rounded up
    long mine = 0;                  // numbers in one shard
    long buckets = 1;
    long piece = 0;                 // numbers in a piece of every bucket
    long last = 0;                  // but of the last one

    // Returns how many numbers a piece of this bucket has.
    long size(long bucket) const { return bucket + 1 < buckets ? piece : last; }

    // Return where the bucket begins in the array, and its piece in the shard.
    long in_array(long bucket) const { return bucket * piece * dist::world(); }
    long in_shard(long bucket) const { return bucket * piece; }
};

// Cuts n numbers among all ranks or, unless `many`, for this one alone. Pieces are multiples of 64
// numbers, so that they are aligned for vectors.
inline ParamShard shard_of(long n, bool many) {
    ParamShard s;
    s.whole = s.mine = s.last = n;
    const long world = many ? dist::world() : 1;
    const long unit = 64 * world;
    if (world == 1) { return s; }
    // many ranks pass a bucket on many times; a small one would take longer for that than for its
    // bytes
    const long bucket = DIST_BUCKET * std::max(1L, world / 8);
    const long most = std::max(1L, bucket / unit) * unit;
    s.buckets = div_up(n, most);
    s.piece = most / world;
    s.last = div_up(n - (s.buckets - 1) * most, unit) * 64;
    s.mine = (s.buckets - 1) * s.piece + s.last;
    s.whole = s.mine * world;
    return s;
}

// Sends the buckets whose gradients are final: those from number `from` on. *sent: how many went
// before, from the end.
inline void shard_send(const ParamShard& s, acc* shard, acc* all, long from, long* sent) {
    if (s.mine == s.whole) { return; }
    dist::group_begin();
    for (; *sent < s.buckets && s.in_array(s.buckets - 1 - *sent) >= from; ++*sent) {
        const long k = s.buckets - 1 - *sent;
        dist::reduce_scatter(shard + s.in_shard(k), all + s.in_array(k), s.size(k));
    }
    dist::group_end();
}

// Gathers all ranks' shards, numbers of `size` bytes, to the whole array on each.
inline void shard_gather(const ParamShard& s, void* all, const void* shard, size_t size) {
    dist::group_begin();
    for (long k = 0; k < s.buckets; k++) {
        char* to = (char*)all + s.in_array(k) * size;
        dist::all_gather(to, (const char*)shard + s.in_shard(k) * size, s.size(k) * size);
    }
    dist::group_end();
    dist::arrive();
}

// Copies this rank's pieces of a whole array into its shard.
inline void shard_keep(const ParamShard& s, acc* shard, const acc* all) {
    for (long k = 0; k < s.buckets; k++) {
        const acc* piece = all + s.in_array(k) + dist::rank() * s.size(k);
        ops::device_copy(shard + s.in_shard(k), piece, s.size(k) * sizeof *all);
    }
}
#endif // SHARD_H
