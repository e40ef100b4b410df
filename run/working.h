/*
working.h -- the line on standard error that says how far a measurement is, if that is a terminal.
*/
#ifndef WORKING_H
#define WORKING_H
#include "../core/measure.h"
#include "process.h"

// what a batch is part of, the line that is shown for it, and when it last said a layer
struct Working { std::string what, line; double shown = 0; };
inline Working working;

// Lets measure and layers report to the terminal; without one nothing is set.
inline void working_begin(const std::string& what) {
    progress.to = stderr;
    working = { what, "" };
    progress.batch = NULL;
    if (!terminal_columns()) { return; }
    progress.batch = [](int done, int n) {
        working.line = working.what + strf("%d of %d sequences", done, n);
        progress_show({ working.line });
    };
}

// Says that a batch has come to layer l of L; ten times a second is enough.
inline void working_layer(int l, int L) {
    const double now = now_ms();
    if (!progress.batch || now - working.shown < 100) { return; }
    working.shown = now;
    progress_show({ working.line + strf(", layer %d of %d", l + 1, L) });
}
#endif // WORKING_H
