/*
test_hostile.cpp -- input that was made to mislead, or to cost: numbers in a config.json that no
model has, tensors under names of wrappers, text with escapes in it, files that change while they
are read. The program has to name what is wrong, within a bound of time and memory.
*/
#include "../terminal.h"
#include "../../base/maps.h"

static std::string dir, home, binary;

static Ran train_sink(const std::string& args) {
    return check_run("cd " + dir + " && timeout 60 " + binary + " " + args);
}

static void refused(const Ran& r, const std::string& what, const std::string& says,
                    const std::string& hint = "") {
    check_ended(r, EXIT_USER,
                strf("%s: wanted '%s' and '%s', got %d", what.c_str(), says.c_str(), hint.c_str(), r.code),
                says, hint);
}

// a directory `model` as test/open/families/NAME is, but for config.json
static void model_of(const std::string& family, const std::string& config) {
    check_run("cd " + dir + " && rm -rf model && cp -r '" + home + "/test/open/families/" + family +
              "' model && rm -f model/model.gguf");
    file_write(dir + "/model/config.json", config);
}

static std::string config_of(const std::string& family) {
    return file_read("test/open/families/" + family + "/config.json");
}

// the config with this key set to this value
static std::string with(const std::string& config, const std::string& key,
                        const std::string& value) {
    std::string out = "{\"" + key + "\": " + value;
    const Json j = json_of(config);
    for (size_t i = 0; i < j.fields.size(); i++) {
        if (j.fields[i].first == key) { continue; }
        // each value as it is written: from its key to the next
        const std::string name = json_str(j.fields[i].first);
        size_t at = config.find("\n  " + name + ":") + 3;
        size_t end = config.size();
        if (i + 1 < j.fields.size()) {
            end = config.find("\n  " + json_str(j.fields[i + 1].first) + ":");
        } else { end = config.rfind('}'); }
        std::string field = config.substr(at, end - at);
        while (!field.empty() && (field.back() == ',' || isspace((unsigned char)field.back()))) {
            field.pop_back();
        }
        out += ",\n  " + field;
    }
    return out + "\n}\n";
}

static const char* const PROBE = "probe model --probe-input random --probe-seqs 2 --probe-len 4";

static const struct { const char *family, *key, *value, *says; } NUMBERS[] = {
    { "llama_llama3", "hidden_size", "16.0", "a whole number" },
    { "llama_llama3", "hidden_size", "true", "a number" },
    { "llama_llama3", "num_hidden_layers", "1e400", "too large" },
    { "llama_llama3", "num_attention_heads", "9223372036854775808", "a whole number" },
    { "llama_llama3", "rms_norm_eps", "true", "a number" },
    { "llama_llama3", "rms_norm_eps", "1e-400", "" },
    { "llama_llama3", "rms_norm_eps", "-1", "0 to 1" },
    { "llama_llama3", "rope_theta", "1e300", "1e-37 to 1e38" },
    { "llama_llama3", "vocab_size", "-5", "vocab_size" },
    { "llama_llama3", "attention_bias", "2", "true or false" },
    { "llama_llama3", "attention_bias", "\"false\"", "true or false" },
    { "llama_llama3", "rope_parameters", "\"linear\"", "an object, or null" },
    { "llama_llama3", "pruned_heads", "{\"0\": [1]}", "none" },
    { "mixtral", "num_experts_per_tok", "true", "a number" },
    { "mixtral", "sliding_window", "2.5", "a whole number" },
    { "qwen2", "max_window_layers", "1e300", "a whole number" },
    { "qwen2", "use_sliding_window", "3", "true or false" },
    { "gemma", "head_dim", "1e400", "too large" },
    { "gemma3", "query_pre_attn_scalar", "1e400", "too large" },
    { "gemma3", "query_pre_attn_scalar", "1e300", "1e-37 to 1e38" },
    { "gemma3", "query_pre_attn_scalar", "1e30", "1e-12 to 1e12" },
    { "gemma3", "query_pre_attn_scalar", "true", "a number" },
    { "gemma3", "sliding_window", "9223372036854775807", "a whole number" },
    { "gemma3", "final_logit_softcapping", "1e9", "0 to 1000000" },
    { "jamba", "attn_layer_period", "2.5", "a whole number" },
    { "jamba", "attn_layer_offset", "-1", "a whole number" },
    { "jamba", "expert_layer_period", "0", "a whole number, 1 or more" },
    { "jamba", "mamba_expand", "1e400", "too large" },
    { "jamba", "mamba_expand", "9223372036854775808", "a whole number" },
    { "jamba", "mamba_expand", "1000000", "less than 2^20" },
    { "jamba", "mamba_dt_rank", "9223372036854775808", "a whole number" },
    { "jamba", "mamba_dt_rank", "1000000000", "0 to 1048576" },
    { "jamba", "mamba_dt_rank", "[]", "a whole number" },
    { "falcon_7b", "num_kv_heads", "2.5", "a whole number" },
    { "falcon_7b", "multi_query", "7", "true or false" },
    { "falcon_40b", "ffn_hidden_size", "1e12", "a whole number" },
    { "gpt_neo", "attention_types", "[[[\"global\"], 1e300]]", "" },
    { "gpt_neo", "window_size", "true", "a whole number" },
    { "opt", "do_layer_norm_before", "\"no\"", "true or false" },
    { "smollm3", "no_rope_layers", "[\"1\", \"0\", \"1\", \"1\"]", "1 or 0" },
    { "qwen2_moe", "mlp_only_layers", "3", "experts in all layers" },
    { "qwen3_moe", "norm_topk_prob", "0.5", "true or false" },
};

static void test_numbers() {
    for (auto& row : NUMBERS) {
        const std::string what = std::string(row.family) + ": " + row.key + " " + row.value;
        model_of(row.family, with(config_of(row.family), row.key, row.value));
        const Ran r = train_sink(PROBE);
        CHECK(r.code == 0 || r.code == EXIT_USER, "%s: %d %s", what.c_str(), r.code, r.err.c_str());
        if (*row.says) { refused(r, what, row.says); }
        CHECK(r.code == 0 || r.says(row.key) || r.says("too large"), "%s: not named: %s",
              what.c_str(), r.err.c_str());
    }
    for (auto& family : dir_list("test/open/families")) { // as they are, they are models
        if (!file_exists("test/open/families/" + family + "/config.json")) { continue; }
        model_of(family, with(config_of(family), "transformers_version", "\"5\""));
        const Ran r = train_sink(PROBE);
        check_ended(r, 0, family);
    }
}

// tables of positions are as long as what is read, whatever a config.json promises
static void test_positions() {
    for (const char* family : { "llama_llama3", "gemma3" }) {
        std::string answers[2];
        for (int big = 0; big < 2; big++) {
            const std::string config = config_of(family);
            model_of(family, big ? with(config, "max_position_embeddings", "999999999") : config);
            const Ran g = check_run("cd " + dir + " && ulimit -v 3000000 && timeout 60 " + binary +
                                    " generate model --tokens 30 --temperature 0 --prompt 1");
            const Ran p = check_run("cd " + dir + " && ulimit -v 3000000 && timeout 60 " + binary +
                                    " " + PROBE);
            CHECK(g.code == 0 && p.code == 0, "%s, a billion positions: %s%s", family,
                  g.err.c_str(), p.err.c_str());
            answers[big] = g.out + p.out;
        }
        CHECK(answers[0] == answers[1] && answers[0].size() > 100, "%s: %s", family,
              answers[1].c_str());
    }
    model_of("llama_llama3",
             with(config_of("llama_llama3"), "max_position_embeddings", "99999999"));
    const Ran r =
        check_run("cd " + dir + " && ulimit -v 3000000 && timeout 60 " + binary +
                  " probe model --probe-input random --probe-seqs 1 --probe-len 16000000");
    check_ended(r, EXIT_MACHINE, "16000000 positions", "memory: wanted");
}

// a safetensors file of one model with the names of its tensors changed
static void rename_tensors(const std::string& from, const std::string& to, bool all = true) {
    const std::string path = dir + "/model/model.safetensors";
    std::string file = file_read(path);
    uint64_t n;
    memcpy(&n, file.data(), 8);
    std::string header = file.substr(8, n), data = file.substr(8 + n);
    for (size_t at = 0; (at = header.find("\"" + from, at)) != std::string::npos;) {
        header.replace(at + 1, from.size(), to);
        at += to.size() + 1;
        if (!all) { break; }
    }
    n = header.size();
    file_write(path, std::string((const char*)&n, 8) + header + data);
}

static void test_names() {
    model_of("qwen2", config_of("qwen2"));
    const Ran plain = train_sink(PROBE);
    check_ended(plain, 0, "");
    for (const char* wrapper :
         { "module.", "_orig_mod.", "module._orig_mod.", "_forward_module." }) {
        model_of("qwen2", config_of("qwen2"));
        rename_tensors("model.", wrapper + std::string("model."));
        rename_tensors("lm_head", wrapper + std::string("lm_head"));
        const Ran r = train_sink(PROBE);
        CHECK(r.code == 0 && r.out == plain.out, "%s: %d %s", wrapper, r.code, r.err.c_str());
    }
    model_of("qwen2", config_of("qwen2"));
    rename_tensors("model.layers", "model.layers._fsdp_wrapped_module");
    rename_tensors("model.layers._fsdp_wrapped_module", "model.layers");
    rename_tensors("model.layers.0.", "model.layers.0._orig_mod.");
    CHECK(train_sink(PROBE).out == plain.out, "a wrapped layer: %s", train_sink(PROBE).err.c_str());
    const struct { const char *to, *says, *hint; } rows[] = {
        { "language_model.model.", "is of a model of more than text", "save_pretrained" },
        { "model.language_model.", "is of a model of more than text", "save_pretrained" },
        { "base_model.model.model.", "a model that PEFT is wrapped around", "merge_and_unload" },
        { "encoder.", "has no embedding 'model.embed_tokens.weight'; its first tensor is called",
          "under the names that transformers gives" },
    };
    for (auto& row : rows) {
        model_of("qwen2", config_of("qwen2"));
        rename_tensors("model.", row.to);
        const Ran r = train_sink(PROBE);
        refused(r, row.to, row.says, row.hint);
        CHECK(!r.says("tie_word_embeddings is"), "%s: %s", row.to, r.err.c_str());
    }
    // names that are there twice once the wrapper is gone
    model_of("qwen2", config_of("qwen2"));
    rename_tensors("model.layers.1.", "module.model.layers.0.");
    refused(train_sink(PROBE), "twice", "appears twice");
    for (const char* key : { "quantization_config", "compression_config" }) {
        model_of("qwen2", with(config_of("qwen2"), key, "{\"quant_method\": \"gptq\"}"));
        const Ran r = train_sink(PROBE);
        refused(r, key, "its weights are quantized in a form", "as a GGUF file");
        CHECK(!r.says("remove"), "%s: %s", key, r.err.c_str());
    }
    model_of("qwen2", with(config_of("qwen2"), "vision_config", "{}"));
    refused(train_sink(PROBE), "vision_config", "a model of more than text", "save_pretrained");
}

// what printable lets through
static void test_printable() {
    const struct { const char *text, *shown; } rows[] = {
        { "plain caf\xc3\xa9 \xe2\x82\xac", "plain caf\xc3\xa9 \xe2\x82\xac" },
        { "a\x1b[31mb", "a?[31mb" }, { "a\x7f" "b", "a?b" }, { "a\nb\tc", "a?b?c" },
        { "\xc2\x9b" "31m", "?31m" }, { "\xc2\x80\xc2\x9f\xc2\xa0", "??\xc2\xa0" },
        { "\x9b" "31m", "?31m" }, { "\xff\xfe", "??" },
        { "\xe2\x80\xaa\xe2\x80\xae", "??" }, { "\xe2\x80\xa9\xe2\x80\xaf",
          "\xe2\x80\xa9\xe2\x80\xaf" },
        { "\xe2\x81\xa6\xe2\x81\xa9\xe2\x81\xaa", "??\xe2\x81\xaa" },
    };
    for (auto& row : rows) {
        CHECK(printable(row.text) == row.shown, "printable: %s", json_str(row.text).c_str());
    }
    CHECK(printable(std::string("a\0b", 3)) == "a?b", "a zero byte");
    CHECK(printable("a\n\x1b\tb", "\n\t") == "a\n?\tb", "printable, kept");
}

static bool has_escape(const std::string& s) { // but for those that clear the line of progress
    std::string left = s;
    for (size_t at; (at = left.find("\x1b[K")) != std::string::npos;) { left.erase(at, 3); }
    return contains(left, "\x1b") || contains(left, "\xc2\x9b") || contains(left, "\xe2\x80\xae");
}

static void test_terminal() {
    const std::string evil = "\x1b]0;PWNED\x07\xc2\x9b" "31m\xe2\x80\xae", name = "e" + evil;
    const std::string here = "cd " + dir + " && timeout 60 " + binary;
    const std::string tiny = " -b 2 -t 8 --width 8 --heads 2 --ffn-width 8 --val-seqs 2 "
                             "--probe-seqs 2 --probe-len 4 -n 2 ";
    std::string words;
    for (int i = 0; i < 300; i++) { words += strf("%d words ", i); }
    file_write(dir + "/" + name + ".txt", words);
    std::string shown = on_terminal(here + " train -d '" + name + ".txt'" + tiny + "-o 'o" + name +
                                    "'");
    CHECK(contains(shown, "done at step 2"), "a run: %s", shown.c_str());
    CHECK(!has_escape(shown), "train: %s", json_str(shown).c_str());
    const std::string run = "'o" + name + "/step_2'";
    CHECK(is_dir(dir + "/o" + name + "/step_2"), "no checkpoint");
    shown =
        on_terminal(here + " train --init " + run + " -d '" + name + ".txt'" + tiny + "-o again");
    CHECK(contains(shown, "init ") && !has_escape(shown), "--init: %s",
          json_str(shown).c_str());
    shown = on_terminal(here + " probe " + run + " --probe-seqs 2 --probe-len 4 -d '" + name +
                        ".txt'");
    CHECK(contains(shown, "loss") && !has_escape(shown), "probe: %s",
          json_str(shown).c_str());
    shown = on_terminal(here + " eval " + run + " --probe-seqs 2 --probe-len 4 -d '" + name +
                        ".txt'");
    CHECK(contains(shown, "loss") && !has_escape(shown), "eval: %s",
          json_str(shown).c_str());
    shown = on_terminal(here + " tokenize '" + name + ".txt' -o 'k" + name + "'");
    CHECK(contains(shown, "1 document, ") && !has_escape(shown), "tokenize: %s",
          json_str(shown).c_str());
    // text that a model makes: bytes at random, to a terminal without escapes, to a file as it is
    const std::string say = "for s in $(seq 30); do (" + here + " generate " + run +
                            " --tokens 3000 --temperature 1 --seed $s); done";
    shown = on_terminal(say);
    const Ran file = check_run(say);
    CHECK(shown.size() > 1000 && !has_escape(shown), "generate: %s", json_str(shown).c_str());
    CHECK(contains(file.out, "\x1b"), "generate to a file: no escape in it");
    // keys and names of files
    model_of("qwen2", with(config_of("qwen2"), "a\\u001b[31m\\u009b31m\\u202e", "1"));
    shown = on_terminal(here + " " + PROBE);
    CHECK(contains(shown, "is not understood") && !has_escape(shown), "a key: %s",
          json_str(shown).c_str());
}

// Of many files that are mapped, more than a list of any length holds, the one that was cut is named.
static void test_maps() {
    make_dirs(dir + "/many");
    const auto name = [](int i) { return dir + strf("/many/%d.bin", i); };
    const int files = 10000;
    const Died d = check_dies([&] {
        maps_watch();
        std::vector<FileMap> maps;
        for (int i = 0; i < files; i++) {
            file_write(name(i), std::string(8192, 'x'));
            maps.push_back(file_map(name(i), 1, "token"));
        }
        if (truncate(name(files - 1).c_str(), 0)) { _exit(99); }
        _exit(maps.back().data[4096]);
    });
    check_ended(d, EXIT_MACHINE, strf("the last of %d files", files),
                "9999.bin: was cut short or replaced");
    remove_tree(dir + "/many");
}

int main() {
    home = check_home();
    binary = check_program();
    dir = check_tmp();
    setenv("OMP_NUM_THREADS", "1", 1); setenv("OMP_WAIT_POLICY", "passive", 1);
    CASE("printable") { test_printable(); }
    CASE("numbers") { test_numbers(); }
    CASE("positions") { test_positions(); }
    CASE("names") { test_names(); }
    CASE("terminal") { test_terminal(); }
    CASE("maps") { test_maps(); }
    remove_tree(dir);
    return check_done();
}
