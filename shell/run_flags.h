/*
run_flags.h -- the flags of a run that goes on, or whose checkpoint is measured: what it had, what
may change, and where its data are now.
*/
#ifndef RUN_FLAGS_H
#define RUN_FLAGS_H
#include "../flags.h"

// ---- what may change on the way. state.json holds the flags that a run had at its checkpoint

// `key: got A, wanted B` for the first flag that a run must keep and that is another now; else "".
// *changed: the others that differ, as JSON {"lr":[before, now], ..}
std::string flags_changed(const Json& was, const Flags& now, std::string* changed);

// takes from the run that goes on every flag that is not given, but for those of the model, which
// its config.json has
void flags_take(Flags* f, const Json& was);

// a source of data, SOURCE:WEIGHT, or another file as a run named it that ran in `directory`
std::string source_found(const std::string& name, const std::string& directory);

// dies if a source that a run was trained on is not there any more; again: the command that can
// name its new place
void source_there(const std::string& name, const std::string& again);

// From the run's directory `out`: where it was started, as state.json keeps it (relative, so that a
// run and its texts can be moved together); and back, as source_found wants it. Older runs kept the
// whole path.
std::string run_started(const std::string& out);
std::string run_started_from(const Json& state, const std::string& out);

// takes the flags of data (all that a run must keep, and --data) from the run that made a
// checkpoint, where none is given
void flags_take_data(Flags* f, const Json& was);
#endif // RUN_FLAGS_H
