/*
run/run_open.cpp -- opens a run: turns the flags into data, model and log. A run starts
fresh, from the weights of --init, or from its own checkpoint (--resume, in run_resume.h). Start at
the end, with run_open.
*/
#include "train.h"
#include "../core/measure.h"
#include "../core/positions.h"
#include "data_flags.h"
#include "run_dir.h"
#include "run_flags.h"
#include "../base/lock.h"
#include "../base/plural.h"
#include "../core/targets.h"
#include "default_model.h"
#include "gpu.h"
#include "memory_needed.h"
#include "open_model.h"
#include "probe_data.h"
#include "run_resume.h"

// ----------------------------------------------------------------------------
// train --init CHECKPOINT: starts a run from the weights of an existing model, ours or another
// family's. The model's properties and its tokenizer come from the checkpoint. Two things may be
// new: a shorter --seq, and this build's BIAS if the model has none, to watch whether the sink
// moves to the new key. --only then trains nothing else.

// Sets the model to `model`, that of checkpoint `from`. Dies if the flags or the preset ask for a
// different one.
static void arch_from_checkpoint(Flags* f, Arch model, const std::string& from) {
    Flags asked = *f;
    if (f->given_model) { preset_apply(&asked); }
    for (auto& [got, wanted] : rows_apart(&asked.arch, &model)) {
        const bool size = f->given_model && is_one_of(" L C F NH ", got.field);
        const bool by_preset = size && *(int*)got.at != 0;
        if (!by_preset && !flag_given(*f, log_name(got))) { continue; }
        die(from + " has " + got.by + " " + field_text(wanted, false) + ", got " +
                field_text(got, false),
            "leave out the model's flags; they come from the checkpoint");
    }
    f->arch = model;
}

// Dies if this build has a non-default switch value that --init's model does not have.
static void init_switches(Arch model, const std::string& from) {
    Arch build;
    for (auto& [got, wanted] : rows_apart(&build, &model)) {
        if (got.type != FIELD_kind || is_flag(got) || *(kind*)got.at == 0) { continue; }
        const std::string name = strf("%s=", got.by);
        const std::string ours = name + kind_name(got);
        die("--init " + from + " has " + name + kind_name(wanted) + ", this build has " + ours,
            "rebuild without " + ours + "; the model brings its own");
    }
}

// Dies if the model of --init, or a flag that is new in it, cannot be trained here.
static void init_check(const Checkpoint& k, const Flags& f) {
    const std::string init = "--init " + f.init;
    const std::string only_forward = forward_only_part(k.c);
    require(only_forward.empty(), init + ", with " + only_forward,
            "a model without them: they only run forward");
    require(!k.adds_bias || !bias_of(k.c).token || !pe_of(k.c).learnable,
            init + ", whose positions are learned, and BIAS=sink_token",
            "another BIAS: there is no position for one more token");
    require(k.adds_bias || !f.given_init_logit, strf("--init-logit %g", f.init_logit),
            "a model that has no z of its own, in a build with BIAS=logit");
}

// Opens --init's model and copies its rows into the flags. The caller then reads the weights, which
// closes it.
static Checkpoint init_open(Flags* f) {
    Checkpoint k = checkpoint_open(f->init, true);
    init_switches(k.c, f->init);
    init_check(k, *f);
    if (flag_given(*f, "seq") && !pe_of(k.c).learnable) {
        k.c.context = std::max(k.c.context, k.c.T);
        k.c.T = f->arch.T;
    }
    const long most = rope_limit(k.c);
    require(k.c.T <= most, strf("--init %s, at --seq %d", f->init.c_str(), k.c.T),
            strf("--seq %ld or less: the model has other positions beyond, which are not computed",
                 most));
    if (k.adds_bias) {
        k.c.bias_share = f->arch.bias_share;
        k.c.v_star = f->arch.v_star;
        if (f->arch.k_dims) { k.c.k_dims = f->arch.k_dims; }
    }
    arch_from_checkpoint(f, k.c, f->init);
    return k;
}

// Sets every head's z to --init-logit.
static void init_logits(Model* m, const Flags& f) {
    if (!f.given_init_logit) { return; }
    for (auto& t : m->tensors) {
        if (t.purpose != FOR_LOGIT) { continue; }
        const std::vector<acc> z(t.count, acc(f.init_logit));
        copy_to_device(full_array(m, m->master) + t.at, z);
    }
    publish_weights(m);
}

std::vector<std::string> names_of_word(const Model* m, const std::string& given,
                                       const std::string& word, bool anywhere) {
    std::vector<std::string> found;
    std::string names;
    double count = 0;
    for (auto& t : m->tensors) {
        if (anywhere ? contains(t.name, word) : has_word(t, word)) {
            found.push_back(t.name);
            count += t.count;
        }
        if (!contains(t.name, "layers.") || contains(t.name, "layers.0.")) {
            names += " " + t.name;
        }
    }
    require(!found.empty(), given, "a word of one of these names:" + names);
    printf("words  %s: %s, %s parameters\n", printable(given).c_str(),
           plural(found.size(), "tensor").c_str(), count_text(count).c_str());
    return found;
}

// Reads the words of --only.
static void select_trained(Model* m, const Flags& f, bool anywhere) {
    const std::vector<std::string> words = split(f.only, ',');
    for (auto& word : words) {
        require(anywhere || std::count(words.begin(), words.end(), word) == 1,
                "--only " + f.only, "every word once");
        for (auto& name : names_of_word(m, "--only " + word, word, anywhere)) {
            m->only.push_back(name);
        }
    }
}

// ----------------------------------------------------------------------------
// what training cannot do

// Dies if no target of the training data counts: a run could only shrink its weights.
static void targets_check(const Data& data, const Arch& c, const Flags& f) {
    const int least = std::max<int>(c.prefix, f.min_context);
    const int most = f.max_context ? f.max_context : c.T;
    if (data_has_target(data, least, most)) { return; }
    std::string hint = "use other data; every token of this is masked";
    if (text_folder) { hint += ": conversations need a segment of loss 1; or --sft-loss all"; }
    if (least > std::min(most, c.T)) {
        hint = strf("lower --prefix or --min-context, or raise --seq above %d", c.T);
        if (most < c.T) { hint = strf("lower --prefix, or raise --max-context to %d", least); }
    }
    die("the training data (" + data.description + ") has no target to learn from", hint);
}

// ----------------------------------------------------------------------------
// a new run, or a resumed one

// Where a run begins: a checkpoint that --resume continues, the model of --init, or neither.
struct Origin {
    std::string from;                            // the checkpoint to resume, or ""
    Json state;                                  // its state.json, or how a log begins
    Checkpoint model;                            // the same, or that of --init, opened

    bool resumes() const { return !from.empty(); }
};

// Takes the model of the checkpoint that goes on, and its tokenizer if the file that the run began
// with is gone: it is the same, as the hash of the tokens will say.
static void take_checkpoint(Flags* f, Origin* o) {
    o->model = checkpoint_open(o->from);
    hints.also.clear();                                  // what follows may be a flag's fault
    arch_from_checkpoint(f, o->model.c, o->from);
    const bool gone = !f->tokenizer.empty() && f->tokenizer != "bytes" &&
                      !file_exists(f->tokenizer);
    const std::string& own = o->model.tokenizer;
    if (gone && !f->given_tokenizer && !own.empty()) { f->tokenizer = own; }
}

// Takes the model of --init, and the built-in task that it was trained on, unless data are given.
static void take_init(Flags* f, Origin* o) {
    f->init = checkpoint_in(f->init);
    o->model = init_open(f);
    const Json was = trained_flags(f->init);
    require(f->given_data || was["data"].string == "bb", "--init " + f->init + ": got no --data",
            "the text to go on with: --data FILE (or --data bb, the built-in task)");
    if (!f->given_data) { flags_inherit_task(f, was); }
    tokenizer_note(*f, o->model.tokenizer, f->init);
}

// Settles what the run is: flags that are given, then what a run that goes on had, or the model of
// --init, then presets. Ends the program at flags that cannot be followed.
static Origin run_settle(Run* r) {
    Flags* f = &r->f;
    Origin o;
    o.from = find_checkpoint(*f, &r->first);
    const bool begins = !o.resumes();
    if (f->resume) {
        hints.also = begins ? "" : hint_other_checkpoint(f->out, o.from).hint;
        o.state = begins ? log_config(f->out + "/log.jsonl") : json_file(o.from + "/state.json");
        inherit_flags(f, o.state, r->first, begins);
    }
    if (!begins)                { take_checkpoint(f, &o); }
    else if (!f->init.empty())  { take_init(f, &o); }
    if (!f->init.empty() && f->data != "bb" && f->tokenizer.empty()) {
        f->tokenizer = o.model.tokenizer;
    }

    const std::string note = default_model(f, !ops::on_host);
    if (dist::rank() == 0) { printf("%s", note.c_str()); }
    preset_apply(f);
    dist::run_share(f);
    r->probe_len = probe_length(*f, f->probe_len, f->arch.T, PE_ROWS[f->arch.pe].learnable);
    flags_check(*f, COMMAND_train, !begins);
    if (begins) { edits_check(*f); }
    if (begins && f->bos == "seq") { reject_covered_bos(*f); }
    eps_list(*f);                                        // both end the program at a wrong value
    until_of(*f);
    return o;
}

// Opens the data. One rank tokenizes a text into shards, and the others find them.
static void run_data(Run* r, bool begins) {
    Flags* f = &r->f;
    table_memory_check(*f);
    const bool first = dist::rank() == 0;
    DataOptions options = data_options(*f, f->arch.T, r->probe_len);
    options.unread = f->dry_run;
    if (!first) { dist::barrier(); }
    r->data = data_open(options);
    if (first) { dist::barrier(); }
    data_bin_check(r->data);
    data_mark(&r->data);
    r->c = arch_from_flags(f, r->data.V);
    if (f->dry_run) { return; }
    targets_check(r->data, r->c, *f);
    if (!first || !begins) { return; }
    if (f->bos == "doc" && text_folder) { text_folder->one_document_note(f->data); }
    if (f->init.empty()) { return; }
    printf("%s", trained_notes(trained_data(trained_flags(f->init)), *f).c_str());
}

// Allocates the model and settles the batch size.
static void run_model(Run* r, const Origin& o) {
    Flags* f = &r->f;
    const int T = f->arch.T;
    memory_check(r->c, f->batch, T, true, 0, f);
    step_memory_check(f->total_batch);
    r->attends_by = gpu_settle(f, r->c, o.resumes());
    r->m = model_new(r->c, std::max(T, r->probe_len), true);
    require(until_of(*f).number != "sink_*" || has_extra_key(&r->m), "--until '" + f->until + "'",
            "a model with an extra key or a sink token: BIAS=k, ..");
    r->m.min_context = f->min_context;
    r->m.max_context = f->max_context;
    const bool anywhere = o.resumes() && !o.state.get("words");
    select_trained(&r->m, *f, anywhere);
    if (f->ema > 0) { r->m.ema = device_array<acc>(r->m.shard.mine); }
    choose_batch(&r->m, f, json_count(o.state, "batch", 0, o.from + "/state.json"));
    const double at_once = (double)f->batch * T * dist::world();
    r->accum = f->total_batch ? f->total_batch / at_once : 1;
    if (after_model) { after_model->run(r, anywhere); }
    r->tokens_per_step = r->accum * at_once;
}

// Locks the directory until this process ends. Ends the program if another is at work there.
static void run_lock(const std::string& out) {
    dir_lock(out, "wait until it ends, or choose another --out");
}

// Creates and locks the run's directory, so that no other run can start there.
static void run_directory(Run* r) {
    Flags* f = &r->f;
    const bool first = dist::rank() == 0;
    if (first && f->out.empty()) { f->out = next_run_dir(); }
    dist::spread(&f->out);
    if (!first) { return; }
    make_dirs(f->out);
    if (f->resume) { return; }                           // locked already
    run_lock(f->out);
    find_checkpoint(*f, &r->first);                      // in case one started in the meantime
}

// Sets the weights, and the rest of the state if the run is resumed.
static void run_fill(Run* r, Origin* o) {
    r->resumed = o->resumes();
    r->saved = r->resumed ? r->first : -1;
    // (older checkpoints name no kernel)
    if (cpu_folder) { cpu_folder->product_resume(o->state["product"].string, &r->changed); }
    if (r->resumed) {
        run_restore(r, &o->model, o->from, o->state);
        return;
    }
    model_init(&r->m, r->f.seed);
    init_logits(&r->m, r->f);
    if (!r->f.init.empty()) { checkpoint_read(&r->m, &o->model); }
    if (r->m.ema) { ops::device_copy(r->m.ema, r->m.master, r->m.shard.mine * sizeof(acc)); }
    if (!r->f.resume) { return; }
    run_again(r, o->state);
    if (dist::rank() == 0) { saves_clean(r->f.out); }    // killed in the save of step 0
}

Run run_open(Flags f) {
    Run r = Run();
    r.f = f;
    dist::tensors_start(f.out);
    dist::run_agree(f);
    if (dist::rank() == 0 && f.resume && is_dir(f.out) && !f.dry_run) { run_lock(f.out); }
    dist::barrier();

    Origin origin = run_settle(&r);
    run_data(&r, !origin.resumes());
    run_model(&r, origin);
    if (f.dry_run) { return r; }
    run_directory(&r);
    r.log.path = r.f.out + "/log.jsonl";
    run_fill(&r, &origin);
    if (dist::rank() == 0) { log_open(&r.log, r.resumed); }
    if (dist::world() > 1) {
        dist::agree("data", data_state(&r.data), "all ranks must see the same files");
    }
    r.seqs.resize(r.accum * r.f.batch * (r.f.arch.T + 1));
    r.probe.resize(r.f.probe_seqs * (r.probe_len + 1));
    r.probes = data_probe(&r.data, r.probe.data());
    r.started = r.saved_at = r.printed_at = now_ms();
    return r;
}
