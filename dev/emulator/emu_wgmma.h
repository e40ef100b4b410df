/*
dev/emulator/emu_wgmma.h -- what Hopper adds: products of a warpgroup, the fence between the two
proxies, movmatrix, named barriers. By the PTX ISA 9.0; a part of emu.h.

A warp computes its own 16 rows of the 64, so one warp operation does where hardware has one of
four warps; that the four do the same is checked by a list of what the group has begun.

    late    a product is done when wgmma_wait says so, no sooner: until then its sums are NaN, and
            so is a left side in registers; what it reads in memory may not be overwritten
    eager   it is done at once (settings.eager, EMU_EAGER=1): finds tiles that have not arrived

Of every 16 bytes of dynamic shared memory it is known whether a product may see them: cp.async and
generic stores (wrote) go by another proxy. Who wrote has to wait for its copies and to call
fence_async, and then comes a barrier.

What wgmma reads or adds to in registers was written, then hold() said that this is all, then came
wgmma_fence: the same bytes as at that hold() are asked for. Hardware sees no hold(), but without
it the compiler may write them after the fence.
*/
#ifndef EMU_WGMMA_H
#define EMU_WGMMA_H

namespace emu {
// ----------------------------------------------------------------------------
// what the proxy of wgmma sees

enum { SHARED_AT = 1024 + 128 };          // where dynamic memory begins: at no multiple of 1024
enum Phase : uint8_t { SEEN, COPYING, WRITTEN, FENCED };
// of 16 bytes: what happened to them last, by which thread, before which barrier
struct Written { Phase phase; uint16_t by; uint32_t barriers; };

inline uint32_t shared_address(const void* p) {
    return (uint32_t)((const char*)p - block->dynamic.p) + SHARED_AT;
}
RT inline void written(const void* p, size_t n, Phase phase) {
    if (!in(block->dynamic, p, n)) { return; }
    const size_t from = ((const char*)p - block->dynamic.p) / 16;
    const size_t to = ((const char*)p + n - 1 - block->dynamic.p) / 16;
    for (size_t i = from; i <= to; i++) {
        block->chunks[i] = Written{ phase, (uint16_t)(now - block->threads), 0 };
        if (phase == WRITTEN) { now->unfenced.push((uint32_t)i); }
    }
}
// a generic store to memory that a product is to read
RT inline void wrote(const void* p, size_t n) { written(p, n, WRITTEN); }
RT inline void fence_async() {
    for (uint32_t i : now->unfenced) {
        Written& w = block->chunks[i];
        if (w.phase != WRITTEN || w.by != now - block->threads) { continue; }
        w.phase = FENCED;
        w.barriers = block->barriers;
    }
    now->unfenced.n = 0;
}

// ----------------------------------------------------------------------------
// descriptions: bits 0-13 address, 16-29 LBO, 32-45 SBO, each over 16; 49-51 base offset;
// 62-63 swizzle: 1 of 128 bytes, 2 of 64, 3 of 32. Element (mn, k) of a tile of rows of S bytes:
//     K-major    mn % 8 S + mn / 8 SBO + 2 k
//     MN-major   2 (mn % (S/2)) + mn / (S/2) LBO + k % 8 S + k / 8 SBO
// and bits 4.. of its address are turned over by bits 7..

struct Description { uint32_t start, lbo, sbo, S; };
RT inline Description described(uint64_t d) {
    const uint32_t mode = d >> 62;
    if (!mode || d >> 49 & 7) { fail("wgmma: a description without a swizzle, or with an offset"); }
    return { (uint32_t)(d & 0x3FFF) << 4, (uint32_t)(d >> 16 & 0x3FFF) << 4,
             (uint32_t)(d >> 32 & 0x3FFF) << 4, mode == 1 ? 128u : mode == 2 ? 64u : 32u };
}
// eight elements that lie together: (mn, k..) or, if MN-major, (mn.., k). begins: now the product is
// begun, so they have to be there for it
RT inline void eight(float (&x)[8], const Description& d, int mn, int k, bool mn_major, bool begins,
                     int warp) {
    const uint32_t S = d.S;
    uint32_t at = mn_major ? mn % (S / 2) * 2 + mn / (S / 2) * d.lbo + k % 8 * S + k / 8 * d.sbo
                           : mn % 8 * S + mn / 8 * d.sbo + k * 2;
    at += d.start;
    at ^= (at >> 7 & (S / 16 - 1)) << 4;
    at -= SHARED_AT;
    if (at + 16 > block->dynamic.n) {
        fail("wgmma reads shared memory at %d, of %zu bytes", (int)at, block->dynamic.n);
    }
    const Written& w = block->chunks[at / 16];
    if (w.phase == COPYING) {
        fail(begins ? "wgmma reads what a cp.async has not brought yet (thread %d's)"
                    : "a cp.async overwrites what wgmma still reads (thread %d's)", w.by);
    }
    if (begins && w.phase == WRITTEN) {
        fail("wgmma reads what thread %d wrote, and no fence.proxy.async followed", w.by);
    }
    if (begins && w.phase == FENCED && w.barriers == block->barriers && w.by / 32 != warp) {
        fail("wgmma reads what thread %d wrote and fenced, and no barrier followed", w.by);
    }
    const uint16_t* h = (const uint16_t*)(block->dynamic.p + at);
    for (int i = 0; i < 8; i++) { x[i] = widen(h[i]); }
}

// ----------------------------------------------------------------------------
// products

enum { WGMMA_MOST = 256 };                // columns
struct Product {
    int n; long group; bool add;
    float* c[32];
    const uint32_t* a[32];                // NULL: in shared memory
    uint32_t a_then[32][4];
    uint64_t da, db;
};
// what sums in flight have come to; the registers themselves hold NaN
struct InFlight { float* c[32]; int n, products; float now[32][WGMMA_MOST / 2]; };
struct Warpgroup { std::vector<uint64_t> begun; }; // what its first warp to come has begun
struct WarpProducts {
    long groups = 0, fences = 0;
    size_t begun = 0;
    bool fenced = false;
    std::vector<Product> products;
    std::vector<InFlight> sums;
};
RT inline int warp_of(const Thread* lanes) { return (int)(lanes - block->threads) / 32; }

// reads both sides; sums: multiplies them
RT inline void wgmma_multiply(const Product& x, int warp, bool begins, InFlight* sums) {
    typedef float Row __attribute__((vector_size(32)));                  // 8 floats
    static float A[16][16];
    static Row B[16][WGMMA_MOST / 8];
    const bool rs = x.a[0];
    if (!rs) {
        const Description a = described(x.da);
        for (int i = 0; i < 16; i++) {
            for (int k = 0; k < 16; k += 8) {
                eight(*(float(*)[8]) & A[i][k], a, warp % 4 * 16 + i, k, false, begins, warp);
            }
        }
    }
    for (int l = 0; rs && l < 32; l++) {
        for (int i = 0; i < 4; i++) {
            const int row = l / 4 + i % 2 * 8, col = l % 4 * 2 + i / 2 * 8;
            A[row][col] = widen(x.a_then[l][i] & 0xFFFF);
            A[row][col + 1] = widen(x.a_then[l][i] >> 16);
        }
    }
    const Description b = described(x.db);
    for (int n = 0; n < x.n; n += 8) {
        float e[8];
        for (int i = 0; i < 16; i += rs ? 1 : 8) {
            for (int j = 0; j < (rs ? 1 : 8); j++) {
                eight(e, b, n + j, i, rs, begins, warp);
                for (int m = 0; m < 8; m++) { B[rs ? i : i + m][n / 8][rs ? m : j] = e[m]; }
            }
        }
    }
    if (!sums) { return; }
    counts.wgmma++;
    if (fault("wgmma")) { A[3][5] += 1; }
    for (int n = 0; n < x.n / 8; n++) {
        for (int i = 0; i < 16; i++) {
            Row sum = {};
            for (int k = 0; k < 16; k++) { sum += A[i][k] * B[k][n]; }
            for (int j = 0; j < 8; j++) {
                float& c = sums->now[i % 8 * 4 + j / 2][n * 4 + i / 8 * 2 + j % 2];
                c = x.add ? c + sum[j] : sum[j];
            }
        }
    }
}
RT inline void hold(const void* p, size_t n) {
    const char* from = (const char*)p;
    Held h = { from, n, block->products[warp_of(now - now->lane)].fences, {} };
    if (n > sizeof h.was) { fail("hold: %zu bytes, room for %zu", n, sizeof h.was); }
    memcpy(h.was, p, n);
    size_t kept = 0;
    for (size_t i = 0; i < now->held.n; i++) {
        const Held other = now->held.p[i];
        if (other.p + other.n <= from || other.p >= from + n) { now->held.p[kept++] = other; }
    }
    now->held.n = kept;
    now->held.push(h);
}
// fails unless these registers of a lane are as a hold() before the last fence left them
RT inline void check_held(const Thread& t, const void* p, size_t n, long fences, const char* what) {
    const char* from = (const char*)p;
    for (size_t i = 0; i < t.held.n; i++) {
        const Held& h = t.held.p[i];
        if (from < h.p || from + n > h.p + h.n) { continue; }
        if (h.fences < fences && !memcmp(h.was + (from - h.p), p, n)) { return; }
        fail("wgmma: %s written between wgmma.fence and the product", what);
    }
    fail("wgmma: %s without hold() before wgmma.fence", what);
}
RT inline size_t in_flight(WarpProducts& w, const float* c) {
    size_t i = 0;
    while (i < w.sums.size() && w.sums[i].c[0] != c) { i++; }
    return i;
}
RT inline void wgmma_perform(WarpProducts& w, const Product& x, int warp) {
    bool others = false;                  // that read the same left side
    for (const Product& y : w.products) { others |= &y > &x && y.a[0] == x.a[0]; }
    for (int l = 0; x.a[0] && l < 32; l++) {
        for (int i = 0; i < 4; i++) {
            if (x.a[l][i] != ~0u) { fail("wgmma: a left side changed before the wait"); }
        }
        if (!others) { memcpy((void*)x.a[l], x.a_then[l], 16); }
    }
    InFlight& s = w.sums[in_flight(w, x.c[0])];
    wgmma_multiply(x, warp, false, &s);
    if (--s.products) { return; }
    for (int l = 0; l < 32; l++) {
        for (int i = 0; i < s.n / 2; i++) {
            uint32_t bits;
            memcpy(&bits, s.c[l] + i, 4);
            if (bits != ~0u) { fail("wgmma: sums changed before the wait"); }
        }
        memcpy(s.c[l], s.now[l], s.n / 2 * sizeof(float));
    }
    w.sums.erase(w.sums.begin() + (&s - w.sums.data()));
}
// the products of the groups up to this one are done
RT inline void wgmma_finish(Thread* lanes, long last) {
    WarpProducts& w = block->products[warp_of(lanes)];
    size_t done = 0;
    while (done < w.products.size() && w.products[done].group <= last) {
        wgmma_perform(w, w.products[done++], warp_of(lanes));
    }
    w.products.erase(w.products.begin(), w.products.begin() + done);
}

struct WgmmaArg { float* c; const uint32_t* a; uint64_t da, db; int n; bool add; };
RT inline void wgmma_fn(Thread* lanes, uint32_t) {
    const int warp = warp_of(lanes);
    WarpProducts& w = block->products[warp];
    if (!w.fenced) { fail("wgmma without wgmma.fence since its registers were in use"); }
    const WgmmaArg& first = *(WgmmaArg*)lanes[0].arg;
    Product x = {};
    const Product* same_left = nullptr;
    for (const Product& y : w.products) { if (first.a && y.a[0] == first.a) { same_left = &y; } }
    x.n = first.n, x.da = first.da, x.db = first.db, x.add = first.add, x.group = w.groups;
    for (int l = 0; l < 32; l++) {
        const WgmmaArg& y = *(WgmmaArg*)lanes[l].arg;
        if (y.da != x.da || y.db != x.db || y.add != x.add) {
            fail("wgmma: two lanes describe two products");
        }
        x.c[l] = y.c;
        x.a[l] = y.a;
        if (!y.a) { continue; }
        if (same_left) { memcpy(x.a_then[l], same_left->a_then[l], 16); continue; }
        if (!settings.eager) { check_held(lanes[l], y.a, 16, w.fences, "a left side"); }
        memcpy(x.a_then[l], y.a, 16);
        memset((void*)y.a, 0xFF, 16);
    }
    // the four warps of a group begin the same products
    auto& group = block->warpgroups[warp / 4].begun;
    const uint64_t same = x.da * 0x9E3779B97F4A7C15u ^ x.db * 5 ^ x.n * 2u ^ x.add;
    if (w.begun == group.size()) { group.push_back(same); }
    if (group[w.begun++] != same) { fail("wgmma: warps of one group begin different products"); }
    const size_t at = in_flight(w, x.c[0]);
    if (at == w.sums.size()) {
        w.sums.emplace_back();
        InFlight& s = w.sums.back();
        s.n = x.n;
        s.products = 0;
        for (int l = 0; l < 32; l++) {
            s.c[l] = x.c[l];
            if (x.add && !settings.eager) {
                check_held(lanes[l], x.c[l], x.n / 2 * sizeof(float), w.fences, "sums");
            }
            memcpy(s.now[l], x.c[l], x.n / 2 * sizeof(float));
            memset((void*)x.c[l], 0xFF, x.n / 2 * sizeof(float));
        }
    }
    w.sums[at].products++;
    wgmma_multiply(x, warp, true, nullptr);
    w.products.push_back(x);
    if (settings.eager) { wgmma_finish(lanes, w.groups); }
}
RT inline void wgmma_fence_fn(Thread* lanes, uint32_t) {
    WarpProducts& w = block->products[warp_of(lanes)];
    w.fenced = true;
    w.fences++;
}
RT inline void wgmma_commit_fn(Thread* lanes, uint32_t) { block->products[warp_of(lanes)].groups++; }
template <int KEEP> RT void wgmma_wait_fn(Thread* lanes, uint32_t) {
    WarpProducts& w = block->products[warp_of(lanes)];
    wgmma_finish(lanes, w.groups - 1 - KEEP);
    w.fenced = false;
}
RT inline void products_end(Thread* t) { // a thread exits
    if (t->lane == 0 && block->products[warp_of(t)].products.size()) {
        fail("thread exits with %zu wgmma not waited for",
             block->products[warp_of(t)].products.size());
    }
}
RT inline void products_check(Block* b) { // a block has ended
    for (unsigned i = 0; i < b->n / 32; i++) {
        if (b->products[i].begun != b->warpgroups[i / 4].begun.size()) {
            fail("wgmma: warp %u of kernel %s has begun %zu products, its group %zu", i, kernel,
                 b->products[i].begun, b->warpgroups[i / 4].begun.size());
        }
    }
}

// transposes the 8x8 matrix of 16-bit values whose row l / 4 lane l holds two of
struct MovmatrixArg { uint32_t x, y; };
RT inline void movmatrix_fn(Thread* lanes, uint32_t) {
    uint16_t m[8][8];
    for (int l = 0; l < 32; l++) {
        const uint32_t x = ((MovmatrixArg*)lanes[l].arg)->x;
        if (x == ~0u) { fail("movmatrix reads a left side that a product works on"); }
        m[l / 4][l % 4 * 2] = x & 0xFFFF;
        m[l / 4][l % 4 * 2 + 1] = x >> 16;
    }
    for (int l = 0; l < 32; l++) {
        const uint32_t lo = m[l % 4 * 2][l / 4], hi = m[l % 4 * 2 + 1][l / 4];
        ((MovmatrixArg*)lanes[l].arg)->y = lo | hi << 16;
    }
}

// ----------------------------------------------------------------------------
// bar.sync id, n and bar.arrive id, n: full when n threads have come

RT inline void named_barrier(int id, unsigned n, bool wait, const char* file, int line) {
    if (now == &host) { fail("bar.sync outside a kernel"); }
    if (id < 1 || id > 15 || !n || n % 32 || n > block->n) {
        fail("bar.sync %d, %u: wanted a barrier from 1 to 15 and whole warps of the block", id, n);
    }
    NamedBarrier& b = block->named[id];
    const unsigned me = now - block->threads;
    if (!b.arrived) { b.n = n; }
    if (b.n != n) { fail("bar.sync %d is for %u threads, and for %u elsewhere", id, n, b.n); }
    if (b.lanes[me / 32] >> me % 32 & 1) {
        fail("bar.sync %d: this thread has come twice before it was full", id);
    }
    b.lanes[me / 32] |= 1u << me % 32;
    TSAN(__tsan_release(&b);)
    const uint32_t own = b.times;
    if (++b.arrived == n) {
        b.arrived = 0;
        b.times++;
        block->barriers++;
        memset(b.lanes, 0, sizeof b.lanes);
        for (Thread* t = block->threads; t < block->threads + block->n; t++) {
            if (t != now && t->state == WAITING && t->arg == &b) { t->arg = nullptr; wake(t); }
        }
    } else if (wait) {
        now->arg = &b;
        while (b.times == own) { wait_here("bar.sync", file, line); }
    }
    TSAN(if (wait) { __tsan_acquire(&b); })
}
} // namespace emu
#endif // EMU_WGMMA_H
