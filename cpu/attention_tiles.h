/*
attention_tiles.h -- the matrix products of attention on the CPU: c (M, N) = or += a (M, K) @
b (K, N), whose factors are some rows of a head (q, k, v, do) or a tile of weights, and stay in
cache.

    Tiles<float>, <bf16>     the kernels of product.h, of bf16 AMX where there is;
                             factors are packed as the kernel wants them
    Tiles<double>            for tests: vectors of the machine that this is compiled for;
                             most factors stay where they are

Both have the same functions, so attention.h is written once. A factor on the left, a, is made by
rows() or columns(), one on the right, b, by across() or along(), from a matrix x (n, HS), whose
rows are `stride` apart; columns() and across() turn it over. `slot` is where a copy may be kept.
*/
#ifndef CPU_ATTENTION_TILES_H
#define CPU_ATTENTION_TILES_H
#include "ops.h"

namespace cpu {
enum { BR = 32, BC = 64, VECTOR = 16 };     // a tile: queries, keys; the widest vector
inline int padded(int n) { return (n + VECTOR - 1) / VECTOR * VECTOR; }
inline int padded_keys(int T) { return (T + BC - 1) / BC * BC; }

// a thread's buffer number `slot`, kept from call to call; not zeroed
template <class X = acc> X* scratch(int slot, size_t n) {
    static thread_local struct Buffers {
        X* p[17] = {}; size_t n[17] = {};
        ~Buffers() { for (auto q : p) { free(q); } }
    } t;
    if (t.n[slot] < n) {
        free(t.p[slot]);
        t.p[slot] = (X*)aligned_alloc(64, (n * sizeof(X) + 63) / 64 * 64);
        if (!t.p[slot]) {
            die(EXIT_MACHINE, "memory: none left for the attention buffers",
                "lower --batch or --seq");
        }
        t.n[slot] = n;
    }
    return t.p[slot];
}

// ----------------------------------------------------------------------------
// of float and bf16

template <class R> struct Tiles {
    typedef TileA Left;
    struct Right {
        TileB b;
        int pair;                                   // k's of a lane
        Right from(int k, int n) const {
            return { { b.at + n / PANEL * b.panel + k / pair * PANEL, b.panel }, pair };
        }
    };

    static constexpr bool floats = std::is_same<R, float>::value;
    const Kernel& kernel;
    const Lanes lanes;
    const int pair;

    // its thread's tile registers are set while it lives. split: floats are two bf16 each
    // (bf16_pair.h)
    Tiles(bool split = false)
        : kernel(split && floats ? split_kernel : kernel_for(!floats)),
          lanes(lanes_by(kernel, split)), pair(lanes == PAIRS ? 2 : 1) {
        if (kernel.begin) { kernel.begin(); }
    }
    ~Tiles() { if (kernel.end) { kernel.end(); } }

    static Lanes lanes_by(const Kernel& kernel, bool split) {
        if (floats) { return split ? SPLIT : FLOATS; }
        return kernel.bf16 ? PAIRS : WIDENED;
    }
    long lanes_of(int K) const { return round_up(div_up(K, pair), kernel.deep); }

    // element (v, k) of x is x[v*s + k*sk]
    Left left(int slot, const R* x, long s, long sk, int count, int K) {
        if (lanes == FLOATS) { return { (const char*)x, s * 4, sk * 4 }; }  // any distances do
        const long L = lanes_of(K), row = L + 16;   // + 16: rows apart in the cache's sets
        lane* to = (lane*)scratch(slot, round_up(count, 32) * row);
        if (lanes == SPLIT) {                       // (of at most BR rows: one strip)
            split_strip(to, (const float*)x, s, count, K);
            return { (const char*)to, L * 4, 4 };
        }
        pack_rows(to, row, kernel, { x, s, sk, count, K, lanes }, 0, count, 0, L);
        return { (const char*)to, row * 4, 4 };
    }

    Right right(int slot, const R* x, long s, long sk, int count, int K) {
        const long panel = lanes_of(K) * PANEL, panels = round_up(div_up(count, PANEL), 2);
        lane* to = (lane*)scratch(slot, panels * panel);
        for (long i = 0; i < panels; i++) {
            pack_panel(to + i*panel, kernel, { x, s, sk, count, K, lanes }, i * PANEL, 0,
                       lanes_of(K));
        }
        return { { to, panel }, pair };
    }

    // as above; K is filled up with zeros to what the kernel sums at once
    Left rows(int slot, const R* x, long stride, int n, int HS) {
        return left(slot, x, stride, 1, n, HS);
    }
    Left columns(int slot, const R* x, long stride, int n, int HS) {
        return left(slot, x, 1, stride, HS, n);
    }
    Right across(int slot, const R* x, long stride, int n, int HS) {
        return right(slot, x, stride, 1, n, HS);
    }
    Right along(int slot, const R* x, long stride, int n, int HS) {
        return right(slot, x, 1, stride, HS, n);
    }

    // the first M rows of a tile of weights as R: (M, BC)
    const R* weights(int slot, const float* tile, int M) {
        if (floats) { return (const R*)tile; }      // (split when they become a factor)
        bf16* to = (bf16*)scratch(slot, BR * BC / 2);
        kernel.round(to, BC, tile, BC, NULL, NULL, M, BC);
        return (const R*)to;
    }
    Left weights_left(int slot, const R* tile, int M) {
        if (lanes == PAIRS) { return { (const char*)tile, BC * 2, 4 }; }
        return rows(slot, tile, BC, M, BC);
    }

    // room for a factor on the right (K, BC) that is made of tiles of weights, one below the other
    Right tall(int slot, int K) {
        const long panel = lanes_of(K) * PANEL;
        return { { (lane*)scratch(slot, BC / PANEL * panel), panel }, pair };
    }

    // a tile (M, BC) becomes the rows k.. of b, a multiple of BR
    void put_below(Right b, int k, const R* tile, int M) {
        const Factor f = { tile, 1, BC, BC, M, lanes };
        for (int j = 0; j < BC; j += PANEL) {
            lane* to = (lane*)b.from(k, j).b.at;
            pack_panel(to, kernel, f, j, 0, lanes_of(M));
        }
    }

    // columns k.. of a factor on the left, or its rows m..
    Left from(Left a, int k) { return { a.at + k / pair * a.step, a.row, a.step }; }
    Left down(Left a, int m) { return { a.at + m*a.row, a.row, a.step }; }

    // x (n, HS), rows `stride` apart, = cols (HS, ld) turned over; cols has room for whole blocks
    void turn_over(R* x, long stride, const float* cols, long ld, int n, int HS) {
        for (int t = 0; t < n; t += 16) {
            for (int i = 0; i < HS; i += 16) {
                alignas(64) float block[16 * 16];
                kernel.transpose((lane*)block, 16, (const char*)(cols + i*ld + t), ld * 4);
                put(x + t*stride + i, stride, block, std::min(16, n - t), std::min(16, HS - i));
            }
        }
    }

    // to (rows, width) = a block, rows 16 apart, as R
    void put(bf16* to, long stride, const float* block, int rows, int width) {
        kernel.round(to, stride, block, 16, NULL, NULL, rows, width);
    }

    void put(float* to, long stride, const float* block, int rows, int width) {
        for (int r = 0; r < rows; r++) { memcpy(to + r*stride, block + r*16, width * 4); }
    }

    void product(float* c, long ldc, Left a, Right b, int M, int N, int K, bool add) {
        const long tiles = div_up(M, kernel.rows);
        const int some = std::min<long>(kernel.rows, round_up(div_up(M, tiles), kernel.even));
        for (int n = 0; n < N; n += TILE_COLS) {
            const Right b_n = b.from(0, n);
            for (int m = 0; m < M; m += some) {
                const Left a_m = { a.at + m*a.row, a.row, a.step };
                kernel.tile(c + m*ldc + n, ldc, std::min(some, M - m),
                            std::min<int>(TILE_COLS, N - n), a_m, b_n.b, lanes_of(K), add);
            }
        }
    }
};

// ----------------------------------------------------------------------------
// of double
#if defined __AVX512F__
enum { VECTOR_BYTES = 64, VEC_COLS = 4 };   // of a register; so many of them across a block of sums
#elif defined __AVX__
enum { VECTOR_BYTES = 32, VEC_COLS = 2 };
#else
enum { VECTOR_BYTES = 16, VEC_COLS = 2 };
#endif
typedef double vec __attribute__((vector_size(VECTOR_BYTES), aligned(sizeof(double)), may_alias));
enum { VEC = VECTOR_BYTES / sizeof(double) };

template <int ROWS, int COLS>
inline void tile_block(double* c, long ldc, const double* a, long row, long col, const double* b,
                       long ldb, int K) {
    vec sum[ROWS][COLS];
    for (int r = 0; r < ROWS; r++) {
        for (int n = 0; n < COLS; n++) { sum[r][n] = *(vec*)(c + r * ldc + n * VEC); }
    }
    for (int k = 0; k < K; k++) {
        for (int n = 0; n < COLS; n++) {
            const vec x = *(const vec*)(b + k * ldb + n * VEC);
            for (int r = 0; r < ROWS; r++) { sum[r][n] += a[r * row + k * col] * x; }
        }
    }
    for (int r = 0; r < ROWS; r++) {
        for (int n = 0; n < COLS; n++) { *(vec*)(c + r * ldc + n * VEC) = sum[r][n]; }
    }
}

// c (M, COLS VEC) += a (M, K) @ b (K, COLS VEC)
template <int COLS>
inline void tile_columns(double* c, long ldc, const double* a, long row, long col, const double* b,
                         long ldb, int M, int K) {
    int m = 0;
    for (; m + 4 <= M; m += 4) {
        tile_block<4, COLS>(c + m * ldc, ldc, a + m * row, row, col, b, ldb, K);
    }
    for (; m < M; m++) { tile_block<1, COLS>(c + m * ldc, ldc, a + m * row, row, col, b, ldb, K); }
}

template <> struct Tiles<double> {
    Tiles(bool = false) {}

    struct Left { const double* at; long row, col; };    // element (m, k) is at[m*row + k*col]
    struct Right {                                  // element (k, n) is at[k*ld + n]
        const double* at;
        long ld;
        Right from(int k, int n) const { return { at + k*ld + n, ld }; }
    };

    // a (n, HS) = x
    Left rows(int, const double* x, long stride, int, int) { return { x, stride, 1 }; }

    // a (HS, n) = x turned over
    Left columns(int, const double* x, long stride, int, int) { return { x, 1, stride }; }

    // b (HS, n) = x turned over, filled up with zeros to whole tiles of keys
    Right across(int slot, const double* x, long stride, int n, int HS) {
        const int ld = padded_keys(n);
        double* to = scratch<double>(slot, (long)HS * ld);
        for (int i = 0; i < HS; i++) {
            for (int t = 0; t < ld; t++) { to[(long)i*ld + t] = t < n ? x[t*stride + i] : 0; }
        }
        return { to, ld };
    }

    // b (n, HS) = x, filled up with zeros to whole vectors
    Right along(int slot, const double* x, long stride, int n, int HS) {
        const int ld = padded(HS);
        double* to = scratch<double>(slot, (long)n * ld);
        for (int t = 0; t < n; t++) {
            for (int i = 0; i < ld; i++) { to[(long)t*ld + i] = i < HS ? x[t*stride + i] : 0; }
        }
        return { to, ld };
    }

    // x (n, HS) = cols (HS, ld) turned over
    void turn_over(double* x, long stride, const double* cols, long ld, int n, int HS) {
        for (int t = 0; t < n; t++) {
            for (int i = 0; i < HS; i++) { x[t*stride + i] = cols[i*ld + t]; }
        }
    }

    // a tile of weights (BR, BC), as the products read it
    const double* weights(int, const double* tile, int) { return tile; }
    Left weights_left(int, const double* tile, int) { return { tile, BC, 1 }; }

    // as above
    Right tall(int slot, int K) { return { scratch<double>(slot, (long)K * BC), BC }; }
    void put_below(Right b, int k, const double* tile, int M) {
        memcpy((double*)b.from(k, 0).at, tile, (long)M * BC * sizeof(double));
    }
    Left from(Left a, int k) { return { a.at + k*a.col, a.row, a.col }; }
    Left down(Left a, int m) { return { a.at + m*a.row, a.row, a.col }; }

    // c (M, N) = or += a (M, K) @ b (K, N); writes up to the next multiple of VEC columns
    void product(double* c, long ldc, Left a, Right b, int M, int N, int K, bool add) {
        for (int m = 0; !add && m < M; m++) {
            for (int n = 0; n < padded(N); n++) { c[m*ldc + n] = 0; }
        }
        int n = 0;
        for (; n + VEC_COLS * VEC <= N; n += VEC_COLS * VEC) {
            tile_columns<VEC_COLS>(c + n, ldc, a.at, a.row, a.col, b.at + n, b.ld, M, K);
        }
        for (; n < N; n += VEC) {
            tile_columns<1>(c + n, ldc, a.at, a.row, a.col, b.at + n, b.ld, M, K);
        }
    }
};
} // namespace cpu
#endif // CPU_ATTENTION_TILES_H
