/*
core/rest.h -- the other files of the program, which train_sink.cu includes at its end: so one line
compiles it. First those that need the model, which the Makefile reads here, too: compiled apart,
each backend has its own. Then those that no switch touches. open/, after/ and cuda/ list their own.

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
#ifndef ONCE_APART
#include "arch.cpp"
#include "config.cpp"
#include "field.cpp"
#include "rooms_files.cpp"
#include "../cpu/built_with.cpp"
#include "../cpu/choice.cpp"
#include "../cpu/kernels.cpp"
#include "../cpu/mapped_weights.cpp"
#include "../cpu/processor.cpp"
#include "../cpu/product.cpp"
#include "../files/directory.cpp"
#include "../files/json.cpp"
#include "../files/lock.cpp"
#include "../files/look.cpp"
#include "../files/maps.cpp"
#include "../files/safetensors.cpp"
#include "../files/weights.cpp"
#include "../tokenizer/added_tokens.cpp"
#include "../tokenizer/bpe.cpp"
#include "../tokenizer/decode.cpp"
#include "../tokenizer/encode.cpp"
#include "../tokenizer/normalize.cpp"
#include "../tokenizer/split.cpp"
#include "../tokenizer/tokenizer_config.cpp"
#include "../tokenizer/tokenizer_finish.cpp"
#include "../tokenizer/tokenizer_load.cpp"
#include "../tokenizer/tokenizer_steps.cpp"
#include "../tokenizer/unicode.cpp"
#include "../dataloader/data_sources.cpp"
#include "../dataloader/dataloader.cpp"
#include "../dataloader/documents.cpp"
#include "../dataloader/manifest.cpp"
#include "../dataloader/sft.cpp"
#include "../dataloader/shards.cpp"
#include "../dataloader/targets.cpp"
#include "../dataloader/text_cache.cpp"
#include "../dataloader/text_files.cpp"
#include "../dataloader/tokenize.cpp"
#include "../shell/data_flags.cpp"
#include "../shell/flag_rules.cpp"
#include "../shell/flags.cpp"
#include "../shell/log.cpp"
#include "../shell/process.cpp"
#include "../shell/run_dir.cpp"
#include "../shell/run_flags.cpp"
#include "../shell/saves.cpp"
#endif
#if defined(__CUDACC__) || defined(EMU)
#include "../cuda/all.cuh"
#endif
#if HAS_OPEN
#include "../open/all.h"
#endif
#if HAS_AFTER
#include "../after/all.h"
#endif
