/*
probe.h -- the command probe: the sinks of a checkpoint, on text, random or repeated tokens; maps of its heads.
*/
#ifndef PROBE_H
#define PROBE_H
static void npy_write(const std::string& path, const std::vector<float>& x, const std::vector<long>& shape) {
    std::string dims;
    for (long d : shape) { dims += strf("%ld,", d); }
    std::string h = "{'descr': '<f4', 'fortran_order': False, 'shape': (" + dims + "), }";
    while ((h.size() + 11) % 64) { h += ' '; }
    h += '\n';
    FileOut o = file_begin(path);
    const unsigned char length[2] = { (unsigned char)(h.size() & 255), (unsigned char)(h.size() >> 8) };
    file_put(&o, "\x93NUMPY\x01\x00", 8); // format version 1.0
    file_put(&o, length, 2);
    file_put(&o, h.data(), h.size());
    file_put(&o, x.data(), x.size() * sizeof(float));
    file_commit(&o);
}
// LAYER:HEAD,... or all
static std::vector<std::pair<int, int>> dump_list(const std::string& text, const Arch& c) {
    std::vector<std::pair<int, int>> heads;
    for (int l = 0; text == "all" && l < c.L; l++) { for (int h = 0; h < c.NH; h++) { heads.push_back({ l, h }); } }
    if (text == "all") { return heads; }
    for (auto& w : split(text, ',')) {
        auto pair = split(w, ':');
        long l = -1, h = -1;
        const bool numbers = pair.size() == 2 && parse_long(pair[0], &l) && parse_long(pair[1], &h);
        want(numbers && l >= 0 && l < c.L && h >= 0 && h < c.NH, "--dump-heads " + w,
             strf("LAYER:HEAD with layers 0..%d, heads 0..%d", c.L - 1, c.NH - 1));
        heads.push_back({ (int)l, (int)h });
    }
    return heads;
}
// maps of chosen heads of layer l: l_h_{map,cosine,product}.npy, each (T, T + 1), column 0 the extra key
static void dump_layer(const Model* m, const std::string& dir, int l, const std::vector<int>& heads) {
    const Arch& c = m->c;
    const AttnShape s = attn_shape(m, l);
    const int W = attn_row(s), N = m->T;
    std::vector<float> map((size_t)N * (N + 1)), cosine(map.size()), product(map.size());
    std::vector<real> qkv((size_t)N * W), k_star((size_t)(star_k(m, l) ? bias_rows(c) * c.HS : 0));
    std::vector<acc> stat((size_t)c.NH * N * 2);
    ops::to_host(qkv.data(), act_qkv(m, l), qkv.size() * sizeof(real));
    ops::to_host(stat.data(), act_stat(m, l), stat.size() * sizeof(acc));
    if (!k_star.empty()) { ops::to_host(k_star.data(), star_k(m, l), k_star.size() * sizeof(real)); }
    for (int h : heads) {
        head_maps<Attn, Bias, Pe>(map.data(), cosine.data(), product.data(), qkv.data(), stat.data(),
                                  k_star.empty() ? NULL : k_star.data(), h, s);
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
    printf("wrote %zu files to %s\n", 3 * heads.size(), f.dump.c_str());
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
                for (int k = 1; k <= K; k++) { x.push_back(r.sums_to_one ? head.alpha[k] : head.proxy[k]); }
            }
            o += (l ? "," : "") + json_matrix(x, K);
        }
        o += "]";
    }
    return o + "]";
}
// the probe sequences (n, T + 1) that --probe-input asks for
static std::vector<int> probe_inputs(const Flags& f, int T, int V, int* n) {
    std::vector<int> x((size_t)f.probe_seqs * (T + 1));
    *n = f.probe_seqs;
    Rng rng = rng_stream(f.seed, 4);
    if (f.probe_input == "natural" && file_exists(f.data) && text_format(f.data) == TEXT_JSONL) { // a file of prompts
        const bool bytes = f.tokenizer.empty() || f.tokenizer == "bytes";
        const Tokenizer tok = bytes ? tokenizer_bytes() : tokenizer_load(f.tokenizer);
        want(tok.vocab_size <= V, strf("tokenizer %s has %d ids, the model %d", tok.name.c_str(), tok.vocab_size, V),
             "the tokenizer that the model was trained with");
        long skipped = 0;
        const DataOptions how = data_options(f, T, T); // --bos, --random-token, --fix-token
        *n = data_prompts(f.data, tok, f.probe_seqs, T, f.skip_bad, x.data(), &skipped, &how);
        if (skipped) { printf("%s: skipped %ld records shorter than %d tokens\n", f.data.c_str(), skipped, T + 1); }
        return x;
    }
    if (f.probe_input == "natural") {
        Data data = data_from_flags(f, T, T);
        *n = data_probe(&data, x.data());
        return x;
    }
    const bool random = f.probe_input == "random";
    want(random || f.probe_input == "repeated", "--probe-input " + f.probe_input, "natural, random or repeated");
    for (long i = 0; i < f.probe_seqs; i++) {
        const int token = rng_below(&rng, V);
        for (int t = 0; t <= T; t++) { x[i * (T + 1) + t] = random ? (int)rng_below(&rng, V) : token; }
    }
    return x;
}
// one eval object for each source of -d and each length; --json gets the first, and all of them if there are more
static int probe(Flags f) {
    const std::vector<double> eps = eps_list(f);
    const std::vector<std::string> lengths = split(f.probe_len, ',');
    const bool natural = f.probe_input == "natural";
    const std::vector<std::string> sources = natural ? split(f.data, ',') : std::vector<std::string>{ f.probe_input };
    want(!lengths.empty(), "--probe-len", "a length, such as 64");
    want(!sources.empty(), "--data \"\"", "bb, a file, a directory of shards or a NAME in data/");
    long longest = 1;
    for (auto& w : lengths) {
        long v = 0;
        want(parse_long(w, &v) && v >= 1 && v < 1 << 30, "--probe-len " + w, "1 or more");
        longest = std::max(longest, v);
    }
    if (!f.json.empty()) { file_check(f.json); }
    Model m = model_from_checkpoint(&f, longest);
    const std::string state = f.words[0] + "/state.json";              // others' models have none: step 0
    const long step = file_exists(state) ? (long)json_number(json_file(state), "step", 0) : 0;
    std::vector<std::string> objects;
    for (auto& source : sources) {
        for (auto& w : lengths) {
            const int T = probe_length(f, w, m.c.T, m.d.pe.learnable);
            want(m.c.prefix < T, strf("prefix %d", m.c.prefix), strf("less than --probe-len %d", T).c_str());
            int n = 0;
            f.data = source;
            const std::vector<int> x = probe_inputs(f, T, m.c.V, &n);
            const Metrics r = measure(&m, x.data(), n, T, 8192);
            const std::string alpha = f.per_sequence ? ",\"alpha\":" + per_sequence_json(r) : "";
            objects.push_back("\"data\":" + json_str(source) + "," + eval_json(step, NAN, r, eps) + alpha);
            for (double e : eps) {
                printf("%s, T %d, n %d, eps %g | loss %.4f | ", source.c_str(), T, n, e, r.loss);
                printf("%s\n", eval_text(NAN, r, e).c_str());
            }
            if (f.dump.empty() || objects.size() > 1) { continue; }
            want(f.dump_seq >= 0 && f.dump_seq < n, strf("--dump-seq %ld", f.dump_seq), strf("0 to %d", n - 1).c_str());
            dump_maps(&m, f, x.data() + (size_t)f.dump_seq * (T + 1), T);
        }
    }
    std::string all;
    for (auto& o : objects) { all += (all.empty() ? ",\"all\":[{" : ",{") + o + "}"; }
    if (!f.json.empty()) { file_write(f.json, "{" + objects[0] + (objects.size() > 1 ? all + "]" : "") + "}\n"); }
    model_free(&m);
    return 0;
}
#endif // PROBE_H
