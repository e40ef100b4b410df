/*
core/data_sources.cpp -- finds each source, opens its shards and splits off what is held out.
In reading order: the manifest of a directory; its shards; what is held out; finding and opening a
source; all of them.
*/
#include "data_sources.h"
#include "../base/look.h"
#include "../optional.h"

static const char* const GET_AGAIN =
    "get the file again, or run tokenize again into another directory";

// ----------------------------------------------------------------------------
// the manifest

// Returns what a directory of shards says about itself, if train_sink made it.
static Json manifest_read(const std::string& dir) {
    const std::string path = dir + "/manifest.json";
    if (!file_exists(path)) { return Json(); }
    const Json m = json_of(file_read(path), path);
    if (!m["complete"].number) {
        die(dir + ": got an unfinished directory, wanted all its shards",
            "run the same train_sink tokenize command again: it starts over");
    }
    return m;
}

std::vector<ShardSums> manifest_sums(const Json& manifest) {
    std::vector<ShardSums> all;
    for (auto& series : manifest["series"].items) {
        for (auto& file : series["files"].items) {
            if (file.items.size() != 3) { continue; }
            ShardSums sums = { file.items[0].string, (long)file.items[1].number, {}, {} };
            const std::string& digits = file.items[2].string;
            for (size_t i = 0; i + 16 <= digits.size(); i += 16) {
                sums.hashes.push_back(strtoull(digits.substr(i, 16).c_str(), NULL, 16));
            }
            sums.compared.assign(sums.hashes.size(), 0);
            all.push_back(sums);
        }
    }
    return all;
}

// ----------------------------------------------------------------------------
// the shards of a directory

// Tells whether one of these words stands in a file's name between _ - and .: train_web_000.bin,
// web-val.bin.
static bool name_has(const std::string& name, const std::vector<std::string>& words) {
    std::string parts = name;
    for (char& c : parts) { if (strchr("-.", c)) { c = '_'; } }
    const std::vector<std::string> all = split(parts, '_');
    return std::any_of(all.begin(), all.end(), [&](auto& part) { return has(words, part); });
}

// Dies if a shard that the manifest lists is missing or is not as it was written. Of a large
// directory only the sizes are looked at here: returns the shards, to be compared as they are read.
static std::vector<ShardSums> shards_listed(const std::string& dir, const Json& manifest) {
    const long most = 1L << 29;
    std::vector<ShardSums> all = manifest_sums(manifest);
    long tokens = 0;
    for (auto& sums : all) { tokens += sums.tokens; }
    const bool whole = tokens <= most;
    for (auto& sums : all) {
        const std::string fault = shard_fault(dir, sums, whole);
        if (!fault.empty()) { die(dir + "/" + sums.name + ": " + fault, GET_AGAIN); }
    }
    if (whole) { all.clear(); }
    return all;
}

// Dies if a directory has no tokens, and says what is there instead.
static void check_any_tokens(const Source& s, const std::string& dir) {
    if (s.train.n + s.val.n > 0) { return; }
    const FileKind other = kind_in_dir(dir, READS_TOKENS);
    const std::string make = with_text("make some with: ./train_sink tokenize FILE... -o DIR");
    die(dir + ": got no tokens, wanted .bin shards in it" + other.what,
        other.hint.empty() ? make : other.hint);
}

// Opens the shards of a directory: *.bin with val, valid or validation in the name are held out,
// test is left alone.
static void source_open_dir(Source* s, const std::string& dir, const Json& manifest, int bare) {
    const std::vector<ShardSums> all = shards_listed(dir, manifest);
    for (auto& name : dir_list(dir)) {
        if (!ends_with(name, ".bin") || name_has(name, { "test" })) { continue; }
        Shard shard = shard_open(dir + "/" + name, bare);
        for (auto& sums : all) {
            if (sums.name == name) { shard.sums = std::make_shared<ShardSums>(sums); }
        }
        if (s->format.empty()) { s->format = shard.format; }
        if (s->format != shard.format) {
            die(shard.path + ": got " + shard.format + ", wanted " + s->format +
                    " like its neighbors", "one format per directory");
        }
        const bool held_out = name_has(name, { "val", "valid", "validation" });
        tokens_add(held_out ? &s->val : &s->train, shard);
    }
    check_any_tokens(*s, dir);
}

// Returns the largest id + 1, by reading everything once.
static long tokens_vocab(const Tokens& t) {
    long top = -1;
    for (auto& s : t.shards) {
        #pragma omp parallel for reduction(max : top)
        for (long i = 0; i < s.n; i++) { top = std::max(top, shard_token(s, i)); }
    }
    return top + 1;
}

// Returns how many ids the shards of a directory have. given: as the tokenizer, the manifest or the
// options say, 0 if none does.
static int shards_vocab(const Source& s, const std::string& dir, int given) {
    const bool raw = starts_with(s.format, RAW_FORMAT);
    if (raw && !given) {
        die(dir + ": got " + s.format + ", wanted the vocabulary too, which no such file has",
            "add --tokenizer tokenizer.json, or --vocab 50257 for GPT-2 ids");
    }
    long top = given;
    if (!given || raw) { top = std::max(tokens_vocab(s.train), tokens_vocab(s.val)); }
    if (top > 1L << 30) {
        die(dir + strf(": got the id %ld, wanted ids below 2^30: not token ids",
                       top - 1),
            with_text("make the shards again with: ./train_sink tokenize FILE... -o DIR"));
    }
    if (raw && top > given) {
        die(dir + strf(": got ids up to %ld, wanted ids below the vocabulary of %d: not token "
                       "shards, of another --bin, or another tokenizer's", top - 1, given));
    }
    return given ? given : (int)top;
}

// ----------------------------------------------------------------------------
// what is held out

// Splits a source into windows to train on and what is held out: the last 1% if no val shard
// exists, or more if the probe needs it. held: as another run did, 0: by this rule.
static void source_split(Source* s, const DataOptions& o, long probe_seqs, long held) {
    const long n = s->train.n;
    const int train = o.T + 1;
    const long probe = probe_seqs * o.probe_len + 1;
    if (!held) { held = std::max({ n / 100, probe, (long)train }); }
    if (n < train) {
        die(s->name + strf(": got %ld tokens, wanted at least T+1 = %d for one sequence",
                           n, train),
            "use more data, or a shorter --seq");
    }
    const int least = std::max(o.T, o.probe_len) + 1;
    if (s->val.n == 0) {
        if (n - held < train) {
            die(s->name + strf(": got %ld tokens, wanted %ld: %d to train on and %ld held "
                               "out (the last 1%%, and at least %ld probe sequences of %d)",
                               n, train + held, train, held, probe_seqs, o.probe_len),
                "use more data, or smaller --seq, --probe-seqs, --probe-len");
        }
        s->val = s->train;
        s->val.from = n - held;
        s->val.n = held;
        s->train.n = n - held;
    } else if (s->val.n < least) {
        die(s->name + strf(": got %ld tokens in the val shards, wanted at least %d",
                           s->val.n, least),
            "use more data, or a shorter --seq");
    }
    s->windows = (s->train.n - 1) / o.T;
    s->val_windows = (s->val.n - 1) / o.T;
}

// ----------------------------------------------------------------------------
// one source

double source_weight(std::string* name) {
    const size_t colon = name->rfind(':');
    if (colon == name->npos) { return -1; }
    double weight;
    if (!parse_double(name->substr(colon + 1), &weight)) { return -1; }
    // shares are counted in millionths, as whole numbers of 64 bits
    if (weight < 1e-4 || weight > 1e11) {
        die("--data " + *name + strf(": got weight %g, wanted a number from 0.0001 to "
                                     "1e11", weight),
            "only the ratio of the weights counts: multiply all of them by one number");
    }
    name->resize(colon);
    return weight;
}

// Tells whether something of this name is in a directory or in its data/.
static bool is_named(const std::string& name, const std::string& directory = ".") {
    if (name.empty()) { return false; }
    if (name[0] == '/') { return file_exists(name); }
    return file_exists(directory + "/" + name) || file_exists(directory + "/data/" + name);
}

std::vector<std::string> names_listed(const std::string& list, const std::string& directory) {
    const std::vector<std::string> parts = split(list, ',');
    std::vector<std::string> names;
    for (size_t i = 0; i < parts.size();) {
        std::string longest = parts[i];
        std::string joined = parts[i];
        size_t next = i + 1;
        for (size_t k = i + 1; k < parts.size(); k++) {
            joined += "," + parts[k];
            std::string bare = joined;
            source_weight(&bare);
            bool found = false;
            for (auto& name : { joined, bare }) {
                found = found || is_named(name) || is_named(name, directory);
            }
            if (!found) { continue; }
            longest = joined;
            next = k + 1;
        }
        if (longest.empty()) {
            die("'" + list + "': got an empty name, wanted names between single commas",
                "leave a comma out (version 2.0 read data/ there: --resume with -d NAME,data/)");
        }
        names.push_back(longest);
        i = next;
    }
    return names;
}

// Returns what to type where nothing of this name is there.
static std::string hint_missing(const std::string& name) {
    const bool shards = name.find_first_of("/.") == name.npos;   // as they are called
    if (shards) {
        const std::string make = with_text("make shards: ./train_sink tokenize YOUR.txt -o FILE");
        return hint_for(make, "data/" + name);
    }
    return list_beside(name, text_folder ? "*.txt *.jsonl*" : "*/") +
           "; or leave --data out: the built-in task";
}

// Finds the file or directory that is named, under data/ if need be. *weight is -1 if none is
// given.
static std::string source_find(const std::string& given, double* weight) {
    std::string name = given;
    *weight = is_named(name) ? -1 : source_weight(&name);
    const bool there = is_named(name);
    if (!there && name == "bb") {
        die("--data " + given + ": got a weight, and bb is not mixed", "-d bb alone");
    }
    if (!there) {
        die("--data " + given + ": no such file or directory, wanted " + name + " or data/" +
                name + " (a comma ends a name, if nothing has it in its own)",
            hint_missing(name));
    }
    if (!file_exists(name)) { name = "data/" + name; }
    const bool empty = is_regular(name) && file_size(name) == 0;         // text_cache says so
    if (!is_dir(name) && !empty) { text_needed(name).check(name, "a directory of shards"); }
    return name;
}

// Returns --tokenizer, or the one that made the shards, or bytes for text, or none.
static Tokenizer data_tokenizer(const DataOptions& o, const std::vector<std::string>& names) {
    if (!o.tokenizer.empty()) { return tokenizer_of(o.tokenizer); }
    bool bytes = false;
    for (auto& name : names) {
        const bool has_one = tokenizer_is_in(name);
        if (has_one && text_folder) { return text_folder->tokenizer(name); }
        if (has_one) { note(name + ": ids alone: its tokenizer needs the folder text/"); }
        bytes = bytes || !is_dir(name) || manifest_read(name)["tokenizer"].string == "bytes";
    }
    return bytes ? Tokenizer() : tokenizer_ids("ids", o.vocab);
}

// Opens a source. *V grows to its vocabulary.
static Source source_open(const std::string& name, const Tokenizer& tok, const DataOptions& o,
                          int* V) {
    Source s;
    s.name = name;
    const std::string dir = is_dir(name) ? name : text_needed(name).cache(name, tok, o);
    const Json m = manifest_read(dir);
    const std::string& hash = m["tokenizer_hash"].string;
    if (!hash.empty() && tok.hash && hash != hash_text(tok.hash)) {
        die(dir + ": got shards made with the tokenizer " + m["tokenizer"].string +
                ", wanted " + tok.name,
            "give that tokenizer, or tokenize again");
    }
    if (o.bos == "doc" && m["bos"].string != "doc") {
        die(dir + ": got shards without BOS before each document, wanted them for --bos doc",
            with_text("make them with: ./train_sink tokenize --bos doc"));
    }
    source_open_dir(&s, dir, m, o.bin);
    int vocab = tok.kind == TOKENIZER_IDS ? o.vocab : tok.vocab_size;
    if (m["vocab"].number) { vocab = (int)m["vocab"].number; }
    *V = std::max(*V, shards_vocab(s, dir, vocab));
    return s;
}

// ----------------------------------------------------------------------------
// all of them

// Finds all that are named, and their weights, -1 where none is given.
static std::vector<std::string> find_sources(const DataOptions& o, std::vector<double>* weights) {
    std::vector<std::string> names;
    for (auto& given : o.data) {
        if (given == "bb") {
            die("--data bb: the built-in task cannot be mixed with other data");
        }
        double weight;
        names.push_back(source_find(given, &weight));
        weights->push_back(weight);
        if ((weight < 0) != (weights->front() < 0)) {
            die("--data: some sources have a weight and some have none",
                "write SOURCE:WEIGHT for all of them, or for none");
        }
    }
    return names;
}

// Shares --train-tokens out by weight and sums up what there is.
static void count_tokens(Data* d, bool weighted) {
    const DataOptions& o = d->opt;
    double total = 0;
    for (auto& s : d->sources) { total += s.weight; }
    for (auto& s : d->sources) {
        if (o.train_tokens) {
            const long wanted = (long)(o.train_tokens / o.T * (s.weight / total));
            s.windows = std::min(s.windows, std::max(1L, wanted));
        }
        if (!weighted) { s.weight = s.windows; }
        const long tokens = s.windows * o.T;
        d->train_tokens += tokens;
        const std::string format = is_dir(s.name) ? s.format : "text";
        list_add(&d->description, s.name + " (" + format + strf(", %ld tokens)", tokens), " + ");
    }
}

void data_bin_check(const Data& d) {
    const auto is_raw = [](const Source& s) { return starts_with(s.format, RAW_FORMAT); };
    if (!d.opt.bin || std::any_of(d.sources.begin(), d.sources.end(), is_raw)) { return; }
    die("--bin: got no .bin without a header in --data: all say themselves what they hold",
        "leave it out, or --bin none in place of what the run had");
}

void data_open_sources(Data* d) {
    const DataOptions& o = d->opt;
    std::vector<double> weights;
    const std::vector<std::string> names = find_sources(o, &weights);
    if (text_folder) { text_folder->sources_check(o, names); }
    d->tokenizer = data_tokenizer(o, names);
    const long probe_seqs = div_up(o.probe_seqs, names.size());
    for (size_t i = 0; i < names.size(); i++) {
        if (o.unread && !is_dir(names[i])) {
            list_add(&d->description, names[i] + " (text, not read)", " + ");
            continue;
        }
        Source s = source_open(names[i], d->tokenizer, o, &d->V);
        const long held = i < o.held.size() ? o.held[i] : 0;
        source_split(&s, o, probe_seqs, held);
        s.weight = s.windows;
        if (weights[i] > 0) { s.weight = (uint64_t)llround(weights[i] * 1e6); }
        d->sources.push_back(s);
    }
    count_tokens(d, weights[0] >= 0);
    if (d->tokenizer.kind == TOKENIZER_IDS) { d->tokenizer.vocab_size = d->V; }
    d->V = std::max(d->V, d->tokenizer.vocab_size);
    d->description += ", tokenizer " + d->tokenizer.name + strf(", %d ids", d->V);
}
