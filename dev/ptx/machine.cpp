// dev/ptx/machine.cpp -- runs a kernel. Every lane has a program counter of its own. Lanes at one
// place run together; a collective instruction waits for the lanes of its mask, bar.sync for all
// warps. launch() is at the end.
#include "machine.h"
#include "report.h"
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <algorithm>

namespace ptx {
static u64 random_number(u64& x) {
    x ^= x << 13;
    x ^= x >> 7;
    x ^= x << 17;
    return x;
}
static void count(const Instruction& i, u32 lanes) {
    i.runs++;
    totals.warp_instructions++;
    totals.thread_instructions += __builtin_popcount(lanes);
}
static void set_pc(Warp& w, u32 lanes, int pc) {
    for (; lanes; lanes &= lanes - 1) { w.pc[__builtin_ctz(lanes)] = pc; }
}

// ----------------------------------------------------------------------------
// collective instructions

static u32 lanes_at(const Warp& w, u32 among, int pc) {
    u32 out = 0;
    for (; among; among &= among - 1) {
        const int lane = __builtin_ctz(among);
        if (w.pc[lane] == pc) { out |= 1u << lane; }
    }
    return out;
}
// Returns the lanes that an instruction waits for.
static u32 lanes_needed(Context& c, const Warp& w, const Instruction& i, u32 here) {
    const int first = __builtin_ctz(here);
    if (i.aligned) {
        if (w.exited || w.exist != ~0u) {
            fault(c, first, "aligned", "lanes %08x have exited or do not exist (%08x)", w.exited,
                  ~w.exist);
        }
        return w.exist & ~w.exited;
    }
    const u32 mask = get<u32>(w.registers, i.mask, first);
    for (u32 left = here; left; left &= left - 1) {
        const int lane = __builtin_ctz(left);
        const u32 other = get<u32>(w.registers, i.mask, lane);
        if (other != mask) { fault(c, lane, "mask", "masks %08x and %08x differ", other, mask); }
        if (!(other >> lane & 1)) { fault(c, lane, "mask", "the lane is not in mask %08x", other); }
    }
    if (mask & ~w.exist) {
        fault(c, first, "mask", "mask %08x names lanes that do not exist (%08x exist)", mask,
              w.exist);
    }
    if (mask & w.exited) {
        fault(c, first, "mask", "mask %08x names lanes that have exited (%08x)", mask, w.exited);
    }
    return mask & w.exist & ~w.exited;
}
// Performs the collective instruction at pc if all its lanes have come; says whether they had.
static bool perform_collective(Context& c, Warp& w, int pc) {
    const Instruction& i = c.kernel->code[pc];
    const u32 here = lanes_at(w, w.waiting, pc);
    if (!here) { return false; }
    c.at = &i;
    const u32 needed = lanes_needed(c, w, i, here);
    if ((here & needed) != needed) { return false; }
    c.registers = w.registers;
    products_watch(c, i);
    i.perform(c, i, needed);
    count(i, needed);
    set_pc(w, needed, pc + 1);
    w.waiting &= ~needed;
    return true;
}
[[noreturn]] static void deadlock(const Context& c, const Warp& w) {
    fprintf(stderr, "PTX FAULT [deadlock]: warp %d of kernel %s: exited %08x, at bar.sync %08x",
            w.id, c.kernel->name.c_str(), w.exited, w.at_barrier);
    for (u32 left = w.waiting; left;) {
        const int pc = w.pc[__builtin_ctz(left)];
        const u32 here = lanes_at(w, left, pc);
        const Instruction& i = c.kernel->code[pc];
        fprintf(stderr, ", waiting %08x at line %d (%s)", here, i.ptx_line, i.text.c_str());
        left &= ~here;
    }
    if (w.blocked) { fprintf(stderr, ", at a barrier with a number"); }
    fprintf(stderr, "\n");
    exit(3);
}
// All lanes wait: lets one collective instruction happen.
static void release(Context& c, Warp& w) {
    for (u32 left = w.waiting; left;) {
        const int pc = w.pc[__builtin_ctz(left)];
        if (perform_collective(c, w, pc)) { return; }
        left &= ~lanes_at(w, left, pc);
    }
    deadlock(c, w);
}

// ----------------------------------------------------------------------------
// a warp

// Chooses the lanes to run next, those at one place: the first place, the last, or any.
static int choose_place(Context& c, const Warp& w, u32 runnable) {
    int places[32], n = 0;
    for (u32 left = runnable; left; left &= left - 1) {
        const int pc = w.pc[__builtin_ctz(left)];
        if (std::find(places, places + n, pc) == places + n) { places[n++] = pc; }
    }
    if (c.order == FORWARD) { return *std::min_element(places, places + n); }
    if (c.order == REVERSE) { return *std::max_element(places, places + n); }
    return places[n == 1 ? 0 : random_number(c.seed) % n];
}
// Returns the lanes of which the predicate holds.
static u32 predicated(const Warp& w, const Instruction& i, u32 lanes) {
    if (i.predicate < 0) { return lanes; }
    u32 out = 0;
    for (u32 left = lanes; left; left &= left - 1) {
        const int lane = __builtin_ctz(left);
        const bool set = get<u32>(w.registers, i.predicate, lane) != 0;
        if (set != i.negated) { out |= 1u << lane; }
    }
    return out;
}
static void exit_lanes(Context& c, Warp& w, u32 lanes) {
    w.exited |= lanes;
    for (; lanes; lanes &= lanes - 1) {
        const int lane = __builtin_ctz(lanes);
        Lane& x = w.lane[lane];
        if (!x.copies.empty()) {
            fault(c, lane, "cp.async", "exits with %zu copies not waited for", x.copies.size());
        }
        x.copies.clear();
        x.groups.clear();
        products_exit(c, lane);
    }
}
// Runs the lanes at pc until they part, stop, or meet another lane's place, `meet`.
static void run_lanes(Context& c, Warp& w, int pc, u32 lanes, bool alone, int meet, long& budget) {
    const int end = (int)c.kernel->code.size();
    for (;;) {
        if (pc >= end) { die("ran past the end of %s", c.kernel->name.c_str()); }
        const Instruction& i = c.kernel->code[pc];
        c.at = &i;
        const u32 chosen = predicated(w, i, lanes);
        if (i.kind == NORMAL) {
            if (chosen) {
                products_watch(c, i);
                i.perform(c, i, chosen);
                count(i, chosen);
            }
            pc++;
        } else if (i.kind == BRANCH) {
            count(i, lanes);
            if (chosen && chosen != lanes) {
                set_pc(w, chosen, i.target);
                set_pc(w, lanes & ~chosen, pc + 1);
                return;
            }
            pc = chosen ? i.target : pc + 1;
            if (!alone) {
                set_pc(w, lanes, pc);
                return;
            }
        } else {
            set_pc(w, chosen, pc);
            set_pc(w, lanes & ~chosen, pc + 1);
            if (i.kind == EXIT) { i.runs++; exit_lanes(c, w, chosen); }
            if (i.kind == BARRIER) { count(i, chosen); w.at_barrier |= chosen; }
            if (i.kind != COLLECTIVE) { return; }
            w.waiting |= chosen;
            if (chosen) { perform_collective(c, w, pc); }
            return;
        }
        if ((!alone && pc >= meet) || --budget <= 0) {
            set_pc(w, lanes, pc);
            return;
        }
    }
}
// Runs a warp until all its lanes wait for the block or have exited, or the budget is spent.
static void run_warp(Context& c, Warp& w, long budget) {
    c.warp = &w;
    c.registers = w.registers;
    c.first_thread = w.id * 32;
    while (budget > 0) {
        const u32 runnable = w.exist & ~w.exited & ~w.waiting & ~w.at_barrier;
        if (w.blocked || (!runnable && !w.waiting)) { return; }
        if (!runnable) {
            release(c, w);
            continue;
        }
        const int pc = choose_place(c, w, runnable);
        const u32 lanes = lanes_at(w, runnable, pc);
        int lowest = INT_MAX, above = INT_MAX;
        for (u32 left = runnable & ~lanes; left; left &= left - 1) {
            const int other = w.pc[__builtin_ctz(left)];
            lowest = std::min(lowest, other);
            if (other > pc) { above = std::min(above, other); }
        }
        const bool alone = lowest == INT_MAX;
        if (!alone && c.order == RANDOM) {
            budget = std::min(budget, (long)(random_number(c.seed) % 64) + 1);
        }
        run_lanes(c, w, pc, lanes, alone, c.order == FORWARD ? lowest : above, budget);
    }
}

// ----------------------------------------------------------------------------
// a block

static u32 special_value(const Context& c, u64 which, int warp, int lane) {
    if (which == LANE) { return lane; }
    const unsigned thread = warp * 32 + lane, axis = which / 4;
    const unsigned plane = c.block[0] * c.block[1];
    const unsigned x = thread % c.block[0], y = thread / c.block[0] % c.block[1];
    const unsigned tid[3] = { x, y, thread / plane };
    switch (which % 4) {
    case TID: return tid[axis];
    case NTID: return c.block[axis];
    case CTAID: return c.id[axis];
    default: return c.grid[axis];
    }
}
static void start_warp(Context& c, int id) {
    Warp& w = c.warps[id];
    const unsigned left = c.threads - id * 32;
    w.id = id;
    w.exited = w.waiting = w.at_barrier = 0;
    w.exist = left >= 32 ? ~0u : (1u << left) - 1;
    w.time = 1;
    w.blocked = false;
    w.wgmma = Products();
    memset(w.registers, 0xFF, c.kernel->register_bytes);
    std::fill(w.pc, w.pc + 32, 0);
    for (Lane& x : w.lane) {
        x.copies.clear();
        x.groups.clear();
        x.unfenced.clear();
    }
    for (const Preset& p : c.kernel->presets) {
        for (int lane = 0; lane < 32; lane++) {
            const u64 v = p.bytes ? p.value : special_value(c, p.value, id, lane);
            set_sized(w.registers, p.slot, p.bytes == 8 ? 8 : 4, lane, v);
        }
    }
}
// All warps have come to bar.sync, or have exited: lets them go on.
static void pass_barrier(Context& c) {
    int first = -1;
    bool gone = false;
    for (const Warp& w : c.warps) { gone |= w.done(); }
    for (Warp& w : c.warps) {
        if (w.done()) { continue; }
        c.warp = &w;
        c.first_thread = w.id * 32;
        const int lane = __builtin_ctz(w.at_barrier), pc = w.pc[lane];
        c.at = &c.kernel->code[pc];
        if (gone || w.exited) {
            fault(c, lane, "bar.sync", "threads of the block have exited, lanes %08x here",
                  w.exited);
        }
        if (lanes_at(w, w.at_barrier, pc) != w.at_barrier) {
            fault(c, lane, "bar.sync", "lanes of one warp wait at different instructions");
        }
        if (first >= 0 && pc != first) {
            fault(c, lane, "bar.sync", "warps wait at different instructions: lines %d and %d",
                  c.kernel->code[first].ptx_line, c.kernel->code[pc].ptx_line);
        }
        first = pc;
        for (u32 left = w.at_barrier; left; left &= left - 1) { w.pc[__builtin_ctz(left)]++; }
        w.at_barrier = 0;
    }
    c.time++;
}
static void run_block(Context& c) {
    c.block_began = ++c.time;
    memset(c.shared.data(), 0xFF, c.shared.size());
    std::fill(c.pending.begin(), c.pending.end(), 0);
    std::fill(c.written.begin(), c.written.end(), Written());
    std::fill(c.named, c.named + 16, NamedBarrier());
    c.begun.assign(c.warps.size() / 4 + 1, {});
    const int n = (int)c.warps.size();
    for (int k = 0; k < n; k++) { start_warp(c, k); }
    for (;;) {
        for (int k = 0; k < n; k++) {
            int which = c.order == REVERSE ? n - 1 - k : k;
            long budget = LONG_MAX;
            if (c.order == RANDOM) {
                which = (int)(random_number(c.seed) % n);
                budget = (long)(random_number(c.seed) % 400) + 1;
            }
            Warp& w = c.warps[which];
            if (!w.done() && !w.arrived() && !w.blocked) { run_warp(c, w, budget); }
        }
        auto all = [&](auto f) { return std::all_of(c.warps.begin(), c.warps.end(), f); };
        if (all([](const Warp& w) { return w.done(); })) { break; }
        if (all([](const Warp& w) { return w.done() || w.arrived(); })) { pass_barrier(c); }
        else if (all([](const Warp& w) { return w.done() || w.arrived() || w.blocked; })) {
            deadlock(c, *std::find_if(c.warps.begin(), c.warps.end(),
                                      [](const Warp& w) { return w.blocked; }));
        }
    }
    products_check(c);
    totals.blocks++;
}

// ----------------------------------------------------------------------------
// a launch

static void check_launch(const Context& c, const Launch& x) {
    const Kernel& k = *c.kernel;
    const size_t all = x.shared + k.statics, plain = 48 << 10;
    const size_t most = (k.has_wgmma ? 227 : 99) << 10; // of sm_90; of the least card that we run on
    if (k.most_threads && c.threads > k.most_threads) {
        fault(c, 0, "launch", "%u threads, compiled for at most %u", c.threads, k.most_threads);
    }
    if (!k.dynamic && x.shared) {
        fault(c, 0, "launch", "%zu bytes of dynamic shared memory, the kernel uses none", x.shared);
    }
    if (all > most || (x.asked < 0 ? all > plain : (long)x.shared > x.asked)) {
        fault(c, 0, "launch", "%zu dynamic and %zu static bytes of shared memory, asked for %ld",
              x.shared, k.statics, x.asked);
    }
}
// Copies the arguments to where the PTX expects them.
static std::vector<char> place_arguments(const Context& c, const Launch& x) {
    const std::vector<Parameter>& params = c.kernel->params;
    std::vector<char> out(c.kernel->param_bytes + 16, (char)0xFF);
    if (x.arguments.size() != params.size()) {
        fault(c, 0, "params", "%zu arguments, the PTX has %zu", x.arguments.size(), params.size());
    }
    size_t at = 0;
    for (size_t k = 0; k < std::min(x.arguments.size(), params.size()); k++) {
        const Argument& a = x.arguments[k];
        const Parameter& p = params[k];
        at = (at + a.alignment - 1) / a.alignment * a.alignment;
        if (a.bytes != p.bytes || at != p.at) {
            fault(c, 0, "params", "argument %zu: %zu bytes at %zu, the PTX has %zu at %zu", k,
                  a.bytes, at, p.bytes, p.at);
        }
        memcpy(&out[p.at], a.p, std::min(a.bytes, p.bytes));
        at += a.bytes;
    }
    return out;
}
static void make_room(Context& c, const Launch& x) {
    static std::vector<char> registers;
    const Kernel& k = *c.kernel;
    const size_t n = (c.threads + 31) / 32, each = (k.register_bytes + 255) / 256 * 256;
    c.warps.resize(n);
    if (registers.size() < each * n + 256) { registers.resize(each * n + 256); }
    char* base = (char*)(((uintptr_t)registers.data() + 255) / 256 * 256);
    for (size_t w = 0; w < n; w++) { c.warps[w].registers = base + w * each; }
    c.memory.clear();
    for (const Allocation& m : x.memory) { c.memory.push_back(Region{m.p, m.bytes, {}}); }
    c.last_region = c.last_variable = 0;
    c.local.assign(k.local_bytes * n * 32, (char)0xFF);
    c.dynamic_bytes = (u32)x.shared;
    c.shared.assign(k.shared_end + x.shared + 64, (char)0xFF);
    c.shared_shadow.assign(c.shared.size() / 2 + 1, Shadow());
    c.pending.assign(c.shared.size() / 2 + 1, 0);
    c.written.assign(k.has_wgmma ? c.shared.size() / 16 + 1 : 0, Written());
}
void launch(const Launch& x, Order order) {
    load();
    report_at_exit();
    const auto found = kernels.find(x.kernel);
    if (found == kernels.end()) { die("the PTX has no kernel %s", x.kernel); }
    static Context c;
    c.kernel = &found->second;
    c.at = nullptr;
    c.kernel->launches++;
    totals.launches++;
    std::copy(x.grid, x.grid + 3, c.grid);
    std::copy(x.block, x.block + 3, c.block);
    c.threads = x.block[0] * x.block[1] * x.block[2];
    c.order = order;
    c.seed = x.seed | 1;
    check_launch(c, x);
    const std::vector<char> params = place_arguments(c, x);
    c.params = params.data();
    make_room(c, x);
    c.launch_began = ++c.time;
    const size_t blocks = (size_t)x.grid[0] * x.grid[1] * x.grid[2];
    for (size_t b = 0; b < blocks; b++) {
        const size_t id = order == REVERSE ? blocks - 1 - b : b;
        c.id[0] = (unsigned)(id % x.grid[0]);
        c.id[1] = (unsigned)(id / x.grid[0] % x.grid[1]);
        c.id[2] = (unsigned)(id / x.grid[0] / x.grid[1]);
        run_block(c);
    }
    c.memory.clear();
}
} // namespace ptx
