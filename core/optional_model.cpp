/*
core/optional_model.cpp -- where optional.h finds what open/ and after/ do with a model.
*/
#include "../model.h"

#if HAS_CPU
extern const CpuModel CPU_MODEL;
const CpuModel* const cpu_model = &CPU_MODEL;
#else
const CpuModel* const cpu_model = NULL;
#endif

#if HAS_OPEN
extern const OpenModel OPEN_MODEL;
const OpenModel* const open_model = &OPEN_MODEL;
#else
const OpenModel* const open_model = NULL;
#endif

#if HAS_AFTER
extern const AfterModel AFTER_MODEL;
const AfterModel* const after_model = &AFTER_MODEL;
#else
const AfterModel* const after_model = NULL;
#endif
