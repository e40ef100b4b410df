/*
device.h -- what a backend on the CPU says of its device, which is the host itself: names of
cuda/device.cuh.
*/
#ifndef CPU_DEVICE_H
#define CPU_DEVICE_H
#include "../common.h"
#include "huge_pages.h"
#ifdef _OPENMP
#include <omp.h>
#endif
#ifndef REAL
#define REAL float
#endif

namespace host {
static const bool on_host = true;  // host code may read device memory as it is

// rows of V logits, of `size` bytes each, that are alive at once:
// each chunk of rows reads all of lm_head and adds to all of its gradient, so few chunks,
// of 256 MiB, a quarter of it without training
inline long lm_head_rows(long V, long size, bool train) {
    return std::max(512L, (256L << 20) / (V * size) / 512 * 512) / (train ? 1 : 4);
}

// so many tokens of the vocabulary have logits at once where only losses are wanted; 0: all
static const int lm_head_part = 0;

// what there is to compute with, in one line
inline const std::string& device_start() {
#ifdef _OPENMP
    static const std::string once = strf("%d threads", omp_get_max_threads());
#else
    static const std::string once = "1 thread, built without OpenMP";
#endif
    return once;
}

// work(from, n) on all of these rows: a part at a time, which stays in a core's cache from one pass
// over it to the next
enum { PART = 64 };
template <class Work> void in_parts(long rows, Work work) {
    #pragma omp parallel for schedule(dynamic) if (rows > PART)
    for (long from = 0; from < rows; from += PART) { work(from, std::min<int>(PART, rows - from)); }
}

// the same for work(from, n, sums), which adds to sums (P, size): these go += to the P vectors of
// `to`, unless NULL, in the order of the parts, so that the number of threads changes no bit
template <class S, class Work>
void sum_parts(std::initializer_list<S*> to, long rows, long size, Work work) {
    const long width = (long)to.size() * size;
    std::vector<S> sums((rows + PART - 1) / PART * width);
    in_parts(rows, [&](long from, int n) { work(from, n, &sums[from / PART * width]); });
    const S* part = sums.data();
    for (long from = 0; from < rows; from += PART) {
        for (S* out : to) {
            for (long i = 0; out && i < size; i++) { out[i] += part[i]; }
            part += size;
        }
    }
}

// in_parts for work(from, n, dx, dy), which adds to both
template <class S, class Work> void in_parts(long rows, S* x, S* y, long size, Work work) {
    sum_parts({ x, y }, rows, size, [&](long from, int n, S* sums) {
        work(from, n, sums, sums + size);
    });
}

// Zeroed, on a cache line, so that whole vectors and tiles are read; its size is stored before it.
// A large block takes memory only where it is written: weights may stay in their file
// (mapped_weights.h)
struct BlockHead { void* block; size_t mapped; };       // mapped: its bytes, or 0 if it is malloc's

inline void* device_malloc(size_t bytes) {
    const size_t room = bytes + 128;
    BlockHead head = { NULL, bytes >= 2 * LARGE_PAGE ? room : 0 };
    if (head.mapped) {
        head.block = mmap(NULL, room, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (head.block == MAP_FAILED) { out_of_memory(bytes); }
        use_large_pages(head.block, room);
    } else {
        head.block = xmalloc(room);
    }
    char* p = (char*)(((uintptr_t)head.block + 127) & ~(uintptr_t)63);
    memcpy(p - sizeof head, &head, sizeof head);
    return p;
}

// cpu: may weights stay as their file keeps them?
static const bool reads_mapped = false;

// cpu: what the metrics of every layer need is kept, or no longer
inline void   keep_rows_for_metrics(bool)                                {}
// cuda: worth timing its products
inline void   tune_products()                                 {}
inline void device_free(void* p) {
    if (!p) { return; }
    BlockHead head;
    memcpy(&head, (char*)p - sizeof head, sizeof head);
    if (head.mapped) { munmap(head.block, head.mapped); }
    else             { free(head.block); }
}

// what is large is shared out: one core alone does not fill the memory's bandwidth
inline void   device_zero(void* p, size_t bytes) {
    const size_t part = 1 << 20;
    #pragma omp parallel for if (bytes > 8 * part)
    for (size_t i = 0; i < bytes; i += part) { memset((char*)p + i, 0, std::min(part, bytes - i)); }
}

inline void   to_device(void* dst, const void* src, size_t bytes) { memcpy(dst, src, bytes); }
inline void   device_copy(void* dst, const void* src, size_t n)   { memcpy(dst, src, n); }
inline void   to_host(void* dst, const void* src, size_t bytes)   { memcpy(dst, src, bytes); }
inline void   device_sync()                                       {}
// the system swaps
inline size_t device_left()                                       { return SIZE_MAX; }
} // namespace host
#endif // CPU_DEVICE_H
