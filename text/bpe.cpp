/*
text/bpe.cpp -- merges in place in a short piece and by a heap in a long one, so that a long
piece is not quadratic.
*/
#include "bpe.h"
#include "tokenizer_build.h"
#include "unicode.h"

enum { PIECE_BITS = 16 };                                // 2 MiB: fits a second-level cache
enum { FEW_SYMBOLS = 48 };                               // up to here merge_short is the faster

Scratch* tokenizer_scratch(const Bpe& t) {
    static thread_local Scratch scratch;
    if (scratch.owner != t.hash || scratch.cache.empty()) {
        scratch.cache.assign(1 << PIECE_BITS, PieceSlot());
        scratch.owner = t.hash;
    }
    return &scratch;
}

// ----------------------------------------------------------------------------
// the vocabulary and the merges, as hash tables

// Returns the slot of a pair, or the empty one where it would be.
static uint64_t merge_slot(const Bpe& t, uint64_t pair) {
    const uint64_t mixed = pair * 0x9E3779B97F4A7C15ull ^ (pair >> 32) * 0xC2B2AE3D27D4EB4Full;
    const uint64_t mask = t.merges.size() - 1;
    uint64_t i = mixed >> t.merge_shift;
    while (t.merges[i].pair != pair && t.merges[i].pair != NO_MERGE) { i = (i + 1) & mask; }
    return i;
}

const Merge* merge_find(const Bpe& t, uint32_t left, uint32_t right) {
    const Merge* merge = &t.merges[merge_slot(t, (uint64_t)left << 32 | right)];
    return merge->pair == NO_MERGE ? NULL : merge;
}

void merges_table(Bpe* t, const std::vector<Merge>& list) {
    const size_t size = table_size(list.size());
    t->merges.assign(size, Merge{ NO_MERGE, 0, 0 });
    t->merge_shift = 64 - __builtin_ctzll(size);         // a power of two
    for (auto& merge : list) { t->merges[merge_slot(*t, merge.pair)] = merge; }
}

int token_find(const Bpe& t, const char* s, size_t n) {
    const uint64_t mask = t.slots.size() - 1;
    for (uint64_t i = hash_bytes(s, n) & mask; t.slots[i] >= 0; i = (i + 1) & mask) {
        const std::string& token = t.raw[t.slots[i]];
        if (token.size() == n && !memcmp(token.data(), s, n)) { return t.slots[i]; }
    }
    return -1;
}

// ----------------------------------------------------------------------------
// symbols

// Appends one token <0xHH> per byte. Returns false, and appends nothing, if one of them is missing.
static bool fallback_symbols(const Bpe& t, const char* s, int n, Ids* out) {
    if (!t.byte_fallback) { return false; }
    for (int k = 0; k < n; k++) {
        if (t.byte_id[(unsigned char)s[k]] < 0) { return false; }
    }
    for (int k = 0; k < n; k++) { out->push_back(t.byte_id[(unsigned char)s[k]]); }
    return true;
}

void piece_symbols(const Bpe& t, const char* s, size_t n, Ids* out) {
    bool after_unknown = false;
    int bytes = 1;
    out->clear();
    for (size_t i = 0; i < n; i += bytes) {
        if (!t.byte_level) { utf8_at(s + i, &bytes); }
        const int id = t.byte_level ? t.byte_id[(unsigned char)s[i]] : token_find(t, s + i, bytes);
        if (id >= 0) { out->push_back(id); }
        const bool known = id >= 0 || fallback_symbols(t, s + i, bytes, out);
        const bool fused = t.fuse_unk && after_unknown;  // a run of unknowns is one token
        if (!known && t.unk >= 0 && !fused) { out->push_back(t.unk); }
        after_unknown = !known;
    }
}

// ----------------------------------------------------------------------------
// merging

// Notes the merge of symbol i with its neighbor. Returns false if they do not merge.
static bool note_merge(const Bpe& t, Scratch* w, size_t i, uint32_t neighbor) {
    const Merge* merge = merge_find(t, w->id[i], neighbor);
    w->rank[i] = merge ? merge->rank : NO_ID;
    if (merge) { w->made[i] = merge->id; }
    return merge;
}

void merge_short(const Bpe& t, Scratch* w) {
    Ids& id = w->id;
    Ids& rank = w->rank;
    rank.assign(id.size(), NO_ID);
    w->made.resize(id.size());
    for (size_t i = 0; i + 1 < id.size(); i++) { note_merge(t, w, i, id[i + 1]); }
    while (id.size() > 1) {
        const size_t best = std::min_element(rank.begin(), rank.end()) - rank.begin();
        if (rank[best] == NO_ID) { break; }

        id[best] = w->made[best];
        for (Ids* list : { &id, &rank, &w->made }) { list->erase(list->begin() + best + 1); }
        rank[best] = NO_ID;
        if (best + 1 < id.size()) { note_merge(t, w, best, id[best + 1]); }
        if (best > 0) { note_merge(t, w, best - 1, id[best]); }
    }
}

// Notes the merge of symbol i with the next one of the list, and puts it on the heap.
static void push_merge(const Bpe& t, Scratch* w, uint32_t i) {
    const uint32_t n = (uint32_t)w->id.size();
    const uint32_t next = w->next[i];
    w->rank[i] = NO_ID;
    if (next >= n || !note_merge(t, w, i, w->id[next])) { return; }
    w->heap.push((uint64_t)w->rank[i] << 32 | i);
}

// Joins symbol i and the next one of the list.
static void merge_at(Scratch* w, uint32_t i) {
    const uint32_t gone = w->next[i];
    const uint32_t next = w->next[gone];
    w->id[i] = w->made[i];
    w->rank[gone] = NO_ID;
    w->next[i] = next;
    if (next < w->id.size()) { w->prev[next] = i; }
}

void merge_long(const Bpe& t, Scratch* w) {
    const uint32_t n = (uint32_t)w->id.size();
    w->rank.assign(n, NO_ID);
    w->made.resize(n);
    w->next.resize(n);
    w->prev.resize(n);
    for (uint32_t i = 0; i < n; i++) {
        w->next[i] = i + 1;
        w->prev[i] = i - 1;
    }
    for (uint32_t i = 0; i < n; i++) { push_merge(t, w, i); }
    while (!w->heap.empty()) {
        const uint64_t top = w->heap.top();
        const uint32_t i = (uint32_t)top;
        w->heap.pop();
        const bool stale = w->rank[i] != top >> 32;
        if (stale) { continue; }

        merge_at(w, i);
        push_merge(t, w, i);
        if (i > 0) { push_merge(t, w, w->prev[i]); }
    }

    uint32_t kept = 0;
    for (uint32_t i = 0; i < n; i = w->next[i]) { w->id[kept++] = w->id[i]; }
    w->id.resize(kept);
}

void piece_merge(const Bpe& t, Scratch* w, const char* s, size_t n) {
    const int id = token_find(t, s, n);
    if (id >= 0 && t.whole[id]) {
        w->id.assign(1, id);
        return;
    }
    piece_symbols(t, s, n, &w->id);
    if (w->id.size() <= FEW_SYMBOLS) { merge_short(t, w); } else { merge_long(t, w); }
}

// ----------------------------------------------------------------------------
// the cache

static PieceKey piece_key(const char* s, size_t n, const char* end) {
    char bytes[16] = { 0 };
    const char* source = s;
    if (end - s < 16) {
        memcpy(bytes, s, n);
        source = bytes;
    }
    PieceKey key;
    memcpy(&key.low, source, 8);
    memcpy(&key.high, source + 8, 8);
    if (n < 8) {
        key.low &= (1ull << 8 * n) - 1;
        key.high = 0;
    } else {
        key.high &= (1ull << 8 * (n - 8)) - 1;
    }
    key.high |= (uint64_t)n << 56;
    return key;
}

static size_t piece_slot(PieceKey key) {
    const uint64_t mixed = key.low * 0x9E3779B97F4A7C15ull ^ key.high * 0xC2B2AE3D27D4EB4Full;
    return mixed >> (64 - PIECE_BITS);
}

void piece_encode(const Bpe& t, Scratch* w, const char* s, size_t n, const char* end,
                  Ids* out) {
    if (n > CACHED_BYTES) {
        piece_merge(t, w, s, n);
        out->insert(out->end(), w->id.begin(), w->id.end());
        return;
    }
    const PieceKey key = piece_key(s, n, end);
    PieceSlot* slot = &w->cache[piece_slot(key)];
    if (memcmp(&slot->key, &key, sizeof key)) {
        piece_merge(t, w, s, n);
        if (w->id.size() > CACHED_IDS) {
            out->insert(out->end(), w->id.begin(), w->id.end());
            return;
        }
        slot->key = key;
        std::fill_n(slot->ids, CACHED_IDS, (uint32_t)NO_ID);
        std::copy(w->id.begin(), w->id.end(), slot->ids);
    }
    for (int k = 0; k < CACHED_IDS && slot->ids[k] != NO_ID; k++) { out->push_back(slot->ids[k]); }
}
