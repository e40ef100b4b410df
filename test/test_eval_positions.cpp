/*
test_eval_positions.cpp -- test_eval.cpp for a model with learned positions, which edits may change.
*/
#define PE learnable
#include "test_eval.cpp"
