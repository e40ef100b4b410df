/*
cpu/mapped_weights.cpp -- what mapped_weights.h declares. The layouts of blocks are those of
open/gguf.h:

    Q4_0   | d | 16 bytes of 4 + 4 bits |          w = d (q - 8)         d, m: halves
    Q4_1   | d | m | 16 bytes |                    w = d q + m           byte i: q_i, q_16+i
    Q8_0   | d | 32 bytes |                        w = d q

    1 a row times x with AVX-512
    2 the same with AVX2
    3 which types have one, and which become integers
    4 the matrices that stay
*/
#include "mapped_weights.h"
#include <stdint.h>
#include <string.h>
#include <algorithm>
#include "half.h"
#include "huge_pages.h"
#if defined __x86_64__
#include "intrinsics.h"
#define TARGET_AVX512 __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,f16c,fma")))
#define TARGET_AVX2 __attribute__((target("avx2,f16c,fma")))
#endif

namespace cpu {
enum { Q8_0_BYTES = 2 + 32 };           // a block of 32 weights

#ifdef TARGET_AVX512
// ----------------------------------------------------------------------------
// 1 a row times x with AVX-512

// Returns the two halves at p as floats: the scale d of a block and, where it has one, its minimum
// m.
TARGET_AVX2 static inline __m128 halves(const unsigned char* p) {
    int bits;
    memcpy(&bits, p, 4);
    return _mm_cvtph_ps(_mm_cvtsi32_si128(bits));
}

TARGET_AVX2 static inline float scale_of(__m128 d_m) { return _mm_cvtss_f32(d_m); }

TARGET_AVX2 static inline float minimum_of(__m128 d_m) {
    return _mm_cvtss_f32(_mm_movehdup_ps(d_m));
}

// Return 16 numbers of 8 bits, without and with a sign, as floats.
TARGET_AVX512 static __m512 floats_of(__m128i bytes) {
    return _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(bytes));
}

TARGET_AVX512 static __m512 signed_floats(const unsigned char* p) {
    const __m128i bytes = _mm_loadu_si128((const __m128i*)p);
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(bytes));
}

// Returns the products q_i x_i of a block of 4 bits, to be summed.
TARGET_AVX512 static __m512 nibbles(const unsigned char* p, const float* x) {
    const __m128i low = _mm_set1_epi8(15);
    const __m128i bytes = _mm_loadu_si128((const __m128i*)p);
    const __m512 q0 = floats_of(_mm_and_si128(bytes, low));
    const __m512 q1 = floats_of(_mm_and_si128(_mm_srli_epi16(bytes, 4), low));
    const __m512 first = _mm512_mul_ps(q0, _mm512_loadu_ps(x));
    return _mm512_fmadd_ps(q1, _mm512_loadu_ps(x + 16), first);
}

// Q4_1 if MINIMUM, else Q4_0
template <bool MINIMUM>
TARGET_AVX512 static float dot_q4(const unsigned char* p, const float* x, const float* sums,
                                  long n) {
    enum { SCALES = MINIMUM ? 4 : 2 };
    __m512 sum = _mm512_setzero_ps();
    float rest = 0;                                 // of what is added to d q
    for (long b = 0; b < n / 32; b++, p += SCALES + 16) {
        const __m128 d_m = halves(p);
        sum = _mm512_fmadd_ps(_mm512_broadcastss_ps(d_m), nibbles(p + SCALES, x + 32*b), sum);
        const float d = scale_of(d_m);
        const float m = minimum_of(d_m);
        rest += (MINIMUM ? m : -8 * d) * sums[b];
    }
    return _mm512_reduce_add_ps(sum) + rest;
}

TARGET_AVX512 static float dot_q8_0(const unsigned char* p, const float* x, const float*, long n) {
    __m512 sum = _mm512_setzero_ps();
    for (long i = 0; i < n; i += 32, p += Q8_0_BYTES) {
        const __m512 x0 = _mm512_loadu_ps(x + i);
        const __m512 x1 = _mm512_loadu_ps(x + i + 16);
        const __m512 first = _mm512_mul_ps(signed_floats(p + 2), x0);
        const __m512 both = _mm512_fmadd_ps(signed_floats(p + 18), x1, first);
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
// 2 the same with AVX2. A reader for each type gives 32 weights as four vectors, not scaled

// 8 numbers of 8 bits without a sign
TARGET_AVX2 static inline __m256 floats8(__m128i bytes) {
    return _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(bytes));
}

template <bool MINIMUM> struct ReadQ4 {
    enum { SCALES = MINIMUM ? 4 : 2, BYTES = SCALES + 16, SUMS = true };

    TARGET_AVX2 static inline void read(const unsigned char* p, __m256* w) {
        const __m128i low = _mm_set1_epi8(15);
        const __m128i bytes = _mm_loadu_si128((const __m128i*)p);
        const __m128i first = _mm_and_si128(bytes, low);
        const __m128i second = _mm_and_si128(_mm_srli_epi16(bytes, 4), low);
        w[0] = floats8(first);
        w[1] = floats8(_mm_srli_si128(first, 8));
        w[2] = floats8(second);
        w[3] = floats8(_mm_srli_si128(second, 8));
    }

    // Returns what the block adds for each unit of the sum of x.
    TARGET_AVX2 static inline float minimum(const unsigned char* p) {
        const __m128 d_m = halves(p);
        return MINIMUM ? minimum_of(d_m) : -8 * scale_of(d_m);
    }
};

struct ReadQ8 {
    enum { SCALES = 2, BYTES = Q8_0_BYTES, SUMS = false };

    TARGET_AVX2 static inline void read(const unsigned char* p, __m256* w) {
        for (int i = 0; i < 4; i++) {
            const __m128i bytes = _mm_loadl_epi64((const __m128i*)(p + 8*i));
            w[i] = _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes));
        }
    }
};

// 16 bits each, without a scale: bf16 if BRAIN, else half precision
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

// Tells whether the processor converts halves. (clang's __builtin_cpu_supports cannot be asked.)
static bool f16c_here() {
    unsigned a, b, c, d;
    return __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C);
}

// Returns the sum of the numbers of a vector.
TARGET_AVX2 static float add_all(__m256 sum) {
    const __m128 four = _mm_add_ps(_mm256_castps256_ps128(sum), _mm256_extractf128_ps(sum, 1));
    const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(two) + _mm_cvtss_f32(_mm_movehdup_ps(two));
}

template <class Reader>
TARGET_AVX2 static float dot_avx2(const unsigned char* p, const float* x, const float* sums,
                                  long n) {
    __m256 sum = _mm256_setzero_ps();
    float rest = 0;
    for (long b = 0; b < n / 32; b++, p += Reader::BYTES, x += 32) {
        __m256 w[4];
        Reader::read(p + Reader::SCALES, w);
        __m256 block = _mm256_setzero_ps();
        for (int i = 0; i < 4; i++) {
            block = _mm256_fmadd_ps(w[i], _mm256_loadu_ps(x + 8*i), block);
        }
        const float scale = Reader::SCALES > 0 ? scale_of(halves(p)) : 1;
        sum = _mm256_fmadd_ps(_mm256_set1_ps(scale), block, sum);
        if constexpr (Reader::SUMS) { rest += Reader::minimum(p) * sums[b]; }
    }
    return add_all(sum) + rest;
}
#endif

// ----------------------------------------------------------------------------
// 3 which types have one, and which become integers

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

// Q4_1 if MINIMUM, else Q4_0
template <bool MINIMUM>
static void int8_of_q4(const unsigned char* p, long n, int8_t* q, float* d, float* m) {
    enum { SCALES = MINIMUM ? 4 : 2, ZERO = MINIMUM ? 0 : 8 };
    for (long b = 0; b < n / 32; b++, p += SCALES + 16, q += 32) {
        d[b] = half_at(p);
        m[b] = MINIMUM ? half_at(p + 2) : 0;
        for (int i = 0; i < 16; i++) {
            const unsigned char both = p[SCALES + i];
            q[i]      = (both & 15) - ZERO;
            q[16 + i] = (both >> 4) - ZERO;
        }
    }
}

static void int8_of_q8_0(const unsigned char* p, long n, int8_t* q, float* d, float* m) {
    for (long b = 0; b < n / 32; b++, p += Q8_0_BYTES, q += 32) {
        d[b] = half_at(p);
        m[b] = 0;
        memcpy(q, p + 2, 32);
    }
}

RowToInt8* row_to_int8(const std::string& type) {
    if (type == "Q4_0") { return int8_of_q4<false>; }
    if (type == "Q4_1") { return int8_of_q4<true>; }
    if (type == "Q8_0") { return int8_of_q8_0; }
    return NULL;
}

// ----------------------------------------------------------------------------
// 4 the matrices that stay

void mapped_add(const float* at, const MappedMatrix& m) {
    mapped.all[at] = m;
    const size_t bytes = m.rows * m.cols * sizeof(float);
    const Pages pages(at, bytes);
    if (pages.bytes == 0) { return; }
#ifdef MADV_NOHUGEPAGE
    // else a norm between two matrices would fill a huge page
    madvise(pages.begin, pages.bytes, MADV_NOHUGEPAGE);
#endif
    // (a small one may lie in memory that malloc uses again)
    if (bytes >= 2 * LARGE_PAGE) { mprotect(pages.begin, pages.bytes, PROT_NONE); }
}

std::vector<MappedPart> mapped_parts(const float* weight, long C, long OC) {
    std::vector<MappedPart> parts;
    for (long o = 0, to; o < OC; o = to) {
        const float* at = weight + o * C;
        auto next = mapped.all.upper_bound(at);             // the first matrix that begins later
        const long before_next = next == mapped.all.end() ? OC : (next->first - weight) / C;
        to = std::min(OC, std::max(o + 1, before_next));
        MappedPart part = { NULL, o, to, 0 };
        if (next != mapped.all.begin()) {
            const auto& [begin, m] = *--next;
            part.first = (at - begin) / C;
            if (m.cols == C && part.first < m.rows) {
                part.m = &m;
                part.to = to = std::min(to, o + m.rows - part.first);
            }
        }
        parts.push_back(part);
    }
    return parts;
}

WeightRows<float> weight_rows(const float* weight, int C, int OC) {
    if (mapped.all.empty()) { return { weight, OC }; }
    const std::vector<MappedPart> all = mapped_parts(weight, C, OC);
    if (all.size() == 1 && !all[0].m) { return { weight, OC }; }
    enum { AT_ONCE = 1 << 20 };                             // floats: they stay in a cache
    const int n = std::min<long>(OC, std::max(1, AT_ONCE / C));
    static thread_local std::vector<float> room;
    room.resize(std::max<size_t>(room.size(), (size_t)n * C));
    float* const to = room.data();
    #pragma omp parallel for if ((long)n * C > 1 << 15)
    for (int o = 0; o < n; o++) {
        const MappedPart& part = part_of(all, o);
        const long at = (long)o * C;
        if (part.m) { part.m->read(part.row_of(o), to + at); }
        else        { memcpy(to + at, weight + at, C * sizeof(float)); }
    }
    return { to, n };
}

bool mapped_forward(const Linear<float>& x) {
    const int C = x.C;
    if (mapped.all.empty() || C % 32) { return false; }
    const std::vector<MappedPart> parts = mapped_parts(x.weight, C, x.OC);
    for (const MappedPart& part : parts) {
        if (!part.m || !part.m->dot) { return false; }
    }
    std::vector<float> sums(C / 32);
    for (int i = 0; i < C; i++) { sums[i / 32] += x.inp[i]; }
    #pragma omp parallel for if ((long)C * x.OC > 1 << 17)
    for (int o = 0; o < x.OC; o++) {
        const MappedPart& part = part_of(parts, o);
        const MappedMatrix& m = *part.m;
        float sum = m.dot(m.row[part.row_of(o)], x.inp, sums.data(), C);
        if (x.residual) { sum += x.residual[o]; }
        if (x.bias) { sum += x.bias[o]; }
        x.out[o] = sum;
    }
    return true;
}
} // namespace cpu
