/*
hopper/backward.cuh -- attention's backward pass on Hopper's tensor cores (wgmma.cuh): the five
products of attention_backward.cuh in two kernels, but dk is made where dv is.

    dk, dv kernel, a block for 128 keys               dq kernel (hopper/dq.cuh), for 128 queries
    for each tile of queries that see them:           for each tile of keys that they see:
        S = K Q^T, dA = V dO^T                            dq += ds K
        A, ds from S, dA and row                              ^
        dv += A dO, dk += ds Q                                |
        ds --------> cells, bf16, in memory ------------------+

Keys are the rows of a warpgroup's products, so A and ds go from the registers of the first two
products into those of the other two. These begin a tile late: tensor cores work on them while the
weights of the next tile are made.

    tensor cores   S0 dA0  .     | S1 dA1  dv dk of 0 | S2 dA2  dv dk of 1 | dv dk of 2
    the others      .     A0 ds0 |   .       A1 ds1   |   .       A2 ds2   |
*/
#ifndef CUDA_HOPPER_BACKWARD_CUH
#define CUDA_HOPPER_BACKWARD_CUH
#include "../attention_backward.cuh"
#include "wgmma.cuh"

namespace cuda {
// HEAVY: the mathematics of a row takes many registers. Both sums take HS of them; what is left
// holds two tiles of scores in fp32 and two of weights.
template <int HS, bool HEAVY> struct HopperDkvTile {
    enum {
        GROUPS = 2,
        BK = GROUPS * GROUP_ROWS,
        BQ = HS > 96 || (HS > 64 && HEAVY) ? 32 : 64,
        STAGES = 3,                      // of Q and dO: in use, a tile late, arriving
        ROWS = 2 * ROW_PAD,              // numbers of a tile's rows, of which 2 BQ are used
        SMEM = (2 * BK + 2 * STAGES * BQ) * HS * 2 + STAGES * ROWS * 4 + 1024
    };
};

template <class A, class Pe>
constexpr bool heavy_row = A::capped || (Pe::score_bias && (A::exp_family || !A::is_signed));

// Stores a tile of ds (64 keys, BQ queries), rounded, as cells whose rows are queries: what a warp
// holds of A in dq's product. `cells` is the lane's pair in the first of them.
template <int BQ>
DEVICE void ds_store_turned(uint32_t* cells, unsigned width, const uint32_t (&d)[BQ / 16][4]) {
    UNROLL(n, BQ / CELL_SIDE) {
        uint32_t* cell = cells + n * width * (CELL / 2);
        cell[0 * 32] = movmatrix(d[n][0]);
        cell[1 * 32] = movmatrix(d[n][2]);
        cell[2 * 32] = movmatrix(d[n][1]);
        cell[3 * 32] = movmatrix(d[n][3]);
    }
}

// What a thread of a block knows and holds.
template <class A, class Pe, int HS> struct HopperDkv {
    typedef HopperDkvTile<HS, heavy_row<A, Pe>> Tile;
    enum { BQ = Tile::BQ, BK = Tile::BK, ROWS = Tile::ROWS, THREADS = Tile::GROUPS * GROUP };
    static constexpr uint64_t TILE = BQ * HS * 2 / 16;   // of an address in a description
    const DsChunk& c;
    const RowStats& r;
    const AttnShape& s;
    const bf16 *qkv, *dout;
    int b, W;                            // sequence; numbers in a row of qkv
    int j0, first;                       // the first key, and the first query that sees one
    bf16 *sk, *sv, *sq, *sd;             // tiles; of Q and dO one for each stage
    float* rows;
    uint64_t keys, values, queries, douts;       // descriptions of the tiles
    Sums<1, HS> dv, dk;
    uint32_t p[BQ / 16][4], d[BQ / 16][4];       // A and ds of the tile before
    uint32_t* cells;                     // where that ds goes
    int bh, t0, heads;                   // the tile's head and first query; heads still to do
    int stage, before;                   // of this tile, and of the one before

    DEVICE HopperDkv(const DsChunk& c, const RowStats& r, const AttnShape& s, const bf16* qkv,
                     const bf16* dout, int bg, int j0)
        : c(c), r(r), s(s), qkv(qkv), dout(dout), b(bg / s.KV), W(attn_row(s)), j0(j0), dv{}, dk{},
          stage(0), before(0) {
        const int group = __shfl_sync(~0u, threadIdx.x / GROUP, 0);
        sk = panels_begin();
        sv = sk + BK * HS;
        sq = sv + BK * HS;
        sd = sq + Tile::STAGES * BQ * HS;
        rows = (float*)(sd + Tile::STAGES * BQ * HS);
        keys = Panels<HS, BK>::describe(sk, group * GROUP_ROWS);
        values = Panels<HS, BK>::describe(sv, group * GROUP_ROWS);
        queries = Panels<HS, BQ>::describe(sq);
        douts = Panels<HS, BQ>::describe(sd);
        first = next_queries(s, j0, BK, 0, BQ);
        bh = bg * group_size(s);
        t0 = first;
        heads = first < s.T ? group_size(s) : 0;
        hold(dv[0]);
        hold(dk[0]);
    }

    DEVICE void load(int to, int head, int t) const {
        const unsigned thread = opaque(threadIdx.x);
        const int row = b * s.T;
        const int column = (head - b * s.NH) * HS;
        Panels<HS, BQ>::load(sq + to * BQ * HS, qkv + column, W, row + t, row + s.T,
                              THREADS, thread);
        Panels<HS, BQ>::load(sd + to * BQ * HS, dout + column, s.NH * HS, row + t,
                              row + s.T, THREADS, thread);
        const float* from = r.row + ((long)head * r.TP + t) * 2;
        if (thread < ROWS) { cp_async_float(rows + to * ROWS + thread, from + thread); }
    }

    // Adds the tile before to the sums, and makes A and ds of this one. FIRST: there is none
    // before. (A branch around wgmma would cost a wait.)
    template <bool FIRST> DEVICE void tile() {
        int next = next_queries(s, j0, BK, t0 + BQ, BQ);
        int next_bh = bh;
        if (next >= s.T) {
            next = first;
            next_bh++;
            heads--;
        }
        cp_async_wait<0>();
        fence_async();
        __syncthreads(); // the tile has arrived, and all have left the one before the last
        Sums<1, BQ> w, ds;
        wgmma_fence();
        begin_rows<HS, BK, BQ>(w, keys, queries + stage * TILE);
        begin_rows<HS, BK, BQ>(ds, values, douts + stage * TILE);
        wgmma_commit();
        if constexpr (!FIRST) { begin_sums(); }
        const int after = stage == Tile::STAGES - 1 ? 0 : stage + 1;
        if (heads) { load(after, next_bh, next); }
        cp_async_commit();
        wgmma_wait<FIRST ? 0 : 1>(); // for both dot products
        hold(w[0]);
        hold(ds[0]);
        make_weights<FIRST>(w, ds);
        if constexpr (!FIRST) { end_sums(); }
        pack_all<BQ>(p, w);
        pack_all<BQ>(d, ds);
        before = stage;
        stage = after;
        t0 = next;
        bh = next_bh;
    }

    template <bool FIRST> DEVICE void make_weights(Sums<1, BQ>& w, Sums<1, BQ>& ds) {
        const unsigned thread = opaque(threadIdx.x);
        const int lane = thread % 32;
        const int t2 = lane % 4 * 2;
        const int j = j0 + thread / 32 * 16;
        const int lane_row = j + lane / 4;
        const TileScore<A, Pe> score(bh % s.NH, s);
        const float* own_rows = rows + stage * ROWS + t2 * 2;
        if (!FIRST && tile_full(s, t0, j0, BQ, BK)) {
            tile_weights_ds<true, A, Pe, 1, BQ>(w, ds, score, own_rows, t0 + t2, lane_row, s);
        } else {
            tile_weights_ds<false, A, Pe, 1, BQ>(w, ds, score, own_rows, t0 + t2, lane_row, s);
        }
        cells = (uint32_t*)c.cell(bh - c.h0, t0, j) + lane;
    }

    // Stores ds of the tile before, and begins to add that tile to dv and dk. In this order: what a
    // product reads from registers may not be read beside it.
    DEVICE void begin_sums() {
        ds_store_turned<BQ>(cells, c.width(), d);
        wgmma_fence();
        begin_columns<HS, BQ>(dv, p, douts + before * TILE);
        begin_columns<HS, BQ>(dk, d, queries + before * TILE);
        wgmma_commit();
    }

    DEVICE void end_sums() {
        wgmma_wait<0>();
        hold(dv[0]);
        hold(dk[0]);
        hold(p);
        hold(d);
    }

    DEVICE void all_tiles() {
        const bf16* k = head_k(qkv, s, b, bh / group_size(s) % s.KV);
        Panels<HS, BK>::load(sk, k, W, j0, s.T, THREADS, opaque(threadIdx.x));
        Panels<HS, BK>::load(sv, k + s.KV * HS, W, j0, s.T, THREADS, opaque(threadIdx.x));
        if (heads) { load(0, bh, t0); }
        cp_async_commit();
        if (heads) {
            tile<true>();
            while (heads) { tile<false>(); }
            begin_sums();
            end_sums();
        }
        cp_async_wait<0>();
        __syncthreads(); // K and V are no longer read: their places take what leaves
    }
};

template <class A, class Pe, int HS>
__global__ void __launch_bounds__((HopperDkv<A, Pe, HS>::THREADS), 1)
    attention_dkv_wgmma_kernel(bf16* dqkv, DsChunk c, const bf16* dout, RowStats r, const bf16* qkv,
                               const acc* rope_table, AttnShape s) {
#ifdef WITH_WGMMA
    typedef HopperDkv<A, Pe, HS> Block;
    const HeadTile place = head_tile();
    const int bg = c.g0 + place.head;
    const int j0 = c.j0 + place.tile * Block::BK;
    Block block(c, r, s, qkv, dout, bg, j0);
    block.all_tiles();
    const int W = attn_row(s);
    const int row0 = warp_id() * 16;
    bf16* to = dqkv + (long)(bg / s.KV) * s.T * W;
    const OutRows out_v = { to + value_head(s, bg % s.KV) * HS, W, j0, s.T };
    const OutRows out_k = { to + key_head(s, bg % s.KV) * HS, W, j0, s.T };
    rows_store<HS>(out_v, block.sv, row0, block.dv[0], 1.0f, 1.0f);
    rows_scale<HS>(block.dk[0], s.scale);
    if (rope_table) { rows_turn<HS>(block.dk[0], rope_table, j0 + row0 + lane_group(), s.T); }
    rows_store<HS>(out_k, block.sk, row0, block.dk[0], 1.0f, 1.0f);
#endif
}

// Launches the kernel of dk and dv for a chunk.
template <class A, class Pe, int HS>
void attention_dkv_wgmma(bf16* dqkv, const DsChunk& c, const bf16* dout, RowStats r,
                         const DqkInputs& in) {
    typedef HopperDkv<A, Pe, HS> Block;
    const int tiles = CEIL_DIV(c.j1 - c.j0, Block::BK);
    LAUNCH((attention_dkv_wgmma_kernel<A, Pe, HS>), head_tile_grid(c.count, tiles, 1),
           dim3(Block::THREADS), Block::Tile::SMEM, dqkv, c, dout, r, in.qkv, in.rope_table, in.s);
}
} // namespace cuda
#endif // CUDA_HOPPER_BACKWARD_CUH
