/*
mapped_weights.h -- weights that stay as their file keeps them, in 4 to 16 bits instead of 32. A
model that is only run takes the memory of its file, and nothing is copied before it begins: a
product converts a few megabytes of rows to float at a time.

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
#include "../optional.h"

namespace cpu {
// A matrix (rows, cols) in a file.
struct MappedMatrix {
    long rows, cols;
    std::function<void(long r, float* out)> read;    // out (cols) = row r as floats
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

inline const MappedPart& part_of(const std::vector<MappedPart>& parts, long o) {
    size_t k = 0;
    while (o >= parts[k].to) { k++; }
    return parts[k];
}

// The model that runs now: one at a time. Beside the parameters of operations, because these are
// the same on all backends.
struct MappedWeights {
    Stay wanted = STAY_NONE;                         // set before the weights are read
    std::map<const float*, MappedMatrix> all;        // by where their floats would begin
};
inline MappedWeights mapped;

// Registers a matrix that stays in its file. No floats exist at `at`; for a large matrix that
// memory is protected, so a stray access crashes.
void mapped_add(const float* at, const MappedMatrix& m);

// Returns all rows of weight (OC, C) if none of them stays in a file, else some of them, good until
// the thread's next call.
WeightRows<float> weight_rows(const float* weight, int C, int OC);
} // namespace cpu
#endif // CPU_MAPPED_WEIGHTS_H
