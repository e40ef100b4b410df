/*
bench_product.cpp -- the CPU's matrix product, timed on request; dev/bench/bench_product.py asks, in turn
with PyTorch. Reads lines `fp32|bf16 forward|input|weight N C OC`, answers each with seconds,
by the clock on the wall and of the processor; first the kernels' names.
    g++ -std=c++17 -O3 -march=native -fopenmp dev/bench/bench_product.cpp cpu/product.cpp \
        cpu/kernels.cpp -o build/bench_product
*/
#include <time.h>
#include "../../cpu/product.h"
using cpu::bf16;

// a matrix on a cache line, of small numbers
template <class R> struct Matrix {
    R* x;
    Matrix(long n) : x((R*)aligned_alloc(64, (n * sizeof(R) + 63) / 64 * 64)) {
        for (long i = 0; i < n; i++) { x[i] = (i * 37 % 101 - 50) / 64.0f; }
    }
    ~Matrix() { free(x); }
};

struct Seconds { double wall, processor; };

// of one product, after one that warms up: the layer's (N, C) -> (N, OC),
// or one of its two gradients
template <class R> Seconds seconds(const std::string& layout, long N, long C, long OC) {
    Matrix<R> inp(N * C), weight(OC * C), out(N * OC);
    Matrix<float> dweight(layout == "weight" ? OC * C : 1);
    double wall = 0;
    clock_t processor = 0;
    for (int again = 0; again < 2; again++) {
        wall = now_ms();
        processor = clock();
        if (layout == "forward") {
            cpu::gemm(N, OC, C, cpu::rows_of(inp.x, C), cpu::transposed(weight.x, C),
                      cpu::Output<R>{ out.x, OC, false });
        } else if (layout == "input") {
            cpu::gemm(N, C, OC, cpu::rows_of(out.x, OC), cpu::rows_of(weight.x, C),
                      cpu::Output<R>{ inp.x, C, false });
        } else {
            cpu::gemm(OC, C, N, cpu::transposed(out.x, OC), cpu::rows_of(inp.x, C),
                      cpu::Output<float>{ dweight.x, C, true });
        }
    }
    return { (now_ms() - wall) / 1000, (clock() - processor) / (double)CLOCKS_PER_SEC };
}

int main() {
    printf("%s\n", cpu::product_name().c_str());
    fflush(stdout);
    char type[16], layout[16];
    long N, C, OC;
    while (scanf("%15s %15s %ld %ld %ld", type, layout, &N, &C, &OC) == 5) {
        const bool half = !strcmp(type, "bf16");
        const Seconds s = half ? seconds<bf16>(layout, N, C, OC) : seconds<float>(layout, N, C, OC);
        printf("%.9f %.9f\n", s.wall, s.processor);
        fflush(stdout);
    }
}
