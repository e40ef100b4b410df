/*
after/eval.cpp -- the command eval: what a checkpoint loses when something is taken away from it.

    --stream n+W     the keys but the first n and the last W: StreamingLLM's cache (Xiao et al.
                     2023), in one pass
    --evict P:R      the share R of a prompt's keys, chosen by a policy P
    --quant BITS     bits: of weights and of what the products read, or of keys and values
    --edit PLACE..   any numbers of the model, for others
    --gradients      nothing: how large the gradient of the loss is at the first token

Each is a run over the same sequences as a plain one, and prints its loss, the plain run's loss over
the same tokens, the change, and the standard error over the sequences; and which of the first two
tokens is a sink then. What a run changes is in eval_change.h.
*/
#include "../core/directory.h"
#include "../run/data_flags.h"
#include "../base/look.h"
#include "../run/commands.h"
#include "eval_run.h"
#include "../run/generate.h"
#include "../run/open_model.h"
#include "../run/probe_data.h"
#include "../run/working.h"

// ---- the runs that the flags ask for

// Splits "4+60" into 4 and 60, "observed:0.5" into observed and 0.5. Ends the program if there are
// not two parts.
static std::vector<std::string> two_parts(const std::string& flag, const std::string& text,
                                          char between, const std::string& wanted) {
    const auto part = split(text, between);
    require(part.size() == 2 && !part[0].empty() && !part[1].empty(), flag + " " + text, wanted);
    return part;
}

// Adds the runs of --stream n+W,..: with positions in the cache, where there are such, and with
// those of the text.
static void runs_stream(const Flags& f, const Model& m, std::vector<EvalRun>* runs) {
    const std::string wanted = "n+W, such as 4+60: the first n keys and the last W before a token";
    for (auto& text : split(f.stream, ',')) {
        const std::string flag = "--stream " + text;
        const auto part = two_parts("--stream", text, '+', wanted);
        long n = 0;
        long W = 0;
        const bool numbers = parse_long(part[0], &n) && parse_long(part[1], &W);
        require(numbers && n >= 0 && W >= 0 && n + W < 1 << 24, flag, wanted);
        require(n + W > 0, flag, "one key or more: a token without keys has no output");
        for (bool cached : { true, false }) {
            if (cached && !cache_has_positions(&m)) { continue; }
            const char* where = cached ? ", positions in the cache" : ", positions in the text";
            runs->push_back({ "stream", text + where });
            runs->back().change.stream = { true, (int)n, (int)W, cached };
        }
    }
}

// Adds the runs of --evict POLICY:RATIO,..: as the policy scores, and with the first token always
// kept and always dropped. The prompt is the first four fifths, and what comes after it is
// predicted.
static void runs_evict(const Flags& f, const Model& m, int T, std::vector<EvalRun>* runs) {
    const std::string wanted =
        "POLICY:RATIO with streaming, knorm, observed or snapkv, and 0 <= RATIO < 1";
    static const char* const firsts[] = { "", ", token 1 kept", ", token 1 dropped" };
    for (auto& text : split(f.evict, ',')) {
        const auto part = two_parts("--evict", text, ':', wanted);
        double ratio = -1;
        const int policy = find_row(POLICY_NAMES, part[0].c_str());
        const bool number = parse_double(part[1], &ratio) && ratio >= 0 && ratio < 1;
        require(policy >= 0 && number, "--evict " + text, wanted);
        const int prompt = T * 4 / 5 + sink_rows(&m);
        const int kept = prompt * (1 - ratio) + 1e-9;
        for (FirstToken first : { FIRST_AS_SCORED, FIRST_KEPT, FIRST_DROPPED }) {
            runs->push_back({ "evict", text + firsts[first], {}, prompt - sink_rows(&m) });
            runs->back().change.evict = { true, (Policy)policy, prompt, kept, first };
        }
    }
}

// Reads "w8a8" or "kv4", with bits from 2 to 8. Returns false for another text.
static bool bits_parse(const std::string& text, Bits* q) {
    const auto digit = [&](size_t at, int* bits) {
        *bits = text[at] - '0';
        return *bits >= 2 && *bits <= 8;
    };
    if (text.size() == 3 && starts_with(text, "kv")) { return digit(2, &q->kv); }
    const bool two = text.size() == 4 && text[0] == 'w' && text[2] == 'a';
    return two && digit(1, &q->weights) && digit(3, &q->inputs);
}

// Reads BITS or BITS:SCOPE. Returns false for another text.
static bool quant_parse(const std::string& text, Bits* bits) {
    const auto part = split(text, ':');
    if (part.empty() || part.size() > 2 || !bits_parse(part[0], bits)) { return false; }
    const int scope = find_row(SCOPES, part.size() > 1 ? part[1].c_str() : "token");
    bits->scope = (Scope)scope;
    return scope >= 0;
}

// Adds the runs of --quant BITS[:SCOPE],.., each with every number of first tokens that
// --quant-keep names.
static void runs_quant(const Flags& f, int T, std::vector<EvalRun>* runs) {
    const std::string wanted = "w8a8, w4a4, kv8 or kv4, and :static, :dynamic or :token";
    for (auto& text : split(f.quant, ',')) {
        Bits bits;
        require(quant_parse(text, &bits), "--quant " + text, wanted);
        for (double keep : flag_list("--quant-keep", f.quant_keep)) {
            const std::string flag = strf("--quant-keep %g", keep);
            const bool whole = keep >= 0 && keep == floor(keep) && keep < 1 << 20;
            require(whole, flag, "whole numbers");
            require(keep < T, flag,
                    strf("less than the %d tokens of a sequence: else none has fewer bits", T));
            bits.keep = keep;
            std::string name = split(text, ':')[0] + ":" + SCOPES[bits.scope];
            if (keep) { name += strf(", first %d in float", bits.keep); }
            runs->push_back({ "quant", name });
            runs->back().change.bits = bits;
        }
    }
}

// Adds a run for each --edit 'A;B', with all of its edits. What comes after the edited tokens
// counts.
static void runs_edit(const Flags& f, std::vector<EvalRun>* runs) {
    for (auto& edit : split(f.edit, '\n')) {
        EvalRun r = { "edit", edit };
        for (auto& text : split(edit, ';')) {
            r.change.edits.push_back(edit_parse(text));
            const long last = r.change.edits.back().tokens.last();
            if (last < LONG_MAX) { r.from = std::max<long>(r.from, last); }
        }
        runs->push_back(r);
    }
}

// Returns what the flags ask for, after a plain run.
static std::vector<EvalRun> eval_runs(const Flags& f, const Model& m, int T) {
    std::vector<EvalRun> runs(1);
    runs[0].kind = "plain";
    runs_stream(f, m, &runs);
    runs_evict(f, m, T, &runs);
    runs_quant(f, T, &runs);
    runs_edit(f, &runs);
    for (auto& r : runs) {
        change_check(r.change, &m, T);
        require(r.from < T, "--edit " + r.name,
                strf("tokens before %d: one has to be predicted", T));
        if (m.arch.prefix) { r.from = std::max(r.from, m.arch.prefix - 1); }
    }
    return runs;
}

// ---- what is reported of a run

// Returns " +- 0.0123", or "" for one sequence, which tells no error.
static std::string error_text(const Mean& m) {
    return std::isfinite(m.error) ? strf(" +- %.4f", m.error) : "";
}

// Prints what a run lost, and what the plain run loses over the same tokens: the last fifth after
// an eviction, those after the edited ones. Adds the same to *o.
static void report_losses(JsonObject* o, const EvalRun& run, const EvalResult& r,
                          const EvalResult& plain, const Model* m, const Sequences& text) {
    const int T = text.T;
    const Mean loss = eval_mean(m, text, r.losses, NULL, run.from, T);
    const Mean there = eval_mean(m, text, plain.losses, NULL, run.from, T);
    const Mean change = eval_mean(m, text, r.losses, &plain.losses, run.from, T);
    std::string what = run.kind;
    if (!run.plain()) { what += " " + run.name; }
    printf("%-44s loss %.4f%s", what.c_str(), loss.mean, error_text(loss).c_str());
    if (!run.plain()) {
        printf(" | plain there %.4f | change %+.4f%s", there.mean, change.mean,
               error_text(change).c_str());
    }
    o->count("from", run.from + 1);
    o->number("loss", loss.mean);
    o->number("loss_error", loss.error);
    o->number("plain", there.mean);
    o->number("change", change.mean);
    o->number("change_error", change.error);
}

// Prints how often each of the first two tokens is a sink in a run, and its spike. Adds the same to
// *o. Where rows do not sum to 1, what is printed is of shares, as everywhere.
static void report_sinks(JsonObject* o, const EvalResult& r, int T) {
    const Metrics& found = r.metrics;
    const bool proxy = !found.sums_to_one;
    std::vector<double> raw;
    std::vector<double> shares;
    for (int k = 1; k <= std::min<int>(METRIC_K, T); k++) {
        raw.push_back(sink_rate(found.heads, k, EVAL_EPS, false));
        shares.push_back(sink_rate(found.heads, k, EVAL_EPS, true));
    }
    const std::vector<double>& rates = proxy ? shares : raw;
    const char* name = proxy ? "proxy" : "Sink";
    printf(" | %s_1 %.1f%%, %s_2 %.1f%%", name, 100 * rates[0], name, 100 * rates[1]);
    o->json("sink_1", strf("%.6g", rates[0]));
    o->number("eps", EVAL_EPS);
    o->array("sink_k", raw);
    o->array("proxy_k", shares);
    if (found.n) {                               // all was measured
        const double spike = spike_at(found, spike_layer(found));
        printf(", spike %.4g", spike);
        o->number("spike", spike);
        o->number("sink_1_error", sink_error(found, 1, EVAL_EPS, proxy));
    }
    printf("%s\n", sink_at_text(r.sink_at, EVAL_EPS).c_str());
    sink_at_field(o, r.sink_at, { EVAL_EPS });
}

// Tells whether a run has the losses of the plain one, to 0.0001. NaN equals none.
static bool same_losses(const EvalResult& r, const EvalResult& plain) {
    const auto same = [](double a, double b) { return fabs(a - b) <= 1e-4; };
    return std::equal(r.losses.begin(), r.losses.end(), plain.losses.begin(), same);
}

// Prints the line of one run, compared with the plain one. Returns it as JSON.
static std::string report_run(const EvalRun& run, const EvalResult& r, const EvalResult& plain,
                              const Model* m, const Sequences& text) {
    const int T = text.T;
    JsonObject o;
    o.text("kind", run.kind);
    o.text("name", run.name);
    report_losses(&o, run, r, plain, m, text);
    report_sinks(&o, r, T);
    if (!run.plain() && same_losses(r, plain)) {
        printf("note   every loss equals the plain run's to 0.0001: the change had no effect\n");
    }
    std::vector<double> by_position;             // in eighths of the sequence
    for (int k = 0; k < 8; k++) {
        const int a = k * T / 8;
        const int b = (k + 1) * T / 8;
        by_position.push_back(eval_mean(m, text, r.losses, NULL, a, b).mean);
    }
    o.array("by_position", by_position);
    return o.all();
}

// Adds the outliers of each layer to *o. Returns the worst of each kind, as text.
static std::string report_outliers(JsonObject* o, const Outliers& x) {
    const struct { const char *key, *text; double unit; const std::vector<double>& by_layer; }
    rows[] = {
        { "largest",        "largest %.4g",                              1,   x.largest },
        { "kurtosis_first", ", kurtosis %.4g first",                     1,   x.kurtosis.first },
        { "kurtosis_rest",  ", %.4g others",                             1,   x.kurtosis.rest },
        { "share_first",    ", channels beyond 6 sigma %.3g%% first",    100, x.share.first },
        { "share_rest",     ", %.3g%% others",                           100, x.share.rest },
    };
    std::string text;
    for (auto& row : rows) {
        const double worst = *std::max_element(row.by_layer.begin(), row.by_layer.end());
        text += strf(row.text, row.unit * worst);
        o->array(row.key, row.by_layer);
    }
    return text;
}

// Prints how large the gradients are at the first token, and returns them as JSON.
static std::string report_gradients(const NormPair& g) {
    printf("%-44s at token 1 / at the others, before each layer and at the end:", "gradients");
    for (size_t l = 0; l < g.first.size(); l++) { printf(" %.3g", g.first[l] / g.rest[l]); }
    printf("\n");
    JsonObject o;
    o.array("first", g.first);
    o.array("rest", g.rest);
    return o.all();
}

// ---- the command

// The sequences that eval reads: those that are predicted, then those for calibration.
struct EvalText {
    ProbeInput in;
    std::string bos;
    Sequences predicted, calibration;
};

// Finds the one source of the text, and notes it if it begins otherwise than the model is used to.
static ProbeData eval_source(Flags* f, const Model& m, int T) {
    const Json state = json_if_there(f->words[0] + "/state.json");
    const ProbeData p = probe_data(f, state);
    flags_check(*f, COMMAND_eval);
    if (p.sources.size() > 1) {
        const std::string of = p.own ? f->words[0] + ": was trained on " : "--data ";
        die(of + f->data + ": wanted one source", hint_for("-d FILE", p.sources[0]));
    }
    probe_files_check(*f, p, T, m.arch.V);
    const OtherBos other = bos_other(*f, state, m.arch.V);
    bos_note(other, "--bos " + other.bos + " adds it");
    return p;
}

// Returns the length of the sequences.
static int eval_length(const Flags& f, const Model& m) {
    const int T = probe_length(f, f.probe_len, m.arch.T, m.sizes.pe.learnable);
    require(T >= 2 && m.arch.prefix < T, strf("--probe-len %d", T),
            "2 or more, and more than the prefix");
    sink_at_parse(f.sink_at, T);
    return T;
}

// Reads the sequences of the source and says what they are.
static EvalText eval_text(Flags* f, const Model& m, const ProbeData& p, int T, int spare) {
    f->probe_seqs += spare;
    f->data = p.sources[0];
    const ProbeBos bos = probe_bos(*f, m.arch.V);
    EvalText text = { probe_inputs(*f, bos, p, 0, T, m.arch.V), bos.label, {}, {} };
    const int n = text.in.n - spare;
    require(n >= 1, strf("%s: %d sequences", f->data.c_str(), text.in.n),
            strf("more than the %d of --calibrate", spare));
    text.predicted = { text.in.x.data(), n, T };
    text.calibration = { text.predicted.from(n), spare, T };
    printf("%s", arch_notes(m.arch).c_str());
    printf("%s: %s", printable(f->data).c_str(), text.in.how.c_str());
    if (spare) { printf(", the last %d of them for calibration", spare); }
    printf(", bos %s", printable(text.bos).c_str());
    const std::string flags = input_flags(*f);
    if (!flags.empty()) { printf(", %s", printable(flags).c_str()); }
    printf("\n");
    return text;
}

// Finds the ranges of the bits of a run, if they are the same for all sequences.
static void eval_calibrate(Model* m, Change* change, const EvalText& text) {
    Bits& bits = change->bits;
    if (bits.scope != BITS_STATIC) { return; }
    bits.calibrating = true;
    eval_run(m, change, text.calibration);
    bits.calibrating = false;
}

// Makes one run. The plain one also collects the outliers.
static EvalResult eval_one(Model* m, const Flags& f, EvalRun* run, const EvalText& text,
                           Outliers* outliers) {
    Change* change = &run->change;
    SinkAt at = sink_at_parse(change->sees_less() ? "" : f.sink_at, text.predicted.T);
    eval_calibrate(m, change, text);
    working_begin(run->kind + " " + run->name + ": ");
    change->after_layer = [&](int l) {
        working_layer(l, m->arch.L);
        if (run->plain()) { outliers_add(outliers, m, l, text.predicted.n); }
        sink_at_add(&at, m, l);
    };
    EvalResult result = eval_run(m, change, text.predicted);
    progress_clear();
    change->after_layer = nullptr;
    result.sink_at = at;
    return result;
}

// Makes all runs and prints a line for each. Returns them as JSON.
static std::string eval_all(Model* m, const Flags& f, std::vector<EvalRun>* runs,
                            const EvalText& text, JsonObject* outliers) {
    Change& first = (*runs)[0].change;
    first.record = true;
    std::vector<Edit> all;
    for (auto& r : *runs) {
        all.insert(all.end(), r.change.edits.begin(), r.change.edits.end());
    }
    first.edits = all;
    auto recorded = first.edits.begin();         // by the plain run: what means are made of
    EvalResult plain;
    Outliers found;
    std::vector<std::string> lines;
    for (auto& r : *runs) {
        for (auto& edit : r.change.edits) {
            if (!r.plain()) { edit = *recorded++; }
        }
        const EvalResult result = eval_one(m, f, &r, text, &found);
        if (r.plain()) {
            plain = result;
            auto finite = [](double loss) { return std::isfinite(loss); };
            if (!std::all_of(plain.losses.begin(), plain.losses.end(), finite)) {
                die_not_finite(m);
            }
        }
        lines.push_back(report_run(r, result, plain, m, text.predicted));
        if (r.plain()) {
            printf("%-44s %s\n", "outliers", report_outliers(outliers, found).c_str());
        }
        fflush(stdout);
    }
    return json_list(lines);
}

// Compares runs of a changed model with a plain one, on the same sequences.
int command_eval(Flags f) {
    const bool calibrates = contains(f.quant, "static");
    long longest = 0;
    require(parse_long(f.probe_len, &longest), "--probe-len " + f.probe_len, "one length");
    Model m = model_from_checkpoint(&f, longest, STAY_NONE, f.gradients);
    const int T = eval_length(f, m);
    const ProbeData source = eval_source(&f, m, T);
    std::vector<EvalRun> runs = eval_runs(f, m, T);
    const EvalText text = eval_text(&f, m, source, T, calibrates ? f.calibrate : 0);

    JsonObject outliers;
    JsonObject o;
    o.text("data", f.data);
    o.count("T", T);
    o.count("n", text.predicted.n);
    input_fields(&o, f, text.bos, text.in);
    o.json("runs", eval_all(&m, f, &runs, text, &outliers));
    o.json("outliers", outliers.all());
    if (f.gradients) {
        o.json("gradients", report_gradients(eval_gradients(&m, text.predicted)));
    }
    if (!f.json.empty()) { file_write(f.json, o.all() + "\n"); }
    model_free(&m);
    return 0;
}
