/*
sft.h -- conversations as tokens, for supervised fine-tuning. A record in the form `segments` says
itself what the loss counts; scripts/sft.py writes such records by a model's own chat template:
    {"segments": [{"text": .., "loss": 0 or 1}, ..]}
    {"prompt": .., "completion": ..}                    the completion counts, with an EOS behind it
For a machine without Python there are two plain forms:
    zephyr    <|role|>\n content EOS \n                 the markers are plain text
                                                        (alignment-handbook; the paper's Appendix D)
    chatml    <|im_start|>role\n content <|im_end|>\n   both are single ids of the tokenizer
                                                        (SmolLM2, Qwen)
of records that are one of
    {"messages": [{"role": .., "content": ..}, ..]}
    {"prompt": .., "completion": ..}                    a question and its answer
Records of other shapes (ShareGPT, Alpaca) go through scripts/sft.py.

Of a message the loss counts what the assistant says and its end, unless weight, loss, train,
trainable or mask of the message say otherwise. A record with another key that may say what the loss
counts is refused, and so is a message with a key that the form does not write.

Segments are encoded apart: the start of a message, its content and its end. So a message begins
and ends at the border of a token. Nothing is inserted: a conversation without a system message
has none.
*/
#ifndef SFT_H
#define SFT_H
#include "../tokenizer.h"
#include "masked.h"

// Returns "" if `form` is one of the three and the tokenizer has what it needs, else what is
// wanted.
std::string sft_check(const Tokenizer& tok, const std::string& form);

// Adds the tokens of a record, with EOS after the last. assistant_only: all are masked but those
// that the loss counts. Returns "" or what is wrong with the record.
std::string sft_encode(const Tokenizer& tok, const std::string& form, bool assistant_only,
                       const Json& record, std::vector<uint32_t>* ids);
#endif // SFT_H
