/*
model.cpp -- the memory of a model: what model.h declares.
*/
#include "model.h"

template <class P>
long Layout::params(Params<P>* p, std::vector<Tensor>* list, P* base) const {
    const std::string ffn_norm = norm.out ? "pre_feedforward_layernorm"
                                          : "post_attention_layernorm";
    long n = 0;
    auto place = [&](P** field, int layer, const std::string& hf, bool when, long rows, long cols,
                     Init init) __attribute__((noinline)) {
        // a layer without attention has none of its tensors
        if (layer >= 0 && !attends(layer) && hf.find("self_attn.") == 0) { when = false; }
        const std::string name = layer < 0 ? hf : strf("model.layers.%d.", layer) + hf;
        const long count = when ? labs(rows) * cols : 0;
        *field = count && base ? base + n : NULL;
        if (count && list) {
            const std::vector<long> shape = rows < 0 ? std::vector<long>{ cols }
                                                     : std::vector<long>{ rows, cols };
            list->push_back({ name, shape, n, count, init });
        }
        n += count;
    };
    p->layer.resize(L);
    #define ROW(field, hf, when, rows, cols, init) \
        place(&p->field, -1, hf, when, rows, cols, init);
    #define LAYER_ROW(field, hf, when, rows, cols, init) \
        place(&p->layer[l].field, l, hf, when, rows, cols, init);
    PARAMS(ROW, NOTHING, NOTHING)
    for (int l = 0; l < L; l++) { PARAMS(NOTHING, LAYER_ROW, NOTHING) }
    PARAMS(NOTHING, NOTHING, ROW)
    if (c.tied) { p->lmw = p->wte; }
    return n;
}

// Weights are in `real`, their gradients in acc; where both are one type, this makes the first
// alone.
struct SameType {};
typedef std::conditional<std::is_same<real, acc>::value, SameType, acc>::type other;
template long Layout::params<real>(Params<real>*, std::vector<Tensor>*, real*) const;
template long Layout::params<other>(Params<other>*, std::vector<Tensor>*, other*) const;

size_t Layout::acts(Acts* a, char* base, bool train, long B, long T, long R,
                    std::string* table) const {
    const long N = B * T, D = train ? N : 0, K = train ? L : 1, S = train ? 2 * L + 1 : 3;
    size_t bytes = 0;
    auto place = [&](const char* name, size_t size) __attribute__((noinline)) {
        char* at = base + bytes;
        bytes += (size + 255) / 256 * 256;
        if (table && size > 0) { *table += strf(" %s %.1f", name, size / 0x1p20); }
        return at;
    };
    #define X(type, name, size) a->name = (type*)place(#name, (size) * sizeof(type));
    ACTS(X)
    #undef X
    return bytes;
}

void model_reach(Model* m, long T) {
    const Arch& c = m->arch;
    if (T <= m->reach) { return; }
    const long most = (long)m->longest + m->sizes.bias.token;
    m->reach = std::max(T, std::min(2L * m->reach, most));
    for (void* old : { (void*)m->positions, (void*)m->turns, (void*)m->turns_local }) {
        ops::device_free(old);
    }
    const int n = m->reach;
    if (m->sizes.pe.absolute) { m->positions = absolute_table(n, c.C); }
    if (m->sizes.pe.rotary) { m->turns = rope_table(c, c.rope_base, true, n); }
    if (m->sizes.pe.rotary && c.rope_local) {
        m->turns_local = rope_table(c, c.rope_local, false, n);
    }
}

void model_resize(Model* m, int B, int T) {
    if (T > m->longest) {
        die(EXIT_USER, strf("--seq %d: this model has positions for %d tokens", T, m->longest),
            strf("--seq %ld or less", (long)m->longest));
    }
    m->B = B; m->T = T + m->sizes.bias.token;
    model_reach(m, m->T);
    m->R = std::min<long>(ops::lm_head_rows(m->arch.V, sizeof(real), m->train), (long)B * m->T);
    const Layout layout(m->arch);
    Acts none;
    const size_t bytes = layout.acts(&none, NULL, m->train, B, m->T, m->R),
                 words = (size_t)B * m->T;
    if (bytes > m->arena_bytes) {
        ops::device_free(m->arena);
        m->arena = (char*)ops::device_malloc(bytes);
        m->arena_bytes = bytes;
    }
    layout.acts(&m->acts, m->arena, m->train, B, m->T, m->R);
    if (words > m->token_room) {
        ops::device_free(m->tokens); ops::device_free(m->targets);
        m->tokens = (int*)ops::device_malloc(words * sizeof(int));
        m->targets = (int*)ops::device_malloc(words * sizeof(int));
        m->token_room = words;
    }
}

void model_set(Model* m, const acc* host) {
    ops::to_device(array_place(m, m->master), host, m->num_params * sizeof(acc));
    weights_keep(m);
}

// where each layer begins in the array of parameters, and where the last one ends
static std::vector<long> layers_at(const Model& m) {
    std::vector<long> at;
    long end = 0;
    for (auto& t : m.tensors) {
        if (t.name.find(strf("model.layers.%zu.", at.size())) == 0) { at.push_back(t.at); }
        if (t.name.find("model.layers.") == 0) { end = t.at + t.count; }
    }
    at.push_back(end);
    return at;
}

// gradients and optimizer state, all of it or a shard
static void model_training(Model* m) {
    const long all = m->shard.whole, mine = m->shard.mine;
    m->grads_memory = (acc*)ops::device_malloc((all + 2 * mine) * sizeof(acc));
    m->adam_m = m->grads_memory + all;
    m->adam_v = m->adam_m + mine;
    m->sums = (StepSums*)ops::device_malloc(sizeof(StepSums));
    m->shard_grads = m->grads_memory;
    m->shard_params = m->params_memory;
    if (mine == m->num_params) { return; }
    m->shard_grads = (acc*)ops::device_malloc(mine * sizeof(acc));
    m->shard_params = (real*)ops::device_malloc(mine * sizeof(real));
}

Model model_new(const Arch& c, int T_max, bool train) {
    Model m = Model();
    const Layout layout(c);
    const std::string only = forward_only_part(c);
    if (!only.empty() && (train || !ops::on_host)) {
        die(EXIT_USER, only + ": wanted a forward pass, not training, with BACKEND=cpu or ref",
            train ? "train a model with attention and one FFN in all layers"
                  : "make train_sink BACKEND=cpu");
    }
    m.arch = c; m.sizes = layout; m.train = train;
    m.num_params = layout.params<real>(&m.weights, &m.tensors, NULL);
    m.shard = shard_of(m.num_params, train);
    m.params_memory = (real*)ops::device_malloc(m.shard.whole * sizeof(real));
    const bool copied = !std::is_same<real, acc>::value || m.shard.mine < m.num_params;
    m.master = (acc*)m.params_memory;
    if (copied) { m.master = (acc*)ops::device_malloc(m.shard.mine * sizeof(acc)); }
    layout.params<real>(&m.weights, NULL, m.params_memory);
    if (train) { model_training(&m); }
    m.layer_at = layers_at(m);
    layout.params<acc>(&m.grads, NULL, m.grads_memory);
    m.longest = m.sizes.pe.learnable ? c.T : std::max(c.T, T_max);
    const int first = train ? m.longest : std::min(m.longest, T_max); // more, when it is read
    model_reach(&m, first + m.sizes.bias.token);
    if (!c.v_star.empty()) { m.v_fixed = fixed_v_star(c); }
    return m;
}

// Fills a tensor with normal numbers. Every thread finds its place in the stream, so that they are
// the same however many threads there are.
static void normal_fill(std::vector<acc>& out, double std, const Rng& stream) {
    const long n = (long)out.size(), piece = 4096;
    #pragma omp parallel for
    for (long from = 0; from < n; from += piece) {
        Rng rng = stream;
        rng_skip(&rng, NORMAL_DRAWS * (uint64_t)from);
        const long to = std::min(n, from + piece);
        for (long i = from; i < to; i++) { out[i] = acc(std * rng_normal(&rng)); }
    }
}

void model_init(Model* m, uint64_t seed) {
    std::vector<acc> host;
    for (auto& t : m->tensors) {
        const Rng rng = rng_stream(seed, hash_bytes(t.name.data(), t.name.size()));
        host.assign(t.count, acc(t.init.mean));
        if (t.init.std != 0) { normal_fill(host, t.init.std, rng); }
        if (ends_with(t.name, ".k_star")) { // entries that are not learned are zero (Table 13)
            for (long i = 0; i < t.count; i++) {
                if (i % m->arch.HS >= m->arch.k_dims) { host[i] = 0; }
            }
        }
        ops::to_device(array_place(m, m->master) + t.at, host.data(), t.count * sizeof(acc));
    }
    weights_keep(m);
}

// frees the memory of a batch and its gradients: of a model, or of a piece of it
static void batch_free(Model* m) {
    for (void* p : { (void*)m->arena, (void*)m->tokens, (void*)m->targets, (void*)m->grads_memory,
                     (void*)m->sums }) {
        ops::device_free(p);
    }
}

void pieces_free(Model* m) {
    for (auto& p : m->pieces) { batch_free(&p); }
    m->pieces.clear();
}

void model_free(Model* m) {
    pieces_free(m);
    if ((void*)m->master != (void*)m->params_memory) { ops::device_free(m->master); }
    if (m->shard_grads != m->grads_memory) {
        ops::device_free(m->shard_grads);
        ops::device_free(m->shard_params);
    }
    batch_free(m);
    for (void* p : { (void*)m->params_memory, (void*)m->positions, (void*)m->v_fixed,
                     (void*)m->turns, (void*)m->turns_local, (void*)m->cache, (void*)m->memory,
                     (void*)m->muon }) {
        ops::device_free(p);
    }
    *m = Model();
}
