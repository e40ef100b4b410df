/*
kernels.h -- the innermost loops of the matrix product, one for each kind of processor. All have the
same parameters and are in every binary; product.h asks at run time which of them the processor and
the system allow.

A kernel makes one tile of C, at most `rows` x 32, a sum over k of outer products that never leaves
the registers until the last k. What it reads comes in lanes of 32 bits: a lane is one float, or two
bf16 that follow each other in k.

    a      lane l of row i of A is at (char*)a + i*row + l*step
    b      two panels of 16 columns of B, `panel` lanes apart; lane l of column j of a panel
           is b[l*16 + j]
    c      c (rows, cols) = the tile, or += it if add
*/
#ifndef CPU_KERNELS_H
#define CPU_KERNELS_H
#include <stdint.h>
#include "bf16.h"

namespace cpu {
// two bf16 need not be at a multiple of 4
typedef uint32_t lane __attribute__((may_alias, aligned(2)));
enum { PANEL = 16, TILE_COLS = 2 * PANEL };

struct TileA { const char* at; long row, step; };
struct TileB { const lane* at; long panel; };
typedef void TileKernel(float* c, long ldc, int rows, int cols, TileA a, TileB b, long lanes,
                        bool add);
// to (16, 16) lanes, rows to_row lanes apart, = from (16, 16) transposed, its rows from_row bytes
// apart
typedef void Transpose(lane* to, long to_row, const char* from, long from_row);
// to (16, 16) lanes = pairs of bf16, of rows 2l and 2l + 1 of from (32, 16), rows from_row bytes
// apart
typedef void Pairs(lane* to, const char* from, long from_row);
// out (rows, cols) bf16 = sum [+ x (rows, cols)], rounded; then, as the CUDA backend does, [+ y
// (cols), rounded again]. Rows of out and x are ld apart, those of sum ld_sum; x, y may be NULL
typedef void Round(bf16* out, long ld, const float* sum, long ld_sum, const bf16* x, const bf16* y,
                   int rows, int cols);

// to (32, 16) lanes = 32 floats of each of 16 rows, from_row floats apart, as pairs of bf16:
// 16 lanes of their high parts, then 16 of the low ones (bf16_pair.h). False: all low parts are
// zero
typedef bool SplitPanel(lane* to, const float* from, long from_row);
// n floats, n a multiple of 32, likewise: of each 32 the high parts go to 16 lanes, the low ones to
// the 16 that begin SPLIT_LOW lanes later, and the next 32 follow SPLIT_STEP lanes on
typedef void SplitRow(lane* to, const float* from, long n);
enum { SPLIT_LOW = 32 * 16, SPLIT_STEP = 2 * SPLIT_LOW };

struct Kernel {
    const char* name;
    bool bf16;              // its lanes are pairs of bf16, else floats
    // a tile has that many rows at most; where the last one would be low, attention shares its rows
    // out evenly, by multiples of `even`. A and B are padded to a multiple of `deep` lanes
    int rows, even, deep;
    // so many lanes are summed in registers, then added to C: what of A and B stays in cache
    long chunk;
    TileKernel* tile;
    Transpose* transpose;
    Pairs* pairs;
    Round* round;
    bool (*here)();
    // on every thread, before the first tile and after the last; NULL, nothing to do
    void (*begin)();
    void (*end)();
    // of floats that are multiplied as two bf16 each, else NULL. high: where B has no low parts
    SplitPanel* split_panel;
    SplitRow* split_row;
    TileKernel* high;
};

// from the slowest to the fastest
extern const Kernel kernels[];
extern const int KERNELS;

// Multiplies floats as two bf16 each, where there is AMX. Rows of A come in strips of 32, one after
// the other, `row` bytes to a row: of each 32 lanes the high parts of all rows, then the low ones
extern const Kernel split_kernel;
} // namespace cpu
#endif // CPU_KERNELS_H
