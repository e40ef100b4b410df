/*
models/import.cpp -- what import.h declares.
*/
#include "import.h"
#include <float.h>
#include "directory.h"
#include "../cpu/mapped_weights.h"

// ---- config.json, read key by key; what was never asked for is found at the end
struct Import {
    const Json& json;
    std::string where;
    const Family* family;
    Arch c;
    std::string attn;                            // the operation that the model wants
    std::set<std::string> used;
    std::map<std::string, std::string> said;     // by which key a row of ARCH was set
    std::set<std::string>* asked = NULL;         // all keys so far, for whoever writes one

    const Json* get(const std::string& key) {    // NULL if it is absent or null
        used.insert(key);
        if (asked) { asked->insert(key); }
        const Json* v = json.get(key.c_str());
        return v && v->type != Json::NUL ? v : NULL;
    }

    // a number that a float can hold; true and false are none
    double number(const std::string& key, double otherwise) {
        const Json* v = get(key);
        if (v && v->type != Json::NUMBER) { refuse(key, "a number"); }
        const double x = v ? fabs(v->number) : 0;
        if (x != 0 && !(x >= FLT_MIN && x <= FLT_MAX)) {
            refuse(key, "0, or from 1e-37 to 1e38 in size");
        }
        return v ? v->number : otherwise;
    }

    // a whole number, `least` or more, written without point and exponent
    int whole(const std::string& key, int otherwise, int least) {
        const Json* v = get(key);
        long n = otherwise;
        if (v && (v->type != Json::NUMBER || !parse_long(v->string, &n) || n < least ||
                  n > 1 << 30)) {
            refuse(key, strf("a whole number, %d or more", least));
        }
        return (int)n;
    }

    // true or false; other programs also write 1 and 0
    bool yes(const std::string& key, bool otherwise) {
        const Json* v = get(key);
        const bool number = v && v->type == Json::NUMBER && (v->number == 0 || v->number == 1);
        if (v && v->type != Json::BOOL && !number) { refuse(key, "true or false"); }
        return v ? v->number != 0 : otherwise;
    }

    std::string text(const std::string& key, const std::string& otherwise) {
        const Json* v = get(key);
        return v ? v->string : otherwise;
    }

    [[noreturn]] void refuse(const std::string& key, const std::string& wanted) {
        const Json* v = json.get(key.c_str());
        die(EXIT_USER,
            where + ": " + key + " is " + (v ? json_short(*v) : "missing") + ", wanted " + wanted,
            "this model computes something that train_sink does not");
    }
};

bool is_harmless(const std::string& key) { return directory_key("config.json", key) != NULL; }

// keys that say in what other form a model is
#define PARTS "it is a model of more than text"
#define PART_ALONE "give its language model alone, with a config.json of its own"
#define QUANTIZED "its weights are quantized in a form that this program does not read"
#define NOT_QUANTIZED "get the model as its authors trained it, or as a GGUF file"
static const struct { const char *key, *what, *hint; } KEYS_NOT_READ[] = {
    { "quantization_config", QUANTIZED, NOT_QUANTIZED },
    { "quantization", QUANTIZED, NOT_QUANTIZED },        // of mlx
    { "compression_config", QUANTIZED, NOT_QUANTIZED },
    { "vision_config", PARTS, PART_ALONE },
    { "text_config", PARTS, PART_ALONE },
    { "audio_config", PARTS, PART_ALONE },
};

// sets the row of ARCH with this field
static void import_set(Import* in, const std::string& field, const std::string& value) {
    for (auto& r : arch_rows(&in->c)) {
        if (field == r.field && !arch_set(r, value).empty()) {
            die(EXIT_USER, in->where + ": " + field + " " + value);
        }
    }
}

// "key:field" of another name, where the key is there. Two names must say the same, but for the
// width of experts, which stands beside that of layers without
static void import_renamed(Import* in, const std::string& pair) {
    const size_t colon = pair.find(':');
    const std::string key = pair.substr(0, colon), field = pair.substr(colon + 1);
    const Json* v = in->get(key);
    for (auto& r : arch_rows(&in->c)) {
        if (!v || field != r.field) { continue; }
        const std::string before = arch_text(r, true), other = in->said[field];
        arch_read(r, *v, in->where + ": " + key);
        if (!other.empty() && arch_text(r, true) != before && key != "moe_intermediate_size") {
            in->refuse(key, before + ", which " + other + " says");
        }
        in->said[field] = key;
    }
}

// "key=value": absent, or just this
static void import_wanted(Import* in, const std::string& pair) {
    const size_t equals = pair.find('=');
    const std::string key = pair.substr(0, equals), value = pair.substr(equals + 1);
    const Json* v = in->get(key);
    std::string got = v ? v->string : value;
    if (v && v->type == Json::BOOL) { got = v->number ? "true" : "false"; }
    if (got != value) { in->refuse(key, value); }
}

// what a kind of scaling has no default for
static void import_rope_needs(Import* in, const Json& rope, const std::string& how) {
    for (const std::string key : { "factor", "low_freq_factor", "high_freq_factor" }) {
        const Json* v = rope.get(key.c_str());
        const bool needed = how == "llama3" || (how != "default" && key == "factor");
        if (needed && (!v || v->type == Json::NUL)) {
            die(EXIT_USER, in->where + ": rope_type is '" + how + "', and there is no " + key,
                "get the model's config.json again");
        }
    }
    for (const std::string key : { "attention_factor", "beta_fast", "beta_slow" }) {
        const Json* v = rope.get(key.c_str());
        if (v && v->type == Json::NUMBER && !(v->number > 0)) {
            die(EXIT_USER,
                in->where + ": " + key + " is " + json_short(*v) + ", wanted more than 0");
        }
    }
}

// rope_scaling of transformers 4, rope_parameters of 5: the base, and how it is stretched. Keys of
// one layer type may be nested; `local` is that of layers with a window
static void import_rope_object(Import* in, const Json& rope, bool local) {
    const bool parts = strstr(in->family->keys, "partial_rotary_factor") != NULL;
    const Json *type = rope.get("rope_type"), *old = rope.get("type");
    std::string how = "default";
    if (type || old) { how = (type ? type : old)->string; }
    if (local && how != "default") {
        in->refuse("rope_parameters", "plain positions in layers with a window");
    }
    for (auto& r : arch_rows(&in->c)) {
        const bool scaling = !local && !strcmp(r.field, "rope_scaling") && how != "default";
        if (scaling && !kind_set(r, how)) {
            die(EXIT_USER,
                in->where + ": rope_type is '" + how + "', wanted default, linear, llama3 or yarn",
                "this model computes something that train_sink does not");
        }
    }
    import_rope_needs(in, rope, how);
    for (auto& f : rope.fields) {
        if (f.second.type == Json::NUL && f.first != "rope_theta") { continue; }
        bool known = f.first == "type" || f.first == "rope_type";
        for (auto& r : arch_rows(&in->c)) {
            const bool base = f.first == "rope_theta" &&
                              !strcmp(r.field, local ? "rope_local" : "rope_base");
            const bool part = parts && f.first == "partial_rotary_factor" &&
                              !strcmp(r.field, "rope_part");
            const bool scaling = !local && key_object(r) == "rope_scaling" &&
                                 key_name(r) == f.first;
            if (!base && !part && (!scaling || r.type == ARCH_kind)) { continue; }
            known = true;
            arch_read(r, f.second, in->where);
        }
        if (!known) {
            die(EXIT_USER, in->where + ": the rope key '" + f.first + "' is not understood",
                "this model computes something that train_sink does not");
        }
    }
}

static void import_window(Import* in, int otherwise) {
    in->c.window = in->whole("sliding_window", otherwise, 0);
}

static void import_rope(Import* in) {
    const Json *rope = in->get("rope_scaling"), *newer = in->get("rope_parameters");
    if (rope && newer) { in->refuse("rope_scaling", "null beside rope_parameters"); }
    if (newer) { rope = newer; }
    if (rope && rope->type != Json::OBJECT) {
        in->refuse(newer ? "rope_parameters" : "rope_scaling", "an object, or null");
    }
    if (rope) {
        const Json *full = rope->get("full_attention"), *local = rope->get("sliding_attention");
        if (full) { rope = full; }
        import_rope_object(in, *rope, false);
        if (local) {
            import_rope_object(in, *local, true);
            if (!(in->c.rope_local > 0)) { in->refuse("rope_parameters", "a rope_theta above 0"); }
        }
    }
    if (in->c.rope_scaling == ROPE_yarn || in->c.rope_scaling == ROPE_llama3) {
        const Json* context = rope ? rope->get("original_max_position_embeddings") : NULL;
        if (!context || context->type == Json::NUL) { in->c.rope_context = in->c.T; }
    }
}

// transformers has no one meaning for a pair of which half turns
static void import_rope_part(Import* in) {
    const int size = in->c.HS || in->c.NH < 1 ? in->c.HS : in->c.C / in->c.NH;
    const int turns = (int)(size * in->c.rope_part);
    if (pe_of(in->c).rotary && in->c.rope_part < 1 && turns % 2) {
        die(EXIT_USER, in->where + strf(": %d of %d channels of a head turn, wanted an even number",
            turns, size), "see partial_rotary_factor or rotary_pct");
    }
}

// an activation: their name, ours in a plain FFN, ours in a gated one. Of several names for one the
// first is written
static const char* const ACT_NAMES[][3] = {
    { "relu", "relu", "reglu" },
    { "relu2", "relu2", "" },
    { "gelu", "gelu", "geglu" },
    { "gelu_pytorch_tanh", "gelu_tanh", "geglu_tanh" },
    { "gelu_new", "gelu_tanh", "geglu_tanh" },
    { "gelu_fast", "gelu_tanh", "geglu_tanh" },
    { "silu", "swish", "swiglu" },
    { "swish", "swish", "swiglu" },
};

std::string activation_name(const Family& f, kind ffn) {
    for (auto& row : ACT_NAMES) {
        if (!strcmp(row[1 + f.gated], FFN_ROWS[ffn].name)) { return row[0]; }
    }
    return "";
}

// the activation, by the family's key; of Gemma's two the newer decides
static void import_activation(Import* in) {
    const bool gated = in->family->gated;
    bool decided = false;
    for (auto& key : split(in->family->act, ' ')) {
        const Json* v = in->get(key);
        if (!v || decided) { continue; }
        for (auto& row : ACT_NAMES) {
            if (v->string != row[0] || !row[1 + gated][0]) { continue; }
            decided = true;
            import_set(in, "ffn", row[1 + gated]);
        }
        if (!decided) { in->refuse(key, "relu, gelu, gelu_new, gelu_pytorch_tanh or silu"); }
    }
}

// layer_types, a list of full_attention and sliding_attention
static void import_layer_types(Import* in) {
    const Json* types = in->get("layer_types");
    if (!types) { return; }
    in->c.local.clear();
    for (auto& item : types->items) {
        if (item.string != "full_attention" && item.string != "sliding_attention") {
            in->refuse("layer_types", "full_attention and sliding_attention");
        }
        in->c.local += item.string == "sliding_attention" ? '1' : '0';
    }
    if ((int)types->items.size() != in->c.L) {
        in->refuse("layer_types", strf("%d layers", in->c.L));
    }
}

// a window in no layer is none, and in all is no pattern
static void import_window_settle(Arch* c) {
    if (!c->window || (!c->local.empty() && c->local.find('1') == std::string::npos)) {
        c->window = 0;
        c->local.clear();
    }
    if (!c->local.empty() && c->local.find('0') == std::string::npos) { c->local.clear(); }
    if (!c->window) { c->rope_local = 0; }
}

// ---- what the row of a family cannot say

static void more_llama(Import* in) {
    in->c.qkv_bias = in->c.out_bias = in->yes("attention_bias", false);
    in->c.ffn_bias = in->yes("mlp_bias", false);
    in->get("sliding_window");                   // transformers does not read it in this family
}

static void more_mistral(Import* in) {           // absent means 4096, null means none
    import_window(in, in->json.get("sliding_window") ? 0 : 4096);
}

static void more_smollm3(Import* in) {
    const Json* list = in->get("no_rope_layers");
    const int every = in->whole("no_rope_layer_interval", 4, 1);
    if (list && (int)list->items.size() < in->c.L) {
        in->refuse("no_rope_layers", strf("%d layers", in->c.L));
    }
    for (int l = 0; l < in->c.L; l++) {
        const Json* says = list ? &list->items[l] : NULL;
        if (says && says->type != Json::NUMBER && says->type != Json::BOOL) {
            in->refuse("no_rope_layers", "1 or 0 for each layer");
        }
        const bool turns = says ? says->number != 0 : (l + 1) % every != 0;
        in->c.rope_layers += turns ? '1' : '0';
    }
    in->c.qkv_bias = in->c.out_bias = in->yes("attention_bias", false);
    in->c.ffn_bias = in->yes("mlp_bias", false);
    import_wanted(in, "use_sliding_window=false");
    in->get("sliding_window"); in->get("max_window_layers");
    import_layer_types(in);
    if (in->c.local.find('1') != std::string::npos) { in->refuse("layer_types", "full_attention"); }
}

static void more_qwen(Import* in) {
    const bool slides = in->yes("use_sliding_window", false);
    const int from = in->whole("max_window_layers", 28, 0);
    const int window = in->whole("sliding_window", 4096, 0);
    if (slides) { in->c.window = window; }
    for (int l = 0; slides && l < in->c.L; l++) { in->c.local += l >= from ? '1' : '0'; }
    if (!slides) { in->get("layer_types"); } else { import_layer_types(in); }
}

static void more_qwen3(Import* in) {
    in->c.qkv_bias = in->c.out_bias = in->yes("attention_bias", false);
    if (!in->c.HS) { in->c.HS = 128; }
    more_qwen(in);
}

// Sets the factor of the embedding: the root of the width in float32, whatever type the weights are
// kept in. A model that computes in bf16 rounds it; one that transformers loads as float32 does
// not, nor does its GGUF file.
static void gemma_scale(Import* in) {
    in->c.embed_scale = sqrtf(in->c.C);
    if (!in->c.HS) { in->c.HS = 256; }
    import_wanted(in, "attention_bias=false");
    import_wanted(in, "use_bidirectional_attention=false");
}

static float gemma_score_scale(Import* in) {
    const float by = in->number("query_pre_attn_scalar", 256);
    if (!(by > 1e-12f && by < 1e12f)) {          // else its root would be nothing, or all
        in->refuse("query_pre_attn_scalar", "1e-12 to 1e12");
    }
    return 1 / sqrtf(by);
}

static void more_gemma(Import* in) {
    gemma_scale(in);
    in->c.ffn = FFN_geglu_tanh;                  // files that say gelu mean its tanh form
    for (const char* key : { "hidden_act", "hidden_activation" }) {
        const Json* v = in->get(key);
        if (v && v->string != "gelu" && v->string != "gelu_pytorch_tanh") {
            in->refuse(key, "gelu_pytorch_tanh");
        }
    }
}

// absent means Gemma 2's own, null means none
static double gemma2_cap(Import* in, const char* key, double otherwise) {
    const double cap = in->number(key, in->json.get(key) ? 0 : otherwise);
    if (in->get(key) && !(cap > 0)) { in->refuse(key, "more than 0, or null"); }
    return cap;
}

static void more_gemma2(Import* in) {
    gemma_scale(in);
    in->c.score_scale = gemma_score_scale(in);
    const double cap = gemma2_cap(in, "attn_logit_softcapping", 50);
    in->c.logit_cap = gemma2_cap(in, "final_logit_softcapping", 30);
    if (cap) { in->attn = "softcap"; in->c.attn_cap = cap; }
    import_window(in, 4096);
    if (in->whole("sliding_window_size", in->c.window, 0) != in->c.window) {
        in->refuse("sliding_window_size", strf("%d, as sliding_window", in->c.window));
    }
    in->c.local = "10";
    import_layer_types(in);
}

static void more_gemma3(Import* in) {
    gemma_scale(in);
    in->c.score_scale = gemma_score_scale(in);
    in->get("attn_logit_softcapping");           // never passed on in this family
    in->c.logit_cap = in->number("final_logit_softcapping", 0);
    import_window(in, 4096);
    const int written = in->whole("_sliding_window_pattern", 6, 1),
              every = in->whole("sliding_window_pattern", written, 1);
    for (int l = 0; l < in->c.L; l++) { in->c.local += (l + 1) % every ? '1' : '0'; }
    import_layer_types(in);
    const Json* rope = in->get("rope_parameters");
    if (rope && !rope->get("full_attention")) {
        in->refuse("rope_parameters", "full_attention and sliding_attention");
    }
    in->c.rope_local = in->number("rope_local_base_freq", 10000);
    if (!(in->c.rope_local > 0)) { in->refuse("rope_local_base_freq", "more than 0"); }
}

static void more_olmo2(Import* in) {
    in->c.qkv_bias = in->c.out_bias = in->yes("attention_bias", false);
}

static void more_gpt2(Import* in) {
    if (!in->c.F) { in->c.F = 4 * in->c.C; }
    in->get("n_ctx"); in->get("n_inner");
}

// no scaling of the scores; attention_types: [[["global","local"], 6]]
static void more_gpt_neo(Import* in) {
    in->c.score_scale = 1;
    in->c.window = in->whole("window_size", 256, 1);
    if (!in->c.F) { in->c.F = 4 * in->c.C; }
    const Json* layers = in->get("attention_layers");
    const Json* types = in->get("attention_types");
    std::vector<std::string> names;
    for (size_t i = 0; layers && i < layers->items.size(); i++) {
        names.push_back(layers->items[i].string);
    }
    for (size_t i = 0; !layers && types && i < types->items.size(); i++) {
        const Json& group = types->items[i];
        if (group.items.size() != 2) { in->refuse("attention_types", "[[[names], times], ..]"); }
        for (int n = 0; n < group.items[1].number && (int)names.size() <= in->c.L; n++) {
            for (auto& name : group.items[0].items) { names.push_back(name.string); }
        }
    }
    if ((int)names.size() != in->c.L) {
        in->refuse("attention_types", strf("%d layers of global or local", in->c.L));
    }
    for (auto& name : names) {
        if (name != "global" && name != "local") {
            in->refuse("attention_types", "global and local");
        }
        in->c.local += name == "local" ? '1' : '0';
    }
}

static void more_opt(Import* in) {
    if (in->get("rms_norm_eps")) { in->refuse("rms_norm_eps", "none: there it is always 1e-5"); }
    if (!in->yes("do_layer_norm_before", true)) { in->c.norm = NORM_post; }
    in->get("word_embed_proj_dim");              // the shapes of project_in and project_out say it
    in->c.qkv_bias = in->c.out_bias = in->c.ffn_bias = in->yes("enable_bias", true);
}

static void more_neox(Import* in) {
    in->c.parallel = in->yes("use_parallel_residual", true);
    in->c.qkv_bias = in->c.out_bias = in->yes("attention_bias", true);
}

static void more_phi3(Import* in) {
    import_window(in, 0);
    in->get("original_max_position_embeddings"); // only longrope reads it, and that is refused
}

static void more_stablelm(Import* in) {
    in->c.qkv_bias = in->yes("use_qkv_bias", false);
}

static void more_falcon(Import* in) {
    const bool grouped = in->yes("new_decoder_architecture", false),
               multi = in->yes("multi_query", true);
    const int kv = in->whole("num_kv_heads", in->whole("n_head_kv", in->c.NH, 1), 1);
    in->c.KV = multi ? 1 : in->c.NH;
    if (grouped) { in->c.KV = kv; }
    in->c.parallel = in->yes("parallel_attn", true) || grouped;
    in->whole("num_ln_in_parallel_attn", 0, 0);    // the names of the norms say it
    in->c.qkv_bias = in->c.out_bias = in->c.ffn_bias = in->yes("bias", false);
    // there the positions are divided by the root of the head size
    import_wanted(in, "alibi=false");
    in->c.F = in->whole("ffn_hidden_size", 4 * in->c.C, 1);
    if (in->number("ff_factor", 4) * in->c.C != in->c.F && in->get("ff_factor")) {
        in->refuse("ff_factor", strf("what makes ffn_hidden_size, %d", in->c.F));
    }
    if (!in->c.T) { in->c.T = 2048; }
}

static void more_bloom(Import* in) {
    in->c.F = in->whole("n_inner", 4 * in->c.C, 1);
    in->c.T = in->whole("seq_length", 2048, 1);
    import_wanted(in, "apply_residual_connection_post_layernorm=false");
    if (in->c.NH & (in->c.NH - 1)) {
        in->refuse("n_head", "a power of two: other slopes are not built in");
    }
}

static void more_mixtral(Import* in) {
    import_window(in, 0);
}

// experts in every layer, as Qwen's config.json says it
static void all_experts(Import* in) {
    in->c.expert_shares = !in->yes("norm_topk_prob", false);
    if (in->whole("decoder_sparse_step", 1, 0) != 1) { in->refuse("decoder_sparse_step", "1"); }
    const Json* dense = in->get("mlp_only_layers");
    if (dense && (dense->type != Json::ARRAY || !dense->items.empty())) {
        in->refuse("mlp_only_layers", "experts in all layers");
    }
}

static void more_qwen2_moe(Import* in) {
    all_experts(in);
    in->c.qkv_bias = in->yes("qkv_bias", true);
    more_qwen(in);
    if (in->c.window && !in->get("layer_types")) {       // its default is another than Qwen2's
        in->refuse("use_sliding_window", "false, or layer_types");
    }
}

static void more_qwen3_moe(Import* in) {
    all_experts(in);
    in->c.qkv_bias = in->c.out_bias = in->yes("attention_bias", false);
    more_qwen(in);                               // which layers it means depends on the version
    if (in->c.window) { in->refuse("use_sliding_window", "false"); }
}

static void more_gpt_oss(Import* in) {
    import_wanted(in, "attention_bias=true");
    if (in->number("swiglu_alpha", 1.702) != 1.702) { in->refuse("swiglu_alpha", "1.702"); }
    if (!(in->c.expert_limit > 0)) { in->refuse("swiglu_limit", "more than 0"); }
    const int used = in->c.experts_used;         // that the file says twice
    if (in->whole("experts_per_token", used, 0) != used) {
        in->refuse("experts_per_token", strf("%d, as num_experts_per_tok", used));
    }
    if (!in->get("rope_scaling") && !in->get("rope_parameters")) {
        in->refuse("rope_scaling", "its object");
    }
    const Json* packed = in->get("quantization_config");
    const Json* method = packed ? packed->get("quant_method") : NULL;
    if (packed && (!method || method->string != "mxfp4")) {
        in->refuse("quantization_config", "quant_method mxfp4");
    }
    import_window(in, 128);
    in->c.local = "10";
    import_layer_types(in);
}

// "0100": one layer of every `period`, from layer `offset` on
static std::string jamba_pattern(Import* in, const std::string& what, int period, int offset) {
    const int every = in->whole(what + "_layer_period", period, 1),
              first = in->whole(what + "_layer_offset", offset, 0);
    std::string pattern;
    for (int l = 0; l < in->c.L; l++) { pattern += l % every == first ? '1' : '0'; }
    return pattern;
}

static void more_jamba(Import* in) {
    import_wanted(in, "hidden_act=silu");        // which the Mamba layers use, too
    in->c.attn_layers = jamba_pattern(in, "attn", 8, 4);
    in->c.expert_layers = jamba_pattern(in, "expert", 2, 1);
    const bool none = in->c.expert_layers.find('1') == std::string::npos;
    if (in->c.experts <= 1 || none) {
        in->c.experts = in->c.experts_used = 0;
        in->c.expert_layers.clear();
    }
    const double width = (double)in->whole("mamba_expand", 2, 1) * in->c.C;
    if (width > 1 << 20) { in->refuse("mamba_expand", "a width of less than 2^20 channels"); }
    in->c.mamba_width = width;
    const Json* rank = in->json.get("mamba_dt_rank");
    const bool automatic = !rank || (rank->type == Json::STRING && rank->string == "auto");
    in->used.insert("mamba_dt_rank");
    in->c.mamba_rank = automatic ? (in->c.C + 15) / 16 : in->whole("mamba_dt_rank", 0, 1);
    if (in->whole("sliding_window", 0, 0) != 0) { in->refuse("sliding_window", "null"); }
    for (const char* key : { "use_mamba_kernels", "use_mambapy", "use_associative_scan", "n_ctx",
                             "num_logits_to_keep", "calc_logits_for_entire_prompt" }) {
        in->get(key);                            // they say how it is computed, not what
    }
}

// what GPT-2 and GPT-Neo call the same
#define GPT2_ROWS \
    { "model.embed_tokens", "wte", AS_IT_IS }, \
    { "model.embed_positions", "wpe", AS_IT_IS }, \
    { "input_layernorm", "h.N.ln_1", AS_IT_IS }, \
    { "post_attention_layernorm", "h.N.ln_2", AS_IT_IS }, \
    { "mlp.up_proj", "h.N.mlp.c_fc", AS_IT_IS }, \
    { "mlp.down_proj", "h.N.mlp.c_proj", AS_IT_IS }, \
    { "model.norm", "ln_f", AS_IT_IS }, \
    { "lm_head", "lm_head", AS_IT_IS }
static const NameRow GPT2_NAMES[] = {
    GPT2_ROWS,
    { "self_attn.q_proj", "h.N.attn.c_attn", STACKED_Q },
    { "self_attn.k_proj", "h.N.attn.c_attn", STACKED_K },
    { "self_attn.v_proj", "h.N.attn.c_attn", STACKED_V },
    { "self_attn.o_proj", "h.N.attn.c_proj", AS_IT_IS },
    { NULL, NULL, AS_IT_IS }
};
static const NameRow GPT_NEO_NAMES[] = {
    GPT2_ROWS,
    { "self_attn.q_proj", "h.N.attn.attention.q_proj", AS_IT_IS },
    { "self_attn.k_proj", "h.N.attn.attention.k_proj", AS_IT_IS },
    { "self_attn.v_proj", "h.N.attn.attention.v_proj", AS_IT_IS },
    { "self_attn.o_proj", "h.N.attn.attention.out_proj", AS_IT_IS },
    { NULL, NULL, AS_IT_IS }
};
// the rows that do not depend on where the norms are
#define OPT_ROWS \
    { "model.embed_tokens", "embed_tokens", AS_IT_IS }, \
    { "lm_head", "lm_head", AS_IT_IS }, \
    { "model.embed_positions", "embed_positions", SKIP_TWO }, \
    { "self_attn.q_proj", "layers.N.self_attn.q_proj", AS_IT_IS }, \
    { "self_attn.k_proj", "layers.N.self_attn.k_proj", AS_IT_IS }, \
    { "self_attn.v_proj", "layers.N.self_attn.v_proj", AS_IT_IS }, \
    { "self_attn.o_proj", "layers.N.self_attn.out_proj", AS_IT_IS }, \
    { "mlp.up_proj", "layers.N.fc1", AS_IT_IS }, \
    { "mlp.down_proj", "layers.N.fc2", AS_IT_IS }

static const NameRow OPT_NAMES[] = {
    OPT_ROWS,
    { "input_layernorm", "layers.N.self_attn_layer_norm", AS_IT_IS },
    { "post_attention_layernorm", "layers.N.final_layer_norm", AS_IT_IS },
    { "model.norm", "final_layer_norm", AS_IT_IS },
    { NULL, NULL, AS_IT_IS }
};
// of do_layer_norm_before false: norms of the stream
static const NameRow OPT_POST_NAMES[] = {
    OPT_ROWS,
    { "post_attention_layernorm", "layers.N.self_attn_layer_norm", AS_IT_IS },
    { "post_feedforward_layernorm", "layers.N.final_layer_norm", AS_IT_IS },
    { NULL, NULL, AS_IT_IS }
};
static const NameRow NEOX_NAMES[] = {
    { "model.embed_tokens", "gpt_neox.embed_in", AS_IT_IS },
    { "lm_head", "embed_out", AS_IT_IS },
    { "input_layernorm", "gpt_neox.layers.N.input_layernorm", AS_IT_IS },
    { "post_attention_layernorm", "gpt_neox.layers.N.post_attention_layernorm", AS_IT_IS },
    { "self_attn.q_proj", "gpt_neox.layers.N.attention.query_key_value", GROUPS_Q },
    { "self_attn.k_proj", "gpt_neox.layers.N.attention.query_key_value", GROUPS_K },
    { "self_attn.v_proj", "gpt_neox.layers.N.attention.query_key_value", GROUPS_V },
    { "self_attn.o_proj", "gpt_neox.layers.N.attention.dense", AS_IT_IS },
    { "mlp.up_proj", "gpt_neox.layers.N.mlp.dense_h_to_4h", AS_IT_IS },
    { "mlp.down_proj", "gpt_neox.layers.N.mlp.dense_4h_to_h", AS_IT_IS },
    { "model.norm", "gpt_neox.final_layer_norm", AS_IT_IS },
    { NULL, NULL, AS_IT_IS }
};
static const NameRow PHI_NAMES[] = { // one norm for both branches
    { "model.embed_tokens", "model.embed_tokens", AS_IT_IS },
    { "lm_head", "lm_head", AS_IT_IS },
    { "input_layernorm", "model.layers.N.input_layernorm", AS_IT_IS },
    { "post_attention_layernorm", "model.layers.N.input_layernorm", AS_IT_IS },
    { "self_attn.q_proj", "model.layers.N.self_attn.q_proj", AS_IT_IS },
    { "self_attn.k_proj", "model.layers.N.self_attn.k_proj", AS_IT_IS },
    { "self_attn.v_proj", "model.layers.N.self_attn.v_proj", AS_IT_IS },
    { "self_attn.o_proj", "model.layers.N.self_attn.dense", AS_IT_IS },
    { "mlp.up_proj", "model.layers.N.mlp.fc1", AS_IT_IS },
    { "mlp.down_proj", "model.layers.N.mlp.fc2", AS_IT_IS },
    { "model.norm", "model.final_layernorm", AS_IT_IS },
    { NULL, NULL, AS_IT_IS }
};
static const NameRow PHI3_NAMES[] = {
    { "model.embed_tokens", "model.embed_tokens", AS_IT_IS },
    { "lm_head", "lm_head", AS_IT_IS },
    { "input_layernorm", "model.layers.N.input_layernorm", AS_IT_IS },
    { "post_attention_layernorm", "model.layers.N.post_attention_layernorm", AS_IT_IS },
    { "self_attn.q_proj", "model.layers.N.self_attn.qkv_proj", STACKED_Q },
    { "self_attn.k_proj", "model.layers.N.self_attn.qkv_proj", STACKED_K },
    { "self_attn.v_proj", "model.layers.N.self_attn.qkv_proj", STACKED_V },
    { "self_attn.o_proj", "model.layers.N.self_attn.o_proj", AS_IT_IS },
    { "mlp.gate_proj", "model.layers.N.mlp.gate_up_proj", FIRST_HALF },
    { "mlp.up_proj", "model.layers.N.mlp.gate_up_proj", LAST_ROWS },
    { "mlp.down_proj", "model.layers.N.mlp.down_proj", AS_IT_IS },
    { "model.norm", "model.norm", AS_IT_IS },
    { NULL, NULL, AS_IT_IS }
};
#define FALCON_NAMES(ATTN_NORM, FFN_NORM)                                             \
    {                                                                                 \
        { "model.embed_tokens", "word_embeddings", AS_IT_IS },                        \
            { "model.embed_norm", "word_embeddings_layernorm", AS_IT_IS },            \
            { "input_layernorm", ATTN_NORM, AS_IT_IS },                               \
            { "post_attention_layernorm", FFN_NORM, AS_IT_IS },                       \
            { "self_attn.q_proj", "h.N.self_attention.query_key_value", GROUPS_Q },   \
            { "self_attn.k_proj", "h.N.self_attention.query_key_value", GROUPS_K },   \
            { "self_attn.v_proj", "h.N.self_attention.query_key_value", GROUPS_V },   \
            { "self_attn.o_proj", "h.N.self_attention.dense", AS_IT_IS },             \
            { "mlp.up_proj", "h.N.mlp.dense_h_to_4h", AS_IT_IS },                     \
            { "mlp.down_proj", "h.N.mlp.dense_4h_to_h", AS_IT_IS },                   \
            { "model.norm", "ln_f", AS_IT_IS }, { "lm_head", "lm_head", AS_IT_IS }, { \
            NULL, NULL, AS_IT_IS                                                      \
        }                                                                             \
    }
static const NameRow FALCON_ONE_NORM[] = FALCON_NAMES("h.N.input_layernorm", "h.N.input_layernorm");
static const NameRow FALCON_TWO_NORMS[] = FALCON_NAMES("h.N.ln_attn", "h.N.ln_mlp");
static const NameRow BLOOM_NAMES[] = FALCON_NAMES("h.N.input_layernorm",
                                                  "h.N.post_attention_layernorm");

static const NameRow JAMBA_NAMES[] = {
    { "model.embed_tokens", "model.embed_tokens", AS_IT_IS },
    { "model.norm", "model.final_layernorm", AS_IT_IS },
    { "lm_head", "lm_head", AS_IT_IS },
    { "input_layernorm", "model.layers.N.input_layernorm", AS_IT_IS },
    { "post_attention_layernorm", "model.layers.N.pre_ff_layernorm", AS_IT_IS },
    { "self_attn.*", "model.layers.N.self_attn.*", AS_IT_IS },
    { "mamba*", "model.layers.N.mamba*", AS_IT_IS },
    { "mlp.*", "model.layers.N.feed_forward.*", AS_IT_IS },
    { NULL, NULL, AS_IT_IS },
};

// Of GGUF files, by what import_gguf.h calls their tensors: in its place if the family has a table
// of its own. A row counts if its tensor is there: q, k and v may be one, gate and up one, and
// attention's norm the FFN's, too.
static const NameRow GGUF_FAMILY_NAMES[] = {
    { "model.embed_tokens", "model.embed_tokens", AS_IT_IS },
    { "model.embed_norm", "model.embed_norm", AS_IT_IS },
    { "model.embed_positions", "model.embed_positions", AS_IT_IS },
    { "model.norm", "model.norm", AS_IT_IS },
    { "lm_head", "lm_head", AS_IT_IS },
    { "input_layernorm", "model.layers.N.input_layernorm", AS_IT_IS },
    { "post_attention_layernorm", "model.layers.N.post_attention_layernorm", AS_IT_IS },
    { "post_attention_layernorm", "model.layers.N.input_layernorm", AS_IT_IS },
    { "self_attn.q_proj", "model.layers.N.self_attn.q_proj", AS_IT_IS },
    { "self_attn.k_proj", "model.layers.N.self_attn.k_proj", AS_IT_IS },
    { "self_attn.v_proj", "model.layers.N.self_attn.v_proj", AS_IT_IS },
    { "self_attn.q_proj", "model.layers.N.self_attn.qkv_proj", STACKED_Q },
    { "self_attn.k_proj", "model.layers.N.self_attn.qkv_proj", STACKED_K },
    { "self_attn.v_proj", "model.layers.N.self_attn.qkv_proj", STACKED_V },
    { "self_attn.o_proj", "model.layers.N.self_attn.o_proj", AS_IT_IS },
    { "mlp.gate_proj", "model.layers.N.mlp.gate_proj", AS_IT_IS },
    { "mlp.gate_proj", "model.layers.N.mlp.up_proj", FIRST_HALF },
    { "mlp.up_proj", "model.layers.N.mlp.up_proj", LAST_ROWS },
    { "mlp.down_proj", "model.layers.N.mlp.down_proj", AS_IT_IS },
    { NULL, NULL, AS_IT_IS },
};
static const char* const GPT2_KEYS =
    "n_embd:C n_head:NH n_layer:L n_positions:T n_inner:F layer_norm_epsilon:eps";
// type, rows, keys, wanted, act, gated, more, prefix, names, transposed, plus_one: struct Family
static const Family FAMILIES[] = {
    { "llama", "eps=1e-6", "", "rope_interleaved=false", "hidden_act", true, more_llama, "", NULL,
      false, false },
    { "mistral", "eps=1e-6 KV=8", "", "", "hidden_act", true, more_mistral, "", NULL, false,
      false },
    { "smollm3", "eps=1e-6 KV=4 tied=1 rope_base=2000000", "", "", "hidden_act", true, more_smollm3,
      "", NULL, false, false },
    { "qwen2", "eps=1e-6 qkv_bias=1", "", "use_mrope=false", "hidden_act", true, more_qwen, "",
      NULL, false, false },
    { "qwen3", "eps=1e-6 qk_norm=head", "", "", "hidden_act", true, more_qwen3, "", NULL, false,
      false },
    { "gemma", "eps=1e-6 tied=1", "", "", "hidden_activation hidden_act", true, more_gemma, "",
      NULL, false, true },
    { "gemma2", "eps=1e-6 tied=1 norm=sandwich ffn=geglu_tanh", "", "",
      "hidden_activation hidden_act", true, more_gemma2, "", NULL, false, true },
    { "gemma3_text", "eps=1e-6 tied=1 norm=sandwich ffn=geglu_tanh qk_norm=head rope_base=1000000",
      "", "", "hidden_activation hidden_act", true, more_gemma3, "", NULL, false, true },
    { "mixtral", "eps=1e-5 KV=8 rope_base=1000000 experts=8 experts_used=2",
      "num_local_experts:experts num_experts_per_tok:experts_used", "", "hidden_act", true,
      more_mixtral, "", NULL, false, false },
    { "qwen2_moe", "eps=1e-6 KV=16 qkv_bias=1 experts=60 experts_used=4 F=1408 shared_expert=5632",
      "num_local_experts:experts num_experts:experts num_experts_per_tok:experts_used "
      "moe_intermediate_size:F shared_expert_intermediate_size:shared_expert",
      "", "hidden_act", true, more_qwen2_moe, "", NULL, false, false },
    { "qwen3_moe", "eps=1e-6 KV=4 qk_norm=head experts=128 experts_used=8 F=768",
      "num_local_experts:experts num_experts:experts num_experts_per_tok:experts_used "
      "moe_intermediate_size:F",
      "", "hidden_act", true, more_qwen3_moe, "", NULL, false, false },
    { "gpt_oss", "eps=1e-5 KV=8 HS=64 bias=logit qkv_bias=1 out_bias=1 ffn_bias=1 router_bias=1 "
      "rope_base=150000 experts=128 experts_used=4 expert_limit=7",
      "num_local_experts:experts num_experts_per_tok:experts_used swiglu_limit:expert_limit",
      "", "hidden_act", true, more_gpt_oss, "", NULL, false, false },
    { "jamba",
      "eps=1e-6 KV=8 pe=nope experts=16 experts_used=2 expert_shares=1 mamba_state=16 mamba_conv=4",
      "num_local_experts:experts num_experts:experts num_experts_per_tok:experts_used "
      "mamba_d_state:mamba_state mamba_d_conv:mamba_conv",
      "mamba_conv_bias=true mamba_proj_bias=false mamba_inner_layernorms=true", "hidden_act", true,
      more_jamba, "", JAMBA_NAMES, false, false },
    { "olmo2", "eps=1e-5 norm=branch qk_norm=all", "", "", "hidden_act", true, more_olmo2, "", NULL,
      false, false },
    { "phi3", "eps=1e-5", "partial_rotary_factor:rope_part", "attention_bias=false", "hidden_act",
      true, more_phi3, "", PHI3_NAMES, false, false },
    { "stablelm", "eps=1e-5 norm_kind=ln rope_part=0.25",
      "layer_norm_eps:eps partial_rotary_factor:rope_part",
      "use_parallel_residual=false qk_layernorm=false", "hidden_act", true, more_stablelm, "", NULL,
      false, false },
    { "gpt2",
      "eps=1e-5 norm_kind=ln tied=1 pe=learnable qkv_bias=1 out_bias=1 ffn_bias=1 ffn=gelu_tanh",
      GPT2_KEYS,
      "scale_attn_weights=true scale_attn_by_inverse_layer_idx=false reorder_and_upcast_attn=false "
      "n_special=0",
      "activation_function", false, more_gpt2, "transformer.", GPT2_NAMES, true, false },
    { "gpt_neo", "eps=1e-5 norm_kind=ln tied=1 pe=learnable out_bias=1 ffn_bias=1 ffn=gelu_tanh",
      "num_layers:L num_heads:NH layer_norm_epsilon:eps", "", "activation_function", false,
      more_gpt_neo, "transformer.", GPT_NEO_NAMES, false, false },
    { "opt", "eps=1e-5 norm_kind=ln tied=1 pe=learnable ffn=relu", "ffn_dim:F",
      "layer_norm_elementwise_affine=true _remove_final_layer_norm=false", "activation_function",
      false, more_opt, "model.decoder.", OPT_NAMES, false, false },
    { "gpt_neox", "eps=1e-5 norm_kind=ln ffn_bias=1 ffn=gelu rope_part=0.25",
      "layer_norm_eps:eps rotary_pct:rope_part rotary_emb_base:rope_base "
      "partial_rotary_factor:rope_part",
      "", "hidden_act", false, more_neox, "", NEOX_NAMES, false, false },
    { "phi",
      "eps=1e-5 norm_kind=ln parallel=1 qkv_bias=1 out_bias=1 ffn_bias=1 head_bias=1 ffn=gelu_tanh "
      "rope_part=0.5",
      "layer_norm_eps:eps partial_rotary_factor:rope_part", "qk_layernorm=false", "hidden_act",
      false, NULL, "", PHI_NAMES, false, false },
    { "falcon", "eps=1e-5 norm_kind=ln tied=1 ffn=gelu", "layer_norm_epsilon:eps",
      "apply_residual_connection_post_layernorm=false", "activation", false, more_falcon,
      "transformer.", FALCON_ONE_NORM, false, false },
    { "bloom",
      "eps=1e-5 norm_kind=ln norm_embed=1 tied=1 pe=alibi qkv_bias=1 out_bias=1 ffn_bias=1 "
      "ffn=gelu_tanh",
      "n_embed:C n_layer:L n_head:NH layer_norm_epsilon:eps", "", "", false, more_bloom,
      "transformer.", BLOOM_NAMES, false, false },
};

const Family* family_named(const std::string& type) {
    for (auto& f : FAMILIES) { if (type == f.type) { return &f; } }
    return NULL;
}

const Family* family_of(const Json& config) {
    const Json* type = config.get("model_type");
    const bool ours = config.get("train_sink") && (!type || type->string == "llama");
    return type && !ours ? family_named(type->string) : NULL;
}

Family family_of_file(const Json& config, bool gguf) {
    Family f = *family_of(config);
    f.transposed = f.transposed && !gguf;
    f.plus_one = f.plus_one && !gguf;
    if (f.names && gguf) { f.names = GGUF_FAMILY_NAMES; }
    return f;
}

// "gptneox" of "GPTNeoXForCausalLM" and of "gpt_neox"
static std::string class_stem(std::string name) {
    for (const char* tail : { "ForCausalLM", "LMHeadModel", "TextModel", "Model", "_text" }) {
        if (ends_with(name, tail)) { name.resize(name.size() - strlen(tail)); break; }
    }
    std::string stem;
    for (char ch : name) { if (ch != '_') { stem += (char)tolower((unsigned char)ch); } }
    return stem;
}

// Is it a class that computes this family's logits, or its layers alone?
static bool is_own_class(const std::string& type, const std::string& name) {
    const bool kind = ends_with(name, "ForCausalLM") || ends_with(name, "LMHeadModel") ||
                      ends_with(name, "Model");
    return kind && class_stem(name) == class_stem(type);
}

// architectures and auto_map: the model's class. Another one than the family's computes something
// else; code beside the weights (auto_map) passes if it is the family's own class, which came from
// there.
static void import_class(Import* in) {
    const std::string type = in->family->type;
    const Json *classes = in->get("architectures"), *code = in->get("auto_map");
    for (size_t i = 0; classes && i < classes->items.size(); i++) {
        const Json& name = classes->items[i];
        if (is_own_class(type, name.string)) { continue; }
        die(EXIT_USER, in->where + ": architectures names " + directory_value(name) +
                           ", wanted a class of the family " + type + ", such as its ForCausalLM",
            "if these weights are a plain " + type + ", remove architectures from this file");
    }
    for (size_t i = 0; code && i < code->fields.size(); i++) {
        const std::string key = code->fields[i].first, value = code->fields[i].second.string;
        const bool model = key == "AutoModelForCausalLM" || key == "AutoModel";
        if (!model || is_own_class(type, value.substr(value.rfind('.') + 1))) { continue; }
        die(EXIT_USER, in->where + ": auto_map: " + key + " is " + json_str(value) +
                           ": code beside the weights, which is not run",
            "if these weights are a plain " + type + ", remove auto_map from this file");
    }
}

Arch arch_import(const Json& json, const std::string& where, std::string* attn,
                 std::set<std::string>* asked) {
    const Family* family = family_of(json);
    Import in = { json, where, family, Arch(), "softmax", {}, {}, asked };
    std::string all;
    for (auto& f : FAMILIES) { all += std::string(all.empty() ? "" : ", ") + f.type; }
    if (!family) { in.refuse("model_type", "one of: " + all); }
    // the first value of every switch
    for (auto& r : arch_rows(&in.c)) { if (r.type == ARCH_kind) { *(kind*)r.at = 0; } }
    for (auto& row : split(family->rows, ' ')) {
        import_set(&in, row.substr(0, row.find('=')), row.substr(row.find('=') + 1));
    }
    for (auto& r : arch_rows(&in.c)) {
        const Json* v = key_object(r).empty() ? in.get(r.key) : NULL;
        if (!v) { continue; }
        arch_read(r, *v, where);
        in.said[r.field] = r.key;
    }
    for (auto& pair : split(family->keys, ' ')) { import_renamed(&in, pair); }
    for (auto& pair : split(family->wanted, ' ')) { import_wanted(&in, pair); }
    import_activation(&in);
    const Json* pruned = in.get("pruned_heads");
    if (pruned && !(pruned->fields.empty() && pruned->items.empty())) {
        in.refuse("pruned_heads", "none");
    }
    if (family->more) { family->more(&in); }
    import_rope(&in);
    import_rope_part(&in);
    import_window_settle(&in.c);
    import_class(&in);
    for (auto& f : json.fields) {
        const KeyRow* row = directory_key("config.json", f.first);
        if (row) { directory_value_check(*row, where, f.first, f.second); }
        if (in.used.count(f.first) || row) { continue; }
        for (auto& k : KEYS_NOT_READ) {
            if (f.first == k.key) {
                die(EXIT_USER, where + ": " + f.first + ": " + k.what, k.hint);
            }
        }
        die(EXIT_USER,
            where + ": the key '" + f.first +
                "' is not understood, and may change what the model computes",
            "does the code of its authors read it? only if not, take it out of a copy of the file");
    }
    // the numbers that were worked out, by the keys they are worked out from
    static const char* const FROM[][2] = {
        { "logit_cap", "final_logit_softcapping" }, { "attn_cap", "attn_logit_softcapping" },
        { "mamba_rank", "mamba_dt_rank" },          { "rope_local", "rope_local_base_freq" },
        { "window", "sliding_window" },             { "score_scale", "query_pre_attn_scalar" },
    };
    for (auto& r : arch_rows(&in.c)) {
        const std::string wanted = arch_wrong(r);
        if (wanted.empty()) { continue; }
        std::string key = in.said.count(r.field) ? in.said[r.field] : r.key;
        for (auto& from : FROM) { if (!strcmp(r.field, from[0])) { key = from[1]; } }
        die(EXIT_USER, where + ": " + key + " is " + arch_text(r, false) + ", wanted " + wanted);
    }
    *attn = in.attn;
    return in.c;
}

// ---- weights by our names

OurName our_name(const std::string& name) {
    OurName n;
    const char* inside = "model.layers.";
    std::string rest = name;
    if (name.compare(0, strlen(inside), inside) == 0) {
        const size_t begin = strlen(inside), dot = name.find('.', begin);
        n.layer = name.substr(begin, dot - begin);
        rest = name.substr(dot + 1);
    }
    const size_t dot = rest.rfind('.');
    n.stem = rest.substr(0, dot);
    n.kind = rest.substr(dot);                   // ".weight" or ".bias"
    return n;
}

// Is it this one of our names, or, if that ends in *, any that begins so? The * of *theirs becomes
// the rest of the name
static bool name_fits(const std::string& stem, const std::string& ours, std::string* theirs) {
    if (ours.back() != '*') { return stem == ours; }
    const size_t n = ours.size() - 1;
    if (stem.compare(0, n, ours, 0, n)) { return false; }
    theirs->replace(theirs->size() - 1, 1, stem.substr(n));
    return true;
}

const NameRow* family_names(const Family& family, const Arch& c, bool two_norms) {
    if (family.names == OPT_NAMES && c.norm == NORM_post) { return OPT_POST_NAMES; }
    if (family.names != FALCON_ONE_NORM) { return family.names; }
    if (!c.parallel) { return BLOOM_NAMES; }
    return two_norms ? FALCON_TWO_NORMS : FALCON_ONE_NORM;
}

bool family_name(const Family& family, const NameRow* names, const std::string& ours,
                 std::string* theirs, Fold* fold) {
    const OurName n = our_name(ours);
    *fold = AS_IT_IS;
    *theirs = ours;
    if (!names) { return true; }
    for (; names->ours; names++) {
        *theirs = names->theirs;
        if (!name_fits(n.stem, names->ours, theirs)) { continue; }
        const size_t at = theirs->find(".N.");
        if (at != std::string::npos) { theirs->replace(at + 1, 1, n.layer); }
        const bool head = n.stem == "lm_head";   // beside the model, whose prefix it has not
        *theirs = (head ? "" : family.prefix) + *theirs + n.kind;
        *fold = names->fold;
        return true;
    }
    return false;
}

TensorSource import_source(const Family& family, const Arch& c, const Weights& files,
                           const std::string& ours) {
    const OurName n = our_name(ours);
    const std::string norm = "h.0.ln_attn.weight";
    const bool two = files.find(family.prefix + norm) || files.find(norm);
    const NameRow* names = family_names(family, c, two);
    if (!names) { return { files.find(ours), AS_IT_IS }; }
    // one norm may serve both halves of a layer only where these are parallel
    const bool phi = !strcmp(family.type, "phi"), falcon = !strcmp(family.type, "falcon"),
               shares = c.parallel && (phi || falcon);
    for (; names->ours; names++) {
        std::string theirs = names->theirs;
        if (!name_fits(n.stem, names->ours, &theirs)) { continue; }
        const bool second = n.stem == "post_attention_layernorm";
        if (second && !shares && theirs == "model.layers.N.input_layernorm") { continue; }
        const size_t at = theirs.find(".N.");
        if (at != std::string::npos) { theirs.replace(at + 1, 1, n.layer); }
        for (const std::string& prefix :
             { std::string(family.prefix), std::string("decoder."), std::string() }) {
            const Weight* w = files.find(prefix + theirs + n.kind);
            if (w) { return { w, names->fold }; }
        }
    }
    return { NULL, AS_IT_IS };
}

long import_row(Fold fold, const Arch& c, long i, long theirs_rows) {
    const long HS = c.HS, group = c.NH / c.KV, h = i / HS, d = i % HS, width = (group + 2) * HS;
    switch (fold) {
        case STACKED_K:   return (long)c.NH * HS + i;
        case STACKED_V:   return (long)(c.NH + c.KV) * HS + i;
        case GROUPS_Q:    return h / group * width + h % group * HS + d;
        case GROUPS_K:    return h * width + group * HS + d;
        case GROUPS_V:    return h * width + (group + 1) * HS + d;
        case LAST_ROWS:   return theirs_rows - c.F + i;
        case SKIP_TWO:    return i + 2;
        default:          return i;
    }
}

long import_rows(Fold fold, const Arch& c, long n, long R) {
    switch (fold) {
        case STACKED_Q: case STACKED_K: case STACKED_V:
        case GROUPS_Q: case GROUPS_K: case GROUPS_V: return ((long)c.NH + 2 * c.KV) * c.HS;
        case FIRST_HALF: return 2L * c.F;
        case LAST_ROWS: return R == n ? n : 2L * c.F;            // of GGUF: fused or by itself
        case SKIP_TWO: return n + 2;
        default: return n;
    }
}

// Is a matrix only read row by row, by products and the embedding?
static bool read_by_rows(const std::string& name) {
    return ends_with(name, "_proj.weight") || ends_with(name, "lm_head.weight") ||
           ends_with(name, "embed_tokens.weight");
}

bool weight_stays(const Weight& w, long rows, std::function<long(long)> row_of, const float* out) {
    if (!w.type->read || !cpu::stays_mapped(w.type->name)) { return false; }
    std::vector<const unsigned char*> row;
    for (long i = 0; i < rows; i++) { row.push_back(weight_row(w, row_of(i))); }
    const long cols = w.cols();
    const auto read = w.type->read;
    cpu::mapped_add(out, { rows, cols, [=](long r, float* to) { read(row[r], cols, to); },
                           cpu::row_dot(w.type->name), row, cpu::row_to_int8(w.type->name) });
    return true;
}

double floats_spared(const Json& config, const Weights& files) {
    const Family* family = family_of(config);
    if (!family) { return 0; }
    const bool turned = family_of_file(config, ends_with(files.path, ".gguf")).transposed;
    double spared = 0;
    for (auto& w : files.tensors) {
        const bool matrix = w.shape.size() == 2 && !turned, stays = cpu::stays_mapped(w.type->name);
        if (matrix && stays && w.type->read) { spared += 4.0 * w.count - w.bytes; }
        if (ends_with(w.name, "_blocks") && cpu::stays_mapped("MXFP4")) { spared += 7.0 * w.bytes; }
    }
    return spared;
}

std::string import_tensor(const Family& family, const Arch& c, const Weights& files,
                          const std::string& name, long rows, long cols, float* out,
                          std::set<std::string>* used) {
    const TensorSource from = import_source(family, c, files, name);
    if (!from.w) { return "is missing"; }
    used->insert(from.w->name);
    const Weight& w = *from.w;
    const bool vector = w.shape.size() == 1, layer = !our_name(name).layer.empty(),
               turned = family.transposed && !vector && layer;
    long R = vector ? w.count : w.rows(), K = vector ? 1 : w.cols();
    if (turned) { std::swap(R, K); }
    const long n = vector ? rows * cols : rows, k = vector ? 1 : cols;
    if (K != k) { return strf("has rows of %ld numbers, wanted %ld", K, k); }
    const long there = import_rows(from.fold, c, n, R);
    if (R != there) { return strf("has %ld rows, wanted %ld", R, there); }
    for (long i = 0; i < n; i++) {
        const long r = import_row(from.fold, c, i, R);
        if (r < 0 || r >= R) { return strf("has %ld rows, wanted %ld", R, n); }
    }
    const bool whole = vector || turned;
    std::vector<float> theirs(whole ? w.count : 0);
    weight_rows(w, 0, whole ? w.rows() : 0, theirs.data());      // dies if the type has no reader
    const auto row_of = [&](long i) { return import_row(from.fold, c, i, R); };
    if (!whole && read_by_rows(name) && weight_stays(w, n, row_of, out)) { return ""; }
    #pragma omp parallel for
    for (long i = 0; i < n; i++) {
        const long r = row_of(i);
        if (!whole) { weight_rows(w, r, r + 1, out + i * K); }
        for (long j = 0; whole && j < K; j++) {
            out[i * K + j] = turned ? theirs[j * R + r] : theirs[r * K + j];
        }
    }
    const bool norm = name.find("norm.weight") != std::string::npos;
    for (long i = 0; family.plus_one && norm && i < n * k; i++) { out[i] += 1; }
    return "";
}

bool import_projected(const Weights& files, const Arch& c, const std::string& name, float* out,
                      std::set<std::string>* used) {
    const bool head = name == "lm_head.weight";
    const Weight* E = files.find("model.decoder.embed_tokens.weight");
    const Weight* P = files.find(std::string("model.decoder.project_") +
                                 (head ? "out.weight" : "in.weight"));
    if (!E || !P || (!head && name != "model.embed_tokens.weight")) { return false; }
    used->insert({ E->name, P->name });
    std::vector<float> e(E->count), p(P->count);
    weight_rows(*E, 0, E->rows(), e.data());
    weight_rows(*P, 0, P->rows(), p.data());
    const long W = E->cols(), C = c.C;
    if (E->rows() != c.V || P->count != W * C) {
        die(EXIT_USER, P->file + ": project_in and project_out do not fit");
    }
    for (long v = 0; v < c.V; v++) {
        for (long i = 0; i < C; i++) {
            double sum = 0;
            for (long k = 0; k < W; k++) {
                sum += (double)e[v * W + k] * (head ? p[k * C + i] : p[i * W + k]);
            }
            out[v * C + i] = sum;
        }
    }
    return true;
}

bool is_buffer(const std::string& name) {
    for (const char* tail :
         { "rotary_emb.inv_freq", ".attn.bias", ".attn.masked_bias", ".attention.bias",
           ".attention.masked_bias", "attn.attention.bias", "attn.attention.masked_bias" }) {
        if (ends_with(name, tail)) { return true; }
    }
    return false;
}
