// dev/ptx/report.h -- what ran, what of it, and what was wrong.
#ifndef PTX_REPORT_H
#define PTX_REPORT_H

namespace ptx {
struct Totals {
    long launches = 0;
    long blocks = 0;
    unsigned long long warp_instructions = 0;
    unsigned long long thread_instructions = 0;
};
extern Totals totals;
// Has the report printed when the program ends.
void report_at_exit();
} // namespace ptx
#endif
