/*
attention_backward.cuh -- attention's backward pass on tensor cores.
*/
#ifndef CUDA_ATTENTION_BACKWARD_CUH
#define CUDA_ATTENTION_BACKWARD_CUH
#include "attention_score.cuh"
#include "attention_tiles.cuh"

namespace cuda {
// ---- backward on tensor cores: five products. The first kernel makes S = q k^T and dA = do v^T,
// adds up dv_j = sum_t A_tj do_t and stores ds; the second makes dq_t = sum_j scale ds_tj k_j and
// dk_j = sum_t scale ds_tj q_t from what is stored. ds is rounded to bf16 in any case, as a factor
// of a product. It is kept in memory for a chunk of heads, or of one head's keys, at a time.
//
// Of each query head of a chunk: cells of 16 queries by 16 keys, (queries / 16, keys / 16, 256). A
// cell is four matrices of 8 keys by 8 queries: keys 0-7 and 8-15 with queries 0-7, then with
// queries 8-15.
enum { CELL = 16 * 16, CHUNK_KEYS = 128 };               // a block takes 64 keys or 128
const size_t CHUNK_BYTES = shrunk ? 1 << 17 : 1 << 29;   // at T 2048: 64 query heads
struct DsChunk {
    bf16* ds; int g0, h0, count, j0, j1, QT; // key heads g0.. of B KV, query heads h0..; keys j0..
    HD unsigned width() const { return (unsigned)(j1 - j0) / 16; }
    // query head `head` of the chunk, queries t.., keys j..: multiples of 16, never negative
    HD bf16* cell(int head, unsigned t, unsigned j) const {
        return ds + (size_t)((head * QT + t / 16) * width() + (j - j0) / 16) * CELL;
    }
};
// the chunk that begins at key head g0 and key j0
inline DsChunk ds_chunk(const AttnShape& s, int g0, int j0) {
    const int QT = rows_padded(s.T) / 16, G = s.NH / s.KV,
              keys = CEIL_DIV(s.T, CHUNK_KEYS) * CHUNK_KEYS;
    const size_t column = (size_t)G * QT * CELL * 2 / 16; // bytes of a key, all queries of a group
    const int at_once = (int)std::min<size_t>(keys, std::max<size_t>(1, CHUNK_BYTES / column /
                                                                     CHUNK_KEYS) * CHUNK_KEYS);
    const int heads = (int)std::max<size_t>(1, CHUNK_BYTES / column / keys), all = s.B * s.KV,
              even = CEIL_DIV(all, CEIL_DIV(all, heads)); // chunks of about one size
    return DsChunk{ NULL, g0, g0 * G, std::min(even, all - g0), j0, std::min(j0 + at_once, keys),
                    QT };
}

inline size_t ds_bytes(const AttnShape& s) { // no later chunk is larger
    const DsChunk x = ds_chunk(s, 0, 0);
    return (size_t)x.count * (s.NH / s.KV) * x.QT * x.width() * CELL * sizeof(bf16);
}

// from the dot products x = q.k and y = do.v to the weight and ds, in place
template <bool FULL, class A, class Pe>
DEVICE void weight_ds(float& x, float& y, const TileScore<A, Pe>& score, float row, float delta,
                      int t, int j, const AttnShape& s) {
    const bool sees = FULL | ((t < s.T) & (j < s.T) & attn_sees(s, t, j));
    x = score(x, t, j, s);
    if (A::Z == Z_ABS) { // f = e^s - 1; one is alpha / Z
        const float one = ex2_approx(-row), e = ex2_approx(fmaf(x, score.unit, -row));
        const float d = x > 0 ? y - delta : delta;
        y = sees & (x != 0) ? e * d : 0.0f;
        x = sees ? fmaxf(e - one, 0) : 0.0f;
    } else if (A::exp_family && A::Z != Z_PNORM) {
        const float slope = A::capped ? score.slope(x, s) : 1.0f;
        x = ex2_approx(fmaf(sees ? x : -INFINITY, score.unit, -row));
        y = x * (y - delta) * slope;
    } else {
        const Fast w(A::exp_family ? ex2_approx(fmaf(x, score.unit, -row))
                                   : (A::sim(Fast(x)) * Fast(row)).v);
        const Fast alpha(attn_alpha<A, float>(s));
        y = attn_ds<A>(Fast(x), w, Fast(y), Fast(row), Fast(0), Fast(delta), Fast(s.p), alpha).v;
        x = sees ? w.v : 0.0f;
        y = sees ? y : 0.0f;
    }
}

// The first: 128 keys a block, 32 a warp, where the registers allow, so that what is read of a
// query from shared memory serves two products; with the transposed tiles S^T = k q^T and dA^T =
// v do^T. Keys and values stay in registers, KEEP and KEEP_V pieces of them, where there is room
template <class A, class Pe> constexpr bool many_registers = A::Z == Z_PNORM && Pe::score_bias;
template <int HS, bool MANY = false> struct DvTile { // MANY: a row mathematics of many registers
    enum {
        MT = HS > 96 || MANY ? 1 : 2, BK = 64 * MT, BQ = 32,
        KEEP_V = HS == 128 ? HS / 16 : 0,
        SMEM = (2 * BK + 4 * BQ) * HS * 2 + 2 * 128 * 4
    };
};
template <class A, class Pe, int HS>
__global__ void __launch_bounds__(128, 2)
    attention_dv_mma_kernel(bf16* dqkv, DsChunk c, const bf16* dout, RowStats r, const bf16* qkv,
                            AttnShape s) {
    typedef DvTile<HS, many_registers<A, Pe>> Tile;
    constexpr int MT = Tile::MT, BQ = Tile::BQ, BK = Tile::BK;
    bf16 *sk = dynamic_smem<bf16>(), *sv = sk + BK * HS, *sq = sv + BK * HS, *sd = sq + 2 * BQ * HS;
    float* rows = (float*)(sd + 2 * BQ * HS); // (2, 64, 2): BQ rows are used
    const int bg = c.g0 + blockIdx.y, j0 = c.j0 + blockIdx.x * BK;
    const int b = bg / s.KV, W = attn_row(s), G = s.NH / s.KV;
    const int row0 = threadIdx.x / 32 * 16 * MT;
    const bf16 *k = head_k(qkv, s, b, bg % s.KV), *v = k + s.KV * HS;
    const LaneChunks<HS> by_column = lanes_by_column<HS>(), by_row = lanes_by_row<HS>();
    // the sequence's first row and first head. They are wanted once a tile and must not take
    // registers from the products
    SMEM(int[2], sequence);
    if (threadIdx.x == 0) {
        sequence[0] = b * s.T;
        sequence[1] = b * s.NH;
    }
    __syncthreads();
    // bh: the query head, counted through all sequences
    auto load = [&](int buf, int bh, int t0) {
        const volatile int* begin = sequence;
        const int row = begin[0], h = bh - begin[1];
        const unsigned thread = again(threadIdx.x);
        tile_load<HS, BQ>(sq + buf * BQ * HS, qkv + h * HS, W, row + t0, row + s.T, thread);
        tile_load<HS, BQ>(sd + buf * BQ * HS, dout + h * HS, s.NH * HS, row + t0, row + s.T,
                          thread);
        cp_async_float(rows + buf * 128 + threadIdx.x,
                       r.row + ((long)bh * r.TP + t0) * 2 + threadIdx.x);
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
    constexpr bool few = TileScore<A, Pe>::plain && A::Z != Z_PNORM; // registers of a row
    constexpr int KEEP = HS == 96 && MT == 2 && !few ? 0 : HS / 16;
    LeftRows<HS, MT, KEEP> keys(sk + row0 * HS, by_column);
    LeftRows<HS, MT, Tile::KEEP_V> values(sv + row0 * HS, by_column);
    keys.hold();
    values.hold();
    float dv[MT][HS / 8][4] = {};
    for (int buf = 0, heads = G; heads && first < s.T; buf ^= 1) {
        const unsigned thread = again(threadIdx.x);
        const int lane = thread % 32, t2 = lane % 4 * 2, j = j0 + thread / 32 * 16 * MT,
                  own = j + lane / 4;
        int next = next_queries(s, j0, BK, t0 + BQ, BQ), next_bh = bh;
        if (next >= s.T) { next = first; next_bh++; heads--; }
        if (heads) { load(buf ^ 1, next_bh, next); }
        cp_async_commit();
        cp_async_wait<1>();
        __syncthreads();
        float w[MT][BQ / 8][4], ds[MT][BQ / 8][4];
        product_rows<HS, MT, BQ>(w, keys, sq + buf * BQ * HS, by_row);
        product_rows<HS, MT, BQ>(ds, values, sd + buf * BQ * HS, by_row);
        const TileScore<A, Pe> score(bh % s.NH, s);
        auto scores = [&](auto full) {
            #pragma unroll
            for (int n = 0; n < BQ / 8; n++) {
                // of two queries
                const Vec<float, 4> x = ::cuda::load<4>(rows + buf * 128 + (8 * n + t2) * 2);
                #pragma unroll
                for (int i = 0; i < 4 * MT; i++) {
                    const int m = i / 4, e = i % 4;
                    weight_ds<full.value>(w[m][n][e], ds[m][n][e], score, x.v[e % 2 * 2],
                                          x.v[e % 2 * 2 + 1], t0 + 8 * n + t2 + e % 2,
                                          own + 16 * m + e / 2 * 8, s);
                }
            }
        };
        if (tile_full(s, t0, j0, BQ, BK)) {
            scores(std::true_type());
        } else {
            scores(std::false_type());
        }
        uint32_t* cells = (uint32_t*)c.cell(bh - c.h0, t0, j) + lane;
        #pragma unroll
        for (int i = 0; i < MT * BQ / 16; i++) {
            uint32_t f[4];
            pack_left<BQ>(f, ds[i % MT], i / MT);
            #pragma unroll
            for (int m = 0; m < 4; m++) {
                cells[(i / MT * c.width() + i % MT) * (CELL / 2) + m * 32] = f[m];
            }
        }
        product_weights<HS, MT, BQ>(dv, w, sd + buf * BQ * HS, by_column);
        __syncthreads();
        t0 = next;
        bh = next_bh;
    }
    cp_async_wait<0>(); // keys that no query sees: nothing has been waited for
    const int g = (c.g0 + blockIdx.y) % s.KV;
    bf16* dx = dqkv + (long)*(volatile int*)sequence * W + (s.NH + s.KV + g) * HS;
    #pragma unroll
    for (int i = 0; i < MT; i++) {
        rows_store<HS>(dx, W, j0, s.T, sv, row0 + 16 * i, dv[i], 1.0f, 1.0f);
    }
}

// The second, for dq (rows are queries, summed over keys) and for dk (rows are keys, summed over
// the queries of all heads that share them). A block is for one or the other; those of a head run
// at about the same time, so that part of what both read of ds is still in L2 for the second
enum Side { QUERIES, KEYS };
template <int HS> struct DqkTile {
    enum {
        MT = HS > 128 ? 1 : 2, ROWS = 64 * MT, BX = 64,
        SMEM = (2 * ROWS * BX + 2 * BX * HS) * 2
    };
};

// What a warp takes of ds at a time: the cells of its rows, from r on, and of BX others. For dq
// they pass through shared memory, which transposes them. For dk they are as mma wants them and
// go from memory to registers, where there are enough: each is replaced by that of the next tile as
// soon as it has been used
template <int HS, Side SIDE> struct DsCells {
    enum { MT = DqkTile<HS>::MT, N = MT * DqkTile<HS>::BX / 16, KEPT = SIDE == KEYS && HS != 128 };
    const DsChunk& c; int r, lane; bf16* shared; const bf16* first;
    uint32_t stored, kept[KEPT ? N : 1][4];
    DEVICE DsCells(const DsChunk& c, int r, bf16* shared)
        : c(c), r(r), lane(threadIdx.x % 32), shared(shared), stored(0) {}

    // the next tile: of a head of the chunk, others from `at` on. full: nothing of it is masked.
    // What is all masked has not been stored
    DEVICE void point(const AttnShape& s, int head, int at, bool full) {
        first = SIDE == QUERIES ? c.cell(head, r, at) : c.cell(head, at, r);
        stored = ~0u;
        if (full) { return; }
        #pragma unroll
        for (int i = 0; i < N; i++) {
            const int own = r + 16 * (i % MT), other = at + 16 * (i / MT);
            const int t = SIDE == QUERIES ? own : other, j = SIDE == QUERIES ? other : own;
            if ((max(t, j) >= s.T) | tile_empty(s, t, j, 16, 16)) { stored &= ~(1u << i); }
        }
    }

    // in place of what was not stored, the chunk's first cell, which always was, may be read
    DEVICE const bf16* cell(int i) const {
        const int own = i % MT, other = i / MT, W = c.width();
        if (!(stored >> i & 1)) { return c.ds; }
        return first + (SIDE == QUERIES ? own * W + other : other * W + own) * CELL;
    }

    DEVICE void load(int buf) {
        #pragma unroll
        for (int i = 0; !KEPT && i < N; i++) {
            bf16* to = shared + (buf * 4 * N + i) * CELL;
            cp_async(to + lane * 8, cell(i) + lane * 8, stored >> i & 1);
        }
    }

    DEVICE void keep(int i) {
        if (!KEPT) { return; }
        const uint32_t* from = (const uint32_t*)cell(i) + lane;
        #pragma unroll
        for (int m = 0; m < 4; m++) {
            const uint32_t pair = from[m * 32];
            kept[i][m] = stored >> i & 1 ? pair : 0;
        }
    }

    // cell i of the tile in use as mma wants it on its left
    DEVICE void piece(uint32_t (&f)[4], int buf, int i) const {
        const int row = (lane / 8 % 2 * 2 + lane / 16) * 64 + lane % 8 * 8;
        const bf16* cell = shared + (buf * 4 * N + i) * CELL;
        if constexpr (SIDE == QUERIES) { ldmatrix_trans(f, cell + row); }
        else if constexpr (!KEPT) { ldmatrix(f, cell + lane * 8); }
        #pragma unroll
        for (int m = 0; KEPT && m < 4; m++) { f[m] = kept[i][m]; }
    }
};

// one tile of rows; head: query head of the chunk, or key head
template <int HS, Side SIDE>
DEVICE void dqk_rows(int head, int tile, bf16* dqkv, const DsChunk& c, const float* ds_star,
                     const bf16* qkv, const bf16* kstar, const acc* turns, const AttnShape& s) {
    typedef DqkTile<HS> Tile;
    constexpr int MT = Tile::MT, ROWS = Tile::ROWS, BX = Tile::BX;
    constexpr bool dq_side = SIDE == QUERIES;
    bf16 *sx = dynamic_smem<bf16>(), *sc = sx + 2 * BX * HS;
    const int r0 = (dq_side ? 0 : c.j0) + tile * ROWS, G = s.NH / s.KV, W = attn_row(s);
    const int bg = c.g0 + (dq_side ? head / G : head), b = bg / s.KV, g = bg % s.KV;
    int h = g * G + (dq_side ? head % G : 0);
    const int h_end = dq_side ? h + 1 : h + G;
    const int lane = threadIdx.x % 32, t2 = lane % 4 * 2, row0 = threadIdx.x / 32 * 16 * MT,
              own = r0 + row0 + lane / 4;
    const bf16* x = qkv + (long)b * s.T * W;
    bf16* out = dqkv + (long)b * s.T * W + (dq_side ? h : s.NH + g) * HS;
    const LaneChunks<HS> by_column = lanes_by_column<HS>();
    const int end = dq_side ? min(min(s.T, c.j1), max(r0 + ROWS, s.prefix)) : s.T;
    constexpr int N = DsCells<HS, SIDE>::N;
    DsCells<HS, SIDE> cells(c, r0 + row0, sc + threadIdx.x / 32 * N * CELL);

    auto next_tile = [&](int at) {
        return dq_side ? next_keys(s, r0, ROWS, at, end, BX) : next_queries(s, r0, ROWS, at, BX);
    };
    auto load = [&](int buf, int h, int at) {
        tile_load<HS, BX>(sx + buf * BX * HS, x + (dq_side ? s.NH + g : h) * HS, W, at, s.T,
                          again(threadIdx.x));
        const int t0 = dq_side ? r0 : at, j0 = dq_side ? at : r0;
        cells.point(s, b * s.NH + h - c.h0, at,
                    tile_full(s, t0, j0, dq_side ? ROWS : BX, dq_side ? BX : ROWS));
        cells.load(buf);
    };
    const int first = next_tile(dq_side ? c.j0 : 0);
    int at = first;
    if (at < end) { load(0, h, at); }
    cp_async_commit();
    #pragma unroll
    for (int i = 0; i < N; i++) { cells.keep(i); }
    float d[MT][HS / 8][4];
    #pragma unroll
    for (int i = 0; i < 2 * MT; i++) { // the extra column's part comes first, or the chunk before
        const int t = min(own + 8 * i, s.T - 1);
        const bf16* ks = dq_side ? attn_star(kstar, s, g) : NULL;
        const float star = dq_side && ks ? ds_star[((long)b * s.NH + h) * s.T + t] : 0.0f;
        #pragma unroll
        for (int n = 0; n < HS / 8; n++) {
            for (int e = 0; e < 2; e++) {
                float& y = d[i / 2][n][i % 2 * 2 + e];
                y = dq_side && ks ? star * (float)ks[8 * n + t2 + e] : 0.0f;
                if (dq_side && c.j0) { y = out[(long)t * W + 8 * n + t2 + e]; }
            }
        }
    }
    for (int buf = 0; h < h_end && first < end; buf ^= 1) {
        int next = next_tile(at + BX), next_h = h;
        if (next >= end) { next = first; next_h++; }
        if (next_h < h_end) { load(buf ^ 1, next_h, next); } else { cells.stored = 0; }
        cp_async_commit();
        cp_async_wait<1>();
        __syncthreads();
        #pragma unroll
        for (int k = 0; k < BX / 16; k++) {
            uint32_t a[MT][4];
            #pragma unroll
            for (int m = 0; m < MT; m++) { cells.piece(a[m], buf, k * MT + m); }
            product_step<HS, MT>(d, a, sx + buf * BX * HS, 16 * k, by_column);
            #pragma unroll
            for (int m = 0; m < MT; m++) { cells.keep(k * MT + m); }
        }
        __syncthreads();
        at = next;
        h = next_h;
    }
    cp_async_wait<0>();
    const bool last = !dq_side || c.j1 >= s.T;
    #pragma unroll
    for (int i = 0; i < MT; i++) {
        if (last) { rows_scale<HS>(d[i], s.scale); }
        if (last && turns) { rows_turn<HS>(d[i], turns, own + 16 * i, t2, s.T); }
        rows_store<HS>(out, W, r0, s.T, sx, row0 + 16 * i, d[i], 1.0f, 1.0f);
    }
}

// blocks (key tiles and G times query tiles, key heads); in either, those with most to do first
template <int HS>
__global__ void __launch_bounds__(128, 2)
    attention_dqk_mma_kernel(bf16* dqkv, DsChunk c, const float* ds_star, const bf16* qkv,
                             const bf16* kstar, const acc* turns, AttnShape s) {
    constexpr int ROWS = DqkTile<HS>::ROWS;
    const int keys = CEIL_DIV(c.j1 - c.j0, ROWS), queries = CEIL_DIV(s.T, ROWS);
    const int head = blockIdx.y, tile = blockIdx.x, i = tile - keys;
    if (i < 0) {
        dqk_rows<HS, KEYS>(head, tile, dqkv, c, ds_star, qkv, kstar, turns, s);
    } else {
        dqk_rows<HS, QUERIES>(head * (s.NH / s.KV) + i / queries, queries - 1 - i % queries, dqkv,
                              c, ds_star, qkv, kstar, turns, s);
    }
}

template <class A, class Bi, class Pe, int HS>
void attention_dqkv_mma(bf16* dqkv, const bf16* dout, RowStats r, const bf16* qkv,
                        const bf16* kstar, const acc* turns, const AttnShape& s, bf16* ds) {
    typedef DvTile<HS, many_registers<A, Pe>> Keys;
    typedef DqkTile<HS> Sums;
    static_assert((int)Keys::SMEM <= SMEM_MOST && (int)Sums::SMEM <= SMEM_MOST, "as above");
    const bf16* ks = Bi::column == KEY_COLUMN ? kstar : NULL;
    const float* ds_star = ks ? r.ds_star : NULL;
    for (int g0 = 0, count; g0 < s.B * s.KV; g0 += count) {
        count = ds_chunk(s, g0, 0).count;
        for (int j0 = 0, j1; j0 < s.T; j0 = j1) {
            DsChunk c = ds_chunk(s, g0, j0);
            c.ds = ds;
            j1 = c.j1;
            const int keys = j1 - j0, G = s.NH / s.KV;
            const int tiles = CEIL_DIV(keys, Sums::ROWS) + G * CEIL_DIV(s.T, Sums::ROWS);
            LAUNCH((attention_dv_mma_kernel<A, Pe, HS>), dim3(CEIL_DIV(keys, Keys::BK), count),
                   dim3(128), Keys::SMEM, dqkv, c, dout, r, qkv, s);
            LAUNCH(attention_dqk_mma_kernel<HS>, dim3(tiles, count), dim3(128), Sums::SMEM, dqkv, c,
                   ds_star, qkv, ks, turns, s);
        }
    }
}
} // namespace cuda
#endif // CUDA_ATTENTION_BACKWARD_CUH
