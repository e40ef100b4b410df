/*
variant.cuh -- what core/variant.cu compiles of cuda/ for one model.
*/
#ifndef CUDA_VARIANT_CUH
#define CUDA_VARIANT_CUH
#include "attention.cuh"
#include "hopper.cuh"
#include "metrics.cuh"
#if __has_include("hopper/check.cuh")
#include "hopper/check.cuh"
const variant::Hopper variant::hopper = { cuda::hopper_lacks<Attn>, cuda::hopper_ask<Attn>,
                                          cuda::hopper_check<Attn, Bias, Pe> };
#else
const variant::Hopper variant::hopper = {};
#endif
#endif // CUDA_VARIANT_CUH
