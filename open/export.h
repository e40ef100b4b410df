/*
export.h -- a checkpoint as a directory that other programs open: its files, and how they come to be
there whole or not at all. Which weights go in: open/export_command.cpp.
*/
#ifndef EXPORT_H
#define EXPORT_H
#include "../tokenizer.h"
#include "../core/config.h"

// ---- the directory. Its export.json has a hash of each file in it. A directory that is there
// already is replaced only if all that it holds is as an export left it. While one is written it is
// DIR.tmp, with a lock; it is removed if the export fails, and the next one empties it after a kill

struct ExportDir {
    std::string path, tmp;               // tmp: beside it, where it is written
    std::vector<std::string> files;      // what is in it so far
};

// Returns where the directory of this name is: where a link leads, without slashes at the end.
std::string export_path(const std::string& given);

// Begins a directory; dies if `path` is there and not an earlier export.
ExportDir export_begin(const std::string& path);

// Dies as export_begin would, before any work.
void export_check(const std::string& path);

// Adds a file.
void export_file(ExportDir* o, const std::string& name, const std::string& content);

// Gives it its name: all of it is written.
void export_commit(ExportDir* o);

// ---- what goes in beside the weights

// What stands for id 256, the end of a document of bytes. U+FDD0 is no character and never will be,
// so that no text has this token in it: text is bytes, whatever it says.
static const char* const END_OF_BYTES = "<|endoftext|>\xEF\xB7\x90";

// Returns the PyTorch file that computes what this program trains.
std::string modeling_source();

// Returns the config.json of a model that is opened by that file. Dies if the file does not know
// one of its rows. from: what errors call the model.
std::string config_with_code(const Arch& c, const Tokenizer& tok, const std::string& from);

// Lets the tokenizer.json that was added put this token before every text, as bos_token; -1: none.
// Returns whether it does.
bool export_begins(ExportDir* o, const Tokenizer& tok, int id);

// Adds the files that make the tokenizer: its own, or those of bytes. Returns "" or what the reader
// of the directory has to know about it.
std::string export_tokenizer(ExportDir* o, const Tokenizer& tok, int T);
#endif // EXPORT_H
