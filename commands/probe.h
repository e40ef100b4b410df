/*
probe.h -- the command probe: the sinks of a checkpoint, on text, random or repeated tokens; maps of
its heads.
*/
#ifndef PROBE_H
#define PROBE_H
#include "../shell/data_flags.h"
#include "../shell/run_dir.h"
#include "../shell/run_flags.h"
#include "probe_text.h"
#include "sink_at.h"

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
        require(d.attends(l), "--dump-heads " + w, "a layer with attention, not Mamba");
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
    const auto maps = column_idle(m->c) ? head_maps<Attn, Bias_none, Pe, real, acc>
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
    const std::vector<std::pair<int, int>> heads = dump_list(f.dump_heads, m->c);
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

// What a checkpoint says about the data it was trained on; without it, or with -d, `own` is false.
struct ProbeData {
    bool own = false;
    int T = 0;
    std::vector<long> held;
    std::vector<std::string> sources;
};

// a source as a run named it, from where it ran
static std::string source_from(const std::string& name, const std::string& directory) {
    std::string bare = name;
    if (name == "bb" || file_exists(name) || file_exists("data/" + name)) { return name; }
    source_weight(&bare);
    for (auto& path :
         { bare, "data/" + bare, directory + "/" + bare, directory + "/data/" + bare }) {
        if (file_exists(path)) { return path; }
    }
    return bare;
}

// -d; without it what the checkpoint was trained on, its held-out part
static ProbeData probe_data(Flags* f, const Json& state) {
    ProbeData p;
    const Json *said = state.get("flags"), *data = state.get("data");
    const std::string directory = run_started_from(state, f->words[0] + "/..");
    // an old checkpoint has none, but its run's log has
    const Json logged = log_flags(f->words[0] + "/../log.jsonl", INFINITY),
               *flags = said || logged.fields.empty() ? said : &logged;
    if (f->given_data) { p.sources = split(f->data, ','); return p; }
    if (!flags || !data) {
        die(EXIT_USER, f->words[0] + ": does not say what it was trained on",
            "name text to probe it with: --data FILE, or --probe-input random");
    }
    p.own = true;
    flags_take_data(f, *flags);
    const std::string where = f->words[0] + "/state.json: data";
    const long T = json_count(*data, "T", 64, where), most = 1L << 30;
    require(T >= 1 && T < most, where + strf(": T %ld", T), strf("1 to %ld", most - 1));
    p.T = (int)T;
    const Json* held = data->get("held");
    for (size_t i = 0; held && i < held->items.size(); i++) {
        Json one;                                        // as an object, so that it is checked
        one.type = Json::OBJECT;
        one.fields = { { "held", held->items[i] } };
        p.held.push_back(json_count(one, "held", 0, where));
    }
    for (auto& name : split(f->data, ',')) {
        p.sources.push_back(source_from(name, directory));
        source_there(p.sources.back(), "the same command with");
    }
    return p;
}

// What comes first: --bos default (the tokenizer's own), none, seq or doc (its BOS), or a token,
// by its text or its id. id: -1, nothing; label: as it is printed
struct ProbeBos { int id = -1; std::string label = "none"; };

static ProbeBos probe_bos(const Flags& f, int V) {
    ProbeBos bos;
    if (f.tokenizer.empty()) { bos.label = f.bos; }      // of shards that say it themselves
    if (f.bos == "none" || f.data == "bb" || f.tokenizer.empty()) { return bos; }
    const Tokenizer tok = tokenizer_of(f.tokenizer);
    const bool tokenizers = f.bos == "default", its = f.bos == "seq" || f.bos == "doc";
    long id = its ? tok.bos : -1;
    if (!its) {
        const auto ids = tokenizer_encode(tok, tokenizers ? "" : f.bos, tokenizers);
        if (ids.size() == 1) { id = ids[0]; }
        const bool number = !tokenizers && parse_long(f.bos, &id);
        require(tokenizers || ids.size() == 1 || number, "--bos " + f.bos,
                "default, none, seq, doc, or one token of the model");
    }
    require(!its || id >= 0, "--bos " + f.bos + ": the tokenizer " + tok.name + " has no BOS",
            "none");
    require(id < V && (id >= 0 || tokenizers), "--bos " + f.bos, strf("an id below %d", V));
    if (id < 0) { bos.label = "default: none"; return bos; }
    const int one = id;
    bos.id = id;
    bos.label = (tokenizers ? "default: " : "") + tokenizer_decode(tok, &one, 1, false);
    return bos;
}

// The --bos that the model or its run had where this command has none, "" if there is no other; what
// is found at token 1 depends on it. note: what to say of it
struct OtherBos { std::string bos, note; };

// state: of a run of ours, which knows its own --bos
static OtherBos bos_other(const Flags& f, const Json& state, int V) {
    const Json *flags = state.get("flags"), *run = flags ? flags->get("bos") : NULL;
    const bool words = !f.tokenizer.empty();
    if (f.given_bos || f.bos != "none" || f.data == "bb") { return {}; }
    if (run && (run->string == "none" || !words)) { return {}; }
    if (run) {
        return { run->string, "the run was trained with --bos " + run->string + ", and here no BOS "
                              "is added" };
    }
    if (!words) { return { "", "no tokenizer says whether this model wants a BOS: --tokenizer" }; }
    const Tokenizer tok = tokenizer_of(f.tokenizer);
    if (tok.before.empty()) { return {}; }
    const std::string first = tokenizer_decode(tok, tok.before.data(), tok.before.size(), false);
    const bool one = tok.before.size() == 1 && tok.before[0] < V;
    return { one ? "default" : "",
             "the model's tokenizer begins a text with " + printable(first) + ", and here it does "
             "not" + (one ? "" : ": it is not one token of the model") };
}

// Says it; then: what follows from it for the user
static void bos_note(const OtherBos& other, const std::string& then) {
    if (other.note.empty()) { return; }
    printf("note   %s%s\n", other.note.c_str(), other.bos.empty() ? "" : (": " + then).c_str());
}

// (n, T + 1); what they are, in words
struct ProbeInput { std::vector<int> x; int n = 0; std::string how; };

// the start of each record of a .jsonl, or windows of its text
static ProbeInput probe_records(const Flags& f, const ProbeBos& bos, int T, int V) {
    ProbeInput in;
    Tokenizer tok = tokenizer_of(f.tokenizer);
    DataOptions how = data_options(f, T, T);             // --random-token, --fix-token
    const bool windows = f.probe_from == "windows";
    // before each record, or for a window's first token
    how.bos = windows && f.bos != "doc" ? "seq" : "doc";
    if (bos.id < 0) { how.bos = "none"; }
    tok.bos = bos.id;
    TextCounts counts;
    require(tok.vocab_size <= V,
            strf("tokenizer %s has %d ids, the model %d", tok.name.c_str(), tok.vocab_size, V),
            "the tokenizer that the model was trained with");
    in.x.resize((size_t)f.probe_seqs * (T + 1));
    const PromptOptions wanted = { (int)f.probe_seqs, T, f.skip_bad, windows, &how };
    in.n = data_prompts(f.data, tok, wanted, in.x.data(), &counts);
    in.how = windows ? strf("%d windows of %d tokens", in.n, T + 1)
                     : strf("%d records, the first %d tokens of each", in.n, T + 1);
    if (counts.skipped) { in.how += strf(", %ld shorter ones skipped", counts.skipped); }
    if (counts.begun) { in.how += ", those that begin with BOS got no second one"; }
    return in;
}

// the probe sequences that --probe-input asks for; source k of p
static ProbeInput probe_inputs(const Flags& f, const ProbeBos& bos, const ProbeData& p, size_t k,
                               int T, int V) {
    ProbeInput in;
    const bool text = f.data != "bb" && file_exists(f.data) && !is_dir(f.data);
    const bool records = text && text_format(f.data) == TEXT_JSONL && !p.own;
    in.x.resize((size_t)f.probe_seqs * (T + 1));
    if (f.probe_input == "natural") {
        require(!text || !f.tokenizer.empty(),
                f.data + ": the checkpoint has no tokenizer to read text with",
                "--tokenizer tokenizer.json, or bytes");
        require(f.probe_from != "start" || records, "--probe-from start of " + f.data,
                "a .jsonl of records");
        if (records) { return probe_records(f, bos, T, V); }
        DataOptions o = data_options(f, p.own ? p.T : T, T);
        if (!f.tokenizer.empty() && f.bos != "doc") { o.bos = "none"; }
        if (k < p.held.size()) { o.held = { p.held[k] }; }
        Data data = data_open(o);
        if (f.bos != "doc" && bos.id >= 0) { data.opt.bos = "seq"; data.tokenizer.bos = bos.id; }
        in.n = data_probe(&data, in.x.data());
        in.how = strf("%d %s of %d tokens", in.n, data.bb ? "sequences" : "windows", T + 1);
        in.how += p.own ? ", held out by the run" : "";
        return in;
    }
    const bool random = f.probe_input == "random";
    Rng rng = rng_stream(f.seed, SEED_PROBE);
    require(random || f.probe_input == "repeated", "--probe-input " + f.probe_input,
            "natural, random or repeated");
    require(!f.given_data && !f.given_bos && !f.given_random_token && !f.given_fix_token &&
                !f.given_tokenizer,
            "--data, --tokenizer, --bos, --random-token, --fix-token with "
            "--probe-input " +
                f.probe_input,
            "--probe-input natural");
    for (long i = 0; i < f.probe_seqs; i++) {
        const int token = rng_below(&rng, V);
        for (int t = 0; t <= T; t++) {
            in.x[i * (T + 1) + t] = random ? (int)rng_below(&rng, V) : token;
        }
    }
    in.n = f.probe_seqs;
    in.how = strf("%d sequences of %d tokens", in.n, T + 1);
    return in;
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
    const ProbeBos bos = probe_bos(f, m->c.V);
    const ProbeInput in = probe_inputs(f, bos, p, k, T, m->c.V);
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
        working_layer(l, m->c.L);
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

static void probe_from_check(const Flags& f) {
    require(f.probe_from.empty() || f.probe_from == "start" || f.probe_from == "windows",
            "--probe-from " + f.probe_from, "start or windows");
}

// of its sources: no flag is idle, no file of theirs would be replaced
static void probe_files_check(const Flags& f, const ProbeData& p) {
    const bool natural = f.probe_input == "natural";
    if (natural) { reject_unused_data_flags(f, p.sources); }
    output_check(f.json, files_read(f, natural ? p.sources : std::vector<std::string>()));
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
static int probe(Flags f) {
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
    probe_check(f, m.c);
    printf("%s", column_note(m.c).c_str());
    probe_files_check(f, p);
    const bool natural = f.probe_input == "natural";
    const OtherBos other = natural ? bos_other(f, state, m.c.V) : OtherBos();
    bos_note(other, "measured both ways");
    working_begin("");
    std::vector<std::string> objects;
    for (size_t k = 0; k < p.sources.size(); k++) {
        for (auto& w : lengths) {
            const int T = probe_length(f, w, m.c.T, m.d.pe.learnable);
            require(m.c.prefix < T, strf("prefix %d", m.c.prefix),
                    strf("less than --probe-len %d", T).c_str());
            f.data = p.sources[k];
            const ProbeBos bos = probe_bos(f, m.c.V);
            const ProbeInput in = probe_inputs(f, bos, p, k, T, m.c.V);
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
#endif // PROBE_H
