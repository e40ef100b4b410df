/*
checkpoint.h -- OUT/step_N/: the model as safetensors + config.json, optimizer.safetensors,
state.json; in and out. What config.json says: core/config.h.
*/
#ifndef CHECKPOINT_H
#define CHECKPOINT_H
#include "../model.h"
#include "config.h"

typedef std::vector<std::pair<std::string, acc*>> NamedArrays;

// Returns arrays of num_params numbers as named tensors, each name with its array's prefix; in
// *copies where they are not in place. All ranks give their shards.
std::vector<StOut> tensors_of(const Model* m, const NamedArrays& arrays,
                              std::vector<std::vector<float>>* copies);

// Writes a checkpoint with the tokenizer's files. state: what a run needs to continue; optimizer:
// also its state, without which no run can.
void checkpoint_save(const Model* m, const std::string& out, long step,
                     const JsonObject& state, const Tokenizer& tok, bool optimizer);

// ---- what reading weights shares with open/

// Copies the floats of a tensor to its place in an array on the device.
void tensor_to_device(acc* array, const Tensor& t, const std::vector<float>& values);

// Dies of a file that is not of this model.
[[noreturn]] void die_of_other_model(const std::string& what);

// Dies if a weight, read from a file to x, is not finite: an activation such as ReLU makes 0 of
// NaN. A matrix that stays in the file is looked at only then; else a forward pass shows it.
void weights_check(const Model* m, const Tensor& t, const float* x, const std::string& file);

// Reads the weights of an opened checkpoint and closes it.
void checkpoint_read(Model* m, Checkpoint* k);

// Reads the optimizer's state; returns false if the checkpoint has none.
bool optimizer_load(Model* m, const std::string& dir);

// Hashes the bits that a checkpoint keeps of an array. All ranks give their shards.
std::string array_hash(const Model* m, acc* shard);
#endif // CHECKPOINT_H
