/*
schedule.h -- what flags choose of the updates: the optimizer, and how the learning rate changes.
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
#endif // SCHEDULE_H
