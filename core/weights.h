/*
weights.h -- the weights of a model as they lie in its files. A file is mapped, never copied: a
Weight says what a tensor is called, its shape, its type, and where its bytes are. safetensors.h
fills a Weights, and so does open/gguf.h.
*/
#ifndef WEIGHTS_H
#define WEIGHTS_H
#include <functional>
#include <unordered_map>
#include "../base/maps.h"

// ----------------------------------------------------------------------------
// types: F32, of which our own files are, and I32, of ids; those of others are in open/dtypes.h

// Makes n floats of the bytes at p; n is a multiple of the type's block.
void read_f32(const unsigned char* p, long n, float* out);

// A row: the name, numbers in a block, bytes of a block, the reader (NULL: these are no weights).
struct WeightType {
    const char* name;
    int block, bytes;
    void (*read)(const unsigned char* p, long n, float* out);
};

// Returns the type of this name, NULL if there is none.
const WeightType* number_type(const std::string& name);

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
    long pairs = 0;                                      // rows of a head whose rotary pairs adjoin
                                                         // in the file; open/ undoes it

    long cols() const { return shape.empty() ? 1 : shape.back(); }
    long rows() const { return cols() ? count / cols() : 0; }
};

struct Weights {
    std::string path;
    std::vector<Weight> tensors;
    std::unordered_map<std::string, size_t> index;       // name -> its place in tensors
    std::vector<FileMap> maps;

    const Weight* find(const std::string& name) const {  // NULL if there is none
        auto at = index.find(name);
        return at == index.end() ? NULL : &tensors[at->second];
    }
};

// Gives the maps back.
void weights_close(Weights* w);

// Adds a tensor; dies if there is one of its name already.
void weights_add(Weights* w, const Weight& one);

// Dies unless there is a reader for its type.
void weight_check(const Weight& w);

// Reads a tensor as floats.
void weight_floats(const Weight& w, float* out);
#endif // WEIGHTS_H
