/*
test_meet.cpp -- how the processes of a run meet on a network that others use too: whoever calls the
port, whatever he says or does not say, only the processes of the run are taken, and none of them
does what only another may ask for.
*/
#include "../check.h"
#include "../../dist/processes.h"
#include <sys/resource.h>

using namespace dist;

// a process of the test, and what it wrote to stderr
struct Process {
    pid_t pid = 0;
    std::string path;
};

struct Ended {
    int code;
    long mib;                                            // the most memory it had
    std::string err;
    bool says(const char* part) const { return err.find(part) != std::string::npos; }
};

static Process start(const std::function<void()>& body) {
    Process p;
    char path[] = "/tmp/test_meet_XXXXXX";
    const int fd = mkstemp(path);
    p.path = path;
    fflush(stdout);
    p.pid = fork();
    if (p.pid == 0) {
        dup2(fd, 2);
        body();
        fflush(stderr);
        quick_exit(0);
    }
    close(fd);
    return p;
}

static Ended end(const Process& p) {
    int status = 0;
    struct rusage used = {};
    wait4(p.pid, &status, 0, &used);
    Ended e = { WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status),
                used.ru_maxrss / 1024, file_read(p.path) };
    unlink(p.path.c_str());
    return e;
}

static Place place_of(int rank, int world, int port) {
    Place p;
    p.rank = rank;
    p.world = world;
    p.job = "a job whose name is longer than any field of a header that somebody might have made "
            "for it, as those of schedulers are";
    p.token = "secret";
    p.port = port;
    return p;
}

// A rank that meets the others and adds up a number: exit status 0 if the sum is right.
static Process run_rank(int rank, int world, int port, int listener = -1) {
    return start([=] {
        meet(place_of(rank, world, port), listener);
        double x = rank + 1;
        sum(&x, 1);
        barrier();
        const bool right = x == world * (world + 1) / 2;
        watch_stop();
        quick_exit(right ? 0 : 77);
    });
}

// rank 0 of as many, at a free port
struct First {
    int port = 0;
    Process process;
    explicit First(int world) {
        const int listener = socket_listen(&port);
        process = run_rank(0, world, port, listener);
        close(listener);
    }
};

static Hello hello(int rank, int world, bool watch) {
    Hello h = { "train_sink", rank, world, watch, {}, "here" };
    hello_token(place_of(rank, world, 0), h.token);
    return h;
}

// a connection to a port on which somebody has said this
static int call(int port, const void* bytes, size_t n) {
    int fd = -1;
    for (int tries = 0; fd < 0 && tries < 100; tries++) {
        fd = socket_connect("127.0.0.1", port);
        if (fd < 0) { usleep(50000); }
    }
    CHECK(fd >= 0, "no connection to port %d", port);
    send_all(fd, bytes, n);
    return fd;
}

static void test_strangers() {
    First first(2);
    std::vector<int> open;
    auto say = [&](const void* p, size_t n) { open.push_back(call(first.port, p, n)); };
    auto say_hello = [&](const Hello& h) { say(&h, sizeof h); };
    std::string text(4096, 'A');
    say(text.data(), text.size());
    say(text.data(), sizeof(Hello));
    for (int watch = 0; watch < 2; watch++) {
        Hello h = hello(1, 2, watch);
        memset(h.host, 0x1B, sizeof h.host);             // escapes without an end
        for (auto numbers : { std::make_pair(-1, 2), { 0, 2 }, { 2, 2 }, { 1 << 30, 2 }, { 1, 3 },
                              { 1, -1 } }) {
            h.rank = numbers.first;
            h.world = numbers.second;
            say_hello(h);
        }
        h = hello(1, 2, watch);
        h.token[1]++;                                    // another run's
        say_hello(h);
        h = hello(1, 2, watch);
        memset(h.magic, 0xFF, sizeof h.magic);
        say_hello(h);
        h = hello(1, 2, watch);
        say(&h, sizeof h - 1);                           // and no more
    }
    // who says nothing keeps nobody waiting: they hang on until the run is over
    for (int i = 0; i < CALLERS + 50; i++) { say("", 0); }
    const Process second = run_rank(1, 2, first.port);
    const Ended one = end(second), zero = end(first.process);
    CHECK(one.code == 0 && zero.code == 0, "among strangers: rank 0 %d %s, rank 1 %d %s", zero.code,
          zero.err.c_str(), one.code, one.err.c_str());
    for (int fd : open) { close(fd); }
}

static void test_twice() {
    First first(3);
    const Process second = run_rank(1, 3, first.port);
    usleep(500000);
    const Ended again = end(run_rank(1, 3, first.port));
    CHECK(again.code == EXIT_USER && again.says("two processes are rank 1"),
          "a rank twice: %d %s", again.code, again.err.c_str());
    const Ended other = end(run_rank(2, 4, first.port));
    CHECK(other.code == EXIT_USER && other.says("there are 4 processes, rank 0 that there are 3"),
          "another world: %d %s", other.code, other.err.c_str());
    const Process third = run_rank(2, 3, first.port);
    for (auto& p : { first.process, second, third }) {
        const Ended e = end(p);
        CHECK(e.code == 0, "after they were refused: %d %s", e.code, e.err.c_str());
    }
}

static void test_late() {
    setenv("DIST_TIMEOUT", "2", 1);
    First first(3);
    const Hello h = hello(1, 7, false);
    const int fd = call(first.port, &h, sizeof h);
    const Ended e = end(first.process);
    CHECK(e.code == EXIT_MACHINE && e.says("have not come: 1 2") && e.says("there are 7 processes"),
          "nobody came: %d %s", e.code, e.err.c_str());
    close(fd);
    setenv("DIST_TIMEOUT", "20", 1);
}

// rank 1 is taken, and then says on one of its connections what it should not, and `mib` more
static Ended rank_0_hears(bool watch, const std::string& message, int mib) {
    First first(2);
    Hello h = hello(1, 2, false);
    memcpy(h.host, "\x1b]0;PWNED\x07", 11);
    const int talk = call(first.port, &h, sizeof h);
    h.watch = true;
    const int beat = call(first.port, &h, sizeof h);
    uint32_t number;
    std::string host;
    CHECK(receive_message(talk, &number, &host, 1000) && number == TAKEN, "rank 1 is not taken");
    send_all(watch ? beat : talk, message.data(), message.size());
    const std::string more(1 << 20, 'x');
    while (mib-- > 0 && send_all(watch ? beat : talk, more.data(), more.size())) {}
    usleep(700000);
    close(beat);
    close(talk);
    return end(first.process);
}

static std::string message_of(uint32_t number, uint32_t bytes, const std::string& text) {
    const Head head = { number, bytes };
    return std::string((const char*)&head, sizeof head) + text;
}

static void test_words() {
    struct { const char* what; bool watch; std::string message; const char* says; int mib; }
    cases[] = {
        { "END", true, message_of(END, 1, "0"), "is gone", 0 },
        { "FAILED as if all were well", true, message_of(FAILED, 7, "0\nwhat\n"), "what", 0 },
        { "FAILED with a strange code", true, message_of(FAILED, 9, "999\nwhat\n"), "what", 0 },
        { "FAILED with escapes", true, message_of(FAILED, 17, "1\n\x1b]0;PWNED\x07 \xc2\x9b" "1m"),
          "PWNED", 0 },
        { "FAILED without a line", true, message_of(FAILED, 0, ""), "error: rank 1", 0 },
        { "a message of 1 GiB", true, message_of(BEAT, 1u << 30, "x"), "is gone", 500 },
        { "a message of 64 KiB and one", true,
          message_of(BEAT, WATCH_BYTES + 1, std::string(WATCH_BYTES + 1, 'x')), "is gone", 0 },
        { "a sum of 1 GiB", false, message_of(1, 1u << 30, "x"), "rank 1", 500 },
        { "a sum of 9 bytes", false, message_of(1, 9, "123456789"), "rank 1", 0 },
        { "an unknown word", true, message_of(77, 3, "abc"), "is gone", 0 },
    };
    for (auto& c : cases) {
        const Ended e = rank_0_hears(c.watch, c.message, c.mib);
        CHECK(e.code == EXIT_MACHINE && e.says(c.says) && !e.says("\x1b") && !e.says("\x07") &&
                  !e.says("\xc2\x9b") && e.mib < 300,
              "%s: status %d, %ld MiB, %s", c.what, e.code, e.mib, printable(e.err, "\n").c_str());
    }
}

// somebody else listens where rank 0 should be
static void test_false_first() {
    for (const std::string& answer : { message_of(TAKEN, 1u << 30, std::string(100000, 'x')),
                                       message_of(REFUSED, 10, "\x1b]0;PWNED\x07"),
                                       std::string("HTTP/1.0 400 Bad Request\r\n\r\n") }) {
        int port = 0;
        const int listener = socket_listen(&port);
        const Process p = run_rank(1, 2, port);
        const int talk = accept(listener, NULL, NULL), watch = accept(listener, NULL, NULL);
        send_all(talk, answer.data(), answer.size());
        close(talk);
        close(watch);
        close(listener);
        const Ended e = end(p);
        CHECK((e.code == EXIT_MACHINE || e.code == EXIT_USER) && !e.says("\x1b") && e.mib < 300,
              "a false rank 0: status %d, %ld MiB, %s", e.code, e.mib,
              printable(e.err, "\n").c_str());
    }
}

// how many processes srun has started on this machine
static void test_slurm() {
    CHECK(slurm_tasks("8(x4)", 0) == 8 && slurm_tasks("8(x4)", 3) == 8, "8(x4)");
    CHECK(slurm_tasks("8(x2),7,1(x3)", 1) == 8 && slurm_tasks("8(x2),7,1(x3)", 2) == 7 &&
              slurm_tasks("8(x2),7,1(x3)", 5) == 1,
          "8(x2),7,1(x3)");
    CHECK(!slurm_tasks("8(x2),7", 3) && !slurm_tasks("", 0) && !slurm_tasks("x", 0),
          "a node that it does not name");
    setenv("SLURM_PROCID", "9", 1);
    setenv("SLURM_STEP_NUM_TASKS", "12", 1);
    setenv("SLURM_LOCALID", "1", 1);
    setenv("SLURM_NODEID", "1", 1);
    setenv("SLURM_STEP_TASKS_PER_NODE", "8,4", 1);
    const Place p = place_of_environment();
    CHECK(p.launcher == "srun" && p.world == 12 && p.local == 1 && p.neighbors == 4,
          "12 processes of srun, 8 and 4: %d of %d here", p.neighbors, p.world);
    for (auto name : { "PROCID", "STEP_NUM_TASKS", "LOCALID", "NODEID", "STEP_TASKS_PER_NODE" }) {
        unsetenv((std::string("SLURM_") + name).c_str());
    }
}

int main() {
    setenv("DIST_TIMEOUT", "20", 1);
    test_slurm();
    test_strangers();
    test_twice();
    test_late();
    test_words();
    test_false_first();
    return check_done();
}
