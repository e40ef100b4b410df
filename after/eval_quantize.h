/*
eval_quantize.h -- fewer bits for eval: rounds weights and activations to one of 2^bits values.
Everything else is computed as ever. Start with bits_apply.
*/
#ifndef EVAL_QUANTIZE_H
#define EVAL_QUANTIZE_H
#include "eval_edit.h"

enum Scope { BITS_STATIC, BITS_DYNAMIC, BITS_TOKEN };
static const char* const SCOPES[] = { "static", "dynamic", "token" };

// Weights are symmetric, with a range for each output channel. What the products read is
// asymmetric. Keys and values are symmetric. Ranges of activations are those of the tensor as
// calibration found it (`static`), of the tensor in this sequence (`dynamic`), or of this row, and
// of this head's keys and values (`token`). The first `keep` tokens stay as they are and count for
// no range.
struct Bits {
    int weights = 0;                             // 0, here and below: as they are
    int inputs = 0;
    int kv = 0;
    Scope scope = BITS_TOKEN;
    int keep = 0;
    bool calibrating = false;
    struct Range { double low, high; };
    std::map<std::pair<std::string, int>, Range> ranges;     // BITS_STATIC: by place and layer
};

// Rounds x to a grid of 2^bits - 1 values around 0.
inline double bits_round_symmetric(double x, Bits::Range r, int bits) {
    const double most = (1 << (bits - 1)) - 1;
    const double step = std::max(-r.low, r.high) / most;
    if (!(step > 0)) {
        return 0;
    }
    return std::clamp(nearbyint(x / step), -most, most) * step;
}

// Rounds x to a grid of 2^bits values from low to high, one of which is 0, or to a symmetric one.
inline double bits_round(double x, Bits::Range r, int bits, bool symmetric) {
    if (symmetric) {
        return bits_round_symmetric(x, r, bits);
    }
    const double low = std::min(r.low, 0.0);
    const double high = std::max(r.high, 0.0);
    const double most = (1 << bits) - 1;
    const double step = (high - low) / most;
    if (step <= 0) {
        return 0;
    }
    const double zero = nearbyint(-low / step);
    const double level = std::clamp(nearbyint(x / step) + zero, 0.0, most);
    return (level - zero) * step;
}

// A block of numbers of one sequence: tokens [t0, t1), channels [c0, c1).
struct BitsBlock { long b, t0, t1, c0, c1; };

// Calls f with the index of every number of a block.
template <class F> void bits_each(const Rows& r, const BitsBlock& k, F f) {
    for (long t = k.t0; t < k.t1; t++) {
        for (long c = k.c0; c < k.c1; c++) {
            f(r.at(k.b, t, c));
        }
    }
}

// Returns the smallest and the largest number of a block.
inline Bits::Range bits_range(const Rows& r, const BitsBlock& block) {
    Bits::Range range = { INFINITY, -INFINITY };
    bits_each(r, block, [&](size_t i) {
        range.low = std::min<double>(range.low, r.get(i));
        range.high = std::max<double>(range.high, r.get(i));
    });
    return range;
}

// Takes a range into the running mean over sequences (Bondarenko et al. 2023).
inline void bits_calibrate(Bits* q, const std::string& place, int l, Bits::Range here) {
    auto found = q->ranges.insert({ { place, l }, here }).first;
    found->second.low = 0.9 * found->second.low + 0.1 * here.low;
    found->second.high = 0.9 * found->second.high + 0.1 * here.high;
}

// Rounds a block of a tensor of layer l. In calibration it only takes the range.
inline void bits_block(Bits* q, const std::string& place, int l, const Rows& r,
                       const BitsBlock& block, int bits, bool symmetric) {
    Bits::Range range = bits_range(r, block);
    if (q->calibrating) { bits_calibrate(q, place, l, range); return; }
    if (q->scope == BITS_STATIC) { range = q->ranges.at({ place, l }); }
    bits_each(r, block, [&](size_t i) { r.set(i, bits_round(r.get(i), range, bits, symmetric)); });
}

// Rounds one tensor of layer l, in blocks that have a range of their own.
inline void bits_apply(Bits* q, const std::string& place, int l, const Rows& r, int bits,
                       bool symmetric) {
    const int first = std::min(r.T, r.skip + q->keep);
    const bool by_token = q->scope == BITS_TOKEN;
    const long tokens = by_token ? 1 : r.T - first;      // of a block
    const long channels = by_token ? r.group : r.width;
    for (int b = 0; b < r.B; b++) {
        for (long t = first; t < r.T; t += tokens) {
            for (long c = 0; c < r.width; c += channels) {
                const BitsBlock block = { b, t, t + tokens, c, c + channels };
                bits_block(q, place, l, r, block, bits, symmetric);
            }
        }
    }
}

// Rounds the weights of the products of all layers in place. Returns what they were.
inline Host bits_weights(Model* m, int bits) {
    const Host was = copy_to_host(m->master, m->num_params);
    Host now = was;
    for (auto& t : m->tensors) {
        if (!ends_with(t.name, "proj.weight")) { continue; }
        const long cols = t.shape[1];
        for (long row = t.at; row < t.at + t.count; row += cols) {
            double top = 0;
            for (long i = row; i < row + cols; i++) {
                const double size = fabs((double)was[i]);
                top = std::max(top, size);
            }
            for (long i = row; i < row + cols; i++) {
                now[i] = bits_round_symmetric(was[i], { -top, top }, bits);
            }
        }
    }
    model_set_weights(m, now.data());
    return was;
}
#endif // EVAL_QUANTIZE_H
