/*
embed.cuh -- the embedding: rows of a table by token, and the sums of their gradients.
*/
#ifndef CUDA_EMBED_CUH
#define CUDA_EMBED_CUH
#include "../attention_row.cuh"
#include "rows.cuh"

namespace cuda {
template <int N>
__global__ void __launch_bounds__(ROW_THREADS)
    embed_forward_kernel(real* out, const int* tokens, EmbedTables<const real> tables, float scale,
                         int rows, int T, int C) {
    const int bt = own_row();
    if (bt >= rows) { return; }
    const int b = bt / T;
    const int t = bt % T;
    const int skip = tables.sink ? 1 : 0;
    const real* x = tables.sink;
    float by = 1;
    if (t >= skip) {
        const int token = tokens[b * (T - skip) + t - skip];
        x = tables.token + (long)token * C;
        by = scale;
    }
    FOR_COLUMNS(c, N, C) {
        const Floats<N> position = Floats<N>::load_or(0, tables.position, (long)t * C + c);
        Floats<N>::store(out + (long)bt * C + c, Floats<N>::load(x + c) * by + position);
    }
}

inline void embed_forward(real* out, const int* tokens, EmbedTables<const real> tables, float scale,
                          int B, int T, int C) {
    const bool ok = wide(C, { out, tables.token, tables.position, tables.sink });
    LAUNCH_WIDE_ROWS(ok, embed_forward_kernel, B * T, C, out, tokens, tables, scale, B * T, T, C)
}

// A token may occur many times, and its row of dwte must be added to in a fixed order, without
// atomics. So the positions are sorted by token: keys (token, position), ascending, by bitonic
// sort. Stages that reach further than SORT_CHUNK keys go through memory, a launch each; all others
// run in shared memory, a block to SORT_CHUNK keys.
enum { SORT_CHUNK = shrunk ? 64 : 2048, SORT_THREADS = SORT_CHUNK / 8 };
DEVICE void sort_pair(uint64_t& lo, uint64_t& hi, bool up) {
    const uint64_t a = lo, b = hi;
    if ((a > b) == up) { lo = b; hi = a; }
}

// Returns the place of the first key of pair i; the second is `apart` behind it, a power of 2.
template <class I> DEVICE I first_of_pair(I i, int apart) { return 2 * i - (i & (apart - 1)); }

// Runs one stage: joins runs of `size` by comparing keys that are `apart` from each other.
__global__ void __launch_bounds__(256)
    sort_stage_kernel(uint64_t* keys, int size, int apart, int pairs) {
    FOR_FLAT(i, 1, pairs) {
        const long lo = first_of_pair(i, apart);
        sort_pair(keys[lo], keys[lo + apart], (lo & size) == 0);
    }
}

// Runs all stages of sizes size..last that stay in a chunk. Those of size 2, the first, make the
// keys.
__global__ void __launch_bounds__(SORT_THREADS)
    sort_chunk_kernel(uint64_t* keys, const int* tokens, int n, int size, int last) {
    SMEM(uint64_t[SORT_CHUNK], x);
    const uint64_t last_of_all = ~0ull;
    const int from = blockIdx.x * SORT_CHUNK;
    FOR_STRIDE(i, threadIdx.x, SORT_CHUNK, SORT_THREADS) {
        const int at = from + i;
        if (size > 2) {
            x[i] = keys[at];
        } else {
            x[i] = at < n ? (uint64_t)tokens[at] << 32 | at : last_of_all;
        }
    }
    __syncthreads();
    for (; size <= last; size *= 2) {
        for (int apart = min(size, (int)SORT_CHUNK) / 2; apart; apart /= 2) {
            FOR_STRIDE(i, threadIdx.x, SORT_CHUNK / 2, SORT_THREADS) {
                const int lo = first_of_pair(i, apart);
                sort_pair(x[lo], x[lo + apart], ((from + lo) & size) == 0);
            }
            __syncthreads();
        }
    }
    FOR_STRIDE(i, threadIdx.x, SORT_CHUNK, SORT_THREADS) { keys[from + i] = x[i]; }
}

// Returns how many keys are sorted for n of them: a power of two.
inline int sort_padded(int n) {
    int k = SORT_CHUNK;
    while (k < n) { k *= 2; }
    return k;
}

// Fills keys (sort_padded(n)) and sorts them.
inline void sort_positions(uint64_t* keys, const int* tokens, int n) {
    const int padded = sort_padded(n);
    const int chunks = padded / SORT_CHUNK;
    auto sort_chunks = [&](int size, int last) {
        LAUNCH(sort_chunk_kernel, dim3(chunks), dim3(SORT_THREADS), 0, keys, tokens, n, size, last);
    };
    sort_chunks(2, SORT_CHUNK);
    for (int size = 2 * SORT_CHUNK; size <= padded; size *= 2) {
        for (int apart = size / 2; apart >= SORT_CHUNK; apart /= 2) {
            LAUNCH_FLAT(1, sort_stage_kernel, padded / 2, keys, size, apart, padded / 2);
        }
        sort_chunks(size, size);
    }
}

// A block adds up the rows of PIECE sorted positions. It finishes the sum of a token that is in one
// piece only. Sums that reach over a border go to part (pieces, 2, C): [0] that of the token which
// began before, [1] that of the token which continues after.
enum { PIECE = 32 };
struct Piece {
    const uint64_t* keys;
    int from, to;          // sorted positions
    bool before, after;    // whether its first token began before it, and its last goes on after it

    DEVICE int token(int i) const { return (int)(keys[i] >> 32); }
    DEVICE Piece(const uint64_t* keys, int piece, int n)
        : keys(keys), from(piece * PIECE), to(min(n, from + PIECE)) {
        before = from > 0 && token(from - 1) == token(from);
        after = to < n && token(to) == token(to - 1);
    }
};
// The keys of n tokens, sorted. They come from sequences of T rows, whose first `skip` rows have no
// token.
struct SortedTokens {
    const uint64_t* keys;
    int n, skip, T;

    // Returns the row of the token at sorted position i.
    DEVICE int row(int i) const {
        const int j = (int)keys[i];
        const int tokens = T - skip;                                 // of a sequence
        return j / tokens * T + j % tokens + skip;
    }
};

template <int N>
__global__ void __launch_bounds__(256)
    embed_backward_kernel(acc* dwte, float* part, const real* dout, SortedTokens sorted,
                          float scale, int C) {
    const Piece p(sorted.keys, blockIdx.x, sorted.n);
    FOR_COLUMNS(c, N, C) {
        Floats<N> sum = 0;
        bool begun_before = p.before;
        #pragma unroll 1
        for (int i = p.from; i < p.to; i++) {
            const int token = p.token(i);
            sum += Floats<N>::load(dout + (long)sorted.row(i) * C + c);
            const bool last = i + 1 == p.to;
            if (!last && p.token(i + 1) == token) { continue; }
            if (begun_before || (last && p.after)) {
                const long place = (long)blockIdx.x * 2 + !begun_before;
                Floats<N>::store_floats(part + place * C + c, sum);
            } else {
                acc* to = dwte + (long)token * C + c;
                UNROLL(k, N) { to[k] += scale * sum[k]; }
            }
            begun_before = false;
            sum = {};
        }
    }
}

// Adds up a token's sums of all pieces, one after the other, in the block of the piece where it
// begins.
__global__ void __launch_bounds__(256)
    embed_backward_join_kernel(acc* dwte, const float* part, const uint64_t* keys, float scale,
                               int n, int C) {
    const Piece p(keys, blockIdx.x, n);
    const int token = p.token(p.to - 1);
    if (!p.after || (p.before && p.token(p.from) == token)) { return; }
    FOR_COLUMNS(c, 1, C) {
        float sum = part[((long)blockIdx.x * 2 + 1) * C + c];
        for (int k = blockIdx.x + 1; k * PIECE < n; k++) {
            if (p.token(k * PIECE) != token) { break; }
            sum += part[(long)k * 2 * C + c];
        }
        dwte[(long)token * C + c] += scale * sum;
    }
}

// Adds sum_b dout to dpos (T, C), and its row 0 to dsink (C).
__global__ void __launch_bounds__(256)
position_backward_kernel(acc* dpos, acc* dsink, const real* dout, int B, int rows, int T, int C) {
    const int t = own_row();
    if (t >= rows) { return; }
    FOR_COLUMNS(c, 1, C) {
        float sum = 0;
        for (int b = 0; b < B; b++) {
            const long row = (long)b * T + t;
            sum += (float)dout[row * C + c];
        }
        if (dpos) { dpos[(long)t * C + c] += sum; }
        if (dsink && t == 0) { dsink[c] += sum; }
    }
}

inline void embed_backward(EmbedTables<acc> grads, const real* dout, const int* tokens, float scale,
                           int B, int T, int C) {
    const int skip = grads.sink ? 1 : 0;
    const int n = B * (T - skip);
    const int pieces = CEIL_DIV(n, PIECE);
    uint64_t* keys = (uint64_t*)device_scratch(sort_padded(n) * sizeof(uint64_t) +
                                               (size_t)pieces * 2 * C * sizeof(float));
    float* part = (float*)(keys + sort_padded(n));
    if (n > 0) {
        sort_positions(keys, tokens, n);
        const bool ok = wide(C, {dout});
        const dim3 block = RowBlocks(1, C, ok ? VN : 1).block;
        const SortedTokens sorted = { keys, n, skip, T };
        LAUNCH_WIDE(ok, embed_backward_kernel, dim3(pieces), block, 0, grads.token, part, dout,
                    sorted, scale, C);
        LAUNCH(embed_backward_join_kernel, dim3(pieces), RowBlocks(1, C, 1).block, 0, grads.token,
               part, keys, scale, n, C);
    }
    const int rows = grads.position ? T : 1;
    if (grads.position || grads.sink) {
        LAUNCH_ROWS(1, position_backward_kernel, rows, C, grads.position, grads.sink, dout, B, rows,
                    T, C)
    }
}
} // namespace cuda
#endif // CUDA_EMBED_CUH
