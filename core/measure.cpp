/*
measure.cpp -- the forward pass of a measurement, on the device, and the report, on the host.
*/
#include "measure.h"

// A table in a block of memory: rows of `width` numbers.
template <class X> struct Table {
    X* rows;
    size_t width;

    X* operator[](size_t row) const { return rows + row * width; }
};

// The measurements of one batch, in one block of device memory until all layers are done.
struct Measured {
    Table<HeadMetrics> heads;   // a row per layer with attention: (B, NH)
    Table<acc> k;               // norms of the keys, a row per layer with attention: (N, KV)
    Table<acc> v;               // norms of the values
    Table<acc> h;               // norms of the stream, a row per state: (N)
    Table<acc> sizes;           // its largest and median entry, a row per state: (B, 2)
    Table<acc> pre;             // norms of the inputs of norms on the stream, a row per branch: (N)
    size_t bytes;
};

// Lays the rows out from `base` on; with base NULL it only counts the bytes.
static Measured measured_layout(const Model* m, char* base) {
    const Sizes& sizes = m->sizes;
    const size_t attention_layers = sizes.attending(sizes.L);
    const size_t states = sizes.L + 1;
    const size_t branches = sizes.norm.stream ? 2 * sizes.L : 0;
    const size_t N = rows(m);
    Measured r = Measured();
    auto place = [&](auto* table, size_t rows, size_t width) {
        table->rows = decltype(table->rows)(base + r.bytes);
        table->width = width;
        r.bytes += aligned(rows * width * sizeof(*table->rows));
    };
    place(&r.heads, attention_layers, m->B * sizes.NH);
    place(&r.k, attention_layers, N * sizes.KV);
    place(&r.v, attention_layers, N * sizes.KV);
    place(&r.h, states, N);
    place(&r.sizes, states, m->B * 2);
    place(&r.pre, branches, N);
    return r;
}

// ---- on the device, while the model runs

// Measures the output of layer l, or of the embedding if l is -1: stream, heads, keys and values.
static void measure_layer(const Model* m, const Measured& r, int l) {
    const Sizes& sizes = m->sizes;
    const int C = sizes.C;
    const real* h = act_x(m, 2 * l + 2);
    ops::row_norms(r.h[l + 1], h, C, C, 1, rows(m));
    ops::magnitudes(r.sizes[l + 1], h, sink_rows(m), m->B, m->T, C);
    if (l < 0) { return; }
    if (sizes.has_attention(l)) {
        const size_t layer = sizes.attending(l);
        const real* qkv = act_qkv(m, l);
        const HeadGate<const real> gate = { sizes.gates_output ? act_gate(m, l) : NULL,
                                            gates_per_head(m) };
        const AttnShape s = attn_shape(m, l);
        const bool no_extra = s.without_extra || extra_has_no_effect(m->arch);
        variant::attention_metrics[no_extra](r.heads[layer], qkv, act_stat(m, l), extra_key(m, l),
                                            gate, sink_rows(m), s);
        const int width = sizes.qkv_width;
        ops::row_norms(r.k[layer], qkv + sizes.q_width, width, sizes.HS, sizes.KV, rows(m));
        ops::row_norms(r.v[layer], qkv + sizes.qk_width, width, sizes.HS, sizes.KV, rows(m));
    }
    if (!sizes.norm.stream) { return; }
    for (int i : { 2 * l, 2 * l + 1 }) {
        ops::row_norms(r.pre[i], act_f(m, i), C, C, 1, rows(m));
    }
}

// ---- on the host, into the report

// Counts the rows of a sequence without the sink token's.
static int text_rows(const Model* m) { return m->T - sink_rows(m); }

float seen_factor(const Model* m, int l, int k) {
    const Arch& arch = m->arch;
    bool mixed = false;
    for (int i = 0; i < arch.L; i++) { mixed |= m->sizes.has_attention(i) && !is_local(arch, i); }
    if (!is_local(arch, l) || !mixed || arch.prefix) { return 1; }
    const int all = text_rows(m) - k + 1;
    return (float)all / std::min(all, arch.window);
}

void scale_to_seen(const Model* m, int l, HeadMetrics* heads) {
    const int most = std::min<int>(METRIC_K, text_rows(m));
    for (int h = 0; h < m->sizes.NH; h++) {
        for (int k = 1; k <= most; k++) {
            const float factor = seen_factor(m, l, k);
            heads[h].alpha[k] *= factor;
            heads[h].proxy[k] *= factor;
        }
        #define X(field, over, ...) \
            if (over == SEEN_MEAN) { heads[h].field *= seen_factor(m, l, 1); }
        HEAD_METRICS(X)
        #undef X
    }
}

// Adds the norms of the loaded rows, (N, width), to those of layer l.
static void add_norms(NormPair* norms, int l, const Model* m, const acc* x, int width, int n) {
    norms_add(norms, l, x, m->B, m->T, width, sink_rows(m), n);
}

// Adds the sequences from `first` on to the report: their heads, keys and values.
static void add_attention(Metrics* out, const Model* m, const Measured& r, int first) {
    const int NH = m->sizes.NH;
    const int KV = m->sizes.KV;
    for (int layer = 0; layer < out->L; layer++) {
        for (int b = 0; b < m->B; b++) {
            const size_t sequence = first + b;
            HeadMetrics* heads = &out->heads[(sequence * out->L + layer) * NH];
            std::copy_n(r.heads[layer] + b * NH, NH, heads);
            scale_to_seen(m, out->layers[layer], heads);
        }
        add_norms(&out->k, layer, m, r.k[layer], KV, out->n);
        add_norms(&out->v, layer, m, r.v[layer], KV, out->n);
    }
}

// Adds the stream of the same sequences.
static void add_stream(Metrics* out, const Model* m, const Measured& r) {
    const Sizes& sizes = m->sizes;
    for (int l = 0; l <= sizes.L; l++) {
        for (int b = 0; b < m->B; b++) {
            const acc* size = r.sizes[l] + b * 2;
            const acc first = r.h[l][b * m->T];   // position 0
            if (sink_rows(m)) { out->h_star[l] += first / out->n; }
            out->h_max[l] = std::max<double>(out->h_max[l], size[0]);
            out->h_median[l] += (double)size[1] / out->n;
        }
        add_norms(&out->h, l, m, r.h[l], 1, out->n);
    }
    if (!sizes.norm.stream) { return; }
    for (int i = 0; i < 2 * sizes.L; i++) {
        add_norms(&out->pre, i, m, r.pre[i], 1, out->n);
    }
}

// Runs the loaded batch and adds its sequences, those from `first` on, to the report; returns the
// mean loss over the `count` targets that count.
static double measure_batch(Metrics* out, Model* m, int first, long count) {
    const size_t bytes = measured_layout(m, NULL).bytes;
    char* device = device_array<char>(bytes);
    const Measured on_device = measured_layout(m, device);
    const LayerCallback at_layer = [&](int l) { measure_layer(m, on_device, l); };
    const double loss = model_forward(m, count, at_layer);
    std::vector<char> host = copy_to_host(device, bytes);
    ops::device_free(device);
    const Measured on_host = measured_layout(m, host.data());
    add_attention(out, m, on_host, first);
    add_stream(out, m, on_host);
    return loss;
}

// ---- the report

// Returns a report of n sequences of T tokens, before anything is measured.
static Metrics metrics_new(const Model* m, int n, int T) {
    const Sizes& sizes = m->sizes;
    Metrics r;
    for (int l = 0; l < sizes.L; l++) {
        if (sizes.has_attention(l)) { r.layers.push_back(l); }
    }
    r.n = n;
    r.T = T;
    r.NH = sizes.NH;
    r.L = r.layers.size();
    r.sums_to_one = attn_sums_to_one<Attn>(m->arch.attn_alpha);
    r.has_extra = has_extra_key(m);
    r.has_gate = sizes.gates_output;
    r.heads.resize((size_t)n * r.L * r.NH);
    r.h_max.resize(sizes.L + 1);
    r.h_median.resize(sizes.L + 1);
    if (sink_rows(m)) { r.h_star.resize(sizes.L + 1); }
    return r;
}

bool has_extra_key(const Model* m) {
    return (Bias::extra && !extra_has_no_effect(m->arch)) || sink_rows(m);
}

Metrics measure(Model* m, const int* seqs, int n, int T, int batch_tokens,
                const std::vector<double>& eps, const std::function<void(int first)>& each) {
    const int at_once = batch_tokens / std::max(1, T);
    const int chunk = std::max(1, std::min(n, at_once));
    Metrics r = metrics_new(m, n, T);
    double loss = 0;
    long count = 0;
    for (int first = 0; first < n; first += chunk) {
        const int rank = first / chunk % dist::world();
        if (rank != dist::rank()) { continue; }
        if (progress.batch) { progress.batch(first, n); }
        if (work_stopped()) { break; }
        const int* batch = seqs + (size_t)first * (T + 1);
        const long targets = model_load(m, batch, std::min(chunk, n - first), T);
        loss += measure_batch(&r, m, first, targets) * targets;
        count += targets;
        if (each) { each(first); }
    }
    dist::sum_metrics(&r, m->sizes, &loss, &count);
    r.loss = count ? loss / count : NAN;
    fill_sinks(&r, eps);
    return r;
}
