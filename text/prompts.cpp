/*
text/prompts.cpp -- sequences from a file of prompts: windows of all of it, or where records begin.
*/
#include "../base/plural.h"
#include "../run/data_flags.h"
#include "../run/probe_data.h"
#include "ids.h"
#include "text_cache.h"
#include "tokenizer_build.h"

// The sequences of a file of prompts while they are read.
struct Prompts {
    PromptOptions wanted;
    Data edits;                          // what data_edit looks at
    int* out;
    int found = 0;
    Ids line;                            // windows: what no sequence has begun with yet
};

static bool wants_more(const Prompts& p) { return p.found < p.wanted.n; }

static void take_sequence(Prompts* p, const uint32_t* ids) {
    const int n = p->wanted.len + 1;
    std::copy_n(ids, n, p->out);
    data_edit(p->edits, STREAM_PROBE, p->found, n, p->out);
    p->out += n;
    p->found++;
}

// Takes windows of all text laid end to end.
static void take_windows(Prompts* p, const TextBlock& block) {
    const size_t len = p->wanted.len;
    size_t begin = 0;
    p->line.insert(p->line.end(), block.ids.begin(), block.ids.end());
    while (wants_more(*p) && begin + len + 1 <= p->line.size()) {
        take_sequence(p, &p->line[begin]);
        begin += len;
    }
    p->line.erase(p->line.begin(), p->line.begin() + begin);
}

// Takes the start of each document that is long enough; its last id is EOS, which does not count.
static void take_records(Prompts* p, const TextBlock& block, TextCounts* counts) {
    size_t begin = 0;
    for (auto& doc : block.docs) {
        const bool fits = doc.end - 1 - begin >= (size_t)p->wanted.len + 1;
        const bool wanted = wants_more(*p);
        if (wanted && fits) { take_sequence(p, &block.ids[begin]); }
        counts->skipped += wanted && !fits;
        begin = doc.end;
    }
}

int prompts_of_text(const std::string& path, const Tokenizer& tok, const PromptOptions& wanted,
                    int* out, TextCounts* counts) {
    TextFile file = text_open(path);
    check_skip_bad(wanted.skip_bad, { path });
    Prompts p = { wanted, Data(), out, 0, {} };
    if (wanted.edits) {
        p.edits.opt = *wanted.edits;
        p.edits.tokenizer = tok;
        p.edits.V = tok.vocab_size;
    }
    const DataOptions& opt = p.edits.opt;
    if (opt.bos != "none" && tok.bos < 0) {
        die("--bos: the tokenizer " + tok.name + " has no BOS");
    }
    EncodeOptions o;
    o.skip_bad = wanted.skip_bad;
    if (opt.bos == "doc") { o.bos = "doc"; }
    if (!wanted.windows) { o.first = wanted.len + 1; }
    sft_options(opt, path, tok, &o);

    TextBlock block;
    *counts = TextCounts();
    while (wants_more(p) && text_next(&file, tok, &block)) {
        text_encode(tok, o, &block);
        if (!block.error.empty()) {
            die(block.error, text_advice(block.error));
        }
        counts->begun += block.counts.begun;
        if (wanted.windows) { take_windows(&p, block); } else { take_records(&p, block, counts); }
    }
    text_close(&file);
    if (!p.found) {
        const std::string what = wanted.windows ? "text" : "record";
        const std::string shorter = "a smaller --probe-len";
        die(path + ": got no " + what + strf(" of %d tokens or more", wanted.len + 1),
            wanted.windows ? shorter : shorter + ", or --probe-from windows");
    }
    return p.found;
}

static ProbeInput records_of(const Flags& f, const ProbeBos& bos, int T, int V) {
    ProbeInput in;
    Tokenizer tok = tokenizer_of(f.tokenizer);
    DataOptions how = data_options(f, T, T);             // --random-token, --fix-token
    const bool windows = f.probe_from == FROM_windows;
    // before each record, or for a window's first token
    how.bos = windows && f.bos != "doc" ? "seq" : "doc";
    if (bos.id < 0) { how.bos = "none"; }
    if (how.bos == "seq" && f.given_bos) { reject_covered_bos(f); }
    tok.bos = bos.id;
    TextCounts counts;
    vocabulary_check(tok, V);
    tok.vocab_size = std::min(tok.vocab_size, V);        // of which random tokens are drawn
    in.x.resize((size_t)f.probe_seqs * (T + 1));
    const PromptOptions wanted = { (int)f.probe_seqs, T, f.skip_bad, windows, &how };
    in.n = prompts_of_text(f.data, tok, wanted, in.x.data(), &counts);
    ids_check(tok, in.x.data(), (size_t)in.n * (T + 1), V);
    in.how = windows ? plural(in.n, "window") + strf(" of %d tokens", T + 1)
                     : plural(in.n, "record") + strf(", the first %d tokens of each", T + 1);
    if (counts.skipped) { in.how += strf(", %ld shorter ones skipped", counts.skipped); }
    if (counts.begun) { in.how += ", those that begin with BOS got no second one"; }
    return in;
}

bool probe_records(const Flags& f, const ProbeBos& bos, const ProbeData& p, int T, int V,
                   ProbeInput* in) {
    const bool text = f.data != "bb" && file_exists(f.data) && !is_dir(f.data);
    const bool records = text && text_format(f.data) == TEXT_JSONL && !p.own;
    if (text && f.tokenizer.empty()) { no_tokenizer(f.words[0]); }
    const bool start = f.given_probe_from && f.probe_from == FROM_start;
    require(!start || records, "--probe-from start of " + f.data, "a .jsonl of records");
    const bool one = p.sources.size() == 1;
    require(!(records && one && f.given_bin), "--bin of " + f.data, "a directory of .bin");
    require(!text || records || !f.given_bos || f.bos != "doc", "--bos doc of " + f.data,
            "a .jsonl of documents, or --bos seq: a .txt is one document");
    if (records) { *in = records_of(f, bos, T, V); }
    return records;
}
