/*
checkpoint.cpp -- gathers the shards of all ranks and writes them as named tensors; finds each
tensor again when it reads.
*/
#include "checkpoint.h"
#include <set>
#include "saves.h"

// Returns a whole array as floats in host memory, from the shards of all ranks: in place if it is
// that already, else in *copy.
static const float* host_floats(const Model* m, acc* shard, std::vector<float>* copy) {
    const acc* array = gather_array(m, shard);
    const bool in_place = array == shard && ops::on_host;
    if (in_place && std::is_same<acc, float>::value) { return (const float*)array; }
    const std::vector<acc> x = copy_to_host(array, m->num_params);
    copy->assign(x.begin(), x.end());
    return copy->data();
}

// ---- out

std::vector<StOut> tensors_of(const Model* m, const NamedArrays& arrays,
                              std::vector<std::vector<float>>* copies) {
    std::vector<StOut> out;
    copies->resize(arrays.size());
    for (size_t i = 0; i < arrays.size(); i++) {
        const std::string& prefix = arrays[i].first;
        const float* x = host_floats(m, arrays[i].second, &(*copies)[i]);
        for (auto& t : m->tensors) { out.push_back({ prefix + t.name, t.shape, x + t.at }); }
    }
    return out;
}

// Writes arrays as named tensors: rank 0 does, from the shards of all.
static void tensors_save(const Model* m, const std::string& path, const NamedArrays& arrays) {
    std::vector<std::vector<float>> copies;
    const std::vector<StOut> out = tensors_of(m, arrays, &copies);
    if (dist::rank() == 0) { safetensors_write(path, out); }
}

// Names the tokenizer for the files of another family: by its first file or, if an older kind kept
// none, by itself.
static std::string tokenizer_name(const Tokenizer& tok) {
    if (!tok.files.empty()) { return tok.files[0].first; }
    return tok.kind == TOKENIZER_BPE ? tok.name : "";
}

// Writes the model as the family that it was read as, where that still says it: a run that began
// as a Pythia is one to the end. Else by our names.
static ModelFile model_file(const Arch& c, const std::vector<StOut>& ours, const Tokenizer& tok,
                            const std::string& tokenizer_path) {
    const bool other = !c.family.empty() && c.family != "llama";
    ModelFile file;
    if (other && open_files && open_files->written_as(c, ours, tok, tokenizer_path, &file)) {
        return file;
    }
    return { config_json(c, tok, tokenizer_path), ours, {} };
}

void checkpoint_save(const Model* m, const std::string& out, long step,
                     const JsonObject& state, const Tokenizer& tok, bool optimizer) {
    const std::string dir = dist::rank() == 0 ? checkpoint_begin(out, step) : "";
    std::vector<std::vector<float>> copies;
    const std::vector<StOut> ours = tensors_of(m, { { "", m->master } }, &copies);
    if (optimizer) {
        tensors_save(m, dir + "/optimizer.safetensors",
                     { { "m.", m->adam_m }, { "v.", m->adam_v } });
    }
    if (m->ema) { tensors_save(m, dir + "/ema.safetensors", { { "", m->ema } }); }
    if (dist::rank() > 0) { return; }
    const ModelFile as = model_file(m->arch, ours, tok, tokenizer_name(tok));
    safetensors_write(dir + "/model.safetensors", as.tensors);
    auto files = tok.files;
    files.insert(files.begin(), { "config.json", as.config });
    for (auto& [name, text] : files) { file_write(dir + "/" + name, text); }
    file_write(dir + "/state.json", state_sealed(state, files) + "\n");
    checkpoint_commit(out, step);
}

// ---- in

void tensor_to_device(acc* array, const Tensor& t, const std::vector<float>& values) {
    copy_to_device(array + t.at, std::vector<acc>(values.begin(), values.end()));
}

void die_of_other_model(const std::string& what) {
    die(what, "config.json and the weights are of different models: get both again");
}

// Writes a shape as " 2 3".
static std::string shape_text(const std::vector<long>& shape) {
    std::string text;
    for (long n : shape) { text += strf(" %ld", n); }
    return text;
}

// Finds a tensor in a file and checks its shape; dies if it is not as this model needs it.
static const Weight& tensor_find(const Weights& file, const std::string& name, const Tensor& t) {
    const Weight* found = file.find(name);
    if (!found) {
        die(file.path + ": has no tensor '" + name + "', which this model needs",
            "is it a checkpoint of another model? see its config.json");
    }
    if (found->shape != t.shape) {
        die_of_other_model(file.path + ": tensor '" + t.name + "' has shape (" +
                           shape_text(found->shape) + " ), wanted (" + shape_text(t.shape) + " )");
    }
    return *found;
}

void weights_check(const Model* m, const Tensor& t, const float* x, const std::string& file) {
    const kind act = m->sizes.ffn.act;
    const bool hides = act == ACT_relu || act == ACT_relu2;
    if (cpu_folder && cpu_folder->is_in_file(x) && !hides) { return; }
    const long cols = t.shape.back();
    for (long at = 0; at < t.count;) {
        const auto some = weight_rows(x + at, cols, (t.count - at) / cols);
        for (long i = 0; i < some.n * cols; i++, at++) {
            if (std::isfinite(some.x[i])) { continue; }
            die(EXIT_DIVERGED, file + ": '" + t.name + "' holds NaN or infinity, wanted numbers",
                "its run diverged, or the file is damaged: use an earlier checkpoint, or fetch it "
                "again");
        }
    }
}

// Reads one array by name from a file. adds_bias: what BIAS adds stays as it is.
static void tensors_load(const Model* m, const Weights& file, const std::string& prefix,
                         acc* device, bool adds_bias = false) {
    std::vector<float> values;
    for (auto& t : m->tensors) {
        if (adds_bias && is_added(t)) { continue; }
        const Weight& found = tensor_find(file, prefix + t.name, t);
        values.resize(t.count);
        weight_floats(found, values.data());
        if (prefix.empty()) { weights_check(m, t, values.data(), file.path); }
        tensor_to_device(device, t, values);
    }
}

// Rejects a tensor that the model does not read, with an error that names it: it may change what
// the model computes.
static void tensors_all_used(const Model* m, const Weights& file) {
    std::set<std::string> names;
    for (auto& t : m->tensors) { names.insert(t.name); }
    for (auto& t : file.tensors) {
        bool used = names.count(t.name) || ends_with(t.name, "rotary_emb.inv_freq");
        if (m->arch.tied && open_files && t.name == "lm_head.weight") {
            open_files->lm_head_is_embedding(t, file.find("model.embed_tokens.weight"));
            used = true;
        }
        if (used) { continue; }
        die_of_other_model(file.path + ": holds the tensor '" + t.name +
                           "', which this model does not have");
    }
}

void checkpoint_read(Model* m, Checkpoint* k) {
    if (k->theirs) {
        open_model->weights(m, *k);
    } else {
        tensors_load(m, k->weights, "", full_array(m, m->master), k->adds_bias);
        tensors_all_used(m, k->weights);
    }
    publish_weights(m);
    static std::vector<Weights> in_use;          // matrices that are read where they lie
    if (any_in_file()) {
        in_use.push_back(k->weights);
    } else {
        weights_close(&k->weights);
    }
}

bool optimizer_load(Model* m, const std::string& dir) {
    const std::string path = dir + "/optimizer.safetensors";
    if (!file_exists(path)) { return false; }
    Weights file = safetensors_open(path);
    auto load = [&](const std::string& prefix, acc* shard) {
        tensors_load(m, file, prefix, full_array(m, shard));
        store_array(m, shard);
    };
    load("m.", m->adam_m);
    load("v.", m->adam_v);
    weights_close(&file);
    if (!m->ema) { return true; }
    const std::string mean = dir + "/ema.safetensors";
    if (!file_exists(mean)) { die(mean + ": is gone, wanted the mean of --ema", "put it back"); }
    file = safetensors_open(mean);
    load("", m->ema);
    weights_close(&file);
    return true;
}

std::string array_hash(const Model* m, acc* shard) {
    std::vector<float> copy;
    const float* x = host_floats(m, shard, &copy);
    return hash_text(hash_bytes(x, m->num_params * sizeof(float)));
}
