/*
run_dir.h -- the directory that one run alone writes to, and what a command may write at all.
*/
#ifndef RUN_DIR_H
#define RUN_DIR_H
#include "../flags.h"

// ---- the directory

// runs/0001-softmax, runs/0002-sigmoid-k, ..: ATTN, then what is not the default. Made here, under
// a lock, so that of many runs that start at once each gets a number of its own
std::string next_run_dir();

// locks the directory until this process ends; dies if another is at work there
void run_lock(const std::string& out);

// ---- what a command writes

// Dies if file_write(path) could not work, or would replace one of these files, by whatever name:
// asked before the work. An empty path is none.
void output_check(const std::string& path, const std::vector<std::string>& others);

// what a command reads: its checkpoints, the tokenizer, these sources of data
std::vector<std::string> files_read(const Flags& f, const std::vector<std::string>& sources);
#endif // RUN_DIR_H
