/*
core/config.cpp -- config.json of a checkpoint, in and out. A model of ours is a LLaMA where it can
be: Hugging Face's own keys say that, and the object "train_sink" says the rest.
*/
#include "config.h"
#include "../attention_variants.cuh" // the names of ATTN
#include "directory.h"
#include "../base/look.h"

Arch arch_in_config(Arch c) {
    if (c.context > c.T) {
        std::swap(c.context, c.T);
    }
    else { c.context = 0; }
    return c;
}

std::string config_json(const Arch& arch, const Tokenizer& tok, const std::string& tokenizer_path) {
    const Arch c = arch_in_config(arch);
    const bool llama = is_llama(c);
    JsonObject o(JSON_LINES);
    o.json("architectures", json_list({ json_str(llama ? "LlamaForCausalLM" : "TrainSink") }));
    o.text("model_type", llama ? "llama" : "train_sink");
    config_rest(&o, c, tok, tokenizer_path);
    return o.all() + "\n";
}

void config_rest(JsonObject* o, const Arch& c, const Tokenizer& tok,
                 const std::string& tokenizer_path) {
    Arch copy = c;
    for (auto& r : arch_rows(&copy)) {
        if (key_object(r).empty()) { o->json(r.key, config_text(r)); }
    }
    o->text("hidden_act", "silu");
    o->boolean("attention_bias", false);
    o->boolean("mlp_bias", false);
    if (open_files) { open_files->rope_write(o, c); }
    config_tail(o, c, tok, tokenizer_path);
}

void config_tail(JsonObject* o, const Arch& c, const Tokenizer& tok,
                 const std::string& tokenizer_path) {
    if (tok.eos >= 0) {
        o->count("bos_token_id", tok.bos);
        o->count("eos_token_id", tok.eos);
    }
    o->text("torch_dtype", "float32");
    JsonObject ours(JSON_SPACED);
    ours.text("attn", build::Attn::name);
    arch_fields(&ours, c);
    ours.text("tokenizer", tok.kind == TOKENIZER_BYTES ? "bytes" : tokenizer_path);
    o->json("train_sink", ours.all());
}

long json_count(const Json& j, const char* key, long otherwise, const std::string& where) {
    const Json& v = j.type == Json::OBJECT ? j[key] : j;
    if (v.type == Json::NUL) { return otherwise; }
    const double most = (double)(1L << 40);
    const bool whole = v.is_number() && v.number == floor(v.number);
    if (!whole || v.number < 0 || v.number > most) {
        die(where + strf(": %s: wanted a whole number, 0 to %.0f", key, most),
            "the file was edited or is damaged: use another checkpoint");
    }
    return (long)v.number;
}

// Dies unless this build computes what the rows of the checkpoint say. attn: its operation.
static void checkpoint_check_build(const std::string& dir, const Arch& c, const std::string& attn) {
    const BiasRow& b = bias_of(c);
    const PeRow& pe = pe_of(c);
    const bool same = attn == build::Attn::name && b.extra == Bias::extra &&
                      pe.score_bias == Pe::score_bias && (!pe.score_bias || c.pe == BUILD_PE);
    if (same) { return; }
    if (find_row(ATTN_ROWS, attn.c_str()) < 0) {
        std::string all;
        for (auto name : ATTN_ROWS) { all += std::string(" ") + name; }
        die(dir + "/config.json: attn is " + json_str(attn) + ", wanted one of:" + all);
    }
    auto words = [](const std::string& attn, const char* bias, const char* pe) {
        return "ATTN=" + attn + " BIAS=" + bias + " PE=" + pe;
    };
    const std::string theirs = words(attn, b.name, pe.name),
                      ours = words(build::Attn::name, BIAS_ROWS[BUILD_BIAS].name,
                                   PE_ROWS[BUILD_PE].name);
    const std::string precision = state_of(dir)["build"]["PRECISION"].string;
    const bool usual = precision.empty() || precision == "fp32";
    hints.also.clear();                                  // the checkpoint is not at fault
    die(dir + ": this checkpoint needs a build with " + theirs +
        ", this binary has " + ours,
        "make train_sink " + theirs + (usual ? "" : " PRECISION=" + precision));
}

// Dies if our own config.json names code beside the weights that is not ours: it is not run.
static void own_code_check(const Json& j, const std::string& where) {
    for (auto& [key, value] : j["auto_map"].fields) {
        if (starts_with(value.string, "modeling_train_sink.TrainSink")) { continue; }
        die(where + ": auto_map: " + key + " is " + json_short(value) +
                ": code beside the weights, which is not run",
            "if the weights are those of a run, remove auto_map from this file");
    }
}

// Reads an object of our config.json; name: the object, "" for the file. read: a row of it.
static void config_read(Arch* c, const std::string& name, const Json& object,
                        const std::string& where, decltype(arch_read)* read = arch_read) {
    const bool ours = name == "train_sink";
    const char* beside = ours ? " attn tokenizer "
                              : " hidden_act attention_bias mlp_bias rope_scaling train_sink"
                                " architectures auto_map model_type torch_dtype bos_token_id"
                                " eos_token_id ";
    for (auto& [key, v] : object.fields) {
        bool known = name.empty() && directory_key("config.json", key, where, v);
        known = known || is_one_of(beside, key);
        for (auto& r : arch_rows(c)) {
            if (key_object(r) != name || key_name(r) != key) { continue; }
            known = true;
            read(r, v, where);
        }
        const bool of_open = ours && is_one_of(KEYS_OF_OPEN, key);
        const bool number = v.is_number() || v.type == Json::BOOL;
        const bool unused = (number && v.number == 0) || (v.is_text() && v.string.empty());
        if (known || v.type == Json::NUL || (of_open && unused)) { continue; }
        die(where + ": the key '" + key + "' is not understood",
            of_open ? OPEN_MISSING : "it may come from a newer train_sink: git pull, then make");
    }
}

void config_ours(Checkpoint* k, const Json& mine) {
    config_read(&k->c, "train_sink", mine, k->where);
    if (k->c.context && k->c.context < k->c.T) {
        std::swap(k->c.context, k->c.T);
    }
    else { k->c.context = 0; }
    if (const Json* v = mine.get("attn")) { k->attn = v->string; }
    if (const Json* v = mine.get("tokenizer")) { k->tokenizer = v->string; }
}

// Opens a directory of ours: what its config.json says.
static Checkpoint checkpoint_ours(const std::string& dir) {
    if (ends_with(dir, ".gguf") && is_there(dir) && !open_files) {
        die(dir + ": is a GGUF file", OPEN_MISSING);
    }
    const std::string hint = open_files ? open_files->instead_of(dir)
                                        : "give a directory such as runs/NAME/step_1000";
    if (!is_dir(dir)) {
        look_file(dir, READS_CHECKPOINT);
        std::string got = "no such directory";
        if (is_there(dir)) { got = "got a file that " + begins_with(file_begin_bytes(dir, 8)); }
        die(dir + ": " + got + ", wanted a checkpoint: "
            "a directory with config.json and model.safetensors" +
                (open_files ? ", or a GGUF file" : ""),
            hint);
    }
    if (open_files) { open_files->form_check(dir); }
    Checkpoint k;
    k.where = dir + "/config.json";
    if (!file_exists(k.where)) {
        const FileKind other = kind_in_dir(dir, READS_CHECKPOINT);   // what is there instead
        die(dir + ": has no config.json, so it is not a checkpoint" + other.what,
            other.hint.empty() ? hint : other.hint);
    }
    k.config = json_file(k.where);
    const Json* mine = k.config.get("train_sink");
    const Json* type = k.config.get("model_type");
    const std::string family = type ? type->string : "llama";
    if (!mine || (family != "llama" && family != "train_sink")) {
        die(k.where + ": is of another program's model, " + printable(family),
            OPEN_MISSING);
    }
    own_code_check(k.config, k.where);
    k.c = arch_fixed();
    config_read(&k.c, "", k.config, k.where);
    const Json& rope = k.config["rope_scaling"];
    if (open_files) {
        config_read(&k.c, "rope_scaling", rope, k.where, open_files->rope_read);
    } else if (!rope.fields.empty()) {
        die(k.where + ": has rope_scaling", OPEN_MISSING);
    }
    config_ours(&k, *mine);
    return k;
}

Checkpoint checkpoint_open(const std::string& dir, bool may_add) {
    const bool theirs = open_files && open_files->is_theirs(dir);
    Checkpoint k = theirs ? open_files->open(dir) : checkpoint_ours(dir);
    k.theirs = theirs;
    k.adds_bias = may_add && k.c.bias == BIAS_none && BUILD_BIAS != BIAS_none;
    if (k.adds_bias) { k.c.bias = BUILD_BIAS; }
    arch_settle(&k.c, k.where);
    checkpoint_check_build(dir, k.c, k.attn);
    if (k.weights.maps.empty()) {
        k.weights = safetensors_open_dir(dir);
        if (open_files) { open_files->unwrap(&k.weights); }
    }
    // the files in it; without any "bytes", none, or what older checkpoints name
    if (k.tokenizer == "bytes") { return k; }
    if (!file_exists(k.tokenizer)) { k.tokenizer.clear(); }
    if (tokenizer_is_in(dir)) { k.tokenizer = dir; }
    return k;
}
