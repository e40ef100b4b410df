/*
open/foreign_weights.h -- weights in forms that this program does not write: several files with an
index, names without a model's prefix, 4 bits.
*/
#ifndef FOREIGN_WEIGHTS_H
#define FOREIGN_WEIGHTS_H
#include "../core/safetensors.h"
#include "dtypes.h"

// Opens the files that DIR/model.safetensors.index.json names.
Weights weights_of_index(const std::string& dir);

// Gives tensors of a model that was saved without its head the names that they have with it:
// embed_tokens is model.embed_tokens.
void weights_headless(Weights* w);

// ----------------------------------------------------------------------------
// MXFP4 (OCP Microscaling Formats 1.0): 32 numbers of 4 bits, E2M1, and one scale, a power of two

static const float MXFP4_VALUES[16] = { 0,    .5f,  1,  1.5f,  2,  3,  4,  6,
                                        -0.f, -.5f, -1, -1.5f, -2, -3, -4, -6 };

// Returns the scale of a byte e, 2^(e - 127).
inline float mxfp4_scale(uint32_t e) { return float_of_bits(e ? e << 23 : 1u << 22); }

// Reads rows r0 .. r1 - 1, 32 n floats each, of a matrix that safetensors keep as two tensors:
// blocks U8 [.., n, 16], byte i holding numbers 2 i (low half) and 2 i + 1, and scales U8 [.., n].
void mxfp4_rows(const Weight& blocks, const Weight& scales, long r0, long r1, float* out);

// Takes the names of wrappers out of the names of tensors: module. of torch's data parallel,
// _orig_mod. of torch.compile, and such. They say how a model was run, not what it is.
void weights_unwrap(Weights* w);

// Dies if the lm_head of a tied model is not the embedding. It needs none, but its file may have
// one nevertheless.
void lm_head_is_embedding(const Weight& lm_head, const Weight* embedding);
#endif // FOREIGN_WEIGHTS_H
