/*
cpu/built_with.cpp -- the instructions of this build, for processor.h. Made a string, a macro that
is not defined stays its own name; one that is becomes "1".
*/
#include "processor.h"

#define MACRO_TEXT(x) #x
#define MACRO_TEXT_OF(x) MACRO_TEXT(x)
#define X(name, MACRO, ...) MACRO_TEXT_OF(MACRO)[0] == '1',
extern const unsigned char built_with[] = { FEATURES(X) };
#undef X
#undef MACRO_TEXT_OF
#undef MACRO_TEXT
