/*
test_matmul.cpp -- the packed matrix product of the CPU reference against three nested loops in double: every entry
point, odd sizes around every block edge, both element types, strided views, alone, nested in a parallel region, and
with other numbers of threads (bit for bit). Last line: N passed, N failed.
To extend: add a size to SIZES or a case to check_gemm's callers.
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
#define ALL_VARIANTS
#include "../cpu/attention.h"

static long passed = 0, failed = 0;
static void check(bool ok, const std::string& what) {
    if (ok) { passed++; return; }
    if (failed++ < 20) { printf("FAILED %s\n", what.c_str()); }
}
static uint64_t seed = 1;
template<class R> std::vector<R> numbers(long n) { // uniform in [-1, 1)
    std::vector<R> v(n);
    for (auto& x : v) { seed = seed * 6364136223846793005ull + 1442695040888963407ull; x = (R)((double)(seed >> 40) / 8388608.0 - 1.0); }
    return v;
}
// C (M, N) = or += A @ B, the plain way
template<class R> std::vector<double> naive(long M, long N, long K, const R* A, long rs_a, long cs_a, const R* B, long rs_b, long cs_b,
                                            const std::vector<R>& C, long ldc, bool add) {
    std::vector<double> out(C.begin(), C.end());
    for (long i = 0; i < M; i++) {
        for (long j = 0; j < N; j++) {
            double s = add ? (double)C[i*ldc + j] : 0;
            for (long k = 0; k < K; k++) { s += (double)A[i*rs_a + k*cs_a] * (double)B[k*rs_b + j*cs_b]; }
            out[i*ldc + j] = s;
        }
    }
    return out;
}
// Each of K additions rounds by eps times the partial sum at most; a partial sum of k products of uniform numbers is about
// sqrt(k) / 3, so the errors add up to some eps K / 7, five times that in the worst of many elements. 2 eps (K + 2) is
// above this (the most seen is 0.7 of it) and a thousand times below one wrong term.
template<class R> void compare(const std::vector<R>& got, const std::vector<double>& want, long K, const std::string& what) {
    const double eps = sizeof(R) == 4 ? 5.96e-8 : 1.11e-16, tolerance = 2 * eps * (K + 2);
    long worst = -1; double most = tolerance;
    for (size_t i = 0; i < got.size(); i++) {
        if (!(fabs((double)got[i] - want[i]) <= most)) { most = fabs((double)got[i] - want[i]); worst = (long)i; }
    }
    check(worst < 0, worst < 0 ? "" : strf("%s: element %ld, got %.9g, wanted %.9g", what.c_str(), worst, (double)got[worst], want[worst]));
}

template<class R> void check_entry_points(long N, long C, long OC) {
    const auto inp = numbers<R>(N*C), weight = numbers<R>(OC*C), dout = numbers<R>(N*OC);
    const auto out0 = numbers<R>(N*OC), dinp0 = numbers<R>(N*C), dweight0 = numbers<R>(OC*C);
    const std::string at = strf("%s N %ld C %ld OC %ld", sizeof(R) == 4 ? "float" : "double", N, C, OC);
    for (int add = 0; add < 2; add++) {
        auto out = out0, dinp = dinp0;
        cpu::gemm<R>(N, OC, C, inp.data(), C, 1, weight.data(), 1, C, out.data(), OC, add);
        compare(out, naive(N, OC, C, inp.data(), C, 1, weight.data(), 1, C, out0, OC, add), C, strf("matmul_forward add %d %s", add, at.c_str()));
        cpu::gemm<R>(N, C, OC, dout.data(), OC, 1, weight.data(), C, 1, dinp.data(), C, add);
        compare(dinp, naive(N, C, OC, dout.data(), OC, 1, weight.data(), C, 1, dinp0, C, add), OC, strf("matmul_backward_input add %d %s", add, at.c_str()));
    }
    auto dweight = dweight0;
    cpu::gemm<R>(OC, C, N, dout.data(), 1, OC, inp.data(), C, 1, dweight.data(), C, true);
    compare(dweight, naive(OC, C, N, dout.data(), 1, OC, inp.data(), C, 1, dweight0, C, true), N, "matmul_backward_weight " + at);
}

// views whose rows are longer than what is used, steps of 2, 3 and 5 between elements; what lies between must not change
template<class R> void check_strides(long M, long N, long K) {
    const long lda = 3*K + 2, ldb = 5*K + 1, ldc = N + 3;
    const auto A = numbers<R>(M*lda), B = numbers<R>(N*ldb), C0 = numbers<R>(M*ldc);
    for (int add = 0; add < 2; add++) {
        auto C = C0;
        cpu::gemm(M, N, K, A.data(), lda, 3L, B.data(), 5L, ldb, C.data(), ldc, (bool)add);
        compare(C, naive(M, N, K, A.data(), lda, 3, B.data(), 5, ldb, C0, ldc, add), K, strf("gemm strided %ld %ld %ld", M, N, K));
        C = C0;
        cpu::gemm(M, N, K, A.data(), 1L, M, B.data(), 2L, 2*K, C.data(), ldc, (bool)add);
        compare(C, naive(M, N, K, A.data(), 1, M, B.data(), 2, 2*K, C0, ldc, add), K, strf("gemm A transposed %ld %ld %ld", M, N, K));
    }
}

template<class R> std::vector<R> product(const std::vector<R>& A, const std::vector<R>& B, long M, long N, long K) {
    std::vector<R> C(M*N);
    cpu::gemm<R>(M, N, K, A.data(), K, 1, B.data(), 1, K, C.data(), N, false);
    return C;
}

int main() {
    const long SIZES[] = {1, 3, 33, 65, 127};
    for (long N : SIZES) { for (long C : SIZES) { for (long OC : SIZES) {
        check_entry_points<float>(N, C, OC);
        check_entry_points<double>(N, C, OC);
    } } }
    // past the blocks: K > 2 KC, M > MC of every instruction set, N > NC of the narrowest (8 columns x 128), and big enough for threads
    check_entry_points<float>(401, 257, 769);
    check_entry_points<float>(129, 1100, 47);
    check_entry_points<double>(71, 1037, 389);
    check_entry_points<float>(67, 31, 4223);
    check_entry_points<double>(67, 31, 2203);
    check_strides<float>(37, 70, 45);
    check_strides<double>(37, 70, 45);
    check_strides<float>(130, 129, 400);

    // nothing to add up: zeros, or what was there; nothing to fill: untouched
    std::vector<float> c = {1, 2, 3, 4}, none;
    cpu::gemm(2L, 2L, 0L, none.data(), 0L, 1L, none.data(), 2L, 1L, c.data(), 2L, true);
    check(c == std::vector<float>({1, 2, 3, 4}), "K = 0 with accumulate must leave C alone");
    cpu::gemm(0L, 2L, 3L, none.data(), 3L, 1L, c.data(), 2L, 1L, c.data(), 2L, false);
    check(c == std::vector<float>({1, 2, 3, 4}), "M = 0 must leave C alone");
    cpu::gemm(2L, 2L, 0L, none.data(), 0L, 1L, none.data(), 2L, 1L, c.data(), 2L, false);
    check(c == std::vector<float>({0, 0, 0, 0}), "K = 0 must give zeros");
    // NaN spreads over its row and nowhere else, also out of the padding of a tile
    auto A = numbers<float>(40*33), B = numbers<float>(35*33);
    A[39*33 + 5] = NAN;
    auto C = product(A, B, 40, 35, 33);
    bool right = true;
    for (long i = 0; i < 40*35; i++) { right = right && (C[i] != C[i]) == (i / 35 == 39); }
    check(right, "a NaN in row 39 of A must fill row 39 of C and no other");

    // any number of threads, and any nesting, gives the same bits
    const long M = 300, N = 213, K = 500;
    A = numbers<float>(M*K); B = numbers<float>(N*K);
    const auto want = product(A, B, M, N, K);
    for (int again = 0; again < 20; again++) { check(product(A, B, M, N, K) == want, "the same product twice must have the same bits"); }
#ifdef _OPENMP
    for (int threads : {1, 2, 3, 7}) {
        omp_set_num_threads(threads);
        check(product(A, B, M, N, K) == want, strf("%d threads must give the same bits", threads));
        int wrong = 0;
        #pragma omp parallel for reduction(+ : wrong)
        for (int i = 0; i < 8; i++) { // several products at once, of several sizes, each on one thread
            const long m = M - 40*i;
            const auto C = product(A, B, m, N, K);
            wrong += memcmp(C.data(), want.data(), m*N * sizeof(float)) != 0;
        }
        check(wrong == 0, strf("nested in a region of %d threads: %d of 8 products differ", threads, wrong));
    }
#endif
    printf("%ld passed, %ld failed\n", passed, failed);
    return failed > 0;
}
