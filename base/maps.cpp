/*
base/maps.cpp -- keeps a table of the mapped files, which the handler of SIGBUS reads without a
lock.
*/
#include "maps.h"
#include <signal.h>
#include <atomic>
#include <mutex>

// One file that is mapped. A handler reads these without a lock: an entry's size is set last, and
// is 0 first when it goes.
struct MapEntry {
    std::atomic<const char*> data;
    std::atomic<size_t> size;
    char* path;
    struct stat was;
};

// All of them. (Nothing is mapped before main.)
static struct {
    std::atomic<MapEntry*> entries[1 << 20];     // each made when first needed, and never freed
    std::mutex lock;
    MapLost lost;
} maps;

// Calls `each` with the entries that are there, in order, until it returns true.
template <class Each> static void each_entry(Each each) {
    for (auto& e : maps.entries) {
        MapEntry* entry = e;
        if (!entry || each(entry)) { return; }
    }
}

static void map_enter(const FileMap& map, const std::string& path, const struct stat& st) {
    std::lock_guard<std::mutex> hold(maps.lock);
    for (auto& entry : maps.entries) {           // more than Linux maps
        MapEntry* e = entry;
        if (!e) { e = new MapEntry(); }
        if (e->size) { continue; }
        free(e->path);
        e->path = strdup(path.c_str());
        e->was = st;
        e->data = map.data;
        e->size = map.size;
        entry = e;
        return;
    }
}

FileMap file_map(const std::string& path, long least, const char* kind) {
    const int fd = file_open(path);
    struct stat st = {};
    const long size = fstat(fd, &st) == 0 && S_ISREG(st.st_mode) ? (long)st.st_size : 0;
    if (size < least) {
        die(strf("%s: got %ld bytes, wanted a %s file of at least %ld", path.c_str(),
            size, kind, least), "the file is damaged or was cut short: download it again");
    }
    void* p = mmap(NULL, size, PROT_READ, MAP_SHARED, fd, 0);
    if (p == MAP_FAILED) {
        die(EXIT_MACHINE, cannot("map", path), "raise the limit of memory: ulimit -v");
    }
    close(fd);
    const FileMap map = { (const char*)p, (size_t)size };
    map_enter(map, path, st);
    return map;
}

void map_close(const FileMap& map) {
    {
        std::lock_guard<std::mutex> hold(maps.lock);
        each_entry([&](MapEntry* e) {
            if (e->data == map.data) { e->size = 0; }
            return false;
        });
    }
    munmap((void*)map.data, map.size);
}

// Returns the path of the file that is mapped at this address, NULL if there is none. A signal
// handler may ask.
static const char* map_name(const void* address) {
    const uintptr_t at = (uintptr_t)address, page = 4096;
    const char* path = NULL;
    each_entry([&](MapEntry* e) {
        const uintptr_t from = (uintptr_t)(const char*)e->data;
        const size_t pages = round_up(e->size, page);
        if (at - from < pages) { path = e->path; }       // below `from` this is a large number
        return path != NULL;
    });
    return path;
}

// Writes a text to the terminal, with ? for what of it is no text.
static void say(const char* text) {
    char line[512];
    size_t n = 0;
    for (; text[n] && n < sizeof line; n++) {
        const unsigned char c = text[n];
        line[n] = (c < 0x20 && c != '\n') || c >= 0x7F ? '?' : (char)c;
    }
    if (write(2, line, n) < 0) { return; }
}

static void map_fault(int signal_number, siginfo_t* info, void*) {
    const char* path = map_name(info->si_addr);
    if (!path) {                                 // not ours: it ends the process as it would have
        signal(signal_number, SIG_DFL);
        raise(signal_number);
        return;
    }
    if (maps.lost) { maps.lost(path); }
    say("error: ");
    say(path);
    say(": was cut short or replaced while it was read\n"
        "---> HINT: begin again, and write a new version of a file under another name, then mv\n");
    _exit(EXIT_MACHINE);
}

void maps_on_lost(MapLost lost) { maps.lost = lost; }

void maps_watch() {
    struct sigaction act = {};
    act.sa_sigaction = map_fault;
    act.sa_flags = SA_SIGINFO | SA_NODEFER;
    sigaction(SIGBUS, &act, NULL);
}

// Tells whether the file itself was written to: the time of its last change cannot be put back, as
// that of its text can. Another of its name is no matter: ours is mapped.
static bool map_written(const MapEntry& e, struct stat* now) {
    if (stat(e.path, now) || !same_file(*now, e.was)) { return false; }
    return now->st_size != e.was.st_size || now->st_ctim.tv_sec != e.was.st_ctim.tv_sec ||
           now->st_ctim.tv_nsec != e.was.st_ctim.tv_nsec;
}

std::string maps_changed() {
    std::lock_guard<std::mutex> hold(maps.lock);
    struct stat now;
    std::string path;
    each_entry([&](MapEntry* e) {
        if (e->size && map_written(*e, &now)) { path = e->path; }
        return !path.empty();
    });
    return path;
}

void maps_accept() {
    std::lock_guard<std::mutex> hold(maps.lock);
    struct stat now;
    each_entry([&](MapEntry* e) {
        if (e->size && map_written(*e, &now)) { e->was = now; }
        return false;
    });
}
