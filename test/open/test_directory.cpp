/*
test_directory.cpp -- what a model's own directory says: each key of each file is read, passed over,
or refused by name, as the table of core/directory.h has it; docs/open-models.md is that
table. Ids are compared with those that transformers gives for the same files.

    build/test/test_directory --table        prints the table as the page has it
*/
#include "../check.h"
#include "../../core/config.h"
#include "../../open/import.h"
#include "../../text/keys.h"
#include "../../text/encode.h"
#include "../../text/ids.h"

static std::string dir;

static const char* const RULES[] = { "read", "passed over", "passed over, said", "refused" };

// One row of the page: file, keys, what is done, why.
static std::string row_text(const KeyRow& row) {
    std::string keys, allowed;
    for (auto& key : split(row.keys, ' ')) { keys += (keys.empty() ? "`" : ", `") + key + "`"; }
    for (auto& one : split(row.allowed, ' ')) {
        allowed += (allowed.empty() ? ", unless `" : ", `") + one + "`";
    }
    if (keys.empty()) { keys = "the file"; }
    return strf("| `%s` | %s | %s%s | %s |", row.file, keys.c_str(), RULES[row.rule],
                allowed.c_str(), row.why);
}

static std::string table_text() {
    std::string all;
    for (const KeyRow* row = DIRECTORY_KEYS; row->file; row++) { all += row_text(*row) + "\n"; }
    return all;
}

// the page has these rows, in this order, and no others
static void page_check() {
    std::string rows;
    const std::string page = file_read("docs/open-models.md");
    const size_t keys = page.find("\n## The keys of a model's files\n");
    for (auto& line : split(page.substr(std::min(keys, page.size())), '\n')) {
        if (starts_with(line, "| `")) { rows += line + "\n"; }
    }
    CHECK(rows == table_text(),
          "docs/open-models.md is not the table: build/test/test_directory --table prints it");
    std::vector<std::string> seen;
    for (const KeyRow* row = DIRECTORY_KEYS; row->file; row++) {
        for (auto& key : split(row->keys, ' ')) {
            const std::string one = std::string(row->file) + " " + key;
            CHECK(!std::count(seen.begin(), seen.end(), one), "%s has two rows", one.c_str());
            seen.push_back(one);
        }
        CHECK(*row->why, "%s %s has no reason", row->file, row->keys);
    }
}

// ---- a tokenizer of words made here: a, b, "▁"-free, byte level
static std::string tokenizer_json(const std::string& added, bool blank,
                                  const std::string& post = "null") {
    return "{\"version\": \"1.0\", \"truncation\": {\"max_length\": 2, \"strategy\": "
           "\"LongestFirst\", "
           "\"stride\": 0, \"direction\": \"Right\"}, \"padding\": null, \"added_tokens\": [" +
           added +
           "], \"normalizer\": null, \"pre_tokenizer\": {\"type\": \"ByteLevel\", "
           "\"add_prefix_space\": " +
           (blank ? "true" : "false") +
           ", \"trim_offsets\": true, \"use_regex\": true}, \"post_processor\": " + post +
           ", \"decoder\": {\"type\": \"ByteLevel\"}, \"model\": {\"type\": \"BPE\", \"vocab\": "
           "{\"a\": 0, \"b\": 1, \"\u0120\": 2, \"\u0120a\": 3, \"<s>\": 4, \"</s>\": 5, \"<x>\": "
           "6}, "
           "\"merges\": [[\"\u0120\", \"a\"]]}}";
}

static const char* const SPECIALS =
    "{\"id\": 4, \"content\": \"<s>\", \"special\": true, \"normalized\": false}, "
    "{\"id\": 5, \"content\": \"</s>\", \"special\": true, \"normalized\": false}";

static std::string ids(const Tokenizer& t, const std::string& text) {
    std::string all;
    for (int id : tokenizer_encode(t, text, true)) {
        all += (all.empty() ? "" : " ") + strf("%d", id);
    }
    return all;
}

static void put(const std::string& name, const std::string& text) {
    file_write(dir + "/" + name, text);
}

static void clear() {
    remove_tree(dir);
    make_dirs(dir);
}

// the ids of `text` with this tokenizer_config.json, or what it dies with
static std::string with(const std::string& config, const std::string& text) {
    put("tokenizer_config.json", config);
    std::string got;
    const Died d = check_dies([&] { got = ids(tokenizer_load(dir), text); });
    if (d.code == 0) { return ids(tokenizer_load(dir), text); }
    return d.err;
}

static void reads(const std::string& config, const std::string& text, const std::string& want) {
    const std::string got = with(config, text);
    CHECK(got == want, "%s, '%s': got %s, wanted %s", config.c_str(), text.c_str(), got.c_str(),
          want.c_str());
}

static void refuses(const std::string& config, const std::string& says) {
    const std::string got = with(config, "a");
    CHECK(starts_with(got, "error: ") && contains(got, says) && contains(got, "HINT"),
          "%s: wanted '%s', got %s", config.c_str(), says.c_str(), got.c_str());
}

static void tokenizer_config_check() {
    clear();
    put("tokenizer.json", tokenizer_json(SPECIALS, false));
    reads("{}", "a a", "0 3");
    reads("{\"add_prefix_space\": false, \"model_max_length\": 1e30, \"padding_side\": \"left\"}",
          "a", "0");
    // <x> is a word of the vocabulary: five letters that are no tokens, or one special token
    reads("{}", "a<x>", "0");
    reads("{\"additional_special_tokens\": [\"<x>\"]}", "a<x>", "0 6");
    reads("{\"extra_special_tokens\": {\"image_token\": \"<x>\"}}", "a<x>", "0 6");
    reads("{\"added_tokens_decoder\": {\"6\": {\"content\": \"<x>\", \"lstrip\": true}}}",
          "a  <x> a", "0 6 3");
    reads("{\"added_tokens_decoder\": {\"4\": {\"content\": \"<s>\", \"rstrip\": true, "
          "\"special\": true}}}", "<s>  a", "4 0");
    reads("{\"added_tokens_decoder\": {\"7\": {\"content\": \"<new>\", \"special\": true}}}",
          "a<new>a", "0 7 0");
    refuses("{\"added_tokens_decoder\": {\"9\": {\"content\": \"<new>\"}}}", "which has the id 7");
    refuses("{\"added_tokens_decoder\": {\"3\": {\"content\": \"<s>\"}}}", "which has the id 4");
    refuses("{\"add_prefix_space\": true}", "add_prefix_space is true, and");
    refuses("{\"add_prefix_space\": \"yes\"}", "wanted true or false");
    refuses("{\"pad_token\": \"[PAD]\"}", "pad_token is \"[PAD]\", which is not in the vocabulary");
    refuses("{\"eod_token\": \"[EOD]\"}", "eod_token is \"[EOD]\", which is not in the vocabulary");
    refuses("{\"eos_token\": \"<|end|>\"}", "eos_token is \"<|end|>\", which is not");
    refuses("{\"split_special_tokens\": true}", "split_special_tokens is true");
    refuses("{\"do_lower_case\": true}", "do_lower_case is true");
    refuses("{\"auto_map\": {\"AutoTokenizer\": [\"x.Y\", null]}}", "auto_map is an object");
    refuses("{\"a_new_key\": 1}", "the key 'a_new_key' (1) is not known");
    reads("{\"a_new_key\": null, \"split_special_tokens\": false}", "a", "0");
    refuses("[]", "wanted an object");
    // tokenizer.json says what goes around a text; a key that says otherwise is passed over, and
    // said
    const std::string bos =
        "{\"type\": \"TemplateProcessing\", \"single\": [{\"SpecialToken\": {\"id\": "
        "\"<s>\", \"type_id\": 0}}, {\"Sequence\": {\"id\": \"A\", \"type_id\": 0}}], "
        "\"pair\": [], \"special_tokens\": {\"<s>\": {\"id\": \"<s>\", \"ids\": [4], "
        "\"tokens\": [\"<s>\"]}}}";
    const auto says = [](const char* config) {
        put("tokenizer_config.json", config);
        return check_dies([&] { tokenizer_load(dir); }).err;
    };
    const char* const both = "{\"add_bos_token\": true, \"add_eos_token\": false}";
    const std::string said = says(both);                 // before this process has said it itself
    CHECK(contains(said, "add_bos_token is true, and ") && !contains(said, "add_eos_token"), "%s",
          said.c_str());
    reads(both, "a", "0");
    put("tokenizer.json", tokenizer_json(SPECIALS, false, bos));
    reads("{}", "a", "4 0");
    reads("{\"add_bos_token\": true}", "a", "4 0");
    CHECK(says(both).empty(), "the two agree: %s", says(both).c_str());
    CHECK(contains(says("{\"add_eos_token\": true}"), "add_eos_token is true"), "eos");
    reads("{\"add_bos_token\": false, \"add_eos_token\": true}", "a", "4 0");
    put("tokenizer.json", tokenizer_json(SPECIALS, true));
    reads("{\"add_prefix_space\": true}", "a", "3");
    refuses("{\"add_prefix_space\": false}", "add_prefix_space is false, and");
}

static void other_files_check() {
    clear();
    put("tokenizer.json", tokenizer_json(SPECIALS, false));
    put("special_tokens_map.json", "{\"eos_token\": \"</s>\", \"bos_token\": \"<s>\"}");
    put("tokenizer_config.json", "{\"bos_token\": \"</s>\"}");
    Tokenizer t = tokenizer_load(dir);
    CHECK(t.eos == 5 && t.bos == 5, "the map where the config is silent: eos %d, bos %d", t.eos,
          t.bos);
    put("special_tokens_map.json", "{\"eos\": \"</s>\"}");
    refuses("{}", "special_tokens_map.json: the key 'eos'");
    put("special_tokens_map.json", "{}");
    put("added_tokens.json", "{\"<s>\": 4}");
    reads("{}", "a", "0");
    put("added_tokens.json", "{\"<s>\": 9}");
    refuses("{}", "added_tokens.json: \"<s>\" is 9, and 4 in");
    put("added_tokens.json", "{\"<new>\": 7}");
    refuses("{}", "added_tokens.json: \"<new>\" is 7, and -1 in");
    // keys of tokenizer.json and of its parts
    clear();
    for (auto& pair : std::vector<std::pair<const char*, const char*>>{
             { "\"version\"", "\"vers\"" }, { "\"use_regex\"", "\"regex\"" },
             { "\"merges\"", "\"shuffle\": 1, \"merges\"" },
             { "\"normalized\"", "\"normalised\"" } }) {
        put("tokenizer.json", replaced(tokenizer_json(SPECIALS, false), pair.first, pair.second));
        refuses("{}", "is not known");
    }
    // vocab.json and merges.txt: the blank, the class, added tokens
    clear();
    put("vocab.json",
        "{\"a\": 0, \"b\": 1, \"\u0120\": 2, \"\u0120a\": 3, \"<s>\": 4, \"</s>\": 5}");
    put("merges.txt", "#version: 0.2\n\u0120 a\n");
    reads("{\"tokenizer_class\": \"GPT2Tokenizer\"}", "a", "0");
    reads("{\"add_prefix_space\": true}", "a", "3");
    reads("{\"add_prefix_space\": true}", " a", "3");
    reads("{\"add_bos_token\": true, \"bos_token\": \"<s>\"}", "a", "4 0");
    reads("{\"added_tokens_decoder\": {\"6\": {\"content\": \"<new>\"}}}", "a<new>", "0 6");
    refuses("{\"tokenizer_class\": \"Qwen2Tokenizer\"}", "tokenizer_class is \"Qwen2Tokenizer\"");
    refuses("{\"tokenizer_class\": \"RobertaTokenizerFast\"}", "tokenizer_class is");
}

// a tokenizer.json made to take for ever, or all memory: refused by name, or read in linear time
static void bombs_check() {
    clear();
    const std::string good = tokenizer_json(SPECIALS, false);
    const auto with_normalizer = [&](const std::string& normalizer) {
        put("tokenizer.json", replaced(good, "\"normalizer\": null", "\"normalizer\": " + normalizer));
    };
    const auto sequence = [](const std::string& part, int n) {
        std::string all;
        for (int i = 0; i < n; i++) { all += (i ? "," : "") + part; }
        return "{\"type\": \"Sequence\", \"normalizers\": [" + all + "]}";
    };
    const auto replace = [](const std::string& to) {
        return "{\"type\": \"Replace\", \"pattern\": {\"String\": \"a\"}, \"content\": \"" + to +
               "\"}";
    };
    with_normalizer(sequence(replace(std::string(100, 'a')), 5));
    refuses("{}", "normalizer: can make a text 1e+10 times as long");
    with_normalizer(sequence(replace("aa"), 7));
    refuses("{}", "normalizer: can make a text 128 times as long");
    with_normalizer(sequence(replace("a"), 65));
    refuses("{}", "normalizer: got 65 components");
    with_normalizer("{\"type\": \"Prepend\", \"prepend\": \"" + std::string(65, 'x') + "\"}");
    refuses("{}", "normalizer: can make a text 65 times");
    with_normalizer(sequence(replace("aa"), 6));
    CHECK(ids(tokenizer_load(dir), "a").size() == 2 * 64 - 1, "64 times as long");
    // added tokens: one of 1 MB, many of 4 KB, and 100,000
    const auto added = [](size_t i, const std::string& text) {
        return strf(", {\"id\": %zu, \"special\": true, \"content\": \"", i) + text + "\"}";
    };
    put("tokenizer.json", tokenizer_json(SPECIALS + added(7, std::string(1 << 20, 'x')), false));
    refuses("{}", "an added token of 1048576 bytes, wanted at most 4096");
    std::string many = SPECIALS, all = SPECIALS;
    for (size_t i = 0; i < 4200; i++) {
        many += added(7 + i, std::string(4090, 'x') + strf("%zu", i));
    }
    put("tokenizer.json", tokenizer_json(many, false));
    refuses("{}", "in all, wanted at most 16777216");
    for (size_t i = 0; i < 100000; i++) { all += added(7 + i, strf("<t%zu>", i)); }
    put("tokenizer.json", tokenizer_json(all, false));
    put("tokenizer_config.json", "{}");
    CHECK(ids(tokenizer_load(dir), "a<t0>a<t99999>") == "0 7 0 100006", "100,000 added tokens: %s",
          ids(tokenizer_load(dir), "a<t0>a<t99999>").c_str());
    // the same in tokenizer_config.json
    put("tokenizer.json", good);
    std::string decoder;
    for (size_t i = 0; i < 100000; i++) {
        decoder += (i ? "," : "") + strf("\"%zu\": {\"content\": \"<t%zu>\"}", 7 + i, i);
    }
    reads("{\"added_tokens_decoder\": {" + decoder + "}}", "a<t99999>", "0 100006");
}

// what changes ids changes the hash: shards made with the other reading are not taken
static void hash_check() {
    clear();
    put("tokenizer.json", tokenizer_json(SPECIALS, false));
    const auto hash = [&](const std::string& config) {
        put("tokenizer_config.json", config);
        return tokenizer_load(dir).hash;
    };
    const uint64_t plain = hash("{}");
    CHECK(hash("{\"bos_token\": \"<s>\", \"model_max_length\": 7}") == plain, "nothing changed");
    CHECK(hash("{\"pad_token\": \"<x>\"}") != plain, "one more special token");
    CHECK(hash("{\"added_tokens_decoder\": {\"4\": {\"content\": \"<s>\", \"rstrip\": true}}}") !=
              plain,
          "other flags");
}

// ---- config.json, adapters, generation_config.json

static const std::string LLAMA =
    "\"model_type\": \"llama\", \"hidden_size\": 12, \"num_hidden_layers\": 1, "
    "\"num_attention_heads\": 2, \"intermediate_size\": 8, \"vocab_size\": 9, "
    "\"max_position_embeddings\": 16";

static Arch arch(const std::string& config) {
    std::string attn;
    return arch_import(json_of("{" + config + "}"), "config.json", &attn);
}

static void config_refuses(const std::string& more, const std::string& says) {
    const Died d = check_dies([&] { arch(LLAMA + ", " + more); });
    check_ended(d, EXIT_USER, more, says);
}

static void config_check() {
    for (const char* good :
         { "\"architectures\": [\"LlamaForCausalLM\"]", "\"architectures\": [\"LlamaModel\"]",
           "\"architectures\": null", "\"pruned_heads\": {}", "\"dtype\": \"bfloat16\"",
           "\"torch_dtype\": \"auto\"", "\"is_encoder_decoder\": false",
           "\"auto_map\": {\"AutoModelForCausalLM\": \"modeling_llama.LlamaForCausalLM\", "
           "\"AutoConfig\": \"configuration_llama.LlamaConfig\"}" }) {
        CHECK(arch(LLAMA + ", " + good).C == 12, "%s", good);
    }
    config_refuses("\"architectures\": [\"LlamaForSequenceClassification\"]",
                   "architectures names");
    config_refuses("\"architectures\": [\"MistralForCausalLM\"]", "architectures names");
    config_refuses("\"architectures\": [\"LlamaForCausalLMEagle3\"]", "architectures names");
    config_refuses("\"auto_map\": {\"AutoModelForCausalLM\": \"modeling_x.MyLlamaForCausalLM\"}",
                   "auto_map: AutoModelForCausalLM is");
    config_refuses("\"auto_map\": {\"AutoModelForCausalLM\": \"modeling_x.MyLlamaForCausalLM\"}",
                   "HINT: if these weights are a plain llama, remove auto_map from this file");
    config_refuses("\"pruned_heads\": {\"0\": [1]}", "pruned_heads is an object");
    config_refuses("\"dtype\": \"float8_e4m3fn\"", "dtype is \"float8_e4m3fn\"");
    config_refuses("\"torch_dtype\": \"int8\"", "torch_dtype is \"int8\"");
    config_refuses("\"is_encoder_decoder\": true", "is_encoder_decoder is true");
    config_refuses("\"add_cross_attention\": true", "add_cross_attention is true");
    config_refuses("\"chunk_size_feed_forward\": 2", "chunk_size_feed_forward is 2");
    for (auto& pair : std::vector<std::pair<const char*, const char*>>{
             { "gpt2", "GPT2LMHeadModel" }, { "gpt_neox", "GPTNeoXForCausalLM" },
             { "gemma3_text", "Gemma3ForCausalLM" }, { "gpt_oss", "GptOssForCausalLM" },
             { "stablelm", "StableLmForCausalLM" }, { "qwen2_moe", "Qwen2MoeForCausalLM" },
             { "smollm3", "SmolLM3ForCausalLM" }, { "opt", "OPTForCausalLM" } }) {
        const Died d = check_dies([&] {
            arch(strf("\"model_type\": \"%s\", \"architectures\": [\"%s\"]", pair.first,
                      pair.second));
        });
        CHECK(!d.says("architectures names"), "%s: %s", pair.second, d.err.c_str());
    }
    // Gemma: sqrt(width) in float32, whatever the weights are kept in
    for (const char* type : { "float32", "bfloat16", "float16" }) {
        const Arch c =
            arch(replaced(LLAMA, "llama", "gemma") + ", \"head_dim\": 6, \"hidden_act\": "
                 "\"gelu_pytorch_tanh\", \"dtype\": \"" + type + "\"");
        CHECK(c.embed_scale == sqrtf(12), "gemma in %s: %.9g", type, (double)c.embed_scale);
    }
}

static void adapter_check() {
    for (bool beside : { false, true }) {
        for (const char* file : { "adapter_config.json", "adapter_model.safetensors",
                                  "adapter_model.bin" }) {
            clear();
            if (beside) { put("config.json", "{" + LLAMA + "}"); }
            put(file, "{\"peft_type\": \"LORA\", \"base_model_name_or_path\": \"some/base\"}");
            const Died d = check_dies([&] { checkpoint_open(dir); });
            CHECK(d.code == EXIT_USER && d.says(file) && d.says("holds an adapter (LoRA)") &&
                      d.says("merge_and_unload") && d.says(dir + " NEW") &&
                      d.says("move adapter_* away") == beside,
                  "%s: exit %d, %s", file, d.code, d.err.c_str());
        }
    }
}

static void generation_check() {
    clear();
    const std::string name = "generation_config.json";
    CHECK(directory_ends(dir, name).empty(), "no file");
    put(name, "{\"eos_token_id\": 5}");
    CHECK(directory_ends(dir, name) == std::vector<int>{ 5 }, "one id");
    put(name, "{\"eos_token_id\": [5, 3]}");
    CHECK((directory_ends(dir, name) == std::vector<int>{ 5, 3 }), "a list");
    for (const char* bad : { "\"5\"", "[5, \"3\"]", "-1", "1.5", "{}", "true" }) {
        put(name, std::string("{\"eos_token_id\": ") + bad + "}");
        const Died d = check_dies([&] { directory_ends(dir, name); });
        check_ended(d, EXIT_USER, bad, "wanted an id or a list");
    }
    const auto checked = [&](const char* text) {
        return check_dies([&] { directory_check(name, name, json_of(text)); });
    };
    for (const char* good : { "{\"temperature\": 0.6, \"top_p\": 0.9, \"do_sample\": true}",
                              "{\"suppress_tokens\": null, \"bad_words_ids\": []}",
                              "{\"repetition_penalty\": 1.1}" }) {
        CHECK(checked(good).code == 0, "%s: %s", good, checked(good).err.c_str());
    }
    for (const char* bad : { "suppress_tokens", "forced_bos_token_id", "stop_strings",
                             "bad_words_ids" }) {
        const std::string text = strf("{\"%s\": [1]}", bad);
        CHECK(checked(text.c_str()).says(bad), "%s", bad);
    }
    CHECK(checked("{\"new_processor\": 3}").says("the key 'new_processor' (3) is not known"),
          "unknown");
    CHECK(directory_said(name, json_of("{\"repetition_penalty\": 1.1, \"num_beams\": 1, "
                                       "\"guidance_scale\": null, \"min_p\": 0.05}")) ==
              "repetition_penalty 1.1, min_p 0.05", "what is said");
    CHECK(directory_said(name, json_of("{\"repetition_penalty\": 1.0, \"no_repeat_ngram_size\": 0, "
                                       "\"temperature\": 2}")).empty(), "nothing to say");
}

// ---- the program, on a small model with a tokenizer

static const std::string MODEL = "test/after/score/llama";

static const std::string PROGRAM = "OMP_NUM_THREADS=1 build/cpu/train_sink generate ";
static const std::string FEW = " --temperature 0 --tokens 12 ";

static Ran generate(const std::string& model, const std::string& flags) {
    return check_run(PROGRAM + model + FEW + flags);
}

// what the model's files say ends a text ends it, and what is drawn in another way is said
static void program_check() {
    clear();
    check_run("cp " + MODEL + "/* " + dir);
    const Tokenizer tok = tokenizer_load(dir);
    const std::string prompt = "the door of";
    const Ran all = generate(dir, "--prompt '" + prompt + "'");
    CHECK(all.code == 0 && all.err.empty(), "%s", all.err.c_str());
    std::vector<int> made = tokenizer_encode(tok, all.out.substr(0, all.out.size() - 1), false);
    const size_t given = tokenizer_encode(tok, prompt, false).size();
    if (!CHECK(made.size() > given + 4, "only %zu tokens: %s", made.size(), all.out.c_str())) {
        return;
    }
    size_t stop = given + 3;                             // a token that was not made before
    while (std::count(made.begin() + given, made.begin() + stop, made[stop])) { stop++; }
    put("generation_config.json",
        strf("{\"eos_token_id\": [1, %d], \"repetition_penalty\": 1.3}", made[stop]));
    const Ran cut = generate(dir, "--prompt '" + prompt + "'");
    const std::string want = tokenizer_decode(tok, made.data(), stop, true) + "\n";
    CHECK(cut.code == 0 && cut.out == want &&
              contains(cut.err, "repetition_penalty 1.3: not applied here"),
          "got '%s', wanted '%s'; %s", cut.out.c_str(), want.c_str(), cut.err.c_str());
    // config.json says it where generation_config.json does not
    const std::string config = file_read(dir + "/config.json");
    const auto said = [&](const std::string& eos) {
        put("config.json", replaced(config, "\"eos_token_id\": 2", "\"eos_token_id\": " + eos));
        return generate(dir, "--prompt '" + prompt + "'");
    };
    put("generation_config.json", "{\"eos_token_id\": [1]}");
    CHECK(said(strf("%d", made[stop])).out == all.out, "both files say it, and the other counts");
    unlink((dir + "/generation_config.json").c_str());
    CHECK(said(strf("%d", made[stop])).out == want, "eos_token_id of config.json");
    CHECK(said("50256").out == all.out, "the id of a class's default, which the model has not");
    put("config.json", config);
    // and the tokenizer's EOS ends a text, whatever the others say
    const std::string specials = file_read(dir + "/tokenizer_config.json");
    put("tokenizer_config.json", replaced(specials, "\"eos_token\": \"</s>\"",
                                          "\"eos_token\": " + json_str(token_text(tok, made[stop]))));
    const Ran by_tokenizer = generate(dir, "--prompt '" + prompt + "'");
    CHECK(by_tokenizer.out == want, "got '%s'; %s", by_tokenizer.out.c_str(),
          by_tokenizer.err.c_str());
    put("tokenizer_config.json", specials);
    put("generation_config.json", "{\"eos_token_id\": 99999}");
    CHECK(generate(dir, "--prompt a").says("eos_token_id 99999: wanted below"),
          "an id that is none");
    put("generation_config.json", "{\"forced_eos_token_id\": 2}");
    CHECK(generate(dir, "--prompt a").says("forced_eos_token_id is 2"), "a key that forces");
    put("generation_config.json", "{}");
    // standard input is not printed again
    const Ran piped = check_run("printf '" + prompt + "' | " + PROGRAM + dir + FEW + "--prompt -");
    CHECK(piped.code == 0 && prompt + piped.out == all.out, "--prompt -: %s", piped.said().c_str());
    CHECK(generate(dir, "--bos 99999999 --prompt a").says("an id below"), "--bos");
    // a text that brings its BOS gets no second one
    CHECK(tok.before.size() == 1, "a model that begins with BOS");
    const std::string bos = token_text(tok, tok.before[0]);
    for (const char* flag : { "", "--bos none ", "--bos default " }) {
        CHECK(generate(dir, flag + ("--prompt '" + bos + prompt) + "'").out == all.out,
              "%s: BOS in the prompt", flag);
    }
    CHECK(generate(dir, "--bos none --prompt '" + prompt + "'").out != all.out, "without BOS");
    // models that read bytes, or ids
    unlink((dir + "/tokenizer.json").c_str());
    const Ran ids = check_run("printf '5 7\n9\n' | " + PROGRAM + dir + FEW + "--prompt -");
    const Ran typed = generate(dir, "--prompt '5 7 9'");
    CHECK(ids.code == 0 && "5 7 9 " + ids.out == typed.out, "%s%s%s", ids.out.c_str(),
          typed.out.c_str(), ids.err.c_str());
}

// a probe that leaves BOS out says so, and doubles none
static void probe_check() {
    const std::string text = dir + "/probe.jsonl";
    std::string lines;
    for (int i = 0; i < 6; i++) {
        lines += std::string("{\"text\": \"") + (i % 2 ? "<s>" : "") +
                 "the door of the house by the river "
                 "and the house by the door of the river\"}\n";
    }
    file_write(text, lines);
    const std::string probe = "OMP_NUM_THREADS=1 build/cpu/train_sink probe " + MODEL + " -d " +
                              text + " --probe-len 6 --probe-seqs 6 ";
    const Ran plain = check_run(probe);
    check_ended(plain, 0, "two ways", "measured both ways");
    for (const char* bos : { "none", "default" }) {
        const Ran r = check_run(probe + "--bos " + bos);
        CHECK(r.code == 0 && !r.says("both ways"), "--bos %s: %s", bos, r.said().c_str());
        CHECK(r.says("no second one") == !strcmp(bos, "default"), "--bos %s: %s", bos,
              r.out.c_str());
    }
}

int main(int argc, char** argv) {
    if (argc == 2 && !strcmp(argv[1], "--table")) {
        printf("%s", table_text().c_str());
        return 0;
    }
    dir = check_tmp();
    CASE("page") { page_check(); }
    CASE("tokenizer_config") { tokenizer_config_check(); }
    CASE("other_files") { other_files_check(); }
    CASE("hash") { hash_check(); }
    CASE("bombs") { bombs_check(); }
    CASE("config") { config_check(); }
    CASE("adapter") { adapter_check(); }
    CASE("generation") { generation_check(); }
    CASE("program") { program_check(); }
    CASE("probe") { probe_check(); }
    remove_tree(dir);
    return check_done();
}
