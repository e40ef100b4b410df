/*
stored.h -- weights as their file keeps them, for the product with one row. Generation reads every
weight once for each token and does little else, so a weight of 4 bits is several times as fast as
its float.
*/
#ifndef CPU_STORED_H
#define CPU_STORED_H
#include <map>
#include <string>
#include <vector>

namespace cpu {
// the sum of w_i x_i over a row of n weights; sums (n / 32): of each 32 of x
typedef float StoredDot(const unsigned char* row, const float* x, const float* sums, long n);

// for a type of weights.h; NULL where this processor or this file has none
StoredDot* stored_dot(const std::string& type);

// a matrix (rows, cols) that is there as floats, too: where each of its rows begins in the file
struct StoredMatrix {
    long rows, cols;
    StoredDot* dot;
    std::vector<const unsigned char*> row;
};

struct Stored {
    bool wanted = false;                             // set before the weights are read
    std::map<const float*, StoredMatrix> all;        // by where their floats begin
};
inline Stored stored;

// out (OC) = the rows of weight (OC, C) times inp (C) [+ bias] [+ residual]; false:
// nothing is done, not all of these rows are known
bool stored_forward(float* out, const float* inp, const float* weight, const float* bias,
                    const float* residual, int C, int OC);
} // namespace cpu
#endif // CPU_STORED_H
