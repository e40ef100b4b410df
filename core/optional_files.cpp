/*
core/optional_files.cpp -- where optional.h finds what folders that may be deleted do with files.
*/
#include "../optional.h"
#include "../base/common.h"

#if HAS_CPU
extern const CpuFolder CPU_FOLDER;
const CpuFolder* const cpu_folder = &CPU_FOLDER;
#else
const CpuFolder* const cpu_folder = NULL;
#endif

#if HAS_TEXT
extern const TextFolder TEXT_FOLDER;
const TextFolder* const text_folder = &TEXT_FOLDER;

const TextFolder& text_needed(const std::string&) { return TEXT_FOLDER; }
#else
const TextFolder* const text_folder = NULL;

const TextFolder& text_needed(const std::string& what) {
    die(what + ": needs the folder text/, which this build does not include",
        "get the folder text/, and compile again");
}
#endif

#if HAS_OPEN
extern const OpenFiles OPEN_FILES;
const OpenFiles* const open_files = &OPEN_FILES;
#else
const OpenFiles* const open_files = NULL;
#endif
