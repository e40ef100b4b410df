/*
after/probe_more.cpp -- what flags of after/ add to a probe: Sink_k of any tokens, alpha of every
sequence, maps of chosen heads as .npy, anatomy, anywhere.
*/
#include "anywhere.h"
#include "cell.h"
#include "../run/probe_data.h"
#include "../run/run_dir.h"
#include "sink_at.h"

void control_arms(Run* r, bool anywhere);        // control.cpp

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
    const uint16_t length = h.size();
    file_put(&o, "\x93NUMPY\x01\x00", 8); // format version 1.0
    file_put(&o, &length, 2);
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
            if (!d.has_attention(l)) { continue; }
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
        require(d.has_attention(l), "--dump-heads " + w,
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

    for (int h : heads) {
        x.head(0, h).maps(map.data(), cosine.data(), product.data());
        const std::string name = strf("%s/%d_%d_", dir.c_str(), l, h);
        npy_write(name + "map.npy", map, { N, N + 1 });
        npy_write(name + "cosine.npy", cosine, { N, N + 1 });
        npy_write(name + "product.npy", product, { N, N + 1 });
    }
}

// Writes the text of each token of a sequence as a list, which the axes of its maps show.
static void dump_tokens(const Model* m, const Flags& f, const int* seq, int T) {
    const Tokenizer tok = tokenizer_shown(f.tokenizer, m->arch.V);
    std::vector<std::string> texts;
    for (int t = 0; t < T; t++) {
        texts.push_back(json_str(tokenizer_decode(tok, seq + t, 1, false)));
    }
    file_write(f.dump + "/tokens.json", json_list(texts) + "\n");
}

// Writes the maps of one sequence that --dump and --dump-heads ask for.
static void dump_maps(Model* m, const Flags& f, const int* seq, int T) {
    const auto heads = dump_list(f.dump_heads, m->arch);
    make_dirs(f.dump);
    model_load(m, seq, 1, T);
    model_layers(m, [&](int l) {
        std::vector<int> here;
        for (auto& head : heads) {
            if (head.first == l) { here.push_back(head.second); }
        }
        if (!here.empty()) { dump_layer(m, f.dump, l, here); }
    });
    dump_tokens(m, f, seq, T);
    printf("wrote %zu files to %s\n", 3 * heads.size() + 1, printable(f.dump).c_str());
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

// Rejects at once what could only fail after the work is done.
static void more_check(const Flags& f, const Arch& c, long T) {
    sink_at_parse(f.sink_at, T);
    if (f.dump.empty()) { return; }
    const auto heads = dump_list(f.dump_heads, c);
    make_dirs(f.dump);
    output_check(f.dump + "/tokens.json", files_read(f, {}));
    for (auto& head : heads) {
        for (const char* what : { "map", "cosine", "product" }) {
            const std::string name = strf("/%d_%d_%s.npy", head.first, head.second, what);
            output_check(f.dump + name, files_read(f, {}));
        }
    }
}

static ProbeMore probe_more(Model* m, const Flags& f, const ProbeInput& in, int T, bool first) {
    const auto at = std::make_shared<SinkAt>(sink_at_parse(f.sink_at, T));
    ProbeMore more;
    more.of_layer = [=](const Model* m, int l) { sink_at_add(at.get(), m, l); };
    more.ending = [=](double eps) { return sink_at_text(*at, eps); };
    more.report = [=, &f, &in](const Metrics& r, JsonObject* o) {
        sink_at_field(o, *at, eps_list(f));
        if (f.per_sequence) { o->json("alpha", per_sequence_json(r)); }
        probe_anatomy(m, f, in, T, o);
        probe_anywhere(m, f, in, T, o);
        if (f.dump.empty() || !first) { return; }
        require(f.dump_seq < in.n, strf("--dump-seq %ld", f.dump_seq), strf("0 to %d", in.n - 1));
        dump_maps(m, f, in.x.data() + (size_t)f.dump_seq * (T + 1), T);
    };
    return more;
}

extern const AfterModel AFTER_MODEL;
const AfterModel AFTER_MODEL = { control_arms, more_check, probe_more };
