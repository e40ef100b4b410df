/*
anatomy.h -- probe --anatomy: where the massive activation of the first token comes from and where
it goes. Start with anatomy_measure, which reads the sequences twice:

    1  the stream         the largest entry of h, what attention and the FFN write, what they read
       the channel        in which |h| of token 1 grows most over one layer
       its form           of every layer's FFN, as far as it writes into that channel (form.h)
    2  the FFN            what it writes there, neuron by neuron, and how well token 1 fits the form
*/
#ifndef ANATOMY_H
#define ANATOMY_H
#include "../run/working.h"
#include "../core/train_sink.h"
#include "form.h"
#include "sequences.h"

// What is measured of a layer, a row each: the field, which is its key in --json, and what it is.
// NaN: the layer has none.
#define ANATOMY(X) \
    X(spike,           "the largest entry of h after it, of all sequences and tokens") \
    X(spike_channel,   "where: its channel,") \
    X(spike_sequence,  "its sequence, from 0,") \
    X(spike_token,     "its token, from 1,") \
    X(spike_id,        "and the id of that") \
    X(kurtosis,        "of the channels of h after it: mean s^4 / (mean s^2)^2, s their root mean square") \
    X(state,           "h of token 1 after it, in the channel") \
    X(attn_first,      "norm of what attention writes at token 1,") \
    X(attn_rest,       "and at the others") \
    X(ffn_first,       "norm of what the FFN writes at token 1,") \
    X(ffn_rest,        "and at the others") \
    X(attn_spread,     "how many channels share what attention reads of token 1") \
    X(attn_same,       "cosine of that between sequences,") \
    X(attn_same_later, "and of the token in the middle") \
    X(ffn_spread,      "how many channels share what the FFN reads of token 1") \
    X(ffn_same,        "cosine of that between sequences,") \
    X(ffn_same_later,  "and of the token in the middle") \
    X(wrote,           "what the neurons write into the channel at token 1") \
    X(form,            "x' S x, what they would write if swish(z) were z") \
    X(ratio,           "first eigenvalue of S over the second") \
    X(ratio_others,    "the same in other channels, the median") \
    X(aligned_first,   "|cosine| of token 1 and the direction that is amplified") \
    X(aligned_rest,    "the same of the others") \
    X(neuron,          "the neuron that writes most into the channel at token 1") \
    X(share,           "its share of the sum of |what all neurons write there|") \
    X(share_three,     "the share of the first three")

enum { EIGENVALUES = 4, OTHER_CHANNELS = 12 };

struct AnatomyLayer {
    #define X(field, ...) double field = NAN;
    ANATOMY(X)
    #undef X
    std::vector<double> eigenvalues;             // of S
    Vector direction;                            // its first eigenvector; empty without S
    Vector neurons;                              // sum of what each writes into the channel
};

struct Anatomy {
    int T = 0;
    int channel = 0;
    int step_up = 0;                             // the layer where it grows most
    int step_down = -1;                          // where it shrinks most; -1: it never does
    std::vector<AnatomyLayer> layers;
};

// Counts the channels that share a row, by its squares: 1 if one has all, C if all have the same.
inline double spread(const Vector& x) {
    double fourth = 0;
    for (double v : x) { fourth += v * v * v * v; }
    return dot(x, x) * dot(x, x) / fourth;
}

// Adds unit vectors of many sequences: the mean cosine of two of them follows from their sum.
struct Alike {
    Vector sum;
    int n = 0;

    void add(const Vector& x) {
        sum.resize(x.size());
        add_multiple(&sum, 1 / length(x), x);
        n++;
    }
    double cosine() const { return n < 2 ? NAN : (dot(sum, sum) - n) / n / (n - 1.0); }
};

// Runs the model on the sequences, in batches. Calls each(first, l) after layer l of the batch that
// begins with sequence `first`, and each(first, -1) after its embedding.
inline void each_layer(Model* m, const Sequences& text,
                       const std::function<void(int first, int l)>& each) {
    each_batch(m, text, [&](int first, long) {
        model_layers(m, [&](int l) { each(first, l); });
    });
}

// ---- 1: the stream

// What the first reading adds up of a layer. i: 0 attention, 1 the FFN.
struct StreamSums {
    Vector squares;                              // of each channel of h, over all tokens
    std::vector<Vector> ffn_reads;               // of token 1 of every sequence
    Alike same[2];                               // what i reads of token 1
    Alike same_later[2];                         // and of the token in the middle
};

// Adds one number of every loaded row: to *first the mean of token 1's over n sequences, to *rest
// that of the others'.
inline void add_means(const Model* m, const Vector& x, int n, double* first, double* rest) {
    NormPair means;
    add_rows(&means, 0, m, x, n);
    *first += means.first[0];
    *rest += means.rest[0];
}

// Adds the norms of what branch i wrote: what it added to the stream, before a norm of the stream.
inline void add_writes(const Model* m, int i, int n, double* first, double* rest) {
    const HostRows before(m, act_x(m, i));
    const HostRows after(m, m->sizes.norm.stream ? act_f(m, i) : act_x(m, i + 1));
    Vector lengths;
    for (int row = 0; row < rows(m); row++) {
        Vector wrote = after.row(row);
        add_multiple(&wrote, -1, before.row(row));
        lengths.push_back(length(wrote));
    }
    add_means(m, lengths, n, first, rest);
}

// Adds what branch i reads of token 1 and of the token in the middle. Returns the mean spread.
inline double add_reads(const Model* m, int i, StreamSums* sums) {
    const HostRows reads(m, act_n(m, i));
    double spreads = 0;
    for (int b = 0; b < m->B; b++) {
        const int first = b * m->T + sink_rows(m);
        const Vector x = reads.row(first);
        spreads += spread(x);
        sums->same[i % 2].add(x);
        sums->same_later[i % 2].add(reads.row(first + (m->T - sink_rows(m)) / 2));
        if (i % 2) { sums->ffn_reads.push_back(x); }
    }
    return spreads;
}

// Finds the largest entry of h after a layer, and adds up the squares of all.
inline void add_state(const Model* m, const HostRows& h, const Sequences& text, int first,
                      AnatomyLayer* layer, StreamSums* sums) {
    sums->squares.resize(h.C);
    for (int n = 0; n < rows(m); n++) {
        const int sequence = first + n / m->T;
        const int token = n % m->T - sink_rows(m);
        if (token < 0) { continue; }
        const Vector x = h.row(n);
        for (long c = 0; c < h.C; c++) {
            sums->squares[c] += x[c] * x[c];
            const bool larger = fabs(x[c]) > fabs(layer->spike);
            if (!larger && !std::isnan(layer->spike)) { continue; }
            layer->spike = x[c];
            layer->spike_channel = c;
            layer->spike_sequence = sequence;
            layer->spike_token = token + 1;
            layer->spike_id = text.id(sequence, token);
        }
    }
}

// Adds h of token 1 after a layer, or after the embedding.
inline void add_first(const Model* m, const HostRows& h, int n, Vector* state) {
    state->resize(h.C);
    for (int b = 0; b < m->B; b++) {
        add_multiple(state, 1.0 / n, h.row((long)b * m->T + sink_rows(m)));
    }
}

// Finds the channel in which |h| of token 1 grows most over a layer, and that layer; and where it
// shrinks most in that channel. states: h of token 1 after the embedding and after each layer.
inline void find_steps(Anatomy* a, const std::vector<Vector>& states) {
    const auto growth = [&](int l, int c) { return fabs(states[l + 1][c]) - fabs(states[l][c]); };
    const int L = a->layers.size();
    for (int l = 0; l < L; l++) {
        for (size_t c = 0; c < states[l].size(); c++) {
            if (growth(l, c) <= growth(a->step_up, a->channel)) { continue; }
            a->channel = c;
            a->step_up = l;
        }
    }
    double least = 0;
    for (int l = 0; l < L; l++) {
        if (growth(l, a->channel) >= least) { continue; }
        least = growth(l, a->channel);
        a->step_down = l;
    }
}

// ---- the form of a layer's FFN, in the channel and in others

// Finds the spectrum of the form, and what the form says of token 1. reads: what the FFN reads of
// it, of every sequence.
inline void find_form(const Model* m, int l, int channel, const std::vector<Vector>& reads,
                      AnatomyLayer* layer) {
    const Sizes& sizes = m->sizes;
    const Matrix gate = weight_matrix(layer_params(m, l).gatew.w, sizes.F, sizes.C);
    const Matrix up = weight_matrix(layer_params(m, l).upw.w, sizes.F, sizes.C);
    const Matrix down = weight_matrix(layer_params(m, l).downw.w, sizes.C, sizes.F);
    const int others = std::min<long>(OTHER_CHANNELS, sizes.C - 1);
    std::vector<double> ratios(others + 1);
    #pragma omp parallel for schedule(dynamic)
    for (int k = 0; k <= others; k++) {
        const long step = k ? 1 + (k - 1) * (sizes.C - 1) / others : 0;      // spread evenly
        const Form form = { &gate, &up, down.row((channel + step) % sizes.C) };
        const Eigen e = k ? form_eigen(form, sizes.C, 2, 1e-4)
                          : form_eigen(form, sizes.C, EIGENVALUES, 1e-7);
        ratios[k] = e.values.size() < 2 ? NAN : fabs(e.values[0] / e.values[1]);
        if (k) { continue; }
        layer->eigenvalues = e.values;
        layer->direction = e.vectors[0];
        layer->form = 0;
        for (auto& x : reads) { layer->form += dot(x, form.times(x)) / reads.size(); }
    }
    layer->ratio = ratios[0];
    if (!others) { return; }
    std::sort(ratios.begin() + 1, ratios.end());
    const double low = ratios[(others + 1) / 2];
    const double high = ratios[others / 2 + 1];
    layer->ratio_others = (low + high) / 2;
}

// ---- 2: the FFN

// Adds what each neuron writes into the channel at token 1, and how well the tokens fit the form.
inline void add_neurons(const Model* m, int l, int channel, const Sequences& text,
                        AnatomyLayer* layer) {
    const long F = m->sizes.F;
    const Matrix down = weight_matrix(layer_params(m, l).downw.w + channel * F, 1, F);
    layer->neurons.resize(F);
    for (int b = 0; b < m->B; b++) {
        const long first = (long)b * m->T + sink_rows(m);
        const std::vector<real> neurons = copy_to_host(act_fca(m, l) + first * F, F);
        for (long n = 0; n < F; n++) {
            layer->neurons[n] += down.x[n] * (double)neurons[n] / text.n;
        }
    }
    if (layer->direction.empty()) { return; }
    const HostRows reads(m, act_n(m, 2 * l + 1));
    Vector cosines;
    for (int row = 0; row < rows(m); row++) {
        const Vector x = reads.row(row);
        cosines.push_back(fabs(dot(x, layer->direction)) / length(x));
    }
    add_means(m, cosines, text.n, &layer->aligned_first, &layer->aligned_rest);
}

// Finds the neurons that write most.
inline void find_neurons(AnatomyLayer* layer) {
    layer->wrote = 0;
    double all = 0;
    for (double x : layer->neurons) {
        layer->wrote += x;
        all += fabs(x);
    }
    const auto size = [&](int n) { return fabs(layer->neurons[n]); };
    const std::vector<int> order = largest_first(layer->neurons.size(), size);
    layer->neuron = order[0];
    layer->share = size(order[0]) / all;
    layer->share_three = 0;
    for (size_t k = 0; k < 3 && k < order.size(); k++) {
        layer->share_three += size(order[k]) / all;
    }
}

// Measures all of it.
inline Anatomy anatomy_measure(Model* m, const Sequences& text) {
    Anatomy a;
    a.T = text.T;
    a.layers.resize(m->sizes.L);
    std::vector<StreamSums> sums(m->sizes.L);
    std::vector<Vector> states(m->sizes.L + 1);
    for (auto& layer : a.layers) {
        layer.attn_first = layer.attn_rest = layer.ffn_first = layer.ffn_rest = 0;
        layer.attn_spread = layer.ffn_spread = 0;
    }
    each_layer(m, text, [&](int first, int l) {
        const HostRows h(m, act_x(m, 2 * l + 2));
        add_first(m, h, text.n, &states[l + 1]);
        if (l < 0) { return; }
        AnatomyLayer* layer = &a.layers[l];
        working_layer(l, m->sizes.L);
        add_writes(m, 2 * l, text.n, &layer->attn_first, &layer->attn_rest);
        add_writes(m, 2 * l + 1, text.n, &layer->ffn_first, &layer->ffn_rest);
        layer->attn_spread += add_reads(m, 2 * l, &sums[l]) / text.n;
        layer->ffn_spread += add_reads(m, 2 * l + 1, &sums[l]) / text.n;
        add_state(m, h, text, first, layer, &sums[l]);
    });
    find_steps(&a, states);
    for (int l = 0; l < m->sizes.L; l++) {
        AnatomyLayer* layer = &a.layers[l];
        working_layer(l, m->sizes.L);
        layer->state = states[l + 1][a.channel];
        for (double& x : sums[l].squares) { x = sqrt(x); }
        layer->kurtosis = m->sizes.C / spread(sums[l].squares);
        layer->attn_same = sums[l].same[0].cosine();
        layer->attn_same_later = sums[l].same_later[0].cosine();
        layer->ffn_same = sums[l].same[1].cosine();
        layer->ffn_same_later = sums[l].same_later[1].cosine();
        if (!m->sizes.has_ffn(l) || !m->sizes.ffn.gated) { continue; }
        layer->aligned_first = layer->aligned_rest = 0;
        find_form(m, l, a.channel, sums[l].ffn_reads, layer);
    }
    each_layer(m, text, [&](int, int l) {
        if (l >= 0 && m->sizes.has_ffn(l)) { add_neurons(m, l, a.channel, text, &a.layers[l]); }
    });
    for (auto& layer : a.layers) {
        if (!layer.neurons.empty()) { find_neurons(&layer); }
    }
    return a;
}

// Prints what --anatomy asks of a probe, and adds it to *o.
void probe_anatomy(Model* m, const Flags& f, const ProbeInput& in, int T, JsonObject* o);
#endif // ANATOMY_H
