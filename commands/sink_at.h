/*
sink_at.h -- --sink-at on the command line, in the line that is printed and in JSON. What it is:
measure.h.
*/
#ifndef SINK_AT_H
#define SINK_AT_H
#include "../flags.h"
#include "../log.h"
#include "../measure.h"

// "15,20", of sequences of T tokens; dies at what they do not have
inline SinkAt sink_at_parse(const std::string& text, int T) {
    SinkAt at;
    if (text.empty()) { return at; }
    for (double k : flag_list("--sink-at", text)) {
        require(k >= 1 && k <= T && k == floor(k), strf("--sink-at %g", k), strf("1 to %d", T));
        at.tokens.push_back(k);
    }
    at.alpha.resize(at.tokens.size());
    return at;
}

// " | Sink_15 52.8%, Sink_20 51.7%", or nothing
inline std::string sink_at_text(const SinkAt& at, double eps) {
    std::string o;
    for (size_t i = 0; i < at.tokens.size(); i++) {
        o += i ? ", " : " | ";
        o += strf("Sink_%d %.1f%%", at.tokens[i], 100 * sink_at_rate(at, i, eps));
    }
    return o;
}

// the same as a field of an object: a row for each eps, a column for each token
inline std::string sink_at_json(const SinkAt& at, const std::vector<double>& eps) {
    if (at.tokens.empty()) { return ""; }
    std::vector<double> rates;
    for (double e : eps) {
        for (size_t i = 0; i < at.tokens.size(); i++) { rates.push_back(sink_at_rate(at, i, e)); }
    }
    return ",\"sink_at\":{\"k\":" +
           json_array(std::vector<double>(at.tokens.begin(), at.tokens.end())) +
           ",\"eps\":" + json_array(eps) + ",\"sink_k\":" + json_matrix(rates, at.tokens.size()) +
           "}";
}
#endif // SINK_AT_H
