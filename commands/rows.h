/*
rows.h -- attention where not whole sequences are loaded: one row after the other, with what was
read before in a cache (generate), and segments that continue another (score). On the host.
*/
#ifndef ROWS_H
#define ROWS_H

// copies k and v of the rows that are loaded to their places in the cache; returns where layer l
// begins there
static const real* cache_keep(Model* m, int l) {
    const size_t q = m->d.NH * m->d.HS, kv = m->d.W - q;
    real* cache = m->cache + (size_t)l * m->room * kv;
    for (int t = 0; t < rows(m); t++) {
        memcpy((void*)(cache + (m->past + t) * kv), act_qkv(m, l) + t * m->d.W + q,
               kv * sizeof(real));
    }
    return cache;
}

// a segment that continues another: its rows see the keys and values of that one, then their own
static void attention_branch(Model* m, int l, const Segment& part) {
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

static void attention_forest(Model* m, int l) {
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
#endif // ROWS_H
