/*
tokenizer/tokenizer_config.cpp -- what the files beside a tokenizer say about it:
tokenizer_config.json, special_tokens_map.json and added_tokens.json. They are obeyed as
transformers 5 obeys them, or refused by name; files/directory.h has the table of their keys.
*/
#include "../files/directory.h"
#include "tokenizer_build.h"

// A tokenizer and what its files say. changes: what they change about the ids of a text, in words
// of no importance: only its hash is kept.
struct Beside {
    const TokenizerFile& file;
    Tokenizer* t;
    const Vocab& vocab;
    std::string dir, path;                       // path: of tokenizer_config.json, for errors
    Json config, specials;
    std::string changes;
    std::unordered_map<std::string, size_t> places;      // text -> index into t->added

    // Returns the value of a key, NULL if it is absent or null.
    const Json* get(const char* key) const {
        const Json* v = config.get(key);
        return v && v->type != Json::NUL ? v : NULL;
    }

    // Returns what a key names as a token, in tokenizer_config.json or, where that is silent, in
    // special_tokens_map.json. NULL if neither names one.
    const Json* named(const char* key) const {
        const Json* v = get(key);
        if (!v) { v = specials.get(key); }
        if (!v || v->type == Json::NUL) { return NULL; }
        const bool empty = v->type == Json::STRING && v->string.empty();
        return empty ? NULL : v;
    }

    // Returns 1 or 0, -1 if the key is not there.
    int flag(const char* key) const {
        const Json* v = get(key);
        if (!v) { return -1; }
        if (v->type != Json::BOOL) {
            die(EXIT_USER,
                path + ": " + key + " is " + json_short(*v) + ", wanted true or false");
        }
        return v->number != 0;
    }
};

// Reads a token as these files have it: its text, or an object with its flags.
static AddedToken token_of(const Beside& b, const std::string& key, const Json& v, bool special) {
    const bool object = v.type == Json::OBJECT;
    const Json* content = object ? v.get("content") : &v;
    if (!content || content->type != Json::STRING || content->string.empty()) {
        die(EXIT_USER, b.path + ": " + key + " is " + json_short(v) + ", wanted a token");
    }
    auto is = [&](const char* flag, bool absent) {
        const Json* f = object ? v.get(flag) : NULL;
        return f && f->type == Json::BOOL ? f->number != 0 : absent;
    };
    if (is("single_word", false)) {
        die(EXIT_USER, b.path + ": " + key + ": single_word is not supported");
    }
    special = is("special", special);
    return { content->string, 0, special, is("normalized", !special), is("lstrip", false),
             is("rstrip", false) };
}

static int added_index(const Beside& b, const std::string& text) {
    const auto place = b.places.find(text);
    return place == b.places.end() ? -1 : (int)place->second;
}

static void add(Beside* b, const AddedToken& a) {
    b->places[a.text] = b->t->added.size();
    b->t->added.push_back(a);
}

// Returns the id of a text as a token, -1 if it is none.
static int token_id(const Beside& b, const std::string& text) {
    const int index = added_index(b, text);
    if (index >= 0) { return b.t->added[index].id; }
    auto v = b.vocab.find(text);
    return v == b.vocab.end() ? -1 : v->second;
}

// Adds the tokens of added_tokens_decoder, {"id": token}: as tokenizer.json has them, else with
// these flags. A token of the vocabulary becomes an added one, and one that is nowhere gets the
// next id.
static void added_tokens(Beside* b) {
    const Json* list = b->get("added_tokens_decoder");
    if (!list) { return; }
    std::vector<std::pair<long, const Json*>> sorted;
    for (auto& field : list->fields) {
        long id = -1;
        if (!parse_long(field.first, &id) || id < 0 || id > 1 << 30) {
            die(EXIT_USER, b->path + ": added_tokens_decoder: got the id " + field.first);
        }
        sorted.push_back({ id, &field.second });
    }
    std::sort(sorted.begin(), sorted.end());
    int next = (int)b->vocab.size();
    for (auto& a : b->t->added) { next = std::max(next, a.id + 1); }
    for (auto& one : sorted) {
        AddedToken a = token_of(*b, "added_tokens_decoder", *one.second, false);
        const int index = added_index(*b, a.text);
        const bool there = index >= 0;
        AddedToken* old = there ? &b->t->added[index] : NULL;
        a.id = token_id(*b, a.text);
        if (a.id < 0) { a.id = next; }
        if (a.id != one.first) {
            die(EXIT_USER, b->path + strf(": added_tokens_decoder: %ld is ", one.first) +
                               json_str(a.text) + strf(", which has the id %d in ", a.id) +
                               b->file.path, "the two files are of different tokenizers");
        }
        const bool same = there && old->special == a.special && old->normalized == a.normalized &&
                          old->lstrip == a.lstrip && old->rstrip == a.rstrip;
        if (same) { continue; }
        b->changes += a.text + (a.special ? "s" : "-") + (a.normalized ? "n" : "-") +
                      (a.lstrip ? "l" : "-") + (a.rstrip ? "r" : "-");
        if (there) { *old = a; continue; }
        add(b, a);
        next = std::max(next, a.id + 1);
    }
}

// Makes the token that a key names special, whatever the vocabulary has it as. Ends the program if
// it is not there.
static void special_token(Beside* b, const std::string& key, const Json& v) {
    AddedToken a = token_of(*b, key, v, true);
    a.special = true;
    if (added_index(*b, a.text) >= 0) { return; }
    a.id = token_id(*b, a.text);
    if (a.id < 0) {
        die(EXIT_USER,
            b->path + ": " + key + " is " + json_str(a.text) + ", which is not in the vocabulary: "
            "it would get a new id, for which the model has no weights",
            "get the tokenizer.json that belongs to this tokenizer_config.json");
    }
    b->changes += "special " + a.text;
    add(b, a);
}

// Makes all tokens of a key special: one, a list, or an object of names and tokens.
static void special_tokens(Beside* b, const std::string& key, const Json& v) {
    const bool one = v.type == Json::STRING || v.get("content");
    if (one) { special_token(b, key, v); return; }
    for (auto& item : v.items) { special_token(b, key, item); }
    for (auto& field : v.fields) { special_token(b, key, field.second); }
}

// Makes special what the keys for special tokens name.
static void specials(Beside* b) {
    for (const char* key :
         { "bos_token", "eos_token", "unk_token", "pad_token", "sep_token", "cls_token",
           "mask_token", "eod_token", "additional_special_tokens", "extra_special_tokens",
           "model_specific_special_tokens", "image_token", "audio_token", "video_token",
           "boi_token", "eoi_token", "vision_bos_token", "vision_eos_token" }) {
        const Json* v = b->named(key);
        if (v) { special_tokens(b, key, *v); }
    }
}

// Dies if added_tokens.json, {"token": id}, which an older program kept beside the
// vocabulary, gives a token another id.
static void older_tokens(const Beside& b) {
    const std::string name = b.dir + "/added_tokens.json";
    for (auto& field : directory_object(b.dir, "added_tokens.json").fields) {
        const int id = token_id(b, field.first);
        if (id >= 0 && field.second.number == id) { continue; }
        die(EXIT_USER,
            name + ": " + json_str(field.first) + " is " + json_short(field.second) +
                strf(", and %d in ", id) + b.file.path,
            "the two files are of different tokenizers");
    }
}

// Returns the id of the token that a key names; -1 if no file has it.
static int named_id(const Beside& b, const char* key) {
    const Json* v = b.named(key);
    return v ? token_id(b, token_of(b, key, *v, true).text) : -1;
}

// Finds EOS and BOS by their keys, else by the names that are in use.
static void ends(Beside* b) {
    Tokenizer* t = b->t;
    t->eos = named_id(*b, "eos_token");
    t->bos = named_id(*b, "bos_token");
    for (auto s : { "<|endoftext|>", "</s>", "<|end_of_text|>", "<eos>" }) {
        if (t->eos < 0) { t->eos = token_id(*b, s); }
    }
    if (t->bos < 0 && !t->before.empty()) { t->bos = t->before[0]; }
    for (auto s : { "<|begin_of_text|>", "<s>", "<bos>", "<|startoftext|>", "<|endoftext|>" }) {
        if (t->bos < 0) { t->bos = token_id(*b, s); }
    }
}

// Says once that a key is passed over, as it differs from what tokenizer.json does.
static void say_differs(const Beside& b, const char* key, bool wanted) {
    static std::vector<std::string> said;
    const std::string one = b.path + ": " + key;
    if (std::count(said.begin(), said.end(), one)) { return; }
    said.push_back(one);
    fprintf(stderr, "note   %s is %s, and %s does otherwise: that counts, as in transformers 5\n",
            printable(one).c_str(), json_bool(wanted).c_str(), printable(b.file.path).c_str());
}

// Obeys add_bos_token and add_eos_token: what goes around a text. With vocab.json they decide;
// tokenizer.json says it itself, and where the two differ that is said.
static void around(Beside* b, bool pair) {
    Tokenizer* t = b->t;
    const int bos = b->flag("add_bos_token"), eos = b->flag("add_eos_token");
    if (pair) {
        if (bos > 0 && t->bos >= 0) { t->before.push_back(t->bos); }             // OPT
        if (eos > 0 && t->eos >= 0) { t->after.push_back(t->eos); }
        return;
    }
    const bool first = !t->before.empty(), last = !t->after.empty();
    if (bos >= 0 && bos != first) { say_differs(*b, "add_bos_token", bos); }
    if (eos >= 0 && eos != last) { say_differs(*b, "add_eos_token", eos); }
}

// Tells whether the tokenizer puts a blank before a text.
static bool puts_blank(const Tokenizer& t) {
    bool puts = false;
    for (auto& s : t.normalizer) { puts = puts || s.kind == NORM_PREPEND; }
    for (auto& s : t.splitter) {
        puts = puts || s.kind == SPLIT_PREFIX ||
               (s.kind == SPLIT_METASPACE && s.number != PREPEND_NEVER);
    }
    return puts;
}

static void prefix_space(Beside* b, bool pair) {
    const int wanted = b->flag("add_prefix_space");
    if (wanted < 0 || wanted == puts_blank(*b->t)) { return; }
    if (!pair) {
        die(EXIT_USER, b->path + ": add_prefix_space is " + json_bool(wanted) + ", and " +
                           b->file.path + (wanted ? " puts no blank" : " puts a blank") +
                           " before a text: which one transformers believes depends on its version",
            "make the two files say the same");
    }
    Step blank = Step();
    blank.kind = SPLIT_PREFIX;
    b->t->splitter.insert(b->t->splitter.begin(), blank);
    b->changes += "prefix";
}

// Dies if the class splits a text in a way that is not read here: vocab.json and
// merges.txt say nothing about it.
static void class_check(const Beside& b) {
    const Json* name = b.get("tokenizer_class");
    if (!name) { return; }
    std::string plain = name->string;
    if (ends_with(plain, "Fast")) { plain.resize(plain.size() - 4); }
    for (const char* known : { "GPT2Tokenizer", "CodeGenTokenizer", "GPTNeoXTokenizer",
                               "PreTrainedTokenizer", "TokenizersBackend" }) {
        if (plain == known) { return; }
    }
    die(EXIT_USER, b.path + ": tokenizer_class is " + json_short(*name) +
                       ", and vocab.json with merges.txt is read as GPT2Tokenizer reads it",
        "save the tokenizer with a tokenizer.json: AutoTokenizer.from_pretrained(..)."
        "save_pretrained(..)");
}

void tokenizer_config(const TokenizerFile& f, Tokenizer* t, const Vocab& vocab,
                      const std::string& dir, bool pair) {
    Beside b = { f, t, vocab, dir, dir + "/tokenizer_config.json", Json(), Json(), "", {} };
    for (size_t i = 0; i < t->added.size(); i++) { b.places[t->added[i].text] = i; }
    b.config = directory_object(dir, "tokenizer_config.json");
    b.specials = directory_object(dir, "special_tokens_map.json");
    if (file_exists(b.path)) { directory_check("tokenizer_config.json", b.path, b.config); }
    const std::string map = dir + "/special_tokens_map.json";
    if (file_exists(map)) { directory_check("special_tokens_map.json", map, b.specials); }
    if (pair) { class_check(b); }
    added_tokens(&b);
    specials(&b);
    older_tokens(b);
    ends(&b);
    around(&b, pair);
    prefix_space(&b, pair);
    if (!b.changes.empty()) { t->hash = hash_bytes(b.changes.data(), b.changes.size(), t->hash); }
}
