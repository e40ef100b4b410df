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

// Returns the number of positions up to which a model is computed here.
inline long rope_limit(const Arch& arch) {
    return open_files ? open_files->rope_limit(arch) : LONG_MAX;
}

// Returns the angles per position of the `rot` / 2 pairs, base^(-2i/rot), and, if scaled, what
// --rope-scaling makes of them; *length is what the rotated vectors are multiplied by.
inline std::vector<double> rope_angles(const Arch& arch, double base, bool scaled, double* length) {
    const int rot = rotated(arch);
    std::vector<double> angles;
    for (int i = 0; i < rot / 2; i++) { angles.push_back(pow(base, -2.0 * i / rot)); }
    *length = scaled && open_files ? open_files->rope_stretch(arch, base, &angles) : 1;
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
