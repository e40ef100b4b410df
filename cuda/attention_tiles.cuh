/*
attention_tiles.cuh -- what forward and backward on tensor cores share: which tiles there are, and
the scores of one.

A block has 4 warps. Each owns rows of the block's tile and everything about them, so weights go
from the registers of one product into those of the next (mma.cuh) and never through memory. Tiles
of the other operand arrive by cp.async, one ahead. Of the T x T scores three kinds of tiles exist:
those that are all masked are skipped, those of which nothing is masked ("full") test no key, and
only the others, along the diagonal and at the window's edge, test each.
*/
#ifndef CUDA_ATTENTION_TILES_CUH
#define CUDA_ATTENTION_TILES_CUH
#include "../attention_row.cuh"
#include "mma.cuh"
#include "rope.cuh"

namespace cuda {
#ifndef MMA_HEADS        // the head dimensions that have these kernels, in bf16
#define MMA_HEADS(X) X(32) X(64) X(96) X(128) X(192)
#endif

// Calls f(integral_constant<int, HS>) if the head dimension is one of MMA_HEADS, and tells whether.
template <class F> bool with_head_dim(int HS, F f) {
    bool found = false;
#define X(HEAD) if (HS == HEAD) { f(std::integral_constant<int, HEAD>()); found = true; }
    MMA_HEADS(X)
#undef X
    return found;
}

inline bool is_mma_head(int HS) { return with_head_dim(HS, [](auto) {}); }

// The head dimensions that have kernels for Hopper. With 192 the sums would not fit the registers.
constexpr bool hopper_head(int HS) { return HS <= 128; }

// ----------------------------------------------------------------------------
// Tiles of queries t0.. and keys j0..

DEVICE bool tile_empty(const AttnShape& s, int t0, int j0, int queries, int keys) {
    return attn_tile_empty(s, t0, min(t0 + queries, s.T), j0, min(j0 + keys, s.T));
}

DEVICE bool tile_full(const AttnShape& s, int t0, int j0, int queries, int keys) {
    return max(t0 + queries, j0 + keys) <= s.T &&
           attn_tile_full(s, t0, t0 + queries, j0, j0 + keys);
}

// Return the first tile from `at` on that is not all masked, or the end.
DEVICE int next_keys(const AttnShape& s, int t0, int queries, int at, int end, int keys) {
    while (at < end && tile_empty(s, t0, at, queries, keys)) { at += keys; }
    return at;
}

DEVICE int next_queries(const AttnShape& s, int j0, int keys, int at, int queries) {
    while (at < s.T && tile_empty(s, at, j0, queries, keys)) { at += queries; }
    return at;
}

// ----------------------------------------------------------------------------
// Which head and which tile a block works on. Blocks begin in the order of x, then y, then z. x
// counts the heads that run at about the same time, y their tiles, those with most to do first, z
// such groups of heads. If instead all tiles of one head came before those of the next, some of the
// last blocks would have most to do, and the GPU would wait for them.
#ifndef GPU_SMS          // about: an A100 has 108, an H100 132
#define GPU_SMS (shrunk ? 4 : 128)
#endif

struct HeadTile { int head, tile; };             // tile 0 has most to do

// Returns the grid of that many heads and tiles, of which two, or `of_sm`, share an SM. The heads
// side by side divide all heads, so no block is without one.
inline dim3 head_tile_grid(int heads, int tiles, int of_sm = 2) {
    int at_once = std::min(heads, std::max(1, GPU_SMS * of_sm / tiles));
    while (heads % at_once) { at_once--; }
    if (heads / at_once > 65535) { at_once = heads; }    // a grid has no more of them along z
    return dim3(at_once, tiles, heads / at_once);
}

// Returns those of this block.
DEVICE HeadTile head_tile() {
    return { (int)(blockIdx.z * gridDim.x + blockIdx.x), (int)blockIdx.y };
}

// ----------------------------------------------------------------------------
// Scores of a tile. The exp family's weights are powers of 2:
//
//     weight = 2^(score unit - base)         base = log2 of what weights are relative to
//
// so a score may be left in whatever unit is cheapest. If nothing is added to the dot product, it
// is the score itself, and scale log2(e) is the unit; else the score is in powers of 2 and the unit
// 1. Of the other variants a score is what it is elsewhere.
template <class A, class Pe> struct TileScore {
    static constexpr bool plain = A::exp_family && !A::capped && !Pe::score_bias;
    float scale, unit;
    float head_slope;

    DEVICE TileScore(int h, const AttnShape& s) {
        head_slope = pe_slope<Pe>(s, h);
        scale = s.scale;
        unit = plain ? scale * LOG2_E : 1.0f;
    }

    // Returns the score of query t and key j from their dot product.
    DEVICE float operator()(float dot, int t, int j, const AttnShape& s) const {
        if (plain) { return dot; }
        const float bias = attn_bias<A, Pe, Fast>(s, t - j, head_slope).v;
        if (A::exp_family && !A::capped) { return fmaf(dot, scale * LOG2_E, bias * LOG2_E); }
        const float score = attn_capped<A>(Fast(fmaf(dot, scale, bias)), Fast(s.cap)).v;
        return A::exp_family ? score * LOG2_E : score;
    }

    // Returns e^score relative to the base.
    DEVICE float power(float score, float base) const {
        return ex2_approx(fmaf(score, unit, -base));
    }

    // Returns f(score) relative to the base; for softpick e^score.
    DEVICE float weight(float score, float base) const {
        if (A::exp_family) { return power(score, base); }
        return A::sim(Fast(score)).v;
    }

    // Makes weights of two scores. Reciprocals 1 / a and 1 / b take one division, as r b and r a
    // with r = 1 / (a b), which is finite for a, b up to 2^60. What is less than 2^-59 becomes 0.
    DEVICE void weights(float& x, float& y, float base) const {
        if constexpr (A::is_reciprocal && A::Z != Z_PNORM) {
            const float a = min_or_nan(A::inverse(Fast(x)).v, 0x1p60f);
            const float b = min_or_nan(A::inverse(Fast(y)).v, 0x1p60f);
            const float r = rcp_approx(a * b);
            x = max_or_nan(fmaf(r, b, -0x1p-59f), 0);
            y = max_or_nan(fmaf(r, a, -0x1p-59f), 0);
        } else {
            x = weight(x, base);
            y = weight(y, base);
        }
    }

    // Returns what a weight adds to the sum in Z.
    DEVICE float mass(float weight, const AttnShape& s) const {
        if (A::Z == Z_ABS) { return fabsf(weight); }
        return attn_mass<A>(Fast(weight), Fast(s.p)).v;
    }

    // Returns the derivative of the cap at a score, which is in powers of 2.
    DEVICE float slope(float score, const AttnShape& s) const {
        return attn_slope<A>(Fast(score * LN_2), Fast(s.cap)).v;
    }
};

// ----------------------------------------------------------------------------
// What becomes of results.

// Turns 16 rows of the warp back by the table (T, HS/2, 2), rounded to bf16 first: the same bits as
// rope(.., -1, ..) on what rows_store would have stored. A lane holds both numbers of a pair, so
// none has to move. own: the lane's first row.
template <int HS>
DEVICE void rows_turn(float (&c)[HS / 8][4], const float* rope_table, int lane_row, int T) {
    UNROLL(r, 2) {
        const int t = min(lane_row + 8 * r, T - 1);
        const float* turn = rope_table + (long)t * HS + 2 * lane_column();
        UNROLL(n, HS / 16) {
            const Vec<float, 4> cos_sin = load<4>(turn + 16 * n);
            UNROLL(e, 2) {
                float& a = c[n][2 * r + e];
                float& b = c[n + HS / 16][2 * r + e];
                a = (float)bf16(a);
                b = (float)bf16(b);
                turn_pair(a, b, cos_sin[2 * e], -cos_sin[2 * e + 1]);
            }
        }
    }
}
} // namespace cuda
#endif // CUDA_ATTENTION_TILES_CUH
