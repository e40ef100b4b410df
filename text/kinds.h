/*
text/kinds.h -- the kinds of files that people meet, by their first bytes: look.h asks for them.
*/
#ifndef KINDS_H
#define KINDS_H
#include "../base/look.h"

// Returns what a file of `size` bytes is (-1: not known) that begins like this; `what` is empty if
// nothing tells, or if `reader` may read it.
FileKind kind_of(const std::string& first, long size, Reader reader);

// Do what look.h says of look and kind_in_dir.
void text_look(const std::string& path, const std::string& first, long size, Reader reader);
FileKind text_kind_in_dir(const std::string& dir, Reader reader);

// Returns what a file is that nothing here reads: what its first bytes say, or the end of its name.
// What is no regular file is of no kind.
FileKind kind_of_file(const std::string& path);
#endif // KINDS_H
