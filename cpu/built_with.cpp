/*
cpu/built_with.cpp -- what processor.h declares: the instructions of this build. A macro that is not
defined stays its own name where it is made a text, one that is becomes "1".
*/
#include "processor.h"

#define TEXT(x) #x
#define X(name, MACRO, ...) TEXT_OF(MACRO)[0] == '1',
#define TEXT_OF(x) TEXT(x)
extern const unsigned char built_with[] = { FEATURES(X) };
