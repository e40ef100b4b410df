/*
model.h -- turns a model's rows into sizes, memory and position tables, and loads batches. In
reading order:

    Sizes               derived from the rows of ARCH: widths, and the parts of a layer
    Params, Acts        the rows of PARAMS and ACTS as pointers
    Layout              where each of them is in memory
    Model               all of it; model_new, model_init, model_load

The rows themselves are in arch.h and tensors.h.
*/
#ifndef MODEL_H
#define MODEL_H
#include <functional>
#include "arch.h"       // Arch: every property of a model is a row
#include "core/dist.h"       // ParamShard: what of an array one rank keeps
#include "core/operations.h" // real, acc, ops, AttnShape
#include "core/positions.h"  // rope_table, absolute_table, fixed_v_star
#include "tensors.h"    // PARAMS, ACTS: every tensor is a row

// The sizes that the rows of PARAMS and ACTS use.
struct Sizes {
    NormRow norm;
    BiasRow bias;
    PeRow pe;
    FfnRow ffn;
    GateRow gate;

    // what the model has
    bool ln;                    // LayerNorm, not RMSNorm
    bool norm_bias;
    bool phi;                   // the MLP kernel
    bool combine;               // a combine stage sits between attention and W_O
    bool gates_output;
    bool qk_norm;

    // widths of a row; ARCH's sizes as long, so that their products do not overflow
    long L, C, NH, KV, HS, F, V, T;
    long q_width;               // q, and the outputs of the heads
    long kv_width;              // k alone, or v alone
    long qk_width;              // q | k
    long qkv_width;             // q | k | v
    long OC;                    // W_O's input width
    long gate_width;            // the gate of attention; 0 without one
    long gated_width;           // what it is applied to
    long up_width;              // gate | up of the FFN, or up alone

    // what each layer has: attention and an FFN, or what open/ has instead
    struct LayerKind { bool has_attention, ffn; };
    std::vector<LayerKind> layers;

    Sizes() : Sizes(Arch()) {}
    explicit Sizes(const Arch& arch);

    bool has_attention(long l) const { return layers[l].has_attention; }
    bool has_ffn(long l) const { return layers[l].ffn; }
    bool all_attend() const { return attending(L) == L; }

    // Counts the layers before l that have attention.
    long attending(long l) const {
        long n = 0;
        for (long i = 0; i < l; i++) { n += has_attention(i); }
        return n;
    }
};

inline Sizes::Sizes(const Arch& arch)
    : norm(norm_of(arch)), bias(bias_of(arch)), pe(pe_of(arch)), ffn(ffn_of(arch)),
      gate(GATE_ROWS[arch.gate]) {
    ln = arch.norm_kind == NORM_KIND_ln;
    norm_bias = ln && arch.norm_bias;
    phi = Attn::phi == PHI_MLP;
    combine = arch.combine == COMBINE_sum || bias.add_v;
    gates_output = gate.place == ON_OUTPUT;
    qk_norm = arch.qk_norm != QKNORM_none;

    L = arch.L;
    C = arch.C;
    NH = arch.NH;
    KV = arch.KV;
    HS = arch.HS;
    F = arch.F;
    V = arch.V;
    T = arch.T;
    q_width = NH * HS;
    kv_width = KV * HS;
    qk_width = q_width + kv_width;
    qkv_width = qk_width + kv_width;
    OC = arch.combine == COMBINE_sum ? HS : q_width;
    const long widths[] = { 0, q_width, kv_width };      // by GatePlace
    gated_width = widths[gate.place];
    gate_width = gate.by_channel ? gated_width : NH * gates_output;
    up_width = ffn.gated ? 2 * F : F;

    for (int l = 0; l < arch.L; l++) { layers.push_back(LAYER_AT(l)); }
}

// The numbers of a tensor, and their gradients; NULL where the model has none.
struct Param {
    real* w;
    acc* d;
};

#define FIELD(name, ...) Param name;
#define NOTHING(...)
struct Params {
    PARAMS(FIELD, NOTHING, FIELD)
    struct Layer { PARAMS(NOTHING, FIELD, NOTHING) };
    std::vector<Layer> layer;
    std::vector<long> layer_at; // where each layer's parameters begin, and the last end
};

struct Tensor {
    std::string name;
    std::vector<long> shape;
    long at;                    // its first number in the array of all parameters
    long count;
    Init init;
    Purpose purpose;
};

// Tells whether the switch BIAS adds the tensor: the same model without it has no such one.
inline bool is_added(const Tensor& t) { return t.purpose >= FOR_KEY; }

// Tells whether a word means a tensor: it begins where a part of the name does, and ends where a
// part or a _ does. layers.1 means no tensor of layers.10; k means k_proj and k_star.
inline bool has_word(const Tensor& t, const std::string& word) {
    const std::string name = "." + t.name + ".";
    return contains(name, "." + word + ".") || contains(name, "." + word + "_");
}

// What all layers keep of a pass: `width` numbers for each row.
template <class A> struct LayerRows { A* at; long width; };

struct Acts {
#define X(type, name, size) type* name;
#define LAYER(type, name, width) LayerRows<type> name;
    ACTS(X, LAYER)
#undef LAYER
#undef X
};

// Rounds the bytes of an array up, so that the next one in a block is aligned for vectors.
inline size_t aligned(size_t bytes) { return round_up(bytes, 256); }

// The shape that activations are laid out for: B sequences of T rows, including the sink token's.
struct ActsShape {
    bool train;                 // the activations of all layers are kept, and gradients
    long B, T;
    long lm_head_rows;          // rows whose logits exist at once
};

inline long lm_head_rows_wanted;  // bench --lm-head-rows; 0: as many as the backend finds good

// Returns the shape for B sequences of T tokens.
inline ActsShape acts_shape(const Arch& arch, bool train, long B, long T) {
    T += bias_of(arch).token;
    long most = ops::lm_head_rows(arch.V, sizeof(real), train);
    if (lm_head_rows_wanted) { most = lm_head_rows_wanted; }
    return { train, B, T, std::min(most, B * T) };
}

// Where every tensor is in memory: the two tables, with the sizes of one model. A Layout is a Sizes
// because rows of PARAMS and ACTS name their conditions and shapes by fields of Sizes, such as
// norm.in and q_width, which its functions find as members of their own when they expand the rows.
struct Layout : Sizes {
    Arch arch;

    explicit Layout(const Arch& arch) : Sizes(arch), arch(arch) {}

    // Points p into weights and grads, lists the tensors in memory order, returns the number of
    // elements. With NULL for both it only counts.
    long params(Params* p, std::vector<Tensor>* list, real* weights, acc* grads) const;

    // Points a into base, returns the bytes; with base NULL it only counts.
    size_t acts(Acts* a, char* base, const ActsShape& shape) const;
};

inline size_t acts_bytes(const Arch& arch, bool train, long B, long T) {
    Acts none;
    return Layout(arch).acts(&none, NULL, acts_shape(arch, train, B, T));
}

struct Model;
struct Stage;

// Runs a stage of layer l, or something else instead. eval changes a model through this hook.
typedef std::function<void(Model* m, const Stage& stage, int l)> StageHook;

// A run of rows with consecutive positions. The loaded batch is a list of spans: one span for whole
// sequences; one for the next row of a sequence whose earlier rows are in the cache; or, if
// sequences share a beginning, a forest of spans that continue each other. All that depends on the
// position of a row loops over m->spans: such a stage is right for all three.
struct Span {
    int row;                    // the first one in the batch
    int sequences;              // of `length` rows each, one after the other
    int length;
    int position;               // of the first row; the rows before it are the parent's, or cached
    int parent;                 // index of the span that this one continues; -1: none
};

// A number by which something of a tensor is multiplied.
struct Factor {
    std::string name;
    std::string of;             // lr, start, decay or eps
    double by;
};

struct Model {
    Arch arch;
    Sizes sizes;
    bool train;                 // has gradients, and keeps the activations of all layers

    // ---- parameters: one array for all tensors, and one of the same size, (num_params), for each
    // kind of companion
    std::vector<Tensor> tensors;
    long num_params;
    Params params;              // every tensor, in params_memory, and its gradient, in grads_memory
    real* params_memory;        // the weights that the operations use
    acc* master;                // in acc; params_memory itself where real is acc
    acc* grads_memory;
    acc* adam_m;                // first moments, or momentum
    acc* adam_v;                // second moments
    real* muon;                 // muon's workspace, or NULL
    acc* ema;                   // --ema: an exponential mean of the weights, or NULL
    bool shows_ema;             // it is what is computed with, in their place
    std::vector<std::string> only;  // --only: names of the tensors that are trained
    std::vector<Factor> factors;    // --factors

    // With many ranks, each updates one shard: master, adam_m and adam_v hold only that;
    // shard_grads receives its summed gradients, shard_params its new weights. With one rank these
    // are grads_memory and params_memory.
    ParamShard shard;
    acc* shard_grads;
    real* shard_params;
    long sent;                  // gradient buckets sent so far

    // ---- the batch that is loaded
    int B, T;                   // T with the sink token
    int lm_head_rows;           // rows that lm_head handles at a time
    std::vector<Span> spans;
    int* tokens;                // (B, T), without the sink token
    int* targets;               // (B, T)
    size_t token_room;          // capacity of both arrays
    int min_context;            // --min-context, of training alone
    int max_context;            // --max-context, likewise; 0: no limit
    Acts acts;                  // every activation, in the arena
    char* arena;
    size_t arena_bytes;
    StepSums* sums;             // loss and gradient norm of the step
    std::vector<Model> pieces;  // of a small model's batch, on the CPU (small_model.h)

    // ---- positions
    int longest;                // T of the longest sequence it accepts
    int reach;                  // positions that the tables have so far
    real* positions;            // absolute PE, (reach, C)
    acc* rope;                  // cos, sin of all layers, (reach, rot/2, 2)
    acc* rope_local;            // of layers with a window, if they differ
    real* v_fixed;              // fixed v*, (KV or 1, HS)

    // ---- generation
    real* cache;                // k, v of earlier rows, (L, cache_room, 2 KV HS), or NULL
    int cache_room;
    acc* mixer_state;           // the state of layers without attention

    StageHook stage_hook;       // if it is set, every stage of a forward pass goes through it
};

// Returns what --factors multiply a number of a tensor by: its start, lr, decay or eps.
inline double factor_of(const Model* m, const Tensor& t, const char* of) {
    double by = 1;
    for (auto& f : m->factors) {
        if (f.of == of && f.name == t.name) { by *= f.by; }
    }
    return by;
}

// Returns the number of sink-token rows before each sequence: 1 or 0.
inline int sink_rows(const Model* m) { return m->sizes.bias.token; }

inline const Params::Layer& layer_params(const Model* m, int l) { return m->params.layer[l]; }

// ---- attention's shape in layer l, and its extra key

// Returns the shape of attention in layer l, for B sequences of T rows.
inline AttnShape attn_shape(const Model* m, int l, int B, int T) {
    const Arch& arch = m->arch;
    AttnShape s = AttnShape();
    s.B = B;
    s.T = T;
    s.NH = arch.NH;
    s.KV = arch.KV;
    s.HS = arch.HS;
    if (is_local(arch, l)) { s.window = arch.window; }
    if (arch.prefix) { s.prefix = arch.prefix + sink_rows(m); }
    s.bias_shared = arch.bias_share == SHARE_heads;
    s.without_extra = !is_biased(arch, l);
    s.k_dims = arch.k_dims;
    s.p = arch.attn_p;
    s.clip = arch.attn_clip;
    s.alpha = arch.attn_alpha;
    s.cap = arch.attn_cap;
    s.shift = arch.attn_bias;
    s.scale = arch.score_scale ? arch.score_scale : acc(1) / std::sqrt(acc(arch.HS));
    s.rot = rotated(arch);
    s.slope_heads = slope_heads(arch);
    return s;
}

// Returns the shape for all rows that are loaded.
inline AttnShape attn_shape(const Model* m, int l) { return attn_shape(m, l, m->B, m->T); }

// Returns k* of the extra key, or its logit z (BIAS=logit); NULL is zero.
inline const real* extra_k(const Model* m, int l) {
    const auto& p = layer_params(m, l);
    return m->sizes.bias.extra == LOGIT_EXTRA ? p.logit.w : p.kstar.w;
}

// Returns v*, the value of the extra key; NULL is zero.
inline const real* extra_v(const Model* m, int l) {
    return m->sizes.bias.learn_v ? layer_params(m, l).vstar.w : m->v_fixed;
}

inline ExtraKey<const real> extra_key(const Model* m, int l) {
    return { extra_k(m, l), extra_v(m, l) };
}

// Returns layer l's rotation table, from position 0, or NULL if it does not rotate q and k.
inline const acc* layer_rope(const Model* m, int l) {
    const Arch& arch = m->arch;
    if (!m->sizes.pe.rotary || !in_pattern(arch.rope_layers, l)) { return NULL; }
    const bool own = is_local(arch, l) && m->rope_local;
    return own ? m->rope_local : m->rope;
}

// ---- where the activations of a layer, or of a branch, are

inline int rows(const Model* m) { return m->B * m->T; }

// Returns where layer l keeps its rows of an activation, from `row` on.
template <class A> A* of_layer(const LayerRows<A>& t, const Model* m, int l, size_t row) {
    const size_t kept = m->train ? l : 0;
    return row_of(t.at, kept * rows(m) + row, t.width);
}

// act_qkv(m, l), act_att(m, l) and so on return, for each LAYER of ACTS, where its rows of layer l
// are, from `row` on.
#define LAYER(type, name, width) \
    inline type* act_##name(const Model* m, int l, size_t row = 0) { \
        return of_layer(m->acts.name, m, l, row); \
    }
ACTS(NOTHING, LAYER)
#undef LAYER

// Counts the branches whose activations are kept, and returns the place of branch i among them.
inline size_t branches_kept(const Model* m) { return m->train ? 2 * m->sizes.L : 2; }
inline size_t kept_branch(const Model* m, int i) { return i % branches_kept(m); }

// Returns where branch i keeps its rows.
inline real* of_branch(real* t, const Model* m, int i) {
    return row_of(t, kept_branch(m, i) * rows(m), m->sizes.C);
}

// Returns state i of the stream, x_i.
inline real* act_x(const Model* m, int i, size_t row = 0) {
    const size_t kept = m->train ? i : i % 3;
    return row_of(m->acts.x, kept * rows(m) + row, m->sizes.C);
}

// Returns the state of the stream that branch i reads.
inline real* branch_x(const Model* m, int i) {
    const int attention_branch = i / 2 * 2;
    return act_x(m, m->arch.parallel ? attention_branch : i);
}

// Returns the input of branch i's products: the normalized stream, or the stream itself.
inline real* act_n(const Model* m, int i) {
    if (!m->sizes.norm.in) { return branch_x(m, i); }
    return of_branch(m->acts.n, m, i);
}

// Returns the input of the norm after branch i.
inline real* act_f(const Model* m, int i) { return of_branch(m->acts.f, m, i); }

// Returns lm_head's input.
inline real* lm_head_input(const Model* m, size_t row = 0) {
    const Sizes& sizes = m->sizes;
    if (sizes.norm.stream) { return act_x(m, 2 * sizes.L, row); }
    const size_t norms_before = sizes.norm.in ? branches_kept(m) : 0;
    return row_of(m->acts.n, norms_before * rows(m) + row, sizes.C);
}

inline int gates_per_head(const Model* m) { return m->sizes.gate.by_channel ? m->sizes.HS : 1; }

// Returns the heads' output, after the gate if there is one.
inline real* act_out(const Model* m, int l) {
    return m->sizes.gates_output ? act_gated(m, l) : act_att(m, l);
}

// ---- tables of positions

// Extends the position tables to T rows, including the sink token's. They grow on demand: a
// config.json may claim a billion positions.
void positions_extend(Model* m, long T);

// ---- memory

// Lays the activations out for B sequences of T tokens, if they are not.
void model_resize(Model* m, int B, int T);

// Returns the memory of a whole array while it is being filled or read. If this rank keeps only a
// shard, it is the gradients' memory, which is free between steps.
inline acc* full_array(const Model* m, acc* shard) {
    return m->shard.mine == m->num_params ? shard : m->grads_memory;
}

inline const acc* gather_array(const Model* m, acc* shard) {
    acc* all = full_array(m, shard);
    if (all != shard) { shard_gather(m->shard, all, shard, sizeof *all); }
    return all;
}

// Stores this rank's shard of an array that was filled.
inline void store_array(const Model* m, acc* shard) {
    const acc* all = full_array(m, shard);
    if (all != shard) { shard_keep(m->shard, shard, all); }
}

// Copies the master weights that were filled to params_memory, in `real`, and stores them.
inline void publish_weights(Model* m) {
    ops::cast_to_real(m->params_memory, full_array(m, m->master), m->num_params);
    store_array(m, m->master);
}

// Computes with the mean of the weights in their place; or with them again. In between there are no
// steps: the gradients' memory may hold the weights.
void model_show_ema(Model* m, bool ema);

// Sets all weights from num_params numbers in host memory.
void model_set_weights(Model* m, const acc* host);

// Allocates the weights and, if the model is to be trained, gradients and optimizer state.
Model model_new(const Arch& arch, int T_max, bool train);

// Fills every tensor from its own random stream: the same seed gives the same q_proj with and
// without k*.
void model_init(Model* m, uint64_t seed);

void pieces_free(Model* m);

void model_free(Model* m);

// ---- a batch

// Tells whether the loss counts the target after token i of a sequence: it lies outside the prefix,
// is not masked (~id), and in training has from min_context to max_context tokens before it.
inline bool target_counts(const Model* m, const int* seq, int i, bool training) {
    const int before = i + 1;
    if (before < m->arch.prefix || seq[before] < 0) { return false; }
    if (!training) { return true; }
    return before >= m->min_context && (!m->max_context || before <= m->max_context);
}

// Counts the targets of n sequences, seqs (n, T+1), that count in training.
inline long targets_count(const Model* m, const int* seqs, long n, int T) {
    long count = 0;
    for (long b = 0; b < n; b++) {
        const int* seq = seqs + b * (T + 1);
        for (int i = 0; i < T; i++) { count += target_counts(m, seq, i, true); }
    }
    return count;
}

// Loads seqs (B, T+1) from host memory to tokens and targets; returns how many targets count. A
// masked token is passed as ~id. With a prefix p the loss starts at the prediction of token p + 1.
inline long model_load(Model* m, const int* seqs, int B, int T, bool training = false) {
    const bool sink = sink_rows(m);
    model_resize(m, B, T);
    m->spans = { { 0, B, m->T, 0, -1 } };
    std::vector<int> tokens;
    std::vector<int> targets;
    tokens.reserve(B * (size_t)T);
    targets.reserve(rows(m));
    long count = 0;
    for (int b = 0; b < B; b++) {
        const int* seq = seqs + (size_t)b * (T + 1);
        if (sink) { targets.push_back(-1); }     // the sink token predicts nothing
        for (int i = 0; i < T; i++) {
            const bool counts = target_counts(m, seq, i, training);
            tokens.push_back(seq[i] < 0 ? ~seq[i] : seq[i]);
            targets.push_back(counts ? seq[i + 1] : -1);
            count += counts;
        }
    }
    copy_to_device(m->tokens, tokens);
    copy_to_device(m->targets, targets);
    return count;
}

// ---- what train_sink.cu does with it, and cpu/

// Starts a step: clears the gradients and the loss.
void model_zero(Model* m);

// Runs the loaded batch forward and backward; adds its part to the gradients and to the mean loss
// over `count` targets.
void accumulate_loaded(Model* m, long count, bool last);

// What cpu/ does with a model, where BACKEND=cpu.
struct CpuModel {
    // Computes the losses (N) of rows x (N, C) that lm_head reads, where nothing else is wanted.
    void (*losses)(Model* m, acc* losses, const real* x, const int* targets, int N);
    // Runs one micro-batch, seqs (B, T + 1), cut for the threads, if the model is small. Returns
    // false if it is not.
    bool (*pieces)(Model* m, const int* seqs, int B, int T, long count);
};
extern const CpuModel* const cpu_model;          // NULL where cpu/ was deleted
#endif // MODEL_H
