// test/defaults.h -- the default switches, for what includes the whole program in one file
// and names no others before
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
