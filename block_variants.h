/*
block_variants.h -- what may differ in a layer besides attention: a table per switch, a row per
value, and how all of it is computed. The Makefile and --help read the tables, as those of
attention_variants.cuh, which includes this.
*/
#ifndef BLOCK_VARIANTS_H
#define BLOCK_VARIANTS_H
#include "cpu/elementary.h" // exp_, erf_, sigmoid_ on host and device

// NORM: a norm before the branch, one after it, and whether the latter is on the stream
#define NORM_VARIANTS(X_NORM) \
    X_NORM(pre,      1, 0, 0, "h += f(n(h))",     "the stream is never normalized, a norm before each branch (Eq. 2)") \
    X_NORM(post,     0, 1, 1, "h = n(h + f(h))",  "normalizes the stream after each branch (Eq. 3)") \
    X_NORM(sandwich, 1, 1, 0, "h += n(f(n(h)))",  "before and after each branch: Gemma 2 and 3") \
    X_NORM(branch,   0, 1, 0, "h += n(f(h))",     "after each branch, before it joins the stream: OLMo 2")
#define NORM_NAME(name, ...) NORM_##name,
enum { NORM_VARIANTS(NORM_NAME) };
struct NormRow { const char* name; bool in, out, stream; };
#define X_NORM(name, IN, OUT, STREAM, ...) { #name, IN, OUT, STREAM },
static const NormRow NORM_ROWS[] = { NORM_VARIANTS(X_NORM) };
#undef X_NORM

// X_FFN(name, activation, gated, "formula", "help"). Chosen at run time, once per call
// and never in a loop
#define FFN_VARIANTS(X_FFN) \
    X_FFN(swiglu, swish, 1, "(swish(h W1) * h W2) W3", "gated, the default (Table 11)") \
    X_FFN(geglu,  gelu,  1, "(gelu(h W1) * h W2) W3",  "gated (Table 11)") \
    X_FFN(reglu,  relu,  1, "(relu(h W1) * h W2) W3",  "gated (Table 11)") \
    X_FFN(relu,   relu,  0, "relu(h W2) W3",           "(Table 11)") \
    X_FFN(gelu,   gelu,  0, "gelu(h W2) W3",           "erf form (Table 11)") \
    X_FFN(swish,  swish, 0, "swish(h W2) W3",          "x sigmoid(x) (Table 11)") \
    X_FFN(geglu_tanh, gelu_tanh, 1, "(gelu(h W1) * h W2) W3", "gated, tanh form: Gemma") \
    X_FFN(gelu_tanh,  gelu_tanh, 0, "gelu(h W2) W3",          "tanh form: GPT-2, Phi") \
    X_FFN(relu2,      relu2,     0, "relu(h W2)^2 W3",        "squared: nanochat")

// an activation: act(x) and its derivative dact(x)
#define ACTIVATIONS(X) X(relu) X(relu2) X(gelu) X(gelu_tanh) X(swish)
#define X(name) ACT_##name,
enum Activation { ACTIVATIONS(X) };
#undef X
struct Activation_relu {
    template <class F> HD static F act(F x)  { return x > 0 ? x : F(0); }
    template <class F> HD static F dact(F x) { return x > 0 ? F(1) : F(0); }
};
struct Activation_relu2 {
    template <class F> HD static F act(F x)  { return x > 0 ? x * x : F(0); }
    template <class F> HD static F dact(F x) { return x > 0 ? x + x : F(0); }
};
struct Activation_gelu { // x Phi(x);  (x Phi)' = Phi + x phi
    template <class F>
    HD static F act(F x) {
        return F(0.5) * x * (F(1) + erf_(x * F(0.7071067811865476)));
    }
    template <class F> HD static F dact(F x) {
        return F(0.5) * (F(1) + erf_(x * F(0.7071067811865476))) +
               x * F(0.3989422804014327) * exp_(F(-0.5) * x * x);
    }
};
// x (1 + tanh(u)) / 2 = x sigma(2u),  u = sqrt(2/pi) (x + 0.044715 x^3)
// x sigma(2u), 2u = sqrt(8 / pi) (x + 0.044715 x^3);  its derivative: sigma + x sigma (1 - sigma)
// (2u)'
struct Activation_gelu_tanh {
    template <class F>
    HD static F two_u(F x) {
        return F(1.5957691216057308) * x * (F(1) + F(0.044715) * x * x);
    }
    template <class F> HD static F act(F x)  { return x * sigmoid_(two_u(x)); }
    template <class F> HD static F dact(F x) {
        F g = sigmoid_(two_u(x));
        return g + x * g * (F(1) - g) * F(1.5957691216057308) * (F(1) + F(3 * 0.044715) * x * x);
    }
};
struct Activation_swish { // x sigma(x);  (x sigma)' = sigma (1 + x (1 - sigma))
    template <class F> HD static F act(F x)  { return x * sigmoid_(x); }
    template <class F>
    HD static F dact(F x) {
        F g = sigmoid_(x);
        return g * (F(1) + x * (F(1) - g));
    }
};
// f(Activation_relu()) for ACT_relu, and so on: the one place where a number becomes code
template <class Function> void with_activation(Activation act, Function f) {
    #define X(name) if (act == ACT_##name) { f(Activation_##name()); }
    ACTIVATIONS(X)
    #undef X
}
#define COMBINE_VARIANTS(X_COMBINE) \
    X_COMBINE(concat, "Concat_h(o_h) W_O", "W_O is (C, NH*HS) (Eq. 4)") \
    X_COMBINE(sum,    "(sum_h o_h) W_O",   "W_O is (C, HS), shared by the heads (Table 12)")
#define QKNORM_VARIANTS(X_QKNORM) \
    X_QKNORM(none, "q, k",             "as they are") \
    X_QKNORM(head, "rms(q_h), rms(k_h)", "of each head, one weight for all heads, before PE: Qwen 3, Gemma 3") \
    X_QKNORM(all,  "rms(q), rms(k)",   "of all heads together, before PE: OLMo 2")

#define GATE_VARIANTS(X_GATE) \
    X_GATE(none, "o_h",                "the heads' outputs as they are") \
    X_GATE(head, "o_h sigmoid(h w_h)", "a gate for each head, before W_O (Qiu et al. 2025)") \
    X_GATE(elem, "o sigmoid(h W)",     "a gate for each channel of each head (Qiu et al. 2025)")

#define COMBINE_NAME(name, ...) COMBINE_##name,
#define QKNORM_NAME(name, ...) QKNORM_##name,
#define GATE_NAME(name, ...) GATE_##name,
#define FFN_NAME(name, ...) FFN_##name,
enum { COMBINE_VARIANTS(COMBINE_NAME) };
enum { QKNORM_VARIANTS(QKNORM_NAME) };
enum { GATE_VARIANTS(GATE_NAME) };
enum { FFN_VARIANTS(FFN_NAME) };
struct FfnRow { const char* name; Activation act; bool gated; };
#define X_FFN(name, ACT, GATED, ...) { #name, ACT_##ACT, GATED },
static const FfnRow FFN_ROWS[] = { FFN_VARIANTS(X_FFN) };
#undef X_FFN

// kinds that a flag sets, not a switch
#define NORM_KIND_VARIANTS(X) X(rms) X(ln)
#define SHARE_VARIANTS(X) X(none) X(heads)
#define SLOPES_VARIANTS(X) X(even) X(published)
#define ROPE_VARIANTS(X) X(none) X(linear) X(llama3) X(yarn) X(dynamic) X(longrope)
#define NORM_KIND_NAME(name, ...) NORM_KIND_##name,
#define SHARE_NAME(name, ...) SHARE_##name,
#define SLOPES_NAME(name, ...) SLOPES_##name,
#define ROPE_NAME(name, ...) ROPE_##name,
enum { NORM_KIND_VARIANTS(NORM_KIND_NAME) };
enum { SHARE_VARIANTS(SHARE_NAME) };
enum { SLOPES_VARIANTS(SLOPES_NAME) };
enum { ROPE_VARIANTS(ROPE_NAME) };

#define PRECISION_VARIANTS(X_PRECISION) \
    X_PRECISION(fp32, "float everywhere",    "the reference, and the default of BACKEND=cpu") \
    X_PRECISION(bf16, "bfloat16 and float",  "activations, weights in bf16; masters, sums in float")
#define BACKEND_VARIANTS(X_BACKEND) \
    X_BACKEND(cpu,    "cpu/",                "C++ with OpenMP, runs anywhere, as fast as it can") \
    X_BACKEND(cuda,   "cuda/",               "one GPU, sm_80 or newer; needs nvcc and cuBLASLt to build") \
    X_BACKEND(ref,    "reference.h",         "every operation as in a textbook: slow, for reading and checking")
#endif // BLOCK_VARIANTS_H
