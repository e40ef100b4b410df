/*
dev/emulator/selftest_wgmma.cu -- checks the wrappers of wgmma.cuh against loops over the CPU's
numbers, and that the emulator refuses what would go wrong on Hopper. The first half also builds for
a GPU, nvcc -arch=sm_90a: one tile of each head dimension, both orders. As PTX (-DPTX_SHRUNK, and
-DPTX_RUN in the emulator) it asks the same of the interpreter: test/gpu/test_ptx.sh.
*/
#include "../../cuda/rows.cuh"
#include "../../cuda/hopper/wgmma.cuh"
#ifdef EMU
#include <functional>
#include <sys/wait.h>
#endif
using namespace cuda;

static int passed, failed;
static void check(const std::string& name, bool ok) {
    ok ? passed++ : failed++;
    if (!ok) { printf("FAIL %s\n", name.c_str()); }
}

// small integers: exact in bf16, and so are their sums in fp32
HD constexpr int small(int row, int column) { return (row * 7 + column * 5 + row * column) % 13 - 6; }

static float* out;
static std::vector<float> got;
static std::vector<bf16> filled(int rows, int columns) {
    std::vector<bf16> x;
    for (int i = 0; i < rows * columns; i++) { x.push_back(bf16((float)small(i / columns, i % columns))); }
    return x;
}

// Loads q (128, HS) and k (64, HS). products: first q k^T, (128, 64), then q k^T k, (128, HS), with
// q k^T made small enough to be rounded without loss.
enum { KEYS = 64, ROWS = 128 };
template <int HS> __global__ void products_kernel(float* out, const bf16* q, const bf16* k) {
#ifdef WITH_WGMMA
    bf16* sq = panels_begin();
    bf16* sk = sq + ROWS * HS;
    Panels<HS, ROWS>::load(sq, q, HS, 0, ROWS, 256, threadIdx.x);
    Panels<HS, KEYS>::load(sk, k, HS, 0, KEYS, 256, threadIdx.x);
    cp_async_commit();
    cp_async_wait<0>();
    fence_async();
    __syncthreads();
    const int group = __shfl_sync(~0u, threadIdx.x / GROUP, 0);
    Sums<1, KEYS> w;
    wgmma_fence();
    begin_rows<HS, ROWS, KEYS>(w, Panels<HS, ROWS>::describe(sq, group * GROUP_ROWS), Panels<HS, KEYS>::describe(sk));
    wgmma_commit();
    wgmma_wait<0>();
    hold(w[0]);
    const int row0 = warp_id() * 16 + lane_group();
    UNROLL(r, 2) {
        UNROLL(i, KEYS / 4) {
            float& x = element(w, r, i);
            out[(row0 + 8 * r) * KEYS + lane_column() + columns_on(i)] = x;
            x = (int)x & 7;
        }
    }
    uint32_t p[KEYS / 16][4];
    pack_all<KEYS>(p, w);
    Sums<1, HS> o = {};
    o[0][0][0] = 1000; // what is added to: of the lane's first row, its first column
    hold(o[0]);
    wgmma_fence();
    begin_columns<HS, KEYS>(o, p, Panels<HS, KEYS>::describe(sk));
    wgmma_commit();
    wgmma_wait<0>();
    hold(o[0]);
    UNROLL(r, 2) {
        UNROLL(i, HS / 4) {
            const int at = (row0 + 8 * r) * HS + lane_column() + columns_on(i);
            out[ROWS * KEYS + at] = element(o, r, i);
        }
    }
#endif
}

__global__ void movmatrix_kernel(float* out) {
    const int l = threadIdx.x;
    const uint32_t at = l / 4 * 8 + l % 4 * 2;                   // element (i, j) is 8 i + j
    const uint32_t x = movmatrix(at | (at + 1) << 16);
    out[2 * l] = x & 0xFFFF;
    out[2 * l + 1] = x >> 16;
}

static void read_back() { to_host(got.data(), out, got.size() * sizeof(float)); }

// Compares (rows, columns) from `at` on with want(row, column), and names the first that differs.
template <class F>
static void compare(const std::string& name, size_t at, int rows, int columns, F want) {
    std::string first;
    for (int i = rows * columns - 1; i >= 0; i--) {
        const float is = got[at + i], should = want(i / columns, i % columns);
        if (is == should) { continue; }
        first = strf(": row %d, column %d is %g, wanted %g", i / columns, i % columns, is, should);
    }
    check(name + first, first.empty());
}

template <int HS> static void test_products() {
    const std::vector<bf16> q = filled(ROWS, HS), k = filled(KEYS, HS);
    bf16* device = (bf16*)device_malloc((q.size() + k.size()) * sizeof(bf16));
    to_device(device, q.data(), q.size() * sizeof(bf16));
    to_device(device + q.size(), k.data(), k.size() * sizeof(bf16));
    device_sync();
    LAUNCH(products_kernel<HS>, dim3(1), dim3(256), (ROWS + KEYS) * HS * 2 + 1024, out, device,
           device + q.size());
    read_back();
    auto dot = [](int row, int key) {
        int sum = 0;
        for (int c = 0; c < HS; c++) { sum += small(row, c) * small(key, c); }
        return sum;
    };
    compare(strf("wgmma, rows as they are, HS %d", HS), 0, ROWS, KEYS, dot);
    compare(strf("wgmma, rows as columns, HS %d", HS), ROWS * KEYS, ROWS, HS, [&](int row, int c) {
        int sum = row % 16 < 8 && c < 8 && c % 2 == 0 ? 1000 : 0;
        for (int key = 0; key < KEYS; key++) { sum += (dot(row, key) & 7) * small(key, c); }
        return sum;
    });
    device_free(device);
}

#if defined(EMU) || defined(PTX_SHRUNK)
// ----------------------------------------------------------------------------
// What is refused: each kernel with one thing wrong. If PTX runs, that is what has to refuse it, and
// in the emulator the kernel does nothing.
#ifdef PTX_RUN
enum { LEFT_TO_PTX = 1 };
#else
enum { LEFT_TO_PTX = 0 };
#endif
#ifndef EMU
DEVICE void bar_sync(int id, int n) {
    asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(n) : "memory");
}
DEVICE void bar_arrive(int id, int n) {
    asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(n) : "memory");
}
#endif

enum Wrong {
    NOTHING, NO_WAIT_FOR_COPIES, NO_PROXY_FENCE, NO_BARRIER, NO_FENCE, LEFT_CHANGED, SUMS_CHANGED,
    OVERWRITTEN, NOT_WAITED, TWO_PRODUCTS, WARPS_DIFFER, ONE_WARP_LESS, STORED, NOT_HELD, LEFT_LATE,
    SUMS_LATE, LEFT_READ
};
template <Wrong WRONG> __global__ void wrong_kernel(float* o, const bf16* x) {
    enum { HS = 64, TILE = 64 };
    if (LEFT_TO_PTX && WRONG != NOTHING) { return; }
#ifdef WITH_WGMMA
    bf16* s = panels_begin();
    Panels<HS, TILE>::load(s, x, HS, 0, TILE, GROUP, threadIdx.x);
    cp_async_commit();
    if (WRONG != NO_WAIT_FOR_COPIES) { cp_async_wait<0>(); }
    if (WRONG != NO_PROXY_FENCE) { fence_async(); }
    if (WRONG == STORED) {
        __syncthreads();
        s[threadIdx.x] = bf16(1.0f);
#ifdef EMU
        emu::wrote(s + threadIdx.x, 2);
#endif
    }
    if (WRONG != NO_BARRIER) { __syncthreads(); }
    Sums<1, HS> c = {};
    uint32_t a[1][4] = {};
    if (WRONG == LEFT_READ) { a[0][1] = lane_id(); }
    hold(c[0]);
    if (WRONG != NOT_HELD) { hold(a); }
    uint64_t b = Panels<HS, TILE>::describe(s);
    if (WRONG == TWO_PRODUCTS) { b += lane_id() == 5; }
    if (WRONG == WARPS_DIFFER) { b += warp_id() == 2 ? Panels<HS, TILE>::rows_on(1) : 0; }
    if (WRONG != NO_FENCE) { wgmma_fence(); }
    if (WRONG == LEFT_LATE) { a[0][2] += lane_id(); }
    if (WRONG == SUMS_LATE) { c[0][0][1] += lane_id(); }
    wgmma_rs<HS>(c[0], a[0], b);
    if (WRONG != ONE_WARP_LESS || warp_id() == 1) { wgmma_rs<HS>(c[0], a[0], b); }
    wgmma_commit();
    if (WRONG == LEFT_READ) { o[threadIdx.x] = movmatrix(a[0][1]); }
    if (WRONG == LEFT_CHANGED) { a[0][2] = 1; }
    if (WRONG == SUMS_CHANGED) { c[0][0][1] = 1; }
    if (WRONG == OVERWRITTEN) {
        __syncthreads();
        Panels<HS, TILE>::load(s, x, HS, 0, TILE, GROUP, threadIdx.x);
        cp_async_commit();
    }
    wgmma_commit(); // an empty group counts
    if (WRONG == NOT_WAITED) {
        wgmma_wait<2>();
    } else {
        wgmma_wait<1>();
    }
    hold(c[0]);
    o[threadIdx.x] = c[0][0][0];
    cp_async_wait<0>();
#endif
}

enum Bars { HALVES, TWICE, OTHER_COUNT, BAD_ID, MISSING };
template <Bars WRONG> __global__ void bars_kernel(float* o) {
    if (LEFT_TO_PTX && WRONG != HALVES) { return; }
    SMEM(float[64], s);
    const bool first = threadIdx.x < 32;
    const int id = WRONG == BAD_ID ? 16 : 1;
    const int all = WRONG == TWICE ? 96 : 64;
    const int others = WRONG == OTHER_COUNT ? 96 : all;
    if (first) {
        s[threadIdx.x] = threadIdx.x;
        bar_arrive(id, all);
        if (WRONG == TWICE) { bar_arrive(id, all); }
        bar_sync(2, 64);
        o[threadIdx.x] = s[threadIdx.x + 32];
    } else if (threadIdx.x < 64 && WRONG != MISSING) {
        bar_sync(id, others);
        s[threadIdx.x] = 2 * s[threadIdx.x - 32];
        bar_sync(2, 64);
    }
}

template <Wrong WRONG> static void run_wrong() {
    bf16* x = (bf16*)device_malloc(64 * 64 * sizeof(bf16));
    LAUNCH(wrong_kernel<WRONG>, dim3(1), dim3(GROUP), 64 * 64 * 2 + 1024, out, x);
    read_back();
    device_free(x);
}

template <Bars WRONG> static void run_bars() {
    LAUNCH(bars_kernel<WRONG>, dim3(1), dim3(96), 0, out);
    read_back();
}
#endif

#ifdef EMU
static void refuse(const char* words, std::function<void()> f) {
    int p[2];
    if (pipe(p)) { return check("pipe", false); }
    fflush(stdout);
    const pid_t child = fork();
    if (child == 0) {
        dup2(p[1], 2);
        setenv("CHECK_FIRST", "1", 1); // the interpreter ends at its first fault
        f();
        _exit(0);
    }
    close(p[1]);
    std::string said;
    char b[512];
    for (ssize_t n; (n = read(p[0], b, sizeof b)) > 0;) { said.append(b, n); }
    close(p[0]);
    int status;
    waitpid(child, &status, 0);
    const bool ok = status != 0 && said.find(words) != std::string::npos;
    if (!ok) { printf("wanted \"%s\", got \"%s\"\n", words, said.c_str()); }
    check(words, ok);
}

static void test_refusals() {
    run_wrong<NOTHING>();
    check("a product of zeros", got[0] == 0 && got[127] == 0);
    refuse("what a cp.async has not brought yet", run_wrong<NO_WAIT_FOR_COPIES>);
    refuse("no fence.proxy.async followed", run_wrong<NO_PROXY_FENCE>);
    refuse("no fence.proxy.async followed", run_wrong<STORED>);
    const bool last_first = emu::settings.sched == emu::REV;
    const char* unwritten = LEFT_TO_PTX ? "never written" : "wgmma reads what";
    if (last_first) { refuse(unwritten, run_wrong<NO_BARRIER>); }
    refuse("without wgmma.fence", run_wrong<NO_FENCE>);
    refuse("two lanes describe two products", run_wrong<TWO_PRODUCTS>);
    refuse("warps of one group begin different products", run_wrong<WARPS_DIFFER>);
    refuse("its group 2", run_wrong<ONE_WARP_LESS>);
    run_bars<HALVES>();
    check("named barriers", got[0] == 0 && got[1] == 2 && got[31] == 62);
    refuse("come twice before it was full", run_bars<TWICE>);
    refuse("bar.sync 1 is for", run_bars<OTHER_COUNT>);
    refuse("wanted a barrier from 1 to 15", run_bars<BAD_ID>);
    refuse("deadlock", run_bars<MISSING>);
    if (emu::settings.eager) { return; }
    refuse("a left side written between", run_wrong<LEFT_LATE>);
    refuse("sums written between", run_wrong<SUMS_LATE>);
    refuse("a left side that a product works on", run_wrong<LEFT_READ>);
    if (!LEFT_TO_PTX) { refuse("a left side without hold()", run_wrong<NOT_HELD>); }
    if (!LEFT_TO_PTX) { // C++ cannot say which register of PTX it means
        refuse("a left side changed before the wait", run_wrong<LEFT_CHANGED>);
        refuse("sums changed before the wait", run_wrong<SUMS_CHANGED>);
    }
    refuse("a cp.async overwrites what wgmma still reads", run_wrong<OVERWRITTEN>);
    refuse("2 wgmma not waited for", run_wrong<NOT_WAITED>);
}
#endif

static void test_all() {
    test_products<32>();
    test_products<64>();
    test_products<96>();
    test_products<128>();
    LAUNCH(movmatrix_kernel, dim3(1), dim3(32), 0, out);
    read_back();
    compare("movmatrix", 0, 8, 8, [](int row, int column) { return 8 * column + row; });
#ifdef EMU
    test_refusals();
#elif defined(PTX_SHRUNK) // only for the text of these kernels
    run_wrong<NOTHING>();
    run_wrong<NO_WAIT_FOR_COPIES>();
    run_wrong<NO_PROXY_FENCE>();
    run_wrong<NO_BARRIER>();
    run_wrong<NO_FENCE>();
    run_wrong<OVERWRITTEN>();
    run_wrong<NOT_WAITED>();
    run_wrong<TWO_PRODUCTS>();
    run_wrong<WARPS_DIFFER>();
    run_wrong<ONE_WARP_LESS>();
    run_wrong<STORED>();
    run_wrong<LEFT_LATE>();
    run_wrong<SUMS_LATE>();
    run_wrong<LEFT_READ>();
    run_bars<HALVES>();
    run_bars<TWICE>();
    run_bars<OTHER_COUNT>();
    run_bars<BAD_ID>();
    run_bars<MISSING>();
#endif
}

int main() {
    got.resize(ROWS * (KEYS + 128));
    out = (float*)device_malloc(got.size() * sizeof(float));
#ifdef EMU
    for (emu::Sched sched : { emu::FWD, emu::REV, emu::PCT }) {
        for (bool eager : { false, true }) {
            if (LEFT_TO_PTX && eager) { continue; }
            emu::settings.sched = sched;
            emu::settings.eager = eager;
            test_all();
        }
    }
#else
    test_all();
#endif
    printf("%d passed, %d failed\n", passed, failed);
    return failed != 0;
}
