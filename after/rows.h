/*
rows.h -- the commands of after/ and their flags, which optional.h adds to the tables of flags.h.
Macros alone: this file includes nothing.
*/
#ifndef AFTER_ROWS_H
#define AFTER_ROWS_H
#define HAS_AFTER 1

#define AFTER_COMMANDS(X) \
    X(eval,     'e', ATTENTION, "CHECKPOINT", \
      "measure what a shorter cache, fewer bits or edited numbers cost a checkpoint", \
      "lower --probe-len or --probe-seqs, or take a smaller model") \
    X(score,    's', ATTENTION, "CHECKPOINT", "score multiple-choice tasks and perplexity: --task FILE.jsonl", \
      "lower --max-length, or take a smaller model")

#define AFTER_FLAGS(X) \
    WORDS("T", TRAINING, factors, "", \
      "of the tensors whose names have a word as whole parts: o_proj:lr=2,o_proj:start=2; also decay and eps (Eq. 29 to 42)", JOIN(",")) \
    ON("t", MEASURING, noise, "log the two parts of the gradient noise scale, from half of every step's batch and all of it", \
      READ_IF(f.only.empty(), "the gradients of all tensors: leave out --only")) \
    WORDS("pe", MEASURING, sink_at, "", "also report Sink_k at these positions: 15,20") \
    ON("p", MEASURING, per_sequence, "with --json, also write alpha for each sequence, as alpha[seq][L][H][k]", \
      READ_IF(!f.json.empty(), "--json FILE")) \
    WORDS("p", OWN, dump, "", "write attention maps and query-key geometry to this directory as .npy") \
    WORDS("p", OWN, dump_heads, "0:0", "heads to --dump: LAYER:HEAD,... or all", READ_IF(!f.dump.empty(), "--dump DIR")) \
    WHOLE("p", OWN, dump_seq, 0, 0, 1<<20, "probe sequence to --dump, counted from 0", READ_IF(!f.dump.empty(), "--dump DIR"), \
      BOUND(f.dump_seq < f.probe_seqs, "less than", "probe_seqs", "the first sequence is number 0")) \
    ON("p", OWN, anatomy, "show where token 1's massive activation comes from (FFNs as quadratic forms)") \
    ON("p", OWN, anywhere, "show attention by position and by token, what sinks write, and large channels") \
    WORDS("e", OWN, stream, "", "keep only the first n keys, the last W and the query's own: n+W,...", JOIN(",")) \
    WORDS("e", OWN, evict, "", "evict this fraction of a prompt's keys: POLICY:RATIO,... (streaming, knorm, observed, snapkv)", JOIN(",")) \
    WORDS("e", OWN, quant, "", "quantize to w8a8, w4a4, kv8, kv4, ..., each with :static, :dynamic or :token (the default)") \
    WORDS("e", OWN, quant_keep, "0,1", "keep this many first tokens in float; one run per number", READ_IF(!f.quant.empty(), "--quant")) \
    WHOLE("e", OWN, calibrate, 16, 1, 1<<20, "sequences that set the ranges of :static, excluded from the loss", \
      READ_IF(f.quant.find("static") != str::npos, "--quant with :static")) \
    ON("e", OWN, gradients, "report the norm of the loss gradient in the residual stream, by token") \
    WORDS("e", OWN, edit, "", "change numbers inside the model: PLACE:LAYERS:TOKENS[:CHANNELS]=VALUE; several separated by ;. Given twice: two runs", JOIN("\n")) \
    WORDS("s", OWN, task, "", ".jsonl of contexts and choices, or several: A,B (scripts/tasks.py)") \
    WORDS("s", OWN, items, "", "write the log-likelihoods of every item here, one line per item") \
    WHOLE("s", OWN, limit, 0, 0, MOST, "only the first N items of a task (0: all)") \
    WHOLE("s", OWN, max_length, 0, 0, 1<<30, \
      "context length in tokens (0: the model's number of positions)")
#endif // AFTER_ROWS_H
