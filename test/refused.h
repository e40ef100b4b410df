// refused.h -- for programs of libFuzzer: what is refused throws in place of ending the program
#ifndef REFUSED_H
#define REFUSED_H
#include "../base/common.h"

struct Refused {};
static void refused(int, const std::string&, const std::string&) { throw Refused(); }
static const bool throws = (die_hook = refused, true);

#endif // REFUSED_H
