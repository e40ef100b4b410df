/*
base/lock.cpp -- takes and releases flocks. Whoever finds a lock file whose owner has ended takes
it over.
*/
#include "lock.h"
#include <signal.h>
#include <sys/file.h>

// the locks that this process has taken, and those of the process that it is a child of
static std::vector<DirLock> taken;

// Tells whether fd is still the file that `path` names: its last owner may have removed it.
static bool is_still(int fd, const std::string& path) {
    struct stat mine, there;
    return !fstat(fd, &mine) && !lstat(path.c_str(), &there) && same_file(mine, there);
}

// Removes the file of a lock that this process still holds.
static void lock_remove(const DirLock& lock) {
    if (lock.process == getpid() && is_still(lock.fd, lock.path)) { unlink(lock.path.c_str()); }
}

static void unlock_all() {
    for (auto& lock : taken) { lock_remove(lock); }
}

// What a lock file says: "PROCESS HOST\n", or "PROCESS\n" in older runs.
struct Owner { long process = 0; std::string host; bool ours = false; };

static Owner lock_owner(int fd) {
    Owner o;
    char text[512];
    const ssize_t n = pread(fd, text, sizeof text, 0);
    if (n == 0) { o.ours = true; }                       // its maker was killed before it wrote
    if (n <= 0 || n == (ssize_t)sizeof text || text[n - 1] != '\n') { return o; }
    const std::string line(text, n - 1);
    const size_t space = line.find(' ');
    if (space != line.npos) { o.host = line.substr(space + 1); }
    o.ours = parse_long(line.substr(0, space), &o.process) && o.process > 0 &&
             !contains(line, "\n");
    return o;
}

static std::string owner_text(const Owner& o) {
    if (!o.process) { return "another process"; }
    const std::string on = o.host.empty() ? "" : " on " + o.host;
    return strf("process %ld", o.process) + on;
}

// Opens the lock file, or makes it; -1 if there is no such directory. Never follows a link, and
// takes no file with other content: then it dies or, unless strict, gives -1.
static int lock_open(const std::string& path, bool strict) {
    const int flags = O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC;
    const int fd = open(path.c_str(), flags, 0666);
    struct stat st = {};
    if (fd < 0 && (errno == ENOENT || !strict)) { return fd; }
    if (fd < 0 && errno != ELOOP && errno != ENXIO && errno != EISDIR) {
        die(blame(errno), cannot("write", path), "choose another directory");
    }
    const bool plain = fd >= 0 && !fstat(fd, &st) && S_ISREG(st.st_mode);
    const bool shared = plain && st.st_nlink > 1;        // it is somebody's file by another name
    if (!plain || shared || !lock_owner(fd).ours) {
        if (!strict) {
            close(fd);
            return -1;
        }
        die(path + ": got something else, wanted the lock of a run or of shards",
            "remove it, or choose another directory");
    }
    return fd;
}

// Says by the file's text whether its owner may still run: a disk may have no locks at all.
static bool owner_may_live(const Owner& o) {
    if (!o.process) { return false; }
    return o.host != host_name() || !kill((pid_t)o.process, 0) || errno != ESRCH;
}

enum LockResult { LOCK_TAKEN, LOCK_BUSY, LOCK_GONE };

// Tries once. LOCK_GONE: its last owner removed the file between open and flock, or the directory.
static LockResult lock_once(const std::string& path, bool strict, DirLock* lock, Owner* owner) {
    const int fd = lock_open(path, strict);
    if (fd < 0) { return LOCK_GONE; }
    *owner = lock_owner(fd);
    const bool refused = flock(fd, LOCK_EX | LOCK_NB);
    const bool busy = refused && (errno == EWOULDBLOCK || owner_may_live(*owner));
    if (busy || !is_still(fd, path)) {
        close(fd);
        return busy ? LOCK_BUSY : LOCK_GONE;
    }
    if (ftruncate(fd, 0) || dprintf(fd, "%d %s\n", (int)getpid(), host_name().c_str()) < 0) {
        // a full disk: the lock holds without a name in it
    }
    if (taken.empty()) {
        atexit(unlock_all);
        at_quick_exit(unlock_all);
    }
    *lock = { path, fd, getpid() };
    taken.push_back(*lock);
    return LOCK_TAKEN;
}

DirLock dir_try_lock(const std::string& dir) {
    DirLock lock;
    Owner owner;
    lock_once(dir + "/lock", false, &lock, &owner);
    return lock;
}

DirLock dir_lock(const std::string& dir, const char* hint, const char* wait) {
    DirLock lock;
    Owner owner;
    for (int tries = 0;; tries++) {
        const LockResult result = lock_once(dir + "/lock", true, &lock, &owner);
        if (result == LOCK_TAKEN) { return lock; }
        if (!is_dir(dir) && wait) { return lock; }       // it was moved to its place
        if (!is_dir(dir)) { die(dir + ": another process moved or removed it meanwhile", hint); }
        if (result == LOCK_GONE) { continue; }
        // a process that was just killed holds its lock for some milliseconds more
        if (tries >= 40 && !wait) {
            die(dir + ": " + owner_text(owner) + " is writing to it", hint);
        }
        if (tries == 40) {
            fprintf(stderr, "%s: waiting for %s, which %s\n", printable(dir).c_str(),
                    printable(owner_text(owner)).c_str(), wait);
        }
        usleep(50000);
    }
}

void dir_unlock(DirLock* lock) {
    if (lock->fd < 0) { return; }
    lock_remove(*lock);
    close(lock->fd);
    lock->fd = -1;
}
