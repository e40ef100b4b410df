/*
open/experts.cpp -- mixture of experts in place of the FFN, for forward passes alone. A router picks
a few of many FFNs for each row of the stream, and adds their outputs with its weights:

    r = n W_r^T + b_r,   x_{2l+2} = x_{2l+1} + sum over the k experts of largest r of p_e FFN_e(n)
                                             + sigmoid(n w^T) FFN_shared(n)

p = softmax(r) over all experts, divided by the sum of the chosen ones' unless expert_shares
says otherwise (Mixtral: Jiang et al. 2024, section 2.1; gpt-oss takes its softmax over the chosen
ones, which is the same). The last term is there with shared_expert (Qwen2-MoE: transformers 5.23,
modeling_qwen2_moe.py). Host code gathers the rows of each expert, so that its weights are read once
per pass.
*/
#include "../model.h" // Model, act_n, act_x

// Adds an output y of C channels to a row x of the stream: x += weight y.
static void add_output(real* x, acc weight, const real* y, long C) {
    for (long c = 0; c < C; c++) { x[c] = real(acc(x[c]) + weight * acc(y[c])); }
}

// What one expert has to do: rows of the stream, and the weight of its output in each.
struct ExpertWork {
    std::vector<int> row;
    std::vector<acc> weight;
};

// Sorts the experts, those of the largest logits first; of equal logits the first one.
static std::vector<int> experts_order(const real* logits, int experts) {
    std::vector<int> order(experts);
    for (int e = 0; e < experts; e++) { order[e] = e; }
    const auto larger = [=](int a, int b) { return logits[b] < logits[a]; };
    std::stable_sort(order.begin(), order.end(), larger);
    return order;
}

// Adds a row with these router logits (E) to the work of its experts.
static void experts_route(std::vector<ExpertWork>* work, const real* logits, int row,
                          const Arch& arch) {
    const std::vector<int> order = experts_order(logits, arch.experts);
    const acc top = acc(logits[order[0]]);
    std::vector<acc> p(arch.experts);
    acc all = 0;
    acc chosen = 0;
    for (int k = 0; k < arch.experts; k++) {
        p[k] = std::exp(acc(logits[order[k]]) - top);
        all += p[k];
        if (k < arch.experts_used) { chosen += p[k]; }
    }
    const acc sum = arch.expert_shares ? all : chosen;
    for (int k = 0; k < arch.experts_used; k++) {
        ExpertWork& expert = (*work)[order[k]];
        expert.row.push_back(row);
        expert.weight.push_back(p[k] / sum);
    }
}

// Computes gpt-oss's activation: g and u of a row (2F: gate | up) are cut at the limit,
// out = (u + 1) g sigmoid(1.702 g).
static void experts_clamped(real* out, const real* inp, float limit, int n, int F) {
    const acc most = limit;
    for (int i = 0; i < n; i++) {
        const real* gate = inp + i * 2 * F;
        const real* up = gate + F;
        real* out_i = out + i * F;
        for (int f = 0; f < F; f++) {
            const acc g = std::min(acc(gate[f]), most);
            const acc u = std::max(-most, std::min(acc(up[f]), most));
            const acc e = std::exp(acc(-1.702) * g);
            out_i[f] = real((u + 1) * g / (1 + e));
        }
    }
}

// Runs expert e of layer l on the n rows in a.gathered (n, C): a.answer (n, C).
static void experts_answer(Model* m, int l, long e, int n) {
    const auto& p = layer_params(m, l);
    const Acts& a = m->acts;
    const long C = m->sizes.C;
    const long F = m->sizes.F;
    const long FH = m->sizes.up_width;
    const real* up = p.egw.w + e * FH * C;
    const real* up_bias = row_of(p.egb.w, e, FH);
    const real* down = p.edw.w + e * C * F;
    const real* down_bias = row_of(p.edb.w, e, C);
    real* fch = act_fch(m, l);
    real* fca = act_fca(m, l);
    ops::matmul_forward(fch, a.gathered, up, up_bias, NULL, n, C, FH);
    if (m->arch.expert_limit) {
        experts_clamped(fca, fch, m->arch.expert_limit, n, F);
    } else {
        ops::ffn_forward(fca, fch, m->sizes.ffn.act, m->sizes.ffn.gated, n, F);
    }
    ops::matmul_forward(a.answer, fca, down, down_bias, NULL, n, F, C);
}

// Adds the output of the expert of all tokens for n (N, C), times its gate and --residual-scale, to
// out (N, C).
static void experts_shared(Model* m, int l, real* out, const real* n) {
    const auto& p = layer_params(m, l);
    const Acts& a = m->acts;
    const long C = m->sizes.C;
    const long S = m->arch.shared_expert;
    const long N = rows(m);
    ops::matmul_forward(a.shared_h, n, p.sharedgw.w, NULL, NULL, N, C, 2 * S);
    ops::ffn_forward(a.shared_a, a.shared_h, m->sizes.ffn.act, true, N, S);
    ops::matmul_forward(a.answer, a.shared_a, p.shareddw.w, NULL, NULL, N, S, C);
    ops::matmul_forward(a.shared_g, n, p.sharedw.w, NULL, NULL, N, C, 1);
    for (long i = 0; i < N; i++) {
        const acc gate = acc(m->arch.residual_scale) / (1 + std::exp(-acc(a.shared_g[i])));
        add_output(out + i * C, gate, a.answer + i * C, C);
    }
}

bool is_mixture(const Model* m, int l) { return !m->sizes.has_ffn(l); }

// Runs the FFN of layer l where it is a mixture: x_{2l+2} from x_{2l+1} and its norm.
void experts_forward(Model* m, int l) {
    const auto& p = layer_params(m, l);
    const Acts& a = m->acts;
    const long C = m->sizes.C;
    const long E = m->arch.experts;
    const long N = rows(m);
    const real* n = act_n(m, 2 * l + 1);
    real* out = act_x(m, 2 * l + 2);
    ops::matmul_forward(a.router, n, p.routerw.w, p.routerb.w, NULL, N, C, E);
    std::vector<ExpertWork> work(E);
    for (int i = 0; i < N; i++) {
        experts_route(&work, a.router + i * E, i, m->arch);
    }

    std::copy_n(act_x(m, 2 * l + 1), N * C, out);
    if (m->arch.shared_expert) { experts_shared(m, l, out, n); }
    for (long e = 0; e < E; e++) {
        const ExpertWork& mine = work[e];
        const int rows_e = mine.row.size();
        if (rows_e == 0) { continue; }
        for (int i = 0; i < rows_e; i++) {
            std::copy_n(n + mine.row[i] * C, C, a.gathered + i * C);
        }
        experts_answer(m, l, e, rows_e);
        for (int i = 0; i < rows_e; i++) {
            const acc weight = mine.weight[i] * acc(m->arch.residual_scale);
            add_output(out + mine.row[i] * C, weight, a.answer + i * C, C);
        }
    }
}
