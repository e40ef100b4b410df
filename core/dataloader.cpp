/*
core/dataloader.cpp -- draws windows of the sources in an order that a checkpoint can keep. In
reading order: the table of bb; opening; validation and probe; the position.
*/
#include "../dataloader.h"
#include <limits.h>
#include "../optional.h"
#include "data_sources.h"
#include "../base/maps.h"
#include "../base/plural.h"

// ----------------------------------------------------------------------------
// bb: the task as dataloader.h has it

// Makes the alias tables of a row by Walker's method: column j is kept with probability keep[j],
// else it gives other[j]. p: the probabilities of the n columns, overwritten. keep begins as 1, and
// so it stays for the last columns, which rounding may leave just below.
static void alias_row(std::vector<double>* p, float* keep, int* other) {
    const int n = (int)p->size();
    std::vector<int> small, large;
    for (int j = 0; j < n; j++) {
        (*p)[j] *= n;
        ((*p)[j] < 1 ? small : large).push_back(j);
    }
    while (!small.empty() && !large.empty()) {
        const int poor = small.back(), rich = large.back();
        small.pop_back();
        keep[poor] = (float)(*p)[poor];
        other[poor] = rich;
        (*p)[rich] -= 1 - (*p)[poor];
        if ((*p)[rich] < 1) {
            large.pop_back();
            small.push_back(rich);
        }
    }
}

static Bigram bigram_make(const DataOptions& o) {
    const int n = o.bb_vocab;
    const int k = o.bb_triggers;
    const double trigger = o.bb_trigger_prob;
    if (!(k >= 0 && k <= n - 2 && trigger >= 0 && k * trigger < 1)) {
        die(strf("bb: got %d ids, %d triggers of probability %g, wanted two ids more than "
                 "triggers and probabilities that sum to less than 1", n, k, trigger),
            "try --bb-vocab 256 --bb-triggers 1 --bb-trigger-prob 0.15");
    }
    const size_t cells = (size_t)n * n;
    Bigram g = { n, k, o.bb_bos, o.bb_mean, std::vector<float>(cells, 1), std::vector<int>(cells) };
    Rng rng = rng_stream(o.bb_table, STREAM_TABLE);
    std::vector<double> p(n);
    for (int i = 0; i < n; i++) {
        double sum = 0;
        for (int j = 0; j < n; j++) {
            p[j] = exp(o.bb_temp * rng_normal(&rng));
            if (j >= k) { sum += p[j]; }
        }
        for (int j = 0; j < n; j++) {
            p[j] = j < k ? trigger : p[j] / sum * (1 - k * trigger);
        }
        const size_t row = (size_t)i * n;
        alias_row(&p, &g.keep[row], &g.other[row]);
    }
    return g;
}

static void data_open_bb(Data* d) {
    const DataOptions& o = d->opt;
    d->bb = true;
    d->bigram = bigram_make(o);
    d->V = o.bb_vocab + 1;
    d->train_tokens = o.train_tokens;
    d->tokenizer = tokenizer_ids("bb", d->V);
    d->tokenizer.bos = o.bb_vocab;
    d->description = strf("bb: Bigram-Backcopy, %ld ids, %s of probability %g, temperature %g, "
                          "table %ld, %s%s", o.bb_vocab, plural(o.bb_triggers, "trigger").c_str(),
                          o.bb_trigger_prob, o.bb_temp, o.bb_table,
                          o.bb_bos ? "<s> first" : "no <s>",
                          o.bb_mean ? ", triggers copy any token" : "");
}

// ----------------------------------------------------------------------------
// opening

void data_edits_check(const DataOptions& o, int V) {
    const int last = o.T + 1;
    for (int position : o.random_token) {
        if (position >= 1 && position <= last) { continue; }
        die(strf("--random-token %d: wanted a position from 1 to T+1 = %d", position,
                 last));
    }
    for (auto& [position, id] : o.fix_token) {
        const bool inside = position >= 1 && position <= last;
        const bool known = id >= 0 && id < V;
        if (inside && known) { continue; }
        die(strf("--fix-token %d:%d: wanted POS:ID with a position from 1 to T+1 = %d "
                 "and an id below %d", position, id, last, V));
    }
}

Data data_open(const DataOptions& opt) {
    Data d;
    d.opt = opt;
    DataOptions& o = d.opt;
    if (o.data.empty()) { o.data.push_back("bb"); }
    require(o.T >= 1 && o.probe_len >= 1, strf("--seq %d, --probe-len %d", o.T, o.probe_len),
            "at least 1");
    require(is_one_of(" none seq doc ", o.bos), "--bos " + o.bos, "none, seq or doc");
    const bool bb = o.data.size() == 1 && o.data[0] == "bb";
    if (bb) { data_open_bb(&d); } else { data_open_sources(&d); }
    if (o.vocab && o.vocab < d.V) {
        if (!text_folder || !text_folder->spares_ids(d, o.vocab)) {
            die(strf("--vocab: the data have %d ids, the model has %d", d.V, o.vocab),
                strf("use data of the tokenizer that the model is for, or train with --vocab %d or "
                     "more", d.V));
        }
        d.V = o.vocab;
    }
    data_edits_check(d.opt, d.V);
    if (o.bos != "none" && !d.bb && d.tokenizer.bos < 0) {
        die("--bos " + o.bos + ": the tokenizer " + d.tokenizer.name + " has no BOS");
    }
    return d;
}

// ----------------------------------------------------------------------------
// validation and probe

static long all_val_windows(const Data& d) {
    long n = 0;
    for (auto& s : d.sources) { n += s.val_windows; }
    return n;
}

long data_val_count(Data* d) {
    const long wanted = d->opt.val_seqs;
    return d->bb ? wanted : std::min(all_val_windows(*d), wanted);
}

void data_val(Data* d, int* out, int B, long first) {
    const int T = d->opt.T;
    const long count = data_val_count(d);
    const long windows = all_val_windows(*d);
    const uint64_t key = mix64(d->opt.bb_table, STREAM_VAL);
    for (long i = first; i < first + B; i++) {
        if (d->bb) {
            bigram_sequence(d->bigram, key, i, T + 1, out);
        } else {
            long w = (long)((__int128)i * windows / count);      // over all sources
            const Source* s = d->sources.data();
            for (; w >= s->val_windows; s++) { w -= s->val_windows; }
            tokens_copy(s->val, w * T, T + 1, d->V, out);
        }
        data_edit(*d, key, i, T + 1, out);
        out += T + 1;
    }
}

// Writes probe sequence i of source k to out (probe_len + 1). Returns false if it has none.
static bool copy_probe(const Data& d, size_t k, long i, int* out) {
    const int len = d.opt.probe_len;
    const uint64_t key = mix64(d.opt.bb_table, STREAM_PROBE);
    if (d.bb) {
        bigram_sequence(d.bigram, key, i, len + 1, out);
    } else {
        const Tokens& val = d.sources[k].val;
        if (i * len + len + 1 > val.n) { return false; }
        tokens_copy(val, i * len, len + 1, d.V, out);
    }
    data_edit(d, key, mix64(i, k), len + 1, out);
    return true;
}

int data_probe(Data* d, int* out) {
    const int wanted = d->opt.probe_seqs;
    const size_t sources = std::max<size_t>(1, d->sources.size());
    int n = 0;
    bool more = true;
    for (long i = 0; more && n < wanted; i++) {
        more = false;
        for (size_t k = 0; k < sources && n < wanted; k++) {
            if (!copy_probe(*d, k, i, out)) { continue; }
            out += d->opt.probe_len + 1;
            n++;
            more = true;
        }
    }
    return n;
}

// ----------------------------------------------------------------------------
// the position in the data

enum { FINGERPRINT_WHOLE = 1 << 24, FINGERPRINT_STRETCH = 1 << 16 };

// Adds the tokens of a source to a hash: all of them, or 256 stretches where there are more than
// 2^24.
static uint64_t hash_tokens(const Tokens& t, uint64_t hash) {
    const long stretch = FINGERPRINT_STRETCH;
    const bool whole = t.n <= FINGERPRINT_WHOLE;
    const long count = div_up(std::min<long>(t.n, FINGERPRINT_WHOLE), stretch);
    std::vector<int> ids;
    hash = mix64(hash, t.n);
    for (long i = 0; i < count; i++) {
        long begin = i * stretch;
        if (!whole) { begin = (long)((__int128)i * (t.n - stretch) / (count - 1)); }
        ids.resize(std::min(stretch, t.n - begin));
        tokens_copy(t, begin, ids.size(), INT_MAX, ids.data());
        hash = hash_bytes(ids.data(), ids.size() * sizeof(int), hash);
    }
    return hash;
}

// Tells whether the tokens of a source are the same as before.
static std::string source_fingerprint(const Source& s) {
    const uint64_t train = hash_tokens(s.train, HASH_START);
    return hash_text(hash_tokens(s.val, train));
}

void data_mark(Data* d) {
    for (auto& s : d->sources) {
        if (s.fingerprint.empty()) { s.fingerprint = source_fingerprint(s); }
    }
}

std::string data_unchanged(Data* d) {
    const std::string path = maps_changed();
    if (path.empty()) { return ""; }
    bool whole = true;
    bool same = true;
    for (auto& s : d->sources) {
        whole = whole && std::max(s.train.n, s.val.n) <= FINGERPRINT_WHOLE;
        same = same && source_fingerprint(s) == s.fingerprint;
    }
    if (same) {
        maps_accept();
        return whole ? "" : path;
    }
    die(path + ": was written to while it was trained on, so this is not saved",
        "put the data back as they were and continue with --resume, or begin again; write new "
        "data under another name");
}

std::string data_state(Data* d) {
    JsonObject o;
    auto of_each = [&](const char* key, auto get) {
        std::vector<std::string> values;
        for (auto& s : d->sources) { values.push_back(get(s)); }
        o.json(key, json_list(values));
    };
    data_mark(d);
    o.json("drawn", std::to_string(d->drawn));
    o.count("T", d->opt.T);
    o.text("seed", std::to_string(d->opt.seed));
    of_each("windows", [](auto& s) { return std::to_string(s.windows); });
    of_each("source_drawn", [](auto& s) { return std::to_string(s.drawn); });
    of_each("held", [](auto& s) { return std::to_string(s.val.n); });
    of_each("weights", [](auto& s) { return std::to_string(s.weight); });
    of_each("hash", [](auto& s) { return json_str(s.fingerprint); });
    return o.all();
}

// Dies if the checkpoint was made with other sources, or with sequences of another length or order.
static void check_state(const Data& d, const Json& state) {
    const size_t sources = state["source_drawn"].items.size();
    const Json* T = state.get("T");
    const Json* seed = state.get("seed");
    const bool complete = state.get("drawn") && T && seed;
    const bool same = sources == d.sources.size() && state["windows"].items.size() == sources;
    if (!complete || !same) {
        die(strf("--resume: the checkpoint was made with other data (%zu sources), not "
                 "with these %zu", sources, d.sources.size()),
            "name the data as they were: -d PATH");
    }
    const std::string seed_now = std::to_string(d.opt.seed);
    if (T->number != d.opt.T || seed->string != seed_now) {
        die(strf("--resume: the checkpoint was made with --seq %g --seed %s, not --seq "
                 "%d --seed %s", T->number, seed->string.c_str(), d.opt.T,
                 seed_now.c_str()),
            "leave out --seq and --seed; the run keeps its own");
    }
}

// Continues one source, whose place in the lists of the state is i.
static void restore_source(Source* s, const Json& state, size_t i) {
    const std::string same = "name the data as they were: -d PATH, and leave --tokenizer out";
    const std::vector<Json>& hashes = state["hash"].items;
    const std::vector<Json>& weights = state["weights"].items;
    const double windows = state["windows"].items[i].number;
    if (i < hashes.size()) {                             // older checkpoints have none
        s->fingerprint = source_fingerprint(*s);
        if (s->fingerprint != hashes[i].string) {
            die("--resume: " + s->name + ": got other tokens than the checkpoint was "
                "made with: the data or the tokenizer changed",
                same + "; or begin a run in another --out");
        }
    }
    if (i < weights.size() && weights[i].number != (double)s->weight) {
        die("--resume: " + s->name + " has another weight in the mixture than before",
            same);
    }
    if (windows != s->windows) {
        die("--resume: " + s->name + strf(" has %ld training sequences, the checkpoint "
            "was made with %s: the data changed", s->windows,
            number_text(windows).c_str()), same);
    }
    s->drawn = (uint64_t)state["source_drawn"].items[i].number;
}

void data_restore(Data* d, const Json& state) {
    check_state(*d, state);
    d->drawn = (uint64_t)state["drawn"].number;
    for (size_t i = 0; i < d->sources.size(); i++) { restore_source(&d->sources[i], state, i); }
}
