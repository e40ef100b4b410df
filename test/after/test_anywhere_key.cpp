/*
test_anywhere_key.cpp -- test_anywhere.cpp for sigmoid attention with ALiBi and an extra key, whose
rows do not sum to 1.
*/
#define ATTN sigmoid
#define BIAS kv
#define PE alibi
#include "test_anywhere.cpp"
