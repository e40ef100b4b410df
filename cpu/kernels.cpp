/*
cpu/kernels.cpp -- the tile kernels. For each kind of processor a tile kernel, then what packs its
factors and rounds its sums:

    any machine      vectors of 16 bytes, by the compiler
    AVX2             6 x 16 sums in registers
    AVX-512          14 x 32 sums; lanes of floats or, with AVX512-BF16, of pairs of bf16
    AMX              32 x 32 sums in tile registers; pairs of bf16, also as halves of floats
*/
#include "kernels.h"
#include <string.h>
#include <algorithm>
#ifdef __x86_64__
#include "intrinsics.h"
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace cpu {
// ----------------------------------------------------------------------------
// any machine: vectors of 16 bytes, which compilers know how to make for all of them

typedef float Float4 __attribute__((vector_size(16), aligned(4), may_alias));

// c (H, 8) = or += a (H, lanes) @ eight columns of a panel
template <int H>
void any_block(float* c, long ldc, TileA a, const lane* b, long lanes, bool add) {
    Float4 sum[H][2] = {};
    for (long l = 0; l < lanes; l++, b += PANEL) {
        const Float4 b0 = *(const Float4*)b;
        const Float4 b1 = *(const Float4*)(b + 4);
        for (int i = 0; i < H; i++) {
            const float x = *(const float*)(a.at + i*a.row + l*a.step);
            sum[i][0] += x * b0;
            sum[i][1] += x * b1;
        }
    }
    for (int i = 0; i < H; i++) {
        Float4* to = (Float4*)(c + i*ldc);
        to[0] = add ? to[0] + sum[i][0] : sum[i][0];
        to[1] = add ? to[1] + sum[i][1] : sum[i][1];
    }
}

// Writes or adds a block, whose rows are ld apart, to c (rows, width).
static void copy_edge(float* c, long ldc, const float* block, long ld, int rows, int width,
                      bool add) {
    for (int r = 0; r < rows; r++, c += ldc, block += ld) {
        for (int n = 0; n < width; n++) {
            c[n] = add ? c[n] + block[n] : block[n];
        }
    }
}

// Computes a tile of floats. Whole blocks go to c; those at the right edge go there by way of a
// copy.
static void any_tile(float* c, long ldc, int rows, int cols, TileA a, TileB b, long lanes,
                     bool add) {
    for (int j = 0; j < cols; j += 8) {
        const lane* b_j = b.at + j / PANEL * b.panel + j % PANEL;
        const int width = std::min(8, cols - j);
        for (int i = 0, H; i < rows; i += H) {
            H = rows - i >= 4 ? 4 : 1;
            const auto block = H == 4 ? any_block<4> : any_block<1>;
            const TileA a_i = { a.at + i*a.row, a.row, a.step };
            float* to = c + i*ldc + j;
            if (width == 8) {
                block(to, ldc, a_i, b_j, lanes, add);
                continue;
            }
            float edge[4 * 8];
            block(edge, 8, a_i, b_j, lanes, false);
            copy_edge(to, ldc, edge, 8, H, width, add);
        }
    }
}

static void any_transpose(lane* to, long to_row, const char* from, long from_row) {
    typedef lane Lane4 __attribute__((vector_size(16), aligned(2), may_alias));
    for (int i = 0; i < 16; i += 4) {
        for (int j = 0; j < 16; j += 4) {
            const char* f = from + j*from_row + i*4;
            const Lane4 a = *(const Lane4*)f;
            const Lane4 b = *(const Lane4*)(f + from_row);
            const Lane4 c = *(const Lane4*)(f + 2*from_row);
            const Lane4 d = *(const Lane4*)(f + 3*from_row);
            const Lane4 p = { a[0], b[0], a[1], b[1] };
            const Lane4 q = { a[2], b[2], a[3], b[3] };
            const Lane4 u = { c[0], d[0], c[1], d[1] };
            const Lane4 v = { c[2], d[2], c[3], d[3] };
            lane* t = to + i*to_row + j;
            *(Lane4*)t              = Lane4{ p[0], p[1], u[0], u[1] };
            *(Lane4*)(t + to_row)   = Lane4{ p[2], p[3], u[2], u[3] };
            *(Lane4*)(t + 2*to_row) = Lane4{ q[0], q[1], v[0], v[1] };
            *(Lane4*)(t + 3*to_row) = Lane4{ q[2], q[3], v[2], v[3] };
        }
    }
}

static void any_pairs(lane* to, const char* from, long from_row) {
    for (int l = 0; l < 16; l++, to += 16, from += 2*from_row) {
        const uint16_t* even = (const uint16_t*)from;
        const uint16_t* odd = (const uint16_t*)(from + from_row);
        for (int j = 0; j < 16; j++) {
            to[j] = even[j] | (lane)odd[j] << 16;
        }
    }
}

static void any_round(bf16* out, long ld, const float* sum, long ld_sum, const bf16* x,
                      const bf16* y, int rows, int cols) {
    for (int r = 0; r < rows; r++) {
        bf16* to = out + r*ld;
        const float* sum_r = sum + r*ld_sum;
        const bf16* x_r = x ? x + r*ld : NULL;
        for (int n = 0; n < cols; n++) {
            to[n] = x_r ? sum_r[n] + (float)x_r[n] : sum_r[n];
            if (y) { to[n] = (float)to[n] + (float)y[n]; }
        }
    }
}

#ifdef __x86_64__
// ----------------------------------------------------------------------------
// AVX2: 16 registers of 8 floats: 6 x 2 sums, two vectors of B, one number of A spread out. A tile
// has the rows of two such blocks: what they read of B is in the first cache the second time

#define TARGET_AVX2 __attribute__((target("avx2,fma")))

enum { AVX2_BLOCK = 6, AVX2_ROWS = 2 * AVX2_BLOCK };

// c (H, 16) = or += a (H, lanes) @ a panel; at, row, step: as in TileA
template <int H>
TARGET_AVX2 void avx2_block(float* c, long ldc, const char* at, long row, long step, const lane* b,
                            long lanes, bool add) {
    __m256 sum[H][2];
    for (int i = 0; i < H; i++) {
        sum[i][0] = sum[i][1] = _mm256_setzero_ps();
    }
    for (long l = 0; l < lanes; l++, b += PANEL, at += step) {
        __m256 b0 = _mm256_loadu_ps((const float*)b);
        __m256 b1 = _mm256_loadu_ps((const float*)b + 8);
        asm("" : "+x"(b0), "+x"(b1));   // else GCC loads them again for each row, if these are few
        for (int i = 0; i < H; i++) {
            const __m256 x = _mm256_broadcast_ss((const float*)(at + i*row));
            sum[i][0] = _mm256_fmadd_ps(x, b0, sum[i][0]);
            sum[i][1] = _mm256_fmadd_ps(x, b1, sum[i][1]);
        }
    }
    #pragma GCC unroll 6            // else GCC writes the sums to memory, too, in every turn above
    for (int i = 0; i < H; i++, c += ldc) {
        if (add) {
            sum[i][0] = _mm256_add_ps(_mm256_loadu_ps(c), sum[i][0]);
            sum[i][1] = _mm256_add_ps(_mm256_loadu_ps(c + 8), sum[i][1]);
        }
        _mm256_storeu_ps(c, sum[i][0]);
        _mm256_storeu_ps(c + 8, sum[i][1]);
    }
}

// Does the same for c (rows, 16): one block, or two of about the same height.
static void avx2_rows(float* c, long ldc, int rows, const TileA& a, const lane* b, long lanes,
                      bool add) {
    static constexpr decltype(&avx2_block<1>) block[] = {
        NULL, avx2_block<1>, avx2_block<2>, avx2_block<3>, avx2_block<4>, avx2_block<5>,
        avx2_block<6>
    };
    const int H = rows > AVX2_BLOCK ? (rows + 1) / 2 : rows;
    block[H](c, ldc, a.at, a.row, a.step, b, lanes, add);
    if (H < rows) {
        block[rows - H](c + H * ldc, ldc, a.at + H * a.row, a.row, a.step, b, lanes, add);
    }
}

// Computes a tile of floats, panel by panel. The one at the right edge goes by way of a copy: AMD's
// processors take eight times as long to store with a mask.
static void avx2_tile(float* c, long ldc, int rows, int cols, TileA a, TileB b, long lanes,
                      bool add) {
    for (; cols >= PANEL; cols -= PANEL, c += PANEL, b.at += b.panel) {
        avx2_rows(c, ldc, rows, a, b.at, lanes, add);
    }
    if (cols <= 0) { return; }
    float edge[AVX2_ROWS * PANEL];
    avx2_rows(edge, PANEL, rows, a, b.at, lanes, false);
    copy_edge(c, ldc, edge, PANEL, rows, cols, add);
}

// ----------------------------------------------------------------------------
// AVX-512: 32 registers of 16 lanes: 14 x 2 sums, two vectors of B, one lane of A spread out.
// 4 rows take as long as 8 do, so 32 are better taken as 12, 12 and 8 than as 14, 14 and 4

enum { AVX512_ROWS = 14 };

#define TARGET_AVX512 __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,avx512bf16")))

// c (H, cols <= 16 V) = or += a (H, lanes) @ V panels; if PAIRS, a lane is two bf16 (AVX512-BF16)
template <int H, int V, bool PAIRS>
TARGET_AVX512 void avx512_block(float* c, long ldc, int cols, TileA a, TileB b, long lanes,
                                bool add) {
    __m512 sum[H][V];
    for (int i = 0; i < H; i++) {
        for (int v = 0; v < V; v++) { sum[i][v] = _mm512_setzero_ps(); }
    }
    // the rows from here on have a pointer of their own, so that all distances stay in registers
    const int half = (H + 1) / 2;
    const char* low = a.at + half*a.row;
    for (long l = 0; l < lanes; l++, b.at += PANEL, a.at += a.step, low += a.step) {
        __m512 y[V];
        for (int v = 0; v < V; v++) {
            y[v] = _mm512_loadu_ps(b.at + v*b.panel);
        }
        for (int v = 0; v < V; v++) { asm("" : "+v"(y[v])); }   // as above
        for (int i = 0; i < H; i++) {
            const char* at = i < half ? a.at + i*a.row : low + (i - half)*a.row;
            const __m512 x = _mm512_castsi512_ps(_mm512_set1_epi32(*(const lane*)at));
            for (int v = 0; v < V; v++) {
                if (PAIRS) { sum[i][v] = _mm512_dpbf16_ps(sum[i][v], (__m512bh)x, (__m512bh)y[v]); }
                else       { sum[i][v] = _mm512_fmadd_ps(x, y[v], sum[i][v]); }
            }
        }
    }
    const uint32_t mask = cols == 32 ? ~0u : (1u << cols) - 1;
    #pragma GCC unroll 14           // else GCC moves the sums to memory first
    for (int i = 0; i < H; i++, c += ldc) {
        #pragma GCC unroll 2
        for (int v = 0; v < V; v++) {
            const __mmask16 there = mask >> 16*v;
            if (add) {
                sum[i][v] = _mm512_add_ps(_mm512_maskz_loadu_ps(there, c + 16 * v), sum[i][v]);
            }
            _mm512_mask_storeu_ps(c + 16*v, there, sum[i][v]);
        }
    }
}

// A tile in as few blocks as possible: of 14 rows or 12, or of 8, 4, 2, 1 at the lower edge.
template <int V, bool PAIRS>
void avx512_rows(float* c, long ldc, int rows, int cols, TileA a, TileB b, long lanes, bool add) {
    const auto block = [&](int H, auto call) {
        for (; rows >= H; rows -= H, c += H * ldc, a.at += H * a.row) {
            call(c, ldc, cols, a, b, lanes, add);
        }
    };
    block(AVX512_ROWS, avx512_block<AVX512_ROWS, V, PAIRS>);
    block(12, avx512_block<12, V, PAIRS>);
    block(8, avx512_block<8, V, PAIRS>);
    block(4, avx512_block<4, V, PAIRS>);
    block(2, avx512_block<2, V, PAIRS>);
    block(1, avx512_block<1, V, PAIRS>);
}

// Computes a tile from floats, or from pairs of bf16.
template <bool PAIRS>
void avx512_tile(float* c, long ldc, int rows, int cols, TileA a, TileB b, long lanes, bool add) {
    if (cols > PANEL) { avx512_rows<2, PAIRS>(c, ldc, rows, cols, a, b, lanes, add); }
    else              { avx512_rows<1, PAIRS>(c, ldc, rows, cols, a, b, lanes, add); }
}

// Exchanges lanes between pairs of registers, then pairs of lanes, then quarters of registers.
TARGET_AVX512 static void avx512_transpose(lane* to, long to_row, const char* from, long from_row) {
    __m512i r[16], t[16];
    for (int i = 0; i < 16; i++) {
        r[i] = _mm512_loadu_si512(from + i*from_row);
    }
    for (int i = 0; i < 16; i += 2) {
        t[i]     = _mm512_unpacklo_epi32(r[i], r[i + 1]);
        t[i + 1] = _mm512_unpackhi_epi32(r[i], r[i + 1]);
    }
    for (int i = 0; i < 16; i += 4) {       // quarter q of r[i + c]: column 4q + c of rows i..i+3
        r[i]     = _mm512_unpacklo_epi64(t[i], t[i + 2]);
        r[i + 1] = _mm512_unpackhi_epi64(t[i], t[i + 2]);
        r[i + 2] = _mm512_unpacklo_epi64(t[i + 1], t[i + 3]);
        r[i + 3] = _mm512_unpackhi_epi64(t[i + 1], t[i + 3]);
    }
    for (int c = 0; c < 4; c++) {
        const __m512i even0 = _mm512_shuffle_i32x4(r[c], r[4 + c], 0x88);
        const __m512i odd0  = _mm512_shuffle_i32x4(r[c], r[4 + c], 0xdd);
        const __m512i even1 = _mm512_shuffle_i32x4(r[8 + c], r[12 + c], 0x88);
        const __m512i odd1  = _mm512_shuffle_i32x4(r[8 + c], r[12 + c], 0xdd);
        _mm512_storeu_si512(to + c*to_row,        _mm512_shuffle_i32x4(even0, even1, 0x88));
        _mm512_storeu_si512(to + (4 + c)*to_row,  _mm512_shuffle_i32x4(odd0, odd1, 0x88));
        _mm512_storeu_si512(to + (8 + c)*to_row,  _mm512_shuffle_i32x4(even0, even1, 0xdd));
        _mm512_storeu_si512(to + (12 + c)*to_row, _mm512_shuffle_i32x4(odd0, odd1, 0xdd));
    }
}

TARGET_AVX512 static void avx512_pairs(lane* to, const char* from, long from_row) {
    for (int l = 0; l < 16; l++, to += 16, from += 2*from_row) {
        const __m256i row0 = _mm256_loadu_si256((const __m256i*)from);
        const __m256i row1 = _mm256_loadu_si256((const __m256i*)(from + from_row));
        const __m512i even = _mm512_cvtepu16_epi32(row0);
        const __m512i odd = _mm512_cvtepu16_epi32(row1);
        _mm512_storeu_si512(to, _mm512_or_si512(even, _mm512_slli_epi32(odd, 16)));
    }
}

// Widens 16 bf16 to floats; of those in memory, the ones that the mask names.
TARGET_AVX512 static __m512 avx512_widen(__m256i x) {
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(x), 16));
}

TARGET_AVX512 static __m512 avx512_widen(const bf16* x, __mmask16 there) {
    return avx512_widen(_mm256_maskz_loadu_epi16(there, x));
}

// The same as avx512_round without x and y, for 32, 64 .. columns: a whole cache line at a time.
TARGET_AVX512 static void avx512_round_lines(bf16* out, long ld, const float* sum, long ld_sum,
                                             int rows, int cols) {
    for (int r = 0; r < rows; r++) {
        for (int n = 0; n < cols; n += 32) {
            const float* from = sum + r*ld_sum + n;
            const __m512 low = _mm512_loadu_ps(from);
            const __m512 high = _mm512_loadu_ps(from + 16);
            _mm512_storeu_si512(out + r*ld + n, (__m512i)_mm512_cvtne2ps_pbh(high, low));
        }
    }
}

// Rounds by the processor's own instruction: a NaN keeps its sign, and what is below 1.2e-38
// becomes 0, as in its products.
TARGET_AVX512 static void avx512_round(bf16* out, long ld, const float* sum, long ld_sum,
                                       const bf16* x, const bf16* y, int rows, int cols) {
    if (!x && !y && cols % 32 == 0) {
        return avx512_round_lines(out, ld, sum, ld_sum, rows, cols);
    }
    for (int n = 0; n < cols; n += 16) {
        const __mmask16 there = cols - n < 16 ? (1 << (cols - n)) - 1 : -1;
        const __m512 y_n = y ? avx512_widen(y + n, there) : _mm512_setzero_ps();
        for (int r = 0; r < rows; r++) {
            __m512 s = _mm512_maskz_loadu_ps(there, sum + r*ld_sum + n);
            if (x) { s = _mm512_add_ps(s, avx512_widen(x + r*ld + n, there)); }
            __m256i rounded = (__m256i)_mm512_cvtneps_pbh(s);
            if (y) {
                s = _mm512_add_ps(avx512_widen(rounded), y_n);
                rounded = (__m256i)_mm512_cvtneps_pbh(s);
            }
            _mm256_mask_storeu_epi16(out + r*ld + n, there, rounded);
        }
    }
}

// ----------------------------------------------------------------------------
// AMX: 8 registers of 16 rows x 64 bytes. Four hold a tile of C (32, 32), two of A, two of B: four
// products of (16, 32) @ (32, 16) bf16 for four loads. The rows of A must be packed to 32, its
// lanes to a multiple of 16.
//
//                          panel 0     panel 1
//                          [   6   ]   [   7   ]      16 lanes x 16 columns each
//
//      rows  0..15  [ 4 ]  [   0   ]   [   1   ]
//      rows 16..31  [ 5 ]  [   2   ]   [   3   ]

#define TARGET_AMX __attribute__((target("amx-tile,amx-bf16,avx512f")))

// Gives the calling thread tile registers of 16 rows of 64 bytes, until amx_end().
TARGET_AMX static void amx_begin() {
    struct Tiles {
        uint8_t palette = 1, start = 0, zero[14] = {};
        uint16_t bytes[16] = { 64, 64, 64, 64, 64, 64, 64, 64 };
        uint8_t rows[16] = { 16, 16, 16, 16, 16, 16, 16, 16 };
    };
    alignas(64) static const Tiles eight;
    _tile_loadconfig(&eight);
}

// Gives the tile registers back: the system need no longer save them.
TARGET_AMX static void amx_end() {
    _tile_release();
}

// Prefetches 1 kB that is loaded two iterations later: it has come from the second cache by then.
static void prefetch_tile(const lane* b) {
    for (int i = 0; i < 16; i++) { __builtin_prefetch(b + 16*i); }
}

// Loads a tile of C (32, 32) into registers 0 to 3 if it is added to, else zeros.
TARGET_AMX static void amx_load(const float* c, long ldc, bool add) {
    // GCC's tile loads do not tell it that they read memory: finish all writes
    asm volatile("" ::: "memory");
    if (!add) {
        _tile_zero(0);
        _tile_zero(1);
        _tile_zero(2);
        _tile_zero(3);
        return;
    }
    const float* c1 = c + 16*ldc;
    _tile_loadd(0, c, ldc * 4);
    _tile_loadd(1, c + 16, ldc * 4);
    _tile_loadd(2, c1, ldc * 4);
    _tile_loadd(3, c1 + 16, ldc * 4);
}

TARGET_AMX static void amx_store(float* c, long ldc) {
    float* c1 = c + 16*ldc;
    _tile_stored(0, c, ldc * 4);
    _tile_stored(1, c + 16, ldc * 4);
    _tile_stored(2, c1, ldc * 4);
    _tile_stored(3, c1 + 16, ldc * 4);
}

// Computes c (32, 32) = or += a (32, lanes) @ two panels.
TARGET_AMX static void amx_block(float* c, long ldc, TileA a, TileB b, long lanes, bool add) {
    const long row = a.row;
    amx_load(c, ldc, add);
    const char* a0 = a.at;
    const char* a1 = a.at + 16*row;
    const lane* b0 = b.at;
    const lane* b1 = b.at + b.panel;
    for (long l = 0; l < lanes; l += 16, a0 += 64, a1 += 64, b0 += 256, b1 += 256) {
        _tile_loadd(4, a0, row);
        _tile_loadd(6, b0, 64);
        _tile_dpbf16ps(0, 4, 6);
        prefetch_tile(b0 + 512);
        _tile_loadd(7, b1, 64);
        _tile_dpbf16ps(1, 4, 7);
        prefetch_tile(b1 + 512);
        _tile_loadd(5, a1, row);
        _tile_dpbf16ps(2, 5, 6);
        _tile_dpbf16ps(3, 5, 7);
    }
    amx_store(c, ldc);
}

// A tile of C; at the edges of C by way of a whole one.
static void amx_tile(float* c, long ldc, int rows, int cols, TileA a, TileB b, long lanes,
                     bool add) {
    if (rows == 32 && cols == 32) { return amx_block(c, ldc, a, b, lanes, add); }
    alignas(64) float whole[32 * 32];
    if (add) { memset(whole, 0, sizeof whole); }
    for (int i = 0; add && i < rows; i++) {
        memcpy(whole + i*32, c + i*ldc, cols * 4);
    }
    amx_block(whole, 32, a, b, lanes, add);
    for (int i = 0; i < rows; i++) {
        memcpy(c + i*ldc, whole + i*32, cols * 4);
    }
}

// Tells whether the processor has AMX for bf16 (CPUID leaf 7) and Linux lets this process use it.
// Linux must be asked, because the registers make every saved state of a thread 8 kB larger: its
// Documentation/arch/x86/xstate.rst.
static bool amx_allowed() {
    const unsigned bf16_and_tiles = 1u << 22 | 1u << 24;
    const int ARCH_REQ_XCOMP_PERM = 0x1023;
    const int XFEATURE_XTILEDATA = 18;
    unsigned a, b, c, d;
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d)) { return false; }
    if ((d & bf16_and_tiles) != bf16_and_tiles) { return false; }
    return syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA) == 0;
}

static bool avx2_here() { return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"); }

static bool avx512_here() {
    return __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
           __builtin_cpu_supports("avx512dq");
}

static bool avx512_bf16_here() { return __builtin_cpu_supports("avx512bf16"); }
#endif // __x86_64__

// ----------------------------------------------------------------------------
// the table

static bool always_here() { return true; }

//    name, bf16, rows, even, deep, chunk,
//    tile, transpose, pairs, round, here [, begin, end]
const Kernel kernels[] = {
    { "any", false, 4, 4, 1, 384,
      any_tile, any_transpose, any_pairs, any_round, always_here },
#ifdef __x86_64__
    { "avx2", false, AVX2_ROWS, AVX2_ROWS, 1, 384,
      avx2_tile, any_transpose, any_pairs, any_round, avx2_here },
    { "avx512", false, AVX512_ROWS, 4, 1, 384,
      avx512_tile<false>, avx512_transpose, avx512_pairs, any_round, avx512_here },
    { "avx512-bf16", true, AVX512_ROWS, 4, 1, 384,
      avx512_tile<true>, avx512_transpose, avx512_pairs, avx512_round, avx512_bf16_here },
    { "amx", true, 32, 32, 16, 1024,
      amx_tile, avx512_transpose, avx512_pairs, avx512_round, amx_allowed,
      amx_begin, amx_end },
#endif
};
const int KERNELS = sizeof kernels / sizeof *kernels;
} // namespace cpu
#undef TARGET_AVX2
#undef TARGET_AVX512
#undef TARGET_AMX
