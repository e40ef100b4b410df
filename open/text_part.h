/*
text_part.h -- a model of text and images, as its language model alone.

Its config.json has that one's in text_config, and its weights have those of that one under a
prefix. Given text alone, such a model computes what its language model computes. The rows of
WRAPPERS are those of which this is so; another is refused. Facts: transformers 5.24.
*/
#ifndef TEXT_PART_H
#define TEXT_PART_H
#include "../files/weights.h"

// Replaces the config.json of a model of more than text by that of its language model. Returns its
// model_type, "" if it is no such model; then nothing is changed.
std::string text_part_config(Json* config);

// Leaves the tensors of the language model, by the names they have in a model of text. Returns how
// many others there were.
int text_part_weights(Weights* weights);
#endif // TEXT_PART_H
