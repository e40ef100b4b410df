// dev/ptx/hook.h -- emu.h includes this where PTX_RUN is defined: runs a kernel twice on the same
// memory, as C++ in the emulator and as PTX, and compares every word of what it may have written.
// The PTX's result stays.
#include <dlfcn.h>
#include <typeinfo>
#include <vector>
#include "ptx.h"

namespace emu {
// ----------------------------------------------------------------------------
// what a kernel may write, and as what its numbers are compared

enum Word { WORD_F32 = 1, WORD_BF16 = 2, WORD_F64 = 4, WORD_INT = 8 };
template <class T> Word word_of() {
    typedef std::remove_cv_t<T> U;
    if (std::is_same_v<U, __nv_bfloat16>) { return WORD_BF16; }
    if (std::is_same_v<U, double>) { return WORD_F64; }
    if (std::is_integral_v<U>) { return WORD_INT; }
    return strstr(typeid(U).name(), "StepSums") ? WORD_F64 : WORD_F32;
}
struct Touched {
    Memory* memory;
    unsigned words;                     // the kinds that point into it
    std::vector<char> before;
    std::vector<char> emulated;
};
inline void touch_memory(std::vector<Touched>& all, const void* p, Word word) {
    Memory* m = p ? device_memory(p) : nullptr;
    if (!m) { return; }
    for (Touched& t : all) {
        if (t.memory == m) { t.words |= word; return; }
    }
    all.push_back(Touched{m, word, {}, {}});
}
template <class T> void touch_argument(std::vector<Touched>& all, const T& v) {
    if constexpr (std::is_pointer_v<T>) {
        touch_memory(all, (const void*)v, word_of<std::remove_pointer_t<T>>());
    } else if constexpr (std::is_class_v<T>) { // pointers in a struct
        const char* type = typeid(T).name();
        const bool bf16 = strstr(type, "DsChunk"), both = strstr(type, "PanelMemory");
        const Word word = both ? Word(WORD_F32 | WORD_BF16) : bf16 ? WORD_BF16 : WORD_F32;
        for (size_t i = 0; i + sizeof(void*) <= sizeof v; i += sizeof(void*)) {
            const void* p;
            memcpy(&p, (const char*)&v + i, sizeof p);
            touch_memory(all, p, word);
        }
    }
}

// ----------------------------------------------------------------------------
// the comparison. Approximate instructions and the order in which an mma adds are not the same on
// both sides: a number may differ by rounding, of itself or of the largest number there

inline float f32_at(const char* p) { float f; memcpy(&f, p, 4); return f; }
inline float bf16_at(const char* p) {
    uint16_t half;
    memcpy(&half, p, 2);
    const uint32_t bits = (uint32_t)half << 16;
    return f32_at((const char*)&bits);
}
struct Tolerance { double largest, relative, of_largest; };
inline bool agree(double x, double y, const Tolerance& t, double* apart) {
    *apart = 0;
    if (x == y || (x != x && y != y)) { return true; }
    *apart = 1e9;
    if (!isfinite(x) || !isfinite(y)) { return false; }
    const double d = fabs(x - y);
    *apart = d / (t.largest > 0 ? t.largest : 1);
    return d <= t.relative * fmax(fabs(x), fabs(y)) + t.of_largest * t.largest;
}
template <class At> double largest_number(const char* p, size_t n, size_t step, At at) {
    double largest = 0;
    for (size_t i = 0; i + step <= n; i += step) {
        const double x = fabs((double)at(p + i));
        if (x < 1e30 && x > largest) { largest = x; }
    }
    return largest;
}
struct Compare {
    const Touched& t;
    const char *a, *b;                  // emulated, PTX
    size_t n;
    Tolerance f32, bf16;
    Compare(const Touched& t)
        : t(t), a(t.emulated.data()), b(t.memory->p), n(t.memory->n),
          f32{largest_number(a, n, 4, f32_at), 1e-4, 1e-5},
          bf16{largest_number(a, n, 2, bf16_at), 0x1p-7, 1e-3} {}
    bool halves_agree(size_t i, size_t size, double* apart) const {
        double low = 0, high = 0;
        bool good = agree(bf16_at(a + i), bf16_at(b + i), bf16, &low);
        if (size == 4) { good &= agree(bf16_at(a + i + 2), bf16_at(b + i + 2), bf16, &high); }
        *apart = fmax(low, high);
        return good;
    }
    bool doubles_agree(size_t i, double* apart) const {
        double x, y;
        memcpy(&x, a + i / 8 * 8, 8);
        memcpy(&y, b + i / 8 * 8, 8);
        return agree(x, y, Tolerance{0, 1e-6, 0}, apart);
    }
    // Says whether the word at byte i agrees as one of the kinds that may stand there.
    bool word(size_t i, size_t size, double* least) const {
        bool good = false;
        auto as = [&](bool agrees, double apart) {
            good |= agrees;
            *least = fmin(*least, apart);
        };
        double apart = 0;
        if (t.words & WORD_F32 && size == 4) {
            const bool agrees = agree(f32_at(a + i), f32_at(b + i), f32, &apart);
            as(agrees, apart);
        }
        if (t.words & WORD_BF16) {
            const bool agrees = halves_agree(i, size, &apart);
            as(agrees, apart);
        }
        if (t.words & WORD_F64 && i / 8 * 8 + 8 <= n) {
            const bool agrees = doubles_agree(i, &apart);
            as(agrees, apart);
        }
        return good;
    }
};
inline void say_difference(const char* name, const Compare& c, size_t i) {
    static long said;
    if (said++ >= 25) { return; }
    const char *a = c.a + i, *b = c.b + i;
    fprintf(stderr, "PTX DIFFERS: kernel %.160s, byte %zu of %zu: emulator %g (%g %g), ", name, i,
            c.n, f32_at(a), bf16_at(a), bf16_at(a + 2));
    fprintf(stderr, "PTX %g (%g %g)\n", f32_at(b), bf16_at(b), bf16_at(b + 2));
    if (getenv("CHECK_FIRST")) { _exit(5); }
}
inline void compare_memory(const char* name, const Touched& t) {
    const Compare c(t);
    ptx::Comparison sum = {};
    for (size_t i = 0; i + 2 <= c.n; i += 4) {
        const size_t size = c.n - i < 4 ? c.n - i : 4;
        sum.words++;
        if (!memcmp(c.a + i, c.b + i, size)) { continue; }
        sum.different++;
        double least = 1e9;
        if (!c.word(i, size, &least) && sum.wrong++ == 0) { say_difference(name, c, i); }
        sum.worst = fmax(sum.worst, least);
    }
    ptx::note(name, sum);
}

// ----------------------------------------------------------------------------

// Makes the call that the interpreter is given.
template <class... T>
ptx::Launch ptx_call(const char* name, const std::tuple<T...>& args, dim3 grid, dim3 threads,
                     size_t smem) {
    ptx::Launch x = { name, { grid.x, grid.y, grid.z }, { threads.x, threads.y, threads.z }, smem,
                      shared[running].asked, {}, {}, random() };
    auto add = [&](auto& v) {
        x.arguments.push_back(ptx::Argument{&v, sizeof v, alignof(std::decay_t<decltype(v)>)});
    };
    std::apply([&](auto&... v) { (add(v), ...); }, args);
    for (Memory& m : memory) { x.memory.push_back(ptx::Allocation{m.p, m.n}); }
    return x;
}
template <class... T>
void run_twice(const void* f, const std::tuple<T...>& args, dim3 grid, dim3 threads, size_t smem) {
    Dl_info info;
    if (!dladdr(f, &info) || !info.dli_sname || info.dli_saddr != f) {
        fail("no symbol for kernel %s: link with -rdynamic", kernel);
    }
    std::vector<Touched> touched;
    std::apply([&](auto&... v) { (touch_argument(touched, v), ...); }, args);
    Access access;
    for (Touched& t : touched) { t.before.assign(t.memory->p, t.memory->p + t.memory->n); }
    run_grid(grid, threads, smem);
    for (Touched& t : touched) {
        t.emulated.assign(t.memory->p, t.memory->p + t.memory->n);
        memcpy(t.memory->p, t.before.data(), t.memory->n);
    }
    const ptx::Order order = settings.sched == FWD ? ptx::FORWARD
                           : settings.sched == REV ? ptx::REVERSE : ptx::RANDOM;
    ptx::launch(ptx_call(info.dli_sname, args, grid, threads, smem), order);
    for (const Touched& t : touched) { compare_memory(info.dli_sname, t); }
    for (Memory& m : memory) { check_canary(m); }
}
} // namespace emu
