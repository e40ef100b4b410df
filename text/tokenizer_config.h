/*
tokenizer_config.h -- what the files beside a tokenizer say about it: tokenizer_config.json,
special_tokens_map.json and added_tokens.json. They are obeyed as transformers 5 obeys them, or
refused by name; models/directory.h has the table of their keys.
*/
#ifndef TOKENIZER_CONFIG_H
#define TOKENIZER_CONFIG_H
#include "../tokenizer.h"

// Completes a tokenizer whose own file is read: added and special tokens, BOS and EOS, what goes
// around a text. pair: it is vocab.json and merges.txt, which say nothing but the merges.
void tokenizer_config(const TokenizerFile& f, Tokenizer* t, const Vocab& vocab,
                      const std::string& dir, bool pair);
#endif // TOKENIZER_CONFIG_H
