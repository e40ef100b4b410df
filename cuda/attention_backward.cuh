/*
attention_backward.cuh -- attention's backward pass on tensor cores: five products in two kernels.

    row (attention_score.cuh)
     |
     v
    dv kernel, a block for 64 or 128 keys           dq, dk kernel, a block for 64 or 128 rows
    for each tile of queries that see them:
        S  = K Q^T                                  dq_t = scale sum_j ds_tj k_j
        dA = V dO^T                                 dk_j = scale sum_t ds_tj q_t
        A, ds from S, dA and row                        ^
        dv += A dO                                      |
        ds --------> cells, bf16, in memory ------------+

Storing ds costs 4.3 MB written and 8.4 read a head at T 2048; to sum dq in fp32 would cost 26, or
two products more. ds is rounded to bf16 in any case, as a factor of a product. No sum belongs to
two blocks, so none needs atomics.
*/
#ifndef CUDA_ATTENTION_BACKWARD_CUH
#define CUDA_ATTENTION_BACKWARD_CUH
#include "attention_score.cuh"
#include "attention_tiles.cuh"

namespace cuda {
// ----------------------------------------------------------------------------
// ds in memory: for a chunk of heads, or of one head's keys, at a time. Of each query head of a
// chunk there are cells of 16 queries by 16 keys, (queries / 16, keys / 16, 256). A cell is what a
// warp holds of A in an mma whose rows are keys and whose columns are queries (mma.cuh): four
// matrices, each 8 keys by 8 queries.
//
//                    queries 0-7    8-15
//        keys 0-7        [0]         [2]
//        keys 8-15       [1]         [3]
enum { CELL_SIDE = 16, CELL_MATRIX = 8 * 8, CELL = 4 * CELL_MATRIX };
enum { CHUNK_KEYS = 128 };                               // a chunk ends at a multiple of it
const size_t CHUNK_BYTES = shrunk ? 1 << 17 : 1 << 29;   // at T 2048: 64 query heads

struct DsChunk {
    bf16* ds;
    int g0, count;         // key heads g0.. of B KV
    int h0;                // and the first of their query heads, of B NH
    int j0, j1;            // keys
    int QT;                // cells in a column: T rounded up, over 16

    HD unsigned width() const { return (unsigned)(j1 - j0) / CELL_SIDE; }

    // Returns the cell of query head `head` of the chunk, queries t.., keys j..: multiples of 16,
    // never negative.
    HD bf16* cell(int head, unsigned t, unsigned j) const {
        const unsigned row = (head * QT + t / CELL_SIDE) * width();
        return ds + (size_t)(row + (j - j0) / CELL_SIDE) * CELL;
    }
};

// Returns the chunk that begins at key head g0 and key j0.
inline DsChunk ds_chunk(const AttnShape& s, int g0, int j0) {
    const int G = s.NH / s.KV, heads = s.B * s.KV;
    const int keys = CEIL_DIV(s.T, CHUNK_KEYS) * CHUNK_KEYS;
    const int QT = rows_padded(s.T) / CELL_SIDE;
    const size_t key_bytes = (size_t)G * QT * CELL * sizeof(bf16) / CELL_SIDE;   // all its queries
    const size_t fit_keys = CHUNK_BYTES / key_bytes / CHUNK_KEYS * CHUNK_KEYS;
    const int keys_at_once = (int)std::min<size_t>(keys, std::max<size_t>(CHUNK_KEYS, fit_keys));
    const int fit_heads = (int)std::max<size_t>(1, CHUNK_BYTES / key_bytes / keys);
    const int even = CEIL_DIV(heads, CEIL_DIV(heads, fit_heads));   // chunks of about one size
    DsChunk c = {};
    c.g0 = g0;
    c.count = std::min(even, heads - g0);
    c.h0 = g0 * G;
    c.j0 = j0;
    c.j1 = std::min(j0 + keys_at_once, keys);
    c.QT = QT;
    return c;
}

// Returns the bytes of the largest chunk: no later one is larger than the first.
inline size_t ds_bytes(const AttnShape& s) {
    const DsChunk c = ds_chunk(s, 0, 0);
    return (size_t)c.count * (s.NH / s.KV) * c.QT * c.width() * CELL * sizeof(bf16);
}

// ----------------------------------------------------------------------------
// The first kernel: dv, and ds.

// Turns the dot products x = q.k and y = do.v, in place, into the weight A and ds, where dA = y:
//
//     exp family    A = 2^(s - log2_Z)              ds = A (dA - delta) slope
//     softpick      e = 2^(s - log2_Z), one = 2^-log2_Z = alpha / Z
//                   A = max(e - one, 0)             ds = e (dA - delta) if s > 0, e delta if s < 0
//     the others    A = f(s) factor                 ds = f'(s) factor (dA - delta)
//     p-norm        attn_ds (attention_variants.cuh)
template <bool FULL, class A, class Pe>
DEVICE void weight_ds(float& x, float& y, const TileScore<A, Pe>& score, const RowStat& row, int t,
                      int j, const AttnShape& s) {
    const bool sees = FULL | ((t < s.T) & (j < s.T) & attn_sees(s, t, j));
    x = score(x, t, j, s);
    if (A::Z == Z_ABS) {
        const float one = ex2_approx(-row.log2_Z());
        const float e = score.power(x, row.log2_Z());
        const float d = x > 0 ? y - row.delta : row.delta;
        y = sees & (x != 0) ? e * d : 0.0f;
        x = sees ? fmaxf(e - one, 0) : 0.0f;
    } else if (A::exp_family && A::Z != Z_PNORM) {
        const float slope = A::capped ? score.slope(x, s) : 1.0f;
        x = score.power(sees ? x : -INFINITY, row.log2_Z());
        y = x * (y - row.delta) * slope;
    } else {
        const Fast by_f = A::sim(Fast(x)) * Fast(row.factor());
        const Fast w = A::exp_family ? Fast(score.power(x, row.log2_Z())) : by_f;
        const Fast alpha(attn_alpha<A, float>(s)), no_second(0);
        y = attn_ds<A>(Fast(x), w, Fast(y), Fast(row.norm), no_second, Fast(row.delta), Fast(s.p),
                       alpha)
                .v;
        x = sees ? w.v : 0.0f;
        y = sees ? y : 0.0f;
    }
}

// 128 keys a block, 32 a warp, where the registers allow, so that what is read of a query from
// shared memory serves two products. Keys and values stay in registers where there is room. MANY:
// the mathematics of a row takes many registers.
template <class A, class Pe> constexpr bool many_registers = A::Z == Z_PNORM && Pe::score_bias;
template <int HS, bool MANY = false> struct DvTile {
    enum {
        MT = HS > 96 || MANY ? 1 : 2,
        BK = 64 * MT,
        BQ = 32,
        KEEP_V = HS == 128 ? HS / 16 : 0,        // pieces of the values in registers
        ROWS = 2 * ROW_PAD,                      // numbers of a tile's rows, of which BQ are used
        // bytes: K, V; two tiles each of Q, dO and rows
        SMEM = (2 * BK + 4 * BQ) * HS * 2 + 2 * ROWS * 4
    };
};

// Pieces of the keys in registers.
template <class A, class Pe>
constexpr bool few_registers = TileScore<A, Pe>::plain && A::Z != Z_PNORM;
template <class A, class Pe, int HS>
constexpr int keep_keys =
    HS == 96 && DvTile<HS, many_registers<A, Pe>>::MT == 2 && !few_registers<A, Pe> ? 0 : HS / 16;

// Turns a tile of both dot products into weights and ds; the lane's first query is t, its first key
// own. rows: of the tile's queries, from the lane's first on.
template <bool FULL, class A, class Pe, int MT, int BQ>
DEVICE void tile_weights_ds(Sums<MT, BQ>& w, Sums<MT, BQ>& ds, const TileScore<A, Pe>& score,
                            const float* rows, int t, int own, const AttnShape& s) {
    #pragma unroll
    for (int n = 0; n < BQ / 8; n++) {
        const Vec<float, 4> two = load<4>(rows + 8 * n * 2);     // of two queries
        #pragma unroll
        for (int i = 0; i < 4 * MT; i++) {
            const int m = i / 4, e = i % 4, query = e % 2;
            const RowStat row = { two[query * 2], two[query * 2 + 1] };
            weight_ds<FULL>(w[m][n][e], ds[m][n][e], score, row, t + 8 * n + query,
                            own + 16 * m + e / 2 * 8, s);
        }
    }
}

// Stores a tile of ds as cells; `cells` is the lane's pair in the first of them.
template <int MT, int BQ>
DEVICE void ds_store(uint32_t* cells, unsigned width, const Sums<MT, BQ>& ds) {
    #pragma unroll
    for (int i = 0; i < MT * BQ / CELL_SIDE; i++) {
        const int m = i % MT, n = i / MT;
        uint32_t pairs[4];
        pack_left<BQ>(pairs, ds[m], n);
        #pragma unroll
        for (int k = 0; k < 4; k++) { cells[(n * width + m) * (CELL / 2) + k * 32] = pairs[k]; }
    }
}

template <class A, class Pe, int HS>
__global__ void __launch_bounds__(MMA_BLOCK, 2)
    attention_dv_mma_kernel(bf16* dqkv, DsChunk c, const bf16* dout, RowStats r, const bf16* qkv,
                            AttnShape s) {
    typedef DvTile<HS, many_registers<A, Pe>> Tile;
    constexpr int MT = Tile::MT, BQ = Tile::BQ, BK = Tile::BK, TILE = BQ * HS, ROWS = Tile::ROWS;
    bf16 *sk = dynamic_smem<bf16>(), *sv = sk + BK * HS, *sq = sv + BK * HS, *sd = sq + 2 * TILE;
    float* rows = (float*)(sd + 2 * TILE);
    const int bg = c.g0 + blockIdx.y, j0 = c.j0 + blockIdx.x * BK;
    const int b = bg / s.KV, W = attn_row(s), G = s.NH / s.KV;
    const int row0 = threadIdx.x / 32 * 16 * MT;
    const bf16 *k = head_k(qkv, s, b, bg % s.KV), *v = k + s.KV * HS;
    const LaneChunks<HS> by_column = lanes_by_column<HS>(), by_row = lanes_by_row<HS>();
    // The sequence's first row and first head. They are wanted once a tile and must not take
    // registers from the products.
    SMEM(int[2], sequence);
    if (threadIdx.x == 0) {
        sequence[0] = b * s.T;
        sequence[1] = b * s.NH;
    }
    __syncthreads();
    // bh: the query head, counted through all sequences
    auto load = [&](int buf, int bh, int t0) {
        const volatile int* begin = sequence;
        const int row = begin[0], h = bh - begin[1], end = row + s.T;
        const unsigned thread = again(threadIdx.x);
        tile_load<HS, BQ>(sq + buf * TILE, qkv + h * HS, W, row + t0, end, thread);
        tile_load<HS, BQ>(sd + buf * TILE, dout + h * HS, s.NH * HS, row + t0, end, thread);
        const float* from = r.row + ((long)bh * r.TP + t0) * 2;
        cp_async_float(rows + buf * ROWS + threadIdx.x, from + threadIdx.x);
    };
    tile_load<HS, BK>(sk, k, W, j0, s.T, again(threadIdx.x));
    tile_load<HS, BK>(sv, v, W, j0, s.T, again(threadIdx.x));
    cp_async_commit();
    const int first = next_queries(s, j0, BK, 0, BQ);
    int bh = bg * G, t0 = first;
    if (t0 < s.T) { load(0, bh, t0); }
    cp_async_commit();
    cp_async_wait<1>();
    __syncthreads();
    LeftRows<HS, MT, keep_keys<A, Pe, HS>> keys(sk + row0 * HS, by_column);
    LeftRows<HS, MT, Tile::KEEP_V> values(sv + row0 * HS, by_column);
    keys.hold();
    values.hold();
    Sums<MT, HS> dv = {};
    for (int buf = 0, heads = G; heads && first < s.T; buf ^= 1) {
        const unsigned thread = again(threadIdx.x);
        const int lane = thread % 32, t2 = lane % 4 * 2;
        const int j = j0 + thread / 32 * 16 * MT, own = j + lane / 4;
        int next = next_queries(s, j0, BK, t0 + BQ, BQ), next_bh = bh;
        if (next >= s.T) {
            next = first;
            next_bh++;
            heads--;
        }
        if (heads) { load(buf ^ 1, next_bh, next); }
        cp_async_commit();
        cp_async_wait<1>();
        __syncthreads(); // the tile in use has arrived for all
        Sums<MT, BQ> w, ds;
        product_rows<HS, MT, BQ>(w, keys, sq + buf * TILE, by_row);
        product_rows<HS, MT, BQ>(ds, values, sd + buf * TILE, by_row);
        const TileScore<A, Pe> score(bh % s.NH, s);
        const float* own_rows = rows + buf * ROWS + t2 * 2;
        if (tile_full(s, t0, j0, BQ, BK)) {
            tile_weights_ds<true, A, Pe, MT, BQ>(w, ds, score, own_rows, t0 + t2, own, s);
        } else {
            tile_weights_ds<false, A, Pe, MT, BQ>(w, ds, score, own_rows, t0 + t2, own, s);
        }
        ds_store<MT, BQ>((uint32_t*)c.cell(bh - c.h0, t0, j) + lane, c.width(), ds);
        product_weights<HS, MT, BQ>(dv, w, sd + buf * TILE, by_column);
        __syncthreads();
        t0 = next;
        bh = next_bh;
    }
    cp_async_wait<0>(); // keys that no query sees: nothing has been waited for
    const int g = (c.g0 + blockIdx.y) % s.KV, row = *(volatile int*)sequence;
    bf16* dx = dqkv + (long)row * W + (s.NH + s.KV + g) * HS;
    #pragma unroll
    for (int i = 0; i < MT; i++) {
        rows_store<HS>(OutRows{ dx, W, j0, s.T }, sv, row0 + 16 * i, dv[i], 1.0f, 1.0f);
    }
}

// ----------------------------------------------------------------------------
// The second kernel: dq and dk. A block's rows are queries, and it walks over the keys that they
// see, or keys, and it walks over the queries, of all heads that share the key, that see them.
// Those of a head run at about the same time, so that part of what both read of ds is still in L2
// for the second.
enum Side { QUERIES, KEYS };
template <int HS> struct DqkTile {
    enum {
        MT = HS > 128 ? 1 : 2,
        ROWS = 64 * MT,
        BX = 64,           // of the others at a time
        // bytes: two tiles each of ds and of the others
        SMEM = (2 * ROWS * BX + 2 * BX * HS) * 2
    };
};

// Rows r.. and others at.. as queries and keys.
template <Side SIDE> struct Walk;
template <> struct Walk<QUERIES> {
    static DEVICE int next(const AttnShape& s, int r, int rows, int at, int end, int others) {
        return next_keys(s, r, rows, at, end, others);
    }
    static DEVICE bool full(const AttnShape& s, int r, int rows, int at, int others) {
        return tile_full(s, r, at, rows, others);
    }
    static DEVICE bool empty(const AttnShape& s, int r, int rows, int at, int others) {
        return tile_empty(s, r, at, rows, others);
    }
    static DEVICE const bf16* cell(const DsChunk& c, int head, int r, int at) {
        return c.cell(head, r, at);
    }
    static DEVICE int cells_apart(int own, int other, int width) { return own * width + other; }
};
template <> struct Walk<KEYS> {
    static DEVICE int next(const AttnShape& s, int r, int rows, int at, int, int others) {
        return next_queries(s, r, rows, at, others);
    }
    static DEVICE bool full(const AttnShape& s, int r, int rows, int at, int others) {
        return tile_full(s, at, r, others, rows);
    }
    static DEVICE bool empty(const AttnShape& s, int r, int rows, int at, int others) {
        return tile_empty(s, at, r, others, rows);
    }
    static DEVICE const bf16* cell(const DsChunk& c, int head, int r, int at) {
        return c.cell(head, at, r);
    }
    static DEVICE int cells_apart(int own, int other, int width) { return other * width + own; }
};

// What a warp takes of ds at a time: the cells of its rows, from r on, and of BX others. For dq
// they pass through shared memory, where ldmatrix transposes them. For dk they are as mma wants
// them and go from memory to registers, where there are enough: each is replaced by that of the
// next tile as soon as it has been used.
template <int HS, Side SIDE> struct DsCells {
    enum { MT = DqkTile<HS>::MT, N = MT * DqkTile<HS>::BX / CELL_SIDE };
    enum { IN_REGISTERS = SIDE == KEYS && HS != 128 };
    const DsChunk& c;
    int r, lane;
    bf16* shared;
    const bf16* first;
    uint32_t stored;       // bit i: cell i of the tile has been stored: it is not all masked
    uint32_t kept[IN_REGISTERS ? N : 1][4];

    DEVICE DsCells(const DsChunk& c, int r, bf16* shared)
        : c(c), r(r), lane(threadIdx.x % 32), shared(shared), stored(0) {}

    // Points to the tile of a head of the chunk and others from `at` on. full: nothing of it is
    // masked.
    DEVICE void point(const AttnShape& s, int head, int at, bool full) {
        first = Walk<SIDE>::cell(c, head, r, at);
        stored = ~0u;
        if (full) { return; }
        #pragma unroll
        for (int i = 0; i < N; i++) {
            const int own = r + CELL_SIDE * (i % MT), other = at + CELL_SIDE * (i / MT);
            const bool outside = max(own, other) >= s.T;
            if (outside | Walk<SIDE>::empty(s, own, CELL_SIDE, other, CELL_SIDE)) {
                stored &= ~(1u << i);
            }
        }
    }

    DEVICE bool is_stored(int i) const { return stored >> i & 1; }

    // In place of what was not stored, the chunk's first cell, which always was, may be read.
    DEVICE const bf16* cell(int i) const {
        const int W = c.width();
        if (!is_stored(i)) { return c.ds; }
        return first + Walk<SIDE>::cells_apart(i % MT, i / MT, W) * CELL;
    }

    DEVICE void load(int buf) {
        #pragma unroll
        for (int i = 0; !IN_REGISTERS && i < N; i++) {
            bf16* to = shared + (buf * 4 * N + i) * CELL;
            cp_async(to + lane * CHUNK, cell(i) + lane * CHUNK, is_stored(i));
        }
    }

    DEVICE void keep(int i) {
        if (!IN_REGISTERS) { return; }
        const uint32_t* from = (const uint32_t*)cell(i) + lane;
        #pragma unroll
        for (int m = 0; m < 4; m++) {
            const uint32_t pair = from[m * 32];
            kept[i][m] = is_stored(i) ? pair : 0;
        }
    }

    // Gives cell i of the tile in use as the left side of a product. To transpose a cell is to
    // transpose its matrices and to exchange [1] and [2].
    DEVICE void piece(uint32_t (&a)[4], int buf, int i) const {
        const bf16* cell = shared + (buf * 4 * N + i) * CELL;
        const int exchanged = lane / 8 % 2 * 2 + lane / 16;
        const int at = exchanged * CELL_MATRIX + lane % 8 * 8;
        if constexpr (SIDE == QUERIES) {
            ldmatrix_trans(a, cell + at);
        } else if constexpr (!IN_REGISTERS) {
            ldmatrix(a, cell + lane * CHUNK);
        }
        #pragma unroll
        for (int m = 0; IN_REGISTERS && m < 4; m++) { a[m] = kept[i][m]; }
    }
};

// What a block of the second kernel sums up.
struct DqkRows {
    int b;                 // sequence
    int h, h_end;          // its query heads
    int r0;                // its first row
    int begin, end;        // the others
    int column;            // head of dqkv that its sums belong to
    int others;            // head of qkv that a row of queries is multiplied with
};

template <Side SIDE, int ROWS>
DEVICE DqkRows dqk_rows_at(int head, int tile, const DsChunk& c, const AttnShape& s) {
    const int G = s.NH / s.KV;
    if constexpr (SIDE == QUERIES) {
        const int bg = c.g0 + head / G, g = bg % s.KV, h = g * G + head % G, r0 = tile * ROWS;
        const int end = min(min(s.T, c.j1), max(r0 + ROWS, s.prefix));
        return { bg / s.KV, h, h + 1, r0, c.j0, end, h, s.NH + g };
    } else {
        const int bg = c.g0 + head, g = bg % s.KV;
        return { bg / s.KV, g * G, g * G + G, c.j0 + tile * ROWS, 0, s.T, s.NH + g, 0 };
    }
}

// What the second kernel reads beside ds.
struct DqkInputs {
    const bf16* qkv;
    const bf16* kstar;     // the extra column's key, or NULL,
    const float* ds_star;  // and its ds
    const acc* turns;      // rope's table, or NULL
    AttnShape s;
};

// Begins the sums of dq: with the extra column's part, ds* k*, or, in a later chunk, with what the
// chunks before have stored in `before`. row: of the head's first query in ds_star.
template <int HS, int MT>
DEVICE void dq_start(Sums<MT, HS>& d, const DqkInputs& in, int g, long row, const bf16* before,
                     int own, int t2) {
    const AttnShape& s = in.s;
    const int W = attn_row(s);
    #pragma unroll
    for (int i = 0; i < 2 * MT; i++) {
        const int t = min(own + 8 * i, s.T - 1);
        // before this loop it would make the main loop a tenth longer
        const bf16* ks = attn_star(in.kstar, s, g);
        const float star = ks ? in.ds_star[row + t] : 0.0f;
        #pragma unroll
        for (int n = 0; n < HS / 8; n++) {
            for (int e = 0; e < 2; e++) {
                const int column = 8 * n + t2 + e;
                float& y = d[i / 2][n][i % 2 * 2 + e];
                y = ks ? star * (float)ks[column] : 0.0f;
                if (before) { y = before[(long)t * W + column]; }
            }
        }
    }
}

// Sums up one tile of rows. head: query head of the chunk, or key head.
template <int HS, Side SIDE>
DEVICE void dqk_rows(int head, int tile, bf16* dqkv, const DsChunk& c, const DqkInputs& in) {
    typedef DqkTile<HS> Tile;
    typedef DsCells<HS, SIDE> Cells;
    constexpr int MT = Tile::MT, ROWS = Tile::ROWS, BX = Tile::BX, N = Cells::N;
    const AttnShape& s = in.s;
    bf16 *sx = dynamic_smem<bf16>(), *sc = sx + 2 * BX * HS;
    const DqkRows x = dqk_rows_at<SIDE, ROWS>(head, tile, c, s);
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, t2 = lane % 4 * 2, W = attn_row(s);
    const int row0 = warp * 16 * MT, own = x.r0 + row0 + lane / 4;
    const bf16* sequence = in.qkv + (long)x.b * s.T * W;
    bf16* out = dqkv + (long)x.b * s.T * W + x.column * HS;
    const LaneChunks<HS> by_column = lanes_by_column<HS>();
    Cells cells(c, x.r0 + row0, sc + warp * N * CELL);

    auto next_tile = [&](int at) { return Walk<SIDE>::next(s, x.r0, ROWS, at, x.end, BX); };
    auto load = [&](int buf, int h, int at) {
        const int other = SIDE == QUERIES ? x.others : h;
        tile_load<HS, BX>(sx + buf * BX * HS, sequence + other * HS, W, at, s.T,
                          again(threadIdx.x));
        cells.point(s, x.b * s.NH + h - c.h0, at, Walk<SIDE>::full(s, x.r0, ROWS, at, BX));
        cells.load(buf);
    };
    int h = x.h;
    const int first = next_tile(x.begin);
    int at = first;
    if (at < x.end) { load(0, h, at); }
    cp_async_commit();
    #pragma unroll
    for (int i = 0; i < N; i++) { cells.keep(i); }
    Sums<MT, HS> d = {};
    if constexpr (SIDE == QUERIES) {
        const bf16* before = c.j0 ? out : NULL;
        dq_start<HS, MT>(d, in, x.others - s.NH, row_at(s, x.b, h, 0), before, own, t2);
    }
    for (int buf = 0; h < x.h_end && first < x.end; buf ^= 1) {
        int next = next_tile(at + BX), next_h = h;
        if (next >= x.end) {
            next = first;
            next_h++;
        }
        if (next_h < x.h_end) {
            load(buf ^ 1, next_h, next);
        } else {
            cells.stored = 0;
        }
        cp_async_commit();
        cp_async_wait<1>();
        __syncthreads();
        #pragma unroll
        for (int k = 0; k < BX / 16; k++) {
            Lefts<MT> left;
            #pragma unroll
            for (int m = 0; m < MT; m++) { cells.piece(left[m], buf, k * MT + m); }
            product_step<HS, MT>(d, left, sx + buf * BX * HS, 16 * k, by_column);
            #pragma unroll
            for (int m = 0; m < MT; m++) { cells.keep(k * MT + m); }
        }
        __syncthreads();
        at = next;
        h = next_h;
    }
    cp_async_wait<0>();
    const bool last = SIDE == KEYS || c.j1 >= s.T;      // of the chunks that add to these rows
    #pragma unroll
    for (int i = 0; i < MT; i++) {
        if (last) { rows_scale<HS>(d[i], s.scale); }
        if (last && in.turns) { rows_turn<HS>(d[i], in.turns, own + 16 * i, t2, s.T); }
        rows_store<HS>(OutRows{ out, W, x.r0, s.T }, sx, row0 + 16 * i, d[i], 1.0f, 1.0f);
    }
}

// Sums up a tile of rows in each block: (key tiles and G times query tiles, key heads). Of either,
// those with most to do come first.
template <int HS>
__global__ void __launch_bounds__(MMA_BLOCK, 2)
    attention_dqk_mma_kernel(bf16* dqkv, DsChunk c, DqkInputs in) {
    const AttnShape& s = in.s;
    constexpr int ROWS = DqkTile<HS>::ROWS;
    const int keys = CEIL_DIV(c.j1 - c.j0, ROWS), queries = CEIL_DIV(s.T, ROWS);
    const int g = blockIdx.y, tile = blockIdx.x, i = tile - keys;
    if (i < 0) {
        dqk_rows<HS, KEYS>(g, tile, dqkv, c, in);
    } else {
        const int head = g * (s.NH / s.KV) + i / queries, last = queries - 1;
        dqk_rows<HS, QUERIES>(head, last - i % queries, dqkv, c, in);
    }
}

// ----------------------------------------------------------------------------
// Launches both kernels, chunk by chunk. ds: memory of ds_bytes. turns: rope's table, or NULL.
template <class A, class Bi, class Pe, int HS>
void attention_dqkv_mma(bf16* dqkv, const bf16* dout, RowStats r, const AttnInputs& in,
                        const acc* turns, bf16* ds) {
    typedef DvTile<HS, many_registers<A, Pe>> Keys;
    typedef DqkTile<HS> Rows;
    static_assert((int)Keys::SMEM <= SMEM_MOST && (int)Rows::SMEM <= SMEM_MOST, "as above");
    const AttnShape& s = in.s;
    const bf16* qkv = (const bf16*)in.qkv;
    const bf16* ks = Bi::column == KEY_COLUMN ? (const bf16*)in.kstar : NULL;
    const DqkInputs rows = { qkv, ks, ks ? r.ds_star : NULL, turns, s };
    const int query_tiles = s.NH / s.KV * CEIL_DIV(s.T, Rows::ROWS);
    for (int g0 = 0, count; g0 < s.B * s.KV; g0 += count) {
        count = ds_chunk(s, g0, 0).count;
        for (int j0 = 0, j1; j0 < s.T; j0 = j1) {
            DsChunk c = ds_chunk(s, g0, j0);
            c.ds = ds;
            j1 = c.j1;
            const int keys = j1 - j0, tiles = CEIL_DIV(keys, Rows::ROWS) + query_tiles;
            LAUNCH((attention_dv_mma_kernel<A, Pe, HS>), dim3(CEIL_DIV(keys, Keys::BK), count),
                   dim3(MMA_BLOCK), Keys::SMEM, dqkv, c, dout, r, qkv, s);
            LAUNCH(attention_dqk_mma_kernel<HS>, dim3(tiles, count), dim3(MMA_BLOCK), Rows::SMEM,
                   dqkv, c, rows);
        }
    }
}
} // namespace cuda
#endif // CUDA_ATTENTION_BACKWARD_CUH
