/*
hopper/forward.cuh -- attention's forward pass on Hopper's tensor cores (wgmma.cuh).

A block is two warpgroups of 64 queries, or three. All read the same tiles of keys and values, which
arrive by cp.async, one tile ahead. While tensor cores multiply the weights of one tile with its
values, a warpgroup makes weights of the next tile's scores:

    tensor cores   Q K0  .  | Q K1  P0 V0 | Q K2  P1 V1 | P2 V2
    the others      .    P0 |  .    P1    |  .    P2    |
    arriving       K1    V0 | K2    V1    |       V2    |

Q K^T takes both sides from shared memory. Its sums, in registers, become weights P as on other
cards (attention_forward.cuh), and rounded they are the left side of P V. Nothing but cp.async
writes to shared memory. The sums o may not be touched while P V is added to them, so what they are
to shrink by, when a larger score has come, waits until then.

A block may also do rope's part on its queries, before all else and in memory, where the backward
pass reads them: no other block does, and they come from the cache then.
*/
#ifndef CUDA_HOPPER_FORWARD_CUH
#define CUDA_HOPPER_FORWARD_CUH
#include "../attention_forward.cuh"
#include "wgmma.cuh"

namespace cuda {
// BIASED: scores have a bias of the position, whose mathematics takes registers.
template <int HS, bool BIASED> struct HopperForwardTile {
    enum {
        GROUPS = HS <= 96 ? 2 : 3,
        BQ = GROUPS * GROUP_ROWS,
        BK = 64,
        BLOCKS = HS < 96 || (HS == 96 && !BIASED) ? 2 : 1,   // of an SM
        SMEM = (BQ + 4 * BK) * HS * 2 + 1024      // bytes: Q, and two tiles each of K and V
    };
};

// Does what online_scores does (attention_forward.cuh), but returns by what o is to shrink.
template <bool FULL, class A, class Pe, int HS, int N>
DEVICE void scores_ahead(OnlineRows<HS, 1>& x, float (&shrink)[2], Sums<1, N>& w,
                         const TileScore<A, Pe>& score, int lane_row, int j, const AttnShape& s) {
    UNROLL(r, 2) {
        const float top = tile_scores<FULL, A, Pe, N>(w, r, score, lane_row + 8 * r, j, s);
        if (A::exp_family) {
            const float m = fmaxf(x.m[r], __fmul_rn(quad_max(top), score.unit));
            shrink[r] = online_shrink<A>(x, r, m, s);
        }
    }
}

// What a thread of a block knows and holds.
template <class A, class Bi, class Pe, int HS> struct HopperForward {
    typedef HopperForwardTile<HS, Pe::score_bias> Tile;
    enum { BQ = Tile::BQ, BK = Tile::BK, THREADS = Tile::GROUPS * GROUP };
    static constexpr uint64_t TILE = BK * HS * 2 / 16;   // of an address in a description
    const AttnShape& s;
    const TileScore<A, Pe> score;
    int t0, end;                         // the first query; the last key's successor
    int W;                               // numbers in a row of qkv
    const bf16 *q, *k;                   // the head's, in the first row of the sequence
    bf16 *sq, *sk, *sv;                  // tiles; two each of K and V
    uint64_t queries, keys, values;      // their descriptions
    OnlineRows<HS, 1> x;
    uint32_t p[BK / 16][4];              // the weights of the tile before
    int j0, buf;                         // the tile's first key, and which of two it is

    DEVICE HopperForward(const AttnInputs& in, const ForwardPlace<1, BQ>& place)
        : s(in.s), score(place.h, in.s), t0(place.t0), W(attn_row(in.s)), buf(0) {
        const int g = kv_head(s, place.h);
        const int group = __shfl_sync(~0u, threadIdx.x / GROUP, 0);
        end = min(s.T, max(t0 + BQ, s.prefix));
        q = (const bf16*)in.qkv + (long)place.b * s.T * W + place.h * HS;
        k = q + (s.NH + g - place.h) * HS;
        sq = panels_begin();
        sk = sq + BQ * HS;
        sv = sk + 2 * BK * HS;
        queries = Panels<HS, BQ>::describe(sq, group * GROUP_ROWS);
        keys = Panels<HS, BK>::describe(sk);
        values = Panels<HS, BK>::describe(sv);
        const ExtraKey<const bf16> extra = { attn_extra_k<Bi>((const bf16*)in.extra.k, s, place.h),
                                             attn_extra((const bf16*)in.extra.v, s, g) };
        online_start<A, Bi>(x, q, extra, score, t0 + place.row0 + lane_group(), s);
    }

    DEVICE void load(bf16* to, int column, int from) const {
        Panels<HS, BK>::load(to, k + opaque(column), W, from, s.T, THREADS, opaque(threadIdx.x));
    }

    // Adds the tile before to o, and makes weights of this one's scores. FIRST: there is none
    // before. (A branch around wgmma would cost a wait.)
    template <bool FIRST> DEVICE void tile() {
        const int next = next_keys(s, t0, BQ, j0 + BK, end, BK);
        cp_async_wait<0>();
        fence_async();
        __syncthreads(); // K of this tile and V of the one before are there; all have left that one
        Sums<1, BK> w;
        wgmma_fence();
        begin_rows<HS, BQ, BK>(w, queries, keys + buf * TILE);
        wgmma_commit();
        if constexpr (!FIRST) { begin_values(); }
        if (next < end) { load(sk + (buf ^ 1) * BK * HS, 0, next); }
        load(sv + buf * BK * HS, s.KV * HS, j0);
        cp_async_commit();
        wgmma_wait<FIRST ? 0 : 1>(); // for the scores
        hold(w[0]);
        const unsigned thread = opaque(threadIdx.x);
        const int lane_row = t0 + thread / 32 * 16 + thread % 32 / 4;
        const int first_key = j0 + thread % 4 * 2;
        float shrink[2] = { 1, 1 };
        if (!FIRST && tile_full(s, t0, j0, BQ, BK)) {
            scores_ahead<true, A, Pe, HS, BK>(x, shrink, w, score, lane_row, first_key, s);
        } else {
            scores_ahead<false, A, Pe, HS, BK>(x, shrink, w, score, lane_row, first_key, s);
        }
        // Always true, but ptxas does not know it. It moves nothing out of a branch; without one it
        // puts the exponentials behind the wait for values, where tensor cores have nothing to do.
        if (s.T > 0) {
            UNROLL(i, BK / 16) { online_weights<A, Pe, HS, 1, BK>(x, w, i, score, s); }
        }
        if constexpr (!FIRST) { end_values(); }
        shrink_rows(shrink);
        hold(x.o[0]);
        pack_all<BK>(p, w);
        buf ^= 1;
        j0 = next;
    }

    // Begins to add the weights of the tile before times its values, and ends it.
    DEVICE void begin_values() {
        begin_columns<HS, BK>(x.o, p, values + (buf ^ 1) * TILE);
        wgmma_commit();
    }

    DEVICE void end_values() {
        wgmma_wait<0>();
        hold(x.o[0]);
        hold(p);
    }

    // Most tiles raise no row's largest score. Then every factor is 1, and the bits are the same
    // without.
    DEVICE void shrink_rows(const float (&shrink)[2]) {
        if (!A::exp_family || !__ballot_sync(~0u, (shrink[0] != 1) | (shrink[1] != 1))) { return; }
        UNROLL(r, 2) {
            UNROLL(i, HS / 4) { element(x.o, r, i) *= shrink[r]; }
        }
    }

    DEVICE void all_tiles() {
        Panels<HS, BQ>::load(sq, q, W, t0, s.T, THREADS, threadIdx.x);
        j0 = next_keys(s, t0, BQ, 0, end, BK);
        load(sk, 0, j0);
        cp_async_commit();
        tile<true>();
        while (j0 < end) { tile<false>(); }
        cp_async_wait<0>();
        fence_async();
        __syncthreads();
        wgmma_fence();
        begin_values();
        end_values();
    }
};

// Turns `rows` rows of a head, from q on, by the part of rope's table that is theirs.
template <int HS, int THREADS>
DEVICE void queries_turn(real* q, unsigned stride, const acc* rope_table, int rows) {
    constexpr int HALF = HS / 2;
    constexpr int ACROSS = HALF / CHUNK;
    FOR_STRIDE(i, threadIdx.x, rows * ACROSS, THREADS) {
        const int row = i / ACROSS;
        const int pair = i % ACROSS * CHUNK;
        turn_pairs<CHUNK>(q + row * stride + pair, HALF, rope_table + row * HS + 2 * pair, +1);
    }
    __syncthreads();
}

template <class A, class Bi, class Pe, int HS>
__global__ void __launch_bounds__((HopperForward<A, Bi, Pe, HS>::THREADS),
                                  (HopperForward<A, Bi, Pe, HS>::Tile::BLOCKS))
    attention_forward_wgmma_kernel(bf16* out, acc* stat, AttnInputs in, real* qkv,
                                   const acc* rope_table) {
#ifdef WITH_WGMMA
    typedef HopperForward<A, Bi, Pe, HS> Block;
    typedef ForwardPlace<1, Block::BQ> Place;
    const AttnShape& s = in.s;
    if (rope_table) {
        const Place of(head_tile().head, threadIdx.x, s);
        real* q = qkv + qkv_at(s, of.b, of.t0, of.h);
        const acc* from = rope_table + (long)of.t0 * HS;
        queries_turn<HS, Block::THREADS>(q, attn_row(s), from, min(Block::BQ, s.T - of.t0));
    }
    Block block(in, Place(opaque(head_tile().head), opaque(threadIdx.x), s));
    block.all_tiles();
    const Place at(opaque(head_tile().head), opaque(threadIdx.x), s);
    float factor[2];
    online_end(factor, stat, block.x, block.score, at.bh, at.t0 + at.row0 + lane_group(), s);
    bf16* to = out + (long)at.b * s.T * s.NH * HS + at.h * HS;
    const OutRows rows = { to, s.NH * HS, at.t0, s.T };
    __syncthreads(); // Q is no longer read: its place takes what leaves
    rows_store<HS>(rows, block.sq, at.row0, block.x.o[0], factor[0], factor[1]);
#endif
}

// rope_table: to turn q with first, in qkv, or NULL
template <class A, class Bi, class Pe, int HS>
void attention_forward_wgmma(bf16* out, acc* stat, const AttnInputs& in, real* qkv,
                             const acc* rope_table) {
    typedef typename HopperForward<A, Bi, Pe, HS>::Tile Tile;
    const int tiles = CEIL_DIV(in.s.T, Tile::BQ);
    const dim3 blocks = head_tile_grid(in.s.B * in.s.NH, tiles, Tile::BLOCKS);
    LAUNCH((attention_forward_wgmma_kernel<A, Bi, Pe, HS>), blocks, dim3(Tile::GROUPS * GROUP),
           Tile::SMEM, out, stat, in, qkv, rope_table);
}
} // namespace cuda
#endif // CUDA_HOPPER_FORWARD_CUH
