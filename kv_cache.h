/*
kv_cache.h -- rows that come after others: a cache of keys and values, with which generate computes
only the new row of a sequence, and a forest of segments that continue each other, with which score
computes a shared beginning once. Both need a backend on the host.
*/
#ifndef KV_CACHE_H
#define KV_CACHE_H
#include "model.h" // Model, Segment, act_qkv

// ---- what is loaded
// one token, the next after `past` rows, whose k and v are in the cache. The sink token, if there
// is one, is among those
inline void model_load_next(Model* m, int token, int past) {
    if (m->B != 1 || m->T != 1 || !m->arena) { model_resize(m, 1, 1 - m->d.bias.token); }
    m->past = past;
    model_reach(m, past + 1L);
    ops::to_device(m->tokens, &token, sizeof token);
}

// Can sequences share a beginning? If attention runs on the host, no layer is Mamba, and there is
// neither a sink token nor a prefix (whose rows see what comes later)
inline bool forest_fits(const Model* m) {
    return ops::on_host && !m->d.bias.token && !m->c.prefix && !m->c.mamba_width;
}

// the tokens of all segments, for a forward pass alone
inline void model_load_forest(Model* m, const std::vector<int>& tokens,
                                     const std::vector<Segment>& forest) {
    m->past = 0;
    model_resize(m, tokens.size(), 1);
    for (auto& part : forest) { model_reach(m, (long)part.past + part.n); }
    ops::to_device(m->tokens, tokens.data(), tokens.size() * sizeof(int));
    m->forest = forest;
}

// how many numbers a Mamba layer remembers: models/mamba.h
inline size_t mamba_numbers(const Model* m) {
    return m->d.MW * (m->d.MS + m->c.mamba_conv - 1);
}

// an empty cache for sequences of T tokens, if host code can read it; T = 0: none
inline void model_cache(Model* m, int T) {
    const Sizes& d = m->d;
    for (void* p : { (void*)m->cache, (void*)m->memory }) { ops::device_free(p); }
    m->cache = NULL;
    m->memory = NULL;
    m->past = m->T = 0;
    m->room = T + d.bias.token;
    if (!T || !ops::on_host) { return; }
    m->cache = (real*)ops::device_malloc(d.L * m->room * 2 * d.KV * d.HS * sizeof(real));
    if (!m->c.mamba_width) { return; }
    m->memory = (acc*)ops::device_malloc(d.L * mamba_numbers(m) * sizeof(acc));
}

// ---- attention

// copies k and v of the rows that are loaded to their places in the cache; returns where layer l
// begins there
inline const real* cache_keep(Model* m, int l) {
    const size_t q = m->d.NH * m->d.HS, kv = m->d.W - q;
    real* cache = m->cache + (size_t)l * m->room * kv;
    for (int t = 0; t < rows(m); t++) {
        memcpy((void*)(cache + (m->past + t) * kv), act_qkv(m, l) + t * m->d.W + q,
               kv * sizeof(real));
    }
    return cache;
}

// a segment that continues another: its rows see the keys and values of that one, then their own
inline void attention_branch(Model* m, int l, const Segment& part) {
    const size_t W = m->d.W, q = m->d.NH * m->d.HS, kv = W - q;
    const real* qkv = act_qkv(m, l);
    std::vector<real> seen((part.past + part.n) * kv);
    for (int t = 0; t < part.past + part.n; t++) {
        const int row = t < part.past ? m->forest[part.parent].at + t : part.at + t - part.past;
        std::copy_n(qkv + row * W + q, kv, &seen[t * kv]);
    }
    for (int t = 0; t < part.n; t++) {
        const size_t row = part.at + t;
        variant::attention_row(act_att(m, l) + row * q, qkv + row * W, seen.data(), star_k(m, l),
                               star_v(m, l), part.past + t, attn_shape(m, l));
    }
}

inline void attention_forest(Model* m, int l) {
    AttnShape s = attn_shape(m, l);
    s.B = 1;
    for (auto& part : m->forest) {
        if (part.parent >= 0) { continue; }
        s.T = part.n;
        variant::attention_forward(
            act_att(m, l) + (size_t)part.at * m->d.NH * m->d.HS,
            act_stat(m, l) + (size_t)part.at * m->d.NH * 2, act_qkv(m, l) + part.at * m->d.W,
            star_k(m, l), star_v(m, l), s);
    }
    #pragma omp parallel for schedule(dynamic)
    for (size_t i = 0; i < m->forest.size(); i++) {
        if (m->forest[i].parent >= 0) { attention_branch(m, l, m->forest[i]); }
    }
}
#endif // KV_CACHE_H
