/*
open/gguf_vocabulary.cpp -- a tokenizer as keys of a GGUF file: gguf_put_tokenizer of
export_gguf.h. text/tokenizer_gguf.h reads them.
*/
#include "export_gguf.h"
#include "gguf_splits.h"
#include "../tokenizer/tokenizer_build.h"

[[noreturn]] static void no_words(const Tokenizer& tok, const std::string& what) {
    die(EXIT_USER, tok.name + ": " + what + ", wanted a tokenizer that llama.cpp has a name for",
        "leave --to out: transformers opens every model that train_sink exports");
}

// Tells whether these steps split as those of a row of GGUF_SPLITS do.
static bool same_steps(const std::vector<Step>& a, const std::vector<Step>& b) {
    if (a.size() != b.size()) { return false; }
    for (size_t i = 0; i < a.size(); i++) {
        const bool sized = a[i].kind == SPLIT_CL100K, alone = a[i].kind == SPLIT_DIGITS;
        if (a[i].kind != b[i].kind || (sized && a[i].number != b[i].number) ||
            (alone && a[i].flag != b[i].flag) || a[i].pattern != b[i].pattern) {
            return false;
        }
    }
    return true;
}

// Returns the name of a byte-level tokenizer's way to split.
static std::string split_name(const Tokenizer& tok) {
    if (tok.kind == TOKENIZER_BYTES) { return "gpt-2"; }         // nothing merges
    for (auto& row : GGUF_SPLITS) {
        std::vector<Step> normalizer, splitter;
        gguf_split_steps(row, &normalizer, &splitter);
        if (same_steps(normalizer, tok.normalizer) && same_steps(splitter, tok.splitter) &&
            row.llama3 == tok.ignore_merges) {
            return row.name;
        }
    }
    no_words(tok, "splits text in a way of its own");
}

// Tells whether it is SentencePiece as llama.cpp has it: blanks become U+2581, with one more in
// front.
static bool is_sentencepiece(const Tokenizer& tok) {
    if (tok.byte_level || !tok.byte_fallback || !tok.splitter.empty()) {
        return false;
    }
    size_t replaced = 0;
    for (auto& s : tok.normalizer) {
        if (s.kind == NORM_REPLACE && s.pattern == " " && s.content == BLOCK) {
            replaced++;
        }
        else if (s.kind != NORM_PREPEND || s.content != BLOCK) { return false; }
    }
    return replaced == 1 && tok.normalizer.size() <= 2;
}

// Lists the merges by rank.
static std::vector<Merge> merges_of(const Tokenizer& tok) {
    std::vector<Merge> list;
    for (auto& m : tok.merges) {
        if (m.pair != NO_MERGE) { list.push_back(m); }
    }
    std::sort(list.begin(), list.end(), [](const Merge& a, const Merge& b) {
        return a.rank < b.rank;
    });
    return list;
}

// Gives each token a score: the higher, the sooner two neighbors become it. Dies if the merges have
// another order than scores can give.
static std::vector<float> scores_of(const Tokenizer& tok, int V) {
    const std::vector<Merge> list = merges_of(tok);
    std::vector<float> scores(V, 0);
    std::vector<bool> made(V, false);
    long last = -1;
    for (size_t i = 0; i < list.size(); i++) {
        const long id = list[i].id;
        if (id != last && made[id]) { no_words(tok, "its merges have no order by token"); }
        if (id != last) { scores[id] = -(float)(i + 1); }
        made[id] = true;
        last = id;
    }
    return scores;
}

static void put_tokens(GgufOut* o, const Tokenizer& tok, int V) {
    std::vector<std::string> tokens;
    std::vector<int32_t> types;
    const std::vector<uint32_t> characters = byte_alphabet();
    for (int id = 0; id < V; id++) {
        std::string text = strf("[PAD%d]", id);
        int type = GGUF_UNUSED;
        const bool byte = tok.kind == TOKENIZER_BYTES && id < 256;
        if (byte) {
            text.clear();
            utf8_append(&text, characters[id]);
            type = GGUF_NORMAL;
        } else if (tok.kind == TOKENIZER_BYTES && id == 256) {
            text = END_OF_BYTES;
            type = GGUF_CONTROL;
        } else if (id < (int)tok.text.size() && !tok.text[id].empty()) {
            text = tok.text[id];
            type = tok.special[id] ? GGUF_CONTROL : GGUF_NORMAL;
            if (!tok.byte_level && fallback_byte(text) >= 0) { type = GGUF_BYTE; }
            if (id == tok.unk) { type = GGUF_UNKNOWN; }
        }
        tokens.push_back(text);
        types.push_back(type);
    }
    for (auto& a : tok.added) {
        if (!a.special) { types[a.id] = GGUF_USER_DEFINED; }
    }
    gguf_put(o, "tokenizer.ggml.tokens", tokens);
    gguf_put(o, "tokenizer.ggml.token_type", types);
}

static void put_id(GgufOut* o, const char* what, int id) {
    if (id < 0) { return; }
    gguf_put(o, strf("tokenizer.ggml.%s_token_id", what), (uint32_t)id);
}

// Puts BOS, EOS, and which of them go around a text.
static void put_ends(GgufOut* o, const Tokenizer& tok) {
    const bool bos = !tok.before.empty(), eos = !tok.after.empty();
    const bool usual = tok.before.size() <= 1 && tok.after.size() <= 1 &&
                       (!bos || tok.before[0] == tok.bos) && (!eos || tok.after[0] == tok.eos);
    if (!usual) { no_words(tok, "puts more than BOS and EOS around a text"); }
    put_id(o, "bos", tok.bos);
    put_id(o, "eos", tok.eos);
    put_id(o, "unknown", tok.unk);
    gguf_put(o, "tokenizer.ggml.add_bos_token", bos);
    gguf_put(o, "tokenizer.ggml.add_eos_token", eos);
}

static void put_merges(GgufOut* o, const Tokenizer& tok) {
    std::vector<std::string> merges;
    for (auto& m : merges_of(tok)) {
        merges.push_back(tok.text[m.pair >> 32] + " " + tok.text[m.pair & 0xffffffff]);
    }
    gguf_put(o, "tokenizer.ggml.model", std::string("gpt2"));
    gguf_put(o, "tokenizer.ggml.pre", split_name(tok));
    gguf_put(o, "tokenizer.ggml.merges", merges);
}

static void put_scores(GgufOut* o, const Tokenizer& tok, int V) {
    gguf_put(o, "tokenizer.ggml.model", std::string("llama"));
    gguf_put(o, "tokenizer.ggml.scores", scores_of(tok, V));
    gguf_put(o, "tokenizer.ggml.add_space_prefix", tok.normalizer.size() == 2);
}

// Puts the chat template among a tokenizer's files, if there is one.
static void put_template(GgufOut* o, const Tokenizer& tok) {
    std::string text;
    for (auto& file : tok.files) {
        if (file.first == "chat_template.jinja") { text = file.second; }
        if (file.first != "tokenizer_config.json" || !text.empty()) { continue; }
        const Json j = json_of(file.second);
        const Json* said = j.get("chat_template");
        if (said && said->type == Json::STRING) {
            text = said->string;
        }
    }
    if (!text.empty()) { gguf_put(o, "tokenizer.chat_template", text); }
}

// Copies the keys of a tokenizer that came from a GGUF file.
static void put_same(GgufOut* o, const std::string& file) {
    Gguf g;
    g.weights.path = "tokenizer.gguf";
    gguf_parse({ file.data(), file.size() }, &g);
    for (auto& v : g.values) {
        if (v.first.compare(0, 10, "tokenizer.") == 0) {
            gguf_put(o, v.first, v.second);
        }
    }
}

void gguf_put_tokenizer(GgufOut* o, const Tokenizer& tok, int V) {
    if (!tok.files.empty() && tok.files[0].first == "tokenizer.gguf") {
        put_same(o, tok.files[0].second);
        return;
    }
    if (tok.kind == TOKENIZER_IDS) {
        gguf_put(o, "tokenizer.ggml.model", std::string("no_vocab"));
        return;
    }
    const bool sentencepiece = is_sentencepiece(tok);
    if (!sentencepiece && tok.kind == TOKENIZER_BPE && !tok.byte_level) {
        no_words(tok, "is neither of bytes nor as LLaMA 2's");
    }
    if (sentencepiece) { put_scores(o, tok, V); } else { put_merges(o, tok); }
    put_tokens(o, tok, V);
    put_ends(o, tok);
    put_template(o, tok);
}
