/*
reference.h -- namespace cpu: every operation of the model as plain OpenMP loops. It is the reference that the CUDA
kernels are tested against (same names, same parameter lists), and the backend of a machine without a GPU.

    1 memory                 the device is the host
    2 matrix product         forward, backward to the input, backward to the weight
    3 embedding, norms       tokens in, RMSNorm
    4 rotary and kernels     what happens to q and k before they meet
    5 attention              one forward and one backward for every variant, O(T) memory
    6 heads, FFN             combine heads, activations
    7 classifier             softmax cross-entropy, in place
    8 optimiser              norm, AdamW, SGD

Letters: B batch, T time (with the sink token, if there is one), C channels, NH heads, KV key/value heads, HS head size,
V vocabulary, OC output channels, F FFN width, N rows (B*T). `real` is what tensors hold, `acc` what sums, statistics,
weight gradients and optimiser state hold; here both are the same type, float (the tests also build double).
Parameter order: outputs, inputs, weights, sizes. Backward adds (+=) into weight gradients and overwrites activations'
gradients unless it says otherwise. Every sum has a fixed order, whatever the number of threads: same seed, same bits.
*/
#ifndef REFERENCE_H
#define REFERENCE_H
#include "attention_variants.cuh"

// what an optimiser step is told; step counts from 1
struct AdamW { float lr, beta1, beta2, eps, weight_decay; long step; };
// what it reads of the gradients it is to follow. In device memory, so that the host need not wait for it
struct StepSums { double loss, squares; float grad_scale; };             // mean loss, squared norm of the gradients
// what the gradients are multiplied with so that their norm is at most clip (0: any). NAN, and no update, if not finite
HD float grad_scale(double loss, double squares, float clip) {
    if (loss - loss != 0 || squares - squares != 0) { return NAN; }
    const double scale = clip > 0 ? clip / (sqrt(squares) + 1e-6) : 1.0;
    return scale < 1 ? scale : 1.0;
}
#endif // REFERENCE_H
