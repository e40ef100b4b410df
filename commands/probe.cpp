/*
commands/probe.cpp -- the command probe: the sinks of a checkpoint, on text, random or repeated
tokens; maps of its heads.
*/
#include "../shell/data_flags.h"
#include "../shell/run_dir.h"
#include "../train_sink.h"
#include "commands.h"
#include "generate.h"
#include "open_model.h"
#include "probe_data.h"
#include "probe_text.h"
#include "sink_at.h"
#include "working.h"

static void npy_write(const std::string& path, const std::vector<float>& x,
                      const std::vector<long>& shape) {
    std::string dims;
    for (long d : shape) { dims += strf("%ld,", d); }
    std::string h = "{'descr': '<f4', 'fortran_order': False, 'shape': (" + dims + "), }";
    while ((h.size() + 11) % 64) { h += ' '; }
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

// LAYER:HEAD,... or all
static std::vector<std::pair<int, int>> dump_list(const std::string& text, const Arch& c) {
    const Sizes d(c);
    std::vector<std::pair<int, int>> heads;
    for (int l = 0; text == "all" && l < c.L; l++) {
        for (int h = 0; d.attends(l) && h < c.NH; h++) { heads.push_back({ l, h }); }
    }
    if (text == "all") { return heads; }
    for (auto& w : split(text, ',')) {
        auto pair = split(w, ':');
        long l = -1, h = -1;
        const bool numbers = pair.size() == 2 && parse_long(pair[0], &l) && parse_long(pair[1], &h);
        require(numbers && l >= 0 && l < c.L && h >= 0 && h < c.NH, "--dump-heads " + w,
                strf("LAYER:HEAD with layers 0..%d, heads 0..%d", c.L - 1, c.NH - 1));
        require(d.attends(l), "--dump-heads " + w,
                strf("a layer with attention, not %s", mixer_of(c)));
        heads.push_back({ (int)l, (int)h });
    }
    return heads;
}

// maps of chosen heads of layer l: l_h_{map,cosine,product}.npy, each (T, T + 1), column 0 the
// extra key
static void dump_layer(const Model* m, const std::string& dir, int l,
                       const std::vector<int>& heads) {
    const AttentionHost x = attention_host(m, l);
    const int N = m->T;
    std::vector<float> map((size_t)N * (N + 1)), cosine(map.size()), product(map.size());
    const auto maps = column_idle(m->arch) ? head_maps<Attn, Bias_none, Pe, real, acc>
                                        : head_maps<Attn, Bias, Pe, real, acc>;
    for (int h : heads) {
        maps(map.data(), cosine.data(), product.data(), x.qkv.data(), x.stat.data(),
             x.star.empty() ? NULL : x.star.data(), h, attn_shape(m, l));
        const std::string name = strf("%s/%d_%d_", dir.c_str(), l, h);
        npy_write(name + "map.npy", map, { N, N + 1 });
        npy_write(name + "cosine.npy", cosine, { N, N + 1 });
        npy_write(name + "product.npy", product, { N, N + 1 });
    }
}

// the maps that --dump and --dump-heads ask for, of one sequence
static void dump_maps(Model* m, const Flags& f, const int* seq, int T) {
    const std::vector<std::pair<int, int>> heads = dump_list(f.dump_heads, m->arch);
    make_dirs(f.dump);
    model_load(m, seq, 1, T);
    model_body(m, [&](int l) {
        std::vector<int> here;
        for (auto& lh : heads) { if (lh.first == l) { here.push_back(lh.second); } }
        if (!here.empty()) { dump_layer(m, f.dump, l, here); }
    });
    printf("wrote %zu files to %s\n", 3 * heads.size(), printable(f.dump).c_str());
}

static std::string per_sequence_json(const Metrics& r) { // alpha[seq][L][H][k]
    const int K = std::min<int>(METRIC_K, r.T);
    std::string o = "[";
    for (int i = 0; i < r.n; i++) {
        o += i ? ",[" : "[";
        for (int l = 0; l < r.L; l++) {
            std::vector<double> x;
            for (int h = 0; h < r.NH; h++) {
                const HeadMetrics& head = r.at(i, l, h);
                for (int k = 1; k <= K; k++) {
                    x.push_back(r.sums_to_one ? head.alpha[k] : head.proxy[k]);
                }
            }
            o += (l ? "," : "") + json_matrix(x, K);
        }
        o += "]";
    }
    return o + "]";
}

// what was measured of some text, in one line
static std::string probe_line(const std::string& name, const std::string& bos, const Metrics& r,
                              int n, int T, double e) {
    return strf("%s, T %d, n %d, eps %g, bos %s | loss %.4f | ", printable(name).c_str(), T, n, e,
                printable(bos).c_str(), r.loss) + eval_text(NAN, r, e);
}

// The same text begun in the other way: prints what was measured of it, a line for each threshold,
// and returns its eval object as the key with_bos.
static std::string probe_other(Model* m, Flags f, const std::string& other, const ProbeData& p,
                               size_t k, int T, const std::vector<double>& eps) {
    f.bos = other;
    const ProbeBos bos = probe_bos(f, m->arch.V);
    const ProbeInput in = probe_inputs(f, bos, p, k, T, m->arch.V);
    const Metrics r = measure(m, in.x.data(), in.n, T, ops::on_host ? 4096 : 8192);
    progress_clear();
    for (double e : eps) {
        printf("%s\n", probe_line(f.data, bos.label, r, in.n, T, e).c_str());
    }
    return ",\"with_bos\":{\"bos\":" + json_str(bos.label) + ",\"input\":" + json_str(in.how) +
           "," + eval_json(0, NAN, r, eps) + "}";
}

// one source at one length: prints what was taken and what was measured, returns the eval object
// without its braces
static std::string probe_once(Model* m, const Flags& f, const ProbeInput& in,
                              const std::string& first, int T, long step,
                              const std::vector<double>& eps) {
    const bool natural = f.probe_input == "natural", bb = f.data == "bb" && natural;
    std::string bos = natural ? first : "none";
    if (bb && f.bb_bos) { bos = "<s>"; }
    const std::string name = natural ? f.data : f.probe_input, shown = printable(name);
    progress_end();
    const std::string few = strf(", fewer than the %ld asked for: there are no more", f.probe_seqs);
    printf("%s: %s%s\n", shown.c_str(), in.how.c_str(), in.n < f.probe_seqs ? few.c_str() : "");
    SinkAt at = sink_at_parse(f.sink_at, T);
    m->around = [&](Model* m, const Stage& stage, int l) {
        stage.forward(m, l);
        working_layer(l, m->arch.L);
        if (stage.role == ROLE_ATTENTION) { sink_at_add(&at, m, l); }
    };
    const Metrics r = measure(m, in.x.data(), in.n, T, ops::on_host ? 4096 : 8192);
    m->around = nullptr;
    progress_clear();
    for (int i = 0; i < in.n && !std::isfinite(r.loss); i++) { // which sequence, which layer?
        const long count = model_load(m, &in.x[(size_t)i * (T + 1)], 1, T);
        if (!std::isfinite(model_forward(m, count, 0))) { die_not_finite(m); }
    }
    printf("%s", probe_text(r, eps).c_str());
    for (double e : eps) {
        printf("%s%s\n", probe_line(name, bos, r, in.n, T, e).c_str(), sink_at_text(at, e).c_str());
    }
    return "\"data\":" + json_str(name) + ",\"bos\":" + json_str(bos) +
           ",\"input\":" + json_str(in.how) + "," + eval_json(step, NAN, r, eps) +
           sink_at_json(at, eps) +
           (f.per_sequence ? ",\"alpha\":" + per_sequence_json(r) : "");
}

// refuses at once what could only fail after the work is done
static void probe_check(const Flags& f, const Arch& c) {
    probe_from_check(f);
    reject_unused_flags(f, "dump_heads dump_seq", !f.dump.empty(), "--dump DIR");
    reject_unused_flags(f, "per_sequence", !f.json.empty(), "--json FILE");
    bounds_check(f, 'p');
    if (f.dump.empty()) { return; }
    dump_list(f.dump_heads, c);
    make_dirs(f.dump);
    for (auto& head : dump_list(f.dump_heads, c)) {
        for (const char* what : { "map", "cosine", "product" }) {
            const std::string name = strf("/%d_%d_%s.npy", head.first, head.second, what);
            output_check(f.dump + name, files_read(f, {}));
        }
    }
}

// one eval object for each source of -d and each length; --json gets the first, and all of them if
// there are more
int command_probe(Flags f) {
    const std::vector<double> eps = eps_list(f);
    const std::vector<std::string> lengths = split(f.probe_len, ',');
    require(!lengths.empty(), "--probe-len", "a length, such as 64");
    require(!split(f.data, ',').empty(), "--data \"\"",
            "bb, a file, a directory of shards or a NAME in data/");
    long longest = 1, shortest = 1 << 24;
    for (auto& w : lengths) {
        long v = 0;
        require(parse_long(w, &v) && v >= 1 && v <= 1 << 24, "--probe-len " + w, "1 or more");
        longest = std::max(longest, v);
        shortest = std::min(shortest, v);
    }
    sink_at_parse(f.sink_at, shortest);
    Model m = model_from_checkpoint(&f, longest, cpu::STAY_ALL);
    const std::string file = f.words[0] + "/state.json"; // others' models have none: step 0
    const Json state = file_exists(file) ? json_file(file) : Json();
    const ProbeData p = f.probe_input == "natural" ? probe_data(&f, state)
                                                   : ProbeData{ false, 0, {}, { f.probe_input } };
    probe_check(f, m.arch);
    printf("%s", column_note(m.arch).c_str());
    probe_files_check(f, p);
    const OtherBos other = bos_other(f, state, m.arch.V);
    bos_note(other, "measured both ways");
    working_begin("");
    std::vector<std::string> objects;
    for (size_t k = 0; k < p.sources.size(); k++) {
        for (auto& w : lengths) {
            const int T = probe_length(f, w, m.arch.T, m.sizes.pe.learnable);
            require(m.arch.prefix < T, strf("prefix %d", m.arch.prefix),
                    strf("less than --probe-len %d", T).c_str());
            f.data = p.sources[k];
            const ProbeBos bos = probe_bos(f, m.arch.V);
            const ProbeInput in = probe_inputs(f, bos, p, k, T, m.arch.V);
            const long step = json_count(state, "step", 0, f.words[0] + "/state.json");
            objects.push_back(probe_once(&m, f, in, bos.label, T, step, eps));
            const std::string& bos_too = other.bos;
            if (!bos_too.empty()) { objects.back() += probe_other(&m, f, bos_too, p, k, T, eps); }
            if (f.dump.empty() || objects.size() > 1) { continue; }
            require(f.dump_seq < in.n, strf("--dump-seq %ld", f.dump_seq),
                    strf("0 to %d", in.n - 1).c_str());
            dump_maps(&m, f, in.x.data() + (size_t)f.dump_seq * (T + 1), T);
        }
    }
    std::string all;
    for (auto& o : objects) { all += (all.empty() ? ",\"all\":[{" : ",{") + o + "}"; }
    if (!f.json.empty()) {
        file_write(f.json, "{" + objects[0] + (objects.size() > 1 ? all + "]" : "") + "}\n");
    }
    printf("%s", probe_next(f).c_str());
    model_free(&m);
    return 0;
}
