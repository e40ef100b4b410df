/*
sink_at.h -- --sink-at: Sink_k of any tokens k, where the metrics of every evaluation stop at
METRIC_K. It is worked out on the host, from what a forward pass leaves of attention.
*/
#ifndef SINK_AT_H
#define SINK_AT_H

// what attention left of layer l, in host memory: qkv (N, W), stat (B, NH, T, 2); star: z of each
// head, or k* of each key/value head; empty if nothing is learned
struct AttentionHost { std::vector<real> qkv, star; std::vector<acc> stat; };

static AttentionHost attention_host(const Model* m, int l) {
    const Arch& c = m->c;
    AttentionHost x;
    x.qkv.resize((size_t)rows(m) * attn_row(attn_shape(m, l)));
    x.stat.resize((size_t)rows(m) * c.NH * 2);
    const size_t star = m->d.bias.column == LOGIT_COLUMN ? c.NH : (size_t)bias_rows(c) * c.HS;
    if (star_k(m, l)) { x.star.resize(star); }
    ops::to_host(x.qkv.data(), act_qkv(m, l), x.qkv.size() * sizeof(real));
    ops::to_host(x.stat.data(), act_stat(m, l), x.stat.size() * sizeof(acc));
    if (!x.star.empty()) { ops::to_host(x.star.data(), star_k(m, l), star * sizeof(real)); }
    return x;
}

// alpha of each of these tokens: one for every sequence, layer and head that was read
struct SinkAt {
    std::vector<int> tokens;                     // from 1
    std::vector<std::vector<double>> alpha;
};

// layer l of the batch that is loaded joins them
static void sink_at_add(SinkAt* at, const Model* m, int l) {
    if (at->tokens.empty()) { return; }
    const AttentionHost x = attention_host(m, l);
    const AttnShape s = attn_shape(m, l);
    const int skip = m->d.bias.token;
    const real* star = x.star.empty() ? NULL : x.star.data();
    const auto alphas = column_idle(m->c) ? head_alphas<Attn, Bias_none, Pe, real, acc>
                                          : head_alphas<Attn, Bias, Pe, real, acc>;
    std::vector<std::vector<double>> alpha((size_t)s.B * s.NH);
    #pragma omp parallel for schedule(dynamic)
    for (int i = 0; i < s.B * s.NH; i++) {
        const size_t row = (size_t)(i / s.NH) * s.T;
        alpha[i] = alphas(at->tokens, &x.qkv[row * attn_row(s)], &x.stat[row * s.NH * 2], star,
                          skip, i % s.NH, s);
    }
    for (size_t k = 0; k < at->tokens.size(); k++) {
        const int token = at->tokens[k];
        for (auto& head : alpha) { at->alpha[k].push_back(head[k] * seen_factor(m, l, token)); }
    }
}

// Sink_k^eps of the token in place i of the list
static double sink_at_rate(const SinkAt& at, size_t i, double eps) {
    double hits = 0;
    for (double alpha : at.alpha[i]) { hits += alpha > eps; }
    return hits / at.alpha[i].size();
}

#ifndef MODEL_ONLY // the tests of the model stop reading here
// "15,20", of sequences of T tokens; dies at what they do not have
static SinkAt sink_at_parse(const std::string& text, int T) {
    SinkAt at;
    if (text.empty()) { return at; }
    for (double k : flag_list("--sink-at", text)) {
        want(k >= 1 && k <= T && k == floor(k), strf("--sink-at %g", k), strf("1 to %d", T));
        at.tokens.push_back(k);
    }
    at.alpha.resize(at.tokens.size());
    return at;
}

// " | Sink_15 52.8%, Sink_20 51.7%", or nothing
static std::string sink_at_text(const SinkAt& at, double eps) {
    std::string o;
    for (size_t i = 0; i < at.tokens.size(); i++) {
        o += i ? ", " : " | ";
        o += strf("Sink_%d %.1f%%", at.tokens[i], 100 * sink_at_rate(at, i, eps));
    }
    return o;
}

// the same as a field of an object: a row for each eps, a column for each token
static std::string sink_at_json(const SinkAt& at, const std::vector<double>& eps) {
    if (at.tokens.empty()) { return ""; }
    std::vector<double> rates;
    for (double e : eps) {
        for (size_t i = 0; i < at.tokens.size(); i++) { rates.push_back(sink_at_rate(at, i, e)); }
    }
    return ",\"sink_at\":{\"k\":" +
           json_array(std::vector<double>(at.tokens.begin(), at.tokens.end())) +
           ",\"eps\":" + json_array(eps) + ",\"sink_k\":" + json_matrix(rates, at.tokens.size()) +
           "}";
}
#endif // MODEL_ONLY
#endif // SINK_AT_H
