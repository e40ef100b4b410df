/*
family_more.h -- inside of families.cpp: what the row of a family cannot say, a function more_NAME
for each.
*/
#ifndef FAMILY_MORE_H
#define FAMILY_MORE_H
#include "import_config.h"

// Requires a key to be absent or one of these words.
static void needs_word(Import* in, const char* key, const char* words) {
    const Json* v = in->get(key);
    in->need(!v || has(split(words, ' '), v->string), key, std::string("one of: ") + words);
}

// Writes a letter for each layer: 1 where is(layer).
static str layers_where(const Import* in, const std::function<bool(int)>& is) {
    str pattern;
    for (int l = 0; l < in->c.L; l++) { pattern += is(l) ? '1' : '0'; }
    return pattern;
}

// Sets the width of an FFN that the file does not tell.
static void four_times_wide(Import* in) {
    if (!in->c.F) { in->c.F = 4 * in->c.C; }
}

// Reads a window; no key means none.
static void more_window(Import* in) { import_window(in, 0); }

static void more_mistral(Import* in) {           // absent means 4096, null means none
    import_window(in, in->json.get("sliding_window") ? 0 : 4096);
}

// Reads Ministral 3, whose queries are 1 + beta ln(1 + floor(t / context)) times as long: the same
// up to the context that was trained.
static void more_ministral3(Import* in) {
    import_window(in, 0);
    const Json* rope = in->get("rope_parameters");
    in->need(rope && rope->type == Json::OBJECT, "rope_parameters", "an object");
    const Json* context = rope->get("original_max_position_embeddings");
    if ((*rope)["llama_4_scaling_beta"].number == 0) { return; }
    in->need(context, "rope_parameters", "original_max_position_embeddings");
    in->c.rope_most = (int)context->number;
}

static void more_smollm3(Import* in) {
    const Json* list = in->get("no_rope_layers");
    const int every = in->whole("no_rope_layer_interval", 4, 1);
    in->need(!list || (int)list->items.size() >= in->c.L, "no_rope_layers",
             strf("%d layers", in->c.L));
    in->c.rope_layers = layers_where(in, [=](int l) {
        if (!list) { return (l + 1) % every != 0; }
        const Json& says = list->items[l];
        in->need(says.is_number() || says.type == Json::BOOL, "no_rope_layers",
                 "1 or 0 for each layer");
        return says.number != 0;
    });
    import_layer_types(in);
    in->need(!contains(in->c.local, "1"), "layer_types", "full_attention");
}

static void more_qwen(Import* in) {
    const bool slides = in->yes("use_sliding_window", false);
    const int from = in->whole("max_window_layers", 28, 0);
    const int window = in->whole("sliding_window", 4096, 0);
    if (!slides) { in->get("layer_types"); return; }
    in->c.window = window;
    in->c.local = layers_where(in, [=](int l) { return l >= from; });
    import_layer_types(in);
}

// Gives the window to all layers but every `every`-th.
static void local_but_every(Import* in, int every) {
    in->c.local = layers_where(in, [=](int l) { return (l + 1) % every; });
}

// Reads the window of layers that have one; null says none, which no such model means.
static int window_of_some(Import* in) {
    const Json* given = in->json.get("sliding_window");
    in->need(!given || given->type != Json::NUL, "sliding_window", "1 or more");
    return in->whole("sliding_window", 4096, 1);
}

// Requires rope_parameters to be those of both types of layers.
static void needs_both_ropes(Import* in) {
    const Json* rope = in->get("rope_parameters");
    in->need(!rope || rope->get("full_attention"), "rope_parameters",
             "full_attention and sliding_attention");
}

static float gemma_score_scale(Import* in) {
    const float by = in->number("query_pre_attn_scalar", 256);
    // else its root would be nothing, or all
    in->need(by > 1e-12f && by < 1e12f, "query_pre_attn_scalar", "1e-12 to 1e12");
    return 1 / sqrtf(by);
}

// Requires an activation to be gelu, by which such files mean its tanh form.
static void gemma_act(Import* in, const char* key) {
    needs_word(in, key, "gelu_pytorch_tanh gelu");
}

// Sets the factor of the embedding: the root of the width in float32, whatever type the weights are
// kept in. A model that computes in bf16 rounds it; one that transformers loads as float32 does
// not, nor does its GGUF file. Checks hidden_act, which transformers reads in the first Gemma
// alone.
static void all_gemma(Import* in) {
    in->c.embed_scale = sqrtf(in->c.C);
    gemma_act(in, "hidden_act");
}

static void more_gemma(Import* in) {
    all_gemma(in);
    in->c.ffn = row_named(FFN_ROWS, "geglu_tanh");
    gemma_act(in, "hidden_activation");
}

// Reads a cap: absent means the family's own, null means none.
static double own_cap(Import* in, const char* key, double otherwise) {
    const double cap = in->number(key, in->json.get(key) ? 0 : otherwise);
    in->need(!in->get(key) || cap > 0, key, "more than 0, or null");
    return cap;
}

static void more_gemma2(Import* in) {
    all_gemma(in);
    in->c.score_scale = gemma_score_scale(in);
    const double cap = own_cap(in, "attn_logit_softcapping", 50);
    in->c.logit_cap = own_cap(in, "final_logit_softcapping", 30);
    if (cap) { in->attn = "softcap"; in->c.attn_cap = cap; }
    import_window(in, 4096);
    in->need(in->whole("sliding_window_size", in->c.window, 0) == in->c.window,
             "sliding_window_size", strf("%d, as sliding_window", in->c.window));
    in->c.local = "10";
    import_layer_types(in);
}

static void more_gemma3(Import* in) {
    all_gemma(in);
    in->c.score_scale = gemma_score_scale(in);
    in->c.logit_cap = in->number("final_logit_softcapping", 0);
    import_window(in, 4096);
    const int written = in->whole("_sliding_window_pattern", 6, 1);
    local_but_every(in, in->whole("sliding_window_pattern", written, 1));
    import_layer_types(in);
    needs_both_ropes(in);
    in->c.rope_local = in->number("rope_local_base_freq", 10000);
    in->need(in->c.rope_local > 0, "rope_local_base_freq", "more than 0");
    for (const char* key : { "rope_scaling", "rope_parameters" }) {
        const Json* rope = in->get(key);                         // transformers 5 passes type over
        in->need(!rope || !rope->get("type"), "rope_scaling", "rope_type in place of type");
    }
}

// Reads OLMo 3: layers with a window keep plain positions where the others are scaled.
static void more_olmo3(Import* in) {
    in->c.window = window_of_some(in);
    local_but_every(in, 4);
    import_layer_types(in);
    needs_both_ropes(in);
    // transformers 5 takes a rope_theta beside the types of layers for one of them alone
    in->need(in->number("rope_theta", 500000) == 500000, "rope_theta",
             "500000, or rope_parameters of each type of layers");
    in->c.rope_local = in->c.rope_base;
}

static void more_olmoe(Import* in) {
    in->c.expert_shares = !in->yes("norm_topk_prob", false);
}

// Reads EXAONE 4: where some layers have a window, only these have positions.
static void more_exaone4(Import* in) {
    more_mistral(in);
    const Json* pattern = in->get("sliding_window_pattern");     // 4, or "LLLG" beside layer_types
    const bool letters = pattern && pattern->is_text();
    in->need(!letters || in->get("layer_types"), "layer_types", "a type for each layer");
    if (in->c.window && !letters) {
        local_but_every(in, in->whole("sliding_window_pattern", 4, 1));
    }
    import_layer_types(in);
    in->need(!contains(in->c.local, "1") || in->c.window, "sliding_window",
             "the window of some layers");
    if (in->c.window) { in->c.rope_layers = in->c.local; }
}

static void more_cohere(Import* in) {
    const double scale = in->number("logit_scale", 0.0625);
    in->need(scale > 1e-6 && scale < 1e6, "logit_scale", "1e-6 to 1e6");
    in->c.logit_divisor = 1 / scale;
}

// Reads Cohere 2: only layers with the window have positions.
static void more_cohere2(Import* in) {
    more_cohere(in);
    in->c.window = window_of_some(in);
    const int every = in->whole("sliding_window_pattern", 4, 1);
    in->need(in->whole("layer_switch", every, 1) == every || in->get("layer_types"),
             "layer_switch", strf("%d, as sliding_window_pattern, or layer_types", every));
    local_but_every(in, every);
    import_layer_types(in);
    in->c.rope_layers = in->c.local;
    in->need(in->yes("use_embedding_sharing", in->c.tied) == (in->c.tied != 0),
             "use_embedding_sharing", "what tie_word_embeddings says");
}

static void more_nemotron(Import* in) {
    in->c.HS = in->whole("kv_channels", in->c.HS, 0);    // older files have this, too
}

// Reads nanochat. Its norms of q and k come after the rotation, which changes no length, and have
// no weights: so they may as well come before.
static void more_nanochat(Import* in) {
    in->c.logit_cap = own_cap(in, "final_logit_softcapping", 15);
    const Json* rope = in->get("rope_parameters");
    const Json* type = rope ? rope->get("rope_type") : NULL;
    // another may change the length
    in->need(!type || type->string == "default", "rope_parameters", "rope_type default");
}

// Reads GPT-Neo: scores are not scaled; attention_types is [[["global","local"], 6]].
static void more_gpt_neo(Import* in) {
    in->c.score_scale = 1;
    in->c.window = in->whole("window_size", 256, 1);
    four_times_wide(in);
    std::vector<std::string> names;
    for (auto& name : in->of("attention_layers").items) { names.push_back(name.string); }
    const bool listed = in->get("attention_layers");
    for (auto& group : in->of("attention_types").items) {
        if (listed) { break; }
        in->need(group.items.size() == 2, "attention_types", "[[[names], times], ..]");
        for (int n = 0; n < group.items[1].number && (int)names.size() <= in->c.L; n++) {
            for (auto& name : group.items[0].items) { names.push_back(name.string); }
        }
    }
    in->need((int)names.size() == in->c.L, "attention_types",
             strf("%d layers of global or local", in->c.L));
    for (auto& name : names) {
        in->need(name == "global" || name == "local", "attention_types", "global and local");
        in->c.local += name == "local" ? '1' : '0';
    }
}

static void more_opt(Import* in) {
    if (!in->yes("do_layer_norm_before", true)) { in->c.norm = NORM_post; }
}

// Reads GPT-NeoX. transformers 5 takes the share and the base of the rotation by their old names.
static void more_neox(Import* in) {
    static const char* const NAMES[][2] = { { "rope_theta", "rotary_emb_base" },
                                            { "partial_rotary_factor", "rotary_pct" } };
    const bool gguf = !ends_with(in->where, "config.json");      // one name for all families
    for (auto& n : NAMES) {
        in->need(gguf || !in->get(n[0]) || in->get(n[1]), n[1],
                 std::string("what ") + n[0] + " says");
    }
}

static void more_falcon(Import* in) {
    const bool grouped = in->yes("new_decoder_architecture", false);
    const bool multi = in->yes("multi_query", true);
    const int kv = in->whole("num_kv_heads", in->whole("n_head_kv", in->c.NH, 1), 1);
    in->c.KV = multi ? 1 : in->c.NH;
    if (grouped) {
        in->c.KV = kv;
        in->c.parallel = 1;
    }
    four_times_wide(in);
    in->need(in->number("ff_factor", 4) * in->c.C == in->c.F || !in->get("ff_factor"),
             "ff_factor", strf("what makes ffn_hidden_size, %d", in->c.F));
}

static void more_gptj(Import* in) {
    four_times_wide(in);
    const int turns = in->whole("rotary_dim", 64, 2);
    const int size = in->c.NH > 0 ? in->c.C / in->c.NH : 0;
    const bool null = in->json.get("rotary_dim") && !in->get("rotary_dim");      // another formula
    in->need(!null && turns <= size && turns % 2 == 0, "rotary_dim",
             strf("an even number of channels, at most %d", size));
    in->c.rope_part = (float)turns / size;
}

static void more_ernie(Import* in) {
    if (!in->c.HS && !in->json.get("head_dim")) {
        in->c.HS = 128;
    }
}

static void more_granite(Import* in) {
    // 0 would mean another default here
    in->need(in->c.score_scale > 0, "attention_multiplier", "more than 0");
}

// Checks one key of MPT's attn_config: only one value of most is computed, there and here.
static void mpt_attention(Import* in, const std::string& key, const Json& value) {
    static const char* const ONLY[][2] = {
        { "attn_type", "\"multihead_attention\"" }, { "alibi", "true" }, { "alibi_bias_max", "8" },
        { "clip_qkv", "null" }, { "qk_ln", "false" }, { "prefix_lm", "false" },
        { "attn_uses_sequence_id", "false" }, { "model_type", "\"\"" },
    };
    for (auto& only : ONLY) {
        if (key != only[0]) { continue; }
        if (json_short(value) == only[1]) { return; }
        in->fail("attn_config: " + key + " is " + json_short(value) + ", wanted " + only[1]);
    }
    const bool how = key == "attn_impl" || key == "attn_pdrop" || directory_key("config.json", key);
    if (how || key == "softmax_scale" || value.type == Json::NUL) {
        return;
    }
    in->fail("attn_config: the key '" + key + "' is not understood");
}

static void more_mpt(Import* in) {
    const Json* attention = in->get("attn_config");
    in->need(!attention || attention->type == Json::OBJECT, "attn_config", "an object");
    if (attention) {
        for (auto& f : attention->fields) { mpt_attention(in, f.first, f.second); }
        const Json* scale = attention->get("softmax_scale");
        if (scale && scale->type != Json::NUL) {
            for (auto& r : arch_rows(&in->c)) {
                if (!strcmp(r.field, "score_scale")) { arch_read(r, *scale, in->where); }
            }
            in->need(in->c.score_scale > 0, "attn_config", "a softmax_scale above 0");
        }
    }
    in->c.F = 4 * in->c.C;                       // transformers reads no other
    needs_word(in, "norm_type", "low_precision_layernorm layernorm");
}

// Requires mlp_only_layers, if it is there, to name no layer.
static void no_dense_layers(Import* in, const char* wanted) {
    const Json* dense = in->get("mlp_only_layers");
    in->need(!dense || (dense->type == Json::ARRAY && dense->items.empty()), "mlp_only_layers",
             wanted);
}

// Reads what Qwen's config.json says of experts, which have to be in every layer. to_one: are their
// weights divided by their sum if it does not say?
static void all_experts(Import* in, bool to_one) {
    in->c.expert_shares = !in->yes("norm_topk_prob", to_one);
    no_dense_layers(in, "experts in all layers");
}

static void more_qwen2_moe(Import* in) {
    all_experts(in, false);
    more_qwen(in);
    // its default is another than Qwen2's
    in->need(!in->c.window || in->get("layer_types"), "use_sliding_window",
             "false, or layer_types");
}

static void more_qwen3_moe(Import* in) {
    all_experts(in, false);
    more_qwen(in);                               // which layers it means depends on the version
    in->need(!in->c.window, "use_sliding_window", "false");
}

// Reads Qwen 3.5: every fourth layer has attention, the others the delta rule.
static void more_qwen3_5(Import* in) {
    no_dense_layers(in, "an empty list");
    const str linear = import_layers_of(in, "linear_attention");
    const int every = in->whole("full_attention_interval", 4, 1);
    in->c.attn_layers = layers_where(in, [&](int l) {
        return linear.empty() ? (l + 1) % every == 0 : linear[l] == '0';
    });
    for (const char* key : { "linear_num_key_heads", "linear_num_value_heads",
                             "linear_key_head_dim", "linear_value_head_dim",
                             "linear_conv_kernel_dim" }) {
        in->whole(key, 1, 1);
    }
    if (!contains(in->c.attn_layers, "0")) {
        in->c.delta_keys = in->c.delta_values = 0;
        in->c.attn_layers.clear();
    }
}

// Reads Qwen3-Next, or Qwen 3.5 with experts.
static void more_qwen3_next(Import* in) {
    all_experts(in, true);
    more_qwen3_5(in);
}

static void more_gpt_oss(Import* in) {
    in->need(in->c.expert_limit > 0, "swiglu_limit", "more than 0");
    const int used = in->c.experts_used;         // that the file says twice
    in->need(in->whole("experts_per_token", used, 0) == used, "experts_per_token",
             strf("%d, as num_experts_per_tok", used));
    in->need(in->get("rope_scaling") || in->get("rope_parameters"), "rope_scaling", "its object");
    const Json* packed = in->get("quantization_config");
    in->need(!packed || (*packed)["quant_method"].string == "mxfp4", "quantization_config",
             "quant_method mxfp4");
    import_window(in, 128);
    in->c.local = "10";
    import_layer_types(in);
}

// Writes "0100": one layer of every `period`, from layer `offset` on.
static str jamba_pattern(Import* in, const std::string& what, int period, int offset) {
    const int every = in->whole(what + "_layer_period", period, 1);
    const int first = in->whole(what + "_layer_offset", offset, 0);
    return layers_where(in, [=](int l) { return l % every == first; });
}

static void more_jamba(Import* in) {
    in->c.attn_layers = jamba_pattern(in, "attn", 8, 4);
    in->c.expert_layers = jamba_pattern(in, "expert", 2, 1);
    if (in->c.experts <= 1 || !contains(in->c.expert_layers, "1")) {
        in->c.experts = in->c.experts_used = 0;
        in->c.expert_layers.clear();
    }
    const double width = (double)in->whole("mamba_expand", 2, 1) * in->c.C;
    in->need(width <= 1 << 20, "mamba_expand", "a width of less than 2^20 channels");
    in->c.mamba_width = width;
    const Json* rank = in->json.get("mamba_dt_rank");
    const bool automatic = !rank || (rank->is_text() && rank->string == "auto");
    in->used.insert("mamba_dt_rank");
    in->c.mamba_rank = automatic ? (in->c.C + 15) / 16 : in->whole("mamba_dt_rank", 0, 1);
    in->need(in->whole("sliding_window", 0, 0) == 0, "sliding_window", "null");
}
#endif // FAMILY_MORE_H
