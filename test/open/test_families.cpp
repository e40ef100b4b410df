/*
test_families.cpp -- models of other families, as transformers saved them: loss,
attention to the first ten tokens and the norms of the stream must be what transformers computed
(dev/peers/check_families.py --save). And their configs, changed so that the model would compute something
else, must be refused by name.
*/
#include "../answer.h"

static const char* const TRAIN_SINK = "build/cpu/train_sink";
static const std::string FAMILIES = "test/open/families/", SCRATCH = "build/test/open/families/";

static Ran probe(const std::string& dir, const std::string& json) {
    return check_run(std::string("OMP_NUM_THREADS=1 ") + TRAIN_SINK + " probe " + dir + " -d " +
                     FAMILIES + "tokens --probe-len 33 --probe-seqs 4 --per-sequence --json " +
                     json);
}

// dir: the family's own directory, or a copy of it that must say the same
static void family_check(const std::string& name, const std::string& dir) {
    const std::string out = SCRATCH + name + ".json";
    const Ran r = probe(dir, out);
    if (!check_ended(r, 0, name)) { return; }
    const Json ours = json_of_file(out);
    answer_check(name, FAMILIES + name,
                 { ours.get("probe_loss")->number, numbers(*ours.get("alpha")),
                   numbers(*ours.get("h_norm_first")), numbers(*ours.get("h_norm_rest")) });
}

// a copy of the family whose config has `to` in the place of the first `from`
static std::string changed(const std::string& name, const std::string& from,
                           const std::string& to) {
    const std::string dir = SCRATCH + name + "-changed";
    check_run("rm -rf " + dir + " && cp -r " + FAMILIES + name + " " + dir);
    std::string config = replaced(file_read(dir + "/config.json"), from, to);
    // the class, which belongs to the type: a test of its own, test_directory, is about it
    const size_t begin = config.find("\"architectures\""), end = config.find("],", begin);
    if (end != std::string::npos) { config.erase(begin, end + 2 - begin); }
    file_write(dir + "/config.json", config);
    return dir;
}

// the config with one more key, before all others, or with `from` replaced
static void refused(const std::string& name, const std::string& from, const std::string& to,
                    const std::string& says) {
    const std::string dir = changed(name, from, to);
    const Ran r = probe(dir, SCRATCH + "refused.json");
    check_ended(Died{ r.code, r.err }, EXIT_USER, name + " with " + to, says);
}

// Jamba: its heads are those of the layers with attention, which are named;
// what speaks of other layers is refused
static void jamba_check() {
    const std::string model = FAMILIES + "jamba", out = SCRATCH + "jamba.json";
    const Json j = json_of_file(out);
    const Json* layers = j.get("layers");
    CHECK(layers && numbers(*layers) == std::vector<double>{ 1 },
          "jamba: which layers have attention");
    CHECK(j.get("alpha1")->items.size() == 1 && j.get("k_norm_first")->items.size() == 1,
          "jamba: one layer has heads");
    CHECK(j.get("h_norm_first")->items.size() == 4, "jamba: the stream has three layers");
    CHECK(!json_of_file(SCRATCH + "qwen2.json").get("layers"),
          "qwen2: names layers where all have attention");
    const std::string on = std::string(TRAIN_SINK) + " probe " + model +
                           " --probe-input random --probe-len 8 --probe-seqs 2 --dump " + SCRATCH +
                           "dump --dump-heads ";
    CHECK(check_run(on + "all").code == 0 && file_exists(SCRATCH + "dump/1_3_map.npy") &&
              !file_exists(SCRATCH + "dump/0_0_map.npy"),
          "jamba: maps of all heads");
    const Json texts = json_of_file(SCRATCH + "dump/tokens.json");
    CHECK(texts.items.size() == 8 && atoi(texts.items[7].string.c_str()) > 0,
          "jamba: the text of each token, which is its id");
    Ran r = check_run(on + "0:0");
    check_ended(r, EXIT_USER, "jamba: a map of layer 0", "a layer with attention, not Mamba");
    r = check_run(std::string(TRAIN_SINK) + " eval " + model +
                  " --probe-input random --probe-len 8 --probe-seqs 2 --edit h:0:1=0");
    check_ended(r, EXIT_USER, "jamba: eval", "attention in all layers");
    r = check_run(std::string(TRAIN_SINK) + " generate " + model +
                  " --tokens 9 --prompt '3 5' --temperature 0");
    CHECK(r.code == 0 && split(r.out, ' ').size() >= 9, "jamba: generate: exit %d, %s", r.code,
          r.said().c_str());
    refused("jamba", "\"mamba_proj_bias\": false", "\"mamba_proj_bias\": true", "mamba_proj_bias");
    refused("jamba", "\"mamba_conv_bias\": true", "\"mamba_conv_bias\": false", "mamba_conv_bias");
    refused("jamba", "{", "{\"mamba_inner_layernorms\": false,", "mamba_inner_layernorms");
    refused("jamba", "{", "{\"sliding_window\": 9,", "sliding_window");
    refused("jamba", "\"attn_layer_period\": 3", "\"attn_layer_period\": 0", "attn_layer_period");
    refused("jamba", "\"attn_layer_offset\": 1", "\"attn_layer_offset\": 3",
            "attention in some layer");
    refused("jamba", "\"attn_layer_offset\": 1", "\"attn_layer_offset\": 2", "is missing");
    refused("jamba", "\"mamba_d_state\": 6", "\"mamba_d_state\": 7", "wanted");
    refused("jamba", "\"mamba_d_conv\": 3", "\"mamba_d_conv\": 0", "1 or more");
}

// Qwen3-Next: the same of its delta rule, whose every head is checked against transformers above
static void delta_check() {
    const std::string model = FAMILIES + "qwen3_next", command = std::string(TRAIN_SINK);
    const Json json = json_of_file(SCRATCH + "qwen3_next.json");
    const Json* layers = json.get("layers");
    CHECK(layers && numbers(*layers) == std::vector<double>{ 1 },
          "qwen3_next: which layers have attention");
    Ran r = check_run(command + " generate " + model +
                      " --tokens 9 --prompt '3 5' --temperature 0");
    CHECK(r.code == 0 && split(r.out, ' ').size() >= 9, "qwen3_next: generate: exit %d, %s",
          r.code, r.said().c_str());
    r = check_run(command + " eval " + model +
                  " --probe-input random --probe-len 8 --probe-seqs 2 --edit h:0:1=0");
    check_ended(r, EXIT_USER, "qwen3_next: eval",
                "eval of a model with delta rule in place of attention");
    r = check_run(command + " export " + model + " --out " + SCRATCH + "no-export");
    check_ended(r, EXIT_USER, "qwen3_next: export", "with delta rule layers");
    auto refuses = [](const std::string& from, const std::string& to, const std::string& says) {
        refused("qwen3_next", from, to, says);
    };
    refuses("\"linear_num_value_heads\": 4", "\"linear_num_value_heads\": 3", "that divide those");
    refuses("\"linear_num_value_heads\": 4", "\"linear_num_value_heads\": 0", "1 or more");
    refuses("\"linear_key_head_dim\": 6", "\"linear_key_head_dim\": 7", "wanted");
    refuses("\"linear_conv_kernel_dim\": 3", "\"linear_conv_kernel_dim\": 0", "1 or more");
    refuses("\"linear_value_head_dim\": 4", "\"linear_value_head_dim\": 60000", "wanted");
    refuses("\"linear_attention\"", "\"sliding_attention\"", "full_attention and linear");
    refuses("\"linear_attention\"", "\"full_attention\"", "is missing");
    refuses("\"attention_bias\": false", "\"attention_bias\": true", "attention_bias is true");
    refuses("\"hidden_act\": \"silu\"", "\"hidden_act\": \"gelu\"", "hidden_act is \"gelu\"");
    refuses("\"norm_topk_prob\": true", "\"norm_topk_prob\": 3", "true or false");
}

// an edit of the stream after a mixture of experts is not passed over
static void mixture_eval_check() {
    const std::string eval = std::string(TRAIN_SINK) + " eval " + FAMILIES +
                             "mixtral --probe-input random --probe-len 8 --probe-seqs 2 --json " +
                             SCRATCH + "eval.json ";
    const Ran r = check_run(eval + "--edit h:0:1=0");
    if (!check_ended(r, 0, "mixtral: eval")) { return; }
    const double change =
        json_of_file(SCRATCH + "eval.json").get("runs")->items[1].get("change")->number;
    CHECK(fabs(change) > 1e-4, "mixtral: the edit changes the loss by %g", change);
    const Ran bits = check_run(eval + "--quant w8a8");
    check_ended(bits, EXIT_USER, "mixtral: --quant", "its experts would not be rounded");
}

// keys that released files have and that change nothing, and the same with another value
static void released_check() {
    const char* const ROWS[][3] = {
        // the family, what GPT-2 medium and XL, DistilGPT-2, LLaMA-1, Phi-4 and others say
        { "gpt2", "\"n_special\": 0, \"predict_special_tokens\": true,", "\"n_special\": 1," },
        { "gpt2", "\"output_past\": true, \"_num_labels\": 1, \"max_length\": 50,", "" },
        { "llama_llama3", "\"max_sequence_length\": 2048, \"unsloth_fixed\": true,", "" },
        { "phi3", "\"attention_bias\": false,", "\"attention_bias\": true," },
        { "falcon_7b", "\"apply_residual_connection_post_layernorm\": false,",
          "\"apply_residual_connection_post_layernorm\": true," },
        { "falcon_7b", "\"ff_factor\": 4,", "\"ff_factor\": 3," },
        { "gpt_neox", "\"attention_probs_dropout_prob\": 0, \"hidden_dropout_prob\": 0,", "" },
    };
    for (auto& row : ROWS) {
        family_check(row[0], changed(row[0], "{", std::string("{") + row[1]));
        const std::string other = row[2], key = other.substr(0, other.find(':'));
        if (key.size()) { refused(row[0], "{", "{" + other, key.substr(1, key.size() - 2)); }
    }
    // another program's name for what is read here
    const char* const NAMES[][3] = { { "nemotron_bias", "\"rope_percent\": ", "0.5" },
                                     { "nemotron_bias", "\"rope_percentage\": ", "0.5" },
                                     { "stablelm", "\"rope_pct\": ", "0.25" },
                                     { "stablelm", "\"norm_eps\": ", "1e-05" },
                                     { "olmo2", "\"layer_norm_epsilon\": ", "1e-5" },
                                     { "cohere", "\"position_embedding_type\": ",
                                       "\"rope_gptj\"" } };
    for (auto& [name, key, agrees] : NAMES) {
        family_check(name, changed(name, "{", std::string("{") + key + agrees + ","));
        const std::string other = std::string(key) + "0.75";
        refused(name, "{", "{" + other + ",", other.substr(1, strlen(key) - 4) + " is");
    }
    // Gemma 2's are read, up to the build that they want
    const std::string gemma2 = "\"gemma2\", \"attn_logit_softcapping\": 50.0, "
                               "\"sliding_window\": 4096, \"sliding_window_size\": ";
    refused("gemma", "\"gemma\"", gemma2 + "4096", "ATTN=softcap");
    refused("gemma", "\"gemma\"", gemma2 + "512", "sliding_window_size");
}

// a model without a head, whose config does not say that it has none
static void headless_check() {
    const std::string dir = changed("qwen2", "  \"tie_word_embeddings\": false,\n", ""),
                      file = dir + "/model.safetensors", head = "lm_head.weight";
    file_write(file, replaced(file_read(file), head, "xxxx.attn.bias"));  // no parameter
    const Ran r = probe(dir, SCRATCH + "refused.json");
    check_ended(r, EXIT_USER, "qwen2 without a head",
                "tie_word_embeddings is missing, and there is no lm_head");
}

// Phi-3's longrope, by its three names; and beyond the context that was trained it is refused
static void longrope_check() {
    const std::string name = "phi3_longrope", type = "\"rope_type\": \"longrope\"",
                      context = "\"original_max_position_embeddings\": 64";
    for (const char* old : { "\"type\": \"su\"", "\"type\": \"yarn\"" }) {
        family_check(name, changed(name, type, old));
    }
    refused(name, context, "\"original_max_position_embeddings\": 16",
            "33 tokens: this model has other positions beyond 16");
    refused("ministral3", "\"original_max_position_embeddings\": 40",
            "\"original_max_position_embeddings\": 16", "other positions beyond 16");
    // inside of the object alone, the context is not read by transformers: its class's is
    const std::string out = SCRATCH + "inside.json";
    const Ran r = probe(changed(name, "\n  " + context + ",", ""), out);
    check_ended(r, 0, "longrope's context inside");
    const Json answers = json_of_file("test/open/families.json");
    check_near(json_of_file(out)["probe_loss"].number, answers[name.c_str()]["inside"].number, 2e-5,
               "longrope's context inside");
    refused(name, "\"short_factor\": [\n      1.0,", "\"short_factor\": [\n      -1.0,",
            "a list of numbers, 1e-6 to 1e6");
    refused(name, "\"short_factor\": [\n      1.0,", "\"short_factor\": [", "wanted 2 numbers");
    refused(name, "\"short_factor\": [\n      1.0,", "\"short_factor\": [\"x\",", "a list of");
}

// A step of training of a model whose positions depend on the length, within the context that was
// trained: transformers' loss after it; of dynamic that of a model without. Beyond it is refused.
static void longrope_train_check() {
    const std::string data = SCRATCH + "step", run = SCRATCH + "step-run";
    std::string shard = file_read(FAMILIES + "tokens/train.bin").substr(0, 1024 + 2 * 17);
    const int tokens = 17;
    memcpy(&shard[8], &tokens, sizeof tokens);
    check_run("rm -rf " + run + "* && mkdir -p " + data);
    file_write(data + "/train.bin", shard);
    file_write(data + "/val.bin", shard);
    auto step = [&](const std::string& model, int T) {
        return check_run(std::string(TRAIN_SINK) + " train --init " + model + " -d " + data +
                         strf(" --seq %d -b 1 -n 1 --lr 0.5 --optimizer sgd --beta1 0 --warmup 0 "
                              "--weight-decay 0 --grad-clip 0 --sample 0 --probe-seqs 1 "
                              "--val-seqs 1 -o ", T) + run);
    };
    auto loss = [&](const std::string& model) {
        const Ran r = step(model, 16);
        check_ended(r, 0, strf("--init %s", model.c_str()));
        const std::string log = r.code ? "" : file_read(run + "/log.jsonl");
        check_run("rm -rf " + run);
        const size_t at = log.rfind("\"val_loss\":");
        return at == log.npos ? NAN : atof(log.c_str() + at + 11);
    };
    const std::string dynamic = changed("qwen2", "\"rope_type\": \"default\"",
                                        "\"rope_type\": \"dynamic\", \"factor\": 3.0");
    check_near(loss(dynamic), loss(FAMILIES + "qwen2"), 0, "a step of dynamic");
    const Json answers = json_of_file("test/open/families.json");
    check_near(loss(FAMILIES + "phi3_longrope"), answers["phi3_longrope"]["stepped"].number, 2e-5,
               "a step of longrope");
    for (auto& [name, most] : { std::pair<const char*, const char*>("phi3_longrope", "64"),
                                std::pair<const char*, const char*>("ministral3", "40") }) {
        const std::string context = "\"original_max_position_embeddings\": ";
        const Ran r = step(changed(name, context + most, context + "7"), 16);
        check_ended(r, EXIT_USER, strf("%s beyond its context", name),
                    "at --seq 16: wanted --seq 7 or less");
    }
}

// A tokenizer of 29 letters, for a model that has none: a is 0.
static std::string letters_tokenizer() {
    std::string vocab;
    for (int id = 0; id < 29; id++) {
        const std::string letter(1, (char)(id < 26 ? 'a' + id : 'A' + id - 26));
        list_add(&vocab, "\"" + letter + "\": " + std::to_string(id));
    }
    return "{\"version\": \"1.0\", \"added_tokens\": [], \"normalizer\": null, \"pre_tokenizer\": "
           "{\"type\": \"ByteLevel\", \"add_prefix_space\": false, \"use_regex\": true}, "
           "\"post_processor\": null, \"decoder\": {\"type\": \"ByteLevel\"}, \"model\": {\"type\": "
           "\"BPE\", \"vocab\": {" + vocab + "}, \"merges\": []}}";
}

// The same in score: items of every length up to the limit, then with one that reads a token more.
static void beyond_score_check(const std::string& name, const std::string& dir, int most) {
    file_write(dir + "/tokenizer.json", letters_tokenizer());
    file_write(dir + "/tokenizer_config.json", "{\"eos_token\": \"C\"}");
    std::string items;
    const std::string text = "dbheacafgbdeachbdfeagcbdhafeg";
    for (int read = 4; read <= most + 1; read++) {       // the last letter is not read
        items += "{\"context\": \"" + text.substr(0, 3) + "\", \"continuation\": \"" +
                 text.substr(3, read - 2) + "\", \"delimiter\": \"\"}\n";
        file_write(SCRATCH + "task.jsonl", items);
        if (read < most) { continue; }
        const Ran r = check_run(std::string(TRAIN_SINK) + " score " + dir + " --task " + SCRATCH +
                                "task.jsonl");
        // of dynamic the limit is the context itself, to which a longer item is cut
        const bool cut = r.code == 0 && r.says("1 cut at the front") && name == "qwen2";
        const bool refused = cut || (r.code == EXIT_USER && r.says("other positions beyond 20"));
        CHECK(read <= most ? r.code == 0 : refused, "%s: score reads %d tokens of %d: exit %d, %s",
              name.c_str(), read, most, r.code, r.said().c_str());
    }
}

// One token beyond the context that was trained is refused after every shorter length: the tables of
// positions may be longer by then. context: the key that says it, with its value.
static void beyond_check(const std::string& name, const std::string& context,
                         const std::string& more = "") {
    const int most = 20;
    const std::string dir = changed(name, context, context.substr(0, context.rfind(' ')) + " 20");
    const std::string was = "\"rope_type\": \"default\"";
    const std::string config = file_read(dir + "/config.json");
    if (!more.empty()) { file_write(dir + "/config.json", replaced(config, was, more)); }
    const std::string generate = std::string(TRAIN_SINK) + " generate " + dir +
                                 " --temperature 0 --prompt '5 17 3 8' --tokens ";
    const char* says = "other positions beyond 20";
    for (int read = 5; read <= 2 * most; read++) {       // the last token that is written is not read
        const Ran r = check_run(generate + std::to_string(read - 4 + 1));
        const bool refused = r.code == EXIT_USER && r.says(says);
        const size_t words = split(r.out, ' ').size();
        CHECK((int)words == std::min(read, most) + 1, "%s: generate writes %zu tokens", name.c_str(),
              words);
        CHECK(read <= most ? r.code == 0 : refused, "%s: generate reads %d tokens of %d: exit %d, %s",
              name.c_str(), read, most, r.code, r.err.c_str());
    }
    for (const char* command : { "probe", "eval" }) {
        for (int T : { 3, 19, 20, 21, 40 }) {
            const std::string lengths = command[0] == 'p' ? "3,11,19," : "";
            const Ran r = check_run(std::string(TRAIN_SINK) + " " + command + " " + dir +
                                    " --probe-input random --probe-seqs 2 --probe-len " + lengths +
                                    std::to_string(T));
            const bool refused = r.code == EXIT_USER && r.says(says);
            CHECK(T <= most ? r.code == 0 : refused, "%s: %s of %d tokens: exit %d, %s",
                  name.c_str(), command, T, r.code, r.err.c_str());
        }
    }
    beyond_score_check(name, dir, most);
}

// Changes the header of the weights of a copy of the family, which says what its tensors are called.
static void header_changed(const std::string& dir, std::function<void(std::string*)> change) {
    const std::string file = dir + "/model.safetensors";
    const std::string bytes = file_read(file);
    uint64_t size;
    memcpy(&size, bytes.data(), 8);
    std::string header = bytes.substr(8, size);
    change(&header);
    const uint64_t now = header.size();
    file_write(file, std::string((const char*)&now, 8) + header + bytes.substr(8 + size));
}

// A model that was saved without its head has tensors without the name of the whole before theirs.
static void headless_names_check() {
    for (auto& [name, prefix] : { std::pair<const char*, const char*>("qwen3", "model."),
                                  std::pair<const char*, const char*>("gpt_neox", "gpt_neox.") }) {
        const std::string dir = changed(name, "{", "{"), whole = std::string("\"") + prefix;
        header_changed(dir, [&](std::string* header) {
            for (size_t at; (at = header->find(whole)) != std::string::npos;) {
                header->replace(at, whole.size(), "\"");
            }
        });
        family_check(name, dir);
    }
    // what predicts further tokens is left out, but of no other family
    for (const char* name : { "qwen3_next", "qwen3" }) {
        const std::string dir = changed(name, "{", "{");
        header_changed(dir, [](std::string* header) {
            header->insert(1, "\"mtp.fc.weight\":{\"dtype\":\"F32\",\"shape\":[0],"
                              "\"data_offsets\":[0,0]},");
        });
        if (!strcmp(name, "qwen3_next")) { family_check(name, dir); continue; }
        const Ran r = probe(dir, SCRATCH + "refused.json");
        check_ended(r, EXIT_USER, name, "holds the tensor 'mtp.fc.weight'");
    }
}

// What transformers does not read decides nothing here.
static void unread_keys_check() {
    const std::string act = "\"hidden_activation\": \"gelu_pytorch_tanh\"";
    refused("gemma3", act, "\"hidden_act\": \"silu\"", "hidden_act is \"silu\"");
    family_check("gemma3", changed("gemma3", act, "\"hidden_act\": \"gelu\""));
    refused("gpt_neox", "{", "{\"rope_theta\": 300.0,", "rotary_emb_base is missing");
    refused("llama_llama3", "\"rope_parameters\": {", "\"rope_parameters\": {\"full_attention\": "
            "{\"rope_type\": \"default\"},", "the keys of one rotation");
    refused("phi3", "\"rope_type\": \"default\"", "\"rope_type\": \"linear\", \"factor\": 2.0",
            "wanted longrope");
    refused("mistral", "{", "{\"attention_bias\": true,", "attention_bias is true");
    family_check("mistral", changed("mistral", "{", "{\"attention_bias\": false,"));
    family_check("stablelm", changed("stablelm", "{", "{\"rotary_scaling_factor\": 1.0,"));
    refused("stablelm", "{", "{\"rotary_scaling_factor\": 2.0,", "rotary_scaling_factor is 2.0");
    refused("qwen3", "\"qwen3\"", "\"gemma9\", \"text_config\": {}", "a model of more than text");
}

// A model of text and images: an error with the line that makes its language model of it.
static void text_part_check() {
    for (const char* type : { "gemma3", "mistral3", "llava", "smolvlm", "qwen3_vl" }) {
        refused("qwen3", "\"qwen3\"", strf("\"%s\", \"text_config\": {}", type),
                "it is a model of more than text");
    }
    refused("qwen3", "{", "{\"vision_config\": {},", "t.save_pretrained(sys.argv[2])");
    const std::string plain = "\"rope_type\": \"default\"",      // of Qwen-VL: one in a text
                      axes = plain + ", \"mrope_section\": [1, 1, 2]";
    family_check("qwen2", changed("qwen2", plain, axes));
    refused("mistral", plain, axes, "the rope key 'mrope_section'");
    // keys of released files that transformers does not read, and one that it means
    const std::string released = "\"attn_output_gate\": true, \"mamba_ssm_dtype\": \"float32\", "
                                 "\"mtp_num_hidden_layers\": 1, \"mlp_only_layers\": [],";
    family_check("qwen3_5", changed("qwen3_5", "{", "{" + released));
    refused("qwen3_5", "{", "{\"attn_output_gate\": false,", "attn_output_gate is false");
}

// a kind of scaling needs its numbers; the kind is named before the keys that only it has
static void scaling_check() {
    auto refuses = [](const std::string& rope, const std::string& says) {
        refused("qwen2", "\"rope_type\": \"default\"", rope, says);
    };
    family_check("llama_yarn", changed("llama_yarn", "\"rope_type\": \"yarn\"",
                                       "\"rope_type\": \"yarn\", \"attention_factor\": null"));
    refuses("\"rope_type\": \"linear\"", "there is no factor");
    // yarn's is worked out from the two contexts, and mscale alone changes nothing
    const std::string old = "\"factor\": 4.0,";
    family_check("llama_yarn", changed("llama_yarn", old, "\"factor\": null,"));
    family_check("llama_yarn", changed("llama_yarn", old, old + " \"mscale\": 2.0,"));
    family_check("llama_yarn", changed("llama_yarn", old, old + " \"attn_factor\": 0.9,"));
    refused("llama_yarn", "\"rope_type\"", "\"yarn_x\": 1, \"rope_type\"", "yarn_x");
    refuses("\"rope_type\": \"llama3\", \"factor\": 8.0, \"low_freq_factor\": 1.0",
            "there is no high_freq_factor");
    refuses("\"rope_type\": \"yarn\", \"factor\": 4.0, \"attention_factor\": 0.0",
            "attention_factor is 0.0, wanted more than 0");
    refuses("\"rope_type\": \"yarn\", \"factor\": 4.0, \"beta_fast\": 0", "beta_fast is 0, wanted");
    refuses("\"long_factor\": [1.0], \"type\": \"longrope\"", "wanted 2 numbers in its short");
    refuses("\"type\": \"dynamic\"", "there is no factor");
    refuses("\"type\": \"su\", \"factor\": 2.0", "rope_type is 'su'");
    longrope_check();
    longrope_train_check();
    beyond_check("phi3_longrope", "\"original_max_position_embeddings\": 64");
    beyond_check("ministral3", "\"original_max_position_embeddings\": 40");
    beyond_check("qwen2", "\"max_position_embeddings\": 64",
                 "\"rope_type\": \"dynamic\", \"factor\": 2.0");
    refused("stablelm", "\"partial_rotary_factor\": 0.25", "\"partial_rotary_factor\": 0.4",
            "3 of 8 channels");
}

// what a file that leaves a key out means, and two keys that contradict each other
static void defaults_check() {
    // a window that transformers reads in one key, and that another seems to deny
    refused("smollm3", "\"layer_types\": [\n    \"full", "\"layer_types\": [\n    \"sliding",
            "layer_types");
    refused("qwen3_moe", "\"use_sliding_window\": false", "\"use_sliding_window\": true",
            "use_sliding_window is true");
    refused("gemma3", "\"rope_theta\": 10000.0", "\"rope_theta\": 0.0", "above 0");
    // Gemma 2 has its caps unless it says null: softcap is another build, so this is what it asks
    const std::string gemma2 = "\"gemma2\"";
    refused("gemma", "\"gemma\"", gemma2, "a build with ATTN=softcap");
    refused("gemma", "\"gemma\"", gemma2 + ", \"attn_logit_softcapping\": null", "is missing");
    refused("gemma", "\"gemma\"", gemma2 + ", \"attn_logit_softcapping\": 0.0",
            "attn_logit_softcapping");
    refused("gemma", "\"gemma\"", gemma2 + ", \"final_logit_softcapping\": 0", "more than 0, or");
    refused("gpt2", "{", "{\"num_attention_heads\": 2,", "4, wanted 2, which num_attention_heads");
    refused("gpt2", "{", "{\"rms_norm_eps\": 0.01,", "which rms_norm_eps says");
    family_check("gpt2", changed("gpt2", "{", "{\"num_attention_heads\": 4,"));
    refused("opt", "{", "{\"rms_norm_eps\": 0.01,", "rms_norm_eps");
    refused("opt", "\"tie_word_embeddings\": true", "\"tie_word_embeddings\": false",
            "there is no lm_head");
    refused("gpt_neo", "\"window_size\": 9", "\"window_size\": 0", "a whole number, 1 or more");
    refused("smollm3", "\"no_rope_layers\": [\n    1,\n    0\n  ]", "\"no_rope_layers\": [1]",
            "wanted 2 layers");
}

// Tensors beside a complete model: what they are, and the line that leaves them out. Those of a layer
// are of another model.
static void beside_check() {
    const std::string was = "\"lm_head.weight\"";
    for (std::string name : { "v_head.summary.weight", "score.weight", "ema.model.norm.weight",
                              "classifier.bias", "value_head.0.weight", "qa_outputs.weight",
                              "model.layers.1.self_attn.q_proj.bias" }) {
        const std::string dir = changed("qwen3", "{", "{");
        header_changed(dir, [&](std::string* header) {
            const size_t at = header->find(was);
            const std::string row = "\"" + name + "\": {\"dtype\": \"F32\", \"shape\": [0], "
                                    "\"data_offsets\": [0, 0]}, ";
            header->insert(at, row);
        });
        const Ran r = probe(dir, SCRATCH + "refused.json");
        const bool ours = starts_with(name, "model.");
        CHECK(r.code == EXIT_USER && r.says(name) &&
              r.says(ours ? "of different models" : "something beside this model") &&
              (ours || (r.says("transformers leaves it out") && !r.says("get both again"))),
              "%s: exit %d, %s", name.c_str(), r.code, r.err.c_str());
    }
}

// A family that training turns into another model says what will learn that it has not.
static void init_check() {
    const std::string both = "post_attention_layernorm (shared there)";
    const std::string ones = "input_layernorm (all ones there)";
    for (auto& [name, says] : std::vector<std::pair<std::string, std::string>>{
             { "cohere", both }, { "gptj", both }, { "phi", both }, { "falcon_7b", both },
             { "olmo", ones }, { "nanochat", ones }, { "qwen2", "" }, { "falcon_40b", "" },
             { "stablelm", "" }, { "glm4", "" } }) {
        const Ran r = check_run(std::string(TRAIN_SINK) + " train --init " + FAMILIES + name + " -d " +
                                FAMILIES + "tokens -n 1 --seq 16 -b 2 --val-seqs 2 --probe-seqs 2 "
                                "--eval-every 0 -o " + SCRATCH + "init");
        const bool said = r.says("has no such weights of its own");
        CHECK(r.code == 0 && said == !says.empty() && r.says(says), "%s: exit %d, %s",
              name.c_str(), r.code, r.said().c_str());
        check_run("rm -rf " + SCRATCH + "init");
    }
}

int main() {
    make_dirs(SCRATCH + "adapter");
    beside_check();
    init_check();
    refused("qwen3", "\"silu\"", "\"relu2\"", "hidden_act is \"relu2\", wanted one of: relu, gelu,");
    refused("nanochat", "\"relu2\"", "\"quick\"", "wanted one of: relu, relu2, gelu,");
    for (const char* file : { "/adapter_model.safetensors", "/adapter_model.bin" }) {
        file_write(SCRATCH + "adapter" + file, "x");
        const Ran r = probe(SCRATCH + "adapter" + file, SCRATCH + "refused.json");
        check_ended(r, EXIT_USER, file, "an adapter (LoRA)");
    }
    for (auto& name : dir_list(FAMILIES)) {
        if (name != "tokens") { family_check(name, FAMILIES + name); }
    }
    int files = 0;                               // the same weights as llama.cpp writes them
    for (auto& name : dir_list(FAMILIES)) {
        const std::string file = FAMILIES + name + "/model.gguf";
        if (file_exists(file)) { family_check(name, file); files++; }
    }
    CHECK(files >= 11, "%d GGUF files", files);
    for (auto& name : dir_list(FAMILIES)) {
        if (name != "tokens") {
            refused(name, "{", "{\"residual_multiplier_x\": 2.0,", "residual_multiplier_x");
        }
    }
    family_check("llama_llama3", changed("llama_llama3", "\"rope_parameters\"",
                                         "\"rope_scaling\": null, \"rope_parameters\""));
    // files without the list say every how many layers one does not turn
    family_check("smollm3", changed("smollm3", "\"no_rope_layers\": [\n    1,\n    0\n  ]",
                                    "\"no_rope_layers\": null"));
    released_check();
    refused("llama_llama3", "\"rope_type\": \"llama3\"", "\"rope_type\": \"proportional\"",
            "rope_type is 'proportional'");
    headless_check();
    text_part_check();
    headless_names_check();
    unread_keys_check();
    scaling_check();
    defaults_check();
    refused("llama_llama3", "\"silu\"", "\"quick_gelu\"", "hidden_act is \"quick_gelu\"");
    refused("llama_llama3", "\"hidden_size\": 16", "\"hidden_size\": 16.5",
            "wanted a whole number");
    refused("llama_llama3", "\"hidden_size\": 16", "\"hidden_size\": \"16\"", "wanted a number");
    // what would change the numbers, and was once taken in silence
    refused("qwen2", "\"tie_word_embeddings\": false", "\"tie_word_embeddings\": true",
            "is not the embedding");
    refused("gemma", "\"tie_word_embeddings\": true", "\"tie_word_embeddings\": false",
            "there is no lm_head");
    refused("gpt2", "{", "{\"num_key_value_heads\": 1,", "rows, wanted");
    refused("phi3", "\"num_key_value_heads\": 2", "\"num_key_value_heads\": 1", "rows, wanted");
    refused("opt", "\"max_position_embeddings\": 64", "\"max_position_embeddings\": 40",
            "rows, wanted");
    refused("gemma", "\"hidden_act\": \"gelu_pytorch_tanh\"", "\"hidden_act\": \"silu\"",
            "hidden_act is \"silu\"");
    refused("jamba", "\"hidden_act\": \"silu\"", "\"hidden_act\": \"gelu\"",
            "hidden_act is \"gelu\"");
    refused("llama_llama3", "{", "{\"activation_function\": \"gelu\",", "activation_function");
    refused("phi", "\"hidden_act\"", "\"activation\"", "the key 'activation'");
    refused("llama_llama3", "\"rope_type\"", "\"partial_rotary_factor\": 0.5, \"rope_type\"",
            "the rope key 'partial_rotary_factor'");
    refused("llama_llama3", "{", "{\"rope_scaling\": {\"rope_theta\": 10.0},",
            "null beside rope_parameters");
    refused("mistral", "\"sliding_window\": 9", "\"sliding_window\": 3.5", "a whole number, 0");
    refused("gemma3", "\"sliding_window_pattern\": 2", "\"sliding_window_pattern\": 0",
            "a whole number, 1 or more");
    refused("gemma3", "\"full_attention\": {", "\"no_attention\": {", "rope_parameters");
    refused("gpt2", "\"scale_attn_weights\": true", "\"scale_attn_weights\": false",
            "scale_attn_weights");
    refused("gpt2", "\"gelu_new\"", "\"gelu_fastest\"", "activation_function");
    refused("granite", "\"attention_multiplier\": 0.3", "\"attention_multiplier\": 0",
            "attention_multiplier is 0, wanted more than 0");
    refused("granitemoe", "\"num_local_experts\": 5", "\"num_local_experts\": 6",
            "does not have the shape");
    refused("granitemoe", "\"intermediate_size\": 12", "\"intermediate_size\": 13",
            "does not have the shape");
    refused("granite", "\"logits_scaling\": 6.0", "\"logits_scaling\": 0", "logits_scaling");
    refused("granite", "\"residual_multiplier\": 0.22", "\"residual_multiplier\": -1",
            "residual_multiplier");
    refused("falcon_7b", "\"alibi\": false", "\"alibi\": true", "alibi is true");
    refused("falcon_7b", "\"parallel_attn\": true", "\"parallel_attn\": false", "is missing");
    refused("qwen3", "\"qwen3\"", "\"qwen9\"", "model_type is \"qwen9\"");
    refused("gpt_neox", "\"num_hidden_layers\": 2", "\"num_hidden_layers\": 1", "holds the tensor");
    refused("qwen3_moe", "\"qwen3_moe\"", "\"qwen4_moe\"", "model_type is \"qwen4_moe\"");
    refused("qwen2_moe", "\"decoder_sparse_step\": 1", "\"decoder_sparse_step\": 2",
            "decoder_sparse_step");
    refused("qwen2_moe", "\"shared_expert_intermediate_size\": 8",
            "\"shared_expert_intermediate_size\": 9", "wanted");
    // in a GGUF file too: attention's norm is not the FFN's where these follow each other
    for (const char* name : { "gpt2", "phi3", "gpt_neox" }) {
        const std::string file = SCRATCH + name + ".gguf", norm = "blk.0.ffn_norm.weight";
        const std::string bytes = file_read(FAMILIES + name + "/model.gguf");
        file_write(file, replaced(bytes, norm, "blk.9.ffn_norm.weight"));
        const Ran r = probe(file, SCRATCH + "refused.json");
        check_ended(r, EXIT_USER, strf("%s without %s", name, norm.c_str()), "is missing");
    }
    jamba_check();
    delta_check();
    mixture_eval_check();
    return check_done();
}
