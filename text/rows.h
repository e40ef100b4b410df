/*
text/rows.h -- what text/ adds to the tables of flags.h. Macros alone: this file includes nothing.
*/
#ifndef TEXT_ROWS_H
#define TEXT_ROWS_H

#define TEXT_COMMANDS(X) \
    X(tokenize, 'k', NO_MODEL, "FILE...", \
      "tokenize text (.txt .jsonl .jsonl.zst .jsonl.gz; - reads .jsonl from standard input) into shards in --out", \
      "lower --threads, or cut long records in pieces (a record takes 9 times its size)")
#endif // TEXT_ROWS_H
