/*
dev/emulator/emu_counts.h -- what a kernel asks of the memory, counted in the emulator.
Included by emu.h under EMU_COUNT.

The compiler is made to call a function at every load and store: -fsanitize=thread puts the calls
there, and the functions below stand in for ThreadSanitizer's library, which is not linked:
    g++ -c -fsanitize=thread -DEMU -DEMU_COUNT ... -o x.o && g++ x.o -fopenmp -o x
With EMU_COUNTS=FILE in the environment the program writes a table at its end, a row a kernel:
    launches, blocks, empty      empty: blocks in which no thread touches device memory
    read, written                bytes of device memory that threads ask for (cp.async too),
                                 each access as often as it is made
    missed, evicted              bytes that an L2 of EMU_L2 KiB would have to fetch, and those
                                 it would write back, sooner or later, of what this kernel wrote:
                                 an LRU over lines of 128 bytes, met by EMU_RESIDENT blocks
                                 at a time that take turns, the threads of each in step
    conflicts                    extra cycles of plain accesses to shared memory:
                                 lanes of a warp that want different words of one bank at once.
                                 Accesses of a thread to neighboring words are taken as one
    ldmatrix                     the same for ldmatrix
With EMU_COUNTS_BETWEEN=KERNEL counting begins after its first launch and ends with its second:
one training step. The n-th access of a warp's lanes at one place of the program is taken
to be one instruction, which holds where its loops run equally often in all lanes. Not counted:
registers that spill, caches other than L2, the products of cublasLt.
*/
#ifndef EMU_COUNTS_H
#define EMU_COUNTS_H
#include <algorithm>
#include <deque>
#include <map>
#include <string>
#include <unordered_map>
#include <vector>

namespace emu {
// bytes of a line; lines that a block touches before the next one's turn
enum { LINE = 128, TURN = 32 };
struct KernelCounts {
    uint64_t launches, blocks, empty, read, written, missed, evicted, conflicts, ldmatrix;
};
struct Access1 { uint32_t addr[32]; uint8_t size[32]; uint32_t lanes; };
struct L2 { // the least recently used line goes
    // dirty: by which kernel
    struct Line { uint64_t id; KernelCounts* dirty; int older, newer; };
    size_t capacity;
    std::vector<Line> lines;
    std::unordered_map<uint64_t, int> where;
    int newest = -1, oldest = -1;
};
// of one block: line number * 2, + 1 if written
struct Lines { std::vector<uint64_t> ids; size_t at = 0; };

struct Counting {
    std::map<std::string, KernelCounts> kernels;
    KernelCounts* k = nullptr;
    const char* name = nullptr;
    bool touched = false;
    // of the block: a thread's n-th access, and the line
    std::vector<std::pair<uint32_t, uint64_t>> touches;
    std::vector<uint32_t> nth;
    std::deque<Lines> resident; size_t most_resident; L2 l2;
    std::unordered_map<const void*, uint32_t> places;        // of the program: numbered from 0
    std::vector<std::vector<uint16_t>> times;                // how often each thread has been there
    std::unordered_map<uint64_t, Access1> shared;            // by warp, place and time
    struct Last { Access1* access; uint32_t end; bool write; };
    std::vector<Last> last;                                      // of each thread
    char *lo = nullptr, *hi = nullptr;                           // the allocation touched last
    uint64_t ldmatrix_before = 0;
    // the kernel that begins and ends the count; how often launched
    std::string between; int met = 0;
};
inline Counting& counting = *new Counting;
inline bool counting_on;             // apart from it: asked before constructors have run
inline bool counting_active = true;  // between the two launches, if EMU_COUNTS_BETWEEN is given
inline bool counting_busy;           // the standard library's containers below are instrumented too
struct Busy {
    RT Busy() { counting_busy = true; }
    RT ~Busy() { counting_busy = false; }
};

// a line is touched: fetched if it is not there
RT inline void l2_touch(uint64_t word) {
    L2& c = counting.l2;
    auto unlink = [&](int i) {
        L2::Line& l = c.lines[i];
        (l.newer < 0 ? c.newest : c.lines[l.newer].older) = l.older;
        (l.older < 0 ? c.oldest : c.lines[l.older].newer) = l.newer;
    };
    const uint64_t id = word / 2;
    auto it = c.where.find(id);
    int i;
    if (it != c.where.end()) { unlink(i = it->second); }
    else {
        if (c.lines.size() < c.capacity) { i = (int)c.lines.size(); c.lines.push_back({}); }
        else {
            unlink(i = c.oldest);
            if (c.lines[i].dirty) { c.lines[i].dirty->evicted += LINE; }
            c.where.erase(c.lines[i].id);
        }
        // a line that is written first need not be fetched
        if (!(word & 1)) { counting.k->missed += LINE; }
        c.lines[i] = { id };
        c.where[id] = i;
    }
    L2::Line& l = c.lines[i];
    if (word & 1) { l.dirty = counting.k; }
    l.older = c.newest; l.newer = -1;
    if (c.newest >= 0) { c.lines[c.newest].newer = i; } else { c.oldest = i; }
    c.newest = i;
}
// resident blocks take turns until at most `left` remain
RT inline void l2_run(size_t left) {
    while (counting.resident.size() > left) {
        for (size_t b = 0; b < counting.resident.size();) {
            Lines& t = counting.resident[b];
            for (int i = 0; i < TURN && t.at < t.ids.size(); i++) { l2_touch(t.ids[t.at++]); }
            if (t.at < t.ids.size()) { b++; continue; }
            counting.resident.erase(counting.resident.begin() + b);
            if (counting.resident.size() <= left) { return; }    // the next block takes its place
        }
    }
}
// what is still to be written back
RT inline void l2_flush() {
    for (L2::Line& l : counting.l2.lines) {
        if (l.dirty) { l.dirty->evicted += LINE; }
        l.dirty = nullptr;
    }
}
RT inline void count_lines(const void* p, size_t n, bool write) {
    const uint32_t nth = counting.nth[now - block->threads]++;
    for (uint64_t l = (uintptr_t)p / LINE; l <= ((uintptr_t)p + n - 1) / LINE; l++) {
        counting.touches.push_back({ nth, l * 2 + write });
    }
}
// a block's threads as if all went in step: their n-th accesses together, each line once
RT inline Lines in_step() {
    auto& t = counting.touches;
    std::sort(t.begin(), t.end());
    t.erase(std::unique(t.begin(), t.end()), t.end());
    Lines out;
    for (auto& x : t) { out.ids.push_back(x.second); }
    t.clear();
    return out;
}
RT inline void count_shared(const void* p, unsigned size, bool write, const void* place) {
    Counting& c = counting;
    const unsigned t = (unsigned)(now - block->threads), addr = (unsigned)(uintptr_t)p;
    Counting::Last& last = c.last[t];
    if (last.access && last.write == write && last.end == addr &&
        last.access->size[now->lane] + size <= 16) {  // a vector's next word
        last.access->size[now->lane] += size;
        last.end += size;
        return;
    }
    const uint32_t at = c.places.emplace(place, (uint32_t)c.places.size()).first->second;
    if (c.times[t].size() <= at) { c.times[t].resize(at + 16); }
    Access1& a = c.shared[(uint64_t)(t / 32) << 48 | (uint64_t)at << 16 | c.times[t][at]++];
    a.addr[now->lane] = addr; a.size[now->lane] = size; a.lanes |= 1u << now->lane;
    last = { &a, addr + size, write };
}
// cycles beyond one for each of the phases of a warp's access: 32 lanes of up to 4 bytes,
// 16 of 8, 8 of 16
RT inline uint64_t conflicts_of(const Access1& a) {
    unsigned widest = 4;
    for (int l = 0; l < 32; l++) {
        if (a.lanes >> l & 1 && a.size[l] > widest) { widest = a.size[l] > 8 ? 16 : 8; }
    }
    const int lanes = 128 / widest;
    uint64_t extra = 0;
    for (int from = 0; from < 32; from += lanes) {
        std::vector<uint32_t> words;
        for (int l = from; l < from + lanes; l++) {
            for (unsigned w = a.addr[l] / 4;
                 a.lanes >> l & 1 && w <= (a.addr[l] + a.size[l] - 1) / 4; w++) {
                words.push_back(w);
            }
        }
        std::sort(words.begin(), words.end());
        words.erase(std::unique(words.begin(), words.end()), words.end());
        int bank[32] = {}, most = 1;
        for (uint32_t w : words) { most = std::max(most, ++bank[w % 32]); }
        extra += most - 1;
    }
    return extra;
}
RT inline void count_access(const void* p, unsigned size, bool write, const void* place) {
    if (!counting_on || !counting_active || counting_busy || now == &host || !block) { return; }
    // a thread's own variables
    if ((char*)p >= now->stack && (char*)p < now->stack + settings.stack) { return; }
    Busy busy;
    Counting& c = counting;
    if (is_shared(p, size)) { count_shared(p, size, write, place); return; }
    if ((char*)p < c.lo || (char*)p >= c.hi) {
        Memory* m = device_memory(p);
        if (!m) { return; }
        c.lo = m->p; c.hi = m->p + m->n;
    }
    c.touched = true;
    (write ? c.k->written : c.k->read) += size;
    count_lines(p, size, write);
}
// "(attention_forward_kernel<A, Bi>)" -> attention_forward_kernel
RT inline void count_launch(const char* name) {
    if (!counting_on) { return; }
    Counting& c = counting;
    std::string plain(name + (*name == '('));
    plain = plain.substr(0, plain.find('<'));
    if (!c.between.empty()) {
        counting_active = c.met == 1;
        c.met += plain == c.between;
        if (!counting_active) { return; }
    }
    c.k = &c.kernels[plain];
    c.k->launches++;
    c.lo = c.hi = nullptr;
    c.ldmatrix_before = counts.conflicts;
}
RT inline void count_block_begin() {
    if (!counting_on || !counting_active) { return; }
    Busy busy;
    Counting& c = counting;
    c.touched = false;
    c.times.assign(block->n, {});
    c.nth.assign(block->n, 0);
    c.last.assign(block->n, {});
    c.shared.clear();
}
RT inline void count_block_end() {
    if (!counting_on || !counting_active) { return; }
    Busy busy;
    Counting& c = counting;
    c.k->blocks++;
    c.k->empty += !c.touched;
    for (auto& a : c.shared) { c.k->conflicts += conflicts_of(a.second); }
    c.resident.push_back(in_step());
    l2_run(c.most_resident - 1);
}
RT inline void count_launch_end() {
    if (!counting_on || !counting_active) { return; }
    Busy busy;
    Counting& c = counting;
    l2_run(0);
    c.k->ldmatrix += counts.conflicts - c.ldmatrix_before;
}
inline const char* counts_file;
RT inline void counts_start(const char* file, const char* l2, const char* resident,
                            const char* between) {
    counts_file = file;
    counting_on = true;
    counting.between = between;
    counting.l2.capacity = (*l2 ? atoll(l2) : 40 << 10) * 1024 / LINE;
    counting.most_resident = *resident ? atoll(resident) : 108;
    if (!counting.l2.capacity || !counting.most_resident) {
        fail("EMU_L2 and EMU_RESIDENT: wanted KiB and blocks, above 0");
    }
    atexit([] {
        FILE* f = fopen(counts_file, "w");
        if (!f) { fprintf(stderr, "emulated: cannot write %s\n", counts_file); return; }
        l2_flush();
        fprintf(f, "kernel\tlaunches\tblocks\tempty\tread\twritten\tmissed\tevicted\t"
                   "conflicts\tldmatrix\n");
        for (auto& k : counting.kernels) {
            const KernelCounts& x = k.second;
            fprintf(f, "%s", k.first.c_str());
            for (uint64_t v : { x.launches, x.blocks, x.empty, x.read, x.written, x.missed,
                                x.evicted, x.conflicts, x.ldmatrix }) {
                fprintf(f, "\t%lu", (unsigned long)v);
            }
            fprintf(f, "\n");
        }
        fclose(f);
    });
}
} // namespace emu

// what the compiler calls
#define EMU_TSAN_ENTRY extern "C" __attribute__((used, weak, no_sanitize_thread))
#define EMU_ACCESS(name, size, write, ...) \
    EMU_TSAN_ENTRY void __tsan_##name(void* p, ##__VA_ARGS__) { \
        emu::count_access(p, size, write, __builtin_return_address(0)); \
    }
#define EMU_ACCESSES(size) \
    EMU_ACCESS(read##size, size, false) \
    EMU_ACCESS(write##size, size, true) \
    EMU_ACCESS(unaligned_read##size, size, false) \
    EMU_ACCESS(unaligned_write##size, size, true)
EMU_ACCESSES(1)
EMU_ACCESSES(2)
EMU_ACCESSES(4)
EMU_ACCESSES(8)
EMU_ACCESSES(16)
EMU_ACCESS(read_range, n, false, unsigned long n)
EMU_ACCESS(write_range, n, true, unsigned long n)
EMU_TSAN_ENTRY void __tsan_init() {}
EMU_TSAN_ENTRY void __tsan_func_entry(void*) {}
EMU_TSAN_ENTRY void __tsan_func_exit(void*) {}
EMU_TSAN_ENTRY void __tsan_vptr_update(void**, void*) {}
EMU_TSAN_ENTRY void __tsan_vptr_read(void**) {}
#define EMU_ATOMIC(bits) \
    EMU_TSAN_ENTRY uint##bits##_t __tsan_atomic##bits##_load(const volatile void* p, int) { \
        return __atomic_load_n((const uint##bits##_t*)p, __ATOMIC_SEQ_CST); \
    } \
    EMU_TSAN_ENTRY uint##bits##_t __tsan_atomic##bits##_fetch_add(volatile void* p, \
                                                                  uint##bits##_t v, int) { \
        return __atomic_fetch_add((uint##bits##_t*)p, v, __ATOMIC_SEQ_CST); \
    }
EMU_ATOMIC(8)
EMU_ATOMIC(32)
EMU_ATOMIC(64)
#endif // EMU_COUNTS_H
