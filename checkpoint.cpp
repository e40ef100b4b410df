/*
checkpoint.cpp -- what checkpoint.h declares.
*/
#include "checkpoint.h"
#include <set>
#include "models/import_experts.h"
#include "shell/saves.h"

// the whole array of which each rank has a shard, as floats in host memory: in place if it is one
// already, else in *copy
static const float* host_floats(const Model* m, acc* shard, std::vector<float>* copy) {
    const acc* array = gather_array(m, shard);
    const bool here = array == shard && ops::on_host && std::is_same<acc, float>::value;
    if (here) { return (const float*)array; }
    std::vector<acc> x(m->num_params);
    ops::to_host(x.data(), array, m->num_params * sizeof(acc));
    copy->assign(x.begin(), x.end());
    return copy->data();
}

std::vector<StOut> tensors_of(const Model* m, const NamedArrays& arrays,
                              std::vector<std::vector<float>>* copies) {
    std::vector<StOut> out;
    copies->resize(arrays.size());
    for (size_t i = 0; i < arrays.size(); i++) {
        const float* x = host_floats(m, arrays[i].second, &(*copies)[i]);
        for (auto& t : m->tensors) {
            out.push_back({ arrays[i].first + t.name, t.shape, x + t.at });
        }
    }
    return out;
}

// the same, which rank 0 writes
static void tensors_save(const Model* m, const std::string& path, const NamedArrays& arrays) {
    std::vector<std::vector<float>> copies;
    const std::vector<StOut> out = tensors_of(m, arrays, &copies);
    if (dist::rank == 0) { safetensors_write(path, out, "{\"format\":\"pt\"}"); }
}

void checkpoint_save(const Model* m, const std::string& out, long step,
                     const JsonObject& state, const Tokenizer& tok, bool optimizer) {
    const std::string dir = dist::rank == 0 ? checkpoint_begin(out, step) : "";
    std::vector<std::vector<float>> copies;
    const std::vector<StOut> ours = tensors_of(m, { { "", m->master } }, &copies);
    if (optimizer) {
        tensors_save(m, dir + "/optimizer.safetensors",
                     { { "m.", m->adam_m }, { "v.", m->adam_v } });
    }
    if (dist::rank > 0) { return; }
    // of an older kind, whose files are not kept
    const bool named = tok.files.empty() && tok.kind == TOKENIZER_BPE;
    const std::string tokenizer = tok.files.empty() ? "" : tok.files[0].first;
    // a run that began as a Pythia is one to the end
    const FamilyFile as = model_file(m->arch, ours, tok, named ? tok.name : tokenizer);
    safetensors_write(dir + "/model.safetensors", as.tensors, "{\"format\":\"pt\"}");
    std::vector<std::pair<std::string, std::string>> files = tok.files;
    files.insert(files.begin(), { "config.json", as.config });
    for (auto& file : files) { file_write(dir + "/" + file.first, file.second); }
    file_write(dir + "/state.json", state_sealed(state, files) + "\n");
    checkpoint_commit(out, step);
}

// the tensors that BIAS brings: those that the same model without it does not have
static std::set<std::string> names_of_bias(const Model* m) {
    Arch plain = m->arch;
    plain.bias = BIAS_none;
    Params<real> places;
    std::vector<Tensor> list;
    Layout(plain).params<real>(&places, &list, NULL);
    std::set<std::string> names;
    for (auto& t : m->tensors) { names.insert(t.name); }
    for (auto& t : list) { names.erase(t.name); }
    return names;
}

// reads one array by name from the .safetensors files of a directory, checking every shape; those
// named in `keep` are not read
static void tensors_load(const Model* m, const std::vector<Weights>& files,
                         const std::string& prefix, acc* device,
                         const std::set<std::string>& keep = {}) {
    std::vector<float> one;
    for (auto& t : m->tensors) {
        if (keep.count(t.name)) { continue; }
        const Weight* found = NULL; const Weights* in = NULL;
        for (auto& f : files) { if (!found && (found = f.find(prefix + t.name))) { in = &f; } }
        const std::string dir = files.empty() ? "checkpoint" : files[0].path;
        if (!found) {
            die(EXIT_USER,
                dir + ": has no tensor '" + prefix + t.name + "', which this model needs",
                "is it a checkpoint of another model? see its config.json");
        }
        if (found->shape != t.shape) {
            std::string got, wanted;
            for (long d : found->shape) { got += strf(" %ld", d); }
            for (long d : t.shape) { wanted += strf(" %ld", d); }
            die(EXIT_USER,
                in->path + ": tensor '" + t.name + "' has shape (" + got + " ), wanted (" + wanted +
                    " )",
                "config.json and the weights are of different models: get both again");
        }
        one.resize(t.count);
        weight_rows(*found, 0, found->rows(), one.data());
        const std::vector<acc> x(one.begin(), one.end());
        ops::to_device(device + t.at, x.data(), t.count * sizeof(acc));
    }
}

// A tied model needs no head. If the file has one nevertheless, it must be the embedding
static void head_is_embedding(const Weight& head, const Weight* embedding) {
    std::vector<float> h(head.cols()), e(head.cols());
    bool same = embedding && embedding->shape == head.shape;
    for (long r = 0; same && r < head.rows(); r++) {
        weight_rows(head, r, r + 1, h.data());
        weight_rows(*embedding, r, r + 1, e.data());
        same = h == e;
    }
    if (!same) {
        die(EXIT_USER,
            head.file + ": '" + head.name + "' is not the embedding, to which config.json ties it",
            "if the head is separate, set tie_word_embeddings to false");
    }
}

// a tensor that the model does not read may change what it computes: it is refused by name
static void tensors_all_used(const Model* m, const std::vector<Weights>& files) {
    for (auto& f : files) {
        for (auto& t : f.tensors) {
            bool used = ends_with(t.name, "rotary_emb.inv_freq");
            if (m->arch.tied && t.name == "lm_head.weight") {
                head_is_embedding(t, f.find("model.embed_tokens.weight"));
                used = true;
            }
            for (auto& ours : m->tensors) { used = used || ours.name == t.name; }
            if (used) { continue; }
            die(EXIT_USER,
                f.path + ": holds the tensor '" + t.name + "', which this model does not have",
                "config.json and the weights are of different models: get both again");
        }
    }
}

// another family's weights, by our names; keep: as above
static void weights_import(Model* m, const Family& family, const Weights& files,
                           const std::set<std::string>& keep) {
    std::set<std::string> used;
    std::vector<float> copy;
    const bool in_place = ops::on_host && std::is_same<acc, float>::value;
    for (auto& t : m->tensors) {
        if (keep.count(t.name)) { continue; }
        if (!in_place) { copy.resize(t.count); }
        float* one = in_place ? (float*)(full_array(m, m->master) + t.at) : copy.data();
        const long cols = t.shape.back(), rows = t.count / cols;
        std::string wrong;
        if (!import_projected(files, m->arch, t.name, one, &used) &&
            !import_experts(files, m->arch, t.name, one, &used, &wrong)) {
            wrong = import_tensor(family, m->arch, files, t.name, rows, cols, one, &used);
        }
        if (!wrong.empty()) {
            die(EXIT_USER,
                files.path + ": '" + t.name + "', by its " + family.type + " name, " + wrong,
                "config.json and the weights are of different models: get both again");
        }
        if (in_place) { continue; }
        const std::vector<acc> x(copy.begin(), copy.end());
        ops::to_device(full_array(m, m->master) + t.at, x.data(), t.count * sizeof(acc));
    }
    for (auto& w : files.tensors) {
        const bool is_head = w.name == "lm_head.weight" || w.name == "embed_out.weight";
        const bool head = m->arch.tied && is_head;
        if (head) {
            const std::string embedding = "model.embed_tokens.weight";
            head_is_embedding(w, import_source(family, m->arch, files, embedding).w);
        }
        if (used.count(w.name) || is_buffer(w.name) || head) { continue; }
        die(EXIT_USER,
            w.file + ": holds the tensor '" + w.name + "', which this model does not have",
            "config.json and the weights are of different models: get both again");
    }
}

void checkpoint_read(Model* m, Checkpoint* k) {
    std::set<std::string> keep;
    if (k->adds_bias) { keep = names_of_bias(m); }
    if (family_of(k->config)) {
        weights_import(m, family_of_file(k->config, ends_with(k->where, ".gguf")), k->weights,
                       keep);
    } else {
        tensors_load(m, { k->weights }, "", full_array(m, m->master), keep);
        tensors_all_used(m, { k->weights });
    }
    publish_weights(m);
    static std::vector<Weights> in_use;          // matrices that are read where they lie
    if (cpu::mapped.all.empty()) { weights_close(&k->weights); }
    else { in_use.push_back(k->weights); }
}

void checkpoint_load(Model* m, const std::string& dir) {
    Checkpoint k = checkpoint_open(dir);
    checkpoint_read(m, &k);
}

bool optimizer_load(Model* m, const std::string& dir) {
    if (!file_exists(dir + "/optimizer.safetensors")) { return false; }
    std::vector<Weights> file = { safetensors_open(dir + "/optimizer.safetensors") };
    for (auto& array : { std::make_pair("m.", m->adam_m), std::make_pair("v.", m->adam_v) }) {
        tensors_load(m, file, array.first, full_array(m, array.second));
        store_array(m, array.second);
    }
    weights_close(&file[0]);
    return true;
}

std::string array_hash(const Model* m, acc* shard) {
    std::vector<float> copy;
    const float* x = host_floats(m, shard, &copy);
    return strf("%016llx", (unsigned long long)hash_bytes(x, m->num_params * sizeof(float)));
}
