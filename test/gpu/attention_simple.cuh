/*
attention_simple.cuh -- attention as simply as a GPU can compute it: a warp per query, and,
backward, a warp per key. The step between reference.h and the fast kernels, and what they are
compared with at sizes that a CPU would take minutes for (test/gpu/test_cuda.cu). It takes every
variant, head dimension and precision.

No model is trained with it: for each query and key it issues some 40 instructions per pass, of
which there are three, where the panels, which take whatever the tensor cores do not, issue one or
two.
*/
#ifndef CUDA_ATTENTION_SIMPLE_CUH
#define CUDA_ATTENTION_SIMPLE_CUH
#include "../../cuda/attention_score.cuh"

namespace cuda {
// Row t of a head in sequence b: a warp's query, or its key.
struct SimpleRow {
    int b, head, t;
    DEVICE SimpleRow(long row, int heads, int T) {
        t = row % T;
        head = row / T % heads;
        b = row / T / heads;
    }
};

// ----------------------------------------------------------------------------
// Sums of n floats, in the shared memory of a warp. Lane l has numbers l, l + 32, .. to itself.

// Returns where they stand.
DEVICE float* simple_sums(int n) { return dynamic_smem<float>() + warp_id() * n; }

// Begins them with `by` times x, or with 0 if there is no x.
DEVICE void simple_begin(float* sums, float by, const real* x, int n) {
    FOR_LANES(i, n) { sums[i] = x ? by * (float)x[i] : 0.0f; }
}

// Adds `by` times x.
DEVICE void simple_add(float* sums, float by, const real* x, int n) {
    FOR_LANES(i, n) { sums[i] += by * (float)x[i]; }
}

// Rounds and stores them.
DEVICE void simple_store(real* to, const float* sums, int n) {
    FOR_LANES(i, n) { to[i] = real(sums[i]); }
}

// ----------------------------------------------------------------------------
// A query, and the keys and values that its head reads.
template <class A, class Pe> struct SimpleQuery {
    const AttnShape& s;
    int b, h, t;
    int end;               // it sees no key from here on
    long row, out;         // its place in stat, and in out and dout
    const real* q;
    const real *k, *v;     // the first key and value
    float slope;           // of PE=alibi

    DEVICE SimpleQuery(const AttnInputs& in, int b, int h, int t) : s(in.s), b(b), h(h), t(t) {
        const int g = kv_head(s, h);
        end = min(s.T, max(t + 1, s.prefix));
        row = row_at(s, b, h, t);
        out = out_at(s, b, t, h);
        q = query_at(in.qkv, s, b, t, h);
        k = head_k(in.qkv, s, b, g);
        v = in.qkv + qkv_at(s, b, 0, value_head(s, g));
        slope = pe_slope<Pe>(s, h);
    }

    DEVICE const real* key(int j) const { return k + (long)j * attn_row(s); }
    DEVICE const real* value(int j) const { return v + (long)j * attn_row(s); }

    // Returns the score of key j. That of a masked key is such that its weight is 0.
    DEVICE float score(int j) const {
        const float dot = warp_dot(q, key(j), s.HS);
        const float bias = attn_bias<A, Pe, float>(s, t - j, slope);
        const float score = attn_capped<A>(dot * (float)s.scale + bias, s.cap);
        return attn_sees(s, t, j) ? score : attn_masked<A, float>();
    }
};

// Computes out and stat of a query in three passes over its keys: the largest score, the sum in Z,
// the output.
template <class A, class Bi, class Pe>
__global__ void __launch_bounds__(32 * ROW_WARPS)
    attention_simple_forward_kernel(real* out, acc* stat, AttnInputs in) {
    const AttnShape& s = in.s;
    const long row = warp_number();
    if (row >= query_count(s)) { return; }
    const SimpleRow own(row, s.NH, s.T);
    const SimpleQuery<A, Pe> query(in, own.b, own.head, own.t);
    constexpr bool has_extra = Bi::extra != NO_EXTRA;
    float s_star = 0;
    if (has_extra) { s_star = extra_score<A, Bi>(query.q, in.extra.k, query.h, s); }

    float top = attn_initial_max<A, float>();
    if (has_extra) { top = max_(top, s_star); }
    for (int j = 0; j < query.end; j++) { top = max_(top, query.score(j)); }

    float sum = 0;
    if (has_extra) { sum = score_mass<A>(s_star, top, s); }
    for (int j = 0; j < query.end; j++) { sum += score_mass<A>(query.score(j), top, s); }
    const float alpha = attn_alpha_of<A, float>(s, own.t);
    const AttnStat<float> st = attn_stat<A>(top, sum, s.p, alpha);
    if (stat && first_lane()) { stat_store(stat, row, st); }

    float w_star = 0;
    const real* v_star = NULL;
    if (has_extra) {
        w_star = attn_weight<A>(s_star, st, s.clip);
        v_star = attn_extra(in.extra.v, s, kv_head(s, query.h));
    }
    float* o = simple_sums(s.HS);
    simple_begin(o, w_star, v_star, s.HS);
    for (int j = 0; j < query.end; j++) {
        const float weight = attn_weight<A>(query.score(j), st, s.clip);
        simple_add(o, weight, query.value(j), s.HS);
    }
    simple_store(out + query.out, o, s.HS);
}

// ----------------------------------------------------------------------------
// Backward.

// What it is given.
struct SimpleBackward {
    AttnInputs in;
    const real* dout;      // (B, T, NH, HS)
    const acc* stat;
    RowStats r;
};

// What a query and a key that it sees have in common: A_tj, and scale ds_tj.
struct SimplePair { float weight, ds; };

template <class A, class Pe>
DEVICE SimplePair simple_pair(const SimpleBackward& x, const SimpleQuery<A, Pe>& query, int j) {
    const AttnShape& s = query.s;
    const AttnStat<float> st = stat_at(x.stat, query.row);
    const float delta = row_stat(x.r, query.b * s.NH + query.h, query.t).delta;
    const float score = query.score(j);
    const float weight = attn_weight<A>(score, st, s.clip);
    const float dweight = warp_dot(x.dout + query.out, query.value(j), s.HS);
    const float ds = attn_ds<A>(score, weight, dweight, st, delta, s);
    return { weight, ds * attn_slope<A>(score, s.cap) * (float)s.scale };
}

// Computes dq of a query, dq_t = sum_j scale ds_tj k_j, with the extra key's part.
template <class A, class Bi, class Pe>
__global__ void __launch_bounds__(32 * ROW_WARPS)
    attention_simple_dq_kernel(real* dqkv, SimpleBackward x) {
    const AttnShape& s = x.in.s;
    const long row = warp_number();
    if (row >= query_count(s)) { return; }
    const SimpleRow own(row, s.NH, s.T);
    const SimpleQuery<A, Pe> query(x.in, own.b, own.head, own.t);
    const real* k_star = NULL;
    if (Bi::extra == KEY_EXTRA) { k_star = attn_extra_k<Bi>(x.in.extra.k, s, query.h); }
    float ds_star = 0;
    if (k_star) { ds_star = x.r.ds_star[row] * (float)s.scale; }
    float* dq = simple_sums(s.HS);
    simple_begin(dq, ds_star, k_star, s.HS);
    for (int j = 0; j < query.end; j++) {
        if (attn_sees(s, query.t, j)) {
            simple_add(dq, simple_pair(x, query, j).ds, query.key(j), s.HS);
        }
    }
    simple_store(dqkv + qkv_at(s, query.b, query.t, query.h), dq, s.HS);
}

// Computes dk and dv of a key, from all query heads that read it:
// dk_j = sum_t scale ds_tj q_t,  dv_j = sum_t A_tj do_t.
template <class A, class Pe>
__global__ void __launch_bounds__(32 * ROW_WARPS)
    attention_simple_dkv_kernel(real* dqkv, SimpleBackward x) {
    const AttnShape& s = x.in.s;
    const long row = warp_number();
    if (row >= (long)s.B * s.KV * s.T) { return; }
    const SimpleRow own(row, s.KV, s.T);
    const int g = own.head;
    const int j = own.t;
    const int first = g * group_size(s);
    float* dk = simple_sums(2 * s.HS);
    float* dv = dk + s.HS;
    simple_begin(dk, 0, NULL, s.HS);
    simple_begin(dv, 0, NULL, s.HS);
    for (int h = first; h < first + group_size(s); h++) {
        for (int t = 0; t < s.T; t++) {
            if (!attn_sees(s, t, j)) { continue; }
            const SimpleQuery<A, Pe> query(x.in, own.b, h, t);
            const SimplePair pair = simple_pair(x, query, j);
            simple_add(dk, pair.ds, query.q, s.HS);
            simple_add(dv, pair.weight, x.dout + query.out, s.HS);
        }
    }
    simple_store(dqkv + qkv_at(s, own.b, j, key_head(s, g)), dk, s.HS);
    simple_store(dqkv + qkv_at(s, own.b, j, value_head(s, g)), dv, s.HS);
}

// ----------------------------------------------------------------------------
// The parameters of attention.cuh's two operations.

// Returns the shared memory of a block whose warps have n sums each.
inline size_t simple_bytes(int n) { return ROW_WARPS * n * sizeof(float); }

template <class A, class Bi, class Pe>
void attention_simple_forward(real* out, acc* stat, const AttnInputs& in) {
    const AttnShape& s = in.s;
    LAUNCH((attention_simple_forward_kernel<A, Bi, Pe>), warp_grid(query_count(s)),
           dim3(32 * ROW_WARPS), simple_bytes(s.HS), out, stat, in);
}

// Computes dqkv, but not the extra key's gradients: all ways share that code.
template <class A, class Bi, class Pe>
void attention_simple_backward(real* dqkv, const real* dout, const real* out, const acc* stat,
                               const AttnInputs& in) {
    const AttnShape& s = in.s;
    const long rows = query_count(s);
    const long all_rows = rows_all(s);
    float* scratch = (float*)device_scratch((2 * all_rows + 2 * rows) * sizeof(float));
    const RowStats r = rows_in(scratch, scratch + 2 * all_rows, s);
    const SimpleBackward x = { in, dout, stat, r };
    if constexpr (A::clip != NO_CLIP) {
        attention_simple_forward<ClipSlopes<A>, Bi, Pe>(dqkv, NULL, in);
        out = dqkv;
    }
    attention_rows<A, Bi>(r, dout, { out, stat }, in, false);
    LAUNCH((attention_simple_dq_kernel<A, Bi, Pe>), warp_grid(rows), dim3(32 * ROW_WARPS),
           simple_bytes(s.HS), dqkv, x);
    LAUNCH((attention_simple_dkv_kernel<A, Pe>), warp_grid((long)s.B * s.KV * s.T),
           dim3(32 * ROW_WARPS), simple_bytes(2 * s.HS), dqkv, x);
}
} // namespace cuda
#endif // CUDA_ATTENTION_SIMPLE_CUH
