/*
text_cache.h -- shards of a text file that -d names: made once, under data/cache, and found again.
*/
#ifndef TEXT_CACHE_H
#define TEXT_CACHE_H
#include "../dataloader.h"
#include "documents.h"

// Sets how the records of a .jsonl become conversations, if --sft asks for it. Dies if they or the
// tokenizer cannot.
void sft_options(const DataOptions& opt, const std::string& path, const Tokenizer& tok,
                 EncodeOptions* o);

// Returns the directory of shards of a text file: made now, or found from an earlier run with the
// same file and tokenizer.
std::string text_cache(const std::string& path, const Tokenizer& tok, const DataOptions& opt);

// Reads a file of prompts: data_prompts of dataloader.h.
int prompts_of_text(const std::string& path, const Tokenizer& tok, const PromptOptions& wanted,
                    int* out, TextCounts* counts);
#endif // TEXT_CACHE_H
