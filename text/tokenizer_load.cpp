/*
text/tokenizer_load.cpp -- a tokenizer from its files: tokenizer.json, or vocab.json and
merges.txt, or a GGUF file.
*/
#include "keys.h"
#include "../optional.h"
#include "../base/look.h"
#include "tokenizer_build.h"

static const char* const HINT =
    "give --tokenizer tokenizer.json, or leave it out to train on bytes";

void refuse(const TokenizerBuild* t, const std::string& what, const std::string& hint) {
    die(t->path + ": " + what, hint);
}

// ----------------------------------------------------------------------------
// JSON of a tokenizer

const Json& json_need(const TokenizerBuild* t, const Json& j, const char* key, Json::Type type) {
    if (j[key].type != type) {
        refuse(t, strf("got no %s, or of another type: not a tokenizer.json", key));
    }
    return j[key];
}

std::string json_string(const Json& j, const char* key) {
    return j[key].is_text() ? j[key].string : "";
}

bool json_true(const Json& j, const char* key, bool absent) {
    return j[key].type == Json::NUL ? absent : j[key].number != 0;
}

static bool is_whole(double number) {
    return number >= 0 && number <= 100000000 && number == floor(number);
}

int json_int(const TokenizerBuild* t, const Json& j, const char* key) {
    const Json& v = json_need(t, j, key, Json::NUMBER);
    if (!is_whole(v.number)) {
        refuse(t, strf("got %s for %s, wanted a whole number", v.string.c_str(), key));
    }
    return (int)v.number;
}

// ----------------------------------------------------------------------------
// added tokens

int token_id(const TokenizerBuild& t, const std::string& text) {
    const auto place = t.places.find(text);
    if (place != t.places.end()) { return t.added[place->second].id; }
    const auto word = t.vocab.find(text);
    return word == t.vocab.end() ? -1 : word->second;
}

AddedToken* added_token(TokenizerBuild* t, const std::string& text) {
    const auto place = t->places.find(text);
    return place == t->places.end() ? NULL : &t->added[place->second];
}

void token_add(TokenizerBuild* t, AddedToken token) {
    token.id = token_id(*t, token.text);
    if (token.id < 0) { token.id = t->next_id; }
    t->next_id = std::max(t->next_id, token.id + 1);
    t->places[token.text] = t->added.size();
    t->added.push_back(token);
}

AddedToken token_of(const Json& v, const std::string& text, bool special,
                    const std::string& where) {
    if (json_true(v, "single_word")) {
        die(where + ": single_word is not supported");
    }
    special = json_true(v, "special", special);
    return { text, 0, special, json_true(v, "normalized", !special), json_true(v, "lstrip"),
             json_true(v, "rstrip") };
}

// ----------------------------------------------------------------------------
// vocab.json + merges.txt: byte-level BPE as in GPT-2, with the special tokens that
// tokenizer_config.json names

static bool is_version(const std::string& line) { return starts_with(line, "#version"); }

// Splits "a b" at its one blank. Returns false if it has none, or several.
static bool split_merge(const std::string& line, TokenPairs* list) {
    const auto words = split(line, ' ');
    if (words.size() == 2) { list->push_back({ words[0], words[1] }); }
    return words.size() == 2;
}

// Reads an object of tokens and ids.
static void load_vocab(TokenizerBuild* t, const Json& ids) {
    for (auto& [token, id] : ids.fields) {
        if (!id.is_number() || !is_whole(id.number)) {
            refuse(t, "model: got " + json_short(id) + " for " + token + ", wanted a whole number");
        }
        t->vocab[token] = (int)id.number;
    }
    t->next_id = (int)t->vocab.size();
}

static TokenPairs read_merges(const std::string& path) {
    TokenPairs list;
    for (auto& line : split(file_read(path, "vocab.json needs merges.txt beside it"), '\n')) {
        if (ends_with(line, "\r")) { line.pop_back(); }
        if (line.empty() || is_version(line)) { continue; }
        if (!split_merge(line, &list)) {
            die(path + ": got \"" + line + "\", wanted two tokens with a space between");
        }
    }
    return list;
}

static void tokenizer_load_pair(TokenizerBuild* t, const Json& ids) {
    if (ids.type != Json::OBJECT) { refuse(t, "wanted an object of tokens and ids"); }
    load_vocab(t, ids);
    t->byte_level = true;
    t->splitter.emplace_back(SPLIT_GPT2);
    t->decoder.emplace_back(DECODE_BYTES);
    tokenizer_merges(t, read_merges(beside(t, "merges.txt")));
    for (auto text : { "<|endoftext|>", "<s>", "</s>", "<pad>", "<unk>", "<mask>" }) {
        if (t->vocab.count(text)) { token_add(t, { text, 0, true, false, false, false }); }
    }
    tokenizer_config(t, true);
}

// ----------------------------------------------------------------------------
// tokenizer.json

// Dies of a model that is not plain BPE.
static void check_model(const TokenizerBuild* t, const Json& model) {
    const std::string type = json_string(model, "type");
    const bool untyped = type.empty() && model.get("merges");
    if (type != "BPE" && !untyped) { refuse(t, "model: got " + type + ", wanted BPE"); }
    if (model["dropout"].number != 0) { refuse(t, "model: dropout is not supported"); }
    for (auto key : { "continuing_subword_prefix", "end_of_word_suffix" }) {
        if (!json_string(model, key).empty()) {
            refuse(t, strf("model: %s is not supported", key));
        }
    }
}

// Reads merges in either form: "a b", or ["a", "b"].
static TokenPairs load_merges(const TokenizerBuild* t, const Json& model) {
    TokenPairs list;
    for (auto& merge : json_need(t, model, "merges", Json::ARRAY).items) {
        if (merge.type == Json::ARRAY && merge.items.size() == 2) {
            list.push_back({ merge.items[0].string, merge.items[1].string });
            continue;
        }
        if (merge.is_text() && is_version(merge.string)) { continue; }
        if (!merge.is_text() || !split_merge(merge.string, &list)) {
            refuse(t, strf("merge %zu: wanted two tokens", list.size() + 1));
        }
    }
    return list;
}

static void load_added(TokenizerBuild* t, const Json& list) {
    for (auto& token : list.items) {
        if (token.type != Json::OBJECT) { refuse(t, "added_tokens: wanted objects"); }
        directory_check("tokenizer.json: added_tokens", t->path + ": added_tokens", token);
        if (token.get("id")) { json_int(t, token, "id"); }       // not believed, but a number
        const std::string text = json_need(t, token, "content", Json::STRING).string;
        const AddedToken added = token_of(token, text, false, t->path + ": added token " + text);
        AddedToken* known = added_token(t, text);
        if (known) { known->special = known->special || added.special; }
        if (!known && !text.empty()) { token_add(t, added); }
    }
}

void tokenizer_load_json(TokenizerBuild* t, const Json& j) {
    directory_check("tokenizer.json", t->path, j);
    const Json& model = json_need(t, j, "model", Json::OBJECT);
    check_model(t, model);
    directory_check("tokenizer.json: model", t->path + ": model", model);
    load_vocab(t, json_need(t, model, "vocab", Json::OBJECT));
    tokenizer_merges(t, load_merges(t, model));
    t->byte_fallback = json_true(model, "byte_fallback");
    t->fuse_unk = json_true(model, "fuse_unk");
    t->ignore_merges = json_true(model, "ignore_merges");
    const std::string unknown = json_string(model, "unk_token");
    if (!unknown.empty()) {
        t->unk = token_id(*t, unknown);
        if (t->unk < 0) {
            refuse(t, "model: the unk_token " + unknown + " is not in the vocabulary");
        }
    }
    for (const char* stage : { "normalizer", "pre_tokenizer", "decoder" }) {
        tokenizer_steps(t, stage, j[stage]);
    }
    tokenizer_template(t, j["post_processor"]);
    load_added(t, j["added_tokens"]);
    tokenizer_config(t, false);
}

// ----------------------------------------------------------------------------
// files

// Keeps the files that make a tokenizer, under the names that they have beside each other in a
// directory. Of a GGUF file, only what the tokenizer needs.
static void tokenizer_kept(const TokenizerBuild& build, Tokenizer* t) {
    if (ends_with(build.path, ".gguf")) {
        t->files.push_back({ "tokenizer.gguf", open_files->tokenizer_file(build.path) });
        return;
    }
    const bool pair = file_name(build.path) == "vocab.json";
    t->files.push_back({ pair ? "vocab.json" : "tokenizer.json", file_read(build.path) });
    for (const std::string name : BESIDE_TOKENIZER) {
        const std::string file = beside(&build, name);
        const bool used = pair || name != "merges.txt";
        if (used && file_exists(file)) { t->files.push_back({ name, file_read(file) }); }
    }
}

// Returns the command that makes a tokenizer.json of this file, or of one in this directory; "" if
// it is of no known kind.
static std::string convert_command(const std::string& path) {
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

void no_tokenizer(const std::string& model) {
    std::string hint = convert_command(model);
    if (hint.empty()) { hint = "--tokenizer tokenizer.json, or --tokenizer bytes"; }
    die(model + ": the checkpoint has no tokenizer to read text with, wanted its "
        "tokenizer.json", hint);
}

// Returns the file of a tokenizer: the one that is given, or the one in this directory.
static std::string tokenizer_path(const std::string& given) {
    if (!is_dir(given)) { return given; }
    std::string path = given + "/tokenizer.json";
    if (!file_exists(path)) { path = given + "/vocab.json"; }
    if (file_exists(path)) { return path; }
    const std::string gguf = open_files ? open_files->gguf_in(given) : "";
    if (!gguf.empty()) { return gguf; }
    die(given + ": has no tokenizer.json, and no vocab.json with merges.txt",
        convert_command(given));
}

static void load_file(TokenizerBuild* t) {
    if (ends_with(t->path, ".gguf")) {
        if (!open_files) { refuse(t, "is a GGUF file", OPEN_MISSING); }
        open_files->tokenizer(t);
        return;
    }
    const std::string convert = convert_command(t->path);
    if (!convert.empty() && file_exists(t->path)) {
        refuse(t, "wanted a tokenizer.json, or vocab.json with merges.txt", convert);
    }
    std::string content = file_read(t->path, HINT);
    look(t->path, content.substr(0, LOOK_BYTES), content.size(), READS_TOKENIZER);
    Json j;
    std::string error;
    if (!json_parse(content.data(), content.size(), &j, &error)) { refuse(t, error, HINT); }
    t->hash = hash_string(content);
    if (j["model"].type == Json::OBJECT) {
        tokenizer_load_json(t, j);
        return;
    }
    tokenizer_load_pair(t, j);
    content = file_read(beside(t, "merges.txt"));
    t->hash = hash_string(content, t->hash);
}

Tokenizer tokenizer_load(const std::string& given) {
    TokenizerBuild t;
    t.path = tokenizer_path(given);
    t.kind = TOKENIZER_BPE;
    t.name = given;
    t.vocab_size = 0;
    t.eos = -1;
    t.bos = -1;
    load_file(&t);
    tokenizer_finish(&t);
    for (auto list : { &t.before, &t.after }) {
        for (int id : *list) {
            if (id < t.vocab_size) { continue; }
            refuse(&t, strf("post_processor: id %d is not in the vocabulary", id));
        }
    }
    Tokenizer out = t;
    out.bpe = std::make_shared<const Bpe>(std::move((Bpe&)t));
    tokenizer_kept(t, &out);
    return out;
}
