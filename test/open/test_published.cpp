/*
test_published.cpp -- config.json as a family's authors published it, most in the spelling of
transformers 4: test/open/published.jsonl has at least one for each family, with the sizes of the
tiny model beside which it is read. It has to say the same as the spelling of transformers 5, row by
row of ARCH, and give the same loss. Keys that say nothing, and null, change nothing.
*/
#include "../answer.h"
#include "../../open/import_config.h"

static const std::string OPEN = "test/open/", SCRATCH = "build/test/open/published/";
static const std::string NOTE = SCRATCH + "note";

// What a config.json says: every row of ARCH but T, which not every file has, and the operation.
static std::string rows_of(const Json& config) {
    std::string attn;
    Arch c = arch_import(config, "config.json", &attn);
    arch_settle(&c, "config.json");
    if (c.window >= c.T) { c.window = 0; }
    std::string all = "attn=" + attn;
    for (auto& r : arch_rows(&c)) {
        if (strcmp(r.field, "T")) { all += strf(" %s=", r.field) + field_text(r, true); }
    }
    return all;
}

// The same, or why it is refused: arch_import ends the process.
static std::string said(const Json& config) {
    const Died d = check_dies([&] { file_write(NOTE, rows_of(config)); _exit(0); });
    return d.code == 0 ? file_read(NOTE) : d.err;
}

// A config.json with one more key.
static Json with(Json config, const std::string& key, const Json& value) {
    config.fields.push_back({ key, value });
    return config;
}

// A family's directory with this config.json opens, and gives what transformers gave.
static void probe_check(const std::string& name, const std::string& weights,
                        const std::string& config) {
    const std::string dir = SCRATCH + "model", out = SCRATCH + "probe.json";
    check_run("rm -rf " + dir + " && mkdir -p " + dir + " && cp " + OPEN + weights +
              "/model.safetensors " + dir);
    file_write(dir + "/config.json", config);
    const Ran r = check_run("OMP_NUM_THREADS=1 build/cpu/train_sink probe " + dir + " -d " + OPEN +
                            "families/tokens --probe-len 33 --probe-seqs 4 --per-sequence --json " +
                            out);
    if (!check_ended(r, 0, name)) { return; }
    const Json ours = json_of_file(out);
    answer_check(name, OPEN + weights,
                 { ours.get("probe_loss")->number, numbers(*ours.get("alpha")),
                   numbers(*ours.get("h_norm_first")), numbers(*ours.get("h_norm_rest")) });
}

// What transformers 4 adds where it writes a whole config, keys of generation above all.
static const char* const DEFAULTS =
    "{\"return_dict\": true, \"output_hidden_states\": false, \"output_attentions\": false, "
    "\"torchscript\": false, \"use_bfloat16\": false, \"tf_legacy_loss\": false, "
    "\"pruned_heads\": {}, \"chunk_size_feed_forward\": 0, \"is_encoder_decoder\": false, "
    "\"is_decoder\": false, \"cross_attention_hidden_size\": null, \"add_cross_attention\": false, "
    "\"tie_encoder_decoder\": false, \"max_length\": 20, \"min_length\": 0, \"do_sample\": false, "
    "\"early_stopping\": false, \"num_beams\": 1, \"num_beam_groups\": 1, "
    "\"diversity_penalty\": 0.0, \"temperature\": 1.0, \"top_k\": 50, \"top_p\": 1.0, "
    "\"typical_p\": 1.0, \"repetition_penalty\": 1.0, \"length_penalty\": 1.0, "
    "\"no_repeat_ngram_size\": 0, \"encoder_no_repeat_ngram_size\": 0, \"bad_words_ids\": null, "
    "\"num_return_sequences\": 1, \"output_scores\": false, \"return_dict_in_generate\": false, "
    "\"forced_bos_token_id\": null, \"forced_eos_token_id\": null, "
    "\"remove_invalid_values\": false, \"exponential_decay_length_penalty\": null, "
    "\"suppress_tokens\": null, \"begin_suppress_tokens\": null, \"finetuning_task\": null, "
    "\"id2label\": {\"0\": \"LABEL_0\"}, \"label2id\": {\"LABEL_0\": 0}, "
    "\"tokenizer_class\": null, \"prefix\": null, \"sep_token_id\": null, \"decoder_start_token_id\": null, "
    "\"task_specific_params\": null, \"problem_type\": null, \"_name_or_path\": \"\", "
    "\"_attn_implementation_autoset\": false}";

// Null says nothing, whatever the key is called.
static const char* const NULLS[] = { "quantization_config", "quantization", "compression_config",
                                     "vision_config", "text_config", "audio_config", "pruned_heads",
                                     "auto_map", "foo" };

// Keys that change nothing, all at once, each alone, and as null.
static void harmless_check(const std::string& name, const Json& config, const std::string& wanted) {
    Json all = config;
    const Json defaults = json_of(DEFAULTS);
    for (auto& f : defaults.fields) {
        if (!config.get(f.first.c_str())) { all = with(all, f.first, f.second); }
    }
    for (auto& key : NULLS) { if (!config.get(key)) { all = with(all, key, Json()); } }
    CHECK(said(all) == wanted, "%s, with what says nothing: %s", name.c_str(), said(all).c_str());
}

// Each of these by itself, in one family: that one is refused is seen by its name.
static void each_check(const Json& config) {
    const std::string wanted = said(config);
    for (auto& f : json_of(DEFAULTS).fields) {
        CHECK(said(with(config, f.first, f.second)) == wanted, "%s", f.first.c_str());
        CHECK(said(with(config, f.first, Json())) == wanted, "%s: null", f.first.c_str());
    }
    for (std::string key : NULLS) {
        CHECK(said(with(config, key, Json())) == wanted, "%s: null", key.c_str());
        if (key == "pruned_heads" || key == "auto_map") { continue; }
        const std::string why = said(with(config, key, json_of("{\"x\": 1}")));
        CHECK(contains(why, "config.json: "), "%s passes: %s", key.c_str(),
              why.c_str());
    }
}

// Keys of one family, with a value that is not the family's own: type, key, value, rows of ARCH.
static const char* const OWN_KEYS[][4] = {
    { "gpt_neox", "use_parallel_residual", "false", " parallel=0 " },
    { "gpt_neox", "attention_bias", "false", " qkv_bias=0 out_bias=0 ffn_bias=1 " },
    { "llama", "attention_bias", "true", " qkv_bias=1 out_bias=1 ffn_bias=0 " },
    { "arcee", "mlp_bias", "true", " qkv_bias=0 out_bias=0 ffn_bias=1 " },
    { "helium", "attention_bias", "true", " qkv_bias=1 out_bias=0 ffn_bias=0 " },
    { "glm", "attention_bias", "false", " qkv_bias=0 out_bias=0 ffn_bias=0 " },
    { "seed_oss", "attention_out_bias", "true", " qkv_bias=1 out_bias=1 ffn_bias=0 " },
    { "stablelm", "use_qkv_bias", "true", " qkv_bias=1 out_bias=0 ffn_bias=0 " },
    { "starcoder2", "use_bias", "false", " qkv_bias=0 out_bias=0 ffn_bias=0 " },
    { "ernie4_5", "use_bias", "true", " qkv_bias=1 out_bias=1 ffn_bias=1 " },
    { "opt", "enable_bias", "false", " qkv_bias=0 out_bias=0 ffn_bias=0 " },
    { "falcon", "bias", "true", " qkv_bias=1 out_bias=1 ffn_bias=1 " },
    { "falcon", "ffn_hidden_size", "40", " F=40 " },
    { "bloom", "n_inner", "40", " F=40 " },
    { "qwen2_moe", "qkv_bias", "false", " qkv_bias=0 out_bias=0 ffn_bias=0 " },
    { "gemma", "head_dim", "null", " HS=256 " },
    { "qwen3", "head_dim", "null", " HS=128 " },
};

// A family's own keys are read, each into all of its rows.
static void own_keys_check(const std::string& type, const Json& config) {
    for (auto& [of, key, value, rows] : OWN_KEYS) {
        if (type != of) { continue; }
        Json changed = config;
        const auto is_key = [&](auto& f) { return f.first == key; };
        auto& fields = changed.fields;
        fields.erase(std::remove_if(fields.begin(), fields.end(), is_key), fields.end());
        const std::string got = said(with(changed, key, json_of(value)));
        CHECK(contains(got, rows), "%s: %s %s:\n%s", of, key, value, got.c_str());
    }
}

// A model of text and images is an error with the line that makes its language model, to be copied
// whole; not where its code is beside the weights, which that line does not run.
static void parts_check() {
    int models = 0;
    for (auto& line : split(file_read(OPEN + "parts.jsonl"), '\n')) {
        if (line.empty()) { continue; }
        const Json row = json_of(line);
        const std::string why = said(row["config"]);
        CHECK(contains(why, "it is a model of more than text\n---> HINT: python3 -c \"") &&
                  contains(why, "(sys.argv[2])\" . NEW && cp ./*token* NEW\n"),
              "%s: %s", row["model"].string.c_str(), why.c_str());
        const std::string own = said(with(row["config"], "auto_map", json_of("{\"x\": \"y\"}")));
        CHECK(contains(own, "wanted one of: llama"), "%s", own.c_str());
        models++;
    }
    CHECK(models == 13, "%d models of text and images", models);
}

int main() {
    make_dirs(SCRATCH);
    std::set<std::string> families;
    for (auto& line : split(file_read(OPEN + "published.jsonl"), '\n')) {
        if (line.empty()) { continue; }
        const Json row = json_of(line);
        const Json& config = *row.get("config");
        const std::string name = row.get("model")->string, weights = row.get("weights")->string;
        families.insert(config.get("model_type")->string);
        const std::string got = said(config);
        CHECK(starts_with(got, "attn="), "%s is refused: %s", name.c_str(), got.c_str());
        harmless_check(name, config, got);
        own_keys_check(config.get("model_type")->string, config);
        if (weights.empty()) { continue; }
        const std::string newer = said(json_of_file(OPEN + weights + "/config.json"));
        CHECK(got == newer, "%s: says\n%s\ntransformers 5:\n%s", name.c_str(), got.c_str(),
              newer.c_str());
        const std::string text = line.substr(line.find("\"config\": ") + 10);
        if (starts_with(weights, "families/")) {
            probe_check(name, weights, text.substr(0, text.size() - 1));
        }
    }
    for (auto& type : split(family_types(), ',')) {
        const std::string trimmed = type.substr(type[0] == ' ');
        CHECK(families.count(trimmed), "no config.json of %s in published.jsonl", trimmed.c_str());
    }
    parts_check();
    each_check(json_of_file(OPEN + "families/qwen2/config.json"));
    return check_done();
}
