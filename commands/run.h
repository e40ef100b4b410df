/*
run.h -- what surrounds a run: the directory that it alone writes to, the memory there is, what may
change with --resume, the terminal, and the data that its flags name.
*/
#ifndef RUN_H
#define RUN_H
#include "../dataloader.h"
#include "../flags.h"

// ---- the process

// how threads wait, denormals count as 0, and errors of output and memory end it: first in main
void process_begin(char** argv);

// dies if the system does not give the threads that OpenMP will start: that library's own error
// says nothing of what to do
void threads_check();

// ---- memory

// Bytes of main memory that a run may still take: of the machine, of its control groups, of ulimit
// -v.
double memory_free();

// bytes as MiB or GiB, in words
std::string bytes_text(double n);

// ---- the directory

// runs/0001-softmax, runs/0002-sigmoid-k, ..: ATTN, then what is not the default. Made here, under
// a lock, so that of many runs that start at once each gets a number of its own
std::string next_run_dir();

// locks the directory until this process ends; dies if another is at work there
void run_lock(const std::string& out);

// ---- what may change on the way. state.json holds the flags that a run had at its checkpoint

// `key: got A, wanted B` for the first flag that a run must keep and that is another now; else "".
// *changed: the others that differ, as JSON {"lr":[before, now], ..}
std::string flags_changed(const Json& was, const Flags& now, std::string* changed);

// takes from the run that goes on every flag that is not given, but for those of the model, which
// its config.json has
void flags_take(Flags* f, const Json& was);

// a source of data, SOURCE:WEIGHT, or another file as a run named it that ran in `directory`
std::string source_found(const std::string& name, const std::string& directory);

// dies if a source that a run was trained on is not there any more; again: the command that can name
// its new place
void source_there(const std::string& name, const std::string& again);

// From the run's directory `out`: where it was started, as state.json keeps it (relative, so that a
// run and its texts can be moved together); and back, as source_found wants it. Older runs kept the
// whole path.
std::string run_started(const std::string& out);
std::string run_started_from(const Json& state, const std::string& out);

// takes the flags of data (all that a run must keep, and --data) from the run that made a
// checkpoint, where none is given
void flags_take_data(Flags* f, const Json& was);

// ---- what a command writes

// Dies if file_write(path) could not work, or would replace one of these files, by whatever name:
// asked before the work. An empty path is none.
void output_check(const std::string& path, const std::vector<std::string>& others);

// what a command reads: its checkpoints, the tokenizer, these sources of data
std::vector<std::string> files_read(const Flags& f, const std::vector<std::string>& sources);

// ---- the terminal

// 0: standard output is no terminal
int terminal_columns();

// shows the longest of these that fits, in place of the last one; narrower than all: as much of
// the last as there is room for
void progress_show(const std::vector<std::string>& forms, int columns);

// ---- the data

// what the flags say of the data; and the data
DataOptions data_options(const Flags& f, int T, int probe_len);
Data data_from_flags(const Flags& f, int T, int probe_len);

// A flag that nothing would read is a mistake that nobody would see. These two die of one: of the
// data, of the model. Not called when a run resumes: it has had its flags since it began.
void data_flags_read(const Flags& f, const std::vector<std::string>& sources);
void arch_flags_read(const Flags& f);
#endif // RUN_H
