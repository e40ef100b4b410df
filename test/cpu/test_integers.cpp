// test_integers.cpp -- the product with weights of 4 and 8 bits in whole numbers
// (cpu/int8_product.h):
// as near to the exact product as it says, for each type and where parts of different types meet;
// a row does not depend on its neighbors, nor on the threads; what is not finite stays so.
#include <cmath>
#include <cstring>
#include "../../cpu/int8_product.h"
#include "../../cpu/bf16_pair.h"
#include "../../files/weights.h"
#include "../check.h"

// bytes of a matrix (rows, C) of a type: random numbers of 4 or 8 bits, and for each 32 of them a
// scale and, where the type has one, a minimum
struct Bytes {
    std::vector<unsigned char> x;
    long row;                       // bytes from row to row
};

static Bytes bytes_of(const std::string& type, long rows, long C, Rng* rng) {
    const int scales = type == "Q4_1" ? 4 : 2, numbers = type == "Q8_0" ? 32 : 16;
    Bytes b;
    b.row = C / 32 * (scales + numbers);
    const uint16_t halves[] = { 0x2e66, 0x3001, 0x2800, 0xb123, 0x1e00, 0x0123 }; // .1, .125, ..
    for (long i = 0; i < rows * C / 32; i++) {
        for (int k = 0; k < scales / 2; k++) {
            const uint16_t h = halves[rng_below(rng, 6)];
            b.x.push_back(h & 255);
            b.x.push_back(h >> 8);
        }
        for (int k = 0; k < numbers; k++) { b.x.push_back(rng_below(rng, 256)); }
    }
    return b;
}

// the same by the definition of the type
static void floats_of(const std::string& type, const Bytes& b, long rows, long C, float* out) {
    for (long r = 0; r < rows; r++) {
        const unsigned char* p = b.x.data() + r * b.row;
        for (long i = 0; i < C; i += 32, p += b.row / (C / 32)) {
            const float d = half_at(p), m = type == "Q4_1" ? half_at(p + 2) : 0;
            for (int k = 0; k < 32; k++) {
                const unsigned char* q = p + (type == "Q4_1" ? 4 : 2);
                const int four = k < 16 ? q[k] & 15 : q[k - 16] >> 4;
                float w = d * (four - 8);
                if (type == "Q4_1") { w = d * four + m; }
                if (type == "Q8_0") { w = d * (signed char)q[k]; }
                out[r*C + i + k] = w;
            }
        }
    }
}

// on any processor: the whole numbers, their scales and minima are those of the definition
static void test_whole() {
    Rng rng{15};
    const long C = 96;
    for (auto type : { "Q4_0", "Q4_1", "Q8_0" }) {
        const Bytes b = bytes_of(type, 1, C, &rng);
        std::vector<float> want(C), d(C / 32), m(C / 32);
        std::vector<int8_t> q(C);
        floats_of(type, b, 1, C, want.data());
        cpu::row_to_int8(type)(b.x.data(), C, q.data(), d.data(), m.data());
        double far = 0;
        for (long i = 0; i < C; i++) {
            far = std::max(far, fabs((double)d[i / 32] * q[i] + m[i / 32] - want[i]));
        }
        CHECK(far < 1e-6, "%s: %g away", type, far);
    }
}

// a weight of parts that stay in a file: of each, its type and how many rows
struct Weight8 {
    std::vector<float> floats, place;
    std::vector<Bytes> bytes;
    long C;
};

static Weight8 weight_of(const std::vector<std::pair<std::string, long>>& parts, long C, Rng* rng) {
    Weight8 w;
    w.C = C;
    long rows = 0;
    for (auto& p : parts) { rows += p.second; }
    w.floats.resize(rows * C);
    w.place.assign(rows * C, NAN);
    long at = 0;
    for (auto& [type, n] : parts) {
        w.bytes.push_back(bytes_of(type, n, C, rng));
        floats_of(type, w.bytes.back(), n, C, &w.floats[at * C]);
        cpu::MappedMatrix m = { n, C, NULL, NULL, {} };
        for (long r = 0; r < n; r++) {
            m.row.push_back(w.bytes.back().x.data() + r * w.bytes.back().row);
        }
        m.to_int8 = cpu::row_to_int8(type);
        cpu::mapped.all[&w.place[at * C]] = m;
        at += n;
    }
    return w;
}

// Rows as a model has them: some with a few numbers that are thousands of times the others, some
// with blocks of nothing or of very small numbers
static std::vector<float> rows_of(long N, long C, Rng* rng) {
    std::vector<float> x(N * C);
    for (auto& v : x) { v = (float)rng_normal(rng); }
    for (long n = 0; n < N; n++) {
        float* row = &x[n * C];
        if (n % 7 == 3) { row[rng_below(rng, C)] *= 4000; }
        if (n % 7 == 5) { for (int i = 0; i < 32; i++) { row[i] *= n % 2 ? 0 : 1e-6f; } }
        if (n % 11 == 4) { for (long i = 0; i < C; i++) { row[i] = 0; } }
    }
    return x;
}

// How far may the product be from the exact one? A number of x is rounded to a whole number of
// steps, 32767 of which are the largest of its block, or where that is over 12 times the root mean
// square of the row to a 65536th of one: errors that are spread evenly over a step, of which seven
// standard deviations are allowed; and sums are floats, of d q x and m x, which may be larger than
// w x
static double bound(const float* x, const float* w, long C) {
    double square = 0, all = 0, variance = 0;
    for (long i = 0; i < C; i++) { square += (double)x[i] * x[i]; }
    for (long i = 0; i < C; i += 32) {
        double most = 0, weights = 0, size = 0, largest = 0;
        for (long k = i; k < i + 32; k++) {
            most = std::max(most, fabs((double)x[k]));
            largest = std::max(largest, fabs((double)w[k]));
            weights += (double)w[k] * w[k];
            size += fabs((double)x[k]);
        }
        all += size * 2 * largest;
        const bool low = most > 12.01 * sqrt(square / C);
        const double step = most / 32767 * (low ? 0x1p-16 : 1);
        variance += step * step / 12 * weights;
    }
    return 7 * sqrt(variance) + 5e-7 * all;
}

static bool product(std::vector<float>* out, const std::vector<float>& x, const Weight8& w, long N,
                    const float* bias = NULL, const float* residual = NULL) {
    const int C = (int)w.C;
    const int OC = (int)(w.floats.size() / w.C);
    out->assign(N * OC + 1, NAN);
    return cpu::int8_forward({ out->data(), x.data(), w.place.data(), bias, residual, (int)N, C, OC,
                               OC });
}

static void test_products() {
    const std::vector<std::vector<std::pair<std::string, long>>> weights = {
        { { "Q4_0", 64 } }, { { "Q4_1", 101 } }, { { "Q8_0", 257 } },
        { { "Q4_1", 96 }, { "Q4_1", 32 }, { "Q4_1", 32 } },
        { { "Q8_0", 70 }, { "Q4_0", 3 }, { "Q4_1", 90 } },
    };
    Rng rng{11};
    for (auto& parts : weights) {
        for (long C : { 256, 288, 1536 }) {
            const Weight8 w = weight_of(parts, C, &rng);
            const long OC = w.floats.size() / C;
            for (long N : { 32, 47, 120 }) {
                const std::vector<float> x = rows_of(N, C, &rng);
                std::vector<float> bias(OC), residual(N * OC), out;
                for (auto* v : { &bias, &residual }) {
                    for (auto& e : *v) { e = (float)rng_normal(&rng); }
                }
                const int with = (int)rng_below(&rng, 4);
                const float *b = with & 1 ? bias.data() : NULL,
                            *r = with & 2 ? residual.data() : NULL;
                CHECK(product(&out, x, w, N, b, r), "%s: not done", parts[0].first.c_str());
                double worst = 0;
                for (long n = 0; n < N; n++) {
                    for (long o = 0; o < OC; o++) {
                        const float *xn = &x[n * C], *wo = &w.floats[o * C];
                        double sum = (b ? b[o] : 0) + (double)(r ? r[n*OC + o] : 0);
                        double may = 1e-6 * fabs(sum) + bound(xn, wo, C);
                        for (long i = 0; i < C; i++) { sum += (double)xn[i] * wo[i]; }
                        const double far = fabs(out[n*OC + o] - sum);
                        worst = std::max(worst, std::isnan(far) ? 1e9 : far / (may + 1e-30));
                    }
                }
                CHECK(worst <= 1, "%s.. %ld x %ld x %ld: %.3g of what is allowed",
                      parts[0].first.c_str(), N, C, OC, worst);
                CHECK(std::isnan(out[N * OC]), "a number past the end was written");
            }
            cpu::mapped.all.clear();
        }
    }
}

// the same bits for a row among other rows and with other threads
static void test_bits() {
    Rng rng{12};
    const long C = 544, N = 75, OC = 130, skip = 17;
    const Weight8 w = weight_of({ { "Q4_1", 50 }, { "Q8_0", 80 } }, C, &rng);
    const std::vector<float> x = rows_of(N, C, &rng), later(x.begin() + skip * C, x.end());
    std::vector<float> out, again;
    product(&out, x, w, N);
    product(&again, later, w, N - skip);
    CHECK(!memcmp(&out[skip * OC], again.data(), (N - skip) * OC * sizeof(float)),
          "rows depend on their neighbors");
#ifdef _OPENMP
    omp_set_num_threads(3);
    product(&again, x, w, N);
    omp_set_num_threads(1);
    CHECK(!memcmp(out.data(), again.data(), N * OC * sizeof(float)), "other bits with 3 threads");
#endif
    // what is not finite stays in its row
    for (float strange : { INFINITY, -INFINITY, NAN }) {
        std::vector<float> y = x;
        y[40 * C + 333] = strange;
        product(&again, y, w, N);
        long wrong = 0;
        for (long i = 0; i < N * OC; i++) {
            const bool same = !memcmp(&again[i], &out[i], sizeof(float));
            wrong += i / OC == 40 ? std::isfinite(again[i]) : !same;
        }
        CHECK(wrong == 0, "%g: %ld numbers are wrong", strange, wrong);
    }
    cpu::mapped.all.clear();
}

// what is not for it is left to others
static void test_refused() {
    Rng rng{13};
    const long N = 32, C = 256, OC = 96;
    Weight8 w = weight_of({ { "Q4_0", OC } }, C, &rng);
    const std::vector<float> x = rows_of(2 * N, C, &rng);
    std::vector<float> out;
    CHECK(product(&out, x, w, N), "not done");
    CHECK(!product(&out, x, w, N - 1), "done for few rows");
    cpu::product_settings.split_floats = false;
    CHECK(!product(&out, x, w, N), "done where it may not be");
    cpu::product_settings.split_floats = true;
    const int kernel = cpu::product_settings.last_kernel;
    cpu::product_limit("avx512");
    CHECK(!product(&out, x, w, N), "done with --product avx512");
    cpu::product_settings.last_kernel = kernel;
    cpu::mapped.all.begin()->second.to_int8 = NULL;
    CHECK(!product(&out, x, w, N), "done for a type that has no whole numbers");
    cpu::mapped.all.clear();
    CHECK(!product(&out, x, w, N), "done for floats");
    for (auto type : { "F32", "Q4_K", "BF16", "" }) { CHECK(!cpu::row_to_int8(type), "%s", type); }
}

int main() {
    test_whole();
    cpu::product_settings.split_floats = true;
    Rng rng{14};
    const Weight8 w = weight_of({ { "Q4_0", 96 } }, 256, &rng);
    const std::vector<float> x = rows_of(32, 256, &rng);
    std::vector<float> out;
    if (cpu::split_here()) {
        CHECK(!product(&out, x, w, 32), "done where there is AMX");
        cpu::product_limit("avx512-bf16");                      // as if there were none
    }
    if (!cpu::int8_here()) {
        CHECK(!product(&out, x, w, 32), "done on a machine that cannot");
        printf("skipped: 3 tests of products in whole numbers, for AVX512-VNNI\n");
        return check_done();
    }
    cpu::mapped.all.clear();
    test_products();
    test_bits();
    test_refused();
    return check_done();
}
