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
#include "attention_score.cuh"

namespace cuda {
// A warp's query, or its key: row t of head h, of `heads` heads.
struct SimpleRow {
    int b, h, t;
    DEVICE SimpleRow(long row, int heads, int T)
        : b(row / T / heads), h(row / T % heads), t(row % T) {}
};

// Returns the memory of a warp: n floats, each lane's its own.
DEVICE float* simple_sums(int n) { return dynamic_smem<float>() + threadIdx.x / 32 * n; }

// Returns where the keys end that query t may see.
DEVICE int simple_end(const AttnShape& s, int t) { return min(s.T, max(t + 1, s.prefix)); }

// Computes out and stat of a query in three passes over its keys: the largest score, the sum in Z,
// the output.
template <class A, class Bi, class Pe>
__global__ void __launch_bounds__(32 * ROW_WARPS)
    attention_simple_forward_kernel(real* out, acc* stat, AttnInputs in) {
    const AttnShape& s = in.s;
    const long row = warp_number();
    if (row >= (long)s.B * s.NH * s.T) { return; }
    const SimpleRow x(row, s.NH, s.T);
    const int b = x.b, h = x.h, t = x.t, g = kv_head(s, h), lane = threadIdx.x % 32;
    const int end = simple_end(s, t), W = attn_row(s);
    const real* q = query_at(in.qkv, s, b, t, h);
    const real *k = head_k(in.qkv, s, b, g), *v = head_v(in.qkv, s, b, g);
    const real* vstar = attn_star(in.vstar, s, g);
    const float slope = pe_slope<Pe>(s, h);
    auto score = [&](int j) {
        const float dot = warp_dot(q, k + (long)j * W, s.HS);
        return attn_score<A, Pe>(dot, s.scale, t, j, slope, s);
    };
    constexpr bool column = Bi::column != NO_COLUMN;
    const float s_star = column ? star_score<A, Bi>(q, in.kstar, h, s) : 0.0f;

    float m = attn_least<A, float>();
    if (column) { m = max_(m, s_star); }
    for (int j = 0; j < end; j++) { m = max_(m, score(j)); }

    float l = column ? attn_mass<A>(attn_term<A>(s_star, m), s.p) : 0.0f;
    for (int j = 0; j < end; j++) {
        if (attn_sees(s, t, j)) { l += attn_mass<A>(attn_term<A>(score(j), m), s.p); }
    }
    float st[2];
    attn_stat<A>(st, m, l, s.p, attn_alpha<A, float>(s));
    if (lane < 2) { stat[row * 2 + lane] = lane ? st[1] : st[0]; }

    float* o = simple_sums(s.HS);
    const bool value = column && vstar;
    const float w_star = value ? attn_weight<A>(s_star, st[0], st[1]) : 0.0f;
    FOR_LANES(i, s.HS) { o[i] = value ? w_star * (float)vstar[i] : 0.0f; }
    for (int j = 0; j < end; j++) {
        if (!attn_sees(s, t, j)) { continue; }
        const float w = attn_weight<A>(score(j), st[0], st[1]);
        const real* v_j = v + (long)j * W;
        FOR_LANES(i, s.HS) { o[i] += w * (float)v_j[i]; }
    }
    real* out_t = out + out_at(s, b, t, h);
    FOR_LANES(i, s.HS) { out_t[i] = real(o[i]); }
}

// What the backward pass is given.
struct SimpleBackward {
    AttnInputs in;
    const real* dout;      // (B, T, NH, HS)
    const acc* stat;
    RowStats r;
};

// Computes the weight of query t and key j, which it sees, and scale ds.
template <class A, class Pe>
DEVICE void simple_pair(float* weight, float* ds, const SimpleBackward& x, int b, int t, int h,
                        int j) {
    const AttnShape& s = x.in.s;
    const int g = kv_head(s, h);
    const long at = (long)j * attn_row(s), row = row_at(s, b, h, t);
    const real *k = head_k(x.in.qkv, s, b, g) + at, *v = head_v(x.in.qkv, s, b, g) + at;
    const float stat0 = x.stat[row * 2], stat1 = x.stat[row * 2 + 1];
    const float delta = row_stat(x.r, b * s.NH + h, t).delta, alpha = attn_alpha<A, float>(s);
    const float dot = warp_dot(query_at(x.in.qkv, s, b, t, h), k, s.HS);
    const float dweight = warp_dot(x.dout + out_at(s, b, t, h), v, s.HS);
    const float score = attn_score<A, Pe>(dot, s.scale, t, j, pe_slope<Pe>(s, h), s);
    *weight = attn_weight<A>(score, stat0, stat1);
    const float d = attn_ds<A>(score, *weight, dweight, stat0, stat1, delta, s.p, alpha);
    *ds = d * attn_slope<A>(score, s.cap) * (float)s.scale;
}

// Computes dq of a query, dq_t = sum_j scale ds_tj k_j, with the extra column's part.
template <class A, class Bi, class Pe>
__global__ void __launch_bounds__(32 * ROW_WARPS)
    attention_simple_dq_kernel(real* dqkv, SimpleBackward x) {
    const AttnShape& s = x.in.s;
    const long row = warp_number();
    if (row >= (long)s.B * s.NH * s.T) { return; }
    const SimpleRow own(row, s.NH, s.T);
    const int b = own.b, h = own.h, t = own.t, end = simple_end(s, t), W = attn_row(s);
    const real* k = head_k(x.in.qkv, s, b, kv_head(s, h));
    const real* kstar = Bi::column == KEY_COLUMN ? attn_column<Bi>(x.in.kstar, s, h) : NULL;
    float* dq = simple_sums(s.HS);
    const float ds_star = kstar ? x.r.ds_star[row] * (float)s.scale : 0.0f;
    FOR_LANES(i, s.HS) { dq[i] = kstar ? ds_star * (float)kstar[i] : 0.0f; }
    for (int j = 0; j < end; j++) {
        if (!attn_sees(s, t, j)) { continue; }
        float weight, ds;
        simple_pair<A, Pe>(&weight, &ds, x, b, t, h, j);
        const real* k_j = k + (long)j * W;
        FOR_LANES(i, s.HS) { dq[i] += ds * (float)k_j[i]; }
    }
    real* to = dqkv + ((long)b * s.T + t) * W + h * s.HS;
    FOR_LANES(i, s.HS) { to[i] = real(dq[i]); }
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
    const int b = own.b, g = own.h, j = own.t, G = s.NH / s.KV;
    float* dk = simple_sums(2 * s.HS);
    float* dv = dk + s.HS;
    FOR_LANES(i, s.HS) { dk[i] = dv[i] = 0; }
    for (int n = 0; n < G * s.T; n++) {
        const int h = g * G + n / s.T, t = n % s.T;
        if (!attn_sees(s, t, j)) { continue; }
        float weight, ds;
        simple_pair<A, Pe>(&weight, &ds, x, b, t, h, j);
        const real *q = query_at(x.in.qkv, s, b, t, h), *d = x.dout + out_at(s, b, t, h);
        FOR_LANES(i, s.HS) {
            dk[i] += ds * (float)q[i];
            dv[i] += weight * (float)d[i];
        }
    }
    real* to = dqkv + ((long)b * s.T + j) * attn_row(s) + (s.NH + g) * s.HS;
    FOR_LANES(i, s.HS) {
        to[i] = real(dk[i]);
        to[s.KV * s.HS + i] = real(dv[i]);
    }
}

// ----------------------------------------------------------------------------
// The parameters of attention.cuh's two operations.

template <class A, class Bi, class Pe>
void attention_simple_forward(real* out, acc* stat, const AttnInputs& in) {
    const AttnShape& s = in.s;
    LAUNCH((attention_simple_forward_kernel<A, Bi, Pe>), warp_grid((long)s.B * s.NH * s.T),
           dim3(32 * ROW_WARPS), ROW_WARPS * s.HS * sizeof(float), out, stat, in);
}

// Computes dqkv, but not the extra column's gradients: all ways share that code.
template <class A, class Bi, class Pe>
void attention_simple_backward(real* dqkv, const real* dout, const real* out, const acc* stat,
                               const AttnInputs& in) {
    const AttnShape& s = in.s;
    const long rows = (long)s.B * s.NH * s.T, all_rows = rows_all(s);
    float* scratch = (float*)device_scratch((2 * all_rows + 2 * rows) * sizeof(float));
    const RowStats r = rows_in(scratch, scratch + 2 * all_rows, s);
    const SimpleBackward x = { in, dout, stat, r };
    const size_t smem = ROW_WARPS * s.HS * sizeof(float);
    LAUNCH_WARPS((attention_rows_kernel<A, Bi>), all_rows, r, dout, out, stat, in);
    LAUNCH((attention_simple_dq_kernel<A, Bi, Pe>), warp_grid(rows), dim3(32 * ROW_WARPS), smem,
           dqkv, x);
    LAUNCH((attention_simple_dkv_kernel<A, Pe>), warp_grid((long)s.B * s.KV * s.T),
           dim3(32 * ROW_WARPS), 2 * smem, dqkv, x);
}
} // namespace cuda
#endif // CUDA_ATTENTION_SIMPLE_CUH
