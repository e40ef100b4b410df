/*
shell/run_flags.cpp -- what run_flags.h declares.
*/
#include "run_flags.h"
#include "../dataloader.h"
#include <limits.h>

// ---- what may change on the way. state.json holds the flags that a run had at its checkpoint

// those that say nothing about the model, and hold for one start of the program
static bool of_one_start(const FlagRow& r) {
    return r.name == "out" || r.name == "resume" || r.name == "stop_after";
}

std::string flags_changed(const Json& was, const Flags& now, std::string* changed) {
    const Json is = json_of(flags_json(now, 't'));
    Flags copy = now;
    for (auto& r : flag_rows(&copy)) {
        const Json *a = was.get(r.name.c_str()), *b = is.get(r.name.c_str());
        if (!a || !b || of_one_start(r)) { continue; }
        if (a->string == b->string && a->number == b->number) { continue; }
        auto text = [](const Json& j) {
            if (j.type == Json::BOOL) { return std::string(j.number ? "true" : "false"); }
            return j.type == Json::STRING ? json_str(j.string) : j.string;
        };
        if (r.fixed()) {
            return flag_spelling(r.name) + ": got " + text(*b) + ", wanted " + text(*a) +
                   " as before";
        }
        *changed += (changed->empty() ? "" : ",") + strf("\"%s\":[", r.name.c_str()) + text(*a) +
                    "," + text(*b) + "]";
    }
    return "";
}

// the value that a run's flags have, unless another is given
static void flag_take(const FlagRow& r, const Json& was) {
    const Json* v = was.get(r.name.c_str());
    if (!v || *r.given) { return; }
    if (r.kind == FLAG_BOOL) { *(bool*)r.value = v->number != 0; }
    else { flag_set(r, flag_spelling(r.name), v->string); }
}

void flags_take(Flags* f, const Json& was) {
    for (auto& r : flag_rows(f)) {
        if (r.of('t') && r.kind != FLAG_ARCH && !of_one_start(r)) { flag_take(r, was); }
    }
}

void flags_take_data(Flags* f, const Json& was) {
    for (auto& r : flag_rows(f)) {
        if (r.of('p') && (r.fixed() || r.name == "data")) { flag_take(r, was); }
    }
}

std::string run_started(const std::string& out) {
    char here[PATH_MAX], there[PATH_MAX];
    if (!getcwd(here, sizeof here) || !realpath(out.c_str(), there)) { return "."; }
    const std::vector<std::string> from = split(there, '/'), to = split(here, '/');
    size_t same = 0;
    while (same < from.size() && same < to.size() && from[same] == to[same]) { same++; }
    std::string path;
    for (size_t i = same; i < from.size(); i++) { path += path.empty() ? ".." : "/.."; }
    for (size_t i = same; i < to.size(); i++) { path += (path.empty() ? "" : "/") + to[i]; }
    return path.empty() ? "." : path;
}

std::string run_started_from(const Json& state, const std::string& out) {
    const Json* where = state.get("directory");
    if (!where || where->string.empty()) { return "."; }
    return where->string[0] == '/' ? where->string : out + "/" + where->string;
}

std::string source_found(const std::string& name, const std::string& directory) {
    std::string bare = name;
    if (name == "bb" || name.empty() || name[0] == '/' || file_exists(name)) { return name; }
    source_weight(&bare);
    if (file_exists(bare) || file_exists("data/" + bare)) { return name; }
    for (auto& start : { directory + "/", directory + "/data/" }) {
        if (file_exists(start + bare)) { return start + name; }
    }
    return name;
}

void source_there(const std::string& name, const std::string& again) {
    std::string bare = name;
    if (name == "bb" || file_exists(name)) { return; }
    source_weight(&bare);
    if (file_exists(bare) || file_exists("data/" + bare)) { return; }
    hint_also().clear();                                 // it is no fault of the checkpoint
    die(EXIT_USER, bare + ": the run was trained on this, and it is not there any more",
        "if it was moved: " + again + " -d PATH");
}
