/*
commands/bench.cpp -- the command bench: tokens/s of a training step; its operations, one by one;
memory; the cost of an evaluation.
*/
#include "../cpu/choice.h"
#include "../log.h"
#include "../measure.h"
#include "../optimizer.h"
#include "../shell/data_flags.h"
#include "../shell/run_dir.h"
#include "../train_sink.h"
#include "commands.h"
#include "memory_needed.h"

// FLOPs of one training step per token: 6 for every weight of a matrix (one that is only looked up
// has no product, a tied one is the head's too), and causal attention forward + backward
static double flops_per_token(const Model* m, int T) {
    const Arch& c = m->arch;
    double matrices = 0;
    for (auto& t : m->tensors) {
        const bool looked_up = (t.name == "model.embed_tokens.weight" && !c.tied) ||
                               t.name == "model.embed_positions.weight";
        if (t.shape.size() == 2 && !looked_up) { matrices += t.count; }
    }
    return 6 * matrices + 3.0 * 4 * (T / 2.0) * c.NH * c.HS * c.L;
}

// milliseconds of one call: the median of 5 rounds after a warm-up, each of as many calls as take
// 20 ms
static double time_ms(const std::function<void()>& f) {
    std::vector<double> ms;
    for (int i = 0, calls = 1; i < 6; i++) {
        const double t0 = now_ms();
        for (int k = 0; k < calls; k++) { f(); }
        ops::device_sync();
        ms.push_back((now_ms() - t0) / calls);
        if (i == 0) { calls = std::min(1000.0, 1 + 20 / std::max(ms[0], 1e-3)); ms.clear(); }
    }
    std::sort(ms.begin(), ms.end());
    return ms[2];
}

// what no training step of this machine and build can pass: GFLOP/s of a large matrix product, GB/s
// of y += x
static double product_gflops() {
    const int N = ops::large;
    real* x = (real*)ops::device_malloc(3 * (size_t)N * N * sizeof(real));
    real *y = x + (size_t)N * N, *z = y + (size_t)N * N;
    const double ms = time_ms([=] { ops::matmul_forward(x, y, z, NULL, NULL, N, N, N); });
    ops::device_free(x);
    return 2.0 * N * N * N / ms / 1e6;
}

static double memory_gbytes() {
    const long n = (long)ops::large * ops::large * (ops::on_host ? 16 : 4);
    real* x = (real*)ops::device_malloc(2 * n * sizeof(real));
    const double ms = time_ms([=] { ops::add(x, x + n, n); });
    ops::device_free(x);
    return 3.0 * n * sizeof(real) / ms / 1e6;
}

// An operation of the training step: how often the step calls it, and what one call must compute
// (matrix products only) and move at the least (every tensor of it once), and how long one takes
struct OpRow { std::string name; double calls, flops, bytes, ms; };

// multiply-adds of one product of attention, of a layer
static double attention_madds(const Model* m) {
    const AttnShape s = attn_shape(m, 0);
    double pairs = 0;                            // of a query and a key that it sees
    for (int t = 0; t < s.T; t++) { for (int j = 0; j < s.T; j++) { pairs += attn_sees(s, t, j); } }
    return pairs * m->B * s.NH * s.HS;
}

// Times every operation of a step on the tensors of its last micro-batch: the stages of a layer,
// then what is around the layers. accum: micro-batches of a step
static std::vector<OpRow> op_rows(Model* m, long accum) {
    const Arch& c = m->arch;
    const int N = rows(m), R = m->R;
    const double one = sizeof(real), L = c.L, P = m->num_params, chunks = (N + R - 1) / R,
                 NC = one * N * c.C;
    std::vector<OpRow> table;
    auto row = [&](const std::string& name, double calls, double flops, double bytes,
                   const std::function<void()>& run) {
        table.push_back({ name, calls, flops, bytes, time_ms(run) });
    };
    row("embedding", accum, 0, 2 * NC, [=] { embed_forward(m); });
    for (auto& stage : LAYER_STAGES) {
        if (!stage.when(m->sizes, 0)) { continue; }
        const bool attention = stage.role == ROLE_ATTENTION;
        const StageCost cost = stage.cost(m->sizes);
        const double weights = cost.flops / 2;
        const double bytes = one * (cost.moved * N + weights);
        const double flops = attention ? 4 * attention_madds(m) : cost.flops * N;
        row(stage.name, accum * L, flops, bytes, [=] { stage.forward(m, 0); });
        row(stage.name + std::string(", backward"), accum * L,
            attention ? 2.5 * flops : 2 * flops, 2 * bytes, [=] { stage.backward(m, 0); });
    }
    row("head", accum * chunks, 6.0 * R * c.C * c.V,
        one * (3.0 * R * c.C + 2.0 * R * c.V) + 3 * one * c.C * c.V, [=] {
            const int B = m->B, T = m->T;
            m->B = 1;
            m->T = R; // one chunk of rows
            model_head(m, 1e-3f);
            m->B = B;
            m->T = T;
        });
    row("embedding, backward", accum, 0, 3 * NC, [=] { embed_backward(m); });
    row("gradient norm", 1, 0, sizeof(acc) * P,
        [=] { ops::square_norm(m->sums, m->grads_memory, 1, m->num_params); });
    row("AdamW", 1, 0, (7 * sizeof(acc) + (sizeof(real) == sizeof(acc) ? 0 : one)) * P, [=] {
        const Update o = { 1e-9f, 0.9f, 0.95f, 1e-8f, 0.1f, 1 };
        ops::adamw_update(m->params_memory, m->master, m->adam_m, m->adam_v, m->grads_memory,
                          m->sums, o, m->num_params);
    });
    row("gradients to 0", 1, 0, sizeof(acc) * P, [=] { model_zero(m); });
    return table;
}

// the table of --ops; returns it as JSON
static std::string bench_ops(Model* m, long accum, double step_ms, double gflops, double gbytes) {
    const std::vector<OpRow> rows = op_rows(m, accum);
    double sum = 0;
    std::string json;
    printf("%-22s %6s %10s %9s %10s %9s %9s\n", "operation", "calls", "ms a call", "of step",
           "GFLOP/s", "GB/s", "of roof");
    // the roof: what takes longer at the rates of a large product and of y += x
    for (auto& r : rows) {
        const double roof = std::max(r.flops / gflops, r.bytes / gbytes) / 1e6;
        sum += r.calls * r.ms;
        printf("%-22s %6.0f %10.4f %8.1f%% %10.1f %9.1f %8.0f%%\n", r.name.c_str(), r.calls, r.ms,
               100 * r.calls * r.ms / step_ms, r.flops / r.ms / 1e6, r.bytes / r.ms / 1e6,
               100 * roof / r.ms);
        json += (json.empty() ? "" : ",") + strf(
                                                "{\"name\":\"%s\",\"calls\":%.0f,\"ms\":%.5f,"
                                                "\"flops\":%.0f,\"bytes\":%.0f,\"of_roof\":%.3f}",
                                                r.name.c_str(), r.calls, r.ms, r.flops, r.bytes,
                                                roof / r.ms);
    }
    printf("%-22s %6s %10.4f %8.1f%%\n", "sum", "", sum, 100 * sum / step_ms);
    return ",\"ops\":[" + json + "]";
}

// --products: GFLOP/s of every kernel on all threads, in float and in bf16, and what follows for
// PRECISION. All kernels are in every binary, so any build can say it
static int bench_products(const Flags& f) {
    require(!strcmp(BACKEND_NAME, "cpu"), strf("--products BACKEND=%s", BACKEND_NAME),
            "BACKEND=cpu");
    reject_unused_flags(f, "ops steps batch total_batch model data json", false,
                        "bench without --products");
    const long M = 2048, N = 768, K = 768;               // of a layer of -m 60M
    const std::vector<double> fp32 = cpu::kernels_timed(false, 0, M, N, K),
                              bf16 = cpu::kernels_timed(true, 0, M, N, K);
    auto cell = [](double gflops) { return gflops ? strf("%.0f", gflops) : std::string("-"); };
    printf("%-14s %12s %12s   GFLOP/s of (%ld, %ld) @ (%ld, %ld), %s\n", "kernel", "fp32", "bf16",
           M, K, K, N, ops::device_start().c_str());
    for (int k = 0; k < cpu::KERNELS; k++) {
        if (!cpu::kernel_here(k)) { continue; }
        printf("%-14s %12s %12s\n", cpu::kernels[k].name, cell(fp32[k]).c_str(),
               cell(bf16[k]).c_str());
    }
    const int in_fp32 = cpu::choice_of(fp32), in_bf16 = cpu::choice_of(bf16);
    const double gain = bf16[in_bf16] / fp32[in_fp32];
    printf("bf16 by %s takes %.2f times as long as fp32 by %s: ", cpu::kernels[in_bf16].name,
           1 / gain, cpu::kernels[in_fp32].name);
    printf(gain > 1.15 ? "make train_sink PRECISION=bf16 is faster here\n"
                       : "PRECISION=bf16 gains nothing here, fp32 is the better choice\n");
    return 0;
}

// tokens/s of training steps on random tokens, a line of JSON: of one micro-batch, or with
// --total-batch of as many as a run's steps have. With --ops also tables: time of
// every operation against its roof, memory by tensor, what an evaluation of the sinks costs
int command_bench(Flags f) {
    if (f.products) { return bench_products(f); }
    ops::tune_products();
    ops::use_graph(f.graph);
    preset_apply(&f);
    if (!f.given_steps) { f.steps = 12; }
    require(f.steps >= 1, "--steps 0", "1 or more");
    output_check(f.json, files_read(f, split(f.data, ',')));
    reject_unused_model_flags(f);
    reject_unused_data_flags(f, split(f.data, ','));
    Data data = data_from_flags(f, f.arch.T, std::min<long>(64, f.arch.T));
    Arch c = arch_from_flags(&f, data.V);
    memory_check(c, f.batch, f.arch.T, true);
    const double product = product_gflops(), gbytes = f.ops ? memory_gbytes() : 0;
    Model m = model_new(c, f.arch.T, true);
    model_init(&m, f.seed);
    choose_batch(&m, &f, 0);
    const long accum = f.total_batch ? f.total_batch / (f.batch * f.arch.T) : 1;
    const double tokens = (double)accum * f.batch * f.arch.T;
    std::vector<int> seqs((size_t)f.batch * (f.arch.T + 1)), probe(100 * 65);
    Rng rng = rng_stream(f.seed, SEED_BENCH);
    for (auto* x : { &seqs, &probe }) { for (auto& token : *x) { token = rng_below(&rng, c.V); } }
    std::vector<double> step_ms;
    const long targets = accum * targets_count(&m, seqs.data(), f.batch, f.arch.T);
    for (long i = 0; i <= f.steps; i++) { // the first is a warm-up
        const double t0 = now_ms();
        model_zero(&m);
        for (long k = 0; k < accum; k++) {
            model_accumulate(&m, seqs.data(), f.batch, f.arch.T, targets, k + 1 == accum);
        }
        model_update(&m, { 1e-4f, 0.9f, 0.95f, 1e-8f, 0.1f, i + 1 }, 1, ADAMW);
        if (i) { step_ms.push_back(now_ms() - t0); }
    }
    std::sort(step_ms.begin(), step_ms.end());
    const double ms = step_ms[step_ms.size() / 2], flops = flops_per_token(&m, f.arch.T);
    const double gflops = flops * tokens / ms / 1e6;
    std::string more;
    if (f.ops) {
        std::string table;
        const double acts = acts_bytes(c, true, f.batch, f.arch.T, &table);
        model_load(&m, seqs.data(), f.batch, f.arch.T);  // of pieces it was not whole
        model_body(&m);
        more = bench_ops(&m, accum, ms, product, gbytes);
        double bytes;
        printf("memory %s\n", memory_text(c, f.batch, f.arch.T, true, &bytes).c_str());
        printf("activations, MiB:%s\n", table.c_str());
        const int T = std::min(64, f.arch.T); // no longer than the model's tables of positions
        const double eval = time_ms([&] { measure(&m, probe.data(), 100, T, f.batch * f.arch.T); });
        printf("sinks of 100 x %d tokens: %.2f ms, %.1f%% of a step of %.0f tokens\n", T, eval,
               100 * eval / ms, tokens);
        more += strf(
            ",\"gbytes\":%.1f,\"activation_bytes\":%.0f,\"eval_ms\":%.3f,\"eval_of_step\":%.4f",
            gbytes, acts, eval, eval / ms);
    }
    std::string o = strf("{\"attn\":\"%s\",\"bias\":\"%s\",\"L\":%d,\"C\":%d,\"NH\":%d,",
                         build::Attn::name, BIAS_ROWS[BUILD_BIAS].name, c.L, c.C, c.NH);
    o += strf("\"F\":%d,\"V\":%d,\"T\":%d,\"B\":%ld,\"params\":%ld,", c.F, c.V, f.arch.T, f.batch,
              m.num_params);
    model_free(&m);
    o += strf("\"tokens_per_step\":%.0f,", tokens);
    o += strf("\"ms\":%.3f,\"tokens_per_s\":%.0f,\"flops_per_token\":%.0f,", ms, tokens / ms * 1e3,
              flops);
    o += strf("\"gflops\":%.3f,\"product_gflops\":%.3f,\"of_product\":%.3f", gflops, product,
              gflops / product);
    if (!cpu::choice().name.empty()) { o += ",\"kernel\":" + json_str(cpu::choice().name); }
    printf("%s}\n", o.c_str());
    if (!f.json.empty()) { file_write(f.json, o + more + "}\n"); }
    return 0;
}
