/*
working.h -- the line on standard error that says how far a measurement is, if that is a terminal.
*/
#ifndef WORKING_H
#define WORKING_H
#include "../core/measure.h"
#include "process.h"

// Lets measure and layers report to the terminal; without one nothing is set.
inline void working_begin(const std::string& what) {
    progress.to = stderr;
    progress.batch = nullptr;
    progress.shown = 0;
    if (!terminal_columns()) { return; }
    progress.batch = [what](int done, int n) {
        progress.line = what + strf("%d of %d sequences", done, n);
        progress_show({ progress.line });
    };
}

// Says that a batch has come to layer l of L; ten times a second is enough.
inline void working_layer(int l, int L) {
    const double now = now_ms();
    if (!progress.batch || now - progress.shown < 100) { return; }
    progress.shown = now;
    progress_show({ progress.line + strf(", layer %d of %d", l + 1, L) });
}
#endif // WORKING_H
