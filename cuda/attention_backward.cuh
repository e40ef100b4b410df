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
#include "attention_cells.cuh"
#include "attention_tiles.cuh"

namespace cuda {
// ----------------------------------------------------------------------------
// The first kernel: dv, and ds. The second: attention_dqk.cu.

// Turns the dot products x = q.k and y = do.v, in place, into the weight A and ds, where dA = y:
//
//     exp family    A = 2^(s - log2_Z)              ds = A (dA - delta) slope
//     softpick      e = 2^(s - log2_Z), one = 2^-log2_Z = alpha / Z
//                   A = max(e - one, 0)             ds = e (dA - delta) if s > 0, e delta if s < 0
//     the others    A = f(s) factor                 ds = f'(s) factor (dA - delta)
//     p-norm        attn_ds (attention_row.cuh)
template <bool FULL, class A, class Pe>
DEVICE void weight_ds(float& x, float& y, const TileScore<A, Pe>& score, const RowStat& row, int t,
                      int j, const AttnShape& s) {
    const bool sees = FULL | ((t < s.T) & (j < s.T) & attn_sees(s, t, j));
    x = score(x, t, j, s);
    if (A::Z == Z_ABS) {
        const float one = ex2_approx(-row.log2_Z());
        const float e = score.power(x, row.log2_Z());
        const float d = x > 0 ? y - row.delta : row.delta;
        y = select_or_zero(sees & (x != 0), e * d);
        x = select_or_zero(sees, fmaxf(e - one, 0));
    } else if (A::exp_family && A::Z != Z_PNORM) {
        const float slope = score.slope(x, s);
        x = score.power(sees ? x : -INFINITY, row.log2_Z());
        y = x * (y - row.delta) * slope;
    } else {
        // alpha / Z is 1 where every key weighs on its own: no product with it
        const Fast log2_Z_or_factor(A::Z == Z_ONE && !A::by_count ? 1.0f : row.norm);
        const Fast by_f = A::sim(Fast(x)) * log2_Z_or_factor;
        const Fast w = A::exp_family ? Fast(score.power(x, row.norm)) : by_f;
        const AttnStat<Fast> st = { log2_Z_or_factor, Fast(0.0f) };
        const Fast delta(A::Z == Z_ONE ? 0 : row.delta);
        const Fast ds = attn_ds<A>(Fast(x), w, Fast(y), st, delta, s);
        x = select_or_zero(sees, w.v);
        y = select_or_zero(sees, ds.v);
    }
}

// 128 keys a block, 32 a warp, where the registers allow, so that what is read of a query from
// shared memory serves two products. Keys and values stay in registers where there is room. HEAVY:
// the mathematics of a row takes many registers.
template <int HS, bool HEAVY = false> struct DvTile {
    enum {
        MT = HS > 96 || HEAVY ? 1 : 2,
        BK = 64 * MT,
        BQ = 32,
        KEEP_V = HS == 128 ? HS / 16 : 0,        // pieces of the values in registers
        ROWS = 2 * ROW_PAD,                      // numbers of a tile's rows, of which BQ are used
        // bytes: K, V; two tiles each of Q, dO and rows
        SMEM = (2 * BK + 4 * BQ) * HS * 2 + 2 * ROWS * 4
    };
};

// The tile of an operation, and how many pieces of the keys stay in registers. Softpick needs a few
// more elsewhere.
template <class A, class Pe, int HS> struct DvOf {
    static constexpr bool is_pnorm = A::Z == Z_PNORM;
    typedef DvTile<HS, is_pnorm && Pe::score_bias> Tile;
    static constexpr bool is_light = TileScore<A, Pe>::plain && !is_pnorm;
    static constexpr bool keys_fit = HS != 96 || Tile::MT == 1 || is_light;
    static constexpr int left_out = HS == 96 && A::Z == Z_ABS ? 2 : 0;
    static constexpr int KEEP_K = keys_fit ? HS / 16 - left_out : 0;
};

// Turns a tile of both dot products into weights and ds; the lane's first query is t, its first key
// own. rows: of the tile's queries, from the lane's first on.
template <bool FULL, class A, class Pe, int MT, int BQ>
DEVICE void tile_weights_ds(Sums<MT, BQ>& w, Sums<MT, BQ>& ds, const TileScore<A, Pe>& score,
                            const float* rows, int t, int lane_row, const AttnShape& s) {
    UNROLL(n, BQ / 8) {
        const Vec<float, 4> two = load<4>(rows + 8 * n * 2);     // of two queries
        UNROLL(r, 2 * MT) {
            UNROLL(query, 2) {
                const RowStat row = { two[query * 2], two[query * 2 + 1] };
                float& x = element(w, r, 2 * n + query);
                float& y = element(ds, r, 2 * n + query);
                weight_ds<FULL>(x, y, score, row, t + 8 * n + query, lane_row + 8 * r, s);
            }
        }
    }
}

// Stores a tile of ds as cells; `cells` is the lane's pair in the first of them.
template <int MT, int BQ>
DEVICE void ds_store(uint32_t* cells, unsigned width, const Sums<MT, BQ>& ds) {
    UNROLL(n, BQ / CELL_SIDE) {
        UNROLL(m, MT) {
            uint32_t* cell = cells + (n * width + m) * (CELL / 2);
            uint32_t pairs[4];
            pack_left<BQ>(pairs, ds[m], n);
            UNROLL(k, 4) { cell[k * 32] = pairs[k]; }
        }
    }
}

template <class A, class Pe, int HS>
__global__ void __launch_bounds__(MMA_BLOCK, 2)
    attention_dv_mma_kernel(bf16* dqkv, DsChunk c, const bf16* dout, RowStats r, const bf16* qkv,
                            AttnShape s) {
    typedef typename DvOf<A, Pe, HS>::Tile Tile;
    constexpr int MT = Tile::MT;
    constexpr int BQ = Tile::BQ;
    constexpr int BK = Tile::BK;
    constexpr int TILE = BQ * HS;
    constexpr int ROWS = Tile::ROWS;
    bf16* sk = dynamic_smem<bf16>();
    bf16* sv = sk + BK * HS;
    bf16* sq = sv + BK * HS;             // two tiles
    bf16* sd = sq + 2 * TILE;            // two tiles
    float* rows = (float*)(sd + 2 * TILE);
    const HeadTile place = head_tile();
    const int bg = c.g0 + place.head;
    const int b = bg / s.KV;
    const int j0 = c.j0 + place.tile * BK;
    const int W = attn_row(s);
    const int G = group_size(s);
    const int row0 = threadIdx.x / 32 * 16 * MT;
    const bf16* k = head_k(qkv, s, b, bg % s.KV);
    const bf16* v = k + s.KV * HS;
    const LaneChunks<HS> by_column = LaneChunks<HS>::by_column();
    const LaneChunks<HS> by_row = LaneChunks<HS>::by_row();
    // The sequence's first row and first head, wanted once a tile, and dv's column, wanted at the
    // end: they must not take registers from the products.
    SMEM(int[3], sequence);
    if (threadIdx.x == 0) {
        sequence[0] = b * s.T;
        sequence[1] = b * s.NH;
        sequence[2] = value_head(s, bg % s.KV) * HS;
    }
    __syncthreads();
    // bh: the query head, counted through all sequences
    auto load = [&](int buf, int bh, int t0) {
        const volatile int* begin = sequence;
        const int row = begin[0];
        const int end = row + s.T;
        const int column = (bh - begin[1]) * HS;
        const unsigned thread = opaque(threadIdx.x);
        tile_load<HS, BQ>(sq + buf * TILE, qkv + column, W, row + t0, end, thread);
        tile_load<HS, BQ>(sd + buf * TILE, dout + column, s.NH * HS, row + t0, end, thread);
        const float* from = r.row + ((long)bh * r.TP + t0) * 2;
        cp_async_float(rows + buf * ROWS + threadIdx.x, from + threadIdx.x);
    };
    tile_load<HS, BK>(sk, k, W, j0, s.T, opaque(threadIdx.x));
    tile_load<HS, BK>(sv, v, W, j0, s.T, opaque(threadIdx.x));
    cp_async_commit();
    const int first = next_queries(s, j0, BK, 0, BQ);
    int bh = bg * G;
    int t0 = first;
    if (t0 < s.T) { load(0, bh, t0); }
    cp_async_commit();
    cp_async_wait<1>();
    __syncthreads();
    LeftRows<HS, MT, DvOf<A, Pe, HS>::KEEP_K> keys(sk + row0 * HS, by_column);
    LeftRows<HS, MT, Tile::KEEP_V> values(sv + row0 * HS, by_column);
    keys.hold();
    values.hold();
    Sums<MT, HS> dv = {};
    for (int buf = 0, heads = G; heads && first < s.T; buf ^= 1) {
        const unsigned thread = opaque(threadIdx.x);
        const int lane = thread % 32;
        const int t2 = lane % 4 * 2;
        const int j = j0 + thread / 32 * 16 * MT;
        const int lane_row = j + lane / 4;
        int next = next_queries(s, j0, BK, t0 + BQ, BQ);
        int next_bh = bh;
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
        const int t = t0 + t2;
        if (tile_full(s, t0, j0, BQ, BK)) {
            tile_weights_ds<true, A, Pe, MT, BQ>(w, ds, score, own_rows, t, lane_row, s);
        } else {
            tile_weights_ds<false, A, Pe, MT, BQ>(w, ds, score, own_rows, t, lane_row, s);
        }
        uint32_t* cells = (uint32_t*)c.cell(bh - c.h0, t0, j);
        ds_store<MT, BQ>(cells + lane, c.width(), ds);
        UNROLL(k, BQ / 16) {
            product_columns<HS, MT, BQ>(dv, w, k, sd + buf * TILE, by_column);
        }
        __syncthreads();
        t0 = next;
        bh = next_bh;
    }
    cp_async_wait<0>(); // none is under way: sv is written to now
    const volatile int* begin = sequence;
    bf16* to = dqkv + (long)begin[0] * W + begin[2];
    const OutRows out = { to, W, j0, s.T };
    UNROLL(i, MT) { rows_store<HS>(out, sv, row0 + 16 * i, dv[i], 1.0f, 1.0f); }
}

// Launches it for a chunk.
template <class A, class Pe, int HS>
void attention_dv_mma(bf16* dqkv, const DsChunk& c, const bf16* dout, RowStats r,
                      const DqkInputs& in) {
    typedef typename DvOf<A, Pe, HS>::Tile Keys;
    static_assert((int)Keys::SMEM <= SMEM_MOST, "as in attention_forward.cuh");
    const int tiles = CEIL_DIV(c.j1 - c.j0, Keys::BK);
    LAUNCH((attention_dv_mma_kernel<A, Pe, HS>), head_tile_grid(c.count, tiles), dim3(MMA_BLOCK),
           Keys::SMEM, dqkv, c, dout, r, in.qkv, in.s);
}
} // namespace cuda
#endif // CUDA_ATTENTION_BACKWARD_CUH
