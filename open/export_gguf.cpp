/*
open/export_gguf.cpp -- what export_gguf.h declares, but for the tokenizer.
*/
#include "export_gguf.h"
#include "gguf_families.h"
#include "import_gguf.h"

// ---- keys

static bool has_norm(const Arch& c, const char* key) {
    const bool rms = strstr(key, "rms"), ln = strstr(key, "layer_norm_epsilon");
    return (!rms && !ln) || rms == (c.norm_kind == NORM_KIND_rms);
}

// Tells whether a family's file has this key for this model.
static bool has_key(const GgufModel& m, const Arch& c, const char* key) {
    const bool rope = strstr(key, "rope."), size = strstr(key, "key_length");
    return has_norm(c, key) && (!rope || pe_of(c).rotary) &&
           (!size || !says_word(m.computes, "square"));
}

// Adds one key of config.json by its GGUF name; nothing if the model has no value for it.
static void put_value(GgufOut* o, const std::string& key, const std::string& type,
                      const std::string& value) {
    if (value.empty() || value == "null") { return; }
    const double number = atof(value.c_str());
    if (type == "bool") { gguf_put(o, key, value == "true"); }
    if (type == "f32") { gguf_put(o, key, (float)number); }
    if (type == "u32") { gguf_put(o, key, (uint32_t)number); }
}

static void put_rope(GgufOut* o, const std::string& arch, const Arch& c) {
    gguf_put(o, arch + "rope.dimension_count", (uint32_t)rotated(c));
    const bool linear = c.rope_scaling == ROPE_linear, yarn = c.rope_scaling == ROPE_yarn;
    const std::string context = arch + "rope.scaling.original_context_length";
    if (c.rope_scaling != ROPE_none && !linear) {
        gguf_put(o, context, (uint32_t)c.rope_context);
    }
    if (!linear && !yarn) { return; }
    gguf_put(o, arch + "rope.scaling.type", std::string(linear ? "linear" : "yarn"));
    gguf_put(o, arch + "rope.scaling.factor", c.rope_factor);
}

// Adds the keys of a model. asked: the keys of config.json that the family's reader looks for
static void put_keys(GgufOut* o, const GgufModel& m, Arch c, const std::set<std::string>& asked) {
    const std::string arch = std::string(m.arch) + ".";
    gguf_put(o, "general.architecture", std::string(m.arch));
    std::set<std::string> rows;                  // every family's reader looks for those
    for (auto& r : arch_rows(&c)) { rows.insert(r.key); }
    for (auto& row : GGUF_CONFIG) {
        const bool wanted = rows.count(row[1]) || asked.count(row[1]);
        const bool others = row[3] && strcmp(row[3], m.arch);
        if (!wanted || others || !has_key(m, c, row[0])) { continue; }
        put_value(o, arch + row[0], row[2], family_value(row[1], c));
    }
    if (has_key(m, c, "key_length")) {
        gguf_put(o, arch + "attention.value_length", (uint32_t)c.HS);
    }
    gguf_put(o, arch + "vocab_size", (uint32_t)c.V);
    if (pe_of(c).rotary) { put_rope(o, arch, c); }
}

// ---- tensors

// Returns the name in a file of a tensor of Hugging Face's name, "" if there is none.
static std::string gguf_name_of(const GgufModel& m, bool two_norms, const OurName& n) {
    const std::string theirs = (n.layer.empty() ? "" : "model.layers.#.") + n.stem;
    std::string out;
    const bool sandwich = says_word(m.form, "sandwich");
    for (auto& row : GGUF_NAMES) { if (theirs == row[1]) { out = row[0]; } }
    for (auto& row : GGUF_SANDWICH) {
        if (sandwich && theirs == row[1]) { out = row[0]; }
    }
    for (auto& row : GGUF_TWO_NORMS) {
        if (two_norms && theirs == row[1]) { out = row[0]; }
    }
    const size_t number = out.find('#');
    if (number != std::string::npos) {
        out.replace(number, 1, n.layer);
    }
    return out.empty() ? "" : out + n.kind;
}

// Tells whether this row, of several for one tensor, is that of a family's form.
static bool row_of_form(const GgufModel& m, bool two_norms, const NameRow& row) {
    const bool qkv = row.fold == STACKED_Q || row.fold == STACKED_K || row.fold == STACKED_V,
               attention = strstr(row.ours, "q_proj") || strstr(row.ours, "k_proj") ||
                           strstr(row.ours, "v_proj"),
               gate = strstr(row.ours, "gate_proj"),
               second = !strcmp(row.ours, "post_attention_layernorm"),
               shared = strstr(row.theirs, "input_layernorm"),
               one_norm = says_word(m.form, "one_norm") && !two_norms;
    if (attention) { return qkv == says_word(m.form, "qkv"); }
    if (gate) { return (row.fold == FIRST_HALF) == says_word(m.form, "gate_up"); }
    return !second || shared == one_norm;
}

// Finds where a file has one of our tensors; false if it has none such.
static bool gguf_place(const GgufModel& m, const Family& f, const Arch& c, const StOut& ours,
                       TensorPlace* at) {
    OurName n = our_name(ours.name);
    const bool two_norms = !strcmp(m.arch, "falcon") && c.KV > 1 && c.KV < c.NH;
    bool found = !f.names;
    for (const NameRow* row = f.names; row && row->ours && !found; row++) {
        if (n.stem != row->ours || !row_of_form(m, two_norms, *row)) {
            continue;
        }
        found = true;
        at->fold = row->fold;
        n.stem = our_name(std::string(row->theirs) + ".weight").stem;
    }
    at->name = gguf_name_of(m, two_norms, n);
    const bool alone = at->fold == LAST_ROWS && !says_word(m.form, "gate_up");
    at->rows = import_rows(at->fold, c, ours.shape[0], alone ? ours.shape[0] : -1);
    return found && !at->name.empty();
}

// Puts the rows of q and k as files of families with `pairs` have them.
static void pairs_put(Part* p, long heads) {
    const long rows = p->shape[0], cols = p->x.size() / rows, size = rows / heads;
    const std::vector<float> before = p->x;
    for (long r = 0; r < rows; r++) {
        const long i = r % size, half = size / 2, to = r - i + 2 * (i % half) + i / half;
        memcpy(&p->x[to * cols], &before[r * cols], cols * sizeof(float));
    }
}

// Writes what LLaMA 3's rule divides each frequency by.
static Part rope_factors(const Arch& c) {
    Part p;
    p.name = "rope_freqs.weight";
    const int n = rotated(c) / 2;
    for (int i = 0; i < n; i++) {
        const double turns = c.rope_context * pow(c.rope_base, -(double)i / n) / 6.283185307179586,
                     share = (turns - c.rope_low) / (c.rope_high - c.rope_low),
                     blend = std::min(1.0, std::max(0.0, share));
        p.x.push_back(1 / ((1 - blend) / c.rope_factor + blend));
    }
    p.shape = { n };
    return p;
}

static bool gguf_parts(const GgufModel& m, const Family& f, const Arch& c,
                       const std::vector<StOut>& ours, std::vector<Part>* parts) {
    for (auto& t : ours) {
        TensorPlace at;
        if (!gguf_place(m, f, c, t, &at) || !part_put(parts, at, c, t)) {
            return false;
        }
    }
    for (auto& p : *parts) {
        const bool q = p.name.find(".attn_q.") != std::string::npos,
                   k = p.name.find(".attn_k.") != std::string::npos;
        if (says_word(m.form, "pairs") && (q || k)) {
            pairs_put(&p, q ? c.NH : c.KV);
        }
    }
    if (c.rope_scaling == ROPE_llama3) { parts->push_back(rope_factors(c)); }
    return true;
}

// ---- a family

// a model as one family's file, and what keeps it from being that
struct Attempt {
    const GgufModel* model;
    std::vector<Part> parts;
    GgufOut out;
    std::vector<RowApart> apart;
};

// Reads the keys of a file as gguf_config does; false if that refuses them. *asked: keys of
// config.json that the family's reader looks for
static bool keys_read(const GgufOut& out, const std::vector<Part>& parts, Arch* c,
                      std::string* attn, std::set<std::string>* asked) {
    const std::string header = gguf_header(out);
    Gguf g;
    g.weights.path = "the GGUF file";
    return accepted([&] {
        gguf_parse({ header.data(), header.size() }, &g);
        for (auto& p : parts) {
            Weight w;
            w.name = p.name;
            w.type = gguf_type(0);
            w.shape = p.shape;
            w.data = (const char*)p.x.data();
            w.count = p.x.size();
            weights_add(&g.weights, w);
        }
        *c = arch_import(gguf_config(g), "the GGUF file", attn, asked);
        arch_settle(c, "the GGUF file");
    });
}

// Adds a difference, unless it is there already.
static void put_apart(std::vector<RowApart>* apart, const std::string& ours,
                      const std::string& theirs) {
    for (auto& row : *apart) { if (row.ours == ours) { return; } }
    apart->push_back({ ours, theirs });
}

// Adds what llama.cpp leaves out of a family, and this model has.
static void not_computed(const GgufModel& m, Arch c, std::vector<RowApart>* apart) {
    for (auto& word : split(m.computes, ' ')) {
        const size_t equals = word.find('=');
        for (auto& r : arch_rows(&c)) {
            const std::string value = arch_text(r, false), name = r.by;
            if (equals == std::string::npos || word.substr(0, equals) != r.field) {
                continue;
            }
            const std::string wanted = word.substr(equals + 1);
            if (value != wanted) { put_apart(apart, name + " " + value, name + " " + wanted); }
        }
    }
    if (says_word(m.computes, "square") && c.NH * c.HS != c.C) {
        put_apart(apart, strf("--head-dim %d", c.HS), strf("--head-dim %d", c.C / c.NH));
    }
    if (c.window && !says_word(m.computes, "window")) {
        put_apart(apart, strf("--window %d", c.window), "--window 0");
    }
    if (c.rope_scaling == ROPE_llama3 && !says_word(m.computes, "factors")) {
        put_apart(apart, "--rope-scaling llama3", "--rope-scaling none");
    }
    if (c.rope_scaling == ROPE_dynamic || c.rope_scaling == ROPE_longrope) {
        const bool dynamic = c.rope_scaling == ROPE_dynamic;
        put_apart(apart, strf("rope_type %s", dynamic ? "dynamic" : "longrope"), "another");
    }
}

// Writes a model down as a file of this family, keys and tensors. False if the family has no place
// for one of them
static bool attempt(const GgufModel& m, const Arch& c, const std::vector<StOut>& ours,
                    Attempt* to) {
    Json type;
    type.type = Json::STRING;
    type.string = m.model_type;
    Json config;
    config.type = Json::OBJECT;
    config.fields.push_back({ "model_type", type });
    to->model = &m;
    const bool placed = gguf_parts(m, family_of_file(config, true), c, ours, &to->parts);
    std::set<std::string> asked;
    std::string attn;
    Arch read;
    bool reads = false;
    for (size_t before = 1; before != asked.size();) {   // until it asks for nothing new
        before = asked.size();
        to->out = GgufOut();
        put_keys(&to->out, m, c, asked);
        reads = keys_read(to->out, to->parts, &read, &attn, &asked);
        if (before == 0 && asked.empty()) { break; }
    }
    if (!reads) { return false; }
    if (attn != build::Attn::name) {
        put_apart(&to->apart, std::string("ATTN=") + build::Attn::name, "ATTN=" + attn);
    }
    for (auto& row : rows_apart(c, read)) { to->apart.push_back(row); }
    not_computed(m, c, &to->apart);
    if (!placed && to->apart.empty()) {
        put_apart(&to->apart, "two norms of a layer that differ", "one norm for both");
    }
    return placed || !to->apart.empty();
}

[[noreturn]] static void not_llama_cpp(const std::string& from, const Attempt& nearest) {
    std::string got, has;
    for (auto& row : nearest.apart) {
        list_add(&got, row.ours);
        list_add(&has, row.theirs);
    }
    die(EXIT_USER, from + ": got " + got + ", wanted a model that llama.cpp computes: the nearest "
        "is " + nearest.model->arch + ", with " + has,
        "leave --to out: transformers opens every model that train_sink exports");
}

// Finds the family of llama.cpp that says the model exactly: its own if that does, else the first.
static Attempt gguf_family(const std::string& from, const Arch& c, const std::vector<StOut>& ours) {
    Attempt nearest;
    bool any = false;
    for (bool own : { true, false }) {
        for (auto& m : GGUF_MODELS) {
            Attempt a;
            if ((c.family == m.model_type) != own || !attempt(m, c, ours, &a)) {
                continue;
            }
            if (a.apart.empty()) { return a; }
            if (!any || a.apart.size() < nearest.apart.size()) {
                nearest = std::move(a);
            }
            any = true;
        }
    }
    if (!any) {
        die(EXIT_USER, from + ": is not a model that a GGUF file can express",
            "leave --to out: transformers opens every model that train_sink exports");
    }
    not_llama_cpp(from, nearest);
}

GgufWritten gguf_export(const std::string& path, const std::string& type, const std::string& from,
                        const Arch& arch, const std::vector<StOut>& ours, const Tokenizer& tok) {
    const Arch c = arch_in_config(arch);
    Attempt a = gguf_family(from, c, ours);
    const GgufStored *matrix = gguf_stored(type), *vector = gguf_stored("f32"),
                     *other = gguf_stored("f16");
    GgufWritten done;
    done.arch = a.model->arch;
    gguf_put(&a.out, "general.file_type", matrix->file_type);
    if (matrix->block > 1) { gguf_put(&a.out, "general.quantization_version", (uint32_t)2); }
    gguf_put_tokenizer(&a.out, tok, c.V);
    for (auto& p : a.parts) {
        const bool plain = p.shape.size() == 1 || p.name == "position_embd.weight",
                   whole = p.shape.back() % matrix->block == 0;
        const GgufStored* stored = whole ? matrix : other;
        done.other += !plain && !whole;
        a.out.tensors.push_back({ p.name, p.shape, p.x.data(), plain ? vector : stored });
    }
    gguf_write(path, a.out);
    return done;
}
