/*
attention_forward.cuh -- attention's forward pass on tensor cores.

A block takes BQ queries of a head and walks over the keys they see, BK at a time, adding to sums
that are relative to the largest score so far (online softmax):

    scores w (BQ, BK) = Q K^T  ->  m, l, o shrink by 2^(m before - m)  ->  w = 2^(score - m)
    l += sum of w              ->  o (BQ, HS) += w V
*/
#ifndef CUDA_ATTENTION_FORWARD_CUH
#define CUDA_ATTENTION_FORWARD_CUH
#include "attention_score.cuh"
#include "attention_tiles.cuh"

namespace cuda {
// What a lane holds of its 2 MT rows, which are own + 8 r, and of every 8 columns of the output,
// two from t2 = 0, 2, 4 or 6 on.
template <int HS, int MT> struct OnlineRows {
    float m[2 * MT];                     // the largest score so far
    float l[2 * MT];                     // the lane's part of the sum in Z, relative to that
    Sums<MT, HS> o;                      // the output, relative to that

    // Returns the number of row r in the fragment of 8 columns n, the lane's column e of them.
    DEVICE float& out(int r, int n, int e) { return o[r / 2][n][r % 2 * 2 + e]; }
};

// Begins a row with the extra column, or with nothing.
template <class A, class Bi, class Pe, int HS, int MT>
DEVICE void online_start(OnlineRows<HS, MT>& x, const bf16* q, const bf16* ks, const bf16* vs,
                         const TileScore<A, Pe>& score, int own, int t2, const AttnShape& s) {
    constexpr bool column = Bi::column != NO_COLUMN;
    #pragma unroll
    for (int r = 0; r < 2 * MT; r++) {
        float s_star = Bi::column == LOGIT_COLUMN ? (float)*ks : 0.0f;
        if (Bi::column == KEY_COLUMN && ks) {
            const bf16* q_t = q + (long)min(own + 8 * r, s.T - 1) * attn_row(s);
            for (int i = t2 / 2; i < HS; i += 4) { s_star += (float)q_t[i] * (float)ks[i]; }
            s_star = attn_capped<A>(quad_sum(s_star) * (float)s.scale, s.cap);
        }
        const float least = attn_least<A, float>();
        const float m = column ? max_(least, s_star) : least;
        const float w_star = column ? attn_term<A>(s_star, m) : 0.0f;
        x.m[r] = score.of_natural(m);
        x.l[r] = column && t2 == 0 ? attn_mass<A>(w_star, s.p) : 0.0f;
        #pragma unroll
        for (int n = 0; n < HS / 8; n++) {
            for (int e = 0; e < 2; e++) {
                const bool value = column && vs;
                x.out(r, n, e) = value ? attn_share<A>(w_star) * (float)vs[8 * n + t2 + e] : 0.0f;
            }
        }
    }
}

// Turns N dot products of each row into weights, in place, and adds them to the row's sums. The
// lane's first key is j. FULL: no key is masked.
template <bool FULL, class A, class Pe, int HS, int MT, int N>
DEVICE void online_add(OnlineRows<HS, MT>& x, Sums<MT, N>& w, const TileScore<A, Pe>& score,
                       int own, int j, const AttnShape& s) {
    #pragma unroll
    for (int r = 0; r < 2 * MT; r++) {
        const int t = own + 8 * r;
        auto weight = [&](int i) -> float& { return w[r / 2][i / 2][r % 2 * 2 + i % 2]; };
        float top = x.m[r], base = 0, shrink = 1, one = 0;
        #pragma unroll
        for (int i = 0; i < N / 4; i++) {
            float& w_j = weight(i);
            const int key = j + i / 2 * 8 + i % 2;
            w_j = score(w_j, t, key, s);
            if (!FULL) {
                const bool sees = (key < s.T) & attn_sees(s, t, key);
                w_j = sees ? w_j : attn_masked<A, float>();
            }
            top = fmaxf(top, w_j);
        }
        if (A::exp_family) {
            top = quad_max(top);
            // a row that has seen no key yet has -infinity
            base = top == -INFINITY ? 0.0f : __fmul_rn(top, score.unit);
            shrink = ex2_approx(__fmul_rn(x.m[r], score.unit) - base);
            one = A::Z == Z_ABS ? ex2_approx(-base) : 0.0f; // softpick's f is e^s - 1
            x.m[r] = top;
            x.l[r] *= attn_mass<A>(Fast(shrink), Fast(s.p)).v;
            #pragma unroll
            for (int n = 0; n < HS / 8; n++) {
                for (int e = 0; e < 2; e++) { x.out(r, n, e) *= shrink; }
            }
        }
        #pragma unroll
        for (int i = 0; i < N / 4; i++) {
            float& w_j = weight(i);
            w_j = A::exp_family ? score.power(w_j, base) : A::sim(Fast(w_j)).v;
            if (A::Z == Z_ABS) { w_j -= one; }
            x.l[r] += A::Z == Z_ABS ? fabsf(w_j) : attn_mass<A>(Fast(w_j), Fast(s.p)).v;
            w_j = attn_share<A>(Fast(w_j)).v;
        }
    }
}

// 128 queries a block, 32 a warp; tiles of as many keys as fit the registers without spills. HS
// 192: half the queries.
template <int HS> struct ForwardTile {
    enum {
        MT = HS > 128 ? 1 : 2,
        BQ = 64 * MT,
        BK = HS > 96 ? 32 : 64,
        SMEM = (BQ + 4 * BK) * HS * 2    // bytes: Q, and two tiles each of K and V
    };
};

// Two blocks must be enough for an SM: for three, 64 channels spill in some variants.
template <class A, class Bi, class Pe, int HS>
__global__ void __launch_bounds__(MMA_BLOCK, 2)
    attention_forward_mma_kernel(bf16* out, acc* stat, AttnInputs in) {
    constexpr int MT = ForwardTile<HS>::MT, BQ = ForwardTile<HS>::BQ, BK = ForwardTile<HS>::BK;
    constexpr int TILE = BK * HS;
    const AttnShape& s = in.s;
    bf16 *sq = dynamic_smem<bf16>(), *sk = sq + BQ * HS, *sv = sk + 2 * TILE;
    // the last queries, which see most keys, come first
    const int tiles = CEIL_DIV(s.T, BQ), bh = blockIdx.x / tiles;
    const int t0 = (tiles - 1 - blockIdx.x % tiles) * BQ;
    const int b = bh / s.NH, h = bh % s.NH, g = kv_head(s, h), W = attn_row(s);
    const int lane = threadIdx.x % 32, t2 = lane % 4 * 2;
    const int row0 = threadIdx.x / 32 * 16 * MT, own = t0 + row0 + lane / 4;
    const bf16* q = (const bf16*)in.qkv + (long)b * s.T * W + h * HS;
    const bf16 *k = q + (s.NH + g - h) * HS, *v = k + s.KV * HS;
    const LaneChunks<HS> by_column = lanes_by_column<HS>(), by_row = lanes_by_row<HS>();
    const LeftRows<HS, MT> queries(sq + row0 * HS, by_column);
    const TileScore<A, Pe> score(h, s);
    const int end = min(s.T, max(t0 + BQ, s.prefix));

    OnlineRows<HS, MT> x; // before the loads: twenty registers less
    online_start<A, Bi>(x, q, attn_column<Bi>((const bf16*)in.kstar, s, h),
                        attn_star((const bf16*)in.vstar, s, g), score, own, t2, s);
    tile_load<HS, BQ>(sq, q, W, t0, s.T);
    int j0 = next_keys(s, t0, BQ, 0, end, BK);
    tile_load<HS, BK>(sk, k, W, j0, s.T);
    tile_load<HS, BK>(sv, v, W, j0, s.T);
    cp_async_commit();
    for (int buf = 0; j0 < end; buf ^= 1) {
        const int next = next_keys(s, t0, BQ, j0 + BK, end, BK);
        if (next < end) {
            tile_load<HS, BK>(sk + (buf ^ 1) * TILE, k, W, next, s.T);
            tile_load<HS, BK>(sv + (buf ^ 1) * TILE, v, W, next, s.T);
        }
        cp_async_commit();
        cp_async_wait<1>(); // all but the tile just asked for
        __syncthreads();
        Sums<MT, BK> w;
        product_rows<HS, MT, BK>(w, queries, sk + buf * TILE, by_row);
        if (tile_full(s, t0, j0, BQ, BK)) {
            online_add<true, A, Pe, HS, MT, BK>(x, w, score, own, j0 + t2, s);
        } else {
            online_add<false, A, Pe, HS, MT, BK>(x, w, score, own, j0 + t2, s);
        }
        product_weights<HS, MT, BK>(x.o, w, sv + buf * TILE, by_column);
        __syncthreads(); // before this buffer is filled again
        j0 = next;
    }
    float factor[2 * MT], st[2];
    #pragma unroll
    for (int r = 0; r < 2 * MT; r++) {
        const float m = __fmul_rn(x.m[r], score.unit) * LN_2;
        factor[r] = attn_stat<A>(st, m, quad_sum(x.l[r]), s.p, attn_alpha<A, float>(s));
        if (t2 == 0 && own + 8 * r < s.T) {
            acc* stat_t = stat + ((long)bh * s.T + own + 8 * r) * 2;
            stat_t[0] = st[0];
            stat_t[1] = st[1];
        }
    }
    const OutRows rows = { out + (long)b * s.T * s.NH * HS + h * HS, s.NH * HS, t0, s.T };
    #pragma unroll
    for (int i = 0; i < MT; i++) {
        rows_store<HS>(rows, sq, row0 + 16 * i, x.o[i], factor[2 * i], factor[2 * i + 1]);
    }
}

template <class A, class Bi, class Pe, int HS>
void attention_forward_mma(bf16* out, acc* stat, const AttnInputs& in) {
    typedef ForwardTile<HS> Tile;
    static_assert((int)Tile::SMEM <= SMEM_MOST,
                  "the tiles do not fit the shared memory of sm_86 and sm_89");
    const unsigned blocks = in.s.B * in.s.NH * CEIL_DIV(in.s.T, Tile::BQ);
    LAUNCH((attention_forward_mma_kernel<A, Bi, Pe, HS>), dim3(blocks), dim3(MMA_BLOCK), Tile::SMEM,
           out, stat, in);
}
} // namespace cuda
#endif // CUDA_ATTENTION_FORWARD_CUH
