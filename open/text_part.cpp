/*
open/text_part.cpp -- what text_part.h declares.
*/
#include "text_part.h"

// Models that run their language model as it is if there is no image: model_type, and the
// model_type of its language model, if that has none of its own or one that only says where it is.
static const struct { const char *type, *text; } WRAPPERS[] = {
    { "gemma3", "gemma3_text" },
    { "mistral3", "mistral" },
    { "llava", "llama" },
    { "llava_next", "llama" },
    { "llava_onevision", "qwen2" },
    { "internvl", "qwen2" },
    { "smolvlm", "llama" },
    { "idefics3", "llama" },
    { "qwen2_vl", "qwen2" },
    { "qwen2_5_vl", "qwen2" },
    { "qwen3_vl", "qwen3" },
    { "qwen3_5", "qwen3_5_text" },
    { "qwen3_5_moe", "qwen3_5_moe_text" },
};

// Keys of config.json, and of text_config, that are about images, or say how a model was loaded.
static const char* const OF_IMAGES =
    " architectures text_config vision_config vision_feature_layer vision_feature_select_strategy "
    "image_token_index image_token_id image_seq_length image_grid_pinpoints boi_token_index "
    "eoi_token_index mm_tokens_per_image video_token_id video_token_index vision_token_id "
    "vision_start_token_id vision_end_token_id vision_aspect_ratio multimodal_projector_bias "
    "projector_hidden_act spatial_merge_size downsample_ratio scale_factor pixel_shuffle_factor "
    "perceiver_config use_resampler ignore_index is_llama_config neftune_noise_alpha "
    "_flash_attn_2_enabled _pad_token_id transformers.js_config ";

// What text_config leaves out if it is as in the family's class: such a file says only the rest.
static const struct { const char *text, *key; int value; } LEFT_OUT[] = {
    { "gemma3_text", "vocab_size", 262208 },
    { "gemma3_text", "hidden_size", 2304 },
    { "gemma3_text", "intermediate_size", 9216 },
    { "gemma3_text", "num_hidden_layers", 26 },
    { "gemma3_text", "num_attention_heads", 8 },
    { "gemma3_text", "num_key_value_heads", 4 },
    { "gemma3_text", "max_position_embeddings", 131072 },
    { "llama", "vocab_size", 32000 },
    { "llama", "hidden_size", 4096 },
    { "llama", "intermediate_size", 11008 },
    { "llama", "num_hidden_layers", 32 },
    { "llama", "num_attention_heads", 32 },
    { "llama", "max_position_embeddings", 2048 },
    { "mistral", "vocab_size", 32000 },
    { "mistral", "hidden_size", 4096 },
    { "mistral", "intermediate_size", 14336 },
    { "mistral", "num_hidden_layers", 32 },
    { "mistral", "num_attention_heads", 32 },
    { "mistral", "max_position_embeddings", 131072 },
};

static Json json_whole(int n) {
    Json j;
    j.type = Json::NUMBER;
    j.number = n;
    j.string = strf("%d", n);
    return j;
}

static Json json_text(const std::string& s) {
    Json j;
    j.type = Json::STRING;
    j.string = s;
    return j;
}

static void json_set(Json* object, const std::string& key, const Json& value) {
    for (auto& f : object->fields) {
        if (f.first == key) { f.second = value; return; }
    }
    object->fields.push_back({ key, value });
}

static void json_drop(Json* object, const char* key) {
    auto& f = object->fields;
    f.erase(std::remove_if(f.begin(), f.end(), [&](auto& one) { return one.first == key; }),
            f.end());
}

// Takes Qwen's three axes of a position out of the keys of rope: in a text they are one number.
static void one_axis(Json* text) {
    for (auto& f : text->fields) {
        if (f.first != "rope_scaling" && f.first != "rope_parameters") { continue; }
        Json* rope = &f.second;
        json_drop(rope, "mrope_section");
        json_drop(rope, "mrope_interleaved");
        for (const char* key : { "type", "rope_type" }) {
            const Json* type = rope->get(key);
            if (type && type->string == "mrope") { json_set(rope, key, json_text("default")); }
        }
    }
}

static bool of_images(const std::pair<std::string, Json>& field) {
    const bool no_norms = field.first == "qk_layer_norms" && json_short(field.second) == "false";
    return no_norms || strstr(OF_IMAGES, (" " + field.first + " ").c_str());
}

std::string text_part_config(Json* config) {
    const Json* type = config->get("model_type");
    const Json* given = config->get("text_config");
    if (!type || !given || given->type != Json::OBJECT) { return ""; }
    for (auto& w : WRAPPERS) {
        if (type->string != w.type) { continue; }
        Json text = *given;
        text.fields.erase(std::remove_if(text.fields.begin(), text.fields.end(), of_images),
                          text.fields.end());
        const Json* own = text.get("model_type");
        const std::string place = std::string(w.type) + "_text";
        if (!own || own->string == place) { json_set(&text, "model_type", json_text(w.text)); }
        const std::string family = text.get("model_type")->string;
        for (auto& l : LEFT_OUT) {
            const bool absent = family == l.text && !text.get(l.key);
            if (absent) { json_set(&text, l.key, json_whole(l.value)); }
        }
        // whose class has other defaults than the family of the same layers
        const bool qwen_vl = starts_with(w.type, "qwen") && strstr(w.type, "_vl");
        for (const char* key : { "rms_norm_eps", "num_key_value_heads" }) {
            if (qwen_vl && !text.get(key)) { return ""; }
        }
        const bool rotates = text.get("rope_parameters") || text.get("rope_theta");
        if (qwen_vl && !rotates) { return ""; }
        for (auto& f : config->fields) {         // the rest is of the whole, so of the text, too
            const bool rules = f.first == "tie_word_embeddings";
            if (of_images(f) || (text.get(f.first.c_str()) && !rules)) { continue; }
            json_set(&text, f.first, f.second);
        }
        if (place.compare(0, 4, "qwen") == 0) { one_axis(&text); }
        *config = text;
        return w.type;
    }
    return "";
}

int text_part_weights(Weights* weights) {
    static const char* const PREFIXES[][2] = {
        { "language_model.model.", "model." }, { "model.language_model.", "model." },
        { "model.text_model.", "model." },     { "language_model.lm_head.", "lm_head." },
    };
    static const char* const OTHERS[] = {
        "vision_tower.", "model.vision_tower.", "vision_model.", "model.vision_model.", "visual.",
        "model.visual.", "multi_modal_projector.", "model.multi_modal_projector.",
        "model.connector.", "image_newline", "model.image_newline",
    };
    const size_t all = weights->tensors.size();
    weights_rename(weights, [&](const std::string& name) -> std::string {
        for (const char* prefix : OTHERS) {
            if (starts_with(name, prefix)) { return ""; }
        }
        for (auto& p : PREFIXES) {
            if (starts_with(name, p[0])) { return p[1] + name.substr(strlen(p[0])); }
        }
        return name;
    });
    return (int)(all - weights->tensors.size());
}
