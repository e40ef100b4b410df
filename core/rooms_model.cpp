/*
core/rooms_model.cpp -- where rooms.h finds what open/ does with a model.
*/
#include "../rooms.h"

#if HAS_OPEN
extern const OpenModel OPEN_MODEL;
const OpenModel* const open_model = &OPEN_MODEL;
#else
const OpenModel* const open_model = NULL;
#endif
