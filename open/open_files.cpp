/*
open/open_files.cpp -- what optional.h asks of open/ about files: another family's directory or a
GGUF file opened, a model written in a family's words, tokenizers.
*/
#include "../core/config.h"
#include "../core/directory.h"
#include "../base/look.h"
#include "arch_rows.h"
#include "family_out.h"
#include "foreign_weights.h"
#include "import_gguf.h"
#include "rope.h"
#if HAS_TEXT
#include "text_steps.h"
#endif

// Dies if a directory holds a model in another form, as these files in it say.
static void form_check(const std::string& dir) {
    static const struct { const char *name, *what, *hint; } FILES[] = {
        { "model_index.json", "a pipeline of several models", "give one of a language model" },
        { "params.json", "a model as Meta and Mistral publish it",
          "get the same model in Hugging Face's format, or as GGUF" },
        { "saved_model.pb", "a TensorFlow model", "get the model with .safetensors" },
        { "manifest.json", "shards of tokens", "it is for -d; give a checkpoint" },
    };
    if (file_exists(dir + "/config.json")) { return; }
    for (auto& f : FILES) {
        if (!file_exists(dir + "/" + f.name)) { continue; }
        die(dir + ": holds " + f.what + ", as its " + f.name + " says, and that is not "
            "read", f.hint);
    }
    const auto kept = dir_list(dir + "/snapshots");
    if (kept.empty()) { return; }
    die(dir + ": is a model as its hub's cache keeps it, wanted one snapshot of it",
        "give " + dir + "/snapshots/" + kept[0]);
}

// Returns the GGUF file that the path is, or that a directory without a config.json has in it; ""
// if none.
static std::string checkpoint_gguf(const std::string& path) {
    if (!is_dir(path)) { return ends_with(path, ".gguf") ? path : ""; }
    return file_exists(path + "/config.json") ? "" : gguf_in(path);
}

static const char* const MERGE =
    "python3 -c \"import sys; from peft import AutoPeftModelForCausalLM as M; "
    "M.from_pretrained(sys.argv[1]).merge_and_unload().save_pretrained(sys.argv[2])\" FILE NEW";

// Dies if a path is a file of an adapter, or a directory with one: what it does to the weights is
// not done here.
static void adapter_check(const std::string& path) {
    const bool whole = is_dir(path);
    const std::string dir = whole ? path : directory_of(path);
    std::vector<std::string> names = { file_name(path) };
    if (whole) { names = dir_list(dir); }
    for (auto& name : names) {
        if (!starts_with(name, "adapter_") || !directory_key(name, "")) { continue; }
        const bool beside = file_exists(dir + "/config.json");
        die(dir + ": holds an adapter (LoRA), its " + name + ", wanted weights that it "
            "is merged into", hint_for(MERGE, dir) + (beside ? "  # or move adapter_* away" : ""));
    }
}

// Dies if the tensors are those of something around the model, or have names of another kind.
static void names_check(const Weights& files, bool embedding, const std::string& wanted) {
    static const struct { const char *part, *what, *hint; } KNOWN[] = {
        { ".lora_", "an adapter (LoRA) beside its weights", MERGE },
        { "base_model.", "a model that PEFT is wrapped around", MERGE },
        { "language_model.", "a model of more than text, of which this is the part for text",
          TEXT_PART },
        { "vision_tower.", "a model of more than text", TEXT_PART },
    };
    for (auto& t : files.tensors) {
        for (auto& k : KNOWN) {
            if (!contains(t.name, k.part)) { continue; }
            die(t.file + ": the tensor '" + t.name + "' is of " + k.what
                + ", and that is not read", hint_for(k.hint, directory_of(t.file)));
        }
    }
    if (embedding || files.tensors.empty()) { return; }
    die(files.path + ": has no embedding '" + wanted + "'; its first tensor is called '" +
            files.tensors[0].name + "'",
        "save the weights under the names that transformers gives them");
}

static bool is_theirs(const std::string& path) {
    adapter_check(path);
    if (!checkpoint_gguf(path).empty()) { return true; }
    if (!file_exists(path + "/config.json")) { return false; }
    const Json config = json_file(path + "/config.json");
    return !config.get("train_sink") || family_of(config);
}

// Reads a GGUF file: its keys as a config.json, and its tensors.
static Checkpoint gguf_checkpoint(const std::string& path) {
    Checkpoint k;
    Gguf g = gguf_open(path);
    k.where = path;
    k.config = gguf_config(g);
    const std::string words = gguf_string(g, "tokenizer.ggml.model");
    k.tokenizer = words.empty() || words == "no_vocab" ? "" : path;
    k.weights = gguf_weights(&g);
    return k;
}

// Reads the config.json of a run that began as another family: what its reader knows in the
// family's words, the rest in ours.
static void read_both(Checkpoint* k, const Json& mine) {
    Json theirs = k->config;
    theirs.fields.erase(std::remove_if(theirs.fields.begin(), theirs.fields.end(),
                                       [](auto& f) { return f.first == "train_sink"; }),
                        theirs.fields.end());
    k->c = arch_import(theirs, k->where, &k->attn);
    const Arch fixed = arch_fixed();                     // what is absent in ours
#define X(type, field, preset, cmds, by, key, ...) \
    if (!strncmp(key, "train_sink.", 11)) { k->c.field = fixed.field; }
    ARCH(X)
#undef X
    config_ours(k, mine);
}

// Settles whether the head is the embedding, as the tensors say.
static void settle_tied(Checkpoint* k, bool gguf) {
    // OPT-350m's head is the embedding times a matrix
    const bool projected = k->weights.find("model.decoder.project_out.weight");
    const Family family = family_of_file(k->config, gguf);
    const bool head = import_source(family, k->c, k->weights, "lm_head.weight").w;
    const Json* said = k->config.get("tie_word_embeddings");
    const std::string embed = "model.embed_tokens.weight";
    names_check(k->weights, import_source(family, k->c, k->weights, embed).w, embed);
    if (!k->c.tied && !head) {
        const std::string is = said ? json_short(*said) : "missing";
        die(k->where + ": tie_word_embeddings is " + is + ", and there is no lm_head",
            "is a file of its weights missing? set it to true only if its head is the "
            "embedding");
    }
    k->c.tied = k->c.tied && !projected;
}

static Checkpoint open_theirs(const std::string& path) {
    const std::string gguf = checkpoint_gguf(path);
    Checkpoint k;
    if (!gguf.empty()) {
        k = gguf_checkpoint(gguf);
    } else {
        k.where = path + "/config.json";
        k.tokenizer = file_exists(path + "/tokenizer.json") ? path + "/tokenizer.json" : "";
        k.config = json_file(k.where);
    }
    const Json* mine = k.config.get("train_sink");
    if (mine) {
        read_both(&k, *mine);
    } else {
        k.c = arch_import(k.config, k.where, &k.attn);
    }
    k.c.family = family_of(k.config)->name;
    if (mine) { return k; }
    if (k.weights.maps.empty()) { k.weights = safetensors_open_dir(path); }
    weights_unwrap(&k.weights);
    weights_headless(&k.weights);
    settle_tied(&k, !gguf.empty());
    return k;
}

// Lists the first names in a directory.
static std::string contents(const std::string& dir) {
    const auto names = dir_list(dir);
    if (names.empty()) { return "nothing"; }
    std::string listed;
    for (size_t i = 0; i < names.size() && i < 8; i++) { list_add(&listed, names[i]); }
    if (names.size() > 8) { listed += strf(", and %zu more", names.size() - 8); }
    return listed;
}

// Says what a directory has that is no checkpoint; guesses what was meant by one that is not there.
static std::string instead_of(const std::string& given) {
    if (is_dir(given)) {
        return "give a directory such as runs/NAME/step_1000; in this one: " + contents(given);
    }
    if (starts_with(given, "runs/demo-text")) { return "make demo trains it"; }
    if (starts_with(given, "runs/demo-bb")) { return "make demo-bb trains it"; }
    if (starts_with(given, "runs/") && !is_dir("runs")) {
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

static bool written_as(const Arch& c, const std::vector<StOut>& ours, const Tokenizer& tok,
                       const std::string& tokenizer_path, ModelFile* file) {
    FamilyFile as = family_file(c, c.family, ours, tok, tokenizer_path);
    *file = std::move(as);                               // all but the family
    return as.family;
}

static std::string tokenizer_file(const std::string& path) {
    Gguf g = gguf_open(path);
    const std::string file = gguf_tokenizer_file(g);
    weights_close(&g.weights);
    return file;
}

extern const OpenFiles OPEN_FILES = {
    is_theirs, form_check, open_theirs, weights_of_index,
    dtype_of, instead_of, weights_unwrap, lm_head_is_embedding, written_as, floats_spared,
    gguf_in, tokenizer_file, check_rows, rope_write, rope_row_read, rope_stretch, rope_limit_of,
    mixer_name, forward_only,
#if HAS_TEXT
    tokenizer_load_gguf, normalizer_step, splitter_step,
#else
    NULL, NULL, NULL,            // nobody asks for them
#endif
};
