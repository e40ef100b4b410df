/*
memory.h -- large pages. The rows of a tile, and the panels of a block, lie in more small pages than
a processor remembers the places of.
*/
#ifndef CPU_MEMORY_H
#define CPU_MEMORY_H
#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>

const size_t LARGE_PAGE = 2 << 20;

// asks the system for large pages where a block has any. Not to be had is no error
inline void use_large_pages(void* block, size_t bytes) {
#ifdef MADV_HUGEPAGE
    const uintptr_t page = 4096, begin = ((uintptr_t)block + page - 1) / page * page;
    const uintptr_t end = ((uintptr_t)block + bytes) / page * page;
    madvise((void*)begin, end - begin, MADV_HUGEPAGE);
#else
    (void)block, (void)bytes;
#endif
}
#endif // CPU_MEMORY_H
