/*
core/weights.cpp -- reads a tensor as floats.
*/
#include "weights.h"
#include "../optional.h"

void read_f32(const unsigned char* p, long n, float* out) {
    if (n) { memcpy(out, p, 4 * n); }
}

const WeightType* number_type(const std::string& name) {
    static const WeightType OURS[] = { { "F32", 1, 4, read_f32 }, { "I32", 1, 4, NULL } };   // ids
    for (auto& t : OURS) { if (name == t.name) { return &t; } }
    return open_files ? open_files->number_type(name) : NULL;
}

void weights_close(Weights* w) {
    for (auto& m : w->maps) { map_close(m); }
    *w = Weights();
}

void weights_add(Weights* w, const Weight& one) {
    if (!w->index.emplace(one.name, w->tensors.size()).second) {
        die(one.file + ": tensor '" + one.name + "' appears twice",
            "the file is damaged: download it again");
    }
    w->tensors.push_back(one);
}

void weight_check(const Weight& w) {
    if (w.type->read) { return; }
    die(w.file + ": tensor '" + w.name + "' is of type " + w.type->name +
        ", wanted F32, F16, BF16 or F64", "save the weights as one of these types");
}

void weight_floats(const Weight& w, float* out) {
    weight_check(w);
    w.type->read((const unsigned char*)w.data, w.count, out);
}
