/*
open/export.cpp -- writes the directory under another name, checks it, and renames it. The card is
export_card.cpp.
*/
#include "export.h"
#include "../base/lock.h"

// The PyTorch file is part of the program, so that a program that was moved has it, too. Its first
// line and its last, comments to Python, make it a string to C++.
static const char* const MODELING =
#include "../scripts/modeling_train_sink.py"
;

std::string modeling_source() {
    const std::string text = MODELING;           // from the quote of the first line on
    return text.substr(text.find('\n') + 1, text.rfind('\n') - text.find('\n'));
}

// ---- the directory

static const char* const EXPORT_MANIFEST = "export.json";
static const char* const ANOTHER = "choose another --out, or move what is there away";

// Returns a hash of a file's bytes.
static std::string file_hash(const std::string& path) {
    FILE* f = xfopen(path.c_str(), "rb");
    std::vector<char> part(1 << 20);
    uint64_t hash = hash_bytes(NULL, 0);
    for (size_t n = 1; n > 0;) {
        n = fread(part.data(), 1, part.size(), f);
        hash = hash_bytes(part.data(), n, hash);
    }
    fclose(f);
    return hash_text(hash);
}

// Says what of a directory is not as an export left it; "" if all of it is, to the last byte.
static std::string not_ours(const std::string& dir) {
    const auto names = dir_list(dir);
    if (names.empty()) { return ""; }
    Json files;
    const std::string manifest = dir + "/" + EXPORT_MANIFEST;
    auto read = [&] { files = json_file(manifest)["files"]; };
    if (file_exists(manifest) && !failure_of(read).empty()) {
        return std::string(EXPORT_MANIFEST) + ", which was changed since";
    }
    if (files.type == Json::ARRAY) {
        return "an export of an older version, which kept no hashes of its files";
    }
    for (auto& name : names) {
        if (name == EXPORT_MANIFEST || is_temporary(name, EXPORT_MANIFEST)) { continue; }
        const Json* hash = files.get(name);
        struct stat st;
        const std::string path = dir + "/" + name;
        const bool plain = !lstat(path.c_str(), &st) && S_ISREG(st.st_mode);
        if (!hash || !plain) { return name + ", which no export wrote"; }
        if (file_hash(path) != hash->string) { return name + ", which was changed since"; }
    }
    return "";
}

void export_check(const std::string& path) {
    if (!is_there(path)) { return; }
    if (!is_dir(path)) {
        die(path + ": already exists, wanted a new directory", "choose another --out");
    }
    const std::string what = not_ours(path);
    if (what.empty()) { return; }
    die(path + ": holds " + what + ", wanted a new directory", ANOTHER);
}

// Tells whether an export puts a file of this name into its directory, or begins to.
static bool export_writes(const std::string& name) {
    for (const char* file : { "model.safetensors", "config.json", "modeling_train_sink.py",
                              "README.md", EXPORT_MANIFEST, "lock" }) {
        if (name == file || is_temporary(name, file)) { return true; }
    }
    return tokenizer_ours(name);
}

// Returns the directory that export_begin has made and export_commit has not named yet.
static std::string& half_export() { static std::string dir; return dir; }

static void remove_half_export() {
    if (!half_export().empty()) { remove_ours(half_export(), export_writes); }
}

// Takes the temporary directory for this process. One that a killed export left is emptied: it has
// the lock of one, or is whole.
static void export_take(const std::string& tmp) {
    const bool theirs = is_there(tmp) && !file_exists(tmp + "/lock");
    if (theirs && (!is_dir(tmp) || !not_ours(tmp).empty())) {
        die(tmp + ": is not of an export, wanted this name for one that is not whole",
            ANOTHER);
    }
    make_dirs(tmp);
    dir_lock(tmp, "let the other export end and look at what it wrote, or choose another --out");
    for (auto& name : dir_list(tmp)) {
        if (name != "lock" && export_writes(name)) { unlink((tmp + "/" + name).c_str()); }
    }
    half_export() = tmp;                          // is made before, and so lives longer than
    static const int once = atexit(remove_half_export);
    (void)once;
}

std::string export_path(const std::string& given) {
    std::string path = link_target(given);
    while (path.size() > 1 && path.back() == '/') { path.pop_back(); }
    return path;
}

ExportDir export_begin(const std::string& given) {
    ExportDir o;
    o.path = export_path(given);
    export_check(o.path);
    make_dirs(directory_of(o.path));
    o.tmp = name_with_tail(o.path, ".tmp");
    export_take(o.tmp);
    return o;
}

void export_file(ExportDir* o, const std::string& name, const std::string& content) {
    file_write(o->tmp + "/" + name, content);
    o->files.push_back(name);
}

// Puts the new directory in the place of the old one, and the old one in its. Where a file system
// cannot exchange them, the old one steps aside in between.
static bool change_places(const std::string& tmp, const std::string& path) {
    if (!renameat2(AT_FDCWD, tmp.c_str(), AT_FDCWD, path.c_str(), RENAME_EXCHANGE)) { return true; }
    const std::string aside = name_with_tail(path, ".old");
    if (is_there(aside) || rename(path.c_str(), aside.c_str())) { return false; }
    if (rename(tmp.c_str(), path.c_str())) {
        rename(aside.c_str(), path.c_str());
        return false;
    }
    return !rename(aside.c_str(), tmp.c_str());
}

void export_commit(ExportDir* o) {
    std::sort(o->files.begin(), o->files.end());
    JsonObject hashes(JSON_SPACED);
    for (auto& name : o->files) { hashes.text(name, file_hash(o->tmp + "/" + name)); }
    JsonObject manifest(JSON_SPACED);
    manifest.json("files", hashes.all());
    file_write(o->tmp + "/" + EXPORT_MANIFEST, manifest.all() + "\n");
    dir_sync(o->tmp);
    export_check(o->path);                       // again, since the work took its time
    unlink((o->tmp + "/lock").c_str());
    const bool replaces = is_there(o->path);
    const bool done = replaces ? change_places(o->tmp, o->path)
                               : !rename(o->tmp.c_str(), o->path.c_str());
    if (!done) {
        die(EXIT_MACHINE, cannot("rename into place", o->path), ANOTHER);
    }
    dir_sync(directory_of(o->path));
    if (replaces) { remove_ours(o->tmp, export_writes); }
    half_export().clear();
}

// ---- what goes in beside the weights

// Returns what the tables of the PyTorch file say of a key: the names of a kind, with blanks around
// each, or " " for another row. "" if no table has it.
static std::string modeling_row(const std::string& key) {
    const std::string code = modeling_source();
    const size_t rows = code.find("\nROWS = ");
    const std::string tables = code.substr(0, code.find("\nNEVER = "));
    size_t at = tables.find("\nKINDS = ");
    do {
        at = tables.find(key + "=", at + 1);
        if (at == std::string::npos) { return ""; }
    } while (!strchr(" (", tables[at - 1]));
    if (at > rows) { return " "; }
    std::string names = tables.substr(at + key.size());
    names.resize(names.find_first_of(",)"));
    for (char& c : names) {
        if (strchr("=\"\n", c)) { c = ' '; }
    }
    return names;
}

// Dies if the PyTorch file does not know a row of config.json, or its value: it would refuse the
// model, and must not be taken for a file that computes it.
static void modeling_check(const Json& config, const std::string& from) {
    for (const char* object : { "train_sink", "rope_scaling" }) {
        for (auto& [key, value] : config[object].fields) {
            const std::string names = modeling_row(key);
            const bool known = names == " " || contains(names, " " + value.string + " ");
            if (!names.empty() && known) { continue; }
            die(from + ": " + key + " is " + json_short(value) +
                    ", which scripts/modeling_train_sink.py does not know",
                "add it to that file, its name and what it computes, then make");
        }
    }
}

std::string config_with_code(const Arch& c, const Tokenizer& tok, const std::string& from) {
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
    modeling_check(json_of(config.all()), from);
    return config.all() + "\n";
}

static std::string bytes_tokenizer_json() {
    std::string vocab;
    const std::vector<uint32_t> characters = text_needed("raw bytes").byte_alphabet();
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

// ---- a run whose sequences all begin with one token has its sink there

// Returns the text of a JSON object with this value of a key: in place of its own, or first.
static std::string json_with(const std::string& text, const std::string& key,
                             const std::string& value) {
    const std::string name = json_str(key);
    size_t begin = 0;
    int depth = 0;
    for (size_t i = 0; i < text.size(); i++) {
        const char c = text[i];
        if (c == '{' || c == '[') { depth++; }
        if (c == '}' || c == ']') { depth--; }
        const bool ends = begin && ((c == ',' && depth == 1) || !depth);
        if (ends) { return text.substr(0, begin) + " " + value + text.substr(i); }
        if (c != '"') { continue; }
        const size_t from = i;
        for (i++; i < text.size() && text[i] != '"'; i++) { i += text[i] == '\\'; }
        const size_t next = text.find_first_not_of(" \t\r\n", i + 1);
        const bool is_key = depth == 1 && next != text.npos && text[next] == ':';
        if (is_key && text.substr(from, i + 1 - from) == name) { begin = next + 1; }
    }
    const size_t open = text.find('{') + 1;
    const bool empty = json_of(text).fields.empty();
    return text.substr(0, open) + name + ": " + value + (empty ? "" : ", ") + text.substr(open);
}

// Returns what a post_processor of tokenizer.json does, with a token before every text.
static std::string post_processor(const std::string& text, int id, const Json& had) {
    const std::string word = json_str(text);
    const std::string token = "{\"SpecialToken\": {\"id\": " + word + ", \"type_id\": 0}}, ";
    const std::string a = "{\"Sequence\": {\"id\": \"A\", \"type_id\": 0}}";
    const std::string b = "{\"Sequence\": {\"id\": \"B\", \"type_id\": 1}}";
    const std::string puts = "{\"type\": \"TemplateProcessing\", \"single\": [" + token + a +
        "], \"pair\": [" + token + a + ", " + b + "], \"special_tokens\": {" + word +
        ": {\"id\": " + word + strf(", \"ids\": [%d], \"tokens\": [", id) + word + "]}}}";
    if (had["type"].string != "ByteLevel") { return puts; }
    return "{\"type\": \"Sequence\", \"processors\": [{\"type\": \"ByteLevel\", "
           "\"add_prefix_space\": false, \"trim_offsets\": false, \"use_regex\": false}, " + puts +
           "]}";
}

bool export_begins(ExportDir* o, const Tokenizer& tok, int id) {
    const bool bytes = tok.kind == TOKENIZER_BYTES;
    const bool in_files = has(o->files, "tokenizer.json");
    const bool puts = tok.before == std::vector<int>{ id };
    if (id < 0 || puts || !in_files) { return puts; }
    const std::string token = text_folder->token(tok, id);       // which made what is in_files
    if (!bytes && token.empty()) { return puts; }
    std::string word = bytes && id == 256 ? END_OF_BYTES : "";
    if (bytes && id < 256) { utf8_append(&word, text_folder->byte_alphabet()[id]); }
    if (!bytes) { word = token; }
    const std::string path = o->tmp + "/tokenizer.json", config = o->tmp + "/tokenizer_config.json";
    const std::string text = file_read(path);
    const Json had = json_of(text)["post_processor"];
    file_write(path, json_with(text, "post_processor", post_processor(word, id, had)));
    // as a special token it is cut out of every text: that is nothing where no token is longer
    const bool hidden = tokenizer_decode(tok, &id, 1, true).empty();
    const bool may = bytes || (hidden && !tokenizer_decode(tok, &id, 1, false).empty());
    if (!may) { return true; }
    const bool there = file_exists(config);
    const std::string before = there ? file_read(config) : "{}\n";
    file_write(config, json_with(before, "bos_token", json_str(word)));
    if (!there) { o->files.push_back("tokenizer_config.json"); }
    return true;
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
