/*
test/gpu/test_hopper.cu -- Hopper's kernels of attention against the CPU and the simple kernels:
every ATTN at head dimensions 32, 64, 96 and 128, tiles that are full, ragged and partly masked. In
the emulator; schedules, and products that are done at once or as late as they may be, take turns.
    g++ -x c++ -std=c++17 -O1 -DEMU -DHOPPER -DPRECISION=bf16 -fno-strict-aliasing \
        -fstack-clash-protection -I$CUDA/include -Idev/emulator test/gpu/test_hopper.cu
'-DMMA_HEADS(X)=X(96)' only this head dimension; -DFEW only softmax, every schedule, late and at
once: for planted bugs (dev/emulator/mutants.sh).
*/
#ifndef MMA_HEADS
#define MMA_HEADS(X) X(32) X(64) X(96) X(128)
#endif
#include "../../reference.h"
#include "../../cuda/attention.cuh"
#include "../../cuda/attention_common.cu"
#include "../../cuda/attention_dqk.cu"
#include "../../cuda/attention_simple.cuh"
#include "../check.h"
using namespace cuda;

static Rng rng = rng_stream(7, 0);
static std::vector<void*> allocated;

template <class T> T* reserve(size_t n) {
    allocated.push_back(device_reserve(n * sizeof(T)));
    return (T*)allocated.back();
}

// Random numbers, rounded to bf16, on the CPU and on the GPU.
struct Inputs {
    std::vector<float> cpu;
    bf16* gpu;
    explicit Inputs(size_t n, bool positive = false) : cpu(n) {
        std::vector<bf16> narrow;
        for (float& x : cpu) {
            const double drawn = rng_normal(&rng);
            narrow.push_back(bf16((float)(positive ? fabs(drawn) : drawn)));
            x = (float)narrow.back();
        }
        gpu = reserve<bf16>(n);
        to_device(gpu, narrow.data(), n * sizeof(bf16));
    }
};

template <class T> std::vector<float> read_back(const T* p, size_t n) {
    std::vector<T> x(n);
    to_host(x.data(), p, n * sizeof(T));
    return { x.begin(), x.end() };
}

// Compares by the root mean square and by the worst number, relative to the largest.
static void same(const std::string& what, const std::vector<float>& got,
                 const std::vector<float>& want, double most) {
    double error = 0, size = 0, worst = 0, largest = 0.1;
    for (size_t i = 0; i < got.size(); i++) {
        const double apart = fabs((double)got[i] - want[i]);
        error += apart * apart;
        size += (double)want[i] * want[i];
        worst = apart <= worst ? worst : apart;          // NaN stays
        largest = std::max(largest, fabs((double)want[i]));
    }
    const double relative = sqrt(error / size);
    CHECK(relative < most && worst < 3 * most * largest,
          "%s: relative error %.2e, worst %.2e of %.2e", what.c_str(), relative, worst, largest);
}

// What attention gives back.
struct Results { std::vector<float> out, stat, dqkv; };

static void same(const std::string& what, const Results& got, const Results& want) {
    same(what + ", out", got.out, want.out, 6e-3);
    same(what + ", stat", got.stat, want.stat, 2e-3);
    same(what + ", dqkv", got.dqkv, want.dqkv, 8e-3);
}

// As attention_backward does it.
template <class A, class Bi, class Pe, int HS>
static void backward_wgmma(bf16* dqkv, const bf16* dout, AttnResult<real, acc> result,
                           const AttnInputs& in) {
    const long rows = rows_all(in.s);
    bf16* cells = reserve<bf16>(ds_bytes(in.s) / sizeof(bf16));
    const RowStats r = rows_in(reserve<float>(2 * rows),
                               reserve<float>(2 * query_count(in.s)), in.s);
    attention_rows<A, Bi>(r, dout, result, in, true);
    const DqkInputs rest = dqk_inputs<Bi>(in, r, NULL);
    each_chunk(cells, in.s, [&](const DsChunk& c) {
        attention_dkv_wgmma<A, Pe, HS>(dqkv, c, dout, r, rest);
        attention_dq(dqkv, c, rest);
    });
}

// One way of computing attention: by Hopper's kernels or by the simple ones.
template <class A, class Bi, class Pe, int HS>
static Results computed(bool simple, const AttnInputs& in, const Inputs& dout) {
    const AttnShape& s = in.s;
    const size_t N = (size_t)s.B * s.T, O = N * s.NH * s.HS, W = N * attn_row(s);
    bf16 *out = reserve<bf16>(O), *dqkv = reserve<bf16>(W);
    acc* stat = reserve<acc>(N * s.NH * 2);
    if (simple) {
        attention_simple_forward<A, Bi, Pe>(out, stat, in);
        attention_simple_backward<A, Bi, Pe>(dqkv, dout.gpu, out, stat, in);
    } else {
        attention_forward_wgmma<A, Bi, Pe, HS>(out, stat, in);
        backward_wgmma<A, Bi, Pe, HS>(dqkv, dout.gpu, { out, stat }, in);
    }
    return { read_back(out, O), read_back(stat, N * s.NH * 2), read_back(dqkv, W) };
}

template <class A, class Bi, class Pe>
static Results on_cpu(const Inputs& qkv, ExtraKey<const float> star, const Inputs& dout,
                      const AttnShape& s) {
    Results r;
    r.out.resize(dout.cpu.size());
    r.stat.resize((size_t)s.B * s.T * s.NH * 2);
    r.dqkv.resize(qkv.cpu.size());
    ref::attention_forward<A, Bi, Pe>(r.out.data(), r.stat.data(), qkv.cpu.data(), star, s);
    ref::attention_backward<A, Bi, Pe>(r.dqkv.data(), {}, dout.cpu.data(),
                                       { r.out.data(), r.stat.data() }, qkv.cpu.data(), star, NULL,
                                       s);
    return r;
}

template <class A, class Bi, class Pe, int HS>
static void test_one(const char* name, AttnShape s) {
    s.scale = 1 / sqrt((double)s.HS);
    s.rot = s.k_dims = s.HS;
    s.p = 2;
    s.alpha = 1;
    s.cap = 1.5;
    const std::string what = strf("%s, B %d T %d NH %d KV %d HS %d window %d prefix %d", name, s.B,
                                  s.T, s.NH, s.KV, s.HS, s.window, s.prefix);
    const size_t N = (size_t)s.B * s.T, S = (size_t)s.KV * s.HS;
    const Inputs qkv(N * attn_row(s), A::phi == PHI_ELU1), dout(N * s.NH * s.HS), ks(S), vs(S);
    const bool key = Bi::column != NO_COLUMN && Bi::learn_k;
    const bool value = Bi::column != NO_COLUMN;
    const ExtraKey<const float> star = { key ? ks.cpu.data() : NULL,
                                           value ? vs.cpu.data() : NULL };
    const AttnInputs in = { qkv.gpu, { key ? ks.gpu : NULL, value ? vs.gpu : NULL }, s };
    const Results got = computed<A, Bi, Pe, HS>(false, in, dout);
    same(what + ", CPU", got, on_cpu<A, Bi, Pe>(qkv, star, dout, s));
    // these take a second: few shapes
    if (s.T < 100) { same(what + ", simple", got, computed<A, Bi, Pe, HS>(true, in, dout)); }
    for (void* p : allocated) { device_free(p); }
    allocated.clear();
}

// Tests one variant at every head dimension: whole tiles, the diagonal and a ragged end; then a
// window and a prefix, which leave out tiles between them, two heads of queries for one of keys;
// then sequences shorter than a tile.
template <class A, class Bi, class Pe> static void test(const char* name) {
    static int turn;
    const emu::Sched schedules[] = { emu::FWD, emu::REV, emu::PCT };
#define X(HS) \
    emu::settings.sched = schedules[turn % 3]; \
    emu::settings.eager = turn++ % 2; \
    test_one<A, Bi, Pe, HS>(name, { 1, 260, 1, 1, HS }); \
    emu::settings.eager = turn % 2; \
    test_one<A, Bi, Pe, HS>(name, { 1, 201, 2, 1, HS, 20, 130 }); \
    test_one<A, Bi, Pe, HS>(name, { 2, 33, 1, 1, HS });
    MMA_HEADS(X)
#undef X
}

int main() {
    emu::settings.hopper = true;
    device_start();
#ifdef FEW
    for (int i = 0; i < 6; i++) { test<Attn_softmax, Bias_none, Pe_rotary>("softmax"); }
#else
    test<Attn_softmax, Bias_none, Pe_rotary>("softmax");
    // every ATTN; BIAS and PE take turns
#define X_ATTN(a, ...) \
    test<Attn_##a, std::conditional_t<Attn_##a::phi == PHI_NONE, Bias_kv, Bias_none>, Pe_alibi>(#a);
    ATTN_VARIANTS(X_ATTN)
    test<Attn_softmax, Bias_logit, Pe_relative>("softmax, logit, relative");
#endif
    return check_done();
}
