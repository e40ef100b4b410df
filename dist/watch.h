/*
dist/watch.h -- a thread that knows of the other processes: one error, one end for all.

Each rank but 0 has a connection with rank 0. Both ends send a beat a second on it. An error travels
to rank 0, which prints it and ends all; so does a rank that dies or falls silent.
*/
#ifndef DIST_WATCH_H
#define DIST_WATCH_H
#include "../core/common.h"
#include "place.h"
#include "sockets.h"
#include <poll.h>
#include <signal.h>
#include <atomic>
#include <mutex>
#include <thread>

namespace dist {
// This process, of how many; and among those on this machine.
inline int rank = 0, world = 1;
inline int local = 0, neighbors = 1;

// Another process.
struct Peer {
    int talk = -1, watch = -1;     // the two connections
    std::string host;
    std::string beat;              // what it said last
    double heard = 0;              // when it last said anything, in ms
    double changed = 0;            // when that last changed
    bool left = false;             // it ended in order
};
inline std::vector<Peer> peers; // rank 0 knows all of them; the others only peers[0]

enum WatchMessage : uint32_t { BEAT, FAILED, END, BYE };
enum { WATCH_BYTES = 1 << 16, TEXT_BYTES = 1 << 20 }; // of a message on the watch; of a text
inline std::mutex watch_lock;                         // one message at a time
inline std::atomic<bool> ending(false);               // with an error
inline std::atomic<bool> leaving(false);              // in order
inline std::atomic<bool> watching(false);             // the thread runs
inline std::atomic<const char*> waiting_for(nullptr); // what the main thread wants of other ranks
inline std::atomic<unsigned> progress(0);             // how often that has changed

// While it lives, the main thread waits for other ranks.
struct Waiting {
    explicit Waiting(const char* what) {
        progress++;
        waiting_for = what;
    }
    ~Waiting() { waiting_for = nullptr; }
};

inline std::string peer_name(int r) { return strf("rank %d (%s)", r, peers[r].host.c_str()); }

inline void watch_send(int fd, WatchMessage kind, const std::string& text) {
    std::lock_guard<std::mutex> hold(watch_lock);
    if (fd >= 0) { send_message(fd, kind, text); }
}

// Prints the error and ends the process; rank 0 ends the others, too. Only the first error counts:
// the later ones are its consequences.
[[noreturn]] inline void end_all(int code, const std::string& message, bool print) {
    if (ending.exchange(true)) {
        for (;;) { pause(); }
    }
    if (print) {
        fputs(printable(message, "\n").c_str(), stderr);
        fflush(stderr);
    }
    for (int r = 1; rank == 0 && r < world; r++) {
        watch_send(peers[r].watch, END, strf("%d", code));
    }
    quick_exit(code);
}

// What die() does with many ranks: rank 0 prints; another's error travels to rank 0 first.
[[noreturn]] inline void die_together(int code, const std::string& what,
                                      const std::string& message) {
    if (rank == 0 || !watching) { end_all(code, message, true); }
    const std::string error = message.substr(std::min(message.size(), message.find(what)));
    watch_send(peers[0].watch, FAILED, strf("%d\n", code) + error.substr(0, WATCH_BYTES - 16));
    sleep(10); // the watch gets END and ends this process
    end_all(code, message, true);
}

inline const char* last_whole() {
    return "the last checkpoint is intact: start all ranks again with --resume";
}

// Ends all because a rank died silently. Rank 0 reports it; rank 1 does if rank 0 is the one.
[[noreturn]] inline void end_without(const std::string& what, const std::string& hint) {
    const std::string message = "error: " + what + "\n---> HINT: " + hint + "; " + last_whole();
    end_all(EXIT_MACHINE, message + "\n", rank <= 1);
}

// Reads the exit status at the start of a message; always one of ours.
inline int exit_code(const std::string& text) {
    const int code = atoi(text.c_str());
    return code >= 0 && code <= EXIT_DIVERGED ? code : (int)EXIT_MACHINE;
}

// Takes one message of rank r: rank 0 takes anybody's, the others only rank 0's.
inline void watch_receive(int r) {
    Peer& peer = peers[r];
    uint32_t kind;
    std::string text;
    if (!receive_message(peer.watch, &kind, &text, WATCH_BYTES)) {
        if (!peer.left && !leaving) {
            usleep(200000); // an END for all may be on the way
            end_without(peer_name(r) + " is gone: killed, or out of memory",
                        "dmesg there tells whether the system killed it");
        }
        close(peer.watch);
        peer.watch = -1;
        return;
    }
    peer.heard = now_ms();
    if (kind == BEAT && text != peer.beat) {
        peer.beat = text;
        peer.changed = peer.heard;
    }
    if (kind == BYE) { peer.left = true; }
    // only rank 0 ends others, and the others tell only rank 0 that they have failed
    if (kind == END && rank > 0) { end_all(exit_code(text), "", false); }
    if (kind == FAILED && rank == 0) {
        usleep(300000); // if all ranks fail alike, rank 0's own error is the better one
        const size_t second_line = std::min(text.size(), text.find('\n') + 1);
        const std::string error = printable(text.substr(second_line), "\n");
        end_all(std::max(1, exit_code(text)), "error: " + peer_name(r) + ": " + error, true);
    }
}

// Tells whether a peer waits, and has waited for the same for too long.
inline bool peer_stuck(const Peer& peer, double now, double most) {
    const bool waits = peer.beat.size() > 1 && peer.beat[0] == 'w';
    return waits && now - peer.changed > most;
}

// Dies if a rank has fallen silent, or if all wait for each other.
inline void watch_check() {
    const double now = now_ms();
    const double most = patience() * 1e3;
    bool stuck = waiting_for != nullptr;
    for (int r = 0; r < (int)peers.size(); r++) {
        Peer& peer = peers[r];
        if (r == rank) { continue; }
        if (peer.left) {
            stuck = false;
            continue;
        }
        if (now - peer.heard > most) {
            end_without(strf("%s has said nothing for %d s: stopped, or cut off",
                             peer_name(r).c_str(), patience()),
                        "see whether that machine and the network are up");
        }
        stuck = stuck && peer_stuck(peer, now, most);
    }
    static double since = 0; // rank 0's own last change
    static unsigned seen = 0;
    if (seen != progress) {
        seen = progress;
        since = now;
    }
    if (rank == 0 && stuck && now - since > most) {
        const char* what = waiting_for.load();
        end_without(strf("all ranks have waited for each other for %d s (%s)", patience(),
                         what ? what : ""),
                    "see whether the network between them is up and open to MPI and NCCL; "
                    "DIST_TIMEOUT=600 waits longer");
    }
}

// Beats, listens and checks until all leave: what the thread does.
inline void watch_loop() {
    double beat = 0;
    double last = now_ms();
    while (!leaving) {
        if (now_ms() - last > 2000) { // this process was suspended: messages may wait unread
            for (auto& p : peers) { p.heard = p.changed = now_ms(); }
        }
        last = now_ms();
        std::vector<pollfd> fds;
        std::vector<int> of;
        for (int r = 0; r < (int)peers.size(); r++) {
            if (peers[r].watch < 0) { continue; }
            fds.push_back({ peers[r].watch, POLLIN, 0 });
            of.push_back(r);
        }
        poll(fds.data(), fds.size(), 100);
        for (size_t i = 0; i < fds.size() && !leaving; i++) {
            if (fds[i].revents) { watch_receive(of[i]); }
        }
        if (now_ms() - beat > 1000) {
            beat = now_ms();
            const std::string state = strf("%c%u", waiting_for ? 'w' : '-', progress.load());
            for (auto& p : peers) { watch_send(p.watch, BEAT, state); }
        }
        if (!leaving) { watch_check(); }
    }
}

inline std::thread& watch_thread() {
    static std::thread t;
    return t;
}

// Starts the thread. It blocks all signals: the main thread gets them.
inline void watch_start() {
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &before);
    watching = true;
    for (auto& p : peers) { p.heard = p.changed = now_ms(); }
    watch_thread() = std::thread(watch_loop);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    die_hook() = die_together;
}

// Says good-bye and ends the thread: this process ends in order.
inline void watch_stop() {
    if (!watching || leaving.exchange(true)) { return; }
    for (auto& p : peers) { watch_send(p.watch, BYE, ""); }
    watch_thread().join();
    die_hook() = NULL;
    watching = false;
}
} // namespace dist
#endif // DIST_WATCH_H
