/*
test/gpu/test_cuda.cu -- every CUDA operation and every attention variant against namespace cpu,
at ragged shapes.

Without a GPU, in the emulator (three schedules in one run, whose results must have the same bits):
    g++ -x c++ -std=c++17 -O2 -DEMU -DPRECISION=fp32 -fno-strict-aliasing \
        -fstack-clash-protection -fopenmp \
        -I$CUDA/include -Idev/emulator test/gpu/test_cuda.cu -o test_cuda && ./test_cuda
On a GPU:
    nvcc -std=c++17 -O2 -arch=native -DPRECISION=bf16 -Xcompiler -fopenmp \
        test/gpu/test_cuda.cu -lcublasLt -o test_cuda && \
        ./test_cuda
PRECISION=bf16 gives the reference the rounded inputs and allows for the rounding of outputs.
Tolerances are relative to the largest element of a tensor: fp32 sums of a few hundred products
in another order differ by 1e-6 or so, bf16 has 8 bits.
A variant added to the tables of attention_variants.cuh is tested without touching this file.
*/
#include "../../cpu/attention.h"
#include "../../cpu/metrics.h"
#include "../../cpu/training.h"
#include "../../cuda/attention.cuh"
#include "../../cuda/attention_common.cu"
#include "../../cuda/attention_dqk.cu"
#include "../../cuda/magnitudes.cuh"
#include "../../cuda/metrics.cuh"
#include "../../cuda/ops.cuh"
#include "../check.h"
#include "attention_simple.cuh"

// ----------------------------------------------------------------------------
// one signature for both backends

#define SAME(...) \
    static_assert(sizeof(cuda::real) != 4 || \
                  std::is_same<decltype(&cpu::__VA_ARGS__), decltype(&cuda::__VA_ARGS__)>::value, \
                  "parameters differ between cpu:: and cuda::" #__VA_ARGS__)
SAME(tune_products); SAME(device_malloc); SAME(device_free); SAME(device_zero);
SAME(to_device); SAME(to_host);
SAME(matmul_forward); SAME(matmul_backward_input);
SAME(matmul_backward_weight); SAME(matmul_backward_bias);
SAME(embed_forward); SAME(norm_forward); SAME(norm_backward);
SAME(qk_norm_forward); SAME(qk_norm_backward); SAME(classifier);
SAME(square_norm);
SAME(average);
SAME(adamw_update);    // not the metrics: on the CPU they take any type
// what is a template of the type of tensors on the CPU
#define SAME_OF_ANY(name) \
    static_assert(sizeof(cuda::real) != 4 || \
                  std::is_same<decltype(&cpu::name<float>), decltype(&cuda::name)>::value, \
                  "parameters differ between cpu:: and cuda::" #name)
SAME_OF_ANY(embed_backward);
SAME_OF_ANY(gate_forward); SAME_OF_ANY(gate_backward);
SAME_OF_ANY(heads_forward); SAME_OF_ANY(heads_backward);
SAME_OF_ANY(ffn_forward); SAME_OF_ANY(ffn_backward);
SAME_OF_ANY(muon_begin); SAME_OF_ANY(muon_mix); SAME_OF_ANY(muon_end);
SAME_OF_ANY(sgd_update);
SAME(attention_forward<Attn_softmax, Bias_kv, Pe_alibi>);
SAME(attention_backward<Attn_softmax, Bias_kv, Pe_alibi>);

// ----------------------------------------------------------------------------
// tensors that exist twice

static const bool IS_BF16 = sizeof(cuda::real) == 2;
static const double TOL = IS_BF16 ? 1e-2 : 1e-5;
#ifdef __SANITIZE_THREAD__
// ThreadSanitizer knows 8000 threads at most, and maps memory for each: 3000 fit
static const bool SMALL = true;
#else
static const bool SMALL = false;
#endif
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__) || defined(PTX_RUN)
// slow, and what they find does not hang on the order of threads: one schedule
static const bool ONE_SCHEDULE = true;
#else
static const bool ONE_SCHEDULE = false;
#endif
static Rng rng;
// normal numbers, the same for every schedule: to draw them takes longer than to compute with them
static float normal(bool from_first = false) {
    static std::vector<float> numbers;
    static Rng stream = rng_stream(4, 1);
    static size_t next = 0;
    if (from_first) { next = 0; }
    if (next == 1 << 22) { next = 0; }
    if (next == numbers.size()) { numbers.push_back((float)rng_normal(&stream)); }
    return numbers[next++];
}
static uint64_t results;          // a hash of all that came back: must not depend on the schedule

static float rounded(float x) { return (float)cuda::real(x); }
struct Tensor {
    std::vector<float> cpu;
    void* gpu; bool real; // cuda::real, or float
    float* c() { return cpu.data(); }
    cuda::real* r() { return (cuda::real*)gpu; }
    float* f() { return (float*)gpu; }
};
static std::vector<void*> allocated;
static void* reserve(size_t bytes) {
    allocated.push_back(cuda::device_reserve(bytes));
    return allocated.back();
}
static void free_all() { for (void* p : allocated) { cuda::device_free(p); } allocated.clear(); }

static Tensor upload(std::vector<float> x, bool real) {
    Tensor t{x, reserve(x.size() * (real ? sizeof(cuda::real) : 4)), real};
    std::vector<cuda::real> narrow(x.begin(), x.end());
    if (real) { for (float& v : t.cpu) { v = rounded(v); } }
    cuda::to_device(t.gpu, real ? (void*)narrow.data() : (void*)x.data(),
                    x.size() * (real ? sizeof(cuda::real) : 4));
    return t;
}
static Tensor random_tensor(size_t n, bool real = true, float scale = 1) {
    std::vector<float> x(n);
    for (float& v : x) { v = scale * normal(); }
    return upload(x, real);
}
// on the GPU: whatever was there (the emulator: NaN)
static Tensor empty_tensor(size_t n, bool real = true) {
    return Tensor{std::vector<float>(n, NAN), reserve(n * (real ? sizeof(cuda::real) : 4)), real};
}
static int* upload_ints(const std::vector<int>& x) {
    int* p = (int*)reserve(x.size() * 4);
    cuda::to_device(p, x.data(), x.size() * 4);
    return p;
}
static std::vector<float> download(const Tensor& t) {
    std::vector<float> out(t.cpu.size());
    std::vector<cuda::real> narrow(t.real ? t.cpu.size() : 0);
    void* to = t.real ? (void*)narrow.data() : (void*)out.data();
    cuda::to_host(to, t.gpu, out.size() * (t.real ? sizeof(cuda::real) : 4));
    for (size_t i = 0; i < narrow.size(); i++) { out[i] = (float)narrow[i]; }
    results = hash_bytes(out.data(), out.size() * 4, results);
    return out;
}
// the GPU's copy against the CPU's; one line for the worst element. A tensor whose sums cancel
// is measured against `least`
static void same(const char* op, const std::string& shape, const char* name, const Tensor& t,
                 double tol = TOL, double least = 0) {
    std::vector<float> got = download(t);
    double largest = least, worst = -1; size_t at = 0;
    for (float x : t.cpu) { largest = std::max(largest, fabs((double)x)); }
    for (size_t i = 0; i < got.size(); i++) {
        double d = fabs((double)got[i] - t.cpu[i]);
        if (!(d <= worst)) { worst = d; at = i; if (d != d) { break; } }
    }
    CHECK(worst <= tol * largest || got.empty(),
          "%s, %s: %s[%zu] is %.8g, wanted %.8g (largest %.3g)", op, shape.c_str(), name, at,
          got.empty() ? 0.0 : got[at], got.empty() ? 0.0 : t.cpu[at], largest);
}

// ----------------------------------------------------------------------------
// the operations beside attention

static void test_matmul(int N, int C, int OC) {
    std::string shape = strf("N %d C %d OC %d", N, C, OC);
    Tensor inp = random_tensor(N * C), weight = random_tensor(OC * C),
           residual = random_tensor(N * OC);
    Tensor out = empty_tensor(N * OC);
    Tensor bias = random_tensor(OC);
    for (int with = 0; with < 4; with++) {
        float *b = with & 1 ? bias.c() : NULL, *r = with & 2 ? residual.c() : NULL;
        cpu::matmul_forward(out.c(), inp.c(), weight.c(), b, r, N, C, OC);
        cuda::matmul_forward(out.r(), inp.r(), weight.r(), b ? bias.r() : NULL,
                             r ? residual.r() : NULL, N, C, OC);
        same("matmul_forward", shape, "out", out);
    }
    Tensor dinp = random_tensor(N * C), dweight = random_tensor(OC * C, false),
           dbias = random_tensor(OC, false);
    for (bool add : { true, false }) {
        cpu::matmul_backward_input(dinp.c(), residual.c(), weight.c(), add, N, C, OC);
        cuda::matmul_backward_input(dinp.r(), residual.r(), weight.r(), add, N, C, OC);
        same("matmul_backward_input", shape, "dinp", dinp);
    }
    cpu::matmul_backward_bias(dbias.c(), residual.c(), N, OC);
    cuda::matmul_backward_bias(dbias.f(), residual.r(), N, OC);
    same("matmul_backward_bias", shape, "dbias", dbias, 1e-5);
    cpu::matmul_backward_weight(dweight.c(), residual.c(), inp.c(), N, C, OC);
    cuda::matmul_backward_weight(dweight.f(), residual.r(), inp.r(), N, C, OC);
    same("matmul_backward_weight", shape, "dweight", dweight, 1e-5);
}
static void test_embed(int B, int T, int C, bool pos, bool sink, int V = 11) {
    std::string shape = strf("B %d T %d C %d pos %d sink %d V %d", B, T, C, pos, sink, V);
    std::vector<int> tokens(B * (T - sink));
    for (int& x : tokens) { x = (int)rng_below(&rng, V); }
    int* tok = upload_ints(tokens);
    Tensor wte = random_tensor(V * C), p = random_tensor(T * C), x = random_tensor(C),
           out = empty_tensor(B * T * C);
    cpu::embed_forward(out.c(), tokens.data(),
                       { wte.c(), pos ? p.c() : NULL, sink ? x.c() : NULL }, 1.5f, B, T, C);
    cuda::embed_forward(out.r(), tok, { wte.r(), pos ? p.r() : NULL, sink ? x.r() : NULL }, 1.5f, B,
                        T, C);
    same("embed_forward", shape, "out", out);
    Tensor dwte = random_tensor(V * C, false), dp = random_tensor(T * C, false),
           dx = random_tensor(C, false);
    Tensor dout = random_tensor(B * T * C);
    cpu::embed_backward({ dwte.c(), pos ? dp.c() : NULL, sink ? dx.c() : NULL }, dout.c(),
                        tokens.data(), 1.5f, B, T, C);
    cuda::embed_backward({ dwte.f(), pos ? dp.f() : NULL, sink ? dx.f() : NULL }, dout.r(), tok,
                         1.5f, B, T, C);
    same("embed_backward", shape, "dwte", dwte, 1e-5);
    same("embed_backward", shape, "dpos", dp, 1e-5);
    same("embed_backward", shape, "dsink", dx, 1e-5);
}
static void test_norm(int kind, int N, int C) { // 1: LayerNorm, 2: with a weight, 4: with a bias
    std::string shape = strf("kind %d N %d C %d", kind, N, C);
    Tensor x = random_tensor(N * C), w = random_tensor(C), b = random_tensor(C),
           out = empty_tensor(N * C);
    Tensor mean = random_tensor(N, false), rstd = empty_tensor(N, false);
    const bool ln = kind & 1, with_w = kind & 2, with_b = kind & 4;
    for (float& v : x.cpu) { v += ln; }
    x = upload(x.cpu, true);
    const NormShape size = { N, C, 1e-5f };
    cpu::norm_forward(out.c(), { ln ? mean.c() : NULL, rstd.c() }, x.c(),
                      { with_w ? w.c() : NULL, with_b ? b.c() : NULL }, size);
    cuda::norm_forward(out.r(), { ln ? mean.f() : NULL, rstd.f() }, x.r(),
                       { with_w ? w.r() : NULL, with_b ? b.r() : NULL }, size);
    same("norm_forward", shape, "out", out);
    same("norm_forward", shape, "mean", mean, 1e-5);
    same("norm_forward", shape, "rstd", rstd, 1e-5);
    for (bool add : { false, true }) {
        Tensor dx = random_tensor(N * C), dw = random_tensor(C, false),
               db = random_tensor(C, false), dout = random_tensor(N * C);
        cpu::norm_backward(dx.c(), { with_w ? dw.c() : NULL, with_b ? db.c() : NULL }, dout.c(),
                           x.c(), with_w ? w.c() : NULL, { ln ? mean.c() : NULL, rstd.c() }, add,
                           size);
        cuda::norm_backward(dx.r(), { with_w ? dw.f() : NULL, with_b ? db.f() : NULL }, dout.r(),
                            x.r(), with_w ? w.r() : NULL, { ln ? mean.f() : NULL, rstd.f() }, add,
                            size);
        same("norm_backward", shape, "dx", dx);
        same("norm_backward", shape, "dweight", dw, 1e-5);
        same("norm_backward", shape, "dbias", db, 1e-5);
    }
    Tensor dout = random_tensor(N * C);          // NORM=post: dx takes the place of dout
    cpu::norm_backward(dout.c(), {}, dout.c(), x.c(), with_w ? w.c() : NULL,
                       { ln ? mean.c() : NULL, rstd.c() }, false, size);
    cuda::norm_backward(dout.r(), {}, dout.r(), x.r(), with_w ? w.r() : NULL,
                        { ln ? mean.f() : NULL, rstd.f() }, false, size);
    same("norm_backward", shape, "dx in place", dout);
}
static void test_qk_norm(AttnShape s, bool all) {
    std::string shape = strf("B %d T %d NH %d KV %d HS %d all %d", s.B, s.T, s.NH, s.KV, s.HS, all);
    const int N = s.B * s.T, QK = (s.NH + s.KV) * s.HS, Wq = all ? s.NH * s.HS : s.HS,
              Wk = all ? s.KV * s.HS : s.HS;
    Tensor qkv = random_tensor(N * attn_row(s)), wq = random_tensor(Wq), wk = random_tensor(Wk);
    Tensor qk_in = empty_tensor(N * QK), rstd = empty_tensor(N * (all ? 2 : s.NH + s.KV), false);
    cpu::qk_norm_forward(qkv.c(), qk_in.c(), rstd.c(), { wq.c(), wk.c() }, all, 1e-5f, s);
    cuda::qk_norm_forward(qkv.r(), qk_in.r(), rstd.f(), { wq.r(), wk.r() }, all, 1e-5f, s);
    same("qk_norm_forward", shape, "qkv", qkv);
    same("qk_norm_forward", shape, "qk_in", qk_in, 0);
    same("qk_norm_forward", shape, "rstd", rstd, 1e-5);
    Tensor dqkv = random_tensor(N * attn_row(s)), dwq = random_tensor(Wq, false),
           dwk = random_tensor(Wk, false);
    cpu::qk_norm_backward(dqkv.c(), { dwq.c(), dwk.c() }, qk_in.c(), rstd.c(), { wq.c(), wk.c() },
                          all, s);
    cuda::qk_norm_backward(dqkv.r(), { dwq.f(), dwk.f() }, qk_in.r(), rstd.f(), { wq.r(), wk.r() },
                           all, s);
    same("qk_norm_backward", shape, "dqkv", dqkv);
    same("qk_norm_backward", shape, "dwq", dwq, 1e-5);
    same("qk_norm_backward", shape, "dwk", dwk, 1e-5);
}
static void test_gate(AttnShape s, int width) {
    std::string shape = strf("B %d T %d NH %d HS %d width %d", s.B, s.T, s.NH, s.HS, width);
    const int n = s.B * s.T * s.NH;
    Tensor att = random_tensor(n * s.HS), gate = random_tensor(n * width, true, 2),
           out = empty_tensor(n * s.HS);
    cpu::gate_forward(out.c(), att.c(), gate.c(), width, s);
    cuda::gate_forward(out.r(), att.r(), gate.r(), width, s);
    same("gate_forward", shape, "out", out);
    Tensor datt = empty_tensor(n * s.HS), dgate = empty_tensor(n * width),
           dout = random_tensor(n * s.HS);
    cpu::gate_backward(datt.c(), dgate.c(), dout.c(), att.c(), gate.c(), width, s);
    cuda::gate_backward(datt.r(), dgate.r(), dout.r(), att.r(), gate.r(), width, s);
    same("gate_backward", shape, "datt", datt);
    same("gate_backward", shape, "dgate", dgate);
}
// fills in what most shapes share
template <class A = Attn_softmax> static AttnShape whole(AttnShape s) {
    if (A::clip != NO_CLIP) { s.clip = 1.3f / s.T; }           // leaves some weights
    s.scale = 1 / sqrtf(s.HS);
    s.rot = s.HS;
    s.cap = 1.5;
    return s;
}
static Tensor random_turns(AttnShape s) { // a table for rope
    std::vector<float> rope_table;
    for (int i = 0; i < s.T * s.rot / 2; i++) {
        const double a = normal();
        rope_table.push_back(cos(a));
        rope_table.push_back(sin(a));
    }
    return upload(rope_table, false);
}
static void test_qk(AttnShape s) { // rope, phi, copies of rows
    std::string shape = strf("B %d T %d NH %d KV %d HS %d rot %d", s.B, s.T, s.NH, s.KV, s.HS,
                             s.rot);
    const size_t n = (size_t)s.B * s.T * attn_row(s);
    Tensor table = random_turns(s), x = random_tensor(n), dx = random_tensor(n);
    Tensor qk = empty_tensor((size_t)s.B * s.T * (s.NH + s.KV) * s.HS);
    for (int sign = -1; sign < 2; sign += 2) {
        cpu::rope(x.c(), table.c(), sign, s);
        cuda::rope(x.r(), table.f(), sign, s);
        same("rope", shape, "qkv", x);
    }
    const int N = s.B * s.T, W = attn_row(s), QK = qk_width(s);
    cpu::copy_rows(qk.c(), QK, x.c(), W, N, QK);
    cuda::copy_rows(qk.r(), QK, x.r(), W, N, QK);
    same("copy_rows", shape, "qk", qk);
    Tensor y = random_tensor(n);
    cpu::copy_rows(y.c(), W, qk.c(), QK, N, QK);
    cuda::copy_rows(y.r(), W, qk.r(), QK, N, QK);
    same("copy_rows back", shape, "qkv", y);
    cpu::phi_elu1_forward(x.c(), s);
    cuda::phi_elu1_forward(x.r(), s);
    same("phi_elu1_forward", shape, "qkv", x);
    cpu::phi_elu1_backward(dx.c(), x.c(), s);
    cuda::phi_elu1_backward(dx.r(), x.r(), s);
    same("phi_elu1_backward", shape, "dqkv", dx);
}
static void test_heads(AttnShape s, bool sum, bool learn) {
    std::string shape = strf("B %d T %d NH %d HS %d sum %d v* %d shared %d",
                             s.B, s.T, s.NH, s.HS, sum, learn, s.bias_shared);
    const int N = s.B * s.T, W = s.NH * s.HS, OC = sum ? s.HS : W, S = s.bias_shared ? s.HS : W;
    Tensor att = random_tensor(N * W), v = random_tensor(S), out = empty_tensor(N * OC);
    cpu::heads_forward(out.c(), att.c(), learn ? v.c() : NULL, sum, s);
    cuda::heads_forward(out.r(), att.r(), learn ? v.r() : NULL, sum, s);
    same("heads_forward", shape, "out", out);
    Tensor datt = empty_tensor(N * W), dv = random_tensor(S, false), dout = random_tensor(N * OC);
    cpu::heads_backward(datt.c(), learn ? dv.c() : NULL, dout.c(), sum, s);
    cuda::heads_backward(datt.r(), learn ? dv.f() : NULL, dout.r(), sum, s);
    same("heads_backward", shape, "datt", datt);
    same("heads_backward", shape, "dvstar", dv, 1e-5);
}
static void test_ffn(const char* name, Activation act, bool gated, int N, int F) {
    std::string shape = strf("%s N %d F %d", name, N, F);
    const int W = F * (gated ? 2 : 1);
    Tensor inp = random_tensor(N * W, true, 2), out = empty_tensor(N * F);
    Tensor dinp = empty_tensor(N * W), dout = random_tensor(N * F);
    cpu::ffn_forward(out.c(), inp.c(), act, gated, N, F);
    cuda::ffn_forward(out.r(), inp.r(), act, gated, N, F);
    same("ffn_forward", shape, "out", out);
    cpu::ffn_backward(dinp.c(), dout.c(), inp.c(), act, gated, N, F);
    cuda::ffn_backward(dinp.r(), dout.r(), inp.r(), act, gated, N, F);
    same("ffn_backward", shape, "dinp", dinp);
}
static void test_classifier(int N, int V, float scale = 5) {
    std::string shape = strf("N %d V %d", N, V);
    std::vector<int> targets(N);
    for (int n = 0; n < N; n++) {
        targets[n] = n % 3 == 2 ? -1 : n % 3 ? V - 1 : (int)rng_below(&rng, V);
    }
    int* y = upload_ints(targets);
    Tensor logits = random_tensor(N * V, false), losses = empty_tensor(N, false);
    for (float cap : {0.0f, 3.0f}) {
        std::vector<float> scaled = logits.cpu;
        for (float& l : scaled) { l *= scale; }
        // the first leaves the logits as they are, but for the cap
        for (float dloss : {0.0f, 0.25f}) {
            Tensor x = upload(scaled, true);
            ref::classifier(losses.c(), x.c(), targets.data(), dloss, cap, N, V); // adds in double
            cuda::classifier(losses.f(), x.r(), y, dloss, cap, N, V);
            same("classifier", shape, "losses", losses, 1e-5);
            same("classifier", shape, "logits", x, dloss == 0 && cap == 0 ? 0 : TOL);
        }
    }
}
static void test_optimizer(long n) {
    std::string shape = strf("n %ld", n);
    Tensor params = empty_tensor(n), w = random_tensor(n, false), m = random_tensor(n, false);
    Tensor v = random_tensor(n, false), g = random_tensor(n, false);
    for (float& x : v.cpu) { x = x * x; }
    v = upload(v.cpu, false);
    StepSums want = { 0.5, 0, 0 }, got = want, none = { NAN, NAN, NAN };
    StepSums *sums = (StepSums*)cuda::device_malloc(sizeof want),
             *nothing = (StepSums*)cuda::device_malloc(sizeof none);
    cuda::to_device(sums, &got, sizeof got);
    cuda::to_device(nothing, &none, sizeof none);
    cpu::loss_add(&want, g.c(), n, 3);
    cpu::square_norm(&want, g.c(), 1, n);
    cuda::loss_add(sums, g.f(), n, 3);
    cuda::square_norm(sums, g.f(), 1, n);
    cuda::to_host(&got, sums, sizeof got);
    check_near(got.loss, want.loss, 1e-9 * n, "loss_add, n %ld", n);
    check_near(got.squares, want.squares, 1e-9 * n, "square_norm, n %ld", n);
    Tensor mean = upload(std::vector<float>(n, 0.7f), false);
    cpu::average(mean.c(), g.c(), 0.3f, n);
    cuda::average(mean.f(), g.f(), 0.3f, n);
    same("average", strf("n %ld", n), "mean", mean);
    check_near(got.grad_scale, want.grad_scale, 1e-7, "grad_scale, n %ld", n);
    Update o = { 1e-2f, 0.9f, 0.95f, 1e-8f, 0.1f, 3 };
    for (int sgd = 0; sgd < 2; sgd++) {
        if (sgd) { cpu::sgd_update(params.c(), w.c(), m.c(), v.c(), g.c(), &want, o, n); }
        else     { cpu::adamw_update(params.c(), w.c(), m.c(), v.c(), g.c(), &want, o, n); }
        for (StepSums* s : { sums, nothing }) { // the second must do nothing
            (sgd ? cuda::sgd_update : cuda::adamw_update)(params.r(), w.f(), m.f(), v.f(), g.f(), s,
                                                          o, n);
        }
        same("update", shape, "params", params);
        same("update", shape, "master", w, 1e-6);
        same("update", shape, "m", m, 1e-6);
        same("update", shape, "v", v, 1e-6);
    }
    cuda::device_free(sums); cuda::device_free(nothing);
    Tensor copy = empty_tensor(n);
    cpu::cast_to_real(copy.c(), w.c(), n);
    cuda::cast_to_real(copy.r(), w.f(), n);
    same("cast_to_real", shape, "dst", copy);
    Tensor y = random_tensor(n);
    cpu::add(y.c(), copy.c(), n);
    cuda::add(y.r(), copy.r(), n);
    same("add", shape, "y", y);
    cpu::add(y.c(), copy.c(), n, 0.3);
    cuda::add(y.r(), copy.r(), n, 0.3);
    same("add", shape, "0.3 y + x", y);
    cpu::add(y.c(), (const float*)NULL, n, 0.7);
    cuda::add(y.r(), NULL, n, 0.7);
    same("add", shape, "0.7 y", y);
}
static void test_muon(int rows, int cols) {
    const std::string shape = strf("%d x %d", rows, cols);
    const long n = (long)rows * cols;
    const int r = std::min(rows, cols);
    Tensor x = empty_tensor(n), m = random_tensor(n, false), g = random_tensor(n, false),
           w = random_tensor(n, false);
    Tensor params = empty_tensor(n), a = random_tensor(r * r), aa = random_tensor(r * r);
    const StepSums some = { 0, 0, 0.5 }, none = { NAN, NAN, NAN };
    StepSums *sums = (StepSums*)cuda::device_malloc(sizeof some),
             *nothing = (StepSums*)cuda::device_malloc(sizeof none);
    cuda::to_device(sums, &some, sizeof some);
    cuda::to_device(nothing, &none, sizeof none);
    const Update o = { 1e-2f, 0.9f, 0.95f, 1e-8f, 0.1f, 3 };
    cpu::muon_begin(x.c(), m.c(), g.c(), &some, rows, cols);
    // the second does nothing
    for (StepSums* s : { sums, nothing }) { cuda::muon_begin(x.r(), m.f(), g.f(), s, rows, cols); }
    same("muon_begin", shape, "x", x);
    same("muon_begin", shape, "m", m, 1e-6);
    cpu::muon_end(params.c(), w.c(), x.c(), &some, o, rows, cols);
    for (StepSums* s : { sums, nothing }) {
        cuda::muon_end(params.r(), w.f(), x.r(), s, o, rows, cols);
    }
    same("muon_end", shape, "params", params);
    same("muon_end", shape, "master", w, IS_BF16 ? 1e-4 : 1e-6);
    cpu::muon_mix(aa.c(), a.c(), r);
    cuda::muon_mix(aa.r(), a.r(), r);
    same("muon_mix", shape, "aa", aa);
    cuda::device_free(sums); cuda::device_free(nothing);
}
// what the GPU has yet to write may be freed: who frees it waits.
// The emulator ends where nobody does
static void test_free() {
    cuda::device_free(cuda::device_malloc(1 << 20)); // zeroed in the GPU's own time
}

static void test_row_norms(int N, int G, int len, int stride) {
    Tensor x = random_tensor(N * stride), out = empty_tensor(N * G, false);
    cpu::row_norms(out.c(), x.c(), stride, len, G, N);
    cuda::row_norms(out.f(), x.r(), stride, len, G, N);
    same("row_norms", strf("N %d G %d len %d", N, G, len), "out", out, 1e-5);
    for (int skip : { 0, 1 }) { // the same values, found in another way: not one bit apart
        Tensor sizes = empty_tensor(2 * G, false), y = random_tensor(G * N * len);
        cpu::magnitudes(sizes.c(), y.c(), skip, G, N, len);
        cuda::magnitudes(sizes.f(), y.r(), skip, G, N, len);
        same("magnitudes", strf("B %d T %d C %d skip %d", G, N, len, skip), "out", sizes, 0);
    }
}

// ----------------------------------------------------------------------------
// attention and its metrics

#ifdef EMU
// what the emulator saw of one shape: tensor cores where there is a kernel for it,
// and no bank conflict in ldmatrix
static void check_counts(const char* name, const std::string& shape, int HS, bool mma,
                         emu::Counts before) {
    const emu::Counts& now = emu::counts;
    const bool hopper = mma && cuda::gpu.hopper && HS <= 128;
    CHECK((now.mma > before.mma) == (mma && !hopper) && (now.wgmma > before.wgmma) == hopper,
          "%s, %s: %lu mma, %lu wgmma", name, shape.c_str(), now.mma - before.mma,
          now.wgmma - before.wgmma);
    CHECK(now.conflicts == before.conflicts, "%s, %s: %lu bank conflicts in %lu ldmatrix", name,
          shape.c_str(), now.conflicts - before.conflicts, now.ldmatrix - before.ldmatrix);
}
#endif
template <class A, class Bi, class Pe> static void test_attention(const char* name, AttnShape s) {
    std::string shape = strf(
        "B %d T %d NH %d KV %d HS %d window %d prefix %d shared %d k_dims %d p %g alpha %g", s.B,
        s.T, s.NH, s.KV, s.HS, s.window, s.prefix, s.bias_shared, s.k_dims, s.p, s.alpha);
    const size_t N = (size_t)s.B * s.T, W = attn_row(s), S = (s.bias_shared ? 1 : s.KV) * s.HS,
                 O = (size_t)s.NH * s.HS;
    Tensor qkv = random_tensor(N * W), dout = random_tensor(N * O);
    if (A::phi == PHI_ELU1) { // the scores of this one are positive
        cpu::phi_elu1_forward(qkv.c(), s);
        qkv = upload(qkv.cpu, true);
    }
    Tensor ks = random_tensor(S), vs = random_tensor(S), dks = random_tensor(S, false),
           dvs = random_tensor(S, false);
    Tensor out = empty_tensor(N * O), stat = empty_tensor(N * s.NH * 2, false),
           dqkv = empty_tensor(N * W);
    const bool key = Bi::learn_k, value = Bi::extra;    // BIAS=k has a v* when --v-star fixes one
#ifdef EMU
    const emu::Counts before = emu::counts;
#endif
    const ExtraKey<const float> extra = { key ? ks.c() : NULL, value ? vs.c() : NULL };
    const ExtraKey<const cuda::real> gpu_extra = { key ? ks.r() : NULL, value ? vs.r() : NULL };
    cpu::attention_forward<A, Bi, Pe>(out.c(), stat.c(), qkv.c(), extra, NULL, s);
    cuda::attention_forward<A, Bi, Pe>(out.r(), stat.f(), qkv.r(), gpu_extra, NULL, s);
    // scores are about 1, but may cancel: a weight of 1e-4 that was a sum of 96 products has
    // the rounding of the products
    same(name, shape, "out", out, TOL, 0.1);
    same(name, shape, "stat", stat, IS_BF16 ? 1e-3 : 1e-5);
    out = upload(out.cpu, true);   // backward from the same numbers
    stat = upload(stat.cpu, false);
    cpu::attention_backward<A, Bi, Pe>(
        dqkv.c(), { key ? dks.c() : NULL, Bi::learn_v ? dvs.c() : NULL }, dout.c(),
        { out.c(), stat.c() }, qkv.c(), extra, NULL, s);
    cuda::attention_backward<A, Bi, Pe>(
        dqkv.r(), { key ? dks.f() : NULL, Bi::learn_v ? dvs.f() : NULL }, dout.r(),
        { out.r(), stat.f() }, qkv.r(), gpu_extra, NULL, s);
    same(name, shape, "dqkv", dqkv);
    // both have the same rounded out; what clipped rows give by their slopes is rounded here alone
    const double close = IS_BF16 ? 1e-3 : 1e-5;
    same(name, shape, "dkstar", dks, A::clip == NO_CLIP ? close : TOL);
    same(name, shape, "dvstar", dvs, close);

    for (int skip = 0; skip < (Bi::token && s.T > 1 ? 2 : 1); skip++) {
        const size_t n = s.B * s.NH * sizeof(HeadMetrics) / 4;
        const int width = s.HS % 3 ? 1 : s.HS;
        Tensor metrics = empty_tensor(n, false),
               gate = random_tensor((long)s.B * s.T * s.NH * width, true, 3);
        cpu::attention_metrics<A, Bi, Pe>((HeadMetrics*)metrics.c(), qkv.c(), stat.c(), extra,
                                          { gate.c(), width }, skip, s);
        cuda::attention_metrics<A, Bi, Pe>((HeadMetrics*)metrics.gpu, qkv.r(), stat.f(), gpu_extra,
                                           { gate.r(), width }, skip, s);
        same(name, shape, "metrics", metrics, 1e-5);
    }
#ifdef EMU
    const bool tensor = cuda::one_pass<A> && cuda::on_tensor_cores(s, {});
    check_counts(name, shape, s.HS, tensor, before);
#endif
    free_all();
}
// attention as the program computes it against the simple kernels: the same inputs, on the GPU
template <class A, class Bi, class Pe> static void test_simple(const char* name, AttnShape s) {
    const std::string shape = strf("simple, B %d T %d NH %d KV %d HS %d window %d", s.B, s.T, s.NH,
                                   s.KV, s.HS, s.window);
    const size_t N = (size_t)s.B * s.T, W = attn_row(s), S = (size_t)s.KV * s.HS;
    const size_t O = (size_t)s.NH * s.HS;
    Tensor qkv = random_tensor(N * W), dout = random_tensor(N * O);
    Tensor ks = random_tensor(S), vs = random_tensor(S);
    if (A::phi == PHI_ELU1) { cuda::phi_elu1_forward(qkv.r(), s); }
    Tensor out = empty_tensor(N * O), stat = empty_tensor(N * s.NH * 2, false);
    Tensor plain_out = empty_tensor(N * O), plain_stat = empty_tensor(N * s.NH * 2, false);
    Tensor dqkv = empty_tensor(N * W), plain_dqkv = empty_tensor(N * W);
    const cuda::real* kstar = Bi::learn_k ? ks.r() : NULL;
    const bool has_extra = Bi::extra != NO_EXTRA;
    const cuda::real* vstar = has_extra ? vs.r() : NULL;
    const cuda::AttnInputs in = { qkv.r(), { kstar, vstar }, s };
    cuda::attention_forward<A, Bi, Pe>(out.r(), stat.f(), qkv.r(), { kstar, vstar }, NULL, s);
    cuda::attention_simple_forward<A, Bi, Pe>(plain_out.r(), plain_stat.f(), in);
    out.cpu = download(plain_out);
    stat.cpu = download(plain_stat);
    same(name, shape, "out", out, TOL, 0.1);
    same(name, shape, "stat", stat, IS_BF16 ? 1e-3 : 1e-5);
    cuda::attention_backward<A, Bi, Pe>(dqkv.r(), {}, dout.r(), { out.r(), stat.f() }, qkv.r(),
                                        { kstar, vstar }, NULL, s);
    cuda::attention_simple_backward<A, Bi, Pe>(plain_dqkv.r(), dout.r(), out.r(), stat.f(), in);
    dqkv.cpu = download(plain_dqkv);
    same(name, shape, "dqkv", dqkv);
    free_all();
}
// Returns the head dimensions that this build computes on tensor cores.
static std::vector<int> mma_heads() {
    std::vector<int> list;
#define X(HEAD) list.push_back(HEAD);
    if (IS_BF16) { MMA_HEADS(X) }
#undef X
    return list;
}
#ifndef REAL_SIZES
// Returns the same, and one that goes by panels.
static std::vector<int> mma_and_panel_heads() {
    std::vector<int> list = mma_heads();
    list.insert(list.begin(), 20);
    return list;
}
// in the emulator small shapes, on a GPU those at which the presets train. chunks: also one of two
// chunks of ds, whose up to 80 million random numbers take seconds
static std::vector<AttnShape> simple_shapes([[maybe_unused]] bool chunks) {
    //                              B  T   NH KV HS  window prefix
    std::vector<AttnShape> list = { { 1, 40, 2, 1, 20, 9, 3, 0, 20, 2, 1 },
                                    { 1, 12, 2, 1, 640, 0, 0, 0, 640, 2, 1 } };
    for (int HS : mma_heads()) {
#ifdef EMU
        if (!SMALL) { list.push_back({ 1, 100, 2, 1, HS, 0, 0, 0, HS, 2, 1 }); }
#else
        list.push_back({ 1, 260, 2, 1, HS, 40, 130, 0, HS, 2, 1 });
        list.push_back({ 1, 1025, 2, 1, HS, 0, 0, 0, HS, 2, 1 });
        list.push_back({ 2, 2048, 2, 1, HS, 700, 5, 0, HS, 2, 1 });
        if (chunks) { list.push_back({ 17, 2048, 4, 4, HS, 0, 0, 0, HS, 2, 1 }); }
#endif
    }
    return list;
}
static bool simple_now; // test_variant compares with the simple kernels, and with nothing else
static int simple_T;    // and then, unless 0, softmax alone, at this T
static std::vector<AttnShape> plain_shapes(int T) {
    std::vector<AttnShape> list;
    for (int HS : mma_heads()) { list.push_back({ 1, T, 2, 1, HS, 0, 0, 0, HS, 2, 1 }); }
    return list;
}
static std::vector<AttnShape> shapes(bool all) {
    //   B  T    NH KV HS  window prefix shared k_dims p     alpha
    [[maybe_unused]] const int two = SMALL ? 1 : 2;
#ifdef ONLY_HEADS // the head dimensions that the other builds leave out
    std::vector<AttnShape> list;
#else
    std::vector<AttnShape> list = {
        { 1,   1,  1,   1,   96, 0, 0, 0, 96, 2.0f, 1.0f },
        { two, 33, 2,   1,   20, 0, 3, 0, 20, 0.5f, 0.7f },
        { 1,   70, two, two, 32, 9, 0, 1, 5,  2.0f, 1.0f } };
#endif
    if (all && !SMALL) {
#ifndef ONLY_HEADS
        list.push_back({ 1, 100, 4, 2, 96,  17, 70, 0, 96, 2.0f, 0.5f });
        // panels whose first keys no query sees
        list.push_back({ 1, 130, 1, 1, 200, 66, 0,  0, 7,  1.5f, 1.0f });
        // panels of two sequences and of the third
        list.push_back({ 3, 50,  2, 1, 384, 0,  0,  0, 9,  2.0f, 1.0f });
        // prefix, a gap, window
        if (IS_BF16) { list.push_back({ 1, 200, 2, 1, 96, 70, 3, 1, 96, 0.5f, 1.0f }); }
        // a window alone: rows that see nothing of their block's first tile
        if (IS_BF16) { list.push_back({ 1, 200, 1, 1, 96, 40, 0, 0, 96, 2.0f, 1.0f }); }
#ifndef EMU // whose panels are 32 rows, not 512
        list.push_back({ 2, 600, 2, 1, 256, 300, 0, 0, 256, 2.0f, 1.0f });
#endif
#endif
        for (int HS : mma_heads()) {
            // tiles of which nothing is masked, as most are at T 2048
            AttnShape s = { 1, 260, 2, 1, HS, 0, 0, 0, HS, 2.0f, 1.0f };
            list.push_back(s);
#ifdef FEW_VARIANTS
            s.B = 2;
            s.T = 90;   // two tiles, the second ragged
            if (HS != 96) { list.push_back(s); }
#endif
        }
    }
    return list;
}
template <class A, class Bi, class Pe> static void test_variant(const char* name, bool all) {
    // With steep slopes its positive scores turn negative, their sum nearly cancels,
    // and 1 / Z magnifies the rounding
    constexpr bool cancels = A::phi == PHI_ELU1 && A::Z == Z_SUM &&
                             std::is_same<Pe, Pe_alibi>::value;
    if (simple_now) {
        typedef std::conditional_t<cancels, Pe_nope, Pe> Own;
        constexpr bool usual = std::is_same<A, Attn_softmax>::value && !Pe::score_bias;
        if (simple_T && !usual) { return; }
        for (AttnShape s : simple_T ? plain_shapes(simple_T) : simple_shapes(usual)) {
            test_simple<A, Bi, Own>(name, whole<A>(s));
        }
        return;
    }
    for (AttnShape s : shapes(all)) {
        s = whole<A>(s);
        if (cancels && s.NH > 2) {
            test_attention<A, Bi, std::conditional_t<cancels, Pe_nope, Pe>>(name, s);
        }
        else { test_attention<A, Bi, Pe>(name, s); }
    }
}
static void same_bits(const char* what, const AttnShape& s, Tensor& one, Tensor& two) {
    const std::vector<float> got = download(one), want = download(two);
    size_t bad = 0;
    for (size_t i = 0; i < got.size(); i++) { bad += got[i] != want[i]; }
    CHECK(bad == 0, "%s, B %d T %d HS %d window %d: %zu of %zu numbers are not those of rope", what,
          s.B, s.T, s.HS, s.window, bad, got.size());
}
// attention that turns q and k, and dq and dk back, against rope by itself: the same bits
static void test_turned(int B, int T, int HS, int window) {
    const AttnShape s = whole({ B, T, 2, 1, HS, window, 0, 0, HS, 1, 1 });
    const size_t N = (size_t)B * T, W = attn_row(s), O = (size_t)s.NH * HS;
    Tensor qkv = random_tensor(N * W), dout = random_tensor(N * O), ks = random_tensor(HS),
           table = random_turns(s);
    Tensor out = empty_tensor(N * O), stat = empty_tensor(N * s.NH * 2, false);
    const ExtraKey<const cuda::real> extra = { ks.r(), NULL };
    Tensor rest = upload(qkv.cpu, true), rest_out = empty_tensor(N * O),
           rest_stat = empty_tensor(N * s.NH * 2, false);
    auto forward = [&](Tensor& out, Tensor& stat, Tensor& qkv, const float* rope_table) {
        cuda::attention_forward<Attn_softmax, Bias_kv, Pe_alibi>(out.r(), stat.f(), qkv.r(), extra,
                                                                 rope_table, s);
    };
    cuda::rope(rest.r(), table.f(), +1, s);
    forward(rest_out, rest_stat, rest, NULL);
    forward(out, stat, qkv, table.f());
    same_bits("attention_forward, qkv", s, qkv, rest);
    same_bits("attention_forward, out", s, out, rest_out);
    same_bits("attention_forward, stat", s, stat, rest_stat);
    Tensor two = empty_tensor(N * W), one = empty_tensor(N * W);
    auto backward = [&](Tensor& dqkv, const float* rope_table) {
        cuda::attention_backward<Attn_softmax, Bias_kv, Pe_alibi>(
            dqkv.r(), {}, dout.r(), { out.r(), stat.f() }, qkv.r(), extra, rope_table, s);
    };
    backward(two, NULL);
    cuda::rope(two.r(), table.f(), -1, s);
    backward(one, table.f());
    same_bits("attention_backward", s, one, two);
    free_all();
}
static void test_all_turned() {
    for (int HS : mma_and_panel_heads()) {
        test_turned(1, 33, HS, 9);
        if (!SMALL) { test_turned(2, 90, HS, 0); }
    }
}
static void test_variants() {
    test_variant<Attn_softmax, Bias_none, Pe_rotary>("ATTN=softmax", true); // what most models are
#ifdef ONE_VARIANT // for bugs that any variant shows: dev/emulator/mutants.sh
#elif defined(FEW_VARIANTS) // for the sanitizers: one of each kind of Z
    test_variant<Attn_softmax, Bias_kv, Pe_alibi>("ATTN=softmax BIAS=kv PE=alibi", true);
    test_variant<Attn_identity_norm, Bias_sink_token, Pe_relative>(
        "ATTN=identity_norm BIAS=sink_token", true);
    test_variant<Attn_sigmoid_p, Bias_k, Pe_nope>("ATTN=sigmoid_p BIAS=k", true);
    test_variant<Attn_softpick, Bias_logit, Pe_nope>("ATTN=softpick BIAS=logit", true);
    test_variant<Attn_softcap, Bias_kv, Pe_relative>("ATTN=softcap BIAS=kv PE=relative", true);
#else
// every ATTN, with an extra key where it may have one; every BIAS and every PE with one ATTN
#define X_ATTN(a, ...) \
    test_variant<Attn_##a, \
                 std::conditional_t<Attn_##a::phi == PHI_NONE, Bias_kv, Bias_none>, \
                 Pe_alibi>("ATTN=" #a, true);
    ATTN_VARIANTS(X_ATTN)
#ifndef ONLY_ATTN // saves half a minute of compiling
#define X_BIAS(b, COLUMN, K, V, ADD, TOKEN, help) \
    test_variant<Attn_sigmoid_norm, Bias_##b, Pe_rotary>("ATTN=sigmoid_norm BIAS=" #b, false);
    BIAS_VARIANTS(X_BIAS)
#define X_PE(p, formula, help) \
    test_variant<Attn_identity_norm, Bias_none, Pe_##p>("ATTN=identity_norm PE=" #p, false);
    PE_VARIANTS(X_PE)
#endif
#endif
}

[[maybe_unused]] static void test_operations() {
    // widths that 16 bytes divide, and widths that they do not
    for (int wide = 0; wide < (SMALL ? 1 : 2); wide++) {
        const int C = wide ? 136 : 37;
        test_matmul(1, C, 5); test_matmul(33, C, wide ? 48 : 19);
        test_embed(2, 9, C, false, false); test_embed(3, 5, C, true, true);
        for (int kind = SMALL ? 7 : 0; kind < 8; kind++) {
            test_norm(kind, 1, C);
            test_norm(kind, 70, C);
        }
        test_row_norms(7, 3, C, 3 * C + 8);
        test_free();
        const AttnShape s = whole({ 2, 5, 4, 2, wide ? 16 : 6, 0, 0, 0, 6, 1, 1 });
        test_qk(s);
        AttnShape part = s;
        part.rot = wide ? 8 : 2;
        test_qk(part);
        if (!wide) { test_qk(whole({ 2, 3, 1, 1, 5, 0, 0, 0, 4, 1, 1 })); }
        for (bool all : { false, true }) { test_qk_norm(s, all); }
        for (int width : { 1, s.HS }) { test_gate(s, width); }
        for (int k = SMALL ? 7 : 0; k < 8; k++) {
            AttnShape t = s;
            t.bias_shared = k & 1;
            test_heads(t, k & 2, k & 4);
        }
        for (auto& ffn : FFN_ROWS) { test_ffn(ffn.name, ffn.act, ffn.gated, 3, C); }
        test_classifier(4, C); test_classifier(3, wide ? 5000 : 4999); test_classifier(1, 1);
        test_optimizer(wide ? 4096 : 1001);
        test_muon(wide ? 16 : 13, wide ? 24 : 7); test_muon(wide ? 40 : 5, wide ? 8 : 5);
        free_all();
    }
    if (!SMALL) {
        test_norm(7, 3, 20000);                   // more than 48 KiB of sums
        for (int V : {1, 2, 11, 999}) {           // several chunks to sort, tokens over many pieces
            test_embed(1, 2 * cuda::SORT_CHUNK + 3, 4, false, false, V);
            test_embed(2, cuda::SORT_CHUNK + 1, 8, true, true, V);
        }
        // rows that do not fit shared memory; beyond the cap their terms are alike
        test_classifier(2, IS_BF16 ? 60000 : 26000, 30);
        test_optimizer(2 * cuda::SQUARE_BLOCK + 5);
        free_all();
    }
}

// rows that fit 48 KiB alone but not beside the block's sums, the longest that are kept, and the
// widest norm. Last of all, so that the other tests draw the numbers that they drew before
[[maybe_unused]] static void test_long_rows() {
    const int most = cuda::SMEM_MOST - 256;
    for (int bytes : { 49024, 49040, 48 << 10, (48 << 10) + 16, most, most + 16 }) {
        test_classifier(1, bytes / (int)sizeof(cuda::real));
    }
    test_norm(7, 3, cuda::SMEM_MOST / (int)sizeof(float));
    free_all();
}
// Rows of which a lane keeps 8 pieces in registers, and rows whose pieces it reads again.
[[maybe_unused]] static void test_wide_rows() {
    const int piece = 32 * cuda::VN;              // what a warp reads at once
    for (int C : { piece, 6 * piece, 8 * piece, 12 * piece, 768, 1536 }) {
        for (int kind : { 0, 7 }) { test_norm(kind, 5, C); }
    }
    for (int HS : { 6 * piece, 9 * piece }) {
        const AttnShape s = whole({ 1, 3, 2, 1, HS, 0, 0, 0, 8, 1, 1 });
        test_qk_norm(s, false);
    }
    const AttnShape s = whole({ 1, 3, 3, 1, 3 * piece, 0, 0, 0, 8, 1, 1 });
    test_qk_norm(s, true);                       // q 9 pieces, k 3
    free_all();
}

// Sizes at which a thread goes around each of its loops five times or more. The compiler unrolls a
// loop by four: below that, what runs is only the part for the remainder.
[[maybe_unused]] static void test_many_rounds() {
    const int wide = 5 * cuda::ROW_THREADS * cuda::VN + cuda::VN;   // columns, 16 bytes at a time
    const int narrow = 5 * cuda::ROW_THREADS + 1;
    const int piece = 32 * cuda::VN;
    for (int C : { wide, narrow }) {
        test_embed(7, 2, C, true, true);
        for (auto& ffn : FFN_ROWS) { test_ffn(ffn.name, ffn.act, ffn.gated, 3, C); }
        test_row_norms(3, 1, C, C);
        const AttnShape s = whole({ 1, 2, 1, 1, C, 0, 0, 0, 8, 1, 1 });
        for (int width : { 1, C }) { test_gate(s, width); }
        test_heads(s, true, true);
        free_all();
    }
    for (int kind = 0; kind < 8; kind++) {
        for (int C : { 5 * 32 + 3, 3 * piece, 8 * piece, 13 * piece }) { test_norm(kind, 3, C); }
    }
    for (int HS : { 5 * 32 + 3, 4 * piece, 8 * piece, 13 * piece }) {
        test_qk_norm(whole({ 1, 3, 2, 1, HS, 0, 0, 0, 8, 1, 1 }), false);
    }
    test_embed(1, 60 * cuda::SORT_CHUNK, 4, false, false, 50);
    test_optimizer(24 * cuda::ROW_THREADS * cuda::VN);
    test_muon(57, 73);
    free_all();
}

// Heads beyond a power of two, whose ALiBi slopes stand between those of the others.
[[maybe_unused]] static void test_twelve_heads() {
    for (int HS : mma_and_panel_heads()) {
        AttnShape s = whole({ 1, 40, 12, 6, HS, 0, 0, 0, HS, 1, 1 });
        s.slope_heads = 8;
        test_attention<Attn_softmax, Bias_kv, Pe_alibi>("12 heads", s);
    }
}

#endif
#if defined(EMU) && !defined(REAL_SIZES) && !defined(PTX_RUN)
// another job adds its line while this one searches: this one takes that line's algorithm
template <class Run>
static void test_gemm_race(const std::string& file, const std::string& dir, Run run,
                           const std::string& others_line) {
    make_dirs(dir);
    file_write(file, "");
    cuda::products.before_keeping = [&] { file_write(file, others_line); };
    const std::vector<int> ran = run();
    cuda::products.before_keeping = nullptr;
    const int other = atoi(others_line.substr(others_line.find(" : ") + 3).c_str());
    CHECK(ran.size() > 1 && ran.back() == other,
          "after a search beside another job algorithm %d ran, not %d", ran.back(), other);
}
// the choice of an algorithm: timed once, kept in a file, taken from there,
// and timed again where the file is no good
static void test_gemm_choice() {
    const std::string home = check_tmp();
    const int M = 24, K = 32, N = 40;
    Tensor a = random_tensor(M * K), b = random_tensor(K * N);
    auto run = [&](const std::string& dir) { // D += A B; which algorithms ran
        Tensor d = random_tensor(M * N, false);
        cuda::products.cache = home + dir;
        cuda::products.made.clear();
        emu::algorithms.clear();
        cuda::gemm(cuda::matrix(d.f()), d.f(), cuda::matrix(a.r()), cuda::matrix(b.r()),
                   { M, N, K });
        for (int i = 0; i < M * N; i++) {
            for (int k = 0; k < K; k++) { d.c()[i] += a.c()[i / N * K + k] * b.c()[k * N + i % N]; }
        }
        same("gemm", "chosen in " + dir, "D", d);
        return emu::algorithms;
    };
    auto file = [&](const std::string& dir) {
        cuda::products.cache = home + dir;
        return cuda::gemm_file();
    };
    auto kinds = [](std::vector<int> v) {
        std::sort(v.begin(), v.end());
        return std::unique(v.begin(), v.end()) - v.begin();
    };
    CHECK(run("/z").size() == 1 && !file_exists(file("/z")),
          "a search although no training was announced");
    cuda::tune_products(true);
    const std::vector<int> first = run("/a");
    const int chosen = first.back(), other = chosen % 3 + 1;
    CHECK(kinds(first) == 3, "a search tried %ld of 3 algorithms", (long)kinds(first));
    const std::string line = file_read(file("/a")), key = line.substr(0, line.find(" : "));
    // the line with another algorithm: its number is the first word, then what it belongs to
    auto with = [&](int number) {
        return key + strf(" : %d", number) + line.substr(line.find(' ', key.size() + 3));
    };
    CHECK(line == with(chosen), "the file says: %s", line.c_str());
    CHECK(run("/./a") == std::vector<int>(1, chosen),
          "the second run does not take the first one's algorithm %d", chosen);
    for (const char* dir : {"/b", "/c", "/d", "/e"}) { make_dirs(home + dir); }
    file_write(file("/b"), with(other));
    CHECK(run("/b") == std::vector<int>(1, other), "the file's algorithm %d is not taken", other);
    file_write(file("/c"), "nonsense\n" + key + strf(" : %d 0 0 0\n", other));      // cut off
    CHECK(kinds(run("/c")) == 3 && contains(file_read(file("/c")), key + " : "),
          "a broken file is not searched again");
    file_write(file("/d"), with(9));  // one that this cuBLAS does not know
    CHECK(kinds(run("/d")) == 3, "an unknown algorithm is not searched again");
    // and one of another product
    file_write(file("/e"), key + strf(" : %d 1 0 0 0 0 0 0\n", other));
    CHECK(kinds(run("/e")) == 3, "another product's algorithm is not searched again");
    make_dirs(home + "/f");
    file_write(file("/f"), with(other) + with(chosen));  // two jobs: the first line wins
    CHECK(run("/f") == std::vector<int>(1, other), "not the first line of the file is taken");
    file_write(file("/f"), with(9) + with(other));  // unless it cannot run here
    CHECK(run("/./f") == std::vector<int>(1, other), "not the first line that can run is taken");
    test_gemm_race(file("/g"), home + "/g", [&] { return run("/g"); }, with(other));
    // a proposal that cannot, or cannot after all, is left out
    for (const char* fault : {"badstate", "badalgo"}) {
        emu::settings.fault = fault;
        CHECK(kinds(run(strf("/%s", fault))) == 2,
              "with EMU_FAULT=%s the search did not try the two others", fault);
    }
    emu::settings.fault = "";
    cuda::products.cache = "";
    cuda::products.made.clear();
    emu::algorithms.clear();
    free_all();
    remove_tree(home);
}
#endif

#ifdef REAL_SIZES
// what the other builds shrink, at its real size: two panels and a ragged third of 512 queries,
// more sequences than fit one
static void test_real_sizes() {
    CHECK(!shrunk && cuda::PANEL_ROWS == 512, "REAL_SIZES: panels of %d rows", cuda::PANEL_ROWS);
    test_attention<Attn_softmax, Bias_kv, Pe_alibi>("real sizes",
                                                    { 1, 1100, 2, 1, 6, 0, 0, 0, 6, 1, 1 });
    const int B = (int)(cuda::PANEL_FLOATS / (512 * 520)) + 1;
    if (!IS_BF16) {
        test_attention<Attn_sigmoid_norm, Bias_none, Pe_rotary>(
            "real sizes", { B, 515, 1, 1, 2, 0, 0, 0, 2, 1, 1 });
        return free_all();
    }
    // where the presets train: T 2048, tiles of every kind, the 60M preset's vocabulary
    for (int HS : mma_heads()) {
        test_attention<Attn_softmax, Bias_none, Pe_rotary>(
            "real sizes", whole({ 1, 1025, 1, 1, HS, 0, 0, 0, HS, 1, 1 }));
    }
    test_attention<Attn_sigmoid_p, Bias_k, Pe_nope>(
        "real sizes", whole({ 1, 2048, 1, 1, 96, 0, 0, 0, 96, 2, 1 }));
    test_classifier(2, 50432);
    test_embed(1, 2049, 8, false, false, 50432);
    free_all();
}
#endif

#ifdef REAL_SIZES // and nothing else
int main() {
    puts(cuda::device_init().c_str());
    rng = rng_stream(6, 0);
    test_real_sizes();
    return check_done();
}
#else
// test_cuda simple 0|1: only attention against the simple kernels, with Hopper's kernels or without
static int only_simple(bool hopper) {
    CHECK(!hopper || cuda::gpu.hopper, "these are not Hopper's kernels");
    cuda::gpu.hopper = hopper;
    rng = rng_stream(4, 0);
    simple_now = true;
    test_variants();
    return check_done();
}

int main(int argc, char** argv) {
#if defined(EMU) && defined(HOPPER)
    emu::settings.hopper = true;
#endif
    puts(cuda::device_init().c_str());
    cuda::gpu.hopper = cuda::hopper_built && cuda::hopper_here();
    if (argc > 2 && !strcmp(argv[1], "simple")) { // 0 or 1: by Hopper's kernels; then T, or nothing
        if (argc > 3) { simple_T = atoi(argv[3]); }
        return only_simple(atoi(argv[2]));
    }
#if defined(EMU) && !defined(PTX_RUN)
    rng = rng_stream(5, 0);
    test_gemm_choice();
#endif
#ifdef EMU
    uint64_t first = 0;
    for (emu::Sched sched : {emu::FWD, emu::REV, emu::PCT}) {
        if (ONE_SCHEDULE && sched != emu::PCT) { continue; }
        emu::settings.sched = sched;
        emu::settings.open = sched != emu::FWD;
        emu::settings.eager = sched == emu::REV;
#endif
        rng = rng_stream(4, 0);
        normal(true);
        results = hash_bytes("", 0);
#ifndef ONLY_HEADS
        test_operations();
#endif
        test_variants();
        test_all_turned();
#ifndef ONLY_HEADS
        if (!SMALL) {
            test_long_rows();
            test_wide_rows();
            test_many_rounds();
        }
#endif
        simple_now = true;
        test_variants();
        simple_now = false;
#ifndef ONE_VARIANT
        if (!SMALL) { test_twelve_heads(); }
#endif
        printf("results %016llx\n", (unsigned long long)results);
#ifdef EMU
        if (!first) { first = results; }
        CHECK(results == first, "results depend on the schedule %d", sched);
    }
    const emu::Counts& n = emu::counts;
    printf("emulated %lu launches, %lu blocks, %lu mma, %lu ldmatrix with %lu bank conflicts\n",
           n.launches, n.blocks, n.mma, n.ldmatrix, n.conflicts);
#endif
    return check_done();
}
#endif
