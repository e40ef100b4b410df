/*
core/optional_model.cpp -- where optional.h finds what open/ and after/ do with a model.
*/
#include "../optional.h"

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
