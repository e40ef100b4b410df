/*
bos.h -- which token --bos means, by the tokenizer of a model. How a probe begins: run/probe_data.h.
*/
#ifndef BOS_H
#define BOS_H
#include "../run/probe_data.h"

// Returns the one token that --bos names: default is what the tokenizer puts before a text, -1 if
// that is no token or several; seq and doc its BOS; else one by its text or its id.
long bos_named(const Flags& f, const Tokenizer& tok, int V);

// Returns what the text of a probe begins with.
ProbeBos bos_of_probe(const Flags& f, int V);

// Finds the --bos that the template of a model's tokenizer asks for.
OtherBos bos_of_template(const Flags& f, int V);
#endif // BOS_H
