/*
sft.h -- conversations as tokens, for supervised fine-tuning. A record is one of
    {"messages": [{"role": .., "content": ..}, ..]}
    {"conversations": [{"from": "human", "value": ..}, ..]}             ShareGPT
    {"prompt": .., "completion": ..}                                    a question and its answer
    {"instruction": .., "input": .., "output": ..}                      Alpaca: the question is the
                            instruction, then, if there is an input, a blank line and the input

    zephyr    <|role|>\n content EOS \n                 the markers are plain text
                                                        (alignment-handbook; the paper's Appendix D)
    chatml    <|im_start|>role\n content <|im_end|>\n   both are single ids of the tokenizer
                                                        (SmolLM2, Qwen)

The start of a message, its content and its end are encoded apart, so that a message begins
and ends at the border of a token. Nothing is inserted: a conversation without a system message
has none.
*/
#ifndef SFT_H
#define SFT_H
#include "../tokenizer.h"
#include "masked.h"

// Finds the messages of a record, in whichever known shape it has them, as a list of {"role",
// "content"}. Returns "" or what is wrong.
std::string sft_messages(const Json& record, Json* messages);

// Returns "" if `form` is one of the templates and the tokenizer has what it needs, else what is
// wanted.
std::string sft_check(const Tokenizer& tok, const std::string& form);

// Adds the tokens of a conversation, with EOS after the last. assistant_only: all are masked but
// the assistant's contents and their ends. Returns "" or what is wrong with the messages.
std::string sft_encode(const Tokenizer& tok, const std::string& form, bool assistant_only,
                        const Json* messages, std::vector<uint32_t>* ids);
#endif // SFT_H
