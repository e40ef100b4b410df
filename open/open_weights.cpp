/*
open/open_weights.cpp -- what optional.h asks of open/ about a model: the weights of another family,
read to where ours are.
*/
#include "../core/checkpoint.h"
#include "../base/look.h"
#include "foreign_weights.h"
#include "import_experts.h"
#include "mixer.h"

static const char* const WITHOUT_IT =
    "transformers leaves it out: python3 -c \"import sys; from transformers import "
    "AutoModelForCausalLM as M; M.from_pretrained(sys.argv[1]).save_pretrained(sys.argv[2])\" "
    "FILE NEW && cp FILE/*token* NEW";

// Reads the weight of one of our tensors from another family's files to `to`; returns what is wrong
// with it, or "".
static std::string weight_import(const Model* m, const Family& family, const Weights& files,
                                 const Tensor& t, float* to, std::set<std::string>* used) {
    const Arch& arch = m->arch;
    const long cols = t.shape.back();
    const long rows = t.count / cols;
    std::string wrong;
    if (import_projected(files, arch, t.name, to, used)) { return ""; }
    if (import_experts(files, arch, t.name, to, used, &wrong)) { return wrong; }
    return import_tensor(family, arch, files, t.name, rows, cols, to, used);
}

static std::string first_part(const std::string& name) { return name.substr(0, name.find('.')); }

// Rejects a tensor beside those of a model that is complete. If its name begins as none of theirs
// does, it is of something else, which transformers leaves out: a head for labels or values,
// averaged weights.
static void die_of_tensor_beside(const Weight& w, const std::set<std::string>& used) {
    const std::string what = w.file + ": holds the tensor '" + w.name + "', ";
    for (auto& name : used) {
        if (first_part(name) == first_part(w.name)) {
            die_of_other_model(what + "which this model does not have");
        }
    }
    die(what + "which is of something beside this model, such as a head of another task",
        hint_for(WITHOUT_IT, directory_of(w.file)));
}

// Rejects a tensor of another family's file that nothing has read.
static void weights_all_used(const Model* m, const Family& family, const Weights& files,
                             const std::set<std::string>& used) {
    for (auto& w : files.tensors) {
        const bool lm_head = w.name == "lm_head.weight" || w.name == "embed_out.weight";
        if (m->arch.tied && lm_head) {
            const std::string embedding = "model.embed_tokens.weight";
            lm_head_is_embedding(w, import_source(family, m->arch, files, embedding).w);
            continue;
        }
        // a head that predicts more than one token ahead: transformers leaves it out, too
        const std::string type = family.name;
        const bool qwen = type == "qwen3_next" || starts_with(type, "qwen3_5");
        const bool ahead = qwen && starts_with(w.name, "mtp.");
        if (used.count(w.name) || is_buffer(w.name) || ahead) { continue; }
        die_of_tensor_beside(w, used);
    }
}

// Notes, when another family's model is to be trained, which of its tensors become more than they
// are there: norms without weights, a norm that two branches share.
static void note_what_learns(const Model* m, const Family& family, const Weights& files) {
    std::set<std::string> sources;
    std::string learn;
    for (auto& t : m->tensors) {
        const TensorSource from = import_source(family, m->arch, files, t.name);
        const OurName name = our_name(t.name);
        const bool ones = from.fold == ALL_ONES;
        const bool shared = from.w && from.fold == AS_IT_IS && !sources.insert(from.w->name).second;
        if ((name.layer.empty() || name.layer == "0") && (ones || shared)) {
            list_add(&learn, name.stem + (ones ? " (all ones there)" : " (shared there)"));
        }
    }
    if (learn.empty() || dist::rank() > 0) { return; }
    printf("note   %s has no such weights of its own, which learn here: %s; checkpoints are "
           "train_sink's\n", family.name, learn.c_str());
}

// Reads another family's weights by our names. What adds_bias has added stays as it is.
static void weights_read(Model* m, const Checkpoint& k) {
    const Family family = family_of_file(k.config, ends_with(k.where, ".gguf"));
    const Weights& files = k.weights;
    acc* array = full_array(m, m->master);
    const bool in_place = ops::on_host && std::is_same<acc, float>::value;
    std::set<std::string> used;
    std::vector<float> copy;
    for (auto& t : m->tensors) {
        if (k.adds_bias && is_added(t)) { continue; }
        if (!in_place) { copy.resize(t.count); }
        float* to = in_place ? (float*)(array + t.at) : copy.data();
        const std::string wrong = weight_import(m, family, files, t, to, &used);
        if (!wrong.empty()) {
            die_of_other_model(files.path + ": '" + t.name + "', by its " + family.name +
                               " name, " + wrong);
        }
        weights_check(m, t, to, files.path);
        if (!in_place) { tensor_to_device(array, t, copy); }
    }
    weights_all_used(m, family, files, used);
    if (m->train) { note_what_learns(m, family, files); }
}

size_t mixer_numbers(const Model* m) {
    const Arch& arch = m->arch;
    if (!arch.delta_values) {
        const size_t taps_before = arch.mamba_conv - 1;
        return (size_t)arch.mamba_width * (arch.mamba_state + taps_before);
    }
    const size_t matrices = (size_t)DELTA_OUT_WIDTH * arch.delta_key_size;
    const size_t taps_before = arch.delta_conv - 1;
    return matrices + DELTA_QKV_WIDTH * taps_before;
}

extern const OpenModel OPEN_MODEL = { weights_read, mixer_numbers };
