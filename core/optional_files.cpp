/*
core/optional_files.cpp -- where optional.h finds what folders that may be deleted do with files.
*/
#include "../optional.h"
#include "../base/common.h"

extern const CpuFolder CPU_FOLDER;
extern const TextFolder TEXT_FOLDER;
extern const OpenFiles OPEN_FILES;
const CpuFolder* const cpu_folder = HAS_CPU ? &CPU_FOLDER : NULL;
const TextFolder* const text_folder = HAS_TEXT ? &TEXT_FOLDER : NULL;
const OpenFiles* const open_files = HAS_OPEN ? &OPEN_FILES : NULL;

const TextFolder& text_needed(const std::string& what) {
    if (HAS_TEXT) { return TEXT_FOLDER; }
    die(what + ": needs the folder text/, which this build does not include",
        "get the folder text/, and compile again");
}
