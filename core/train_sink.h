/*
train_sink.h -- what train_sink.cu gives to the commands: the stages of a layer, the passes over a
model, and the micro-batch of a training step.
*/
#ifndef TRAIN_SINK_H
#define TRAIN_SINK_H
#include <functional>
#include <vector>
#include "../model.h" // Model, Sizes

// ---- a layer is a list of stages, forward; backward is the same list from the end

// What the matrix product of a stage reads: x (N, width); x NULL if there is no product.
struct StageInput {
    real* x;
    int width;
};

// What a stage is to code outside: eval edits what these leave, probe looks for attention.
enum StageRole { ROLE_NONE, ROLE_ATTENTION, ROLE_GATE, ROLE_ATTN_OUT, ROLE_FFN_OUT };

struct Stage {
    const char* name;
    bool (*when)(const Model* m, int l);
    void (*forward)(Model* m, int l);
    void (*backward)(Model* m, int l);
    StageInput (*reads)(const Model* m, int l) = NULL;   // NULL if the stage has no product
    StageRole role = ROLE_NONE;
};
extern const std::vector<Stage> LAYER_STAGES;

// A product of the model, out = inp W^T + b, from C to OC channels, with its gradients.
struct Linear {
    Param weight;               // (OC, C)
    Param bias;                 // (OC), or none
    long C, OC;
};

// Ends branch i: x_{i+1} = x_i + inp W^T + b, through the norm after it if there is one.
void output_forward(Model* m, int i, const real* inp, const Linear& w);

// ---- the whole model, on the batch that is loaded

void embed_forward(Model* m);
void embed_backward(Model* m);

// Runs all layers, from tokens to lm_head's input. Calls at_layer(l) after layer l, at_layer(-1)
// after the embedding; a later layer may overwrite these activations.
typedef std::function<void(int l)> LayerCallback;
void model_layers(Model* m, const LayerCallback& at_layer = {});

// Runs the model on its last T `tokens`; returns what lm_head reads of the last one.
const real* model_forward_last(Model* m, const std::vector<int>& tokens);

// Runs lm_head and the classifier: fills acts.losses. If dloss is not 0, also adds to the gradients
// of lm_head's weights and computes that of its input, both for dloss * sum of losses.
void model_lm_head(Model* m, float dloss);

// Returns the losses of the loaded batch, (B, T); those that do not count are 0.
std::vector<acc> model_losses(Model* m);

// Runs the loaded batch forward; returns the mean loss over its `count` targets, 0 if there are
// none.
double model_forward(Model* m, long count, const LayerCallback& at_layer = {});

// Adds the gradient of dloss * sum of losses to every tensor of grads, after the forward pass and
// model_lm_head with dloss. last: this step adds nothing more, so finished gradients are sent to
// the other ranks. Calls at_layer(l) when acts.dx is the gradient of x_2l, the stream before
// layer l (for l = L, of the final state).
void model_backward(Model* m, bool last, const LayerCallback& at_layer = {});

// ---- a step

// Runs one micro-batch, seqs (B, T+1), of a step with `count` targets over all micro-batches and
// ranks. last: it is this rank's last. The host does not wait for it.
void model_accumulate(Model* m, const int* seqs, int B, int T, long count, bool last = false);
#endif // TRAIN_SINK_H
