/*
attention_cells.cuh -- ds between the two kernels of attention's backward pass: the first writes it
as cells, in bf16, the second reads it twice.
*/
#ifndef CUDA_ATTENTION_CELLS_CUH
#define CUDA_ATTENTION_CELLS_CUH
#include "attention_score.cuh"
#include "attention_tiles.cuh"

namespace cuda {
// ds in memory: for a chunk of heads, or of one head's keys, at a time. Of each query head of a
// chunk there are cells of 16 queries by 16 keys, (queries / 16, keys / 16, 256). A cell is what a
// warp holds of A in an mma whose rows are keys and whose columns are queries (mma.cuh): four
// matrices, each 8 keys by 8 queries.
//
//                    queries 0-7    8-15
//        keys 0-7        [0]         [2]
//        keys 8-15       [1]         [3]
enum { CELL_SIDE = 16, CELL_MATRIX = 8 * 8, CELL = 4 * CELL_MATRIX };
const size_t CELL_BYTES = CELL * sizeof(bf16);
enum { CHUNK_KEYS = 128 };                               // a chunk ends at a multiple of it
const size_t CHUNK_BYTES = shrunk ? 1 << 17 : 1 << 29;   // at T 2048: 64 query heads

struct DsChunk {
    bf16* ds;
    int g0, count;         // key heads g0.. of B KV
    int h0;                // and the first of their query heads, of B NH
    int j0, j1;            // keys
    int QT;                // cells in a column: T rounded up, over 16

    HD unsigned width() const { return (unsigned)(j1 - j0) / CELL_SIDE; }

    // Returns the cell of query head `head` of the chunk, queries t.., keys j..: multiples of 16,
    // never negative.
    HD bf16* cell(int head, unsigned t, unsigned j) const {
        const unsigned row = (head * QT + t / CELL_SIDE) * width();
        return ds + (size_t)(row + (j - j0) / CELL_SIDE) * CELL;
    }
};

// Returns the chunk that begins at key head g0 and key j0.
inline DsChunk ds_chunk(const AttnShape& s, int g0, int j0) {
    const int G = group_size(s);
    const int heads = s.B * s.KV;
    const int keys = CEIL_DIV(s.T, CHUNK_KEYS) * CHUNK_KEYS;
    const int QT = rows_padded(s.T) / CELL_SIDE;
    const size_t key_bytes = (size_t)G * QT * CELL_BYTES / CELL_SIDE;    // of all its queries
    const size_t keys_in_chunk = CHUNK_BYTES / key_bytes;
    const size_t fit_keys = std::max<size_t>(CHUNK_KEYS, keys_in_chunk / CHUNK_KEYS * CHUNK_KEYS);
    const int keys_at_once = (int)std::min<size_t>(keys, fit_keys);
    const int fit_heads = (int)std::max<size_t>(1, keys_in_chunk / keys);
    const int even = CEIL_DIV(heads, CEIL_DIV(heads, fit_heads));   // chunks of about one size
    DsChunk c = {};
    c.g0 = g0;
    c.count = std::min(even, heads - g0);
    c.h0 = g0 * G;
    c.j0 = j0;
    c.j1 = std::min(j0 + keys_at_once, keys);
    c.QT = QT;
    return c;
}

// Returns the bytes of the largest chunk: no later one is larger than the first.
inline size_t ds_bytes(const AttnShape& s) {
    const DsChunk c = ds_chunk(s, 0, 0);
    const size_t heads = c.count * group_size(s);
    return heads * c.QT * c.width() * CELL_BYTES;
}

// Returns all chunks; ds: memory of ds_bytes.
inline std::vector<DsChunk> ds_chunks(bf16* ds, const AttnShape& s) {
    std::vector<DsChunk> all;
    DsChunk c = {};
    for (int g0 = 0; g0 < s.B * s.KV; g0 += c.count) {
        for (int j0 = 0; j0 < s.T; j0 = c.j1) {
            c = ds_chunk(s, g0, j0);
            c.ds = ds;
            all.push_back(c);
        }
    }
    return all;
}

// ----------------------------------------------------------------------------
// The second kernel is the same for every variant: attention_dqk.cu.

// How it is cut.
template <int HS> struct DqkTile {
    enum {
        MT = HS > 128 ? 1 : 2,
        ROWS = 64 * MT,
        BX = 64,           // of the others at a time
        // bytes: two tiles each of ds and of the others
        SMEM = (2 * ROWS * BX + 2 * BX * HS) * 2
    };
};

// What it reads beside ds.
struct DqkInputs {
    const bf16* qkv;
    const bf16* kstar;     // k* of this head, or NULL,
    const float* ds_star;  // and its ds
    const acc* rope_table; // or NULL
    AttnShape s;
};

inline DqkInputs dqk_inputs(ExtraKind extra, const AttnInputs& in, const RowStats& r,
                            const acc* rope_table) {
    const bool has_key = extra == KEY_EXTRA && in.extra.k;
    return { (const bf16*)in.qkv, has_key ? (const bf16*)in.extra.k : NULL,
             has_key ? r.ds_star : NULL, rope_table, in.s };
}

// A block's rows are queries, and it walks over the keys that they see, or keys, and it walks over
// the queries, of all heads that share the key, that see them. Those of a head run at about the
// same time (head_tile), so that part of what both read of ds is still in L2 for the second.
enum Side { QUERIES, KEYS };

// What a block sums up.
struct DqkRows {
    int b;                 // sequence
    int h, h_end;          // its query heads
    int r0;                // its first row
    int begin, end;        // the others
    int column;            // head of dqkv that its sums belong to
    int others;            // head of qkv that a row of queries is multiplied with
};

// Returns the rows of a tile; head: a query head of the chunk, or a key head.
template <Side SIDE, int ROWS>
DEVICE DqkRows dqk_rows_at(int head, int tile, const DsChunk& c, const AttnShape& s) {
    const int G = group_size(s);
    const bool queries = SIDE == QUERIES;
    const int bg = c.g0 + (queries ? head / G : head);   // key head, counted through all sequences
    const int g = bg % s.KV;
    DqkRows x = {};
    x.b = bg / s.KV;
    if (queries) {
        x.h = g * G + head % G;
        x.h_end = x.h + 1;
        x.r0 = tile * ROWS;
        x.begin = c.j0;
        x.end = min(min(s.T, c.j1), max(x.r0 + ROWS, s.prefix));
        x.column = x.h;
        x.others = key_head(s, g);
    } else {
        x.h = g * G;
        x.h_end = x.h + G;
        x.r0 = c.j0 + tile * ROWS;
        x.end = s.T;
        x.column = key_head(s, g);
    }
    return x;
}

// Begins the sums of dq: with the extra key's part, ds* k*, or, in a later chunk, with what the
// chunks before have stored in `before`. row: of the head's first query in ds_star.
template <int HS, int MT>
DEVICE void dq_start(Sums<MT, HS>& d, const DqkInputs& in, int g, long row, const bf16* before,
                     int lane_row) {
    const AttnShape& s = in.s;
    const int column = lane_column();
    UNROLL(r, 2 * MT) {
        const int t = min(lane_row + 8 * r, s.T - 1);
        // before this loop it would make the main loop a tenth longer
        const bf16* ks = attn_extra(in.kstar, s, g);
        const float ds = ks ? in.ds_star[row + t] : 0.0f;
        const long row_t = (long)t * attn_row(s);
        UNROLL(i, HS / 4) {
            float& sum = element(d, r, i);
            const int at = column + columns_on(i);
            sum = ks ? ds * (float)ks[at] : 0.0f;
            if (before) { sum = before[row_t + at]; }
        }
    }
}

// Computes dq and dk of a chunk from its ds.
void attention_dqk(bf16* dqkv, const DsChunk& c, const DqkInputs& in);

// Computes dq alone, on Hopper: there dk is made with dv.
void attention_dq(bf16* dqkv, const DsChunk& c, const DqkInputs& in);
} // namespace cuda
#endif // CUDA_ATTENTION_CELLS_CUH
