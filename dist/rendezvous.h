/*
dist/rendezvous.h -- how rank 0 hands some bytes to the others before they can talk: by files in the
run's directory.

Each of the others leaves a random word in a file of its own, DIR/nccl-JOB.RANK. Rank 0's file holds
all these words, and then the bytes. A rank takes only what comes with its word, and then removes
its file; so what an earlier job left behind, killed at whatever instant, is never taken. Rank 0
writes its file again whenever a word is new, and removes it when all have taken it.
*/
#ifndef DIST_RENDEZVOUS_H
#define DIST_RENDEZVOUS_H
#include "../base/common.h"
#include "place.h"
#include <sys/random.h>

namespace dist {
inline std::string rendezvous_file(const Place& p, const std::string& dir, int rank) {
    std::string job = p.job;
    for (char& c : job) { if (!isalnum((unsigned char)c)) { c = '_'; } }
    return dir + "/nccl-" + job + strf(".%d", rank);
}

// Returns what a file holds; "" if it is not there, or not any more.
inline std::string text_if_there(const std::string& path) {
    char text[1 << 16];
    FILE* f = fopen(path.c_str(), "rb");
    if (!f) { return ""; }
    const size_t n = fread(text, 1, sizeof text, f);
    fclose(f);
    return std::string(text, n);
}

// Dies if the others have not come since `began`.
inline void rendezvous_wait(const Place& p, const std::string& dir, double began) {
    const int seconds = std::max(1, environment_int("DIST_TIMEOUT", 300));
    usleep(20000);
    if (now_ms() - began < seconds * 1e3) { return; }
    unlink(rendezvous_file(p, dir, p.rank).c_str());
    die(EXIT_MACHINE,
        strf("%s: rank %d of %d has waited %d s there for %s", dir.c_str(), p.rank, p.world,
             seconds, p.rank ? "rank 0" : "the others"),
        "--out must be one directory for all ranks, on a disk that all machines share; "
        "DIST_TIMEOUT=600 waits longer");
}

// Gives the bytes to all other ranks, and returns when all have taken them.
inline void rendezvous_give(const Place& p, const std::string& dir, const std::string& bytes) {
    const std::string mine = rendezvous_file(p, dir, 0);
    const double began = now_ms();
    std::vector<bool> came(p.world);
    std::string given;
    for (int missing = p.world - 1; missing > 0;) {
        std::string words;
        missing = 0;
        for (int r = 1; r < p.world; r++) {
            const std::string word = text_if_there(rendezvous_file(p, dir, r));
            came[r] = came[r] || !word.empty();
            missing += !came[r] || !word.empty();
            words += word;
        }
        if (!words.empty() && words != given) { file_write(mine, words + "\n" + bytes); }
        given = words;
        rendezvous_wait(p, dir, began);
    }
    unlink(mine.c_str());
}

// Takes the bytes that rank 0 gives.
inline std::string rendezvous_take(const Place& p, const std::string& dir) {
    const std::string mine = rendezvous_file(p, dir, p.rank);
    const double began = now_ms();
    uint64_t number[2];
    if (getrandom(number, sizeof number, 0) != sizeof number) {
        die(EXIT_MACHINE, "the system gave no random number");
    }
    const std::string word = hash_text(number[0]) + hash_text(number[1]) + "\n";
    while (!is_dir(dir)) { rendezvous_wait(p, dir, began); }     // rank 0 makes it
    file_write(mine, word);
    for (;;) {
        const std::string text = text_if_there(rendezvous_file(p, dir, 0));
        const size_t at = text.find("\n\n");
        if (at != text.npos && contains(text.substr(0, at + 1), word)) {
            unlink(mine.c_str());
            return text.substr(at + 2);
        }
        rendezvous_wait(p, dir, began);
    }
}

// Returns rank 0's bytes on every rank. Directories that were not there are not there afterward:
// --dry-run writes nothing.
inline std::string rendezvous(const Place& p, const std::string& dir, const std::string& bytes) {
    if (p.rank > 0) { return rendezvous_take(p, dir); }
    std::vector<std::string> made;                       // the innermost first
    for (std::string d = dir; !d.empty() && !is_dir(d); d = directory_of(d)) {
        if (d.back() == '/') { d.pop_back(); }
        made.push_back(d);
    }
    make_dirs(dir);
    rendezvous_give(p, dir, bytes);
    for (auto& d : made) { rmdir(d.c_str()); }
    return bytes;
}
} // namespace dist
#endif // DIST_RENDEZVOUS_H
