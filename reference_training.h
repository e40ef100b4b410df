/*
reference_training.h -- namespace ref, what training adds to the operations of reference.h, in the
same plain way: the loss and its gradient, the norm of all gradients, the steps of AdamW, SGD and
Muon. The structs and constants at the top are every backend's.
*/
#ifndef REFERENCE_TRAINING_H
#define REFERENCE_TRAINING_H
#include "reference.h"

// the parameters of an optimizer step; step counts from 1
struct Update { float lr, beta1, beta2, eps, weight_decay; long step; };

// what it needs to know of all gradients: the mean loss, their squared norm, and the factor to
// multiply them by. In device memory, so that the host need not wait for it
struct StepSums { double loss, squares; float grad_scale; };

// what the gradients are multiplied by so that their norm is at most clip (0: off). NAN, and no
// update, if not finite
HD float grad_scale(double loss, double squares, float clip) {
    if (loss - loss != 0 || squares - squares != 0) { return NAN; }
    const double scale = clip > 0 ? clip / (sqrt(squares) + 1e-6) : 1.0;
    return scale < 1 ? scale : 1.0;
}

// ---- Muon's part in elementwise steps, for a matrix of weights (rows, cols). x is wide, (r, c) with
// r <= c: the matrix, or its transpose if it has more rows than columns

// the index in x of element (i, j) of the weights
HD long muon_place(int i, int j, int rows, int cols) {
    return rows > cols ? (long)j * rows + i : (long)i * cols + j;
}

// coefficients of a Newton-Schulz step, the momentum, and the length of a step
static constexpr double MUON_A = 3.4445, MUON_B = -4.7750, MUON_C = 2.0315;
static constexpr double MUON_BETA = 0.95, MUON_LENGTH = 0.2;

namespace ref {
// ----------------------------------------------------------------------------
// 6 classifier

// losses (N) = -ln softmax(y)[target],  y = logits, or cap tanh(logits / cap) unless cap is 0.
// logits (N, V) become y and then, unless dloss is 0, dloss dlosses/dlogits. A target of -1 has no
// loss and no gradient
inline void classifier(acc* losses, real* logits, const int* targets, float dloss, float cap, int N,
                       int V) {
#pragma omp parallel for
    for (int n = 0; n < N; n++) {
        real* y = logits + (long)n * V;
        const int target = targets[n];
        acc top = -INFINITY;
        double sum = 0;
        for (int v = 0; v < V; v++) {
            if (cap != 0) { y[v] = cap * tanh_(y[v] / cap); }
            top = max_(top, y[v]);
        }
        for (int v = 0; v < V; v++) { sum += exp_(y[v] - top); }
        losses[n] = target < 0 ? acc(0) : acc(log_(sum)) - (y[target] - top);
        // dloss/dy_v = softmax(y)_v - [v is the target],  dy/dlogit = 1 - (y / cap)^2
        for (int v = 0; v < V && dloss != 0; v++) {
            const acc slope = cap != 0 ? acc(1) - y[v] / cap * (y[v] / cap) : acc(1);
            const acc d = (exp_(y[v] - top) / sum - (v == target)) * slope;
            y[v] = target < 0 ? acc(0) : dloss * d;
        }
    }
}

// ----------------------------------------------------------------------------
// 7 optimizer

// the weights as `real`: the same numbers, where `acc` is no wider
inline void cast_to_real(real* dst, const acc* src, long n) {
    for (long i = 0; i < n && dst != src; i++) { dst[i] = src[i]; }
}

// sums->loss += sum of losses (n) / count
inline void loss_add(StepSums* sums, const acc* losses, long n, double count) {
    double sum = 0;
    for (long i = 0; i < n; i++) { sum += losses[i]; }
    sums->loss += sum / count;
}

// sums->squares = sum of x^2, and the grad_scale that follows from it and from the loss
inline void square_norm(StepSums* sums, const acc* x, float clip, long n) {
    double sum = 0;
    for (long i = 0; i < n; i++) { sum += (double)x[i] * x[i]; }
    sums->squares = sum;
    sums->grad_scale = grad_scale(sums->loss, sum, clip);
}

// (Loshchilov & Hutter 2017)  m = b1 m + (1 - b1) g,  v = b2 v + (1 - b2) g^2,
//      w -= lr (m^ / (sqrt(v^) + eps) + decay w),   m^ = m / (1 - b1^step),  v^ = v / (1 - b2^step)
// master holds the weights, params their copy as `real`, which may be the same array
inline void adamw_update(real* params, acc* master, acc* m, acc* v, const acc* grads,
                         const StepSums* sums, Update o, long n) {
    if (std::isnan(sums->grad_scale)) { return; }
    const acc b1 = o.beta1, b2 = o.beta2, c1 = 1 - pow((double)o.beta1, o.step),
              c2 = 1 - pow((double)o.beta2, o.step);
    for (long i = 0; i < n; i++) {
        const acc g = grads[i] * acc(sums->grad_scale);
        m[i] = b1 * m[i] + (1 - b1) * g;
        v[i] = b2 * v[i] + (1 - b2) * g * g;
        master[i] -= acc(o.lr) *
                     (m[i] / c1 / (sqrt(v[i] / c2) + acc(o.eps)) + acc(o.weight_decay) * master[i]);
        params[i] = master[i];
    }
}

// SGD with momentum beta1:  m = b1 m + g,  w -= lr (m + decay w)
inline void sgd_update(real* params, acc* master, acc* m, acc*, const acc* grads,
                       const StepSums* sums, Update o, long n) {
    if (std::isnan(sums->grad_scale)) { return; }
    for (long i = 0; i < n; i++) {
        m[i] = acc(o.beta1) * m[i] + grads[i] * acc(sums->grad_scale);
        master[i] -= acc(o.lr) * (m[i] + acc(o.weight_decay) * master[i]);
        params[i] = master[i];
    }
}

// x <- u / |u|,  u = g + beta m (Nesterov),  after m = beta m + g
inline void muon_begin(real* x, acc* m, const acc* grads, const StepSums* sums, int rows,
                       int cols) {
    if (std::isnan(sums->grad_scale)) { return; }
    const acc beta = MUON_BETA, scale = sums->grad_scale;
    double squares = 0;
    for (long k = 0; k < (long)rows * cols; k++) {
        m[k] = beta * m[k] + grads[k] * scale;
        const acc u = grads[k] * scale + beta * m[k];
        squares += (double)u * u;
    }
    for (long k = 0; k < (long)rows * cols; k++) {
        const acc u = grads[k] * scale + beta * m[k];
        x[muon_place(k / cols, k % cols, rows, cols)] = u / (sqrt(squares) + 1e-7);
    }
}

// aa (r, r), which is A A, <- a I + b A + c A A
inline void muon_mix(real* aa, const real* a, int r) {
    for (long k = 0; k < (long)r * r; k++) {
        aa[k] = MUON_C * aa[k] + MUON_B * a[k] + (k / r == k % r ? MUON_A : 0);
    }
}

// w -= lr (length sqrt(max(rows, cols)) x + decay w)
inline void muon_end(real* params, acc* master, const real* x, const StepSums* sums, Update o,
                     int rows, int cols) {
    if (std::isnan(sums->grad_scale)) { return; }
    const acc length = MUON_LENGTH * sqrt((double)max_(rows, cols));
    for (long k = 0; k < (long)rows * cols; k++) {
        const acc step = length * x[muon_place(k / cols, k % cols, rows, cols)];
        master[k] -= acc(o.lr) * (step + acc(o.weight_decay) * master[k]);
        params[k] = master[k];
    }
}
} // namespace ref
#endif // REFERENCE_TRAINING_H
