/*
sft.h -- conversations as tokens, for supervised fine-tuning. A record in the form `segments` says
itself what the loss counts; scripts/sft.py writes such records by a model's own chat template:
    {"segments": [{"text": .., "loss": 0 or 1}, ..]}
    {"prompt": .., "completion": ..}                    the completion counts, with an EOS behind it
A record with another key that may say what the loss counts is refused. Segments are encoded apart:
so a message begins and ends at the border of a token.
*/
#ifndef SFT_H
#define SFT_H
#include "encode.h"
#include "../core/masked.h"

// Adds the tokens of a record, with EOS after the last. assistant_only: all are masked but those
// that the loss counts. Returns "", or what is wrong with the record, of which nothing is added.
std::string sft_encode(const Tokenizer& tok, bool assistant_only, const Json& record,
                       std::vector<uint32_t>* ids);
#endif // SFT_H
