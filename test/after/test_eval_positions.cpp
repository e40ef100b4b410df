/*
test_eval_positions.cpp -- test_eval.cpp for a model with learned positions, which edits may change,
and a gate for each head.
*/
#define PE learnable
#define GATE head
#include "test_eval.cpp"
