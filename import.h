/*
import.h -- models of other families: their config.json as rows of ARCH, their tensors by our names.

A key that changes the mathematics and is not understood is an error that names it. What is known to change nothing
stands in a list; everything else is refused.

TO ADD a key: a row of IMPORT_KEYS, or, where it needs thought, a line of import_special.
*/
#ifndef IMPORT_H
#define IMPORT_H

// keys that say nothing about the forward pass
static const char* const HARMLESS_KEYS =
    " architectures model_type bos_token_id eos_token_id pad_token_id unk_token_id torch_dtype dtype use_cache"
    " transformers_version _name_or_path initializer_range attention_dropout hidden_dropout resid_pdrop embd_pdrop"
    " attn_pdrop pretraining_tp tokenizer_class return_dict output_hidden_states output_attentions torchscript"
    " is_decoder is_encoder_decoder add_cross_attention tie_encoder_decoder chunk_size_feed_forward id2label label2id"
    " problem_type use_bfloat16 finetuning_task task_specific_params prefix_allowed cross_attention_hidden_size"
    " pruned_heads gradient_checkpointing _attn_implementation_autoset quantization_config_none ";

static bool is_harmless(const std::string& key) {
    return strstr(HARMLESS_KEYS, (" " + key + " ").c_str()) != NULL;
}

// rope_scaling of transformers 4, rope_parameters of 5: theta and how it is stretched
static void import_rope(Arch* c, const Json& rope, const std::string& where) {
    const Json *type = rope.get("rope_type"), *old = rope.get("type");
    std::string how = "default";
    if (type || old) { how = (type ? type : old)->string; }
    for (auto& r : arch_rows(c)) {
        const Json* v = rope.get(key_name(r).c_str());
        if (v && v->type != Json::NUL && key_object(r) == "rope_scaling" && r.type != ARCH_kind) { arch_read(r, *v, where); }
        if (!strcmp(r.field, "rope_scaling") && how != "default" && !kind_set(r, how)) {
            die(EXIT_USER, where + ": rope_type is '" + how + "', wanted default, " + r.names, "another model");
        }
        if (!strcmp(r.field, "rope_base") && rope.get("rope_theta")) { arch_read(r, *rope.get("rope_theta"), where); }
        if (!strcmp(r.field, "rope_part") && rope.get("partial_rotary_factor")) {
            arch_read(r, *rope.get("partial_rotary_factor"), where);
        }
    }
    for (auto& f : rope.fields) {
        bool known = f.first == "type" || f.first == "rope_theta" || f.first == "partial_rotary_factor";
        for (auto& r : arch_rows(c)) { known = known || (key_object(r) == "rope_scaling" && key_name(r) == f.first); }
        if (!known) { die(EXIT_USER, where + ": rope key '" + f.first + "' is not understood", "another model"); }
    }
}

// keys of LLaMA that are no rows of ARCH; returns whether this is one
static bool import_special(Arch* c, const std::string& key, const Json& v, const std::string& where) {
    const bool set = v.type == Json::BOOL && v.number;
    if (key == "rope_scaling" || key == "rope_parameters") {
        if (v.type == Json::OBJECT) { import_rope(c, v, where); }
        return true;
    }
    if (key == "hidden_act") {
        want(v.string == "silu" || v.string == "swish", where + ": hidden_act " + v.string, "silu");
        return true;
    }
    if (key == "attention_bias") { c->qkv_bias = c->out_bias = set; return true; }
    if (key == "mlp_bias")       { c->ffn_bias = set; return true; }
    return key == "sliding_window" && !set;      // transformers does not read it in this family
}

// somebody else's config.json -> a model
static Arch arch_import(const Json& j, const std::string& where) {
    const Json* type = j.get("model_type");
    want(type && type->string == "llama", where + ": model_type " + (type ? type->string : "missing"),
         "llama, the one family read so far");
    Arch c;
    for (auto& r : arch_rows(&c)) { if (r.type == ARCH_kind) { *(kind*)r.at = 0; } } // the first value of every switch
    c.eps = 1e-6f;
    for (auto& f : j.fields) {
        bool known = is_harmless(f.first) || import_special(&c, f.first, f.second, where);
        for (auto& r : arch_rows(&c)) {
            if (f.first != r.key) { continue; }
            known = true;
            if (f.second.type != Json::NUL) { arch_read(r, f.second, where); }
        }
        if (!known) {
            die(EXIT_USER, where + ": the key '" + f.first + "' is not understood, and may change what the model computes",
                "remove it if it does not");
        }
    }
    return c;
}
#endif // IMPORT_H
