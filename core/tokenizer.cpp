/*
core/tokenizer.cpp -- tokenizers of bare ids, and what all have; those of text are text/'s.
*/
#include "../tokenizer.h"
#include "../optional.h"

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
    return name == "bytes" ? Tokenizer() : text_needed(name).tokenizer(name);
}

std::string tokenizer_decode(const Tokenizer& t, const int* ids, size_t n, bool skip_special) {
    if (has_text(t)) { return text_folder->decode(t, ids, n, skip_special); }
    std::string out;
    for (size_t i = 0; i < n; i++) { list_add(&out, std::to_string(ids[i]), " "); }
    return out;
}
