/*
open/foreign_weights.cpp -- the index checked against the files, prefixes put back, MXFP4 read.
*/
#include "foreign_weights.h"

static const char* const NOT_WHOLE =
    "the file is damaged or was cut short: use another checkpoint";

// Opens the files that model.safetensors.index.json names. Only what it names is the model: a
// tensor that it does not mention is left out, and one that it mentions must be in the file it
// says.
Weights weights_of_index(const std::string& dir) {
    const std::string path = dir + "/model.safetensors.index.json";
    const Json j = json_file(path);
    const Json* map = j.get("weight_map");
    if (!map || map->type != Json::OBJECT || map->fields.empty()) {
        die(path + ": has no weight_map, wanted an object {tensor: file}", NOT_WHOLE);
    }
    Weights all;
    all.path = path;
    std::unordered_map<std::string, Weights> shards;
    for (auto& f : map->fields) {
        const std::string& file = f.second.string;
        const bool plain = ends_with(file, ".safetensors") && file[0] != '.' &&
                           file.find_first_of("/\\") == file.npos;
        if (f.second.type != Json::STRING || !plain) {
            die(path + ": tensor '" + f.first + "': got file " + json_str(file)
                + ", wanted the name of a .safetensors file beside the index", NOT_WHOLE);
        }
        if (!shards.count(file)) {
            if (!file_exists(dir + "/" + file)) {
                die(dir + "/" + file + ": is missing, but the index names it",
                    "get the missing files of the model");
            }
            shards[file] = safetensors_open(dir + "/" + file);
            all.maps.push_back(shards[file].maps[0]);
        }
        const Weight* t = shards[file].find(f.first);
        if (!t) {
            die(dir + "/" + file + ": has no tensor '" + f.first
                + "', but the index says so", "the files are of different models: get them again");
        }
        weights_add(&all, *t);
    }
    return all;
}

// Gives every tensor the name that name_of returns for its own; "" leaves it out.
static void weights_rename(Weights* w,
                           const std::function<std::string(const std::string&)>& name_of) {
    Weights out;
    for (Weight t : w->tensors) {
        t.name = name_of(t.name);
        if (!t.name.empty()) { weights_add(&out, t); }
    }
    w->tensors.swap(out.tensors);
    w->index.swap(out.index);
}

void weights_headless(Weights* w) {
    static const char* const PREFIXES[][2] = { { "embed_tokens.weight", "model." },
                                               { "embed_in.weight", "gpt_neox." } };
    for (auto& p : PREFIXES) {
        if (!w->find(p[0]) || w->find(std::string(p[1]) + p[0])) { continue; }
        weights_rename(w, [&](const std::string& name) {
            const bool head = starts_with(name, "lm_head.") || starts_with(name, "embed_out.");
            return head ? name : p[1] + name;
        });
    }
}

// ----------------------------------------------------------------------------
// MXFP4 (OCP Microscaling Formats 1.0): 32 numbers of 4 bits, E2M1, and one scale, a power of two

void mxfp4_rows(const Weight& blocks, const Weight& scales, long r0, long r1, float* out) {
    std::vector<long> wanted = scales.shape;
    wanted.push_back(16);
    const WeightType* u8 = number_type("U8");
    if (blocks.type != u8 || scales.type != u8 || blocks.shape != wanted || scales.shape.empty()) {
        die(blocks.file + ": tensors '" + blocks.name + "' and '" + scales.name
            + "' are not MXFP4, wanted U8 [.., n, 16] and U8 [.., n]",
            "the file is damaged: download it again");
    }
    const long n = scales.cols();
    for (long b = r0 * n; b < r1 * n; b++, out += 32) {
        const unsigned char* p = (const unsigned char*)blocks.data + 16 * b;
        const float scale = mxfp4_scale((unsigned char)scales.data[b]);
        for (int i = 0; i < 16; i++) {
            out[2*i]     = scale * MXFP4_VALUES[p[i] & 15];
            out[2*i + 1] = scale * MXFP4_VALUES[p[i] >> 4];
        }
    }
}

void weights_unwrap(Weights* w) {
    static const char* const WRAPPERS[] = { "module.", "_orig_mod.", "_forward_module.",
                                            "_fsdp_wrapped_module.",
                                            "_checkpoint_wrapped_module." };
    weights_rename(w, [&](std::string name) {
        for (auto word : WRAPPERS) {             // a whole word of the name, wherever it is
            for (size_t at = 0; (at = name.find(word, at)) != name.npos;) {
                const bool whole = at == 0 || name[at - 1] == '.';
                if (whole) { name.erase(at, strlen(word)); } else { at++; }
            }
        }
        return name;
    });
}

static bool same_weights(const Weight& a, const Weight& b) {
    if (a.shape != b.shape) { return false; }
    std::vector<float> row_a(a.cols());
    std::vector<float> row_b(a.cols());
    for (long r = 0; r < a.rows(); r++) {
        weight_rows(a, r, r + 1, row_a.data());
        weight_rows(b, r, r + 1, row_b.data());
        if (row_a != row_b) { return false; }
    }
    return true;
}

void lm_head_is_embedding(const Weight& lm_head, const Weight* embedding) {
    if (embedding && same_weights(*embedding, lm_head)) { return; }
    die(lm_head.file + ": '" + lm_head.name +
        "' is not the embedding, to which config.json ties it",
        "if the head is separate, set tie_word_embeddings to false");
}
