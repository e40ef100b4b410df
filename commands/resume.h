/*
resume.h -- train --resume: finds the run's newest checkpoint, takes from the run every flag that is
not given, and puts model, optimizer, data and log back to where they were. What was edited or
damaged meanwhile, or would make another run of it, is an error.
*/
#ifndef RESUME_H
#define RESUME_H

// how this program computes; what it computes is the checkpoint's
static std::string build_json() {
    return strf("{\"PRECISION\":\"%s\",\"BACKEND\":\"%s\"}", PRECISION_NAME, ops::name);
}

// adds to *changed how another program computed up to the checkpoint
static void build_changed(const Json& state, std::string* changed) {
    const Json* was = state.get("build");
    if (!was) { return; }                            // of a program that did not write it yet
    for (auto& field : json_of(build_json()).fields) {
        const Json* before = was->get(field.first.c_str());
        if (!before || before->string == field.second.string) { continue; }
        *changed += (changed->empty() ? "\"" : ",\"") + field.first + "\":[" +
                    json_str(before->string) + "," + json_str(field.second.string) + "]";
    }
}

// takes the run's kernel of products, unless --product asks for another: the bits of bf16 depend on
// it. If this machine lacks it, the log tells
static void product_resume(const Json& state, std::string* changed) {
    const Json* was = state.get("product");              // of a program that did not write it yet
    if (!was || was->string.empty() || cpu::choice().name.empty()) { return; }
    if (cpu::choice().forced) { return; }
    if (cpu::choice_keep(!strcmp(PRECISION_NAME, "bf16"), was->string)) { return; }
    printf("note   this processor has no product by %s, which the run had: %s is taken\n",
           was->string.c_str(), cpu::choice().name.c_str());
    *changed += (changed->empty() ? "" : ",") + std::string("\"product_kernel\":[") +
                json_str(was->string) + "," + json_str(cpu::choice().name) + "]";
}

// dies of a log with steps and no checkpoint, whose log a new run would replace
static void run_lost(const std::string& out) {
    if (!log_has_steps(out + "/log.jsonl")) { return; }
    die(EXIT_USER, out + ": holds the log of a run and no checkpoint, so it cannot be continued",
        "begin again in another --out, or move this one away: mv " + out + " " + out + ".old");
}

// dies if a directory without checkpoints is no run, but something else: a checkpoint, a model
static void run_none(const std::string& out) {
    if (file_exists(out + "/log.jsonl")) { return; }
    for (const std::string name : { "state.json", "config.json", "manifest.json" }) {
        if (!file_exists(out + "/" + name)) { continue; }
        const std::string plain = out.substr(0, out.find_last_not_of('/') + 1);
        const size_t slash = plain.rfind('/'), begin = slash == std::string::npos ? 0 : slash + 1;
        const std::string run = begin > 1 ? plain.substr(0, begin - 1) : ".";
        const bool step = plain.compare(begin, 5, "step_") == 0 && is_dir(run) &&
                          file_exists(run + "/log.jsonl");
        die(EXIT_USER, out + ": holds " + name + " and no log, so there is no run to resume",
            step ? "its run goes on with --resume -o " + run : list_beside(out, "-d */"));
    }
}

// the checkpoint that --resume continues, "" if the run has none yet; dies if there is no run,
// or one that is not wanted
static std::string run_find(const Flags& f, long* step) {
    *step = 0;
    if (f.resume && f.out.empty()) {
        die(EXIT_USER, "--resume: wanted --out too: the run to resume",
            "./train_sink train --resume -o runs/NAME");
    }
    if (f.resume && !is_dir(f.out)) {
        die(EXIT_USER, f.out + ": no such directory, so there is no run to resume",
            list_beside(f.out, "-d */") + "; or leave --resume out: a new run begins there");
    }
    const std::string newest = checkpoint_latest(f.out, step);
    if (!f.resume && !f.out.empty() && file_exists(f.out + "/log.jsonl")) {
        die(EXIT_USER, f.out + ": holds a run already",
            newest.empty() ? "choose another --out" : "--resume -o " + f.out +
            " continues it; or choose another --out");
    }
    if (f.resume && newest.empty()) {
        run_none(f.out);
        run_lost(f.out);
    }
    if (!f.resume || newest.empty()) { *step = 0; }
    return f.resume ? newest : "";
}

// dies if a run that has a log, and no checkpoint yet, would begin again with other flags
static void run_again(const Flags& f) {
    const Json was = log_flags(f.out + "/log.jsonl", INFINITY);
    std::string changed;
    const std::string kept = flags_changed(was, f, &changed);
    if (kept.empty() && changed.empty()) { return; }
    die(EXIT_USER, f.out + ": has no checkpoint, and was begun with other flags: " +
        (kept.empty() ? changed : kept), "give the flags of that run again, or another --out");
}

// the flags that the run had at its checkpoint, and what the last --resume from there changed; an
// object without fields if nothing tells them
static Json run_flags(const std::string& out, const Json& state, long step) {
    const std::string log = out + "/log.jsonl";
    const Json* had = state.get("flags");
    Json was = had ? *had : log_flags(log, step);
    log_flags_after(log, step, &was);
    return was;
}

// -b of a run of many ranks: the log has one rank's part. A rank's part and all of them agree in
// what a step was
static void batch_of_all(Flags* f, const Json& state) {
    const std::string file = f->out + ": state.json";
    const Json* data = state.get("data");
    const long T = data ? json_count(*data, "T", 0, file + ": data") : 0,
               tokens = json_count(state, "tokens_per_step", 0, file);
    const bool given = f->given_batch || f->given_total_batch;
    if (!given && !f->total_batch && T > 0 && tokens > 0) { f->batch = std::max(1L, tokens / T); }
}

// The checkpoint's own tokenizer takes the place of the file that the run began with, if that is
// gone: it is the same, as the hash of the tokens will say.
static void tokenizer_keep(Flags* f, const std::string& kept) {
    const bool gone = !f->tokenizer.empty() && f->tokenizer != "bytes" &&
                      !file_exists(f->tokenizer);
    if (gone && !f->given_tokenizer && !kept.empty()) { f->tokenizer = kept; }
}

// takes from the run what is not given; its files are looked for here, and where it ran
static void run_take(Flags* f, const Json& state, long step) {
    const std::string directory = run_started_from(state, f->out);
    const Json was = run_flags(f->out, state, step);
    if (was.fields.empty()) { return; }
    flags_take(f, was);
    batch_of_all(f, state);
    if (!f->given_product && !f->product.empty()) { product_settle(*f); }
    if (!f->given_tokenizer) { f->tokenizer = source_found(f->tokenizer, directory); }
    if (f->given_data) { return; }
    std::string data;
    for (auto& source : split(f->data, ',')) {
        const std::string found = source_found(source, directory);
        source_there(found, hint_for("./train_sink train --resume -o FILE", f->out));
        data += (data.empty() ? "" : ",") + found;
    }
    f->data = data;
}

// the numbers of a checkpoint, by hash: state.json keeps it, and a resumed run has it again
static std::string numbers_json(const Model* m) {
    return "{\"model\": \"" + array_hash(m, m->master) + "\", \"optimizer\": \"" +
           array_hash(m, m->m) + array_hash(m, m->v) + "\"}";
}

// dies if a file of numbers is not the one that was saved: a disk fails, a copy ends early, an
// editor slips
static void numbers_check(const Model* m, const Json& state, const std::string& from) {
    const Json* was = state.get("numbers");
    if (!was) { return; }                            // of a program that did not write it yet
    for (auto& now : json_of(numbers_json(m)).fields) {
        const Json* before = was->get(now.first.c_str());
        if (before && before->string == now.second.string) { continue; }
        die(EXIT_USER,
            from + "/" + now.first + ".safetensors: its numbers have changed since it was saved",
            "--init " + from + " and another --out begin a new run from them");
    }
}

// dies if the position in the data is not the one that so many steps lead to
static void position_check(const Json& position, double sequences, const std::string& file) {
    const Json *drawn = position.get("drawn"), *each = position.get("source_drawn");
    const std::string got = drawn ? json_short(*drawn) : "nothing";
    require(drawn && drawn->type == Json::NUMBER && drawn->number == sequences,
            file + ": data.drawn " + got, "the sequences of all steps, " + number_text(sequences));
    double sum = 0;
    for (auto& n : each ? each->items : std::vector<Json>()) {
        const bool count = n.type == Json::NUMBER && n.number >= 0 && n.number == floor(n.number);
        require(count && n.number <= sequences, file + ": data.source_drawn " + json_short(n),
                "a number of sequences, 0 to " + number_text(sequences));
        sum += n.number;
    }
    require(!each || each->items.empty() || sum == sequences,
            file + ": data.source_drawn of " + number_text(sum) + " in all",
            "the sequences of all steps, " + number_text(sequences));
}

// what --resume changes, for the log: against the flags that the log has so far
static void changes_tell(Run* r, const Flags& f, const Json* saved) {
    const Json logged = log_flags(f.out + "/log.jsonl", r->first);
    if (!logged.fields.empty()) { flags_changed(logged, f, &r->changed); }
    else if (saved) { flags_changed(*saved, f, &r->changed); }
}

// Dies of a checkpoint without its optimizer's state. What begins a new run is said once; the
// checkpoint before this one is named if the run can be resumed from it.
[[noreturn]] static void die_no_optimizer(const std::string& from, const Fallback& other) {
    if (!other.resumes) { hint_also().clear(); }
    die(EXIT_USER, from + ": has no optimizer.safetensors, which --resume needs: a run keeps it "
        "in its newest checkpoint, unless --save-optimizer says all or none",
        "--init " + from + " and another --out begin a new run from its weights");
}

// model, optimizer, data and log as they were at the checkpoint `from`; dies if the flags make
// another run of it
static void run_restore(Run* r, const Flags& f, const std::string& from, const Json& state) {
    const Fallback other = hint_other_checkpoint(f.out, from);
    hint_also() = other.hint;
    const std::string file = from + "/state.json";
    const Json *position = state.get("data"), *flags = state.get("flags");
    require(position, file + ": data", "the position in the data");
    const double step = json_number(state, "step", r->first);
    require(step == r->first, file + ": step " + number_text(step),
            strf("step %ld, as the directory is called", r->first));
    state_check(from);
    hint_also().clear();
    if (f.steps < r->first) {
        printf("note   --steps %ld is less than the %ld that this run has made: no step is left\n",
               f.steps, r->first);
    }
    const std::string again = "begin another run in another --out";
    std::string ignored;
    const std::string kept = flags ? flags_changed(*flags, f, &ignored) : "";
    if (!kept.empty()) {
        die(EXIT_USER, "--resume: " + kept, "leave it out, or " + again);
    }
    changes_tell(r, f, flags);
    build_changed(state, &r->changed);
    product_resume(state, &r->changed);
    const double tokens = json_number(state, "tokens_per_step", r->tokens_per_step);
    if (tokens != r->tokens_per_step) {
        die(EXIT_USER,
            strf("--resume: got %s tokens per step, wanted %s as before",
                 number_text(r->tokens_per_step).c_str(), number_text(tokens).c_str()),
            "leave --batch and --total-batch out, or " + again);
    }
    hint_also() = other.hint;
    position_check(*position, step * tokens / f.arch.T, file);
    hint_also().clear();
    data_restore(&r->data, *position);
    hint_also() = other.hint;
    checkpoint_load(&r->m, from);
    if (!optimizer_load(&r->m, from)) { die_no_optimizer(from, other); }
    numbers_check(&r->m, state, from);
    hint_also().clear();
    if (dist::rank > 0) { return; }
    log_rewind(f.out + "/log.jsonl", r->first);
    saves_clean(f.out);
    r->kept = saves_of(f.out);
}
#endif // RESUME_H
