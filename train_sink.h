/*
train_sink.h -- what train_sink.cu gives to the commands: the stages of a layer, the passes over a
model, and the micro-batch of a training step.
*/
#ifndef TRAIN_SINK_H
#define TRAIN_SINK_H
#include <functional>
#include <vector>
#include "model.h" // Model, Sizes

// ---- a layer is a list of stages, forward; backward is the same list from the end

// what a stage costs for one row, forward; backward costs twice as much
struct StageCost {
    double flops; // of its products; attention's depend on T: commands/bench.cpp
    double moved; // elements, without weights
};

// what the matrix product of a stage reads: x (N, width); NULL if the stage has none
struct StageInput { real* x; int width; };

// what a stage is to code outside: eval edits what these leave, bench and probe look for attention
enum StageRole { ROLE_NONE, ROLE_ATTENTION, ROLE_GATE, ROLE_ATTN_OUT, ROLE_FFN_OUT };

struct Stage {
    const char* name;
    bool (*when)(const Sizes& d, long l);
    void (*forward)(Model* m, int l);
    void (*backward)(Model* m, int l);
    StageCost (*cost)(const Sizes& d);
    StageInput (*reads)(const Model* m, int l);
    StageRole role;
};
extern const std::vector<Stage> LAYER_STAGES;

// x_{i+1} = x_i + inp W^T + b at the end of branch i, through the norm after it if there is one
void output_forward(Model* m, int i, const real* inp, const real* weight, const real* bias,
                    int width);

// ---- the whole model, on the batch that is loaded

void embed_forward(Model* m);
void embed_backward(Model* m);

// tokens -> what lm_head reads. watch(l) is called after layer l, and with -1 after the embedding:
// its activations are valid then, and perhaps not later
typedef std::function<void(int l)> Watch;
void model_body(Model* m, const Watch& watch = Watch());

// runs the model on its last T `tokens`; returns what lm_head reads of the last one
const real* model_read(Model* m, const std::vector<int>& tokens);

// losses (N) of rows x (N, C) that the head reads, where nothing else is wanted
void head_losses(Model* m, acc* losses, const real* x, const int* targets, int N);

// fills acts.losses; if dloss is not 0 also adds to the gradients of lm_head and makes that of what
// it reads, both of dloss * sum of losses
void model_head(Model* m, float dloss);

// the losses of the loaded batch, (B, T); those that do not count are 0
std::vector<acc> model_losses(Model* m);

// mean loss over the `count` targets that count; 0 if none does
double model_forward(Model* m, long count, float dloss, const Watch& watch = Watch());

// after the forward pass and model_head with dloss: adds the gradient of dloss * sum of losses to
// every tensor of grads. last: no more is added in this step, so what is done goes to the other
// ranks. watch(l): acts.dx is that of x_2l, the stream before layer l, or, with L, at the end
void model_backward(Model* m, bool last, const Watch& watch = Watch());

// ---- a step

// a step begins: no gradients, no loss
void model_zero(Model* m);

// runs the loaded batch forward and backward; adds its part to the gradients and to the mean loss
// over `count` targets
void accumulate_loaded(Model* m, long count, bool last);

// one micro-batch, seqs (B, T+1), of a step in which `count` targets count, of all micro-batches
// and ranks. last: this rank's last one. The host does not wait for any of it
void model_accumulate(Model* m, const int* seqs, int B, int T, long count, bool last = false);
#endif // TRAIN_SINK_H
