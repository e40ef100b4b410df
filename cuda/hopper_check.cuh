/*
hopper_check.cuh -- whether attention can go by Hopper's kernels: what they need, and before they
are trusted, a small batch beside the kernels of other cards.
*/
#ifndef CUDA_HOPPER_CHECK_CUH
#define CUDA_HOPPER_CHECK_CUH
#include "attention.cuh"

namespace cuda {
// Returns n numbers between -1 and 1; positive: between 0 and 1, for queries and keys, because some
// variants divide by sums of their products.
inline std::vector<real> check_numbers(size_t n, bool positive) {
    std::vector<real> x;
    uint32_t state = 1;
    for (size_t i = 0; i < n; i++) {
        state = state * 1664525u + 1013904223u;
        const float drawn = state / 0x1p31f - 1;
        x.push_back(real(positive ? fabsf(drawn) : drawn));
    }
    return x;
}

inline real* to_new_memory(const std::vector<real>& x) {
    real* p = (real*)device_malloc(x.size() * sizeof(real));
    to_device(p, x.data(), x.size() * sizeof(real));
    return p;
}

// Returns out and dqkv of attention as the program computes it now.
template <class A, class Bi, class Pe>
std::vector<real> check_results(real* qkv, const real* dout, ExtraKey<const real> extra,
                                const AttnShape& s) {
    const size_t rows = (size_t)s.B * s.T;
    const size_t outs = rows * s.NH * s.HS;
    std::vector<real> results(outs + rows * attn_row(s));
    real* out = (real*)device_malloc(results.size() * sizeof(real));
    acc* stat = (acc*)device_malloc(2 * rows * s.NH * sizeof(acc));
    attention_forward<A, Bi, Pe>(out, stat, qkv, extra, NULL, s);
    attention_backward<A, Bi, Pe>(out + outs, {}, dout, { out, stat }, qkv, extra, NULL, s);
    to_host(results.data(), out, results.size() * sizeof(real));
    device_free(out);
    device_free(stat);
    return results;
}

// Tells whether both ways agree on a small batch: a tile of keys that is whole, one on the diagonal
// and one that is ragged.
template <class A, class Bi, class Pe> bool hopper_agrees(int group, int HS) {
    AttnShape s = {};
    s.B = s.KV = 1;
    s.T = 200;
    s.NH = group;
    s.HS = s.k_dims = s.rot = HS;
    s.p = s.alpha = s.cap = 1;
    s.scale = 1 / sqrt((double)HS);
    const size_t rows = (size_t)s.T;
    real* qkv = to_new_memory(check_numbers(rows * attn_row(s), true));
    real* dout = to_new_memory(check_numbers(rows * group * HS, false));
    real* k_star = to_new_memory(check_numbers(HS, true));
    const ExtraKey<const real> extra = { Bi::learn_k ? k_star : NULL,
                                          Bi::learn_v && Bi::column ? dout : NULL };
    use_hopper(true);
    const std::vector<real> got = check_results<A, Bi, Pe>(qkv, dout, extra, s);
    use_hopper(false);
    const std::vector<real> want = check_results<A, Bi, Pe>(qkv, dout, extra, s);
    for (real* p : { qkv, dout, k_star }) { device_free(p); }
    double error = 0;
    double size = 0;
    for (size_t i = 0; i < got.size(); i++) {
        const double apart = (double)(float)got[i] - (double)(float)want[i];
        error += apart * apart;
        size += (double)(float)want[i] * (double)(float)want[i];
    }
    return error <= 4e-4 * size;                         // 2%; rounding is 0.4%; not for NaN
}

// Returns why attention of such heads does not go by Hopper's kernels, or nothing. The first call
// checks them.
template <class A, class Bi, class Pe> std::string hopper_lacks(int NH, int KV, int HS) {
    device_start();
    if (!hopper_built) { return "got a program without these kernels, wanted GPU_ARCH=sm_90a"; }
    if (!hopper_here) { return "got " + device_name + ", wanted a card of sm_90"; }
    if (sizeof(real) != 2) { return "got PRECISION=fp32, wanted bf16"; }
    if (!one_pass<A>) { return "got an ATTN that clips its weights, wanted another"; }
    bool has_kernel = false;
#define X(HEAD) has_kernel |= HS == HEAD && hopper_head<HEAD>;
    MMA_HEADS(X)
#undef X
    if (!has_kernel) { return strf("got heads of %d channels, wanted 32, 64, 96 or 128", HS); }
    static std::map<int, bool> agrees;                   // by head dimension
    if (!agrees.count(HS)) {
        agrees[HS] = hopper_agrees<A, Bi, Pe>(NH / KV, HS);
        if (!agrees[HS]) {
            printf("note   Hopper's kernels of attention fail their check here: those of other "
                   "cards are taken\n");
        }
    }
    return agrees[HS] ? "" : "they fail their check on this card";
}
} // namespace cuda
#endif // CUDA_HOPPER_CHECK_CUH
