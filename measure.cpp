/*
measure.cpp -- what measure.h declares.
*/
#include "measure.h"

// what is measured of one batch of sequences, in device memory until all layers are done
struct Measured {
    HeadMetrics* heads;                          // (A, B, NH), A the layers with attention
    // norms (L+1, N), (A, N, KV) twice, (2L, N); largest and median (L+1, B, 2)
    acc *h, *k, *v, *pre, *sizes;
    size_t bytes;
};

// points into base, or only counts
static Measured measured_point(const Model* m, char* base) {
    const size_t L = m->arch.L, A = m->sizes.attending(L), N = rows(m), KV = m->arch.KV;
    Measured r = Measured();
    auto place = [&](size_t bytes) {
        char* p = base + r.bytes;
        r.bytes += (bytes + 255) / 256 * 256;
        return p;
    };
    r.heads = (HeadMetrics*)place(A * m->B * m->arch.NH * sizeof(HeadMetrics));
    r.h = (acc*)place((L + 1) * N * sizeof(acc));
    r.k = (acc*)place(A * N * KV * sizeof(acc));
    r.v = (acc*)place(A * N * KV * sizeof(acc));
    r.pre = (acc*)place(m->sizes.norm.stream ? 2 * L * N * sizeof(acc) : 0);
    r.sizes = (acc*)place((L + 1) * m->B * 2 * sizeof(acc));
    return r;
}

// In a model that mixes local and global layers, alpha_k of a local layer counts only the queries
// that still see token k. The others add zeros to the mean over i >= k, so it is scaled up by this
static float seen_factor(const Model* m, int l, int k) {
    const Arch& c = m->arch;
    const int all = m->T - m->sizes.bias.token - k + 1;
    bool mixed = false;
    for (int i = 0; i < c.L; i++) { mixed = mixed || !is_local(c, i); }
    const bool asks = is_local(c, l) && mixed && !c.prefix;
    return asks ? (float)all / std::min(all, c.window) : 1;
}

// what n heads of layer l give to tokens, of the queries that see them
static void measure_seen(const Model* m, int l, HeadMetrics* heads, int n) {
    const int most = std::min<int>(METRIC_K, m->T - m->sizes.bias.token);
    for (int k = 1; k <= most; k++) {
        const float factor = seen_factor(m, l, k);
        for (int i = 0; i < n; i++) {
            heads[i].alpha[k] *= factor;
            heads[i].proxy[k] *= factor;
            if (k == 1) { heads[i].effective *= factor; }
        }
    }
}

// adds sequences i.. of n, now in host memory, to the report
static void measure_add(Metrics* out, const Model* m, const Measured& r, int i, int n) {
    const Sizes& d = m->sizes;
    const int B = m->B, T = m->T, N = rows(m), skip = d.bias.token;
    for (int a = 0; a < out->L; a++) {
        for (int b = 0; b < B; b++) {
            HeadMetrics* heads = &out->heads[((size_t)(i + b) * out->L + a) * d.NH];
            std::copy_n(&r.heads[((size_t)a * B + b) * d.NH], d.NH, heads);
            measure_seen(m, out->layers[a], heads, d.NH);
        }
        norms_add(&out->k, a, r.k + (size_t)a * N * d.KV, B, T, d.KV, skip, n);
        norms_add(&out->v, a, r.v + (size_t)a * N * d.KV, B, T, d.KV, skip, n);
    }
    for (int l = 0; l <= d.L; l++) {
        const acc* h = r.h + (size_t)l * N;
        for (int b = 0; b < B; b++) {
            const acc* size = r.sizes + ((size_t)l * B + b) * 2;
            if (d.bias.token) { out->h_star[l] += h[(size_t)b * T] / n; }       // position 0
            out->h_max[l] = std::max<double>(out->h_max[l], size[0]);
            out->h_median[l] += (double)size[1] / n;
        }
        norms_add(&out->h, l, h, B, T, 1, skip, n);
    }
    for (int j = 0; d.norm.stream && j < 2 * d.L; j++) {
        norms_add(&out->pre, j, r.pre + (size_t)j * N, B, T, 1, skip, n);
    }
}

// of many ranks, each of which has measured some of the sequences: all of them on every rank
static void measure_sum(Metrics* r, const Model* m, double* loss, long* count) {
    const size_t L = m->arch.L, floats = sizeof(HeadMetrics) / sizeof(float);
    float* heads = (float*)r->heads.data();
    std::vector<double> all = { *loss, (double)*count };
    std::vector<double> largest((L + 1) * dist::world);
    all.insert(all.end(), heads, heads + r->heads.size() * floats);
    std::vector<std::vector<double>*> sums = { &r->h_star, &r->h_median };
    const size_t A = r->L, by_layer[] = { L + 1, A, A, m->sizes.norm.stream ? 2 * L : 0 };
    NormPair* const pairs[] = { &r->h, &r->k, &r->v, &r->pre };
    for (int i = 0; i < 4; i++) {                    // a rank may have measured nothing
        pairs[i]->first.resize(by_layer[i]); sums.push_back(&pairs[i]->first);
        pairs[i]->rest.resize(by_layer[i]);  sums.push_back(&pairs[i]->rest);
    }
    for (auto v : sums) { all.insert(all.end(), v->begin(), v->end()); }
    std::copy(r->h_max.begin(), r->h_max.end(), &largest[(L + 1) * dist::rank]);
    dist::sum(all.data(), all.size());
    dist::sum(largest.data(), largest.size());
    const double* from = all.data();
    *loss = *from++;
    *count = (long)*from++;
    for (size_t i = 0; i < r->heads.size() * floats; i++) { heads[i] = (float)*from++; }
    for (auto v : sums) { for (auto& x : *v) { x = *from++; } }
    for (size_t i = 0; i < largest.size(); i++) {
        r->h_max[i % (L + 1)] = std::max(r->h_max[i % (L + 1)], largest[i]);
    }
}

// the heads of layer l, and its keys and values
static void measure_attention(const Model* m, const Measured& r, int l) {
    const Sizes& d = m->sizes;
    const int N = rows(m);
    const size_t a = d.attending(l);
    const real* qkv = act_qkv(m, l);
    variant::attention_metrics(r.heads + a * m->B * d.NH, qkv, act_stat(m, l), star_k(m, l),
                               d.gate ? act_gate(m, l) : NULL, gate_width(m), d.bias.token,
                               column_idle(m->arch), attn_shape(m, l));
    ops::row_norms(r.k + a * N * d.KV, qkv + d.NH * d.HS, d.W, d.HS, d.KV, N);
    ops::row_norms(r.v + a * N * d.KV, qkv + d.QK, d.W, d.HS, d.KV, N);
}

// after layer l (-1: after the embedding)
static void measure_layer(const Model* m, const Measured& r, int l) {
    const Sizes& d = m->sizes;
    const int N = rows(m), skip = d.bias.token;
    const real* h = act_x(m, 2 * l + 2);
    ops::row_norms(r.h + (size_t)(l + 1) * N, h, d.C, d.C, 1, N);
    ops::magnitudes(r.sizes + (size_t)(l + 1) * m->B * 2, h, skip, m->B, m->T, d.C);
    if (l < 0) { return; }
    if (d.attends(l)) { measure_attention(m, r, l); }
    for (int i = 2 * l; d.norm.stream && i < 2 * l + 2; i++) {
        ops::row_norms(r.pre + (size_t)i * N, of_branch(m->acts.f, m, i, d.C), d.C, d.C, 1, N);
    }
}

Metrics measure(Model* m, const int* seqs, int n, int T, int batch_tokens,
                const std::function<void(int first)>& each) {
    const Arch& c = m->arch;
    const int chunk = std::max(1, std::min(n, batch_tokens / std::max(1, T)));
    Metrics r;
    r.n = n; r.T = T; r.NH = c.NH;
    for (int l = 0; l < c.L; l++) { if (m->sizes.attends(l)) { r.layers.push_back(l); } }
    r.L = r.layers.size();
    r.sums_to_one = attn_sums_to_one<Attn>(c.attn_alpha);
    r.has_star = (Bias::column && !column_idle(c)) || m->sizes.bias.token;
    r.has_gate = m->sizes.gate;
    r.heads.resize((size_t)n * r.L * c.NH);
    if (m->sizes.bias.token) { r.h_star.resize(c.L + 1); }
    r.h_max.resize(c.L + 1); r.h_median.resize(c.L + 1);
    double loss = 0; long count = 0;
    ops::keep_rows_for_metrics(true);
    for (int i = 0; i < n; i += chunk) {
        const int B = std::min(chunk, n - i);
        if (i / chunk % dist::world != dist::rank) { continue; }
        if (measure_progress) { measure_progress(i, n); }
        const long k = model_load(m, seqs + (size_t)i * (T + 1), B, T);
        const size_t bytes = measured_point(m, NULL).bytes;
        char* device = (char*)ops::device_malloc(bytes);
        const Measured there = measured_point(m, device);
        loss += model_forward(m, k, 0, [&](int l) { measure_layer(m, there, l); }) * k;
        count += k;
        if (each) { each(i); }
        std::vector<char> host(bytes);
        ops::to_host(host.data(), device, bytes);
        ops::device_free(device);
        measure_add(&r, m, measured_point(m, host.data()), i, n);
    }
    ops::keep_rows_for_metrics(false);
    if (dist::world > 1) { measure_sum(&r, m, &loss, &count); }
    r.loss = count ? loss / count : NAN;
    return r;
}

// ---- --sink-at: Sink_k of any tokens k, where the metrics of every evaluation stop at METRIC_K.
// It is worked out on the host, from what a forward pass leaves of attention

AttentionHost attention_host(const Model* m, int l) {
    const Arch& c = m->arch;
    AttentionHost x;
    x.qkv.resize((size_t)rows(m) * attn_row(attn_shape(m, l)));
    x.stat.resize((size_t)rows(m) * c.NH * 2);
    const size_t star = m->sizes.bias.column == LOGIT_COLUMN ? c.NH : (size_t)bias_rows(c) * c.HS;
    if (star_k(m, l)) { x.star.resize(star); }
    ops::to_host(x.qkv.data(), act_qkv(m, l), x.qkv.size() * sizeof(real));
    ops::to_host(x.stat.data(), act_stat(m, l), x.stat.size() * sizeof(acc));
    if (!x.star.empty()) { ops::to_host(x.star.data(), star_k(m, l), star * sizeof(real)); }
    return x;
}

void sink_at_add(SinkAt* at, const Model* m, int l) {
    if (at->tokens.empty()) { return; }
    const AttentionHost x = attention_host(m, l);
    const AttnShape s = attn_shape(m, l);
    const int skip = m->sizes.bias.token;
    const real* star = x.star.empty() ? NULL : x.star.data();
    const auto alphas = column_idle(m->arch) ? head_alphas<Attn, Bias_none, Pe, real, acc>
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

double sink_at_rate(const SinkAt& at, size_t i, double eps) {
    double hits = 0;
    for (double alpha : at.alpha[i]) { hits += alpha > eps; }
    return hits / at.alpha[i].size();
}
