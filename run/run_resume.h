/*
run_resume.h -- train --resume: finds the run's newest checkpoint, takes from the run every flag
that is not given, and puts model, optimizer, data and log back to where they were. What was edited
or damaged meanwhile, or would make another run of it, is an error.
*/
#ifndef RUN_RESUME_H
#define RUN_RESUME_H
#include "../core/checkpoint.h"
#include "train.h"

// Finds the checkpoint that --resume continues, "" if the run has none yet; *step: its number, or
// 0. Ends the program if there is no run, or one that the flags do not ask for.
std::string find_checkpoint(const Flags& f, long* step);

// Takes from the run the flags that are not given. Its files are looked for here, and where it ran.
// state: of its checkpoint of `step`. begins: it has none yet, and state is its log's first line,
// which has the model's flags, too.
void inherit_flags(Flags* f, const Json& state, long step, bool begins);

// Begins a run again that has a log, `begun` its first line, and no checkpoint yet: its log moves
// aside. Dies if the flags or the switches are others.
void run_again(Run* r, const Json& begun);

// Sets model, optimizer, data and log to what they were at the checkpoint `from`, which is opened.
// Ends the program if the flags make another run of it.
void run_restore(Run* r, Checkpoint* opened, const std::string& from, const Json& state);
#endif // RUN_RESUME_H
