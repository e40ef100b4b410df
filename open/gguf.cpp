/*
open/gguf.cpp -- parses the header with every number checked against the file, and unpacks the
blocks of each quantized type.
*/
#include "gguf.h"
#include "foreign_weights.h"
#include "../base/look.h"

// ----------------------------------------------------------------------------
// types: blocks of 32 or 256 numbers

// 16 bytes of a file as they were: what is written to floats beside them cannot change these, so
// loops over them become vector code
struct Bytes {
    unsigned char x[16];
    explicit Bytes(const unsigned char* p) { memcpy(x, p, sizeof x); }
    int operator[](int i) const { return x[i]; }
};

// Calls give(i, q) for 32 numbers q of 4 bits in 16 bytes: byte i holds number i (low half) and
// number 16 + i. Two loops: each becomes vector code.
template <class Give> void each_nibble(const unsigned char* p, Give give) {
    const Bytes q(p);
    for (int i = 0; i < 16; i++) { give(i, q[i] & 15); }
    for (int i = 0; i < 16; i++) { give(16 + i, q[i] >> 4); }
}

// Reads a block of Q4_0, Q5_0, Q4_1 or Q5_1: scale d, in the last two a minimum m, in those of Q5
// the fifth bits of 32 numbers q, then the low 4 bits of these. Value d (q - 8) in Q4_0, d (q - 16)
// in Q5_0, d q + m where there is an m.
template <bool fifth, bool minimum> static void read_q(const unsigned char* p, float* out) {
    const float d = half_at(p), m = minimum ? half_at(p + 2) : -0.f;     // -0 leaves a -0 as it is
    const int half = minimum ? 0 : 8 << fifth;
    p += minimum ? 4 : 2;
    const int high = fifth ? load<int32_t>(p) : 0;
    each_nibble(p + 4 * fifth, [=](int i, int q) {
        out[i] = d * ((q | (high >> i & 1) << 4) - half) + m;
    });
}

// Reads a block of Q8_0: scale d, 32 numbers q of 8 bits with a sign. Value d q.
static void read_q8_0(const unsigned char* p, float* out) {
    const float d = half_at(p);
    for (int i = 0; i < 32; i++) {
        out[i] = d * (signed char)p[2+i];
    }
}

// The head of a block of Q4_K or Q5_K: d, dmin, and 8 scales and 8 minima of 6 bits in 12 bytes s.
// s[g] and s[4+g] hold scale and minimum g in their low 6 bits, g < 4. Those of group 4 + g have
// their low 4 bits in s[8+g] and their high 2 bits on top of s[g] and s[4+g].
struct GgufScales { float scale[8], minimum[8]; };

static GgufScales gguf_scales(const unsigned char* p) {
    const float d = half_at(p), dmin = half_at(p + 2);
    const unsigned char* s = p + 4;
    GgufScales out;
    for (int g = 0; g < 4; g++) {
        out.scale[g]     = d * (s[g] & 63);
        out.minimum[g]   = dmin * (s[4+g] & 63);
        out.scale[4+g]   = d * ((s[8+g] & 15) | (s[g] >> 6) << 4);
        out.minimum[4+g] = dmin * ((s[8+g] >> 4) | (s[4+g] >> 6) << 4);
    }
    return out;
}

// Reads a block of Q4_K or Q5_K: the head, in Q5_K 32 bytes, byte i with the fifth bits of number i
// of all groups, then the low 4 bits of 256 numbers q in 8 groups. Value scale q - minimum. Groups
// 2 j and 2 j + 1 share 32 bytes.
template <bool fifth> static void read_q_k(const unsigned char* p, float* out) {
    const GgufScales s = gguf_scales(p);
    for (int g = 0; g < 8; g++) {
        const unsigned char *high = p + 16, *low = high + 32 * fifth + g / 2 * 32;
        const int shift = g % 2 * 4;
        for (int i = 0; i < 32; i++) {
            const int q = (low[i] >> shift & 15) | (fifth ? (high[i] >> g & 1) << 4 : 0);
            out[32*g + i] = s.scale[g] * q - s.minimum[g];
        }
    }
}

// Reads a block of Q6_K: 128 bytes low, 64 bytes high, 16 scales of 8 bits with a sign, d; 256
// numbers q of 6 bits in 16 groups. Value d scale (q - 32).
// Each half of the block has 64 bytes low and 32 high. Number 32 j + i of it, j < 4, has its low
// 4 bits in low[j % 2 * 32 + i] (upper half of the byte if j >= 2), its high 2 in high[i] >> 2 j.
static void read_q6_k(const unsigned char* p, float* out) {
    const float d = half_at(p + 208);
    for (int k = 0; k < 16; k++) {                   // 16 numbers at a time
        const int half = k / 8, j = k / 2 % 4, from = k % 2 * 16;
        const Bytes low(p + half * 64 + j % 2 * 32 + from),
                        high(p + 128 + half * 32 + from);
        const float scale = d * (signed char)p[192 + k];
        for (int i = 0; i < 16; i++) {
            const int q = (low[i] >> j / 2 * 4 & 15) | (high[i] >> 2 * j & 3) << 4;
            out[16*k + i] = scale * (q - 32);
        }
    }
}

// Reads a block of Q2_K: 16 scales and minima of 4 bits, 64 bytes of numbers, d, dmin; 256 numbers
// q of 2 bits in 16 groups. Value d scale q - dmin minimum.
// Group 8 h + 2 j + s has bits 2 j of 16 bytes, from byte 32 h + 16 s on.
static void read_q2_k(const unsigned char* p, float* out) {
    const float d = half_at(p + 80), dmin = half_at(p + 82);
    for (int k = 0; k < 16; k++) {
        const Bytes q(p + 16 + k / 8 * 32 + k % 2 * 16);
        const float scale = d * (p[k] & 15), minimum = dmin * (p[k] >> 4);
        const int shift = k / 2 % 4 * 2;
        for (int i = 0; i < 16; i++) {
            out[16*k + i] = scale * (q[i] >> shift & 3) - minimum;
        }
    }
}

// Reads a block of Q3_K: 32 bytes of third bits, 64 bytes of the other two as in Q2_K, 16 scales of
// 6 bits in 12 bytes, d. Value d (scale - 32) (q - 4), q with its third bit.
// Scale k has its low 4 bits in byte k % 8 (upper half if k >= 8), its high 2 in byte 8 + k % 4.
static void read_q3_k(const unsigned char* p, float* out) {
    const float d = half_at(p + 108);
    const unsigned char* s = p + 96;
    for (int k = 0; k < 16; k++) {
        const int low = s[k % 8] >> k / 8 * 4 & 15, high = s[8 + k % 4] >> k / 4 * 2 & 3;
        const Bytes third(p + k % 2 * 16), q(p + 32 + k / 8 * 32 + k % 2 * 16);
        const float scale = d * ((low | high << 4) - 32);
        const int shift = k / 2 % 4 * 2, bit = k / 2;
        for (int i = 0; i < 16; i++) {
            out[16*k + i] = scale * ((q[i] >> shift & 3) + (third[i] >> bit & 1) * 4 - 4);
        }
    }
}

// the values of 4 bits that are not evenly apart
static const float IQ4_VALUES[16] = { -127, -104, -83, -65, -49, -35, -22, -10,
                                      1,    13,   25,  38,  53,  69,  89,  113 };

// Reads a block of IQ4_NL: scale d, 32 numbers of 4 bits, as in Q4_0. Value d times one of 16.
static void read_iq4_nl(const unsigned char* p, float* out) {
    const float d = half_at(p);
    each_nibble(p + 2, [=](int i, int q) { out[i] = d * IQ4_VALUES[q]; });
}

// Reads a block of IQ4_XS: d, 8 scales of 6 bits, 256 numbers as in IQ4_NL in 8 groups. The high 2
// bits of the scales are in the first 2 bytes, the low 4 in the next 4.
// Value d (scale - 32) times one.
static void read_iq4_xs(const unsigned char* p, float* out) {
    const float d = half_at(p);
    const int high = load<uint16_t>(p + 2);
    for (int g = 0; g < 8; g++) {
        const int low = p[4 + g / 2] >> g % 2 * 4 & 15;
        const float scale = d * ((low | (high >> 2 * g & 3) << 4) - 32);
        each_nibble(p + 8 + 16 * g, [=](int i, int q) { out[32*g + i] = scale * IQ4_VALUES[q]; });
    }
}

// Reads a block of MXFP4: the scale, then 32 numbers of 4 bits, as in Q4_0.
static void read_mxfp4(const unsigned char* p, float* out) {
    const float scale = mxfp4_scale(p[0]);
    each_nibble(p + 1, [=](int i, int q) { out[i] = scale * MXFP4_VALUES[q]; });
}

// Reads n numbers in blocks of N numbers and `bytes` bytes.
template <int N, int bytes, void (*block)(const unsigned char*, float*)>
void read_blocks(const unsigned char* p, long n, float* out) {
    for (; n > 0; n -= N, p += bytes, out += N) { block(p, out); }
}

// A type by its number in the file; those without a reader are known so that they can be named.
#define BLOCKS(name, N, bytes, ...) { name, N, bytes, read_blocks<N, bytes, __VA_ARGS__> }
struct GgufType { uint32_t id; WeightType type; };
static const GgufType GGUF_TYPES[] = {
    { 0,  { "F32",  1, 4, read_f32 } },        { 1,  { "F16",  1, 2, read_f16 } },
    { 30, { "BF16", 1, 2, read_bf16 } },       { 28, { "F64",  1, 8, read_f64 } },
    { 2,  BLOCKS("Q4_0", 32, 18, read_q<false, false>) },
    { 3,  BLOCKS("Q4_1", 32, 20, read_q<false, true>) },
    { 6,  BLOCKS("Q5_0", 32, 22, read_q<true, false>) },
    { 7,  BLOCKS("Q5_1", 32, 24, read_q<true, true>) },
    { 8,  BLOCKS("Q8_0", 32, 34, read_q8_0) },
    { 10, BLOCKS("Q2_K", 256, 84, read_q2_k) },      { 11, BLOCKS("Q3_K", 256, 110, read_q3_k) },
    { 12, BLOCKS("Q4_K", 256, 144, read_q_k<false>) },
    { 13, BLOCKS("Q5_K", 256, 176, read_q_k<true>) },
    { 14, BLOCKS("Q6_K", 256, 210, read_q6_k) },
    { 20, BLOCKS("IQ4_NL", 32, 18, read_iq4_nl) },   { 39, BLOCKS("MXFP4", 32, 17, read_mxfp4) },
    { 23, BLOCKS("IQ4_XS", 256, 136, read_iq4_xs) },
    { 9,  { "Q8_1", 32, 40, NULL } },          { 15, { "Q8_K", 256, 292, NULL } },
    { 16, { "IQ2_XXS", 256, 66, NULL } },      { 17, { "IQ2_XS", 256, 74, NULL } },
    { 18, { "IQ3_XXS", 256, 98, NULL } },      { 19, { "IQ1_S", 256, 50, NULL } },
    { 21, { "IQ3_S", 256, 110, NULL } },       { 22, { "IQ2_S", 256, 82, NULL } },
    { 29, { "IQ1_M", 256, 56, NULL } },        { 34, { "TQ1_0", 256, 54, NULL } },
    { 35, { "TQ2_0", 256, 66, NULL } },        { 40, { "NVFP4", 64, 36, NULL } },
    { 41, { "Q1_0", 128, 18, NULL } },         { 24, { "I8",  1, 1, NULL } },
    { 25, { "I16", 1, 2, NULL } },             { 26, { "I32", 1, 4, NULL } },
    { 27, { "I64", 1, 8, NULL } },
};
#undef BLOCKS

// Returns the type of this number, NULL if it is unknown.
static const WeightType* gguf_type(uint32_t id) {
    for (auto& t : GGUF_TYPES) {
        if (t.id == id) { return &t.type; }
    }
    return NULL;
}

// ----------------------------------------------------------------------------
// the file
// the bytes of one; of a string and of an array, the bytes of an empty one
static const int GGUF_KIND_BYTES[GGUF_KINDS] = { 1, 1, 2, 2, 4, 4, 4, 1, 8, 12, 8, 8, 8 };

// Reads from front to back and never past the end.
struct GgufReader {
    Gguf* g;
    const unsigned char *at, *end;
    std::vector<uint64_t> places = {};           // where each tensor says that its data begin

    [[noreturn]] void fail(const std::string& what) const {
        die(g->weights.path + ": " + what, GGUF_DAMAGED);
    }
    const unsigned char* bytes(uint64_t n, const char* what) {
        const uint64_t left = end - at;
        if (n > left) {
            fail(strf("%s: got %lu bytes, wanted %lu", what, left, n));
        }
        at += n;
        return at - n;
    }
    uint32_t u32(const char* what) { return load<uint32_t>(bytes(4, what)); }
    uint64_t u64(const char* what) { return load<uint64_t>(bytes(8, what)); }
    std::string string(const char* what) {
        const uint64_t n = u64(what);
        const char* s = (const char*)bytes(n, what);
        return std::string(s, n);
    }

    // Steps over `count` items of a kind. Arrays may hold arrays, eight deep.
    void skip(const std::string& key, uint32_t kind, uint64_t count, int depth) {
        if (kind >= GGUF_KINDS || depth > 8) {
            fail(strf("key %s: got a value of kind %u, wanted 0 to 12", key.c_str(), kind));
        }
        const uint64_t least = GGUF_KIND_BYTES[kind], left = end - at;
        if (count > left / least) {
            fail(strf("key %s: got %lu items in %lu bytes", key.c_str(), count, left));
        }
        if (kind != GGUF_STRING && kind != GGUF_ARRAY) {
            at += count * least;
            return;
        }
        for (uint64_t i = 0; i < count; i++) {
            if (kind == GGUF_STRING) {
                bytes(u64(key.c_str()), key.c_str());
                continue;
            }
            const uint32_t inner = u32(key.c_str());
            skip(key, inner, u64(key.c_str()), depth + 1);
        }
    }

    void read_value() {
        const std::string key = string("the name of a key");
        GgufValue v = { false, u32(key.c_str()), 1, NULL, NULL };
        if (v.kind == GGUF_ARRAY) {
            v.array = true;
            v.kind = u32(key.c_str());
            v.count = u64(key.c_str());
        }
        v.data = at;
        skip(key, v.kind, v.count, 0);
        v.end = at;
        if (!g->values.emplace(key, v).second) {
            fail("key " + key + " appears twice");
        }
    }

    // Reads one tensor of the list; place() sets where its data begin.
    void read_tensor() {
        Weight w;
        w.name = string("the name of a tensor");
        w.file = g->weights.path;
        const char* name = w.name.c_str();
        const uint32_t dims = u32(name);
        if (dims > 4) {
            fail(strf("tensor '%s': got %u dimensions, wanted 4 or less", name, dims));
        }
        double count = 1;
        w.count = 1;
        for (uint32_t i = 0; i < dims; i++) {
            const uint64_t size = u64(name);
            count *= size;
            if (count > 1e15 || size > 1e15) {
                fail("tensor '" + w.name + "': too large");
            }
            w.count *= size;
            w.shape.insert(w.shape.begin(), (long)size);
        }
        const uint32_t id = u32(name);
        w.type = gguf_type(id);
        if (!w.type) { fail(strf("tensor '%s' is of type %u, which is unknown", name, id)); }
        if (w.cols() % w.type->block) {
            fail(strf("tensor '%s' of type %s has rows of %ld, wanted a multiple of %d", name,
                w.type->name, w.cols(), w.type->block));
        }
        w.bytes = w.count / w.type->block * w.type->bytes;
        places.push_back(u64(name));
        weights_add(&g->weights, w);
    }

    // Finds the data of every tensor; dies unless all are inside the file, aligned, and apart.
    void place() const {
        const double wanted = gguf_number(*g, "general.alignment", 32);
        const uint64_t align = wanted >= 1 && wanted <= 1 << 20 ? (uint64_t)wanted : 0;
        if (!align || align != wanted || align & (align - 1)) {
            fail(strf("general.alignment: got %g, wanted a power of two", wanted));
        }
        const char* base = g->weights.maps[0].data;
        const uint64_t size = g->weights.maps[0].size;
        const uint64_t start = ((const char*)at - base + align - 1) / align * align;
        const uint64_t room = start < size ? size - start : 0;
        std::vector<std::pair<uint64_t, size_t>> order;
        for (size_t i = 0; i < places.size(); i++) {
            Weight& w = g->weights.tensors[i];
            if (places[i] % align || places[i] > room || w.bytes > room - places[i]) {
                fail(strf("tensor '%s' says its %zu bytes start at byte %lu of the data, wanted a "
                    "multiple of %lu, and an end within %lu", w.name.c_str(), w.bytes, places[i],
                    align, room));
            }
            w.data = base + start + places[i];
            if (w.bytes) { order.push_back({ places[i], i }); }
        }
        std::sort(order.begin(), order.end());
        for (size_t k = 1; k < order.size(); k++) {
            const Weight& a = g->weights.tensors[order[k-1].second];
            const Weight& b = g->weights.tensors[order[k].second];
            if (a.data + a.bytes > b.data) {
                fail("tensors '" + a.name + "' and '" + b.name + "' lie on one another");
            }
        }
    }
};

[[noreturn]] static void wrong_value(const Gguf& g, const std::string& key, const char* wanted) {
    die(g.weights.path + ": key " + key + " is not " + wanted, GGUF_DAMAGED);
}

double gguf_number(const Gguf& g, const std::string& key, double otherwise) {
    const GgufValue* v = g.find(key);
    if (!v) { return otherwise; }
    const unsigned char* p = v->data;
    if (!v->array) {
        switch (v->kind) {
            case GGUF_U8: case GGUF_BOOL: return *p;
            case GGUF_I8:  return (signed char)*p;
            case GGUF_U16: return load<uint16_t>(p);
            case GGUF_I16: return load<int16_t>(p);
            case GGUF_U32: return load<uint32_t>(p);
            case GGUF_I32: return load<int32_t>(p);
            case GGUF_F32: return load<float>(p);
            case GGUF_U64: return (double)load<uint64_t>(p);
            case GGUF_I64: return (double)load<int64_t>(p);
            case GGUF_F64: return load<double>(p);
        }
    }
    wrong_value(g, key, "a number");
}

std::vector<std::string> gguf_strings(const Gguf& g, const std::string& key) {
    std::vector<std::string> out;
    const GgufValue* v = g.find(key);
    if (!v) { return out; }
    if (v->kind != GGUF_STRING) { wrong_value(g, key, "a text"); }
    const unsigned char* p = v->data;
    for (uint64_t i = 0; i < v->count; i++) {            // gguf_skip has been here: all lies inside
        const uint64_t n = load<uint64_t>(p);
        out.emplace_back((const char*)p + 8, n);
        p += 8 + n;
    }
    return out;
}

std::string gguf_string(const Gguf& g, const std::string& key) {
    const auto all = gguf_strings(g, key);
    return all.empty() ? "" : all[0];
}

std::vector<float> gguf_floats(const Gguf& g, const std::string& key) {
    std::vector<float> out;
    const GgufValue* v = g.find(key);
    if (!v) { return out; }
    if (v->kind != GGUF_F32 && v->kind != GGUF_I32 && v->kind != GGUF_U32) {
        wrong_value(g, key, "a list of numbers");
    }
    for (uint64_t i = 0; i < v->count; i++) {
        const unsigned char* p = v->data + 4 * i;
        out.push_back(v->kind == GGUF_F32 ? load<float>(p) : (float)load<int32_t>(p));
    }
    return out;
}

// Appends a number of 4 or 8 bytes.
static void put(std::string* s, uint64_t v, int bytes) { s->append((const char*)&v, bytes); }

std::string gguf_tokenizer_file(const Gguf& g) {
    std::vector<std::string> names;
    for (auto& v : g.values) {
        const std::string& name = v.first;
        if (starts_with(name, "tokenizer.") || name == "general.architecture") {
            names.push_back(name);
        }
    }
    std::sort(names.begin(), names.end());
    std::string file = "GGUF";
    put(&file, 3, 4);
    put(&file, 0, 8);                                    // tensors
    put(&file, names.size(), 8);
    for (auto& name : names) {
        const GgufValue& v = *g.find(name);
        put(&file, name.size(), 8);
        file += name;
        if (v.array) { put(&file, GGUF_ARRAY, 4); }
        put(&file, v.kind, 4);
        if (v.array) { put(&file, v.count, 8); }
        file.append((const char*)v.data, v.end - v.data);
    }
    return file;
}

void gguf_parse(const FileMap& map, Gguf* g) {
    const std::string& path = g->weights.path;
    const unsigned char* base = (const unsigned char*)map.data;
    g->weights.maps = { map };
    GgufReader r = { g, base, base + map.size };
    if (memcmp(r.bytes(4, "the file"), "GGUF", 4)) { r.fail("does not begin with \"GGUF\""); }
    const uint32_t version = r.u32("the version");
    if (version != 2 && version != 3) {
        const bool big = version == 2u << 24 || version == 3u << 24;
        die(path + (big ? ": a big-endian file, wanted a little-endian one"
            : strf(": got version %u, wanted 2 or 3", version)), "convert the model again with "
            "llama.cpp's convert_hf_to_gguf.py");
    }
    const uint64_t tensors = r.u64("the number of tensors"), keys = r.u64("the number of keys");
    const uint64_t left = r.end - r.at;
    if (keys > left / 13 || tensors > left / 24) {       // what the smallest ones take
        r.fail(strf("got %lu tensors and %lu keys in %zu bytes", tensors,
            keys, map.size));
    }
    for (uint64_t i = 0; i < keys; i++) { r.read_value(); }
    for (uint64_t i = 0; i < tensors; i++) { r.read_tensor(); }
    r.place();
}

// NAME-00002-of-00003.gguf: 2 of 3 of NAME
struct GgufPart { std::string name; size_t number = 0, count = 0; };

static std::string part_path(const GgufPart& p, size_t number) {
    return p.name + strf("-%05zu-of-%05zu.gguf", number, p.count);
}

static GgufPart gguf_part(const std::string& path) {
    GgufPart p;
    const size_t tail = strlen("-00001-of-00001.gguf");
    if (path.size() <= tail) { return p; }
    p.name = path.substr(0, path.size() - tail);
    sscanf(&path[p.name.size()], "-%5zu-of-%5zu", &p.number, &p.count);
    return path == part_path(p, p.number) ? p : GgufPart();
}

static Gguf one_file_open(const std::string& path) {
    Gguf g;
    g.weights.path = path;
    look_file(path, READS_GGUF);
    gguf_parse(file_map(path, 24, "GGUF"), &g);
    return g;
}

// Adds the tensors of the other files of a model. The first has all the keys but those that say
// which file it is.
static void parts_add(Gguf* g, const GgufPart& p) {
    const char* again = "get all files of the model, and give the first";
    for (size_t n = 1; n <= p.count; n++) {
        const std::string path = part_path(p, n);
        if (!file_exists(path)) {
            die(path + strf(": is missing, number %zu of %zu files", n, p.count), again);
        }
        Gguf part;
        if (n > 1) { part = one_file_open(path); }
        const Gguf& file = n > 1 ? part : *g;
        const double no = gguf_number(file, "split.no", -1),
                     of = gguf_number(file, "split.count", 0);
        if (no != n - 1 || of != p.count) {
            die(path + strf(": says that it is number %g of %g files, wanted %zu of %zu",
                no + 1, of, n, p.count), again);
        }
        for (auto& w : part.weights.tensors) { weights_add(&g->weights, w); }
        for (auto& map : part.weights.maps) {
            g->weights.maps.push_back(map);
        }
    }
    const double all = g->weights.tensors.size(),
                 wanted = gguf_number(*g, "split.tensors.count", all);
    if (all != wanted) {
        die(strf("%s: its files have %g tensors, wanted %g", g->weights.path.c_str(),
            all, wanted), again);
    }
}

Gguf gguf_open(const std::string& given) {
    const GgufPart p = gguf_part(given);
    const std::string path = p.count > 1 ? part_path(p, 1) : given;
    if (!file_exists(path) && file_exists(given)) {
        die(path + strf(": is missing, number 1 of %zu files", p.count),
            "get all files of the model, and give the first");
    }
    Gguf g = one_file_open(path);
    const double count = gguf_number(g, "split.count", 1);
    if (count > 1 && p.count < 2) {
        die(path + strf(": is one of several files, %g of them, wanted the name that "
            "llama.cpp gives it, NAME-00001-of-%05g.gguf", count, count), "name them so again");
    }
    if (p.count > 1) { parts_add(&g, p); }
    return g;
}

std::string gguf_in(const std::string& dir) {
    std::string found;
    for (auto& name : dir_list(dir)) {
        const std::string path = dir + "/" + name;
        const GgufPart p = gguf_part(path);
        if (!ends_with(name, ".gguf") || p.number > 1) { continue; }     // the first stands for all
        if (!found.empty()) {
            die(dir + ": has several GGUF files, wanted one", "name the file: " + found);
        }
        found = path;
    }
    return found;
}
