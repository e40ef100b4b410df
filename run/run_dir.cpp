/*
run/run_dir.cpp -- names a run's directory, and keeps commands from writing over what is not theirs.
*/
#include "run_dir.h"
#include "../dataloader.h"
#include <limits.h>
#include <sys/file.h>

// ---- the directory

// Names the model of this build: "-softmax", "-sigmoid-k".
static std::string build_name() {
    std::string name;
    for (auto& s : SWITCH_VALUES) {
        if (strcmp(s.value, s.first) || !strcmp(s.name, "ATTN")) {
            name += strf("-%s", s.value);
        }
    }
    return name;
}

std::string next_run_dir() {
    make_dirs("runs", "choose another place with --out");
    const int fd = open("runs", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd >= 0) { flock(fd, LOCK_EX); }
    long number = 1;
    for (auto& d : dir_list("runs")) {
        const std::string digits = d.substr(0, d.find('-'));
        long n = 0;                                      // 12 of 0012-softmax; a date is none
        if (digits.size() <= 7 && parse_long(digits, &n)) { number = std::max(number, n + 1); }
    }
    std::string dir;
    for (;; number++) {
        dir = strf("runs/%04ld", number) + build_name();
        if (mkdir(dir.c_str(), 0777) == 0) { break; }
        if (errno == EEXIST) { continue; }
        die(blame(errno), cannot("create this directory", dir), "choose another place with --out");
    }
    if (fd >= 0) { close(fd); }
    return dir;
}

// ---- what a command writes

// Tells whether both paths lead to the same existing file or directory.
static bool same_path(const std::string& a, const std::string& b) {
    struct stat one;
    struct stat two;
    return !stat(a.c_str(), &one) && !stat(b.c_str(), &two) && same_file(one, two);
}

// Tells whether both paths name the same file, whether or not it exists.
static bool same_place(const std::string& a, const std::string& b) {
    if (same_path(a, b)) { return true; }
    return file_name(a) == file_name(b) && same_path(directory_of(a), directory_of(b));
}

// Tells whether the directory holds a run, a checkpoint, a model or shards. Its files are then not
// ours to replace, whichever model this command reads.
static bool holds_work(const std::string& dir) {
    for (auto& name : dir_list(dir)) {
        const bool mark = name == "log.jsonl" || name == "config.json" || name == "manifest.json";
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
    if (!answer || name == "log.jsonl" || name == "after.json") { return true; }
    for (const char* word : WORDS) {
        if (json && contains(name, word)) { return true; }
    }
    return false;
}

// Tells whether a new file of this name would be taken for one of a run, a model or shards.
static bool is_reserved(const std::string& name) {
    for (const char* tail : { ".safetensors", ".gguf", ".bin", ".tmp" }) {
        if (ends_with(name, tail)) { return true; }
    }
    if (name == "lock" || name == "log.jsonl" || starts_with(name, "step_")) { return true; }
    return ends_with(name, ".json") && belongs(name);
}

bool in_run(std::string dir) {
    for (; dir.size() > 1; dir.resize(std::max<size_t>(1, dir.rfind('/')))) {
        if (file_exists(dir + "/log.jsonl")) { return true; }
    }
    return false;
}

// Tells whether the path is, or would be, a file of a run, a checkpoint, a model or shards.
static bool is_work(const std::string& given) {
    const std::string path = link_target(given);
    const std::string name = file_name(path);
    char real[PATH_MAX];
    if (!realpath(directory_of(path).c_str(), real)) { return false; }
    return (holds_work(real) || in_run(real)) &&
           (is_there(path) ? belongs(name) : is_reserved(name));
}

void output_check(const std::string& path, const std::vector<std::string>& others) {
    if (path.empty()) { return; }
    const bool special = is_special(path);
    for (auto& other : others) {
        if (!special && !other.empty() && same_place(path, other)) {
            die(path + ": already an input or output of this command",
                "write to another file");
        }
    }
    if (!special && is_work(path)) {
        die(path + ": is a file of a run, a model or shards, or would be taken for one",
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
    std::vector<std::string> files = places;
    for (auto& place : places) {
        for (auto& name : dir_list(place)) {             // none of what is no directory
            if (belongs(name)) { files.push_back(place + "/" + name); }
        }
    }
    return files;
}
