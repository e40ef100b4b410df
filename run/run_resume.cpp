/*
run/run_resume.cpp -- finds the newest checkpoint, compares each flag with the run's, and
restores model, data and log.
*/
#include "run_resume.h"
#include "gpu.h"
#include "run_flags.h"
#include "../base/look.h"

// ---- which run, and where it goes on

// Returns the directory of the run that `out` is a checkpoint of, "" if it is none.
static std::string run_of_step(const std::string& out) {
    const std::string plain = out.substr(0, out.find_last_not_of('/') + 1);
    std::string run = directory_of(plain);
    if (run.size() > 1) { run.pop_back(); }              // its slash
    const bool is_step = starts_with(file_name(plain), "step_");
    return is_step && file_exists(run + "/log.jsonl") ? run : "";
}

// Dies if a directory without checkpoints is not a run, but something else: a checkpoint, a model,
// a parent of runs; or if it is empty, and no flag says what a new run would be. Dies if its run
// had a checkpoint: one that was killed before its first begins again, to the same bits.
static void run_none(const Flags& f) {
    const std::string& out = f.out;
    const std::string log = out + "/log.jsonl";
    const bool begun = log_has(log, " config ");
    const bool steps = log_has(log, " train ");
    const bool saved = log_has(log, " resume ") || (steps && log_has(log, " done stopped "));
    if (saved || (steps && !begun)) {
        die(out + ": holds the log of a run and no checkpoint, so it cannot be continued",
            "start over in another --out, or move this one away: mv " + out + " " + out + ".old");
    }
    if (begun) { return; }
    for (const std::string name : { "state.json", "config.json", "manifest.json" }) {
        if (!file_exists(out + "/" + name)) { continue; }
        const std::string run = run_of_step(out);
        die(out + ": holds " + name + " and no log, so there is no run to resume",
            run.empty() ? list_beside(out, "-d */") : "continue its run with --resume -o " + run);
    }
    std::string inside;
    for (auto& name : dir_list(out)) {
        if (file_exists(out + "/" + name + "/log.jsonl")) { list_add(&inside, name, " "); }
    }
    if (!inside.empty()) {
        die(out + ": contains runs, but is not one: " + inside,
            "name one of them: --resume -o " + out + "/" + inside.substr(0, inside.find(' ')));
    }
    if (!flags_begin_run(f)) {
        die(out + ": holds no run to resume",
            "see that its disk is mounted: ls " + out + "; or leave --resume out, and give the "
            "flags of a run: a new one begins there");
    }
    if (dist::rank() == 0) { printf("note   %s: holds no run, so one begins\n", out.c_str()); }
}

// Dies if a new run would begin in the directory of another.
static void reject_existing_run(const std::string& out) {
    long step;
    // (a start that was interrupted leaves a log without a line)
    const bool there = !checkpoint_latest(out, &step).empty() ||
                       log_has(out + "/log.jsonl", " config train ");
    if (!there) { return; }
    die(out + ": already holds a run",
        "--resume -o " + out + " continues it; or choose another --out");
}

// Dies if --resume names no directory.
static void resume_check(const std::string& out) {
    if (out.empty()) {
        die("--resume needs --out, the run to continue",
            "./train_sink train --resume -o runs/NAME");
    }
    if (is_dir(out)) { return; }
    die(out + ": no such directory, so there is no run to resume",
        list_beside(out, "-d */") + "; or leave --resume out: a new run begins there");
}

std::string find_checkpoint(const Flags& f, long* step) {
    *step = 0;
    if (!f.resume) {
        if (!f.out.empty()) { reject_existing_run(f.out); }
        return "";
    }
    resume_check(f.out);
    const std::string newest = checkpoint_latest(f.out, step);
    if (newest.empty()) {
        *step = 0;
        run_none(f);
    }
    return newest;
}

// ---- the flags of the run

void inherit_flags(Flags* f, const Json& state, long step, bool begins) {
    const std::string directory = run_started_from(state, f->out);
    const std::string log = f->out + "/log.jsonl";
    const Json* had = state.get("flags");
    Json was = had ? *had : log_flags(log, step);
    log_changes(log, step, INFINITY, &was);              // by the last --resume from there
    if (was.fields.empty()) { return; }
    flags_inherit(f, was, begins);
    flags_inherit_bin(f, was, log);
    gpu_inherit(f, was);
    if (cpu_folder) { cpu_folder->product_settle(*f); }
    if (!f->given_tokenizer) { f->tokenizer = source_found(f->tokenizer, directory); }

    // -b becomes the batch of all ranks: the log has one rank's part, and another number of ranks
    // takes other parts of the same step
    const bool given = f->given_batch || f->given_total_batch || f->total_batch;
    if (begins && !given) { f->batch *= json_count(state, "ranks", 1, log); }
    if (!begins && !given) {
        const std::string file = f->out + ": state.json";
        const long T = json_count(state["data"], "T", 0, file + ": data");
        const long tokens = json_count(state, "tokens_per_step", 0, file);
        if (T > 0 && tokens > 0) { f->batch = std::max(1L, tokens / T); }
    }
    if (begins) { f->given_data = true; }
    if (f->given_data) { return; }
    std::string data;
    for (auto& source : names_listed(f->data, directory)) {
        const std::string found = source_found(source, directory);
        source_require(found, hint_for("./train_sink train --resume -o FILE", f->out));
        list_add(&data, found, ",");
    }
    f->data = data;
}

// ---- what may have changed since

std::string build_json() {
    JsonObject o;
    o.text("PRECISION", PRECISION_NAME);
    o.text("BACKEND", ops::name);
    o.text("COMMIT", COMMIT);
    return o.all();
}

// Adds to *changed how another program computed up to the checkpoint.
static void build_changed(const Json& state, JsonObject* changed) {
    for (auto& [what, now] : json_of(build_json()).fields) {
        const Json* before = state["build"].get(what);   // older checkpoints have no such field
        if (!before || before->string == now.string) { continue; }
        changed->json(what, json_list({ json_str(before->string), json_str(now.string) }));
    }
}

// ---- a run without a checkpoint

// Says how the run of a log was begun otherwise, or "".
static std::string begun_otherwise(const Run& r, const Json& begun) {
    for (auto& now : json_of(switches_json(r.c)).fields) {
        const Json* was = begun["switches"].get(now.first);
        if (!was || was->string == now.second.string) { continue; }
        return now.first + "=" + now.second.string + ", wanted " + was->string + " as before";
    }
    JsonObject may_change;
    return flags_changed(begun["flags"], r.f, &may_change);
}

void run_again(Run* r, const Json& begun) {
    const std::string other = begun_otherwise(*r, begun);
    if (!other.empty()) {
        die(r->f.out + ": has no checkpoint, and was begun with other flags: " + other,
            "give the flags of that run again, or another --out");
    }
    const std::string& log = r->log.path;
    if (dist::rank() > 0 || !log_has(log, " train ")) { return; }
    std::string aside = log + ".old";
    for (int n = 2; is_there(aside); n++) { aside = strf("%s.old%d", log.c_str(), n); }
    if (rename(log.c_str(), aside.c_str())) { die(blame(errno), cannot("move aside", log)); }
    printf("note   %s: the run was ended before its first checkpoint, and begins again; its log so "
           "far is %s\n", r->f.out.c_str(), aside.c_str());
}

// ---- the checkpoint

std::string numbers_json(const Model* m) {
    JsonObject o(JSON_SPACED);
    o.text("model", array_hash(m, m->master));
    o.text("optimizer", array_hash(m, m->adam_m) + array_hash(m, m->adam_v));
    if (m->ema) { o.text("ema", array_hash(m, m->ema)); }
    return o.all();
}

// Dies if a file of numbers is not the one that was saved: a disk fails, a copy ends
// early, an editor slips.
static void numbers_check(const Model* m, const Json& state, const std::string& from) {
    const Json* was = state.get("numbers");
    if (!was) { return; }                                // older checkpoints have no such field
    for (auto& now : json_of(numbers_json(m)).fields) {
        if ((*was)[now.first].string == now.second.string) { continue; }
        die(from + "/" + now.first + ".safetensors: its numbers have changed since it was saved",
            "--init " + from + " and another --out begin a new run from them");
    }
}

// Dies if the position in the data is not the one that this number of steps leads to.
static void position_check(const Json& position, double sequences, const std::string& file) {
    const std::string all = number_text(sequences);
    const Json* drawn = position.get("drawn");
    require(drawn && drawn->is_number() && drawn->number == sequences,
            file + ": data.drawn " + (drawn ? json_short(*drawn) : "nothing"),
            "the sequences of all steps, " + all);
    const std::vector<Json>& each = position["source_drawn"].items;
    double sum = 0;
    for (auto& n : each) {
        const bool count = n.is_number() && n.number >= 0 && n.number == floor(n.number);
        require(count && n.number <= sequences, file + ": data.source_drawn " + json_short(n),
                "a number of sequences, 0 to " + all);
        sum += n.number;
    }
    require(each.empty() || sum == sequences,
            file + ": data.source_drawn of " + number_text(sum) + " in all",
            "the sequences of all steps, " + all);
}

// Dies if a flag that the run must keep is another now, or its step has another size.
static void same_run_check(const Run& r, const Json& state) {
    const std::string again = "begin a new run in another --out";
    JsonObject may_change;
    const std::string kept = flags_changed(state["flags"], r.f, &may_change);
    if (!kept.empty()) { die("--resume: " + kept, "leave it out, or " + again); }

    const double tokens = json_number(state, "tokens_per_step", r.tokens_per_step);
    if (tokens == r.tokens_per_step) { return; }
    die("--resume: got " + number_text(r.tokens_per_step) + " tokens per step, wanted " +
            number_text(tokens) + " as before",
        "leave --batch and --total-batch out, or " + again);
}

// Prints a note if the learning rate had fallen, and jumps where the run goes on: its schedule is
// another now. was: its flags until then.
static void rate_note(const Run& r, const Json& was) {
    Flags f;
    flags_inherit(&f, was);
    const auto before = [&](long step) { return learning_rate(f, step - 1); };
    const auto after = [&](long step) { return learning_rate(r.f, step); };
    long step = r.first;
    while (step > f.warmup && after(step) > 1.1 * before(step)) { step--; }
    const bool typed = step <= f.warmup;                 // it is another at each step: another --lr
    if (was.fields.empty() || typed || step == r.first || r.first >= r.f.steps) { return; }
    printf("note   the learning rate had fallen to %.3g by step %ld and continues at %.3g: only "
           "from step %ld or before can it continue without a jump\n",
           before(r.first), r.first, after(r.first), step);
}

void run_restore(Run* r, Checkpoint* opened, const std::string& from, const Json& state) {
    const Fallback other = hint_other_checkpoint(r->f.out, from);
    hints.also = other.hint;                             // while the checkpoint may be at fault
    const std::string file = from + "/state.json";
    const Json* position = state.get("data");
    require(position, file + ": data", "the position in the data");
    const double step = json_number(state, "step", r->first);
    require(step == r->first, file + ": step " + number_text(step),
            strf("step %ld, as the directory is called", r->first));
    state_check(from);
    hints.also.clear();
    r->touched = state["touched"].string;
    r->unevaluated = state.get("unevaluated") != NULL;
    if (state["flags"]["until"].string == r->f.until) {
        r->met = json_count(state, "met", 0, file);
    }
    if (r->met >= 2) {
        printf("note   --until '%s' has ended this run, which continues with another one\n",
               r->f.until.c_str());
    }
    if (r->f.steps < r->first) {
        printf("note   --steps %ld is less than the %ld that this run has made: no step is left\n",
               r->f.steps, r->first);
    }
    same_run_check(*r, state);
    // for the log: what --resume changes, against the flags that the log has so far
    const Json logged = log_flags(r->log.path, r->first);
    flags_changed(logged.fields.empty() ? state["flags"] : logged, r->f, &r->changed);
    if (dist::rank() == 0) { rate_note(*r, state["flags"]); }
    build_changed(state, &r->changed);

    hints.also = other.hint;
    position_check(*position, r->first * r->tokens_per_step / r->f.arch.T, file);
    checkpoint_read(&r->m, opened);
    if (!optimizer_load(&r->m, from)) {
        // what begins a new run is said once; the checkpoint before this one is named if the run
        // can be resumed from it
        if (!other.resumes) { hints.also.clear(); }
        die(from + ": has no optimizer.safetensors, which --resume needs: a run keeps it "
            "in its newest checkpoint, unless --save-optimizer says all or none",
            "--init " + from + " and another --out begin a new run from its weights");
    }
    numbers_check(&r->m, state, from);
    hints.also.clear();
    data_restore(&r->data, *position);
    if (dist::rank() > 0) { return; }
    log_rewind(r->log.path, r->first, r->unevaluated, state["log"]);
    saves_clean(r->f.out);
    r->kept = saves_of(r->f.out);
}
