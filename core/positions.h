/*
positions.h -- tables that are computed once and stay as they are: cos and sin of rotary positions,
sinusoids of absolute ones, the fixed v* of BIAS=k.
*/
#ifndef POSITIONS_H
#define POSITIONS_H
#include <limits.h>
#include <math.h>
#include <vector>
#include "../arch.h"       // Arch, rotated, v_star_norm
#include "operations.h" // real, acc, ops

// Which pairs of channels yarn stretches: none before `low`, all from `high` on.
struct YarnPairs { double low, high; };

// Finds them from the turns that a pair makes in the context that was trained.
inline YarnPairs yarn_pairs(const Arch& arch, double base) {
    const int rot = rotated(arch);
    const double context = arch.rope_context / (2 * M_PI);
    auto pair_at = [&](double turns_per_context) {
        return rot * log(context / turns_per_context) / (2 * log(base));
    };
    double low = pair_at(arch.rope_fast);
    double high = pair_at(arch.rope_slow);
    if (arch.rope_round) {
        low = floor(low);
        high = ceil(high);
    }
    low = std::max(low, 0.0);
    high = std::max(std::min(high, rot - 1.0), low + 0.001);
    return { low, high };
}

// Returns the share of pair i, of angle f, that --rope-scaling stretches by its factor. (llama3:
// Meta's models; yarn: Peng et al. 2023, section 3; longrope has a number for each pair instead:
// Ding et al. 2024, arXiv:2402.13753)
inline double rope_stretched(const Arch& arch, double base, int i, double f) {
    double share = 0;
    if (arch.rope_scaling == ROPE_linear) { share = 1; }
    if (arch.rope_scaling == ROPE_llama3) {
        const double context = arch.rope_context / (2 * M_PI);
        share = 1 - (f * context - arch.rope_low) / (arch.rope_high - arch.rope_low);
    }
    if (arch.rope_scaling == ROPE_yarn) {
        const YarnPairs pairs = yarn_pairs(arch, base);
        share = (i - pairs.low) / (pairs.high - pairs.low);
    }
    return std::min(1.0, std::max(0.0, share));
}

// Returns the number of positions up to which a model is computed here: with dynamic and longrope
// those that were trained, as the angles are other ones for a longer text.
inline long rope_limit(const Arch& arch) {
    if (arch.rope_most) { return arch.rope_most; }
    const bool by_length = arch.rope_scaling == ROPE_dynamic || arch.rope_scaling == ROPE_longrope;
    return by_length ? arch.rope_context : LONG_MAX;
}

// Returns what rotated vectors are multiplied by.
inline double rope_length(const Arch& arch) {
    const bool longrope = arch.rope_scaling == ROPE_longrope;
    if (arch.rope_scaling != ROPE_yarn && !longrope) { return 1; }
    if (arch.rope_length) { return arch.rope_length; }
    const double factor = arch.rope_factor;
    if (factor <= 1) { return 1; }
    return longrope ? sqrt(1 + log(factor) / log(arch.rope_context)) : 0.1 * log(factor) + 1;
}

// Returns the angles per position of the `rot` / 2 pairs, base^(-2i/rot), and, if scaled, what
// --rope-scaling makes of them; *length is what the rotated vectors are multiplied by.
inline std::vector<double> rope_angles(const Arch& arch, double base, bool scaled, double* length) {
    const int rot = rotated(arch);
    const bool longrope = scaled && arch.rope_scaling == ROPE_longrope;
    const std::vector<std::string> divisors = split(longrope ? arch.rope_short : "", ',');
    std::vector<double> angles;
    for (int i = 0; i < rot / 2; i++) {
        const double f = pow(base, -2.0 * i / rot);
        if (longrope) { angles.push_back(f / atof(divisors[i].c_str())); continue; }
        const double share = scaled ? rope_stretched(arch, base, i, f) : 0;
        const double stretched = f / arch.rope_factor * share + f * (1 - share);
        angles.push_back(share == 0 ? f : stretched);
    }
    *length = scaled ? rope_length(arch) : 1;
    return angles;
}

template <class X> X* device_table(const std::vector<double>& table) {
    X* x = device_array<X>(table.size());
    copy_to_device(x, std::vector<X>(table.begin(), table.end()));
    return x;
}

// Computes cos and sin of T positions: (T, rot/2, 2).
inline acc* rope_table(const Arch& arch, double base, bool scaled, int T) {
    double length;
    const std::vector<double> angles = rope_angles(arch, base, scaled, &length);
    std::vector<double> table;
    for (int t = 0; t < T; t++) {
        for (double angle : angles) {
            table.push_back(length * cos(t * angle));
            table.push_back(length * sin(t * angle));
        }
    }
    return device_table<acc>(table);
}

// Computes sinusoids of T positions (Eq. 5), with all sines before all cosines, as in the official
// code: (T, C).
inline real* absolute_table(int T, int C) {
    std::vector<double> table((size_t)T * C);
    for (int t = 0; t < T; t++) {
        double* sines = &table[(size_t)t * C];
        double* cosines = sines + C / 2;
        for (int i = 0; i < C / 2; i++) {
            const double angle = t * pow(10000.0, -2.0 * i / C);
            sines[i] = sin(angle);
            cosines[i] = cos(angle);
        }
    }
    return device_table<real>(table);
}

// Makes the fixed v* (Table 5), M [1, 0, .., 0] or M [1, .., 1] / sqrt(HS), the same for every
// head.
inline real* fixed_v_star(const Arch& arch) {
    const bool ones = starts_with(arch.v_star, "ones:");
    const double M = v_star_norm(arch);
    std::vector<double> v;
    for (int row = 0; row < bias_rows(arch); row++) {
        for (int i = 0; i < arch.HS; i++) {
            const double e1 = i == 0 ? M : 0;
            v.push_back(ones ? M / sqrt(arch.HS) : e1);
        }
    }
    return device_table<real>(v);
}
#endif // POSITIONS_H
