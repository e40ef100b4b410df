/*
attention_tiles.cuh -- what forward and backward on tensor cores share: which tiles there are, and
the scores of one.
*/
#ifndef CUDA_ATTENTION_TILES_CUH
#define CUDA_ATTENTION_TILES_CUH
#include "../attention_variants.cuh"
#include "mma.cuh"
#include "rope.cuh"

namespace cuda {
// ---- on tensor cores: bf16 and the head dimensions of MMA_HEADS. A block of 4 warps; each warp
// owns rows of its tile and everything about them, so weights go from the registers of one product
// into those of the next (a C fragment is half an A fragment) and never through memory. Tiles of
// the other operand arrive by cp.async, one ahead.
#ifndef MMA_HEADS
#define MMA_HEADS(X) X(64) X(96) X(128) X(192)
#endif
// what a block may ask for on sm_86 and sm_89; 163 KiB on sm_80, 227 on sm_90
enum { SMEM_MOST = 99 << 10 };

// is a tile of queries t0.. and keys j0.. all masked; is nothing of it masked
DEVICE bool tile_empty(const AttnShape& s, int t0, int j0, int queries, int keys) {
    return attn_tile_empty(s, t0, min(t0 + queries, s.T), j0, min(j0 + keys, s.T));
}

DEVICE bool tile_full(const AttnShape& s, int t0, int j0, int queries, int keys) {
    return max(t0 + queries, j0 + keys) <= s.T &&
           attn_tile_full(s, t0, t0 + queries, j0, j0 + keys);
}

// the first tile from `at` on that is not all masked, or `end`
DEVICE int next_keys(const AttnShape& s, int t0, int queries, int at, int end, int keys) {
    while (at < end && tile_empty(s, t0, at, queries, keys)) { at += keys; }
    return at;
}

DEVICE int next_queries(const AttnShape& s, int j0, int keys, int at, int queries) {
    while (at < s.T && tile_empty(s, at, j0, queries, keys)) { at += queries; }
    return at;
}

// 16 rows of the warp turn back by the table (T, HS/2, 2), rounded to bf16 first: the same bits as
// rope(.., -1, ..) on what rows_store would have stored. A thread holds both numbers of a pair, so
// none has to move
template <int HS>
DEVICE void rows_turn(float (&c)[HS / 8][4], const float* turns, int own, int t2, int T) {
#pragma unroll
    for (int r = 0; r < 2; r++) {
        const float* turn = turns + (long)min(own + 8 * r, T - 1) * HS + 2 * t2;
        #pragma unroll
        for (int n = 0; n < HS / 16; n++) {
            const Vec<float, 4> cos_sin = load<4>(turn + 16 * n);
            #pragma unroll
            for (int e = 0; e < 2; e++) {
                float &a = c[n][2 * r + e], &b = c[n + HS / 16][2 * r + e];
                a = (float)bf16(a);
                b = (float)bf16(b);
                turn_pair(a, b, cos_sin.v[2 * e], -cos_sin.v[2 * e + 1]);
            }
        }
    }
}

// What a tile of scores needs. The exp family's weights are powers of 2, weight = 2^(score unit -
// base): a score is the dot product itself, if nothing is added to it, and all factors are in
// unit. Of the others a score is what it is elsewhere.
template <class A, class Pe> struct TileScore {
    static constexpr bool plain = A::exp_family && !A::capped && !Pe::score_bias;
    float scale, unit;
    float head_slope;
    DEVICE TileScore(int h, const AttnShape& s) {
        head_slope = pe_slope<Pe>(s, h);
        scale = s.scale;
        unit = plain ? scale * LOG2_E : 1.0f;
    }
    // of query t and key j from their dot product
    DEVICE float operator()(float dot, int t, int j, const AttnShape& s) const {
        if (plain) { return dot; }
        const float bias = attn_bias<A, Pe, Fast>(s, t - j, head_slope).v;
        if (A::exp_family && !A::capped) { return fmaf(dot, scale * LOG2_E, bias * LOG2_E); }
        const float score = attn_capped<A>(Fast(fmaf(dot, scale, bias)), Fast(s.cap)).v;
        return A::exp_family ? score * LOG2_E : score;
    }
    DEVICE float of_natural(float score) const {
        return A::exp_family ? score * LOG2_E / unit : score;
    }
    DEVICE float slope(float score, const AttnShape& s) const {
        return attn_slope<A>(Fast(score * LN_2), Fast(s.cap)).v;
    }
};
} // namespace cuda
#endif // CUDA_ATTENTION_TILES_CUH
