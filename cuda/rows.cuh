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
// N numbers of a tensor, moved at once. Kernels compute with floats, number by number.

template <int N> struct Floats {
    float numbers[N];

    Floats() = default;
    DEVICE Floats(float all) { UNROLL(i, N) { numbers[i] = all; } }
    template <class T> DEVICE Floats(const Vec<T, N>& x) {
        UNROLL(i, N) { numbers[i] = (float)x[i]; }
    }

    DEVICE float& operator[](int i) { return numbers[i]; }
    DEVICE float operator[](int i) const { return numbers[i]; }
    DEVICE Floats& operator+=(const Floats& b) {
        UNROLL(i, N) { numbers[i] += b[i]; }
        return *this;
    }
    DEVICE friend Floats operator+(Floats a, const Floats& b) { return a += b; }
    DEVICE friend Floats operator-(Floats a, const Floats& b) {
        UNROLL(i, N) { a[i] -= b[i]; }
        return a;
    }
    DEVICE friend Floats operator*(Floats a, const Floats& b) {
        UNROLL(i, N) { a[i] *= b[i]; }
        return a;
    }
    template <class F> DEVICE Floats each(F f) const {
        Floats y;
        UNROLL(i, N) { y[i] = f(numbers[i]); }
        return y;
    }
    // Adds the numbers, first to last, to sum.
    DEVICE void add_to(float& sum) const { UNROLL(i, N) { sum += numbers[i]; } }

    DEVICE static Floats load(const real* p) { return cuda::load<N>(p); }
    // Reads a tensor from `at` on; one that is not there (NULL) holds `otherwise` everywhere.
    DEVICE static Floats load_or(float otherwise, const real* p, long at) {
        return p ? load(p + at) : Floats(otherwise);
    }
    DEVICE static void store(real* p, const Floats& x) {
        Vec<real, N> y;
        UNROLL(i, N) { y[i] = real(x[i]); }
        cuda::store<N>(p, y);
    }

    // Of floats, where N is 1 or a multiple of 4, and p aligned to 16 bytes.
    enum { AT_ONCE = N < 4 ? N : 4 };
    DEVICE static Floats load_floats(const float* p) {
        Floats x;
        UNROLL(i, N / AT_ONCE) {
            const auto part = cuda::load<AT_ONCE>(p + i * AT_ONCE);
            UNROLL(k, AT_ONCE) { x[i * AT_ONCE + k] = part[k]; }
        }
        return x;
    }
    DEVICE static void store_floats(float* p, const Floats& x) {
        UNROLL(i, N / AT_ONCE) {
            Vec<float, AT_ONCE> part;
            UNROLL(k, AT_ONCE) { part[k] = x[i * AT_ONCE + k]; }
            cuda::store<AT_ONCE>(p + i * AT_ONCE, part);
        }
    }
};
} // namespace cuda
#endif // CUDA_ROWS_CUH
