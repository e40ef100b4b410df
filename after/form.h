/*
form.h -- an FFN with a gate as a quadratic form. What it writes into channel c of the stream is

    f_c(x) = sum_n d_n swish(g_n x) (u_n x),         d: row c of W_down

Where swish(z) is close to z, that is x' S x with S = sum_n d_n (g_n u_n' + u_n g_n') / 2. If one
eigenvalue of S stands out, the FFN amplifies one direction. S (C, C) is never stored: its
eigenvalues are found by products with vectors (Lanczos 1950).
*/
#ifndef FORM_H
#define FORM_H
#include "../core/operations.h"
#include "vectors.h"

struct Matrix {
    long cols = 0;
    std::vector<acc> x;

    long rows() const { return x.size() / cols; }
    const acc* row(long n) const { return &x[n * cols]; }

    // Returns row n times x.
    double row_times(long n, const Vector& x) const {
        const acc* row = this->row(n);
        double sum = 0;
        #pragma omp simd reduction(+ : sum)
        for (long i = 0; i < cols; i++) { sum += row[i] * x[i]; }
        return sum;
    }
};

// Reads a weight of the model (rows, cols), which may be on a device or stay in its file.
inline Matrix weight_matrix(const real* weight, long rows, long cols) {
    Matrix m;
    m.cols = cols;
    if (!ops::on_host) {
        const std::vector<real> copy = copy_to_host(weight, rows * cols);
        m.x.assign(copy.begin(), copy.end());
    }
    while (m.rows() < rows) {
        const long done = m.rows();
        const auto some = ::weight_rows(weight + done * cols, cols, rows - done);
        m.x.insert(m.x.end(), some.x, some.x + some.n * cols);
    }
    return m;
}

struct Form {
    const Matrix* gate;                          // (F, C)
    const Matrix* up;                            // (F, C)
    const acc* down;                             // d (F)

    // Returns S x.
    Vector times(const Vector& x) const {
        Vector y(x.size());
        for (long n = 0; n < gate->rows(); n++) {
            const double by_gate = down[n] / 2 * up->row_times(n, x);
            const double by_up = down[n] / 2 * gate->row_times(n, x);
            const acc* g = gate->row(n);
            const acc* u = up->row(n);
            #pragma omp simd
            for (size_t i = 0; i < y.size(); i++) { y[i] += by_gate * g[i] + by_up * u[i]; }
        }
        return y;
    }
};

struct Eigen {
    std::vector<double> values;                  // the largest |.| first
    std::vector<Vector> vectors;
};

// Turns rows and columns p and q of a symmetric matrix so that its entry (p, q) becomes 0, and the
// columns p and q of *v with them.
inline void jacobi_turn(std::vector<Vector>* a, std::vector<Vector>* v, size_t p, size_t q) {
    const double off = (*a)[p][q];
    if (off == 0) { return; }
    const double half = ((*a)[q][q] - (*a)[p][p]) / (2 * off);
    const double sign = half < 0 ? -1 : 1;
    const double tangent = sign / (fabs(half) + sqrt(half * half + 1));
    const double c = 1 / sqrt(tangent * tangent + 1);
    const double s = tangent * c;
    auto turn = [&](double* x, double* y) {
        const double was = *x;
        *x = c * was - s * *y;
        *y = s * was + c * *y;
    };
    for (auto& row : *a) { turn(&row[p], &row[q]); }
    for (size_t i = 0; i < a->size(); i++) { turn(&(*a)[p][i], &(*a)[q][i]); }
    for (auto& row : *v) { turn(&row[p], &row[q]); }
}

// Returns all eigenvalues and eigenvectors of a small symmetric matrix (Jacobi 1846).
inline Eigen small_eigen(std::vector<Vector> a) {
    const size_t n = a.size();
    std::vector<Vector> v(n, Vector(n));
    for (size_t i = 0; i < n; i++) { v[i][i] = 1; }
    double most = 0;
    for (auto& row : a) {
        for (double x : row) { most = std::max(most, fabs(x)); }
    }
    auto diagonal = [&] {                        // or NaN, which no turn ends
        bool is = true;
        for (size_t p = 0; p < n; p++) {
            for (size_t q = 0; q < p; q++) { is = is && !(fabs(a[p][q]) > 1e-13 * most); }
        }
        return is;
    };
    while (!diagonal()) {
        for (size_t p = 0; p < n; p++) {
            for (size_t q = p + 1; q < n; q++) { jacobi_turn(&a, &v, p, q); }
        }
    }
    Eigen e;
    for (int i : largest_first(n, [&](int i) { return fabs(a[i][i]); })) {
        e.values.push_back(a[i][i]);
        Vector column;
        for (auto& row : v) { column.push_back(row[i]); }
        e.vectors.push_back(column);
    }
    return e;
}

// A basis of orthogonal vectors in which S is tridiagonal, grown by one vector at a time.
struct Krylov {
    std::vector<Vector> basis;
    std::vector<double> diagonal;
    std::vector<double> beside;                  // beside[i]: entry (i, i + 1)
    Rng rng = rng_stream(1, 0);

    // Makes a vector orthogonal to the basis, of length 1. Returns the length it had.
    double orthogonalize(Vector* x) const {
        for (int twice = 0; twice < 2; twice++) {
            for (auto& b : basis) { add_multiple(x, -dot(*x, b), b); }
        }
        const double size = length(*x);
        for (double& v : *x) { v /= size; }
        return size;
    }

    Vector random(size_t n) {
        Vector x(n);
        for (double& v : x) { v = rng_normal(&rng); }
        orthogonalize(&x);
        return x;
    }

    // Adds a vector, the next of which S makes.
    void grow(const Form& form, size_t C) {
        basis.push_back(next.empty() ? random(C) : next);
        next = form.times(basis.back());
        const double size = length(next);
        diagonal.push_back(dot(next, basis.back()));
        if (basis.size() == C) { return; }
        beside.push_back(orthogonalize(&next));
        if (beside.back() > 1e-12 * size) { return; }
        beside.back() = 0;                       // S leads out of the basis no more
        next = random(C);
    }

    std::vector<Vector> tridiagonal() const {
        const size_t n = basis.size();
        std::vector<Vector> a(n, Vector(n));
        for (size_t i = 0; i < n; i++) {
            a[i][i] = diagonal[i];
            if (i + 1 < n) { a[i][i + 1] = a[i + 1][i] = beside[i]; }
        }
        return a;
    }

    Vector next;
};

// Returns the largest `wanted` eigenvalues of S and the first eigenvector. Each is a pair that S
// stretches as it says, but for `precision` of the first.
inline Eigen form_eigen(const Form& form, size_t C, size_t wanted, double precision) {
    wanted = std::min(wanted, C);
    Krylov k;
    while (true) {
        k.grow(form, C);
        const size_t n = k.basis.size();
        const bool all = n == C;
        if (!all && (n < 2 * wanted || n % 8)) { continue; }
        Eigen e = small_eigen(k.tridiagonal());
        bool found = true;
        for (size_t i = 0; i < wanted && !all; i++) {
            const double apart = fabs(k.beside.back() * e.vectors[i].back());
            found = found && apart <= precision * fabs(e.values[0]);
        }
        if (!found) { continue; }
        Vector first(C);
        for (size_t i = 0; i < n; i++) { add_multiple(&first, e.vectors[0][i], k.basis[i]); }
        e.values.resize(wanted);
        e.vectors = { first };
        return e;
    }
}
#endif // FORM_H
