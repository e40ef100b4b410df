/*
attention.cuh -- attention of the CUDA backend. Parameters and layouts are those of reference.h.
There are two ways:

    on tensor cores, for bf16 and the head sizes of MMA_HEADS: scores live in registers only
    by panels, for all else: the scores of some hundred queries at a time go to memory, and cuBLAS
    makes the products

Neither allocates a T x T tensor. Sums belong to one block, or one product, which adds in a fixed
order: no atomics, and the same seed gives the same bits. Both ways go through the functions below,
so that a variant is written once.
*/
#ifndef CUDA_ATTENTION_CUH
#define CUDA_ATTENTION_CUH
#include "attention_backward.cuh"
#include "attention_forward.cuh"
#include "attention_panels.cuh"
#include "rope.cuh"

namespace cuda {
// ---- the two operations
inline bool on_tensor_cores(const AttnShape& s, std::initializer_list<const void*> pointers) {
    for (const void* p : pointers) { if ((uintptr_t)p % 16) { return false; } }
    #define X(D) if (sizeof(real) == 2 && s.HS == D) { return true; }
    MMA_HEADS(X)
    #undef X
    return false;
}

template <class A, class Bi, class Pe>
void attention_forward(real* out, acc* stat, const real* qkv, const real* kstar, const real* vstar,
                       AttnShape s) {
    const bool mma = on_tensor_cores(s, {out, qkv});
    if (!mma) { attention_forward_panels<A, Bi, Pe>(out, stat, qkv, kstar, vstar, s); }
    if constexpr (sizeof(real) == 2) {
#define X(D) \
    if (mma && s.HS == D) { attention_forward_mma<A, Bi, Pe, D>(out, stat, qkv, kstar, vstar, s); }
        MMA_HEADS(X)
        #undef X
    }
}

template <class A, class Bi, class Pe>
void attention_backward(real* dqkv, acc* dkstar, acc* dvstar, const real* dout, const real* out,
                        const acc* stat, const real* qkv, const real* kstar, const real* vstar,
                        const acc* turns, AttnShape s) {
    const bool mma = on_tensor_cores(s, {dqkv, dout, qkv, turns});
    const long rows = (long)s.B * s.NH * s.T, star_tiles = CEIL_DIV(s.T, STAR_ROWS);
    const long parts = s.B * (s.NH / s.KV) * star_tiles, width = s.KV * s.HS;
    const long panels = mma ? 0 : panels_scratch(s),
               stars = Bi::column != NO_COLUMN ? 2 * rows + 2 * parts * width : 0;
    const int TP = rows_padded(s.T);
    const long all_rows = (long)s.B * s.NH * TP + 64;
    const size_t ds = mma ? ds_bytes(s) : 0;
    bf16* cells = (bf16*)device_scratch(ds + (2 * all_rows + stars + panels) * sizeof(float));
    float* scratch = (float*)((char*)cells + ds);
    float *panel = scratch + 2 * all_rows, *star = panel + panels;
    const RowStats r = { scratch, star, star + rows, TP };
    LAUNCH((attention_rows_kernel<A, Bi>), dim3((unsigned)CEIL_DIV(all_rows, 4)), dim3(128), 0,
           r, dout, out, stat, qkv, kstar, vstar, s);
    if (!mma) {
        attention_dqkv_panels<A, Bi, Pe>(dqkv, dout, stat, r, qkv, kstar, s, panel);
    }
    const bool turn_last = turns && (!mma || s.rot != s.HS); // in the kernels a whole head turns
    const acc* turn_now = turn_last ? NULL : turns;
    if constexpr (sizeof(real) == 2) {
        #define X(D) \
            if (mma && s.HS == D) { \
                attention_dqkv_mma<A, Bi, Pe, D>(dqkv, dout, r, qkv, kstar, turn_now, s, cells); \
            }
        MMA_HEADS(X)
        #undef X
    }
    if (turn_last) { rope(dqkv, turns, -1, s); }
    if (Bi::column) {
        float *part_k = star + 2 * rows, *part_v = part_k + parts * width;
        LAUNCH(attention_dstar_kernel, dim3(s.B * s.NH, star_tiles), dim3(128), 0, part_k, part_v,
               dout, r, qkv, s);
        // shared: (parts KV, HS), the same floats
        const long K = s.bias_shared ? parts * s.KV : parts;
        const int C = s.bias_shared ? s.HS : width;
        if (Bi::column == LOGIT_COLUMN && dkstar) {
            LAUNCH(attention_dlogit_kernel, dim3(s.bias_shared ? 1 : s.NH), dim3(128), 0, dkstar, r,
                   s);
        } else if (dkstar) { column_sum_part(dkstar, part_k, K, C, s.HS, s.k_dims); }
        if (dvstar) { column_sum(dvstar, part_v, K, C, C); }
    }
}
} // namespace cuda
#endif // CUDA_ATTENTION_CUH
