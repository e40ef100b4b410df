/*
dev/emulator/selftest.cu -- checks the wrappers of device.cuh against the definitions in the CUDA
manual, and that the emulator refuses what it must. The first half also builds with nvcc:
on a GPU it checks our PTX against the same expectations. The second half (misuse,
each in a child process that must die with the right words) is for the emulator.
    g++ -x c++ -std=c++17 -O2 -DEMU -fno-strict-aliasing -fstack-clash-protection \
        -I$CUDA/include -Idev/emulator dev/emulator/selftest.cu -o selftest && ./selftest
    nvcc -std=c++17 -O2 -arch=sm_80 dev/emulator/selftest.cu -lcublasLt -o selftest && ./selftest
*/
#include "../../cuda/gemm.cuh"
#include "../../cuda/graph.cuh"
#include "../../cuda/instructions.cuh"
#include <functional>
#include <sys/wait.h>
using namespace cuda;

static int passed, failed, skipped;
static void check(const char* name, bool ok) {
    ok ? passed++ : failed++;
    if (!ok) { printf("FAIL %s\n", name); }
}
enum { N = 2048 };
static unsigned* out; static unsigned h[N];
static void run(void (*kernel)(unsigned*), int threads, int smem = 0, int blocks = 1) {
    LAUNCH(kernel, dim3(blocks), dim3(threads), smem, out);
    to_host(h, out, sizeof h);
}
template <class F> static void check_lanes(const char* name, int from, F want) {
    bool ok = true;
    for (unsigned l = 0; l < 32; l++) { ok = ok && h[from + l] == (unsigned)want(l); }
    check(name, ok);
}

// ----------------------------------------------------------------------------
// a graph: recorded kernels, memsets and copies are done when it is launched, each time

__global__ void add_one(unsigned* o) { o[threadIdx.x] += 1; }
static void check_graph() {
    unsigned* copy = (unsigned*)device_malloc(sizeof h);
    device_zero(out, sizeof h);
    const cudaGraphExec_t graph = graph_record([=] {
        LAUNCH(add_one, dim3(1), dim3(32), 0, out);
        device_copy(copy, out, sizeof h);
        device_zero(out + 1, sizeof(unsigned));
    });
    to_host(h, out, sizeof h);
    check("a graph that was only recorded", h[0] == 0);
    for (unsigned times = 1; times <= 3; times++) {
        device_check(cudaGraphLaunch(graph, gpu.stream), "starting a graph");
        to_host(h, out, sizeof h);
        check("a graph: kernels", h[0] == times && h[1] == 0 && h[31] == times && h[32] == 0);
        to_host(h, copy, sizeof h);
        check("a graph: a copy between a kernel and a memset", h[0] == times && h[1] == 1);
    }
    device_check(cudaGraphExecDestroy(graph), "freeing a graph");
    device_free(copy);
}

// the third time it is a graph; where scratch has moved, or the key is another, it is made anew
static void check_repeated() {
    gpu.graph = true;
    device_zero(out, sizeof h);
    int called = 0;
    auto work = [&] {
        called++;
        unsigned* x = (unsigned*)device_scratch(sizeof h);
        device_copy(x, out, sizeof h);
        LAUNCH(add_one, dim3(1), dim3(32), 0, x);
        device_copy(out, x, sizeof h);
    };
    auto count = [&] {
        to_host(h, out, sizeof h);
        return h[31];
    };
    for (int times = 0; times < 5; times++) { repeated({ 7 }, work); }
    check("repeated: five times, and called for two", count() == 5 && called == 2);
    device_scratch(100 * sizeof h);
    for (int times = 0; times < 5; times++) { repeated({ 7 }, work); }
    check("repeated: scratch has moved", count() == 10 && called == 4);
    for (int times = 0; times < 5; times++) { repeated({ 8 }, work); }
    check("repeated: another key", count() == 15 && called == 6);
    gpu.graph = false;
    repeated({ 8 }, work);
    check("repeated: without a graph", count() == 16 && called == 7);
}

// ----------------------------------------------------------------------------
// the wrappers

__global__ void shuffles(unsigned* o) {
    unsigned l = threadIdx.x;
    o[l] = __shfl_sync(~0u, l, 5);
    o[32 + l] = __shfl_xor_sync(~0u, l, 9);
    o[64 + l] = __ballot_sync(~0u, l % 3 == 0);
    if (l < 16) { o[96 + l] = __shfl_xor_sync(0xFFFFu, l, 1); }
    else { o[96 + l] = __shfl_xor_sync(0xFFFF0000u, l, 2); }
    o[128 + l] = (unsigned)warp_sum((float)l);
    o[160 + l] = (unsigned)warp_max((float)(l ^ 21));
}
template <int THREADS> __global__ void block_reductions(unsigned* o) {
    unsigned t = threadIdx.x, i = blockIdx.x * THREADS + t;
    // the second sum must not overwrite what the first still reads
    float sum = block_sum<THREADS>((float)t), again = block_sum<THREADS>(1.0f);
    float top = block_max<THREADS>((float)(t ^ 5));
    o[i] = (unsigned)sum * 10000 + (unsigned)top * 1000 % 10000 + (unsigned)again;
}
// matrix m, row i, column c holds m*64 + i*8 + c
__global__ void fragments(unsigned* o) {
    uint16_t* s = dynamic_smem<uint16_t>();
    int l = threadIdx.x; uint32_t r[4];
    for (int i = l; i < 256; i += 32) { s[i] = i; }
    __syncwarp();
    ldmatrix(r, s + l * 8);
    for (int m = 0; m < 4; m++) { o[m * 32 + l] = r[m]; }
    ldmatrix_trans(r, s + l * 8);
    for (int m = 0; m < 4; m++) { o[128 + m * 32 + l] = r[m]; }
}
// c += a b with small integers, exact in bf16 and fp32. Operands by the manual's tables,
// written the other way round: for each element, which lane and register holds it.
__global__ void product(unsigned* o) {
    int l = threadIdx.x;
    float av[8], bv[4], c[4];
    for (int row = 0; row < 16; row++) {
        for (int k = 0; k < 16; k++) {
            const float a = (row * 3 + k * 5) % 17 - 8, b = (k * 7 + row * 2) % 13 - 6;
            if (row % 8 * 4 + k / 2 % 4 == l) { av[k % 2 + row / 8 * 2 + k / 8 * 4] = a; }
            if (row < 8 && row * 4 + k / 2 % 4 == l) { bv[k % 2 + k / 8 * 2] = b; }
        }
    }
    uint32_t a[4] = { pack(av[0], av[1]), pack(av[2], av[3]), pack(av[4], av[5]),
                      pack(av[6], av[7]) };
    for (int e = 0; e < 4; e++) { c[e] = 1000.0f + e; }
    mma(c, a, pack(bv[0], bv[1]), pack(bv[2], bv[3]));
    for (int e = 0; e < 4; e++) {
        o[(l / 4 + e / 2 * 8) * 8 + l % 4 * 2 + e % 2] = (unsigned)(int)c[e];
    }
}
// three groups, waited for one at a time; the second is zero-filled.
// Each lane looks at what it copied itself.
__global__ void async_copies(unsigned* o) {
    unsigned* s = dynamic_smem<unsigned>();
    int l = threadIdx.x;
    for (int g = 0; g < 3; g++) {
        cp_async(s + g * 128 + l * 4, o + 512 + g * 128 + l * 4, g != 1);
        if (g == 2) { cp_async_float((float*)s + 384 + l, (const float*)o + 1000 + l); }
        cp_async_commit();
    }
    cp_async_wait<2>(); o[l] = s[l * 4];
    cp_async_wait<1>(); o[32 + l] = s[128 + l * 4];
    if (emulated) { o[64 + l] = s[256 + l * 4]; } // too early: a GPU may answer anything
    cp_async_wait<0>(); o[96 + l] = s[256 + l * 4 + 3];
    o[128 + l] = s[384 + l];
}

// the largest error of each, in thousandths of what the PTX manual allows (2^-22 relative of ex2,
// 2^-23 of rcp, 2^-22 absolute of lg2 from 0.5 to 2) and the rounding of a float
__global__ void approximations(unsigned* o) {
    float worst[3] = {};
    for (int i = 0; i < 64; i++) {
        const float x = 0.5f + (threadIdx.x * 64 + i) / 2048.0f;       // 0.5 to 1.5
        const float got[] = { ex2_approx(x), rcp_approx(x), lg2_approx(x) };
        const double is[] = { exp2((double)x), 1.0 / x, log2((double)x) };
        const double most[] = { 0x1p-22 * is[0], 0x1p-23 * is[1], 0x1p-22 };
        for (int k = 0; k < 3; k++) {
            const double rounding = 0x1p-24 * fabs(is[k]);
            worst[k] = fmaxf(worst[k], (float)(fabs(got[k] - is[k]) / (most[k] + rounding)));
        }
    }
    for (int k = 0; k < 3; k++) { o[k * 32 + threadIdx.x] = (unsigned)(worst[k] * 1000); }
}
// subnormal operands are flushed, and of a number and NaN the number is the larger and the smaller
__global__ void extremes(unsigned* o) {
    const float tiny = 1e-39f * (1 + threadIdx.x), nan = NAN, x = (float)threadIdx.x;
    const bool good[] = { rcp_approx(tiny) == INFINITY, rcp_approx(-tiny) == -INFINITY,
                          lg2_approx(tiny) == -INFINITY, ex2_approx(tiny) == 1,
                          max(nan, x) == x, max(x, nan) == x, min(nan, x) == x, min(x, nan) == x };
    unsigned bits = 0;
    for (int k = 0; k < 8; k++) { bits |= (unsigned)good[k] << k; }
    o[threadIdx.x] = bits;
}
__global__ void vectors(unsigned* o) {
    Vec<unsigned, 4> v = load<4>(o + 4 * threadIdx.x);
    for (unsigned& x : v.v) { x = x * 2 + 1; }
    store<4>(o + 4 * threadIdx.x, v);
}

static void test_wrappers() {
    run(shuffles, 32);
    check_lanes("shfl", 0, [](unsigned) { return 5; });
    check_lanes("shfl_xor", 32, [](unsigned l) { return l ^ 9; });
    check_lanes("ballot", 64, [](unsigned) { return 0x49249249; });
    check_lanes("shfl_xor of half warps", 96, [](unsigned l) { return l < 16 ? l ^ 1 : l ^ 2; });
    check_lanes("warp_sum", 128, [](unsigned) { return 496; });
    check_lanes("warp_max", 160, [](unsigned) { return 31; });
    run(block_reductions<256>, 256, 0, 3);
    bool ok = true;
    for (int i = 0; i < 768; i++) { ok = ok && h[i] == 32640u * 10000 + 5000 + 256; }
    check("block_sum, block_max", ok);
    run(fragments, 32, 1024);
    for (unsigned m = 0; m < 4; m++) {
        check_lanes("ldmatrix", m * 32, [=](unsigned l) {
            unsigned a = m * 64 + l / 4 * 8 + l % 4 * 2;
            return a | (a + 1) << 16;
        });
        check_lanes("ldmatrix.trans", 128 + m * 32, [=](unsigned l) {
            unsigned a = m * 64 + l % 4 * 16 + l / 4;
            return a | (a + 8) << 16;
        });
    }
    run(product, 32);
    ok = true;
    for (int row = 0; row < 16; row++) {
        for (int n = 0; n < 8; n++) {
            int want = 1000 + row / 8 * 2 + n % 2;
            for (int k = 0; k < 16; k++) {
                want += ((row * 3 + k * 5) % 17 - 8) * ((k * 7 + n * 2) % 13 - 6);
            }
            ok = ok && (int)h[row * 8 + n] == want;
        }
    }
    check("mma", ok);
    for (int i = 0; i < N; i++) { h[i] = i; }
    to_device(out, h, sizeof h);
    run(async_copies, 32, 2048);
    check_lanes("cp.async, first group", 0, [](unsigned l) { return 512 + l * 4; });
    check_lanes("cp.async, zero fill", 32, [](unsigned) { return 0; });
    check_lanes("cp.async, third group", 96, [](unsigned l) { return 768 + l * 4 + 3; });
    check_lanes("cp.async of one float", 128, [](unsigned l) { return 1000 + l; });
#ifdef EMU
    check_lanes("cp.async, not yet waited for", 64, [](unsigned) { return ~0u; });
#endif
    run(approximations, 32);
    const char* const names[] = { "ex2", "rcp", "lg2" };
    for (int k = 0; k < 3; k++) {
        ok = true;
        for (int l = 0; l < 32; l++) { ok = ok && h[k * 32 + l] <= 1000; }
        check(names[k], ok);
    }
    run(extremes, 8);
    ok = true;
    for (int l = 0; l < 8; l++) { ok = ok && h[l] == 0xFF; }
    check("subnormal operands and NaN", ok);
    for (int i = 0; i < N; i++) { h[i] = i; }
    to_device(out, h, sizeof h);
    run(vectors, 256);
    ok = true;
    for (unsigned i = 0; i < N; i++) { ok = ok && h[i] == (i < 1024 ? i * 2 + 1 : i); }
    check("vector load and store", ok);
}

// D = op(A) op(B) [+ D] for all transposes and both types, against loops; integers, so exact
template <class TD, class T> static void test_gemm(const char* name) {
    bool ok = true;
    static const int shapes[][3] = {{1, 1, 1}, {24, 48, 32}, {37, 33, 21}};
    for (auto& shape : shapes) {
        const int M = shape[0], n = shape[1], K = shape[2];
        for (int flags = 0; flags < 8; flags++) {
            bool ta = flags & 1, tb = flags & 2, add = flags & 4;
            std::vector<T> A(M * K), B(K * n); std::vector<TD> D(M * n);
            for (int i = 0; i < M * K; i++) { A[i] = T((float)(i * 7 % 5 - 2)); }
            for (int i = 0; i < K * n; i++) { B[i] = T((float)(i * 5 % 7 - 3)); }
            for (int i = 0; i < M * n; i++) { D[i] = TD((float)(i % 9)); }
            T* a = (T*)device_malloc(A.size() * sizeof(T));
            T* b = (T*)device_malloc(B.size() * sizeof(T));
            TD* d = (TD*)device_malloc(D.size() * sizeof(TD));
            to_device(a, A.data(), A.size() * sizeof(T));
            to_device(b, B.data(), B.size() * sizeof(T));
            to_device(d, D.data(), D.size() * sizeof(TD));
            gemm(matrix(d), add ? d : NULL, Matrix{ a, sizeof(T), 0, 0, ta },
                 Matrix{ b, sizeof(T), 0, 0, tb }, { M, n, K });
            to_host(D.data(), d, D.size() * sizeof(TD));
            for (int i = 0; i < M; i++) {
                for (int j = 0; j < n; j++) {
                    float want = add ? (float)((i * n + j) % 9) : 0.0f;
                    for (int k = 0; k < K; k++) {
                        want += (float)A[ta ? k * M + i : i * K + k] *
                                (float)B[tb ? j * K + k : k * n + j];
                    }
                    ok = ok && (float)D[i * n + j] == want;
                }
            }
            device_free(a); device_free(b); device_free(d);
        }
    }
    check(name, ok);
}

// three products at once whose matrices are parts of larger ones;
// what lies between D's rows stays as it was
static void test_gemm_strides() {
    const int M = 5, n = 7, K = 6, lda = 9, ldb = 11, ldd = 10, count = 3, a1 = 70, b1 = 90,
              d1 = 64;
    std::vector<float> A(count * a1), B(count * b1), D(count * d1, 0.5f);
    for (size_t i = 0; i < A.size(); i++) { A[i] = (float)(i * 7 % 5) - 2; }
    for (size_t i = 0; i < B.size(); i++) { B[i] = (float)(i * 5 % 7) - 3; }
    float *a = (float*)device_malloc(A.size() * 4), *b = (float*)device_malloc(B.size() * 4);
    float* d = (float*)device_malloc(D.size() * 4);
    to_device(a, A.data(), A.size() * 4); to_device(b, B.data(), B.size() * 4);
    for (int flags = 0; flags < 8; flags++) {
        const bool ta = flags & 1, tb = flags & 2, add = flags & 4;
        std::vector<float> want = D, got(D.size());
        for (int at = 0; at < count * M * n; at++) {
            const int p = at / (M * n), i = at / n % M, j = at % n;
            float sum = add ? 0.5f : 0.0f;
            for (int k = 0; k < K; k++) {
                sum += A[p * a1 + (ta ? k * lda + i : i * lda + k)] *
                       B[p * b1 + (tb ? j * ldb + k : k * ldb + j)];
            }
            want[p * d1 + i * ldd + j] = sum;
        }
        to_device(d, D.data(), D.size() * 4);
        gemm(matrix(d, ldd, d1), add ? d : NULL, Matrix{ a, 4, lda, a1, ta },
             Matrix{ b, 4, ldb, b1, tb }, { M, n, K, count });
        to_host(got.data(), d, got.size() * 4);
        check("gemm with strides", got == want);
    }
}

// ----------------------------------------------------------------------------
// misuse

#ifdef EMU
__global__ void divergent_barrier(unsigned*) {
    if (threadIdx.x < 32) { __syncthreads(); }
    else { __syncthreads(); }
}
__global__ void dead(unsigned*) {
    if (threadIdx.x < 40) { __syncthreads(); }
    else { __shfl_sync(~0u, 1, 0); }
}
__global__ void early_exit(unsigned*) { if (threadIdx.x != 3) { __syncthreads(); } }
__global__ void wrong_mask(unsigned*) { if (threadIdx.x < 8) { __shfl_sync(0xFFFF0000u, 1, 0); } }
__global__ void divergent_warp(unsigned*) {
    if (threadIdx.x < 16) { __shfl_sync(~0u, 1, 0); }
    else { __shfl_xor_sync(~0u, 1, 1); }
}
__global__ void past_static(unsigned*) {
    SMEM(int[5], a);
    if (threadIdx.x == 5) { (&a[0])[threadIdx.x] = 1; }
}
__global__ void past_dynamic(unsigned* o) { o[0] = dynamic_smem<unsigned>()[100]; }
__global__ void past_device(unsigned* o) { o[N + threadIdx.x] = 1; }
__global__ void big_stack(unsigned* o) {
    volatile char b[1 << 20];
    b[threadIdx.x] = 1;
    o[0] = b[5];
}
__global__ void no_wait(unsigned* o) { cp_async(dynamic_smem<char>() + threadIdx.x * 16, o, true); }
__global__ void misaligned_rows(unsigned*) {
    uint32_t r[4];
    ldmatrix(r, dynamic_smem<char>() + threadIdx.x * 8);
}
__global__ void misaligned_pair(unsigned* o) { store<2>(o, load<2>(o + 1)); }
__global__ void misaligned_static(unsigned* o) { // a vector where there are only numbers
    SMEM(unsigned[64], a);
    store<4>(&a[0], load<4>(o));
}
__global__ void no_syncwarp(unsigned* o) { // the neighbor's write is not there yet
    unsigned* s = dynamic_smem<unsigned>();
    s[threadIdx.x] = threadIdx.x;
    o[threadIdx.x] = s[threadIdx.x ^ 1];
}
__global__ void one_word(unsigned* o) { o[0] = blockIdx.x; }
__global__ void own_word(unsigned* o) { o[blockIdx.x * blockDim.x + threadIdx.x] = 1; }
__global__ void others_word(unsigned* o) {
    o[gridDim.x * blockDim.x - 1 - blockIdx.x * blockDim.x - threadIdx.x] = 2;
}
__global__ void bank_conflicts(unsigned* o) {
    uint32_t r[4];
    ldmatrix(r, dynamic_smem<char>() + threadIdx.x * 128);
    ldmatrix(r, dynamic_smem<char>() + threadIdx.x * 144);
    o[threadIdx.x] = r[0];
}

// f must end the process, with `words` in what it says; one: an error and its hint, no more
static void refuse(const char* words, std::function<void()> f, bool one = false) {
    int p[2];
    if (pipe(p)) { check("pipe", false); return; }
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) { dup2(p[1], 2); f(); _exit(0); }
    close(p[1]);
    std::string said; char b[512];
    for (ssize_t n; (n = read(p[0], b, sizeof b)) > 0;) { said.append(b, n); }
    close(p[0]);
    int status; waitpid(child, &status, 0);
    bool ok = status != 0 && said.find(words) != std::string::npos;
    const size_t lines = std::count(said.begin(), said.end(), '\n');
    if (one) {
        ok = ok && lines == 2 && said.find("error: ") == 0 &&
             said.find("\n---> HINT: ") != std::string::npos;
    }
    if (!ok) { printf("wanted \"%s\", got \"%s\"\n", words, said.c_str()); }
    check(words, ok);
}
static void misuse(const char* words, void (*kernel)(unsigned*), int threads, int smem = 0) {
    refuse(words, [=] { run(kernel, threads, smem); });
}
// the whole path of a user's error: exit code 1, the fact, the hint
static void fault(const char* name, const char* words, const char* hint) {
    auto f = [=] {
        emu::init();
        emu::settings.fault = name;
        device_init();
        float* a = (float*)device_malloc(emu::fault("oom") ? size_t(3) << 30 : 1 << 20);
        run(shuffles, 32);
        gemm(matrix(a), a, matrix(a + 1024), matrix(a + 2048), { 8, 8, 8 });
    };
    refuse(words, f, true);
    refuse(hint, f, true);
}
// ---- what cublasLt would refuse, or do in silence. A product d (8, 8) = a (8, 8) b (8, 8)
// in fp32, of which f changes something
struct Asked {
    char *a, *b, *c, *d;
    cublasLtMatmulDesc_t desc; cublasLtMatrixLayout_t la, lb, lc, ld; cublasLtMatmulAlgo_t algo;
    char* workspace; size_t size, most = 256; uint32_t align = 16; float one = 1, zero = 0;
    void propose() { // the first algorithm
        cublasLtMatmulPreference_t pref; cublasLtMatmulHeuristicResult_t r; int n;
        cublasLtMatmulPreferenceCreate(&pref);
        cublasLtMatmulPreferenceSetAttribute(pref, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &most,
                                             8);
        for (int i = 0; i < 4; i++) {
            const auto attr =
                (cublasLtMatmulPreferenceAttributes_t)(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES +
                                                       i);
            cublasLtMatmulPreferenceSetAttribute(pref, attr, &align, 4);
        }
        cublasLtMatmulAlgoGetHeuristic(gpu.blas, desc, la, lb, lc, ld, pref, 1, &r, &n);
        algo = r.algo;
        cublasLtMatmulPreferenceDestroy(pref);
    }
    void forget_layouts() {
        for (auto l : {la, lb, lc}) { cublasLtMatrixLayoutDestroy(l); }
        if (ld != lc) { cublasLtMatrixLayoutDestroy(ld); }
    }
    void forget() {
        forget_layouts();
        cublasLtMatmulDescDestroy(desc);
    }
    void run() {
        cublasLtMatmul(gpu.blas, desc, &one, a, la, b, lb, &zero, c, lc, d, ld, &algo, workspace,
                       size, gpu.stream);
    }
};
static void layout_of(Asked& x, int ld) { cublasLtMatrixLayoutCreate(&x.la, CUDA_R_32F, 8, 8, ld); }
static Asked asked(cudaDataType ab = CUDA_R_32F, cudaDataType cd = CUDA_R_32F) {
    Asked x;
    device_start();
    for (char** p : {&x.a, &x.b, &x.d}) { *p = (char*)device_malloc(1024); }
    x.c = x.d; x.workspace = (char*)device_malloc(x.size = 256);
    cublasLtMatmulDescCreate(&x.desc, CUBLAS_COMPUTE_32F, CUDA_R_32F);
    cublasLtMatrixLayoutCreate(&x.la, ab, 8, 8, 8); cublasLtMatrixLayoutCreate(&x.lb, ab, 8, 8, 8);
    cublasLtMatrixLayoutCreate(&x.lc, cd, 8, 8, 8); cublasLtMatrixLayoutCreate(&x.ld, cd, 8, 8, 8);
    return x;
}
static void blas_misuse(
    const char* words, std::function<void(Asked&)> before,
    std::function<void(Asked&)> after = [](Asked&) {}) {
    refuse(words, [=] { Asked x = asked(); before(x); x.propose(); after(x); x.run(); });
}
static void test_blas_refusals() {
    auto same = [](Asked&) {};
    // and what it does not refuse: nothing changed; C apart from D; halves of one matrix
    Asked good = asked();
    good.propose(); good.run();
    good.c = (char*)device_malloc(1024); good.run();
    good.forget_layouts();
    cublasLtMatrixLayoutCreate(&good.la, CUDA_R_32F, 4, 4, 16);
    cublasLtMatrixLayoutCreate(&good.ld, CUDA_R_32F, 4, 4, 16);
    cublasLtMatrixLayoutCreate(&good.lb, CUDA_R_32F, 4, 4, 4);
    good.lc = good.ld; good.c = good.d = good.a + 32; good.propose(); good.run();
    good.forget();
    check("products that are allowed", true);

    auto layout = [](cublasLtMatrixLayout_t* l, cudaDataType t, int n, int ld) {
        cublasLtMatrixLayoutCreate(l, t, n, n, ld);
    };
    blas_misuse("A and B differ in type", [=](Asked& x) { layout(&x.la, CUDA_R_16BF, 8, 8); });
    blas_misuse("C and D differ in type", [=](Asked& x) { layout(&x.lc, CUDA_R_16BF, 8, 8); });
    blas_misuse("C and D differ in shape", [=](Asked& x) { layout(&x.lc, CUDA_R_32F, 4, 8); });
    refuse("has a bf16 result", [] { Asked x = asked(CUDA_R_32F, CUDA_R_16BF); x.propose(); });
    refuse("is not emulated", [=] { cublasLtMatrixLayout_t l; layout(&l, CUDA_R_64F, 8, 8); });
    refuse("leading dimension 7 of 8 rows", [=] {
        cublasLtMatrixLayout_t l;
        layout(&l, CUDA_R_32F, 8, 7);
    });
    blas_misuse("D shares memory with A or B", same, [](Asked& x) { x.d = x.c = x.a; });
    blas_misuse("D shares memory with C and is not C", same, [](Asked& x) { x.c = x.d + 16; });
    blas_misuse("does not lie in one device allocation", same, [](Asked& x) { x.a += 800; });
    blas_misuse("proposed for another description", same,
                [=](Asked& x) { layout(&x.la, CUDA_R_32F, 8, 9); });
    blas_misuse(
        "is not aligned to 256 bytes", [](Asked& x) { x.align = 256; },
        [](Asked& x) { x.b += 16; });
    // whichever is proposed first, one of these descriptions needs some
    blas_misuse(
        "the algorithm needs",
        [](Asked& x) {
            for (int ld = 8; ld < 12; ld++) {
                layout_of(x, ld);
                x.propose();
                if (x.algo.data[0] > 1) { return; }
            }
        },
        [](Asked& x) { x.size = 64; });
    blas_misuse("the workspace is not device memory", same, [](Asked& x) { x.size = 1 << 20; });
    blas_misuse("a matrix lies in the workspace", same, [](Asked& x) { x.workspace = x.a; });
    blas_misuse("was destroyed", same, [](Asked& x) { cublasLtMatrixLayoutDestroy(x.lb); });
    const int64_t eight = 8; const int32_t two = 2;
    refuse("attribute 3 of 8 bytes, wanted 4", [=] {
        Asked x = asked();
        cublasLtMatmulDescSetAttribute(x.desc, CUBLASLT_MATMUL_DESC_TRANSA, &eight, 8);
    });
    refuse("attribute 5 of 8 bytes, wanted 4", [=] {
        Asked x = asked();
        cublasLtMatrixLayoutSetAttribute(x.la, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &eight, 8);
    });
    refuse("2 products into one D", [=] {
        Asked x = asked();
        for (auto l : { x.la, x.lb, x.lc, x.ld }) {
            cublasLtMatrixLayoutSetAttribute(l, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &two, 4);
        }
        x.propose(); x.run();
    });
    refuse("is not a power of two", [] { Asked x = asked(); x.align = 12; x.propose(); });

    // each algorithm adds in another order: the sums of thirds differ in the last bits,
    // and the workspace is NaN afterward
    std::vector<float> thirds(64), sums[3];
    for (int i = 0; i < 64; i++) { thirds[i] = 1.0f / (3 + i * 7 % 13); }
    Asked x = asked();
    to_device(x.a, thirds.data(), 256); to_device(x.b, thirds.data(), 256);
    x.propose();
    for (int i = 0; i < 3; i++) {
        x.algo.data[0] = i + 1;
        x.run();
        sums[i].resize(64);
        to_host(sums[i].data(), x.d, 256);
    }
    check("three orders of sums", sums[0] != sums[1] && sums[1] != sums[2] && sums[0] != sums[2]);
    unsigned left;
    to_host(&left, x.workspace, 4);
    check("the workspace is poisoned", left == ~0u);
    x.forget();
}

// ---- streams and memory
static void test_stream_refusals() {
    cudaStream_t other; cudaEvent_t event;
    cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking);
    cudaEventCreateWithFlags(&event, cudaEventDisableTiming);
    unsigned* p = (unsigned*)device_malloc(256);
    device_sync();
    auto use = [&](cudaStream_t s) { cudaMemsetAsync(p, 0, 256, s); };
    refuse("neither waits for the other", [=] { use(gpu.stream); use(other); });
    refuse("neither waits for the other", [=] {
        use(other);
        emu::launch("shuffles", shuffles, dim3(1), dim3(32), 0, gpu.stream, p);
    });
    refuse("may still be using", [=] { use(gpu.stream); cudaFree(p); });
    refuse("may still be using", [=] { use(other); cudaFreeAsync(p, gpu.stream); });
    use(gpu.stream);
    cudaEventRecord(event, gpu.stream);
    cudaStreamWaitEvent(other, event, 0);
    use(other);                                      // after an event
    cudaStreamSynchronize(other);
    use(gpu.stream);                                 // after the host has waited
    device_free(p);
    check("streams that wait", true);
    refuse("not a device pointer", [=] { LAUNCH(shuffles, dim3(1), dim3(32), 0, p); });
    void* again = device_malloc(256);
    check("freed addresses do not come back", again != (void*)p || EMU_ASAN + EMU_TSAN);
    unsigned here = 5;
    to_device(again, &here, 4);
    cudaMemcpyAsync(&here, again, 4, cudaMemcpyDeviceToHost, gpu.stream);
    check("a copy to the host is not there before the wait", here == ~0u);
    device_sync();
    check("and is there after it", here == 5);
    cudaEventDestroy(event);
}

// ---- shared memory and errors of the runtime
__global__ void much_static(unsigned* o) {
    SMEM(char[4096], a);
    a[threadIdx.x] = 1;
    o[threadIdx.x] = a[threadIdx.x];
}
__global__ void finds(unsigned* o) {
    SMEM(unsigned[32], a);
    o[blockIdx.x * 32 + threadIdx.x] = a[threadIdx.x];
    a[threadIdx.x] = 1;
}
// a variable counts for a launch that does not come to it, too
__global__ void seldom_static(unsigned* o) {
    if (o[0] != 7) { return; }
    SMEM(char[4096], a);
    a[threadIdx.x] = 1;
    o[1 + threadIdx.x] = a[threadIdx.x];
}
// shared memory is undefined in every block, not what the one before left
static void test_undefined() {
    run(finds, 32, 0, 3);
    for (int b = 0; b < 3; b++) {
        check_lanes("a shared variable begins as 0xFF", b * 32, [](unsigned) { return ~0u; });
    }
}
static void test_runtime_refusals() {
    auto bare = [](void (*kernel)(unsigned*), size_t smem) { // without the wrapper that asks for it
        emu::launch("kernel", kernel, dim3(1), dim3(32), smem, gpu.stream, out);
    };
    refuse("it may use 49152: ask", [=] { bare(shuffles, (48 << 10) + 16); });
    auto ask = [](void (*kernel)(unsigned*), int bytes) {
        return cudaFuncSetAttribute((const void*)kernel,
                                    cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
    };
    // 48 KiB are for dynamic and static memory together, but for a kernel that has asked
    bare(much_static, 44 << 10);
    refuse("wants 49168 bytes of shared memory", [=] { bare(much_static, (44 << 10) + 16); });
    refuse("wants 51200 bytes of shared memory", [=] { bare(much_static, 46 << 10); });
    LAUNCH(much_static, dim3(1), dim3(32), 46 << 10, out);
    check("asked for, it may be below 48 KiB", ask(much_static, 46 << 10) == cudaSuccess);
    bare(much_static, 46 << 10);
    refuse("it may use 51200: ask", [=] { bare(much_static, (46 << 10) + 16); });
    check("99 KiB are the most", ask(much_static, 95 << 10) == cudaSuccess &&
                                     ask(much_static, (95 << 10) + 16) == cudaErrorInvalidValue);
    cudaGetLastError();
    device_zero(out, 4);
    bare(seldom_static, 46 << 10);                   // not known yet
    for (unsigned first : {7, 0}) {
        to_device(out, &first, 4);
        if (first) { bare(seldom_static, 44 << 10); }
    }
    refuse("wants 51200 bytes of shared memory", [=] { bare(seldom_static, 46 << 10); });
    for (const char* words : { "GPU: shuffles: wanted 102400 bytes of", "lower --width" }) {
        refuse(words, [] { LAUNCH(shuffles, dim3(1), dim3(32), 100 << 10, out); }, true);
    }
    refuse("bad launch", [] { LAUNCH(shuffles, dim3(1, 1, 70000), dim3(32), 0, out); });
    refuse("bad launch", [] { LAUNCH(shuffles, dim3(1), dim3(2048), 0, out); });
    refuse("bad launch", [] { LAUNCH(shuffles, dim3(1), dim3(1, 1, 128), 0, out); });
    void* p; // an error that nobody took away is found after the next launch
    check("too much memory", cudaMalloc(&p, size_t(1) << 40) == cudaErrorMemoryAllocation);
    refuse("GPU: shuffles: out of memory", [] { LAUNCH(shuffles, dim3(1), dim3(32), 0, out); });
    check("it is still there", cudaPeekAtLastError() == cudaErrorMemoryAllocation &&
                                   cudaGetLastError() == cudaErrorMemoryAllocation);
    check("and gone when asked for", cudaGetLastError() == cudaSuccess);
    cudaEvent_t e; // an event that is not there yet
    cudaEventCreateWithFlags(&e, cudaEventDisableTiming);
    LAUNCH(shuffles, dim3(1), dim3(32), 0, out);
    cudaEventRecord(e, gpu.stream);
    check("asked too early", cudaEventQuery(e) == cudaErrorNotReady &&
                                 cudaGetLastError() == cudaErrorNotReady);
    check("asked again", cudaEventQuery(e) == cudaSuccess && cudaGetLastError() == cudaSuccess);
    cudaEventDestroy(e);
    emu::settings.fault = "async";                   // one of a kernel stays
    LAUNCH(shuffles, dim3(1), dim3(32), 0, out);
    check("seen at the next wait", cudaStreamSynchronize(gpu.stream) == cudaErrorIllegalAddress);
    emu::settings.fault = "";
    cudaGetLastError();
    check("and for ever after", cudaGetLastError() == cudaErrorIllegalAddress &&
                                    cudaMalloc(&p, 4) == cudaErrorIllegalAddress);
    emu::sticky = cudaSuccess;
}

static void test_refusals() {
    misuse("divergent barrier", divergent_barrier, 64);
    misuse("deadlock", dead, 64);
    misuse("exit", early_exit, 64);
    misuse("not in mask", wrong_mask, 32);
    misuse("divergent warp operation", divergent_warp, 32);
    misuse("past the end of a static", past_static, 64);
    misuse("not 16-byte aligned", misaligned_rows, 32, 512);
    misuse("not 8-byte aligned, as a vector", misaligned_pair, 1);
    misuse("not 16-byte aligned, as a vector", misaligned_static, 1);
    misuse("not waited for", no_wait, 32, 512);
    refuse("cudaStreamSynchronize while a stream is captured",
           [] { graph_record([] { device_sync(); }); });
    refuse("cudaMalloc while a stream is captured", [] { graph_record([] { device_malloc(4); }); });
    refuse("a copy from or to the host while a stream is captured", [] {
        to_device(out, h, 4);
        graph_record([] {
            cudaMemcpyAsync(h, out, 4, cudaMemcpyDeviceToHost, gpu.stream);
        });
    });
    refuse("not a device pointer", [] { LAUNCH(shuffles, dim3(1), dim3(32), 0, h); });
    refuse("does not fit", [] { to_device(h, h, 4); });
    refuse("pageable memory",
           [] { cudaMemcpyAsync(out, h, 4, cudaMemcpyHostToDevice, gpu.stream); });
    refuse("bad launch", [] { LAUNCH(shuffles, dim3(1, 70000), dim3(32), 0, out); });
    // these need guard pages; the sanitizers find them in their own ways
    if (EMU_ASAN + EMU_TSAN == 0) {
        misuse("of dynamic shared memory", past_dynamic, 32, 64);
        misuse("past the end of a device allocation", past_device, 32);
        misuse("stack overflow", big_stack, 32);
        refuse("host code touched device memory", [] { out[7] = 1; });
        refuse("before the device had copied it", [] {
            for (int i = 0; i < 4; i++) { to_device(out, h, 4); }
            emu::locked.p[4095] = 1;
        });
    } else { skipped += 5; }
    // also of threads that have been in a launch before: between two launches there is none
    if (EMU_TSAN) {
        auto both = [] {
            for (auto kernel : { own_word, others_word }) {
                LAUNCH(kernel, dim3(2), dim3(32), 0, out);
            }
        };
        misuse("data race", no_syncwarp, 32, 128);
        refuse("data race", [] { LAUNCH(one_word, dim3(2), dim3(1), 0, out); });
        both();
        refuse("data race", [=] { both(); run(no_syncwarp, 32, 128); });
        refuse("data race", [=] { both(); LAUNCH(one_word, dim3(2), dim3(1), 0, out); });
    } else {
        run(no_syncwarp, 32, 128);
        int poison = 0;
        for (int l = 0; l < 32; l++) { poison += h[l] == ~0u; }
        check("missing __syncwarp reads poison", poison > 0);
    }
    emu::counts.conflicts = 0;
    run(bank_conflicts, 32, 32 * 144);
    check("bank conflicts of rows 128 bytes apart, none 144 apart", emu::counts.conflicts == 28);

    test_blas_refusals();
    test_stream_refusals();
    test_undefined();
    test_runtime_refusals();
    // the likeliest errors of a first run: what the user reads
    unsetenv("CUDA_VISIBLE_DEVICES");
    fault("nogpu", "error: GPU: found none, wanted one", "make BACKEND=cpu");
    for (const char* visible : { "", "7" }) {
        setenv("CUDA_VISIBLE_DEVICES", visible, 1);
        fault("nogpu", strf("CUDA_VISIBLE_DEVICES='%s' leaves none", visible).c_str(),
              "unset CUDA_VISIBLE_DEVICES");
    }
    unsetenv("CUDA_VISIBLE_DEVICES");
    fault("old", "got emulated (sm_75), wanted sm_80 (A100) or newer, in bf16 and in fp32",
          "CUDA_VISIBLE_DEVICES=1");
    fault("driver", "error: GPU driver: got one for CUDA", "update the driver");
    fault("insufficient", "error: GPU: looking for one: an emulated error 35", "update the driver");
    fault("mismatch", "error: GPU: looking for one: an emulated error 803", "reboot");
    fault("notready", "error: GPU: looking for one: an emulated error 802", "nvidia-fabricmanager");
    fault("compat", "error: GPU: looking for one: an emulated error 804", "LD_LIBRARY_PATH");
    fault("stub", "error: GPU: looking for one: an emulated error 34", "lib64/stubs");
    fault("noinit", "error: GPU: looking for one: an emulated error 3", "nvidia_uvm");
    fault("unknown", "error: GPU: looking for one: an emulated error 999", "nvidia_uvm");
    fault("mps", "error: GPU: choosing GPU 0: an emulated error 805", "nvidia-cuda-mps-control");
    fault("busy", "error: GPU: choosing GPU 0: an emulated error 46", "CUDA_VISIBLE_DEVICES");
    for (const char* name : { "noimage", "nofunction" }) {
        fault(name, "error: GPU: got emulated (sm_86), wanted sm_80, which this binary was",
              "make GPU_ARCH=sm_86");
    }
    fault("ptx", "error: GPU: loading the kernels: an emulated error 222", "GPU_ARCH=sm_NN");
    fault("resources", "error: GPU: kernel: an emulated error 701", "make clean");
    fault("oom:2048", "wanted 3.00 GiB more, ", "lower --batch");
    fault("shape", "error: GPU: kernel: an emulated error 9", "docs/gpu.md");
    fault("launch", "error: GPU: kernel: an emulated error 719", "compute-sanitizer");
    fault("async", "error: GPU: waiting for the GPU: an emulated error 700", "compute-sanitizer");
    fault("timeout", "error: GPU: waiting for the GPU: an emulated error 702", "lower --batch");
    fault("nvlink", "error: GPU: waiting for the GPU: an emulated error 220", "grep Xid");
    fault("ecc", "error: GPU: waiting for the GPU: an emulated error 214", "nvidia-smi -q -d ECC");
    fault("cublasinit", "error: cuBLAS: starting: CUBLAS_STATUS_NOT_INITIALIZED", "libcublasLt");
    fault("noalgo", "error: cuBLAS: no algorithm for a matrix product (8, 8) x (8, 8)",
          "nvidia-smi");
    fault("badalgo", "error: cuBLAS: matrix product (8, 8) x (8, 8)", "nvidia-smi");
    fault("cublas", "error: cuBLAS: matrix product (8, 8) x (8, 8)", "nvidia-smi");
    emu::settings.fault = "badstate";                // a proposal that says it cannot is not taken
    float* a = (float*)device_malloc(1 << 14);
    gemm(matrix(a), a, matrix(a + 1024), matrix(a + 2048), { 8, 8, 9 });
    check("a proposal in a bad state", true);
    emu::settings.fault = "refused";                 // nor one that says so only when it runs
    emu::algorithms.clear();
    for (int i = 0; i < 2; i++) {
        gemm(matrix(a), a, matrix(a + 1024), matrix(a + 2048), { 8, 8, 7 });
    }
    check("a proposal that is refused", emu::algorithms.size() == 2 &&
                                            emu::algorithms[0] == emu::algorithms[1]);
    emu::settings.fault = "";
}
#else
static void test_refusals() { skipped += 134; }
#endif

// larger than the ring of page-locked memory, its source overwritten at once
static void test_to_device() {
    std::vector<int> x(3 << 20), y(x.size());
    for (size_t i = 0; i < x.size(); i++) { x[i] = (int)(i * 2654435761u); }
    int* d = (int*)device_malloc(x.size() * sizeof(int));
    // in pieces of all sizes, and the last one to the end
    for (size_t at = 0; at < x.size(); at += 1000) {
        const size_t n = std::min(x.size() - at, at < 100000 ? (size_t)1000 : x.size());
        std::vector<int> piece(x.begin() + at, x.begin() + at + n);
        to_device(d + at, piece.data(), n * sizeof(int));
        std::fill(piece.begin(), piece.end(), -1);
        if (n > 1000) { break; }
    }
    to_host(y.data(), d, y.size() * sizeof(int));
    check("to_device", x == y);
    device_free(d);
}

int main() {
    out = (unsigned*)device_malloc(sizeof h);
    test_to_device();
    test_wrappers();
    check_graph();
    check_repeated();
    test_gemm<float, float>("gemm fp32");
    test_gemm<bf16, bf16>("gemm bf16");
    test_gemm<float, bf16>("gemm bf16, fp32 output");
    test_gemm_strides();
    test_refusals();
    if (skipped) {
        printf("skipped: %d, which need %s\n", skipped, emulated ? "guard pages" : "the emulator");
    }
    printf("%d passed, %d failed\n", passed, failed);
    return failed != 0;
}
