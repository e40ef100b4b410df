/*
open/import_gguf.cpp -- translates GGUF's keys into a config.json and its tensors' names into
Hugging Face's, row by row of its tables.
*/
#include "import_gguf.h"
#include "gguf_families.h"

static void json_put(Json* j, const char* key, Json::Type type, double number,
                     const std::string& text) {
    Json v;
    v.type = type;
    v.number = number;
    v.string = text;
    j->fields.push_back({ key, v });
}

static void json_put(Json* j, const char* key, double number) {
    json_put(j, key, Json::NUMBER, number, strf("%.9g", number));
}

static void json_put(Json* j, const char* key, const char* text) {
    json_put(j, key, Json::STRING, 0, text);
}

static void json_put(Json* j, const char* key, bool yes) { json_put(j, key, Json::BOOL, yes, ""); }

[[noreturn]] static void refuse(const Gguf& g, const std::string& what) {
    die(g.weights.path + ": " + what, "give its Hugging Face directory");
}

static const GgufModel& gguf_model(const Gguf& g) {
    const std::string arch = gguf_string(g, "general.architecture");
    std::string known;
    for (auto& m : GGUF_MODELS) {
        if (arch == m.arch) { return m; }
        list_add(&known, m.arch);
    }
    die(g.weights.path + ": general.architecture is '" + arch + "', wanted " + known,
        "give its Hugging Face directory, config.json and .safetensors");
}

// Reads rope_freqs.weight, by which each frequency is divided. LLaMA 3.1 and 3.2 have it. It must
// be what their rule makes (rope_type llama3); the rule's factor is then the largest of them.
static void gguf_rope_factors(const Gguf& g, Json* config, double theta, double context) {
    const Weight* w = g.weights.find("rope_freqs.weight");
    if (!w) { return; }
    std::vector<float> by(w->count);
    weight_rows(*w, 0, w->rows(), by.data());
    const double factor = by.empty() ? 1 : *std::max_element(by.begin(), by.end());
    const double low = 1, high = 4;
    for (long i = 0; i < w->count; i++) {
        const double turns = context * pow(theta, -(double)i / w->count) / 6.283185307179586;
        const double blend = std::min(1.0, std::max(0.0, (turns - low) / (high - low)));
        const double wanted = 1 / ((1 - blend) / factor + blend);
        if (!(fabs(by[i] - wanted) <= 1e-4 * wanted)) {
            refuse(g, strf("rope_freqs.weight: got %g at %ld, wanted %g, LLaMA 3's rule", by[i], i,
                           wanted));
        }
    }
    Json rope;
    rope.type = Json::OBJECT;
    json_put(&rope, "rope_type", "llama3");
    json_put(&rope, "factor", factor);
    json_put(&rope, "low_freq_factor", low);
    json_put(&rope, "high_freq_factor", high);
    json_put(&rope, "original_max_position_embeddings", context);
    config->fields.push_back({ "rope_scaling", rope });
}

// Reads rope.scaling: none, linear or yarn.
static void gguf_rope_scaling(const Gguf& g, const std::string& arch, Json* config) {
    const std::string type = gguf_string(g, arch + "rope.scaling.type");
    if (type.empty() || type == "none") { return; }
    if (type != "linear" && type != "yarn") {
        refuse(g, arch + "rope.scaling.type is '" + type + "', wanted none, linear or yarn");
    }
    const std::string context = arch + "rope.scaling.original_context_length";
    Json rope;
    rope.type = Json::OBJECT;
    json_put(&rope, "rope_type", type.c_str());
    json_put(&rope, "factor", gguf_number(g, arch + "rope.scaling.factor", 1));
    if (arch == "gpt-oss.") { json_put(&rope, "truncate", false); }
    if (g.find(context)) {
        json_put(&rope, "original_max_position_embeddings", gguf_number(g, context, 0));
    }
    config->fields.push_back({ "rope_scaling", rope });
}

// Reads every key of the file that belongs to the model, by its name in config.json.
static void gguf_keys(const Gguf& g, const std::string& arch, Json* config) {
    for (auto& v : g.values) {
        const std::string& key = v.first;
        const std::string group = key.substr(0, key.find('.'));
        const bool file = group == "general" || group == "quantize" || group == "split";
        if (file || group == "tokenizer") { continue; }
        const char* name = NULL;
        for (auto& row : GGUF_CONFIG) {
            const bool has = !row[2] || arch == std::string(row[2]) + ".";
            if (has && key == arch + row[0]) { name = row[1]; }
        }
        const bool no_experts = key == arch + "expert_count" || key == arch + "expert_used_count";
        if (no_experts && gguf_number(g, key, 0) == 0) { continue; }
        if (!name) {
            refuse(g, "the key '" + key + "' is not understood, and may change what the model "
                      "computes");
        }
        if (!*name) { continue; }
        if (config->get(name)) {                         // the epsilons of RMS and LayerNorm
            refuse(g, "'" + key + "' says " + name + " once more");
        }
        const double number = gguf_number(g, key, 0);
        if (v.second.kind == GGUF_BOOL) {
            json_put(config, name, number != 0);
        } else {
            json_put(config, name, number);
        }
    }
}

// Adds what a family's config.json says and its file does not: what follows from the tensors.
static void gguf_family_keys(const Gguf& g, const std::string& arch, const std::string& type,
                             double head, Json* config) {
    auto number = [&](const char* key) { return gguf_number(g, arch + key, 0); };
    auto has = [&](const char* name) { return g.weights.find(name) != NULL; };
    const double heads = number("attention.head_count"), layers = number("block_count");
    if (type == "llama" || type == "granite") {
        json_put(config, "attention_bias", has("blk.0.attn_q.bias"));
        json_put(config, "mlp_bias", has("blk.0.ffn_up.bias"));
    }
    if (type == "gemma2" || type == "gemma3_text") {     // the 27B of each is the odd one
        const double whole = heads > 0 ? number("embedding_length") / heads : 0;
        const double odd = type == "gemma2" ? 46 : 62;
        json_put(config, "query_pre_attn_scalar", layers == odd ? whole : head);
    }
    if (type == "qwen3_moe") { json_put(config, "norm_topk_prob", true); }
    const Weight *experts = g.weights.find("blk.0.ffn_gate_exps.weight"),
                 *shared = g.weights.find("blk.0.ffn_gate_shexp.weight");
    const bool qwen = is_one_of(" qwen2_moe qwen3_moe ", type);
    if (qwen && experts && experts->shape.size() == 3 && !config->get("moe_intermediate_size")) {
        json_put(config, "moe_intermediate_size", (double)experts->shape[1]);
    }
    if (type == "qwen2_moe" && shared && !config->get("shared_expert_intermediate_size")) {
        json_put(config, "shared_expert_intermediate_size", (double)shared->rows());
    }
    const double width = number("expert_feed_forward_length"), ffn = number("feed_forward_length");
    if (type == "gpt_oss" && width != 0 && width != ffn) {
        refuse(g, strf("experts of a width of %g and of %g", width, ffn));
    }
    if (type == "stablelm") { json_put(config, "use_qkv_bias", has("blk.0.attn_q.bias")); }
    if (type == "gpt_neox") { json_put(config, "attention_bias", has("blk.0.attn_qkv.bias")); }
    if (type == "phi3") {
        json_put(config, "original_max_position_embeddings", number("context_length"));
    }
    if (type == "falcon") {
        const double kv = number("attention.head_count_kv");
        json_put(config, "multi_query", kv == 1);
        json_put(config, "new_decoder_architecture", kv > 1 && kv < heads);
        json_put(config, "num_kv_heads", kv);
        json_put(config, "bias", has("blk.0.attn_qkv.bias"));
    }
}

// Dies unless the rows are in the order that the family has in all files of llama.cpp's converters.
static void gguf_layout(const Gguf& g, const std::string& arch) {
    const std::string key = arch + "tensor_data_layout", layout = gguf_string(g, key),
                      usual = arch == "falcon." ? "jploski" : "Meta AI original pth";
    if (layout.empty() || layout == usual) { return; }
    refuse(g, key + " is '" + layout + "', wanted " + usual);
}

Json gguf_config(const Gguf& g) {
    const GgufModel& model = gguf_model(g);
    const std::string arch = std::string(model.arch) + ".";
    gguf_layout(g, arch);
    Json config;
    config.type = Json::OBJECT;
    const bool mistral = g.find("llama.attention.sliding_window") != NULL;
    const bool experts = gguf_number(g, "llama.expert_count", 0) > 0;
    std::string type = mistral ? "mistral" : model.model_type;
    if (experts) { type = "mixtral"; }
    json_put(&config, "model_type", type.c_str());
    if (model.key[0]) { json_put(&config, model.key, model.act); }
    gguf_keys(g, arch, &config);
    auto number = [&](const char* key, double otherwise) {
        return gguf_number(g, arch + key, otherwise);
    };
    const double heads = number("attention.head_count", 0), width = number("embedding_length", 0);
    const double head = number("attention.key_length", heads > 0 ? width / heads : 0);
    const double turns = number("rope.dimension_count", head);
    if (number("attention.value_length", head) != head) {
        die(g.weights.path + ": keys and values of different lengths",
            "docs/open-models.md lists the families that open");
    }
    const bool part = is_one_of(" phi stablelm gpt_neox ", type) || turns != head;
    if (part && head > 0) { json_put(&config, "partial_rotary_factor", turns / head); }
    gguf_rope_factors(g, &config, number("rope.freq_base", 10000),
                      number("rope.scaling.original_context_length", 8192));
    gguf_rope_scaling(g, arch, &config);
    const Weight* embedding = g.weights.find("token_embd.weight");
    json_put(&config, "vocab_size", embedding ? (double)embedding->rows() : 0);
    json_put(&config, "tie_word_embeddings", !g.weights.find("output.weight"));
    gguf_family_keys(g, arch, type, head, &config);
    return config;
}

// Returns Hugging Face's name of "blk.3.attn_q.weight" in a file of this form; "" if it is not
// known.
static std::string gguf_name(const std::string& form, const std::string& name) {
    const size_t dot = name.rfind('.');
    const std::string end = dot == std::string::npos ? "" : name.substr(dot);
    std::string layer, stem = name.substr(0, dot);
    if (starts_with(stem, "blk.")) {
        const size_t digits = stem.find_first_not_of("0123456789", 4);
        layer = stem.substr(4, digits == std::string::npos ? digits : digits - 4);
        stem.replace(4, layer.size(), "#");
    }
    std::string out;
    for (auto& row : GGUF_NAMES) {
        const bool of_form = !row[2] || form == row[2];
        if (of_form && stem == row[0]) { out = row[1]; }
    }
    if (out.empty() || (end != ".weight" && end != ".bias")) {
        return "";
    }
    const size_t number = out.find('#');
    if (number != std::string::npos) { out.replace(number, 1, layer); }
    return ends_with(out, ".sinks") ? out : out + end;
}

Weights gguf_weights(Gguf* g) {
    const GgufModel& model = gguf_model(*g);
    const std::string arch = std::string(model.arch) + ".";
    const long heads = (long)gguf_number(*g, arch + "attention.head_count", 0);
    const long kv = (long)gguf_number(*g, arch + "attention.head_count_kv", heads);
    Weights out;
    out.path = g->weights.path;
    out.maps.swap(g->weights.maps);
    const bool two_norms = g->weights.find("blk.0.attn_norm_2.weight");
    const std::string form = two_norms ? "two_norms" : model.form;
    for (Weight w : g->weights.tensors) {
        if (w.name == "rope_freqs.weight") { continue; } // gguf_config has read it
        const std::string name = gguf_name(form, w.name);
        if (name.empty()) {
            die(w.file + ": the tensor '" + w.name + "' is not understood",
                "give the model's Hugging Face directory");
        }
        const bool q = contains(w.name, ".attn_q.");
        const bool k = contains(w.name, ".attn_k.");
        if (form == "pairs" && (q || k)) {
            const long rows = w.shape.empty() ? 1 : w.shape[0], n = q ? heads : kv;
            if (n < 1 || rows % n || rows / n % 2) {
                die(strf("%s: tensor '%s' has %ld rows for %ld heads, wanted pairs of "
                    "rows in each", w.file.c_str(), w.name.c_str(), rows, n), GGUF_DAMAGED);
            }
            w.pairs = rows / n;
        }
        w.name = name;
        weights_add(&out, w);
    }
    return out;
}
