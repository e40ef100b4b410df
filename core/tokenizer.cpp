/*
core/tokenizer.cpp -- tokenizers of raw bytes and of bare ids, and what all have; those of files are
text/'s.
*/
#include "../tokenizer.h"
#include "../optional.h"

Tokenizer tokenizer_bytes() { return Tokenizer(); }

Tokenizer tokenizer_ids(const std::string& name, int V) {
    Tokenizer t;
    t.kind = TOKENIZER_IDS;
    t.name = name;
    t.vocab_size = V;
    t.eos = -1;
    t.bos = -1;
    t.hash = 0;
    return t;
}

Tokenizer tokenizer_load(const std::string& path) { return text_needed(path).tokenizer(path); }

bool tokenizer_is_in(const std::string& dir) {
    for (const char* name : { "tokenizer.json", "vocab.json", "tokenizer.gguf" }) {
        if (file_exists(dir + "/" + name)) { return true; }
    }
    return false;
}

bool tokenizer_ours(const std::string& name) {
    const auto is = [&](const char* file) { return name == file || is_temporary(name, file); };
    const bool main_file = is("tokenizer.json") || is("vocab.json") || is("tokenizer.gguf");
    return main_file || std::any_of(std::begin(BESIDE_TOKENIZER), std::end(BESIDE_TOKENIZER), is);
}

Tokenizer tokenizer_of(const std::string& name) {
    return name == "bytes" ? tokenizer_bytes() : tokenizer_load(name);
}

// ----------------------------------------------------------------------------
// encode, decode

void tokenizer_encode_to(const Tokenizer& t, const char* s, size_t n, bool document_start,
                         Ids* out) {
    if (t.kind == TOKENIZER_IDS) {
        die("text: these data have no tokenizer, only ids",
            "give one with --tokenizer tokenizer.json");
    }
    if (t.kind == TOKENIZER_BPE) { return text_folder->encode(t, s, n, document_start, out); }
    const unsigned char* bytes = (const unsigned char*)s;
    out->insert(out->end(), bytes, bytes + n);
}

std::vector<int> tokenizer_encode(const Tokenizer& t, const std::string& text, bool specials) {
    Ids ids;
    if (specials) { ids.assign(t.before.begin(), t.before.end()); }
    std::string repaired = text;
    if (t.kind == TOKENIZER_BPE) { utf8_repair(&repaired); }
    tokenizer_encode_to(t, repaired.data(), repaired.size(), true, &ids);
    if (specials) { ids.insert(ids.end(), t.after.begin(), t.after.end()); }
    return std::vector<int>(ids.begin(), ids.end());
}

std::string tokenizer_decode(const Tokenizer& t, const int* ids, size_t n, bool skip_special) {
    if (t.kind == TOKENIZER_BPE) { return text_folder->decode(t, ids, n, skip_special); }
    std::string out;
    for (size_t i = 0; i < n; i++) {
        const int id = ids[i];
        if (t.kind == TOKENIZER_IDS) { out += strf(i ? " %d" : "%d", id); }
        if (t.kind == TOKENIZER_BYTES && id >= 0 && id < 256) { out += (char)id; }
        if (t.kind == TOKENIZER_BYTES && id == 256 && !skip_special) { out += "<|endoftext|>"; }
    }
    return out;
}

// ----------------------------------------------------------------------------
// ids beyond a model's

int ids_needed(const Tokenizer& t) { return t.bpe ? text_folder->ids(t) : t.vocab_size; }

std::string token_text(const Tokenizer& t, int id) {
    return t.bpe ? text_folder->token(t, id) : "";
}

void vocabulary_check(const Tokenizer& t, int V) {
    const int needed = ids_needed(t);
    if (needed <= V) { return; }
    die("tokenizer " + t.name + strf(": got %d ids, wanted at most the model's %d",
                                     needed, V),
        "give the tokenizer that the model was trained with");
}

void ids_check(const Tokenizer& t, const int* ids, size_t n, int V) {
    for (size_t i = 0; i < n; i++) {
        if (ids[i] < V) { continue; }
        die(strf("the text has token %d, ", ids[i]) + json_str(token_text(t, ids[i])) +
            strf(", and the model has %d ids", V), "leave that token out of the text");
    }
}
