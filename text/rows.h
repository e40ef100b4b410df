/*
text/rows.h -- what text/ adds to the tables of flags.h.
*/
#ifndef TEXT_ROWS_H
#define TEXT_ROWS_H
#define HAS_TEXT 1
#include "../base/rows.h"

#define TEXT_COMMANDS(X) \
    X(tokenize, 'k', NO_MODEL, "FILE...", \
      "tokenize text (.txt .jsonl .jsonl.zst .jsonl.gz; - reads .jsonl from standard input) into shards in --out", \
      "lower --threads, or cut long records in pieces (a record takes 9 times its size)")

// where sequences of a .jsonl begin
inline constexpr const char* FROM_ROWS[] = { "start", "windows" };
constexpr int FROM_start = row_named(FROM_ROWS, "start"),
              FROM_windows = row_named(FROM_ROWS, "windows");

#define TEXT_FLAGS(X) \
    WORDS("Tpe", DATA, sft, "", "train on conversations: segments; -d is a .jsonl of them, which scripts/sft.py writes", \
      OF_TEXT) \
    WORDS("Tpe", DATA, sft_loss, "assistant", \
      "with --sft, which tokens the loss counts: assistant (the answers and their end) or all, whatever a record says", \
      READ_IF(!f.sft.empty(), "--sft segments")) \
    ON("Tpke", DATA, skip_bad, "count and skip broken .jsonl records instead of stopping", OF_TEXT) \
    ONE_OF("pe", DATA, probe_from, FROM, start, "from a .jsonl: start (of each record) or windows (of all)") \
    ON("k", OWN, text, "print the text of every document, with a zero byte behind it, in place of writing shards") \
    WORDS("k", OWN, val, "", "files to hold out as val shards, separated by commas") \
    DECIMAL("k", OWN, val_fraction, 0.0, 0, 1, "fraction of documents to hold out as val shards") \
    WORDS("k", OWN, domains, "", "Pile domains to keep, by meta.pile_set_name: all, paper (its 17), a,b or a:SHARE,...") \
    WHOLE("k", OWN, shard_tokens, 100000000, 1, 2000000000, "tokens per shard") \
    WHOLE("k", OWN, threads, 0, 0, 4096, "threads (0: all cores); any number gives the same shards")
#endif // TEXT_ROWS_H
