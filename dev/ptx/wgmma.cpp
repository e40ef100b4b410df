// dev/ptx/wgmma.cpp -- products of four warps, what puts them in order, and barriers with a number.
// The rules, and the words of the faults, are those of dev/emulator/emu_wgmma.h: a product is done
// when a wait says so, no sooner. Until then its sums hold marks, its left side may not be read or
// change, and nobody may write what it reads. Between wgmma.fence and the product nobody may write
// its registers; a mov that takes a number along is no write. A warp computes its own 16 of the 64 rows.
#include "machine.h"
#include <algorithm>

namespace ptx {
// ----------------------------------------------------------------------------
// what wgmma sees of shared memory: what a thread has written and fenced, and then came a barrier

void fence_proxy(Context& c, const Instruction&, u32 lanes) {
    for (; lanes; lanes &= lanes - 1) {
        const int lane = __builtin_ctz(lanes);
        std::vector<u32>& mine = c.warp->lane[lane].unfenced;
        for (u32 k : mine) {
            Written& w = c.written[k];
            if (w.phase != WRITTEN || w.by != c.first_thread + lane) { continue; }
            w.phase = FENCED;
            w.fenced = c.time;
        }
        mine.clear();
    }
}

// ----------------------------------------------------------------------------
// descriptions (PTX ISA, "Matrix descriptor format"). Element (mn, k) of rows of S bytes stands at
//     K-major    mn % 8 S + mn / 8 SBO + 2 k
//     MN-major   2 (mn % (S/2)) + mn / (S/2) LBO + k % 8 S + k / 8 SBO
// and the swizzle turns bits 4.. of its address over by bits 7..

struct Description { u32 start, lbo, sbo, S; };
static Description described(Context& c, u64 d) {
    const u32 mode = (u32)(d >> 62);
    if (!mode || (d >> 49 & 7)) {
        fault(c, 0, "wgmma", "a description without a swizzle, or with an offset");
    }
    auto field = [d](int at) { return (u32)(d >> at & 0x3FFF) << 4; };
    return { field(0), field(16), field(32), mode == 1 ? 128u : mode == 2 ? 64u : 32u };
}
// Reads eight elements that lie together: (mn, k..), or (mn.., k) if it is MN-major.
static void eight(Context& c, float (&x)[8], const Description& d, int mn, int k, bool mn_major,
                  u32 began) {
    u32 at = d.start;
    if (mn_major) {
        const int across = (int)d.S / 2;
        at += mn % across * 2 + mn / across * d.lbo + k % 8 * d.S + k / 8 * d.sbo;
    } else {
        at += mn % 8 * d.S + mn / 8 * d.sbo + k * 2;
    }
    at ^= (at >> 7 & (d.S / 16 - 1)) << 4;
    const u16* p = product_at(c, at, began);
    for (int i = 0; i < 8; i++) { x[i] = float_of(p ? (u32)p[i] << 16 : ~0u); }
}

// ----------------------------------------------------------------------------
// marks: NaN that name a sum and one of its registers. They are what a move takes along

static u32 mark_of(const Sum& s, int k) { return 0xFFC00000u | s.mark << 7 | (u32)k; }
static size_t sum_at(const Products& p, u32 first) {
    for (auto& [id, s] : p.sums) { if (mark_of(s, 0) == first) { return id; } }
    return 0;
}
static bool marked(Context& c, const Sum& s, const Instruction& i) {
    for (int k = 0; k < i.count / 2; k++) {
        for (int lane = 0; lane < 32; lane++) {
            if (get<u32>(c.registers, i.list[k], lane) == mark_of(s, k)) { continue; }
            fault(c, lane, "wgmma", "sums changed before the wait: register %d of them", k);
            return false;
        }
    }
    return true;
}
// Finds the sums that a product adds to, or begins them with what their registers hold.
static size_t sum_of(Context& c, const Instruction& i) {
    static u32 last = 0;
    Products& p = c.warp->wgmma;
    if (const size_t known = sum_at(p, get<u32>(c.registers, i.list[0], 0))) {
        Sum& s = p.sums[known];
        if (s.home->count != i.count) { fault(c, 0, "wgmma", "sums of another width under way"); }
        marked(c, s, i);
        s.home = &i;
        return known;
    }
    last = last % 0x7FFE + 1;
    Sum& s = p.sums[last];
    s = Sum{last, &i, 0, std::vector<float>(32 * i.count / 2)};
    for (int k = 0; k < i.count / 2; k++) {
        for (int lane = 0; lane < 32; lane++) {
            s.now[lane * i.count / 2 + k] = get<float>(c.registers, i.list[k], lane);
            set<u32>(c.registers, i.list[k], lane, mark_of(s, k));
        }
    }
    return last;
}

// ----------------------------------------------------------------------------
// registers that products use

enum { REGISTER = 4 * 32 };             // bytes; of 8 bytes a lane it is two
void products_watch(Context& c, const Instruction& i) {
    Products& p = c.warp->wgmma;
    if (!p.fenced && p.left.empty()) { return; }
    bool of_left = false;
    for (int k = i.writes; k < i.used; k++) {
        const u32 slot = i.operand[k];
        of_left |= slot != NO_SLOT && !p.left.empty() && p.left[slot / REGISTER];
    }
    if (of_left && !i.moves) {
        fault(c, 0, "wgmma", "reads a left side that a product works on");
    }
    const bool late = !i.moves || (p.fenced && p.late[i.operand[1] / REGISTER]);
    for (int k = 0; k < i.writes; k++) {
        if (i.operand[k] == NO_SLOT) { continue; }
        const u32 at = i.operand[k] / REGISTER;
        if (p.fenced) { p.late[at] = late; }
        if (!p.left.empty()) { p.left[at] = of_left; }
    }
}
static void check_late(Context& c, const Instruction& i, int from, int to, const char* what) {
    for (int k = from; k < to; k++) {
        if (!c.warp->wgmma.late[i.list[k] / REGISTER]) { continue; }
        fault(c, 0, "wgmma", "%s written between wgmma.fence and the product", what);
        return;
    }
}

// ----------------------------------------------------------------------------
// products

typedef float Row __attribute__((vector_size(32)));
struct Sides {
    float A[16][16];
    Row B[16][32];
};
// Reads both sides. began: when the product did, or 0: now.
static void read_sides(Context& c, Sides& m, const Product& x, u32 began) {
    const Instruction& i = *x.at;
    if (i.operand[0] != NO_SLOT) {
        const Description a = described(c, x.a);
        for (int row = 0; row < 16; row++) {
            for (int k = 0; k < 16; k += 8) {
                float e[8];
                eight(c, e, a, c.warp->id % 4 * 16 + row, k, false, began);
                std::copy(e, e + 8, &m.A[row][k]);
            }
        }
    } else {
        for (int lane = 0; lane < 32; lane++) {
            for (int k = 0; k < 4; k++) {
                const int row = lane / 4 + k % 2 * 8, column = lane % 4 * 2 + k / 2 * 8;
                m.A[row][column] = float_of(x.left[k][lane] << 16);
                m.A[row][column + 1] = float_of(x.left[k][lane] & 0xFFFF0000u);
            }
        }
    }
    const Description b = described(c, x.b);
    const bool by_column = i.immediate;
    for (int n = 0; n < i.count; n += by_column ? 8 : 1) {
        for (int k = 0; k < 16; k += by_column ? 1 : 8) {
            float e[8];
            eight(c, e, b, n, k, by_column, began);
            for (int j = 0; j < 8; j++) {
                if (by_column) { m.B[k][n / 8][j] = e[j]; }
                else { m.B[k + j][n / 8][n % 8] = e[j]; }
            }
        }
    }
}
static void multiply(const Sides& m, const Product& x, Sum& s) {
    const int n = x.at->count;
    for (int tile = 0; tile < n / 8; tile++) {
        for (int row = 0; row < 16; row++) {
            Row sum = {};
            for (int k = 0; k < 16; k++) { sum += m.A[row][k] * m.B[k][tile]; }
            for (int j = 0; j < 8; j++) {
                const int lane = row % 8 * 4 + j / 2, k = tile * 4 + row / 8 * 2 + j % 2;
                float& now = s.now[lane * n / 2 + k];
                now = x.adds ? now + sum[j] : sum[j];
            }
        }
    }
}
static void end_product(Context& c, const Product& x) {
    static Sides m;
    Products& p = c.warp->wgmma;
    const Instruction& i = *x.at;
    for (int k = 0; i.operand[0] == NO_SLOT && k < 4; k++) {
        for (int lane = 0; lane < 32; lane++) {
            if (get<u32>(c.registers, i.list[i.count / 2 + k], lane) == x.left[k][lane]) { continue; }
            fault(c, lane, "wgmma", "a left side changed before the wait");
        }
    }
    read_sides(c, m, x, x.began);
    Sum& s = p.sums[x.sum];
    multiply(m, x, s);
    if (--s.products) { return; }
    const Instruction& home = *s.home;
    marked(c, s, home);
    for (int k = 0; k < home.count / 2; k++) {
        for (int lane = 0; lane < 32; lane++) {
            set<float>(c.registers, home.list[k], lane, s.now[lane * home.count / 2 + k]);
        }
    }
    p.sums.erase(x.sum);
}
void products_fence(Context& c, const Instruction&, u32) {
    c.warp->wgmma.fenced = true;
    c.warp->wgmma.late.assign(c.kernel->register_bytes / REGISTER + 1, false);
}
void products_commit(Context& c, const Instruction&, u32) { c.warp->wgmma.groups++; }
void products_wait(Context& c, const Instruction& i, u32) {
    Products& p = c.warp->wgmma;
    const long last = p.groups - 1 - i.immediate;
    size_t done = 0;
    while (done < p.products.size() && p.products[done].group <= last) {
        end_product(c, p.products[done++]);
    }
    p.products.erase(p.products.begin(), p.products.begin() + done);
    const bool lefts = std::any_of(p.products.begin(), p.products.end(), [](const Product& x) {
        return x.at->operand[0] == NO_SLOT;
    });
    if (!lefts) { p.left.clear(); }
    p.fenced = false;
    c.warp->time++;             // what it has read may be written by the warp's other lanes
}
void products_begin(Context& c, const Instruction& i, u32) {
    static Sides m;
    Products& p = c.warp->wgmma;
    if (!p.fenced) {
        fault(c, 0, "wgmma", "wgmma without wgmma.fence since its registers were in use");
    }
    auto a = [&](int lane) {
        return i.operand[0] == NO_SLOT ? 0 : get<u64>(c.registers, i.operand[0], lane);
    };
    auto b = [&](int lane) { return get<u64>(c.registers, i.operand[1], lane); };
    auto adds = [&](int lane) { return get<u32>(c.registers, i.operand[2], lane) != 0; };
    Product x = { &i, a(0), b(0), adds(0), p.groups, c.time, 0, {} };
    for (int lane = 0; lane < 32; lane++) {
        if (a(lane) != x.a || b(lane) != x.b || adds(lane) != x.adds) {
            fault(c, lane, "wgmma", "two lanes describe two products");
        }
        for (int k = 0; i.operand[0] == NO_SLOT && k < 4; k++) {
            x.left[k][lane] = get<u32>(c.registers, i.list[i.count / 2 + k], lane);
        }
    }
    std::vector<u64>& group = c.begun[c.warp->id / 4];
    const u64 same = x.a * 0x9E3779B97F4A7C15u ^ x.b * 5 ^ (u64)i.count * 2 ^ (u64)x.adds;
    if (p.begun == group.size()) { group.push_back(same); }
    if (group[p.begun++] != same) {
        fault(c, 0, "wgmma", "warps of one group begin different products");
    }
    const int sums = i.count / 2;
    if (i.operand[0] == NO_SLOT && p.fenced) {
        check_late(c, i, sums, sums + 4, "a left side");
        p.left.resize(c.kernel->register_bytes / REGISTER + 1);
        for (int k = sums; k < sums + 4; k++) { p.left[i.list[k] / REGISTER] = true; }
    }
    const bool under_way = sum_at(p, get<u32>(c.registers, i.list[0], 0));
    if (x.adds && !under_way && p.fenced) { check_late(c, i, 0, sums, "sums"); }
    x.sum = sum_of(c, i);
    p.sums[x.sum].products++;
    read_sides(c, m, x, 0);
    p.products.push_back(x);
}
void products_exit(Context& c, int lane) {
    const size_t n = c.warp->wgmma.products.size();
    if (n) { fault(c, lane, "wgmma", "exits with %zu wgmma not waited for", n); }
    c.warp->wgmma.products.clear();
}
void products_check(Context& c) {
    for (const Warp& w : c.warps) {
        const size_t group = c.begun[w.id / 4].size();
        if (w.wgmma.begun == group) { continue; }
        c.at = nullptr;
        fault(c, 0, "wgmma", "warp %d has begun %zu products, its group %zu", w.id, w.wgmma.begun,
              group);
    }
}

// ----------------------------------------------------------------------------
// bar.sync id, n and bar.arrive id, n: full when n threads have come. For races it counts as a
// barrier of the block: one with a warp that does not take part goes unseen

void named_barrier(Context& c, const Instruction& i, u32) {
    const u32 id = get<u32>(c.registers, i.operand[0], 0);
    const u32 n = get<u32>(c.registers, i.operand[1], 0);
    if (id < 1 || id > 15 || !n || n % 32 || n > c.threads) {
        fault(c, 0, "bar.sync", "bar.sync %u, %u: wanted a barrier from 1 to 15 and whole warps of "
              "the block", id, n);
        return;
    }
    NamedBarrier& b = c.named[id];
    if (!b.came) { b.threads = n; }
    if (b.threads != n) {
        fault(c, 0, "bar.sync", "bar.sync %u is for %u threads, and for %u elsewhere", id, n,
              b.threads);
    }
    if (b.came >> c.warp->id & 1) {
        fault(c, 0, "bar.sync", "bar.sync %u: this warp has come twice before it was full", id);
    }
    b.came |= 1u << c.warp->id;
    if (i.immediate) {
        b.wait |= 1u << c.warp->id;
        c.warp->blocked = true;
    }
    if (__builtin_popcount(b.came) * 32u < n) { return; }
    for (Warp& w : c.warps) { if (b.wait >> w.id & 1) { w.blocked = false; } }
    b = NamedBarrier();
    c.time++;
}
} // namespace ptx
