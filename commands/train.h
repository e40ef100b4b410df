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
#include "../optimizer.h"
#include "../shell/saves.h"

// a run: what train() carries from step to step
struct Run {
    Flags f; Arch c; Data data; Model m; Log log;
    std::vector<double> eps;
    int accum, probe_len, probes; // batches a step; T and number of the probe sequences
    std::vector<int> seqs, probe; // this rank's of a step (n, T+1); the probe (n, probe_len+1)
    std::vector<int> ahead;       // those of the next step, once they are drawn
    std::vector<uint64_t> ahead_from; // where the data were before that; empty: not drawn
    // the step it starts from; that of the newest checkpoint, or -1
    long first, saved; bool resumed;
    std::vector<Saved> kept;      // checkpoints that a newer one may replace
    double saved_at, printed_at;  // when: the last checkpoint, the last line of progress
    // columns of the terminal, 0 if there is none
    double tokens_per_step, started, smooth_ms; int columns;
    std::string changed; // flags that are not what they were before --resume, as JSON
};

// Gathers the flags that say how large each step is.
inline Schedule schedule_of(const Flags& f) {
    return { f.lr, f.min_lr, f.warmup, f.steps, f.schedule != "constant" };
}

// flags -> data, model and log; fresh, or as they were at the newest checkpoint in --out
Run run_open(Flags f);

// how this program computes; what it computes is the checkpoint's
std::string build_json();

// the numbers of a checkpoint, by hash: state.json keeps it, and a resumed run has it again
std::string numbers_json(const Model* m);

void run_describe(const Run& r);

// the first line of a new log, and of one that was lost; flags that changed on the way are told
void log_begin(Run* r);

// calls `work`; false if a mapped file was lost under it. Of many ranks one alone cannot save
bool survives(const std::function<void()>& work);

void run_evaluate(Run* r, long step);

// step counts from 1; the loss of a step without a target that counts is NAN: none, null in the log
void run_report_step(Run* r, long step, double loss, double grad_norm, double ms);

// What has to be done before the next step; the same on all ranks.
struct Due { bool stop, save, keep; };

Due run_due(const Run& r, long step);

// a checkpoint of `step` updates, kept or automatic; then what it replaces is removed
void run_save(Run* r, long step, bool keep);

// Draws this step's sequences into r->seqs, or takes those that were drawn ahead.
void run_draw(Run* r);

// Draws the next step's sequences into r->ahead. The GPU computes meanwhile.
void run_draw_ahead(Run* r);

// Returns `drawn` and the sequences of every source: where the data are at the top of a step.
std::vector<uint64_t> run_place(const Run& r);

// Takes back what was drawn ahead: a checkpoint says where the data are without it.
void run_undraw(Run* r);

// a file of data was lost in this step: goes back to its begin, saves and ends
[[noreturn]] void run_lost_data(Run* r, long step, const std::vector<uint64_t>& place);

// the loss or the gradients of a step are not finite
[[noreturn]] void run_diverged(const Run& r, long step, double loss, double grad_norm);

// dies if the log cannot be written any more
void run_check_log(const Run& r);

// the last line of the log, and of the screen
void run_finish(Run* r, long step);
#endif // TRAIN_H
