/*
shell/run_dir.cpp -- what run_dir.h declares.
*/
#include "run_dir.h"
#include "../text/lock.h"
#include "../dataloader.h"
#include <limits.h>
#include <sys/file.h>

// ---- the directory

static bool switch_default(const SwitchValue& s) { // is the value the first of its table?
    return !strncmp(s.all, (s.value + std::string(" ")).c_str(), strlen(s.value) + 1);
}

// 12 of "0012-softmax"; 0 of a name that is no run's, such as a date
static long run_number(const std::string& name) {
    const std::string digits = name.substr(0, name.find('-'));
    long n = 0;
    return digits.size() <= 7 && parse_long(digits, &n) && n > 0 ? n : 0;
}

std::string next_run_dir() {
    std::string name;
    for (auto& s : SWITCH_VALUES) {
        if (!strcmp(s.name, "ATTN") || !switch_default(s)) {
            name += std::string("-") + s.value;
        }
    }
    make_dirs("runs");
    const int fd = open("runs", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd >= 0) { flock(fd, LOCK_EX); }
    long number = 1;
    for (auto& d : dir_list("runs")) { number = std::max(number, run_number(d) + 1); }
    std::string dir = strf("runs/%04ld%s", number, name.c_str());
    while (mkdir(dir.c_str(), 0777)) {                   // made here, and by nobody else
        if (errno != EEXIST) {
            die(blame(errno), dir + ": cannot create this directory (" + strerror(errno) + ")",
                "choose another place with --out");
        }
        dir = strf("runs/%04ld%s", ++number, name.c_str());
    }
    if (fd >= 0) { close(fd); }
    return dir;
}

void run_lock(const std::string& out) {
    dir_lock(out, "wait until it ends, or choose another --out");
}

// ---- what a command writes

// is it one file, by whatever name, there or not?
static bool same_place(const std::string& a, const std::string& b) {
    struct stat one, two;
    auto same = [&](const std::string& x, const std::string& y) {
        return !stat(x.c_str(), &one) && !stat(y.c_str(), &two) && one.st_dev == two.st_dev &&
               one.st_ino == two.st_ino;
    };
    auto directory = [](const std::string& path) {
        const size_t slash = path.rfind('/');
        return slash == std::string::npos ? std::string(".") : path.substr(0, slash + 1);
    };
    auto name = [](const std::string& path) { return path.substr(path.rfind('/') + 1); };
    return same(a, b) || (name(a) == name(b) && same(directory(a), directory(b)));
}

static bool one_of(const std::string& name, const std::vector<const char*>& names) {
    return std::any_of(names.begin(), names.end(), [&](auto n) { return name == n; });
}

// Does the directory hold a run, a checkpoint, a model or shards? Then what is in it is not ours to
// replace, whichever model this command reads.
static bool holds_work(const std::string& dir) {
    for (auto& name : dir_list(dir)) {
        const bool mark = one_of(name, { "log.jsonl", "config.json", "manifest.json" });
        const bool data = ends_with(name, ".safetensors") || ends_with(name, ".gguf") ||
                          ends_with(name, ".bin");
        if (mark || data) { return true; }
    }
    return false;
}

// Does a file of a directory belong to its run, model or data? An old answer, such as probe.json,
// does not.
static bool belongs(const std::string& name) {
    const bool answer = ends_with(name, ".json") || ends_with(name, ".jsonl") ||
                        ends_with(name, ".npy");
    if (!answer || one_of(name, { "log.jsonl", "after.json" })) { return true; }
    for (const char* word : { "config", "token", "vocab", "index", "manifest", "state",
                              "template" }) {
        if (ends_with(name, ".json") && name.find(word) != std::string::npos) { return true; }
    }
    return false;
}

// Would a new file of this name be taken for one of a run, a model or shards?
static bool is_reserved(const std::string& name) {
    for (const char* tail : { ".safetensors", ".gguf", ".bin", ".tmp" }) {
        if (ends_with(name, tail)) { return true; }
    }
    return name == "lock" || name.compare(0, 5, "step_") == 0 ||
           (ends_with(name, ".json") && belongs(name)) || name == "log.jsonl";
}

// Is it, or would it be, a file of a run, a checkpoint, a model or shards?
static bool is_work(const std::string& given) {
    const std::string path = link_target(given), name = path.substr(path.rfind('/') + 1);
    char real[PATH_MAX];
    if (!realpath(directory_of(path).c_str(), real)) { return false; }
    std::string dir = real;
    bool here = holds_work(dir);
    while (!here && dir.size() > 1) {                    // all of a run's directory
        here = file_exists(dir + "/log.jsonl");
        dir.resize(std::max<size_t>(1, dir.rfind('/')));
    }
    return here && (is_there(path) ? belongs(name) : is_reserved(name));
}

void output_check(const std::string& path, const std::vector<std::string>& others) {
    if (path.empty()) { return; }
    for (auto& other : others) {
        if (!is_special(path) && !other.empty() && same_place(path, other)) {
            die(EXIT_USER, path + ": already an input or output, and would be replaced",
                "write to another file");
        }
    }
    if (!is_special(path) && is_work(path)) {
        die(EXIT_USER, path + ": is a file of a run, a model or shards, or would be taken for one",
            "write to another file, such as answer.json");
    }
    file_check(path);
}

std::vector<std::string> files_read(const Flags& f, const std::vector<std::string>& sources) {
    std::vector<std::string> places = f.words, files;
    places.push_back(f.tokenizer);
    for (auto source : sources) {
        if (source == "bb") { continue; }
        source_weight(&source);
        places.push_back(source);
        places.push_back("data/" + source);
    }
    for (auto& place : places) {
        files.push_back(place);
        if (!is_dir(place)) { continue; }
        for (auto& name : dir_list(place)) {
            if (belongs(name)) { files.push_back(place + "/" + name); }
        }
    }
    return files;
}
