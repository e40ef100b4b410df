/*
mma.cuh -- tiles of bf16 in shared memory and their products on tensor cores. Knows no attention.
*/
#ifndef CUDA_MMA_CUH
#define CUDA_MMA_CUH
#include "instructions.cuh"

namespace cuda {
// where 8 columns of a row of a tile (rows, HS) are: swizzled, so that 8 rows of ldmatrix meet 8
// groups of banks
template <int HS> HD constexpr int tile_offset(int row, int chunk) {
    return row * HS +
           8 * (HS % 64 == 0 ? chunk ^ (row & 7) : (chunk & ~3) | ((chunk ^ (row >> 1)) & 3));
}

template <int HS>
DEVICE bf16* tile_at(bf16* tile, int row, int chunk) {
    return tile + tile_offset<HS>(row, chunk);
}

// where ldmatrix finds its lane's row and, of columns 16 k.., the half that it reads. The swizzle
// comes back every V steps of k and every 8 rows: k turns bits of one number, all else is constant
template <int HS> struct LaneChunks {
    enum { V = HS % 64 == 0 ? 4 : 2 };
    int at;
    DEVICE LaneChunks(int row, int half) : at(tile_offset<HS>(row, half)) {}
    DEVICE int operator()(int rows, int k) const {
        return (at ^ k % V * 16) + rows * HS + k / V * V * 16;
    }
};
// matrices: rows 0-7, 8-15, then their right halves
template <int HS> DEVICE LaneChunks<HS> lanes_by_column() {
    return LaneChunks<HS>(threadIdx.x % 16, threadIdx.x % 32 / 16);
}

// rows 0-7, their right half, then rows 8-15
template <int HS> DEVICE LaneChunks<HS> lanes_by_row() {
    return LaneChunks<HS>(threadIdx.x % 32 / 16 * 8 + threadIdx.x % 8, threadIdx.x / 8 % 2);
}

// x, of which the compiler knows nothing more: what follows from it is computed where it is used
// instead of being kept in registers around a loop
DEVICE unsigned again(unsigned x) {
#ifndef EMU
    asm volatile("" : "+r"(x));
#endif
    return x;
}

// rows from.. of x, those from T on as zeros; arrives with the next cp_async_commit. W threads a
// row, each with every W-th chunk of 16 bytes: R rows further the swizzle is the same, so addresses
// are constants apart. What is unsigned needs fewer instructions to divide and to address by
template <bool WHOLE, int HS, int ROWS>
DEVICE void tile_load_part(bf16* tile, const bf16* x, unsigned stride, int rows, unsigned thread) {
    constexpr int W = HS % 64 == 0 ? 8 : 4, R = 128 / W;
    const int row = thread / W, chunk = thread % W;
    const bf16* at = x + row * stride + chunk * 8;
    tile = tile_at<HS>(tile, row, chunk);
    #pragma unroll
    for (int i = 0; i < ROWS; i += R, at += R * stride) {
        if (i + R > ROWS && row >= ROWS - i) { break; }
        const bool valid = WHOLE || row + i < rows;
        #pragma unroll
        for (int c = 0; c < HS / 8; c += W) {
            cp_async(tile + i * HS + c * 8, valid ? at + c * 8 : x, valid);
        }
    }
}

template <int HS, int ROWS>
DEVICE void tile_load(bf16* tile, const bf16* x, unsigned stride, unsigned from, int T,
                      unsigned thread = threadIdx.x) {
    x += (size_t)from * stride;
    const int rows = T - from;
    if (rows >= ROWS) { tile_load_part<true, HS, ROWS>(tile, x, stride, ROWS, thread); }
    else              { tile_load_part<false, HS, ROWS>(tile, x, stride, rows, thread); }
}

// 16 MT rows of a tile as mma wants them on its left. The first KEEP of HS / 16 pieces stay in
// registers once hold() has loaded them, the others come from shared memory each time
template <int HS, int MT, int KEEP = 0> struct LeftRows {
    bf16* rows; LaneChunks<HS> by_column; uint32_t kept[KEEP ? KEEP : 1][MT][4];
    DEVICE LeftRows(bf16* rows, LaneChunks<HS> by_column) : rows(rows), by_column(by_column) {}
    DEVICE void hold() {
        #pragma unroll
        for (int i = 0; i < KEEP * MT; i++) {
            ldmatrix(kept[i / MT][i % MT], rows + by_column(16 * (i % MT), i / MT));
        }
    }
    DEVICE void piece(uint32_t (&f)[4], int m, int k) const {
        if constexpr (KEEP > 0) {
            if (k < KEEP) {
                #pragma unroll
                for (int i = 0; i < 4; i++) { f[i] = kept[k][m][i]; }
                return;
            }
        }
        ldmatrix(f, rows + by_column(16 * m, k));
    }
};

// c (16 MT, N) = 16 MT rows of a times rows of b, over the head dimension
template <int HS, int MT, int N, int KEEP>
DEVICE void product_rows(float (&c)[MT][N / 8][4], const LeftRows<HS, MT, KEEP>& a, bf16* b,
                         LaneChunks<HS> by_row) {
#pragma unroll
    for (int i = 0; i < MT * N / 2; i++) { c[i / (N / 2)][i / 4 % (N / 8)][i % 4] = 0; }
    #pragma unroll
    for (int k = 0; k < HS / 16; k++) {
        uint32_t fa[MT][4], fb[4];
        #pragma unroll
        for (int m = 0; m < MT; m++) { a.piece(fa[m], m, k); }
        #pragma unroll
        for (int n = 0; n < N / 16; n++) {
            ldmatrix(fb, b + by_row(16 * n, k));
            #pragma unroll
            for (int m = 0; m < MT; m++) {
                mma(c[m][2 * n], fa[m], fb[0], fb[1]);
                mma(c[m][2 * n + 1], fa[m], fb[2], fb[3]);
            }
        }
    }
}

// columns 16 k.. of 16 rows that were results, rounded, as mma wants them on its left
template <int N> DEVICE void pack_left(uint32_t (&f)[4], const float (&w)[N / 8][4], int k) {
    const float (&lo)[4] = w[2 * k], (&hi)[4] = w[2 * k + 1];
    f[0] = pack(lo[0], lo[1]); f[1] = pack(lo[2], lo[3]);
    f[2] = pack(hi[0], hi[1]); f[3] = pack(hi[2], hi[3]);
}

// c (16 MT, HS) += a (16 MT, 16) times the 16 rows of x from `row` on
template <int HS, int MT>
DEVICE void product_step(float (&c)[MT][HS / 8][4], const uint32_t (&a)[MT][4], bf16* x, int row,
                         LaneChunks<HS> by_column) {
    #pragma unroll
    for (int n = 0; n < HS / 16; n++) {
        uint32_t fb[4];
        ldmatrix_trans(fb, x + by_column(row, n));
        #pragma unroll
        for (int m = 0; m < MT; m++) {
            mma(c[m][2 * n], a[m], fb[0], fb[1]);
            mma(c[m][2 * n + 1], a[m], fb[2], fb[3]);
        }
    }
}

// c (16 MT, HS) += w (16 MT, N), in registers, times the N rows of x
template <int HS, int MT, int N>
DEVICE void product_weights(float (&c)[MT][HS / 8][4], const float (&w)[MT][N / 8][4], bf16* x,
                            LaneChunks<HS> by_column) {
#pragma unroll
    for (int k = 0; k < N / 16; k++) {
        uint32_t fa[MT][4];
        #pragma unroll
        for (int m = 0; m < MT; m++) { pack_left<N>(fa[m], w[m], k); }
        product_step<HS, MT>(c, fa, x, 16 * k, by_column);
    }
}

// 16 rows of the warp, times one factor for each of the thread's two, to rows t0.. of out. They
// pass through the rows of a tile that only this warp reads, to leave 16 bytes at a time
template <int HS>
DEVICE void rows_store(bf16* out, long stride, int t0, int T, bf16* tile, int row0,
                       const float (&c)[HS / 8][4], float f0, float f1) {
    const int lane = threadIdx.x % 32, g = lane / 4, t2 = lane % 4 * 2;
    __syncwarp();
    #pragma unroll
    for (int n = 0; n < HS / 8; n++) {
        *(uint32_t*)(tile_at<HS>(tile, row0 + g, n) + t2) = pack(c[n][0] * f0, c[n][1] * f0);
        *(uint32_t*)(tile_at<HS>(tile, row0 + g + 8, n) + t2) = pack(c[n][2] * f1, c[n][3] * f1);
    }
    __syncwarp();
    for (int i = lane; i < 16 * HS / 8; i += 32) {
        const int row = i / (HS / 8), chunk = i % (HS / 8), t = t0 + row0 + row;
        if (t < T) {
            store<8>(out + t * stride + chunk * 8, load<8>(tile_at<HS>(tile, row0 + row, chunk)));
        }
    }
}

template <int HS> DEVICE void rows_scale(float (&c)[HS / 8][4], float f) {
    #pragma unroll
    for (int i = 0; i < HS / 2; i++) { c[i / 4][i % 4] *= f; }
}

// sums and maxima over the 4 lanes that share a row
DEVICE float quad_sum(float v) {
    v += __shfl_xor_sync(~0u, v, 1);
    return v + __shfl_xor_sync(~0u, v, 2);
}

DEVICE float quad_max(float v) {
    v = fmaxf(v, __shfl_xor_sync(~0u, v, 1));
    return fmaxf(v, __shfl_xor_sync(~0u, v, 2));
}
} // namespace cuda
#endif // CUDA_MMA_CUH
