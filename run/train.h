/*
train.h -- everything a run does besides its steps: opening, describing, evaluating,
reporting, saving and stopping. The steps themselves are in train_sink.cu.
*/
#ifndef TRAIN_H
#define TRAIN_H
#include "../dataloader.h"
#include "../flags.h"
#include "../log.h"
#include "../model.h"
#include "../core/optimizer.h"
#include "../core/saves.h"

// What flags of after/ add to a step; unset: nothing.
struct StepMore {
    std::function<void(const Model* m)> half;    // is told when half of the batch has been summed
    std::function<void(double few, double many, double squares)> done;   // and of both counts of
                                                 // targets, and the squared norm of the gradient
    std::function<void(JsonObject* o)> log;
};

// The state that command_train carries from step to step.
struct Run {
    Flags f;
    Arch c;
    Data data;
    Model m;
    Log log;
    int accum;                           // micro-batches per step
    StepMore more;
    double tokens_per_step;
    std::vector<int> seqs;               // (n, T + 1) this rank's sequences of a step
    std::vector<int> ahead;              // the next step's, once drawn
    std::vector<uint64_t> ahead_from;    // the data position before that; empty: not drawn
    std::vector<uint64_t> step_from;     // where the data were at the top of this step
    std::vector<int> probe;              // (probes, probe_len + 1) sequences for the sink metrics
    int probe_len;
    int probes;
    bool resumed;
    long first;                          // the step it starts from
    long saved;                          // step of the newest checkpoint, or -1
    std::vector<Saved> kept;             // checkpoints that a newer one may replace
    JsonObject changed;                  // flags that --resume changed
    std::string touched;                 // a large file of data that may have been written to
    int met;                             // evaluations in a row where --until holds
    bool unevaluated;                    // a signal cut the evaluation of this step short
    double started;                      // start of the run, in ms
    double saved_at;                     // the last checkpoint,
    double printed_at;                   // time of the last progress line
    double smooth_ms;                    // of a step
    std::string attends_by;              // which kernels compute attention, or ""
};

// ---- the learning rate. It rises to --lr in --warmup steps and stays there, or falls to --min-lr
// at the end of the run: as a cosine or, with wsd, in a line over the last --decay-steps

// Returns the share of the run that is done after the warm-up, 0 to 1.
inline double done_after_warmup(const Flags& f, long step) {
    if (f.steps <= f.warmup) { return 1; }
    return std::min(1.0, (double)(step - f.warmup) / (f.steps - f.warmup));
}

// Computes the learning rate of update number step + 1.
inline double learning_rate(const Flags& f, long step) {
    if (step < f.warmup) { return f.lr * (step + 1) / f.warmup; }
    const double fall = f.lr - f.min_lr;
    const double done = done_after_warmup(f, step);
    if (f.schedule == SCHEDULE_cosine) { return f.min_lr + 0.5 * fall * (1 + cos(M_PI * done)); }
    if (f.schedule == SCHEDULE_wsd) {
        const long decay = f.decay_steps ? f.decay_steps : std::max(2L, f.steps / 10);
        return f.min_lr + fall * std::min(1.0, (double)(f.steps - step) / decay);
    }
    return f.lr;
}

// --until: which number of an evaluation is to be below or above what.
struct Until {
    std::string number;
    bool below = false;
    double limit = 0;
};

// Reads --until; dies if it is none.
Until until_of(const Flags& f);

// Tells whether a run has made its steps, or --until ends it.
inline bool run_over(const Run& r, long step) { return step >= r.f.steps || r.met >= 2; }

// Opens data, model and log as the flags say: fresh, or as they were at the newest checkpoint in
// --out. Dies if the flags contradict each other or the existing run.
Run run_open(Flags f);

// Returns the names of the tensors that a word means, and says how much they are; dies if there are
// none. given: what it was given in; anywhere: it may stand anywhere in a name.
std::vector<std::string> names_of_word(const Model* m, const std::string& given,
                                       const std::string& word, bool anywhere);

// Returns as JSON how this program computes; what it computes is in config.json.
std::string build_json();

// Returns the hashes of a checkpoint's numbers as JSON. state.json keeps them, and a resumed run
// compares.
std::string numbers_json(const Model* m);

// Prints the block that a run starts with.
void run_describe(const Run& r);

// Prints what a step and a checkpoint of a --dry-run cost.
void run_dry(Run* r);

// Returns the bytes of a checkpoint.
double checkpoint_bytes(const Run& r);

// Writes the first line of a new log, or of one that was lost; tells which flags --resume changed.
void log_begin(Run* r);

// Measures validation loss, metrics and a sample, and reports them. Here and where a step draws its
// sequences, a mapped file of data can disappear underneath the program. Then it goes back to where
// the step began, saves and ends; with several ranks it ends, because one cannot save by itself.
void run_evaluate(Run* r, long step);

// Reports a step, counted from 1. If no target of the step counts, the loss is NAN: "none" on the
// screen, null in the log.
void run_report_step(Run* r, long step, double loss, double grad_norm, double ms);

// Work due before the next step, the same on all ranks.
struct Due {
    bool stop;
    bool save;
    bool keep;
};

// Returns what is due after `step` updates.
Due run_due(const Run& r, long step);

// Writes a checkpoint of `step` updates, kept or automatic, and removes what it replaces.
void run_save(Run* r, long step, Due due);

// Draws the sequences of `step` into r->seqs, or takes those that were drawn ahead.
void run_draw(Run* r, long step);

// Draws those of the step after it into r->ahead. The GPU computes meanwhile.
void run_draw_ahead(Run* r, long step);

// Dies at a step whose loss or gradients are not finite.
[[noreturn]] void run_diverged(const Run& r, long step, double loss, double grad_norm);

// Dies if the log cannot be written any more.
void run_check_log(const Run& r);

// Writes the last line of the log and of the screen output.
void run_finish(Run* r, long step);
#endif // TRAIN_H
