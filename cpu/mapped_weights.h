/*
mapped_weights.h -- weights that stay as their file keeps them, in 4 to 16 bits instead of 32. A
model that is only run takes the memory of its file, and nothing is copied before it begins.

    a product       converts a few megabytes of rows to float at a time: weight_rows
    generation      reads every weight once per token and does little else, so it multiplies the
                    bits as they are: mapped_forward

A matrix is registered under the address where its floats would be, and operations go on taking that
address as `weight`.
*/
#ifndef CPU_MAPPED_WEIGHTS_H
#define CPU_MAPPED_WEIGHTS_H
#include <stdint.h>
#include <functional>
#include <map>
#include <string>
#include <vector>
#include "product.h"

namespace cpu {
// Returns the sum of w_i x_i over a row of n weights; sums (n / 32): of each 32 of x
typedef float RowDot(const unsigned char* row, const float* x, const float* sums, long n);

// Returns the kernel for a type of weights.h, or NULL if this processor or this type has none.
RowDot* row_dot(const std::string& type);

// Unpacks n weights of a row to integers: w = d q + m, with one d and one m for each 32.
typedef void RowToInt8(const unsigned char* row, long n, int8_t* q, float* d, float* m);

// Returns the one for a type, or NULL if it has none. It runs on any processor.
RowToInt8* row_to_int8(const std::string& type);

// A matrix (rows, cols) in a file.
struct MappedMatrix {
    long rows, cols;
    std::function<void(long r, float* out)> read;    // out (cols) = row r as floats
    RowDot* dot;                                     // or NULL
    std::vector<const unsigned char*> row;           // (rows) its bytes, for dot and to_int8
    RowToInt8* to_int8 = NULL;                       // or NULL
};

// Rows from .. to of a weight: rows first.. of m, or floats if m is NULL.
struct MappedPart {
    const MappedMatrix* m;
    long from, to;
    long first;

    long row_of(long o) const { return first + o - from; }
};

// Finds where the OC rows of a weight (OC, C) are, in order.
std::vector<MappedPart> mapped_parts(const float* weight, long C, long OC);

// Returns the part that row o is in.
inline const MappedPart& part_of(const std::vector<MappedPart>& parts, long o) {
    size_t k = 0;
    while (o >= parts[k].to) { k++; }
    return parts[k];
}

// Which matrices stay in their file: those with a RowDot, for generation; or all.
enum Stay { STAY_NONE, STAY_DOT, STAY_ALL };

// The model that runs now: one at a time. Beside the parameters of operations, because these are
// the same on all backends.
struct MappedWeights {
    Stay wanted = STAY_NONE;                         // set before the weights are read
    std::map<const float*, MappedMatrix> all;        // by where their floats would begin
};
inline MappedWeights mapped;

// Tells whether a matrix of this type stays in its file.
inline bool stays_mapped(const std::string& type) {
    return mapped.wanted == STAY_ALL || (mapped.wanted == STAY_DOT && row_dot(type));
}

// Registers a matrix that stays in its file. No floats exist at `at`; for a large matrix that
// memory is protected, so a stray access crashes.
void mapped_add(const float* at, const MappedMatrix& m);

// The first n rows of a weight, converted to the compute type.
template <class R> struct WeightRows {
    const R* x;
    int n;
};

// Returns all rows of weight (OC, C) if none of them stays in a file, else some of them, good until
// the thread's next call.
WeightRows<float> weight_rows(const float* weight, int C, int OC);

// Returns the weight as it is: other types never stay in their file.
template <class R> WeightRows<R> weight_rows(const R* weight, int, int OC) {
    return { weight, OC };
}

// Computes a layer of one row. Returns false, and does nothing, unless all rows of its weight have
// a RowDot.
bool mapped_forward(const Linear<float>& x);
} // namespace cpu
#endif // CPU_MAPPED_WEIGHTS_H
