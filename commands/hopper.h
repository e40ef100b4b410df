/*
hopper.h -- settles --hopper: which kernels compute attention.
*/
#ifndef HOPPER_H
#define HOPPER_H
#include "../core/variant.h"
#include "../flags.h"

// Takes Hopper's kernels if the flag is 1 and there are any; without them the flag becomes 0. Dies
// if they `must` be there: the user has asked for them, or the run has had them.
inline void hopper_settle(Flags* f, const Arch& c, bool must) {
    const std::string lacks = variant::hopper_lacks(c.NH, c.KV, c.HS);
    if (f->hopper && must && !lacks.empty()) {
        die("--hopper 1: " + lacks, "--hopper 0 takes the kernels of other cards");
    }
    f->hopper = f->hopper && lacks.empty();
    ops::use_hopper(f->hopper);
}
#endif // HOPPER_H
