// dev/ptx/warp.cpp -- instructions that the lanes of a warp perform together.
#include "machine.h"
#include <math.h>
#include <stdlib.h>
#include <algorithm>

namespace ptx {
// ----------------------------------------------------------------------------
// mma.m16n8k16 of bf16. Where element i of a thread's fragment stands, with group = lane / 4 and
// pair = lane % 4 (PTX ISA, "Matrix Fragments for mma.m16n8k16"):
//   A: row group, + 8 for i = 2, 3, 6, 7; column 2 pair + i % 2, + 8 for i >= 4
//   B: row 2 pair + i % 2, + 8 for i >= 2; column group
//   C, D: row group, + 8 for i >= 2; column 2 pair + i % 2

struct Matrices {
    float A[16][16];
    float B[16][8];
    float D[16][8];
};
static float half_of(u32 bits, int which) {
    return float_of((which ? bits >> 16 : bits & 0xFFFF) << 16);
}
static void gather(Matrices& m, const char* registers, const Instruction& i) {
    for (int lane = 0; lane < 32; lane++) {
        const int group = lane / 4, pair = lane % 4 * 2;
        for (int e = 0; e < 8; e++) {
            const int row = group + (e & 2 ? 8 : 0), column = pair + e % 2 + (e >= 4 ? 8 : 0);
            m.A[row][column] = half_of(get<u32>(registers, i.operand[4 + e / 2], lane), e % 2);
        }
        for (int e = 0; e < 4; e++) {
            const u32 bits = get<u32>(registers, i.operand[8 + e / 2], lane);
            m.B[pair + e % 2 + (e >= 2 ? 8 : 0)][group] = half_of(bits, e % 2);
            m.D[group + (e >= 2 ? 8 : 0)][pair + e % 2] =
                get<float>(registers, i.operand[10 + e], lane);
        }
    }
}
// Adds the products as tensor cores were measured to, at their worst: eight at a time, with the sum
// so far, aligned to the largest of them and cut off below 24 bits.
static float add_truncated(float sum, const float* products) {
    double x[9];
    int top = INT32_MIN;
    for (int k = 0; k < 9; k++) {
        x[k] = k < 8 ? products[k] : sum;
        if (!std::isfinite(x[k])) {
            for (int j = 0; j < 8; j++) { sum += products[j]; }
            return sum;
        }
        if (x[k] != 0) { top = std::max(top, ilogb(x[k])); }
    }
    if (top == INT32_MIN) { return sum; }
    double total = 0;
    for (double v : x) { total += trunc(ldexp(v, 23 - top)); }
    const int over = total != 0 ? std::max(0, ilogb(total) - 23) : 0;
    return (float)ldexp(trunc(ldexp(total, -over)), over + top - 23);
}
void multiply_matrices(Context& c, const Instruction& i, u32) {
    static const char* rounding = getenv("PTX_MMA");
    static const bool truncated = rounding && !strcmp(rounding, "trunc");
    Matrices m;
    gather(m, c.registers, i);
    for (int row = 0; row < 16; row++) {
        float sum[8] = {};
        for (int k = 0; k < 16 && !truncated; k++) {
            for (int n = 0; n < 8; n++) { sum[n] += m.A[row][k] * m.B[k][n]; }
        }
        for (int n = 0; n < 8; n++) { m.D[row][n] += sum[n]; }
        for (int k0 = 0; k0 < 16 && truncated; k0 += 8) {
            for (int n = 0; n < 8; n++) {
                float products[8];
                for (int k = 0; k < 8; k++) { products[k] = m.A[row][k0 + k] * m.B[k0 + k][n]; }
                m.D[row][n] = add_truncated(m.D[row][n], products);
            }
        }
    }
    for (int lane = 0; lane < 32; lane++) {
        for (int e = 0; e < 4; e++) {
            const int row = lane / 4 + (e >= 2 ? 8 : 0), column = lane % 4 * 2 + e % 2;
            set<float>(c.registers, i.operand[e], lane, m.D[row][column]);
        }
    }
}

// ----------------------------------------------------------------------------
// ldmatrix: lanes 8m to 8m + 7 give the rows of matrix m. Lane l receives two neighbors of row
// l / 4, from column 2 (l % 4) on; with .trans two neighbors of column l / 4

void load_matrix(Context& c, const Instruction& i, u32) {
    static const std::vector<u16> nothing(8, 0xFFFF);
    const bool transposed = i.immediate;
    u32 out[4][32];
    for (int m = 0; m < i.count; m++) {
        const u16* row[8];
        for (int r = 0; r < 8; r++) {
            const int lane = m * 8 + r;
            u32 address = (u32)i.offset;
            if (i.base >= 0) { address += get<u32>(c.registers, i.base, lane); }
            const char* p = shared_at(c, address, 16, lane, false);
            row[r] = p ? (const u16*)p : nothing.data();
        }
        for (int lane = 0; lane < 32; lane++) {
            const int a = lane / 4, b = lane % 4 * 2;
            const u16 low = transposed ? row[b][a] : row[a][b];
            const u16 high = transposed ? row[b + 1][a] : row[a][b + 1];
            out[m][lane] = low | (u32)high << 16;
        }
    }
    for (int m = 0; m < i.count; m++) {
        for (int lane = 0; lane < 32; lane++) {
            set<u32>(c.registers, i.operand[m], lane, out[m][lane]);
        }
    }
}

// movmatrix: lane l gives two neighbors of row l / 4, and receives those of column l / 4
void transpose_matrix(Context& c, const Instruction& i, u32) {
    u16 m[8][8];
    for (int lane = 0; lane < 32; lane++) {
        const u32 x = get<u32>(c.registers, i.operand[1], lane);
        m[lane / 4][lane % 4 * 2] = (u16)x;
        m[lane / 4][lane % 4 * 2 + 1] = (u16)(x >> 16);
    }
    for (int lane = 0; lane < 32; lane++) {
        const u32 low = m[lane % 4 * 2][lane / 4], high = m[lane % 4 * 2 + 1][lane / 4];
        set<u32>(c.registers, i.operand[0], lane, low | high << 16);
    }
}

// ----------------------------------------------------------------------------
// shfl, vote, __syncwarp

// Finds the lane that `lane` reads, and whether it is in range (PTX ISA, shfl.sync).
static int source_lane(int kind, int lane, u32 b, u32 clamp_and_mask, bool* in_range) {
    const int segment = clamp_and_mask >> 8 & 31, clamp = clamp_and_mask & 31;
    const int most = (lane & segment) | (clamp & ~segment), least = lane & segment;
    int from = lane;
    switch (kind) {
    case BUTTERFLY: from = lane ^ (int)b; break;
    case INDEX: from = least | ((int)b & ~segment); break;
    case UP: from = lane - (int)b; break;
    case DOWN: from = lane + (int)b; break;
    }
    *in_range = kind == UP ? from >= most : from <= most;
    return *in_range ? from : lane;
}
// operands: the result, whether it was in range (or NO_SLOT), the value, the distance, the clamp
void shuffle(Context& c, const Instruction& i, u32 lanes) {
    u32 result[32], valid[32];
    for (u32 left = lanes; left; left &= left - 1) {
        const int lane = __builtin_ctz(left);
        const u32 b = get<u32>(c.registers, i.operand[3], lane) & 31;
        const u32 clamp = get<u32>(c.registers, i.operand[4], lane);
        bool in_range;
        const int from = source_lane(i.immediate, lane, b, clamp, &in_range);
        valid[lane] = in_range;
        if (lanes >> from & 1) {
            result[lane] = get<u32>(c.registers, i.operand[2], from);
            continue;
        }
        fault(c, lane, "shfl", "reads lane %d, which takes no part (mask %08x)", from, lanes);
        result[lane] = ~0u;
    }
    for (u32 left = lanes; left; left &= left - 1) {
        const int lane = __builtin_ctz(left);
        set<u32>(c.registers, i.operand[0], lane, result[lane]);
        if (i.operand[1] != NO_SLOT) { set<u32>(c.registers, i.operand[1], lane, valid[lane]); }
    }
}
void ballot(Context& c, const Instruction& i, u32 lanes) {
    u32 votes = 0;
    for_lanes(lanes, [&](int lane) {
        if (get<u32>(c.registers, i.operand[1], lane)) { votes |= 1u << lane; }
    });
    for_lanes(lanes, [&](int lane) { set<u32>(c.registers, i.operand[0], lane, votes); });
}
void sync_warp(Context& c, const Instruction&, u32 lanes) {
    if ((lanes | c.warp->exited | ~c.warp->exist) == ~0u) { c.warp->time++; }
}
} // namespace ptx
