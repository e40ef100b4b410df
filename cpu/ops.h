/*
ops.h -- the operations of the fast CPU backend, all but attention.
*/
#ifndef CPU_OPS_H
#define CPU_OPS_H
#include <type_traits>
#include "../reference.h"
#include "product.h"
#ifndef REAL
#define REAL float
#endif

namespace cpu {
typedef REAL real;
typedef REAL acc;
static const char* const name = "cpu";
static const bool on_host = true; // host code may read device memory as it is
enum { head_rows = 512 };         // rows of logits alive at once: they stay in cache
enum { large = 1024 };            // side of matrices that are large to this machine

// ----------------------------------------------------------------------------
// 1 memory

inline const std::string& device_start() { // what there is to compute with, in one line
#ifdef _OPENMP
    static const std::string once = strf("%d threads", omp_get_max_threads());
#else
    static const std::string once = "1 thread, built without OpenMP";
#endif
    return once;
}
inline void* device_malloc(size_t bytes)                          { return xmalloc(bytes); }
inline void  device_free(void* p)                                 { free(p); }
inline void  device_zero(void* p, size_t bytes)                   { memset(p, 0, bytes); }
inline void  to_device(void* dst, const void* src, size_t bytes)  { memcpy(dst, src, bytes); }
inline void  to_host(void* dst, const void* src, size_t bytes)    { memcpy(dst, src, bytes); }
inline void  device_sync()                                        {}
inline size_t device_left()                                       { return SIZE_MAX; } // the system swaps
// y (n) += x
inline void  add(real* y, const real* x, long n) {
    #pragma omp parallel for simd
    for (long i = 0; i < n; i++) { y[i] += x[i]; }
}
inline void  cast_to_real(real* dst, const acc* src, long n) {
    if (dst != src) { memcpy(dst, src, n * sizeof(real)); }
}

// ----------------------------------------------------------------------------
// 2 matrix product

// out (N, OC) = inp (N, C) @ weight (OC, C)^T  [+ residual (N, OC), unless NULL]
inline void matmul_forward(real* out, const real* inp, const real* weight, const real* residual, int N, int C, int OC) {
    if (residual) { memcpy(out, residual, (size_t)N * OC * sizeof(real)); }
    gemm<real>(N, OC, C, inp, C, 1, weight, 1, C, out, OC, residual != NULL);
}
// in the forward pass this was:  out = inp W^T,  so dinp (N, C) = dout (N, OC) @ weight (OC, C)
inline void matmul_backward_input(real* dinp, const real* dout, const real* weight, int N, int C, int OC) {
    gemm<real>(N, C, OC, dout, OC, 1, weight, C, 1, dinp, C, false);
}
// and dweight (OC, C) += dout^T @ inp
inline void matmul_backward_weight(acc* dweight, const real* dout, const real* inp, int N, int C, int OC) {
    gemm<real>(OC, C, N, dout, 1, OC, inp, C, 1, dweight, C, true);
}

// ----------------------------------------------------------------------------
// 3 embedding and RMSNorm

// out (B, T, C): row t is wte[token] + pos[t]; with a sink token row 0 is sink + pos[0], token t stands at row t + 1.
// tokens (B, T') with T' = T, or T - 1 if sink; wte (V, C); pos (T, C) or NULL; sink (C) or NULL
inline void embed_forward(real* out, const int* tokens, const real* wte, const real* pos, const real* sink,
                          int B, int T, int C) {
    const int skip = sink ? 1 : 0;
    #pragma omp parallel for
    for (int bt = 0; bt < B * T; bt++) {
        const int b = bt / T, t = bt % T;
        const real* x = t < skip ? sink : wte + (long)tokens[b * (T - skip) + t - skip] * C;
        for (int c = 0; c < C; c++) { out[(long)bt * C + c] = x[c] + (pos ? pos[t * C + c] : real(0)); }
    }
}
// dwte, dpos, dsink += the rows of dout that read them; dpos, dsink may be NULL, sink as in forward
inline void embed_backward(acc* dwte, acc* dpos, acc* dsink, const real* dout, const int* tokens, int B, int T, int C) {
    const int skip = dsink ? 1 : 0, chunk = 16;
    #pragma omp parallel for // over channels, so that two equal tokens never meet in two threads
    for (int c0 = 0; c0 < C; c0 += chunk) {
        const int c1 = std::min(C, c0 + chunk);
        for (int b = 0; b < B; b++) {
            for (int t = 0; t < T; t++) {
                acc* dx = t < skip ? dsink : dwte + (long)tokens[b * (T - skip) + t - skip] * C;
                const real* d = dout + (long)(b * T + t) * C;
                for (int c = c0; c < c1; c++) { dx[c] += d[c]; }
                if (dpos) { for (int c = c0; c < c1; c++) { dpos[t * C + c] += d[c]; } }
            }
        }
    }
}

// out (N, C) = x rstd * weight,  rstd (N) = 1 / sqrt(mean(x^2) + eps)            (Zhang & Sennrich 2019; section 3.1)
inline void rmsnorm_forward(real* out, acc* rstd, const real* x, const real* weight, float eps, int N, int C) {
    #pragma omp parallel for
    for (int n = 0; n < N; n++) {
        const real* x_n = x + (long)n * C;
        acc sum = 0;
        #pragma omp simd reduction(+ : sum)
        for (int c = 0; c < C; c++) { sum += x_n[c] * x_n[c]; }
        const acc r = acc(1) / sqrt(sum / C + acc(eps));
        for (int c = 0; c < C; c++) { out[(long)n * C + c] = x_n[c] * r * weight[c]; }
        rstd[n] = r;
    }
}
// in the forward pass this was:  out_c = x_c r w_c,  r = (mean(x^2) + eps)^(-1/2),  so dr/dx_c = -r^3 x_c / C
// dx (N, C) = r (dout w) - x r^3 mean(dout w x)   [+= if add];   dweight (C) += sum_n dout x r
inline void rmsnorm_backward(real* dx, acc* dweight, const real* dout, const real* x, const real* weight,
                             const acc* rstd, bool add, int N, int C) {
    const int rows = 64, blocks = div_up(N, rows);          // each block sums its rows; then the blocks in order
    std::vector<acc> part((size_t)blocks * C);
    #pragma omp parallel for
    for (int k = 0; k < blocks; k++) {
        acc* dw = &part[(size_t)k * C];
        for (int n = k * rows; n < std::min(N, (k + 1) * rows); n++) {
            const real *d = dout + (long)n * C, *x_n = x + (long)n * C;
            real* dx_n = dx + (long)n * C;
            const acc r = rstd[n];
            acc dot = 0;
            #pragma omp simd reduction(+ : dot)
            for (int c = 0; c < C; c++) { dot += d[c] * weight[c] * x_n[c]; }
            const acc f = r * r * r * dot / C;
            for (int c = 0; c < C; c++) {
                const acc g = d[c] * weight[c] * r - x_n[c] * f;
                dw[c] += d[c] * x_n[c] * r;
                dx_n[c] = add ? dx_n[c] + g : g;
            }
        }
    }
    for (int k = 0; k < blocks; k++) { for (int c = 0; c < C; c++) { dweight[c] += part[(size_t)k * C + c]; } }
}

// ----------------------------------------------------------------------------
// 4 rotary and kernels: q and k are the first (NH + KV) * HS columns of every row of qkv (B, T, (NH + 2 KV) HS)

// in place: (x_i, x_{i+HS/2}) turns by sign * t * theta_i; table (T, HS/2, 2) holds cos, sin (Eq. 8, half-split as in
// LLaMA). Backward is the same turn the other way: sign -1 on the gradient
inline void rope(real* qkv, const acc* table, int sign, AttnShape s) {
    const int H = s.HS / 2;
    #pragma omp parallel for
    for (int bt = 0; bt < s.B * s.T; bt++) {
        const acc* turn = table + (long)(bt % s.T) * H * 2;
        for (int h = 0; h < s.NH + s.KV; h++) {
            real* x = qkv + (long)bt * attn_row(s) + h * s.HS;
            for (int i = 0; i < H; i++) {
                const acc co = turn[2 * i], si = sign * turn[2 * i + 1], a = x[i], b = x[i + H];
                x[i] = a * co - b * si;
                x[i + H] = a * si + b * co;
            }
        }
    }
}
// phi = elu + 1, in place on q and k
inline void phi_elu1_forward(real* qkv, AttnShape s) {
    #pragma omp parallel for
    for (int bt = 0; bt < s.B * s.T; bt++) {
        real* x = qkv + (long)bt * attn_row(s);
        for (int i = 0; i < (s.NH + s.KV) * s.HS; i++) { x[i] = x[i] > 0 ? x[i] + real(1) : exp_(min_(x[i], real(0))); }
    }
}
// in the forward pass this was:  y = x > 0 ? x + 1 : e^x,  so y' = min(y, 1). dqkv in place, qkv holds y
inline void phi_elu1_backward(real* dqkv, const real* qkv, AttnShape s) {
    #pragma omp parallel for
    for (int bt = 0; bt < s.B * s.T; bt++) {
        const long row = (long)bt * attn_row(s);
        for (int i = 0; i < (s.NH + s.KV) * s.HS; i++) { dqkv[row + i] *= min_(qkv[row + i], real(1)); }
    }
}
// qk (B, T, (NH + KV) HS) <- qkv, and back: the MLP kernel wants its rows without v between them
inline void qk_gather(real* qk, const real* qkv, AttnShape s) {
    const int n = (s.NH + s.KV) * s.HS;
    #pragma omp parallel for
    for (int bt = 0; bt < s.B * s.T; bt++) {
        memcpy(qk + (long)bt * n, qkv + (long)bt * attn_row(s), n * sizeof(real));
    }
}
inline void qk_scatter(real* qkv, const real* qk, AttnShape s) {
    const int n = (s.NH + s.KV) * s.HS;
    #pragma omp parallel for
    for (int bt = 0; bt < s.B * s.T; bt++) {
        memcpy(qkv + (long)bt * attn_row(s), qk + (long)bt * n, n * sizeof(real));
    }
}

// ----------------------------------------------------------------------------
// 6 heads and FFN

// out (B, T, NH HS) or, summed over heads, (B, T, HS) <- att (B, T, NH HS) + v* (NH or 1, HS; NULL without BIAS=v)
inline void heads_forward(real* out, const real* att, const real* vstar, bool sum, AttnShape s) {
    const int HS = s.HS, OC = sum ? HS : s.NH * HS;
    #pragma omp parallel for
    for (int bt = 0; bt < s.B * s.T; bt++) {
        real* o = out + (long)bt * OC;
        if (sum) { for (int i = 0; i < HS; i++) { o[i] = 0; } }
        for (int h = 0; h < s.NH; h++) {
            const real* a = att + ((long)bt * s.NH + h) * HS;
            const real* v = vstar ? vstar + (s.bias_shared ? 0 : h * HS) : NULL;
            for (int i = 0; i < HS; i++) {
                const real y = a[i] + (v ? v[i] : real(0));
                if (sum) { o[i] += y; } else { o[h * HS + i] = y; }
            }
        }
    }
}
// in the forward pass this was:  out_h = att_h + v*_h, or their sum over h. datt = dout_h or dout; dvstar += their sum
inline void heads_backward(real* datt, acc* dvstar, const real* dout, bool sum, AttnShape s) {
    const int HS = s.HS, OC = sum ? HS : s.NH * HS, N = s.B * s.T;
    #pragma omp parallel for
    for (int h = 0; h < s.NH; h++) {
        for (int bt = 0; bt < N; bt++) {
            const real* d = dout + (long)bt * OC + (sum ? 0 : h * HS);
            for (int i = 0; i < HS; i++) { datt[((long)bt * s.NH + h) * HS + i] = d[i]; }
        }
    }
    if (!dvstar) { return; }
    for (int h = 0; h < s.NH; h++) { // serial: with --bias-share heads all heads add to one row
        for (int bt = 0; bt < N; bt++) {
            const real* d = datt + ((long)bt * s.NH + h) * HS;
            for (int i = 0; i < HS; i++) { dvstar[(s.bias_shared ? 0 : h * HS) + i] += d[i]; }
        }
    }
}

// out (N, F) = act(inp) or, gated, act(gate) * up with inp (N, 2 F) = gate | up
template <class Ff>
void ffn_forward(real* out, const real* inp, int N, int F) {
    #pragma omp parallel for
    for (int n = 0; n < N; n++) {
        const real* x = inp + (long)n * F * (Ff::gated ? 2 : 1);
        real* o = out + (long)n * F;
        for (int i = 0; i < F; i++) { o[i] = Ff::act(x[i]) * (Ff::gated ? x[F + i] : real(1)); }
    }
}
// in the forward pass this was:  out = act(g) u,  so dg = dout act'(g) u,  du = dout act(g)
template <class Ff>
void ffn_backward(real* dinp, const real* dout, const real* inp, int N, int F) {
    #pragma omp parallel for
    for (int n = 0; n < N; n++) {
        const long row = (long)n * F * (Ff::gated ? 2 : 1);
        const real *x = inp + row, *d = dout + (long)n * F;
        real* dx = dinp + row;
        for (int i = 0; i < F; i++) {
            const real g = x[i], u = Ff::gated ? x[F + i] : real(1);
            dx[i] = d[i] * Ff::dact(g) * u;
            if (Ff::gated) { dx[F + i] = d[i] * Ff::act(g); }
        }
    }
}

// ----------------------------------------------------------------------------
// 7 classifier

// losses (N) = -log softmax(logits)[target]; logits (N, V) become dloss * dlosses/dlogits in place, unless dloss is 0.
// a target of -1 counts for nothing: loss 0, gradient 0
inline void classifier(acc* losses, real* logits, const int* targets, float dloss, int N, int V) {
    #pragma omp parallel for
    for (int n = 0; n < N; n++) {
        real* x = logits + (long)n * V;
        const int y = targets[n];
        losses[n] = 0;
        if (y < 0) { if (dloss != 0) { memset(x, 0, V * sizeof(real)); } continue; }
        acc top = x[0], sum = 0;
        #pragma omp simd reduction(max : top)
        for (int v = 0; v < V; v++) { top = max_(top, x[v]); }
        #pragma omp simd reduction(+ : sum)
        for (int v = 0; v < V; v++) { sum += exp_(x[v] - top); }
        losses[n] = log_(sum) - (x[y] - top);
        if (dloss == 0) { continue; }
        const acc f = dloss / sum;
        for (int v = 0; v < V; v++) { x[v] = exp_(x[v] - top) * f; }
        x[y] -= dloss;
    }
}

// ----------------------------------------------------------------------------
// 8 optimiser

// sums->loss += sum of losses (n) / count
inline void loss_add(StepSums* sums, const acc* losses, long n, double count) {
    double sum = 0;
    for (long i = 0; i < n; i++) { sum += losses[i]; }
    sums->loss += sum / count;
}
// sums->squares = sum of x^2, blockwise in double; and the grad_scale that follows from it and from the loss
inline void square_norm(StepSums* sums, const acc* x, float clip, long n) {
    const long block = 1 << 14, blocks = (n + block - 1) / block;
    std::vector<double> part(blocks);
    #pragma omp parallel for
    for (long k = 0; k < blocks; k++) {
        double sum = 0;
        #pragma omp simd reduction(+ : sum)
        for (long i = k * block; i < std::min(n, (k + 1) * block); i++) { sum += (double)x[i] * x[i]; }
        part[k] = sum;
    }
    double sum = 0;
    for (double x_k : part) { sum += x_k; }
    sums->squares = sum;
    sums->grad_scale = grad_scale(sums->loss, sum, clip);
}
// (Loshchilov & Hutter 2017)  m = b1 m + (1-b1) g,  v = b2 v + (1-b2) g^2,  w -= lr (m^ / (sqrt(v^) + eps) + decay w)
// master is the weight, params its copy in `real` (the same array where both types are one)
inline void adamw_update(real* params, acc* master, acc* m, acc* v, const acc* grads, const StepSums* sums, AdamW o, long n) {
    if (std::isnan(sums->grad_scale)) { return; }
    const acc b1 = o.beta1, b2 = o.beta2;
    const acc c1 = 1 / (1 - pow((double)o.beta1, o.step)), c2 = 1 / (1 - pow((double)o.beta2, o.step));
    const acc lr = o.lr, eps = o.eps, decay = o.weight_decay, scale = sums->grad_scale;
    #pragma omp parallel for simd
    for (long i = 0; i < n; i++) {
        const acc g = grads[i] * scale;
        m[i] = b1 * m[i] + (1 - b1) * g;
        v[i] = b2 * v[i] + (1 - b2) * g * g;
        master[i] -= lr * (m[i] * c1 / (sqrt(v[i] * c2) + eps) + decay * master[i]);
        params[i] = master[i];
    }
}
// SGD with momentum beta1:  m = b1 m + g,  w -= lr (m + decay w)
inline void sgd_update(real* params, acc* master, acc* m, acc*, const acc* grads, const StepSums* sums, AdamW o, long n) {
    if (std::isnan(sums->grad_scale)) { return; }
    const acc b1 = o.beta1, lr = o.lr, decay = o.weight_decay, scale = sums->grad_scale;
    #pragma omp parallel for simd
    for (long i = 0; i < n; i++) {
        m[i] = b1 * m[i] + grads[i] * scale;
        master[i] -= lr * (m[i] + decay * master[i]);
        params[i] = master[i];
    }
}
} // namespace cpu
#endif // CPU_OPS_H
