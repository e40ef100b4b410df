/*
commands/run_open.cpp -- opens a run: flags -> data, model and log, fresh, as --init has them, or as
they were at a checkpoint (--resume).
*/
#include "train.h"
#include "../checkpoint.h"
#include "../cpu/choice.h"
#include "../shell/data_flags.h"
#include "../shell/process.h"
#include "../shell/run_dir.h"
#include "../shell/run_flags.h"
#include "../text/look.h"
#include "../text/sft.h"
#include "../text/targets.h"
#include "generate.h"
#include "memory_needed.h"
#include "open_model.h"

// ----------------------------------------------------------------------------
// train --init CHECKPOINT: a run that begins with the weights of a model that is there already,
// ours or another family's. What the checkpoint says of its model is kept, and its tokenizer. Two
// things may be new: a shorter --seq, and the BIAS of this build where the model has none, so that
// one can watch whether a sink moves to a place that it did not have. And --only, which trains
// nothing but that.

// the model is that of the checkpoint `from`: what the flags and the preset say of it must agree
static void arch_from_checkpoint(Flags* f, const Arch& from_there, const std::string& from) {
    Arch was = from_there;
    Flags said = *f;
    if (f->given_model) { preset_apply(&said); }
    const std::vector<ArchRow> theirs = arch_rows(&was), ours = arch_rows(&said.arch);
    for (size_t i = 0; i < ours.size(); i++) {
        const std::string field = ours[i].field;
        const bool size = field == "L" || field == "C" || field == "F" || field == "NH",
                   preset = f->given_model && size && *(int*)ours[i].at;
        const std::string got = arch_text(ours[i], false), wanted = arch_text(theirs[i], false);
        if ((!f->given_arch[i] && !preset) || got == wanted) { continue; }
        die(EXIT_USER,
            from + ": holds a different model: " + ours[i].by + " " + wanted + ", got " + got,
            "leave the flags of the model out: they are taken from the checkpoint");
    }
    f->arch = was;
}

// a switch of this build that somebody chose, and that the model does not have
static void init_switches(const Arch& theirs, const std::string& from) {
    Arch model = theirs, build;
    const std::vector<ArchRow> wanted = arch_rows(&model), got = arch_rows(&build);
    for (size_t i = 0; i < got.size(); i++) {
        if (got[i].type != ARCH_kind || is_flag(got[i]) || *(kind*)got[i].at == 0) { continue; }
        const std::string ours = kind_name(got[i]), its = kind_name(wanted[i]);
        if (ours == its) { continue; }
        die(EXIT_USER, strf("--init %s: has %s=%s, and this build %s", from.c_str(), got[i].by,
                            its.c_str(), ours.c_str()),
            strf("make train_sink without %s=%s: a build takes it from the model", got[i].by,
                 ours.c_str()));
    }
}

// the model of --init: its rows become the flags'. The caller reads the weights, and so closes it
static Checkpoint init_open(Flags* f) {
    Checkpoint k = checkpoint_open(f->init, f->adapter, true);
    init_switches(k.c, f->init);
    adapter_said(k, f->adapter);
    const std::string only = forward_only_part(k.c);
    require(only.empty(), "--init " + f->init + ", with " + only,
            "a model without them: they only run forward");
    require(!k.adds_bias || !bias_of(k.c).token || !pe_of(k.c).learnable,
            "--init " + f->init + ", whose positions are learned, and BIAS=sink_token",
            "another BIAS: there is no position for one more token");
    require(k.adds_bias || !f->given_init_logit, strf("--init-logit %g", f->init_logit),
            "a model that has no z of its own, in a build with BIAS=logit");
    if (flag_given(*f, "seq") && !pe_of(k.c).learnable) {
        k.c.context = std::max(k.c.context, k.c.T);
        k.c.T = f->arch.T;
    }
    if (k.adds_bias) {
        k.c.bias_share = f->arch.bias_share;
        k.c.v_star = f->arch.v_star;
        if (f->arch.k_dims) { k.c.k_dims = f->arch.k_dims; }
    }
    arch_from_checkpoint(f, k.c, f->init);
    return k;
}

// --init-logit: every head's z
static void init_logits(Model* m, const Flags& f) {
    if (!f.given_init_logit) { return; }
    require(bias_of(m->arch).column == LOGIT_COLUMN && bias_of(m->arch).learn_k,
            strf("--init-logit %g", f.init_logit), "a build with BIAS=logit");
    for (auto& t : m->tensors) {
        if (!ends_with(t.name, ".sinks")) { continue; }
        const std::vector<acc> z(t.count, acc(f.init_logit));
        ops::to_device(full_array(m, m->master) + t.at, z.data(), t.count * sizeof(acc));
    }
    publish_weights(m);
}

// --only: the words; each has to be in the name of some tensor
static void select_trained(Model* m, const Flags& f) {
    m->only = split(f.only, ',');
    for (auto& word : m->only) {
        std::string names;
        bool found = false;
        for (auto& t : m->tensors) {
            found = found || has_word(t, word);
            const size_t layer = t.name.find("layers.");
            if (layer == t.name.npos || t.name.compare(layer, 9, "layers.0.") == 0) {
                names += " " + t.name;
            }
        }
        require(found, "--only " + word, "a word of one of these names:" + names);
    }
}

// ----------------------------------------------------------------------------
// train --resume: finds the run's newest checkpoint, takes from the run every flag that is
// not given, and puts model, optimizer, data and log back to where they were. What was edited or
// damaged meanwhile, or would make another run of it, is an error.

std::string build_json() {
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
    const std::string both = json_str(was->string) + "," + json_str(cpu::choice().name);
    list_add(changed, "\"product_kernel\":[" + both + "]", ",");
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
        list_add(&data, found, ",");
    }
    f->data = data;
}

std::string numbers_json(const Model* m) {
    return "{\"model\": \"" + array_hash(m, m->master) + "\", \"optimizer\": \"" +
           array_hash(m, m->adam_m) + array_hash(m, m->adam_v) + "\"}";
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

// ----------------------------------------------------------------------------
// a new run, or one that goes on

// A step is the same for any number of ranks: each takes an equal part of its sequences
static void batch_share(Flags* f) {
    if (dist::world == 1) { return; }
    const long T = f->arch.T, step = f->total_batch ? f->total_batch : f->batch * T;
    require(step % (T * dist::world) == 0,
            strf("a step of %ld sequences of %ld tokens, %d ranks", step / T, T, dist::world),
            "equal shares for all ranks: change --total-batch or, without it, --batch");
    f->batch = std::min(f->batch, step / T / dist::world);
}

// dies of what training cannot do and, in a run that begins, of flags that nothing would read
static void train_checks(const Flags& f, bool begins) {
    require(optimizer_of(f.optimizer) != MUON || dist::world == 1, "--optimizer muon",
            "one process: it needs whole matrices, and with many each keeps a part");
    require(f.only.empty() || dist::world == 1, "--only " + f.only,
            "one process: it needs whole tensors, and with many each keeps a part");
    require(!f.graph || dist::world == 1, "--graph",
            "one process: gradients go to the other ranks between the kernels");
    require(f.schedule == "constant" || f.schedule == "cosine", "--schedule " + f.schedule,
            "constant or cosine");
    require(f.save_optimizer == "last" || f.save_optimizer == "all" || f.save_optimizer == "none",
            "--save-optimizer " + f.save_optimizer, "last, all or none");
    bounds_check(f, 't');
    if (!begins) { return; }
    reject_unused_flags(f, "min_lr", f.schedule != "constant", "--schedule cosine");
    reject_unused_flags(f, "beta2 adam_eps", optimizer_of(f.optimizer) != SGD,
                        "--optimizer adamw or muon");
    reject_unused_flags(f, "adapter", !f.init.empty(), "--init CHECKPOINT");
    reject_unused_model_flags(f);
    reject_unused_data_flags(f, split(f.data, ','));
}

// dies if no target of the training data counts: a run could only shrink its weights
static void targets_check(const Data& data, const Arch& c, const Flags& f) {
    const int before = std::max<int>(c.prefix, f.min_context);
    if (data_has_target(data, before)) { return; }
    std::string hint = "name other data: here every token is masked";
    if (!f.sft.empty()) {
        hint = "conversations need a message whose role is \"assistant\"; or --sft-loss all";
    }
    if (before > c.T) {
        hint = strf("lower --prefix or --min-context, or raise --seq above %d", c.T);
    }
    die(EXIT_USER, "the training data (" + data.description + "): got no target that counts, "
        "wanted at least one to learn from", hint);
}

// Says if the model of --init has a chat template that writes a conversation in another way than
// --sft:
// --chat would then ask it in a form that it was not trained on
static void sft_note(const Flags& f, const Tokenizer& tok) {
    if (f.sft.empty() || f.init.empty() || tok.eos < 0) { return; }
    int end = -1;
    const Chat chat = chat_of(f.init, tok, &end);
    if (chat.text.empty()) { return; }
    const std::string question = "qzj", answer = "xkv", eos = tok.text[tok.eos];
    std::string turns = "<|user|>\n" + question + eos + "\n<|assistant|>\n" + answer + eos;
    if (f.sft == "chatml") {
        turns = "<|im_start|>user\n" + question + "<|im_end|>\n<|im_start|>assistant\n" + answer +
                "<|im_end|>";
    }
    std::string own;
    const std::string wrong = chat_conversation(chat, question, answer, &own);
    if (wrong.empty() && own.find(turns) != std::string::npos) { return; }
    printf("note   the chat template of %s writes a conversation in another way than --sft %s\n",
           f.init.c_str(), f.sft.c_str());
}

Run run_open(Flags f) {
    Run r = Run();
    const bool first = dist::rank == 0;
    dist::tensors_start();
    dist::agree("build", switches_text(f.arch) + ", commit " + COMMIT,
                "start one program everywhere");
    dist::agree("command line", flags_json(f, 't'), "give all ranks the same flags");
    if (first && f.resume && is_dir(f.out)) { run_lock(f.out); }
    dist::barrier();
    const std::string from = run_find(f, &r.first);
    Checkpoint begin;                                    // of --init, in a new run
    std::string tokenizer;                               // the model's own
    Json state;                                          // of the checkpoint that goes on
    if (!from.empty()) {
        hint_also() = hint_other_checkpoint(f.out, from).hint;
        state = json_file(from + "/state.json");
        run_take(&f, state, r.first);
        const Arch arch = checkpoint_arch(from, &tokenizer);
        hint_also().clear();                             // what follows may be a flag's fault
        arch_from_checkpoint(&f, arch, from);
        tokenizer_keep(&f, tokenizer);
    } else if (!f.init.empty()) {
        f.init = checkpoint_in(f.init);
        begin = init_open(&f);
        tokenizer = begin.tokenizer;
    }
    if (!f.init.empty() && f.tokenizer.empty() && f.data != "bb") { f.tokenizer = tokenizer; }
    preset_apply(&f);
    batch_share(&f);
    require(f.data != "bb" || f.tokenizer.empty(), "--tokenizer " + f.tokenizer,
            "text to read with it: --data FILE");
    r.probe_len = probe_length(f, f.probe_len, f.arch.T, PE_ROWS[f.arch.pe].learnable);
    train_checks(f, from.empty());
    r.eps = eps_list(f);
    // text is made into shards by one rank, and found by the others
    if (first) { r.data = data_from_flags(f, f.arch.T, r.probe_len); }
    dist::barrier();
    if (!first) { r.data = data_from_flags(f, f.arch.T, r.probe_len); }
    data_mark(&r.data);
    r.c = arch_from_flags(&f, r.data.V);
    targets_check(r.data, r.c, f);
    if (first) { sft_note(f, r.data.tokenizer); }
    memory_check(r.c, f.batch, f.arch.T, true);
    step_memory_check(f.total_batch);
    r.m = model_new(r.c, std::max<int>(f.arch.T, r.probe_len), true);
    r.m.min_context = f.min_context;
    select_trained(&r.m, f);
    choose_batch(&r.m, &f,
                 from.empty() ? 0 : json_count(state, "batch", 0, from + "/state.json"));
    const double at_once = (double)f.batch * f.arch.T * dist::world;
    r.accum = f.total_batch ? f.total_batch / at_once : 1;
    r.tokens_per_step = r.accum * at_once;
    if (first && f.out.empty()) { f.out = next_run_dir(); }
    dist::spread(&f.out, "the name of the run");
    if (first) { make_dirs(f.out); }
    // again, now that nobody else can begin one
    if (first && !f.resume) { run_lock(f.out); run_find(f, &r.first); }
    r.resumed = !from.empty();
    r.saved = r.resumed ? r.first : -1;
    if (r.resumed) {
        run_restore(&r, f, from, state);
    } else {
        model_init(&r.m, f.seed);
        init_logits(&r.m, f);
        if (!f.init.empty()) { checkpoint_read(&r.m, &begin); }
        r.first = 0;
    }
    r.log.path = f.out + "/log.jsonl";
    if (f.resume && !r.resumed && first) { run_again(f); }
    if (first) { log_open(&r.log, r.resumed); }
    if (dist::world > 1) {
        dist::agree("data", data_state(&r.data), "all ranks must see the same files");
    }
    r.seqs.resize((size_t)r.accum * f.batch * (f.arch.T + 1));
    r.probe.resize((size_t)f.probe_seqs * (r.probe_len + 1));
    r.probes = data_probe(&r.data, r.probe.data());
    r.started = r.saved_at = r.printed_at = now_ms();
    r.columns = dist::world > 1 ? 0 : terminal_columns();        // mpirun passes whole lines on
    r.f = f;
    return r;
}
