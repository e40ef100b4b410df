/*
data_flags.h -- the data that the flags name, and flags that nothing reads.
*/
#ifndef DATA_FLAGS_H
#define DATA_FLAGS_H
#include "../dataloader.h"
#include "../flags.h"

// ---- the data

// what the flags say of the data; and the data
DataOptions data_options(const Flags& f, int T, int probe_len);
Data data_from_flags(const Flags& f, int T, int probe_len);

// A flag that nothing would read is a mistake that nobody would see. These two die of one: of the
// data, of the model. Not called when a run resumes: it has had its flags since it began.
void reject_unused_data_flags(const Flags& f, const std::vector<std::string>& sources);
void reject_unused_model_flags(const Flags& f);
// the default 64 shrinks to a short model's T
int probe_length(const Flags& f, const std::string& text, long longest, bool learned);
#endif // DATA_FLAGS_H
