/*
process.h -- how the program starts, the memory it may take, the signals that end it, and the
terminal that it shows its progress on.
*/
#ifndef PROCESS_H
#define PROCESS_H
#include "../common.h"
#include <signal.h>

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

// ---- signals

// the last signal that asks the run to save and end, 0 if none has come
extern volatile sig_atomic_t stop_signal;

// From now on every signal that would end the process sets stop_signal; of SIGINT a second one,
// half a second later, ends it at once.
void on_signals();

// ---- the terminal

// 0: standard output is no terminal
int terminal_columns();

// shows the longest of these that fits, in place of the last one; narrower than all: as much of
// the last as there is room for
void progress_show(const std::vector<std::string>& forms, int columns);
#endif // PROCESS_H
