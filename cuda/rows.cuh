/*
rows.cuh -- how threads share the rows and columns of a tensor.

    by rows    a thread for N columns at a time, as many rows a block as make 256 threads
    flat       a loop over n numbers, N at a time
    by warps   a warp for each row, ROW_WARPS a block
*/
#ifndef CUDA_ROWS_CUH
#define CUDA_ROWS_CUH
#include "instructions.cuh"

namespace cuda {
enum { ROW_THREADS = 256 };              // of a block: by rows, and flat
enum { ROW_WARPS = 4 };                  // of a block: by warps
enum { VN = 16 / sizeof(real) };         // numbers in one access of 16 bytes

// Tells whether rows of C numbers at these addresses can be moved 16 bytes at a time.
inline bool wide(int C, std::initializer_list<const void*> pointers) {
    for (const void* p : pointers) { if ((uintptr_t)p % 16) { return false; } }
    return C % VN == 0;
}

// Every kernel with a template parameter N exists for N = VN and for N = 1, which takes any shape.
#define LAUNCH_WIDE(ok, kernel, ...)     \
    if (ok) {                            \
        LAUNCH(kernel<VN>, __VA_ARGS__); \
    } else {                             \
        LAUNCH(kernel<1>, __VA_ARGS__);  \
    }

// By rows: LAUNCH_ROWS(N, kernel, rows, columns, arguments...); LAUNCH_WIDE_ROWS(ok, ..) chooses N.
struct RowBlocks {
    dim3 grid, block;
    RowBlocks(int rows, int C, int N) {
        const int threads = CEIL_DIV(C, N);
        const int across = CEIL_DIV(threads, CEIL_DIV(threads, ROW_THREADS));
        const int down = std::min(rows, ROW_THREADS / across);
        grid = dim3(CEIL_DIV(rows, down));
        block = dim3(across, down);
    }
};
#define LAUNCH_ROWS(N, kernel, rows, C, ...)                              \
    {                                                                     \
        const RowBlocks blocks_(rows, C, N);                              \
        LAUNCH(kernel, blocks_.grid, blocks_.block, 0, __VA_ARGS__);      \
    }
#define LAUNCH_WIDE_ROWS(ok, kernel, rows, C, ...)                        \
    if (ok) {                                                             \
        LAUNCH_ROWS(VN, kernel<VN>, rows, C, __VA_ARGS__)                 \
    } else {                                                              \
        LAUNCH_ROWS(1, kernel<1>, rows, C, __VA_ARGS__)                   \
    }
DEVICE int own_row() { return blockIdx.x * blockDim.y + threadIdx.y; }
#define FOR_STRIDE(i, from, n, by) for (int i = from; i < (n); i += by)
#define FOR_COLUMNS(c, N, C) FOR_STRIDE(c, threadIdx.x * N, C, blockDim.x * N)

// Flat: LAUNCH_FLAT(N, kernel, n, arguments...). Where there is more, a thread goes around again.
const long FLAT_BLOCKS = shrunk ? 3 : 1L << 16;
inline dim3 flat_grid(long n, int N) {
    const long blocks = CEIL_DIV(n, (long)ROW_THREADS * N);
    return dim3((unsigned)std::min(blocks, FLAT_BLOCKS));
}
#define LAUNCH_FLAT(N, kernel, n, ...) \
    LAUNCH(kernel, flat_grid(n, N), dim3(ROW_THREADS), 0, __VA_ARGS__)
#define FOR_FLAT(i, N, n)                                                      \
    for (long i = ((long)blockIdx.x * ROW_THREADS + threadIdx.x) * N; i < n;   \
         i += (long)gridDim.x * ROW_THREADS * N)

// By warps: LAUNCH_WARPS(kernel, n, arguments...).
DEVICE long warp_number() { return (long)blockIdx.x * ROW_WARPS + warp_id(); }
inline dim3 warp_grid(long n) { return dim3((unsigned)CEIL_DIV(n, ROW_WARPS)); }
#define LAUNCH_WARPS(kernel, n, ...) \
    LAUNCH(kernel, warp_grid(n), dim3(32 * ROW_WARPS), 0, __VA_ARGS__)
// A loop over 0 .. n - 1 that the lanes of a warp share.
#define FOR_LANES(i, n) FOR_STRIDE(i, lane_id(), n, 32)

// ----------------------------------------------------------------------------
// N numbers of a tensor, moved at once. Kernels compute with floats.

template <int N> using Floats = Vec<float, N>;

template <class F, class T, int N> DEVICE Floats<N> each_of(const Vec<T, N>& x, F f) {
    Floats<N> y;
    UNROLL(i, N) { y[i] = f(x[i]); }
    return y;
}

template <int N> DEVICE Floats<N> all_of(float x) {
    Floats<N> all;
    UNROLL(i, N) { all[i] = x; }
    return all;
}

template <int N> DEVICE Floats<N> to_floats(const Vec<real, N>& x) {
    return each_of(x, [](real number) { return (float)number; });
}

template <int N> DEVICE Floats<N> load_real(const real* p) { return to_floats<N>(load<N>(p)); }

// Reads a tensor from `at` on; one that is not there (NULL) holds `otherwise` everywhere.
template <int N> DEVICE Floats<N> load_real_or(float otherwise, const real* p, long at) {
    return p ? load_real<N>(p + at) : all_of<N>(otherwise);
}

template <int N> DEVICE void store_real(real* p, const Floats<N>& x) {
    Vec<real, N> y;
    UNROLL(i, N) { y[i] = real(x[i]); }
    store<N>(p, y);
}

// Arithmetic goes number by number.
#define ELEMENTWISE(op)                                                          \
    template <int N> DEVICE Floats<N>& operator op##=(Floats<N>& a, Floats<N> b) { \
        UNROLL(i, N) { a[i] op##= b[i]; }                                        \
        return a;                                                                \
    }                                                                            \
    template <int N> DEVICE Floats<N>& operator op##=(Floats<N>& a, float b) {   \
        UNROLL(i, N) { a[i] op##= b; }                                           \
        return a;                                                                \
    }                                                                            \
    template <int N> DEVICE Floats<N> operator op(Floats<N> a, Floats<N> b) { return a op##= b; } \
    template <int N> DEVICE Floats<N> operator op(Floats<N> a, float b) { return a op##= b; }
ELEMENTWISE(+)
ELEMENTWISE(-)
ELEMENTWISE(*)
#undef ELEMENTWISE

// Adds to sum the numbers of x, first to last.
template <int N> DEVICE void add_numbers(float& sum, const Floats<N>& x) {
    UNROLL(i, N) { sum += x[i]; }
}

// ----------------------------------------------------------------------------
// N floats, N = 1 or a multiple of 4, 16 bytes at a time.

template <int N> constexpr int at_once = N < 4 ? N : 4;

template <int N> DEVICE Floats<N> load_floats(const float* p) {
    constexpr int M = at_once<N>;
    Floats<N> x;
    UNROLL(i, N / M) {
        const Floats<M> part = load<M>(p + i * M);
        UNROLL(k, M) { x[i * M + k] = part[k]; }
    }
    return x;
}

template <int N> DEVICE void store_floats(float* p, const Floats<N>& x) {
    constexpr int M = at_once<N>;
    UNROLL(i, N / M) {
        Floats<M> part;
        UNROLL(k, M) { part[k] = x[i * M + k]; }
        store<M>(p + i * M, part);
    }
}
} // namespace cuda
#endif // CUDA_ROWS_CUH
