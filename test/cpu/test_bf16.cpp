/*
test_bf16.cpp -- the fast CPU backend with tensors in bf16 against reference.h in float on
the same numbers: what is stored in bf16 is the float rounded once, so at most 1/256 of it away;
attention, whose weights are rounded too, 1/64 of the largest. Attention by every kernel
that this processor has.
*/
#define BACKEND cpu
#define PRECISION bf16
#include "../../cpu/attention.h"
#include "../../cpu/training.h"
#include "../check.h"
#include "../naive.h"
typedef std::vector<float> Floats;
typedef std::vector<cpu::bf16> Halves;

// normal numbers that bf16 holds
static Floats numbers(long n, uint64_t seed, double std = 1) {
    Floats x;
    for (double v : random_numbers(n, std, seed)) { x.push_back(cpu::bf16((float)v)); }
    return x;
}
static Halves half(const Floats& x) { return Halves(x.begin(), x.end()); }

// got is want, to `part` of each number and `of_top` of the largest
template <class G>
void near(const char* what, const G& got, const Floats& want, double part, double of_top) {
    double top = 0, worst = 0;
    for (float x : want) { top = std::max(top, (double)fabs(x)); }
    for (size_t i = 0; i < want.size(); i++) {
        const double far = fabs((double)(float)got[i] - want[i]) /
                           (part * fabs(want[i]) + of_top * top + 1e-30);
        worst = far <= worst ? worst : far;
    }
    CHECK(worst <= 1, "%s: %.3g times as far from the reference as it may be", what, worst);
}
static const double ONE_ROUNDING = 1.0 / 256, SUMS = 1e-5;

static void test_rows() {
    const int N = 35, C = 40;
    const Floats x = numbers(N * C, 1), w = numbers(C, 2), d = numbers(N * C, 3);
    Floats out(N * C), rstd(N), rstd_h(N), dx(N * C), dw(C), dw_h(C);
    Halves xh = half(x), wh = half(w), dh = half(d), out_h(N * C), dx_h(N * C);
    const NormShape shape = { N, C, 1e-5f };
    ref::norm_forward(out.data(), { NULL, rstd.data() }, x.data(), { w.data(), NULL }, shape);
    cpu::norm_forward(out_h.data(), { NULL, rstd_h.data() }, xh.data(), { wh.data(), NULL }, shape);
    near("norm_forward", out_h, out, ONE_ROUNDING, SUMS);
    near("rstd", rstd_h, rstd, 0, SUMS);
    ref::norm_backward(dx.data(), { dw.data(), NULL }, d.data(), x.data(), w.data(),
                       { NULL, rstd.data() }, false, shape);
    cpu::norm_backward(dx_h.data(), { dw_h.data(), NULL }, dh.data(), xh.data(), wh.data(),
                       { NULL, rstd.data() }, false, shape);
    near("norm_backward", dx_h, dx, ONE_ROUNDING, SUMS);
    near("norm_backward, dweight", dw_h, dw, 0, SUMS);
    const Floats gate_up = numbers(N * C * 2, 4);
    const Halves gate_up_h = half(gate_up);
    Floats dgu(N * C * 2);
    Halves dgu_h(N * C * 2);
    ref::ffn_forward(out.data(), gate_up.data(), ACT_swish, true, N, C);
    cpu::ffn_forward(out_h.data(), gate_up_h.data(), ACT_swish, true, N, C);
    near("ffn_forward", out_h, out, ONE_ROUNDING, SUMS);
    ref::ffn_backward(dgu.data(), d.data(), gate_up.data(), ACT_swish, true, N, C);
    cpu::ffn_backward(dgu_h.data(), dh.data(), gate_up_h.data(), ACT_swish, true, N, C);
    near("ffn_backward", dgu_h, dgu, ONE_ROUNDING, SUMS);
    for (float cap : { 0.0f, 4.0f }) {
        for (float dloss : { 0.0f, 0.25f }) {
            Floats logits = x, losses(N), losses_h(N);
            Halves logits_h = xh;
            std::vector<int> targets(N);
            for (int n = 0; n < N; n++) { targets[n] = n % 7 == 3 ? -1 : n * n % C; }
            ref::classifier(losses.data(), logits.data(), targets.data(), dloss, cap, N, C);
            cpu::classifier(losses_h.data(), logits_h.data(), targets.data(), dloss, cap, N, C);
            near("classifier", logits_h, logits, ONE_ROUNDING, SUMS);
            near("classifier, losses", losses_h, losses, 0, SUMS);
        }
    }
}

template <class A> void test_attention(AttnShape s) {
    const long N = (long)s.B * s.T;
    const Floats qkv = numbers(N * attn_row(s), 1), dout = numbers(N * s.NH * s.HS, 2);
    Floats out(dout.size()), stat(N * s.NH * 2), stat_h(stat.size()), dqkv(qkv.size());
    const Halves qkv_h = half(qkv), dout_h = half(dout);
    Halves out_h(out.size()), dqkv_h(dqkv.size());
    ref::attention_forward<A, Bias_none, Pe_nope>(out.data(), stat.data(), Floats(qkv).data(), {},
                                                  NULL, s);
    cpu::attention_forward<A, Bias_none, Pe_nope>(out_h.data(), stat_h.data(), Halves(qkv_h).data(),
                                                  {}, NULL, s);
    near("attention_forward", out_h, out, ONE_ROUNDING, 1.0 / 128);
    near("stat", stat_h, stat, 0, SUMS);
    ref::attention_backward<A, Bias_none, Pe_nope>(dqkv.data(), {}, dout.data(),
                                                   { out.data(), stat.data() }, qkv.data(), {},
                                                   NULL, s);
    cpu::attention_backward<A, Bias_none, Pe_nope>(dqkv_h.data(), {}, dout_h.data(),
                                                   { out_h.data(), stat_h.data() }, qkv_h.data(),
                                                   {}, NULL, s);
    near("attention_backward", dqkv_h, dqkv, ONE_ROUNDING, 1.0 / 64);
}

int main() {
    CASE("rows") { test_rows(); }
    const int fastest = cpu::product_settings.last_kernel;
    for (int k = 0; k <= fastest; k++) {                 // every kernel that is here
        if (!cpu::kernel_here(k) || !check_case("attention")) { continue; }
        cpu::product_settings.last_kernel = k;
        test_attention<Attn_softmax>(whole({ 2, 70, 4, 2, 16, 0, 0, 0, 16, 1, 1 }));
        test_attention<Attn_softmax_p>(whole({ 1, 70, 2, 1, 24, 0, 0, 0, 24, 2, 1 }));
        test_attention<Attn_sigmoid>(whole({ 1, 70, 2, 1, 24, 20, 0, 0, 24, 1, 1 }));
    }
    return check_done();
}
