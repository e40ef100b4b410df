/*
core/saves.cpp -- lists a run's checkpoints, removes the ones that newer ones replace, and checks
by hashes that none was edited.
*/
#include "saves.h"
#include "directory.h"
#include <sys/statvfs.h>

// ---- the checkpoints of a run

// Returns 40 for step_40, -1 for another name. tail: ".tmp", ".old" or "".
static long step_named(const std::string& name, const std::string& tail = "") {
    long step = -1;
    sscanf(name.c_str(), "step_%ld", &step);
    return name == strf("step_%ld", step) + tail ? step : -1;
}

std::string checkpoint_latest(const std::string& out, long* step) {
    std::string best;
    *step = -1;
    for (auto& name : dir_list(out)) {                   // step_5 comes before step_5.old
        const long n = step_named(name, ends_with(name, ".old") ? ".old" : "");
        if (n <= *step || !file_exists(out + "/" + name + "/state.json")) { continue; }
        *step = n;
        best = out + "/" + name;
    }
    return best;
}

std::vector<Saved> saves_of(const std::string& out) {
    std::vector<Saved> all;
    for (auto& name : dir_list(out)) {
        const std::string dir = out + "/" + name;
        const long step = step_named(name);
        if (step < 0 || !file_exists(dir + "/state.json")) { continue; }
        const Json state = state_of(dir);
        all.push_back({ step, dir, state["automatic"].number != 0,
                        file_exists(dir + "/optimizer.safetensors"),
                        state["flags"]["save_optimizer"].string == "last" });
    }
    auto earlier = [](const Saved& a, const Saved& b) { return a.step < b.step; };
    std::sort(all.begin(), all.end(), earlier);
    return all;
}

void saves_clean(const std::string& out) {
    for (auto& name : dir_list(out)) {
        const std::string path = out + "/" + name;
        if (step_named(name, ".tmp") >= 0) { checkpoint_remove(path); }
        if (step_named(name, ".old") < 0) { continue; }
        const std::string plain = path.substr(0, path.size() - strlen(".old"));
        if (!is_there(plain)) {
            rename(path.c_str(), plain.c_str());
        } else if (file_exists(plain + "/state.json")) {
            checkpoint_remove(path);
        }
    }
}

// Tells whether the run itself wrote everything in this checkpoint's directory.
static bool saves_all_ours(const std::string& dir) {
    const Json state = state_of(dir);
    const Json* files = state.get("files");
    if (!files) { return false; }
    std::vector<std::string> ours = { "model.safetensors", "optimizer.safetensors",
                                      "ema.safetensors" };
    for (auto& f : files->fields) { ours.push_back(f.first); }
    for (auto& name : dir_list(dir)) {
        if (!has(ours, name)) { return false; }
    }
    return true;
}

void saves_prune(std::vector<Saved>* known, const Saved& newest, bool last_only) {
    for (auto& s : *known) {
        if (s.step >= newest.step) { continue; }
        if (s.automatic && saves_all_ours(s.dir)) {
            const std::string aside = s.dir + ".tmp";    // that name is not a checkpoint's
            if (!rename(s.dir.c_str(), aside.c_str())) { checkpoint_remove(aside); }
            continue;
        }
        const std::string optimizer = s.dir + "/optimizer.safetensors";
        if (last_only && s.last_only) { unlink(optimizer.c_str()); }
    }
    *known = { newest };
}

Fallback hint_other_checkpoint(const std::string& out, const std::string& from) {
    const std::vector<Saved> all = saves_of(out);
    const Saved* before = NULL;
    for (auto& s : all) { if (s.dir != from) { before = &s; } }
    if (!before) {
        return { "there is no checkpoint before " + from + ": start another run", false };
    }
    if (before->optimizer) {
        return { "or go back to the previous checkpoint, " +
                 before->dir + ": rm -r " + from, true };
    }
    return { "to start a new run from the previous weights: --init " + before->dir +
             " and another --out (--save-optimizer all keeps what --resume needs)", false };
}

std::string checkpoint_in(const std::string& path) {
    if (!is_dir(path) || file_exists(path + "/config.json")) { return path; }
    long step;
    const std::string newest = checkpoint_latest(path, &step);
    if (newest.empty()) { return path; }
    note(path + strf(": using its newest checkpoint, step_%ld", step));
    return newest;
}

bool disk_has(const std::string& dir, double bytes) {
    struct statvfs disk;
    if (statvfs(dir.c_str(), &disk)) { return true; }
    return (double)disk.f_bavail * disk.f_frsize > bytes;
}

// ---- hashes of the small files

static std::string hash_of_text(const std::string& text) {
    return hash_text(hash_string(text));
}

// The separator after the hashed part of state.json.
static const char* const SEAL = ", \"files\": {";

std::string state_sealed(const JsonObject& state,
                         const std::vector<std::pair<std::string, std::string>>& files) {
    const std::string own = "{" + state.fields;
    JsonObject hashes(JSON_SPACED);
    for (auto& [name, text] : files) { hashes.text(name, hash_of_text(text)); }
    hashes.text("state.json", hash_of_text(own));
    return own + SEAL + hashes.fields + "}}";
}

[[noreturn]] static void die_edited(const std::string& dir, const std::string& what) {
    die(what, "to start a new run from it unchanged: --init " + dir + " and another --out");
}

void state_check(const std::string& dir) {
    const std::string file = dir + "/state.json";
    const std::string text = file_read(file);
    const Json state = json_of(text, file);
    const Json* files = state.get("files");
    const bool sealed = files || state.get("automatic") || state.get("version");
    if (!sealed) { return; }                             // older checkpoints have no hashes
    if (!files || !files->get("state.json")) {
        die_edited(dir, file + ": was edited since it was saved: its own hash is gone");
    }
    const std::string own = text.substr(0, text.rfind(SEAL));
    for (auto& [name, hash] : files->fields) {
        const std::string path = dir + "/" + name;
        std::string now;
        if (path == file) {
            now = own;
        } else if (file_exists(path)) {
            now = file_read(path);
        }
        if (hash_of_text(now) == hash.string) { continue; }
        die_edited(dir, path + ": was edited since it was saved");
    }
}
