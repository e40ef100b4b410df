/*
test_adapter.cpp -- --adapter: a LoRA adapter gives what peft gives (test/open/adapter, made by
dev/peers/check_adapter.py --save), each command applies it, and what is more than W + s B A is
rejected by name.
*/
#include "../check.h"
#include "../../files/json.h"

static const std::string SCRATCH = "build/test/open/adapter/", BASE = "test/open/families/llama_yarn",
                         ADAPTER = "test/open/adapter";

static Ran program(const std::string& arguments) {
    return check_run("OMP_NUM_THREADS=1 build/cpu/train_sink " + arguments);
}

static Ran probed(const std::string& model, const std::string& more) {
    return program("probe " + model + " -d test/open/families/tokens --probe-len 33 --probe-seqs 4 "
                   "--per-sequence --json " + SCRATCH + "p.json " + more);
}

// loss and alphas of a probe, as text; "" if it failed
static std::string measured(const std::string& model, const std::string& more = "") {
    const Ran r = probed(model, more);
    if (!CHECK(r.code == 0, "probe %s %s: %s", model.c_str(), more.c_str(), r.err.c_str())) {
        return "";
    }
    const std::string text = file_read(SCRATCH + "p.json");
    return text.substr(std::min(text.size(), text.find("\"probe_loss\"")));
}

static void numbers(const Json& j, std::vector<double>* to) {
    if (j.type == Json::NUMBER) { to->push_back(j.number); }
    for (auto& item : j.items) { numbers(item, to); }
}

static void answer_check() {
    measured(BASE, "--adapter " + ADAPTER);
    const Json ours = json_file(SCRATCH + "p.json"), theirs = json_file(ADAPTER + "/answer.json");
    check_near(ours.get("probe_loss")->number, theirs.get("loss")->number, 1e-5, "loss");
    std::vector<double> a, b;
    numbers(*ours.get("alpha"), &a);
    numbers(*theirs.get("alpha"), &b);
    CHECK(a.size() == b.size() && a.size() > 100, "%zu alphas, wanted %zu", a.size(), b.size());
    double far = 0;
    for (size_t i = 0; i < std::min(a.size(), b.size()); i++) {
        far = std::max(far, fabs(a[i] - b[i]));
    }
    check_near(far, 0, 1e-5, "alpha");
    CHECK(measured(BASE) == measured(BASE, "--adapter none") &&
              measured(BASE) != measured(BASE, "--adapter " + ADAPTER), "--adapter none");
}

// what is written with the adapter is the model with it, and every command says so
static void commands_check() {
    const std::string with = measured(BASE, "--adapter " + ADAPTER), use = " --adapter " + ADAPTER;
    const std::string words = "adapter test/open/adapter: LoRA, r 2, alpha 5, added to 14 matrices";
    Ran r = program("export " + BASE + use + " --out " + SCRATCH + "merged");
    CHECK(r.code == 0 && r.says(words.c_str()), "export: %s", r.err.c_str());
    CHECK(measured(SCRATCH + "merged") == with, "exported, it is another model");
    r = program("export " + BASE + use + " --to gguf --out " + SCRATCH + "merged.gguf");
    CHECK(r.code == 0 && measured(SCRATCH + "merged.gguf") == with, "as GGUF: %s", r.err.c_str());
    r = program("export " + BASE + " --to gguf --out " + SCRATCH + "base.gguf");
    CHECK(measured(SCRATCH + "base.gguf", use) == with, "a GGUF file with an adapter: %s",
          r.err.c_str());
    r = program("train --init " + BASE + use + " -d test/open/families/tokens --steps 1 --lr 0 --seq 16 "
                "-b 4 --eval-every 0 --sample 0 --val-seqs 4 --probe-seqs 4 --probe-len 16 "
                "--weight-decay 0 --out " + SCRATCH + "run");
    CHECK(r.code == 0 && r.says(words.c_str()), "--init: %s", r.err.c_str());
    CHECK(measured(SCRATCH + "run/step_1") == with, "--init begins with another model");
    const std::string prompt = "generate " + BASE + " --temperature 0 --tokens 8 --prompt '3 4 5'";
    CHECK(program(prompt + use).out == program("generate " + SCRATCH + "merged --temperature 0 "
                                               "--tokens 8 --prompt '3 4 5'").out,
          "generate goes on otherwise");
    r = program("eval " + BASE + use + " -d test/open/families/tokens --probe-len 16 --probe-seqs 4");
    CHECK(r.code == 0 && r.says(words.c_str()), "eval: %s", r.err.c_str());
}

// a copy of the adapter with one text in its config in another's place
static std::string changed(const std::string& from, const std::string& to) {
    const std::string at = SCRATCH + "changed";
    make_dirs(at);
    std::string config = file_read(ADAPTER + "/adapter_config.json");
    const size_t place = config.find(from);
    CHECK(place != std::string::npos, "no %s in the adapter's config", from.c_str());
    config.replace(place == std::string::npos ? 0 : place, from.size(), to);
    file_write(at + "/adapter_config.json", config);
    file_write(at + "/adapter_model.safetensors",
               file_read(ADAPTER + "/adapter_model.safetensors"));
    return at;
}

static void refused(const std::string& model, const std::string& more, const std::string& says) {
    const Ran r = probed(model, more);
    CHECK(r.code == EXIT_USER && r.says(says.c_str()) && r.says("HINT"),
          "probe %s %s: exit %d, wanted '%s', got %s", model.c_str(), more.c_str(), r.code,
          says.c_str(), r.err.c_str());
}

static void refusals_check() {
    const struct { const char *from, *to, *says; } KEYS[] = {
        { "\"use_dora\": false", "\"use_dora\": true", "use_dora is true: DoRA" },
        { "\"modules_to_save\": null", "\"modules_to_save\": [\"lm_head\"]", "modules_to_save is" },
        { "\"bias\": \"none\"", "\"bias\": \"lora_only\"", "bias is \"lora_only\"" },
        { "\"LORA\"", "\"IA3\"", "peft_type is \"IA3\"" },
        { "\"CAUSAL_LM\"", "\"SEQ_CLS\"", "task_type is \"SEQ_CLS\"" },
        { "\"init_lora_weights\": true", "\"init_lora_weights\": \"pissa\"", "init_lora_weights" },
        { "\"use_dora\": false", "\"use_new\": true", "the key 'use_new' (true) is not known" },
        { "\"r\": 2", "\"r\": 4", "r is 4 for model.layers.0.mlp.down_proj" },
        { "\"r\": 2", "\"r\": \"two\"", "r is \"two\", wanted a number above 0" },
        { "\"lora_alpha\": 5", "\"lora_alpha\": -5", "lora_alpha is -5, wanted" },
        { "\"k_proj\": 3", "\"k_(proj\": 3", "'k_(proj' is not a regular expression" },
        { "\"q_proj\"", "\"z_proj\"", "target_modules names \"z_proj\"" },
    };
    for (auto& k : KEYS) { refused(BASE, "--adapter " + changed(k.from, k.to), k.says); }
    refused("test/open/families/gpt_neox", "--adapter " + ADAPTER, "which the model does not have");
    refused("test/open/families/qwen3", "--adapter " + ADAPTER, "changes a matrix (");
    refused(BASE, "--adapter /nowhere", "/nowhere: got no adapter_config.json");
    // beside its base
    const std::string both = SCRATCH + "both";
    make_dirs(both);
    for (auto& from : { BASE, ADAPTER }) {
        for (auto& name : dir_list(from)) {
            file_write(both + "/" + name, file_read(from + "/" + name));
        }
    }
    refused(both, "", "holds an adapter (LoRA)");
    CHECK(measured(both, "--adapter none") == measured(BASE) &&
              measured(both, "--adapter " + both) == measured(BASE, "--adapter " + ADAPTER),
          "an adapter beside its base");
    refused(ADAPTER, "", "give the model that it is of, and --adapter test/open/adapter");
    // one of two matrices, a tensor of another kind
    const std::string at = changed("\"r\": 2", "\"r\": 2");
    std::string file = file_read(at + "/adapter_model.safetensors");
    const size_t name = file.find("q_proj.lora_A");
    file.replace(name, 13, "q_proj.lora_C");
    file_write(at + "/adapter_model.safetensors", file);
    refused(BASE, "--adapter " + at, "only one of A and B");
    const Ran r = program("train --adapter " + ADAPTER + " --steps 1 --out " + SCRATCH + "no");
    CHECK(r.code == EXIT_USER && r.says("--adapter") && r.says("--init"), "without --init: %s",
          r.err.c_str());
}

int main() {
    remove_tree(SCRATCH);
    make_dirs(SCRATCH);
    answer_check();
    commands_check();
    refusals_check();
    return check_done();
}
