/*
kernels.h -- the innermost loops of the matrix product, one for each kind of processor. All have the
same parameters and are in every binary; product.h asks at run time which of them the processor and
the system allow.

A kernel makes one tile of C, at most `rows` x 32, a sum over k of outer products that never leaves
the registers until the last k. What it reads comes in lanes of 32 bits: a lane is one float, or two
bf16 that follow each other in k.

                               panel 0        panel 1
                               16 columns     16 columns
                             +--------------+--------------+
                      lane l | b[l*16 + j]  | .. + panel   |
                             +--------------+--------------+
              lane l
            +--------+       +--------------+--------------+
      row i |  a_il  |       |  c_ij += a_il * b_lj        |
            +--------+       +--------------+--------------+

    a      lane l of row i of A is at (char*)a + i*row + l*step
    b      two panels of 16 columns of B, `panel` lanes apart
    c      c (rows, cols) = the tile, or += it if add
*/
#ifndef CPU_KERNELS_H
#define CPU_KERNELS_H
#include <stddef.h>
#include <stdint.h>
#include "bf16.h"

namespace cpu {
// two bf16 need not be at a multiple of 4
typedef uint32_t lane __attribute__((may_alias, aligned(2)));
enum { PANEL = 16, TILE_COLS = 2 * PANEL };

struct TileA {
    const char* at;
    long row, step;                 // in bytes
};

struct TileB {
    const lane* at;
    long panel;                     // in lanes
};

typedef void TileKernel(float* c, long ldc, int rows, int cols, TileA a, TileB b, long lanes,
                        bool add);

// Transposes from (16, 16) into `to` (16, 16) lanes, rows to_row lanes apart, those of from
// from_row bytes apart
typedef void Transpose(lane* to, long to_row, const char* from, long from_row);

// Makes `to` (16, 16) lanes, pairs of bf16, of rows 2l and 2l + 1 of from (32, 16), rows from_row
// bytes apart
typedef void Pairs(lane* to, const char* from, long from_row);

// Computes out (rows, cols) bf16 = sum [+ x (rows, cols)], rounded; then, as the CUDA backend does,
// [+ y (cols), rounded again]. Rows of out and x are ld apart, those of sum ld_sum; x, y may be
// NULL
typedef void Round(bf16* out, long ld, const float* sum, long ld_sum, const bf16* x, const bf16* y,
                   int rows, int cols);

struct Kernel {
    const char* name;
    bool bf16;                      // its lanes are pairs of bf16, else floats
    int rows;                       // of a tile, at most
    int even;                       // attention shares out its rows by multiples of this
    int deep;                       // A and B are padded to a multiple of that many lanes
    long chunk;                     // lanes that are summed in registers, then added to C: what of
                                    // A and B stays in cache
    TileKernel* tile;
    Transpose* transpose;
    Pairs* pairs;
    Round* round;
    bool (*here)();                 // whether the processor and the system allow it

    // called on every thread, before the first tile and after the last; NULL: nothing to do
    void (*begin)() = NULL;
    void (*end)() = NULL;
};

// from the slowest to the fastest
extern const Kernel kernels[];
extern const int KERNELS;
} // namespace cpu
#endif // CPU_KERNELS_H
