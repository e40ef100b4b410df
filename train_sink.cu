/*
train_sink.cu -- trains small LLaMA-style language models and watches where their attention goes.

    make train_sink ATTN=sigmoid BIAS=k && ./train_sink -d pile_5B        (make help, ./train_sink --help)

The attention, its biases, the positions and the norm are switches of the build: they change the mathematics. What
changes a run is a flag. The file reads from top to bottom:

     1 switches      which model this binary is                         attention_variants.cuh
     2 operations    cpu:: or cuda::, chosen here and nowhere else      reference.h, metrics.cuh
     3 model         tensors, forward, backward: written once over ops::
     4 measure       sinks and norms of a batch of sequences
     5 flags         the command line, one row each
     6 data          tokens in, text out                                dataloader.h, shards.h, tokenizer.h
     7 log           a line for people, a JSON object for machines
     8 checkpoint    the model as safetensors + config.json             checkpoint.h
     9 evaluate      validation loss, the eval line, samples
    10 commands      train, probe, generate, tokenize, bench
    11 main
*/
#include <math.h>
#include <signal.h>
#include <functional>
#include <new>

// ============================================================================
// 1 switches
#include "attention_variants.cuh"

static const char* const SWITCH_VALUES[][3] = { // this build: { "ATTN", "sigmoid", "softmax sigmoid .." }, ...
#define NAME_OF(name, ...) #name " "
#define X(SWITCH, Type) { #SWITCH, STR(SWITCH), SWITCH##_VARIANTS(NAME_OF) },
    SWITCHES(X)
#undef X
};
#ifndef GIT_COMMIT
#define GIT_COMMIT "unknown"
#endif

// ============================================================================
// 2 operations
#include "cpu/attention.h"
#include "metrics.cuh"
#ifndef BACKEND
#define BACKEND cpu
#endif
#ifndef PRECISION
#define PRECISION fp32
#endif
#if defined(__CUDACC__) || defined(EMU)
#include "cuda/metrics.cuh"
#endif
namespace ops = BACKEND;
typedef ops::real real;   // what tensors hold
typedef ops::acc acc;     // what sums, weight gradients and optimiser state hold
#define PRECISION_NAME STR(PRECISION)

// ============================================================================
// 3 model: pre-norm (Eq. 2) or post-norm (Eq. 3) blocks, written as one chain of 2L branches f_0, f_1, .. (attention,
// FFN, attention, ..):
//      n_i = LN_i(x_i)            pre: i = 0..2L        post: i = 1..2L, and n_0 = x_0
//      x_{i+1} = base_i + f_i(n_i),   base_i = x_i (pre) or n_i (post)
// x_0 is the embedding, n_2L goes to lm_head. The hidden state h^l of the paper is x_2l (pre) or n_2l (post).

struct Config {
    int L, C, NH, KV, HS, F, V, T;               // T: longest sequence, without the sink token
    float eps, rope_base;
    float attn_p, attn_alpha;                    // AttnShape
    int bias_shared, k_dims, window, prefix;
    std::string v_star;                          // "" | e1:M | ones:M, the fixed v* of BIAS=k (Table 5)
};
// rows of learned biases: one per key/value head (BIAS=v: per head), or one for all
static int bias_rows(const Config& c) { return c.bias_shared ? 1 : Bias::add_v ? c.NH : c.KV; }

// ---- parameters. Every tensor is one row: field, Hugging Face name, rows, columns, init std (0: all ones).
// Rows stand in memory as they stand here: qw kw vw are one matrix, so are gatew upw.
// Init of the official code: N(0, sqrt(2 / (5 fan_in))), FFN output 1/sqrt(fan_in)/L, k*, v* and the sink token 0.02
#define LINEAR(fan_in) sqrt(0.4 / (fan_in))
#define PARAMS(HEAD, LAYER, TAIL) \
    HEAD(wte,     "model.embed_tokens.weight",         V,                                              C, sqrt(0.4 / C)) \
    HEAD(wpe,     "model.embed_positions.weight",      Pe::learnable ? T + Bias::token : 0,            C, sqrt(0.4 / C)) \
    HEAD(sink,    "model.sink_token",                  Bias::token ? -1 : 0,                           C, 0.02) \
    LAYER(ln1w,   "input_layernorm.weight",            Norm::post ? 0 : -1,                            C, 0) \
    LAYER(qw,     "self_attn.q_proj.weight",           NH * HS,                                        C, LINEAR(C)) \
    LAYER(kw,     "self_attn.k_proj.weight",           KV * HS,                                        C, LINEAR(C)) \
    LAYER(vw,     "self_attn.v_proj.weight",           KV * HS,                                        C, LINEAR(C)) \
    LAYER(kstar,  "self_attn.k_star",                  Bias::learn_k ? bias_rows(c) : 0,               HS, 0.02) \
    LAYER(vstar,  "self_attn.v_star",                  Bias::learn_v || Bias::add_v ? bias_rows(c) : 0, HS, 0.02) \
    LAYER(phi1w,  "self_attn.phi_fc1.weight",          Attn::phi == PHI_MLP ? HS : 0,                  HS, LINEAR(HS)) \
    LAYER(phi2w,  "self_attn.phi_fc2.weight",          Attn::phi == PHI_MLP ? HS : 0,                  HS, LINEAR(HS)) \
    LAYER(ow,     "self_attn.o_proj.weight",           C,                                              OC, LINEAR(OC)) \
    LAYER(ln2w,   "post_attention_layernorm.weight",   -1,                                             C, 0) \
    LAYER(gatew,  "mlp.gate_proj.weight",              Ffn::gated ? F : 0,                             C, LINEAR(C)) \
    LAYER(upw,    "mlp.up_proj.weight",                F,                                              C, LINEAR(C)) \
    LAYER(downw,  "mlp.down_proj.weight",              C,                                              F, 1 / sqrt(F) / L) \
    LAYER(ln3w,   "post_feedforward_layernorm.weight", Norm::post ? -1 : 0,                            C, 0) \
    TAIL(lnfw,    "model.norm.weight",                 Norm::post ? 0 : -1,                            C, 0) \
    TAIL(lmw,     "lm_head.weight",                    V,                                              C, LINEAR(C))
// rows 0: this build has no such tensor; -1: a vector, one row without a row dimension

#define FIELD(name, ...) P* name;
#define NOTHING(...)
template <class P> struct Params {
    PARAMS(FIELD, NOTHING, FIELD)
    struct Layer { PARAMS(NOTHING, FIELD, NOTHING) };
    std::vector<Layer> layer;
};
struct Tensor { std::string name; std::vector<long> shape; long at, count; double std; };

// points p into base, lists the tensors in memory order, returns how many numbers there are (base NULL: only counts)
template <class P> long params_point(Params<P>* p, std::vector<Tensor>* list, P* base, const Config& c) {
    const long L = c.L, C = c.C, NH = c.NH, KV = c.KV, HS = c.HS, F = c.F, V = c.V, T = c.T;
    const long OC = Combine::sum ? HS : NH * HS;
    long n = 0;
    auto place = [&](P** field, const std::string& name, long rows, long cols, double std) {
        const long count = labs(rows) * cols;
        *field = count && base ? base + n : NULL;
        if (count && list) {
            const std::vector<long> shape = rows < 0 ? std::vector<long>{ cols } : std::vector<long>{ rows, cols };
            list->push_back({ name, shape, n, count, std });
        }
        n += count;
    };
    p->layer.resize(L);
    #define ROW(field, hf, rows, cols, std) place(&p->field, hf, rows, cols, std);
    #define LAYER_ROW(field, hf, rows, cols, std) \
        place(&p->layer[l].field, strf("model.layers.%d.%s", l, hf), rows, cols, std);
    PARAMS(ROW, NOTHING, NOTHING)
    for (int l = 0; l < L; l++) { PARAMS(NOTHING, LAYER_ROW, NOTHING) }
    PARAMS(NOTHING, NOTHING, ROW)
    (void)KV; (void)F; (void)V; (void)T;
    return n;
}

// ---- activations. N = B T rows; one arena for all, laid out anew for each (B, T)
#define ACTS(X) \
    X(real, x,       (2 * L + 1) * N * C)                            /* (2L+1, N, C)  the stream (pre), or what enters each LN (post) */ \
    X(real, n,       (2 * L + 1) * N * C)                            /* (2L+1, N, C)  n_i = LN(x_i)                                   */ \
    X(acc,  rstd,    (2 * L + 1) * N)                                /* (2L+1, N)                                                     */ \
    X(real, qkv,     L * N * W)                                      /* (L, N, (NH + 2 KV) HS)  after PE and phi                      */ \
    X(real, phi_in,  Attn::phi == PHI_MLP ? L * N * QK : 0)          /* (L, N, (NH + KV) HS)    the MLP kernel: input,                */ \
    X(real, phi_hid, Attn::phi == PHI_MLP ? L * N * QK : 0)          /*                         hidden before and                     */ \
    X(real, phi_act, Attn::phi == PHI_MLP ? L * N * QK : 0)          /*                         after ReLU                            */ \
    X(real, att,     L * N * NH * HS)                                /* (L, N, NH HS)                                                 */ \
    X(acc,  stat,    L * N * NH * 2)                                 /* (L, B, NH, T, 2)                                              */ \
    X(real, heads,   Combine::sum || Bias::add_v ? L * N * OC : 0)   /* (L, N, NH HS or HS)     att + v*, or summed over heads        */ \
    X(real, fch,     L * N * FH)                                     /* (L, N, 2F or F)         gate | up                             */ \
    X(real, fca,     L * N * F)                                      /* (L, N, F)                                                     */ \
    X(real, logits,  R * V)                                          /* (R, V)   the head works on R rows at a time                   */ \
    X(acc,  losses,  N)                                              /* (N)                                                           */ \
    X(real, dx,      N * C)           /* backward */ \
    X(real, dn,      N * C) \
    X(real, dqkv,    N * W) \
    X(real, datt,    N * NH * HS) \
    X(real, dheads,  Combine::sum || Bias::add_v ? N * OC : 0) \
    X(real, dphi,    Attn::phi == PHI_MLP ? 2 * N * QK : 0) \
    X(real, dfch,    N * FH) \
    X(real, dfca,    N * F)
struct Acts {
#define X(type, name, size) type* name;
    ACTS(X)
#undef X
};
// points a into base, returns the bytes (base NULL: only counts); table: the MiB of each tensor, in words
static size_t acts_point(Acts* a, char* base, const Config& c, long B, long T, long R, std::string* table = NULL) {
    const long L = c.L, C = c.C, NH = c.NH, HS = c.HS, F = c.F, V = c.V, N = B * T, OC = Combine::sum ? HS : NH * HS;
    const long QK = (c.NH + c.KV) * HS, W = QK + c.KV * HS, FH = F * (Ffn::gated ? 2 : 1);
    size_t bytes = 0;
    #define X(type, name, size) \
        a->name = (type*)(base + bytes); \
        bytes += ((size) * sizeof(type) + 255) / 256 * 256; \
        if (table && (size) > 0) { *table += strf(" " #name " %.1f", (size) * sizeof(type) / 0x1p20); }
    ACTS(X)
    #undef X
    (void)OC; (void)QK;
    return bytes;
}

struct Model {
    Config c;
    std::vector<Tensor> tensors;
    long num_params;
    real* params;
    acc *master, *grads, *m, *v;                 // master: the weights in acc; is params itself where real is acc
    Params<real> w; Params<acc> g;
    Acts a; char* arena; size_t arena_bytes;     // activations
    int longest;                                 // T that the tables of positions are made for
    int B, T, R;                                 // the batch they are laid out for, T with the sink token; rows of head
    int *tokens, *targets; size_t token_room;    // (B, T)
    StepSums* sums;                              // loss and gradient norm of the step
    real *positions, *v_fixed; acc* turns;       // absolute PE (T, C); fixed v* (HS); rotary cos, sin (T, HS/2, 2)
};

static AttnShape attn_shape(const Model* m) {
    const Config& c = m->c;
    const int prefix = c.prefix ? c.prefix + Bias::token : 0;
    const acc scale = acc(1) / sqrt(acc(c.HS));
    return { m->B, m->T, c.NH, c.KV, c.HS, c.window, prefix, c.bias_shared, c.k_dims, c.attn_p, c.attn_alpha,
             scale, 0, c.HS };
}
static const real* star_k(const Model* m, int l) { return m->w.layer[l].kstar; }
static const real* star_v(const Model* m, int l) {
    return Bias::learn_v ? m->w.layer[l].vstar : Bias::column ? m->v_fixed : NULL;
}

// lays the activations out for B sequences of T tokens
static void model_resize(Model* m, int B, int T) {
    if (T > m->longest) {
        die(EXIT_USER, strf("--seq %d: this model has positions for %d tokens", T, m->longest), "use shorter sequences");
    }
    m->B = B; m->T = T + Bias::token;
    m->R = std::min<long>(ops::head_rows, (long)B * m->T);
    Acts probe;
    const size_t bytes = acts_point(&probe, NULL, m->c, B, m->T, m->R), words = (size_t)B * m->T;
    if (bytes > m->arena_bytes) {
        ops::device_free(m->arena);
        m->arena = (char*)ops::device_malloc(bytes);
        m->arena_bytes = bytes;
    }
    acts_point(&m->a, m->arena, m->c, B, m->T, m->R);
    if (words > m->token_room) {
        ops::device_free(m->tokens); ops::device_free(m->targets);
        m->tokens = (int*)ops::device_malloc(words * sizeof(int));
        m->targets = (int*)ops::device_malloc(words * sizeof(int));
        m->token_room = words;
    }
}
template <class D> static D* device_table(const std::vector<double>& host) {
    std::vector<D> x(host.begin(), host.end());
    D* p = (D*)ops::device_malloc(x.size() * sizeof(D));
    ops::to_device(p, x.data(), x.size() * sizeof(D));
    return p;
}
// constant tables: positions from 0, as long as any sequence may be
static void model_tables(Model* m, int T) {
    const Config& c = m->c;
    T += Bias::token;
    if (Pe::absolute) { // (Eq. 5) with all sines before all cosines, as in the official code
        std::vector<double> p((size_t)T * c.C);
        for (int t = 0; t < T; t++) {
            for (int i = 0; i < c.C / 2; i++) {
                const double angle = t * pow(10000.0, -2.0 * i / c.C);
                p[(size_t)t * c.C + i] = sin(angle);
                p[(size_t)t * c.C + c.C / 2 + i] = cos(angle);
            }
        }
        m->positions = device_table<real>(p);
    }
    if (Pe::rotary) {
        std::vector<double> p;
        for (int t = 0; t < T; t++) {
            for (int i = 0; i < c.HS / 2; i++) {
                const double angle = t * pow((double)c.rope_base, -2.0 * i / c.HS);
                p.push_back(cos(angle)); p.push_back(sin(angle));
            }
        }
        m->turns = device_table<acc>(p);
    }
    if (!c.v_star.empty()) { // Table 5: M [1, 0, .., 0] or M [1, .., 1] / sqrt(HS), the same for every head
        const bool ones = c.v_star.compare(0, 5, "ones:") == 0;
        const double M = atof(c.v_star.c_str() + (ones ? 5 : 3));
        std::vector<double> p;
        for (int g = 0; g < bias_rows(c); g++) {
            for (int i = 0; i < c.HS; i++) { p.push_back(ones ? M / sqrt(c.HS) : i ? 0 : M); }
        }
        m->v_fixed = device_table<real>(p);
    }
}
// num_params weights from host memory
static inline void model_set(Model* m, const acc* host) {
    ops::to_device(m->master, host, m->num_params * sizeof(acc));
    ops::cast_to_real(m->params, m->master, m->num_params);
}
// memory for the weights and, if it is to be trained, for gradients and optimiser state
static Model model_new(const Config& c, int T_max, bool train) {
    Model m = Model();
    m.c = c;
    m.num_params = params_point<real>(&m.w, &m.tensors, NULL, c);
    m.params = (real*)ops::device_malloc(m.num_params * sizeof(real));
    m.master = std::is_same<real, acc>::value ? (acc*)m.params : (acc*)ops::device_malloc(m.num_params * sizeof(acc));
    params_point<real>(&m.w, NULL, m.params, c);
    if (train) {
        m.grads = (acc*)ops::device_malloc(3 * m.num_params * sizeof(acc));
        m.m = m.grads + m.num_params;
        m.v = m.m + m.num_params;
        m.sums = (StepSums*)ops::device_malloc(sizeof(StepSums));
    }
    params_point<acc>(&m.g, NULL, m.grads, c);
    m.longest = Pe::learnable ? c.T : std::max(c.T, T_max);
    model_tables(&m, m.longest);
    return m;
}
// every tensor from its own random stream: the same seed gives the same q_proj with and without k*
static inline void model_init(Model* m, uint64_t seed) {
    std::vector<acc> host;
    for (auto& t : m->tensors) {
        Rng rng = rng_stream(seed, hash_bytes(t.name.data(), t.name.size()));
        host.resize(t.count);
        for (auto& w : host) { w = t.std == 0 ? acc(1) : acc(t.std * rng_normal(&rng)); }
        if (ends_with(t.name, ".k_star")) { // entries that are not learned are zero (Table 13)
            for (long i = 0; i < t.count; i++) { if (i % m->c.HS >= m->c.k_dims) { host[i] = 0; } }
        }
        ops::to_device(m->master + t.at, host.data(), t.count * sizeof(acc));
    }
    ops::cast_to_real(m->params, m->master, m->num_params);
}
static void model_free(Model* m) {
    if ((void*)m->master != (void*)m->params) { ops::device_free(m->master); }
    for (void* p : { (void*)m->params, (void*)m->grads, (void*)m->arena, (void*)m->tokens, (void*)m->targets,
                     (void*)m->sums, (void*)m->positions, (void*)m->v_fixed, (void*)m->turns }) { ops::device_free(p); }
    *m = Model();
}

// seqs (B, T+1) in host memory -> tokens and targets; returns how many targets count. Row 0 of a sink token predicts
// nothing; with a prefix p the loss starts at the prediction of token p + 1 (section 6)
static long model_load(Model* m, const int* seqs, int B, int T) {
    if (m->B != B || m->T != T + Bias::token || !m->arena) { model_resize(m, B, T); }
    std::vector<int> tokens((size_t)B * T), targets((size_t)B * m->T);
    long count = 0;
    for (int b = 0; b < B; b++) {
        const int* s = seqs + (size_t)b * (T + 1);
        for (int t = 0; t < T; t++) { tokens[(size_t)b * T + t] = s[t]; }
        for (int t = 0; t < m->T; t++) {
            const int i = t - Bias::token;
            const bool counts = i >= 0 && i >= m->c.prefix - 1;
            targets[(size_t)b * m->T + t] = counts ? s[i + 1] : -1;
            count += counts;
        }
    }
    ops::to_device(m->tokens, tokens.data(), tokens.size() * sizeof(int));
    ops::to_device(m->targets, targets.data(), targets.size() * sizeof(int));
    return count;
}

// x_i and n_i
static real* act_x(const Model* m, int i) { return m->a.x + (size_t)i * m->B * m->T * m->c.C; }
static real* act_n(const Model* m, int i) {
    return Norm::post && i == 0 ? m->a.x : m->a.n + (size_t)i * m->B * m->T * m->c.C;
}
template <class P> static P* norm_weight(const Params<P>& p, int i, int L) {
    if (Norm::post) { return i % 2 ? p.layer[i / 2].ln2w : p.layer[i / 2 - 1].ln3w; }
    return i == 2 * L ? p.lnfw : i % 2 ? p.layer[i / 2].ln2w : p.layer[i / 2].ln1w;
}
static void norm_forward(Model* m, int i) {
    if (Norm::post && i == 0) { return; }
    const int N = m->B * m->T;
    acc* rstd = m->a.rstd + (size_t)i * N;
    ops::norm_forward(act_n(m, i), NULL, rstd, act_x(m, i), norm_weight(m->w, i, m->c.L), NULL, m->c.eps, N, m->c.C);
}
// a tensor of layer l: shape (L, N, per_row)
template <class A> static A* of_layer(A* t, const Model* m, int l, int per_row) {
    return t + (size_t)l * m->B * m->T * per_row;
}

// x_{i+1} = base_i + W_O heads(attention(n_i)),  i = 2l
static void attention_block_forward(Model* m, int l) {
    const Config& c = m->c; const auto& w = m->w.layer[l]; const AttnShape s = attn_shape(m);
    const int N = m->B * m->T, i = 2 * l, QK = (c.NH + c.KV) * c.HS, OC = Combine::sum ? c.HS : c.NH * c.HS;
    real *qkv = of_layer(m->a.qkv, m, l, attn_row(s)), *att = of_layer(m->a.att, m, l, c.NH * c.HS), *heads = att;
    acc* stat = of_layer(m->a.stat, m, l, c.NH * 2);
    ops::matmul_forward(qkv, act_n(m, i), w.qw, NULL, NULL, N, c.C, attn_row(s));
    if (Pe::rotary) { ops::rope(qkv, m->turns, +1, s); }
    if (Attn::phi == PHI_ELU1) { ops::phi_elu1_forward(qkv, s); }
    if (Attn::phi == PHI_MLP) { // phi(x) = W2 relu(W1 x) on every head of q and k
        real *in = of_layer(m->a.phi_in, m, l, QK), *hid = of_layer(m->a.phi_hid, m, l, QK);
        real* act = of_layer(m->a.phi_act, m, l, QK);
        const int rows = N * (c.NH + c.KV);
        ops::qk_gather(in, qkv, s);
        ops::matmul_forward(hid, in, w.phi1w, NULL, NULL, rows, c.HS, c.HS);
        ops::ffn_forward(act, hid, ACT_relu, false, rows, c.HS);
        ops::matmul_forward(m->a.dphi, act, w.phi2w, NULL, NULL, rows, c.HS, c.HS);
        ops::qk_scatter(qkv, m->a.dphi, s);
    }
    ops::attention_forward<Attn, Bias, Pe>(att, stat, qkv, star_k(m, l), star_v(m, l), s);
    if (Combine::sum || Bias::add_v) {
        heads = of_layer(m->a.heads, m, l, OC);
        ops::heads_forward(heads, att, Bias::add_v ? w.vstar : NULL, Combine::sum, s);
    }
    ops::matmul_forward(act_x(m, i + 1), heads, w.ow, NULL, Norm::post ? act_n(m, i) : act_x(m, i), N, OC, c.C);
}
// x_{i+1} = base_i + W_down act(W_gate|up n_i),  i = 2l + 1
static void ffn_block_forward(Model* m, int l) {
    const Config& c = m->c; const auto& w = m->w.layer[l];
    const int N = m->B * m->T, i = 2 * l + 1, FH = c.F * (Ffn::gated ? 2 : 1);
    real *fch = of_layer(m->a.fch, m, l, FH), *fca = of_layer(m->a.fca, m, l, c.F);
    ops::matmul_forward(fch, act_n(m, i), Ffn::gated ? w.gatew : w.upw, NULL, NULL, N, c.C, FH);
    ops::ffn_forward(fca, fch, Ffn::act, Ffn::gated, N, c.F);
    ops::matmul_forward(act_x(m, i + 1), fca, w.downw, NULL, Norm::post ? act_n(m, i) : act_x(m, i), N, c.F, c.C);
}
// tokens -> n_2L
static void model_body(Model* m) {
    const Config& c = m->c;
    ops::embed_forward(act_x(m, 0), m->tokens, m->w.wte, Pe::learnable ? m->w.wpe : m->positions, m->w.sink,
                       1, m->B, m->T, c.C);
    for (int l = 0; l < c.L; l++) {
        norm_forward(m, 2 * l);
        attention_block_forward(m, l);
        norm_forward(m, 2 * l + 1);
        ffn_block_forward(m, l);
    }
    norm_forward(m, 2 * c.L);
}
// the classifier, R rows at a time so that the logits never exist whole. Fills a.losses; if dloss is not 0 also
// g.lmw += and a.dn = the gradient of dloss * sum of losses
static void model_head(Model* m, float dloss) {
    const Config& c = m->c;
    const int N = m->B * m->T;
    for (int r = 0; r < N; r += m->R) {
        const int rows = std::min(m->R, N - r);
        real* n = act_n(m, 2 * c.L) + (size_t)r * c.C;
        ops::matmul_forward(m->a.logits, n, m->w.lmw, NULL, NULL, rows, c.C, c.V);
        ops::classifier(m->a.losses + r, m->a.logits, m->targets + r, dloss, 0, rows, c.V);
        if (dloss == 0) { continue; }
        ops::matmul_backward_input(m->a.dn + (size_t)r * c.C, m->a.logits, m->w.lmw, false, rows, c.C, c.V);
        ops::matmul_backward_weight(m->g.lmw, m->a.logits, n, rows, c.C, c.V);
    }
}
// the losses of the loaded batch, (B, T); those that do not count are 0
static std::vector<acc> model_losses(Model* m) {
    std::vector<acc> x((size_t)m->B * m->T);
    ops::to_host(x.data(), m->a.losses, x.size() * sizeof(acc));
    return x;
}
static double model_forward(Model* m, long count, float dloss) { // mean loss over the targets that count
    model_body(m);
    model_head(m, dloss);
    double sum = 0;
    for (acc x : model_losses(m)) { sum += x; }
    return sum / count;
}

static const bool turn_with_attention = Pe::rotary && Attn::phi == PHI_NONE; // phi would stand between the two
// a.datt -> a.dqkv
static void attention_backward(Model* m, int l) {
    const AttnShape s = attn_shape(m); const auto& g = m->g.layer[l];
    real *qkv = of_layer(m->a.qkv, m, l, attn_row(s)), *att = of_layer(m->a.att, m, l, s.NH * s.HS);
    ops::attention_backward<Attn, Bias, Pe>(m->a.dqkv, g.kstar, Bias::learn_v ? g.vstar : NULL, m->a.datt, att,
                                            of_layer(m->a.stat, m, l, s.NH * 2), qkv, star_k(m, l), star_v(m, l),
                                            turn_with_attention ? m->turns : NULL, s);
}
// dn_i from a.dx = dx_{i+1}:  in the forward pass this was  x_{i+1} = base_i + W_O heads(attention(n_i))
static void attention_block_backward(Model* m, int l) {
    const Config& c = m->c; const AttnShape s = attn_shape(m);
    const auto& w = m->w.layer[l]; const auto& g = m->g.layer[l];
    const int N = m->B * m->T, i = 2 * l, QK = (c.NH + c.KV) * c.HS, OC = Combine::sum ? c.HS : c.NH * c.HS;
    real *qkv = of_layer(m->a.qkv, m, l, attn_row(s)), *att = of_layer(m->a.att, m, l, c.NH * c.HS), *dqkv = m->a.dqkv;
    const bool combine = Combine::sum || Bias::add_v;
    real *heads = combine ? of_layer(m->a.heads, m, l, OC) : att, *dheads = combine ? m->a.dheads : m->a.datt;
    ops::matmul_backward_weight(g.ow, m->a.dx, heads, N, OC, c.C);
    ops::matmul_backward_input(dheads, m->a.dx, w.ow, false, N, OC, c.C);
    if (combine) { ops::heads_backward(m->a.datt, Bias::add_v ? g.vstar : NULL, dheads, Combine::sum, s); }
    attention_backward(m, l);
    if (Attn::phi == PHI_MLP) {
        real *in = of_layer(m->a.phi_in, m, l, QK), *hid = of_layer(m->a.phi_hid, m, l, QK);
        real* act = of_layer(m->a.phi_act, m, l, QK);
        real *d1 = m->a.dphi, *d2 = m->a.dphi + (size_t)N * QK;
        const int rows = N * (c.NH + c.KV);
        ops::qk_gather(d1, dqkv, s);
        ops::matmul_backward_weight(g.phi2w, d1, act, rows, c.HS, c.HS);
        ops::matmul_backward_input(d2, d1, w.phi2w, false, rows, c.HS, c.HS);
        ops::ffn_backward(d1, d2, hid, ACT_relu, false, rows, c.HS);
        ops::matmul_backward_weight(g.phi1w, d1, in, rows, c.HS, c.HS);
        ops::matmul_backward_input(d2, d1, w.phi1w, false, rows, c.HS, c.HS);
        ops::qk_scatter(dqkv, d2, s);
    }
    if (Attn::phi == PHI_ELU1) { ops::phi_elu1_backward(dqkv, qkv, s); }
    if (Pe::rotary && !turn_with_attention) { ops::rope(dqkv, m->turns, -1, s); }
    ops::matmul_backward_weight(g.qw, dqkv, act_n(m, i), N, c.C, attn_row(s));
    ops::matmul_backward_input(m->a.dn, dqkv, w.qw, false, N, c.C, attn_row(s));
}
// dn_i from a.dx = dx_{i+1}:  in the forward pass this was  x_{i+1} = base_i + W_down act(W_gate|up n_i)
static void ffn_block_backward(Model* m, int l) {
    const Config& c = m->c; const auto& w = m->w.layer[l]; const auto& g = m->g.layer[l];
    const int N = m->B * m->T, i = 2 * l + 1, FH = c.F * (Ffn::gated ? 2 : 1);
    real *fch = of_layer(m->a.fch, m, l, FH), *fca = of_layer(m->a.fca, m, l, c.F);
    ops::matmul_backward_weight(g.downw, m->a.dx, fca, N, c.F, c.C);
    ops::matmul_backward_input(m->a.dfca, m->a.dx, w.downw, false, N, c.F, c.C);
    ops::ffn_backward(m->a.dfch, m->a.dfca, fch, Ffn::act, Ffn::gated, N, c.F);
    ops::matmul_backward_weight(Ffn::gated ? g.gatew : g.upw, m->a.dfch, act_n(m, i), N, c.C, FH);
    ops::matmul_backward_input(m->a.dn, m->a.dfch, Ffn::gated ? w.gatew : w.upw, false, N, c.C, FH);
}
// a.dn = dn_i (without the base term) and a.dx = dx_{i+1}  ->  a.dx = dx_i
//      pre:   dx_i = dx_{i+1} + LN'(dn_i)             since base_i = x_i
//      post:  dx_i = LN'(dx_{i+1} + dn_i)             since base_i = n_i
static void norm_backward(Model* m, int i, bool top) {
    const int N = m->B * m->T, C = m->c.C;
    if (Norm::post && !top) { ops::add(m->a.dn, m->a.dx, (long)N * C); }
    if (Norm::post && i == 0) { std::swap(m->a.dx, m->a.dn); return; }
    ops::norm_backward(m->a.dx, norm_weight(m->g, i, m->c.L), NULL, m->a.dn, act_x(m, i), norm_weight(m->w, i, m->c.L),
                       NULL, m->a.rstd + (size_t)i * N, !Norm::post && !top, N, C);
}
// after model_forward with dloss: adds the gradient of dloss * sum of losses to every tensor of g
static void model_backward(Model* m) {
    norm_backward(m, 2 * m->c.L, true);
    for (int l = m->c.L - 1; l >= 0; l--) {
        ffn_block_backward(m, l);
        norm_backward(m, 2 * l + 1, false);
        attention_block_backward(m, l);
        norm_backward(m, 2 * l, false);
    }
    ops::embed_backward(m->g.wte, m->g.wpe, m->g.sink, m->a.dx, m->tokens, 1, m->B, m->T, m->c.C);
}
// a step begins: no gradients, no loss
static void model_zero(Model* m) {
    ops::device_zero(m->grads, m->num_params * sizeof(acc));
    ops::device_zero(m->sums, sizeof(StepSums));
}
// one micro-batch of a step of `accum`: seqs (B, T+1) add their part to the gradients and to the mean loss. The host does
// not wait for any of it
static void model_accumulate(Model* m, const int* seqs, int B, int T, int accum) {
    const long count = model_load(m, seqs, B, T) * accum;
    model_body(m);
    model_head(m, 1.0f / count);
    ops::loss_add(m->sums, m->a.losses, (long)m->B * m->T, count);
    model_backward(m);
}
// after all micro-batches: clips the gradients and updates the weights, unless the loss or the gradients are not finite;
// returns what it went by. Here, once a step, the host waits
static StepSums model_update(Model* m, const AdamW& o, float clip, bool sgd) {
    ops::square_norm(m->sums, m->grads, clip, m->num_params);
    const auto update = sgd ? ops::sgd_update : ops::adamw_update;
    update(m->params, m->master, m->m, m->v, m->grads, m->sums, o, m->num_params);
    StepSums sums;
    ops::to_host(&sums, m->sums, sizeof sums);
    return sums;
}

// ============================================================================
// 4 measure
// the metrics of section 3 on n sequences of T + 1 tokens
static Metrics measure(Model* m, const int* seqs, int n, int T, int batch_tokens) {
    const Config& c = m->c;
    const int skip = Bias::token, chunk = std::max(1, std::min(n, batch_tokens / std::max(1, T)));
    Metrics r;
    r.n = n; r.T = T; r.L = c.L; r.NH = c.NH;
    r.sums_to_one = attn_sums_to_one<Attn>(c.attn_alpha);
    r.has_star = Bias::column || Bias::token;
    r.heads.resize((size_t)n * c.L * c.NH);
    r.h_star.resize(c.L + 1); r.h_max.resize(c.L + 1); r.h_median.resize(c.L + 1);
    double loss = 0; long count = 0;
    for (int i = 0; i < n; i += chunk) {
        const int B = std::min(chunk, n - i);
        const long k = model_load(m, seqs + (size_t)i * (T + 1), B, T);
        loss += model_forward(m, k, 0) * k;
        count += k;
        const AttnShape s = attn_shape(m);
        const int N = B * m->T, W = attn_row(s);
        // everything is computed first and read afterwards, in the same order
        std::vector<HeadMetrics> heads((size_t)c.L * B * c.NH);
        std::vector<acc> norms((size_t)N * (2 * c.L * c.KV + c.L + 1 + 2 * c.L * Norm::post)), sizes((size_t)(c.L + 1) * B * 2);
        HeadMetrics* d_heads = (HeadMetrics*)ops::device_malloc(heads.size() * sizeof(HeadMetrics));
        acc *d_norms = (acc*)ops::device_malloc(norms.size() * sizeof(acc)), *to = d_norms;
        acc* d_sizes = (acc*)ops::device_malloc(sizes.size() * sizeof(acc));
        auto norm = [&](const real* t, int stride, int len, int G) { ops::row_norms(to, t, stride, len, G, N); to += (long)N * G; };
        for (int l = 0; l < c.L; l++) {
            const real* qkv = of_layer(m->a.qkv, m, l, W);
            const acc* stat = of_layer(m->a.stat, m, l, c.NH * 2);
            ops::attention_metrics<Attn, Bias, Pe>(d_heads + (size_t)l * B * c.NH, qkv, stat, star_k(m, l), skip, s);
            norm(qkv + c.NH * c.HS, W, c.HS, c.KV);
            norm(qkv + (c.NH + c.KV) * c.HS, W, c.HS, c.KV);
        }
        for (int l = 0; l <= c.L; l++) {
            const real* h = Norm::post ? act_n(m, 2 * l) : act_x(m, 2 * l);
            norm(h, c.C, c.C, 1);
            ops::magnitudes(d_sizes + (size_t)l * B * 2, h, skip, B, m->T, c.C);
        }
        for (int j = 1; Norm::post && j <= 2 * c.L; j++) { norm(act_x(m, j), c.C, c.C, 1); }
        ops::to_host(heads.data(), d_heads, heads.size() * sizeof(HeadMetrics));
        ops::to_host(norms.data(), d_norms, norms.size() * sizeof(acc));
        ops::to_host(sizes.data(), d_sizes, sizes.size() * sizeof(acc));
        for (void* p : { (void*)d_heads, (void*)d_norms, (void*)d_sizes }) { ops::device_free(p); }
        const acc* from = norms.data();
        auto add = [&](NormPair* p, int l, int G) { norms_add(p, l, from, B, m->T, G, skip, n); from += (long)N * G; };
        for (int l = 0; l < c.L; l++) {
            for (int b = 0; b < B; b++) {
                std::copy_n(&heads[((size_t)l * B + b) * c.NH], c.NH, &r.heads[((size_t)(i + b) * c.L + l) * c.NH]);
            }
            add(&r.k, l, c.KV);
            add(&r.v, l, c.KV);
        }
        for (int l = 0; l <= c.L; l++) {
            for (int b = 0; b < B; b++) {
                const acc* size = &sizes[((size_t)l * B + b) * 2];
                r.h_star[l] += from[(size_t)b * m->T] / n;                       // position 0; for a sink token
                r.h_max[l] = std::max<double>(r.h_max[l], size[0]);
                r.h_median[l] += (double)size[1] / n;
            }
            add(&r.h, l, 1);
        }
        for (int j = 0; Norm::post && j < 2 * c.L; j++) { add(&r.pre, j, 1); }
    }
    r.loss = count ? loss / count : NAN;
    return r;
}

#ifndef MODEL_ONLY // the tests of the model stop reading here
// ============================================================================
// 5 flags
#include "flags.h"

// ============================================================================
// 6 data
#include "dataloader.h"

static DataOptions data_options(const Flags& f, int T, int probe_len) {
    DataOptions o;
    o.data = split(f.data, ',');
    want(!o.data.empty(), "--data \"\"", "bb, a file, a directory of shards or a NAME in data/");
    o.tokenizer = f.tokenizer; o.bos = f.bos; o.T = T; o.seed = f.seed;
    o.val_seqs = f.val_seqs; o.probe_seqs = f.probe_seqs; o.probe_len = probe_len; o.train_tokens = f.train_tokens;
    o.vocab = f.vocab;
    for (double position : flag_list("--random-token", f.random_token)) {
        want(position == floor(position) && fabs(position) < 1e9, strf("--random-token %g", position),
             "a whole number");
        o.random_token.push_back((int)position);
    }
    for (auto& w : split(f.fix_token, ',')) {
        auto pair = split(w, ':');
        long pos = 0, id = 0;
        const bool numbers = pair.size() == 2 && parse_long(pair[0], &pos) && parse_long(pair[1], &id);
        want(numbers && labs(pos) < 1L << 30 && labs(id) < 1L << 30, "--fix-token " + w, "POS:ID");
        o.fix_token.push_back({ (int)pos, (int)id });
    }
    o.skip_bad = f.skip_bad;
    o.bb_vocab = f.bb_vocab; o.bb_triggers = f.bb_triggers; o.bb_trigger_prob = f.bb_trigger_prob;
    o.bb_temp = f.bb_temp; o.bb_table = f.bb_table; o.bb_bos = f.bb_bos;
    want(f.bb_triggers < f.bb_vocab, strf("--bb-triggers %ld", f.bb_triggers),
         "0 or more, less than --bb-vocab");
    return o;
}
static Data data_from_flags(const Flags& f, int T, int probe_len) { return data_open(data_options(f, T, probe_len)); }

#include "log.h"
#include "checkpoint.h"

// ============================================================================
// 6 train
static double validate(Model* m, Data* data, int B, int T) { // mean over the targets that count
    const long n = data_val_count(data);
    double sum = 0; long count = 0;
    std::vector<int> seqs((size_t)B * (T + 1));
    for (long i = 0; i < n; i += B) {
        const int rows = std::min<long>(B, n - i);
        data_val(data, seqs.data(), rows, i);
        const long k = model_load(m, seqs.data(), rows, T);
        sum += model_forward(m, k, 0) * k;
        count += k;
    }
    return count ? sum / count : NAN;
}
#include "generate.h"

static volatile sig_atomic_t stop_signal = 0;
// timeout(1) and some schedulers send a signal twice at once: only a later Ctrl-C ends the program at once
static void on_signal(int sig) {
    static double first;
    if (sig == SIGINT && stop_signal && now_ms() - first > 500) { _exit(128 + SIGINT); }
    if (!stop_signal) { first = now_ms(); }
    stop_signal = sig;
}

static double learning_rate(const Flags& f, long step) { // of the step that makes update number step + 1
    if (step < f.warmup) { return f.lr * (step + 1) / f.warmup; }
    if (f.schedule == "constant") { return f.lr; }
    const double done = f.steps > f.warmup ? (double)(step - f.warmup) / (f.steps - f.warmup) : 1;
    return f.min_lr + 0.5 * (f.lr - f.min_lr) * (1 + cos(M_PI * std::min(1.0, done)));
}
static size_t acts_bytes(const Config& c, long B, long T, std::string* table = NULL) { // of B sequences of T tokens
    Acts none;
    T += Bias::token;
    return acts_point(&none, NULL, c, B, T, std::min<long>(ops::head_rows, B * T), table);
}
static std::string memory_text(const Model* m, long B, long T) {
    const long n = m->num_params;
    const bool copied = !std::is_same<real, acc>::value; // the weights exist as master and in `real`
    const double weights = n * (sizeof(acc) + (copied ? sizeof(real) : 0)) / 0x1p20;
    const double acts = acts_bytes(m->c, B, T) / 0x1p20, grads = m->grads ? n * sizeof(acc) / 0x1p20 : 0;
    return strf("memory weights %.1f + gradients %.1f + optimiser %.1f + activations %.1f = %.1f MiB",
                weights, grads, 2 * grads, acts, weights + 3 * grads + acts);
}
// The batch in memory: what -b says; else, with --total-batch on a GPU, `kept` by the run that goes on, or as many sequences
// as fit 7/8 of the free memory, up to 2^16 tokens (more do not make a GPU faster); else the preset's
static void batch_settle(const Model* m, Flags* f, long kept) {
    const bool choose = !ops::on_host && !f->given_batch && f->total_batch >= f->seq;
    const long all = choose ? f->total_batch / f->seq : 0, most = std::max(1L, (1L << 16) / f->seq);
    if (choose) { f->batch = std::max(1L, kept); }
    for (long B = 2; !kept && B <= std::min(all, most); B++) {
        if (all % B == 0 && acts_bytes(m->c, B, f->seq) < ops::device_left() / 8 * 7) { f->batch = B; }
    }
    want(f->total_batch % (f->batch * f->seq) == 0, strf("--total-batch %ld", f->total_batch),
         strf("a multiple of batch * seq = %ld", f->batch * f->seq));
}
static bool switch_default(const char* const (&s)[3]) { // is the value the first of its table?
    return !strncmp(s[2], (s[1] + std::string(" ")).c_str(), strlen(s[1]) + 1);
}
static std::string next_run_dir() { // runs/0001-softmax, runs/0002-sigmoid-k, ..: ATTN, then what is not the default
    std::string name;
    for (auto& s : SWITCH_VALUES) { if (!strcmp(s[0], "ATTN") || !switch_default(s)) { name += std::string("-") + s[1]; } }
    long last = 0, n;
    for (auto& d : dir_list("runs")) { if (parse_long(d.substr(0, 4), &n)) { last = std::max(last, n); } }
    return strf("runs/%04ld%s", last + 1, name.c_str());
}
// one optimiser step of `accum` micro-batches
static StepSums train_step(Model* m, Data* data, const Flags& f, long step, int accum, std::vector<int>* seqs) {
    model_zero(m);
    for (int i = 0; i < accum; i++) {
        data_next(data, seqs->data(), f.batch);
        model_accumulate(m, seqs->data(), f.batch, f.seq, accum);
    }
    const AdamW o = { (float)learning_rate(f, step), (float)f.beta1, (float)f.beta2, (float)f.adam_eps,
                      (float)f.weight_decay, step + 1 };
    return model_update(m, o, f.grad_clip, f.optimizer == "sgd");
}
static void train_checks(const Flags& f) {
    want(f.optimizer == "adamw" || f.optimizer == "sgd", "--optimizer " + f.optimizer, "adamw or sgd");
    want(f.schedule == "constant" || f.schedule == "cosine", "--schedule " + f.schedule, "constant or cosine");
    want(f.beta1 < 1 && f.beta2 < 1,
         strf("--beta1 %g --beta2 %g", f.beta1, f.beta2), "0 up to, not including, 1");
}
static std::vector<double> eps_list(const Flags& f) {
    std::vector<double> eps = flag_list("--eps", f.eps);
    want(!eps.empty(), "--eps", "a threshold, such as 0.3");
    return eps;
}
// the default 64 shrinks to a short model's T
static int probe_length(const Flags& f, const std::string& text, long longest) {
    long len = 0;
    want(parse_long(text, &len) && len >= 1 && len < 1 << 30, "--probe-len " + text, "a number, 1 or more");
    if (len > longest && !f.given_probe_len) { len = longest; }
    want(len <= longest || !Pe::learnable, strf("--probe-len %ld", len),
         strf("at most %ld, the learned positions", longest));
    return len;
}

// a run: what train() carries from step to step
struct Run {
    Flags f; Config c; Data data; Model m; Log log;
    std::vector<double> eps;
    int accum, probe_len, probes;                // batches a step; T and number of the probe sequences
    std::vector<int> seqs, probe;                // one batch (B, T+1); the probe (probes, probe_len+1)
    long first, saved; bool resumed;             // the step it starts from; that of the newest checkpoint, or -1
    double tokens_per_step, started, smooth_ms; bool terminal;
};
// flags -> data, model and log; fresh, or as they were at the newest checkpoint in --out
static Run run_open(Flags f) {
    Run r = Run();
    preset_apply(&f);
    want(f.data != "bb" || f.tokenizer.empty(), "--tokenizer " + f.tokenizer, "text to read with it: --data FILE");
    r.probe_len = probe_length(f, f.probe_len, f.seq);
    r.data = data_from_flags(f, f.seq, r.probe_len);
    r.c = config_from_flags(&f, r.data.V);
    train_checks(f);
    r.eps = eps_list(f);
    if (f.out.empty()) { want(!f.resume, "--resume", "also --out, the run to go on with"); f.out = next_run_dir(); }
    const std::string log_path = f.out + "/log.jsonl", from = f.resume ? checkpoint_latest(f.out, &r.first) : "";
    if (!f.resume && file_exists(log_path)) {
        die(EXIT_USER, f.out + ": holds a run already", "add --resume to go on with it, or choose another --out");
    }
    r.m = model_new(r.c, std::max<int>(f.seq, r.probe_len), true);
    batch_settle(&r.m, &f, from.empty() ? 0 : (long)json_number(json_file(from + "/state.json"), "batch", 0));
    r.accum = f.total_batch ? f.total_batch / (f.batch * f.seq) : 1;
    r.tokens_per_step = (double)r.accum * f.batch * f.seq;
    make_dirs(f.out);
    r.resumed = !from.empty();
    r.saved = r.resumed ? r.first : -1;
    if (!r.resumed) { model_init(&r.m, f.seed); r.first = 0; }
    else {
        std::string unused;
        const Config was = checkpoint_config(from, &unused);
        const Json theirs = json_of(config_json(was, r.data.tokenizer, ""));
        const Json ours = json_of(config_json(r.c, r.data.tokenizer, ""));
        const std::string difference = json_difference(theirs, ours);
        if (!difference.empty()) {
            die(EXIT_USER, from + ": holds another model: " + difference, "give the same model flags as before");
        }
        checkpoint_load(&r.m, from);
        optimizer_load(&r.m, from);
        const Json state = json_file(from + "/state.json"), *position = state.get("data");
        want(position, from + "/state.json: data", "the position in the data");
        data_restore(&r.data, *position);
        log_rewind(log_path, r.first);
    }
    r.log.f = xfopen(log_path, r.resumed ? "a" : "w");
    r.seqs.resize((size_t)f.batch * (f.seq + 1));
    r.probe.resize((size_t)f.probe_seqs * (r.probe_len + 1));
    r.probes = data_probe(&r.data, r.probe.data());
    r.started = now_ms();
    r.terminal = isatty(1);
    r.f = f;
    return r;
}
static void run_describe(const Run& r) {
    const Flags& f = r.f; const Config& c = r.c;
    printf("switch");
    for (auto& s : SWITCH_VALUES) { printf(" %s=%s", s[0], s[1]); }
    printf(" PRECISION=%s BACKEND=%s, commit %s\n", PRECISION_NAME, ops::name, GIT_COMMIT);
    printf("model  L %d C %d NH %d KV %d HS %d F %d V %d T %d: ", c.L, c.C, c.NH, c.KV, c.HS, c.F, c.V, c.T);
    printf("%s parameters\n", count_text(r.m.num_params).c_str());
    printf("data   %s\n", r.data.description.c_str());
    const std::string step = count_text(r.tokens_per_step), all = count_text(r.tokens_per_step * f.steps);
    printf("batch  %ld x %ld x %d = %s tokens a step, ", f.batch, f.seq, r.accum, step.c_str());
    printf("%ld steps = %s tokens\n", f.steps, all.c_str());
    printf("update %s, lr %g %s after %ld warm-up steps, ", f.optimizer.c_str(), f.lr, f.schedule.c_str(), f.warmup);
    printf("weight decay %g, clip %g, seed %ld\n", f.weight_decay, f.grad_clip, f.seed);
    printf("%s\n", memory_text(&r.m, f.batch, f.seq).c_str());
    printf("device %s\n", ops::device_start().c_str());
    printf("out    %s%s\n", f.out.c_str(), r.resumed ? strf(", resumed from step %ld", r.first).c_str() : "");
}
static void log_config(Run* r) {
    const std::string build = strf("\"params\":%ld,\"backend\":\"%s\",\"precision\":\"%s\",\"commit\":\"%s\"",
                                   r->m.num_params, ops::name, PRECISION_NAME, GIT_COMMIT);
    log_line(&r->log, "{\"event\":\"config\",\"switches\":" + switches_json(false)
        + ",\"flags\":" + flags_json(r->f, 't') + "," + build + ",\"data\":" + json_str(r->data.description) + "}");
}
static void run_evaluate(Run* r, long step) { // validation loss, metrics, a sample
    const Flags& f = r->f;
    const double val = validate(&r->m, &r->data, f.batch, f.seq);
    const Metrics metrics = measure(&r->m, r->probe.data(), r->probes, r->probe_len, f.batch * f.seq);
    log_line(&r->log, "{" + eval_json(step, val, metrics, r->eps) + "}");
    progress_open() = false;
    printf("%seval %6ld | %s\n", r->terminal ? "\r\033[K" : "", step, eval_text(val, metrics, r->eps[0]).c_str());
    if (!f.sample || r->data.tokenizer.kind == TOKENIZER_IDS) { return; }
    Rng rng = rng_stream(f.seed, mix64(3, step));
    std::vector<int> tokens(1, r->data.tokenizer.eos);
    generate(&r->m, &tokens, f.sample, 1.0, 0, &rng);
    std::string text = tokenizer_decode(r->data.tokenizer, tokens.data() + 1, tokens.size() - 1, true);
    utf8_repair(&text);
    log_line(&r->log, strf("{\"event\":\"sample\",\"step\":%ld,\"text\":", step) + json_str(text) + "}");
    printf("sample %s\n", json_str(text).c_str());
}
static void run_report_step(Run* r, long step, double loss, double grad_norm, double ms) { // step counts from 1
    const double lr = learning_rate(r->f, step - 1);
    r->smooth_ms = r->smooth_ms ? 0.95 * r->smooth_ms + 0.05 * ms : ms;
    log_line(&r->log, strf("{\"event\":\"train\",\"step\":%ld,\"loss\":", step) + json_num(loss)
        + ",\"grad_norm\":" + json_num(grad_norm) + ",\"lr\":" + json_num(lr)
        + strf(",\"tokens\":%.0f,\"ms\":%.3f}", r->tokens_per_step * step, ms));
    const std::string speed = count_text(r->tokens_per_step / ms * 1e3);
    progress_open() = r->terminal;
    printf("%sstep %6ld/%ld | loss %.4f | norm %.3f | lr %.2e | %.1f ms | %s tok/s", r->terminal ? "\r\033[K" : "",
           step, r->f.steps, loss, grad_norm, lr, ms, speed.c_str());
    const std::string left = duration(r->smooth_ms / 1e3 * (r->f.steps - step));
    if (r->terminal) { printf(" | %.0f%%, %s left", 100.0 * step / r->f.steps, left.c_str()); }
    else { printf("\n"); }
    fflush(stdout);
}
static void on_signals() {
    struct sigaction act = {};
    act.sa_handler = on_signal;
    act.sa_flags = SA_RESTART;
    sigaction(SIGINT, &act, NULL);
    sigaction(SIGTERM, &act, NULL);
    struct sigaction hangup;                             // the terminal was closed; nohup wants that ignored
    sigaction(SIGHUP, NULL, &hangup);
    if (hangup.sa_handler != SIG_IGN) { sigaction(SIGHUP, &act, NULL); }
}
static int train(const Flags& flags) {
    Run r = run_open(flags);
    const Flags& f = r.f;
    run_describe(r);
    if (!r.resumed) { log_config(&r); }
    on_signals();
    long step = r.first;
    for (;; step++) { // at the top, `step` updates have been made
        const bool loaded = r.resumed && step == r.first, last = step >= f.steps;
        const bool stop = stop_signal || (f.stop_after > 0 && now_ms() - r.started > f.stop_after * 60e3);
        if (!loaded && (last || step == 0 || (f.eval_every && step % f.eval_every == 0))) { run_evaluate(&r, step); }
        if (!loaded && (last || stop || (f.save_every && step % f.save_every == 0))) {
            checkpoint_save(&r.m, f.out, step, f.batch, data_state(&r.data), r.data.tokenizer, f.tokenizer);
            r.saved = step;
        }
        if (last || stop) { break; }
        const double begin = now_ms();
        const StepSums sums = train_step(&r.m, &r.data, f, step, r.accum, &r.seqs);
        const double loss = sums.loss, grad_norm = sqrt(sums.squares);
        run_report_step(&r, step + 1, loss, grad_norm, now_ms() - begin);
        if (std::isnan(sums.grad_scale)) {
            const std::string whole = r.saved < 0 ? "" : strf("; %s/step_%ld is whole", f.out.c_str(), r.saved);
            const std::string what = strf("loss is %g, gradient norm %g at step %ld", loss, grad_norm, step + 1);
            die(EXIT_DIVERGED, what + ": not finite, stopped before the update",
                strf("try a smaller --lr than %g", f.lr) + whole);
        }
    }
    const std::string hash = params_hash(&r.m);
    const char* how = step >= f.steps ? "done" : "stopped";
    log_line(&r.log, strf("{\"event\":\"%s\",\"step\":%ld,\"params_hash\":\"%s\"}", how, step, hash.c_str()));
    fclose(r.log.f);
    progress_end();
    printf("%s at step %ld, saved %s/step_%ld, params_hash %s\n", how, step, f.out.c_str(), step, hash.c_str());
    model_free(&r.m);
    return 0;
}

// ============================================================================
// 7 the other commands
#include "probe.h"
#include "text/tokenize.h"
#include "bench.h"

// ============================================================================
// 11 main
#ifndef TESTING
int main(int argc, char** argv) {
    // OpenMP threads wait by spinning unless told not to, which on a machine with other work costs ten times more than
    // sleeping does on a quiet one. The library reads its environment before main: the program starts itself once more
    if (!getenv("OMP_WAIT_POLICY")) { setenv("OMP_WAIT_POLICY", "passive", 1); execv("/proc/self/exe", argv); }
#ifdef __SSE__ // numbers below 1e-38 count as 0 (FTZ, DAZ): a model that decays to nothing took five times as long with them
    __builtin_ia32_ldmxcsr(__builtin_ia32_stmxcsr() | 0x8040);
#endif
    char command;
    signal(SIGXFSZ, SIG_IGN);                            // a file at its limit (ulimit -f) is an error of the write
    std::set_new_handler([] {
        die(EXIT_MACHINE, "memory: the system gave no more", "lower --batch, --seq or the model size");
    });
    if (argc == 1) { welcome(); return 0; }
    const Flags f = flags_parse(argc, argv, &command);
    if (!f.words.empty() && !strchr("pgk", command)) {
        die(EXIT_USER, "got '" + f.words[0]
            + "', wanted a command (train, probe, generate, tokenize, bench) or a --flag", command_meant(f.words[0]));
    }
    if (command != 'k') { ops::device_start(); }         // no GPU, an old one, an old driver: said before anything else is done
    switch (command) {
        case 'p': return probe(f);
        case 'g': return generate_text(f);
        case 'k': return tokenize(f);
        case 'b': return bench(f);
        default:  return train(f);
    }
}
#endif // TESTING
#endif // MODEL_ONLY
