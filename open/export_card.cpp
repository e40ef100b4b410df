/*
open/export_card.cpp -- writes the card. Everything in it comes from config.json, state.json and
log.jsonl.
*/
#include "export_card.h"
#include "../dataloader.h"
#include "../flags.h"
#include "../log.h"
#include "../metrics.cuh"
#include "../run/run_flags.h"
#include "../core/config.h"

// What log.jsonl says of a run up to a step; NUL where there is no log.
struct RunStory {
    Json train;
    Json eval;
    Json state;
};

// Reads the run that the checkpoint `from` is a step of.
static RunStory run_story(const std::string& from) {
    RunStory r;
    const std::string state = from + "/state.json";
    if (!file_exists(state)) { return r; }
    r.state = json_file(state);
    const Json* step = r.state.get("step");
    if (!step) { return r; }
    log_each(from + "/../log.jsonl", [&](const LogLine& j) {
        const std::string& event = j["event"].string;
        const bool now = j.get("step") && j["step"].number == step->number;
        if (event == "train" && now) { r.train = j; }
        if (event == "eval" && now) { r.eval = j; }
    });
    return r;
}

// Writes a number of the log by key; "not measured" where it is missing or null.
static std::string told(const Json& j, const char* key) {
    return j[key].is_number() ? strf("%.4f", j[key].number) : "not measured";
}

static std::string without_slash(const std::string& path) {
    return path.substr(0, path.find_last_not_of('/') + 1);
}

// Returns a list of files and numbers without the folders that they lie in: those are nobody's
// business.
static std::string without_folders(const std::vector<std::string>& given) {
    std::string all;
    for (auto& part : given) { list_add(&all, file_name(without_slash(part)), ","); }
    return all;
}


// Writes a text of somebody else's, such as a file's name, so that Markdown shows it as it is.
static std::string as_text(const std::string& given) {
    std::string text;
    for (char c : printable(given)) {
        if (strchr("\\`*_[]<>#|~&$!", c)) { text += '\\'; }
        text += c;
    }
    return text;
}

// A table of two columns.
struct CardTable {
    std::string text = "| | |\n|---|---|\n";
    void row(const char* name, const std::string& value) {
        if (!value.empty()) { text += strf("| %s | ", name) + value + " |\n"; }
    }
};

// Lists what a run was given, is not the default and has no row of its own: "--steps 6 --lr 0.02".
static std::string card_flags(const Json& given) {
    Flags plain;
    const Json usual = json_of(flags_json(plain));
    std::string all;
    for (auto& r : flag_rows(&plain)) {
        const Json* value = given.get(r.name);
        const Json* same = usual.get(r.name);
        const bool elsewhere = is_one_of(" out data resume model ", r.name);
        if (!value || !same || elsewhere || r.of_model) { continue; }
        if (value->string == same->string && value->number == same->number) { continue; }
        list_add(&all, flag_spelling(r.name), " ");
        if (r.type == FIELD_bool) { continue; }
        list_add(&all, without_folders(split(value->string, ',')), " ");
    }
    return all;
}

// Describes Sink_1 of an evaluation, of the shares where rows do not sum to 1; "not measured" if it
// has none.
static std::string card_sink(const Json& eval, const Arch& c) {
    const bool raw = attn_sums_to_one<build::Attn>(c.attn_alpha);
    const Json& sink = eval["sink"];
    const std::vector<Json>& rates = sink[raw ? "sink_k" : "proxy_k"].items;
    if (rates.empty() || !rates[0].is_number()) { return "not measured"; }
    const double eps = json_number(sink, "eps", 0);
    const double T = json_number(sink, "T", 0);
    const double percent = 100 * rates[0].number;
    const char* shares = raw ? "" : ", of shares |w| / sum |w|";
    return strf("%.1f%% of heads and sequences (above %g, %.0f tokens%s)", percent, eps, T, shares);
}

std::string export_card(const Arch& c, const std::string& from, long params, std::string about,
                        bool begins) {
    const RunStory run = run_story(from);
    if (begins) { about += " Sink_1 there: " + card_sink(run.eval, c) + "."; }
    const Json* flags = run.state.get("flags");          // as they were at this step
    Arch model = c;
    std::string differs = switches_text(c).substr(1);    // begins with a blank
    for (auto& row : arch_differs(&model)) {
        list_add(&differs, log_name(row) + " " + field_text(row, false));
    }
    const std::string path = without_slash(from);
    std::string name = file_name(path);
    if (starts_with(name, "step_")) {
        name = file_name(without_slash(directory_of(path))) + "/" + name;
    }
    CardTable table;
    table.row("parameters", count_text(params));
    table.row("layers, width, heads, of keys, head size",
              strf("%d, %d, %d, %d, %d", c.L, c.C, c.NH, c.KV, c.HS));
    table.row("FFN, vocabulary, tokens", strf("%d, %d, %d", c.F, c.V, c.T));
    table.row("model", as_text(differs));
    if (flags) {
        const double tokens = json_number(run.state, "tokens_per_step", 0);
        const double steps = json_number(run.state, "step", 0);
        const std::string directory = run_started_from(run.state, from + "/..");
        const std::string& data = (*flags)["data"].string;
        table.row("data", as_text(without_folders(names_listed(data, directory))));
        table.row("steps", strf("%.0f (", steps) + count_text(tokens * steps) + " tokens)");
        table.row("flags", as_text(card_flags(*flags)));
        table.row("training loss", told(run.train, "loss"));
        table.row("validation loss", told(run.eval, "val_loss"));
        table.row("Sink_1", card_sink(run.eval, c));
    }
    const Json* version = run.state.get("version");
    table.row("train_sink", version ? as_text(version->string) : "the run is not known");
    return "---\nlibrary_name: transformers\npipeline_tag: text-generation\n"
           "tags: [train_sink, attention-sink]\n---\n\n# " + as_text(name) + "\n\n" + about +
           "\n\n" + table.text;
}
