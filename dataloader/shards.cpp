/*
dataloader/shards.cpp -- tells the formats of token files apart, notices files that are not what
their name says, and writes our own.
*/
#include "shards.h"
#include <set>
#include "../cpu/half.h"
#include "../files/look.h"
#include "../files/maps.h"
#include "masked.h"

static const char* const MAKE_AGAIN = "make it again with: ./train_sink tokenize FILE... -o DIR";

// ----------------------------------------------------------------------------
// formats

enum { SHARD_HEADER = 1024 };
enum {
    SHARD_MAGIC_16 = 20240520,
    SHARD_VERSION_16 = 1,
    SHARD_MAGIC_32 = 20240801,
    SHARD_VERSION_32 = 7
};

// Tells whether a file has llm.c's header, whatever its magic number says: zeros after the third
// word.
static bool shard_blank_header(const unsigned char* p, long size) {
    const unsigned char* end = p + std::min(size, (long)SHARD_HEADER);
    return size <= 12 || std::all_of(p + 12, end, [](unsigned char byte) { return byte == 0; });
}

// Parses lit-gpt's and TinyLlama's form: a header of 24 bytes, then as many tokens as it says.
static void parse_litpkds(Shard* s, const unsigned char* p, long size) {
    const int widths[] = { 0, 1, 1, 2, 4, 8, 0, 0, 2 };  // by the code of a dtype
    const int code = p[15];
    uint64_t version;
    uint64_t count;
    memcpy(&version, p + 7, 8);
    memcpy(&count, p + 16, 8);
    s->width = code <= 8 ? widths[code] : 0;
    if (version != 1 || !s->width) {
        die(s->path + strf(": got LITPKDS version %llu, dtype %d, wanted version 1 and "
                           "an integer dtype", (unsigned long long)version, code));
    }
    const long held = (size - 24) / s->width;
    if (count > (uint64_t)held) {
        die(s->path + strf(": got %ld tokens, wanted the %llu its header promises: "
                           "truncated", held, (unsigned long long)count), MAKE_AGAIN);
    }
    s->format = "LITPKDS";
    s->tokens = p + 24;
    s->n = count;
}

// Parses llm.c's form: a header of 1024 bytes.
static void parse_llmc(Shard* s, const unsigned char* p, long size, const int32_t* head) {
    const bool wide = head[0] == SHARD_MAGIC_32;
    const int version = wide ? SHARD_VERSION_32 : SHARD_VERSION_16;
    if (size < SHARD_HEADER) {
        die(s->path + strf(": got %ld bytes, wanted a header of 1024: truncated", size),
            MAKE_AGAIN);
    }
    if (head[1] != version) {
        die(s->path + strf(": got shard version %d, wanted %d for magic %d", head[1],
                           version, head[0]), MAKE_AGAIN);
    }
    s->format = wide ? "llm.c uint32" : "llm.c uint16";
    s->width = wide ? 4 : 2;
    s->tokens = p + SHARD_HEADER;
    s->n = head[2];
    const long wanted = SHARD_HEADER + s->n * s->width;
    if (s->n < 0 || wanted != size) {
        die(s->path + strf(": got %ld bytes, wanted %ld for the %ld tokens its header "
                           "promises: truncated or not a shard", size, wanted, s->n),
            MAKE_AGAIN);
    }
}

Shard shard_parse(const std::string& path, const unsigned char* p, long size) {
    Shard s = { path, "", p, 2, 0, NULL };
    if (size == 0) { die(path + ": got an empty file, wanted token ids", MAKE_AGAIN); }
    int32_t head[3] = { 0 };
    memcpy(head, p, std::min(size, 12L));
    if (size >= 24 && !memcmp(p, "LITPKDS", 7)) {
        parse_litpkds(&s, p, size);
        return s;
    }
    if (head[0] == SHARD_MAGIC_16 || head[0] == SHARD_MAGIC_32) {
        parse_llmc(&s, p, size, head);
        return s;
    }
    const bool bare = size % 2 == 0 && !shard_blank_header(p, size);     // nanoGPT: ids alone
    if (!bare) {
        die(path + strf(": got magic %d, wanted %d (uint16) or %d (uint32): not a token "
                        "shard", head[0], SHARD_MAGIC_16, SHARD_MAGIC_32), MAKE_AGAIN);
    }
    s.format = RAW_FORMAT;
    s.n = size / 2;
    return s;
}

// Returns the hint that reads a file as numbers of this type and writes a shard.
static std::string hint_as_type(const std::string& type, const std::string& path) {
    return hint_for(shard_command("n.fromfile('FILE', '" + type + "')"), path);
}

// Dies if Megatron's index, which stands beside tokens without a header and says how
// wide they are, does not say two bytes.
static void shard_index_check(const std::string& path) {
    static const char* const TYPES[] = { "", "uint8", "int8", "int16", "int32", "int64",
                                         "float64", "float32", "uint16" };
    const size_t uint16 = 8;
    const std::string index = path.substr(0, path.rfind('.')) + ".idx";
    if (!is_regular(index)) { return; }
    const std::string header = file_begin_bytes(index, 18);
    const std::string magic("MMIDIDX\0\0", 9);
    if (header.size() < 18 || header.compare(0, 9, magic)) { return; }
    const size_t code = (unsigned char)header[17];
    if (code == uint16) { return; }
    const bool known = code < uint16;
    const std::string type = known ? TYPES[code] : "unknown";
    die(path + ": got tokens of type " + type + ", as " + index +
            " says, wanted uint16 or a shard with a header",
        hint_as_type(known ? type : "int32", path));
}

Shard shard_open(const std::string& path) {
    look_file(path, READS_TOKENS);
    if (is_regular(path) && file_size(path) == 0) { return shard_parse(path, NULL, 0); } // dies
    const FileMap map = file_map(path, 1, "token");
    const Shard s = shard_parse(path, (const unsigned char*)map.data, (long)map.size);
    if (s.format == RAW_FORMAT) { shard_index_check(path); }
    return s;
}

// What else a file without a header may hold: ids as numbers of this type of numpy.
struct RawType { const char* numpy; int width; bool is_float, swapped; };
static const RawType RAW_TYPES[] = {
    { "float64", 8, true, false },  { ">f8", 8, true, true },
    { "uint64", 8, false, false },  { ">u8", 8, false, true },
    { "float32", 4, true, false },  { ">f4", 4, true, true },
    { "uint32", 4, false, false },  { ">u4", 4, false, true },
    { "float16", 2, true, false },  { ">f2", 2, true, true },
};

static double raw_number(const unsigned char* at, const RawType& t) {
    unsigned char bytes[8] = { 0 };
    for (int i = 0; i < t.width; i++) { bytes[i] = at[t.swapped ? t.width - 1 - i : i]; }
    if (!t.is_float) { return (double)load<uint64_t>(bytes); }
    if (t.width == 8) { return load<double>(bytes); }
    return t.width == 4 ? load<float>(bytes) : half_at(bytes);
}

// Returns how far apart numbers are of which at most 65,536 of n are looked at.
static long raw_step(long n) { return std::max(1L, n / 65536); }

// Tells whether all numbers of this type are ids below `most`, and not all of them 0.
static bool raw_fits(const Shard& s, const RawType& t, double most) {
    const long n = 2 * s.n / t.width;
    if (2 * s.n % t.width || n < 2) { return false; }
    bool any = false;
    for (long i = 0; i < n; i += raw_step(n)) {
        const double x = raw_number(s.tokens + i * t.width, t);
        if (!(x >= 0 && x < most && x == floor(x))) { return false; }
        any = any || x > 0;
    }
    return any;
}

// Tells whether the bytes of ids of 16 bits are in the other order, or each is an id: most ids of a
// text are small, so the upper bytes hold fewer values, more often. Returns a type, or "".
static std::string raw_bytes(const Shard& s, long V) {
    const size_t enough = 8192;                  // ids, whose bytes differ by chance in a tenth
    std::vector<double> lower(256);
    std::vector<double> upper(256);
    size_t n = 0;
    bool swapped_fits = true;
    for (long i = 0; i < s.n; i += raw_step(s.n)) {
        const unsigned char* at = s.tokens + 2 * i;
        lower[at[0]]++;
        upper[at[1]]++;
        n++;
        swapped_fits = swapped_fits && at[0] * 256 + at[1] < V;
    }
    double lower_squares = 0;
    double upper_squares = 0;
    double apart = 0;
    for (int b = 0; b < 256; b++) {
        lower_squares += lower[b] * lower[b];
        upper_squares += upper[b] * upper[b];
        apart += fabs(lower[b] - upper[b]);
    }
    if (swapped_fits && lower_squares > 2 * upper_squares) { return ">u2"; }
    return n >= enough && apart < n / 4.0 ? "uint8" : "";
}

// Tells whether a file read as ids of 16 bits holds wider ones that are not small: their upper
// halves hold a handful of values, and the lowest 16 bits many.
static bool raw_has_period(const Shard& s, int width) {
    const size_t handful = 8;
    const long halves = width / 2;
    const long n = s.n / halves;
    if (s.n % halves) { return false; }
    std::set<long> low, high;
    for (long i = 0; i < n && high.size() <= handful; i += raw_step(n)) {
        low.insert(shard_token(s, i * halves));
        for (long k = 1; k < halves; k++) { high.insert(shard_token(s, i * halves + k)); }
    }
    return high.size() <= handful && low.size() >= 16 * high.size();
}

void shard_raw_check(const Shard& s, long V) {
    const auto reject = [&](const std::string& what, const std::string& type) {
        die(s.path + ": " + what + ", wanted uint16 or a shard with a header",
            hint_as_type(type, s.path));
    };
    for (auto& t : RAW_TYPES) {
        const double most = t.is_float ? 1 << 24 : std::max(V, 65536L);
        const bool period = !t.is_float && !t.swapped && raw_has_period(s, t.width);
        if (!period && !raw_fits(s, t, most)) { continue; }
        const std::string bits = strf("of %d bits each, without a header", 8 * t.width);
        const std::string order = t.swapped ? ", the highest byte first" : "";
        reject((t.is_float ? std::string("looks like ids as ") + t.numpy : "looks like ids " + bits)
               + order, t.numpy);
    }
    const std::string first((const char*)s.tokens, std::min(2 * s.n, (long)LOOK_BYTES));
    const std::string bytes = raw_bytes(s, V);
    if (bytes == ">u2") { reject("looks like ids of 16 bits, the highest byte first", bytes); }
    if (!bytes.empty() || (s.n >= 32 && is_text(first))) {
        reject("looks like text, or ids of 8 bits each", "uint8");
    }
    if (V > 65536) {
        reject(strf("got ids of 16 bits each, without a header, for a vocabulary of %ld", V),
               "uint32");
    }
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

long shard_changed(const Shard& s, long from, long n) {
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

static std::string shard_header(long n, int width) {
    const bool wide = width == 4;
    const int32_t words[3] = { wide ? SHARD_MAGIC_32 : SHARD_MAGIC_16,
                               wide ? SHARD_VERSION_32 : SHARD_VERSION_16, (int32_t)n };
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
// writing

ShardOut shard_begin(const std::string& path, int width) {
    const std::string blank(SHARD_HEADER, '\0');
    ShardOut out = { file_begin(path), width, 0, "", {} };
    file_put(&out.file, blank.data(), blank.size());
    return out;
}

// Takes the hashes of whole blocks; last: also of what is left.
static void shard_hash(ShardOut* out, bool last) {
    size_t done = 0;
    for (;;) {
        const size_t left = out->block.size() - done;
        const size_t n = std::min(left, (size_t)SHARD_BLOCK);
        if (n == 0 || (n < SHARD_BLOCK && !last)) { break; }
        out->hashes.push_back(hash_bytes(out->block.data() + done, n));
        done += n;
    }
    out->block.erase(0, done);
}

void shard_put(ShardOut* out, const uint32_t* ids, long n) {
    const void* source = ids;
    if (out->width == 2) {
        static thread_local std::vector<uint16_t> narrow;
        narrow.assign(ids, ids + n);
        source = narrow.data();
    }
    const long bytes = n * out->width;
    file_put(&out->file, source, bytes);
    out->block.append((const char*)source, bytes);
    shard_hash(out, false);
    out->n += n;
}

void shard_commit(ShardOut* out) {
    shard_hash(out, true);
    const std::string header = shard_header(out->n, out->width);
    if (fseek(out->file.f, 0, SEEK_SET)) { file_abort(&out->file); }
    file_put(&out->file, header.data(), header.size());
    file_commit(&out->file);
}

// ----------------------------------------------------------------------------
// reading

void tokens_add(Tokens* t, const Shard& s) {
    t->shards.push_back(s);
    t->n += s.n;
    t->end.push_back(t->n);
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
    first += t.from;
    size_t k = std::upper_bound(t.end.begin(), t.end.end(), first) - t.end.begin();
    while (n > 0) {
        const Shard& s = t.shards[k];
        const long begin = first - (t.end[k] - s.n);     // within the shard
        const long count = std::min(n, s.n - begin);
        shard_copy(s, begin, count, V, out);
        out += count;
        first += count;
        n -= count;
        k++;
    }
}
