/*
tokenizer.h -- what token ids stand for. Three kinds of tokenizers: bare ids without text; raw
bytes; and Hugging Face's tokenizer.json (or vocab.json and merges.txt, or a GGUF file), with the
same ids as the `tokenizers` library. The text of the last two needs text/: text/encode.h.
*/
#ifndef TOKENIZER_H
#define TOKENIZER_H
#include "base/common.h"
#include "optional.h"
#include <memory>

enum TokenizerKind { TOKENIZER_BYTES, TOKENIZER_IDS, TOKENIZER_BPE };

struct Bpe;

// By default that of raw bytes: id = byte; 256 ends a document. Nothing is normalized: any file
// comes back bit for bit.
struct Tokenizer {
    TokenizerKind kind = TOKENIZER_BYTES;
    std::string name = "bytes";
    int vocab_size = 257;                        // ids are 0 .. vocab_size-1
    int eos = 256;                               // -1 if there is none
    int bos = 256;                               // many families use one id for both
    std::vector<int> ends;                       // others that end a text or an answer
    uint64_t hash = 0x6279746573;                // changes if the ids of any text could

    // name and content of its files, to store with checkpoints and shards
    std::vector<std::pair<std::string, std::string>> files;

    std::vector<int> before;                     // the template: ids before a text
    std::vector<int> after;                      // and after it
    std::shared_ptr<const Bpe> bpe;              // of TOKENIZER_BPE: all else, text/vocabulary.h
};

// The files that may be beside that of a tokenizer, and go with it.
inline const char* const BESIDE_TOKENIZER[] = {
    "merges.txt", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json",
    "chat_template.jinja", "generation_config.json",
};

// Returns the token that stands before a text of V ids: EOS, or the last id if there is none.
inline int text_begin(const Tokenizer& t, int V) { return t.eos >= 0 ? t.eos : V - 1; }

// ----------------------------------------------------------------------------
// loading

// Returns a tokenizer for ids whose text is unknown: shards without a tokenizer, and the built-in
// task. They decode to numbers.
Tokenizer tokenizer_ids(const std::string& name, int V);

// Returns what --tokenizer names: "bytes", or a path, which text/ reads.
Tokenizer tokenizer_of(const std::string& name);

// Tells whether this directory has the files of a tokenizer, as they are kept with shards and
// checkpoints.
bool tokenizer_is_in(const std::string& dir);

// Tells whether this is the name of one of these files.
bool tokenizer_ours(const std::string& name);

// ----------------------------------------------------------------------------
// decoding

// Tells whether text can be made of ids: not of bare ones, and not without text/.
inline bool has_text(const Tokenizer& t) { return text_folder && t.kind != TOKENIZER_IDS; }

// Returns the text of n ids, or themselves where they have none. skip_special: without that of
// special tokens.
std::string tokenizer_decode(const Tokenizer& t, const int* ids, size_t n, bool skip_special);

#endif // TOKENIZER_H
