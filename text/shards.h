/*
shards.h -- files of token ids, and how text becomes them. In reading order:

    shards      files of token ids, mapped into memory; several of them seen as one long line
                of tokens
    text        .txt and .jsonl(.zst|.gz) -> documents
    tokenize    documents -> ids, on all cores -> shards and a manifest.json (`train_sink tokenize`)

To read another shard format: one more case in shard_parse. Another text format: text_format,
text_next and text_encode.
*/
#ifndef SHARDS_H
#define SHARDS_H
#include "../common.h"
#include "../tokenizer.h"
#include "lock.h"
#include "look.h"
#include "maps.h"
#include <limits.h>
#include <signal.h>
#include <sys/wait.h>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <system_error>
#include <thread>

// ----------------------------------------------------------------------------
// shards

enum { SHARD_TOKENS = 100000000 };         // tokens per shard when we write them

#define RAW_FORMAT "raw uint16"

// What the manifest says of a shard that we wrote: its tokens, and a hash of each SHARD_BLOCK bytes
// of them. A block is compared when it is first read.
enum { SHARD_BLOCK = 1 << 20 };
struct ShardSums {
    std::string name;
    long tokens = 0;
    std::vector<uint64_t> hashes;
    std::vector<char> compared;
};

// width: bytes per token; sums: NULL if nothing is known
struct Shard {
    std::string path, format;
    const unsigned char* tokens;
    int width;
    long n;
    std::shared_ptr<ShardSums> sums;
};

// what the `size` bytes at p are: tokens in one of four formats, or refused
Shard shard_parse(const std::string& path, const unsigned char* p, long size);

Shard shard_open(const std::string& path);

// Dies if a file without a header, read as 16 bits a token, looks like one of another width, or
// like text. V: ids are below it.
void shard_raw_check(const Shard& s, long V);

long shard_token(const Shard& s, long i);

// Compares the blocks of tokens [from, from + n) that have not been yet. Returns the first token of
// a block that is not as it was written, or -1.
long shard_changed(const Shard& s, long from, long n);

// Says what is wrong with the shard in `dir` that `sums` describe, "" if nothing. whole: reads all
// of its tokens.
std::string shard_fault(const std::string& dir, const ShardSums& sums, bool whole);

// Writes one shard; the count goes into the header last, and the name appears only when all of it
// is on the disk.
struct ShardOut {
    FileOut file;
    int width;
    long n;
    std::string block;                      // what no hash has been taken of yet
    std::vector<uint64_t> hashes;
};

// A stretch of a line of shards: tokens [from, from + n) of all shards laid end to end.
struct Tokens { std::vector<Shard> shards; std::vector<long> end; long from = 0, n = 0; };

void tokens_add(Tokens* t, const Shard& s);

// out (n) <- tokens at..at+n; an id >= V is the user's mistake
void tokens_copy(const Tokens& t, long at, long n, int V, int* out);

// ----------------------------------------------------------------------------
// text: files of documents, read in blocks of whole lines, so that many threads can encode what one
// reads and writes

enum TextFormat { TEXT_UNKNOWN, TEXT_TXT, TEXT_JSONL };
enum { TEXT_BLOCK = 1 << 20 }; // bytes read at a time; a longer line makes a longer block
enum { TEXT_LINE = 256 << 20 };  // bytes of the longest line of a .jsonl

struct TextFile {
    std::string path; TextFormat format; const char* unpack;
    int fd; pid_t child; // what is read; the process that unpacks, 0 if none
    int raw; // the file itself: its position tells how far a child has come
    std::string rest; bool at_end; long line; // read, but not yet given out; lines given out
    std::string error;                                   // it could not be read to its end
};
struct TextCounts {
    long documents = 0, tokens = 0, bytes = 0, replaced = 0, skipped = 0;
    long begun = 0;                              // documents that begin with BOS themselves
};
// its last id is ids[end-1]; whole: the document ends here
struct TextDoc { size_t end; std::string domain; bool whole; };
struct TextBlock {
    // first, last: of a .txt document
    const TextFile* file; std::string text; long line; bool first, last;
    // what became of the text
    Ids ids; std::vector<TextDoc> docs; TextCounts counts; std::string error;
};

TextFormat text_format(const std::string& path, const char** unpack = NULL);

// Dies unless the file can be read as text, by its name and its first bytes. what: what else is
// wanted
void text_check(const std::string& path, const std::string& what);

TextFile text_open(const std::string& path);

void text_close(TextFile* t);

// May s (n bytes) be cut before s[i], and its parts be encoded one by one? A tokenizer that allows
// it never looks across the place between "x\n" and "y", or between a letter and a space.
bool text_cuts(const Tokenizer& tok, const char* s, size_t n, size_t i);

// the last such place short of the end of a long .txt; 0 if there is none
size_t text_cut(const Tokenizer& tok, const std::string& s);

// The next block of t, false at the end; a block with an error if the end came too soon. A block of
// a .jsonl has whole lines, one of a .txt can be encoded by itself.
bool text_next(TextFile* t, const Tokenizer& tok, TextBlock* b);

// ----------------------------------------------------------------------------
// tokenize: one thread reads blocks and writes shards, the others encode; the order is the text's
// with any number of them

// What to do with text, for the tokenize command and for -d FILE alike.
struct TokenizeOptions {
    // .txt .jsonl .jsonl.zst .jsonl.gz, directories of them, "-": .jsonl on standard input
    std::vector<std::string> files, val_files;
    // path of tokenizer.json, "" = bytes; the directory of shards to make
    std::string tokenizer, out;
    std::string shown;                           // what to call that directory, "" = by its name
    std::string bos = "none";                    // none | doc
    // "": all together; all: a shard series per domain; paper: the paper's 17 only; or a,b:SHARE,c
    std::string domains;
    double val_fraction = 0; // of the documents, chosen by number, into val shards
    // stop after so many training tokens; 0 = all. With SHAREs: so many in all, by share
    long tokens = 0;
    long shard_tokens = SHARD_TOKENS;
    int threads = 0;                             // 0 = all cores
    bool skip_bad = false, quiet = false;
    bool locked = false;                         // the caller holds the lock of `out`
    std::string sft;                 // "", or the template of the conversations that records are
    bool assistant_only = false;     // of those: no loss but on what the assistant says
    // how many ids of each record are wanted; the rest may be left out. 0 = all
    long first = 0;
};

// block -> ids; runs on many threads. The first bad record ends the block with an error that names
// its line.
void text_encode(const Tokenizer& tok, const TokenizeOptions& o, TextBlock* b);

// one series of shards: DIR/NAME_000000.bin, NAME_000001.bin, ...
struct ShardSeries {
    std::string name;
    ShardOut out;
    int shards = 0;
    std::vector<ShardSums> written;
    long documents = 0, tokens = 0, limit = 0;
};

// Everything the threads share. Blocks go round a ring: read, encode, write, in the order of the
// text.
enum BlockState { BLOCK_FREE, BLOCK_READ, BLOCK_BUSY, BLOCK_DONE };
struct Tokenizing {
    TokenizeOptions o;
    Tokenizer tok;
    std::string made;                       // tokenizing_made, before the first byte is read
    // files from val_from on go into val shards
    std::vector<TextFile> files; size_t val_from = 0, file = 0;
    std::vector<TextBlock> ring; std::vector<BlockState> state;
    uint64_t read = 0, taken = 0, written = 0; // blocks so far; block k has place k % ring.size()
    bool stop = false;
    std::mutex lock; std::condition_variable change;
    std::vector<ShardSeries> series;
    // the domains wanted; share 0 when none is given
    std::vector<std::pair<std::string, double>> shares;
    TextCounts counts; long dropped = 0; // documents of other domains, or over their share
    uint64_t document = 0; bool full = false;
    double start_ms = 0, shown_ms = 0; long total_bytes = 0;
};

// what decides every token that comes out: two runs in which this is equal make the same shards
std::string tokenizing_made(const Tokenizing& z);

// Is this the name of a file that tokenize makes in a directory of shards? Is this the text of the
// manifest that it writes there, first or last?
bool tokenizing_ours(const std::string& name);
bool tokenizing_manifest_ours(const std::string& text);

// was this file written, moved to its place or given another time after that one?
bool changed_since(const std::string& path, const std::string& other);

// the shards that a manifest lists; none in one that was made before there were hashes
std::vector<ShardSums> manifest_sums(const Json& manifest);

// text -> o.out/train*.bin, val*.bin, manifest.json; the same bytes with any number of threads
int tokenize_main(const TokenizeOptions& o);
#endif // SHARDS_H
