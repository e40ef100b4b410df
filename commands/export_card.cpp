/*
commands/export_card.cpp -- what export_card.h declares. Everything in it comes from config.json,
state.json and log.jsonl.
*/
#include "export_card.h"
#include "../log.h"
#include "../models/config.h"
#include "../text/plural.h"

// what log.jsonl says of a run up to a step; NUL where there is no log
struct RunStory { Json config, train, eval, state; };

// Reads the run that the checkpoint `from` is a step of.
static RunStory run_story(const std::string& from) {
    RunStory r;
    const std::string state = from + "/state.json", log = from + "/../log.jsonl";
    if (!file_exists(state)) { return r; }
    r.state = json_file(state);
    const Json* step = r.state.get("step");
    if (!step || !file_exists(log)) { return r; }
    for (auto& line : split(file_read(log), '\n')) {
        Json j;
        std::string error;
        if (!json_parse(line.data(), line.size(), &j, &error)) { continue; }   // cut short
        const Json *event = j.get("event"), *at = j.get("step");
        const std::string what = event ? event->string : "";
        const bool now = at && at->number == step->number;
        if (what == "config" && r.config.type == Json::NUL) { r.config = j; }
        if (what == "train" && now) { r.train = j; }
        if (what == "eval" && now) { r.eval = j; }
    }
    return r;
}

// Writes a number of the log by key; "not measured" where it is missing or null.
static std::string told(const Json& j, const char* key, const char* format, double times = 1) {
    const Json* v = j.get(key);
    if (!v || v->type != Json::NUMBER) { return "not measured"; }
    return strf(format, v->number * times);
}

static std::string flag_of(const Json& flags, const char* key) {
    const Json* v = flags.get(key);
    return v ? v->string : "";
}

// Lists the rows of ARCH that are not as a plain model has them: "window 64, tied 1".
static std::string arch_differs(Arch c) {
    Arch plain;
    std::string all;
    const std::vector<ArchRow> ours = arch_rows(&c), theirs = arch_rows(&plain);
    for (size_t i = 0; i < ours.size(); i++) {
        const bool size = key_object(ours[i]).empty() && ours[i].type == ARCH_int;
        if (!is_flag(ours[i]) || size || !strcmp(ours[i].field, "k_dims")) { continue; }
        const std::string value = arch_text(ours[i], false);
        if (value == arch_text(theirs[i], false)) { continue; }
        list_add(&all, log_name(ours[i]) + " " + value);
    }
    return all;
}

static std::string card_model(const Arch& c, long params) {
    std::string o = "## The model\n\n| | |\n|---|---|\n| parameters | " + count_text(params) +
                    " |\n";
    o += "| sizes | " + plural(c.L, "layer") + strf(", width %d, ", c.C) + plural(c.NH, "head") +
         strf(" of %d (%d of keys), FFN %d, vocabulary %d, ", c.HS, c.KV, c.F, c.V) +
         plural(c.T, "token") + " |\n";
    o += "| switches |" + switches_text(c) + " |\n";
    const std::string differs = arch_differs(c);
    if (!differs.empty()) { o += "| and | " + differs + " |\n"; }
    return o + strf("| tied | %s |\n\n", c.tied ? "lm_head is the embedding" : "no");
}

static std::string card_run(const RunStory& r) {
    const Json *config = r.config.get("flags"), *flags = config ? config : r.state.get("flags");
    if (!flags) { return "The run that made it is not known.\n"; }
    const Json* description = r.config.get("data");
    const double tokens = json_number(r.state, "tokens_per_step", 0) *
                          json_number(r.state, "step", 0);
    std::string o = "## The run\n\n| | |\n|---|---|\n";
    o += "| data | " + (description ? description->string : flag_of(*flags, "data")) + " |\n";
    o += "| steps | " + told(r.state, "step", "%.15g") + " (" + count_text(tokens) +
         " tokens) |\n";
    o += "| update | " + flag_of(*flags, "optimizer") + ", lr " + flag_of(*flags, "lr") +
         ", weight decay " + flag_of(*flags, "weight_decay") + ", seed " +
         flag_of(*flags, "seed") + " |\n";
    o += "| training loss | " + told(r.train, "loss", "%.4f") + " |\n";
    o += "| validation loss | " + told(r.eval, "val_loss", "%.4f") + " |\n";
    const Json* sink = r.eval.get("sink");
    const Json* rates = sink ? sink->get("sink_k") : NULL;
    if (rates && !rates->items.empty() && rates->items[0].type == Json::NUMBER) {
        o += strf("| Sink_1 | %.1f%% of heads and sequences (above %g, %.0f tokens) |\n",
                  100 * rates->items[0].number, json_number(*sink, "eps", 0),
                  json_number(*sink, "T", 0));
    } else {
        o += "| Sink_1 | not measured |\n";
    }
    return o;
}

std::string export_card(const Arch& c, const std::string& from, long params,
                        const std::string& about) {
    std::string name = from;
    while (name.size() > 1 && name.back() == '/') { name.pop_back(); }
    name = name.substr(name.rfind('/') + 1);
    return "---\nlibrary_name: transformers\npipeline_tag: text-generation\n"
           "tags: [train_sink, attention-sink]\n---\n\n# " + name + "\n\n"
           "A language model for the study of attention sinks, written by `train_sink export`. " +
           about + "\n\n" + card_model(c, params) + card_run(run_story(from));
}
