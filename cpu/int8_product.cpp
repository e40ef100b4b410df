/*
cpu/int8_product.cpp -- what int8_product.h declares:

    1 x in integers        rows of x as high and low parts, and their scales
    2 weights in panels    32 rows of a weight, as the product reads them
    3 the product          a tile of out: 12 rows of x times a panel
*/
#include "int8_product.h"
#include <algorithm>
#include "bf16_pair.h"
#if defined __x86_64__
#include "intrinsics.h"
#define TARGET_VNNI __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,fma")))
#endif

namespace cpu {
#ifdef TARGET_VNNI
bool int8_here() {
    // --product avx512, or an older one
    const bool limited = !kernels[product_settings.last_kernel].bf16;
    return !limited && !strcmp(kernel_for(false).name, "avx512") &&
           __builtin_cpu_supports("avx512vnni");
}

enum {
    TALL = 12, WIDE = 32,           // a tile of out: rows, columns
    BLOCK = 32,                     // numbers that share a scale
    LANES = BLOCK / 2               // lanes of a block: pairs of 16 bits
};

// ----------------------------------------------------------------------------
// 1 x in integers

// Rows of x: x = step (high + low / 2^16).
struct Int16Rows {
    int16_t* high;                  // (N, C)
    int16_t* low;                   // (N, C), not written where a block has none
    float* step;                    // (N, C / BLOCK)
    float* sum;                     // (N, C / BLOCK) of x
    uint8_t* both;                  // (tiles, C / BLOCK) 1 if some row of the tile has low parts

    // Returns the same from a row of a tile on.
    Int16Rows from(long row, long tile, long C) const {
        const long blocks = C / BLOCK;
        return { high + row * C, low + row * C, step + row * blocks, sum + row * blocks,
                 both + tile * blocks };
    }
};

// Converts one block of x. low: NULL, or zero unless `both`. The sum is that of what x becomes, so
// that what is lost of x is lost times w, not times w - m. What is not finite becomes NaN.
TARGET_VNNI static void quantize_block(const float* x, int16_t* high, int16_t* low, float* step,
                                       float* sum, bool both) {
    const __m512 x0 = _mm512_loadu_ps(x);
    const __m512 x1 = _mm512_loadu_ps(x + 16);
    const __m512 none = _mm512_setzero_ps();
    const __m512 sizes = _mm512_max_ps(_mm512_abs_ps(x0), _mm512_abs_ps(x1));
    const float most = _mm512_reduce_max_ps(sizes);
    // 0, or NaN if a number is not finite
    const __m512 times_0 = _mm512_fmadd_ps(x0, none, _mm512_mul_ps(x1, none));
    const float zero = _mm512_reduce_add_ps(times_0);

    const __m512 by = _mm512_set1_ps(most > 1e-30f ? 32767 / most : 0);
    const __m512 y0 = _mm512_mul_ps(x0, by);
    const __m512 y1 = _mm512_mul_ps(x1, by);
    const __m512i q0 = _mm512_cvtps_epi32(y0);
    const __m512i q1 = _mm512_cvtps_epi32(y1);
    _mm256_storeu_si256((__m256i*)high, _mm512_cvtepi32_epi16(q0));
    _mm256_storeu_si256((__m256i*)(high + 16), _mm512_cvtepi32_epi16(q1));
    *step = most / 32767 + zero;
    *sum = *step * (float)_mm512_reduce_add_epi32(_mm512_add_epi32(q0, q1));
    if (!low) { return; }

    const __m512 fine = _mm512_set1_ps(both ? 0x1p16f : 0);
    const __m512 rest0 = _mm512_sub_ps(y0, _mm512_cvtepi32_ps(q0));
    const __m512 rest1 = _mm512_sub_ps(y1, _mm512_cvtepi32_ps(q1));
    const __m512i r0 = _mm512_cvtps_epi32(_mm512_mul_ps(rest0, fine));
    const __m512i r1 = _mm512_cvtps_epi32(_mm512_mul_ps(rest1, fine));
    _mm256_storeu_si256((__m256i*)low, _mm512_cvtsepi32_epi16(r0));
    _mm256_storeu_si256((__m256i*)(low + 16), _mm512_cvtsepi32_epi16(r1));
    *sum += *step * 0x1p-16f * (float)_mm512_reduce_add_epi32(_mm512_add_epi32(r0, r1));
}

// Returns the largest |x| of a block.
TARGET_VNNI static float largest(const float* x) {
    const __m512 x0 = _mm512_loadu_ps(x);
    const __m512 x1 = _mm512_loadu_ps(x + 16);
    return _mm512_reduce_max_ps(_mm512_max_ps(_mm512_abs_ps(x0), _mm512_abs_ps(x1)));
}

TARGET_VNNI static float root_mean_square(const float* x, long C) {
    __m512 sum = _mm512_setzero_ps();
    for (long i = 0; i < C; i += 16) {
        const __m512 y = _mm512_loadu_ps(x + i);
        sum = _mm512_fmadd_ps(y, y, sum);
    }
    return sqrtf(_mm512_reduce_add_ps(sum) / C);
}

// Converts the rows of a tile, x (rows, C).
static void quantize_tile(const float* x, int rows, long C, const Int16Rows& to) {
    const long blocks = C / BLOCK;
    float limit[TALL];
    for (int r = 0; r < rows; r++) {
        limit[r] = 12 * root_mean_square(x + r*C, C);
    }
    for (long b = 0; b < blocks; b++) {
        bool large[TALL];
        bool any = false;
        for (int r = 0; r < rows; r++) {
            large[r] = largest(x + r*C + b*BLOCK) > limit[r];
            any = any || large[r];
        }
        to.both[b] = any;
        for (int r = 0; r < rows; r++) {
            const long at = r*C + b*BLOCK;
            const long scale = r*blocks + b;
            int16_t* low = any ? to.low + at : NULL;
            quantize_block(x + at, to.high + at, low, to.step + scale, to.sum + scale, large[r]);
        }
    }
}

// ----------------------------------------------------------------------------
// 2 weights in panels of WIDE columns of the product

// For each block of C, LANES x WIDE lanes, and WIDE numbers d and m.
struct Int8Panel {
    lane* q;
    float* d;
    float* m;
};

// Makes the panel of rows o.. of a weight (OC, C), found in its parts; columns past OC are never
// used.
static void int8_panel(const Int8Panel& to, const std::vector<MappedPart>& parts, long o, long OC,
                       long C) {
    const long blocks = C / BLOCK;
    std::vector<int8_t> q(C);
    std::vector<float> d(blocks);
    std::vector<float> m(blocks);
    std::vector<int16_t> wide(16 * C);                   // 16 rows, to be transposed
    for (int j = 0; j < WIDE; j++) {
        if (o + j < OC) {
            const MappedPart& part = part_of(parts, o + j);
            const unsigned char* row = part.m->row[part.row_of(o + j)];
            part.m->to_int8(row, C, q.data(), d.data(), m.data());
            std::copy(q.begin(), q.end(), &wide[j % 16 * C]);
        }
        for (long b = 0; b < blocks; b++) {
            to.d[b*WIDE + j] = d[b];
            to.m[b*WIDE + j] = m[b];
        }
        if (j % 16 < 15) { continue; }
        for (long b = 0; b < blocks; b++) {
            const char* from = (const char*)&wide[b*BLOCK];
            lane* columns = to.q + b*LANES*WIDE + j - 15;
            kernel_for(false).transpose(columns, WIDE, from, C * sizeof(int16_t));
        }
    }
}

// ----------------------------------------------------------------------------
// 3 the product

// Does what _mm512_dpwssd_epi32 does, for which GCC 12 copies every sum, and has too few registers.
TARGET_VNNI static inline void add_pairs(__m512i* sum, __m512i x, __m512i q) {
    asm("vpdpwssd %2, %1, %0" : "+v"(*sum) : "v"(x), "v"(q));
}

// A block of some rows of x.
struct Int16Block {
    const int16_t* x;               // rows C apart
    const float* step;              // C / BLOCK apart
    const float* sum;               // likewise
    long C;
};

// A block of a panel.
struct Int8Block {
    const lane* q;                  // (LANES, WIDE)
    const float* d;                 // (WIDE)
    const float* m;                 // (WIDE)
};

// Computes sums (H, WIDE) = or += by s d (sum of x q) over a block [+ m times the sum of x]. Not
// inline: GCC would hold the sums in registers over all blocks, and has none left for this one.
template <int H, bool MINIMUM>
TARGET_VNNI __attribute__((noinline)) void add_block(float* sums, Int16Block a, Int8Block w,
                                                     float by, bool add) {
    const long blocks = a.C / BLOCK;
    const lane* q = w.q;
    __m512i sum[H][2];
    #pragma GCC unroll 12
    for (int i = 0; i < H; i++) {
        sum[i][0] = sum[i][1] = _mm512_setzero_si512();
    }
    for (int l = 0; l < LANES; l++, q += WIDE) {
        const __m512i q0 = _mm512_loadu_si512(q);
        const __m512i q1 = _mm512_loadu_si512(q + 16);
        #pragma GCC unroll 12
        for (int i = 0; i < H; i++) {
            const lane* row = (const lane*)(a.x + i*a.C);
            const __m512i x = _mm512_set1_epi32(row[l]);
            add_pairs(&sum[i][0], x, q0);
            add_pairs(&sum[i][1], x, q1);
        }
    }
    const __m512 d0 = _mm512_loadu_ps(w.d), d1 = _mm512_loadu_ps(w.d + 16);
    const __m512 m0 = _mm512_loadu_ps(w.m), m1 = _mm512_loadu_ps(w.m + 16);
    const __mmask16 old = add ? -1 : 0;
    #pragma GCC unroll 12
    for (int i = 0; i < H; i++, sums += WIDE) {
        const __m512 s = _mm512_set1_ps(a.step[i * blocks] * by);
        __m512 c0 = _mm512_maskz_loadu_ps(old, sums);
        __m512 c1 = _mm512_maskz_loadu_ps(old, sums + 16);
        c0 = _mm512_fmadd_ps(_mm512_cvtepi32_ps(sum[i][0]), _mm512_mul_ps(s, d0), c0);
        c1 = _mm512_fmadd_ps(_mm512_cvtepi32_ps(sum[i][1]), _mm512_mul_ps(s, d1), c1);
        if (MINIMUM) {
            const __m512 x = _mm512_set1_ps(a.sum[i * blocks]);
            c0 = _mm512_fmadd_ps(x, m0, c0);
            c1 = _mm512_fmadd_ps(x, m1, c1);
        }
        _mm512_storeu_ps(sums, c0);
        _mm512_storeu_ps(sums + 16, c1);
    }
}

// Computes sums (H, WIDE) = H rows of x, which lie in one tile, times a panel
template <int H> void int8_sums(float* sums, const Int16Rows& x, const Int8Panel& w, long C) {
    for (long b = 0; b < C / BLOCK; b++) {
        const Int8Block block = { w.q + b*LANES*WIDE, w.d + b*WIDE, w.m + b*WIDE };
        const Int16Block high = { x.high + b*BLOCK, x.step + b, x.sum + b, C };
        add_block<H, true>(sums, high, block, 1, b > 0);
        if (!x.both[b]) { continue; }
        const Int16Block low = { x.low + b*BLOCK, x.step + b, NULL, C };
        add_block<H, false>(sums, low, block, 0x1p-16f, true);
    }
}

// Computes rows i .. i + H, which lie in one tile, and the columns o.. of one panel. rows: x from
// row i on
template <int H>
void int8_rows(const Linear<float>& to, const Int16Rows& rows, long i, long o,
               const Int8Panel& w) {
    const long cols = std::min<long>(WIDE, to.OC - o);
    const auto at = [&](int r) { return (i + r) * to.ld + o; };
    for (int r = 0; r < H; r++) {                        // will be written when sums are there
        const float* row = to.out + at(r);
        for (long n = 0; n < cols; n += 16) { __builtin_prefetch(row + n, 1); }
    }
    alignas(64) float sums[H * WIDE];
    int8_sums<H>(sums, rows, w, to.C);
    for (int r = 0; r < H; r++) {
        float* const c = sums + r*WIDE;
        if (to.residual) {
            const float* residual = to.residual + at(r);
            for (long n = 0; n < cols; n++) { c[n] += residual[n]; }
        }
        if (to.bias) {
            for (long n = 0; n < cols; n++) {
                c[n] += to.bias[o + n];
            }
        }
        memcpy(to.out + at(r), c, cols * sizeof(float));
    }
}

// Computes the rows of tile t and the columns o.. of a panel.
static void int8_tile(const Linear<float>& to, const Int16Rows& x, long t, long o,
                      const Int8Panel& w) {
    const long end = std::min<long>(to.N, (t + 1) * TALL);
    long i = t * TALL;
    const auto take = [&](int H, auto rows) {
        for (; end - i >= H; i += H) {
            rows(to, x.from(i, t, to.C), i, o, w);
        }
    };
    take(12, int8_rows<12>);
    take(8, int8_rows<8>);
    take(4, int8_rows<4>);
    take(2, int8_rows<2>);
    take(1, int8_rows<1>);
}

// Memory for x and a megabyte or two of weights, made anew for each product.
struct Int8Room {
    std::vector<int16_t> high, low;
    std::vector<float> step, sum, d, m;
    std::vector<uint8_t> both;
    std::vector<uint32_t> q;

    template <class X> static X* at_least(std::vector<X>* v, size_t n) {
        if (v->size() < n) { v->resize(n); }
        return v->data();
    }

    // for N rows of C numbers
    Int16Rows rows(long N, long C) {
        const long scales = N * C / BLOCK;
        const long tiles = div_up(N, TALL);
        return { at_least(&high, N * C), at_least(&low, N * C), at_least(&step, scales),
                 at_least(&sum, scales), at_least(&both, tiles * (C / BLOCK)) };
    }

    // for some panels of C numbers, side by side
    Int8Panel panels(long n, long C) {
        const long scales = C / BLOCK * WIDE;
        return { (lane*)at_least(&q, n * scales * LANES), at_least(&d, n * scales),
                 at_least(&m, n * scales) };
    }
};

// Returns panel p of these.
static Int8Panel panel_at(const Int8Panel& all, long p, long C) {
    const long scales = C / BLOCK * WIDE;
    return { all.q + p * scales * LANES, all.d + p * scales, all.m + p * scales };
}

// Tells whether all rows of a weight have integers.
static bool all_int8(const std::vector<MappedPart>& parts) {
    for (const MappedPart& part : parts) {
        if (!part.m || !part.m->to_int8) { return false; }
    }
    return true;
}

// Tells whether integers are allowed for a layer, and faster.
static bool int8_pays(const Linear<float>& x) {
    if (!product_settings.split_floats || split_here() || !int8_here()) { return false; }
    if (mapped.all.empty() || x.C % BLOCK) { return false; }
    return x.N >= 32 && x.OC >= 64 && x.C >= 256;
}

bool int8_forward(const Linear<float>& to) {
    if (!int8_pays(to)) { return false; }
    const long N = to.N;
    const long C = to.C;
    const long OC = to.OC;
    const std::vector<MappedPart> parts = mapped_parts(to.weight, C, OC);
    if (!all_int8(parts)) { return false; }

    static thread_local Int8Room room;
    const long tiles = div_up(N, TALL);
    const Int16Rows x = room.rows(N, C);
    #pragma omp parallel for
    for (long t = 0; t < tiles; t++) {
        const int rows = (int)std::min<long>(TALL, N - t*TALL);
        quantize_tile(to.inp + t*TALL*C, rows, C, x.from(t * TALL, t, C));
    }

    enum { AT_ONCE = 1 << 20, ROWS_BYTES = 400 << 10 };  // weights; of x, in the second cache
    const long fit = std::min<long>(OC, AT_ONCE / C);
    const long wide = std::max<long>(WIDE, fit / WIDE * WIDE);
    const long tiles_at_once = std::max<long>(1, ROWS_BYTES / 2 / C / TALL);
    const Int8Panel w = room.panels(div_up(wide, WIDE), C);
    for (long o = 0; o < OC; o += wide) {
        const long panels = div_up(std::min<long>(wide, OC - o), WIDE);
        #pragma omp parallel for schedule(dynamic)
        for (long p = 0; p < panels; p++) {
            int8_panel(panel_at(w, p, C), parts, o + p*WIDE, OC, C);
        }
        #pragma omp parallel for schedule(dynamic)
        for (long t0 = 0; t0 < tiles; t0 += tiles_at_once) {
            const long end = std::min(tiles, t0 + tiles_at_once);
            for (long p = 0; p < panels; p++) {
                const Int8Panel panel = panel_at(w, p, C);
                for (long t = t0; t < end; t++) { int8_tile(to, x, t, o + p*WIDE, panel); }
            }
        }
    }
    return true;
}
#else
bool int8_here() { return false; }

bool int8_forward(const Linear<float>&) { return false; }
#endif
} // namespace cpu
