/*
open_model.h -- the model that a command opens: the checkpoint its words name, with the flags that
change it.
*/
#ifndef OPEN_MODEL_H
#define OPEN_MODEL_H
#include "../core/checkpoint.h"
#include "../flags.h"

// Prints a note if --tokenizer gives other ids than a model's own tokenizer.
void tokenizer_note(const Flags& f, const std::string& own, const std::string& model);

// Opens the one checkpoint that the words name, for sequences of up to T_max tokens, and takes its
// tokenizer into the flags if they name none. stay: which weights may stay in their file;
// gradients: with memory for them. Ends the program if it does not fit.
Model model_from_checkpoint(Flags* f, int T_max, Stay stay, bool gradients = false);
#endif // OPEN_MODEL_H
