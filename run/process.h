/*
process.h -- how the program starts, the memory it may take, the signals that end it, and the
terminal that it shows its progress on.
*/
#ifndef PROCESS_H
#define PROCESS_H
#include "../base/common.h"
#include <signal.h>

// ---- the process

// Settles how threads wait, that denormals count as 0, and how errors of output and memory end the
// process. Call it first in main.
void process_begin(char** argv);

// Dies if the system does not give the threads that OpenMP will start: that library's
// own error says nothing of what to do.
void threads_check();

// ---- memory

// Returns the bytes of main memory that a run may still take: of the machine, of its control
// groups, of ulimit -v.
double memory_free();

// Writes bytes as MiB or GiB.
std::string bytes_text(double n);

// ---- signals

// the last signal that asks the run to save and end, 0 if none has come
extern volatile sig_atomic_t stop_signal;

// Makes every signal that would end the process set stop_signal from now on. A second SIGINT, half
// a second later, ends it at once.
void on_signals();

// ---- the terminal

// Returns the columns of the terminal that progress is shown on, 0 if it is none.
int terminal_columns();

// Shows the longest of these that fits, in place of the last one. If all are too wide, as much of
// the last as there is room for.
void progress_show(const std::vector<std::string>& forms);
#endif // PROCESS_H
