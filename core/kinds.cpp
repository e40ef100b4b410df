/*
core/kinds.cpp -- where look.h finds the kinds of files, if text/ is part of the program. The symbol
is weak: a test of kernels reads files, and would be linked with all of text/ and open/ by it.
*/
#include "../base/look.h"
#include "../optional.h"

extern const TextFolder TEXT_FOLDER __attribute__((weak));

void look(const std::string& path, const std::string& first, long size, Reader reader) {
    if (&TEXT_FOLDER) { TEXT_FOLDER.look(path, first, size, reader); }
}

FileKind kind_in_dir(const std::string& dir, Reader reader) {
    return &TEXT_FOLDER ? TEXT_FOLDER.kind_in_dir(dir, reader) : FileKind();
}
