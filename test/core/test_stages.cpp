/*
test_stages.cpp -- every stage of a layer computes the same for rows that are loaded together, for
rows that come one at a time after a cache, and for rows of a forest, which share a beginning. A
stage that does not ask where its rows stand (m->spans) fails here, by name. The models are those
that one row of ARCH makes out of a small one: a new row, and the stage that it turns on, are among
them without being named. Each also computes the same while it is trained, where no stage may rotate
but attention; once more with a stage before attention that layer 0 lacks. In double, to 1e-12.
*/
#define ATTN mlp // its kernel is a stage too
#include "../../core/defaults.h"
#define BACKEND ref
#define REAL double
#include "../model_unit.h"
#include "../check.h"
#include <array>
#include <map>
#include <set>

enum { T = 12, SHARED = 5, OWN = 4 };

// what the stages left, in the order in which they ran: layer, stage, tensor -> a row of each token
typedef std::array<int, 3> Place;
typedef std::map<Place, std::vector<std::vector<double>>> Seen;
static std::set<std::string> stages_run;

struct Array { const char* name; const real* x; long width; };

// the activations of layer l that a pass over one batch keeps
static std::vector<Array> arrays_of(const Model* m, int l) {
    const Sizes& d = m->sizes;
    std::vector<Array> arrays = {
        { "x_2l", act_x(m, 2 * l), d.C },
        { "x_2l+1", act_x(m, 2 * l + 1), d.C },
        { "x_2l+2", act_x(m, 2 * l + 2), d.C },
        { "n_2l", act_n(m, 2 * l), d.C },
        { "n_2l+1", act_n(m, 2 * l + 1), d.C },
        { "qkv", act_qkv(m, l), d.qkv_width },
        { "att", act_att(m, l), d.q_width },
    };
    if (d.gate_width) { arrays.push_back({ "gate", act_gate(m, l), d.gate_width }); }
    if (d.gate_width) { arrays.push_back({ "gated", act_gated(m, l), d.gated_width }); }
    if (d.combine) { arrays.push_back({ "heads", act_heads(m, l), d.OC }); }
    if (d.has_ffn(l)) { arrays.push_back({ "fch", act_fch(m, l), d.up_width }); }
    if (d.has_ffn(l)) { arrays.push_back({ "fca", act_fca(m, l), d.F }); }
    return arrays;
}

// Runs what is loaded and adds what each stage leaves; row_of gives the place of a loaded row in
// its sequence, or -1 for one that is not wanted.
static void run(Model* m, Seen* seen, const std::function<int(int)>& row_of) {
    memset((void*)m->arena, 0, m->arena_bytes); // what no stage has written yet is 0 each time
    m->stage_hook = [&](Model* m, const Stage& stage, int l) {
        stage.forward(m, l);
        stages_run.insert(stage.name);
        const int number = &stage - LAYER_STAGES.data();
        const std::vector<Array> arrays = arrays_of(m, l);
        for (int a = 0; a < (int)arrays.size(); a++) {
            auto& out = (*seen)[{ l, number, a }];
            out.resize(T + 1);
            for (int i = 0; i < rows(m); i++) {
                if (row_of(i) < 0) { continue; }
                const real* x = arrays[a].x + i * arrays[a].width;
                out[row_of(i)].assign(x, x + arrays[a].width);
            }
        }
    };
    model_layers(m);
    m->stage_hook = nullptr;
}

static Seen whole(Model* m, std::vector<int> tokens) {
    Seen seen;
    tokens.push_back(0);
    model_load(m, tokens.data(), 1, tokens.size() - 1);
    run(m, &seen, [](int i) { return i; });
    return seen;
}

// the same sequence, a token at a time after those that a prefix makes see each other
static Seen cached(Model* m, const std::vector<int>& tokens) {
    Seen seen;
    model_cache(m, tokens.size());
    const int first = std::max(1, m->arch.prefix);
    std::vector<int> beginning(tokens.begin(), tokens.begin() + first);
    beginning.push_back(0);
    model_load(m, beginning.data(), 1, first);
    run(m, &seen, [](int i) { return i; });
    for (size_t t = first; t < tokens.size(); t++) {
        const int row = t + m->sizes.bias.token;
        model_load_next(m, tokens[t], row);
        run(m, &seen, [=](int) { return row; });
    }
    model_cache(m, 0);
    return seen;
}

// the first stage that left something else is named: those after it are wrong because of it
static void compare(const Model* m, const Seen& got, const Seen& wanted, const std::string& model) {
    CHECK(got.size() == wanted.size(), "%s: %zu tensors, wanted %zu", model.c_str(), got.size(),
          wanted.size());
    for (auto& one : wanted) {
        const Place place = one.first;
        const auto& rows = got.at(place);
        double apart = 0;
        for (int t = 0; t <= T; t++) {
            if (rows[t].size() != one.second[t].size()) { apart = INFINITY; }
            for (size_t i = 0; i < rows[t].size() && apart < INFINITY; i++) {
                apart = std::max(apart, fabs(rows[t][i] - one.second[t][i]));
            }
        }
        const bool same = CHECK(apart < 1e-12, "%s: after stage %s of layer %d, %s is %.2g away",
                                model.c_str(), LAYER_STAGES[place[1]].name, place[0],
                                arrays_of(m, place[0])[place[2]].name, apart);
        if (!same) { return; }
    }
}

static std::vector<int> some_tokens(int n, int seed) {
    std::vector<int> tokens;
    for (int t = 0; t < n; t++) { tokens.push_back((7 * t * t + 3 * t + seed) % 23); }
    return tokens;
}

// two sequences that begin alike
static void forest_check(Model* m, const std::string& model) {
    std::vector<int> one = some_tokens(T, 1);
    std::vector<int> two(one.begin(), one.begin() + SHARED);
    for (int token : some_tokens(OWN, 8)) { two.push_back(token); }
    const std::vector<Span> forest = {
        { 0, 1, SHARED, 0, -1 },
        { SHARED, 1, T - SHARED, SHARED, 0 },
        { T, 1, OWN, SHARED, 0 },
    };
    std::vector<int> tokens = one;
    tokens.insert(tokens.end(), two.begin() + SHARED, two.end());
    Seen first, second;
    model_load_forest(m, tokens, forest);
    run(m, &first, [](int i) { return i < T ? i : -1; });
    model_load_forest(m, tokens, forest);
    run(m, &second, [](int i) { return i < SHARED ? i : i < T ? -1 : i - T + SHARED; });
    compare(m, first, whole(m, one), model + ", a forest");
    compare(m, second, whole(m, two), model + ", the second of a forest");
}

// lm_head's input of a model as it is trained and as it is probed
static void trained_check(Model* m, const std::vector<acc>& weights, const std::string& model) {
    Model trained = model_new(m->arch, T, true);
    model_set_weights(&trained, weights.data());
    std::vector<int> tokens = some_tokens(T + 1, 1);
    double apart = 0;
    for (Model* one : { m, &trained }) {
        model_load(one, tokens.data(), 1, T);
        model_layers(one);
    }
    for (long i = 0; i < rows(m) * m->sizes.C; i++) {
        apart = std::max(apart, fabs(lm_head_input(m)[i] - lm_head_input(&trained)[i]));
    }
    CHECK(apart < 1e-12, "%s, trained: lm_head's input is %.2g away", model.c_str(), apart);
    model_free(&trained);
}

static void model_check(Arch c, const std::string& model) {
    if (!check_case(model)) { return; }
    arch_settle(&c, "");
    Model m = model_new(c, T, false);
    model_init(&m, 3);
    std::vector<acc> weights(m.num_params);
    Rng rng = rng_stream(5, 0);
    for (long i = 0; i < m.num_params; i++) {
        weights[i] = m.params_memory[i] + 0.2 * rng_normal(&rng);
    }
    model_set_weights(&m, weights.data());
    const std::vector<int> tokens = some_tokens(T, 1);
    compare(&m, cached(&m, tokens), whole(&m, tokens), model + ", cached");
    if (forest_fits(&m)) { forest_check(&m, model); }
    if (forward_only_part(c).empty()) { trained_check(&m, weights, model); }
    model_free(&m);
}

static Arch small_arch() {
    Arch c;
    c.L = 3; c.C = 16; c.NH = 4; c.KV = 2; c.F = 12; c.V = 23; c.T = T + 2;
    return c;
}

// is it a model, and one that this binary computes?
static bool fits(Arch c) {
    const bool compiled = bias_of(c).extra == Bias::extra && !pe_of(c).score_bias;
    return compiled && check_dies([&] { arch_settle(&c, ""); }).code == 0;
}

int main() {
    model_check(small_arch(), "the small model");
    for (size_t i = 0; i < ARCH_ROWS; i++) {
        Arch c = small_arch();
        const ArchRow row = arch_rows(&c)[i];
        if (row.type == FIELD_int && row.low == 0 && row.high == 1) {
            *(int*)row.at = !*(int*)row.at;
            if (fits(c)) { model_check(c, strf("%s %d", row.by, *(int*)row.at)); }
        }
        if (row.type != FIELD_kind) { continue; }
        for (auto& name : row.names) {
            kind_set(row, name);
            if (fits(c)) { model_check(c, row.by + ("=" + name)); }
        }
    }
    std::vector<Arch> numbers(4, small_arch());
    numbers[0].window = 4;
    numbers[1].prefix = 3;
    numbers[2].rope_part = 0.5;
    numbers[3].window = 4;
    numbers[3].local = "10";
    numbers[3].rope_local = 500;
#if HAS_OPEN
    numbers.resize(7, small_arch());
    numbers[4].experts = 4;
    numbers[4].experts_used = 2;
    numbers[5].attn_layers = "010";
    numbers[5].mamba_width = 32;
    numbers[5].mamba_state = 6;
    numbers[5].mamba_conv = 4;
    numbers[5].mamba_rank = 5;
    numbers[6].attn_layers = "01";
    numbers[6].delta_keys = 2;
    numbers[6].delta_values = 4;
    numbers[6].delta_key_size = 5;
    numbers[6].delta_value_size = 3;
    numbers[6].delta_conv = 4;
#endif
    for (size_t i = 0; i < numbers.size(); i++) { model_check(numbers[i], strf("numbers %zu", i)); }

    // the kernel stands between rotary and attention: now layer 0 alone rotates in attention
    for (auto& stage : LAYER_STAGES) {
        if (!strcmp(stage.name, "phi")) {
            const_cast<Stage&>(stage).when = [](const Model*, int l) { return l > 0; };
        }
    }
    model_check(small_arch(), "a stage that layer 0 lacks");
    for (auto& stage : LAYER_STAGES) {
        CHECK(!check_asked().empty() || stages_run.count(stage.name), "no model here has the stage %s", stage.name);
    }
    return check_done();
}
