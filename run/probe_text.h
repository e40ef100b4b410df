/*
probe_text.h -- what a probe says to a person: how often the first token is a sink, in which layers,
and how large its hidden state is. Start with probe_text; --json has the numbers (log.h).
*/
#ifndef PROBE_TEXT_H
#define PROBE_TEXT_H
#include "../log.h"
#include "../metrics.cuh"

// Writes a share in hundredths. One that is neither 0 nor 1 is never rounded to it.
inline std::string of_hundred(double share) {
    if (share > 0 && share < 0.01)  { return "less than 1"; }
    if (share < 1 && share > 0.99)  { return "more than 99"; }
    return strf("%.0f", 100 * share);
}

// Writes the attention that the first token gets by layer, in tenths: the mean over heads and
// sequences. A layer without attention has a dot; ten layers stand together.
inline std::string tenths_by_layer(const Metrics& r) {
    const std::vector<double> heads = head_means(r, [&](const HeadMetrics& h) {
        return (double)(r.sums_to_one ? h.alpha[1] : h.proxy[1]);
    });
    const int layers = (int)r.h.first.size() - 1;
    std::string row(layers, '.');
    for (int i = 0; i < r.L; i++) {
        double alpha = 0;
        for (int h = 0; h < r.NH; h++) { alpha += heads[(size_t)i * r.NH + h] / r.NH; }
        row[r.layers[i]] = '0' + std::clamp<int>(10 * alpha, 0, 9);
    }
    for (int l = (layers - 1) / 10 * 10; l > 0; l -= 10) { row.insert(l, " "); }
    return row;
}

// Returns what the first token would get if every query gave all tokens that it sees the same: the
// mean over queries i of 1/i.
inline double uniform_alpha(int T) {
    double sum = 0;
    for (int i = 1; i <= T; i++) { sum += 1.0 / i; }
    return sum / T;
}

// Names the place of row i of h: "after layer 11", counted from 0 as heads are. Row 0 is the
// embedding.
inline std::string after_layer(size_t i) {
    if (i == 0) { return "in the embedding"; }
    return strf("after layer %zu", i - 1);
}

// Says how much longer the first token's hidden state is than the others', in the worst layer, and
// how far the largest entry stands out.
inline std::string spike_text(const Metrics& r) {
    size_t longest = 0;
    const auto ratio = [&](size_t l) { return r.h.first[l] / r.h.rest[l]; };
    for (size_t l = 0; l < r.h.first.size(); l++) {
        if (ratio(l) > ratio(longest)) { longest = l; }
    }
    std::string text;
    if (std::isfinite(ratio(longest))) {
        text = strf("  the hidden state of token 1 has up to %.3g times the norm of the others', "
                    "%s\n", ratio(longest), after_layer(longest).c_str());
    }
    const size_t largest = spike_layer(r);
    return text + strf("  the largest entry of any hidden state is up to %.3g times the median, "
                       "%s\n", spike_at(r, largest), after_layer(largest).c_str());
}

// Says how often the first token is a sink, at one threshold.
inline std::string sink_sentence(const Metrics& r, const Sinks& s) {
    std::string text = "  in " + of_hundred(s.first) + "% of all (head, sequence) pairs, ";
    text += strf("token 1 gets more than %g of ", s.eps);
    text += r.sums_to_one ? "the attention" : "the row's weights";
    if (r.has_extra) {
        text += r.h_star.empty() ? "; the extra key" : "; the sink token";
        text += " does in " + of_hundred(s.star) + "%";
    }
    return text + "\n";
}

// Writes what a probe measured, for a person: some lines that begin with two blanks.
inline std::string probe_text(const Metrics& r) {
    std::string text;
    for (auto& s : r.sinks) { text += sink_sentence(r, s); }
    text += strf("  by layer, in tenths: %s   (uniform attention: %.2f)\n",
                 tenths_by_layer(r).c_str(), uniform_alpha(r.T));
    return text + spike_text(r);
}
#endif // PROBE_TEXT_H
