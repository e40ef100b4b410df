/*
dist/talk.h -- sum, any, gather, spread, agree. Every rank calls these in the same order; without
other processes they do nothing.
*/
#ifndef DIST_TALK_H
#define DIST_TALK_H
#include "../core/common.h"
#include "sockets.h"
#include "watch.h"

namespace dist {
inline uint32_t talk_count;             // of calls so far, the same on all ranks

// The other end is closed. The watch knows why, and ends this process.
[[noreturn]] inline void talk_lost(int r) {
    sleep(5);
    die(EXIT_MACHINE, peer_name(r) + " has closed its connection", last_whole());
}

// Collects one text of each rank at rank 0, in the order of the ranks; returns nothing elsewhere.
inline std::vector<std::string> gather(const std::string& mine, const char* what,
                                       size_t most = TEXT_BYTES) {
    std::vector<std::string> all = { mine };
    if (world == 1) { return all; }
    const Waiting wait(what);
    talk_count++;
    if (rank > 0) {
        if (!send_message(peers[0].talk, talk_count, mine)) { talk_lost(0); }
        return {};
    }
    for (int r = 1; r < world; r++) {
        uint32_t number;
        std::string text;
        if (!receive_message(peers[r].talk, &number, &text, most)) { talk_lost(r); }
        if (number != talk_count) {
            die(EXIT_MACHINE, peer_name(r) + " is not where rank 0 is (" + what + ")",
                last_whole());
        }
        all.push_back(text);
    }
    return all;
}

// Copies rank 0's text to all.
inline void spread(std::string* text, const char* what, size_t most = TEXT_BYTES) {
    const Waiting wait(what);
    uint32_t number;
    for (int r = 1; rank == 0 && r < world; r++) {
        if (!send_message(peers[r].talk, talk_count, *text)) { talk_lost(r); }
    }
    if (rank > 0 && !receive_message(peers[0].talk, &number, text, most)) { talk_lost(0); }
}

// Adds the others' x to x (n), in the order of the ranks: the same bits on all.
inline void sum(double* x, size_t n) {
    if (world == 1) { return; }
    std::string bytes((const char*)x, n * sizeof *x);
    const std::vector<std::string> all = gather(bytes, "a sum over ranks", bytes.size());
    if (rank == 0) {
        std::vector<double> theirs(n);
        for (int r = 1; r < world; r++) {
            if (all[r].size() != bytes.size()) {
                die(EXIT_MACHINE, peer_name(r) + " sums something else", last_whole());
            }
            memcpy(theirs.data(), all[r].data(), bytes.size());
            for (size_t i = 0; i < n; i++) { x[i] += theirs[i]; }
        }
        bytes.assign((const char*)x, n * sizeof *x);
    }
    spread(&bytes, "a sum over ranks", n * sizeof *x);
    if (bytes.size() != n * sizeof *x) { talk_lost(0); }
    memcpy(x, bytes.data(), bytes.size());
}

// Tells whether any rank says so.
inline bool any(bool mine) {
    double x = mine;
    sum(&x, 1);
    return x > 0;
}

inline void barrier() { any(false); }

// Returns the smallest of all ranks' numbers.
inline long least(long mine) {
    std::vector<double> all(world);
    all[rank] = (double)mine;
    sum(all.data(), all.size());
    return (long)*std::min_element(all.begin(), all.end());
}

// Ends all ranks unless each says the same of `what`.
inline void agree(const char* what, const std::string& mine, const char* hint) {
    const std::vector<std::string> all = gather(mine, what);
    for (int r = 1; r < (int)all.size(); r++) {
        if (all[r] == all[0]) { continue; }
        size_t i = 0; // where they differ, with something before it
        while (i < all[r].size() && i < all[0].size() && all[r][i] == all[0][i]) { i++; }
        i = i < 30 ? 0 : i - 30;
        die(EXIT_USER,
            strf("%s differs from rank 0 in its %s: got ..%s.., wanted ..%s..",
                 peer_name(r).c_str(),
                 what, all[r].substr(i, 100).c_str(), all[0].substr(i, 100).c_str()),
            hint);
    }
}
} // namespace dist
#endif // DIST_TALK_H
