/*
cpu/mapped_weights.cpp -- what mapped_weights.h declares. The layouts of blocks are those of
models/gguf.h.
*/
#include "mapped_weights.h"
#include <stdint.h>
#include <string.h>
#include <algorithm>
#include "huge_pages.h"
#include "product.h"
#include "../models/weights.h"
#if defined __x86_64__
#include "intrinsics.h"
#define TARGET_AVX512 __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,f16c,fma")))
#define TARGET_AVX2 __attribute__((target("avx2,f16c,fma")))
#endif

namespace cpu {
#ifdef TARGET_AVX512
// ----------------------------------------------------------------------------
// 1 rows times x with AVX-512

// two halves at p as floats: the scale of a block and, where it has one, its minimum
TARGET_AVX2 static inline __m128 halves(const unsigned char* p) {
    int bits;
    memcpy(&bits, p, 4);
    return _mm_cvtph_ps(_mm_cvtsi32_si128(bits));
}

// 16 numbers of 8 bits, without and with a sign, as floats
TARGET_AVX512 static __m512 floats_of(__m128i bytes) {
    return _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(bytes));
}

TARGET_AVX512 static __m512 signed_floats(const unsigned char* p) {
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i*)p)));
}

// the sum of q_i x_i of a block of 4 bits: byte i holds number i and number 16 + i
TARGET_AVX512 static __m512 nibbles(const unsigned char* p, const float* x) {
    const __m128i bytes = _mm_loadu_si128((const __m128i*)p), low = _mm_set1_epi8(15);
    const __m512 q0 = floats_of(_mm_and_si128(bytes, low));
    const __m512 q1 = floats_of(_mm_and_si128(_mm_srli_epi16(bytes, 4), low));
    return _mm512_fmadd_ps(q1, _mm512_loadu_ps(x + 16), _mm512_mul_ps(q0, _mm512_loadu_ps(x)));
}

// w = d (q - 8), or d q + m: then d and m precede the block's numbers
template <bool MINIMUM>
TARGET_AVX512 static float dot_q4(const unsigned char* p, const float* x, const float* sums,
                                  long n) {
    enum { SCALES = MINIMUM ? 4 : 2 };
    __m512 sum = _mm512_setzero_ps();
    float rest = 0;
    for (long b = 0; b < n / 32; b++, p += SCALES + 16) {
        const __m128 d_m = halves(p);
        sum = _mm512_fmadd_ps(_mm512_broadcastss_ps(d_m), nibbles(p + SCALES, x + 32*b), sum);
        const float d = _mm_cvtss_f32(d_m), m = _mm_cvtss_f32(_mm_movehdup_ps(d_m));
        rest += (MINIMUM ? m : -8 * d) * sums[b];
    }
    return _mm512_reduce_add_ps(sum) + rest;
}

// w = d q
TARGET_AVX512 static float dot_q8_0(const unsigned char* p, const float* x, const float*, long n) {
    __m512 sum = _mm512_setzero_ps();
    for (long i = 0; i < n; i += 32, p += 34) {
        const __m512 first = _mm512_mul_ps(signed_floats(p + 2), _mm512_loadu_ps(x + i));
        const __m512 both = _mm512_fmadd_ps(signed_floats(p + 18), _mm512_loadu_ps(x + i + 16),
                                            first);
        sum = _mm512_fmadd_ps(_mm512_broadcastss_ps(halves(p)), both, sum);
    }
    return _mm512_reduce_add_ps(sum);
}

TARGET_AVX512 static float dot_bf16(const unsigned char* p, const float* x, const float*, long n) {
    __m512 sum = _mm512_setzero_ps();
    for (long i = 0; i < n; i += 16) {
        const __m256i bits = _mm256_loadu_si256((const __m256i*)(p + 2*i));
        const __m512i wide = _mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16);
        sum = _mm512_fmadd_ps(_mm512_castsi512_ps(wide), _mm512_loadu_ps(x + i), sum);
    }
    return _mm512_reduce_add_ps(sum);
}

TARGET_AVX512 static float dot_f16(const unsigned char* p, const float* x, const float*, long n) {
    __m512 sum = _mm512_setzero_ps();
    for (long i = 0; i < n; i += 16) {
        const __m512 w = _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i*)(p + 2*i)));
        sum = _mm512_fmadd_ps(w, _mm512_loadu_ps(x + i), sum);
    }
    return _mm512_reduce_add_ps(sum);
}

// ----------------------------------------------------------------------------
// 2 the same with AVX2: a reader for each type of 32 weights as four vectors, without their scale

TARGET_AVX2 static inline float scale_at(const unsigned char* p) {
    return _mm_cvtss_f32(halves(p));
}

// 8 numbers of 8 bits without a sign
TARGET_AVX2 static inline __m256 floats8(__m128i bytes) {
    return _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(bytes));
}

template <bool MINIMUM> struct ReadQ4 {
    enum { SCALES = MINIMUM ? 4 : 2, BYTES = SCALES + 16, SUMS = true };

    TARGET_AVX2 static inline void read(const unsigned char* p, __m256* w) {
        const __m128i bytes = _mm_loadu_si128((const __m128i*)p), low = _mm_set1_epi8(15);
        const __m128i first = _mm_and_si128(bytes, low),
                      second = _mm_and_si128(_mm_srli_epi16(bytes, 4), low);
        w[0] = floats8(first);
        w[1] = floats8(_mm_srli_si128(first, 8));
        w[2] = floats8(second);
        w[3] = floats8(_mm_srli_si128(second, 8));
    }

    // what is added for each unit of the sum of x
    TARGET_AVX2 static inline float minimum(const unsigned char* p) {
        return MINIMUM ? _mm_cvtss_f32(_mm_movehdup_ps(halves(p))) : -8 * scale_at(p);
    }
};

struct ReadQ8 {
    enum { SCALES = 2, BYTES = 34, SUMS = false };

    TARGET_AVX2 static inline void read(const unsigned char* p, __m256* w) {
        for (int i = 0; i < 4; i++) {
            const __m128i bytes = _mm_loadl_epi64((const __m128i*)(p + 8*i));
            w[i] = _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes));
        }
    }
};

// 16 bits each, without a scale
template <bool BRAIN> struct ReadHalf {
    enum { SCALES = 0, BYTES = 64, SUMS = false };

    TARGET_AVX2 static inline void read(const unsigned char* p, __m256* w) {
        for (int i = 0; i < 4; i++) {
            const __m128i bits = _mm_loadu_si128((const __m128i*)(p + 16*i));
            const __m256i wide = _mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16);
            w[i] = BRAIN ? _mm256_castsi256_ps(wide) : _mm256_cvtph_ps(bits);
        }
    }
};

// Can the processor make floats of halves? (clang's __builtin_cpu_supports cannot be asked.)
static bool f16c_here() {
    unsigned a, b, c, d;
    return __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C);
}

template <class Reader>
TARGET_AVX2 static float dot_avx2(const unsigned char* p, const float* x, const float* sums,
                                  long n) {
    __m256 sum = _mm256_setzero_ps();
    float rest = 0;
    for (long b = 0; b < n / 32; b++, p += Reader::BYTES, x += 32) {
        __m256 w[4], part = _mm256_setzero_ps();
        Reader::read(p + Reader::SCALES, w);
        for (int i = 0; i < 4; i++) {
            part = _mm256_fmadd_ps(w[i], _mm256_loadu_ps(x + 8*i), part);
        }
        const float scale = Reader::SCALES > 0 ? scale_at(p) : 1;
        sum = _mm256_fmadd_ps(_mm256_set1_ps(scale), part, sum);
        if constexpr (Reader::SUMS) { rest += Reader::minimum(p) * sums[b]; }
    }
    const __m128 four = _mm_add_ps(_mm256_castps256_ps128(sum), _mm256_extractf128_ps(sum, 1));
    const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(two) + _mm_cvtss_f32(_mm_movehdup_ps(two)) + rest;
}
#endif

// ----------------------------------------------------------------------------
// 3 which types have one, and which have whole numbers

RowDot* row_dot(const std::string& type) {
#ifdef TARGET_AVX512
    static const struct { const char* type; RowDot *avx512, *avx2; } rows[] = {
        { "Q4_0", dot_q4<false>, dot_avx2<ReadQ4<false>> },
        { "Q4_1", dot_q4<true>, dot_avx2<ReadQ4<true>> },
        { "Q8_0", dot_q8_0, dot_avx2<ReadQ8> },
        { "BF16", dot_bf16, dot_avx2<ReadHalf<true>> },
        { "F16", dot_f16, dot_avx2<ReadHalf<false>> },
    };
    static const bool f16c = f16c_here();
    const std::string kernel = kernel_for(false).name;      // as products do, or as --product says
    for (auto& row : rows) {
        if (type != row.type) { continue; }
        if (kernel == "avx512") { return row.avx512; }
        if (kernel == "avx2" && f16c) { return row.avx2; }
    }
#endif
    (void)type;
    return NULL;
}

// as dot_q4 and dot_q8_0 read them
template <bool MINIMUM>
static void whole_q4(const unsigned char* p, long n, int8_t* q, float* d, float* m) {
    enum { SCALES = MINIMUM ? 4 : 2, ZERO = MINIMUM ? 0 : 8 };
    for (long b = 0; b < n / 32; b++, p += SCALES + 16, q += 32) {
        d[b] = half_at(p);
        m[b] = MINIMUM ? half_at(p + 2) : 0;
        for (int i = 0; i < 16; i++) {
            q[i]      = (p[SCALES + i] & 15) - ZERO;
            q[16 + i] = (p[SCALES + i] >> 4) - ZERO;
        }
    }
}

static void whole_q8_0(const unsigned char* p, long n, int8_t* q, float* d, float* m) {
    for (long b = 0; b < n / 32; b++, p += 34, q += 32) {
        d[b] = half_at(p);
        m[b] = 0;
        memcpy(q, p + 2, 32);
    }
}

RowToInt8* row_to_int8(const std::string& type) {
    if (type == "Q4_0") { return whole_q4<false>; }
    if (type == "Q4_1") { return whole_q4<true>; }
    return type == "Q8_0" ? whole_q8_0 : NULL;
}

// ----------------------------------------------------------------------------
// 4 the matrices that stay

void mapped_add(const float* at, const MappedMatrix& m) {
    mapped.all[at] = m;
    const size_t bytes = m.rows * m.cols * sizeof(float), page = 4096;
    const uintptr_t begin = ((uintptr_t)at + page - 1) / page * page,
                    end = ((uintptr_t)at + bytes) / page * page;
    if (begin >= end) { return; }
#ifdef MADV_NOHUGEPAGE
    // else a norm between two matrices would fill a large page
    madvise((void*)begin, end - begin, MADV_NOHUGEPAGE);
#endif
    // (a small one may lie in memory that malloc uses again)
    if (bytes >= 2 * LARGE_PAGE) { mprotect((void*)begin, end - begin, PROT_NONE); }
}

std::vector<MappedPart> mapped_parts(const float* weight, long C, long OC) {
    std::vector<MappedPart> parts;
    for (long o = 0, to; o < OC; o = to) {
        const float* at = weight + o * C;
        auto next = mapped.all.upper_bound(at);
        const long before = next == mapped.all.end() ? OC : (next->first - weight) / C;
        to = std::min(OC, std::max(o + 1, before));
        if (next == mapped.all.begin()) {
            parts.push_back({ NULL, o, to, 0 });
            continue;
        }
        const auto& [begin, m] = *--next;
        const long first = (at - begin) / C;
        const bool here = m.cols == C && first < m.rows;
        if (here) { to = std::min(to, o + m.rows - first); }
        parts.push_back({ here ? &m : NULL, o, to, first });
    }
    return parts;
}

WeightRows<float> weight_rows(const float* weight, int C, int OC) {
    if (mapped.all.empty()) { return { weight, OC }; }
    const std::vector<MappedPart> all = mapped_parts(weight, C, OC);
    if (all.size() == 1 && !all[0].m) { return { weight, OC }; }
    enum { AT_ONCE = 1 << 20 };                      // floats: they stay in a cache until used
    const int n = std::min<long>(OC, std::max(1, AT_ONCE / C));
    static thread_local std::vector<float> room;
    room.resize(std::max<size_t>(room.size(), (size_t)n * C));
    float* const to = room.data();
    #pragma omp parallel for if ((long)n * C > 1 << 15)
    for (int o = 0; o < n; o++) {
        const MappedPart* part = all.data();
        while (o >= part->to) { part++; }
        if (part->m) { part->m->read(part->first + o - part->from, to + (long)o * C); }
        else         { memcpy(to + (long)o * C, weight + (long)o * C, C * sizeof(float)); }
    }
    return { to, n };
}

bool mapped_forward(float* out, const float* inp, const float* weight, const float* bias,
                    const float* residual, int C, int OC) {
    if (mapped.all.empty() || C % 32) { return false; }
    const std::vector<MappedPart> parts = mapped_parts(weight, C, OC);
    for (auto& p : parts) { if (!p.m || !p.m->dot) { return false; } }
    std::vector<float> sums(C / 32);
    for (int i = 0; i < C; i++) { sums[i / 32] += inp[i]; }
    #pragma omp parallel for if ((long)C * OC > 1 << 17)
    for (int o = 0; o < OC; o++) {
        const MappedPart* part = parts.data();
        while (o >= part->to) { part++; }
        const unsigned char* row = part->m->row[part->first + o - part->from];
        float sum = part->m->dot(row, inp, sums.data(), C);
        if (residual) { sum += residual[o]; }
        if (bias) { sum += bias[o]; }
        out[o] = sum;
    }
    return true;
}
} // namespace cpu
