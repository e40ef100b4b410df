/*
core/defaults.h -- the switches of a program that is compiled as one unit, where -D names none: the
first row of each table, as with the Makefile.
*/
#ifndef DEFAULTS_H
#define DEFAULTS_H
#ifndef ATTN
#define ATTN softmax
#endif
#ifndef BIAS
#define BIAS none
#endif
#ifndef PE
#define PE rotary
#endif
#ifndef NORM
#define NORM pre
#endif
#ifndef FFN
#define FFN swiglu
#endif
#ifndef COMBINE
#define COMBINE concat
#endif
#ifndef QKNORM
#define QKNORM none
#endif
#ifndef GATE
#define GATE none
#endif
#endif // DEFAULTS_H
