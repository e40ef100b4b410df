/*
open_model.h -- the model that a command opens: the checkpoint its words name, with the flags that
change it.
*/
#ifndef OPEN_MODEL_H
#define OPEN_MODEL_H
#include "../checkpoint.h"
#include "../flags.h"

// Says which adapter was added to a checkpoint's weights.
void adapter_said(const Checkpoint& k, const std::string& adapter);

// a checkpoint and the tokenizer its text wants; stay: weights that may stay in their file
Model model_from_checkpoint(Flags* f, int T_max, cpu::Stay stay, bool gradients = false);
#endif // OPEN_MODEL_H
