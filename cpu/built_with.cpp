/*
cpu/built_with.cpp -- the instructions of this build, for processor.h. Made a string, a macro that
is not defined stays its own name; one that is becomes "1".
*/
#include "../base/common.h"
#include "processor.h"

#define X(name, MACRO, ...) STR(MACRO)[0] == '1',
extern const unsigned char built_with[] = { FEATURES(X) };
#undef X
