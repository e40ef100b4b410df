// dev/ptx/arithmetic.cpp -- instructions that work on registers alone. TO ADD one: a row in
// whole_numbers, floating, approximate or bits_only. What is not there ends the program with the
// instruction's text.
#include "machine.h"
#include <math.h>
#include <algorithm>
#include <limits>
#include <type_traits>

namespace ptx {
// ----------------------------------------------------------------------------
// Apply a function of one, two or three operands to every lane: R its result, A, B, C their types

template <class R, class A, class F> static Perform one(F) {
    return [](Context& c, const Instruction& i, u32 lanes) {
        char* r = c.registers;
        const u32 to = i.operand[0], a = i.operand[1];
        for_lanes(lanes, [&](int l) { set<R>(r, to, l, F()(get<A>(r, a, l))); });
    };
}
template <class R, class A, class B, class F> static Perform two(F) {
    return [](Context& c, const Instruction& i, u32 lanes) {
        char* r = c.registers;
        const u32 to = i.operand[0], a = i.operand[1], b = i.operand[2];
        for_lanes(lanes, [&](int l) { set<R>(r, to, l, F()(get<A>(r, a, l), get<B>(r, b, l))); });
    };
}
template <class R, class A, class B, class C, class F> static Perform three(F) {
    return [](Context& c, const Instruction& i, u32 lanes) {
        char* r = c.registers;
        const u32 to = i.operand[0], a = i.operand[1], b = i.operand[2], d = i.operand[3];
        for_lanes(lanes, [&](int l) {
            set<R>(r, to, l, F()(get<A>(r, a, l), get<B>(r, b, l), get<C>(r, d, l)));
        });
    };
}

// ----------------------------------------------------------------------------
// whole numbers

template <class T> struct Twice;
template <> struct Twice<u16> { typedef u32 type; };
template <> struct Twice<s16> { typedef s32 type; };
template <> struct Twice<u32> { typedef u64 type; };
template <> struct Twice<s32> { typedef s64 type; };
template <class T> static T high_half(T a, T b) {
    return (T)(((__int128)a * (__int128)b) >> (8 * sizeof(T)));
}
template <class T> static T quotient(T a, T b) {
    if (b == 0) { return (T)~(T)0; }
    if (std::is_signed<T>::value && b == (T)-1) { return (T)(0 - (std::make_unsigned_t<T>)a); }
    return (T)(a / b);
}
template <class T> static T remainder(T a, T b) {
    if (b == 0) { return (T)~(T)0; }
    if (std::is_signed<T>::value && b == (T)-1) { return 0; }
    return (T)(a % b);
}
template <class T> static T shifted_right(T a, u32 by) {
    if (by < 8 * sizeof(T)) { return (T)(a >> by); }
    return (T)(std::is_signed<T>::value && a < 0 ? -1 : 0);
}
template <class T> static T shifted_left(T a, u32 by) {
    return by < 8 * sizeof(T) ? (T)((std::make_unsigned_t<T>)a << by) : (T)0;
}
template <class T> static void insert_bits(Context& c, const Instruction& i, u32 lanes) { // bfi
    typedef std::make_unsigned_t<T> U;
    for_lanes(lanes, [&](int l) {
        const U a = get<U>(c.registers, i.operand[1], l);
        U b = get<U>(c.registers, i.operand[2], l);
        const u32 at = get<u32>(c.registers, i.operand[3], l) & 255;
        const u32 length = get<u32>(c.registers, i.operand[4], l) & 255;
        for (u32 k = 0; k < length && at + k < 8 * sizeof(T); k++) {
            const U bit = (U)1 << (at + k);
            b = a >> k & 1 ? b | bit : b & ~bit;
        }
        set<U>(c.registers, i.operand[0], l, b);
    });
}
template <class T> static void extract_bits(Context& c, const Instruction& i, u32 lanes) { // bfe
    typedef std::make_unsigned_t<T> U;
    const u32 all = 8 * sizeof(T);
    for_lanes(lanes, [&](int l) {
        const U a = get<U>(c.registers, i.operand[1], l);
        const u32 at = get<u32>(c.registers, i.operand[2], l) & 255;
        const u32 length = get<u32>(c.registers, i.operand[3], l) & 255;
        const bool sign = std::is_signed<T>::value && length &&
                          (a >> std::min(at + length - 1, all - 1) & 1);
        U out = 0;
        for (u32 k = 0; k < all; k++) {
            const bool inside = k < length && at + k < all;
            const bool bit = inside ? a >> (at + k) & 1 : sign;
            out |= (U)bit << k;
        }
        set<T>(c.registers, i.operand[0], l, (T)out);
    });
}
template <class T> static u32 leading_zeros(T a) {
    u32 n = 0;
    for (int k = 8 * (int)sizeof(T) - 1; k >= 0 && !(a >> k & 1); k--) { n++; }
    return n;
}
template <class T> static Perform whole_compare(const std::string& op) {
    if (op == "eq") { return two<u32, T, T>([](T a, T b) { return (u32)(a == b); }); }
    if (op == "ne") { return two<u32, T, T>([](T a, T b) { return (u32)(a != b); }); }
    if (op == "lt" || op == "lo") { return two<u32, T, T>([](T a, T b) { return (u32)(a < b); }); }
    if (op == "le" || op == "ls") { return two<u32, T, T>([](T a, T b) { return (u32)(a <= b); }); }
    if (op == "gt" || op == "hi") { return two<u32, T, T>([](T a, T b) { return (u32)(a > b); }); }
    if (op == "ge" || op == "hs") { return two<u32, T, T>([](T a, T b) { return (u32)(a >= b); }); }
    return nullptr;
}
template <class T> static Perform whole_product(const std::string& op) {
    typedef std::make_unsigned_t<T> U;
    if (op == "mul.lo") { return two<T, T, T>([](T a, T b) { return (T)((u64)(U)a * (U)b); }); }
    if (op == "mul.hi") { return two<T, T, T>([](T a, T b) { return high_half(a, b); }); }
    if (op == "mad.lo") {
        return three<T, T, T, T>([](T a, T b, T c) { return (T)((u64)(U)a * (U)b + (U)c); });
    }
    if (op == "mad.hi") {
        return three<T, T, T, T>([](T a, T b, T c) { return (T)((U)high_half(a, b) + (U)c); });
    }
    if constexpr (sizeof(T) < 8) {
        typedef typename Twice<T>::type W;
        if (op == "mul.wide") { return two<W, T, T>([](T a, T b) { return (W)((W)a * (W)b); }); }
        if (op == "mad.wide") {
            return three<W, T, T, W>([](T a, T b, W c) { return (W)((u64)((W)a * (W)b) + c); });
        }
    }
    return nullptr;
}
template <class T> static Perform whole_numbers(const std::string& op) {
    typedef std::make_unsigned_t<T> U;
    if (op == "add") { return two<T, T, T>([](T a, T b) { return (T)((U)a + (U)b); }); }
    if (op == "sub") { return two<T, T, T>([](T a, T b) { return (T)((U)a - (U)b); }); }
    if (op == "div") { return two<T, T, T>([](T a, T b) { return quotient(a, b); }); }
    if (op == "rem") { return two<T, T, T>([](T a, T b) { return remainder(a, b); }); }
    if (op == "min") { return two<T, T, T>([](T a, T b) { return a < b ? a : b; }); }
    if (op == "max") { return two<T, T, T>([](T a, T b) { return a > b ? a : b; }); }
    if (op == "neg") { return one<T, T>([](T a) { return (T)(0 - (U)a); }); }
    if (op == "abs") { return one<T, T>([](T a) { return a < 0 ? (T)(0 - (U)a) : a; }); }
    if (op == "and") { return two<T, T, T>([](T a, T b) { return (T)(a & b); }); }
    if (op == "or") { return two<T, T, T>([](T a, T b) { return (T)(a | b); }); }
    if (op == "xor") { return two<T, T, T>([](T a, T b) { return (T)(a ^ b); }); }
    if (op == "not") { return one<T, T>([](T a) { return (T)~a; }); }
    if (op == "shr") { return two<T, T, u32>([](T a, u32 by) { return shifted_right(a, by); }); }
    if (op == "shl") {
        return two<T, T, u32>([](T a, u32 by) { return shifted_left(a, by); });
    }
    if (op == "selp") { return three<T, T, T, u32>([](T a, T b, u32 p) { return p ? a : b; }); }
    if (op == "popc") { return one<u32, T>([](T a) { return (u32)__builtin_popcountll((U)a); }); }
    if (op == "clz") { return one<u32, T>([](T a) { return leading_zeros((U)a); }); }
    if (op == "bfi") { return insert_bits<T>; }
    if (op == "bfe") { return extract_bits<T>; }
    if (Perform f = whole_product<T>(op)) { return f; }
    return whole_compare<T>(op);
}
#define WHOLE_TYPES(X) X(u16) X(s16) X(u32) X(s32) X(u64) X(s64)

// ----------------------------------------------------------------------------
// floating point. NaN, zero and the sign of zero as the PTX manual has them for min and max

template <class T> static T least(T a, T b) {
    if (a != a) { return b; }
    if (b != b) { return a; }
    if (a == b) { return std::signbit(a) ? a : b; }
    return a < b ? a : b;
}
template <class T> static T largest(T a, T b) { return -least(-a, -b); }
template <class T> static Perform float_compare(const std::string& op) {
    const bool or_nan = op.size() == 3 && op.back() == 'u';
    const std::string base = or_nan ? op.substr(0, 2) : op;
#define COMPARE(name, test) \
    if (base == name && or_nan) { \
        return two<u32, T, T>([](T a, T b) { return (u32)(a != a || b != b || (test)); }); \
    } \
    if (base == name) { \
        return two<u32, T, T>([](T a, T b) { return (u32)(a == a && b == b && (test)); }); \
    }
    COMPARE("eq", a == b)
    COMPARE("ne", a != b)
    COMPARE("lt", a < b)
    COMPARE("le", a <= b)
    COMPARE("gt", a > b)
    COMPARE("ge", a >= b)
#undef COMPARE
    if (op == "num") { return two<u32, T, T>([](T a, T b) { return (u32)(a == a && b == b); }); }
    if (op == "nan") { return two<u32, T, T>([](T a, T b) { return (u32)(a != a || b != b); }); }
    return nullptr;
}
template <class T> static Perform floating(const std::string& op) {
    if (op == "add") { return two<T, T, T>([](T a, T b) { return a + b; }); }
    if (op == "sub") { return two<T, T, T>([](T a, T b) { return a - b; }); }
    if (op == "mul") { return two<T, T, T>([](T a, T b) { return a * b; }); }
    if (op == "div") { return two<T, T, T>([](T a, T b) { return a / b; }); }
    if (op == "fma") { return three<T, T, T, T>([](T a, T b, T c) { return std::fma(a, b, c); }); }
    if (op == "min") { return two<T, T, T>([](T a, T b) { return least(a, b); }); }
    if (op == "max") { return two<T, T, T>([](T a, T b) { return largest(a, b); }); }
    if (op == "neg") { return one<T, T>([](T a) { return -a; }); }
    if (op == "abs") { return one<T, T>([](T a) { return std::fabs(a); }); }
    if (op == "sqrt") { return one<T, T>([](T a) { return std::sqrt(a); }); }
    if (op == "rcp") { return one<T, T>([](T a) { return 1 / a; }); }
    if (op == "copysign") { // the sign of a, the value of b
        return two<T, T, T>([](T a, T b) { return std::copysign(b, a); });
    }
    if (op == "selp") { return three<T, T, T, u32>([](T a, T b, u32 p) { return p ? a : b; }); }
    return float_compare<T>(op);
}
// Rounds a * b + c down. The product of two floats is exact in double; `error` is what its sum with
// c has lost (Knuth's two-sum).
static float fma_down(float a, float b, float c) {
    const double product = (double)a * b, sum = product + c;
    const float near = (float)sum;
    if (!std::isfinite(sum) || !std::isfinite(near)) { return near; }
    const double part = sum - product;
    const double error = (product - (sum - part)) + (c - part);
    const bool above = near > sum || (near == sum && error < 0);
    return above ? std::nextafter(near, -INFINITY) : near;
}
static float flush(float x) { return std::fabs(x) < 0x1p-126f ? std::copysign(0.0f, x) : x; }
// The approximate functions: the true value, rounded; .ftz flushes subnormals on both sides.
template <class F> static Perform approximation(bool flushes, F) {
    if (flushes) {
        return one<float, float>([](float x) { return flush((float)F()((double)flush(x))); });
    }
    return one<float, float>([](float x) { return (float)F()((double)x); });
}
static Perform approximate(const std::string& op, bool flushes) {
    if (op == "ex2") { return approximation(flushes, [](double x) { return exp2(x); }); }
    if (op == "lg2") { return approximation(flushes, [](double x) { return log2(x); }); }
    if (op == "rcp") { return approximation(flushes, [](double x) { return 1 / x; }); }
    if (op == "rsqrt") { return approximation(flushes, [](double x) { return 1 / sqrt(x); }); }
    if (op == "sqrt") { return approximation(flushes, [](double x) { return sqrt(x); }); }
    if (op == "tanh") { return approximation(false, [](double x) { return tanh(x); }); }
    return nullptr;
}
static double upper_half(double x) { // rcp.approx.ftz.f64 gives 20 bits
    u64 bits;
    memcpy(&bits, &x, 8);
    bits &= ~0ull << 32;
    memcpy(&x, &bits, 8);
    return x;
}

// ----------------------------------------------------------------------------
// bits

static void logic_of_three(Context& c, const Instruction& i, u32 lanes) { // lop3: a table of 8 bits
    for_lanes(lanes, [&](int l) {
        const u32 a = get<u32>(c.registers, i.operand[1], l);
        const u32 b = get<u32>(c.registers, i.operand[2], l);
        const u32 d = get<u32>(c.registers, i.operand[3], l);
        u32 out = 0;
        for (int k = 0; k < 8; k++) {
            const u32 match = (k & 4 ? a : ~a) & (k & 2 ? b : ~b) & (k & 1 ? d : ~d);
            if (i.immediate >> k & 1) { out |= match; }
        }
        set<u32>(c.registers, i.operand[0], l, out);
    });
}
static u32 permuted(u32 a, u32 b, u32 selector) { // prmt: bytes of b:a, or their signs
    const u64 both = (u64)b << 32 | a;
    u32 out = 0;
    for (int k = 0; k < 4; k++) {
        const u32 choice = selector >> 4 * k;
        u32 byte = both >> 8 * (choice & 7) & 255;
        if (choice & 8) { byte = byte & 128 ? 255 : 0; }
        out |= byte << 8 * k;
    }
    return out;
}
static u32 funnel_left(u32 a, u32 b, u32 by) { // by at most 32
    const u64 both = (u64)b << 32 | a;
    return by == 32 ? a : (u32)((both << by) >> 32);
}
static u32 funnel_right(u32 a, u32 b, u32 by) { return (u32)(((u64)b << 32 | a) >> by); }
typedef std::vector<std::string> Parts;
static bool has(const Parts& parts, const char* x) {
    return std::find(parts.begin(), parts.end(), x) != parts.end();
}
template <class F> static Perform funnel(bool wraps, F) {
    if (wraps) {
        return three<u32, u32, u32, u32>([](u32 a, u32 b, u32 s) { return F()(a, b, s & 31); });
    }
    return three<u32, u32, u32, u32>([](u32 a, u32 b, u32 s) {
        return F()(a, b, std::min(s, 32u));
    });
}
static Perform bits_only(const Parts& parts) {
    if (parts[0] == "lop3") { return logic_of_three; }
    if (parts[0] == "prmt" && parts.size() == 2) {
        return three<u32, u32, u32, u32>([](u32 a, u32 b, u32 s) { return permuted(a, b, s); });
    }
    if (parts[0] != "shf") { return nullptr; }
    const bool wraps = has(parts, "wrap");
    if (has(parts, "l")) {
        return funnel(wraps, [](u32 a, u32 b, u32 by) { return funnel_left(a, b, by); });
    }
    return funnel(wraps, [](u32 a, u32 b, u32 by) { return funnel_right(a, b, by); });
}

// ----------------------------------------------------------------------------
// conversions

enum Rounding { NEAREST, TO_ZERO, DOWN_TO, UP_TO };
template <class T> static T rounded(T x, int how) {
    if (how == TO_ZERO) { return std::trunc(x); }
    if (how == DOWN_TO) { return std::floor(x); }
    return how == UP_TO ? std::ceil(x) : std::nearbyint(x);
}
template <class I, class F> static I saturated(F x) { // NaN is 0
    const double d = x;
    const double top = std::ldexp(1.0, (int)sizeof(I) * 8 - std::is_signed<I>::value);
    if (x != x) { return 0; }
    if (d >= top) { return std::numeric_limits<I>::max(); }
    if (d <= (double)std::numeric_limits<I>::min()) { return std::numeric_limits<I>::min(); }
    return (I)x;
}
template <class S, int HOW> static Perform to_whole(const std::string& to) {
#define X(T) \
    if (to == #T) { return one<T, S>([](S x) { return saturated<T>(rounded<S>(x, HOW)); }); }
    WHOLE_TYPES(X)
#undef X
    return nullptr;
}
template <class S> static Perform to_whole(const std::string& to, int how) {
    if (how == TO_ZERO) { return to_whole<S, TO_ZERO>(to); }
    if (how == DOWN_TO) { return to_whole<S, DOWN_TO>(to); }
    if (how == UP_TO) { return to_whole<S, UP_TO>(to); }
    return how == NEAREST ? to_whole<S, NEAREST>(to) : nullptr;
}
static Perform to_whole_float(int how) {
    if (how == TO_ZERO) { return one<float, float>([](float x) { return std::trunc(x); }); }
    if (how == DOWN_TO) { return one<float, float>([](float x) { return std::floor(x); }); }
    if (how == UP_TO) { return one<float, float>([](float x) { return std::ceil(x); }); }
    return one<float, float>([](float x) { return std::nearbyint(x); });
}
template <class S> static Perform cast_from(const std::string& to) {
#define X(T) \
    if (to == #T) { return one<T, S>([](S x) { return (T)x; }); }
    WHOLE_TYPES(X)
#undef X
    if (to == "f32") { return one<float, S>([](S x) { return (float)x; }); }
    if (to == "f64") { return one<double, S>([](S x) { return (double)x; }); }
    return nullptr;
}
static u16 to_bf16(float f) {
    const u32 bits = bits_of(f);
    if (f != f) { return 0x7fff; }
    return (u16)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}
static float clamped(float x) { return x != x || x < 0 ? 0.0f : std::min(x, 1.0f); } // .sat
static bool is_float(const std::string& type) { return type == "f32" || type == "f64"; }
Perform conversion(const Parts& parts) {
    std::string from = parts.back(), to = parts[parts.size() - 2];
    auto has = [&](const char* x) { return ptx::has(parts, x); };
    if (to[0] == 'b' && to[1] != 'f') { to[0] = 'u'; }
    if (from == "bf16" && to == "f32") { return one<u32, u16>([](u16 a) { return (u32)a << 16; }); }
    if (to == "bf16" && from == "f32" && has("rn")) {
        return one<u16, float>([](float a) { return to_bf16(a); });
    }
    if (to == "bf16x2" && from == "f32" && has("rn")) { // the first is the upper half
        return two<u32, float, float>([](float a, float b) {
            return (u32)to_bf16(a) << 16 | to_bf16(b);
        });
    }
    const int how = has("rzi") ? TO_ZERO : has("rmi") ? DOWN_TO : has("rpi") ? UP_TO
                  : has("rni") ? NEAREST : -1;
    if (is_float(from) && !is_float(to)) {
        if (has("sat")) { return nullptr; }
        return from == "f32" ? to_whole<float>(to, how) : to_whole<double>(to, how);
    }
    if (from == "f32" && to == "f32") {
        if (how >= 0) { return to_whole_float(how); }
        return has("sat") ? one<float, float>([](float x) { return clamped(x); }) : nullptr;
    }
    for (size_t k = 1; k + 2 < parts.size(); k++) { if (parts[k] != "rn") { return nullptr; } }
    if (from == "f32") { return cast_from<float>(to); }
    if (from == "f64") { return cast_from<double>(to); }
#define X(T) \
    if (from == #T) { return cast_from<T>(to); }
    WHOLE_TYPES(X)
#undef X
    return nullptr;
}
// Converts between whole numbers whose registers are wider than their types: cuts off what is read,
// extends what is written.
void convert_integers(Context& c, const Instruction& i, u32 lanes) {
    for_lanes(lanes, [&](int l) {
        u64 v = get_sized(c.registers, i.operand[1], i.count, l);
        v = extend((const char*)&v, i.element, i.is_signed);
        v = extend((const char*)&v, i.immediate, i.result_signed);
        set_sized(c.registers, i.operand[0], i.register_bytes, l, v);
    });
}
// operands: the parts, then the whole; element: bytes of a part
void split_register(Context& c, const Instruction& i, u32 lanes) {
    const int parts = i.operands;
    for_lanes(lanes, [&](int l) {
        const u64 v = get_sized(c.registers, i.operand[parts], parts * i.element, l);
        for (int k = 0; k < parts; k++) {
            if (i.operand[k] == NO_SLOT) { continue; }
            set_sized(c.registers, i.operand[k], i.element, l, v >> (8 * i.element * k));
        }
    });
}
void join_registers(Context& c, const Instruction& i, u32 lanes) {
    const int parts = i.operands;
    for_lanes(lanes, [&](int l) {
        u64 v = 0;
        for (int k = 0; k < parts; k++) {
            u64 part = get<u32>(c.registers, i.operand[1 + k], l);
            if (i.element == 2) { part &= 0xFFFF; }
            v |= part << (8 * i.element * k);
        }
        set_sized(c.registers, i.operand[0], parts * i.element, l, v);
    });
}

// ----------------------------------------------------------------------------

static Perform predicate(const std::string& op) {
    if (op == "not") { return one<u32, u32>([](u32 a) { return (u32)!a; }); }
    if (op == "mov") { return one<u32, u32>([](u32 a) { return a; }); }
    return whole_numbers<u32>(op);
}
static Perform of_floats(const Parts& parts, const std::string& op, bool single) {
    auto has = [&](const char* x) { return ptx::has(parts, x); };
    if (has("approx") && single) { return approximate(op, has("ftz")); }
    if (has("approx") && op == "rcp") {
        return one<double, double>([](double x) { return upper_half(1 / x); });
    }
    if (has("rm") && op == "fma" && single) {
        return three<float, float, float, float>([](float a, float b, float c) {
            return fma_down(a, b, c);
        });
    }
    for (const char* x : { "approx", "ftz", "rz", "rp", "rm", "sat" }) {
        if (has(x)) { return nullptr; }
    }
    return single ? floating<float>(op) : floating<double>(op);
}
Perform arithmetic(const Parts& parts) {
    std::string type = parts.back(), op = parts[0];
    if (op == "lop3" || op == "prmt" || op == "shf") { return bits_only(parts); }
    if (type == "pred") { return predicate(op); }
    if (op == "setp") { op = parts.size() == 3 ? parts[1] : ""; }
    if (op == "mul" || op == "mad") { op += is_float(type) ? "" : "." + parts[1]; }
    if (is_float(type)) { return of_floats(parts, op, type == "f32"); }
    if (type[0] == 'b') { type[0] = 'u'; }
#define X(T) \
    if (type == #T) { return whole_numbers<T>(op); }
    WHOLE_TYPES(X)
#undef X
    return nullptr;
}
} // namespace ptx
