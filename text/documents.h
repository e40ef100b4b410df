/*
documents.h -- a block of text -> the ids of its documents. Runs on many threads.
*/
#ifndef DOCUMENTS_H
#define DOCUMENTS_H
#include "text_files.h"

// How a text becomes documents of ids.
struct EncodeOptions {
    std::string bos = "none";            // none | doc
    std::string domains;                 // "" : all together; else each document has a domain
    bool skip_bad = false;               // count and skip broken records
    std::string sft;                     // "", or the form of conversations, if records are
    bool assistant_only = false;         // of those: no loss but on what the assistant says
    long first = 0;                      // how many ids of each record are wanted; 0: all
};

// Returns the name of a domain as RegMix spells it: "Gutenberg (PG-19)" -> gutenberg_pg_19.
std::string domain_name(const std::string& set);

// Encodes a block. The first bad record ends it with an error that names its line.
void text_encode(const Tokenizer& tok, const EncodeOptions& o, TextBlock* b);
#endif // DOCUMENTS_H
