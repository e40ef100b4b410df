/*
dist/meet.h -- how the processes find each other: rank 0 listens, the others call, twice each, once
for the talk and once for the watch.
*/
#ifndef DIST_MEET_H
#define DIST_MEET_H
#include "../core/common.h"
#include "place.h"
#include "sockets.h"
#include "watch.h"

namespace dist {
// What a process says first. Whoever can reach the port may say it, so nothing in it is trusted
// before `token` is that of this run.
struct Hello {
    char magic[16];
    int rank, world;
    int watch;                          // 1: this connection is the watch, else the talk
    uint64_t token[2];
    char host[128];
};
enum Welcome : uint32_t { TAKEN, REFUSED }; // rank 0's answer, on the talk: its host, or why not

// Makes the token, the same for all processes of a run, of its job and DIST_TOKEN.
inline void hello_token(const Place& p, uint64_t token[2]) {
    const std::string text = p.job + '\n' + p.token;
    token[0] = hash_bytes(text.data(), text.size());
    token[1] = hash_bytes(text.data(), text.size(), mix64(token[0], text.size()));
}

// A connection that has not said all of its Hello yet.
struct Caller {
    int fd;
    double since;                       // ms
    std::string said;                   // the bytes so far
};
enum { CALLERS = 256, CALLER_MS = 5000 };       // at most; how long one may take

// Returns the connection of a peer that a Hello is for.
inline int* connection_of(const Hello& h) {
    Peer& peer = peers[h.rank];
    return h.watch ? &peer.watch : &peer.talk;
}

// Says what is wrong with a Hello; "" if it is one of the processes that are missing.
inline std::string hello_fault(const Place& p, const Hello& h) {
    if (h.world != p.world || h.rank < 1 || h.rank >= p.world) {
        return strf("rank %d (%s) says that there are %d processes, rank 0 that there are %d: give "
                    "all of them the same WORLD_SIZE",
                    h.rank, h.host, h.world, p.world);
    }
    if (*connection_of(h) >= 0) {
        return strf("two processes are rank %d, one of them on %s: give each its own RANK",
                    h.rank, h.host);
    }
    return "";
}

// Takes a caller that has said its Hello, or closes the connection. Returns whether it took it;
// *refused: why one of ours was not taken.
inline bool meet_one(const Place& p, const Caller& c, std::string* refused) {
    Hello h;
    uint64_t token[2];
    memcpy(&h, c.said.data(), sizeof h);
    h.host[sizeof h.host - 1] = 0;
    hello_token(p, token);
    if (memcmp(h.magic, "train_sink", 11) || memcmp(h.token, token, sizeof token)) {
        close(c.fd); // a stranger, or another run's
        return false;
    }
    const std::string fault = hello_fault(p, h);
    fcntl(c.fd, F_SETFL, fcntl(c.fd, F_GETFL) & ~O_NONBLOCK);
    if (!fault.empty()) {
        *refused = fault;
        if (!h.watch) { send_message(c.fd, REFUSED, printable(fault)); }
        close(c.fd);
        return false;
    }
    const int on = 1;
    setsockopt(c.fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    socket_wait(c.fd, h.watch ? patience() : 0);
    *connection_of(h) = c.fd;
    peers[h.rank].host = printable(h.host);
    return true;
}

// Reads what a caller says; returns false when there is no more to read from it.
inline bool caller_read(Caller* c) {
    char bytes[sizeof(Hello)];
    const ssize_t n = recv(c->fd, bytes, sizeof bytes - c->said.size(), 0);
    if (n < 0) { return errno == EAGAIN || errno == EINTR; }
    c->said.append(bytes, n);
    return n > 0;
}

// Dies because some ranks have not come in time, and says which.
[[noreturn]] inline void meet_late(const Place& p, const std::string& refused) {
    std::string who;
    for (int r = 1; r < p.world; r++) {
        if (peers[r].watch < 0 || peers[r].talk < 0) { who += strf(" %d", r); }
    }
    const std::string also = refused.empty() ? "" : "; refused: " + refused;
    die(EXIT_MACHINE,
        strf("%d processes were started, and after %d s these ranks have not come:", p.world,
             patience()) +
            who + also,
        strf("see whether they run and can reach %s port %d; DIST_TIMEOUT=300 waits longer",
             p.address.c_str(), p.port));
}

// Accepts one more caller. If there are too many, closes the one that has waited longest.
inline void meet_accept(int listener, std::vector<Caller>* callers) {
    const int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0) { return; }
    if (callers->size() == CALLERS) {
        close(callers->front().fd);
        callers->erase(callers->begin());
    }
    callers->push_back({ fd, now_ms(), "" });
}

// Waits, as rank 0, until all have come, each twice. It listens to all callers at once, so that a
// silent one keeps nobody waiting.
inline void meet_all(const Place& p, int listener) {
    Countdown wait(patience());
    std::vector<Caller> callers;
    std::string refused;
    int missing = 2 * (p.world - 1);
    while (missing > 0) {
        std::vector<pollfd> fds = { { listener, POLLIN, 0 } };
        for (auto& c : callers) { fds.push_back({ c.fd, POLLIN, 0 }); }
        if (poll(fds.data(), fds.size(), 100) < 0) { continue; }
        if (wait.over()) { meet_late(p, refused); }
        std::vector<Caller> still;
        for (size_t i = 0; i < callers.size(); i++) {
            Caller& c = callers[i];
            const bool open = !fds[i + 1].revents || caller_read(&c);
            if (c.said.size() == sizeof(Hello)) {
                missing -= meet_one(p, c, &refused);
            } else if (open && now_ms() - c.since < CALLER_MS) {
                still.push_back(c);
            } else {
                close(c.fd);
            }
        }
        callers = still;
        if (fds[0].revents) { meet_accept(listener, &callers); }
    }
    for (auto& c : callers) { close(c.fd); }
    for (int r = 1; r < p.world; r++) { send_message(peers[r].talk, TAKEN, host_name()); }
}

// Reads rank 0's answer to this rank.
inline void meet_answer(const Place& p) {
    Peer& first = peers[0];
    uint32_t number = REFUSED;
    std::string text;
    socket_wait(first.talk, patience() + 10);
    const bool answered = receive_message(first.talk, &number, &text, WATCH_BYTES);
    if (answered && number == REFUSED) {
        die(EXIT_USER, "rank 0 refuses this process: " + text, "start all ranks again");
    }
    if (!answered) {
        if (p.rank == 1) {
            fprintf(stderr, "error: rank 0 at %s port %d ended before all had come\n",
                    p.address.c_str(), p.port);
        }
        quick_exit(EXIT_MACHINE);
    }
    first.host = printable(text.substr(0, 127));
    socket_wait(first.talk, 0);
    socket_wait(first.watch, patience());
}

// Connects, as another rank, to rank 0, which may start later.
inline void meet_first(const Place& p) {
    Countdown wait(patience() + 1 + std::min(p.rank, 5));        // the lowest rank says it
    Peer& first = peers[0];
    for (int watch = 0; watch < 2;) {
        Hello h = { "train_sink", p.rank, p.world, watch, {}, "" };
        hello_token(p, h.token);
        snprintf(h.host, sizeof h.host, "%s", host_name().c_str());
        const int fd = socket_connect(p.address, p.port);
        if (fd >= 0 && send_all(fd, &h, sizeof h)) {
            if (watch) { first.watch = fd; }
            else       { first.talk = fd; }
            watch++;
            continue;
        }
        if (fd >= 0) { close(fd); }
        if (wait.over()) {
            die(EXIT_MACHINE,
                strf("rank %d (%s) cannot reach rank 0 at %s port %d (%s)", p.rank,
                     host_name().c_str(), p.address.c_str(), p.port, strerror(errno)),
                "set MASTER_ADDR to the name of rank 0's machine on all ranks");
        }
        usleep(100000);
    }
    meet_answer(p);
}

// Brings all processes of the run together; from here on they know each other.
inline void meet(const Place& p, int listener) {
    rank = p.rank;
    world = p.world;
    local = p.local;
    neighbors = p.neighbors;
    peers.resize(rank == 0 ? world : 1);
    peers[0].host = host_name();
    if (rank == 0) {
        meet_all(p, listener);
        close(listener);
    } else {
        meet_first(p);
    }
    if (rank > 0 && !freopen("/dev/null", "w", stdout)) {
        die(EXIT_MACHINE, "/dev/null: cannot open");
    }
    watch_start();
    atexit(watch_stop);
}
} // namespace dist
#endif // DIST_MEET_H
