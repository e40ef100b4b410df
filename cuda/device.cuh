/*
device.cuh -- the only file that knows a GPU compiler from the emulator.

Built by nvcc, the wrappers below are CUDA; built by g++ with -DEMU, the same kernels run on the CPU
in dev/emulator/emu.h, which is how CI tests them. So <<<>>>, __shared__, PTX and CUDA's own headers
are here and nowhere else. Rules for kernels: start with LAUNCH; shared memory through SMEM(type,
name) and dynamic_smem<T>(); warps leave together and nobody leaves before a barrier; full 32-lane
masks; __syncwarp() between one lane's write to shared memory and another's read; no atomics (the
same seed gives the same bits). Everything runs on one stream, device_stream.
*/
#ifndef DEVICE_CUH
#define DEVICE_CUH
// cp.async and mma of bf16 came with it. One error here instead of thousands from the assembler
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
#error "this GPU is older than sm_80 (A100), which bf16 and fp32 need \
---> HINT: make BACKEND=cpu, or make GPU_ARCH=sm_NN for a newer GPU (8.6: sm_86)"
#endif
#include "../cpu/elementary.h"
#include <fcntl.h>
#include <functional>
#include <map>
#include <sys/file.h>
#include <unistd.h>
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
#define BUILT_FOR 800
#else
enum { emulated = 0 };
#define BUILT_FOR __CUDA_ARCH_LIST__
#endif
// the emulator's tests are small: so are pieces that only large ones would fill
#if (defined(EMU) || defined(PTX_SHRUNK)) && !defined(REAL_SIZES)
enum { shrunk = 1 };
#else
enum { shrunk = 0 };
#endif
typedef __nv_bfloat16 bf16;
#define CEIL_DIV(a, b) (((a) + (b) - 1) / (b))
#define DEVICE __device__ __forceinline__
#define DEVICE_TEXT_(...) #__VA_ARGS__
#define DEVICE_TEXT(...) DEVICE_TEXT_(__VA_ARGS__)

#ifndef PRECISION            // fp32 or bf16
#define PRECISION fp32
#endif

namespace cuda {
typedef float real_fp32;
typedef bf16  real_bf16;
#define REAL_OF_(precision) real_##precision
#define REAL_OF(precision) REAL_OF_(precision)
typedef REAL_OF(PRECISION) real;    // what tensors hold
typedef float acc; // what sums, statistics, weight gradients and optimizer state hold
static const char* const name = "cuda";
static const bool on_host = false;  // host code may not read device memory
static const bool reads_mapped = false;             // weights in their file (cpu/mapped_weights.h)
// of logits alive at once: enough to fill a GPU
inline long lm_head_rows(long, long, bool) { return 8192; }
static const int lm_head_part = 0;
enum { large = shrunk ? 64 : 8192 }; // side of matrices that are large to it
enum { piece_rows = 0 };           // a batch is never cut

// cpu: a part of the rows at a time, which stays in a core's cache
template <class Work> void in_parts(long rows, Work work) { work(0, (int)rows); }
template <class S, class Work> void in_parts(long rows, S* x, S* y, long, Work work) {
    work(0, (int)rows, x, y);
}

// ----------------------------------------------------------------------------
// errors: what went wrong, and what to type. Faults of the machine, so exit code 1.

inline cudaStream_t device_stream;
inline void* device_workspace;                       // for cuBLAS
const size_t DEVICE_WORKSPACE = shrunk ? 256 : 32 << 20;
inline cublasLtHandle_t device_blas;
inline int device_number;                            // which of the machine's GPUs
inline std::string device_name;                      // the GPU's

struct DeviceHint { cudaError_t error; const char* hint; };
const char* const other_gpu_hint =
    "this binary was compiled for another GPU: make clean, then make on this machine";
const char* const kernel_hint =
    "compute-sanitizer ./train_sink with the same flags names the kernel and the address";
const char* const size_hint =
    "docs/gpu.md says which sizes the kernels cover: lower --batch, --seq or --width, or make "
    "BACKEND=cpu";
const char* const driver_hint =
    "nvidia-smi must answer, and ls -l /dev/nvidia* show its devices: sudo modprobe nvidia_uvm, or "
    "reboot; a container needs --gpus all; make BACKEND=cpu trains on the processor";
const char* const health_hint =
    "nvidia-smi shows the GPU's health, sudo dmesg | grep Xid what the driver saw; try again, or "
    "make BACKEND=cpu";
const char* const stale_driver_hint =
    "the driver is older than the toolkit: make clean, then make GPU_ARCH=sm_NN with the "
    "number that nvidia-smi --query-gpu=compute_cap --format=csv shows (9.0: sm_90), or update "
    "the driver";
const char* const mps_hint =
    "the MPS server does not answer: echo quit | nvidia-cuda-mps-control, or ask who runs it";

const DeviceHint device_hints[] = {
    { cudaErrorNoKernelImageForDevice, other_gpu_hint },
    { cudaErrorInvalidDeviceFunction, other_gpu_hint },
    { cudaErrorUnsupportedPtxVersion, stale_driver_hint },
    { cudaErrorJitCompilerNotFound, stale_driver_hint },
    { cudaErrorInsufficientDriver,
      "update the driver, build with an older toolkit, or make BACKEND=cpu" },
    { cudaErrorSystemDriverMismatch,
      "the driver was updated while it ran, or a container brings its own: reboot the "
      "machine, or start the container anew" },
    { cudaErrorCompatNotSupportedOnDevice,
      "LD_LIBRARY_PATH names the cuda-compat libraries, which this GPU cannot use: "
      "take them out, or update the driver" },
    { cudaErrorStubLibrary,
      "LD_LIBRARY_PATH names the toolkit's stubs, which stand for a driver: take lib64/stubs out" },
    { cudaErrorSystemNotReady,
      "the links between the GPUs are not up: systemctl status nvidia-fabricmanager" },
    { cudaErrorInitializationError, driver_hint },
    { cudaErrorOperatingSystem, driver_hint },
    { cudaErrorUnknown, driver_hint },
    { cudaErrorNoDevice, driver_hint },
    { cudaErrorMpsConnectionFailed, mps_hint },
    { cudaErrorMpsServerNotReady, mps_hint },
    { cudaErrorDevicesUnavailable,
      "another process holds this GPU: nvidia-smi shows it; CUDA_VISIBLE_DEVICES=1 takes the "
      "next" },
    { cudaErrorMemoryAllocation,
      "nvidia-smi shows who uses the GPU's memory, free -h the machine's; then lower --batch" },
    { cudaErrorLaunchOutOfResources,
      "a kernel has more registers than this GPU: make clean, then make on this machine" },
    { cudaErrorLaunchTimeout,
      "this GPU also draws a screen, and stops kernels for it: lower --batch, or "
      "CUDA_VISIBLE_DEVICES=1 takes the next" },
    { cudaErrorInvalidConfiguration, size_hint },
    { cudaErrorInvalidValue, size_hint },
    { cudaErrorECCUncorrectable,
      "the GPU's memory is failing: nvidia-smi -q -d ECC; CUDA_VISIBLE_DEVICES=1 takes the next" },
    { cudaErrorIllegalAddress, kernel_hint },
    { cudaErrorMisalignedAddress, kernel_hint },
    { cudaErrorIllegalInstruction, kernel_hint },
    { cudaErrorInvalidAddressSpace, kernel_hint },
    { cudaErrorInvalidPc, kernel_hint },
    { cudaErrorHardwareStackError, kernel_hint },
    { cudaErrorLaunchFailure, kernel_hint },
};

[[noreturn]] inline void device_die(cudaError_t e, const char* doing) {
    const char* hint = health_hint;
    for (const DeviceHint& h : device_hints) { if (h.error == e) { hint = h.hint; } }
    die(EXIT_MACHINE, strf("GPU: %s: %s", doing, cudaGetErrorString(e)), hint);
}

inline void device_check(cudaError_t e, const char* doing) {
    if (e != cudaSuccess) { device_die(e, doing); }
}

inline void blas_check(cublasStatus_t s, const std::string& doing) {
    if (s != CUBLAS_STATUS_SUCCESS) {
        die(EXIT_MACHINE, strf("cuBLAS: %s: %s", doing.c_str(), cublasLtGetStatusString(s)),
            "nvidia-smi shows the GPU's health and memory; try a lower --batch, or make "
            "BACKEND=cpu; ldd ./train_sink shows which "
            "libcublasLt is used");
    }
}

__global__ void device_probe_kernel() {}
// the GPUs that nvcc was told: "sm_80, sm_90"
inline std::string device_built_for() {
    std::string out;
    for (auto& arch : split(DEVICE_TEXT(BUILT_FOR), ',')) { // 800,900
        out += (out.empty() ? "sm_" : ", sm_") + arch.substr(0, arch.size() - 1);
    }
    return out;
}

// finds the GPU and says in one line what it is; called once, before anything else
inline std::string device_init() {
    int driver = 0, runtime = 0, n = 0, major, minor;
    const char* other =
        "nvidia-smi shows GPUs and driver; a container needs --gpus all; make BACKEND=cpu trains "
        "on the processor";
    device_check(cudaRuntimeGetVersion(&runtime), "asking for the toolkit's version");
    device_check(cudaDriverGetVersion(&driver), "asking for the driver's version");
    if (driver && driver / 1000 < runtime / 1000) {   // of one major version, it serves all but PTX
        die(EXIT_MACHINE,
            strf("GPU driver: got one for CUDA %d.%d, wanted CUDA %d.0 or newer, which this binary "
                 "was built with",
                 driver / 1000, driver % 1000 / 10, runtime / 1000),
            "update the driver, build with an older toolkit, or make BACKEND=cpu");
    }
    const cudaError_t found = driver ? cudaGetDeviceCount(&n) : cudaErrorNoDevice;
    if (found == cudaErrorNoDevice || (found == cudaSuccess && n == 0)) {
        const char* visible = getenv("CUDA_VISIBLE_DEVICES");
        if (driver && visible) {                     // nvidia-smi shows them all the same
            die(EXIT_MACHINE,
                strf("GPU: CUDA_VISIBLE_DEVICES='%s' leaves none, wanted one", visible),
                "unset CUDA_VISIBLE_DEVICES, or give it a number that nvidia-smi -L shows; srun "
                "needs --gpus; make BACKEND=cpu trains on the processor");
        }
        die(EXIT_MACHINE, "GPU: found none, wanted one", other);
    }
    device_check(found, "looking for one");
    // a process that was given one of its own sees no other
    if (n == 1) { device_number = 0; }
    const int d = device_number;
    if (d >= n) {
        die(EXIT_MACHINE, strf("GPU %d: there are %d, and each process needs one of its own", d, n),
            "start as many processes on each machine as it has GPUs: torchrun --nproc-per-node, "
            "mpirun -N, srun --ntasks-per-node");
    }
    device_check(cudaSetDevice(d), strf("choosing GPU %d", d).c_str());
    device_check(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, d),
                 "asking for the GPU's version");
    device_check(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, d),
                 "asking for the GPU's version");
    cudaDeviceProp prop;
    device_check(cudaGetDeviceProperties(&prop, d), "asking for the GPU's name");
    device_name = prop.name;
    if (major < 8) {
        die(EXIT_MACHINE,
            strf("GPU: got %s (sm_%d%d), wanted sm_80 (A100) or newer, in bf16 and in fp32",
                 prop.name, major, minor),
            "nvidia-smi -L lists the GPUs, CUDA_VISIBLE_DEVICES=1 takes the second of them; make "
            "BACKEND=cpu trains on the processor");
    }
    // are there kernels for it in this binary? To know it now is better than at the first launch
    cudaFuncAttributes kernel;
    const cudaError_t image = cudaFuncGetAttributes(&kernel, (const void*)device_probe_kernel);
    if (image == cudaErrorNoKernelImageForDevice || image == cudaErrorInvalidDeviceFunction) {
        die(EXIT_MACHINE,
            strf("GPU: got %s (sm_%d%d), wanted %s, which this binary was compiled for", prop.name,
                 major, minor, device_built_for().c_str()),
            strf("make clean, then make on this machine, or make GPU_ARCH=sm_%d%d", major, minor));
    }
    device_check(image, "loading the kernels");
    device_check(cudaStreamCreateWithFlags(&device_stream, cudaStreamNonBlocking),
                 "making a stream");
    size_t left = 0, total = 0;
    device_check(cudaMemGetInfo(&left, &total), "asking for free memory");
    blas_check(cublasLtCreate(&device_blas), "starting");
    return strf("%s (sm_%d%d), %.1f of %.1f GiB free", prop.name, major, minor, left / 0x1p30,
                total / 0x1p30);
}

// ----------------------------------------------------------------------------
// memory. The first call to any of these starts the device.

inline const std::string& device_start() {
    static const std::string once = device_init();
    return once;
}

inline void device_zero(void* p, size_t n) {
    device_check(cudaMemsetAsync(p, 0, n, device_stream), "zeroing memory");
}

inline void device_sync() {
    device_check(cudaStreamSynchronize(device_stream), "waiting for the GPU");
}

inline void* device_reserve(size_t n) { // not zeroed
    device_start();
    void* p = NULL;
    cudaError_t e = cudaMalloc(&p, n ? n : 1);
    if (e == cudaErrorMemoryAllocation) {
        size_t left = 0, total = 0;
        cudaMemGetInfo(&left, &total);
        die(EXIT_MACHINE,
            strf("GPU memory: wanted %.2f GiB more, %.2f of %.2f GiB are free", n / 0x1p30,
                 left / 0x1p30, total / 0x1p30),
            "lower --batch (--total-batch keeps the step the same), then --seq or the model; "
            "nvidia-smi shows other users");
    }
    device_check(e, "allocating memory");
    return p;
}

inline void* device_malloc(size_t n) { // zeroed
    void* p = device_reserve(n);
    device_zero(p, n);
    return p;
}

inline void device_free(void* p) { // after all that may still use it
    if (p) { device_sync(); }
    device_check(cudaFree(p), "freeing memory");
}

// the source may change at once: it is copied to a ring of page-locked memory, from where the GPU
// takes it in its own time. Only a slot that it has not come to yet makes the host wait
inline void to_device(void* dst, const void* src, size_t n) {
    enum { SLOTS = 4 };
    const size_t SLOT = shrunk ? 4096 : 1 << 20;
    static char* ring; static cudaEvent_t taken[SLOTS]; static int slot;
    device_start();
    for (int i = 0; !ring && i < SLOTS; i++) {
        device_check(cudaEventCreateWithFlags(&taken[i], cudaEventDisableTiming),
                     "making an event");
    }
    if (!ring) {
        device_check(cudaHostAlloc((void**)&ring, SLOTS * SLOT, cudaHostAllocDefault),
                     "page-locking memory");
    }
    for (size_t at = 0, k; at < n; at += k, slot = (slot + 1) % SLOTS) {
        k = std::min(n - at, SLOT);
        char* page = ring + slot * SLOT;
        device_check(cudaEventSynchronize(taken[slot]), "waiting for the GPU");
        memcpy(page, (const char*)src + at, k);
        device_check(cudaMemcpyAsync((char*)dst + at, page, k, cudaMemcpyHostToDevice,
                                     device_stream),
                     "copying to the GPU");
        device_check(cudaEventRecord(taken[slot], device_stream), "recording an event");
    }
}

inline void to_host(void* dst, const void* src, size_t n) {
    device_check(cudaMemcpyAsync(dst, src, n, cudaMemcpyDeviceToHost, device_stream),
                 "copying from the GPU");
    device_sync();
}

inline void device_copy(void* dst, const void* src, size_t n) {
    device_check(cudaMemcpyAsync(dst, src, n, cudaMemcpyDeviceToDevice, device_stream),
                 "copying on the GPU");
}

// memory that one operation uses between its kernels; the next call may take it back. Its content
// is undefined
inline void* device_scratch(size_t n) {
    static void* p; static size_t have;
    // emulated: always exact and fresh, so that overruns and stale reads show
    if (n > have || (emulated && n != have)) {
        // without a wait that no GPU would see
        if (emulated) { device_check(cudaFreeAsync(p, device_stream), "freeing memory"); }
        else { device_free(p); }
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
void device_launch_(const char* name, void (*kernel)(P...), dim3 grid, dim3 block, size_t smem,
                    A... a) {
    emu::launch(name, kernel, grid, block, smem, device_stream, a...);
}
#else
// lets SMEM(float[4], x) be written before the name
template <class T> struct SmemType { typedef T type; };
#define SMEM(T, name) __shared__ typename ::cuda::SmemType<T>::type name
template <class T>
DEVICE T* dynamic_smem() {
    extern __shared__ __align__(128) unsigned char smem_bytes[];
    return (T*)smem_bytes;
}

template <class... P, class... A>
void device_launch_(const char*, void (*kernel)(P...), dim3 grid, dim3 block, size_t smem, A... a) {
    kernel<<<grid, block, smem, device_stream>>>(static_cast<P>(a)...);
}
#endif
inline void device_ask_shared(const char* name, const void* kernel, size_t smem) {
    const cudaError_t e =
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)smem);
    if (e == cudaErrorInvalidValue) {
        die(EXIT_MACHINE,
            strf("GPU: %s: wanted %zu bytes of shared memory, more than this GPU gives a block",
                 name, smem),
            "up to 25344 channels fit every GPU: lower --width, or --heads times --head-dim; or "
            "make BACKEND=cpu");
    }
    device_check(e, name);
}

// PROFILE=1 in the environment: an event before and after every kernel and product of the third
// training step, then a table of milliseconds. A step ends with its update.
struct ProfilePart { std::string name; cudaEvent_t from, to; };
inline std::vector<ProfilePart> profile_parts;
inline int profile_steps;                            // that have ended

inline cudaEvent_t profile_event() {
    cudaEvent_t e;
    device_check(cudaEventCreateWithFlags(&e, cudaEventDefault), "making an event");
    device_check(cudaEventRecord(e, device_stream), "recording an event");
    return e;
}

inline void profile_table() {
    struct Sum { long times = 0; double ms = 0; };
    std::map<std::string, Sum> sums;
    double all = 0;
    auto between = [](cudaEvent_t a, cudaEvent_t b) {
        float ms = 0;
        device_check(cudaEventElapsedTime(&ms, a, b), "timing a step");
        return (double)ms;
    };
    device_check(cudaEventSynchronize(profile_parts.back().to), "timing a step");
    for (const ProfilePart& p : profile_parts) {
        const double ms = between(p.from, p.to);
        sums[p.name].times++;
        sums[p.name].ms += ms;
        all += ms;
    }
    std::vector<std::pair<std::string, Sum>> rows(sums.begin(), sums.end());
    std::sort(rows.begin(), rows.end(), [](auto& a, auto& b) { return a.second.ms > b.second.ms; });
    const double step = between(profile_parts.front().from, profile_parts.back().to);
    printf("%-72s %6s %10s\n", "kernel or product", "times", "ms");
    for (auto& [name, s] : rows) { printf("%-72s %6ld %10.3f\n", name.c_str(), s.times, s.ms); }
    printf("%-72s %6s %10.3f\n", "between them", "", step - all);
    printf("%-72s %6s %10.3f\n", "a step", "", step);
    fflush(stdout);
}

// Runs f, which launches a kernel or product, between two events if it is time to profile.
template <class F> void profiled(const char* name, F f) {
    enum { STEP = 2 };                               // the first two search, allocate and warm up
    static const bool wanted = getenv("PROFILE") != NULL;
    if (!wanted || profile_steps > STEP) { return f(); }
    const bool on = profile_steps == STEP, update = strstr(name, "update_kernel") != NULL;
    if (on) { profile_parts.push_back(ProfilePart{name, profile_event(), NULL}); }
    f();
    if (on) { profile_parts.back().to = profile_event(); }
    profile_steps += update;
    if (on && update) { profile_table(); }
}

// LAUNCH(kernel, grid, block, bytes of dynamic shared memory, arguments...)
#define LAUNCH(kernel, ...) ::cuda::device_launch(#kernel, kernel, __VA_ARGS__)
template <class... P, class... A>
void device_launch(const char* name, void (*kernel)(P...), dim3 grid, dim3 block, size_t smem,
                   A... a) {
    // Dynamic and static memory together may be 48 KiB; more must be asked for. No kernel has 8 KiB
    // of static memory beside dynamic memory
    if (smem > 40 << 10) { device_ask_shared(name, (const void*)kernel, smem); }
    profiled(name, [&] { device_launch_(name, kernel, grid, block, smem, a...); });
    device_check(cudaGetLastError(), name);
}

// ----------------------------------------------------------------------------
// instructions. cp.async copies 16 bytes to shared memory behind the threads' back (zeros if
// !valid); ldmatrix loads four 8x8 matrices of 16-bit values, lane 8m + i giving the address of row
// i of matrix m; mma multiplies 16x16 by 16x8, with lane l holding of c the rows l/4 and l/4 + 8,
// columns 2(l%4) and 2(l%4) + 1.

#ifdef EMU
inline void cp_async(void* s, const void* g, bool valid, EMU_HERE) {
    emu::cp_async(s, g, valid ? 16 : 0, file, line);
}

inline void cp_async_float(float* s, const float* g, EMU_HERE) {
    emu::cp_async(s, g, 4, file, line, 4);
}

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
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(smem_address(s)), "l"(g),
                 "r"(valid ? 16 : 0)
                 : "memory");
}

DEVICE void cp_async_float(float* s, const float* g) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(smem_address(s)), "l"(g)
                 : "memory");
}

DEVICE void cp_async_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int KEEP>
DEVICE void cp_async_wait() {
    asm volatile("cp.async.wait_group %0;" ::"n"(KEEP) : "memory");
}

DEVICE void ldmatrix(uint32_t (&r)[4], const void* row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(smem_address(row))
                 : "memory");
}

DEVICE void ldmatrix_trans(uint32_t (&r)[4], const void* row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(smem_address(row))
                 : "memory");
}

DEVICE void mma(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
        "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
#endif
// Approximate instructions, which also flush subnormal numbers to zero. The emulator returns the
// true value with an error of up to the PTX manual's bound, whose size and sign follow from the
// operand's bits.
#ifdef EMU
inline float flushed(float x) { return fabsf(x) < 0x1p-126f ? copysignf(0.0f, x) : x; }

inline float approximate(double exact, float operand, double relative) {
    const double part = (bits_of_float(operand) * 2654435761u) / 0x1p31 - 1;    // -1 to 1
    return flushed((float)(exact * (1 + relative * part)));
}

inline float ex2_approx(float x) {
    x = flushed(x);
    return x == 0 ? 1.0f : approximate(exp2((double)x), x, 0x1p-22);
}

inline float rcp_approx(float x) {
    x = flushed(x);
    return approximate(1 / (double)x, x, 0x1p-23);
}

inline float lg2_approx(float x) {
    x = flushed(x);
    const double exact = log2((double)x), error = 0x1p-22 * (x > 0.5f && x < 2 ? 1 : fabs(exact));
    return x > 0 && x < INFINITY ? (float)(exact + error * (approximate(1, x, 0.5) * 2 - 2))
                                 : (float)exact;
}
#else
DEVICE float ex2_approx(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

DEVICE float rcp_approx(float x) {
    float y;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

DEVICE float lg2_approx(float x) {
    float y;
    asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
#endif
const float LOG2_E = 1.44269504f, LN_2 = 0.693147181f;

// A float whose exponential, logarithm and division are those instructions: about 2^-21 off where
// bf16 keeps 2^-9. The row mathematics of attention_variants.cuh is compiled for it as it is for
// float and double.
struct Fast {
    float v;
    Fast() = default;
    template <class T> DEVICE explicit Fast(T x) : v((float)x) {}
    // an integer up to 2^22: two additions instead of a conversion, which goes at a quarter of
    // their rate or less
    DEVICE explicit Fast(int i) : v(float_of_bits(0x4B400000u + i) - 12582912.0f) {}
    DEVICE explicit operator int() const { return (int)v; }
};
DEVICE Fast operator-(Fast a)         { return Fast(-a.v); }
DEVICE Fast operator+(Fast a, Fast b) { return Fast(a.v + b.v); }
DEVICE Fast operator-(Fast a, Fast b) { return Fast(a.v - b.v); }
DEVICE Fast operator*(Fast a, Fast b) { return Fast(a.v * b.v); }
DEVICE Fast operator/(Fast a, Fast b) { return Fast(a.v * rcp_approx(b.v)); }
DEVICE bool operator>(Fast a, Fast b) { return a.v > b.v; }
DEVICE bool operator<(Fast a, Fast b) { return a.v < b.v; }
DEVICE bool operator>(Fast a, float b) { return a.v > b; }
DEVICE bool operator<(Fast a, float b) { return a.v < b; }
// of float and double, beside these:
using ::exp_; using ::log_; using ::erf_; using ::tanh_; using ::max_; using ::min_;
DEVICE Fast max_(Fast a, Fast b) { return Fast(fmaxf(a.v, b.v)); }
DEVICE Fast min_(Fast a, Fast b) { return Fast(fminf(a.v, b.v)); }
DEVICE Fast exp_(Fast x) { return Fast(ex2_approx(x.v * LOG2_E)); }
DEVICE Fast erf_(Fast x) { return Fast(erf_(x.v)); }
// 2^-21 of 1, not of itself
DEVICE Fast tanh_(Fast x) { return Fast(1 - 2 * rcp_approx(1 + ex2_approx(x.v * (2 * LOG2_E)))); }
DEVICE Fast log_(Fast x) { return Fast(lg2_approx(x.v) * LN_2); }

DEVICE uint32_t pack(float lo, float hi) { // two bf16 in a register, as mma wants them
    __nv_bfloat162 v = __floats2bfloat162_rn(lo, hi);
    uint32_t u; memcpy(&u, &v, 4);
    return u;
}

// N values of type T moved as one; p aligned to all of them
template <class T, int N> struct alignas(sizeof(T) * N) Vec { T v[N]; };
#ifdef EMU
#define CHECK_ALIGNED(p, bytes) emu::check_aligned(p, bytes)
#else
#define CHECK_ALIGNED(p, bytes)
#endif
template <int N, class T> DEVICE Vec<T, N> load(const T* p) {
    CHECK_ALIGNED(p, sizeof(T) * N);
    return *(const Vec<T, N>*)p;
}

template <int N, class T> DEVICE void store(T* p, const Vec<T, N>& v) {
    CHECK_ALIGNED(p, sizeof(T) * N);
    *(Vec<T, N>*)p = v;
}

// ----------------------------------------------------------------------------
// reductions, in a fixed order. Every lane of the warp, or thread of the block, takes part and gets
// the result.

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
// Matrix products by cublasLt, which thinks in columns: row-major D = A B is asked for as D^T = B^T
// A^T. Inputs of one type, sums in fp32 (no TF32), output of the inputs' type or fp32. One stream
// and one workspace: deterministic.

// Where the matrices are parts of larger ones, Strides says how far apart rows are (0: dense),
// how many products of one shape there are, and how far apart their matrices are. C is laid out
// as D is.
struct Strides { int lda = 0, ldb = 0, ldd = 0, count = 1; long a = 0, b = 0, d = 0; };

template <class T> cudaDataType blas_type() { return sizeof(T) == 4 ? CUDA_R_32F : CUDA_R_16BF; }
inline uint32_t blas_alignment(const void* p) {
    uintptr_t a = (uintptr_t)p;
    return a % 256 ? (uint32_t)(a & -a) : 256;
}

// as cublasLt sees it: d (l, batched) = op(a) op(b) + beta c. Its descriptions go with it, however
// it ends
struct Product {
    cublasLtMatmulDesc_t desc = NULL;
    cublasLtMatrixLayout_t la = NULL, lb = NULL, ld = NULL;
    const void *a = NULL, *b = NULL, *c = NULL;
    void* d = NULL;
    float beta = 0;
    double flops = 0;
    size_t bytes = 0; // from the first to the last element of d
    std::string key;  // everything that an algorithm depends on

    Product() {}
    Product(const Product&) = delete;

    ~Product() {
        for (cublasLtMatrixLayout_t l : { la, lb, ld }) {
            if (l) { cublasLtMatrixLayoutDestroy(l); }
        }
        if (desc) { cublasLtMatmulDescDestroy(desc); }
    }
};

inline cublasStatus_t product_run(const Product& p, const cublasLtMatmulAlgo_t& algo, const void* c,
                                  void* d) {
    const float one = 1.0f;
    return cublasLtMatmul(device_blas, p.desc, &one, p.a, p.la, p.b, p.lb, &p.beta, c, p.ld, d,
                          p.ld, &algo, device_workspace, DEVICE_WORKSPACE, device_stream);
}

// Which algorithm: cuBLAS proposes some for each product. Before many steps a large product is
// timed with each of them, once; the fastest is kept in a file of this GPU and this cuBLAS under
// gemm_cache, so that the next run takes the same one: same seed, same bits. cuBLAS documents that
// an algorithm may be stored as it is, for the same version of the library. Jobs that share the
// file agree: a line is only ever added at its end, in one piece and under a lock, and of all lines
// of a product the first that can run counts, also for the job that has just added another.
inline std::string gemm_cache = emulated ? "" : "data/cache";     // "": no file, the first proposal
inline bool gemm_search_wanted;
inline void tune_products() { gemm_search_wanted = true; }
// (the CPU backend keeps in attention's forward pass what its metrics need)
inline void keep_rows_for_metrics(bool) {}
const double GEMM_SEARCH_FLOPS = shrunk ? 1e4 : 2e9;
enum { GEMM_PROPOSALS = 32 };
inline std::map<std::string, cublasLtMatmulAlgo_t> gemm_chosen;
// of each product, in the file's order
typedef std::map<std::string, std::vector<cublasLtMatmulAlgo_t>> GemmKept;

inline std::string gemm_file() {
    std::string name = device_name;
    for (char& ch : name) { if (!isalnum((unsigned char)ch)) { ch = '-'; } }
    return strf("%s/matmul-%s-%zu.txt", gemm_cache.c_str(), name.c_str(), cublasLtGetVersion());
}

// lines of a key, " : " and the algorithm's eight words
inline GemmKept gemm_read(const std::string& path, bool complain) {
    GemmKept out;
    int bad = 0;
    for (auto& line : split(file_exists(path) ? file_read(path) : "", '\n')) {
        if (line.empty()) { continue; }
        const size_t colon = line.find(" : ");
        cublasLtMatmulAlgo_t algo; unsigned long long w[8]; int end = -1;
        if (colon != std::string::npos) {
            sscanf(line.c_str() + colon + 3, "%llx %llx %llx %llx %llx %llx %llx %llx%n",
                   w, w + 1, w + 2, w + 3, w + 4, w + 5, w + 6, w + 7, &end);
        }
        if (end < 0 || line[colon + 3 + end]) { bad++; continue; }
        for (int i = 0; i < 8; i++) { algo.data[i] = w[i]; }
        out[line.substr(0, colon)].push_back(algo);
    }
    if (bad && complain) {
        fprintf(
            stderr,
            "%s: %d lines are not as this program writes them; those products are timed again\n",
            path.c_str(), bad);
    }
    return out;
}

// the first algorithm kept for a product that can run here
inline bool gemm_kept(const GemmKept& kept, const Product& p, cublasLtMatmulAlgo_t* algo) {
    auto it = kept.find(p.key);
    if (it == kept.end()) { return false; }
    for (auto& x : it->second) {
        cublasLtMatmulHeuristicResult_t found;
        if (cublasLtMatmulAlgoCheck(device_blas, p.desc, p.la, p.lb, p.ld, p.ld, &x, &found) !=
            CUBLAS_STATUS_SUCCESS) {
            continue;
        }
        if (found.workspaceSize <= DEVICE_WORKSPACE) { *algo = x; return true; }
    }
    return false;
}

// for the test: what another job does at the worst moment
inline std::function<void()> gemm_before_keeping;
// adds a line to the file and says whose choice counts from now on: the first one's. Without a
// file, the own
inline cublasLtMatmulAlgo_t gemm_keep(const std::string& file, const Product& p,
                                      cublasLtMatmulAlgo_t algo) {
    std::string line = p.key + " :";
    for (uint64_t w : algo.data) { line += strf(" %llx", (unsigned long long)w); }
    line += "\n";
    if (gemm_before_keeping) { gemm_before_keeping(); }
    const int fd = open(file.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0666);
    if (fd < 0) { return algo; }
    flock(fd, LOCK_EX); // where the file system knows no locks, O_APPEND has to do
    const bool written = write(fd, line.data(), line.size()) == (ssize_t)line.size();
    close(fd);
    if (written) { gemm_kept(gemm_read(file, false), p, &algo); }
    return algo;
}

// The fastest of n proposals, by events: all are run in turn until the clocks are up, then in turn
// again, and the shortest time of each counts. Writes to a copy of d; false if there is no memory
// for one
inline bool gemm_search(const Product& p, const cublasLtMatmulHeuristicResult_t* found, int n,
                        cublasLtMatmulAlgo_t* best) {
    enum { ROUNDS = 10 };
    const double WARM_UP_MS = shrunk ? 0 : 50;
    void* d = NULL;
    if (cudaMalloc(&d, p.bytes) != cudaSuccess) { cudaGetLastError(); return false; }
    cudaEvent_t from, to;
    for (cudaEvent_t* e : { &from, &to }) {
        device_check(cudaEventCreateWithFlags(e, cudaEventDefault), "making an event");
    }
    std::vector<float> ms(n, 0);                     // infinite: cannot run
    auto round = [&](bool timed) {
        for (int i = 0; i < n; i++) {
            if (ms[i] == INFINITY) { continue; }
            device_check(cudaEventRecord(from, device_stream), "recording an event");
            if (product_run(p, found[i].algo, d, d) != CUBLAS_STATUS_SUCCESS) {
                ms[i] = INFINITY;
                continue;
            }
            device_check(cudaEventRecord(to, device_stream), "recording an event");
            device_check(cudaEventSynchronize(to), "timing a matrix product");
            float took = 0;
            device_check(cudaEventElapsedTime(&took, from, to), "timing a matrix product");
            if (timed) { ms[i] = ms[i] == 0 ? took : std::min(ms[i], took); }
        }
    };
    for (const double start = now_ms(); now_ms() - start <= WARM_UP_MS;) { round(false); }
    for (int k = 0; k < ROUNDS; k++) { round(true); }
    for (cudaEvent_t e : {from, to}) { device_check(cudaEventDestroy(e), "freeing an event"); }
    device_free(d);
    *best = found[std::min_element(ms.begin(), ms.end()) - ms.begin()].algo;
    return true;
}

// what cuBLAS proposes, best first; at least one, at most GEMM_PROPOSALS
inline int gemm_propose(const Product& p, uint32_t align_a, uint32_t align_b, uint32_t align_d,
                        cublasLtMatmulHeuristicResult_t* found) {
    const std::string what = "no algorithm for a matrix product " + p.key;
    cublasLtMatmulPreference_t pref; int n = 0;
    blas_check(cublasLtMatmulPreferenceCreate(&pref), what);
    auto set = [&](cublasLtMatmulPreferenceAttributes_t attr, const void* v, size_t size) {
        blas_check(cublasLtMatmulPreferenceSetAttribute(pref, attr, v, size), what);
    };
    // partial sums in fp32, in a fixed order
    const uint32_t reduction = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
    set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &DEVICE_WORKSPACE, sizeof DEVICE_WORKSPACE);
    set(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &reduction, sizeof reduction);
    // it assumes 256 if not told
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, &align_a, sizeof align_a);
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, &align_b, sizeof align_b);
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, &align_d, sizeof align_d);
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, &align_d, sizeof align_d);
    blas_check(cublasLtMatmulAlgoGetHeuristic(device_blas, p.desc, p.la, p.lb, p.ld, p.ld, pref,
                                              GEMM_PROPOSALS, found, &n),
               what);
    n = (int)(std::remove_if(found, found + n,
                             [](auto& f) { return f.state != CUBLAS_STATUS_SUCCESS; }) -
              found);
    if (n == 0) { blas_check(CUBLAS_STATUS_NOT_SUPPORTED, what); }
    cublasLtMatmulPreferenceDestroy(pref);
    return n;
}

// algorithms for a product that this run has not met before, best first
typedef std::vector<cublasLtMatmulAlgo_t> GemmAlgos;
inline GemmAlgos gemm_choose(const Product& p, uint32_t align_a, uint32_t align_b,
                             uint32_t align_d) {
    cublasLtMatmulAlgo_t algo;
    const bool large = !gemm_cache.empty() && p.flops >= GEMM_SEARCH_FLOPS;
    const std::string file = large ? gemm_file() : "";
    if (large) {
        static std::string have; static GemmKept kept;
        if (have != file) { have = file; kept = gemm_read(file, true); }
        if (gemm_kept(kept, p, &algo)) { return { algo }; }
    }
    cublasLtMatmulHeuristicResult_t found[GEMM_PROPOSALS];
    const int n = gemm_propose(p, align_a, align_b, align_d, found);
    GemmAlgos all;
    for (int i = 0; i < n; i++) { all.push_back(found[i].algo); }
    if (!large || !gemm_search_wanted) { return all; }
    for (size_t i = 1; i <= gemm_cache.size(); i++) {          // mkdir -p, if it may be
        if (i == gemm_cache.size() || gemm_cache[i] == '/') {
            mkdir(gemm_cache.substr(0, i).c_str(), 0777);
        }
    }
    // a choice that is not kept would change from run to run
    if (access(gemm_cache.c_str(), W_OK) != 0 || !gemm_search(p, found, n, &algo)) { return all; }
    return { gemm_keep(file, p, algo) };
}

// the product by the first of these algorithms that does not refuse it: cuBLAS has proposed some
// that then did (PyTorch, pull requests 76021 and 91436). One that refuses has computed nothing
inline cublasLtMatmulAlgo_t gemm_first(const Product& p, const GemmAlgos& algos,
                                       const std::string& what) {
    for (size_t i = 0;; i++) {
        const cublasStatus_t s = product_run(p, algos[i], p.c, p.d);
        if (s == CUBLAS_STATUS_NOT_SUPPORTED && i + 1 < algos.size()) { continue; }
        blas_check(s, what);
        return algos[i];
    }
}

// D (M, N) = op(A) op(B) [+ C (M, N), unless NULL; may be D], all row-major: A is (M, K), or (K, M)
// if transA; B is (K, N), or (N, K) if transB
template <class TD, class T>
void gemm(TD* D, const TD* C, const T* A, const T* B, int M, int N, int K, bool transA, bool transB,
          Strides x = {}) {
    device_start();
    if (!device_workspace) { device_workspace = device_reserve(DEVICE_WORKSPACE); }
    const uint32_t align_a = blas_alignment(B), align_b = blas_alignment(A);
    const uint32_t align_d = std::min(blas_alignment(C ? C : D), blas_alignment(D));
    Product p; // column-major: B comes first
    p.a = B; p.b = A; p.c = C ? C : D; p.d = D;
    p.beta = C ? 1.0f : 0.0f;
    p.flops = 2.0 * M * N * K * x.count;
    p.bytes = ((x.count - 1) * (size_t)x.d + (M - 1) * (size_t)(x.ldd ? x.ldd : N) + N) *
              sizeof(TD);
    p.key = strf(
        "(%d, %d) x (%d, %d)%s%s%s %zu->%zu strides %d,%d,%d of %d: %ld,%ld,%ld aligned %u,%u,%u",
        M, K, K, N, transA ? " A^T" : "", transB ? " B^T" : "", C ? " +C" : "", sizeof(T),
        sizeof(TD), x.lda, x.ldb, x.ldd, x.count, x.a, x.b, x.d, align_a, align_b, align_d);
    const std::string what = "matrix product " + p.key;
    const int32_t op_a = transB ? CUBLAS_OP_T : CUBLAS_OP_N,
                  op_b = transA ? CUBLAS_OP_T : CUBLAS_OP_N;
    blas_check(cublasLtMatmulDescCreate(&p.desc, CUBLAS_COMPUTE_32F, CUDA_R_32F), what);
    blas_check(cublasLtMatmulDescSetAttribute(p.desc, CUBLASLT_MATMUL_DESC_TRANSA, &op_a,
                                              sizeof op_a),
               what);
    blas_check(cublasLtMatmulDescSetAttribute(p.desc, CUBLASLT_MATMUL_DESC_TRANSB, &op_b,
                                              sizeof op_b),
               what);
    // row-major
    auto layout = [&](cublasLtMatrixLayout_t* l, cudaDataType type, int rows, int cols, int stride,
                      long apart) {
        blas_check(cublasLtMatrixLayoutCreate(l, type, cols, rows, stride ? stride : cols), what);
        if (x.count == 1) { return; }
        const int64_t offset = apart;
        blas_check(cublasLtMatrixLayoutSetAttribute(*l, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT,
                                                    &x.count, sizeof x.count),
                   what);
        blas_check(cublasLtMatrixLayoutSetAttribute(*l, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET,
                                                    &offset, sizeof offset),
                   what);
    };
    layout(&p.la, blas_type<T>(), transB ? N : K, transB ? K : N, x.ldb, x.b);
    layout(&p.lb, blas_type<T>(), transA ? K : M, transA ? M : K, x.lda, x.a);
    layout(&p.ld, blas_type<TD>(), M, N, x.ldd, x.d);
    auto it = gemm_chosen.find(p.key);
    if (it == gemm_chosen.end()) {
        gemm_chosen[p.key] = gemm_first(p, gemm_choose(p, align_a, align_b, align_d), what);
        return;
    }
    profiled(p.key.substr(0, p.key.find(" strides")).c_str(),
             [&] { blas_check(product_run(p, it->second, p.c, p.d), what); });
}
} // namespace cuda
#endif // DEVICE_CUH
