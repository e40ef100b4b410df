/*
sink_at.h -- --sink-at on the command line, in the line that is printed and in JSON. What it is:
measure.h.
*/
#ifndef SINK_AT_H
#define SINK_AT_H
#include "../flags.h"
#include "../log.h"
#include "../core/measure.h"

// Reads "15,20". Ends the program at a token that sequences of T tokens do not have.
inline SinkAt sink_at_parse(const std::string& text, int T) {
    SinkAt at;
    if (text.empty()) { return at; }
    for (double k : flag_list("--sink-at", text)) {
        const bool token = k >= 1 && k <= T && k == floor(k);
        require(token, strf("--sink-at %g", k), strf("1 to %d", T));
        at.tokens.push_back(k);
    }
    at.alpha.resize(at.tokens.size());
    return at;
}

// Writes " | Sink_15 52.8%, Sink_20 51.7%", or nothing.
inline std::string sink_at_text(const SinkAt& at, double eps) {
    std::string o;
    for (size_t i = 0; i < at.tokens.size(); i++) {
        o += i ? ", " : " | ";
        o += strf("Sink_%d %.1f%%", at.tokens[i], 100 * sink_at_rate(at, i, eps));
    }
    return o;
}

// Adds the same as a field: a row for each eps, a column for each token.
inline void sink_at_field(JsonObject* o, const SinkAt& at, const std::vector<double>& eps) {
    if (at.tokens.empty()) { return; }
    std::vector<double> rates;
    for (double e : eps) {
        for (size_t i = 0; i < at.tokens.size(); i++) { rates.push_back(sink_at_rate(at, i, e)); }
    }
    JsonObject field;
    field.array("k", std::vector<double>(at.tokens.begin(), at.tokens.end()));
    field.array("eps", eps);
    field.json("sink_k", json_matrix(rates, at.tokens.size()));
    o->json("sink_at", field.all());
}
#endif // SINK_AT_H
