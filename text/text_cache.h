/*
text_cache.h -- shards of a text file that -d names: made once, under data/cache, and found again.
*/
#ifndef TEXT_CACHE_H
#define TEXT_CACHE_H
#include "../dataloader.h"
#include "../optional.h"
#include "documents.h"

// Sets how the records of a .jsonl become conversations, if --sft asks for it. Dies if they or the
// tokenizer cannot.
void sft_options(const DataOptions& opt, const std::string& path, const Tokenizer& tok,
                 EncodeOptions* o);

// Dies if a source is no file of conversations where --sft wants one, or if --skip-bad has nothing
// to leave out.
void sources_check(const DataOptions& opt, const std::vector<std::string>& names);

// Returns the directory of shards of a text file: made now, or found from an earlier run with the
// same file and tokenizer.
std::string text_cache(const std::string& path, const Tokenizer& tok, const DataOptions& opt);

// How to read a file of prompts, such as the paper's probe files.
struct PromptOptions {
    int n;                                       // sequences
    int len;                                     // of each, not counting the extra target
    bool skip_bad = false;
    bool windows = false;                        // all records laid end to end, each with EOS, and
                                                 // sequence i is their tokens [i len, i len + len]
    const DataOptions* edits = NULL;             // BOS and edits
};

// Writes the first len + 1 tokens of each .jsonl record that is long enough to out (n, len + 1);
// returns how many there are. Counts the shorter records, which it skips, and those that came with
// a BOS.
int prompts_of_text(const std::string& path, const Tokenizer& tok, const PromptOptions& wanted,
                    int* out, TextCounts* counts);

// Makes the sequences of a probe of -d, a .jsonl: the start of each record, or windows of its text.
// Returns false if -d is none; dies if the flags ask of a text what it has not.
bool probe_records(const Flags& f, const ProbeBos& bos, const ProbeData& p, int T, int V,
                   ProbeInput* in);
#endif // TEXT_CACHE_H
