/*
attention.cuh -- attention of the CUDA backend. Parameters and layouts are those of reference.h.
There are three ways:

    on tensor cores   bf16 and the head dimensions of MMA_HEADS, but for ATTN=softmax_clip: scores
                      live in registers only
    on Hopper's       the same on a card of compute capability 9.0, by its own instructions, for
                      head dimensions up to 128
    by panels         all else: the scores of some hundred queries at a time go to memory, and
                      cuBLAS makes the products

and a fourth that is slow and easy to read, which the tests compare them with: begin there,
test/gpu/attention_simple.cuh. None allocates a T x T tensor. Sums belong to one block, or one
product, which adds in a fixed order: no atomics, and the same seed gives the same bits. All go
through attention_score.cuh, so that a variant is written once.
*/
#ifndef CUDA_ATTENTION_CUH
#define CUDA_ATTENTION_CUH
#include "attention_backward.cuh"
#include "attention_forward.cuh"
#include "attention_panels.cuh"
#ifdef HOPPER
#include "hopper/backward.cuh"
#include "hopper/forward.cuh"
#endif

namespace cuda {
inline bool on_tensor_cores(const AttnShape& s, std::initializer_list<const void*> pointers) {
    return sizeof(real) == 2 && wide(s.HS, pointers) && is_mma_head(s.HS);
}

// Tells whether tensor cores have this operation: clipped weights need Z before the sum over v.
template <class A> constexpr bool one_pass = sizeof(real) == 2 && A::clip == NO_CLIP;

// Computes out and stat on tensor cores. rope_table: to turn q and k with first, or NULL
template <class A, class Bi, class Pe, int HS>
void attention_forward_tensor(bf16* out, acc* stat, const AttnInputs& in, real* qkv,
                              const acc* rope_table) {
#ifdef HOPPER
    if constexpr (hopper_head(HS)) {
        if (gpu.hopper) {
            real* k = qkv + in.s.NH * HS;
            if (rope_table) { rope_heads(k, in.s.KV, rope_table, +1, in.s); }
            return attention_forward_wgmma<A, Bi, Pe, HS>(out, stat, in, qkv, rope_table);
        }
    }
#endif
    if (rope_table) { rope(qkv, rope_table, +1, in.s); }
    attention_forward_mma<A, Bi, Pe, HS>(out, stat, in);
}

// Computes dqkv of a chunk on tensor cores.
template <class A, class Pe, int HS>
void attention_dqkv_chunk(bf16* dqkv, const DsChunk& c, const bf16* dout, RowStats r,
                          const DqkInputs& in) {
#ifdef HOPPER
    if constexpr (hopper_head(HS)) {
        if (gpu.hopper) {
            attention_dkv_wgmma<A, Pe, HS>(dqkv, c, dout, r, in);
            return attention_dq(dqkv, c, in);
        }
    }
#endif
    attention_dv_mma<A, Pe, HS>(dqkv, c, dout, r, in);
    attention_dqk(dqkv, c, in);
}

// Computes dqkv on tensor cores, chunk by chunk. ds: memory of ds_bytes. rope_table: or NULL
template <class A, class Bi, class Pe, int HS>
void attention_dqkv_tensor(bf16* dqkv, const bf16* dout, RowStats r, const AttnInputs& in,
                           const acc* rope_table, bf16* ds) {
    const DqkInputs rows = dqk_inputs(Bi::extra, in, r, rope_table);
    for (const DsChunk& c : ds_chunks(ds, in.s)) {
        attention_dqkv_chunk<A, Pe, HS>(dqkv, c, dout, r, rows);
    }
}

// rope_table: to turn q and k, whole heads, with first, in place, or NULL
template <class A, class Bi, class Pe>
void attention_forward(real* out, acc* stat, real* qkv, ExtraKey<const real> extra,
                       const acc* rope_table, AttnShape s) {
    const AttnInputs in = { qkv, extra, s };
    const bool tensor = one_pass<A> && on_tensor_cores(s, { out, qkv, rope_table });
    if (!tensor) {
        if (rope_table) { rope(qkv, rope_table, +1, s); }
        return attention_forward_panels<A, Bi, Pe>(out, stat, in);
    }
    if constexpr (one_pass<A>) {
        with_head_dim(s.HS, [&](auto HS) {
            attention_forward_tensor<A, Bi, Pe, HS.value>(out, stat, in, qkv, rope_table);
        });
    }
}

// Computes dqkv and the gradients of the extra key. rope_table: to turn dq and dk back with, or
// NULL. dqkv first holds what clipped rows give by their slopes.
template <class A, class Bi, class Pe>
void attention_backward(real* dqkv, ExtraKey<acc> dextra, const real* dout,
                        AttnResult<real, acc> result, const real* qkv, ExtraKey<const real> extra,
                        const acc* rope_table, AttnShape s) {
    const AttnInputs in = { qkv, extra, s };
    const bool mma = one_pass<A> && on_tensor_cores(s, { dqkv, dout, qkv, rope_table });
    if constexpr (A::clip != NO_CLIP) {
        attention_forward_panels<ClipSlopes<A>, Bi, Pe>(dqkv, NULL, in);
        result.out = dqkv;
    }
    // One piece of memory holds, in this order: cells of ds, rows, panels, the extra key's
    // numbers of each row, and its partial sums.
    const bool has_extra = Bi::extra != NO_EXTRA;
    const long rows = query_count(s);
    const long all_rows = rows_all(s);
    const long panels = mma ? 0 : panel_scores(s) + 2 * panel_sums(s);
    const long extra_floats = has_extra ? 2 * rows + 2 * extra_parts(s) * s.KV * s.HS : 0;
    const size_t ds = mma ? ds_bytes(s) : 0;
    const long floats = 2 * all_rows + panels + extra_floats;
    bf16* cells = (bf16*)device_scratch(ds + floats * sizeof(float));
    float* row = (float*)((char*)cells + ds);
    float* panel = row + 2 * all_rows;
    float* extra_memory = panel + panels;
    const RowStats r = rows_in(row, extra_memory, s);
    attention_rows<A, Bi>(r, dout, result, in, mma && wide(s.HS, { result.out }));
    if (!mma) { attention_dqkv_panels<A, Bi, Pe>(dqkv, dout, result.stat, r, in, panel); }
    // in the kernels a whole head rope_table
    const bool turn_last = rope_table && (!mma || s.rot != s.HS);
    const acc* turn_now = turn_last ? NULL : rope_table;
    if constexpr (one_pass<A>) {
        if (mma) {
            with_head_dim(s.HS, [&](auto HS) {
                attention_dqkv_tensor<A, Bi, Pe, HS.value>(dqkv, dout, r, in, turn_now, cells);
            });
        }
    }
    if (turn_last) { attention_turn_back(dqkv, rope_table, s); }
    if (has_extra) {
        attention_extra_backward(Bi::extra, dextra, extra_memory + 2 * rows, dout, r, in);
    }
}
} // namespace cuda
#endif // CUDA_ATTENTION_CUH
