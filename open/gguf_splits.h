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
    StepKind split;
    const char* expressions[4] = {};                     // of SPLIT_PATTERN, one after the other
    int digits = 0;                                      // per piece; 0: any number
    bool nfc = false;
    bool llama3 = false;                                 // a piece in the vocabulary is one token
                                                         // whatever the merges say; BOS comes first
};
static const GgufSplit GGUF_SPLITS[] = {
    { "gpt-2",            SPLIT_GPT2 },
    { "phi-2",            SPLIT_GPT2 },
    { "olmo",             SPLIT_GPT2, {}, 0, true },
    { "mpt",              SPLIT_GPT2, {}, 0, true },
    { "smollm",           SPLIT_GPT2, {}, 1 },
    { "starcoder",        SPLIT_GPT2, {}, 1 },
    { "llama-bpe",        SPLIT_CL100K, {}, 3, false, true },
    { "llama3",           SPLIT_CL100K, {}, 3, false, true },
    { "llama-v3",         SPLIT_CL100K, {}, 3, false, true },
    { "dbrx",             SPLIT_CL100K, {}, 3 },
    { "qwen2",            SPLIT_CL100K, {}, 1, true },
    { "deepseek-r1-qwen", SPLIT_CL100K, {}, 1, true },
    { "tekken",           SPLIT_PATTERN, { EXPRESSION_TEKKEN }, 0, false, true },
    { "gpt-4o",           SPLIT_PATTERN, { EXPRESSION_O200K } },
    { "deepseek-v3",      SPLIT_PATTERN,
      { "\\p{N}{1,3}", "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+", EXPRESSION_DEEPSEEK_V3 } },
    { "deepseek-coder",   SPLIT_PATTERN,
      { "[\r\n]", "\\s?\\p{L}+", "\\s?\\p{P}+",
        "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\xED\x9F\xBF]+" }, 1 },
};

inline Step* add_step(std::vector<Step>* steps, StepKind kind, const char* pattern = "",
                      const char* content = "") {
    Step& step = steps->emplace_back(kind);
    step.pattern = pattern;
    step.content = content;
    return &step;
}

// Adds the steps of a row, whose expressions pattern.h reads.
inline void gguf_split_steps(const GgufSplit& row, std::vector<Step>* normalizer,
                             std::vector<Step>* splitter) {
    if (row.nfc) { add_step(normalizer, NORM_NFC); }
    for (const char* regex : row.expressions) {
        if (!regex) { break; }
        pattern_step(regex, &splitter->emplace_back());
    }
    const bool each_digit = row.split != SPLIT_CL100K && row.digits;
    if (each_digit) { add_step(splitter, SPLIT_DIGITS)->flag = true; }
    if (row.split != SPLIT_PATTERN) { add_step(splitter, row.split)->number = row.digits; }
}
#endif // GGUF_SPLITS_H
