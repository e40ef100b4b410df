/*
tokenize.h -- text -> shards and a manifest.json. One thread reads blocks and writes shards, the
others encode; the order is the text's with any number of them.
*/
#ifndef TEXT_TOKENIZE_H
#define TEXT_TOKENIZE_H
#include "documents.h"
#include "shard_out.h"

// What to do with text, for the tokenize command and for -d FILE alike.
struct TokenizeOptions : EncodeOptions {
    // .txt .jsonl .jsonl.zst .jsonl.gz, directories of them, "-": .jsonl on standard input
    std::vector<std::string> files;
    std::vector<std::string> val_files;
    std::string tokenizer;               // path of tokenizer.json, "" = bytes
    std::string out;                     // the directory of shards to make
    std::string shown;                   // what to call that directory, "" = by its name
    double val_fraction = 0;             // of the documents, chosen by number, into val shards
    long tokens = 0;                     // stop after so many training tokens; 0: all. If `domains`
                                         // has shares: so many in all, by share
    long shard_tokens = 100000000;
    int threads = 0;                     // 0: all cores
    bool locked = false;                 // the caller holds the lock of `out`

    // `domains`: "" is all together; all: a series of shards per domain; paper: the paper's 17
    // only; or NAME,NAME:SHARE,..
};

// Writes OUT/train*.bin, val*.bin and manifest.json: the same bytes with any number of threads.
void tokenize_main(const TokenizeOptions& o);

// Prints the text of every document of o.files, with a zero byte behind it.
void print_text(const TokenizeOptions& o);
#endif // TEXT_TOKENIZE_H
