/*
test/gpu/test_hopper.cu -- Hopper's kernels of attention against the CPU and the simple kernels:
every ATTN at head dimensions 32, 64, 96 and 128, tiles that are full, ragged and partly masked. In
the emulator; schedules, and products that are done at once or as late as they may be, take turns.
    g++ -x c++ -std=c++17 -O1 -DEMU -DHOPPER -DPRECISION=bf16 -fno-strict-aliasing \
        -fstack-clash-protection -I$CUDA/include -Idev/emulator test/gpu/test_hopper.cu
'-DMMA_HEADS(X)=X(96)' only this head dimension; -DFEW only softmax, every schedule, late and at
once: for planted bugs (dev/emulator/mutants.sh); -DFOR_PTX one variant of each kind of tile: as PTX
(test_ptx.sh); -DOWN_CHECK nothing but the program's own check, which has to see planted bugs, too.
*/
#ifndef MMA_HEADS
#define MMA_HEADS(X) X(32) X(64) X(96) X(128)
#endif
#include "../../attention_variants.cuh"
#include "../../reference.h"
#include "../../cuda/attention.cuh"
#include "../../cuda/attention_common.cu"
#include "../../cuda/attention_dqk.cu"
#ifdef OWN_CHECK
#include "../../cuda/hopper/check.cuh"
#endif
#include "../check.h"
#include "attention_simple.cuh"
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

// What a test calls: functions of a variant, and those of one head dimension.
struct Variant {
    const char* name;
    bool positive, key, value;           // q and k; whether there are k* and v*
    decltype(&ref::attention_forward<Attn_softmax, Bias_none, Pe_nope>) cpu_forward;
    decltype(&ref::attention_backward<Attn_softmax, Bias_none, Pe_nope>) cpu_backward;
    decltype(&attention_simple_forward<Attn_softmax, Bias_none, Pe_nope>) simple_forward;
    decltype(&attention_simple_backward<Attn_softmax, Bias_none, Pe_nope>) simple_backward;
    decltype(&attention_rows<Attn_softmax, Bias_none>) rows;
    ExtraKind extra;
};
struct Kernels {
    decltype(&attention_forward_wgmma<Attn_softmax, Bias_none, Pe_nope, 64>) forward;
    decltype(&attention_dkv_wgmma<Attn_softmax, Pe_nope, 64>) dkv;
};

// As attention_backward does it.
static void backward_wgmma(const Variant& v, const Kernels& k, bf16* dqkv, const bf16* dout,
                           AttnResult<real, acc> result, const AttnInputs& in) {
    const long rows = rows_all(in.s);
    bf16* cells = reserve<bf16>(ds_bytes(in.s) / sizeof(bf16));
    const RowStats r = rows_in(reserve<float>(2 * rows),
                               reserve<float>(2 * query_count(in.s)), in.s);
    v.rows(r, dout, result, in, true);
    const DqkInputs rest = dqk_inputs(v.extra, in, r, NULL);
    for (const DsChunk& c : ds_chunks(cells, in.s)) {
        k.dkv(dqkv, c, dout, r, rest);
        attention_dq(dqkv, c, rest);
    }
}

// One way of computing attention: by Hopper's kernels or by the simple ones.
static Results computed(const Variant& v, const Kernels& k, bool simple, const AttnInputs& in,
                        const Inputs& dout) {
    const AttnShape& s = in.s;
    const size_t N = (size_t)s.B * s.T, O = N * s.NH * s.HS, W = N * attn_row(s);
    bf16 *out = reserve<bf16>(O), *dqkv = reserve<bf16>(W);
    acc* stat = reserve<acc>(N * s.NH * 2);
    if (simple) {
        v.simple_forward(out, stat, in);
        v.simple_backward(dqkv, dout.gpu, out, stat, in);
    } else {
        k.forward(out, stat, in, NULL, NULL);
        backward_wgmma(v, k, dqkv, dout.gpu, { out, stat }, in);
    }
    return { read_back(out, O), read_back(stat, N * s.NH * 2), read_back(dqkv, W) };
}

static Results on_cpu(const Variant& v, const Inputs& qkv, ExtraKey<const float> extra,
                      const Inputs& dout, const AttnShape& s) {
    Results r;
    r.out.resize(dout.cpu.size());
    r.stat.resize((size_t)s.B * s.T * s.NH * 2);
    r.dqkv.resize(qkv.cpu.size());
    std::vector<float> in = qkv.cpu;
    v.cpu_forward(r.out.data(), r.stat.data(), in.data(), extra, NULL, s);
    v.cpu_backward(r.dqkv.data(), {}, dout.cpu.data(), { r.out.data(), r.stat.data() },
                   qkv.cpu.data(), extra, NULL, s);
    return r;
}

// A forward pass that turns q against rope by itself: the same bits of qkv, out and stat.
static void test_turned(const std::string& what, const Kernels& k, const Inputs& qkv,
                        AttnInputs in) {
    const AttnShape& s = in.s;
    const size_t N = (size_t)s.B * s.T, O = N * s.NH * s.HS, W = N * attn_row(s), S = N * s.NH * 2;
    std::vector<acc> table;
    for (int i = 0; i < s.T * s.HS / 2; i++) {
        table.push_back(cosf(i));
        table.push_back(sinf(i));
    }
    acc* rope_table = reserve<acc>(table.size());
    to_device(rope_table, table.data(), table.size() * sizeof(acc));
    std::vector<float> results[2];
    for (const acc* in_kernel : { (const acc*)rope_table, (const acc*)NULL }) {
        const std::vector<bf16> narrow(qkv.cpu.begin(), qkv.cpu.end());
        bf16 *x = reserve<bf16>(W), *out = reserve<bf16>(O);
        acc* stat = reserve<acc>(S);
        to_device(x, narrow.data(), W * sizeof(bf16));
        in.qkv = x;
        if (in_kernel) { rope_heads(x + s.NH * s.HS, s.KV, rope_table, +1, s); }
        else { rope(x, rope_table, +1, s); }
        k.forward(out, stat, in, x, in_kernel);
        std::vector<float>& all = results[!in_kernel];
        for (float number : read_back(x, W)) { all.push_back(number); }
        for (float number : read_back(out, O)) { all.push_back(number); }
        for (float number : read_back(stat, S)) { all.push_back(number); }
    }
    CHECK(results[0] == results[1], "%s: not the bits of rope", what.c_str());
}

static void test_one(const Variant& v, const Kernels& k, AttnShape s) {
    s.scale = 1 / sqrt((double)s.HS);
    s.rot = s.k_dims = s.HS;
    s.p = 2;
    s.alpha = 1;
    s.cap = 1.5;
    const std::string what = strf("%s, B %d T %d NH %d KV %d HS %d window %d prefix %d", v.name,
                                  s.B, s.T, s.NH, s.KV, s.HS, s.window, s.prefix);
    const size_t N = (size_t)s.B * s.T, S = (size_t)s.KV * s.HS;
    const Inputs qkv(N * attn_row(s), v.positive), dout(N * s.NH * s.HS), ks(S), vs(S);
    const ExtraKey<const float> extra = { v.key ? ks.cpu.data() : NULL,
                                         v.value ? vs.cpu.data() : NULL };
    const AttnInputs in = { qkv.gpu, { v.key ? ks.gpu : NULL, v.value ? vs.gpu : NULL }, s };
    const Results got = computed(v, k, false, in, dout);
    same(what + ", CPU", got, on_cpu(v, qkv, extra, dout, s));
    // these take a second: few shapes
    if (s.T < 100) { same(what + ", simple", got, computed(v, k, true, in, dout)); }
    if (s.window) { test_turned(what + ", turned", k, qkv, in); }
    for (void* p : allocated) { device_free(p); }
    allocated.clear();
}

// Chooses a schedule, and whether products are done at once.
static void set_order(int schedule, bool eager) {
#ifdef EMU
    const emu::Sched schedules[] = { emu::FWD, emu::REV, emu::PCT };
    emu::settings.sched = schedules[schedule];
    emu::settings.eager = eager;
    emu::settings.hopper = true;
#endif
}

// Tests one variant at one head dimension: whole tiles, the diagonal and a ragged end; then a
// window and a prefix, which leave out tiles between them, two heads of queries for one of keys;
// then sequences shorter than a tile.
static void test_heads(const Variant& v, const Kernels& k, int HS) {
    static int turn;
    set_order(turn % 3, turn % 2);
    test_one(v, k, { 1, 260, 1, 1, HS });
    set_order(turn % 3, !(turn % 2));
    test_one(v, k, { 1, 201, 2, 1, HS, 20, 130 });
    test_one(v, k, { 2, 33, 1, 1, HS });
    turn++;
}

template <class A, class Bi, class Pe> static void test(const char* name) {
    const bool has_extra = Bi::extra != NO_EXTRA;
    const Variant v = { name, A::phi == PHI_ELU1, has_extra && Bi::learn_k, has_extra,
                        ref::attention_forward<A, Bi, Pe>, ref::attention_backward<A, Bi, Pe>,
                        attention_simple_forward<A, Bi, Pe>, attention_simple_backward<A, Bi, Pe>,
                        attention_rows<A, Bi>, Bi::extra };
#define X(HS) \
    test_heads(v, { attention_forward_wgmma<A, Bi, Pe, HS>, attention_dkv_wgmma<A, Pe, HS> }, HS);
    MMA_HEADS(X)
#undef X
}

// Tests one ATTN with an extra key, if it has none of its own mathematics for q and k, and with
// slopes: of kernel_elu_norm they make positive scores negative, the sum nearly cancels, and 1 / Z
// magnifies the rounding.
template <class A> static void test_attn(const char* name) {
    constexpr bool cancels = A::phi == PHI_ELU1 && A::Z == Z_SUM;
    typedef std::conditional_t<A::phi == PHI_NONE, Bias_kv, Bias_none> Bi;
    if constexpr (one_pass<A>) {
        test<A, Bi, std::conditional_t<cancels, Pe_nope, Pe_alibi>>(name);
    }
}

#if !defined(FEW) && !defined(FOR_PTX) && !defined(OWN_CHECK)
// Two sigmoids share a reciprocal: of scores far below 0, and of masked ones, nothing may be left;
// of NaN NaN.
static void test_tiny_weights(float shift) {
    AttnShape s = { 1, 150, 1, 1, 32 };
    s.scale = 0.1;
    s.alpha = 1;
    s.shift = shift;
    const Inputs qkv(s.T * attn_row(s), false);
    const size_t O = s.T * s.HS;
    bf16* out = reserve<bf16>(O);
    const AttnInputs in = { qkv.gpu, {}, s };
    attention_forward_wgmma<Attn_sigmoid, Bias_none, Pe_nope, 32>(out, reserve<acc>(2 * s.T), in,
                                                                  NULL, NULL);
    const std::vector<float> got = read_back(out, O);
    const auto right = [=](float x) { return std::isnan(shift) ? std::isnan(x) : x == 0; };
    CHECK(std::all_of(got.begin(), got.end(), right), "sigmoid of scores near %g: wrong numbers",
          shift);
}
#endif

int main() {
    set_order(0, false);
    device_start();
#ifdef OWN_CHECK
    setenv("HOPPER_CHECK", "0", 1);
    CHECK((hopper_check<Attn_softmax, Bias_none, Pe_rotary>() == 0), "it says no");
#elif defined(FEW)
    for (int i = 0; i < 6; i++) { test<Attn_softmax, Bias_none, Pe_rotary>("softmax"); }
#elif defined(FOR_PTX)
    test<Attn_softmax, Bias_none, Pe_rotary>("softmax");
    test<Attn_sigmoid, Bias_kv, Pe_alibi>("sigmoid");
#else
    test<Attn_softmax, Bias_none, Pe_rotary>("softmax");
    // every ATTN; BIAS and PE take turns
#define X_ATTN(a, ...) test_attn<Attn_##a>(#a);
    ATTN_VARIANTS(X_ATTN)
    test<Attn_softmax, Bias_logit, Pe_relative>("softmax, logit, relative");
    for (float shift : { -45.0f, -100.0f, NAN }) { test_tiny_weights(shift); }
#endif
    return check_done();
}
