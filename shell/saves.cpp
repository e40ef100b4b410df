/*
shell/saves.cpp -- what saves.h declares.
*/
#include "saves.h"
#include <sys/statvfs.h>

// ---- the checkpoints of a run

// step_40 -> 40; -1 if the name is none. tail: ".tmp", ".old" or ""
static long step_named(const std::string& name, const std::string& tail = "") {
    long step = -1;
    if (name.compare(0, 5, "step_") || !ends_with(name, tail)) { return -1; }
    const std::string digits = name.substr(5, name.size() - 5 - tail.size());
    return parse_long(digits, &step) && digits == strf("%ld", step) ? step : -1;
}

// state.json of a checkpoint; an empty object if it cannot be read
static Json state_of(const std::string& dir) {
    Json state; std::string error;
    const std::string path = dir + "/state.json";
    const std::string text = file_exists(path) && !is_dir(path) ? file_read(path) : "";
    return json_parse(text.data(), text.size(), &state, &error) ? state : Json();
}

static bool is_true(const Json& object, const char* key) {
    const Json* value = object.get(key);
    return value && value->type == Json::BOOL && value->number;
}

std::vector<Saved> saves_of(const std::string& out) {
    std::vector<Saved> all;
    for (auto& name : dir_list(out)) {
        const std::string dir = out + "/" + name;
        const long step = step_named(name);
        if (step < 0 || !file_exists(dir + "/state.json")) { continue; }
        const Json state = state_of(dir), *flags = state.get("flags");
        const Json* keeps = flags ? flags->get("save_optimizer") : NULL;
        all.push_back({ step, dir, is_true(state, "automatic"),
                        file_exists(dir + "/optimizer.safetensors"),
                        keeps && keeps->string == "last" });
    }
    std::sort(all.begin(), all.end(), [](auto& a, auto& b) { return a.step < b.step; });
    return all;
}

void saves_clean(const std::string& out) {
    for (auto& name : dir_list(out)) {
        const std::string path = out + "/" + name;
        if (step_named(name, ".tmp") >= 0) { checkpoint_remove(path); }
        if (step_named(name, ".old") < 0) { continue; }
        const std::string plain = path.substr(0, path.size() - 4);
        if (!is_there(plain)) { rename(path.c_str(), plain.c_str()); }
        else if (file_exists(plain + "/state.json")) { checkpoint_remove(path); }
    }
}

// Did the run itself write all that is in this checkpoint's directory?
static bool saves_all_ours(const std::string& dir) {
    std::vector<std::string> ours = { "model.safetensors", "optimizer.safetensors" };
    const Json state = state_of(dir), *files = state.get("files");
    for (auto& f : files ? files->fields : Json().fields) { ours.push_back(f.first); }
    for (auto& name : dir_list(dir)) {
        if (!std::count(ours.begin(), ours.end(), name)) { return false; }
    }
    return files;
}

void saves_prune(std::vector<Saved>* known, const Saved& newest, bool last_only) {
    for (auto& s : *known) {
        if (s.step >= newest.step) { continue; }
        if (s.automatic && saves_all_ours(s.dir)) {
            const std::string aside = s.dir + ".tmp";    // under that name it is no checkpoint
            if (!rename(s.dir.c_str(), aside.c_str())) { checkpoint_remove(aside); }
            continue;
        }
        if (last_only && s.last_only) { unlink((s.dir + "/optimizer.safetensors").c_str()); }
    }
    *known = { newest };
}

Fallback hint_other_checkpoint(const std::string& out, const std::string& from) {
    const std::vector<Saved> all = saves_of(out);
    const Saved* before = NULL;
    for (auto& s : all) { if (s.dir != from) { before = &s; } }
    if (!before) {
        return { "there is no checkpoint before " + from + ": begin another run", false };
    }
    if (before->optimizer) {
        return { "or remove " + from + " to continue from the checkpoint before it, " +
                 before->dir + ": rm -r " + from, true };
    }
    return { "--init " + before->dir + " and another --out begin a new run from the weights " +
             "before it (--save-optimizer all would have kept what --resume needs)", false };
}

std::string checkpoint_in(const std::string& path) {
    long step;
    if (!is_dir(path) || file_exists(path + "/config.json")) { return path; }
    const std::string newest = checkpoint_latest(path, &step);
    if (newest.empty()) { return path; }
    fprintf(stderr, "note   %s: its newest checkpoint is step_%ld\n", printable(path).c_str(),
            step);
    return newest;
}

bool disk_has(const std::string& dir, double bytes) {
    struct statvfs disk;
    return statvfs(dir.c_str(), &disk) || (double)disk.f_bavail * disk.f_frsize > bytes;
}

// ---- hashes of the small files

static std::string text_hash(const std::string& text) {
    return strf("%016llx", (unsigned long long)hash_bytes(text.data(), text.size()));
}

static const char* const SEAL = ", \"files\": {";

std::string state_sealed(const std::string& state,
                         const std::vector<std::pair<std::string, std::string>>& files) {
    const std::string said = state.substr(0, state.rfind('}'));
    std::string seal = SEAL;
    for (auto& f : files) { seal += json_str(f.first) + ": \"" + text_hash(f.second) + "\", "; }
    return said + seal + "\"state.json\": \"" + text_hash(said) + "\"}}";
}

void state_check(const std::string& dir) {
    const std::string text = file_read(dir + "/state.json");
    const Json state = json_of(text, dir + "/state.json"), *files = state.get("files");
    if (!files && !state.get("automatic")) { return; }   // of a program that did not write it yet
    const size_t end = text.rfind(SEAL);
    std::vector<std::pair<std::string, Json>> none, hashes = files ? files->fields : none;
    bool own = false;
    for (auto& f : hashes) {
        const std::string path = dir + "/" + f.first;
        own = own || f.first == "state.json";
        std::string now = f.first == "state.json" ? text.substr(0, end) : "";
        if (now.empty() && file_exists(path)) { now = file_read(path); }
        if (text_hash(now) == f.second.string) { continue; }
        die(EXIT_USER, path + ": was edited since it was saved",
            "--init " + dir + " and another --out begin a new run from it as it is");
    }
    if (!own) {
        die(EXIT_USER, dir + "/state.json: was edited since it was saved: its own hash is gone",
            "--init " + dir + " and another --out begin a new run from it as it is");
    }
}
