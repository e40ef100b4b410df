/*
cpu/rows.h -- what cpu/ adds to the tables of flags.h.
*/
#ifndef CPU_ROWS_H
#define CPU_ROWS_H
#define HAS_CPU 1

#define CPU_FLAGS(X) \
    WORDS("tpgsbce", RUN, product, "", "CPU matmuls: any, avx2, avx512, avx512-bf16 or amx (empty: the fastest on such a processor)") \
    ON("b", OWN, products, \
      "time only the CPU's matrix products, to see whether fp32 or bf16 is faster here")
#endif // CPU_ROWS_H
