/*
kv_cache.h -- rows that come after others: a cache of keys and values, with which generate computes
only the new row of a sequence, and a forest of spans that continue each other, with which score
computes a shared beginning once. Both need a backend on the host.
*/
#ifndef KV_CACHE_H
#define KV_CACHE_H
#include "model.h" // Model, Span, act_qkv

// ---- what is loaded

// how many rows of its sequence the cache has
inline int cached_rows(const Model* m) {
    return m->cache && m->spans.size() == 1 ? m->spans[0].position + m->spans[0].length : 0;
}

// Loads one token, the next after `past` rows whose keys and values are in the cache. The sink
// token, if there is one, is among those rows
inline void model_load_next(Model* m, int token, int past) {
    if (m->B != 1 || m->T != 1 || !m->arena) { model_resize(m, 1, 1 - m->sizes.bias.token); }
    m->spans = { { 0, 1, 1, past, -1 } };
    model_reach(m, past + 1L);
    ops::to_device(m->tokens, &token, sizeof token);
}

// Tells whether sequences can share a beginning: attention must run on the host, all layers must
// have it, and there must be neither a sink token nor a prefix (whose rows see what comes later)
inline bool forest_fits(const Model* m) {
    return ops::on_host && !m->sizes.bias.token && !m->arch.prefix && !mixer_of(m->arch);
}

// Loads the tokens of a forest, for a forward pass alone.
inline void model_load_forest(Model* m, const std::vector<int>& tokens,
                              const std::vector<Span>& forest) {
    model_resize(m, tokens.size(), 1);
    for (const Span& span : forest) { model_reach(m, (long)span.position + span.length); }
    ops::to_device(m->tokens, tokens.data(), tokens.size() * sizeof(int));
    m->spans = forest;
}

// how many numbers a layer without attention remembers: models/mamba.h, models/delta.h
inline size_t mixer_numbers(const Model* m) {
    const Arch& c = m->arch;
    const size_t mamba = m->sizes.MW * (m->sizes.MS + c.mamba_conv - 1);
    const size_t matrices = (size_t)c.delta_values * c.delta_key_size * c.delta_value_size;
    return c.delta_values ? matrices + m->sizes.DW * (c.delta_conv - 1) : mamba;
}

// Makes an empty cache for sequences of T tokens, if host code can read it; T = 0 only frees it.
inline void model_cache(Model* m, int T) {
    const Sizes& d = m->sizes;
    ops::device_free(m->cache);
    ops::device_free(m->memory);
    m->cache = NULL;
    m->memory = NULL;
    m->T = 0;
    m->spans.clear();
    m->room = T + d.bias.token;
    if (!T || !ops::on_host) { return; }
    m->cache = (real*)ops::device_malloc(d.L * m->room * 2 * d.KV * d.HS * sizeof(real));
    if (!mixer_of(m->arch)) { return; }
    m->memory = (acc*)ops::device_malloc(d.L * mixer_numbers(m) * sizeof(acc));
}

// ---- attention

// the cache of layer l: (room, 2 KV HS), the keys and values of each row
inline real* layer_cache(const Model* m, int l) {
    const size_t width = 2 * m->sizes.KV * m->sizes.HS;
    return m->cache + (size_t)l * m->room * width;
}

// Copies keys and values of n rows from q|k|v to out (n, 2 KV HS).
inline void copy_keys(const Model* m, real* out, const real* qkv, int n) {
    const size_t q_width = m->sizes.NH * m->sizes.HS;
    const size_t width = m->sizes.W - q_width;
    for (int t = 0; t < n; t++) {
        const real* keys = qkv + t * m->sizes.W + q_width;
        std::copy_n(keys, width, out + t * width);
    }
}

// Appends the keys and values of the rows that are loaded to the cache of layer l.
inline void cache_append(Model* m, int l) {
    const size_t width = 2 * m->sizes.KV * m->sizes.HS;
    const Span& span = m->spans[0];
    copy_keys(m, layer_cache(m, l) + span.position * width, act_qkv(m, l), rows(m));
}

// Returns the keys and values that a span sees which continues another: the parent's, then its own.
inline std::vector<real> keys_of_branch(const Model* m, int l, const Span& span) {
    const size_t width = 2 * m->sizes.KV * m->sizes.HS;
    const Span& parent = m->spans[span.parent];
    const real* qkv = act_qkv(m, l);
    std::vector<real> keys((span.position + span.length) * width);
    copy_keys(m, keys.data(), qkv + (size_t)parent.row * m->sizes.W, span.position);
    copy_keys(m, &keys[span.position * width], qkv + (size_t)span.row * m->sizes.W, span.length);
    return keys;
}

// Computes attention of a span that comes after other rows, a row at a time.
inline void attention_after(Model* m, int l, const Span& span) {
    std::vector<real> copy;
    if (span.parent >= 0) { copy = keys_of_branch(m, l, span); }
    const real* keys = span.parent >= 0 ? copy.data() : layer_cache(m, l);
    for (int t = 0; t < span.length; t++) {
        const size_t row = span.row + t;
        real* out = act_att(m, l) + row * m->sizes.NH * m->sizes.HS;
        const real* q = act_qkv(m, l) + row * m->sizes.W;
        variant::attention_row(out, q, keys, star_k(m, l), star_v(m, l), span.position + t,
                               attn_shape(m, l));
    }
}

// Computes attention of all spans that come after other rows. They are short: a thread takes one.
inline void attention_continued(Model* m, int l) {
    const int n = m->spans.size();
    #pragma omp parallel for schedule(dynamic) if (n > 1)
    for (int i = 0; i < n; i++) {
        if (m->spans[i].position > 0) { attention_after(m, l, m->spans[i]); }
    }
}
#endif // KV_CACHE_H
