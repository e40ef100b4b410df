/*
saves.h -- what a run keeps in its directory, and when it has to save: the checkpoints step_N there
are, which of them the run may replace, whether they are still as they were saved, and the signals
that end a run.

A checkpoint that --save-every, the last step or a signal asks for is kept. One that the clock or an
error made is automatic: its state.json says so, and the next checkpoint takes its place.
*/
#ifndef SAVES_H
#define SAVES_H
#include "safetensors.h"

// ---- the checkpoints of a run

struct Saved {
    long step;
    std::string dir;
    bool automatic;                                      // the next one takes its place
    bool optimizer;                                      // it can be resumed
    bool last_only;              // the run keeps the optimizer's state of its newest one alone
};

// Finds the newest whole checkpoint in OUT, or "". *step: which one it is.
std::string checkpoint_latest(const std::string& out, long* step);

// Returns the whole checkpoints in a run's directory, by step.
std::vector<Saved> saves_of(const std::string& out);

// Removes what a killed process left half written or half removed, and gives a checkpoint that
// stepped aside its name again.
void saves_clean(const std::string& out);

// Removes, after `newest` is whole, the automatic ones of *known before it and, if last_only, the
// optimizer's state of the others that agreed to that when they were saved. A directory that holds
// anything but a checkpoint's own files stays. *known becomes the newest alone: all else is done.
void saves_prune(std::vector<Saved>* known, const Saved& newest, bool last_only);

// What to type when a checkpoint is of no use; resumes: --resume goes on from the one before it.
struct Fallback {
    std::string hint;
    bool resumes;
};

// Finds what is left of the run `out` without its checkpoint `from`.
Fallback hint_other_checkpoint(const std::string& out, const std::string& from);

// Returns the newest checkpoint of a run's directory, with a note on standard error. Any other path
// is returned as it is.
std::string checkpoint_in(const std::string& path);

// Tells whether the disk of this directory has room for so many bytes.
bool disk_has(const std::string& dir, double bytes);

// ---- a checkpoint's small files are hashed, too: state.json keeps the hashes as its last field

// Returns the text of state.json with the hashes of itself and of these files: name, content.
std::string state_sealed(const JsonObject& state,
                         const std::vector<std::pair<std::string, std::string>>& files);

// Dies if state.json, or a file whose hash it has, was edited since it was saved. Old
// checkpoints have no hashes.
void state_check(const std::string& dir);
#endif // SAVES_H
