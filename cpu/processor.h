/*
processor.h -- the instructions that this program was compiled with, and whether the processor has
them. A build is for the machine it was made on (-march=native). On another one it would end with
"Illegal instruction", at whatever line needs one first.

    built_with             one number for each row of FEATURES, 1 if the compiler may have used it.
                           In cpu/built_with.cpp, compiled as all the others are
    processor_check        ends the program if one is missing. In cpu/processor.cpp, compiled for
                           any x86-64. It runs before main and before all initial values, and must
                           call nothing that another file may have compiled, too: no template, no
                           inline function
*/
#ifndef CPU_PROCESSOR_H
#define CPU_PROCESSOR_H

// name, the compiler's macro, and where CPUID has it: leaf, its part, register 0..3 (a b c d), bit;
// 1: the system has to save its registers, 2: those of AVX-512, too
#define FEATURES(X) \
    X("sse3",             __SSE3__,             1, 0, 2, 0,  0) \
    X("ssse3",            __SSSE3__,            1, 0, 2, 9,  0) \
    X("sse4.1",           __SSE4_1__,           1, 0, 2, 19, 0) \
    X("sse4.2",           __SSE4_2__,           1, 0, 2, 20, 0) \
    X("movbe",            __MOVBE__,            1, 0, 2, 22, 0) \
    X("popcnt",           __POPCNT__,           1, 0, 2, 23, 0) \
    X("lzcnt",            __LZCNT__,            0x80000001, 0, 2, 5, 0) \
    X("bmi1",             __BMI__,              7, 0, 1, 3,  0) \
    X("bmi2",             __BMI2__,             7, 0, 1, 8,  0) \
    X("adx",              __ADX__,              7, 0, 1, 19, 0) \
    X("gfni",             __GFNI__,             7, 0, 2, 8,  0) \
    X("apx_f",            __APX_F__,            7, 1, 3, 21, 0) \
    X("avx",              __AVX__,              1, 0, 2, 28, 1) \
    X("fma",              __FMA__,              1, 0, 2, 12, 1) \
    X("f16c",             __F16C__,             1, 0, 2, 29, 1) \
    X("avx2",             __AVX2__,             7, 0, 1, 5,  1) \
    X("avx_vnni",         __AVXVNNI__,          7, 1, 0, 4,  1) \
    X("avx512f",          __AVX512F__,          7, 0, 1, 16, 2) \
    X("avx512dq",         __AVX512DQ__,         7, 0, 1, 17, 2) \
    X("avx512ifma",       __AVX512IFMA__,       7, 0, 1, 21, 2) \
    X("avx512cd",         __AVX512CD__,         7, 0, 1, 28, 2) \
    X("avx512bw",         __AVX512BW__,         7, 0, 1, 30, 2) \
    X("avx512vl",         __AVX512VL__,         7, 0, 1, 31, 2) \
    X("avx512_vbmi",      __AVX512VBMI__,       7, 0, 2, 1,  2) \
    X("avx512_vbmi2",     __AVX512VBMI2__,      7, 0, 2, 6,  2) \
    X("avx512_vnni",      __AVX512VNNI__,       7, 0, 2, 11, 2) \
    X("avx512_bitalg",    __AVX512BITALG__,     7, 0, 2, 12, 2) \
    X("avx512_vpopcntdq", __AVX512VPOPCNTDQ__,  7, 0, 2, 14, 2) \
    X("avx512_fp16",      __AVX512FP16__,       7, 0, 3, 23, 2) \
    X("avx512_bf16",      __AVX512BF16__,       7, 1, 0, 5,  2)

extern "C" {
extern const unsigned char built_with[];
void processor_check();
}
#endif // CPU_PROCESSOR_H
