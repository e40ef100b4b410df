/*
log.h -- OUT/log.jsonl, one object per line, flushed; and the same facts as a line for people.
The functions are in shell/log.cpp.
*/
#ifndef LOG_H
#define LOG_H
#include "arch.h"
#include "metrics.cuh"

struct Log {
    FILE* f = NULL;
    std::string path;
    std::string error;                                   // why nothing more can be written
};

// Opens log->path: to add to it, or as a new log in place of one that some run began. Dies if the
// file is something else.
void log_open(Log* log, bool more);

// what was logged is on the disk
void log_sync(const Log& log);

// Writes one JSON object, with the time as its last field. A log that is gone or full sets
// log->error, and the run has to save and end.
void log_line(Log* log, std::string json);

// Where the directory of an open log is now: it may have been moved. "" if the log is gone.
std::string log_directory(const Log& log);

// for an interrupted run: keeps what was logged up to the checkpoint, so that the log ends up as
// if the run had never stopped
void log_rewind(const std::string& path, long step);

// The flags of a run at `step` as its log has them: those it began with, and what each --resume
// before that step changed. An object without fields if there is no log.
Json log_flags(const std::string& path, double step);

// *flags <- what each --resume at or after `step` changed
void log_flags_after(const std::string& path, double step, Json* flags);

// Does the log tell of a training step?
bool log_has_steps(const std::string& path);

// numbers as JSON: those from `from` on, at most n; in rows of `cols`
std::string json_array(const std::vector<double>& v, size_t from = 0, size_t n = (size_t)-1);
std::string json_matrix(const std::vector<double>& v, int cols);

// the switches that make this model, with values
std::string switches_json(const Arch& c);
std::string switches_text(const Arch& c);

// seconds as 1h02m; a number as 28.3k, 136.4M
std::string duration(double s);
std::string count_text(double n);

// the `eval` object of the log and of probe --json, without its braces
std::string eval_json(long step, double val_loss, const Metrics& r, const std::vector<double>& eps);

// the mean of v
double mean(const std::vector<double>& v);

// the eval object for people, one line
std::string eval_text(double val_loss, const Metrics& r, double eps);
#endif // LOG_H
