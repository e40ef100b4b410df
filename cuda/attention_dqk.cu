/*
attention_dqk.cu -- the second kernel of attention's backward pass: dq and dk, from the ds that the
first has stored (attention_cells.cuh). No variant changes it, so it is compiled once for all of
them, with the program.
*/
#include "attention_cells.cuh"
#ifdef HOPPER
#include "hopper/dq.cuh"
#endif

namespace cuda {
// Two numbers, one of queries and one of keys: where they begin, or how many there are.
struct QueryKey { int query, key; };

// Returns what is known of a block's rows and of the others as what is known of queries and keys.
template <Side SIDE> DEVICE QueryKey query_key(int row, int other) {
    if (SIDE == QUERIES) { return { row, other }; }
    return { other, row };
}

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
        : c(c), r(r), lane(lane_id()), shared(shared), stored(0) {}

    // Points to the tile of a head of the chunk and others from `at` on. full: nothing of it is
    // masked.
    DEVICE void point(const AttnShape& s, int head, int at, bool full) {
        const QueryKey from = query_key<SIDE>(r, at);
        first = c.cell(head, from.query, from.key);
        stored = ~0u;
        if (full) { return; }
        UNROLL(i, N) {
            const int row = r + CELL_SIDE * (i % MT);
            const int other = at + CELL_SIDE * (i / MT);
            const bool outside = max(row, other) >= s.T;
            const QueryKey cell = query_key<SIDE>(row, other);
            const bool empty = tile_empty(s, cell.query, cell.key, CELL_SIDE, CELL_SIDE);
            if (outside | empty) { stored &= ~(1u << i); }
        }
    }

    DEVICE bool is_stored(int i) const { return stored >> i & 1; }

    // What was not stored is not read, so any address will do: that of the chunk's first cell.
    DEVICE const bf16* cell(int i) const {
        if (!is_stored(i)) { return c.ds; }
        const QueryKey place = query_key<SIDE>(i % MT, i / MT);
        const int width = c.width();
        return first + (place.query * width + place.key) * CELL;
    }

    // Returns where cell i stands in shared memory, one buffer for the four warps after the other.
    DEVICE bf16* buffer(int buf, int i) const { return shared + (buf * 4 * N + i) * CELL; }

    DEVICE void load(int buf) {
        if constexpr (!IN_REGISTERS) {
            UNROLL(i, N) {
                bf16* to = buffer(buf, i) + lane * CHUNK;
                cp_async(to, cell(i) + lane * CHUNK, is_stored(i));
            }
        }
    }

    DEVICE void keep(int i) {
        if constexpr (IN_REGISTERS) {
            const uint32_t* from = (const uint32_t*)cell(i) + lane;
            UNROLL(m, 4) {
                const uint32_t pair = from[m * 32];
                kept[i][m] = is_stored(i) ? pair : 0;
            }
        }
    }

    // Gives cell i of the tile in use as the left side of a product. To transpose a cell is to
    // transpose its matrices and to exchange [1] and [2].
    DEVICE void piece(uint32_t (&a)[4], int buf, int i) const {
        const int exchanged = lane / 8 % 2 * 2 + lane / 16;
        const int at = exchanged * CELL_MATRIX + lane % 8 * 8;
        if constexpr (SIDE == QUERIES) {
            ldmatrix_trans(a, buffer(buf, i) + at);
        } else if constexpr (!IN_REGISTERS) {
            ldmatrix(a, buffer(buf, i) + lane * CHUNK);
        } else {
            UNROLL(m, 4) { a[m] = kept[i][m]; }
        }
    }
};

// Sums up one tile of rows. head: query head of the chunk, or key head.
template <int HS, Side SIDE>
DEVICE void dqk_rows(int head, int tile, bf16* dqkv, const DsChunk& c, const DqkInputs& in) {
    typedef DqkTile<HS> Tile;
    typedef DsCells<HS, SIDE> Cells;
    constexpr int MT = Tile::MT;
    constexpr int ROWS = Tile::ROWS;
    constexpr int BX = Tile::BX;
    constexpr int TILE = BX * HS;
    constexpr int N = Cells::N;
    const AttnShape& s = in.s;
    bf16* sx = dynamic_smem<bf16>();     // two tiles
    bf16* sc = sx + 2 * TILE;
    const DqkRows x = dqk_rows_at<SIDE, ROWS>(head, tile, c, s);
    const int W = attn_row(s);
    const int row0 = warp_id() * 16 * MT;
    const int lane_row = x.r0 + row0 + lane_group();
    const bf16* sequence = in.qkv + (long)x.b * s.T * W;
    bf16* out = dqkv + (long)x.b * s.T * W + x.column * HS;
    const LaneChunks<HS> by_column = LaneChunks<HS>::by_column();
    Cells cells(c, x.r0 + row0, sc + warp_id() * N * CELL);

    // the first others from `at` on that are not all masked, or the end
    auto next_tile = [&](int at) {
        if (SIDE == QUERIES) { return next_keys(s, x.r0, ROWS, at, x.end, BX); }
        return next_queries(s, x.r0, ROWS, at, BX);
    };
    auto load = [&](int buf, int h, int at) {
        const int other = SIDE == QUERIES ? x.others : h;
        const int head_of_chunk = x.b * s.NH + h - c.h0;
        const QueryKey first = query_key<SIDE>(x.r0, at);
        const QueryKey count = query_key<SIDE>(ROWS, BX);
        const bool full = tile_full(s, first.query, first.key, count.query, count.key);
        const unsigned thread = opaque(threadIdx.x);
        tile_load<HS, BX>(sx + buf * TILE, sequence + other * HS, W, at, s.T, thread);
        cells.point(s, head_of_chunk, at, full);
        cells.load(buf);
    };
    int h = x.h;
    const int first = next_tile(x.begin);
    int at = first;
    if (at < x.end) { load(0, h, at); }
    cp_async_commit();
    UNROLL(i, N) { cells.keep(i); }
    Sums<MT, HS> d = {};
    if constexpr (SIDE == QUERIES) {
        const bf16* before = c.j0 ? out : NULL;
        dq_start<HS, MT>(d, in, x.others - s.NH, row_at(s, x.b, h, 0), before, lane_row);
    }
    for (int buf = 0; h < x.h_end && first < x.end; buf ^= 1) {
        int next = next_tile(at + BX);
        int next_h = h;
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
        UNROLL(k, BX / 16) {
            Lefts<MT> left;
            UNROLL(m, MT) { cells.piece(left[m], buf, k * MT + m); }
            product_step<HS, MT>(d, left, sx + buf * TILE, 16 * k, by_column);
            UNROLL(m, MT) { cells.keep(k * MT + m); }
        }
        __syncthreads();
        at = next;
        h = next_h;
    }
    cp_async_wait<0>(); // none is under way: sx is written to now
    const bool last = SIDE == KEYS || c.j1 >= s.T;      // of the chunks that add to these rows
    const OutRows rows = { out, W, x.r0, s.T };
    UNROLL(i, MT) {
        if (last) { rows_scale<HS>(d[i], s.scale); }
        if (last && in.rope_table) { rows_turn<HS>(d[i], in.rope_table, lane_row + 16 * i, s.T); }
        rows_store<HS>(rows, sx, row0 + 16 * i, d[i], 1.0f, 1.0f);
    }
}

// Sums up a tile of rows in each block: of the keys of a key head, or of the queries of one of its
// G query heads.
template <int HS>
__global__ void __launch_bounds__(MMA_BLOCK, 2)
    attention_dqk_mma_kernel(bf16* dqkv, DsChunk c, DqkInputs in) {
    const AttnShape& s = in.s;
    constexpr int ROWS = DqkTile<HS>::ROWS;
    const int G = group_size(s);
    const int tiles = CEIL_DIV(s.T, ROWS);
    const HeadTile place = head_tile();
    const int g = place.head / (1 + G);
    const int i = place.head % (1 + G) - 1;
    if (i >= 0) {
        dqk_rows<HS, QUERIES>(g * G + i, tiles - 1 - place.tile, dqkv, c, in);
    } else if (c.j0 + place.tile * ROWS < c.j1) { // the chunk has these keys
        dqk_rows<HS, KEYS>(g, place.tile, dqkv, c, in);
    }
}

template <int HS> void dqk_launch(bf16* dqkv, const DsChunk& c, const DqkInputs& in) {
    typedef DqkTile<HS> Tile;
    static_assert((int)Tile::SMEM <= SMEM_MOST,
                  "the tiles do not fit the shared memory of sm_86 and sm_89");
    const int tiles = CEIL_DIV(in.s.T, Tile::ROWS);
    const int heads = c.count * (1 + group_size(in.s));
    LAUNCH(attention_dqk_mma_kernel<HS>, head_tile_grid(heads, tiles), dim3(MMA_BLOCK), Tile::SMEM,
           dqkv, c, in);
}

void attention_dqk(bf16* dqkv, const DsChunk& c, const DqkInputs& in) {
    if constexpr (sizeof(real) == 2) {
        with_head_dim(in.s.HS, [&](auto HS) { dqk_launch<HS.value>(dqkv, c, in); });
    }
}

#ifdef HOPPER
void attention_dq(bf16* dqkv, const DsChunk& c, const DqkInputs& in) {
    with_head_dim(in.s.HS, [&](auto HS) {
        if constexpr (hopper_head(HS.value)) { attention_dq_wgmma<HS.value>(dqkv, c, in); }
    });
}
#endif
} // namespace cuda
