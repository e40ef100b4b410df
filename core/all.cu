/*
all.cu -- the whole program as one unit, for compilers that want it so: nvcc, the GPU's emulator,
sanitizers. With -DWITHOUT_VARIANT it is all but variant.cu: the Makefile has nvcc compile it once
for all models. For the CPU it compiles the same files apart, unless UNITS=few.

    nvcc -std=c++17 -DATTN=softmax -DBIAS=none .. all.cu ..      (all switches; the Makefile)
*/
#include "../train_sink.cu"
#ifndef WITHOUT_VARIANT                                  // test_cuda_train links several of them
#include "variant.cu"
#endif
#if defined(__CUDACC__) || defined(EMU)                  // of attention, what no variant changes
#include "../cuda/attention_common.cu"
#include "../cuda/attention_dqk.cu"
#endif
#include "checkpoint.cpp"
#include "measure.cpp"
#include "model.cpp"
#include "rooms_model.cpp"
#include "../commands/bench.cpp"
#include "../commands/check.cpp"
#include "../commands/default_model.cpp"
#include "../commands/generate.cpp"
#include "../commands/open_model.cpp"
#include "../commands/probe.cpp"
#include "../commands/probe_data.cpp"
#include "../commands/run_open.cpp"
#include "../commands/run_resume.cpp"
#include "../commands/tokenize.cpp"
#include "../commands/train.cpp"
#if HAS_OPEN
#include "../open/delta.cpp"
#include "../open/experts.cpp"
#include "../open/export_card.cpp"
#include "../open/export_command.cpp"
#include "../open/mamba.cpp"
#include "../open/open_weights.cpp"
#endif
#if HAS_AFTER
#include "../after/anatomy.cpp"
#include "../after/anywhere.cpp"
#include "../after/eval.cpp"
#include "../after/score.cpp"
#include "../after/score_task.cpp"
#endif
