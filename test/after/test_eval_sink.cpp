/*
test_eval_sink.cpp -- test_eval.cpp for a model with a sink token, whose row is no token,
ALiBi, a gate for each channel, and norms after the branches alone: what their products read
is then the stream itself.
*/
#define BIAS sink_token
#define PE alibi
#define NORM branch
#define GATE elem
#include "test_eval.cpp"
