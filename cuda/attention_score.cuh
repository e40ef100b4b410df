/*
attention_score.cuh -- what every way of computing attention shares: where heads stand, scores, and
what the backward pass needs of a query's row.

    forward        q, k, v ------> out, stat                       (stat: two numbers a query)
    rows           do, out, stat -> row: a norm and delta          (attention_rows_kernel, below)
    the way itself q, k, v, do, row -> dq, dk, dv                  (panels or tensor cores)
    extra key   w*, ds* of each query -> dk*, dv* or dz         (attention_common.cu)
*/
#ifndef CUDA_ATTENTION_SCORE_CUH
#define CUDA_ATTENTION_SCORE_CUH
#include "../attention_row.cuh"
#include "rows.cuh"

namespace cuda {
// What attention is computed from.
struct AttnInputs {
    const real* qkv;       // (B, T, NH + 2 KV, HS)
    ExtraKey<const real> extra;
    AttnShape s;
};

// ----------------------------------------------------------------------------
// Where things stand.

// Returns how many query heads read one key/value head.
HD int group_size(const AttnShape& s) { return s.NH / s.KV; }

HD int kv_head(const AttnShape& s, int h) { return h / group_size(s); }

// A row of qkv has NH heads of queries, then KV of keys, then KV of values. Return the place of key
// head g, and of value head g, among all.
HD int key_head(const AttnShape& s, int g) { return s.NH + g; }
HD int value_head(const AttnShape& s, int g) { return s.NH + s.KV + g; }

// Returns where a head begins in qkv, in row t of sequence b.
HD long qkv_at(const AttnShape& s, int b, int t, int head) {
    const long row = (long)b * s.T + t;
    return row * attn_row(s) + head * s.HS;
}

// Returns where a head of keys begins in the first row of sequence b.
template <class X> HD const X* head_k(const X* qkv, const AttnShape& s, int b, int g) {
    return qkv + qkv_at(s, b, 0, key_head(s, g));
}

// Returns where query t of a head begins in qkv.
HD const real* query_at(const real* qkv, const AttnShape& s, int b, int t, int h) {
    return qkv + qkv_at(s, b, t, h);
}

// Returns where a query's output begins in out, and in dout: (B, T, NH, HS).
HD long out_at(const AttnShape& s, int b, int t, int h) {
    const long row = (long)b * s.T + t;
    return (row * s.NH + h) * s.HS;
}

// Returns the number of queries of all heads and sequences.
HD long query_count(const AttnShape& s) { return (long)s.B * s.NH * s.T; }

// Returns a query's place among all, (B, NH, T).
HD long row_at(const AttnShape& s, int b, int h, int t) {
    const long head = (long)b * s.NH + h;
    return head * s.T + t;
}

// Read and write the two numbers that stat has for a query.
DEVICE AttnStat<float> stat_at(const acc* stat, long row) {
    const Vec<float, 2> x = load<2>(stat + row * 2);
    return { x[0], x[1] };
}
DEVICE void stat_store(acc* stat, long row, AttnStat<float> st) {
    store<2>(stat + row * 2, Vec<float, 2>{ { st.max_or_factor, st.ln_Z_or_sum } });
}

// ----------------------------------------------------------------------------
// Scores.

// Returns what a score adds to the sum in Z, relative to the largest score.
template <class A> DEVICE float score_mass(float score, float top, const AttnShape& s) {
    return attn_mass<A>(attn_term<A>(score, top), s.p);
}

// Returns a . b in every one of the LANES lanes that share it; NULL counts as zero. Of fewer than
// 32 lanes each loads 16 bytes at a time.
template <int LANES> DEVICE float lanes_dot(const real* a, const real* b, int HS) {
    constexpr int N = LANES < 32 ? VN : 1;
    const bool both = a && b;
    float sum = 0;
    for (int i = lane_id() % LANES * N; both && i < HS; i += LANES * N) {
        (Floats<N>::load(a + i) * Floats<N>::load(b + i)).add_to(sum);
    }
    #pragma unroll
    for (int apart = LANES / 2; apart; apart >>= 1) { sum += __shfl_xor_sync(~0u, sum, apart); }
    return sum;
}

DEVICE float warp_dot(const real* a, const real* b, int HS) { return lanes_dot<32>(a, b, HS); }

// Returns the score of the extra key for query q of head h, in every lane of a warp.
template <class A, class Bi>
DEVICE float extra_score(const real* q, const real* kstar, int h, const AttnShape& s) {
    const real* extra = attn_extra_k<Bi>(kstar, s, h);
    if (Bi::extra == LOGIT_EXTRA) { return *extra; }
    return attn_capped<A>(warp_dot(q, extra, s.HS) * (float)s.scale, s.cap);
}

// ----------------------------------------------------------------------------
// Rows of the backward pass.

// What the backward pass reads of a query's row, beside q, k, v and do. `norm` makes weights of
// scores, with one number where stat has two: enough where weights are rounded to bf16.
//
//     exp family    A_j = 2^(log2(e) s_j - log2_Z)      log2_Z = log2(Z / alpha)
//     the others    A_j = f(s_j) factor                 factor = alpha / Z
//
// and delta = (dZ/dw) (do . o) / alpha, with which ds_j = f'(s_j) alpha / Z (dA_j - delta).
struct alignas(8) RowStat {
    float norm, delta;
    DEVICE float log2_Z() const { return norm; }
    DEVICE float factor() const { return norm; }
};

// All rows. Kernels load ROW_PAD at a time, so each head has T rounded up to that, and the last
// head ROW_PAD more; rows that are no query's give weights of 0, or, where Z is 1, are
// masked.
enum { ROW_PAD = 64 };
struct RowStats {
    float* row;            // (B NH, TP, 2): a RowStat each
    float* w_star;         // (B NH, T) the extra key's weight
    float* ds_star;        // (B NH, T) and its ds
    int TP;                // T rounded up
};
inline int rows_padded(int T) { return CEIL_DIV(T, ROW_PAD) * ROW_PAD; }

inline long rows_all(const AttnShape& s) {
    return (long)s.B * s.NH * rows_padded(s.T) + ROW_PAD;
}

// Lays out the rows: `row` has room for 2 rows_all floats, `extra` for 2 of each query.
inline RowStats rows_in(float* row, float* extra, const AttnShape& s) {
    return { row, extra, extra + query_count(s), rows_padded(s.T) };
}

// Returns the row of query t. bh: its head, counted through all sequences.
DEVICE RowStat row_stat(const RowStats& r, int bh, int t) {
    const long at = (long)bh * r.TP + t;
    const Vec<float, 2> x = load<2>(r.row + at * 2);
    return { x[0], x[1] };
}

DEVICE void row_stat_store(const RowStats& r, long at, float norm, float delta) {
    store<2>(r.row + at * 2, Vec<float, 2>{ { norm, delta } });
}

// Writes what the backward pass needs of the extra key, of one query.
template <class A, class Bi>
DEVICE void row_extra(const RowStats& r, const real* dout, AttnStat<float> st, float delta, int b,
                     int h, int t, const AttnInputs& in) {
    const AttnShape& s = in.s;
    const long row = row_at(s, b, h, t);
    const real* v_star = attn_extra(in.extra.v, s, kv_head(s, h));
    const float score = extra_score<A, Bi>(query_at(in.qkv, s, b, t, h), in.extra.k, h, s);
    const float weight = attn_weight<A>(score, st, s.clip);
    const float dweight = warp_dot(dout + out_at(s, b, t, h), v_star, s.HS);
    float ds = attn_ds<A>(score, weight, dweight, st, delta, s);
    if (Bi::extra == KEY_EXTRA) { ds *= attn_slope<A>(score, s.cap); }
    if (first_lane()) {
        r.w_star[row] = weight;
        r.ds_star[row] = ds;
    }
}

// Makes the rows: LANES lanes each, 32, or 4 where 16 bytes may be loaded at once and there is no
// extra key.
template <class A, class Bi, int LANES>
__global__ void __launch_bounds__(32 * ROW_WARPS)
    attention_rows_kernel(RowStats r, const real* dout, const real* out, const acc* stat,
                          AttnInputs in) {
    const AttnShape& s = in.s;
    const long padded = warp_number() * (32 / LANES) + lane_id() / LANES;
    const int bh = padded / r.TP;
    const int t = padded % r.TP;
    const int heads = s.B * s.NH;
    if (bh > heads || (bh == heads && t >= ROW_PAD)) { return; }     // a whole warp
    const bool query = bh < heads && t < s.T;
    const int b = bh / s.NH;
    const int h = bh % s.NH;
    const long o = out_at(s, b, t, h);
    const real* no_query = NULL;
    const float do_o = lanes_dot<LANES>(query ? dout + o : no_query, out + o, s.HS);
    const bool stores = lane_id() % LANES == 0;
    if (!query) {
        const float no_weight = A::exp_family ? INFINITY : 0.0f;
        if (stores) { row_stat_store(r, padded, no_weight, 0); }
        return;
    }
    const AttnStat<float> st = stat_at(stat, row_at(s, b, h, t));
    const float delta = attn_delta<A>(do_o, st, attn_alpha<A, float>(s));
    const float log2_Z = (st.max_or_factor + st.ln_Z_or_sum) * LOG2_E;
    if (stores) { row_stat_store(r, padded, A::exp_family ? log2_Z : st.max_or_factor, delta); }
    if (Bi::extra) { row_extra<A, Bi>(r, dout, st, delta, b, h, t, in); }
}

// Launches it. wide: rows of heads begin at multiples of 16 bytes.
template <class A, class Bi>
void attention_rows(const RowStats& r, const real* dout, AttnResult<real, acc> result,
                    const AttnInputs& in, bool wide) {
    const long rows = rows_all(in.s);
    if constexpr (Bi::extra == NO_EXTRA && sizeof(real) == 2) {
        if (wide) {
            LAUNCH_WARPS((attention_rows_kernel<A, Bi, 4>), rows / 8, r, dout, result.out,
                         result.stat, in);
            return;
        }
    }
    LAUNCH_WARPS((attention_rows_kernel<A, Bi, 32>), rows, r, dout, result.out, result.stat, in);
}

// ----------------------------------------------------------------------------
// Parts of the backward pass and of the metrics that no variant changes. They are compiled once for
// all variants, with the program: attention_common.cu.

// Returns how many sums of k* or v* there are, one for each block of queries.
enum { EXTRA_ROWS = 64 };
inline long extra_parts(const AttnShape& s) {
    return (long)s.B * group_size(s) * CEIL_DIV(s.T, EXTRA_ROWS);
}

// Computes the gradients of the extra key from the rows; part (2, extra_parts, KV, HS).
void attention_extra_backward(ExtraKind extra, ExtraKey<acc> dextra, float* part, const real* dout,
                             RowStats r, const AttnInputs& in);

// Rounds dk and dv (count, T, HS) of key head g, sequences b0.., into rows of dqkv.
void attention_panel_keys(real* dqkv, const float* dk, const float* dv, int b0, int count, int g,
                          const AttnShape& s);

// Turns dq and dk back by rope's table.
void attention_turn_back(real* dqkv, const acc* rope_table, const AttnShape& s);
} // namespace cuda
#endif // CUDA_ATTENTION_SCORE_CUH
