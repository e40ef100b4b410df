// dev/ptx/memory.cpp -- loads, stores and cp.async. Every access is checked: bounds of the
// allocation or the shared variable, alignment, races, shared memory that was never written, copies
// that were not waited for.
#include "machine.h"
#include <algorithm>

namespace ptx {
// ----------------------------------------------------------------------------
// races. Two accesses to the same two bytes, one of them a write, need a barrier between: of the
// block, or of the warp if both threads are in it. Blocks have no barrier between them

static void check_race(Context& c, const Shadow& x, int lane, bool write, const char* memory,
                       const void* address) {
    const unsigned thread = c.first_thread + lane;
    const u32 warp = c.warp->id;
    const char* does = write ? "writes" : "reads";
    const bool ordered_in_warp = x.writer / 32u == warp && x.write_warp_time < c.warp->time;
    if (x.write_time == c.time && x.writer != thread && !ordered_in_warp) {
        fault(c, lane, "race", "%s %s address %p that thread %u wrote, no barrier between", does,
              memory, address, x.writer);
    }
    if (!write || x.read_time != c.time) { return; }
    if (x.read_warps & ~(1u << warp)) {
        fault(c, lane, "race", "writes %s address %p that warps %x read, no barrier between",
              memory, address, x.read_warps);
    } else if (x.read_warp_time == c.warp->time && x.read_lanes & ~(1u << lane)) {
        fault(c, lane, "race",
              "writes %s address %p that lanes %x of its warp read, no __syncwarp between", memory,
              address, x.read_lanes);
    }
}
static void check_blocks(Context& c, const Shadow& x, int lane, bool write, const void* address) {
    auto other = [&](u32 time) { return time >= c.launch_began && time < c.block_began; };
    if (other(x.write_time)) {
        fault(c, lane, "race between blocks", "%s %p, which another block wrote",
              write ? "writes" : "reads", address);
    }
    if (write && (other(x.read_time) || x.read_by_other >= c.launch_began)) {
        fault(c, lane, "race between blocks", "writes %p, which another block read", address);
    }
}
static void remember_write(const Context& c, Shadow& x, int lane) {
    x.write_time = c.time;
    x.write_warp_time = c.warp->time;
    x.writer = (u16)(c.first_thread + lane);
}
static void remember_read(const Context& c, Shadow& x, int lane) {
    const u16 warp = (u16)c.warp->id;
    if (x.read_time != c.time) {
        if (x.read_time >= c.launch_began && x.read_time < c.block_began) {
            x.read_by_other = x.read_time;
        }
        x.read_time = c.time;
        x.read_warps = 0;
        x.reader = 0xFFFF;
    }
    if (x.reader != warp || x.read_warp_time != c.warp->time) {
        x.reader = warp;
        x.read_warp_time = c.warp->time;
        x.read_lanes = 0;
    }
    x.read_warps |= 1u << warp;
    x.read_lanes |= 1u << lane;
}
static void access(Context& c, Shadow* shadow, size_t bytes, int lane, bool write, bool global,
                   const void* address) {
    for (size_t i = 0; i < (bytes + 1) / 2; i++) {
        Shadow& x = shadow[i];
        if (global) { check_blocks(c, x, lane, write, address); }
        check_race(c, x, lane, write, global ? "global" : "shared", address);
        if (write) { remember_write(c, x, lane); }
        else { remember_read(c, x, lane); }
    }
}

// ----------------------------------------------------------------------------
// where an access goes, or null after a fault

static bool aligned(Context& c, const char* memory, u64 address, size_t bytes, int lane) {
    if (address % bytes == 0) { return true; }
    fault(c, lane, "misaligned", "%s address %#llx of %zu bytes", memory,
          (unsigned long long)address, bytes);
    return false;
}
static char* global_at(Context& c, u64 address, size_t bytes, int lane, bool write) {
    const size_t n = c.memory.size();
    for (size_t k = 0; k < n; k++) {
        const size_t at = (c.last_region + k) % n;
        Region& r = c.memory[at];
        if (address < (u64)r.p || address + bytes > (u64)r.p + r.bytes) { continue; }
        c.last_region = at;
        if (r.shadow.empty()) { r.shadow.resize(r.bytes / 2 + 1); }
        const size_t offset = address - (u64)r.p;
        access(c, &r.shadow[offset / 2], bytes, lane, write, true, (void*)address);
        return (char*)address;
    }
    const Region* nearest = nullptr;
    auto distance = [&](const Region* r) { return std::abs((s64)(address - (u64)r->p)); };
    for (const Region& r : c.memory) {
        if (!nearest || distance(&r) < distance(nearest)) { nearest = &r; }
    }
    fault(c, lane, "out of bounds",
          "global %s of %zu bytes at %p, %lld bytes from the start of an allocation of %zu",
          write ? "write" : "read", bytes, (void*)address,
          nearest ? (long long)(address - (u64)nearest->p) : 0, nearest ? nearest->bytes : 0);
    return nullptr;
}
// Remembers that wgmma does not yet see what the lane wrote.
static void by_generic_proxy(Context& c, u32 address, size_t bytes, int lane) {
    if (!c.kernel->has_wgmma) { return; }
    for (u32 k = address / 16; k <= (address + bytes - 1) / 16; k++) {
        c.written[k] = Written{WRITTEN, (u16)(c.first_thread + lane), 0};
        c.warp->lane[lane].unfenced.push_back(k);
    }
}
static void check_written(Context& c, const Variable& v, u32 address, size_t bytes, int lane,
                          bool write) {
    for (u32 k = address / 2; k < (address + bytes + 1) / 2; k++) {
        if (!write && c.shared_shadow[k].write_time < c.block_began) {
            fault(c, lane, "uninitialized", "shared address %u (%s+%u) was never written", address,
                  v.name.c_str(), address - v.at);
            return;
        }
        if (c.pending[k]) {
            fault(c, lane, "cp.async", "%s shared address %u (%s+%u), where a copy of thread %u "
                  "has not been waited for", write ? "writes" : "reads", address, v.name.c_str(),
                  address - v.at, c.pending[k] - 1);
            return;
        }
    }
}
char* shared_at(Context& c, u32 address, size_t bytes, int lane, bool write) {
    if (!aligned(c, "shared", address, bytes, lane)) { return nullptr; }
    const std::vector<Variable>& all = c.kernel->variables;
    for (size_t k = 0; k < all.size(); k++) {
        const size_t at = (c.last_variable + k) % all.size();
        const Variable& v = all[at];
        const bool dynamic = c.kernel->dynamic && v.at == c.kernel->dynamic;
        const size_t end = v.at + (dynamic ? c.dynamic_bytes : v.bytes);
        if (address < v.at || address + bytes > end) { continue; }
        c.last_variable = at;
        check_written(c, v, address, bytes, lane, write);
        access(c, &c.shared_shadow[address / 2], bytes, lane, write, false, (void*)(u64)address);
        if (write) { by_generic_proxy(c, address, bytes, lane); }
        return &c.shared[address];
    }
    fault(c, lane, "out of bounds",
          "shared %s of %zu bytes at %u; dynamic memory is [%u, %u)", write ? "write" : "read",
          bytes, address, c.kernel->dynamic, c.kernel->dynamic + c.dynamic_bytes);
    return nullptr;
}
const u16* product_at(Context& c, u32 address, u32 began) {
    const u32 first = c.kernel->dynamic;
    if (!first || address < first || address + 16 > first + c.dynamic_bytes) {
        fault(c, 0, "wgmma", "reads shared memory at %d, of %u bytes", (int)(address - first),
              c.dynamic_bytes);
        return nullptr;
    }
    const Written& w = c.written[address / 16];
    const int warp = c.warp->id;
    for (u32 k = address / 2; k < address / 2 + 8; k++) {
        Shadow& x = c.shared_shadow[k];
        if (c.pending[k]) {
            fault(c, 0, "wgmma", began ? "a cp.async overwrites what wgmma still reads (thread %d's)"
                  : "reads what a cp.async has not brought yet (thread %d's)", c.pending[k] - 1);
            return nullptr;
        }
        if (began && x.write_time > began) {
            fault(c, 0, "wgmma", "thread %d overwrites what wgmma still reads", x.writer);
            return nullptr;
        }
        if (x.write_time < c.block_began) {
            fault(c, 0, "uninitialized", "shared address %u was never written", address);
            return nullptr;
        }
        if (began) { continue; }
        check_race(c, x, 0, false, "shared", (void*)(u64)address);
        remember_read(c, x, 0);
    }
    if (!began && w.phase == WRITTEN) {
        fault(c, 0, "wgmma", "reads what thread %d wrote, and no fence.proxy.async followed", w.by);
        return nullptr;
    }
    if (!began && w.phase == FENCED && w.fenced == c.time && w.by / 32 != warp) {
        fault(c, 0, "wgmma", "reads what thread %d wrote and fenced, and no barrier followed", w.by);
        return nullptr;
    }
    return (const u16*)&c.shared[address];
}
static char* local_at(Context& c, u64 address, size_t bytes, int lane) {
    if (!aligned(c, "local", address, bytes, lane)) { return nullptr; }
    const size_t each = c.kernel->local_bytes;
    if (address < LOCAL_START || address + bytes > LOCAL_START + each) {
        fault(c, lane, "out of bounds", "local address %llu", (unsigned long long)address);
        return nullptr;
    }
    return &c.local[(c.first_thread + lane) * each + address - LOCAL_START];
}
static char* parameter_at(Context& c, u64 address, size_t bytes, int lane) {
    if (!aligned(c, "parameter", address, bytes, lane)) { return nullptr; }
    if (address + bytes > c.kernel->param_bytes) {
        fault(c, lane, "out of bounds", "parameters at %llu", (unsigned long long)address);
        return nullptr;
    }
    return (char*)c.params + address;
}
static char* memory_at(Context& c, const Instruction& i, int lane, size_t bytes, bool write) {
    u64 address = i.offset;
    if (i.base >= 0) { address += get_sized(c.registers, i.base, i.base64 ? 8 : 4, lane); }
    if (i.space == PARAM) { return parameter_at(c, address, bytes, lane); }
    if (i.space == SHARED) { return shared_at(c, (u32)address, bytes, lane, write); }
    if (i.space == LOCAL) { return local_at(c, address, bytes, lane); }
    if (i.space == GENERIC && address >= SHARED_WINDOW) {
        return shared_at(c, (u32)(address - SHARED_WINDOW), bytes, lane, write);
    }
    if (!aligned(c, "global", address, bytes, lane)) { return nullptr; }
    return global_at(c, address, bytes, lane, write);
}

// ----------------------------------------------------------------------------
// the instructions

void load_memory(Context& c, const Instruction& i, u32 lanes) {
    const size_t bytes = (size_t)i.element * i.count;
    for (; lanes; lanes &= lanes - 1) {
        const int lane = __builtin_ctz(lanes);
        const char* p = memory_at(c, i, lane, bytes, false);
        for (int k = 0; k < i.count; k++) {
            const u64 v = p ? extend(p + k * i.element, i.element, i.is_signed) : ~0ull;
            set_sized(c.registers, i.operand[k], i.register_bytes, lane, v);
        }
    }
}
void store_memory(Context& c, const Instruction& i, u32 lanes) {
    const size_t bytes = (size_t)i.element * i.count;
    for (; lanes; lanes &= lanes - 1) {
        const int lane = __builtin_ctz(lanes);
        char* p = memory_at(c, i, lane, bytes, true);
        for (int k = 0; p && k < i.count; k++) {
            const u64 v = get_sized(c.registers, i.operand[k], i.register_bytes, lane);
            memcpy(p + k * i.element, &v, i.element);
        }
    }
}
// operands: the address in shared memory, that in global memory, and the bytes that are valid if
// fewer. The destination is NaN until a wait brings the data
void copy_async(Context& c, const Instruction& i, u32 lanes) {
    const u32 bytes = i.immediate;
    for (; lanes; lanes &= lanes - 1) {
        const int lane = __builtin_ctz(lanes);
        const u32 to = get<u32>(c.registers, i.operand[0], lane) + (u32)i.offset;
        const u64 from = get<u64>(c.registers, i.operand[1], lane) + i.source_offset;
        u32 valid = i.operands > 2 ? get<u32>(c.registers, i.operand[2], lane) : bytes;
        if (valid > bytes) {
            fault(c, lane, "cp.async", "source size %u of %u", valid, bytes);
            valid = bytes;
        }
        aligned(c, "cp.async from", from, bytes, lane);
        if (valid && !global_at(c, from, valid, lane, false)) { valid = 0; }
        char* p = shared_at(c, to, bytes, lane, true);
        if (!p) { continue; }
        memset(p, 0xFF, bytes);
        const u16 owner = (u16)(c.first_thread + lane + 1);
        std::fill(&c.pending[to / 2], &c.pending[(to + bytes) / 2], owner);
        c.warp->lane[lane].copies.push_back(Copy{to, (const char*)from, bytes, valid});
    }
}
void copy_commit(Context& c, const Instruction&, u32 lanes) {
    for (; lanes; lanes &= lanes - 1) {
        Lane& x = c.warp->lane[__builtin_ctz(lanes)];
        x.groups.push_back(x.copies.size());
    }
}
static void copy_arrives(Context& c, const Copy& x, int lane) {
    memcpy(&c.shared[x.to], x.from, x.valid);
    memset(&c.shared[x.to + x.valid], 0, x.bytes - x.valid);
    for (u32 k = x.to / 2; k < (x.to + x.bytes) / 2; k++) {
        c.pending[k] = 0;
        remember_write(c, c.shared_shadow[k], lane);
    }
    by_generic_proxy(c, x.to, x.bytes, lane);
}
// immediate: groups that may stay under way; -1: none, nor what no group has
void copy_wait(Context& c, const Instruction& i, u32 lanes) {
    for (; lanes; lanes &= lanes - 1) {
        const int lane = __builtin_ctz(lanes);
        Lane& x = c.warp->lane[lane];
        size_t copies = 0, groups = 0;
        if (i.immediate < 0) {
            copies = x.copies.size();
            groups = x.groups.size();
        } else if ((size_t)i.immediate < x.groups.size()) {
            groups = x.groups.size() - i.immediate;
            copies = x.groups[groups - 1];
        }
        for (size_t k = 0; k < copies; k++) { copy_arrives(c, x.copies[k], lane); }
        x.copies.erase(x.copies.begin(), x.copies.begin() + copies);
        x.groups.erase(x.groups.begin(), x.groups.begin() + groups);
        for (size_t& end : x.groups) { end -= copies; }
    }
}
} // namespace ptx
