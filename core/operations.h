/*
operations.h -- what the program computes with: all operations of this build's backend, as namespace
ops, and arrays in the memory that they work on. Operations that a variant changes are in variant.h.
*/
#ifndef OPERATIONS_H
#define OPERATIONS_H
#include "variant.h"
#if HAS_CPU
#include "../cpu/metrics.h"
#include "../cpu/training.h"
#endif
#if HAS_CUDA
#include "../cuda/magnitudes.cuh"
#include "../cuda/ops.cuh"
#endif
#include "dist.h"

// ---- arrays in the memory that operations work on: a GPU's, or the host's own

template <class X> X* device_array(size_t n) { return (X*)ops::device_malloc(n * sizeof(X)); }

// Frees arrays; NULL is none.
inline void free_arrays(std::initializer_list<void*> arrays) {
    for (void* array : arrays) { ops::device_free(array); }
}

template <class X> void copy_to_device(X* to, const std::vector<X>& x) {
    ops::to_device(to, x.data(), x.size() * sizeof(X));
}

template <class X> std::vector<X> copy_to_host(const X* x, size_t n) {
    std::vector<X> out(n);
    ops::to_host(out.data(), x, n * sizeof(X));
    return out;
}
#endif // OPERATIONS_H
