/*
vectors.h -- vectors of doubles in host memory, sums of numbers, and what is sorted by size.
*/
#ifndef VECTORS_H
#define VECTORS_H
#include "../base/common.h"

typedef std::vector<double> Vector;

inline double dot(const Vector& a, const Vector& b) {
    double sum = 0;
    for (size_t i = 0; i < a.size(); i++) { sum += a[i] * b[i]; }
    return sum;
}

inline double length(const Vector& x) { return sqrt(dot(x, x)); }

// y += a x
inline void add_multiple(Vector* y, double a, const Vector& x) {
    for (size_t i = 0; i < x.size(); i++) { (*y)[i] += a * x[i]; }
}

// Lists 0 .. n - 1 by size(i), the largest first; of equal ones the first.
inline std::vector<int> largest_first(int n, const std::function<double(int)>& size) {
    std::vector<int> order(n);
    for (int i = 0; i < n; i++) { order[i] = i; }
    std::stable_sort(order.begin(), order.end(), [&](int i, int j) { return size(i) > size(j); });
    return order;
}

enum Summary { MEAN, LARGEST, SMALLEST };

// Adds numbers up; NaN is left out.
struct Tally {
    double sum = 0, n = 0, least = INFINITY, most = -INFINITY;

    void add(double x) {
        if (std::isnan(x)) { return; }
        sum += x;
        n++;
        least = std::min(least, x);
        most = std::max(most, x);
    }
    double as(Summary by) const {
        const double extreme = by == LARGEST ? most : least;
        if (n == 0) { return NAN; }
        return by == MEAN ? sum / n : extreme;
    }
};
#endif // VECTORS_H
