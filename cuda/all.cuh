/*
cuda/all.cuh -- the files of cuda/ for core/rest.h: of attention, what no variant changes.
*/
#include "attention_common.cu"
#include "attention_dqk.cu"
