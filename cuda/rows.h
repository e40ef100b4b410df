/*
cuda/rows.h -- what cuda/ adds to the tables of flags.h.
*/
#ifndef CUDA_ROWS_H
#define CUDA_ROWS_H
// cuda/ is compiled by nvcc, or for its emulator
#if defined(__CUDACC__) || defined(EMU)
#define HAS_CUDA 1
#endif

#define CUDA_FLAGS(X) \
    ON("tb", RUN, graph, "CUDA: record a micro-batch as a CUDA graph and launch it with one call; helps small models") \
    WHOLE("tpgsbce", RUN, hopper, 1, 0, 1, \
      "CUDA: 1 uses the Hopper attention kernels on a Hopper card, 0 the kernels for every card")
#endif // CUDA_ROWS_H
