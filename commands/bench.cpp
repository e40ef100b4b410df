/*
commands/bench.cpp -- the command bench: tokens/s of a training step; its operations, one by one;
memory; the cost of an evaluation.
*/
#include "../cpu/choice.h"
#include "../log.h"
#include "../core/measure.h"
#include "../core/optimizer.h"
#include "../shell/data_flags.h"
#include "../shell/run_dir.h"
#include "../core/train_sink.h"
#include "commands.h"
#include "hopper.h"
#include "memory_needed.h"

// Returns the FLOPs of a training step per token: 6 for every weight of a matrix product, and
// causal attention, forward and backward. A table that is only looked up has no product; a tied one
// is the head's too.
static double flops_per_token(const Model* m, int T) {
    const Arch& c = m->arch;
    double matrices = 0;
    for (auto& t : m->tensors) {
        const bool tokens = t.purpose == FOR_TABLE && !c.tied;
        if (t.shape.size() == 2 && !tokens && t.purpose != FOR_POSITIONS) {
            matrices += t.count;
        }
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

// Measures the GB/s of y += x, which no training step can pass either.
static double memory_gbytes() {
    const long n = (long)ops::large * ops::large * (ops::on_host ? 16 : 4);
    real* x = (real*)ops::device_malloc(2 * n * sizeof(real));
    const double ms = time_ms([=] { ops::add(x, x + n, n); });
    ops::device_free(x);
    return 3.0 * n * sizeof(real) / ms / 1e6;
}

// An operation of the training step.
struct OpRow {
    std::string name;
    double calls;                                // per step
    double flops;                                // of one call, in matrix products only
    double bytes;                                // that one call moves at least: every tensor once
    double ms;                                   // that one call takes
};

// Returns the multiply-adds of one product of attention in a layer.
static double attention_madds(const Model* m) {
    const AttnShape s = attn_shape(m, 0);
    double pairs = 0;                            // of a query and a key that it sees
    for (int t = 0; t < s.T; t++) {
        for (int j = 0; j < s.T; j++) {
            pairs += attn_sees(s, t, j);
        }
    }
    return pairs * m->B * s.NH * s.HS;
}

// Times the operations of a step and keeps them as rows of a table.
struct OpTable {
    Model* m;
    long accum;                                  // micro-batches of a step
    std::vector<OpRow> rows;

    void add(const std::string& name, double calls, double flops, double bytes,
             const std::function<void()>& run) {
        const double ms = time_ms(run);
        rows.push_back({ name, calls, flops, bytes, ms });
    }

    void stages();
    void head();
    void update();
};

// Adds the stages of a layer, forward and backward.
void OpTable::stages() {
    Model* m = this->m;
    const double calls = accum * m->arch.L;
    const int N = ::rows(m);
    for (auto& stage : LAYER_STAGES) {
        if (!stage.when(m, 0)) { continue; }
        const StageCost cost = stage.cost(m->sizes);
        const double weights = cost.flops / 2;
        const double bytes = sizeof(real) * (cost.moved * N + weights);
        const double bytes_backward = sizeof(real) * (cost.moved_backward * N + 2 * weights);

        const bool attention = stage.role == ROLE_ATTENTION;
        double flops = cost.flops * N;
        if (attention) {
            flops = 4 * attention_madds(m);
        }
        const double backward = attention ? 2.5 * flops : 2 * flops;

        const std::string name = stage.name;
        add(name, calls, flops, bytes, [=] { stage.forward(m, 0); });
        add(name + ", backward", calls, backward, bytes_backward, [=] { stage.backward(m, 0); });
    }
}

// Adds the head, which works on chunks of R rows.
void OpTable::head() {
    Model* m = this->m;
    const double C = m->arch.C;
    const double V = m->arch.V;
    const int N = ::rows(m);
    const int R = m->lm_head_rows;
    const double chunks = (N + R - 1) / R;

    const double flops = 6.0 * R * C * V;
    const double activations = 3.0 * R * C + 2.0 * R * V;
    const double weights = 3.0 * C * V;
    add("head", accum * chunks, flops, sizeof(real) * (activations + weights), [=] {
        const int B = m->B;
        const int T = m->T;
        m->B = 1;
        m->T = R; // one chunk of rows
        model_lm_head(m, 1e-3f);
        m->B = B;
        m->T = T;
    });
}

// Adds what a step does once, after its micro-batches.
void OpTable::update() {
    Model* m = this->m;
    const double P = m->num_params;
    const bool copied = sizeof(real) != sizeof(acc);
    const double moved = 7 * sizeof(acc) + (copied ? sizeof(real) : 0);

    add("gradient norm", 1, 0, sizeof(acc) * P,
        [=] { ops::square_norm(m->sums, m->grads_memory, 1, m->num_params); });
    add("AdamW", 1, 0, moved * P, [=] {
        const Update o = { 1e-9f, 0.9f, 0.95f, 1e-8f, 0.1f, 1 };
        ops::adamw_update(m->params_memory, m->master, m->adam_m, m->adam_v, m->grads_memory,
                          m->sums, o, m->num_params);
    });
    add("gradients to 0", 1, 0, sizeof(acc) * P, [=] { model_zero(m); });
}

// Times every operation of a step on the tensors of its last micro-batch: the stages of a layer,
// then what is around the layers.
static std::vector<OpRow> op_rows(Model* m, long accum) {
    const double NC = (double)sizeof(real) * rows(m) * m->arch.C;
    OpTable table = { m, accum, {} };
    table.add("embedding", accum, 0, 2 * NC, [=] { embed_forward(m); });
    table.stages();
    table.head();
    table.add("embedding, backward", accum, 0, 3 * NC, [=] { embed_backward(m); });
    table.update();
    return table.rows;
}

// Prints the table of --ops and returns it as JSON.
static std::string bench_ops(Model* m, long accum, double step_ms, double gflops, double gbytes) {
    const std::vector<OpRow> rows = op_rows(m, accum);
    double sum = 0;
    std::vector<std::string> objects;
    printf("%-22s %6s %10s %9s %10s %9s %9s\n", "operation", "calls", "ms a call", "of step",
           "GFLOP/s", "GB/s", "of roof");
    for (auto& r : rows) {
        // the roof: what takes longer at the rates of a large product and of y += x. What takes no
        // time is done by another operation, and has no rate
        const bool ran = r.ms >= 1e-4;
        const double roof = ran ? std::max(r.flops / gflops, r.bytes / gbytes) / 1e6 : 0;
        const double percent = 100 * r.calls * r.ms / step_ms;
        sum += r.calls * r.ms;
        printf("%-22s %6.0f %10.4f %8.1f%%", r.name.c_str(), r.calls, r.ms, percent);
        if (ran) {
            printf(" %10.1f %9.1f %8.0f%%\n", r.flops / r.ms / 1e6, r.bytes / r.ms / 1e6,
                   100 * roof / r.ms);
        } else {
            printf(" %10s %9s %9s\n", "-", "-", "-");
        }

        JsonObject o;
        o.text("name", r.name);
        o.count("calls", r.calls);
        o.decimals("ms", r.ms, 5);
        o.count("flops", r.flops);
        o.count("bytes", r.bytes);
        o.decimals("of_roof", roof / r.ms, 3);
        objects.push_back(o.all());
    }
    printf("%-22s %6s %10.4f %8.1f%%\n", "sum", "", sum, 100 * sum / step_ms);
    return json_list(objects);
}

// Prints a note if another kernel than the one that a run would take is clearly faster. (The best
// of some calls varies by a few hundredths on a busy machine.) Returns the row of the fastest.
static int fastest_of(const std::vector<double>& gflops, bool bf16) {
    const int best = std::max_element(gflops.begin(), gflops.end()) - gflops.begin();
    const std::string taken = cpu::kernel_for(bf16).name;
    for (int k = 0; k < cpu::KERNELS; k++) {
        if (taken != cpu::kernels[k].name || gflops[best] < 1.15 * gflops[k]) { continue; }
        printf("note   %s: a run takes %s, and %s is %.2f times as fast: --product %s takes it\n",
               bf16 ? "bf16" : "fp32", taken.c_str(), cpu::kernels[best].name,
               gflops[best] / gflops[k], cpu::kernels[best].name);
    }
    return best;
}

// Prints what --products asks for: GFLOP/s of every kernel on all threads, in float and in bf16,
// and what follows for PRECISION. All kernels are in every binary, so any build can tell.
static int bench_products(const Flags& f) {
    require(!strcmp(BACKEND_NAME, "cpu"), strf("--products BACKEND=%s", BACKEND_NAME),
            "BACKEND=cpu");
    flags_check(f, COMMAND_bench);
    const long M = 2048, N = 768, K = 768;               // of a layer of -m 60M
    const std::vector<double> fp32 = cpu::kernels_timed(false, M, N, K);
    const std::vector<double> bf16 = cpu::kernels_timed(true, M, N, K);
    auto cell = [](double gflops) {
        std::string text = "-";
        if (gflops) {
            text = strf("%.0f", gflops);
        }
        return text;
    };
    printf("%-14s %12s %12s   GFLOP/s of (%ld, %ld) @ (%ld, %ld), %s\n", "kernel", "fp32", "bf16",
           M, K, K, N, ops::device_start().c_str());
    for (int k = 0; k < cpu::KERNELS; k++) {
        if (!cpu::kernel_here(k)) { continue; }
        printf("%-14s %12s %12s\n", cpu::kernels[k].name, cell(fp32[k]).c_str(),
               cell(bf16[k]).c_str());
    }

    cpu::choice_settle(false, f.product);
    cpu::choice_settle(true, f.product);
    const int in_fp32 = fastest_of(fp32, false);
    const int in_bf16 = fastest_of(bf16, true);
    const double gain = bf16[in_bf16] / fp32[in_fp32];
    printf("bf16 by %s takes %.2f times as long as fp32 by %s: ", cpu::kernels[in_bf16].name,
           1 / gain, cpu::kernels[in_fp32].name);
    const char* verdict = "PRECISION=bf16 gains nothing here, fp32 is the better choice";
    if (gain > 1.15) {
        verdict = "make train_sink PRECISION=bf16 is faster here";
    }
    printf("%s\n", verdict);
    return 0;
}

// The tokens that bench works on: a micro-batch, and what an evaluation of the sinks reads.
struct BenchTokens {
    std::vector<int> seqs;
    std::vector<int> probe;
};

enum { PROBE_SEQS = 100, PROBE_LEN = 64 };

// Draws the tokens by the seed.
static BenchTokens random_tokens(const Flags& f, int V) {
    BenchTokens x;
    x.seqs.resize((size_t)f.batch * (f.arch.T + 1));
    x.probe.resize(PROBE_SEQS * (PROBE_LEN + 1));
    Rng rng = rng_stream(f.seed, SEED_BENCH);
    for (auto& token : x.seqs) {
        token = rng_below(&rng, V);
    }
    for (auto& token : x.probe) {
        token = rng_below(&rng, V);
    }
    return x;
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
            const bool last = k + 1 == accum;
            model_accumulate(m, seqs.data(), f.batch, T, targets, last);
        }
        model_update(m, { 1e-4f, 0.9f, 0.95f, 1e-8f, 0.1f, i + 1 }, 1, OPTIMIZER_adamw);
        if (i) { ms.push_back(now_ms() - t0); }
    }
    std::sort(ms.begin(), ms.end());
    return ms[ms.size() / 2];
}

// What bench found for one model.
struct BenchResult {
    long accum;                                  // micro-batches of a step
    double tokens;                               // of a step
    double ms;                                   // of a step
    double product;                              // GFLOP/s of a large matrix product
    double gbytes;                               // GB/s of y += x, of --ops alone
};

// Prints the tables of --ops and adds them to *o: the time of every operation against its roof,
// memory by tensor, and what an evaluation of the sinks costs.
static void bench_tables(JsonObject* o, Model* m, const Flags& f, const BenchTokens& x,
                         const BenchResult& b) {
    const int T = f.arch.T;
    std::string table;
    const double acts = acts_bytes(m->arch, true, f.batch, T, &table);
    model_load(m, x.seqs.data(), f.batch, T);    // pieces of a small model had loaded parts of it
    model_body(m);
    o->json("ops", bench_ops(m, b.accum, b.ms, b.product, b.gbytes));

    double bytes;
    printf("memory %s\n", memory_text(m->arch, f.batch, T, true, &bytes).c_str());
    printf("activations, MiB:%s\n", table.c_str());

    const int len = std::min<int>(PROBE_LEN, T); // the model's tables of positions end at T
    const long at_once = f.batch * T;
    const double eval =
        time_ms([&] { measure(m, x.probe.data(), PROBE_SEQS, len, at_once); });
    printf("sinks of %d x %d tokens: %.2f ms, %.1f%% of a step of %.0f tokens\n", PROBE_SEQS, len,
           eval, 100 * eval / b.ms, b.tokens);
    o->decimals("gbytes", b.gbytes, 1);
    o->count("activation_bytes", acts);
    o->decimals("eval_ms", eval, 3);
    o->decimals("eval_of_step", eval / b.ms, 4);
}

// Returns the line of JSON.
static JsonObject bench_json(const Model* m, const Flags& f, const BenchResult& b) {
    const Arch& c = m->arch;
    const double flops = flops_per_token(m, f.arch.T);
    const double gflops = flops * b.tokens / b.ms / 1e6;
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
    o.count("tokens_per_step", b.tokens);
    o.decimals("ms", b.ms, 3);
    o.count("tokens_per_s", b.tokens / b.ms * 1e3);
    o.count("flops_per_token", flops);
    o.decimals("gflops", gflops, 3);
    o.decimals("product_gflops", b.product, 3);
    o.decimals("of_product", gflops / b.product, 3);
    const std::string& kernel = cpu::choice().name;
    if (!kernel.empty()) {
        o.text("kernel", kernel);
    }
    return o;
}

// Measures tokens/s of training steps on random tokens and prints a line of JSON: for one
// micro-batch, or with --total-batch for as many as a run's steps have. With --ops it also prints
// tables.
int command_bench(Flags f) {
    if (f.products) {
        return bench_products(f);
    }
    ops::tune_products(true);
    ops::use_graph(f.graph);
    preset_apply(&f);
    if (!f.given_steps) {
        f.steps = 12;
    }
    require(f.steps >= 1, "--steps 0", "1 or more");
    const std::vector<std::string> sources = split(f.data, ',');
    output_check(f.json, files_read(f, sources));
    flags_check(f, COMMAND_bench);

    const int T = f.arch.T;
    Data data = data_from_flags(f, T, std::min(64, T));
    const Arch c = arch_from_flags(&f, data.V);
    memory_check(c, f.batch, T, true);

    BenchResult b;
    b.product = product_gflops();
    b.gbytes = f.ops ? memory_gbytes() : 0;
    Model m = model_new(c, T, true);
    hopper_settle(&f, c, f.given_hopper);
    model_init(&m, f.seed);
    choose_batch(&m, &f, 0);
    b.accum = f.total_batch ? f.total_batch / (f.batch * T) : 1;
    b.tokens = (double)b.accum * f.batch * T;

    const BenchTokens x = random_tokens(f, c.V);
    b.ms = time_steps(&m, f, x.seqs, b.accum);
    JsonObject o = bench_json(&m, f, b);
    const std::string line = o.all();
    if (f.ops) {
        bench_tables(&o, &m, f, x, b);
    }
    model_free(&m);
    printf("%s\n", line.c_str());
    if (!f.json.empty()) {
        file_write(f.json, o.all() + "\n");
    }
    return 0;
}
