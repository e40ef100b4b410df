// test/model_unit.h -- the model without the commands as one unit, and the switches' values if these
// are given
#ifndef MODEL_ONLY
#define MODEL_ONLY
#endif
#pragma GCC diagnostic ignored "-Wunused-function"
#include "../train_sink.cu"
#include "../core/checkpoint.cpp"
#include "../core/measure.cpp"
#include "../core/model.cpp"
#include "../core/optional_model.cpp"
#if HAS_CPU
#include "../cpu/cpu_model.cpp"
#endif
#if HAS_OPEN
#include "../open/delta.cpp"
#include "../open/experts.cpp"
#include "../open/mamba.cpp"
#include "../open/open_weights.cpp"
#endif
#if HAS_TEXT
const TextModel TEXT_MODEL = {}; // for commands, which no test of the model calls
#endif
#if HAS_AFTER
#include "../after/anatomy.cpp"
#include "../after/anywhere.cpp"
const AfterModel AFTER_MODEL = {};
#endif
#ifdef SWITCHES_GIVEN
#include "../core/variant.cu"
#endif
