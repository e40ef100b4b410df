/*
open/gguf_out.cpp -- what gguf_out.h declares.
*/
#include "gguf_out.h"

// ---- types

// Rounds to the nearest half, of two that are as near to the even one; too large becomes infinite.
static uint16_t half_of_float(float x) {
    const uint32_t bits = bits_of_float(x), size = bits & 0x7fffffff;
    const uint16_t sign = bits >> 16 & 0x8000;
    const float small = fabsf(x);
    if (!(small < 65520)) { return sign | (x != x ? 0x7e00 : 0x7c00); }
    if (small < 0x1p-14f) { return sign | (uint16_t)nearbyintf(small * 0x1p24f); }
    const uint32_t rounded = size + 0xfff + (size >> 13 & 1);
    return sign | (uint16_t)((rounded >> 13) - (112 << 10));     // the exponent's bias: 127, and 15
}

static void write_f32(const float* x, long n, unsigned char* out) { memcpy(out, x, 4 * n); }

static void write_f16(const float* x, long n, unsigned char* out) {
    for (long i = 0; i < n; i++) {
        const uint16_t h = half_of_float(x[i]);
        memcpy(out + 2 * i, &h, 2);
    }
}

static void write_bf16(const float* x, long n, unsigned char* out) {
    for (long i = 0; i < n; i++) {
        const uint32_t bits = bits_of_float(x[i]);
        const uint16_t high = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
        memcpy(out + 2 * i, &high, 2);
    }
}

// Writes blocks of Q8_0; each block's largest number becomes 127 or -127.
static void write_q8_0(const float* x, long n, unsigned char* out) {
    for (; n > 0; n -= 32, x += 32, out += 34) {
        float most = 0;
        for (int i = 0; i < 32; i++) {
            most = std::max(most, fabsf(x[i]));
        }
        const float scale = most / 127, by = scale ? 1 / scale : 0;
        const uint16_t h = half_of_float(scale);
        memcpy(out, &h, 2);
        for (int i = 0; i < 32; i++) {
            out[2 + i] = (unsigned char)(signed char)roundf(x[i] * by);
        }
    }
}

static const GgufStored STORED[] = {
    { "f32",  0,  0,  1,  4,  write_f32 },
    { "f16",  1,  1,  1,  2,  write_f16 },
    { "bf16", 30, 32, 1,  2,  write_bf16 },
    { "q8_0", 8,  7,  32, 34, write_q8_0 },
};

const GgufStored* gguf_stored(const std::string& name) {
    for (auto& s : STORED) { if (name == s.name) { return &s; } }
    return NULL;
}

std::string gguf_stored_names() {
    std::string all;
    for (auto& s : STORED) { list_add(&all, s.name); }
    return all;
}

// ---- keys

template <class T> static void put(std::string* s, T x) { s->append((const char*)&x, sizeof x); }

static void put_text(std::string* s, const std::string& text) {
    put(s, (uint64_t)text.size());
    *s += text;
}

// Adds a key of one value and returns where the value goes.
static std::string* key_of(GgufOut* o, const std::string& key, uint32_t kind) {
    std::string* value = &o->keys[key];
    value->clear();
    put(value, kind);
    return value;
}

static std::string* array_of(GgufOut* o, const std::string& key, uint32_t kind, size_t n) {
    std::string* value = key_of(o, key, GGUF_ARRAY);
    put(value, kind);
    put(value, (uint64_t)n);
    return value;
}

void gguf_put(GgufOut* o, const std::string& key, uint32_t value) {
    put(key_of(o, key, GGUF_U32), value);
}

void gguf_put(GgufOut* o, const std::string& key, float value) {
    put(key_of(o, key, GGUF_F32), value);
}

void gguf_put(GgufOut* o, const std::string& key, bool value) {
    put(key_of(o, key, GGUF_BOOL), (uint8_t)value);
}

void gguf_put(GgufOut* o, const std::string& key, const std::string& value) {
    put_text(key_of(o, key, GGUF_STRING), value);
}

void gguf_put(GgufOut* o, const std::string& key, const std::vector<std::string>& values) {
    std::string* to = array_of(o, key, GGUF_STRING, values.size());
    for (auto& v : values) { put_text(to, v); }
}

void gguf_put(GgufOut* o, const std::string& key, const std::vector<int32_t>& values) {
    std::string* to = array_of(o, key, GGUF_I32, values.size());
    for (int32_t v : values) { put(to, v); }
}

void gguf_put(GgufOut* o, const std::string& key, const std::vector<float>& values) {
    std::string* to = array_of(o, key, GGUF_F32, values.size());
    for (float v : values) { put(to, v); }
}

void gguf_put(GgufOut* o, const std::string& key, const GgufValue& value) {
    std::string* to = value.array ? array_of(o, key, value.kind, value.count)
                                  : key_of(o, key, value.kind);
    to->append((const char*)value.data, value.end - value.data);
}

// ---- the file

static std::string header_of(const GgufOut& o, size_t tensors) {
    std::string h = "GGUF";
    put(&h, (uint32_t)3);
    put(&h, (uint64_t)tensors);
    put(&h, (uint64_t)o.keys.size());
    for (auto& key : o.keys) {
        put_text(&h, key.first);
        h += key.second;
    }
    return h;
}

std::string gguf_header(const GgufOut& o) { return header_of(o, 0); }

static long count_of(const GgufTensor& t) {
    long count = 1;
    for (long n : t.shape) { count *= n; }
    return count;
}

static size_t bytes_of(const GgufTensor& t) { return count_of(t) / t.type->block * t.type->bytes; }

static const size_t ALIGN = 32;

static size_t padding(size_t at) { return (ALIGN - at % ALIGN) % ALIGN; }

// Writes one tensor, some rows at a time.
static void put_tensor(FileOut* file, const GgufTensor& t) {
    const long cols = t.shape.back(), rows = count_of(t) / cols, most = std::max(1L, 65536 / cols);
    std::vector<unsigned char> bytes(most * cols / t.type->block * t.type->bytes);
    std::vector<float> again(most * cols);
    const WeightType* read = gguf_type(t.type->id);
    for (long r = 0; r < rows; r += most) {
        const long n = std::min(most, rows - r) * cols;
        const float* x = t.data + r * cols;
        t.type->write(x, n, bytes.data());
        read->read(bytes.data(), n, again.data());
        for (long i = 0; i < n; i++) {
            if (std::isfinite(again[i]) || !std::isfinite(x[i])) { continue; }
            unlink(file->tmp.c_str());
            die(EXIT_USER, strf("%s: has %g, which is more than %s can hold", t.name.c_str(), x[i],
                t.type->name), "--type bf16");
        }
        file_put(file, bytes.data(), n / t.type->block * t.type->bytes);
    }
    const std::string zeros(padding(bytes_of(t)), 0);
    file_put(file, zeros.data(), zeros.size());
}

void gguf_write(const std::string& path, const GgufOut& o) {
    std::string h = header_of(o, o.tensors.size());
    uint64_t at = 0;
    for (auto& t : o.tensors) {
        put_text(&h, t.name);
        put(&h, (uint32_t)t.shape.size());
        for (size_t i = t.shape.size(); i > 0; i--) {
            put(&h, (uint64_t)t.shape[i - 1]);
        }
        put(&h, t.type->id);
        put(&h, at);
        at += bytes_of(t) + padding(bytes_of(t));
    }
    h.resize(h.size() + padding(h.size()));
    FileOut file = file_begin(path);
    file_put(&file, h.data(), h.size());
    for (auto& t : o.tensors) { put_tensor(&file, t); }
    file_commit(&file);
}
