/*
mma.cuh -- tiles of bf16 in shared memory and their products on tensor cores. Knows no attention.

One mma adds to C (16, 8), in fp32, the product of A (16, 16) and B (16, 8), in bf16. The 32 lanes
of a warp hold the three matrices together. Lane l holds what is marked with its number: always two
neighbors, because a register takes two bf16.

             A, registers a[0..3]                B, b0 b1               C, numbers c[0..3]
    columns  0,1  2,3  4,5  6,7 | 8,9 .. 14,15   0   1  ..   7         0,1  2,3  4,5  6,7
    row  0    0    1    2    3  |  0  ..   3     0   4      28  0,1      0    1    2    3   row  0
         1    4    5    6    7  |  4  ..   7     1   5      29  2,3      4    5    6    7        1
        ..       a[0]           |    a[2]        2   6  b0  30  4,5        c[0], c[1]           ..
         7   28   29   30   31  | 28  ..  31     3   7      31  6,7     28   29   30   31        7
         -----------------------+-----------     ------------- rows     ---------------------
         8    0    1    2    3  |  0  ..   3     0   4      28  8,9      0    1    2    3        8
        ..       a[1]           |    a[3]           ..  b1      ..         c[2], c[3]           ..
        15   28   29   30   31  | 28  ..  31     3   7      31  14,15   28   29   30   31       15

So lane l has rows l / 4 and l / 4 + 8 of A and C, and columns from 2 (l % 4) on. Two C side by
side, rounded, are an A (pack_left): a product's result becomes the next one's left side without
leaving the registers. ldmatrix fills four registers from 8x8 matrices in shared memory; with .trans
it transposes each of them.

A tile (rows, HS) in shared memory would be slow to read row by row: ldmatrix wants the same 16
bytes, a chunk, of 8 rows at once, and rows of 128 bytes all begin at bank 0. So chunks change
places within their row: chunk c of row r stands at c ^ (r % 8). In every column of this picture,
which is four banks, each chunk stands once:

    row 0    0 1 2 3 4 5 6 7          HS 96, 12 chunks a row: every other row begins in the middle
of
    row 1    1 0 3 2 5 4 7 6          the banks, so only groups of four change places:
    row 2    2 3 0 1 6 7 4 5
    row 3    3 2 1 0 7 6 5 4              row 0    0 1 2 3  4 5 6 7  8 9 10 11
    row 4    4 5 6 7 0 1 2 3              row 1    0 1 2 3  4 5 6 7  8 9 10 11
    row 5    5 4 7 6 1 0 3 2              row 2    1 0 3 2  5 4 7 6  9 8 11 10
    row 6    6 7 4 5 2 3 0 1              row 3    1 0 3 2  5 4 7 6  9 8 11 10
    row 7    7 6 5 4 3 2 1 0              ..
*/
#ifndef CUDA_MMA_CUH
#define CUDA_MMA_CUH
#include "instructions.cuh"

namespace cuda {
enum { MMA_BLOCK = 128 };                // threads: 4 warps, each with rows of its own
enum { CHUNK = 8 };                      // bf16 in 16 bytes

// what a lane holds of C (16 MT, N) and of A (16 MT, 16)
template <int MT, int N> using Sums = float[MT][N / 8][4];
template <int MT> using Lefts = uint32_t[MT][4];

// Return the lane's first row and first column of C.
DEVICE int lane_group() { return lane_id() / 4; }
DEVICE int lane_column() { return lane_id() % 4 * 2; }

// Returns number i of a row of C (16 MT, N): a lane has 2 MT rows, 8 apart, of N / 4 numbers each.
// Number i stands columns_on(i) columns right of the lane's first.
template <class C> DEVICE float& element(C& c, int row, int i) {
    return c[row / 2][i / 2][row % 2 * 2 + i % 2];
}

HD constexpr int columns_on(int i) { return i / 2 * 8 + i % 2; }

// ----------------------------------------------------------------------------
// Where things stand in a tile.

template <int HS> struct Swizzle {
    // Whether a row of HS numbers covers all banks, once or several times.
    static constexpr bool whole_rows = HS % 64 == 0;

    // Returns where a chunk of a row stands in a tile (rows, HS).
    HD static constexpr int offset(int row, int chunk) {
        const int among_8 = chunk ^ (row & 7);
        const int among_4 = (chunk & ~3) | ((chunk ^ (row >> 1)) & 3);
        return row * HS + CHUNK * (whole_rows ? among_8 : among_4);
    }
};

// Gives ldmatrix the address of its lane: a row, and of columns 16 k.. the half that the lane
// reads. The swizzle repeats every PERIOD steps of k and every 8 rows, so k changes bits of one
// number and all else is constant.
template <int HS> struct LaneChunks {
    enum { PERIOD = Swizzle<HS>::whole_rows ? 4 : 2 };
    int at;
    DEVICE LaneChunks(int row, int half) : at(Swizzle<HS>::offset(row, half)) {}

    // Returns the chunks for A, and with .trans for B: rows 0-7, rows 8-15, then their right
    // halves.
    DEVICE static LaneChunks by_column() { return LaneChunks(lane_id() % 16, lane_id() / 16); }

    // Returns the chunks for B as it is: rows 0-7, their right half, then rows 8-15.
    DEVICE static LaneChunks by_row() {
        const int row = lane_id() / 16 * 8 + lane_id() % 8;
        return LaneChunks(row, lane_id() / 8 % 2);
    }

    DEVICE int operator()(int rows, int k) const {
        const int changed = at ^ k % PERIOD * 16;
        return changed + rows * HS + k / PERIOD * PERIOD * 16;
    }
};

// ----------------------------------------------------------------------------
// Loading.

// Returns x and hides where it comes from: what follows from it is computed where it is used,
// instead of being kept in registers around a loop.
DEVICE unsigned opaque(unsigned x) {
#ifndef EMU
    asm volatile("" : "+r"(x));
#endif
    return x;
}

// Loads `rows` of ROWS rows of x, the others as zeros; WHOLE: all of them. They arrive with the
// next cp_async_commit. ACROSS threads share a row, each with every ACROSS-th chunk. DOWN rows
// further the swizzle is the same, so that addresses are constants apart. (What is unsigned takes
// fewer instructions to divide and to address by.)
template <bool WHOLE, int HS, int ROWS>
DEVICE void tile_load_part(bf16* tile, const bf16* x, unsigned stride, int rows, unsigned thread) {
    constexpr int ACROSS = Swizzle<HS>::whole_rows ? 8 : 4;
    constexpr int DOWN = MMA_BLOCK / ACROSS;
    const int row = thread / ACROSS;
    const int chunk = thread % ACROSS;
    const bf16* from = x + row * stride + chunk * CHUNK;
    bf16* to = tile + Swizzle<HS>::offset(row, chunk);
    #pragma unroll
    for (int i = 0; i < ROWS; i += DOWN) {
        if (i + DOWN > ROWS && row >= ROWS - i) { break; }
        const bool valid = WHOLE || row + i < rows;
        #pragma unroll
        for (int c = 0; c < HS; c += ACROSS * CHUNK) {
            cp_async(to + i * HS + c, valid ? from + c : x, valid);
        }
        from += DOWN * stride;
    }
}

// Loads rows from, from + 1, .. of x (T, *); those from T on as zeros.
template <int HS, int ROWS>
DEVICE void tile_load(bf16* tile, const bf16* x, unsigned stride, unsigned from, int T,
                      unsigned thread = threadIdx.x) {
    x += (size_t)from * stride;
    const int rows = T - from;
    if (rows >= ROWS) {
        tile_load_part<true, HS, ROWS>(tile, x, stride, ROWS, thread);
    } else {
        tile_load_part<false, HS, ROWS>(tile, x, stride, rows, thread);
    }
}

// ----------------------------------------------------------------------------
// Products.

// 16 MT rows of a tile as the left side of a product. Of HS / 16 pieces the first KEEP stay in
// registers once hold() has loaded them; the others come from shared memory each time.
template <int HS, int MT, int KEEP = 0> struct LeftRows {
    bf16* rows;
    LaneChunks<HS> by_column;
    Lefts<MT> kept[KEEP ? KEEP : 1];

    DEVICE LeftRows(bf16* rows, LaneChunks<HS> by_column) : rows(rows), by_column(by_column) {}

    DEVICE void hold() {
        UNROLL(k, KEEP) {
            UNROLL(m, MT) { ldmatrix(kept[k][m], rows + by_column(16 * m, k)); }
        }
    }

    DEVICE void piece(uint32_t (&a)[4], int m, int k) const {
        if constexpr (KEEP > 0) {
            if (k < KEEP) {
                UNROLL(i, 4) { a[i] = kept[k][m][i]; }
                return;
            }
        }
        ldmatrix(a, rows + by_column(16 * m, k));
    }
};

// Computes c (16 MT, N) = rows of a (16 MT, HS) times rows of b (N, HS): dot products.
template <int HS, int MT, int N, int KEEP>
DEVICE void product_rows(Sums<MT, N>& c, const LeftRows<HS, MT, KEEP>& a, bf16* b,
                         LaneChunks<HS> by_row) {
    UNROLL(row, 2 * MT) {
        UNROLL(i, N / 4) { element(c, row, i) = 0; }
    }
    UNROLL(k, HS / 16) {
        Lefts<MT> left;
        UNROLL(m, MT) { a.piece(left[m], m, k); }
        UNROLL(n, N / 16) {
            uint32_t right[4];
            ldmatrix(right, b + by_row(16 * n, k));
            UNROLL(m, MT) {
                mma(c[m][2 * n], left[m], right[0], right[1]);
                mma(c[m][2 * n + 1], left[m], right[2], right[3]);
            }
        }
    }
}

// Rounds columns 16 k.. of results w (16, N) into the left side of another product.
template <int N> DEVICE void pack_left(uint32_t (&a)[4], const float (&w)[N / 8][4], int k) {
    const float(&left)[4] = w[2 * k];
    const float(&right)[4] = w[2 * k + 1];
    a[0] = pack(left[0], left[1]);
    a[1] = pack(left[2], left[3]);
    a[2] = pack(right[0], right[1]);
    a[3] = pack(right[2], right[3]);
}

// Computes c (16 MT, HS) += a (16 MT, 16) times the 16 rows of x from `row` on.
template <int HS, int MT>
DEVICE void product_step(Sums<MT, HS>& c, const Lefts<MT>& a, bf16* x, int row,
                         LaneChunks<HS> by_column) {
    UNROLL(n, HS / 16) {
        uint32_t right[4];
        ldmatrix_trans(right, x + by_column(row, n));
        UNROLL(m, MT) {
            mma(c[m][2 * n], a[m], right[0], right[1]);
            mma(c[m][2 * n + 1], a[m], right[2], right[3]);
        }
    }
}

// Computes c (16 MT, HS) += columns 16 k.. of w (16 MT, N), in registers, times those rows of x.
template <int HS, int MT, int N>
DEVICE void product_columns(Sums<MT, HS>& c, const Sums<MT, N>& w, int k, bf16* x,
                            LaneChunks<HS> by_column) {
    Lefts<MT> left;
    UNROLL(m, MT) { pack_left<N>(left[m], w[m], k); }
    product_step<HS, MT>(c, left, x, 16 * k, by_column);
}

// ----------------------------------------------------------------------------
// What becomes of results.

// Where a tile's rows go: row r to row t0 + r of p, if there is one of T.
struct OutRows {
    bf16* p;
    long stride;
    int t0, T;
};

// Stores c (16, HS), times one factor for each of the lane's two rows, as rows row0.. of the tile.
// They pass through rows of the tile in memory that only this warp reads, so that 16 bytes leave at
// a time.
template <int HS>
DEVICE void rows_store(const OutRows& out, bf16* tile, int row0, const float (&c)[HS / 8][4],
                       float f0, float f1) {
    constexpr int CHUNKS = HS / CHUNK;
    const int lane_row = row0 + lane_group();
    const int pair = lane_column();
    __syncwarp();
    UNROLL(n, CHUNKS) {
        bf16* upper = tile + Swizzle<HS>::offset(lane_row, n) + pair;
        bf16* lower = tile + Swizzle<HS>::offset(lane_row + 8, n) + pair;
        *(uint32_t*)upper = pack(c[n][0] * f0, c[n][1] * f0);
        *(uint32_t*)lower = pack(c[n][2] * f1, c[n][3] * f1);
    }
    __syncwarp();
    FOR_LANES(i, 16 * CHUNKS) {
        const int row = row0 + i / CHUNKS;
        const int chunk = i % CHUNKS;
        const int t = out.t0 + row;
        if (t < out.T) {
            const Vec<bf16, CHUNK> numbers = load<CHUNK>(tile + Swizzle<HS>::offset(row, chunk));
            store<CHUNK>(out.p + t * out.stride + chunk * CHUNK, numbers);
        }
    }
}

template <int HS> DEVICE void rows_scale(float (&c)[HS / 8][4], float f) {
    UNROLL(n, HS / 8) {
        UNROLL(e, 4) { c[n][e] *= f; }
    }
}

// Sums and maxima over the 4 lanes that share a row.
DEVICE float quad_sum(float v) {
    v += __shfl_xor_sync(~0u, v, 1);
    return v + __shfl_xor_sync(~0u, v, 2);
}

DEVICE float quad_max(float v) {
    v = fmaxf(v, __shfl_xor_sync(~0u, v, 1));
    return fmaxf(v, __shfl_xor_sync(~0u, v, 2));
}
} // namespace cuda
#endif // CUDA_MMA_CUH
