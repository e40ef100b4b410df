/*
commands/eval.cpp -- the command eval: what a checkpoint loses when something is taken away from it.

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
#include "../log.h"
#include "../shell/run_dir.h"
#include "commands.h"
#include "eval_run.h"
#include "generate.h"
#include "open_model.h"
#include "probe_data.h"
#include "sink_at.h"
#include "working.h"
#include "../shell/data_flags.h"

static std::string gradients_text(const NormPair& g) {
    std::string line = "at token 1 / at the others, before each layer and at the end:";
    for (size_t l = 0; l < g.first.size(); l++) { line += strf(" %.3g", g.first[l] / g.rest[l]); }
    return line;
}

static std::string outliers_json(const Outliers& o) {
    auto list = [&](const char* name, std::vector<double> x) {
        for (auto& v : x) { v /= o.sequences; }
        return strf("\"%s\":", name) + json_array(x);
    };
    return "{" + list("largest", o.largest) + "," + list("kurtosis_first", o.kurtosis[0]) + ","
        + list("kurtosis_rest", o.kurtosis[1]) + "," + list("share_first", o.share[0]) + ","
        + list("share_rest", o.share[1]) + "}";
}

// "4+60" -> 4, 60;  "observed:0.5" -> observed, 0.5
static std::vector<std::string> two_parts(const std::string& flag, const std::string& text,
                                          char between, const std::string& wanted) {
    const std::vector<std::string> part = split(text, between);
    require(part.size() == 2 && !part[0].empty() && !part[1].empty(), flag + " " + text, wanted);
    return part;
}

// --stream n+W,..: with positions in the cache, where there are such, and with those of the text
static void runs_stream(const Flags& f, const Model& m, std::vector<EvalRun>* runs) {
    const std::string wanted = "n+W, such as 4+60: the first n keys and the last W before a token";
    for (auto& text : split(f.stream, ',')) {
        const std::vector<std::string> part = two_parts("--stream", text, '+', wanted);
        long n = 0, W = 0;
        const bool numbers = parse_long(part[0], &n) && parse_long(part[1], &W);
        require(numbers && n >= 0 && W >= 0 && n + W < 1 << 24, "--stream " + text, wanted);
        require(n + W > 0, "--stream " + text,
                "one key or more: a token without keys has no output");
        for (bool cached : { true, false }) {
            if (cached && !cache_has_positions(&m)) { continue; }
            EvalRun r;
            r.kind = "stream";
            r.name = text + (cached ? ", positions in the cache" : ", positions in the text");
            r.change.stream = { true, (int)n, (int)W, cached };
            runs->push_back(r);
        }
    }
}

// --evict POLICY:RATIO,..: as the policy scores, and with the first token always kept and always
// dropped. The prompt is the first four fifths, and what comes after it is predicted
static void runs_evict(const Flags& f, const Model& m, int T, std::vector<EvalRun>* runs) {
    const std::string wanted =
        "POLICY:RATIO with streaming, knorm, observed or snapkv, and 0 <= RATIO < 1";
    static const char* const firsts[] = { "", ", token 1 kept", ", token 1 dropped" };
    for (auto& text : split(f.evict, ',')) {
        const std::vector<std::string> part = two_parts("--evict", text, ':', wanted);
        double ratio = -1;
        int policy = 0;
        while (policy < POLICIES && part[0] != POLICY_NAMES[policy]) { policy++; }
        require(policy < POLICIES && parse_double(part[1], &ratio) && ratio >= 0 && ratio < 1,
                "--evict " + text, wanted);
        for (FirstToken first : { FIRST_AS_SCORED, FIRST_KEPT, FIRST_DROPPED }) {
            EvalRun r;
            const int prompt = T * 4 / 5 + m.sizes.bias.token;
            r.kind = "evict";
            r.name = text + firsts[first];
            r.from = prompt - m.sizes.bias.token;
            r.change.evict = { true, (Policy)policy, prompt, (int)(prompt * (1 - ratio) + 1e-9),
                               first };
            runs->push_back(r);
        }
    }
}

// "w8a8", "kv4": bits from 2 to 8. Is it one of these?
static bool bits_parse(const std::string& text, Bits* q) {
    long w = 0, a = 0, kv = 0;
    const size_t at = text.find('a');
    if (text.compare(0, 2, "kv") == 0 && parse_long(text.substr(2), &kv)) {
        q->kv = kv;
        return kv >= 2 && kv <= 8;
    }
    if (text[0] != 'w' || at == std::string::npos) { return false; }
    if (!parse_long(text.substr(1, at - 1), &w) || !parse_long(text.substr(at + 1), &a)) {
        return false;
    }
    q->weights = w;
    q->inputs = a;
    return w >= 2 && w <= 8 && a >= 2 && a <= 8;
}

// --quant BITS[:SCOPE],.., each with every number of first tokens that --quant-keep names
static void runs_quant(const Flags& f, int T, std::vector<EvalRun>* runs) {
    const std::string wanted = "w8a8, w4a4, kv8 or kv4, and :static, :dynamic or :token";
    for (auto& text : split(f.quant, ',')) {
        const std::vector<std::string> part = split(text, ':');
        Bits bits;
        int scope = BITS_TOKEN;
        if (part.size() == 2) { scope = 0; }
        while (part.size() == 2 && scope < 3 && part[1] != SCOPES[scope]) { scope++; }
        require(!part.empty() && part.size() <= 2 && scope < 3 && bits_parse(part[0], &bits),
                "--quant " + text, wanted);
        bits.scope = (Scope)scope;
        for (double keep : flag_list("--quant-keep", f.quant_keep)) {
            require(keep >= 0 && keep == floor(keep) && keep < 1 << 20,
                    strf("--quant-keep %g", keep),
                    "whole numbers");
            require(keep < T, strf("--quant-keep %g", keep),
                    strf("less than the %d tokens of a sequence: else none has fewer bits", T));
            EvalRun r;
            bits.keep = keep;
            r.kind = "quant";
            r.name = part[0] + ":" + SCOPES[scope] +
                     (keep ? strf(", first %d in float", bits.keep) : "");
            r.change.bits = bits;
            runs->push_back(r);
        }
    }
}

// --edit 'A;B': one run with all of them; what comes after the edited tokens counts
static void runs_edit(const Flags& f, std::vector<EvalRun>* runs) {
    if (f.edit.empty()) { return; }
    EvalRun r;
    r.kind = "edit";
    r.name = f.edit;
    for (auto& text : split(f.edit, ';')) {
        r.change.edits.push_back(edit_parse(text));
        const long last = r.change.edits.back().tokens.last();
        if (last < LONG_MAX) { r.from = std::max<long>(r.from, last); }
    }
    runs->push_back(r);
}

// Prints what a run lost, and what the plain run loses over the same tokens: the last fifth after
// an eviction, those after the edited ones. Returns the change as JSON.
static std::string eval_losses(const EvalRun& run, const EvalResult& r, const EvalResult& plain,
                               const Asked& asked) {
    const int T = asked.T;
    const Mean loss = eval_mean(r.losses, NULL, asked, run.from, T);
    const Mean there = eval_mean(plain.losses, NULL, asked, run.from, T);
    const Mean change = eval_mean(r.losses, &plain.losses, asked, run.from, T);
    const std::string what = run.kind + (run.plain() ? "" : " " + run.name);
    printf("%-44s loss %.4f +- %.4f", what.c_str(), loss.mean, loss.error);
    if (!run.plain()) {
        printf(" | plain there %.4f | change %+.4f +- %.4f", there.mean, change.mean, change.error);
    }
    return strf(",\"from\":%d", run.from + 1) + ",\"loss\":" + json_num(loss.mean) +
           ",\"loss_error\":" + json_num(loss.error) + ",\"plain\":" + json_num(there.mean) +
           ",\"change\":" + json_num(change.mean) +
           ",\"change_error\":" + json_num(change.error);
}

// Prints which of the first two tokens is a sink in a run, and its spike. Returns both as JSON.
static std::string eval_sinks(const EvalResult& r, int T) {
    std::vector<double> rates;
    for (int k = 1; k <= std::min<int>(METRIC_K, T); k++) { rates.push_back(eval_sink(r, k)); }
    printf(" | Sink_1 %.1f%%, Sink_2 %.1f%%", 100 * rates[0], 100 * rates[1]);
    std::string spike_json;
    if (r.measured) {
        const double spike = spike_at(r.metrics, spike_layer(r.metrics));
        printf(", spike %.4g", spike);
        spike_json = ",\"spike\":" + json_num(spike);
    }
    printf("%s\n", sink_at_text(r.sink_at, 0.3).c_str());
    return strf(",\"sink_1\":%.6g,\"sink_k\":", rates[0]) + json_array(rates) + spike_json;
}

// one run, compared with the plain one: a line, and its JSON
static std::string eval_report(const EvalRun& run, const EvalResult& r, const EvalResult& plain,
                               const Asked& asked) {
    const int T = asked.T;
    const std::string losses = eval_losses(run, r, plain, asked), sinks = eval_sinks(r, T);
    std::vector<double> by_position;
    for (int k = 0; k < 8; k++) {
        const int a = k * T / 8, b = (k + 1) * T / 8;
        by_position.push_back(eval_mean(r.losses, NULL, asked, a, b).mean);
    }
    return "{\"kind\":" + json_str(run.kind) + ",\"name\":" + json_str(run.name) + losses + sinks +
           sink_at_json(r.sink_at, { 0.3 }) + ",\"by_position\":" + json_array(by_position) + "}";
}

// what the flags ask for, after a plain run
static std::vector<EvalRun> eval_runs(const Flags& f, const Model& m, int T) {
    std::vector<EvalRun> runs(1);
    runs[0].kind = "plain";
    runs_stream(f, m, &runs);
    runs_evict(f, m, T, &runs);
    runs_quant(f, T, &runs);
    runs_edit(f, &runs);
    for (auto& r : runs) {
        change_check(r.change, &m, T);
        require(r.from < T, "--edit " + f.edit,
                strf("tokens before %d: one has to be predicted", T));
    }
    if (m.arch.prefix) { for (auto& r : runs) { r.from = std::max(r.from, m.arch.prefix - 1); } }
    return runs;
}

int command_eval(Flags f) {
    const bool calibrates = f.quant.find("static") != std::string::npos;
    const std::string file = f.words.empty() ? "" : f.words[0] + "/state.json";
    long T_asked = 0;
    require(parse_long(f.probe_len, &T_asked), "--probe-len " + f.probe_len, "one length");
    probe_from_check(f);
    reject_unused_flags(f, "quant_keep", !f.quant.empty(), "--quant");
    reject_unused_flags(f, "calibrate", calibrates, "--quant with :static");
    Model m = model_from_checkpoint(&f, T_asked, cpu::STAY_NONE, f.gradients);
    const Json state = file_exists(file) ? json_file(file) : Json();
    const ProbeData p = f.probe_input == "natural" ? probe_data(&f, state)
                                                   : ProbeData{ false, 0, {}, { f.probe_input } };
    require(p.sources.size() == 1, "--data " + f.data, "one source");
    probe_files_check(f, p);
    const OtherBos other = bos_other(f, state, m.arch.V);
    bos_note(other, "--bos " + other.bos + " adds it");
    const int T = probe_length(f, f.probe_len, m.arch.T, m.sizes.pe.learnable),
              spare = calibrates ? f.calibrate : 0;
    require(T >= 2 && m.arch.prefix < T, strf("--probe-len %d", T),
            "2 or more, and more than the prefix");
    sink_at_parse(f.sink_at, T);
    std::vector<EvalRun> runs = eval_runs(f, m, T);
    f.probe_seqs += spare;
    f.data = p.sources[0];
    const ProbeInput in = probe_inputs(f, probe_bos(f, m.arch.V), p, 0, T, m.arch.V);
    const int n = in.n - spare, batch_tokens = ops::on_host ? 2048 : 8192;
    const Asked asked = { in.x.data(), n, T, m.arch.prefix };
    require(n >= 1, strf("%s: %d sequences", f.data.c_str(), in.n),
            strf("more than the %d of --calibrate", spare));
    printf("%s", column_note(m.arch).c_str());
    printf("%s: %s", printable(f.data).c_str(), in.how.c_str());
    printf(spare ? ", the last %d of them for calibration\n" : "\n", spare);
    Outliers outliers;
    SinkAt at;                                   // of the run that is being made
    Change& plain = runs[0].change;
    plain.record = true;
    for (auto& r : runs) { if (r.kind == "edit") { plain.edits = r.change.edits; } }
    std::vector<EvalResult> results;
    std::string o;
    for (auto& r : runs) {
        // with the means that the plain run found
        if (r.kind == "edit") { r.change.edits = plain.edits; }
        if (r.change.bits.any() && r.change.bits.scope == BITS_STATIC) {
            r.change.bits.calibrating = true;
            eval_run(&m, &r.change, in.x.data() + (size_t)n * (T + 1), spare, T, batch_tokens);
            r.change.bits.calibrating = false;
        }
        at = sink_at_parse(r.change.sees_less() ? "" : f.sink_at, T);
        working_begin(r.kind + " " + r.name + ": ");
        r.change.after_layer = [&](int l) {
            working_layer(l, m.arch.L);
            if (r.plain()) { outliers_add(&outliers, &m, l); }
            sink_at_add(&at, &m, l);
        };
        EvalResult result = eval_run(&m, &r.change, in.x.data(), n, T, batch_tokens);
        progress_clear();
        result.sink_at = at;
        for (double x : result.losses) {
            if (r.plain() && !std::isfinite(x)) { die_not_finite(&m); }
        }
        if (r.plain()) { results.push_back(result); }
        list_add(&o, eval_report(r, result, results[0], asked), ",");
        if (r.plain()) { printf("%-44s %s\n", "outliers", outliers_text(outliers).c_str()); }
        fflush(stdout);
    }
    std::string more = ",\"outliers\":" + outliers_json(outliers);
    if (f.gradients) {
        const NormPair g = eval_gradients(&m, in.x.data(), n, T, batch_tokens);
        printf("%-44s %s\n", "gradients", gradients_text(g).c_str());
        more += ",\"gradients\":{\"first\":" + json_array(g.first) +
                ",\"rest\":" + json_array(g.rest) + "}";
    }
    if (!f.json.empty()) {
        file_write(f.json, "{\"data\":" + json_str(f.data) + strf(",\"T\":%d,\"n\":%d,", T, n) +
                               "\"input\":" + json_str(in.how) + ",\"runs\":[" + o + "]" +
                               more + "}\n");
    }
    model_free(&m);
    return 0;
}
