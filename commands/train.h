/*
train.h -- a run around its steps: how it is opened, checked, described, resumed, evaluated,
reported and stopped. The steps themselves are in train_sink.cu, which includes this.
*/
#ifndef TRAIN_H
#define TRAIN_H
#include "../cpu/choice.h"
#include "../text/maps.h"
#include "../shell/data_flags.h"
#include "../shell/process.h"
#include "../shell/run_dir.h"
#include "../shell/run_flags.h"
#include "../shell/saves.h"
#include "../text/targets.h"
#include "../version.h"
#include <pthread.h>
#include <setjmp.h>

// mean over the targets that count; NAN if there are none, INFINITY if it is not finite
static double validate(Model* m, Data* data, int B, int T) {
    const long n = data_val_count(data);
    double sum = 0; long count = 0;
    std::vector<int> seqs((size_t)B * (T + 1));
    for (long i = 0; i < n; i += B) {
        if (i / B % dist::world != dist::rank) { continue; }
        const int rows = std::min<long>(B, n - i);
        data_val(data, seqs.data(), rows, i);
        const long k = model_load(m, seqs.data(), rows, T);
        sum += model_forward(m, k, 0) * k;
        count += k;
    }
    double both[] = { sum, (double)count };
    dist::sum(both, 2);
    if (!both[1]) { return NAN; }
    return std::isfinite(both[0]) ? both[0] / both[1] : INFINITY;
}

// The batch in memory: what -b says; else, with --total-batch on a GPU, `kept` by the run that goes
// on, or as many sequences as fit 7/8 of the free memory, up to 2^16 tokens (more do not make a GPU
// faster); else the preset's
static void batch_settle(const Model* m, Flags* f, long kept) {
    const bool choose = !ops::on_host && !f->given_batch && f->total_batch >= f->arch.T;
    const long all = choose ? f->total_batch / f->arch.T / dist::world : 0,
               most = std::max(1L, (1L << 16) / f->arch.T);
    if (choose && kept && all % kept) { kept = 0; }              // of another number of ranks
    if (choose) { f->batch = std::max(1L, kept); }
    for (long B = 2; !kept && B <= std::min(all, most); B++) {
        if (all % B == 0 && acts_bytes(m->c, true, B, f->arch.T) < ops::device_left() / 8 * 7) {
            f->batch = B;
        }
    }
    f->batch = dist::least(f->batch);
    const long at_once = f->batch * f->arch.T * dist::world;
    require(f->total_batch % at_once == 0, strf("--total-batch %ld", f->total_batch),
            strf(dist::world == 1 ? "a multiple of batch * seq = %ld"
                                  : "a multiple of batch * seq * ranks = %ld", at_once));
}

// A step is the same for any number of ranks: each takes an equal part of its sequences
static void batch_share(Flags* f) {
    if (dist::world == 1) { return; }
    const long T = f->arch.T, step = f->total_batch ? f->total_batch : f->batch * T;
    require(step % (T * dist::world) == 0,
            strf("a step of %ld sequences of %ld tokens, %d ranks", step / T, T, dist::world),
            "equal shares for all ranks: change --total-batch or, without it, --batch");
    f->batch = std::min(f->batch, step / T / dist::world);
}

// Gathers the flags that say how large each step is.
static Schedule schedule_of(const Flags& f) {
    return { f.lr, f.min_lr, f.warmup, f.steps, f.schedule != "constant" };
}

// dies of what training cannot do and, in a run that begins, of flags that nothing would read
static void train_checks(const Flags& f, bool begins) {
    require(optimizer_of(f.optimizer) != MUON || dist::world == 1, "--optimizer muon",
            "one process: it needs whole matrices, and with many each keeps a part");
    require(f.only.empty() || dist::world == 1, "--only " + f.only,
            "one process: it needs whole tensors, and with many each keeps a part");
    require(f.schedule == "constant" || f.schedule == "cosine", "--schedule " + f.schedule,
            "constant or cosine");
    require(f.save_optimizer == "last" || f.save_optimizer == "all" || f.save_optimizer == "none",
            "--save-optimizer " + f.save_optimizer, "last, all or none");
    bounds_check(f, 't');
    if (!begins) { return; }
    reject_unused_flags(f, "min_lr", f.schedule != "constant", "--schedule cosine");
    reject_unused_flags(f, "beta2 adam_eps", optimizer_of(f.optimizer) != SGD, "--optimizer adamw or muon");
    reject_unused_flags(f, "adapter", !f.init.empty(), "--init CHECKPOINT");
    reject_unused_model_flags(f);
    reject_unused_data_flags(f, split(f.data, ','));
}

// the default 64 shrinks to a short model's T
static int probe_length(const Flags& f, const std::string& text, long longest, bool learned) {
    long len = 0;
    require(parse_long(text, &len) && len >= 1 && len < 1 << 30, "--probe-len " + text,
            "a number, 1 or more");
    if (len > longest && !f.given_probe_len) { len = longest; }
    require(len <= longest || !learned, strf("--probe-len %ld", len),
            strf("at most %ld, the learned positions", longest));
    if (len > longest) {
        printf("note   --probe-len %ld goes beyond the %ld positions of the model\n", len, longest);
    }
    return len;
}

// a run: what train() carries from step to step
struct Run {
    Flags f; Arch c; Data data; Model m; Log log;
    std::vector<double> eps;
    int accum, probe_len, probes; // batches a step; T and number of the probe sequences
    std::vector<int> seqs, probe; // this rank's of a step (n, T+1); the probe (n, probe_len+1)
    // the step it starts from; that of the newest checkpoint, or -1
    long first, saved; bool resumed;
    std::vector<Saved> kept;      // checkpoints that a newer one may replace
    double saved_at, printed_at;  // when: the last checkpoint, the last line of progress
    // columns of the terminal, 0 if there is none
    double tokens_per_step, started, smooth_ms; int columns;
    std::string changed; // flags that are not what they were before --resume, as JSON
};
// the model is that of the checkpoint `from`: what the flags and the preset say of it must agree
static void arch_keep(Flags* f, const Arch& from_there, const std::string& from) {
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

#include "init.h"

#include "resume.h"

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

// flags -> data, model and log; fresh, or as they were at the newest checkpoint in --out
static Run run_open(Flags f) {
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
        arch_keep(&f, arch, from);
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
    r.m = model_new(r.c, std::max<int>(f.arch.T, r.probe_len), true);
    r.m.min_context = f.min_context;
    only_settle(&r.m, f);
    batch_settle(&r.m, &f,
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

// "avx512, 96 GFLOP/s per thread, timed now"
static std::string product_text() {
    const cpu::Choice& c = cpu::choice();
    const std::string speed = c.gflops ? strf(", %.0f GFLOP/s per thread", c.gflops) : "";
    return c.name + speed + ", " + c.why;
}

// `,"product":"avx512","product_gflops":96.1`: the kernel, and its speed on one thread if known
static std::string product_json() {
    const cpu::Choice& c = cpu::choice();
    if (c.name.empty()) { return ""; }                   // not of this backend
    return ",\"product\":" + json_str(c.name) +
           (c.gflops ? strf(",\"product_gflops\":%.1f", c.gflops) : "");
}

static void run_describe(const Run& r) {
    const Flags& f = r.f; const Arch& c = r.c;
    printf("switch");
    printf("%s", switches_text(c).c_str());
    printf(" PRECISION=%s BACKEND=%s, commit %s\n", PRECISION_NAME, ops::name, COMMIT);
    printf("model  L %d C %d NH %d KV %d HS %d F %d V %d T %d: ", c.L, c.C, c.NH, c.KV, c.HS, c.F,
           c.V, c.T);
    printf("%s parameters\n", count_text(r.m.num_params).c_str());
    printf("%s", column_note(c).c_str());
    if (!f.init.empty()) { printf("init   %s\n", printable(f.init).c_str()); }
    printf("data   %s\n", printable(r.data.description).c_str());
    const std::string step = count_text(r.tokens_per_step),
                      all = count_text(r.tokens_per_step * f.steps);
    const std::string ranks = dist::world > 1 ? strf(" x %d ranks", dist::world) : "";
    printf("batch  %ld x %d x %d%s = %s tokens per step, ", f.batch, f.arch.T, r.accum, ranks.c_str(),
           step.c_str());
    printf("%ld steps = %s tokens\n", f.steps, all.c_str());
    printf("update %s, lr %g %s after %ld warm-up steps, ", f.optimizer.c_str(), f.lr,
           f.schedule.c_str(), f.warmup);
    printf("weight decay %g, clip %g, seed %ld\n", f.weight_decay, f.grad_clip, f.seed);
    double bytes;
    printf("memory %s", memory_text(c, f.batch, f.arch.T, true, &bytes).c_str());
    // with the weights there already
    if (ops::on_host) { printf(", free %s", bytes_text(memory_free()).c_str()); }
    printf("\n");
    printf("device %s\n", ops::device_start().c_str());
    if (!strcmp(BACKEND_NAME, "cpu")) { printf("product %s\n", product_text().c_str()); }
    if (dist::world > 1) {
        printf("ranks  %d by %s, %d of them on this machine\n", dist::world, dist::name,
               dist::neighbors);
    }
    printf("out    %s%s\n", printable(f.out).c_str(),
           r.resumed ? strf(", resumed from step %ld", r.first).c_str() : "");
    if (f.save_optimizer == "none") {
        printf("note   --save-optimizer none: no checkpoint of this run can be resumed\n");
    }
}

static void log_config(Run* r) {
    const std::string build =
        strf("\"params\":%ld,\"backend\":\"%s\",\"precision\":\"%s\",", r->m.num_params, ops::name,
             PRECISION_NAME) +
        strf("\"version\":\"%s\",\"commit\":\"%s\"", VERSION, COMMIT);
    const std::string ranks = dist::world > 1 ? strf(",\"ranks\":%d", dist::world) : "";
    log_line(&r->log, "{\"event\":\"config\",\"switches\":" + switches_json(r->c) +
                          ",\"flags\":" + flags_json(r->f, 't') + "," + build + product_json() +
                          ranks +
                          ",\"data\":" + json_str(r->data.description) + "}");
}

// the first line of a new log, and of one that was lost; flags that changed on the way are told
static void log_begin(Run* r) {
    if (file_size(r->log.path) == 0) { log_config(r); }
    if (r->changed.empty()) { return; }
    printf("change %s\n", printable(r->changed).c_str());
    log_line(&r->log, strf("{\"event\":\"resume\",\"step\":%ld,\"changed\":{", r->first) +
                          r->changed + strf("},\"commit\":\"%s\"}", COMMIT));
}

// ---- a file of data that is cut short while it is mapped. The access to it is left by a jump, for
// the weights are whole: what reads comes before what updates

static sigjmp_buf lost_jump;
static volatile sig_atomic_t lost_armed = 0;
static pthread_t lost_thread;
static std::string lost_file;

static void on_lost(const char* path) {
    if (!lost_armed || !pthread_equal(lost_thread, pthread_self())) { return; }
    lost_armed = 0;
    lost_file = path;
    siglongjmp(lost_jump, 1);
}

// calls `work`; false if a mapped file was lost under it. Of many ranks one alone cannot save
static bool survives(const std::function<void()>& work) {
    lost_thread = pthread_self();
    map_lost() = on_lost;
    if (sigsetjmp(lost_jump, 1)) { return false; }
    lost_armed = dist::world == 1;
    work();
    lost_armed = 0;
    return true;
}

// what a run needs to continue from here, and a probe to know what it was trained on
static std::string run_state(Run* r, long step, bool keep) {
    if (lost_file.empty()) { data_unchanged(&r->data); }
    return strf("{\"step\": %ld, \"batch\": %ld, \"tokens_per_step\": %.0f, ", step, r->f.batch,
                r->tokens_per_step) +
           strf("\"automatic\": %s, ", keep ? "false" : "true") +
           "\"data\": " + data_state(&r->data) +
           ", \"directory\": " + json_str(run_started(r->f.out)) +
           ", \"version\": " + json_str(VERSION) +
           ", \"build\": " + build_json() + ", \"product\": " + json_str(cpu::choice().name) +
           ", \"numbers\": " + numbers_json(&r->m) +
           ", \"flags\": " + flags_json(r->f, 't') + "}";
}

static std::string diverged_hint(const Run& r) {
    const std::string saved = strf("; %s/step_%ld is whole", r.f.out.c_str(), r.saved);
    return strf("try a smaller --lr than %g", r.f.lr) + (r.saved < 0 ? "" : saved);
}

static void run_evaluate(Run* r, long step) { // validation loss, metrics, a sample
    const Flags& f = r->f;
    const double val = validate(&r->m, &r->data, f.batch, f.arch.T);
    const Metrics metrics = measure(&r->m, r->probe.data(), r->probes, r->probe_len,
                                    f.batch * f.arch.T);
    log_line(&r->log, "{" + eval_json(step, val, metrics, r->eps) + "}");
    progress_open() = false;
    printf("%seval %6ld | %s\n", r->columns ? "\r\033[K" : "", step,
           eval_text(val, metrics, r->eps[0]).c_str());
    if (std::isinf(val)) {
        die(EXIT_DIVERGED, strf("the validation loss after step %ld is not finite", step),
            diverged_hint(*r));
    }
    if (dist::rank > 0 || !f.sample || r->data.tokenizer.kind == TOKENIZER_IDS) { return; }
    Rng rng = rng_stream(f.seed, mix64(SEED_SAMPLE, step));
    std::vector<int> tokens(1, r->data.tokenizer.eos);
    generate(&r->m, &tokens, f.sample, 1.0, 0, &rng);
    std::string text = tokenizer_decode(r->data.tokenizer, tokens.data() + 1, tokens.size() - 1,
                                        true);
    utf8_repair(&text);
    log_line(&r->log,
             strf("{\"event\":\"sample\",\"step\":%ld,\"text\":", step) + json_str(text) + "}");
    if (step == 0 && f.init.empty()) { return; }         // of random weights: noise
    printf("sample %s\n", printable(json_str(text)).c_str());
}

// Is this step's line due: by --print-every, or about once a second? The last step's always is.
static bool run_prints(Run* r, long step) {
    const long every = r->f.print_every;
    const double now = now_ms();
    const bool by_time = !every && now - r->printed_at >= 1000,
               by_count = every && step % every == 0;
    if (!by_time && !by_count && step < r->f.steps) { return false; }
    r->printed_at = now;
    return true;
}

// step counts from 1; the loss of a step without a target that counts is NAN: none, null in the log
static void run_report_step(Run* r, long step, double loss, double grad_norm, double ms) {
    const double lr = learning_rate(schedule_of(r->f), step - 1);
    r->smooth_ms = r->smooth_ms ? 0.95 * r->smooth_ms + 0.05 * ms : ms;
    log_line(&r->log, strf("{\"event\":\"train\",\"step\":%ld,\"loss\":", step) + json_num(loss)
        + ",\"grad_norm\":" + json_num(grad_norm) + ",\"lr\":" + json_num(lr)
        + strf(",\"tokens\":%.0f,\"ms\":%.3f}", r->tokens_per_step * step, ms));
    if (!run_prints(r, step)) { return; }
    const bool none = std::isnan(loss) && std::isfinite(grad_norm);
    const std::string shown = none ? "none (no target, no update)" : strf("%.4f", loss);
    const std::string at = strf("step %6ld/%ld | loss %s | ", step, r->f.steps, shown.c_str());
    const std::string rest = strf("norm %.3f | lr %.2e | %.1f ms | ", grad_norm, lr, ms);
    const std::string speed = count_text(r->tokens_per_step / ms * 1e3) + " tok/s";
    const std::string left = duration(r->smooth_ms / 1e3 * (r->f.steps - step)) + " left";
    const std::string done = strf(" | %.0f%%, ", 100.0 * step / r->f.steps) + left;
    if (!r->columns) {
        printf("%s\n", (at + rest + speed + done).c_str());
        fflush(stdout);
        return;
    }
    progress_show({ at + rest + speed + done, at + strf("norm %.3f | ", grad_norm) + speed + done,
                    at + speed + done, at + left, strf("%ld/%ld ", step, r->f.steps) + shown },
                  terminal_columns());
}

// where a run that an error ends can go on from
static std::string run_rescue(const Run& r) {
    if (r.saved < 0) { return "nothing was saved: begin again in another --out"; }
    return strf("%s/step_%ld is whole: --resume -o %s goes on from there", r.f.out.c_str(), r.saved,
                r.f.out.c_str());
}

// What has to be done before the next step; the same on all ranks.
struct Due { bool stop, save, keep; };

static Due run_due(const Run& r, long step) {
    const Flags& f = r.f;
    const double now = now_ms();
    const bool over = f.stop_after > 0 && now - r.started > f.stop_after * 60e3,
               late = f.save_minutes > 0 && now - r.saved_at > f.save_minutes * 60e3,
               asked = stop_signal || over, failed = !r.log.error.empty();
    const long mine = asked ? 3 : failed ? 2 : late ? 1 : 0, wish = -dist::least(-mine);
    const bool planned = step >= f.steps || (f.save_every && step % f.save_every == 0);
    Due due = { wish > 1, planned || wish > 0, planned || wish == 3 };
    if (!r.resumed || step > r.first) { return due; }
    // it is saved already; but an automatic checkpoint may be one that is kept from now on
    const bool automatic = !r.kept.empty() && r.kept.back().automatic;
    due.save = due.keep = planned && dist::any(automatic);
    return due;
}

// Before an error ends the run: its directory may have been moved.
static void run_follow(Run* r) {
    const std::string now = log_directory(r->log);
    if (r->log.error.empty() || now.empty()) { return; }
    char there[PATH_MAX];
    if (!realpath(r->f.out.c_str(), there) || now != there) { r->f.out = now; }
}

// a checkpoint of `step` updates, kept or automatic; then what it replaces is removed
static void run_save(Run* r, long step, bool keep) {
    const bool optimizer = r->f.save_optimizer != "none";
    const double bytes = (optimizer ? 12.0 : 4.0) * r->m.num_params;
    run_follow(r);
    r->saved_at = now_ms();
    if (dist::any(dist::rank == 0 && !keep && !disk_has(r->f.out, bytes))) {
        progress_end();
        printf("note   %s: no room for an automatic checkpoint of %s\n", r->f.out.c_str(),
               bytes_text(bytes).c_str());
        return;
    }
    hint_also() = r->log.error;
    log_sync(r->log);                        // first: a log never ends before its checkpoint
    checkpoint_save(&r->m, r->f.out, step, run_state(r, step, keep), r->data.tokenizer, optimizer);
    hint_also().clear();
    r->saved = step;
    if (dist::rank > 0) { return; }
    const bool last_only = r->f.save_optimizer == "last";
    const std::string dir = strf("%s/step_%ld", r->f.out.c_str(), step);
    saves_prune(&r->kept, { step, dir, !keep, optimizer, last_only }, last_only);
}

// `drawn` and the sequences of every source: where the data were at the top of a step
static std::vector<uint64_t> data_place(const Data& d) {
    std::vector<uint64_t> place(1, d.drawn);
    for (auto& s : d.sources) { place.push_back(s.drawn); }
    return place;
}

// a file of data was lost in this step: goes back to its begin, saves and ends
[[noreturn]] static void run_lost_data(Run* r, long step, const std::vector<uint64_t>& place) {
    r->data.drawn = place[0];
    for (size_t i = 0; i < r->data.sources.size(); i++) { r->data.sources[i].drawn = place[i + 1]; }
    if (step > r->saved && step > 0) { run_save(r, step, false); }
    die(EXIT_MACHINE, lost_file + ": was cut short or replaced while it was read",
        "put it back as it was; write a new version under another name, then mv; " +
        run_rescue(*r));
}

// the loss or the gradients of a step are not finite
[[noreturn]] static void run_diverged(const Run& r, long step, double loss, double grad_norm) {
    die(EXIT_DIVERGED,
        strf("loss is %g, gradient norm %g at step %ld: not finite, stopped before the update",
             loss, grad_norm, step),
        diverged_hint(r));
}

// dies if the log cannot be written any more
static void log_check(const Run& r) {
    if (r.log.error.empty()) { return; }
    const bool gone = r.log.error.find("removed") != std::string::npos;
    die(EXIT_MACHINE, r.log.error, (gone ? "" : "free some disk space; ") + run_rescue(r));
}

// the last line of the log, and of the screen
static void run_finish(Run* r, long step) {
    const std::string hash = array_hash(&r->m, r->m.master);
    const char* how = step >= r->f.steps ? "done" : "stopped";
    log_line(&r->log, strf("{\"event\":\"%s\",\"step\":%ld,\"params_hash\":\"%s\"}", how, step,
                           hash.c_str()));
    log_check(*r);
    if (r->log.f) { fclose(r->log.f); }
    progress_end();
    const bool nothing = r->resumed && step == r->first;
    printf("%s at step %ld%s %s/step_%ld, params_hash %s\n", how, step,
           nothing ? " already:" : ", saved", printable(r->f.out).c_str(), step, hash.c_str());
    fflush(stdout);
    if (stop_signal == SIGPIPE && ferror(stdout)) {
        die(EXIT_MACHINE, "standard output: nobody reads it any more", run_rescue(*r));
    }
}

#endif // TRAIN_H
