/*
run_flags.h -- the flags of a run that goes on, or whose checkpoint is measured: what it had, what
may change, and where its data are now.
*/
#ifndef RUN_FLAGS_H
#define RUN_FLAGS_H
#include "../flags.h"

// ---- what may change between a checkpoint and --resume: state.json holds the flags that a run had
// at its checkpoint

// Returns `key: got A, wanted B` for the first flag that a run must keep and that is another now,
// or "". Adds the others that differ to *changed: {"lr":[before,now], ..}.
std::string flags_changed(const Json& was, Flags now, JsonObject* changed);

// Takes every flag that is not given from the run that goes on; the model's only if `model`: else
// they are in its config.json.
void flags_inherit(Flags* f, const Json& was, bool model = false);

// Tells whether a flag is given that says something of the run, and not of this start alone.
bool flags_begin_run(Flags f);

// Takes the flags of data that are not given (all that a run must keep, --data and --bin) from the
// run that made a checkpoint.
void flags_inherit_data(Flags* f, const Json& was);

// Takes --bin from the log of a run that began before that flag: its program looked at the data,
// and wrote what it found.
void flags_inherit_bin(Flags* f, const Json& was, const std::string& log);

// Takes the flags of the built-in task that are not given from the run that made a checkpoint.
void flags_inherit_task(Flags* f, const Json& was);

// ---- where a run was started, and where its data are

// Returns where the run in the directory `out` was started, as state.json keeps it: relative to
// `out`, so that a run and its texts can be moved together.
std::string run_started(const std::string& out);

// Returns the same as source_found wants it. Older runs kept the whole path.
std::string run_started_from(const Json& state, const std::string& out);

// Finds a source of data, SOURCE:WEIGHT, or another file, under the name that a run gave it in
// `directory`.
std::string source_found(const std::string& name, const std::string& directory);

// Dies if a source that a run was trained on is not there any more. `again` is the
// command that can name its new place.
void source_require(const std::string& name, const std::string& again);
#endif // RUN_FLAGS_H
