/*
sink_at.h -- --sink-at: Sink_k of any token k; the regular metrics stop at METRIC_K. Computed on the
host, from the attention activations of a forward pass.
*/
#ifndef SINK_AT_H
#define SINK_AT_H
#include "../flags.h"
#include "../log.h"
#include "../core/measure.h"
#include "head_maps.h"

typedef HostHead<Attn, Bias, Pe, real, acc> AnyHead;

// A layer's attention activations, in host memory.
struct AttentionHost {
    std::vector<real> qkv;      // (N, qkv_width)
    std::vector<acc> stat;      // (B, NH, T, 2)
    std::vector<real> extra;    // z of each head, or k* of each key/value head; empty: not learned
    AttnShape s;                // without_extra if that changes no output

    // Returns head h of sequence b.
    AnyHead head(int b, int h) const {
        return { qkv.data(), stat.data(), extra.data(), b, h, s };
    }
};

// Copies layer l's attention activations to host memory.
inline AttentionHost attention_host(const Model* m, int l) {
    const Sizes& sizes = m->sizes;
    const size_t N = rows(m);
    AttentionHost x;
    x.qkv = copy_to_host(act_qkv(m, l), N * sizes.qkv_width);
    x.stat = copy_to_host(act_stat(m, l), N * sizes.NH * 2);
    x.s = attn_shape(m, l);
    x.s.without_extra |= extra_has_no_effect(m->arch);
    const real* extra = extra_k(m, l);
    if (!extra || x.s.without_extra) { return x; }
    const long keys = bias_rows(m->arch) * sizes.HS;
    x.extra = copy_to_host(extra, sizes.bias.extra == LOGIT_EXTRA ? sizes.NH : keys);
    return x;
}

// alpha of chosen tokens.
struct SinkAt {
    std::vector<int> tokens;                     // from 1
    std::vector<std::vector<double>> alpha;      // per token: every sequence, layer and head so far
};

// Adds layer l of the loaded batch.
inline void sink_at_add(SinkAt* at, const Model* m, int l) {
    if (at->tokens.empty()) { return; }
    const AttentionHost x = attention_host(m, l);
    const AttnShape& s = x.s;
    const int skip = sink_rows(m);
    std::vector<std::vector<double>> alpha((size_t)s.B * s.NH);
    #pragma omp parallel for schedule(dynamic)
    for (int i = 0; i < s.B * s.NH; i++) {
        alpha[i] = x.head(i / s.NH, i % s.NH).alphas(at->tokens, skip);
    }
    for (size_t k = 0; k < at->tokens.size(); k++) {
        const float factor = seen_factor(m, l, at->tokens[k]);
        for (auto& head : alpha) { at->alpha[k].push_back(head[k] * factor); }
    }
}

// Returns Sink_k^eps of token i in the list.
inline double sink_at_rate(const SinkAt& at, size_t i, double eps) {
    double hits = 0;
    for (double alpha : at.alpha[i]) { hits += alpha > eps; }
    return hits / at.alpha[i].size();
}

// Reads "15,20". Ends the program at a token that sequences of T tokens do not have.
inline SinkAt sink_at_parse(const std::string& text, int T) {
    SinkAt at;
    if (text.empty()) { return at; }
    for (double k : flag_list("--sink-at", text)) {
        require(k >= 1 && k <= T && k == floor(k), strf("--sink-at %g", k), strf("1 to %d", T));
        at.tokens.push_back(k);
    }
    at.alpha.resize(at.tokens.size());
    return at;
}

// Writes " | Sink_15 52.8%, Sink_20 51.7%", or nothing.
inline std::string sink_at_text(const SinkAt& at, double eps) {
    std::string o;
    for (size_t i = 0; i < at.tokens.size(); i++) {
        o += i ? ", " : " | ";
        o += strf("Sink_%d %.1f%%", at.tokens[i], 100 * sink_at_rate(at, i, eps));
    }
    return o;
}

// Adds the same as a field: a row for each eps, a column for each token.
inline void sink_at_field(JsonObject* o, const SinkAt& at, const std::vector<double>& eps) {
    if (at.tokens.empty()) { return; }
    std::vector<double> rates;
    for (double e : eps) {
        for (size_t i = 0; i < at.tokens.size(); i++) { rates.push_back(sink_at_rate(at, i, e)); }
    }
    JsonObject field;
    field.array("k", std::vector<double>(at.tokens.begin(), at.tokens.end()));
    field.array("eps", eps);
    field.json("sink_k", json_matrix(rates, at.tokens.size()));
    o->json("sink_at", field.all());
}
#endif // SINK_AT_H
