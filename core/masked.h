/*
masked.h -- tokens whose loss nobody asks for, such as the user's words in a conversation. One is
kept as ~id, which has its highest bit set.
*/
#ifndef MASKED_H
#define MASKED_H
#include <stdint.h>

inline uint32_t sft_masked(uint32_t id) { return ~id; }
inline bool sft_is_masked(long id) { return id >= 1L << 31 && id < 1L << 32; }
#endif // MASKED_H
