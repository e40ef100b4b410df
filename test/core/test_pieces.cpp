/*
test_pieces.cpp -- a small model's batch cut into pieces (small_model.h): loss and gradients are
those of the whole batch, whatever the pieces count, and the same bits for any number of threads.
*/
#define BIAS sink_token
#include "../../core/defaults.h"
#include "../model_unit.h"
#include "../check.h"

static const int B = 32, T = 40, ACCUM = 2;

static Arch arch(int C, int V) {
    Arch c;
    c.L = 2; c.C = C; c.NH = c.KV = 2; c.HS = C / 2; c.F = 2 * C; c.V = V; c.T = T; c.prefix = 3;
    return c;
}

// tokens, of which many in the first sequences are asked for by no loss
static std::vector<int> sequences(int V) {
    std::vector<int> seqs(B * (T + 1));
    Rng rng = rng_stream(1, 6);
    for (size_t i = 0; i < seqs.size(); i++) {
        const int token = rng_below(&rng, V);
        seqs[i] = i < seqs.size() / 3 && i % 4 ? ~token : token;
    }
    return seqs;
}

struct StepResult { double loss; std::vector<acc> grads; };

// a step of ACCUM times the same micro-batch, in pieces or whole
static StepResult step(Model* m, const std::vector<int>& seqs, bool cut) {
    model_zero(m);
    for (int i = 0; i < ACCUM; i++) {
        const long count = targets_count(m, seqs.data(), B, T) * ACCUM;
        if (cut) { model_accumulate(m, seqs.data(), B, T, count); }
        else     { accumulate_loaded(m, model_load(m, seqs.data(), B, T) * ACCUM, false); }
    }
    return { m->sums->loss, std::vector<acc>(m->grads_memory, m->grads_memory + m->num_params) };
}

// A model whose batch is cut into pieces: loss and gradients as of the whole batch, with any number
// of threads.
static void test_cut() {
    const Arch c = arch(24, 29);
    Model m = model_new(c, T, true);
    model_init(&m, 1);
    const std::vector<int> seqs = sequences(c.V);
    CHECK(piece_sequences(&m, B, T) == 13, "pieces of 13 sequences of 41 rows: got %d",
          piece_sequences(&m, B, T));
    const StepResult whole = step(&m, seqs, false), cut = step(&m, seqs, true);
    CHECK(m.pieces.size() == 3, "got %zu pieces", m.pieces.size());
    check_near(cut.loss, whole.loss, 1e-6, "loss");
    for (auto& t : m.tensors) {
        double top = 0, worst = 0;
        for (long i = t.at; i < t.at + t.count; i++) {
            top = std::max<double>(top, fabs(whole.grads[i]));
            worst = std::max<double>(worst, fabs(cut.grads[i] - whole.grads[i]));
        }
        CHECK(top > 0 && worst <= 1e-5 * top, "%s: %.2g of its largest away", t.name.c_str(),
              worst / top);
    }
    for (int threads : { 1, 2, 3 }) {
        omp_set_num_threads(threads);
        const StepResult again = step(&m, seqs, true);
        CHECK(again.loss == cut.loss && again.grads == cut.grads, "%d threads: other bits",
              threads);
    }
    // fewer sequences than before
    model_accumulate(&m, seqs.data(), 14, T, 14 * T);
    CHECK(m.pieces.size() == 2, "14 sequences: got %zu pieces", m.pieces.size());
    model_free(&m);
}

// A model that is too large to be cut.
static void test_large() {
    Model large = model_new(arch(256, 257), T, true);
    CHECK(piece_sequences(&large, B, T) == B, "%ld parameters are cut", large.num_params);
    model_free(&large);
}

int main() {
    CASE("cut") { test_cut(); }
    CASE("large") { test_large(); }
    return check_done();
}
