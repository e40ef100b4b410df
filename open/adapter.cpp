/*
open/adapter.cpp -- what adapter.h declares.
*/
#include "adapter.h"
#include <map>
#include <regex>
#include "../files/directory.h"
#include "../files/safetensors.h"

static const char* const CONFIG = "adapter_config.json";
static const char* const MERGE =
    "merge it first: python3 -c \"from peft import AutoPeftModelForCausalLM as M; "
    "M.from_pretrained('DIR').merge_and_unload().save_pretrained('NEW')\"";

struct Adapter {
    std::string where;                           // its config, for errors
    Json config;
    Weights file;
};

// the matrices of one module, as the file has them
struct LowRank {
    std::string module;                          // model.layers.0.self_attn.q_proj
    const Weight* A = NULL;
    const Weight* B = NULL;
    bool embedding = false;                      // A is (r, V), B (C, r): their product is turned
};

[[noreturn]] static void fail(const std::string& what) {
    die(EXIT_USER, what, "is it an adapter of this model? its adapter_config.json names the base");
}

// ---- adapter_config.json

static double number_of(const Adapter& a, const char* key, double otherwise) {
    const Json* v = a.config.get(key);
    if (!v || v->type == Json::NUL) { return otherwise; }
    if (v->type != Json::NUMBER || !(v->number > 0) || v->number > 1e6) {
        die(EXIT_USER, a.where + ": " + key + " is " + json_short(*v) + ", wanted a number "
            "above 0");
    }
    return v->number;
}

// Finds the number that rank_pattern or alpha_pattern has for a module: that of the first of its
// expressions that ends the module's name.
static double pattern_of(const Adapter& a, const char* key, const std::string& module,
                         double otherwise) {
    const Json* patterns = a.config.get(key);
    if (!patterns || patterns->type == Json::NUL) { return otherwise; }
    for (auto& p : patterns->fields) {
        bool fits = false;
        try {
            fits = std::regex_match(module, std::regex("(.*\\.)?(" + p.first + ")"));
        } catch (const std::regex_error&) {
            die(EXIT_USER, a.where + ": " + key + ": '" + p.first + "' is not a regular "
                "expression that this program reads", MERGE);
        }
        if (!fits) { continue; }
        if (p.second.type != Json::NUMBER || !(p.second.number > 0)) {
            die(EXIT_USER, a.where + ": " + key + ": '" + p.first + "' is " +
                json_short(p.second) + ", wanted a number above 0");
        }
        return p.second.number;
    }
    return otherwise;
}

static double scale_of(const Adapter& a, const LowRank& m) {
    const double r = pattern_of(a, "rank_pattern", m.module, number_of(a, "r", 8));
    const double alpha = pattern_of(a, "alpha_pattern", m.module, number_of(a, "lora_alpha", 8));
    if (m.A->rows() != r || m.B->cols() != r) {
        fail(strf("%s: r is %g for %s, and its matrices have ranks %ld and %ld", a.where.c_str(), r,
                  m.module.c_str(), m.A->rows(), m.B->cols()));
    }
    const Json* root = a.config.get("use_rslora");
    return alpha / (root && root->number ? sqrt(r) : r);
}

static Adapter adapter_open(const std::string& dir) {
    Adapter a;
    a.where = dir + "/" + CONFIG;
    if (!file_exists(a.where)) {
        die(EXIT_USER, "--adapter " + dir + ": got no " + CONFIG + ", wanted a directory that peft "
            "saved", "or --adapter none");
    }
    a.config = json_file(a.where);
    directory_check(CONFIG, a.where, a.config);
    const std::string path = dir + "/adapter_model.safetensors";
    if (!file_exists(path)) {
        die(EXIT_USER, dir + ": has no adapter_model.safetensors", "save the adapter again, with "
            "safe_serialization=True");
    }
    a.file = safetensors_open(path);
    return a;
}

// ---- its tensors

static const std::string HEAD = "base_model.model.";

// Returns the module of a tensor whose name ends so, "" if it does not.
static std::string module_of(const std::string& name, const std::string& tail) {
    const bool whole = name.compare(0, HEAD.size(), HEAD) == 0 && ends_with(name, tail);
    if (!whole || name.size() <= HEAD.size() + tail.size()) {
        return "";
    }
    return name.substr(HEAD.size(), name.size() - HEAD.size() - tail.size());
}

// Lists the modules of the file, by name. `whole`: tensors of the model that peft saved, too.
static std::map<std::string, LowRank> modules_of(const Adapter& a,
                                                 std::vector<const Weight*>* whole) {
    static const struct { const char* tail; bool first, embedding; } TAILS[] = {
        { ".lora_A.weight", true, false },     { ".lora_B.weight", false, false },
        { ".lora_embedding_A", true, true },   { ".lora_embedding_B", false, true },
    };
    std::map<std::string, LowRank> modules;
    for (auto& t : a.file.tensors) {
        bool known = false;
        for (auto& tail : TAILS) {
            const std::string module = module_of(t.name, tail.tail);
            if (module.empty()) { continue; }
            known = true;
            LowRank& m = modules[module];
            m.module = module;
            m.embedding = tail.embedding;
            (tail.first ? m.A : m.B) = &t;
        }
        if (!known) { whole->push_back(&t); }
    }
    for (auto& m : modules) {
        if (m.second.A && m.second.B) { continue; }
        fail(a.file.path + ": has only one of A and B for " + m.first);
    }
    return modules;
}

static std::vector<float> floats_of(const Weight& w) {
    std::vector<float> x(w.count);
    weight_rows(w, 0, w.rows(), x.data());
    return x;
}

// Dies unless each of target_modules is in the file.
static void targets_check(const Adapter& a, const std::map<std::string, LowRank>& modules) {
    const Json* targets = a.config.get("target_modules");
    if (!targets || targets->type != Json::ARRAY) { return; }    // an expression: the names say it
    for (auto& target : targets->items) {
        bool found = false;
        for (auto& m : modules) {
            found = found || m.first == target.string || ends_with(m.first, "." + target.string);
        }
        if (!found) {
            fail(a.where + ": target_modules names " + json_short(target) + ", and " +
                 a.file.path + " has nothing of it");
        }
    }
}

// Finds the tensor of the model that a module changes; NULL if there is none.
static Weight* tensor_of(const Family* family, Weights* weights, const std::string& module) {
    std::vector<std::string> names = { module, "model." + module };
    const std::string prefix = family ? family->prefix : "";
    if (!prefix.empty()) {
        names.push_back(prefix + module);
        if (module.compare(0, prefix.size(), prefix) == 0) {
            names.push_back(module.substr(prefix.size()));
        }
    }
    for (auto& name : names) {
        auto at = weights->index.find(name + ".weight");
        if (at != weights->index.end()) {
            return &weights->tensors[at->second];
        }
    }
    return NULL;
}

// Dies if a tensor that peft saved whole is not the model's: it keeps an embedding that it adapts,
// unchanged.
static void whole_check(const Weight& t, const Family* family, Weights* weights) {
    std::string module = module_of(t.name, ".base_layer.weight");
    if (module.empty()) { module = module_of(t.name, ".weight"); }
    const Weight* w = module.empty() ? NULL : tensor_of(family, weights, module);
    if (w && w->shape == t.shape && floats_of(*w) == floats_of(t)) {
        return;
    }
    die(EXIT_USER, t.file + ": the tensor '" + t.name + "' is not one of LoRA's A and B" +
        (w ? ", and not the model's own" : ""), MERGE);
}

// Adds s B A to W. turned: W is its transpose in the file.
static void add_product(const LowRank& m, double s, bool turned, long rows, long cols, float* W) {
    const long r = m.A->rows();
    const long in = m.A->cols();
    const std::vector<float> A = floats_of(*m.A);
    const std::vector<float> B = floats_of(*m.B);
    #pragma omp parallel for
    for (long i = 0; i < rows; i++) {
        for (long j = 0; j < cols; j++) {
            long out = i;
            long from = j;
            if (turned) { std::swap(out, from); }
            double sum = 0;
            for (long k = 0; k < r; k++) {
                sum += (double)B[out * r + k] * A[k * in + from];
            }
            W[i * cols + j] += (float)(s * sum);
        }
    }
}

static void module_apply(const Adapter& a, const LowRank& m, const Family* family, bool tied,
                         Weights* weights) {
    Weight* W = tensor_of(family, weights, m.module);
    if (!W) {
        fail(a.file.path + ": is of a module " + m.module + ", which the model does not have");
    }
    const bool head = ends_with(m.module, "lm_head") || ends_with(m.module, "embed_out");
    if (tied && (m.embedding || head)) {
        die(EXIT_USER, a.file.path + ": changes " + m.module + ", and in this model head and "
            "embedding are one: it would change both", MERGE);
    }
    const bool layer = !our_name(W->name).layer.empty() || W->name.compare(0, 2, "h.") == 0 ||
                       W->name.find(".h.") != std::string::npos,
               turned = m.embedding || (family && family->transposed && layer);
    long rows = m.B->rows();
    long cols = m.A->cols();
    if (turned) { std::swap(rows, cols); }
    if (W->shape != std::vector<long>{ rows, cols }) {
        std::string shape;
        for (long n : W->shape) { list_add(&shape, strf("%ld", n)); }
        fail(strf("%s: changes a matrix (%ld, %ld), and '%s' is (%s)", a.file.path.c_str(), rows,
                  cols, W->name.c_str(), shape.c_str()));
    }
    auto made = std::make_shared<std::vector<float>>(floats_of(*W));
    add_product(m, scale_of(a, m), turned, rows, cols, made->data());
    weights->made.push_back(made);
    W->type = number_type("F32");
    W->data = (const char*)made->data();
    W->bytes = made->size() * sizeof(float);
    W->pairs = 0;
}

std::string adapter_apply(const std::string& dir, const Family* family, bool tied,
                          Weights* weights) {
    Adapter a = adapter_open(dir);
    std::vector<const Weight*> whole;
    const std::map<std::string, LowRank> modules = modules_of(a, &whole);
    targets_check(a, modules);
    for (const Weight* t : whole) { whole_check(*t, family, weights); }
    for (auto& m : modules) { module_apply(a, m.second, family, tied, weights); }
    weights_close(&a.file);
    return strf("LoRA, r %g, alpha %g, added to %zu matrices", number_of(a, "r", 8),
                number_of(a, "lora_alpha", 8), modules.size());
}

void adapter_beside_check(const std::string& dir, const std::string& adapter) {
    std::string found;
    if (!is_dir(dir) || !adapter.empty()) { return; }
    for (auto& name : dir_list(dir)) {
        const bool is = name.compare(0, 8, "adapter_") == 0 && directory_key(name, "");
        if (is && found.empty()) { found = name; }
    }
    if (found.empty()) { return; }
    const Json config = directory_object(dir, CONFIG);
    const Json* type = config.get("peft_type");
    const Json* base = config.get("base_model_name_or_path");
    std::string kind = "LoRA";
    std::string of;
    if (type && type->type == Json::STRING && type->string != "LORA") {
        kind = type->string;
    }
    if (base && base->type == Json::STRING) {
        of = " of the model " + base->string;
    }
    die(EXIT_USER,
        dir + ": holds an adapter (" + kind + ")" + of + ", as its " + found +
            " says: it changes the weights",
        file_exists(dir + "/config.json")
            ? "--adapter " + dir + " applies it, --adapter none leaves it out"
            : "give the model that it is of, and --adapter " + dir);
}
