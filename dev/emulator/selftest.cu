/*
dev/emulator/selftest.cu -- checks the wrappers of device.cuh against the definitions in the CUDA manual, and that the
emulator refuses what it must. The first half also builds with nvcc: on a GPU it checks our PTX against the same
expectations. The second half (misuse, each in a child process that must die with the right words) is for the emulator.
    g++ -x c++ -std=c++17 -O2 -DEMU -fno-strict-aliasing -fstack-clash-protection -I$CUDA/include -Idev/emulator \
        dev/emulator/selftest.cu -o selftest && ./selftest
    nvcc -std=c++17 -O2 -arch=sm_80 dev/emulator/selftest.cu -lcublasLt -o selftest && ./selftest
*/
#include "../../cuda/device.cuh"
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
// the wrappers

__global__ void shuffles(unsigned* o) {
    unsigned l = threadIdx.x;
    o[l] = __shfl_sync(~0u, l, 5);
    o[32 + l] = __shfl_xor_sync(~0u, l, 9);
    o[64 + l] = __ballot_sync(~0u, l % 3 == 0);
    if (l < 16) { o[96 + l] = __shfl_xor_sync(0xFFFFu, l, 1); } else { o[96 + l] = __shfl_xor_sync(0xFFFF0000u, l, 2); }
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
// c += a b with small integers, exact in bf16 and fp32. Operands by the manual's tables, written the other way round:
// for each element, which lane and register holds it.
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
    uint32_t a[4] = {pack(av[0], av[1]), pack(av[2], av[3]), pack(av[4], av[5]), pack(av[6], av[7])};
    for (int e = 0; e < 4; e++) { c[e] = 1000.0f + e; }
    mma(c, a, pack(bv[0], bv[1]), pack(bv[2], bv[3]));
    for (int e = 0; e < 4; e++) { o[(l / 4 + e / 2 * 8) * 8 + l % 4 * 2 + e % 2] = (unsigned)(int)c[e]; }
}
// three groups, waited for one at a time; the second is zero-filled. Each lane looks at what it copied itself.
__global__ void async_copies(unsigned* o) {
    unsigned* s = dynamic_smem<unsigned>();
    int l = threadIdx.x;
    for (int g = 0; g < 3; g++) { cp_async(s + g * 128 + l * 4, o + 512 + g * 128 + l * 4, g != 1); cp_async_commit(); }
    cp_async_wait<2>(); o[l] = s[l * 4];
    cp_async_wait<1>(); o[32 + l] = s[128 + l * 4]; o[64 + l] = s[256 + l * 4];
    cp_async_wait<0>(); o[96 + l] = s[256 + l * 4 + 3];
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
            for (int k = 0; k < 16; k++) { want += ((row * 3 + k * 5) % 17 - 8) * ((k * 7 + n * 2) % 13 - 6); }
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
#ifdef EMU
    check_lanes("cp.async, not yet waited for", 64, [](unsigned) { return ~0u; });
#endif
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
            T* a = (T*)device_malloc(A.size() * sizeof(T)); T* b = (T*)device_malloc(B.size() * sizeof(T));
            TD* d = (TD*)device_malloc(D.size() * sizeof(TD));
            to_device(a, A.data(), A.size() * sizeof(T)); to_device(b, B.data(), B.size() * sizeof(T));
            to_device(d, D.data(), D.size() * sizeof(TD));
            gemm(d, add ? d : (TD*)NULL, a, b, M, n, K, ta, tb);
            to_host(D.data(), d, D.size() * sizeof(TD));
            for (int i = 0; i < M; i++) {
                for (int j = 0; j < n; j++) {
                    float want = add ? (float)((i * n + j) % 9) : 0.0f;
                    for (int k = 0; k < K; k++) {
                        want += (float)A[ta ? k * M + i : i * K + k] * (float)B[tb ? j * K + k : k * n + j];
                    }
                    ok = ok && (float)D[i * n + j] == want;
                }
            }
            device_free(a); device_free(b); device_free(d);
        }
    }
    check(name, ok);
}

// three products at once whose matrices are parts of larger ones; what lies between D's rows stays as it was
static void test_gemm_strides() {
    const int M = 5, n = 7, K = 6, lda = 9, ldb = 11, ldd = 10, count = 3, a1 = 70, b1 = 90, d1 = 64;
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
                sum += A[p * a1 + (ta ? k * lda + i : i * lda + k)] * B[p * b1 + (tb ? j * ldb + k : k * ldb + j)];
            }
            want[p * d1 + i * ldd + j] = sum;
        }
        to_device(d, D.data(), D.size() * 4);
        gemm(d, add ? d : (float*)NULL, a, b, M, n, K, ta, tb, Strides{lda, ldb, ldd, count, a1, b1, d1});
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
__global__ void dead(unsigned*) { if (threadIdx.x < 40) { __syncthreads(); } else { __shfl_sync(~0u, 1, 0); } }
__global__ void early_exit(unsigned*) { if (threadIdx.x != 3) { __syncthreads(); } }
__global__ void wrong_mask(unsigned*) { if (threadIdx.x < 8) { __shfl_sync(0xFFFF0000u, 1, 0); } }
__global__ void divergent_warp(unsigned*) {
    if (threadIdx.x < 16) { __shfl_sync(~0u, 1, 0); }
    else { __shfl_xor_sync(~0u, 1, 1); }
}
__global__ void past_static(unsigned*) { SMEM(int[5], a); if (threadIdx.x == 5) { (&a[0])[threadIdx.x] = 1; } }
__global__ void past_dynamic(unsigned* o) { o[0] = dynamic_smem<unsigned>()[100]; }
__global__ void past_device(unsigned* o) { o[N + threadIdx.x] = 1; }
__global__ void big_stack(unsigned* o) { volatile char b[1 << 20]; b[threadIdx.x] = 1; o[0] = b[5]; }
__global__ void no_wait(unsigned* o) { cp_async(dynamic_smem<char>() + threadIdx.x * 16, o, true); }
__global__ void misaligned_rows(unsigned*) { uint32_t r[4]; ldmatrix(r, dynamic_smem<char>() + threadIdx.x * 8); }
__global__ void no_syncwarp(unsigned* o) { // the neighbour's write is not there yet
    unsigned* s = dynamic_smem<unsigned>();
    s[threadIdx.x] = threadIdx.x;
    o[threadIdx.x] = s[threadIdx.x ^ 1];
}
__global__ void bank_conflicts(unsigned* o) {
    uint32_t r[4];
    ldmatrix(r, dynamic_smem<char>() + threadIdx.x * 128);
    ldmatrix(r, dynamic_smem<char>() + threadIdx.x * 144);
    o[threadIdx.x] = r[0];
}

// f must end the process, with `words` in what it says
static void refuse(const char* words, std::function<void()> f) {
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
        gemm(a, a, a, a, 8, 8, 8, false, false);
    };
    refuse(words, f);
    refuse(hint, f);
}
static void test_refusals() {
    misuse("divergent barrier", divergent_barrier, 64);
    misuse("deadlock", dead, 64);
    misuse("exit", early_exit, 64);
    misuse("not in mask", wrong_mask, 32);
    misuse("divergent warp operation", divergent_warp, 32);
    misuse("past the end of a static", past_static, 64);
    misuse("not 16-byte aligned", misaligned_rows, 32, 512);
    misuse("not waited for", no_wait, 32, 512);
    refuse("not a device pointer", [] { LAUNCH(shuffles, dim3(1), dim3(32), 0, h); });
    refuse("does not fit", [] { to_device(h, h, 4); });
    refuse("pageable memory", [] { cudaMemcpyAsync(out, h, 4, cudaMemcpyHostToDevice, device_stream); });
    refuse("bad launch", [] { LAUNCH(shuffles, dim3(1, 70000), dim3(32), 0, out); });
    if (EMU_ASAN + EMU_TSAN == 0) { // these need guard pages; the sanitizers find them in their own ways
        misuse("of dynamic shared memory", past_dynamic, 32, 64);
        misuse("past the end of a device allocation", past_device, 32);
        misuse("stack overflow", big_stack, 32);
        refuse("host code touched device memory", [] { out[7] = 1; });
        refuse("before the device had copied it", [] { for (int i = 0; i < 4; i++) { to_device(out, h, 4); } emu::locked.p[4095] = 1; });
    } else { skipped += 5; }
    if (EMU_TSAN) { misuse("data race", no_syncwarp, 32, 128); }
    else {
        run(no_syncwarp, 32, 128);
        int poison = 0;
        for (int l = 0; l < 32; l++) { poison += h[l] == ~0u; }
        check("missing __syncwarp reads poison", poison > 0);
    }
    emu::counts.conflicts = 0;
    run(bank_conflicts, 32, 32 * 144);
    check("bank conflicts of rows 128 bytes apart, none 144 apart", emu::counts.conflicts == 28);

    fault("nogpu", "error: GPU: found none, wanted one", "make BACKEND=cpu");
    fault("old", "wanted sm_80 (A100) or newer", "make BACKEND=cpu");
    fault("driver", "error: GPU driver: got one for CUDA", "update the driver");
    fault("oom:2048", "wanted 3.00 GiB more, 2.00 of 2.00 GiB are free", "lower --batch");
    fault("launch", "error: GPU: kernel: an emulated error", "compute-sanitizer");
    fault("cublas", "error: cuBLAS: matrix product (8, 8) x (8, 8)", "nvidia-smi");
}
#else
static void test_refusals() { skipped += 33; }
#endif

// larger than the ring of page-locked memory, its source overwritten at once
static void test_to_device() {
    std::vector<int> x(3 << 20), y(x.size());
    for (size_t i = 0; i < x.size(); i++) { x[i] = (int)(i * 2654435761u); }
    int* d = (int*)device_malloc(x.size() * sizeof(int));
    for (size_t at = 0; at < x.size(); at += 1000) { // in pieces of all sizes, and the last one to the end
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
    test_gemm<float, float>("gemm fp32");
    test_gemm<bf16, bf16>("gemm bf16");
    test_gemm<float, bf16>("gemm bf16, fp32 output");
    test_gemm_strides();
    test_refusals();
    if (skipped) { printf("skipped: %d, which need %s\n", skipped, emulated ? "guard pages" : "the emulator"); }
    printf("%d passed, %d failed\n", passed, failed);
    return failed != 0;
}
