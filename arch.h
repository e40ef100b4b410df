/*
arch.h -- ARCH, everything about a model that is not compiled in, and what its rows generate: the
struct, its checks, config.json both ways, its flags. The functions are in core/arch.cpp.

Most rows are named nowhere else, so that a new one needs an edit only here.
*/
#ifndef ARCH_H
#define ARCH_H
#include "base/field.h"
#include "optional.h"
#include "core/switches.h"

enum { MOST_TOKENS = (1 << 30) - 1 };        // of a sequence

// ---- ARCH. These rows generate the struct, its checks, config.json both ways, the flags with
// their --help, and the log's line. A missing key means the default, so a new row breaks no old
// checkpoint.
//
//  type   int, float, str, list: numbers with commas between, or kind: one of the names of a table;
//         low, high: what a number may be
//  by     what sets it: a flag of the commands in `cmds` (t train, b bench, p probe), or a switch
//         of the build; "": only a config.json
//  key    in config.json: Hugging Face's own, or one of the object "train_sink" or "rope_scaling"
//  ...    of a flag that not every model reads, what does: READ_IF(condition, wanted), where `f` is
//         the Flags. Shorter: ROTATES_BASE, some layer rotates by --rope-base; IN_A_LAYER, some
//         layer has the window; OF_LLAMA3, OF_YARN, --rope-scaling is that. NOTED: a note where it
//         changes nothing (flags.h). The words are code in run/flag_rules.cpp alone
//
//        (type, field, default, cmds, by, key, low, high, names, help, ..), or shorter:
#define NUMBER(type, field, preset, by, key, low, high, ...) \
    X(type, field, preset, "tb", by, key, low, high, {}, __VA_ARGS__)
#define KIND(field, TABLE, preset, by, key, ...) \
    X(kind, field, row_named(TABLE##_ROWS, #preset), "tb", by, key, 0, 0, names_of(TABLE##_ROWS), \
      __VA_ARGS__)
#define SWITCH(field, NAME, key) \
    X(kind, field, BUILD_##NAME, "", #NAME, key, 0, 0, names_of(NAME##_ROWS), "")
#define ARCH(X) \
    NUMBER(int, L, 0, "--layers", "num_hidden_layers", 0, 10000, "L, layers (0: the preset's)") \
    NUMBER(int, NH, 0, "--heads", "num_attention_heads", 0, 65535, "NH, heads (0: the preset's)") \
    NUMBER(int, KV, 0, "--kv-heads", "num_key_value_heads", 0, 65535, "KV, key/value heads (0: as many as heads)") \
    NUMBER(int, C, 0, "--width", "hidden_size", 0, 1 << 20, "C, channels (0: the preset's)") \
    NUMBER(int, HS, 0, "--head-dim", "head_dim", 0, 1 << 16, "HS, head size (0: width / heads)") \
    NUMBER(int, F, 0, "--ffn-width", "intermediate_size", 0, 1 << 24, "F, FFN width (0: the preset's)") \
    NUMBER(int, V, 0, "--vocab", "vocab_size", 0, 1 << 24, "V, vocabulary (0: the preset's, else the data's)") \
    NUMBER(int, T, 0, "--seq", "max_position_embeddings", 0, MOST_TOKENS, "T, tokens per sequence (0: the preset's)") \
    X(int, context, 0, "", "", "train_sink.seq", 0, MOST_TOKENS, {}, "T of the model that a run with a smaller --seq began with (0: T)") \
    /* norms */ \
    SWITCH(norm, NORM, "train_sink.norm") \
    KIND(norm_kind, NORM_KIND, rms, "--norm-kind", "train_sink.norm_kind", "rms (RMSNorm) or ln (LayerNorm, with a bias)") \
    NUMBER(int, norm_bias, 1, "--norm-bias", "train_sink.norm_bias", 0, 1, "0: LayerNorm without its bias") \
    NUMBER(float, eps, 1e-5f, "--norm-eps", "rms_norm_eps", 0, 1, "added inside the root of every norm") \
    NUMBER(int, norm_embed, 0, "--norm-embed", "train_sink.norm_embed", 0, 1, "1: a norm after the embedding") \
    NUMBER(int, parallel, 0, "--parallel", "train_sink.parallel", 0, 1, "1: attention and FFN read the same stream, x += attn(x) + ffn(x)") \
    /* biases of the products, the head */ \
    NUMBER(int, qkv_bias, 0, "--qkv-bias", "train_sink.qkv_bias", 0, 1, "1: q, k, v have biases") \
    NUMBER(int, out_bias, 0, "--out-bias", "train_sink.out_bias", 0, 1, "1: W_O has a bias") \
    NUMBER(int, ffn_bias, 0, "--ffn-bias", "train_sink.ffn_bias", 0, 1, "1: the FFN has biases") \
    NUMBER(int, head_bias, 0, "--head-bias", "train_sink.head_bias", 0, 1, "1: lm_head has a bias") \
    NUMBER(int, tied, 0, "--tied", "tie_word_embeddings", 0, 1, "1: lm_head shares the embedding's weights") \
    NUMBER(float, embed_scale, 1, "--embed-scale", "train_sink.embed_scale", 1e-6, 1e6, "multiply the embedding by this") \
    NUMBER(float, logit_cap, 0, "--logit-cap", "train_sink.logit_cap", 0, 1e6, "cap the logits: cap tanh(logit / cap) (0: no cap)") \
    NUMBER(float, logit_divisor, 1, "--logit-divisor", "train_sink.logit_divisor", 1e-6, 1e6, "divide the logits by this") \
    NUMBER(float, residual_scale, 1, "--residual-scale", "train_sink.residual_scale", 1e-6, 1e6, \
      "NORM=pre: multiply each branch by this before it is added to x") \
    /* positions */ \
    SWITCH(pe, PE, "train_sink.pe") \
    NUMBER(float, rope_base, 10000, "--rope-base", "rope_theta", 1e-3, 1e12, "base of the rotary angles", ROTATES_BASE) \
    NUMBER(float, rope_local, 0, "--rope-local", "train_sink.rope_local", 0, 1e12, \
      "rotary base in windowed layers, which are not scaled (0: --rope-base)", \
      READ_IF(!f.arch.window || some_layer(f.arch, turns_locally), "a layer that has a window and rotates")) \
    NUMBER(float, rope_part, 1, "--rope-part", "train_sink.rope_part", 1e-3, 1, "fraction of a head's channels that rotate", \
      READ_IF(some_layer(f.arch, turns), "a layer that rotates")) \
    X(str, rope_layers, "", "tb", "--rope-layers", "train_sink.rope_layers", 0, 0, {}, \
      "layers that rotate, as a repeating pattern of 1 and 0: 1110 skips every fourth (empty: all)") \
    KIND(slopes, SLOPES, even, "--alibi-slopes", "train_sink.alibi_slopes", \
      "PE=alibi: even, 2^(-8h/H), or published, which follows ALiBi's authors if H is not a power of two", \
      READ_IF(f.arch.pe == PE_alibi, "PE=alibi")) \
    OPEN_POSITIONS(X) \
    /* attention */ \
    SWITCH(bias, BIAS, "train_sink.bias") \
    KIND(bias_share, SHARE, none, "--bias-share", "train_sink.bias_share", \
      "share the learned bias: none (one per key/value head) or heads (one for all heads)", \
      READ_IF(bias_of(f.arch).learn_k || bias_of(f.arch).add_v, "BIAS=k, v or kv")) \
    X(str, bias_layers, "", "tb", "--bias-layers", "train_sink.bias_layers", 0, 0, {}, \
      "layers that get what BIAS adds, as a repeating pattern of 1 and 0: 10 is every other one (empty: all)", \
      READ_IF(some_layer(f.arch, is_biased), "a 1 for one of the layers")) \
    NUMBER(int, k_dims, 0, "--k-dims", "train_sink.k_dims", 0, 1 << 16, "learnable entries of k* (0: all; Table 13)", \
      READ_IF(bias_of(f.arch).extra != LOGIT_EXTRA, "BIAS=k or kv")) \
    X(str, v_star, "", "tb", "--v-star", "train_sink.v_star", 0, 0, {}, "BIAS=k: fixed v* of norm M, e1:M or ones:M (Table 5)") \
    NUMBER(float, attn_p, 1, "--attn-p", "train_sink.attn_p", 1e-6, 1e6, "p of softmax_p and sigmoid_p (Eq. 43)") \
    NUMBER(float, attn_clip, 0, "--attn-clip", "train_sink.attn_clip", 0, 1e6, \
      "ATTN=softmax_clip: a weight p becomes max((1 + c) p - c, 0) with this c, for example 0.03") \
    NUMBER(float, attn_alpha, 1, "--attn-alpha", "train_sink.attn_alpha", 1e-6, 1e6, \
      "make the rows of a normalized attention sum to this (Table 14)") \
    NUMBER(float, attn_bias, 0, "--attn-bias-init", "train_sink.attn_bias_init", -1e6, 1e6, \
      "ATTN without exp, such as sigmoid: add this to every score, for example -ln T") \
    NUMBER(float, attn_cap, 50, "--attn-cap", "train_sink.attn_cap", 1e-6, 1e6, "ATTN=softcap: cap the scores, cap tanh(score / cap)") \
    NUMBER(float, score_scale, 0, "--score-scale", "train_sink.score_scale", 0, 1e6, "multiply q.k by this (0: 1 / sqrt(HS))") \
    X(int, prefix, 0, "tpb", "--prefix", "train_sink.prefix", 0, MOST_TOKENS, {}, \
      "keys 1..P are visible to every query; the loss starts after them") \
    X(int, window, 0, "tpb", "--window", "train_sink.window", 0, MOST_TOKENS, {}, "query t sees keys t-W+1..t (0: all; section 6)", \
      IN_A_LAYER, \
      NOTED(f.arch.window < f.arch.T || command != COMMAND_train, "is not less than", "seq", "the window never hides a key")) \
    X(str, local, "", "tb", "--local-layers", "train_sink.local_layers", 0, 0, {}, \
      "layers that have the window, as a repeating pattern of 1 and 0: 10 is every other one (empty: all)", IN_A_LAYER) \
    SWITCH(qk_norm, QKNORM, "train_sink.qknorm") \
    SWITCH(gate, GATE, "train_sink.gate") \
    SWITCH(combine, COMBINE, "train_sink.combine") \
    SWITCH(ffn, FFN, "train_sink.ffn") \
    OPEN_ARCH(X)

struct Arch {
    #define X(type, field, otherwise, ...) type field = otherwise;
    ARCH(X)
    #undef X
    str family; // the model_type it was read as, and is written as if it can be
};
#define X(...) +1
enum { ARCH_ROWS = 0 ARCH(X) };
#undef X

// ---- what follows from a model's rows
inline const NormRow& norm_of(const Arch& arch) { return NORM_ROWS[arch.norm]; }
inline const BiasRow& bias_of(const Arch& arch) { return BIAS_ROWS[arch.bias]; }
inline const PeRow&   pe_of(const Arch& arch)   { return PE_ROWS[arch.pe]; }
inline const FfnRow&  ffn_of(const Arch& arch)  { return FFN_ROWS[arch.ffn]; }

// Tells whether layer l is on in a repeating pattern such as 1110; an empty pattern means all
// layers.
inline bool in_pattern(const std::string& pattern, int l) {
    return pattern.empty() || pattern[l % pattern.size()] == '1';
}

// Counts the rows of a learned bias: one for each key/value head (BIAS=v: for each head), or one
// for all.
inline int bias_rows(const Arch& arch) {
    if (arch.bias_share == SHARE_heads) { return 1; }
    return bias_of(arch).add_v ? arch.NH : arch.KV;
}

// Tells whether layer l has what BIAS adds to a layer.
inline bool is_biased(const Arch& arch, int l) { return in_pattern(arch.bias_layers, l); }

// Tells whether layer l has the window.
inline bool is_local(const Arch& arch, int l) { return arch.window && in_pattern(arch.local, l); }

// Reads the norm of BIAS=k's v*, M of e1:M or ones:M; 0 without one.
inline double v_star_norm(const Arch& arch) {
    const size_t colon = arch.v_star.find(':');
    if (colon == std::string::npos) { return 0; }
    return atof(arch.v_star.c_str() + colon + 1);
}

// Tells whether no output of this model depends on its extra key.
inline bool extra_has_no_effect(const Arch& arch) {
    const BiasRow& bias = bias_of(arch);
    const bool has_v = bias.learn_v || v_star_norm(arch) != 0;
    return extra_has_no_effect(Attn::Z, bias, has_v, Attn::sim(0.0f) == 0);
}

// Returns notes on what is not what its name says: an operation that is another one with the value
// of its parameter; an extra key without effect, and what would give it one.
std::string arch_notes(const Arch& arch);

// Counts the heads that have the slopes 2^(-8h/n) of PE=alibi, the rest those between them: all, or
// the largest power of two.
inline int slope_heads(const Arch& arch) {
    if (arch.slopes != SLOPES_published) { return arch.NH; }
    int n = 1;
    while (2 * n <= arch.NH) { n *= 2; }
    return n;
}

// Names what layers without attention have in its place, such as "Mamba".
inline const char* mixer_of(const Arch& arch) {
    const char* mixer = open_files ? open_files->mixer(arch) : NULL;
    return mixer ? mixer : "nothing";
}

// Names what a model has that only runs forward, such as "Mamba layers"; "" if the whole model can
// be trained.
inline std::string forward_only_part(const Arch& arch) {
    return open_files ? open_files->forward_only(arch) : "";
}

// Counts the channels of a head that rotate.
inline int rotated(const Arch& arch) { return (int)(arch.HS * arch.rope_part) / 2 * 2; }

// ---- the rows, as data
struct ArchRow : Field {
    const char *cmds, *by, *key;
};

// Returns the rows, with places in arch.
std::vector<ArchRow> arch_rows(Arch* arch);

// Returns those that two models do not share, with places in a and in b.
std::vector<std::pair<ArchRow, ArchRow>> rows_apart(Arch* a, Arch* b);

inline bool is_flag(const ArchRow& r) { return r.by[0] == '-'; }

// Returns "norm_kind" for "--norm-kind": a flag's name in the log has _ for -.
std::string log_name(const ArchRow& r);

// Fills in the derived rows; dies if the rows are not a model that this binary can compute. where:
// "" for flags, else the config.json the rows came from, whose keys the errors then name.
void arch_settle(Arch* arch, const std::string& where);

// ---- config.json

// Returns the object of config.json that a key is in, "" for the file itself.
std::string key_object(const ArchRow& r);

// Returns the name that the key has there.
std::string key_name(const ArchRow& r);

// Returns what an absent key of the object "train_sink" means in every build: the defaults, and of
// a kind the first of its table.
Arch arch_fixed();

// Tells whether transformers.LlamaForCausalLM can open the model: whether everything that LLaMA's
// config cannot express has LLaMA's value.
bool is_llama(Arch arch);

// Adds the rows of the object "train_sink" of config.json that differ from arch_fixed.
void arch_fields(JsonObject* o, Arch arch);

// Writes the value of a row as config.json has it.
std::string config_text(const ArchRow& r);

// Sets a row from JSON; dies if the type is wrong or the value out of range.
void arch_read(const ArchRow& r, const Json& v, const std::string& where);
#endif // ARCH_H
