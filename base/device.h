/*
device.h -- the device of a backend on the CPU, which is the host itself. It has the names of
cuda/device.cuh: memory, copies, and how work is cut. Beside these, sums and copies of rows.
*/
#ifndef CPU_DEVICE_H
#define CPU_DEVICE_H
#include "common.h"
#include <omp.h>
#ifndef REAL
#define REAL float
#endif

namespace host {
// ----------------------------------------------------------------------------
// 1 what a backend says of itself

static const char* const name = "ref";
enum { large = 256 };                   // side of matrices that bench multiplies
enum { piece_rows = 0 };                // a batch is not cut into pieces
static const bool on_host = true;       // host code may read device memory as it is
static const bool reads_mapped = false; // weights may stay in their file (cpu/mapped_weights.h)

// When only losses are needed, logits are computed for this many vocabulary entries at a time
// (0: all).
static const int lm_head_part = 0;

// Returns for how many rows the V logits, of `size` bytes each, are alive at once. Each chunk of
// rows reads all of lm_head and adds to all of its gradient, so chunks are large: some 256 MiB, but
// 512 rows at least; a quarter of that without training.
inline long lm_head_rows(long V, long size, bool train) {
    const long fits = (256L << 20) / (V * size) / 512 * 512;
    const long rows = std::max(512L, fits);
    return train ? rows : rows / 4;
}

// Describes the hardware in one line.
inline const std::string& device_start() {
    const int n = omp_get_max_threads();
    static const std::string once = strf("%d thread%s", n, n > 1 ? "s" : "");
    return once;
}

// Only cuda tunes its products, records what it repeats (cuda/graph.cuh) and has a profile of a
// step.
inline void tune_products(bool) {}
inline void profile_step() {}
inline void repeated(const std::vector<size_t>&, const std::function<void()>& f) { f(); }

// ----------------------------------------------------------------------------
// 2 work in parts

enum { PART = 64 };                     // rows that stay in a cache from one pass to the next

// Calls work(from, n) for all rows, a part at a time.
template <class Work> void in_parts(long rows, Work work) {
    #pragma omp parallel for schedule(dynamic) if (rows > PART)
    for (long from = 0; from < rows; from += PART) {
        work(from, std::min<int>(PART, rows - from));
    }
}

// The same for work(from, n, sums), which adds to sums (P, size). These go += to the P vectors of
// `to` that are not NULL, in the order of the parts, so the number of threads changes no bit.
template <class S, class Work>
void sum_parts(std::initializer_list<S*> to, long rows, long size, Work work) {
    const long width = (long)to.size() * size;
    const long parts = div_up(rows, PART);
    std::vector<S> sums(parts * width);
    in_parts(rows, [&](long from, int n) { work(from, n, &sums[from / PART * width]); });
    const S* sum = sums.data();
    for (long part = 0; part < parts; part++) {
        for (S* out : to) {
            for (long i = 0; out && i < size; i++) {
                out[i] += sum[i];
            }
            sum += size;
        }
    }
}

// The same for work(from, n, dx, dy), which adds to both.
template <class S, class Work> void in_parts(long rows, S* x, S* y, long size, Work work) {
    sum_parts({ x, y }, rows, size, [&](long from, int n, S* sums) {
        work(from, n, sums, sums + size);
    });
}

// ----------------------------------------------------------------------------
// 3 memory

// Returns zeroed memory on a cache line, and one more behind it, so that whole vectors can be read.
inline void* device_malloc(size_t bytes) {
    const size_t lines = round_up(bytes, 64) + 64;
    void* p = aligned_alloc(64, lines);
    if (!p) { out_of_memory(bytes); }
    memset(p, 0, lines);
    return p;
}

inline void device_free(void* p) { free(p); }

// Large blocks are zeroed in parallel: one core cannot saturate memory.
inline void device_zero(void* p, size_t bytes) {
    const size_t part = 1 << 20;
    #pragma omp parallel for if (bytes > 8 * part)
    for (size_t i = 0; i < bytes; i += part) {
        memset((char*)p + i, 0, std::min(part, bytes - i));
    }
}

inline void to_device(void* dst, const void* src, size_t bytes) { memcpy(dst, src, bytes); }
inline void device_copy(void* dst, const void* src, size_t n) { memcpy(dst, src, n); }
inline void to_host(void* dst, const void* src, size_t bytes) { memcpy(dst, src, bytes); }
inline void device_sync() {}

// ----------------------------------------------------------------------------
// 4 rows of numbers, whose sums are REAL

// Returns a . b, of n numbers each. A NULL b counts as zeros.
template <class X, class Y> REAL dot(const X* a, const Y* b, int n) {
    if (!b) { return 0; }
    REAL sum = 0;
    #pragma omp simd reduction(+ : sum)
    for (int i = 0; i < n; i++) {
        sum += REAL(a[i]) * REAL(b[i]);
    }
    return sum;
}

// Adds a multiple:  y (n) += a x.  Does nothing if y or x is NULL.
template <class X> void add_times(REAL* y, REAL a, const X* x, int n) {
    if (!x || !y) { return; }
    for (int i = 0; i < n; i++) {
        y[i] += a * REAL(x[i]);
    }
}

// Scales y (n) and adds x:  y = by y + x.  A NULL x counts as zeros.
template <class X> void add(X* y, const X* x, long n, REAL by = 1) {
    if (!x) {
        #pragma omp parallel for simd
        for (long i = 0; i < n; i++) { y[i] = by * REAL(y[i]); }
        return;
    }
    #pragma omp parallel for simd
    for (long i = 0; i < n; i++) { y[i] = by * REAL(y[i]) + REAL(x[i]); }
}

// Copies C numbers of each of N rows. The rows are out_width and inp_width apart: those of qkv hold
// more than q and k, or v
template <class X>
void copy_rows(X* out, int out_width, const X* inp, int inp_width, int N, int C) {
    #pragma omp parallel for if (N > 1)
    for (int n = 0; n < N; n++) {
        memcpy(out + (long)n * out_width, inp + (long)n * inp_width, C * sizeof(X));
    }
}

// Copies the weights to the type of tensors, unchanged where REAL is no wider
template <class X> void cast_to_real(X* dst, const REAL* src, long n) {
    if ((const void*)dst == (const void*)src) { return; }
    #pragma omp parallel for simd
    for (long i = 0; i < n; i++) { dst[i] = src[i]; }
}

// Moves a mean (n) toward x:  mean = (1 - part) mean + part x
inline void average(REAL* mean, const REAL* x, REAL part, long n) {
    #pragma omp parallel for simd
    for (long i = 0; i < n; i++) { mean[i] = (1 - part) * mean[i] + part * x[i]; }
}
} // namespace host
#endif // CPU_DEVICE_H
