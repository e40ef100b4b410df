/*
experts.h -- mixture of experts in place of the FFN, for forward passes alone: a router picks
for each row of the stream a few of many FFNs, and adds what they say with its weights:

    r = n W_r^T + b_r,   x_{2l+2} = x_{2l+1} + sum over the k experts of largest r of p_e FFN_e(n)
                                             + sigmoid(n w^T) FFN_shared(n)

p = softmax(r) over all experts, divided by the sum of the chosen ones' unless --expert-shares 1
says otherwise (Mixtral: Jiang et al. 2024, section 2.1; gpt-oss takes its softmax over the chosen
ones, which is the same). The last term is there with --shared-expert (Qwen2-MoE: transformers 5.23,
modeling_qwen2_moe.py). Host code gathers the rows of each expert, so that its weights are read once
a pass.
*/
#ifndef EXPERTS_H
#define EXPERTS_H
#include "../model.h" // Model, act_n, act_x

// what one expert has to do: rows of the stream, and the weight of its answer in each
struct ExpertWork {
    std::vector<int> row;
    std::vector<acc> weight;
};

// adds row `row` with router logits r (E) to the work of its experts;
// of equal logits the first wins
inline void experts_route(std::vector<ExpertWork>* work, const real* r, int row, const Arch& c) {
    std::vector<int> order(c.experts);
    for (int e = 0; e < c.experts; e++) { order[e] = e; }
    std::stable_sort(order.begin(), order.end(), [=](int a, int b) { return r[b] < r[a]; });
    acc all = 0, chosen = 0;
    std::vector<acc> p(c.experts);
    for (int k = 0; k < c.experts; k++) {
        p[k] = std::exp(acc(r[order[k]]) - acc(r[order[0]]));
        all += p[k];
        if (k < c.experts_used) { chosen += p[k]; }
    }
    for (int k = 0; k < c.experts_used; k++) {
        (*work)[order[k]].row.push_back(row);
        (*work)[order[k]].weight.push_back(p[k] / (c.expert_shares ? all : chosen));
    }
}

// gpt-oss: g and u of a row (2F: gate | up) are cut at the limit, out = (u + 1) g sigmoid(1.702 g)
inline void experts_clamped(real* out, const real* inp, float limit, int n, int F) {
    for (int i = 0; i < n; i++) {
        for (int f = 0; f < F; f++) {
            const acc cut = limit, g = std::min(acc(inp[i * 2 * F + f]), cut);
            const acc u = std::max(-cut, std::min(acc(inp[i * 2 * F + F + f]), cut));
            out[i * F + f] = real((u + 1) * g / (1 + std::exp(acc(-1.702) * g)));
        }
    }
}

// expert e of layer l on the n rows in a.gathered (n, C) -> a.answer (n, C)
inline void experts_answer(Model* m, int l, long e, int n) {
    const auto& w = m->w.layer[l];
    const long C = m->d.C, F = m->d.F, FH = m->d.FH;
    const real* up_bias = w.egb ? w.egb + e * FH : NULL;
    const real* down_bias = w.edb ? w.edb + e * C : NULL;
    ops::matmul_forward(m->a.fch, m->a.gathered, w.egw + e * FH * C, up_bias, NULL, n, C, FH);
    if (m->c.expert_limit) {
        experts_clamped(m->a.fca, m->a.fch, m->c.expert_limit, n, F);
    } else {
        ops::ffn_forward(m->a.fca, m->a.fch, m->d.ffn.act, m->d.ffn.gated, n, F);
    }
    ops::matmul_forward(m->a.answer, m->a.fca, w.edw + e * C * F, down_bias, NULL, n, F, C);
}

// out (N, C) <- out + what the expert of all tokens says of n (N, C), times its gate
inline void experts_shared(Model* m, int l, real* out, const real* n) {
    const auto& w = m->w.layer[l];
    const Acts& a = m->a;
    const long C = m->d.C, S = m->c.shared_expert, N = rows(m);
    ops::matmul_forward(a.shared_h, n, w.sharedgw, NULL, NULL, N, C, 2 * S);
    ops::ffn_forward(a.shared_a, a.shared_h, m->d.ffn.act, true, N, S);
    ops::matmul_forward(a.answer, a.shared_a, w.shareddw, NULL, NULL, N, S, C);
    ops::matmul_forward(a.shared_g, n, w.sharedw, NULL, NULL, N, C, 1);
    for (long i = 0; i < N; i++) {
        const acc open = 1 / (1 + std::exp(-acc(a.shared_g[i])));
        for (long c = i * C; c < (i + 1) * C; c++) {
            out[c] = real(acc(out[c]) + open * acc(a.answer[c]));
        }
    }
}

// the FFN of layer l where it is a mixture: x_{2l+2} out of x_{2l+1} and its norm
inline void experts_forward(Model* m, int l) {
    const auto& w = m->w.layer[l];
    const long C = m->d.C, E = m->c.experts, N = rows(m);
    const real* n = act_n(m, 2 * l + 1);
    real* out = act_x(m, 2 * l + 2);
    ops::matmul_forward(m->a.router, n, w.routerw, w.routerb, NULL, N, C, E);
    std::vector<ExpertWork> work(E);
    for (int i = 0; i < N; i++) { experts_route(&work, m->a.router + i * E, i, m->c); }
    std::copy_n(act_x(m, 2 * l + 1), N * C, out);
    if (m->c.shared_expert) { experts_shared(m, l, out, n); }
    for (long e = 0; e < E; e++) {
        const int rows_e = work[e].row.size();
        for (int i = 0; i < rows_e; i++) {
            std::copy_n(n + work[e].row[i] * C, C, m->a.gathered + i * C);
        }
        if (rows_e) { experts_answer(m, l, e, rows_e); }
        for (int i = 0; i < rows_e; i++) {
            real* x = out + work[e].row[i] * C;
            const real* y = m->a.answer + i * C;
            for (long c = 0; c < C; c++) { x[c] = real(acc(x[c]) + work[e].weight[i] * acc(y[c])); }
        }
    }
}

// for the list of stages; never called: model_new trains no such model
inline void experts_backward(Model*, int) {}
#endif // EXPERTS_H
