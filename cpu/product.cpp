/*
cpu/product.cpp -- what product.h declares.
*/
#include "product.h"
#include "huge_pages.h"
#include <atomic>
#ifdef _OPENMP
#include <omp.h>
#endif

namespace cpu {
// ----------------------------------------------------------------------------
// 1 which kernel

ProductSettings product_settings = { KERNELS - 1, { KERNELS - 1, KERNELS - 1 }, false };

void product_choose(bool bf16, int k) { product_settings.chosen[bf16] = k; }

bool kernel_here(int k) {
    static const std::vector<bool> here = [] {
        std::vector<bool> all;
        for (int i = 0; i < KERNELS; i++) { all.push_back(kernels[i].here()); }
        return all;
    }();
    return here[k];
}

const Kernel& kernel_for(bool bf16) {
    int k = std::min(product_settings.last_kernel, product_settings.chosen[bf16]);
    while (k > 0 && (!kernel_here(k) || (kernels[k].bf16 && !bf16))) { k--; }
    return kernels[k];
}

void product_limit(const std::string& name) {
    std::string here;
    for (int k = 0; k < KERNELS; k++) {
        if (!kernel_here(k)) { continue; }
        if (name == kernels[k].name) { product_settings.last_kernel = k; return; }
        here += strf(" %s", kernels[k].name);
    }
    die(EXIT_USER,
        strf("--product: got '%s', wanted one that this processor has:%s", name.c_str(),
             here.c_str()),
        "leave it out: the one that was timed as the fastest is taken");
}

std::string product_name() {
    return strf("fp32 %s, bf16 %s", kernel_for(false).name, kernel_for(true).name);
}

// ----------------------------------------------------------------------------
// 2 packing

// lane l of v, zero where there is nothing
static lane lane_at(const Factor& f, long v, long l) {
    if (v >= f.count || l * f.pair() >= f.K) { return 0; }
    if (f.lanes == FLOATS) { return *(const lane*)f.at(v, l); }
    const uint16_t* x = (const uint16_t*)f.at(v, l);
    if (f.lanes == WIDENED) { return (lane)*x << 16; }
    return *x | (l*2 + 1 < f.K ? (lane)x[f.sk] << 16 : 0);
}

// to (16) = 16 bf16 made floats
static void widen16(lane* to, const char* from) {
    const uint16_t* x = (const uint16_t*)from;
    for (int i = 0; i < 16; i++) { to[i] = (lane)x[i] << 16; }
}

// to (16, 16): lanes l.. of columns v.., lane by lane. The whole block must be there
static void pack_block(lane* to, const Kernel& kernel, const Factor& f, long v, long l) {
    if (f.sk == 1 && f.lanes == WIDENED) {
        lane wide[16][16];
        for (int j = 0; j < 16; j++) { widen16(wide[j], f.at(v + j, l)); }
        kernel.transpose(to, 16, (const char*)wide, sizeof *wide);
    } else if (f.sk == 1) {
        kernel.transpose(to, 16, f.at(v, l), f.s * f.size());
    } else if (f.lanes == PAIRS) {
        kernel.pairs(to, f.at(v, l), f.sk * f.size());
    } else {
        for (int i = 0; i < 16; i++, to += 16) {
            if (f.lanes == FLOATS) { memcpy(to, f.at(v, l + i), 64); }
            else                   { widen16(to, f.at(v, l + i)); }
        }
    }
}

// to (16, 32) = k's k.. of columns v.., zero where there is nothing
static void copy_edge(float* to, const Factor& f, long v, long k) {
    const long columns = std::min(16L, f.count - v), some = std::min(32L, f.K - k);
    memset(to, 0, 16 * 32 * 4);
    for (long i = 0; i < some; i++) {
        for (long j = 0; j < columns; j++) { to[j*32 + i] = *(const float*)f.at(v + j, k + i); }
    }
}

// pack_panel of floats that become two bf16; l0 and l1 are multiples of 32, and so are k's
static bool pack_split(lane* to, const Factor& f, long v, long l0, long l1) {
    bool low = false;
    for (long k = l0; k < l1; k += 32, to += 32 * 16) {
        float block[16 * 32];
        const bool whole = v + 16 <= f.count && k + 32 <= f.K;
        if (whole && f.sk == 1) {
            low |= split_kernel.split_panel(to, (const float*)f.at(v, k), f.s);
            continue;
        }
        if (whole && f.s == 1) {
            for (int half = 0; half < 32; half += 16) {
                split_kernel.transpose((lane*)block + half, 32, f.at(v, k + half), f.sk * 4);
            }
        } else {
            copy_edge(block, f, v, k);
        }
        low |= split_kernel.split_panel(to, block, 32);
    }
    return low;
}

bool pack_panel(lane* to, const Kernel& kernel, const Factor& f, long v, long l0, long l1) {
    if (f.lanes == SPLIT) { return pack_split(to, f, v, l0, l1); }
    const bool whole = v + 16 <= f.count && (f.s == 1 || f.sk == 1);
    for (long l = l0; l < l1; ) {
        if (whole && l + 16 <= std::min(l1, f.K / f.pair())) {
            pack_block(to, kernel, f, v, l);
            l += 16;
            to += 16 * 16;
        } else {
            for (int j = 0; j < 16; j++) { to[j] = lane_at(f, v + j, l); }
            l++;
            to += 16;
        }
    }
    return true;
}

void pack_rows(lane* to, long row, const Kernel& kernel, const Factor& f, long v, int rows,
                      long l0, long l1) {
    for (int i = 0; f.sk == 1 && i < rows; i++, to += row) {
        const long there = v + i < f.count ? std::min(l1, f.K / f.pair()) : l0;
        long l = l0;
        if (f.lanes == WIDENED) {
            for (; l + 16 <= there; l += 16) { widen16(to + l - l0, f.at(v + i, l)); }
        } else if (l < there) {
            memcpy(to, f.at(v + i, l0), (there - l0) * 4);
            l = there;
        }
        for (; l < l1; l++) { to[l - l0] = lane_at(f, v + i, l); }
    }
    for (long l = l0; f.sk != 1 && l < l1; l += 16) {
        for (int i = 0; i < rows; i += 16) {
            lane block[16 * 16];
            pack_panel(block, kernel, f, v + i, l, l + 16);
            kernel.transpose(to + i*row + l - l0, row, (const char*)block, 64);
        }
    }
}

// one per thread and slot, grown on demand: on a cache line, or if it is large on a large page
static lane* product_buffer(int slot, size_t n) {
    struct Buffer {
        void* block = NULL;
        lane* x = NULL;
        size_t n = 0;
        ~Buffer() { free(block); }
    };
    static thread_local Buffer buffers[3];
    Buffer& b = buffers[slot];
    if (b.n < n) {
        const bool large = n * sizeof(lane) >= LARGE_PAGE / 2;
        const size_t page = large ? LARGE_PAGE : 64;
        const size_t bytes = round_up(n * sizeof(lane), page);
        free(b.block);
        b.block = xmalloc(bytes + page);
        b.x = (lane*)round_up((uintptr_t)b.block, page);
        b.n = n;
        if (large) { use_large_pages(b.x, bytes); }
    }
    return b.x;
}

// ----------------------------------------------------------------------------
// 3 blocks and threads. A block of B, `deep` lanes by `wide` columns, is packed by all threads and
// stays in the second cache. Then a thread takes some rows of A, as many as a tile has, packs them
// if it pays, and multiplies them with the block, tile after tile. Sums longer than `deep` are
// continued in C, or in a buffer of floats if C is bf16.
//
// Where a factor must be turned over, what a panel or a tile needs of a row of memory is 32 or 64
// bytes, and the next row lies far away, where no prefetcher looks. So a thread takes many of them
// side by side: of rows of 3 kB half of them at a time are turned over at 11 GB/s, 64 bytes at 2.6.

enum { BLOCK_BYTES = 1200 << 10, SUM_BYTES = 4 << 20, SEGMENT = 128, PANELS = 4,
       PANELS_TURNED = 16, SMALL_BYTES = 2 << 20, ROWS_BYTES = 400 << 10 };

// A row of a tile in bf16 is 64 bytes, and memory takes those at half the pace of longer pieces. So
// where C will not stay in a cache, four tiles side by side, a group, are rounded together.
// + 16: their rows spread over the sets of the cache
enum { GROUP_TILES = 4, GROUP = GROUP_TILES * TILE_COLS + 16 };

struct Product {
    long M, N;
    Factor a, b;
    Result c;
    const Kernel& kernel;
    long lanes, deep, wide, tall; // of the sum; of a block of B; rows of C that are summed at once
    long some;                      // rows of A that a thread takes at once: one tile, or more
    int group;                      // tiles of C that are rounded together
    bool by_rows, direct; // how a kernel finds A: packed by rows or as a panel; or where it is
    float* sums;                    // (tall, wide), for a C in bf16 of more than one block of lanes
    lane* block[2];                 // one is packed while the other is still read
    std::atomic<long> low[2];       // of split floats: the last block there with low parts
    std::atomic<long> tickets;
};

// Hands out work by numbered tickets, so that a slow core takes less of it
struct Tickets {
    std::atomic<long>& next;
    long mine, past;

    Tickets(std::atomic<long>& next) : next(next), mine(next++), past(0) {}
    // work(0..n-1); returns when all of it is taken
    template <class Work> void share(long n, Work work) {
        for (; mine < past + n; mine = next++) { work(mine - past); }
        past += n;
    }
};

// p.some rows i.. of A, lanes l0..l1, as a kernel wants them
static TileA tile_a(const Product& p, long i, long l0, long l1) {
    if (p.kernel.split_row) { return { p.a.at(i, 32 * l0), p.a.s * 4, 0 }; } // whole strips
    if (p.direct) {
        const bool last = p.kernel.deep > 1 && i + p.kernel.rows > p.M;
        if (!last) {
            return { p.a.at(i, l0), p.a.s * p.a.size(), p.a.sk * p.a.size() * p.a.pair() };
        }
    }
    // + 16: rows a power of two apart would crowd into few sets of a cache
    const long row = p.by_rows ? p.deep + 16 : 1;
    lane* to = product_buffer(0, std::max(32L, p.some) * (p.deep + 16));
    if (p.by_rows) {
        const long rows = std::min(p.some, round_up(p.M - i, p.kernel.deep));
        pack_rows(to, row, p.kernel, p.a, i, rows, l0, l1);
    } else {
        pack_panel(to, p.kernel, p.a, i, l0, l1);
    }
    return { (const char*)to, row * 4, p.by_rows ? 4 : PANEL * 4 };
}

// tiles of C side by side, and where their sums are
struct Group {
    long i, j;
    int rows, cols, share;          // share: rows whose memory one tile of it asks for
    float* sums;
    long ld;
};

// rows i.. of columns j..j + cols of C; i0, j0 is where p.sums begin, `own` a group to use where
// there are none
static Group group_at(const Product& p, long i, long j, long cols, long i0, long j0, float* own) {
    const int rows = (int)std::min<long>(p.kernel.rows, p.M - i);
    const int share = (int)div_up(rows, div_up(cols, TILE_COLS));
    Group g = { i, j, rows, (int)cols, share, own, p.group == 1 ? (long)TILE_COLS : (long)GROUP };
    if (p.sums) {
        g.sums = p.sums + (i - i0)*p.wide + j - j0;
        g.ld = p.wide;
    } else if (!p.c.bf16) {
        g.sums = (float*)p.c.x + i*p.c.ld + j;
        g.ld = p.c.ld;
    }
    return g;
}

// C <- a group's sums [+ residual] [+ bias], rounded; a C of floats holds all but the bias already
static void finish(const Product& p, const Group& g) {
    const Result& c = p.c;
    const long at = g.i * c.ld + g.j;
    if (c.bf16) {
        const bf16 *x = (const bf16*)(c.accumulate ? c.x : c.residual), *y = (const bf16*)c.bias;
        const bf16 *x_g = x ? x + at : NULL, *y_g = y ? y + g.j : NULL;
        p.kernel.round((bf16*)c.x + at, c.ld, g.sums, g.ld, x_g, y_g, g.rows, g.cols);
    } else if (c.bias) {
        for (int r = 0; r < g.rows; r++) {
            for (int n = 0; n < g.cols; n++) {
                g.sums[r * g.ld + n] += ((const float*)c.bias)[g.j + n];
            }
        }
    }
}

// asks for the memory of rows r0..r1 of C, columns j.., while sums are still being made: rows lie
// too far apart to be foreseen. Without this a product of 4096 x 256 x 768 in bf16 takes 1.6 times
// as long
static void prefetch_c(const Result& c, long r0, long r1, long j, long cols) {
    const long size = c.bf16 ? 2 : 4;
    for (long r = r0; r < r1; r++) {
        const char* row = (const char*)c.x + (r*c.ld + j) * size;
        for (long at = 0; at < cols * size; at += 64) { __builtin_prefetch(row + at, 1); }
    }
}

// tile k of a group: its sums go on with lanes l0..l1, `lanes` of them in all
static void sum_tile(const Product& p, TileKernel* tile, TileA a, TileB b, const Group& g, int k,
                     long l0, long l1) {
    const Result& c = p.c;
    const int n = k * TILE_COLS, cols = std::min<int>(TILE_COLS, g.cols - n);
    const bool last = l1 == p.lanes, in_place = !c.bf16;
    float* const sums = g.sums + n;
    if (in_place && l0 == 0 && c.residual && c.residual != c.x) {
        const float* from = (const float*)c.residual + g.i*c.ld + g.j + n;
        for (int r = 0; r < g.rows; r++) { memcpy(sums + r*g.ld, from + r*c.ld, cols * 4); }
    }
    if (in_place) {
        prefetch_c(c, g.i, g.i + g.rows, g.j + n, cols);
    } else if (last) {              // this tile's share of the group's rows, each as long as it is
        const int r = k * g.share;
        prefetch_c(c, g.i + r, g.i + std::min(g.rows, r + g.share), g.j, g.cols);
    }
    const bool add = l0 > 0 || (in_place && (c.accumulate || c.residual));
    tile(sums, g.ld, g.rows, cols, a, b, l1 - l0, add);
}

// lanes l0..l1 of columns j0..j1 of B, packed
struct Block {
    lane* x;
    long j0, j1, l0, l1;

    long segments() const { return std::max(1L, div_up(l1 - l0, SEGMENT)); }
};

// A ticket packs at most SEGMENT lanes of that many panels of a block
static long panels_at_once(const Product& p) { return p.b.sk == 1 ? PANELS : PANELS_TURNED; }

static long pack_tickets(const Product& p, const Block& b) {
    return div_up(b.j1 - b.j0, PANEL * panels_at_once(p)) * b.segments();
}

// what ticket t packs. False: all low parts are zero
static bool pack_ticket(const Product& p, const Block& b, long t) {
    const long deep = b.l1 - b.l0, panels = panels_at_once(p);
    const long from = t % b.segments() * SEGMENT, to = std::min(deep, from + SEGMENT);
    const long first = t / b.segments() * panels,
               end = std::min(first + panels, div_up(b.j1 - b.j0, PANEL));
    // B turned over: a few lanes of all these panels, side by side in memory, then the next few
    const long some = p.b.sk == 1 ? SEGMENT : std::max(16, p.kernel.deep);
    bool low = false;
    for (long l = from; l < to; l += some) {
        for (long k = first; k < end; k++) {
            low |= pack_panel(b.x + (k*deep + l) * PANEL, p.kernel, p.b, b.j0 + k*PANEL, b.l0 + l,
                              b.l0 + std::min(to, l + some));
        }
    }
    return low;
}

// what one of `threads` threads does for a block of B and rows i0..i1, by `tile`
static void multiply(const Product& p, TileKernel* tile, Tickets& tickets, int threads,
                     const Block& block, long i0, long i1) {
    const long j0 = block.j0, l0 = block.l0, l1 = block.l1, deep = l1 - l0;
    const bool last = l1 == p.lanes;
    const long H = p.kernel.rows, ni = div_up(i1 - i0, p.some),
               nj = div_up(block.j1 - j0, TILE_COLS);
    // few rows: columns are shared too, but rows that were turned over together are not done twice
    const long parts = p.some > H ? 1 : std::min(nj, div_up(4 * threads, ni));
    const long some = div_up(nj, parts);
    tickets.share(ni * div_up(nj, some), [&](long t) {
        const long from = i0 + t % ni * p.some, to = std::min(i1, from + p.some);
        const long first = t / ni * some, end = std::min(nj, first + some);
        TileA a = tile_a(p, from, l0, l1);
        alignas(64) float two[2][32 * GROUP];
        for (long i = from; i < to; i += H, a.at += H * a.row) {
            // a group is finished after the next one was begun: its sums need a while to arrive
            Group group = {};
            int number = 0;
            for (long j = first; j < end; j += p.group, number ^= 1) {
                const long tiles = std::min<long>(p.group, end - j), at = j0 + j*TILE_COLS;
                const long cols = std::min(block.j1 - at, tiles * TILE_COLS);
                const Group before = group;
                group = group_at(p, i, at, cols, i0, j0, two[number]);
                for (long k = 0; k < tiles; k++) {
                    const TileB b = { block.x + (j + k) * TILE_COLS * deep, PANEL * deep };
                    sum_tile(p, tile, a, b, group, k, l0, l1);
                    if (k == 0 && last) { finish(p, before); }
                }
            }
            if (last) { finish(p, group); }
        }
    });
}

// one thread's part of a product
static void product_run(Product& p, int threads) {
    Tickets tickets(p.tickets);
    long number = 0;                // of the block
    if (p.kernel.begin) { p.kernel.begin(); }
    for (long j0 = 0; j0 < p.N; j0 += p.wide) {
        const long j1 = std::min(p.N, j0 + p.wide);
        for (long i0 = 0; i0 < p.M; i0 += p.tall) {
            // once even if K is 0: then C = 0
            for (long l0 = 0; l0 == 0 || l0 < p.lanes; l0 += p.deep) {
                number++;
                const Block block = { p.block[number % 2], j0, j1, l0,
                                      std::min(p.lanes, l0 + p.deep) };
                std::atomic<long>& low = p.low[number % 2];
                tickets.share(pack_tickets(p, block), [&](long t) {
                    if (pack_ticket(p, block, t)) { low.store(number, std::memory_order_relaxed); }
                });
                if (threads > 1) {
                    #pragma omp barrier
                }
                const bool high = p.kernel.high && low.load(std::memory_order_relaxed) != number;
                multiply(p, high ? p.kernel.high : p.kernel.tile, tickets, threads, block, i0,
                         std::min(p.M, i0 + p.tall));
            }
        }
    }
    if (p.kernel.end) { p.kernel.end(); }
}

// whether a kernel may read A where it is: packing costs as much as a tile of 32 columns or two
static bool reads_direct(const Product& p) {
    const Factor& a = p.a;
    const long row = a.s * a.size();
    if (a.lanes == WIDENED || a.K % a.pair() || p.lanes * a.pair() != a.K) { return false; }
    const bool aligned = p.kernel.deep == 1 || ((uintptr_t)a.x | row) % 64 == 0;
    if (a.sk == 1) {
        return aligned && (p.N <= 256 || row * p.kernel.rows <= 16 << 10 || row % 2048);
    }
    return a.s == 1 && a.lanes == FLOATS && p.N <= 256 && a.sk <= 256;
}

// the product by a kernel that fits its factors; most: threads at most, 0 for all
static void product_by(const Kernel& kernel, int most, long M, long N, Factor a, Factor b,
                       Result c) {
    int threads = 1;
#ifdef _OPENMP
    const double worth_waking_threads = kernel.bf16 ? 2e7 : 4e6;
    if (most != 1 && 2.0 * M * N * a.K > worth_waking_threads && !omp_in_parallel()) {
        threads = omp_get_max_threads();
    }
#endif
    const long lanes = round_up(div_up(a.K, a.pair()), kernel.deep);
    const int group = c.bf16 && M * N * 2 > SMALL_BYTES ? GROUP_TILES : 1;
    Product p = { M, N, a, b, c, kernel, lanes, 0, 0, M, kernel.rows, group, false, false, NULL,
                  {}, {}, {} };
    p.deep = std::max(1L, std::min(lanes, kernel.chunk));
    p.by_rows = a.sk == 1 || kernel.deep > 1;
    if (p.by_rows && a.sk != 1) {
        // a small C stays in cache from one block of lanes to the next; a large one does not, nor
        // should A be turned over once for each block of columns
        const bool small = M * N * 4 <= SMALL_BYTES;
        const long least = 256, all = BLOCK_BYTES / 4 / round_up(N, TILE_COLS);
        p.deep = std::min(p.deep, small ? least : std::max(least, all / kernel.deep * kernel.deep));
        const long room = ROWS_BYTES / 4 / p.deep, share = div_up(M, std::max(4, 2 * threads));
        p.some = round_up(std::min(room, share), kernel.rows);
    }
    const long fits = BLOCK_BYTES / 4 / p.deep / TILE_COLS * TILE_COLS;
    p.wide = std::max<long>(TILE_COLS, std::min(round_up(N, TILE_COLS), fits));
    p.direct = reads_direct(p);
    p.block[0] = product_buffer(1, 2 * p.deep * p.wide);
    p.block[1] = p.block[0] + p.deep * p.wide;
    if (c.bf16 && p.lanes > p.deep) {
        p.tall = std::min(round_up(M, kernel.rows),
                          SUM_BYTES / 4 / p.wide / kernel.rows * kernel.rows);
        p.sums = (float*)product_buffer(2, p.tall * p.wide);
    }
#ifdef _OPENMP
    if (threads > 1) {
#pragma omp parallel
        product_run(p, omp_get_num_threads());
        return;
    }
#endif
    product_run(p, 1);
}

void product(long M, long N, Factor a, Factor b, Result c) {
    if (M < 1 || N < 1) { return; }
    const Kernel& kernel = kernel_for(a.lanes != FLOATS);
    if (a.lanes != FLOATS) { a.lanes = b.lanes = kernel.bf16 ? PAIRS : WIDENED; }
    product_by(kernel, 0, M, N, a, b, c);
}

void product_with(int k, int threads, long M, long N, Factor a, Factor b, Result c) {
    if (a.lanes != FLOATS) { a.lanes = b.lanes = kernels[k].bf16 ? PAIRS : WIDENED; }
    product_by(kernels[k], threads, M, N, a, b, c);
}

void product_split(long M, long N, Factor a, Factor b, Result c) {
    product_by(split_kernel, 0, M, N, a, b, c);
}

void product_double(long M, long N, long K, const double* A, long rs_a, long cs_a,
                           const double* B, long rs_b, long cs_b, double* C, long ldc,
                           bool accumulate, const double* residual, const double* bias) {
#pragma omp parallel for if (2.0 * M * N * K > 4e6)
    for (long i = 0; i < M; i++) {
        for (long j = 0; j < N; j++) {
            double sum = 0;
            for (long k = 0; k < K; k++) { sum += A[i*rs_a + k*cs_a] * B[k*rs_b + j*cs_b]; }
            double& c = C[i*ldc + j];
            if (accumulate) { sum += c; }
            if (residual)   { sum += residual[i*ldc + j]; }
            if (bias)       { sum += bias[j]; }
            c = sum;
        }
    }
}
} // namespace cpu
