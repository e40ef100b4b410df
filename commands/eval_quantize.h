/*
eval_quantize.h -- fewer bits for eval: numbers become one of 2^bits and are numbers again;
everything else is computed as ever.
*/
#ifndef EVAL_QUANTIZE_H
#define EVAL_QUANTIZE_H
#include "eval_edit.h"

enum Scope { BITS_STATIC, BITS_DYNAMIC, BITS_TOKEN };
static const char* const SCOPES[] = { "static", "dynamic", "token" };

// Weights: symmetric, a range for each output channel. What the products read: asymmetric. Keys and
// values: symmetric. Ranges of activations: `static`, of the tensor, as calibration found it;
// `dynamic`, of the tensor in this sequence; `token`, of this row, and of keys and values of this
// head. The first `keep` tokens stay as they are and count for no range
struct Bits {
    int weights = 0, inputs = 0, kv = 0;         // 0: as they are
    Scope scope = BITS_TOKEN;
    int keep = 0;
    bool calibrating = false;
    struct Range { double low, high; };
    std::map<std::pair<std::string, int>, Range> ranges;     // BITS_STATIC: by place and layer

    bool any() const { return weights || inputs || kv; }
};

// x on a grid of 2^bits values from low to high, of which one is 0;  symmetric: of 2^bits - 1
inline double bits_round(double x, Bits::Range r, int bits, bool symmetric) {
    if (symmetric) {
        const double most = (1 << (bits - 1)) - 1, step = std::max(-r.low, r.high) / most;
        return step > 0 ? std::min(most, std::max(-most, nearbyint(x / step))) * step : 0;
    }
    const double low = std::min(r.low, 0.0), high = std::max(r.high, 0.0), most = (1 << bits) - 1;
    const double step = (high - low) / most;
    if (step <= 0) { return 0; }
    const double zero = nearbyint(-low / step);
    return (std::min(most, std::max(0.0, nearbyint(x / step) + zero)) - zero) * step;
}

// rounds one tensor of layer l; in calibration it only looks at it
inline void bits_apply(Bits* q, const std::string& place, int l, const Rows& r, int bits,
                       bool symmetric) {
    auto each = [&](int b, int t0, int t1, int c0, int c1, auto f) {
        for (int t = t0; t < t1; t++) { for (int c = c0; c < c1; c++) { f(r.at(b, t, c)); } }
    };
    auto range_of = [&](int b, int t0, int t1, int c0, int c1) {
        Bits::Range range = { INFINITY, -INFINITY };
        each(b, t0, t1, c0, c1, [&](size_t i) {
            range.low = std::min<double>(range.low, r.get(i));
            range.high = std::max<double>(range.high, r.get(i));
        });
        return range;
    };
    auto round = [&](int b, int t0, int t1, int c0, int c1, Bits::Range range) {
        each(b, t0, t1, c0, c1,
             [&](size_t i) { r.set(i, bits_round(r.get(i), range, bits, symmetric)); });
    };
    const int first = std::min(r.T, r.skip + q->keep);
    for (int b = 0; b < r.B && first < r.T; b++) {
        const Bits::Range here = range_of(b, first, r.T, 0, r.width);
        if (q->calibrating) { // a running mean over sequences (Bondarenko et al. 2023)
            auto found = q->ranges.insert({ { place, l }, here }).first;
            found->second.low = 0.9 * found->second.low + 0.1 * here.low;
            found->second.high = 0.9 * found->second.high + 0.1 * here.high;
        } else if (q->scope == BITS_TOKEN) {
            for (int t = first; t < r.T; t++) {
                for (int c = 0; c < r.width; c += r.group) {
                    round(b, t, t + 1, c, c + r.group, range_of(b, t, t + 1, c, c + r.group));
                }
            }
        } else {
            round(b, first, r.T, 0, r.width,
                  q->scope == BITS_STATIC ? q->ranges.at({ place, l }) : here);
        }
    }
}

// rounds the weights of the products of all layers in place; returns what they were
inline Host bits_weights(Model* m, int bits) {
    Host was(m->num_params);
    ops::to_host(was.data(), m->master, was.size() * sizeof(acc));
    Host now = was;
    for (auto& t : m->tensors) {
        if (!ends_with(t.name, "proj.weight")) { continue; }
        const long cols = t.shape[1];
        for (long row = t.at; row < t.at + t.count; row += cols) {
            double top = 0;
            for (long i = row; i < row + cols; i++) { top = std::max(top, fabs((double)was[i])); }
            for (long i = row; i < row + cols; i++) {
                now[i] = bits_round(was[i], { -top, top }, bits, true);
            }
        }
    }
    model_set(m, now.data());
    return was;
}
#endif // EVAL_QUANTIZE_H
