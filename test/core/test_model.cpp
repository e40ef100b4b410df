/*
test_model.cpp -- whole models, by tensor name. The Makefile compiles it once for each set of what
is compiled in; the fixtures of other builds are passed over.

    REAL=float    every golden fixture of this build (test/golden/README.md): loss, gradients,
                  metrics, 20 AdamW steps, to 1e-5
    REAL=double   the same fixtures to 1e-6 (they are stored as floats), and every gradient
                  against central differences

usage: test_model FIXTURE.safetensors ...
*/
#include "../model_unit.h"
#include "../../core/safetensors.h"
#include "../check.h"
#include "../metadata.h"

static const bool is_double = sizeof(real) == 8;

// what a fixture's metadata says, as --name value words
struct Words {
    std::vector<std::string> w;
    std::string get(const char* name, const char* otherwise) const {
        for (size_t i = 0; i + 1 < w.size(); i++) { if (w[i] == name) { return w[i + 1]; } }
        return otherwise;
    }
    double num(const char* name, double otherwise) const {
        std::string s = get(name, "");
        return s.empty() ? otherwise : atof(s.c_str());
    }
};
static uint64_t fnv1a(const std::string& s) {
    uint64_t h = 0xCBF29CE484222325ull;
    for (unsigned char ch : s) { h = (h ^ ch) * 0x100000001B3ull; }
    return h;
}
static std::vector<float> generated(const std::string& name, long n) {
    Rng rng{ fnv1a(name) };
    std::vector<float> x(n);
    for (auto& v : x) {
        const double u = 2 * rng_uniform(&rng) - 1;
        v = ends_with(name, "norm.weight") ? 1 + 0.2 * u : 0.5 * u;
    }
    return x;
}
static Words fixture_words(const Weights& st) {
    const Json said = metadata_of(st.path);
    return { split(said["make"].string + " " + said["flags"].string, ' ') };
}
static Arch fixture_arch(const Words& f) { // "--name value", and "NORM=post" for what a switch sets
    Arch c;
    c.L = 2; c.C = 8; c.NH = 2; c.F = 12; c.V = 13; c.T = 11;
    for (auto& r : arch_rows(&c)) {
        if (!*r.by) { continue; }             // neither a flag nor a switch sets it
        if (r.type == FIELD_kind && !is_flag(r)) { *(kind*)r.at = 0; }
        for (size_t i = 0; i < f.w.size(); i++) {
            std::string text;
            if (f.w[i] == r.by && i + 1 < f.w.size()) { text = f.w[i + 1]; }
            const std::string assign = r.by + std::string("=");
            if (f.w[i].compare(0, assign.size(), assign) == 0) {
                text = f.w[i].substr(assign.size());
            }
            if (!text.empty()) { CHECK(field_set(r, text).empty(), "%s %s", r.by, text.c_str()); }
        }
    }
    return c;
}
static void weights_set(Model* m) {
    std::vector<acc> x(m->num_params);
    for (auto& t : m->tensors) {
        const std::vector<float> v = generated(t.name, t.count);
        for (long i = 0; i < t.count; i++) {
            const bool unused = i % m->arch.HS >= m->arch.k_dims;
            x[t.at + i] = ends_with(t.name, "k_star") && unused ? 0 : v[i];
        }
    }
    model_set_weights(m, x.data());
}
static double step_loss(Model* m, const int* seqs, int B, int T) { // loss and gradient of one batch
    model_zero(m);
    model_accumulate(m, seqs, B, T, targets_count(m, seqs, B, T));
    return m->sums->loss;
}
// |got - want| <= tol * max |want| over the tensor
static void compare(const std::string& what, const std::vector<double>& got, const Weights& st,
                    const std::string& name, double tol) {
    const Weight* t = st.find(name);
    if (!CHECK(t && t->count == (long)got.size(), "%s: fixture has no %s of %zu numbers",
               what.c_str(), name.c_str(), got.size())) {
        return;
    }
    std::vector<float> want(t->count);
    weight_floats(*t, want.data());
    double top = 0, worst = -1; long at = 0;
    for (float w : want) { top = std::max(top, fabs((double)w)); }
    for (long i = 0; i < t->count; i++) {
        const double d = fabs(got[i] - want[i]);
        if (!(d <= worst)) {
            worst = d;
            at = i;
        }
    }
    CHECK(worst <= tol * (top > 1e-3 ? top : 1e-3),
          "%s: %s[%ld] got %.9g, wanted %.9g (largest %.3g)", what.c_str(), name.c_str(), at,
          got[at], want[at], top);
}
static void fixture_check(const std::string& path) {
    Weights st = safetensors_open(path);
    const Words f = fixture_words(st);
    Arch c = fixture_arch(f);
    arch_settle(&c, "");
    const int B = f.num("--batch", 2), T = c.T, skip = bias_of(c).token;
    const double tol = is_double ? 1e-6 : 1e-5;
    Model m = model_new(c, T, true);
    m.min_context = f.num("--min-context", 0);
    m.max_context = f.num("--max-context", 0);
    weights_set(&m);
    const Weight* tokens = st.find("tokens");
    if (!CHECK(tokens && tokens->count == B * (T + 1), "%s: tokens", path.c_str())) { return; }
    const int* seqs = (const int*)tokens->data;

    // one forward and backward
    const double loss = step_loss(&m, seqs, B, T);
    compare(path, { loss }, st, "loss", tol);
    const std::vector<acc> losses = model_losses(&m);
    std::vector<double> token_loss;
    for (int b = 0; b < B; b++) {
        for (int t = skip; t < m.T; t++) { token_loss.push_back(losses[b * m.T + t]); }
    }
    compare(path, token_loss, st, "token_loss", tol);
    double largest = 0;
    for (auto& t : m.tensors) {
        std::vector<double> g(m.grads_memory + t.at, m.grads_memory + t.at + t.count);
        for (double x : g) { largest = std::max(largest, fabs(x)); }
        compare(path, g, st, "grad." + t.name, tol);
    }
    CHECK(largest > 1e-4, "%s: largest gradient is %g: nothing was tested", path.c_str(), largest);
    size_t grads = 0;
    for (auto& t : st.tensors) { grads += t.name.compare(0, 5, "grad.") == 0; }
    CHECK(grads == m.tensors.size(), "%s: fixture has %zu gradients, the model %zu tensors",
          path.c_str(), grads, m.tensors.size());

    // metrics
    const Metrics r = measure(&m, seqs, B, T, B * T);
    std::vector<double> alpha, proxy, extra,
        mass = head_means(r, [](const HeadMetrics&h) { return (double)h.mass; });
    for (int b = 0; b < B; b++) {
        for (int l = 0; l < c.L; l++) {
            for (int h = 0; h < c.NH; h++) {
                const HeadMetrics& x = r.at(b, l, h);
                for (int k = 1; k <= METRIC_K; k++) {
                    alpha.push_back(x.alpha[k]);
                    proxy.push_back(x.proxy[k]);
                }
                extra.push_back(r.sums_to_one ? x.alpha[0] : x.proxy[0]);
            }
        }
    }
    compare(path, alpha, st, "alpha", 1e-5);
    compare(path, proxy, st, "proxy_alpha", 1e-5);
    if (r.has_extra) { compare(path, extra, st, "alpha_star", 1e-5); }
    compare(path, mass, st, "mass", 1e-5);
    compare(path, head_means(r, [](const HeadMetrics& h) { return (double)h.entropy; }), st,
            "entropy", 1e-5);
    compare(path, r.h.first, st, "h_norm_first", 1e-5);
    compare(path, r.h.rest, st, "h_norm_rest", 1e-5);
    compare(path, r.k.first, st, "k_norm_first", 1e-5);
    compare(path, r.k.rest, st, "k_norm_rest", 1e-5);
    compare(path, r.v.first, st, "v_norm_first", 1e-5);
    compare(path, r.v.rest, st, "v_norm_rest", 1e-5);

    // 20 steps of the optimizer
    const bool muon = f.get("--optimizer", "adamw") == "muon";
    const kind how = muon ? OPTIMIZER_muon : OPTIMIZER_adamw;
    std::vector<double> step_losses, norms;
    for (int step = 1; step <= 20; step++) {
        step_losses.push_back(step_loss(&m, seqs, B, T));
        norms.push_back(
            sqrt(model_update(&m, { (float)f.num("--lr", 0.001), 0.9f, 0.95f, 1e-8f, 0.1f, step },
                              1, how)
                     .squares));
    }
    compare(path, step_losses, st, "losses", 1e-5);
    // PyTorch's own float32 is 1.1e-5 from the fixtures here
    compare(path, norms, st, "grad_norms", is_double ? 1e-5 : 2e-5);
    model_free(&m);
    weights_close(&st);
}
// every gradient against (f(w+h) - f(w-h)) / 2h, by name; ReLU-like kinks show as two
// step sizes that disagree
static void differences_check(const std::string& path) {
    Weights st = safetensors_open(path);
    const Words f = fixture_words(st);
    Arch c = fixture_arch(f);
    arch_settle(&c, "");
    const int B = f.num("--batch", 2), T = c.T;
    const int* seqs = (const int*)st.find("tokens")->data;
    Model m = model_new(c, T, true);
    m.min_context = f.num("--min-context", 0);
    m.max_context = f.num("--max-context", 0);
    weights_set(&m);
    step_loss(&m, seqs, B, T);
    const std::vector<acc> grads(m.grads_memory, m.grads_memory + m.num_params);
    long kinks = 0, looked = 0;
    for (auto& t : m.tensors) {
        double top = 0;
        for (long i = 0; i < t.count; i++) { top = std::max(top, fabs((double)grads[t.at + i])); }
        for (long i = 0; i < t.count; i += std::max(1L, t.count / 24)) {
            if (ends_with(t.name, "k_star") && i % c.HS >= c.k_dims) { continue; }
            real* w = m.params_memory + t.at + i;
            const real was = *w;
            auto slope = [&](double h) {
                double y[2];
                for (int side = 0; side < 2; side++) {
                    *w = was + (side ? -h : h);
                    y[side] = model_forward(&m, model_load(&m, seqs, B, T, true));
                }
                *w = was;
                return (y[0] - y[1]) / (2 * h);
            };
            const double d = slope(1e-5), d2 = slope(5e-6), tol = 1e-6 * (top > 1e-2 ? top : 1e-2);
            looked++;
            if (fabs(d - d2) > tol) { kinks++; continue; }
            check_near(grads[t.at + i], d, 10 * tol, "%s: d loss / d %s[%ld]", path.c_str(),
                       t.name.c_str(), i);
        }
    }
    CHECK(kinks * 50 <= looked, "%s: %ld of %ld differences at a kink: too many to call it tested",
          path.c_str(), kinks, looked);
    model_free(&m);
    weights_close(&st);
}
// what lm_head reads after each token from the third on, the last beyond the context:
// with a cache of all that layers remember, and without
static void cache_compare(Model* m, const int* seq, const std::string& name) {
    const Arch& c = m->arch;
    std::vector<double> rows[2];
    int rows_alone = 0;
    for (int with : { 0, 1 }) {
        model_cache(m, with ? c.T : 0);
        for (int n = 3; n <= c.T + 1; n++) {
            const real* row = model_forward_last(m, std::vector<int>(seq, seq + n));
            rows[with].insert(rows[with].end(), row, row + c.C);
            rows_alone += m->spans[0].position > 0;
        }
    }
    const int first = c.prefix ? std::max(4, c.prefix + 1) : 4; // the first that is read alone
    CHECK(rows_alone == c.T - first + 1, "%s: %d tokens were read alone", name.c_str(), rows_alone);
    double worst = 0, top = 0;
    for (size_t i = 0; i < rows[0].size(); i++) {
        worst = std::max(worst, fabs(rows[0][i] - rows[1][i]));
        top = std::max(top, fabs(rows[0][i]));
    }
    CHECK(worst < (is_double ? 1e-12 : 1e-5) * top, "%s: cache: %.2g of %.2g away", name.c_str(),
          worst, top);
}
static void cache_check(const std::string& path, bool train) {
    Weights st = safetensors_open(path);
    Arch c = fixture_arch(fixture_words(st));
    arch_settle(&c, "");
    Model m = model_new(c, c.T, train);
    weights_set(&m);
    cache_compare(&m, (const int*)st.find("tokens")->data, path);
    model_free(&m);
    weights_close(&st);
}
#if HAS_OPEN
// Mamba layers, or the delta rule, before and after attention; their convolution spans more than the
// first three tokens
static void mixer_cache_check(bool delta) {
    Arch c;
    c.L = 3; c.C = 16; c.NH = 4; c.KV = 2; c.HS = 4; c.F = 12; c.V = 29; c.T = 12;
    c.attn_layers = "010";
    if (delta) {
        c.delta_keys = 2; c.delta_values = 6; c.delta_key_size = 4; c.delta_value_size = 3;
        c.delta_conv = 6;
    } else {
        c.mamba_width = 32; c.mamba_state = 6; c.mamba_conv = 6; c.mamba_rank = 5;
    }
    arch_settle(&c, "");
    Model m = model_new(c, c.T, false);
    weights_set(&m);
    std::vector<int> seq;
    for (int t = 0; t <= c.T; t++) { seq.push_back((7 * t * t + 3) % c.V); }
    cache_compare(&m, seq.data(), mixer_of(c));
    model_free(&m);
}
#endif
// how far apart two lists are, over the largest
static double apart(const std::vector<double>& a, const std::vector<double>& b) {
    double worst = a.size() == b.size() && !a.empty() ? 0 : INFINITY, top = 1e-3;
    for (size_t i = 0; i < a.size() && i < b.size(); i++) {
        worst = std::max(worst, fabs(a[i] - b[i]));
        top = std::max(top, fabs(b[i]));
    }
    return worst / top;
}
// documents of several lengths in one batch, two that go on from another among them:
// what lm_head reads is what it reads of each document alone
static void packed_check(const std::string& path) {
    Weights st = safetensors_open(path);
    Arch c = fixture_arch(fixture_words(st));
    arch_settle(&c, "");
    const int* seq = (const int*)st.find("tokens")->data;
    Model m = model_new(c, c.T, false);
    weights_set(&m);
    struct Document { std::vector<int> tokens; size_t shared; };
    const long room = st.find("tokens")->count;
    auto document = [&](int from, int n) {
        std::vector<int> x;
        for (int i = 0; i < n; i++) { x.push_back(seq[(from + i) % room]); }
        return x;
    };
    const int n = std::min(6, c.T);
    std::vector<Document> all = { { document(0, n), 0 },
                                  { document(4, 1), 0 },
                                  { document(3, c.T), 0 },
                                  { document(0, n), 4 },
                                  { document(0, 4), 2 } };
    all[3].tokens[4] = all[4].tokens[2] = (seq[4] + 1) % c.V;
    std::vector<double> packed, alone;
    std::vector<int> tokens;
    std::vector<Span> forest;
    // the last two go on from the first, after as many tokens as they share with it
    for (auto& d : all) {
        const int past = d.shared, at = tokens.size();
        tokens.insert(tokens.end(), d.tokens.begin() + past, d.tokens.end());
        forest.push_back({ at, 1, (int)d.tokens.size() - past, past, past ? 0 : -1 });
    }
    if (forest_fits(&m)) {
        model_load_forest(&m, tokens, forest);
        model_layers(&m);
        packed.assign(lm_head_input(&m), lm_head_input(&m) + tokens.size() * c.C);
        for (auto& d : all) {
            std::vector<int> whole = d.tokens;
            whole.push_back(0);
            model_load(&m, whole.data(), 1, d.tokens.size());
            model_layers(&m);
            alone.insert(alone.end(), lm_head_input(&m) + d.shared * c.C,
                         lm_head_input(&m) + d.tokens.size() * c.C);
        }
        const double far = apart(packed, alone);
        CHECK(far < (is_double ? 1e-12 : 1e-5),
              "%s: documents in one batch are %.2g away from each alone", path.c_str(), far);
    }
    CHECK(forest_fits(&m) == (!c.prefix && !bias_of(c).token),
          "%s: shares what documents begin with: %d", path.c_str(), forest_fits(&m));
    model_free(&m);
    weights_close(&st);
}
// the metrics of sequences one at a time, and of all in one batch
static void batches_check(const std::string& path) {
    Weights st = safetensors_open(path);
    Arch c = fixture_arch(fixture_words(st));
    arch_settle(&c, "");
    Model m = model_new(c, c.T, false);
    weights_set(&m);
    const int n = st.find("tokens")->count / (c.T + 1);
    std::vector<double> x[2];
    for (int k : { 0, 1 }) {
        const Metrics r = measure(&m, (const int*)st.find("tokens")->data, n, c.T,
                                  k ? c.T : n * c.T);
        x[k] = { r.loss };
        for (auto& h : r.heads) {
            x[k].insert(x[k].end(),
                        { h.alpha[1], h.alpha[7], h.proxy[2], h.mass, h.entropy, h.effective });
        }
        for (auto* v : { &r.h.first, &r.h.rest, &r.k.first, &r.k.rest, &r.v.first, &r.v.rest,
                         &r.h_max, &r.h_median }) {
            x[k].insert(x[k].end(), v->begin(), v->end());
        }
    }
    const double far = apart(x[1], x[0]);
    CHECK(far < (is_double ? 1e-7 : 1e-5),
          "%s: metrics of sequences alone are %.2g away from those of a batch", path.c_str(),
          far);  // they are floats
    model_free(&m);
    weights_close(&st);
}
// is this fixture of a model that this binary computes? what is not compiled in is data
static bool fixture_fits(const std::string& path) {
    Weights st = safetensors_open(path);
    const Words f = fixture_words(st);
    std::string attn = "softmax";
    for (auto& word : f.w) { if (word.compare(0, 5, "ATTN=") == 0) { attn = word.substr(5); } }
#if !HAS_OPEN
    if (has(f.w, "--rope-scaling")) { return false; }
#endif
    const Arch c = fixture_arch(f);
    weights_close(&st);
    return attn == build::Attn::name && bias_of(c).extra == Bias::extra &&
           pe_of(c).score_bias == Pe::score_bias && (!Pe::score_bias || c.pe == BUILD_PE);
}
int main(int argc, char** argv) {
    int looked = 0;
    for (int i = 1; i < argc; i++) {
        if (!fixture_fits(argv[i])) { continue; }
        looked++;
        CASE("fixture") { fixture_check(argv[i]); }
        CASE("cache") { cache_check(argv[i], false); }
        CASE("cache") { cache_check(argv[i], true); }
        CASE("packed") { packed_check(argv[i]); }
        CASE("batches") { batches_check(argv[i]); }
        if (is_double) {
            CASE("differences") { differences_check(argv[i]); }
        }
    }
#if HAS_OPEN
    for (bool delta : { false, true }) {
        if (Bias::extra || Attn::phi != PHI_NONE) { continue; }
        CASE("mixer_cache") { mixer_cache_check(delta); }
    }
#endif
    CHECK(looked, "no fixture is of this build");
    const std::string twin = Attn::twin.name, notes = arch_notes(Arch());
    CHECK(contains(notes, ": this is ATTN=" + twin + "\n") == !twin.empty(), "notes: %s", notes.c_str());
    return check_done();
}
