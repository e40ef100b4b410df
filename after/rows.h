/*
rows.h -- the commands of after/ and their flags, which rooms.h adds to the tables of flags.h.
Macros alone: this file includes nothing.
*/
#ifndef AFTER_ROWS_H
#define AFTER_ROWS_H

#define AFTER_COMMANDS(X) \
    X(eval,     'e', "CHECKPOINT", \
      "measure what a checkpoint loses: a shorter cache, fewer bits, edited numbers") \
    X(score,    's', "CHECKPOINT", "log-likelihood of choices, and perplexity: --task FILE.jsonl")

#define AFTER_FLAGS(X) \
    X("p", OWN, bool,   anatomy,         0,   false,      0, 0,       "where token 1's massive activation comes from: FFNs as quadratic forms") \
    X("e", OWN, str,    stream,          0,   "",         0, 0,       "n+W,..: keep only the first n and the last W keys") \
    X("e", OWN, str,    evict,           0,   "",         0, 0,       "POLICY:RATIO,.. of a prompt's keys: streaming, knorm, observed, snapkv") \
    X("e", OWN, str,    quant,           0,   "",         0, 0,       "w8a8, w4a4, kv8, kv4,.. and :static, :dynamic or :token (default)") \
    X("e", OWN, str,    quant_keep,      0,   "0,1",      0, 0,       "how many first tokens stay in float: one run per number") \
    X("e", OWN, long,   calibrate,       0,   16,         1, 1<<20,   "sequences that set the ranges of :static; they are not in the loss") \
    X("e", OWN, bool,   gradients,       0,   false,      0, 0,       "norm of the loss gradient in the residual stream, by token") \
    X("e", OWN, str,    edit,            0,   "",         0, 0,       "PLACE:LAYERS:TOKENS[:CHANNELS]=VALUE, and more after ;") \
    X("s", OWN, str,    task,            0,   "",         0, 0,       ".jsonl of contexts and choices, or several: A,B (scripts/tasks.py)") \
    X("s", OWN, str,    items,           0,   "",         0, 0,       "write the log-likelihoods of every item here, one line per item") \
    X("s", OWN, long,   limit,           0,   0,          0, MOST,    "only the first N items of a task (0: all)") \
    X("s", OWN, long,   max_length,      0,   0,          0, 1<<30,   "tokens that are read at once (0: as many as the model has positions)")
#endif // AFTER_ROWS_H
