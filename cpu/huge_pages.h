/*
huge_pages.h -- huge pages. With 4 kB pages the rows of a tile, and the panels of a block, span more
pages than the TLB holds.
*/
#ifndef CPU_HUGE_PAGES_H
#define CPU_HUGE_PAGES_H
#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>

const size_t LARGE_PAGE = 2 << 20;

// Asks for huge pages for the whole pages of a block; carries on without if there are none.
inline void use_large_pages(void* block, size_t bytes) {
#ifdef MADV_HUGEPAGE
    const uintptr_t page = 4096, begin = ((uintptr_t)block + page - 1) / page * page;
    const uintptr_t end = ((uintptr_t)block + bytes) / page * page;
    madvise((void*)begin, end - begin, MADV_HUGEPAGE);
#else
    (void)block, (void)bytes;
#endif
}
#endif // CPU_HUGE_PAGES_H
