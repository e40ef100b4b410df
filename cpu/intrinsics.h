/*
intrinsics.h -- the compiler's headers for the vectors of x86, and for CPUID. Include it only where
__x86_64__ is defined.
*/
#ifndef CPU_INTRINSICS_H
#define CPU_INTRINSICS_H
#include <cpuid.h>
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wuninitialized"          // false alarms in GCC 12's own header
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#include <immintrin.h>
#pragma GCC diagnostic pop
#endif // CPU_INTRINSICS_H
