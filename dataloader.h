/*
dataloader.h -- from whatever the user has to batches of token ids. In reading order:

    bb          the built-in Bigram-Backcopy task, generated on the fly
    data        sources, windows of them in shuffled order, edits; what is held out, the position
                for checkpoints

How a source is found, tokenized and opened: text/dataloader.cpp.

A training sequence is a window of T+1 tokens at stride T over a source's documents, each followed
by EOS: every token is a target exactly once per epoch. An epoch visits all windows in the order of
a permutation keyed by seed and epoch and computed in O(1) memory, so a position in the data is one
number per source.
*/
#ifndef DATALOADER_H
#define DATALOADER_H
#include "text/sft.h"
#include "text/shards.h"

struct DataOptions {
    // "bb" | FILE.txt | FILE.jsonl[.zst|.gz] | DIR of shards | NAME under data/; SOURCE:WEIGHT in
    // mixtures
    std::vector<std::string> data;
    std::string tokenizer;                 // path of tokenizer.json; "" = bytes
    // none | seq: first token of every sequence | doc: before every document
    std::string bos = "none";
    std::string cache; // where text is kept as shards once tokenized; "" = data/cache
    int T = 64;
    uint64_t seed = 1;
    int val_seqs = 100, probe_seqs = 100, probe_len = 64;
    long train_tokens = 0;                 // only the first N training tokens; 0 = all
    // tokens held out of each source, as another run did; empty = by the rule
    std::vector<long> held;
    int vocab = 0;                         // ids the model has; 0 = as many as the data need
    std::vector<int> random_token;         // 1-based positions replaced by Uniform(V)
    std::vector<std::pair<int, int>> fix_token;  // 1-based position, id
    int bb_vocab = 256, bb_triggers = 1, bb_bos = 1;
    double bb_trigger_prob = 0.15, bb_temp = 2.0;
    uint64_t bb_table = 1;
    std::string sft, sft_loss;             // conversations: zephyr or chatml; assistant or all
    bool skip_bad = false; // broken records are counted and left out instead of ending the program
};

// ----------------------------------------------------------------------------
// bb: Bigram-Backcopy (Guo et al. 2024, arXiv:2410.13835). k triggers (ids 0..k-1) follow anything
// with probability p each; after a trigger comes a copy of the token before it; any other next
// token is drawn from a fixed bigram table,
//     P[i,j] = (1 - k p) softmax_j(temp * N(0,1)),  j >= k.
// x_0 = <s> (id bb_vocab) unless bb_bos is 0, and the first ordinary token is uniform over the
// non-triggers.

struct Bigram {
    int n = 0, triggers = 0, bos = 0;
    std::vector<float> keep; std::vector<int> other;     // alias tables (n, n)
};

// out (T1): sequence number `index` of the stream `key`
inline void bigram_sequence(const Bigram& g, uint64_t key, uint64_t index, int T1, int* out) {
    Rng rng{mix64(key, index)};
    int t = 0;
    if (g.bos) { out[t++] = g.n; }
    int before = -1;                                     // the ordinary token before out[t-1]
    for (int start = t; t < T1; t++) {
        int last = t > 0 ? out[t-1] : -1;
        if (t == start) {
            out[t] = g.triggers + (int)rng_below(&rng, g.n - g.triggers);
        } else if (last < g.triggers) {
            out[t] = before;
        } else {
            uint64_t r = rng_next(&rng); // high half: the column; low half: keep or alias
            size_t cell = (size_t)last * g.n + (((r >> 32) * g.n) >> 32);
            out[t] = (uint32_t)r * 0x1p-32f < g.keep[cell] ? (int)(cell - (size_t)last * g.n)
                                                           : g.other[cell];
        }
        before = last;
    }
}

// ----------------------------------------------------------------------------
// data

struct Source {
    std::string name, format;
    Tokens train, val;
    long windows = 0, val_windows = 0; // training windows in use; validation windows there are
    uint64_t weight = 1, drawn = 0; // share of the mixture; sequences given out so far
    std::string fingerprint;                             // of its tokens, once it is known
};

struct Data {
    DataOptions opt;
    Tokenizer tokenizer;
    int V = 0;                                           // ids are 0 .. V-1
    long train_tokens = 0, val_tokens = 0;               // train_tokens 0: without end (bb)
    std::string description;
    bool bb = false;
    Bigram bigram;
    uint64_t drawn = 0;
    std::vector<Source> sources;
};

// i -> its place in a permutation of 0..n-1 chosen by key: a Feistel network on the next even
// number of bits, walked until it lands inside (fewer than four steps on average)
inline uint64_t permute(uint64_t i, uint64_t n, uint64_t key) {
    int half = 1;
    while (1ull << 2 * half < n) { half++; }
    uint64_t mask = (1ull << half) - 1;
    do {
        uint64_t l = i >> half, r = i & mask;
        for (int round = 0; round < 6; round++) {
            uint64_t f = mix64(key + round, r) & mask, next = l ^ f;
            l = r;
            r = next;
        }
        i = l << half | r;
    } while (i >= n);
    return i;
}

// "SOURCE:WEIGHT" -> SOURCE; weight -1 when none is given
double source_weight(std::string* name);

// opens what the options name, all of it checked; dies with what is wrong
Data data_open(const DataOptions& opt);

// section 5 of the paper: tokens at chosen positions are random, or fixed. The random ones depend
// on the sequence, not on when it is read.
inline void data_edit(const Data& d, uint64_t key, uint64_t index, int T1, int* x) {
    const DataOptions& o = d.opt;
    // was a target in the window before: no token is lost
    if (o.bos == "seq" && !d.bb) { x[0] = d.tokenizer.bos; }
    if (!o.random_token.empty()) {
        Rng rng = rng_stream(mix64(key, index), STREAM_EDIT);
        for (int p : o.random_token) {
            int id = (int)rng_below(&rng, d.V);
            if (p <= T1) { x[p - 1] = id; }
        }
    }
    for (auto& f : o.fix_token) { if (f.first <= T1) { x[f.first-1] = f.second; } }
}

// batch (B, T+1): the next B training sequences; NULL: another process takes them
inline void data_next(Data* d, int* batch, int B) {
    int T = d->opt.T;
    uint64_t key = mix64(d->opt.seed, STREAM_TRAIN);
    for (int b = 0; b < B; b++) {
        int* out = batch ? batch + (size_t)b * (T + 1) : NULL;
        uint64_t n = d->drawn++;
        if (d->bb) {
            if (!out) { continue; }
            if (d->train_tokens) { n %= std::max(1L, d->train_tokens / T); }
            bigram_sequence(d->bigram, key, n, T + 1, out);
            data_edit(*d, key, n, T + 1, out);
            continue;
        }
        // the source that is furthest behind its share (n+1) w / W. Whole numbers: with w =
        // windows, an epoch of the mixture is exactly one epoch of each source.
        uint64_t total = 0;
        for (auto& s : d->sources) { total += s.weight; }
        size_t pick = 0; __int128 most = 0;
        for (size_t i = 0; i < d->sources.size(); i++) {
            Source& s = d->sources[i];
            __int128 behind = (__int128)(n + 1) * s.weight - (__int128)s.drawn * total;
            if (i == 0 || behind > most) { most = behind; pick = i; }
        }
        Source& s = d->sources[pick];
        uint64_t epoch = s.drawn / s.windows, i = s.drawn % s.windows;
        s.drawn++;
        if (!out) { continue; }
        uint64_t order = mix64(mix64(d->opt.seed, STREAM_ORDER), mix64(pick, epoch));
        uint64_t w = permute(i, s.windows, order);
        tokens_copy(s.train, w * T, T + 1, d->V, out);
        data_edit(*d, mix64(key, mix64(pick, epoch)), w, T + 1, out);
    }
}

// how many validation sequences there are
long data_val_count(Data* d);

// out (B, T+1): validation sequences first .. first+B-1, the same ones every time, spread evenly
// over what is held out
void data_val(Data* d, int* out, int B, long first);

// out (probe_seqs, probe_len+1): held-out sequences for the sink metrics; returns how many there
// are. Sequence i of a source is its held-out tokens [i len, i len + len]; several sources take
// turns.
int data_probe(Data* d, int* out);

// A file of prompts, as the paper's probe files are: the first len + 1 tokens of each record of a
// .jsonl that has as many, out (n, len + 1); returns how many there are, skips and counts the
// shorter ones, and counts those that brought their BOS. windows: all records laid end to end, each
// followed by EOS, and sequence i is their tokens [i len, i len + len]. how: BOS and edits.
int data_prompts(const std::string& path, const Tokenizer& tok, int n, int len, bool skip_bad,
                 int* out, TextCounts* counts, const DataOptions* how = NULL, bool windows = false);

// The position, as JSON for the checkpoint: how many sequences were drawn, in all and from each
// source; and what tells whether the data are still the same.
std::string data_state(Data* d);

// Notes what the tokens are. From then on data_unchanged dies if a file of theirs was written to,
// in place, and holds others: what was trained on is not what the log names.
void data_mark(Data* d);
void data_unchanged(Data* d);

// continues from such a position; dies if the data differ
void data_restore(Data* d, const Json& state);
#endif // DATALOADER_H
