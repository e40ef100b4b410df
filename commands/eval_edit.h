/*
eval_edit.h -- edits of eval: PLACE:LAYERS:TOKENS[:CHANNELS]=VALUE.

Layers, heads and channels count from 0, tokens from 1, as in probe.
*/
#ifndef EVAL_EDIT_H
#define EVAL_EDIT_H
#include <limits.h>
#include <map>
#include "../train_sink.h"

// ---- sets of layers, tokens, channels: 3   1,4   2..5   2..   * (all)   top2 (the two largest)
struct Picks {
    std::vector<std::pair<long, long>> ranges;
    int top = 0;

    bool has(long i) const {
        for (auto& r : ranges) { if (r.first <= i && i <= r.second) { return true; } }
        return false;
    }

    // does it name one of n or more? A range without an end may begin below
    bool beyond(long n) const {
        for (auto& r : ranges) {
            if (r.first >= n || (r.second < LONG_MAX && r.second >= n)) { return true; }
        }
        return false;
    }

    long last() const {
        long most = 0;
        for (auto& r : ranges) { most = std::max(most, r.second); }
        return most;
    }
};

// is the text such a set? then *p is it
inline bool picks_parse(const std::string& text, Picks* p) {
    long a = 0, b = 0;
    *p = Picks();
    if (text == "*") { p->ranges.push_back({ 0, LONG_MAX }); return true; }
    if (text.compare(0, 3, "top") == 0) {
        p->top = parse_long(text.substr(3), &a) && a > 0 && a < 1 << 20 ? a : 0;
        return p->top > 0;
    }
    for (auto& word : split(text, ',')) {
        const size_t dots = word.find("..");
        const std::string upper = dots == std::string::npos ? word : word.substr(dots + 2);
        if (!parse_long(word.substr(0, dots), &a) || a < 0) { return false; }
        b = LONG_MAX;
        if (!upper.empty() && !parse_long(upper, &b)) { return false; }
        if (b < a) { return false; }
        p->ranges.push_back({ a, b });
    }
    return !p->ranges.empty();
}

// ---- activations in host memory, in the numbers that the reference computes with
typedef std::vector<acc> Host;

inline Host host_read(const real* x, size_t n) {
    std::vector<real> raw(x ? n : 0);
    if (x) { ops::to_host(raw.data(), x, n * sizeof(real)); }
    return Host(raw.begin(), raw.end());
}

inline void host_write(real* x, const Host& host) {
    const std::vector<real> raw(host.begin(), host.end());
    ops::to_device(x, raw.data(), raw.size() * sizeof(real));
}

// (B, T, width) numbers, in rows `stride` apart; `group` channels are one of what a set counts: 1,
// or a head's HS. Row `skip` is that of the first token. With a base, what is meant is x - base
struct Rows {
    Host* x; const Host* base;
    int B, T, skip, stride, offset, width, group;

    size_t at(int b, int t, int c) const { return ((size_t)b * T + t) * stride + offset + c; }
    acc get(size_t i) const         { return base ? (*x)[i] - (*base)[i] : (*x)[i]; }
    void set(size_t i, acc v) const { (*x)[i] = base ? (*base)[i] + v : v; }
};

// ---- edits
enum Place {
    PLACE_pe, PLACE_q, PLACE_k, PLACE_v, PLACE_A,
    PLACE_head, PLACE_gate, PLACE_attn, PLACE_mlp, PLACE_h
};
struct PlaceRow { const char* name; bool by_head; StageRole stage; const char* help; };
static const PlaceRow PLACES[] = { // in the order in which a layer meets them
    { "pe",   false, ROLE_NONE,      "learned positions: pe:TOKENS, without LAYERS" },
    { "q",    true,  ROLE_ATTENTION, "queries, as attention reads them" },
    { "k",    true,  ROLE_ATTENTION, "keys, likewise" },
    { "v",    true,  ROLE_ATTENTION, "values" },
    { "A",    true,  ROLE_ATTENTION, "weights of these tokens in the rows of later ones" },
    { "head", true,  ROLE_ATTENTION, "outputs of the heads" },
    { "gate", true,  ROLE_GATE,      "the gate, after its sigmoid" },
    { "attn", false, ROLE_ATTN_OUT,  "what attention adds to the stream" },
    { "mlp",  false, ROLE_FFN_OUT,   "what the FFN adds to it" },
    { "h",    false, ROLE_FFN_OUT,   "the stream after a layer" },
};

// EDIT_MASK, of A only: the key is not seen, and the row sums to 1 without it
enum How { EDIT_NUMBER, EDIT_MEAN, EDIT_SCALE, EDIT_FROM, EDIT_MASK };
struct Edit {
    std::string text;
    Place place; Picks layers, tokens, channels;
    How how; double value; long from;
    long count = 0;                              // of sequences in `sums`
    std::map<int, std::vector<double>> sums;     // EDIT_MEAN: of a layer, (T, width)
};

// what is behind the = sign: a number, mean, xS, from T, mask. Is it one of these?
inline bool edit_value(const std::string& text, Edit* e) {
    double v = 0;
    e->value = 0;
    e->from = 0;
    e->how = EDIT_NUMBER;
    if (text == "mean") { e->how = EDIT_MEAN; return true; }
    if (text == "mask") { e->how = EDIT_MASK; return e->place == PLACE_A; }
    if (text.compare(0, 4, "from") == 0) {
        const size_t at = text.find_first_not_of(' ', 4);
        e->how = EDIT_FROM;
        return at != std::string::npos && parse_long(text.substr(at), &e->from) && e->from >= 1;
    }
    if (text[0] == 'x') { e->how = EDIT_SCALE; }
    const bool number = parse_double(text.substr(text[0] == 'x'), &v) && std::isfinite(v) &&
                        !float_loses(v);
    e->value = v;
    return number;
}

[[noreturn]] inline void edit_wrong(const std::string& text, const std::string& wanted) {
    die(EXIT_USER, "--edit: got '" + text + "', wanted " + wanted,
        "for example --edit 'h:2:1:top2=0'");
}

// one edit from its text; dies if it means nothing
inline Edit edit_parse(const std::string& text) {
    Edit e;
    const size_t equals = text.rfind('=');
    const std::vector<std::string> part = split(text.substr(0, equals), ':');
    std::string names;
    int place = -1;
    for (auto& row : PLACES) {
        if (!part.empty() && part[0] == row.name) { place = &row - PLACES; }
        names += strf("%s%s (%s)", names.empty() ? " " : ", ", row.name, row.help);
    }
    if (equals == std::string::npos || place < 0) {
        edit_wrong(text, "PLACE:LAYERS:TOKENS[:CHANNELS]=VALUE with a place of:" + names);
    }
    e.text = text;
    e.place = (Place)place;
    const size_t first = place == PLACE_pe ? 1 : 2;          // the field of TOKENS
    picks_parse("*", &e.layers);
    picks_parse("*", &e.channels);
    const bool layers =
        first == 1 || (part.size() > 1 && picks_parse(part[1], &e.layers) && !e.layers.top);
    const bool tokens = part.size() > first && picks_parse(part[first], &e.tokens) && !e.tokens.top;
    const bool channels = part.size() <= first + 1 || picks_parse(part[first + 1], &e.channels);
    if (!layers || !tokens || !channels || part.size() > first + 2) {
        edit_wrong(text, "sets such as 3, 1,4, 2..5, 2.. or * of layers, tokens and channels");
    }
    if (e.channels.top && PLACES[place].by_head) {
        edit_wrong(text, "top of channels: h, attn, mlp or pe");
    }
    if (!edit_value(text.substr(equals + 1), &e)) {
        edit_wrong(text, "a value: a number, mean, x0.5, from 2, or, of A, mask");
    }
    if (place == PLACE_A && (e.how == EDIT_MEAN || e.how == EDIT_FROM)) {
        edit_wrong(text, "for A a number, x0.5 or mask");
    }
    if (place == PLACE_pe && e.how == EDIT_MEAN) {
        edit_wrong(text, "for pe a number, x0.5 or from 2");
    }
    return e;
}

// which channels of a row the edit means
inline std::vector<char> edit_channels(const Edit& e, const Rows& r, int b, int t) {
    std::vector<char> means(r.width);
    if (!e.channels.top) {
        for (int c = 0; c < r.width; c++) { means[c] = e.channels.has(c / r.group); }
        return means;
    }
    std::vector<int> order(r.width);
    for (int c = 0; c < r.width; c++) { order[c] = c; }
    const int top = std::min(e.channels.top, r.width);
    std::partial_sort(order.begin(), order.begin() + top, order.end(), [&](int i, int j) {
        return std::fabs(r.get(r.at(b, t, i))) > std::fabs(r.get(r.at(b, t, j)));
    });
    for (int k = 0; k < top; k++) { means[order[k]] = 1; }
    return means;
}

// writes what layer l has at the edit's place
inline void edit_apply(const Edit& e, int l, const Rows& r) {
    Host row;
    for (int b = 0; b < r.B; b++) {
        const int from = r.skip + (int)e.from - 1;
        for (int c = 0; e.how == EDIT_FROM && c < r.width; c++) {
            if (c == 0) { row.clear(); }
            row.push_back(r.get(r.at(b, from, c)));
        }
        for (int t = r.skip; t < r.T; t++) {
            if (!e.tokens.has(t - r.skip + 1)) { continue; }
            const std::vector<char> means = edit_channels(e, r, b, t);
            for (int c = 0; c < r.width; c++) {
                if (!means[c]) { continue; }
                const size_t i = r.at(b, t, c);
                if (e.how == EDIT_NUMBER) { r.set(i, e.value); }
                if (e.how == EDIT_SCALE)  { r.set(i, e.value * r.get(i)); }
                if (e.how == EDIT_FROM)   { r.set(i, row[c]); }
                if (e.how == EDIT_MEAN) {
                    r.set(i, e.sums.at(l)[(size_t)t * r.width + c] / e.count);
                }
            }
        }
    }
}

// adds what is there to the sums that a mean is made of
inline void edit_record(Edit* e, int l, const Rows& r) {
    std::vector<double>& sum = e->sums[l];
    sum.resize((size_t)r.T * r.width);
    for (int b = 0; b < r.B; b++) {
        for (int t = 0; t < r.T; t++) {
            for (int c = 0; c < r.width; c++) {
                sum[(size_t)t * r.width + c] += r.get(r.at(b, t, c));
            }
        }
    }
}
#endif // EVAL_EDIT_H
