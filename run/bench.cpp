/*
run/bench.cpp -- the command bench: tokens/s of a training step, beside a large product alone.
Its operations one by one: dev/bench/bench_ops.cu.
*/
#include "../log.h"
#include "../core/optimizer.h"
#include "data_flags.h"
#include "run_dir.h"
#include "../core/train_sink.h"
#include "commands.h"
#include "gpu.h"
#include "memory_needed.h"
#include "train.h"

// Returns the FLOPs of a training step per token: 6 for every weight of a matrix product, and
// causal attention, forward and backward. A table that is only looked up has no product; a tied one
// is the head's too.
static double flops_per_token(const Model* m, int T) {
    const Arch& c = m->arch;
    double matrices = 0;
    for (auto& t : m->tensors) {
        const bool looked_up = t.purpose == FOR_POSITIONS || (t.purpose == FOR_TABLE && !c.tied);
        if (t.shape.size() == 2 && !looked_up) { matrices += t.count; }
    }
    const double attention = 3.0 * 4 * (T / 2.0) * c.NH * c.HS * c.L;
    return 6 * matrices + attention;
}

// Returns the milliseconds of one call: the median of 5 rounds after a warm-up, each of as many
// calls as take 20 ms.
static double time_ms(const std::function<void()>& f) {
    std::vector<double> ms;
    int calls = 1;
    for (int i = 0; i < 6; i++) {
        const double t0 = now_ms();
        for (int k = 0; k < calls; k++) {
            f();
        }
        ops::device_sync();
        ms.push_back((now_ms() - t0) / calls);
        if (i == 0) {
            calls = std::min(1000.0, 1 + 20 / std::max(ms[0], 1e-3));
            ms.clear();
        }
    }
    std::sort(ms.begin(), ms.end());
    return ms[2];
}

// Measures the GFLOP/s of a large matrix product, which no training step of this machine and build
// can pass.
static double product_gflops() {
    const int N = ops::large;
    const size_t size = (size_t)N * N;
    real* x = (real*)ops::device_malloc(3 * size * sizeof(real));
    real* y = x + size;
    real* z = y + size;
    const double ms = time_ms([=] { ops::matmul_forward(x, y, z, NULL, NULL, N, N, N); });
    ops::device_free(x);
    return 2.0 * N * N * N / ms / 1e6;
}

// Draws the tokens of a micro-batch by the seed.
static std::vector<int> random_tokens(const Flags& f, int V) {
    std::vector<int> seqs(f.batch * (f.arch.T + 1));
    Rng rng = rng_stream(f.seed, SEED_BENCH);
    for (auto& token : seqs) {
        token = rng_below(&rng, V);
    }
    return seqs;
}

// Returns the milliseconds of a training step of `accum` micro-batches: the median of --steps.
static double time_steps(Model* m, const Flags& f, const std::vector<int>& seqs, long accum) {
    const int T = f.arch.T;
    const long targets = accum * targets_count(m, seqs.data(), f.batch, T);
    std::vector<double> ms;
    for (long i = 0; i <= f.steps; i++) { // the first is a warm-up
        const double t0 = now_ms();
        model_zero(m);
        for (long k = 0; k < accum; k++) {
            model_accumulate(m, seqs.data(), f.batch, T, targets, k + 1 == accum);
        }
        model_update(m, { 1e-4f, 0.9f, 0.95f, 1e-8f, 0.1f, i + 1 }, 1, f.optimizer);
        if (i) { ms.push_back(now_ms() - t0); }
    }
    std::sort(ms.begin(), ms.end());
    return ms[ms.size() / 2];
}

void run_dry(Run* r) {
    Flags f = r->f;
    model_init(&r->m, f.seed);
    const std::vector<int> seqs = random_tokens(f, r->m.arch.V);
    const long left = std::max(0L, f.steps - r->first);
    f.steps = 1;
    double ms = time_steps(&r->m, f, seqs, r->accum);
    if (dist::least(ms) < 1000) {
        f.steps = 10;
        ms = time_steps(&r->m, f, seqs, r->accum);
    }
    printf("time   %.1f ms a step of random tokens: %ld steps in %s, and the evaluations\n",
           ms, left, duration(left * ms / 1e3).c_str());
    printf("disk   %s a checkpoint\n", bytes_text(checkpoint_bytes(*r)).c_str());
    printf("dry    nothing was trained, and nothing written\n");
}

// Returns the line of JSON: of a step of `tokens` in ms, and of a large product alone.
static JsonObject bench_json(const Model* m, const Flags& f, double tokens, double ms,
                             double product) {
    const Arch& c = m->arch;
    const double flops = flops_per_token(m, f.arch.T);
    const double gflops = flops * tokens / ms / 1e6;
    JsonObject o;
    o.text("attn", build::Attn::name);
    o.text("bias", BIAS_ROWS[BUILD_BIAS].name);
    o.count("L", c.L);
    o.count("C", c.C);
    o.count("NH", c.NH);
    o.count("F", c.F);
    o.count("V", c.V);
    o.count("T", f.arch.T);
    o.count("B", f.batch);
    o.count("params", m->num_params);
    o.count("tokens_per_step", tokens);
    o.decimals("ms", ms, 3);
    o.count("tokens_per_s", tokens / ms * 1e3);
    o.count("flops_per_token", flops);
    o.decimals("gflops", gflops, 3);
    o.decimals("product_gflops", product, 3);
    o.decimals("of_product", gflops / product, 3);
    const std::string kernel = product_choice().name;
    if (!kernel.empty()) {
        o.text("kernel", kernel);
    }
    return o;
}

// Makes the model that is measured. *product: the GFLOP/s of a large product before that.
static Model bench_model(Flags& f, double* product) {
    ops::tune_products(true);
    lm_head_rows_wanted = f.lm_head_rows;
    preset_apply(&f);
    if (!f.given_steps) {
        f.steps = 12;
    }
    require(f.steps >= 1, "--steps 0", "1 or more");
    output_check(f.json, files_read(f, names_listed(f.data)));
    flags_check(f, COMMAND_bench);

    const int T = f.arch.T;
    table_memory_check(f);
    Data data = data_open(data_options(f, T, std::min(64, T)));
    data_bin_check(data);
    const Arch c = arch_from_flags(&f, data.V);
    memory_check(c, f.batch, T, true);

    *product = product_gflops();
    gpu_settle(&f, c);
    Model m = model_new(c, T, true);
    model_init(&m, f.seed);
    choose_batch(&m, &f, 0);
    return m;
}

// Measures tokens/s of training steps on random tokens and prints a line of JSON: for one
// micro-batch, or with --total-batch for as many as a run's steps have.
int command_bench(Flags f) {
    if (cpu_folder && cpu_folder->bench_products(f)) { return 0; }
    double product;
    Model m = bench_model(f, &product);
    const long at_once = f.batch * f.arch.T;
    const long accum = f.total_batch ? f.total_batch / at_once : 1;
    const double ms = time_steps(&m, f, random_tokens(f, m.arch.V), accum);
    const std::string line = bench_json(&m, f, accum * at_once, ms, product).all();
    model_free(&m);
    printf("%s\n", line.c_str());
    if (!f.json.empty()) {
        file_write(f.json, line + "\n");
    }
    return 0;
}
