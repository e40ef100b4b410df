/*
core/config.h -- config.json of a checkpoint, out and in.
*/
#ifndef CONFIG_H
#define CONFIG_H
#include "../tokenizer.h"
#include "../arch.h"
#include "safetensors.h"

// Writes the config.json of a model of ours. tokenizer_path: the file that is in its directory.
std::string config_json(const Arch& c, const Tokenizer& tok, const std::string& tokenizer_path);

// Swaps T and the context of a run with a small --seq, which makes no shorter model of one that it
// began with: max_position_embeddings stays, and T is the key seq of train_sink.
Arch arch_in_config(Arch c);

// Adds what follows the name of the family in it. c: as arch_in_config returns it.
void config_rest(JsonObject* o, const Arch& c, const Tokenizer& tok,
                 const std::string& tokenizer_path);

// Adds the end of that, whatever the family: what ids are for, and the object "train_sink".
void config_tail(JsonObject* o, const Arch& c, const Tokenizer& tok,
                 const std::string& tokenizer_path);

// Returns the number of a key that counts something, or of j itself where that is no object; dies
// unless it is a whole number, 0 to 2^40. Without one it is `otherwise`.
long json_count(const Json& j, const char* key, long otherwise, const std::string& where);

// A model's files, opened: what its config.json says, or a GGUF file in its place, and its tensors.
struct Checkpoint {
    bool theirs = false;                                 // of another program: open/ reads it
    bool adds_bias = false;                              // BIAS is the build's, the file has none
    std::string where, attn = "softmax", tokenizer;      // config's name for errors; the operation
    Json config;
    Weights weights;
    Arch c;
};

// A model's files, to be written: its config.json, and its tensors.
struct ModelFile {
    std::string config;
    std::vector<StOut> tensors;                          // of the numbers of ours or
    std::vector<std::vector<float>> kept;                // of these
};

// Reads the object train_sink, and what it says beside rows of ARCH.
void config_ours(Checkpoint* k, const Json& mine);

// Opens a model's directory or GGUF file; dies if it wants another build. may_add: a model without
// learned biases gets those of this build.
Checkpoint checkpoint_open(const std::string& dir, bool may_add = false);
#endif // CONFIG_H
