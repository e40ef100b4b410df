/*
core/optional_model.cpp -- where optional.h finds what folders that may be deleted do with a model.
*/
#include "../model.h"

extern const CpuModel CPU_MODEL;
extern const TextModel TEXT_MODEL;
extern const OpenModel OPEN_MODEL;
extern const AfterModel AFTER_MODEL;
const CpuModel* const cpu_model = HAS_CPU ? &CPU_MODEL : NULL;
const TextModel* const text_model = HAS_TEXT ? &TEXT_MODEL : NULL;
const OpenModel* const open_model = HAS_OPEN ? &OPEN_MODEL : NULL;
const AfterModel* const after_model = HAS_AFTER ? &AFTER_MODEL : NULL;
