/*
cpu/built_with.cpp -- the instructions of this build, for processor.h. Made a string, a macro that
is not defined stays its own name; one that is becomes "1".
*/
#include "processor.h"

#define TEXT(x) #x
#define X(name, MACRO, ...) TEXT_OF(MACRO)[0] == '1',
#define TEXT_OF(x) TEXT(x)
extern const unsigned char built_with[] = { FEATURES(X) };
