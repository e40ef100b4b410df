/*
run_dir.h -- the directory that one run alone writes to, and what a command may write at all.
*/
#ifndef RUN_DIR_H
#define RUN_DIR_H
#include "../flags.h"

// ---- the directory

// Makes runs/0001-softmax, runs/0002-sigmoid-k, ..: ATTN, then what is not the default. It does so
// under a lock, so that each of many runs that start at once gets a number of its own.
std::string next_run_dir();

// ---- what a command writes

// Checks before the work that file_write(path) can work and would replace none of these files, by
// whatever name, nor a file of a run, a model or shards. Ends the program if not. An empty path is
// no file.
void output_check(const std::string& path, const std::vector<std::string>& others);

// Tells whether a directory is that of a run, or inside of it.
bool in_run(std::string dir);

// Lists what a command reads: its checkpoints, the tokenizer, these sources of data.
std::vector<std::string> files_read(const Flags& f, const std::vector<std::string>& sources);
#endif // RUN_DIR_H
