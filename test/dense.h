/*
dense.h -- matrices written out in double, for tests that compute what a model measures a second
time. Include after model_unit.h.
*/
#ifndef DENSE_H
#define DENSE_H

typedef std::vector<Vector> Mat;

// the rows of a tensor of layer l: "mlp.up_proj" or "self_attn.k_star"; empty if there is none
static Mat weight(const Model& m, int l, const std::string& name) {
    Mat w;
    const std::string whole = strf("model.layers.%d.%s", l, name.c_str());
    for (auto& t : m.tensors) {
        if (t.name != whole && t.name != whole + ".weight") { continue; }
        const long cols = t.shape.back();
        for (long i = 0; i < t.count; i += cols) {
            w.push_back(Vector(m.params_memory + t.at + i, m.params_memory + t.at + i + cols));
        }
    }
    return w;
}

static double times(const Vector& a, const Vector& b) {
    double sum = 0;
    for (size_t i = 0; i < a.size(); i++) { sum += a[i] * b[i]; }
    return sum;
}
#endif // DENSE_H
