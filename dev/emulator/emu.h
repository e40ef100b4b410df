/*
dev/emulator/emu.h -- runs the CUDA kernels of this repository on a CPU, so that CI needs no GPU.

Every CUDA thread is a fiber of one OS thread; barriers and warp operations are where
fibers switch. Compiled as
    g++ -x c++ -std=c++17 -DEMU -fno-strict-aliasing -fstack-clash-protection \
        -I$CUDA/include -Idev/emulator ...
device.cuh includes this file instead of <cuda_runtime.h>; the toolkit's own headers give
the types and bf16 arithmetic, this file gives the bodies. What it is for is finding bugs,
so it is strict where a GPU is silent:
  - shared and device memory start as 0xFF bytes (NaN as float and bf16, -1 as int);
    every cudaMalloc and the dynamic shared memory end at a guard page, and host code that touches
    device memory is stopped;
  - a barrier or a warp operation reached at different lines, or with threads gone,
    is an error, not a hang;
  - a vector at an address that is not a multiple of its size is an error, as on a GPU;
  - cp.async poisons its destination at issue and copies at the wait that covers it,
    so that a missing wait, a wrong count, and a buffer refilled too early all show as NaN;
  - threads run in the order of EMU_SCHED = fwd | rev | pct (random priority per warp,
    EMU_SEED), and with -fsanitize=thread every fiber is a thread to ThreadSanitizer,
    which then finds real races between kernels' threads;
  - copies to the device come from page-locked memory, which is read-only from then
    on until the host has waited for an event after the copy or for the stream;
    what a copy to the host brings is there only after the host has waited;
  - more than 48 KiB of shared memory, dynamic and static together, must be asked for,
    kernel by kernel; grids and blocks have the limits of a GPU;
  - one stream may not touch memory that another one may still be using: an event or a wait has
    to stand between. Nor may the host free it. Freed addresses do not come back;
  - what a stream is given between cudaStreamBeginCapture and EndCapture is done when the graph is
    launched, and not before; a host that waits, copies or allocates in between is stopped;
  - an error that nobody asked for comes with the next question (cudaGetLastError), also that
    an event was not there yet; and one of a kernel stays for good;
  - with EMU_WAITS=1 it says at the end how often the host waited for the device, and how many
    operations it started: kernels, products, copies, memsets, or a graph of them;
    built with -DEMU_COUNT, what each kernel asked of the memory (emu_counts.h);
  - the runtime fails on demand: EMU_FAULT = the names in faults[] below, oom:<MiB>,
    or those of emu_cublas.h; hang, a launch that never ends; NAME@PART, only once a
    kernel with PART in its name is the last;
  - with EMU_HOPPER=1 it is a card of compute capability 9.0: emu_wgmma.h.
There are no atomics on purpose: a kernel that uses them does not compile here, and our kernels
are deterministic. It cannot see: the text of the inline PTX, weak memory order, hardware rounding,
speed. TO ADD an instruction: a struct of operands and a function that performs it for a whole warp
(see ldmatrix), a wrapper in device.cuh for both compilers, and a check in selftest.cu.
*/
#ifndef EMU_H
#define EMU_H
#include <cuda_runtime_api.h>
#include <cuda_bf16.h>
#undef __global__
#define __CUDA_ARCH_LIST__ 800
#define __global__ inline  // a kernel in a header: the program and its variant are linked
#include <math.h>
#include <omp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <pthread.h>
#include <unistd.h>
#include <functional>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

// ----------------------------------------------------------------------------
// sanitizers. RT marks the emulator's own functions: invisible to ThreadSanitizer, which would
// otherwise see one OS thread scheduling itself. For the same reason they use Array below,
// not std::vector (that stays instrumented).

#if defined(__SANITIZE_THREAD__) && !defined(EMU_COUNT)
extern "C" {
void* __tsan_get_current_fiber();
void* __tsan_create_fiber(unsigned);
void __tsan_destroy_fiber(void*);
void __tsan_switch_to_fiber(void*, unsigned);
void __tsan_set_fiber_name(void*, const char*);
void __tsan_acquire(void*);
void __tsan_release(void*);
void __tsan_read_range(void*, unsigned long);
void __tsan_write_range(void*, unsigned long);
}
#define RT __attribute__((no_sanitize_thread))
#define TSAN(...) __VA_ARGS__
enum { EMU_TSAN = 1 };
#else
#ifdef EMU_COUNT // every load and store is a call: see emu_counts.h
#define RT __attribute__((no_sanitize_thread))
#define COUNT(...) __VA_ARGS__
#else
#define RT
#endif
#define TSAN(...)
enum { EMU_TSAN = 0 };
#endif
#ifdef COUNT
enum { EMU_COUNTING = 1 };
#else
#define COUNT(...)
enum { EMU_COUNTING = 0 };
#endif
#ifdef __SANITIZE_ADDRESS__
extern "C" {
void __sanitizer_start_switch_fiber(void**, const void*, size_t);
void __sanitizer_finish_switch_fiber(void*, const void**, size_t*);
void __asan_poison_memory_region(const volatile void*, size_t);
void __asan_unpoison_memory_region(const volatile void*, size_t);
}
#define ASAN(...) __VA_ARGS__
enum { EMU_ASAN = 1 };
#else
#define ASAN(...)
enum { EMU_ASAN = 0 };
#endif

#undef __shared__
// GCC puts statics of templates where they cannot be poisoned
#define __shared__ use_SMEM_of_device_cuh
#define __launch_bounds__(...)
// where the caller is
#define EMU_HERE const char *file = __builtin_FILE(), int line = __builtin_LINE()

inline uint3 threadIdx, blockIdx;
inline dim3 blockDim, gridDim;

#pragma GCC push_options
#pragma GCC optimize("O2")                  // of the emulator, however kernels are compiled
namespace emu {
// ----------------------------------------------------------------------------
// state

template <class T> struct Array {
    T* p = nullptr; size_t n = 0, cap = 0;
    RT T& operator[](size_t i) { return p[i]; }
    RT T* begin() { return p; }
    RT T* end() { return p + n; }
    RT void reserve(size_t k) {
        if (k > cap) {
            cap = k;
            p = (T*)realloc((void*)p, cap * sizeof(T));
        }
    }
    RT void push(T v) { if (n == cap) { reserve(cap ? 2 * cap : 8); } p[n++] = v; }
    RT void erase(size_t i, size_t k) {
        if (!k) { return; }
        memmove((void*)(p + i), (void*)(p + i + k), (n - i - k) * sizeof(T));
        n -= k;
    }
};
struct Block;
// cp.async: n bytes, the first `from` read, the rest 0
struct Copy { void* dst; const void* src; unsigned n, from; };
enum State : uint8_t { NEW, READY, WAITING, DONE };
// registers that hold() has ended the use of: the bytes they had, after how many fences of the warp
struct Held { const char* p; size_t n; long fences; char was[256]; };
struct Thread {
    void* sp = nullptr; char* stack = nullptr; Block* block = nullptr;
    uint3 id{}; unsigned lane = 0, priority = 0; State state = NEW;
    const char *what = "", *file = ""; int line = 0;            // where it waits
    // operands of the warp operation, or the barrier
    void* arg = nullptr;
    // cp.async not yet done; ends of committed groups
    Array<Copy> copies; Array<size_t> groups;
    Array<uint32_t> unfenced; Array<Held> held;                 // emu_wgmma.h
    void *tsan = nullptr, *fake = nullptr;                      // the sanitizers' handles
};
// performs a warp operation for all lanes at once
typedef void (*WarpFn)(Thread* lanes, uint32_t mask);
struct Pending { uint32_t mask, arrived; WarpFn fn; const char *what, *file; int line; };
struct Warp { uint32_t exist = 0, exited = 0; int n = 0; Pending ops[32]; };
struct Barrier { unsigned arrived; const char* file; int line; };
struct NamedBarrier { unsigned arrived, n; uint32_t times, lanes[32]; };
struct Written;                                                 // emu_wgmma.h
struct WarpProducts;
struct Warpgroup;
enum { STREAMS = 8 };
// p[0..n) of use, inside the mapping; wrote, read: the last operations of each stream that used it
struct Memory { char *p, *map; size_t n, mapped; long wrote[STREAMS], read[STREAMS]; };
enum { MAX_STATIC = 16, STATIC_BYTES = 48 << 10 };
struct Static { int id; char* p; size_t n; };                   // an SMEM variable
struct Block {
    uint3 id;
    unsigned n = 0, alive = 0;
    Thread* threads = nullptr;
    Warp* warps = nullptr;
    Barrier bar{};
    NamedBarrier named[16]; uint32_t barriers = 0;              // that were full
    Written* chunks = nullptr; WarpProducts* products = nullptr; Warpgroup* warpgroups = nullptr;
    Memory dynamic{}, statics{}; size_t statics_used = 0; Static vars[MAX_STATIC]; int n_vars = 0;
};
enum Sched { FWD, REV, PCT };
struct Settings {
    Sched sched = FWD;
    uint64_t seed = 1;
    const char* fault = "";
    size_t stack = 0;
    bool open = false;
    bool hopper = false, eager = false;   // a card of 9.0; wgmma is done at once
};
// conflicts: extra ldmatrix bank cycles
struct Counts { uint64_t launches, blocks, mma, wgmma, ldmatrix, conflicts; long waits, started; };

inline Settings settings;
inline Counts counts;
inline Thread host;                       // the fiber that is not a CUDA thread
inline Thread* now = &host;
// ready threads: ring[head..tail), indices modulo its size, a power of two
inline Array<Thread*> ring;
inline unsigned head, tail;
inline Array<char*> stacks;               // free fiber stacks
inline Array<Memory> memory;              // device allocations
inline Array<Block*> finished;            // TSan only: kept until the launch ends (a reused
                                          // fiber is the same thread)
inline Array<void*> idle;                 // TSan only: threads of launches that ended.
                                          // To make one costs more than to run it
inline Block* block;                      // the one that runs
inline const char* kernel = "";
inline void (*body)(void*); inline void* body_args;
inline char block_began, launch_done;     // their addresses are TSan sync objects

[[noreturn]] RT inline void fail(const char* format, ...) {
    va_list ap; va_start(ap, format);
    fprintf(stderr, "EMU ERROR: "); vfprintf(stderr, format, ap); fprintf(stderr, "\n");
    va_end(ap);
    if (now != &host) {
        fprintf(stderr, "  in kernel %s, block (%u,%u,%u), thread (%u,%u,%u)\n", kernel,
                blockIdx.x, blockIdx.y, blockIdx.z, threadIdx.x, threadIdx.y, threadIdx.z);
    }
    fflush(stderr); abort();
}
inline bool fault(const char* name) { // nogpu, or oom of oom:2048, or hang of hang@_wgmma
    const size_t n = strlen(name);
    const char* after = settings.fault + n;
    return strncmp(settings.fault, name, n) == 0 &&
           (!*after || *after == ':' || (*after == '@' && strstr(kernel, after + 1)));
}
inline void segv(int, siginfo_t*, void*);
COUNT(void counts_start(const char*, const char*, const char*, const char*);)
RT inline void idle_free() { TSAN(for (void* t : idle) { __tsan_destroy_fiber(t); }) idle.n = 0; }
inline void init() {
    static bool done = false;
    if (done) { return; }
    done = true;
    auto env = [](const char* k) { const char* v = getenv(k); return v ? v : ""; };
    const char* s = env("EMU_SCHED");
    settings.sched = !strcmp(s, "rev") ? REV : !strcmp(s, "pct") ? PCT : FWD;
    if (*s && settings.sched == FWD && strcmp(s, "fwd")) {
        fail("EMU_SCHED=%s: wanted fwd, rev or pct", s);
    }
    if (*env("EMU_SEED")) { settings.seed = strtoull(env("EMU_SEED"), nullptr, 10) | 1; }
    settings.fault = env("EMU_FAULT");
    settings.hopper |= *env("EMU_HOPPER") != 0;
    settings.eager |= *env("EMU_EAGER") != 0;
    host.state = READY;
    settings.stack = EMU_ASAN ? 512 << 10 : EMU_TSAN ? 64 << 10 : 128 << 10;
    // report bad addresses from a stack of our own: the fiber's may be the one that overflowed
    if (!EMU_ASAN) {
        static char alt[64 << 10];
        stack_t ss{}; ss.ss_sp = alt; ss.ss_size = sizeof alt; sigaltstack(&ss, nullptr);
        struct sigaction sa{}; sa.sa_sigaction = segv; sa.sa_flags = SA_SIGINFO | SA_ONSTACK;
        sigaction(SIGSEGV, &sa, nullptr); sigaction(SIGBUS, &sa, nullptr);
    }
    if (*env("EMU_WAITS")) {
        atexit([] {
            fprintf(stderr, "emulated: the host waited %ld times, started %ld operations\n",
                    counts.waits, counts.started);
        });
    }
    COUNT(if (*env("EMU_COUNTS")) {
        counts_start(env("EMU_COUNTS"), env("EMU_L2"), env("EMU_RESIDENT"),
                     env("EMU_COUNTS_BETWEEN"));
    })
    TSAN(host.tsan = __tsan_get_current_fiber();
         // with threads beside it TSan leaves a child's accesses out
         pthread_atfork(idle_free, nullptr, nullptr);)
}

// ----------------------------------------------------------------------------
// memory

const size_t PAGE = 4096, CANARY = 0x5A;
RT inline size_t page_up(size_t n) { return (n + PAGE - 1) / PAGE * PAGE; }
// n bytes of 0xFF that end at a guard page (to 16 bytes; the rest holds canaries),
// with another page before them
RT inline Memory guarded(size_t n) {
    Memory m{}; m.n = n;
    size_t round = (n + 15) & ~size_t(15);
#ifdef __SANITIZE_ADDRESS__
    m.map = m.p = (char*)aligned_alloc(16, round ? round : 16); m.mapped = round;
    if (m.p && round != n) { __asan_poison_memory_region(m.p + n, round - n); }
#else
    m.mapped = page_up(round) + 2 * PAGE;
    m.map = (char*)mmap(nullptr, m.mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
                        0);
    if (m.map == MAP_FAILED) { fail("mmap of %zu bytes failed", n); }
    mprotect(m.map, PAGE, PROT_NONE); mprotect(m.map + m.mapped - PAGE, PAGE, PROT_NONE);
    m.p = m.map + m.mapped - PAGE - round;
    memset(m.p + n, CANARY, round - n);
#endif
    memset(m.p, 0xFF, n);
    return m;
}
RT inline void check_canary(const Memory& m) {
    for (size_t i = m.n; !EMU_ASAN && (i & 15); i++) {
        if ((unsigned char)m.p[i] != CANARY) {
            fail("bytes past %zu bytes of device memory were overwritten", m.n);
        }
    }
}
RT inline void unmap(Memory* m) {
    ASAN(__asan_unpoison_memory_region(m->p, m->mapped); free(m->map); return;)
    munmap(m->map, m->mapped);
}
// device memory: out of reach, and at no address that is given out again
inline Array<Memory> freed;
RT inline void retire(Memory* m) {
    if (EMU_ASAN || EMU_TSAN) { unmap(m); return; }
    mmap(m->map, m->mapped, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1,
         0);
    freed.push(*m);
    if (freed.n > 1024) { unmap(&freed[0]); freed.erase(0, 1); }
}
RT inline bool in(const Memory& m, const void* p, size_t n) {
    return (char*)p >= m.p && (char*)p + n <= m.p + m.n;
}
RT inline Memory* device_memory(const void* p) {
    for (auto& m : memory) { if (in(m, p, 0)) { return &m; } }
    return nullptr;
}
RT inline bool is_device(const void* p) { return device_memory(p) != nullptr; }
RT inline bool is_shared(const void* p, size_t n) {
    return in(block->dynamic, p, n) || in(block->statics, p, n);
}

// page-locked host memory; busy: of each page, the number of the copy that the device
// may not have made yet
struct Locked { char* p; size_t n; long copies, known; Array<long> busy; };
inline Locked locked;
RT inline void locked_take(const void* p, size_t n) { // a copy from there begins
    char* from = (char*)((uintptr_t)p & ~(PAGE - 1));
    locked.copies++;
    for (char* a = from; a < (char*)p + n; a += PAGE) {
        locked.busy[(a - locked.p) / PAGE] = locked.copies;
    }
    mprotect(from, page_up((char*)p + n - from), PROT_READ);
}
RT inline void locked_free(long copy) { // the host has waited for all up to this copy
    if (copy > locked.known) { locked.known = copy; }
    for (size_t i = 0; i < locked.busy.n; i++) {
        if (locked.busy[i] <= copy) { mprotect(locked.p + i * PAGE, PAGE, PROT_READ | PROT_WRITE); }
    }
}

// device memory is out of reach while host code runs; launches, cudaMemcpy and cuBLAS
// hold an Access to all of it, or to one. settings.open leaves it within reach,
// for runs whose host code has been watched before: the system calls take a fifth of a run
inline bool within_reach;
RT inline void protect(const Memory& m, int how) {
    if (!EMU_ASAN && !EMU_TSAN && !EMU_COUNTING) {
        mprotect(m.map + PAGE, m.mapped - 2 * PAGE, how);
    }
}
struct Access {
    const Memory* one; const bool opens;
    RT explicit Access(const Memory* one = nullptr) : one(one), opens(!within_reach) {
        if (opens) { reach(true); }
    }
    RT ~Access() { if (opens && !settings.open) { reach(false); } }
    RT void reach(bool yes) {
        const int how = yes ? PROT_READ | PROT_WRITE : PROT_NONE;
        if (one) { protect(*one, how); return; }
        for (const Memory& m : memory) { protect(m, how); }
        within_reach = yes;
    }
};
RT inline void segv(int, siginfo_t* info, void*) { // says what the address was nearest to
    char* a = (char*)info->si_addr;
    if (block && a >= block->dynamic.map && a < block->dynamic.map + block->dynamic.mapped) {
        const Memory& d = block->dynamic;
        fail("bad access, %ld bytes past %zu bytes of dynamic shared memory", (long)(a - d.p - d.n),
             d.n);
    }
    if (a >= locked.p && a < locked.p + locked.n) {
        fail("page-locked memory was changed before the device had copied it (byte %ld)",
             (long)(a - locked.p));
    }
    for (auto& m : memory) {
        if (in(m, a, 1)) {
            fail("host code touched device memory (byte %ld of %zu allocated)", (long)(a - m.p),
                 m.n);
        }
        if (a >= m.map && a < m.map + m.mapped) {
            bool past = a >= m.p;
            fail("bad access, %ld bytes %s a device allocation of %zu bytes",
                 (long)(past ? a - m.p - m.n : m.p - a), past ? "past the end of" : "before", m.n);
        }
    }
    for (auto& m : freed) {
        if (a >= m.map && a < m.map + m.mapped) {
            fail("use of freed device memory (byte %ld of %zu)", (long)(a - m.p), m.n);
        }
    }
    fail("bad access at %p: null, a host pointer, freed memory, or a fiber's stack overflow",
         (void*)a);
}

// ----------------------------------------------------------------------------
// streams. Operations of a stream are numbered; a stream comes after those of others
// that it was told to wait for, by an event or because the host had waited when it asked.
// Memory remembers who used it last.

// after[i]: all of stream i up to this number are done before
struct Stream { long issued; long after[STREAMS]; };
inline Stream streams[STREAMS];                                // 0 is CUDA's default stream
inline int n_streams = 1;
inline long host_after[STREAMS];
struct Event { int stream; long number, copies; bool untimed; double ms; bool asked; };
// a copy to the host that it has not waited for
struct Arriving { int stream; void* dst; char* bytes; size_t n; };
inline Array<Arriving> arriving;

// what a captured stream was given, in order
typedef std::vector<std::function<void()>> Operations;
inline Operations* captured;                                   // of captured_stream; NULL: none is
inline cudaStream_t captured_stream;
inline bool in_graph;                                          // one is launched now
// Keeps an operation for the graph if its stream is captured; else it is to be done now.
template <class F> bool keep(cudaStream_t stream, F operation) {
    counts.started += !in_graph;
    if (!captured || stream != captured_stream) { return false; }
    captured->push_back(operation);
    return true;
}
inline void not_captured(const char* what) {
    if (captured) { fail("%s while a stream is captured", what); }
}

inline int stream_of(cudaStream_t s) { return s ? (int)((Stream*)s - streams) : 0; }
// an operation begins on a stream
RT inline int stream_next(cudaStream_t stream) {
    const int s = stream_of(stream);
    streams[s].issued++;
    for (int i = 0; i < STREAMS; i++) {
        if (streams[s].after[i] < host_after[i]) { streams[s].after[i] = host_after[i]; }
    }
    return s;
}
// that operation uses this memory
RT inline void touch(const void* p, bool write, cudaStream_t stream) {
    Memory* m = device_memory(p);
    const int s = stream_of(stream);
    if (!m) { return; }
    for (int i = 0; i < n_streams; i++) {
        const long last = write && m->read[i] > m->wrote[i] ? m->read[i] : m->wrote[i];
        if (i != s && last > streams[s].after[i]) {
            fail("two streams use %zu bytes of device memory, and neither waits for the other (%s)",
                 m->n, kernel);
        }
    }
    (write ? m->wrote : m->read)[s] = streams[s].issued;
}
// the host, or a stream, waits for stream s up to an operation
inline void (*on_wait)(int stream, long number);                // set by nccl.h
RT inline void wait_for(long* after, int s, long number) {
    if (on_wait) { on_wait(s, number); }
    if (after[s] < number) { after[s] = number; }
    for (int i = 0; i < STREAMS; i++) {
        if (i != s && after[i] < streams[s].after[i]) { after[i] = streams[s].after[i]; }
    }
}
RT inline void arrive(int s) { // what was copied to the host on stream s is there
    for (size_t i = 0; i < arriving.n;) {
        Arriving a = arriving[i];
        if (a.stream != s) { i++; continue; }
        memcpy(a.dst, a.bytes, a.n);
        free(a.bytes);
        arriving.erase(i, 1);
    }
}

// ----------------------------------------------------------------------------
// devices: EMU_DEVICES, or one; this process uses the one that it has set
inline int device;
inline int devices() {
    const char* n = getenv("EMU_DEVICES");
    return n && atoi(n) > 0 ? atoi(n) : 1;
}

// ----------------------------------------------------------------------------
// errors. One of a call stays until somebody asks; one of a kernel stays for good,
// and every later call returns it.

struct Fault { const char *name, *where; cudaError_t error; bool sticky; };
// where it shows: at the first question to the driver, in starting, when a kernel is looked for (by
// its first launch, too), at a launch, at the next wait
inline const Fault faults[] = {
    { "insufficient", "count",  cudaErrorInsufficientDriver,          false },
    { "mismatch",     "count",  cudaErrorSystemDriverMismatch,        false },
    { "notready",     "count",  cudaErrorSystemNotReady,              false },
    { "compat",       "count",  cudaErrorCompatNotSupportedOnDevice,  false },
    { "stub",         "count",  cudaErrorStubLibrary,                 false },
    { "noinit",       "count",  cudaErrorInitializationError,         false },
    { "unknown",      "count",  cudaErrorUnknown,                     false },
    { "mps",          "start",  cudaErrorMpsConnectionFailed,         false },
    { "busy",         "start",  cudaErrorDevicesUnavailable,          false },
    { "locked",       "host",   cudaErrorMemoryAllocation,            false },
    { "noimage",      "image",  cudaErrorNoKernelImageForDevice,      false },
    { "nofunction",   "image",  cudaErrorInvalidDeviceFunction,       false },
    { "ptx",          "image",  cudaErrorUnsupportedPtxVersion,       false },
    { "resources",    "launch", cudaErrorLaunchOutOfResources,        false },
    { "shape",        "launch", cudaErrorInvalidConfiguration,        false },
    { "launch",       "launch", cudaErrorLaunchFailure,               true },
    { "timeout",      "wait",   cudaErrorLaunchTimeout,               true },
    { "nvlink",       "wait",   cudaErrorNvlinkUncorrectable,         true },
    { "async",        "wait",   cudaErrorIllegalAddress,              true },
    { "ecc",          "wait",   cudaErrorECCUncorrectable,            true },
};
inline cudaError_t last_error = cudaSuccess, sticky = cudaSuccess;
inline cudaError_t result(cudaError_t e) { // of a call of the runtime
    if (sticky == cudaSuccess && e != cudaSuccess) { last_error = e; }
    return sticky != cudaSuccess ? sticky : e;
}
inline cudaError_t fault_at(const char* where) {
    if (!strcmp(where, "launch") && fault("hang")) {
        if (alarm(0)) { alarm(1); }                            // time passes faster
        for (;;) { pause(); }
    }
    for (const Fault& f : faults) {
        if (!strcmp(f.where, where) && fault(f.name)) {
            if (f.sticky) { sticky = f.error; }
            return result(f.error);
        }
    }
    return result(cudaSuccess);
}

} // namespace emu
#ifdef EMU_COUNT
#include "emu_counts.h"
#endif
namespace emu {
// ----------------------------------------------------------------------------
// fibers: save the callee-saved registers, change the stack pointer, jump.
// The trailing pop-jmp is a return without confusing the processor's return predictor.
// Any other CPU than x86-64 uses ucontext (20 times slower).

#ifdef __x86_64__
extern "C" void emu_switch(void** save, void* to);
asm(".text\n.weak emu_switch\n.type emu_switch,@function\nemu_switch:\n"
    "push %rbp\npush %rbx\npush %r12\npush %r13\npush %r14\npush %r15\n"
    "mov %rsp,(%rdi)\nmov %rsi,%rsp\n"
    "pop %r15\npop %r14\npop %r13\npop %r12\npop %rbx\npop %rbp\npop %rcx\njmp *%rcx\n.size "
    "emu_switch,.-emu_switch\n");
RT inline void* fiber_new(char* top, void (*f)()) {
    void** s = (void**)top;
    // where f would return to, and where the first switch jumps to
    s[-1] = nullptr; s[-2] = (void*)f;
    memset(s - 8, 0, 6 * sizeof *s);
    return s - 8;
}
#else
} // namespace emu
#include <ucontext.h>
namespace emu {
RT inline void emu_switch(void** save, void* to) {
    ucontext_t me; *save = &me;
    swapcontext(&me, (ucontext_t*)to);
}
RT inline void* fiber_new(char* top, void (*f)()) {
    ucontext_t* u = (ucontext_t*)(((uintptr_t)top - sizeof(ucontext_t)) & ~uintptr_t(63));
    getcontext(u);
    u->uc_stack.ss_sp = top - settings.stack;
    u->uc_stack.ss_size = (char*)u - (top - settings.stack);
    u->uc_link = nullptr;
    makecontext(u, f, 0);
    return u;
}
#endif

RT inline uint64_t random() {
    uint64_t& x = settings.seed;
    x ^= x << 13;
    x ^= x >> 7;
    x ^= x << 17;
    return x;
}
RT inline Thread*& ready(unsigned i) { return ring[i & (ring.cap - 1)]; }
inline unsigned most;                     // PCT: no ready thread has a higher priority
RT inline void wake(Thread* t) {
    t->state = READY; ready(tail++) = t;
    if (t->priority > most) { most = t->priority; }
}
RT inline Thread* next_ready() {
    if (head == tail) { return nullptr; }
    if (settings.sched == FWD) { return ready(head++); }
    // REV. Most often the warp of PCT, too: its lanes have just been woken
    unsigned best = tail - 1;
    for (unsigned i = best; settings.sched == PCT && i != head && ready(best)->priority < most;) {
        i--;
        if (ready(i)->priority > ready(best)->priority) { best = i; }
    }
    Thread* t = ready(best);
    ready(best) = ready(--tail);
    most = t->priority;
    return t;
}
[[noreturn]] RT inline void thread_main();
RT inline void on_new_stack(void* fake) {
    ASAN(const void* p; size_t n; __sanitizer_finish_switch_fiber(fake, &p, &n);
         if (!host.stack) { host.stack = (char*)p; host.arg = (void*)n; })
}
RT inline void start_fiber(Thread* t) {
    if (stacks.n) {
        t->stack = stacks[--stacks.n];
        // thread_main did not return: its frame, and what it called last, are at the top
        ASAN(__asan_unpoison_memory_region(t->stack + settings.stack - PAGE, PAGE);)
    } else {
        char* s = (char*)mmap(nullptr, settings.stack + PAGE, PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (s == MAP_FAILED) { fail("no memory for a fiber's stack"); }
        mprotect(s, PAGE, PROT_NONE);
        t->stack = s + PAGE;
    }
    // the lanes' frames not all in the same lines of the cache; of ASan's one may end on this stack
    t->sp = fiber_new(t->stack + settings.stack - (EMU_ASAN ? 0 : 128 * t->lane), thread_main);
    t->state = READY;
}
RT inline void jump(Thread* to, bool dying = false) {
    Thread* me = now;
    if (to->state == NEW) { start_fiber(to); }
    now = to; threadIdx = to->id;
    ASAN(__sanitizer_start_switch_fiber(dying ? nullptr : &me->fake, to->stack,
                                        to == &host ? (size_t)to->arg : settings.stack);)
    TSAN(__tsan_switch_to_fiber(to->tsan, 1);)
    emu_switch(&me->sp, to->sp);
    on_new_stack(me->fake);
}
[[noreturn]] RT inline void deadlock() {
    const uint3 id = block->id;
    fprintf(stderr, "EMU ERROR: deadlock in kernel %s, block (%u,%u,%u):", kernel, id.x, id.y,
            id.z);
    Thread* t = block->threads;
    for (unsigned i = 0, j; i < block->n; i = j) { // one entry per run of threads at the same place
        for (j = i; j < block->n && t[j].state == t[i].state && t[j].line == t[i].line; j++) {}
        if (t[i].state == DONE) { fprintf(stderr, " [%u-%u exited]", i, j - 1); }
        else { fprintf(stderr, " [%u-%u at %s %s:%d]", i, j - 1, t[i].what, t[i].file, t[i].line); }
    }
    fprintf(stderr, "\n"); fflush(stderr); abort();
}
RT inline void wait_here(const char* what, const char* file, int line) {
    Thread* me = now;
    me->state = WAITING; me->what = what; me->file = file; me->line = line;
    Thread* t = next_ready();
    if (!t) { deadlock(); }
    if (t != me) { jump(t); }
}

// ----------------------------------------------------------------------------
// __syncthreads

RT inline void draw_priorities() {
    most = ~0u;
    for (unsigned i = 0; i < block->n; i++) {
        block->threads[i].priority = i % 32 ? block->threads[i - 1].priority
                                            : unsigned(random() >> 33);
    }
}
RT inline void barrier(const char* file, int line) {
    if (now == &host) { fail("__syncthreads outside a kernel"); }
    Barrier& b = block->bar;
    if (block->alive != block->n) {
        fail("__syncthreads at %s:%d after a thread of the block has exited", file, line);
    }
    if (b.arrived == 0) { b.file = file; b.line = line; }
    else if (b.line != line || (b.file != file && strcmp(b.file, file))) {
        fail("divergent barrier: this thread is at %s:%d, others wait at %s:%d", file, line, b.file,
             b.line);
    }
    TSAN(__tsan_release(&b);)
    if (++b.arrived == block->n) {
        b.arrived = 0;
        block->barriers++;
        if (settings.sched == PCT) { draw_priorities(); }
        for (Thread* t = block->threads; t < block->threads + block->n; t++) {
            if (t != now) { wake(t); }
        }
        // the last need not go first
        if (settings.sched == PCT) { wake(now); wait_here("__syncthreads", file, line); }
    } else { wait_here("__syncthreads", file, line); }
    TSAN(__tsan_acquire(&b);)
}

// ----------------------------------------------------------------------------
// warp operations: each lane leaves a pointer to its operands and waits;
// the last to arrive performs the operation

RT inline void warp_op(uint32_t mask, WarpFn fn, void* arg, const char* what, const char* file,
                       int line) {
    if (now == &host) { fail("%s outside a kernel", what); }
    Thread* me = now; Thread* lanes = me - me->lane;
    Warp& w = block->warps[(me - block->threads) / 32];
    if (!(mask >> me->lane & 1)) {
        fail("%s at %s:%d: the calling lane is not in mask %08x", what, file, line, mask);
    }
    if (mask & ~w.exist) {
        fail("%s at %s:%d: mask %08x names lanes that do not exist", what, file, line, mask);
    }
    if (mask & w.exited) {
        fail("%s at %s:%d: lanes %08x of the mask have exited", what, file, line, mask & w.exited);
    }
    Pending* p = nullptr;
    for (int i = 0; i < w.n && !p; i++) {
        Pending& x = w.ops[i];
        // another half of the warp, or a later round
        if (x.mask != mask || x.arrived >> me->lane & 1) { continue; }
        if (x.fn != fn || x.line != line || (x.file != file && strcmp(x.file, file))) {
            fail("divergent warp operation: this lane is at %s %s:%d, lanes %08x are at %s %s:%d",
                 what, file, line, x.arrived, x.what, x.file, x.line);
        }
        p = &x;
    }
    if (!p) { p = &w.ops[w.n++]; *p = Pending{mask, 0, fn, what, file, line}; }
    p->arrived |= 1u << me->lane;
    me->arg = arg;
    if (p->arrived != mask) { wait_here(what, file, line); return; }
    *p = w.ops[--w.n];
    if (fn) { fn(lanes, mask); }
    for (int l = 0; l < 32; l++) { if (mask >> l & 1 && lanes + l != me) { wake(lanes + l); } }
}
template <class T> struct ShuffleArg { T value; int from; T out; };
template <class T> RT void shuffle_fn(Thread* t, uint32_t mask) {
    for (int l = 0; l < 32; l++) {
        if (!(mask >> l & 1)) { continue; }
        auto* a = (ShuffleArg<T>*)t[l].arg;
        if (mask >> a->from & 1) { a->out = ((ShuffleArg<T>*)t[a->from].arg)->value; }
        else { memset((void*)&a->out, 0xFF, sizeof(T)); }  // the source takes no part: undefined
    }
}
template <class T>
RT T shuffle(uint32_t mask, T v, int from, const char* what, const char* file, int line) {
    ShuffleArg<T> a{v, from, v};
    warp_op(mask, shuffle_fn<T>, &a, what, file, line);
    return a.out;
}
struct BallotArg { bool vote; uint32_t out; };
RT inline void ballot_fn(Thread* t, uint32_t mask) {
    uint32_t all = 0;
    for (int l = 0; l < 32; l++) {
        if (mask >> l & 1 && ((BallotArg*)t[l].arg)->vote) { all |= 1u << l; }
    }
    for (int l = 0; l < 32; l++) { if (mask >> l & 1) { ((BallotArg*)t[l].arg)->out = all; } }
}

// ----------------------------------------------------------------------------
// mma.m16n8k16 and ldmatrix by the index formulas of the PTX ISA. Lane l holds,
// with g = l / 4 and t = 2 (l % 4): A(16x16): rows g, g + 8, columns t, t+1, t+8, t+9; B(16x8):
// rows t, t+1, t+8, t+9, column g; C(16x8): rows g, g + 8.

RT inline float widen(uint32_t h) { uint32_t u = h << 16; float f; memcpy(&f, &u, 4); return f; }
struct MmaArg { float* c; const uint32_t *a, *b; };
RT inline void mma_fn(Thread* lanes, uint32_t) {
    typedef float Row __attribute__((vector_size(32)));        // 8 floats
    float A[16][16]; Row B[16], C[16];
    counts.mma++;
    for (int l = 0; l < 32; l++) {
        MmaArg* x = (MmaArg*)lanes[l].arg;
        int g = l / 4, t = l % 4 * 2;
        for (int i = 0; i < 4; i++) {
            int row = g + i % 2 * 8, col = t + i / 2 * 8;
            A[row][col] = widen(x->a[i] & 0xFFFF); A[row][col + 1] = widen(x->a[i] >> 16);
        }
        for (int i = 0; i < 2; i++) {
            B[t + i * 8][g] = widen(x->b[i] & 0xFFFF); B[t + i * 8 + 1][g] = widen(x->b[i] >> 16);
        }
        C[g][t] = x->c[0]; C[g][t + 1] = x->c[1]; C[g + 8][t] = x->c[2]; C[g + 8][t + 1] = x->c[3];
    }
    for (int i = 0; i < 16; i++) {
        Row sum = {};
        for (int k = 0; k < 16; k++) { sum += A[i][k] * B[k]; }
        C[i] += sum;
    }
    for (int l = 0; l < 32; l++) {
        float* c = ((MmaArg*)lanes[l].arg)->c;
        int g = l / 4, t = l % 4 * 2;
        c[0] = C[g][t]; c[1] = C[g][t + 1]; c[2] = C[g + 8][t]; c[3] = C[g + 8][t + 1];
    }
}
// four 8x8 matrices of 16-bit values; lane 8m + i gives the address of row i of matrix m
struct LdmatrixArg { uint32_t* r; const void* row; const char* file; int line; };
template <bool TRANS> RT void ldmatrix_fn(Thread* lanes, uint32_t) {
    counts.ldmatrix++;
    for (int m = 0; m < 4; m++) {
        const uint16_t* row[8];
        for (int i = 0; i < 8; i++) {
            auto* a = (LdmatrixArg*)lanes[m * 8 + i].arg;
            row[i] = (const uint16_t*)a->row;
            if ((uintptr_t)a->row % 16 || !is_shared(a->row, 16)) {
                fail("ldmatrix %s:%d: the row address of lane %d is not in shared memory, or not "
                     "16-byte aligned",
                     a->file, a->line, m * 8 + i);
            }
            TSAN(__tsan_read_range((void*)a->row, 16);)
            // eight rows, eight groups of four banks: two rows in one group cost a cycle
            for (int j = 0; j < i; j++) {
                if (((uintptr_t)row[j] ^ (uintptr_t)row[i]) % 128 < 16 && row[j] != row[i]) {
                    counts.conflicts++;
                    break;
                }
            }
        }
        for (int l = 0; l < 32; l++) {
            int g = l / 4, t = l % 4 * 2;
            uint32_t lo = TRANS ? row[t][g] : row[g][t], hi = TRANS ? row[t + 1][g] : row[g][t + 1];
            ((LdmatrixArg*)lanes[l].arg)->r[m] = lo | hi << 16;
        }
    }
}

// what x86 reads at any address, and a GPU at multiples of its size alone
RT inline void check_aligned(const void* p, size_t n) {
    if ((uintptr_t)p % n) { fail("%p is not %zu-byte aligned, as a vector has to be", p, n); }
}

} // namespace emu
#include "emu_wgmma.h"
namespace emu {
// ----------------------------------------------------------------------------
// cp.async: n = 4, 8 or 16 bytes, of which the first `from` are read and the others zeroed

RT inline void cp_async(void* dst, const void* src, unsigned from, const char* file, int line,
                        unsigned n = 16) {
    if (((uintptr_t)dst | (uintptr_t)src) % n) {
        fail("cp.async %s:%d: not %u-byte aligned", file, line, n);
    }
    if (!is_shared(dst, n)) {
        fail("cp.async %s:%d: the destination is not in shared memory", file, line);
    }
    if (from && !is_device(src)) {
        fail("cp.async %s:%d: the source is not in device memory", file, line);
    }
    TSAN(__tsan_write_range(dst, n);)
    COUNT(if (from) { count_access(src, from, false, nullptr); })
    memset(dst, 0xFF, n);
    written(dst, n, COPYING);
    now->copies.push(Copy{dst, src, n, from});
}
RT inline void cp_commit() { now->groups.push(now->copies.n); }
RT inline void cp_wait(size_t keep) { // all but the newest `keep` groups arrive
    auto& g = now->groups;
    if (g.n <= keep) { return; }
    size_t groups = g.n - keep, end = g[groups - 1];
    for (size_t i = 0; i < end; i++) {
        Copy c = now->copies[i];
        TSAN(__tsan_read_range((void*)c.src, c.from); __tsan_write_range(c.dst, c.n);)
        memcpy(c.dst, c.src, c.from);
        memset((char*)c.dst + c.from, 0, c.n - c.from);
        written(c.dst, c.n, WRITTEN);
    }
    now->copies.erase(0, end); g.erase(0, groups);
    for (size_t& x : g) { x -= end; }
}

// ----------------------------------------------------------------------------
// threads, blocks, launch

RT inline void thread_end() {
    Thread* t = now; Warp& w = block->warps[(t - block->threads) / 32];
    if (t->copies.n) { fail("thread exits with %zu cp.async copies not waited for", t->copies.n); }
    products_end(t);
    t->groups.n = 0; t->unfenced.n = t->held.n = 0; t->state = DONE; block->alive--; w.exited |= 1u << t->lane;
    for (Pending* p = w.ops; p < w.ops + w.n; p++) {
        if (p->mask >> t->lane & 1) {
            fail("thread exits while others wait at %s %s:%d", p->what, p->file, p->line);
        }
    }
    Barrier& b = block->bar;
    if (b.arrived) {
        fail("thread exits while %u others wait at __syncthreads %s:%d", b.arrived, b.file, b.line);
    }
    TSAN(__tsan_release(&launch_done);)
}
[[noreturn]] RT inline void thread_main() {
    on_new_stack(nullptr);
    TSAN(__tsan_acquire(&block_began);)
    for (;;) {
        now->state = READY;
        body(body_args);
        thread_end();
        Thread *me = now, *t = block->alive ? next_ready() : &host;
        if (!t) { deadlock(); }
        // a kernel without barriers needs one stack and no switch
        if (t->state == NEW && !EMU_TSAN && !EMU_ASAN) {
            t->stack = me->stack; me->stack = nullptr;
            now = t; threadIdx = t->id;
            continue;
        }
        if (!EMU_TSAN) { stacks.push(me->stack); me->stack = nullptr; }
        jump(t, true);
    }
}
RT inline Block* block_new(unsigned n, dim3 d, size_t smem) {
    Block* b = new Block;
    b->n = n; b->threads = new Thread[n]; b->warps = new Warp[(n + 31) / 32];
    b->dynamic = guarded(smem); b->statics = guarded(STATIC_BYTES);
    b->chunks = new Written[smem / 16 + 1];
    for (unsigned i = 0; i < n; i++) {
        Thread& t = b->threads[i];
        t.block = b; t.id = uint3{i % d.x, i / d.x % d.y, i / d.x / d.y}; t.lane = i % 32;
        b->warps[i / 32].exist |= 1u << i % 32;
    }
    return b;
}
RT inline void block_free(Block* b) {
    for (Thread* t = b->threads; t < b->threads + b->n; t++) {
        // the host has acquired all that stood on it
        TSAN(idle.push(t->tsan); stacks.push(t->stack);)
        free((void*)t->copies.p); free((void*)t->groups.p); free((void*)t->unfenced.p); free((void*)t->held.p);
    }
    delete[] b->chunks; delete[] b->products; delete[] b->warpgroups;
    unmap(&b->dynamic); unmap(&b->statics);
    delete[] b->threads; delete[] b->warps; delete b;
}
RT inline void block_run(uint3 id) {
    Block* b = block;
    b->id = blockIdx = id; b->alive = b->n; b->bar = Barrier{};
    memset(b->dynamic.p, 0xFF, b->dynamic.n); memset(b->statics.p, 0xFF, b->statics_used);
    b->statics_used = 0; b->n_vars = 0;
    memset((void*)b->chunks, 0, (b->dynamic.n / 16 + 1) * sizeof(Written));
    memset(b->named, 0, sizeof b->named);
    delete[] b->products; delete[] b->warpgroups;
    b->products = new WarpProducts[(b->n + 31) / 32];
    b->warpgroups = new Warpgroup[(b->n + 127) / 128];
    if (settings.sched == PCT) { draw_priorities(); }
    COUNT(count_block_begin();)
    for (unsigned i = 0; i < b->n; i++) {
        Thread& t = b->threads[i];
        t.state = NEW; b->warps[i / 32].exited = 0;
        // made here, by the host: a fiber inherits what its creator has seen,
        // and must have seen no other thread's work. An idle one has seen what the host has:
        // the end of the launch that it was in
        TSAN(char name[80];
             snprintf(name, sizeof name, "block (%u,%u,%u) thread %u", id.x, id.y, id.z, i);
             t.tsan = idle.n ? idle[--idle.n] : __tsan_create_fiber(0);
             __tsan_set_fiber_name(t.tsan, name); start_fiber(&t);)
        ready(tail++) = &t;
    }
    TSAN(__tsan_release(&block_began);)
    jump(next_ready());
    for (Static* v = b->vars; v < b->vars + b->n_vars; v++) {
        for (int i = 0; i < 16; i++) {
            if (v->p[v->n + i] != CANARY) {
                fail("kernel %s wrote past the end of a static shared variable", kernel);
            }
        }
    }
    products_check(b);
    counts.blocks++;
    COUNT(count_block_end();)
}
// what a block may ask for: on sm_86 and sm_89, the least among those we run on, or on sm_90
enum { SMEM_PLAIN = 48 << 10 };
RT inline size_t smem_most() { return (settings.hopper ? 227 : 99) << 10; }
// Of a kernel: what it has asked for by cudaFuncSetAttribute, and how much is static. A GPU knows
// the second from the machine code; here it is all that any launch has come to so far
struct Shared { const void* kernel; int asked; size_t fixed; Array<int> ids; };
inline Array<Shared> shared;
inline size_t running;                                          // its place there
RT inline size_t shared_of(const void* f) {
    for (size_t i = 0; i < shared.n; i++) { if (shared[i].kernel == f) { return i; } }
    shared.push(Shared{f, -1, 0, {}});
    return shared.n - 1;
}
// 48 KiB are for both; of one that has asked, only what is dynamic counts
RT inline void check_shared(size_t dynamic) {
    const Shared& x = shared[running];
    size_t most = x.asked < 0 ? (size_t)SMEM_PLAIN : x.asked + x.fixed;
    if (most > smem_most()) { most = smem_most(); }
    if (dynamic + x.fixed > most) {
        fail("kernel %s wants %zu bytes of shared memory, %zu of them static, it may use %zu: ask "
             "by cudaFuncSetAttribute",
             kernel, dynamic + x.fixed, x.fixed, most);
    }
}
RT inline void count_static(int id, size_t bytes) {
    Shared& x = shared[running];
    for (int known : x.ids) { if (known == id) { return; } }
    x.ids.push(id);
    x.fixed += bytes;
    check_shared(block->dynamic.n);
}
RT inline void run_grid(dim3 grid, dim3 threads, size_t smem) {
    init();
    check_shared(smem);
    unsigned n = threads.x * threads.y * threads.z;
    size_t total = size_t(grid.x) * grid.y * grid.z;
    if (now != &host) { fail("launch of %s inside kernel %s", kernel, kernel); }
    if (!total || grid.y > 65535 || grid.z > 65535 || grid.x > 2147483647u || !n || n > 1024 ||
        threads.z > 64) {
        fail("kernel %s: bad launch, grid (%u,%u,%u), block (%u,%u,%u)", kernel, grid.x, grid.y,
             grid.z, threads.x, threads.y, threads.z);
    }
    blockDim = threads; gridDim = grid; counts.launches++;
    while (ring.cap < n + 1) { ring.reserve(ring.cap ? 2 * ring.cap : 64); }
    head = tail = 0;
    Access access;
    COUNT(count_launch(kernel);)
    for (size_t i = 0; i < total; i++) {
        size_t k = settings.sched == REV ? total - 1 - i : i;
        if (i == 0 || EMU_TSAN) { block = block_new(n, threads, smem); }
        block_run(uint3{ unsigned(k % grid.x), unsigned(k / grid.x % grid.y),
                         unsigned(k / grid.x / grid.y) });
        if (EMU_TSAN || i == total - 1) { finished.push(block); }
    }
    TSAN(__tsan_acquire(&launch_done);)
    for (Block* b : finished) { block_free(b); }
    finished.n = 0; block = nullptr;
    COUNT(count_launch_end();)
    for (auto& m : memory) { check_canary(m); }
}
template <class T> void check_arg(const T& v, cudaStream_t stream) {
    if constexpr (std::is_pointer_v<T>) {
        const void* p = (const void*)v;
        if (p && !is_device(p)) {
            fail("kernel %s: argument %p is not a device pointer", kernel, p);
        }
        touch(p, !std::is_const_v<std::remove_pointer_t<T>>, stream);
    } else if constexpr (std::is_class_v<T>) { // pointers in a struct
        const char* word = (const char*)&v;
        for (size_t i = 0; i + sizeof(void*) <= sizeof v; i += sizeof(void*)) {
            const void* p; memcpy(&p, word + i, sizeof p);
            touch(p, true, stream);
        }
    }
}
#ifdef PTX_RUN // every kernel once more, as nvcc compiled it
} // namespace emu
#include "../ptx/hook.h"
namespace emu {
#endif
template <class... P, class... A>
void launch(const char* name, void (*f)(P...), dim3 grid, dim3 threads, size_t smem,
            cudaStream_t stream, A... a) {
    if (keep(stream, [=] { launch(name, f, grid, threads, smem, stream, a...); })) { return; }
    struct Call { void (*f)(P...); std::tuple<std::remove_cv_t<P>...> args; };
    Call call{f, {static_cast<P>(a)...}};
    kernel = name;
    if (fault_at("image") != cudaSuccess || fault_at("launch") != cudaSuccess) { return; }
    running = shared_of((const void*)f);
    stream_next(stream);
    std::apply([=](auto&... v) { (check_arg(v, stream), ...); }, call.args);
    body = [](void* c) { std::apply(((Call*)c)->f, ((Call*)c)->args); };
    body_args = &call;
#ifdef PTX_RUN
    run_twice((const void*)f, call.args, grid, threads, smem);
#else
    run_grid(grid, threads, smem);
#endif
}
// static shared memory: one object per block and per place in the source (the lambda's type
// is the key, so that every instance of a template has its own), with canaries after it. It stands
// at its own alignment and at no larger one, as the compiler may place it
inline int static_ids;
template <class T, class Key> RT T& static_smem(Key) {
    static const int id = static_ids++;
    for (Static* v = block->vars; v < block->vars + block->n_vars; v++) {
        if (v->id == id) { return *(T*)v->p; }
    }
    const size_t twice = 2 * alignof(T);
    const size_t at = (block->statics_used + twice - 1) / twice * twice + alignof(T);
    const size_t end = at + sizeof(T) + 16;
    if (block->n_vars == MAX_STATIC || end > STATIC_BYTES) {
        fail("over %d SMEM variables or 48 KiB", MAX_STATIC);
    }
    count_static(id, sizeof(T));
    // 0xFF already, by the host: were it filled here, a thread would write what others then write
    char* p = block->statics.p + at;
    memset(p + sizeof(T), CANARY, 16);
    block->vars[block->n_vars++] = Static{id, p, sizeof(T)};
    block->statics_used = end;
    return *(T*)p;
}
} // namespace emu

// ----------------------------------------------------------------------------
// what kernels call

inline void __syncthreads(EMU_HERE) { emu::barrier(file, line); }
inline void bar_sync(int id, int n, EMU_HERE) { emu::named_barrier(id, n, true, file, line); }
inline void bar_arrive(int id, int n, EMU_HERE) { emu::named_barrier(id, n, false, file, line); }
inline void __syncwarp(unsigned mask = ~0u, EMU_HERE) {
    TSAN(void* w = emu::block->warps + (emu::now - emu::block->threads) / 32; __tsan_release(w);)
    emu::warp_op(mask, nullptr, nullptr, "__syncwarp", file, line);
    TSAN(__tsan_acquire(w);)
}
template <class T> T __shfl_sync(unsigned mask, T v, int from, EMU_HERE) {
    return emu::shuffle(mask, v, from % 32, "__shfl_sync", file, line);
}
template <class T> T __shfl_xor_sync(unsigned mask, T v, int x, EMU_HERE) {
    return emu::shuffle(mask, v, int(emu::now->lane) ^ x, "__shfl_xor_sync", file, line);
}
inline unsigned __ballot_sync(unsigned mask, int vote, EMU_HERE) {
    emu::BallotArg a{vote != 0, 0};
    emu::warp_op(mask, emu::ballot_fn, &a, "__ballot_sync", file, line);
    return a.out;
}
inline float __fmul_rn(float a, float b) { return a * b; }
inline float __uint_as_float(unsigned u) { float f; memcpy(&f, &u, 4); return f; }
// of two floats, one of them NaN, CUDA's return the other
template <class A, class B> constexpr auto min(A a, B b) {
    using C = std::common_type_t<A, B>;
    if (C(a) != C(a)) { return C(b); }
    return C(b) < C(a) ? C(b) : C(a);
}
template <class A, class B> constexpr auto max(A a, B b) {
    using C = std::common_type_t<A, B>;
    if (C(a) != C(a)) { return C(b); }
    return C(b) > C(a) ? C(b) : C(a);
}

// ----------------------------------------------------------------------------
// the runtime, as far as device.cuh uses it

extern "C" {
inline cudaError_t cudaGetDeviceCount(int* n) {
    emu::init();
    *n = emu::fault("nogpu") ? 0 : emu::devices();
    const cudaError_t e = emu::fault_at("count");
    return *n ? e : emu::result(cudaErrorNoDevice);
}
inline cudaError_t cudaDriverGetVersion(int* v) {
    emu::init();
    *v = emu::fault("driver") ? CUDART_VERSION - 1000 : CUDART_VERSION;
    return cudaSuccess;
}
inline cudaError_t cudaRuntimeGetVersion(int* v) { *v = CUDART_VERSION; return cudaSuccess; }
inline cudaError_t cudaSetDevice(int i) {
    if (i < 0 || i >= emu::devices()) { return emu::result(cudaErrorInvalidDevice); }
    emu::device = i;
    return emu::fault_at("start");
}
inline cudaError_t cudaDeviceGetAttribute(int* v, cudaDeviceAttr a, int) {
    const int version = emu::fault("old") ? 75 : emu::settings.hopper ? 90 : 86;
    *v = a == cudaDevAttrComputeCapabilityMajor ? version / 10
       : a == cudaDevAttrComputeCapabilityMinor ? version % 10
       : a == cudaDevAttrMaxSharedMemoryPerBlockOptin ? (int)emu::smem_most()
       : a == cudaDevAttrMultiProcessorCount ? 4 : 0;
    return emu::result(cudaSuccess);
}
inline cudaError_t cudaGetDeviceProperties(cudaDeviceProp* p, int) {
    memset((void*)p, 0, sizeof *p);
    snprintf(p->name, sizeof p->name, "emulated");
    return emu::result(cudaSuccess);
}
inline cudaError_t cudaMemGetInfo(size_t* left, size_t* total) {
    *total = emu::fault("oom") ? strtoull(emu::settings.fault + 4, nullptr, 10) << 20
                               : size_t(1) << 34;
    size_t used = 0;
    for (auto& m : emu::memory) { used += m.n; }
    *left = used < *total ? *total - used : 0;
    return emu::result(cudaSuccess);
}
inline cudaError_t cudaMalloc(void** p, size_t n) {
    emu::init();
    emu::not_captured("cudaMalloc");
    if (emu::sticky != cudaSuccess) { return emu::sticky; }
    size_t left, total; cudaMemGetInfo(&left, &total);
    if (n > left) { return emu::result(cudaErrorMemoryAllocation); }
    emu::memory.push(emu::guarded(n));
    const emu::Memory* made = &emu::memory[emu::memory.n - 1];
    emu::Access access(made);
    *p = made->p;
    return cudaSuccess;
}
// the operations up to `after` of each stream are done: nothing under way may use what is freed
inline cudaError_t emu_free(void* p, const long* after) {
    emu::not_captured("cudaFree");
    for (size_t i = 0; i < emu::memory.n; i++) {
        emu::Memory& m = emu::memory[i];
        if (m.p != p) { continue; }
        for (int s = 0; s < emu::STREAMS; s++) {
            if (m.wrote[s] > after[s] || m.read[s] > after[s]) {
                emu::fail("cudaFree of memory that a stream may still be using");
            }
        }
        { emu::Access access(&m); emu::check_canary(m); }
        emu::retire(&m);
        emu::memory.erase(i, 1);
        return emu::result(cudaSuccess);
    }
    if (p) { emu::fail("cudaFree of a pointer that cudaMalloc did not return"); }
    return emu::result(cudaSuccess);
}
inline cudaError_t cudaFree(void* p) { return emu_free(p, emu::host_after); }
inline cudaError_t cudaFreeAsync(void* p, cudaStream_t stream) { // when the stream comes to it
    long after[emu::STREAMS];
    const int s = emu::stream_next(stream);
    memcpy(after, emu::streams[s].after, sizeof after);
    after[s] = emu::streams[s].issued;
    return emu_free(p, after);
}
inline cudaError_t cudaMemcpyAsync(void* d, const void* s, size_t n, cudaMemcpyKind kind,
                                   cudaStream_t stream) {
    if (omp_in_parallel()) { emu::fail("cudaMemcpy: in a parallel region"); }
    if (kind != cudaMemcpyDeviceToDevice) { emu::not_captured("a copy from or to the host"); }
    if (emu::keep(stream, [=] { cudaMemcpyAsync(d, s, n, kind, stream); })) { return cudaSuccess; }
    bool to = kind != cudaMemcpyDeviceToHost;
    bool from = kind != cudaMemcpyHostToDevice;
    if (emu::sticky != cudaSuccess) { return emu::sticky; }
    if (n && (emu::is_device(d) != to || emu::is_device(s) != from)) {
        emu::fail("cudaMemcpy: direction %d does not fit its pointers", int(kind));
    }
    const bool is_locked = (char*)s >= emu::locked.p &&
                           (char*)s + n <= emu::locked.p + emu::locked.n;
    if (n && kind == cudaMemcpyHostToDevice && !is_locked) {
        emu::fail("cudaMemcpy: the host waits for pageable memory");
    }
    const int on = emu::stream_next(stream);
    emu::touch(s, false, stream);
    emu::touch(d, true, stream);
    emu::Access access(kind == cudaMemcpyDeviceToDevice ? nullptr : emu::device_memory(to ? d : s));
    if (to) { memmove(d, s, n); }
    else if (n) { // it arrives when the host waits; until then it is NaN
        emu::arriving.push(emu::Arriving{on, d, (char*)malloc(n), n});
        memcpy(emu::arriving[emu::arriving.n - 1].bytes, s, n);
        memset(d, 0xFF, n);
    }
    if (kind == cudaMemcpyHostToDevice) { emu::locked_take(s, n); }
    return cudaSuccess;
}
inline cudaError_t cudaHostAlloc(void** p, size_t n, unsigned) {
    if (emu::fault_at("host") != cudaSuccess) { return emu::last_error; }
    if (emu::locked.p) { emu::fail("cudaHostAlloc: one allocation is emulated"); }
    n = emu::page_up(n);
    *p = mmap(nullptr, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    emu::locked.p = (char*)*p; emu::locked.n = n;
    for (size_t i = 0; i < n / emu::PAGE; i++) { emu::locked.busy.push(0); }
    return cudaSuccess;
}
inline cudaError_t cudaEventCreateWithFlags(cudaEvent_t* e, unsigned flags) {
    *e = (cudaEvent_t)new emu::Event{0, 0, 0, (flags & cudaEventDisableTiming) != 0, 0, false};
    return emu::result(cudaSuccess);
}
inline cudaError_t cudaEventDestroy(cudaEvent_t e) {
    delete (emu::Event*)e;
    return emu::result(cudaSuccess);
}
inline cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t from, cudaEvent_t to) {
    const emu::Event &a = *(emu::Event*)from, &b = *(emu::Event*)to;
    if (a.untimed || b.untimed) { return emu::result(cudaErrorInvalidResourceHandle); }
    *ms = (float)(b.ms - a.ms);
    return emu::result(cudaSuccess);
}
inline cudaError_t cudaEventRecord(cudaEvent_t e, cudaStream_t stream) {
    emu::not_captured("cudaEventRecord");
    const int s = emu::stream_of(stream);
    timespec now; clock_gettime(CLOCK_MONOTONIC, &now);
    *(emu::Event*)e = emu::Event{ s, emu::streams[s].issued, emu::locked.copies,
                                  ((emu::Event*)e)->untimed,
                                  now.tv_sec * 1e3 + now.tv_nsec * 1e-6, false };
    return emu::result(cudaSuccess);
}
inline cudaError_t cudaEventSynchronize(cudaEvent_t event) {
    emu::not_captured("cudaEventSynchronize");
    const emu::Event& e = *(emu::Event*)event;
    emu::counts.waits += e.copies > emu::locked.known;
    emu::locked_free(e.copies);
    emu::wait_for(emu::host_after, e.stream, e.number);
    return emu::fault_at("wait");
}
// the first question comes too early, unless the host has waited; the second finds it done
inline cudaError_t cudaEventQuery(cudaEvent_t event) {
    emu::Event& e = *(emu::Event*)event;
    const bool early = !e.asked && e.number > emu::host_after[e.stream];
    e.asked = true;
    if (early) { return emu::result(cudaErrorNotReady); }
    emu::locked_free(e.copies);
    emu::wait_for(emu::host_after, e.stream, e.number);
    return emu::fault_at("wait");
}
inline cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
    const emu::Event& e = *(emu::Event*)event;
    emu::wait_for(emu::streams[emu::stream_of(stream)].after, e.stream, e.number);
    return emu::result(cudaSuccess);
}
inline cudaError_t cudaMemsetAsync(void* p, int v, size_t n, cudaStream_t stream) {
    if (emu::keep(stream, [=] { cudaMemsetAsync(p, v, n, stream); })) { return cudaSuccess; }
    if (emu::sticky != cudaSuccess) { return emu::sticky; }
    if (n && !emu::is_device(p)) { emu::fail("cudaMemset of a host pointer"); }
    emu::stream_next(stream);
    emu::touch(p, true, stream);
    emu::Access access(emu::device_memory(p));
    memset(p, v, n);
    return cudaSuccess;
}
inline cudaError_t cudaStreamCreateWithFlags(cudaStream_t* s, unsigned flags) {
    if (flags != cudaStreamNonBlocking || emu::n_streams == emu::STREAMS) {
        emu::fail("streams: up to %d that do not block are emulated", emu::STREAMS - 1);
    }
    *s = (cudaStream_t)&emu::streams[emu::n_streams++];
    return emu::result(cudaSuccess);
}
inline cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode) {
    emu::not_captured("cudaStreamBeginCapture");
    if (!stream) { emu::fail("cudaStreamBeginCapture of the default stream"); }
    emu::captured = new emu::Operations();
    emu::captured_stream = stream;
    return emu::result(cudaSuccess);
}
inline cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
    if (!emu::captured || stream != emu::captured_stream) {
        emu::fail("cudaStreamEndCapture of a stream that is not captured");
    }
    *graph = (cudaGraph_t)emu::captured;
    emu::captured = nullptr;
    return emu::result(cudaSuccess);
}
inline cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t* exec, cudaGraph_t graph,
                                                 unsigned long long) {
    *exec = (cudaGraphExec_t)new emu::Operations(*(emu::Operations*)graph);
    return emu::result(cudaSuccess);
}
inline cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t) {
    emu::not_captured("cudaGraphLaunch");
    emu::counts.started++;
    emu::in_graph = true;
    for (auto& operation : *(emu::Operations*)exec) { operation(); }
    emu::in_graph = false;
    return emu::result(cudaSuccess);
}
inline cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
    delete (emu::Operations*)graph;
    return emu::result(cudaSuccess);
}
inline cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) {
    delete (emu::Operations*)exec;
    return emu::result(cudaSuccess);
}
inline cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
    emu::not_captured("cudaStreamSynchronize");
    const int s = emu::stream_of(stream);
    emu::counts.waits++;
    emu::locked_free(emu::locked.copies);
    emu::wait_for(emu::host_after, s, emu::streams[s].issued);
    { emu::Access access; emu::arrive(s); }
    return emu::fault_at("wait");
}
inline cudaError_t cudaFuncSetAttribute(const void* f, cudaFuncAttribute a, int v) {
    if (a != cudaFuncAttributeMaxDynamicSharedMemorySize) {
        emu::fail("cudaFuncSetAttribute: attribute %d is not emulated", int(a));
    }
    emu::Shared& x = emu::shared[emu::shared_of(f)];
    if (v < 0 || v + x.fixed > emu::smem_most()) { return emu::result(cudaErrorInvalidValue); }
    x.asked = v;
    return emu::result(cudaSuccess);
}
inline cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* a, const void* f) {
    memset((void*)a, 0, sizeof *a);
    a->sharedSizeBytes = emu::shared[emu::shared_of(f)].fixed;
    return emu::fault_at("image");
}
inline cudaError_t cudaPeekAtLastError() {
    return emu::sticky != cudaSuccess ? emu::sticky : emu::last_error;
}
inline cudaError_t cudaGetLastError() {
    const cudaError_t e = cudaPeekAtLastError();
    emu::last_error = cudaSuccess;
    return e;
}
inline const char* cudaGetErrorString(cudaError_t e) {
    static char text[64];
    if (e == cudaErrorMemoryAllocation) { return "out of memory"; }
    snprintf(text, sizeof text, "an emulated error %d", int(e));
    return text;
}
}
#pragma GCC pop_options
#endif // EMU_H
