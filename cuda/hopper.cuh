/*
hopper.cuh -- the kernels for Hopper of this model, for code that is compiled once: hopper/check.cuh
says what these do. NULL where that folder is not there.
*/
#ifndef HOPPER_CUH
#define HOPPER_CUH
#include <string>

namespace variant {
struct Hopper {
    std::string (*lacks)(int HS);
    void (*ask)(bool again);
    int (*check)();
};
extern const Hopper hopper;
} // namespace variant
#endif // HOPPER_CUH
