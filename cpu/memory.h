/*
memory.h -- memory of this backend, in pages of 2 MB where it is large. With 4 kB pages the rows of
a tile, and the panels of a block, span more pages than the TLB holds.
*/
#ifndef CPU_MEMORY_H
#define CPU_MEMORY_H
#include <sys/mman.h>
#include "../base/common.h"

namespace cpu {
const size_t SMALL_PAGE = 4096;
const size_t LARGE_PAGE = 2 << 20;

// The whole pages of a block.
struct Pages {
    void* begin;
    size_t bytes;                       // 0: there is none

    Pages(const void* block, size_t size) {
        const uintptr_t first = ((uintptr_t)block + SMALL_PAGE - 1) / SMALL_PAGE * SMALL_PAGE;
        const uintptr_t end = ((uintptr_t)block + size) / SMALL_PAGE * SMALL_PAGE;
        begin = (void*)first;
        bytes = end > first ? end - first : 0;
    }
};

// Asks for huge pages for a block; carries on without if there are none.
inline void use_large_pages(void* block, size_t bytes) {
#ifdef MADV_HUGEPAGE
    const Pages pages(block, bytes);
    madvise(pages.begin, pages.bytes, MADV_HUGEPAGE);
#else
    (void)block;
    (void)bytes;
#endif
}

// Allocates n bytes of zeros.
inline void* xmalloc(size_t n) {
    void* p = calloc(n, 1);
    if (!p) { out_of_memory(n); }
    return p;
}

// Stands right before a block.
struct BlockHead {
    void* block;                        // as malloc or mmap returned it
    size_t mapped;                      // bytes to unmap; 0 if it is malloc's
};

// Returns zeroed memory on a cache line, so that whole vectors and tiles can be read. A large block
// takes memory only where it is written: weights may stay in their file (mapped_weights.h).
inline void* device_malloc(size_t bytes) {
    const size_t room = bytes + 128;
    BlockHead head = { NULL, bytes >= 2 * LARGE_PAGE ? room : 0 };
    if (head.mapped) {
        const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
        head.block = mmap(NULL, room, PROT_READ | PROT_WRITE, flags, -1, 0);
        if (head.block == MAP_FAILED) { out_of_memory(bytes); }
        use_large_pages(head.block, room);
    } else {
        head.block = xmalloc(room);
    }
    const uintptr_t after_head = (uintptr_t)head.block + 127;
    char* p = (char*)(after_head & ~(uintptr_t)63);
    memcpy(p - sizeof head, &head, sizeof head);
    return p;
}

inline void device_free(void* p) {
    if (!p) { return; }
    BlockHead head;
    memcpy(&head, (char*)p - sizeof head, sizeof head);
    if (head.mapped) { munmap(head.block, head.mapped); }
    else             { free(head.block); }
}

// Memory that grows where more is wanted, on a cache line or, if it is large, on a huge page. What
// it held is lost then.
struct Buffer {
    void* block = NULL;
    void* begin = NULL;
    size_t bytes = 0;

    ~Buffer() { free(block); }

    void* room(size_t wanted) {
        if (bytes >= wanted) { return begin; }
        const bool large = wanted >= LARGE_PAGE / 2;
        const size_t page = large ? LARGE_PAGE : 64;
        bytes = round_up(wanted, page);
        free(block);
        block = xmalloc(bytes + page);
        begin = (void*)round_up((uintptr_t)block, page);
        if (large) { use_large_pages(begin, bytes); }
        return begin;
    }
};
} // namespace cpu
#endif // CPU_MEMORY_H
