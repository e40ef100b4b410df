/*
gguf_out.h -- GGUF files, written: keys, then tensors, whose numbers are stored as one of a few
types. gguf.h has the format and reads it.
*/
#ifndef GGUF_OUT_H
#define GGUF_OUT_H
#include <map>
#include "gguf.h"

// A type that floats are written as: its name for --type, its number in the file, that of
// general.file_type, and what makes n floats bytes
struct GgufStored {
    const char* name;
    uint32_t id, file_type;
    int block, bytes;
    void (*write)(const float* x, long n, unsigned char* out);
};

// Returns the type of this name, NULL if there is none.
const GgufStored* gguf_stored(const std::string& name);

// Lists the names of all, for an error.
std::string gguf_stored_names();

// what to write: rows of shape.back() floats
struct GgufTensor {
    std::string name;
    std::vector<long> shape;                             // slowest first: [out, in]
    const float* data;
    const GgufStored* type;
};

struct GgufOut {
    std::map<std::string, std::string> keys;             // name -> type and value, as in the file
    std::vector<GgufTensor> tensors;
};

// Adds a key.
void gguf_put(GgufOut* o, const std::string& key, uint32_t value);
void gguf_put(GgufOut* o, const std::string& key, float value);
void gguf_put(GgufOut* o, const std::string& key, bool value);
void gguf_put(GgufOut* o, const std::string& key, const std::string& value);
void gguf_put(GgufOut* o, const std::string& key, const std::vector<std::string>& values);
void gguf_put(GgufOut* o, const std::string& key, const std::vector<int32_t>& values);
void gguf_put(GgufOut* o, const std::string& key, const std::vector<float>& values);

// Adds a key of another file, byte for byte.
void gguf_put(GgufOut* o, const std::string& key, const GgufValue& value);

// Returns a file of the keys alone.
std::string gguf_header(const GgufOut& o);

// Writes a file whole or not at all. Dies of a number that its type cannot hold.
void gguf_write(const std::string& path, const GgufOut& o);
#endif // GGUF_OUT_H
