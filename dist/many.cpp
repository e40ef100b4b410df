/*
dist/many.cpp -- what many processes do with a run: they agree on it, share its steps, and add up
what each has measured.
*/
#include "../flags.h"
#include "../log.h"
#include "../model.h"

#ifdef DIST
namespace dist {
void run_agree(const Flags& f) {
    const std::string build = switches_text(f.arch) + ", commit " + COMMIT;
    agree("build", build, "start the same program on every rank");
    agree("command line", flags_json(f), "give all ranks the same flags");
}

// Dies at flags that need one process.
static void one_process_check(const Flags& f) {
    require(f.optimizer != OPTIMIZER_muon, "--optimizer muon",
            "one process: it works on whole matrices, and several share them");
    require(f.only.empty(), "--only " + f.only,
            "one process: it works on whole tensors, and several share them");
    require(!f.graph, "--graph",
            "one process: several send gradients between the kernels");
}

void run_share(Flags* f) {
    if (world() == 1) { return; }
    one_process_check(*f);
    const long T = f->arch.T;
    const long step = f->total_batch ? f->total_batch : f->batch * T;
    const long sequences = step / T;
    require(step % (T * world()) == 0,
            strf("a step of %ld sequences of %ld tokens, %d ranks", sequences, T, world()),
            "equal shares for all ranks: change --total-batch or, without it, --batch");
    f->batch = std::min(f->batch, sequences / world());
}

// Makes room for the norms of every layer: a rank may have measured nothing.
static void resize_norms(Metrics* r, const Sizes& sizes) {
    auto resize = [](NormPair* norms, size_t n) {
        norms->first.resize(n);
        norms->rest.resize(n);
    };
    resize(&r->h, sizes.L + 1);
    resize(&r->k, r->L);
    resize(&r->v, r->L);
    resize(&r->pre, sizes.norm.stream ? 2 * sizes.L : 0);
}

// Sets every number of a report that is a sum over sequences to f of it.
static void each_sum(Metrics* r, const std::function<double(double)>& f) {
    const size_t floats = r->heads.size() * sizeof(HeadMetrics) / sizeof(float);
    float* heads = (float*)r->heads.data();
    for (size_t i = 0; i < floats; i++) { heads[i] = f(heads[i]); }
    for (auto* all : { &r->h_star, &r->h_median, &r->h.first, &r->h.rest, &r->k.first, &r->k.rest,
                       &r->v.first, &r->v.rest, &r->pre.first, &r->pre.rest }) {
        for (double& x : *all) { x = f(x); }
    }
}

void sum_metrics(Metrics* r, const Sizes& sizes, double* loss, long* count) {
    if (world() == 1) { return; }
    resize_norms(r, sizes);
    std::vector<double> sums = { *loss, (double)*count };
    each_sum(r, [&](double x) {
        sums.push_back(x);
        return x;
    });
    sum(sums.data(), sums.size());
    const double* next = sums.data();
    *loss = *next++;
    *count = (long)*next++;
    each_sum(r, [&](double) { return *next++; });

    // a maximum by way of a sum: every rank has its own slots
    const size_t states = r->h_max.size();
    std::vector<double> largest(states * world());
    std::copy(r->h_max.begin(), r->h_max.end(), &largest[states * rank()]);
    sum(largest.data(), largest.size());
    for (size_t i = 0; i < largest.size(); i++) {
        double* most = &r->h_max[i % states];
        *most = std::max(*most, largest[i]);
    }
}
} // namespace dist
#endif
