/*
safetensors.h -- safetensors files and checkpoint directories, in and out.

safetensors: 8 bytes little-endian header length, a JSON header {name: {dtype, shape,
data_offsets}}, then the data. A file is believed only after every number in its header has been
checked against the file's size. A checkpoint is a directory step_N, written under another name,
synced, then renamed: it is there whole or not at all.
*/
#ifndef SAFETENSORS_H
#define SAFETENSORS_H
#include "weights.h"

// ----------------------------------------------------------------------------
// safetensors

// Opens one file, mapped; every number of its header has been checked.
Weights safetensors_open(const std::string& path);

// Opens the weights of a model's directory: model.safetensors, else the files that the index names.
// Other .safetensors files beside them are not the model.
Weights safetensors_open_dir(const std::string& dir);

// what to write: F32 tensors in host memory
struct StOut { std::string name; std::vector<long> shape; const float* data; };

// Writes a file whole or not at all.
void safetensors_write(const std::string& path, const std::vector<StOut>& tensors);

// ----------------------------------------------------------------------------
// checkpoint directories OUT/step_N. While one is written it is OUT/step_N.tmp; if a step_N was
// there before, it steps aside as step_N.old for the instant between two renames, and is found
// under that name should the machine stop there.

// Returns the directory to write step_N in.
std::string checkpoint_begin(const std::string& out, long step);

// Removes the files of a checkpoint. Returns false if others are in its directory, which stays.
bool checkpoint_remove(const std::string& dir);

// Removes half a checkpoint, if there is one: it would only make a full disk fuller.
void checkpoint_abandon();

// Gives it its name: all of it is written.
void checkpoint_commit(const std::string& out, long step);
#endif // SAFETENSORS_H
