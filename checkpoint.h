/*
checkpoint.h -- OUT/step_N/: the model as safetensors + config.json, optimizer.safetensors, state.json; in and out.
*/
#ifndef CHECKPOINT_H
#define CHECKPOINT_H
#include "safetensors.h"

static bool is_llama(const Config& c) { // may transformers.LlamaForCausalLM open it?
    return std::is_same<Attn, Attn_softmax>::value && std::is_same<Bias, Bias_none>::value && Pe::rotary && !Norm::post
        && std::is_same<Ffn, Ffn_swiglu>::value && !Combine::sum && c.attn_alpha == 1 && !c.window && !c.prefix;
}
static std::string config_json(const Config& c, const Tokenizer& tok, const std::string& tokenizer_path) {
    const bool llama = is_llama(c);
    std::string switches = switches_json(true);
    switches.pop_back();
    const char *architecture = llama ? "LlamaForCausalLM" : "TrainSink", *type = llama ? "llama" : "train_sink";
    std::string o = strf("{\n  \"architectures\": [\"%s\"],\n  \"model_type\": \"%s\",\n", architecture, type);
    o += strf("  \"vocab_size\": %d,\n  \"hidden_size\": %d,\n  \"intermediate_size\": %d,\n", c.V, c.C, c.F);
    o += strf("  \"num_hidden_layers\": %d,\n  \"num_attention_heads\": %d,\n", c.L, c.NH);
    o += strf("  \"num_key_value_heads\": %d,\n  \"head_dim\": %d,\n", c.KV, c.HS);
    o += strf("  \"max_position_embeddings\": %d,\n  \"rms_norm_eps\": %.9g,\n", c.T, c.eps);
    o += strf("  \"rope_theta\": %.9g,\n  \"hidden_act\": \"silu\",\n", c.rope_base);
    o += "  \"attention_bias\": false,\n  \"mlp_bias\": false,\n  \"tie_word_embeddings\": false,\n";
    if (tok.eos >= 0) { o += strf("  \"bos_token_id\": %d,\n  \"eos_token_id\": %d,\n", tok.bos, tok.eos); }
    o += "  \"torch_dtype\": \"float32\",\n  \"train_sink\": " + switches;
    o += strf(", \"attn_p\": %.9g, \"attn_alpha\": %.9g, ", c.attn_p, c.attn_alpha);
    o += strf("\"bias_share\": \"%s\", \"k_dims\": %d, ", c.bias_shared ? "heads" : "none", c.k_dims);
    o += "\"v_star\": " + json_str(c.v_star) + strf(", \"prefix\": %d, \"window\": %d, ", c.prefix, c.window);
    return o + "\"tokenizer\": " + json_str(tok.kind == TOKENIZER_BYTES ? "bytes" : tokenizer_path) + "}\n}\n";
}
// num_params numbers as floats in host memory: where they are, if they are that already, else in *copy
static const float* host_floats(const Model* m, const acc* array, std::vector<float>* copy) {
    if (ops::on_host && std::is_same<acc, float>::value) { return (const float*)array; }
    std::vector<acc> x(m->num_params);
    ops::to_host(x.data(), array, m->num_params * sizeof(acc));
    copy->assign(x.begin(), x.end());
    return copy->data();
}
// arrays of num_params numbers as named tensors, each name with its array's prefix
static void tensors_save(const Model* m, const std::string& path,
                         const std::vector<std::pair<std::string, const acc*>>& arrays) {
    std::vector<std::vector<float>> copies(arrays.size());
    std::vector<StOut> out;
    for (size_t i = 0; i < arrays.size(); i++) {
        const float* x = host_floats(m, arrays[i].second, &copies[i]);
        for (auto& t : m->tensors) { out.push_back({ arrays[i].first + t.name, t.shape, x + t.at }); }
    }
    safetensors_write(path, out, "{\"format\":\"pt\"}");
}
static void checkpoint_save(const Model* m, const std::string& out, long step, long batch, const std::string& data_state,
                            const Tokenizer& tok, const std::string& tokenizer_path) {
    const std::string dir = checkpoint_begin(out, step);
    tensors_save(m, dir + "/model.safetensors", { { "", m->master } });
    tensors_save(m, dir + "/optimizer.safetensors", { { "m.", m->m }, { "v.", m->v } });
    file_write(dir + "/config.json", config_json(m->c, tok, tokenizer_path));
    file_write(dir + "/state.json",
               strf("{\"step\": %ld, \"batch\": %ld, \"data\": %s}\n", step, batch, data_state.c_str()));
    checkpoint_commit(out, step);
}
// reads one array by name from the .safetensors files of a directory, checking every shape
static void tensors_load(const Model* m, const std::vector<Safetensors>& files, const std::string& prefix, acc* device,
                         bool tied = false) {
    std::vector<float> one;
    for (auto& t : m->tensors) {
        const StTensor* found = NULL; const Safetensors* in = NULL;
        for (const char* name : { t.name.c_str(), "model.embed_tokens.weight" }) { // a tied lm_head is the embedding
            for (auto& f : files) { if (!found && (found = f.find(prefix + name))) { in = &f; } }
            if (found || !tied || t.name != "lm_head.weight") { break; }
        }
        const std::string dir = files.empty() ? "checkpoint" : files[0].path;
        if (!found) {
            die(EXIT_USER, dir + ": has no tensor '" + prefix + t.name + "', which this build wants",
                "is it a checkpoint of another model? see its config.json");
        }
        if (found->shape != t.shape) {
            std::string got, wanted;
            for (long d : found->shape) { got += strf(" %ld", d); }
            for (long d : t.shape) { wanted += strf(" %ld", d); }
            die(EXIT_USER, in->path + ": tensor '" + t.name + "' has shape (" + got + " ), wanted (" + wanted + " )",
                "config.json and the weights disagree");
        }
        one.resize(t.count);
        safetensors_read(*in, *found, one.data());
        const std::vector<acc> x(one.begin(), one.end());
        ops::to_device(device + t.at, x.data(), t.count * sizeof(acc));
    }
}
static double json_number(const Json& j, const char* key, double otherwise) {
    const Json* v = j.get(key);
    return v && v->type == Json::NUMBER ? v->number : otherwise;
}
// does this build compute what the checkpoint's switches say? theirs: the "train_sink" object of config.json
static void checkpoint_check_switches(const std::string& dir, const Json& theirs) {
    Json wanted;
    bool same = true;
    std::string ours;
    for (auto& s : SWITCH_VALUES) {
        const std::string key = lower(s[0]);
        const Json* v = theirs.get(key.c_str());
        if (!v) { die(EXIT_USER, dir + "/config.json: train_sink has no '" + key + "'"); }
        wanted.fields.push_back({ key, *v });
        ours += std::string(" ") + s[0] + "=" + s[1];
        same = same && v->string == s[1];
    }
    if (same) { return; }
    const std::string make = make_line(&wanted);
    die(EXIT_USER, dir + ": this checkpoint is of another build, wanted " + make.substr(strlen("make train_sink "))
        + ", this binary has" + ours, make);
}
// config.json -> Config; dies if the checkpoint wants another build. *tokenizer: what it was trained with
static Config checkpoint_config(const std::string& dir, std::string* tokenizer) {
    if (!is_dir(dir)) {
        die(EXIT_USER, dir + ": no such directory, wanted a checkpoint: "
            "a directory with config.json and model.safetensors", "ls runs/*/");
    }
    if (!file_exists(dir + "/config.json")) {
        die(EXIT_USER, dir + ": has no config.json, so it is not a checkpoint",
            "give a directory such as runs/NAME/step_1000");
    }
    const Json j = json_file(dir + "/config.json");
    const Json* mine = j.get("train_sink");
    if (!mine) { // somebody else's
        const Json *type = j.get("model_type"), *scaling = j.get("rope_scaling"), *act = j.get("hidden_act");
        want(type && type->string == "llama", dir + ": model_type " + (type ? type->string : "missing"),
             "llama, the one family read so far");
        want(!scaling || scaling->type == Json::NUL, dir + ": rope_scaling is set", "plain rotary positions");
        want(!act || act->string == "silu", dir + ": hidden_act " + (act ? act->string : ""), "silu");
    }
    const char* llama = "{\"attn\":\"softmax\",\"bias\":\"none\",\"pe\":\"rotary\",\"norm\":\"pre\","
                        "\"ffn\":\"swiglu\",\"combine\":\"concat\"}";
    checkpoint_check_switches(dir, mine ? *mine : json_of(llama));
    Config c = Config();
    const char* keys[] = { "num_hidden_layers", "hidden_size", "num_attention_heads", "intermediate_size", "vocab_size",
                           "max_position_embeddings" };
    for (const char* key : keys) {
        const double x = json_number(j, key, 0);
        want(x >= 1 && x < (key == keys[0] ? 1e4 : 1e9), dir + "/config.json: " + key, "a positive number");
    }
    c.L = json_number(j, keys[0], 0); c.C = json_number(j, keys[1], 0); c.NH = json_number(j, keys[2], 0);
    c.F = json_number(j, keys[3], 0); c.V = json_number(j, keys[4], 0); c.T = json_number(j, keys[5], 0);
    c.KV = json_number(j, "num_key_value_heads", c.NH);
    want(c.KV >= 1 && c.NH % c.KV == 0 && c.C % c.NH == 0, dir + "/config.json",
         "heads that divide the width, and key/value heads that divide the heads");
    c.HS = c.C / c.NH;
    want(json_number(j, "head_dim", c.HS) == c.HS, dir + "/config.json: head_dim", "hidden_size / num_attention_heads");
    c.eps = json_number(j, "rms_norm_eps", 1e-6); c.rope_base = json_number(j, "rope_theta", 10000);
    const Json none, *own = mine ? mine : &none;
    c.attn_p = json_number(*own, "attn_p", 1); c.attn_alpha = json_number(*own, "attn_alpha", 1);
    const Json *share = own->get("bias_share"), *v_star = own->get("v_star"), *tok = own->get("tokenizer");
    c.bias_shared = share && share->string == "heads";
    c.k_dims = json_number(*own, "k_dims", c.HS);
    c.v_star = v_star ? v_star->string : "";
    c.prefix = json_number(*own, "prefix", 0);
    c.window = json_number(*own, "window", json_number(j, "sliding_window", 0));
    *tokenizer = tok ? tok->string : file_exists(dir + "/tokenizer.json") ? dir + "/tokenizer.json" : "";
    return c;
}
// "" or the first field in which two configs differ
static std::string json_difference(const Json& theirs, const Json& ours) {
    for (auto& f : ours.fields) {
        const Json* v = theirs.get(f.first.c_str());
        if (f.first == "model_type") { continue; }       // follows from the rest
        if (!v || v->string != f.second.string) {
            return f.first + ": got " + (v ? v->string : "nothing") + ", wanted " + f.second.string;
        }
        const std::string inside = json_difference(*v, f.second);
        if (!inside.empty()) { return inside; }
    }
    return "";
}
static void checkpoint_load(Model* m, const std::string& dir) {
    std::vector<Safetensors> files = { safetensors_open_dir(dir) };
    const Json config = json_file(dir + "/config.json"), *tied = config.get("tie_word_embeddings");
    tensors_load(m, files, "", m->master, tied && tied->number);
    ops::cast_to_real(m->params, m->master, m->num_params);
    for (auto& f : files) { safetensors_close(&f); }
}
static void optimizer_load(Model* m, const std::string& dir) {
    std::vector<Safetensors> file = { safetensors_open(dir + "/optimizer.safetensors") };
    tensors_load(m, file, "m.", m->m);
    tensors_load(m, file, "v.", m->v);
    safetensors_close(&file[0]);
}
static std::string params_hash(const Model* m) {
    std::vector<float> copy;
    const float* x = host_floats(m, m->master, &copy);
    return strf("%016llx", (unsigned long long)hash_bytes(x, m->num_params * sizeof(float)));
}

// a checkpoint and the tokenizer its text wants
static Model model_from_checkpoint(Flags* f, int T_max) {
    if (f->words.size() != 1) {
        die(EXIT_USER, strf("got %zu checkpoints, wanted one", f->words.size()),
            "name its directory, such as runs/NAME/step_1000");
    }
    std::string tokenizer;
    Config c = checkpoint_config(f->words[0], &tokenizer);
    if (f->tokenizer.empty() && tokenizer != "bytes") { f->tokenizer = tokenizer; }
    if (f->given_prefix) { c.prefix = f->prefix; }
    if (f->given_window) { c.window = f->window; }
    Model m = model_new(c, T_max, false);
    checkpoint_load(&m, f->words[0]);
    f->vocab = c.V;
    return m;
}
#endif // CHECKPOINT_H
