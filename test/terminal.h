// terminal.h -- a program on a terminal, for tests of what it writes there
#ifndef TERMINAL_H
#define TERMINAL_H
#include "check.h"
#include <sys/ioctl.h>
#include <termios.h>

// Runs a command on a terminal of so many columns. Returns all that it writes.
static inline std::string on_terminal(const std::string& command, int columns = 80) {
    const int master = posix_openpt(O_RDWR | O_NOCTTY);
    if (!CHECK(master >= 0 && !grantpt(master) && !unlockpt(master), "no terminal")) { return ""; }
    const struct winsize size = { 24, (unsigned short)columns, 0, 0 };
    const std::string name = ptsname(master);
    fflush(stdout);
    const pid_t child = fork();
    if (child == 0) {
        setsid();
        const int slave = open(name.c_str(), O_RDWR);
        ioctl(slave, TIOCSWINSZ, &size);
        for (int fd : { 0, 1, 2 }) { dup2(slave, fd); }
        execl("/bin/sh", "sh", "-c", command.c_str(), (char*)NULL);
        _exit(127);
    }
    std::string all;
    char buffer[4096];
    for (ssize_t n; (n = read(master, buffer, sizeof buffer)) > 0;) { all.append(buffer, n); }
    waitpid(child, NULL, 0);
    close(master);
    return all;
}
#endif // TERMINAL_H
