/*
mapped_weights.h -- weights that stay as their file keeps them, in 4 bits or 16 instead of 32: a
model that is only run takes the memory of its file, and nothing is copied before it begins. A
product makes floats of a few megabytes of rows at a time. Generation, which reads every weight once for each
token and does little else, multiplies the bits as they are.
*/
#ifndef CPU_MAPPED_WEIGHTS_H
#define CPU_MAPPED_WEIGHTS_H
#include <stdint.h>
#include <functional>
#include <map>
#include <string>
#include <vector>

namespace cpu {
// the sum of w_i x_i over a row of n weights; sums (n / 32): of each 32 of x
typedef float RowDot(const unsigned char* row, const float* x, const float* sums, long n);

// for a type of weights.h; NULL where this processor or this file has none
RowDot* row_dot(const std::string& type);

// n weights of a row in whole numbers: w = d q + m, with a d and an m for each 32
typedef void RowToInt8(const unsigned char* row, long n, int8_t* q, float* d, float* m);

// likewise; on any processor
RowToInt8* row_to_int8(const std::string& type);

// a matrix (rows, cols)
struct MappedMatrix {
    long rows, cols;
    std::function<void(long r, float* out)> read;    // out (cols) = row r as floats
    RowDot* dot;                                  // NULL: its type has none
    std::vector<const unsigned char*> row;           // where each is in the file, for dot and whole
    RowToInt8* to_int8 = NULL;                       // NULL: its type has none
};

// rows from..to of a weight: rows first.. of m, or floats if m is NULL
struct MappedPart { const MappedMatrix* m; long from, to, first; };

// the OC rows of a weight (OC, C) in parts
std::vector<MappedPart> mapped_parts(const float* weight, long C, long OC);

// which matrices stay in their file: those with a dot, for generation; or all
enum Stay { STAY_NONE, STAY_DOT, STAY_ALL };

struct MappedWeights {
    Stay wanted = STAY_NONE;                         // set before the weights are read
    std::map<const float*, MappedMatrix> all;        // by where their floats would begin
};
inline MappedWeights mapped;

// Does a matrix of this type stay?
inline bool stays_mapped(const std::string& type) {
    return mapped.wanted == STAY_ALL || (mapped.wanted == STAY_DOT && row_dot(type));
}

// keeps a matrix. Its floats at `at` are not there: of a large one the program ends where somebody
// reads or writes them
void mapped_add(const float* at, const MappedMatrix& m);

// the first n rows of a weight, as what is computed with
template <class R> struct WeightRows { const R* x; int n; };

template <class R> WeightRows<R> weight_rows(const R* weight, int, int OC) {
    return { weight, OC };
}

// weight (OC, C): all rows if none of them stays in a file, else some of them, good until the
// thread's next call
WeightRows<float> weight_rows(const float* weight, int C, int OC);

// out (OC) = the rows of weight (OC, C) times inp (C) [+ bias] [+ residual]; false:
// nothing is done, not all of these rows have a dot
bool mapped_forward(float* out, const float* inp, const float* weight, const float* bias,
                    const float* residual, int C, int OC);

template <class R>
bool mapped_forward(R*, const R*, const R*, const R*, const R*, int, int) { return false; }
} // namespace cpu
#endif // CPU_MAPPED_WEIGHTS_H
