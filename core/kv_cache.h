/*
kv_cache.h -- rows that come after others: a cache of keys and values, with which generate computes
only the new row of a sequence, and a forest of spans that continue each other, with which score
computes a shared beginning once. Both need a backend on the host.
*/
#ifndef KV_CACHE_H
#define KV_CACHE_H
#include "../model.h" // Model, Span, act_qkv

// ---- what is loaded

inline int cached_rows(const Model* m) {
    if (!m->cache || m->spans.size() != 1) { return 0; }
    return m->spans[0].position + m->spans[0].length;
}

// Loads one token, the next after `past` rows whose keys and values are in the cache. The sink
// token, if there is one, is among those rows.
inline void model_load_next(Model* m, int token, int past) {
    model_resize(m, 1, 1 - sink_rows(m));                // it adds the sink token's row: 1 in all
    m->spans = { { 0, 1, 1, past, -1 } };
    positions_extend(m, past + 1L);
    ops::to_device(m->tokens, &token, sizeof token);
}

// Tells whether one row can be computed from keys of rows before it: in host memory, by cpu/.
inline bool cache_works() { return ops::on_host && variant::attention_row[0]; }

// Tells whether sequences can share a beginning: the cache must work, all layers must have
// attention, and there must be neither a sink token nor a prefix (whose rows see what comes later).
inline bool forest_fits(const Model* m) {
    const bool sees_later = m->arch.prefix > 0;
    return cache_works() && m->sizes.all_attend() && !sink_rows(m) && !sees_later;
}

// Loads the tokens of a forest, for a forward pass alone.
inline void model_load_forest(Model* m, const std::vector<int>& tokens,
                              const std::vector<Span>& forest) {
    model_resize(m, tokens.size(), 1);
    for (const Span& span : forest) { positions_extend(m, (long)span.position + span.length); }
    copy_to_device(m->tokens, tokens);
    m->spans = forest;
}

// ---- what is kept between rows

// Counts the numbers of a row in the cache: its keys and values.
inline size_t cached_width(const Model* m) { return 2 * m->sizes.kv_width; }

// Makes an empty cache for sequences of T tokens, if one works here; T = 0 only frees it.
inline void model_cache(Model* m, int T) {
    const Sizes& sizes = m->sizes;
    free_arrays({ m->cache, m->mixer_state });
    m->cache = NULL;
    m->mixer_state = NULL;
    m->T = 0;
    m->spans.clear();
    m->cache_room = T + sink_rows(m);
    if (!T || !cache_works()) { return; }
    const size_t cache_rows = sizes.L * m->cache_room;
    m->cache = device_array<real>(cache_rows * cached_width(m));
    if (sizes.all_attend() || !open_model) { return; }
    m->mixer_state = device_array<acc>(sizes.L * open_model->remembered(m));
}

// Returns the cache of layer l from `row` on: the keys and values of each row.
inline real* layer_cache(const Model* m, int l, size_t row = 0) {
    const size_t rows_before = (size_t)l * m->cache_room + row;
    return row_of(m->cache, rows_before, cached_width(m));
}

// Copies the keys and values of n loaded rows of layer l, from `row` on, to out (n, width).
inline void copy_keys(const Model* m, int l, real* out, size_t row, int n) {
    const size_t width = cached_width(m);
    for (int i = 0; i < n; i++) {
        const real* keys = act_qkv(m, l, row + i) + m->sizes.q_width;
        std::copy_n(keys, width, out + i * width);
    }
}

// ---- attention

// Returns the keys and values that a span sees which continues another: the parent's, then its own.
inline std::vector<real> keys_of_branch(const Model* m, int l, const Span& span) {
    const size_t width = cached_width(m);
    const Span& parent = m->spans[span.parent];
    std::vector<real> keys((span.position + span.length) * width);
    copy_keys(m, l, keys.data(), parent.row, span.position);
    copy_keys(m, l, &keys[span.position * width], span.row, span.length);
    return keys;
}

// Computes attention of a span that comes after other rows, a row at a time.
inline void attention_after(Model* m, int l, const Span& span) {
    std::vector<real> copy;
    const real* keys = layer_cache(m, l);
    if (span.parent >= 0) {
        copy = keys_of_branch(m, l, span);
        keys = copy.data();
    }
    for (int t = 0; t < span.length; t++) {
        const size_t row = span.row + t;
        const AttnShape s = attn_shape(m, l);
        variant::attention_row[s.without_extra](act_att(m, l, row), act_qkv(m, l, row), keys,
                                                extra_key(m, l), span.position + t, s);
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
