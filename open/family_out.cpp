/*
open/family_out.cpp -- writes config.json by a table of keys, reads it back to see that nothing is
lost, then names the tensors.
*/
#include "family_out.h"
#include "rope.h"

// model_type, its class in transformers, and what is left out: fields of ARCH that its config.json
// has no key for, or says with a key of KEYS; keys of those that transformers does not read there
static const struct { const char *name, *architecture, *without = ""; } WRITTEN[] = {
    { "llama",       "LlamaForCausalLM",    " sliding_window use_sliding_window " },
    { "mistral",     "MistralForCausalLM" },
    { "qwen2",       "Qwen2ForCausalLM" },
    { "qwen3",       "Qwen3ForCausalLM" },
    { "olmo2",       "Olmo2ForCausalLM" },
    { "olmo3",       "Olmo3ForCausalLM",    " rope_base " },
    { "smollm3",     "SmolLM3ForCausalLM" },
    { "gemma",       "GemmaForCausalLM" },
    { "gemma2",      "Gemma2ForCausalLM" },
    { "gemma3_text", "Gemma3ForCausalLM" },
    { "phi3",        "Phi3ForCausalLM" },
    { "stablelm",    "StableLmForCausalLM", " HS " },
    { "gpt_neox",    "GPTNeoXForCausalLM",  " KV HS " },
    { "phi",         "PhiForCausalLM" },
    { "gptj",        "GPTJForCausalLM",     " KV HS rope_base " },
    { "ernie4_5",    "Ernie4_5ForCausalLM" },
    { "gpt2",        "GPT2LMHeadModel",     " KV HS rope_base " },
    { "gpt_neo",     "GPTNeoForCausalLM",   " KV HS rope_base " },
    { "opt",         "OPTForCausalLM",      " KV HS eps rope_base " },
    { "falcon",      "FalconForCausalLM",   " KV HS " },
    { "bloom",       "BloomForCausalLM",    " KV HS rope_base " },
    { "granite",     "GraniteForCausalLM",  " score_scale " },
    { "mpt",         "MptForCausalLM",      " KV HS F rope_base logit_scale " },
    { "exaone4",     "Exaone4ForCausalLM" },
    { "glm",         "GlmForCausalLM" },
    { "glm4",        "Glm4ForCausalLM" },
    { "cohere",      "CohereForCausalLM" },
    { "cohere2",     "Cohere2ForCausalLM" },
    { "nemotron",    "NemotronForCausalLM" },
    { "arcee",       "ArceeForCausalLM" },
    { "helium",      "HeliumForCausalLM" },
    { "seed_oss",    "SeedOssForCausalLM" },
    { "starcoder2",  "Starcoder2ForCausalLM" },
};

std::vector<std::string> families_written() { return names_of(WRITTEN); }

// ---- config.json

static std::string whole(int v) { return strf("%d", v); }

// Writes a number with a point: where transformers wants a float, it rejects 30 and takes 30.0.
static std::string pointed(float v) {
    const std::string text = float_text(v);
    return text.find_first_of(".en") == std::string::npos ? text + ".0" : text;
}

static std::string some(float v) { return v ? pointed(v) : "null"; }

// Writes a list of one word per layer.
static std::string by_layer(const Arch& c, std::function<std::string(int l)> word) {
    std::vector<std::string> words;
    for (int l = 0; l < c.L; l++) { words.push_back(word(l)); }
    return json_list(words, JSON_SPACED);
}

static std::string window_layers(const Arch& c, const char* local, const char* full) {
    return by_layer(c, [&](int l) { return json_str(is_local(c, l) ? local : full); });
}

// Finds the layer from which all have the window, as Qwen counts them.
static int first_local(const Arch& c) {
    int l = 0;
    while (l < c.L && !is_local(c, l)) { l++; }
    return l;
}

static float score_scale(const Arch& c) {
    return c.score_scale ? c.score_scale : 1 / sqrtf(c.HS);
}

// Returns the number whose root divides Gemma's scores.
static std::string score_divisor(const Arch& c) {
    if (!c.score_scale) { return whole(c.HS); }
    const double by = 1 / ((double)c.score_scale * c.score_scale);
    return float_text(fabs(by - round(by)) < 1e-3 ? round(by) : by);
}

static bool grouped(const Arch& c) { return c.KV > 1 && c.KV < c.NH; }

typedef std::vector<std::pair<std::string, std::string>> Fields;         // key, value as JSON

// Lists what families say of a model beside the rows of ARCH. A key goes into a config.json if the
// family's reader asks for it.
static Fields other_keys(const Arch& c) {
    return {
        { "rotary_dim", whole(rotated(c)) },
        { "do_layer_norm_before", json_bool(c.norm != NORM_post) },
        { "word_embed_proj_dim", whole(c.C) },
        { "sliding_window", c.window ? whole(c.window) : "null" },
        { "use_sliding_window", json_bool(c.window) },
        { "max_window_layers", whole(first_local(c)) },
        { "layer_types", window_layers(c, "sliding_attention", "full_attention") },
        { "window_size", whole(c.window ? c.window : 256) },
        { "attention_types", "[[" + window_layers(c, "local", "global") + ", 1]]" },
        { "no_rope_layers",
          by_layer(c, [&](int l) { return whole(in_pattern(c.rope_layers, l)); }) },
        { "query_pre_attn_scalar", score_divisor(c) },
        { "attn_logit_softcapping", build::Attn::capped ? some(c.attn_cap) : "null" },
        { "final_logit_softcapping", some(c.logit_cap) },
        { "rope_local_base_freq", pointed(c.rope_local ? c.rope_local : 10000) },
        { "new_decoder_architecture", json_bool(grouped(c)) },
        { "multi_query", json_bool(c.KV == 1) },
        { "num_kv_heads", whole(c.KV) },
        { "attention_multiplier", pointed(score_scale(c)) },
        { "attn_config", "{\"alibi\": true, \"alibi_bias_max\": 8, \"softmax_scale\": " +
                         some(c.score_scale) + "}" },
        { "logit_scale", pointed(1 / c.logit_divisor) },
    };
}

// Returns the family's key of a field of ARCH: its own name, or that which all have.
static std::string family_key(const Family& f, const ArchRow& r) {
    for (auto& pair : split(f.keys, ' ')) {
        const auto [key, field] = halves_of(pair, ':');
        if (field == r.field) { return key; }
    }
    return r.key;
}

static bool has_key(const Fields& fields, const std::string& key) {
    for (auto& f : fields) { if (f.first == key) { return true; } }
    return false;
}

// Writes the positions of one type of layers.
static std::string rope_object(const Arch& c, float base, bool scaled) {
    JsonObject o(JSON_SPACED);
    o.json("rope_theta", pointed(base));
    if (scaled) { rope_fields(&o, c); } else { o.text("rope_type", "default"); }
    return o.all();
}

// Writes those of layers with a window and without, as OLMo 3 has them: there, transformers 5 takes
// a rope_theta beside them for one type alone.
static std::string both_ropes(const Arch& c) {
    JsonObject o(JSON_SPACED);
    o.json("full_attention", rope_object(c, c.rope_base, c.rope_scaling != ROPE_none));
    const float local = c.rope_local ? c.rope_local : c.rope_base;
    o.json("sliding_attention", rope_object(c, local, false));
    return o.all();
}

// Writes Phi-3's positions: its class in transformers 4 takes these three keys and no other.
static std::string three_keys(const Arch& c) {
    JsonObject o(JSON_SPACED);
    o.text("type", "longrope");
    o.json("short_factor", "[" + c.rope_short + "]");
    o.json("long_factor", "[" + c.rope_long + "]");
    return o.all();
}

// Lists what every family says.
static Fields family_fields(const Family& f, const char* without, Arch c) {
    Fields fields = { { "model_type", json_str(f.name) } };
    for (auto& r : arch_rows(&c)) {
        const std::string key = family_key(f, r);
        const bool ours = !key_object(r).empty() && key == r.key;        // of "train_sink"
        const bool left_out = is_one_of(without, r.field);
        if (ours || left_out || has_key(fields, key)) { continue; }      // one key of two biases
        std::string value = config_text(r);
        if (r.type == FIELD_float) { value = pointed(*(float*)r.at); }
        if (r.type == FIELD_int && r.high == 1) { value = json_bool(*(int*)r.at); }
        fields.push_back({ key, value });
    }
    if (*f.act) {
        fields.push_back({ split(f.act, ' ')[0], json_str(activation_name(c.ffn)) });
    }
    if (!strcmp(f.name, "olmo3")) {
        fields.push_back({ "rope_parameters", both_ropes(c) });
    } else if (!strcmp(f.name, "phi3") && c.rope_scaling == ROPE_longrope) {
        fields.push_back({ "rope_scaling", three_keys(c) });
        fields.push_back({ "original_max_position_embeddings", whole(c.rope_context) });
    } else if (c.rope_scaling != ROPE_none) {
        JsonObject rope(JSON_SPACED);
        rope_fields(&rope, c);
        fields.push_back({ "rope_scaling", rope.all() });
    }
    return fields;
}

static void add_fields(JsonObject* o, const Fields& fields) {
    for (auto& f : fields) { o->json(f.first, f.second); }
}

// Reads a config.json as the family's reader does. Returns false if that refuses it. *asked: keys.
static bool family_reads(const std::string& config, Arch* c, std::string* attn,
                         std::set<std::string>* asked) {
    const auto read = [&] {
        *c = arch_import(json_of(config), "config.json", attn, asked);
        arch_settle(c, "config.json");
    };
    return failure_of(read).empty();
}

// Writes a pattern with one letter per layer; "" if all layers have it.
static str pattern_whole(const str& pattern, int L) {
    str all;
    for (int l = 0; l < L; l++) {
        all += in_pattern(pattern, l) ? '1' : '0';
    }
    return all.find('0') == str::npos ? "" : all;
}

// Tells whether two models are one, to the last row of ARCH.
static bool same_model(Arch a, Arch b) {
    arch_settle(&a, "config.json");
    arch_settle(&b, "config.json");
    for (Arch* c : { &a, &b }) {
        c->context = 0;                          // of the run, not of the model
        c->local = pattern_whole(c->local, c->L);
        c->rope_layers = pattern_whole(c->rope_layers, c->L);
        c->rope_part = pe_of(*c).rotary ? (float)rotated(*c) / c->HS : 1;
        c->score_scale = score_scale(*c);
    }
    return rows_apart(&a, &b).empty();
}

// Lists the keys that say this model in the family's words; none if they do not say it exactly.
// Asks the reader again until it wants no other key that is known.
static Fields family_says(const Family& f, const char* without, const Arch& c) {
    Fields fields = family_fields(f, without, c);
    for (size_t before = 0; before != fields.size();) {
        before = fields.size();
        std::set<std::string> asked;
        std::string attn;
        Arch read;
        JsonObject config;
        add_fields(&config, fields);
        const bool reads = family_reads(config.all(), &read, &attn, &asked);
        for (auto& field : other_keys(c)) {
            const std::string& key = field.first;
            if (asked.count(key) && !is_one_of(without, key) && !has_key(fields, key)) {
                fields.push_back(field);
            }
        }
        if (before != fields.size()) { continue; }
        if (!reads || attn != build::Attn::name || !same_model(c, read)) {
            return {};
        }
    }
    return fields;
}

// ---- tensors

// a tensor while it is put together
struct Part {
    std::string name;
    std::vector<long> shape;
    std::vector<float> x;
    std::vector<bool> set;
};

static Part* part_at(std::vector<Part>* parts, const std::string& name,
                     const std::vector<long>& shape, long count) {
    for (auto& p : *parts) {
        if (p.name == name) { return &p; }
    }
    parts->push_back({ name, shape, std::vector<float>(count), std::vector<bool>(count) });
    return &parts->back();
}

// Puts our tensor where the family has it, into a tensor or a part of one. False if the family has
// none such, if another of ours is there, with other numbers (two norms of ours that are one
// there), or if a number could not be given back.
static bool part_put(std::vector<Part>* parts, const Family& f, const Arch& c,
                     const NameRow* names, const StOut& ours) {
    std::string name;
    Fold fold;
    if (!family_name(f, names, ours.name, &name, &fold)) { return false; }
    const bool matrix = ours.shape.size() > 1;
    const bool turned = f.transposed && matrix && !our_name(ours.name).layer.empty();
    const bool minus_one = norm_plus_one(f, fold, ours.name);
    const long n = ours.shape[0];
    const long cols = matrix ? ours.shape[1] : 1;
    const long rows = import_rows(fold, c, n, -1);
    std::vector<long> shape = { rows };
    if (matrix) { shape.push_back(cols); }
    if (turned) { std::swap(shape[0], shape[1]); }
    Part* p = part_at(parts, name, shape, rows * cols);
    for (long i = 0; i < n; i++) {
        const long r = import_row(fold, c, i, rows);
        for (long j = 0; j < cols; j++) {
            const float x = ours.data[i * cols + j];
            const float kept = minus_one ? x - 1 : x;
            const size_t to = turned ? j * rows + r : r * cols + j;
            if (p->set[to] && memcmp(&p->x[to], &kept, sizeof kept)) {
                return false;
            }
            if (minus_one && kept + 1 != x) { return false; }
            p->x[to] = kept;
            p->set[to] = true;
        }
    }
    return true;
}

static bool family_tensors(FamilyFile* file, const Arch& c, const std::vector<StOut>& ours) {
    const Family& f = *file->family;
    const NameRow* names = family_names(f, c, grouped(c));
    if (!names && !f.plus_one) { file->tensors = ours; return true; }
    std::vector<Part> parts;
    for (auto& t : ours) {
        if (!part_put(&parts, f, c, names, t)) { return false; }
    }
    for (auto& p : parts) {
        file->kept.push_back(std::move(p.x));
        file->tensors.push_back({ p.name, p.shape, file->kept.back().data() });
    }
    return true;
}

// Adds the ids of tokens that are not there: without these keys a family's config.json means those
// of its own first model.
static void no_tokens(JsonObject* o, const Tokenizer& tok) {
    o->json("pad_token_id", "null");
    if (tok.eos >= 0) { return; }
    o->json("bos_token_id", "null");
    o->json("eos_token_id", "null");
}

FamilyFile family_file(const Arch& arch, const std::string& type, const std::vector<StOut>& ours,
                       const Tokenizer& tok, const std::string& tokenizer_path) {
    const Arch c = arch_in_config(arch);
    for (auto& w : WRITTEN) {
        if (!type.empty() && type != w.name) { continue; }
        FamilyFile file;
        file.family = family_named(w.name);
        file.architecture = w.architecture;
        const Fields fields = family_says(*file.family, w.without, c);
        if (fields.empty() || !family_tensors(&file, c, ours)) { continue; }
        JsonObject config(JSON_LINES);
        config.json("architectures", json_list({ json_str(w.architecture) }));
        add_fields(&config, fields);
        no_tokens(&config, tok);
        config_tail(&config, c, tok, tokenizer_path);
        file.config = config.all() + "\n";
        return file;
    }
    return FamilyFile();
}
