/*
import_gguf.h -- what a GGUF file says of a model, as Hugging Face would say it: the keys as a
config.json, the tensors under its names, folded as it folds them. From there on import.h does not
know the difference.

A key that is not understood is an error that names it. TO ADD a family: a row of GGUF_MODELS
(gguf_families.h), and what is new in it: rows of GGUF_CONFIG and GGUF_NAMES. Facts: gguf-py 0.19
(names), transformers 5.23, modeling_gguf_pytorch_utils.py (folds).
*/
#ifndef IMPORT_GGUF_H
#define IMPORT_GGUF_H
#include "gguf.h"

// Returns the keys of this file as a config.json.
Json gguf_config(const Gguf& g);

// Returns the file's tensors as Hugging Face has them. Takes the map over from g.
Weights gguf_weights(Gguf* g);
#endif // IMPORT_GGUF_H
