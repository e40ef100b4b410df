/*
tokenizer.h -- text to token ids and back. Three kinds: raw bytes; Hugging Face tokenizer.json (or
vocab.json and merges.txt, or a GGUF file) with the same ids as the `tokenizers` library, which
text/ reads; and bare ids without text.

    tokenizer_load     files -> a Tokenizer                        text/tokenizer_build.h
    tokenizer_encode   added tokens, normalize, split, merge       text/encode.cpp
                       one chapter each: text/added_tokens.h, normalize.h, split.h, bpe.h
    tokenizer_decode   ids -> text                                 text/decode.cpp

Each component of tokenizer.json becomes a Step. An unknown component is an error, because a
tokenizer that is almost right trains a different model. To support a component: see
text/tokenizer_steps.cpp.
*/
#ifndef TOKENIZER_H
#define TOKENIZER_H
#include "base/common.h"
#include <array>
#include <functional>
#include <unordered_map>

enum TokenizerKind { TOKENIZER_BYTES, TOKENIZER_IDS, TOKENIZER_BPE };

// The kinds of steps: text -> text, piece -> pieces, tokens -> text.
enum StepKind {
    NORM_NFC, NORM_PREPEND, NORM_REPLACE, NORM_OTHER,
    SPLIT_GPT2, SPLIT_CL100K, SPLIT_PATTERN, SPLIT_STRING, SPLIT_DIGITS, SPLIT_METASPACE,
    SPLIT_PREFIX,
    DECODE_BYTES, DECODE_REPLACE, DECODE_FALLBACK, DECODE_FUSE, DECODE_STRIP, DECODE_METASPACE
};

// What a Split does with its matches, and when a Metaspace puts a space first.
enum Behavior { REMOVED, ISOLATED, MERGED_WITH_PREVIOUS, MERGED_WITH_NEXT, CONTIGUOUS };
enum Prepend { PREPEND_ALWAYS, PREPEND_FIRST, PREPEND_NEVER };

// Returns the end of the match that starts at s[i], i itself if there is none. *next: where the
// next one may start if there is none here.
typedef std::function<size_t(const std::string& s, size_t i, size_t* next)> Match;

// One step. What a field means depends on the kind.
struct Step {
    StepKind kind;
    std::string pattern;                         // the text to find
    std::string content;                         // its replacement
    Match match;                                 // of SPLIT_PATTERN, which open/ makes
    std::function<std::string(const std::string&)> change;       // and of NORM_OTHER
    double growth = 1;                           // times as long as this makes a text at most
    int number = 0;                              // digits per piece, Prepend, Behavior, or how many
                                                 // to strip at the start
    int stop = 0;                                // how many to strip at the end
    bool flag = false;                           // each digit alone; split at the pattern; invert
};

struct AddedToken {
    std::string text;
    int id;
    bool special;
    bool normalized;                             // matched after the normalizer, not before
    bool lstrip;                                 // absorbs the spaces before it
    bool rstrip;                                 // and those after it
};

// A merge of two neighbors: left << 32 | right becomes id.
struct Merge {
    uint64_t pair;
    uint32_t rank;
    uint32_t id;
};

// All added tokens of one pass as a tree of bytes; node 0 is the root.
struct AddedTree {
    std::vector<int> token;                      // node -> index into added, -1 if none ends here
    std::array<int, 256> first;                  // byte -> node behind the root, 0 if there is none
    std::unordered_map<uint64_t, int> next;      // other node << 8 | byte -> node
    std::string start;                           // their common prefix
};

struct Tokenizer {
    TokenizerKind kind = TOKENIZER_BYTES;
    std::string name = "bytes";
    int vocab_size = 257;                        // ids are 0 .. vocab_size-1
    int eos = 256;                               // -1 if there is none
    int bos = 256;                               // many families use one id for both
    std::vector<int> ends;                       // others that end a text or an answer
    uint64_t hash = 0x6279746573;                // changes if the ids of any text could
    bool match_special = true;                   // special tokens in the text become their ids

    // name and content of its files, to store with checkpoints and shards
    std::vector<std::pair<std::string, std::string>> files;

    // from here on: TOKENIZER_BPE
    std::vector<std::string> text;               // id -> token, as in the vocabulary
    std::vector<std::string> raw;                // id -> its bytes
    std::vector<unsigned char> special;          // id -> left out by decode(skip_special)
    std::vector<unsigned char> whole;            // id -> a piece of these bytes is this token
    std::vector<Step> normalizer;
    std::vector<Step> splitter;
    std::vector<Step> decoder;
    std::vector<AddedToken> added;
    AddedTree added_raw;                         // looked for before the normalizer
    AddedTree added_normalized;                  // and after it
    std::vector<int> before;                     // the template: ids before a text
    std::vector<int> after;                      // and after it

    bool byte_level = false;                     // the vocabulary is in GPT-2's alphabet
    bool byte_fallback = false;                  // what is not in it becomes tokens <0xHH>
    bool fuse_unk = false;                       // a run of unknowns is one token
    bool ignore_merges = false;                  // a piece in the vocabulary is one token
    int unk = -1;
    int byte_id[256];                            // the token of a single byte, -1 if none

    bool cut_at_blocks = false;                  // words between U+2581 merge one by one
    bool cut_at_lines = false;                   // "x\n" and "y" may be encoded apart
    bool cut_at_spaces = false;                  // and so may "x" and " y"

    std::vector<Merge> merges;                   // a hash table by pair
    int merge_shift = 0;
    std::vector<int> slots;                      // a hash table: raw bytes -> id
};

// The files that may be beside that of a tokenizer, and go with it.
inline const char* const BESIDE_TOKENIZER[] = {
    "merges.txt", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json",
    "chat_template.jinja", "generation_config.json",
};

// Returns a token as the vocabulary has it, "" for no token and for those of raw bytes.
inline std::string token_text(const Tokenizer& t, int id) {
    return id >= 0 && id < (int)t.text.size() ? t.text[id] : "";
}

// Returns the command that makes a tokenizer.json of this file, or of one in this directory; ""
// if it is of no known kind.
std::string tokenizer_convert(const std::string& path);

// Returns how many ids a model needs for text that avoids the added tokens at the end of the
// vocabulary. (Gemma 3's tokenizer has one there, for images, that its text model has no row for.)
int ids_needed(const Tokenizer& t);

// Dies if a model with V ids has too few for this tokenizer.
void vocabulary_check(const Tokenizer& t, int V);

// Dies if one of n ids is not below V, and names its token.
void ids_check(const Tokenizer& t, const int* ids, size_t n, int V);

// Returns the token that stands before a text of V ids: EOS, or the last id if there is none.
inline int text_begin(const Tokenizer& t, int V) { return t.eos >= 0 ? t.eos : V - 1; }

static const char* const BLOCK = "\xE2\x96\x81"; // U+2581, SentencePiece's space

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

// Returns the byte of a token such as "<0x41>", -1 for any other token.
int fallback_byte(const std::string& token);

std::string tokenizer_decode(const Tokenizer& t, const int* ids, size_t n, bool skip_special);

#endif // TOKENIZER_H
