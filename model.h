/*
model.h -- what a model's rows become: its sizes, its memory, its tables of positions, and how a
batch is loaded. In reading order:

    Arch, Sizes         the rows of ARCH as a struct, and what follows from them
    Params, Acts        the rows of PARAMS and ACTS as pointers
    Layout              where each of them is in memory
    Model               all of it; model_new, model_init, model_load

The rows themselves are in arch.h and tensors.h.
*/
#ifndef MODEL_H
#define MODEL_H
#include <functional>
#include "arch.h"       // Arch: every property of a model is a row
#include "dist/shard.h" // ParamShard: what of an array one rank keeps
#include "positions.h"  // rope_table, absolute_table, fixed_v_star
#include "tensors.h"    // PARAMS, ACTS: every tensor is a row
#include "variant.h"    // real, acc, ops, AttnShape

// sizes that the tables below are written in; their rows are read inside of it
struct Sizes {
    Arch c;
    NormRow norm; BiasRow bias; PeRow pe; FfnRow ffn;
    bool ln, norm_bias, phi, combine, gate, qkn;
    long L, C, NH, KV, HS, F, V, T;
    long QK, W, OC, FH, G; // q and k of a row; q, k and v; what W_O reads; gate | up; the gate
    long MW, MS, MP;       // Mamba: channels, the state of each; d, b and c of a row
    long DQ, DW, DO;       // delta rule: q|k|v|z, q|k|v and the outputs of a row
    Sizes() : Sizes(Arch()) {}
    explicit Sizes(const Arch& arch)
        : c(arch), norm(norm_of(c)), bias(bias_of(c)), pe(pe_of(c)), ffn(ffn_of(c)) {
        L = c.L; C = c.C; NH = c.NH; KV = c.KV; HS = c.HS; F = c.F; V = c.V; T = c.T;
        ln = c.norm_kind == NORM_KIND_ln;
        norm_bias = ln && c.norm_bias;
        phi = Attn::phi == PHI_MLP;
        combine = c.combine == COMBINE_sum || bias.add_v;
        gate = c.gate != GATE_none;
        qkn = c.qk_norm != QKNORM_none;
        QK = (NH + KV) * HS;
        W = QK + KV * HS;
        OC = c.combine == COMBINE_sum ? HS : NH * HS;
        FH = ffn.gated ? 2 * F : F;
        G = c.gate == GATE_elem ? NH * HS : NH;
        MW = c.mamba_width;
        MS = c.mamba_state;
        MP = c.mamba_rank + 2 * MS;
        DO = (long)c.delta_values * c.delta_value_size;
        DW = 2L * c.delta_keys * c.delta_key_size + DO;
        DQ = DW + DO;
    }

    // is the FFN of layer l a mixture of experts?
    bool mixture(long l) const { return c.experts && in_pattern(c.expert_layers, l); }

    // does layer l have attention, or Mamba or the delta rule instead?
    bool attends(long l) const { return in_pattern(c.attn_layers, l); }
    bool mamba(long l) const { return !attends(l) && c.mamba_width; }
    bool delta(long l) const { return !attends(l) && c.delta_values; }

    // how many of the layers before l have attention
    long attending(long l) const {
        long n = 0;
        for (long i = 0; i < l; i++) { n += attends(i); }
        return n;
    }
};

#define FIELD(name, ...) P* name;
#define NOTHING(...)
template <class P> struct Params {
    PARAMS(FIELD, NOTHING, FIELD)
    struct Layer { PARAMS(NOTHING, FIELD, NOTHING) };
    std::vector<Layer> layer;
};
struct Tensor { std::string name; std::vector<long> shape; long at, count; Init init; };

// is it the matrix of a product inside a layer? Those are what --optimizer muon is for
inline bool is_hidden_matrix(const Tensor& t) {
    const bool product = ends_with(t.name, "proj.weight") || t.name.find(".phi_fc") != t.name.npos;
    return product && !ends_with(t.name, "self_attn.gate_proj.weight");
}

// does its name contain this word of --only?
inline bool has_word(const Tensor& t, const std::string& word) {
    return t.name.find(word) != t.name.npos;
}

struct Acts {
#define X(type, name, size) type* name;
    ACTS(X)
#undef X
};

// where every tensor is in memory: the two tables, with the sizes of one model
struct Layout : Sizes {
    explicit Layout(const Arch& c) : Sizes(c) {}

    // points p into base, lists the tensors in memory order, returns the number of elements
    // (base NULL: only counts)
    template <class P> long params(Params<P>* p, std::vector<Tensor>* list, P* base) const;

    // points a into base, returns the bytes (base NULL: only counts); table: the MiB of each
    // tensor, in words
    size_t acts(Acts* a, char* base, bool train, long B, long T, long R,
                std::string* table = NULL) const;
};

struct Model;
struct Stage;

// runs a stage of layer l, or does something else in its place: how eval changes what a model
// computes
typedef std::function<void(Model* m, const Stage& stage, int l)> Around;

// Rows of the batch whose positions run on. What is loaded is a list of them: one span for a batch
// of whole sequences; one for the next row of a sequence whose earlier rows are in the cache; or,
// where sequences share their beginnings, a forest of spans that continue each other
struct Span {
    int row;       // the first one in the batch
    int sequences; // of `length` rows each, one after the other
    int length;
    int position;  // of the first row of each; the rows before it are the parent's, or in the cache
    int parent;    // index of the span that this one continues; -1: none
};

struct Model {
    Arch arch;
    Sizes sizes;
    bool train; // has gradients, and keeps the activations of all layers
    std::vector<Tensor> tensors;
    long num_params;
    real* params_memory;         // (num_params) the weights as they are computed with
    acc* master;                 // (num_params) in acc; params_memory itself where real is acc
    acc* grads_memory;           // (num_params)
    acc* adam_m;                 // (num_params) first moments, or momentum
    acc* adam_v;                 // (num_params) second moments
    // With many ranks, each updates one shard: master, adam_m and adam_v hold only that;
    // shard_grads receives its summed gradients, shard_params its new weights. With one rank these
    // are grads_memory and params_memory
    ParamShard shard; acc* shard_grads; real* shard_params;
    long sent;                                   // buckets of gradients that are on their way
    std::vector<long> layer_at; // where each layer's parameters begin; the last ends
    Params<real> weights;        // every tensor, in params_memory
    Params<acc> grads;           // its gradient, in grads_memory
    Acts acts;                   // every activation, in the arena
    char* arena;
    size_t arena_bytes;
    int longest;                                 // T of the longest sequence it may be given
    int reach;                                   // positions that the tables have so far
    int B, T, R; // the batch they are laid out for, T with the sink token; rows of head
    int *tokens, *targets; size_t token_room;    // (B, T)
    StepSums* sums;                              // loss and gradient norm of the step
    real* muon;                                  // what --optimizer muon works with, or NULL
    int min_context;                             // --min-context, of training alone
    std::vector<std::string> only;               // --only: words of the names that are trained
    real *positions, *v_fixed;                   // absolute PE (T, C); fixed v* (HS)
    // rotary cos, sin (T, rot/2, 2), of all layers and of those with a window
    acc *turns, *turns_local;
    real* cache; int room; // generation: k, v of rows that were read, (L, room, 2 KV HS), or NULL
    acc* memory; // and what layers without attention remember: models/mamba.h
    Around around; // if it is set, every stage of a forward pass goes through it
    std::vector<Span> spans; // what is loaded
    std::vector<Model> pieces;   // of a small model's batch, on the CPU (small_model.h)
};

// ---- attention's shape in layer l, and its learned column
inline AttnShape attn_shape(const Model* m, int l) {
    const Arch& c = m->arch;
    AttnShape s = AttnShape();
    s.B = m->B; s.T = m->T; s.NH = c.NH; s.KV = c.KV; s.HS = c.HS;
    s.window = is_local(c, l) ? c.window : 0;
    s.prefix = c.prefix ? c.prefix + m->sizes.bias.token : 0;
    s.bias_shared = c.bias_share == SHARE_heads;
    s.k_dims = c.k_dims;
    s.p = c.attn_p; s.alpha = c.attn_alpha; s.cap = c.attn_cap; s.shift = c.attn_bias;
    s.scale = c.score_scale ? c.score_scale : acc(1) / std::sqrt(acc(c.HS));
    s.rot = rotated(c);
    s.slope_heads = slope_heads(c);
    return s;
}

// the same for n rows, for code that does not ask which tokens they are
inline AttnShape only_rows(const Model* m, int l, int n) {
    AttnShape s = attn_shape(m, l);
    s.B = 1; s.T = n;
    return s;
}

// the extra column: k* (or z of BIAS=logit) and v*; NULL is zero
inline const real* star_k(const Model* m, int l) {
    const auto& w = m->weights.layer[l];
    return m->sizes.bias.column == LOGIT_COLUMN ? w.zstar : w.kstar;
}

inline const real* star_v(const Model* m, int l) {
    return m->sizes.bias.learn_v ? m->weights.layer[l].vstar : m->v_fixed;
}

// the shape of attention in layer l on the rows of one span
inline AttnShape span_shape(const Model* m, int l, const Span& span) {
    AttnShape s = attn_shape(m, l);
    s.B = span.sequences;
    s.T = span.length;
    return s;
}

// Calls f for every span of what is loaded. All that depends on the position of a row goes through
// this: a stage that does is right for a batch, for a cached row and for a forest at once
template <class F> void each_span(const Model* m, F f) {
    for (const Span& span : m->spans) { f(span); }
}

// the table that layer l turns q and k by, from position 0; NULL if it does not
inline const acc* layer_turns(const Model* m, int l) {
    const Arch& c = m->arch;
    if (!m->sizes.pe.rotary || !in_pattern(c.rope_layers, l)) { return NULL; }
    return is_local(c, l) && m->turns_local ? m->turns_local : m->turns;
}

// ---- where the activations of a layer, or of a branch, are

inline int rows(const Model* m) { return m->B * m->T; }

// a tensor of layer l, or of branch i: shape (.., N, per_row)
template <class A> A* of_layer(A* t, const Model* m, int l, long per_row) {
    return t + (size_t)(m->train ? l : 0) * rows(m) * per_row;
}

template <class A> A* of_branch(A* t, const Model* m, int i, long per_row) {
    return t + (size_t)(m->train ? i : i % 2) * rows(m) * per_row;
}

inline real* act_x(const Model* m, int i) {
    return m->acts.x + (size_t)(m->train ? i : i % 3) * rows(m) * m->arch.C;
}

// the stream that branch i reads
inline real* branch_x(const Model* m, int i) { return act_x(m, m->arch.parallel ? i / 2 * 2 : i); }

// what branch i reads: its norm, or the stream as it is
inline real* act_n(const Model* m, int i) {
    return m->sizes.norm.in ? of_branch(m->acts.n, m, i, m->arch.C) : branch_x(m, i);
}

// what lm_head reads
inline real* act_top(const Model* m) {
    const long K = m->train ? m->arch.L : 1;
    if (m->sizes.norm.stream) { return act_x(m, 2 * m->arch.L); }
    return m->acts.n + (size_t)(2 * K * m->sizes.norm.in) * rows(m) * m->arch.C;
}

inline real* act_qkv(const Model* m, int l) { return of_layer(m->acts.qkv, m, l, m->sizes.W); }
inline real* act_att(const Model* m, int l) {
    return of_layer(m->acts.att, m, l, m->sizes.NH * m->sizes.HS);
}

inline acc* act_stat(const Model* m, int l) {
    return of_layer(m->acts.stat, m, l, m->sizes.NH * 2);
}

inline int gate_width(const Model* m) { return m->arch.gate == GATE_elem ? m->arch.HS : 1; }
inline real* act_gate(const Model* m, int l)  { return of_layer(m->acts.gate, m, l, m->sizes.G); }
inline real* act_gated(const Model* m, int l) {
    return of_layer(m->acts.gated, m, l, m->sizes.NH * m->sizes.HS);
}

// the heads' output, after the gate if there is one
inline real* act_out(const Model* m, int l) {
    return m->sizes.gate ? act_gated(m, l) : act_att(m, l);
}

inline real* act_heads(const Model* m, int l) { return of_layer(m->acts.heads, m, l, m->sizes.OC); }
inline real* act_fch(const Model* m, int l) { return of_layer(m->acts.fch, m, l, m->sizes.FH); }
inline real* act_fca(const Model* m, int l) { return of_layer(m->acts.fca, m, l, m->sizes.F); }

// ---- tables of positions

// Makes the tables of positions reach T rows, the sink token's among them. They grow with what is
// read: a config.json may promise a billion positions.
void model_reach(Model* m, long T);

// ---- memory

// lays the activations out for B sequences of T tokens
void model_resize(Model* m, int B, int T);

// This rank may keep only a shard of an array. Where the whole array is while it is filled or
// read: in the shard, if that is everything, else in the gradients' memory, free between steps
inline acc* array_place(const Model* m, acc* shard) {
    return m->shard.mine == m->num_params ? shard : m->grads_memory;
}

// the whole array of all ranks' shards
inline const acc* array_whole(const Model* m, acc* shard) {
    acc* all = array_place(m, shard);
    if (all != shard) { shard_gather(m->shard, all, shard); }
    return all;
}

// keeps what was filled in
inline void array_keep(const Model* m, acc* shard) {
    const acc* all = array_place(m, shard);
    if (all != shard) { shard_keep(m->shard, shard, all, ops::device_copy); }
}

// the weights were filled in: params_memory is their copy in `real`
inline void weights_keep(Model* m) {
    ops::cast_to_real(m->params_memory, array_place(m, m->master), m->num_params);
    array_keep(m, m->master);
}

// num_params weights from host memory
void model_set(Model* m, const acc* host);

// memory for the weights and, if it is to be trained, for gradients and optimizer state
Model model_new(const Arch& c, int T_max, bool train);

// every tensor from its own random stream: the same seed gives the same q_proj with and without k*
void model_init(Model* m, uint64_t seed);

void pieces_free(Model* m);

void model_free(Model* m);

// Does the loss count the target after token i of a sequence? Not within the prefix, not with fewer
// than min_context tokens before it, not where it is given as ~id
inline bool target_counts(const Model* m, const int* seq, int i, int min_context) {
    return i >= std::max(m->arch.prefix, min_context) - 1 && seq[i + 1] >= 0;
}

// how many targets of n sequences, seqs (n, T+1), count in training
inline long targets_count(const Model* m, const int* seqs, long n, int T) {
    long count = 0;
    for (long b = 0; b < n; b++) {
        const int* s = seqs + b * (T + 1);
        for (int i = 0; i < T; i++) { count += target_counts(m, s, i, m->min_context); }
    }
    return count;
}

// seqs (B, T+1) in host memory -> tokens and targets; returns how many targets count. Row 0 of a
// sink token predicts nothing; with a prefix p the loss starts at the prediction of token p + 1
// (section 6), and a target with fewer than min_context tokens before it does not count. A token
// that no loss asks for is given as ~id
inline long model_load(Model* m, const int* seqs, int B, int T, int min_context = 0) {
    const int skip = m->sizes.bias.token;
    if (m->B != B || m->T != T + skip || !m->arena) { model_resize(m, B, T); }
    m->spans = { { 0, B, m->T, 0, -1 } };
    std::vector<int> tokens((size_t)B * T), targets((size_t)B * m->T);
    long count = 0;
    for (int b = 0; b < B; b++) {
        const int* s = seqs + (size_t)b * (T + 1);
        for (int t = 0; t < T; t++) { tokens[(size_t)b * T + t] = s[t] < 0 ? ~s[t] : s[t]; }
        for (int t = 0; t < m->T; t++) {
            const int i = t - skip;
            const bool counts = i >= 0 && target_counts(m, s, i, min_context);
            targets[(size_t)b * m->T + t] = counts ? s[i + 1] : -1;
            count += counts;
        }
    }
    ops::to_device(m->tokens, tokens.data(), tokens.size() * sizeof(int));
    ops::to_device(m->targets, targets.data(), targets.size() * sizeof(int));
    return count;
}
#endif // MODEL_H
