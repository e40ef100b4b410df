/*
wgmma.cuh -- Hopper's products: a warpgroup, which is four warps, multiplies 64 rows by a tile that
stands in shared memory, and goes on while tensor cores work. Knows no attention.

    wgmma        C (64, N) += A (64, 16) B (16, N)

    C in registers; A in registers or shared memory; B in shared memory

Of C and of an A in registers warp w of the group has rows 16 w .. 16 w + 15, and its lanes hold
them as they hold C and A of an mma (mma.cuh): C (64, N) of a warpgroup is Sums<1, N> of each of its
warps. So what is computed from scores between two products is the same code as on other cards.

A tile (rows, HS) stands in shared memory as HS / W panels of W columns, one behind the other, where
W is 64, or 32 if HS is no multiple of 64. A row of a panel is 128 or 64 bytes, and its 16-byte
chunks change places as in mma.cuh: chunk c of row r stands at c ^ (r % 8), or at c ^ (r / 2 % 4).
Hardware calls this the 128-byte and the 64-byte swizzle. Here HS 96, three panels of 32 columns,
with the number of the chunk that stands in each place:

            panel 0   panel 1   panel 2
    row 0   0 1 2 3   4 5 6 7   8 9 10 11   --+
    row 1   0 1 2 3   4 5 6 7   8 9 10 11     |  8 rows of a panel: SBO bytes
    row 2   1 0 3 2   5 4 7 6   9 8 11 10     |  a panel: LBO bytes
    ..                                      --+

The same tile serves twice:

    rows as they are (K-major)    S = Q K^T    16 channels at a time: 32 bytes on, or a panel
    rows as columns (MN-major)    O = P V      16 keys at a time: 16 rows on
*/
#ifndef CUDA_WGMMA_CUH
#define CUDA_WGMMA_CUH
#include "../mma.cuh"
// The instructions are those of sm_90a alone, and what is compiled for other cards must not hold
// them.
#if defined(EMU) || defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define WITH_WGMMA
#endif

namespace cuda {
enum { GROUP = 128, GROUP_ROWS = 64 };   // threads of a warpgroup; rows of its products

// ----------------------------------------------------------------------------
// The instructions.
#ifdef EMU
inline uint32_t smem_address(const void* p) { return emu::shared_address(p); }
inline void wgmma_fence(EMU_HERE) {
    emu::warp_op(~0u, emu::wgmma_fence_fn, nullptr, "wgmma.fence", file, line);
}

inline void wgmma_commit(EMU_HERE) {
    emu::warp_op(~0u, emu::wgmma_commit_fn, nullptr, "wgmma.commit_group", file, line);
}

template <int KEEP> void wgmma_wait(EMU_HERE) {
    emu::warp_op(~0u, emu::wgmma_wait_fn<KEEP>, nullptr, "wgmma.wait_group", file, line);
}

inline void fence_async() { emu::fence_async(); }
template <class T, int N> void hold(T (&c)[N][4]) { emu::hold(c, sizeof c); }
template <int N> void wgmma_ss(float (&c)[N / 8][4], uint64_t a, uint64_t b, bool add, EMU_HERE) {
    emu::WgmmaArg x = { c[0], nullptr, a, b, N, add };
    emu::warp_op(~0u, emu::wgmma_fn, &x, "wgmma", file, line);
}

template <int N>
void wgmma_rs(float (&c)[N / 8][4], const uint32_t (&a)[4], uint64_t b, EMU_HERE) {
    emu::WgmmaArg x = { c[0], a, 0, b, N, true };
    emu::warp_op(~0u, emu::wgmma_fn, &x, "wgmma", file, line);
}

inline uint32_t movmatrix(uint32_t x, EMU_HERE) {
    emu::MovmatrixArg m = { x, 0 };
    emu::warp_op(~0u, emu::movmatrix_fn, &m, "movmatrix", file, line);
    return m.y;
}
#else
// What registers hold is to be written before the products that follow read or add to it.
DEVICE void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
DEVICE void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int KEEP> DEVICE void wgmma_wait() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(KEEP) : "memory");
}

// What this thread has written to shared memory, by cp.async too once it has waited for it, is to
// be seen by wgmma. A barrier follows.
DEVICE void fence_async() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

// Hides registers from the compiler: after a wait, since it may not know that a product worked on
// them until then; before a fence, so that it writes them no later.
template <int N> DEVICE void hold(float (&c)[N][4]) {
    UNROLL(i, N) { UNROLL(k, 4) { asm volatile("" : "+f"(c[i][k])::"memory"); } }
}

template <int N> DEVICE void hold(uint32_t (&a)[N][4]) {
    UNROLL(i, N) { UNROLL(k, 4) { asm volatile("" : "+r"(a[i][k])::"memory"); } }
}

#define R_16 "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15"
#define R_32 R_16 ",%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31"
#define R_48 R_32 ",%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47"
#define R_64 R_48 ",%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63"
#define C_4(i) "+f"(c[i][0]), "+f"(c[i][1]), "+f"(c[i][2]), "+f"(c[i][3])
#define C_16(i) C_4(i), C_4(i + 1), C_4(i + 2), C_4(i + 3)
#define C_32 C_16(0), C_16(4)
#define C_48 C_32, C_16(8)
#define C_64 C_48, C_16(12)
#define WGMMA(N) "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32.bf16.bf16 "
// K-major A and B, both in shared memory. P: whether C is added to
#define WGMMA_SS(N, R, C, A, B, P)                                                          \
    asm volatile("{.reg .pred p; setp.ne.b32 p, " P ", 0;"                                  \
                 WGMMA(N) "{" R "}," A "," B ",p,1,1,0,0;}"                                 \
                 : C : "l"(a), "l"(b), "r"((int)add) : "memory")
// A in registers; MN-major B
#define WGMMA_RS(N, R, C, A, B)                                                             \
    asm volatile(WGMMA(N) "{" R "},{" A "}," B ",1,1,1,1;"                                  \
                 : C : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b) : "memory")

template <int N> DEVICE void wgmma_ss(float (&c)[N / 8][4], uint64_t a, uint64_t b, bool add) {
    static_assert(N == 32 || N == 64 || N == 96 || N == 128, "written out for these");
    if constexpr (N == 32)  { WGMMA_SS(32, R_16, C_16(0), "%16", "%17", "%18"); }
    if constexpr (N == 64)  { WGMMA_SS(64, R_32, C_32, "%32", "%33", "%34"); }
    if constexpr (N == 96)  { WGMMA_SS(96, R_48, C_48, "%48", "%49", "%50"); }
    if constexpr (N == 128) { WGMMA_SS(128, R_64, C_64, "%64", "%65", "%66"); }
}

template <int N> DEVICE void wgmma_rs(float (&c)[N / 8][4], const uint32_t (&a)[4], uint64_t b) {
    static_assert(N == 32 || N == 64 || N == 96 || N == 128, "written out for these");
    if constexpr (N == 32)  { WGMMA_RS(32, R_16, C_16(0), "%16,%17,%18,%19", "%20"); }
    if constexpr (N == 64)  { WGMMA_RS(64, R_32, C_32, "%32,%33,%34,%35", "%36"); }
    if constexpr (N == 96)  { WGMMA_RS(96, R_48, C_48, "%48,%49,%50,%51", "%52"); }
    if constexpr (N == 128) { WGMMA_RS(128, R_64, C_64, "%64,%65,%66,%67", "%68"); }
}

// Transposes an 8x8 matrix of 16-bit values that a warp holds.
DEVICE uint32_t movmatrix(uint32_t x) {
    uint32_t y;
    asm("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(y) : "r"(x));
    return y;
}
#endif

// ----------------------------------------------------------------------------
// Tiles.

// Returns dynamic shared memory from the next multiple of 1024 on: a swizzle counts from there.
DEVICE bf16* panels_begin() {
    bf16* p = dynamic_smem<bf16>();
    return p + (-smem_address(p) & 1023) / 2;
}

// A tile (ROWS, HS) of panels.
template <int HS, int ROWS> struct Panels {
    enum { W = HS % 64 == 0 ? 64 : 32 };

    // Returns where a chunk of a row stands.
    HD static constexpr int offset(int row, int chunk) {
        const int c = chunk % (W / CHUNK);
        const int place = W == 64 ? c ^ (row & 7) : c ^ ((row >> 1) & 3);
        return chunk / (W / CHUNK) * ROWS * W + row * W + place * CHUNK;
    }

    // Loads `rows` of ROWS rows of x, the others as zeros, as tile_load_part does (mma.cuh). whole
    // and threads are constants where it is called.
    DEVICE static void load_part(bf16* tile, const bf16* x, unsigned stride, int rows, bool whole,
                                 int threads, unsigned thread) {
        constexpr int ACROSS = W / CHUNK;
        const int DOWN = threads / ACROSS;               // a multiple of 8: the swizzle is the same
        const int row = thread / ACROSS;
        const int chunk = thread % ACROSS;
        const bf16* from = x + row * stride + chunk * CHUNK;
        bf16* to = tile + offset(row, chunk);
        #pragma unroll
        for (int i = 0; i < ROWS; i += DOWN) {
            if (i + DOWN > ROWS && row >= ROWS - i) { break; }
            const bool valid = whole || row + i < rows;
            UNROLL(panel, HS / W) {
                cp_async(to + i * W + panel * ROWS * W, valid ? from + panel * W : x, valid);
            }
            from += DOWN * stride;
        }
    }

    // Loads rows from, from + 1, .. of x (T, *); those from T on as zeros.
    DEVICE static void load(bf16* tile, const bf16* x, unsigned stride, unsigned from, int T,
                            int threads, unsigned thread) {
        x += (size_t)from * stride;
        const int rows = T - from;
        if (rows >= ROWS) {
            load_part(tile, x, stride, ROWS, true, threads, thread);
        } else {
            load_part(tile, x, stride, rows, false, threads, thread);
        }
    }

    // Describes the tile for wgmma, or its rows from `row` on. Bits 0-13 address, 16-29 LBO, 32-45
    // SBO, each over 16; 62-63 the swizzle: 1 of 128 bytes, 2 of 64.
    DEVICE static uint64_t describe(const bf16* tile, int row = 0) {
        constexpr uint64_t LBO = ROWS * W * 2 / 16;
        constexpr uint64_t SBO = 8 * W * 2 / 16;
        constexpr uint64_t swizzle = W == 64 ? 1 : 2;
        const uint64_t at = (smem_address(tile) + row * W * 2) >> 4;
        return at | LBO << 16 | SBO << 32 | swizzle << 62;
    }

    // Return what is added to a description: for channels 16 k.., and for rows 16 k..
    HD static constexpr uint64_t channels_on(int k) {
        return (16 * k / W * ROWS * W + 16 * k % W) * 2 / 16;
    }
    HD static constexpr uint64_t rows_on(int k) { return 16 * k * W * 2 / 16; }
};

// ----------------------------------------------------------------------------
// Products. They are begun, and end with wgmma_wait.

// Begins c (64, N) = 64 rows of a tile (A_ROWS, HS) times the rows of a tile (N, HS): dot products.
template <int HS, int A_ROWS, int N>
DEVICE void begin_rows(Sums<1, N>& c, uint64_t a, uint64_t b) {
    UNROLL(k, HS / 16) {
        const uint64_t left = a + Panels<HS, A_ROWS>::channels_on(k);
        wgmma_ss<N>(c[0], left, b + Panels<HS, N>::channels_on(k), k > 0);
    }
}

// Begins c (64, HS) += a (64, K), in registers, times the rows of a tile (K, HS).
template <int HS, int K>
DEVICE void begin_columns(Sums<1, HS>& c, const uint32_t (&a)[K / 16][4], uint64_t b) {
    UNROLL(k, K / 16) { wgmma_rs<HS>(c[0], a[k], b + Panels<HS, K>::rows_on(k)); }
}

// Rounds results w (64, K) into the left side of another product: here, and not between the
// products that follow, where ptxas would make each wait.
template <int K> DEVICE void pack_all(uint32_t (&a)[K / 16][4], const Sums<1, K>& w) {
    UNROLL(k, K / 16) { pack_left<K>(a[k], w[0], k); }
    hold(a);
}
} // namespace cuda
#endif // CUDA_WGMMA_CUH
