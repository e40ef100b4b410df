/*
hopper.h -- settles --hopper: which kernels compute attention.
*/
#ifndef HOPPER_H
#define HOPPER_H
#include "../core/variant.h"
#include "../core/dist.h"
#include "../flags.h"
#include "../log.h"

// Lets Hopper's kernels be checked, in another process, unless the flag is 0, or was 0 in the run
// that --resume continues. Has to come before this process takes the GPU.
inline void hopper_ask(const Flags& f) {
    const std::string log = f.out + "/log.jsonl";
    bool wanted = f.hopper;
    if (f.resume && !f.given_hopper && file_exists(log)) {
        wanted = log_flags(log, INFINITY)["hopper"].number;
    }
    if (wanted && variant::hopper.ask) { variant::hopper.ask(f.given_hopper); }
}

// Returns why attention of such heads does not go by Hopper's kernels, or nothing.
inline std::string hopper_lacks(int HS) {
    if (ops::on_host) { return "got a program of BACKEND=cpu, wanted one of BACKEND=cuda"; }
    if (variant::hopper.lacks) { return variant::hopper.lacks(HS); }
    return "got a program without the folder cuda/hopper/, wanted one with it";
}

// Takes Hopper's kernels if the flag is 1, there are any and all ranks can; else the flag becomes
// 0, and the reason is returned. Dies if they must be there: the user has asked for them, or the
// run has `had` them.
inline std::string hopper_settle(Flags* f, const Arch& c, bool had = false) {
    const std::string flag = strf("--hopper %ld", f->hopper);
    std::string lacks = hopper_lacks(c.HS);
    if (ops::on_host && f->given_hopper) { die(flag + ": " + lacks, "leave --hopper out"); }
    if (f->hopper) {
        const bool here = lacks.empty();
        if (dist::any(!here) && here) { lacks = "another rank cannot"; }
        if ((f->given_hopper || had) && !lacks.empty()) {
            die(flag + ": " + lacks, "--hopper 0 takes the kernels for every card");
        }
    }
    const std::string why = f->hopper ? lacks : flag;
    if (ops::hopper_here() && f->hopper && !lacks.empty() && dist::rank() == 0) {
        note("attention uses the kernels for every card: " + lacks);
    }
    f->hopper = why.empty();
    ops::use_hopper(f->hopper);
    return why;
}
#endif // HOPPER_H
