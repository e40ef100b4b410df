/*
open/tokenizer_gguf.cpp -- the tokenizer in a GGUF file, as tokenizer.json would have it.

The file has the tokens, their types, and merges or scores. For byte-level BPE it also has the name
of a family; how that family splits and normalizes text is not written in it. So the families that
are known are rows of gguf_splits.h, and the others are refused. Where llama.cpp differs from a
family's tokenizer.json (it leaves out the normal form C), the ids are those of tokenizer.json.
*/
#include "gguf.h"
#include "gguf_splits.h"
#include "../text/tokenizer_build.h"

static const char* const GET_TOKENIZER =
    "get the tokenizer.json of this model and give it with --tokenizer";

// A GGUF file while its tokenizer is read.
struct GgufTokens {
    const Gguf& file;
    TokenizerBuild* t;
    std::vector<std::string> tokens;
    std::vector<float> types;

    // ---- byte-level BPE: the merges are in the file, splitting and normal form follow from the
    // family

    const GgufSplit& find_family() const {
        const std::string name = gguf_string(file, "tokenizer.ggml.pre");
        std::string known;
        for (auto& row : GGUF_SPLITS) {
            if (name == row.name) { return row; }
            list_add(&known, row.name);
        }
        refuse(t, "tokenizer.ggml.pre: got '" + name + "', wanted one of " + known, GET_TOKENIZER);
    }

    void load_byte_level() {
        const GgufSplit& family = find_family();
        gguf_split_steps(family, &t->normalizer, &t->splitter);
        add_step(&t->decoder, DECODE_BYTES);
        t->byte_level = true;
        t->ignore_merges = family.llama3;

        TokenPairs list;
        const bool pad = t->vocab.count("[PAD]");
        for (auto& merge : gguf_strings(file, "tokenizer.ggml.merges")) {
            // scripts/to_gguf.py, of a tokenizer without merges: llama.cpp wants one
            if (merge == "[PAD] [PAD]" && !pad) { continue; }
            const size_t space = merge.find(' ', 1);
            if (space == merge.npos) {
                refuse(t, strf("merge %zu: wanted two tokens", list.size() + 1));
            }
            list.push_back({ merge.substr(0, space), merge.substr(space + 1) });
        }
        // bytes alone, and what ends a text, need none
        const bool merges = !list.empty() || t->vocab.size() <= 257;
        if (!merges) { refuse(t, "has no tokenizer.ggml.merges"); }
        tokenizer_merges(t, list);
    }

    // ---- SentencePiece: neighbors merge if together they are a token, the token of the highest
    // score first, the leftmost of equals. So each way to cut a token in two tokens is a merge, and
    // the ranks of merges are the order of the scores of what they make.

    // Returns each score's place in the order from the highest to the lowest.
    std::vector<uint32_t> score_ranks() const {
        const std::vector<float> scores = gguf_floats(file, "tokenizer.ggml.scores");
        if (scores.size() != tokens.size()) {
            refuse(t, strf("got %zu scores for %zu tokens", scores.size(), tokens.size()));
        }
        std::vector<float> order;
        for (float score : scores) {
            if (!std::isfinite(score)) { refuse(t, "a score is not finite"); }
            order.push_back(-score);
        }
        std::sort(order.begin(), order.end());
        order.erase(std::unique(order.begin(), order.end()), order.end());
        std::vector<uint32_t> ranks;
        for (float score : scores) {
            const auto place = std::lower_bound(order.begin(), order.end(), -score);
            ranks.push_back(place - order.begin());
        }
        return ranks;
    }

    // Returns the id of an ordinary token, -1 if there is none of this text.
    int normal_token(const std::string& text) const {
        const int id = token_id(*t, text);
        return id >= 0 && types[id] == GGUF_NORMAL ? id : -1;
    }

    // Appends each way to cut a token in two.
    void token_cuts(uint32_t id, uint32_t rank, std::vector<Merge>* list) const {
        const std::string& token = tokens[id];
        for (size_t k = 1; k < token.size(); k++) {
            const bool inside_character = (token[k] & 0xC0) == 0x80;
            if (inside_character) { continue; }
            const int left = normal_token(token.substr(0, k));
            const int right = normal_token(token.substr(k));
            if (left < 0 || right < 0) { continue; }
            list->push_back({ (uint64_t)left << 32 | (uint32_t)right, rank, id });
        }
    }

    void load_sentencepiece() {
        const std::vector<uint32_t> ranks = score_ranks();
        std::vector<Merge> list;
        for (size_t id = 0; id < tokens.size(); id++) {
            const std::string& token = tokens[id];
            if (normal_token(token) != (int)id) { continue; }
            if (token.size() > SCORED_LONGEST) {
                refuse(t, strf("token %zu has %zu bytes, wanted at most %d", id, token.size(),
                               (int)SCORED_LONGEST), GET_TOKENIZER);
            }
            token_cuts((uint32_t)id, ranks[id], &list);
        }
        merges_table(t, list);
        t->byte_fallback = true;
        t->fuse_unk = true;
        const bool prefix = gguf_number(file, "tokenizer.ggml.add_space_prefix", 1) != 0;
        if (prefix) { add_step(&t->normalizer, NORM_PREPEND, "", BLOCK); }
        add_step(&t->normalizer, NORM_REPLACE, " ", BLOCK);
        add_step(&t->decoder, DECODE_REPLACE, BLOCK, " ");
        add_step(&t->decoder, DECODE_FALLBACK);
        add_step(&t->decoder, DECODE_FUSE);
        if (prefix) { add_step(&t->decoder, DECODE_STRIP, " ")->number = 1; }
    }

    // ---- both

    // Returns the id that a key names.
    int named_token(const char* key, double absent) const {
        const double id = gguf_number(file, key, absent);
        const bool valid = id == floor(id) && id >= -1 && id < t->vocab_size;
        if (!valid) {
            refuse(t, strf("%s: got %g for a vocabulary of %d", key, id, t->vocab_size));
        }
        return (int)id;
    }

    // Sets BOS, EOS and the unknown token, and which of them go around a text.
    void load_ends(bool sentencepiece) {
        if (sentencepiece) { t->unk = named_token("tokenizer.ggml.unknown_token_id", 0); }
        t->bos = named_token("tokenizer.ggml.bos_token_id", sentencepiece ? 1 : -1);
        t->eos = named_token("tokenizer.ggml.eos_token_id", sentencepiece ? 2 : -1);
        for (const char* key : { "tokenizer.ggml.eot_token_id", "tokenizer.ggml.eom_token_id" }) {
            const int end = named_token(key, -1);
            if (end >= 0) { t->ends.push_back(end); }
        }
        const bool usual = sentencepiece || t->ignore_merges;
        const bool bos = gguf_number(file, "tokenizer.ggml.add_bos_token", usual) != 0;
        const bool eos = gguf_number(file, "tokenizer.ggml.add_eos_token", 0) != 0;
        if (bos && t->bos >= 0) { t->before.push_back(t->bos); }
        if (eos && t->eos >= 0) { t->after.push_back(t->eos); }
    }

    // In Phi-3's tokenizer.json most special tokens swallow the blanks behind them. Says whether
    // this one does.
    bool swallows_blanks(const std::string& token) const {
        const bool phi3 = gguf_string(file, "general.architecture") == "phi3";
        return phi3 && token != "<unk>" && token != "<s>" && token != "<|endoftext|>";
    }

    // Fills the vocabulary and the added tokens.
    void load_tokens() {
        t->vocab_size = (int)tokens.size();
        for (int id = 0; id < t->vocab_size; id++) {
            const std::string& token = tokens[id];
            const float type = types[id];
            const bool known = type >= GGUF_NORMAL && type <= GGUF_BYTE;
            if (!known) {
                refuse(t, strf("tokenizer.ggml.token_type: got %g for token %d", type, id));
            }
            t->hash = hash_string(token, t->hash + (uint64_t)type);
            if (token.empty() || type == GGUF_UNUSED) { continue; }
            t->vocab.emplace(token, id);
            const bool special = type == GGUF_CONTROL || type == GGUF_UNKNOWN;
            if (!special && type != GGUF_USER_DEFINED) { continue; }
            const bool rstrip = special && swallows_blanks(token);
            t->added.push_back({ token, id, special, false, false, rstrip });
        }
    }
};

static void load_opened(const Gguf& file, TokenizerBuild* t) {
    const std::string model = gguf_string(file, "tokenizer.ggml.model");
    GgufTokens g = { file, t, gguf_strings(file, "tokenizer.ggml.tokens"),
                     gguf_floats(file, "tokenizer.ggml.token_type") };
    if (g.types.empty()) { g.types.assign(g.tokens.size(), GGUF_NORMAL); }
    const bool known = model == "gpt2" || model == "llama";
    if (!known || g.tokens.empty() || g.types.size() != g.tokens.size()) {
        refuse(t, strf("tokenizer.ggml.model: got '%s' with %zu tokens and %zu types, wanted gpt2 "
                       "or llama, and a type for each token", model.c_str(), g.tokens.size(),
                       g.types.size()), GET_TOKENIZER);
    }
    g.load_tokens();
    const bool sentencepiece = model == "llama";
    if (sentencepiece) { g.load_sentencepiece(); } else { g.load_byte_level(); }
    for (auto& merge : t->merges) {
        t->hash = mix64(t->hash, merge.pair + ((uint64_t)merge.rank << 20));
    }
    g.load_ends(sentencepiece);
}

void tokenizer_load_gguf(TokenizerBuild* t) {
    Gguf g = gguf_open(t->path);
    load_opened(g, t);
    weights_close(&g.weights);
}
