/*
default_model.h -- the model of a run whose flags name none, and what is said of a run that can show
no sink.
*/
#ifndef DEFAULT_MODEL_H
#define DEFAULT_MODEL_H
#include "../dataloader.h"
#include "../flags.h"

// Sets --model, where no flag names a model, by the data and the backend: bb for the built-in task;
// for text the paper's 60M and its run on a GPU, nano on a CPU. Returns a line that says so, "" if
// the flags name a model.
std::string default_model(Flags* f, bool on_gpu);

// Returns the line that a run begins with if no sink is expected, "" if one is.
std::string no_sink_note(const Flags& f, const Data& data, long parameters);
#endif // DEFAULT_MODEL_H
