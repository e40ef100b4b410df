/*
core/rest.h -- the other files of the program, which train_sink.cu includes at its end: so one line
compiles it. First those that need the model, which the Makefile reads here, too: compiled apart,
each backend has its own. Then those that no switch touches. A folder that may be deleted lists its
own files.

    -DAPART              train_sink.cu alone: the Makefile compiles all others apart
    -DONCE_APART         what no switch touches is compiled apart: for nvcc, the GPU's emulator,
                         UNITS=few
    -DWITHOUT_VARIANT    and so is variant.cu, of which each model has its own
*/
#ifndef WITHOUT_VARIANT
#include "variant.cu"
#endif
#include "checkpoint.cpp"
#include "measure.cpp"
#include "model.cpp"
#include "optional_model.cpp"
#include "../run/bench.cpp"
#include "../run/check.cpp"
#include "../run/default_model.cpp"
#include "../run/generate.cpp"
#include "../run/open_model.cpp"
#include "../run/probe.cpp"
#include "../run/probe_data.cpp"
#include "../run/run_open.cpp"
#include "../run/run_resume.cpp"
#include "../run/train.cpp"
#ifndef ONCE_APART
#include "../base/field.cpp"
#include "../base/json.cpp"
#include "../base/lock.cpp"
#include "../base/look.cpp"
#include "../base/maps.cpp"
#include "arch.cpp"
#include "config.cpp"
#include "data_sources.cpp"
#include "dataloader.cpp"
#include "directory.cpp"
#include "kinds.cpp"
#include "optional_files.cpp"
#include "safetensors.cpp"
#include "saves.cpp"
#include "shards.cpp"
#include "targets.cpp"
#include "tokenizer.cpp"
#include "weights.cpp"
#include "../run/data_flags.cpp"
#include "../run/flag_rules.cpp"
#include "../run/flags.cpp"
#include "../run/log.cpp"
#include "../run/process.cpp"
#include "../run/run_dir.cpp"
#include "../run/run_flags.cpp"
#endif
#if HAS_CPU
#include "../cpu/all.h"
#endif
#if HAS_CUDA
#include "../cuda/all.cuh"
#endif
#if __has_include("../dist/all.h")
#include "../dist/all.h"
#endif
#if HAS_TEXT
#include "../text/all.h"
#endif
#if HAS_OPEN
#include "../open/all.h"
#endif
#if HAS_AFTER
#include "../after/all.h"
#endif
