/*
test_eval_key.cpp -- test_eval.cpp for a model with a learned key and value beside every sequence's:
no token's, without a position, and always seen.
*/
#define BIAS kv
#include "test_eval.cpp"
