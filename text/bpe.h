/*
bpe.h -- one piece of text -> ids. Of all neighbors that merge, the pair of lowest rank merges
first, the leftmost of equals.

    piece_symbols   the ids that merging starts from
    merge_short     merges a few of them
    merge_long      merges many of them
    piece_encode    all of it, with a cache of pieces met before
*/
#ifndef BPE_H
#define BPE_H
#include "vocabulary.h"
#include <queue>

enum : uint32_t { NO_ID = 0xFFFFFFFF };

// A piece met before: up to 15 bytes, its length in the top byte of `high`. Its ids end at NO_ID.
enum { CACHED_BYTES = 15, CACHED_IDS = 4 };
struct PieceKey {
    uint64_t low;
    uint64_t high;
};
struct PieceSlot {
    PieceKey key;
    uint32_t ids[CACHED_IDS];
};

// What one thread needs to encode: room to work in, and a cache, because short pieces repeat so
// often that most of them are found there.
struct Scratch {
    uint64_t owner = 0;                                  // hash of the tokenizer that cached
    std::vector<PieceSlot> cache;
    Ids id;                                              // the symbols of the piece
    Ids rank;                                            // of each symbol's merge with the next
    Ids made;                                            // the id that merge makes
    Ids next;                                            // a linked list of the symbols
    Ids prev;
    std::priority_queue<uint64_t, std::vector<uint64_t>, std::greater<uint64_t>>
        heap;                                            // rank << 32 | position, lowest first
    std::string normalized;
};

// Returns this thread's scratch, with its cache emptied if another tokenizer filled it.
Scratch* tokenizer_scratch(const Bpe& t);

// Returns the merge of two neighbors, NULL if they do not merge.
const Merge* merge_find(const Bpe& t, uint32_t left, uint32_t right);

// Returns the id of exactly these bytes, -1 if there is none.
int token_find(const Bpe& t, const char* s, size_t n);

// Writes the ids that merging starts from to *out: those of bytes or of characters, or what stands
// for the ones that the vocabulary lacks.
void piece_symbols(const Bpe& t, const char* s, size_t n, Ids* out);

// Merges w->id. Looks for the best pair again after every merge: best for few symbols.
void merge_short(const Bpe& t, Scratch* w);

// Merges w->id with a heap over a linked list, dropping stale entries: n log n for n symbols.
void merge_long(const Bpe& t, Scratch* w);

// Encodes a piece into w->id, without the cache.
void piece_merge(const Bpe& t, Scratch* w, const char* s, size_t n);

// Appends the ids of a piece to *out. end: how far memory may be read.
void piece_encode(const Bpe& t, Scratch* w, const char* s, size_t n, const char* end,
                  Ids* out);
#endif // BPE_H
