/*
train_sink.cu -- trains small LLaMA-style language models and watches where their attention goes.

    make train_sink ATTN=sigmoid BIAS=k && ./train_sink -d pile_5B  (make help, ./train_sink --help)

What is in attention's inner loop is compiled in, by the build's switches. Everything else
about a model is data: a row of ARCH, which a switch, a flag or a checkpoint sets. The headers below
say what they give; read tensors.h and model.h first. This file reads from top to bottom:

     1 a layer       the list of its stages, each a forward and a backward function
     2 the model     a pass over all layers, forward and backward; a micro-batch
     3 train         an optimizer step; a run around the steps
     4 main          and the other commands

TO ADD a value of a switch: one row of its table, and at most one struct (attention_variants.cuh).
TO ADD an idea: its rows of ARCH, PARAMS and ACTS, one stage, and its operation in reference.h, cpu/
and cuda/.

Letters: B sequences, T tokens of each (with the sink token, if there is one), C channels, NH heads,
KV key/value heads, HS head size, F FFN width, L layers, V vocabulary, N = B T rows. The tables also
use the widths QK of q|k, W of q|k|v, OC of what W_O reads, FH of gate|up, G of the gate.
*/
#include "tensors.h"        // PARAMS, ACTS: every tensor is a row
#include "variant.h"        // real, acc, ops: the backend; variant::attention_forward
#include "model.h"          // Model, model_load, and where its activations are
#include "kv_cache.h"       // cache_keep, attention_forest: rows that come after others
#include "train_sink.h"     // Stage, Watch: what this file gives to the commands
#include "models/experts.h" // experts_forward: other families' FFNs
#include "models/delta.h"   // delta_forward, mamba_forward: what they have in place of attention
#include "small_model.h"    // accumulate_pieces: a small model's batch, cut for the threads
#include "optimizer.h"      // model_update
#include "measure.h"        // measure: sinks and norms of a batch of sequences
#include "flags.h"          // Flags: every flag is a row
#include "dataloader.h"     // Data: where a batch comes from
#include "commands/commands.h" // command_probe and the others, one file each
#include "commands/train.h"    // run_open, run_evaluate, run_save: a run around its steps
#include "shell/process.h"     // process_begin, on_signals
#include "shell/saves.h"       // checkpoint_in

// ============================================================================
// 1 a layer

// A layer is two branches, attention and FFN, with numbers i = 2l and 2l + 1, of one
// stream x_0 .. x_2L:
//
//      NORM=pre       x_{i+1} = x_i + f_i(norm(x_i))          (Eq. 2)
//      post           x_{i+1} = norm(x_i + f_i(x_i))          (Eq. 3)
//      sandwich       x_{i+1} = x_i + norm(f_i(norm(x_i)))
//      branch         x_{i+1} = x_i + norm(f_i(x_i))
//      --parallel 1   the FFN reads x_2l, as attention does
//
// x_2L, after a final norm unless NORM=post, goes to lm_head. The hidden state h^l of the paper is
// x_2l. On the way back acts.dx holds the gradient of x_{i+1} when branch i begins and of x_i when
// it ends; every stage overwrites the gradient of what it read and adds to those of its weights.

// the number of a norm, by which its statistics are found: those before branches (n), after them
// (f), the final one, the embedding's
static int norm_number(const Model* m, int i) { return m->train ? i : i % 2; }
static int norm_after(const Model* m, int i) {
    return (m->train ? 2 * m->sizes.L : 2) + 2 + norm_number(m, i);
}

static int norm_final(const Model* m)         { return m->train ? 2 * m->sizes.L : 2; }
static int norm_embed(const Model* m)         { return norm_final(m) + 1; }

static void norm_forward(Model* m, real* out, const real* x, const real* w, const real* b,
                         int number) {
    const int N = rows(m);
    acc* mean = m->sizes.ln ? m->acts.mean + (size_t)number * N : NULL;
    acc* rstd = m->acts.rstd + (size_t)number * N;
    ops::norm_forward(out, mean, rstd, x, w, b, m->arch.eps, N, m->sizes.C);
}

// in the forward pass this was:  out = norm(x);  dx = or += its gradient
static void norm_backward(Model* m, real* dx, acc* dw, acc* db, const real* dout, const real* x,
                          const real* w, int number, bool add) {
    const int N = rows(m);
    const acc* mean = m->sizes.ln ? m->acts.mean + (size_t)number * N : NULL;
    ops::norm_backward(dx, dw, db, dout, x, w, mean, m->acts.rstd + (size_t)number * N, add, N,
                       m->sizes.C);
}

// weights of the norms before and after branch i
template <class P> struct NormWeights { P *w, *b; };

template <class P> static NormWeights<P> before(const Params<P>& p, int i) {
    const auto& layer = p.layer[i / 2];
    if (i % 2) { return { layer.ln2w, layer.ln2b }; }
    return { layer.ln1w, layer.ln1b };
}

template <class P> static NormWeights<P> after(const Params<P>& p, int i) {
    const auto& layer = p.layer[i / 2];
    if (i % 2) { return { layer.ln2ow, layer.ln2ob }; }
    return { layer.ln1ow, layer.ln1ob };
}

// -- the beginning of a branch: n_i = norm(x_i), or x_i itself
static void input_forward(Model* m, int i) {
    if (!m->sizes.norm.in) { return; }
    const auto w = before(m->weights, i);
    norm_forward(m, act_n(m, i), branch_x(m, i), w.w, w.b, norm_number(m, i));
}

// acts.dn -> acts.dx.  in the forward pass this was:  n_i = norm(x_i);  x_{i+1} = x_i + .. reads
// x_i too
static void input_backward(Model* m, int i) {
    const long n = (long)rows(m) * m->sizes.C;
    // attention comes next on the way back, and must find dx as it is
    const bool side = m->arch.parallel && i % 2;
    if (m->sizes.norm.in) {
        const auto w = before(m->weights, i); const auto g = before(m->grads, i);
        real* dx = side ? m->acts.dside : m->acts.dx;
        norm_backward(m, dx, g.w, g.b, m->acts.dn, branch_x(m, i), w.w, norm_number(m, i), !side);
    } else {
        ops::add(m->acts.dx, m->acts.dn, n);
    }
    if (m->arch.parallel && !side) { ops::add(m->acts.dx, m->acts.dside, n); }
}

// -- the end of a branch: x_{i+1} = x_i + inp W^T + b, through the norm after it if there is one
void output_forward(Model* m, int i, const real* inp, const real* weight, const real* bias,
                    int width) {
    const Sizes& d = m->sizes;
    const int N = rows(m);
    const float scale = m->arch.residual_scale;     // 1, or NORM=pre
    const bool apart = (d.norm.out && !d.norm.stream) || scale != 1;
    const real* residual = apart ? NULL : act_x(m, i);
    real* out = d.norm.out ? of_branch(m->acts.f, m, i, d.C) : act_x(m, i + 1);
    ops::matmul_forward(out, inp, weight, bias, residual, N, width, d.C);
    if (scale != 1) { ops::add(out, act_x(m, i), (long)N * d.C, scale); }
    if (!d.norm.out) { return; }
    const auto w = after(m->weights, i);
    norm_forward(m, act_x(m, i + 1), out, w.w, w.b, norm_after(m, i));
    if (!d.norm.stream) { ops::add(act_x(m, i + 1), act_x(m, i), (long)N * d.C); }
}

// acts.dx -> dinp.  in the forward pass this was:  x_{i+1} = x_i + inp W^T + b
static void output_backward(Model* m, int i, real* dinp, acc* dweight, acc* dbias, const real* inp,
                            const real* weight, int width) {
    const Sizes& d = m->sizes;
    const int N = rows(m);
    real* df = m->acts.dx;
    if (m->arch.residual_scale != 1) {
        const long n = (long)N * d.C;
        df = m->acts.df;
        ops::device_copy(df, m->acts.dx, n * sizeof(real));
        ops::add(df, NULL, n, m->arch.residual_scale);
    }
    if (d.norm.out) {
        const auto w = after(m->weights, i);
        const auto g = after(m->grads, i);
        const real* f = of_branch(m->acts.f, m, i, d.C);
        df = d.norm.stream ? m->acts.dn : m->acts.df;
        norm_backward(m, df, g.w, g.b, m->acts.dx, f, w.w, norm_after(m, i), false);
    }
    // NORM=post: what came through the norm is dx_i's first part
    if (d.norm.stream) { std::swap(m->acts.dx, m->acts.dn); }
    ops::matmul_backward_weight(dweight, df, inp, N, width, d.C);
    if (dbias) { ops::matmul_backward_bias(dbias, df, N, d.C); }
    ops::matmul_backward_input(dinp, df, weight, false, N, width, d.C);
}

static void attn_input_forward(Model* m, int l)  { input_forward(m, 2 * l); }
static void attn_input_backward(Model* m, int l) { input_backward(m, 2 * l); }
static void ffn_input_forward(Model* m, int l)   { input_forward(m, 2 * l + 1); }
static void ffn_input_backward(Model* m, int l)  { input_backward(m, 2 * l + 1); }

static StageCost norm_cost(const Sizes& d) { return { 0, 2.0 * d.C }; }
static StageCost no_cost(const Sizes&)     { return { 0, 0 }; }

// what the products read that begin a branch
static StageInput no_product(const Model*, int)      { return { NULL, 0 }; }
static StageInput attn_input(const Model* m, int l)  { return { act_n(m, 2 * l), m->arch.C }; }
static StageInput ffn_input(const Model* m, int l)   { return { act_n(m, 2 * l + 1), m->arch.C }; }

// -- q, k, v = n W^T + b

static void qkv_forward(Model* m, int l) {
    const auto& w = m->weights.layer[l];
    const Sizes& d = m->sizes;
    const real* input = act_n(m, 2 * l);
    ops::matmul_forward(act_qkv(m, l), input, w.qw, w.qb, NULL, rows(m), d.C, d.W);
}

// acts.dqkv -> acts.dn;  the gate, if there is one, has already written dn
static void qkv_backward(Model* m, int l) {
    const Sizes& d = m->sizes;
    const auto& w = m->weights.layer[l];
    const auto& g = m->grads.layer[l];
    const int N = rows(m);
    const real* input = act_n(m, 2 * l);
    const real* dqkv = m->acts.dqkv;
    ops::matmul_backward_weight(g.qw, dqkv, input, N, d.C, d.W);
    if (g.qb) { ops::matmul_backward_bias(g.qb, dqkv, N, d.W); }
    ops::matmul_backward_input(m->acts.dn, dqkv, w.qw, d.gate, N, d.C, d.W);
}

static StageCost qkv_cost(const Sizes& d) { return { 2.0 * d.C * d.W, double(d.C + d.W) }; }

// -- QKNORM: q and k become norm(q), norm(k), of each head or of all heads together
static void qk_norm_forward(Model* m, int l) {
    const auto& w = m->weights.layer[l];
    real* saved = of_layer(m->acts.qk_in, m, l, m->sizes.QK);
    acc* rstd = of_layer(m->acts.qk_rstd, m, l, m->sizes.NH + m->sizes.KV);
    const bool all = m->arch.qk_norm == QKNORM_all;
    const AttnShape s = attn_shape(m, l);
    ops::qk_norm_forward(act_qkv(m, l), saved, rstd, w.qnw, w.knw, all, m->arch.eps, s);
}

static void qk_norm_backward(Model* m, int l) {
    const auto& w = m->weights.layer[l]; const auto& g = m->grads.layer[l];
    const real* saved = of_layer(m->acts.qk_in, m, l, m->sizes.QK);
    const acc* rstd = of_layer(m->acts.qk_rstd, m, l, m->sizes.NH + m->sizes.KV);
    const bool all = m->arch.qk_norm == QKNORM_all;
    ops::qk_norm_backward(m->acts.dqkv, g.qnw, g.knw, saved, rstd, w.qnw, w.knw, all,
                          attn_shape(m, l));
}

static StageCost qk_norm_cost(const Sizes& d) { return { 0, 3.0 * d.QK }; }

// -- rotary: q and k turn with their position. If no stage lies between, attention's backward
// rotates them back
static void rotary_forward(Model* m, int l) {
    const acc* table = layer_turns(m, l);
    if (!table) { return; }
    each_span(m, [&](const Span& span) {
        real* qkv = act_qkv(m, l) + (size_t)span.row * m->sizes.W;
        const acc* from = table + (size_t)span.position * rotated(m->arch);
        ops::rope(qkv, from, +1, span_shape(m, l, span));
    });
}

// Tells whether rotary is the last stage before attention, and turns whole heads.
static bool turns_in_attention(const Model* m) {
    const Stage* previous = NULL;
    for (auto& stage : LAYER_STAGES) {
        if (!stage.when(m->sizes, 0)) { continue; }
        if (stage.role == ROLE_ATTENTION) { break; }
        previous = &stage;
    }
    return previous->forward == rotary_forward && rotated(m->arch) == m->sizes.HS;
}

static void rotary_backward(Model* m, int l) {
    const acc* table = layer_turns(m, l);
    if (table && !turns_in_attention(m)) { ops::rope(m->acts.dqkv, table, -1, attn_shape(m, l)); }
}

static StageCost rotary_cost(const Sizes& d) { return { 0, 2.0 * d.QK }; }

// -- phi, the kernel of linear attention, on every head of q and k: elu + 1, or W2 relu(W1 x)
static void phi_forward(Model* m, int l) {
    const Sizes& d = m->sizes; const auto& w = m->weights.layer[l];
    real* qkv = act_qkv(m, l);
    if (Attn::phi == PHI_ELU1) { return ops::phi_elu1_forward(qkv, attn_shape(m, l)); }
    real *in = of_layer(m->acts.phi_in, m, l, d.QK), *hid = of_layer(m->acts.phi_hid, m, l, d.QK);
    ops::in_parts(rows(m), [&](long row, int n) {
        const long at = row * d.QK; const int all = n * (d.NH + d.KV);
        ops::qk_gather(in + at, qkv + row * d.W, only_rows(m, l, n));
        ops::matmul_forward(hid + at, in + at, w.phi1w, NULL, NULL, all, d.HS, d.HS);
        ops::ffn_forward(hid + at, hid + at, ACT_relu, false, n, d.QK);
        ops::matmul_forward(m->acts.dphi + at, hid + at, w.phi2w, NULL, NULL, all, d.HS, d.HS);
        ops::qk_scatter(qkv + row * d.W, m->acts.dphi + at, only_rows(m, l, n));
    });
}

// acts.dqkv in place.  in the forward pass this was:  q, k = W2 hid,  hid = relu(W1 in)
static void phi_backward(Model* m, int l) {
    const Sizes& d = m->sizes;
    const auto& w = m->weights.layer[l];
    const auto& g = m->grads.layer[l];
    const AttnShape s = attn_shape(m, l);
    if (Attn::phi == PHI_ELU1) { return ops::phi_elu1_backward(m->acts.dqkv, act_qkv(m, l), s); }
    real *in = of_layer(m->acts.phi_in, m, l, d.QK), *hid = of_layer(m->acts.phi_hid, m, l, d.QK);
    ops::in_parts(rows(m), g.phi1w, g.phi2w, d.HS * d.HS, [&](long row, int n, acc* dw1, acc* dw2) {
        const long at = row * d.QK; const int all = n * (d.NH + d.KV);
        real* dqkv = m->acts.dqkv + row * d.W;
        real* d1 = m->acts.dphi + at;
        real* d2 = d1 + (long)rows(m) * d.QK;
        ops::qk_gather(d1, dqkv, only_rows(m, l, n));
        ops::matmul_backward_weight(dw2, d1, hid + at, all, d.HS, d.HS);
        ops::matmul_backward_input(d2, d1, w.phi2w, false, all, d.HS, d.HS);
        ops::ffn_backward(d2, d2, hid + at, ACT_relu, false, n, d.QK);
        ops::matmul_backward_weight(dw1, d2, in + at, all, d.HS, d.HS);
        ops::matmul_backward_input(d1, d2, w.phi1w, false, all, d.HS, d.HS);
        ops::qk_scatter(dqkv, d1, only_rows(m, l, n));
    });
}

static StageCost phi_cost(const Sizes& d) { return { d.phi ? 4.0 * d.QK * d.HS : 0, 4.0 * d.QK }; }

// -- attention

static void attention_forward(Model* m, int l) {
    if (m->cache) { cache_append(m, l); }
    each_span(m, [&](const Span& span) {
        if (span.position > 0) { return; }
        const size_t row = span.row;
        real* out = act_att(m, l) + row * m->sizes.NH * m->sizes.HS;
        acc* stat = act_stat(m, l) + row * m->sizes.NH * 2;
        const real* qkv = act_qkv(m, l) + row * m->sizes.W;
        variant::attention_forward(out, stat, qkv, star_k(m, l), star_v(m, l),
                                   span_shape(m, l, span));
    });
    attention_continued(m, l);
}

// acts.datt -> acts.dqkv
static void attention_backward(Model* m, int l) {
    const auto& g = m->grads.layer[l];
    acc *dk = m->sizes.bias.column == LOGIT_COLUMN ? g.zstar : g.kstar,
        *dv = m->sizes.bias.learn_v ? g.vstar : NULL;
    const acc* turns = turns_in_attention(m) ? layer_turns(m, l) : NULL;
    variant::attention_backward(m->acts.dqkv, dk, dv, m->acts.datt, act_att(m, l), act_stat(m, l),
                                act_qkv(m, l), star_k(m, l), star_v(m, l), turns,
                                attn_shape(m, l));
}

static StageCost attention_cost(const Sizes& d) { return { 0, double(d.W + d.NH * d.HS) }; }

// -- GATE: o sigmoid(g), g = n W_g^T: a number for each head, or for each of its channels

static void gate_forward(Model* m, int l) {
    const auto& w = m->weights.layer[l];
    const Sizes& d = m->sizes;
    real* gate = act_gate(m, l);
    ops::matmul_forward(gate, act_n(m, 2 * l), w.gw, NULL, NULL, rows(m), d.C, d.G);
    ops::gate_forward(act_gated(m, l), act_att(m, l), gate, gate_width(m), attn_shape(m, l));
}

// acts.dgated -> acts.datt and, through the gate, acts.dn
static void gate_backward(Model* m, int l) {
    const auto& w = m->weights.layer[l]; const auto& g = m->grads.layer[l];
    const int N = rows(m);
    ops::gate_backward(m->acts.datt, m->acts.dgate, m->acts.dgated, act_att(m, l), act_gate(m, l),
                       gate_width(m), attn_shape(m, l));
    ops::matmul_backward_weight(g.gw, m->acts.dgate, act_n(m, 2 * l), N, m->sizes.C, m->sizes.G);
    ops::matmul_backward_input(m->acts.dn, m->acts.dgate, w.gw, false, N, m->sizes.C, m->sizes.G);
}

static StageCost gate_cost(const Sizes& d) {
    return { 2.0 * d.C * d.G, d.C + 2.0 * d.NH * d.HS };
}

// the gradient of the heads' output
static real* dact_out(const Model* m) {
    return m->sizes.gate ? m->acts.dgated : m->acts.datt;
}

// -- COMBINE and BIAS=v: the heads plus v*, side by side or summed

static void combine_forward(Model* m, int l) {
    const real* v = m->sizes.bias.add_v ? m->weights.layer[l].vstar : NULL;
    ops::heads_forward(act_heads(m, l), act_out(m, l), v, m->arch.combine == COMBINE_sum,
                       attn_shape(m, l));
}

static void combine_backward(Model* m, int l) {
    acc* dv = m->sizes.bias.add_v ? m->grads.layer[l].vstar : NULL;
    ops::heads_backward(dact_out(m), dv, m->acts.dheads, m->arch.combine == COMBINE_sum,
                        attn_shape(m, l));
}

static StageCost combine_cost(const Sizes& d) { return { 0, double(d.NH * d.HS + d.OC) }; }

// -- W_O, and back onto the stream
static StageInput heads_input(const Model* m, int l) {
    real* heads = m->sizes.combine ? act_heads(m, l) : act_out(m, l);
    return { heads, (int)m->sizes.OC };
}

static void attn_output_forward(Model* m, int l) {
    const auto& w = m->weights.layer[l];
    output_forward(m, 2 * l, heads_input(m, l).x, w.ow, w.ob, m->sizes.OC);
}

static void attn_output_backward(Model* m, int l) {
    const auto& w = m->weights.layer[l];
    const auto& g = m->grads.layer[l];
    real* dheads = m->sizes.combine ? m->acts.dheads : dact_out(m);
    output_backward(m, 2 * l, dheads, g.ow, g.ob, heads_input(m, l).x, w.ow, m->sizes.OC);
}

static StageCost attn_output_cost(const Sizes& d) {
    return { 2.0 * d.OC * d.C, d.OC + 2.0 * d.C };
}

// -- FFN: gate | up, the activation, down

static void up_forward(Model* m, int l) {
    const auto& w = m->weights.layer[l];
    const bool gated = m->sizes.ffn.gated;
    ops::matmul_forward(act_fch(m, l), act_n(m, 2 * l + 1), gated ? w.gatew : w.upw,
                        gated ? w.gateb : w.upb, NULL, rows(m), m->sizes.C, m->sizes.FH);
}

static void up_backward(Model* m, int l) {
    const auto& w = m->weights.layer[l]; const auto& g = m->grads.layer[l];
    const bool gated = m->sizes.ffn.gated;
    const int N = rows(m), C = m->sizes.C, FH = m->sizes.FH;
    acc* dbias = gated ? g.gateb : g.upb;
    acc* dweight = gated ? g.gatew : g.upw;
    const real* weight = gated ? w.gatew : w.upw;
    const real* dfch = m->acts.dfch;
    ops::matmul_backward_weight(dweight, dfch, act_n(m, 2 * l + 1), N, C, FH);
    if (dbias) { ops::matmul_backward_bias(dbias, dfch, N, FH); }
    ops::matmul_backward_input(m->acts.dn, dfch, weight, false, N, C, FH);
}

static StageCost up_cost(const Sizes& d) { return { 2.0 * d.C * d.FH, double(d.C + d.FH) }; }

static void activation_forward(Model* m, int l) {
    const FfnRow ffn = m->sizes.ffn;
    ops::ffn_forward(act_fca(m, l), act_fch(m, l), ffn.act, ffn.gated, rows(m), m->sizes.F);
}

static void activation_backward(Model* m, int l) {
    const FfnRow ffn = m->sizes.ffn;
    ops::ffn_backward(m->acts.dfch, m->acts.dfca, act_fch(m, l), ffn.act, ffn.gated, rows(m),
                      m->sizes.F);
}

static StageCost activation_cost(const Sizes& d) { return { 0, double(d.FH + d.F) }; }

static void down_forward(Model* m, int l) {
    const auto& w = m->weights.layer[l];
    output_forward(m, 2 * l + 1, act_fca(m, l), w.downw, w.downb, m->sizes.F);
}

static void down_backward(Model* m, int l) {
    const auto& w = m->weights.layer[l];
    const auto& g = m->grads.layer[l];
    const real* input = act_fca(m, l);
    output_backward(m, 2 * l + 1, m->acts.dfca, g.downw, g.downb, input, w.downw, m->sizes.F);
}

static StageCost down_cost(const Sizes& d) { return { 2.0 * d.F * d.C, d.F + 2.0 * d.C }; }
static StageInput down_input(const Model* m, int l) { return { act_fca(m, l), m->arch.F }; }

// ---- which stages a layer has

static bool always(const Sizes&, long)          { return true; }
static bool attends(const Sizes& d, long l)     { return d.attends(l); }
static bool norms_qk(const Sizes& d, long l)    { return d.attends(l) && d.qkn; }
static bool rotates(const Sizes& d, long l)     { return d.attends(l) && d.pe.rotary; }
static bool has_phi(const Sizes& d, long l)     { return d.attends(l) && Attn::phi != PHI_NONE; }
static bool has_gate(const Sizes& d, long l)    { return d.attends(l) && d.gate; }
static bool combines(const Sizes& d, long l)    { return d.attends(l) && d.combine; }
static bool is_mamba(const Sizes& d, long l)    { return d.mamba(l); }
static bool is_delta(const Sizes& d, long l)    { return d.delta(l); }
static bool has_ffn(const Sizes& d, long l)     { return !d.mixture(l); }
static bool has_experts(const Sizes& d, long l) { return d.mixture(l); }

// ---- a layer is this list, forward; backward is the same list from the end
#define BOTH(stage) stage##_forward, stage##_backward
const std::vector<Stage> LAYER_STAGES = {
    // name        runs if      what it does       cost of a row     its input    role
    { "norm",       always,      BOTH(attn_input),  norm_cost,        no_product,  ROLE_NONE },
    { "qkv",        attends,     BOTH(qkv),         qkv_cost,         attn_input,  ROLE_NONE },
    { "qk norm",    norms_qk,    BOTH(qk_norm),     qk_norm_cost,     no_product,  ROLE_NONE },
    { "rotary",     rotates,     BOTH(rotary),      rotary_cost,      no_product,  ROLE_NONE },
    { "phi",        has_phi,     BOTH(phi),         phi_cost,         no_product,  ROLE_NONE },
    { "attention",  attends,     BOTH(attention),   attention_cost,   no_product,  ROLE_ATTENTION },
    { "gate",       has_gate,    BOTH(gate),        gate_cost,        attn_input,  ROLE_GATE },
    { "combine",    combines,    BOTH(combine),     combine_cost,     no_product,  ROLE_NONE },
    { "out",        attends,     BOTH(attn_output), attn_output_cost, heads_input, ROLE_ATTN_OUT },
    { "mamba",      is_mamba,    BOTH(mamba),       no_cost,          no_product,  ROLE_NONE },
    { "delta rule", is_delta,    BOTH(delta),       no_cost,          no_product,  ROLE_NONE },
    { "FFN norm",   always,      BOTH(ffn_input),   norm_cost,        no_product,  ROLE_NONE },
    { "gate|up",    has_ffn,     BOTH(up),          up_cost,          ffn_input,   ROLE_NONE },
    { "activation", has_ffn,     BOTH(activation),  activation_cost,  no_product,  ROLE_NONE },
    { "down",       has_ffn,     BOTH(down),        down_cost,        down_input,  ROLE_FFN_OUT },
    { "experts",    has_experts, BOTH(experts),     no_cost,          no_product,  ROLE_FFN_OUT },
};
#undef BOTH

// ============================================================================
// 2 the model

// tokens -> x_0
void embed_forward(Model* m) {
    const Arch& c = m->arch;
    const real* positions = m->sizes.pe.learnable ? m->weights.wpe : m->positions;
    real* out = c.norm_embed ? m->acts.embed : act_x(m, 0);
    each_span(m, [&](const Span& span) {
        real* x = out + (size_t)span.row * c.C;
        const int* tokens = m->tokens + span.row;
        const real* from = positions ? positions + (size_t)span.position * c.C : NULL;
        const real* sink = span.position ? NULL : m->weights.sink;
        ops::embed_forward(x, tokens, m->weights.wte, from, sink, c.embed_scale, span.sequences,
                           span.length, c.C);
    });
    if (!c.norm_embed) { return; }
    norm_forward(m, act_x(m, 0), out, m->weights.lnew, m->weights.lneb, norm_embed(m));
}

void embed_backward(Model* m) {
    const Arch& c = m->arch;
    const Params<acc>& g = m->grads;
    if (c.norm_embed) {
        norm_backward(m, m->acts.dn, g.lnew, g.lneb, m->acts.dx, m->acts.embed, m->weights.lnew,
                      norm_embed(m), false);
    }
    const real* dx = c.norm_embed ? m->acts.dn : m->acts.dx;
    ops::embed_backward(g.wte, g.wpe, g.sink, dx, m->tokens, c.embed_scale, m->B, m->T, c.C);
}

// Divides the logits by --logit-divisor: x (N, C) is what lm_head reads, or its gradient.
static void divide_logits(const Model* m, real* x) {
    const acc divisor = m->arch.logit_divisor;
    if (divisor != 1) { ops::add(x, NULL, (long)rows(m) * m->sizes.C, 1 / divisor); }
}

// tokens -> what lm_head reads. watch(l) is called after layer l, and with -1 after the embedding:
// its activations are valid then, and perhaps not later
void model_body(Model* m, const Watch& watch) {
    embed_forward(m);
    if (watch) { watch(-1); }
    for (int l = 0; l < m->sizes.L; l++) {
        for (auto& stage : LAYER_STAGES) {
            if (!stage.when(m->sizes, l)) { continue; }
            if (m->around) { m->around(m, stage, l); } else { stage.forward(m, l); }
        }
        if (watch) { watch(l); }
    }
    if (!m->sizes.norm.stream) {
        const real* last = act_x(m, 2 * m->sizes.L);
        norm_forward(m, act_top(m), last, m->weights.lnfw, m->weights.lnfb, norm_final(m));
    }
    divide_logits(m, act_top(m));
}

// runs the model on its last T `tokens`; returns what lm_head reads of the last one. If the cache
// holds all rows before it, only its own is computed. Not within a prefix: there earlier rows see
// later ones, and change
const real* model_read(Model* m, const std::vector<int>& tokens) {
    const int T = std::min<size_t>(tokens.size(), m->arch.T), row = T - 1 + m->sizes.bias.token;
    const bool next = row > 0 && cached_rows(m) == row && row >= attn_shape(m, 0).prefix;
    if (next) {
        model_load_next(m, tokens.back(), row);
    } else {
        std::vector<int> seq(tokens.end() - T, tokens.end());
        seq.push_back(0);
        model_load(m, seq.data(), 1, T);
    }
    model_body(m);
    return act_top(m) + (size_t)(m->T - 1) * m->sizes.C;
}

// where the gradient of what lm_head reads goes
static real* dtop(const Model* m) { return m->sizes.norm.stream ? m->acts.dx : m->acts.dn; }

// losses (N) of rows x (N, C) that the head reads, where nothing else is wanted: the vocabulary
// is done in parts, so that the logits stay in cache
void head_losses(Model* m, acc* losses, const real* x, const int* targets, int N) {
    const Arch& c = m->arch;
    const long room = m->R * (long)c.V / N;
    const int part = std::min<long>(c.V, std::max(1L, std::min<long>(ops::lm_head_part, room)));
    std::vector<cpu::ClassifierRow> rows_of(N);
    for (int v = 0; v < c.V; v += part) {
        const int some = std::min(part, c.V - v);
        ops::matmul_forward(m->acts.logits, x, m->weights.lmw + (size_t)v * c.C,
                            m->weights.lmb ? m->weights.lmb + v : NULL, NULL, N, c.C, some);
        cpu::classifier_part(rows_of.data(), m->acts.logits, targets, c.logit_cap, v, some, N);
    }
    for (int n = 0; n < N; n++) { losses[n] = targets[n] < 0 ? acc(0) : rows_of[n].loss(); }
}

// the classifier, R rows at a time so that the logits never exist whole. Fills acts.losses; if
// dloss is not 0 also adds to the gradients of lm_head and makes that of what it reads, both of
// dloss * sum of losses
void model_head(Model* m, float dloss) {
    const Arch& c = m->arch;
    const int N = rows(m);
    if (ops::lm_head_part && !m->train && dloss == 0) {
        head_losses(m, m->acts.losses, act_top(m), m->targets, N);
        return;
    }
    for (int r = 0; r < N; r += m->R) {
        const int some = std::min(m->R, N - r);
        real* n = act_top(m) + (size_t)r * c.C;
        real* logits = m->acts.logits;
        ops::matmul_forward(logits, n, m->weights.lmw, m->weights.lmb, NULL, some, c.C, c.V);
        ops::classifier(m->acts.losses + r, logits, m->targets + r, dloss, c.logit_cap, some, c.V);
        if (dloss == 0) { continue; }
        real* dn = dtop(m) + (size_t)r * c.C;
        ops::matmul_backward_input(dn, logits, m->weights.lmw, false, some, c.C, c.V);
        ops::matmul_backward_weight(m->grads.lmw, m->acts.logits, n, some, c.C, c.V);
        if (m->grads.lmb) { ops::matmul_backward_bias(m->grads.lmb, m->acts.logits, some, c.V); }
    }
}

// the losses of the loaded batch, (B, T); those that do not count are 0
std::vector<acc> model_losses(Model* m) {
    std::vector<acc> x((size_t)rows(m));
    ops::to_host(x.data(), m->acts.losses, x.size() * sizeof(acc));
    return x;
}

// mean loss over the `count` targets that count; 0 if none does
double model_forward(Model* m, long count, float dloss, const Watch& watch) {
    model_body(m, watch);
    model_head(m, dloss);
    double sum = 0;
    for (acc x : model_losses(m)) { sum += x; }
    return count ? sum / count : 0;
}

// after the forward pass and model_head with dloss: adds the gradient of dloss * sum of losses to
// every tensor of grads. last: no more is added in this step, so what is done goes to the other
// ranks. watch(l): acts.dx is that of x_2l, the stream before layer l, or, with L, at the end
void model_backward(Model* m, bool last, const Watch& watch) {
    auto done = [=](long from) {
        if (last) { shard_send(m->shard, m->shard_grads, m->grads_memory, from, &m->sent); }
    };
    if (!m->sizes.norm.stream) {
        divide_logits(m, m->acts.dn);
        const Params<acc>& g = m->grads;
        const real* last = act_x(m, 2 * m->sizes.L);
        norm_backward(m, m->acts.dx, g.lnfw, g.lnfb, m->acts.dn, last, m->weights.lnfw,
                      norm_final(m), false);
    }
    done(m->layer_at[m->sizes.L]);
    if (watch) { watch(m->sizes.L); }
    for (int l = m->sizes.L - 1; l >= 0; l--) {
        for (int k = LAYER_STAGES.size() - 1; k >= 0; k--) {
            if (LAYER_STAGES[k].when(m->sizes, l)) { LAYER_STAGES[k].backward(m, l); }
        }
        done(m->layer_at[l]);
        if (watch) { watch(l); }
    }
    embed_backward(m);
    done(0);
}

// a step begins: no gradients, no loss
void model_zero(Model* m) {
    ops::device_zero(m->grads_memory, m->num_params * sizeof(acc));
    ops::device_zero(m->sums, sizeof(StepSums));
    m->sent = 0;
}

// runs the loaded batch forward and backward; adds its part to the gradients and to the mean loss
// over `count` targets
void accumulate_loaded(Model* m, long count, bool last) {
    model_body(m);
    model_head(m, 1.0f / count);
    ops::loss_add(m->sums, m->acts.losses, rows(m), count);
    model_backward(m, last);
}

// Returns what the launches of a micro-batch depend on: with the same key they are the same.
static std::vector<size_t> batch_key(const Model* m, long count) {
    return { (size_t)m->B,             (size_t)m->T,            (size_t)count,
             (size_t)m->arena,         (size_t)m->tokens,       (size_t)m->targets,
             (size_t)m->params_memory, (size_t)m->grads_memory, (size_t)m->acts.dx };
}

// one micro-batch, seqs (B, T+1), of a step in which `count` targets count, of all micro-batches
// and ranks. last: this rank's last one. The host does not wait for any of it
void model_accumulate(Model* m, const int* seqs, int B, int T, long count,
                      bool last) {
    const int some = piece_sequences(m, B, T);
    if (some < B) {
        accumulate_pieces(m, seqs, B, T, some, count);
        if (last) { shard_send(m->shard, m->shard_grads, m->grads_memory, 0, &m->sent); }
        return;
    }
    model_load(m, seqs, B, T, m->min_context);
    ops::repeated(batch_key(m, count), [=] { accumulate_loaded(m, count, last); });
}

#ifndef MODEL_ONLY // the tests of the model stop reading here
// ============================================================================
// 3 train

// One optimizer step. The next one's sequences are drawn while a GPU is busy with this one's, and
// before its update: whatever reads a file may fail, and then the weights are those of `step`.
static StepSums train_step(Run* r, long step) {
    Model* m = &r->m;
    const Flags& f = r->f;
    const int T = f.arch.T, B = f.batch;
    const long n = r->accum * f.batch;
    run_draw(r);
    const int* seqs = r->seqs.data();
    double count = targets_count(m, seqs, n, T);
    dist::sum(&count, 1);
    if (count == 0) { return { NAN, 0, 1 }; }            // no weight moves, no moment: no loss
    model_zero(m);
    for (long i = 0; i < n; i += B) {
        model_accumulate(m, seqs + i * (T + 1), B, T, count, i + B == n);
    }
    if (step + 1 < f.steps) { run_draw_ahead(r); }
    const Update o = { (float)learning_rate(schedule_of(f), step), (float)f.beta1, (float)f.beta2,
                      (float)f.adam_eps, (float)f.weight_decay, step + 1 };
    return model_update(m, o, f.grad_clip, optimizer_of(f.optimizer));
}

int command_train(Flags flags) {
    ops::tune_products();
    ops::use_graph(flags.graph);
    Run r = run_open(flags);
    const Flags& f = r.f;
    run_describe(r);
    log_begin(&r);
    run_check_log(r);
    on_signals();
    long step = r.first;
    for (;; step++) { // at the top, `step` updates have been made
        const bool loaded = r.resumed && step == r.first, last = step >= f.steps;
        const Due due = run_due(r, step);
        const std::vector<uint64_t> place = run_place(r);
        const bool due_eval = last || step == 0 || (f.eval_every && step % f.eval_every == 0);
        if (!loaded && due_eval && !survives([&] { run_evaluate(&r, step); })) {
            run_lost_data(&r, step, place);
        }
        if (due.save) { run_save(&r, step, due.keep); }
        if (last || due.stop) { break; }
        const double begin = now_ms();
        StepSums sums;
        if (!survives([&] { sums = train_step(&r, step); })) { run_lost_data(&r, step, place); }
        const double loss = sums.loss, grad_norm = sqrt(sums.squares);
        run_report_step(&r, step + 1, loss, grad_norm, now_ms() - begin);
        if (std::isnan(sums.grad_scale)) { run_diverged(r, step + 1, loss, grad_norm); }
    }
    run_finish(&r, step);
    model_free(&r.m);
    dist::stop();
    return 0;
}

// ============================================================================
// 4 main

#ifndef TESTING
// Where a command takes a checkpoint, a run's directory stands for the newest one in it.
static void words_to_checkpoints(const CommandRow& command, Flags* f) {
    if (strcmp(command.words, "CHECKPOINT")) { return; }
    for (auto& word : f->words) { word = checkpoint_in(word); }
}

int main(int argc, char** argv) {
    process_begin(argv);
    char letter;
    if (argc == 1) { welcome(); return 0; }
    dist::start();
    Flags f = flags_parse(argc, argv, &letter);
    command_known(f, letter);
    if (dist::world > 1 && letter != 't') {
        die(EXIT_USER,
            strf("%d processes were started, but only train can use many", dist::world),
            "run this command without mpirun, srun or torchrun");
    }
    threads_check();
    const bool computes = letter != 'k';         // all but tokenize
    if (computes) { product_settle(f); }
    for (auto& row : COMMAND_ROWS) { if (row.letter == letter) { words_to_checkpoints(row, &f); } }
    if (computes) { ops::device_start(); }       // no GPU, old GPU, old driver: reported first
    #define X(name, mark, ...) if (letter == mark) { return command_##name(f); }
    COMMANDS(X)
    #undef X
    return 0;
}
#endif // TESTING
#endif // MODEL_ONLY
