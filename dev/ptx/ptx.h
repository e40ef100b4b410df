// dev/ptx/ptx.h -- what the emulator sees of the PTX interpreter. Addresses on the device are
// addresses of the host.
#ifndef PTX_H
#define PTX_H
#include <stddef.h>
#include <stdint.h>
#include <vector>

namespace ptx {
struct Allocation {
    char* p;
    size_t bytes;
};
struct Argument {
    const void* p;
    size_t bytes;
    size_t alignment;
};
struct Launch {
    const char* kernel;             // its mangled name
    unsigned grid[3];
    unsigned block[3];
    size_t shared;                  // bytes of dynamic shared memory
    long asked;                     // what cudaFuncSetAttribute allowed, -1: nothing
    std::vector<Argument> arguments;
    std::vector<Allocation> memory; // all that a kernel may touch
    uint64_t seed;
};
enum Order { FORWARD, REVERSE, RANDOM };    // of threads and blocks

// Runs a kernel of the PTX file that the environment variable PTX names, to its end.
void launch(const Launch& x, Order order);

// Adds one comparison with the emulator's result to the report.
struct Comparison {
    long words;         // compared
    long different;     // in a bit at least
    long wrong;         // by more than rounding explains
    double worst;       // of the differences, over the largest number there
};
void note(const char* kernel, const Comparison& c);
} // namespace ptx
#endif
