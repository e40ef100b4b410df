/*
open/export_card.cpp -- what export_card.h declares. Everything in it comes from config.json,
state.json and log.jsonl.
*/
#include "export_card.h"
#include "../flags.h"
#include "../log.h"
#include "../metrics.cuh"
#include "../core/config.h"
#include "../files/plural.h"

// What log.jsonl says of a run up to a step; NUL where there is no log.
struct RunStory {
    Json config;
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
    log_each(from + "/../log.jsonl", [&](const std::string&, const Json& j) {
        const Json* event = j.get("event");
        const Json* at = j.get("step");
        const std::string what = event ? event->string : "";
        const bool now = at && at->number == step->number;
        if (what == "config" && r.config.type == Json::NUL) { r.config = j; }
        if (what == "train" && now) { r.train = j; }
        if (what == "eval" && now) { r.eval = j; }
    });
    return r;
}

// Writes a number of the log by key; "not measured" where it is missing or null.
static std::string told(const Json& j, const char* key, const char* format) {
    const Json* v = j.get(key);
    if (!v || v->type != Json::NUMBER) { return "not measured"; }
    return strf(format, v->number);
}

static std::string flag_of(const Json& flags, const char* key) {
    const Json* v = flags.get(key);
    return v ? v->string : "";
}

// Lists what is not as a plain model has it and has no row of its own: "window 64, prefix 3".
static std::string card_differs(Arch c) {
    std::string all;
    for (auto& row : arch_differs(&c)) {
        const bool listed = strcmp(row.field, "k_dims") && strcmp(row.field, "tied");
        if (listed) { list_add(&all, log_name(row) + " " + arch_text(row, false)); }
    }
    return all;
}

// A table of two columns.
struct CardTable {
    std::string text = "| | |\n|---|---|\n";
    void row(const std::string& name, const std::string& value) {
        text += "| " + name + " | " + value + " |\n";
    }
};

// Describes the sizes: "4 layers, width 64, 2 heads of 32 (2 of keys), ..".
static std::string card_sizes(const Arch& c) {
    std::string sizes = plural(c.L, "layer") + strf(", width %d, ", c.C);
    sizes += plural(c.NH, "head") + strf(" of %d (%d of keys), ", c.HS, c.KV);
    sizes += strf("FFN %d, vocabulary %d, ", c.F, c.V);
    return sizes + plural(c.T, "token");
}

static std::string card_model(const Arch& c, long params) {
    const std::string switches = switches_text(c);       // begins with a blank
    const std::string differs = card_differs(c);
    CardTable table;
    table.row("parameters", count_text(params));
    table.row("sizes", card_sizes(c));
    table.row("switches", switches.substr(1));
    if (!differs.empty()) { table.row("and", differs); }
    table.row("tied", c.tied ? "lm_head is the embedding" : "no");
    return "## The model\n\n" + table.text + "\n";
}

// Describes the updates: "adamw, lr 0.0004 (constant, 100 warm-up steps), weight decay 0.1, seed
// 1".
static std::string card_update(const Json& flags) {
    const std::string schedule = flag_of(flags, "schedule");
    std::string update = flag_of(flags, "optimizer");
    update += ", lr " + flag_of(flags, "lr");
    if (schedule == "constant") { update += " (constant"; }
    if (schedule == "cosine") { update += " (cosine to " + flag_of(flags, "min_lr"); }
    const long warmup = atol(flag_of(flags, "warmup").c_str());
    if (!schedule.empty()) { update += ", " + plural(warmup, "warm-up step") + ")"; }
    update += ", weight decay " + flag_of(flags, "weight_decay");
    return update + ", seed " + flag_of(flags, "seed");
}

// Lists what else a run was given that changes what it learns: "--only k_star --fix-token 1:0".
static std::string card_others(const Json& flags) {
    static const char* const OTHERS[][2] = {
        { "adapter", "" }, { "only", "" }, { "sft", "" }, { "random_token", "" },
        { "fix_token", "" }, { "bos", "none" }, { "min_context", "0" }, { "train_tokens", "0" },
    };
    std::string all;
    for (auto& other : OTHERS) {
        const std::string value = flag_of(flags, other[0]);
        if (value == other[1] || value.empty()) { continue; }
        list_add(&all, flag_spelling(other[0]) + " " + value, " ");
    }
    return all;
}

// Describes Sink_1 of an evaluation, of the shares where rows do not sum to 1; "not measured" if it
// has none.
static std::string card_sink(const Json& eval, const Arch& c) {
    const bool raw = attn_sums_to_one<build::Attn>(c.attn_alpha);
    const Json* sink = eval.get("sink");
    const char* key = raw ? "sink_k" : "proxy_k";
    const Json* rates = sink ? sink->get(key) : NULL;
    const bool has_rates = rates && !rates->items.empty();
    if (!has_rates || rates->items[0].type != Json::NUMBER) { return "not measured"; }
    const double eps = json_number(*sink, "eps", 0);
    const double T = json_number(*sink, "T", 0);
    const double percent = 100 * rates->items[0].number;
    const char* shares = raw ? "" : ", of shares |w| / sum |w|";
    return strf("%.1f%% of heads and sequences (above %g, %.0f tokens%s)", percent, eps, T, shares);
}

// Names the program that made the checkpoint: "train_sink 1.0, commit 0123456, fp32, cpu".
static std::string card_program(const RunStory& r) {
    const Json* build = r.state.get("build");
    const std::string version = flag_of(r.state, "version");
    std::string program = "train_sink";
    if (!version.empty()) { program += " " + version; }
    if (!build) { return program; }
    if (build->get("COMMIT")) { program += ", commit " + flag_of(*build, "COMMIT"); }
    return program + ", " + flag_of(*build, "PRECISION") + ", " + flag_of(*build, "BACKEND");
}

static std::string card_run(const RunStory& r, const Arch& c) {
    const Json* flags = r.state.get("flags");            // as they were at this step
    if (!flags) { flags = r.config.get("flags"); }
    if (!flags) { return "The run that made it is not known.\n"; }
    const Json* description = r.config.get("data");
    const double each = json_number(r.state, "tokens_per_step", 0);
    const double tokens = each * json_number(r.state, "step", 0);
    const std::string steps = told(r.state, "step", "%.15g");
    CardTable table;
    const std::string data = flag_of(*flags, "data");
    const std::string init = flag_of(*flags, "init");
    const std::string others = card_others(*flags);
    table.row("data", description ? description->string : data);
    if (data.find(',') != std::string::npos) { table.row("mixed", "-d " + data); }
    if (!init.empty()) { table.row("began with", init); }
    if (!others.empty()) { table.row("with", others); }
    table.row("steps", steps + " (" + count_text(tokens) + " tokens)");
    table.row("update", card_update(*flags));
    table.row("training loss", told(r.train, "loss", "%.4f"));
    table.row("validation loss", told(r.eval, "val_loss", "%.4f"));
    table.row("Sink_1", card_sink(r.eval, c));
    table.row("program", card_program(r));
    return "## The run\n\n" + table.text;
}

// Returns the last part of a path, without slashes at its end.
static std::string name_of(std::string path) {
    while (path.size() > 1 && path.back() == '/') { path.pop_back(); }
    return path.substr(path.rfind('/') + 1);
}

std::string export_card(const Arch& c, const std::string& from, long params,
                        const std::string& about) {
    return "---\nlibrary_name: transformers\npipeline_tag: text-generation\n"
           "tags: [train_sink, attention-sink]\n---\n\n# " + name_of(from) + "\n\n"
           "A language model for the study of attention sinks, written by `train_sink export`. " +
           about + "\n\n" + card_model(c, params) + card_run(run_story(from), c);
}
