/*
cpu/mapped_weights.cpp -- which rows of a weight lie in a file, and their floats when they are read.
*/
#include "mapped_weights.h"
#include <string.h>
#include <algorithm>
#include "memory.h"

namespace cpu {
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
} // namespace cpu
