/*
open/import_weights.cpp -- the tensors of another family by our names: where each is in their
files, and how it is part of theirs.
*/
#include "import.h"
#include "../core/config.h"

OurName our_name(const std::string& name) {
    OurName n;
    const char* inside = "model.layers.";
    std::string rest = name;
    if (starts_with(name, inside)) {
        const size_t begin = strlen(inside);
        const size_t dot = name.find('.', begin);
        n.layer = name.substr(begin, dot - begin);
        rest = name.substr(dot + 1);
    }
    const size_t dot = rest.rfind('.');
    n.stem = rest.substr(0, dot);
    n.kind = rest.substr(dot);                   // ".weight" or ".bias"
    return n;
}

// Tells whether a name is that of a row or, if that ends in *, begins so. *theirs is then the name
// of the row, with the rest of ours in place of its *, and the layer in place of its N.
static bool name_fits(const OurName& name, const NameRow& row, std::string* theirs) {
    const std::string ours = row.ours;
    *theirs = row.theirs;
    if (ours.back() != '*') {
        if (name.stem != ours) { return false; }
    } else {
        const size_t n = ours.size() - 1;
        if (name.stem.compare(0, n, ours, 0, n)) { return false; }
        theirs->replace(theirs->size() - 1, 1, name.stem.substr(n));
    }
    const size_t at = theirs->find(".N.");
    if (at != theirs->npos) { theirs->replace(at + 1, 1, name.layer); }
    return true;
}

// Returns the row that follows in a table, or in the one that its last row names.
static const NameRow* next_row(const NameRow* row) {
    row++;
    return row->then ? row->then : row;
}

bool family_name(const Family& family, const NameRow* names, const std::string& ours,
                 std::string* theirs, Fold* fold) {
    const OurName n = our_name(ours);
    *fold = AS_IT_IS;
    *theirs = ours;
    if (!names) { return true; }
    for (; names->ours; names = next_row(names)) {
        if (!name_fits(n, *names, theirs)) { continue; }
        const bool head = n.stem == "lm_head";   // beside the model, without its prefix
        *theirs = (head ? "" : family.prefix) + *theirs + n.kind;
        *fold = names->fold;
        return true;
    }
    return false;
}

// Tells whether one norm may serve both halves of a layer: only where these are parallel.
static bool shares_norm(const Family& family, const Arch& c) {
    return c.parallel && is_one_of(" phi falcon cohere cohere2 ", family.name);
}

TensorSource import_source(const Family& family, const Arch& c, const Weights& files,
                           const std::string& ours) {
    const OurName n = our_name(ours);
    const std::string norm = "h.0.ln_attn.weight";
    const bool two = files.find(family.prefix + norm) || files.find(norm);
    const NameRow* names = family_names(family, c, two);
    if (!names) { return { files.find(ours), AS_IT_IS }; }
    const bool shares = shares_norm(family, c);
    for (; names->ours; names = next_row(names)) {
        std::string theirs;
        if (!name_fits(n, *names, &theirs)) { continue; }
        if (names->fold == ALL_ONES) { return { NULL, ALL_ONES }; }
        const bool second = n.stem == "post_attention_layernorm";
        if (second && !shares && ends_with(theirs, ".input_layernorm")) { continue; }
        for (const std::string& prefix :
             { std::string(family.prefix), std::string("decoder."), std::string() }) {
            const Weight* w = files.find(prefix + theirs + n.kind);
            if (w) { return { w, names->fold }; }
        }
    }
    return { NULL, AS_IT_IS };
}

bool norm_plus_one(const Family& family, Fold fold, const std::string& ours) {
    const bool norm = contains(ours, "norm.weight");
    return family.plus_one && norm && fold != NORM_FACTOR;
}

// Returns the row of Qwen3-Next's q, k, v, z of each key head, one head after the other, that is
// row i of our q of all heads, k of all, v of all.
static long delta_qkv_row(const Arch& c, long i) {
    const long DK = c.delta_key_size;
    const long DV = c.delta_value_size;
    const long shared = c.delta_values / c.delta_keys;   // value heads of a key head
    const long group = 2 * DK + 2 * shared * DV;
    const long keys = c.delta_keys * DK;
    if (i < keys) { return i / DK * group + i % DK; }
    if (i < 2 * keys) { return (i - keys) / DK * group + DK + i % DK; }
    const long head = (i - 2 * keys) / DV;
    const long channel = (i - 2 * keys) % DV;
    return head / shared * group + 2 * DK + head % shared * DV + channel;
}

long import_row(Fold fold, const Arch& c, long i, long theirs_rows) {
    const long HS = c.HS;
    const long group = c.NH / c.KV;
    const long h = i / HS;
    const long d = i % HS;
    const long width = (group + 2) * HS;
    const long shared = c.delta_keys ? c.delta_values / c.delta_keys : 1;
    switch (fold) {
        case STACKED_K:   return (long)c.NH * HS + i;
        case STACKED_V:   return (long)(c.NH + c.KV) * HS + i;
        case GROUPS_Q:    return h / group * width + h % group * HS + d;
        case GROUPS_K:    return h * width + group * HS + d;
        case GROUPS_V:    return h * width + (group + 1) * HS + d;
        case GATED_Q:     return 2 * h * HS + d;
        case GATED_GATE:  return (2 * h + 1) * HS + d;
        case DELTA_QKV:   return delta_qkv_row(c, i);
        case DELTA_Z: {
            const long v = 2L * c.delta_keys * c.delta_key_size + i;     // its v, before it
            return delta_qkv_row(c, v) + shared * c.delta_value_size;
        }
        case DELTA_B:     return i / shared * 2 * shared + i % shared;
        case DELTA_A:     return i / shared * 2 * shared + shared + i % shared;
        case LAST_ROWS:   return theirs_rows - c.F + i;
        case SKIP_TWO:    return i + 2;
        case HALVES_SWAPPED: return i - d + (d + HS / 2) % HS;
        case PAIRED: {
            const long half = rotated(c) / 2;
            return d < 2 * half ? i - d + 2 * (d % half) + d / half : i;
        }
        default:          return i;
    }
}

long import_rows(Fold fold, const Arch& c, long n, long R) {
    switch (fold) {
        case STACKED_Q: case STACKED_K: case STACKED_V:
        case GROUPS_Q: case GROUPS_K: case GROUPS_V: return ((long)c.NH + 2 * c.KV) * c.HS;
        case DELTA_QKV: case DELTA_Z:
            return 2L * (c.delta_keys * c.delta_key_size + c.delta_values * c.delta_value_size);
        case GATED_Q: case GATED_GATE: case DELTA_B: case DELTA_A: return 2 * n;
        case FIRST_HALF: return 2L * c.F;
        case LAST_ROWS: return R == n ? n : 2L * c.F;            // of GGUF: fused or by itself
        case SKIP_TWO: return n + 2;
        default: return n;
    }
}

// Tells whether a matrix is only read row by row, by products and the embedding.
static bool read_by_rows(const std::string& name) {
    return ends_with(name, "_proj.weight") || ends_with(name, "lm_head.weight") ||
           ends_with(name, "embed_tokens.weight");
}

bool weight_stays(const Weight& w, long rows, std::function<long(long)> row_of, const float* out) {
    if (!w.type->read || stays_wanted() == STAY_NONE) { return false; }
    std::vector<const unsigned char*> row;
    for (long i = 0; i < rows; i++) {
        row.push_back(weight_row(w, row_of(i)));
    }
    const long cols = w.cols();
    const auto read = w.type->read;
    const auto read_row = [=](long r, float* to) { read(row[r], cols, to); };
    cpu_folder->stay_at(out, rows, cols, read_row);
    return true;
}

double floats_spared(const Checkpoint& k) {
    const Family* family = family_of(k.config);
    if (!family || stays_wanted() == STAY_NONE) { return 0; }
    const bool turned = family_of_file(k.config, ends_with(k.where, ".gguf")).transposed;
    double spared = 0;
    for (auto& w : k.weights.tensors) {
        const bool matrix = w.shape.size() == 2 && !turned;
        if (matrix && w.type->read) { spared += 4.0 * w.count - w.bytes; }
        if (ends_with(w.name, "_blocks")) { spared += 7.0 * w.bytes; }
    }
    return spared;
}

std::string import_tensor(const Family& family, const Arch& c, const Weights& files,
                          const std::string& name, long rows, long cols, float* out,
                          std::set<std::string>* used) {
    const TensorSource from = import_source(family, c, files, name);
    if (from.fold == ALL_ONES) { std::fill(out, out + rows * cols, 1.0f); return ""; }
    if (!from.w) { return "is missing"; }
    used->insert(from.w->name);
    const Weight& w = *from.w;
    const bool vector = w.shape.size() == 1;
    const bool layer = !our_name(name).layer.empty();
    const bool turned = family.transposed && !vector && layer;
    long R = w.rows();
    long K = w.cols();
    if (vector) {                                // theirs and ours as rows of one number
        R = w.count;
        K = 1;
        rows *= cols;
        cols = 1;
    }
    if (turned) { std::swap(R, K); }
    if (K != cols) { return strf("has rows of %ld numbers, wanted %ld", K, cols); }
    const long there = import_rows(from.fold, c, rows, R);
    if (R != there) { return strf("has %ld rows, wanted %ld", R, there); }
    const bool whole = vector || turned;
    std::vector<float> theirs(whole ? w.count : 0);
    weight_rows(w, 0, whole ? w.rows() : 0, theirs.data());      // dies if the type has no reader
    const auto row_of = [&](long i) { return import_row(from.fold, c, i, R); };
    if (!whole && read_by_rows(name) && weight_stays(w, rows, row_of, out)) { return ""; }
    #pragma omp parallel for
    for (long i = 0; i < rows; i++) {
        const long r = row_of(i);
        if (!whole) { weight_rows(w, r, r + 1, out + i * K); }
        for (long j = 0; whole && j < K; j++) {
            out[i * K + j] = turned ? theirs[j * R + r] : theirs[r * K + j];
        }
    }
    const bool plus_one = norm_plus_one(family, from.fold, name);
    for (long i = 0; plus_one && i < rows * cols; i++) {
        out[i] += 1;
    }
    return "";
}

bool import_projected(const Weights& files, const Arch& c, const std::string& name, float* out,
                      std::set<std::string>* used) {
    const bool head = name == "lm_head.weight";
    const Weight* E = files.find("model.decoder.embed_tokens.weight");
    const std::string project = "model.decoder.project_";
    const Weight* P = files.find(project + (head ? "out.weight" : "in.weight"));
    if (!E || !P || (!head && name != "model.embed_tokens.weight")) {
        return false;
    }
    used->insert({ E->name, P->name });
    std::vector<float> e(E->count), p(P->count);
    weight_floats(*E, e.data());
    weight_floats(*P, p.data());
    const long W = E->cols();
    const long C = c.C;
    if (E->rows() != c.V || P->count != W * C) {
        die(P->file + ": project_in and project_out do not fit");
    }
    for (long v = 0; v < c.V; v++) {
        const float* e_v = &e[v * W];
        float* out_v = out + v * C;
        for (long i = 0; i < C; i++) {
            double sum = 0;
            for (long k = 0; k < W; k++) {
                const float p_ki = head ? p[k * C + i] : p[i * W + k];
                sum += (double)e_v[k] * p_ki;
            }
            out_v[i] = sum;
        }
    }
    return true;
}

bool is_buffer(const std::string& name) {
    for (const char* tail : { "rotary_emb.inv_freq", ".attn.bias", ".attn.masked_bias",
                              ".attention.bias", ".attention.masked_bias" }) {
        if (ends_with(name, tail)) { return true; }
    }
    return false;
}
