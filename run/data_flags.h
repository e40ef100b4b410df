/*
data_flags.h -- the data that the flags name.
*/
#ifndef DATA_FLAGS_H
#define DATA_FLAGS_H
#include "../dataloader.h"
#include "../flags.h"

// ---- the data

// Collects what the flags say of the data, for sequences of T tokens and probes of probe_len.
DataOptions data_options(const Flags& f, int T, int probe_len);

// Collects the same without a --random-token or --fix-token that a run was trained with: those were
// checked when it began.
DataOptions typed_edits(const Flags& f, int T);

// Dies if --random-token and --fix-token name a position twice.
void edits_check(const Flags& f);

// Dies if the flags put another token where every sequence would begin with BOS.
void reject_covered_bos(const Flags& f);

// Returns a length of --probe-len: the default 64 shrinks to `longest`, a short model's T.
long shortened(const Flags& f, long len, long longest);

// Reads a length of --probe-len, shortened. Ends the program if the positions are learned and there
// are fewer.
int probe_length(const Flags& f, const std::string& text, long longest, bool learned);
#endif // DATA_FLAGS_H
