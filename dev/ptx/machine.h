// dev/ptx/machine.h -- what the text of a kernel becomes, and the state of the block that runs it.
// Start with Instruction: parse.cpp and decode.cpp fill it, machine.cpp runs it, arithmetic.cpp,
// memory.cpp, warp.cpp and wgmma.cpp say what each one does.
#ifndef PTX_MACHINE_H
#define PTX_MACHINE_H
#include "ptx.h"
#include <string.h>
#include <map>
#include <string>
#include <vector>

namespace ptx {
typedef uint8_t u8;
typedef uint16_t u16;
typedef uint32_t u32;
typedef uint64_t u64;
typedef int16_t s16;
typedef int32_t s32;
typedef int64_t s64;

// ----------------------------------------------------------------------------
// a kernel

struct Context;
struct Instruction;
// Performs an instruction for the lanes of a mask.
typedef void (*Perform)(Context&, const Instruction&, u32 lanes);

enum Kind { NORMAL, BRANCH, EXIT, BARRIER, COLLECTIVE };
enum Space { GENERIC, GLOBAL, SHARED, PARAM, LOCAL };
enum : u32 { NO_SLOT = ~0u };
struct Place {
    int file = 0;
    int line = 0;
};
struct Instruction {
    Perform perform = nullptr;
    Kind kind = NORMAL;
    bool aligned = false;       // mma, ldmatrix: all 32 lanes must come
    u32 operand[20] = {};       // slots of registers, the destination first
    int operands = 0;
    int writes = 0, used = 0;   // of operand[]: slots that it writes, and slots in all
    bool moves = false;         // it only copies a register
    std::vector<u32> list;      // wgmma: slots of its sums, then of its left side if in registers
    int predicate = -1;         // the slot of @p, -1: always
    bool negated = false;       // @!p
    int target = -1;            // of a branch
    int mask = -1;              // the slot of a collective's member mask
    int immediate = 0;
    // memory
    Space space = GENERIC;
    int element = 0;            // bytes of one element in memory
    int count = 1;              // elements
    int register_bytes = 0;
    bool is_signed = false;
    bool result_signed = false; // cvt
    int base = -1;              // the slot of the address, -1: the offset is all
    bool base64 = false;
    s64 offset = 0;
    s64 source_offset = 0;      // cp.async
    // for reports
    int ptx_line = 0;
    Place at;                   // in the source
    Place from;                 // where that was inlined
    std::string text;
    mutable u64 runs = 0;
};
struct Variable {               // of shared memory
    std::string name;
    u32 at;
    size_t bytes;
};
struct Parameter {
    std::string name;
    size_t at;
    size_t bytes;
    size_t alignment;
};
// A register that a block finds filled: a constant (bytes 4 or 8), or a special register (bytes 0).
struct Preset {
    u32 slot;
    int bytes;
    u64 value;                  // or Special
};
enum Special { TID, NTID, CTAID, NCTAID, LANE = 16 }; // the first four and 4 times the axis
struct Kernel {
    std::string name;
    std::vector<Instruction> code;
    std::vector<Parameter> params;
    size_t param_bytes = 0;
    unsigned most_threads = 0;  // .maxntid
    bool has_wgmma = false;     // or what goes with it
    std::vector<Variable> variables;
    size_t statics = 0;         // bytes of static shared memory on a GPU
    u32 dynamic = 0;            // where dynamic shared memory starts, 0: there is none
    size_t shared_end = 0;
    size_t local_bytes = 0;     // of a thread
    size_t register_bytes = 0;  // of a warp
    std::vector<Preset> presets;
    long launches = 0;
    Comparison compared = {};
};
extern std::map<std::string, Kernel> kernels;
extern std::map<int, std::string> files;
// Reads the file of PTX that the environment names, once.
void load();
// Fills in what an instruction does and with which registers.
struct Names;
void decode(Names& names, Instruction& i, const std::string& opcode, const std::string& rest);

// ----------------------------------------------------------------------------
// a block that runs

const u64 SHARED_WINDOW = 0xFFFF000000000000ull;    // generic addresses of shared memory
enum { LOCAL_START = 4096 };                        // the first local address of each thread
// Who touched two bytes last, and when: time goes on at each __syncthreads, a warp's own time at
// each __syncwarp.
struct Shadow {
    u32 write_time = 0;
    u32 write_warp_time = 0;
    u32 read_time = 0;
    u32 read_warp_time = 0;
    u32 read_warps = 0;         // a bit each
    u32 read_lanes = 0;         // of the last warp that read
    u32 read_by_other = 0;      // the last time of a read by another block
    u16 writer = 0;             // thread
    u16 reader = 0;             // warp
};
struct Region {                 // an allocation
    char* p;
    size_t bytes;
    std::vector<Shadow> shadow;
};
struct Copy {                   // a cp.async under way
    u32 to;
    const char* from;
    u32 bytes;
    u32 valid;                  // the rest becomes 0
};
struct Lane {
    std::vector<Copy> copies;
    std::vector<size_t> groups; // how many copies were asked for when each group was closed
    std::vector<u32> unfenced;  // 16 bytes each: what it has written since its last proxy fence
};
// Of 16 bytes of shared memory: whether wgmma, which goes by another proxy, may see what a thread
// has written there.
enum Phase : u8 { SEEN, WRITTEN, FENCED };
struct Written {
    Phase phase = SEEN;
    u16 by = 0;                 // thread
    u32 fenced = 0;             // when
};
// A wgmma under way: what it reads, and which of the warp's sums it adds to.
struct Product {
    const Instruction* at;
    u64 a, b;                   // descriptions
    bool adds;
    long group;
    u32 began;
    size_t sum;
    u32 left[4][32];            // a left side in registers, as it was
};
// Sums under way: the registers hold marks, NaN that say which sum belongs there.
struct Sum {
    u32 mark;
    const Instruction* home;    // whose registers they are
    int products;               // still to come
    std::vector<float> now;     // of each lane, one behind the other
};
struct Products {
    bool fenced = false;        // since the last wait
    std::vector<bool> late;     // of each register, whether it was written since the last fence
    std::vector<bool> left;     // whether it is, or is a copy of, a left side that is worked on
    long groups = 0;            // closed ones
    size_t begun = 0;
    std::vector<Product> products;
    std::map<size_t, Sum> sums;
};
struct Warp {
    char* registers = nullptr;
    int id = 0;
    u32 exist = 0;              // lanes, a bit each, as all that follows
    u32 exited = 0;
    u32 waiting = 0;            // at a collective instruction
    u32 at_barrier = 0;
    bool blocked = false;       // at a barrier with a number
    int pc[32] = {};
    u32 time = 0;
    Lane lane[32];
    Products wgmma;
    bool done() const { return exited == exist; }
    bool arrived() const { return at_barrier && (at_barrier | exited) == exist; }
};
struct NamedBarrier {
    u32 threads = 0;            // it waits for
    u32 came = 0;               // warps, a bit each
    u32 wait = 0;               // those that go on when it is full
};
struct Context {
    Kernel* kernel = nullptr;
    Warp* warp = nullptr;
    char* registers = nullptr;  // of that warp
    unsigned first_thread = 0;  // of that warp
    unsigned block[3];          // threads
    unsigned grid[3];           // blocks
    unsigned id[3];             // of this block
    unsigned threads;
    std::vector<Warp> warps;
    const char* params;
    std::vector<Region> memory;
    size_t last_region = 0;     // where the last access was found
    std::vector<char> shared;
    std::vector<Shadow> shared_shadow;
    std::vector<u16> pending;   // for two bytes: 1 + the thread whose copy is under way, or 0
    std::vector<Written> written;           // for 16 bytes
    std::vector<std::vector<u64>> begun;    // the products of each four warps
    NamedBarrier named[16];
    u32 dynamic_bytes = 0;
    size_t last_variable = 0;
    std::vector<char> local;
    u32 time = 1;
    u32 launch_began = 0;
    u32 block_began = 0;
    Order order;
    u64 seed;
    const Instruction* at = nullptr;
};
// Reports what a GPU would do wrong, or not notice.
void fault(const Context& c, int lane, const char* kind, const char* format, ...)
    __attribute__((format(printf, 4, 5)));
[[noreturn]] void die(const char* format, ...) __attribute__((format(printf, 1, 2)));
// Says which instruction of which thread that is.
std::string where(const Context& c, int lane);
extern long faults;

// ----------------------------------------------------------------------------
// registers: 32 lanes of 4 bytes, or of 8

template <class T> inline T get(const char* registers, u32 slot, int lane) {
    if constexpr (sizeof(T) >= 4) { return ((const T*)(registers + slot))[lane]; }
    else { return (T)((const u32*)(registers + slot))[lane]; }
}
template <class T> inline void set(char* registers, u32 slot, int lane, T v) {
    if constexpr (sizeof(T) >= 4) { ((T*)(registers + slot))[lane] = v; }
    else { ((u32*)(registers + slot))[lane] = (u16)v; }
}
inline u64 get_sized(const char* registers, u32 slot, int bytes, int lane) {
    return bytes == 8 ? get<u64>(registers, slot, lane) : get<u32>(registers, slot, lane);
}
inline void set_sized(char* registers, u32 slot, int bytes, int lane, u64 v) {
    if (bytes == 8) { set<u64>(registers, slot, lane, v); }
    else { set<u32>(registers, slot, lane, bytes == 2 ? (u32)(u16)v : (u32)v); }
}
template <class F>
inline __attribute__((always_inline)) void for_lanes(u32 mask, F f) {
    if (mask == ~0u) {
#pragma GCC ivdep
        for (int lane = 0; lane < 32; lane++) { f(lane); }
        return;
    }
    for (; mask; mask &= mask - 1) { f(__builtin_ctz(mask)); }
}
inline float float_of(u32 bits) {
    float f;
    memcpy(&f, &bits, 4);
    return f;
}
inline u32 bits_of(float f) {
    u32 bits;
    memcpy(&bits, &f, 4);
    return bits;
}
// Reads an integer of some bytes, with its sign where it has one.
inline u64 extend(const char* p, int bytes, bool is_signed) {
    u64 v = 0;
    memcpy(&v, p, bytes);
    if (!is_signed || bytes == 8) { return v; }
    const int unused = 64 - 8 * bytes;
    return (u64)((s64)(v << unused) >> unused);
}

// ----------------------------------------------------------------------------
// what instructions do

// Looks up an arithmetic instruction by the parts of its name ("mul", "wide", "s32"); null if it is
// unknown.
Perform arithmetic(const std::vector<std::string>& parts);
Perform conversion(const std::vector<std::string>& parts);
void convert_integers(Context& c, const Instruction& i, u32 lanes);
void split_register(Context& c, const Instruction& i, u32 lanes);   // mov {a, b}, r
void join_registers(Context& c, const Instruction& i, u32 lanes);   // mov r, {a, b}
void load_memory(Context& c, const Instruction& i, u32 lanes);
void store_memory(Context& c, const Instruction& i, u32 lanes);
void copy_async(Context& c, const Instruction& i, u32 lanes);
void copy_commit(Context& c, const Instruction& i, u32 lanes);
void copy_wait(Context& c, const Instruction& i, u32 lanes);
void multiply_matrices(Context& c, const Instruction& i, u32 lanes);
void load_matrix(Context& c, const Instruction& i, u32 lanes);
enum Shuffle { BUTTERFLY, INDEX, UP, DOWN };
void shuffle(Context& c, const Instruction& i, u32 lanes);
void ballot(Context& c, const Instruction& i, u32 lanes);
void sync_warp(Context& c, const Instruction& i, u32 lanes);
void transpose_matrix(Context& c, const Instruction& i, u32 lanes); // movmatrix
void named_barrier(Context& c, const Instruction& i, u32 lanes);    // immediate: whether it waits
void fence_proxy(Context& c, const Instruction& i, u32 lanes);
void products_fence(Context& c, const Instruction& i, u32 lanes);
void products_commit(Context& c, const Instruction& i, u32 lanes);
void products_wait(Context& c, const Instruction& i, u32 lanes);    // immediate: groups that may stay
void products_begin(Context& c, const Instruction& i, u32 lanes);
// Notes, before an instruction is performed, what it does to registers that products use.
void products_watch(Context& c, const Instruction& i);
// Checks that no product is under way when a thread exits, and that four warps began the same when
// the block has ended.
void products_exit(Context& c, int lane);
void products_check(Context& c);
// Finds shared memory for an access, checked for bounds, alignment, races and unwritten bytes; null
// after a fault.
char* shared_at(Context& c, u32 address, size_t bytes, int lane, bool write);
// Finds 16 bytes that a product reads. began: when it did, or 0: it begins now.
const u16* product_at(Context& c, u32 address, u32 began);
} // namespace ptx
#endif
