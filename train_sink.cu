/*
train_sink.cu -- trains small LLaMA-style language models and watches where their attention goes.

    make train_sink ATTN=sigmoid BIAS=k && ./train_sink -d pile_5B  (make help, ./train_sink --help)

Only attention's inner loop is compiled in, by the build's switches. Everything else about a model
is data: a row of ARCH, set by a switch, a flag or a checkpoint. Each include below says what it
provides; read tensors.h and model.h first. This file reads from top to bottom:

     1 a layer       the list of its stages, each a forward and a backward function
     2 the model     a pass over all layers, forward and backward; a micro-batch
     3 train         an optimizer step; a run around the steps
     4 main          and the other commands

TO ADD a value of a switch: one row of its table, and at most one struct (attention_variants.cuh,
block_variants.h).
TO ADD an idea: its rows of ARCH, PARAMS and ACTS, one stage, and its operation in reference.h, cpu/
and cuda/.

Letters: B sequences, T tokens of each (with the sink token, if there is one), C channels, NH heads,
KV key/value heads, HS head size, F FFN width, OC channels that W_O reads, L layers, V vocabulary,
N = B T rows.
*/
#if !defined(APART) && !defined(WITHOUT_VARIANT) && !defined(MODEL_ONLY)
#include "core/defaults.h"  // the switches that -D does not name
#endif
#include "tensors.h"        // PARAMS, ACTS: every tensor is a row
#include "core/operations.h"     // real, acc, ops: the backend; variant::attend
#include "model.h"          // Model, model_load, and where its activations are
#include "core/kv_cache.h"       // cache_keep, attention_forest: rows that come after others
#include "core/train_sink.h"     // Stage, LayerCallback: what this file gives to the commands
#include "core/optimizer.h"      // model_update
#include "core/measure.h"        // measure: sinks and norms of a batch of sequences
#include "flags.h"          // Flags: every flag is a row
#include "dataloader.h"     // Data: where a batch comes from
#include "run/gpu.h"         // gpu_ask: before the GPU is taken
#include "run/commands.h" // command_probe and the others, one file each
#include "run/train.h"    // run_open, run_evaluate, run_save: a run around its steps
#include "run/process.h"     // process_begin, on_signals
#include "core/saves.h"       // checkpoint_in

// ============================================================================
// 1 a layer

// A layer is two branches of one stream x_0 .. x_2L, attention (i = 2l) and FFN (i = 2l + 1):
//
//      NORM=pre       x_{i+1} = x_i + f_i(norm(x_i))          (Eq. 2)
//      post           x_{i+1} = norm(x_i + f_i(x_i))          (Eq. 3)
//      sandwich       x_{i+1} = x_i + norm(f_i(norm(x_i)))
//      branch         x_{i+1} = x_i + norm(f_i(x_i))
//      --parallel 1   the FFN reads x_2l, as attention does
//
// x_2L, after a final norm unless NORM=post, goes to lm_head. The hidden state h^l of the paper is
// x_2l.

// ---- a stage is two functions on layer l. Their contract:
//
//   forward    reads what stages before it left of this layer (ACTS, tensors.h) and writes its own.
//              The last one of branch i writes x_{i+1}, whichever a layer has
//   backward   from the gradient of its output overwrites that of its input, and adds those of its
//              weights. acts.dx is of x_{i+1} when a branch begins and of x_i when its norm has
//              ended. Between are dheads, dgated, datt (what W_O reads), dqkv; dfca, dfch; and dn
//              (what the norm gave), which the last reader of n, first in backward, overwrites, and
//              the others add to. A branch where nothing reads n must run no norm
//   when       may depend on the layer: ask it of this l, and of no other

// ---- a layer is this list, forward; backward is the same list from the end. Of a plain LLaMA
// layer these stages run, for the residual stream x:
//
//      norm         n = RMSNorm(x)
//      qkv          q, k, v = n W_q^T, n W_k^T, n W_v^T
//      rotary       q, k turned by their position
//      attention    s_j = q . k_j / sqrt(HS),  w_j = e^{s_j},  o = sum_j w_j v_j / sum_j w_j
//      out          x = x + o W_O^T
//      FFN norm     n = RMSNorm(x)
//      gate|up      g, u = n W_gate^T, n W_up^T
//      activation   a = g sigmoid(g) u
//      down         x = x + a W_down^T

// What the list names, defined below it in the same order.
typedef bool When(const Model* m, int l);
typedef void Pass(Model* m, int l);
typedef StageInput Reads(const Model* m, int l);
static When always, has_attn, gates_v, norms_qk, rotates, has_phi, gates, combines, has_ffn;
static Pass attn_input_forward, attn_input_backward, qkv_forward, qkv_backward,
            value_gate_forward, value_gate_backward, qk_norm_forward, qk_norm_backward,
            rotary_forward, rotary_backward, phi_forward, phi_backward, attend_forward,
            attend_backward, gate_forward, gate_backward, combine_forward, combine_backward,
            attn_output_forward, attn_output_backward, ffn_input_forward, ffn_input_backward,
            up_forward, up_backward, activation_forward, activation_backward, down_forward,
            down_backward;
static Reads attn_input, gate_input, heads_input, ffn_input, down_input;

#define BOTH(stage) stage##_forward, stage##_backward
const std::vector<Stage> LAYER_STAGES = {
    // name        runs if      what it does       its input    role
    { "norm",       always,      BOTH(attn_input) },
    { "qkv",        has_attn,    BOTH(qkv),         attn_input },
    { "value gate", gates_v,     BOTH(value_gate),  attn_input },
    { "qk norm",    norms_qk,    BOTH(qk_norm) },
    { "rotary",     rotates,     BOTH(rotary) },
    { "phi",        has_phi,     BOTH(phi) },
    { "attention",  has_attn,    BOTH(attend),      NULL,        ROLE_ATTENTION },
    { "gate",       gates,       BOTH(gate),        gate_input,  ROLE_GATE },
    { "combine",    combines,    BOTH(combine) },
    { "out",        has_attn,    BOTH(attn_output), heads_input, ROLE_ATTN_OUT },
    OPEN_MIXER_STAGES
    { "FFN norm",   always,      BOTH(ffn_input) },
    { "gate|up",    has_ffn,     BOTH(up),          ffn_input },
    { "activation", has_ffn,     BOTH(activation) },
    { "down",       has_ffn,     BOTH(down),        down_input,  ROLE_FFN_OUT },
    OPEN_FFN_STAGES
};
#undef BOTH

// ---- what the stages are made of: products, norms, and the two ends of a branch

// -- a product:  out = inp W^T + b

static void linear_forward(real* out, const real* inp, const Linear& of, int N,
                           const real* residual = NULL) {
    ops::matmul_forward(out, inp, of.weight.w, of.bias.w, residual, N, of.C, of.OC);
}

// Computes dinp, or adds to it, and the gradients of the weights. In the forward pass this was:
//      out = inp W^T + b
static void linear_backward(real* dinp, const real* dout, const real* inp, const Linear& of, int N,
                            bool add = false) {
    ops::matmul_backward_weight(of.weight.d, dout, inp, N, of.C, of.OC);
    if (of.bias.d) { ops::matmul_backward_bias(of.bias.d, dout, N, of.OC); }
    ops::matmul_backward_input(dinp, dout, of.weight.w, add, N, of.C, of.OC);
}

// -- norms

struct Norm {
    Param weight, bias;
    NormStats<acc> stats;
};

// Returns the statistics of norm `number`. Norms are numbered: first those before branches, then
// the final one, the embedding's, and those after branches.
static NormStats<acc> norm_stats(const Model* m, int number) {
    const size_t row = (size_t)number * rows(m);
    acc* mean = m->sizes.ln ? m->acts.mean + row : NULL;
    return { mean, m->acts.rstd + row };
}

static Norm norm_before(const Model* m, int i) {
    const auto& p = layer_params(m, i / 2);
    const NormStats<acc> stats = norm_stats(m, kept_branch(m, i));
    if (i % 2) {                                 // the FFN
        return { p.norm_ffn_w, p.norm_ffn_b, stats };
    }
    return { p.norm_attn_w, p.norm_attn_b, stats };
}

static Norm norm_after(const Model* m, int i) {
    const auto& p = layer_params(m, i / 2);
    const NormStats<acc> stats = norm_stats(m, branches_kept(m) + 2 + kept_branch(m, i));
    if (i % 2) {                                 // the FFN
        return { p.norm_ffn_out_w, p.norm_ffn_out_b, stats };
    }
    return { p.norm_attn_out_w, p.norm_attn_out_b, stats };
}

static Norm norm_final(const Model* m) {
    const Params& p = m->params;
    return { p.norm_final_w, p.norm_final_b, norm_stats(m, branches_kept(m)) };
}

static Norm norm_embed(const Model* m) {
    const Params& p = m->params;
    return { p.norm_embed_w, p.norm_embed_b, norm_stats(m, branches_kept(m) + 1) };
}

static NormShape norm_shape(const Model* m) { return { rows(m), m->arch.C, m->arch.eps }; }

static void norm_forward(Model* m, real* out, const real* x, const Norm& norm) {
    ops::norm_forward(out, norm.stats, x, { norm.weight.w, norm.bias.w }, norm_shape(m));
}

// Computes dx, or adds to it, and the gradients of the weights. In the forward pass this was:
//      out = norm(x)
static void norm_backward(Model* m, real* dx, const real* dout, const real* x, const Norm& norm,
                          bool add = false) {
    const NormStats<const acc> stats = { norm.stats.mean, norm.stats.rstd };
    ops::norm_backward(dx, { norm.weight.d, norm.bias.d }, dout, x, norm.weight.w, stats, add,
                       norm_shape(m));
}

// Adds rows of the stream: y = by y + x (N, C); x NULL counts as zeros.
static void stream_add(const Model* m, real* y, const real* x, acc by = 1) {
    ops::add(y, x, rows(m) * m->sizes.C, by);
}

// -- the beginning of a branch: n_i = norm(x_i), or x_i itself

static void input_forward(Model* m, int i) {
    if (m->sizes.norm.in) { norm_forward(m, act_n(m, i), branch_x(m, i), norm_before(m, i)); }
}

// Computes acts.dx from acts.dn. In the forward pass this was:
//      n_i = norm(x_i),   and   x_{i+1} = x_i + ..   reads x_i too
static void input_backward(Model* m, int i) {
    const Acts& a = m->acts;
    const bool parallel = m->arch.parallel;
    // attention's backward comes next and needs dx unchanged
    const bool apart = parallel && i % 2;
    if (m->sizes.norm.in) {
        real* dx = apart ? a.dx_ffn : a.dx;
        norm_backward(m, dx, a.dn, branch_x(m, i), norm_before(m, i), !apart);
    } else {
        stream_add(m, a.dx, a.dn);
    }
    if (parallel && !apart) { stream_add(m, a.dx, a.dx_ffn); }
}

// -- the end of a branch: x_{i+1} = x_i + inp W^T + b, through the norm after it if there is one

void output_forward(Model* m, int i, const real* inp, const Linear& w) {
    const NormRow& norm = m->sizes.norm;
    const float scale = m->arch.residual_scale;     // 1, or NORM=pre
    const real* x = act_x(m, i);
    real* next = act_x(m, i + 1);
    real* out = norm.out ? act_f(m, i) : next;
    const bool x_joins_later = (norm.out && !norm.stream) || scale != 1;
    linear_forward(out, inp, w, rows(m), x_joins_later ? NULL : x);
    if (scale != 1) { stream_add(m, out, x, scale); }
    if (!norm.out) { return; }
    norm_forward(m, next, out, norm_after(m, i));
    if (!norm.stream) { stream_add(m, next, x); }
}

// Computes dinp from acts.dx. In the forward pass this was:  x_{i+1} = x_i + inp W^T + b
static void output_backward(Model* m, int i, real* dinp, const real* inp, const Linear& w) {
    const Acts& a = m->acts;
    const NormRow& norm = m->sizes.norm;
    const float scale = m->arch.residual_scale;
    real* df = a.dx;
    if (scale != 1) {
        df = a.df;
        ops::device_copy(df, a.dx, rows(m) * m->sizes.C * sizeof(real));
        stream_add(m, df, NULL, scale);
    }
    if (norm.out) {
        // NORM=post: in place, because what came through the norm is the first part of dx_i
        df = norm.stream ? a.dx : a.df;
        norm_backward(m, df, a.dx, act_f(m, i), norm_after(m, i));
    }
    linear_backward(dinp, df, inp, w, rows(m));
}

// ---- the stages of a layer, in their order

static StageInput branch_input(const Model* m, int i) { return { act_n(m, i), m->arch.C }; }
static StageInput attn_input(const Model* m, int l)   { return branch_input(m, 2 * l); }
static StageInput gate_input(const Model* m, int l) {
    return m->sizes.gate.reads ? attn_input(m, l) : StageInput{ NULL, 0 };
}
static StageInput ffn_input(const Model* m, int l)    { return branch_input(m, 2 * l + 1); }

// -- the norm that begins a branch

static void attn_input_forward(Model* m, int l)  { input_forward(m, 2 * l); }
static void attn_input_backward(Model* m, int l) { input_backward(m, 2 * l); }
static void ffn_input_forward(Model* m, int l)   { input_forward(m, 2 * l + 1); }
static void ffn_input_backward(Model* m, int l)  { input_backward(m, 2 * l + 1); }

// -- q, k, v = n W^T + b

static Linear qkv_linear(const Model* m, int l) {
    const auto& p = layer_params(m, l);
    return { p.qw, p.qb, m->sizes.C, m->sizes.qkv_width };
}

static void qkv_forward(Model* m, int l) {
    linear_forward(act_qkv(m, l), act_n(m, 2 * l), qkv_linear(m, l), rows(m));
}

// Computes acts.dn from acts.dqkv. In the forward pass this was:  q, k, v = n W^T + b. A gate that
// reads n has already written to acts.dn.
static void qkv_backward(Model* m, int l) {
    const Acts& a = m->acts;
    const bool add = m->sizes.gate.reads;
    linear_backward(a.dn, a.dqkv, act_n(m, 2 * l), qkv_linear(m, l), rows(m), add);
}

// -- GATE: what it is applied to times sigmoid(g),  g = n W_g^T, or learned as it is

static Linear gate_linear(const Model* m, int l) {
    return { layer_params(m, l).gw, {}, m->sizes.C, m->sizes.gate_width };
}

// -- GATE=value: v becomes v sigmoid(g)

// Returns the shape of the values, as if they were the outputs of heads.
static AttnShape value_shape(const Model* m, int l) {
    AttnShape s = attn_shape(m, l);
    s.NH = s.KV;
    return s;
}

static void value_gate_forward(Model* m, int l) {
    const Sizes& sizes = m->sizes;
    real* v = act_qkv(m, l) + sizes.qk_width;
    linear_forward(act_gate(m, l), act_n(m, 2 * l), gate_linear(m, l), rows(m));
    ops::copy_rows(act_v_in(m, l), sizes.kv_width, v, sizes.qkv_width, rows(m), sizes.kv_width);
    ops::gate_forward(act_gated(m, l), act_v_in(m, l), act_gate(m, l), sizes.HS,
                      value_shape(m, l));
    ops::copy_rows(v, sizes.qkv_width, act_gated(m, l), sizes.kv_width, rows(m), sizes.kv_width);
}

// Computes dv in place and, through the gate, acts.dn. In the forward pass this was:
//      v' = v sigmoid(g),   g = n W_g^T
static void value_gate_backward(Model* m, int l) {
    const Sizes& sizes = m->sizes;
    const Acts& a = m->acts;
    real* dv = a.dqkv + sizes.qk_width;
    ops::copy_rows(a.dgated, sizes.kv_width, dv, sizes.qkv_width, rows(m), sizes.kv_width);
    ops::gate_backward(a.dgated, a.dgate, a.dgated, act_v_in(m, l), act_gate(m, l), sizes.HS,
                       value_shape(m, l));
    ops::copy_rows(dv, sizes.qkv_width, a.dgated, sizes.kv_width, rows(m), sizes.kv_width);
    linear_backward(a.dn, a.dgate, act_n(m, 2 * l), gate_linear(m, l), rows(m));
}

// -- QKNORM: q and k become norm(q), norm(k), of each head or of all heads together

static void qk_norm_forward(Model* m, int l) {
    const auto& p = layer_params(m, l);
    const bool all = m->arch.qk_norm == QKNORM_all;
    ops::qk_norm_forward(act_qkv(m, l), act_qk_in(m, l), act_qk_rstd(m, l), { p.qnw.w, p.knw.w },
                         all, m->arch.eps, attn_shape(m, l));
}

// Computes acts.dqkv in place. In the forward pass this was:  q = norm(q), k = norm(k)
static void qk_norm_backward(Model* m, int l) {
    const auto& p = layer_params(m, l);
    const bool all = m->arch.qk_norm == QKNORM_all;
    ops::qk_norm_backward(m->acts.dqkv, { p.qnw.d, p.knw.d }, act_qk_in(m, l), act_qk_rstd(m, l),
                          { p.qnw.w, p.knw.w }, all, attn_shape(m, l));
}

// -- rotary: q and k are rotated by their position. In training attention does it on its way, to
// save a pass over them

// Returns the table by which attention of layer l rotates q and k itself. NULL if they do not
// rotate, or have been rotated before: because a stage between rotary and attention, a hook or a
// cache reads them, or only a part of each head rotates.
static const acc* attention_rope(const Model* m, int l) {
    const bool read_before = !m->train || m->stage_hook || m->cache;
    if (read_before || rotated(m->arch) != m->sizes.HS) { return NULL; }
    Pass* previous = NULL;                       // of the last stage before attention
    for (auto& stage : LAYER_STAGES) {
        if (stage.role == ROLE_ATTENTION) { break; }
        if (stage.when(m, l)) { previous = stage.forward; }
    }
    return previous == rotary_forward ? layer_rope(m, l) : NULL;
}

static void rotary_forward(Model* m, int l) {
    if (attention_rope(m, l)) { return; }
    const acc* table = layer_rope(m, l);
    for (const Span& span : m->spans) {
        ops::rope(act_qkv(m, l, span.row), row_of(table, span.position, rotated(m->arch)), +1,
                  attn_shape(m, l, span.sequences, span.length));
    }
}

// Rotates acts.dqkv back. In the forward pass this was:  q, k = R_t q, R_t k, with R_t^-1 = R_-t
static void rotary_backward(Model* m, int l) {
    if (attention_rope(m, l)) { return; }
    ops::rope(m->acts.dqkv, layer_rope(m, l), -1, attn_shape(m, l));
}

// -- phi, the kernel of linear attention, on every head of q and k: elu + 1, or W2 relu(W1 x)

static Linear phi_linear(const Model* m, Param weight) {
    return { weight, {}, m->sizes.HS, m->sizes.HS };
}

static void phi_forward(Model* m, int l) {
    if (Attn::phi == PHI_ELU1) {
        ops::phi_elu1_forward(act_qkv(m, l), attn_shape(m, l));
        return;
    }
    const auto& p = layer_params(m, l);
    const long width = m->sizes.qk_width;
    ops::in_parts(rows(m), [&](long row, int n) {
        const int heads = n * (m->sizes.NH + m->sizes.KV);
        real* qkv = act_qkv(m, l, row);
        real* in = act_phi_in(m, l, row);
        real* hidden = act_phi_hidden(m, l, row);
        real* out = row_of(m->acts.dphi, row, width);
        ops::copy_rows(in, width, qkv, m->sizes.qkv_width, n, width);
        linear_forward(hidden, in, phi_linear(m, p.phi1w), heads);
        ops::ffn_forward(hidden, hidden, ACT_relu, false, n, width);
        linear_forward(out, hidden, phi_linear(m, p.phi2w), heads);
        ops::copy_rows(qkv, m->sizes.qkv_width, out, width, n, width);
    });
}

// Computes acts.dqkv in place. In the forward pass this was:
//      q, k = W2 hidden,   hidden = relu(W1 in)
static void phi_backward(Model* m, int l) {
    if (Attn::phi == PHI_ELU1) {
        ops::phi_elu1_backward(m->acts.dqkv, act_qkv(m, l), attn_shape(m, l));
        return;
    }
    const auto& p = layer_params(m, l);
    const long width = m->sizes.qk_width;
    const long count = m->sizes.HS * m->sizes.HS;    // of each of the two matrices
    auto backward = [&](long row, int n, acc* dw1, acc* dw2) {
        const int heads = n * (m->sizes.NH + m->sizes.KV);
        const real* in = act_phi_in(m, l, row);
        const real* hidden = act_phi_hidden(m, l, row);
        real* dqkv = row_of(m->acts.dqkv, row, m->sizes.qkv_width);
        real* dout = row_of(m->acts.dphi, row, width);
        real* dhidden = row_of(dout, rows(m), width);
        real* din = dout;
        ops::copy_rows(dout, width, dqkv, m->sizes.qkv_width, n, width);
        linear_backward(dhidden, dout, hidden, phi_linear(m, { p.phi2w.w, dw2 }), heads);
        ops::ffn_backward(dhidden, dhidden, hidden, ACT_relu, false, n, width);
        linear_backward(din, dhidden, in, phi_linear(m, { p.phi1w.w, dw1 }), heads);
        ops::copy_rows(dqkv, m->sizes.qkv_width, din, width, n, width);
    };
    ops::in_parts(rows(m), p.phi1w.d, p.phi2w.d, count, backward);
}

// -- attention

static void attend_forward(Model* m, int l) {
    if (m->cache) { copy_keys(m, l, layer_cache(m, l, m->spans[0].position), 0, rows(m)); }
    for (const Span& span : m->spans) {
        if (span.position > 0) { continue; }
        const AttnShape s = attn_shape(m, l, span.sequences, span.length);
        variant::attend[s.without_extra](act_att(m, l, span.row), act_stat(m, l, span.row),
                                         act_qkv(m, l, span.row), extra_key(m, l),
                                         attention_rope(m, l), s);
    }
    attention_continued(m, l);
}

// Computes acts.dqkv from acts.datt. In the forward pass this was:
//      w_j = f(scale q . k_j),   A_j = w_j / Z,   o = sum_j A_j v_j
static void attend_backward(Model* m, int l) {
    const BiasRow& bias = m->sizes.bias;
    const auto& p = layer_params(m, l);
    const ExtraKey<acc> dextra = { bias.extra == LOGIT_EXTRA ? p.logit.d : p.kstar.d,
                                  bias.learn_v ? p.vstar.d : NULL };
    const AttnShape s = attn_shape(m, l);
    variant::attend_backward[s.without_extra](m->acts.dqkv, dextra, m->acts.datt,
                                              { act_att(m, l), act_stat(m, l) }, act_qkv(m, l),
                                              extra_key(m, l), attention_rope(m, l), s);
}

// -- GATE=head, elem or static: o becomes o sigmoid(g), a number for each head or each channel

// Makes every row of the gate the learned one.
static void fill_gate(Model* m, int l) {
    AttnShape s = attn_shape(m, l);
    s.bias_shared = false;
    real* gate = act_gate(m, l);
    ops::device_zero(gate, rows(m) * m->sizes.gate_width * sizeof(real));
    ops::heads_forward(gate, gate, layer_params(m, l).gb.w, false, s);
}

static void gate_forward(Model* m, int l) {
    real* gate = act_gate(m, l);
    if (m->sizes.gate.reads) {
        linear_forward(gate, act_n(m, 2 * l), gate_linear(m, l), rows(m));
    } else {
        fill_gate(m, l);
    }
    ops::gate_forward(act_gated(m, l), act_att(m, l), gate, gates_per_head(m), attn_shape(m, l));
}

// Computes acts.datt from acts.dgated and, through the gate, acts.dn or the gradient of g. In the
// forward pass this was:
//      o' = o sigmoid(g),   g = n W_g^T, or learned
static void gate_backward(Model* m, int l) {
    const Acts& a = m->acts;
    ops::gate_backward(a.datt, a.dgate, a.dgated, act_att(m, l), act_gate(m, l), gates_per_head(m),
                       attn_shape(m, l));
    if (m->sizes.gate.reads) {
        linear_backward(a.dn, a.dgate, act_n(m, 2 * l), gate_linear(m, l), rows(m));
    } else {
        ops::matmul_backward_bias(layer_params(m, l).gb.d, a.dgate, rows(m), m->sizes.gate_width);
    }
}

// Returns the gradient of the heads' output.
static real* dact_out(const Model* m) {
    const Acts& a = m->acts;
    return m->sizes.gates_output ? a.dgated : a.datt;
}

// -- COMBINE and BIAS=v: the heads plus v*, side by side or summed

static void combine_forward(Model* m, int l) {
    const real* v = m->sizes.bias.add_v ? layer_params(m, l).vstar.w : NULL;
    const bool sum = m->arch.combine == COMBINE_sum;
    ops::heads_forward(act_heads(m, l), act_out(m, l), v, sum, attn_shape(m, l));
}

// Computes the gradient of the heads' output from acts.dheads. In the forward pass this was:
//      heads = o + v*, side by side or summed
static void combine_backward(Model* m, int l) {
    acc* dv = m->sizes.bias.add_v ? layer_params(m, l).vstar.d : NULL;
    const bool sum = m->arch.combine == COMBINE_sum;
    ops::heads_backward(dact_out(m), dv, m->acts.dheads, sum, attn_shape(m, l));
}

// -- W_O, and back onto the stream

static Linear out_linear(const Model* m, int l) {
    const auto& p = layer_params(m, l);
    return { p.ow, p.ob, m->sizes.OC, m->sizes.C };
}

static StageInput heads_input(const Model* m, int l) {
    return { m->sizes.combine ? act_heads(m, l) : act_out(m, l), (int)m->sizes.OC };
}

static void attn_output_forward(Model* m, int l) {
    output_forward(m, 2 * l, heads_input(m, l).x, out_linear(m, l));
}

static void attn_output_backward(Model* m, int l) {
    real* dheads = m->sizes.combine ? m->acts.dheads : dact_out(m);
    output_backward(m, 2 * l, dheads, heads_input(m, l).x, out_linear(m, l));
}

// -- FFN: gate | up, the activation, down

static Linear up_linear(const Model* m, int l) {
    const Sizes& sizes = m->sizes;
    const auto& p = layer_params(m, l);
    if (sizes.ffn.gated) {
        return { p.gatew, p.gateb, sizes.C, sizes.up_width };
    }
    return { p.upw, p.upb, sizes.C, sizes.up_width };
}

static Linear down_linear(const Model* m, int l) {
    const auto& p = layer_params(m, l);
    return { p.downw, p.downb, m->sizes.F, m->sizes.C };
}

static void up_forward(Model* m, int l) {
    linear_forward(act_fch(m, l), act_n(m, 2 * l + 1), up_linear(m, l), rows(m));
}

// Computes acts.dn from acts.dfch. In the forward pass this was:  gate, up = n W^T + b
static void up_backward(Model* m, int l) {
    const Acts& a = m->acts;
    linear_backward(a.dn, a.dfch, act_n(m, 2 * l + 1), up_linear(m, l), rows(m));
}

static void activation_forward(Model* m, int l) {
    const FfnRow& ffn = m->sizes.ffn;
    ops::ffn_forward(act_fca(m, l), act_fch(m, l), ffn.act, ffn.gated, rows(m), m->sizes.F);
}

// Computes acts.dfch from acts.dfca. In the forward pass this was:  f = act(gate) up, or act(up)
static void activation_backward(Model* m, int l) {
    const Acts& a = m->acts;
    const FfnRow& ffn = m->sizes.ffn;
    ops::ffn_backward(a.dfch, a.dfca, act_fch(m, l), ffn.act, ffn.gated, rows(m), m->sizes.F);
}

static void down_forward(Model* m, int l) {
    output_forward(m, 2 * l + 1, act_fca(m, l), down_linear(m, l));
}

static void down_backward(Model* m, int l) {
    output_backward(m, 2 * l + 1, m->acts.dfca, act_fca(m, l), down_linear(m, l));
}

static StageInput down_input(const Model* m, int l) { return { act_fca(m, l), m->arch.F }; }

// ---- which stages a layer has

static bool always(const Model*, int)            { return true; }
static bool has_attn(const Model* m, int l)      { return m->sizes.has_attention(l); }
static bool norms_qk(const Model* m, int l)      { return has_attn(m, l) && m->sizes.qk_norm; }
static bool rotates(const Model* m, int l)       { return has_attn(m, l) && layer_rope(m, l); }
static bool has_phi(const Model* m, int l)       { return has_attn(m, l) && Attn::phi != PHI_NONE; }
static bool gates(const Model* m, int l)         { return has_attn(m, l) && m->sizes.gates_output; }
static bool gates_v(const Model* m, int l) {
    return has_attn(m, l) && m->sizes.gate.place == ON_VALUE;
}
static bool combines(const Model* m, int l)      { return has_attn(m, l) && m->sizes.combine; }
static bool has_ffn(const Model* m, int l)       { return m->sizes.has_ffn(l); }

// ============================================================================
// 2 the model

// Embeds the tokens: x_0.
void embed_forward(Model* m) {
    const Arch& arch = m->arch;
    const Params& p = m->params;
    const real* positions = m->sizes.pe.learnable ? p.wpe.w : m->positions;
    real* out = arch.norm_embed ? m->acts.embed : act_x(m, 0);
    for (const Span& span : m->spans) {
        const real* from = row_of(positions, span.position, arch.C);
        const real* sink = span.position ? NULL : p.sink.w;
        ops::embed_forward(row_of(out, span.row, arch.C), m->tokens + span.row,
                           { p.wte.w, from, sink }, arch.embed_scale, span.sequences, span.length,
                           arch.C);
    }
    if (arch.norm_embed) { norm_forward(m, act_x(m, 0), out, norm_embed(m)); }
}

// Adds acts.dx to the gradients of the embedding, of learned positions and of the sink token. In
// the forward pass this was:  x_0 = scale wte[token] + p_t
void embed_backward(Model* m) {
    const Arch& arch = m->arch;
    const Acts& a = m->acts;
    const Params& p = m->params;
    const real* dout = a.dx;
    if (arch.norm_embed) {
        norm_backward(m, a.dn, a.dx, a.embed, norm_embed(m));
        dout = a.dn;
    }
    ops::embed_backward({ p.wte.d, p.wpe.d, p.sink.d }, dout, m->tokens, arch.embed_scale, m->B,
                        m->T, arch.C);
}

// Divides the logits by --logit-divisor: x (N, C) is what lm_head reads, or its gradient.
static void divide_logits(const Model* m, real* x) {
    const acc divisor = m->arch.logit_divisor;
    if (divisor != 1) { stream_add(m, x, NULL, 1 / divisor); }
}

// Runs all layers, from tokens to lm_head's input. Calls at_layer(l) after layer l, at_layer(-1)
// after the embedding; a later layer may overwrite these activations.
void model_layers(Model* m, const LayerCallback& at_layer) {
    embed_forward(m);
    if (at_layer) { at_layer(-1); }
    for (int l = 0; l < m->sizes.L; l++) {
        for (auto& stage : LAYER_STAGES) {
            if (!stage.when(m, l)) { continue; }
            if (work_stopped()) { return; }
            if (m->stage_hook) {
                m->stage_hook(m, stage, l);
            } else {
                stage.forward(m, l);
            }
        }
        if (at_layer) { at_layer(l); }
    }
    if (!m->sizes.norm.stream) {
        norm_forward(m, lm_head_input(m), act_x(m, 2 * m->sizes.L), norm_final(m));
    }
    divide_logits(m, lm_head_input(m));
}

// Runs the model on the last T of `tokens` and returns lm_head's input for the last one. If the
// cache holds every earlier row, computes only the last row; not within a prefix, where earlier
// rows see later ones and change.
const real* model_forward_last(Model* m, const std::vector<int>& tokens) {
    const int T = std::min<size_t>(tokens.size(), m->arch.T);
    const int row = T - 1 + sink_rows(m);
    const bool cached = row > 0 && cached_rows(m) == row;
    if (cached && row >= attn_shape(m, 0).prefix) {
        model_load_next(m, tokens.back(), row);
    } else {
        std::vector<int> seq(tokens.end() - T, tokens.end());
        seq.push_back(0);
        model_load(m, seq.data(), 1, T);
    }
    model_layers(m);
    return lm_head_input(m, m->T - 1);
}

// ---- lm_head

// Runs lm_head and the classifier, a few rows at a time, so that the full logits never exist. Fills
// acts.losses. If dloss is not 0, also adds to the gradients of lm_head's weights and computes that
// of its input, both for dloss * sum of losses.
void model_lm_head(Model* m, float dloss) {
    const int N = rows(m);
    if (ops::lm_head_part && !m->train && dloss == 0) {
        cpu_model->losses(m, m->acts.losses, lm_head_input(m), m->targets, N);
        return;
    }
    const Linear lm_head = { m->params.lmw, m->params.lmb, m->sizes.C, m->sizes.V };
    const float cap = m->arch.logit_cap;
    real* logits = m->acts.logits;
    real* dtop = m->sizes.norm.stream ? m->acts.dx : m->acts.dn;
    for (int row = 0; row < N && !work_stopped(); row += m->lm_head_rows) {
        const int n = std::min(m->lm_head_rows, N - row);
        const real* top = lm_head_input(m, row);
        acc* losses = m->acts.losses + row;
        linear_forward(logits, top, lm_head, n);
        ops::classifier(losses, logits, m->targets + row, dloss, cap, n, m->sizes.V);
        if (dloss == 0) { continue; }
        linear_backward(row_of(dtop, row, m->sizes.C), logits, top, lm_head, n);
    }
}

// ---- forward, backward

std::vector<acc> model_losses(Model* m) {
    return copy_to_host(m->acts.losses, rows(m));
}

// Runs the loaded batch forward; returns the mean loss over its `count` targets, 0 if there are
// none.
double model_forward(Model* m, long count, const LayerCallback& at_layer) {
    model_layers(m, at_layer);
    model_lm_head(m, 0);
    double sum = 0;
    for (acc x : model_losses(m)) { sum += x; }
    return count ? sum / count : 0;
}

// Sends the gradients from number `from` on to the other ranks: they are final.
static void send_gradients(Model* m, long from) {
    shard_send(m->shard, m->shard_grads, m->grads_memory, from, &m->sent);
}

// Adds the gradient of dloss * sum of losses to every tensor of grads, after the forward pass and
// model_lm_head with dloss. last: this step adds nothing more, so finished gradients are sent to
// the other ranks. Calls at_layer(l) when acts.dx is the gradient of x_2l, the stream before
// layer l (for l = L, of the final state).
void model_backward(Model* m, bool last, const LayerCallback& at_layer) {
    const int L = m->sizes.L;
    auto done = [=](long from) {
        if (last) { send_gradients(m, from); }
    };
    if (!m->sizes.norm.stream) {
        divide_logits(m, m->acts.dn);            // in the forward pass lm_head read n / divisor
        norm_backward(m, m->acts.dx, m->acts.dn, act_x(m, 2 * L), norm_final(m));
    }
    done(m->params.layer_at[L]);
    if (at_layer) { at_layer(L); }
    for (int l = L - 1; l >= 0; l--) {
        for (size_t i = LAYER_STAGES.size(); i-- > 0;) {
            const Stage& stage = LAYER_STAGES[i];
            if (stage.when(m, l)) { stage.backward(m, l); }
        }
        done(m->params.layer_at[l]);
        if (at_layer) { at_layer(l); }
    }
    embed_backward(m);
    done(0);
}

// ---- a micro-batch

void model_zero(Model* m) {
    ops::device_zero(m->grads_memory, m->num_params * sizeof(acc));
    ops::device_zero(m->sums, sizeof(StepSums));
    m->sent = 0;
}

// Runs the loaded batch forward and backward; adds its part to the gradients and to the mean loss
// over `count` targets.
void accumulate_loaded(Model* m, long count, bool last) {
    model_layers(m);
    model_lm_head(m, 1.0f / count);
    ops::loss_add(m->sums, m->acts.losses, rows(m), count);
    model_backward(m, last);
}

// Returns a key for the launches of a micro-batch: equal keys, equal launches. (It leaves out
// `last`: a run with --graph has one rank, which sends no gradients.)
static std::vector<size_t> batch_key(const Model* m, long count) {
    return { (size_t)m->B, (size_t)m->T, (size_t)count, (size_t)m->arena, (size_t)m->tokens,
             (size_t)m->targets, (size_t)m->params_memory, (size_t)m->grads_memory };
}

// Runs one micro-batch, seqs (B, T+1), of a step with `count` targets over all micro-batches and
// ranks. last: it is this rank's last. The host does not wait for it.
void model_accumulate(Model* m, const int* seqs, int B, int T, long count, bool last) {
    if (ops::piece_rows > 0 && cpu_model->pieces(m, seqs, B, T, count)) {
        if (last) { send_gradients(m, 0); }
        return;
    }
    model_load(m, seqs, B, T, true);
    ops::repeated(batch_key(m, count), [=] { accumulate_loaded(m, count, last); });
}

#ifndef MODEL_ONLY // model tests include this file only up to here
// ============================================================================
// 3 train

// Collects the parameters of this step's update.
static Update update_of(const Flags& f, long step) {
    Update o;
    o.lr = learning_rate(f, step);
    o.beta1 = f.beta1;
    o.beta2 = f.beta2;
    o.eps = f.adam_eps;
    o.weight_decay = f.weight_decay;
    o.step = step + 1;
    return o;
}

// Takes one optimizer step. Draws the next step's sequences while the GPU is busy with this one,
// and before the update: reading a file can fail, and the weights must then be those of `step`.
static StepSums train_step(Run* r, long step) {
    Model* m = &r->m;
    const Flags& f = r->f;
    const int T = f.arch.T;
    const int B = f.batch;
    const long n = r->accum * f.batch;
    run_draw(r, step);
    const int* seqs = r->seqs.data();
    double count = targets_count(m, seqs, n, T);
    dist::sum(&count, 1);
    if (count == 0) { return { NAN, 0, 1 }; }            // nothing counts: no update, no loss
    model_zero(m);
    for (long i = 0; i < n; i += B) {
        if (r->more.half && i == n / 2) { r->more.half(m); }
        model_accumulate(m, seqs + i * (T + 1), B, T, count, i + B == n);
    }
    if (step + 1 < f.steps) { run_draw_ahead(r, step); }
    const StepSums sums = model_update(m, update_of(f, step), f.grad_clip, f.optimizer);
    if (m->ema) {                // the mean of all steps, until there are 1 / (1 - ema) of them
        const double part = std::max(1 - f.ema, 1.0 / (step + 1));
        ops::average(m->ema, m->master, part, m->shard.mine);
    }
    if (r->more.done) { r->more.done(targets_count(m, seqs, n / 2, T), count, sums.squares); }
    return sums;
}

// Tells whether the model is evaluated before the next step.
static bool evaluation_due(const Run& r, long step) {
    const Flags& f = r.f;
    // before the checkpoint was saved
    const bool evaluated = r.resumed && step == r.first && !r.unevaluated;
    const bool last = step >= f.steps;
    const bool regular = f.eval_every && step % f.eval_every == 0;
    return !evaluated && (last || step == 0 || regular);
}

int command_train(Flags flags) {
    ops::tune_products(true);
    Run r = run_open(flags);
    run_describe(r);
    if (flags.dry_run) {
        run_dry(&r);
        dist::stop();
        return 0;
    }
    log_begin(&r);
    run_check_log(r);
    on_signals();
    long step = r.first;
    for (;; step++) { // at the top, `step` updates have been made
        if (evaluation_due(r, step)) { run_evaluate(&r, step); }
        const Due due = run_due(r, step);
        if (due.save) { run_save(&r, step, due); }
        if (due.stop) { break; }

        const double begin = now_ms();
        const StepSums sums = train_step(&r, step);
        const double grad_norm = sqrt(sums.squares);
        run_report_step(&r, step + 1, sums.loss, grad_norm, now_ms() - begin);
        if (std::isnan(sums.grad_scale)) { run_diverged(r, step + 1, sums.loss, grad_norm); }
    }
    run_finish(&r, step);
    model_free(&r.m);
    dist::stop();
    return 0;
}

// ============================================================================
// 4 main

#ifndef TESTING
int main(int argc, char** argv) {
    process_begin(argv);
    gpu_check();
    if (argc == 1) {
        welcome();
        return 0;
    }
    dist::start();
    char letter;
    Flags f = flags_parse(argc, argv, &letter);
    command_check(f, letter);
    if (dist::world() > 1 && letter != COMMAND_train) {
        die(strf("%d processes were started, but only train can use many", dist::world()),
            "run this command without mpirun, srun or torchrun");
    }
    threads_check();
    const CommandRow& command = command_of(letter);
    const bool takes_checkpoint = strcmp(command.words, "CHECKPOINT") == 0;
    if (command.needs != NO_MODEL && cpu_folder) { cpu_folder->product_settle(f); }
    for (auto& word : f.words) {
        if (takes_checkpoint) { word = checkpoint_in(word); }    // of a run: its newest
    }
    if (command.needs == ATTENTION) { gpu_ask(f); }
    if (command.needs != NO_MODEL) { ops::device_start(); }      // no GPU: reported first
    #define X(name, mark, ...) if (letter == mark) { return command_##name(f); }
    COMMANDS(X)
    #undef X
    return 0;
}
#endif // TESTING
#ifndef APART               // the Makefile compiles the other files apart
#include "core/rest.h"      // all other files
#endif
#endif // MODEL_ONLY
