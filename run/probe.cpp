/*
run/probe.cpp -- the command probe: the sinks of a checkpoint, on text, random or repeated
tokens.
*/
#include "../core/directory.h"
#include "data_flags.h"
#include "../core/train_sink.h"
#include "commands.h"
#include "generate.h"
#include "open_model.h"
#include "probe_data.h"
#include "probe_text.h"
#include "working.h"

// One command, and what it measures.
struct Probe {
    Flags f;
    Model m;
    ProbeData data;
    OtherBos other;                              // measured, too
    long step;
    std::vector<int> lengths;
};

// Measures n sequences, as many at once as suit the backend.
static Metrics measure_all(Probe* p, const ProbeInput& in, int T) {
    return measure(&p->m, in.x.data(), in.n, T, ops::on_host ? 4096 : 8192, eps_list(p->f));
}

// Prints what was measured, in a line for each threshold, and adds it to *o. bos: what the text
// began with.
static void probe_lines(const Probe& p, const std::string& name, const std::string& bos,
                        const Flags& f, const ProbeInput& in, const Metrics& r,
                        const ProbeMore& more, JsonObject* o) {
    std::string flags = printable(input_flags(f));
    if (!flags.empty()) { flags = ", " + flags; }
    for (auto& s : r.sinks) {
        printf("%s, T %d, n %d, eps %g, bos %s%s | loss %.4f | %s%s\n", printable(name).c_str(),
               r.T, r.n, s.eps, printable(bos).c_str(), flags.c_str(), r.loss,
               eval_text(NAN, r, s).c_str(), more.ending ? more.ending(s.eps).c_str() : "");
    }
    input_fields(o, f, bos, in);
    eval_fields(o, "eval", p.step, NAN, r);
}

// Measures source k begun in the other way, too, and returns the eval object.
static JsonObject probe_other(Probe* p, Flags f, size_t k, int T) {
    f.bos = p->other.bos;
    const ProbeBos bos = probe_bos(f, p->m.arch.V);
    const ProbeInput in = probe_inputs(f, bos, p->data, k, T, p->m.arch.V);
    const Metrics r = measure_all(p, in, T);
    progress_clear();
    JsonObject o;
    probe_lines(*p, f.data, bos.label, f, in, r, {}, &o);
    return o;
}

// Dies with the first sequence and layer whose values are not finite.
static void find_not_finite(Model* m, const ProbeInput& in, int T) {
    for (int i = 0; i < in.n; i++) {
        const long count = model_load(m, &in.x[(size_t)i * (T + 1)], 1, T);
        if (!std::isfinite(model_forward(m, count))) { die_not_finite(m); }
    }
}

// Measures source k at one length. Prints what was taken and what was measured, and returns the
// eval object. first: it is the first of several.
static JsonObject probe_once(Probe* p, size_t k, int T, bool first) {
    Flags f = p->f;
    Model* m = &p->m;
    f.data = p->data.sources[k];
    const ProbeBos begin = probe_bos(f, m->arch.V);
    const ProbeInput in = probe_inputs(f, begin, p->data, k, T, m->arch.V);
    ProbeMore more;
    if (after_model) { more = after_model->probe(m, f, in, T, first); }
    const bool natural = f.probe_input == INPUT_natural;
    const std::string name = natural ? f.data : input_name(f);

    progress_end();
    printf("%s: %s", printable(name).c_str(), in.how.c_str());
    if (in.n < f.probe_seqs) {
        printf(", fewer than the %ld asked for: there are no more", f.probe_seqs);
    }
    printf("\n");
    if (!terminal_columns() && !dist::rank()) {          // no line can say how far it is
        note(strf("measuring %d sequences of %d tokens, %ld layers", in.n, T, m->sizes.L));
    }

    m->stage_hook = [&](Model* m, const Stage& stage, int l) {
        stage.forward(m, l);
        working_layer(l, m->arch.L);
        if (more.of_layer && stage.role == ROLE_ATTENTION) { more.of_layer(m, l); }
    };
    const Metrics r = measure_all(p, in, T);
    m->stage_hook = nullptr;
    progress_clear();
    if (!std::isfinite(r.loss)) { find_not_finite(m, in, T); }

    printf("%s", probe_text(r).c_str());
    JsonObject o;
    o.text("data", name);
    probe_lines(*p, name, natural ? begin.label : "none", f, in, r, more, &o);
    if (more.report) { more.report(r, &o); }
    if (!p->other.bos.empty()) { o.json("with_bos", probe_other(p, f, k, T).all()); }
    return o;
}

// Opens the model and finds what is measured of it. Ends the program at flags that do not suit it.
static Probe probe_open(Flags f) {
    Probe p;
    eps_list(f);                                         // ends the program at a wrong value
    std::vector<long> lengths;
    for (auto& w : split(f.probe_len, ',')) {
        long v = 0;
        require(parse_long(w, &v) && v >= 1 && v <= 1 << 24, "--probe-len " + w, "1 or more");
        lengths.push_back(v);
    }
    require(!lengths.empty(), "--probe-len", "a length, such as 64");
    const long longest = *std::max_element(lengths.begin(), lengths.end());
    p.m = model_from_checkpoint(&f, longest, STAY_ALL);
    const Arch& c = p.m.arch;
    const std::string file = f.words[0] + "/state.json"; // others' models have none: step 0
    const Json state = json_if_there(file);
    p.step = json_count(state, "step", 0, file);
    p.data = probe_data(&f, state);
    flags_check(f, COMMAND_probe);
    if (after_model) {
        after_model->probe_check(f, c, *std::min_element(lengths.begin(), lengths.end()));
    }
    printf("%s", arch_notes(c).c_str());
    probe_files_check(f, p.data, shortened(f, longest, c.T), c.V);
    p.other = bos_other(f, state, c.V);
    bos_note(p.other, "measured both ways");
    for (long length : lengths) {
        const int T = probe_length(f, std::to_string(length), c.T, p.m.sizes.pe.learnable);
        require(c.prefix < T, strf("prefix %d", c.prefix), strf("less than --probe-len %d", T));
        p.lengths.push_back(T);
    }
    p.f = f;
    return p;
}

// Measures each source of -d at each length. Writes the first eval object to --json, and all of
// them if there are more.
int command_probe(Flags f) {
    Probe p = probe_open(f);
    working_begin("");
    JsonObject first;
    std::vector<std::string> all;
    for (size_t k = 0; k < p.data.sources.size(); k++) {
        for (int T : p.lengths) {
            const JsonObject o = probe_once(&p, k, T, all.empty());
            if (all.empty()) { first = o; }
            all.push_back(o.all());
        }
    }
    if (all.size() > 1) { first.json("all", json_list(all)); }
    if (!f.json.empty()) { file_write(f.json, first.all() + "\n"); }
    std::string plot = "scripts/plot.py all " + f.json;
    if (f.json.empty()) { plot = "the same with --json p.json, then scripts/plot.py all p.json"; }
    printf("next: %s; the terms above: docs/metrics.md\n", plot.c_str());
    model_free(&p.m);
    return 0;
}
