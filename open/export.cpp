/*
open/export.cpp -- what export.h declares, but for the card.
*/
#include "export.h"

// The PyTorch file is part of the program, so that a program that was moved has it, too. Its first
// line and its last, comments to Python, make it a string to C++.
static const char* const MODELING =
#include "../scripts/modeling_train_sink.py"
;

static const char* const MODELING_NAME = "modeling_train_sink.py";

std::string modeling_source() {
    const std::string text = MODELING;           // from the quote of the first line on
    return text.substr(text.find('\n') + 1, text.rfind('\n') - text.find('\n'));
}

// ---- the directory

static const char* const MANIFEST = "export.json";

// Reads the names that the export.json of a directory gives; none if it has no such file.
static std::vector<std::string> exported_files(const std::string& path) {
    std::vector<std::string> names;
    if (!file_exists(path + "/" + MANIFEST)) { return names; }
    const Json j = json_file(path + "/" + MANIFEST);
    const Json* files = j.get("files");
    for (size_t i = 0; files && i < files->items.size(); i++) {
        names.push_back(files->items[i].string);
    }
    return names;
}

void export_check(const std::string& path) {
    if (path.empty()) {
        die(EXIT_USER, "--out: got nothing, wanted a new directory", "such as --out my-model");
    }
    if (!is_there(path)) { return; }
    if (!is_dir(path)) {
        die(EXIT_USER, path + ": already exists, wanted a new directory", "choose another --out");
    }
    const std::vector<std::string> known = exported_files(path);
    for (auto& name : dir_list(path)) {
        if (std::count(known.begin(), known.end(), name)) { continue; }
        die(EXIT_USER, path + ": holds " + name + ", which no export wrote, wanted a new directory",
            "choose another --out");
    }
}

ExportDir export_begin(const std::string& given) {
    ExportDir o;
    o.path = link_target(given);
    while (o.path.size() > 1 && o.path.back() == '/') {
        o.path.pop_back();
    }
    export_check(o.path);
    const size_t slash = o.path.rfind('/');
    if (slash != std::string::npos && slash > 0) {
        make_dirs(o.path.substr(0, slash));
    }
    std::string name = o.path + ".XXXXXX";
    if (!mkdtemp(&name[0])) {
        die(blame(errno), o.path + strf(": cannot create this directory (%s)", strerror(errno)),
            "choose another --out");
    }
    o.tmp = name;
    const mode_t mask = umask(0);                // mkdtemp lets nobody else read it
    umask(mask);
    chmod(o.tmp.c_str(), 0777 & ~mask);
    return o;
}

void export_file(ExportDir* o, const std::string& name, const std::string& content) {
    file_write(o->tmp + "/" + name, content);
    o->files.push_back(name);
}

void export_commit(ExportDir* o) {
    std::vector<std::string> files = o->files;
    files.push_back(MANIFEST);
    std::sort(files.begin(), files.end());
    std::vector<std::string> names;
    for (auto& name : files) { names.push_back(json_str(name)); }
    JsonObject manifest(JSON_SPACED);
    manifest.json("files", json_list(names, JSON_SPACED));
    file_write(o->tmp + "/" + MANIFEST, manifest.all() + "\n");
    dir_sync(o->tmp);
    export_check(o->path);                       // again, since the work took its time
    const std::vector<std::string> before = exported_files(o->path);
    const std::string old = o->tmp + ".old";
    const bool replaces = is_there(o->path) && !rename(o->path.c_str(), old.c_str());
    if (rename(o->tmp.c_str(), o->path.c_str())) {
        die(EXIT_MACHINE, o->path + strf(": cannot rename into place (%s)", strerror(errno)),
            "all of it is in " + o->tmp);
    }
    dir_sync(directory_of(o->path));
    if (!replaces) { return; }
    remove_ours(old, [&](const std::string& name) {
        return std::count(before.begin(), before.end(), name) > 0;
    });
}

// ---- what goes in beside the weights

void export_with_code(ExportDir* o, const Arch& c, const Tokenizer& tok) {
    const char* classes =
        "{\n"
        "    \"AutoConfig\": \"modeling_train_sink.TrainSinkConfig\",\n"
        "    \"AutoModel\": \"modeling_train_sink.TrainSinkModel\",\n"
        "    \"AutoModelForCausalLM\": \"modeling_train_sink.TrainSinkForCausalLM\"\n  }";
    JsonObject config(JSON_LINES);
    config.json("architectures", json_list({ json_str("TrainSinkForCausalLM") }));
    config.text("model_type", "train_sink");
    config.json("auto_map", classes);
    config_rest(&config, arch_in_config(c), tok, "");
    export_file(o, "config.json", config.all() + "\n");
    export_file(o, MODELING_NAME, modeling_source());
}

static std::string bytes_tokenizer_json() {
    std::string vocab;
    const std::vector<uint32_t> characters = byte_alphabet();
    for (int b = 0; b < 256; b++) {
        std::string character;
        utf8_append(&character, characters[b]);
        vocab += json_str(character) + strf(": %d, ", b);
    }
    const std::string end = json_str(END_OF_BYTES);
    return "{\n  \"version\": \"1.0\",\n  \"truncation\": null,\n  \"padding\": null,\n"
           "  \"added_tokens\": [{\"id\": 256, \"content\": " + end + ", \"single_word\": false, "
           "\"lstrip\": false, \"rstrip\": false, \"normalized\": false, \"special\": true}],\n"
           "  \"normalizer\": null,\n"
           "  \"pre_tokenizer\": {\"type\": \"ByteLevel\", \"add_prefix_space\": false, "
           "\"trim_offsets\": false, \"use_regex\": false},\n"
           "  \"post_processor\": null,\n"
           "  \"decoder\": {\"type\": \"ByteLevel\", \"add_prefix_space\": false, "
           "\"trim_offsets\": false, \"use_regex\": false},\n"
           "  \"model\": {\"type\": \"BPE\", \"dropout\": null, \"unk_token\": null, "
           "\"continuing_subword_prefix\": null, \"end_of_word_suffix\": null, "
           "\"fuse_unk\": false, \"byte_fallback\": false, \"ignore_merges\": false,\n"
           "    \"vocab\": {" + vocab + end + ": 256},\n    \"merges\": []}\n}\n";
}

std::string export_tokenizer(ExportDir* o, const Tokenizer& tok, int T) {
    for (auto& file : tok.files) { export_file(o, file.first, file.second); }
    if (tok.kind == TOKENIZER_IDS) {
        return "Its data were token ids that no tokenizer made: it reads and writes numbers.";
    }
    if (tok.kind == TOKENIZER_BPE) {
        if (!tok.files.empty() && ends_with(tok.files[0].first, ".gguf")) {
            return "Its tokenizer is in tokenizer.gguf, which train_sink reads and transformers "
                   "does not.";
        }
        if (!tok.files.empty()) { return ""; }
        return "Its tokenizer is that of " + tok.name + ", which is not here.";
    }
    JsonObject config(JSON_LINES);
    config.text("tokenizer_class", "PreTrainedTokenizerFast");
    config.text("bos_token", END_OF_BYTES);
    config.text("eos_token", END_OF_BYTES);
    config.boolean("clean_up_tokenization_spaces", false);
    config.count("model_max_length", T);
    export_file(o, "tokenizer.json", bytes_tokenizer_json());
    export_file(o, "tokenizer_config.json", config.all() + "\n");
    return "Its tokens are the 256 bytes, and 256, which ends a document.";
}
