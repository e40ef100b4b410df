/*
open/import_experts.cpp -- copies each expert's rows to their place in the two matrices, from any of
the three layouts.
*/
#include "foreign_weights.h"
#include "import_experts.h"

struct ExpertsImport {
    const Weights& files;
    const Arch& c;
    std::string layer;                           // "model.layers.3."
    std::set<std::string>* used;

    // the first of these tensors that is there, NULL if none is; E stands for the expert
    const Weight* find(int e, std::initializer_list<const char*> names) const {
        for (std::string name : names) {
            const size_t at = name.find(".E.");
            if (at != std::string::npos) {
                name.replace(at + 1, 1, strf("%d", e));
            }
            if (const Weight* w = files.find(layer + name)) { return w; }
        }
        return NULL;
    }

    void fits(const Weight& w, bool ok) const {
        used->insert(w.name);
        if (ok) { return; }
        die(w.file + ": tensor '" + w.name + "' does not have the shape that this model wants",
            "config.json and the weights are of different models: get both again");
    }

    // Reads a matrix or vector of one expert, all of a tensor of its own.
    void own(const Weight& w, long count, float* out) const {
        fits(w, w.count == count);
        weight_rows(w, 0, w.rows(), out);
    }

    // Reads rows of a matrix, from row `first` on; they may stay in their file.
    void matrix(const Weight& w, long first, long rows, float* out) const {
        const auto row_of = [=](long i) { return first + i; };
        if (!weight_stays(w, rows, row_of, out)) { weight_rows(w, first, first + rows, out); }
    }

    // Reads a matrix of one expert, all of a tensor of its own.
    void whole(const Weight& w, long rows, long cols, float* out) const {
        fits(w, w.count == rows * cols && w.cols() == cols);
        matrix(w, 0, rows, out);
    }

    // Reads expert e of a tensor of all experts: rows x cols of ours, theirs turned.
    bool turned(const std::string& name, int e, long rows, long cols, float* out) const {
        const Weight* w = files.find(layer + name);
        if (!w) { return false; }
        fits(*w, w->shape == std::vector<long>{ c.experts, cols, rows });
        std::vector<float> t(rows * cols);
        weight_rows(*w, e * cols, (e + 1) * cols, t.data());
        for (long r = 0; r < rows; r++) {
            for (long k = 0; k < cols; k++) {
                out[r * cols + k] = t[k * rows + r];
            }
        }
        return true;
    }

    // the same as MXFP4, blocks [experts, rows, cols / 32, 16] and scales [experts, rows, cols /
    // 32]; row_of(i): their row that is our row i
    bool packed(const std::string& name, int e, long rows, long cols,
                std::function<long(long)> row_of, float* out) const {
        const Weight *blocks = files.find(layer + name + "_blocks");
        const Weight *scales = files.find(layer + name + "_scales");
        if (!blocks || !scales) { return false; }
        used->insert(blocks->name);
        fits(*scales,
             cols % 32 == 0 && scales->shape == std::vector<long>{ c.experts, rows, cols / 32 });
        const auto read = [=, b = *blocks, s = *scales](long i, float* to) {
            const long r = e * rows + row_of(i);
            mxfp4_rows(b, s, r, r + 1, to);
        };
        std::vector<float> first(cols);
        read(0, first.data());                           // dies if these are no blocks
        if (stays_wanted() == STAY_ALL) {
            cpu_folder->stay_at(out, rows, cols, read);
        } else {
            for (long i = 0; i < rows; i++) {
                read(i, out + i * cols);
            }
        }
        return true;
    }

    // Reads expert e of a tensor of all experts, [experts, rows, cols], as GGUF files and Granite
    // have it.
    bool slice(const char* name, int e, long rows, long cols, float* out) const {
        const Weight* w = files.find(layer + name);
        if (!w) { return false; }
        fits(*w, w->shape == std::vector<long>{ c.experts, rows, cols });
        matrix(*w, e * rows, rows, out);
        return true;
    }

    // Reads gate over up of expert e, (2F, C).
    bool gate_up(int e, float* out) const {
        const long F = c.F;
        const long C = c.C;
        if (slice("mlp.experts.gate_exps.weight", e, F, C, out)) {
            return slice("mlp.experts.up_exps.weight", e, F, C, out + F * C);
        }
        if (slice("block_sparse_moe.input_linear.weight", e, 2 * F, C, out)) { return true; }
        const Weight* gate = find(e, { "block_sparse_moe.experts.E.w1.weight",
                                       "mlp.experts.E.gate_proj.weight",
                                       "feed_forward.experts.E.gate_proj.weight" });
        const Weight* up = find(e, { "block_sparse_moe.experts.E.w3.weight",
                                     "mlp.experts.E.up_proj.weight",
                                     "feed_forward.experts.E.up_proj.weight" });
        if (gate && up) {
            whole(*gate, F, C, out);
            whole(*up, F, C, out + F * C);
            return true;
        }
        const std::string name = "mlp.experts.gate_up_proj";
        const auto in_turn = [=](long i) { return i % F * 2 + i / F; };
        if (packed(name, e, 2 * F, C, in_turn, out)) { return true; }
        std::vector<float> mixed(2 * F * C);
        const bool there = turned(name, e, 2 * F, C, mixed.data());
        for (long i = 0; there && i < 2 * F; i++) {
            std::copy_n(&mixed[in_turn(i) * C], C, out + i * C);
        }
        return there;
    }

    // Reads down of expert e, (C, F).
    bool down(int e, float* out) const {
        const Weight* w = find(e, { "block_sparse_moe.experts.E.w2.weight",
                                    "mlp.experts.E.down_proj.weight",
                                    "feed_forward.experts.E.down_proj.weight" });
        if (w) { whole(*w, c.C, c.F, out); return true; }
        const std::string name = "mlp.experts.down_proj";
        const auto same = [](long i) { return i; };
        return turned(name, e, c.C, c.F, out) || packed(name, e, c.C, c.F, same, out) ||
               slice("mlp.experts.down_exps.weight", e, c.C, c.F, out) ||
               slice("block_sparse_moe.output_linear.weight", e, c.C, c.F, out);
    }

    // Reads the biases of all experts in a GGUF file, those of gate before those of up.
    bool gate_up_biases(float* out) const {
        const long F = c.F;
        for (const std::string part : { "gate", "up" }) {
            const Weight* w = files.find(layer + "mlp.experts." + part + "_exps.bias");
            if (!w) { return false; }
            std::vector<float> all(c.experts * F);
            own(*w, all.size(), all.data());
            for (long e = 0; e < c.experts; e++) {
                std::copy_n(&all[e * F], F, out + 2 * e * F);
            }
            out += F;
        }
        return true;
    }

    // Reads the biases of all experts, `width` each; those of gate and up take turns.
    bool bias(const char* name, long width, bool in_turn, float* out) const {
        const Weight* w = files.find(layer + name);
        if (!w) { return false; }
        const long all = c.experts * width;
        const long half = width / 2;
        own(*w, all, out);
        const std::vector<float> mixed(out, out + (in_turn ? all : 0));
        for (long i = 0; i < (long)mixed.size(); i++) {
            const long r = i % width;
            out[i - r + r / 2 + r % 2 * half] = mixed[i];
        }
        return true;
    }
};

bool import_experts(const Weights& files, const Arch& c, const std::string& name, float* out,
                    std::set<std::string>* used, std::string* wrong) {
    const OurName n = our_name(name);
    const bool router = n.stem == "mlp.router";
    const bool up = n.stem == "mlp.experts.gate_up_proj";
    if (!router && !up && n.stem != "mlp.experts.down_proj") { return false; }
    const ExpertsImport in = { files, c, "model.layers." + n.layer + ".", used };
    const long C = c.C;
    const long F = c.F;
    bool there = true;
    if (router) {
        const Weight* w = in.files.find(in.layer + "mlp.router" + n.kind);
        if (!w) { w = in.find(0, { "block_sparse_moe.gate.weight", "mlp.gate.weight",
                                   "block_sparse_moe.router.layer.weight",
                                   "feed_forward.router.weight" }); }
        there = w;
        if (w) {
            in.own(*w, n.kind == ".bias" ? c.experts : c.experts * C, out);
        }
    } else if (n.kind == ".bias") {
        there = up ? in.bias("mlp.experts.gate_up_proj_bias", 2 * F, true, out) ||
                         in.gate_up_biases(out)
                   : in.bias("mlp.experts.down_proj_bias", C, false, out) ||
                         in.bias("mlp.experts.down_exps.bias", C, false, out);
    } else {
        for (int e = 0; e < c.experts; e++) {
            there = there && (up ? in.gate_up(e, out + e * 2 * F * C)
                                 : in.down(e, out + e * F * C));
        }
    }
    *wrong = there ? "" : "is missing";
    return true;
}
