/*
training.h -- what ends a step on the fast CPU backend: the classifier with its loss, the norm of
the gradients, and the optimizers. In the reference backend: reference.h.
*/
#ifndef CPU_TRAINING_H
#define CPU_TRAINING_H
#include "ops.h"

namespace cpu {
using ref::cap_logits, ref::loss_add;

// ----------------------------------------------------------------------------
// 1 classifier

inline acc largest_logit(acc top, const acc* l, int n) {
    #pragma omp simd reduction(max : top)
    for (int v = 0; v < n; v++) { top = max_(top, l[v]); }
    return top;
}

// Returns the sum of e^(l - top) over l (n).
inline acc sum_exp(const acc* l, acc top, int n) {
    acc sum = 0;
    #pragma omp simd reduction(+ : sum)
    for (int v = 0; v < n; v++) {
        sum += exp_(l[v] - top);
    }
    return sum;
}

// Returns the loss of one row of the classifier. l (V) holds y and, unless dloss is 0, becomes
// dloss dloss/dlogits.
inline acc classifier_row(acc* l, int target, acc dloss, acc cap, int V) {
    const acc top = largest_logit(l[0], l, V);
    const acc l_y = l[target];
    if (dloss == 0) { return log_(sum_exp(l, top, V)) - (l_y - top); }
    if (cap != 0) {
        const acc sum = sum_exp(l, top, V);
        const acc f = dloss / sum;
        const auto slope = [=](acc y) { return acc(1) - y / cap * (y / cap); };     // dy/dlogits
        for (int v = 0; v < V; v++) {
            l[v] = exp_(l[v] - top) * f * slope(l[v]);
        }
        l[target] -= dloss * slope(l_y);
        return log_(sum) - (l_y - top);
    }
    acc sum = 0;
    #pragma omp simd reduction(+ : sum)
    for (int v = 0; v < V; v++) {
        l[v] = exp_(l[v] - top);
        sum += l[v];
    }
    const acc f = dloss / sum;
    for (int v = 0; v < V; v++) { l[v] *= f; }
    l[target] -= dloss;
    return log_(sum) - (l_y - top);
}

// Computes losses (N) = -log softmax(y)[target],  y = logits, or cap tanh(logits / cap) unless cap
// is 0. logits (N, V) become y and then, unless dloss is 0, dloss dlosses/dlogits, in place. A
// target of -1 counts for nothing: loss 0, gradient 0
inline void classifier(acc* losses, real* logits, const int* targets, float dloss, float cap, int N,
                       int V) {
    const bool in_place = std::is_same<real, acc>::value;
    #pragma omp parallel
    {
        std::vector<acc> row(in_place ? 0 : V);
        #pragma omp for
        for (int n = 0; n < N; n++) {
            real* x = logits + (long)n * V;
            acc* l = in_place ? (acc*)x : row.data();
            const int target = targets[n];
            losses[n] = 0;
            if (target < 0 && dloss != 0) {
                memset((void*)x, 0, V * sizeof(real));
                continue;
            }
            if (!in_place) { std::copy_n(x, V, l); }
            cap_logits(l, cap, V);
            if (!in_place && dloss == 0) { std::copy_n(l, V, x); }
            if (target >= 0) { losses[n] = classifier_row(l, target, dloss, cap, V); }
            if (!in_place && dloss != 0) { std::copy_n(l, V, x); }
        }
    }
}

// What a row of the classifier knows of the part of the vocabulary that it has seen.
struct ClassifierRow {
    acc top = -INFINITY;            // the largest logit
    acc sum = 0;                    // of e^(logit - top)
    acc target = 0;                 // the target's logit

    acc loss() const { return log_(sum) - (target - top); }
};

// Shows the rows the tokens v0 .. v0 + n of the vocabulary, with their logits (N, n). After the
// last of them loss() is that of classifier with dloss 0. R: where host code can read
template <class R>
void classifier_part(ClassifierRow* rows, const R* logits, const int* targets, float cap, int v0,
                     int n, int N) {
    #pragma omp parallel
    {
        std::vector<acc> y(n);
        #pragma omp for
        for (int i = 0; i < N; i++) {
            const R* x = logits + (long)i * n;
            ClassifierRow& row = rows[i];
            const int target = targets[i];
            if (target < 0) { continue; }
            std::copy_n(x, n, y.data());
            cap_logits(y.data(), cap, n);
            const acc top = largest_logit(row.top, y.data(), n);
            const acc sum = sum_exp(y.data(), top, n);
            row.sum = row.sum * exp_(row.top - top) + sum;
            row.top = top;
            if (target >= v0 && target < v0 + n) { row.target = y[target - v0]; }
        }
    }
}

// ----------------------------------------------------------------------------
// 2 optimizers. A gradient is multiplied by sums->grad_scale, which clips it. If that is NaN, the
// step is not made.

// Returns the sum of x^2 over x (n).
inline double sum_squares(const acc* x, long n) {
    double sum = 0;
    #pragma omp simd reduction(+ : sum)
    for (long i = 0; i < n; i++) {
        sum += (double)x[i] * x[i];
    }
    return sum;
}

// Computes sums->squares, the sum of x^2, blockwise in double; and the grad_scale that follows from
// it and from the loss
inline void square_norm(StepSums* sums, const acc* x, float clip, long n) {
    const long block = 1 << 14;
    const long blocks = div_up(n, block);
    std::vector<double> part(blocks);
    #pragma omp parallel for
    for (long k = 0; k < blocks; k++) {
        const long first = k * block;
        part[k] = sum_squares(x + first, std::min(block, n - first));
    }
    double sum = 0;
    for (double x_k : part) { sum += x_k; }
    sums->squares = sum;
    sums->grad_scale = grad_scale(sums->loss, sum, clip);
}

// Steps with AdamW (Loshchilov & Hutter 2017):
//      m = b1 m + (1-b1) g,   v = b2 v + (1-b2) g^2,   w -= lr (m^ / (sqrt(v^) + eps) + decay w)
// master is the weight, params its copy in `real` (the same array where both types are one)
inline void adamw_update(real* params, acc* master, acc* m, acc* v, const acc* grads,
                         const StepSums* sums, Update o, long n) {
    if (std::isnan(sums->grad_scale)) { return; }
    const acc b1 = o.beta1;
    const acc b2 = o.beta2;
    const acc c1 = 1 / (1 - pow((double)o.beta1, o.step));      // m^ = m c1, v^ = v c2
    const acc c2 = 1 / (1 - pow((double)o.beta2, o.step));
    const acc lr = o.lr;
    const acc eps = o.eps;
    const acc decay = o.weight_decay;
    const acc scale = sums->grad_scale;
    #pragma omp parallel for simd
    for (long i = 0; i < n; i++) {
        const acc g = grads[i] * scale;
        m[i] = b1 * m[i] + (1 - b1) * g;
        v[i] = b2 * v[i] + (1 - b2) * g * g;
        master[i] -= lr * (m[i] * c1 / (sqrt(v[i] * c2) + eps) + decay * master[i]);
        params[i] = master[i];
    }
}
} // namespace cpu
#endif // CPU_TRAINING_H
