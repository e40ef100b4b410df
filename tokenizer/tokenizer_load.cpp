/*
tokenizer/tokenizer_load.cpp -- a tokenizer from its files: tokenizer.json, or vocab.json and
merges.txt, or a GGUF file.
*/
#include "../files/directory.h"
#include "../rooms.h"
#include "../files/look.h"
#include "tokenizer_build.h"

static const char* const HINT =
    "give --tokenizer tokenizer.json, or leave it out to train on bytes";

Tokenizer tokenizer_bytes() { return Tokenizer(); }

Tokenizer tokenizer_ids(const std::string& name, int V) {
    Tokenizer t;
    t.kind = TOKENIZER_IDS;
    t.name = name;
    t.vocab_size = V;
    t.eos = -1;
    t.bos = -1;
    t.hash = 0;
    return t;
}

[[noreturn]] void refuse(const TokenizerFile& f, const std::string& what, const std::string& hint) {
    die(EXIT_USER, f.path + ": " + what, hint);
}

// ----------------------------------------------------------------------------
// JSON of a tokenizer

const Json& json_need(const TokenizerFile& f, const Json& j, const char* key, Json::Type type) {
    const Json* v = j.get(key);
    if (!v || v->type != type) {
        refuse(f, strf("got no %s, or of another type: not a tokenizer.json", key));
    }
    return *v;
}

bool json_null(const Json* v) { return !v || v->type == Json::NUL; }

std::string json_string(const Json& j, const char* key) {
    const Json* v = j.get(key);
    return v && v->type == Json::STRING ? v->string : "";
}

bool json_true(const Json& j, const char* key, bool absent) {
    const Json* v = j.get(key);
    return json_null(v) ? absent : v->number != 0;
}

static bool is_whole(double number) {
    return number >= 0 && number <= 100000000 && number == floor(number);
}

int json_int(const TokenizerFile& f, const Json& j, const char* key) {
    const Json& v = json_need(f, j, key, Json::NUMBER);
    if (!is_whole(v.number)) {
        refuse(f, strf("got %s for %s, wanted a whole number", v.string.c_str(), key));
    }
    return (int)v.number;
}

// ----------------------------------------------------------------------------
// added tokens

// Adds tokens one by one. A token gets the id that it has in the vocabulary, else the next free
// one: the id in the file is not believed.
struct AddingTokens {
    Tokenizer* t;
    const Vocab& vocab;
    int next_id;
    std::unordered_map<std::string, size_t> places;      // text -> index into t->added
};

static void tokenizer_add(AddingTokens* adding, AddedToken token) {
    std::vector<AddedToken>& added = adding->t->added;
    const auto known = adding->places.find(token.text);
    if (known != adding->places.end()) {
        AddedToken& first = added[known->second];
        first.special = first.special || token.special;
        return;
    }
    const auto word = adding->vocab.find(token.text);
    token.id = word != adding->vocab.end() ? word->second : adding->next_id;
    adding->next_id = std::max(adding->next_id, token.id + 1);
    adding->places[token.text] = added.size();
    added.push_back(token);
}

// ----------------------------------------------------------------------------
// vocab.json + merges.txt: byte-level BPE as in GPT-2, with the special tokens that
// tokenizer_config.json names

static bool is_version(const std::string& line) { return line.compare(0, 8, "#version") == 0; }

// Splits "a b" at its one blank. Returns false if it has none, or several.
static bool split_merge(const std::string& line, TokenPairs* list) {
    const size_t space = line.find(' ');
    const bool one = space != std::string::npos && line.find(' ', space + 1) == std::string::npos;
    if (one) { list->push_back({ line.substr(0, space), line.substr(space + 1) }); }
    return one;
}

static TokenPairs read_merges(const std::string& dir) {
    const std::string path = dir + "/merges.txt";
    TokenPairs list;
    for (auto& line : split(file_read(path, "vocab.json needs merges.txt beside it"), '\n')) {
        if (ends_with(line, "\r")) { line.pop_back(); }
        if (line.empty() || is_version(line)) { continue; }
        if (!split_merge(line, &list)) {
            die(EXIT_USER, path + ": got \"" + line + "\", wanted two tokens with a space between");
        }
    }
    return list;
}

static void tokenizer_load_pair(const TokenizerFile& f, Tokenizer* t, Vocab* vocab,
                                const std::string& dir, const Json& ids) {
    if (ids.type != Json::OBJECT) { refuse(f, "wanted an object of tokens and ids"); }
    for (auto& field : ids.fields) {
        Json entry;
        entry.fields.push_back({ "id", field.second });
        (*vocab)[field.first] = json_int(f, entry, "id");
    }
    t->byte_level = true;
    t->splitter.emplace_back();
    t->splitter.back().kind = SPLIT_GPT2;
    t->decoder.emplace_back();
    t->decoder.back().kind = DECODE_BYTES;
    tokenizer_merges(f, t, *vocab, read_merges(dir));
    AddingTokens adding = { t, *vocab, 0, {} };
    for (auto text : { "<|endoftext|>", "<s>", "</s>", "<pad>", "<unk>", "<mask>" }) {
        if (vocab->count(text)) { tokenizer_add(&adding, { text, 0, true, false, false, false }); }
    }
    tokenizer_config(f, t, *vocab, dir, true);
}

// ----------------------------------------------------------------------------
// tokenizer.json

// Dies of a model that is not plain BPE.
static void check_model(const TokenizerFile& f, const Json& model) {
    const std::string type = json_string(model, "type");
    const bool untyped = type.empty() && model.get("merges");
    if (type != "BPE" && !untyped) { refuse(f, "model: got " + type + ", wanted BPE"); }
    const Json* dropout = model.get("dropout");
    if (!json_null(dropout) && dropout->number != 0) {
        refuse(f, "model: dropout is not supported");
    }
    for (auto key : { "continuing_subword_prefix", "end_of_word_suffix" }) {
        if (!json_string(model, key).empty()) {
            refuse(f, strf("model: %s is not supported", key));
        }
    }
}

static void load_vocab(const TokenizerFile& f, const Json& model, Vocab* vocab) {
    for (auto& [token, id] : json_need(f, model, "vocab", Json::OBJECT).fields) {
        if (id.type != Json::NUMBER || !is_whole(id.number)) {
            refuse(f, "model: the id of " + json_str(token) + " is not a whole number");
        }
        (*vocab)[token] = (int)id.number;
    }
}

// Reads merges in either form: "a b", or ["a", "b"].
static TokenPairs load_merges(const TokenizerFile& f, const Json& model) {
    TokenPairs list;
    for (auto& merge : json_need(f, model, "merges", Json::ARRAY).items) {
        const bool text = merge.type == Json::STRING;
        if (merge.type == Json::ARRAY && merge.items.size() == 2) {
            list.push_back({ merge.items[0].string, merge.items[1].string });
            continue;
        }
        if (text && is_version(merge.string)) { continue; }
        const bool read = text && split_merge(merge.string, &list);
        if (!read) { refuse(f, strf("merge %zu: wanted two tokens", list.size() + 1)); }
    }
    return list;
}

static void load_added(const TokenizerFile& f, Tokenizer* t, const Vocab& vocab, const Json* list) {
    if (!list) { return; }
    AddingTokens adding = { t, vocab, (int)vocab.size(), {} };
    for (auto& token : list->items) {
        if (token.type != Json::OBJECT) { refuse(f, "added_tokens: wanted objects"); }
        directory_check("tokenizer.json: added_tokens", f.path + ": added_tokens", token);
        if (token.get("id")) { json_int(f, token, "id"); }       // not believed, but a number
        const std::string content = json_need(f, token, "content", Json::STRING).string;
        if (json_true(token, "single_word")) {
            refuse(f, "added token " + content + ": single_word is not supported");
        }
        if (content.empty()) { continue; }
        AddedToken added;
        added.text = content;
        added.id = 0;
        added.special = json_true(token, "special");
        added.normalized = json_true(token, "normalized", !added.special);
        added.lstrip = json_true(token, "lstrip");
        added.rstrip = json_true(token, "rstrip");
        tokenizer_add(&adding, added);
    }
}

void tokenizer_load_json(const TokenizerFile& f, Tokenizer* t, Vocab* vocab, const std::string& dir,
                         const Json& j) {
    directory_check("tokenizer.json", f.path, j);
    const Json& model = json_need(f, j, "model", Json::OBJECT);
    check_model(f, model);
    directory_check("tokenizer.json: model", f.path + ": model", model);
    load_vocab(f, model, vocab);
    tokenizer_merges(f, t, *vocab, load_merges(f, model));
    t->byte_fallback = json_true(model, "byte_fallback");
    t->fuse_unk = json_true(model, "fuse_unk");
    t->ignore_merges = json_true(model, "ignore_merges");
    const std::string unknown = json_string(model, "unk_token");
    if (!unknown.empty()) {
        const auto word = vocab->find(unknown);
        if (word == vocab->end()) {
            refuse(f, "model: the unk_token " + unknown + " is not in the vocabulary");
        }
        t->unk = word->second;
    }
    for (const char* stage : { "normalizer", "pre_tokenizer", "decoder" }) {
        tokenizer_steps(f, t, stage, j.get(stage));
    }
    tokenizer_template(f, t, j.get("post_processor"));
    load_added(f, t, *vocab, j.get("added_tokens"));
    tokenizer_config(f, t, *vocab, dir, false);
}

// ----------------------------------------------------------------------------
// files

// The files that may be beside that of a tokenizer, and go with it.
static const char* const BESIDE_TOKENIZER[] = {
    "merges.txt", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json",
    "chat_template.jinja", "generation_config.json",
};

// Returns the directory of a file, without the slash.
static std::string dir_of(const std::string& path) {
    const size_t slash = path.rfind('/');
    return slash == std::string::npos ? "." : path.substr(0, slash);
}

// Keeps the files that make a tokenizer, under the names that they have beside each other in a
// directory. Of a GGUF file, only what the tokenizer needs.
static void tokenizer_keep(Tokenizer* t, const std::string& path) {
    if (ends_with(path, ".gguf")) {
        t->files.push_back({ "tokenizer.gguf", open_files->tokenizer_file(path) });
        return;
    }
    const bool pair = path == "vocab.json" || ends_with(path, "/vocab.json");
    t->files.push_back({ pair ? "vocab.json" : "tokenizer.json", file_read(path) });
    for (const std::string name : BESIDE_TOKENIZER) {
        const std::string beside = dir_of(path) + "/" + name;
        const bool used = pair || name != "merges.txt";
        if (used && file_exists(beside)) { t->files.push_back({ name, file_read(beside) }); }
    }
}

std::string tokenizer_convert(const std::string& path) {
    static const char* const OTHERS[][2] = { { "tokenizer.model", "spm_to_json.py" },
                                             { "tekken.json", "tiktoken_to_json.py" },
                                             { ".tiktoken", "tiktoken_to_json.py" } };
    for (auto& other : OTHERS) {
        const bool inside = is_dir(path) && file_exists(path + "/" + other[0]);
        if (!inside && !ends_with(path, other[0])) { continue; }
        const std::string file = inside ? path + "/" + other[0] : path;
        return std::string("python3 scripts/") + other[1] +
               hint_for(" FILE > tokenizer.json, and give that: --tokenizer tokenizer.json", file);
    }
    return "";
}

// Returns the file of a tokenizer: the one that is given, or the one in this directory.
static std::string tokenizer_path(const std::string& given) {
    if (!is_dir(given)) { return given; }
    std::string path = given + "/tokenizer.json";
    if (!file_exists(path)) { path = given + "/vocab.json"; }
    if (file_exists(path)) { return path; }
    const std::string gguf = open_files ? open_files->gguf_in(given) : "";
    if (!gguf.empty()) { return gguf; }
    die(EXIT_USER, given + ": has no tokenizer.json, and no vocab.json with merges.txt",
        tokenizer_convert(given));
}

static void load_file(const TokenizerFile& f, Tokenizer* t, Vocab* vocab) {
    if (ends_with(f.path, ".gguf")) {
        if (!open_files) { refuse(f, "is a GGUF file", ROOM_MISSING); }
        open_files->tokenizer(f, t, vocab);
        return;
    }
    const std::string convert = tokenizer_convert(f.path);
    if (!convert.empty() && file_exists(f.path)) {
        die(EXIT_USER, f.path + ": wanted a tokenizer.json, or vocab.json with merges.txt",
            convert);
    }
    std::string content = file_read(f.path, HINT);
    look(f.path, content.substr(0, LOOK_BYTES), content.size(), READS_TOKENIZER);
    Json j;
    std::string error;
    if (!json_parse(content.data(), content.size(), &j, &error)) { refuse(f, error, HINT); }
    t->hash = hash_bytes(content.data(), content.size());
    const std::string dir = dir_of(f.path);
    const Json* model = j.get("model");
    if (model && model->type == Json::OBJECT) {
        tokenizer_load_json(f, t, vocab, dir, j);
        return;
    }
    tokenizer_load_pair(f, t, vocab, dir, j);
    content = file_read(dir + "/merges.txt");
    t->hash = hash_bytes(content.data(), content.size(), t->hash);
}

Tokenizer tokenizer_load(const std::string& given) {
    const TokenizerFile f = { tokenizer_path(given) };
    Tokenizer t;
    Vocab vocab;
    t.kind = TOKENIZER_BPE;
    t.name = given;
    t.vocab_size = 0;
    t.eos = -1;
    t.bos = -1;
    load_file(f, &t, &vocab);
    tokenizer_finish(f, &t, vocab);
    tokenizer_keep(&t, f.path);
    for (auto list : { &t.before, &t.after }) {
        for (int id : *list) {
            if (id < t.vocab_size) { continue; }
            refuse(f, strf("post_processor: id %d is not in the vocabulary", id));
        }
    }
    return t;
}

bool tokenizer_is_in(const std::string& dir) {
    for (const char* name : { "tokenizer.json", "vocab.json", "tokenizer.gguf" }) {
        if (file_exists(dir + "/" + name)) { return true; }
    }
    return false;
}

bool tokenizer_ours(const std::string& name) {
    const auto is = [&](const char* file) { return name == file || is_temporary(name, file); };
    const bool main_file = is("tokenizer.json") || is("vocab.json") || is("tokenizer.gguf");
    return main_file || std::any_of(std::begin(BESIDE_TOKENIZER), std::end(BESIDE_TOKENIZER), is);
}

Tokenizer tokenizer_of(const std::string& name) {
    return name == "bytes" ? tokenizer_bytes() : tokenizer_load(name);
}
