/*
vocabulary.h -- a tokenizer of files: its vocabulary, its merges, and the steps from a text to
pieces.

Each component of tokenizer.json becomes a Step. An unknown component is an error, because a
tokenizer that is almost right trains a different model. To support a component: see
tokenizer_steps.cpp.
*/
#ifndef VOCABULARY_H
#define VOCABULARY_H
#include "encode.h"
#include <array>
#include <unordered_map>

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
    explicit Step(StepKind kind = NORM_NFC) : kind(kind) {}

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

// What a Tokenizer of files has behind its pointer: itself, and all of these.
struct Bpe : Tokenizer {
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

static const char* const BLOCK = "\xE2\x96\x81"; // U+2581, SentencePiece's space

// Returns the byte of a token such as "<0x41>", -1 for any other token.
int fallback_byte(const std::string& token);
#endif // VOCABULARY_H
