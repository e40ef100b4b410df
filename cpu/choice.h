/*
choice.h -- which kernel of the table multiplies. A processor may have an instruction that is slow
there: vdpbf16ps of some takes longer than widening bf16 and multiplying floats. So each kernel that
can run is timed, once for a kind of processor, and the answer is kept.

    choice_settle          settles the kernel of this process: the one that --product names, the
                           one that was kept, or the fastest of those that it times now
    choice_of              the rule: the last row of the table, unless another is clearly faster
    choice_keep            takes the kernel of a run that goes on

In bf16 the bits of a run depend on the kernel, so the answer must not vary from run to run: if two
are nearly as fast, the order of the table decides, and an answer that was kept is not timed again.
It is kept in $XDG_CACHE_HOME/train_sink or ~/.cache/train_sink, one file per kind of processor. If
neither can be written, the kernels are timed every time. No file of another is ever changed.
*/
#ifndef CPU_CHOICE_H
#define CPU_CHOICE_H
#include "product.h"

namespace cpu {
struct Choice {
    std::string name;               // of the kernel
    double gflops = 0;              // on one thread; 0: not timed
    std::string why;
    bool forced = false;            // by --product
};

// Returns the row to take, from the GFLOP/s of all rows, 0 for those that were not timed.
int choice_of(const std::vector<double>& gflops);

// Times every kernel for factors in bf16 or in float, the best of some calls: GFLOP/s. 0 for those
// that do not have such factors or cannot run, and for `any` where another can. threads: 1, or 0
// for all
std::vector<double> kernels_timed(bool bf16, int threads, long M, long N, long K);

// Names the processor and its microcode, from the text of /proc/cpuinfo.
std::string processor_of(const std::string& cpuinfo);

// Settles the kernel for factors in bf16 or in float; name: that kernel and no other, "" for the
// fastest. Dies if the name is none of this processor's.
void choice_settle(bool bf16, const std::string& name);

// Takes the kernel of this name, as a run had it. Returns false if it cannot run here.
bool choice_keep(bool bf16, const std::string& name);

// Returns what was settled.
const Choice& choice();
} // namespace cpu
#endif // CPU_CHOICE_H
