/*
targets.h -- is there anything to learn in the data? A run without it would only shrink its weights.
*/
#ifndef TARGETS_H
#define TARGETS_H
#include "../dataloader.h"

// Tells whether a training sequence has a target with from `least` to `most` tokens before it.
// Masked tokens are none. Stops at the first one it finds.
bool data_has_target(const Data& d, int least, int most);
#endif // TARGETS_H
