/*
gguf_splits.h -- how byte-level tokenizers split text, by the name that GGUF files have for it.
tokenizer_gguf.cpp reads files by it, models/gguf_vocabulary.cpp writes them.
*/
#ifndef GGUF_SPLITS_H
#define GGUF_SPLITS_H
#include "../tokenizer.h"

struct GgufSplit {
    const char* name;
    bool nfc;
    StepKind split;
    int digits;                                          // per piece; 0 in a SPLIT_GPT2: any number
    bool llama3; // a piece in the vocabulary is one token whatever the merges say; BOS comes first
};
static const GgufSplit GGUF_SPLITS[] = {
    { "gpt-2",            false, SPLIT_GPT2,   0, false },
    { "phi-2",            false, SPLIT_GPT2,   0, false },
    { "olmo",             true,  SPLIT_GPT2,   0, false },
    { "mpt",              true,  SPLIT_GPT2,   0, false },
    { "smollm",           false, SPLIT_GPT2,   1, false },
    { "starcoder",        false, SPLIT_GPT2,   1, false },
    { "llama-bpe",        false, SPLIT_CL100K, 3, true },
    { "llama3",           false, SPLIT_CL100K, 3, true },
    { "llama-v3",         false, SPLIT_CL100K, 3, true },
    { "dbrx",             false, SPLIT_CL100K, 3, false },
    { "qwen2",            true,  SPLIT_CL100K, 1, false },
    { "deepseek-r1-qwen", true,  SPLIT_CL100K, 1, false },
};

// Adds the steps of a row.
inline void gguf_split_steps(const GgufSplit& row, std::vector<Step>* normalizer,
                             std::vector<Step>* splitter) {
    auto add = [](std::vector<Step>* to, StepKind kind) {
        to->emplace_back();
        to->back().kind = kind;
        return &to->back();
    };
    if (row.nfc) { add(normalizer, NORM_NFC); }
    if (row.split == SPLIT_GPT2 && row.digits) { add(splitter, SPLIT_DIGITS)->flag = true; }
    add(splitter, row.split)->number = row.digits;
}
#endif // GGUF_SPLITS_H
