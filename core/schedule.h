/*
schedule.h -- what flags choose of the updates: the optimizer, and the learning rate by step.
*/
#ifndef SCHEDULE_H
#define SCHEDULE_H
#include "../base/common.h"
#include "../base/rows.h"

inline constexpr const char* OPTIMIZER_ROWS[] = { "adamw", "sgd", "muon" };
inline constexpr const char* SCHEDULE_ROWS[] = { "constant", "cosine", "wsd" };
constexpr int OPTIMIZER_adamw = row_named(OPTIMIZER_ROWS, "adamw"),
              OPTIMIZER_sgd = row_named(OPTIMIZER_ROWS, "sgd"),
              OPTIMIZER_muon = row_named(OPTIMIZER_ROWS, "muon"),
              SCHEDULE_constant = row_named(SCHEDULE_ROWS, "constant"),
              SCHEDULE_cosine = row_named(SCHEDULE_ROWS, "cosine"),
              SCHEDULE_wsd = row_named(SCHEDULE_ROWS, "wsd");

// The learning rate by step: it rises to `peak` in `warmup` steps and stays there, or falls to
// `lowest` at the end of the run: as a cosine or, with wsd, in a line over the last `decay` steps.
struct Schedule {
    double peak;
    double lowest;
    long warmup;
    long steps;
    int kind;
    long decay;
};

// Returns the share of the run that is done after the warm-up, 0 to 1.
inline double done_after_warmup(const Schedule& s, long step) {
    if (s.steps <= s.warmup) { return 1; }
    return std::min(1.0, (double)(step - s.warmup) / (s.steps - s.warmup));
}

// Computes the learning rate of update number step + 1.
inline double learning_rate(const Schedule& s, long step) {
    if (step < s.warmup) { return s.peak * (step + 1) / s.warmup; }
    const double fall = s.peak - s.lowest;
    const double done = done_after_warmup(s, step);
    if (s.kind == SCHEDULE_cosine) { return s.lowest + 0.5 * fall * (1 + cos(M_PI * done)); }
    if (s.kind == SCHEDULE_wsd) {
        return s.lowest + fall * std::min(1.0, (double)(s.steps - step) / s.decay);
    }
    return s.peak;
}
#endif // SCHEDULE_H
