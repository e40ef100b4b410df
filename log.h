/*
log.h -- OUT/log.jsonl, one object per line, flushed; and the same facts as a line for people.
The functions are in run/log.cpp.
*/
#ifndef LOG_H
#define LOG_H
#include <functional>
#include "arch.h"
#include "metrics.cuh"

struct Log {
    FILE* f = NULL;
    std::string path;
    std::string error;                                   // why nothing more can be written
    std::vector<std::string> unwritten;                  // lines since then
};

// Opens log->path: to add to it, or as a new log in place of one that some run began. Ends the
// program if the file is something else.
void log_open(Log* log, bool more);

// Waits until what was logged is on the disk; sets log->error if the disk fails.
void log_sync(Log* log);

// Writes one object, with the time as its last field. A log that is gone or full sets log->error,
// and the run has to save and end; the lines from then on are kept in log->unwritten.
void log_line(Log* log, JsonObject line);

// Returns the directory of an open log, which may have been moved; "" if the log is gone.
std::string log_directory(const Log& log);

// A line of a log: an object, and the text that it was read from.
struct LogLine : Json { std::string text; };

// Calls `each` with the lines of a log in order. A line that is not JSON, such as the one the
// machine died in, is left out. Nothing is called if there is no log.
void log_each(const std::string& path, const std::function<void(const LogLine&)>& each);

// Drops what an interrupted run logged after its checkpoint of `step`, and adds the lines that
// could not be written before it, so that the log ends up as if the run had never stopped.
// unevaluated: the evaluation of `step` is still to come, and was made in vain if the log has it.
void log_rewind(const std::string& path, long step, bool unevaluated, const Json& unwritten);

// Returns the flags of a run at `step` as its log has them: those it began with, and what each
// --resume before that step changed. An object without fields if there is no log.
Json log_flags(const std::string& path, double step);

// Applies to *flags what each --resume changed whose step is in [first, end).
void log_changes(const std::string& path, double first, double end, Json* flags);

// Tells whether the log has one of these events: " done stopped ".
bool log_has(const std::string& path, const char* events);

// Returns the line that a log begins with, or an object without fields.
Json log_config(const std::string& path);

// Returns the switches that make this model, with their values: as JSON, or " ATTN=softmax ..".
std::string switches_json(const Arch& c);

// Adds what the program is: its version, commit, precision and backend; or returns them as JSON.
void program_fields(JsonObject* o);
std::string program_json();
std::string switches_text(const Arch& c);

// Returns the rows of *c that are flags, no sizes, and not as a plain model has them.
std::vector<ArchRow> arch_differs(Arch* c);

// Writes seconds as 1h02m, a number as 28.3k or 136.4M.
std::string duration(double s);
std::string count_text(double n);

// Adds the fields of an eval object, in the log and in probe --json. event: eval, or ema of the
// weights' mean.
void eval_fields(JsonObject* o, const char* event, long step, double val_loss, const Metrics& r);

// Returns a number that --until compares.
double eval_number(const std::string& name, double val_loss, const Metrics& r);

// Returns the mean of v.
double mean(const std::vector<double>& v);

// Writes an eval object for people, in one line. s: of its first threshold.
std::string eval_text(double val_loss, const Metrics& r, const Sinks& s);
#endif // LOG_H
