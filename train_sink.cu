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
#include "reference.h"
#include "metrics.cuh"
#ifndef BACKEND
#define BACKEND cpu
#endif
#ifndef PRECISION
#define PRECISION fp32
#endif
#if defined(__CUDACC__) || defined(EMU)
#include "cuda_ops.cuh"
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
    return { m->B, m->T, c.NH, c.KV, c.HS, c.window, prefix, c.bias_shared, c.k_dims, c.attn_p, c.attn_alpha };
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
    ops::rmsnorm_forward(act_n(m, i), rstd, act_x(m, i), norm_weight(m->w, i, m->c.L), m->c.eps, N, m->c.C);
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
    ops::matmul_forward(qkv, act_n(m, i), w.qw, NULL, N, c.C, attn_row(s));
    if (Pe::rotary) { ops::rope(qkv, m->turns, +1, s); }
    if (Attn::phi == PHI_ELU1) { ops::phi_elu1_forward(qkv, s); }
    if (Attn::phi == PHI_MLP) { // phi(x) = W2 relu(W1 x) on every head of q and k
        real *in = of_layer(m->a.phi_in, m, l, QK), *hid = of_layer(m->a.phi_hid, m, l, QK);
        real* act = of_layer(m->a.phi_act, m, l, QK);
        const int rows = N * (c.NH + c.KV);
        ops::qk_gather(in, qkv, s);
        ops::matmul_forward(hid, in, w.phi1w, NULL, rows, c.HS, c.HS);
        ops::ffn_forward<Ffn_relu>(act, hid, rows, c.HS);
        ops::matmul_forward(m->a.dphi, act, w.phi2w, NULL, rows, c.HS, c.HS);
        ops::qk_scatter(qkv, m->a.dphi, s);
    }
    ops::attention_forward<Attn, Bias, Pe>(att, stat, qkv, star_k(m, l), star_v(m, l), s);
    if (Combine::sum || Bias::add_v) {
        heads = of_layer(m->a.heads, m, l, OC);
        ops::heads_forward(heads, att, Bias::add_v ? w.vstar : NULL, Combine::sum, s);
    }
    ops::matmul_forward(act_x(m, i + 1), heads, w.ow, Norm::post ? act_n(m, i) : act_x(m, i), N, OC, c.C);
}
// x_{i+1} = base_i + W_down act(W_gate|up n_i),  i = 2l + 1
static void ffn_block_forward(Model* m, int l) {
    const Config& c = m->c; const auto& w = m->w.layer[l];
    const int N = m->B * m->T, i = 2 * l + 1, FH = c.F * (Ffn::gated ? 2 : 1);
    real *fch = of_layer(m->a.fch, m, l, FH), *fca = of_layer(m->a.fca, m, l, c.F);
    ops::matmul_forward(fch, act_n(m, i), Ffn::gated ? w.gatew : w.upw, NULL, N, c.C, FH);
    ops::ffn_forward<Ffn>(fca, fch, N, c.F);
    ops::matmul_forward(act_x(m, i + 1), fca, w.downw, Norm::post ? act_n(m, i) : act_x(m, i), N, c.F, c.C);
}
// tokens -> n_2L
static void model_body(Model* m) {
    const Config& c = m->c;
    ops::embed_forward(act_x(m, 0), m->tokens, m->w.wte, Pe::learnable ? m->w.wpe : m->positions, m->w.sink,
                       m->B, m->T, c.C);
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
        ops::matmul_forward(m->a.logits, n, m->w.lmw, NULL, rows, c.C, c.V);
        ops::classifier(m->a.losses + r, m->a.logits, m->targets + r, dloss, rows, c.V);
        if (dloss == 0) { continue; }
        ops::matmul_backward_input(m->a.dn + (size_t)r * c.C, m->a.logits, m->w.lmw, rows, c.C, c.V);
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
    ops::matmul_backward_input(dheads, m->a.dx, w.ow, N, OC, c.C);
    if (combine) { ops::heads_backward(m->a.datt, Bias::add_v ? g.vstar : NULL, dheads, Combine::sum, s); }
    attention_backward(m, l);
    if (Attn::phi == PHI_MLP) {
        real *in = of_layer(m->a.phi_in, m, l, QK), *hid = of_layer(m->a.phi_hid, m, l, QK);
        real* act = of_layer(m->a.phi_act, m, l, QK);
        real *d1 = m->a.dphi, *d2 = m->a.dphi + (size_t)N * QK;
        const int rows = N * (c.NH + c.KV);
        ops::qk_gather(d1, dqkv, s);
        ops::matmul_backward_weight(g.phi2w, d1, act, rows, c.HS, c.HS);
        ops::matmul_backward_input(d2, d1, w.phi2w, rows, c.HS, c.HS);
        ops::ffn_backward<Ffn_relu>(d1, d2, hid, rows, c.HS);
        ops::matmul_backward_weight(g.phi1w, d1, in, rows, c.HS, c.HS);
        ops::matmul_backward_input(d2, d1, w.phi1w, rows, c.HS, c.HS);
        ops::qk_scatter(dqkv, d2, s);
    }
    if (Attn::phi == PHI_ELU1) { ops::phi_elu1_backward(dqkv, qkv, s); }
    if (Pe::rotary && !turn_with_attention) { ops::rope(dqkv, m->turns, -1, s); }
    ops::matmul_backward_weight(g.qw, dqkv, act_n(m, i), N, c.C, attn_row(s));
    ops::matmul_backward_input(m->a.dn, dqkv, w.qw, N, c.C, attn_row(s));
}
// dn_i from a.dx = dx_{i+1}:  in the forward pass this was  x_{i+1} = base_i + W_down act(W_gate|up n_i)
static void ffn_block_backward(Model* m, int l) {
    const Config& c = m->c; const auto& w = m->w.layer[l]; const auto& g = m->g.layer[l];
    const int N = m->B * m->T, i = 2 * l + 1, FH = c.F * (Ffn::gated ? 2 : 1);
    real *fch = of_layer(m->a.fch, m, l, FH), *fca = of_layer(m->a.fca, m, l, c.F);
    ops::matmul_backward_weight(g.downw, m->a.dx, fca, N, c.F, c.C);
    ops::matmul_backward_input(m->a.dfca, m->a.dx, w.downw, N, c.F, c.C);
    ops::ffn_backward<Ffn>(m->a.dfch, m->a.dfca, fch, N, c.F);
    ops::matmul_backward_weight(Ffn::gated ? g.gatew : g.upw, m->a.dfch, act_n(m, i), N, c.C, FH);
    ops::matmul_backward_input(m->a.dn, m->a.dfch, Ffn::gated ? w.gatew : w.upw, N, c.C, FH);
}
// a.dn = dn_i (without the base term) and a.dx = dx_{i+1}  ->  a.dx = dx_i
//      pre:   dx_i = dx_{i+1} + LN'(dn_i)             since base_i = x_i
//      post:  dx_i = LN'(dx_{i+1} + dn_i)             since base_i = n_i
static void norm_backward(Model* m, int i, bool top) {
    const int N = m->B * m->T, C = m->c.C;
    if (Norm::post && !top) { ops::add(m->a.dn, m->a.dx, (long)N * C); }
    if (Norm::post && i == 0) { std::swap(m->a.dx, m->a.dn); return; }
    ops::rmsnorm_backward(m->a.dx, norm_weight(m->g, i, m->c.L), m->a.dn, act_x(m, i), norm_weight(m->w, i, m->c.L),
                          m->a.rstd + (size_t)i * N, !Norm::post && !top, N, C);
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
    ops::embed_backward(m->g.wte, m->g.wpe, m->g.sink, m->a.dx, m->tokens, m->B, m->T, m->c.C);
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
// presets:      name      L   C     NH  F     V      T     B
#define PRESETS(X) \
               X("bb",     1,  32,   1,  80,   0,     64,   64) \
               X("nano",   4,  128,  4,  256,  0,     128,  32) \
               X("small",  4,  256,  4,  768,  0,     256,  16) \
               X("60M",    10, 768,  8,  1536, 50432, 2048, 8) \
               X("1B",     22, 2048, 16, 5632, 50432, 2048, 4)
#define PRESET_NAME(name, ...) " " name
struct Preset { const char* name; long L, C, NH, F, V, T, B; };
#define X(...) { __VA_ARGS__ },
static const Preset PRESET_ROWS[] = { PRESETS(X) };
#undef X

// Every flag is one row: commands that take it (t train, p probe, g generate, k tokenize, b bench), type, name, short
// letter, default, help. The struct, the parser, --help and the config line of the log are made from the rows.
typedef std::string str;
#define FLAGS(X) \
    X("tpb",  str,    data,            'd', "bb",   "bb, .txt, .jsonl, a DIR of shards or NAME in data/; A:3,B:1 mix") \
    X("tpgk", str,    tokenizer,       0,   "",     "tokenizer.json for text; without it text is bytes (257 ids)") \
    X("tpk",  str,    bos,             0,   "none", "put a BOS: none, seq (first token of every sequence) or doc") \
    X("tk",   long,   train_tokens,    0,   0,      "use only the first N training tokens, again and again (0: all)") \
    X("tp",   str,    random_token,    0,   "",     "positions, from 1, that get a random token: 1,2 (section 5)") \
    X("tp",   str,    fix_token,       0,   "",     "POS:ID, this token at this position, from 1 (Table 10)") \
    X("tpk",  bool,   skip_bad,        0,   false,  "count and skip broken .jsonl records instead of stopping") \
    X("tpb",  long,   bb_vocab,        0,   256,    "bb: ordinary tokens; one more id is <s>") \
    X("tpb",  long,   bb_triggers,     0,   1,      "bb: how many of them are triggers") \
    X("tpb",  double, bb_trigger_prob, 0,   0.15,   "bb: probability of each trigger") \
    X("tpb",  double, bb_temp,         0,   2.0,    "bb: standard deviation of the bigram logits") \
    X("tpb",  long,   bb_table,        0,   1,      "bb: seed of the bigram table") \
    X("tpb",  long,   bb_bos,          0,   1,      "bb: 1 puts <s> first, 0 does not") \
    X("tb",   str,    model,           'm', "bb",   "preset:" PRESETS(PRESET_NAME)) \
    X("tb",   long,   layers,          0,   0,      "L (0: the preset's)") \
    X("tb",   long,   heads,           0,   0,      "NH") \
    X("tb",   long,   kv_heads,        0,   0,      "KV, key/value heads (0: as many as heads)") \
    X("tb",   long,   width,           0,   0,      "C, channels") \
    X("tb",   long,   ffn_width,       0,   0,      "F") \
    X("tb",   long,   vocab,           0,   0,      "V (0: the preset's, else the data's)") \
    X("tb",   long,   seq,             't', 0,      "T, tokens per sequence (0: the preset's)") \
    X("tb",   double, attn_p,          0,   1.0,    "p of softmax_p and sigmoid_p (Eq. 43)") \
    X("tb",   double, attn_alpha,      0,   1.0,    "rows of a normalised attention sum to this (Table 14)") \
    X("tb",   str,    bias_share,      0,   "none", "learned biases: none (one per head) or heads (one for all)") \
    X("tb",   long,   k_dims,          0,   0,      "learnable entries of k* (0: all; Table 13)") \
    X("tb",   str,    v_star,          0,   "",     "BIAS=k: fixed v* of norm M, e1:M or ones:M (Table 5)") \
    X("tpb",  long,   prefix,          0,   0,      "keys 1..P are visible to all, the loss starts after them") \
    X("tpb",  long,   window,          0,   0,      "query t sees keys t-W+1..t (0: all; section 6)") \
    X("tb",   long,   batch,           'b', 0,      "sequences in memory at once, B (0: the preset's)") \
    X("tb",   long,   total_batch,     0,   0,      "tokens per step, a multiple of batch * seq (0: batch * seq)") \
    X("tb",   long,   steps,           'n', 1000,   "optimiser steps") \
    X("t",    str,    optimizer,       0,   "adamw", "adamw or sgd (momentum beta1)") \
    X("t",    double, lr,              0,   4e-4,   "peak learning rate") \
    X("t",    long,   warmup,          0,   100,    "steps of linear warm-up") \
    X("t",    str,    schedule,        0,   "constant", "after warm-up: constant (as released) or cosine (the paper)") \
    X("t",    double, min_lr,          0,   0.0,    "where cosine ends") \
    X("t",    double, beta1,           0,   0.9,    "AdamW, SGD") \
    X("t",    double, beta2,           0,   0.95,   "AdamW") \
    X("t",    double, adam_eps,        0,   1e-8,   "AdamW") \
    X("t",    double, weight_decay,    0,   0.1,    "on all parameters") \
    X("t",    double, grad_clip,       0,   1.0,    "global norm (0: off)") \
    X("t",    long,   eval_every,      0,   100,    "steps between evaluations (0: only the first and the last)") \
    X("t",    long,   save_every,      0,   0,      "steps between checkpoints (0: only the last)") \
    X("t",    long,   sample,          0,   64,     "tokens of the sample that every evaluation writes (0: none)") \
    X("tp",   long,   val_seqs,        0,   100,    "validation sequences") \
    X("tp",   str,    probe_len,       0,   "64",   "T of the sink metrics; probe takes a list") \
    X("tp",   long,   probe_seqs,      0,   100,    "sequences of the sink metrics") \
    X("tp",   str,    eps,             0,   "0.3",  "threshold of Sink_k, or a list") \
    X("tpgb", long,   seed,            0,   1,      "of the initial weights, the order of the data and the samples") \
    X("tk",   str,    out,             'o', "",     "of the run (empty: the next runs/NNNN-<switches>) or shards") \
    X("t",    bool,   resume,          0,   false,  "go on from the newest checkpoint in --out, if there is one") \
    X("t",    double, stop_after,      0,   0.0,    "minutes after which to save and stop (0: never)") \
    X("p",    str,    probe_input,     0,   "natural", "natural (from -d), random, or repeated (one token each)") \
    X("pb",   str,    json,            0,   "",     "write the eval object, or what bench measured, here") \
    X("p",    bool,   per_sequence,    0,   false,  "also write alpha[seq][L][H][k]") \
    X("p",    str,    dump,            0,   "",     "write attention maps and QK geometry here as .npy") \
    X("p",    str,    dump_heads,      0,   "0:0",  "LAYER:HEAD,... for --dump, or all") \
    X("p",    long,   dump_seq,        0,   0,      "which probe sequence --dump shows") \
    X("b",    bool,   ops,             0,   false,  "also the time of every operation against its roof, and memory") \
    X("g",    str,    prompt,          0,   "",     "text to go on from") \
    X("g",    long,   tokens,          0,   200,    "tokens to write") \
    X("g",    double, temperature,     0,   1.0,    "0: always the likeliest token") \
    X("g",    long,   top_k,           0,   0,      "draw among the k likeliest (0: all)") \
    X("k",    str,    val,             0,   "",     "files whose documents go into val shards, separated by commas") \
    X("k",    double, val_fraction,    0,   0.0,    "this share of the documents goes into val shards") \
    X("k",    str,    domains,         0,   "",     "by meta.pile_set_name: all, paper (its 17), a,b or a:SHARE,..") \
    X("k",    long,   shard_tokens,    0,   100000000, "tokens in a shard") \
    X("k",    long,   threads,         0,   0,      "threads (0: all cores); the shards do not depend on it")

struct Flags {
    #define X(cmds, type, name, letter, def, help) type name = def; bool given_##name = false;
    FLAGS(X)
    #undef X
    std::vector<std::string> words;              // what stands on the command line without --
};
static const struct { const char *name; char letter; const char *words, *help; } COMMANDS[] = {
    { "train",    't', "",           "train a model (the default command)" },
    { "probe",    'p', "CHECKPOINT", "measure the sink in a checkpoint, ours or a Hugging Face LLaMA directory" },
    { "generate", 'g', "CHECKPOINT", "write text with a checkpoint" },
    { "tokenize", 'k', "FILE...",    "text (.txt .jsonl .jsonl.zst .jsonl.gz, - standard input) to shards in --out" },
    { "bench",    'b', "",           "time training steps on random tokens" },
};
enum FlagKind { FLAG_LONG, FLAG_DOUBLE, FLAG_STR, FLAG_BOOL };
struct FlagRow { const char *cmds, *name; char letter; const char* help; FlagKind kind; void* value; bool* given; };
static FlagKind flag_kind(const long&) { return FLAG_LONG; }
static FlagKind flag_kind(const double&) { return FLAG_DOUBLE; }
static FlagKind flag_kind(const str&) { return FLAG_STR; }
static FlagKind flag_kind(const bool&) { return FLAG_BOOL; }
static std::vector<FlagRow> flag_rows(Flags* f) {
    return {
        #define X(cmds, type, name, letter, def, help) \
            { cmds, #name, letter, help, flag_kind(f->name), &f->name, &f->given_##name },
        FLAGS(X)
        #undef X
    };
}
static std::string flag_spelling(const char* name) { // probe_len -> --probe-len
    std::string s = std::string("--") + name;
    for (auto& ch : s) { if (ch == '_') { ch = '-'; } }
    return s;
}
static void flag_set(const FlagRow& r, const std::string& spelled, const std::string& text) {
    if (r.kind == FLAG_STR) { *(str*)r.value = text; }
    if (r.kind == FLAG_BOOL) { *(bool*)r.value = true; }
    if (r.kind == FLAG_LONG && !parse_long(text, (long*)r.value)) {
        die(EXIT_USER, spelled + ": got '" + text + "', wanted a whole number");
    }
    if (r.kind == FLAG_DOUBLE && !parse_double(text, (double*)r.value)) {
        die(EXIT_USER, spelled + ": got '" + text + "', wanted a number");
    }
}
static std::string flag_text(const FlagRow& r, bool json) {
    if (r.kind == FLAG_BOOL) { return json ? (*(bool*)r.value ? "true" : "false") : ""; }
    if (r.kind == FLAG_LONG) { return strf("%ld", *(long*)r.value); }
    if (r.kind == FLAG_DOUBLE) { return json ? json_num(*(double*)r.value) : strf("%g", *(double*)r.value); }
    return json ? json_str(*(str*)r.value) : *(str*)r.value;
}
static void usage(char command) {
    printf("usage:\n");
    for (auto& c : COMMANDS) { printf("  train_sink %-9s %-10s [flags]   %s\n", c.name, c.words, c.help); }
    printf("\nthis build:");
    for (auto& s : SWITCH_VALUES) { printf(" %s=%s", s[0], s[1]); }
    printf(" PRECISION=%s BACKEND=%s   (make help)\n\n", PRECISION_NAME, ops::name);
    printf("flags%s:\n", command ? " of this command" : "");
    Flags defaults;
    for (auto& r : flag_rows(&defaults)) {
        if (command && !strchr(r.cmds, command)) { continue; }
        const std::string left = (r.letter ? strf("-%c, ", r.letter) : "    ") + flag_spelling(r.name);
        const std::string def = flag_text(r, false);
        printf("  %-22s %s%s\n", left.c_str(), r.help, def.empty() ? "" : (" [" + def + "]").c_str());
    }
    printf("  -h, --help             this text\n");
}
static Flags flags_parse(int argc, char** argv, char* command) {
    Flags f;
    const std::vector<FlagRow> rows = flag_rows(&f);
    int i = 1;
    *command = 't';
    for (auto& c : COMMANDS) { if (argc > 1 && !strcmp(argv[1], c.name)) { *command = c.letter; i = 2; } }
    for (; i < argc; i++) {
        const std::string arg = argv[i];
        if (arg == "-h" || arg == "--help") { usage(i == 1 ? 0 : *command); exit(0); }
        if (arg[0] != '-' || arg == "-") { f.words.push_back(arg); continue; }
        const bool has_value = arg[1] == '-' && arg.find('=') != std::string::npos; // --steps=10, or --steps 10
        const std::string name = has_value ? arg.substr(0, arg.find('=')) : arg;
        const FlagRow* row = NULL;
        for (auto& r : rows) {
            if (name == flag_spelling(r.name) || (r.letter && name == std::string("-") + r.letter)) { row = &r; }
        }
        if (!row) { die(EXIT_USER, "unknown flag " + name); }
        if (!strchr(row->cmds, *command)) { die(EXIT_USER, name + ": not a flag of this command"); }
        const bool wants_value = row->kind != FLAG_BOOL;
        if (!wants_value && has_value) { die(EXIT_USER, name + ": takes no value"); }
        if (wants_value && !has_value && i + 1 >= argc) { die(EXIT_USER, name + ": got no value, wanted one"); }
        flag_set(*row, name, !wants_value ? "" : has_value ? arg.substr(name.size() + 1) : argv[++i]);
        *row->given = true;
    }
    return f;
}
static std::string flags_json(Flags f, char command) {
    std::string o = "{";
    for (auto& r : flag_rows(&f)) {
        if (strchr(r.cmds, command)) { o += strf("%s\"%s\":", o.size() > 1 ? "," : "", r.name) + flag_text(r, true); }
    }
    return o + "}";
}
// "1,2,5" -> numbers, strictly
static std::vector<double> flag_list(const char* spelled, const std::string& text) {
    std::vector<double> out;
    for (auto& w : split(text, ',')) {
        double v = 0;
        if (!parse_double(w, &v)) {
            die(EXIT_USER, std::string(spelled) + ": got '" + text + "', wanted numbers separated by commas");
        }
        out.push_back(v);
    }
    return out;
}
static void want(bool ok, const std::string& got, const std::string& wanted) { // range check of a flag
    if (!ok) { die(EXIT_USER, got + ": wanted " + wanted); }
}

// fills in what the preset says, where no flag did
static void preset_apply(Flags* f) {
    const Preset* p = NULL;
    for (auto& row : PRESET_ROWS) { if (f->model == row.name) { p = &row; } }
    if (!p) { die(EXIT_USER, "--model: got '" + f->model + "', wanted one of" PRESETS(PRESET_NAME)); }
    auto fill = [](long* flag, long preset) { if (!*flag) { *flag = preset; } };
    fill(&f->layers, p->L); fill(&f->width, p->C); fill(&f->ffn_width, p->F);
    fill(&f->heads, p->NH); fill(&f->kv_heads, f->heads);
    fill(&f->seq, p->T); fill(&f->batch, p->B); fill(&f->vocab, p->V);
    const long most = 1L << 30;
    want(f->seq >= 1 && f->seq < most, strf("--seq %ld", f->seq), "1 or more, less than 2^30");
    want(f->batch >= 1 && f->batch < most / f->seq, strf("--batch %ld --seq %ld", f->batch, f->seq),
         "1 or more, and less than 2^30 tokens in all");
}
// flags -> the model; V is the data's if nothing else says
static Config config_from_flags(Flags* f, int data_V) {
    if (!f->vocab) { f->vocab = data_V; }
    want(f->layers >= 1 && f->layers <= 10000, strf("--layers %ld", f->layers), "1 or more");
    want(f->heads >= 1, strf("--heads %ld", f->heads), "1 or more");
    const std::string width = strf("--width %ld --heads %ld", f->width, f->heads);
    want(f->width >= 1 && f->width % f->heads == 0, width, "a width that the heads divide");
    want(f->kv_heads >= 1 && f->heads % f->kv_heads == 0,
         strf("--kv-heads %ld --heads %ld", f->kv_heads, f->heads), "a number that divides the heads");
    want(f->ffn_width >= 1, strf("--ffn-width %ld", f->ffn_width), "1 or more");
    want(f->vocab >= data_V && f->vocab >= 2, strf("--vocab %ld", f->vocab),
         strf("at least the %d ids of the data", data_V));
    const long HS = f->width / f->heads;
    want(!Pe::rotary || HS % 2 == 0, width + " with PE=rotary", "an even head size");
    want(!Pe::absolute || f->width % 2 == 0, strf("--width %ld with PE=absolute", f->width), "an even width");
    want(f->attn_p > 0, strf("--attn-p %g", f->attn_p), "a positive number");
    want(f->attn_p == 1 || Attn::Z == Z_PNORM, strf("--attn-p %g with ATTN=%s", f->attn_p, STR(ATTN)),
         "ATTN=softmax_p or sigmoid_p, or 1");
    want(f->attn_alpha > 0, strf("--attn-alpha %g", f->attn_alpha), "a positive number");
    want(f->attn_alpha == 1 || Attn::Z != Z_ONE, strf("--attn-alpha %g with ATTN=%s", f->attn_alpha, STR(ATTN)),
         "a normalised attention, or 1");
    want(f->bias_share == "none" || f->bias_share == "heads", "--bias-share " + f->bias_share, "none or heads");
    want(f->k_dims >= 0 && f->k_dims <= HS, strf("--k-dims %ld", f->k_dims),
         strf("0 (all) to the head size %ld", HS));
    want(f->k_dims == 0 || Bias::learn_k, strf("--k-dims %ld with BIAS=%s", f->k_dims, STR(BIAS)), "BIAS=k or kv");
    const std::string& v_star = f->v_star;
    const bool e1 = v_star.compare(0, 3, "e1:") == 0, ones = v_star.compare(0, 5, "ones:") == 0;
    double M = 0;
    want(v_star.empty() || ((e1 || ones) && parse_double(v_star.substr(e1 ? 3 : 5), &M) && M >= 0),
         "--v-star " + v_star, "e1:M or ones:M, M the norm");
    want(v_star.empty() || (Bias::column && !Bias::learn_v), "--v-star " + v_star + " with BIAS=" STR(BIAS), "BIAS=k");
    want(f->prefix >= 0 && f->prefix < f->seq, strf("--prefix %ld", f->prefix),
         strf("0 (off) to seq - 1 = %ld", f->seq - 1));
    want(f->window >= 1 || !f->given_window, strf("--window %ld", f->window), "1 or more, or leave it out");
    Config c = Config();
    c.L = f->layers; c.C = f->width; c.NH = f->heads; c.KV = f->kv_heads; c.HS = HS;
    c.F = f->ffn_width; c.V = f->vocab; c.T = f->seq;
    c.eps = 1e-5f; c.rope_base = 10000;
    c.attn_p = f->attn_p; c.attn_alpha = f->attn_alpha; c.bias_shared = f->bias_share == "heads";
    c.k_dims = f->k_dims ? f->k_dims : HS; c.window = f->window; c.prefix = f->prefix; c.v_star = f->v_star;
    return c;
}

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
    want(f.bb_vocab >= 2 && f.bb_vocab <= 65535, strf("--bb-vocab %ld", f.bb_vocab), "2 to 65535");
    want(f.bb_triggers >= 0 && f.bb_triggers < f.bb_vocab, strf("--bb-triggers %ld", f.bb_triggers),
         "0 or more, less than --bb-vocab");
    want(f.val_seqs >= 1 && f.val_seqs < 1 << 30, strf("--val-seqs %ld", f.val_seqs), "1 or more");
    want(f.probe_seqs >= 1 && f.probe_seqs < 1 << 30, strf("--probe-seqs %ld", f.probe_seqs), "1 or more");
    want(f.train_tokens >= 0, strf("--train-tokens %ld", f.train_tokens), "0 (all) or more");
    return o;
}
static Data data_from_flags(const Flags& f, int T, int probe_len) { return data_open(data_options(f, T, probe_len)); }

// ============================================================================
// 7 log: OUT/log.jsonl, one object a line, flushed; stdout has the same facts for people
struct Log { FILE* f = NULL; };
static void log_line(Log* log, const std::string& json) {
    if (!log->f) { return; }
    if (fprintf(log->f, "%s\n", json.c_str()) < 0 || fflush(log->f)) {
        die(EXIT_MACHINE, strf("log.jsonl: cannot write (%s); the last checkpoint is whole", strerror(errno)),
            "free some disk space, then run again with --resume");
    }
}
// of an interrupted run: keeps what happened up to the checkpoint, so that the log ends up as if nothing had happened
static void log_rewind(const std::string& path, long step) {
    if (!file_exists(path)) { return; }
    std::string kept;
    for (auto& line : split(file_read(path), '\n')) {
        Json j; std::string error;
        if (!json_parse(line.data(), line.size(), &j, &error)) { continue; }       // the line the machine died in
        const Json *s = j.get("step"), *event = j.get("event");
        if ((s && s->number > step) || (event && (event->string == "done" || event->string == "stopped"))) { continue; }
        kept += line + "\n";
    }
    file_write(path, kept);
}
static std::string json_array(const std::vector<double>& v, size_t from = 0, size_t n = (size_t)-1) {
    std::string o = "[";
    for (size_t i = from; i < v.size() && i - from < n; i++) { o += (i > from ? "," : "") + json_num(v[i]); }
    return o + "]";
}
static std::string json_matrix(const std::vector<double>& v, int cols) {
    std::string o = "[";
    for (size_t i = 0; i < v.size(); i += cols) { o += (i ? "," : "") + json_array(v, i, cols); }
    return o + "]";
}
static std::string lower(std::string s) {
    for (auto& ch : s) { ch = tolower(ch); }
    return s;
}
static std::string switches_json(bool lower_case) {
    std::string o = "{";
    for (auto& s : SWITCH_VALUES) {
        const std::string key = lower_case ? lower(s[0]) : s[0];
        o += strf("%s\"%s\":\"%s\"", o.size() > 1 ? "," : "", key.c_str(), s[1]);
    }
    return o + "}";
}
static std::string make_line(const Json* switches) { // the build that a checkpoint wants
    std::string o = "make train_sink";
    for (auto& f : switches->fields) {
        std::string key = f.first;
        for (auto& ch : key) { ch = toupper(ch); }
        o += " " + key + "=" + f.second.string;
    }
    return o;
}
static std::string duration(double s) {
    const int m = (int)s / 60, h = m / 60;
    return s < 60 ? strf("%.0fs", s) : h < 1 ? strf("%dm%02ds", m, (int)s % 60) : strf("%dh%02dm", h, m % 60);
}
static std::string count_text(double n) { // 28.3k, 136.4M
    return n < 1e4 ? strf("%.0f", n)
         : n < 1e6 ? strf("%.1fk", n / 1e3)
         : n < 1e9 ? strf("%.1fM", n / 1e6)
         :           strf("%.2fB", n / 1e9);
}

// ============================================================================
// 8 checkpoint: OUT/step_N/ = model.safetensors, config.json (Hugging Face's names), optimizer.safetensors, state.json
#include "checkpoint.h"

static bool is_llama(const Config& c) { // may transformers.LlamaForCausalLM open it?
    return std::is_same<Attn, Attn_softmax>::value && std::is_same<Bias, Bias_none>::value && Pe::rotary && !Norm::post
        && std::is_same<Ffn, Ffn_swiglu>::value && !Combine::sum && c.attn_alpha == 1 && !c.window && !c.prefix;
}
static std::string config_json(const Config& c, const Tokenizer& tok, const std::string& tokenizer_path) {
    const bool llama = is_llama(c);
    std::string switches = switches_json(true);
    switches.pop_back();
    const char *architecture = llama ? "LlamaForCausalLM" : "TrainSink", *type = llama ? "llama" : "train_sink";
    std::string o = strf("{\n  \"architectures\": [\"%s\"],\n  \"model_type\": \"%s\",\n", architecture, type);
    o += strf("  \"vocab_size\": %d,\n  \"hidden_size\": %d,\n  \"intermediate_size\": %d,\n", c.V, c.C, c.F);
    o += strf("  \"num_hidden_layers\": %d,\n  \"num_attention_heads\": %d,\n", c.L, c.NH);
    o += strf("  \"num_key_value_heads\": %d,\n  \"head_dim\": %d,\n", c.KV, c.HS);
    o += strf("  \"max_position_embeddings\": %d,\n  \"rms_norm_eps\": %.9g,\n", c.T, c.eps);
    o += strf("  \"rope_theta\": %.9g,\n  \"hidden_act\": \"silu\",\n", c.rope_base);
    o += "  \"attention_bias\": false,\n  \"mlp_bias\": false,\n  \"tie_word_embeddings\": false,\n";
    if (tok.eos >= 0) { o += strf("  \"bos_token_id\": %d,\n  \"eos_token_id\": %d,\n", tok.bos, tok.eos); }
    o += "  \"torch_dtype\": \"float32\",\n  \"train_sink\": " + switches;
    o += strf(", \"attn_p\": %.9g, \"attn_alpha\": %.9g, ", c.attn_p, c.attn_alpha);
    o += strf("\"bias_share\": \"%s\", \"k_dims\": %d, ", c.bias_shared ? "heads" : "none", c.k_dims);
    o += "\"v_star\": " + json_str(c.v_star) + strf(", \"prefix\": %d, \"window\": %d, ", c.prefix, c.window);
    return o + "\"tokenizer\": " + json_str(tok.kind == TOKENIZER_BYTES ? "bytes" : tokenizer_path) + "}\n}\n";
}
// num_params numbers as floats in host memory: where they are, if they are that already, else in *copy
static const float* host_floats(const Model* m, const acc* array, std::vector<float>* copy) {
    if (ops::on_host && std::is_same<acc, float>::value) { return (const float*)array; }
    std::vector<acc> x(m->num_params);
    ops::to_host(x.data(), array, m->num_params * sizeof(acc));
    copy->assign(x.begin(), x.end());
    return copy->data();
}
// arrays of num_params numbers as named tensors, each name with its array's prefix
static void tensors_save(const Model* m, const std::string& path,
                         const std::vector<std::pair<std::string, const acc*>>& arrays) {
    std::vector<std::vector<float>> copies(arrays.size());
    std::vector<StOut> out;
    for (size_t i = 0; i < arrays.size(); i++) {
        const float* x = host_floats(m, arrays[i].second, &copies[i]);
        for (auto& t : m->tensors) { out.push_back({ arrays[i].first + t.name, t.shape, x + t.at }); }
    }
    safetensors_write(path, out, "{\"format\":\"pt\"}");
}
static void checkpoint_save(const Model* m, const std::string& out, long step, long batch, const std::string& data_state,
                            const Tokenizer& tok, const std::string& tokenizer_path) {
    const std::string dir = checkpoint_begin(out, step);
    tensors_save(m, dir + "/model.safetensors", { { "", m->master } });
    tensors_save(m, dir + "/optimizer.safetensors", { { "m.", m->m }, { "v.", m->v } });
    file_write(dir + "/config.json", config_json(m->c, tok, tokenizer_path));
    file_write(dir + "/state.json",
               strf("{\"step\": %ld, \"batch\": %ld, \"data\": %s}\n", step, batch, data_state.c_str()));
    checkpoint_commit(out, step);
}
// reads one array by name from the .safetensors files of a directory, checking every shape
static void tensors_load(const Model* m, const std::vector<Safetensors>& files, const std::string& prefix, acc* device,
                         bool tied = false) {
    std::vector<float> one;
    for (auto& t : m->tensors) {
        const StTensor* found = NULL; const Safetensors* in = NULL;
        for (const char* name : { t.name.c_str(), "model.embed_tokens.weight" }) { // a tied lm_head is the embedding
            for (auto& f : files) { if (!found && (found = f.find(prefix + name))) { in = &f; } }
            if (found || !tied || t.name != "lm_head.weight") { break; }
        }
        const std::string dir = files.empty() ? "checkpoint" : files[0].path;
        if (!found) {
            die(EXIT_USER, dir + ": has no tensor '" + prefix + t.name + "', which this build wants",
                "is it a checkpoint of another model? see its config.json");
        }
        if (found->shape != t.shape) {
            std::string got, wanted;
            for (long d : found->shape) { got += strf(" %ld", d); }
            for (long d : t.shape) { wanted += strf(" %ld", d); }
            die(EXIT_USER, in->path + ": tensor '" + t.name + "' has shape (" + got + " ), wanted (" + wanted + " )",
                "config.json and the weights disagree");
        }
        one.resize(t.count);
        safetensors_read(*in, *found, one.data());
        const std::vector<acc> x(one.begin(), one.end());
        ops::to_device(device + t.at, x.data(), t.count * sizeof(acc));
    }
}
static double json_number(const Json& j, const char* key, double otherwise) {
    const Json* v = j.get(key);
    return v && v->type == Json::NUMBER ? v->number : otherwise;
}
// does this build compute what the checkpoint's switches say? theirs: the "train_sink" object of config.json
static void checkpoint_check_switches(const std::string& dir, const Json& theirs) {
    Json wanted;
    bool same = true;
    std::string ours;
    for (auto& s : SWITCH_VALUES) {
        const std::string key = lower(s[0]);
        const Json* v = theirs.get(key.c_str());
        if (!v) { die(EXIT_USER, dir + "/config.json: train_sink has no '" + key + "'"); }
        wanted.fields.push_back({ key, *v });
        ours += std::string(" ") + s[0] + "=" + s[1];
        same = same && v->string == s[1];
    }
    if (same) { return; }
    const std::string make = make_line(&wanted);
    die(EXIT_USER, dir + ": this checkpoint is of another build, wanted " + make.substr(strlen("make train_sink "))
        + ", this binary has" + ours, make);
}
// config.json -> Config; dies if the checkpoint wants another build. *tokenizer: what it was trained with
static Config checkpoint_config(const std::string& dir, std::string* tokenizer) {
    if (!is_dir(dir)) {
        die(EXIT_USER, dir + ": no such directory, wanted a checkpoint: "
            "a directory with config.json and model.safetensors", "ls runs/*/");
    }
    if (!file_exists(dir + "/config.json")) {
        die(EXIT_USER, dir + ": has no config.json, so it is not a checkpoint",
            "give a directory such as runs/NAME/step_1000");
    }
    const Json j = json_file(dir + "/config.json");
    const Json* mine = j.get("train_sink");
    if (!mine) { // somebody else's
        const Json *type = j.get("model_type"), *scaling = j.get("rope_scaling"), *act = j.get("hidden_act");
        want(type && type->string == "llama", dir + ": model_type " + (type ? type->string : "missing"),
             "llama, the one family read so far");
        want(!scaling || scaling->type == Json::NUL, dir + ": rope_scaling is set", "plain rotary positions");
        want(!act || act->string == "silu", dir + ": hidden_act " + (act ? act->string : ""), "silu");
    }
    const char* llama = "{\"attn\":\"softmax\",\"bias\":\"none\",\"pe\":\"rotary\",\"norm\":\"pre\","
                        "\"ffn\":\"swiglu\",\"combine\":\"concat\"}";
    checkpoint_check_switches(dir, mine ? *mine : json_of(llama));
    Config c = Config();
    const char* keys[] = { "num_hidden_layers", "hidden_size", "num_attention_heads", "intermediate_size", "vocab_size",
                           "max_position_embeddings" };
    for (const char* key : keys) {
        const double x = json_number(j, key, 0);
        want(x >= 1 && x < (key == keys[0] ? 1e4 : 1e9), dir + "/config.json: " + key, "a positive number");
    }
    c.L = json_number(j, keys[0], 0); c.C = json_number(j, keys[1], 0); c.NH = json_number(j, keys[2], 0);
    c.F = json_number(j, keys[3], 0); c.V = json_number(j, keys[4], 0); c.T = json_number(j, keys[5], 0);
    c.KV = json_number(j, "num_key_value_heads", c.NH);
    want(c.KV >= 1 && c.NH % c.KV == 0 && c.C % c.NH == 0, dir + "/config.json",
         "heads that divide the width, and key/value heads that divide the heads");
    c.HS = c.C / c.NH;
    want(json_number(j, "head_dim", c.HS) == c.HS, dir + "/config.json: head_dim", "hidden_size / num_attention_heads");
    c.eps = json_number(j, "rms_norm_eps", 1e-6); c.rope_base = json_number(j, "rope_theta", 10000);
    const Json none, *own = mine ? mine : &none;
    c.attn_p = json_number(*own, "attn_p", 1); c.attn_alpha = json_number(*own, "attn_alpha", 1);
    const Json *share = own->get("bias_share"), *v_star = own->get("v_star"), *tok = own->get("tokenizer");
    c.bias_shared = share && share->string == "heads";
    c.k_dims = json_number(*own, "k_dims", c.HS);
    c.v_star = v_star ? v_star->string : "";
    c.prefix = json_number(*own, "prefix", 0);
    c.window = json_number(*own, "window", json_number(j, "sliding_window", 0));
    *tokenizer = tok ? tok->string : file_exists(dir + "/tokenizer.json") ? dir + "/tokenizer.json" : "";
    return c;
}
// "" or the first field in which two configs differ
static std::string json_difference(const Json& theirs, const Json& ours) {
    for (auto& f : ours.fields) {
        const Json* v = theirs.get(f.first.c_str());
        if (f.first == "model_type") { continue; }       // follows from the rest
        if (!v || v->string != f.second.string) {
            return f.first + ": got " + (v ? v->string : "nothing") + ", wanted " + f.second.string;
        }
        const std::string inside = json_difference(*v, f.second);
        if (!inside.empty()) { return inside; }
    }
    return "";
}
static std::vector<Safetensors> checkpoint_files(const std::string& dir) {
    std::vector<Safetensors> files;
    for (auto& name : dir_list(dir)) {
        const bool weights = ends_with(name, ".safetensors") && name != "optimizer.safetensors";
        if (weights) { files.push_back(safetensors_open(dir + "/" + name)); }
    }
    if (files.empty()) { die(EXIT_USER, dir + ": has no .safetensors file"); }
    return files;
}
static void checkpoint_load(Model* m, const std::string& dir) {
    std::vector<Safetensors> files = checkpoint_files(dir);
    const Json config = json_file(dir + "/config.json"), *tied = config.get("tie_word_embeddings");
    tensors_load(m, files, "", m->master, tied && tied->number);
    ops::cast_to_real(m->params, m->master, m->num_params);
    for (auto& f : files) { safetensors_close(&f); }
}
static void optimizer_load(Model* m, const std::string& dir) {
    std::vector<Safetensors> file = { safetensors_open(dir + "/optimizer.safetensors") };
    tensors_load(m, file, "m.", m->m);
    tensors_load(m, file, "v.", m->v);
    safetensors_close(&file[0]);
}
static std::string params_hash(const Model* m) {
    std::vector<float> copy;
    const float* x = host_floats(m, m->master, &copy);
    return strf("%016llx", (unsigned long long)hash_bytes(x, m->num_params * sizeof(float)));
}

// ============================================================================
// 9 evaluate
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
static std::string sink_json(const Metrics& r, double eps) {
    std::vector<double> k, raw, proxy;
    for (int i = 1; i <= std::min<int>(METRIC_K, r.T); i++) {
        k.push_back(i);
        raw.push_back(sink_rate(r, i, eps, false));
        proxy.push_back(sink_rate(r, i, eps, true));
    }
    const std::string star = r.has_star ? json_num(sink_rate(r, 0, eps, !r.sums_to_one)) : "null";
    return strf("{\"eps\":%g,\"T\":%d,\"n\":%d,\"k\":", eps, r.T, r.n) + json_array(k)
        + ",\"sink_k\":" + json_array(raw) + ",\"proxy_k\":" + json_array(proxy) + ",\"sink_star\":" + star + "}";
}
// the `eval` object of the log and of probe --json, without its braces
static std::string eval_json(long step, double val_loss, const Metrics& r, const std::vector<double>& eps) {
    typedef const HeadMetrics& Head;
    auto array = [](const std::string& key, const std::vector<double>& v) {
        return ",\"" + key + "\":" + json_array(v);
    };
    auto pair = [&](const std::string& key, const NormPair& p) {
        return array(key + "_first", p.first) + array(key + "_rest", p.rest);
    };
    auto matrix = [&](const std::string& key, auto get) {
        return ",\"" + key + "\":" + json_matrix(head_means(r, get), r.NH);
    };
    std::string o = strf("\"event\":\"eval\",\"step\":%ld,\"val_loss\":", step) + json_num(val_loss);
    o += ",\"probe_loss\":" + json_num(r.loss) + ",\"sink\":" + sink_json(r, eps[0]);
    if (eps.size() > 1) {
        o += ",\"sinks\":[";
        for (size_t i = 0; i < eps.size(); i++) { o += (i ? "," : "") + sink_json(r, eps[i]); }
        o += "]";
    }
    o += matrix("alpha1", [](Head h) { return h.alpha[1]; });
    o += matrix("alpha1_proxy", [](Head h) { return h.proxy[1]; });
    if (r.has_star) {
        o += matrix("alpha_star", [](Head h) { return h.alpha[0]; });
        o += matrix("alpha_star_proxy", [](Head h) { return h.proxy[0]; });
    }
    o += matrix("mass", [](Head h) { return h.mass; }) + matrix("entropy", [](Head h) { return h.entropy; });
    o += pair("h_norm", r.h) + pair("k_norm", r.k) + pair("v_norm", r.v);
    if (Norm::post) { o += pair("pre_norm", r.pre); }
    if (Bias::token) { o += array("h_norm_star", r.h_star); }
    return o + array("h_max", r.h_max) + array("h_median", r.h_median);
}
static double mean(const std::vector<double>& v) { double s = 0; for (double x : v) { s += x / v.size(); } return s; }
static std::string eval_text(double val_loss, const Metrics& r, double eps) { // the same for people, one line
    typedef const HeadMetrics& Head;
    const bool proxy = !r.sums_to_one;
    const std::string star = r.has_star ? strf("%.1f%%", 100 * sink_rate(r, 0, eps, proxy)) : "-";
    const double alpha_1 = mean(head_means(r, [=](Head h) { return proxy ? h.proxy[1] : h.alpha[1]; }));
    const double mass = mean(head_means(r, [](Head h) { return h.mass; }));
    return (std::isnan(val_loss) ? "" : strf("val %.4f | ", val_loss))
        + strf("%s_1 %.1f%% | sink_* %s | ", proxy ? "proxy" : "sink", 100 * sink_rate(r, 1, eps, proxy), star.c_str())
        + strf("alpha_1 %.3f | mass %.2f | h first/rest %.2f | v first/rest %.2f",
               alpha_1, mass, r.h.first.back() / r.h.rest.back(), mean(r.v.first) / mean(r.v.rest));
}

// continues `tokens` by n more; temperature 0 takes the likeliest. The model sees at most its T last tokens
static void generate(Model* m, std::vector<int>* tokens, long n, double temperature, long top_k, Rng* rng) {
    const int V = m->c.V;
    std::vector<real> logits(V);
    std::vector<std::pair<double, int>> p(V);
    for (long i = 0; i < n; i++) {
        const int T = std::min<size_t>(tokens->size(), m->c.T);
        std::vector<int> seq(tokens->end() - T, tokens->end());
        seq.push_back(0);
        model_load(m, seq.data(), 1, T);
        model_body(m);
        const real* n_last = act_n(m, 2 * m->c.L) + (size_t)(m->T - 1) * m->c.C;
        ops::matmul_forward(m->a.logits, n_last, m->w.lmw, NULL, 1, m->c.C, V);
        ops::to_host(logits.data(), m->a.logits, V * sizeof(real));
        for (int v = 0; v < V; v++) { p[v] = { (double)(float)logits[v], v }; }
        const long keep = temperature == 0 ? 1 : top_k > 0 ? std::min<long>(top_k, V) : V;
        auto likelier = [](const std::pair<double, int>& a, const std::pair<double, int>& b) {
            return a.first != b.first ? a.first > b.first : a.second < b.second;
        };
        std::partial_sort(p.begin(), p.begin() + (keep < V ? keep : 1), p.end(), likelier);
        double sum = 0;
        const double top = p[0].first;
        for (long k = 0; k < keep; k++) {
            p[k].first = keep == 1 ? 1 : exp((p[k].first - top) / temperature);
            sum += p[k].first;
        }
        double u = rng_uniform(rng) * sum;
        long k = 0;
        while (k < keep - 1 && (u -= p[k].first) >= 0) { k++; }
        tokens->push_back(p[k].second);
    }
}

// ============================================================================
// 10 commands
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
    want(f->total_batch >= 0 && f->total_batch % (f->batch * f->seq) == 0, strf("--total-batch %ld", f->total_batch),
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
    want(f.steps >= 0, strf("--steps %ld", f.steps), "0 or more");
    want(f.optimizer == "adamw" || f.optimizer == "sgd", "--optimizer " + f.optimizer, "adamw or sgd");
    want(f.schedule == "constant" || f.schedule == "cosine", "--schedule " + f.schedule, "constant or cosine");
    want(f.lr >= 0, strf("--lr %g", f.lr), "0 or more");
    want(f.warmup >= 0, strf("--warmup %ld", f.warmup), "0 or more");
    want(f.min_lr >= 0 && f.weight_decay >= 0 && f.adam_eps >= 0,
         strf("--min-lr %g --weight-decay %g --adam-eps %g", f.min_lr, f.weight_decay, f.adam_eps), "0 or more");
    want(f.stop_after >= 0, strf("--stop-after %g", f.stop_after), "minutes, or 0 (never)");
    want(f.beta1 >= 0 && f.beta1 < 1 && f.beta2 >= 0 && f.beta2 < 1,
         strf("--beta1 %g --beta2 %g", f.beta1, f.beta2), "0 up to, not including, 1");
    want(f.grad_clip >= 0, strf("--grad-clip %g", f.grad_clip), "0 (off) or more");
    want(f.eval_every >= 0 && f.save_every >= 0 && f.sample >= 0,
         strf("--eval-every %ld --save-every %ld --sample %ld", f.eval_every, f.save_every, f.sample),
         "0 (off) or more");
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
            die(EXIT_DIVERGED, (r.terminal ? "\n" : "") + what + ": not finite, stopped before the update",
                strf("try a smaller --lr than %g", f.lr) + whole);
        }
    }
    const std::string hash = params_hash(&r.m);
    const char* how = step >= f.steps ? "done" : "stopped";
    log_line(&r.log, strf("{\"event\":\"%s\",\"step\":%ld,\"params_hash\":\"%s\"}", how, step, hash.c_str()));
    fclose(r.log.f);
    printf("%s at step %ld, saved %s/step_%ld, params_hash %s\n", how, step, f.out.c_str(), step, hash.c_str());
    model_free(&r.m);
    return 0;
}

// a checkpoint and the tokenizer its text wants
static Model model_from_checkpoint(Flags* f, int T_max) {
    if (f->words.size() != 1) {
        die(EXIT_USER, strf("got %zu checkpoints, wanted one", f->words.size()),
            "name its directory, such as runs/NAME/step_1000");
    }
    std::string tokenizer;
    Config c = checkpoint_config(f->words[0], &tokenizer);
    if (f->tokenizer.empty() && tokenizer != "bytes") { f->tokenizer = tokenizer; }
    if (f->given_prefix) { want(f->prefix >= 0, strf("--prefix %ld", f->prefix), "0 or more"); c.prefix = f->prefix; }
    if (f->given_window) { want(f->window >= 1, strf("--window %ld", f->window), "1 or more"); c.window = f->window; }
    Model m = model_new(c, T_max, false);
    checkpoint_load(&m, f->words[0]);
    f->vocab = c.V;
    return m;
}
static void npy_write(const std::string& path, const std::vector<float>& x, const std::vector<long>& shape) {
    std::string dims;
    for (long d : shape) { dims += strf("%ld,", d); }
    std::string h = "{'descr': '<f4', 'fortran_order': False, 'shape': (" + dims + "), }";
    while ((h.size() + 11) % 64) { h += ' '; }
    h += '\n';
    FileOut o = file_begin(path);
    const unsigned char length[2] = { (unsigned char)(h.size() & 255), (unsigned char)(h.size() >> 8) };
    file_put(&o, "\x93NUMPY\x01\x00", 8); // format version 1.0
    file_put(&o, length, 2);
    file_put(&o, h.data(), h.size());
    file_put(&o, x.data(), x.size() * sizeof(float));
    file_commit(&o);
}
// LAYER:HEAD,... or all
static std::vector<std::pair<int, int>> dump_list(const std::string& text, const Config& c) {
    std::vector<std::pair<int, int>> heads;
    for (int l = 0; text == "all" && l < c.L; l++) { for (int h = 0; h < c.NH; h++) { heads.push_back({ l, h }); } }
    if (text == "all") { return heads; }
    for (auto& w : split(text, ',')) {
        auto pair = split(w, ':');
        long l = -1, h = -1;
        const bool numbers = pair.size() == 2 && parse_long(pair[0], &l) && parse_long(pair[1], &h);
        want(numbers && l >= 0 && l < c.L && h >= 0 && h < c.NH, "--dump-heads " + w,
             strf("LAYER:HEAD with layers 0..%d, heads 0..%d", c.L - 1, c.NH - 1));
        heads.push_back({ (int)l, (int)h });
    }
    return heads;
}
// maps of chosen heads on one sequence: l_h_{map,cosine,product}.npy, each (T, T + 1), column 0 the extra key
static void dump_maps(Model* m, const Flags& f, const int* seq, int T) {
    const Config& c = m->c;
    const std::vector<std::pair<int, int>> heads = dump_list(f.dump_heads, c);
    model_load(m, seq, 1, T);
    model_body(m);
    const AttnShape s = attn_shape(m);
    const int W = attn_row(s), N = m->T;
    make_dirs(f.dump);
    std::vector<float> map((size_t)N * (N + 1)), cosine(map.size()), product(map.size());
    for (auto& lh : heads) {
        const int l = lh.first, h = lh.second;
        std::vector<real> qkv((size_t)N * W), k_star((size_t)(star_k(m, l) ? bias_rows(c) * c.HS : 0));
        std::vector<acc> stat((size_t)c.NH * N * 2);
        ops::to_host(qkv.data(), of_layer(m->a.qkv, m, l, W), qkv.size() * sizeof(real));
        ops::to_host(stat.data(), of_layer(m->a.stat, m, l, c.NH * 2), stat.size() * sizeof(acc));
        if (!k_star.empty()) { ops::to_host(k_star.data(), star_k(m, l), k_star.size() * sizeof(real)); }
        head_maps<Attn, Bias, Pe>(map.data(), cosine.data(), product.data(), qkv.data(), stat.data(),
                                  k_star.empty() ? NULL : k_star.data(), h, s);
        const std::string name = strf("%s/%d_%d_", f.dump.c_str(), l, h);
        npy_write(name + "map.npy", map, { N, N + 1 });
        npy_write(name + "cosine.npy", cosine, { N, N + 1 });
        npy_write(name + "product.npy", product, { N, N + 1 });
    }
    printf("wrote %zu files to %s\n", 3 * heads.size(), f.dump.c_str());
}
static std::string per_sequence_json(const Metrics& r) { // alpha[seq][L][H][k]
    const int K = std::min<int>(METRIC_K, r.T);
    std::string o = "[";
    for (int i = 0; i < r.n; i++) {
        o += i ? ",[" : "[";
        for (int l = 0; l < r.L; l++) {
            std::vector<double> x;
            for (int h = 0; h < r.NH; h++) {
                const HeadMetrics& head = r.at(i, l, h);
                for (int k = 1; k <= K; k++) { x.push_back(r.sums_to_one ? head.alpha[k] : head.proxy[k]); }
            }
            o += (l ? "," : "") + json_matrix(x, K);
        }
        o += "]";
    }
    return o + "]";
}
// the probe sequences (n, T + 1) that --probe-input asks for
static std::vector<int> probe_inputs(const Flags& f, int T, int V, int* n) {
    std::vector<int> x((size_t)f.probe_seqs * (T + 1));
    *n = f.probe_seqs;
    Rng rng = rng_stream(f.seed, 4);
    if (f.probe_input == "natural" && file_exists(f.data) && text_format(f.data) == TEXT_JSONL) { // a file of prompts
        const bool bytes = f.tokenizer.empty() || f.tokenizer == "bytes";
        const Tokenizer tok = bytes ? tokenizer_bytes() : tokenizer_load(f.tokenizer);
        want(tok.vocab_size <= V, strf("tokenizer %s has %d ids, the model %d", tok.name.c_str(), tok.vocab_size, V),
             "the tokenizer that the model was trained with");
        long skipped = 0;
        const DataOptions how = data_options(f, T, T); // --bos, --random-token, --fix-token
        *n = data_prompts(f.data, tok, f.probe_seqs, T, f.skip_bad, x.data(), &skipped, &how);
        if (skipped) { printf("%s: skipped %ld records shorter than %d tokens\n", f.data.c_str(), skipped, T + 1); }
        return x;
    }
    if (f.probe_input == "natural") {
        Data data = data_from_flags(f, T, T);
        *n = data_probe(&data, x.data());
        return x;
    }
    const bool random = f.probe_input == "random";
    want(random || f.probe_input == "repeated", "--probe-input " + f.probe_input, "natural, random or repeated");
    for (long i = 0; i < f.probe_seqs; i++) {
        const int token = rng_below(&rng, V);
        for (int t = 0; t <= T; t++) { x[i * (T + 1) + t] = random ? (int)rng_below(&rng, V) : token; }
    }
    return x;
}
// one eval object for each source of -d and each length; --json gets the first, and all of them if there are more
static int probe(Flags f) {
    const std::vector<double> eps = eps_list(f);
    const std::vector<std::string> lengths = split(f.probe_len, ',');
    const bool natural = f.probe_input == "natural";
    const std::vector<std::string> sources = natural ? split(f.data, ',') : std::vector<std::string>{ f.probe_input };
    want(!lengths.empty(), "--probe-len", "a length, such as 64");
    want(!sources.empty(), "--data \"\"", "bb, a file, a directory of shards or a NAME in data/");
    long longest = 1;
    for (auto& w : lengths) {
        long v = 0;
        want(parse_long(w, &v) && v >= 1 && v < 1 << 30, "--probe-len " + w, "1 or more");
        longest = std::max(longest, v);
    }
    Model m = model_from_checkpoint(&f, longest);
    const std::string state = f.words[0] + "/state.json";              // others' models have none: step 0
    const long step = file_exists(state) ? (long)json_number(json_file(state), "step", 0) : 0;
    std::vector<std::string> objects;
    for (auto& source : sources) {
        for (auto& w : lengths) {
            const int T = probe_length(f, w, m.c.T);
            want(m.c.prefix < T, strf("prefix %d", m.c.prefix), strf("less than --probe-len %d", T).c_str());
            int n = 0;
            f.data = source;
            const std::vector<int> x = probe_inputs(f, T, m.c.V, &n);
            const Metrics r = measure(&m, x.data(), n, T, 8192);
            const std::string alpha = f.per_sequence ? ",\"alpha\":" + per_sequence_json(r) : "";
            objects.push_back("\"data\":" + json_str(source) + "," + eval_json(step, NAN, r, eps) + alpha);
            for (double e : eps) {
                printf("%s, T %d, n %d, eps %g | loss %.4f | ", source.c_str(), T, n, e, r.loss);
                printf("%s\n", eval_text(NAN, r, e).c_str());
            }
            if (f.dump.empty() || objects.size() > 1) { continue; }
            want(f.dump_seq >= 0 && f.dump_seq < n, strf("--dump-seq %ld", f.dump_seq), strf("0 to %d", n - 1).c_str());
            dump_maps(&m, f, x.data() + (size_t)f.dump_seq * (T + 1), T);
        }
    }
    std::string all;
    for (auto& o : objects) { all += (all.empty() ? ",\"all\":[{" : ",{") + o + "}"; }
    if (!f.json.empty()) { file_write(f.json, "{" + objects[0] + (objects.size() > 1 ? all + "]" : "") + "}\n"); }
    model_free(&m);
    return 0;
}

static int generate_text(Flags f) {
    want(f.tokens >= 0, strf("--tokens %ld", f.tokens), "0 or more");
    want(f.temperature >= 0, strf("--temperature %g", f.temperature), "0 or more");
    want(f.top_k >= 0, strf("--top-k %ld", f.top_k), "0 (all) or more");
    Model m = model_from_checkpoint(&f, 0);
    const Tokenizer tok = !f.tokenizer.empty() && f.tokenizer != "bytes" ? tokenizer_load(f.tokenizer)
                        : m.c.V == 257 ? tokenizer_bytes() : tokenizer_ids("ids", m.c.V);
    std::vector<int> tokens;
    if (tok.kind == TOKENIZER_IDS) { // the prompt is ids
        for (auto& w : split(f.prompt, ' ')) {
            long id = 0;
            want(parse_long(w, &id) && id >= 0 && id < m.c.V, "--prompt " + w,
                 strf("token ids 0..%d, separated by spaces: this model has no tokenizer", m.c.V - 1));
            tokens.push_back(id);
        }
    } else {
        for (int id : tokenizer_encode(tok, f.prompt, true)) { tokens.push_back(id); }
    }
    if (tokens.empty()) { tokens.push_back(tok.eos >= 0 ? tok.eos : m.c.V - 1); f.prompt.clear(); }
    const size_t given = f.prompt.empty() ? tokens.size() : 0;
    Rng rng = rng_stream(f.seed, 5);
    generate(&m, &tokens, f.tokens, f.temperature, f.top_k, &rng);
    printf("%s\n", tokenizer_decode(tok, tokens.data() + given, tokens.size() - given, true).c_str());
    model_free(&m);
    return 0;
}

static int tokenize(const Flags& f) {
    TokenizeOptions o;
    o.files = f.words; o.val_files = split(f.val, ','); o.tokenizer = f.tokenizer; o.out = f.out; o.bos = f.bos;
    o.domains = f.domains; o.val_fraction = f.val_fraction; o.tokens = f.train_tokens; o.shard_tokens = f.shard_tokens;
    o.threads = f.threads; o.skip_bad = f.skip_bad;
    return tokenize_main(o);
}

// FLOPs of one training step per token: 6 for every weight of a matrix, and causal attention forward + backward
static double flops_per_token(const Model* m, int T) {
    const Config& c = m->c;
    double matrices = 0;
    for (auto& t : m->tensors) {
        const bool looked_up = t.name == "model.embed_tokens.weight" || t.name == "model.embed_positions.weight";
        if (t.shape.size() == 2 && !looked_up) { matrices += t.count; }
    }
    return 6 * matrices + 3.0 * 4 * (T / 2.0) * c.NH * c.HS * c.L;
}
// milliseconds of one call: the median of 5 rounds after a warm-up, each of as many calls as take 20 ms
static double time_ms(const std::function<void()>& f) {
    std::vector<double> ms;
    for (int i = 0, calls = 1; i < 6; i++) {
        const double t0 = now_ms();
        for (int k = 0; k < calls; k++) { f(); }
        ops::device_sync();
        ms.push_back((now_ms() - t0) / calls);
        if (i == 0) { calls = std::min(1000.0, 1 + 20 / std::max(ms[0], 1e-3)); ms.clear(); }
    }
    std::sort(ms.begin(), ms.end());
    return ms[2];
}
// what no training step of this machine and build can pass: GFLOP/s of a large matrix product, GB/s of y += x
static double product_gflops() {
    const int N = ops::large;
    real* x = (real*)ops::device_malloc(3 * (size_t)N * N * sizeof(real));
    real *y = x + (size_t)N * N, *z = y + (size_t)N * N;
    const double ms = time_ms([=] { ops::matmul_forward(x, y, z, NULL, N, N, N); });
    ops::device_free(x);
    return 2.0 * N * N * N / ms / 1e6;
}
static double memory_gbytes() {
    const long n = (long)ops::large * ops::large * (ops::on_host ? 16 : 4);
    real* x = (real*)ops::device_malloc(2 * n * sizeof(real));
    const double ms = time_ms([=] { ops::add(x, x + n, n); });
    ops::device_free(x);
    return 3.0 * n * sizeof(real) / ms / 1e6;
}
// An operation of the training step: how often the step calls it, and what one call must compute (matrix products only)
// and move at the least (every tensor of it once), and how long one takes
struct OpRow { std::string name; double calls, flops, bytes, ms; };

// every operation of the last step, on its own tensors; those of phi and of the heads' combination are left out
static std::vector<OpRow> op_rows(Model* m) {
    const Config& c = m->c; const AttnShape s = attn_shape(m); const Acts& a = m->a;
    const auto& w = m->w.layer[0]; const auto& g = m->g.layer[0]; const Params<real>& W = m->w; const Params<acc>& G = m->g;
    const int N = m->B * m->T, L = c.L, C = c.C, QKV = attn_row(s), F = c.F, FH = F * (Ffn::gated ? 2 : 1), V = c.V, R = m->R;
    const int OC = Combine::sum ? c.HS : c.NH * c.HS, norms = Norm::post ? 2 * L : 2 * L + 1, chunks = (N + R - 1) / R;
    const bool combine = Combine::sum || Bias::add_v;
    real *att = combine ? a.heads : a.att, *datt = combine ? a.dheads : a.datt, *x1 = act_x(m, 1), *n1 = act_n(m, 1);
    acc* rstd = a.rstd + N;                                      // of norm 1, which every build has
    const double one = sizeof(real), NC = one * N * C, NO = one * N * c.NH * c.HS, NQ = one * N * QKV, P = m->num_params;
    double pairs = 0;                                            // of a query and a key that it sees
    for (int t = 0; t < s.T; t++) { for (int j = 0; j < s.T; j++) { pairs += attn_sees(s, t, j); } }
    const double madds = pairs * m->B * c.NH * c.HS;             // multiply-adds of one product of attention
    const AdamW o = { 1e-9f, 0.9f, 0.95f, 1e-8f, 0.1f, 1 };
    std::vector<OpRow> rows;
    auto row = [&](const std::string& name, double calls, double flops, double bytes, std::function<void()> run) {
        rows.push_back({ name, calls, flops, bytes, time_ms(run) });
    };
    auto product = [&](const std::string& name, int calls, real* out, real* inp, real* weight, real* residual,
                       real* dinp, real* dout, acc* dweight, int N, int C, int OC) {
        const double flops = 2.0 * N * C * OC, bytes = one * (1.0 * N * C + 1.0 * C * OC + (residual ? 2.0 : 1.0) * N * OC);
        row(name, calls, flops, bytes, [=] { ops::matmul_forward(out, inp, weight, residual, N, C, OC); });
        row(name + ", to weight", calls, flops, one * (1.0 * N * C + 1.0 * N * OC) + 2.0 * sizeof(acc) * C * OC,
            [=] { ops::matmul_backward_weight(dweight, dout, inp, N, C, OC); });
        row(name + ", to input", calls, flops, one * (1.0 * N * C + 1.0 * C * OC + 1.0 * N * OC),
            [=] { ops::matmul_backward_input(dinp, dout, weight, N, C, OC); });
    };
    row("embedding", 1, 0, 2 * NC, [=] {
        ops::embed_forward(a.x, m->tokens, W.wte, Pe::learnable ? W.wpe : m->positions, W.sink, m->B, m->T, C);
    });
    row("embedding, backward", 1, 0, 3 * NC, [=] {
        ops::embed_backward(G.wte, G.wpe, G.sink, a.dx, m->tokens, m->B, m->T, C);
    });
    row("norm", norms, 0, 2 * NC, [=] { ops::rmsnorm_forward(n1, rstd, x1, w.ln2w, c.eps, N, C); });
    row("norm, backward", norms, 0, 4 * NC, [=] {
        ops::rmsnorm_backward(a.dx, g.ln2w, a.dn, x1, w.ln2w, rstd, !Norm::post, N, C);
    });
    product("QKV", L, a.qkv, act_n(m, 0), w.qw, NULL, a.dn, a.dqkv, g.qw, N, C, QKV);
    if (Pe::rotary) { row("rotary", L, 0, 2 * one * N * (c.NH + c.KV) * c.HS, [=] { ops::rope(a.qkv, m->turns, 1, s); }); }
    row("attention", L, 4 * madds, NQ + NO, [=] {
        ops::attention_forward<Attn, Bias, Pe>(a.att, a.stat, a.qkv, star_k(m, 0), star_v(m, 0), s);
    });
    row("attention, backward", L, 10 * madds, 2 * NQ + 2 * NO, [=] { attention_backward(m, 0); });
    product("O", L, x1, att, w.ow, a.x, datt, a.dx, g.ow, N, OC, C);
    product("gate|up", L, a.fch, n1, Ffn::gated ? w.gatew : w.upw, NULL, a.dn, a.dfch, Ffn::gated ? g.gatew : g.upw, N, C, FH);
    row("FFN", L, 0, one * N * (FH + F), [=] { ops::ffn_forward<Ffn>(a.fca, a.fch, N, F); });
    row("FFN, backward", L, 0, one * N * (2.0 * FH + F), [=] { ops::ffn_backward<Ffn>(a.dfch, a.dfca, a.fch, N, F); });
    product("down", L, act_x(m, 2), a.fca, w.downw, x1, a.dfca, a.dx, g.downw, N, F, C);
    product("head", chunks, a.logits, act_n(m, 2 * L), W.lmw, NULL, a.dn, a.logits, G.lmw, R, C, V);
    row("classifier", chunks, 0, 2 * one * R * V, [=] { ops::classifier(a.losses, a.logits, m->targets, 1e-3f, R, V); });
    row("gradient norm", 1, 0, sizeof(acc) * P, [=] { ops::square_norm(m->sums, m->grads, 1, P); });
    row("AdamW", 1, 0, (7 * sizeof(acc) + (sizeof(real) == sizeof(acc) ? 0 : one)) * P,
        [=] { ops::adamw_update(m->params, m->master, m->m, m->v, m->grads, m->sums, o, P); });
    row("gradients to 0", 1, 0, sizeof(acc) * P, [=] { model_zero(m); });
    return rows;
}
// the table of --ops; returns it as JSON
static std::string bench_ops(Model* m, double step_ms, double gflops, double gbytes) {
    const std::vector<OpRow> rows = op_rows(m);
    double sum = 0;
    std::string json;
    printf("%-22s %6s %10s %9s %10s %9s %9s\n", "operation", "calls", "ms a call", "of step", "GFLOP/s", "GB/s", "of roof");
    for (auto& r : rows) { // the roof: what takes longer at the rates of a large product and of y += x
        const double roof = std::max(r.flops / gflops, r.bytes / gbytes) / 1e6;
        sum += r.calls * r.ms;
        printf("%-22s %6.0f %10.4f %8.1f%% %10.1f %9.1f %8.0f%%\n", r.name.c_str(), r.calls, r.ms, 100 * r.calls * r.ms / step_ms,
               r.flops / r.ms / 1e6, r.bytes / r.ms / 1e6, 100 * roof / r.ms);
        json += (json.empty() ? "" : ",") + strf("{\"name\":\"%s\",\"calls\":%.0f,\"ms\":%.5f,\"flops\":%.0f,\"bytes\":%.0f,\"of_roof\":%.3f}",
                                                 r.name.c_str(), r.calls, r.ms, r.flops, r.bytes, roof / r.ms);
    }
    printf("%-22s %6s %10.4f %8.1f%%\n", "sum", "", sum, 100 * sum / step_ms);
    return ",\"ops\":[" + json + "]";
}
// tokens/s of training steps on random tokens, a line of JSON. With --ops also tables: time of every operation against
// its roof, memory by tensor, what an evaluation of the sinks costs
static int bench(Flags f) {
    preset_apply(&f);
    if (!f.given_steps) { f.steps = 12; }
    Data data = data_from_flags(f, f.seq, std::min<long>(64, f.seq));
    Config c = config_from_flags(&f, data.V);
    const double product = product_gflops(), gbytes = f.ops ? memory_gbytes() : 0;
    Model m = model_new(c, f.seq, true);
    model_init(&m, f.seed);
    batch_settle(&m, &f, 0);
    const double accum = f.total_batch ? f.total_batch / (f.batch * f.seq) : 1, tokens = (double)f.batch * f.seq;
    std::vector<int> seqs((size_t)f.batch * (f.seq + 1)), probe(100 * 65);
    Rng rng = rng_stream(f.seed, 6);
    for (auto* x : { &seqs, &probe }) { for (auto& token : *x) { token = rng_below(&rng, c.V); } }
    std::vector<double> step_ms;
    for (long i = 0; i <= f.steps; i++) { // the first is a warm-up
        const double t0 = now_ms();
        model_zero(&m);
        model_accumulate(&m, seqs.data(), f.batch, f.seq, 1);
        model_update(&m, { 1e-4f, 0.9f, 0.95f, 1e-8f, 0.1f, i + 1 }, 1, false);
        if (i) { step_ms.push_back(now_ms() - t0); }
    }
    std::sort(step_ms.begin(), step_ms.end());
    const double ms = step_ms[step_ms.size() / 2], flops = flops_per_token(&m, f.seq);
    const double gflops = flops * tokens / ms / 1e6;
    std::string more;
    if (f.ops) {
        std::string table;
        const double acts = acts_bytes(c, f.batch, f.seq, &table);
        more = bench_ops(&m, ms, product, gbytes);
        printf("%s\nactivations, MiB:%s\n", memory_text(&m, f.batch, f.seq).c_str(), table.c_str());
        const int T = std::min(64L, f.seq);                      // no longer than the model's tables of positions
        const double eval = time_ms([&] { measure(&m, probe.data(), 100, T, f.batch * f.seq); });
        printf("sinks of 100 x %d tokens: %.2f ms, %.1f%% of a step of %.0f tokens\n", T, eval, 100 * eval / (ms * accum), tokens * accum);
        more += strf(",\"gbytes\":%.1f,\"activation_bytes\":%.0f,\"eval_ms\":%.3f,\"eval_of_step\":%.4f",
                     gbytes, acts, eval, eval / (ms * accum));
    }
    std::string o = strf("{\"attn\":\"%s\",\"bias\":\"%s\",\"L\":%d,\"C\":%d,\"NH\":%d,", STR(ATTN), STR(BIAS), c.L, c.C, c.NH);
    o += strf("\"F\":%d,\"V\":%d,\"T\":%ld,\"B\":%ld,\"params\":%ld,", c.F, c.V, f.seq, f.batch, m.num_params);
    model_free(&m);
    o += strf("\"ms\":%.3f,\"tokens_per_s\":%.0f,\"flops_per_token\":%.0f,", ms, tokens / ms * 1e3, flops);
    o += strf("\"gflops\":%.1f,\"product_gflops\":%.1f,\"of_product\":%.3f", gflops, product, gflops / product);
    printf("%s}\n", o.c_str());
    if (!f.json.empty()) { file_write(f.json, o + more + "}\n"); }
    return 0;
}

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
    std::set_new_handler([] {
        die(EXIT_MACHINE, "memory: the system gave no more", "lower --batch, --seq or the model size");
    });
    const Flags f = flags_parse(argc, argv, &command);
    if (!f.words.empty() && !strchr("pgk", command)) {
        die(EXIT_USER, "got '" + f.words[0]
            + "', wanted a command (train, probe, generate, tokenize, bench) or a --flag");
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
