/*
gguf_splits.h -- how byte-level tokenizers split text, by the name that GGUF files have for it.
tokenizer_gguf.cpp reads files by it.
*/
#ifndef GGUF_SPLITS_H
#define GGUF_SPLITS_H
#include "expressions.h"
#include "text_steps.h"

struct GgufSplit {
    const char* name;
    bool nfc;
    StepKind split;
    int digits;                                          // per piece; 0: any number
    bool llama3; // a piece in the vocabulary is one token whatever the merges say; BOS comes first
    const char* expressions[4] = {};                     // of SPLIT_PATTERN, one after the other
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
    { "tekken",           false, SPLIT_PATTERN, 0, true, { EXPRESSION_TEKKEN } },
    { "gpt-4o",           false, SPLIT_PATTERN, 0, false, { EXPRESSION_O200K } },
    { "deepseek-v3",      false, SPLIT_PATTERN, 0, false,
      { "\\p{N}{1,3}", "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+", EXPRESSION_DEEPSEEK_V3 } },
    { "deepseek-coder",   false, SPLIT_PATTERN, 1, false,
      { "[\r\n]", "\\s?\\p{L}+", "\\s?\\p{P}+",
        "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\xED\x9F\xBF]+" } },
};

inline Step* add_step(std::vector<Step>* steps, StepKind kind, const char* pattern = "",
                      const char* content = "") {
    steps->emplace_back();
    steps->back().kind = kind;
    steps->back().pattern = pattern;
    steps->back().content = content;
    return &steps->back();
}

// Adds the steps of a row.
inline void gguf_split_steps(const GgufSplit& row, std::vector<Step>* normalizer,
                             std::vector<Step>* splitter) {
    if (row.nfc) { add_step(normalizer, NORM_NFC); }
    for (const char* regex : row.expressions) {
        if (!regex) { break; }
        Step step;
        const bool read = pattern_step(regex, &step);
        if (!read) { die(std::string("not an expression: ") + regex); }
        splitter->push_back(step);
    }
    const bool each_digit = row.split != SPLIT_CL100K && row.digits;
    if (each_digit) { add_step(splitter, SPLIT_DIGITS)->flag = true; }
    if (row.split != SPLIT_PATTERN) { add_step(splitter, row.split)->number = row.digits; }
}
#endif // GGUF_SPLITS_H
