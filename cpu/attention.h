/*
attention.h -- attention of the fast CPU backend: one forward and one backward for every variant, by
tiles, O(T) memory.
*/
#ifndef CPU_ATTENTION_H
#define CPU_ATTENTION_H
#include "ops.h"

namespace cpu {
// ----------------------------------------------------------------------------
// 5 attention. A thread owns one key/value head of one sequence. It walks tiles of BR queries x BC
// keys; a tile's scores live in a BR x BC buffer and are gone when the next tile starts: memory is
// O(T HS) a thread.

#if defined __AVX512F__
enum { VECTOR_BYTES = 64, VEC_COLS = 4 };   // of a register; so many of them across a block of sums
#elif defined __AVX__
enum { VECTOR_BYTES = 32, VEC_COLS = 2 };
#else
enum { VECTOR_BYTES = 16, VEC_COLS = 2 };
#endif
typedef acc vec __attribute__((vector_size(VECTOR_BYTES), aligned(sizeof(acc)), may_alias));
enum { BR = 32, BC = 64, VEC = VECTOR_BYTES / sizeof(acc) };
inline int padded(int n) { return (n + VEC - 1) / VEC * VEC; }
inline int padded_keys(int T) { return (T + BC - 1) / BC * BC; }

template <int ROWS, int COLS>
inline void tile_block(acc* c, int ldc, const acc* a, int row, int col, const acc* b, int ldb,
                       int K) {
    vec sum[ROWS][COLS];
    for (int r = 0; r < ROWS; r++) {
        for (int n = 0; n < COLS; n++) { sum[r][n] = *(vec*)(c + r * ldc + n * VEC); }
    }
    for (int k = 0; k < K; k++) {
        for (int n = 0; n < COLS; n++) {
            const vec x = *(const vec*)(b + k * ldb + n * VEC);
            for (int r = 0; r < ROWS; r++) { sum[r][n] += a[r * row + k * col] * x; }
        }
    }
    for (int r = 0; r < ROWS; r++) {
        for (int n = 0; n < COLS; n++) { *(vec*)(c + r * ldc + n * VEC) = sum[r][n]; }
    }
}

// c (M, COLS VEC) += a (M, K) @ b (K, COLS VEC)
template <int COLS>
inline void tile_columns(acc* c, int ldc, const acc* a, int row, int col, const acc* b, int ldb,
                         int M, int K) {
    int m = 0;
    for (; m + 4 <= M; m += 4) {
        tile_block<4, COLS>(c + m * ldc, ldc, a + m * row, row, col, b, ldb, K);
    }
    for (; m < M; m++) { tile_block<1, COLS>(c + m * ldc, ldc, a + m * row, row, col, b, ldb, K); }
}

// c (M, N) += a (M, K) @ b (K, N), all in cache; a is read at a[m row + k col], N is padded to VEC
inline void tile_product(acc* c, int ldc, const acc* a, int row, int col, const acc* b, int ldb,
                         int M, int N, int K) {
    int n = 0;
    for (; n + VEC_COLS * VEC <= N; n += VEC_COLS * VEC) {
        tile_columns<VEC_COLS>(c + n, ldc, a, row, col, b + n, ldb, M, K);
    }
    for (; n < N; n += VEC) { tile_columns<1>(c + n, ldc, a, row, col, b + n, ldb, M, K); }
}

// a thread's buffer number `slot`, kept from call to call; not zeroed
inline acc* scratch(int slot, size_t n) {
    static thread_local struct Buffers {
        acc* p[12] = {}; size_t n[12] = {};
        ~Buffers() { for (auto q : p) { free(q); } }
    } t;
    if (t.n[slot] < n) {
        free(t.p[slot]);
        t.p[slot] = (acc*)aligned_alloc(64, (n * sizeof(acc) + 63) / 64 * 64);
        if (!t.p[slot]) {
            die(EXIT_MACHINE, "memory: none left for the attention buffers",
                "lower --batch or --seq");
        }
        t.n[slot] = n;
    }
    return t.p[slot];
}

// one head (T, HS) out of qkv, rows padded with zeros: rows (T, HP) and/or columns cols (HS, TP)
inline void head_gather(acc* rows, acc* cols, const real* x, int stride, int T, int HS) {
    const int HP = padded(HS), TP = padded_keys(T);
    for (int t = 0; t < T; t++) {
        const real* x_t = x + (long)t * stride;
        if (rows) {
            for (int i = 0; i < HP; i++) { rows[t * HP + i] = i < HS ? acc(x_t[i]) : acc(0); }
        }
        if (cols) { for (int i = 0; i < HS; i++) { cols[(long)i * TP + t] = x_t[i]; } }
    }
    if (cols) {
        for (int i = 0; i < HS; i++) {
            for (int t = T; t < TP; t++) { cols[(long)i * TP + t] = 0; }
        }
    }
}

// weights as a product reads them: of bf16, as the tensor cores do, they too are rounded
const bool round_weights = !std::is_same<real, acc>::value;
inline acc rounded(acc x) { return real(x); }
// and rows (T, HP) back to where one head stands in a tensor like qkv
inline void head_scatter(real* x, int stride, const acc* rows, int T, int HS) {
    const int HP = padded(HS);
    for (int t = 0; t < T; t++) {
        for (int i = 0; i < HS; i++) { x[(long)t * stride + i] = rows[(long)t * HP + i]; }
    }
}

// score (BR, BC) of queries t0..t1 against keys j0..j1: q (.., HP) rows, k_cols (HS, TP) columns;
// masked, biased
template <class A, class Pe>
inline void tile_scores(acc* score, const acc* q, const acc* k_cols, int t0, int t1, int j0, int j1,
                        int h, AttnShape s) {
    const int HP = padded(s.HS), TP = padded_keys(s.T), N = padded(j1 - j0);
    const acc scale = s.scale, cap = s.cap;
    for (int r = 0; r < t1 - t0; r++) { for (int j = 0; j < N; j++) { score[r * BC + j] = 0; } }
    tile_product(score, BC, q, HP, 1, k_cols + j0, TP, t1 - t0, N, s.HS);
    const bool full = attn_tile_full(s, t0, t1, j0, j1);
    for (int r = 0; r < t1 - t0; r++) {
        acc* x = score + r * BC;
        for (int j = 0; j < j1 - j0; j++) {
            x[j] *= scale;
            if (Pe::score_bias) { x[j] += Pe::template bias<acc>(t0 + r - (j0 + j), h, s.NH); }
            x[j] = attn_capped<A>(x[j], cap);
        }
        if (full) { continue; }
        for (int j = 0; j < j1 - j0; j++) {
            if (!attn_sees(s, t0 + r, j0 + j)) { x[j] = attn_masked<A, acc>(); }
        }
    }
}

template <class X, class Y> acc dot(const X* a, const Y* b, int n) {
    acc sum = 0;
    #pragma omp simd reduction(+ : sum)
    for (int i = 0; i < n; i++) { sum += acc(a[i]) * acc(b[i]); }
    return sum;
}

// the score of the extra column for query q; star: z of its head or, of its key/value head, k* or
// NULL
template <class A, class Bi, class Q, class R>
acc star_score(const Q* q, const R* star, AttnShape s) {
    if (Bi::column == LOGIT_COLUMN) { return star[0]; }
    return star ? attn_capped<A>(dot(q, star, s.HS) * acc(s.scale), acc(s.cap)) : acc(0);
}

// the last key, rounded to nothing, that a tile of queries ending at t1 can see
inline int tile_end(int t1, AttnShape s) { return std::min(s.T, std::max(t1, s.prefix)); }

// out (B, T, NH HS), stat (B, NH, T, 2) <- qkv (B, T, (NH + 2 KV) HS), kstar, vstar (KV or 1, HS)
// or NULL for zero; BIAS=logit: kstar is z (NH or 1)
template <class A, class Bi, class Pe>
void attention_forward(real* out, acc* stat, const real* qkv, const real* kstar, const real* vstar,
                       AttnShape s) {
    const int T = s.T, HS = s.HS, W = attn_row(s), HP = padded(HS), TP = padded_keys(T),
              G = s.NH / s.KV;
    const acc p = s.p, alpha = attn_alpha<A, acc>(s);
    #pragma omp parallel for schedule(dynamic)
    for (int bg = 0; bg < s.B * s.KV; bg++) {
        const int b = bg / s.KV, g = bg % s.KV;
        // this sequence, this value head
        const real *x = qkv + (long)b * T * W, *vs = attn_star(vstar, s, g);
        acc *k_cols = scratch(0, (long)HS * TP), *v = scratch(1, (long)T * HP),
            *q = scratch(2, BR * HP);
        acc *o = scratch(3, BR * HP), *score = scratch(4, BR * BC), m[BR], l[BR];
        head_gather(NULL, k_cols, x + (s.NH + g) * HS, W, T, HS);
        head_gather(v, NULL, x + (s.NH + s.KV + g) * HS, W, T, HS);
        for (int h = g * G; h < (g + 1) * G; h++) {
            const real* star = attn_column<Bi>(kstar, s, h);
            for (int t0 = 0; t0 < T; t0 += BR) {
                const int t1 = std::min(T, t0 + BR);
                head_gather(q, NULL, x + (long)t0 * W + h * HS, W, t1 - t0, HS);
                // the extra column is the state that the loop starts from
                for (int r = 0; r < t1 - t0; r++) {
                    m[r] = attn_least<A, acc>();
                    l[r] = 0;
                    for (int i = 0; i < HP; i++) { o[r * HP + i] = 0; }
                    const acc s_star = Bi::column != NO_COLUMN
                                           ? star_score<A, Bi>(q + r * HP, star, s)
                                           : acc(0);
                    if (Bi::column != NO_COLUMN && s_star != acc(-INFINITY)) {
                        m[r] = max_(m[r], s_star);
                        const acc w_star = attn_term<A>(s_star, m[r]);
                        l[r] = attn_mass<A>(w_star, p);
                        for (int i = 0; vs && i < HS; i++) {
                            o[r * HP + i] = attn_share<A>(w_star) * vs[i];
                        }
                    }
                }
                const int end = tile_end(t1, s);
                for (int j0 = 0; j0 < end; j0 += BC) {
                    const int j1 = std::min(end, j0 + BC);
                    if (attn_tile_empty(s, t0, t1, j0, j1)) { continue; }
                    tile_scores<A, Pe>(score, q, k_cols, t0, t1, j0, j1, h, s);
                    for (int r = 0; r < t1 - t0; r++) {
                        acc* w = score + r * BC;
                        acc sum = 0, top = m[r];
                        if (A::exp_family) {
                            #pragma omp simd reduction(max : top)
                            for (int j = 0; j < j1 - j0; j++) { top = max_(top, w[j]); }
                            if (top == acc(-INFINITY)) {
                                for (int j = 0; j < j1 - j0; j++) { w[j] = 0; }
                                continue;
                            }
                            const acc shrink = exp_(m[r] - top);
                            m[r] = top;
                            l[r] *= attn_mass<A>(shrink, p);
                            for (int i = 0; i < HP; i++) { o[r * HP + i] *= shrink; }
                        }
                        for (int j = 0; j < j1 - j0; j++) { w[j] = attn_term<A>(w[j], top); }
                        #pragma omp simd reduction(+ : sum)
                        for (int j = 0; j < j1 - j0; j++) { sum += attn_mass<A>(w[j], p); }
                        l[r] += sum;
                        for (int j = 0; A::Z == Z_ABS && j < j1 - j0; j++) {
                            w[j] = attn_share<A>(w[j]);
                        }
                        for (int j = 0; round_weights && j < j1 - j0; j++) { w[j] = rounded(w[j]); }
                    }
                    tile_product(o, HP, score, BC, 1, v + (long)j0 * HP, HP, t1 - t0, HP, j1 - j0);
                }
                for (int r = 0; r < t1 - t0; r++) {
                    acc st[2];
                    const acc factor = attn_stat<A>(st, m[r], l[r], p, alpha);
                    memcpy(stat + ((long)(b * s.NH + h) * T + t0 + r) * 2, st, sizeof st);
                    real* out_t = out + ((long)b * T + t0 + r) * s.NH * HS + h * HS;
                    for (int i = 0; i < HS; i++) { out_t[i] = o[r * HP + i] * factor; }
                }
            }
        }
    }
}

// Generation: one query q (NH HS) at position t and the keys and values kv (t + 1, 2 KV HS) of
// positions 0..t -> out (NH HS). The same as row t of attention_forward, with all scores of the row
// at hand. R: where host code can read
template <class A, class Bi, class Pe, class R>
void attention_row(R* out, const R* q, const R* kv, const R* kstar, const R* vstar, int t,
                   AttnShape s) {
    // column t + 1 is the extra one of BIAS
    const int HS = s.HS, row = 2 * s.KV * HS, extra = t + 1;
    const acc p = s.p, scale = s.scale, cap = s.cap;
    auto sees = [=](int j) { return j < extra ? attn_sees(s, t, j) : Bi::column != NO_COLUMN; };
    #pragma omp parallel for if ((long)t * s.NH * HS > 1 << 16)
    for (int h = 0; h < s.NH; h++) {
        const int g = h / (s.NH / s.KV);
        const R *q_h = q + h * HS, *k = kv + g * HS, *v = k + s.KV * HS;
        const R *star = attn_column<Bi>(kstar, s, h), *v_star = attn_star(vstar, s, g);
        acc *score = scratch(0, extra + 1), *o = scratch(1, HS), stat[2], sum = 0,
            m = attn_least<A, acc>();
        for (int j = 0; j <= extra; j++) {
            if (!sees(j)) { continue; }
            if (j < extra) {
                const acc bias = Pe::template bias<acc>(t - j, h, s.NH);
                score[j] = attn_capped<A>(dot(q_h, k + (long)j * row, HS) * scale + bias, cap);
            } else {
                score[j] = star_score<A, Bi>(q_h, star, s);
            }
            m = max_(m, score[j]);
        }
        for (int i = 0; i < HS; i++) { o[i] = 0; }
        for (int j = 0; j <= extra; j++) {
            if (!sees(j)) { continue; }
            const acc w = attn_term<A>(score[j], m), share = attn_share<A>(w);
            const R* v_j = j < extra ? v + (long)j * row : v_star;
            sum += attn_mass<A>(w, p);
            for (int i = 0; v_j && i < HS; i++) { o[i] += share * acc(v_j[i]); }
        }
        const acc factor = attn_stat<A>(stat, m, sum, p, attn_alpha<A, acc>(s));
        for (int i = 0; i < HS; i++) { out[h * HS + i] = R(o[i] * factor); }
    }
}

// the extra column of one query: dq_t, dk* (or dz), dv* += ; star or vs NULL for zero
template <class A, class Bi>
inline void star_backward(acc* dq_t, acc* dstar, acc* dvs, const acc* do_t, const acc* q_t,
                          const acc* st_t, const real* star, const real* vs, acc delta,
                          AttnShape s) {
    const acc s_star = star_score<A, Bi>(q_t, star, s), dw_star = vs ? dot(do_t, vs, s.HS) : acc(0);
    const acc w_star = attn_weight<A>(s_star, st_t[0], st_t[1]);
    const acc ds = attn_ds<A>(s_star, w_star, dw_star, st_t[0], st_t[1], delta, acc(s.p),
                              attn_alpha<A, acc>(s));
    const acc ds_star = ds * attn_slope<A>(s_star, acc(s.cap)) * acc(s.scale);
    for (int i = 0; i < s.HS; i++) { dvs[i] += w_star * do_t[i]; }
    if (Bi::column == LOGIT_COLUMN) { *dstar += ds; return; }
    for (int i = 0; i < s.HS; i++) {
        if (star) { dq_t[i] += ds_star * star[i]; }
        dstar[i] += ds_star * q_t[i];
    }
}

// dqkv = (overwritten), dkstar, dvstar += as kstar, vstar, or NULL where there is nothing to learn.
// turns: NULL, or the table of rope, and dq and dk leave turned back: where q and k came out of
// rope, this is also its backward.
// in the forward pass this was:  A_j = alpha f(s_j) / Z,  o = sum_j A_j v_j,  s_j = capped(scale q . k_j + bias), so
//     dv_j += A_j do,   dA_j = do . v_j,   ds_j = attn_ds(..) attn_slope(s_j),   dq += scale ds_j k_j,   dk_j += scale ds_j q
template <class A, class Bi, class Pe>
void attention_backward(real* dqkv, acc* dkstar, acc* dvstar, const real* dout, const real* out,
                        const acc* stat, const real* qkv, const real* kstar, const real* vstar,
                        const acc* turns, AttnShape s) {
    const int T = s.T, HS = s.HS, W = attn_row(s), HP = padded(HS), TP = padded_keys(T),
              G = s.NH / s.KV;
    const acc p = s.p, alpha = attn_alpha<A, acc>(s), scale = s.scale, cap = s.cap;
    // dk*, dv* of every (b, g), summed in order at the end
    std::vector<acc> dstar((size_t)s.B * s.KV * 2 * HS);
    std::vector<acc> dz((size_t)s.B * s.NH);                // BIAS=logit: dz of every (b, h)
    #pragma omp parallel for schedule(dynamic)
    for (int bg = 0; bg < s.B * s.KV; bg++) {
        const int b = bg / s.KV, g = bg % s.KV;
        const real* x = qkv + (long)b * T * W;
        real* dx = dqkv + (long)b * T * W;
        const real* vs = attn_star(vstar, s, g);
        acc *dks = &dstar[(size_t)bg * 2 * HS], *dvs = dks + HS;
        acc *k_cols = scratch(0, (long)HS * TP), *v_cols = scratch(1, (long)HS * TP),
            *k = scratch(2, (long)T * HP);
        acc *dk = scratch(3, (long)T * HP), *dv = scratch(4, (long)T * HP);
        acc *q = scratch(5, BR * HP), *dq = scratch(6, BR * HP), *d_o = scratch(7, BR * HP);
        acc *weight = scratch(8, BR * BC), *ds = scratch(9, BR * BC), delta[BR];
        head_gather(k, k_cols, x + (s.NH + g) * HS, W, T, HS);
        head_gather(NULL, v_cols, x + (s.NH + s.KV + g) * HS, W, T, HS);
        for (long i = 0; i < (long)T * HP; i++) { dk[i] = 0; dv[i] = 0; }
        for (int h = g * G; h < (g + 1) * G; h++) {
            const acc* st = stat + (long)(b * s.NH + h) * T * 2;
            const real* star = attn_column<Bi>(kstar, s, h);
            acc* d_star = Bi::column == LOGIT_COLUMN ? &dz[b * s.NH + h] : dks;
            for (int t0 = 0; t0 < T; t0 += BR) {
                const int t1 = std::min(T, t0 + BR), end = tile_end(t1, s);
                head_gather(q, NULL, x + (long)t0 * W + h * HS, W, t1 - t0, HS);
                head_gather(d_o, NULL, dout + ((long)b * T + t0) * s.NH * HS + h * HS, s.NH * HS,
                            t1 - t0, HS);
                for (int r = 0; r < t1 - t0; r++) {
                    const acc* st_t = st + (t0 + r) * 2;
                    const real* out_t = out + ((long)b * T + t0 + r) * s.NH * HS + h * HS;
                    acc *do_t = d_o + r * HP, *q_t = q + r * HP, *dq_t = dq + r * HP;
                    delta[r] = attn_delta<A>(dot(do_t, out_t, HS), st_t[1], alpha);
                    for (int i = 0; i < HP; i++) { dq_t[i] = 0; }
                    if (Bi::column) {
                        star_backward<A, Bi>(dq_t, d_star, dvs, do_t, q_t, st_t, star, vs, delta[r],
                                             s);
                    }
                }
                for (int j0 = 0; j0 < end; j0 += BC) {
                    const int j1 = std::min(end, j0 + BC), N = padded(j1 - j0);
                    if (attn_tile_empty(s, t0, t1, j0, j1)) { continue; }
                    const bool full = attn_tile_full(s, t0, t1, j0, j1);
                    tile_scores<A, Pe>(weight, q, k_cols, t0, t1, j0, j1, h, s);
                    for (int r = 0; r < t1 - t0; r++) {
                        for (int j = 0; j < N; j++) { ds[r * BC + j] = 0; }
                    }
                    tile_product(ds, BC, d_o, HP, 1, v_cols + j0, TP, t1 - t0, N, HS); // do . v_j
                    for (int r = 0; r < t1 - t0; r++) {
                        acc *w = weight + r * BC, *d = ds + r * BC;
                        const acc st0 = st[(t0 + r) * 2], st1 = st[(t0 + r) * 2 + 1], dl = delta[r];
                        for (int j = 0; j < j1 - j0; j++) {
                            const acc s_j = w[j];
                            w[j] = attn_weight<A>(s_j, st0, st1);
                            d[j] = attn_ds<A>(s_j, w[j], d[j], st0, st1, dl, p, alpha) *
                                   attn_slope<A>(s_j, cap) * scale;
                        }
                        if (A::is_signed && !full) {
                            for (int j = 0; j < j1 - j0; j++) {
                                if (!attn_sees(s, t0 + r, j0 + j)) { d[j] = 0; }
                            }
                        }
                    }
                    for (int i = 0; round_weights && i < (t1 - t0) * BC; i++) {
                        weight[i] = rounded(weight[i]);
                        ds[i] = rounded(ds[i]);
                    }
                    tile_product(dv + (long)j0 * HP, HP, weight, 1, BC, d_o, HP, j1 - j0, HP,
                                 t1 - t0);
                    tile_product(dk + (long)j0 * HP, HP, ds, 1, BC, q, HP, j1 - j0, HP, t1 - t0);
                    tile_product(dq, HP, ds, BC, 1, k + (long)j0 * HP, HP, t1 - t0, HP, j1 - j0);
                }
                head_scatter(dx + (long)t0 * W + h * HS, W, dq, t1 - t0, HS);
            }
        }
        head_scatter(dx + (s.NH + g) * HS, W, dk, T, HS);
        head_scatter(dx + (s.NH + s.KV + g) * HS, W, dv, T, HS);
    }
    for (int bg = 0; Bi::column && bg < s.B * s.KV; bg++) {
        const long row = s.bias_shared ? 0 : (bg % s.KV) * HS;
        for (int i = 0; i < HS; i++) {
            if (dkstar && Bi::column == KEY_COLUMN && i < s.k_dims) {
                dkstar[row + i] += dstar[(size_t)bg * 2 * HS + i];
            }
            if (dvstar) { dvstar[row + i] += dstar[(size_t)bg * 2 * HS + HS + i]; }
        }
    }
    for (int bh = 0; Bi::column == LOGIT_COLUMN && dkstar && bh < s.B * s.NH; bh++) {
        dkstar[s.bias_shared ? 0 : bh % s.NH] += dz[bh];
    }
    if (turns) { rope(dqkv, turns, -1, s); }
}

} // namespace cpu
#endif // CPU_ATTENTION_H
