/*
gguf.h -- GGUF, the files of llama.cpp: settings, tokenizer and weights of a model in one file, the
weights mostly in blocks of a few bits a number.

    "GGUF", u32 version, u64 tensors, u64 keys
    keys:     name, u32 type, value
    tensors:  name, u32 dimensions, u64 sizes (fastest first), u32 type, u64 place in the data
    data, from the next multiple of general.alignment on

Little-endian; a string is a u64 length and its bytes. Nothing of it is believed: each number is
checked against the size of the file before it is used. The layouts were read in the Python package
gguf 0.19; test/vectors/gguf holds what its quantizers wrote and its dequantizers read.
*/
#ifndef GGUF_H
#define GGUF_H
#include "dtypes.h"

static const char* const GGUF_DAMAGED = "the file is damaged or was cut short: download it again";

// types of tokens
enum { GGUF_NORMAL = 1, GGUF_UNKNOWN, GGUF_CONTROL, GGUF_USER_DEFINED, GGUF_UNUSED, GGUF_BYTE };

enum GgufKind {                                          // of a value
    GGUF_U8, GGUF_I8, GGUF_U16, GGUF_I16, GGUF_U32, GGUF_I32, GGUF_F32, GGUF_BOOL, GGUF_STRING,
    GGUF_ARRAY, GGUF_U64, GGUF_I64, GGUF_F64, GGUF_KINDS
};

// A value where it lies in the file: `count` items of one kind; one item unless it is an array.
struct GgufValue {
    bool array;
    uint32_t kind;
    uint64_t count;
    const unsigned char *data, *end;
};

struct Gguf {
    Weights weights;
    std::unordered_map<std::string, GgufValue> values;

    const GgufValue* find(const std::string& key) const { // NULL if there is none
        auto at = values.find(key);
        return at == values.end() ? NULL : &at->second;
    }
};

// Returns the number of a key, or `otherwise` if there is no such key. Dies if it is no number.
double gguf_number(const Gguf& g, const std::string& key, double otherwise);

// Returns the strings of a key: one, those of an array, or none if there is no such key.
std::vector<std::string> gguf_strings(const Gguf& g, const std::string& key);

// Returns the string of a key, "" if there is no such key.
std::string gguf_string(const Gguf& g, const std::string& key);

// Returns the numbers of an array of floats or of 32-bit whole numbers, none if there is no such
// key.
std::vector<float> gguf_floats(const Gguf& g, const std::string& key);

// Writes a GGUF file without weights: the keys of the tokenizer, byte for byte, and the family's
// name. What reads a tokenizer from g reads the same from it.
std::string gguf_tokenizer_file(const Gguf& g);

// Reads g from a file in memory, at least 24 bytes, and checks all of it.
void gguf_parse(const FileMap& map, Gguf* g);

// Opens a file, mapped and checked from end to end. Names, shapes and types are the file's own. Of
// several, NAME-00001-of-00003.gguf and so on, any stands for all.
Gguf gguf_open(const std::string& path);

// Finds the one GGUF file in a directory, or the first of one model's; "" if there is none. Dies if
// there are several models.
std::string gguf_in(const std::string& dir);
#endif // GGUF_H
