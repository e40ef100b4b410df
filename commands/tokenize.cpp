/*
commands/tokenize.cpp -- the command tokenize.
*/
#include "commands.h"
#include "../dataloader.h"
#include "../dataloader/tokenize.h"

int command_tokenize(Flags f) {
    TokenizeOptions o;
    o.files = f.words;
    o.val_files = names_listed(f.val);
    o.tokens = f.train_tokens;
    #define SAME(name) o.name = f.name;
    SAME(tokenizer) SAME(out) SAME(bos) SAME(domains) SAME(val_fraction) SAME(shard_tokens)
    SAME(threads) SAME(skip_bad)
    #undef SAME
    return tokenize_main(o);
}
