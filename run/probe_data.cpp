/*
run/probe_data.cpp -- finds out what a run held out and how it edited its sequences, so that a
probe reads the same.
*/
#include "probe_data.h"
#include "memory_needed.h"
#include "../dataloader.h"
#include "../log.h"
#include "data_flags.h"
#include "run_dir.h"
#include "run_flags.h"
#include "../core/config.h"
#include "../core/directory.h"
#include "../base/plural.h"

Json trained_flags(const std::string& checkpoint) {
    const Json state = state_of(checkpoint);
    if (state.fields.empty()) { return state; }
    if (const Json* flags = state.get("flags")) { return *flags; }
    // an old checkpoint has none, but its run's log has them
    return log_flags(checkpoint + "/../log.jsonl", INFINITY);
}

// Returns a list, such as 3:66,1:65, in the order of its positions.
static std::string in_order(const std::string& list) {
    std::vector<std::string> items = split(list, ',');
    std::sort(items.begin(), items.end(), [](auto& a, auto& b) {
        return atoi(a.c_str()) < atoi(b.c_str());
    });
    std::string sorted;
    for (auto& item : items) { list_add(&sorted, item, ","); }
    return sorted;
}

Flags trained_data(const Json& trained) {
    Flags was;
    flags_inherit_data(&was, trained);
    was.given_data = trained.get("data");
    return was;
}

// Returns the edits of tokens as they are typed, "" for none.
static std::string edits_typed(const Flags& f) {
    std::string text;
    if (!f.random_token.empty()) {
        text = "--random-token " + in_order(f.random_token);
        if (f.random_share < 1) { text += strf(" --random-share %g", f.random_share); }
    }
    if (!f.fix_token.empty()) { list_add(&text, "--fix-token " + in_order(f.fix_token), " "); }
    return text;
}

// Returns a note of what a run had, if the flags have something else, or nothing.
static std::string other_note(const std::string& was, const std::string& now) {
    if (was.empty() || was == now) { return ""; }
    const std::string here = now.empty() ? "the text is read without" : "here it is " + now;
    return "note   " + printable("the run was trained with " + was + "; " + here) + "\n";
}

// Returns a note if a run of the built-in task had another one than the flags say.
static std::string task_note(Flags was, Flags f) {
    if (f.data != "bb" || was.data != "bb" || !was.given_data) { return ""; }
    const std::vector<FlagRow> before = flag_rows(&was), here = flag_rows(&f);
    std::string names;
    for (size_t i = 0; i < here.size(); i++) {
        if (here[i].group == GROUP_BB && field_text(before[i], true) != field_text(here[i], true)) {
            list_add(&names, here[i].name, " ");
        }
    }
    const char* list = names.c_str();
    return other_note(flags_typed(was, list, true), flags_typed(f, list, true));
}

static std::string edits_note(const Flags& was, const Flags& f) {
    std::string now = edits_typed(f);
    if (now.empty() && f.given_bos && f.bos != "none") { now = "--bos " + f.bos; }
    return other_note(edits_typed(was), now);
}

std::string trained_notes(const Flags& was, const Flags& f) {
    return task_note(was, f) + edits_note(was, f);
}

// Prints the notes, and that edits stand in the place of tokens, as they did in training.
static void print_edits(const Flags& was, const Flags& f) {
    printf("%s", trained_notes(was, f).c_str());
    const std::string edits = edits_typed(f);
    if (edits.empty()) { return; }
    printf("note   %s takes the place of what stood there\n", edits.c_str());
}

// Takes positions that are `taken` out of a list of edits, POSITION or POSITION:ID.
static std::string edits_without(const std::string& list, const std::vector<int>& taken) {
    std::string kept;
    for (auto& edit : split(list, ',')) {
        if (!has(taken, atoi(edit.c_str()))) { list_add(&kept, edit, ","); }
    }
    return kept;
}

long first_token(const Flags& f, const Tokenizer& tok) {
    for (auto& edit : split(f.fix_token, ',')) {
        long id = 0;
        if (starts_with(edit, "1:") && parse_long(edit.substr(2), &id)) { return id; }
    }
    return f.bos == "seq" ? tok.bos : -1;
}

// Tells whether the flags put a token first where the run had none, or another.
static bool begins_otherwise(const Flags& f, const Flags& was) {
    if (!f.given_bos || is_one_of(" none doc ", f.bos) || f.bos == was.bos) { return false; }
    if (f.bos != "default" || f.tokenizer.empty()) { return true; }
    const Tokenizer tok = tokenizer_of(f.tokenizer);
    return text_model && first_token(f, tok) < 0 && text_model->bos(f, tok, 0) >= 0;
}

// Takes the run's edits out of positions that are typed: those of the other list, and of the first
// token with --bos. A list that is typed is whole: the run's own is gone.
static void edits_replace(Flags* f, const Flags& was) {
    const DataOptions typed = typed_edits(*f, 1);
    std::vector<int> taken = typed.random_token;
    for (auto& fix : typed.fix_token) { taken.push_back(fix.first); }
    if (begins_otherwise(*f, was)) { taken.push_back(1); }
    if (!f->given_random_token) { f->random_token = edits_without(f->random_token, taken); }
    if (!f->given_fix_token) { f->fix_token = edits_without(f->fix_token, taken); }
}

std::string input_name(const Flags& f) { return INPUT_ROWS[f.probe_input]; }

// Rejects beside a drawn input the flags of text and of the built-in task.
static void check_drawn(Flags f) {
    for (auto& row : flag_rows(&f)) {
        const bool data = row.group == GROUP_DATA || row.group == GROUP_BB;
        require(!data || row.name == "probe_input" || !*row.given,
                flag_spelling(row.name) + " with --probe-input " + input_name(f),
                "--probe-input natural");
    }
}

ProbeData probe_data(Flags* f, const Json& state) {
    ProbeData p;
    if (f->probe_input != INPUT_natural) {
        check_drawn(*f);
        p.sources = { input_name(*f) };
        return p;
    }
    const Json trained = trained_flags(f->words[0]);
    const Flags was = trained_data(trained);
    if (f->given_data) {
        p.sources = names_listed(f->data);
        print_edits(was, *f);
        return p;
    }
    const std::string directory = run_started_from(state, f->words[0] + "/..");
    const Json* data = state.get("data");
    if (trained.fields.empty() || !data) {
        die(f->words[0] + ": does not say what it was trained on",
            "give it text: --data FILE, or --probe-input random");
    }
    p.own = true;
    flags_inherit_data(f, trained);
    flags_inherit_bin(f, trained, f->words[0] + "/../log.jsonl");
    edits_replace(f, was);
    print_edits(was, *f);
    p.other_task = !task_note(was, *f).empty();

    const std::string where = f->words[0] + "/state.json: data";
    const long T = json_count(*data, "T", 64, where);
    require(T >= 1 && T <= MOST_TOKENS, where + strf(": T %ld", T), strf("1 to %d", MOST_TOKENS));
    p.T = T;
    for (auto& item : (*data)["held"].items) {
        p.held.push_back(json_count(item, "held", 0, where));
    }
    for (auto& hash : (*data)["hash"].items) { p.hashes.push_back(hash.string); }
    for (auto& name : names_listed(f->data, directory)) {
        std::string source = source_found(name, directory);
        source_require(source, "the same command with");
        if (!file_exists(source)) { source_weight(&source); }    // each is measured by itself
        p.sources.push_back(source);
    }
    return p;
}

std::string begin_texts(Tokenizer* tok, const Flags& f, int V) {
    Flags was = trained_data(trained_flags(f.words[0]));
    const std::string bos = f.given_bos ? f.bos : "default";
    const long first = first_token(was, *tok);
    long id = first < V ? first : -1;
    if (!is_one_of(" default none ", bos)) {
        text_needed("--bos " + bos);
        id = text_model->bos(f, *tok, V);
    }
    if (id >= 0 && tok->before != std::vector<int>{ (int)id }) {
        tok->before = { (int)id };
        tok->after.clear();
        tok->bos = id;
        tok->files.clear();                      // which may name another BOS
    }
    if (bos == "none") {
        tok->before.clear();
        tok->after.clear();
    }
    if (id < 0 || id != first || bos == "none") { return edits_note(was, f); }
    was.fix_token = edits_without(was.fix_token, { 1 });
    return strf("note   token %ld is put before a text: the run's sequences began with it\n", id) +
           edits_note(was, f);
}

ProbeBos probe_bos(const Flags& f, int V) {
    if (f.data == "bb") { return { -1, f.bb_bos ? "<s>" : "none" }; }
    if (f.tokenizer.empty()) { return { -1, f.bos }; }   // of shards that say it themselves
    if (f.bos == "none") { return {}; }
    text_needed("--bos " + f.bos);
    return text_model->probe_bos(f, V);
}

OtherBos bos_other(const Flags& f, const Json& state, int V) {
    if (f.given_bos || f.bos != "none" || f.data == "bb" || f.probe_input != INPUT_natural) {
        return {};
    }
    const std::string& run = state["flags"]["bos"].string;
    if (run.empty() && f.tokenizer.empty()) {
        return { "", "no tokenizer says whether this model wants a BOS: --tokenizer" };
    }
    if (run.empty()) { return text_model ? text_model->other_bos(f, V) : OtherBos(); }
    if (run == "none" || f.tokenizer.empty()) { return {}; }
    return { run, "the run was trained with --bos " + run + ", and here no BOS is added" };
}

void bos_note(const OtherBos& other, const std::string& then) {
    if (other.note.empty()) { return; }
    printf("note   %s%s\n", other.note.c_str(), (other.bos.empty() ? "" : ": " + then).c_str());
}

// Tells whether source k, opened as `data`, is known to be other text than the run read. Flags that
// make other tokens of the same text leave that open.
static bool source_changed(const Flags& f, const ProbeData& p, size_t k, Data* data) {
    const bool other_tokens = !flags_typed(f, "bos tokenizer sft sft_loss skip_bad").empty();
    if (other_tokens || data->bb || k >= p.hashes.size()) { return false; }
    data_mark(data);
    return p.hashes[k] != data->sources[0].fingerprint;
}

// Draws sequences of random tokens, or of one token each.
static ProbeInput probe_drawn(const Flags& f, int T, int V) {
    ProbeInput in;
    in.x.resize(f.probe_seqs * (T + 1));
    Rng rng = rng_stream(f.seed, SEED_PROBE);
    for (long i = 0; i < f.probe_seqs; i++) {
        const int token = rng_below(&rng, V);
        for (int t = 0; t <= T; t++) {
            in.x[i * (T + 1) + t] = f.probe_input == INPUT_random ? rng_below(&rng, V) : token;
        }
    }
    in.n = f.probe_seqs;
    in.how = plural(in.n, "sequence") + strf(" of %d tokens", T + 1);
    return in;
}

ProbeInput probe_inputs(const Flags& f, const ProbeBos& bos, const ProbeData& p, size_t k,
                        int T, int V) {
    if (f.probe_input != INPUT_natural) { return probe_drawn(f, T, V); }
    ProbeInput in;
    if (text_folder && text_folder->records(f, bos, p, T, V, &in)) { return in; }
    // what the data loader holds out
    if (f.given_bos && f.bos != "doc" && (bos.id >= 0 || f.bos == "seq")) { reject_covered_bos(f); }

    DataOptions o = data_options(f, p.own ? p.T : T, T);
    if (!f.tokenizer.empty() && f.bos != "doc") { o.bos = "none"; }
    if (k < p.held.size()) { o.held = { p.held[k] }; }
    table_memory_check(f);
    Data data = data_open(o);
    if (p.sources.size() == 1) { data_bin_check(data); }
    if (f.bos != "doc" && bos.id >= 0) {
        data.opt.bos = "seq";
        data.tokenizer.bos = bos.id;
    }

    in.x.resize(f.probe_seqs * (T + 1));
    in.n = data_probe(&data, in.x.data());
    in.how = plural(in.n, data.bb ? "sequence" : "window") + strf(" of %d tokens", T + 1);
    if (p.own) {
        const bool changed = source_changed(f, p, k, &data);
        const char* whose = changed ? ", of data that have changed since the run"
                                    : ", held out by the run";
        in.how += p.other_task ? ", of another task than the run's" : whose;
    }
    return in;
}

std::string input_flags(const Flags& f) {
    std::string text = edits_typed(f);
    const std::string others = flags_typed(
        f, "tokenizer sft sft_loss skip_bad bb_vocab bb_triggers bb_trigger_prob bb_temp bb_table "
           "bb_bos bb_mean seed window prefix");
    if (!others.empty()) { list_add(&text, others, " "); }
    return text;
}

void input_fields(JsonObject* o, const Flags& f, const std::string& bos, const ProbeInput& in) {
    o->text("checkpoint", f.words[0]);
    o->text("bos", bos);
    o->text("flags", input_flags(f));
    o->text("input", in.how);
    o->json("program", program_json());
}

void probe_files_check(const Flags& f, const ProbeData& p, int T, int V) {
    const bool natural = f.probe_input == INPUT_natural;
    if (natural) {
        data_edits_check(typed_edits(f, T), V);
        edits_check(f);
    }
    output_check(f.json, files_read(f, natural ? p.sources : std::vector<std::string>()));
}
