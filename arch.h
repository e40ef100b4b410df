/*
arch.h -- ARCH, everything about a model that is not compiled in, and what its rows generate: the
struct, its checks, config.json both ways, its flags. The functions are in core/arch.cpp.

A row with nothing special about it is named nowhere else: a new one needs an edit here alone.
*/
#ifndef ARCH_H
#define ARCH_H
#include "core/common.h"
#include "rooms.h"
#include "core/switches.h"

// ---- ARCH. The struct, its checks, config.json both ways, the flags with their --help and the
// log's line are made from these rows. A key that is missing means the default, so a new row breaks
// no old checkpoint.
//
//  type   int, float, str, list: numbers with commas between, or kind: one of the names of a table;
//         low, high: what a number may be
//  by     what sets it: a flag of the commands in `cmds` (t train, b bench, p probe),
//         or a switch of the build
//  key    in config.json: Hugging Face's own, or one of the object "train_sink" or "rope_scaling"
//
//   (type,  field,        default,       cmds, by,                  key,                                    low, high, names, help)
#define ARCH(X) \
    X(int,   L,            0,             "tb", "--layers",          "num_hidden_layers",                   0, 10000,  "", "L, layers (0: the preset's)") \
    X(int,   NH,           0,             "tb", "--heads",           "num_attention_heads",                 0, 65535,  "", "NH, heads (0: the preset's)") \
    X(int,   KV,           0,             "tb", "--kv-heads",        "num_key_value_heads",                 0, 65535,  "", "KV, key/value heads (0: as many as heads)") \
    X(int,   C,            0,             "tb", "--width",           "hidden_size",                         0, 1 << 20, "", "C, channels (0: the preset's)") \
    X(int,   HS,           0,             "tb", "--head-dim",        "head_dim",                            0, 1 << 16, "", "HS, head size (0: width / heads)") \
    X(int,   F,            0,             "tb", "--ffn-width",       "intermediate_size",                   0, 1 << 24, "", "F, FFN width (0: the preset's)") \
    X(int,   V,            0,             "tb", "--vocab",           "vocab_size",                          0, 1 << 24, "", "V, vocabulary (0: the preset's, else the data's)") \
    X(int,   T,            0,             "tb", "--seq",             "max_position_embeddings",             0, (1 << 30) - 1, "", "T, tokens per sequence (0: the preset's)") \
    X(int,   context,      0,             "",   "",                  "train_sink.seq",                      0, (1 << 30) - 1, "", "T of the model that a run with a smaller --seq began with (0: T)") \
    /* norms */ \
    X(kind,  norm,         BUILD_NORM,    "",   "NORM",              "train_sink.norm",                     0, 0, NAMES_OF(NORM), "") \
    X(kind,  norm_kind,    NORM_KIND_rms, "tb", "--norm-kind",       "train_sink.norm_kind",                0, 0, NAMES_OF(NORM_KIND), "rms or ln, LayerNorm with a bias") \
    X(int,   norm_bias,    1,             "tb", "--norm-bias",       "train_sink.norm_bias",                0, 1, "", "0: LayerNorm without its bias") \
    X(float, eps,          1e-5f,         "tb", "--norm-eps",        "rms_norm_eps",                        0, 1, "", "added inside the root of every norm") \
    X(int,   norm_embed,   0,             "tb", "--norm-embed",      "train_sink.norm_embed",               0, 1, "", "1: a norm after the embedding") \
    X(int,   parallel,     0,             "tb", "--parallel",        "train_sink.parallel",                 0, 1, "", "1: attention and FFN read the same stream, x += attn(x) + ffn(x)") \
    /* biases of the products, the head */ \
    X(int,   qkv_bias,     0,             "tb", "--qkv-bias",        "train_sink.qkv_bias",                 0, 1, "", "1: q, k, v have biases") \
    X(int,   out_bias,     0,             "tb", "--out-bias",        "train_sink.out_bias",                 0, 1, "", "1: W_O has a bias") \
    X(int,   ffn_bias,     0,             "tb", "--ffn-bias",        "train_sink.ffn_bias",                 0, 1, "", "1: the FFN has biases") \
    X(int,   head_bias,    0,             "tb", "--head-bias",       "train_sink.head_bias",                0, 1, "", "1: lm_head has a bias") \
    X(int,   tied,         0,             "tb", "--tied",            "tie_word_embeddings",                 0, 1, "", "1: lm_head is the embedding") \
    X(float, embed_scale,  1,             "tb", "--embed-scale",     "train_sink.embed_scale",              1e-6, 1e6, "", "the embedding is multiplied by this") \
    X(float, logit_cap,    0,             "tb", "--logit-cap",       "train_sink.logit_cap",                0, 1e6, "", "logits are cap tanh(logit / cap) (0: as they are)") \
    X(float, logit_divisor, 1,            "tb", "--logit-divisor",   "train_sink.logit_divisor",            1e-6, 1e6, "", "logits are divided by this") \
    X(float, residual_scale, 1,           "tb", "--residual-scale",  "train_sink.residual_scale",           1e-6, 1e6, "", "NORM=pre: x += this times attn(x), and so the FFN") \
    /* positions */ \
    X(kind,  pe,           BUILD_PE,      "",   "PE",                "train_sink.pe",                       0, 0, NAMES_OF(PE), "") \
    X(float, rope_base,    10000,         "tb", "--rope-base",       "rope_theta",                          1e-3, 1e12, "", "base of the rotary angles") \
    X(float, rope_local,   0,             "tb", "--rope-local",      "train_sink.rope_local",               0, 1e12, "", "base in layers with a window, without scaling (0: --rope-base)") \
    X(float, rope_part,    1,             "tb", "--rope-part",       "train_sink.rope_part",                1e-3, 1, "", "share of a head's channels that rotate") \
    X(str,   rope_layers,  "",            "tb", "--rope-layers",     "train_sink.rope_layers",              0, 0, "", "a pattern of 1 and 0 over the layers, repeated: 1110 leaves every fourth without rotation (empty: all)") \
    X(kind,  slopes,       SLOPES_even,   "tb", "--alibi-slopes",    "train_sink.alibi_slopes",             0, 0, NAMES_OF(SLOPES), "PE=alibi: even, 2^(-8h/H), or published, as ALiBi's authors do if H is no power of two") \
    X(kind,  rope_scaling, ROPE_none,     "tb", "--rope-scaling",    "rope_scaling.rope_type",              0, 0, NAMES_OF(ROPE), "none, linear, llama3 or yarn, for contexts longer than trained") \
    X(float, rope_factor,  1,             "tb", "--rope-factor",     "rope_scaling.factor",                 1e-3, 1e6, "", "how many times longer than trained") \
    X(int,   rope_context, 8192,          "tb", "--rope-context",    "rope_scaling.original_max_position_embeddings", 1, (1 << 30) - 1, "", "llama3, yarn: the context that was trained") \
    X(float, rope_low,     1,             "tb", "--rope-low",        "rope_scaling.low_freq_factor",        0, 1e6, "", "llama3: turns per context below which a channel is stretched") \
    X(float, rope_high,    4,             "tb", "--rope-high",       "rope_scaling.high_freq_factor",       0, 1e6, "", "llama3: turns per context above which it is left alone") \
    X(float, rope_fast,    32,            "tb", "--rope-fast",       "rope_scaling.beta_fast",              0, 1e6, "", "yarn: as --rope-high") \
    X(float, rope_slow,    1,             "tb", "--rope-slow",       "rope_scaling.beta_slow",              0, 1e6, "", "yarn: as --rope-low") \
    X(float, rope_length,  0,             "tb", "--rope-length",     "rope_scaling.attention_factor",       0, 1e6, "", "yarn: scale of rotated vectors (0: from the factor)") \
    X(int,   rope_round,   1,             "tb", "--rope-round",      "rope_scaling.truncate",               0, 1, "", "yarn: 1 rounds the ends of the ramp to whole channels") \
    X(int,   rope_most,    0,             "",   "",                  "train_sink.rope_most",                0, (1 << 30) - 1, "", "tokens up to which the model is computed: beyond, its queries are scaled by position (0: all)") \
    X(list,  rope_short,   "",            "",   "",                  "rope_scaling.short_factor",           0, 0, "", "longrope: a number for each pair of channels, by which its angle is divided") \
    X(list,  rope_long,    "",            "",   "",                  "rope_scaling.long_factor",            0, 0, "", "the same beyond the context that was trained, which is not computed") \
    /* attention */ \
    X(kind,  bias,         BUILD_BIAS,    "",   "BIAS",              "train_sink.bias",                     0, 0, NAMES_OF(BIAS), "") \
    X(kind,  bias_share,   SHARE_none,    "tb", "--bias-share",      "train_sink.bias_share",               0, 0, NAMES_OF(SHARE), "learned biases: none (one for each head of keys and values) or heads (one for all)") \
    X(int,   k_dims,       0,             "tb", "--k-dims",          "train_sink.k_dims",                   0, 1 << 16, "", "learnable entries of k* (0: all; Table 13)") \
    X(str,   v_star,       "",            "tb", "--v-star",          "train_sink.v_star",                   0, 0, "", "BIAS=k: fixed v* of norm M, e1:M or ones:M (Table 5)") \
    X(float, attn_p,       1,             "tb", "--attn-p",          "train_sink.attn_p",                   1e-6, 1e6, "", "p of softmax_p and sigmoid_p (Eq. 43)") \
    X(float, attn_alpha,   1,             "tb", "--attn-alpha",      "train_sink.attn_alpha",               1e-6, 1e6, "", "rows of a normalized attention sum to this (Table 14)") \
    X(float, attn_bias,    0,             "tb", "--attn-bias-init",  "train_sink.attn_bias_init",           -1e6, 1e6, "", "ATTN=sigmoid and others without exp: added to every score, such as -ln T") \
    X(float, attn_cap,     50,            "tb", "--attn-cap",        "train_sink.attn_cap",                 1e-6, 1e6, "", "ATTN=softcap: scores are cap tanh(score / cap)") \
    X(float, score_scale,  0,             "tb", "--score-scale",     "train_sink.score_scale",              0, 1e6, "", "scores are q.k times this (0: 1 / sqrt(HS))") \
    X(int,   prefix,       0,             "tpb", "--prefix",         "train_sink.prefix",                   0, (1 << 30) - 1, "", "keys 1..P are visible to every query; the loss starts after them") \
    X(int,   window,       0,             "tpb", "--window",         "train_sink.window",                   0, (1 << 30) - 1, "", "query t sees keys t-W+1..t (0: all; section 6)") \
    X(str,   local,        "",            "tb", "--local-layers",    "train_sink.local_layers",             0, 0, "", "a pattern of 1 and 0 over the layers, repeated: 10 gives every other one the window (empty: all)") \
    X(kind,  qk_norm,      BUILD_QKNORM,  "",   "QKNORM",            "train_sink.qknorm",                   0, 0, NAMES_OF(QKNORM), "") \
    X(kind,  gate,         BUILD_GATE,    "",   "GATE",              "train_sink.gate",                     0, 0, NAMES_OF(GATE), "") \
    X(kind,  combine,      BUILD_COMBINE, "",   "COMBINE",           "train_sink.combine",                  0, 0, NAMES_OF(COMBINE), "") \
    X(kind,  ffn,          BUILD_FFN,     "",   "FFN",               "train_sink.ffn",                      0, 0, NAMES_OF(FFN), "") \
    OPEN_ARCH(X)

typedef int kind;
typedef std::string str;
typedef std::string list;
struct Arch {
    #define X(type, field, otherwise, ...) type field = otherwise;
    ARCH(X)
    #undef X
    str family; // the model_type that it was read as; it is written as that where that says it
};
#define ONE_ROW(...) +1
enum { ARCH_ROWS = 0 ARCH(ONE_ROW) };

// ---- what follows from a model's rows
inline const NormRow& norm_of(const Arch& arch) { return NORM_ROWS[arch.norm]; }
inline const BiasRow& bias_of(const Arch& arch) { return BIAS_ROWS[arch.bias]; }
inline const PeRow&   pe_of(const Arch& arch)   { return PE_ROWS[arch.pe]; }
inline const FfnRow&  ffn_of(const Arch& arch)  { return FFN_ROWS[arch.ffn]; }

// Reads the value for layer l of a pattern such as 1110, which repeats; an empty one says 1.
inline bool in_pattern(const std::string& pattern, int l) {
    return pattern.empty() || pattern[l % pattern.size()] == '1';
}

// Counts the rows of a learned bias: one for each key/value head (BIAS=v: for each head), or one
// for all.
inline int bias_rows(const Arch& arch) {
    if (arch.bias_share == SHARE_heads) { return 1; }
    return bias_of(arch).add_v ? arch.NH : arch.KV;
}

// Tells whether layer l has the window.
inline bool is_local(const Arch& arch, int l) { return arch.window && in_pattern(arch.local, l); }

// Reads the norm of BIAS=k's v*, M of e1:M or ones:M; 0 without one.
inline double v_star_norm(const Arch& arch) {
    const size_t colon = arch.v_star.find(':');
    if (colon == std::string::npos) { return 0; }
    return atof(arch.v_star.c_str() + colon + 1);
}

// Tells whether no output of this model depends on its extra column.
inline bool column_idle(const Arch& arch) {
    const BiasRow& bias = bias_of(arch);
    const bool has_v = bias.learn_v || v_star_norm(arch) != 0;
    return column_idle(Attn::Z, bias, has_v, Attn::sim(0.0f) == 0);
}

// Says so, and what would give it an effect; "" where it has one.
std::string column_note(const Arch& arch);

// Counts the heads that have the slopes 2^(-8h/n) of PE=alibi, the rest those between them: all, or
// the largest power of two.
inline int slope_heads(const Arch& arch) {
    if (arch.slopes != SLOPES_published) { return arch.NH; }
    int n = 1;
    while (2 * n <= arch.NH) { n *= 2; }
    return n;
}

// Names what layers have that have no attention, such as "Mamba"; NULL if all have it.
inline const char* mixer_of(const Arch& arch) {
    return open_files ? open_files->mixer(arch) : NULL;
}

// Names what a model has that only runs forward, such as "Mamba layers"; "" if all of it can be
// trained.
inline std::string forward_only_part(const Arch& arch) {
    return open_files ? open_files->forward_only(arch) : "";
}

// Counts the channels of a head that rotate.
inline int rotated(const Arch& arch) { return (int)(arch.HS * arch.rope_part) / 2 * 2; }

// ---- the rows, as data
enum ArchType { ARCH_int, ARCH_float, ARCH_str, ARCH_list, ARCH_kind };
struct ArchRow {
    ArchType type;
    const char* field;
    const char* cmds;
    const char* by;
    const char* key;
    double low;
    double high;
    const char* names;                           // of a kind, separated by blanks
    const char* help;
    void* at;                                    // in the struct that arch_rows was given
};

// Returns the rows, with places in arch.
std::vector<ArchRow> arch_rows(Arch* arch);

inline bool is_flag(const ArchRow& r) { return r.by[0] == '-'; }

// Returns "norm_kind" for "--norm-kind": a flag's name in the log has _ for -.
std::string log_name(const ArchRow& r);

// Returns the name of a kind's value.
std::string kind_name(const ArchRow& r);

// Sets a kind by name; false if it has no value of that name.
bool kind_set(const ArchRow& r, const std::string& name);

// Returns the value as words, or as JSON.
std::string arch_text(const ArchRow& r, bool json);

// Sets a row from words; returns "" or what was wanted.
std::string arch_set(const ArchRow& r, const std::string& text);

// Fills in what follows from the rest, and dies if the rows are not a model that this binary
// computes. where: "" for flags, else the config.json that the rows came from; errors then speak of
// its keys.
void arch_settle(Arch* arch, const std::string& where);

// ---- config.json

// Returns the object of config.json that a key is in, "" for the file itself.
std::string key_object(const ArchRow& r);

// Returns the name that the key has there.
std::string key_name(const ArchRow& r);

// Returns what an absent key of the object "train_sink" means in every build: the defaults, and of
// a kind the first of its table.
Arch arch_fixed();

// Tells whether transformers.LlamaForCausalLM can open it: if all that LLaMA's config cannot
// express has LLaMA's value. An allow-list.
bool is_llama(Arch arch);

// Adds the rows of one object of config.json: "", "rope_scaling" or "train_sink", of which only
// those that differ from arch_fixed.
void arch_fields(JsonObject* o, Arch arch, const std::string& object);

// Writes the rows of one object of config.json, in one line.
std::string arch_object(const Arch& arch, const std::string& object);

// Writes the value of a row as config.json has it.
std::string config_text(const ArchRow& r);

// Says what is wanted of a row's number where it is out of range, or "".
std::string arch_wrong(const ArchRow& r);

// Sets a row from JSON; dies if the type is wrong or the value out of range.
void arch_read(const ArchRow& r, const Json& v, const std::string& where);
#endif // ARCH_H
