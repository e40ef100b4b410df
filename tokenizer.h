/*
tokenizer.h -- text to token ids and back. Three kinds: raw bytes; Hugging Face tokenizer.json (or
vocab.json and merges.txt, or a GGUF file) with the same ids as the `tokenizers` library, which
text/ reads; and bare ids without text.

    tokenizer_load     files -> a Tokenizer                        text/tokenizer_build.h
    tokenizer_encode   added tokens, normalize, split, merge       text/encode.cpp
                       one chapter each: text/added_tokens.h, normalize.h, split.h, bpe.h
    tokenizer_decode   ids -> text                                 text/decode.cpp

What it reads of files is a Bpe: text/vocabulary.h.
*/
#ifndef TOKENIZER_H
#define TOKENIZER_H
#include "base/common.h"
#include <memory>

enum TokenizerKind { TOKENIZER_BYTES, TOKENIZER_IDS, TOKENIZER_BPE };

struct Bpe;

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

// Returns a token as the vocabulary has it, "" for no token and for those of raw bytes.
std::string token_text(const Tokenizer& t, int id);

// Returns how many ids a model needs for text that avoids the added tokens at the end of the
// vocabulary. (Gemma 3's tokenizer has one there, for images, that its text model has no row for.)
int ids_needed(const Tokenizer& t);

// Dies if a model with V ids has too few for this tokenizer.
void vocabulary_check(const Tokenizer& t, int V);

// Dies if one of n ids is not below V, and names its token.
void ids_check(const Tokenizer& t, const int* ids, size_t n, int V);

// Returns the token that stands before a text of V ids: EOS, or the last id if there is none.
inline int text_begin(const Tokenizer& t, int V) { return t.eos >= 0 ? t.eos : V - 1; }

// ----------------------------------------------------------------------------
// loading

// Returns the tokenizer of raw bytes: id = byte; 256 ends a document. Nothing is normalized: any
// file comes back bit for bit.
Tokenizer tokenizer_bytes();

// Returns a tokenizer for ids whose text is unknown: shards without a tokenizer, and the built-in
// task. They decode to numbers.
Tokenizer tokenizer_ids(const std::string& name, int V);

// Reads a tokenizer. path: tokenizer.json, a GGUF file, or a directory that has one of them, or
// vocab.json and merges.txt.
Tokenizer tokenizer_load(const std::string& path);

// Returns what --tokenizer names: "bytes", or a path.
Tokenizer tokenizer_of(const std::string& name);

// Tells whether this directory has the files of a tokenizer, as they are kept with shards and
// checkpoints.
bool tokenizer_is_in(const std::string& dir);

// Tells whether this is the name of one of these files.
bool tokenizer_ours(const std::string& name);

// ----------------------------------------------------------------------------
// encode

typedef std::vector<uint32_t> Ids;

// Appends the ids of a text to *out. If a text comes in several calls, only the first starts the
// document.
void tokenizer_encode_to(const Tokenizer& t, const char* s, size_t n, bool document_start,
                         Ids* out);

// Returns the ids of a text. specials: with the template around it (BOS, for the families that want
// one).
std::vector<int> tokenizer_encode(const Tokenizer& t, const std::string& text, bool specials);

// ----------------------------------------------------------------------------
// decode

// Returns the character that stands for each byte in a byte-level vocabulary, as GPT-2's.
std::vector<uint32_t> byte_alphabet();

std::string tokenizer_decode(const Tokenizer& t, const int* ids, size_t n, bool skip_special);

#endif // TOKENIZER_H
