/*
dataloader.h -- from whatever the user has to batches of token ids. In reading order:

    bb          the built-in Bigram-Backcopy task, generated on the fly
    data        sources, their windows in shuffled order, edits; held-out data, the
                position that checkpoints keep

How a source is found, tokenized and opened: core/data_sources.cpp, text/text_cache.cpp.

A training sequence is a window of T+1 tokens at stride T over a source's documents, each followed
by EOS: every token is a target exactly once per epoch. An epoch visits all windows in the order of
a permutation keyed by seed and epoch and computed in O(1) memory, so a position in the data is one
number per source.
*/
#ifndef DATALOADER_H
#define DATALOADER_H
#include "base/common.h"
#include "core/shards.h"
#include "flags.h"
#include "tokenizer.h"

// The flags of data, and what others amount to.
struct DataOptions : DataFlags {
    // "bb" | FILE.txt | FILE.jsonl[.zst|.gz] | DIR of shards | NAME under data/; in mixtures
    // SOURCE:WEIGHT
    std::vector<std::string> data;
    std::string cache;                           // where tokenized text is kept; "" = data/cache
    int bin = 0;                                 // bytes of an id where a .bin has no header
    int T = 64;
    int probe_len = 64;
    std::vector<long> held;                      // tokens to hold out of each source, as
                                                 // another run did; empty: the default rule
    int vocab = 0;                               // ids the model has; 0: as many as the data needs
    std::vector<int> random_token;               // 1-based positions replaced by Uniform(V)
    std::vector<std::pair<int, int>> fix_token;  // 1-based position, id
    bool unread = false;                         // a text is not opened: its ids are known
};

// ----------------------------------------------------------------------------
// bb: Bigram-Backcopy (Guo et al. 2024, arXiv:2410.13835). k triggers (ids 0..k-1) follow anything
// with probability p each; after a trigger comes a copy of the token before it, with bb_mean of any
// token before it, so that the best answer is their mean (Ran-Milo 2026, arXiv:2603.11487, here as
// language modeling); any other next token is drawn from a fixed bigram table,
//     P[i,j] = (1 - k p) softmax_j(temp * N(0,1)),  j >= k.
// x_0 = <s> (id bb_vocab) unless bb_bos is 0, and the first ordinary token is uniform over the
// non-triggers.

struct Bigram {
    int n = 0;                                   // ids without <s>
    int triggers = 0;
    long bos = 0;
    long mean = 0;
    std::vector<float> keep;                     // (n, n) alias tables: the chance to keep column j
    std::vector<int> other;                      // (n, n) the token it gives otherwise
};

// Returns the bytes of the tables of n ids.
inline double bigram_bytes(double n) { return n * n * (sizeof(float) + sizeof(int)); }

// Draws the token after `last`, which must not be a trigger.
inline int bigram_draw(const Bigram& g, int last, Rng* rng) {
    const uint64_t random = rng_next(rng);       // high half: the column; low half: keep or alias
    const size_t row = (size_t)last * g.n;
    const size_t column = ((random >> 32) * g.n) >> 32;
    const float chance = (uint32_t)random * 0x1p-32f;
    return chance < g.keep[row + column] ? (int)column : g.other[row + column];
}

// Writes sequence number `index` of the stream `key` to out (T1).
inline void bigram_sequence(const Bigram& g, uint64_t key, uint64_t index, int T1, int* out) {
    Rng rng{ mix64(key, index) };
    const int start = g.bos;
    if (g.bos) { out[0] = g.n; }
    if (start >= T1) { return; }
    out[start] = g.triggers + (int)rng_below(&rng, g.n - g.triggers);
    for (int t = start + 1; t < T1; t++) {
        const int last = out[t - 1];
        if (last >= g.triggers) { out[t] = bigram_draw(g, last, &rng); continue; }
        const int back = g.mean ? (int)rng_below(&rng, t - 1 - start) : 0;
        out[t] = out[t - 2 - back];
    }
}

// ----------------------------------------------------------------------------
// data

struct Source {
    std::string name;
    std::string format;
    Tokens train;
    Tokens val;
    long windows = 0;                            // training windows in use
    long val_windows = 0;                        // validation windows
    uint64_t weight = 1;                         // share of the mixture
    uint64_t drawn = 0;                          // sequences drawn so far
    std::string fingerprint;                     // of its tokens, once it is known
};

struct Data {
    DataOptions opt;
    Tokenizer tokenizer;
    int V = 0;                                   // ids are 0 .. V-1
    long train_tokens = 0;                       // 0: without end (bb)
    std::string description;
    bool bb = false;
    Bigram bigram;
    uint64_t drawn = 0;
    std::vector<Source> sources;
};

// Returns the place of i in a permutation of 0..n-1 chosen by key: a Feistel network on the next
// even number of bits, walked until it lands inside (fewer than four steps on average).
inline uint64_t permute(uint64_t i, uint64_t n, uint64_t key) {
    int half = 1;
    while (1ull << 2 * half < n) { half++; }
    const uint64_t mask = (1ull << half) - 1;
    do {
        uint64_t left = i >> half;
        uint64_t right = i & mask;
        for (int round = 0; round < 6; round++) {
            const uint64_t mixed = mix64(key + round, right) & mask;
            const uint64_t next = left ^ mixed;
            left = right;
            right = next;
        }
        i = left << half | right;
    } while (i >= n);
    return i;
}

// Cuts "SOURCE:WEIGHT" to SOURCE and returns the weight, -1 if none is given.
double source_weight(std::string* name);

// Splits "a,b" at its commas, but for those in the name of something that is there: as it is
// named, with a weight, under data/, or from `directory`.
std::vector<std::string> names_listed(const std::string& list, const std::string& directory = ".");

// Opens and checks the data that the options name; dies if anything is wrong.
Data data_open(const DataOptions& opt);

// Dies if the options have a type for a .bin without a header, and no source is one.
void data_bin_check(const Data& d);

// Dies if an edit lies outside a sequence of o.T tokens and its target, or uses an id not below V.
void data_edits_check(const DataOptions& o, int V);

// Replaces a token. If the old one was masked, so is the new one.
inline void replace_token(int* x, int id) { *x = *x < 0 ? ~id : id; }

// Edits a sequence as section 5 of the paper does: tokens at chosen positions are random, or fixed.
// The random ones, and which sequences get them, depend on the sequence, not on when it is read.
inline void data_edit(const Data& d, uint64_t key, uint64_t index, int T1, int* x) {
    const DataOptions& o = d.opt;
    // the token that BOS replaces was a target in the previous window, so none is lost
    if (o.bos == "seq" && !d.bb) { x[0] = d.tokenizer.bos; }
    if (!o.random_token.empty()) {
        const uint64_t sequence = mix64(key, index);
        Rng share = rng_stream(sequence, STREAM_SHARE);
        Rng rng = rng_stream(sequence, STREAM_EDIT);
        const bool chosen = rng_uniform(&share) < o.random_share;
        for (int position : o.random_token) {
            const int id = (int)rng_below(&rng, d.V);
            if (chosen && position <= T1) { replace_token(x + position - 1, id); }
        }
    }
    for (auto& [position, id] : o.fix_token) {
        if (position <= T1) { replace_token(x + position - 1, id); }
    }
}

// Returns the source that is furthest behind its share (n+1) w / W of the first n+1 sequences.
// Whole numbers: with w = windows, an epoch of the mixture is exactly one epoch of each source.
inline size_t data_pick(const Data& d, uint64_t n) {
    uint64_t total = 0;
    for (auto& s : d.sources) { total += s.weight; }
    size_t pick = 0;
    __int128 most = 0;
    for (size_t i = 0; i < d.sources.size(); i++) {
        const Source& s = d.sources[i];
        const __int128 due = (__int128)(n + 1) * s.weight;
        const __int128 behind = due - (__int128)s.drawn * total;
        if (i == 0 || behind > most) {
            most = behind;
            pick = i;
        }
    }
    return pick;
}

// Writes the next training sequence to out (T+1); NULL: skips it, because another process takes it.
inline void data_next_sequence(Data* d, int* out) {
    const int T = d->opt.T;
    const uint64_t key = mix64(d->opt.seed, STREAM_TRAIN);
    uint64_t n = d->drawn++;
    if (d->bb) {
        if (!out) { return; }
        if (d->train_tokens) { n %= std::max(1L, d->train_tokens / T); }
        bigram_sequence(d->bigram, key, n, T + 1, out);
        data_edit(*d, key, n, T + 1, out);
        return;
    }
    const size_t pick = data_pick(*d, n);
    Source& s = d->sources[pick];
    const uint64_t epoch = s.drawn / s.windows;
    const uint64_t i = s.drawn % s.windows;
    s.drawn++;
    if (!out) { return; }
    const uint64_t stream = mix64(pick, epoch);
    const uint64_t order = mix64(mix64(d->opt.seed, STREAM_ORDER), stream);
    const uint64_t window = permute(i, s.windows, order);
    tokens_copy(s.train, window * T, T + 1, d->V, out);
    data_edit(*d, mix64(key, stream), window, T + 1, out);
}

// Writes the next B training sequences to batch (B, T+1); NULL: another process takes them.
inline void data_next(Data* d, int* batch, int B) {
    for (int b = 0; b < B; b++) {
        int* out = NULL;
        if (batch) { out = batch + (size_t)b * (d->opt.T + 1); }
        data_next_sequence(d, out);
    }
}

// Returns how many validation sequences there are.
long data_val_count(Data* d);

// Writes validation sequences first .. first+B-1 to out (B, T+1): the same ones every time, spread
// evenly over what is held out.
void data_val(Data* d, int* out, int B, long first);

// Writes held-out sequences for the sink metrics to out (probe_seqs, probe_len+1); returns how many
// there are. Sequence i of a source is its held-out tokens [i len, i len + len]; several sources
// take turns.
int data_probe(Data* d, int* out);

// Returns the position, as JSON for the checkpoint: how many sequences were drawn, in all and from
// each source; and fingerprints, to detect changed data.
std::string data_state(Data* d);

// Records a fingerprint of the tokens. From then on data_unchanged dies if one of their files was
// overwritten in place: the log would no longer name the training data. Of large files it compares
// a part alone, and then returns the name of the first that was touched; else "".
void data_mark(Data* d);
std::string data_unchanged(Data* d);

// Continues from such a position; dies if the data differ.
void data_restore(Data* d, const Json& state);
#endif // DATALOADER_H
