/*
test_data.cpp -- does the loader give the tokens it should, in the order it should,
and does it refuse the rest? Every expected value is computed here from the definition,
never read back from the loader's own tables.
*/
#include "../../dataloader.h"
#include "../../text/manifest.h"
#include "../../text/text_cache.h"
#include "../../text/vocabulary.h"
#include "../files.h"
#include "../../text/encode.h"
#include <thread>
#include <map>
#include <set>


static DataOptions options(const std::vector<std::string>& data) {
    DataOptions o;
    o.data = data; o.cache = dir + "/cache";
    o.T = 8; o.seed = 7; o.val_seqs = 10; o.probe_seqs = 5; o.probe_len = 4;
    return o;
}

// a shard in the llm.c format, written by hand
static std::string put_shard(const std::string& name, const std::vector<int>& ids, int width = 2,
                             int magic = 0, int version = 0) {
    const int its_magic = width == 2 ? 20240520 : 20240801, its_version = width == 2 ? 1 : 7;
    int32_t head[256] = { magic ? magic : its_magic, version ? version : its_version,
                          (int)ids.size() };
    std::string s((char*)head, sizeof head);
    for (int id : ids) { s.append((char*)&id, width); }
    return put(name, s);
}
static std::vector<int> count_up(int n, int from = 0) {
    std::vector<int> v(n);
    for (int i = 0; i < n; i++) { v[i] = from + i; }
    return v;
}
static std::vector<int> draw(Data* d, int B) {
    std::vector<int> x((size_t)B * (d->opt.T + 1));
    data_next(d, x.data(), B);
    return x;
}
static Died opening(const DataOptions& o) { return check_dies([&] { data_open(o); }); }
// Checks that this is an error of the user's, which says so.
static void dies(const std::string& says, const std::function<void()>& body) {
    const Died d = check_dies(body);
    check_ended(d, EXIT_USER, strf("wanted exit 2 and \"%s\", got %d and", says.c_str(), d.code),
                says, "error: ");
}
static void refused(const DataOptions& o, const std::string& says) {
    dies(says, [&] { data_open(o); });
}
static long tokens_of(const Data& d) { return d.sources[0].train.n + d.sources[0].val.n; }
static ino_t inode(const std::string& path) {
    struct stat st;
    return stat(path.c_str(), &st) ? 0 : st.st_ino;
}
// Writes other text of the same time, as cp -p or tar leave a file.
static void put_unseen(const std::string& name, const std::string& content) {
    const std::string path = dir + "/" + name;
    struct stat st;
    stat(path.c_str(), &st);
    usleep(20000);                               // the clock of a file system is a coarse one
    put(name, content);
    const struct timespec times[] = { st.st_atim, st.st_mtim };
    CHECK(utimensat(AT_FDCWD, path.c_str(), times, 0) == 0, "utimensat");
}

// ----------------------------------------------------------------------------

// P(next = j | last = i), from the definition
static std::vector<double> bigram_table(const DataOptions& o) {
    int n = o.bb_vocab, k = o.bb_triggers;
    std::vector<double> P((size_t)n * n);
    Rng rng = rng_stream(o.bb_table, STREAM_TABLE);
    for (int i = 0; i < n; i++) {
        double sum = 0;
        for (int j = 0; j < n; j++) {
            P[i * n + j] = exp(o.bb_temp * rng_normal(&rng));
            if (j >= k) { sum += P[i * n + j]; }
        }
        for (int j = 0; j < n; j++) {
            P[i*n+j] = j < k ? o.bb_trigger_prob : (1 - k * o.bb_trigger_prob) * P[i*n+j] / sum;
        }
    }
    return P;
}
static void test_bb(int vocab, int triggers, double prob, int bos, bool mean) {
    DataOptions o = options({"bb"});
    o.T = 64;
    o.bb_vocab = vocab;
    o.bb_triggers = triggers;
    o.bb_trigger_prob = prob;
    o.bb_bos = bos;
    o.bb_mean = mean;
    o.bb_table = 3;
    Data d = data_open(o);
    CHECK(d.V == vocab + 1, "bb: V is %d", d.V);
    const int B = 40000, T1 = 65;
    std::vector<int> x = draw(&d, B);
    std::vector<double> P = bigram_table(o), seen((size_t)vocab * vocab), rows(vocab), first(vocab);
    long wrong_bos = 0, wrong_copy = 0, outside = 0;
    double off[2] = {}, variance[2] = {};            // of copies of the first token and of the last
    for (int b = 0; b < B; b++) {
        int* s = &x[(size_t)b * T1];
        int t0 = bos ? 1 : 0;
        if (bos) { wrong_bos += s[0] != vocab; }
        first[s[t0]]++;
        for (int t = t0; t < T1; t++) {
            if (s[t] < 0 || s[t] >= vocab) { outside++; continue; }
            if (t == t0) { continue; }
            if (s[t-1] < triggers) {
                wrong_copy += t - 2 < t0 || (!mean && s[t] != s[t-2]);
                for (int end = 0; end < 2; end++) {
                    const int id = s[end ? t - 2 : t0];
                    const double p = std::count(s + t0, s + t - 1, id) / (t - 1.0 - t0);
                    off[end] += (s[t] == id) - p; variance[end] += p * (1 - p);
                }
                continue;
            }
            seen[(size_t)s[t-1] * vocab + s[t]]++; rows[s[t-1]]++;
        }
    }
    CHECK(!wrong_bos && !wrong_copy && !outside,
          "bb %d: %ld sequences without <s>, %ld wrong copies, %ld ids outside", vocab, wrong_bos,
          wrong_copy, outside);
    for (int end = 0; end < 2; end++) {
        const double z = off[end] / sqrt(variance[end]);
        CHECK((fabs(z) < 5) == mean, "bb %d: copies are %.1f sigma off any earlier token", vocab, z);
    }
    // each transition count is binomial: with this many cells the largest of |z| stays below 6,
    // and mean z^2 is 1
    double worst = 0, sum = 0; long cells = 0;
    for (int i = triggers; i < vocab; i++) {
        for (int j = 0; j < vocab; j++) {
            double p = P[i*vocab+j], mean = rows[i] * p;
            if (mean < 20) { continue; }
            double z = (seen[i*vocab+j] - mean) / sqrt(mean * (1 - p));
            worst = std::max(worst, fabs(z)); sum += z * z; cells++;
        }
    }
    CHECK(cells > vocab && worst < 6, "bb %d: a bigram is off by %.1f sigma (%ld cells)", vocab,
          worst, cells);
    check_near(sum / cells, 1.0, 0.15, "bb %d: mean squared z of the bigrams", vocab);
    double chi = 0, expect = (double)B / (vocab - triggers);
    for (int j = 0; j < vocab; j++) {
        if (j < triggers) {
            CHECK(first[j] == 0, "bb: a sequence starts with trigger %d", j);
            continue;
        }
        chi += (first[j] - expect) * (first[j] - expect) / expect;
    }
    double df = vocab - triggers - 1;
    CHECK(fabs(chi - df) < 6 * sqrt(2 * df),
          "bb %d: first token not uniform: chi2 %.1f with %g degrees", vocab, chi, df);
}
static void test_bb_streams() {
    DataOptions o = options({"bb"});
    Data a = data_open(o), b = data_open(o);
    CHECK(draw(&a, 50) == draw(&b, 50), "bb: same seed, other sequences");
    std::vector<int> val(9 * 10), again(9 * 10), probe(5 * 5), probe2(5 * 5);
    data_val(&a, val.data(), 10, 0);
    CHECK(data_probe(&a, probe.data()) == 5, "bb: probe count");
    o.seed = 8;
    Data c = data_open(o);
    CHECK(draw(&c, 50) != draw(&b, 50), "bb: another seed, the same sequences");
    data_val(&c, &again[0], 4, 0); data_val(&c, &again[4 * 9], 6, 4);
    CHECK(val == again, "bb: validation depends on the seed, or on how it is read");
    data_probe(&c, probe2.data());
    CHECK(probe == probe2, "bb: the probe depends on the seed");
    o.train_tokens = 80;                                 // ten sequences, then again
    Data e = data_open(o);
    std::vector<int> x = draw(&e, 20);
    CHECK(std::vector<int>(x.begin(), x.begin() + 90) == std::vector<int>(x.begin() + 90, x.end()),
        "bb: --train-tokens 80 does not repeat after 10 sequences");
}

// ----------------------------------------------------------------------------

static void test_permute() {
    for (uint64_t n : {1, 2, 3, 4, 5, 16, 17, 100, 1000, 4096, 4097}) {
        std::set<uint64_t> seen;
        for (uint64_t i = 0; i < n; i++) {
            uint64_t p = permute(i, n, 12345);
            if (p < n) { seen.insert(p); }
        }
        CHECK(seen.size() == n, "permute: %zu of %zu places hit", seen.size(), (size_t)n);
    }
    // shuffled: neighbors are spread out. For a random order of n the mean distance
    // of successors is n/3.
    double sum = 0;
    for (int i = 0; i < 9999; i++) {
        sum += fabs((double)permute(i, 10000, 5) - (double)permute(i + 1, 10000, 5));
    }
    check_near(sum / 9999, 10000 / 3.0, 150, "permute: mean distance of successors");
}

// windows [8w, 8w+8] over 0,1,2,...: an epoch visits each once
static void test_order() {
    make_dirs(dir + "/up");
    put_shard("up/train_0.bin", count_up(1000));
    put_shard("up/train_1.bin", count_up(3, 1000));
    put_shard("up/train_2.bin", count_up(997, 1003));
    put_shard("up/val_0.bin", count_up(500, 3000)); put_shard("up/test_0.bin", count_up(500, 4000));
    Data d = data_open(options({dir + "/up"}));
    CHECK(d.V == 3500, "order: V %d, wanted the largest id + 1 = 3500", d.V);
    CHECK(d.sources[0].windows == 249 && d.train_tokens == 1992, "order: %ld windows, %ld tokens",
        d.sources[0].windows, d.train_tokens);
    std::vector<int> epochs[2];
    for (auto& order : epochs) {
        std::set<int> seen;
        for (int n = 0; n < 249; n++) {
            std::vector<int> x = draw(&d, 1);
            bool run = x[0] % 8 == 0;
            for (int t = 0; t < 9; t++) { run = run && x[t] == x[0] + t; }
            CHECK(run, "order: sequence %d starts with %d %d and ends with %d", n, x[0], x[1],
                  x[8]);
            seen.insert(x[0]); order.push_back(x[0]);
        }
        CHECK(seen.size() == 249 && *seen.rbegin() == 1984,
              "order: an epoch visits %zu of 249 windows", seen.size());
    }
    CHECK(epochs[0] != epochs[1], "order: two epochs in the same order");
    CHECK(!std::is_sorted(epochs[0].begin(), epochs[0].end()), "order: not shuffled");
    std::vector<int> val(9 * 10), probe(5 * 5);
    data_val(&d, val.data(), 10, 0);
    for (int i = 0; i < 10; i++) {
        int w = i * 62 / 10;
        CHECK(val[i * 9] == 3000 + 8 * w && val[i * 9 + 8] == 3008 + 8 * w, "val %d starts with %d",
              i, val[i * 9]);
    }
    CHECK(data_probe(&d, probe.data()) == 5, "probe: count");
    for (int i = 0; i < 5; i++) {
        for (int t = 0; t < 5; t++) {
            CHECK(probe[i*5+t] == 3000 + 4 * i + t, "probe %d token %d is %d", i, t, probe[i*5+t]);
        }
    }
    DataOptions o = options({dir + "/up"});
    o.train_tokens = 80;
    Data few = data_open(o);
    std::vector<int> x = draw(&few, 100);
    CHECK(*std::max_element(x.begin(), x.end()) == 80, "--train-tokens 80: got token number %d",
        *std::max_element(x.begin(), x.end()));
}

// documents + EOS, back to back; the last part held out
static void test_packing() {
    std::string lines, stream;
    for (int i = 0; i < 40; i++) {
        std::string text = strf("document %d \xC3\xA9\n\"quoted\"", i * i);
        lines += strf("{\"meta\": {\"n\": [%d, null]}, \"text\": %s}\n", i, json_str(text).c_str())
            + (i % 7 ? "" : "\n");
        stream += text + '\0';                           // stands for EOS, which is not a byte
    }
    std::string path = put("docs.jsonl", lines);
    DataOptions o = options({path});
    Data d = data_open(o);
    CHECK(d.V == 257 && d.tokenizer.eos == 256, "packing: V %d, EOS %d", d.V, d.tokenizer.eos);
    long n = stream.size(), hold = 5 * 4 + 1;
    auto token = [&](long i) { return stream[i] ? (unsigned char)stream[i] : 256; };
    CHECK(d.sources[0].train.n == n - hold && d.sources[0].val.n == hold,
          "packing: %ld + %ld tokens, wanted %ld + %ld", d.sources[0].train.n, d.sources[0].val.n,
          n - hold, hold);
    std::vector<int> x = draw(&d, (int)d.sources[0].windows);
    std::set<std::vector<int>> got, want;
    for (long w = 0; w < d.sources[0].windows; w++) {
        got.insert(std::vector<int>(&x[w*9], &x[w*9] + 9));
        std::vector<int> s;
        for (int t = 0; t < 9; t++) { s.push_back(token(w * 8 + t)); }
        want.insert(s);
    }
    CHECK(got == want, "packing: the windows are not those of documents + EOS");
    std::vector<int> probe(5 * 5);
    data_probe(&d, probe.data());
    for (int i = 0; i < 25; i++) {
        CHECK(probe[i] == token(n - hold + i / 5 * 4 + i % 5), "packing: probe token %d", i);
    }

    o.bos = "seq";
    Data seq = data_open(o);
    std::vector<int> y = draw(&seq, 100);
    for (int b = 0; b < 100; b++) {
        const int* after_bos = &y[b * 9 + 1];
        CHECK(y[b * 9] == 256 && std::equal(after_bos, after_bos + 8, &x[b * 9 + 1]),
              "--bos seq: sequence %d", b);
    }
    o.bos = "doc";
    Data doc = data_open(o);
    CHECK(tokens_of(doc) == n + 40, "--bos doc: %ld tokens, wanted 40 more than %ld",
          tokens_of(doc), n);
    int head[9]; tokens_copy(doc.sources[0].train, 0, 9, 257, head);
    CHECK(head[0] == 256 && head[1] == 'd', "--bos doc: starts with %d %d", head[0], head[1]);
}

// the same text packed with zstd and gzip gives the same tokens; plain text is one document,
// whatever its bytes are behind its beginning, which is text
static void test_formats() {
    std::string text;
    // longer than one piece, with ill-formed UTF-8
    for (int i = 0; i < 3000000; i++) { text += (char)(i % 7919 * 31 % 251 + i / 1000000); }
    std::fill(text.begin(), text.begin() + 4096, 'n');
    std::string plain = put("plain.txt", text);
    Data d = data_open(options({plain}));
    std::vector<int> all(text.size() + 1);
    Tokens line = d.sources[0].train; line.n = all.size();
    tokens_copy(line, 0, all.size(), 257, all.data());
    bool same = all.back() == 256;
    for (size_t i = 0; i < text.size(); i++) { same = same && all[i] == (unsigned char)text[i]; }
    CHECK(d.sources[0].val.n == 30000 && d.sources[0].train.n == 2970001,
        "formats: held out %ld tokens, wanted the last 1%%", d.sources[0].val.n);
    CHECK(same, "formats: plain.txt does not come back byte for byte");
    for (const char* how : { "zstd -q -c", "zstd -q --long=28 -c" }) {  // the second: 256 MiB back
        if (system((std::string(how) + " < " + dir + "/docs.jsonl > " + dir +
                    "/docs2.jsonl.zst 2> /dev/null").c_str())) { continue; }
        Data a = data_open(options({ dir + "/docs.jsonl" })),
             b = data_open(options({ dir + "/docs2.jsonl.zst" }));
        CHECK(draw(&a, 100) == draw(&b, 100), "formats: .zst of '%s' differs", how);
    }
    // two members
    if (system(("cd " + dir +
                " && gzip -c docs.jsonl > docs3.jsonl.gz && gzip -c docs.jsonl >> docs3.jsonl.gz")
                   .c_str()) == 0) {
        Data a = data_open(options({ dir + "/docs.jsonl" })),
             b = data_open(options({ dir + "/docs3.jsonl.gz" }));
        CHECK(tokens_of(b) == 2 * tokens_of(a), "formats: two gzip members give %ld tokens of %ld",
              tokens_of(b), 2 * tokens_of(a));
    }
    // other people's shards: the same ids in three formats
    std::vector<int> ids;
    for (int i = 0; i < 700; i++) { ids.push_back(1 + i * i % 601); }
    for (auto name : {"v1", "v7", "lit", "lit4", "nano"}) { make_dirs(dir + "/" + name); }
    put_shard("v1/x_train_000.bin", ids); put_shard("v7/x_train_000.bin", ids, 4);
    for (int width : {2, 4}) {
        std::string lit = "LITPKDS"; uint64_t version = 1, chunk = 700;
        lit.append((char*)&version, 8);
        lit += (char)(width == 2 ? 8 : 4);
        lit.append((char*)&chunk, 8);
        for (int id : ids) { lit.append((char*)&id, width); }
        put(width == 2 ? "lit/train_a-0_0000000000.bin" : "lit4/train_a-0_0000000000.bin", lit);
        if (width == 2) {
            make_dirs(dir + "/litcut");
            put("litcut/train_0.bin", lit.substr(0, 1000));
            refused(options({dir + "/litcut"}), "truncated");
        }
    }
    Data v1 = data_open(options({dir + "/v1"}));
    std::vector<int> want = draw(&v1, 200);
    CHECK(v1.V == 602 || v1.V <= 601, "formats: V %d", v1.V);
    for (auto name : {"v7", "lit", "lit4"}) {
        Data o = data_open(options({dir + "/" + name}));
        CHECK(draw(&o, 200) == want, "formats: %s differs from v1", name);
    }
    // ids alone are read as --bin says, or Megatron's index beside them, and never guessed at
    for (int width : { 1, 2, 4, 8 }) {
        std::string bare;
        for (long id : ids) {
            const long small = width == 1 ? id % 256 : id;
            bare.append((char*)&small, width);
        }
        put("nano/train.bin", bare);
        DataOptions o = options({ dir + "/nano" });
        o.vocab = 1000;
        refused(o, "add --bin uint16");
        for (bool index : { false, true }) {
            o.bin = index ? 0 : width;
            const int dtypes[] = { 0, 1, 8, 0, 4, 0, 0, 0, 5 };
            if (index) { put("nano/train.idx", std::string("MMIDIDX\0\0\1\0\0\0\0\0\0\0", 17) +
                                                   (char)dtypes[width]); }
            Data n = data_open(o);
            const bool same = width == 1 || draw(&n, 200) == want;
            CHECK(same && n.V == 1000 && tokens_of(n) == 700,
                  "formats: bare ids of %d bytes, %s", width, index ? "index" : "--bin");
            data_bin_check(n);
            o.vocab = 100;
            refused(o, "wanted ids below the vocabulary of 100");
            o.vocab = 0;
            refused(o, "wanted the vocabulary");
            o.vocab = 1000;
        }
        o.bin = width == 2 ? 4 : 2;
        refused(o, strf("got tokens of %d bytes by its .idx", width));
        put("nano/train.idx", std::string("MMIDIDX\0\0\1\0\0\0\0\0\0\0\7", 18));
        refused(o, "got dtype 7 by");
        unlink((dir + "/nano/train.idx").c_str());
        put("nano/train.bin", bare + "odd");
        if (width > 1) { refused(o, "wanted a multiple of"); }
    }
    DataOptions unread = options({ dir + "/v1" });
    unread.bin = 2;
    const Died idle = check_dies([&] { data_bin_check(data_open(unread)); });
    CHECK(idle.says("--bin: got no .bin without a header"), "%s", idle.err.c_str());
}

static void test_cache() {
    std::string path = put("once.txt", std::string(500, 'a') + "b");
    Data a = data_open(options({path}));
    std::string shard = a.sources[0].train.shards[0].path;
    const ino_t made = inode(shard);
    Data b = data_open(options({path}));
    CHECK(made == inode(shard) && shard == b.sources[0].train.shards[0].path,
        "cache: tokenized again though nothing changed");
    put("once.txt", std::string(600, 'c'));
    Data c = data_open(options({path}));
    int x; tokens_copy(c.sources[0].train, 0, 1, 257, &x);
    CHECK(x == 'c' && tokens_of(c) == 601,
          "cache: the file changed, the tokens did not");
    put_unseen("once.txt", std::string(600, 'd'));
    Data e = data_open(options({path}));
    tokens_copy(e.sources[0].train, 0, 1, 257, &x);
    CHECK(x == 'd', "cache: other text of the same size and time, got the tokens of the old");
    long entries = 0;
    for (auto& name : dir_list(dir + "/cache")) { entries += starts_with(name, "once"); }
    CHECK(entries == 1, "cache: %ld directories for one file", entries);
}

// a cache that lost a byte, a shard or its end is made again; what is not ours stays where it is
static void test_cache_damaged() {
    std::string text;
    for (int i = 0; i < 300000; i++) { text += strf("%d green bottles\n", i * 7 % 100003); }
    const std::string path = put("kept.txt", text);
    const Data whole = data_open(options({ path }));
    const std::string shard = whole.sources[0].train.shards[0].path,
                      cache = shard.substr(0, shard.rfind('/')), good = file_read(shard);
    const char* damages[] = { "a byte", "a byte near the end", "cut short", "a header", "removed",
                              "no manifest", "half a manifest" };
    for (auto damage : damages) {
        const std::string how = damage, manifest = cache + "/manifest.json";
        std::string bad = good;
        if (how == "a byte") { bad[5000] ^= 1; }
        if (how == "a byte near the end") { bad[bad.size() - 3] ^= 1; }
        if (how == "cut short") { bad.resize(bad.size() / 2); }
        if (how == "a header") { bad[1] ^= 1; }
        // in place: no new time of the directory, no new inode
        FILE* f = fopen(shard.c_str(), "wb");
        CHECK(f && fwrite(bad.data(), 1, bad.size(), f) == bad.size(), "writing");
        fclose(f);
        if (how == "removed") { unlink(shard.c_str()); }
        if (how == "no manifest") { unlink(manifest.c_str()); }
        if (how == "half a manifest") { file_write(manifest, file_read(manifest).substr(0, 300)); }
        const Died d = opening(options({ path }));
        CHECK(d.code == 0 && file_read(shard) == good, "a cache with %s: %d %s", damage, d.code,
              d.err.c_str());
    }
    // manifests that were made before there were hashes are still taken
    std::string old = file_read(cache + "/manifest.json");
    const size_t files = old.find(", \"files\": ["), end = old.find("]]}", files);
    CHECK(files < end && end != std::string::npos, "manifest: %s", old.substr(0, 600).c_str());
    old.erase(files, end + 2 - files);
    const ino_t made = inode(shard);
    file_write(cache + "/manifest.json", old);
    CHECK(opening(options({ path })).code == 0 && inode(shard) == made,
          "a cache without hashes was made again");
    // what a killed run left goes; what only looks like it stays
    const std::string root = dir + "/cache/", left = root + "left.txt-0123456789abcdef.part",
                      theirs = root + "theirs.part7", also = root + "too-0123456789abcdef.part";
    for (auto& d : { left, theirs, also }) { make_dirs(d); }
    file_write(left + "/lock", "12345 elsewhere\n");
    file_write(left + "/manifest.json", "{\"complete\": false, \"tokenizer\": \"bytes\"}");
    make_dirs(root + "empty-0123456789abcdef.part");
    file_write(root + "empty-0123456789abcdef.part/lock", "");
    file_write(left + "/train_000000.bin.elsewhere-12345-0.tmp", "half");
    file_write(theirs + "/model.bin", "precious");
    file_write(also + "/lock", "the key of the door\n");
    file_write(also + "/train_000000.bin", "precious");
    file_write(cache + "/notes.txt", "mine");
    put("kept.txt", text + "more\n");
    refused(options({ path }), "did not make");
    CHECK(file_exists(cache + "/notes.txt"), "somebody's file in the cache is gone");
    CHECK(!is_there(left) && !is_there(root + "empty-0123456789abcdef.part") &&
              file_exists(theirs + "/model.bin") &&
              file_exists(also + "/train_000000.bin"),
          "the cache was cleaned of the wrong things");
    unlink((cache + "/notes.txt").c_str());
    CHECK(opening(options({ path })).code == 0, "the cache is not made again");
    for (auto& d : { theirs, also }) { remove_tree(d); }
}

// Four processes want the tokens of one new text at once: one makes them, also if the first is
// killed on the way.
static void test_cache_together() {
    std::string text;
    for (int i = 0; i < 400000; i++) { text += strf("%d bottles on the wall\n", i); }
    const std::string path = put("together.txt", text);
    for (int killed = 0; killed < 2; killed++) {
        pid_t first = 0;
        if (killed) { put("together.txt", text + "and one more\n"); }
        const Died d = check_dies([&] {
            for (int i = 0; i < 4; i++) {
                const pid_t child = fork();
                if (!child) { data_open(options({ path })); exit(0); }
                if (i == 0) { first = child; usleep(30000); }
            }
            if (killed) { kill(first, SIGKILL); }
            int status, bad = 0;
            while (wait(&status) > 0) { bad += status != 0; }
            exit(bad == killed ? 0 : 99);
        });
        long made = 0, entries = 0;
        for (auto& line : split(d.err, '\n')) { made += contains(line, " document, "); }
        // the first was killed when all was written, and another took that over
        const bool taken_over = killed && d.says("complete already");
        for (auto& name : dir_list(dir + "/cache")) { entries += starts_with(name, "together"); }
        CHECK(d.code == 0 && (made == 1 || taken_over) && entries == 1 && !d.says("cannot"),
              "one text, four processes: %d, made %ld times, %ld entries, %s", d.code, made,
              entries, d.err.c_str());
    }
}

// a directory of shards that somebody has changed since is refused, by the name of the shard
static void test_shards_changed() {
    std::string text;
    for (int i = 0; i < 200000; i++) { text += strf("%d bottles on the wall\n", i); }
    TokenizeOptions t;
    t.files = { put("guarded.txt", text) };
    t.out = dir + "/guarded";
    t.shard_tokens = 3000000;
    tokenize_main(t);
    const std::string one = t.out + "/train_000001.bin", good = file_read(one);
    DataOptions o = options({ t.out });
    CHECK(opening(o).code == 0 && !file_exists(t.out + "/lock"), "shards as they were made");
    std::string bad = good;
    bad[bad.size() - 1] ^= 64;
    file_write(one, bad);
    refused(o, "train_000001.bin: its bytes are not those that tokenize wrote");
    file_write(one, good.substr(0, good.size() - 1000));
    refused(o, "train_000001.bin: got");
    unlink(one.c_str());
    refused(o, "train_000001.bin: is missing");
    file_write(one, good);
    CHECK(opening(o).code == 0, "the shard is back");
    // of a large directory a block is compared when it is read
    const Json manifest = json_of(file_read(t.out + "/manifest.json"));
    const std::vector<ShardSums> all = manifest_sums(manifest);
    CHECK(all.size() == 2 && all[1].tokens > SHARD_BLOCK && all[1].hashes.size() > 2,
          "the manifest lists %zu shards", all.size());
    bad = good;
    bad[1024 + 2 * SHARD_BLOCK + 10] ^= 1;               // of the third block
    file_write(one, bad);
    Shard shard = shard_open(one);
    shard.sums = std::make_shared<ShardSums>(all[1]);
    Tokens tokens;
    tokens_add(&tokens, shard);
    std::vector<int> ids(SHARD_BLOCK / 2);
    tokens_copy(tokens, 0, SHARD_BLOCK / 2, 257, ids.data());
    tokens_copy(tokens, SHARD_BLOCK - 10, 10, 257, ids.data());
    dies("train_000001.bin: from token 1048576 on",
         [&] { tokens_copy(tokens, SHARD_BLOCK - 10, 11, 257, ids.data()); });
}

// a text that is written to while it is read becomes no shards that look like the new text's
static void test_changed_meanwhile() {
    const std::string path = put("busy.txt", std::string(64 << 20, 'a')), out = dir + "/busy";
    dies("written to while it was read", [&] {
        // begun in the child: if it held the lock of the sanitizer's malloc while its parent forks,
        // the child would wait for that lock for ever
        std::thread([&] {
            while (!file_exists(out + "/manifest.json")) { usleep(100); }
            FILE* f = fopen(path.c_str(), "r+b");
            fputc('Z', f);
            fclose(f);
        }).detach();
        TokenizeOptions o;
        o.files = { path };
        o.out = out;
        tokenize_main(o);
    });
    CHECK(starts_with(file_read(out + "/manifest.json"), "{\"complete\": false"),
          "its shards are called complete");
    remove_tree(out);
}

// ----------------------------------------------------------------------------

static void test_mixture() {
    make_dirs(dir + "/a"); make_dirs(dir + "/b");
    put_shard("a/train.bin", count_up(8 * 30 + 1)); put_shard("a/val.bin", count_up(100));
    put_shard("b/train.bin", count_up(8 * 70 + 1, 1000));
    put_shard("b/val.bin", count_up(100, 1000));
    Data d = data_open(options({dir + "/a", dir + "/b"}));
    std::map<int, int> seen;
    for (int epoch = 1; epoch <= 2; epoch++) {
        for (int n = 0; n < 100; n++) { seen[draw(&d, 1)[0]]++; }
        bool each = seen.size() == 100;
        for (auto& s : seen) { each = each && s.second == epoch; }
        CHECK(each,
              "mixture without weights: epoch %d does not visit each of the 100 windows %d times",
              epoch, epoch);
    }
    Data w = data_open(options({dir + "/a:3", dir + "/b:1"}));
    int from_a = 0;
    for (int n = 0; n < 400; n++) {
        from_a += draw(&w, 1)[0] < 1000;
        CHECK(abs(from_a * 4 - (n + 1) * 3) <= 4, "mixture 3:1: %d of %d from a", from_a, n + 1);
    }
    std::vector<int> probe(25);
    CHECK(data_probe(&w, probe.data()) == 5 && probe[0] == 0 && probe[5] == 1000 && probe[10] == 4,
        "mixture: the probe takes turns: %d %d %d", probe[0], probe[5], probe[10]);
    refused(options({dir + "/a:3", dir + "/b"}), "some sources have a weight");
    // in millionths some weights are 0, or more than 64 bits: all would be of one source, unsaid
    for (auto weight : { "-1", "0", "1e-7", "1e13", "1e300" }) {
        const std::string w = strf(":%s", weight);
        refused(options({dir + "/a" + w, dir + "/b" + w}), "wanted a number from 0.0001 to 1e11");
    }
    for (auto weight : { "0.0001", "1e11" }) {
        const std::string w = strf(":%s", weight);
        Data half = data_open(options({dir + "/a" + w, dir + "/b" + w}));
        int of_a = 0;
        for (int n = 0; n < 40; n++) { of_a += draw(&half, 1)[0] < 1000; }
        CHECK(of_a == 20, "weights of %s: %d of 40 from a", weight, of_a);
    }
    refused(options({"bb", dir + "/b"}), "cannot be mixed");
}

static void test_restore() {
    for (int kind = 0; kind < 3; kind++) {
        DataOptions o = options(kind == 0 ? std::vector<std::string>{ "bb" }
                                : kind == 1
                                    ? std::vector<std::string>{ dir + "/up" }
                                    : std::vector<std::string>{ dir + "/a:3", dir + "/b:1" });
        o.random_token = {3};
        Data a = data_open(o);
        draw(&a, 777);  // three epochs of `up`, not on any boundary
        std::string state = data_state(&a), error;
        Json j;
        CHECK(json_parse(state.data(), state.size(), &j, &error),
              "restore: the state is not JSON: %s", error.c_str());
        std::vector<int> want = draw(&a, 500);
        Data b = data_open(o);
        data_restore(&b, j);
        CHECK(draw(&b, 500) == want, "restore %d: does not continue where it was", kind);
        CHECK(data_state(&b) == data_state(&a), "restore %d: the states differ afterward", kind);
        // three ranks, each with every third pair of a step, and the others' passed over:
        // together what one process draws
        std::vector<int> together;
        Data ranks[3] = { b, b, b };
        for (int pair = 0; pair < 60; pair++) {
            for (int r = 0; r < 3; r++) {
                if (r != pair % 3) { data_next(&ranks[r], NULL, 2); continue; }
                for (int id : draw(&ranks[r], 2)) { together.push_back(id); }
            }
        }
        CHECK(together == draw(&b, 120),
              "restore %d: three ranks draw other sequences than one process", kind);
        CHECK(data_state(&ranks[1]) == data_state(&b),
              "restore %d: a rank is elsewhere in the data than the others", kind);
        DataOptions other = o; other.seed = 9;
        Data c = data_open(other);
        dies("--seed", [&] { data_restore(&c, j); });
        Data e = data_open(options({dir + "/a", dir + "/b", dir + "/up"}));
        dies("other data", [&] { data_restore(&e, j); });
    }
}

static void test_edits() {
    DataOptions o = options({dir + "/up"});
    o.random_token = {1, 5}; o.fix_token = {{2, 42}};
    Data plain = data_open(options({dir + "/up"})), d = data_open(o);
    const int B = 20000;
    std::vector<int> x = draw(&d, B), y = draw(&plain, B);
    double sum[2] = {0}; long changed = 0;
    for (int b = 0; b < B; b++) {
        for (int t = 0; t < 9; t++) {
            if (t == 0 || t == 4) { sum[t > 0] += x[b*9+t]; changed += x[b*9+t] != y[b*9+t]; }
            else {
                CHECK(x[b * 9 + t] == (t == 1 ? 42 : y[b * 9 + t]),
                      "edits: sequence %d token %d is %d", b, t, x[b * 9 + t]);
            }
        }
    }
    // Uniform(0..3499): mean 1749.5, sd 1010; 6 sigma of the mean of 20000 is 43
    check_near(sum[0] / B, 1749.5, 43, "edits: mean of the random first token");
    check_near(sum[1] / B, 1749.5, 43, "edits: mean of the random fifth token");
    CHECK(changed > 2 * B * 0.99, "edits: only %ld tokens changed", changed);
    std::vector<int> probe(25), again(25);
    data_probe(&d, probe.data()); data_probe(&d, again.data());
    CHECK(probe == again && probe[1] == 42 && probe[0] != 3000 && probe[2] == 3002,
          "edits: the probe starts %d %d %d", probe[0], probe[1], probe[2]);
    // the first token of a quarter of the sequences, with the ids that all of them would get
    o.random_share = 0.25;
    Data some = data_open(o);
    const std::vector<int> z = draw(&some, B);
    long random = 0;
    for (int b = 0; b < B; b++) {
        const bool edited = z[b * 9] == x[b * 9] && z[b * 9 + 4] == x[b * 9 + 4];
        const bool kept = z[b * 9] == y[b * 9] && z[b * 9 + 4] == y[b * 9 + 4];
        random += edited;
        CHECK((edited || kept) && z[b * 9 + 1] == 42 && z[b * 9 + 2] == y[b * 9 + 2],
              "edits: sequence %d of a quarter begins %d %d", b, z[b * 9], z[b * 9 + 1]);
    }
    check_near(random / (double)B, 0.25, 0.02, "edits: share of the sequences");
    o.random_share = 1;
    o.random_token = {10};
    refused(o, "--random-token 10: wanted a position from 1 to T+1 = 9");
    o.random_token = {}; o.fix_token = {{1, 3500}};
    refused(o, "--fix-token 1:3500");
}

// ----------------------------------------------------------------------------
// tokenize

// A comma in the name of what is there belongs to the name.
static void test_names_listed() {
    const std::string x = put("a,b.txt", "x"), y = put("c", "y"), z = put(",d,,e", "z");
    const auto listed = [](const std::string& list) {
        std::string all;
        for (auto& name : names_listed(list)) { all += name + "|"; }
        return all;
    };
    const std::string rows[][2] = {
        { x, x + "|" }, { x + "," + y, x + "|" + y + "|" }, { y + "," + x, y + "|" + x + "|" },
        { x + ":3," + y + ":1", x + ":3|" + y + ":1|" }, { y + "," + y, y + "|" + y + "|" },
        { z + "," + x, z + "|" + x + "|" }, { "a,b", "a|b|" }, { "", "" },
        { x + "," + dir + "/no," + y, x + "|" + dir + "/no|" + y + "|" },
    };
    for (auto& row : rows) {
        CHECK(listed(row[0]) == row[1], "%s: %s", row[0].c_str(), listed(row[0]).c_str());
    }
    std::string there;
    for (auto& name : names_listed("a,b.txt,q", dir)) { there += name + "|"; }
    CHECK(there == "a,b.txt|q|", "from another directory: %s", there.c_str());
    CHECK(names_listed("data,dist").size() == 2, "two names that are there");
    for (const std::string& list : { x + ",", "," + x, y + ",," + x, std::string(",") }) {
        dies("got an empty name", [=] { names_listed(list); });
    }
    refused(options({ "no", "such.txt" }), "wanted no or data/no (a comma ends a name");
}

static TokenizeOptions tokenizing(const std::vector<std::string>& files, const std::string& out) {
    TokenizeOptions o;
    o.files = files; o.out = dir + "/" + out;
    return o;
}
static std::vector<int> series_ids(const std::string& out, const std::string& prefix = "train") {
    std::vector<int> ids;
    for (auto& name : dir_list(dir + "/" + out)) {
        if (name.compare(0, prefix.size() + 1, prefix + "_") || !ends_with(name, ".bin")
            || name.size() != prefix.size() + 11) {
            continue;
        }
        Shard s = shard_open(dir + "/" + out + "/" + name);
        for (long i = 0; i < s.n; i++) { ids.push_back((int)shard_token(s, i)); }
    }
    return ids;
}
static std::string files_hash(const std::string& out) { // names and contents of all shards
    std::string all;
    for (auto& name : dir_list(dir + "/" + out)) {
        if (ends_with(name, ".bin")) {
            std::string s = file_read(dir + "/" + out + "/" + name);
            all += strf("%s %zu %016llx\n", name.c_str(), s.size(),
                        (unsigned long long)hash_bytes(s.data(), s.size()));
        }
    }
    return all;
}
// The ids of these texts as documents, until there are so many.
static std::vector<int> documents_of(const std::vector<std::string>& texts, size_t most = -1) {
    std::vector<int> ids;
    for (auto& text : texts) {
        if (ids.size() >= most) { break; }
        ids.insert(ids.end(), text.begin(), text.end());
        ids.push_back(256);
    }
    return ids;
}
static const std::string vectors = in_test() + "/vectors/";

static void test_tokenize() {
    // many documents of many sizes, in blocks larger and smaller than a document
    std::string a, b, texts[2];
    const char* sets[] = { "ArXiv", "Pile-CC", "Gutenberg (PG-19)", "OpenWebText2" };
    Rng rng{3};
    std::vector<std::string> by_set[4], in_order;
    for (int i = 0; i < 4000; i++) {
        std::string text = strf("Document %d of this:", i);
        for (int n = (int)rng_below(&rng, i % 100 ? 60 : 20000); n > 0; n--) {
            text += strf(" w%d", (int)rng_below(&rng, 50));
        }
        int k = (int)rng_below(&rng, 4);
        by_set[k].push_back(text);
        in_order.push_back(text);
        (i < 3000 ? a : b) += strf("{\"text\": %s, \"meta\": {\"pile_set_name\": \"%s\"}}\n",
                                   json_str(text).c_str(), sets[k]);
    }
    std::string fa = put("a.jsonl", a), fb = put("b.jsonl", b);
    for (int threads : {1, 2, 5}) {
        TokenizeOptions o = tokenizing({fa, fb}, strf("tok%d", threads));
        o.threads = threads;
        o.shard_tokens = 100001;
        o.val_fraction = 0.1;
        o.tokenizer = vectors + "gpt2.json";
        tokenize_main(o);
    }
    std::string one = files_hash("tok1");
    CHECK(one == files_hash("tok2") && one == files_hash("tok5") && split(one, '\n').size() > 4,
        "tokenize: the shards depend on the number of threads");
    Tokenizer tok = tokenizer_load(vectors + "gpt2.json");
    std::vector<int> train = series_ids("tok1"), val = series_ids("tok1", "val"), want;
    long val_docs = std::count(val.begin(), val.end(), tok.eos),
         docs = std::count(train.begin(), train.end(), tok.eos) + val_docs;
    CHECK(docs == 4000 && abs(val_docs - 400) < 100,
        "tokenize: %ld documents, %ld of them in val, wanted 4000 and about 400", docs, val_docs);
    Data d = data_open(options({dir + "/tok1"}));       // the directory brings its tokenizer
    CHECK(d.tokenizer.kind == TOKENIZER_BPE && d.V == tok.vocab_size &&
              d.sources[0].val.n == (long)val.size(),
          "tokenize: -d DIR: %s", d.description.c_str());
    DataOptions other = options({dir + "/tok1"}); other.tokenizer = vectors + "llama3.json";
    refused(other, "made with the tokenizer");

    // per domain, the documents in order
    TokenizeOptions o = tokenizing({fa, fb}, "domains");
    o.domains = "paper";
    tokenize_main(o);
    const char* names[] = { "arxiv", "pile_cc", "gutenberg_pg_19" };
    for (int k = 0; k < 3; k++) {
        CHECK(series_ids("domains", std::string("train_") + names[k]) == documents_of(by_set[k]),
              "domains: %s", names[k]);
    }
    Json manifest; std::string error, text = file_read(dir + "/domains/manifest.json");
    CHECK(json_parse(text.data(), text.size(), &manifest, &error) && manifest.get("dropped") &&
              manifest.get("dropped")->number == (double)by_set[3].size() &&
              manifest.get("documents")->number == 4000 - (double)by_set[3].size(),
          "domains: the manifest says %s %s", text.c_str(), error.c_str());
    o = tokenizing({fa, fb}, "shares");
    o.domains = "arxiv:1,pile_cc:3"; o.tokens = 40000;
    tokenize_main(o);
    for (int k = 0; k < 2; k++) {  // until the share is reached, by whole documents
        want = documents_of(by_set[k], k ? 30000 : 10000);
        const std::vector<int> got = series_ids("shares", std::string("train_") + names[k]);
        CHECK(got == want, "shares: %s has %zu tokens, wanted %zu", names[k], got.size(),
              want.size());
    }
    // a domain that has too little is named
    const std::string little = " --domains arxiv:1,pile_cc:1 --train-tokens ";
    for (const char* tokens : { "4000", "100000000" }) {
        const std::string to = dir + "/rows" + tokens;
        const Ran r = check_run("build/cpu/train_sink tokenize " + fa + " " + fb + little + tokens +
                                " -o " + to);
        check_ended(r, 0, "rows", "domain arxiv ");
        CHECK(r.says("warning:") == (strlen(tokens) > 4), "%s: %s", tokens, r.err.c_str());
    }
    // the first documents of all, and nothing of what is read ahead: neither its bytes nor errors
    std::string bad = put("bad.jsonl", a + "{\n"), made[3];
    for (int k = 0; k < 3; k++) {
        o = tokenizing({bad}, "first");
        o.tokens = 5000;
        o.threads = k ? 3 * k : 1;
        remove_tree(dir + "/first");
        tokenize_main(o);
        made[k] = file_read(dir + "/first/manifest.json");
    }
    CHECK(made[0] == made[1] && made[0] == made[2],
          "--train-tokens 5000 depends on the threads: %s", made[2].c_str());
    want = documents_of(in_order, 5000);
    CHECK(series_ids("first") == want, "the first 5000 tokens: got %zu, wanted %zu",
          series_ids("first").size(), want.size());
    // a text longer than what is read at once ends where there are tokens enough, as a document
    std::string lines;
    for (int i = 0; i < 200000; i++) { lines += strf("line %d of many\n", i); }
    o = tokenizing({put("long.txt", lines)}, "long");
    o.tokens = 5000;
    tokenize_main(o);
    const std::vector<int> cut = series_ids("long");
    CHECK(cut.size() > 5000 && cut.size() < lines.size() && cut.back() == 256 &&
              std::count(cut.begin(), cut.end(), 256) == 1,
          "a long text: %zu tokens", cut.size());
    o = tokenizing({fa, fb}, "little");                  // a share of less than one token
    o.domains = "arxiv:1,pile_cc:100000"; o.tokens = 5000;
    tokenize_main(o);
    CHECK((int)series_ids("little", "train_arxiv").size() == (int)by_set[0][0].size() + 1,
          "a share of nothing: %zu tokens", series_ids("little", "train_arxiv").size());
    o.domains = "arxiv:1,arxiv:2";
    dies("every domain once", [&] { tokenize_main(o); });
    o = tokenizing({dir + "/regmix"}, "mixed");      // RegMix: the domain is in the file's name
    make_dirs(dir + "/regmix/deeper");
    put("regmix/deeper/hackernews-0.jsonl", "{\"text\": \"x\"}\n");
    put("regmix/arxiv-10.jsonl", "{\"text\": \"y\"}\n");
    put("regmix/README", "no text");
    o.domains = "all";
    tokenize_main(o);
    CHECK(series_ids("mixed", "train_hackernews") == std::vector<int>({ 'x', 256 }) &&
              series_ids("mixed", "train_arxiv") == std::vector<int>({ 'y', 256 }),
          "domains from file names");

    // again: nothing to do; other text: refused; unfinished: from the start
    o = tokenizing({fb}, "again");
    tokenize_main(o);
    std::string hash = files_hash("again"), manifest_path = dir + "/again/manifest.json",
        finished = file_read(manifest_path);
    const std::string first = dir + "/again/train_000000.bin";
    const ino_t once = inode(first);
    tokenize_main(o);
    CHECK(once == inode(first), "tokenize: done again though complete");
    o.files = {fa};
    dies("other text", [&] { tokenize_main(o); });
    o.files = {fb};
    file_write(manifest_path,
               "{\"complete\": false" + finished.substr(strlen("{\"complete\": true")));
    put("again/train_000007.bin", "half"); put("again/train_000001.bin.tmp", "half");
    refused(options({dir + "/again"}), "unfinished");
    tokenize_main(o);
    CHECK(files_hash("again") == hash && !file_exists(dir + "/again/train_000001.bin.tmp")
        && file_read(manifest_path) == finished, "tokenize: does not start over cleanly");
    o.out = dir;
    dies("holds files that tokenize did not make", [&] { tokenize_main(o); });

    // killed at any moment: no directory that looks whole, and the next run makes the same
    for (int ms : {1, 5, 10, 20, 40, 80}) {
        pid_t pid = fork();
        if (pid == 0) {
            TokenizeOptions k = tokenizing({fa, fb}, "killed");
            k.shard_tokens = 50000; k.threads = 1;
            tokenize_main(k);
            _exit(0);
        }
        usleep(ms * 1000);
        kill(pid, SIGKILL);
        int status; waitpid(pid, &status, 0);
        const std::string manifest = dir + "/killed/manifest.json";
        const bool complete = file_exists(manifest) &&
                              contains(file_read(manifest), "\"complete\": true");
        CHECK(complete || !is_dir(dir + "/killed") ||
                  opening(options({ dir + "/killed" })).code == EXIT_USER,
              "killed after %d ms: looks whole", ms);
        TokenizeOptions k = tokenizing({fa, fb}, "killed");
        k.shard_tokens = 50000;
        tokenize_main(k);
        want = series_ids("killed");
        CHECK(std::count(want.begin(), want.end(), 256) == 4000,
              "killed after %d ms: then %zu tokens", ms, want.size());
        remove_tree(dir + "/killed");
    }
}
// tokenize writes into no directory that is not its own, and removes nothing from it
static void test_tokenize_directory() {
    const std::string a = put("a1.jsonl", "{\"text\": \"aaaa\"}\n"),
                      b = put("b1.jsonl", "{\"text\": \"bbbb\"}\n"), out = dir + "/used";
    TokenizeOptions o = tokenizing({ a }, "used");
    const std::string unfinished = "{\"complete\": false, \"tokenizer\": \"bytes\"}";
    const struct { const char *manifest, *file; } used[] = {
        { "{\"name\": \"web app\"}", "pytorch_model.bin" },
        { "{\"name\": \"web app\"}", "train_000000.bin" },
        { "{\"complete\": false}", "train_000000.bin" },
        { "{\"complete\": false}", "x.tmp" },
        { "", "manifest.json" },
        { "", "train_000000.bin" },
        { "", "config.json" },
        { unfinished.c_str(), "pytorch_model.bin" },
        { unfinished.c_str(), "notes.tmp" },
        { unfinished.c_str(), "train.bin" },
        { unfinished.c_str(), "train_1.bin" },
        { unfinished.c_str(), "web_train_000001.bin" },
        { unfinished.c_str(), "train_000000.bin.mine.tmp" },
        { "null", "log.jsonl" },
    };
    for (auto& u : used) {
        make_dirs(out);
        if (*u.manifest) { put("used/manifest.json", u.manifest); }
        put(std::string("used/") + u.file, "precious");
        const std::vector<std::string> before = dir_list(out);
        dies("did not make", [&] { tokenize_main(o); });
        CHECK(dir_list(out) == before && file_read(out + "/" + u.file) == "precious",
              "tokenize beside %s and %s", u.manifest, u.file);
        remove_tree(out);
    }
    // its own unfinished one: what it made goes, and goes nowhere else through a symlink
    make_dirs(out);
    put("used/manifest.json", unfinished);
    put("victim", "precious");
    for (auto name : { "train_000009.bin", "val_pile_cc_000001.bin", "tokenizer.json",
                       "train_000003.bin.host-77-0.tmp", "train_000004.bin.tmp" }) {
        CHECK(!symlink("../victim", (out + "/" + name).c_str()), "no symlink");
    }
    tokenize_main(o);
    CHECK(dir_list(out) == std::vector<std::string>({ "manifest.json", "train_000000.bin" }) &&
              file_read(dir + "/victim") == "precious",
          "an unfinished directory: %zu files", dir_list(out).size());
    // a lock that is something else is left alone
    for (auto kind : { "link", "text", "directory" }) {
        remove_tree(out);
        make_dirs(out);
        const std::string lock = out + "/lock";
        if (*kind == 'l') { CHECK(!symlink("../victim", lock.c_str()), "no symlink"); }
        if (*kind == 't') { file_write(lock, "precious"); }
        if (*kind == 'd') { make_dirs(lock); }
        dies("wanted the lock", [&] { tokenize_main(o); });
        CHECK(is_there(lock) && file_read(dir + "/victim") == "precious" &&
                  (*kind != 't' || file_read(lock) == "precious"),
              "a lock that is a %s is gone", kind);
    }
    remove_tree(out);
    // two at once, many times: one makes its shards, the other is refused
    for (int round = 0; round < 6; round++) {
        const Died d = check_dies([&] {
            for (auto& file : { a, b }) {
                if (fork()) { continue; }
                o.files = { file };
                tokenize_main(o);
                exit(0);
            }
            int status, refused = 0;
            while (wait(&status) > 0) { refused += WEXITSTATUS(status) == EXIT_USER; }
            exit(refused == 1 ? 0 : 99);
        });
        const bool of_a = contains(file_read(out + "/manifest.json"), "a1.jsonl");
        CHECK(d.code == 0 && series_ids("used")[0] == (of_a ? 'a' : 'b'),
              "two at once into one directory: %d %s", d.code, d.err.c_str());
        remove_tree(out);
    }
    // what has no identity, or may be another text of the same size and time, is not taken for the
    // same
    auto from = [&](const std::string& file) {
        if (!freopen(file.c_str(), "r", stdin)) { exit(98); }
        o.files = { "-" };
        tokenize_main(o);
    };
    CHECK(check_dies([&] { from(a); }).code == 0, "standard input");
    dies("standard input may be other text", [&] { from(b); });
    CHECK(series_ids("used")[0] == 'a', "standard input twice");
    remove_tree(out);
    o.files = { a };
    tokenize_main(o);
    put_unseen("a1.jsonl", "{\"text\": \"cccc\"}\n");
    dies("a1.jsonl may be other text", [&] { tokenize_main(o); });
    remove_tree(out);
}

// a .txt is one document however it is cut into blocks
static void test_long_text() {
    for (size_t size : { (size_t)TEXT_BLOCK - 1, (size_t)TEXT_BLOCK, (size_t)TEXT_BLOCK + 1,
                         (size_t)2 * TEXT_BLOCK }) {
        TokenizeOptions o = tokenizing({ put("exact.txt", std::string(size, 'x')) },
                                       strf("exact_%zu", size));
        o.bos = "doc";
        // all that a run killed at its very start leaves
        make_dirs(o.out); file_write(o.out + "/manifest.json.tmp", "{");
        tokenize_main(o);
        std::vector<int> ids = series_ids(strf("exact_%zu", size));
        CHECK(ids.size() == size + 2 && ids[0] == 256 && ids.back() == 256 &&
                  std::count(ids.begin(), ids.end(), 'x') == (long)size,
              "a text of %zu bytes: %zu ids", size, ids.size());
    }
    std::string text;
    Rng rng{4};
    const char* words[] = { "the", " and", "\n", "\n\n", "  ", " caf\xC3\xA9", "\xE6\xBC\xA2",
                            ".\n", "\t", " 12", "'s", "e\xCC\x81", "\r\n", "<s>" };
    while (text.size() < (7 << 18)) { text += words[rng_below(&rng, 14)]; }
    text.insert(1 << 20, std::string(300000, ' '));      // no place to cut for a while
    std::string path = put("long.txt", text);
    for (auto name : {"neox", "gpt2", "llama3", "llama2", "llama2_first"}) {
        TokenizeOptions o = tokenizing({path}, std::string("long_") + name);
        o.tokenizer = vectors + name + ".json";
        Tokenizer tok = tokenizer_load(o.tokenizer);
        if (tok.eos < 0) { continue; }                   // the small llama3.json has no EOS
        // the small llama2 has tokens across lines
        CHECK(tok.bpe->cut_at_lines == (name[0] != 'l'), "%s: cut at lines: %d", name, tok.bpe->cut_at_lines);
        tokenize_main(o);
        std::vector<int> want = tokenizer_encode(tok, text, false),
                         got = series_ids(o.out.substr(dir.size() + 1));
        want.push_back(tok.eos);
        CHECK(got == want, "%s: a long text encoded in parts differs: %zu ids, wanted %zu", name,
              got.size(), want.size());
    }
}

// wherever a text may be cut, its parts have the ids of the whole; and the start of a record is
// encoded as if all of it were
static void test_cuts() {
    const std::string gpt2 = file_read(vectors + "gpt2.json");
    const std::string level = "{\"type\":\"ByteLevel\",\"add_prefix_space\":false,"
                              "\"trim_offsets\":true,\"use_regex\":true}";
    int made = 0;
    auto with_digits = [&](const char* each, const std::string& after, const char* added) {
        const std::string j = replaced(gpt2, level, std::string("{\"type\":\"Sequence\","
            "\"pretokenizers\":[{\"type\":\"Digits\",\"individual_digits\":") + each + "}," +
            after + "]}");
        return put(strf("digits_%d.json", made++), replaced(j, "<|endoftext|>", added));
    };
    auto normalized = [&](const std::string& by) {
        return put(strf("normalized_%d.json", made++),
                   replaced(gpt2, "\"normalizer\":null", "\"normalizer\":" + by));
    };
    // a U+2581 goes before the text and not before its second part; what is unknown becomes one
    // token, wherever it ends
    auto prepends = [&](const std::string& vocab, const std::string& merges) {
        return put(strf("prepends_%d.json", made++), "{\"added_tokens\": [], \"normalizer\": "
            "{\"type\": \"Prepend\", \"prepend\": \"\u2581\"}, \"pre_tokenizer\": null, "
            "\"model\": {\"type\": \"BPE\", \"unk_token\": \"?\", \"fuse_unk\": true, "
            "\"vocab\": {\"?\": 0, \"\u2581\": 1, \"a\": 2" + vocab + "}, "
            "\"merges\": [" + merges + "]}}");
    };
    const std::string bare = "{\"type\":\"ByteLevel\",\"add_prefix_space\":false,"
                             "\"trim_offsets\":true,\"use_regex\":false}";
    const struct { std::string path; bool lines, spaces; } rows[] = {
        { vectors + "gpt2.json", true, true }, { vectors + "neox.json", true, true },
        { vectors + "llama3.json", true, true }, { vectors + "llama2.json", false, false },
        { with_digits("true", level, "<|endoftext|>"), true, true },
        { with_digits("false", level, "<|endoftext|>"), true, true },
        // digits alone leave a word with what is around it; a token of two words has both sides
        { with_digits("true", bare, "<|endoftext|>"), false, false },
        { with_digits("true", level, "the end"), true, false },
        // a normalizer that spaces meet, or the start of a text
        { normalized("{\"type\":\"Replace\",\"pattern\":{\"String\":\" \"},"
                     "\"content\":\"\"}"), true, false },
        { normalized("{\"type\":\"Prepend\",\"prepend\":\"z\"}"), true, false },
        { normalized("{\"type\":\"NFC\"}"), true, true },
        { prepends("", ""), false, false }, { prepends(", \"\\n\": 3", ""), true, false },
    };
    const char* words[] = { "the", " the", " end", "A", "\n", "\n\n", " ", "  ", "caf\xC3\xA9",
                            "e\xCC\x81", "7", " 12", "'s", ".", "\t", "x\ny", "<s>", "\r\n" };
    for (auto& row : rows) {
        const Tokenizer tok = tokenizer_load(row.path);
        CHECK(tok.bpe->cut_at_lines == row.lines && tok.bpe->cut_at_spaces == row.spaces,
              "%s: cut at lines %d, at spaces %d", row.path.c_str(), tok.bpe->cut_at_lines,
              tok.bpe->cut_at_spaces);
        Rng rng{7};
        std::string text;
        for (int i = 0; i < 1500; i++) { text += words[rng_below(&rng, 18)]; }
        const std::vector<int> whole = tokenizer_encode(tok, text, false);
        long cuts = 0, wrong = 0;
        for (size_t i = 0; i <= text.size(); i++) {
            if (!text_cuts(tok, text.data(), text.size(), i)) { continue; }
            Ids parts;
            tokenizer_encode_to(tok, text.data(), i, true, &parts);
            tokenizer_encode_to(tok, text.data() + i, text.size() - i, false, &parts);
            wrong += std::vector<int>(parts.begin(), parts.end()) != whole;
            cuts++;
        }
        CHECK((cuts > 50) == row.lines && wrong == 0, "%s: %ld of %ld cuts change the ids",
              row.path.c_str(), wrong, cuts);
    }
    // the start of a record has the ids that it has in all of it
    const auto starts = [&](const Tokenizer& tok, const std::string& text, int len) {
        const std::string path = put("start.jsonl", "{\"text\": " + json_str(text) + "}\n");
        std::vector<int> x(len + 1);
        TextCounts counts;
        DataOptions how;
        const int n = prompts_of_text(path, tok, { 1, len, false, false, &how }, x.data(), &counts);
        const std::vector<int> whole = tokenizer_encode(tok, text, false);
        CHECK(n == 1 && counts.skipped == 0 && std::equal(x.begin(), x.end(), whole.begin()),
              "%s: the first %d ids of %zu", tok.name.c_str(), len + 1, whole.size());
    };
    std::string words_and_lines;
    for (int i = 0; i < 9000; i++) { words_and_lines += i % 700 ? " end" : "\nthe"; }
    for (int len : { 1, 500, 3000 }) {
        starts(tokenizer_load(vectors + "gpt2.json"), words_and_lines, len);
    }
    starts(Tokenizer(), std::string(5000, 'x'), 4096);  // one id more than the first part has
    std::string lines;
    while (lines.size() < 9000) { lines += "a\n"; }
    starts(tokenizer_load(prepends(", \"\\n\": 3, \"\u2581a\": 4", "\"\u2581 a\"")), lines,
           6000);
}

static void test_prompts() {
    std::string lines;
    for (int i = 0; i < 12; i++) {
        lines += strf("{\"text\": \"%s\"}\n",
                      std::string(i % 3 ? 4 + i : 4, (char)('a' + i)).c_str());
    }
    std::string path = put("prompts.jsonl", lines);
    Tokenizer bytes = Tokenizer();
    std::vector<int> x(6 * 5);
    TextCounts counts;
    int n = prompts_of_text(path, bytes, { 6, 4 }, x.data(), &counts);
    // a, d and g have four tokens
    CHECK(n == 6 && counts.skipped == 3, "prompts: %d, and %ld skipped", n,
          counts.skipped);
    const char first[] = { 'b', 'c', 'e', 'f', 'h', 'i' };
    for (int i = 0; i < 30; i++) {
        CHECK(x[i] == first[i / 5], "prompts: sequence %d has %c", i / 5, x[i]);
    }
    DataOptions how;
    how.bos = "doc"; how.fix_token = {{3, 7}};
    n = prompts_of_text(path, bytes, { 6, 4, false, false, &how }, x.data(), &counts);
    CHECK(n == 6 && counts.skipped == 0 && x[0] == 256 && x[1] == 'a' && x[2] == 7 && x[5] == 256 &&
              x[6] == 'b',
          "prompts with BOS: %d %d %d", x[0], x[1], x[2]);
    how.bos = "seq";
    n = prompts_of_text(path, bytes, { 6, 4, false, false, &how }, x.data(), &counts);
    CHECK(n == 6 && x[0] == 256 && x[1] == 'b' && x[2] == 7,
          "prompts with BOS in place of the first token: %d %d", x[0], x[1]);
    const std::string text = put("prompts.txt", "a text has no records\n");
    dies("--skip-bad: got no .jsonl",
         [&] { prompts_of_text(text, bytes, { 1, 4, true, true }, x.data(), &counts); });
    // a text that begins with BOS gets no second one, and that is counted; --tokenizer of words
    const Tokenizer words = tokenizer_load(vectors + "llama2.json");
    const std::string begun = put("begun.jsonl", "{\"text\": \"<s>the cat sat on\"}\n"
                                                 "{\"text\": \"the cat sat on\"}\n");
    how = DataOptions();
    how.bos = "doc";
    n = prompts_of_text(begun, words, { 2, 3, false, false, &how }, x.data(), &counts);
    CHECK(n == 2 && counts.begun == 1 && x[0] == words.bos && x[1] != words.bos &&
              x[4] == words.bos && x[5] != words.bos,
          "BOS twice: %d %ld, %d %d %d %d", n, counts.begun, x[0], x[1], x[4], x[5]);
    dies("got no record of 101 tokens",
         [&] { prompts_of_text(path, bytes, { 6, 100 }, x.data(), &counts); });
}

static void test_bad_input() {
    refused(options({dir + "/nowhere.txt"}), "no such file or directory");
    refused(options({put("empty.txt", "")}), "got an empty file");
    refused(options({put("empty.jsonl", "")}), "got an empty file");
    refused(options({put("short.txt", "1234567")}), "got 8 tokens, wanted at least T+1 = 9");
    refused(options({put("short2.txt", "12345678901234567890")}), "got 21 tokens, wanted 30");
    make_dirs(dir + "/none");
    refused(options({dir + "/none"}), "got no tokens");
    make_dirs(dir + "/texts");
    file_write(dir + "/texts/a.txt", "some words");
    refused(options({dir + "/texts"}), "scripts/prepare_text.sh ");
    put("none/train.bin", "");
    refused(options({dir + "/none"}), "got an empty file");

    make_dirs(dir + "/bad");
    std::string path = dir + "/bad/train_0.bin",
                good = file_read(put_shard("bad/train_0.bin", count_up(300)));
    auto with = [&](const std::string& s) { file_write(path, s); return options({dir + "/bad"}); };
    data_open(with(good));
    refused(with(good.substr(0, good.size() - 2)), "truncated");
    refused(with(good + "xx"), "wanted 1624 for the 300 tokens");
    refused(with(good.substr(0, 1000)), "wanted a header of 1024: truncated");
    refused(with(good.substr(0, 4)), "truncated");
    std::string s = good; int32_t v = 20240521; memcpy(&s[0], &v, 4);
    refused(with(s), "got no header, wanted llm.c");
    s = good; v = 2; memcpy(&s[4], &v, 4);
    refused(with(s), "got shard version 2, wanted 1");
    s = good; v = -5; memcpy(&s[8], &v, 4);
    refused(with(s), "wanted");
    s = good; v = 0x7fffffff; memcpy(&s[8], &v, 4);
    refused(with(s), "truncated");
    file_write(path, good);
    put_shard("bad/train_1.bin", count_up(300), 4);
    refused(options({dir + "/bad"}), "one format per directory");
    unlink((dir + "/bad/train_1.bin").c_str());
    put("bad/manifest.json", "{\"complete\": false}");
    refused(options({dir + "/bad"}), "got an unfinished directory");
    put("bad/manifest.json", "{\"complete\": ");
    refused(options({dir + "/bad"}), "manifest.json: not JSON, byte");
    // the shards hold ids that their manifest, or the model, does not have
    put("bad/manifest.json", "{\"complete\": true, \"vocab\": 100}");
    DataOptions o = options({dir + "/bad"});
    const auto draws = [&] { Data d = data_open(o); draw(&d, 100); };
    dies("wanted ids below the vocabulary of 100", draws);
    dies("train_0.bin", draws);
    // the largest training id, held-out ids aside, is 278
    put("bad/manifest.json", "{\"complete\": true, \"vocab\": 280}");
    draws();
    // an id equal to the vocabulary
    put("bad/manifest.json", "{\"complete\": true, \"vocab\": 272}");
    dies("got id 272", draws);
    unlink((dir + "/bad/manifest.json").c_str());
    o.vocab = 200;
    dies("vocabulary of 200", draws);
    o = options({dir + "/docs.jsonl"}); o.vocab = 256;
    refused(o, "the data have 257 ids, the model has 256");
    o = options({dir + "/bad"}); o.bos = "doc";
    refused(o, "without BOS");
    o.bos = "seq";
    refused(o, "has no BOS");
    o.bos = "all";
    refused(o, "wanted none, seq or doc");
    o = options({"bb"}); o.bb_triggers = 7;
    refused(o, "bb: got 256 ids, 7 triggers");
}

static void test_bad_text() {
    // ill-formed UTF-8 and lone surrogates in jsonl become U+FFFD, and are counted
    std::string ok(200, 'x');
    std::string path = put("utf8.jsonl", "{\"text\": \"a\xFF\xFE"
                                         "b\xE2\x82"
                                         "c\\ud800d\"}\n{\"text\": \"" +
                                             ok + "\"}\n");
    Data d = data_open(options({path}));
    int x[20]; tokens_copy(d.sources[0].train, 0, 17, 257, x);
    std::string got = tokenizer_decode(d.tokenizer, x, 16, true),
        want = "a\xEF\xBF\xBD\xEF\xBF\xBD" "b\xEF\xBF\xBD" "c\xEF\xBF\xBD" "d";
    CHECK(got == want && x[16] == 256, "ill-formed UTF-8 reads as %s", json_str(got).c_str());
    std::string shard = d.sources[0].train.shards[0].path;
    std::string manifest = file_read(shard.substr(0, shard.rfind('/')) + "/manifest.json");
    CHECK(contains(manifest, "\"replaced\": 4,"),
          "ill-formed UTF-8: the manifest says %s", manifest.c_str());

    std::string good = "{\"text\": \"" + ok + "\"}\n";
    struct {
        const char* line;
        const char* says;
    } bad[] = {
        { "{\"text\": \"a\"", "line 3: byte 13: wanted ',' or '}'" },
        { "{\"text\": 5}", "line 3: wanted {\"text\"" },
        { "{\"txt\": \"a\"}", "got a record without text" },
        { "[1]", "got an array, wanted one record" },
        { "{\"text\": \"a\"} x", "more text after" },
        { "{\"text\": \"a\x01\"}", "control character" },
        { "{\"text\": \"\\q\"}", "unknown escape" },
        { "{'text': 'a'}", "wanted a key in quotes" },
    };
    for (auto& b : bad) {
        std::string p = put("bad.jsonl", good + "\n" + b.line + "\n" + good);
        DataOptions o = options({p});
        refused(o, b.says); refused(o, "bad.jsonl"); refused(o, "--skip-bad");
        o.skip_bad = true;
        Data s = data_open(o);
        CHECK(tokens_of(s) == 402, "--skip-bad after %s: %ld tokens", b.line, tokens_of(s));
    }
    for (auto& name : { put("whole.txt", ok), dir + "/guarded" }) {
        DataOptions o = options({ name });
        o.skip_bad = true;
        refused(o, "--skip-bad: got no .jsonl");
    }
    DataOptions beside = options({ dir + "/whole.txt", dir + "/bad.jsonl" });
    beside.skip_bad = true;
    CHECK(data_open(beside).sources.size() == 2, "--skip-bad: a .txt beside a .jsonl");
    CHECK(dir_list(dir + "/cache").size() > 0, "no cache");
    for (auto& name : dir_list(dir + "/cache")) {
        CHECK(!contains(name, "part") || !file_exists(dir + "/cache/" + name + "/manifest.json"),
              "a failed run left %s", name.c_str());
    }
}

int main() {
    dir = check_tmp();
    // the loader reports what it tokenized
    if (!freopen((dir + "/stderr").c_str(), "w", stderr)) { return 1; }
    setvbuf(stderr, NULL, _IONBF, 0);                    // as it was: a killed child has said it
    CASE("bb") { test_bb(256, 1, 0.15, 1, 0); }
    CASE("bb") { test_bb(64, 3, 0.1, 1, 0); }
    CASE("bb") { test_bb(40, 2, 0.05, 0, 0); }
    CASE("bb") { test_bb(40, 2, 0.1, 1, 1); }
    CASE("bb_streams") { test_bb_streams(); }
    CASE("permute") { test_permute(); }
    CASE("order") { test_order(); }
    CASE("packing") { test_packing(); }
    CASE("formats") { test_formats(); }
    CASE("names_listed") { test_names_listed(); }
    CASE("cache") { test_cache(); }
    CASE("cache_damaged") { test_cache_damaged(); }
    CASE("cache_together") { test_cache_together(); }
    CASE("shards_changed") { test_shards_changed(); }
    CASE("changed_meanwhile") { test_changed_meanwhile(); }
    CASE("mixture") { test_mixture(); }
    CASE("restore") { test_restore(); }
    CASE("edits") { test_edits(); }
    CASE("tokenize") { test_tokenize(); }
    CASE("tokenize_directory") { test_tokenize_directory(); }
    CASE("long_text") { test_long_text(); }
    CASE("cuts") { test_cuts(); }
    CASE("prompts") { test_prompts(); }
    CASE("bad_input") { test_bad_input(); }
    CASE("bad_text") { test_bad_text(); }
    remove_tree(dir);
    return check_done();
}
