/*
anatomy.cpp -- probe --anatomy: three tables and what they say, and the object of --json.
*/
#include "anatomy.h"
#include "../run/probe_data.h"
#include "../flags.h"
#include "cell.h"

static void print_stream(const Anatomy& a, const Tokenizer& tok) {
    printf("1. The stream. After each layer: the largest entry of any h; the norm that attention "
           "and\n   the FFN write at token 1, over that at the others; h of token 1 in channel %d\n"
           "layer   largest   channel      attn       FFN  channel c  token\n", a.channel);
    for (size_t l = 0; l < a.layers.size(); l++) {
        const AnatomyLayer& layer = a.layers[l];
        printf("%5zu", l);
        print_cells({ layer.spike, layer.spike_channel, layer.attn_first / layer.attn_rest,
                      layer.ffn_first / layer.ffn_rest, layer.state });
        printf("   %g %s", layer.spike_token, quoted_token(tok, layer.spike_id).c_str());
        if ((int)l == a.step_up)   { printf("  steps up"); }
        if ((int)l == a.step_down) { printf("  steps down"); }
        printf("\n");
    }
}

static void print_form(const Anatomy& a) {
    printf("\n2. The FFN writes x'Sx into channel %d, where swish(z) is close to z. S "
           "amplifies one\n   direction where its first eigenvalue is many times the second; beside"
           " it the median\n   in %d others. Then how well token 1 and the others lie in that "
           "direction, and how\n   much one neuron writes\n"
           "layer     wrote      x'Sx eigenvalues, 1 2        ratio    others     |cos|    others"
           "    neuron     share     three\n", a.channel, OTHER_CHANNELS);
    for (size_t l = 0; l < a.layers.size(); l++) {
        const AnatomyLayer& layer = a.layers[l];
        std::vector<double> two = layer.eigenvalues;
        two.resize(2, NAN);
        printf("%5zu", l);
        print_cells({ layer.wrote, layer.form, two[0], two[1], layer.ratio, layer.ratio_others,
                      layer.aligned_first, layer.aligned_rest, layer.neuron, layer.share,
                      layer.share_three });
        printf("\n");
    }
}

static void print_reads(const Anatomy& a) {
    printf("\n3. What attention and the FFN then read of token 1: how many channels share it, and "
           "its cosine\n   between sequences; beside it that of token %d\n"
           "            attention reads               the FFN reads\n"
           "layer  channels    cosine     later  channels    cosine     later\n", a.T / 2 + 1);
    for (size_t l = 0; l < a.layers.size(); l++) {
        const AnatomyLayer& layer = a.layers[l];
        printf("%5zu", l);
        print_cells({ layer.attn_spread, layer.attn_same, layer.attn_same_later, layer.ffn_spread,
                      layer.ffn_same, layer.ffn_same_later });
        printf("\n");
    }
}

// Says what happens in a layer where token 1 grows or shrinks.
static void print_step(const Anatomy& a, int l, const char* steps) {
    const AnatomyLayer& layer = a.layers[l];
    printf("layer %d steps %s: channel %d of token 1 is %.5g after it.", l, steps, a.channel,
           layer.state);
    if (std::isfinite(layer.share)) {
        printf(" Its FFN wrote %.5g, %.0f%% of it neuron %g", layer.wrote, 100 * layer.share,
               layer.neuron);
    }
    if (std::isfinite(layer.form)) {
        printf("; x'Sx is %.5g, and S has the eigenvalue %.4g", layer.form, layer.eigenvalues[0]);
    }
    if (!std::isnan(layer.ratio)) {
        printf(", %.1f times the next (%.2f in other channels)", layer.ratio, layer.ratio_others);
    }
    printf("\n");
}

static std::string anatomy_json(const Anatomy& a) {
    JsonObject o;
    o.count("channel", a.channel);
    o.count("step_up", a.step_up);
    o.json("step_down", a.step_down < 0 ? "null" : strf("%d", a.step_down));
    std::vector<std::string> eigenvalues;
    for (auto& layer : a.layers) { eigenvalues.push_back(json_array(layer.eigenvalues)); }
    o.json("eigenvalues", json_list(eigenvalues));
    const auto by_layer = [&](const char* key, double AnatomyLayer::*field) {
        std::vector<double> x;
        for (auto& layer : a.layers) { x.push_back(layer.*field); }
        o.array(key, x);
    };
    #define X(field, ...) by_layer(#field, &AnatomyLayer::field);
    ANATOMY(X)
    #undef X
    return o.all();
}

void probe_anatomy(Model* m, const Flags& f, const ProbeInput& in, int T, JsonObject* o) {
    if (!f.anatomy) { return; }
    require(sizeof(real) >= sizeof(float), "--anatomy of activations in bf16",
            "a build with PRECISION=fp32: what a branch writes is a small difference of large h");
    require(T >= 2, strf("--anatomy with --probe-len %d", T), "2 or more");
    const Anatomy a = anatomy_measure(m, { in.x.data(), in.n, T });
    progress_clear();
    print_stream(a, tokenizer_shown(f.tokenizer, m->arch.V));
    print_form(a);
    print_reads(a);
    printf("\n");
    print_step(a, a.step_up, "up");
    if (a.step_down >= 0) { print_step(a, a.step_down, "down"); }
    o->json("anatomy", anatomy_json(a));
}
