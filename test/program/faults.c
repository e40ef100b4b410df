// faults.c -- a disk that fails: preloaded into the program (LD_PRELOAD) by test_faults.sh, it lets
// one call go wrong. FAULT=CALL:N:ERRNO, where CALL is open, fflush, fsync, rename or mkdir, and N
// counts the calls whose path has FAULT_PATH in it.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

// Tells whether this call is the one that fails; sets errno.
static int fails(const char* call, const char* path) {
    static int count;
    const char* fault = getenv("FAULT");
    const char* part = getenv("FAULT_PATH");
    char name[16];
    int number, error;
    if (!fault || !path) { return 0; }
    if (sscanf(fault, "%15[a-z]:%d:%d", name, &number, &error) != 3) { return 0; }
    if (strcmp(name, call) || (part && !strstr(path, part)) || ++count != number) { return 0; }
    errno = error;
    return 1;
}

static const char* path_of(int fd) {
    static char path[4096];
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    const ssize_t n = readlink(link, path, sizeof path - 1);
    if (n < 0) { return NULL; }
    path[n] = 0;
    return path;
}

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

int open(const char* path, int flags, ...) {
    va_list more;
    va_start(more, flags);
    const mode_t mode = flags & O_CREAT ? va_arg(more, mode_t) : 0;
    va_end(more);
    return fails("open", path) ? -1 : REAL(open)(path, flags, mode);
}
FILE* fopen(const char* path, const char* mode) {
    return fails("open", path) ? NULL : REAL(fopen)(path, mode);
}
int fflush(FILE* f) {
    return f && fails("fflush", path_of(fileno(f))) ? EOF : REAL(fflush)(f);
}
int fsync(int fd) { return fails("fsync", path_of(fd)) ? -1 : REAL(fsync)(fd); }
int rename(const char* from, const char* to) {
    return fails("rename", to) ? -1 : REAL(rename)(from, to);
}
int mkdir(const char* path, mode_t mode) {
    return fails("mkdir", path) ? -1 : REAL(mkdir)(path, mode);
}
