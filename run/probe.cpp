/*
run/probe.cpp -- the command probe: the sinks of a checkpoint, on text, random or repeated
tokens.
*/
#include "../core/directory.h"
#include "data_flags.h"
#include "run_dir.h"
#include "../core/train_sink.h"
#include "commands.h"
#include "generate.h"
#include "open_model.h"
#include "probe_data.h"
#include "probe_text.h"
#include "working.h"

// Returns what was measured of some text, in one line. flags: what changed the text or the model.
static std::string probe_line(const std::string& name, const std::string& bos,
                              const std::string& flags, const Metrics& r, const Sinks& s) {
    std::string head = strf("%s, T %d, n %d, eps %g, bos %s", printable(name).c_str(), r.T, r.n,
                            s.eps, printable(bos).c_str());
    if (!flags.empty()) { head += ", " + printable(flags); }
    return head + strf(" | loss %.4f | ", r.loss) + eval_text(NAN, r, s);
}

// Measures n sequences, as many at once as suit the backend.
static Metrics measure_all(Model* m, const ProbeInput& in, int T,
                           const std::vector<double>& eps) {
    const int at_once = ops::on_host ? 4096 : 8192;
    return measure(m, in.x.data(), in.n, T, at_once, eps);
}

// Measures the same text begun in the other way. Prints a line for each threshold and returns the
// eval object.
static std::string probe_other(Model* m, Flags f, const std::string& other, const ProbeData& p,
                               size_t k, int T, long step, const std::vector<double>& eps) {
    f.bos = other;
    const ProbeBos bos = probe_bos(f, m->arch.V);
    const ProbeInput in = probe_inputs(f, bos, p, k, T, m->arch.V);
    const Metrics r = measure_all(m, in, T, eps);
    progress_clear();
    for (auto& s : r.sinks) {
        printf("%s\n", probe_line(f.data, bos.label, input_flags(f), r, s).c_str());
    }
    JsonObject o;
    input_fields(&o, f, bos.label, in);
    eval_fields(&o, "eval", step, NAN, r);
    return o.all();
}

// Dies with the first sequence and layer whose values are not finite.
static void find_not_finite(Model* m, const ProbeInput& in, int T) {
    for (int i = 0; i < in.n; i++) {
        const long count = model_load(m, &in.x[(size_t)i * (T + 1)], 1, T);
        const double loss = model_forward(m, count, 0);
        if (!std::isfinite(loss)) {
            die_not_finite(m);
        }
    }
}

// Measures one source at one length. Prints what was taken and what was measured, and returns the
// eval object.
static JsonObject probe_once(Model* m, const Flags& f, const ProbeInput& in,
                              const std::string& first, int T, long step,
                              const std::vector<double>& eps, const ProbeMore& more) {
    const bool natural = f.probe_input == INPUT_natural;
    const std::string name = natural ? f.data : input_name(f);
    const std::string bos = natural ? first : "none";

    progress_end();
    printf("%s: %s", printable(name).c_str(), in.how.c_str());
    if (in.n < f.probe_seqs) {
        printf(", fewer than the %ld asked for: there are no more", f.probe_seqs);
    }
    printf("\n");

    if (!terminal_columns() && !dist::rank) {    // no line can say how far it is
        note(strf("measuring %d sequences of %d tokens, %ld layers", in.n, T, m->sizes.L));
    }

    m->stage_hook = [&](Model* m, const Stage& stage, int l) {
        stage.forward(m, l);
        working_layer(l, m->arch.L);
        if (more.of_layer && stage.role == ROLE_ATTENTION) { more.of_layer(m, l); }
    };
    const Metrics r = measure_all(m, in, T, eps);
    m->stage_hook = nullptr;
    progress_clear();
    if (!std::isfinite(r.loss)) {
        find_not_finite(m, in, T);
    }

    printf("%s", probe_text(r).c_str());
    for (auto& s : r.sinks) {
        std::string line = probe_line(name, bos, input_flags(f), r, s);
        if (more.ending) { line += more.ending(s.eps); }
        printf("%s\n", line.c_str());
    }
    JsonObject o;
    o.text("data", name);
    input_fields(&o, f, bos, in);
    eval_fields(&o, "eval", step, NAN, r);
    if (more.report) { more.report(r, &o); }
    return o;
}

struct Lengths { long shortest, longest; };

// Returns the shortest and the longest length of --probe-len.
static Lengths lengths_range(const std::vector<std::string>& lengths) {
    Lengths range = { 1 << 24, 1 };
    for (auto& w : lengths) {
        long v = 0;
        require(parse_long(w, &v) && v >= 1 && v <= 1 << 24, "--probe-len " + w, "1 or more");
        range.longest = std::max(range.longest, v);
        range.shortest = std::min(range.shortest, v);
    }
    return range;
}

// Writes the file of --json: the first eval object, and all of them if there are more.
static void probe_json_write(const std::string& path, const std::vector<JsonObject>& objects) {
    JsonObject o = objects[0];
    if (objects.size() > 1) {
        std::vector<std::string> all;
        for (auto& object : objects) {
            all.push_back(object.all());
        }
        o.json("all", json_list(all));
    }
    file_write(path, o.all() + "\n");
}

// Measures each source of -d at each length.
int command_probe(Flags f) {
    const std::vector<double> eps = eps_list(f);
    const std::vector<std::string> lengths = split(f.probe_len, ',');
    require(!lengths.empty(), "--probe-len", "a length, such as 64");
    require(!names_listed(f.data).empty(), "--data \"\"",
            "bb, a file, a directory of shards or a NAME in data/");
    const Lengths range = lengths_range(lengths);
    Model m = model_from_checkpoint(&f, range.longest, STAY_ALL);
    const std::string file = f.words[0] + "/state.json"; // others' models have none: step 0
    const Json state = json_if_there(file);
    const ProbeData p = probe_data(&f, state);
    flags_check(f, COMMAND_probe);
    if (after_model) { after_model->probe_check(f, m.arch, range.shortest); }
    printf("%s", arch_notes(m.arch).c_str());
    probe_files_check(f, p, shortened(f, range.longest, m.arch.T), m.arch.V);
    const OtherBos other = bos_other(f, state, m.arch.V);
    bos_note(other, "measured both ways");
    working_begin("");
    std::vector<JsonObject> objects;
    for (size_t k = 0; k < p.sources.size(); k++) {
        for (auto& w : lengths) {
            const int T = probe_length(f, w, m.arch.T, m.sizes.pe.learnable);
            require(m.arch.prefix < T, strf("prefix %d", m.arch.prefix),
                    strf("less than --probe-len %d", T));
            f.data = p.sources[k];
            const ProbeBos bos = probe_bos(f, m.arch.V);
            const ProbeInput in = probe_inputs(f, bos, p, k, T, m.arch.V);
            const long step = json_count(state, "step", 0, file);
            ProbeMore more;
            if (after_model) { more = after_model->probe(&m, f, in, T, objects.empty()); }
            JsonObject object = probe_once(&m, f, in, bos.label, T, step, eps, more);
            if (!other.bos.empty()) {
                object.json("with_bos", probe_other(&m, f, other.bos, p, k, T, step, eps));
            }
            objects.push_back(object);
        }
    }
    if (!f.json.empty()) {
        probe_json_write(f.json, objects);
    }
    printf("%s", probe_next(f).c_str());
    model_free(&m);
    return 0;
}
