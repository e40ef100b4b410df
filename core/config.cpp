/*
core/config.cpp -- what config.h declares.
*/
#include "config.h"
#include "../files/directory.h"
#include "../open/adapter.h"
#include "../open/import_gguf.h"
#include "../open/text_part.h"
#include "../files/look.h"

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
    const char* architecture = llama ? "LlamaForCausalLM" : "TrainSink";
    const char* type = llama ? "llama" : "train_sink";
    JsonObject o(JSON_LINES);
    o.json("architectures", json_list({ json_str(architecture) }));
    o.text("model_type", type);
    config_rest(&o, c, tok, tokenizer_path);
    return o.all() + "\n";
}

void config_rest(JsonObject* o, const Arch& c, const Tokenizer& tok,
                 const std::string& tokenizer_path) {
    arch_fields(o, c, "");
    o->text("hidden_act", "silu");
    o->boolean("attention_bias", false);
    o->boolean("mlp_bias", false);
    if (c.rope_scaling != ROPE_none) { o->json("rope_scaling", arch_object(c, "rope_scaling")); }
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
    arch_fields(&ours, c, "train_sink");
    ours.text("tokenizer", tok.kind == TOKENIZER_BYTES ? "bytes" : tokenizer_path);
    o->json("train_sink", ours.all());
}

double json_number(const Json& j, const char* key, double otherwise) {
    const Json* v = j.get(key);
    return v && v->type == Json::NUMBER ? v->number : otherwise;
}

long json_count(const Json& j, const char* key, long otherwise, const std::string& where) {
    const Json* v = j.get(key);
    if (!v || v->type == Json::NUL) { return otherwise; }
    const double most = (double)(1L << 40);
    const bool whole = v->type == Json::NUMBER && v->number == floor(v->number);
    if (!whole || v->number < 0 || v->number > most) {
        die(EXIT_USER, where + strf(": %s: wanted a whole number, 0 to %.0f", key, most),
            "the file was edited or is damaged: use another checkpoint");
    }
    return (long)v->number;
}

// Finds the tokenizer of a checkpoint: the files in it; without any "bytes", "" (none), or what
// older checkpoints name.
static std::string checkpoint_tokenizer(const std::string& dir, const std::string& recorded) {
    const bool here = tokenizer_is_in(dir);
    if (recorded == "bytes") { return recorded; }
    if (here) { return dir; }
    return file_exists(recorded) ? recorded : "";
}

// Returns " PRECISION=bf16" if a checkpoint of ours was made by such a build, else "".
static std::string trained_precision(const std::string& dir) {
    const Json state = state_of(dir);
    const Json* build = state.get("build");
    const Json* precision = build ? build->get("PRECISION") : NULL;
    if (!precision || precision->string == "fp32") { return ""; }
    return " PRECISION=" + precision->string;
}

// Dies unless this build computes what the rows of the checkpoint say. attn: its operation.
static void checkpoint_check_build(const std::string& dir, const Arch& c, const std::string& attn) {
    const BiasRow& b = bias_of(c);
    const PeRow& pe = pe_of(c);
    const bool same = attn == build::Attn::name && b.column == Bias::column &&
                      pe.score_bias == Pe::score_bias && (!pe.score_bias || c.pe == BUILD_PE);
    if (same) { return; }
    if (!strstr(NAMES_OF(ATTN), (attn + " ").c_str())) {
        die(EXIT_USER,
            dir + "/config.json: attn is " + json_str(attn) + ", wanted one of: " NAMES_OF(ATTN));
    }
    auto words = [](const std::string& attn, const char* bias, const char* pe) {
        return "ATTN=" + attn + " BIAS=" + bias + " PE=" + pe;
    };
    const std::string theirs = words(attn, b.name, pe.name),
                      ours = words(build::Attn::name, BIAS_ROWS[BUILD_BIAS].name,
                                   PE_ROWS[BUILD_PE].name);
    hint_also().clear();                                 // the checkpoint has no fault
    die(EXIT_USER,
        dir + ": this checkpoint belongs to another build, wanted " + theirs +
            ", this binary has " + ours,
        "make train_sink " + theirs + trained_precision(dir));
}

// Dies if our own config.json names code beside the weights that is not ours: it is not run.
static void own_code_check(const Json& j, const std::string& where) {
    const Json* code = j.get("auto_map");
    for (size_t i = 0; code && i < code->fields.size(); i++) {
        const auto& [key, value] = code->fields[i];
        if (starts_with(value.string, "modeling_train_sink.TrainSink")) { continue; }
        die(EXIT_USER, where + ": auto_map: " + key + " is " + json_short(value) +
                           ": code beside the weights, which is not run",
            "if the weights are those of a run, remove auto_map from this file");
    }
}

// Reads our own config.json. *attn, *tokenizer: what else it says.
static Arch arch_of_checkpoint(const Json& j, const Json& mine, const std::string& where,
                               std::string* attn, std::string* tokenizer) {
    const Family* family = family_of(j);
    Arch c;
    // absent: the first of its table
    for (auto& r : arch_rows(&c)) {
        if (r.type == ARCH_kind) { *(kind*)r.at = 0; }
    }
    if (!family) { own_code_check(j, where); }
    if (family) {                                // what others read, in the family's words
        Json theirs = j;
        theirs.fields.erase(std::remove_if(theirs.fields.begin(), theirs.fields.end(),
                                           [](auto& f) { return f.first == "train_sink"; }),
                            theirs.fields.end());
        c = arch_import(theirs, where, attn);
    }
    const Json* scaling = j.get("rope_scaling");
    const Json none;
    const struct { const char* name; const Json& object; } objects[] =
        { { "", j }, { "train_sink", mine }, { "rope_scaling", scaling ? *scaling : none } };
    for (auto& o : objects) {
        if (family && strcmp(o.name, "train_sink")) { continue; }
        for (auto& f : o.object.fields) {
            const KeyRow* row = *o.name ? NULL : directory_key("config.json", f.first);
            if (row) { directory_value_check(*row, where, f.first, f.second); }
            bool known =
                *o.name ? f.first == "attn" || f.first == "tokenizer"
                        : strstr(" hidden_act attention_bias mlp_bias rope_scaling train_sink ",
                                 (" " + f.first + " ").c_str()) ||
                              is_harmless(f.first);
            for (auto& r : arch_rows(&c)) {
                if (key_object(r) != o.name || key_name(r) != f.first) {
                    continue;
                }
                known = true;
                arch_read(r, f.second, where);
            }
            if (!known) {
                die(EXIT_USER, where + ": the key '" + f.first + "' is not understood",
                    "it may come from a newer train_sink: git pull, then make");
            }
        }
    }
    if (c.context && c.context < c.T) {
        std::swap(c.context, c.T);
    }
    else { c.context = 0; }
    if (const Json* v = mine.get("attn")) { *attn = v->string; }
    if (const Json* v = mine.get("tokenizer")) { *tokenizer = v->string; }
    return c;
}

std::string checkpoint_gguf(const std::string& path) {
    if (!is_dir(path)) { return ends_with(path, ".gguf") ? path : ""; }
    return file_exists(path + "/config.json") ? "" : gguf_in(path);
}

// Dies if a directory holds a model in another form, as these files in it say.
static void form_check(const std::string& dir) {
    static const struct { const char *name, *what, *hint; } FILES[] = {
        { "model_index.json", "a pipeline of several models", "give one of a language model" },
        { "params.json", "a model as Meta and Mistral publish it",
          "get the same model in Hugging Face's format, or as GGUF" },
        { "saved_model.pb", "a TensorFlow model", "get the model with .safetensors" },
        { "manifest.json", "shards of tokens", "it is for -d; give a checkpoint" },
    };
    const bool config = file_exists(dir + "/config.json");
    for (auto& f : FILES) {
        if (config || !file_exists(dir + "/" + f.name)) { continue; }
        die(EXIT_USER, dir + ": holds " + f.what + ", as its " + f.name + " says, and that is not "
            "read", f.hint);
    }
    const std::vector<std::string> kept = dir_list(dir + "/snapshots");
    if (config || kept.empty()) { return; }
    die(EXIT_USER, dir + ": is a model as its hub's cache keeps it, wanted one snapshot of it",
        "give " + dir + "/snapshots/" + kept[0]);
}

// Lists the first names in a directory.
static std::string contents(const std::string& dir) {
    const std::vector<std::string> names = dir_list(dir);
    if (names.empty()) { return "nothing"; }
    std::string listed;
    for (size_t i = 0; i < names.size() && i < 8; i++) { list_add(&listed, names[i]); }
    if (names.size() > 8) { listed += strf(", and %zu more", names.size() - 8); }
    return listed;
}

// Guesses what was meant by a checkpoint that is not there.
static std::string beside_checkpoint(const std::string& given) {
    for (const char* demo : { "demo-text", "demo-bb" }) {
        if (given.compare(0, 5 + strlen(demo), std::string("runs/") + demo)) { continue; }
        return std::string("make ") + (strcmp(demo, "demo-bb") ? "demo" : demo) + " trains it";
    }
    if (given.compare(0, 5, "runs/") == 0 && !is_dir("runs")) {
        return "there is no run yet: ./train_sink train -o runs/mine";
    }
    const bool of_hub = split(given, '/').size() == 2 && !is_there(directory_above(given));
    if (of_hub) {                                        // google/gemma-3-1b-it
        const std::string name = given.substr(given.find('/') + 1);
        return hint_for("scripts/fetch_models.py models FILE gets it, then give models/", given) +
               printable(name);
    }
    const std::string above = directory_above(given);
    return above.empty() ? "ls -d */ *.gguf" : hint_for("ls -d FILE/*/", above);
}

// Opens the two files of a directory, or the GGUF file; nothing else is read.
static Checkpoint checkpoint_files(const std::string& dir) {
    Checkpoint k;
    const std::string gguf = checkpoint_gguf(dir);
    if (!gguf.empty()) {
        Gguf g = gguf_open(gguf);
        k.where = gguf;
        k.config = gguf_config(g);
        const std::string words = gguf_string(g, "tokenizer.ggml.model");
        k.tokenizer = words.empty() || words == "no_vocab" ? "" : gguf;
        k.weights = gguf_weights(&g);
        return k;
    }
    if (!is_dir(dir)) {
        look_file(dir, READS_CHECKPOINT);
        const char* got = is_there(dir) ? ": got a file" : ": no such directory";
        die(EXIT_USER, dir + got + ", wanted a checkpoint: "
            "a directory with config.json and model.safetensors, or a GGUF file",
            beside_checkpoint(dir));
    }
    form_check(dir);
    k.where = dir + "/config.json";
    k.tokenizer = file_exists(dir + "/tokenizer.json") ? dir + "/tokenizer.json" : "";
    if (!file_exists(k.where)) {
        const Kind other = kind_in_dir(dir, READS_CHECKPOINT);   // what is there instead
        const std::string hint = "give a directory such as runs/NAME/step_1000; in this one: ";
        die(EXIT_USER, dir + ": has no config.json, so it is not a checkpoint" + other.what,
            other.hint.empty() ? hint + contents(dir) : other.hint);
    }
    k.config = json_file(k.where);
    k.part_of = text_part_config(&k.config);
    return k;
}

static const char* const MERGE = "merge it into them, with peft's merge_and_unload";

// Dies if the tensors are those of something around the model, or have names of another kind.
static void names_check(const Weights& files, bool embedding, const std::string& wanted) {
    static const struct { const char *part, *what, *hint; } KNOWN[] = {
        { ".lora_", "an adapter (LoRA) beside its weights", MERGE },
        { "base_model.", "a model that PEFT is wrapped around", MERGE },
        { "language_model.", "a model of more than text, of which this is the part for text",
          "save that part by itself: model.language_model.save_pretrained('NEW')" },
        { "vision_tower.", "a model of more than text", "give its language model alone" },
    };
    for (auto& t : files.tensors) {
        for (auto& k : KNOWN) {
            if (t.name.find(k.part) == std::string::npos) {
                continue;
            }
            die(EXIT_USER, t.file + ": the tensor '" + t.name + "' is of " + k.what
                + ", and that is not read", k.hint);
        }
    }
    if (embedding || files.tensors.empty()) { return; }
    die(EXIT_USER,
        files.path + ": has no embedding '" + wanted + "'; its first tensor is called '" +
            files.tensors[0].name + "'",
        "save the weights under the names that transformers gives them");
}

Checkpoint checkpoint_open(const std::string& dir, const std::string& adapter, bool may_add) {
    adapter_beside_check(dir, adapter);
    Checkpoint k = checkpoint_files(dir);
    const Json* mine = k.config.get("train_sink");
    k.c = mine ? arch_of_checkpoint(k.config, *mine, k.where, &k.attn, &k.tokenizer)
               : arch_import(k.config, k.where, &k.attn);
    if (const Family* family = family_of(k.config)) {
        k.c.family = family->type;
    }
    if (!mine && k.weights.maps.empty()) {
        k.weights = safetensors_open_dir(dir);
    }
    weights_unwrap(&k.weights);
    if (!mine) { weights_headless(&k.weights); }
    if (!k.part_of.empty()) {
        const int others = text_part_weights(&k.weights);
        k.part_of += strf(", a model of more than text: its language model is read, %d tensors of "
                          "the rest are not", others);
    }
    // OPT-350m's head is the embedding times a matrix
    if (!mine) {
        const bool projected = k.weights.find("model.decoder.project_out.weight");
        const Family family = family_of_file(k.config, ends_with(k.where, ".gguf"));
        const bool head = import_source(family, k.c, k.weights, "lm_head.weight").w;
        const Json* said = k.config.get("tie_word_embeddings");
        const std::string embed = "model.embed_tokens.weight";
        names_check(k.weights, import_source(family, k.c, k.weights, embed).w, embed);
        if (!k.c.tied && !head) {
            const std::string is = said ? json_short(*said) : "missing";
            die(EXIT_USER, k.where + ": tie_word_embeddings is " + is + ", and there is no lm_head",
                "is a file of its weights missing? set it to true only if its head is the "
                "embedding");
        }
        k.c.tied = k.c.tied && !projected;
    }
    k.adds_bias = may_add && k.c.bias == BIAS_none && BUILD_BIAS != BIAS_none;
    if (k.adds_bias) { k.c.bias = BUILD_BIAS; }
    arch_settle(&k.c, k.where);
    checkpoint_check_build(dir, k.c, k.attn);
    if (mine) {
        k.weights = safetensors_open_dir(dir);
        weights_unwrap(&k.weights);
    }
    if (!adapter.empty() && adapter != "none") {
        const Family* family = family_of(k.config);
        k.adapted = adapter_apply(adapter, family, k.c.tied, &k.weights);
    }
    k.tokenizer = checkpoint_tokenizer(dir, k.tokenizer);
    return k;
}

Arch checkpoint_arch(const std::string& dir, std::string* tokenizer) {
    Checkpoint k = checkpoint_open(dir);
    *tokenizer = k.tokenizer;
    weights_close(&k.weights);
    return k.c;
}
