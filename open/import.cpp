/*
open/import.cpp -- the config.json of another family becomes rows of ARCH. The families themselves
are in families.cpp, their tensors in import_weights.cpp.
*/
#include "import_config.h"
#include "rope.h"
#include "../base/look.h"

// Keys of models in a form that is not read.
static const char* const PARTS = "it is a model of more than text";
static const struct { const char *keys, *what, *hint; } KEYS_NOT_READ[] = {
    { " quantization_config quantization compression_config ",   // the second is of mlx
      "its weights are quantized in a form that this program does not read",
      "get the model as its authors trained it, or as a GGUF file" },
    { " vision_config text_config audio_config ", PARTS, TEXT_PART },
};

// Says once that a key is left out which other programs read: transformers does not.
static void attn_factor_note(const std::string& where) {
    static bool said = false;
    if (!said) { note(where + ": attn_factor is left out, as transformers leaves it out"); }
    said = true;
}

// Activations: their name, ours in a plain FFN, ours in a gated one. Where one has several names,
// the first is written.
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

std::string activation_name(kind ffn) {
    const FfnRow& ours = FFN_ROWS[ffn];
    for (auto& row : ACT_NAMES) {
        if (!strcmp(row[1 + ours.gated], ours.name)) { return row[0]; }
    }
    return "";
}

// Drops the window if no layer is local, and the pattern if all are.
static void import_window_settle(Arch* c) {
    const bool pattern = !c->local.empty();
    const bool some_local = contains(c->local, "1");
    const bool some_full = contains(c->local, "0");
    if (pattern && !some_local) { c->window = 0; }
    if (!c->window || !some_full) { c->local.clear(); }
    if (!c->window) { c->rope_local = 0; }
}

// Returns "gptneox" for "GPTNeoXForCausalLM" and for "gpt_neox".
static std::string class_stem(std::string name) {
    for (const char* tail : { "ForCausalLM", "LMHeadModel", "TextModel", "Model", "_text" }) {
        if (ends_with(name, tail)) { name.resize(name.size() - strlen(tail)); break; }
    }
    std::string stem;
    for (char ch : name) {
        if (ch != '_') { stem += (char)tolower((unsigned char)ch); }
    }
    return stem;
}

// Tells whether a class computes this family's logits, or its layers alone.
static bool is_own_class(const std::string& type, const std::string& name) {
    const bool kind = ends_with(name, "ForCausalLM") || ends_with(name, "Model");
    return kind && class_stem(name) == class_stem(type);
}

// Sets a row of ARCH by another name, "key:field", if that is there; "key:" is only looked at. Two
// names must say the same, but for the width of experts, which stands beside that of layers
// without.
static void import_renamed(Import* in, const std::string& pair) {
    const auto [key, field] = halves_of(pair, ':');
    const Json* v = in->get(key);
    for (auto& r : arch_rows(&in->c)) {
        if (!v || field != r.field) { continue; }
        const std::string before = field_text(r, true);
        const std::string other = in->said[field];
        ArchRow theirs = r;
        theirs.key = key.c_str();
        arch_read(theirs, *v, in->where);
        in->need(other.empty() || field_text(r, true) == before || key == "moe_intermediate_size",
                 key, before + ", which " + other + " says");
        in->said[field] = key;
    }
}

// Rejects "key=value" unless the key is absent or has this value.
static void import_wanted(Import* in, const std::string& pair) {
    const auto [key, value] = halves_of(pair, '=');
    const Json* v = in->get(key);
    std::string got = v ? v->string : value;
    if (v && v->type == Json::BOOL) { got = json_bool(v->number); }
    double wanted = 0;
    const bool same = v && v->type == Json::NUMBER && parse_double(value, &wanted) &&
                      v->number == wanted;               // 1.0 for 1
    in->need(got == value || same, key, value);
}

void import_window(Import* in, int otherwise) {
    in->c.window = in->whole("sliding_window", otherwise, 0);
}

str import_layers_of(Import* in, const std::string& other) {
    const Json* types = in->get("layer_types");
    str pattern;
    if (!types) { return pattern; }
    for (auto& item : types->items) {
        in->need(item.string == "full_attention" || item.string == other, "layer_types",
                 "full_attention and " + other);
        pattern += item.string == other ? '1' : '0';
    }
    in->need((int)pattern.size() == in->c.L, "layer_types", strf("%d layers", in->c.L));
    return pattern;
}

void import_layer_types(Import* in) {
    const str sliding = import_layers_of(in, "sliding_attention");
    if (!sliding.empty()) { in->c.local = sliding; }
}

// A config.json while it is read, with what every family's needs.
struct Reading : Import {
    // Sets the row of ARCH with this field.
    void import_set(const std::string& field, const std::string& value) {
        for (auto& r : arch_rows(&c)) {
            if (field == r.field && !field_set(r, value).empty()) {
                die(where + ": " + field + " " + value);
            }
        }
    }

    // Requires the keys that a rope_scaling type has no default for.
    void import_rope_needs(const Json& rope, const std::string& how) {
        for (const std::string key : { "factor", "low_freq_factor", "high_freq_factor" }) {
            const bool worked_out = how == "longrope" || how == "yarn";      // from two contexts
            const bool factor = key == "factor" && how != "default" && !worked_out;
            const bool needed = how == "llama3" || factor;
            if (needed && rope[key].type == Json::NUL) {
                die(where + ": rope_type is '" + how + "', and there is no " + key,
                    "get the model's config.json again");
            }
        }
        for (const std::string key : { "attention_factor", "beta_fast", "beta_slow" }) {
            const Json& v = rope[key];
            if (v.is_number() && !(v.number > 0)) {
                die(where + ": " + key + " is " + json_short(v) + ", wanted more than 0");
            }
        }
    }

    // Reads yarn's mscale and mscale_all_dim, which, if both are there, give what rotated vectors
    // are multiplied by. The factor is known.
    void import_mscale(const Json& rope) {
        const double factor = c.rope_factor;
        const double over = json_number(rope, "mscale", 0);
        const double under = json_number(rope, "mscale_all_dim", 0);
        const bool given = json_number(rope, "attention_factor", 0);
        if (!over || !under || given || factor <= 1) { return; }
        const double length = (0.1 * over * log(factor) + 1) / (0.1 * under * log(factor) + 1);
        need(length > 1e-6, "rope_scaling", "an mscale that leaves a length above 0");
        c.rope_length = length;
    }

    // Returns how positions are stretched, by the name that transformers 5 has for it.
    std::string rope_type(const Json& rope) {
        std::string how = "default";
        for (const char* key : { "type", "rope_type" }) {
            if (rope.get(key)) { how = rope[key].string; }
        }
        const char* longrope = family->rope.longrope;
        if (!*longrope || how == "default") { return how; }
        if (!is_one_of(longrope, how)) {
            refuse(get("rope_parameters") ? "rope_parameters" : "rope_scaling", "longrope");
        }
        return "longrope";
    }

    // Reads a key of the object, v, into its row of ARCH. Returns false if it has none.
    bool import_rope_key(const std::string& key, const Json& v, bool local) {
        const bool parts = strstr(family->keys, "partial_rotary_factor") != NULL;
        const char* const base_of = local ? "rope_local" : "rope_base";
        bool read = false;
        for (auto& r : arch_rows(&c)) {
            const bool base = key == "rope_theta" && !strcmp(r.field, base_of);
            const bool part = parts && key == "partial_rotary_factor" &&
                              !strcmp(r.field, "rope_part");
            const bool scaling = !local && key_object(r) == "rope_scaling" && key_name(r) == key;
            if (!base && !part && (!scaling || r.type == FIELD_kind)) { continue; }
            rope_row_read(r, v, where);
            read = true;
        }
        return read;
    }

    // Tells whether a key that has no row of ARCH is read elsewhere, or changes nothing.
    bool rope_key_known(const std::string& key, const Json& v) const {
        if (key == "attn_factor") { attn_factor_note(where); }
        const bool whole = key == "partial_rotary_factor" && v.number == 1;
        return whole || is_one_of(family->rope.other_keys, key) ||
               is_one_of(" type rope_type mscale mscale_all_dim finetuned attn_factor ", key);
    }

    // Reads rope_scaling of transformers 4, rope_parameters of 5: the base, and how it is
    // stretched. Keys of one layer type may be nested; `local`: of layers with a window.
    void import_rope_object(const Json& rope, bool local) {
        const std::string how = rope_type(rope);
        need(!local || how == "default", "rope_parameters",
             "plain positions in layers with a window");
        for (auto& r : arch_rows(&c)) {
            const bool scaling = !strcmp(r.field, "rope_scaling") && how != "default";
            if (scaling && !kind_set(r, how)) {
                fail("rope_type is '" + how + "', wanted default, linear, dynamic, llama3, yarn or "
                     "longrope");
            }
        }
        import_rope_needs(rope, how);
        for (auto& [key, v] : rope.fields) {
            if (v.type == Json::NUL && key != "rope_theta") { continue; }
            if (!import_rope_key(key, v, local) && !rope_key_known(key, v)) {
                fail("the rope key '" + key + "' is not understood");
            }
        }
    }

    void import_rope() {
        const Json* rope = get("rope_scaling");
        const Json* newer = get("rope_parameters");
        need(!rope || !newer, "rope_scaling", "null beside rope_parameters");
        if (newer) { rope = newer; }
        need(!rope || rope->type == Json::OBJECT, newer ? "rope_parameters" : "rope_scaling",
             "an object, or null");
        if (rope) {
            const Json* full = rope->get("full_attention");
            const Json* local = rope->get("sliding_attention");
            need(family->rope.by_layer || (!full && !local), "rope_parameters",
                 "the keys of one rotation");
            if (full) { rope = full; }
            import_rope_object(*rope, false);
            if (local) {
                import_rope_object(*local, true);
                need(c.rope_local > 0, "rope_parameters", "a rope_theta above 0");
            }
        }
        const kind how = c.rope_scaling;
        if (how == ROPE_none || how == ROPE_linear) { return; }
        const char* const context = "original_max_position_embeddings";
        const bool given = (*rope)[context].type != Json::NUL;
        if (how == ROPE_dynamic || !given) { c.rope_context = c.T; } // it looks at all of it
        const bool longrope = how == ROPE_longrope;
        const int of_class = family->rope.trained;
        const int trained = of_class ? of_class : c.rope_context;
        if (longrope) { c.rope_context = whole(context, trained, 1); }
        if (!longrope && how != ROPE_yarn) { return; }
        if ((*rope)["factor"].type == Json::NUL) {
            c.rope_factor = (float)c.T / c.rope_context;
        }
        if (!longrope) { import_mscale(*rope); }
    }

    // Requires what other programs read of these keys to be what is read here, where they are read
    // by nothing.
    void import_same() {
        const std::pair<const char*, float> ROWS[] = {
            { "rope_percent rope_percentage rope_pct rotary_pct", c.rope_part },
            { "norm_eps norm_epsilon layer_norm_eps layer_norm_epsilon", c.eps },
            { "rotary_emb_base rope_base", c.rope_base },
        };
        for (auto& [keys, read] : ROWS) {
            for (auto& key : split(keys, ' ')) {
                if (used.count(key) || !json.get(key)) { continue; }
                need((float)number(key, read) == read, key,
                     strf("%g, as what is read in its place", read));
            }
        }
    }

    // Rejects an odd number of rotated channels: transformers gives half a pair no single meaning.
    void import_rope_part() {
        const int size = c.HS || c.NH < 1 ? c.HS : c.C / c.NH;
        const int turns = (int)(size * c.rope_part);
        if (pe_of(c).rotary && c.rope_part < 1 && turns % 2) {
            die(where + strf(": %d of %d channels of a head turn, wanted an even number",
                turns, size), "check partial_rotary_factor or rotary_pct in this file");
        }
    }

    // Reads the activation by the family's key; of Gemma's two keys the newer decides.
    void import_activation() {
        const bool gated = ffn_of(c).gated;
        bool decided = false;
        for (auto& key : split(family->act, ' ')) {
            const Json* v = get(key);
            if (!v || decided) { continue; }
            std::string known;
            for (auto& row : ACT_NAMES) {
                const char* ours = row[1 + gated];
                if (!*ours) { continue; }
                list_add(&known, row[0]);
                if (v->string != row[0]) { continue; }
                decided = true;
                import_set("ffn", ours);
            }
            need(decided, key, "one of: " + known);
        }
    }

    // Checks the model's class, in architectures and auto_map. A class other than the family's
    // computes something else. Code beside the weights (auto_map) passes if it is the family's own
    // class, which came from there.
    void import_class() {
        const std::string type = family->name;
        for (auto& name : of("architectures").items) {
            if (is_own_class(type, name.string)) { continue; }
            die(where + ": architectures names " + json_short(name) +
                    ", wanted a class of the family " + type + ", such as its ForCausalLM",
                "if these weights are a plain " + type + ", remove architectures from this file");
        }
        for (auto& [key, code] : of("auto_map").fields) {
            const std::string& value = code.string;
            const bool model = key == "AutoModelForCausalLM" || key == "AutoModel";
            if (!model || is_own_class(type, value.substr(value.rfind('.') + 1))) {
                continue;
            }
            die(where + ": auto_map: " + key + " is " + json_str(value) +
                    ": code beside the weights, which is not run",
                "if these weights are a plain " + type + ", remove auto_map from this file");
        }
    }

    // Dies if config.json has a key that nothing reads and that may change the mathematics.
    void reject_unread_keys() const {
        for (auto& f : json.fields) {
            const bool row = directory_key("config.json", f.first, where, f.second);
            if (used.count(f.first) || row || f.second.type == Json::NUL) { continue; }
            for (auto& k : KEYS_NOT_READ) {
                if (is_one_of(k.keys, f.first)) {
                    die(where + ": " + f.first + ": " + k.what,
                        hint_for(k.hint, directory_of(where)));
                }
            }
            die(where + ": the key '" + f.first +
                    "' is not understood, and may change what the model computes",
                "if the code of its authors does not read it, take it out of a copy of the file");
        }
    }

    // Dies if a number of the model is out of range; names the key that it was worked out from.
    void reject_wrong_numbers() {
        static const char* const FROM[][2] = {
            { "logit_cap", "final_logit_softcapping" }, { "attn_cap", "attn_logit_softcapping" },
            { "mamba_rank", "mamba_dt_rank" },          { "rope_local", "rope_local_base_freq" },
            { "window", "sliding_window" },             { "score_scale", "query_pre_attn_scalar" },
        };
        for (auto& r : arch_rows(&c)) {
            const std::string wanted = field_wrong(r, field_number(r));
            if (wanted.empty()) { continue; }
            std::string key = said.count(r.field) ? said[r.field] : r.key;
            for (auto& from : FROM) {
                if (!strcmp(r.field, from[0])) { key = from[1]; }
            }
            const std::string got = field_text(r, false);
            die(where + ": " + key + " is " + got + ", wanted " + wanted);
        }
    }
};

Arch arch_import(const Json& json, const std::string& where, std::string* attn,
                 std::set<std::string>* asked) {
    const Family* family = family_of(json);
    std::set<std::string> mine;
    Reading in = { { json, where, family, arch_fixed(), "softmax", asked ? *asked : mine, {} } };
    const Json* type = json.get("model_type");
    const bool own_code = !family && in.get("auto_map");         // which transformers has not
    if (!family && type && !own_code && (in.get("text_config") || in.get("vision_config"))) {
        die(where + ": model_type is " + json_short(*type) + ": " + PARTS,
            hint_for(TEXT_PART, directory_of(where)));
    }
    if (!family) { in.refuse("model_type", "one of: " + family_types()); }
    for (auto& row : split(family->rows, ' ')) {
        const auto [field, value] = halves_of(row, '=');
        in.import_set(field, value);
    }
    for (auto& r : arch_rows(&in.c)) {
        const Json* v = key_object(r).empty() ? in.get(r.key) : NULL;
        if (!v) { continue; }
        arch_read(r, *v, where);
        in.said[r.field] = r.key;
    }
    for (auto& pair : split(family->keys, ' ')) { import_renamed(&in, pair); }
    for (auto& pair : split(family->wanted, ' ')) { import_wanted(&in, pair); }
    in.import_activation();
    const Json& pruned = in.of("pruned_heads");
    in.need(pruned.fields.empty() && pruned.items.empty(), "pruned_heads", "none");
    if (family->more) { family->more(&in); }
    in.import_rope();
    in.import_rope_part();
    in.import_same();
    import_window_settle(&in.c);
    in.import_class();
    in.reject_unread_keys();
    in.reject_wrong_numbers();
    *attn = in.attn;
    return in.c;
}
