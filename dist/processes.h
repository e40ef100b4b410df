/*
dist/processes.h -- who the other processes are, and what they tell each other besides tensors.

Every process knows its rank from what started it: mpirun, srun or torchrun leave it in the
environment. Each then has two TCP connections to rank 0:

    talk     the main thread's: small messages in one order, the same on all ranks (sums, flags,
             "shall we stop?")
    watch    a thread's at either end: a beat a second, an error on its way to the screen, the end

So a process that dies, or falls silent, ends all of them, and one error says which it was. Tensors
travel by MPI or NCCL.

    1 place        rank and world size, from the environment
    2 sockets
    3 watch        one error, one end
    4 meeting      how the processes find each other
    5 talk         sum, any, gather, spread, agree
*/
#ifndef DIST_PROCESSES_H
#define DIST_PROCESSES_H
#include "../common.h"
#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <atomic>
#include <mutex>
#include <thread>

namespace dist {
inline int rank = 0, world = 1;       // this process, of how many
inline int local = 0, neighbors = 1; // the same among those on this machine

// ----------------------------------------------------------------------------
// 1 place

struct Place {
    int rank = 0, world = 1, local = 0, neighbors = 1;
    std::string launcher;               // mpirun, srun, torchrun, or "" if nothing started many
    std::string job;                   // what tells this run's processes from another's
    std::string token;                 // DIST_TOKEN: what a stranger does not know
    std::string address = "127.0.0.1"; // rank 0's
    int port = 29501;
};

inline const char* environment(const char* key) {
    const char* v = getenv(key);
    return v ? v : "";
}

// a whole number of the environment
inline int environment_int(const char* key, int otherwise) {
    long v = otherwise;
    const std::string text = environment(key);
    if (!text.empty() && (!parse_long(text, &v) || v < 0 || v > 1 << 24)) {
        die(EXIT_USER, strf("%s: got '%s', wanted a number", key, text.c_str()),
            strf("unset %s, or mend it", key));
    }
    return (int)v;
}

// seconds after which a process that is not there, or says nothing, is given up
inline int patience() { return std::max(1, environment_int("DIST_TIMEOUT", 45)); }

// so many seconds more; a while in which this process was stopped, as on a laptop that sleeps, does
// not count
struct Countdown {
    double left, last = now_ms();
    explicit Countdown(double seconds) : left(seconds * 1e3) {}
    bool over() {
        const double now = now_ms();
        left -= std::min(now - last, 500.0);
        last = now;
        return left <= 0;
    }
};

// what a launcher calls rank, world size, the same on this machine, and the job
struct Launcher {
    const char *name, *rank, *world, *local, *neighbors, *job;
};
static const Launcher LAUNCHERS[] = {
    { "torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "TORCHELASTIC_RUN_ID" },
    { "mpirun", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
      "OMPI_COMM_WORLD_LOCAL_SIZE", "PMIX_NAMESPACE" }, // OpenMPI
    { "mpirun", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS",
      "PMI_JOBID" }, // MPICH, Intel
    { "srun", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", "SLURM_NTASKS_PER_NODE",
      "SLURM_JOB_ID" },
};

// rank, world size and where rank 0 is; one process if nothing started more
inline Place place_of_environment() {
    Place p;
    for (auto& s : LAUNCHERS) {
        if (!*environment(s.rank) || !*environment(s.world)) { continue; }
        p.launcher = s.name;
        p.rank = environment_int(s.rank, 0);
        p.world = environment_int(s.world, 1);
        p.local = environment_int(s.local, p.rank);
        p.neighbors = environment_int(s.neighbors, p.world);
        p.job = environment(s.job);
        break;
    }
    const std::string slurm_node = environment("SLURM_LAUNCH_NODE_IPADDR"),
                      master = environment("MASTER_ADDR");
    if (p.launcher == "srun" && !slurm_node.empty()) { p.address = slurm_node; }
    if (!master.empty()) { p.address = master; }
    p.token = environment("DIST_TOKEN");
    // torchrun itself listens on MASTER_PORT
    p.port = environment_int("MASTER_PORT", p.port - 1) + 1;
    if (p.world < 1 || p.rank >= p.world) {
        die(EXIT_USER,
            strf("%s: got rank %d of %d processes, wanted 0 to %d", p.launcher.c_str(), p.rank,
                 p.world, p.world - 1),
            "RANK counts from 0; start with torchrun, mpirun or srun");
    }
    return p;
}

// ----------------------------------------------------------------------------
// 2 sockets

inline bool send_all(int fd, const void* p, size_t n) {
    for (size_t at = 0; at < n;) {
        const ssize_t k = send(fd, (const char*)p + at, n - at, MSG_NOSIGNAL);
        if (k < 0 && errno == EINTR) { continue; }
        if (k <= 0) { return false; }
        at += k;
    }
    return true;
}

inline bool receive_all(int fd, void* p, size_t n) {
    for (size_t at = 0; at < n;) {
        const ssize_t k = recv(fd, (char*)p + at, n - at, 0);
        if (k < 0 && errno == EINTR) { continue; }
        if (k <= 0) { return false; }
        at += k;
    }
    return true;
}

// a message: what it is, its length, its bytes. `number` is a kind on the watch, a count on the
// talk
struct Head {
    uint32_t number, bytes;
};

inline bool send_message(int fd, uint32_t number, const std::string& text) {
    const Head head = { number, (uint32_t)text.size() };
    std::string all((const char*)&head, sizeof head);
    all += text;
    return send_all(fd, all.data(), all.size());
}

// most: bytes that the other end may send. Room is made for what has come, not for what is said to
// come
inline bool receive_message(int fd, uint32_t* number, std::string* text, size_t most) {
    Head head;
    text->clear();
    if (!receive_all(fd, &head, sizeof head) || head.bytes > most) { return false; }
    *number = head.number;
    while (text->size() < head.bytes) {
        const size_t at = text->size(), n = std::min<size_t>(head.bytes - at, 1 << 20);
        text->resize(at + n);
        if (!receive_all(fd, &(*text)[at], n)) { return false; }
    }
    return true;
}

// how long a receive on this socket waits; 0: for ever
inline void socket_wait(int fd, int seconds) {
    const timeval wait = { seconds, 0 };
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof wait);
}

inline int socket_new() {
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), on = 1;
    if (fd < 0) { die(EXIT_MACHINE, strf("cannot make a socket (%s)", strerror(errno))); }
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    return fd;
}

// rank 0 listens on *port; 0: one that is free
inline int socket_listen(int* port) {
    const int fd = socket_new();
    sockaddr_in at = {};
    at.sin_family = AF_INET;
    at.sin_addr.s_addr = htonl(INADDR_ANY);
    at.sin_port = htons((uint16_t)*port);
    socklen_t length = sizeof at;
    if (bind(fd, (sockaddr*)&at, sizeof at) || listen(fd, 1024) ||
        getsockname(fd, (sockaddr*)&at, &length)) {
        die(EXIT_MACHINE,
            strf("port %d of %s: cannot listen (%s)", *port, host_name().c_str(), strerror(errno)),
            strf("another run is using it: set MASTER_PORT to another number than %d on all ranks",
                 *port - 1));
    }
    *port = ntohs(at.sin_port);
    return fd;
}

// a connection to address:port, or -1
inline int socket_connect(const std::string& address, int port) {
    addrinfo want = {}, *found = NULL;
    want.ai_family = AF_INET;
    want.ai_socktype = SOCK_STREAM;
    if (getaddrinfo(address.c_str(), strf("%d", port).c_str(), &want, &found)) { return -1; }
    int fd = socket_new();
    if (connect(fd, found->ai_addr, found->ai_addrlen)) {
        close(fd);
        fd = -1;
    }
    freeaddrinfo(found);
    return fd;
}

// ----------------------------------------------------------------------------
// 3 watch

struct Peer {
    int talk = -1, watch = -1;
    std::string host;
    double heard = 0, changed = 0; // when it last said anything; when what it said last changed
    std::string beat;              // what it said
    bool left = false;             // it is done, in order
};
inline std::vector<Peer> peers; // rank 0 knows all of them; the others only peers[0]

enum WatchMessage : uint32_t { BEAT, FAILED, END, BYE };
enum { WATCH_BYTES = 1 << 16, TEXT_BYTES = 1 << 20 }; // of a message on the watch; of a text
inline std::mutex watch_lock; // one message at a time
inline std::atomic<bool> ending(false), leaving(false), watching(false);
inline std::atomic<const char*> waiting_for(nullptr); // what the main thread wants of other ranks
inline std::atomic<unsigned> progress(0);             // how often that has changed

// as long as it lives, the main thread waits for other ranks
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

// Rank 0 prints the error and ends the others: the first who comes here; all that fail later fail
// because of it.
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

// die() of any rank: rank 0 prints, another's error travels to rank 0 first
[[noreturn]] inline void die_together(int code, const std::string& what,
                                      const std::string& message) {
    if (rank == 0 || !watching) { end_all(code, message, true); }
    const std::string said = message.substr(std::min(message.size(), message.find(what)));
    watch_send(peers[0].watch, FAILED, strf("%d\n", code) + said.substr(0, WATCH_BYTES - 16));
    sleep(10); // the watch gets END and ends this process
    end_all(code, message, true);
}

inline const char* last_whole() {
    return "the last checkpoint is whole: start all ranks again with --resume";
}

// something is wrong with the others that none of them says. If it is rank 0, rank 1 speaks
[[noreturn]] inline void end_without(const std::string& what, const std::string& hint) {
    const std::string message = "error: " + what + "\n---> HINT: " + hint + "; " + last_whole();
    end_all(EXIT_MACHINE, message + "\n", rank <= 1);
}

// the exit status at the start of a message, one of ours
inline int exit_code(const std::string& text) {
    const int code = atoi(text.c_str());
    return code >= 0 && code <= EXIT_DIVERGED ? code : (int)EXIT_MACHINE;
}

// one message of rank r, to rank 0, or of rank 0
inline void watch_receive(int r) {
    Peer& peer = peers[r];
    uint32_t kind;
    std::string text;
    if (!receive_message(peer.watch, &kind, &text, WATCH_BYTES)) {
        if (!peer.left && !leaving) {
            usleep(200000); // what ends others, too, may be on the way
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
    // only rank 0 ends others, and only to rank 0 do others say that they have failed
    if (kind == END && rank > 0) { end_all(exit_code(text), "", false); }
    if (kind == FAILED && rank == 0) {
        usleep(300000); // what went wrong on all ranks is best said by rank 0 itself
        const std::string said = printable(text.substr(std::min(text.size(), text.find('\n') + 1)),
                                           "\n");
        end_all(std::max(1, exit_code(text)), "error: " + peer_name(r) + ": " + said, true);
    }
}

// has somebody fallen silent? do all wait for each other?
inline void watch_check() {
    const double now = now_ms(), most = patience() * 1e3;
    bool stuck = waiting_for != nullptr;
    for (int r = 0; r < (int)peers.size(); r++) {
        Peer& peer = peers[r];
        if (r == rank || peer.left) {
            stuck = stuck && r == rank;
            continue;
        }
        if (now - peer.heard > most) {
            end_without(strf("%s has said nothing for %d s: stopped, or cut off",
                             peer_name(r).c_str(), patience()),
                        "see whether that machine and the network are up");
        }
        const bool waits = peer.beat.size() > 1 && peer.beat[0] == 'w';
        stuck = stuck && waits && now - peer.changed > most;
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
                    "is the network between them up, and open to MPI and NCCL? "
                    "DIST_TIMEOUT=600 waits longer");
    }
}

// the thread: beats, listens, checks, until all leave
inline void watch_loop() {
    double beat = 0, last = now_ms();
    while (!leaving) {
        if (now_ms() - last > 2000) { // it was stopped, and may be behind with its reading
            for (auto& p : peers) { p.heard = p.changed = now_ms(); }
        }
        last = now_ms();
        std::vector<pollfd> fds;
        std::vector<int> of;
        for (int r = 0; r < (int)peers.size(); r++) {
            if (peers[r].watch >= 0) {
                fds.push_back({ peers[r].watch, POLLIN, 0 });
                of.push_back(r);
            }
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

// signals are the main thread's
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

// this process ends in order: nobody need miss it
inline void watch_stop() {
    if (!watching || leaving.exchange(true)) { return; }
    for (auto& p : peers) { watch_send(p.watch, BYE, ""); }
    watch_thread().join();
    die_hook() = NULL;
    watching = false;
}

// ----------------------------------------------------------------------------
// 4 meeting

// What a process says first. Whoever can reach the port may say it: nothing in it is trusted before
// `token` is that of this run.
struct Hello {
    char magic[16];
    int rank, world, watch;
    uint64_t token[2];
    char host[128];
};
enum Welcome : uint32_t { TAKEN, REFUSED }; // rank 0's answer, on the talk: its host, or why not

// the same for all processes of a run: of its job and DIST_TOKEN
inline void hello_token(const Place& p, uint64_t token[2]) {
    const std::string text = p.job + '\n' + p.token;
    token[0] = hash_bytes(text.data(), text.size());
    token[1] = hash_bytes(text.data(), text.size(), mix64(token[0], text.size()));
}

// a connection that has not said all of its Hello yet
struct Caller {
    int fd;
    double since;
    std::string said;
};
enum { CALLERS = 256, CALLER_MS = 5000 };

// What is wrong with a Hello; "" if it is one of the processes that are missing.
inline std::string hello_fault(const Place& p, const Hello& h) {
    if (h.world != p.world || h.rank < 1 || h.rank >= p.world) {
        return strf("rank %d (%s) says that there are %d processes, rank 0 that there are %d: give "
                    "all of them the same WORLD_SIZE",
                    h.rank, h.host, h.world, p.world);
    }
    if ((h.watch ? peers[h.rank].watch : peers[h.rank].talk) >= 0) {
        return strf("two processes are rank %d, one of them on %s: give each a RANK of its own",
                    h.rank, h.host);
    }
    return "";
}

// Takes a caller that has said its Hello, or closes the connection. *refused: why one of ours was
// not taken. Says whether it was.
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
    (h.watch ? peers[h.rank].watch : peers[h.rank].talk) = c.fd;
    peers[h.rank].host = printable(h.host);
    return true;
}

// Reads what a caller says; false when there is no more to read from it.
inline bool caller_read(Caller* c) {
    char bytes[sizeof(Hello)];
    const ssize_t n = recv(c->fd, bytes, sizeof bytes - c->said.size(), 0);
    if (n < 0) { return errno == EAGAIN || errno == EINTR; }
    c->said.append(bytes, n);
    return n > 0;
}

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
        strf("see whether they run, and reach %s port %d; DIST_TIMEOUT=300 waits longer",
             p.address.c_str(), p.port));
}

// Accepts one more caller. Of too many that say nothing, the one that has waited longest goes.
inline void meet_accept(int listener, std::vector<Caller>* callers) {
    const int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0) { return; }
    if (callers->size() == CALLERS) {
        close(callers->front().fd);
        callers->erase(callers->begin());
    }
    callers->push_back({ fd, now_ms(), "" });
}

// rank 0: until all have come, each twice. It listens to all callers at once, so that one that says
// nothing keeps nobody waiting
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

// rank 0's answer to this rank
inline void meet_answer(const Place& p) {
    Peer& first = peers[0];
    uint32_t number = REFUSED;
    std::string text;
    socket_wait(first.talk, patience() + 10);
    const bool answered = receive_message(first.talk, &number, &text, WATCH_BYTES);
    if (answered && number == REFUSED) {
        die(EXIT_USER, "rank 0 refuses this process: " + text, "start all ranks anew");
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

// another rank: to rank 0, which may start later
inline void meet_first(const Place& p) {
    Countdown wait(patience() + 1 + std::min(p.rank, 5));        // the lowest rank says it
    Peer& first = peers[0];
    for (int watch = 0; watch < 2;) {
        Hello h = { "train_sink", p.rank, p.world, watch, {}, "" };
        hello_token(p, h.token);
        snprintf(h.host, sizeof h.host, "%s", host_name().c_str());
        const int fd = socket_connect(p.address, p.port);
        if (fd >= 0 && send_all(fd, &h, sizeof h)) {
            (watch ? first.watch : first.talk) = fd;
            watch++;
            continue;
        }
        if (fd >= 0) { close(fd); }
        if (wait.over()) {
            die(EXIT_MACHINE,
                strf("rank %d (%s) does not reach rank 0 at %s port %d (%s)", p.rank,
                     host_name().c_str(), p.address.c_str(), p.port, strerror(errno)),
                "set MASTER_ADDR to the name of rank 0's machine on all ranks");
        }
        usleep(100000);
    }
    meet_answer(p);
}

// all processes of the run know each other from here on
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

// ----------------------------------------------------------------------------
// 5 talk. Every rank calls these in the same order; without other processes they do nothing.

inline uint32_t talk_count;

// the other end is closed: the watch knows why, and ends this process
[[noreturn]] inline void talk_lost(int r) {
    sleep(5);
    die(EXIT_MACHINE, peer_name(r) + " has closed its connection", last_whole());
}

// one text of each rank -> rank 0 has them all, in the order of the ranks; the others have nothing
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

// rank 0's text -> all
inline void spread(std::string* text, const char* what, size_t most = TEXT_BYTES) {
    const Waiting wait(what);
    uint32_t number;
    for (int r = 1; rank == 0 && r < world; r++) {
        if (!send_message(peers[r].talk, talk_count, *text)) { talk_lost(r); }
    }
    if (rank > 0 && !receive_message(peers[0].talk, &number, text, most)) { talk_lost(0); }
}

// x (n) += the others' x, in the order of the ranks: the same bits on all
inline void sum(double* x, size_t n) {
    if (world == 1) { return; }
    std::string bytes((const char*)x, n * sizeof *x);
    const std::vector<std::string> all = gather(bytes, "a sum over ranks", bytes.size());
    if (rank == 0) {
        std::vector<double> one(n);
        for (int r = 1; r < world; r++) {
            if (all[r].size() != bytes.size()) {
                die(EXIT_MACHINE, peer_name(r) + " sums something else", last_whole());
            }
            memcpy(one.data(), all[r].data(), bytes.size());
            for (size_t i = 0; i < n; i++) { x[i] += one[i]; }
        }
        bytes.assign((const char*)x, n * sizeof *x);
    }
    spread(&bytes, "a sum over ranks", n * sizeof *x);
    if (bytes.size() != n * sizeof *x) { talk_lost(0); }
    memcpy(x, bytes.data(), bytes.size());
}

// does any rank say so?
inline bool any(bool mine) {
    double x = mine;
    sum(&x, 1);
    return x > 0;
}

inline void barrier() { any(false); }

// the smallest of all ranks' numbers
inline long least(long mine) {
    std::vector<double> all(world);
    all[rank] = (double)mine;
    sum(all.data(), all.size());
    return (long)*std::min_element(all.begin(), all.end());
}

// ends all ranks unless each says the same of `what`
inline void agree(const char* what, const std::string& mine, const char* hint) {
    const std::vector<std::string> all = gather(mine, what);
    for (int r = 1; r < (int)all.size(); r++) {
        if (all[r] == all[0]) { continue; }
        size_t i = 0; // where they part, with something before it
        while (i < all[r].size() && i < all[0].size() && all[r][i] == all[0][i]) { i++; }
        i = i < 30 ? 0 : i - 30;
        die(EXIT_USER,
            strf("%s has another %s than rank 0: got ..%s.., wanted ..%s..", peer_name(r).c_str(),
                 what, all[r].substr(i, 100).c_str(), all[0].substr(i, 100).c_str()),
            hint);
    }
}
} // namespace dist
#endif // DIST_PROCESSES_H
