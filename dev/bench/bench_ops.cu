/*
bench_ops.cu -- every operation of a training step on its own: milliseconds, FLOP/s and GB/s, and
how near they come to the roof, the rates of a large matrix product and of y += x. Then what an
evaluation of the sinks costs beside a step. The flags are those of `train_sink bench`.

    make bench-ops && build/cpu/bench_ops -m small -b 16 [--total-batch 16384] [--json FILE]

The products' FLOPs are counted a second time, for the whole step; if the two differ, it fails. A
new stage of a layer needs a row in cost_of.
*/
#define MODEL_ONLY // its own main
#if defined(__CUDACC__) || defined(EMU)
#include "../../train_sink.cu"
#include "../../core/rest.h"
#else
#include "../../train_sink.cu"
#include "../../run/bench.cpp"
#endif

// Measures the GB/s of y += x.
static double memory_gbytes() {
    const long n = (long)ops::large * ops::large * (ops::on_host ? 16 : 4);
    real* x = (real*)ops::device_malloc(2 * n * sizeof(real));
    const double ms = time_ms([=] { ops::add(x, x + n, n); });
    ops::device_free(x);
    return 3.0 * n * sizeof(real) / ms / 1e6;
}

// What a stage costs for one row, forward; backward costs twice as much unless said otherwise.
struct Cost {
    double flops;               // of its products; attention's depend on T
    double moved;               // elements, without weights
    double moved_backward = 2 * moved;
};

// Returns the costs of the stages that are trained, by name.
static std::map<std::string, Cost> cost_of(const Sizes& z) {
    const double C = z.C, F = z.F, up = z.up_width, q = z.q_width, qk = z.qk_width;
    return {
        { "norm",       { 0, 2 * C } },
        { "qkv",        { 2 * C * z.qkv_width, C + z.qkv_width } },
        { "qk norm",    { 0, 3 * qk } },
        { "rotary",     { 0, 2 * qk } },
        { "phi",        { z.phi ? 4 * qk * z.HS : 0, 4 * qk } },
        { "attention",  { 0, z.qkv_width + q } },
        { "gate",       { 2 * C * z.gate_width, C + 2 * q } },
        { "combine",    { 0, q + z.OC } },
        { "out",        { 2.0 * z.OC * C, z.OC + 2 * C } },
        { "FFN norm",   { 0, 2 * C } },
        { "gate|up",    { 2 * C * up, C + up } },
        { "activation", { 0, up + F, 2 * up + F } },
        { "down",       { 2 * F * C, F + 2 * C } },
    };
}

// An operation of the training step.
struct Op {
    std::string name;
    double calls;               // per step
    double flops;               // of one call, in matrix products only
    double bytes;               // that one call moves at least: every tensor once
    double ms;                  // that one call takes
};

// Returns the multiply-adds of one product of attention in a layer.
static double attention_madds(const Model* m) {
    const AttnShape s = attn_shape(m, 0);
    double pairs = 0;           // of a query and a key that it sees
    for (int t = 0; t < s.T; t++) {
        for (int j = 0; j < s.T; j++) { pairs += attn_sees(s, t, j); }
    }
    return pairs * m->B * s.NH * s.HS;
}

// Times the operations of a step and keeps them as rows of a table.
struct StepOps {
    Model* m;
    long accum;                 // micro-batches per step
    std::vector<Op> rows;

    void add(const std::string& name, double calls, double flops, double bytes,
             const std::function<void()>& run) {
        rows.push_back({ name, calls, flops, bytes, time_ms(run) });
    }
    void stages();
    void head();
    void update();
};

// Adds the stages of a layer, forward and backward.
void StepOps::stages() {
    Model* m = this->m;
    const double calls = accum * m->arch.L;
    const int N = ::rows(m);
    const auto costs = cost_of(m->sizes);
    for (auto& stage : LAYER_STAGES) {
        if (!stage.when(m, 0)) { continue; }
        const std::string name = stage.name;
        require(costs.count(name), "stage " + name, "a row in cost_of, dev/bench/bench_ops.cu");
        const Cost cost = costs.at(name);
        const double weights = cost.flops / 2;
        const bool attention = stage.role == ROLE_ATTENTION;
        const double flops = attention ? 4 * attention_madds(m) : cost.flops * N;
        const double backward = attention ? 2.5 * flops : 2 * flops;
        add(name, calls, flops, sizeof(real) * (cost.moved * N + weights),
            [=] { stage.forward(m, 0); });
        add(name + ", backward", calls, backward,
            sizeof(real) * (cost.moved_backward * N + 2 * weights), [=] { stage.backward(m, 0); });
    }
}

// Adds the head, which works on chunks of R rows.
void StepOps::head() {
    Model* m = this->m;
    const double C = m->arch.C, V = m->arch.V;
    const int N = ::rows(m);
    const int R = m->lm_head_rows;
    const double chunks = (N + R - 1) / R;
    const double activations = 3.0 * R * C + 2.0 * R * V, weights = 3.0 * C * V;
    add("head", accum * chunks, 6.0 * R * C * V, sizeof(real) * (activations + weights), [=] {
        const int B = m->B, T = m->T;
        m->B = 1;
        m->T = R;
        model_lm_head(m, 1e-3f);
        m->B = B;
        m->T = T;
    });
}

// Adds what a step does once, after its micro-batches.
void StepOps::update() {
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

// Times every operation on the tensors of a micro-batch: the stages of a layer, then the rest.
static std::vector<Op> all_ops(Model* m, long accum) {
    const double NC = (double)sizeof(real) * rows(m) * m->arch.C;
    StepOps table = { m, accum, {} };
    table.add("embedding", accum, 0, 2 * NC, [=] { embed_forward(m); });
    table.stages();
    table.head();
    table.add("embedding, backward", accum, 0, 3 * NC, [=] { embed_backward(m); });
    table.update();
    return table.rows;
}

// Dies if the operations' products are not those of the step, but for a chunk that is not full and
// vectors that look like matrices. phi's products are not counted for the step.
static void check_flops(const Model* m, const std::vector<Op>& all, long accum, int T) {
    double sum = 0;
    for (auto& op : all) {
        const bool attention = op.name == "attention" || op.name == "attention, backward";
        sum += attention ? 0 : op.calls * op.flops;
    }
    const Arch& c = m->arch;
    const double products = flops_per_token(m, T) - 6.0 * T * c.NH * c.HS * c.L;
    const double step = products * rows(m) * accum;
    const bool whole_chunks = rows(m) % m->lm_head_rows == 0;
    if (whole_chunks && !m->sizes.phi && fabs(sum / step - 1) > 0.01) {
        die(EXIT_MACHINE, strf("bench_ops: %.0f FLOPs by operation, %.0f by step", sum, step));
    }
}

// Prints the table and returns it as JSON.
static std::string print_ops(const std::vector<Op>& all, double step_ms, double product,
                             double gbytes) {
    double sum = 0;
    std::vector<std::string> objects;
    printf("%-22s %6s %10s %9s %10s %9s %9s\n", "operation", "calls", "ms a call", "of step",
           "GFLOP/s", "GB/s", "of roof");
    for (auto& op : all) {
        // what takes no time is done by another operation, and has no rate
        const bool ran = op.ms >= 1e-4;
        const double roof = ran ? std::max(op.flops / product, op.bytes / gbytes) / 1e6 : 0;
        sum += op.calls * op.ms;
        printf("%-22s %6.0f %10.4f %8.1f%%", op.name.c_str(), op.calls, op.ms,
               100 * op.calls * op.ms / step_ms);
        if (ran) {
            printf(" %10.1f %9.1f %8.0f%%\n", op.flops / op.ms / 1e6, op.bytes / op.ms / 1e6,
                   100 * roof / op.ms);
        } else {
            printf(" %10s %9s %9s\n", "-", "-", "-");
        }
        JsonObject o;
        o.text("name", op.name);
        o.count("calls", op.calls);
        o.decimals("ms", op.ms, 5);
        o.count("flops", op.flops);
        o.count("bytes", op.bytes);
        o.decimals("of_roof", roof / op.ms, 3);
        objects.push_back(o.all());
    }
    printf("%-22s %6s %10.4f %8.1f%%\n", "sum", "", sum, 100 * sum / step_ms);
    return json_list(objects);
}

// Returns the milliseconds of an evaluation of the sinks of 100 sequences.
static double time_eval(Model* m, const Flags& f, int len) {
    const int SEQS = 100;
    Flags short_ones = f;
    short_ones.batch = SEQS;
    short_ones.arch.T = len;
    const std::vector<int> probe = random_tokens(short_ones, m->arch.V);
    return time_ms([&] { measure(m, probe.data(), SEQS, len, f.batch * f.arch.T); });
}

int main(int argc, char** argv) {
    process_begin(argv);
    dist::start();
    std::vector<char*> words = { argv[0], (char*)"bench" };
    words.insert(words.end(), argv + 1, argv + argc);
    char letter;
    Flags f = flags_parse(words.size(), words.data(), &letter);
    ops::device_start();
    const double gbytes = memory_gbytes();
    double product;
    Model m = bench_model(f, &product);
    const std::vector<int> seqs = random_tokens(f, m.arch.V);
    const int T = f.arch.T;
    const long accum = f.total_batch ? f.total_batch / (f.batch * T) : 1;
    const double tokens = (double)accum * f.batch * T;
    const double ms = time_steps(&m, f, seqs, accum);
    model_load(&m, seqs.data(), f.batch, T);    // pieces of a small model had loaded parts of it
    model_layers(&m);
    const std::vector<Op> all = all_ops(&m, accum);
    check_flops(&m, all, accum, T);
    JsonObject o = bench_json(&m, f, tokens, ms, product);
    o.json("ops", print_ops(all, ms, product, gbytes));

    const int len = std::min(64, T);
    const double eval = time_eval(&m, f, len);
    printf("sinks of 100 x %d tokens: %.2f ms, %.1f%% of a step of %.0f tokens\n", len, eval,
           100 * eval / ms, tokens);
    o.decimals("gbytes", gbytes, 1);
    o.decimals("eval_ms", eval, 3);
    o.decimals("eval_of_step", eval / ms, 4);
    model_free(&m);
    printf("%s\n", o.all().c_str());
    if (!f.json.empty()) { file_write(f.json, o.all() + "\n"); }
    return 0;
}
