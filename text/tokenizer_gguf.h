/*
tokenizer_gguf.h -- the tokenizer in a GGUF file, as tokenizer.h would have it from tokenizer.json.
A part of tokenizer.cpp, which includes it.

The file has the tokens, their types, and merges or scores. For byte-level BPE it also has the name
of a family; how that family splits and normalizes text is not written in it. So the families that
are known are rows of a table here, and the others are refused. Where llama.cpp differs from a
family's tokenizer.json (it leaves out the normal form C), the ids are those of tokenizer.json.
*/
#ifndef TOKENIZER_GGUF_H
#define TOKENIZER_GGUF_H

// digits: how many make one piece; in a SPLIT_GPT2, 0 any number of them.
// llama3: a piece in the vocabulary is one token whatever the merges say; a text begins with BOS.
struct GgufFamily { const char* name; bool nfc; StepKind split; int digits; bool llama3; };
static const GgufFamily gguf_families[] = {
    { "gpt-2",            false, SPLIT_GPT2,   0, false },
    { "phi-2",            false, SPLIT_GPT2,   0, false },
    { "olmo",             true,  SPLIT_GPT2,   0, false },
    { "mpt",              true,  SPLIT_GPT2,   0, false },
    { "smollm",           false, SPLIT_GPT2,   1, false },
    { "starcoder",        false, SPLIT_GPT2,   1, false },
    { "llama-bpe",        false, SPLIT_CL100K, 3, true },
    { "llama3",           false, SPLIT_CL100K, 3, true },
    { "llama-v3",         false, SPLIT_CL100K, 3, true },
    { "dbrx",             false, SPLIT_CL100K, 3, false },
    { "qwen2",            true,  SPLIT_CL100K, 1, false },
    { "deepseek-r1-qwen", true,  SPLIT_CL100K, 1, false },
};
static const char* const GGUF_TOKENIZER_HINT =
    "get the tokenizer.json of this model and give it with --tokenizer";

inline Step* step_add(std::vector<Step>* to, StepKind kind, const char* from = "",
    const char* into = "") {
    to->emplace_back();
    to->back().kind = kind;
    to->back().from = from;
    to->back().to = into;
    return &to->back();
}

// Byte-level BPE: the merges are in the file, splitting and normal form follow from the family.
inline void gguf_tokenizer_merges(const TokenizerFile& f, const Gguf& g, Tokenizer* t,
    const Vocab& vocab) {
    const std::string name = gguf_string(g, "tokenizer.ggml.pre");
    const GgufFamily* family = NULL;
    std::string known;
    for (auto& row : gguf_families) {
        if (name == row.name) { family = &row; }
        known += std::string(known.empty() ? "" : ", ") + row.name;
    }
    if (!family) {
        refuse(f, "tokenizer.ggml.pre: got '" + name + "', wanted one of " + known,
            GGUF_TOKENIZER_HINT);
    }
    if (family->nfc) { step_add(&t->normalizer, NORM_NFC); }
    if (family->split == SPLIT_GPT2 && family->digits) {
        step_add(&t->splitter, SPLIT_DIGITS)->flag = true;
    }
    step_add(&t->splitter, family->split)->number = family->digits;
    step_add(&t->decoder, DECODE_BYTES);
    t->byte_level = true;
    t->ignore_merges = family->llama3;
    std::vector<std::pair<std::string, std::string>> list;
    for (auto& m : gguf_strings(g, "tokenizer.ggml.merges")) {
        const size_t space = m.find(' ', 1);
        if (space == std::string::npos) {
            refuse(f, strf("merge %zu: wanted two tokens", list.size() + 1));
        }
        list.push_back({ m.substr(0, space), m.substr(space + 1) });
    }
    if (list.empty()) { refuse(f, "has no tokenizer.ggml.merges"); }
    tokenizer_merges(f, t, vocab, list);
}

// SentencePiece: neighbors merge if together they are a token, the token of the highest score
// first, the leftmost of equals. So each way to cut a token in two tokens is a merge, and the ranks
// of merges are the order of the scores of what they make.
inline void gguf_tokenizer_scores(const TokenizerFile& f, const Gguf& g, Tokenizer* t,
    const Vocab& vocab, const std::vector<std::string>& tokens, const std::vector<float>& types) {
    const std::vector<float> scores = gguf_floats(g, "tokenizer.ggml.scores");
    if (scores.size() != tokens.size()) {
        refuse(f, strf("got %zu scores for %zu tokens", scores.size(), tokens.size()));
    }
    std::vector<float> order;
    for (float s : scores) {
        if (s - s != 0) { refuse(f, "a score is not finite"); }
        order.push_back(-s);
    }
    std::sort(order.begin(), order.end());
    order.erase(std::unique(order.begin(), order.end()), order.end());
    auto normal = [&](const std::string& s) {
        auto v = vocab.find(s);
        return v != vocab.end() && types[v->second] == GGUF_NORMAL ? v->second : -1;
    };
    std::vector<Merge> list;
    for (size_t id = 0; id < tokens.size(); id++) {
        const std::string& s = tokens[id];
        if (normal(s) != (int)id) { continue; }
        if (s.size() > SCORED_LONGEST) {
            refuse(f, strf("token %zu has %zu bytes, wanted at most %d", id, s.size(),
                           (int)SCORED_LONGEST), GGUF_TOKENIZER_HINT);
        }
        const auto place = std::lower_bound(order.begin(), order.end(), -scores[id]);
        const uint32_t rank = place - order.begin();
        for (size_t k = 1; k < s.size(); k++) {
            if ((s[k] & 0xC0) == 0x80) { continue; }     // inside a character
            const int a = normal(s.substr(0, k)), b = normal(s.substr(k));
            if (a < 0 || b < 0) { continue; }
            list.push_back({ (uint64_t)a << 32 | (uint32_t)b, rank, (uint32_t)id });
        }
    }
    merges_table(t, list);
    t->byte_fallback = t->fuse_unk = true;
    const bool prefix = gguf_number(g, "tokenizer.ggml.add_space_prefix", 1) != 0;
    if (prefix) { step_add(&t->normalizer, NORM_PREPEND, "", BLOCK); }
    step_add(&t->normalizer, NORM_REPLACE, " ", BLOCK);
    step_add(&t->decoder, DECODE_REPLACE, BLOCK, " ");
    step_add(&t->decoder, DECODE_FALLBACK);
    step_add(&t->decoder, DECODE_FUSE);
    if (prefix) { step_add(&t->decoder, DECODE_STRIP, " ")->number = 1; }
}

// BOS, EOS and the unknown token, and which of them go around a text.
inline void gguf_tokenizer_ends(const TokenizerFile& f, const Gguf& g, Tokenizer* t,
    bool sentencepiece) {
    auto token = [&](const char* key, double otherwise) {
        const double id = gguf_number(g, key, otherwise);
        if (id != floor(id) || id < -1 || id >= t->vocab_size) {
            refuse(f, strf("%s: got %g for a vocabulary of %d", key, id, t->vocab_size));
        }
        return (int)id;
    };
    t->unk = sentencepiece ? token("tokenizer.ggml.unknown_token_id", 0) : -1;
    t->bos = token("tokenizer.ggml.bos_token_id", sentencepiece ? 1 : -1);
    t->eos = token("tokenizer.ggml.eos_token_id", sentencepiece ? 2 : -1);
    const bool usual = sentencepiece || t->ignore_merges;
    const bool bos = gguf_number(g, "tokenizer.ggml.add_bos_token", usual) != 0;
    const bool eos = gguf_number(g, "tokenizer.ggml.add_eos_token", 0) != 0;
    if (bos && t->bos >= 0) { t->before.push_back(t->bos); }
    if (eos && t->eos >= 0) { t->after.push_back(t->eos); }
}

// Fills t and vocab from the keys of a file; tokenizer_finish does the rest.
inline void gguf_tokenizer(const TokenizerFile& f, const Gguf& g, Tokenizer* t, Vocab* vocab) {
    const std::string model = gguf_string(g, "tokenizer.ggml.model");
    const std::vector<std::string> tokens = gguf_strings(g, "tokenizer.ggml.tokens");
    std::vector<float> types = gguf_floats(g, "tokenizer.ggml.token_type");
    if (types.empty()) { types.assign(tokens.size(), GGUF_NORMAL); }
    if ((model != "gpt2" && model != "llama") || tokens.empty() || types.size() != tokens.size()) {
        refuse(f, strf("tokenizer.ggml.model: got '%s' with %zu tokens and %zu types, wanted gpt2 "
            "or llama, and a type for each token", model.c_str(), tokens.size(), types.size()),
            GGUF_TOKENIZER_HINT);
    }
    const bool phi3 = gguf_string(g, "general.architecture") == "phi3";
    t->vocab_size = (int)tokens.size();
    for (int id = 0; id < t->vocab_size; id++) {
        const std::string& s = tokens[id];
        if (!(types[id] >= GGUF_NORMAL && types[id] <= GGUF_BYTE)) {
            refuse(f, strf("tokenizer.ggml.token_type: got %g for token %d", types[id], id));
        }
        t->hash = hash_bytes(s.data(), s.size(), t->hash + (uint64_t)types[id]);
        if (s.empty() || types[id] == GGUF_UNUSED) { continue; }
        vocab->emplace(s, id);
        const bool special = types[id] == GGUF_CONTROL || types[id] == GGUF_UNKNOWN;
        if (!special && types[id] != GGUF_USER_DEFINED) { continue; }
        // in Phi-3's tokenizer.json most special tokens swallow the blanks behind them
        const bool keeps = !phi3 || s == "<unk>" || s == "<s>" || s == "<|endoftext|>";
        t->added.push_back({ s, id, special, false, false, special && !keeps });
    }
    if (model == "llama") { gguf_tokenizer_scores(f, g, t, *vocab, tokens, types); }
    else { gguf_tokenizer_merges(f, g, t, *vocab); }
    for (auto& m : t->merges) { t->hash = mix64(t->hash, m.pair + ((uint64_t)m.rank << 20)); }
    gguf_tokenizer_ends(f, g, t, model == "llama");
}

inline void tokenizer_load_gguf(const TokenizerFile& f, Tokenizer* t, Vocab* vocab) {
    Gguf g = gguf_open(f.path);
    gguf_tokenizer(f, g, t, vocab);
    weights_close(&g.weights);
}
#endif // TOKENIZER_GGUF_H
