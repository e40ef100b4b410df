/*
run/probe.cpp -- the command probe: the sinks of a checkpoint, on text, random or repeated
tokens; maps of its heads.
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
#include "sink_at.h"
#include "working.h"

// Writes an array of floats as NumPy reads it.
static void npy_write(const std::string& path, const std::vector<float>& x,
                      const std::vector<long>& shape) {
    std::string dims;
    for (long d : shape) {
        dims += strf("%ld,", d);
    }
    std::string h = "{'descr': '<f4', 'fortran_order': False, 'shape': (" + dims + "), }";
    while ((h.size() + 11) % 64) {
        h += ' ';
    }
    h += '\n';

    FileOut o = file_begin(path);
    const unsigned char length[2] = { (unsigned char)(h.size() & 255),
                                      (unsigned char)(h.size() >> 8) };
    file_put(&o, "\x93NUMPY\x01\x00", 8); // format version 1.0
    file_put(&o, length, 2);
    file_put(&o, h.data(), h.size());
    file_put(&o, x.data(), x.size() * sizeof(float));
    file_commit(&o);
}

// Returns the heads that --dump-heads names: LAYER:HEAD,... or all.
static std::vector<std::pair<int, int>> dump_list(const std::string& text, const Arch& c) {
    const Sizes d(c);
    std::vector<std::pair<int, int>> heads;
    if (text == "all") {
        for (int l = 0; l < c.L; l++) {
            if (!d.attends(l)) { continue; }
            for (int h = 0; h < c.NH; h++) {
                heads.push_back({ l, h });
            }
        }
        return heads;
    }
    for (auto& w : split(text, ',')) {
        const auto pair = split(w, ':');
        long l = -1;
        long h = -1;
        const bool numbers = pair.size() == 2 && parse_long(pair[0], &l) && parse_long(pair[1], &h);
        const bool there = l >= 0 && l < c.L && h >= 0 && h < c.NH;
        require(numbers && there, "--dump-heads " + w,
                strf("LAYER:HEAD with layers 0..%d, heads 0..%d", c.L - 1, c.NH - 1));
        require(d.attends(l), "--dump-heads " + w,
                strf("a layer with attention, not %s", mixer_of(c)));
        heads.push_back({ (int)l, (int)h });
    }
    return heads;
}

// Writes the maps of chosen heads of layer l: l_h_{map,cosine,product}.npy, each (T, T + 1). Column
// 0 is the extra key.
static void dump_layer(const Model* m, const std::string& dir, int l,
                       const std::vector<int>& heads) {
    const AttentionHost x = attention_host(m, l);
    const int N = m->T;
    std::vector<float> map((size_t)N * (N + 1));
    std::vector<float> cosine(map.size());
    std::vector<float> product(map.size());

    const auto* extra = x.extra.empty() ? NULL : x.extra.data();
    for (int h : heads) {
        head_maps<Attn, Bias, Pe>(map.data(), cosine.data(), product.data(), x.qkv.data(),
                                  x.stat.data(), extra, h, x.s);
        const std::string name = strf("%s/%d_%d_", dir.c_str(), l, h);
        npy_write(name + "map.npy", map, { N, N + 1 });
        npy_write(name + "cosine.npy", cosine, { N, N + 1 });
        npy_write(name + "product.npy", product, { N, N + 1 });
    }
}

// Writes the maps of one sequence that --dump and --dump-heads ask for.
static void dump_maps(Model* m, const Flags& f, const int* seq, int T) {
    const std::vector<std::pair<int, int>> heads = dump_list(f.dump_heads, m->arch);
    make_dirs(f.dump);
    model_load(m, seq, 1, T);
    model_layers(m, [&](int l) {
        std::vector<int> here;
        for (auto& head : heads) {
            if (head.first == l) { here.push_back(head.second); }
        }
        if (!here.empty()) { dump_layer(m, f.dump, l, here); }
    });
    printf("wrote %zu files to %s\n", 3 * heads.size(), printable(f.dump).c_str());
}

// Returns alpha of every sequence as JSON: [sequence][layer][head][k].
static std::string per_sequence_json(const Metrics& r) {
    const int K = std::min<int>(METRIC_K, r.T);
    std::vector<std::string> sequences;
    for (int i = 0; i < r.n; i++) {
        std::vector<std::string> layers;
        for (int l = 0; l < r.L; l++) {
            std::vector<double> x;
            for (int h = 0; h < r.NH; h++) {
                const HeadMetrics& head = r.at(i, l, h);
                for (int k = 1; k <= K; k++) {
                    x.push_back(r.sums_to_one ? head.alpha[k] : head.proxy[k]);
                }
            }
            layers.push_back(json_matrix(x, K));
        }
        sequences.push_back(json_list(layers));
    }
    return json_list(sequences);
}

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
                              const std::vector<double>& eps) {
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

    SinkAt at = sink_at_parse(f.sink_at, T);
    m->stage_hook = [&](Model* m, const Stage& stage, int l) {
        stage.forward(m, l);
        working_layer(l, m->arch.L);
        if (stage.role == ROLE_ATTENTION) { sink_at_add(&at, m, l); }
    };
    const Metrics r = measure_all(m, in, T, eps);
    m->stage_hook = nullptr;
    progress_clear();
    if (!std::isfinite(r.loss)) {
        find_not_finite(m, in, T);
    }

    printf("%s", probe_text(r).c_str());
    for (auto& s : r.sinks) {
        const std::string line = probe_line(name, bos, input_flags(f), r, s);
        printf("%s%s\n", line.c_str(), sink_at_text(at, s.eps).c_str());
    }
    JsonObject o;
    o.text("data", name);
    input_fields(&o, f, bos, in);
    eval_fields(&o, "eval", step, NAN, r);
    sink_at_field(&o, at, eps);
    if (f.per_sequence) {
        o.json("alpha", per_sequence_json(r));
    }
    if (after_model) { after_model->probe(m, f, in, T, &o); }
    return o;
}

// Rejects at once what could only fail after the work is done.
static void probe_check(const Flags& f, const Arch& c) {
    if (f.dump.empty()) { return; }
    const std::vector<std::pair<int, int>> heads = dump_list(f.dump_heads, c);
    make_dirs(f.dump);
    for (auto& head : heads) {
        for (const char* what : { "map", "cosine", "product" }) {
            const std::string name = strf("/%d_%d_%s.npy", head.first, head.second, what);
            output_check(f.dump + name, files_read(f, {}));
        }
    }
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
    sink_at_parse(f.sink_at, range.shortest);
    Model m = model_from_checkpoint(&f, range.longest, STAY_ALL);
    const std::string file = f.words[0] + "/state.json"; // others' models have none: step 0
    const Json state = json_if_there(file);
    const ProbeData p = probe_data(&f, state);
    flags_check(f, COMMAND_probe);
    probe_check(f, m.arch);
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
            JsonObject object = probe_once(&m, f, in, bos.label, T, step, eps);
            if (!other.bos.empty()) {
                object.json("with_bos", probe_other(&m, f, other.bos, p, k, T, step, eps));
            }
            objects.push_back(object);
            if (f.dump.empty() || objects.size() > 1) { continue; }
            require(f.dump_seq < in.n, strf("--dump-seq %ld", f.dump_seq),
                    strf("0 to %d", in.n - 1));
            dump_maps(&m, f, in.x.data() + (size_t)f.dump_seq * (T + 1), T);
        }
    }
    if (!f.json.empty()) {
        probe_json_write(f.json, objects);
    }
    printf("%s", probe_next(f).c_str());
    model_free(&m);
    return 0;
}
