/*
attention_tiles.h -- the matrix products of attention on the CPU: c (M, N) = or += a (M, K) @
b (K, N). A factor is some rows of a head (q, k, v, do) or a tile of weights, and stays in cache.

    Tiles<float>, <bf16>     the kernels of product.h, AMX for bf16 where there is;
                             factors are packed as the kernel wants them
    Tiles<double>            for tests: plain loops; factors stay where they are

Both have the same functions, so attention.h is written once. Factors are made from a matrix
x (n, HS), whose rows are `stride` apart:

    a, on the left     rows()     a (n, HS) = x          columns()   a (HS, n) = x^T
    b, on the right    along()    b (n, HS) = x          across()    b (HS, n) = x^T

The first argument of each names the buffer where a copy may be kept.
*/
#ifndef CPU_ATTENTION_TILES_H
#define CPU_ATTENTION_TILES_H
#include "ops.h"

namespace cpu {
// a tile of scores is BR queries x BC keys; no vector is wider than VECTOR numbers
enum { BR = 32, BC = 64, VECTOR = 16 };
inline int padded(int n) { return round_up(n, VECTOR); }
inline int padded_keys(int T) { return round_up(T, BC); }

// The buffers of a thread.
enum Slot {
    K_ACROSS, V_ACROSS,             // keys, values, transposed
    ROWS_ALONG,                     // values in the forward pass, keys in the backward pass
    V_ALONG,                        // values in the backward pass of a clipped row
    Q_ROWS, Q_COLUMNS, DO_ROWS, DO_COLUMNS,
    SCORES, DSCORES,                // a tile
    WEIGHTS, DWEIGHTS,              // the same in the type of tensors
    LEFT_TILE,                      // one of these as a factor on the left
    ALL_WEIGHTS, ALL_DSCORES,       // tiles below each other as a factor on the right
    OUT, DQ, DK, DV,                // sums
    SLOTS
};

// Returns the thread's buffer `slot`, kept from call to call, with room for n numbers; not zeroed.
inline acc* scratch(Slot slot, size_t n) {
    static thread_local Buffer all[SLOTS];
    return (acc*)all[slot].room(n * sizeof(acc));
}

// ----------------------------------------------------------------------------
// of float and bf16

template <class R> struct Tiles {
    typedef TileA Left;
    struct Right {
        TileB b;
        int pair;                   // k's of a lane

        // Returns the same factor from row k and column n on.
        Right from(int k, int n) const {
            const long panel = n / PANEL;
            const long lane = k / pair;
            return { { b.at + panel * b.panel + lane * PANEL, b.panel }, pair };
        }
    };

    static constexpr bool floats = std::is_same<R, float>::value;
    const Kernel& kernel;
    const Lanes lanes;
    const int pair;

    // Holds the thread's tile registers while it lives.
    Tiles()
        : kernel(kernel_for(!floats)), lanes(lanes_by(kernel)), pair(lanes == PAIRS ? 2 : 1) {
        if (kernel.begin) { kernel.begin(); }
    }
    ~Tiles() { if (kernel.end) { kernel.end(); } }

    static Lanes lanes_by(const Kernel& kernel) {
        if (floats) { return FLOATS; }
        return kernel.bf16 ? PAIRS : WIDENED;
    }
    long lanes_of(int K) const { return round_up(div_up(K, pair), kernel.deep); }

    // Packs a factor on the left; K is filled up with zeros to what the kernel sums at once.
    Left left(Slot slot, const Factor& f) {
        const char* x = (const char*)f.x;
        if (lanes == FLOATS) { return { x, f.row_bytes(), f.lane_bytes() }; }  // where it is
        const long depth = lanes_of(f.K);
        const long row = depth + 16;    // + 16: rows apart in the cache's sets
        lane* to = (lane*)scratch(slot, round_up(f.count, 32) * row);
        pack_rows({ to, row, (int)f.count }, kernel, f, 0, { 0, depth });
        return { (const char*)to, row * (long)sizeof(lane), sizeof(lane) };
    }

    // Packs a factor on the right.
    Right right(Slot slot, const Factor& f) {
        const LaneRange all = { 0, lanes_of(f.K) };
        const long panel = all.l1 * PANEL;
        const long panels = round_up(div_up(f.count, PANEL), 2);
        lane* to = (lane*)scratch(slot, panels * panel);
        for (long i = 0; i < panels; i++) {
            pack_panel(to + i * panel, kernel, f, i * PANEL, all);
        }
        return { { to, panel }, pair };
    }

    Left rows(Slot slot, const R* x, long stride, int n, int HS) {
        return left(slot, { x, stride, 1, n, HS, lanes });
    }
    Left columns(Slot slot, const R* x, long stride, int n, int HS) {
        return left(slot, { x, 1, stride, HS, n, lanes });
    }
    Right across(Slot slot, const R* x, long stride, int n, int HS) {
        return right(slot, { x, stride, 1, n, HS, lanes });
    }
    Right along(Slot slot, const R* x, long stride, int n, int HS) {
        return right(slot, { x, 1, stride, HS, n, lanes });
    }

    // Rounds the first M rows of a tile (BR, BC) to R: (M, BC).
    const R* weights(Slot slot, const float* tile, int M) {
        if (floats) { return (const R*)tile; }
        bf16* to = (bf16*)scratch(slot, BR * BC / 2);
        kernel.round(to, BC, tile, BC, NULL, NULL, M, BC);
        return (const R*)to;
    }

    // Makes them a factor on the left.
    Left weights_left(Slot slot, const R* tile, int M) {
        if (lanes == PAIRS) { return { (const char*)tile, BC * sizeof(bf16), sizeof(lane) }; }
        return rows(slot, tile, BC, M, BC);
    }

    // Makes room for a factor on the right (K, BC) that will be filled by put_below.
    Right tall(Slot slot, int K) {
        const long panel = lanes_of(K) * PANEL;
        return { { (lane*)scratch(slot, BC / PANEL * panel), panel }, pair };
    }

    // Packs a tile (M, BC) as rows k.. of b; k is a multiple of BR.
    void put_below(Right b, int k, const R* tile, int M) {
        const Factor f = { tile, 1, BC, BC, M, lanes };
        for (int j = 0; j < BC; j += PANEL) {
            lane* to = (lane*)b.from(k, j).b.at;
            pack_panel(to, kernel, f, j, { 0, lanes_of(M) });
        }
    }

    // Return the columns k.. of a factor on the left, and its rows m...
    Left from(Left a, int k) { return { a.at + k / pair * a.step, a.row, a.step }; }
    Left down(Left a, int m) { return { a.at + m * a.row, a.row, a.step }; }

    // Transposes cols (HS, ld), which has whole blocks, into x (n, HS), rows `stride` apart.
    void transpose(R* x, long stride, const float* cols, long ld, int n, int HS) {
        for (int t = 0; t < n; t += 16) {
            for (int i = 0; i < HS; i += 16) {
                alignas(64) float block[16 * 16];
                const char* from = (const char*)(cols + i * ld + t);
                kernel.transpose((lane*)block, 16, from, ld * sizeof(float));
                put(x + t * stride + i, stride, block, std::min(16, n - t), std::min(16, HS - i));
            }
        }
    }

    // Writes a block, whose rows are 16 apart, to `to` (rows, width) as R.
    void put(bf16* to, long stride, const float* block, int rows, int width) {
        kernel.round(to, stride, block, 16, NULL, NULL, rows, width);
    }

    void put(float* to, long stride, const float* block, int rows, int width) {
        for (int r = 0; r < rows; r++) {
            memcpy(to + r * stride, block + r * 16, width * sizeof(float));
        }
    }

    // Computes c (M, N) = or += a (M, K) @ b (K, N).
    void product(float* c, long ldc, Left a, Right b, int M, int N, int K, bool add) {
        const long depth = lanes_of(K);
        const long tiles = div_up(M, kernel.rows);
        const int height = std::min<long>(kernel.rows, round_up(div_up(M, tiles), kernel.even));
        for (int n = 0; n < N; n += TILE_COLS) {
            const TileB b_n = b.from(0, n).b;
            const int cols = std::min<int>(TILE_COLS, N - n);
            for (int m = 0; m < M; m += height) {
                const int rows = std::min(height, M - m);
                kernel.tile(c + m * ldc + n, ldc, rows, cols, down(a, m), b_n, depth, add);
            }
        }
    }
};

// ----------------------------------------------------------------------------
// of double

template <> struct Tiles<double> {
    // A factor where it is: element (i, j) is at[i * row + j * col].
    struct Left {
        const double* at;
        long row, col;

        Left from(int i, int j) const { return { at + i * row + j * col, row, col }; }
    };
    typedef Left Right;

    Left rows(Slot, const double* x, long stride, int, int)    { return { x, stride, 1 }; }
    Left columns(Slot, const double* x, long stride, int, int) { return { x, 1, stride }; }
    Right across(Slot, const double* x, long stride, int, int) { return { x, 1, stride }; }
    Right along(Slot, const double* x, long stride, int, int)  { return { x, stride, 1 }; }

    // a tile stays as it is
    const double* weights(Slot, const double* tile, int) { return tile; }
    Left weights_left(Slot, const double* tile, int) { return { tile, BC, 1 }; }

    // (2: where acc is float, it has half the bytes)
    Right tall(Slot slot, int K) { return { (double*)scratch(slot, 2L * K * BC), BC, 1 }; }
    void put_below(Right b, int k, const double* tile, int M) {
        memcpy((double*)b.from(k, 0).at, tile, (long)M * BC * sizeof(double));
    }
    Left from(Left a, int k) { return a.from(0, k); }
    Left down(Left a, int m) { return a.from(m, 0); }

    void transpose(double* x, long stride, const double* cols, long ld, int n, int HS) {
        for (int t = 0; t < n; t++) {
            for (int i = 0; i < HS; i++) {
                x[t * stride + i] = cols[i * ld + t];
            }
        }
    }

    void product(double* c, long ldc, Left a, Right b, int M, int N, int K, bool add) {
        product_double(M, N, K, { a.at, a.row, a.col }, { b.at, b.row, b.col }, { c, ldc, add });
    }
};
} // namespace cpu
#endif // CPU_ATTENTION_TILES_H
