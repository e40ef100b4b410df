/*
model.cpp -- allocates a model's memory, sets its initial weights, and grows the tables of
positions.
*/
#include "../model.h"

long Layout::params(Params* p, std::vector<Tensor>* list, real* weights, acc* grads) const {
    const std::string ffn_norm = norm.out ? "pre_feedforward_layernorm"
                                          : "post_attention_layernorm";
    long n = 0;
    auto place = [&](Param* field, const std::string& name,
                     const TensorKind& of) __attribute__((noinline)) {
        const long count = labs(of.rows) * of.cols;
        if (count == 0) { return; }
        *field = { row_of(weights, n, 1), row_of(grads, n, 1) };         // NULL stays NULL
        std::vector<long> shape = { of.rows, of.cols };
        if (of.rows == VECTOR) { shape = { of.cols }; }
        if (list) { list->push_back({ name, shape, n, count, of.init, of.purpose }); }
        n += count;
    };
    auto place_in_layer = [&](Param* field, int l, const std::string& hf,
                              const TensorKind& of) __attribute__((noinline)) {
        const bool of_attention = starts_with(hf, "self_attn.");
        if (of_attention && !has_attention(l)) { return; }
        place(field, strf("model.layers.%d.", l) + hf, of);
    };
    *p = Params();
    p->layer.resize(L);
    #define ROW(field, hf, when, ...) \
        if (when) { place(&p->field, hf, __VA_ARGS__); }
    #define LAYER_ROW(field, hf, when, ...) \
        if (when) { place_in_layer(&p->layer[l].field, l, hf, __VA_ARGS__); }
    PARAMS(ROW, NOTHING, NOTHING)
    for (int l = 0; l < L; l++) {
        p->layer_at.push_back(n);
        PARAMS(NOTHING, LAYER_ROW, NOTHING)
    }
    p->layer_at.push_back(n);
    PARAMS(NOTHING, NOTHING, ROW)
    #undef LAYER_ROW
    #undef ROW
    if (arch.tied) { p->lmw = p->wte; }
    return n;
}

size_t Layout::acts(Acts* a, char* base, const ActsShape& shape) const {
    const long N = shape.B * shape.T;
    const long lm_head_rows = shape.lm_head_rows;
    const long layer_rows = shape.train ? L * N : N;
    const long stream_rows = shape.train ? (2 * L + 1) * N : 3 * N;
    const long grad_rows = shape.train ? N : 0;
    size_t bytes = 0;
    auto place = [&](size_t size) __attribute__((noinline)) {
        char* at = base + bytes;
        bytes += aligned(size);
        return at;
    };
    #define X(type, name, size) a->name = (type*)place((size) * sizeof(type));
    #define LAYER(type, name, width) \
        a->name = { (type*)place(layer_rows * (width) * sizeof(type)), width };
    ACTS(X, LAYER)
    #undef LAYER
    #undef X
    return bytes;
}

void positions_extend(Model* m, long T) {
    const Arch& arch = m->arch;
    const PeRow& pe = m->sizes.pe;
    // the tables may be longer than what is computed: a text within them is asked, too
    if (T - sink_rows(m) > rope_limit(arch)) {
        die(strf("%ld tokens: this model has other positions beyond %ld, which are not "
            "computed", T - sink_rows(m), rope_limit(arch)), "give --seq, --probe-len or --tokens "
            "a smaller number");
    }
    if (T <= m->reach) { return; }
    m->reach = std::max(T, std::min(2L * m->reach, (long)m->longest + sink_rows(m)));
    free_arrays({ m->positions, m->rope, m->rope_local });
    if (pe.absolute) { m->positions = absolute_table(m->reach, arch.C); }
    if (pe.rotary) { m->rope = rope_table(arch, arch.rope_base, true, m->reach); }
    if (pe.rotary && arch.rope_local) {
        m->rope_local = rope_table(arch, arch.rope_local, false, m->reach);
    }
}

void model_resize(Model* m, int B, int T) {
    if (m->B == B && m->T == T + sink_rows(m) && m->arena) { return; }
    if (T > m->longest) {
        die(strf("--seq %d: this model has positions for %d tokens", T, m->longest),
            strf("--seq %ld or less", (long)m->longest));
    }
    const ActsShape shape = acts_shape(m->arch, m->train, B, T);
    m->B = shape.B;
    m->T = shape.T;
    m->lm_head_rows = shape.lm_head_rows;
    positions_extend(m, m->T);
    const Layout layout(m->arch);
    Acts none;
    const size_t bytes = layout.acts(&none, NULL, shape);
    if (bytes > m->arena_bytes) {
        ops::device_free(m->arena);
        m->arena = device_array<char>(bytes);
        m->arena_bytes = bytes;
    }
    layout.acts(&m->acts, m->arena, shape);
    const size_t n = rows(m);
    if (n > m->token_room) {
        free_arrays({ m->tokens, m->targets });
        m->tokens = device_array<int>(n);
        m->targets = device_array<int>(n);
        m->token_room = n;
    }
}

void model_show_ema(Model* m, bool ema) {
    if (m->shows_ema == ema) { return; }
    m->shows_ema = ema;
    const size_t bytes = m->num_params * sizeof(acc);
    if ((void*)m->master != (void*)m->params_memory) {
        const acc* shown = gather_array(m, ema ? m->ema : m->master);
        ops::cast_to_real(m->params_memory, shown, m->num_params);
        return;
    }
    if (ema) { ops::device_copy(m->grads_memory, m->master, bytes); }
    ops::device_copy(m->master, ema ? m->ema : m->grads_memory, bytes);
}

void model_set_weights(Model* m, const acc* host) {
    ops::to_device(full_array(m, m->master), host, m->num_params * sizeof(acc));
    publish_weights(m);
}

// Allocates gradients and optimizer state, all of it or a shard.
static void model_training(Model* m) {
    const long all = m->shard.whole;
    const long shard = m->shard.mine;
    m->grads_memory = device_array<acc>(all + 2 * shard);
    m->adam_m = m->grads_memory + all;
    m->adam_v = m->adam_m + shard;
    m->sums = device_array<StepSums>(1);
    m->shard_grads = m->grads_memory;
    m->shard_params = m->params_memory;
    if (shard == m->num_params) { return; }
    m->shard_grads = device_array<acc>(shard);
    m->shard_params = device_array<real>(shard);
}

// Dies if this program cannot run a model that other families have and it does not train.
static void require_trainable(const Arch& arch, bool train) {
    const std::string forward_only = forward_only_part(arch);
    const bool runs = ops::on_host && !train;
    if (runs || forward_only.empty()) { return; }
    const char* hint = train ? "train a model with attention and one FFN in all layers"
                             : "make train_sink BACKEND=cpu";
    die(forward_only + ": wanted a forward pass, not training, with BACKEND=cpu or ref", hint);
}

Model model_new(const Arch& arch, int T_max, bool train) {
    require_trainable(arch, train);
    Model m = Model();
    const Layout layout(arch);
    m.arch = arch;
    m.sizes = layout;
    m.train = train;
    m.num_params = layout.params(&m.params, &m.tensors, NULL, NULL);
    m.shard = shard_of(m.num_params, train);
    m.params_memory = device_array<real>(m.shard.whole);
    const bool copied = !std::is_same<real, acc>::value || m.shard.mine < m.num_params;
    m.master = (acc*)m.params_memory;
    if (copied) { m.master = device_array<acc>(m.shard.mine); }
    if (train) { model_training(&m); }
    layout.params(&m.params, NULL, m.params_memory, m.grads_memory);
    m.longest = m.sizes.pe.learnable ? arch.T : std::max(arch.T, T_max);
    const int first = train ? m.longest : std::min(m.longest, T_max); // more, when it is read
    positions_extend(&m, first + sink_rows(&m));
    if (!arch.v_star.empty()) { m.v_fixed = fixed_v_star(arch); }
    return m;
}

// Fills a tensor with normal numbers. Every thread finds its place in the stream, so that they are
// the same however many threads there are.
static void normal_fill(std::vector<acc>& out, double std, const Rng& stream) {
    const long n = out.size();
    const long piece = 4096;
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
        const Rng rng = rng_stream(seed, hash_string(t.name));
        host.assign(t.count, acc(t.init.mean));
        if (t.init.std != 0) { normal_fill(host, t.init.std, rng); }
        // the entries of k* that are not learned are zero (Table 13)
        for (long i = 0; t.purpose == FOR_KEY && i < t.count; i++) {
            if (i % m->arch.HS >= m->arch.k_dims) { host[i] = 0; }
        }
        const acc by = factor_of(m, t, "start");
        for (acc& x : host) { x *= by; }
        copy_to_device(full_array(m, m->master) + t.at, host);
    }
    publish_weights(m);
}

// Frees the memory of a batch and its gradients: of a model, or of a piece of it.
static void batch_free(Model* m) {
    free_arrays({ m->arena, m->tokens, m->targets, m->grads_memory, m->sums });
}

void pieces_free(Model* m) {
    for (auto& p : m->pieces) { batch_free(&p); }
    m->pieces.clear();
}

void model_free(Model* m) {
    pieces_free(m);
    if (m->shard_grads != m->grads_memory) {
        free_arrays({ m->shard_grads, m->shard_params });
    }
    batch_free(m);
    if ((void*)m->master != (void*)m->params_memory) { ops::device_free(m->master); }
    free_arrays({ m->params_memory, m->muon, m->ema, m->positions, m->rope, m->rope_local,
                  m->v_fixed, m->cache, m->mixer_state });
    *m = Model();
}
