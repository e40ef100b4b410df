/*
core/optional_files.cpp -- where optional.h finds what open/ does with files.
*/
#include "../optional.h"

#if HAS_CPU
extern const CpuFolder CPU_FOLDER;
const CpuFolder* const cpu_folder = &CPU_FOLDER;
#else
const CpuFolder* const cpu_folder = NULL;
#endif

#if HAS_OPEN
extern const OpenFiles OPEN_FILES;
const OpenFiles* const open_files = &OPEN_FILES;
#else
const OpenFiles* const open_files = NULL;
#endif
