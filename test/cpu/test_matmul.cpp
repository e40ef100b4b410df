/*
test_matmul.cpp -- the matrix product of the CPU against three nested loops in double:
every kernel that this machine has, the three layouts of training, odd sizes around every block
edge, float, bf16 and double, strided views, bias and residual, alone, nested in a parallel region,
and with other numbers of threads (bit for bit); and how bf16 rounds. Last line: N passed, N failed.
To extend: add a size to SIZES or a case to check_kernel.
*/
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <algorithm>
#include <atomic>
#include <vector>
#ifdef _OPENMP
#include <omp.h>
#endif
#include "../../cpu/ops.h"
#include "../check.h"
using cpu::bf16;
using cpu::Output;
using cpu::rows_of;
using cpu::transposed;

static void check(bool ok, const std::string& what) { CHECK(ok, "%s", what.c_str()); }
static uint64_t seed = 1;
template<class R> std::vector<R> numbers(long n) { // uniform in [-1, 1)
    std::vector<R> v(n);
    for (auto& x : v) {
        seed = seed * 6364136223846793005ull + 1442695040888963407ull;
        x = (R)((double)(seed >> 40) / 8388608.0 - 1.0);
    }
    return v;
}
template<class R> const char* type_name() {
    return std::is_same<R, bf16>::value ? "bf16" : sizeof(R) == 4 ? "float" : "double";
}
// C (M, N) = or += A @ B + residual + bias, the plain way
template <class R, class O>
std::vector<double> naive(long M, long N, long K, const R* A, long rs_a, long cs_a, const R* B,
                          long rs_b, long cs_b, const std::vector<O>& C, long ldc, bool add,
                          const O* residual = NULL, const O* bias = NULL) {
    std::vector<double> out(C.begin(), C.end());
    for (long i = 0; i < M; i++) {
        for (long j = 0; j < N; j++) {
            double s = add ? (double)C[i*ldc + j] : 0;
            for (long k = 0; k < K; k++) {
                s += (double)A[i * rs_a + k * cs_a] * (double)B[k * rs_b + j * cs_b];
            }
            if (residual) { s += (double)residual[i*ldc + j]; }
            if (bias) { s += (double)bias[j]; }
            out[i*ldc + j] = s;
        }
    }
    return out;
}
// Each of K additions rounds by eps times the partial sum at most; a partial sum of k products
// of uniform numbers is about sqrt(k) / 3, so the errors add up to some eps K / 7, five times
// that in the worst of many elements. 2 eps (K + 3) is above this (the most seen is 0.7 of it)
// and a thousand times below one wrong term. What is stored in bf16 is rounded to 8 bits once more:
// by 1/256 of it at most; if it is biased, it is also rounded before the bias, up to 1, is added.
// Elements that nothing was added to must be as they were.
template <class O>
void compare(const std::vector<O>& got, const std::vector<double>& want, long K,
             const std::string& what, bool biased = false) {
    const double eps = sizeof(O) == 8 ? 1.11e-16 : 5.96e-8,
                 half_ulp = sizeof(O) == 2 ? 1.0 / 256 : 0;
    long worst = -1; double most = 1;
    for (size_t i = 0; i < got.size(); i++) {
        const double far = fabs((double)got[i] - want[i]) /
                           (2 * eps * (K + 3) +
                            half_ulp * (fabs(want[i]) + biased * (fabs(want[i]) + 1)));
        if (!(far <= most)) { most = far; worst = (long)i; }
    }
    check(worst < 0,
          worst < 0 ? ""
                    : strf("%s %s: element %ld, got %.9g, wanted %.9g", cpu::product_name().c_str(),
                           what.c_str(), worst, (double)got[worst], want[worst]));
}

// factors of R, and what is stored of activations
template<class R> void check_layouts(long N, long C, long OC) {
    // of weights
    typedef typename std::conditional<std::is_same<R, bf16>::value, float, R>::type Grad;
    const auto inp = numbers<R>(N*C), weight = numbers<R>(OC*C), dout = numbers<R>(N*OC);
    const auto out0 = numbers<R>(N * OC), dinp0 = numbers<R>(N * C), residual = numbers<R>(N * OC),
               bias = numbers<R>(OC);
    const auto dweight0 = numbers<Grad>(OC*C);
    const std::string at = strf("%s N %ld C %ld OC %ld", type_name<R>(), N, C, OC);
    for (int extra = 0; extra < 4; extra++) {
        const R *res = extra & 1 ? residual.data() : NULL, *b = extra & 2 ? bias.data() : NULL;
        auto out = out0;
        cpu::gemm(N, OC, C, rows_of(inp.data(), C), transposed(weight.data(), C),
                  Output<R>{ out.data(), OC, false, res, b });
        compare(out,
                naive(N, OC, C, inp.data(), C, 1, weight.data(), 1, C, out0, OC, false, res, b), C,
                strf("forward, residual and bias %d %s", extra, at.c_str()), extra & 2);
    }
    for (int add = 0; add < 2; add++) {
        auto dinp = dinp0;
        cpu::gemm(N, C, OC, rows_of(dout.data(), OC), rows_of(weight.data(), C),
                  Output<R>{ dinp.data(), C, add > 0 });
        compare(dinp, naive(N, C, OC, dout.data(), OC, 1, weight.data(), C, 1, dinp0, C, add), OC,
                strf("to the input, add %d %s", add, at.c_str()));
        auto dweight = dweight0;
        cpu::gemm(OC, C, N, transposed(dout.data(), OC), rows_of(inp.data(), C),
                  Output<Grad>{ dweight.data(), C, add > 0 });
        compare(dweight, naive(OC, C, N, dout.data(), 1, OC, inp.data(), C, 1, dweight0, C, add), N,
                strf("to the weight, add %d %s", add, at.c_str()));
    }
}

// views whose rows are longer than what is used, steps of 2, 3 and 5 between elements;
// what lies between must not change
template<class R, class O = R> void check_strides(long M, long N, long K) {
    const long lda = 3*K + 2, ldb = 5*K + 1, ldc = N + 3;
    const auto A = numbers<R>(M*lda + 1), B = numbers<R>(std::max(N, K)*ldb + 1);
    const auto C0 = numbers<O>(M*ldc);
    const std::string at = strf("%s %ld %ld %ld", type_name<R>(), M, N, K);
    for (int add = 0; add < 2; add++) {
        auto C = C0;
        const Output<O> to = { C.data(), ldc, add > 0 };
        cpu::gemm<R>(M, N, K, { A.data(), lda, 3 }, { B.data(), 5, ldb }, to);
        compare(C, naive(M, N, K, A.data(), lda, 3, B.data(), 5, ldb, C0, ldc, add), K,
                "strided " + at);
        C = C0;
        cpu::gemm<R>(M, N, K, { A.data(), 1, M }, { B.data(), 2, 2 * K }, to);
        compare(C, naive(M, N, K, A.data(), 1, M, B.data(), 2, 2 * K, C0, ldc, add), K,
                "A transposed " + at);
        C = C0;
        cpu::gemm(M, N, K, rows_of(A.data() + 1, lda), rows_of(B.data() + 1, ldb), to);
        compare(C, naive(M, N, K, A.data() + 1, lda, 1, B.data() + 1, ldb, 1, C0, ldc, add), K,
                "no alignment " + at);
    }
}

template <class R, class O = R>
std::vector<O> product(const std::vector<R>& A, const std::vector<R>& B, long M, long N, long K) {
    std::vector<O> C(M*N);
    cpu::gemm(M, N, K, rows_of(A.data(), K), transposed(B.data(), K),
              Output<O>{ C.data(), N, false });
    return C;
}
template <class O> bool same(const std::vector<O>& a, const O* b) {
    return memcmp(a.data(), b, a.size() * sizeof(O)) == 0;
}

// any number of threads, and any nesting, gives the same bits
template<class R, class O> void check_threads(long M, long N, long K) {
    const auto A = numbers<R>(M*K), B = numbers<R>(N*K);
    const auto want = product<R, O>(A, B, M, N, K);
    const std::string at = cpu::product_name() + " " + type_name<R>() + " to " + type_name<O>();
    for (int again = 0; again < 5; again++) {
        check(same(product<R, O>(A, B, M, N, K), want.data()),
              at + ": the same product twice must have the same bits");
    }
#ifdef _OPENMP
    const int before = omp_get_max_threads();
    for (int threads : {1, 2, 3, 7, 8}) {
        omp_set_num_threads(threads);
        check(same(product<R, O>(A, B, M, N, K), want.data()),
              strf("%s: %d threads must give the same bits", at.c_str(), threads));
        int wrong = 0;
        #pragma omp parallel for reduction(+ : wrong)
        // several products at once, of several sizes, each on one thread
        for (int i = 0; i < 8; i++) {
            wrong += !same(product<R, O>(A, B, M - M/8*i, N, K), want.data());
        }
        check(wrong == 0, strf("%s nested in a region of %d threads: %d of 8 products differ",
                               at.c_str(), threads, wrong));
    }
    omp_set_num_threads(before);
#endif
}

// a C in bf16 that leaves the second cache, so that tiles side by side are rounded together, of one
// block of lanes and of several; some of its rows, the last ones among them
static void check_large() {
    const long M = 1037, N = 1061, some = 35;
    const auto residual = numbers<bf16>(M*N), bias = numbers<bf16>(N);
    for (long K : { 24, 2100 }) {
        const auto A = numbers<bf16>(M*K), B = numbers<bf16>(N*K);
        for (int extra = 0; extra < 2; extra++) {
            const bf16 *res = extra ? residual.data() : NULL, *b = extra ? bias.data() : NULL;
            std::vector<bf16> C(M*N);
            cpu::gemm(M, N, K, rows_of(A.data(), K), transposed(B.data(), K),
                      Output<bf16>{ C.data(), N, false, res, b });
            for (long at : { 0L, 500L, M - some }) {
                const std::vector<bf16> rows(&C[at*N], &C[(at + some)*N - 1] + 1);
                const bf16* res_at = res ? res + at*N : NULL;
                const auto want = naive(some, N, K, &A[at*K], K, 1, B.data(), 1, K, rows, N, false,
                                        res_at, b);
                compare(rows, want, K, strf("large C, K %ld, extra %d, rows %ld", K, extra, at),
                        extra);
            }
        }
    }
}

// everything with the kernels that are chosen now, for factors of R
template<class R> void check_kernel() {
    for (long N : { 1, 3, 33, 65 }) {
        for (long C : { 1, 17, 64, 127 }) {
            for (long OC : { 1, 16, 33, 65 }) { check_layouts<R>(N, C, OC); }
        }
    }
    // past the blocks of every kernel, and big enough for threads
    check_layouts<R>(401, 257, 769);
    check_layouts<R>(129, 1100, 47);
    check_layouts<R>(67, 31, 2101);
    check_layouts<R>(38, 2100, 33);
    check_strides<R>(37, 70, 45);
    check_strides<R>(64, 96, 64);
    check_strides<R>(130, 129, 400);
}

// nothing to add up: zeros, or what was there; nothing to fill: untouched;
// NaN spreads over its row and nowhere else
template<class R> void check_corners() {
    const R one = 1, two = 2;
    std::vector<R> c = {one, two, one, two}, none(1);
    const auto was = c;
    const auto empty = rows_of(none.data(), 2);
    cpu::gemm(2, 2, 0, empty, empty, Output<R>{ c.data(), 2, true });
    check(same(c, was.data()), "K = 0 with accumulate must leave C alone");
    cpu::gemm(0, 2, 3, empty, empty, Output<R>{ c.data(), 2, false });
    check(same(c, was.data()), "M = 0 must leave C alone");
    cpu::gemm(2, 2, 0, empty, empty, Output<R>{ c.data(), 2, false });
    for (R x : c) { check((float)x == 0, "K = 0 must give zeros"); }
    auto A = numbers<R>(40*33), B = numbers<R>(35*33);
    A[39*33 + 5] = (R)NAN;
    const auto C = product<R>(A, B, 40, 35, 33);
    bool right = true;
    for (long i = 0; i < 40*35; i++) { right = right && std::isnan((float)C[i]) == (i / 35 == 39); }
    check(right, cpu::product_name() + ": a NaN in row 39 of A must fill row 39 of C and no other");
}

// to the nearest of 8 bits, of two equally near the even one: by the definition,
// from the two neighbors
static void check_rounding() {
    long wrong = 0;
    for (uint32_t bits = 0; bits < 1u << 16; bits++) {
        bf16 x; x.bits = bits;
        const float f = x;
        if (f != f) { wrong += !std::isnan((float)bf16(f)); continue; }
        wrong += bf16(f).bits != bits;  // what bf16 holds stays
        if (std::isinf(f) || (bits & 0x7fff) == 0x7f7f) { continue; }
        bf16 y; y.bits = bits + 1;  // its neighbor, away from zero
        const float half = (float)(((double)f + (float)y) / 2);
        wrong += bf16(half).bits != (bits % 2 ? y.bits : bits);
        wrong += bf16(nextafterf(half, f)).bits != bits || bf16(nextafterf(half, y)).bits != y.bits;
    }
    check(wrong == 0, strf("bf16: %ld of 65536 numbers or their midpoints round wrongly", wrong));
    check(bf16(3.4e38f).bits == 0x7f80 && bf16(-3.4e38f).bits == 0xff80,
          "bf16: what is nearer to 2^128 is infinite");
    check(bf16(NAN).bits == 0x7fff && bf16(-NAN).bits == 0x7fff, "bf16: NaN has CUDA's bits");
}
// every kernel stores bf16 by the same rounding
static void check_stores() {
    const long n = 1 << 14;
    auto sum = numbers<float>(n), scale = numbers<float>(n);
    for (long i = 0; i < n; i++) { sum[i] = ldexpf(sum[i], (int)(scale[i] * 100)); }
    for (long i = 0; i < n; i += 3) {
        uint32_t u;
        memcpy(&u, &sum[i], 4);
        u = (u & 0xffff0000) | 0x8000;
        memcpy(&sum[i], &u, 4);
    }  // halves
    const auto x = numbers<bf16>(n), y = numbers<bf16>(n);
    for (int k = 0; k < cpu::KERNELS; k++) {
        if (!cpu::kernel_here(k)) { continue; }
        for (int extra = 0; extra < 4; extra++) {
            std::vector<bf16> got(n), want(n);
            const bf16 *x_k = extra & 1 ? x.data() : NULL, *y_k = extra & 2 ? y.data() : NULL;
            for (long i = 0; i < n; i++) {
                float s = sum[i];
                if (x_k) { s += (float)x[i]; }
                want[i] = s;
                if (y_k) { want[i] = (float)want[i] + (float)y[i % 37]; }
            }
            for (long r = 0; r + 37 <= n; r += 37) {
                cpu::kernels[k].round(&got[r], 37, &sum[r], 37, x_k ? x_k + r : NULL, y_k, 1, 37);
            }
            want.resize(n / 37 * 37);
            check(same(want, got.data()),
                  strf("%s: bf16 with residual and bias %d", cpu::kernels[k].name, extra));
        }
    }
}

// a layer of one row, with and without bias and residual
static void check_one_row(int C, int OC) {
    const auto x = numbers<float>(C), w = numbers<float>(OC * C), bias = numbers<float>(OC),
               res = numbers<float>(OC);
    for (int with = 0; with < 4; with++) {
        std::vector<float> row(OC, NAN);
        const float* b = with & 1 ? bias.data() : NULL;
        const float* r = with & 2 ? res.data() : NULL;
        cpu::vector_forward(row.data(), x.data(), w.data(), b, r, C, OC);
        double most = 0;
        for (int o = 0; o < OC; o++) {
            double sum = (with & 1 ? bias[o] : 0) + (with & 2 ? res[o] : 0);
            for (int i = 0; i < C; i++) { sum += (double)x[i] * w[o * C + i]; }
            most = std::max(most, fabs(sum - row[o]));
        }
        check(most < 1e-4, strf("one row, %d x %d, with %d: %g away", C, OC, with, most));
    }
}

// Checks the kernel that is chosen: every type it multiplies.
static void check_chosen(bool bf16_only) {
    if (!bf16_only) {
        check_kernel<float>();
        check_corners<float>();
        check_threads<float, float>(300, 213, 500);
    }
    check_kernel<bf16>();
    check_corners<bf16>();
    check_strides<bf16, float>(37, 70, 45);
    check_large();
    check_threads<bf16, bf16>(300, 213, 500);
    check_threads<bf16, float>(96, 320, 2100);
}

int main() {
    CASE("one_row") {
        check_one_row(300, 130);
        check_one_row(17, 65);
        check_one_row(257, 5000);
    }
    CASE("rounding") { check_rounding(); }
    CASE("stores") { check_stores(); }
    CASE("double") {
        check_kernel<double>();
        check_corners<double>();
        check_threads<double, double>(150, 113, 200);
    }
    const int fastest = cpu::product_settings.last_kernel;
    for (int k = 0; k <= fastest; k++) {
        const cpu::Kernel& kernel = cpu::kernels[k];
        if (!cpu::kernel_here(k)) { printf("no %s here\n", kernel.name); continue; }
        cpu::product_settings.last_kernel = k;
        CASE(kernel.name) { check_chosen(kernel.bf16); }
    }
    return check_done();
}
