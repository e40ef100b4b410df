/*
tokenizer.h -- text to token ids and back. Three kinds: raw bytes; Hugging Face tokenizer.json (or
vocab.json and merges.txt, or a GGUF file) with the same ids as the `tokenizers` library; and bare
ids that nobody can read. In reading order:

    unicode     letter, number, space, and the normal form C
    tokenizer   the struct, and tokenizer_load
    bpe         merging one piece, with a cache of pieces
    split       text -> pieces
    encode      special tokens, normalize, split, merge        decode      and back

The engine is driven by the file: each component of tokenizer.json becomes a Step, or the file is
refused, because a tokenizer that is nearly right trains another model. To support a component: one
Step kind, one case in tokenizer_steps, one case where steps of its stage run (normalize_step,
split_step, decode_step).
*/
#ifndef TOKENIZER_H
#define TOKENIZER_H
#include "common.h"
#include <array>
#include <unordered_map>

// ----------------------------------------------------------------------------
// unicode: classes as in Unicode 16, normal form C as in Unicode 9: what Hugging Face tokenizers
// 0.23 has inside

enum { CLASS_OTHER, CLASS_L, CLASS_N, CLASS_S, CLASS_MASK = 3, NFC_CHECK = 4 };

struct Unicode {
    std::vector<unsigned char> flags, ccc; // per code point: class and NFC_CHECK; combining class
    // -> one or two (second 0) code points
    std::unordered_map<uint32_t, std::pair<uint32_t, uint32_t>> decomposition;
    std::unordered_map<uint64_t, uint32_t> composition;  // first << 32 | second -> composite
};

// never freed: threads may outlive exit()
const Unicode& unicode();

bool utf8_valid(const std::string& s);

// decompose, order the marks, compose (UAX 15), on a stretch whose neighbors cannot take part
void nfc_stretch(const Unicode& u, const char* s, size_t n, std::string* out);

// s (valid UTF-8) -> its normal form C. Text with nothing to do is not copied: then false, and out
// stays empty.
bool nfc(const char* s, size_t n, std::string* out);

// ----------------------------------------------------------------------------
// tokenizer

enum TokenizerKind { TOKENIZER_BYTES, TOKENIZER_IDS, TOKENIZER_BPE };
enum StepKind {
    NORM_NFC, NORM_PREPEND, NORM_REPLACE, // text -> text
    // piece -> pieces
    SPLIT_GPT2, SPLIT_CL100K, SPLIT_STRING, SPLIT_DIGITS, SPLIT_METASPACE, SPLIT_PREFIX,
    DECODE_BYTES, DECODE_REPLACE, DECODE_FALLBACK, DECODE_FUSE, DECODE_STRIP, DECODE_METASPACE
};
enum Behavior { REMOVED, ISOLATED, MERGED_WITH_PREVIOUS, MERGED_WITH_NEXT, CONTIGUOUS };
enum Prepend { PREPEND_ALWAYS, PREPEND_FIRST, PREPEND_NEVER };
struct Step {
    StepKind kind; std::string from, to;                 // what is looked for, what takes its place
    // digits per piece | Prepend | Behavior | how many to strip at start and stop
    int number = 0, stop = 0;
    bool flag = false; // each digit alone | split at the replacement | invert
};
struct AddedToken { std::string text; int id; bool special, normalized, lstrip, rstrip; };
// pair = left << 32 | right; ~0 marks an empty slot
struct Merge { uint64_t pair; uint32_t rank, id; };

// All added tokens of one pass as a tree of bytes; node 0 is the root.
struct AddedTree {
    std::vector<int> token;                              // node -> index into added, -1 none
    std::array<int, 256> first;                          // byte -> node behind the root, 0 none
    std::unordered_map<uint64_t, int> next;              // any other node << 8 | byte -> node
    std::string start;                                   // what they all start with
};

struct Tokenizer {
    TokenizerKind kind = TOKENIZER_BYTES;
    std::string name = "bytes";
    int vocab_size = 257;                                // ids are 0 .. vocab_size-1
    int eos = 256, bos = 256; // -1 if there is none; many families use one id for both
    uint64_t hash = 0x6279746573; // changes whenever the ids of any text could
    // name, content: what it was read from, so that it can be kept
    std::vector<std::pair<std::string, std::string>> files;
    // special tokens written out in the text become their ids, as in HF
    bool match_special = true;
    // from here on: TOKENIZER_BPE
    std::vector<std::string> text, raw;                  // id -> as in the vocabulary, and as bytes
    std::vector<unsigned char> special;                  // id -> left out by decode(skip_special)
    std::vector<unsigned char> whole; // id -> a piece that is this token is encoded as this token
    std::vector<Step> normalizer, splitter, decoder;
    bool byte_level = false, byte_fallback = false, fuse_unk = false, ignore_merges = false;
    // no token has a U+2581 after anything else: words can be merged one by one
    bool cut_at_blocks = false;
    // byte_id: the token of a single byte (byte_level), or of <0xHH>; -1 none
    int unk = -1, byte_id[256];
    std::vector<AddedToken> added;
    AddedTree added_raw, added_normalized; // looked for before and after the normalizer
    std::vector<int> before, after;                      // template: ids around a text
    // a text may be cut between "x\n" and "y", and its parts encoded one by one; and
    // between a letter and a space
    bool cut_at_lines = false, cut_at_spaces = false;
    std::vector<Merge> merges; int merge_shift = 0;      // a hash table
    std::vector<int> slots;                              // another: raw bytes -> id
};

// id = byte; 256 ends a document. Nothing is normalized: any file comes back bit for bit.
Tokenizer tokenizer_bytes();

// ids that mean nothing to us: shards whose tokenizer is unknown, and the built-in task; they
// decode to numbers
Tokenizer tokenizer_ids(const std::string& name, int V);

static const char* const BLOCK = "\xE2\x96\x81";         // U+2581, SentencePiece's space

// what loading needs to say an error with, and nothing else
struct TokenizerFile { std::string path; };
[[noreturn]] void refuse(const TokenizerFile& f, const std::string& what,
                         const char* hint = "");

const Merge* merge_find(const Tokenizer& t, uint32_t a, uint32_t b);

typedef std::unordered_map<std::string, int> Vocab;

// everything that follows from vocabulary and components
void tokenizer_finish(const TokenizerFile& f, Tokenizer* t, const Vocab& vocab);

void tokenizer_load_json(const TokenizerFile& f, Tokenizer* t, Vocab* vocab,
                         const std::string& dir, const Json& j);

// path: tokenizer.json, a GGUF file, or a directory that has one of them, or vocab.json +
// merges.txt
Tokenizer tokenizer_load(const std::string& given);

// Has this directory the files of a tokenizer, as we keep them with shards and checkpoints?
bool tokenizer_is_in(const std::string& dir);

// Is this the name of one of these files?
bool tokenizer_ours(const std::string& name);

// what --tokenizer names, or a checkpoint
Tokenizer tokenizer_of(const std::string& name);

// ----------------------------------------------------------------------------
// bpe: one piece -> ids. Of all neighbors that merge, the pair of lowest rank merges first, the
// leftmost of equals.

typedef std::vector<uint32_t> Ids;

// Per thread: room to work in, and the ids of pieces met before: short pieces repeat so much that
// most are found here. up to 15 bytes, the length in the top byte of hi; ids end at NO_ID
struct PieceSlot { uint64_t lo, hi; uint32_t ids[4]; };
enum : uint32_t { NO_ID = 0xFFFFFFFF };
struct Scratch {
    uint64_t owner = 0;
    std::vector<PieceSlot> cache;
    Ids id, rank, made, next, prev;
    std::vector<uint64_t> heap;
    std::string text[3];
};

// the symbols merging starts from: bytes, or characters, or what stands for those the vocabulary
// does not have
void piece_symbols(const Tokenizer& t, const char* s, size_t n, Ids* out);

// few symbols: look for the best pair again after every merge
void merge_short(const Tokenizer& t, Scratch* w);

// many symbols: a heap of (rank, position) over a linked list, stale entries dropped: n log n
void merge_long(const Tokenizer& t, Scratch* w);

// ----------------------------------------------------------------------------
// split: text -> pieces

// one step on one piece; first: it is at the very start of the text
void split_step(const Step& step, std::string piece, bool first,
                std::vector<std::string>* out);

// ----------------------------------------------------------------------------
// encode

// appends the ids of text to out; a text given in several calls is the start of a document only in
// the first
void tokenizer_encode_to(const Tokenizer& t, const char* s, size_t n, bool document_start,
                         Ids* out);

// specials: put the template around the text (BOS, for the families that want one)
std::vector<int> tokenizer_encode(const Tokenizer& t, const std::string& text,
                                  bool specials);

// ----------------------------------------------------------------------------
// decode

// Returns the character that stands for each byte in a vocabulary of bytes, as GPT-2's.
std::vector<uint32_t> byte_alphabet();

// "<0x41>" -> 0x41, -1 if it is not such a token
int fallback_byte(const std::string& s);

std::string tokenizer_decode(const Tokenizer& t, const int* ids, size_t n,
                             bool skip_special);

// One id at a time, for printing while generating: returns the text that id made certain. The last
// characters wait while they could still change (half a character, a space that joins the next
// token).
struct TextStream { std::vector<int> ids; size_t shown = 0; };
std::string tokenizer_stream(const Tokenizer& t, TextStream* s, int id);

#endif // TOKENIZER_H
