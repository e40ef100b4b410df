/*
text/all.h -- the files of text/ for core/rest.h: what needs the model, then the others.
*/
#include "tokenize_command.cpp"
#ifndef ONCE_APART
#include "added_tokens.cpp"
#include "bpe.cpp"
#include "decode.cpp"
#include "documents.cpp"
#include "encode.cpp"
#include "keys.cpp"
#include "kinds.cpp"
#include "manifest.cpp"
#include "normalize.cpp"
#include "prompts.cpp"
#include "sft.cpp"
#include "shard_out.cpp"
#include "shards_of_others.cpp"
#include "split.cpp"
#include "text_cache.cpp"
#include "text_files.cpp"
#include "text_folder.cpp"
#include "tokenize.cpp"
#include "tokenizer_config.cpp"
#include "tokenizer_finish.cpp"
#include "tokenizer_load.cpp"
#include "tokenizer_steps.cpp"
#include "unicode.cpp"
#endif
