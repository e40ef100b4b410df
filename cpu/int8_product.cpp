/*
cpu/int8_product.cpp -- what int8_product.h declares.
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

// a tile of out: at most TALL rows, WIDE columns; blocks of BLOCK numbers of each, LANES pairs
enum { TALL = 12, WIDE = 32, BLOCK = 32, LANES = BLOCK / 2 };

// ----------------------------------------------------------------------------
// 1 x in whole numbers

// (N, C): high and low, two numbers to a lane; (N, C / BLOCK): s, the sums of x; (tiles,
// C / BLOCK): are there low parts in a block of the rows of a tile? Else low is not written
struct WholeRows {
    int16_t *high, *low;
    float *step, *sum;
    uint8_t* both;

    WholeRows from(long row, long tile, long C, long blocks) const { // from a row of a tile on
        return { high + row*C, low + row*C, step + row*blocks, sum + row*blocks,
                 both + tile*blocks };
    }
};

// One block of x; `both`: with low parts, else low is zero if it is not NULL. The sum is that of
// what x becomes, so that what is lost of x is lost times w, not times w - m. What is not finite
// becomes NaN
TARGET_VNNI static void whole_block(const float* x, int16_t* high, int16_t* low, float* step,
                                    float* sum, bool both) {
    const __m512 x0 = _mm512_loadu_ps(x), x1 = _mm512_loadu_ps(x + 16), none = _mm512_setzero_ps();
    const float most = _mm512_reduce_max_ps(_mm512_max_ps(_mm512_abs_ps(x0), _mm512_abs_ps(x1)));
    const float zero = _mm512_reduce_add_ps(_mm512_fmadd_ps(x0, none, _mm512_mul_ps(x1, none)));
    const float by = most > 1e-30f ? 32767 / most : 0;
    const __m512 y0 = _mm512_mul_ps(x0, _mm512_set1_ps(by)),
                 y1 = _mm512_mul_ps(x1, _mm512_set1_ps(by));
    const __m512i q0 = _mm512_cvtps_epi32(y0), q1 = _mm512_cvtps_epi32(y1);
    _mm256_storeu_si256((__m256i*)high, _mm512_cvtepi32_epi16(q0));
    _mm256_storeu_si256((__m256i*)(high + 16), _mm512_cvtepi32_epi16(q1));
    *step = most / 32767 + zero;
    *sum = *step * (float)_mm512_reduce_add_epi32(_mm512_add_epi32(q0, q1));
    if (!low) { return; }
    const __m512 fine = _mm512_set1_ps(both ? 0x1p16f : 0);
    const __m512i r0 = _mm512_cvtps_epi32(
                      _mm512_mul_ps(_mm512_sub_ps(y0, _mm512_cvtepi32_ps(q0)), fine)),
                  r1 = _mm512_cvtps_epi32(
                      _mm512_mul_ps(_mm512_sub_ps(y1, _mm512_cvtepi32_ps(q1)), fine));
    _mm256_storeu_si256((__m256i*)low, _mm512_cvtsepi32_epi16(r0));
    _mm256_storeu_si256((__m256i*)(low + 16), _mm512_cvtsepi32_epi16(r1));
    *sum += *step * 0x1p-16f * (float)_mm512_reduce_add_epi32(_mm512_add_epi32(r0, r1));
}

TARGET_VNNI static float largest(const float* x) {
    const __m512 x0 = _mm512_loadu_ps(x), x1 = _mm512_loadu_ps(x + 16);
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

// the rows of a tile, x (rows, C)
static void whole_tile(const float* x, int rows, long C, const WholeRows& to) {
    const long blocks = C / BLOCK;
    float limit[TALL];
    for (int r = 0; r < rows; r++) { limit[r] = 12 * root_mean_square(x + r*C, C); }
    for (long b = 0; b < blocks; b++) {
        bool large[TALL], any = false;
        for (int r = 0; r < rows; r++) {
            large[r] = largest(x + r*C + b*BLOCK) > limit[r];
            any = any || large[r];
        }
        to.both[b] = any;
        for (int r = 0; r < rows; r++) {
            const long at = r*C + b*BLOCK, k = r*blocks + b;
            whole_block(x + at, to.high + at, any ? to.low + at : NULL, to.step + k, to.sum + k,
                        large[r]);
        }
    }
}

// ----------------------------------------------------------------------------
// 2 weights in panels of WIDE columns of the product

// a panel: of each block LANES x WIDE lanes, and WIDE numbers d and m
struct WholePanel {
    lane* q;
    float *d, *m;
};

// the panel of rows o.. of a weight (OC, C), found in its parts; columns past OC mean nothing
static void whole_panel(const WholePanel& to, const std::vector<MappedPart>& parts, long o, long OC,
                        long C) {
    const long blocks = C / BLOCK;
    std::vector<int8_t> q(C);
    std::vector<float> d(blocks), m(blocks);
    std::vector<int16_t> wide(16 * C);                   // 16 rows, to be turned over
    for (int j = 0; j < WIDE; j++) {
        const MappedPart* part = parts.data();
        while (o + j < OC && o + j >= part->to) { part++; }
        if (o + j < OC) {
            const unsigned char* row = part->m->row[part->first + o + j - part->from];
            part->m->to_int8(row, C, q.data(), d.data(), m.data());
            std::copy(q.begin(), q.end(), &wide[j % 16 * C]);
        }
        for (long b = 0; b < blocks; b++) {
            to.d[b*WIDE + j] = d[b];
            to.m[b*WIDE + j] = m[b];
        }
        for (long b = 0; j % 16 == 15 && b < blocks; b++) {
            kernel_for(false).transpose(to.q + b*LANES*WIDE + j - 15, WIDE,
                                        (const char*)&wide[b*BLOCK], C * sizeof(int16_t));
        }
    }
}

// ----------------------------------------------------------------------------
// 3 the product

// _mm512_dpwssd_epi32, for which GCC 12 copies every sum, and has not as many registers
TARGET_VNNI static inline void add_pairs(__m512i* sum, __m512i x, __m512i q) {
    asm("vpdpwssd %2, %1, %0" : "+v"(*sum) : "v"(x), "v"(q));
}

// where a block of some rows of x is
struct WholeLeft {
    const int16_t* x;
    const float *step, *sum;
    long C, blocks;                 // from row to row, of x and of step and sum
};

// sums (H, WIDE) = or += by s d (sum of x q) over a block [+ m times the sum of x]. Not inline:
// GCC would hold the sums in registers over all blocks, and has none left for this one
template <int H, bool MINIMUM>
TARGET_VNNI __attribute__((noinline)) void whole_add(float* sums, WholeLeft a, const lane* q,
                                                     const float* d, const float* m, float by,
                                                     bool add) {
    __m512i sum[H][2];
    #pragma GCC unroll 12
    for (int i = 0; i < H; i++) { sum[i][0] = sum[i][1] = _mm512_setzero_si512(); }
    for (int l = 0; l < LANES; l++, q += WIDE) {
        const __m512i q0 = _mm512_loadu_si512(q), q1 = _mm512_loadu_si512(q + 16);
        #pragma GCC unroll 12
        for (int i = 0; i < H; i++) {
            const __m512i x = _mm512_set1_epi32(((const lane*)(a.x + i*a.C))[l]);
            add_pairs(&sum[i][0], x, q0);
            add_pairs(&sum[i][1], x, q1);
        }
    }
    const __m512 d0 = _mm512_loadu_ps(d), d1 = _mm512_loadu_ps(d + 16);
    const __m512 m0 = _mm512_loadu_ps(m), m1 = _mm512_loadu_ps(m + 16);
    const __mmask16 old = add ? -1 : 0;
    #pragma GCC unroll 12
    for (int i = 0; i < H; i++, sums += WIDE) {
        const __m512 s = _mm512_set1_ps(a.step[i * a.blocks] * by);
        __m512 c0 = _mm512_maskz_loadu_ps(old, sums), c1 = _mm512_maskz_loadu_ps(old, sums + 16);
        c0 = _mm512_fmadd_ps(_mm512_cvtepi32_ps(sum[i][0]), _mm512_mul_ps(s, d0), c0);
        c1 = _mm512_fmadd_ps(_mm512_cvtepi32_ps(sum[i][1]), _mm512_mul_ps(s, d1), c1);
        if (MINIMUM) {
            const __m512 x = _mm512_set1_ps(a.sum[i * a.blocks]);
            c0 = _mm512_fmadd_ps(x, m0, c0);
            c1 = _mm512_fmadd_ps(x, m1, c1);
        }
        _mm512_storeu_ps(sums, c0);
        _mm512_storeu_ps(sums + 16, c1);
    }
}

// sums (H, WIDE) = H rows of x, which lie in one tile, times a panel
template <int H> void whole_sums(float* sums, const WholeRows& x, const WholePanel& w, long C) {
    const long blocks = C / BLOCK;
    for (long b = 0; b < blocks; b++) {
        const lane* q = w.q + b*LANES*WIDE;
        const float *d = w.d + b*WIDE, *m = w.m + b*WIDE;
        const WholeLeft high = { x.high + b*BLOCK, x.step + b, x.sum + b, C, blocks };
        whole_add<H, true>(sums, high, q, d, m, 1, b > 0);
        if (!x.both[b]) { continue; }
        const WholeLeft low = { x.low + b*BLOCK, x.step + b, NULL, C, blocks };
        whole_add<H, false>(sums, low, q, d, m, 0x1p-16f, true);
    }
}

// where the product goes
struct WholeOut {
    float* out;
    const float *bias, *residual;
    long OC;
};

// rows i.. (H of them, in one tile) and the columns o.. of one panel; x: from row i on
template <int H>
void whole_rows(const WholeOut& to, const WholeRows& x, long i, long o, long C,
                const WholePanel& w) {
    const long cols = std::min<long>(WIDE, to.OC - o);
    for (int r = 0; r < H; r++) {                        // will be written when sums are there
        float* const row = to.out + (i + r) * to.OC + o;
        for (long n = 0; n < cols; n += 16) { __builtin_prefetch(row + n, 1); }
    }
    alignas(64) float sums[H * WIDE];
    whole_sums<H>(sums, x, w, C);
    for (int r = 0; r < H; r++) {
        float* const c = sums + r*WIDE;
        const long row = (i + r) * to.OC + o;
        for (long n = 0; to.residual && n < cols; n++) { c[n] += to.residual[row + n]; }
        for (long n = 0; to.bias && n < cols; n++) { c[n] += to.bias[o + n]; }
        memcpy(to.out + row, c, cols * sizeof(float));
    }
}

// the rows of tile t and a panel
static void whole_product(const WholeOut& to, const WholeRows& x, long t, long N, long o, long C,
                          const WholePanel& w) {
    const long blocks = C / BLOCK, end = std::min(N, (t + 1) * TALL);
    long i = t * TALL;
    const auto some = [&](int H, auto call) {
        for (; end - i >= H; i += H) { call(to, x.from(i, t, C, blocks), i, o, C, w); }
    };
    some(12, whole_rows<12>);
    some(8, whole_rows<8>);
    some(4, whole_rows<4>);
    some(2, whole_rows<2>);
    some(1, whole_rows<1>);
}

// x and a megabyte or two of weights, made anew for each product
struct WholeRoom {
    std::vector<int16_t> high, low;
    std::vector<float> step, sum, d, m;
    std::vector<uint8_t> both;
    std::vector<uint32_t> q;

    template <class X> static X* at_least(std::vector<X>* v, size_t n) {
        if (v->size() < n) { v->resize(n); }
        return v->data();
    }
};

bool int8_forward(float* out, const float* inp, const float* weight, const float* bias,
                      const float* residual, int N, int C, int OC) {
    if (!product_settings.split_floats || split_here() || !int8_here()) { return false; }
    if (mapped.all.empty()) { return false; }
    if (N < 32 || OC < 64 || C < 256 || C % BLOCK) { return false; }
    const std::vector<MappedPart> parts = mapped_parts(weight, C, OC);
    for (auto& p : parts) { if (!p.m || !p.m->to_int8) { return false; } }
    static thread_local WholeRoom room;
    const long blocks = C / BLOCK, tiles = div_up(N, TALL), numbers = (long)N * C;
    const WholeRows x = {
        room.at_least(&room.high, numbers), room.at_least(&room.low, numbers),
        room.at_least(&room.step, numbers / BLOCK), room.at_least(&room.sum, numbers / BLOCK),
        room.at_least(&room.both, tiles * blocks)
    };
    #pragma omp parallel for
    for (long t = 0; t < tiles; t++) {
        whole_tile(inp + t*TALL*C, (int)std::min<long>(TALL, N - t*TALL), C,
                   x.from(t * TALL, t, C, blocks));
    }
    enum { AT_ONCE = 1 << 20, ROWS_BYTES = 400 << 10 };  // weights; of x, in the second cache
    const long wide = std::max<long>(WIDE, std::min<long>(OC, AT_ONCE / C) / WIDE * WIDE);
    const long lanes = blocks * LANES * WIDE, scales = blocks * WIDE, panels = div_up(wide, WIDE);
    uint32_t* const q = room.at_least(&room.q, panels * lanes);
    float* const d = room.at_least(&room.d, panels * scales);
    float* const m = room.at_least(&room.m, panels * scales);
    const auto panel = [=](long p) {
        return WholePanel{ (lane*)q + p*lanes, d + p*scales, m + p*scales };
    };
    const long some = std::max<long>(1, ROWS_BYTES / 2 / C / TALL);       // tiles at a time
    for (long o = 0; o < OC; o += wide) {
        const long here = div_up(std::min<long>(wide, OC - o), WIDE);
        #pragma omp parallel for schedule(dynamic)
        for (long p = 0; p < here; p++) { whole_panel(panel(p), parts, o + p*WIDE, OC, C); }
        #pragma omp parallel for schedule(dynamic)
        for (long t0 = 0; t0 < tiles; t0 += some) {
            for (long p = 0; p < here; p++) {
                for (long t = t0; t < std::min(tiles, t0 + some); t++) {
                    whole_product({ out, bias, residual, OC }, x, t, N, o + p*WIDE, C, panel(p));
                }
            }
        }
    }
    return true;
}
#else
bool int8_here() { return false; }

bool int8_forward(float*, const float*, const float*, const float*, const float*, int, int,
                      int) {
    return false;
}
#endif
} // namespace cpu
