/*
all.cu -- the whole program as one unit, for compilers that want it so: nvcc, the GPU's emulator,
sanitizers. For the CPU the Makefile compiles the same files apart.

    nvcc -std=c++17 -DATTN=softmax -DBIAS=none .. all.cu ..      (all switches; the Makefile)
*/
#include "train_sink.cu"
#ifndef WITHOUT_VARIANT                                  // test_cuda_train links several of them
#include "variant.cu"
#endif
#include "checkpoint.cpp"
#include "measure.cpp"
#include "model.cpp"
#include "commands/bench.cpp"
#include "commands/check.cpp"
#include "commands/eval.cpp"
#include "commands/export.cpp"
#include "commands/export_card.cpp"
#include "commands/generate.cpp"
#include "commands/open_model.cpp"
#include "commands/probe.cpp"
#include "commands/probe_data.cpp"
#include "commands/run_open.cpp"
#include "commands/score.cpp"
#include "commands/tokenize.cpp"
#include "commands/train.cpp"
