/*
dist/agree.h -- what many processes decide together, and how they end together. A decision is one
sum over ranks in which each has a place of its own; mpi.h and nccl.h give the sum. Every rank calls
these in the same order. Whatever started the processes ends them all when one of them ends badly.
*/
#ifndef DIST_AGREE_H
#define DIST_AGREE_H
#include "../base/common.h"
#include "../optional.h"
#include "place.h"

namespace dist {
inline Place here;

// Return which process this is, of how many; and the same among those on this machine.
inline int rank() { return here.rank; }
inline int world() { return here.world; }
inline int local() { return here.local; }
inline int neighbors() { return here.neighbors; }

// Adds the others' x to x (n): the same bits on all ranks.
inline void sum(double* x, size_t n);

inline bool any(bool mine) {
    double x = mine;
    sum(&x, 1);
    return x > 0;
}

inline void barrier() { any(false); }

// Returns the smallest of all ranks' numbers.
inline long least(long mine) {
    std::vector<double> all(world());
    all[rank()] = (double)mine;
    sum(all.data(), all.size());
    return (long)*std::min_element(all.begin(), all.end());
}

// Copies the text of rank `from` to all.
inline void spread(std::string* text, int from = 0) {
    if (rank() != from) { text->clear(); }
    double length = text->size();
    sum(&length, 1);
    std::vector<double> letters(text->begin(), text->end());
    letters.resize((size_t)length);
    sum(letters.data(), letters.size());
    text->assign(letters.begin(), letters.end());
}

// Ends all ranks unless each says the same of `what`.
inline void agree(const char* what, const std::string& mine, const char* hint) {
    std::string first = mine;
    spread(&first);
    const int other = (int)least(mine == first ? world() : rank());
    if (other == world()) { return; }
    std::string theirs = mine;
    spread(&theirs, other);
    size_t i = 0; // where they differ, with something before it
    while (i < theirs.size() && i < first.size() && theirs[i] == first[i]) { i++; }
    i = i < 30 ? 0 : i - 30;
    die(strf("rank %d differs from rank 0 in its %s: got ..%s.., wanted ..%s..", other, what,
         theirs.substr(i, 100).c_str(), first.substr(i, 100).c_str()),
        hint);
}

// Dies on every rank unless all run the same program with the same flags.
void run_agree(const Flags& f);

// Sets -b to this rank's part: a step is the same for any number of ranks, and each takes an equal
// part of its sequences. Dies at flags that need one process.
void run_share(Flags* f);

// Merges the ranks' reports, each over some of the sequences, into one report that every rank gets.
void sum_metrics(Metrics* r, const Sizes& sizes, double* loss, long* count);

inline int end_code = EXIT_MACHINE;     // the status with which this process ends badly

// Prints an error and ends this process; the launcher then ends the others. Of ranks that fail
// alike the lowest says it: the others wait, and end without a word at the launcher's signal.
[[noreturn]] inline void die_together(int code, const std::string&, const std::string& message) {
    end_code = code;
    const bool ended = rank() > 0 && sleep(2 + std::min(rank(), 5)) > 0;
    if (ended) { quick_exit(code); }
    std::string text = message;
    if (rank() > 0) { text.insert(strlen("error: "), strf("rank %d: ", rank())); }
    fputs(text.c_str(), stderr);
    fflush(stderr);
    quick_exit(code);
}

// Takes a place among many: from here on errors are one error, and rank 0 alone prints.
inline void join(const Place& p) {
    here = p;
    die_hook = die_together;
    if (rank() > 0 && !freopen("/dev/null", "w", stdout)) {
        die(EXIT_MACHINE, "/dev/null: cannot open");
    }
}
} // namespace dist
#endif // DIST_AGREE_H
