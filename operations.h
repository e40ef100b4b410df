/*
operations.h -- what the program computes with: all operations of this build's backend, as namespace
ops. Those that a variant changes are in variant.h.
*/
#ifndef OPERATIONS_H
#define OPERATIONS_H
#include "variant.h"
#include "cpu/metrics.h"
#include "cpu/training.h"
#if defined(__CUDACC__) || defined(EMU)
#include "cuda/magnitudes.cuh"
#include "cuda/ops.cuh"
#endif
#include "dist/dist.h"
#endif // OPERATIONS_H
