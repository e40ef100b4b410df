/*
text/tokenizer_config.cpp -- what the files beside a tokenizer say about it:
tokenizer_config.json, special_tokens_map.json and added_tokens.json. They are obeyed as
transformers 5 obeys them, or refused by name; core/directory.h has the table of their keys.
*/
#include "keys.h"
#include <set>
#include "tokenizer_build.h"

// Writes the flags of a token, as "sn--".
static std::string flags_of(const AddedToken& a) {
    return std::string(a.special ? "s" : "-") + (a.normalized ? "n" : "-") +
           (a.lstrip ? "l" : "-") + (a.rstrip ? "r" : "-");
}

// Tells whether the tokenizer puts a blank before a text.
static bool puts_blank(const Bpe& t) {
    bool puts = false;
    for (auto& s : t.normalizer) { puts = puts || s.kind == NORM_PREPEND; }
    for (auto& s : t.splitter) {
        puts = puts || s.kind == SPLIT_PREFIX ||
               (s.kind == SPLIT_METASPACE && s.number != PREPEND_NEVER);
    }
    return puts;
}

// A tokenizer and what its files say. changes: what they change about the ids of a text, in words
// of no importance: only its hash is kept.
struct Beside {
    TokenizerBuild* t;
    std::string path;                            // of tokenizer_config.json, for errors
    Json config, specials;
    std::string changes;

    // Returns what a key names as a token, in tokenizer_config.json or, where that is silent, in
    // special_tokens_map.json. NULL if neither names one.
    const Json* named(const char* key) const {
        const Json& v = config[key].type == Json::NUL ? specials[key] : config[key];
        const bool empty = v.is_text() && v.string.empty();
        return v.type == Json::NUL || empty ? NULL : &v;
    }

    // Returns 1 or 0, -1 if the key is not there.
    int flag(const char* key) const {
        const Json& v = config[key];
        if (v.type == Json::NUL) { return -1; }
        if (v.type != Json::BOOL) {
            die(path + ": " + key + " is " + json_short(v) + ", wanted true or false");
        }
        return v.number != 0;
    }

    // Reads a token as these files have it: its text, or an object with its flags.
    AddedToken read_token(const std::string& key, const Json& v, bool special) const {
        const Json& content = v.type == Json::OBJECT ? v["content"] : v;
        if (!content.is_text() || content.string.empty()) {
            die(path + ": " + key + " is " + json_short(v) + ", wanted a token");
        }
        return token_of(v, content.string, special, path + ": " + key);
    }

    // Adds the tokens of added_tokens_decoder, {"id": token}: as tokenizer.json has them, else with
    // these flags. A token of the vocabulary becomes an added one, and one that is nowhere gets the
    // next id.
    void added_tokens() {
        std::vector<std::pair<long, const Json*>> sorted;
        for (auto& field : config["added_tokens_decoder"].fields) {
            long id = -1;
            if (!parse_long(field.first, &id) || id < 0 || id > 1 << 30) {
                die(path + ": added_tokens_decoder: got the id " + field.first);
            }
            sorted.push_back({ id, &field.second });
        }
        std::sort(sorted.begin(), sorted.end());
        for (auto& one : sorted) {
            AddedToken a = read_token("added_tokens_decoder", *one.second, false);
            AddedToken* old = added_token(t, a.text);
            a.id = token_id(*t, a.text);
            if (a.id < 0) { a.id = t->next_id; }
            if (a.id != one.first) {
                die(path + strf(": added_tokens_decoder: %ld is ", one.first) +
                        json_str(a.text) + strf(", which has the id %d in ", a.id) + t->path,
                    "the two files are of different tokenizers");
            }
            const bool same = old && flags_of(*old) == flags_of(a);
            if (same) { continue; }
            changes += a.text + flags_of(a);
            if (old) { *old = a; } else { token_add(t, a); }
        }
    }

    // Makes the token that a key names special, whatever the vocabulary has it as. Ends the program
    // if it is not there.
    void special_token(const std::string& key, const Json& v) {
        AddedToken a = read_token(key, v, true);
        a.special = true;
        if (added_token(t, a.text)) { return; }
        if (token_id(*t, a.text) < 0) {
            die(path + ": " + key + " is " + json_str(a.text) + ", which is not in the vocabulary: "
                "it would get a new id, for which the model has no weights",
                "get the tokenizer.json that belongs to this tokenizer_config.json");
        }
        changes += "special " + a.text;
        token_add(t, a);
    }

    // Makes all tokens of a key special: one, a list, or an object of names and tokens.
    void special_tokens(const std::string& key, const Json& v) {
        const bool one = v.type == Json::STRING || v.get("content");
        if (one) { special_token(key, v); return; }
        for (auto& item : v.items) { special_token(key, item); }
        for (auto& field : v.fields) { special_token(key, field.second); }
    }

    // Makes special what the keys for special tokens name.
    void all_special() {
        for (const char* key :
             { "bos_token", "eos_token", "unk_token", "pad_token", "sep_token", "cls_token",
               "mask_token", "eod_token", "additional_special_tokens", "extra_special_tokens",
               "model_specific_special_tokens", "image_token", "audio_token", "video_token",
               "boi_token", "eoi_token", "vision_bos_token", "vision_eos_token" }) {
            const Json* v = named(key);
            if (v) { special_tokens(key, *v); }
        }
    }

    // Dies if added_tokens.json, {"token": id}, which an older program kept beside the
    // vocabulary, gives a token another id.
    void older_tokens() const {
        const std::string name = beside(t, "added_tokens.json");
        for (auto& field : json_if_there(name).fields) {
            const int id = token_id(*t, field.first);
            if (id >= 0 && field.second.number == id) { continue; }
            die(name + ": " + json_str(field.first) + " is " + json_short(field.second) +
                strf(", and %d in ", id) + t->path,
                "the two files are of different tokenizers");
        }
    }

    // Returns the id of the token that a key names; -1 if no file has it.
    int named_id(const char* key) const {
        const Json* v = named(key);
        return v ? token_id(*t, read_token(key, *v, true).text) : -1;
    }

    // Finds EOS and BOS by their keys, else by the names that are in use.
    void ends() {
        t->eos = named_id("eos_token");
        t->bos = named_id("bos_token");
        for (auto s : { "<|endoftext|>", "</s>", "<|end_of_text|>", "<eos>" }) {
            if (t->eos < 0) { t->eos = token_id(*t, s); }
        }
        if (t->bos < 0 && !t->before.empty()) { t->bos = t->before[0]; }
        for (auto s : { "<|begin_of_text|>", "<s>", "<bos>", "<|startoftext|>", "<|endoftext|>" }) {
            if (t->bos < 0) { t->bos = token_id(*t, s); }
        }
    }

    // Says once that a key is passed over, as it differs from what tokenizer.json does.
    void say_differs(const char* key, bool wanted) const {
        static std::set<std::string> said;
        const std::string one = path + ": " + key + " is " + json_bool(wanted) + ", and " +
                                t->path + " does otherwise: that counts, as in transformers 5";
        if (said.insert(one).second) { note(one); }
    }

    // Obeys add_bos_token and add_eos_token: what goes around a text. With vocab.json they decide;
    // tokenizer.json says it itself, and where the two differ that is said.
    void around(bool pair) {
        const int bos = flag("add_bos_token"), eos = flag("add_eos_token");
        if (pair) {
            if (bos > 0 && t->bos >= 0) { t->before.push_back(t->bos); }             // OPT
            if (eos > 0 && t->eos >= 0) { t->after.push_back(t->eos); }
            return;
        }
        const bool first = !t->before.empty(), last = !t->after.empty();
        if (bos >= 0 && bos != first) { say_differs("add_bos_token", bos); }
        if (eos >= 0 && eos != last) { say_differs("add_eos_token", eos); }
    }

    void prefix_space(bool pair) {
        const int wanted = flag("add_prefix_space");
        if (wanted < 0 || wanted == puts_blank(*t)) { return; }
        if (!pair) {
            die(path + ": add_prefix_space is " + json_bool(wanted) + ", and " +
                    t->path + (wanted ? " puts no blank" : " puts a blank") +
                    " before a text: which one transformers believes depends on its version",
                "make the two files say the same");
        }
        t->splitter.insert(t->splitter.begin(), Step(SPLIT_PREFIX));
        changes += "prefix";
    }

    // Dies if the class splits a text in a way that is not read here: vocab.json and
    // merges.txt say nothing about it.
    void class_check() const {
        const Json& name = config["tokenizer_class"];
        if (name.type == Json::NUL) { return; }
        std::string plain = name.string;
        if (ends_with(plain, "Fast")) { plain.resize(plain.size() - 4); }
        for (const char* known : { "GPT2Tokenizer", "CodeGenTokenizer", "GPTNeoXTokenizer",
                                   "PreTrainedTokenizer", "TokenizersBackend" }) {
            if (plain == known) { return; }
        }
        die(path + ": tokenizer_class is " + json_short(name) +
                ", and vocab.json with merges.txt is read as GPT2Tokenizer reads it",
            "save the tokenizer with a tokenizer.json: AutoTokenizer.from_pretrained(..)."
            "save_pretrained(..)");
    }
};

void tokenizer_config(TokenizerBuild* t, bool pair) {
    const auto read = [&](const char* name) {
        const std::string path = beside(t, name);
        const Json j = json_if_there(path);
        if (file_exists(path)) { directory_check(name, path, j); }
        return j;
    };
    const char* name = "tokenizer_config.json";
    Beside b = { t, beside(t, name), read(name), read("special_tokens_map.json"), "" };
    if (pair) { b.class_check(); }
    b.added_tokens();
    b.all_special();
    b.older_tokens();
    b.ends();
    b.around(pair);
    b.prefix_space(pair);
    if (!b.changes.empty()) { t->hash = hash_string(b.changes, t->hash); }
}
