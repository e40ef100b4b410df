/*
cpu/product.cpp -- the matrix product, from the inside out:

    1 which kernel
    2 packing               numbers of a factor into the lanes that a kernel reads
    3 the plan              how large the blocks of one product are
    4 a tile                its sums, and what happens to them at the end
    5 blocks and threads    who packs what, who multiplies what
*/
#include "product.h"
#include "memory.h"
#include <omp.h>
#include <atomic>

namespace cpu {
// ----------------------------------------------------------------------------
// 1 which kernel

ProductSettings product_settings = { KERNELS - 1, { KERNELS - 1, KERNELS - 1 }, {}, false };

bool kernel_here(int k) {
    static const std::vector<bool> here = [] {
        std::vector<bool> all;
        for (int i = 0; i < KERNELS; i++) { all.push_back(kernels[i].here()); }
        return all;
    }();
    return here[k];
}

const Kernel& kernel_for(bool bf16) {
    const auto usable = [=](int k) {
        const bool multiplies = bf16 || !kernels[k].bf16;
        return multiplies && kernel_here(k);
    };
    int k = std::min(product_settings.last_kernel, product_settings.chosen[bf16]);
    while (k > 0 && !usable(k)) { k--; }
    return kernels[k];
}

void product_limit(const std::string& name) {
    std::string here;
    for (int k = 0; k < KERNELS; k++) {
        if (!kernel_here(k)) { continue; }
        if (name == kernels[k].name) {
            product_settings.last_kernel = k;
            return;
        }
        here += strf(" %s", kernels[k].name);
    }
    die(strf("--product: got '%s', wanted one that this processor has:%s", name.c_str(),
         here.c_str()),
        "leave it out: the one that is fastest on this kind of processor is taken");
}

std::string product_name() {
    return strf("fp32 %s, bf16 %s", kernel_for(false).name, kernel_for(true).name);
}

// ----------------------------------------------------------------------------
// 2 packing

// Returns the lane of one bf16, as a float.
static lane widen(uint16_t x) { return (lane)x << 16; }

// Returns lane l of v, zero where there is nothing.
static lane lane_at(const Factor& f, long v, long l) {
    const bool exists = v < f.count && l * f.pair() < f.K;
    if (!exists) { return 0; }
    if (f.lanes == FLOATS) { return *(const lane*)f.at(v, l); }
    const uint16_t* x = (const uint16_t*)f.at(v, l);
    if (f.lanes == WIDENED) { return widen(*x); }
    const bool has_second = l * 2 + 1 < f.K;
    if (!has_second) { return *x; }
    return *x | widen(x[f.k_step]);
}

// Converts 16 bf16 to floats: to (16).
static void widen16(lane* to, const char* from) {
    const uint16_t* x = (const uint16_t*)from;
    for (int i = 0; i < 16; i++) { to[i] = widen(x[i]); }
}

// Packs 16 lanes from l on, of 16 columns from v on, all of which exist: to (16, 16).
static void pack_block(lane* to, const Kernel& kernel, const Factor& f, long v, long l) {
    if (f.k_step == 1 && f.lanes == WIDENED) {
        lane wide[16][16];
        for (int j = 0; j < 16; j++) {
            widen16(wide[j], f.at(v + j, l));
        }
        kernel.transpose(to, 16, (const char*)wide, sizeof *wide);
    } else if (f.k_step == 1) {
        kernel.transpose(to, 16, f.at(v, l), f.row_bytes());
    } else if (f.lanes == PAIRS) {
        kernel.pairs(to, f.at(v, l), f.k_step * f.size());
    } else {
        for (int i = 0; i < 16; i++, to += 16) {
            const char* from = f.at(v, l + i);
            if (f.lanes == FLOATS) { memcpy(to, from, 64); }
            else                   { widen16(to, from); }
        }
    }
}

void pack_panel(lane* to, const Kernel& kernel, const Factor& f, long v, LaneRange lanes) {
    const bool side_by_side = f.step == 1 || f.k_step == 1;
    const bool whole = side_by_side && v + 16 <= f.count;
    const long end = std::min(lanes.l1, f.K / f.pair());
    for (long l = lanes.l0; l < lanes.l1; ) {
        if (whole && l + 16 <= end) {
            pack_block(to, kernel, f, v, l);
            l += 16;
            to += 16 * 16;
        } else {
            for (int j = 0; j < 16; j++) {
                to[j] = lane_at(f, v + j, l);
            }
            l++;
            to += 16;
        }
    }
}

// Packs a row whose numbers lie side by side.
static void pack_row(lane* to, const Factor& f, long v, LaneRange lanes) {
    const long l0 = lanes.l0;
    const long last = std::min(lanes.l1, f.K / f.pair());
    const long end = v < f.count ? last : l0;           // of what exists
    long l = l0;
    if (f.lanes == WIDENED) {
        for (; l + 16 <= end; l += 16) {
            widen16(to + l - l0, f.at(v, l));
        }
    } else if (l < end) {
        memcpy(to, f.at(v, l0), (end - l0) * sizeof(lane));
        l = end;
    }
    for (; l < lanes.l1; l++) {
        to[l - l0] = lane_at(f, v, l);
    }
}

void pack_rows(PackedRows to, const Kernel& kernel, const Factor& f, long v, LaneRange lanes) {
    if (f.k_step == 1) {
        for (int i = 0; i < to.rows; i++) {
            pack_row(to.to + i * to.row, f, v + i, lanes);
        }
        return;
    }
    for (long l = lanes.l0; l < lanes.l1; l += 16) {
        for (int i = 0; i < to.rows; i += 16) {
            lane block[16 * 16];
            pack_panel(block, kernel, f, v + i, { l, l + 16 });
            lane* at = to.to + i * to.row + l - lanes.l0;
            kernel.transpose(at, to.row, (const char*)block, 64);
        }
    }
}

// What a thread's buffers are for.
enum { ROWS_OF_A, BLOCKS_OF_B, SUMS_OF_C, BUFFERS };

// Returns the thread's buffer for n lanes.
static lane* product_buffer(int which, size_t n) {
    static thread_local Buffer buffers[BUFFERS];
    return (lane*)buffers[which].room(n * sizeof(lane));
}

// ----------------------------------------------------------------------------
// 3 the plan
//
//              wide                     A block of B, `deep` lanes by `wide` columns, is packed by
//            +------+                   all threads and stays in the second cache. Then a thread
//       deep |  B   |                   takes some rows of A, as many as a tile has, packs them if
//            +------+                   it pays, and multiplies them with the block, tile after
//      deep                             tile. Sums longer than `deep` are continued in C, or in a
//     +----+ +------+                   buffer of floats if C is bf16.
//     | A  | |  C   | rows of a tile
//     +----+ +------+
//
// Where a factor must be transposed, what a panel or a tile needs of a row of memory is 32 or 64
// bytes, and the next row lies far away, where no prefetcher looks. So a thread takes many of them
// side by side: of rows of 3 kB half of them at a time are transposed at 11 GB/s, 64 bytes at 2.6.

enum {
    BLOCK_BYTES = 1200 << 10,       // of a block of B
    SUM_BYTES = 4 << 20,            // of the buffer of sums
    SMALL_BYTES = 2 << 20,          // a C up to here stays in cache
    ROWS_BYTES = 400 << 10,         // of rows of A that are transposed together
    SEGMENT = 128,                  // lanes that a ticket packs at most,
    PANELS = 4,                     // of that many panels,
    PANELS_TRANSPOSED = 16          // or of these
};

// A row of a tile in bf16 is 64 bytes, and memory takes those at half the pace of longer pieces. So
// where C will not stay in a cache, four tiles side by side, a group, are rounded together.
// + 16: their rows spread over the sets of the cache
enum { GROUP_TILES = 4, GROUP = GROUP_TILES * TILE_COLS + 16 };

// Tiles of C side by side, and where their sums are.
struct Group {
    long i;                         // the first row
    long j;                         // the first column
    int rows;
    int cols;
    int share;                      // rows whose memory one tile of it prefetches
    float* sums;
    long ld;                        // from row to row of the sums
};

// Lanes `lanes` of columns j0 .. j1 of B, packed, and the rows i0 .. i1 that they are for.
struct Block {
    lane* x;
    long i0;
    long i1;
    long j0;
    long j1;
    LaneRange lanes;

    long panels() const { return div_up(j1 - j0, PANEL); }
    long segments() const { return std::max(1L, div_up(lanes.size(), SEGMENT)); }
};

// Hands out work by numbered tickets, so that a slow core takes less of it.
struct Tickets {
    std::atomic<long>& next;
    long mine;
    long past = 0;

    Tickets(std::atomic<long>& next) : next(next), mine(next++) {}
    // Calls work(0..n-1) with the other threads; returns when all of it is taken.
    void share(long n, const std::function<void(long)>& work) {
        for (; mine < past + n; mine = next++) { work(mine - past); }
        past += n;
    }
};

// A product, and what one thread does of it: run.
struct Product {
    const Kernel& kernel;
    long M;
    long N;
    Factor a;
    Factor b;
    Result c;
    long lanes;                     // of the sum over k
    long deep;                      // a block of B: its lanes
    long wide;                      //               and columns
    long tall;                      // rows of C that are summed at once
    long rows_at_once;              // rows of A that a thread takes: one tile, or more
    int group;                      // tiles of C that are rounded together
    bool by_rows;                   // A is packed by rows, else as a panel
    bool direct;                    // a kernel reads A where it is
    float* sums = NULL;             // (tall, wide), for a C in bf16 of more than one block of lanes
    lane* packed[2];                // blocks of B: one is packed while the other is still read
    std::atomic<long> ticket = {};

    Product(const Kernel& kernel, long M, long N, const Factor& a, const Factor& b, const Result& c)
        : kernel(kernel), M(M), N(N), a(a), b(b), c(c) {}

    // Tells whether a kernel may read A where it is: packing costs as much as a tile of 32 columns
    // or two.
    bool reads_direct() const {
        const bool whole = lanes * a.pair() == a.K;         // no lane is filled up with zeros
        const bool few_columns = N <= 256;
        if (a.lanes == WIDENED || !whole) { return false; }
        if (a.k_step == 1) {
            const long row = a.row_bytes();
            const bool aligned = kernel.deep == 1 || ((uintptr_t)a.x | row) % 64 == 0;
            const bool fits_cache = row * kernel.rows <= 16 << 10 || row % 2048;
            return aligned && (few_columns || fits_cache);
        }
        const bool columns_near = a.step == 1 && a.k_step <= 256;
        return columns_near && few_columns && a.lanes == FLOATS;
    }

    // Settles the blocks of a product of `threads` threads.
    void plan(int threads) {
        lanes = round_up(div_up(a.K, a.pair()), kernel.deep);
        deep = std::max(1L, std::min(lanes, kernel.chunk));
        tall = M;
        rows_at_once = kernel.rows;
        by_rows = a.k_step == 1 || kernel.deep > 1;
        group = 1;
        if (c.bf16 && M * N * 2 > SMALL_BYTES) { group = GROUP_TILES; }

        const bool transposes_a = by_rows && a.k_step != 1;
        if (transposes_a) {
            // a small C stays in cache from one block of lanes to the next; a large one does not,
            // nor should A be transposed once for each block of columns
            const bool small = M * N * 4 <= SMALL_BYTES;
            const long least = 256;
            const long all = BLOCK_BYTES / 4 / round_up(N, TILE_COLS);
            const long most = small ? least : std::max(least, all / kernel.deep * kernel.deep);
            deep = std::min(deep, most);
            const long room = ROWS_BYTES / 4 / deep;
            const long share = div_up(M, std::max(4, 2 * threads));
            rows_at_once = round_up(std::min(room, share), kernel.rows);
        }

        const long fits = BLOCK_BYTES / 4 / deep / TILE_COLS * TILE_COLS;
        wide = std::max<long>(TILE_COLS, std::min(round_up(N, TILE_COLS), fits));
        direct = reads_direct();
        packed[0] = product_buffer(BLOCKS_OF_B, 2 * deep * wide);
        packed[1] = packed[0] + deep * wide;
        if (c.bf16 && lanes > deep) {
            const long rows = SUM_BYTES / 4 / wide / kernel.rows * kernel.rows;
            tall = std::min(round_up(M, kernel.rows), rows);
            sums = (float*)product_buffer(SUMS_OF_C, tall * wide);
        }
    }

    // ---- 4 a tile

    // Gives a kernel the rows_at_once rows of A from row i on.
    TileA tile_a(long i, LaneRange of) const {
        const bool past_end = i + kernel.rows > M;
        const bool must_pack = kernel.deep > 1 && past_end;
        if (direct && !must_pack) {
            return { a.at(i, of.l0), a.row_bytes(), a.lane_bytes() };
        }

        // + 16: rows a power of two apart would crowd into few sets of a cache
        const long row = deep + 16;
        lane* to = product_buffer(ROWS_OF_A, std::max(32L, rows_at_once) * row);
        if (!by_rows) {
            pack_panel(to, kernel, a, i, of);
            return { (const char*)to, sizeof(lane), PANEL * sizeof(lane) };
        }
        const long rest = round_up(M - i, kernel.deep);
        const int rows = (int)std::min(rows_at_once, rest);
        pack_rows({ to, row, rows }, kernel, a, i, of);
        return { (const char*)to, row * (long)sizeof(lane), sizeof(lane) };
    }

    // Returns the group of rows i.. and columns j .. j + cols of C. own: for its sums, if neither C
    // nor a buffer holds them
    Group group_at(const Block& block, long i, long j, long cols, float* own) const {
        const int rows = (int)std::min<long>(kernel.rows, M - i);
        const int share = (int)div_up(rows, div_up(cols, TILE_COLS));
        const long own_ld = group == 1 ? (long)TILE_COLS : (long)GROUP;
        Group g = { i, j, rows, (int)cols, share, own, own_ld };
        if (sums) {
            const long row = i - block.i0;
            g.sums = sums + row * wide + j - block.j0;
            g.ld = wide;
        } else if (!c.bf16) {
            g.sums = (float*)c.x + i * c.ld + j;
            g.ld = c.ld;
        }
        return g;
    }

    // Writes a group's sums [+ residual] [+ bias] to C, rounded. If C is float, it holds all but
    // the bias already.
    void finish(const Group& g) const {
        if (c.bf16) {
            const long at = g.i * c.ld + g.j;
            bf16* out = (bf16*)c.x + at;
            const bf16* residual = (const bf16*)(c.accumulate ? c.x : c.residual);
            const bf16* bias = moved((const bf16*)c.bias, g.j);
            kernel.round(out, c.ld, g.sums, g.ld, moved(residual, at), bias, g.rows, g.cols);
            return;
        }
        if (!c.bias) { return; }
        const float* bias = (const float*)c.bias + g.j;
        for (int r = 0; r < g.rows; r++) {
            float* row = g.sums + r * g.ld;
            for (int n = 0; n < g.cols; n++) { row[n] += bias[n]; }
        }
    }

    // Prefetches rows r0 .. r1 of C, columns j.., for writing, while sums are still being made:
    // rows lie too far apart for the processor to foresee. Without this a product of
    // 4096 x 256 x 768 in bf16 takes 1.6 times as long.
    void prefetch_c(long r0, long r1, long j, long cols) const {
        const long size = c.bf16 ? 2 : 4;
        for (long r = r0; r < r1; r++) {
            const char* row = (const char*)c.x + (r * c.ld + j) * size;
            for (long at = 0; at < cols * size; at += 64) { __builtin_prefetch(row + at, 1); }
        }
    }

    // Adds the block's lanes to the sums of tile k of a group.
    void sum_tile(TileA rows, const Block& block, const Group& g, int k) const {
        const LaneRange part = block.lanes;
        const int n = k * TILE_COLS;
        const int cols = std::min<int>(TILE_COLS, g.cols - n);
        const bool first = part.l0 == 0;
        const bool last = part.l1 == lanes;
        float* const to = g.sums + n;
        if (!c.bf16) {
            const bool copies = c.residual && c.residual != c.x;
            if (first && copies) {
                const float* residual = (const float*)c.residual;
                const float* from = residual + g.i * c.ld + g.j + n;
                for (int r = 0; r < g.rows; r++) {
                    memcpy(to + r * g.ld, from + r * c.ld, cols * sizeof(float));
                }
            }
            prefetch_c(g.i, g.i + g.rows, g.j + n, cols);
        } else if (last) {          // this tile's share of the group's rows, each as long as it is
            const int r0 = k * g.share;
            const int r1 = std::min(g.rows, r0 + g.share);
            prefetch_c(g.i + r0, g.i + r1, g.j, g.cols);
        }
        const bool starts_from_c = !c.bf16 && (c.accumulate || c.residual);
        const long column = g.j + n - block.j0;
        const TileB columns = { block.x + column * part.size(), PANEL * part.size() };
        const bool add = !first || starts_from_c;
        kernel.tile(to, g.ld, g.rows, cols, rows, columns, part.size(), add);
    }

    // ---- 5 blocks and threads

    // A ticket packs at most SEGMENT lanes of that many panels of a block.
    long panels_at_once() const {
        return b.k_step == 1 ? PANELS : PANELS_TRANSPOSED;
    }

    // Packs what ticket t is for.
    void pack_ticket(const Block& block, long t) const {
        const long size = block.lanes.size();
        const long from = t % block.segments() * SEGMENT;
        const long to = std::min(size, from + SEGMENT);
        const long first = t / block.segments() * panels_at_once();
        const long end = std::min(first + panels_at_once(), block.panels());
        // B transposed: a few lanes of all these panels, side by side in memory, then the next few
        long step = SEGMENT;
        if (b.k_step != 1) { step = std::max(16, kernel.deep); }
        for (long l = from; l < to; l += step) {
            const long l_end = std::min(to, l + step);
            const LaneRange part = { block.lanes.l0 + l, block.lanes.l0 + l_end };
            for (long k = first; k < end; k++) {
                lane* at = block.x + (k * size + l) * PANEL;
                pack_panel(at, kernel, b, block.j0 + k * PANEL, part);
            }
        }
    }

    // Multiplies kernel.rows rows of A, from row i of C on, with the tiles first .. end of a block.
    void multiply_rows(TileA rows, const Block& block, long i, long first, long end) const {
        const bool last = block.lanes.l1 == lanes;
        alignas(64) float two[2][32 * GROUP];
        // a group is finished after the next one was begun: its sums need a while to arrive
        Group now = {};
        int number = 0;
        for (long t = first; t < end; t += group, number ^= 1) {
            const long tiles = std::min<long>(group, end - t);
            const long j = block.j0 + t * TILE_COLS;
            const long cols = std::min(block.j1 - j, tiles * TILE_COLS);
            const Group before = now;
            now = group_at(block, i, j, cols, two[number]);
            for (int k = 0; k < tiles; k++) {
                sum_tile(rows, block, now, k);
                if (k == 0 && last) { finish(before); }
            }
        }
        if (last) { finish(now); }
    }

    // Does one thread's part of multiplying a block of B.
    void multiply(Tickets& tickets, int threads, const Block& block) const {
        const long H = kernel.rows;
        const long row_parts = div_up(block.i1 - block.i0, rows_at_once);
        const long tiles = div_up(block.j1 - block.j0, TILE_COLS);
        // few rows: columns are shared too, but rows that were transposed together are not done
        // twice
        const long column_parts = std::min(tiles, div_up(4 * threads, row_parts));
        const long tiles_at_once = rows_at_once > H ? tiles : div_up(tiles, column_parts);
        tickets.share(row_parts * div_up(tiles, tiles_at_once), [&](long t) {
            const long from = block.i0 + t % row_parts * rows_at_once;
            const long to = std::min(block.i1, from + rows_at_once);
            const long first = t / row_parts * tiles_at_once;
            const long end = std::min(tiles, first + tiles_at_once);
            TileA rows = tile_a(from, block.lanes);
            for (long i = from; i < to; i += H, rows.at += H * rows.row) {
                multiply_rows(rows, block, i, first, end);
            }
        });
    }

    // Does one thread's part of a product.
    void run(int threads) {
        Tickets tickets(ticket);
        long number = 0;                // of the block
        if (kernel.begin) { kernel.begin(); }
        for (long j0 = 0; j0 < N; j0 += wide) {
            for (long i0 = 0; i0 < M; i0 += tall) {
                // once even if K is 0: then C = 0
                for (long l0 = 0; l0 == 0 || l0 < lanes; l0 += deep) {
                    number++;
                    const Block block = { packed[number % 2],
                                          i0, std::min(M, i0 + tall),
                                          j0, std::min(N, j0 + wide),
                                          { l0, std::min(lanes, l0 + deep) } };
                    const long packs = div_up(block.panels(), panels_at_once()) * block.segments();
                    tickets.share(packs, [&](long t) { pack_ticket(block, t); });
                    if (threads > 1) {
                        #pragma omp barrier
                    }
                    multiply(tickets, threads, block);
                }
            }
        }
        if (kernel.end) { kernel.end(); }
    }
};

// Computes a product by a kernel that fits its factors.
static void product_by(const Kernel& kernel, Factor a, Factor b, const Result& c) {
    if (a.lanes != FLOATS) { a.lanes = b.lanes = kernel.bf16 ? PAIRS : WIDENED; }
    Product p(kernel, a.count, b.count, a, b, c);
    const double operations = 2.0 * p.M * p.N * a.K;
    const double worth_waking_threads = kernel.bf16 ? 2e7 : 4e6;
    const bool large = operations > worth_waking_threads;
    const int threads = large && !omp_in_parallel() ? omp_get_max_threads() : 1;
    p.plan(threads);
    if (threads == 1) { return p.run(1); }
    #pragma omp parallel
    p.run(omp_get_num_threads());
}

void product(Factor a, Factor b, Result c) {
    if (a.count < 1 || b.count < 1) { return; }
    product_by(kernel_for(a.lanes != FLOATS), a, b, c);
}

void product_with(int k, Factor a, Factor b, Result c) { product_by(kernels[k], a, b, c); }

void product_double(long M, long N, long K, Matrix<double> a, Matrix<double> b, Output<double> c) {
    #pragma omp parallel for if (2.0 * M * N * K > 4e6)
    for (long i = 0; i < M; i++) {
        const double* a_i = a.x + i * a.row;
        for (long j = 0; j < N; j++) {
            const double* b_j = b.x + j * b.col;
            const long at = i * c.ld + j;
            double sum = 0;
            for (long k = 0; k < K; k++) {
                sum += a_i[k * a.col] * b_j[k * b.row];
            }
            if (c.accumulate) { sum += c.x[at]; }
            if (c.residual)   { sum += c.residual[at]; }
            if (c.bias)       { sum += c.bias[j]; }
            c.x[at] = sum;
        }
    }
}
} // namespace cpu
