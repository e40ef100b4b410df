/*
hopper/dq.cuh -- dq on Hopper's tensor cores, from the ds that hopper/backward.cuh has stored: a
product whose left side goes from memory to registers, as wgmma wants it, one tile ahead. No variant
changes it.
*/
#ifndef CUDA_HOPPER_DQ_CUH
#define CUDA_HOPPER_DQ_CUH
#include "../attention_cells.cuh"
#include "wgmma.cuh"

namespace cuda {
template <int HS> struct HopperDqTile {
    enum {
        GROUPS = 2,
        BQ = GROUPS * GROUP_ROWS,
        BK = 64,
        STAGES = 3,                      // of K: in use, arrived, arriving
        THREADS = GROUPS * GROUP,
        BLOCKS = HS <= 96 ? 2 : 1,       // of an SM
        SMEM = STAGES * BK * HS * 2 + 1024
    };
};

// Loads the cells of the warp's 16 queries from t on and of the keys from j on; of a cell that was
// not stored, because it is all masked, zeros.
template <int N>
DEVICE void ds_load(uint32_t (&a)[N][4], const DsChunk& c, int head, int t, int j,
                    const AttnShape& s) {
    UNROLL(i, N) {
        const int at = j + CELL_SIDE * i;
        const bool stored = max(t, at) < s.T && !tile_empty(s, t, at, CELL_SIDE, CELL_SIDE);
        const uint32_t* cell = (const uint32_t*)(stored ? c.cell(head, t, at) : c.ds);
        UNROLL(m, 4) {
            const uint32_t pair = cell[m * 32 + lane_id()];
            a[i][m] = stored ? pair : 0;
        }
    }
}

// Adds ds K of the block's queries and all keys that they see. own: the warp's first query
template <int HS>
DEVICE void dq_tiles(Sums<1, HS>& d, bf16* sk, const DqkRows& x, int lane_row, const DsChunk& c,
                     const DqkInputs& in) {
    typedef HopperDqTile<HS> Tile;
    constexpr int BQ = Tile::BQ;
    constexpr int BK = Tile::BK;
    constexpr int N = BK / CELL_SIDE;
    constexpr uint64_t TILE = BK * HS * 2 / 16;          // of an address in a description
    const AttnShape& s = in.s;
    const int W = attn_row(s);
    const int head = x.b * s.NH + x.h - c.h0;
    const bf16* k = in.qkv + (long)x.b * s.T * W + x.others * HS;
    auto load = [&](int stage, int j) {
        Panels<HS, BK>::load(sk + stage * BK * HS, k, W, j, s.T, Tile::THREADS,
                             opaque(threadIdx.x));
    };
    int j = next_keys(s, x.r0, BQ, x.begin, x.end, BK);
    uint32_t a[N][4] = {};
    uint32_t ahead[N][4] = {};
    if (j < x.end) {
        load(0, j);
        ds_load<N>(ahead, c, head, lane_row, j, s);
    }
    cp_async_commit();
    hold(d[0]);
    for (int stage = 0; j < x.end;) {
        const int next = next_keys(s, x.r0, BQ, j + BK, x.end, BK);
        const int after = stage == Tile::STAGES - 1 ? 0 : stage + 1;
        if (next < x.end) { load(after, next); }
        cp_async_commit();
        cp_async_wait<1>(); // all but the tile just asked for
        fence_async();
        __syncthreads();
        UNROLL(i, N) {
            UNROLL(m, 4) { a[i][m] = ahead[i][m]; }
        }
        hold(a);
        wgmma_fence();
        begin_columns<HS, BK>(d, a, Panels<HS, BK>::describe(sk) + stage * TILE);
        wgmma_commit();
        if (next < x.end) { ds_load<N>(ahead, c, head, lane_row, next, s); }
        wgmma_wait<0>();
        hold(d[0]);
        hold(a);
        stage = after;
        j = next;
    }
    cp_async_wait<0>();
}

template <int HS>
__global__ void __launch_bounds__(HopperDqTile<HS>::THREADS, HopperDqTile<HS>::BLOCKS)
    attention_dq_wgmma_kernel(bf16* dqkv, DsChunk c, DqkInputs in) {
#ifdef WITH_WGMMA
    constexpr int BQ = HopperDqTile<HS>::BQ;
    const AttnShape& s = in.s;
    const HeadTile place = head_tile();
    const int tiles = CEIL_DIV(s.T, BQ);
    const DqkRows x = dqk_rows_at<QUERIES, BQ>(place.head, tiles - 1 - place.tile, c, s);
    const int W = attn_row(s);
    const int row0 = warp_id() * 16;
    const int lane_row = x.r0 + row0 + lane_group();
    bf16* sk = panels_begin();
    bf16* out = dqkv + (long)x.b * s.T * W + x.column * HS;
    Sums<1, HS> d;
    dq_start<HS, 1>(d, in, x.others - s.NH, row_at(s, x.b, x.h, 0), c.j0 ? out : NULL, lane_row);
    dq_tiles<HS>(d, sk, x, x.r0 + row0, c, in);
    __syncthreads(); // K is no longer read: its place takes what leaves
    const bool last = c.j1 >= s.T;       // of the chunks that add to these rows
    if (last) { rows_scale<HS>(d[0], s.scale); }
    if (last && in.rope_table) { rows_turn<HS>(d[0], in.rope_table, lane_row, s.T); }
    const OutRows rows = { out, W, x.r0, s.T };
    rows_store<HS>(rows, sk, row0, d[0], 1.0f, 1.0f);
#endif
}

template <int HS> void attention_dq_wgmma(bf16* dqkv, const DsChunk& c, const DqkInputs& in) {
    typedef HopperDqTile<HS> Tile;
    const int heads = c.count * group_size(in.s);
    const int tiles = CEIL_DIV(in.s.T, Tile::BQ);
    LAUNCH(attention_dq_wgmma_kernel<HS>, head_tile_grid(heads, tiles, Tile::BLOCKS),
           dim3(Tile::THREADS), Tile::SMEM, dqkv, c, in);
}
} // namespace cuda
#endif // CUDA_HOPPER_DQ_CUH
