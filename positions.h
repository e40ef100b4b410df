/*
positions.h -- tables that are computed once and stay as they are: cos and sin of rotary positions,
sinusoids of absolute ones, the fixed v* of BIAS=k.
*/
#ifndef POSITIONS_H
#define POSITIONS_H
#include <math.h>
#include <vector>
#include "arch.h"    // Arch, rotated, v_star_norm
#include "variant.h" // real, acc, ops

// angles per position of the `rot` / 2 pairs, base^(-2i/rot), and, if scaled, what --rope-scaling
// makes of them; *length is what the turned vectors are multiplied by. (llama3: Meta's models;
// yarn: Peng et al. 2023, section 3)
inline std::vector<double> rope_angles(const Arch& c, double base, bool scaled, double* length) {
    const int rot = rotated(c);
    const kind how = scaled ? c.rope_scaling : ROPE_none;
    const double turns = c.rope_context / (2 * M_PI), factor = c.rope_factor;
    auto pair_at = [&](double per_context) {
        return rot * log(turns / per_context) / (2 * log(base));
    };
    double low = pair_at(c.rope_fast), high = pair_at(c.rope_slow);
    if (c.rope_round) { low = floor(low); high = ceil(high); }
    low = std::max(low, 0.0);
    high = std::max(std::min(high, rot - 1.0), low + 0.001);
    std::vector<double> angles;
    for (int i = 0; i < rot / 2; i++) {
        const double f = pow(base, -2.0 * i / rot);
        double stretched = 0; // the share of this pair that is stretched by the factor
        if (how == ROPE_linear) { stretched = 1; }
        if (how == ROPE_llama3) {
            stretched = 1 - (f * turns - c.rope_low) / (c.rope_high - c.rope_low);
        }
        if (how == ROPE_yarn)   { stretched = (i - low) / (high - low); }
        stretched = std::min(1.0, std::max(0.0, stretched));
        angles.push_back(stretched == 0 ? f : f / factor * stretched + f * (1 - stretched));
    }
    const double from_factor = factor > 1 ? 0.1 * log(factor) + 1 : 1;
    *length = 1;
    if (how == ROPE_yarn) { *length = c.rope_length ? c.rope_length : from_factor; }
    return angles;
}

// host -> a table of D in device memory
template <class D> D* device_table(const std::vector<double>& host) {
    std::vector<D> x(host.begin(), host.end());
    D* p = (D*)ops::device_malloc(x.size() * sizeof(D));
    ops::to_device(p, x.data(), x.size() * sizeof(D));
    return p;
}

// cos and sin of T positions: (T, rot/2, 2)
inline acc* rope_table(const Arch& c, double base, bool scaled, int T) {
    double length;
    const std::vector<double> angles = rope_angles(c, base, scaled, &length);
    std::vector<double> p;
    for (int t = 0; t < T; t++) {
        for (double angle : angles) {
            p.push_back(length * cos(t * angle));
            p.push_back(length * sin(t * angle));
        }
    }
    return device_table<acc>(p);
}

// (Eq. 5) with all sines before all cosines, as in the official code: (T, C)
inline real* absolute_table(int T, int C) {
    std::vector<double> p((size_t)T * C);
    for (int t = 0; t < T; t++) {
        for (int i = 0; i < C / 2; i++) {
            const double angle = t * pow(10000.0, -2.0 * i / C);
            p[(size_t)t * C + i] = sin(angle);
            p[(size_t)t * C + C / 2 + i] = cos(angle);
        }
    }
    return device_table<real>(p);
}

// (Table 5) M [1, 0, .., 0] or M [1, .., 1] / sqrt(HS), the same for every head
inline real* fixed_v_star(const Arch& c) {
    const bool ones = c.v_star.compare(0, 5, "ones:") == 0;
    const double M = v_star_norm(c);
    std::vector<double> p;
    for (int g = 0; g < bias_rows(c); g++) {
        for (int i = 0; i < c.HS; i++) {
            const double e1 = i == 0 ? M : 0;
            p.push_back(ones ? M / sqrt(c.HS) : e1);
        }
    }
    return device_table<real>(p);
}
#endif // POSITIONS_H
