/*
text/dataloader.cpp -- what dataloader.h declares.
*/
#include "../dataloader.h"

// ----------------------------------------------------------------------------
// text

// --sft: how the records of a .jsonl become conversations; dies if they or the tokenizer cannot
static void data_sft(const DataOptions& opt, const std::string& path, const Tokenizer& tok,
                     TokenizeOptions* o) {
    if (opt.sft.empty()) { return; }
    const std::string what = "--sft " + opt.sft, wanted = sft_check(tok, opt.sft);
    if (!wanted.empty()) { die(EXIT_USER, what + ": wanted " + wanted); }
    if (opt.bos == "doc" || text_format(path) != TEXT_JSONL) {
        die(EXIT_USER, what + ": wanted a .jsonl of {\"messages\": [..]}, and no --bos doc");
    }
    if (opt.sft_loss != "assistant" && opt.sft_loss != "all") {
        die(EXIT_USER, "--sft-loss " + opt.sft_loss + ": wanted assistant or all");
    }
    o->sft = opt.sft;
    o->assistant_only = opt.sft_loss == "assistant";
}

// Says whether the directory holds the shards of this text, every byte as it was written. sums: in
// an older manifest there are none, and it is enough that the files are there.
static bool cache_intact(const std::string& dir, const Tokenizing& same) {
    const std::string path = dir + "/manifest.json";
    // a file of the same size and time may hold other text: an archive unpacked, times preserved
    if (changed_since(same.files[0].path, path)) { return false; }
    const std::string text = file_read(path);
    Json manifest;
    std::string error;
    if (text.find("{\"complete\": true") || text.find(tokenizing_made(same)) == std::string::npos ||
        !json_parse(text.data(), text.size(), &manifest, &error)) {
        return false;
    }
    const std::vector<ShardSums> all = manifest_sums(manifest);
    for (auto& sums : all) {
        if (!shard_fault(dir, sums, true).empty()) { return false; }
    }
    return !all.empty() || file_exists(dir + "/train_000000.bin");
}

// Is this NAME-HASH.part of ours, in which the text of another run became shards, or would have?
static bool cache_part(const std::string& name, const std::string& path) {
    const size_t dash = name.rfind('-'), digits = 16;
    const std::string manifest = path + "/manifest.json";
    const bool named = ends_with(name, ".part") && dash != std::string::npos &&
                       name.size() == dash + 1 + digits + strlen(".part");
    if (!named || is_special(manifest)) { return false; }
    return file_exists(manifest) ? tokenizing_manifest_ours(file_read(manifest))
                                 : dir_list(path) == std::vector<std::string>({ "lock" });
}

// Removes what runs that failed or were killed left of other texts.
static void cache_clean(const std::string& root) {
    for (auto& name : dir_list(root)) {
        const std::string left = root + "/" + name;
        if (!cache_part(name, left)) { continue; }
        DirLock lock = dir_try_lock(left);
        if (lock.fd < 0) { continue; }
        remove_ours(left, tokenizing_ours);
        dir_unlock(&lock);
    }
}

// Makes the shards in `part`, which is locked, then gives the directory its name.
static void cache_make(const TokenizeOptions& o, const std::string& dir, DirLock* lock) {
    tokenize_main(o);
    const bool free = remove_ours(dir, tokenizing_ours);
    if (!free) {
        die(EXIT_USER, dir + ": holds files that train_sink did not make",
            "move them away: it is the cache of a text");
    }
    if (rename(o.out.c_str(), dir.c_str())) {
        die(EXIT_MACHINE, strf("%s: cannot write (%s)", dir.c_str(), strerror(errno)),
            "its tokens are kept in data/cache: run where you may write");
    }
    lock->path = dir + "/lock";
    dir_unlock(lock);
    dir_sync(directory_of(dir));
}

// The directory of shards of a text file: made now, or found from an earlier run with the same file
// and tokenizer.
static std::string text_cache(const std::string& path, const Tokenizer& tok,
                              const DataOptions& opt) {
    char real[PATH_MAX];
    if (!realpath(path.c_str(), real) || access(real, R_OK)) {
        die(EXIT_USER, strf("%s: cannot open (%s)", path.c_str(), strerror(errno)));
    }
    if (file_size(path) == 0) {
        die(EXIT_USER, strf("%s: got an empty file, wanted text", path.c_str()));
    }
    TokenizeOptions o;
    o.files = { path };
    o.tokenizer = tok.kind == TOKENIZER_BPE ? tok.name : "";
    o.bos = opt.bos == "doc" ? "doc" : "none";
    o.skip_bad = opt.skip_bad;
    data_sft(opt, path, tok, &o);
    std::string how = strf("%s|%s|%d", real, o.bos.c_str(), (int)o.skip_bad);
    if (!o.sft.empty()) { how += "|" + o.sft + (o.assistant_only ? "|assistant" : "|all"); }
    std::string root = opt.cache.empty() ? "data/cache" : opt.cache,
                name = path.substr(path.rfind('/') + 1);
    unsigned long long hash = hash_bytes(how.data(), how.size(), tok.hash);
    std::string dir = strf("%s/%s-%016llx", root.c_str(), name.c_str(), hash);
    Tokenizing same;                                     // as tokenize_main sees this file
    same.o = o;
    same.tok = tok;
    same.val_from = 1;
    same.files.push_back(TextFile());
    same.files[0].path = path;
    o.out = dir + ".part";
    o.shown = dir;                                       // the name it has when it is done
    o.locked = true;
    DirLock lock;
    while (!cache_intact(dir, same)) {
        make_dirs(o.out);
        lock = dir_lock(o.out, "", "makes tokens of the same text");
        if (lock.fd < 0) { continue; }                   // another process has just made them
        if (cache_intact(dir, same)) {
            remove_ours(o.out, tokenizing_ours);
            dir_unlock(&lock);
            break;
        }
        cache_clean(root);
        cache_make(o, dir, &lock);
        break;
    }
    return dir;
}

// ----------------------------------------------------------------------------
// bb: the task as dataloader.h has it

static Bigram bigram_make(const DataOptions& o) {
    int n = o.bb_vocab, k = o.bb_triggers;
    Bigram g; g.n = n; g.triggers = k; g.bos = o.bb_bos;
    if (n < 2 || k < 0 || k > n - 2 || o.bb_trigger_prob < 0 || k * o.bb_trigger_prob >= 1) {
        die(EXIT_USER,
            strf("bb: got %d ids, %d triggers of probability %g, wanted two ids more than triggers "
                 "and "
                 "probabilities that sum to less than 1",
                 n, k, o.bb_trigger_prob),
            "try --bb-vocab 256 --bb-triggers 1 --bb-trigger-prob 0.15");
    }
    g.keep.resize((size_t)n * n); g.other.resize((size_t)n * n);
    Rng rng = rng_stream(o.bb_table, STREAM_TABLE);
    std::vector<double> p(n);
    std::vector<int> small, large;
    for (int i = 0; i < n; i++) {
        double sum = 0;
        for (int j = 0; j < n; j++) {
            p[j] = exp(o.bb_temp * rng_normal(&rng));
            sum += j < k ? 0 : p[j];
        }
        for (int j = 0; j < n; j++) {
            p[j] = j < k ? o.bb_trigger_prob : p[j] / sum * (1 - k * o.bb_trigger_prob);
        }
        // Walker's alias method: column j is kept with probability keep, else gives `other`
        small.clear(); large.clear();
        for (int j = 0; j < n; j++) { p[j] *= n; (p[j] < 1 ? small : large).push_back(j); }
        while (!small.empty() && !large.empty()) {
            int s = small.back(), l = large.back(); small.pop_back();
            g.keep[(size_t)i * n + s] = (float)p[s]; g.other[(size_t)i * n + s] = l;
            p[l] -= 1 - p[s];
            if (p[l] < 1) { large.pop_back(); small.push_back(l); }
        }
        for (int j : large) { g.keep[(size_t)i * n + j] = 1; }
        for (int j : small) { g.keep[(size_t)i * n + j] = 1; } // rounding left them just below 1
    }
    return g;
}

// ----------------------------------------------------------------------------
// data

// is there a word of `words` in the file name, between _ - and . ?  train_web_000.bin, web-val.bin
static bool name_has(const std::string& name, const std::vector<std::string>& words) {
    std::string word;
    for (char c : name + ".") {
        if (c != '_' && c != '-' && c != '.') { word += c; continue; }
        for (auto& w : words) { if (word == w) { return true; } }
        word.clear();
    }
    return false;
}

// The shards that the manifest lists; dies if one is missing or is not as it was written. Of a
// large directory only the sizes are looked at here: its tokens are compared as they are read.
static std::vector<ShardSums> shards_listed(const std::string& dir, const Json& manifest) {
    const long most = 1L << 29;                          // tokens
    std::vector<ShardSums> all = manifest_sums(manifest);
    long tokens = 0;
    for (auto& sums : all) { tokens += sums.tokens; }
    for (auto& sums : all) {
        const std::string fault = shard_fault(dir, sums, tokens <= most);
        if (!fault.empty()) {
            die(EXIT_USER, dir + "/" + sums.name + ": " + fault,
                "get the file again, or run tokenize again into another directory");
        }
        if (tokens <= most) { sums.compared.assign(sums.compared.size(), 1); }
    }
    return all;
}

// the shards of a directory: *.bin with val, valid or validation in the name are held out, test is
// left alone
static void source_open_dir(Source* s, const std::string& dir, const Json& manifest) {
    const std::vector<ShardSums> all = shards_listed(dir, manifest);
    for (auto& name : dir_list(dir)) {
        if (!ends_with(name, ".bin") || name_has(name, {"test"})) { continue; }
        Shard shard = shard_open(dir + "/" + name);
        for (auto& sums : all) {
            if (sums.name == name) { shard.sums = std::make_shared<ShardSums>(sums); }
        }
        if (s->format.empty()) { s->format = shard.format; }
        if (s->format != shard.format) {
            die(EXIT_USER,
                strf("%s: got %s, wanted %s like its neighbors", shard.path.c_str(),
                     shard.format.c_str(), s->format.c_str()),
                "one format per directory");
        }
        tokens_add(name_has(name, {"val", "valid", "validation"}) ? &s->val : &s->train, shard);
    }
    if (s->train.n + s->val.n == 0) {
        const Kind other = kind_in_dir(dir, READS_TOKENS);       // what is there instead
        die(EXIT_USER, dir + ": got no tokens, wanted .bin shards in it" + other.what,
            other.hint.empty() ? "make some with: ./train_sink tokenize FILE... -o DIR" : other.hint);
    }
}

// The last 1% is held out when no val shard exists, or more if the probe needs it.
static void source_split(Source* s, const DataOptions& o, long probe_seqs, long held) {
    long n = s->train.n, probe = probe_seqs * o.probe_len + 1,
         hold = std::max({ n / 100, probe, (long)o.T + 1 });
    if (held) { hold = held; }
    if (n < o.T + 1) {
        die(EXIT_USER,
            strf("%s: got %ld tokens, wanted at least T+1 = %d for one sequence", s->name.c_str(),
                 n, o.T + 1),
            "use more data, or a shorter --seq");
    }
    if (s->val.n == 0) {
        if (n - hold < o.T + 1) {
            die(EXIT_USER,
                strf("%s: got %ld tokens, wanted %ld: %d to train on and %ld held out (the last "
                     "1%%, and "
                     "at least %ld probe sequences of %d)",
                     s->name.c_str(), n, o.T + 1 + hold, o.T + 1, hold, probe_seqs, o.probe_len),
                "use more data, or smaller --seq, --probe-seqs, --probe-len");
        }
        s->val = s->train;
        s->train.n = s->val.from = n - hold;
        s->val.n = hold;
    } else if (s->val.n < std::max(o.T, o.probe_len) + 1) {
        die(EXIT_USER,
            strf("%s: got %ld tokens in the val shards, wanted at least %d", s->name.c_str(),
                 s->val.n, std::max(o.T, o.probe_len) + 1),
            "use more data, or a shorter --seq");
    }
    s->windows = (s->train.n - 1) / o.T;
    s->val_windows = (s->val.n - 1) / o.T;
}

// largest id + 1, by reading everything once
static long tokens_vocab(const Tokens& t) {
    long top = -1;
    for (auto& s : t.shards) {
        #pragma omp parallel for reduction(max : top)
        for (long i = 0; i < s.n; i++) { top = std::max(top, shard_token(s, i)); }
    }
    return top + 1;
}

double source_weight(std::string* name) {
    size_t colon = name->rfind(':');
    double weight;
    if (colon == std::string::npos || !parse_double(name->substr(colon + 1), &weight)) {
        return -1;
    }
    // shares are counted in millionths, as whole numbers of 64 bits
    if (weight < 1e-4 || weight > 1e11) {
        die(EXIT_USER,
            strf("--data %s: got weight %g, wanted a number from 0.0001 to 1e11", name->c_str(),
                 weight),
            "only the ratio of the weights counts: multiply all of them by one number");
    }
    name->resize(colon);
    return weight;
}

// what a directory of shards says about itself, if train_sink made it
struct Manifest { Json json; std::string tokenizer, hash, bos; int vocab = 0; };

static Manifest manifest_read(const std::string& dir) {
    Manifest m;
    std::string path = dir + "/manifest.json", error;
    if (!file_exists(path)) { return m; }
    std::string text = file_read(path);
    if (!json_parse(text.data(), text.size(), &m.json, &error)) {
        die(EXIT_USER, strf("%s: %s", path.c_str(), error.c_str()), "tokenize again");
    }
    const Json* complete = m.json.get("complete");
    if (!complete || !complete->number) {
        die(EXIT_USER, strf("%s: got an unfinished directory, wanted all its shards", dir.c_str()),
            "run the same train_sink tokenize command again: it starts over");
    }
    if (const Json* j = m.json.get("tokenizer"))      { m.tokenizer = j->string; }
    if (const Json* j = m.json.get("tokenizer_hash")) { m.hash = j->string; }
    if (const Json* j = m.json.get("bos"))            { m.bos = j->string; }
    if (const Json* j = m.json.get("vocab"))          { m.vocab = (int)j->number; }
    return m;
}

// "NAME" -> a file or directory that exists, under data/ if need be; *weight is -1 when none is
// given
static std::string source_find(const std::string& given, double* weight) {
    std::string name = given;
    *weight = file_exists(name) || file_exists("data/" + name) ? -1 : source_weight(&name);
    if (!file_exists(name) && file_exists("data/" + name)) { name = "data/" + name; }
    if (!file_exists(name)) {
        const bool shards = name.find_first_of("/.") == std::string::npos;   // as they are called
        die(EXIT_USER,
            "--data " + given + ": no such file or directory, and nothing of that name under data/",
            shards ? hint_for("make shards: ./train_sink tokenize YOUR.txt -o FILE", "data/" + name)
                   : list_beside(name, "*.txt *.jsonl*") +
                         "; or leave --data out: the built-in task");
    }
    const bool empty = is_regular(name) && file_size(name) == 0;         // text_cache says so
    if (!is_dir(name) && !empty) { text_check(name, "a directory of shards"); }
    return name;
}

// --tokenizer, or the one that made the shards, or bytes for text, or none
static Tokenizer data_tokenizer(const DataOptions& o, const std::vector<std::string>& names) {
    if (!o.tokenizer.empty()) { return tokenizer_of(o.tokenizer); }
    bool text = false;
    for (auto& name : names) {
        if (tokenizer_is_in(name)) { return tokenizer_load(name); }
        text = text || !is_dir(name) || manifest_read(name).tokenizer == "bytes";
    }
    return text ? tokenizer_bytes() : tokenizer_ids("ids", o.vocab);
}

// one source: its shards, its own largest vocabulary into *V
static Source source_open(const std::string& name, const Tokenizer& tok, const DataOptions& o,
                          int* V) {
    Source s;
    s.name = name;
    if (is_dir(name) && !o.sft.empty()) {
        die(EXIT_USER, "--sft " + o.sft + ": got a directory, wanted a .jsonl of conversations");
    }
    std::string dir = is_dir(name) ? name : text_cache(name, tok, o);
    Manifest m = manifest_read(dir);
    if (!m.hash.empty() && tok.hash && m.hash != strf("%016llx", (unsigned long long)tok.hash)) {
        die(EXIT_USER,
            strf("%s: got shards made with the tokenizer %s, wanted %s", dir.c_str(),
                 m.tokenizer.c_str(), tok.name.c_str()),
            "give that tokenizer, or tokenize again");
    }
    if (o.bos == "doc" && m.bos != "doc") {
        die(EXIT_USER,
            strf("%s: got shards without BOS before each document, wanted them for --bos doc",
                 dir.c_str()),
            "make them with: ./train_sink tokenize --bos doc");
    }
    source_open_dir(&s, dir, m.json);
    bool raw = s.format == RAW_FORMAT;
    int need = tok.kind != TOKENIZER_IDS ? tok.vocab_size : o.vocab;
    if (m.vocab) { need = m.vocab; }
    if (!need && raw) {
        die(EXIT_USER,
            strf("%s: got %s, wanted the vocabulary too, which such files do not tell", dir.c_str(),
                 RAW_FORMAT),
            "add --tokenizer tokenizer.json, or --vocab 50257 for GPT-2 ids");
    }
    for (const Tokens* t : { &s.train, &s.val }) {
        for (auto& shard : t->shards) { if (raw) { shard_raw_check(shard, need); } }
    }
    long top = !need || raw ? std::max(tokens_vocab(s.train), tokens_vocab(s.val)) : need;
    if (top > 1L << 30) {
        die(EXIT_USER,
            strf("%s: got the id %ld, wanted ids below 2^30: not token ids", dir.c_str(), top - 1),
            "make the shards again with: ./train_sink tokenize FILE... -o DIR");
    }
    if (raw && top > need) {
        die(EXIT_USER, strf("%s: got ids up to %ld, wanted ids below the vocabulary of %d: not "
                            "token shards, or "
                            "another tokenizer's",
                            dir.c_str(), top - 1, need));
    }
    *V = std::max(*V, need ? need : (int)top);
    return s;
}

static void data_open_bb(Data* d) {
    const DataOptions& o = d->opt;
    d->bb = true;
    d->bigram = bigram_make(o);
    d->V = o.bb_vocab + 1;
    d->train_tokens = o.train_tokens;
    d->val_tokens = (long)o.val_seqs * o.T;
    d->tokenizer = tokenizer_ids("bb", d->V);
    d->tokenizer.bos = o.bb_vocab;
    d->description = strf(
        "bb: Bigram-Backcopy, %d ids, %d trigger%s of probability %g, temperature %g, table %llu, "
        "%s",
        o.bb_vocab, o.bb_triggers, o.bb_triggers == 1 ? "" : "s", o.bb_trigger_prob, o.bb_temp,
        (unsigned long long)o.bb_table, o.bb_bos ? "<s> first" : "no <s>");
}

static void data_open_sources(Data* d) {
    const DataOptions& o = d->opt;
    std::vector<std::string> names;
    std::vector<double> weights;
    for (auto& given : o.data) {
        if (given == "bb") {
            die(EXIT_USER, "--data bb: the built-in task cannot be mixed with other data");
        }
        double weight;
        names.push_back(source_find(given, &weight));
        weights.push_back(weight);
        if ((weight < 0) != (weights[0] < 0)) {
            die(EXIT_USER, "--data: some sources have a weight and some have none",
                "write SOURCE:WEIGHT for all of them, or for none");
        }
    }
    d->tokenizer = data_tokenizer(o, names);
    double total = 0;
    for (size_t i = 0; i < names.size(); i++) {
        Source s = source_open(names[i], d->tokenizer, o, &d->V);
        source_split(&s, o, (o.probe_seqs + names.size() - 1) / names.size(),
                     i < o.held.size() ? o.held[i] : 0);
        s.weight = weights[i] > 0 ? (uint64_t)llround(weights[i] * 1e6) : s.windows;
        total += s.weight;
        d->sources.push_back(s);
    }
    for (auto& s : d->sources) {                         // --train-tokens is shared out by weight
        if (o.train_tokens) {
            s.windows = std::min(s.windows,
                                 std::max(1L, (long)(o.train_tokens / o.T * (s.weight / total))));
        }
        if (weights[0] < 0) { s.weight = s.windows; }
        d->train_tokens += s.windows * o.T; d->val_tokens += s.val_windows * o.T;
        d->description += strf("%s%s (%s, %ld tokens)", d->description.empty() ? "" : " + ",
                               s.name.c_str(), is_dir(s.name) ? s.format.c_str() : "text",
                               s.windows * o.T);
    }
    if (d->tokenizer.kind == TOKENIZER_IDS) { d->tokenizer.vocab_size = d->V; }
    d->V = std::max(d->V, d->tokenizer.vocab_size);
    d->description += strf(", tokenizer %s, %d ids", d->tokenizer.name.c_str(), d->V);
}

Data data_open(const DataOptions& opt) {
    Data d;
    d.opt = opt;
    DataOptions& o = d.opt;
    if (o.data.empty()) { o.data.push_back("bb"); }
    if (o.T < 1 || o.probe_len < 1) {
        die(EXIT_USER, strf("--seq %d, --probe-len %d: wanted at least 1", o.T, o.probe_len));
    }
    if (o.bos != "none" && o.bos != "seq" && o.bos != "doc") {
        die(EXIT_USER, strf("--bos %s: wanted none, seq or doc", o.bos.c_str()));
    }
    if (o.data.size() == 1 && o.data[0] == "bb") {
        data_open_bb(&d);
    } else {
        data_open_sources(&d);
    }
    if (o.vocab && o.vocab < d.V) {
        die(EXIT_USER, strf("--vocab: the data have %d ids, the model has %d", d.V, o.vocab),
            strf(
                "use data of the tokenizer that the model is for, or train with --vocab %d or more",
                d.V));
    }
    for (int p : o.random_token) {
        if (p < 1 || p > o.T + 1) {
            die(EXIT_USER,
                strf("--random-token %d: wanted a position from 1 to T+1 = %d", p, o.T + 1));
        }
    }
    for (auto& f : o.fix_token) {
        if (f.first < 1 || f.first > o.T + 1 || f.second < 0 || f.second >= d.V) {
            die(EXIT_USER,
                strf(
                    "--fix-token %d:%d: wanted POS:ID with a position from 1 to T+1 = %d and an id "
                    "below %d",
                    f.first, f.second, o.T + 1, d.V));
        }
    }
    if (o.bos != "none" && !d.bb && d.tokenizer.bos < 0) {
        die(EXIT_USER,
            strf("--bos %s: the tokenizer %s has no BOS", o.bos.c_str(), d.tokenizer.name.c_str()));
    }
    return d;
}

long data_val_count(Data* d) {
    long n = 0;
    for (auto& s : d->sources) { n += s.val_windows; }
    return d->bb ? d->opt.val_seqs : std::min(n, (long)d->opt.val_seqs);
}

void data_val(Data* d, int* out, int B, long first) {
    int T = d->opt.T;
    long count = data_val_count(d), all = 0;
    uint64_t key = mix64(d->opt.bb_table, STREAM_VAL);
    for (auto& s : d->sources) { all += s.val_windows; }
    for (int b = 0; b < B; b++, out += T + 1) {
        long i = first + b;
        if (i >= count) { die(EXIT_MACHINE, strf("data_val: sequence %ld of %ld", i, count)); }
        if (d->bb) { bigram_sequence(d->bigram, key, i, T + 1, out); }
        else {
            long w = (long)((__int128)i * all / count);
            size_t k = 0;
            while (w >= d->sources[k].val_windows) { w -= d->sources[k++].val_windows; }
            tokens_copy(d->sources[k].val, w * T, T + 1, d->V, out);
        }
        data_edit(*d, key, i, T + 1, out);
    }
}

int data_probe(Data* d, int* out) {
    int len = d->opt.probe_len, n = 0;
    uint64_t key = mix64(d->opt.bb_table, STREAM_PROBE);
    for (long round = 0, more = 1; more && n < d->opt.probe_seqs; round++) {
        more = 0;
        for (size_t k = 0; k < std::max<size_t>(1, d->sources.size()) && n < d->opt.probe_seqs;
             k++) {
            if (d->bb) { bigram_sequence(d->bigram, key, round, len + 1, out); }
            else if (round * len + len + 1 > d->sources[k].val.n) { continue; }
            else { tokens_copy(d->sources[k].val, round * len, len + 1, d->V, out); }
            data_edit(*d, key, mix64(round, k), len + 1, out);
            out += len + 1; n++; more = 1;
        }
    }
    return n;
}

int data_prompts(const std::string& path, const Tokenizer& tok, int n, int len, bool skip_bad,
                 int* out, TextCounts* counts, const DataOptions* how, bool windows) {
    TextFile file = text_open(path);
    TextBlock block;
    TokenizeOptions o;
    Data d;                                              // what data_edit looks at
    if (how) { d.opt = *how; d.tokenizer = tok; d.V = tok.vocab_size; }
    if (d.opt.bos != "none" && tok.bos < 0) {
        die(EXIT_USER, "--bos: the tokenizer " + tok.name + " has no BOS");
    }
    o.skip_bad = skip_bad;
    o.bos = d.opt.bos == "doc" ? "doc" : "none";
    o.first = windows ? 0 : len + 1;
    data_sft(d.opt, path, tok, &o);
    int found = 0;
    Ids line; // windows: what no sequence has begun with yet
    *counts = TextCounts();
    auto take = [&](const uint32_t* ids) {
        std::copy_n(ids, len + 1, out);
        data_edit(d, STREAM_PROBE, found++, len + 1, out);
        out += len + 1;
    };
    while (found < n && text_next(&file, tok, &block)) {
        text_encode(tok, o, &block);
        if (!block.error.empty()) {
            die(EXIT_USER, block.error, "mend the record, or add --skip-bad");
        }
        size_t from = 0;
        counts->begun += block.counts.begun;
        if (windows) {
            size_t at = 0;
            line.insert(line.end(), block.ids.begin(), block.ids.end());
            for (; found < n && at + len + 1 <= line.size(); at += len) { take(&line[at]); }
            line.erase(line.begin(), line.begin() + at);
            continue;
        }
        for (auto& doc : block.docs) {
            const bool fits = doc.end - 1 - from >= (size_t)len + 1;         // the last id is EOS
            counts->skipped += found < n && !fits;
            if (found < n && fits) { take(&block.ids[from]); }
            from = doc.end;
        }
    }
    if (file.fd > 0) { text_close(&file); }
    if (!found) {
        die(EXIT_USER,
            strf("%s: got no %s of %d tokens or more", path.c_str(), windows ? "text" : "record",
                 len + 1),
            windows ? "a smaller --probe-len" : "a smaller --probe-len, or --probe-from windows");
    }
    return found;
}

// Tells whether the tokens of a source are the same as before: a hash of all of them, of 256
// stretches where there are more than 2^24.
static std::string source_fingerprint(const Source& s) {
    uint64_t hash = 0xCBF29CE484222325ull;
    std::vector<int> ids;
    for (const Tokens* t : { &s.train, &s.val }) {
        const long whole = 1 << 24, part = 1 << 16,
                   parts = t->n <= whole ? (t->n + part - 1) / part : whole / part;
        hash = mix64(hash, t->n);
        for (long i = 0; i < parts; i++) {
            const long at = t->n <= whole ? i * part
                                          : (long)((__int128)i * (t->n - part) / (parts - 1));
            ids.resize(std::min(part, t->n - at));
            tokens_copy(*t, at, ids.size(), INT_MAX, ids.data());
            hash = hash_bytes(ids.data(), ids.size() * sizeof(int), hash);
        }
    }
    return strf("%016llx", (unsigned long long)hash);
}

void data_mark(Data* d) {
    for (auto& s : d->sources) {
        if (s.fingerprint.empty()) { s.fingerprint = source_fingerprint(s); }
    }
}

void data_unchanged(Data* d) {
    const std::string path = maps_changed();
    if (path.empty()) { return; }
    bool same = true;                            // and known to be: not from a part of the tokens
    for (auto& s : d->sources) {
        const bool all = std::max(s.train.n, s.val.n) <= 1 << 24;
        same = same && all && source_fingerprint(s) == s.fingerprint;
    }
    if (same) { maps_accept(); return; }
    die(EXIT_USER, path + ": was written to while it was trained on, so this is not saved",
        "put the data back as they were and go on with --resume, or begin again; write new data "
        "under another name");
}

std::string data_state(Data* d) {
    std::string windows, drawn, held, weights, hashes;
    for (auto& s : d->sources) {
        const char* comma = windows.empty() ? "" : ",";
        if (s.fingerprint.empty()) { s.fingerprint = source_fingerprint(s); }
        windows += strf("%s%ld", comma, s.windows);
        drawn += strf("%s%llu", comma, (unsigned long long)s.drawn);
        held += strf("%s%ld", comma, s.val.n);
        weights += strf("%s%llu", comma, (unsigned long long)s.weight);
        hashes += strf("%s\"%s\"", comma, s.fingerprint.c_str());
    }
    const std::string position =
        strf("{\"drawn\":%llu,\"T\":%d,\"seed\":\"%llu\",\"windows\":[%s],\"source_drawn\":[%s]",
             (unsigned long long)d->drawn, d->opt.T, (unsigned long long)d->opt.seed,
             windows.c_str(), drawn.c_str());
    return position + strf(",\"held\":[%s],\"weights\":[%s],\"hash\":[%s]}", held.c_str(),
                           weights.c_str(), hashes.c_str());
}

void data_restore(Data* d, const Json& state) {
    const Json* drawn = state.get("drawn");
    const Json* per = state.get("source_drawn");
    const Json* windows = state.get("windows");
    const Json* T = state.get("T"); const Json* seed = state.get("seed");
    if (!drawn || !per || !windows || !T || !seed || per->items.size() != d->sources.size()
        || windows->items.size() != d->sources.size()) {
        die(EXIT_USER,
            strf("--resume: the checkpoint was made with other data (%zu sources), not with these "
                 "%zu",
                 per ? per->items.size() : 0, d->sources.size()),
            "name the data as they were: -d PATH");
    }
    if (T->number != d->opt.T || seed->string != strf("%llu", (unsigned long long)d->opt.seed)) {
        die(EXIT_USER,
            strf("--resume: the checkpoint was made with --seq %g --seed %s, not --seq %d --seed "
                 "%llu",
                 T->number, seed->string.c_str(), d->opt.T, (unsigned long long)d->opt.seed),
            "give the same flags as before");
    }
    d->drawn = (uint64_t)drawn->number;
    const Json *hash = state.get("hash"), *weights = state.get("weights");
    for (size_t i = 0; i < d->sources.size(); i++) {
        Source& s = d->sources[i];
        if (hash && i < hash->items.size()) {            // older checkpoints have none
            s.fingerprint = source_fingerprint(s);
            if (s.fingerprint != hash->items[i].string) {
                die(EXIT_USER,
                    "--resume: " + s.name +
                        ": got other tokens than the checkpoint was made with: the data "
                        "changed",
                    "name the data as they were: -d PATH; or begin a run in another --out");
            }
        }
        if (weights && i < weights->items.size() && weights->items[i].number != (double)s.weight) {
            die(EXIT_USER,
                strf("--resume: %s has another weight in the mixture than before", s.name.c_str()),
                "name the data as they were: -d PATH");
        }
        if (windows->items[i].number != s.windows) {
            die(EXIT_USER,
                strf("--resume: %s has %ld training sequences, the checkpoint was made with %s: "
                     "the data changed",
                     s.name.c_str(), s.windows, number_text(windows->items[i].number).c_str()),
                "name the data as they were: -d PATH");
        }
        s.drawn = (uint64_t)per->items[i].number;
    }
}
