/*
commands/train.cpp -- what a run does around its steps: train.h.
*/
#include "train.h"
#include "../checkpoint.h"
#include "../cpu/choice.h"
#include "../measure.h"
#include "../shell/process.h"
#include "../shell/run_flags.h"
#include "../text/maps.h"
#include "../train_sink.h"
#include "generate.h"
#include "memory_needed.h"
#include <limits.h>
#include <pthread.h>
#include <setjmp.h>
#include "../version.h"

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

void run_describe(const Run& r) {
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
    printf("batch  %ld x %d x %d%s = %s tokens per step, ", f.batch, f.arch.T, r.accum,
           ranks.c_str(), step.c_str());
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

void log_begin(Run* r) {
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

bool survives(const std::function<void()>& work) {
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

void run_evaluate(Run* r, long step) { // validation loss, metrics, a sample
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

void run_report_step(Run* r, long step, double loss, double grad_norm, double ms) {
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

Due run_due(const Run& r, long step) {
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

void run_save(Run* r, long step, bool keep) {
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
    run_undraw(r);
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

// ---- the data of a step

static std::vector<uint64_t> data_place(const Data& d) {
    std::vector<uint64_t> place(1, d.drawn);
    for (auto& s : d.sources) { place.push_back(s.drawn); }
    return place;
}

static void data_return(Data* d, const std::vector<uint64_t>& place) {
    d->drawn = place[0];
    for (size_t i = 0; i < d->sources.size(); i++) { d->sources[i].drawn = place[i + 1]; }
}

// Draws the sequences of all ranks, which have one order, and keeps this rank's.
static void draw(Run* r, std::vector<int>* seqs) {
    const int n = r->accum * r->f.batch;
    for (int rank = 0; rank < dist::world; rank++) {
        data_next(&r->data, rank == dist::rank ? seqs->data() : NULL, n);
    }
}

void run_draw(Run* r) {
    if (r->ahead_from.empty()) { draw(r, &r->seqs); return; }
    r->seqs.swap(r->ahead);
    r->ahead_from.clear();
}

void run_draw_ahead(Run* r) {
    r->ahead.resize(r->seqs.size());
    r->ahead_from = data_place(r->data);
    draw(r, &r->ahead);
}

std::vector<uint64_t> run_place(const Run& r) {
    return r.ahead_from.empty() ? data_place(r.data) : r.ahead_from;
}

void run_undraw(Run* r) {
    if (r->ahead_from.empty()) { return; }
    data_return(&r->data, r->ahead_from);
    r->ahead_from.clear();
}

[[noreturn]] void run_lost_data(Run* r, long step, const std::vector<uint64_t>& place) {
    r->ahead_from.clear();
    data_return(&r->data, place);
    if (step > r->saved && step > 0) { run_save(r, step, false); }
    die(EXIT_MACHINE, lost_file + ": was cut short or replaced while it was read",
        "put it back as it was; write a new version under another name, then mv; " +
        run_rescue(*r));
}

[[noreturn]] void run_diverged(const Run& r, long step, double loss, double grad_norm) {
    die(EXIT_DIVERGED,
        strf("loss is %g, gradient norm %g at step %ld: not finite, stopped before the update",
             loss, grad_norm, step),
        diverged_hint(r));
}

void run_check_log(const Run& r) {
    if (r.log.error.empty()) { return; }
    const bool gone = r.log.error.find("removed") != std::string::npos;
    die(EXIT_MACHINE, r.log.error, (gone ? "" : "free some disk space; ") + run_rescue(r));
}

void run_finish(Run* r, long step) {
    const std::string hash = array_hash(&r->m, r->m.master);
    const char* how = step >= r->f.steps ? "done" : "stopped";
    log_line(&r->log, strf("{\"event\":\"%s\",\"step\":%ld,\"params_hash\":\"%s\"}", how, step,
                           hash.c_str()));
    run_check_log(*r);
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
