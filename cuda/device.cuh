/*
device.cuh -- the GPU: errors, memory, launches. With instructions.cuh the only file that knows
nvcc from the emulator.

Built by nvcc, the wrappers below are CUDA; built by g++ with -DEMU, the same kernels run on the CPU
in dev/emulator/emu.h, which is how CI tests them. So <<<>>>, __shared__, PTX and CUDA's own headers
are there and nowhere else. Rules for kernels: start with LAUNCH; shared memory through SMEM(type,
name) and dynamic_smem<T>(); warps leave together and nobody leaves before a barrier; full 32-lane
masks; __syncwarp() between one lane's write to shared memory and another's read; no atomics (the
same seed gives the same bits). Everything runs on one stream, gpu.stream.
*/
#ifndef DEVICE_CUH
#define DEVICE_CUH
// sm_80 brought cp.async and mma of bf16. One error here replaces thousands from the assembler.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
#error "this GPU is older than sm_80 (A100), which bf16 and fp32 need \
---> HINT: make BACKEND=cpu, or make GPU_ARCH=sm_NN for a newer GPU (8.6: sm_86)"
#endif
#include "../block_variants.h"      // PRECISION_ROWS
#include <map>
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
// The emulator's tests are small. So are, there, the pieces that only large tests would fill.
#if (defined(EMU) || defined(PTX_SHRUNK)) && !defined(REAL_SIZES)
enum { shrunk = 1 };
#else
enum { shrunk = 0 };
#endif
typedef __nv_bfloat16 bf16;
#define CEIL_DIV(a, b) (((a) + (b) - 1) / (b))
#define DEVICE __device__ __forceinline__

#ifndef PRECISION            // fp32 or bf16
#ifdef __CUDACC__
#define PRECISION bf16
#else
#define PRECISION fp32
#endif
#endif

namespace cuda {
constexpr bool in_bf16 = row_named(PRECISION_ROWS, STR(PRECISION)) == 1;
typedef std::conditional_t<in_bf16, bf16, float> real;      // what tensors hold
typedef float acc; // what sums, statistics, weight gradients and optimizer state hold
// The shared memory a block may ask for on sm_86 and sm_89. On sm_80 it is 163 KiB, on sm_90 227.
enum { SMEM_MOST = 99 << 10 };
static const char* const name = "cuda";
static const bool on_host = false;  // host code may not read device memory
static const bool reads_mapped = false;             // weights in their file (cpu/mapped_weights.h)
// Returns how many rows of logits are alive at once: enough to fill a GPU.
inline long lm_head_rows(long, long, bool) { return 8192; }
static const int lm_head_part = 0;
enum { large = shrunk ? 64 : 8192 }; // side of matrices that are large to it
enum { piece_rows = 0 };           // a batch is never cut

// Calls work for all rows at once. The CPU's takes a part at a time, which stays in a core's cache.
template <class Work> void in_parts(long rows, Work work) { work(0, (int)rows); }
template <class S, class Work> void in_parts(long rows, S* x, S* y, long, Work work) {
    work(0, (int)rows, x, y);
}

// ----------------------------------------------------------------------------
// Errors. They are the machine's, so the program exits with 1.

// The GPU of this process, and how it is used.
struct Gpu {
    int number;                  // which of the machine's
    std::string name;
    int version;                 // 90: sm_90
    cudaStream_t stream;
    cublasLtHandle_t blas;
    void* workspace;             // for cuBLAS
    long scratch;                // number of the memory that device_scratch returns
    bool graph;                  // by --graph: graph.cuh
    bool hopper;                 // attention goes by Hopper's kernels
    std::string hopper_check = "nobody has asked";       // what their check here has said
};
inline Gpu gpu;
const size_t DEVICE_WORKSPACE = shrunk ? 256 : 32 << 20;

// Whether this program has kernels for sm_90a, as the Makefile says; and whether this is a card of
// 9.0, which runs them.
#if defined(HOPPER) && !__has_include("hopper/check.cuh")
#error "-DHOPPER: the folder cuda/hopper/ is not here"
#endif
#ifdef HOPPER
enum { hopper_built = 1 };
#else
enum { hopper_built = 0 };
#endif
inline bool hopper_here() { return gpu.version == 90; }
inline void use_hopper(bool wanted) { gpu.hopper = wanted; }

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
    "number that nvidia-smi --query-gpu=compute_cap --format=csv shows (9.0: sm_90a), or update "
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

template <int> __global__ void device_probe_kernel() {} // a template: every unit has it
// Returns the GPUs that nvcc compiled for: "sm_80, sm_90".
inline std::string device_built_for() {
    std::string out;
    for (auto& arch : split(STR(__CUDA_ARCH_LIST__), ',')) { // 800,900
        out += (out.empty() ? "sm_" : ", sm_") + arch.substr(0, arch.size() - 1);
    }
    return out;
}

// Finds the GPU and asks what it is. This process takes nothing of it yet, so that another may have
// it first.
inline void device_find() {
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
    // A process that was given a GPU of its own sees no other.
    if (n == 1) { gpu.number = 0; }
    const int d = gpu.number;
    if (d >= n) {
        die(EXIT_MACHINE, strf("GPU %d: there are %d, and each process needs one of its own", d, n),
            "start as many processes on each machine as it has GPUs: torchrun --nproc-per-node, "
            "mpirun -N, srun --ntasks-per-node");
    }
    device_check(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, d),
                 "asking for the GPU's version");
    device_check(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, d),
                 "asking for the GPU's version");
    gpu.version = 10 * major + minor;
    cudaDeviceProp prop;
    device_check(cudaGetDeviceProperties(&prop, d), "asking for the GPU's name");
    gpu.name = prop.name;
    if (major < 8) {
        die(EXIT_MACHINE,
            strf("GPU: got %s (sm_%d), wanted sm_80 (A100) or newer, in bf16 and in fp32",
                 prop.name, gpu.version),
            "nvidia-smi -L lists the GPUs, CUDA_VISIBLE_DEVICES=1 takes the second of them; make "
            "BACKEND=cpu trains on the processor");
    }
}

// Takes the GPU and returns a line that names it. Called once, before anything else.
inline std::string device_init() {
    device_find();
    const std::string name = strf("%s (sm_%d)", gpu.name.c_str(), gpu.version);
    device_check(cudaSetDevice(gpu.number), strf("choosing GPU %d", gpu.number).c_str());
    // Where the binary has no kernels for this GPU, the error comes here, not at the first launch.
    cudaFuncAttributes kernel;
    const cudaError_t image = cudaFuncGetAttributes(&kernel, (const void*)device_probe_kernel<0>);
    if (image == cudaErrorNoKernelImageForDevice || image == cudaErrorInvalidDeviceFunction) {
        die(EXIT_MACHINE,
            strf("GPU: got %s, wanted %s, which this binary was compiled for", name.c_str(),
                 device_built_for().c_str()),
            strf("make clean, then make on this machine, or make GPU_ARCH=sm_%d%s", gpu.version,
                 hopper_here() ? "a" : ""));
    }
    device_check(image, "loading the kernels");
    device_check(cudaStreamCreateWithFlags(&gpu.stream, cudaStreamNonBlocking),
                 "making a stream");
    size_t left = 0, total = 0;
    device_check(cudaMemGetInfo(&left, &total), "asking for free memory");
    blas_check(cublasLtCreate(&gpu.blas), "starting");
    return strf("%s, %.1f of %.1f GiB free", name.c_str(), left / 0x1p30, total / 0x1p30);
}

// ----------------------------------------------------------------------------
// Memory. The first call to any of these starts the device.

inline const std::string& device_start() {
    static const std::string once = device_init();
    return once;
}

inline void device_zero(void* p, size_t n) {
    device_check(cudaMemsetAsync(p, 0, n, gpu.stream), "zeroing memory");
}

inline void device_sync() {
    device_check(cudaStreamSynchronize(gpu.stream), "waiting for the GPU");
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

// Frees memory once the GPU has done all that may still use it.
inline void device_free(void* p) {
    if (p) { device_sync(); }
    device_check(cudaFree(p), "freeing memory");
}

// Copies n bytes to the GPU. The source may change as soon as the call returns: the bytes go to a
// ring of page-locked memory first, from where the GPU fetches them. The host waits only for a slot
// that the GPU has not fetched yet.
inline void to_device(void* dst, const void* src, size_t n) {
    enum { SLOTS = 4 };
    const size_t SLOT = shrunk ? 4096 : 1 << 20;
    static char* ring;
    static cudaEvent_t taken[SLOTS];
    static int slot;
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
                                     gpu.stream),
                     "copying to the GPU");
        device_check(cudaEventRecord(taken[slot], gpu.stream), "recording an event");
    }
}

inline void to_host(void* dst, const void* src, size_t n) {
    device_check(cudaMemcpyAsync(dst, src, n, cudaMemcpyDeviceToHost, gpu.stream),
                 "copying from the GPU");
    device_sync();
}

inline void device_copy(void* dst, const void* src, size_t n) {
    device_check(cudaMemcpyAsync(dst, src, n, cudaMemcpyDeviceToDevice, gpu.stream),
                 "copying on the GPU");
}

// Returns memory that one operation uses between its kernels. The next call may return the same
// memory, with undefined content.
inline void* device_scratch(size_t n) {
    static void* p;
    static size_t have;
    // The emulator gives exactly n fresh bytes, so that overruns and stale reads show.
    if (n > have || (emulated && !gpu.graph && n != have)) {
        gpu.scratch++;
        if (emulated) { // without a wait that a GPU would not have
            device_check(cudaFreeAsync(p, gpu.stream), "freeing memory");
        } else {
            device_free(p);
        }
        p = device_reserve(n);
        have = n;
    }
    return p;
}

// Returns how many bytes are free.
inline size_t device_left() {
    device_start();
    size_t left = 0, total = 0;
    device_check(cudaMemGetInfo(&left, &total), "asking for free memory");
    return left;
}

// ----------------------------------------------------------------------------
// Launches and shared memory.

#ifdef EMU
#define SMEM(T, name) auto& name = emu::static_smem<T>([] {})
#else
// Lets the type of SMEM(float[4], x) stand before the name.
template <class T> struct SmemType { typedef T type; };
#define SMEM(T, name) __shared__ typename ::cuda::SmemType<T>::type name
#endif
template <class T> DEVICE T* dynamic_smem() {
#ifdef EMU
    return (T*)emu::block->dynamic.p;
#else
    extern __shared__ __align__(128) unsigned char smem_bytes[];
    return (T*)smem_bytes;
#endif
}

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
// training step, then a table of milliseconds. The first two search, allocate and warm up.
enum { PROFILED_STEP = 2 };
struct ProfilePart { std::string name; cudaEvent_t from, to; };
struct Profile {
    std::vector<ProfilePart> parts;
    int steps;                                       // that have ended
};
inline Profile profile;

inline bool profile_wanted() {
    static const bool wanted = getenv("PROFILE") != NULL;
    return wanted;
}

inline cudaEvent_t profile_event() {
    cudaEvent_t e;
    device_check(cudaEventCreateWithFlags(&e, cudaEventDefault), "making an event");
    device_check(cudaEventRecord(e, gpu.stream), "recording an event");
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
    device_check(cudaEventSynchronize(profile.parts.back().to), "timing a step");
    for (const ProfilePart& p : profile.parts) {
        const double ms = between(p.from, p.to);
        sums[p.name].times++;
        sums[p.name].ms += ms;
        all += ms;
    }
    std::vector<std::pair<std::string, Sum>> rows(sums.begin(), sums.end());
    std::sort(rows.begin(), rows.end(), [](auto& a, auto& b) { return a.second.ms > b.second.ms; });
    const double step = between(profile.parts.front().from, profile.parts.back().to);
    printf("%-72s %6s %10s\n", "kernel or product", "times", "ms");
    for (auto& [name, s] : rows) { printf("%-72s %6ld %10.3f\n", name.c_str(), s.times, s.ms); }
    printf("%-72s %6s %10.3f\n", "between them", "", step - all);
    printf("%-72s %6s %10.3f\n", "a step", "", step);
    fflush(stdout);
}

// Runs f, which launches a kernel or product, between two events if it is time to profile.
template <class F> void profiled(const char* name, F f) {
    if (!profile_wanted() || profile.steps != PROFILED_STEP) { return f(); }
    profile.parts.push_back(ProfilePart{name, profile_event(), NULL});
    f();
    profile.parts.back().to = profile_event();
}

// Ends a training step, after its update.
inline void profile_step() {
    if (!profile_wanted()) { return; }
    if (profile.steps == PROFILED_STEP) { profile_table(); }
    profile.steps++;
}

// LAUNCH(kernel, grid, block, bytes of dynamic shared memory, arguments...)
#define LAUNCH(kernel, ...) ::cuda::device_launch(#kernel, kernel, __VA_ARGS__)
template <class... P, class... A>
void device_launch(const char* name, void (*kernel)(P...), dim3 grid, dim3 block, size_t smem,
                   A... a) {
    // Dynamic and static memory together may be 48 KiB; more must be asked for. No kernel has 8 KiB
    // of static memory beside dynamic memory
    if (smem > 40 << 10) { device_ask_shared(name, (const void*)kernel, smem); }
    profiled(name, [&] {
#ifdef EMU
        emu::launch(name, kernel, grid, block, smem, gpu.stream, a...);
#else
        kernel<<<grid, block, smem, gpu.stream>>>(static_cast<P>(a)...);
#endif
    });
    device_check(cudaGetLastError(), name);
}
} // namespace cuda
#endif // DEVICE_CUH
