/*
device.cuh -- the only file that knows a GPU compiler from the emulator.

Built by nvcc, the wrappers below are CUDA; built by g++ with -DEMU, the same kernels run on the CPU in
dev/emulator/emu.h, which is how CI tests them. So <<<>>>, __shared__, PTX and CUDA's own headers stand here and nowhere
else. Rules for kernels: start with LAUNCH; shared memory through SMEM(type, name) and dynamic_smem<T>(); warps leave
together and nobody leaves before a barrier; full 32-lane masks; __syncwarp() between one lane's write to shared memory
and another's read; no atomics (the same seed gives the same bits). Everything runs on one stream, device_stream.
*/
#ifndef DEVICE_CUH
#define DEVICE_CUH
#include "common.h"
#include <map>
#include <tuple>
#ifdef EMU
#include "emu.h"
#include "emu_cublas.h"
#else
#include <cublasLt.h>
#include <cuda_bf16.h>
#include <cuda_runtime.h>
#endif

#ifdef EMU
enum { emulated = 1 };
#else
enum { emulated = 0 };
#endif
typedef __nv_bfloat16 bf16;
#define CEIL_DIV(a, b) (((a) + (b) - 1) / (b))
#define DEVICE __device__ __forceinline__

#ifndef PRECISION            // fp32 or bf16
#define PRECISION fp32
#endif

namespace cuda {
typedef float real_fp32;
typedef bf16  real_bf16;
#define REAL_OF_(precision) real_##precision
#define REAL_OF(precision) REAL_OF_(precision)
typedef REAL_OF(PRECISION) real;    // what tensors hold
typedef float acc;                  // what sums, statistics, weight gradients and optimiser state hold
static const char* const name = "cuda";
static const bool on_host = false;  // host code may not read device memory
enum { head_rows = 8192 };          // rows of logits alive at once: enough to fill a GPU

// ----------------------------------------------------------------------------
// errors: what went wrong, and what to type. Faults of the machine, so exit code 1.

inline cudaStream_t device_stream;
inline void* device_workspace;                       // for cuBLAS
const size_t DEVICE_WORKSPACE = emulated ? 256 : 32 << 20;
inline cublasLtHandle_t device_blas;

[[noreturn]] inline void device_die(cudaError_t e, const char* doing) {
    const char* hint = e == cudaErrorNoKernelImageForDevice ? "this binary was compiled for another GPU: make clean, then make on this machine"
                     : "compute-sanitizer ./train_sink with the same flags names the kernel and the address";
    die(EXIT_MACHINE, strf("GPU: %s: %s", doing, cudaGetErrorString(e)), hint);
}
inline void device_check(cudaError_t e, const char* doing) { if (e != cudaSuccess) { device_die(e, doing); } }
inline void blas_check(cublasStatus_t s, const std::string& doing) {
    if (s != CUBLAS_STATUS_SUCCESS) {
        die(EXIT_MACHINE, strf("cuBLAS: %s: %s", doing.c_str(), cublasLtGetStatusString(s)),
            "nvidia-smi shows the GPU's health and memory; try a lower --batch, or make BACKEND=cpu");
    }
}

// finds the GPU and says in one line what it is; called once, before anything else
inline std::string device_init() {
    int driver = 0, runtime = 0, n = 0, major, minor;
    const char* other = "make BACKEND=cpu trains on the processor; nvidia-smi shows GPUs and driver";
    device_check(cudaRuntimeGetVersion(&runtime), "asking for the toolkit's version");
    device_check(cudaDriverGetVersion(&driver), "asking for the driver's version");
    if (driver && driver / 1000 < runtime / 1000) {   // within one major version any driver serves any toolkit
        die(EXIT_MACHINE, strf("GPU driver: got one for CUDA %d.%d, wanted CUDA %d.0 or newer, which this binary was built with",
            driver / 1000, driver % 1000 / 10, runtime / 1000), "update the driver, build with an older toolkit, or make BACKEND=cpu");
    }
    if (!driver || cudaGetDeviceCount(&n) != cudaSuccess || n == 0) { die(EXIT_MACHINE, "GPU: found none, wanted one", other); }
    device_check(cudaSetDevice(0), "choosing GPU 0");
    device_check(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0), "asking for the GPU's version");
    device_check(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, 0), "asking for the GPU's version");
    cudaDeviceProp prop;
    device_check(cudaGetDeviceProperties(&prop, 0), "asking for the GPU's name");
    if (major < 8) {
        die(EXIT_MACHINE, strf("GPU: got %s (sm_%d%d), wanted sm_80 (A100) or newer", prop.name, major, minor), other);
    }
    device_check(cudaStreamCreateWithFlags(&device_stream, cudaStreamNonBlocking), "making a stream");
    size_t left = 0, total = 0;
    device_check(cudaMemGetInfo(&left, &total), "asking for free memory");
    blas_check(cublasLtCreate(&device_blas), "starting");
    return strf("%s (sm_%d%d), %.1f of %.1f GiB free", prop.name, major, minor, left / 0x1p30, total / 0x1p30);
}

// ----------------------------------------------------------------------------
// memory. The first call to any of these starts the device.

inline const std::string& device_start() { static const std::string once = device_init(); return once; }
inline void device_zero(void* p, size_t n) { device_check(cudaMemsetAsync(p, 0, n, device_stream), "zeroing memory"); }
inline void device_sync() { device_check(cudaStreamSynchronize(device_stream), "waiting for the GPU"); }
inline void* device_reserve(size_t n) { // not zeroed
    device_start();
    void* p = NULL;
    cudaError_t e = cudaMalloc(&p, n ? n : 1);
    if (e == cudaErrorMemoryAllocation) {
        size_t left = 0, total = 0;
        cudaMemGetInfo(&left, &total);
        die(EXIT_MACHINE, strf("GPU memory: wanted %.2f GiB more, %.2f of %.2f GiB are free", n / 0x1p30, left / 0x1p30, total / 0x1p30),
            "lower --batch (--total-batch keeps the step the same), then --seq or the model; nvidia-smi shows other users");
    }
    device_check(e, "allocating memory");
    return p;
}
inline void* device_malloc(size_t n) { // zeroed
    void* p = device_reserve(n);
    device_zero(p, n);
    return p;
}
inline void device_free(void* p) { device_check(cudaFree(p), "freeing memory"); }
inline void to_device(void* dst, const void* src, size_t n) {
    device_check(cudaMemcpyAsync(dst, src, n, cudaMemcpyHostToDevice, device_stream), "copying to the GPU");
    device_sync();
}
inline void to_host(void* dst, const void* src, size_t n) {
    device_check(cudaMemcpyAsync(dst, src, n, cudaMemcpyDeviceToHost, device_stream), "copying from the GPU");
    device_sync();
}
inline void device_copy(void* dst, const void* src, size_t n) {
    device_check(cudaMemcpyAsync(dst, src, n, cudaMemcpyDeviceToDevice, device_stream), "copying on the GPU");
}
// memory that one operation uses between its kernels; the next call may take it back. Its content is undefined
inline void* device_scratch(size_t n) {
    static void* p; static size_t have;
    if (n > have || (emulated && n != have)) { // emulated: always exact and fresh, so that overruns and stale reads show
        if (p) { device_sync(); device_free(p); }
        p = device_reserve(n);
        have = n;
    }
    return p;
}
inline size_t device_left() { // bytes free
    device_start();
    size_t left = 0, total = 0;
    device_check(cudaMemGetInfo(&left, &total), "asking for free memory");
    return left;
}

// ----------------------------------------------------------------------------
// launch and shared memory

#ifdef EMU
#define SMEM(T, name) auto& name = emu::static_smem<T>([] {})
template <class T> DEVICE T* dynamic_smem() { return (T*)emu::block->dynamic.p; }
template <class... P, class... A>
void device_launch_(const char* name, void (*kernel)(P...), dim3 grid, dim3 block, size_t smem, A... a) {
    emu::launch(name, kernel, grid, block, smem, a...);
}
#else
template <class T> struct SmemType { typedef T type; };      // lets SMEM(float[4], x) be written before the name
#define SMEM(T, name) __shared__ typename ::cuda::SmemType<T>::type name
template <class T> DEVICE T* dynamic_smem() { extern __shared__ __align__(128) unsigned char smem_bytes[]; return (T*)smem_bytes; }
template <class... P, class... A>
void device_launch_(const char*, void (*kernel)(P...), dim3 grid, dim3 block, size_t smem, A... a) {
    kernel<<<grid, block, smem, device_stream>>>(static_cast<P>(a)...);
}
#endif
// LAUNCH(kernel, grid, block, bytes of dynamic shared memory, arguments...)
#define LAUNCH(kernel, ...) ::cuda::device_launch(#kernel, kernel, __VA_ARGS__)
template <class... P, class... A>
void device_launch(const char* name, void (*kernel)(P...), dim3 grid, dim3 block, size_t smem, A... a) {
    if (smem > 48 << 10) { // more must be asked for
        device_check(cudaFuncSetAttribute((const void*)kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)smem), name);
    }
    device_launch_(name, kernel, grid, block, smem, a...);
    device_check(cudaGetLastError(), name);
}

// ----------------------------------------------------------------------------
// instructions. cp.async copies 16 bytes to shared memory behind the threads' back (zeros if !valid); ldmatrix loads four
// 8x8 matrices of 16-bit values, lane 8m + i giving the address of row i of matrix m; mma multiplies 16x16 by 16x8, with
// lane l holding of c the rows l/4 and l/4 + 8, columns 2(l%4) and 2(l%4) + 1.

#ifdef EMU
inline void cp_async(void* s, const void* g, bool valid, EMU_HERE) { emu::cp_async(s, g, valid ? 16 : 0, file, line); }
inline void cp_async_commit() { emu::cp_commit(); }
template <int KEEP> void cp_async_wait() { emu::cp_wait(KEEP); }
inline void ldmatrix(uint32_t (&r)[4], const void* row, EMU_HERE) {
    emu::LdmatrixArg a{r, row, file, line};
    emu::warp_op(~0u, emu::ldmatrix_fn<false>, &a, "ldmatrix", file, line);
}
inline void ldmatrix_trans(uint32_t (&r)[4], const void* row, EMU_HERE) {
    emu::LdmatrixArg a{r, row, file, line};
    emu::warp_op(~0u, emu::ldmatrix_fn<true>, &a, "ldmatrix.trans", file, line);
}
inline void mma(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1, EMU_HERE) {
    uint32_t b[2] = {b0, b1};
    emu::MmaArg x{c, a, b};
    emu::warp_op(~0u, emu::mma_fn, &x, "mma", file, line);
}
#else
DEVICE uint32_t smem_address(const void* p) { return (uint32_t)__cvta_generic_to_shared(p); }
DEVICE void cp_async(void* s, const void* g, bool valid) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" :: "r"(smem_address(s)), "l"(g), "r"(valid ? 16 : 0) : "memory");
}
DEVICE void cp_async_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int KEEP> DEVICE void cp_async_wait() { asm volatile("cp.async.wait_group %0;" :: "n"(KEEP) : "memory"); }
DEVICE void ldmatrix(uint32_t (&r)[4], const void* row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(smem_address(row)) : "memory");
}
DEVICE void ldmatrix_trans(uint32_t (&r)[4], const void* row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(smem_address(row)) : "memory");
}
DEVICE void mma(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
#endif
DEVICE uint32_t pack(float lo, float hi) { // two bf16 in a register, as mma wants them
    __nv_bfloat162 v = __floats2bfloat162_rn(lo, hi);
    uint32_t u; memcpy(&u, &v, 4);
    return u;
}

// N values of type T moved as one; p aligned to all of them
template <class T, int N> struct alignas(sizeof(T) * N) Vec { T v[N]; };
template <int N, class T> DEVICE Vec<T, N> load(const T* p) { return *(const Vec<T, N>*)p; }
template <int N, class T> DEVICE void store(T* p, const Vec<T, N>& v) { *(Vec<T, N>*)p = v; }

// ----------------------------------------------------------------------------
// reductions, in a fixed order. Every lane of the warp, or thread of the block, takes part and gets the result.

template <class F> DEVICE F warp_sum(F v) {
    #pragma unroll
    for (int o = 16; o; o >>= 1) { v += __shfl_xor_sync(~0u, v, o); }
    return v;
}
template <class F> DEVICE F warp_max(F v) {
    #pragma unroll
    for (int o = 16; o; o >>= 1) { v = max(v, __shfl_xor_sync(~0u, v, o)); }
    return v;
}
template <int THREADS, bool MAX, class F> DEVICE F block_reduce(F v) {
    SMEM(F[THREADS / 32], part);
    v = MAX ? warp_max(v) : warp_sum(v);
    __syncthreads();                                 // part may still be read by the call before
    if (threadIdx.x % 32 == 0) { part[threadIdx.x / 32] = v; }
    __syncthreads();
    v = part[0];
    #pragma unroll
    for (int i = 1; i < THREADS / 32; i++) { v = MAX ? max(v, part[i]) : v + part[i]; }
    return v;
}
template <int THREADS, class F> DEVICE F block_sum(F v) { return block_reduce<THREADS, false>(v); }
template <int THREADS, class F> DEVICE F block_max(F v) { return block_reduce<THREADS, true>(v); }

// ----------------------------------------------------------------------------
// D (M, N) = op(A) op(B) [+ C (M, N), unless NULL; may be D], all row-major: A is (M, K), or (K, M) if transA; B is
// (K, N), or (N, K) if transB. Inputs of one type, sums in fp32 (no TF32), output of the inputs' type or fp32. cuBLAS
// thinks in columns, so it is asked for D^T = op(B)^T op(A)^T + C^T. The algorithm is chosen once per shape; one stream and
// one workspace: deterministic.
// Where the matrices are parts of larger ones, Strides says how far apart rows stand (0: dense), how many products of one
// shape there are, and how far apart their matrices stand. C stands like D.
struct Strides { int lda = 0, ldb = 0, ldd = 0, count = 1; long a = 0, b = 0, d = 0; };

template <class T> cudaDataType blas_type() { return sizeof(T) == 4 ? CUDA_R_32F : CUDA_R_16BF; }
inline uint32_t blas_alignment(const void* p) { uintptr_t a = (uintptr_t)p; return a % 256 ? (uint32_t)(a & -a) : 256; }

template <class TD, class T>
void gemm(TD* D, const TD* C, const T* A, const T* B, int M, int N, int K, bool transA, bool transB, Strides x = {}) {
    device_start();
    if (!device_workspace) { device_workspace = device_reserve(DEVICE_WORKSPACE); }
    const std::string what = strf("matrix product (%d, %d) x (%d, %d)", M, K, K, N);
    const int32_t op1 = transB ? CUBLAS_OP_T : CUBLAS_OP_N, op2 = transA ? CUBLAS_OP_T : CUBLAS_OP_N;
    cublasLtMatmulDesc_t desc; cublasLtMatrixLayout_t l1, l2, ld;
    blas_check(cublasLtMatmulDescCreate(&desc, CUBLAS_COMPUTE_32F, CUDA_R_32F), what);
    blas_check(cublasLtMatmulDescSetAttribute(desc, CUBLASLT_MATMUL_DESC_TRANSA, &op1, sizeof op1), what);
    blas_check(cublasLtMatmulDescSetAttribute(desc, CUBLASLT_MATMUL_DESC_TRANSB, &op2, sizeof op2), what);
    auto layout = [&](cublasLtMatrixLayout_t* l, cudaDataType type, int rows, int cols, int stride, long apart) { // row-major
        blas_check(cublasLtMatrixLayoutCreate(l, type, cols, rows, stride ? stride : cols), what);
        if (x.count == 1) { return; }
        const int64_t offset = apart;
        blas_check(cublasLtMatrixLayoutSetAttribute(*l, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &x.count, sizeof x.count), what);
        blas_check(cublasLtMatrixLayoutSetAttribute(*l, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &offset, sizeof offset), what);
    };
    layout(&l1, blas_type<T>(), transB ? N : K, transB ? K : N, x.ldb, x.b);
    layout(&l2, blas_type<T>(), transA ? K : M, transA ? M : K, x.lda, x.a);
    layout(&ld, blas_type<TD>(), M, N, x.ldd, x.d);

    typedef std::tuple<int, int, int, int, int, int, int, int, int, long, long, long, uint32_t, uint32_t, uint32_t> Key;
    static std::map<Key, cublasLtMatmulAlgo_t> chosen;
    const float one = 1.0f, zero = 0.0f, *beta = C ? &one : &zero;
    if (!C) { C = D; }
    uint32_t a1 = blas_alignment(B), a2 = blas_alignment(A), ad = std::min(blas_alignment(C), blas_alignment(D));
    Key key(M, N, K, op1, op2, x.lda, x.ldb, x.ldd, x.count, x.a, x.b, x.d, a1, a2, ad);
    auto it = chosen.find(key);
    if (it == chosen.end()) {
        cublasLtMatmulPreference_t pref; cublasLtMatmulHeuristicResult_t found; int n = 0;
        blas_check(cublasLtMatmulPreferenceCreate(&pref), what);
        auto set = [&](cublasLtMatmulPreferenceAttributes_t attr, const void* v, size_t size) {
            blas_check(cublasLtMatmulPreferenceSetAttribute(pref, attr, v, size), what);
        };
        set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &DEVICE_WORKSPACE, sizeof DEVICE_WORKSPACE);
        set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, &a1, sizeof a1);  // it assumes 256 if not told
        set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, &a2, sizeof a2);
        set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, &ad, sizeof ad);
        set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, &ad, sizeof ad);
        blas_check(cublasLtMatmulAlgoGetHeuristic(device_blas, desc, l1, l2, ld, ld, pref, 1, &found, &n), "no algorithm for a " + what);
        if (n == 0) { blas_check(CUBLAS_STATUS_NOT_SUPPORTED, "no algorithm for a " + what); }
        cublasLtMatmulPreferenceDestroy(pref);
        it = chosen.emplace(key, found.algo).first;
    }
    blas_check(cublasLtMatmul(device_blas, desc, &one, B, l1, A, l2, beta, C, ld, D, ld, &it->second,
                              device_workspace, DEVICE_WORKSPACE, device_stream), what);
    cublasLtMatrixLayoutDestroy(l1); cublasLtMatrixLayoutDestroy(l2); cublasLtMatrixLayoutDestroy(ld);
    cublasLtMatmulDescDestroy(desc);
}
} // namespace cuda
#endif // DEVICE_CUH
