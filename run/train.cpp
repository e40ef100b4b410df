/*
run/train.cpp -- what a run does around its steps: train.h.
*/
#include "train.h"
#include "../core/checkpoint.h"
#include "../core/measure.h"
#include "process.h"
#include "run_flags.h"
#include "../base/maps.h"
#include "../core/train_sink.h"
#include "default_model.h"
#include "memory_needed.h"
#include <limits.h>
#include <pthread.h>
#include <setjmp.h>
#include "../base/version.h"

// Returns the mean loss over the targets of the validation sequences that count; NAN if there are
// none, INFINITY if it is not finite.
static double validate(Model* m, Data* data, int B, int T) {
    const long n = data_val_count(data);
    double all[2] = {};                                  // their losses, and how many they are
    std::vector<int> seqs((size_t)B * (T + 1));
    for (long i = 0; i < n; i += B) {
        if (i / B % dist::world() != dist::rank()) { continue; }
        if (work_stopped()) { break; }
        const int rows = std::min<long>(B, n - i);
        data_val(data, seqs.data(), rows, i);
        const long targets = model_load(m, seqs.data(), rows, T);
        all[0] += model_forward(m, targets) * targets;
        all[1] += targets;
    }
    dist::sum(all, 2);
    if (!all[1]) { return NAN; }
    if (!std::isfinite(all[0])) { return INFINITY; }
    return all[0] / all[1];
}

// ---- the lines printed when a run starts

// Counts the parameters that are not a row for each token or position: 60M is the count of those.
static long without_embeddings(const Model& m) {
    long count = m.num_params;
    for (auto& t : m.tensors) {
        if (has_word(t, "embed") || starts_with(t.name, "lm_head")) { count -= t.count; }
    }
    return count;
}

static void describe_model(const Run& r) {
    Arch c = r.c;
    printf("switch%s PRECISION=%s BACKEND=%s, commit %s\n", switches_text(c).c_str(),
           PRECISION_NAME, ops::name, COMMIT);
    printf("model  L %d C %d NH %d KV %d HS %d F %d V %d T %d: "
           "%s parameters (%s with embeddings)\n",
           c.L, c.C, c.NH, c.KV, c.HS, c.F, c.V, c.T, count_text(without_embeddings(r.m)).c_str(),
           count_text(r.m.num_params).c_str());
    std::string properties;                              // neither sizes nor their defaults
    for (auto& row : arch_differs(&c)) {
        properties += strf(" %s %s", row.by, field_text(row, false).c_str());
    }
    if (!properties.empty()) { printf("with  %s\n", properties.c_str()); }
    printf("%s", arch_notes(c).c_str());
}

static void describe_step(const Run& r) {
    const Flags& f = r.f;
    printf("batch  %ld x %d x %d", f.batch, f.arch.T, r.accum);
    if (dist::world() > 1) { printf(" x %d ranks", dist::world()); }
    printf(" = %s tokens per step, %ld steps = %s tokens\n",
           count_text(r.tokens_per_step).c_str(), f.steps,
           count_text(r.tokens_per_step * f.steps).c_str());

    printf("update %s, lr %g %s after %ld warm-up steps, weight decay %g, clip %g, seed %ld\n",
           OPTIMIZER_ROWS[f.optimizer], f.lr, SCHEDULE_ROWS[f.schedule], f.warmup, f.weight_decay,
           f.grad_clip, f.seed);
}

static void describe_machine(const Run& r) {
    const Flags& f = r.f;
    double bytes;
    printf("memory %s", memory_text(r.c, f.batch, f.arch.T, true, &bytes, 0, &f).c_str());
    if (r.data.bb) {
        printf(", tables of bb %s", bytes_text(bigram_bytes(f.bb_vocab)).c_str());
    }
    const double room = ops::on_host ? memory_free() : INFINITY;
    if (std::isfinite(room)) {                           // the weights are there already
        printf(", free %s", bytes_text(room).c_str());
    }
    printf("\ndevice %s\n", ops::device_start().c_str());
    if (!r.attends_by.empty()) { printf("attend by %s\n", r.attends_by.c_str()); }
    const ProductChoice product = product_choice();
    if (!product.name.empty()) {                         // of BACKEND=cpu alone
        printf("product %s, %s (bench --products times them all)\n", product.name.c_str(),
               product.why.c_str());
    }
    if (dist::world() > 1) {
        printf("ranks  %d by %s, %d of them on this machine\n", dist::world(), dist::name,
               dist::neighbors());
    }
}

void run_describe(const Run& r) {
    const Flags& f = r.f;
    describe_model(r);
    if (!f.init.empty()) { printf("init   %s\n", printable(f.init).c_str()); }
    printf("data   %s\n", printable(r.data.description).c_str());
    describe_step(r);
    if (!f.given_probe_len && r.probe_len == f.arch.T && f.arch.T < 64) {
        printf("note   sinks are measured at T %d, the length of a sequence, and not at 64\n",
               r.probe_len);
    }
    printf("%s", no_sink_note(f, r.data, r.m.num_params).c_str());
    describe_machine(r);
    if (f.dry_run) { return; }
    printf("out    %s", printable(f.out).c_str());
    if (r.resumed) { printf(", resumed from step %ld", r.first); }
    printf("\n");
    if (f.save_optimizer == KEEP_none) {
        printf("note   --save-optimizer none: no checkpoint of this run can be resumed\n");
    }
    const long rounding = f.arch.T * std::max<long>(1, r.data.sources.size());
    if (f.train_tokens - r.data.train_tokens >= rounding) {
        printf("note   --train-tokens %ld: only %ld are used, because a source has no more\n",
               f.train_tokens, r.data.train_tokens);
    }
}

static void log_config(Run* r) {
    const ProductChoice product = product_choice();
    JsonObject o;
    o.text("event", "config");
    o.json("switches", switches_json(r->c));
    o.json("flags", flags_json(r->f));
    o.count("params", r->m.num_params);
    program_fields(&o);
    if (!product.name.empty()) { o.text("product", product.name); }  // of BACKEND=cpu alone
    if (dist::world() > 1) { o.count("ranks", dist::world()); }
    o.text("data", r->data.description);
    log_line(&r->log, o);
}

void log_begin(Run* r) {
    if (file_size(r->log.path) == 0) { log_config(r); }
    if (r->changed.fields.empty()) { return; }
    printf("change %s\n", printable(r->changed.fields).c_str());
    JsonObject o;
    o.text("event", "resume");
    o.count("step", r->first);
    o.json("changed", r->changed.all());
    program_fields(&o);
    log_line(&r->log, o);
}

// ---- a data file that is truncated while mapped

// The file, and the way out of the access that failed, which only the thread of the step can take.
// The weights are still consistent there, because a step reads all its data before it updates them.
struct Lost {
    const char* file;
    sigjmp_buf jump;
    pthread_t thread;
    volatile sig_atomic_t armed;                 // whether that thread is in a step
};
static Lost lost;

static void on_lost(const char* path) {
    if (!lost.armed || !pthread_equal(pthread_self(), lost.thread)) { return; }
    lost.armed = 0;
    lost.file = path;
    siglongjmp(lost.jump, 1);
}

// Returns where the data were at the top of a step, before sequences were drawn ahead: `drawn`, and
// the sequences of every source.
static std::vector<uint64_t> run_place(const Run& r) {
    if (!r.ahead_from.empty()) { return r.ahead_from; }
    std::vector<uint64_t> place(1, r.data.drawn);
    for (auto& s : r.data.sources) { place.push_back(s.drawn); }
    return place;
}

// Puts the data back to a position; nothing is drawn ahead then.
static void data_return(Run* r, const std::vector<uint64_t>& place) {
    r->data.drawn = place[0];
    for (size_t i = 1; i < place.size(); i++) { r->data.sources[i - 1].drawn = place[i]; }
    r->ahead_from.clear();
}

// Ends the run after a file of data was lost in this step.
[[noreturn]] static void lost_data(Run* r, long step);

// Runs `work` of a step, which reads data.
static void guarded(Run* r, long step, const std::function<void()>& work) {
    maps_on_lost(on_lost);
    if (sigsetjmp(lost.jump, 1)) { lost_data(r, step); }
    lost.thread = pthread_self();
    lost.armed = dist::world() == 1;
    work();
    lost.armed = 0;
}

// Returns what a run needs to continue from here, and a probe to know what it was trained on.
static JsonObject run_state(Run* r, long step, bool keep) {
    JsonObject o(JSON_SPACED);
    o.count("step", step);
    o.count("batch", r->f.batch);
    o.count("tokens_per_step", r->tokens_per_step);
    o.boolean("automatic", !keep);
    o.json("data", data_state(&r->data));
    o.text("directory", run_started(r->f.out));
    o.text("version", VERSION);
    o.json("build", build_json());
    o.text("product", product_choice().name);
    o.text("words", "of parts");         // as has_word reads them; older: anywhere in a name
    if (r->unevaluated) { o.boolean("unevaluated", true); }
    if (r->met) { o.count("met", r->met); }
    if (!r->touched.empty()) { o.text("touched", r->touched); }
    if (!r->log.unwritten.empty()) {
        std::vector<std::string> lines;
        for (auto& line : r->log.unwritten) { lines.push_back(json_str(line)); }
        o.json("log", json_list(lines));
    }
    o.json("numbers", numbers_json(&r->m));
    o.json("flags", flags_json(r->f));
    return o;
}

static std::string step_directory(const Run& r, long step) {
    return r.f.out + strf("/step_%ld", step);
}

static std::string diverged_hint(const Run& r) {
    std::string hint = strf("try a smaller --lr than %g", r.f.lr);
    if (!r.m.factors.empty()) {
        hint += ", or smaller numbers in " + flags_typed(r.f, "factors", true);
    }
    if (r.saved >= 0) { hint += "; " + step_directory(r, r.saved) + " is intact"; }
    return hint;
}

// ---- evaluation and the line of a step

// numbers of the line of an evaluation, from sink_1 on from 0 to 1
static const char* const EVAL_NUMBERS = " val_loss probe_loss mass sink_1 sink_* alpha_1 ";

Until until_of(const Flags& f) {
    Until u;
    const std::string& text = f.until;
    const size_t sign = text.find_first_of("<>");
    u.number = text.substr(0, sign);
    u.below = contains(text, "<");
    const bool share = is_one_of(" sink_1 sink_* alpha_1 ", u.number);
    const bool known = is_one_of(EVAL_NUMBERS, u.number) && sign < text.size() &&
                       parse_double(text.substr(sign + 1), &u.limit);
    const bool reached = known && (!share || (u.limit >= 0 && u.limit <= 1));
    require(text.empty() || reached, "--until '" + text + "'",
            strf("NAME<NUMBER or NAME>NUMBER of%s(a sink and alpha_1 from 0 to 1)", EVAL_NUMBERS));
    return u;
}

// Counts the evaluations in a row where --until holds; the second one ends the run.
static void until_count(Run* r, long step, double val_loss, const Metrics& metrics) {
    if (r->f.until.empty()) { return; }
    const Until u = until_of(r->f);
    const double x = eval_number(u.number, val_loss, metrics);
    const bool holds = dist::any(u.below ? x < u.limit : x > u.limit);
    r->met = holds ? r->met + 1 : 0;
    if (r->met < 2) { return; }
    printf("until  %s: the second evaluation in a row, %s is %.4g\n", r->f.until.c_str(),
           u.number.c_str(), x);
    JsonObject o;
    o.text("event", "until");
    o.count("step", step);
    o.text("until", r->f.until);
    o.number("value", x);
    log_line(&r->log, o);
}

void run_evaluate(Run* r, long step) {
    const Flags& f = r->f;
    const int models = r->m.ema ? 2 : 1;                 // the weights, and their mean
    double vals[2];
    Metrics metrics[2];
    work_stops = [] { return stop_signal != 0; };
    r->step_from = run_place(*r);
    r->unevaluated = true;                               // if a file of data is lost in it, too
    guarded(r, step, [&] {
        for (int i = 0; i < models; i++) {
            model_show_ema(&r->m, i == 1);
            vals[i] = validate(&r->m, &r->data, f.batch, f.arch.T);
            metrics[i] = measure(&r->m, r->probe.data(), r->probes, r->probe_len,
                                 f.batch * f.arch.T, eps_list(f));
        }
    });
    model_show_ema(&r->m, false);
    r->unevaluated = dist::any(stop_signal);
    if (r->unevaluated) { return; }

    progress_clear();
    for (int i = 0; i < models; i++) {
        const char* event = i == 1 ? "ema" : "eval";
        JsonObject o;
        eval_fields(&o, event, step, vals[i], metrics[i]);
        log_line(&r->log, o);
        printf("%-4s %6ld | %s\n", event, step,
               eval_text(vals[i], metrics[i], metrics[i].sinks[0]).c_str());
    }
    if (std::isinf(vals[0])) {
        die(EXIT_DIVERGED, strf("the validation loss after step %ld is not finite", step),
            diverged_hint(*r));
    }
    if (text_model) { text_model->sample(r, step); }
    work_stops = NULL;
    r->unevaluated = dist::any(stop_signal);             // then --resume makes all of it again
    if (!r->unevaluated) { until_count(r, step, vals[0], metrics[0]); }
}

// Tells whether this step's line is due, by --print-every or about once a second. The last
// step's always is.
static bool run_prints(Run* r, long step) {
    const long every = r->f.print_every;
    const double now = now_ms();
    const bool turn = every ? step % every == 0 : now - r->printed_at >= 1000;
    const bool due = turn || step >= r->f.steps;
    if (due) { r->printed_at = now; }
    return due;
}

void run_report_step(Run* r, long step, double loss, double grad_norm, double ms) {
    const long steps = r->f.steps;
    const double lr = learning_rate(r->f, step - 1);
    r->smooth_ms = r->smooth_ms ? 0.95 * r->smooth_ms + 0.05 * ms : ms;
    JsonObject o;
    o.text("event", "train");
    o.count("step", step);
    o.number("loss", loss);
    o.number("grad_norm", grad_norm);
    o.number("lr", lr);
    o.count("tokens", r->tokens_per_step * step);
    o.decimals("ms", ms, 3);
    if (r->more.log) { r->more.log(&o); }
    log_line(&r->log, o);
    if (!run_prints(r, step)) { return; }

    std::string shown = strf("%.4f", loss);
    if (std::isnan(loss) && std::isfinite(grad_norm)) { shown = "none (no target, no update)"; }
    const std::string at = strf("step %6ld/%ld | loss %s | ", step, steps, shown.c_str());
    const std::string norm = strf("norm %.3f | ", grad_norm);
    const std::string speed = count_text(r->tokens_per_step / ms * 1e3) + " tok/s";
    const std::string left = duration(r->smooth_ms / 1e3 * (steps - step)) + " left";
    const std::string done = strf(" | %.0f%%, ", 100.0 * step / steps) + left;
    const std::string whole = at + norm + strf("lr %.2e | %.1f ms | ", lr, ms) + speed + done;
    if (dist::world() > 1 || !terminal_columns()) {      // mpirun passes whole lines on
        printf("%s\n", whole.c_str());
        fflush(stdout);
        return;
    }
    progress_show({ whole, at + norm + speed + done, at + speed + done, at + left,
                    strf("%ld/%ld ", step, steps) + shown });
}

// ---- checkpoints, and how a run ends

// Returns a hint: where to continue a run that an error has ended.
static std::string run_rescue(const Run& r) {
    if (r.saved < 0) { return "nothing was saved; start over in another --out"; }
    return step_directory(r, r.saved) + " is intact: --resume -o " + r.f.out +
           " continues from it";
}

Due run_due(const Run& r, long step) {
    const Flags& f = r.f;
    const auto passed = [](double minutes, double since) {
        return minutes > 0 && now_ms() - since > minutes * 60e3;
    };
    const bool late = passed(f.save_minutes, r.saved_at);
    const bool asked = stop_signal || passed(f.stop_after, r.started);
    const bool no_log = !r.log.error.empty();
    double any[] = { (double)asked, (double)no_log, (double)late };
    dist::sum(any, 3);                                   // over ranks
    const bool over = run_over(r, step);
    const bool planned = over || (f.save_every && step % f.save_every == 0);
    Due due;
    due.stop = over || any[0] || any[1];
    due.save = planned || due.stop || any[2];
    due.keep = planned || any[0];
    // nothing was trained yet: its log is all that such a run needs to begin again
    if (stop_signal && dist::world() == 1 && step == 0 && !planned && !r.resumed) {
        due.save = false;
    }
    // this step is saved already; but an automatic checkpoint may be one that is kept from now on
    if (r.resumed && step == r.first) {
        due.keep = planned && dist::any(!r.kept.empty() && r.kept.back().automatic);
        due.save = due.keep;
    }
    return due;
}

// Points --out to the run's directory if it was moved, before an error ends the run.
static void run_follow(Run* r) {
    const std::string now = log_directory(r->log);
    if (r->log.error.empty() || now.empty()) { return; }
    char there[PATH_MAX];
    if (!realpath(r->f.out.c_str(), there) || now != there) { r->f.out = now; }
}

// Dies if the data are other ones than those that the run began with. A large file that was touched
// is noted, and the run goes on: what was compared of it is the same.
static void run_check_data(Run* r) {
    if (lost.file) { return; }
    const std::string touched = data_unchanged(&r->data);
    if (touched.empty()) { return; }
    r->touched = touched;
    progress_end();
    printf("note   %s: was touched while it was trained on; the parts of it that were compared are "
           "the same\n", printable(touched).c_str());
}

double checkpoint_bytes(const Run& r) {
    const double arrays = (r.f.save_optimizer != KEEP_none ? 3 : 1) + (r.m.ema != NULL);
    return 4 * arrays * r.m.num_params;
}

static void save(Run* r, long step, bool keep) {
    const std::string& out = r->f.out;
    const bool optimizer = r->f.save_optimizer != KEEP_none;
    const double bytes = checkpoint_bytes(*r);
    run_follow(r);
    r->saved_at = now_ms();
    const bool full = dist::rank() == 0 && !keep && !disk_has(out, bytes);
    if (dist::any(full)) {
        progress_end();
        printf("note   %s: skipped an automatic checkpoint, no room for %s\n", out.c_str(),
               bytes_text(bytes).c_str());
        return;
    }
    if (!r->ahead_from.empty()) { data_return(r, r->ahead_from); }   // not of this step
    hints.also = r->log.error;
    hints.again = r->saved >= 0 ? "run again with --resume" : "start over in another --out";
    log_sync(&r->log);                   // first, so that a log never ends before its checkpoint
    checkpoint_save(&r->m, out, step, run_state(r, step, keep), r->data.tokenizer, optimizer);
    hints.also.clear();
    r->saved = step;
    if (dist::rank() > 0) { return; }
    const bool last_only = r->f.save_optimizer == KEEP_last;
    const Saved newest = { step, step_directory(*r, step), !keep, optimizer, last_only };
    const std::string failed = failure_of([&] { saves_prune(&r->kept, newest, last_only); });
    if (failed.empty()) { return; }
    r->kept.push_back(newest);                           // the next one tries again
    progress_end();
    printf("note   an older checkpoint stays: %s\n", failed.c_str());
}

// Saves. A checkpoint that nobody planned may fail: then the run goes on, and tries again after
// --save-minutes. (Many ranks would no longer be at the same place.)
void run_save(Run* r, long step, Due due) {
    run_check_data(r);
    if (due.keep || due.stop || dist::world() > 1) { return save(r, step, due.keep); }
    const std::string failed = failure_of([&] { save(r, step, false); });
    if (failed.empty()) { return; }
    checkpoint_abandon();
    hints.also.clear();
    progress_end();
    printf("note   no automatic checkpoint this time: %s\n", failed.c_str());
}

// ---- the data of a step

void run_draw_ahead(Run* r, long step) {
    r->ahead.resize(r->seqs.size());
    r->ahead_from = run_place(*r);
    guarded(r, step, [&] {
        for (int rank = 0; rank < dist::world(); rank++) {   // they have one order
            data_next(&r->data, rank == dist::rank() ? r->ahead.data() : NULL,
                      r->accum * r->f.batch);
        }
    });
}

void run_draw(Run* r, long step) {
    r->step_from = run_place(*r);
    if (r->ahead_from.empty()) { run_draw_ahead(r, step); }
    r->seqs.swap(r->ahead);
    r->ahead_from.clear();
}

static void lost_data(Run* r, long step) {
    data_return(r, r->step_from);
    model_show_ema(&r->m, false);
    if (step > r->saved && step > 0) { run_save(r, step, { true, true, false }); }
    die(EXIT_MACHINE, strf("%s: was cut short or replaced while it was read", lost.file),
        "restore the file; write a new version under another name and mv it into place; " +
        run_rescue(*r));
}

void run_diverged(const Run& r, long step, double loss, double grad_norm) {
    die(EXIT_DIVERGED,
        strf("loss is %g, gradient norm %g at step %ld: not finite, stopped before the update",
             loss, grad_norm, step),
        diverged_hint(r));
}

void run_check_log(const Run& r) {
    if (r.log.error.empty()) { return; }
    const bool removed = contains(r.log.error, "removed");
    die(EXIT_MACHINE, r.log.error, (removed ? "" : "free some disk space; ") + run_rescue(r));
}

void run_finish(Run* r, long step) {
    const std::string hash = array_hash(&r->m, r->m.master);
    const char* how = run_over(*r, step) && !r->unevaluated ? "done" : "stopped";
    JsonObject o;
    o.text("event", how);
    o.count("step", step);
    o.text("params_hash", hash);
    log_line(&r->log, o);
    run_check_log(*r);
    if (r->log.f) { fclose(r->log.f); }
    progress_end();
    if (r->saved < 0) {
        printf("%s at step %ld, not saved: nothing was trained; --resume -o %s begins again\n", how,
               step, printable(r->f.out).c_str());
        return;
    }
    const char* saved = r->resumed && step == r->first ? " already:" : ", saved";
    printf("%s at step %ld%s %s, params_hash %s\n", how, step, saved,
           printable(step_directory(*r, step)).c_str(), hash.c_str());
    fflush(stdout);
    if (stop_signal == SIGPIPE && ferror(stdout)) {
        die(EXIT_MACHINE, "standard output was closed", run_rescue(*r));
    }
}
