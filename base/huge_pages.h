/*
huge_pages.h -- pages of 2 MB. With 4 kB pages the rows of a tile, and the panels of a block, span
more pages than the TLB holds.
*/
#ifndef CPU_HUGE_PAGES_H
#define CPU_HUGE_PAGES_H
#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>

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
#endif // CPU_HUGE_PAGES_H
