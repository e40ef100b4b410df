/*
choice.h -- which kernel of the table multiplies: the last one that this processor has, but where a
row of PROCESSORS knows better. A processor may have an instruction that is slow there: vdpbf16ps of
some takes longer than widening bf16 and multiplying floats.

In bf16 the bits of a run depend on the kernel, so no clock decides: one processor always takes the
same one, and a run that goes on keeps its own. `bench --products` times them all.
*/
#ifndef CPU_CHOICE_H
#define CPU_CHOICE_H
#include "product.h"

namespace cpu {
// Returns the processor's vendor as CPUID spells it: GenuineIntel, AuthenticAMD; "" if it has none.
std::string processor_vendor();

// Returns the row to take for factors in bf16 or in float. has: which rows run there
int choice_of(const std::string& vendor, bool bf16, const std::vector<bool>& has);

// Times every kernel for factors in bf16 or in float, the best of some calls: GFLOP/s. 0 for those
// that do not have such factors or cannot run, and for `any` where another can.
std::vector<double> kernels_timed(bool bf16, long M, long N, long K);

// Settles the kernel for factors in bf16 or in float; name: that kernel and no other, "" for the
// one of the table. Dies if the name is none of this processor's.
void choice_settle(bool bf16, const std::string& name);

// Takes the kernel of this name, as a run had it. Returns false if it cannot run here.
bool choice_keep(bool bf16, const std::string& name);

// Returns what was settled.
const ProductChoice& choice();
} // namespace cpu
#endif // CPU_CHOICE_H
