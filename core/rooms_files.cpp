/*
core/rooms_files.cpp -- where rooms.h finds what open/ does with files.
*/
#include "../rooms.h"

#if HAS_OPEN
extern const OpenFiles OPEN_FILES;
const OpenFiles* const open_files = &OPEN_FILES;
#else
const OpenFiles* const open_files = NULL;
#endif
