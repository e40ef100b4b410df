/*
core/shards.cpp -- tells the formats of token files apart, notices files that are not what
their name says, and writes our own.
*/
#include "shards.h"
#include "../base/look.h"
#include "../base/maps.h"
#include "../optional.h"
#include "masked.h"

static std::string make_again() {
    return with_text("make it again with: ./train_sink tokenize FILE... -o DIR");
}

// ----------------------------------------------------------------------------
// formats

enum { SHARD_HEADER = 1024 };
// of ids of 16 bits, and of 32
static const int32_t SHARD_MAGIC[] = { 20240520, 20240801 }, SHARD_VERSION[] = { 1, 7 };

// Parses llm.c's form: a header of 1024 bytes.
static void parse_llmc(Shard* s, const unsigned char* p, long size, const int32_t* head) {
    const bool wide = head[0] == SHARD_MAGIC[1];
    const int version = SHARD_VERSION[wide];
    if (size < SHARD_HEADER) {
        die(s->path + strf(": got %ld bytes, wanted a header of 1024: truncated", size),
            make_again());
    }
    if (head[1] != version) {
        die(s->path + strf(": got shard version %d, wanted %d for magic %d", head[1],
                           version, head[0]), make_again());
    }
    s->format = wide ? "llm.c uint32" : "llm.c uint16";
    s->width = wide ? 4 : 2;
    s->tokens = p + SHARD_HEADER;
    s->n = head[2];
    const long wanted = SHARD_HEADER + s->n * s->width;
    if (s->n < 0 || wanted != size) {
        die(s->path + strf(": got %ld bytes, wanted %ld for the %ld tokens its header "
                           "promises: truncated or not a shard", size, wanted, s->n),
            make_again());
    }
}

Shard shard_parse(const std::string& path, const unsigned char* p, long size, int bare) {
    Shard s = { path, "", p, 2, 0, NULL };
    if (size == 0) { die(path + ": got an empty file, wanted token ids", make_again()); }
    int32_t head[3] = { 0 };
    memcpy(head, p, std::min(size, 12L));
    if (size >= 24 && !memcmp(p, "LITPKDS", 7)) {
        text_needed(path).litpkds(&s, p, size);
        return s;
    }
    if (has(SHARD_MAGIC, head[0])) {
        parse_llmc(&s, p, size, head);
        return s;
    }
    if (!bare) {
        die(path + ": got no header, wanted llm.c's or LITPKDS: not a token shard, or bare ids",
            "add --bin uint16 if it is ids of 16 bits each, as nanoGPT writes them; or uint8, "
            "uint32, uint64");
    }
    if (size % bare) {
        die(path + strf(": got %ld bytes, wanted a multiple of the %d of an id", size, bare));
    }
    s.format = RAW_FORMAT + strf("%d", 8 * bare);
    s.width = bare;
    s.n = size / bare;
    return s;
}

Shard shard_open(const std::string& path, int bare) {
    look_file(path, READS_TOKENS);
    if (is_regular(path) && file_size(path) == 0) { return shard_parse(path, NULL, 0); } // dies
    if (text_folder) { bare = text_folder->bare_width(path, bare); }
    const FileMap map = file_map(path, 1, "token");
    return shard_parse(path, (const unsigned char*)map.data, (long)map.size, bare);
}

long shard_token(const Shard& s, long i) {
    const unsigned char* p = s.tokens + i * s.width;
    if (s.width == 2) { return load<uint16_t>(p); }
    if (s.width == 4) { return load<uint32_t>(p); }
    if (s.width == 8) { return load<int64_t>(p); }
    return *p;
}

// ----------------------------------------------------------------------------
// hashes

// Returns the hash of block k of `bytes` bytes of tokens.
static uint64_t block_hash(const unsigned char* tokens, long bytes, long k) {
    const long from = k * SHARD_BLOCK;
    return hash_bytes(tokens + from, std::min(bytes - from, (long)SHARD_BLOCK));
}

// Compares the blocks of tokens [from, from + n) that have not been yet. Returns the first token of
// a block that is not as it was written, or -1.
static long shard_changed(const Shard& s, long from, long n) {
    if (!s.sums || n <= 0) { return -1; }
    ShardSums& sums = *s.sums;
    const long first_block = from * s.width / SHARD_BLOCK;
    const long last_block = ((from + n) * s.width - 1) / SHARD_BLOCK;
    for (long k = first_block; k <= last_block; k++) {
        if (sums.compared[k]) { continue; }
        if (block_hash(s.tokens, s.n * s.width, k) != sums.hashes[k]) {
            return k * SHARD_BLOCK / s.width;
        }
        sums.compared[k] = 1;
    }
    return -1;
}

std::string shard_header(long n, int width) {
    const bool wide = width == 4;
    const int32_t words[3] = { SHARD_MAGIC[wide], SHARD_VERSION[wide], (int32_t)n };
    std::string header(SHARD_HEADER, '\0');
    memcpy(&header[0], words, sizeof words);
    return header;
}

// Tells whether the header and every block of a shard are as they were written.
static bool shard_intact(const FileMap& map, const ShardSums& sums, int width) {
    const long bytes = sums.tokens * width;
    const std::string header = shard_header(sums.tokens, width);
    if ((long)map.size != SHARD_HEADER + bytes) { return false; }
    if (header.compare(0, SHARD_HEADER, map.data, SHARD_HEADER)) { return false; }
    const unsigned char* tokens = (const unsigned char*)map.data + SHARD_HEADER;
    bool same = true;
    #pragma omp parallel for reduction(&& : same)
    for (long k = 0; k < (long)sums.hashes.size(); k++) {
        same = same && block_hash(tokens, bytes, k) == sums.hashes[k];
    }
    return same;
}

std::string shard_fault(const std::string& dir, const ShardSums& sums, bool whole) {
    const std::string path = dir + "/" + sums.name;
    const long size = file_size(path);
    if (size < 0 || !is_regular(path)) { return "is missing"; }
    const long bytes = size - SHARD_HEADER;
    const int width = bytes == 4 * sums.tokens ? 4 : 2;
    const bool fits = bytes == width * sums.tokens;
    if (!fits || (long)sums.hashes.size() != div_up(bytes, SHARD_BLOCK)) {
        return strf("got %ld bytes, wanted %ld tokens", size, sums.tokens);
    }
    if (!whole) { return ""; }
    const FileMap map = file_map(path, SHARD_HEADER, "token");
    const bool same = shard_intact(map, sums, width);
    map_close(map);
    return same ? "" : "its bytes are not those that tokenize wrote";
}

// ----------------------------------------------------------------------------
// reading

void tokens_add(Tokens* t, const Shard& s) {
    t->shards.push_back(s);
    t->n += s.n;
}

// Tells whether an id is below V, or stands for a token whose loss nobody asks for.
static bool is_token(const Shard& s, long id, int V) {
    if (s.width == 4 && sft_is_masked(id)) { return ~(int)(uint32_t)id < V; }
    return id >= 0 && id < V;
}

// Copies tokens first .. first+n-1 of one shard.
static void shard_copy(const Shard& s, long first, long n, int V, int* out) {
    const long changed = shard_changed(s, first, n);
    if (changed >= 0) {
        die(s.path + strf(": from token %ld on, its bytes are not those that tokenize "
                          "wrote", changed),
            "get the file again, or run tokenize again into another directory");
    }
    for (long i = 0; i < n; i++) {
        const long id = shard_token(s, first + i);
        if (!is_token(s, id, V)) {
            die(s.path + strf(": got id %ld at token %ld, wanted ids below the "
                              "vocabulary of %d", id, first + i, V),
                "give the tokenizer these shards were made with: --tokenizer tokenizer.json, or a "
                "larger --vocab");
        }
        out[i] = (int)(uint32_t)id;
    }
}

void tokens_copy(const Tokens& t, long first, long n, int V, int* out) {
    long at = t.from + first;
    for (auto& s : t.shards) {
        const long count = std::min(n, s.n - at);        // at: where they begin in this shard
        if (count > 0) {
            shard_copy(s, at, count, V, out);
            out += count;
            n -= count;
        }
        at = std::max(0L, at - s.n);
    }
}
