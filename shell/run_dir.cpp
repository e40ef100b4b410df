/*
shell/run_dir.cpp -- names and locks a run's directory, and keeps commands from writing over what is
not theirs.
*/
#include "run_dir.h"
#include "../files/lock.h"
#include "../dataloader.h"
#include <limits.h>
#include <sys/file.h>

// ---- the directory

// Tells whether the value is the first of its table.
static bool switch_default(const SwitchValue& s) {
    const std::string value = s.value;
    const std::string all = s.all;
    return all.compare(0, value.size() + 1, value + " ") == 0;
}

// Names the model of this build: "-softmax", "-sigmoid-k".
static std::string build_name() {
    std::string name;
    for (auto& s : SWITCH_VALUES) {
        const bool attn = !strcmp(s.name, "ATTN");
        if (attn || !switch_default(s)) { name += std::string("-") + s.value; }
    }
    return name;
}

// Returns 12 for "0012-softmax", 0 for a name that is no run's, such as a date.
static long run_number(const std::string& name) {
    const std::string digits = name.substr(0, name.find('-'));
    long n = 0;
    const bool number = digits.size() <= 7 && parse_long(digits, &n) && n > 0;
    return number ? n : 0;
}

// Makes the first directory runs/NNNN<name>, from this number on, that is not there yet.
static std::string make_run_dir(long number, const std::string& name) {
    for (;; number++) {
        const std::string dir = strf("runs/%04ld", number) + name;
        if (mkdir(dir.c_str(), 0777) == 0) { return dir; }
        if (errno == EEXIST) { continue; }
        die(blame(errno), dir + ": cannot create this directory (" + strerror(errno) + ")",
            "choose another place with --out");
    }
}

std::string next_run_dir() {
    make_dirs("runs");
    const int fd = open("runs", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd >= 0) { flock(fd, LOCK_EX); }
    long number = 1;
    for (auto& d : dir_list("runs")) { number = std::max(number, run_number(d) + 1); }
    const std::string dir = make_run_dir(number, build_name());
    if (fd >= 0) { close(fd); }
    return dir;
}

void run_lock(const std::string& out) {
    dir_lock(out, "wait until it ends, or choose another --out");
}

// ---- what a command writes

// Tells whether both paths lead to the same file or directory, which is there.
static bool same_file(const std::string& a, const std::string& b) {
    struct stat one;
    struct stat two;
    if (stat(a.c_str(), &one) || stat(b.c_str(), &two)) { return false; }
    return same_file(one, two);
}

static std::string file_name(const std::string& path) { return path.substr(path.rfind('/') + 1); }

// Tells whether both paths mean one file, by whatever name, there or not.
static bool same_place(const std::string& a, const std::string& b) {
    if (same_file(a, b)) { return true; }
    return file_name(a) == file_name(b) && same_file(directory_of(a), directory_of(b));
}

static bool one_of(const std::string& name, const std::vector<const char*>& names) {
    return std::any_of(names.begin(), names.end(), [&](auto n) { return name == n; });
}

// Tells whether the directory holds a run, a checkpoint, a model or shards. What is in it is not
// ours to replace then, whichever model this command reads.
static bool holds_work(const std::string& dir) {
    for (auto& name : dir_list(dir)) {
        const bool mark = one_of(name, { "log.jsonl", "config.json", "manifest.json" });
        const bool data = ends_with(name, ".safetensors") || ends_with(name, ".gguf") ||
                          ends_with(name, ".bin");
        if (mark || data) { return true; }
    }
    return false;
}

// Tells whether a file of a directory belongs to its run, model or data. An old answer, such as
// probe.json, does not.
static bool belongs(const std::string& name) {
    static const char* const WORDS[] = { "config",   "token", "vocab",   "index",
                                         "manifest", "state", "template" };
    const bool json = ends_with(name, ".json");
    const bool answer = json || ends_with(name, ".jsonl") || ends_with(name, ".npy");
    if (!answer || one_of(name, { "log.jsonl", "after.json" })) { return true; }
    for (const char* word : WORDS) {
        if (json && name.find(word) != std::string::npos) { return true; }
    }
    return false;
}

// Tells whether a new file of this name would be taken for one of a run, a model or shards.
static bool is_reserved(const std::string& name) {
    for (const char* tail : { ".safetensors", ".gguf", ".bin", ".tmp" }) {
        if (ends_with(name, tail)) { return true; }
    }
    if (one_of(name, { "lock", "log.jsonl" })) { return true; }
    if (name.compare(0, 5, "step_") == 0) { return true; }
    return ends_with(name, ".json") && belongs(name);
}

// Tells whether the path is, or would be, a file of a run, a checkpoint, a model or shards.
static bool is_work(const std::string& given) {
    const std::string path = link_target(given);
    const std::string name = file_name(path);
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

void outside_check(const std::string& given) {
    std::string path = link_target(given);
    while (path.size() > 1 && path.back() == '/') { path.pop_back(); }
    char real[PATH_MAX];
    std::string dir = directory_of(path);
    while (!realpath(dir.c_str(), real) && dir.size() > 1) {     // what make_dirs will make
        dir.pop_back();
        dir = directory_of(dir);
    }
    dir = real;
    bool inside = false;
    for (const char* mark : { "state.json", "manifest.json", "model.safetensors", "export.json" }) {
        inside = inside || file_exists(dir + "/" + mark);
    }
    while (!inside && dir.size() > 1) {                  // all of a run's directory
        inside = file_exists(dir + "/log.jsonl");
        dir.resize(std::max<size_t>(1, dir.rfind('/')));
    }
    if (!inside) { return; }
    die(EXIT_USER, path + ": is in a run, a model or shards, wanted a directory of its own",
        "choose another --out, such as my-model");
}

void output_check(const std::string& path, const std::vector<std::string>& others) {
    if (path.empty()) { return; }
    const bool special = is_special(path);
    for (auto& other : others) {
        if (!special && !other.empty() && same_place(path, other)) {
            die(EXIT_USER, path + ": already an input or output, and would be replaced",
                "write to another file");
        }
    }
    if (!special && is_work(path)) {
        die(EXIT_USER, path + ": is a file of a run, a model or shards, or would be taken for one",
            "write to another file, such as answer.json");
    }
    file_check(path);
}

std::vector<std::string> files_read(const Flags& f, const std::vector<std::string>& sources) {
    std::vector<std::string> places = f.words;
    places.push_back(f.tokenizer);
    for (auto source : sources) {
        if (source == "bb") { continue; }
        source_weight(&source);
        places.push_back(source);
        places.push_back("data/" + source);
    }
    std::vector<std::string> files;
    for (auto& place : places) {
        files.push_back(place);
        if (!is_dir(place)) { continue; }
        for (auto& name : dir_list(place)) {
            if (belongs(name)) { files.push_back(place + "/" + name); }
        }
    }
    return files;
}
