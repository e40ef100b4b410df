/*
commands/probe_data.cpp -- what probe_data.h declares.
*/
#include "probe_data.h"
#include "../dataloader.h"
#include "../log.h"
#include "../shell/data_flags.h"
#include "../shell/run_dir.h"
#include "../shell/run_flags.h"
#include "../models/config.h"
#include "../text/look.h"

// a source as a run named it, from where it ran
static std::string source_from(const std::string& name, const std::string& directory) {
    std::string bare = name;
    if (name == "bb" || file_exists(name) || file_exists("data/" + name)) { return name; }
    source_weight(&bare);
    for (auto& path :
         { bare, "data/" + bare, directory + "/" + bare, directory + "/data/" + bare }) {
        if (file_exists(path)) { return path; }
    }
    return bare;
}

ProbeData probe_data(Flags* f, const Json& state) {
    ProbeData p;
    const Json *said = state.get("flags"), *data = state.get("data");
    const std::string directory = run_started_from(state, f->words[0] + "/..");
    // an old checkpoint has none, but its run's log has
    const Json logged = log_flags(f->words[0] + "/../log.jsonl", INFINITY),
               *flags = said || logged.fields.empty() ? said : &logged;
    if (f->given_data) { p.sources = split(f->data, ','); return p; }
    if (!flags || !data) {
        die(EXIT_USER, f->words[0] + ": does not say what it was trained on",
            "name text to probe it with: --data FILE, or --probe-input random");
    }
    p.own = true;
    flags_take_data(f, *flags);
    const std::string where = f->words[0] + "/state.json: data";
    const long T = json_count(*data, "T", 64, where), most = 1L << 30;
    require(T >= 1 && T < most, where + strf(": T %ld", T), strf("1 to %ld", most - 1));
    p.T = (int)T;
    const Json* held = data->get("held");
    for (size_t i = 0; held && i < held->items.size(); i++) {
        Json one;                                        // as an object, so that it is checked
        one.type = Json::OBJECT;
        one.fields = { { "held", held->items[i] } };
        p.held.push_back(json_count(one, "held", 0, where));
    }
    for (auto& name : split(f->data, ',')) {
        p.sources.push_back(source_from(name, directory));
        source_there(p.sources.back(), "the same command with");
    }
    return p;
}

ProbeBos probe_bos(const Flags& f, int V) {
    ProbeBos bos;
    if (f.tokenizer.empty()) { bos.label = f.bos; }      // of shards that say it themselves
    if (f.bos == "none" || f.data == "bb" || f.tokenizer.empty()) { return bos; }
    const Tokenizer tok = tokenizer_of(f.tokenizer);
    const bool tokenizers = f.bos == "default", its = f.bos == "seq" || f.bos == "doc";
    long id = its ? tok.bos : -1;
    if (!its) {
        const auto ids = tokenizer_encode(tok, tokenizers ? "" : f.bos, tokenizers);
        if (ids.size() == 1) { id = ids[0]; }
        const bool number = !tokenizers && parse_long(f.bos, &id);
        require(tokenizers || ids.size() == 1 || number, "--bos " + f.bos,
                "default, none, seq, doc, or one token of the model");
    }
    require(!its || id >= 0, "--bos " + f.bos + ": the tokenizer " + tok.name + " has no BOS",
            "none");
    require(id < V && (id >= 0 || tokenizers), "--bos " + f.bos, strf("an id below %d", V));
    if (id < 0) { bos.label = "default: none"; return bos; }
    const int one = id;
    bos.id = id;
    bos.label = (tokenizers ? "default: " : "") + tokenizer_decode(tok, &one, 1, false);
    return bos;
}

OtherBos bos_other(const Flags& f, const Json& state, int V) {
    const Json *flags = state.get("flags"), *run = flags ? flags->get("bos") : NULL;
    const bool words = !f.tokenizer.empty();
    const bool natural = f.probe_input == "natural";
    if (f.given_bos || f.bos != "none" || f.data == "bb" || !natural) { return {}; }
    if (run && (run->string == "none" || !words)) { return {}; }
    if (run) {
        return { run->string, "the run was trained with --bos " + run->string + ", and here no BOS "
                              "is added" };
    }
    if (!words) { return { "", "no tokenizer says whether this model wants a BOS: --tokenizer" }; }
    const Tokenizer tok = tokenizer_of(f.tokenizer);
    if (tok.before.empty()) { return {}; }
    const std::string first = tokenizer_decode(tok, tok.before.data(), tok.before.size(), false);
    const bool one = tok.before.size() == 1 && tok.before[0] < V;
    return { one ? "default" : "",
             "the model's tokenizer begins a text with " + printable(first) + ", and here it does "
             "not" + (one ? "" : ": it is not one token of the model") };
}

void bos_note(const OtherBos& other, const std::string& then) {
    if (other.note.empty()) { return; }
    printf("note   %s%s\n", other.note.c_str(), other.bos.empty() ? "" : (": " + then).c_str());
}

// the start of each record of a .jsonl, or windows of its text
static ProbeInput probe_records(const Flags& f, const ProbeBos& bos, int T, int V) {
    ProbeInput in;
    Tokenizer tok = tokenizer_of(f.tokenizer);
    DataOptions how = data_options(f, T, T);             // --random-token, --fix-token
    const bool windows = f.probe_from == "windows";
    // before each record, or for a window's first token
    how.bos = windows && f.bos != "doc" ? "seq" : "doc";
    if (bos.id < 0) { how.bos = "none"; }
    tok.bos = bos.id;
    TextCounts counts;
    require(tok.vocab_size <= V,
            strf("tokenizer %s has %d ids, the model %d", tok.name.c_str(), tok.vocab_size, V),
            "the tokenizer that the model was trained with");
    in.x.resize((size_t)f.probe_seqs * (T + 1));
    const PromptOptions wanted = { (int)f.probe_seqs, T, f.skip_bad, windows, &how };
    in.n = data_prompts(f.data, tok, wanted, in.x.data(), &counts);
    in.how = windows ? strf("%d windows of %d tokens", in.n, T + 1)
                     : strf("%d records, the first %d tokens of each", in.n, T + 1);
    if (counts.skipped) { in.how += strf(", %ld shorter ones skipped", counts.skipped); }
    if (counts.begun) { in.how += ", those that begin with BOS got no second one"; }
    return in;
}

ProbeInput probe_inputs(const Flags& f, const ProbeBos& bos, const ProbeData& p, size_t k,
                        int T, int V) {
    ProbeInput in;
    const bool text = f.data != "bb" && file_exists(f.data) && !is_dir(f.data);
    const bool records = text && text_format(f.data) == TEXT_JSONL && !p.own;
    in.x.resize((size_t)f.probe_seqs * (T + 1));
    if (f.probe_input == "natural") {
        require(!text || !f.tokenizer.empty(),
                f.data + ": the checkpoint has no tokenizer to read text with",
                "--tokenizer tokenizer.json, or bytes");
        require(f.probe_from != "start" || records, "--probe-from start of " + f.data,
                "a .jsonl of records");
        if (records) { return probe_records(f, bos, T, V); }
        DataOptions o = data_options(f, p.own ? p.T : T, T);
        if (!f.tokenizer.empty() && f.bos != "doc") { o.bos = "none"; }
        if (k < p.held.size()) { o.held = { p.held[k] }; }
        Data data = data_open(o);
        if (f.bos != "doc" && bos.id >= 0) { data.opt.bos = "seq"; data.tokenizer.bos = bos.id; }
        in.n = data_probe(&data, in.x.data());
        in.how = strf("%d %s of %d tokens", in.n, data.bb ? "sequences" : "windows", T + 1);
        in.how += p.own ? ", held out by the run" : "";
        return in;
    }
    const bool random = f.probe_input == "random";
    Rng rng = rng_stream(f.seed, SEED_PROBE);
    require(random || f.probe_input == "repeated", "--probe-input " + f.probe_input,
            "natural, random or repeated");
    require(!f.given_data && !f.given_bos && !f.given_random_token && !f.given_fix_token &&
                !f.given_tokenizer,
            "--data, --tokenizer, --bos, --random-token, --fix-token with "
            "--probe-input " +
                f.probe_input,
            "--probe-input natural");
    for (long i = 0; i < f.probe_seqs; i++) {
        const int token = rng_below(&rng, V);
        for (int t = 0; t <= T; t++) {
            in.x[i * (T + 1) + t] = random ? (int)rng_below(&rng, V) : token;
        }
    }
    in.n = f.probe_seqs;
    in.how = strf("%d sequences of %d tokens", in.n, T + 1);
    return in;
}

void probe_from_check(const Flags& f) {
    require(f.probe_from.empty() || f.probe_from == "start" || f.probe_from == "windows",
            "--probe-from " + f.probe_from, "start or windows");
}

void probe_files_check(const Flags& f, const ProbeData& p) {
    const bool natural = f.probe_input == "natural";
    if (natural) { reject_unused_data_flags(f, p.sources); }
    output_check(f.json, files_read(f, natural ? p.sources : std::vector<std::string>()));
}
