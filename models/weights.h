/*
weights.h -- the weights of a model as they lie in its files. A file is mapped, never copied: a
Weight says what a tensor is called, its shape, its type, and where its bytes are; weight_rows makes
floats of any rows of it. safetensors.h fills a Weights, and so does gguf.h.
*/
#ifndef WEIGHTS_H
#define WEIGHTS_H
#include <sys/mman.h>
#include <unordered_map>
#include "../common.h"

// ----------------------------------------------------------------------------
// types of one number each; the types of blocks are in gguf.h

template <class T> inline T load(const unsigned char* p) {
    T x;
    memcpy(&x, p, sizeof x);
    return x;
}

// IEEE half precision: 1 bit of sign, 5 of exponent, 10 of fraction.
inline float float_of_half(uint16_t h) {
    const uint32_t exponent = h >> 10 & 31, fraction = h & 1023;
    const uint32_t bias = exponent == 31 ? 255 - 31 : 127 - 15;
    const float small = (float)fraction * 0x1p-24f;
    const float large = float_of_bits((exponent + bias) << 23 | fraction << 13);
    const float x = exponent == 0 ? small : large;
    return h >> 15 ? -x : x;
}

inline float half_at(const unsigned char* p) { return float_of_half(load<uint16_t>(p)); }

// Each reader makes n floats of the bytes at p; n is a multiple of the type's block.
inline void read_f32(const unsigned char* p, long n, float* out) {
    if (n) { memcpy(out, p, 4 * n); }
}

inline void read_f64(const unsigned char* p, long n, float* out) {
    for (long i = 0; i < n; i++) { out[i] = (float)load<double>(p + 8 * i); }
}

inline void read_f16(const unsigned char* p, long n, float* out) {
    for (long i = 0; i < n; i++) { out[i] = half_at(p + 2 * i); }
}

inline void read_bf16(const unsigned char* p, long n, float* out) {
    for (long i = 0; i < n; i++) {
        const uint32_t high = load<uint16_t>(p + 2 * i);
        out[i] = float_of_bits(high << 16);
    }
}

// A row: the name, numbers in a block, bytes of a block, the reader (NULL: these are no weights).
struct WeightType {
    const char* name;
    int block, bytes;
    void (*read)(const unsigned char* p, long n, float* out);
};
static const WeightType NUMBER_TYPES[] = {
    { "F32", 1, 4, read_f32 },   { "BF16", 1, 2, read_bf16 },
    { "F16", 1, 2, read_f16 },   { "F64",  1, 8, read_f64 },
    { "I8",  1, 1, NULL },       { "I16",  1, 2, NULL },
    { "I32", 1, 4, NULL },       { "I64",  1, 8, NULL },
    { "U8",  1, 1, NULL },       { "U16",  1, 2, NULL },
    { "U32", 1, 4, NULL },       { "U64",  1, 8, NULL },
    { "BOOL", 1, 1, NULL },      { "F8_E4M3", 1, 1, NULL },
    { "F8_E5M2", 1, 1, NULL },   { "F8_E8M0", 1, 1, NULL },
};

// The type of this name, NULL if there is none.
inline const WeightType* number_type(const std::string& name) {
    for (auto& t : NUMBER_TYPES) { if (name == t.name) { return &t; } }
    return NULL;
}

// ----------------------------------------------------------------------------
// weights

// Numbers lie row after row; a row is the last dimension.
struct Weight {
    std::string name, file;
    const WeightType* type;
    std::vector<long> shape;                             // slowest first: [out, in]
    const char* data;
    size_t bytes;
    long count;
    // What a GGUF file keeps otherwise than Hugging Face does; weight_rows undoes it.
    long pairs = 0;                                      // rows of a head whose rotary pairs adjoin
    float add = 0;                                       // -1 where a norm has its 1 in the file

    long cols() const { return shape.empty() ? 1 : shape.back(); }
    long rows() const { return cols() ? count / cols() : 0; }
};

struct FileMap { const char* data; size_t size; };

struct Weights {
    std::string path;
    std::vector<Weight> tensors;
    std::unordered_map<std::string, size_t> index;       // name -> its place in tensors
    std::vector<std::pair<std::string, std::string>> metadata;
    std::vector<FileMap> maps;

    const Weight* find(const std::string& name) const {  // NULL if there is none
        auto at = index.find(name);
        return at == index.end() ? NULL : &tensors[at->second];
    }
    std::string meta(const char* key) const {            // "" if there is none
        for (auto& m : metadata) { if (m.first == key) { return m.second; } }
        return "";
    }
};

// Maps a file of at least `least` bytes; it stays mapped until weights_close.
inline FileMap file_map(const std::string& path, long least, const char* kind) {
    const int fd = open(path.c_str(), O_RDONLY);
    if (fd < 0) {
        die(EXIT_USER, path + ": cannot open (" + strerror(errno) + ")", "ls runs/*/");
    }
    struct stat st;
    const long size = fstat(fd, &st) == 0 && S_ISREG(st.st_mode) ? (long)st.st_size : 0;
    if (size < least) {
        die(EXIT_USER, strf("%s: got %ld bytes, wanted a %s file of at least %ld", path.c_str(),
            size, kind, least), "the file is damaged or was cut short: get it again");
    }
    void* p = mmap(NULL, size, PROT_READ, MAP_PRIVATE, fd, 0);
    close(fd);
    if (p == MAP_FAILED) { die(EXIT_MACHINE, path + ": cannot map (" + strerror(errno) + ")"); }
    return { (const char*)p, (size_t)size };
}

inline void weights_close(Weights* w) {
    for (auto& m : w->maps) { munmap((void*)m.data, m.size); }
    *w = Weights();
}

// Adds a tensor; dies if there is one of its name already.
inline void weights_add(Weights* w, const Weight& one) {
    if (!w->index.emplace(one.name, w->tensors.size()).second) {
        die(EXIT_USER, one.file + ": tensor '" + one.name + "' is there twice",
            "the file is damaged: get it again");
    }
    w->tensors.push_back(one);
}

static const char* const GGUF_READABLE =
    "F32, F16, BF16, F64, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q4_K, Q5_K, Q6_K or MXFP4";

// out = rows r0 .. r1 - 1 as floats, cols() of them each. Dies if the type has no reader.
inline void weight_rows(const Weight& w, long r0, long r1, float* out) {
    if (!w.type->read) {
        const bool gguf = ends_with(w.file, ".gguf");
        die(EXIT_USER, w.file + ": tensor '" + w.name + "' is of type " + w.type->name + ", wanted "
            + (gguf ? GGUF_READABLE : "F32, F16, BF16 or F64"),
            gguf ? "python3 scripts/import_gguf.py " + w.file + " NEW.gguf"
                 : "save the weights as one of these types");
    }
    if (w.pairs && w.shape.size() == 1) {                // a bias: each number is a row of its own
        Weight column = w;
        column.shape = { w.count, 1 };
        return weight_rows(column, 0, w.count, out);
    }
    const long cols = w.cols(), row_bytes = cols / w.type->block * w.type->bytes;
    const unsigned char* data = (const unsigned char*)w.data;
    if (!w.pairs) { w.type->read(data + r0 * row_bytes, (r1 - r0) * cols, out); }
    // Row i of a head: first the first halves of all pairs, then the second halves.
    for (long r = r0; w.pairs && r < r1; r++) {
        const long i = r % w.pairs, head = r - i, half = w.pairs / 2;
        const long from = head + 2 * (i % half) + i / half;
        w.type->read(data + from * row_bytes, cols, out + (r - r0) * cols);
    }
    for (long i = 0; w.add != 0 && i < (r1 - r0) * cols; i++) { out[i] += w.add; }
}

// The floats in the map itself, or NULL: then they have to be made with weight_rows.
inline const float* weight_floats(const Weight& w) {
    const bool plain = w.type->read == read_f32 && !w.pairs && w.add == 0;
    return plain && (uintptr_t)w.data % sizeof(float) == 0 ? (const float*)w.data : NULL;
}

// ----------------------------------------------------------------------------
// MXFP4 (OCP Microscaling Formats 1.0): 32 numbers of 4 bits, E2M1, and one scale, a power of two

static const float MXFP4_VALUES[16] = { 0,    .5f,  1,  1.5f,  2,  3,  4,  6,
                                        -0.f, -.5f, -1, -1.5f, -2, -3, -4, -6 };

// The scale of a byte e, 2^(e - 127).
inline float mxfp4_scale(uint32_t e) { return float_of_bits(e ? e << 23 : 1u << 22); }

// out = rows r0 .. r1 - 1, 32 n floats each, of a matrix that safetensors keep as two tensors:
// blocks U8 [.., n, 16], byte i holding numbers 2 i (low half) and 2 i + 1, and scales U8 [.., n].
inline void mxfp4_rows(const Weight& blocks, const Weight& scales, long r0, long r1, float* out) {
    std::vector<long> wanted = scales.shape;
    wanted.push_back(16);
    const WeightType* u8 = number_type("U8");
    if (blocks.type != u8 || scales.type != u8 || blocks.shape != wanted || scales.shape.empty()) {
        die(EXIT_USER, blocks.file + ": tensors '" + blocks.name + "' and '" + scales.name
            + "' are no MXFP4, wanted U8 [.., n, 16] and U8 [.., n]",
            "the file is damaged: get it again");
    }
    const long n = scales.cols();
    for (long b = r0 * n; b < r1 * n; b++, out += 32) {
        const unsigned char* p = (const unsigned char*)blocks.data + 16 * b;
        const float scale = mxfp4_scale((unsigned char)scales.data[b]);
        for (int i = 0; i < 16; i++) {
            out[2*i]     = scale * MXFP4_VALUES[p[i] & 15];
            out[2*i + 1] = scale * MXFP4_VALUES[p[i] >> 4];
        }
    }
}
#endif // WEIGHTS_H
