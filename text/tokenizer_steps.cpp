/*
text/tokenizer_steps.cpp -- components of tokenizer.json -> steps. To support a component:
its row in COMPONENTS, one StepKind, and one case where steps of its stage run.
*/
#include "keys.h"
#include "../optional.h"
#include "tokenizer_build.h"
#include <limits.h>

static const char* const ONLY_EXACT =
    "only components whose ids are known to be exact are accepted";

// ----------------------------------------------------------------------------
// expressions: these are known; others are open/'s, or refused

struct KnownRegex {
    const char* regex;
    StepKind kind;
    int digits;                                          // per piece
};
static const KnownRegex KNOWN_REGEXES[] = {
    { "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+",
      SPLIT_GPT2, 0 },
    // LLaMA 3
    { "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}"
      "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
      SPLIT_CL100K, 3 },
    // Qwen
    { "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}"
      "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
      SPLIT_CL100K, 1 },
    // nanochat
    { "'(?i:[sdmt]|ll|ve|re)|[^\\r\\n\\p{L}\\p{N}]?+\\p{L}+|\\p{N}{1,2}"
      "| ?[^\\s\\p{L}\\p{N}]++[\\r\\n]*|\\s*[\\r\\n]|\\s+(?!\\S)|\\s+",
      SPLIT_CL100K, 2 },
    // the library's engine reads {1,3}+ as {1,3} repeated: any number of digits
    { "'(?i:[sdmt]|ll|ve|re)|[^\\r\\n\\p{L}\\p{N}]?+\\p{L}+|\\p{N}{1,3}+"
      "| ?[^\\s\\p{L}\\p{N}]++[\\r\\n]*|\\s*[\\r\\n]|\\s+(?!\\S)|\\s+",
      SPLIT_CL100K, INT_MAX },
};

// ----------------------------------------------------------------------------
// components

// A component while its steps are made.
struct Component {
    TokenizerBuild* t;
    std::string stage;
    const Json& json;
    std::vector<Step>* steps;                            // of its stage

    Step* add(StepKind kind) const { return &steps->emplace_back(kind); }

    // The pattern, {"String": ..} or {"Regex": ..}.
    std::string pattern(const char* form) const {
        return json_string(json_need(t, json, "pattern", Json::OBJECT), form);
    }

    std::string text(const char* key) const { return json_need(t, json, key, Json::STRING).string; }

    [[noreturn]] void reject(const std::string& what, const std::string& hint = "") const {
        refuse(t, stage + ": " + what, hint);
    }
};

// Those that are one step. kind: of the step that a row of COMPONENTS makes.

static void add_plain(const Component& c, StepKind kind) { c.add(kind); }

static void add_prepend(const Component& c, StepKind kind) {
    c.add(kind)->content = c.text("prepend");
}

static void add_replace(const Component& c, StepKind kind) {
    const std::string pattern = c.pattern("String");
    if (pattern.empty()) { c.reject("unknown component Replace", ONLY_EXACT); }
    Step* step = c.add(kind);
    step->pattern = pattern;
    step->content = c.text("content");
}

static void add_byte_level(const Component& c, StepKind) {
    c.t->byte_level = true;
    if (json_true(c.json, "add_prefix_space", true)) { c.add(SPLIT_PREFIX); }
    if (json_true(c.json, "use_regex", true)) { c.add(SPLIT_GPT2); }
}

// Returns the place of the value of a key among those that it may have.
static int choice_of(const Component& c, const char* key, const std::string& value,
                     const std::vector<std::string>& values) {
    const auto found = std::find(values.begin(), values.end(), value);
    if (found == values.end()) { c.reject(std::string("unknown ") + key + " " + value); }
    return found - values.begin();
}

static void add_split(const Component& c, StepKind) {
    const std::string regex = c.pattern("Regex");
    const int behavior = choice_of(c, "behavior", json_string(c.json, "behavior"),
                                   { "Removed", "Isolated", "MergedWithPrevious",
                                     "MergedWithNext", "Contiguous" });
    const bool invert = json_true(c.json, "invert");
    if (regex.empty()) {
        Step* step = c.add(SPLIT_STRING);
        step->pattern = c.pattern("String");
        step->number = behavior;
        step->flag = invert;
        if (step->pattern.empty()) { c.reject("Split without a pattern"); }
        return;
    }
    const KnownRegex* known = NULL;
    for (auto& row : KNOWN_REGEXES) { if (regex == row.regex) { known = &row; } }
    const bool keeps = behavior == ISOLATED && !invert;
    const bool removes_rest = behavior == REMOVED && invert;
    // those written by hand match all of any text, so that isolating the matches and keeping them
    // is the same
    if (known && (keeps || removes_rest)) {
        c.add(known->kind)->number = known->digits;
        return;
    }
    Step step;
    if (!known && keeps && open_files && open_files->splitter(regex, &step)) {
        c.steps->push_back(step);
        return;
    }
    c.reject("unknown expression " + regex + " (" + json_string(c.json, "behavior") + ")",
             "add it to KNOWN_REGEXES in text/tokenizer_steps.cpp, with its splitter");
}

static void add_digits(const Component& c, StepKind kind) {
    c.add(kind)->flag = json_true(c.json, "individual_digits");
}

static void add_metaspace(const Component& c, StepKind kind) {
    std::string scheme = json_string(c.json, "prepend_scheme");
    if (scheme.empty()) {                                // older files
        scheme = json_true(c.json, "add_prefix_space", true) ? "always" : "never";
    }
    Step* step = c.add(kind);
    step->pattern = json_string(c.json, "replacement");
    if (step->pattern.empty()) { c.reject("Metaspace without a replacement"); }
    step->number = choice_of(c, "prepend_scheme", scheme, { "always", "first", "never" });
    step->flag = json_true(c.json, "split", true);
}

static void add_strip(const Component& c, StepKind kind) {
    Step* step = c.add(kind);
    step->pattern = c.text("content");
    step->number = json_int(c.t, c.json, "start");
    step->stop = json_int(c.t, c.json, "stop");
    if (step->pattern.empty()) { c.reject("Strip without content"); }
}

struct ComponentRow {
    const char* stage;
    const char* type;
    void (*add)(const Component&, StepKind);
    StepKind kind;
};
static const ComponentRow COMPONENTS[] = {
    { "normalizer",    "NFC",          add_plain,      NORM_NFC },
    { "normalizer",    "Prepend",      add_prepend,    NORM_PREPEND },
    { "normalizer",    "Replace",      add_replace,    NORM_REPLACE },
    { "pre_tokenizer", "ByteLevel",    add_byte_level, SPLIT_GPT2 },
    { "pre_tokenizer", "Split",        add_split,      SPLIT_STRING },
    { "pre_tokenizer", "Digits",       add_digits,     SPLIT_DIGITS },
    { "pre_tokenizer", "Metaspace",    add_metaspace,  SPLIT_METASPACE },
    { "decoder",       "Replace",      add_replace,    DECODE_REPLACE },
    { "decoder",       "Metaspace",    add_metaspace,  DECODE_METASPACE },
    { "decoder",       "ByteLevel",    add_plain,      DECODE_BYTES },
    { "decoder",       "ByteFallback", add_plain,      DECODE_FALLBACK },
    { "decoder",       "Fuse",         add_plain,      DECODE_FUSE },
    { "decoder",       "Strip",        add_strip,      DECODE_STRIP },
};

// The stages: the key of a Sequence's list, and where the steps go.
struct StageRow {
    const char* stage;
    const char* list;
    std::vector<Step> Bpe::* steps;
};
static const StageRow STAGES[] = {
    { "normalizer",    "normalizers",   &Bpe::normalizer },
    { "pre_tokenizer", "pretokenizers", &Bpe::splitter },
    { "decoder",       "decoders",      &Bpe::decoder },
};

void tokenizer_steps(TokenizerBuild* t, const std::string& stage, const Json& component,
                     int depth) {
    if (component.type == Json::NUL) { return; }
    if (depth > 20) { refuse(t, stage + ": nested too deep"); }
    directory_check("tokenizer.json: components", t->path + ": " + stage, component);
    const std::string type = json_string(component, "type");
    const StageRow* row = STAGES;
    while (stage != row->stage) { row++; }
    if (type == "Sequence") {
        for (auto& item : json_need(t, component, row->list, Json::ARRAY).items) {
            tokenizer_steps(t, stage, item, depth + 1);
        }
        return;
    }
    for (auto& known : COMPONENTS) {
        if (stage != known.stage || type != known.type) { continue; }
        // behind ByteLevel it cuts the bytes' letters, not the text
        if (stage == "pre_tokenizer" && t->byte_level) {
            refuse(t, stage + ": got " + type + " behind ByteLevel, wanted ByteLevel last",
                   ONLY_EXACT);
        }
        known.add({ t, stage, component, &(t->*row->steps) }, known.kind);
        return;
    }
    Step step;
    if (stage == "normalizer" && open_files && open_files->normalizer(component, &step)) {
        t->normalizer.push_back(step);
        return;
    }
    const std::string name = type.empty() ? "without a type" : type;
    refuse(t, stage + ": unknown component " + name, ONLY_EXACT);
}

// ----------------------------------------------------------------------------
// post_processor: what goes around a text

// Adds the ids of one token of a template.
static void template_token(const TokenizerBuild* t, const Json& tokens, const Json& item,
                           std::vector<int>* ids) {
    const std::string id = json_string(json_need(t, item, "SpecialToken", Json::OBJECT), "id");
    const Json* token = tokens.get(id);
    if (!token) { refuse(t, "post_processor: the template uses an undefined token " + id); }
    for (auto& number : json_need(t, *token, "ids", Json::ARRAY).items) {
        if (!(number.number >= 0 && number.number <= 1e8)) {
            refuse(t, "post_processor: not an id");
        }
        ids->push_back((int)number.number);
    }
}

void tokenizer_template(TokenizerBuild* t, const Json& component, int depth) {
    if (component.type == Json::NUL) { return; }
    directory_check("tokenizer.json: components", t->path + ": post_processor", component);
    const std::string type = json_string(component, "type");
    if (type == "ByteLevel") { return; }                 // moves offsets, not ids
    if (type == "Sequence" && depth < 20) {
        for (auto& item : json_need(t, component, "processors", Json::ARRAY).items) {
            tokenizer_template(t, item, depth + 1);
        }
        return;
    }
    if (type != "TemplateProcessing") {
        refuse(t, "post_processor: unknown component " + type, ONLY_EXACT);
    }
    const Json& tokens = json_need(t, component, "special_tokens", Json::OBJECT);
    std::vector<int>* ids = &t->before;
    for (auto& item : json_need(t, component, "single", Json::ARRAY).items) {
        if (item.get("Sequence")) {
            ids = &t->after;
        } else {
            template_token(t, tokens, item, ids);
        }
    }
}
