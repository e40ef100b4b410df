/*
attention_forward.cuh -- attention's forward pass on tensor cores.

A block takes BQ queries of a head and walks over the keys they see, BK at a time, with running sums
relative to the largest score so far (online softmax):

    scores w (BQ, BK) = Q K^T  ->  m, l, o shrink by 2^(m before - m)  ->  w = 2^(score - m)
    l += sum of w              ->  o (BQ, HS) += w V

A tensor-core instruction takes six cycles or more, during which the warp can issue others that do
not need its result. So a tile's weights are computed 16 keys at a time, w0 w1 ..., each right
before its product: while the tensor cores work on one, the warp computes the next:

    tensor cores   Q K^T | . . . . | w0 V0 | w1 V1 | w2 V2 | w3 V3
    the others     . . . |  m  w0  |  w1   |  w2   |  w3   | . . .
*/
#ifndef CUDA_ATTENTION_FORWARD_CUH
#define CUDA_ATTENTION_FORWARD_CUH
#include "attention_score.cuh"
#include "attention_tiles.cuh"
#include <cfloat>

namespace cuda {
// A lane's part of its 2 MT rows, lane_row + 8 r (element, mma.cuh).
template <int HS, int MT> struct OnlineRows {
    float m[2 * MT];                     // the largest score so far, in powers of 2
    float l[2 * MT];                     // the lane's part of the sum in Z, relative to that
    Sums<MT, HS> o;                      // the output, relative to that
};

// Returns the score of the extra key for the query q, whose channels the lanes of a row share.
template <class A, class Bi, int HS>
DEVICE float extra_score_head(const bf16* q, const bf16* key, const AttnShape& s) {
    if (Bi::extra == LOGIT_EXTRA) { return (float)*key; }
    if (!key) { return 0; }
    float dot = 0;
    for (int i = lane_id() % 4; i < HS; i += 4) { dot += (float)q[i] * (float)key[i]; }
    return attn_capped<A>(quad_sum(dot) * (float)s.scale, s.cap);
}

// Starts the rows from the head's extra key, or from nothing. q: the head's first query.
template <class A, class Bi, class Pe, int HS, int MT>
DEVICE void online_start(OnlineRows<HS, MT>& x, const bf16* q, ExtraKey<const bf16> extra,
                         const TileScore<A, Pe>& score, int lane_row, const AttnShape& s) {
    constexpr bool has_extra = Bi::extra != NO_EXTRA;
    UNROLL(r, 2 * MT) {
        float m = attn_initial_max<A, float>();
        float w_star = 0;
        if (has_extra) {
            const int t = min(lane_row + 8 * r, s.T - 1);
            const float s_star = extra_score_head<A, Bi, HS>(q + (long)t * attn_row(s), extra.k, s);
            m = max_(m, s_star);
            w_star = attn_term<A>(s_star, m);
        }
        const bool counts_it = has_extra && lane_column() == 0;     // one of the row's four lanes
        x.m[r] = fmaxf(m * LOG2_E, -FLT_MAX);                    // finite, so that x.m - x.m is 0
        x.l[r] = counts_it ? attn_mass<A>(w_star, s.p) : 0.0f;
        const bool value = has_extra && extra.v;
        const float share = attn_share<A>(w_star);
        UNROLL(n, HS / 8) {
            for (int e = 0; e < 2; e++) {
                const int at = 8 * n + lane_column() + e;
                element(x.o, r, 2 * n + e) = value ? share * (float)extra.v[at] : 0.0f;
            }
        }
    }
}

// Makes the sum in Z of row r relative to m, the largest score so far, and returns by what o is to
// shrink.
template <class A, int HS, int MT>
DEVICE float online_shrink(OnlineRows<HS, MT>& x, int r, float m, const AttnShape& s) {
    const float shrink = ex2_approx(x.m[r] - m);
    x.m[r] = m;
    x.l[r] *= attn_mass<A>(Fast(shrink), Fast(s.p)).v;
    return shrink;
}

// Turns N dot products of row r, query t, into scores, in place, and returns the largest. The
// lane's first key is j. FULL: no key is masked.
template <bool FULL, class A, class Pe, int N, class Products>
DEVICE float tile_scores(Products& w, int r, const TileScore<A, Pe>& score, int t, int j,
                         const AttnShape& s) {
    float top = -INFINITY;
    UNROLL(i, N / 4) {
        float& w_j = element(w, r, i);
        const int key = j + columns_on(i);
        w_j = score(w_j, t, key, s);
        const bool sees = FULL || ((key < s.T) & attn_sees(s, t, key));
        w_j = sees ? w_j : attn_masked<A, float>();
        top = fmaxf(top, w_j);
    }
    return top;
}

// Makes scores of the dot products of all rows, and the rows relative to the largest.
template <bool FULL, class A, class Pe, int HS, int MT, int N>
DEVICE void online_scores(OnlineRows<HS, MT>& x, Sums<MT, N>& w, const TileScore<A, Pe>& score,
                          int lane_row, int j, const AttnShape& s) {
    UNROLL(r, 2 * MT) {
        const float top = tile_scores<FULL, A, Pe, N>(w, r, score, lane_row + 8 * r, j, s);
        if (A::exp_family) {
            const float m = fmaxf(x.m[r], __fmul_rn(quad_max(top), score.unit));
            const float shrink = online_shrink<A>(x, r, m, s);
            UNROLL(i, HS / 4) { element(x.o, r, i) *= shrink; }
        }
    }
}

// Turns the scores of keys 16 k.. into weights, in place, and adds them to the sums of the rows.
template <class A, class Pe, int HS, int MT, int N>
DEVICE void online_weights(OnlineRows<HS, MT>& x, Sums<MT, N>& w, int k,
                           const TileScore<A, Pe>& score, const AttnShape& s) {
    UNROLL(r, 2 * MT) {
        const float one = A::Z == Z_ABS ? ex2_approx(-x.m[r]) : 0.0f; // softpick's f is e^s - 1
        UNROLL(i, 2) {
            const int j = 4 * k + 2 * i;
            score.weights(element(w, r, j), element(w, r, j + 1), x.m[r]);
        }
        UNROLL(i, 4) {
            float& w_j = element(w, r, 4 * k + i);
            w_j -= one;
            x.l[r] += score.mass(w_j, s);
            w_j = attn_share<A>(Fast(w_j)).v;
        }
    }
}

// Finishes the rows: stores their stat and returns the factors that turn the sums into outputs.
template <class A, class Pe, int HS, int MT>
DEVICE void online_end(float (&factor)[2 * MT], acc* stat, const OnlineRows<HS, MT>& x,
                       const TileScore<A, Pe>& score, int bh, int lane_row, const AttnShape& s) {
    UNROLL(r, 2 * MT) {
        const int t = lane_row + 8 * r;
        const float m = x.m[r] * LN_2;
        const float l = quad_sum(x.l[r]);
        const AttnStat<float> st = attn_stat<A>(m, l, s.p, attn_alpha_of<A, float>(s, t));
        factor[r] = attn_factor<A>(st);
        if (lane_column() == 0 && t < s.T) { stat_store(stat, (long)bh * s.T + t, st); }
    }
}

// 128 queries per block, 32 per warp (HS 192: half as many), and as many keys per tile as fit in
// registers without spilling.
template <int HS> struct ForwardTile {
    enum {
        MT = HS > 128 ? 1 : 2,
        BQ = 64 * MT,
        BK = HS > 96 ? 32 : 64,
        SMEM = (BQ + 4 * BK) * HS * 2    // bytes: Q, and two tiles each of K and V
    };
};

// A thread's share of the work: head h of sequence b (together, bh), the block's queries from t0
// on, and within them the warp's from row0 on. The last queries, which see most keys, come first.
template <int MT, int BQ> struct ForwardPlace {
    int bh, b, h, t0, row0;
    DEVICE ForwardPlace(unsigned head, unsigned thread, const AttnShape& s) {
        const int tiles = CEIL_DIV(s.T, BQ);
        bh = head;
        b = bh / s.NH;
        h = bh % s.NH;
        t0 = (tiles - 1 - head_tile().tile) * BQ;
        row0 = thread / 32 * 16 * MT;
    }
};

// Two blocks per SM: with three, some variants spill at 64 channels.
template <class A, class Bi, class Pe, int HS>
__global__ void __launch_bounds__(MMA_BLOCK, 2)
    attention_forward_mma_kernel(bf16* out, acc* stat, AttnInputs in) {
    typedef ForwardTile<HS> Tile;
    constexpr int MT = Tile::MT;
    constexpr int BQ = Tile::BQ;
    constexpr int BK = Tile::BK;
    const AttnShape& s = in.s;
    bf16* sq = dynamic_smem<bf16>();
    bf16* sk = sq + BQ * HS;             // two tiles
    bf16* sv = sk + 2 * BK * HS;         // two tiles
    const ForwardPlace<MT, BQ> place(head_tile().head, threadIdx.x, s);
    const int t0 = place.t0;
    const int h = place.h;
    const int g = kv_head(s, h);
    const int W = attn_row(s);
    const bf16* q = (const bf16*)in.qkv + (long)place.b * s.T * W + h * HS;
    const bf16* k = q + (s.NH + g - h) * HS;
    const LaneChunks<HS> by_column = LaneChunks<HS>::by_column();
    const LaneChunks<HS> by_row = LaneChunks<HS>::by_row();
    const LeftRows<HS, MT> queries(sq + place.row0 * HS, by_column);
    const TileScore<A, Pe> score(h, s);
    const int end = min(s.T, max(t0 + BQ, s.prefix));
    const ExtraKey<const bf16> extra = { attn_extra_k<Bi>((const bf16*)in.extra.k, s, h),
                                         attn_extra((const bf16*)in.extra.v, s, g) };
    // opaque() makes the compiler compute these again in and after the loop, so that the products
    // get the registers.
    auto load = [&](int buf, int j0) {
        const unsigned thread = opaque(threadIdx.x);
        const bf16* v = k + opaque(s.KV * HS);
        tile_load<HS, BK>(sk + buf * BK * HS, k, W, j0, s.T, thread);
        tile_load<HS, BK>(sv + buf * BK * HS, v, W, j0, s.T, thread);
    };

    OnlineRows<HS, MT> x; // before the loads, which saves twenty registers
    online_start<A, Bi>(x, q, extra, score, t0 + place.row0 + lane_group(), s);
    tile_load<HS, BQ>(sq, q, W, t0, s.T);
    int j0 = next_keys(s, t0, BQ, 0, end, BK);
    load(0, j0);
    cp_async_commit();
    for (int buf = 0; j0 < end; buf ^= 1) {
        const int next = next_keys(s, t0, BQ, j0 + BK, end, BK);
        if (next < end) { load(buf ^ 1, next); }
        cp_async_commit();
        cp_async_wait<1>(); // all but the tile just asked for
        __syncthreads();
        Sums<MT, BK> w;
        product_rows<HS, MT, BK>(w, queries, sk + buf * BK * HS, by_row);
        const unsigned thread = opaque(threadIdx.x);
        const int lane_row = t0 + thread / 32 * 16 * MT + thread % 32 / 4;
        const int first_key = j0 + thread % 4 * 2;
        if (tile_full(s, t0, j0, BQ, BK)) {
            online_scores<true, A, Pe, HS, MT, BK>(x, w, score, lane_row, first_key, s);
        } else {
            online_scores<false, A, Pe, HS, MT, BK>(x, w, score, lane_row, first_key, s);
        }
        UNROLL(i, BK / 16) {
            online_weights<A, Pe, HS, MT, BK>(x, w, i, score, s);
            product_columns<HS, MT, BK>(x.o, w, i, sv + buf * BK * HS, by_column);
        }
        __syncthreads(); // before this buffer is filled again
        j0 = next;
    }
    const ForwardPlace<MT, BQ> at(opaque(head_tile().head), opaque(threadIdx.x), s);
    float factor[2 * MT];
    online_end(factor, stat, x, score, at.bh, at.t0 + at.row0 + lane_group(), s);
    bf16* to = out + (long)at.b * s.T * s.NH * HS + at.h * HS;
    const OutRows rows = { to, s.NH * HS, at.t0, s.T };
    UNROLL(i, MT) {
        const int row = at.row0 + 16 * i;
        rows_store<HS>(rows, sq, row, x.o[i], factor[2 * i], factor[2 * i + 1]);
    }
}

template <class A, class Bi, class Pe, int HS>
void attention_forward_mma(bf16* out, acc* stat, const AttnInputs& in) {
    typedef ForwardTile<HS> Tile;
    static_assert((int)Tile::SMEM <= SMEM_MOST,
                  "the tiles do not fit the shared memory of sm_86 and sm_89");
    const dim3 blocks = head_tile_grid(in.s.B * in.s.NH, CEIL_DIV(in.s.T, Tile::BQ));
    LAUNCH((attention_forward_mma_kernel<A, Bi, Pe, HS>), blocks, dim3(MMA_BLOCK), Tile::SMEM, out,
           stat, in);
}
} // namespace cuda
#endif // CUDA_ATTENTION_FORWARD_CUH
