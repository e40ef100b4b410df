/*
block_variants.h -- the switches besides ATTN: a table per switch, a row per value, and how all of
it is computed. The Makefile and --help read the tables, as that of attention_variants.cuh.
*/
#ifndef BLOCK_VARIANTS_H
#define BLOCK_VARIANTS_H
#include "base/elementary.h" // exp_, erf_, sigmoid_ on host and device
#include "base/rows.h"       // row_named

// BIAS: X_BIAS(name, extra key, learn k*, v*, v* in every output, token, "help")
// The extra key has no position, is never masked, and joins the sum in Z. Its score is that of a
// key k*, scale q . k*, or a logit z of each query head, which needs no k*. What is not learned is
// 0.
enum ExtraKind { NO_EXTRA, KEY_EXTRA, LOGIT_EXTRA };
#define BIAS_VARIANTS(X_BIAS) \
    X_BIAS(none,       NO_EXTRA,    0, 0, 0, 0, "only the tokens' own keys and values") \
    X_BIAS(sink_token, NO_EXTRA,    0, 0, 0, 1, "one learned token x* before every sequence (Table 4, row 2)") \
    X_BIAS(kv,         KEY_EXTRA,   1, 1, 0, 0, "an extra learned key k* and value v* per key/value head (Table 4, row 3)") \
    X_BIAS(k,          KEY_EXTRA,   1, 0, 0, 0, "an extra learned key k* per key/value head, v* = 0 or --v-star (Table 4, row 4; Table 5)") \
    X_BIAS(zero,       KEY_EXTRA,   0, 0, 0, 0, "an extra key k* = 0, v* = 0: softmax off by one, exp(s) / (1 + sum exp(s))") \
    X_BIAS(logit,      LOGIT_EXTRA, 1, 0, 0, 0, "a learned logit z per query head, v* = 0: exp(s) / (exp(z) + sum exp(s)), gpt-oss") \
    X_BIAS(v,          NO_EXTRA,    0, 0, 1, 0, "a learned v* added to the output of every head (Table 4, row 5)")

struct BiasRow { const char* name; ExtraKind extra; bool learn_k, learn_v, add_v, token; };
#define X_BIAS(name, KIND, K, V, ADD, TOKEN, help) { #name, KIND, K, V, ADD, TOKEN },
inline constexpr BiasRow BIAS_ROWS[] = { BIAS_VARIANTS(X_BIAS) };
#undef X_BIAS
constexpr int BIAS_none = row_named(BIAS_ROWS, "none");
#define X_BIAS(name, KIND, K, V, ADD, TOKEN, help) \
    struct Bias_##name { \
        static constexpr ExtraKind extra = KIND; \
        static constexpr bool learn_k = K, learn_v = V, add_v = ADD, token = TOKEN; \
    };
BIAS_VARIANTS(X_BIAS)
#undef X_BIAS

// PE: X_PE(name, "formula", "help")
#define PE_VARIANTS(X_PE) \
    X_PE(rotary,    "q_t R(t), k_j R(j)",       "rotate pairs of channels by the position (Eq. 8)") \
    X_PE(nope,      "nothing",                  "no positional embedding; only the causal mask tells the order") \
    X_PE(absolute,  "h0_t += (sin, cos)(t)",    "fixed sinusoids (Eq. 5)") \
    X_PE(learnable, "h0_t += p_t",              "one learned row per position") \
    X_PE(relative,  "s += bucket(t - j)",       "the T5 bucket index itself, 0..31, not learned (Eq. 6)") \
    X_PE(alibi,     "s -= 2^(-8h/NH) (t - j)",  "a linear penalty on distance, one slope per head (Eq. 7)")

struct PeBase {
    static constexpr bool rotary = false, absolute = false, learnable = false, score_bias = false;
    // Returns the slope of head h: the first `even` heads have even slopes, the others lie between.
    HD static float slope(int, int) { return 0; }
    // Returns what is added to the score at a distance t - j, from the slope of the head.
    template <class F> HD static F bias(int, float) { return F(0); }
};
struct Pe_rotary    : PeBase { static constexpr bool rotary = true; };
struct Pe_nope      : PeBase {};
struct Pe_absolute  : PeBase { static constexpr bool absolute = true; };
struct Pe_learnable : PeBase { static constexpr bool learnable = true; };
struct Pe_relative  : PeBase {
    static constexpr bool score_bias = true;
    // 32 buckets, distances from 128 on share the last. As T5 has it: Eq. 6 floors before it scales
    template <class F> HD static F bias(int distance, float) {
        // 0 at 16, 1 at 128
        const F log_8 = log_(F(max_(distance, 16)) * F(1 / 16.0)) * F(1 / 2.0794415416798357);
        const int far = min_(16 + (int)(log_8 * F(16)), 31);
        return F(distance < 16 ? max_(distance, 0) : far);
    }
};
struct Pe_alibi : PeBase {
    static constexpr bool score_bias = true;
    HD static float slope(int h, int even) {
        const float rank = h < even ? h + 1 : h - even + 0.5f;
        return exp2f(-8.0f * rank / even);
    }
    // a prefix key that lies ahead counts as near
    template <class F> HD static F bias(int distance, float slope) {
        return F(min_(-distance, 0)) * F(slope);
    }
};

struct PeRow { const char* name; bool rotary, absolute, learnable, score_bias; };
#define X_PE(name, ...) \
    { #name, Pe_##name::rotary, Pe_##name::absolute, Pe_##name::learnable, Pe_##name::score_bias },
inline constexpr PeRow PE_ROWS[] = { PE_VARIANTS(X_PE) };
#undef X_PE
constexpr int PE_rotary = row_named(PE_ROWS, "rotary"), PE_alibi = row_named(PE_ROWS, "alibi");

// ---- the switches that are numbers alone: a row per value, the first is the default. The last two
// columns are the formula and the help. A value that code asks for by name is found in its table.

// NORM: a norm before the branch, one after it, and whether the latter is on the stream
struct NormRow { const char* name; bool in, out, stream; const char *formula, *help; };
inline constexpr NormRow NORM_ROWS[] = {
    { "pre",      1, 0, 0, "h += f(n(h))",    "the stream is never normalized, a norm before each branch (Eq. 2)" },
    { "post",     0, 1, 1, "h = n(h + f(h))", "normalizes the stream after each branch (Eq. 3)" },
    { "sandwich", 1, 1, 0, "h += n(f(n(h)))", "before and after each branch: Gemma 2 and 3" },
    { "branch",   0, 1, 0, "h += n(f(h))",    "after each branch, before it joins the stream: OLMo 2" },
    { "none",     0, 0, 0, "h += f(h)",       "no norm in a layer; the one before lm_head stays" },
};
constexpr int NORM_pre = row_named(NORM_ROWS, "pre"), NORM_post = row_named(NORM_ROWS, "post");

// an activation: act(x) and its derivative dact(x)
enum Activation { ACT_relu, ACT_relu2, ACT_gelu, ACT_gelu_tanh, ACT_swish };

// Returns 2u of gelu_tanh:  x (1 + tanh(u)) / 2 = x sigma(2u),  u = sqrt(2 / pi) (x + 0.044715 x^3)
template <class F> HD F gelu_2u(F x) {
    return F(1.5957691216057308) * x * (F(1) + F(0.044715) * x * x);
}

template <Activation KIND> struct ActivationOf {
    template <class F> HD static F act(F x) {
        if (KIND == ACT_relu)      { return x > 0 ? x : F(0); }
        if (KIND == ACT_relu2)     { return x > 0 ? x * x : F(0); }
        if (KIND == ACT_gelu)      { return F(0.5) * x * (F(1) + erf_(x * F(0.7071067811865476))); }
        if (KIND == ACT_gelu_tanh) { return x * sigmoid_(gelu_2u(x)); }
        return x * sigmoid_(x);
    }

    template <class F> HD static F dact(F x) {
        if (KIND == ACT_relu)  { return x > 0 ? F(1) : F(0); }
        if (KIND == ACT_relu2) { return x > 0 ? x + x : F(0); }
        if (KIND == ACT_gelu) {                          // (x Phi)' = Phi + x phi
            return F(0.5) * (F(1) + erf_(x * F(0.7071067811865476))) +
                   x * F(0.3989422804014327) * exp_(F(-0.5) * x * x);
        }
        if (KIND == ACT_gelu_tanh) {                     // sigma + x sigma (1 - sigma) (2u)'
            const F g = sigmoid_(gelu_2u(x));
            return g +
                   x * g * (F(1) - g) * F(1.5957691216057308) * (F(1) + F(3 * 0.044715) * x * x);
        }
        const F g = sigmoid_(x);
        return g * (F(1) + x * (F(1) - g));              // swish:  sigma (1 + x (1 - sigma))
    }
};

// f(ActivationOf<ACT_relu>()) for ACT_relu, and so on: the one place where a number becomes code
template <class Function> void with_activation(Activation act, Function f) {
    if (act == ACT_relu)      { f(ActivationOf<ACT_relu>()); }
    if (act == ACT_relu2)     { f(ActivationOf<ACT_relu2>()); }
    if (act == ACT_gelu)      { f(ActivationOf<ACT_gelu>()); }
    if (act == ACT_gelu_tanh) { f(ActivationOf<ACT_gelu_tanh>()); }
    if (act == ACT_swish)     { f(ActivationOf<ACT_swish>()); }
}

// FFN: its activation, and whether a product of its own multiplies it. Chosen at run time, once per
// call and never in a loop
struct FfnRow { const char* name; Activation act; bool gated; const char *formula, *help; };
inline constexpr FfnRow FFN_ROWS[] = {
    { "swiglu",     ACT_swish,     1, "(swish(h W1) * h W2) W3", "gated, the default (Table 11)" },
    { "geglu",      ACT_gelu,      1, "(gelu(h W1) * h W2) W3",  "gated (Table 11)" },
    { "reglu",      ACT_relu,      1, "(relu(h W1) * h W2) W3",  "gated (Table 11)" },
    { "relu",       ACT_relu,      0, "relu(h W2) W3",           "(Table 11)" },
    { "gelu",       ACT_gelu,      0, "gelu(h W2) W3",           "erf form (Table 11)" },
    { "swish",      ACT_swish,     0, "swish(h W2) W3",          "x sigmoid(x) (Table 11)" },
    { "geglu_tanh", ACT_gelu_tanh, 1, "(gelu(h W1) * h W2) W3",  "gated, tanh form: Gemma" },
    { "gelu_tanh",  ACT_gelu_tanh, 0, "gelu(h W2) W3",           "tanh form: GPT-2, Phi" },
    { "relu2",      ACT_relu2,     0, "relu(h W2)^2 W3",         "squared: nanochat" },
};

// COMBINE: how the outputs of the heads become the input of W_O
struct PlainRow { const char *name, *formula, *help; };
inline constexpr PlainRow COMBINE_ROWS[] = {
    { "concat", "Concat_h(o_h) W_O", "W_O is (C, NH*HS) (Eq. 4)" },
    { "sum",    "(sum_h o_h) W_O",   "W_O is (C, HS), shared by the heads (Table 12)" },
};
constexpr int COMBINE_sum = row_named(COMBINE_ROWS, "sum");

// QKNORM: a norm on q and k
inline constexpr PlainRow QKNORM_ROWS[] = {
    { "none", "q, k",               "as they are" },
    { "head", "rms(q_h), rms(k_h)", "of each head, one weight for all heads, before PE: Qwen 3, Gemma 3" },
    { "all",  "rms(q), rms(k)",     "of all heads together, before PE: OLMo 2" },
};
constexpr int QKNORM_none = row_named(QKNORM_ROWS, "none"),
              QKNORM_all = row_named(QKNORM_ROWS, "all");

// GATE: what is gated, by a number for each channel or for each head, and if it reads the input
enum GatePlace { NO_GATE, ON_OUTPUT, ON_VALUE };
struct GateRow {
    const char* name;
    GatePlace place;
    bool by_channel, reads;
    const char *formula, *help;
};
inline constexpr GateRow GATE_ROWS[] = {
    { "none",   NO_GATE,   0, 0, "o_h",                "the heads' outputs as they are" },
    { "head",   ON_OUTPUT, 0, 1, "o_h sigmoid(h w_h)", "a gate for each head, before W_O (Qiu et al. 2025)" },
    { "elem",   ON_OUTPUT, 1, 1, "o sigmoid(h W)",     "a gate for each channel of each head (Qiu et al. 2025)" },
    { "static", ON_OUTPUT, 1, 0, "o sigmoid(g)",       "elem without its input: g is learned, 0 at the start" },
    { "value",  ON_VALUE,  1, 1, "v sigmoid(h W)",     "a gate for each channel of each value, before attention (Qiu et al. 2025)" },
};

// How the build computes; only the Makefile reads these.
inline constexpr PlainRow PRECISION_ROWS[] = {
    { "fp32", "float everywhere",   "the reference, and the default of BACKEND=cpu" },
    { "bf16", "bfloat16 and float", "activations, weights in bf16; masters, sums in float" },
};
inline constexpr PlainRow BACKEND_ROWS[] = {
    { "cpu",  "cpu/",        "C++ with OpenMP, runs anywhere, as fast as it can" },
    { "cuda", "cuda/",       "one GPU, sm_80 or newer; needs nvcc and cuBLASLt to build" },
    { "ref",  "reference.h", "every operation as in a textbook: slow, for reading and checking" },
};

// ---- kinds that a flag sets, not a switch
inline constexpr const char* NORM_KIND_ROWS[] = { "rms", "ln" };
inline constexpr const char* SHARE_ROWS[] = { "none", "heads" };
inline constexpr const char* SLOPES_ROWS[] = { "even", "published" };
constexpr int NORM_KIND_ln = row_named(NORM_KIND_ROWS, "ln"),
              SHARE_none = row_named(SHARE_ROWS, "none"),
              SHARE_heads = row_named(SHARE_ROWS, "heads"),
              SLOPES_even = row_named(SLOPES_ROWS, "even"),
              SLOPES_published = row_named(SLOPES_ROWS, "published");
#endif // BLOCK_VARIANTS_H
