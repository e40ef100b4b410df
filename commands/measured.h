/*
measured.h -- what is measured of a batch of sequences: its place in device memory, and how it gets
from there into the report.
*/
#ifndef MEASURED_H
#define MEASURED_H

// what is measured of one batch of sequences, in device memory until all layers are done
struct Measured {
    HeadMetrics* heads;                          // (A, B, NH), A the layers with attention
    // norms (L+1, N), (A, N, KV) twice, (2L, N); largest and median (L+1, B, 2)
    acc *h, *k, *v, *pre, *sizes;
    size_t bytes;
};

// points into base, or only counts
static Measured measured_point(const Model* m, char* base) {
    const size_t L = m->c.L, A = m->d.attending(L), N = rows(m), KV = m->c.KV;
    Measured r = Measured();
    auto place = [&](size_t bytes) {
        char* p = base + r.bytes;
        r.bytes += (bytes + 255) / 256 * 256;
        return p;
    };
    r.heads = (HeadMetrics*)place(A * m->B * m->c.NH * sizeof(HeadMetrics));
    r.h = (acc*)place((L + 1) * N * sizeof(acc));
    r.k = (acc*)place(A * N * KV * sizeof(acc));
    r.v = (acc*)place(A * N * KV * sizeof(acc));
    r.pre = (acc*)place(m->d.norm.stream ? 2 * L * N * sizeof(acc) : 0);
    r.sizes = (acc*)place((L + 1) * m->B * 2 * sizeof(acc));
    return r;
}

// In a model that mixes local and global layers, alpha_k of a local layer counts only the queries
// that still see token k. The others add zeros to the mean over i >= k, so it is scaled up by this
static float seen_factor(const Model* m, int l, int k) {
    const Arch& c = m->c;
    const int all = m->T - m->d.bias.token - k + 1;
    bool mixed = false;
    for (int i = 0; i < c.L; i++) { mixed = mixed || !is_local(c, i); }
    const bool asks = is_local(c, l) && mixed && !c.prefix;
    return asks ? (float)all / std::min(all, c.window) : 1;
}

// what n heads of layer l give to tokens, of the queries that see them
static void measure_seen(const Model* m, int l, HeadMetrics* heads, int n) {
    const int most = std::min<int>(METRIC_K, m->T - m->d.bias.token);
    for (int k = 1; k <= most; k++) {
        const float factor = seen_factor(m, l, k);
        for (int i = 0; i < n; i++) {
            heads[i].alpha[k] *= factor;
            heads[i].proxy[k] *= factor;
            if (k == 1) { heads[i].effective *= factor; }
        }
    }
}

// adds sequences i.. of n, now in host memory, to the report
static void measure_add(Metrics* out, const Model* m, const Measured& r, int i, int n) {
    const Sizes& d = m->d;
    const int B = m->B, T = m->T, N = rows(m), skip = d.bias.token;
    for (int a = 0; a < out->L; a++) {
        for (int b = 0; b < B; b++) {
            HeadMetrics* heads = &out->heads[((size_t)(i + b) * out->L + a) * d.NH];
            std::copy_n(&r.heads[((size_t)a * B + b) * d.NH], d.NH, heads);
            measure_seen(m, out->layers[a], heads, d.NH);
        }
        norms_add(&out->k, a, r.k + (size_t)a * N * d.KV, B, T, d.KV, skip, n);
        norms_add(&out->v, a, r.v + (size_t)a * N * d.KV, B, T, d.KV, skip, n);
    }
    for (int l = 0; l <= d.L; l++) {
        const acc* h = r.h + (size_t)l * N;
        for (int b = 0; b < B; b++) {
            const acc* size = r.sizes + ((size_t)l * B + b) * 2;
            if (d.bias.token) { out->h_star[l] += h[(size_t)b * T] / n; }       // position 0
            out->h_max[l] = std::max<double>(out->h_max[l], size[0]);
            out->h_median[l] += (double)size[1] / n;
        }
        norms_add(&out->h, l, h, B, T, 1, skip, n);
    }
    for (int j = 0; d.norm.stream && j < 2 * d.L; j++) {
        norms_add(&out->pre, j, r.pre + (size_t)j * N, B, T, 1, skip, n);
    }
}

// of many ranks, each of which has measured some of the sequences: all of them on every rank
static void measure_sum(Metrics* r, const Model* m, double* loss, long* count) {
    const size_t L = m->c.L, floats = sizeof(HeadMetrics) / sizeof(float);
    float* heads = (float*)r->heads.data();
    std::vector<double> all = { *loss, (double)*count };
    std::vector<double> largest((L + 1) * dist::world);
    all.insert(all.end(), heads, heads + r->heads.size() * floats);
    std::vector<std::vector<double>*> sums = { &r->h_star, &r->h_median };
    const size_t A = r->L, by_layer[] = { L + 1, A, A, m->d.norm.stream ? 2 * L : 0 };
    NormPair* const pairs[] = { &r->h, &r->k, &r->v, &r->pre };
    for (int i = 0; i < 4; i++) {                    // a rank may have measured nothing
        pairs[i]->first.resize(by_layer[i]); sums.push_back(&pairs[i]->first);
        pairs[i]->rest.resize(by_layer[i]);  sums.push_back(&pairs[i]->rest);
    }
    for (auto v : sums) { all.insert(all.end(), v->begin(), v->end()); }
    std::copy(r->h_max.begin(), r->h_max.end(), &largest[(L + 1) * dist::rank]);
    dist::sum(all.data(), all.size());
    dist::sum(largest.data(), largest.size());
    const double* from = all.data();
    *loss = *from++;
    *count = (long)*from++;
    for (size_t i = 0; i < r->heads.size() * floats; i++) { heads[i] = (float)*from++; }
    for (auto v : sums) { for (auto& x : *v) { x = *from++; } }
    for (size_t i = 0; i < largest.size(); i++) {
        r->h_max[i % (L + 1)] = std::max(r->h_max[i % (L + 1)], largest[i]);
    }
}
#endif // MEASURED_H
