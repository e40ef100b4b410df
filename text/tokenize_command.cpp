/*
text/tokenize_command.cpp -- the command tokenize.
*/
#include "../run/commands.h"
#include "../dataloader.h"
#include "tokenize.h"

int command_tokenize(Flags f) {
    TokenizeOptions o;
    o.files = f.words;
    o.val_files = names_listed(f.val);
    o.tokens = f.train_tokens;
    o.tokenizer = f.tokenizer;
    o.out = f.out;
    o.bos = f.bos;
    o.domains = f.domains;
    o.val_fraction = f.val_fraction;
    o.shard_tokens = f.shard_tokens;
    o.threads = f.threads;
    o.skip_bad = f.skip_bad;
    if (!f.text) {
        tokenize_main(o);
        return 0;
    }
    for (auto& row : flag_rows(&f)) {                    // the others say something of shards
        const bool read = row.name == "text" || row.name == "skip_bad";
        require(read || !*row.given, flag_spelling(row.name) + " with --text", "--skip-bad alone");
    }
    print_text(o);
    return 0;
}
