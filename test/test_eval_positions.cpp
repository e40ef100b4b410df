/*
test_eval_positions.cpp -- test_eval.cpp for a model with learned positions, which edits may change.
*/
#define BIAS none
#define PE learnable
#define NORM pre
#define GATE none
#include "test_eval.cpp"
