/*
train.h -- a run around its steps: how it is opened, described, evaluated, reported, saved and
stopped. The steps themselves are in train_sink.cu.
*/
#ifndef TRAIN_H
#define TRAIN_H
#include <functional>
#include "../dataloader.h"
#include "../flags.h"
#include "../log.h"
#include "../model.h"
#include "../core/optimizer.h"
#include "../shell/saves.h"

// What command_train carries from step to step.
struct Run {
    Flags f;
    Arch c;
    Data data;
    Model m;
    Log log;
    std::vector<double> eps;             // thresholds of Sink_k
    int accum;                           // batches of a step
    double tokens_per_step;
    std::vector<int> seqs;               // (n, T + 1) this rank's sequences of a step
    std::vector<int> ahead;              // those of the next step, once they are drawn
    std::vector<uint64_t> ahead_from;    // where the data were before that; empty: not drawn
    std::vector<int> probe;              // (probes, probe_len + 1) sequences of the sink metrics
    int probe_len;
    int probes;
    bool resumed;
    long first;                          // the step it starts from
    long saved;                          // that of the newest checkpoint, or -1
    std::vector<Saved> kept;             // checkpoints that a newer one may replace
    JsonObject changed;                  // flags that are not what they were before --resume
    std::string touched;                 // a large file of data that may have been written to
    bool unevaluated;                    // a signal cut the evaluation of this step short
    double started;                      // when, in ms: the run,
    double saved_at;                     // the last checkpoint,
    double printed_at;                   // the last line of progress
    double smooth_ms;                    // of a step
    int columns;                         // of the terminal, 0 if there is none
};

// Gathers the flags that say how large each step is.
inline Schedule schedule_of(const Flags& f) {
    return { f.lr, f.min_lr, f.warmup, f.steps, f.schedule };
}

// Opens data, model and log as the flags say: fresh, or as they were at the newest checkpoint in
// --out. Ends the program if the flags contradict each other or what is there.
Run run_open(Flags f);

// Returns as JSON how this program computes; what it computes is in config.json.
std::string build_json();

// Returns the hashes of a checkpoint's numbers as JSON. state.json keeps them, and a resumed run
// compares.
std::string numbers_json(const Model* m);

// Prints the block that a run starts with.
void run_describe(const Run& r);

// Writes the first line of a new log, or of one that was lost; tells which flags --resume changed.
void log_begin(Run* r);

// Calls `work`. Returns false if a mapped file was lost under it. With many ranks that ends the
// program, because one alone cannot save.
bool run_guarded(const std::function<void()>& work);

// Measures validation loss, metrics and a sample, and reports them.
void run_evaluate(Run* r, long step);

// Reports a step, counted from 1. The loss of a step without a target that counts is NAN: none on
// the screen, null in the log.
void run_report_step(Run* r, long step, double loss, double grad_norm, double ms);

// What has to be done before the next step; the same on all ranks.
struct Due {
    bool stop;
    bool save;
    bool keep;
};

// Returns what is due after `step` updates.
Due run_due(const Run& r, long step);

// Writes a checkpoint of `step` updates, kept or automatic, and removes what it replaces.
void run_save(Run* r, long step, Due due);

// Draws this step's sequences into r->seqs, or takes those that were drawn ahead.
void run_draw(Run* r);

// Draws the next step's sequences into r->ahead. The GPU computes meanwhile.
void run_draw_ahead(Run* r);

// Returns `drawn` and the sequences of every source: where the data are at the top of a step.
std::vector<uint64_t> run_place(const Run& r);

// Takes back what was drawn ahead: a checkpoint says where the data are without it.
void return_drawn(Run* r);

// Ends the run after a file of data was lost in this step: goes back to where the step began, and
// saves.
[[noreturn]] void run_lost_data(Run* r, long step, const std::vector<uint64_t>& place);

// Dies at a step whose loss or gradients are not finite.
[[noreturn]] void run_diverged(const Run& r, long step, double loss, double grad_norm);

// Dies if the log cannot be written any more.
void run_check_log(const Run& r);

// Writes the last line of the log, and of the screen.
void run_finish(Run* r, long step);
#endif // TRAIN_H
