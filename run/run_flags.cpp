/*
run/run_flags.cpp -- compares the flags of a run's state.json with those that were typed, and
finds its data again if the run has moved.
*/
#include "run_flags.h"
#include "../dataloader.h"
#include "../log.h"
#include <filesystem>

// ---- what may change between a checkpoint and --resume: state.json holds the flags that a run had
// at its checkpoint

// Tells whether the flag applies only to this start of the program.
static bool of_one_start(const FlagRow& r) {
    return is_one_of(" out resume stop_after dry_run ", r.name);
}

std::string flags_changed(const Json& was, Flags now, JsonObject* changed) {
    for (auto& r : flag_rows(&now)) {
        const Json* before = was.get(r.name);
        if (!before || !r.of(COMMAND_train) || of_one_start(r)) { continue; }
        const std::string old = json_short(*before);
        const std::string given = field_text(r, true);
        if (old == given) { continue; }
        if (r.fixed()) {
            return flag_spelling(r.name) + ": got " + given + ", wanted " + old + " as before";
        }
        changed->json(r.name, json_list({ old, given }));
    }
    return "";
}

// Sets a flag to the value that a run had, unless another is given.
static void flag_inherit(const FlagRow& r, const Json& was) {
    const Json* value = was.get(r.name);
    if (!value || *r.given) { return; }
    // (0 or "" of a property may mean that it is not there, and cannot be set)
    if (r.of_model && value->string == field_text(r, false)) { return; }
    if (r.type == FIELD_bool) {
        *(bool*)r.at = value->number != 0;
        return;
    }
    flag_set(r, flag_spelling(r.name), value->string);
}

void flags_inherit(Flags* f, const Json& was, bool model) {
    // What needs a folder that is not here is a word or a true. A number changes nothing by itself,
    // nor does --sft-loss: every run of a program with the folder has rope_factor 1, and assistant.
    // What a machine settles, each does by itself.
    for (auto& [name, value] : was.fields) {
        const bool word = value.is_text() && !value.string.empty() &&
                          !is_one_of(" none assistant ", value.string);
        const bool on = value.type == Json::BOOL && value.number;
        const bool of_machine = is_one_of(" graph product ", name);
        if ((word || on) && !of_machine) { folder_check(flag_spelling(name)); }
    }
    for (auto& r : flag_rows(f)) {
        if (r.of(COMMAND_train) && (model || !r.of_model) && !of_one_start(r)) {
            flag_inherit(r, was);
        }
    }
}

bool flags_begin_run(Flags f) {
    for (auto& r : flag_rows(&f)) {
        if (*r.given && (r.of_model || is_one_of(" data model init ", r.name))) { return true; }
    }
    return false;
}

void flags_inherit_data(Flags* f, const Json& was) {
    for (auto& r : flag_rows(f)) {
        if (r.of(COMMAND_probe) && (r.fixed() || is_one_of(" data bin ", r.name))) {
            flag_inherit(r, was);
        }
    }
}

void flags_inherit_bin(Flags* f, const Json& was, const std::string& log) {
    if (f->given_bin || was.get("bin")) { return; }
    log_each(log, [&](const LogLine& line) {
        if (contains(line["data"].string, strf(" (%s16, ", RAW_FORMAT))) {
            f->bin = row_named(BIN_ROWS, "uint16");
        }
    });
}

void flags_inherit_task(Flags* f, const Json& was) {
    for (auto& r : flag_rows(f)) { if (r.group == GROUP_BB) { flag_inherit(r, was); } }
}

// ---- where a run was started, and where its data are

std::string run_started(const std::string& out) {
    std::error_code failed;
    const std::string path = std::filesystem::relative(".", out, failed);
    return path.empty() ? "." : path;
}

std::string run_started_from(const Json& state, const std::string& out) {
    const std::string& where = state["directory"].string;
    if (where.empty()) { return "."; }
    return where[0] == '/' ? where : out + "/" + where;
}

// Tells whether the source can be read from here. *bare is its name without a weight.
static bool source_here(const std::string& name, std::string* bare) {
    *bare = name;
    if (name == "bb" || file_exists(name)) {
        return true;
    }
    source_weight(bare);
    return file_exists(*bare) || file_exists("data/" + *bare);
}

std::string source_found(const std::string& name, const std::string& directory) {
    std::string bare;
    if (name.empty() || name[0] == '/' || source_here(name, &bare)) {
        return name;
    }
    for (auto& start : { directory + "/", directory + "/data/" }) {
        if (file_exists(start + bare)) {
            return start + name;
        }
    }
    return name;
}

void source_require(const std::string& name, const std::string& again) {
    std::string bare;
    if (source_here(name, &bare)) {
        return;
    }
    hints.also.clear();                                  // the checkpoint is not at fault
    die(bare + ": the run was trained on this file, which no longer exists",
        "if it was moved: " + again + " -d PATH");
}
