/*
look.h -- what a file is by its first bytes, before anybody reads it. A file that is not what its
name says gets an error that says what it is, and what to type: of the kinds that people meet, in
one table of text/; of any other, its first bytes.

TO ADD a kind of file: a row in text/kinds.cpp, and its first bytes in test/program/test_look.cpp.
*/
#ifndef LOOK_H
#define LOOK_H
#include "common.h"

// Who reads: the letters of a row of text/kinds.cpp.
enum Reader : int {
    READS_TEXT = 't',        // a .txt
    READS_RECORDS = 'r',     // a .jsonl
    READS_GZIP = 'g', READS_ZSTD = 'z',
    READS_TOKENS = 'b',      // a shard
    READS_TOKENIZER = 'k',
    READS_JSON = 'j',
    READS_SAFETENSORS = 's', READS_GGUF = 'f',
    READS_CHECKPOINT = 'c',  // what probe and the others are given, where it is no directory
    READS_NOTHING = 0,
};

enum { LOOK_BYTES = 4096 };              // as many first bytes are looked at

// What a kind of file is called, and what makes it readable: a command with FILE for its path.
struct FileKind { std::string what, hint; };

// Returns the first n bytes of a regular file, or fewer; none of what is no regular file.
std::string file_begin_bytes(const std::string& path, long n);

// Says of a file of no kind what it begins with, as in "x.txt: ..".
std::string begins_with(const std::string& first);

// Dies if the file is of a kind that this reader does not read, is no text where one is wanted, or
// is empty where that can only be a mistake; without text/ the reader has to notice that itself.
// first: what it begins with; size: -1 if it is not known. (core/kinds.cpp defines it, and
// kind_in_dir.)
void look(const std::string& path, const std::string& first, long size, Reader reader);
void look_file(const std::string& path, Reader reader);

// Finds, in a directory that lacks what the reader wants, the first file of a kind of the same use
// (a model, data). Returns "; its pytorch_model.bin is a ..", with the hint; of text, only that.
FileKind kind_in_dir(const std::string& dir, Reader reader);

// Returns the nearest directory above a path that is there; "" is the current one.
std::string directory_above(std::string path);

// Returns the command that shows what may have been meant by a path that is not there: ls of the
// directory above it, or of these patterns here.
std::string list_beside(const std::string& path, const std::string& patterns);

// Replaces FILE in a hint. A path of unusual characters is not put into a command.
std::string hint_for(const std::string& hint, const std::string& path);
#endif // LOOK_H
