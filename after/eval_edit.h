/*
eval_edit.h -- edits of eval: PLACE:LAYERS:TOKENS[:CHANNELS]=VALUE.

Layers, heads and channels count from 0, tokens from 1, as in probe.
*/
#ifndef EVAL_EDIT_H
#define EVAL_EDIT_H
#include <limits.h>
#include <map>
#include "../core/train_sink.h"
#include "vectors.h"

// ---- sets of layers, tokens, channels: 3   1,4   2..5   2..   * (all)   top2 (the two largest)
struct Picks {
    std::vector<std::pair<long, long>> ranges;
    int top = 0;

    // Tells whether i is in the set.
    bool has(long i) const {
        for (auto& r : ranges) {
            if (r.first <= i && i <= r.second) { return true; }
        }
        return false;
    }

    // Tells whether the set names one of n or more. A range without an end may begin below.
    bool beyond(long n) const {
        for (auto& r : ranges) {
            const bool ends = r.second < LONG_MAX;
            if (r.first >= n || (ends && r.second >= n)) { return true; }
        }
        return false;
    }

    // Returns the largest that is named, LONG_MAX if a range has no end.
    long last() const {
        long most = 0;
        for (auto& r : ranges) { most = std::max(most, r.second); }
        return most;
    }
};

// Reads top2. Returns false for another text.
inline bool picks_top(const std::string& text, Picks* p) {
    long top = 0;
    const bool number = starts_with(text, "top") && parse_long(text.substr(3), &top);
    if (!number || top < 1 || top >= 1 << 20) { return false; }
    p->top = top;
    return true;
}

// Reads one range of a set: 3, 2..5 or 2... Returns false for another text.
inline bool range_parse(const std::string& word, std::pair<long, long>* range) {
    const size_t dots = word.find("..");
    std::string upper = word;
    if (dots != word.npos) { upper = word.substr(dots + 2); }
    long a = 0;
    long b = LONG_MAX;
    if (!parse_long(word.substr(0, dots), &a) || a < 0) { return false; }
    if (!upper.empty() && !parse_long(upper, &b)) { return false; }
    if (b < a) { return false; }
    *range = { a, b };
    return true;
}

// Reads a set from its text. Returns false if the text is none.
inline bool picks_parse(const std::string& text, Picks* p) {
    *p = Picks();
    if (text == "*") {
        p->ranges = { { 0, LONG_MAX } };
        return true;
    }
    if (picks_top(text, p)) { return true; }
    for (auto& word : split(text, ',')) {
        std::pair<long, long> range;
        if (!range_parse(word, &range)) { return false; }
        p->ranges.push_back(range);
    }
    return !p->ranges.empty();
}

// ---- activations in host memory, in the numbers that the reference computes with
typedef std::vector<acc> Host;

// Reads n numbers from the device; none if x is NULL.
inline Host host_read(const real* x, size_t n) {
    if (!x) { return Host(); }
    const std::vector<real> raw = copy_to_host(x, n);
    return Host(raw.begin(), raw.end());
}

inline void host_write(real* x, const Host& host) {
    copy_to_device(x, std::vector<real>(host.begin(), host.end()));
}

// Which columns of a tensor's rows are meant.
struct Columns {
    long stride;                                 // from row to row
    long offset;                                 // of the first column
    long width;
    long group;                                  // channels that a set counts as one: 1, or HS
};

// (B, T, width) numbers of an array in host memory.
struct Rows : Columns {
    Host* x;
    const Host* base;                            // if not NULL, what is meant is x - base
    int B;
    int T;
    int skip;                                    // the row of the first token

    size_t at(long b, int t, int c) const { return (b * T + t) * stride + offset + c; }
    acc get(size_t i) const         { return base ? (*x)[i] - (*base)[i] : (*x)[i]; }
    void set(size_t i, acc v) const { (*x)[i] = base ? (*base)[i] + v : v; }
};

// ---- edits
enum Place {
    PLACE_pe, PLACE_q, PLACE_k, PLACE_v, PLACE_A,
    PLACE_head, PLACE_gate, PLACE_attn, PLACE_mlp, PLACE_h
};
struct PlaceRow {
    const char* name;
    bool by_head;                                // channels are counted in heads
    StageRole stage;
    const char* help;
};
static const PlaceRow PLACES[] = { // in the order in which a layer meets them
    { "pe",   false, ROLE_NONE,      "learned positions: pe:TOKENS, without LAYERS" },
    { "q",    true,  ROLE_ATTENTION, "queries, as attention reads them" },
    { "k",    true,  ROLE_ATTENTION, "keys, likewise" },
    { "v",    true,  ROLE_ATTENTION, "values" },
    { "A",    true,  ROLE_ATTENTION, "weights of these tokens in later rows; 0: the extra key" },
    { "head", true,  ROLE_ATTENTION, "outputs of the heads" },
    { "gate", true,  ROLE_GATE,      "the gate, after its sigmoid" },
    { "attn", false, ROLE_ATTN_OUT,  "what attention adds to the stream" },
    { "mlp",  false, ROLE_FFN_OUT,   "what the FFN adds to it" },
    { "h",    false, ROLE_FFN_OUT,   "the stream after a layer" },
};

// EDIT_MASK, of A only: the key is not seen, and the row sums to 1 without it. EDIT_SELF, too: the
// tokens are queries, which see themselves alone
enum How { EDIT_NUMBER, EDIT_MEAN, EDIT_SCALE, EDIT_FROM, EDIT_MASK, EDIT_SELF };
struct Edit {
    std::string text;
    Place place = PLACE_h;
    Picks layers;
    Picks tokens;
    Picks channels;
    How how = EDIT_NUMBER;
    double value = 0;
    long from = 0;
    long count = 0;                              // sequences in `sums`
    std::map<int, std::vector<double>> sums;     // EDIT_MEAN: of a layer, (T, width)

    // Tells whether it names a token. Token 0 is not one of `*` or `0..`.
    bool names(long token) const {
        return tokens.has(token) && (token > 0 || tokens.last() < LONG_MAX);
    }
};

// Reads a number that is not lost as a float.
inline bool edit_number(const std::string& text, double* v) {
    return parse_double(text, v) && !float_loses(*v);
}

// Reads the part after `=`. Returns false if it is not one of: number, mean, xS, from T, mask,
// self.
inline bool edit_value(const std::string& text, Edit* e) {
    if (text == "mean") {
        e->how = EDIT_MEAN;
        return true;
    }
    if (text == "mask" || text == "self") {
        e->how = text == "mask" ? EDIT_MASK : EDIT_SELF;
        return e->place == PLACE_A;
    }
    if (starts_with(text, "from")) {
        e->how = EDIT_FROM;
        const size_t at = text.find_first_not_of(' ', 4);
        if (at == text.npos) { return false; }
        return parse_long(text.substr(at), &e->from) && e->from >= 1;
    }
    if (text[0] == 'x') {
        e->how = EDIT_SCALE;
        return edit_number(text.substr(1), &e->value);
    }
    return edit_number(text, &e->value);
}

[[noreturn]] inline void edit_wrong(const std::string& text, const std::string& wanted) {
    die("--edit: got '" + text + "', wanted " + wanted,
        "for example --edit 'h:2:1:top2=0'");
}

// Lists the places: "pe (learned positions: ..), q (..)".
inline std::string place_names() {
    std::string names;
    for (auto& row : PLACES) { list_add(&names, strf("%s (%s)", row.name, row.help)); }
    return names;
}

// Reads the sets of an edit from the parts before `=`. Returns false if one is missing, or is none.
inline bool edit_sets(const std::vector<std::string>& part, Edit* e) {
    picks_parse("*", &e->layers);
    picks_parse("*", &e->channels);
    const size_t first = e->place == PLACE_pe ? 1 : 2;       // the part of TOKENS
    const size_t n = part.size();
    if (n <= first || n > first + 2) { return false; }
    if (first == 2 && !picks_parse(part[1], &e->layers)) { return false; }
    if (!picks_parse(part[first], &e->tokens)) { return false; }
    if (n > first + 1 && !picks_parse(part[first + 1], &e->channels)) { return false; }
    return !e->layers.top && !e->tokens.top;
}

// Reads one edit from its text. Ends the program if it means nothing.
inline Edit edit_parse(const std::string& text) {
    const size_t equals = text.rfind('=');
    const auto part = split(text.substr(0, equals), ':');
    const int place = part.empty() ? -1 : find_row(PLACES, part[0].c_str());
    if (equals == text.npos || place < 0) {
        edit_wrong(text, "PLACE:LAYERS:TOKENS[:CHANNELS]=VALUE with a place of: " + place_names());
    }
    Edit e;
    e.text = text;
    e.place = (Place)place;
    if (!edit_sets(part, &e)) {
        edit_wrong(text, "sets such as 3, 1,4, 2..5, 2.. or * of layers, tokens and channels");
    }
    if (e.channels.top && PLACES[place].by_head) {
        edit_wrong(text, "top of channels: h, attn, mlp or pe");
    }
    if (!edit_value(text.substr(equals + 1), &e)) {
        edit_wrong(text, "a value: a number, mean, x0.5, from 2, or, of A, mask or self");
    }
    const bool mean = e.how == EDIT_MEAN;
    if (place == PLACE_A && (mean || e.how == EDIT_FROM)) {
        edit_wrong(text, "for A a number, x0.5, mask or self");
    }
    if (place == PLACE_pe && mean) { edit_wrong(text, "for pe a number, x0.5 or from 2"); }
    if (place == PLACE_pe && part.size() == 3) {
        printf("note   --edit %s: pe has no layers, so this is of tokens %s and channels %s\n",
               text.c_str(), part[1].c_str(), part[2].c_str());
    }
    return e;
}

// Marks the channels of a row that the edit means.
inline std::vector<char> edit_channels(const Edit& e, const Rows& r, int b, int t) {
    std::vector<char> means(r.width);
    if (!e.channels.top) {
        for (int c = 0; c < r.width; c++) { means[c] = e.channels.has(c / r.group); }
        return means;
    }
    const auto size = [&](int c) { return std::fabs(r.get(r.at(b, t, c))); };
    const std::vector<int> order = largest_first(r.width, size);
    for (int k = 0; k < e.channels.top && k < r.width; k++) { means[order[k]] = 1; }
    return means;
}

// Edits row t of sequence b. `from` (width) is the row that EDIT_FROM copies.
inline void edit_row(const Edit& e, int l, const Rows& r, int b, int t, const Host& from) {
    const std::vector<char> means = edit_channels(e, r, b, t);
    for (int c = 0; c < r.width; c++) {
        if (!means[c]) { continue; }
        const size_t i = r.at(b, t, c);
        if (e.how == EDIT_NUMBER) { r.set(i, e.value); }
        if (e.how == EDIT_SCALE)  { r.set(i, e.value * r.get(i)); }
        if (e.how == EDIT_FROM)   { r.set(i, from[c]); }
        if (e.how == EDIT_MEAN) {
            const double sum = e.sums.at(l)[t * r.width + c];
            r.set(i, sum / e.count);
        }
    }
}

// Edits what layer l has at the edit's place.
inline void edit_apply(const Edit& e, int l, const Rows& r) {
    const int from = r.skip + (int)e.from - 1;
    for (int b = 0; b < r.B; b++) {
        Host row;                                // as it was before the edit
        if (e.how == EDIT_FROM) {
            for (int c = 0; c < r.width; c++) { row.push_back(r.get(r.at(b, from, c))); }
        }
        for (int t = r.skip; t < r.T; t++) {
            if (!e.tokens.has(t - r.skip + 1)) { continue; }
            edit_row(e, l, r, b, t, row);
        }
    }
}

// Adds what is there to the sums that a mean is made of.
inline void edit_record(Edit* e, int l, const Rows& r) {
    std::vector<double>& sum = e->sums[l];
    sum.resize(r.T * r.width);
    for (int b = 0; b < r.B; b++) {
        for (int t = 0; t < r.T; t++) {
            for (int c = 0; c < r.width; c++) {
                sum[t * r.width + c] += r.get(r.at(b, t, c));
            }
        }
    }
}
#endif // EVAL_EDIT_H
