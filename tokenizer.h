/*
tokenizer.h -- text to token ids and back. Two kinds: raw bytes, and Hugging Face tokenizer.json.
*/
#ifndef TOKENIZER_H
#define TOKENIZER_H
#include "common.h"

enum TokenizerKind { TOKENIZER_BYTES, TOKENIZER_IDS };

struct Tokenizer {
    TokenizerKind kind = TOKENIZER_BYTES;
    std::string name = "bytes";
    int vocab_size = 257;                                // ids are 0 .. vocab_size-1
    int eos = 256, bos = 256;                            // -1 if there is none; many families use one id for both
    uint64_t hash = 0x6279746573;                        // changes whenever the ids of any text could
};

// id = byte; 256 ends a document. Nothing is normalised: any file comes back bit for bit.
inline Tokenizer tokenizer_bytes() { return Tokenizer(); }

// ids that mean nothing to us: shards whose tokenizer is unknown, and the built-in task; they decode to numbers
inline Tokenizer tokenizer_ids(const std::string& name, int V) {
    Tokenizer t;
    t.kind = TOKENIZER_IDS; t.name = name; t.vocab_size = V; t.eos = t.bos = -1; t.hash = 0;
    return t;
}

inline Tokenizer tokenizer_load(const std::string& path) {
    die(EXIT_USER, path + ": tokenizer.json cannot be read by this build yet", "leave --tokenizer out to train on bytes");
}

// specials: whether special tokens written out in the text become their ids, and the BOS template is applied
inline std::vector<int> tokenizer_encode(const Tokenizer& t, const std::string& text, bool specials) {
    (void)specials;
    if (t.kind == TOKENIZER_IDS) { die(EXIT_USER, "text: these data have no tokenizer, only ids", "give one with --tokenizer tokenizer.json"); }
    return std::vector<int>((const unsigned char*)text.data(), (const unsigned char*)text.data() + text.size());
}
inline std::string tokenizer_decode(const Tokenizer& t, const int* ids, size_t n, bool skip_special) {
    std::string out;
    for (size_t i = 0; i < n; i++) {
        if (t.kind == TOKENIZER_IDS) { out += strf("%s%d", i ? " " : "", ids[i]); continue; }
        if (ids[i] >= 0 && ids[i] < 256) { out += (char)ids[i]; }
        else if (ids[i] == 256 && !skip_special) { out += "<|endoftext|>"; }
    }
    return out;
}

#endif // TOKENIZER_H
